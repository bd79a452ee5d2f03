//! What a pod's volumes decide.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use model::cluster::{Claim, Cluster, PodKey, StorageClass};
use model::scheduling::Volume;

use crate::node::{meets_one, selects};
use crate::{No, NodeInfo, NodeInfos, PodInfo, Site};

/// The labels of a volume that say in which zone or region its nodes are, and what they are called on nodes today.
/// Nodes without any of them are thought to be everywhere.
pub const ZONES: [(&str, &str); 4] = [
    (
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/zone",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    (
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
];

const UNBOUND: &str = "pod has unbound immediate PersistentVolumeClaims";
const ELSEWHERE: &str = "node(s) had volume node affinity conflict";
const IN_USE: &str = "node unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";

/// A volume of a CSI driver: the driver, and what the volume is called there.
pub type VolumeOnNode = (Arc<str>, Arc<str>);

/// The volumes that VolumeAttachments say are attached to a node.
pub fn attached(cluster: &Cluster, node: &str) -> BTreeSet<VolumeOnNode> {
    let attachments = cluster.attachments.values();
    let here = attachments.filter(|attachment| *attachment.node == *node);
    let named = here.filter_map(|attachment| {
        let volume = cluster.volumes.get(attachment.volume.as_ref()?)?;
        Some((attachment.driver.clone(), volume.handle.clone()?))
    });
    named.collect()
}

/// A pod's claims: their names, and the claims there are or will be.
fn claims(cluster: &Cluster, pod: &PodInfo) -> Vec<(PodKey, Option<Claim>)> {
    let mut list = Vec::new();
    for volume in &pod.shape.volumes {
        let (name, made) = match volume {
            Volume::Claim(name) => (name.clone(), None),
            Volume::Ephemeral { name, class } => {
                let claim = Claim {
                    class: class.clone(),
                    ..Claim::default()
                };
                (Arc::from(format!("{}-{name}", pod.key.name)), Some(claim))
            }
            Volume::EmptyDir(_) | Volume::HostPath(_) => continue,
        };
        let claim = PodKey::new(pod.key.namespace.clone(), name);
        let found = cluster.claims.get(&claim).cloned().or(made);
        list.push((claim, found));
    }
    list
}

/// The volume that a claim has attached, or will have.
fn volume_of(cluster: &Cluster, key: &PodKey, claim: &Claim) -> Option<VolumeOnNode> {
    if let Some(volume) = &claim.volume {
        let volume = cluster.volumes.get(volume)?;
        return Some((volume.driver.clone()?, volume.handle.clone()?));
    }
    let class = cluster.storage_classes.get(claim.class.as_ref()?)?;
    Some((class.provisioner.clone(), key.to_string().into()))
}

/// Claims that no node helps.
pub(crate) fn ready(cluster: &Cluster, pod: &PodInfo) -> Result<(), No> {
    for (name, claim) in claims(cluster, pod) {
        let there = |volume: &Arc<str>| cluster.volumes.contains_key(volume);
        let ready = |claim: &Claim| match &claim.volume {
            Some(volume) => claim.bound && there(volume),
            None => class_of(cluster, claim).is_some(),
        };
        let named = |why: &str| format!("persistentvolumeclaim \"{}\" {why}", name.name).into();
        let said: Cow<'static, str> = match &claim {
            None => named("not found"),
            Some(claim) if claim.deleting => named("is being deleted"),
            Some(claim) if claim.lost => named("bound to non-existent persistentvolume"),
            Some(claim) if ready(claim) => continue,
            Some(_) => UNBOUND.into(),
        };
        return Err(No::firm(said, &name));
    }
    Ok(())
}

pub(crate) fn fit(world: &NodeInfos<'_>, pod: &PodInfo, spot: &NodeInfo) -> Result<(), No> {
    let cluster = world.cluster;
    ready(cluster, pod)?;
    let mut fresh: BTreeSet<VolumeOnNode> = BTreeSet::new();
    for (name, claim) in claims(cluster, pod) {
        let Some(claim) = claim else { continue };
        if claim.once_pod {
            alone(world, pod, &name)?;
        }
        if !reached(cluster, &claim, spot) {
            return Err(No::firm(ELSEWHERE, &name));
        }
        fresh.extend(volume_of(cluster, &name, &claim));
    }
    limits(cluster, &fresh, spot)?;
    found(world, pod, spot).map(drop)
}

