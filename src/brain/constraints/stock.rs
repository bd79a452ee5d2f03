//! Volumes that exist and are bound to no claim: which of them a claim that waits for a consumer can have,
//! and what this decision has given away.
//!
//! Source: kube-scheduler's plugin `VolumeBinding` (`findMatchingVolumes`) and `FindMatchingVolume` in
//! `component-helpers/storage/volume`. Equal volumes are one *lot*, equal claims share one *menu*, and
//! volumes that a host name pins are found by it: looking at a node costs what that node can reach.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::cluster::{Claim, Cluster, Free, PersistentVolume, PodKey};
use model::reasons::VolumeMisfit;
use model::scheduling::{Labels, NodeTerm, Operator, Volume};

use crate::constraints::claims::claim_name;
use crate::constraints::fit::selector;
use crate::constraints::fit::volumes::{self, Need};
use crate::constraints::shape::HOSTNAME_LABEL;
use crate::constraints::shape::Keyed;

/// Index of a lot in [`Stock`]. Those that are to be taken first come first.
pub(crate) type LotId = usize;
/// Index of a menu in [`Stock`].
pub(crate) type MenuId = usize;

/// Volumes that are alike.
#[derive(Debug)]
struct Lot<'a> {
    free: &'a Free,
    terms: Option<&'a [NodeTerm]>,
    local: bool,
    count: u64,
}

/// The lots that serve a claim, whatever the node.
#[derive(Debug, Default)]
struct Menu<'a> {
    /// Volumes that a host name pins, by that host name.
    pinned: BTreeMap<&'a str, Vec<LotId>>,
    others: Vec<LotId>,
}

/// What claims of one menu ask alike: class, size, modes, block, selector, attributes.
type ClaimRequest<'a> = (&'a str, i64, Asked<'a>);
type Asked<'a> = (
    &'a [Arc<str>],
    bool,
    Option<&'a model::scheduling::LabelSelector>,
    &'a str,
);

/// What makes volumes alike: what they offer, where they can be reached, whether they are local.
type Alike<'a> = (&'a Free, Option<&'a [NodeTerm]>, bool);

/// All free volumes that a claim could have, and which claim could have which.
#[derive(Debug, Default)]
pub(crate) struct Stock<'a> {
    lots: Vec<Lot<'a>>,
    menus: Vec<Menu<'a>>,
    /// The menus of claims that wait; one without is served by no volume there is.
    of: BTreeMap<&'a PodKey, MenuId>,
    /// Claims that several pods wait with: one volume does for all of them.
    shared: BTreeSet<PodKey>,
}

/// A node as volumes see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'p> {
    pub(crate) name: &'p str,
    pub(crate) labels: &'p Labels,
    /// It does not exist yet: what is local to a node is not on it.
    pub(crate) new: bool,
}

/// What this decision has given away.
#[derive(Debug, Default)]
pub(crate) struct Given {
    taken: BTreeMap<LotId, u64>,
    held: BTreeMap<PodKey, LotId>,
}

/// What pods would take beyond that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gift {
    taken: Vec<(LotId, u64)>,
    held: Vec<(PodKey, LotId)>,
}

