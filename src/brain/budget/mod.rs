//! The budget of work of one decision, counted in steps and not in time, so that the same view always
//! gives the same decision.
//!
//! Whoever may create pods decides what it costs to decide on them: affinity terms are compared with every
//! kind of pod and asked of every node. What pods would cost is reckoned from the view before anything is
//! decided. Where all of it is within [`DECISION_STEPS`], as in every cluster of people who mean well, nothing
//! happens. Else each namespace is charged for its own, the cheapest kinds of pods first, and those with
//! which their namespace has used up most are left out of the view, until the rest is within the budget.
//! So nobody's pods can cost another's their turn.
//!
//! A pod that is left out and waits gets no machine, and is told why. One that runs keeps its place and
//! what it asks for; its constraints are not weighed any more, and its node is not emptied. Source of the
//! numbers: `docs/decisions/0022-budget-of-work.md`.

#[cfg(test)]
mod tests;
mod weight;

use crate::decision::turn::DECISION_STEPS;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::sync::Arc;

use model::cluster::ObjectKey;
use model::parts::MAX_PARTS;
use model::policy::Policy;
use model::reasons::{Excess, Warning};
use model::scheduling::{PodShape, PodTerm};
use model::snapshot::Snapshot;

use crate::constraints::alike::Alike;
use crate::constraints::shape::NamespacedShape;
use crate::decision::turn::DecisionBuilder;
use crate::index::{IndexVec, ShapeId};
use crate::simulation::inter_pod::takes_in;
use weight::Weight;

/// Namespaces that are named in the warning.
const NAMED: usize = 5;
/// Parts of constraints that are looked at at all, over all kinds of pods.
const MAX_ALL_PARTS: u64 = 4_000_000;
/// A kind of pod counts as so many parts itself: others' terms are compared with it.
const KIND_PARTS: u64 = 40;
/// Whoever asks for a resource of a name of its own makes every other kind of pod have that resource too, in
/// the reckoning of what no plan can do without: so often each.
const NAME_PARTS: u64 = 40;
/// Looks of a pod at a place, its constraints apart, that make one step together: most places are passed over in stretches.
const LOOKS_PER_STEP: u64 = 16;

/// A kind of pods, and what is to be known to say what it costs.
#[derive(Debug)]
struct PodKind<'a> {
    /// The first that came.
    of: NamespacedShape<'a>,
    /// Pods of it that are not bound.
    waiting: u64,
    weight: Weight,
}

/// How large the world is.
#[derive(Debug)]
struct WorldSize {
    /// Kinds of pods.
    kinds: u64,
    /// Nodes there are, on their way, and that could be made.
    places: u64,
    /// Kinds by namespace.
    in_namespace: BTreeMap<Arc<str>, u64>,
    /// Kinds that ask for host ports.
    with_ports: u64,
}

/// The view that a decision is made on: the one that was given, but for pods that are beyond the budget.
/// Asked again of the outcome, it changes nothing.
pub fn within<'s>(snapshot: &'s Snapshot, policy: &Policy) -> Cow<'s, Snapshot> {
    within_steps(snapshot, policy, DECISION_STEPS)
}

/// [`within`] another number of steps.
pub(super) fn within_steps<'s>(
    snapshot: &'s Snapshot,
    policy: &Policy,
    steps: u64,
) -> Cow<'s, Snapshot> {
    let places = places(snapshot, policy);
    let mut alike = Alike::of(snapshot, iter::empty());
    let kinds = kinds(snapshot, &mut alike);
    if small(snapshot, &kinds, places, steps) {
        return Cow::Borrowed(snapshot);
    }
    let left_out = chosen(&kinds, places, snapshot, steps);
    let costly_namespaces = costly_namespaces(snapshot, steps);
    if left_out.is_empty() && costly_namespaces.is_empty() {
        return Cow::Borrowed(snapshot);
    }
    Cow::Owned(without(snapshot, &mut alike, &left_out, &costly_namespaces))
}

