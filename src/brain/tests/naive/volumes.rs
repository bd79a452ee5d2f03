//! What a pod's volumes decide.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::filters::{one_of, selects};
use super::{Naive, Site, Spot};
use model::cluster::{Claim, Cluster, Pod, PodKey, StorageClass};
use model::scheduling::Volume;

/// A pod's claims: their names, and the claims there are or will be.
fn claims(cluster: &Cluster, key: &PodKey, volumes: &[Volume]) -> Vec<(PodKey, Option<Claim>)> {
    let mut list = Vec::new();
    for volume in volumes {
        let (name, made) = match volume {
            Volume::Claim(name) => (name.clone(), None),
            Volume::Ephemeral { name, class } => {
                let claim = Claim {
                    class: class.clone(),
                    ..Claim::default()
                };
                (Arc::from(format!("{}-{name}", key.name)), Some(claim))
            }
            Volume::EmptyDir(_) | Volume::HostPath(_) => continue,
        };
        let claim = PodKey::new(key.namespace.clone(), name);
        let found = cluster.claims.get(&claim).cloned().or(made);
        list.push((claim, found));
    }
    list
}

/// The CSI driver of a claim's volume, and what it is called there.
fn attached(cluster: &Cluster, key: &PodKey, claim: &Claim) -> Option<(Arc<str>, Arc<str>)> {
    if let Some(volume) = &claim.volume {
        let volume = cluster.volumes.get(volume)?;
        return Some((volume.driver.clone()?, volume.handle.clone()?));
    }
    let class = cluster.storage_classes.get(claim.class.as_ref()?)?;
    Some((class.provisioner.clone(), key.to_string().into()))
}

pub(super) fn fit(naive: &Naive<'_>, key: &PodKey, pod: &Pod, spot: &Spot) -> Result<(), String> {
    let cluster = &naive.lab.snapshot.cluster;
    let mut fresh: BTreeSet<(Arc<str>, Arc<str>)> = BTreeSet::new();
    found(naive, key, pod, spot)?;
    for (name, claim) in claims(cluster, key, &pod.shape.volumes) {
        let Some(claim) = claim else {
            return Err(format!("the claim {name} is not there"));
        };
        one(cluster, &name, &claim, spot)?;
        if claim.once_pod {
            alone(naive, key, &name)?;
        }
        fresh.extend(attached(cluster, &name, &claim));
    }
    let mut used: BTreeSet<(Arc<str>, Arc<str>)> = BTreeSet::new();
    for guest in spot.guests.iter().chain(&spot.preempted) {
        // One that runs without its claim is not counted.
        let pods = &cluster.pods;
        let runs = pods.get(&guest.key).is_some_and(|pod| pod.node.is_some());
        for (name, claim) in claims(cluster, &guest.key, &guest.shape.volumes) {
            if runs && !cluster.claims.contains_key(&name) {
                continue;
            }
            used.extend(claim.and_then(|claim| attached(cluster, &name, &claim)));
        }
    }
    for attachment in cluster.attachments.values() {
        if attachment.node == spot.name && cluster.nodes.contains_key(&spot.name) {
            let volume = attachment.volume.as_ref();
            let volume = volume.and_then(|volume| cluster.volumes.get(volume));
            let handle = volume.and_then(|volume| volume.handle.clone());
            used.extend(handle.map(|handle| (attachment.driver.clone(), handle)));
        }
    }
    for (driver, limit) in &spot.limits {
        let more = fresh.iter().filter(|volume| volume.0 == *driver);
        let more = more.filter(|volume| !used.contains(*volume)).count();
        let have = used.iter().filter(|volume| volume.0 == *driver).count();
        if more > 0 && (have + more) as i128 > i128::from(*limit) {
            return Err(format!("{more} more volumes than {have}, {limit} at most"));
        }
    }
    Ok(())
}

/// Whether one claim can be used on a node.
fn one(cluster: &Cluster, name: &PodKey, claim: &Claim, spot: &Spot) -> Result<(), String> {
    if claim.lost || claim.deleting {
        return Err(format!("the claim {name} is lost or going"));
    }
    if let Some(volume) = &claim.volume {
        let Some(volume) = cluster.volumes.get(volume).filter(|_| claim.bound) else {
            return Err(format!("the claim {name} is not bound to its volume"));
        };
        let reachable = volume
            .node_affinity
            .as_ref()
            .is_none_or(|terms| one_of(terms, &spot.name, &spot.labels));
        let zoned = volume.zones.iter().all(|zone| {
            spot.labels
                .get(&zone.key)
                .is_none_or(|value| zone.values.contains(value))
        });
        if !reachable || !zoned {
            return Err(format!("the volume of {name} is elsewhere"));
        }
        if spot.site == Site::Planned && (volume.local || volume.deleting) {
            return Err(format!("no node is made for the volume of {name}"));
        }
        return Ok(());
    }
    if class_of(cluster, claim).is_none() {
        return Err(format!("the claim {name} binds at once, or has no class"));
    }
    if claim
        .selected_node
        .as_ref()
        .is_some_and(|node| *node != spot.name)
    {
        return Err(format!("the volume of {name} is made elsewhere"));
    }
    Ok(())
}

