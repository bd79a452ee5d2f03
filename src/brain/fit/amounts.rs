//! Resources: how many pods of one shape a node still holds.
//!
//! Source: kube-scheduler's plugin `NodeResourcesFit`: an amount of zero always fits, whatever the
//! node says of it; every pod takes one slot of `pods`.

use crate::model::resources::Resources;

/// How many pods that ask `asked` fit into `free`.
pub(in crate::brain) fn room(asked: &Resources, free: &Resources) -> u64 {
    let mut room = u64::try_from(free.pods).unwrap_or(0);
    for (asked, free) in [
        (asked.cpu_milli, free.cpu_milli),
        (asked.memory, free.memory),
        (asked.ephemeral, free.ephemeral),
    ] {
        room = room.min(times(asked, free));
    }
    for (name, asked) in &asked.extended {
        room = room.min(times(*asked, free.get(name)));
    }
    room
}

fn times(asked: i64, free: i64) -> u64 {
    if asked <= 0 {
        u64::MAX
    } else {
        u64::try_from(free / asked).unwrap_or(0)
    }
}

/// Takes `count` pods that ask `asked` out of `free`. A negative request gives nothing back.
pub(in crate::brain) fn take(free: &mut Resources, asked: &Resources, count: u64) {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let times = |asked: i64| asked.max(0).saturating_mul(count);
    free.pods = free.pods.saturating_sub(count);
    free.cpu_milli = free.cpu_milli.saturating_sub(times(asked.cpu_milli));
    free.memory = free.memory.saturating_sub(times(asked.memory));
    free.ephemeral = free.ephemeral.saturating_sub(times(asked.ephemeral));
    for (name, asked) in asked.extended.iter().filter(|(_, asked)| **asked > 0) {
        if let Some(have) = free.extended.get_mut(name) {
            *have = have.saturating_sub(times(*asked));
        } else {
            free.extended
                .insert(name.clone(), 0i64.saturating_sub(times(*asked)));
        }
    }
}
