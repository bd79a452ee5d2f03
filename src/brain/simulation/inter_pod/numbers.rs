//! The rules of some shapes as plain numbers, for a search that tries many plans and asks the world once.

use std::collections::BTreeMap;

use super::InterPodConstraints;
use super::counter::Counter;
use super::rules::Rules;
use super::topology::{DomainId, DomainsByKey, NOWHERE};
use crate::constraints::fit::{NEW, selector, taints};
use crate::constraints::shape::NamespacedShape;
use crate::index::{CounterId, IndexVec, KeyId, NodeIndex, ShapeId, TallyIndex};
use model::scheduling::{Labels, Taint};

/// Counters that the rules of some shapes read, and those rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct CounterRules {
    pub(crate) counters: IndexVec<TallyIndex, Tally>,
    /// By shape, in the order in which they were asked for.
    pub(crate) shapes: Vec<Asks>,
}

/// What a counter has counted.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Tally {
    id: CounterId,
    pub(crate) key: KeyId,
    /// It is for topology spread: domains without a pod matter too.
    pub(crate) spreads: bool,
    /// Pods by domain.
    pub(crate) pods: IndexVec<DomainId, i64>,
    /// Nodes that take part, by domain; for spread alone.
    pub(crate) places: IndexVec<DomainId, u32>,
}

/// The rules of a shape.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Asks {
    /// No pod of these may be in the domain.
    pub(crate) forbidden: Vec<TallyIndex>,
    /// No pod of these may be in the domain, by the shape's own anti-affinity terms: where a node lacks the topology key
    /// they forbid nothing. And whether a pod of the shape is counted itself, so that one keeps the next away.
    pub(crate) unwanted: Vec<(TallyIndex, bool)>,
    /// A pod of each of these must be in the domain.
    pub(crate) wanted: Vec<TallyIndex>,
    /// The shape meets its own affinity: the first of its kind may go anywhere.
    pub(crate) wants_itself: bool,
    pub(crate) spread: Vec<Even>,
    /// The counters that a pod of the shape is counted in.
    pub(crate) feeds: Vec<TallyIndex>,
}

/// A hard spread constraint.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Even {
    pub(crate) counter: TallyIndex,
    pub(crate) max_skew: i64,
    pub(crate) min_domains: usize,
    pub(crate) counts_itself: bool,
    /// Keys without which a node does not count.
    pub(crate) keys: Vec<KeyId>,
    /// Domains that a new node for the shape could be in.
    pub(crate) open: Vec<DomainId>,
}

impl InterPodConstraints<'_> {
    /// The rules of these shapes, as far as they were asked for before, and what the counters hold that they
    /// read.
    pub(crate) fn numbers(&self, shapes: &[ShapeId]) -> CounterRules {
        let mut numbers = CounterRules::default();
        let mut known: BTreeMap<CounterId, TallyIndex> = BTreeMap::new();
        for shape in shapes {
            let asks = match self.rules[*shape].as_deref() {
                Some(rules) => self.asks(rules, &mut known, &mut numbers.counters),
                None => Asks::default(),
            };
            numbers.shapes.push(asks);
        }
        for (shape, asks) in shapes.iter().zip(&mut numbers.shapes) {
            let feeds = self.feeds[*shape].iter();
            asks.feeds = feeds.filter_map(|id| known.get(id).copied()).collect();
        }
        numbers
    }

    fn asks(
        &self,
        rules: &Rules,
        known: &mut BTreeMap<CounterId, TallyIndex>,
        counters: &mut IndexVec<TallyIndex, Tally>,
    ) -> Asks {
        let mut index = |id: CounterId| {
            let tally = || counters.push(self.tally(id));
            *known.entry(id).or_insert_with(tally)
        };
        Asks {
            forbidden: rules.forbidden.iter().map(|id| index(*id)).collect(),
            unwanted: rules
                .unwanted
                .iter()
                .map(|(id, itself)| (index(*id), *itself))
                .collect(),
            wanted: rules.wanted.iter().map(|id| index(*id)).collect(),
            wants_itself: rules.wants_itself,
            spread: rules
                .spread
                .iter()
                .map(|spread| Even {
                    counter: index(spread.counter),
                    max_skew: spread.max_skew,
                    min_domains: spread.min_domains,
                    counts_itself: spread.counts_itself,
                    keys: self.counters[spread.counter].subject.scope.keys.clone(),
                    open: spread.open.clone(),
                })
                .collect(),
            feeds: Vec::new(),
        }
    }

    fn tally(&self, id: CounterId) -> Tally {
        let counter = &self.counters[id];
        let (pods, places) = counter.by_domain();
        Tally {
            id,
            key: counter.subject.key,
            spreads: counter.spreads(),
            pods: pods.clone(),
            places: places.clone(),
        }
    }

    /// Whether a counter would count pods on a new node with these labels and taints, in these domains by key.
    pub(crate) fn would_count(
        &self,
        tally: &Tally,
        labels: &Labels,
        taints: &[Taint],
        domains: &DomainsByKey,
    ) -> bool {
        let counter = &self.counters[tally.id];
        domains[tally.key] != NOWHERE
            && (!counter.spreads() || counter.takes_new(labels, taints, domains))
    }

    /// Whether a counter counts pods of a shape.
    pub(crate) fn would_take(&self, tally: &Tally, pod: NamespacedShape<'_>) -> bool {
        let who = &self.counters[tally.id].subject.who;
        who.takes_in(&self.around(), pod)
    }

    /// Whether a counter counts pods on a place.
    pub(crate) fn counts_on(&self, tally: &Tally, index: NodeIndex) -> bool {
        let domain = self.topology.of(tally.key, index);
        self.counters[tally.id].sees(index, domain)
    }
}

impl Counter<'_> {
    /// Whether a new node would take part in a spread.
    fn takes_new(&self, labels: &Labels, taints: &[Taint], domains: &DomainsByKey) -> bool {
        let scope = &self.subject.scope;
        let chosen = scope.chosen.is_none_or(|(wanted, terms)| {
            let mut wanted = wanted.iter();
            wanted.all(|(key, value)| labels.get(key) == Some(value))
                && terms.is_none_or(|terms| selector::any_term(terms, NEW, labels))
        });
        let tolerated = scope
            .tolerating
            .is_none_or(|own| taints::untolerated(taints, own).next().is_none());
        chosen && tolerated && scope.keys.iter().all(|key| domains[*key] != NOWHERE)
    }
}
