//! How pods are spread over domains: `skew`, `max_per_node`.

use std::collections::BTreeMap;

use serde_json::json;

use crate::conformance::act::CaseResult;
use crate::conformance::fields::CaseFields;
use crate::conformance::scalars::{count, label_key, several, text};
use crate::conformance::short;
use crate::conformance::value::{CaseError, CaseValue};
use crate::model::cluster::{ObjectKey, Pod};
use crate::model::label_list::LabelList;
use crate::model::scheduling::{LabelSelector, Operator, Requirement};

use super::Misses;
use super::pods::domain;

pub(super) fn judge(
    fields: &mut CaseFields<'_>,
    outcome: &CaseResult,
    misses: &mut Misses,
) -> Result<(), CaseError> {
    if let Some(value) = fields.take("skew") {
        skew(value, outcome, misses)?;
    }
    if let Some(value) = fields.any(&["max_per_node", "max_per_host"]) {
        let (of, most) = match value.scalar() {
            Some(_) => (None, count(value)?),
            None => {
                let mut fields = CaseFields::of(value, "max_per_node")?;
                let of = fields.with("of", chosen)?;
                let most = count(fields.need("is")?)?;
                fields.done()?;
                (of, most)
            }
        };
        let key = label_key("hostname");
        let counted = match &of {
            Some(of) => tally(outcome, key, &|_, pod| selects(of, &pod.shape.labels)),
            None => tally(outcome, key, &|_, pod| !daemon(pod)),
        };
        for (node, number) in counted.iter().filter(|(_, number)| **number > most) {
            misses.push(format!(
                "expected at most {most} pods a node, got {number} on {node}"
            ));
        }
    }
    Ok(())
}

/// `{zone: [1, 1, 2]}`, `{zone: {z1: 1}}`, or `[{key: zone, of: {app: web}, is: …}]`.
fn skew(value: &CaseValue, outcome: &CaseResult, misses: &mut Misses) -> Result<(), CaseError> {
    if let Some(entries) = value.map()
        && value.get("key").is_none()
    {
        for entry in entries {
            let key = label_key(&entry.key);
            let counted = tally(outcome, key, &|name, pod| {
                constrained(outcome, key, name, pod)
            });
            compare(&entry.key, &entry.value, &counted, misses)?;
        }
        return Ok(());
    }
    for item in several(value) {
        let mut fields = CaseFields::of(item, "a skew")?;
        let name = text(fields.need("key")?)?;
        let key = label_key(name);
        let of = fields
            .any(&["of", "selector", "labels"])
            .map(chosen)
            .transpose()?;
        let namespace = fields.any(&["ns", "namespace"]).map(text).transpose()?;
        let wanted = fields.need("is")?;
        fields.done()?;
        let counted = tally(outcome, key, &|known, pod| {
            let here = namespace.is_none_or(|namespace| namespace == &*known.namespace);
            here && match &of {
                Some(of) => selects(of, &pod.shape.labels),
                None => constrained(outcome, key, known, pod),
            }
        });
        compare(name, wanted, &counted, misses)?;
    }
    Ok(())
}

/// A label selector, as the model has it.
fn chosen(value: &CaseValue) -> Result<LabelSelector, CaseError> {
    let json = short::selector(value, &json!({}))?;
    let labels = json["matchLabels"].as_object();
    let expressions = json["matchExpressions"].as_array();
    Ok(LabelSelector {
        labels: labels
            .into_iter()
            .flatten()
            .map(|(key, of)| (key.as_str().into(), of.as_str().unwrap_or_default().into()))
            .collect(),
        expressions: expressions
            .into_iter()
            .flatten()
            .map(|item| serde_json::from_value(item.clone()))
            .collect::<Result<_, _>>()
            .map_err(|error| value.wrong(error.to_string()))?,
    })
}

