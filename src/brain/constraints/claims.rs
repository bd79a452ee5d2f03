//! Claims, indexed: who uses those that one pod alone may use, and which volumes are attached where. Which free
//! volumes a claim could have: [`crate::constraints::free_volumes`].
//!
//! Source: kube-scheduler's plugins `VolumeRestrictions` (`ReadWriteOncePod`) and `NodeVolumeLimits`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::cluster::{Claim, Cluster, ObjectKey, Pod};
use model::policy::Policy;
use model::reasons::VolumeFilterFailure;
use model::scheduling::Volume;

use crate::constraints::fit::volumes::VolumeNeed;
use crate::constraints::free_storage::FreeStorage;
use crate::constraints::free_volumes::FreeVolumes;
use crate::constraints::shape::Keyed;

/// A volume as attach limits count it: CSI driver and handle.
pub(crate) type Attached = (Arc<str>, Arc<str>);

/// What claims hold.
#[derive(Debug, Default)]
pub(crate) struct Claims<'a> {
    /// Bound pods by namespace and claim, for `ReadWriteOncePod` claims alone.
    users: BTreeMap<(&'a str, &'a str), Vec<&'a ObjectKey>>,
    /// Drivers that have a limit anywhere; others are not counted.
    limited: BTreeSet<&'a str>,
    /// VolumeAttachments of drivers with limits, by node.
    attachments: BTreeMap<&'a str, Vec<Attached>>,
    /// Volumes that claims could still have.
    pub(crate) free_volumes: Arc<FreeVolumes<'a>>,
    /// Where others can be made.
    pub(crate) free: FreeStorage<'a>,
}

impl<'a> Claims<'a> {
    /// Indexes a cluster; costs nothing where there is neither such a claim nor a limit.
    pub(crate) fn new(
        cluster: &'a Cluster,
        policy: &'a Policy,
        unbound: &[Keyed<'a>],
    ) -> Claims<'a> {
        let mut claims = Claims {
            free_volumes: Arc::new(FreeVolumes::of(cluster, unbound)),
            free: FreeStorage::of(cluster),
            ..Claims::default()
        };
        if cluster.claims.values().any(|claim| claim.once_pod) {
            claims.find_users(cluster);
        }
        let known = cluster.csi_nodes.values().flatten();
        let of_kinds = policy.instance_types.values();
        let of_kinds = of_kinds.map(|kind| &kind.attach_limits);
        let of_pools = policy.pools.values().map(|pool| &pool.attach_limits);
        let given = of_kinds.chain(of_pools).flat_map(BTreeMap::keys);
        claims.limited = known
            .filter(|(_, limit)| limit.is_some())
            .map(|(driver, _)| &**driver)
            .chain(given.map(|driver| &**driver))
            .collect();
        if !claims.limited.is_empty() {
            claims.find_attachments(cluster);
        }
        claims
    }

    fn find_users(&mut self, cluster: &'a Cluster) {
        for (key, pod) in &cluster.pods {
            let here = pod
                .node
                .as_ref()
                .is_some_and(|node| cluster.nodes.contains_key(node));
            if !here || pod.phase.terminal() {
                continue;
            }
            for volume in &pod.shape.volumes {
                if let Volume::Claim(name) = volume
                    && claim(cluster, &key.namespace, name).is_some_and(|claim| claim.once_pod)
                {
                    self.users
                        .entry((&key.namespace, name))
                        .or_default()
                        .push(key);
                }
            }
        }
    }

    fn find_attachments(&mut self, cluster: &'a Cluster) {
        for attachment in cluster.attachments.values() {
            let volume = attachment
                .volume
                .as_ref()
                .and_then(|name| cluster.volumes.get(name));
            if let Some(handle) = volume.and_then(|volume| volume.handle.as_ref())
                && self.limited.contains(&*attachment.driver)
            {
                let attached = (attachment.driver.clone(), handle.clone());
                self.attachments
                    .entry(&attachment.node)
                    .or_default()
                    .push(attached);
            }
        }
    }

