//! Nodes that may go soon take pods last: they have a `PreferNoSchedule` taint, by which kube-scheduler puts new pods on other
//! nodes first, as cluster-autoscaler's soft taint does. Without it a pod that comes meanwhile makes an unneeded node needed again, and
//! one that leaves an evacuated host or an outdated node lands on another one of these, and moves twice.
//!
//! The taint is a hint. What is wanted follows from the newest turn alone, so that a call that fails, or a start in between, is made up
//! for by the next turn. See `docs/decisions/soft-taints.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::controller::daemon::named;
use crate::controller::turn::Turn;
use crate::kubernetes::{KubeClient, KubeError, NodeChange};
use crate::model::action::NodeRef;
use crate::model::cluster::{Node, ReadyStatus};
use crate::model::drift::Outdated;
use crate::model::policy::{CANDIDATE_TAINT, LEAVING_TAINT};
use crate::model::region::{Busy, Machine, Step};
use crate::model::report::Scope;
use crate::model::snapshot::Snapshot;
use crate::model::time::Time;

/// A write waits no longer for those before it: the lease may be somebody else's by then. The next turn that leads asks again.
const WRITTEN_WITHIN: Duration = Duration::from_secs(10);

/// Puts the taint on nodes and takes it off.
#[derive(Debug)]
pub(super) struct SoftTaints {
    /// Writes, each with the time of the turn that asked for it; no more are on their way than `max_bulk_soft_taint_count`.
    calls: mpsc::UnboundedSender<(Instant, SoftTaintCall)>,
    state: Arc<Mutex<SoftTaintState>>,
}

#[derive(Debug, Default)]
struct SoftTaintState {
    /// UIDs of nodes that a call is made for, or will be.
    under_way: BTreeSet<Arc<str>>,
    /// UIDs of nodes whose last call was refused: others come before them.
    refused: BTreeSet<Arc<str>>,
    /// That the API server refuses was said.
    told: bool,
}

/// A node that gets the taint or loses it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SoftTaintCall {
    node: NodeRef,
    wanted: bool,
}

impl SoftTaints {
    /// Begins the work that is done beside the loop. Nothing is to be written yet.
    pub(super) fn begin(kube: &KubeClient, tasks: &mut JoinSet<String>) -> SoftTaints {
        let (calls, receiver) = mpsc::unbounded_channel();
        let state = Arc::default();
        let calling = call(kube.clone(), Arc::clone(&state), receiver);
        tasks.spawn(named("the soft taints", calling));
        SoftTaints { calls, state }
    }

    /// Brings the nodes in line with a turn: some now, others with the next.
    pub(super) fn apply(&self, turn: &Turn) {
        let most = turn.settings.leaving.soft_taints_in_a_turn as usize;
        let calls = calls(turn);
        if calls.is_empty() {
            return;
        }
        for call in lock(&self.state).next(calls, most) {
            // Without a receiver the daemon ends.
            let _ = self.calls.send((Instant::now(), call));
        }
    }
}

impl SoftTaintState {
    /// Which of these calls are made now, so that `most` are under way at most; they are under way from here on.
    fn next(&mut self, mut calls: Vec<SoftTaintCall>, most: usize) -> Vec<SoftTaintCall> {
        self.refused
            .retain(|uid| calls.iter().any(|call| call.node.uid == *uid));
        calls.retain(|call| !self.under_way.contains(&call.node.uid));
        calls.sort_by_key(|call| self.refused.contains(&call.node.uid));
        calls.truncate(most.max(1).saturating_sub(self.under_way.len()));
        let uids = calls.iter().map(|call| call.node.uid.clone());
        self.under_way.extend(uids);
        calls
    }
}

fn lock(state: &Mutex<SoftTaintState>) -> MutexGuard<'_, SoftTaintState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The nodes of ours whose taint is not as this turn wants it, in the order of their names. Pure.
fn calls(turn: &Turn) -> Vec<SoftTaintCall> {
    let snapshot = &turn.snapshot;
    let report = &turn.decision.report;
    let held = report
        .holds
        .iter()
        .any(|hold| hold.scope == Scope::Everything);
    // On a view that is not whole an unneeded node looks needed, and the other way round.
    if !snapshot.leader || held || !report.unread.is_empty() {
        return Vec::new();
    }
    let on = turn.settings.leaving.soft_taints_in_a_turn > 0;
    let may_go = may_go(turn);
    let calls = snapshot.machines.values().filter_map(|machine| {
        let (name, node) = in_service(snapshot, machine).filter(|_| machine.busy.is_none())?;
        let given_up = is_evacuated(snapshot, machine) || is_outdated(turn, machine);
        let wanted = on && (may_go.contains(name) || given_up);
        let differs = wanted != has_taint(node, CANDIDATE_TAINT);
        differs.then(|| SoftTaintCall {
            node: NodeRef {
                name: name.clone(),
                uid: node.uid.clone(),
            },
            wanted,
        })
    });
    let mut calls: Vec<SoftTaintCall> = calls.collect();
    calls.sort();
    calls
}

