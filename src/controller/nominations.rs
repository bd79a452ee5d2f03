//! Pods that wait are nominated (`status.nominatedNodeName`) for the node that was made for them, right before it
//! takes pods: kube-scheduler tries that node first and keeps their room against pods of no higher
//! priority (KEP-1923, KEP-5278). Without it kube-scheduler takes pods in its queue's order and fills whatever
//! node is there, and what the plan laid out for the last node may fit nowhere any more.
//!
//! A nomination is a hint. Nothing waits for it, and no failure of it is a failure of the machine.
//! kube-scheduler clears it after an attempt that fails; what it leaves is taken back here. See
//! `docs/decisions/nominated-nodes.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use tokio::sync::{OwnedMutexGuard, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use crate::controller::daemon::named;
use crate::controller::openings::NodeOpenings;
use crate::controller::requeue::{Back, Requeue};
use crate::kubernetes::{ClusterStore, KubeClient, KubeError, Nomination};
use crate::model::cluster::{Cluster, ObjectKey, Phase, Pod, ReadyStatus};
use crate::model::policy::LEAVING_TAINT;
use crate::model::report::{Report, Scope};
use crate::model::scheduling::DEFAULT_SCHEDULER;

/// Pods of a node that are nominated at a time: the API server is not flooded.
const SIDE_BY_SIDE: usize = 10;
/// The node waits no longer than this for its pods' nominations.
const PATIENCE: Duration = Duration::from_secs(5);
/// A pod that still waits so long after its nomination is not going to that node: it was tried and refused, or
/// kube-scheduler does not look at it. Its backoff is ten seconds at most.
const LIFE: Duration = Duration::from_mins(1);
/// A nomination that is to be taken back waits no longer for those before it: an API server that hangs holds each call.
const WITHDRAWN_WITHIN: Duration = Duration::from_secs(10);
/// A node waits no longer than this for the watched view to show its nominations, and what became of those of the node
/// before it: what is shown to us is shown to kube-scheduler, which must not see the node take pods before.
const SHOWN_WITHIN: Duration = Duration::from_millis(500);
/// The watched view shows what we wrote within this time.
const SEEN_WITHIN: Duration = Duration::from_secs(10);

/// Which pods were laid out on which machine, and which of them were nominated. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct PodNominator {
    state: Arc<Mutex<NominatorState>>,
    /// Held while a node begins to take pods.
    opening: Arc<tokio::sync::Mutex<()>>,
    /// Which nodes begin to take pods after which others.
    pub(super) openings: NodeOpenings,
    /// Where those go that are to be taken back, and pods that are to be brought back into kube-scheduler's queue.
    calls: Option<mpsc::UnboundedSender<NominationTask>>,
}

#[derive(Debug, Default)]
struct NominatorState {
    /// Pods by UID that the newest decision laid out on a machine or node, by its name.
    planned: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    /// Nominations of ours that may still stand, by the pod's UID.
    given: BTreeMap<Arc<str>, OwnNomination>,
    /// The API server refused the newest nomination for want of a right. That was said.
    refused: bool,
    requeue: Requeue,
}

/// Pods that wait, with their UIDs.
type WaitingPods = Vec<(ObjectKey, Arc<str>)>;

/// A nomination of ours.
#[derive(Clone, Debug)]
struct OwnNomination {
    pod: ObjectKey,
    uid: Arc<str>,
    node: Arc<str>,
    at: Instant,
}

/// What is done beside the loop.
#[derive(Debug)]
enum NominationTask {
    /// A nomination is to be taken back, since this time.
    TakeBack(Instant, OwnNomination),
    /// A pod is to be brought back into kube-scheduler's queue.
    Requeue(Instant, Back),
}

impl PodNominator {
    /// Pods laid out on machines and nodes (UIDs by name), none of them nominated. Begins the work that is done beside the loop.
    pub fn start(
        kube: &KubeClient,
        bookings: &BTreeMap<Arc<str>, Vec<Arc<str>>>,
        tasks: &mut JoinSet<String>,
    ) -> PodNominator {
        let (sender, receiver) = mpsc::unbounded_channel();
        let nominations = PodNominator {
            state: Arc::default(),
            opening: Arc::default(),
            openings: NodeOpenings::default(),
            calls: Some(sender),
        };
        nominations.plan(bookings);
        let calling = call(kube.clone(), nominations.state.clone(), receiver);
        tasks.spawn(named("the nominations", calling));
        nominations
    }

    fn state(&self) -> MutexGuard<'_, NominatorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A decision laid pods out on these machines and nodes (UIDs by name).
    pub fn plan(&self, bookings: &BTreeMap<Arc<str>, Vec<Arc<str>>>) {
        self.state().planned.clone_from(bookings);
    }

