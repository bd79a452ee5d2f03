//! Single values: numbers, quantities, spans and points in time.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::quantity::Quantity;
use crate::model::resources::Resources;
use crate::model::scheduling::Labels;
use crate::model::time::{Span, Time};

use super::value::{CaseError, CaseValue};

/// Milliseconds of the units in which spans are written.
const UNITS: [(&str, i64); 6] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
    ("w", 604_800_000),
];

/// Text; numbers and truth values count as what was written.
pub(super) fn text(value: &CaseValue) -> Result<&str, CaseError> {
    value.scalar().ok_or_else(|| value.expected("text"))
}

/// Shared text.
pub(super) fn shared(value: &CaseValue) -> Result<Arc<str>, CaseError> {
    Ok(text(value)?.into())
}

/// `true` or `false`.
pub(super) fn truth(value: &CaseValue) -> Result<bool, CaseError> {
    match value.scalar() {
        Some("true" | "yes" | "on") => Ok(true),
        Some("false" | "no" | "off") => Ok(false),
        _ => Err(value.expected("true or false")),
    }
}

/// A whole number.
pub(super) fn whole<T: std::str::FromStr>(value: &CaseValue) -> Result<T, CaseError> {
    value
        .scalar()
        .map(|text| text.replace('_', ""))
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| value.expected("a whole number"))
}

/// A number of things, at least 0.
pub(super) fn count(value: &CaseValue) -> Result<usize, CaseError> {
    whole(value)
}

/// Things of one entry at most: far beyond what a person can look at.
const MOST: usize = 100_000;

/// How many things an entry stands for.
pub(super) fn many(value: &CaseValue) -> Result<usize, CaseError> {
    let many = count(value)?;
    if many > MOST {
        return Err(value.expected(&format!("at most {MOST} of one kind")));
    }
    Ok(many)
}

/// A Kubernetes quantity.
pub(super) fn quantity(value: &CaseValue) -> Result<Quantity, CaseError> {
    let written = text(value)?;
    if written.starts_with('-') {
        return Err(value.expected("a quantity that is not negative"));
    }
    written
        .parse()
        .map_err(|error: crate::model::quantity::QuantityError| value.wrong(error.to_string()))
}

/// A list, or one thing in its place.
pub(super) fn several(value: &CaseValue) -> Vec<&CaseValue> {
    match value.list() {
        Some(items) => items.iter().collect(),
        None if value.is_null() => Vec::new(),
        None => vec![value],
    }
}

/// A list of texts, or one text.
pub(super) fn texts(value: &CaseValue) -> Result<Vec<String>, CaseError> {
    several(value)
        .into_iter()
        .map(|item| text(item).map(str::to_owned))
        .collect()
}

/// Several names, in their order.
pub(super) fn names(value: &CaseValue) -> Result<BTreeSet<Arc<str>>, CaseError> {
    let names = texts(value)?.into_iter();
    Ok(names.map(Arc::from).collect())
}

/// The full name of a resource: `mem` and `storage` are short for what Kubernetes calls them.
pub(super) fn resource(name: &str) -> &str {
    match name {
        "mem" => "memory",
        "ephemeral" | "storage" => "ephemeral-storage",
        other => other,
    }
}

/// An amount of every resource.
pub(super) fn resources(value: &CaseValue) -> Result<Resources, CaseError> {
    let entries = value
        .map()
        .ok_or_else(|| value.expected("amounts by resource, such as {cpu: 500m, memory: 1Gi}"))?;
    let mut all = Resources::default();
    for entry in entries {
        if entry.value.is_null() {
            continue;
        }
        let amount = quantity(&entry.value)?;
        match resource(&entry.key) {
            "cpu" => all.cpu_milli = amount.milli(),
            "memory" => all.memory = amount.units(),
            "ephemeral-storage" => all.ephemeral = amount.units(),
            "pods" => all.pods = amount.units(),
            other => {
                all.extended.insert(other.into(), amount.units());
            }
        }
    }
    Ok(all)
}

/// Whether amounts by resource name this one.
pub(super) fn gives(value: &CaseValue, name: &str) -> bool {
    let mut entries = value.map().into_iter().flatten();
    entries.any(|entry| !entry.value.is_null() && resource(&entry.key) == name)
}

