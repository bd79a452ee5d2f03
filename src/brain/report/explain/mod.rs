//! Why, in full: one pod tried on everything, one node taken for gone. Runs when somebody asks and
//! never otherwise; uses the very steps that decide.

mod decided;
mod node;
mod pod;
mod preferences;
mod successors;

use model::cluster::ObjectKey;
use model::decision::Decision;
use model::memory::Memory;
use model::policy::Policy;
use model::snapshot::Snapshot;
use model::story::{NodeStory, PodStory};
use model::time::Time;

use crate::budget;
use crate::decision::turn::DecisionBuilder;
use crate::lifecycle::{backoff, find_holds};
use crate::scale_down::evacuate::{self, Evacuees};
use crate::simulation::offer::{self, ChoiceList};
use crate::simulation::world::SimCluster;
use crate::simulation::{capacity, demand, pack, places};

/// What a story is told of: everything a decision reads, and the decision made of it.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The view.
    pub snapshot: &'a Snapshot,
    /// What is wanted.
    pub policy: &'a Policy,
    /// What is remembered, as it was when the decision was made.
    pub memory: &'a Memory,
    /// The decision.
    pub decision: &'a Decision,
    /// When it was made.
    pub now: Time,
}

/// Tells of one pod; `None` when the view has no such pod.
pub fn pod(asked: Asked<'_>, key: &ObjectKey) -> Option<PodStory> {
    let lean = budget::within(asked.snapshot, asked.policy);
    let (key, pod) = lean.cluster.pods.get_key_value(key)?;
    let asked = Asked {
        snapshot: &lean,
        ..asked
    };
    Some(pod::tell(asked, key, pod))
}

/// Tells of one node, or of a machine that is to become one; `None` when the view has neither.
pub fn node(asked: Asked<'_>, name: &str) -> Option<NodeStory> {
    let lean = budget::within(asked.snapshot, asked.policy);
    let asked = Asked {
        snapshot: &lean,
        ..asked
    };
    node::tell(asked, name)
}

/// The world as it is when all pods that fit on what there is are placed, and the nodes of hosts that a person evacuates.
fn settle<'a>(
    turn: &mut DecisionBuilder<'a>,
    choices: &ChoiceList<'a>,
    before: &'a Memory,
) -> (SimCluster<'a>, Evacuees<'a>) {
    let mut world = places::build(turn, choices);
    demand::place_nominated(turn, &mut world);
    let evacuees = evacuate::plan(turn, &mut world, before);
    let demand = demand::collect(turn, &mut world, &evacuees.displaced);
    pack::existing(turn, &mut world, demand);
    (world, evacuees)
}

/// The steps before anything is placed.
pub(super) fn begin(asked: Asked<'_>) -> DecisionBuilder<'_> {
    let mut turn = DecisionBuilder::begin(asked.snapshot, asked.policy, asked.memory, asked.now);
    find_holds::find(&mut turn, asked.memory);
    capacity::learn(&mut turn);
    backoff::count_failures(&mut turn);
    turn
}

/// What could be made.
fn choices<'a>(turn: &DecisionBuilder<'a>) -> ChoiceList<'a> {
    offer::choices(turn)
}