impl<'a> Stock<'a> {
    /// Finds what is free; `unbound` are the pods without a node. Costs nothing where no claim waits for
    /// a consumer.
    pub(crate) fn of(cluster: &'a Cluster, unbound: &[Keyed<'a>]) -> Stock<'a> {
        let claims = cluster.claims.iter();
        let waiting: Vec<(&PodKey, &Claim, &str)> = claims
            .filter_map(|(key, claim)| Some((key, claim, class_of(cluster, claim)?)))
            .collect();
        let classes: BTreeSet<&str> = waiting.iter().map(|(_, _, class)| *class).collect();
        let mut stock = Stock {
            lots: lots(cluster, &classes),
            ..Stock::default()
        };
        if stock.lots.is_empty() {
            return stock;
        }
        let mut kept: BTreeMap<&PodKey, Vec<LotId>> = BTreeMap::new();
        for (id, lot) in stock.lots.iter().enumerate() {
            if let Some(claim) = &lot.free.claim {
                kept.entry(claim).or_default().push(id);
            }
        }
        let mut known: BTreeMap<(ClaimRequest<'a>, Option<LotId>), Option<MenuId>> =
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
            let request: ClaimRequest<'a> = (class, asks.storage, asked);
            let mut own = kept.get(key).into_iter().flatten().copied();
            let kept = own.find(|lot| {
                let free = stock.lots[*lot].free;
                let uid = &free.claim_uid;
                suits(free, request) && (uid.is_empty() || *uid == asks.uid)
            });
            let menu = *known
                .entry((request, kept))
                .or_insert_with(|| stock.add_menu(request, kept));
            if let Some(menu) = menu {
                stock.of.insert(key, menu);
            }
        }
        stock.find_shared(unbound);
        stock
    }

    /// Writes a menu; `None` where nothing would be on it. A volume that is kept for a claim is all that
    /// this claim can have.
    fn add_menu(&mut self, request: ClaimRequest<'a>, kept: Option<LotId>) -> Option<MenuId> {
        let mut menu = Menu::default();
        let of_all = 0..self.lots.len();
        for (id, lot) in of_all.zip(&self.lots) {
            let serves = kept.map_or_else(|| serves(lot.free, request), |kept| kept == id);
            if !serves {
                continue;
            }
            match lot.hosts() {
                Some(hosts) => {
                    for host in hosts {
                        menu.pinned.entry(host).or_default().push(id);
                    }
                }
                None => menu.others.push(id),
            }
        }
        let empty = menu.pinned.is_empty() && menu.others.is_empty();
        (!empty).then(|| {
            self.menus.push(menu);
            self.menus.len() - 1
        })
    }

    fn find_shared(&mut self, unbound: &[Keyed<'a>]) {
        let mut seen: BTreeSet<PodKey> = BTreeSet::new();
        for (key, pod) in unbound {
            let volumes = pod.shape.volumes.iter();
            let plain = volumes.filter(|volume| matches!(volume, Volume::Claim(_)));
            let names: BTreeSet<Arc<str>> = plain.filter_map(|v| claim_name(key, v)).collect();
            for name in names {
                let claim = PodKey::new(key.namespace.clone(), name);
                if self.of.contains_key(&claim) && !seen.insert(claim.clone()) {
                    self.shared.insert(claim);
                }
            }
        }
    }

    /// The menu of a claim, if any volume there is could serve it.
    pub(crate) fn menu(&self, claim: &PodKey) -> Option<MenuId> {
        self.of.get(claim).copied()
    }

    /// Whether several pods wait with a claim.
    pub(crate) fn shared(&self, claim: &PodKey) -> bool {
        self.shared.contains(claim)
    }

    /// Whether a node of this name and these labels reaches a lot.
    fn reaches(&self, lot: LotId, at: At<'_>) -> bool {
        let lot = &self.lots[lot];
        let near = |terms| selector::any_term(terms, at.name, at.labels);
        !(lot.local && at.new) && lot.terms.is_none_or(near)
    }

    /// The first lot of a menu that a node reaches and of which more is left than `taken` says.
    fn pick(&self, menu: MenuId, at: At<'_>, taken: impl Fn(LotId) -> u64) -> Option<LotId> {
        let menu = &self.menus[menu];
        let first = |lots: &[LotId]| {
            let mut lots = lots.iter().copied();
            lots.find(|lot| taken(*lot) < self.lots[*lot].count && self.reaches(*lot, at))
        };
        let host = at.labels.get(HOSTNAME_LABEL);
        let here = host.and_then(|host| menu.pinned.get(&**host));
        let here = here.and_then(|lots| first(lots));
        let other = first(&menu.others);
        [here, other].into_iter().flatten().min()
    }
}

impl<'a> Lot<'a> {
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

impl Given {
    /// How many pods with this need, `limit` at most, a node could serve with volumes; what they take is
    /// added to `gift`.
    pub(crate) fn serve(
        &self,
        stock: &Stock<'_>,
        need: &Need,
        at: At<'_>,
        limit: u64,
        gift: &mut Gift,
    ) -> u64 {
        if need.waiting.is_empty() {
            return limit;
        }
        for served in 0..limit {
            let before = gift.clone();
            if !self.serve_one(stock, need, at, gift) {
                *gift = before;
                return served;
            }
            // The others take nothing more either.
            if *gift == before {
                return limit;
            }
        }
        limit
    }

    /// The claims of one pod, in kube-scheduler's order.
    fn serve_one(&self, stock: &Stock<'_>, need: &Need, at: At<'_>, gift: &mut Gift) -> bool {
        let chosen = gift.held.len();
        for waiting in &need.waiting {
            if let Some(lot) = waiting
                .shared
                .as_ref()
                .and_then(|c| self.held(c, gift, chosen))
            {
                if stock.reaches(lot, at) {
                    continue;
                }
                return false;
            }
            let taken = |lot| self.taken.get(&lot).copied().unwrap_or(0) + gift.taken(lot);
            match stock.pick(waiting.menu, at, taken) {
                Some(lot) => gift.take(lot, waiting.shared.as_ref()),
                None if waiting.provides(at) => {}
                None => return false,
            }
        }
        true
    }