/// Places that pods may be tried on.
fn places(snapshot: &Snapshot, policy: &Policy) -> u64 {
    let there = snapshot.cluster.nodes.len() + snapshot.machines.len();
    let most: u64 = policy.pools.values().map(|pool| u64::from(pool.max)).sum();
    let hosts: usize = snapshot.regions.values().map(|r| r.hosts.len()).sum();
    let types = policy.pools.values().map(|pool| pool.instance_types.len());
    let offers = types.sum::<usize>().saturating_mul(hosts.max(1));
    let rows = snapshot
        .cluster
        .pods
        .rows()
        .flat_map(|(rows, _)| rows.all());
    let waiting = rows.filter(|row| row.node.is_none() && !row.ended).count();
    count(there)
        .saturating_add(count(offers))
        .saturating_add(most.min(count(waiting)))
        .max(1)
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Whether the whole is within the budget even if every term concerned every kind of pod and no two terms
/// were the same.
fn small(snapshot: &Snapshot, kinds: &[PodKind<'_>], places: u64, steps: u64) -> bool {
    let mut all = Weight::default();
    let mut most = Weight::default();
    let mut waiting: u64 = 0;
    for kind in kinds {
        most.raise(&kind.weight);
        all.add(&kind.weight);
        waiting = waiting.saturating_add(kind.waiting);
    }
    let kinds = count(kinds.len());
    let matching = all.matched.saturating_mul(kinds).saturating_mul(2);
    let asking = all.probes().saturating_mul(places);
    let ports = all.ports.saturating_mul(kinds);
    let volumes = most.volumes.saturating_mul(waiting).saturating_mul(places);
    let names = all
        .extended
        .saturating_mul(kinds)
        .saturating_mul(NAME_PARTS);
    let reaching = all
        .anti_affinity
        .saturating_mul(kinds)
        .saturating_mul(places);
    let plain = waiting.saturating_mul(places / LOOKS_PER_STEP + 1);
    let selectors = snapshot.cluster.budgets.values();
    let asked = selectors.map(|budget| weight::asking(budget.selector.as_ref()));
    let budgets = asked
        .sum::<u64>()
        .saturating_mul(count(snapshot.cluster.pods.len()));
    let sum = [asking, ports, volumes, names, reaching, plain, budgets]
        .into_iter()
        .fold(matching, u64::saturating_add);
    let parts = all.parts.saturating_add(kinds.saturating_mul(KIND_PARTS));
    sum <= steps && most.parts <= MAX_PARTS && parts <= MAX_ALL_PARTS
}

/// The kinds of pods there are.
fn kinds<'s>(snapshot: &'s Snapshot, alike: &mut Alike<'s>) -> IndexVec<ShapeId, PodKind<'s>> {
    let mut kinds: IndexVec<ShapeId, PodKind<'s>> = IndexVec::default();
    let mut add = |of: NamespacedShape<'s>, waiting: u64| {
        let id = alike.kind(of);
        if id == kinds.next_index() {
            let weight = Weight::of(of.shape);
            kinds.push(PodKind {
                of,
                waiting: 0,
                weight,
            });
        }
        kinds[id].waiting += waiting;
    };
    for (rows, _) in snapshot.cluster.pods.rows() {
        let mut waiting = vec![0; rows.kinds().len()];
        for row in rows.all() {
            waiting[row.kind] += u64::from(row.node.is_none() && !row.ended);
        }
        for (kind, count) in rows.kinds().iter().zip(waiting) {
            let of = NamespacedShape {
                namespace: &kind.namespace,
                shape: &kind.shape,
            };
            add(of, count);
        }
    }
    for (key, set) in &snapshot.cluster.daemon_sets {
        let of = NamespacedShape {
            namespace: &key.namespace,
            shape: &set.shape,
        };
        add(of, 0);
    }
    kinds
}

impl WorldSize {
    fn of<'k>(kinds: impl Iterator<Item = &'k PodKind<'k>>, places: u64) -> WorldSize {
        let mut size = WorldSize {
            kinds: 0,
            places,
            in_namespace: BTreeMap::new(),
            with_ports: 0,
        };
        for kind in kinds {
            let here = size.in_namespace.entry(kind.of.namespace.into());
            *here.or_default() += 1;
            size.kinds += 1;
            size.with_ports += u64::from(kind.weight.ports > 0);
        }
        size
    }

    /// The kinds that a term of a pod in a namespace may take in.
    fn reach(&self, namespace: &str, term: &PodTerm) -> u64 {
        if term.namespaces.is_empty() && term.namespace_selector.is_none() {
            return self.in_namespace.get(namespace).copied().unwrap_or(0);
        }
        self.kinds
    }

    /// The steps that comparing a term with all kinds costs.
    fn matching(&self, namespace: &str, term: &PodTerm) -> u64 {
        let parts = term.parts();
        self.kinds
            .saturating_add(parts.saturating_mul(self.reach(namespace, term)))
    }

    /// What a kind costs, its terms against others apart.
    fn own(&self, kind: &PodKind<'_>) -> u64 {
        if kind.of.shape.left_out.is_some() {
            return 0;
        }
        let weight = &kind.weight;
        // Whoever asks for a port is compared with those that are taken where it looks.
        let ports = weight.ports.saturating_mul(self.with_ports);
        if kind.waiting == 0 {
            return ports;
        }
        let shape = kind.of.shape;
        let compared = shape
            .terms()
            .map(|term| self.matching(kind.of.namespace, term))
            .fold(0, u64::saturating_add);
        let spread = weight.spread.saturating_mul(self.kinds);
        let names = weight.extended.saturating_mul(self.kinds);
        let volumes = weight.volumes.saturating_mul(kind.waiting);
        let asked = weight.probes().saturating_add(volumes);
        compared
            .saturating_add(ports)
            .saturating_add(spread)
            .saturating_add(names.saturating_mul(NAME_PARTS))
            .saturating_add(asked.saturating_mul(self.places))
            .saturating_add(self.places / LOOKS_PER_STEP + 1)
    }
}

