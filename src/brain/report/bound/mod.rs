//! What no plan can do without: the least number of new machines, and the least price.
//!
//! **Of what.** Any plan that finds a place for every pod for which this decision found one, and that
//! makes as many machines for each pool's `min`, makes at least [`Least::nodes`] new machines, and pays
//! at least [`Least::price`] for them: whichever pods it leaves on nodes that there are, and however it
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

use model::action::{Kind, Reason};
use model::report::{Growth, Least};
use model::resources::Resources;

use crate::constraints::shape::ShapeId;
use crate::decision::turn::Turn;
use crate::simulation::demand::Demand;
use crate::simulation::offer::Choice;
use crate::simulation::world::{Bin, World};
use problem::Problem;

/// What there is before anything is placed.
#[derive(Debug, Default)]
pub(crate) struct Before {
    /// Places that may take pods, and what is free there.
    rooms: Vec<(usize, Resources)>,
    /// Pods that call for a place, by shape.
    asked: Vec<u64>,
}

impl Before {
    /// Notes what is free and what is asked. Nothing, where no pod calls for a node.
    pub(crate) fn of(world: &World<'_>, demand: &Demand<'_>) -> Before {
        let mut before = Before::default();
        for group in demand.groups.iter().filter(|group| group.calls()) {
            if before.asked.len() <= group.shape {
                before.asked.resize(group.shape + 1, 0);
            }
            before.asked[group.shape] += group.pods.len() as u64;
        }
        if !before.asked.is_empty() {
            let open = world.bins.iter().enumerate().filter(|(_, bin)| !bin.closed);
            // What expendable pods hold counts as free: kube-scheduler takes it from them.
            let free = |(index, bin): (usize, &Bin)| match world.soft.get(&index) {
                Some(soft) => (index, soft.without(&bin.free)),
                None => (index, bin.free.clone()),
            };
            before.rooms = open.map(free).collect();
        }
        before
    }
}

/// Writes what the machines cost that the plan makes, and the least that any plan's would. Only where
/// it makes some; `unplaced` are the pods for which it found no place.
pub(crate) fn report(
    turn: &mut Turn<'_>,
    world: &World<'_>,
    choices: &[Choice<'_>],
    before: Before,
    unplaced: &[(ShapeId, usize)],
) {
    let mut growth = Growth::default();
    let mut kept = vec![0i128; turn.view.policy.pools.len()];
    for action in &turn.plan {
        let Kind::Create(spec) = &action.kind else {
            continue;
        };
        let choice =
            crate::simulation::offer::choice_of(choices, &spec.mark, &action.target.region);
        let Some(choice) = choice else {
            continue;
        };
        growth.nodes = growth.nodes.saturating_add(1);
        growth.price = growth.price.saturating_add(choice.price);
        if matches!(action.reason, Reason::BelowMin { .. }) {
            kept[choice.pool_slot] += 1;
        }
    }
    if growth.nodes == 0 {
        return;
    }
    let mut before = before;
    for (shape, count) in unplaced {
        if let Some(asked) = before.asked.get_mut(*shape) {
            *asked = asked.saturating_sub(*count as u64);
        }
    }
    let problem = read::problem(world, choices, &before, kept);
    growth.lower_bound = least(&problem);
    turn.report.scale_up = Some(growth);
}

/// Both bounds. What cannot be proven, because numbers are too large to reckon with, is zero.
fn least(problem: &Problem) -> Least {
    let ones = vec![1; problem.candidates.len()];
    let mut levies = levy::all(problem);
    let nodes = bound(problem, &levies, &ones);
    // So many machines there are in any plan: that is a levy too.
    levies.push(levy::heads(problem, nodes));
    let prices: Vec<i128> = problem.candidates.iter().map(|c| c.price).collect();
    let price = bound(problem, &levies, &prices);
    Least {
        nodes: u32::try_from(nodes).unwrap_or(0),
        price: i64::try_from(price).unwrap_or(0),
    }
}

fn bound(problem: &Problem, levies: &[levy::Levy], prices: &[i128]) -> i128 {
    let useful = rates::useful(levies, prices);
    let rates = rates::find(&useful, prices);
    proof::proven(problem, &useful, &rates, prices).unwrap_or(0)
}