    /// The lot that serves a shared claim already.
    fn held(&self, claim: &PodKey, gift: &Gift, chosen: usize) -> Option<LotId> {
        let mut more = gift.held[..chosen].iter();
        let more = more.find(|(of, _)| of == claim).map(|(_, lot)| *lot);
        more.or_else(|| self.held.get(claim).copied())
    }

    /// Gives it away.
    pub(crate) fn give(&mut self, gift: &Gift) {
        for (lot, count) in &gift.taken {
            *self.taken.entry(*lot).or_default() += count;
        }
        self.held.extend(gift.held.iter().cloned());
    }

    /// Takes it back.
    pub(crate) fn revoke(&mut self, gift: &Gift) {
        for (lot, count) in &gift.taken {
            if let Some(taken) = self.taken.get_mut(lot) {
                *taken = taken.saturating_sub(*count);
            }
        }
        for (claim, _) in &gift.held {
            self.held.remove(claim);
        }
    }

    /// Why a pod with this need finds no volumes on a node, if it does not.
    pub(crate) fn misfit(
        &self,
        stock: &Stock<'_>,
        need: &Need,
        at: At<'_>,
    ) -> Option<VolumeMisfit> {
        if self.serve(stock, need, at, 1, &mut Gift::default()) == 1 {
            return None;
        }
        let fresh = Given::default();
        let left = fresh.serve(stock, need, at, 1, &mut Gift::default()) == 1;
        let unserved = |given: &Given| {
            let mut gift = Gift::default();
            need.waiting.iter().find(|waiting| {
                let one = Need {
                    waiting: vec![(*waiting).clone()],
                    ..Need::default()
                };
                !given.serve_one(stock, &one, at, &mut gift)
            })
        };
        let waiting = unserved(self).or(need.waiting.last())?;
        Some(volumes::unserved(waiting, at, left))
    }
}

impl Gift {
    fn taken(&self, lot: LotId) -> u64 {
        let found = self.taken.iter().find(|(of, _)| *of == lot);
        found.map_or(0, |(_, count)| *count)
    }

    fn take(&mut self, lot: LotId, shared: Option<&PodKey>) {
        match self.taken.iter_mut().find(|(of, _)| *of == lot) {
            Some((_, count)) => *count += 1,
            None => self.taken.push((lot, 1)),
        }
        if let Some(claim) = shared {
            self.held.push((claim.clone(), lot));
        }
    }

    /// More is taken.
    pub(crate) fn add(&mut self, more: &Gift) {
        for (lot, count) in &more.taken {
            match self.taken.iter_mut().find(|(of, _)| of == lot) {
                Some((_, sum)) => *sum += count,
                None => self.taken.push((*lot, *count)),
            }
        }
        self.held.extend(more.held.iter().cloned());
    }

    /// Some of it is given back.
    pub(crate) fn remove(&mut self, less: &Gift) {
        for (lot, count) in &less.taken {
            if let Some((_, sum)) = self.taken.iter_mut().find(|(of, _)| of == lot) {
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
    pub(crate) fn in_reach(&self, stock: &Stock<'_>, at: At<'_>) -> bool {
        self.taken.iter().all(|(lot, _)| stock.reaches(*lot, at))
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
fn lots<'a>(cluster: &'a Cluster, classes: &BTreeSet<&str>) -> Vec<Lot<'a>> {
    if classes.is_empty() {
        return Vec::new();
    }
    let mut alike: BTreeMap<Alike<'a>, (&'a Arc<str>, u64)> = BTreeMap::new();
    let volumes = cluster.volumes.iter();
    for (name, volume, free) in volumes.filter_map(|(name, v)| Some((name, v, offered(v)?))) {
        if classes.contains(&*free.class) {
            let terms = volume.node_affinity.as_deref();
            let lot = alike.entry((free, terms, volume.local));
            lot.or_insert((name, 0)).1 += 1;
        }
    }
    let mut alike: Vec<_> = alike.into_iter().collect();
    alike.sort_by_key(|((free, terms, _), (name, _))| (free.storage, terms.is_none(), *name));
    let lots = alike.into_iter();
    lots.map(|((free, terms, local), (_, count))| Lot {
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
fn suits(free: &Free, (class, storage, (_, block, _, attributes)): ClaimRequest<'_>) -> bool {
    *free.class == *class
        && free.storage >= storage
        && free.block == block
        && *free.attributes == *attributes
}

/// Whether a volume that is kept for nobody serves a claim.
fn serves(free: &Free, request: ClaimRequest<'_>) -> bool {
    let (_, _, (modes, _, wanted, _)) = request;
    free.claim.is_none()
        && free.available
        && suits(free, request)
        && wanted.is_none_or(|wanted| selector::selects(Some(wanted), &free.labels))
        && modes.iter().all(|mode| free.modes.contains(mode))
}
