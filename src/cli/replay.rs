//! `replay`: recorded decisions made anew, by this version or under another configuration. Never acts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::anyhow;
use jiff::tz::TimeZone;
use serde_json::Value;

use super::args::{Format, ReplayOptions};
use super::render::one_line;
use super::times::{local, part, zone_name};
use super::{CliFailure, load, print, write};
use crate::model::foreign;
use crate::model::words;
use crate::record::History;
use crate::record::replay::{ReplayDifference, ReplayOutcome, Replayed, replay};

/// Differences of a decision that are shown, and as many of what it remembers; JSON has more.
const SHOWN: usize = 8;
/// Characters of a value that are shown.
const VALUE: usize = 160;

/// Decides anew and shows what differs.
pub(super) fn run(config: Option<&Path>, options: &ReplayOptions) -> Result<(), CliFailure> {
    let settings = config.map(load).transpose()?;
    let policy = settings.as_ref().map(|settings| &settings.policy);
    let filter = part(&options.part)?;
    let history = History::open(&options.record)?;
    let zone = TimeZone::system();
    let (mut all, mut differ, mut unreadable) = (0u64, 0u64, 0u64);
    let mut repeated = BTreeMap::new();
    let mut told_by: Option<Arc<str>> = None;
    // A record is long, and what was found is shown while the rest is replayed.
    let mut shown = Ok(());
    let damage = history.decisions(&filter, |recorded| {
        if shown.is_err() {
            return;
        }
        let outcome = replay(recorded, policy);
        all += 1;
        if options.output == Format::Table && told_by.as_ref() != Some(&recorded.program) {
            told_by = Some(recorded.program.clone());
            shown = print(&head(&recorded.program));
        }
        for one in &outcome.configuration {
            repeated
                .entry(one.at.clone())
                .or_insert_with(|| one.clone());
        }
        match outcome.replayed {
            Replayed::Same => return,
            Replayed::Differs { .. } => differ += 1,
            Replayed::Unreadable { .. } => unreadable += 1,
        }
        if shown.is_ok() {
            shown = match options.output {
                Format::Table => print(&told(&outcome, &zone)),
                Format::Json => line(&outcome),
            };
        }
    })?;
    shown?;
    for problem in &damage {
        super::say(&format!("pve-autoscaler: {}", one_line(problem)));
    }
    if all == 0 && damage.is_empty() {
        let none = "there is no decision in it, or none in that time: nothing was decided anew";
        return Err(anyhow!("{}: {none}", options.record.display()).into());
    }
    if options.output == Format::Table {
        print(&of_configuration(&repeated))?;
        let same = all - differ - unreadable;
        print(&format!(
            "{}: {same} the same, {differ} others, {unreadable} that this version cannot read\n",
            words::count(all, "recorded decision")
        ))?;
    }
    if differ + unreadable == 0 && damage.is_empty() {
        Ok(())
    } else {
        Err(CliFailure::Said)
    }
}

/// Which programs decided: what follows was recorded by this one.
fn head(program: &str) -> String {
    format!(
        "recorded by version {}, decided anew by version {}\n",
        one_line(program),
        env!("CARGO_PKG_VERSION")
    )
}

/// One object on one line.
fn line(outcome: &ReplayOutcome) -> Result<(), CliFailure> {
    let text = serde_json::to_string(outcome)? + "\n";
    write(&foreign::json(&text))
}

/// A decision that is another now.
fn told(outcome: &ReplayOutcome, zone: &TimeZone) -> String {
    let head = format!(
        "{} ({}), decision {}",
        local(outcome.at, zone),
        zone_name(zone),
        outcome.decision
    );
    match &outcome.replayed {
        Replayed::Same => format!("{head}: the same\n"),
        Replayed::Unreadable { why } => format!("{head}: {}\n", one_line(why)),
        Replayed::Differs { differences, count } => {
            let mut text = format!("{head}: {}\n", words::count(*count as u64, "difference"));
            // What is done comes before what is said of it, and what the next decision remembers last.
            let (remembered, said): (Vec<_>, Vec<_>) = differences
                .iter()
                .partition(|one| one.at.starts_with("memory"));
            let (plans, others): (Vec<_>, Vec<_>) =
                said.into_iter().partition(|one| one.at.starts_with("plan"));
            let said = plans.iter().chain(&others).take(SHOWN);
            let remembered = remembered.iter().take(SHOWN);
            let left = count.saturating_sub(said.clone().count() + remembered.len());
            said.for_each(|difference| text.push_str(&shown(difference)));
            remembered.for_each(|difference| text.push_str(&shown_in_line(difference)));
            if left > 0 {
                let _ = writeln!(text, "  … and {left} more; -o json has the first 50");
            }
            text
        }
    }
}

