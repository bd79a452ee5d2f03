//! Where volumes let a pod run: reach, attach limits, claims for one pod alone. A plain reading of
//! kube-scheduler's plugins `VolumeBinding`, `VolumeZone`, `NodeVolumeLimits`, `VolumeRestrictions`.
//!
//! A volume that is attached and that no pod uses counts once here; kube-scheduler counts it twice for
//! the pod that needs it, and so does the deciding code, which is the stricter one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Case, matching, supply};
use model::cluster::{Claim, ObjectKey, Pod, StorageClass};
use model::scheduling::{Labels, Volume};

/// A volume as attach limits count it: driver, and handle or claim.
type AttachedVolume = (Arc<str>, Arc<str>);

/// A node, as volumes see it.
#[derive(Clone, Copy)]
pub(super) struct CheckedNode<'a> {
    pub(super) name: &'a str,
    pub(super) labels: &'a Labels,
    /// It does not exist yet.
    pub(super) new: bool,
}

/// The claims of a pod, those that are to be made for it included; `None` where there is none.
pub(super) fn claims<'a>(
    case: Case<'a>,
    key: &ObjectKey,
    pod: &'a Pod,
) -> Vec<(ObjectKey, Option<Claim>)> {
    let there = &case.snapshot.cluster.claims;
    let mut found = Vec::new();
    for volume in &pod.shape.volumes {
        let (name, to_be) = match volume {
            Volume::Claim(name) => (name.to_string(), None),
            Volume::Ephemeral { name, class } => {
                let class = class.clone().or_else(|| default_class(case));
                let claim = Claim {
                    class,
                    ..Claim::default()
                };
                (format!("{}-{name}", key.name), Some(claim))
            }
            Volume::EmptyDir(_) | Volume::HostPath(_) => continue,
        };
        let name = ObjectKey::new(key.namespace.clone(), name);
        let ephemeral = to_be.is_some();
        let claim = there.get(&name).cloned().or(to_be);
        // One of that name which was not made for the pod is none of its own.
        let foreign = |of: &Claim| {
            ephemeral && there.contains_key(&name) && of.owner.as_ref() != Some(&pod.uid)
        };
        let claim = claim.filter(|of| !foreign(of));
        found.push((name, claim));
    }
    found
}

fn default_class(case: Case<'_>) -> Option<Arc<str>> {
    let classes = case.snapshot.cluster.storage_classes.iter();
    let defaults = classes.filter(|(_, class)| class.default);
    let newest = defaults.min_by_key(|(name, class)| (-i128::from(class.created.0), *name));
    newest.map(|(name, _)| name.clone())
}

/// Why the claims of a pod cannot be used on a node, if they cannot.
pub(super) fn unreachable(
    case: Case<'_>,
    key: &ObjectKey,
    pod: &Pod,
    at: CheckedNode<'_>,
) -> Option<String> {
    for (name, claim) in claims(case, key, pod) {
        let Some(claim) = claim else {
            return Some(format!("its claim {name} does not exist"));
        };
        if let Some(why) = out_of_reach(case, &name, &claim, at) {
            return Some(format!("its claim {name} {why}"));
        }
        if claim.once_pod
            && let Some(user) = user(case, key, &name)
        {
            return Some(format!(
                "its claim {name} is for one pod, and {user} has it"
            ));
        }
    }
    None
}

fn out_of_reach(
    case: Case<'_>,
    key: &ObjectKey,
    claim: &Claim,
    at: CheckedNode<'_>,
) -> Option<&'static str> {
    let cluster = &case.snapshot.cluster;
    if claim.deleting || claim.lost {
        return Some("is being deleted or has lost its volume");
    }
    if let Some(volume) = &claim.volume {
        let Some(volume) = cluster.volumes.get(volume).filter(|_| claim.bound) else {
            return Some("is not bound to a volume that is there");
        };
        if at.new && (volume.local || volume.deleting) {
            return Some("has a volume that no new node can reach");
        }
        let terms = volume.node_affinity.as_ref();
        let near = terms.is_none_or(|terms| {
            let mut terms = terms.iter();
            terms.any(|term| matching::term_matches(term, at.name, at.labels))
        });
        let zoned = volume.zones.iter().all(|zone| zone.admits(at.labels));
        return (!near || !zoned).then_some("has a volume elsewhere");
    }
    let Some((name, class)) = class_of(case, claim) else {
        return Some("is not bound, and waits for no consumer");
    };
    match &claim.selected_node {
        Some(node) if **node != *at.name => return Some("has its volume made for another node"),
        None if !supply::serving(case, key, claim, &name, at).is_empty() => return None,
        _ => {}
    }
    let provides = supply::provides(case, claim, (&name, class), at);
    (!provides).then_some("has no volume there and can get none")
}

