//! The two APIs of events show one store: `v1` as it lies there, `events.k8s.io/v1` translated.

use serde_json::{Value, json};

use super::object::{carry, set, text, unset};
use super::resources::{NEW_EVENTS, Res};

/// Pairs of field names: in `v1`, in `events.k8s.io/v1`.
const PAIRS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

fn renamed(
    mut event: Value,
    version: &str,
    pairs: impl Iterator<Item = (&'static str, &'static str)>,
) -> Value {
    let before = event.clone();
    for (from, to) in pairs {
        unset(&mut event, &[from]);
        if let Some(value) = before.get(from) {
            set(&mut event, &[to], value.clone());
        }
    }
    set(&mut event, &["apiVersion"], json!(version));
    event
}

/// From the store to the API that was asked.
pub(super) fn outward(res: Res, object: &Value) -> Option<Value> {
    (res == NEW_EVENTS).then(|| renamed(object.clone(), "events.k8s.io/v1", PAIRS.iter().copied()))
}

/// From the API that was asked to the store.
pub(super) fn inward(res: Res, object: Value) -> Value {
    if res != NEW_EVENTS {
        return object;
    }
    let version = text(&object, "/apiVersion");
    if !version.is_empty() && version != "events.k8s.io/v1" {
        return object;
    }
    let mut event = renamed(object, "v1", PAIRS.iter().map(|(a, b)| (*b, *a)));
    let first = event.clone();
    if event.get("firstTimestamp").is_none() {
        carry(&first, &mut event, &["eventTime"]);
    }
    event
}
