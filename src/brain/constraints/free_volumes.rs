//! Volumes that exist and are bound to no claim: which of them a claim that waits for a consumer can have,
//! and what this decision has given away.
//!
//! Source: kube-scheduler's plugin `VolumeBinding` (`findMatchingVolumes`) and `FindMatchingVolume` in
//! `component-helpers/storage/volume`. Equal volumes are one *set*, equal claims share one list of *matching* sets, and
//! volumes that a host name pins are found by it: looking at a node costs what that node can reach.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::cluster::{Claim, Cluster, Free, ObjectKey, PersistentVolume};
use model::reasons::VolumeFilterFailure;
use model::scheduling::{Labels, NodeTerm, Operator, Volume};

use crate::constraints::claims::claim_name;
use crate::constraints::fit::selector;
use crate::constraints::fit::volumes::{self, VolumeNeed};
use crate::constraints::shape::HOSTNAME_LABEL;
use crate::constraints::shape::Keyed;
use crate::index::{EqualVolumesId, IndexVec, MatchingId};

/// Volumes that are alike.
#[derive(Debug)]
struct EqualVolumes<'a> {
    free: &'a Free,
    terms: Option<&'a [NodeTerm]>,
    local: bool,
    count: u64,
}

/// The sets that serve a claim, whatever the node.
#[derive(Debug, Default)]
struct MatchingVolumes<'a> {
    /// Volumes that a host name pins, by that host name.
    pinned: BTreeMap<&'a str, Vec<EqualVolumesId>>,
    others: Vec<EqualVolumesId>,
}

/// What claims with one list of matching sets ask alike: class, size, modes, block, selector, attributes.
type RequestKey<'a> = (&'a str, i64, RequestTraits<'a>);
type RequestTraits<'a> = (
    &'a [Arc<str>],
    bool,
    Option<&'a model::scheduling::LabelSelector>,
    &'a str,
);

/// What makes volumes alike: what they offer, where they can be reached, whether they are local.
type VolumeTraits<'a> = (&'a Free, Option<&'a [NodeTerm]>, bool);

/// All free volumes that a claim could have, and which claim could have which.
#[derive(Debug, Default)]
pub(crate) struct FreeVolumes<'a> {
    sets: IndexVec<EqualVolumesId, EqualVolumes<'a>>,
    matching: IndexVec<MatchingId, MatchingVolumes<'a>>,
    /// The matching sets of claims that wait; one without is served by no volume there is.
    of: BTreeMap<&'a ObjectKey, MatchingId>,
    /// Claims that several pods wait with: one volume does for all of them.
    shared: BTreeSet<ObjectKey>,
}

/// A node as volumes see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VolumeNode<'p> {
    pub(crate) name: &'p str,
    pub(crate) labels: &'p Labels,
    /// It does not exist yet: what is local to a node is not on it.
    pub(crate) new: bool,
}

/// What this decision has given away.
#[derive(Debug, Default)]
pub(crate) struct AssumedBindings {
    taken: BTreeMap<EqualVolumesId, u64>,
    held: BTreeMap<ObjectKey, EqualVolumesId>,
}

/// What pods would take beyond that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VolumeBindings {
    taken: Vec<(EqualVolumesId, u64)>,
    held: Vec<(ObjectKey, EqualVolumesId)>,
}

