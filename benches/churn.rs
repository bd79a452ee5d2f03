//! W6: a day of churn on 500 nodes in virtual time. Each hour a tenth of the pods is replaced, while
//! their number follows the day. The brain decides, and, on pods that come and go in the same way, a
//! naive policy of thresholds; what each costs in nodes and in waiting stands side by side.

mod churning;
mod common;

use std::process::ExitCode;
use std::time::Duration;

use churning::Model;
use common::{Report, Row, note, now};
use pve_autoscaler::brain::decide;
use pve_autoscaler::model::action::Kind;
use pve_autoscaler::model::memory::{self, Memory};
use pve_autoscaler::model::time::{Span, Time};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

const NODES: u32 = 500;
const BEGIN: Time = Time(1_795_000_000_000);
const HOUR: Span = Span::minutes(60);
const DAY: Span = Span(HOUR.0 * 24);
/// Pods come and go in steps of this.
const STEP: Span = Span::seconds(30);
/// Of a thousand pods this many are replaced in an hour.
const REPLACED_PERMILLE: i64 = 100;
/// CPU asked for in thousandths of that of the first nodes, at night and at noon.
const NIGHT_PERMILLE: i64 = 450;
const NOON_PERMILLE: i64 = 850;
/// Decisions within a step: a batch window opens and closes in two.
const MOST_DECISIONS: u32 = 5;

fn main() -> ExitCode {
    let mut report =
        Report::new("W6: a day of churn on 500 nodes, against a naive policy of thresholds");
    let brain = day(&mut Brain::default());
    let naive = day(&mut Thresholds::default());
    let waited = naive.pod_seconds_pending();
    report.add(brain.row("brain").at_most("pod_seconds_pending", waited));
    report.add(naive.row("thresholds"));
    report.finish()
}

/// Who decides.
trait Decider {
    /// Changes the model as it likes; says when it wants to be asked again.
    fn decide(&mut self, model: &mut Model, now: Time) -> Option<Time>;
}

/// The brain, with its memory.
#[derive(Default)]
struct Brain {
    memory: Option<Memory>,
}

impl Decider for Brain {
    fn decide(&mut self, model: &mut Model, now: Time) -> Option<Time> {
        let memory = self.memory.take().unwrap_or_else(|| Memory {
            version: memory::VERSION,
            began: Some(now - DAY),
            ..Memory::default()
        });
        let decision = decide(&model.snapshot, &model.policy, &memory, now);
        for action in &decision.plan {
            let target = &action.target;
            match &action.kind {
                Kind::Create(_) => model.order(&target.machine, target.vmid, &target.host, now),
                Kind::Remove { .. } => model.remove(&target.machine, now),
                other => note(format!("not modelled: {other:?} of {}", target.machine)),
            }
        }
        self.memory = Some(decision.memory);
        decision.wake
    }
}

/// As many an own script does it: pods wait, or most of the CPU is asked for: more nodes; little of it
/// is: the emptiest node goes.
#[derive(Default)]
struct Thresholds {
    serial: u32,
    added: Option<Time>,
    looked: Option<Time>,
}

impl Thresholds {
    /// It looks once a minute.
    const LOOKS: Span = Span::seconds(60);
    const ADD_ABOVE_PERMILLE: i64 = 800;
    const TAKE_BELOW_PERMILLE: i64 = 600;
    /// After an addition nothing is taken for this long, as with the brain.
    const PAUSE: Span = Span::minutes(10);
    const NODE_MILLI: i64 = 16_000;

    fn add(&mut self, model: &mut Model, now: Time) {
        self.serial += 1;
        let name = format!("naive-{:05}", self.serial);
        model.order(&name, 10_000 + self.serial, "pve1", now);
        self.added = Some(now);
    }
}

