//! A memory and a snapshot that somebody spoilt: any number and time in them replaced by one that nobody has. Whatever
//! can still be read is decided on.

use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::properties::{build, world};
use crate::{check, decide};
use model::memory::{Backoff, Batch, Evicted, Memory, Replacement, Settled};
use model::time::Span;

const NUMBERS: [i64; 7] = [
    i64::MIN,
    i64::MAX,
    0,
    -1,
    1,
    i32::MAX as i64,
    u32::MAX as i64,
];
const TIMES: [&str; 4] = [
    "-009999-01-02T01:59:59Z",
    "9999-12-30T22:00:00Z",
    "1970-01-01T00:00:00Z",
    "2026-11-22T10:00:00.001Z",
];

/// Replaces the numbers and times of a document that are asked for, counted from its beginning.
fn spoil(value: &mut Value, left: &mut usize, with: usize) -> bool {
    match value {
        Value::Number(_) | Value::String(_) => {
            let time = value
                .as_str()
                .map(|text| text.parse::<jiff::Timestamp>().is_ok());
            if time == Some(false) {
                return false;
            }
            if *left > 0 {
                *left -= 1;
                return false;
            }
            *value = match time {
                Some(_) => json!(TIMES[with % TIMES.len()]),
                None => json!(NUMBERS[with % NUMBERS.len()]),
            };
            true
        }
        Value::Array(list) => list.iter_mut().any(|item| spoil(item, left, with)),
        Value::Object(map) => map.values_mut().any(|item| spoil(item, left, with)),
        _ => false,
    }
}

/// It with some of its numbers and times spoilt, where it can still be read.
fn spoilt<T: Serialize + DeserializeOwned>(good: &T, edits: &[(usize, usize)]) -> Option<T> {
    let mut value = serde_json::to_value(good).expect("it serialises");
    for (at, with) in edits {
        let mut left = *at;
        spoil(&mut value, &mut left, *with);
    }
    serde_json::from_value(value).ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn no_state_that_can_be_read_ends_the_program(
        world in world(),
        in_memory in proptest::collection::vec((0usize..120, 0usize..28), 0..6),
        in_snapshot in proptest::collection::vec((0usize..1_500, 0usize..28), 0..6),
    ) {
        let mut lab = build(&world);
        let first = lab.turn();
        let now = lab.now;
        let mut memory: Memory = first.memory;
        let some = || "n0".into();
        memory.backoff.insert("p".into(), Backoff { advice: None, until: now + Span::minutes(5), length: Span::minutes(5), failed: now, message: "no".into() });
        memory.batch = Some(Batch { first: now, last: now, pods: [some()].into(), closed: false });
        memory.settled.insert(some(), Settled { pods: 7, since: now });
        memory.unneeded_since.insert(some(), now);
        memory.quarantine.insert(some(), now);
        memory.unreplaceable.insert(some(), now);
        memory.replacements.insert(some(), Replacement { nodes: [(some(), some())].into(), gone: [].into(), planned: now, saving: 5 });
        if let Some((key, pod)) = lab.snapshot.cluster.pods.iter().next() {
            memory.evicted.insert(some(), Evicted { pod: key.clone(), shape: pod.shape.clone(), seen: now, gone: Some(now) });
        }
        memory.last_scale_up = Some(now);
        memory.last_scale_down_failure = Some(now);
        let Some(memory) = spoilt(&memory, &in_memory) else {
            return Ok(());
        };
        let Some(snapshot) = spoilt(&lab.snapshot, &in_snapshot) else {
            return Ok(());
        };
        let decision = decide(&snapshot, &lab.policy, &memory, now);
        let _ = check::check_plan(&decision.plan, &snapshot, &lab.policy, now);
        let again = decide(&snapshot, &lab.policy, &decision.memory, now + Span::minutes(11));
        let _ = format!("{again:?}");
    }
}
