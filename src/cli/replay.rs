//! `replay`: recorded decisions made anew, by this version or under another configuration. Never acts.

pub(super) mod options;
mod words;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::Serialize;

use super::args::{CONTROL_SOCKET, Format, RECORD_DIRECTORY};
use super::history::record_of;
use super::render::one_line;
use super::times::part_at;
use super::{CliFailure, load, output, write};
use crate::clock::Clock;
use crate::model::foreign;
use crate::model::time::Time;
use crate::record::History;
use crate::record::replay::{ReplayDifference, ReplayOutcome, ReplaySum, Replayed, Summed, replay};
use options::ReplayOptions;
use words::ShownPart;

/// As `-o json` prints it.
#[derive(Serialize, JsonSchema)]
pub(super) struct ReplayDocument {
    /// The version of this form.
    schema_version: u32,
    /// The decisions that are others, and those that cannot be read, in the order of the record.
    decisions: Vec<ReplayOutcome>,
    /// What all that were made anew come to.
    sum: ReplaySum,
}

impl ReplayDocument {
    /// What stands before the decisions and behind them: a record is long, and each is written when it is there.
    fn around(sum: ReplaySum) -> Result<(String, String), CliFailure> {
        let document = ReplayDocument {
            schema_version: 1,
            decisions: Vec::new(),
            sum,
        };
        let text = serde_json::to_string(&document)?;
        let (head, tail) = text.split_once("[]").unwrap_or((text.as_str(), ""));
        Ok((format!("{head}["), format!("]{tail}\n")))
    }
}

/// Writes what was found, while the rest is replayed.
struct ReplayPrinter<'a> {
    options: &'a ReplayOptions,
    shown: ShownPart,
    told_by: Option<Arc<str>>,
    /// Decisions that were written as JSON.
    written: u64,
}

impl ReplayPrinter<'_> {
    fn begin(&self) -> Result<(), CliFailure> {
        match self.options.output {
            Format::Table => Ok(()),
            Format::Json => write(&ReplayDocument::around(ReplaySum::default())?.0),
        }
    }

    /// Which program decided: what follows was recorded by this one.
    fn program(&mut self, program: &Arc<str>) -> Result<(), CliFailure> {
        if self.options.output != Format::Table || self.told_by.as_ref() == Some(program) {
            return Ok(());
        }
        self.told_by = Some(program.clone());
        write(&output::recorded(&format!(
            "recorded by version {}, decided anew by version {}\n",
            one_line(program),
            env!("CARGO_PKG_VERSION")
        )))
    }

    fn outcome(&mut self, outcome: &ReplayOutcome) -> Result<(), CliFailure> {
        if outcome.replayed == Replayed::Same {
            return Ok(());
        }
        if self.options.output == Format::Table {
            return write(&output::recorded(&self.shown.told(outcome)));
        }
        let before = if self.written == 0 { "\n" } else { ",\n" };
        self.written += 1;
        let text = serde_json::to_string(outcome)?;
        write(&format!("{before}{}", foreign::json(&text)))
    }

    fn end(
        &self,
        sum: ReplaySum,
        repeated: &BTreeMap<String, ReplayDifference>,
    ) -> Result<(), CliFailure> {
        match self.options.output {
            Format::Table => write(&output::recorded(&format!(
                "{}{}",
                words::of_configuration(repeated),
                words::sum(&sum)
            ))),
            Format::Json => {
                let (_, tail) = ReplayDocument::around(sum)?;
                write(&foreign::json(&tail))
            }
        }
    }
}

/// A record, and the time that counts for it.
struct ChosenRecord {
    path: PathBuf,
    now: Time,
    /// Whether somebody named it, or its daemon.
    is_named: bool,
}

impl ChosenRecord {
    /// What the command line names, else what belongs to the daemon that runs here, else what it has where the package is installed.
    fn of(options: &ReplayOptions) -> Result<ChosenRecord, CliFailure> {
        let chosen = |path, now, is_named| ChosenRecord {
            path,
            now,
            is_named,
        };
        if let Some(socket) = &options.socket {
            let (path, now) = record_of(socket)?;
            return Ok(chosen(path, now, true));
        }
        let now = Clock::System.now();
        if let Some(path) = options.record.as_ref().or(options.named.as_ref()) {
            return Ok(chosen(path.clone(), now, true));
        }
        // Without a daemon that answers the record is there all the same.
        let (path, now) = record_of(Path::new(CONTROL_SOCKET))
            .unwrap_or_else(|_| (PathBuf::from(RECORD_DIRECTORY), now));
        Ok(chosen(path, now, false))
    }

    /// Opens it, and says which it is where nobody named it.
    fn open(&self) -> Result<History, CliFailure> {
        let opened = History::open(&self.path);
        if self.is_named {
            return Ok(opened?);
        }
        let history = opened.map_err(|error| {
            anyhow!("{error}; --record PATH names another, --socket PATH the daemon whose it is")
        })?;
        super::say_beside(&format!("the record is {}", self.path.display()));
        Ok(history)
    }
}

/// Decides anew and shows what differs.
pub(super) fn run(config: Option<&Path>, options: &ReplayOptions) -> Result<(), CliFailure> {
    let settings = config.map(load).transpose()?;
    let policy = settings.as_ref().map(|settings| &settings.policy);
    let record = ChosenRecord::of(options)?;
    let filter = part_at(&options.part, record.now)?;
    let history = record.open()?;
    let mut summed = Summed::default();
    let mut repeated = BTreeMap::new();
    let mut writer = ReplayPrinter {
        options,
        shown: ShownPart {
            zone: TimeZone::system(),
            limit: usize::try_from(options.limit)?,
            detail: options.detail,
        },
        told_by: None,
        written: 0,
    };
    let mut shown = writer.begin();
    let damage = history.decisions(&filter, |recorded| {
        if shown.is_err() {
            return;
        }
        let outcome = replay(recorded, policy);
        summed.add(&outcome);
        for one in &outcome.configuration {
            let known = repeated.entry(one.at.clone());
            known.or_insert_with(|| one.clone());
        }
        shown = writer.program(&recorded.program);
        if shown.is_ok() {
            shown = writer.outcome(&outcome);
        }
    })?;
    shown?;
    for problem in &damage {
        super::say_beside(&one_line(problem));
    }
    let sum = summed.sum();
    let (all, others) = (sum.decisions, sum.others + sum.unreadable);
    if all > 0 || !damage.is_empty() || options.output == Format::Json {
        writer.end(sum, &repeated)?;
    }
    if all == 0 && damage.is_empty() {
        let none = "there is no decision in it, or none in that time: nothing was decided anew";
        return Err(anyhow!("{}: {none}", record.path.display()).into());
    }
    if others == 0 && damage.is_empty() {
        Ok(())
    } else {
        Err(CliFailure::Said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It finds an error that leaves whoever named nothing without a way to name it.
    #[test]
    fn where_nobody_named_a_record_and_there_is_none_it_is_said_how() {
        let folder = tempfile::tempdir().expect("a folder");
        let said = |is_named: bool| {
            let record = ChosenRecord {
                path: folder.path().join("none"),
                now: Time(0),
                is_named,
            };
            match record.open() {
                Err(CliFailure::Other(error)) => format!("{error:#}"),
                _ => String::new(),
            }
        };
        let (named, unnamed) = (said(true), said(false));
        assert!(named.contains("there is no record in "), "{named}");
        assert!(!named.contains("--record"), "{named}");
        assert!(
            unnamed.starts_with(&named) && unnamed.contains("--record PATH names another"),
            "{unnamed}"
        );
    }
}