    /// Takes the lock of the node that begins to take pods: waits until no other node does, and keeps others from it until the lock is dropped.
    /// Gives none after [`PATIENCE`]: the node begins all the same, since the API server may be slow for the other one. When a node begins,
    /// kube-scheduler tries all pods that wait, and clears their nominations for nodes that do not take pods yet.
    pub async fn lock_opening(&self) -> Option<OwnedMutexGuard<()>> {
        let opening = self.opening.clone().lock_owned();
        timeout(PATIENCE, opening).await.ok()
    }

    /// Waits until kube-scheduler has tried the pods that are nominated for a node, which takes pods now: no longer
    /// than [`SHOWN_WITHIN`].
    pub async fn wait_until_tried(&self, store: &ClusterStore, node: &Arc<str>) {
        let nominated: WaitingPods = {
            let state = self.state();
            let given = state.given.values().filter(|given| given.node == *node);
            given
                .map(|given| (given.pod.clone(), given.uid.clone()))
                .collect()
        };
        let waits = |pod: &Pod| pod.node.is_none() && pod.nominated.as_ref() == Some(node);
        wait_while(store, &nominated, waits).await;
    }

    /// Nominates for a node the pods that were laid out on it and still wait. What cannot be nominated within
    /// [`PATIENCE`] is left to kube-scheduler's own order.
    pub async fn nominate(&self, kube: &KubeClient, store: &ClusterStore, node: &Arc<str>) {
        let planned: BTreeSet<Arc<str>> = {
            let mut state = self.state();
            // The node takes no pods yet, so that the time of its earlier nominations has not begun.
            let earlier = state.given.values_mut();
            let now = Instant::now();
            for given in earlier.filter(|given| given.node == *node) {
                given.at = now;
            }
            let pods = state.planned.get(node).into_iter().flatten();
            pods.cloned().collect()
        };
        if planned.is_empty() {
            return;
        }
        let waiting = store.with(|cluster| waiting(cluster, &planned));
        let nominating = async {
            let written = self.write(kube, (waiting, node), false).await;
            let cleared = find_cleared(store, &written, node).await;
            self.write(kube, (cleared, node), true).await;
            written.len()
        };
        match timeout(PATIENCE, nominating).await {
            Ok(0) => {}
            Ok(pods) => tracing::info!(%node, pods, "pods are nominated for the node"),
            Err(_) => {
                tracing::info!(%node, seconds = PATIENCE.as_secs(), "not all pods of the node could be nominated in time");
            }
        }
    }

    /// Nominates pods for a node; gives those whose nomination was written. Of those that were nominated `before` the view may be
    /// late: one that cannot be written may stand.
    async fn write(
        &self,
        kube: &KubeClient,
        (pods, node): (WaitingPods, &Arc<str>),
        before: bool,
    ) -> WaitingPods {
        let calls = pods.into_iter().map(|(pod, uid)| async move {
            self.note_call(&pod, &uid, node);
            let result = kube.nominate(&pod, &uid, None, Some(node)).await;
            let stands = before && matches!(result, Ok(Nomination::Void));
            (!stands && self.note_answer(&pod, &uid, &result)).then_some((pod, uid))
        });
        let calls = futures::stream::iter(calls).buffer_unordered(SIDE_BY_SIDE);
        calls.filter_map(std::future::ready).collect().await
    }

    /// Notes that a nomination is about to be written: whether its answer comes or not, it may stand from here on.
    fn note_call(&self, pod: &ObjectKey, uid: &Arc<str>, node: &Arc<str>) {
        let given = OwnNomination {
            pod: pod.clone(),
            uid: uid.clone(),
            node: node.clone(),
            at: Instant::now(),
        };
        self.state().given.insert(uid.clone(), given);
    }

    /// Whether the API server refused the newest nomination for want of a right: plans count on none until one passes.
    pub fn is_refused(&self) -> bool {
        self.state().refused
    }

    /// Notes what the API server answered to a nomination: forgets it if it does not stand. The first refusal for want of a right
    /// is logged, and that one passes again. True when the nomination was written.
    fn note_answer(
        &self,
        pod: &ObjectKey,
        uid: &Arc<str>,
        result: &Result<Nomination, KubeError>,
    ) -> bool {
        let mut state = self.state();
        match result {
            Ok(Nomination::Written) => {
                if std::mem::take(&mut state.refused) {
                    tracing::info!(%pod, "pods can be nominated for their nodes again");
                }
                return true;
            }
            Ok(Nomination::Void) => {
                state.given.remove(uid);
            }
            Err(error) => {
                if !error.maybe_done() {
                    state.given.remove(uid);
                }
                let told = !error.lacks_right() || std::mem::replace(&mut state.refused, true);
                if told {
                    tracing::debug!(%pod, %error, "not nominated");
                } else {
                    tracing::warn!(%pod, %error, "pods cannot be nominated for their nodes, so plans have more machines than the tightest one until that works; \
                        apply contrib/kubernetes/rbac.yaml of this version (`pve-autoscaler kubeconfig` does), \
                        or set scale_up.nominate_pods = false");
                }
            }
        }
        false
    }

