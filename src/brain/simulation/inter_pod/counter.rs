//! Counting pods by domain, kept up to date as pods are put and taken.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::scheduling::{LabelSelector, NodeTerm, PodTerm, Toleration};

use super::Surroundings;
use super::topology::{DomainId, FRESH, NOWHERE};
use crate::constraints::fit::{selector, taints};
use crate::constraints::shape::NamespacedShape;
use crate::index::{IndexVec, KeyId, NodeIndex};
use crate::simulation::world::SimNode;
use model::scheduling::Labels;

/// Which pods are counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Who<'a> {
    /// For topology spread: those of a namespace that a selector takes in, and that are not being
    /// deleted.
    Selected(&'a str, Option<LabelSelector>),
    /// For the default spread, which has no selector: those of one controller.
    Owned(&'a str, &'a str),
    /// Pods that all affinity terms of a pod in a namespace take in.
    All(&'a str, &'a [PodTerm]),
    /// Pods that one term of a pod in a namespace takes in.
    Taken(&'a str, &'a PodTerm),
    /// Pods that have this anti-affinity term themselves.
    Holding(&'a str, &'a PodTerm),
}

/// Which nodes a spread constraint looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SpreadScope<'a> {
    /// They carry all these keys.
    pub(super) keys: Vec<KeyId>,
    /// `nodeAffinityPolicy: Honor`: the pod's selector and affinity match.
    pub(super) chosen: Option<(&'a Labels, Option<&'a [NodeTerm]>)>,
    /// `nodeTaintsPolicy: Honor`: these tolerations cover their taints.
    pub(super) tolerating: Option<&'a [Toleration]>,
}

/// What a counter counts: which pods, over which key, on which nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CountedPods<'a> {
    pub(super) who: Who<'a>,
    pub(super) key: KeyId,
    pub(super) scope: SpreadScope<'a>,
}

/// Pods of one subject, by domain.
#[derive(Debug)]
pub(super) struct Counter<'a> {
    pub(super) subject: CountedPods<'a>,
    /// Some rule that pods insist on reads it; preferences alone do not make it so.
    pub(super) hard: bool,
    /// Pods by domain.
    pods: IndexVec<DomainId, i64>,
    /// Places that take part, by domain; kept for spreading alone.
    places: IndexVec<DomainId, u32>,
    /// Whether a place takes part; kept for spreading alone. In any other counter those with the key do.
    member: IndexVec<NodeIndex, bool>,
    total: i64,
    /// How many domains have how many pods; kept for spreading alone.
    levels: BTreeMap<i64, u32>,
}

impl Who<'_> {
    /// Whether pods that are being deleted are left out.
    pub(super) fn living(&self) -> bool {
        matches!(self, Who::Selected(..) | Who::Owned(..))
    }

    /// Whether those are counted that hold a term.
    pub(super) fn holding(&self) -> bool {
        matches!(self, Who::Holding(..))
    }

    /// The label selectors that say so, for a reader; none where one of several terms has none, and selects no pod.
    pub(super) fn selectors(&self) -> Vec<LabelSelector> {
        let selectors = self.terms().iter().map(|term| term.selector.clone());
        selectors.collect::<Option<_>>().unwrap_or_default()
    }

    /// The namespaces that terms look in, for a reader: the pod's own, or those they name. Empty where namespaces are chosen by label,
    /// or each term has others.
    pub(super) fn namespaces(&self) -> Vec<Arc<str>> {
        let (Who::All(own, _) | Who::Taken(own, _) | Who::Holding(own, _)) = self else {
            return Vec::new();
        };
        let of = |term: &PodTerm| match &term.namespace_selector {
            Some(_) => Vec::new(),
            None if term.namespaces.is_empty() => vec![Arc::from(*own)],
            None => term.namespaces.clone(),
        };
        let mut all = self.terms().iter().map(of);
        let first = all.next().unwrap_or_default();
        if all.all(|others| others == first) {
            first
        } else {
            Vec::new()
        }
    }

    fn terms(&self) -> &[PodTerm] {
        match self {
            Who::Selected(..) | Who::Owned(..) => &[],
            Who::All(_, terms) => terms,
            Who::Taken(_, term) | Who::Holding(_, term) => std::slice::from_ref(*term),
        }
    }

    /// Whether pods of a shape are counted.
    pub(super) fn takes_in(&self, around: &Surroundings<'_, '_>, pod: NamespacedShape<'_>) -> bool {
        match self {
            Who::Selected(namespace, selector) => {
                *namespace == pod.namespace
                    && selector::selects(selector.as_ref(), &pod.shape.labels)
            }
            Who::Owned(namespace, uid) => {
                *namespace == pod.namespace
                    && pod.shape.owner.as_ref().is_some_and(|o| *o.uid == **uid)
            }
            Who::All(namespace, terms) => {
                terms.iter().all(|term| around.takes(term, namespace, pod))
            }
            Who::Taken(namespace, term) => around.takes(term, namespace, pod),
            Who::Holding(namespace, term) => {
                *namespace == pod.namespace && pod.shape.pod_anti_affinity.contains(term)
            }
        }
    }
}

impl SpreadScope<'_> {
    fn takes(&self, around: &Surroundings<'_, '_>, node: &SimNode, index: NodeIndex) -> bool {
        let keys = &self.keys;
        let chosen = || {
            self.chosen.is_none_or(|(wanted, terms)| {
                let all = wanted
                    .iter()
                    .all(|(key, value)| node.labels.get(key) == Some(value));
                all && terms.is_none_or(|terms| selector::any_term(terms, &node.name, &node.labels))
            })
        };
        let tolerated = || {
            self.tolerating
                .is_none_or(|own| taints::untolerated(&node.taints, own).next().is_none())
        };
        keys.iter()
            .all(|key| around.topology.of(*key, index) != NOWHERE)
            && chosen()
            && tolerated()
    }
}

