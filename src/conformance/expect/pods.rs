//! Where pods stand after the plan, and why those stand nowhere that do not.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::conformance::act::{CaseResult, matches};
use crate::conformance::fields::CaseFields;
use crate::conformance::scalars::{count, label_key, several, text, texts};
use crate::conformance::value::{CaseError, CaseValue};
use crate::model::cluster::ObjectKey;
use crate::model::report::PodVerdict;

use super::{Misses, shown, speaks_of, wanted};

pub(super) fn judge(
    fields: &mut CaseFields<'_>,
    outcome: &CaseResult,
    misses: &mut Misses,
) -> Result<(), CaseError> {
    if let Some(value) = fields.take("placed") {
        placed(value, outcome, misses)?;
    }
    if let Some(value) = fields.any(&["unschedulable", "pending"]) {
        let homeless: BTreeSet<&ObjectKey> = outcome
            .waited
            .iter()
            .filter(|key| place(outcome, key).is_none() && !is_ignored(outcome, key))
            .collect();
        listed(value, "unschedulable", &homeless, outcome, misses)?;
    }
    if outcome.drain.is_none()
        && let Some(value) = fields.take("ignored")
    {
        let ignored = outcome
            .waited
            .iter()
            .filter(|key| is_ignored(outcome, key))
            .collect();
        listed(value, "ignored", &ignored, outcome, misses)?;
    }
    if let Some(value) = fields.take("triggers") {
        let triggers = outcome
            .waited
            .iter()
            .filter(|key| {
                outcome.decisions.iter().any(|decision| {
                    matches!(
                        decision.report.pods.get(key),
                        Some(PodVerdict::Triggers { .. })
                    )
                })
            })
            .collect();
        listed(value, "triggers", &triggers, outcome, misses)?;
    }
    if let Some(value) = fields.take("preempted") {
        let preempted = outcome
            .decisions
            .iter()
            .flat_map(|decision| decision.report.pods.values())
            .filter_map(|verdict| match verdict {
                PodVerdict::FitsNode { preempts, .. } => Some(preempts.keys()),
                _ => None,
            })
            .flatten()
            .collect();
        listed(value, "preempted", &preempted, outcome, misses)?;
    }
    if let Some(value) = fields.take("verdicts") {
        verdicts(value, outcome, misses)?;
    }
    for (key, same) in [("together", true), ("apart", false)] {
        if let Some(value) = fields.take(key) {
            company(value, same, outcome, misses)?;
        }
    }
    events(fields, outcome, misses)
}

/// Where a pod stands after the plan.
pub(super) fn place<'o>(outcome: &'o CaseResult, key: &ObjectKey) -> Option<&'o Arc<str>> {
    outcome.after.snapshot.cluster.pods.get(key)?.node.as_ref()
}

fn is_ignored(outcome: &CaseResult, key: &ObjectKey) -> bool {
    let verdict = outcome
        .last()
        .and_then(|decision| decision.report.pods.get(key));
    matches!(verdict, Some(PodVerdict::Ignored { .. }) | None)
}

/// All pods of the case that a pattern means.
pub(super) fn meant<'o>(
    pattern: &CaseValue,
    outcome: &'o CaseResult,
) -> Result<Vec<&'o ObjectKey>, CaseError> {
    let written = text(pattern)?;
    named(written, pattern, outcome)
}

pub(super) fn named<'o>(
    written: &str,
    at: &CaseValue,
    outcome: &'o CaseResult,
) -> Result<Vec<&'o ObjectKey>, CaseError> {
    let (before, after) = (
        &outcome.before.snapshot.cluster,
        &outcome.after.snapshot.cluster,
    );
    let mut found: BTreeSet<&ObjectKey> = BTreeSet::new();
    found.extend(before.pods.keys().filter(|key| matches(written, key)));
    found.extend(after.pods.keys().filter(|key| matches(written, key)));
    if found.is_empty() {
        return Err(at.wrong(format!("there is no pod {written:?} in this case")));
    }
    Ok(found.into_iter().collect())
}