    /// Takes back the nominations that come to nothing, as this view of the cluster shows; they are not given again.
    pub fn take_back(&self, cluster: &Cluster, leader: bool) {
        for given in self.end_void_nominations(cluster, leader) {
            self.send(NominationTask::TakeBack(Instant::now(), given));
        }
    }

    /// Brings pods back into kube-scheduler's queue that have room on a node, as this view and what was decided on it
    /// show, and still wait; if that is `wanted`.
    pub fn requeue(&self, cluster: &Cluster, report: &Report, wanted: bool) {
        if let Some(back) = self.find_due(cluster, report, wanted) {
            self.send(NominationTask::Requeue(Instant::now(), back));
        }
    }

    /// The pod that is to be brought back now. Nobody is while machines may not be made, by a pause or a view that is not
    /// good enough; whoever waits then waits anew.
    fn find_due(&self, cluster: &Cluster, report: &Report, wanted: bool) -> Option<Back> {
        let mut state = self.state();
        let mut holds = report.holds.iter();
        let held = holds.any(|hold| matches!(hold.scope, Scope::Everything | Scope::ScaleUp));
        if held || !wanted {
            state.requeue = Requeue::default();
            return None;
        }
        state.requeue.due(cluster, &report.pods, Instant::now())
    }

    fn send(&self, call: NominationTask) {
        if let Some(calls) = &self.calls {
            // The task that receives them is supervised: when it ends, so does the daemon.
            let _ = calls.send(call);
        }
    }

    /// Forgets the nominations that come to nothing, and gives those of them that have to be taken back: the pod still waits a minute later,
    /// the newest decision lays it out elsewhere, or the node is gone, leaving or not Ready. Those that do not stand any more are forgotten too.
    fn end_void_nominations(&self, cluster: &Cluster, leader: bool) -> Vec<OwnNomination> {
        let mut state = self.state();
        let NominatorState { planned, given, .. } = &mut *state;
        if !leader {
            // Whoever leads now does not know of them; kube-scheduler clears them.
            given.clear();
        }
        if given.is_empty() {
            return Vec::new();
        }
        let now = Instant::now();
        let mut ended = Vec::new();
        given.retain(|uid, given| {
            let pod = cluster.pods.get(&given.pod);
            let Some(pod) = pod.filter(|pod| pod.uid == *uid && pod.node.is_none()) else {
                return false;
            };
            if pod.nominated.as_ref() != Some(&given.node) {
                return now < given.at + SEEN_WITHIN;
            }
            // The view may be older than what the executor saw when the node began to take pods.
            let ready = now < given.at + SEEN_WITHIN || is_ready(cluster, &given.node);
            let keep = now < given.at + LIFE
                && ready
                && takes_pods(cluster, &given.node)
                && !is_planned_elsewhere(planned, uid, &given.node);
            if !keep {
                ended.push(given.clone());
            }
            keep
        });
        ended
    }
}

/// Finds the pods whose nomination for a node the watched view does not show within [`SHOWN_WITHIN`], and that still wait:
/// kube-scheduler tried them in the meantime, and cleared it. After an attempt it tries a pod for a second no more.
async fn find_cleared(
    store: &ClusterStore,
    nominated: &WaitingPods,
    node: &Arc<str>,
) -> WaitingPods {
    let waits = |pod: &Pod| pod.node.is_none() && pod.nominated.as_ref() != Some(node);
    wait_while(store, nominated, waits).await
}

/// Waits until the watched view shows none of these pods to be like that, no longer than [`SHOWN_WITHIN`]; gives those that
/// still are.
async fn wait_while(
    store: &ClusterStore,
    pods: &WaitingPods,
    like: impl Fn(&Pod) -> bool,
) -> WaitingPods {
    let mut changes = store.changes();
    let end = Instant::now() + SHOWN_WITHIN;
    loop {
        let left: WaitingPods = store.with(|cluster| {
            let is = |(key, uid): &&(ObjectKey, Arc<str>)| {
                let pod = cluster.pods.get(key).filter(|pod| pod.uid == *uid);
                pod.is_some_and(&like)
            };
            pods.iter().filter(is).cloned().collect()
        });
        if left.is_empty() || !matches!(timeout_at(end, changes.changed()).await, Ok(Ok(()))) {
            return left;
        }
    }
}

