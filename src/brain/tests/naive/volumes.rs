//! What a pod's volumes decide.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::filters::one_of;
use super::{Naive, Site, Spot};
use crate::model::cluster::{Claim, Cluster, Pod, PodKey};
use crate::model::scheduling::Volume;

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
        for (name, claim) in claims(cluster, &guest.key, &guest.shape.volumes) {
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
    let class = claim
        .class
        .as_ref()
        .and_then(|class| cluster.storage_classes.get(class));
    let Some(class) = class.filter(|class| class.wait_for_consumer) else {
        return Err(format!("the claim {name} binds at once, or has no class"));
    };
    if &*class.provisioner == "kubernetes.io/no-provisioner" {
        return Err(format!("nobody makes the volume of {name}"));
    }
    if claim
        .selected_node
        .as_ref()
        .is_some_and(|node| *node != spot.name)
    {
        return Err(format!("the volume of {name} is made elsewhere"));
    }
    if !class.topologies.is_empty() && !one_of(&class.topologies, &spot.name, &spot.labels) {
        return Err(format!("the class of {name} does not reach here"));
    }
    Ok(())
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