/// The unneeded nodes, of each pool no more than it has Ready ones above its `min`: those first that are unneeded for longest. Pods stay
/// welcome on the others, which the pool keeps.
fn may_go(turn: &Turn) -> BTreeSet<&Arc<str>> {
    let snapshot = &turn.snapshot;
    let mut in_service_of: BTreeMap<&str, usize> = BTreeMap::new();
    let mut unneeded_of: BTreeMap<&str, Vec<(Time, &Arc<str>)>> = BTreeMap::new();
    for machine in snapshot.machines.values() {
        let Some((name, node)) = in_service(snapshot, machine) else {
            continue;
        };
        let given_up = is_evacuated(snapshot, machine) || is_outdated(turn, machine);
        if given_up || node.ready.status != ReadyStatus::True {
            continue;
        }
        let pool = &*machine.mark.pool;
        *in_service_of.entry(pool).or_default() += 1;
        if let Some(since) = turn.decision.memory.unneeded_since.get(name) {
            unneeded_of.entry(pool).or_default().push((*since, name));
        }
    }
    let policies = &turn.settings.policy.pools;
    let of_pools = unneeded_of.into_iter().map(|(pool, mut unneeded)| {
        let min = policies.get(pool).map_or(0, |policy| policy.min as usize);
        let count = in_service_of.get(pool).copied().unwrap_or(0);
        unneeded.sort();
        unneeded.truncate(count.saturating_sub(min));
        unneeded
    });
    of_pools.flatten().map(|(_, name)| name).collect()
}

/// The node of a machine that is in service, with its name: it came, and does not leave.
fn in_service<'a>(
    snapshot: &'a Snapshot,
    machine: &'a Machine,
) -> Option<(&'a Arc<str>, &'a Node)> {
    let name = machine.node.as_ref()?;
    let node = snapshot.cluster.nodes.get(name)?;
    // Later steps are of a removal that was given up.
    let came = machine.step.is_none_or(|(step, _)| step >= Step::Done);
    let leaves = node.deletion.is_some() || has_taint(node, LEAVING_TAINT);
    let goes = leaves || machine.busy == Some(Busy::Down);
    (came && !goes).then_some((name, node))
}

fn has_taint(node: &Node, key: &str) -> bool {
    node.taints.iter().any(|taint| *taint.key == *key)
}

/// Whether a person ordered that the machine's host be emptied.
fn is_evacuated(snapshot: &Snapshot, machine: &Machine) -> bool {
    let region = snapshot.regions.get(&machine.region);
    let host = region.and_then(|region| region.hosts.get(&machine.host));
    host.is_some_and(|host| host.evacuated.is_some())
}

/// Whether the machine's node is outdated, and its pool replaces such nodes.
fn is_outdated(turn: &Turn, machine: &Machine) -> bool {
    let pool = turn.settings.policy.pools.get(&*machine.mark.pool);
    let rollout = pool.and_then(|pool| pool.rollout.as_ref());
    rollout.is_some_and(|rollout| Outdated::find(machine, rollout, turn.at).is_some())
}

/// Makes the calls, one after the other.
async fn call(
    kube: KubeClient,
    state: Arc<Mutex<SoftTaintState>>,
    mut calls: mpsc::UnboundedReceiver<(Instant, SoftTaintCall)>,
) {
    while let Some((since, SoftTaintCall { node, wanted })) = calls.recv().await {
        if since.elapsed() > WRITTEN_WITHIN {
            lock(&state).under_way.remove(&node.uid);
            continue;
        }
        let written = if wanted {
            kube.mark_candidate(&node).await
        } else {
            kube.remove_taint(&node, CANDIDATE_TAINT).await
        };
        let mut state = lock(&state);
        state.under_way.remove(&node.uid);
        state.told &= written.is_err();
        if written.is_err() {
            state.refused.insert(node.uid.clone());
        } else {
            state.refused.remove(&node.uid);
        }
        match written {
            Ok(NodeChange::Changed) if wanted => {
                tracing::info!(node = %node.name, "may go soon: pods go to other nodes first");
            }
            Ok(NodeChange::Changed) => {
                tracing::info!(node = %node.name, "stays: it takes pods as others do");
            }
            Ok(NodeChange::AlreadySo | NodeChange::Gone) => {}
            Err(error) => tell(&error, &mut state.told),
        }
    }
}

/// Says once at length what is wrong; the next turn tries again.
fn tell(error: &KubeError, told: &mut bool) {
    if *told {
        tracing::debug!(%error, "a node's taint could not be written");
        return;
    }
    *told = true;
    tracing::warn!(%error, "the taint {CANDIDATE_TAINT} of a node that may go soon could not be written; it is tried again. If a right is \
        missing or the admission policy is older, `pve-autoscaler kubeconfig` renews both; scale_down.max_bulk_soft_taint_count = 0 does without");
}

#[cfg(test)]
mod tests;