impl<'a> Counter<'a> {
    /// A counter that has counted nothing; it knows no place.
    pub(super) fn new(subject: CountedPods<'a>) -> Counter<'a> {
        Counter {
            subject,
            hard: false,
            pods: IndexVec::default(),
            places: IndexVec::default(),
            member: IndexVec::default(),
            total: 0,
            levels: BTreeMap::new(),
        }
    }

    /// Gets to know the next place; its pods are counted apart.
    pub(super) fn add_node(&mut self, around: &Surroundings<'_, '_>, node: &SimNode) {
        if !self.spreads() {
            return;
        }
        let index = self.member.push(false);
        self.see(around, node, index);
        if self.member[index] && !node.closed {
            self.open(around.topology.of(self.subject.key, index));
        }
    }

    /// Sees whether a place takes part; one that did must be closed.
    pub(super) fn see(&mut self, around: &Surroundings<'_, '_>, node: &SimNode, index: NodeIndex) {
        let domain = around.topology.of(self.subject.key, index);
        let member = domain < FRESH && self.subject.scope.takes(around, node, index);
        self.member[index] = member;
        if member {
            self.pods.get_or_grow(domain);
            self.places.get_or_grow(domain);
        }
    }

    /// Pods by domain, and the places that take part by domain.
    pub(super) fn by_domain(&self) -> (&IndexVec<DomainId, i64>, &IndexVec<DomainId, u32>) {
        (&self.pods, &self.places)
    }

    /// Whether a place of this domain takes part.
    pub(super) fn sees(&self, index: NodeIndex, domain: DomainId) -> bool {
        domain != NOWHERE && (!self.spreads() || self.member[index])
    }

    /// Whether a place would take part as it does if it had these labels. Selectors by name are taken
    /// for met by no place. For spreading alone.
    pub(super) fn would_see(&self, index: NodeIndex, labels: &Labels) -> bool {
        let met = self.subject.scope.chosen.is_none_or(|(wanted, terms)| {
            let all = wanted
                .iter()
                .all(|(key, value)| labels.get(key) == Some(value));
            all && terms.is_none_or(|terms| selector::any_term(terms, "", labels))
        });
        self.member[index] == met
    }

    /// A place of this domain takes part from now on.
    fn open(&mut self, domain: DomainId) {
        self.places[domain] += 1;
        if self.places[domain] == 1 {
            *self.levels.entry(self.pods[domain]).or_insert(0) += 1;
        }
    }

    /// Whether it is for spreading, so that the domains without a pod matter too.
    pub(super) fn spreads(&self) -> bool {
        self.subject.who.living()
    }

    /// A place takes part again, or no longer. Its pods are counted apart.
    pub(super) fn turn(&mut self, index: NodeIndex, domain: DomainId, open: bool) {
        if !(self.spreads() && self.member[index]) {
            return;
        }
        if open {
            return self.open(domain);
        }
        self.places[domain] = self.places[domain].saturating_sub(1);
        if self.places[domain] == 0 {
            self.leave_level(self.pods[domain]);
        }
    }

    fn leave_level(&mut self, level: i64) {
        if let Some(domains) = self.levels.get_mut(&level) {
            *domains -= 1;
            if *domains == 0 {
                self.levels.remove(&level);
            }
        }
    }

    /// Counts `count` pods of the subject in on a place, out when it is negative; none where the place takes no part.
    pub(super) fn add(&mut self, index: NodeIndex, domain: DomainId, count: i64) {
        if !self.sees(index, domain) {
            return;
        }
        let pods = self.pods.get_or_grow(domain);
        let before = *pods;
        let after = before.saturating_add(count);
        *pods = after;
        self.total = self.total.saturating_add(count);
        if self.spreads() && self.places[domain] > 0 {
            self.leave_level(before);
            *self.levels.entry(after).or_insert(0) += 1;
        }
    }

    /// Pods in all domains.
    pub(super) fn total(&self) -> i64 {
        self.total
    }

    /// Pods in a domain.
    pub(super) fn pods(&self, domain: DomainId) -> i64 {
        self.pods.get(domain).copied().unwrap_or(0)
    }

    /// Whether some place of a domain takes part.
    pub(super) fn knows(&self, domain: DomainId) -> bool {
        domain < FRESH && self.places.get(domain).is_some_and(|n| *n > 0)
    }

    /// Domains with a place that takes part.
    pub(super) fn domains(&self) -> usize {
        self.levels.values().map(|n| *n as usize).sum()
    }

    /// The least that any domain has.
    pub(super) fn least(&self) -> Option<i64> {
        self.levels.keys().next().copied()
    }

    /// The first domain, in the order in which they were met, that has the least.
    pub(super) fn emptiest(&self) -> Option<DomainId> {
        let least = self.least()?;
        let mut domains = self.places.indexes();
        domains.find(|domain| self.knows(*domain) && self.pods(*domain) == least)
    }

    /// The least that any domain but this one has.
    pub(super) fn least_beside(&self, domain: DomainId) -> Option<i64> {
        let mut levels = self.levels.iter();
        let (least, domains) = levels.next()?;
        let alone = *domains == 1 && self.knows(domain) && self.pods(domain) == *least;
        if alone {
            levels.next().map(|(level, _)| *level)
        } else {
            Some(*least)
        }
    }
}
