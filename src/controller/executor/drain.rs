//! Emptying a node: cordon and taint, re-read the pods, evict tier by tier, wait for volumes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use tokio::time::{Instant, sleep, timeout};

use crate::controller::drain_order::{self, DrainAction, LAST_TIER};
use crate::kubernetes::{DELAY_DELETION, EvictOutcome, KubeClient, KubeError, NodeChange};
use crate::model::action::{Action, NodeRef};
use crate::model::cluster::{Node, ObjectKey, Pod, ReadyStatus};
use crate::model::policy::STARTUP_TAINT;
use crate::model::time::Span;
use crate::model::words;

use super::work::{Stop, Work, is_transient_kube};

/// Between the taint and the fresh look at the pods: kube-scheduler may still bind on its older view
/// (`node-delete-delay-after-taint`; Karpenter's minimum drain time). Every drain has it, an empty node's too, so no
/// VM is shut down earlier after the taint than this.
const SETTLE: Duration = Duration::from_secs(5);
/// Between two rounds over the pods that are left.
const ROUND: Duration = Duration::from_secs(2);
/// Between two looks at the volume attachments.
const DETACH_POLL: Duration = Duration::from_secs(2);

/// Evictions asked for at a time: one that takes long (a webhook that does not answer costs ten seconds a
/// pod) does not hold up the rest, and the API server is not flooded.
const SIDE_BY_SIDE: usize = 10;
/// After a refusal a pod's eviction is asked for again after one round, then after twice as long as before.
const REFUSED_FIRST: Duration = ROUND;
/// Longest wait after a refusal, unless the API server asks for a longer one (Karpenter's eviction queue).
const REFUSED_LONGEST: Duration = Duration::from_secs(10);

/// Between two looks at the annotations that delay the node's end.
const DELAY_POLL: Duration = Duration::from_secs(5);

/// Cordons the node: from here on its removal has begun.
pub(super) async fn cordoned(work: &Work, node: &NodeRef) -> Result<(), Stop> {
    let kube = &work.tools.kube;
    let since = work.tools.clock.now();
    let change = work
        .patiently_kube("cordoning the node", || kube.mark_leaving(node, since))
        .await?;
    if change == NodeChange::Gone {
        return Err(Stop::Transient(format!("node {} is gone", node.name)));
    }
    work.tools.observer.moment(&work.machine, "cordoned");
    Ok(())
}

/// Empties a node that was cordoned just now.
pub(super) async fn emptied(work: &Work, node: &NodeRef, action: &Action) -> Result<(), Stop> {
    sleep(SETTLE).await;
    if planted!(NoFreshLook) && action.precondition.pods.is_empty() {
        return Ok(());
    }
    still_to_go(work, node).await?;
    let pods = pods(work, &node.name).await?;
    let now = work.tools.clock.now();
    if let Some((pod, why)) = drain_order::obstacle(&pods, &action.precondition.pods, now) {
        return Err(Stop::Transient(format!("pod {pod} holds the node: {why}")));
    }
    let mut drain = NodeDrain {
        work,
        node,
        daemons: evicts_daemons(work, action),
        asked: BTreeSet::new(),
        refused: BTreeMap::new(),
    };
    for tier in 0..=LAST_TIER {
        drain.evicted(tier).await?;
    }
    Ok(())
}

/// Whether somebody uncordoned a node that we cordoned for its removal. It must be Ready, so that pods can come. Our
/// leaving taint may be there still: who types `kubectl uncordon` does not know of it. A node that never came up was not
/// cordoned by us; its startup taint says so.
pub(super) fn wanted_back(node: &Node) -> bool {
    let starting = node.taints.iter().any(|taint| *taint.key == *STARTUP_TAINT);
    node.ready.status == ReadyStatus::True && !node.unschedulable && !starting
}

/// The stop that ends a removal because somebody uncordoned its node; it is decided on anew in a later turn.
pub(super) fn uncordoned(node: &NodeRef) -> Stop {
    let name = &node.name;
    Stop::Transient(format!(
        "somebody uncordoned node {name} while it was to go: the next turn decides again"
    ))
}