/// The class of a claim, where volumes of it wait for a consumer.
pub(super) fn class_of<'a>(case: Case<'a>, claim: &Claim) -> Option<(Arc<str>, &'a StorageClass)> {
    let name = claim.class.clone().or_else(|| default_class(case))?;
    let class = case.snapshot.cluster.storage_classes.get(&name)?;
    class.wait_for_consumer.then_some((name, class))
}

/// Another pod on a node that uses a claim.
fn user(case: Case<'_>, itself: &ObjectKey, claim: &ObjectKey) -> Option<ObjectKey> {
    let cluster = &case.snapshot.cluster;
    let mut pods = cluster.pods.iter();
    let found = pods.find(|(key, pod)| {
        let node = pod.node.as_ref();
        let bound = node.is_some_and(|node| cluster.nodes.contains_key(node));
        *key != itself
            && bound
            && !pod.phase.terminal()
            && key.namespace == claim.namespace
            && pod
                .shape
                .volumes
                .contains(&Volume::Claim(claim.name.clone()))
    });
    found.map(|(key, _)| key.clone())
}

/// A claim for one pod alone that two of these pods use.
pub(super) fn shared(case: Case<'_>, pods: &[(&ObjectKey, &Pod)]) -> Option<ObjectKey> {
    let mut seen = BTreeSet::new();
    for (key, pod) in pods {
        // A pod may name a claim twice.
        let mut own = BTreeSet::new();
        for (name, claim) in claims(case, key, pod) {
            let once = claim.is_some_and(|claim| claim.once_pod);
            if once && own.insert(name.clone()) && !seen.insert(name.clone()) {
                return Some(name);
            }
        }
    }
    None
}

/// The volumes of a pod that CSI drivers attach.
pub(super) fn attached(case: Case<'_>, key: &ObjectKey, pod: &Pod) -> BTreeSet<AttachedVolume> {
    let cluster = &case.snapshot.cluster;
    let mut found = BTreeSet::new();
    for (name, claim) in claims(case, key, pod) {
        let Some(claim) = claim else {
            continue;
        };
        let volume = claim.volume.as_ref();
        if let Some(volume) = volume.and_then(|volume| cluster.volumes.get(volume)) {
            let both = volume.driver.clone().zip(volume.handle.clone());
            found.extend(both);
        } else if volume.is_none() {
            let class = claim.class.as_ref();
            let class = class.and_then(|class| cluster.storage_classes.get(class));
            found.extend(class.map(|class| {
                let handle: Arc<str> = name.to_string().into();
                (class.provisioner.clone(), handle)
            }));
        }
    }
    found
}

/// What is attached to a node by its VolumeAttachments.
pub(super) fn attachments(case: Case<'_>, node: &str) -> BTreeSet<AttachedVolume> {
    let cluster = &case.snapshot.cluster;
    let here = cluster.attachments.values().filter(|at| *at.node == *node);
    let found = here.filter_map(|attachment| {
        let volume = cluster.volumes.get(attachment.volume.as_ref()?)?;
        Some((attachment.driver.clone(), volume.handle.clone()?))
    });
    found.collect()
}

/// Why a node with these limits cannot attach all of these volumes, if it cannot.
pub(super) fn too_many(
    limits: &BTreeMap<Arc<str>, i32>,
    volumes: &BTreeSet<AttachedVolume>,
) -> Option<String> {
    limits.iter().find_map(|(driver, limit)| {
        let count = volumes.iter().filter(|(of, _)| of == driver).count();
        let most = usize::try_from(*limit).unwrap_or(0);
        (count > most).then(|| format!("{count} volumes of {driver}, it attaches {most}"))
    })
}

/// The limits that a node has said.
pub(super) fn limits(case: Case<'_>, node: &str) -> BTreeMap<Arc<str>, i32> {
    let said = case.snapshot.cluster.csi_nodes.get(node);
    let said = said.into_iter().flatten();
    said.filter_map(|(driver, limit)| Some((driver.clone(), (*limit)?)))
        .collect()
}
