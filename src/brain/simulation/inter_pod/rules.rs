//! What other pods ask of the place of one more pod of a shape.
//!
//! Source: kube-scheduler's plugins `InterPodAffinity` (anti-affinity of pods that run counts as much as
//! that of the pod to place) and `PodTopologySpread` with `DoNotSchedule`. A node that does not exist
//! yet is a domain of its own as soon as it does: it counts as one with no pod.

use std::collections::BTreeSet;

use model::reasons::FilterFailure;

use super::InterPodConstraints;
use super::topology::{DomainId, NOWHERE};
use crate::constraints::shape::NamespacedShape;
use crate::index::{CounterId, KeyId, NodeIndex, ShapeId};

/// The rules of one shape, compiled to counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    /// Counters of pods with anti-affinity against this shape: none may be in the domain.
    pub(super) forbidden: Vec<CounterId>,
    /// Counters of pods that this shape's anti-affinity is against, and whether the shape is among them.
    pub(super) unwanted: Vec<(CounterId, bool)>,
    /// Counters of pods that meet all affinity terms: one pod must be in the domain of each.
    pub(super) wanted: Vec<CounterId>,
    /// The shape meets its own affinity: the first of its kind may go anywhere.
    pub(super) wants_itself: bool,
    /// Hard spread constraints.
    pub(super) spread: Vec<SpreadRule>,
    /// The number of anti-affinity terms, of all pods, that have been looked at.
    pub(super) seen: usize,
}

/// A hard spread constraint.
#[derive(Clone, Debug)]
pub(super) struct SpreadRule {
    pub(super) counter: CounterId,
    pub(super) max_skew: i64,
    pub(super) min_domains: usize,
    /// The shape is among those counted.
    pub(super) counts_itself: bool,
    /// Domains that a new node for the shape could be in, while new nodes are planned. One that no
    /// node is in yet counts as a domain without pods: else all pods of a new workload would go to
    /// the first zone, which is then the only one.
    pub(super) open: Vec<DomainId>,
}

impl Rules {
    /// Whether pods with these rules are spread.
    pub(crate) fn is_spread(&self) -> bool {
        !self.spread.is_empty()
    }

    /// Whether there are none.
    pub(super) fn empty(&self) -> bool {
        self.forbidden.is_empty()
            && self.unwanted.is_empty()
            && self.wanted.is_empty()
            && self.spread.is_empty()
    }

    /// These rules as kube-scheduler asks them now: spreading reckons with the domains alone that nodes are in, and not with
    /// those that new nodes could open.
    pub(crate) fn as_things_are(&self) -> Rules {
        let mut rules = self.clone();
        for spread in &mut rules.spread {
            spread.open.clear();
        }
        rules
    }

    /// How many there are.
    fn len(&self) -> usize {
        self.forbidden.len() + self.unwanted.len() + self.wanted.len() + self.spread.len()
    }

    /// The counters that they read.
    pub(super) fn counters(&self) -> impl Iterator<Item = CounterId> + '_ {
        let spread = self.spread.iter().map(|spread| spread.counter);
        let unwanted = self.unwanted.iter().map(|(counter, _)| *counter);
        let others = self.forbidden.iter().chain(&self.wanted).copied();
        others.chain(unwanted).chain(spread)
    }

    /// Whether pods that come may open a place to a pod with these rules: it has affinity to them, or is spread.
    pub(crate) fn may_open(&self) -> bool {
        !(self.wanted.is_empty() && self.spread.is_empty())
    }

    /// Whether there is nothing but required affinity.
    pub(crate) fn is_affinity_alone(&self) -> bool {
        self.forbidden.is_empty() && self.unwanted.is_empty() && self.spread.is_empty()
    }

    /// Whether it matters which other pods are where, beside how they are spread.
    pub(crate) fn has_affinity(&self) -> bool {
        !(self.forbidden.is_empty() && self.unwanted.is_empty() && self.wanted.is_empty())
    }

    /// Whether one pod of the shape keeps the next from the same domain, whatever else there is:
    /// every pod needs a domain of its own.
    pub(crate) fn need_a_node_each(&self) -> bool {
        self.unwanted.iter().any(|(_, itself)| *itself)
    }

    /// Whether placing one pod of the shape may open a domain that was shut for the next.
    pub(crate) fn loosens(&self) -> bool {
        self.spread.iter().any(|spread| spread.counts_itself)
    }
}

