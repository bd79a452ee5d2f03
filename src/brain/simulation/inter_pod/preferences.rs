//! Preferences about other pods, which no pod insists on: preferred affinity and anti-affinity,
//! and topology spread with `ScheduleAnyway`.
//!
//! In the units of `fit/node_preferences`: a preference of weight 100 that is not met counts 100. Source: kube-scheduler's scoring of `InterPodAffinity` and
//! `PodTopologySpread`, in integers: what it compares are nodes for one pod, and so does this.

use std::sync::Arc;

use super::counter::{SpreadScope, Who};
use super::topology::{DomainId, NOWHERE};
use super::{InterPodConstraints, NamespacedShape};
use crate::index::{ApartTermIndex, CounterId, IndexVec, KeyId, NearTermIndex, NodeIndex, ShapeId};
use crate::simulation::world::{SimNode, SimNodes, SimShapes};
use model::policy::ZONE_LABEL;
use model::scheduling::{PodTerm, SpreadConstraint};

/// What being spread evenly weighs: a pod more in the domain counts this by `maxSkew`.
const SPREAD_WEIGHT: i64 = 100;
/// The penalty of a domain stops growing at this many pods.
const MAX_COUNTED_PODS: i64 = 10_000;
/// kube-scheduler spreads the pods of a controller that name no constraint with this skew over zones
/// (`systemDefaultConstraints`). Over nodes it does so too, which nothing here depends on.
const ZONE_SKEW: i32 = 5;

/// The preferences of one shape, compiled to counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Preferences {
    /// Preferred affinity terms: weight and counter.
    near: IndexVec<NearTermIndex, (i64, CounterId)>,
    /// Preferred anti-affinity terms: weight (for each pod) and counter.
    apart: IndexVec<ApartTermIndex, (i64, CounterId)>,
    /// `ScheduleAnyway` spread constraints: `maxSkew` and counter.
    even: Vec<(i64, CounterId)>,
}

/// One `ScheduleAnyway` constraint, looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evenness {
    counter: CounterId,
    /// Over which key.
    pub(crate) key: KeyId,
    /// `maxSkew` of the spread constraint: pods by which a domain may be ahead of the emptiest.
    pub(crate) skew: i64,
    /// The pod is among those that are spread.
    pub(crate) itself: bool,
}

/// Whether pods of a shape have preferences about other pods, the cluster's defaults apart.
pub(crate) fn has_preferences(
    pod: NamespacedShape<'_>,
    default_spread: &[SpreadConstraint],
) -> bool {
    let shape = pod.shape;
    !shape.preferred_pods.is_empty()
        || !shape.preferred_anti_pods.is_empty()
        || shape.spread.iter().any(|spread| !spread.hard)
        || default_spread.iter().any(|spread| !spread.hard) && shape.spread.is_empty()
}

fn weight(weight: i32) -> i64 {
    i64::from(weight).clamp(0, 100)
}

