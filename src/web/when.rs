//! The last days as the record has them: read when somebody asks, one reading at a time, and given up in time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::{Query, State as Shared};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::WebState;
use super::ask::{answer, refusal};
use crate::controller::turn::Turn;
use crate::model::cluster::ObjectKey;
use crate::model::time::{Span, Time};
use crate::record::{
    Deed, DeedKind, Filter, History, IdleTime, Most, Point, ReadError, RecordedStep, Timeline,
    words,
};

/// The longest time that is shown, in hours: what the record keeps by default.
const MOST_HOURS: u32 = 14 * 24;
/// The windows that the page offers which are tried first …
const FIRST_HOURS: [u32; 3] = [1, 6, MOST_FIRST];
/// … the longest of them: reading more takes long, and is for those who choose it.
const MOST_FIRST: u32 = 24;
/// What is told of it.
const MOST: Most = Most {
    points: 480,
    deeds: 1_000,
    machines: 200,
};
/// A reading is given up after this long: a record of many clusters' worth takes the processor for as long as it is read.
const LONGEST: Duration = Duration::from_secs(20);
/// Somebody else's reading is waited for.
const PATIENCE: Duration = Duration::from_secs(25);

/// Where the record is, and who reads it.
#[derive(Debug)]
pub(super) struct Past {
    directory: PathBuf,
    reading: Arc<Semaphore>,
}

impl Past {
    /// The record in this directory.
    pub(super) fn of(directory: PathBuf) -> Past {
        Past {
            directory,
            reading: Arc::new(Semaphore::new(1)),
        }
    }
}

/// What is asked for.
#[derive(Debug, Deserialize)]
pub(super) struct TimelineQuery {
    /// How many hours; where that is not said the window that shows the record best.
    hours: Option<u32>,
    /// Up to when, in milliseconds since 1970; where that is not said up to now.
    until: Option<i64>,
    /// Of which pod (`NAMESPACE/NAME`), pool, node or machine the deeds are told; where that is not said of all.
    #[serde(default)]
    of: String,
}

impl TimelineQuery {
    /// Why this cannot be asked.
    fn refused(&self) -> Option<String> {
        let too_many = |hours: u32| !(1..=MOST_HOURS).contains(&hours);
        if self.hours.is_some_and(too_many) {
            return Some(format!(
                "Between 1 and {MOST_HOURS} hours can be asked for."
            ));
        }
        (self.of.len() > MAX_NAME).then(|| "No name is that long.".to_owned())
    }
}

/// What is told.
#[derive(Debug, Serialize)]
struct TimelineAnswer {
    /// The daemon's clock, in milliseconds since 1970, as are all times here.
    now: i64,
    /// The time that is shown.
    from: i64,
    to: i64,
    /// When the record begins, where something is in it.
    began: Option<i64>,
    /// Of what the deeds are: `pod`, `pool` or `node`; of all where it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    /// The window in hours.
    hours: u32,
    points: Vec<DecisionNumbers>,
    deeds: Vec<TimelineDeed>,
    /// The times in which nothing was done: something was on hold, or nothing is recorded.
    idle: Vec<IdleTime>,
    /// The steps of machines, by name.
    steps: BTreeMap<Arc<str>, Vec<RecordedStep>>,
    /// There were more deeds, and these are the latest.
    more: bool,
    /// It took too long, and the older part is missing.
    cut: bool,
    damage: Vec<String>,
    /// Machines and nodes named here that are there now, of which more can be asked.
    there: BTreeSet<Arc<str>>,
}

/// A deed with the words that `history` has for it.
#[derive(Debug, Serialize)]
struct TimelineDeed {
    #[serde(flatten)]
    deed: Deed,
    /// What it is.
    says: String,
    /// Why.
    because: String,
}

impl TimelineDeed {
    fn of(deed: Deed) -> TimelineDeed {
        let (says, because) = words::deed(&deed, None, |at| at.to_string());
        TimelineDeed {
            deed,
            says,
            because,
        }
    }
}

/// A decision in numbers.
#[derive(Debug, Serialize)]
struct DecisionNumbers {
    at: i64,
    /// Pods that are not bound.
    pending: u32,
    /// Nodes of pools that are there, Ready or not.
    there: u32,
    /// Nodes of pools that are wanted: those there and coming, without those leaving.
    wanted: u32,
    /// Machines that were begun.
    makes: u32,
    /// Machines whose removal was begun.
    removes: u32,
}

impl DecisionNumbers {
    fn of(point: &Point) -> DecisionNumbers {
        let (mut there, mut coming, mut leaving) = (0, 0, 0);
        for pool in point.pools.values() {
            there += pool.ready + pool.unready;
            coming += pool.coming;
            leaving += pool.leaving;
        }
        DecisionNumbers {
            at: point.at.0,
            pending: point.pods.values().sum(),
            there,
            wanted: (there + coming).saturating_sub(leaving),
            makes: point.makes,
            removes: point.removes,
        }
    }
}