/// `placed: all`, a number, a list of pods, or `{pod: node}` with `new`, `none`, or several nodes.
fn placed(value: &CaseValue, outcome: &CaseResult, misses: &mut Misses) -> Result<(), CaseError> {
    let have: BTreeSet<&ObjectKey> = outcome
        .waited
        .iter()
        .filter(|key| place(outcome, key).is_some())
        .collect();
    if let Some(entries) = value.map() {
        for entry in entries {
            for key in named(&entry.key, &entry.value, outcome)? {
                stands(key, &entry.value, outcome, misses)?;
            }
        }
        return Ok(());
    }
    if value.scalar() == Some("all") {
        let without: Vec<String> = outcome
            .waited
            .iter()
            .filter(|key| place(outcome, key).is_none() && !is_ignored(outcome, key))
            .map(|key| format!("{} ({})", key.name, reason(outcome, key)))
            .collect();
        if !without.is_empty() {
            misses.push(format!(
                "expected a place for every pod, got none for {}",
                shown(without)
            ));
        }
        return Ok(());
    }
    if super::as_number(
        value,
        "placed",
        have.len(),
        || shown(have.iter().map(|key| key.name.to_string())),
        misses,
    )? {
        return Ok(());
    }
    for item in several(value) {
        for key in meant(item, outcome)? {
            if place(outcome, key).is_none() {
                misses.push(format!(
                    "expected a place for {}, got none: {}",
                    key.name,
                    reason(outcome, key)
                ));
            }
        }
    }
    Ok(())
}

fn stands(
    key: &ObjectKey,
    value: &CaseValue,
    outcome: &CaseResult,
    misses: &mut Misses,
) -> Result<(), CaseError> {
    let at = place(outcome, key);
    let new = at.is_some_and(|at| outcome.planned.iter().any(|planned| planned.name == *at));
    let options = texts(value)?;
    let right = options.iter().any(|option| match option.as_str() {
        "none" => at.is_none(),
        "new" => new,
        "old" => at.is_some() && !new,
        "any" => at.is_some(),
        node => at.is_some_and(|at| **at == *node),
    });
    if !right {
        misses.push(format!(
            "expected {} on {}, got {}",
            key.name,
            options.join(" or "),
            at.map_or_else(
                || format!("none: {}", reason(outcome, key)),
                |at| if new {
                    format!("the new node {at}")
                } else {
                    at.to_string()
                }
            )
        ));
    }
    Ok(())
}

/// Why a pod has no place, in the words of the report.
pub(super) fn reason(outcome: &CaseResult, key: &ObjectKey) -> String {
    match outcome
        .last()
        .and_then(|decision| decision.report.pods.get(key))
    {
        None => "no verdict".to_owned(),
        Some(PodVerdict::NoCompatiblePool { why } | PodVerdict::Held { why }) => {
            let all: Vec<String> = why.iter().map(|(of, why)| format!("{of}: {why}")).collect();
            if all.is_empty() {
                "no pool is there".to_owned()
            } else {
                shown(all)
            }
        }
        Some(PodVerdict::Ignored { why }) => why.to_string(),
        Some(PodVerdict::Unread { why }) => why.to_string(),
        Some(other) => other.name().to_owned(),
    }
}

/// A complete list of pods, or their number; items may want a reason.
fn listed(
    value: &CaseValue,
    what: &str,
    have: &BTreeSet<&ObjectKey>,
    outcome: &CaseResult,
    misses: &mut Misses,
) -> Result<(), CaseError> {
    let names = || shown(have.iter().map(|key| key.name.to_string()));
    if super::as_number(value, what, have.len(), names, misses)? {
        return Ok(());
    }
    let mut named: BTreeSet<&ObjectKey> = BTreeSet::new();
    for item in several(value) {
        let (pattern, reason_wanted, number) = if item.map().is_some() {
            let mut fields = CaseFields::of(item, "a pod in a list")?;
            let pattern = fields.need("pod")?;
            let reason = fields.take("reason");
            let number = fields.with("count", count)?;
            fields.done()?;
            (pattern, reason, number)
        } else {
            (item, None, None)
        };
        let keys = meant(pattern, outcome)?;
        let hit: Vec<&&ObjectKey> = keys.iter().filter(|key| have.contains(**key)).collect();
        if let Some(number) = number {
            if hit.len() != number {
                misses.push(format!(
                    "expected {number} of {} {what}, got {}",
                    text(pattern)?,
                    hit.len()
                ));
            }
            named.extend(hit.iter().map(|key| **key));
        } else {
            named.extend(keys.iter().copied());
        }
        for key in hit {
            let said = reason(outcome, key);
            if let Some(reason) = reason_wanted
                && !speaks_of(reason, &said)?
            {
                misses.push(format!(
                    "expected {} {what} because of {}, got {said}",
                    key.name,
                    wanted(reason)
                ));
            }
        }
    }
    if named != *have {
        let want = shown(named.iter().map(|key| key.name.to_string()));
        misses.push(format!("expected {what}: {want}, got {}", names()));
    }
    Ok(())
}