impl<'a> FreeVolumes<'a> {
    /// Finds what is free; `unbound` are the pods without a node. Costs nothing where no claim waits for
    /// a consumer.
    pub(crate) fn of(cluster: &'a Cluster, unbound: &[Keyed<'a>]) -> FreeVolumes<'a> {
        let claims = cluster.claims.iter();
        let waiting: Vec<(&ObjectKey, &Claim, &str)> = claims
            .filter_map(|(key, claim)| Some((key, claim, class_of(cluster, claim)?)))
            .collect();
        let classes: BTreeSet<&str> = waiting.iter().map(|(_, _, class)| *class).collect();
        let mut volumes = FreeVolumes {
            sets: sets(cluster, &classes),
            ..FreeVolumes::default()
        };
        if volumes.sets.is_empty() {
            return volumes;
        }
        let mut kept: BTreeMap<&ObjectKey, Vec<EqualVolumesId>> = BTreeMap::new();
        for (id, set) in volumes.sets.indexed() {
            if let Some(claim) = &set.free.claim {
                kept.entry(claim).or_default().push(id);
            }
        }
        let mut known: BTreeMap<(RequestKey<'a>, Option<EqualVolumesId>), Option<MatchingId>> =
            BTreeMap::new();
        for (key, claim, class) in waiting {
            let Some(asks) = &claim.asks else {
                continue;
            };
            let asked = (
                &asks.modes[..],
                asks.block,
                asks.selector.as_ref(),
                &*asks.attributes,
            );
            let request: RequestKey<'a> = (class, asks.storage, asked);
            let mut own = kept.get(key).into_iter().flatten().copied();
            let own_set = own.find(|set| {
                let free = volumes.sets[*set].free;
                let uid = &free.claim_uid;
                suits(free, request) && (uid.is_empty() || *uid == asks.uid)
            });
            let matching = *known
                .entry((request, own_set))
                .or_insert_with(|| volumes.add_matching(request, own_set));
            if let Some(matching) = matching {
                volumes.of.insert(key, matching);
            }
        }
        volumes.find_shared(unbound);
        volumes
    }

    /// Writes a list of matching sets; `None` where nothing would be on it. A volume that is kept for a claim is all that
    /// this claim can have.
    fn add_matching(
        &mut self,
        request: RequestKey<'a>,
        kept: Option<EqualVolumesId>,
    ) -> Option<MatchingId> {
        let mut matching = MatchingVolumes::default();
        for (id, set) in self.sets.indexed() {
            let serves = kept.map_or_else(|| serves(set.free, request), |kept| kept == id);
            if !serves {
                continue;
            }
            match set.hosts() {
                Some(hosts) => {
                    for host in hosts {
                        matching.pinned.entry(host).or_default().push(id);
                    }
                }
                None => matching.others.push(id),
            }
        }
        let empty = matching.pinned.is_empty() && matching.others.is_empty();
        (!empty).then(|| self.matching.push(matching))
    }

    fn find_shared(&mut self, unbound: &[Keyed<'a>]) {
        let mut seen: BTreeSet<ObjectKey> = BTreeSet::new();
        for (key, pod) in unbound {
            let volumes = pod.shape.volumes.iter();
            let plain = volumes.filter(|volume| matches!(volume, Volume::Claim(_)));
            let names: BTreeSet<Arc<str>> = plain.filter_map(|v| claim_name(key, v)).collect();
            for name in names {
                let claim = ObjectKey::new(key.namespace.clone(), name);
                if self.of.contains_key(&claim) && !seen.insert(claim.clone()) {
                    self.shared.insert(claim);
                }
            }
        }
    }

    /// The matching sets of a claim, if any volume there is could serve it.
    pub(crate) fn matching(&self, claim: &ObjectKey) -> Option<MatchingId> {
        self.of.get(claim).copied()
    }

    /// Whether several pods wait with a claim.
    pub(crate) fn shared(&self, claim: &ObjectKey) -> bool {
        self.shared.contains(claim)
    }

    /// Whether a node of this name and these labels reaches a set.
    fn reaches(&self, set: EqualVolumesId, at: VolumeNode<'_>) -> bool {
        let set = &self.sets[set];
        let near = |terms| selector::any_term(terms, at.name, at.labels);
        !(set.local && at.new) && set.terms.is_none_or(near)
    }

    /// The first set of a list that a node reaches and of which more is left than `taken` says.
    fn pick(
        &self,
        matching: MatchingId,
        at: VolumeNode<'_>,
        taken: impl Fn(EqualVolumesId) -> u64,
    ) -> Option<EqualVolumesId> {
        let matching = &self.matching[matching];
        let first = |sets: &[EqualVolumesId]| {
            let mut sets = sets.iter().copied();
            sets.find(|set| taken(*set) < self.sets[*set].count && self.reaches(*set, at))
        };
        let host = at.labels.get(HOSTNAME_LABEL);
        let here = host.and_then(|host| matching.pinned.get(&**host));
        let here = here.and_then(|sets| first(sets));
        let other = first(&matching.others);
        [here, other].into_iter().flatten().min()
    }
}

