//! Preferences of pods: `met_preferences` and `unmet_preferences`, as `explain pod` tells of them. Older cases
//! say `met_wishes` and `unmet_wishes`.

use crate::brain::explain::{self, Asked};
use crate::conformance::act::CaseResult;
use crate::conformance::fields::CaseFields;
use crate::conformance::scalars::several;
use crate::conformance::value::{CaseError, CaseValue};
use crate::model::cluster::ObjectKey;

use super::pods::named;
use super::{Misses, shown, speaks_of, wanted};

pub(super) fn judge(
    fields: &mut CaseFields<'_>,
    outcome: &CaseResult,
    misses: &mut Misses,
) -> Result<(), CaseError> {
    let keys = [
        (["met_preferences", "met_wishes"], true),
        (["unmet_preferences", "unmet_wishes"], false),
    ];
    for (names, met) in keys {
        if let Some(value) = fields.any(&names) {
            preferences(value, met, outcome, misses)?;
        }
    }
    Ok(())
}

/// `unmet_preferences: {web: [zone In, app=db]}`: every preference of the pod that is not met has one of these
/// parts in its text, and every part is in one.
fn preferences(
    value: &CaseValue,
    met: bool,
    outcome: &CaseResult,
    misses: &mut Misses,
) -> Result<(), CaseError> {
    let entries = value
        .map()
        .ok_or_else(|| value.expected("parts of preferences by pod, as {web: [zone In]}"))?;
    if outcome.decisions.len() != 1 {
        return Err(value.wrong("preferences are asked of one decision: when must be plan"));
    }
    let what = if met { "met" } else { "unmet" };
    for entry in entries {
        let parts = several(&entry.value);
        for key in named(&entry.key, &entry.value, outcome)? {
            let have = told(outcome, key, met);
            let (mut open, mut missing) = (have.clone(), Vec::new());
            for part in &parts {
                let mut hit = false;
                for preference in &have {
                    if speaks_of(part, preference)? {
                        open.retain(|other| other != preference);
                        hit = true;
                    }
                }
                if !hit {
                    missing.push(wanted(part));
                }
            }
            if !missing.is_empty() || !open.is_empty() {
                misses.push(format!(
                    "expected {what} preferences of {}: {}, got {}",
                    key.name,
                    shown(parts.iter().map(|part| wanted(part))),
                    shown(have)
                ));
            }
        }
    }
    Ok(())
}

/// The preferences of a pod that are met, or those that are not, with the reason.
fn told(outcome: &CaseResult, key: &ObjectKey, met: bool) -> Vec<String> {
    let before = &outcome.before;
    let story = outcome.last().and_then(|decision| {
        let asked = Asked {
            snapshot: &before.snapshot,
            policy: &before.policy,
            memory: &before.memory,
            decision,
            now: before.now,
        };
        explain::pod(asked, key)
    });
    let preferences = story.into_iter().flat_map(|story| story.preferences);
    let preferences = preferences.filter(|preference| preference.met == met);
    preferences
        .map(|preference| {
            let why = preference
                .why
                .map_or(String::new(), |why| format!(": {why}"));
            format!("{}{why}", preference.preference)
        })
        .collect()
}
