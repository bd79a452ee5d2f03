//! What a pod's volumes decide.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::cluster::{Claim, Cluster, ObjectKey, PersistentVolume, StorageClass};
use model::scheduling::Volume;

use crate::node::{disk_user, meets_one, selects};
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
const ELSEWHERE: &str = "node(s) didn't match PersistentVolume's node affinity";
const NONE_TO_BIND: &str = "node(s) didn't find available persistent volumes to bind";
const NO_SPACE: &str = "node(s) did not have enough free storage";
const GONE: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
const IN_USE: &str = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";

/// A volume of a CSI driver: the driver, and what the volume is called there.
pub type VolumeOnNode = (Arc<str>, Arc<str>);

/// The volumes that VolumeAttachments say are attached, by node.
pub fn attached(cluster: &Cluster) -> BTreeMap<Arc<str>, BTreeSet<VolumeOnNode>> {
    let mut nodes: BTreeMap<Arc<str>, BTreeSet<VolumeOnNode>> = BTreeMap::new();
    for attachment in cluster.attachments.values() {
        let volume = attachment.volume.as_ref();
        let volume = volume.and_then(|name| cluster.volumes.get(name));
        if let Some(handle) = volume.and_then(|volume| volume.handle.clone()) {
            let there = nodes.entry(attachment.node.clone()).or_default();
            there.insert((attachment.driver.clone(), handle));
        }
    }
    nodes
}

/// A claim that a pod uses.
#[derive(Debug)]
struct PodClaim<'w> {
    key: ObjectKey,
    claim: Cow<'w, Claim>,
    /// It is of an ephemeral volume.
    ephemeral: bool,
}

/// A pod's claims, each as it is there, or will be.
fn claims<'w>(
    world: &'w NodeInfos<'_>,
    pod: &PodInfo,
) -> Vec<(ObjectKey, bool, Option<Cow<'w, Claim>>)> {
    let mut list = Vec::new();
    for volume in &pod.shape.volumes {
        let (name, ephemeral, made) = match volume {
            Volume::Claim(name) => (name.clone(), false, None),
            Volume::Ephemeral { name, class } => {
                let claim = Claim {
                    class: class.clone(),
                    ..Claim::default()
                };
                let name = Arc::from(format!("{}-{name}", pod.key.name));
                (name, true, world.claims_come.then_some(Cow::Owned(claim)))
            }
            Volume::EmptyDir(_) | Volume::HostPath(_) => continue,
        };
        let key = ObjectKey::new(pod.key.namespace.clone(), name);
        let found = world.cluster.claims.get(&key).map(Cow::Borrowed).or(made);
        list.push((key, ephemeral, found));
    }
    list
}

/// The volume that a claim has attached, or will have.
fn volume_of(cluster: &Cluster, key: &ObjectKey, claim: &Claim) -> Option<VolumeOnNode> {
    let named = claim.volume.as_ref();
    if let Some(volume) = named.and_then(|name| cluster.volumes.get(name)) {
        return Some((volume.driver.clone()?, volume.handle.clone()?));
    }
    let class = cluster.storage_classes.get(claim.class.as_ref()?)?;
    Some((class.provisioner.clone(), key.to_string().into()))
}

/// The claims of a pod that asks, and what of them is the same on all nodes.
#[derive(Debug)]
pub(crate) struct PodVolumes<'w> {
    world: &'w NodeInfos<'w>,
    pod: &'w PodInfo,
    claims: Vec<PodClaim<'w>>,
    /// Another pod has a claim that is for one pod alone.
    user: Option<&'w ObjectKey>,
    /// What would be attached to its node.
    fresh: BTreeSet<VolumeOnNode>,
}

