//! Volumes: where a pod's claims let it run.
//!
//! Source: kube-scheduler's plugins `VolumeBinding` (`FindPodVolumes`), `VolumeZone` and, for
//! `ReadWriteOncePod`, `VolumeRestrictions`. Attach limits: [`super::attach`]. A claim that no node can help (unbound with immediate binding, lost, being deleted,
//! missing) is a refusal, with its reason: no node is ever made for it. A claim that waits for a consumer
//! is served by a volume there is ([`crate::constraints::free_volumes`]), else by one that its class provisions.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::cluster::{Claim, Cluster, ObjectKey, PersistentVolume, Pod, StorageClass, ZoneLabel};
use model::reasons::{FilterFailure, Provision, VolumeFilterFailure};
use model::scheduling::{Labels, NodeTerm, Volume};

use super::attach::Attach;
use super::selector;
use crate::constraints::claims::{Claims, claim_name};
use crate::constraints::free_storage::VolumeRoom;
use crate::constraints::free_volumes::VolumeNode;
use crate::index::MatchingId;

/// What the provisioner of classes without dynamic volumes is called.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// What a pod's claims ask of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VolumeNeed {
    /// No node helps before this is settled.
    pub(crate) refusal: Option<VolumeFilterFailure>,
    /// One set of alternatives for each bound volume or class: the node must match one of each.
    pub(crate) alternatives: Vec<Vec<NodeTerm>>,
    /// Where there is room for volumes that are to be made: the node must reach a place of each.
    pub(crate) rooms: Vec<VolumeRoom>,
    /// Labels of bound volumes that a node must share, if it has any of them.
    pub(crate) zones: Vec<ZoneLabel>,
    /// Volumes that count against the node's limits.
    pub(crate) attach: Attach,
    /// A bound volume that is being deleted: it stays until its claim goes, and nobody makes a node for it.
    pub(crate) doomed: Option<Arc<str>>,
    /// A bound volume that lives on one node and nowhere else: never a new node.
    pub(crate) local: Option<Arc<str>>,
    /// The scheduler has chosen this node already and its volume is being made there.
    pub(crate) selected: Option<Arc<str>>,
    /// Unbound claims that a volume there is could serve, in kube-scheduler's order: the smallest first.
    pub(crate) waiting: Vec<WaitingClaim>,
    /// Claims that one pod alone may use (`ReadWriteOncePod`), by name.
    pub(crate) alone: BTreeSet<Arc<str>>,
}

/// A claim that waits for its consumer and that a volume there is could serve.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaitingClaim {
    /// Bytes.
    pub(crate) storage: i64,
    pub(crate) matching: MatchingId,
    /// The claim, where several pods wait with it.
    pub(crate) shared: Option<ObjectKey>,
    /// Where a volume is made if none serves; empty for anywhere, `None` where nobody makes any.
    provision: Option<Vec<NodeTerm>>,
    /// Where there is room for one, if its driver says so.
    room: Option<VolumeRoom>,
    class: Arc<str>,
    /// Name of the claim, for texts about one pod alone ([`explain_need`]). `None` in a decision: there claims that ask the same
    /// must compare equal, so that their pods are one group.
    name: Option<Arc<str>>,
}

impl WaitingClaim {
    /// Whether a volume can be made for it on a node.
    pub(crate) fn provides(&self, at: VolumeNode<'_>) -> bool {
        let near = |terms: &Vec<NodeTerm>| {
            terms.is_empty() || selector::any_term(terms, at.name, at.labels)
        };
        let room = self.room.as_ref();
        self.provision.as_ref().is_some_and(near) && room.is_none_or(|room| room.reached(at.labels))
    }
}

/// Why a claim finds no volume on a node; `others` have taken what it could have had.
pub(crate) fn unserved(
    claim: &WaitingClaim,
    at: VolumeNode<'_>,
    others: bool,
) -> VolumeFilterFailure {
    let no_room = claim.room.as_ref().filter(|room| !room.reached(at.labels));
    VolumeFilterFailure::Unserved {
        claim: claim.name.clone(),
        class: claim.class.clone(),
        storage: claim.storage,
        node: (!at.new).then(|| at.name.into()),
        taken: others,
        provision: match (&claim.provision, no_room) {
            (None, _) => Provision::Nobody,
            (Some(_), Some(room)) => Provision::NoFreeStorage {
                storage: room.filter_failure(),
            },
            (Some(terms), None) => Provision::Elsewhere {
                terms: terms.clone(),
            },
        },
    }
}

/// PersistentVolumeClaims, PersistentVolumes and storage classes of the snapshot, indexed for the volume filters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimView<'v> {
    pub(crate) cluster: &'v Cluster,
    pub(crate) claims: &'v Claims<'v>,
}

