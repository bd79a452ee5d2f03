//! One pod, tried on every node, every machine under way and every offer.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::constraints::fit;
use crate::constraints::fit::volumes::{self, VolumeNeed};
use crate::constraints::shape::NamespacedShape;
use crate::decision::turn::DecisionBuilder;
use crate::index::{ChoiceIndex, IndexVec, KeyId, NodeIndex, OfferIndex, ShapeId};
use crate::scale_up::limits::LimitTracker;
use crate::simulation::inter_pod::Rules;
use crate::simulation::inter_pod::topology::{DomainId, DomainsByKey};
use crate::simulation::offer::{Choice, ChoiceList, Offer};
use crate::simulation::preempt;
use crate::simulation::world::{NodeOrigin, SimCluster, SimNode};
use model::change;
use model::cluster::{ObjectKey, Pod};
use model::reasons::{FilterFailure, Kept, Refusals, Refused};
use model::report::{Hold, NodeVerdict, PodVerdict, Scope};
use model::story::{NodeAnswer, NodeToGo, OfferAnswer, PodStory};

use super::{Asked, decided, node, preferences};

/// The domain that a node of each offer would be in, by choice, offer and topology key.
pub(super) type OfferDomains = IndexVec<ChoiceIndex, IndexVec<OfferIndex, DomainsByKey>>;

/// What is asked of every place.
struct PodQuestion<'w, 'a> {
    world: &'w SimCluster<'a>,
    shape: ShapeId,
    need: Option<VolumeNeed>,
    rules: Option<Arc<Rules>>,
    /// The domain that a node of each offer would be in, by choice, offer and topology key.
    domains: OfferDomains,
    /// Places where it fits, or would once expendable pods are preempted for it; and which.
    victims: BTreeMap<NodeIndex, BTreeMap<ObjectKey, i32>>,
}

/// Tells of a pod that the view has.
pub(super) fn tell(asked: Asked<'_>, key: &ObjectKey, pod: &Pod) -> PodStory {
    // It must not meet itself where the others are placed, or where it runs.
    let mut others = asked.snapshot.clone();
    others.cluster.pods.remove(key);
    let mut turn = super::begin(Asked {
        snapshot: &others,
        ..asked
    });
    turn.beside = Some(NamespacedShape {
        namespace: &key.namespace,
        shape: &pod.shape,
    });
    let choices = super::choices(&turn);
    let (mut world, _) = super::settle(&mut turn, &choices, asked.memory);
    let shape = world.intern(&key.namespace, &pod.shape);
    let need = volumes::explain_need(key, pod, turn.view.claim_view());
    let victims = victims(&mut world, &turn, shape, need.as_ref());
    let question = PodQuestion {
        shape,
        need,
        rules: world.rules(shape),
        domains: domains(&mut world, &choices),
        victims,
        world: &world,
    };
    // A pod that has to wait does so beside what is planned for others.
    let verdict = asked.decision.report.pods.get(key).cloned();
    let at = pod.node.as_ref();
    let node_verdict = at.and_then(|node| asked.decision.report.nodes.get(node));
    let keeps_node = node_verdict.and_then(node::pod_without_machine) == Some(key);
    let limits = if keeps_node || matches!(verdict, Some(PodVerdict::Held { .. })) {
        decided::carry_out(&turn, &choices, asked.decision).limits
    } else {
        LimitTracker::of(&turn)
    };
    let (place, preferences) = match preferences::weigh(asked, &turn, &choices, key, pod) {
        Some((place, preferences)) => (Some(place), preferences),
        None => (None, Vec::new()),
    };
    let offers = question.offers(&turn, &choices, &limits);
    let waits = matches!(
        verdict,
        Some(PodVerdict::Held { .. } | PodVerdict::NoCompatiblePool { .. })
    );
    let changes = if keeps_node || waits && pod.node.is_none() {
        change::find_changes(&offers)
    } else {
        Vec::new()
    };
    PodStory {
        pod: key.clone(),
        bound: pod.node.clone(),
        phase: pod.phase,
        priority: pod.shape.priority,
        asks: pod.shape.requests.clone(),
        verdict,
        node_to_go: find_node_to_go(asked, key, pod),
        offers,
        nodes: question.nodes(),
        changes,
        holds: growth_holds(&asked.decision.report.holds),
        place,
        preferences,
    }
}

/// What becomes of the node that a pod runs on, where that is to go, and of the pod with it.
fn find_node_to_go(asked: Asked<'_>, key: &ObjectKey, pod: &Pod) -> Option<NodeToGo> {
    let name = pod.node.as_ref()?;
    let verdict = asked.decision.report.nodes.get(name)?;
    let goes = match verdict {
        NodeVerdict::Leaving { .. } | NodeVerdict::Replaced { .. } => true,
        NodeVerdict::Kept { why, .. } => matches!(why, Kept::GivenUp { .. }),
        NodeVerdict::NotAutoscaled | NodeVerdict::Unread { .. } => false,
    };
    if !goes {
        return None;
    }
    Some(NodeToGo {
        verdict: verdict.clone(),
        fate: node::find_fate(asked, name, key)?,
    })
}

/// By place: whom kube-scheduler would preempt there for the pod.
fn victims(
    world: &mut SimCluster<'_>,
    turn: &DecisionBuilder<'_>,
    shape: ShapeId,
    need: Option<&VolumeNeed>,
) -> BTreeMap<NodeIndex, BTreeMap<ObjectKey, i32>> {
    let expendable: Vec<NodeIndex> = world.expendable_pods.keys().copied().collect();
    let asked = expendable.into_iter().filter_map(|index| {
        let victims = preempt::ask(world, &turn.view, shape, need, index)?;
        Some((index, victims))
    });
    asked.collect()
}

