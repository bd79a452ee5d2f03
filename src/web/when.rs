//! The last days as the record has them: read when somebody asks, one reading at a time, and given up in time.

use std::collections::BTreeMap;
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
use crate::model::time::{Span, Time};
use crate::record::{Deed, Filter, History, Most, Point, ReadError, RecordedStep, Timeline};

/// The longest time that is shown, in hours: what the record keeps by default.
const MOST_HOURS: u32 = 14 * 24;
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
    /// How many hours up to now.
    hours: u32,
}

/// What is told.
#[derive(Debug, Serialize)]
struct TimelineAnswer {
    /// The daemon's clock, in milliseconds since 1970, as are all times here.
    now: i64,
    from: i64,
    points: Vec<DecisionNumbers>,
    deeds: Vec<Deed>,
    /// The steps of machines, by name.
    steps: BTreeMap<Arc<str>, Vec<RecordedStep>>,
    /// There were more deeds, and these are the latest.
    more: bool,
    /// It took too long, and the older part is missing.
    cut: bool,
    damage: Vec<String>,
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
    if !(1..=MOST_HOURS).contains(&window.hours) {
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
    let from = now - Span::minutes(60 * i64::from(window.hours));
    let directory = past.directory.clone();
    let gone = StopOnDrop(Arc::default());
    let stop = gone.0.clone();
    let read = tokio::task::spawn_blocking(move || {
        let _held = slot;
        read(&directory, from, &stop)
    });
    let read = read.await;
    drop(gone);
    match read {
        Ok(Ok(timeline)) => answer(&told(timeline, now, from)),
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

fn told(timeline: Timeline, now: Time, from: Time) -> TimelineAnswer {
    TimelineAnswer {
        now: now.0,
        from: from.0,
        points: timeline.points.iter().map(DecisionNumbers::of).collect(),
        deeds: timeline.deeds,
        steps: timeline.steps,
        more: timeline.more,
        cut: timeline.cut,
        damage: timeline.damage,
    }
}