/// Stops a reading whose asker went away.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Longest name that is asked for: a pod with its namespace.
const MAX_NAME: usize = 2 * 253 + 1;

/// Of what deeds are asked for: a pod by its two names, a pool that there is, else a node or machine.
fn asked_for(of: &str, turn: Option<&Turn>) -> (Filter, Option<&'static str>) {
    let mut filter = Filter::default();
    let kind = if let Some((namespace, name)) = of.split_once('/') {
        filter.pod = Some(ObjectKey::new(namespace, name));
        "pod"
    } else if turn.is_some_and(|turn| turn.settings.policy.pools.contains_key(of)) {
        filter.pool = Some(of.to_owned());
        "pool"
    } else if of.is_empty() {
        return (filter, None);
    } else {
        filter.node = Some(of.to_owned());
        "node"
    };
    (filter, Some(kind))
}

/// Tells a time up to now, or up to one before.
pub(super) async fn when(
    Shared(state): Shared<WebState>,
    Query(window): Query<TimelineQuery>,
) -> Response {
    let Some(past) = &state.past else {
        return refusal(
            StatusCode::NOT_FOUND,
            "No record of decisions is kept here.",
        );
    };
    if let Some(why) = window.refused() {
        return refusal(StatusCode::BAD_REQUEST, &why);
    }
    let Ok(Ok(slot)) = timeout(PATIENCE, past.reading.clone().acquire_owned()).await else {
        return refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "Somebody else reads the record; ask again.",
        );
    };
    let now = state.clock.now();
    let directory = past.directory.clone();
    let gone = StopOnDrop(Arc::default());
    let stop = gone.0.clone();
    let turn = state.turns.borrow().clone();
    let (filter, kind) = asked_for(window.of.trim(), turn.as_deref());
    let read = tokio::task::spawn_blocking(move || {
        let _held = slot;
        read_span(&directory, &window, filter, now, &stop)
    });
    let read = read.await;
    drop(gone);
    match read {
        Ok(Ok((timeline, span))) => answer(&told(timeline, now, (span, kind), turn.as_deref())),
        Ok(Err(error @ ReadError::Nothing { .. })) => {
            refusal(StatusCode::NOT_FOUND, &format!("{error}."))
        }
        Ok(Err(error)) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}.")),
        Err(error) => {
            tracing::error!(%error, "the record could not be read for the page");
            refusal(
                StatusCode::INTERNAL_SERVER_ERROR,
                "It could not be read; the log says why.",
            )
        }
    }
}

/// Reads the time that is asked for; `filter` says of what.
fn read_span(
    directory: &Path,
    window: &TimelineQuery,
    filter: Filter,
    now: Time,
    stop: &AtomicBool,
) -> Result<(Timeline, SpanShown), ReadError> {
    let history = History::open(directory)?;
    let to = window.until.map_or(now, |until| Time(until).min(now));
    let span = SpanShown::of(window.hours, history.began()?, to);
    let filter = Filter {
        since: Some(span.from),
        until: Some(to).filter(|to| *to < now),
        ..filter
    };
    let started = Instant::now();
    let timeline = history.timeline(&filter, MOST, || {
        !stop.load(Ordering::Relaxed) && started.elapsed() < LONGEST
    })?;
    Ok((timeline, span))
}

/// The time that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SpanShown {
    hours: u32,
    from: Time,
    to: Time,
    /// When the record begins.
    began: Option<Time>,
}

impl SpanShown {
    /// The hours up to `to` that somebody chose. Where nobody did, the fewest that hold the whole record, a day at most; of a record that
    /// is younger than an hour its own length.
    fn of(chosen: Option<u32>, began: Option<Time>, to: Time) -> SpanShown {
        let back = |hours: u32| to - Span::minutes(60 * i64::from(hours));
        if let Some(hours) = chosen {
            let from = back(hours);
            return SpanShown {
                hours,
                from,
                to,
                began,
            };
        }
        let first = began.unwrap_or(Time(0));
        let mut offered = FIRST_HOURS.into_iter();
        let hours = offered.find(|hours| back(*hours) <= first);
        let hours = hours.unwrap_or(MOST_FIRST);
        let young = hours == FIRST_HOURS[0] && first < to;
        let from = if young { first } else { back(hours) };
        SpanShown {
            hours,
            from,
            to,
            began,
        }
    }
}

