//! Settings of a case: any knob of the policy by its name, laid over the defaults.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json, json};

use crate::model::policy::{Policy, ScaleDown, ScaleUp};
use crate::model::time::{Span, Time};
use crate::model::words;

use super::fields::CaseFields;
use super::flags;
use super::nearest;
use super::scalars::{self, decimal, parse_span, several};
use super::short;
use super::value::{CaseError, CaseValue};

/// Ends of the names of knobs that are spans: a bare number there would be milliseconds, which nobody
/// means.
const SPANS: [&str; 12] = [
    "_time",
    "_timeout",
    "new_pod_delay",
    "_age",
    "_idle",
    "batch_max",
    "backoff_first",
    "backoff_max",
    "backoff_reset",
    "quarantine",
    "_after",
    "_window",
];

/// Scale-up settings of cases: no waiting for a batch to close, and as many machines at once as it takes.
pub(super) fn scale_up() -> ScaleUp {
    ScaleUp {
        batch_idle: Span::ZERO,
        batch_max: Span::ZERO,
        max_in_flight: 1_000_000,
        ..ScaleUp::default()
    }
}

/// `settings: {scale_up: {…}, scale_down: {…}}`, or any other section of the policy.
pub(super) fn read(value: &CaseValue, policy: &mut Policy, now: Time) -> Result<(), CaseError> {
    let mut fields = CaseFields::of(value, "the settings")?;
    if let Some(value) = fields.take("scale_up") {
        policy.scale_up = overlay(&policy.scale_up, value, now, "scale_up")?;
    }
    if let Some(value) = fields.take("scale_down") {
        policy.scale_down = overlay(&policy.scale_down, value, now, "scale_down")?;
    }
    if let Some(value) = fields.take("regions") {
        policy.regions = overlay(&policy.regions, value, now, "regions")?;
    }
    let gib = 1 << 30;
    let totals = &mut policy.totals;
    if let Some(value) = fields.take("cores_total") {
        let (least, most) = flags::range(value)?;
        (totals.min_cpu_milli, totals.max_cpu_milli) =
            (least.saturating_mul(1000), Some(most.saturating_mul(1000)));
    }
    if let Some(value) = fields.take("memory_total") {
        let (least, most) = flags::range(value)?;
        (totals.min_memory, totals.max_memory) =
            (least.saturating_mul(gib), Some(most.saturating_mul(gib)));
    }
    let rest = fields.rest();
    let whole: Map<String, Json> = as_map(policy);
    for entry in rest {
        let one = CaseValue {
            at: entry.at.clone(),
            data: super::value::CaseData::Map(vec![entry.clone()]),
        };
        let structural = ["instance_types", "pools"].contains(&&*entry.key);
        let (up, down) = (as_map(&policy.scale_up), as_map(&policy.scale_down));
        let known_up = find(&up, &entry.key).is_some();
        let known_down = find(&down, &entry.key).is_some();
        if whole.contains_key(&entry.key) && !structural {
            *policy = overlay(policy, &one, now, "the settings")?;
        } else if known_up && !known_down {
            policy.scale_up = overlay(&policy.scale_up, &one, now, "scale_up")?;
        } else if known_down && !known_up {
            policy.scale_down = overlay(&policy.scale_down, &one, now, "scale_down")?;
        } else {
            let all = whole.keys().chain(up.keys()).chain(down.keys());
            return Err(CaseError {
                at: entry.at.clone(),
                text: format!(
                    "the settings have no key {:?}{}; known here: {}; in scale_up: {}; in scale_down: {}",
                    entry.key,
                    nearest::hint(&flags::knob(&entry.key), all.map(String::as_str)),
                    known(&whole, &["instance_types", "pools"]),
                    known(&up, &[]),
                    known(&down, &[]),
                ),
            });
        }
    }
    Ok(())
}

/// A pool's own scale-down settings, over the defaults.
pub(super) fn scale_down(value: &CaseValue, now: Time) -> Result<ScaleDown, CaseError> {
    overlay(&ScaleDown::default(), value, now, "scale_down")
}

