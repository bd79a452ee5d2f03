//! Every pod that must move has a place: added up anew over all removals of a plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Case, Rule, Verdict, drain, ensure, matching, neighbours, refuse, volumes};
use crate::model::action::Action;
use crate::model::cluster::{Node, Pod, PodKey, ReadyStatus};
use crate::model::policy::{LEAVING_TAINT, STARTUP_TAINT};
use crate::model::region::Busy;
use crate::model::resources::Resources;
use crate::model::scheduling::HostPort;

/// What is left of a destination.
struct Left {
    free: Resources,
    ports: Vec<HostPort>,
    attached: BTreeSet<(Arc<str>, Arc<str>)>,
}

pub(super) fn check(case: Case<'_>, removals: &[&Action]) -> Verdict {
    let going = drain::nodes_of(removals);
    let mut left: BTreeMap<&str, Left> = BTreeMap::new();
    let mut landed: BTreeMap<&PodKey, &Arc<str>> = BTreeMap::new();
    for action in removals {
        let from = action.target.node.as_ref().map_or("", |node| &node.name);
        for (key, to) in &action.precondition.landing {
            let Some(pod) = case.snapshot.cluster.pods.get(key) else {
                continue;
            };
            if pod.node.as_deref() != Some(from) || pod.phase.terminal() {
                continue;
            }
            let Some(node) = case.snapshot.cluster.nodes.get(to) else {
                return refuse(
                    Rule::Landing,
                    format!("{key} is to go to {to}, which is gone"),
                );
            };
            let stays = !going.contains(&to) && usable(case, to, node);
            ensure(stays, Rule::Landing, || {
                format!("{key} is to go to {to}, which is not ready or is leaving")
            })?;
            if let Some(why) = matching::mismatch(&pod.shape, to, node) {
                return refuse(Rule::Landing, format!("{key} may not go to {to}: {why}"));
            }
            let at = volumes::Place {
                name: to,
                labels: &node.labels,
                new: false,
            };
            if let Some(why) = volumes::unreachable(case, key, pod, at) {
                return refuse(Rule::Landing, format!("{key} may not go to {to}: {why}"));
            }
            let left = left.entry(to).or_insert_with(|| fresh(case, to, node));
            if let Some(why) = matching::lacking(&pod.shape.requests, &left.free) {
                return refuse(Rule::Landing, format!("{key} has no room on {to}: {why}"));
            }
            for port in &pod.shape.host_ports {
                let clash = left.ports.iter().any(|other| matching::clash(port, other));
                ensure(!clash, Rule::Landing, || {
                    format!("port {} is taken on {to}", port.port)
                })?;
            }
            left.ports.extend(pod.shape.host_ports.iter().cloned());
            matching::charge(&mut left.free, &pod.shape.requests);
            attach(case, key, pod, to, left)?;
            landed.insert(key, to);
        }
    }
    let mut gone: Vec<&str> = going.iter().map(|name| &***name).collect();
    gone.extend(
        case.snapshot
            .cluster
            .nodes
            .iter()
            .filter(|(name, node)| !usable(case, name, node) && leaving(case, name, node))
            .map(|(name, _)| &**name),
    );
    neighbours::check(case, &landed, &gone)
}

/// The volumes of a pod come to a node, which may have a limit of them. One that is over its limit
/// already takes what it has.
fn attach(case: Case<'_>, key: &PodKey, pod: &Pod, to: &str, left: &mut Left) -> Verdict {
    let before = left.attached.len();
    left.attached.extend(volumes::attached(case, key, pod));
    let limits = volumes::limits(case, to);
    match volumes::too_many(&limits, &left.attached) {
        Some(why) if left.attached.len() > before => {
            refuse(Rule::Landing, format!("{key} has no room on {to}: {why}"))
        }
        _ => Ok(()),
    }
}

/// A node whose removal is under way: its pods are not counted as neighbours.
fn leaving(case: Case<'_>, name: &str, node: &Node) -> bool {
    let ours = |key: &str| node.taints.iter().any(|t| &*t.key == key);
    node.deletion.is_some()
        || ours(LEAVING_TAINT)
        || case.snapshot.machines.values().any(|machine| {
            let failed = machine.failure.is_some() || machine.vm.is_none();
            machine.node.as_deref() == Some(name) && (machine.busy == Some(Busy::Down) || failed)
        })
}

fn usable(case: Case<'_>, name: &str, node: &Node) -> bool {
    let marked = |key: &str| node.taints.iter().any(|t| &*t.key == key);
    let busy =
        case.snapshot.machines.values().any(|machine| {
            machine.node.as_deref() == Some(name) && machine.busy == Some(Busy::Down)
        });
    node.ready.status == ReadyStatus::True
        && node.deletion.is_none()
        && !marked(LEAVING_TAINT)
        && !marked(STARTUP_TAINT)
        && !busy
}

/// What a node has left of what runs on it or was nominated to it.
fn fresh(case: Case<'_>, name: &str, node: &Node) -> Left {
    let mut left = Left {
        free: node.allocatable.clone(),
        ports: Vec::new(),
        attached: volumes::attachments(case, name),
    };
    for (key, pod) in &case.snapshot.cluster.pods {
        let here = match &pod.node {
            Some(node) => **node == *name,
            None => pod.nominated.as_deref() == Some(name) && pod.deletion.is_none(),
        };
        if here && !pod.phase.terminal() {
            matching::charge(&mut left.free, &pod.shape.requests);
            left.ports.extend(pod.shape.host_ports.iter().cloned());
            left.attached.extend(volumes::attached(case, key, pod));
        }
    }
    left
}