impl<'a> EqualVolumes<'a> {
    /// The host names that pin it, if they do.
    fn hosts(&self) -> Option<&'a [Arc<str>]> {
        let [term] = self.terms? else {
            return None;
        };
        let mut all = term.expressions.iter();
        let by_name = all.find(|e| &*e.key == HOSTNAME_LABEL && e.operator == Operator::In)?;
        Some(&by_name.values)
    }
}

impl AssumedBindings {
    /// How many pods with this need, `limit` at most, a node could serve with volumes; what they take is
    /// added to `bindings`.
    pub(crate) fn serve(
        &self,
        volumes: &FreeVolumes<'_>,
        need: &VolumeNeed,
        at: VolumeNode<'_>,
        limit: u64,
        bindings: &mut VolumeBindings,
    ) -> u64 {
        if need.waiting.is_empty() {
            return limit;
        }
        for served in 0..limit {
            let before = bindings.clone();
            if !self.serve_one(volumes, need, at, bindings) {
                *bindings = before;
                return served;
            }
            // The others take nothing more either.
            if *bindings == before {
                return limit;
            }
        }
        limit
    }

    /// The claims of one pod, in kube-scheduler's order.
    fn serve_one(
        &self,
        volumes: &FreeVolumes<'_>,
        need: &VolumeNeed,
        at: VolumeNode<'_>,
        bindings: &mut VolumeBindings,
    ) -> bool {
        let chosen = bindings.held.len();
        for waiting in &need.waiting {
            if let Some(set) = waiting
                .shared
                .as_ref()
                .and_then(|c| self.held(c, bindings, chosen))
            {
                if volumes.reaches(set, at) {
                    continue;
                }
                return false;
            }
            let taken = |set| self.taken.get(&set).copied().unwrap_or(0) + bindings.taken(set);
            match volumes.pick(waiting.matching, at, taken) {
                Some(set) => bindings.take(set, waiting.shared.as_ref()),
                None if waiting.provides(at) => {}
                None => return false,
            }
        }
        true
    }

    /// The set that serves a shared claim already.
    fn held(
        &self,
        claim: &ObjectKey,
        bindings: &VolumeBindings,
        chosen: usize,
    ) -> Option<EqualVolumesId> {
        let mut more = bindings.held[..chosen].iter();
        let more = more.find(|(of, _)| of == claim).map(|(_, set)| *set);
        more.or_else(|| self.held.get(claim).copied())
    }

    /// Gives it away.
    pub(crate) fn give(&mut self, bindings: &VolumeBindings) {
        for (set, count) in &bindings.taken {
            *self.taken.entry(*set).or_default() += count;
        }
        self.held.extend(bindings.held.iter().cloned());
    }

    /// Takes it back.
    pub(crate) fn revoke(&mut self, bindings: &VolumeBindings) {
        for (set, count) in &bindings.taken {
            if let Some(taken) = self.taken.get_mut(set) {
                *taken = taken.saturating_sub(*count);
            }
        }
        for (claim, _) in &bindings.held {
            self.held.remove(claim);
        }
    }

    /// Why a pod with this need finds no volumes on a node, if it does not.
    pub(crate) fn filter_failure(
        &self,
        volumes: &FreeVolumes<'_>,
        need: &VolumeNeed,
        at: VolumeNode<'_>,
    ) -> Option<VolumeFilterFailure> {
        if self.serve(volumes, need, at, 1, &mut VolumeBindings::default()) == 1 {
            return None;
        }
        let fresh = AssumedBindings::default();
        let left = fresh.serve(volumes, need, at, 1, &mut VolumeBindings::default()) == 1;
        let unserved = |given: &AssumedBindings| {
            let mut bindings = VolumeBindings::default();
            need.waiting.iter().find(|waiting| {
                let one = VolumeNeed {
                    waiting: vec![(*waiting).clone()],
                    ..VolumeNeed::default()
                };
                !given.serve_one(volumes, &one, at, &mut bindings)
            })
        };
        let waiting = unserved(self).or(need.waiting.last())?;
        Some(volumes::unserved(waiting, at, left))
    }
}

impl VolumeBindings {
    fn taken(&self, set: EqualVolumesId) -> u64 {
        let found = self.taken.iter().find(|(of, _)| *of == set);
        found.map_or(0, |(_, count)| *count)
    }

