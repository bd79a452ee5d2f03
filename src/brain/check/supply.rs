//! Claims that wait for a consumer: which volumes there are could serve them on a new machine, and that no
//! two claims count on one. A plain reading of kube-scheduler's `FindMatchingVolume`.
//!
//! Which claim comes first is not said in a plan: it is enough that every claim can have a volume of its
//! own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::volumes::{self, CheckedNode};
use super::{Case, CheckResult, CheckRule, matching, neighbours, newcomer, refuse};
use model::action::{Action, Kind};
use model::cluster::{Claim, ClaimRequest, Free, ObjectKey, PersistentVolume, Pod, StorageClass};

/// By claim, the volumes that could serve it wherever it is used; a claim that one can be made for is not
/// there.
type UsableVolumes<'a> = BTreeMap<ObjectKey, BTreeSet<&'a Arc<str>>>;

/// Whether a volume is made for a claim of this class, by its name too, on a node.
pub(super) fn provides(
    case: Case<'_>,
    claim: &Claim,
    (name, class): (&str, &StorageClass),
    at: CheckedNode<'_>,
) -> bool {
    let mut terms = class.topologies.iter();
    let near = class.topologies.is_empty()
        || terms.any(|term| matching::term_matches(term, at.name, at.labels));
    let room = claim
        .asks
        .as_deref()
        .is_none_or(|asks| !counted(case, class) || has_room(case, name, asks.storage, at));
    &*class.provisioner != "kubernetes.io/no-provisioner" && near && room
}

/// Whether the driver of a class says what it has free.
fn counted(case: Case<'_>, class: &StorageClass) -> bool {
    let drivers = &case.snapshot.cluster.csi_drivers;
    drivers.get(&class.provisioner).copied().unwrap_or(false)
}

/// Whether a CSIStorageCapacity of a class that a node reaches is as large as a volume of so many bytes.
fn has_room(case: Case<'_>, class: &str, bytes: i64, at: CheckedNode<'_>) -> bool {
    case.snapshot.cluster.capacities.values().any(|capacity| {
        let near = neighbours::selected(capacity.nodes.as_ref(), at.labels);
        *capacity.class == *class && near && capacity.largest.is_some_and(|most| most >= bytes)
    })
}

/// The volumes there are that could serve a claim on a node.
pub(super) fn serving<'a>(
    case: Case<'a>,
    key: &ObjectKey,
    claim: &Claim,
    class: &str,
    at: CheckedNode<'_>,
) -> BTreeSet<&'a Arc<str>> {
    let Some(asks) = claim.asks.as_deref() else {
        return BTreeSet::new();
    };
    let volumes = case.snapshot.cluster.volumes.iter();
    let fitting: Vec<(&Arc<str>, &PersistentVolume, &Free)> = volumes
        .filter_map(|(name, volume)| Some((name, volume, volume.free.as_deref()?)))
        .filter(|(_, volume, free)| !volume.deleting && fits(free, asks, class))
        .collect();
    let kept = |free: &Free| {
        let named = free.claim.as_ref() == Some(key);
        named && (free.claim_uid.is_empty() || free.claim_uid == asks.uid)
    };
    let any_kept = fitting.iter().any(|(_, _, free)| kept(free));
    let fitting = fitting.into_iter().filter(|(_, _, free)| {
        if any_kept {
            return kept(free);
        }
        free.claim.is_none() && open_to(free, asks)
    });
    fitting
        .filter(|(_, volume, _)| reaches(volume, at))
        .map(|(name, ..)| name)
        .collect()
}

fn fits(free: &Free, asks: &ClaimRequest, class: &str) -> bool {
    *free.class == *class
        && free.storage >= asks.storage
        && free.block == asks.block
        && free.attributes == asks.attributes
}

fn open_to(free: &Free, asks: &ClaimRequest) -> bool {
    let labels = &free.labels;
    let chosen = asks.selector.as_ref().is_none_or(|selector| {
        let mut equal = selector.labels.iter();
        let mut more = selector.expressions.iter();
        equal.all(|(key, value)| labels.get(key) == Some(value))
            && more.all(|one| matching::meets(one, labels.get(&one.key).map(|value| &**value)))
    });
    let mut modes = asks.modes.iter();
    free.available && chosen && modes.all(|mode| free.modes.contains(mode))
}

fn reaches(volume: &PersistentVolume, at: CheckedNode<'_>) -> bool {
    let near = volume.node_affinity.as_ref().is_none_or(|terms| {
        let mut terms = terms.iter();
        terms.any(|term| matching::term_matches(term, at.name, at.labels))
    });
    near && !(volume.local && at.new)
}

/// What the claims of a pod want on a node, added to what others want.
fn want<'a>(
    case: Case<'a>,
    (key, pod): (&ObjectKey, &Pod),
    at: CheckedNode<'_>,
    wanted: &mut UsableVolumes<'a>,
) {
    for (name, claim) in volumes::claims(case, key, pod) {
        let waits = |one: &Claim| one.volume.is_none() && one.selected_node.is_none();
        let Some(claim) = claim.filter(waits) else {
            continue;
        };
        let Some((class, found)) = volumes::class_of(case, &claim) else {
            continue;
        };
        if provides(case, &claim, (&class, found), at) {
            continue;
        }
        let serving = serving(case, &name, &claim, &class, at);
        wanted
            .entry(name)
            .and_modify(|other| other.retain(|volume| serving.contains(*volume)))
            .or_insert(serving);
    }
}

/// The pods of new machines, over the whole plan, do not count on the same volumes.
pub(super) fn check(case: Case<'_>, creations: &[&Action]) -> CheckResult {
    let cluster = &case.snapshot.cluster;
    let mut wanted = UsableVolumes::new();
    for action in creations {
        let Kind::Create(spec) = &action.kind else {
            continue;
        };
        let Some(labels) = newcomer::labels_of(case, action, spec) else {
            continue;
        };
        let at = CheckedNode {
            name: &action.target.machine,
            labels: &labels,
            new: true,
        };
        for key in action.reason.pending_pods() {
            if let Some(pod) = cluster.pods.get(key).filter(|pod| pod.node.is_none()) {
                want(case, (key, pod), at, &mut wanted);
            }
        }
    }
    match short(&wanted) {
        Some(claim) => refuse(
            CheckRule::Unfit,
            format!("too few volumes are free: none is left for the claim {claim}"),
        ),
        None => Ok(()),
    }
}

/// A claim that gets no volume of its own, if there is one: bipartite matching by augmenting paths.
fn short<'w>(wanted: &'w UsableVolumes<'_>) -> Option<&'w ObjectKey> {
    let mut owners: BTreeMap<&Arc<str>, &ObjectKey> = BTreeMap::new();
    wanted
        .keys()
        .find(|claim| !assign(claim, wanted, &mut owners, &mut BTreeSet::new()))
}

fn assign<'w>(
    claim: &'w ObjectKey,
    wanted: &'w UsableVolumes<'_>,
    owners: &mut BTreeMap<&'w Arc<str>, &'w ObjectKey>,
    seen: &mut BTreeSet<&'w Arc<str>>,
) -> bool {
    for volume in &wanted[claim] {
        let volume: &'w Arc<str> = volume;
        if !seen.insert(volume) {
            continue;
        }
        let owner = owners.get(volume).copied();
        if owner.is_none_or(|owner| assign(owner, wanted, owners, seen)) {
            owners.insert(volume, claim);
            return true;
        }
    }
    false
}
