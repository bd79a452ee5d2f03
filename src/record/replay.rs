//! Deciding anew on what was recorded, and what comes out otherwise.

mod sum;

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::query::Recorded;
use crate::brain;
use crate::model::action::Kind;
use crate::model::decision::Decision;
use crate::model::memory::Memory;
use crate::model::policy::Policy;
use crate::model::snapshot::Snapshot;
use crate::model::time::Time;

pub use sum::{PoolSum, ReplaySum, Summed, WasIs};

/// What a decision would be now.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "result")]
pub enum Replayed {
    /// What it was, but for what a report repeats of the configuration.
    Same,
    /// Another one.
    Differs {
        /// Where, with what was and what is.
        differences: Vec<ReplayDifference>,
        /// How many there are.
        count: usize,
    },
    /// What it was made of cannot be read by this program.
    Unreadable {
        /// Why.
        why: String,
    },
}

/// One value that is another.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ReplayDifference {
    /// Where, such as `report.pods.default/web-1.verdict`.
    pub at: String,
    /// What was recorded; `None`: nothing.
    pub was: Option<Value>,
    /// What is decided now; `None`: nothing.
    pub is: Option<Value>,
}

/// A decision that was recorded, and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ReplayOutcome {
    /// When it was taken.
    pub at: Time,
    /// The decision's number since the start of its daemon.
    pub decision: u64,
    /// The program that took it.
    pub program: Arc<str>,
    /// What it would be now.
    #[serde(flatten)]
    pub replayed: Replayed,
    /// What is another in the report because it repeats the configuration, which is another.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub configuration: Vec<ReplayDifference>,
    /// Both decisions, where this program reads the recorded one.
    #[serde(skip)]
    pub twice: Option<Box<DecidedTwice>>,
}

/// A decision as it was recorded and as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct DecidedTwice {
    /// As it was recorded.
    pub was: Decision,
    /// As it is now.
    pub is: Decision,
    /// What the machines of both plans cost an hour, by their names, in millionths: under the configuration that planned them.
    prices: WasIs<BTreeMap<Arc<str>, i64>>,
}

/// Decides anew. With `policy` under another configuration than was in force.
pub fn replay(recorded: &Recorded, policy: Option<&Policy>) -> ReplayOutcome {
    let (replayed, configuration, twice) = match decide(recorded, policy) {
        Ok(Redecided { was, is, twice }) => {
            let (replayed, configuration) = compare(&was, &is, policy.is_some());
            (replayed, configuration, twice)
        }
        Err(why) => (Replayed::Unreadable { why }, Vec::new(), None),
    };
    ReplayOutcome {
        at: recorded.at,
        decision: recorded.number,
        program: recorded.program.clone(),
        replayed,
        configuration,
        twice,
    }
}

/// A decision that was made anew.
struct Redecided {
    /// The recorded one, in JSON.
    was: Value,
    /// The one of now, in JSON.
    is: Value,
    twice: Option<Box<DecidedTwice>>,
}

/// Makes a recorded decision anew.
fn decide(recorded: &Recorded, policy: Option<&Policy>) -> Result<Redecided, String> {
    fn part<T: DeserializeOwned>(recorded: &Recorded, name: &str) -> Result<T, String> {
        let value = recorded.state.get(name).cloned().unwrap_or_default();
        serde_json::from_value(value).map_err(|error| {
            let by = &recorded.program;
            format!("the {name} was written by version {by} and cannot be read: {error}")
        })
    }
    let snapshot: Snapshot = part(recorded, "snapshot")?;
    let memory: Memory = part(recorded, "memory")?;
    let own_policy = part::<Policy>(recorded, "policy");
    let policy = match (policy, &own_policy) {
        (Some(policy), _) | (None, Ok(policy)) => policy,
        (None, Err(why)) => return Err(why.clone()),
    };
    let is = brain::decide(&snapshot, policy, &memory, recorded.at);
    let mut written = serde_json::to_value(&is).map_err(|error| error.to_string())?;
    let was = recorded.state.get("decision").cloned().unwrap_or_default();
    let read = serde_json::from_value::<Decision>(was.clone()).ok();
    let was = comparable(was, read.as_ref(), &mut written);
    let twice = read.map(|read| {
        let prices = WasIs {
            was: prices(&read, own_policy.as_ref().unwrap_or(policy)),
            is: prices(&is, policy),
        };
        let was = read;
        Box::new(DecidedTwice { was, is, prices })
    });
    let is = written;
    Ok(Redecided { was, is, twice })
}

