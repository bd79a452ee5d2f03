//! Which nodes go: unneeded or unready for long enough, allowed to go, and with a place for every pod.
//!
//! Everything is simulated in one world: a node that is taken for removed is gone from it, its pods
//! stand elsewhere, and the next candidate sees that. Source: cluster-autoscaler's `core/scaledown`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::action::{Kind, Precondition, Reason};
use crate::model::cluster::{Node, PodKey, ReadyStatus};
use crate::model::policy::ScaleDown;
use crate::model::report::NodeVerdict;
use crate::model::time::Time;

use super::candidates::{self, Candidate, Load};
use super::drain_rules::Budgets;
use super::pack;
use super::removals::Removals;
use super::turn::{self, Turn};
use super::view::{Known, Standing};
use super::world::{Site, World};

/// Why a node stays.
#[derive(Clone, Debug)]
pub(super) struct Keep {
    pub(super) reason: &'static str,
    pub(super) why: String,
    pub(super) pod: Option<PodKey>,
    pub(super) until: Option<Time>,
}

impl Keep {
    pub(super) fn because(reason: &'static str, why: impl Into<String>) -> Keep {
        Keep {
            reason,
            why: why.into(),
            pod: None,
            until: None,
        }
    }

    pub(super) fn until(mut self, until: Time) -> Keep {
        self.until = Some(until);
        self
    }

    pub(super) fn pod(mut self, pod: &PodKey) -> Keep {
        self.pod = Some(pod.clone());
        self
    }
}

/// Plans removals, ends given-up ones, and gives every node its verdict.
pub(super) fn plan<'a>(turn: &mut Turn<'a>, world: &mut World<'a>) {
    note_failures(turn);
    let leaving = under_way(turn);
    let budgets = Budgets::of(&turn.view, &leaving);
    let (mut candidates, kept) = candidates::find(turn, world, &budgets);
    for (name, keep) in kept {
        stay(turn, &name, keep);
    }
    candidates::sort(&mut candidates, turn);
    let mut unneeded = Vec::new();
    let order = destinations(world, &candidates);
    for candidate in candidates {
        match simulate(world, candidate, &order) {
            Ok(gone) => unneeded.push(gone),
            Err((name, keep)) => stay(turn, &name, keep),
        }
    }
    remember(turn, &unneeded);
    let mut removals = Removals::begin(turn, budgets, &leaving);
    // Those that may need more evictions at once than are allowed come last.
    unneeded.sort_by_key(|candidate| candidate.risky);
    for candidate in unneeded {
        let verdict = removals.admit(turn, &candidate);
        match verdict {
            Ok(reason) => remove(turn, &candidate, reason),
            Err(keep) => {
                if let Some(until) = keep.until {
                    turn.wake_at(until);
                }
                stay(turn, candidate.name, keep);
            }
        }
    }
    release(turn);
}

/// Failed removals start their own delay.
fn note_failures(turn: &mut Turn<'_>) {
    use crate::model::region::Step;
    let failed = turn
        .view
        .machines
        .values()
        .filter_map(|known| known.machine.failure.as_ref())
        .filter(|failure| failure.step > Step::Done)
        .map(|failure| failure.at.min(turn.view.now))
        .max();
    turn.memory.last_scale_down_failure = turn.memory.last_scale_down_failure.max(failed);
    let removing = turn
        .view
        .machines
        .values()
        .any(|known| known.standing == Standing::Leaving && known.busy());
    if removing && turn.view.policy.scale_down.delay_after_delete > crate::model::time::Span::ZERO {
        turn.memory.last_scale_down = Some(turn.view.now);
    }
}

/// Nodes whose removal is under way, those excepted that are decided on anew.
fn under_way<'a>(turn: &Turn<'a>) -> Vec<&'a str> {
    turn.view
        .machines
        .values()
        .filter(|known| known.standing == Standing::Leaving && !known.resumable())
        .filter_map(|known| known.node.map(|(name, _)| &**name))
        .collect()
}

/// Where pods may be sent: ready nodes that stay; those first that are no candidates, and of the
/// candidates first those that would be removed last.
fn destinations(world: &World<'_>, candidates: &[Candidate<'_>]) -> Vec<usize> {
    let rank: BTreeMap<usize, usize> = candidates
        .iter()
        .enumerate()
        .map(|(rank, candidate)| (candidate.bin, rank + 1))
        .collect();
    let mut order: Vec<usize> = (0..world.bins.len())
        .filter(|index| {
            let bin = &world.bins[*index];
            bin.ready && !bin.closed && bin.site == Site::Node
        })
        .collect();
    order.sort_by(|a, b| {
        let key = |bin: &usize| {
            let rank = rank.get(bin).copied();
            (rank.is_some(), std::cmp::Reverse(rank))
        };
        (key(a), &world.bins[*a].name).cmp(&(key(b), &world.bins[*b].name))
    });
    order
}