/// What an anti-affinity term costs, which concerns others: each kind that it takes in is asked about it on
/// every place.
fn aversion(
    size: &WorldSize,
    kinds: &[PodKind<'_>],
    holder: &str,
    term: &PodTerm,
    view: &Snapshot,
) -> u64 {
    let namespaces = &view.cluster.namespaces;
    let taken = kinds
        .iter()
        .filter(|kind| takes_in(namespaces, term, holder, kind.of))
        .count();
    let matching = size.matching(holder, term);
    matching.saturating_add(count(taken).saturating_mul(size.places))
}

/// The kinds that are left out, with what they would cost.
fn chosen<'a>(
    kinds: &IndexVec<ShapeId, PodKind<'a>>,
    places: u64,
    snapshot: &Snapshot,
    steps: u64,
) -> BTreeMap<ShapeId, Excess> {
    let mut left_out = BTreeMap::new();
    // What is not even looked at: by the number of its parts.
    let parts_of = |kind: &PodKind<'a>| match kind.of.shape.left_out {
        Some(_) => 0,
        None => kind.weight.parts.saturating_add(KIND_PARTS),
    };
    let sizes: IndexVec<ShapeId, u64> = kinds.iter().map(parts_of).collect();
    let mut looked_at = kinds.with_each(false);
    let mut sum: u64 = 0;
    for index in fairly(kinds, &sizes) {
        let (own, parts) = (sizes[index], kinds[index].weight.parts);
        if parts <= MAX_PARTS && sum.saturating_add(own) <= MAX_ALL_PARTS {
            sum += own;
            looked_at[index] = true;
        } else {
            let excess = if parts > MAX_PARTS {
                Excess::Parts { parts }
            } else {
                Excess::Kinds
            };
            left_out.insert(index, excess);
        }
    }
    let there = kinds.iter().zip(&looked_at).filter(|(_, in_it)| **in_it);
    let size = &WorldSize::of(there.map(|(kind, _)| kind), places);
    // In two rounds: what terms do to others is reckoned only of those that can be compared with all.
    let cheap = |kind: &PodKind<'a>, term: &'a PodTerm| size.matching(kind.of.namespace, term);
    spend(kinds, (size, steps), &mut looked_at, &mut left_out, cheap);
    let dear = |kind: &PodKind<'a>, term: &'a PodTerm| {
        aversion(size, kinds, kind.of.namespace, term, snapshot)
    };
    spend(kinds, (size, steps), &mut looked_at, &mut left_out, dear);
    left_out
}

