//! What to do. Pure functions on plain data: no I/O, no async, no clock, no randomness, no logging.
//!
//! [`decide`] is a straight list of steps; each has a file. [`check`] verifies any action anew and
//! shares nothing with them. `README.md` beside this file tells the algorithm in a page.

// In one function a name stands for one thing: what shadows it is made of it.
#![cfg_attr(not(test), warn(clippy::shadow_unrelated))]

#[macro_use]
extern crate planted;

pub mod budget;
pub mod check;
mod constraints;
mod decision;
mod index;
mod lifecycle;
mod observed;
mod report;
mod scale_down;
mod scale_up;
mod simulation;
#[cfg(test)]
mod tests;

pub use report::{LowerBound, explain, inspect, lower_bound};

use model::decision::Decision;
use model::memory::Memory;
use model::policy::{InstanceType, Policy};
use model::snapshot::Snapshot;
use model::time::Time;
use model::words;

use decision::turn::{DECISION_STEPS, DecisionBuilder};
use lifecycle::{backoff, find_holds, in_place, life, migrated, power, reregistered, sweep};
use report::{chosen_hosts, growth, hosts, lost_cpus, networks, pools};
use scale_down::{evacuate, shrink};
use scale_up::{first_to_open, grow};
use simulation::{capacity, demand, offer, pack, places};

/// Decides what to do at `now`, from one view of the world, what is wanted, and what is remembered.
///
/// The same input yields the same output, to the byte. Once the plan is reflected in the view, the
/// next plan is empty.
pub fn decide(snapshot: &Snapshot, policy: &Policy, memory: &Memory, now: Time) -> Decision {
    decide_within(DECISION_STEPS, snapshot, policy, memory, now).0
}

/// [`decide`] on a view that is within the budget of work already: one that [`budget::within`] gave.
pub fn decide_lean(lean: &Snapshot, policy: &Policy, memory: &Memory, now: Time) -> Decision {
    decide_on(DECISION_STEPS, lean, policy, memory, now).0
}

/// What a machine of a type costs in a region, in millionths per hour: as configured, else by its size.
pub fn price(policy: &Policy, region: &str, kind: &InstanceType) -> i64 {
    policy.price_in(region, offer::price_of_type(kind))
}

/// [`decide`] within another budget of work; says how many steps were made too.
fn decide_within(
    steps: u64,
    snapshot: &Snapshot,
    policy: &Policy,
    memory: &Memory,
    now: Time,
) -> (Decision, u64) {
    let lean = budget::within_steps(snapshot, policy, steps);
    decide_on(steps, &lean, policy, memory, now)
}

fn decide_on(
    steps: u64,
    snapshot: &Snapshot,
    policy: &Policy,
    memory: &Memory,
    now: Time,
) -> (Decision, u64) {
    let mut turn = DecisionBuilder::begin(snapshot, policy, memory, now);
    turn.steps = steps;
    budget::report(&mut turn);
    find_holds::find(&mut turn, memory);
    capacity::learn(&mut turn);
    backoff::count_failures(&mut turn);
    let choices = offer::choices(&turn);
    let mut world = places::build(&turn, &choices);
    demand::place_nominated(&mut turn, &mut world);
    let evacuees = evacuate::plan(&mut turn, &mut world, memory);
    let demand = demand::collect(&mut turn, &mut world, &evacuees.displaced);
    grow::domains::open(&turn, &mut world, &choices, &demand);
    let (unplaced, fit_index) = pack::existing(&mut turn, &mut world, demand);
    grow::plan(&mut turn, &mut world, &choices, unplaced, fit_index);
    growth::report(&mut turn, &choices);
    first_to_open::order(&mut turn, &mut world);
    life::plan(&mut turn);
    sweep::plan(&mut turn);
    power::plan(&mut turn);
    reregistered::plan(&mut turn);
    migrated::plan(&mut turn);
    shrink::plan(&mut turn, &mut world, &choices, memory, evacuees);
    in_place::plan(&mut turn);
    capacity::tell_of_less(&mut turn);
    pools::report(&mut turn);
    hosts::report(&mut turn);
    chosen_hosts::report(&mut turn, &choices);
    lost_cpus::report(&mut turn);
    networks::report(&mut turn);
    (turn.finish(), world.inter_pod.steps())
}