/// Takes the candidate for gone and puts its pods elsewhere; undoes it all when one finds no place.
fn simulate<'a>(
    world: &mut World<'a>,
    mut candidate: Candidate<'a>,
    order: &[usize],
) -> Result<Candidate<'a>, (Arc<str>, Keep)> {
    if world.bins[candidate.bin].receives {
        let keep = Keep::because("NoPlaceToMovePods", "pods of other nodes shall come here");
        return Err((candidate.name.clone(), keep));
    }
    let was_closed = world.bins[candidate.bin].closed;
    world.close(candidate.bin);
    let open: Vec<usize> = order
        .iter()
        .copied()
        .filter(|index| !world.bins[*index].closed)
        .collect();
    let mut undo = Vec::new();
    let mut homeless = None;
    for load in &candidate.loads {
        let count = load.pods.len() + load.guests;
        let placed = pack::place_with_undo(
            world,
            load.shape,
            load.need.as_deref(),
            count,
            &open,
            &mut undo,
        );
        let total: usize = placed.iter().map(|(_, count)| count).sum();
        let mut pods = load.pods.iter();
        for (bin, count) in placed {
            for (key, _) in pods.by_ref().take(count) {
                candidate
                    .landing
                    .insert((*key).clone(), world.bins[bin].name.clone());
            }
        }
        if total < count {
            homeless = Some((load, pods.next()));
            break;
        }
    }
    let Some((load, pod)) = homeless else {
        for (bin, _) in undo {
            world.bins[bin].receives = true;
        }
        return Ok(candidate);
    };
    let keep = no_place(world, load, pod.map(|(key, _)| *key), &open);
    for (bin, saved) in undo.into_iter().rev() {
        world.restore(bin, saved);
    }
    if !was_closed {
        world.reopen(candidate.bin);
    }
    Err((candidate.name.clone(), keep))
}

/// Why a pod of a candidate finds no other place; without a pod, one that was to come there.
fn no_place(world: &World<'_>, load: &Load<'_>, pod: Option<&PodKey>, open: &[usize]) -> Keep {
    let shape = world.shapes[load.shape].shape;
    let nearest = open.first().map_or_else(
        || "there is no other ready node".to_owned(),
        |index| {
            let bin = &world.bins[*index];
            let misfit = bin
                .misfit(shape, load.need.as_deref())
                .or_else(|| super::fit::crowded(shape, &bin.free, &bin.ports));
            match misfit {
                Some(misfit) => format!(
                    "none of {} other ready nodes holds it; {}: {misfit}",
                    open.len(),
                    bin.name
                ),
                None => format!("none of {} other ready nodes holds it", open.len()),
            }
        },
    );
    match pod {
        Some(key) => Keep::because("NoPlaceToMovePods", nearest).pod(key),
        None => Keep::because(
            "NoPlaceToMovePods",
            format!("pending pods are to come here, and {nearest}"),
        ),
    }
}

/// Timers run as long as a node stays unneeded without a gap; the oldest time wins. On a view that
/// is not good nothing is known, and nothing changes.
fn remember(turn: &mut Turn<'_>, unneeded: &[Candidate<'_>]) {
    if !turn.holds.may_observe() {
        return;
    }
    let now = turn.now();
    let before = std::mem::take(&mut turn.memory.unneeded_since);
    for candidate in unneeded {
        let since = before.get(candidate.name).copied().unwrap_or(now);
        turn.memory
            .unneeded_since
            .insert(candidate.name.clone(), since);
    }
}

fn remove(turn: &mut Turn<'_>, candidate: &Candidate<'_>, reason: Reason) {
    let max_view_age = turn.view.policy.scale_down.max_view_age;
    let Some(known) = turn.view.behind(candidate.name) else {
        return;
    };
    let precondition = Precondition {
        pods: candidate
            .pods
            .iter()
            .map(|(key, _)| (*key).clone())
            .collect(),
        landing: candidate.landing.clone(),
        ..turn::precondition(known, max_view_age)
    };
    let target = turn::target(known);
    turn.report.nodes.insert(
        candidate.name.clone(),
        NodeVerdict::Leaving {
            why: reason.to_string(),
        },
    );
    turn.memory.last_scale_down = Some(turn.now());
    turn.act(Kind::Remove { drain: true }, target, precondition, reason);
}

/// A removal that nobody is at and that is not wanted any more is taken back.
fn release(turn: &mut Turn<'_>) {
    if !turn.holds.may_observe() {
        return;
    }
    let max_view_age = turn.view.policy.scale_down.max_view_age;
    let names: Vec<&str> = turn.view.machines.keys().copied().collect();
    for name in names {
        let known = &turn.view.machines[name];
        let wanted = turn
            .plan
            .iter()
            .any(|action| action.target.machine == *known.name);
        if !known.resumable()
            || wanted
            || known.pool.is_none()
            || turn.holds.may_shrink(&known.machine.region).is_err()
        {
            continue;
        }
        let (target, precondition) = (turn::target(known), turn::precondition(known, max_view_age));
        let message = match turn.report.nodes.get(name) {
            Some(NodeVerdict::Kept { reason, why, .. }) => format!("{reason}: {why}"),
            _ => "it is not wanted any more".to_owned(),
        };
        turn.act(
            Kind::Release,
            target,
            precondition,
            Reason::Aborted { message },
        );
    }
}

fn stay(turn: &mut Turn<'_>, name: &Arc<str>, keep: Keep) {
    let verdict = NodeVerdict::Kept {
        reason: keep.reason.into(),
        why: keep.why,
        pod: keep.pod,
        until: keep.until,
    };
    turn.report.nodes.insert(name.clone(), verdict);
}

/// The settings that hold for a node's pool.
pub(super) fn settings<'a>(turn: &Turn<'a>, known: &Known<'a>) -> &'a ScaleDown {
    known
        .pool
        .and_then(|pool| pool.scale_down.as_ref())
        .unwrap_or(&turn.view.policy.scale_down)
}

/// Whether a node is Ready.
pub(super) fn ready(node: &Node) -> bool {
    node.ready.status == ReadyStatus::True
}