/// Spends the budget on the kinds that are still in; those that are beyond it go out. `price` is what one
/// anti-affinity term costs; equal ones of a namespace cost that once.
fn spend<'a>(
    kinds: &IndexVec<ShapeId, PodKind<'a>>,
    (size, steps): (&WorldSize, u64),
    looked_at: &mut IndexVec<ShapeId, bool>,
    left_out: &mut BTreeMap<ShapeId, Excess>,
    price: impl Fn(&PodKind<'a>, &'a PodTerm) -> u64,
) {
    let mut prices: BTreeMap<(&str, &PodTerm), (u64, u64)> = BTreeMap::new();
    for (kind, _) in kinds.iter().zip(&*looked_at).filter(|(_, in_it)| **in_it) {
        for term in &kind.of.shape.pod_anti_affinity {
            let entry = prices.entry((kind.of.namespace, term));
            let known = entry.or_insert_with(|| (price(kind, term), 0));
            known.1 += 1;
        }
    }
    // Kinds that share a term share its price, as far as their order goes.
    let costs: IndexVec<ShapeId, u64> = kinds
        .iter()
        .zip(&*looked_at)
        .map(|(kind, in_it)| {
            if !in_it {
                return 0;
            }
            let terms = kind.of.shape.pod_anti_affinity.iter();
            let shares = terms.filter_map(|term| prices.get(&(kind.of.namespace, term)));
            let shares = shares.map(|(cost, holders)| cost / (*holders).max(1));
            shares.fold(size.own(kind), u64::saturating_add)
        })
        .collect();
    let mut paid: BTreeSet<(&str, &PodTerm)> = BTreeSet::new();
    let mut spent: u64 = 0;
    for index in fairly(kinds, &costs) {
        if !looked_at[index] {
            continue;
        }
        let kind = &kinds[index];
        let terms = kind.of.shape.pod_anti_affinity.iter();
        let terms: BTreeSet<_> = terms.map(|term| (kind.of.namespace, term)).collect();
        let news: Vec<_> = terms.difference(&paid).copied().collect();
        let known_price = |term| prices.get(term).map_or(0, |(cost, _)| *cost);
        let cost = news
            .iter()
            .map(known_price)
            .fold(size.own(kind), u64::saturating_add);
        if spent.saturating_add(cost) <= steps {
            spent += cost;
            paid.extend(news);
        } else {
            looked_at[index] = false;
            let excess = Excess::Steps {
                steps: cost,
                budget: steps,
            };
            left_out.insert(index, excess);
        }
    }
}

/// The kinds in the order in which a budget is spent on them: each namespace pays for its cheapest first,
/// and who has spent least is next.
fn fairly(kinds: &IndexVec<ShapeId, PodKind<'_>>, costs: &IndexVec<ShapeId, u64>) -> Vec<ShapeId> {
    let mut order: Vec<ShapeId> = kinds.indexes().collect();
    order.sort_by_key(|index| (kinds[*index].of.namespace, costs[*index], *index));
    let mut spent: BTreeMap<&str, u64> = BTreeMap::new();
    let mut due: Vec<(u64, ShapeId)> = Vec::with_capacity(order.len());
    for index in order {
        let of = spent.entry(kinds[index].of.namespace).or_default();
        *of = of.saturating_add(costs[index]);
        due.push((*of, index));
    }
    due.sort_unstable();
    due.into_iter().map(|(_, index)| index).collect()
}