/// What each machine that a decision makes costs an hour. Programs from before machines had terms did not record their types.
fn prices(decision: &Decision, policy: &Policy) -> BTreeMap<Arc<str>, i64> {
    let made = decision
        .plan
        .iter()
        .filter_map(|action| match &action.kind {
            Kind::Create(spec) => Some((&action.target, spec.terms.as_ref()?)),
            _ => None,
        });
    made.map(|(target, terms)| {
        let price = brain::price(policy, &target.region, &terms.kind);
        (target.machine.clone(), price)
    })
    .collect()
}

/// Keys under which a reason stands with its code, beside its sentence ([`crate::model::reasons`]).
const CODES: [&str; 4] = [
    "details",
    "filter_failure_details",
    "held_details",
    "others_details",
];

/// A recorded decision as this program writes it, where it can read it: what is left out when empty is no difference.
/// Programs from before reasons had codes wrote the sentences alone: of their decisions the sentences are compared.
fn comparable(was: Value, read: Option<&Decision>, is: &mut Value) -> Value {
    match read.map(serde_json::to_value) {
        Some(Ok(written)) => written,
        _ => {
            if !has_codes(&was) {
                drop_codes(is);
            }
            was
        }
    }
}

fn has_codes(value: &Value) -> bool {
    match value {
        Value::Object(map) => map
            .iter()
            .any(|(key, value)| CODES.contains(&key.as_str()) || has_codes(value)),
        Value::Array(list) => list.iter().any(has_codes),
        _ => false,
    }
}

fn drop_codes(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| !CODES.contains(&key.as_str()));
            map.values_mut().for_each(drop_codes);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_codes),
        _ => {}
    }
}

/// What is another, and what is another only because the report repeats a configuration that is (`otherwise`) another.
fn compare(was: &Value, is: &Value, otherwise: bool) -> (Replayed, Vec<ReplayDifference>) {
    let mut differences = Vec::new();
    let mut configuration = Vec::new();
    look(
        &mut String::new(),
        Some(was),
        Some(is),
        &mut |at, difference| {
            let kept = if otherwise && repeats_configuration(at) {
                &mut configuration
            } else {
                &mut differences
            };
            kept.push(difference());
        },
    );
    let count = differences.len();
    let replayed = if count == 0 {
        Replayed::Same
    } else {
        Replayed::Differs { differences, count }
    };
    (replayed, configuration)
}

/// Every value that is another in two values.
pub fn differences(was: &Value, is: &Value) -> Vec<ReplayDifference> {
    let mut found = Vec::new();
    look(
        &mut String::new(),
        Some(was),
        Some(is),
        &mut |_, difference| found.push(difference()),
    );
    found
}

/// What a report says of pools, networks, hosts and storages that is no finding: it stands so in the file.
fn repeats_configuration(at: &str) -> bool {
    let parts: Vec<&str> = at.split('.').collect();
    matches!(
        parts[..],
        ["report", "pools" | "networks", _]
            | ["report", "pools", _, "min" | "max"]
            | ["report", "networks", _, _]
            | ["report", "networks", _, _, "ranges" | "size"]
            | ["report", "hosts", _, _, "most_memory" | "most_cpu_milli"]
            | ["report", "storages", _, _, "most"]
            | ["report", "storages", _, _, "pools", _, "min_free"]
    )
}