/// Reads a node that was cordoned; a stop when somebody wants it back.
async fn still_to_go(work: &Work, node: &NodeRef) -> Result<(), Stop> {
    let kube = &work.tools.kube;
    let now = work
        .patiently_kube("reading the node", || kube.node(&node.name))
        .await?;
    match now {
        Some(now) if now.uid == node.uid && wanted_back(&now) && !planted!(NoCordon) => {
            Err(uncordoned(node))
        }
        _ => Ok(()),
    }
}

/// Whether pods of DaemonSets are evicted from the node of this removal. A node is empty when the plan has no pod to
/// move from it.
fn evicts_daemons(work: &Work, action: &Action) -> bool {
    let leaving = &work.tools.settings.leaving;
    if action.precondition.pods.is_empty() {
        leaving.evict_daemons_of_empty
    } else {
        leaving.evict_daemons_of_occupied
    }
}

/// A node being emptied.
struct NodeDrain<'a> {
    work: &'a Work,
    node: &'a NodeRef,
    daemons: bool,
    /// DaemonSets, by UID, whose pod here was asked to go: one that bears the cordon puts another in its place.
    asked: BTreeSet<Arc<str>>,
    /// Pods, by UID, whose eviction did not come about.
    refused: BTreeMap<Arc<str>, RefusedEviction>,
}

/// An eviction that did not come about.
#[derive(Clone, Debug)]
struct RefusedEviction {
    /// In a row.
    times: u32,
    /// Not to be asked for again before.
    next: Instant,
    why: String,
}

/// A pod to evict, and the grace period to give it, in seconds.
struct PodToEvict {
    key: ObjectKey,
    pod: Pod,
    grace: i64,
    best_effort: bool,
}

impl NodeDrain<'_> {
    /// Evicts a tier's pods and waits until none is left.
    async fn evicted(&mut self, tier: u8) -> Result<(), Stop> {
        let work = self.work;
        loop {
            let mut waiting = EvictionRound::default();
            let candidates = self.candidates(tier, &mut waiting).await?;
            // Side by side, in this one task; what they came to is looked at in the pods' order.
            let asking = candidates.into_iter().enumerate();
            let asking: Vec<_> = asking
                .map(|(index, candidate)| ask(work.tools.kube.clone(), index, candidate))
                .collect();
            let mut outcomes: Vec<(usize, PodToEvict, EvictOutcome)> =
                futures::stream::iter(asking)
                    .buffer_unordered(SIDE_BY_SIDE)
                    .collect()
                    .await;
            outcomes.sort_by_key(|(index, ..)| *index);
            for (_, candidate, outcome) in outcomes {
                let refused = if candidate.best_effort {
                    if !self.daemon_asked(&candidate, &outcome) {
                        continue;
                    }
                    None
                } else {
                    self.asked(&candidate, outcome)?
                };
                match refused {
                    None => waiting.ending.push(candidate.key),
                    Some(why) => waiting.refused.push((candidate.key, why)),
                }
            }
            if waiting.is_empty() {
                return Ok(());
            }
            waiting.say(work);
            sleep(ROUND).await;
            still_to_go(work, self.node).await?;
        }
    }

    /// The pods of a tier to ask for now. Others of it that are still there are `waiting`. A pod that holds
    /// the node, of whatever tier, ends the drain before anything is asked for.
    async fn candidates(
        &mut self,
        tier: u8,
        waiting: &mut EvictionRound,
    ) -> Result<Vec<PodToEvict>, Stop> {
        let work = self.work;
        let limit = work.drain().max_grace;
        let now = work.tools.clock.now();
        let pods = pods(work, &self.node.name).await?;
        self.refused
            .retain(|uid, _| pods.iter().any(|(_, pod)| pod.uid == *uid));
        let mut candidates = Vec::new();
        for (key, pod) in pods {
            match drain_order::fate(&pod, now, self.daemons) {
                DrainAction::Left(_) => {}
                DrainAction::Blocks(why) => {
                    return Err(Stop::Transient(format!("pod {key} holds the node: {why}")));
                }
                DrainAction::Evicted { tier: its, .. } if its != tier => {}
                DrainAction::Evicted { going: true, .. } => {
                    waiting.ending.push(key);
                }
                DrainAction::Evicted { best_effort, .. } => {
                    // Of a DaemonSet one pod is asked to go, once: another that bears the cordon follows it.
                    let set = pod.shape.owner.as_ref();
                    let set = set.filter(|owner| &*owner.kind == "DaemonSet");
                    let owner = set.map_or(&pod.uid, |set| &set.uid).clone();
                    if best_effort && !self.asked.insert(owner) {
                        continue;
                    }
                    match self.refused.get(&pod.uid) {
                        Some(refused) if refused.next > Instant::now() => {
                            waiting.refused.push((key, refused.why.clone()));
                        }
                        _ => candidates.push(PodToEvict {
                            grace: drain_order::grace_seconds(&pod, limit),
                            key,
                            pod,
                            best_effort,
                        }),
                    }
                }
            }
        }
        Ok(candidates)
    }

    /// A DaemonSet's pod was asked to go; one that may not or cannot is left. Says whether it goes.
    fn daemon_asked(&self, candidate: &PodToEvict, outcome: &EvictOutcome) -> bool {
        let key = &candidate.key;
        let accepted = *outcome == EvictOutcome::Accepted;
        self.work.tools.observer.evicted(accepted);
        if !accepted {
            tracing::info!(pod = %key, ?outcome, "a DaemonSet's pod is not evicted; it ends with its node");
        }
        accepted
    }

    /// An eviction was asked for; says why it is refused for now, if it is.
    fn asked(
        &mut self,
        candidate: &PodToEvict,
        outcome: EvictOutcome,
    ) -> Result<Option<String>, Stop> {
        let (work, key, uid) = (self.work, &candidate.key, &candidate.pod.uid);
        let (why, retry_after) = match outcome {
            EvictOutcome::Accepted => {
                work.tools.observer.evicted(true);
                self.refused.remove(uid);
                return Ok(None);
            }
            // Gone, or a new pod of the same name took its place: the fresh list of the next round says.
            EvictOutcome::Gone | EvictOutcome::Conflict => return Ok(None),
            EvictOutcome::Blocked { why, retry_after } => {
                work.tools.observer.evicted(false);
                work.held_by(key, uid, &why);
                (String::from(why), retry_after)
            }
            EvictOutcome::Failed(error) if is_transient_kube(&error) => {
                work.held_by(key, uid, &error.to_string());
                work.wait_for_kube(&format!("evicting {key}"), &error);
                let retry_after = match &error {
                    KubeError::Refused { retry_after, .. } => *retry_after,
                    _ => None,
                };
                (error.to_string(), retry_after)
            }
            EvictOutcome::Failed(error) => {
                return Err(Stop::Failed(format!("evicting {key}: {error}")));
            }
        };
        let times = self.refused.get(uid).map_or(0, |refused| refused.times);
        let pause = REFUSED_FIRST
            .saturating_mul(1 << times.min(16))
            .min(REFUSED_LONGEST)
            .max(retry_after.map(Span::to_std).unwrap_or_default());
        let refused = RefusedEviction {
            times: times + 1,
            next: Instant::now() + pause,
            why: why.clone(),
        };
        self.refused.insert(uid.clone(), refused);
        Ok(Some(why))
    }
}