    fn take(&mut self, set: EqualVolumesId, shared: Option<&ObjectKey>) {
        match self.taken.iter_mut().find(|(of, _)| *of == set) {
            Some((_, count)) => *count += 1,
            None => self.taken.push((set, 1)),
        }
        if let Some(claim) = shared {
            self.held.push((claim.clone(), set));
        }
    }

    /// More is taken.
    pub(crate) fn add(&mut self, more: &VolumeBindings) {
        for (set, count) in &more.taken {
            match self.taken.iter_mut().find(|(of, _)| of == set) {
                Some((_, sum)) => *sum += count,
                None => self.taken.push((*set, *count)),
            }
        }
        self.held.extend(more.held.iter().cloned());
    }

    /// Some of it is given back.
    pub(crate) fn remove(&mut self, less: &VolumeBindings) {
        for (set, count) in &less.taken {
            if let Some((_, sum)) = self.taken.iter_mut().find(|(of, _)| of == set) {
                *sum = sum.saturating_sub(*count);
            }
        }
        self.taken.retain(|(_, count)| *count > 0);
        self.held.retain(|held| !less.held.contains(held));
    }

    /// Whether nothing is taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.held.is_empty()
    }

    /// Whether a node reaches all of it.
    pub(crate) fn in_reach(&self, volumes: &FreeVolumes<'_>, at: VolumeNode<'_>) -> bool {
        self.taken.iter().all(|(set, _)| volumes.reaches(*set, at))
    }
}

/// The class of a claim whose volume is chosen when a pod uses it, and not yet.
fn class_of<'a>(cluster: &'a Cluster, claim: &'a Claim) -> Option<&'a str> {
    let settled = claim.volume.is_some() || claim.lost || claim.deleting;
    if claim.asks.is_none() || settled || claim.selected_node.is_some() {
        return None;
    }
    let (name, class) = volumes::class(claim.class.as_ref(), cluster)?;
    class.wait_for_consumer.then_some(&**name)
}

/// The free volumes of these classes: the smallest first, of equal ones those that are not everywhere,
/// then by name.
fn sets<'a>(
    cluster: &'a Cluster,
    classes: &BTreeSet<&str>,
) -> IndexVec<EqualVolumesId, EqualVolumes<'a>> {
    if classes.is_empty() {
        return IndexVec::default();
    }
    let mut alike: BTreeMap<VolumeTraits<'a>, (&'a Arc<str>, u64)> = BTreeMap::new();
    let volumes = cluster.volumes.iter();
    for (name, volume, free) in volumes.filter_map(|(name, v)| Some((name, v, offered(v)?))) {
        if classes.contains(&*free.class) {
            let terms = volume.node_affinity.as_deref();
            let set = alike.entry((free, terms, volume.local));
            set.or_insert((name, 0)).1 += 1;
        }
    }
    let mut alike: Vec<_> = alike.into_iter().collect();
    alike.sort_by_key(|((free, terms, _), (name, _))| (free.storage, terms.is_none(), *name));
    let sets = alike.into_iter();
    sets.map(|((free, terms, local), (_, count))| EqualVolumes {
        free,
        terms,
        local,
        count,
    })
    .collect()
}

/// What a volume offers, if it may be given away.
fn offered(volume: &PersistentVolume) -> Option<&Free> {
    let free = volume.free.as_deref()?;
    (!volume.deleting && (free.available || free.claim.is_some())).then_some(free)
}

/// Whether class, size, mode and attributes are as asked: this is asked of a volume that is kept for the
/// claim too.
fn suits(free: &Free, (class, storage, (_, block, _, attributes)): RequestKey<'_>) -> bool {
    *free.class == *class
        && free.storage >= storage
        && free.block == block
        && *free.attributes == *attributes
}

/// Whether a volume that is kept for nobody serves a claim.
fn serves(free: &Free, request: RequestKey<'_>) -> bool {
    let (_, _, (modes, _, wanted, _)) = request;
    free.claim.is_none()
        && free.available
        && suits(free, request)
        && wanted.is_none_or(|wanted| selector::selects(Some(wanted), &free.labels))
        && modes.iter().all(|mode| free.modes.contains(mode))
}
