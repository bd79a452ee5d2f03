//! Resources: how many pods of one shape a node still holds.
//!
//! Source: kube-scheduler's plugin `NodeResourcesFit`: an amount of zero always fits, whatever the
//! node says of it; every pod takes one slot of `pods`.

use model::resources::Resources;

/// Whether `free` lacks what every node has for a pod that asks `asked`. Most answers are "yes", and comparing
/// is cheaper than dividing: who goes through many places asks this first.
#[inline]
pub(crate) fn full(asked: &Resources, free: &Resources) -> bool {
    let lacks = |amount: i64, left: i64| amount > 0 && amount > left;
    free.pods <= 0
        || lacks(asked.cpu_milli, free.cpu_milli)
        || lacks(asked.memory, free.memory)
        || lacks(asked.ephemeral, free.ephemeral)
}

/// How many pods that ask `asked` fit into `free`.
pub(crate) fn room(asked: &Resources, free: &Resources) -> u64 {
    if full(asked, free) {
        return 0;
    }
    let mut room = free.pods.unsigned_abs();
    for (amount, left) in [
        (asked.cpu_milli, free.cpu_milli),
        (asked.memory, free.memory),
        (asked.ephemeral, free.ephemeral),
    ] {
        room = at_most(room, amount, left);
    }
    for (name, amount) in &asked.extended {
        room = at_most(room, *amount, free.get(name));
    }
    room
}

/// `most`, or how many times `asked` goes into `free` if that is less.
fn at_most(most: u64, asked: i64, free: i64) -> u64 {
    let (Ok(each), Ok(free)) = (u64::try_from(asked), u64::try_from(free)) else {
        return if asked <= 0 { most } else { 0 };
    };
    match most.checked_mul(each) {
        Some(all) if all <= free => most,
        _ => free / each,
    }
}

/// Takes what one pod asks beyond what was taken for it: no further slot of `pods`.
pub(crate) fn take_more(free: &mut Resources, more: &Resources) {
    let pods = free.pods;
    take(free, more, 1);
    free.pods = pods;
}

/// Gives back what one pod that asks `asked` took.
pub(crate) fn give(free: &mut Resources, asked: &Resources) {
    free.pods = free.pods.saturating_add(1);
    free.cpu_milli = free.cpu_milli.saturating_add(asked.cpu_milli.max(0));
    free.memory = free.memory.saturating_add(asked.memory.max(0));
    free.ephemeral = free.ephemeral.saturating_add(asked.ephemeral.max(0));
    for (name, amount) in asked.extended.iter().filter(|(_, amount)| **amount > 0) {
        if let Some(have) = free.extended.get_mut(name) {
            *have = have.saturating_add(*amount);
        }
    }
}

/// Takes `count` pods that ask `asked` out of `free`. A negative request gives nothing back.
pub(crate) fn take(free: &mut Resources, asked: &Resources, count: u64) {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let times = |amount: i64| amount.max(0).saturating_mul(count);
    free.pods = free.pods.saturating_sub(count);
    free.cpu_milli = free.cpu_milli.saturating_sub(times(asked.cpu_milli));
    free.memory = free.memory.saturating_sub(times(asked.memory));
    free.ephemeral = free.ephemeral.saturating_sub(times(asked.ephemeral));
    if asked.extended.is_empty() {
        return;
    }
    for (name, amount) in asked.extended.iter().filter(|(_, amount)| **amount > 0) {
        if let Some(have) = free.extended.get_mut(name) {
            *have = have.saturating_sub(times(*amount));
        } else {
            free.extended
                .insert(name.clone(), 0i64.saturating_sub(times(*amount)));
        }
    }
}
