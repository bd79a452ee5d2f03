//! What no plan can do without: the least number of new machines, and the least price.
//!
//! **Of what.** Any plan that finds a place for every pod for which this decision found one, and that
//! makes as many machines for each pool's `min`, makes at least [`LowerBound::nodes`] new machines, and pays
//! at least [`LowerBound::price`] for them: whichever pods it leaves on nodes that there are, and however it
//! chooses pools, types and hosts. The two are bounds each for itself; one plan need not meet both.
//!
//! **What is taken for granted.** What a new machine of a pool and type offers ([`crate::simulation::offer`]:
//! promised or learned, less its DaemonSets), and what was free, before any pending pod was placed, on
//! nodes and on machines under way that are not leaving. Pods that run, and those that
//! kube-scheduler nominated for a node, stay where they are; what expendable ones hold counts as free.
//!
//! **What is left out,** so that the bound may be lower than the best plan: limits of pools, hosts and
//! the cluster, back-offs, weights, preferences, volumes, affinity between pods, spread, anti-affinity
//! over anything but the host name; and that pods are not divisible, but for what the levies below see.
//!
//! **Why it holds.** Think of *levies*. In each, a pod pays by a fixed rule, and no machine or node,
//! whatever is put on it, collects more from its pods than a *most* that follows from its size
//! ([`levy`], one line of proof for each kind). Give every levy a rate such that what a machine collects
//! at most, over all levies, is no more than its price. Then all that the pods pay, less what the nodes there are
//! could collect, is no more than what the new machines cost. [`proof`] verifies exactly this, in integers;
//! which rates are good is found by [`rates`], which need not be right. With a price of 1 for every
//! machine, the same counts machines. It is the dual of a linear program that relaxes packing; Martello
//! and Toth's and Fekete and Schepers' bounds are levies of the kind `⌊a/θ⌋`.
//!
//! It shares with the code that makes plans nothing but plain data and the list of offers; whether a pod
//! may be on a node it asks the checker's reading of the filters.

mod apart;
mod levy;
mod problem;
mod proof;
mod rates;
mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use model::action::{Kind, Reason};
use model::decision::Decision;
use model::report::PodVerdict;
use model::resources::Resources;

use crate::decision::turn::DecisionBuilder;
use crate::index::{ChoiceIndex, IndexVec, NodeIndex, PoolIndex, ShapeId};
use crate::report::explain::{self, Asked};
use crate::scale_down::evacuate;
use crate::scale_up::grow;
use crate::simulation::demand::{self, Demand};
use crate::simulation::offer::{self, ChoiceList};
use crate::simulation::places;
use crate::simulation::world::{SimCluster, SimNode};
use problem::CoverProblem;

/// Machines and price that any plan for the same pods needs; each number for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LowerBound {
    /// Machines.
    pub nodes: u32,
    /// Price in millionths per hour.
    pub price: i64,
}

/// The lower bound of a decision: machines and price that any plan needs that finds a place for the same pods and keeps the
/// same `min` of pools. Zero where the decision makes no machine.
///
/// No decision asks for it: it judges plans, in benchmarks, conformance cases and tests.
pub fn lower_bound(asked: Asked<'_>) -> LowerBound {
    let decision = asked.decision;
    if decision.report.scale_up.is_none() {
        return LowerBound::default();
    }
    prove_least(&pose_problem(asked))
}

/// The problem that the lower bound is of: the pods that a decision found a place for, and all machines that could take them.
fn pose_problem(asked: Asked<'_>) -> CoverProblem {
    let decision = asked.decision;
    let lean = crate::budget::within(asked.snapshot, asked.policy);
    let asked = Asked {
        snapshot: &lean,
        ..asked
    };
    let mut turn = explain::begin(asked);
    let choices = offer::choices(&turn);
    let mut world = places::build(&turn, &choices);
    demand::place_nominated(&mut turn, &mut world);
    let evacuees = evacuate::plan(&mut turn, &mut world, asked.memory);
    let demand = demand::collect(&mut turn, &mut world, &evacuees.displaced);
    grow::domains::open(&turn, &mut world, &choices, &demand);
    let before = BoundInput::of(&world, &demand, decision);
    read::read_problem(
        &world,
        &choices,
        &before,
        count_kept(&turn, &choices, decision),
    )
}

/// How many machines the plan makes for the `min` of each pool.
fn count_kept(
    turn: &DecisionBuilder<'_>,
    choices: &ChoiceList<'_>,
    decision: &Decision,
) -> IndexVec<PoolIndex, i128> {
    let mut kept: IndexVec<PoolIndex, i128> = vec![0; turn.view.policy.pools.len()].into();
    for action in &decision.plan {
        let (Kind::Create(spec), Reason::BelowMin { .. }) = (&action.kind, &action.reason) else {
            continue;
        };
        if let Some(choice) = offer::choice_of(choices, &spec.mark, &action.target.region) {
            kept[choice.pool_index] += 1;
        }
    }
    kept
}

/// What there is before anything is placed.
#[derive(Debug, Default)]
struct BoundInput {
    /// Places that may take pods, and what is free there.
    rooms: Vec<(NodeIndex, Resources)>,
    /// Pods that the decision places, by shape. Those on nodes that are leaving are not among them: no verdict says
    /// whether one has a place, and the bound holds without them.
    asked: IndexVec<ShapeId, u64>,
}

impl BoundInput {
    /// Notes what is free and what is asked.
    fn of(world: &SimCluster<'_>, demand: &Demand<'_>, decision: &Decision) -> BoundInput {
        let verdicts = decision.report.pods.iter();
        let placed: BTreeSet<_> = verdicts
            .filter(|(_, verdict)| {
                matches!(
                    verdict,
                    PodVerdict::FitsNode { .. }
                        | PodVerdict::FitsMachine { .. }
                        | PodVerdict::Triggers { .. }
                )
            })
            .map(|(key, _)| key)
            .collect();
        let mut before = BoundInput::default();
        for group in demand.groups.iter().filter(|group| group.calls()) {
            let placed = group.pods.iter().filter(|pod| placed.contains(pod.key));
            *before.asked.get_or_grow(group.shape) += placed.count() as u64;
        }
        let open = world.nodes.indexed().filter(|(_, node)| !node.closed);
        // What expendable pods hold counts as free: kube-scheduler takes it from them.
        let free = |(index, node): (NodeIndex, &SimNode)| match world.expendable_pods.get(&index) {
            Some(expendable_pods) => (index, expendable_pods.without(&node.free)),
            None => (index, node.free.clone()),
        };
        before.rooms = open.map(free).collect();
        before
    }
}

/// Both bounds. What cannot be proven, because numbers are too large to reckon with, is zero.
fn prove_least(problem: &CoverProblem) -> LowerBound {
    let ones = problem.candidates.with_each(1);
    let mut levies = levy::list_levies(problem);
    let nodes = prove_bound(problem, &levies, &ones);
    // Any plan has at least `nodes` machines: that is a levy too.
    levies.push(levy::levy_heads(problem, nodes));
    let prices = problem.candidates.iter().map(|c| c.price).collect();
    let price = prove_bound(problem, &levies, &prices);
    LowerBound {
        nodes: u32::try_from(nodes).unwrap_or(0),
        price: i64::try_from(price).unwrap_or(0),
    }
}

fn prove_bound(
    problem: &CoverProblem,
    levies: &[levy::Levy],
    prices: &IndexVec<ChoiceIndex, i128>,
) -> i128 {
    let useful = rates::find_useful(levies, prices);
    let rates = rates::find_rates(&useful, prices);
    proof::prove(problem, &useful, &rates, prices).unwrap_or(0)
}
