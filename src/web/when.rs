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
use crate::model::time::{Span, Time};
use crate::record::{
    Deed, DeedKind, Filter, History, Most, Point, ReadError, RecordedStep, Timeline,
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
    /// How many hours up to now; where that is not said the window that shows the record best.
    hours: Option<u32>,
}

/// What is told.
#[derive(Debug, Serialize)]
struct TimelineAnswer {
    /// The daemon's clock, in milliseconds since 1970, as are all times here.
    now: i64,
    from: i64,
    /// The window in hours.
    hours: u32,
    points: Vec<DecisionNumbers>,
    deeds: Vec<Deed>,
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
    /// Something was on hold.
    held: bool,
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
            held: !point.holds.is_empty(),
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

/// Tells a time up to now.
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
    if window
        .hours
        .is_some_and(|hours| !(1..=MOST_HOURS).contains(&hours))
    {
        let why = format!("Between 1 and {MOST_HOURS} hours can be asked for.");
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
    let read = tokio::task::spawn_blocking(move || {
        let _held = slot;
        let span = SpanShown::of(window.hours, began(&directory)?, now);
        Ok((read(&directory, span.from, &stop)?, span))
    });
    let read = read.await;
    drop(gone);
    match read {
        Ok(Ok((timeline, span))) => {
            let turn = state.turns.borrow().clone();
            answer(&told(timeline, now, span, turn.as_deref()))
        }
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

fn read(directory: &Path, from: Time, stop: &AtomicBool) -> Result<Timeline, ReadError> {
    let filter = Filter {
        since: Some(from),
        ..Filter::default()
    };
    let began = Instant::now();
    History::open(directory)?.timeline(&filter, MOST, || {
        !stop.load(Ordering::Relaxed) && began.elapsed() < LONGEST
    })
}

/// The time that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SpanShown {
    hours: u32,
    from: Time,
}

impl SpanShown {
    /// The hours that somebody chose. Where nobody did, the fewest that hold the whole record, a day at most; of a record that is
    /// younger than an hour its own length.
    fn of(chosen: Option<u32>, began: Option<Time>, now: Time) -> SpanShown {
        let back = |hours: u32| now - Span::minutes(60 * i64::from(hours));
        if let Some(hours) = chosen {
            let from = back(hours);
            return SpanShown { hours, from };
        }
        let began = began.unwrap_or(Time(0));
        let mut offered = FIRST_HOURS.into_iter();
        let hours = offered.find(|hours| back(*hours) <= began);
        let hours = hours.unwrap_or(MOST_FIRST);
        let young = hours == FIRST_HOURS[0] && began < now;
        let from = if young { began } else { back(hours) };
        SpanShown { hours, from }
    }
}

fn began(directory: &Path) -> Result<Option<Time>, ReadError> {
    History::open(directory)?.began()
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

fn told(timeline: Timeline, now: Time, span: SpanShown, turn: Option<&Turn>) -> TimelineAnswer {
    TimelineAnswer {
        there: there(&timeline, turn),
        now: now.0,
        from: span.from.0,
        hours: span.hours,
        points: timeline.points.iter().map(DecisionNumbers::of).collect(),
        deeds: timeline.deeds,
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
}
