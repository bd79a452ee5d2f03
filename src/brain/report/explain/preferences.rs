//! What one pod prefers without insisting on it: which of it the place meets that the decision has for
//! the pod, and why not the rest.
//!
//! Weighed in the world as the decision leaves it ([`super::decided`]). The reasons come from all
//! other places where a preference would be met: what keeps the pod off each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use super::decided::{self, DecidedWorld, LeftOut};
use super::{Asked, pod};
use crate::constraints::fit::volumes::VolumeNeed;
use crate::constraints::fit::{self, NodeView, node_preferences, selector};
use crate::constraints::shape::HOSTNAME_LABEL;
use crate::decision::turn::DecisionBuilder;
use crate::index::{
    ApartTermIndex, ChoiceIndex, KeyId, NearTermIndex, NodeIndex, OfferIndex, ShapeId,
};
use crate::simulation::inter_pod::topology::{DomainId, FRESH, NOWHERE};
use crate::simulation::inter_pod::{Evenness, Preferences, Rules};
use crate::simulation::offer::{Choice, ChoiceList};
use crate::simulation::world::{NodeOrigin, SimCluster};
use crate::words;
use model::reasons::Reasons;
use model::report::PodVerdict;
use model::scheduling::{Effect, LabelSelector, NodeTerm, PodShape, PodTerm, Taint};
use model::story::{PreferenceAnswer, PreferenceKind};

/// The place of the decision, and everything the pod prefers there.
struct PreferenceEvaluator<'w, 'a> {
    world: &'w SimCluster<'a>,
    choices: &'w ChoiceList<'a>,
    pod: &'w PodShape,
    shape: ShapeId,
    preferences: Option<Arc<Preferences>>,
    /// Where it is, as an index.
    own: NodeIndex,
    /// The domain that a node of each offer would be in, by choice, offer and topology key.
    domains: pod::OfferDomains,
    /// Everywhere else.
    spots: Vec<OtherPlace>,
    placed_by: PlacedBy,
}

/// How the pod came to its place.
enum PlacedBy {
    /// It runs there.
    Bound,
    /// The decision counts it on what there is.
    Fits,
    /// A machine is planned for it, and for so many others.
    Planned { mates: u64, others: Reasons },
}

/// A place where the pod is not.
struct OtherPlace {
    what: NodeOrOffer,
    /// Why it could not be there even if nothing else ran there.
    never: Option<String>,
    /// Why it cannot be there now.
    filter_failure: Option<String>,
    /// What keeps such a machine from being made.
    held: Option<String>,
}

#[derive(Clone, Copy)]
enum NodeOrOffer {
    /// A simulated node.
    Node(NodeIndex),
    /// A machine that could be made: choice and offer.
    Offer(ChoiceIndex, OfferIndex),
}

/// Weighs what a pod prefers; `None` where the decision has no place for it. `turn` must not know the
/// pod.
pub(super) fn weigh<'a>(
    asked: Asked<'_>,
    turn: &DecisionBuilder<'a>,
    choices: &ChoiceList<'a>,
    DecidedWorld { world, limits }: &mut DecidedWorld<'a>,
    LeftOut { key, pod }: LeftOut<'a>,
) -> Option<(Arc<str>, Vec<PreferenceAnswer>)> {
    let verdict = asked.decision.report.pods.get(key);
    let place = verdict.map_or(pod.node.as_ref(), decided::place)?;
    let own = *world.by_name.get(place)?;
    let shape = world.intern(&key.namespace, &pod.shape);
    let named = world.preferences(shape, false);
    let usual = named.is_none();
    let preferences = named.or_else(|| world.preferences(shape, true));
    let rules = world.rules(shape);
    let mut judge = PreferenceEvaluator {
        choices,
        pod: &pod.shape,
        shape,
        preferences,
        own,
        domains: pod::domains(world, choices),
        spots: Vec::new(),
        placed_by: find_placed_by(asked, world, own, verdict),
        world,
    };
    let need = turn.view.need(key, pod);
    let held = |choice: &Choice<'a>, offer: OfferIndex| {
        let on_host = || limits.host_admits(choice, &choice.offers[offer]);
        let refused = limits.admits(turn, choice).and_then(|()| on_host()).err();
        refused.map(|refused| refused.to_string())
    };
    judge.spots = judge.look_around(need.as_ref(), rules.as_deref(), held);
    Some((place.clone(), judge.answers(usual)))
}