fn daemon(pod: &Pod) -> bool {
    let owner = pod.shape.owner.as_ref();
    owner.is_some_and(|owner| &*owner.kind == "DaemonSet")
}

/// Pods per domain, those that go or have ended apart.
fn tally(
    outcome: &CaseResult,
    key: &str,
    counts: &dyn Fn(&ObjectKey, &Pod) -> bool,
) -> BTreeMap<String, usize> {
    let mut tally = BTreeMap::new();
    for (name, pod) in &outcome.after.snapshot.cluster.pods {
        if pod.deletion.is_some() || pod.phase.terminal() || !counts(name, pod) {
            continue;
        }
        let Some(at) = pod
            .node
            .as_ref()
            .and_then(|node| domain(outcome, node, Some(key)))
        else {
            continue;
        };
        *tally.entry(at).or_insert(0) += 1;
    }
    tally
}

/// Whether a pod counts for some spread constraint of the case over this key; where there is none,
/// every pod but those of DaemonSets counts.
fn constrained(outcome: &CaseResult, key: &str, name: &ObjectKey, pod: &Pod) -> bool {
    let mut any = false;
    for (of, other) in &outcome.after.snapshot.cluster.pods {
        for constraint in other
            .shape
            .spread
            .iter()
            .filter(|c| *c.topology_key == *key)
        {
            any = true;
            let selected = constraint
                .selector
                .as_ref()
                .is_some_and(|selector| selects(selector, &pod.shape.labels));
            if selected && of.namespace == name.namespace {
                return true;
            }
        }
    }
    !any && !daemon(pod)
}

fn compare(
    key: &str,
    wanted: &CaseValue,
    counted: &BTreeMap<String, usize>,
    misses: &mut Misses,
) -> Result<(), CaseError> {
    let got = || {
        let parts: Vec<String> = counted
            .iter()
            .map(|(at, number)| format!("{at}: {number}"))
            .collect();
        if parts.is_empty() {
            "none".to_owned()
        } else {
            parts.join(", ")
        }
    };
    if let Some(entries) = wanted.map() {
        let mut right = true;
        for entry in entries {
            right &= counted.get(&entry.key).copied().unwrap_or(0) == count(&entry.value)?;
        }
        let others = counted.keys().any(|at| wanted.get(at).is_none());
        if !right || others {
            let parts: Vec<String> = entries
                .iter()
                .map(|entry| format!("{}: {}", entry.key, entry.value.scalar().unwrap_or("?")))
                .collect();
            misses.push(format!(
                "expected {key} {}, got {}",
                parts.join(", "),
                got()
            ));
        }
        return Ok(());
    }
    let mut want = several(wanted)
        .into_iter()
        .map(count)
        .collect::<Result<Vec<_>, _>>()?;
    want.retain(|number| *number > 0);
    want.sort_unstable();
    let mut have: Vec<usize> = counted.values().copied().collect();
    have.sort_unstable();
    if want != have {
        misses.push(format!(
            "expected the skew {want:?} over {key}, got {have:?} ({})",
            got()
        ));
    }
    Ok(())
}

/// Whether a selector selects these labels.
pub(in crate::conformance) fn selects(selector: &LabelSelector, labels: &LabelList) -> bool {
    let equal =
        |(key, value): (&std::sync::Arc<str>, &std::sync::Arc<str>)| labels.get(key) == Some(value);
    selector.labels.iter().all(equal)
        && selector
            .expressions
            .iter()
            .all(|requirement| holds(requirement, labels))
}

fn holds(requirement: &Requirement, labels: &LabelList) -> bool {
    let value = labels.get(&requirement.key);
    let among = value.is_some_and(|value| requirement.values.contains(value));
    match requirement.operator {
        Operator::In => among,
        Operator::NotIn => !among,
        Operator::Exists => value.is_some(),
        Operator::DoesNotExist => value.is_none(),
        // Label selectors have no such operators.
        Operator::Gt | Operator::Lt => false,
    }
}
