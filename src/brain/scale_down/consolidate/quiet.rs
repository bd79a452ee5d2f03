//! Since when nothing came to a node or left it (Karpenter's `consolidateAfter`).

use std::collections::BTreeMap;

use crate::constraints::shape::Keyed;
use crate::decision::turn::DecisionBuilder;
use crate::index::NodeIndex;
use crate::observed::view::{MachinePhase, MachineView};
use crate::scale_down::drain_rules;
use model::memory::Settled;
use model::time::Time;

/// Brings what is remembered of the nodes of consolidated pools up to date. A view that is incomplete or too old
/// changes nothing, and one that does not show yet which machines are behind the nodes lets what came or went count alone.
pub(crate) fn note(turn: &mut DecisionBuilder<'_>) {
    if !turn.holds.may_observe() {
        return;
    }
    let now = turn.now();
    let mut settled = BTreeMap::new();
    for machine in turn.view.machines.values() {
        let Some((name, _)) = machine.node.filter(|_| super::of(machine).is_some()) else {
            continue;
        };
        if !matches!(machine.phase, MachinePhase::Up | MachinePhase::Leaving) {
            continue;
        }
        let pods = hash_pods(turn.view.pods(name), now);
        let before = turn.memory.settled.get(name);
        let since = before
            .filter(|before| before.pods == pods)
            .map_or(now, |before| before.since);
        settled.insert(name.clone(), Settled { pods, since });
    }
    for (name, before) in std::mem::take(&mut turn.memory.settled) {
        let dark = turn.holds.in_the_dark(turn.view.machine_of_node(&name));
        if dark && before.pods == hash_pods(turn.view.pods(&name), now) {
            settled.entry(name).or_insert(before);
        }
    }
    turn.memory.settled = settled;
}

/// Since when a node is as it is, if that is known; and when its pool lets it be consolidated.
pub(crate) fn since(turn: &DecisionBuilder<'_>, machine: &MachineView<'_>) -> Option<(Time, Time)> {
    let (name, _) = machine.node?;
    let since = turn.memory.settled.get(name)?.since;
    Some((since, since + super::of(machine)?.after))
}

/// Whether something came or went so lately that the node shall be left in peace: its pool is
/// consolidated and its time is not over.
pub(crate) fn is_restless(turn: &DecisionBuilder<'_>, node: NodeIndex) -> bool {
    let Some(machine) = turn.view.machine_at(node) else {
        return false;
    };
    super::replaces(machine) && since(turn, machine).is_none_or(|(_, until)| until > turn.now())
}

/// A sum over the UIDs of the pods that a drain has to do with, whatever their order. Two sets of pods
/// have the same one once in 2^64.
fn hash_pods(pods: &[Keyed<'_>], now: Time) -> u64 {
    pods.iter()
        .filter(|(_, pod)| drain_rules::concerned(pod, now))
        .map(|(_, pod)| fnv(pod.uid.as_bytes()))
        .fold(0, u64::wrapping_add)
}

/// FNV-1a: the same on every machine and in every version, which the standard hasher does not promise.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