/// Pods that a round of evictions waits for.
#[derive(Default)]
struct EvictionRound {
    /// They may not be evicted now, and why.
    refused: Vec<(ObjectKey, String)>,
    /// They are on their way out.
    ending: Vec<ObjectKey>,
}

impl EvictionRound {
    fn is_empty(&self) -> bool {
        self.refused.is_empty() && self.ending.is_empty()
    }

    /// Says what is waited for, the first of those that hold the node up with its reason.
    fn say(&self, work: &Work) {
        let ending = || format!("terminating: {}", words::some(&self.ending));
        let Some((pod, why)) = self.refused.first() else {
            return work.progress(ending());
        };
        let mut text = format!("pod {pod} may not be evicted: {why}");
        if self.refused.len() > 1 {
            let _ = write!(text, "; nor {} others", self.refused.len() - 1);
        }
        if !self.ending.is_empty() {
            let _ = write!(text, "; {}", ending());
        }
        work.note(text);
    }
}

/// Asks for one eviction.
async fn ask(
    kube: KubeClient,
    index: usize,
    candidate: PodToEvict,
) -> (usize, PodToEvict, EvictOutcome) {
    let PodToEvict {
        key, pod, grace, ..
    } = &candidate;
    let outcome = kube.evict(key, &pod.uid, Some(*grace)).await;
    (index, candidate, outcome)
}

