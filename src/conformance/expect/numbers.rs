//! Numbers: utilisation, how many nodes in the end, back-offs, whether it comes to rest.

use crate::conformance::act::CaseResult;
use crate::conformance::fields::CaseFields;
use crate::conformance::scalars::{count, decimal, span, text, truth};
use crate::conformance::value::{CaseError, CaseValue};

use super::{Misses, shown, speaks_of, wanted};

pub(super) fn judge(
    fields: &mut CaseFields<'_>,
    outcome: &CaseResult,
    misses: &mut Misses,
) -> Result<(), CaseError> {
    utilization(fields, outcome, misses)?;
    let nodes = outcome.after.snapshot.cluster.nodes.len();
    if let Some(wanted) = fields.with("nodes", count)?
        && wanted != nodes
    {
        let names = shown(outcome.after.snapshot.cluster.nodes.keys());
        misses.push(format!(
            "expected {wanted} nodes in the end, got {nodes}: {names}"
        ));
    }
    if let Some(wanted) = fields.with("machines", count)? {
        let have = outcome.after.snapshot.machines.len();
        if wanted != have {
            misses.push(format!("expected {wanted} machines in the end, got {have}"));
        }
    }
    if let Some(wanted) = fields.with("stable", truth)? {
        let stable = outcome
            .last()
            .is_some_and(|decision| decision.plan.is_empty());
        if stable != wanted {
            misses.push(format!(
                "expected stable {wanted}, the last plan has {} actions",
                outcome.last().map_or(0, |decision| decision.plan.len())
            ));
        }
    }
    backoff(fields, outcome, misses)
}

fn backoff(
    fields: &mut CaseFields<'_>,
    outcome: &CaseResult,
    misses: &mut Misses,
) -> Result<(), CaseError> {
    let Some(value) = fields.take("backoff") else {
        return Ok(());
    };
    let known = &outcome.after.memory.backoff;
    let now = outcome.after.now;
    let entries = value.map().unwrap_or_default();
    if entries.is_empty() && !known.is_empty() {
        misses.push(format!("expected no back-off, got {}", shown(known.keys())));
    }
    for entry in entries {
        let have = known
            .get(entry.key.as_str())
            .filter(|backoff| backoff.until > now);
        let none = matches!(entry.value.scalar(), Some("none" | "false") | None);
        let right = match have {
            None => none,
            Some(backoff) => {
                !none
                    && (entry.value.scalar() == Some("true")
                        || backoff.length == span(&entry.value)?)
            }
        };
        if !right {
            misses.push(format!(
                "expected the back-off {} of {}, got {}",
                entry.value.named(),
                entry.key,
                have.map_or_else(
                    || "none".to_owned(),
                    |b| format!("{} until {}", b.length, b.until)
                )
            ));
        }
    }
    Ok(())
}

/// `utilization: 0.2`, `2/9`, or `{is: 0.2, resource: cpu}`; `error: text` when there is none.
fn utilization(
    fields: &mut CaseFields<'_>,
    outcome: &CaseResult,
    misses: &mut Misses,
) -> Result<(), CaseError> {
    let share = outcome.utilization.as_ref();
    if let Some(value) = fields.take("error") {
        match share {
            Some(Err(why)) if value.scalar() == Some("true") || speaks_of(value, why)? => {}
            Some(Err(why)) => {
                misses.push(format!("expected the error {}, got {why}", wanted(value)));
            }
            _ => misses.push(format!("expected the error {}, got none", wanted(value))),
        }
    }
    let Some(value) = fields.take("utilization") else {
        return Ok(());
    };
    let (number, resource) = match value.map() {
        None => (value, None),
        Some(_) => {
            let mut fields = CaseFields::of(value, "a utilisation")?;
            let number = fields.need("is")?;
            let resource = fields.with("resource", text)?;
            fields.done()?;
            (number, resource)
        }
    };
    match share {
        Some(Ok(share)) => {
            let wanted = fraction(number)?;
            // Both rounded to the digits that are given.
            let (part, of, scale) = wanted;
            let right = match scale {
                None => share.used * of == part * share.of,
                Some(scale) => (share.used * scale * 2 + share.of) / (share.of * 2) == part,
            };
            let named = resource.is_none_or(|resource| resource == share.resource);
            if !right || !named {
                misses.push(format!(
                    "expected the utilisation {}{}, got {} of {} {}",
                    text(number)?,
                    resource.map_or(String::new(), |resource| format!(" of {resource}")),
                    share.used,
                    share.of,
                    share.resource
                ));
            }
        }
        Some(Err(why)) => misses.push(format!("expected a utilisation, got the error {why}")),
        None => return Err(value.wrong("utilization is known after when: utilization(NODE)")),
    }
    Ok(())
}

/// Part and whole of `2/9`, or the digits of `0.25` and their scale.
fn fraction(value: &CaseValue) -> Result<(i128, i128, Option<i128>), CaseError> {
    let written = text(value)?;
    let expected = || value.expected("a share such as 0.25 or 2/9");
    if let Some((part, of)) = written.split_once('/') {
        let part: i128 = part.trim().parse().map_err(|_| expected())?;
        let of: i128 = of.trim().parse().map_err(|_| expected())?;
        return Ok((part, of, None));
    }
    let digits = written
        .split_once('.')
        .map_or(0, |(_, digits)| digits.len());
    if digits > 9 {
        return Err(expected());
    }
    let part = decimal(written, digits).ok_or_else(expected)?;
    let scale = 10i128.pow(u32::try_from(digits).unwrap_or(0));
    Ok((part.into(), scale, Some(scale)))
}