    /// A pod on a node, other than `itself`, that uses a claim which one pod alone may use.
    pub(crate) fn user(&self, itself: &ObjectKey, name: &str) -> Option<&'a ObjectKey> {
        let users = self.users.get(&(&*itself.namespace, name))?;
        users.iter().find(|user| **user != itself).copied()
    }

    /// The volumes of drivers with limits that are attached to a node by its VolumeAttachments.
    pub(crate) fn attached(&self, node: &str) -> impl Iterator<Item = Attached> + '_ {
        self.attachments.get(node).into_iter().flatten().cloned()
    }

    /// The volumes of drivers with limits that these pods use.
    pub(crate) fn used<'p>(
        &self,
        cluster: &Cluster,
        pods: impl Iterator<Item = (&'p ObjectKey, &'p Pod)>,
    ) -> BTreeSet<Attached> {
        let mut used = BTreeSet::new();
        for (key, pod) in pods {
            let namespace = &key.namespace;
            for name in pod.shape.volumes.iter().filter_map(|v| claim_name(key, v)) {
                let found = claim(cluster, namespace, &name)
                    .and_then(|claim| self.volume(cluster, namespace, &name, claim));
                used.extend(found.map(|(volume, _)| volume));
            }
        }
        used
    }

    /// The volume behind a claim, if its driver has limits, and whether it is there already. One that is
    /// to be made is known by the claim's name.
    pub(crate) fn volume(
        &self,
        cluster: &Cluster,
        namespace: &str,
        name: &str,
        claim: &Claim,
    ) -> Option<(Attached, bool)> {
        let volume = claim
            .volume
            .as_ref()
            .and_then(|volume| cluster.volumes.get(volume));
        if let Some(volume) = volume {
            let (driver, handle) = (volume.driver.clone()?, volume.handle.clone()?);
            return self
                .limited
                .contains(&*driver)
                .then_some(((driver, handle), true));
        }
        let class = claim
            .class
            .as_ref()
            .and_then(|class| cluster.storage_classes.get(class))?;
        let driver = self
            .limited
            .contains(&*class.provisioner)
            .then(|| class.provisioner.clone())?;
        let handle: Arc<str> = format!("{namespace}/{name}").into();
        Some(((driver, handle), false))
    }
}

/// Claims for one pod alone that this decision has given to pods which are not bound yet.
#[derive(Debug, Default)]
pub(crate) struct ClaimReservations<'a> {
    users: BTreeMap<(&'a str, Arc<str>), &'a ObjectKey>,
}

impl<'a> ClaimReservations<'a> {
    /// A pod that has a place uses its claims.
    pub(crate) fn reserve(&mut self, key: &'a ObjectKey, need: Option<&VolumeNeed>) {
        for name in need.into_iter().flat_map(|need| &need.alone) {
            let claim = (&*key.namespace, name.clone());
            self.users.entry(claim).or_insert(key);
        }
    }

    /// Why a pod must wait for another that got its claim first, if it must.
    pub(crate) fn refusal(
        &self,
        key: &ObjectKey,
        need: Option<&VolumeNeed>,
    ) -> Option<VolumeFilterFailure> {
        need?.alone.iter().find_map(|name| {
            let user = self.users.get(&(&*key.namespace, name.clone()))?;
            (*user != key).then(|| VolumeFilterFailure::ClaimReserved {
                claim: name.clone(),
                user: (*user).clone(),
            })
        })
    }
}

/// The name of the claim behind a volume of a pod, if there is one.
pub(crate) fn claim_name(key: &ObjectKey, volume: &Volume) -> Option<Arc<str>> {
    match volume {
        Volume::Claim(name) => Some(name.clone()),
        Volume::Ephemeral { name, .. } => Some(format!("{}-{name}", key.name).into()),
        Volume::EmptyDir(_) | Volume::HostPath(_) => None,
    }
}

fn claim<'c>(cluster: &'c Cluster, namespace: &str, name: &str) -> Option<&'c Claim> {
    cluster.claims.get(&ObjectKey::new(namespace, name))
}