impl InterPodConstraints<'_> {
    /// How many more pods of a shape with these rules one place may take, as far as other pods are
    /// concerned; 0 where it may not take the next.
    pub(crate) fn most(&self, rules: &Rules, at: impl Fn(KeyId) -> DomainId + Copy) -> u64 {
        self.most_with(rules, at, |_| false)
    }

    /// How many more pods of a shape with these rules a new node may take on which `pods` will run too and are not
    /// counted yet (those of its DaemonSets): one of them may be whom the shape's affinity wants there.
    pub(crate) fn most_beside<'s>(
        &self,
        rules: &Rules,
        at: impl Fn(KeyId) -> DomainId + Copy,
        pods: &(impl Iterator<Item = NamespacedShape<'s>> + Clone),
    ) -> u64 {
        let most = self.most(rules, at);
        if most > 0 || rules.wanted.is_empty() {
            return most;
        }
        let around = self.around();
        self.most_with(rules, at, |counter| {
            let who = &self.counters[counter].subject.who;
            pods.clone().any(|pod| who.takes_in(&around, pod))
        })
    }

    /// `has` says which counters count a pod that is not there yet.
    fn most_with(
        &self,
        rules: &Rules,
        at: impl Fn(KeyId) -> DomainId + Copy,
        has: impl Fn(CounterId) -> bool,
    ) -> u64 {
        let count = |counter: CounterId| {
            let counter = &self.counters[counter];
            counter.pods(at(counter.subject.key))
        };
        self.work(1 + rules.len());
        let mut most = u64::MAX;
        if rules.forbidden.iter().any(|counter| count(*counter) > 0) {
            return 0;
        }
        for (counter, itself) in &rules.unwanted {
            let nowhere = at(self.counters[*counter].subject.key) == NOWHERE;
            if nowhere {
                continue;
            }
            if count(*counter) > 0 {
                return 0;
            }
            if *itself {
                most = 1;
            }
        }
        for counter in &rules.wanted {
            if at(self.counters[*counter].subject.key) == NOWHERE {
                return 0;
            }
        }
        let mut wanted = rules.wanted.iter();
        let met = wanted.all(|counter| count(*counter) > 0 || has(*counter));
        if !met && !self.first_of_its_kind(rules) {
            return 0;
        }
        for spread in &rules.spread {
            most = most.min(self.spread_room(spread, at));
            if most == 0 {
                break;
            }
        }
        most
    }

    /// Whether a pod with these rules can be nowhere, whatever room there is: pods that it has affinity to have no place yet, and it
    /// is none of them.
    pub(crate) fn is_stranded(&self, rules: &Rules) -> bool {
        self.work(1);
        let missing = |counter: &CounterId| self.counters[*counter].total() == 0;
        rules.wanted.iter().any(missing) && !self.first_of_its_kind(rules)
    }

    /// Whether domains count for the spreading of pods with these rules that no node is in yet.
    pub(crate) fn waits_for_domains(&self, rules: &Rules) -> bool {
        rules.spread.iter().any(|spread| {
            let counter = &self.counters[spread.counter];
            spread.open.iter().any(|domain| !counter.knows(*domain))
        })
    }

    /// Pods in the domains of these nodes beyond what spreading lets them have, as things are now.
    pub(crate) fn uneven(&self, rules: &Rules, nodes: &[NodeIndex]) -> usize {
        let spread = rules.spread.iter().filter(|spread| spread.counts_itself);
        spread
            .map(|spread| {
                let counter = &self.counters[spread.counter];
                let enough = counter.domains() >= spread.min_domains;
                let least = counter.least().filter(|_| enough).unwrap_or(0);
                let most = least.saturating_add(spread.max_skew);
                let key = counter.subject.key;
                let domains = nodes.iter().map(|node| self.topology.of(key, *node));
                let known: BTreeSet<DomainId> =
                    domains.filter(|domain| counter.knows(*domain)).collect();
                let over = known.iter().map(|domain| counter.pods(*domain) - most);
                over.map(|over| usize::try_from(over).unwrap_or(0))
                    .sum::<usize>()
            })
            .sum()
    }

    fn first_of_its_kind(&self, rules: &Rules) -> bool {
        rules.wants_itself
            && rules
                .wanted
                .iter()
                .all(|counter| self.counters[*counter].total() == 0)
    }

    fn spread_room(&self, spread: &SpreadRule, at: impl Fn(KeyId) -> DomainId) -> u64 {
        let counter = &self.counters[spread.counter];
        let domain = at(counter.subject.key);
        let missing = |key: &KeyId| at(*key) == NOWHERE;
        if domain == NOWHERE || counter.subject.scope.keys.iter().any(missing) {
            return 0;
        }
        let here = counter.pods(domain);
        let known = counter.knows(domain);
        let here = if known { here } else { 0 };
        let domains = counter.domains() + usize::from(!known);
        let too_few = domains < spread.min_domains || self.unopened(spread, domain).is_some();
        if !spread.counts_itself {
            let least = if known && !too_few {
                counter.least().unwrap_or(0)
            } else {
                0
            };
            let fits = here.saturating_sub(least) <= spread.max_skew;
            return if fits { u64::MAX } else { 0 };
        }
        if too_few {
            return room(spread.max_skew, here);
        }
        match counter.least_beside(domain) {
            // It is the only domain: it is the least itself.
            _ if spread.max_skew < 1 => 0,
            None => u64::MAX,
            Some(beside) => room(beside.saturating_add(spread.max_skew), here),
        }
    }

    /// Another domain than this, where no node is yet and a new one could be.
    fn unopened(&self, spread: &SpreadRule, domain: DomainId) -> Option<DomainId> {
        let counter = &self.counters[spread.counter];
        let mut open = spread.open.iter().copied();
        open.find(|other| *other != domain && !counter.knows(*other))
    }

    /// The sum of what the least domains hold: it rises when a domain may have been opened.
    pub(crate) fn floor(&self, rules: &Rules) -> i64 {
        rules
            .spread
            .iter()
            .filter(|spread| spread.counts_itself)
            .filter(|spread| self.unopened(spread, NOWHERE).is_none())
            .filter_map(|spread| self.counters[spread.counter].least())
            .fold(0, i64::saturating_add)
    }

    /// Whether pods there are keep a pod with these rules away from a place, by affinity or anti-affinity. Affinity to pods of which
    /// none is there keeps it away from nowhere: they may come to any place.
    pub(crate) fn is_barred(&self, rules: &Rules, at: impl Fn(KeyId) -> DomainId) -> bool {
        let there = |counter: CounterId| {
            let counter = &self.counters[counter];
            counter.pods(at(counter.subject.key)) > 0
        };
        let somewhere = |counter: CounterId| self.counters[counter].total() > 0;
        let against = rules.unwanted.iter().map(|(counter, _)| *counter);
        let mut against = rules.forbidden.iter().copied().chain(against);
        let mut wanted = rules.wanted.iter().copied();
        against.any(there) || wanted.any(|counter| somewhere(counter) && !there(counter))
    }

    /// The counters of pods that a pod with these rules has affinity to, of which none has a place yet.
    pub(crate) fn without_target(&self, rules: &Rules) -> Vec<CounterId> {
        let wanted = rules.wanted.iter().copied();
        let nowhere = wanted.filter(|counter| self.counters[*counter].total() == 0);
        nowhere.collect()
    }

    /// Whether a counter counts pods of a shape.
    pub(crate) fn is_counted(&self, counter: CounterId, id: ShapeId) -> bool {
        self.feeds[id].contains(&counter)
    }

    /// Whether pods with these rules have required affinity to pods of a shape.
    pub(crate) fn is_wanted(&self, rules: &Rules, id: ShapeId) -> bool {
        let mut wanted = rules.wanted.iter();
        wanted.any(|counter| self.is_counted(*counter, id))
    }

    /// Whether anti-affinity or topology spread over a key of this name keeps pods with these rules and pods of a shape apart.
    pub(crate) fn is_kept_apart(&self, rules: &Rules, key: &str, id: ShapeId) -> bool {
        let unwanted = rules.unwanted.iter().map(|(counter, _)| *counter);
        let spread = rules.spread.iter().map(|spread| spread.counter);
        let apart = rules.forbidden.iter().copied();
        let mut apart = apart.chain(unwanted).chain(spread);
        apart.any(|counter| {
            self.is_counted(counter, id) && **self.topology.name(self.key_of(counter)) == *key
        })
    }

    /// The topology key of a counter.
    pub(crate) fn key_of(&self, counter: CounterId) -> KeyId {
        self.counters[counter].subject.key
    }

    /// Why the next pod may not go to a place, if it may not.
    pub(crate) fn filter_failure(
        &self,
        rules: &Rules,
        at: impl Fn(KeyId) -> DomainId + Copy,
    ) -> Option<FilterFailure> {
        if self.most(rules, at) > 0 {
            return None;
        }
        let facts = |counter: CounterId| {
            let counter = &self.counters[counter];
            let key = counter.subject.key;
            let domain = at(key);
            let name = self.topology.name(key);
            (counter.pods(domain), name, key, domain)
        };
        let value = |key: KeyId, domain: DomainId| self.topology.value(key, domain).cloned();
        for counter in &rules.forbidden {
            let (pods, name, key, domain) = facts(*counter);
            if pods > 0 {
                return Some(FilterFailure::AntiAffinityOfOthers {
                    key: name.clone(),
                    domain: value(key, domain),
                });
            }
        }
        for (counter, _) in &rules.unwanted {
            let (pods, name, key, domain) = facts(*counter);
            if pods > 0 {
                return Some(FilterFailure::AntiAffinity {
                    key: name.clone(),
                    domain: value(key, domain),
                    selectors: self.counters[*counter].subject.who.selectors(),
                    namespaces: self.counters[*counter].subject.who.namespaces(),
                });
            }
        }
        for counter in &rules.wanted {
            let (pods, name, key, domain) = facts(*counter);
            if domain == NOWHERE {
                return Some(FilterFailure::AffinityLabel { key: name.clone() });
            }
            if pods == 0 && !self.first_of_its_kind(rules) {
                return Some(FilterFailure::Affinity {
                    key: name.clone(),
                    domain: value(key, domain),
                    selectors: self.counters[*counter].subject.who.selectors(),
                    namespaces: self.counters[*counter].subject.who.namespaces(),
                    nowhere: self.counters[*counter].total() == 0,
                });
            }
        }
        rules
            .spread
            .iter()
            .find(|spread| self.spread_room(spread, at) == 0)
            .map(|spread| self.spread_filter_failure(spread, at))
    }

    fn spread_filter_failure(
        &self,
        spread: &SpreadRule,
        at: impl Fn(KeyId) -> DomainId,
    ) -> FilterFailure {
        let counter = &self.counters[spread.counter];
        let missing = |key: &&KeyId| at(**key) == NOWHERE;
        if let Some(missing) = counter.subject.scope.keys.iter().find(missing) {
            let key = self.topology.name(*missing).clone();
            return FilterFailure::SpreadLabel { key };
        }
        let key = counter.subject.key;
        let domain = at(key);
        let known = counter.knows(domain);
        let domains = counter.domains() + usize::from(!known);
        let few = domains < spread.min_domains;
        let unopened = self.unopened(spread, domain);
        let least = if !known || few || unopened.is_some() {
            0
        } else {
            counter.least().unwrap_or(0)
        };
        let emptiest = unopened.or_else(|| counter.emptiest().filter(|_| known && !few));
        let here = if known { counter.pods(domain) } else { 0 };
        FilterFailure::Spread {
            key: self.topology.name(key).clone(),
            domain: self.topology.value(key, domain).cloned(),
            pods: here.saturating_add(i64::from(spread.counts_itself)),
            least,
            least_domain: emptiest.and_then(|emptiest| self.topology.value(key, emptiest).cloned()),
            least_is_new: unopened.is_some(),
            max_skew: spread.max_skew,
            domains: few.then_some(domains),
            min_domains: few.then_some(spread.min_domains),
        }
    }
}

/// How many go in until `limit` is reached.
fn room(limit: i64, here: i64) -> u64 {
    u64::try_from(limit.saturating_sub(here)).unwrap_or(0)
}
