//! The disruption controller: the status of PodDisruptionBudgets.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::model::time::{Span, Time};
use crate::sim::kube::eviction::covers;
use crate::sim::kube::object::{
    controller, deleting, is_true, map, name, namespace, number, set, set_condition, text,
};
use crate::sim::kube::resources::{DEPLOYMENTS, PDBS, PODS, REPLICASETS, Res, STATEFULSETS};
use crate::sim::kube::store::State;

/// How long an eviction counts whose pod was never deleted (`DeletionTimeout`).
const DISRUPTION_LASTS: Span = Span::minutes(2);

/// Returns when the next disruption that did not happen is forgotten.
pub(super) fn reconcile(state: &mut State) -> Option<Time> {
    let mut next: Option<Time> = None;
    for budget in state.snapshot(PDBS) {
        let pods: Vec<_> = state
            .all(PODS)
            .values()
            .filter(|p| {
                covers(&budget, p) && !matches!(text(p, "/status/phase"), "Succeeded" | "Failed")
            })
            .cloned()
            .collect();
        let (disrupted, end) = pending(&budget, &pods, state.now);
        next = match (next, end) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let healthy = pods
            .iter()
            .filter(|p| is_true(p, "Ready") && !deleting(p) && !disrupted.contains_key(name(p)))
            .count();
        let healthy = i64::try_from(healthy).unwrap_or(i64::MAX);
        let refs: Vec<&Value> = pods.iter().map(AsRef::as_ref).collect();
        let (expected, desired, failed) = match wanted(state, &budget, &refs) {
            Some((expected, desired)) => (expected, desired, false),
            None => (0, 0, true),
        };
        let allowed = if failed || expected <= 0 {
            0
        } else {
            (healthy - desired).max(0)
        };
        let mut new = Value::clone(&budget);
        for (field, value) in [
            ("currentHealthy", json!(healthy)),
            ("desiredHealthy", json!(desired)),
            ("expectedPods", json!(expected)),
            ("disruptionsAllowed", json!(allowed)),
            (
                "observedGeneration",
                budget["metadata"]["generation"].clone(),
            ),
        ] {
            set(&mut new, &["status", field], value);
        }
        if disrupted.is_empty() {
            crate::sim::kube::object::unset(&mut new, &["status", "disruptedPods"]);
        } else {
            set(
                &mut new,
                &["status", "disruptedPods"],
                Value::Object(disrupted),
            );
        }
        let (status, reason) = match (failed, allowed > 0) {
            (true, _) => ("False", "SyncFailed"),
            (_, true) => ("True", "SufficientPods"),
            (_, false) => ("False", "InsufficientPods"),
        };
        let now = state.now;
        set_condition(&mut new, "DisruptionAllowed", status, reason, "", now);
        state.replace(PDBS, new);
    }
    next
}

/// The evictions whose pods are not being deleted yet, and when the first of them is forgotten.
fn pending(budget: &Value, pods: &[Arc<Value>], now: Time) -> (Map<String, Value>, Option<Time>) {
    let (mut disrupted, mut next) = (Map::new(), None::<Time>);
    for (pod, since) in map(budget, "/status/disruptedPods").into_iter().flatten() {
        let at = since
            .as_str()
            .and_then(|s| s.parse::<jiff::Timestamp>().ok());
        let end = at.map(|t| Time(t.as_millisecond()) + DISRUPTION_LASTS);
        let waits = pods.iter().any(|p| name(p) == pod && !deleting(p));
        if let Some(end) = end.filter(|e| waits && *e > now) {
            disrupted.insert(pod.clone(), since.clone());
            next = Some(next.map_or(end, |n| n.min(end)));
        }
    }
    (disrupted, next)
}

/// How many pods are expected and how many must stay; `None` when the pods have no controller
/// whose size is known but the budget needs one.
fn wanted(state: &State, budget: &Value, pods: &[&Value]) -> Option<(i64, i64)> {
    let counted = i64::try_from(pods.len()).unwrap_or(i64::MAX);
    if let Some(most) = budget.pointer("/spec/maxUnavailable") {
        let expected = expected(state, pods)?;
        return Some((expected, (expected - share(most, expected)).max(0)));
    }
    let least = budget.pointer("/spec/minAvailable")?;
    if least.is_i64() || least.is_u64() {
        return Some((counted, least.as_i64().unwrap_or(0)));
    }
    let expected = expected(state, pods)?;
    Some((expected, share(least, expected)))
}

/// A number, or a percentage rounded up.
fn share(value: &Value, of: i64) -> i64 {
    if let Some(number) = value.as_i64() {
        return number;
    }
    let percent: i64 = value
        .as_str()
        .and_then(|s| s.strip_suffix('%'))
        .and_then(|s| s.parse().ok())
        .unwrap_or(0);
    (percent * of + 99) / 100
}

/// The sum of the sizes of the pods' controllers.
fn expected(state: &State, pods: &[&Value]) -> Option<i64> {
    let mut sizes = BTreeMap::new();
    for pod in pods {
        let owner = controller(pod)?;
        let (kind, title) = (text(owner, "/kind"), text(owner, "/name"));
        let size = match kind {
            "ReplicaSet" => {
                let set_of = state.get(REPLICASETS, namespace(pod), title)?;
                match controller(&set_of) {
                    Some(above) if text(above, "/kind") == "Deployment" => {
                        size(state, DEPLOYMENTS, namespace(pod), text(above, "/name"))
                            .map(|s| (text(above, "/uid").to_owned(), s))
                    }
                    _ => size(state, REPLICASETS, namespace(pod), title)
                        .map(|s| (text(owner, "/uid").to_owned(), s)),
                }
            }
            "StatefulSet" => size(state, STATEFULSETS, namespace(pod), title)
                .map(|s| (text(owner, "/uid").to_owned(), s)),
            _ => None,
        };
        let (id, size) = size?;
        sizes.insert(id, size);
    }
    Some(sizes.values().sum())
}

fn size(state: &State, res: Res, space: &str, title: &str) -> Option<i64> {
    number(&*state.get(res, space, title)?, "/spec/replicas")
}