impl<'w> PodVolumes<'w> {
    /// Why a pod may run nowhere because of its claims, else these.
    pub(crate) fn of(world: &'w NodeInfos<'w>, pod: &'w PodInfo) -> Result<PodVolumes<'w>, No> {
        let mut list = Vec::new();
        let all = claims(world, pod);
        let missing = |said: String, key: &ObjectKey| Err(No::firm(said, key));
        // Three of kube-scheduler's plugins look at the claims, one after the other.
        let absent = all.iter().find(|(_, own, claim)| !own && claim.is_none());
        if let Some((key, _, _)) = absent {
            return missing(not_found("persistentvolumeclaim", &key.name), key);
        }
        for (key, ephemeral, claim) in all {
            let name = &key.name;
            let Some(claim) = claim else {
                return missing(
                    format!(
                        "waiting for ephemeral volume controller to create the persistentvolumeclaim \"{name}\""
                    ),
                    &key,
                );
            };
            if claim.lost {
                let volume = claim.volume.as_deref().unwrap_or_default();
                let gone = format!("bound to non-existent persistentvolume \"{volume}\"");
                return missing(format!("persistentvolumeclaim \"{name}\" {gone}"), &key);
            }
            if claim.deleting {
                let said = format!("persistentvolumeclaim \"{name}\" is being deleted");
                return missing(said, &key);
            }
            let stored = matches!(claim, Cow::Borrowed(_));
            if ephemeral && stored && claim.owner.as_ref() != Some(&pod.uid) {
                let said = format!(
                    "PVC {key} was not created for pod {} (pod is not owner)",
                    pod.key
                );
                return missing(said, &key);
            }
            list.push(PodClaim {
                key,
                claim,
                ephemeral,
            });
        }
        let ready = |one: &&PodClaim<'_>| match &one.claim.volume {
            Some(_) => one.claim.bound,
            None => class_of(world.cluster, &one.claim).is_some(),
        };
        if let Some(one) = list.iter().find(|one| !ready(one)) {
            return Err(No::firm(UNBOUND, &one.key));
        }
        for one in list.iter().filter(|one| !one.ephemeral) {
            let volume = one.claim.volume.as_ref();
            if let Some(name) = volume.filter(|name| !world.cluster.volumes.contains_key(*name)) {
                return missing(not_found("persistentvolume", name), &one.key);
            }
        }
        Ok(PodVolumes {
            world,
            pod,
            user: user(world, pod, &list),
            fresh: list
                .iter()
                .filter_map(|one| volume_of(world.cluster, &one.key, &one.claim))
                .collect(),
            claims: list,
        })
    }

    /// Why a pod may not come to a node because of volumes.
    pub(crate) fn fit(&self, spot: &NodeInfo) -> Result<(), No> {
        if let Some(guest) = disk_user(&self.pod.shape, spot) {
            return Err(No::soft("node(s) had no available disk", guest));
        }
        if let Some(guest) = self.user {
            return Err(No::soft(IN_USE, guest));
        }
        self.limits(spot)?;
        self.bind(spot)?;
        self.zones(spot)
    }