/// What can be attached to a node is limited by driver; a volume counts once, however many pods use it.
fn limits(cluster: &Cluster, fresh: &BTreeSet<VolumeOnNode>, spot: &NodeInfo) -> Result<(), No> {
    if fresh.is_empty() || spot.limits.is_empty() {
        return Ok(());
    }
    let mut used: BTreeSet<VolumeOnNode> = BTreeSet::new();
    for guest in spot.pods.iter().chain(&spot.preempted) {
        for (name, claim) in claims(cluster, guest) {
            // One that runs without its claim is not counted.
            if !guest.bound || cluster.claims.contains_key(&name) {
                used.extend(claim.and_then(|claim| volume_of(cluster, &name, &claim)));
            }
        }
    }
    let new: Vec<&VolumeOnNode> = fresh
        .iter()
        .filter(|volume| !used.contains(*volume))
        .collect();
    let there = used.union(&spot.attached);
    for (driver, limit) in &spot.limits {
        let more = new.iter().filter(|volume| volume.0 == *driver).count();
        let have = there.clone().filter(|volume| volume.0 == *driver).count();
        if more > 0 && (have + more) as i128 > i128::from(*limit) {
            return Err(No::soft("node(s) exceed max volume count", driver));
        }
    }
    Ok(())
}

/// Whether the volume that a claim has, or that is being made for it, can be used on a node.
fn reached(cluster: &Cluster, claim: &Claim, spot: &NodeInfo) -> bool {
    let Some(name) = &claim.volume else {
        let selected = claim.selected_node.as_ref();
        return selected.is_none_or(|node| *node == spot.name);
    };
    let placed = ZONES.iter().any(|(key, _)| spot.labels.contains_key(*key));
    let mut zones = cluster.volumes[name].zones.iter();
    let zoned = zones.all(|zone| {
        let new = ZONES.iter().find(|(old, _)| **old == *zone.key);
        let mut values = [Some(&*zone.key), new.map(|(_, new)| *new)]
            .into_iter()
            .flatten();
        let value = values.find_map(|key| spot.labels.get(key));
        value.is_some_and(|value| zone.values.contains(value))
    });
    (zoned || !placed) && usable(cluster, name, spot)
}

/// Whether a volume can be used on a node. One that is local to a node is on none that is not made yet, and for one that is
/// being deleted none is made.
fn usable(cluster: &Cluster, volume: &Arc<str>, spot: &NodeInfo) -> bool {
    let volume = &cluster.volumes[volume];
    let near = volume.node_affinity.as_ref();
    let near = near.is_none_or(|terms| meets_one(terms, spot));
    let passing = volume.local || volume.deleting;
    near && !(passing && spot.site == Site::Planned)
}

fn class_of<'a>(cluster: &'a Cluster, claim: &Claim) -> Option<&'a StorageClass> {
    let class = cluster.storage_classes.get(claim.class.as_ref()?)?;
    class.wait_for_consumer.then_some(class)
}

