//! `then`: what must have come of a step. Every key is one expectation; every miss is one text
//! "expected …, got …".

mod new_nodes;
mod nodes;
mod numbers;
mod own;
mod pods;
mod preferences;
mod skew;
pub(super) use skew::selects;

use super::act::CaseResult;
use super::fields::CaseFields;
use super::scalars::{count, several, text, truth};
use super::value::{CaseError, CaseValue};

/// What was missed.
pub(super) type Misses = Vec<String>;

/// Compares with `then`, and with `alternatives`, of which one must hold. The plan must also be one
/// that the checker lets pass.
pub(super) fn judge(
    then: Option<&CaseValue>,
    alternatives: Option<&CaseValue>,
    outcome: &CaseResult,
) -> Result<Misses, CaseError> {
    let mut misses = Misses::new();
    if let Some(value) = then {
        misses.extend(one(value, outcome)?);
    }
    if let Some(value) = alternatives {
        misses.extend(any_of(value, outcome)?);
    }
    if let Some(refusal) = outcome.refused.first() {
        misses.push(format!(
            "expected a plan that the checker passes, got a refusal: {refusal}"
        ));
    }
    Ok(misses)
}

fn any_of(value: &CaseValue, outcome: &CaseResult) -> Result<Misses, CaseError> {
    let items = value
        .list()
        .ok_or_else(|| value.expected("a list of alternatives, each as then"))?;
    let mut all = Misses::new();
    for item in items {
        let misses = match item.get("then") {
            Some(then) => one(then, outcome)?,
            None => one(item, outcome)?,
        };
        if misses.is_empty() {
            return Ok(Misses::new());
        }
        all.push(misses.join("; "));
    }
    Ok(vec![format!(
        "none of {} alternatives holds: {}",
        all.len(),
        all.join(" | or | ")
    )])
}

fn one(value: &CaseValue, outcome: &CaseResult) -> Result<Misses, CaseError> {
    let mut fields = CaseFields::of(value, "then")?;
    let mut misses = Misses::new();
    fields.take("note");
    new_nodes::judge(&mut fields, outcome, &mut misses)?;
    pods::judge(&mut fields, outcome, &mut misses)?;
    skew::judge(&mut fields, outcome, &mut misses)?;
    preferences::judge(&mut fields, outcome, &mut misses)?;
    nodes::judge(&mut fields, outcome, &mut misses)?;
    numbers::judge(&mut fields, outcome, &mut misses)?;
    own::judge(&mut fields, outcome, &mut misses)?;
    holds(&mut fields, outcome, &mut misses)?;
    actions(&mut fields, outcome, &mut misses)?;
    if let Some(value) = fields.take("alternatives") {
        misses.extend(any_of(value, outcome)?);
    }
    fields.done()?;
    Ok(misses)
}

/// Where a list is expected and a number is written: how many pods there must be. Says whether it was one.
pub(super) fn as_number(
    value: &CaseValue,
    what: &str,
    have: usize,
    shown: impl FnOnce() -> String,
    misses: &mut Misses,
) -> Result<bool, CaseError> {
    let number = value.scalar().map(str::parse::<usize>);
    if !matches!(number, Some(Ok(_))) {
        return Ok(false);
    }
    let wanted = count(value)?;
    if have != wanted {
        misses.push(format!(
            "expected {wanted} pods {what}, got {have}: {}",
            shown()
        ));
    }
    Ok(true)
}

/// A list, shown.
pub(super) fn shown<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let all: Vec<String> = items
        .into_iter()
        .map(|item| item.as_ref().to_owned())
        .collect();
    if all.is_empty() {
        return "none".to_owned();
    }
    let more = all.len().saturating_sub(SHOWN);
    let list = all[..all.len().min(SHOWN)].join(", ");
    if more > 0 {
        format!("{list} and {more} more")
    } else {
        list
    }
}

/// Names in one message.
const SHOWN: usize = 12;