    /// What can be attached to a node is limited by driver; a volume counts once, however many pods use it.
    fn limits(&self, spot: &NodeInfo) -> Result<(), No> {
        if self.fresh.is_empty() || spot.limits.is_empty() {
            return Ok(());
        }
        let cluster = self.world.cluster;
        let mut used: BTreeSet<VolumeOnNode> = BTreeSet::new();
        for guest in spot.pods.iter().chain(&spot.preempted) {
            for (key, _, claim) in claims(self.world, guest) {
                // One that runs without its claim is not counted.
                if !guest.bound || cluster.claims.contains_key(&key) {
                    used.extend(claim.and_then(|claim| volume_of(cluster, &key, &claim)));
                }
            }
        }
        let fresh = self.fresh.iter();
        let new: Vec<&VolumeOnNode> = fresh.filter(|volume| !used.contains(*volume)).collect();
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

    /// The volumes that claims which wait get on a node: claim after claim, the smallest first, each
    /// gets the smallest volume that does, of equal ones one that is not everywhere, then by name; else one is
    /// made for it.
    pub(crate) fn bind(&self, spot: &NodeInfo) -> Result<Vec<(ObjectKey, Arc<str>)>, No> {
        let bound = self.reached(spot);
        let waiting = self.found(spot);
        match (bound, waiting) {
            (Ok(()), waiting) => waiting,
            (Err((said, about)), Ok(_)) => Err(No::firm(said, about)),
            // kube-scheduler says it of a claim whose volume is gone last.
            (Err((GONE, _)), Err(mut no)) => {
                no.said.push(GONE.into());
                Err(no)
            }
            (Err((said, _)), Err(mut no)) => {
                no.said.insert(0, said.into());
                Err(no)
            }
        }
    }

    /// Whether the volumes that claims have can be used on a node: the first one that cannot.
    fn reached(&self, spot: &NodeInfo) -> Result<(), (&'static str, &ObjectKey)> {
        for one in &self.claims {
            let taken = self.world.gone.iter().find(|(of, _)| *of == one.key);
            let taken = taken.map(|(_, volume)| volume);
            let Some(name) = one.claim.volume.as_ref().or(taken) else {
                continue;
            };
            match self.world.cluster.volumes.get(name) {
                None => return Err((GONE, &one.key)),
                Some(volume) if usable(volume, spot) => {}
                Some(_) => return Err((ELSEWHERE, &one.key)),
            }
        }
        Ok(())
    }

    fn found(&self, spot: &NodeInfo) -> Result<Vec<(ObjectKey, Arc<str>)>, No> {
        let cluster = self.world.cluster;
        let taken = |key: &ObjectKey| self.world.gone.iter().any(|(of, _)| of == key);
        let waiting = self.claims.iter();
        let waiting = waiting.filter(|one| one.claim.volume.is_none() && !taken(&one.key));
        let (told, mut free): (Vec<&PodClaim<'_>>, Vec<&PodClaim<'_>>) =
            waiting.partition(|one| one.claim.selected_node.is_some());
        let here = |one: &&&PodClaim<'_>| one.claim.selected_node.as_ref() == Some(&spot.name);
        if let Some(one) = told.iter().find(|one| !here(one)) {
            return Err(No::firm(NONE_TO_BIND, &one.key));
        }
        free.sort_by_key(|one| one.claim.asks.as_ref().map_or(0, |asks| asks.storage));
        let mut got: Vec<(ObjectKey, Arc<str>)> = Vec::new();
        let mut made = told;
        for one in free {
            let volumes = candidates(cluster, &one.key, &one.claim);
            let volume = volumes.into_iter().find(|volume| {
                let mut all = self.world.gone.iter().chain(&got);
                let free = all.all(|(_, other)| other != volume);
                free && usable(&cluster.volumes[volume], spot)
            });
            match volume {
                Some(volume) => got.push((one.key.clone(), volume)),
                None => made.push(one),
            }
        }
        for one in made {
            self.provision(one, spot)?;
        }
        Ok(got)
    }

    /// Whether a volume can be made for a claim where this node is.
    fn provision(&self, one: &PodClaim<'_>, spot: &NodeInfo) -> Result<(), No> {
        let cluster = self.world.cluster;
        let Some(class) = class_of(cluster, &one.claim) else {
            return Err(No::firm(UNBOUND, &one.key));
        };
        let near = class.topologies.is_empty() || meets_one(&class.topologies, spot);
        if &*class.provisioner == "kubernetes.io/no-provisioner" || !near {
            return Err(No::firm(NONE_TO_BIND, &one.key));
        }
        if !spacious(cluster, &one.claim, &class.provisioner, spot) {
            return Err(No::firm(NO_SPACE, &one.key));
        }
        Ok(())
    }

    /// Volumes that a person made may have their zone in a label.
    fn zones(&self, spot: &NodeInfo) -> Result<(), No> {
        if !ZONES.iter().any(|(key, _)| spot.labels.contains_key(*key)) {
            return Ok(());
        }
        for one in self.claims.iter().filter(|one| !one.ephemeral) {
            let volume = one.claim.volume.as_ref();
            let volume = volume.and_then(|name| self.world.cluster.volumes.get(name));
            let mut zones = volume.into_iter().flat_map(|volume| &volume.zones);
            let within = zones.all(|zone| {
                let new = ZONES.iter().find(|(old, _)| **old == *zone.key);
                let mut keys = [Some(&*zone.key), new.map(|(_, new)| *new)]
                    .into_iter()
                    .flatten();
                let value = keys.find_map(|key| spot.labels.get(key));
                value.is_some_and(|value| zone.values.contains(value))
            });
            if !within {
                return Err(No::firm("node(s) had no available volume zone", &one.key));
            }
        }
        Ok(())
    }
}

fn not_found(kind: &str, name: &str) -> String {
    format!("{kind} \"{name}\" not found")
}

/// Whether a volume can be used on a node. One that is local to a node is on none that is not made yet, and for one that is
/// being deleted none is made.
fn usable(volume: &PersistentVolume, spot: &NodeInfo) -> bool {
    let near = volume.node_affinity.as_ref();
    let near = near.is_none_or(|terms| meets_one(terms, spot));
    let passing = volume.local || volume.deleting;
    near && !(passing && spot.site == Site::Planned)
}

fn class_of<'a>(cluster: &'a Cluster, claim: &Claim) -> Option<&'a StorageClass> {
    let class = cluster.storage_classes.get(claim.class.as_ref()?)?;
    class.wait_for_consumer.then_some(class)
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
fn candidates(cluster: &Cluster, name: &ObjectKey, claim: &Claim) -> Vec<Arc<str>> {
    let Some(asks) = &claim.asks else {
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

/// `ReadWriteOncePod`: no other pod on any node uses the claim. One that does.
fn user<'w>(
    world: &'w NodeInfos<'_>,
    pod: &PodInfo,
    claims: &[PodClaim<'_>],
) -> Option<&'w ObjectKey> {
    let alone = claims
        .iter()
        .filter(|one| one.claim.once_pod && !one.ephemeral);
    let alone: Vec<&Arc<str>> = alone.map(|one| &one.key.name).collect();
    if alone.is_empty() {
        return None;
    }
    let standing = world.nodes.iter();
    let standing = standing.flat_map(|spot| spot.pods.iter().chain(&spot.preempted));
    let uses = |guest: &&PodInfo| {
        let mut volumes = guest.shape.volumes.iter();
        volumes.any(|volume| matches!(volume, Volume::Claim(name) if alone.contains(&name)))
    };
    let others = standing.filter(|guest| guest.key.namespace == pod.key.namespace);
    let mut others = others.filter(|guest| guest.key != pod.key);
    others.find(uses).map(|guest| &guest.key)
}