/// Reads what the claims of `pod` ask; `None` for a pod without claims.
pub(crate) fn need(key: &ObjectKey, pod: &Pod, view: ClaimView<'_>) -> Option<VolumeNeed> {
    read(key, pod, view, false)
}

/// Reads what the claims of `pod` ask, and names each claim in what is told of it; `None` for a pod without claims.
pub(crate) fn explain_need(key: &ObjectKey, pod: &Pod, view: ClaimView<'_>) -> Option<VolumeNeed> {
    read(key, pod, view, true)
}

fn read(key: &ObjectKey, pod: &Pod, view: ClaimView<'_>, tell: bool) -> Option<VolumeNeed> {
    let cluster = view.cluster;
    let mut need: Option<VolumeNeed> = None;
    for volume in &pod.shape.volumes {
        let Some(name) = claim_name(key, volume) else {
            continue;
        };
        let need = need.get_or_insert_default();
        let (ephemeral, class) = match volume {
            Volume::Ephemeral { class, .. } => (true, class.as_ref()),
            _ => (false, None),
        };
        let of = ObjectKey::new(key.namespace.clone(), name.clone());
        match cluster.claims.get(&of) {
            // kube-scheduler asks the claim's own state first.
            Some(claim)
                if ephemeral
                    && !claim.deleting
                    && !claim.lost
                    && claim.owner.as_ref() != Some(&pod.uid) =>
            {
                refuse(need, VolumeFilterFailure::ClaimNotOfPod { claim: name });
            }
            Some(found) => {
                if found.once_pod && !ephemeral {
                    if let Some(user) = view.claims.user(key, &name) {
                        let (claim, user) = (name.clone(), user.clone());
                        refuse(need, VolumeFilterFailure::ClaimInUse { claim, user });
                    }
                    need.alone.insert(name.clone());
                }
                of_claim(need, &of, found, view, tell);
                attach(need, view, &key.namespace, &name, found);
            }
            // Its claim will be made for it once it is seen; the class is known.
            None if ephemeral => {
                of_class(need, &name, class, None, view);
                let class = class.or_else(|| default_class(cluster).map(|(default, _)| default));
                let claim = Claim {
                    class: class.cloned(),
                    ..Claim::default()
                };
                attach(need, view, &key.namespace, &name, &claim);
            }
            None => refuse(need, VolumeFilterFailure::NoClaim { claim: name }),
        }
    }
    if let Some(need) = &mut need {
        need.waiting.sort_by_key(|waiting| waiting.storage);
    }
    need
}

fn refuse(need: &mut VolumeNeed, why: VolumeFilterFailure) {
    need.refusal.get_or_insert(why);
}

/// Notes the volume of a claim where its driver has limits.
fn attach(need: &mut VolumeNeed, view: ClaimView<'_>, namespace: &str, name: &str, claim: &Claim) {
    let found = view.claims.volume(view.cluster, namespace, name, claim);
    if let Some(((driver, handle), known)) = found {
        let volumes = need.attach.entry(driver).or_default();
        let list = if known {
            &mut volumes.known
        } else {
            &mut volumes.fresh
        };
        list.insert(handle);
    }
}

fn of_claim(
    need: &mut VolumeNeed,
    key: &ObjectKey,
    claim: &Claim,
    view: ClaimView<'_>,
    tell: bool,
) {
    let (name, cluster) = (&key.name, view.cluster);
    let named = || name.clone();
    if claim.deleting {
        return refuse(need, VolumeFilterFailure::ClaimDeleted { claim: named() });
    }
    if claim.lost {
        return refuse(need, VolumeFilterFailure::ClaimLost { claim: named() });
    }
    match &claim.volume {
        Some(volume) if claim.bound => match cluster.volumes.get(volume) {
            Some(found) => of_volume(need, volume, found),
            None => {
                let filter_failure = VolumeFilterFailure::NoVolume {
                    claim: named(),
                    volume: volume.clone(),
                };
                refuse(need, filter_failure);
            }
        },
        Some(volume) => {
            let filter_failure = VolumeFilterFailure::NotBound {
                claim: named(),
                volume: volume.clone(),
            };
            refuse(need, filter_failure);
        }
        None => {
            if let Some(node) = &claim.selected_node {
                need.selected = Some(node.clone());
            }
            let free_volumes = &view.claims.free_volumes;
            let asked = claim.asks.as_ref().map(|asks| asks.storage);
            let serving = asked.zip(free_volumes.matching(key));
            let Some((storage, matching)) = serving else {
                return of_class(need, name, claim.class.as_ref(), asked, view);
            };
            let Some((class, found)) = class(claim.class.as_ref(), cluster) else {
                return;
            };
            need.waiting.push(WaitingClaim {
                storage,
                matching,
                shared: free_volumes.shared(key).then(|| key.clone()),
                provision: (&*found.provisioner != NO_PROVISIONER)
                    .then(|| found.topologies.clone()),
                room: view.claims.free.room(class, storage),
                class: class.clone(),
                name: tell.then(|| key.name.clone()),
            });
        }
    }
}

