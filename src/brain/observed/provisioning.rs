//! How long machines have been on their way up. The time in which no daemon led does not count: a
//! guest that boots while nobody looks is not late. Nor does the time in which a machine waits for its turn to clone: fifty machines
//! of one storage are made a few at a time.

use std::sync::Arc;

use model::action::{Action, Kind};
use model::memory::{Memory, Provisioning};
use model::policy::STARTUP_TAINT;
use model::region::{Busy, Machine, Step};
use model::snapshot::Snapshot;
use model::time::{Span, Time};

/// Time is added up in parts of this length at least, lest the memory is written with every turn.
const MIN_PART: Span = Span::seconds(10);

/// Adds up the time until `now` for every machine on its way up, and forgets the others.
pub(crate) fn count(memory: &mut Memory, snapshot: &Snapshot, now: Time) {
    let began = memory.began.unwrap_or(now);
    let before = std::mem::take(&mut memory.provisioning);
    let coming = snapshot
        .machines
        .iter()
        .filter(|(_, machine)| on_its_way(snapshot, machine));
    for (name, machine) in coming {
        let counted = match before.get(name) {
            Some(before) => go_on(snapshot, machine, before, now),
            // What was lost counts from when the memory began.
            None => Provisioning {
                worked: now.since(machine.mark.created.max(began)),
                as_of: now,
            },
        };
        memory.provisioning.insert(name.clone(), counted);
    }
}

fn go_on(snapshot: &Snapshot, machine: &Machine, before: &Provisioning, now: Time) -> Provisioning {
    let mut counted = before.clone();
    if snapshot.awake.is_some_and(|awake| awake > before.as_of) {
        // Somebody led until shortly after that. A part is added for it, so that a crash loop does not
        // bring a machine on its way for ever.
        counted.worked = sum(counted.worked, MIN_PART);
        counted.as_of = snapshot.awake.unwrap_or(now).min(now);
    }
    if now.since(counted.as_of) < MIN_PART {
        return counted;
    }
    if may_go_on(snapshot, machine) {
        counted.worked = sum(counted.worked, now.since(counted.as_of));
    }
    counted.as_of = now;
    counted
}

/// Whether anything can be done for a machine: we lead, its cluster has quorum, its host is there.
fn may_go_on(snapshot: &Snapshot, machine: &Machine) -> bool {
    if !snapshot.leader || waits_for_its_turn(machine) {
        return false;
    }
    let region = snapshot.regions.get(&machine.region);
    region.is_none_or(|region| {
        let host = region.hosts.get(&machine.host);
        region.quorate && host.is_none_or(|host| host.online)
    })
}

/// Whether the executor has taken a machine up and not begun to clone: others clone to the same storage.
fn waits_for_its_turn(machine: &Machine) -> bool {
    let intent = matches!(machine.step, Some((Step::Intent, _)));
    intent && machine.busy == Some(Busy::Up)
}

fn on_its_way(snapshot: &Snapshot, machine: &Machine) -> bool {
    let node = machine.node.as_ref();
    let node = node.and_then(|name| snapshot.cluster.nodes.get(name));
    match machine.step {
        Some((step, _)) => step < Step::Done,
        // Without a journal the startup taint alone shows that it is not a node yet.
        None => node.is_none_or(|node| node.taints.iter().any(|t| &*t.key == STARTUP_TAINT)),
    }
}

/// The clock of machines that a plan makes begins with the plan.
pub(crate) fn begin(memory: &mut Memory, plan: &[Action], now: Time) {
    for action in plan {
        if matches!(action.kind, Kind::Create(_)) {
            let begun = Provisioning {
                worked: Span::ZERO,
                as_of: now,
            };
            memory
                .provisioning
                .insert(action.target.machine.clone(), begun);
        }
    }
}

/// How long a machine has been on its way by now.
pub(crate) fn worked(memory: &Memory, name: &Arc<str>, machine: &Machine, now: Time) -> Span {
    match memory.provisioning.get(name) {
        Some(counted) => sum(counted.worked, now.since(counted.as_of)),
        None => now.since(machine.mark.created),
    }
}

fn sum(one: Span, other: Span) -> Span {
    Span(one.0.saturating_add(other.0))
}
