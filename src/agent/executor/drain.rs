//! Emptying a node: cordon and taint, re-read the pods, evict tier by tier, wait for volumes.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::agent::drain_order::{self, Fate, LAST_TIER};
use crate::kube::{DELAY_DELETION, EvictOutcome, NodeChange};
use crate::model::action::{Action, NodeRef};
use crate::model::cluster::{Pod, PodKey};
use crate::model::time::Span;
use crate::model::words;

use super::work::{Stop, Work, kube_passing};

/// Between the taint and the fresh look at the pods: kube-scheduler may still bind on its older view
/// (`node-delete-delay-after-taint`; Karpenter's minimum drain time). Every drain has it, an empty node's too, so no
/// VM is shut down earlier after the taint than this.
const SETTLE: Duration = Duration::from_secs(5);
/// Between two rounds over the pods that are left.
const ROUND: Duration = Duration::from_secs(2);
/// Between two looks at the volume attachments.
const DETACH_POLL: Duration = Duration::from_secs(2);

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
    Ok(())
}

/// Empties a node that was cordoned just now.
pub(super) async fn emptied(work: &Work, node: &NodeRef, action: &Action) -> Result<(), Stop> {
    sleep(SETTLE).await;
    if planted!(NoFreshLook) && action.precondition.pods.is_empty() {
        return Ok(());
    }
    let pods = pods(work, &node.name).await?;
    let now = work.tools.clock.now();
    if let Some((pod, why)) = drain_order::obstacle(&pods, &action.precondition.pods, now) {
        return Err(Stop::Transient(format!("pod {pod} holds the node: {why}")));
    }
    let mut drain = Drain {
        work,
        node,
        daemons: evicts_daemons(work, action),
        asked: BTreeSet::new(),
    };
    for tier in 0..=LAST_TIER {
        drain.evicted(tier).await?;
    }
    Ok(())
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
struct Drain<'a> {
    work: &'a Work,
    node: &'a NodeRef,
    daemons: bool,
    /// DaemonSets, by UID, whose pod here was asked to go: one that bears the cordon puts another in its place.
    asked: BTreeSet<Arc<str>>,
}

impl Drain<'_> {
    /// Evicts a tier's pods and waits until none is left.
    async fn evicted(&mut self, tier: u8) -> Result<(), Stop> {
        let work = self.work;
        let limit = work.drain().max_grace;
        loop {
            let now = work.tools.clock.now();
            let mut waiting = Waiting::default();
            for (key, pod) in pods(work, &self.node.name).await? {
                match drain_order::fate(&pod, now, self.daemons) {
                    Fate::Left(_) => {}
                    Fate::Blocks(why) => {
                        return Err(Stop::Transient(format!("pod {key} holds the node: {why}")));
                    }
                    Fate::Evicted { tier: its, .. } if its != tier => {}
                    Fate::Evicted { going: true, .. } => {
                        waiting.ending.push(key);
                    }
                    Fate::Evicted { best_effort, .. } => {
                        let grace = drain_order::grace_seconds(&pod, limit);
                        if best_effort {
                            let asked = self.daemon_evicted(&key, &pod, grace).await;
                            waiting.ending.extend(asked.then_some(key));
                        } else {
                            match evict(work, &key, &pod, grace).await? {
                                None => waiting.ending.push(key),
                                Some(why) => waiting.refused.push((key, why)),
                            }
                        }
                    }
                }
            }
            if waiting.is_empty() {
                return Ok(());
            }
            waiting.say(work);
            sleep(ROUND).await;
        }
    }

    /// Asks a DaemonSet's pod to go, once; one that may not or cannot is left.
    async fn daemon_evicted(&mut self, key: &PodKey, pod: &Pod, grace: i64) -> bool {
        let owner = pod.shape.owner.as_ref().map(|owner| owner.uid.clone());
        if !owner.is_some_and(|owner| self.asked.insert(owner)) {
            return false;
        }
        let outcome = self.work.tools.kube.evict(key, &pod.uid, Some(grace)).await;
        let accepted = outcome == EvictOutcome::Accepted;
        self.work.tools.observer.evicted(accepted);
        if !accepted {
            tracing::info!(pod = %key, ?outcome, "a DaemonSet's pod is not evicted; it ends with its node");
        }
        accepted
    }
}

/// Pods that a round of evictions waits for.
#[derive(Default)]
struct Waiting {
    /// They may not be evicted now, and why.
    refused: Vec<(PodKey, String)>,
    /// They are on their way out.
    ending: Vec<PodKey>,
}

impl Waiting {
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

/// Asks for an eviction; says why it is refused for now, if it is.
async fn evict(work: &Work, key: &PodKey, pod: &Pod, grace: i64) -> Result<Option<String>, Stop> {
    match work.tools.kube.evict(key, &pod.uid, Some(grace)).await {
        EvictOutcome::Accepted => {
            work.tools.observer.evicted(true);
            Ok(None)
        }
        // Gone, or a new pod of the same name took its place: the fresh list of the next round says.
        EvictOutcome::Gone | EvictOutcome::Conflict => Ok(None),
        EvictOutcome::Blocked { why, .. } => {
            work.tools.observer.evicted(false);
            work.held_by(key, &pod.uid, &why);
            Ok(Some(why.into()))
        }
        EvictOutcome::Failed(error) if kube_passing(&error) => {
            work.held_by(key, &pod.uid, &error.to_string());
            work.wait_for_kube(&format!("evicting {key}"), &error);
            Ok(Some(error.to_string()))
        }
        EvictOutcome::Failed(error) => Err(Stop::Failed(format!("evicting {key}: {error}"))),
    }
}

/// Waits until no volume is attached to the node any more. Which volume is whose cannot be told from the pods, once
/// they have gone, so every attachment counts but those of pods that stay.
pub(super) async fn detached(work: &Work, node: &NodeRef, action: &Action) -> Result<(), Stop> {
    if planted!(VolumesIgnored) {
        return Ok(());
    }
    let kube = &work.tools.kube;
    let daemons = evicts_daemons(work, action);
    let left_alone = volumes_left(work, &node.name, daemons).await?;
    loop {
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
    }
}

/// Volumes of pods that stay to the end (static and tolerating ones): their attachments do not hold
/// the node.
async fn volumes_left(work: &Work, node: &str, daemons: bool) -> Result<Vec<Arc<str>>, Stop> {
    use crate::model::scheduling::Volume;
    let now = work.tools.clock.now();
    let mut volumes = Vec::new();
    for (key, pod) in pods(work, node).await? {
        if !matches!(drain_order::fate(&pod, now, daemons), Fate::Left(_)) {
            continue;
        }
        for volume in &pod.shape.volumes {
            let claim = match volume {
                Volume::Claim(name) => PodKey {
                    namespace: key.namespace.clone(),
                    name: name.clone(),
                },
                Volume::Ephemeral { name, .. } => {
                    PodKey::new(key.namespace.clone(), format!("{}-{name}", key.name))
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
pub(super) async fn pods(work: &Work, node: &str) -> Result<Vec<(PodKey, Pod)>, Stop> {
    let kube = &work.tools.kube;
    work.patiently_kube("reading the node's pods", || kube.pods_on(node))
        .await
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
        tracing::warn!(node = %node.name, "the node's end is still asked to be delayed after {limit}; it goes all the same");
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
