//! Spans as OTLP wants them in JSON: protobuf's own mapping, but for ids in hexadecimal digits and enumerations as numbers.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{TraceSpan, TracedMachine};
use crate::model::foreign;
use crate::model::time::Time;

/// `SPAN_KIND_INTERNAL`.
const INTERNAL: u8 = 1;
/// `STATUS_CODE_OK` …
const OK: u8 = 1;
/// … and `STATUS_CODE_ERROR`.
const ERROR: u8 = 2;
/// Longest text of an attribute, in characters.
const LONGEST: usize = 1_000;

/// The body of a request with these spans; `instance` tells this daemon from others.
pub(super) fn request(spans: &[TraceSpan], instance: &str) -> String {
    let mut clusters: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for span in spans {
        let of = clusters.entry(&span.machine.cluster).or_default();
        of.push(one(span));
    }
    let version = env!("CARGO_PKG_VERSION");
    let resources = clusters.into_iter().map(|(cluster, spans)| {
        let (uid, name) = cluster.split_once('/').unwrap_or((cluster, ""));
        json!({
            "resource": {"attributes": texts(&[
                ("service.name", "pve-autoscaler"),
                ("service.version", version),
                ("service.instance.id", instance),
                ("k8s.cluster.uid", uid),
                ("k8s.cluster.name", name),
            ])},
            "scopeSpans": [{
                "scope": {"name": "pve-autoscaler", "version": version},
                "spans": spans,
            }],
        })
    });
    json!({"resourceSpans": resources.collect::<Vec<_>>()}).to_string()
}

fn one(span: &TraceSpan) -> Value {
    let status = match &span.failure {
        None => json!({"code": OK}),
        Some(fault) => json!({"code": ERROR, "message": foreign::line(&fault.message, LONGEST)}),
    };
    let mut attributes = about(&span.machine);
    if let Some(fault) = &span.failure {
        attributes.extend(texts(&[("error.type", fault.step)]));
    }
    if !span.reason.is_empty() {
        let reason = foreign::line(&span.reason, LONGEST);
        attributes.extend(texts(&[("pve_autoscaler.reason", &reason)]));
    }
    let events = span.events.iter();
    let events = events.map(|(name, at)| json!({"name": name, "timeUnixNano": nanoseconds(*at)}));
    let mut object = json!({
        "traceId": span.trace.to_string(),
        "spanId": span.id.to_string(),
        "name": span.name,
        "kind": INTERNAL,
        "startTimeUnixNano": nanoseconds(span.began),
        "endTimeUnixNano": nanoseconds(span.ended),
        "attributes": attributes,
        "events": events.collect::<Vec<_>>(),
        "status": status,
    });
    if let Some(parent) = span.parent {
        object["parentSpanId"] = parent.to_string().into();
    }
    object
}

/// The machine, by OpenTelemetry's semantic conventions where they have a word.
fn about(machine: &TracedMachine) -> Vec<Value> {
    let mut all = texts(&[
        ("k8s.node.name", &machine.name),
        ("host.name", &machine.name),
        ("host.type", &machine.instance_type),
        ("host.image.name", &machine.template),
        ("pve_autoscaler.pool", &machine.pool),
        ("pve_autoscaler.region", &machine.region),
        ("pve_autoscaler.host", &machine.host),
    ]);
    let vmid = machine.vmid.to_string();
    all.push(json!({"key": "pve_autoscaler.vmid", "value": {"intValue": vmid}}));
    let known = [("host.id", &machine.uuid), ("k8s.node.uid", &machine.node)];
    for (key, value) in known {
        if let Some(value) = value {
            all.extend(texts(&[(key, value)]));
        }
    }
    all
}

fn texts(pairs: &[(&str, &str)]) -> Vec<Value> {
    let pairs = pairs.iter();
    pairs
        .map(|(key, text)| json!({"key": key, "value": {"stringValue": text}}))
        .collect()
}

/// A point in time as OTLP has it in JSON: a 64-bit number of nanoseconds, in a string.
fn nanoseconds(at: Time) -> String {
    let nanoseconds = i128::from(at.0.max(0)) * 1_000_000;
    nanoseconds.min(i128::from(u64::MAX)).to_string()
}