/// Namespaces whose disruption budgets would have to be asked too often: as many parts of selectors as
/// these, for every pod.
fn costly_namespaces(snapshot: &Snapshot, steps: u64) -> BTreeSet<&str> {
    let mut parts: BTreeMap<&str, u64> = BTreeMap::new();
    for (key, budget) in &snapshot.cluster.budgets {
        let of = parts.entry(&*key.namespace).or_default();
        *of += weight::asking(budget.selector.as_ref());
    }
    let mut pods: BTreeMap<&str, u64> = BTreeMap::new();
    for (rows, _) in snapshot.cluster.pods.rows() {
        for row in rows.all() {
            let namespace = &*rows.kinds()[row.kind].namespace;
            if parts.contains_key(namespace) {
                *pods.entry(namespace).or_default() += 1;
            }
        }
    }
    let mut due: Vec<(u64, &str)> = pods
        .into_iter()
        .map(|(namespace, pods)| {
            let parts = parts.get(namespace).copied().unwrap_or(0);
            (parts.saturating_mul(pods), namespace)
        })
        .collect();
    due.sort_unstable();
    let mut spent: u64 = 0;
    let beyond = due.into_iter().filter(|(cost, _)| {
        spent = spent.saturating_add(*cost);
        spent > steps
    });
    beyond.map(|(_, namespace)| namespace).collect()
}

/// The view without the constraints of these kinds and the disruption budgets of these namespaces.
fn without<'s>(
    snapshot: &'s Snapshot,
    alike: &mut Alike<'s>,
    left_out: &BTreeMap<ShapeId, Excess>,
    costly_namespaces: &BTreeSet<&str>,
) -> Snapshot {
    let mut lean = snapshot.clone();
    let mut plain: BTreeMap<NamespacedShape<'_>, Arc<PodShape>> = BTreeMap::new();
    let mut bare = |namespace: &'s str, shape: &'s PodShape| {
        let of = NamespacedShape { namespace, shape };
        let why = match left_out.get(&alike.kind(of)) {
            Some(excess) => excess.clone(),
            None if costly_namespaces.contains(namespace) => Excess::DisruptionBudgets {
                namespace: namespace.into(),
            },
            None => return None,
        };
        let known = plain.entry(of);
        Some(
            known
                .or_insert_with(|| Arc::new(shape.without_constraints(why)))
                .clone(),
        )
    };
    let pods = snapshot.cluster.pods.iter();
    let changed: Vec<(&ObjectKey, Arc<PodShape>)> = pods
        .filter_map(|(key, pod)| Some((key, bare(&key.namespace, &pod.shape)?)))
        .collect();
    for (key, shape) in changed {
        if let Some(pod) = lean.cluster.pods.get_mut(key) {
            pod.shape = shape;
        }
    }
    for (key, set) in &snapshot.cluster.daemon_sets {
        if let Some(shape) = bare(&key.namespace, &set.shape)
            && let Some(lean_set) = lean.cluster.daemon_sets.get_mut(key)
        {
            lean_set.shape = shape;
        }
    }
    lean.cluster
        .budgets
        .retain(|key, _| !costly_namespaces.contains(&*key.namespace));
    lean
}

/// Says of whose pods some are left out.
pub(super) fn report(turn: &mut DecisionBuilder<'_>) {
    let kinds = turn.view.kinds().iter().copied();
    let waiting = turn.view.without_place();
    let waiting = waiting.iter().map(|(key, pod)| NamespacedShape {
        namespace: &key.namespace,
        shape: &pod.shape,
    });
    let left_out = kinds
        .chain(waiting)
        .filter(|kind| kind.shape.left_out.is_some());
    let namespaces: BTreeSet<&str> = left_out.map(|kind| kind.namespace).collect();
    if namespaces.is_empty() {
        return;
    }
    let named = namespaces.iter().take(NAMED);
    let warning = Warning::TooComplex {
        namespaces: named.map(|name| Arc::from(*name)).collect(),
        more: namespaces.len().saturating_sub(NAMED),
    };
    turn.warn(warning);
}