/// One line on what reports repeat of the configuration, which is another: it makes no decision another one.
fn of_configuration(repeated: &BTreeMap<String, ReplayDifference>) -> String {
    if repeated.is_empty() {
        return String::new();
    }
    let told = repeated.values().take(SHOWN).map(|one| {
        let at = one.at.strip_prefix("report.").unwrap_or(&one.at);
        let (was, is) = (value(one.was.as_ref()), value(one.is.as_ref()));
        one_line(&format!("{at} was {was}, is {is}"))
    });
    let told: Vec<String> = told.collect();
    let more = match repeated.len() - told.len() {
        0 => String::new(),
        left => format!("; and {left} more"),
    };
    format!(
        "what reports repeat of the configuration, and counts for no other decision: {}{more}\n",
        told.join("; ")
    )
}

fn value(value: Option<&Value>) -> String {
    match value {
        None => "nothing".to_owned(),
        Some(value) => action(value).unwrap_or_else(|| foreign::line(&value.to_string(), VALUE)),
    }
}

fn shown(difference: &ReplayDifference) -> String {
    let (at, was, is) = (
        one_line(&difference.at),
        value(difference.was.as_ref()),
        value(difference.is.as_ref()),
    );
    format!("  {at}\n    was  {was}\n    is   {is}\n")
}

/// What is remembered otherwise, in one line: numbers, times and names.
fn shown_in_line(difference: &ReplayDifference) -> String {
    let (at, was, is) = (
        one_line(&difference.at),
        value(difference.was.as_ref()),
        value(difference.is.as_ref()),
    );
    format!("  {at}: was {was}, is {is}\n")
}

/// An action in a few words.
fn action(value: &Value) -> Option<String> {
    let action: crate::model::action::Action = serde_json::from_value(value.clone()).ok()?;
    let kind = match value.get("kind")? {
        Value::String(name) => name.clone(),
        Value::Object(kind) => kind.keys().next()?.clone(),
        _ => return None,
    };
    let (machine, host) = (&action.target.machine, &action.target.host);
    let text = format!("{kind} {machine} on {host}: {}", action.reason);
    Some(one_line(&text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::time::Time;

    fn outcome(differences: Vec<ReplayDifference>) -> ReplayOutcome {
        ReplayOutcome {
            at: Time(0),
            decision: 7,
            program: "0.0.9".into(),
            replayed: Replayed::Differs {
                count: differences.len(),
                differences,
            },
            configuration: Vec::new(),
        }
    }

    fn difference(at: &str, was: Option<Value>, is: Option<Value>) -> ReplayDifference {
        let at = at.to_owned();
        ReplayDifference { at, was, is }
    }

    /// What is remembered otherwise is a line each, behind what is done and said otherwise.
    #[test]
    fn what_is_remembered_otherwise_is_a_line_each() {
        let until = "memory.backoff.small.until";
        let differences = vec![
            difference(until, Some(json!("2026-11-25T10:15:00Z")), None),
            difference("memory.unneeded_since.small-a", None, Some(json!("x"))),
            difference("report.pods.default/web.verdict", Some(json!("held")), None),
        ];
        let text = told(&outcome(differences), &TimeZone::UTC);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("decision 7: 3 differences"), "{text}");
        assert_eq!(
            lines[1..],
            [
                "  report.pods.default/web.verdict",
                "    was  \"held\"",
                "    is   nothing",
                "  memory.backoff.small.until: was \"2026-11-25T10:15:00Z\", is nothing",
                "  memory.unneeded_since.small-a: was nothing, is \"x\"",
            ],
            "{text}"
        );
    }

    /// However much is remembered otherwise, what is done and said otherwise has its place, and what is left out is counted.
    #[test]
    fn what_is_left_out_is_counted() {
        let remembered = |n: usize| difference(&format!("memory.a.{n}"), None, Some(json!(n)));
        let mut differences: Vec<ReplayDifference> = (0..20).map(remembered).collect();
        differences.push(difference("wake", None, Some(json!(1))));
        let text = told(&outcome(differences), &TimeZone::UTC);
        assert!(text.contains("\n  wake\n"), "{text}");
        assert_eq!(text.matches("\n  memory.").count(), SHOWN, "{text}");
        assert!(
            text.ends_with("  … and 12 more; -o json has the first 50\n"),
            "{text}"
        );
    }
}