/// `verdicts: {web: no_compatible_pool}`. Older cases call that verdict `hopeless`.
fn verdicts(value: &CaseValue, outcome: &CaseResult, misses: &mut Misses) -> Result<(), CaseError> {
    let entries = value
        .map()
        .ok_or_else(|| value.expected("verdicts by pod, as {web: no_compatible_pool}"))?;
    for entry in entries {
        let mut options = texts(&entry.value)?;
        for option in options.iter_mut().filter(|option| *option == "hopeless") {
            "no_compatible_pool".clone_into(option);
        }
        for key in named(&entry.key, &entry.value, outcome)? {
            let verdict = outcome.last().and_then(|d| d.report.pods.get(key));
            let have = verdict.map_or("none", PodVerdict::name);
            if !options.iter().any(|option| option == have) {
                misses.push(format!(
                    "expected the verdict {} for {}, got {have}: {}",
                    options.join(" or "),
                    key.name,
                    reason(outcome, key)
                ));
            }
        }
    }
    Ok(())
}

/// `together: [[a, b]]` on one node, `apart: [[a, b]]` on different ones; `{pods: […], key: zone}` for
/// another domain than the node.
fn company(
    value: &CaseValue,
    same: bool,
    outcome: &CaseResult,
    misses: &mut Misses,
) -> Result<(), CaseError> {
    let plain = value
        .list()
        .is_some_and(|items| items.iter().all(|item| item.scalar().is_some()));
    let groups: Vec<&CaseValue> = if plain || value.map().is_some() {
        vec![value]
    } else {
        several(value)
    };
    for group in groups {
        let (pods, key) = if group.map().is_some() {
            let mut fields = CaseFields::of(group, "a group of pods")?;
            let pods = fields.need("pods")?;
            let key = fields.with("key", text)?.map(label_key);
            fields.done()?;
            (pods, key)
        } else {
            (group, None)
        };
        let mut places = Vec::new();
        for item in several(pods) {
            for pod in meant(item, outcome)? {
                let at = place(outcome, pod).and_then(|at| domain(outcome, at, key));
                places.push((pod, at));
            }
        }
        let shown_places =
            || {
                shown(places.iter().map(|(pod, at)| {
                    format!("{} on {}", pod.name, at.as_deref().unwrap_or("none"))
                }))
            };
        let different: BTreeSet<_> = places.iter().map(|(_, at)| at).collect();
        let all_placed = places.iter().all(|(_, at)| at.is_some());
        let right = if same {
            different.len() <= 1
        } else {
            different.len() == places.len()
        };
        if !right || !all_placed {
            let word = if same { "together" } else { "apart" };
            misses.push(format!("expected {word}, got {}", shown_places()));
        }
    }
    Ok(())
}

/// The domain of a node: itself, or the value of a label.
pub(super) fn domain(outcome: &CaseResult, node: &Arc<str>, key: Option<&str>) -> Option<String> {
    let Some(key) = key.filter(|key| *key != "kubernetes.io/hostname") else {
        return Some(node.to_string());
    };
    let cluster = &outcome.after.snapshot.cluster;
    let of = cluster.nodes.get(node)?;
    of.labels.get(key).map(ToString::to_string)
}

/// `events: {TriggeredScaleUp: [pods], NotTriggerScaleUp: [pods]}`: what Events the report makes.
fn events(
    fields: &mut CaseFields<'_>,
    outcome: &CaseResult,
    misses: &mut Misses,
) -> Result<(), CaseError> {
    let Some(value) = fields.take("events") else {
        return Ok(());
    };
    let mut events = CaseFields::of(value, "events")?;
    for (name, of) in [
        (
            "TriggeredScaleUp",
            (|verdict| matches!(verdict, PodVerdict::Triggers { .. })) as fn(&PodVerdict) -> bool,
        ),
        ("NotTriggerScaleUp", |verdict| {
            matches!(
                verdict,
                PodVerdict::NoCompatiblePool { .. } | PodVerdict::Held { .. }
            )
        }),
    ] {
        if let Some(value) = events.take(name) {
            let have = outcome
                .waited
                .iter()
                .filter(|key| {
                    let verdict = outcome.last().and_then(|d| d.report.pods.get(key));
                    verdict.is_some_and(of)
                })
                .collect();
            listed(value, name, &have, outcome, misses)?;
        }
    }
    events.done()
}