/// The volumes that claims of a pod which wait get on a node: claim after claim, the smallest first, each
/// gets the smallest volume that does, of equal ones one that is not everywhere, then by name; else one is
/// made for it.
pub(crate) fn found(
    world: &NodeInfos<'_>,
    pod: &PodInfo,
    spot: &NodeInfo,
) -> Result<Vec<(PodKey, Arc<str>)>, No> {
    let cluster = world.cluster;
    let mut waiting: Vec<(PodKey, Claim)> = claims(cluster, pod)
        .into_iter()
        .filter_map(|(name, claim)| Some((name, claim?)))
        .filter(|(_, claim)| claim.volume.is_none() && !claim.lost && !claim.deleting)
        .collect();
    waiting.sort_by_key(|(_, claim)| claim.asks.as_ref().map_or(0, |asks| asks.storage));
    let mut got: Vec<(PodKey, Arc<str>)> = Vec::new();
    for (name, claim) in waiting {
        let Some(class) = class_of(cluster, &claim) else {
            return Err(No::firm(UNBOUND, &name));
        };
        if let Some((_, volume)) = world.gone.iter().find(|(of, _)| *of == name) {
            if usable(cluster, volume, spot) {
                continue;
            }
            return Err(No::firm(ELSEWHERE, &name));
        }
        let taken = |volume: &Arc<str>| {
            let mut all = world.gone.iter().chain(&got);
            all.any(|(_, other)| other == volume)
        };
        let mut volumes = candidates(cluster, &name, &claim);
        volumes.retain(|volume| !taken(volume) && usable(cluster, volume, spot));
        if let Some(volume) = volumes.first() {
            got.push((name, volume.clone()));
            continue;
        }
        let near = class.topologies.is_empty() || meets_one(&class.topologies, spot);
        if &*class.provisioner == "kubernetes.io/no-provisioner" || !near {
            let said = "node(s) didn't find available persistent volumes to bind";
            return Err(No::firm(said, &name));
        }
        if !spacious(cluster, &claim, &class.provisioner, spot) {
            return Err(No::firm("node(s) did not have enough free storage", &name));
        }
    }
    Ok(got)
}

/// Whether the driver has room for a claim's volume where this node is, as far as it says.
fn spacious(cluster: &Cluster, claim: &Claim, driver: &str, spot: &NodeInfo) -> bool {
    let (Some(asks), Some(true)) = (&claim.asks, cluster.csi_drivers.get(driver)) else {
        return true;
    };
    let label = |key: &str| spot.labels.get(key).map(AsRef::as_ref);
    cluster.capacities.values().any(|capacity| {
        Some(&capacity.class) == claim.class.as_ref()
            && selects(capacity.nodes.as_ref(), label)
            && capacity.largest >= Some(asks.storage)
    })
}

/// The volumes that a claim could have somewhere, the best first.
fn candidates(cluster: &Cluster, name: &PodKey, claim: &Claim) -> Vec<Arc<str>> {
    let (Some(asks), None) = (&claim.asks, &claim.selected_node) else {
        return Vec::new();
    };
    let mut fitting = Vec::new();
    for (volume, of) in &cluster.volumes {
        let Some(free) = of.free.as_ref().filter(|_| !of.deleting) else {
            continue;
        };
        let alike = Some(&free.class) == claim.class.as_ref()
            && free.storage >= asks.storage
            && free.block == asks.block
            && free.attributes == asks.attributes;
        if !alike {
            continue;
        }
        let named = free.claim.as_ref() == Some(name);
        if named && (free.claim_uid.is_empty() || free.claim_uid == asks.uid) {
            return vec![volume.clone()];
        }
        let label = |key: &str| free.labels.get(key).map(AsRef::as_ref);
        let labelled = asks.selector.is_none() || selects(asks.selector.as_ref(), label);
        let modes = asks.modes.iter().all(|mode| free.modes.contains(mode));
        if free.claim.is_none() && free.available && labelled && modes {
            fitting.push((free.storage, of.node_affinity.is_none(), volume.clone()));
        }
    }
    fitting.sort();
    fitting.into_iter().map(|(_, _, volume)| volume).collect()
}

/// `ReadWriteOncePod`: no other pod on any node uses the claim.
fn alone(world: &NodeInfos<'_>, pod: &PodInfo, claim: &PodKey) -> Result<(), No> {
    let standing = world.nodes.iter();
    let standing = standing.flat_map(|spot| spot.pods.iter().chain(&spot.preempted));
    for guest in standing {
        let uses = guest.shape.volumes.iter().any(|volume| {
            matches!(volume, Volume::Claim(name) if *name == claim.name)
                && guest.key.namespace == claim.namespace
        });
        if uses && guest.key != pod.key {
            return Err(No::soft(IN_USE, &guest.key));
        }
    }
    Ok(())
}
