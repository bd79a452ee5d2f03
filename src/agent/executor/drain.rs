//! Emptying a node: cordon and taint, re-read the pods, evict tier by tier, wait for volumes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::agent::drain_order::{self, Fate, LAST_TIER};
use crate::kube::{EvictOutcome, NodeChange};
use crate::model::action::{Action, NodeRef};
use crate::model::cluster::{Pod, PodKey};

use super::work::{Stop, Work, kube_passing};

/// Between the taint and the fresh look at the pods: kube-scheduler may still bind on its older view
/// (`node-delete-delay-after-taint`; Karpenter's minimum drain time).
const SETTLE: Duration = Duration::from_secs(5);
/// Between two rounds over the pods that are left.
const ROUND: Duration = Duration::from_secs(2);
/// Between two looks at the volume attachments.
const DETACH_POLL: Duration = Duration::from_secs(2);

/// Whose volumes must be gone before the VM goes: names of the claims' volumes cannot be told from
/// the pods alone, so every attachment on the node counts that was there before the drain or came
/// during it.
///
/// Cordons and empties the node. When it stops, the node is released again.
pub(super) async fn emptied(work: &Work, node: &NodeRef, action: &Action) -> Result<(), Stop> {
    match empty(work, node, action).await {
        Ok(()) => Ok(()),
        Err(stop) => {
            released(work, node).await;
            Err(stop)
        }
    }
}

async fn empty(work: &Work, node: &NodeRef, action: &Action) -> Result<(), Stop> {
    let kube = &work.tools.kube;
    let since = work.tools.clock.now();
    let change = work
        .patiently_kube("cordoning the node", || kube.mark_leaving(node, since))
        .await?;
    if change == NodeChange::Gone {
        return Err(Stop::Transient(format!("node {} is gone", node.name)));
    }
    sleep(SETTLE).await;
    let pods = pods(work, &node.name).await?;
    let now = work.tools.clock.now();
    if let Some((pod, why)) = drain_order::obstacle(&pods, &action.precondition.pods, now) {
        return Err(Stop::Transient(format!("pod {pod} holds the node: {why}")));
    }
    for tier in 0..=LAST_TIER {
        evicted(work, node, tier).await?;
    }
    Ok(())
}

/// Evicts a tier's pods and waits until none is left.
async fn evicted(work: &Work, node: &NodeRef, tier: u8) -> Result<(), Stop> {
    let limit = work.drain().max_grace;
    loop {
        let now = work.tools.clock.now();
        let mut waiting: Vec<String> = Vec::new();
        for (key, pod) in pods(work, &node.name).await? {
            match drain_order::fate(&pod, now) {
                Fate::Left(_) => {}
                Fate::Blocks(why) => {
                    return Err(Stop::Transient(format!("pod {key} holds the node: {why}")));
                }
                Fate::Evicted { tier: its, .. } if its != tier => {}
                Fate::Evicted { going: true, .. } => waiting.push(format!("{key} is terminating")),
                Fate::Evicted { best_effort, .. } => {
                    let grace = drain_order::grace_seconds(&pod, limit);
                    match evict(work, &key, &pod, grace).await {
                        Ok(_) | Err(_) if best_effort => {}
                        Ok(why) => waiting.extend(why),
                        Err(stop) => return Err(stop),
                    }
                }
            }
        }
        if waiting.is_empty() {
            return Ok(());
        }
        work.note(waiting.join(", "));
        sleep(ROUND).await;
    }
}

/// Asks for an eviction; says what is to be waited for then.
async fn evict(work: &Work, key: &PodKey, pod: &Pod, grace: i64) -> Result<Vec<String>, Stop> {
    match work.tools.kube.evict(key, &pod.uid, Some(grace)).await {
        EvictOutcome::Accepted => {
            work.tools.observer.evicted(true);
            Ok(vec![format!("{key} is terminating")])
        }
        // Gone, or a new pod of the same name took its place: the fresh list of the next round says.
        EvictOutcome::Gone | EvictOutcome::Conflict => Ok(vec![format!("{key} has just gone")]),
        EvictOutcome::Blocked { why, .. } => {
            work.tools.observer.evicted(false);
            Ok(vec![format!("{key} may not be evicted now: {why}")])
        }
        EvictOutcome::Failed(error) if kube_passing(&error) => Ok(vec![format!("{key}: {error}")]),
        EvictOutcome::Failed(error) => Err(Stop::Failed(format!("evicting {key}: {error}"))),
    }
}

/// Waits until no volume is attached to the node any more.
pub(super) async fn detached(work: &Work, node: &NodeRef) -> Result<(), Stop> {
    let kube = &work.tools.kube;
    let left_alone = volumes_left(work, &node.name).await?;
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
async fn volumes_left(work: &Work, node: &str) -> Result<Vec<Arc<str>>, Stop> {
    use crate::model::scheduling::Volume;
    let now = work.tools.clock.now();
    let mut volumes = Vec::new();
    for (key, pod) in pods(work, node).await? {
        if !matches!(drain_order::fate(&pod, now), Fate::Left(_)) {
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

/// Takes our taint off and uncordons, as far as that is possible; the sweep does it otherwise.
async fn released(work: &Work, node: &NodeRef) {
    if let Err(error) = work.tools.kube.release_node(node).await {
        tracing::warn!(node = %node.name, %error, "the node could not be uncordoned; it is tried again");
    }
}