/// The domain that a node of each offer would be in, by choice, offer and topology key.
pub(super) fn domains(world: &mut SimCluster<'_>, choices: &ChoiceList<'_>) -> OfferDomains {
    let mut of = |offer: &Offer<'_>| {
        let keys = world.inter_pod.key_ids();
        keys.map(|key| world.inter_pod.domain(key, &offer.labels))
            .collect()
    };
    choices
        .iter()
        .map(|choice| choice.offers.iter().map(&mut of).collect())
        .collect()
}

/// The holds that have to do with adding nodes.
fn growth_holds(holds: &[Hold]) -> Vec<Hold> {
    let concerns = |hold: &&Hold| hold.scope != Scope::ScaleDown;
    holds.iter().filter(concerns).cloned().collect()
}

impl PodQuestion<'_, '_> {
    fn nodes(&self) -> Vec<NodeAnswer> {
        let mut answers: Vec<NodeAnswer> = self
            .world
            .nodes
            .indexed()
            .filter(|(_, node)| !matches!(node.origin, NodeOrigin::Planned(_)))
            .map(|(index, node)| {
                let mut filter_failures = self.on(index, node).into_iter();
                NodeAnswer {
                    name: node.name.clone(),
                    coming: node.origin != NodeOrigin::Node,
                    free: node.free.clone(),
                    filter_failure: filter_failures.next(),
                    further: filter_failures.collect(),
                    preempts: self.victims.get(&index).cloned().unwrap_or_default(),
                }
            })
            .collect();
        answers.sort_by(|a, b| a.name.cmp(&b.name));
        answers
    }

    /// All that keeps the pod off a node there is.
    fn on(&self, index: NodeIndex, node: &SimNode) -> Vec<FilterFailure> {
        // A node that goes is no place, whatever becomes of the pod.
        if node.closed {
            return vec![FilterFailure::Leaving];
        }
        if self.victims.contains_key(&index) {
            return Vec::new();
        }
        let shape = self.world.shapes[self.shape].shape;
        self.world
            .filter_failures(index, shape, self.need.as_ref())
            .chain(fit::all_shortages(shape, &node.free, &node.ports))
            .chain(self.inter_pod(self.world.inter_pod.at(index)))
            .map(fit::here)
            .collect()
    }

    /// What other pods forbid.
    fn inter_pod(&self, at: impl Fn(KeyId) -> DomainId + Copy) -> Option<FilterFailure> {
        self.world
            .inter_pod
            .filter_failure(self.rules.as_deref()?, at)
    }

    fn offers(
        &self,
        turn: &DecisionBuilder<'_>,
        choices: &ChoiceList<'_>,
        limits: &LimitTracker,
    ) -> Vec<OfferAnswer> {
        let mut answers = Vec::new();
        for (choice, of_choice) in choices.iter().zip(&self.domains) {
            let limit = limits.admits(turn, choice).err().map(Arc::new);
            for (offer, domains) in choice.offers.iter().zip(of_choice) {
                let mut filter_failures = self.of(choice, offer, domains).into_iter();
                answers.push(OfferAnswer {
                    pool: choice.pool.clone(),
                    instance_type: choice.type_name.clone(),
                    region: region(turn, choice),
                    host: offer.host.clone(),
                    price: choice.price,
                    free: offer.free.clone(),
                    filter_failure: filter_failures.next(),
                    further: filter_failures.collect(),
                    held: both(limit.as_ref(), limits.host_admits(choice, offer).err()),
                });
            }
            if choice.offers.is_empty() {
                answers.push(nowhere(turn, choice, limit));
            }
        }
        answers
    }

    /// All that keeps the pod off a new machine.
    fn of(
        &self,
        choice: &Choice<'_>,
        offer: &Offer<'_>,
        domains: &DomainsByKey,
    ) -> Vec<FilterFailure> {
        let shape = self.world.shapes[self.shape].shape;
        let given = &self.world.assumed;
        let volume = self.need.as_ref().and_then(|need| {
            choice.volume_filter_failure(offer, need, &self.world.free_volumes, given)
        });
        choice
            .filter_failures(offer, shape)
            .chain(volume)
            .chain(self.inter_pod(|key| domains[key]))
            .collect()
    }
}

/// Why a pool makes nothing, and why a host would take nothing if it did: what passes by itself does not hide what does not.
fn both(limit: Option<&Arc<Refused>>, host: Option<Refused>) -> Option<Refusals> {
    let host = host.map(Arc::new);
    match (limit.cloned(), host) {
        (Some(first), host) => Some(Refusals {
            first,
            more: host.into_iter().collect(),
        }),
        (None, host) => host.map(Refusals::from),
    }
}

/// The region of a choice, where its pool is in several.
fn region(turn: &DecisionBuilder<'_>, choice: &Choice<'_>) -> Option<Arc<str>> {
    let pool = turn.view.policy.pools.get(choice.pool)?;
    (!pool.further.is_empty()).then(|| choice.policy.region.clone())
}

/// A pool whose region shows no host that it may use.
fn nowhere(
    turn: &DecisionBuilder<'_>,
    choice: &Choice<'_>,
    limit: Option<Arc<Refused>>,
) -> OfferAnswer {
    let why = limit.unwrap_or_else(|| choice.nowhere.clone());
    OfferAnswer {
        pool: choice.pool.clone(),
        instance_type: choice.type_name.clone(),
        region: region(turn, choice),
        host: Arc::from(""),
        price: choice.price,
        free: choice.instance_type.capacity(),
        filter_failure: None,
        further: Vec::new(),
        held: Some(why.into()),
    }
}