fn of_volume(need: &mut VolumeNeed, name: &Arc<str>, volume: &PersistentVolume) {
    if volume.deleting {
        need.doomed.get_or_insert_with(|| name.clone());
    }
    need.zones.extend(volume.zones.iter().cloned());
    if let Some(terms) = &volume.node_affinity {
        need.alternatives.push(terms.clone());
    }
    if volume.local {
        need.local.get_or_insert_with(|| name.clone());
    }
}

/// A claim that no volume there is can serve.
fn of_class(
    need: &mut VolumeNeed,
    claim: &Arc<str>,
    named: Option<&Arc<str>>,
    storage: Option<i64>,
    view: ClaimView<'_>,
) {
    let Some((name, found)) = class(named, view.cluster) else {
        let claim = claim.clone();
        return refuse(
            need,
            match named.filter(|name| !name.is_empty()).cloned() {
                Some(class) => VolumeFilterFailure::NoStorageClass { claim, class },
                None => VolumeFilterFailure::UnboundWithoutClass { claim },
            },
        );
    };
    if !found.wait_for_consumer {
        let (claim, class) = (claim.clone(), name.clone());
        return refuse(need, VolumeFilterFailure::UnboundImmediate { claim, class });
    }
    if &*found.provisioner == NO_PROVISIONER {
        let why = VolumeFilterFailure::NoneFree {
            claim: claim.clone(),
            class: name.clone(),
            storage,
        };
        return refuse(need, why);
    }
    if !found.topologies.is_empty() {
        need.alternatives.push(found.topologies.clone());
    }
    let room = storage.and_then(|storage| view.claims.free.room(name, storage));
    need.rooms.extend(room);
}

/// The class that a claim names, else the default one.
pub(crate) fn class<'c>(
    named: Option<&Arc<str>>,
    cluster: &'c Cluster,
) -> Option<(&'c Arc<str>, &'c StorageClass)> {
    match named {
        Some(name) if name.is_empty() => None,
        Some(name) => cluster.storage_classes.get_key_value(name),
        None => default_class(cluster),
    }
}

/// The default class; the newest wins, then the name.
fn default_class(cluster: &Cluster) -> Option<(&Arc<str>, &StorageClass)> {
    cluster
        .storage_classes
        .iter()
        .filter(|(_, class)| class.default)
        .min_by_key(|(name, class)| (std::cmp::Reverse(class.created), (*name).clone()))
}

/// What keeps a pod with this need off a node; `new` for one that does not exist yet.
pub(crate) fn filter_failure(
    need: &VolumeNeed,
    name: &str,
    labels: &Labels,
    new: bool,
) -> Option<FilterFailure> {
    let volume = volume_filter_failure(need, name, labels, new)?;
    Some(FilterFailure::Volume { volume })
}

fn volume_filter_failure(
    need: &VolumeNeed,
    name: &str,
    labels: &Labels,
    new: bool,
) -> Option<VolumeFilterFailure> {
    if let Some(why) = &need.refusal {
        return Some(why.clone());
    }
    if new && let Some(volume) = need.local.clone() {
        return Some(VolumeFilterFailure::Local { volume });
    }
    if new && let Some(volume) = need.doomed.clone() {
        return Some(VolumeFilterFailure::BeingDeleted { volume });
    }
    if let Some(zone) = need.zones.iter().find(|zone| !zone.admits(labels)) {
        return Some(VolumeFilterFailure::Zone { zone: zone.clone() });
    }
    if let Some(node) = need.selected.as_ref().filter(|node| &***node != name) {
        return Some(VolumeFilterFailure::MadeElsewhere { node: node.clone() });
    }
    let mut alternatives = need.alternatives.iter();
    if let Some(unmet) = alternatives.find(|terms| !selector::any_term(terms, name, labels)) {
        return Some(VolumeFilterFailure::Unreachable {
            terms: unmet.clone(),
        });
    }
    let room = need.rooms.iter().find(|room| !room.reached(labels))?;
    Some(VolumeFilterFailure::NoFreeStorage {
        storage: room.filter_failure(),
    })
}