/// How the pod came to its place.
fn find_placed_by(
    asked: Asked<'_>,
    world: &SimCluster<'_>,
    own: NodeIndex,
    verdict: Option<&PodVerdict>,
) -> PlacedBy {
    match verdict {
        None => PlacedBy::Bound,
        Some(PodVerdict::Triggers { machine, others }) => {
            let pods = asked.decision.report.pods.values();
            let here = pods.filter(|other| decided::place(other) == Some(machine));
            let here = here.count().saturating_sub(1);
            let planned = matches!(world.nodes[own].origin, NodeOrigin::Planned(_));
            let mates = if planned { here as u64 } else { 0 };
            let others = others.clone();
            PlacedBy::Planned { mates, others }
        }
        Some(_) => PlacedBy::Fits,
    }
}

impl<'a> PreferenceEvaluator<'_, 'a> {
    /// All places but its own.
    fn look_around(
        &self,
        need: Option<&VolumeNeed>,
        rules: Option<&Rules>,
        held: impl Fn(&Choice<'a>, OfferIndex) -> Option<String>,
    ) -> Vec<OtherPlace> {
        let inter_pod = |what: NodeOrOffer| {
            let filter_failure = |asked| {
                let at = |key| self.domain(what, key);
                self.world.inter_pod.filter_failure(asked, at)
            };
            rules
                .and_then(filter_failure)
                .map(|filter_failure| filter_failure.to_string())
        };
        let nodes = self.world.by_name.values().copied();
        let nodes = nodes.filter(|node| *node != self.own && !self.world.nodes[*node].closed);
        let mut spots: Vec<OtherPlace> = nodes
            .map(|index| {
                let (what, node) = (NodeOrOffer::Node(index), &self.world.nodes[index]);
                let fixed = self.world.filter_failure(index, self.pod, need);
                let fixed = fixed.map(|filter_failure| fit::here(filter_failure).to_string());
                let never = fixed.or_else(|| inter_pod(what));
                let shortage = || fit::first_shortage(self.pod, &node.free, &node.ports);
                let filter_failure = never
                    .clone()
                    .or_else(|| Some(fit::here(shortage()?).to_string()));
                OtherPlace {
                    what,
                    never,
                    filter_failure,
                    held: None,
                }
            })
            .collect();
        for (at, choice) in self.choices.indexed() {
            for (index, offer) in choice.offers.indexed() {
                let what = NodeOrOffer::Offer(at, index);
                let filter_failure = choice.filter_failure(offer, self.pod);
                let filter_failure = filter_failure.or_else(|| {
                    let (stock, given) = (&self.world.free_volumes, &self.world.assumed);
                    choice.volume_filter_failure(offer, need?, stock, given)
                });
                let filter_failure =
                    filter_failure.map(|filter_failure| filter_failure.to_string());
                let filter_failure = filter_failure.or_else(|| inter_pod(what));
                spots.push(OtherPlace {
                    what,
                    never: filter_failure.clone(),
                    filter_failure,
                    held: held(choice, index),
                });
            }
        }
        spots
    }

    fn domain(&self, what: NodeOrOffer, key: KeyId) -> DomainId {
        match what {
            NodeOrOffer::Node(node) => self.world.inter_pod.at(node)(key),
            NodeOrOffer::Offer(choice, offer) => self.domains[choice][offer][key],
        }
    }

    fn place(&self, what: NodeOrOffer) -> NodeView<'_> {
        match what {
            NodeOrOffer::Node(node) => self.world.nodes[node].place(),
            NodeOrOffer::Offer(choice, offer) => {
                let choice = &self.choices[choice];
                choice.place(&choice.offers[offer])
            }
        }
    }

    /// Every preference; with `usual` those about other pods are kube-scheduler's own.
    fn answers(&self, usual: bool) -> Vec<PreferenceAnswer> {
        let mut answers = Vec::new();
        for (weight, term) in &self.pod.preferred_nodes {
            answers.push(self.node(*weight, term));
        }
        answers.extend(self.taints());
        let Some(preferences) = self.preferences.clone() else {
            return answers;
        };
        let spreads = self
            .world
            .inter_pod
            .spreads(&preferences, self.world.shapes[self.shape]);
        if usual {
            let unmet = spreads.into_iter().map(|spread| PreferenceAnswer {
                kind: PreferenceKind::DefaultSpread,
                ..self.spread(spread)
            });
            answers.extend(unmet.filter(|answer| !answer.met));
            return answers;
        }
        let near = (0..).map(NearTermIndex).zip(&self.pod.preferred_pods);
        for (index, (weight, term)) in near {
            answers.push(self.near(&preferences, index, *weight, term));
        }
        let apart = (0..).map(ApartTermIndex).zip(&self.pod.preferred_anti_pods);
        for (index, (weight, term)) in apart {
            answers.push(self.apart(&preferences, index, *weight, term));
        }
        answers.extend(spreads.into_iter().map(|spread| self.spread(spread)));
        answers
    }

    /// Preferred node affinity.
    fn node(&self, weight: i32, term: &NodeTerm) -> PreferenceAnswer {
        let meets = |what: NodeOrOffer| {
            let place = self.place(what);
            selector::term(term, place.name, place.labels)
        };
        let words: Vec<String> = term
            .expressions
            .iter()
            .chain(&term.fields)
            .map(ToString::to_string)
            .collect();
        let preference = if words.is_empty() {
            "prefers nodes by a term without requirements, which no node meets".to_owned()
        } else {
            format!("prefers nodes with {}", words.join(" and "))
        };
        self.answer(
            PreferenceKind::NodeAffinity,
            preference,
            Some(weight),
            meets,
        )
    }

    /// The `PreferNoSchedule` taints that the pod does not tolerate, on any place it could be on.
    fn taints(&self) -> Vec<PreferenceAnswer> {
        let unwanted = |taint: &&Taint| {
            taint.effect == Effect::PreferNoSchedule
                && !self.pod.tolerations.iter().any(|t| t.tolerates(taint))
        };
        let own = NodeOrOffer::Node(self.own);
        let possible = self.spots.iter().filter(|spot| spot.never.is_none());
        let places = possible.map(|spot| spot.what).chain([own]);
        let all: BTreeSet<&Taint> = places
            .flat_map(|what| self.place(what).taints.iter().filter(unwanted))
            .collect();
        all.into_iter()
            .map(|taint| {
                let value = if taint.value.is_empty() { "" } else { "=" };
                let (key, name) = (&taint.key, &taint.value);
                let preference = format!("prefers no taint {key}{value}{name}:PreferNoSchedule");
                let meets = |what: NodeOrOffer| !self.place(what).taints.contains(taint);
                self.answer(PreferenceKind::Taint, preference, None, meets)
            })
            .collect()
    }

    fn near(
        &self,
        preferences: &Preferences,
        index: NearTermIndex,
        weight: i32,
        term: &PodTerm,
    ) -> PreferenceAnswer {
        let pods = |what: NodeOrOffer| {
            self.world
                .inter_pod
                .near(preferences, index, |key| self.domain(what, key))
        };
        let preference = format!("prefers to be near {}", term_words(term));
        let mut answer = self.answer(
            PreferenceKind::PodAffinity,
            preference,
            Some(weight),
            |what| pods(what).0 > 0,
        );
        if !answer.met && pods(NodeOrOffer::Node(self.own)).1 == 0 {
            answer.why = Some("there is no such pod".to_owned());
        }
        answer
    }

    fn apart(
        &self,
        preferences: &Preferences,
        index: ApartTermIndex,
        weight: i32,
        term: &PodTerm,
    ) -> PreferenceAnswer {
        let pods = |what: NodeOrOffer| {
            self.world
                .inter_pod
                .apart(preferences, index, |key| self.domain(what, key))
        };
        let preference = format!("prefers to be away from {}", term_words(term));
        let mut answer = self.answer(
            PreferenceKind::PodAntiAffinity,
            preference,
            Some(weight),
            |what| pods(what) == 0,
        );
        if !answer.met {
            let here = match pods(NodeOrOffer::Node(self.own)) {
                1 => "one such pod is there".to_owned(),
                many => format!("{many} such pods are there"),
            };
            answer.why = Some(
                answer
                    .why
                    .map_or(here.clone(), |why| format!("{here}; {why}")),
            );
        }
        answer
    }

    fn spread(&self, of: Evenness) -> PreferenceAnswer {
        let inter_pod = &self.world.inter_pod;
        let key = inter_pod.key_name(of.key);
        let own = NodeOrOffer::Node(self.own);
        let possible = self.spots.iter().filter(|spot| spot.never.is_none());
        let all = possible.map(|spot| spot.what).chain([own]);
        let all = all.map(|what| self.domain(what, of.key));
        let domains: BTreeSet<DomainId> = all.filter(|domain| *domain < FRESH).collect();
        let itself = i64::from(of.itself);
        // A domain with this pod in it may be ahead of the least by so much.
        let even = |what: NodeOrOffer| {
            let at = self.domain(what, of.key);
            let with = |domain: DomainId| {
                let pods = inter_pod.spread_pods(of, domain);
                if domain == at { pods + itself } else { pods }
            };
            let least = domains.iter().map(|domain| with(*domain)).min();
            at != NOWHERE && with(at) - least.unwrap_or(0).min(with(at)) <= of.skew
        };
        let preference = format!("ScheduleAnyway over {key}, maxSkew {}", of.skew);
        let mut answer = self.answer(PreferenceKind::TopologySpread, preference, None, even);
        let at = self.domain(own, of.key);
        if at == NOWHERE {
            answer.why = Some(format!("the node does not carry the label {key}"));
        }
        let pods = domains.iter().map(|domain| {
            let more = if *domain == at { itself } else { 0 };
            let pods = inter_pod.spread_pods(of, *domain) + more;
            (inter_pod.domain_name(of.key, *domain), pods)
        });
        answer.pods = pods.collect::<BTreeMap<_, _>>();
        answer
    }

    fn answer(
        &self,
        kind: PreferenceKind,
        preference: String,
        weight: Option<i32>,
        meets: impl Fn(NodeOrOffer) -> bool,
    ) -> PreferenceAnswer {
        let met = meets(NodeOrOffer::Node(self.own));
        PreferenceAnswer {
            kind,
            preference,
            weight,
            met,
            pods: BTreeMap::new(),
            why: if met { None } else { Some(self.because(meets)) },
        }
    }

    /// What keeps the pod off the places that meet a preference.
    fn because(&self, meets: impl Fn(NodeOrOffer) -> bool) -> String {
        if matches!(self.placed_by, PlacedBy::Bound) {
            return "it runs there already: kube-scheduler chose that node".to_owned();
        }
        let better = || self.spots.iter().filter(|spot| meets(spot.what));
        let nodes: Vec<&OtherPlace> = better()
            .filter(|spot| matches!(spot.what, NodeOrOffer::Node(_)))
            .collect();
        let machines: Vec<&OtherPlace> = better()
            .filter(|spot| !matches!(spot.what, NodeOrOffer::Node(_)))
            .collect();
        let clauses = [self.of_nodes(&nodes), self.of_machines(&machines)];
        let clauses: Vec<String> = clauses.into_iter().flatten().collect();
        if clauses.is_empty() {
            return "no other node would meet it, and no new machine would".to_owned();
        }
        clauses.join("; ")
    }

    /// What keeps the pod off nodes, on which a preference would be met.
    fn of_nodes(&self, spots: &[&OtherPlace]) -> Option<String> {
        let name = |spot: &OtherPlace| match spot.what {
            NodeOrOffer::Node(node) => self.world.nodes[node].name.clone(),
            NodeOrOffer::Offer(..) => Arc::from(""),
        };
        let more = match spots.len() {
            0 => return None,
            1 => String::new(),
            many => format!(" ({many} nodes would meet it)"),
        };
        if let Some(free) = spots.iter().find(|spot| spot.filter_failure.is_none()) {
            let planned = matches!(self.placed_by, PlacedBy::Planned { .. });
            let why = if planned {
                "has room once all pods are placed: machines are filled before preferences are weighed"
            } else {
                "has room too: kube-scheduler chooses among existing nodes"
            };
            return Some(format!("{} {why}{more}", name(free)));
        }
        let first = spots.first()?;
        let why = first.filter_failure.as_deref().unwrap_or_default();
        Some(format!("on {}: {why}{more}", name(first)))
    }

    /// What keeps the pod off machines that could be made, on which a preference would be met.
    fn of_machines(&self, spots: &[&OtherPlace]) -> Option<String> {
        let free = spots
            .iter()
            .find(|spot| spot.filter_failure.is_none() && spot.held.is_none());
        let held = || spots.iter().find(|spot| spot.filter_failure.is_none());
        let spot = free.or_else(held).or(spots.first())?;
        let NodeOrOffer::Offer(choice, offer) = spot.what else {
            return None;
        };
        let choice = &self.choices[choice];
        let (label, host) = (&choice.label, choice.offers[offer].host);
        if let Some(why) = &spot.filter_failure {
            return Some(format!("a new machine of {label} on {host}: {why}"));
        }
        if let Some(why) = &spot.held {
            return Some(format!(
                "no machine of {label} can be made on {host}: {why}"
            ));
        }
        let PlacedBy::Planned { mates, others } = &self.placed_by else {
            return Some("a preference alone makes no machine".to_owned());
        };
        if *mates > 0 {
            let pods = if *mates == 1 {
                "another pod".to_owned()
            } else {
                format!("{mates} other pods")
            };
            return Some(format!(
                "its machine is made for {pods} too, and a preference alone makes no other one"
            ));
        }
        let all = format!("{}/*", choice.pool);
        if let Some(lost) = others.get(label).or_else(|| others.get(&*all)) {
            return Some(format!("a machine of {label} on {host}: {lost}"));
        }
        let there = node_preferences::unmet(self.pod, self.place(spot.what));
        let here = node_preferences::unmet(self.pod, self.place(NodeOrOffer::Node(self.own)));
        Some(if there >= here && here > 0 {
            format!("a machine of {label} on {host} would not meet other preferences")
        } else {
            format!(
                "a machine of {label} on {host} costs {} an hour, and the planned machines carry more for their price or meet other pods' preferences",
                words::price(choice.price)
            )
        })
    }
}