impl<'a> InterPodConstraints<'a> {
    /// The preferences of a shape about other pods; `None` where it has none. With `defaults` also what
    /// kube-scheduler prefers for it where it says nothing itself.
    pub(crate) fn preferences(
        &mut self,
        shapes: &SimShapes<'a>,
        nodes: &SimNodes,
        id: ShapeId,
        defaults: bool,
    ) -> Option<Arc<Preferences>> {
        let pod = shapes[id];
        let mut preferences = Preferences::default();
        if has_preferences(pod, self.default_spread) {
            let term = |inter_pod: &mut Self, term: &'a PodTerm| {
                let who = Who::Taken(pod.namespace, term);
                let scope = SpreadScope::default();
                inter_pod.counter(shapes, nodes, who, &term.topology_key, scope)
            };
            for (heavy, wanted) in &pod.shape.preferred_pods {
                preferences.near.push((weight(*heavy), term(self, wanted)));
            }
            for (heavy, unwanted) in &pod.shape.preferred_anti_pods {
                preferences
                    .apart
                    .push((weight(*heavy), term(self, unwanted)));
            }
            let soft = self.constraints(pod).iter().filter(|spread| !spread.hard);
            let soft: Vec<&SpreadConstraint> = soft.collect();
            let keys = soft.iter().map(|spread| &spread.topology_key);
            let mut keys: Vec<KeyId> = keys.map(|key| self.key(nodes, key)).collect();
            keys.sort_unstable();
            keys.dedup();
            for constraint in soft {
                let spread = self.spread(shapes, nodes, pod, constraint, &keys);
                preferences
                    .even
                    .push((spread.max_skew.max(1), spread.counter));
            }
        } else if defaults && self.default_spread.is_empty() && pod.shape.spread.is_empty() {
            preferences.even.extend(self.usual(shapes, nodes, pod));
        }
        let none = preferences.near.is_empty()
            && preferences.apart.is_empty()
            && preferences.even.is_empty();
        (!none).then(|| Arc::new(preferences))
    }

    /// The default of kube-scheduler that has to do with where machines are made.
    fn usual(
        &mut self,
        shapes: &SimShapes<'a>,
        nodes: &SimNodes,
        pod: NamespacedShape<'a>,
    ) -> Option<(i64, CounterId)> {
        super::replicated(pod).then(|| {
            let constraint = SpreadConstraint {
                max_skew: ZONE_SKEW,
                topology_key: ZONE_LABEL.into(),
                hard: false,
                selector: None,
                min_domains: None,
                match_label_keys: Vec::new(),
                honor_affinity: true,
                honor_taints: false,
            };
            let spread = self.spread(shapes, nodes, pod, &constraint, &[]);
            (i64::from(ZONE_SKEW), spread.counter)
        })
    }

    /// What one more pod with these preferences counts at a place: the less the better. Only places can be
    /// compared, for the same pod.
    pub(crate) fn penalty(
        &self,
        preferences: &Preferences,
        at: impl Fn(KeyId) -> DomainId + Copy,
    ) -> i64 {
        self.work(preferences.near.len() + preferences.apart.len() + preferences.even.len());
        let near = preferences.near.iter().map(|(weight, counter)| {
            let met = self.mates(*counter, at).is_some_and(|pods| pods > 0);
            if met { 0 } else { *weight }
        });
        let apart = preferences.apart.iter().map(|(weight, counter)| {
            let pods = self.mates(*counter, at).unwrap_or(0);
            weight * pods.clamp(0, MAX_COUNTED_PODS)
        });
        let even = preferences.even.iter().map(|(skew, counter)| {
            let pods = self.mates(*counter, at).unwrap_or(MAX_COUNTED_PODS);
            SPREAD_WEIGHT * pods.clamp(0, MAX_COUNTED_PODS) / skew
        });
        near.chain(apart).chain(even).fold(0, i64::saturating_add)
    }

    /// The pods of a preferred affinity term: in the domain of a place, and anywhere.
    pub(crate) fn near(
        &self,
        preferences: &Preferences,
        term: NearTermIndex,
        at: impl Fn(KeyId) -> DomainId,
    ) -> (i64, i64) {
        let (_, counter) = preferences.near[term];
        let here = self.mates(counter, at).unwrap_or(0);
        (here, self.counters[counter].total())
    }

    /// The pods of a preferred anti-affinity term in the domain of a place.
    pub(crate) fn apart(
        &self,
        preferences: &Preferences,
        term: ApartTermIndex,
        at: impl Fn(KeyId) -> DomainId,
    ) -> i64 {
        self.mates(preferences.apart[term].1, at).unwrap_or(0)
    }

    /// What a pod prefers to be spread over.
    pub(crate) fn spreads(
        &self,
        preferences: &Preferences,
        pod: NamespacedShape<'a>,
    ) -> Vec<Evenness> {
        let of = |(skew, counter): &(i64, CounterId)| {
            let subject = &self.counters[*counter].subject;
            Evenness {
                counter: *counter,
                key: subject.key,
                skew: *skew,
                itself: subject.who.takes_in(&self.around(), pod),
            }
        };
        preferences.even.iter().map(of).collect()
    }

    /// The pods that count for spreading in a domain.
    pub(crate) fn spread_pods(&self, of: Evenness, domain: DomainId) -> i64 {
        self.counters[of.counter].pods(domain)
    }

    /// The name of a topology key.
    pub(crate) fn key_name(&self, key: KeyId) -> &Arc<str> {
        self.topology.name(key)
    }

    /// The value that a domain of a key stands for.
    pub(crate) fn domain_name(&self, key: KeyId, domain: DomainId) -> Arc<str> {
        let value = self.topology.value(key, domain);
        value.map_or_else(|| "a new one".into(), Arc::clone)
    }

    /// Pods of a counter in the domain of a place; `None` where it has no such domain.
    fn mates(&self, counter: CounterId, at: impl Fn(KeyId) -> DomainId) -> Option<i64> {
        let counter = &self.counters[counter];
        let domain = at(counter.subject.key);
        (domain != NOWHERE).then(|| counter.pods(domain))
    }

    /// Whether rules that pods insist on look at where a pod of a shape is, so that it matters which of two
    /// places has it.
    pub(crate) fn pinned(
        &self,
        id: ShapeId,
        here: impl Fn(KeyId) -> DomainId,
        there: impl Fn(KeyId) -> DomainId,
    ) -> bool {
        let moved = |counter: &CounterId| {
            let counter = &self.counters[*counter];
            let key = counter.subject.key;
            counter.hard && here(key) != there(key)
        };
        let rules = self.rules[id].as_ref();
        self.feeds[id].iter().any(moved)
            || rules.is_some_and(|rules| rules.counters().any(|counter| moved(&counter)))
    }

    /// Whether spreading that pods insist on sees the same domains when an empty, closed place moves from
    /// `here` to `there`.
    pub(crate) fn may_move(
        &self,
        here: impl Fn(KeyId) -> DomainId,
        there: impl Fn(KeyId) -> DomainId,
    ) -> bool {
        let spreading = self.spreading.iter().map(|id| &self.counters[*id]);
        let spreading = spreading.filter(|counter| {
            let key = counter.subject.key;
            // Where nobody is counted, nobody is ahead of anybody.
            counter.hard && counter.total() > 0 && here(key) != there(key)
        });
        let mut spreading = spreading.map(|counter| {
            let key = counter.subject.key;
            counter.knows(here(key)) && counter.knows(there(key))
        });
        spreading.all(|same| same)
    }

    /// A closed place gets other labels, and so other domains.
    pub(crate) fn relocate(&mut self, index: NodeIndex, node: &SimNode) {
        self.topology.relocate(index, &node.labels);
        let around = super::Surroundings {
            namespaces: self.namespaces,
            topology: &self.topology,
        };
        for counter in &self.spreading {
            self.counters[*counter].see(&around, node, index);
        }
    }
}
