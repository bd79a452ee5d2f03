//! The page as it changes: one stream of server-sent events for each viewer, one computation for all of them, none
//! when nobody looks.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::Stream;
use futures::stream::unfold;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::WebState;
use super::view::{Frame, PageView};
use crate::controller::turn::Turn;

/// Those who may look at the same time; each holds a connection, of which there are few.
pub(super) const MAX_VIEWERS: usize = 12;
/// Between two views that one viewer gets.
const SPACING: Duration = Duration::from_secs(1);
/// Without news a viewer hears this often that the daemon is there.
const BEAT: Duration = Duration::from_secs(10);
/// A stream ends after this long, before its connection is closed for its age; the page opens the next one at once.
const STREAM_LIFE: Duration = Duration::from_mins(4);

/// What the viewers share.
#[derive(Debug)]
pub(super) struct Viewers {
    slots: Arc<Semaphore>,
    last: Mutex<LastView>,
}

/// The view that was made last. It is gone when its last viewer is.
#[derive(Debug, Default)]
struct LastView {
    of: Option<Weak<Turn>>,
    view: Weak<Bytes>,
}

impl Default for Viewers {
    fn default() -> Viewers {
        Viewers {
            slots: Arc::new(Semaphore::new(MAX_VIEWERS)),
            last: Mutex::default(),
        }
    }
}

impl Viewers {
    /// The view after a turn as an event, made once for all who look.
    fn view(&self, state: &WebState, turn: Option<&Arc<Turn>>) -> Arc<Bytes> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let of = turn.map(Arc::downgrade);
        let known = match (&last.of, &of) {
            (Some(known), Some(of)) => Weak::ptr_eq(known, of),
            // What is wrong before the first turn changes without one.
            _ => false,
        };
        if known && let Some(view) = last.view.upgrade() {
            return view;
        }
        let view = Arc::new(Bytes::from(event(state, turn.map(|turn| &**turn))));
        *last = LastView {
            of,
            view: Arc::downgrade(&view),
        };
        view
    }

    #[cfg(test)]
    pub(super) fn keep_nothing(&self) -> bool {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.view.strong_count() == 0
    }
}

/// The view as a server-sent event.
fn event(state: &WebState, turn: Option<&Turn>) -> Vec<u8> {
    let status = state.status.tell();
    let frame = Frame {
        now: state.clock.now(),
        pace: state.pace,
        demo: state.acts.is_some(),
        status: &status,
    };
    let mut text = b"event: view\ndata: ".to_vec();
    // JSON holds no line break outside of its strings, and none that is not escaped within them.
    if let Err(error) = serde_json::to_writer(&mut text, &PageView::of(frame, turn)) {
        tracing::error!(%error, "the page's view cannot be written");
        text = b"event: view\ndata: null".to_vec();
    }
    text.extend(b"\n\n");
    text
}

/// A viewer.
struct Viewer {
    state: WebState,
    turns: watch::Receiver<Option<Arc<Turn>>>,
    /// Kept, so that others may share it.
    shown: Option<Arc<Bytes>>,
    /// The next view comes no earlier.
    earliest: Instant,
    ends: Instant,
    _slot: OwnedSemaphorePermit,
}

impl Viewer {
    /// What it hears next; `None` when the stream ends.
    async fn next(&mut self) -> Option<Bytes> {
        if self.shown.is_none() {
            return Some(self.look());
        }
        let closing = self.state.closing.clone();
        let (earliest, ends) = (self.earliest, self.ends);
        let news = async {
            self.turns.changed().await.ok()?;
            sleep_until(earliest).await;
            Some(())
        };
        tokio::select! {
            biased;
            () = closing.cancelled() => None,
            () = sleep_until(ends) => None,
            news = news => news.map(|()| self.look()),
            () = sleep(BEAT * self.state.pace) => Some(self.beat()),
        }
    }

    fn look(&mut self) -> Bytes {
        let turn = self.turns.borrow_and_update().clone();
        let view = self.state.viewers.view(&self.state, turn.as_ref());
        self.earliest = Instant::now() + SPACING * self.state.pace;
        self.shown = Some(view.clone());
        Bytes::clone(&view)
    }

    /// The daemon's clock. Before the first turn and without a configuration all that there is to tell.
    fn beat(&mut self) -> Bytes {
        if self.turns.borrow().is_none() {
            return self.look();
        }
        let now = self.state.clock.now().0;
        format!("event: beat\ndata: {now}\n\n").into()
    }
}

/// Answers with the stream; refuses when too many look already.
pub(super) async fn stream(extract::State(state): extract::State<WebState>) -> Response {
    let Ok(slot) = state.viewers.slots.clone().try_acquire_owned() else {
        let why = format!("{MAX_VIEWERS} pages are open already; close one of them.\n");
        return (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    };
    let now = Instant::now();
    let viewer = Viewer {
        turns: state.turns.clone(),
        shown: None,
        earliest: now,
        ends: now + STREAM_LIFE * state.pace,
        state,
        _slot: slot,
    };
    let events = unfold(viewer, |mut viewer| async move {
        let event = viewer.next().await?;
        Some((Ok::<_, std::convert::Infallible>(event), viewer))
    });
    let events: Pin<Box<dyn Stream<Item = _> + Send>> = Box::pin(events);
    let terms = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (terms, Body::from_stream(events)).into_response()
}