/// Which pods, and within what, a term of pod affinity means.
fn term_words(term: &PodTerm) -> String {
    let who = match &term.selector {
        None => "no pods at all".to_owned(),
        Some(selector) => format!("pods{}", selector_words(selector)),
    };
    let mut of = String::new();
    if !term.namespaces.is_empty() {
        of = format!(" of the namespaces {}", term.namespaces.join(", "));
    }
    if let Some(selector) = &term.namespace_selector {
        let which = selector_words(selector);
        let also = if of.is_empty() { " of" } else { " and of" };
        let which = if which.is_empty() {
            " of any kind".to_owned()
        } else {
            format!(" with{which}")
        };
        let _ = write!(of, "{also} namespaces{which}");
    }
    let within = if *term.topology_key == *HOSTNAME_LABEL {
        "on the same node".to_owned()
    } else {
        format!("within the same {}", term.topology_key)
    };
    format!("{who}{of} {within}")
}

/// A label selector in words, with a space before it; empty for one that selects all.
fn selector_words(selector: &LabelSelector) -> String {
    let labels = selector
        .labels
        .iter()
        .map(|(key, value)| format!(" {key}={value}"));
    let more = selector.expressions.iter().map(|one| format!(" {one}"));
    let all: Vec<String> = labels.chain(more).collect();
    all.join(" and")
}
