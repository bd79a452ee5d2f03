//! Constraints among pods: topology spread, affinity and anti-affinity, the required kinds.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{No, Place, fit};
use crate::sim::kube::object::{deleting, label, list, map, name, namespace, number, text};
use crate::sim::kube::selector::label_selector;

fn domain<'a>(node: &'a Value, key: &str) -> Option<&'a str> {
    label(node, key).or_else(|| (key == "kubernetes.io/hostname").then(|| name(node)))
}

/// `topologySpreadConstraints` with `DoNotSchedule`.
pub(super) fn spread(places: &[Place], place: &Place, pod: &Value) -> Result<(), No> {
    for constraint in list(pod, "/spec/topologySpreadConstraints") {
        if text(constraint, "/whenUnsatisfiable") == "ScheduleAnyway" {
            continue;
        }
        let key = text(constraint, "/topologyKey");
        let Some(own) = label(&place.node, key) else {
            return Err(No::firm(
                "node(s) didn't match pod topology spread constraints (missing required label)",
            ));
        };
        let selector = &constraint["labelSelector"];
        let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
        for other in places {
            let Some(value) = label(&other.node, key) else {
                continue;
            };
            let honours_taints = text(constraint, "/nodeTaintsPolicy") == "Honor";
            let counted = fit::chosen(pod, &other.node)
                && (!honours_taints
                    || fit::untolerated(pod, &other.node, &["NoSchedule", "NoExecute"]).is_none());
            if !counted && text(constraint, "/nodeAffinityPolicy") != "Ignore" {
                continue;
            }
            *counts.entry(value).or_default() += matching(other, pod, selector);
        }
        let wanted_domains = number(constraint, "/minDomains").unwrap_or(1);
        let domains = i64::try_from(counts.len()).unwrap_or(i64::MAX);
        let least = if domains < wanted_domains {
            0
        } else {
            counts.values().copied().min().unwrap_or(0)
        };
        let itself = i64::from(label_selector(selector, map(pod, "/metadata/labels")));
        let here = counts.get(own).copied().unwrap_or(0);
        if here + itself - least > number(constraint, "/maxSkew").unwrap_or(1) {
            return Err(No::soft(vec![
                "node(s) didn't match pod topology spread constraints".to_owned(),
            ]));
        }
    }
    Ok(())
}

fn matching(place: &Place, pod: &Value, selector: &Value) -> i64 {
    let count = place
        .pods
        .iter()
        .filter(|p| {
            namespace(p) == namespace(pod)
                && !deleting(p)
                && label_selector(selector, map(p, "/metadata/labels"))
        })
        .count();
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn terms<'a>(pod: &'a Value, kind: &str) -> &'a [Value] {
    list(
        pod,
        &format!("/spec/affinity/{kind}/requiredDuringSchedulingIgnoredDuringExecution"),
    )
}

/// Whether an affinity term of one pod selects another.
fn selects(term: &Value, holder: &Value, other: &Value) -> bool {
    let spaces = list(term, "/namespaces");
    let everywhere = term
        .get("namespaceSelector")
        .and_then(Value::as_object)
        .is_some_and(serde_json::Map::is_empty);
    let here = if everywhere {
        true
    } else if spaces.is_empty() {
        namespace(holder) == namespace(other)
    } else {
        spaces.iter().any(|s| s == namespace(other))
    };
    here && label_selector(&term["labelSelector"], map(other, "/metadata/labels"))
}

/// Required pod affinity and anti-affinity, of this pod and of those that run.
pub(super) fn affinity(places: &[Place], place: &Place, pod: &Value) -> Result<(), No> {
    let soft = |reason: &str| Err(No::soft(vec![reason.to_owned()]));
    for term in terms(pod, "podAffinity") {
        let key = text(term, "/topologyKey");
        let own = domain(&place.node, key);
        let found = |near: bool| {
            places.iter().any(|other| {
                (!near || (own.is_some() && domain(&other.node, key) == own))
                    && other.pods.iter().any(|p| selects(term, pod, p))
            })
        };
        // The first of a group that wants to be together may go anywhere.
        let first = !found(false) && selects(term, pod, pod);
        if own.is_none() || !(found(true) || first) {
            return Err(No::firm("node(s) didn't match pod affinity rules"));
        }
    }
    for term in terms(pod, "podAntiAffinity") {
        let key = text(term, "/topologyKey");
        let own = domain(&place.node, key);
        let near = places.iter().any(|other| {
            own.is_some()
                && domain(&other.node, key) == own
                && other.pods.iter().any(|p| selects(term, pod, p))
        });
        if near {
            return soft("node(s) didn't match pod anti-affinity rules");
        }
    }
    for other in places {
        for running in &other.pods {
            for term in terms(running, "podAntiAffinity") {
                let key = text(term, "/topologyKey");
                let near = domain(&place.node, key)
                    .is_some_and(|own| domain(&other.node, key) == Some(own));
                if near && selects(term, running, pod) {
                    return soft("node(s) didn't satisfy existing pods anti-affinity rules");
                }
            }
        }
    }
    Ok(())
}
