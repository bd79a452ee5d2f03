//! Which names the record knows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::change::ValueChange;
use super::deeds::FoundDeeds;
use super::idle::HoldsByTime;
use super::line::{ReadLine, machine};
use super::query::{Filter, History};
use super::read::{ReadError, RecordReader};
use crate::model::cluster::ObjectKey;
use crate::model::time::Time;

/// Names of pods that are looked at at most.
const MOST_PODS: usize = 20_000;

/// The pods of a whole state's report.
#[derive(Deserialize)]
struct WholePods {
    decision: PodsDecision,
}

#[derive(Deserialize)]
struct PodsDecision {
    report: PodsReport,
}

#[derive(Deserialize)]
struct PodsReport {
    #[serde(default)]
    #[expect(
        clippy::zero_sized_map_values,
        reason = "it is read from an object: a set would be read from a list"
    )]
    pods: BTreeMap<String, IgnoredAny>,
}

/// The pods of which a record tells what becomes of them.
fn pods_of(line: &ReadLine) -> Vec<String> {
    if let Some(state) = &line.state {
        let whole = serde_json::from_str::<WholePods>(state.get());
        return whole.map_or_else(
            |_| Vec::new(),
            |whole| whole.decision.report.pods.into_keys().collect(),
        );
    }
    let changes = line.changes.as_ref();
    let Some(changes) = changes.filter(|changes| changes.get().contains(r#""report","pods""#))
    else {
        return Vec::new();
    };
    let changes = serde_json::from_str::<Vec<ValueChange>>(changes.get()).unwrap_or_default();
    let pods = changes.into_iter().filter_map(|change| {
        let (ValueChange::Set(path, _) | ValueChange::Gone((path,))) = change;
        match &path[..] {
            [decision, report, pods, pod]
                if decision == "decision" && report == "report" && pods == "pods" =>
            {
                Some(pod.to_string())
            }
            _ => None,
        }
    });
    pods.collect()
}

impl History {
    /// Whether the record has an action on a machine of this name; the newest segment is read first. False, too, where reading ends because
    /// `go_on`, asked before every record, says no.
    ///
    /// # Errors
    /// The record may not be read.
    pub fn has_machine(
        &self,
        name: &str,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<bool, ReadError> {
        let is = |action: &Value| machine(action).is_some_and(|machine| *machine == *name);
        for segment in self.segments(&Filter::default())?.into_iter().rev() {
            let mut records = RecordReader::of([segment]);
            while let Some(line) = records.next()? {
                if !go_on() {
                    return Ok(false);
                }
                if line.plan.iter().chain(&line.action).any(is) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Whether the record tells what became of a pod; the newest segment is read first. False, too, where reading ends because `go_on`,
    /// asked before every record, says no.
    ///
    /// # Errors
    /// The record may not be read.
    pub fn has_pod(
        &self,
        pod: &ObjectKey,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<bool, ReadError> {
        let filter = Filter {
            pod: Some(pod.clone()),
            ..Filter::default()
        };
        for segment in self.segments(&filter)?.into_iter().rev() {
            let mut found = FoundDeeds::new(&filter, 1);
            let mut records = RecordReader::of([segment]);
            while let Some(line) = records.next()? {
                if !go_on() {
                    return Ok(false);
                }
                found.look(&line);
                if !found.deeds.is_empty() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The name of another instance that led at a time, by what the record tells of it. `None`, too, where reading ends because `go_on`,
    /// asked before every record, says no.
    ///
    /// # Errors
    /// The record may not be read.
    pub fn other_leader(
        &self,
        at: Time,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<Option<Arc<str>>, ReadError> {
        let filter = Filter {
            since: Some(at),
            until: Some(at),
            ..Filter::default()
        };
        let mut holds = HoldsByTime::default();
        let mut records = RecordReader::of(self.segments(&filter)?);
        while let Some(line) = records.next()? {
            if !go_on() {
                return Ok(None);
            }
            holds.take(&line);
        }
        let idle = holds.idle_times().into_iter();
        let mut led = idle.filter(|idle| idle.overlaps(Some(at), Some(at)));
        Ok(led.find_map(|idle| idle.holder().cloned()))
    }

    /// The pods of which the record tells what became of them, as `NAMESPACE/NAME`; not all where there are very many.
    ///
    /// # Errors
    /// The record may not be read.
    pub fn pods(&self) -> Result<BTreeSet<String>, ReadError> {
        let mut found = BTreeSet::new();
        let mut records = RecordReader::of(self.segments(&Filter::default())?);
        while let Some(line) = records.next()? {
            if found.len() < MOST_PODS {
                found.extend(pods_of(&line));
            }
        }
        Ok(found)
    }
}