/// The node label that a short name stands for.
pub(super) fn label_key(name: &str) -> &str {
    match name {
        "zone" => "topology.kubernetes.io/zone",
        "region" => "topology.kubernetes.io/region",
        "hostname" => "kubernetes.io/hostname",
        "arch" => "kubernetes.io/arch",
        "os" => "kubernetes.io/os",
        "instance-type" => "node.kubernetes.io/instance-type",
        "pool" => "pve-autoscaler.io/pool",
        other => other,
    }
}

/// Labels, written as a map.
pub(super) fn labels(value: &CaseValue) -> Result<Labels, CaseError> {
    if let Some(written) = value.scalar() {
        let parts = written.split(',').map(|part| part.trim().split_once('='));
        let pairs = parts.map(|part| part.map(|(key, of)| (key.into(), of.into())));
        return pairs
            .collect::<Option<Labels>>()
            .ok_or_else(|| value.expected("labels, such as {app: web} or app=web"));
    }
    let entries = value
        .map()
        .ok_or_else(|| value.expected("labels as a map, such as {app: web}"))?;
    entries
        .iter()
        .map(|entry| {
            let value = if entry.value.is_null() {
                ""
            } else {
                text(&entry.value)?
            };
            Ok((entry.key.as_str().into(), value.into()))
        })
        .collect()
}

/// Labels of nodes, where short names may be used.
pub(super) fn node_labels(value: &CaseValue) -> Result<Labels, CaseError> {
    Ok(labels(value)?
        .into_iter()
        .map(|(key, value)| (label_key(&key).into(), value))
        .collect())
}

/// A span such as `90s`, `1h30m`, `2d`; `0`.
pub(super) fn span(value: &CaseValue) -> Result<Span, CaseError> {
    value
        .scalar()
        .and_then(parse_span)
        .ok_or_else(|| value.expected("a span such as 30s, 1h30m or 2d"))
}

/// See [`span`].
pub(super) fn parse_span(text: &str) -> Option<Span> {
    if text == "0" {
        return Some(Span::ZERO);
    }
    let (mut rest, mut sum) = (text, 0i64);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let (number, tail) = rest.split_at(digits);
        let end = tail
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let size = UNITS.iter().find(|(name, _)| *name == unit)?.1;
        let amount = match number.split_once('.') {
            None => number.parse::<i64>().ok()?.checked_mul(size)?,
            Some((whole, fraction)) if fraction.len() <= 6 => {
                let scale = 10i64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
                let digits = format!("{whole}{fraction}").parse::<i64>().ok()?;
                digits.checked_mul(size)? / scale
            }
            Some(_) => return None,
        };
        sum = sum.checked_add(amount)?;
        rest = tail;
    }
    Some(Span(sum))
}

/// A point in time: `5m ago`, `-5m`, `in 5m`, `+5m`, `now`, or RFC 3339.
pub(super) fn time(value: &CaseValue, now: Time) -> Result<Time, CaseError> {
    let text = text(value)?.trim();
    if text == "now" {
        return Ok(now);
    }
    let past = text
        .strip_suffix("ago")
        .or_else(|| text.strip_prefix('-'))
        .map(str::trim);
    let future = text
        .strip_prefix("in ")
        .or_else(|| text.strip_prefix('+'))
        .map(str::trim);
    if let Some(span) = past.and_then(parse_span) {
        return Ok(now - span);
    }
    if let Some(span) = future.and_then(parse_span) {
        return Ok(now + span);
    }
    text.parse::<jiff::Timestamp>()
        .map(|timestamp| Time(timestamp.as_millisecond()))
        .map_err(|_| {
            value.expected("a time: \"5m ago\", \"in 5m\", now, or one as 2026-01-02T03:04:05Z")
        })
}

/// A non-negative decimal such as `0.35`, in millionths.
pub(super) fn millionths(value: &CaseValue) -> Result<i64, CaseError> {
    decimal(text(value)?, 6).ok_or_else(|| value.expected("a number such as 0.35"))
}

/// A decimal such as `1.5`, in thousandths: a ratio of overcommit, a part of what there is.
pub(super) fn permille(value: &CaseValue) -> Result<i64, CaseError> {
    decimal(text(value)?, 3).ok_or_else(|| value.expected("a number such as 1.5"))
}

/// A decimal in units of 10^-`digits`; further digits must be zero.
pub(super) fn decimal(text: &str, digits: usize) -> Option<i64> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let (kept, lost) = fraction.split_at(fraction.len().min(digits));
    if lost.bytes().any(|byte| byte != b'0') {
        return None;
    }
    let all = format!("{whole}{kept:0<digits$}");
    if !all.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = all.parse::<i64>().ok()?;
    Some(if negative { -number } else { number })
}