/// Whether `text` has one of the wanted parts in it, whatever the case of letters. A reason may be a
/// list of parts, of which one is enough.
pub(super) fn speaks_of(reason: &CaseValue, of: &str) -> Result<bool, CaseError> {
    let of = of.to_lowercase();
    for part in several(reason) {
        if of.contains(&text(part)?.to_lowercase()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What a reason wants, shown.
pub(super) fn wanted(reason: &CaseValue) -> String {
    let parts: Vec<&str> = several(reason)
        .into_iter()
        .filter_map(CaseValue::scalar)
        .collect();
    format!("{:?}", parts.join(" or "))
}

fn holds(
    fields: &mut CaseFields<'_>,
    outcome: &CaseResult,
    misses: &mut Misses,
) -> Result<(), CaseError> {
    let found: Vec<String> = outcome
        .last()
        .map(|decision| {
            let holds = decision.report.holds.iter();
            holds
                .map(|hold| format!("{}: {}", hold.scope, hold.why))
                .collect()
        })
        .unwrap_or_default();
    if let Some(value) = fields.take("holds") {
        let items = several(value);
        if items.is_empty() && !found.is_empty() {
            misses.push(format!("expected no holds, got {}", shown(&found)));
        }
        for item in items {
            let hit = found
                .iter()
                .try_fold(false, |hit, hold| Ok(hit || speaks_of(item, hold)?))?;
            if !hit {
                misses.push(format!(
                    "expected a hold with {}, got {}",
                    wanted(item),
                    shown(&found)
                ));
            }
        }
    }
    let warnings = outcome
        .last()
        .map(|decision| decision.report.warnings.clone());
    let warnings = warnings.unwrap_or_default();
    if let Some(value) = fields.take("warnings") {
        for item in several(value) {
            let hit = warnings
                .iter()
                .try_fold(false, |hit, warning| Ok(hit || speaks_of(item, warning)?))?;
            if !hit {
                misses.push(format!(
                    "expected a warning with {}, got {}",
                    wanted(item),
                    shown(&warnings)
                ));
            }
        }
    }
    Ok(())
}

/// `nothing: true` (no action at all), `actions: [{do: remove, machine: m1, reason: failed}]`.
/// The name of an action in JSON; older cases say `clear_placeholder`.
fn action_name(name: &str) -> &str {
    match name {
        "clear_placeholder" => "delete_placeholder",
        other => other,
    }
}

fn actions(
    fields: &mut CaseFields<'_>,
    outcome: &CaseResult,
    misses: &mut Misses,
) -> Result<(), CaseError> {
    let done: Vec<(String, String, String)> = outcome
        .actions
        .iter()
        .map(|action| {
            let kind = serde_json::to_value(&action.kind).unwrap_or_default();
            let kind = match (&kind, kind.as_object()) {
                (serde_json::Value::String(name), _) => name.clone(),
                (_, Some(map)) => map.keys().next().cloned().unwrap_or_default(),
                _ => String::new(),
            };
            (
                kind,
                action.target.machine.to_string(),
                action.reason.to_string(),
            )
        })
        .collect();
    let all = || {
        shown(
            done.iter()
                .map(|(kind, machine, reason)| format!("{kind} {machine} ({reason})")),
        )
    };
    if let Some(nothing) = fields.with("nothing", truth)?
        && nothing != done.is_empty()
    {
        let what = if nothing { "no action" } else { "some action" };
        misses.push(format!("expected {what}, got {}", all()));
    }
    if let Some(value) = fields.take("actions") {
        let items = several(value);
        if items.is_empty() && !done.is_empty() {
            misses.push(format!("expected no action, got {}", all()));
        }
        for item in items {
            if let Some(kind) = item.scalar().map(action_name) {
                if !done.iter().any(|(known, ..)| known == kind) {
                    misses.push(format!("expected the action {kind}, got {}", all()));
                }
                continue;
            }
            let mut fields = CaseFields::of(item, "an action")?;
            let kind = action_name(text(fields.need("do")?)?);
            let machine = fields.any(&["machine", "node"]).map(text).transpose()?;
            let reason = fields.take("reason");
            fields.done()?;
            let mut hit = false;
            for done in &done {
                hit |= is_meant(done, kind, machine, reason)?;
            }
            if !hit {
                misses.push(format!(
                    "expected the action {kind} {}{}, got {}",
                    machine.unwrap_or("(any)"),
                    reason.map_or(String::new(), |reason| format!(
                        " because of {}",
                        wanted(reason)
                    )),
                    all()
                ));
            }
        }
    }
    Ok(())
}

fn is_meant(
    (known, target, why): &(String, String, String),
    kind: &str,
    machine: Option<&str>,
    reason: Option<&CaseValue>,
) -> Result<bool, CaseError> {
    let right = known == kind && machine.is_none_or(|machine| machine == target);
    let spoken = reason.map_or(Ok(true), |reason| speaks_of(reason, why))?;
    Ok(right && spoken)
}
