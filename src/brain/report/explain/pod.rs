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
use model::action::Kind;
use model::change;
use model::cluster::{ObjectKey, Pod};
use model::decision::Decision;
use model::reasons::{FilterFailure, Kept, Refusals, Refused};
use model::report::{Hold, NodeVerdict, PodVerdict, Scope};
use model::story::{NodeAnswer, NodeToGo, OfferAnswer, PlannedAnswer, PodStory};

use super::decided::{DecidedWorld, LeftOut};
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

/// Tells of a pod that the view has. A pod that waits is tried beside the machines that the decision makes and the pods that go there: they
/// may be the reason. One that runs is tried on what there is.
pub(super) fn tell(asked: Asked<'_>, key: &ObjectKey, pod: &Pod) -> PodStory {
    // It must not meet itself where the others are placed, or where it runs.
    let mut others = asked.snapshot.clone();
    others.cluster.pods.remove(key);
    let begin = || {
        let mut turn = super::begin(Asked {
            snapshot: &others,
            ..asked
        });
        turn.beside = Some(NamespacedShape {
            namespace: &key.namespace,
            shape: &pod.shape,
        });
        turn
    };
    let mut turn = begin();
    let choices = super::choices(&turn);
    let left_out = LeftOut { key, pod };
    let mut decided =
        decided::carry_out(&mut turn, &choices, asked.decision, asked.memory, left_out);
    let (place, preferences) =
        match preferences::weigh(asked, &turn, &choices, &mut decided, left_out) {
            Some((place, preferences)) => (Some(place), preferences),
            None => (None, Vec::new()),
        };
    let verdict = asked.decision.report.pods.get(key).cloned();
    let tables = if pod.node.is_none() {
        let own = verdict.as_ref().and_then(decided::place);
        decided.without_machine_of(&choices, asked.decision, own);
        let tables = Tables::of(&turn, &choices, left_out, decided, (asked.decision, own));
        tables.with_reasons_of(verdict.as_ref())
    } else {
        let mut fresh = begin();
        let (world, _) = super::settle(&mut fresh, &choices, asked.memory);
        // For a pod that keeps a node that is to go, no machine can be made beside what is planned for others.
        let limits = if keeps_its_node(asked, key, pod) {
            decided.limits
        } else {
            LimitTracker::of(&fresh)
        };
        let there = DecidedWorld { world, limits };
        Tables::of(&fresh, &choices, left_out, there, (asked.decision, None))
    };
    let changes = if waits(asked, key, pod) {
        change::find_changes(
            &tables.offers,
            &tables.planned,
            find_target(verdict.as_ref()),
        )
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
        offers: tables.offers,
        nodes: tables.nodes,
        planned: tables.planned,
        changes,
        holds: growth_holds(&asked.decision.report.holds),
        place,
        preferences,
    }
}

/// Whether a pod waits for a machine that is not made, or keeps its node since none can be made for it.
fn waits(asked: Asked<'_>, key: &ObjectKey, pod: &Pod) -> bool {
    let verdict = asked.decision.report.pods.get(key);
    let held = matches!(
        verdict,
        Some(PodVerdict::Held { .. } | PodVerdict::NoCompatiblePool { .. })
    );
    held && pod.node.is_none() || keeps_its_node(asked, key, pod)
}

/// Whether a pod keeps the node that it is on, which is to go, since no machine can be made for it.
fn keeps_its_node(asked: Asked<'_>, key: &ObjectKey, pod: &Pod) -> bool {
    let at = pod.node.as_ref();
    let verdict = at.and_then(|node| asked.decision.report.nodes.get(node));
    verdict.and_then(node::pod_without_machine) == Some(key)
}

/// The pod that a pod must be with and that has no place itself, by its verdict.
fn find_target(verdict: Option<&PodVerdict>) -> Option<&ObjectKey> {
    let (PodVerdict::Held { why } | PodVerdict::NoCompatiblePool { why }) = verdict? else {
        return None;
    };
    let mut all = why.values().flat_map(Refusals::iter);
    all.find_map(|refused| match &**refused {
        Refused::TargetWaits { pod } => Some(pod),
        _ => None,
    })
}

/// The tables of a story: whether the pod would run on each offer, on each node and machine under way, and on each planned machine.
struct Tables {
    offers: Vec<OfferAnswer>,
    nodes: Vec<NodeAnswer>,
    planned: Vec<PlannedAnswer>,
}

impl Tables {
    /// Tries a pod on everything. `own`: where the decision has it.
    fn of<'a>(
        turn: &DecisionBuilder<'a>,
        choices: &ChoiceList<'a>,
        LeftOut { key, pod }: LeftOut<'a>,
        DecidedWorld { mut world, limits }: DecidedWorld<'a>,
        (decision, own): (&Decision, Option<&Arc<str>>),
    ) -> Tables {
        let shape = world.intern(&key.namespace, &pod.shape);
        let need = volumes::explain_need(key, pod, turn.view.claim_view());
        let victims = victims(&mut world, turn, shape, need.as_ref());
        let question = PodQuestion {
            shape,
            need,
            rules: world.rules(shape),
            domains: domains(&mut world, choices),
            victims,
            world: &world,
        };
        Tables {
            offers: question.offers(turn, choices, &limits),
            nodes: question.nodes(),
            planned: question.planned(turn, decision, own),
        }
    }

    /// Where nothing is against a machine that was not made, the reason is the verdict's own: the plan may have looked at less than all.
    fn with_reasons_of(mut self, verdict: Option<&PodVerdict>) -> Tables {
        let Some(PodVerdict::Held { why } | PodVerdict::NoCompatiblePool { why }) = verdict else {
            return self;
        };
        for offer in &mut self.offers {
            if offer.filter_failure.is_some() || offer.held.is_some() {
                continue;
            }
            let (pool, kind) = (&offer.pool, &offer.instance_type);
            let said = [
                format!("{pool}/{kind}"),
                format!("{pool}/*"),
                "*".to_owned(),
            ];
            let said = said.iter().find_map(|label| why.get(&**label)).cloned();
            offer.held = Some(said.unwrap_or_else(|| Refused::ForOtherPods.into()));
        }
        self
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

    /// The machines that the decision makes; `own` is the pod's.
    fn planned(
        &self,
        turn: &DecisionBuilder<'_>,
        decision: &Decision,
        own: Option<&Arc<str>>,
    ) -> Vec<PlannedAnswer> {
        let nodes = self.world.nodes.indexed();
        let planned = nodes.filter_map(|(index, node)| {
            let action = decided::find_planned(decision, &node.name)?;
            let Kind::Create(spec) = &action.kind else {
                return None;
            };
            let pool = turn.view.policy.pools.get(&*spec.mark.pool);
            let several = pool.is_some_and(|pool| !pool.further.is_empty());
            let mut filter_failures = self.on(index, node).into_iter();
            Some(PlannedAnswer {
                name: node.name.clone(),
                pool: spec.mark.pool.as_str().into(),
                instance_type: spec.mark.instance_type.as_str().into(),
                region: several.then(|| action.target.region.clone()),
                host: action.target.host.clone(),
                own: own == Some(&node.name),
                free: node.free.clone(),
                filter_failure: filter_failures.next(),
                further: filter_failures.collect(),
            })
        });
        let mut planned: Vec<PlannedAnswer> = planned.collect();
        planned.sort_by(|a, b| a.name.cmp(&b.name));
        planned
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