/// The machines and nodes of a timeline that are there in this turn.
fn there(timeline: &Timeline, turn: Option<&Turn>) -> BTreeSet<Arc<str>> {
    let Some(turn) = turn else {
        return BTreeSet::new();
    };
    let snapshot = &turn.snapshot;
    let of_deeds = timeline.deeds.iter().filter_map(|deed| match &deed.kind {
        DeedKind::Planned { machine, .. }
        | DeedKind::NotBegun { machine, .. }
        | DeedKind::Ended { machine, .. } => Some(machine),
        _ => None,
    });
    let named = of_deeds.chain(timeline.steps.keys());
    let is_there = |name: &&Arc<str>| {
        snapshot.machines.contains_key(*name) || snapshot.cluster.nodes.contains_key(*name)
    };
    named.filter(is_there).cloned().collect()
}

fn told(
    timeline: Timeline,
    now: Time,
    (span, kind): (SpanShown, Option<&'static str>),
    turn: Option<&Turn>,
) -> TimelineAnswer {
    TimelineAnswer {
        there: there(&timeline, turn),
        now: now.0,
        from: span.from.0,
        to: span.to.0,
        began: span.began.map(|began| began.0),
        kind,
        hours: span.hours,
        points: timeline.points.iter().map(DecisionNumbers::of).collect(),
        deeds: timeline.deeds.into_iter().map(TimelineDeed::of).collect(),
        idle: timeline.idle,
        steps: timeline.steps,
        more: timeline.more,
        cut: timeline.cut,
        damage: timeline.damage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_window_is_the_smallest_that_holds_the_record() {
        let now = Time(1_795_000_000_000);
        let shown = |chosen, age: i64| {
            let span = SpanShown::of(chosen, Some(now - Span::minutes(age)), now);
            (span.hours, now.since(span.from))
        };
        let hours = |hours: i64| Span::minutes(60 * hours);
        // A demo of ten minutes fills the picture.
        assert_eq!(shown(None, 10), (1, Span::minutes(10)));
        assert_eq!(shown(None, 90), (6, hours(6)));
        assert_eq!(shown(None, 600), (24, hours(24)));
        assert_eq!(shown(None, 60 * 24 * 9), (24, hours(24)));
        assert_eq!(shown(Some(1), 10), (1, hours(1)));
        assert_eq!(shown(Some(72), 10), (72, hours(72)));
        let none = SpanShown::of(None, None, now);
        assert_eq!(none.hours, 24, "nothing is known of it");
    }

    /// A record of a demo, two hours later.
    fn told_of(hours: u32, until: Option<&str>, of: &str) -> serde_json::Value {
        let record = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/records/0.1.0");
        let at = |text: &str| Time::find_in(text).expect("a time").1;
        let now = at("2026-01-01T10:00:00Z");
        let window = TimelineQuery {
            hours: Some(hours),
            until: until.map(|until| at(until).0),
            of: of.to_owned(),
        };
        assert_eq!(window.refused(), None);
        let (filter, kind) = asked_for(&window.of, None);
        let stop = AtomicBool::new(false);
        let (timeline, span) = read_span(&record, &window, filter, now, &stop).expect("read");
        let told = told(timeline, now, (span, kind), None);
        serde_json::to_value(&told).expect("JSON")
    }

    fn says(told: &serde_json::Value) -> Vec<&str> {
        let deeds = told["deeds"].as_array().expect("a list").iter();
        deeds
            .map(|deed| deed["says"].as_str().expect("words"))
            .collect()
    }

    /// The words are those of `history`, which the page has no others for.
    #[test]
    fn a_time_before_is_told_in_the_words_of_history() {
        let all = told_of(3, None, "");
        let made = "make general-qmj5n on pve2";
        assert!(says(&all).contains(&made), "{all}");
        assert!(says(&all).contains(&"a record begins, version 0.1.0"));
        assert_eq!(all["to"], all["now"]);
        let early = told_of(1, Some("2026-01-01T08:00:30Z"), "");
        let (from, to) = (early["from"].as_i64(), early["to"].as_i64());
        assert_eq!(from.map(|from| from + 3_600_000), to);
        assert!(early["to"].as_i64() < early["now"].as_i64());
        assert!(!says(&early).contains(&made), "{early}");
        assert!(says(&early).contains(&"a record begins, version 0.1.0"));
        assert_eq!(early["began"], all["began"]);
    }

    #[test]
    fn deeds_of_one_thing_are_looked_for_in_all_of_the_time() {
        let of = told_of(3, None, "general-qmj5n");
        assert_eq!(of["kind"], "node");
        let said = says(&of);
        assert!(said.contains(&"general-qmj5n is a working node"), "{of}");
        let about =
            |words: &&str| words.contains("general-qmj5n") || words.starts_with("the node: ");
        assert!(said.iter().all(about), "{of}");
        let whole = told_of(3, None, "");
        let all = says(&whole).len();
        assert!(said.len() < all, "{} of {all}", said.len());
        let none = told_of(3, None, "default/nobody");
        assert_eq!((&none["kind"], says(&none).len()), (&"pod".into(), 0));
        let long = TimelineQuery {
            hours: None,
            until: None,
            of: "x".repeat(600),
        };
        assert!(long.refused().is_some());
    }
}
