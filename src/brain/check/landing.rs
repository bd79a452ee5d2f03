//! Every pod that must move has a place: added up anew over all removals of a plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Case, CheckResult, CheckRule, drain, ensure, matching, neighbours, refuse, volumes};
use model::action::Action;
use model::cluster::{Node, ObjectKey, Pod, ReadyStatus};
use model::policy::{LEAVING_TAINT, STARTUP_TAINT};
use model::region::Busy;
use model::resources::Resources;
use model::scheduling::HostPort;

/// What is left of a destination.
struct FreeAtDestination {
    /// What is left when expendable pods hold nothing: kube-scheduler preempts these.
    without: FreeAmounts,
    /// What is left beside all that runs there, for pods that preempt nobody.
    beside: FreeAmounts,
    attached: BTreeSet<(Arc<str>, Arc<str>)>,
}

/// Amounts and host ports.
struct FreeAmounts {
    free: Resources,
    taken: Vec<HostPort>,
}

impl FreeAmounts {
    /// What a pod lacks here.
    fn lacks(&self, pod: &Pod) -> Option<String> {
        matching::lacking(&pod.shape.requests, &self.free).or_else(|| {
            let clashes =
                |port: &&HostPort| self.taken.iter().any(|other| matching::clash(port, other));
            let port = pod.shape.host_ports.iter().find(clashes)?;
            Some(format!("port {} is taken", port.port))
        })
    }

    fn charge(&mut self, pod: &Pod) {
        matching::charge(&mut self.free, &pod.shape.requests);
        self.taken.extend(pod.shape.host_ports.iter().cloned());
    }
}

/// Whether kube-scheduler preempts a pod for every one that counts.
pub(super) fn expendable(case: Case<'_>, pod: &Pod) -> bool {
    pod.shape.priority < case.policy.scale_up.expendable_priority
}

/// Whether kube-scheduler preempts expendable pods for a pod.
pub(super) fn preempts(case: Case<'_>, pod: &Pod) -> bool {
    !pod.shape.never_preempts && !expendable(case, pod)
}

pub(super) fn check(case: Case<'_>, removals: &[&Action]) -> CheckResult {
    let going = drain::nodes_of(removals);
    let mut left: BTreeMap<&str, FreeAtDestination> = BTreeMap::new();
    let mut landed: BTreeMap<&ObjectKey, &Arc<str>> = BTreeMap::new();
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
                    CheckRule::Landing,
                    format!("{key} is to go to {to}, which is gone"),
                );
            };
            let stays = !going.contains(&to) && usable(case, to, node);
            ensure(stays, CheckRule::Landing, || {
                format!("{key} is to go to {to}, which is not ready or is leaving")
            })?;
            if let Some(why) = matching::mismatch(&pod.shape, to, node) {
                return refuse(
                    CheckRule::Landing,
                    format!("{key} may not go to {to}: {why}"),
                );
            }
            let at = volumes::CheckedNode {
                name: to,
                labels: &node.labels,
                new: false,
            };
            if let Some(why) = volumes::unreachable(case, key, pod, at) {
                return refuse(
                    CheckRule::Landing,
                    format!("{key} may not go to {to}: {why}"),
                );
            }
            let left = left.entry(to).or_insert_with(|| fresh(case, to, node));
            take(case, key, pod, to, left)?;
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

/// A pod comes to a node. Where expendable pods would have to go for it, it must be one that preempts.
fn take(
    case: Case<'_>,
    key: &ObjectKey,
    pod: &Pod,
    to: &str,
    left: &mut FreeAtDestination,
) -> CheckResult {
    let timid = !preempts(case, pod);
    let why = left.without.lacks(pod);
    let why = why.or_else(|| left.beside.lacks(pod).filter(|_| timid));
    if let Some(why) = why {
        return refuse(
            CheckRule::Landing,
            format!("{key} has no room on {to}: {why}"),
        );
    }
    left.without.charge(pod);
    if timid {
        left.beside.charge(pod);
    }
    Ok(())
}

/// The volumes of a pod come to a node, which may have a limit of them. One that is over its limit
/// already takes what it has.
fn attach(
    case: Case<'_>,
    key: &ObjectKey,
    pod: &Pod,
    to: &str,
    left: &mut FreeAtDestination,
) -> CheckResult {
    let before = left.attached.len();
    left.attached.extend(volumes::attached(case, key, pod));
    let limits = volumes::limits(case, to);
    match volumes::too_many(&limits, &left.attached) {
        Some(why) if left.attached.len() > before => refuse(
            CheckRule::Landing,
            format!("{key} has no room on {to}: {why}"),
        ),
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
fn fresh(case: Case<'_>, name: &str, node: &Node) -> FreeAtDestination {
    let empty = || FreeAmounts {
        free: node.allocatable.clone(),
        taken: Vec::new(),
    };
    let mut left = FreeAtDestination {
        without: empty(),
        beside: empty(),
        attached: volumes::attachments(case, name),
    };
    for (key, pod) in &case.snapshot.cluster.pods {
        let here = match &pod.node {
            Some(on) => **on == *name,
            None => pod.nominated.as_deref() == Some(name) && pod.deletion.is_none(),
        };
        if here && !pod.phase.terminal() {
            left.beside.charge(pod);
            if !expendable(case, pod) {
                left.without.charge(pod);
            }
            left.attached.extend(volumes::attached(case, key, pod));
        }
    }
    left
}