/// Whether a node is there and Ready.
fn is_ready(cluster: &Cluster, node: &Arc<str>) -> bool {
    let node = cluster.nodes.get(node);
    node.is_some_and(|node| node.ready.status == ReadyStatus::True)
}

/// Whether a pod (UID) is laid out on another machine or node than this one.
fn is_planned_elsewhere(
    planned: &BTreeMap<Arc<str>, Vec<Arc<str>>>,
    uid: &Arc<str>,
    node: &Arc<str>,
) -> bool {
    let mut on = planned.iter().filter(|(_, pods)| pods.contains(uid));
    let here = planned.get(node).is_some_and(|pods| pods.contains(uid));
    !here && on.next().is_some()
}

/// Whether a node is there and is not leaving.
fn takes_pods(cluster: &Cluster, node: &Arc<str>) -> bool {
    let node = cluster.nodes.get(node);
    node.is_some_and(|node| {
        let mut taints = node.taints.iter();
        !node.unschedulable && !taints.any(|taint| &*taint.key == LEAVING_TAINT)
    })
}

/// The pods with one of these UIDs that may be nominated now.
fn waiting(cluster: &Cluster, planned: &BTreeSet<Arc<str>>) -> WaitingPods {
    let pods = cluster.pods.iter();
    pods.filter(|(_, pod)| planned.contains(&pod.uid) && may_be_nominated(pod))
        .map(|(key, pod)| (key.clone(), pod.uid.clone()))
        .collect()
}

/// Whether a pod waits for kube-scheduler and nobody nominated it. One that never preempts is left alone:
/// kube-scheduler does not clear its nomination when it does not fit, and ours are forgotten in a restart.
pub(super) fn may_be_nominated(pod: &Pod) -> bool {
    let scheduler = &*pod.shape.scheduler;
    pod.node.is_none()
        && pod.nominated.is_none()
        && pod.phase == Phase::Pending
        && pod.deletion.is_none()
        && !pod.gated
        && !pod.shape.never_preempts
        && (scheduler.is_empty() || scheduler == DEFAULT_SCHEDULER)
}

/// Makes the calls, one after the other. What could not be done within [`WITHDRAWN_WITHIN`] waits for the next turn
/// that leads: the lease may be somebody else's by then.
async fn call(
    kube: KubeClient,
    state: Arc<Mutex<NominatorState>>,
    mut calls: mpsc::UnboundedReceiver<NominationTask>,
) {
    let keep = |given: OwnNomination| {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        // One that was given since is the newer.
        state.given.entry(given.uid.clone()).or_insert(given);
    };
    while let Some(call) = calls.recv().await {
        match call {
            NominationTask::TakeBack(since, given) if since.elapsed() > WITHDRAWN_WITHIN => {
                keep(given);
            }
            NominationTask::TakeBack(_, given) => take_back(&kube, &given).await,
            NominationTask::Requeue(since, _) if since.elapsed() > WITHDRAWN_WITHIN => {}
            NominationTask::Requeue(_, back) => requeue(&kube, back, keep).await,
        }
    }
}

async fn take_back(kube: &KubeClient, given: &OwnNomination) {
    let OwnNomination { pod, uid, node, .. } = given;
    match kube.nominate(pod, uid, Some(node), None).await {
        Ok(Nomination::Written) => {
            tracing::info!(%pod, %node, "the pod's nomination for the node is taken back");
        }
        Ok(Nomination::Void) => {}
        // kube-scheduler clears it when it tries the pod again.
        Err(error) => tracing::debug!(%error, "a nomination could not be taken back"),
    }
}

/// Nominates a pod and takes that back; `keep` gets what may still stand.
async fn requeue(kube: &KubeClient, back: Back, keep: impl Fn(OwnNomination)) {
    let given = OwnNomination {
        pod: back.pod,
        uid: back.uid,
        node: back.node,
        at: Instant::now(),
    };
    let OwnNomination { pod, uid, node, .. } = &given;
    let written = kube.nominate(pod, uid, None, Some(node)).await;
    let taken = match written {
        Ok(Nomination::Written) => kube.nominate(pod, uid, Some(node), None).await,
        other => other,
    };
    match taken {
        Ok(Nomination::Written) => {
            tracing::info!(%pod, %node, seconds = back.waited.as_secs(),
                "the node has had room for the pod for some time; kube-scheduler is asked to try it again");
        }
        Ok(Nomination::Void) => {}
        Err(error) => {
            tracing::debug!(%pod, %error, "kube-scheduler could not be asked to try the pod again");
            // The nomination may stand.
            keep(given);
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
