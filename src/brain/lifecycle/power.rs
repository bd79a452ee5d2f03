//! Machines of ours that are off while their Node exists: after a host's reboot, mostly. Each is started
//! once; whoever switches it off again means it.

use std::sync::Arc;

use model::action::{Kind, Reason};
use model::memory::Power;
use model::reasons::{PoweredOff, Warning};
use model::region::Host;
use model::snapshot::Snapshot;
use model::time::{Span, Time};

use crate::decision::turn::{self, DecisionBuilder};
use crate::observed::view::{MachinePhase, MachineView};

/// A VM is off for this long before it is started: a reboot that PVE carries out switches it off and on.
const SETTLED: Span = Span::minutes(1);
/// After this long a start is planned again where the VM is still seen off: `/cluster/resources` shows for ten seconds how
/// it was before, and a start that failed may succeed.
const AGAIN: Span = Span::seconds(20);
/// After this long without success a start counts as made: the machine is left to a person, or to the
/// rules for nodes that are not Ready.
const TRYING: Span = Span::minutes(30);
/// A host's boot is known to a few seconds; one that is later than a start by less than this is not
/// another one.
const SLACK: Span = Span::minutes(1);

/// Plans the starts, and tells of those that are not started again.
pub(crate) fn plan(turn: &mut DecisionBuilder<'_>) {
    let machines = std::mem::take(&mut turn.view.machines);
    for machine in machines.values() {
        look(turn, machine);
    }
    let present = |name: &Arc<str>| machines.get(name).is_some();
    turn.memory.power.retain(|name, _| present(name));
    turn.view.machines = machines;
}

fn look(turn: &mut DecisionBuilder<'_>, machine: &MachineView<'_>) {
    let now = turn.now();
    let vm = machine.seen.vm.as_ref().filter(|vm| vm.marked);
    let Some(vm) = vm.filter(|_| machine.phase == MachinePhase::Up && machine.node.is_some())
    else {
        // It is being removed, or was never a node. That it was started is not forgotten.
        return;
    };
    let mut power = turn
        .memory
        .power
        .get(machine.name)
        .cloned()
        .unwrap_or_default();
    if vm.running {
        power.off = None;
        power.tried = None;
        power.started = power.asked.take().or(power.started);
    } else if seen(turn.view.snapshot, machine) {
        power.off.get_or_insert(now);
        if power.asked.is_some_and(|asked| now.since(asked) > TRYING) {
            power.started = power.asked.take();
        }
        act(turn, machine, &mut power);
    }
    if power == Power::default() {
        turn.memory.power.remove(machine.name);
    } else {
        turn.memory.power.insert(machine.name.clone(), power);
    }
}

/// Whether PVE shows how the VM is: its host answers, its cluster has quorum, and it was asked since the machine came up.
fn seen(snapshot: &Snapshot, machine: &MachineView<'_>) -> bool {
    if snapshot.was_read_before(machine.seen) {
        return false;
    }
    let region = snapshot.regions.get(&machine.seen.region);
    region.is_some_and(|region| {
        let host = region.hosts.get(&machine.seen.host);
        region.quorate && host.is_some_and(Host::answers)
    })
}

fn act(turn: &mut DecisionBuilder<'_>, machine: &MachineView<'_>, power: &mut Power) {
    let now = turn.now();
    let (Some(off), Some(vm)) = (power.off, machine.seen.vm.as_ref()) else {
        return;
    };
    let (name, vmid, host) = (machine.name, machine.seen.mark.vmid, &machine.seen.host);
    let stays_off = |started| Warning::PoweredOff {
        machine: name.clone(),
        vmid,
        host: host.clone(),
        since: off,
        started,
    };
    if vm.ha {
        turn.warn(stays_off(None));
        return;
    }
    if let Some(started) = power.started
        && !booted_since(turn.view.snapshot, machine, started)
    {
        turn.warn(stays_off(Some(started)));
        return;
    }
    if vm.lock.is_some() || machine.busy() || turn.holds.may_begin(&machine.seen.region).is_err() {
        return;
    }
    if now.since(off) < SETTLED {
        turn.wake_at(off + SETTLED);
        return;
    }
    if let Some(tried) = power.tried.filter(|tried| now.since(*tried) < AGAIN) {
        turn.wake_at(tried + AGAIN);
        return;
    }
    power.asked.get_or_insert(now);
    power.tried = Some(now);
    let age = turn.view.policy.scale_up.max_view_age;
    turn.act(
        Kind::Start,
        turn::target(machine),
        turn::precondition(machine, age),
        Reason::PoweredOff { since: off },
    );
}

/// Whether the machine's host booted after a time.
fn booted_since(snapshot: &Snapshot, machine: &MachineView<'_>, time: Time) -> bool {
    let region = &machine.seen.region;
    let source = snapshot.sources.get(format!("pve/{region}").as_str());
    let host = snapshot
        .regions
        .get(region)
        .and_then(|region| region.hosts.get(&machine.seen.host));
    let (Some(source), Some(host)) = (source, host) else {
        return false;
    };
    host.uptime > Span::ZERO && source.as_of - host.uptime > time + SLACK
}

/// What is to say of a machine whose VM is off.
pub(crate) fn off(turn: &DecisionBuilder<'_>, machine: &MachineView<'_>) -> Option<PoweredOff> {
    let vm = machine.seen.vm.as_ref()?;
    if vm.running || machine.phase != MachinePhase::Up {
        return None;
    }
    let power = turn.memory.power.get(machine.name);
    Some(PoweredOff {
        since: power.and_then(|power| power.off),
        started: power.and_then(|power| power.started),
        starting: power.is_some_and(|power| power.asked.is_some()),
    })
}