fn class_of<'a>(cluster: &'a Cluster, claim: &Claim) -> Option<&'a StorageClass> {
    let class = cluster.storage_classes.get(claim.class.as_ref()?)?;
    class.wait_for_consumer.then_some(class)
}

/// The volumes that claims of a pod which wait get on a spot: claim after claim, the smallest first, each
/// gets the smallest volume that does, of equal ones one that is not everywhere, then by name; else one is
/// made for it.
pub(super) fn found(
    naive: &Naive<'_>,
    key: &PodKey,
    pod: &Pod,
    spot: &Spot,
) -> Result<Vec<(PodKey, Arc<str>)>, String> {
    let cluster = &naive.lab.snapshot.cluster;
    let mut waiting: Vec<(PodKey, Claim)> = claims(cluster, key, &pod.shape.volumes)
        .into_iter()
        .filter_map(|(name, claim)| Some((name, claim?)))
        .filter(|(_, claim)| claim.volume.is_none() && !claim.lost && !claim.deleting)
        .collect();
    waiting.sort_by_key(|(_, claim)| claim.asks.as_ref().map_or(0, |asks| asks.storage));
    let mut got: Vec<(PodKey, Arc<str>)> = Vec::new();
    for (name, claim) in waiting {
        let Some(class) = class_of(cluster, &claim) else {
            return Err(format!("the class of {name} binds at once, or is none"));
        };
        if let Some((_, volume)) = naive.gone.iter().find(|(of, _)| *of == name) {
            if usable(cluster, volume, spot) {
                continue;
            }
            return Err(format!("{name} has got {volume}, which is elsewhere"));
        }
        let taken = |volume: &Arc<str>| {
            let mut all = naive.gone.iter().chain(&got);
            all.any(|(_, other)| other == volume)
        };
        let mut volumes = candidates(cluster, &name, &claim);
        volumes.retain(|volume| !taken(volume) && usable(cluster, volume, spot));
        if let Some(volume) = volumes.first() {
            got.push((name, volume.clone()));
            continue;
        }
        let near =
            class.topologies.is_empty() || one_of(&class.topologies, &spot.name, &spot.labels);
        if &*class.provisioner == "kubernetes.io/no-provisioner" || !near {
            return Err(format!("{name} finds no volume, and nobody makes one"));
        }
        if !spacious(cluster, &claim, &class.provisioner, spot) {
            return Err(format!("nobody has room for the volume of {name}"));
        }
    }
    Ok(got)
}

/// Whether the driver has room for a claim's volume where this spot is, as far as it says.
fn spacious(cluster: &Cluster, claim: &Claim, driver: &str, spot: &Spot) -> bool {
    let (Some(asks), Some(true)) = (&claim.asks, cluster.csi_drivers.get(driver)) else {
        return true;
    };
    cluster.capacities.values().any(|capacity| {
        Some(&capacity.class) == claim.class.as_ref()
            && selects(capacity.nodes.as_ref(), &spot.labels)
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
        let labelled = asks.selector.as_ref().is_none_or(|selector| {
            let mut labels = selector.labels.iter();
            labels.all(|(key, value)| free.labels.get(key) == Some(value))
        });
        let modes = asks.modes.iter().all(|mode| free.modes.contains(mode));
        if free.claim.is_none() && free.available && labelled && modes {
            fitting.push((free.storage, of.node_affinity.is_none(), volume.clone()));
        }
    }
    fitting.sort();
    fitting.into_iter().map(|(_, _, volume)| volume).collect()
}

/// Whether a volume can be used on a spot.
fn usable(cluster: &Cluster, volume: &Arc<str>, spot: &Spot) -> bool {
    let volume = &cluster.volumes[volume];
    let near = volume.node_affinity.as_ref();
    let near = near.is_none_or(|terms| one_of(terms, &spot.name, &spot.labels));
    near && !(volume.local && spot.site == Site::Planned)
}

/// `ReadWriteOncePod`: no other pod on any node uses the claim.
fn alone(naive: &Naive<'_>, key: &PodKey, claim: &PodKey) -> Result<(), String> {
    let standing = naive.spots.iter();
    let standing = standing.flat_map(|spot| spot.guests.iter().chain(&spot.preempted));
    for guest in standing {
        let uses = guest.shape.volumes.iter().any(|volume| {
            matches!(volume, Volume::Claim(name) if *name == claim.name)
                && guest.key.namespace == claim.namespace
        });
        if uses && guest.key != *key {
            return Err(format!("{} uses {claim}, which is for one pod", guest.key));
        }
    }
    Ok(())
}