/// Tells of every value that is another, as deep as both have the same form.
fn look(
    at: &mut String,
    was: Option<&Value>,
    is: Option<&Value>,
    tell: &mut dyn FnMut(&str, &mut dyn FnMut() -> ReplayDifference),
) {
    if was == is {
        return;
    }
    let length = at.len();
    let mut deeper = |name: &str, was: Option<&Value>, is: Option<&Value>| {
        if !at.is_empty() {
            at.push('.');
        }
        at.push_str(name);
        look(at, was, is, tell);
        at.truncate(length);
    };
    match (was, is) {
        (Some(Value::Object(was)), Some(Value::Object(is))) => {
            for (key, before) in was {
                deeper(key, Some(before), is.get(key));
            }
            for (key, after) in is.iter().filter(|(key, _)| !was.contains_key(*key)) {
                deeper(key, None, Some(after));
            }
        }
        (Some(Value::Array(was)), Some(Value::Array(is))) => {
            for index in 0..was.len().max(is.len()) {
                deeper(&index.to_string(), was.get(index), is.get(index));
            }
        }
        _ => tell(at, &mut || ReplayDifference {
            at: at.clone(),
            was: was.cloned(),
            is: is.cloned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::reasons::Held;
    use crate::model::report::{Hold, Report, Scope};

    fn decision() -> Value {
        let mut decision = Decision {
            plan: Vec::new(),
            report: Report::default(),
            memory: Memory::default(),
            wake: None,
        };
        let hold = Hold::new(Scope::ScaleDown, Held::ScaleDownDisabled);
        decision.report.holds.push(hold);
        serde_json::to_value(decision).expect("plain data")
    }

    #[test]
    fn a_decision_from_before_reasons_had_codes_is_compared_by_its_sentences() {
        let (mut is, mut old) = (decision(), decision());
        drop_codes(&mut old);
        assert_eq!(old["report"]["holds"][0].get("details"), None);
        let comparable = |was: Value, is: &mut Value| {
            let read = serde_json::from_value(was.clone()).ok();
            super::comparable(was, read.as_ref(), is)
        };
        let was = comparable(old.clone(), &mut is);
        assert_eq!(compare(&was, &is, false).0, Replayed::Same);
        old["report"]["holds"][0]["why"] = json!("another sentence");
        let mut is = decision();
        let was = comparable(old, &mut is);
        assert!(matches!(
            compare(&was, &is, false).0,
            Replayed::Differs { count: 1, .. }
        ));
    }

    #[test]
    fn a_code_that_is_another_is_a_difference() {
        let (mut is, mut was) = (decision(), decision());
        was["report"]["holds"][0]["details"] = json!({"code": "no_cluster_id"});
        let read = serde_json::from_value(was.clone()).ok();
        let was = comparable(was, read.as_ref(), &mut is);
        assert!(matches!(
            compare(&was, &is, false).0,
            Replayed::Differs { .. }
        ));
    }

    /// It finds the bound of fifty that there was: whoever asks for JSON wants each.
    #[test]
    fn every_difference_is_told() {
        let memory = |value: u32| {
            let of: Value = (0..440)
                .map(|n| (format!("pod-{n}"), json!(value)))
                .collect();
            json!({"memory": {"seen": of}})
        };
        let (replayed, _) = compare(&memory(1), &memory(2), false);
        let Replayed::Differs { differences, count } = replayed else {
            panic!("{replayed:?}");
        };
        assert_eq!((differences.len(), count), (440, 440));
    }

    #[test]
    fn what_a_report_repeats_of_another_configuration_makes_no_other_decision() {
        let pool = |max: u32, ready: u32| json!({"report": {"pools": {"workers": {"max": max, "ready": ready}}}});
        let (replayed, configuration) = compare(&pool(5, 1), &pool(6, 1), true);
        assert_eq!(replayed, Replayed::Same);
        assert_eq!(configuration.len(), 1);
        assert_eq!(configuration[0].at, "report.pools.workers.max");
        // Under the configuration of then it is a finding, and so is another number of nodes.
        let (replayed, configuration) = compare(&pool(5, 1), &pool(6, 1), false);
        assert!(matches!(replayed, Replayed::Differs { count: 1, .. }));
        assert!(configuration.is_empty());
        let (replayed, _) = compare(&pool(5, 1), &pool(6, 2), true);
        assert!(matches!(replayed, Replayed::Differs { count: 1, .. }));
        // So it is with the limits of hosts and storages, and not with what is left within them.
        let stores = |limit: i64, left: i64| {
            let storage =
                json!({"most": limit, "left": left, "pools": {"workers": {"min_free": limit}}});
            let (hosts, storages) = (
                json!({"pve1": {"most_memory": limit}}),
                json!({"pve1/data": storage}),
            );
            json!({"report": {"hosts": {"default": hosts}, "storages": {"default": storages}}})
        };
        let (replayed, configuration) = compare(&stores(5, 1), &stores(6, 1), true);
        assert_eq!((replayed, configuration.len()), (Replayed::Same, 3));
        let (replayed, _) = compare(&stores(5, 1), &stores(6, 2), true);
        assert!(matches!(replayed, Replayed::Differs { count: 1, .. }));
    }
}
