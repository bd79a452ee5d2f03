//! What keeps the daemon from its work, each fault once, however many views it hinders. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::foreign::ForeignText;
use crate::model::report::CLUSTER_ID;
use crate::model::snapshot::{Snapshot, SourceState};
use crate::model::time::{Span, Time};
use crate::model::words;

/// The lease's name among what a fault hinders.
const LEASE: &str = "the lease";

/// What is waited for where there is no fault.
pub const UNREAD: &str = "it is being read; nothing is decided on it until that ends";

/// A fault and what it hinders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trouble {
    /// The fault; `None` while something was merely not read yet.
    pub cause: Option<ForeignText>,
    /// What cannot be read or had because of it.
    pub effect: String,
    /// Nothing is decided on what it hinders.
    pub hinders: bool,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Some(cause) => write!(f, "{cause} ({})", self.effect),
            None => f.write_str(&self.effect),
        }
    }
}

/// How far a fault goes with one thing that it hinders, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Extent {
    /// It was not read since the start, or cannot be had.
    Never,
    /// The view is so old that nothing is decided on it.
    Old,
    /// The view is as good as it was, so far.
    Fresh,
}

type Hindered<'a> = BTreeMap<Extent, Vec<&'a str>>;

/// Every fault that shows in a view, those that hinder most first. `limit` is the age beyond which nothing is
/// decided on a source.
pub fn find(snapshot: &Snapshot, limit: Span, now: Time) -> Vec<Trouble> {
    let mut found: BTreeMap<Option<ForeignText>, Hindered<'_>> = BTreeMap::new();
    let mut add = |cause: Option<ForeignText>, extent: Extent, name| {
        let hindered = found.entry(cause).or_default();
        hindered.entry(extent).or_default().push(name);
    };
    if let Some(error) = snapshot.lease.error.as_ref().filter(|_| !snapshot.leader) {
        add(Some(error.clone()), Extent::Never, LEASE);
    }
    if snapshot.cluster_id.is_none() {
        add(snapshot.cluster_id_error.clone(), Extent::Never, CLUSTER_ID);
    }
    for (name, source) in &snapshot.sources {
        if let Some(extent) = extent(source, limit, now) {
            add(source.reason().map(ForeignText::from), extent, name);
        }
    }
    let mut found: Vec<Trouble> = found
        .into_iter()
        .map(|(cause, hindered)| trouble(cause, &hindered, &snapshot.sources, now))
        .collect();
    // What was merely not read yet is no fault: it comes last.
    found.sort_by_key(|trouble| (trouble.cause.is_none(), !trouble.hinders));
    found
}

/// How far a source is from what it should be, if it is.
fn extent(source: &SourceState, limit: Span, now: Time) -> Option<Extent> {
    if !source.complete {
        return Some(Extent::Never);
    }
    if now.since(source.as_of) > limit {
        return Some(Extent::Old);
    }
    source.error.is_some().then_some(Extent::Fresh)
}

fn trouble(
    cause: Option<ForeignText>,
    hindered: &Hindered<'_>,
    sources: &BTreeMap<Arc<str>, SourceState>,
    now: Time,
) -> Trouble {
    let effects = hindered.iter().map(|(extent, names)| {
        let ages = names.iter().filter_map(|name| sources.get(*name));
        let age = ages.map(|source| now.since(source.as_of)).max();
        let age = Span(age.unwrap_or_default().0 / 1000 * 1000);
        let names = words::some(names);
        match extent {
            Extent::Never => format!("not read yet: {names}"),
            Extent::Old => format!("{age} old: {names}"),
            Extent::Fresh => format!("read last {age} ago: {names}"),
        }
    });
    Trouble {
        cause,
        effect: effects.collect::<Vec<_>>().join(", "),
        hinders: hindered.keys().any(|extent| *extent != Extent::Fresh),
    }
}