/// `base` with every knob that `value` names set; an unknown one is an error that lists them all.
pub(super) fn overlay<T: Serialize + DeserializeOwned>(
    base: &T,
    value: &CaseValue,
    now: Time,
    what: &str,
) -> Result<T, CaseError> {
    let mut json = serde_json::to_value(base).map_err(|error| value.wrong(error.to_string()))?;
    lay(&mut json, value, now, what)?;
    serde_json::from_value(json).map_err(|error| value.wrong(format!("{what}: {error}")))
}

fn as_map<T: Serialize>(of: &T) -> Map<String, Json> {
    match serde_json::to_value(of) {
        Ok(Json::Object(map)) => map,
        _ => Map::new(),
    }
}

fn known(map: &Map<String, Json>, but: &[&str]) -> String {
    words::names(map.keys().filter(|name| !but.contains(&name.as_str())))
}

fn lay(base: &mut Json, value: &CaseValue, now: Time, what: &str) -> Result<(), CaseError> {
    let entries = value
        .map()
        .ok_or_else(|| value.expected(&format!("{what} as a map")))?;
    let Json::Object(map) = base else {
        *base = value.json();
        return Ok(());
    };
    for entry in entries {
        let (key, scale) = find(map, &entry.key).ok_or_else(|| CaseError {
            at: entry.at.clone(),
            text: format!(
                "{what} has no key {:?}{}; known here: {}",
                entry.key,
                nearest::hint(&flags::knob(&entry.key), map.keys().map(String::as_str)),
                known(map, &[])
            ),
        })?;
        let slot = map.entry(key.clone()).or_insert(Json::Null);
        if key == DEFAULT_SPREAD {
            *slot = several(&entry.value)
                .into_iter()
                .map(spread)
                .collect::<Result<_, _>>()?;
        } else if key == ATTACH_LIMITS {
            // Its keys are the names of drivers.
            *slot = entry.value.json();
        } else if slot.is_object() && entry.value.map().is_some() {
            lay(slot, &entry.value, now, &key)?;
        } else {
            *slot = knob(&key, scale, &entry.value, now)?;
        }
    }
    Ok(())
}

/// A map whose keys are the user's.
const ATTACH_LIMITS: &str = "attach_limits";

/// The cluster's default constraints may be written as those of pods.
const DEFAULT_SPREAD: &str = "default_spread";

fn spread(value: &CaseValue) -> Result<Json, CaseError> {
    if value.get("topology_key").is_some() {
        return Ok(value.json());
    }
    let long = short::spread(value, &json!({}))?;
    Ok(json!({
        "max_skew": long["maxSkew"],
        "topology_key": long["topologyKey"],
        "hard": long["whenUnsatisfiable"] == "DoNotSchedule",
        "min_domains": long["minDomains"],
        "honor_affinity": long["nodeAffinityPolicy"] != "Ignore",
        "honor_taints": long["nodeTaintsPolicy"] == "Honor",
    }))
}

/// The knob of a name, or of cluster-autoscaler's flag for it. `NAME` for `NAME_permille` or
/// `NAME_milli` takes a fraction.
fn find(map: &Map<String, Json>, name: &str) -> Option<(String, bool)> {
    let names = [name.to_owned(), flags::knob(name)];
    names.into_iter().find_map(|name| {
        if map.contains_key(&name) {
            return Some((name, false));
        }
        let mut ends = ["permille", "milli"].into_iter();
        let long = ends.find_map(|end| {
            let long = format!("{name}_{end}");
            map.contains_key(&long).then_some(long)
        });
        long.map(|long| (long, true))
    })
}

fn knob(key: &str, fraction: bool, value: &CaseValue, now: Time) -> Result<Json, CaseError> {
    let Some(text) = value.scalar() else {
        return Ok(value.json());
    };
    if fraction {
        let permille = decimal(text, 3).ok_or_else(|| value.expected("a fraction such as 0.5"))?;
        return Ok(permille.into());
    }
    let spanned = key.starts_with("delay_") || SPANS.iter().any(|end| key.ends_with(end));
    if spanned {
        return Ok(scalars::span(value)?.0.into());
    }
    let json = value.json();
    if json.is_string() {
        if key.ends_with("memory") {
            return Ok(scalars::quantity(value)?.units().into());
        }
        if let Some(span) = parse_span(text) {
            return Ok(span.0.into());
        }
        if text.ends_with(" ago") {
            return Ok(scalars::time(value, now)?.to_string().into());
        }
    }
    Ok(json)
}