/// Waits until no volume is attached to the node any more. Which volume is whose cannot be told from the pods, once
/// they have gone, so every attachment counts but those of pods that stay.
pub(super) async fn detached(work: &Work, node: &NodeRef, action: &Action) -> Result<(), Stop> {
    if planted!(VolumesIgnored) {
        return Ok(());
    }
    let kube = &work.tools.kube;
    let daemons = evicts_daemons(work, action);
    loop {
        let left_alone = volumes_left(work, &node.name, daemons).await?;
        let attachments = work
            .patiently_kube("reading the volume attachments", || {
                kube.attachments_on(&node.name)
            })
            .await?;
        let names: Vec<Arc<str>> = attachments
            .into_iter()
            .filter_map(|(_, attachment)| attachment.volume)
            .filter(|volume| !left_alone.contains(volume))
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        work.note(format!("volumes are still attached: {}", names.join(", ")));
        sleep(DETACH_POLL).await;
        still_to_go(work, node).await?;
    }
}

/// Volumes of pods that stay to the end: their attachments do not hold the node. Those are static and tolerating pods, and pods of
/// DaemonSets that are still there after the drain: their eviction was refused, or they came in the place of others.
async fn volumes_left(work: &Work, node: &str, daemons: bool) -> Result<Vec<Arc<str>>, Stop> {
    use crate::model::scheduling::Volume;
    let now = work.tools.clock.now();
    let mut volumes = Vec::new();
    for (key, pod) in pods(work, node).await? {
        let stays = matches!(
            drain_order::fate(&pod, now, daemons),
            DrainAction::Left(_)
                | DrainAction::Evicted {
                    best_effort: true,
                    going: false,
                    ..
                }
        );
        if !stays {
            continue;
        }
        for volume in &pod.shape.volumes {
            let claim = match volume {
                Volume::Claim(name) => ObjectKey {
                    namespace: key.namespace.clone(),
                    name: name.clone(),
                },
                Volume::Ephemeral { name, .. } => {
                    ObjectKey::new(key.namespace.clone(), format!("{}-{name}", key.name))
                }
                Volume::EmptyDir(_) | Volume::HostPath(_) => continue,
            };
            volumes.extend(work.tools.store.with(|cluster| {
                cluster
                    .claims
                    .get(&claim)
                    .and_then(|claim| claim.volume.clone())
            }));
        }
    }
    Ok(volumes)
}

/// The pods on a node, read afresh.
pub(super) async fn pods(work: &Work, node: &str) -> Result<Vec<(ObjectKey, Pod)>, Stop> {
    let kube = &work.tools.kube;
    let mut pods = work
        .patiently_kube("reading the node's pods", || kube.pods_on(node))
        .await?;
    let now = work.tools.clock.now();
    for (key, pod) in pods.iter_mut().filter(|(_, pod)| pod.created > now) {
        // By a clock that is ahead of ours: it is as old as it was first seen.
        let watched = work.tools.store.with(|cluster| {
            let seen = cluster.pods.get(key).filter(|seen| seen.uid == pod.uid);
            seen.map(|seen| seen.created)
        });
        pod.created = watched.unwrap_or(now).min(now);
    }
    Ok(pods)
}

/// Waits while somebody asks for it by an annotation of the node (an ingress that takes its time to forget it, for
/// instance), but not longer than is configured (cluster-autoscaler's `WaitForDelayDeletion`).
pub(super) async fn undelayed(work: &Work, node: &NodeRef) {
    let limit = work.tools.settings.leaving.deletion_delay;
    if limit == Span::ZERO {
        return;
    }
    let wait = async {
        while let Some(key) = delaying(work, node).await {
            work.note(format!("the node has the annotation {key}"));
            sleep(DELAY_POLL).await;
        }
    };
    if timeout(limit.to_std(), wait).await.is_err() {
        tracing::warn!(node = %node.name, "an annotation still asks to delay the node's deletion after {limit}; the node is removed anyway");
    }
}

/// An annotation that asks to delay the node's end.
async fn delaying(work: &Work, node: &NodeRef) -> Option<String> {
    match work.tools.kube.node(&node.name).await {
        Ok(Some(seen)) if seen.uid == node.uid => {
            let mut keys = seen.annotations.keys();
            let key = keys.find(|key| key.starts_with(DELAY_DELETION))?;
            Some(key.to_string())
        }
        Ok(_) => None,
        Err(error) => Some(format!("that cannot be read: {error}")),
    }
}