impl Decider for Thresholds {
    fn decide(&mut self, model: &mut Model, now: Time) -> Option<Time> {
        let next = self.looked.map_or(now, |looked| looked + Thresholds::LOOKS);
        if now < next {
            return Some(next);
        }
        self.looked = Some(now);
        let (has, asked) = model.cpu();
        let (_, making) = model.nodes();
        let (waiting, waiting_milli) = model.pending();
        let coming = i64::try_from(making).unwrap_or(0) * Thresholds::NODE_MILLI;
        if waiting > 0 {
            let missing = waiting_milli - coming;
            for _ in 0..(missing + Thresholds::NODE_MILLI - 1) / Thresholds::NODE_MILLI {
                self.add(model, now);
            }
        } else if asked * 1_000 > (has + coming) * Thresholds::ADD_ABOVE_PERMILLE {
            self.add(model, now);
        } else if asked * 1_000 < has * Thresholds::TAKE_BELOW_PERMILLE
            && self
                .added
                .is_none_or(|added| now.since(added) >= Thresholds::PAUSE)
            && let Some(node) = model.emptiest()
        {
            model.remove(&node, now);
        }
        Some(now + Thresholds::LOOKS)
    }
}

/// What a day came to.
struct Day {
    model: Model,
    decisions: u32,
    deciding: Duration,
    slowest: Duration,
}

impl Day {
    fn pod_seconds_pending(&self) -> i64 {
        self.model.tally.pending / 1_000
    }

    fn row(&self, policy: &str) -> Row {
        let tally = self.model.tally;
        Row::new("W6", NODES)
            .field("seconds", self.deciding.as_secs_f64())
            .field("policy", policy)
            .field("decisions", self.decisions)
            .field("slowest_decision", self.slowest.as_secs_f64())
            .field("nodes_created", tally.created)
            .field("nodes_deleted", tally.deleted)
            .field("pods_evicted", tally.evicted)
            .field("pod_seconds_pending", self.pod_seconds_pending())
            .field("node_hours", tally.node_time / HOUR.0)
            .field("nodes", self.model.nodes().0)
    }
}

/// How much CPU is asked for at this time of the day, in thousandths of the first nodes'.
fn tide(now: Time) -> i64 {
    // A triangle: noon lies in the middle.
    let half = DAY.0 / 2;
    let from_noon = (now.since(BEGIN).0 % DAY.0 - half).abs();
    NOON_PERMILLE - (NOON_PERMILLE - NIGHT_PERMILLE) * from_noon / half
}

fn day(decider: &mut impl Decider) -> Day {
    let mut rng = StdRng::seed_from_u64(6);
    let mut model = Model::new(NODES, BEGIN);
    let first = model.cpu().0;
    fill(&mut model, first, &mut rng, BEGIN);
    let mut day = Day {
        model,
        decisions: 0,
        deciding: Duration::ZERO,
        slowest: Duration::ZERO,
    };
    let mut at = BEGIN;
    while at < BEGIN + DAY {
        at = at + STEP;
        churn(&mut day.model, &mut rng, at);
        fill(&mut day.model, first, &mut rng, at);
        let mut instant = at;
        for _ in 0..MOST_DECISIONS {
            day.model.pass(instant);
            let began = now();
            let wake = decider.decide(&mut day.model, instant);
            let took = began.elapsed();
            day.deciding += took;
            day.slowest = day.slowest.max(took);
            day.decisions += 1;
            let next = wake.into_iter().chain(day.model.next_ready()).min();
            match next.filter(|next| *next < at + STEP) {
                Some(next) => instant = next.max(instant + Span(1)),
                None => break,
            }
        }
    }
    day
}

/// Some pods are replaced.
fn churn(model: &mut Model, rng: &mut StdRng, at: Time) {
    let pods = i64::try_from(model.snapshot.cluster.pods.len()).unwrap_or(0);
    // In millionths, so that what is less than a pod is one now and then.
    let share = pods * REPLACED_PERMILLE * 1_000 * STEP.0 / HOUR.0;
    let more = i64::from(
        rng.random_range(0..1_000_000_u32) < u32::try_from(share % 1_000_000).unwrap_or(0),
    );
    for _ in 0..share / 1_000_000 + more {
        model.depart(rng);
        model.arrive(rng, at);
    }
}

/// Pods come or go until as much is asked for as the time of the day wants.
fn fill(model: &mut Model, first: i64, rng: &mut StdRng, at: Time) {
    let wanted = first / 1_000 * tide(at);
    while model.cpu().1 < wanted {
        model.arrive(rng, at);
    }
    while model.cpu().1 > wanted + first / 1_000 {
        model.depart(rng);
    }
}
