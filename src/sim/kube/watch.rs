//! Watches: a stream of JSON lines that reads the history, with bookmarks, a time limit and 410.

use std::sync::Weak;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use http::header;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::KubeInner;
use super::bell::BellListener;
use super::media::ObjectForm;
use super::object::namespace;
use super::resources::Res;
use super::selector::ListSelector;
use super::status::Status;
use super::store::{StoredChange, WatchEventKind};

/// How often a quiet watch says where it stands (`--watch-cache` bookmarks: about once a minute).
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);

/// Most changes written in one piece, so that a long backlog does not sit in memory as text.
const BATCH: usize = 500;

/// A watch.
pub(super) struct Watch {
    pub(super) inner: Weak<KubeInner>,
    pub(super) res: Res,
    pub(super) namespace: Option<String>,
    pub(super) selector: ListSelector,
    pub(super) shape: ObjectForm,
    pub(super) bookmarks: bool,
    /// The last version this watch has shown.
    pub(super) version: u64,
    pub(super) bell: BellListener,
    pub(super) deadline: Instant,
    pub(super) next_bookmark: Instant,
    /// What the stream begins with, already written.
    pub(super) front: Option<String>,
    pub(super) over: bool,
}

/// When the next bookmark is due, from now.
pub(super) fn next_bookmark() -> Instant {
    Instant::now() + BOOKMARK_EVERY
}

/// One line of a watch.
pub(super) fn line(word: &str, object: &Value) -> String {
    format!("{{\"type\":\"{word}\",\"object\":{object}}}\n")
}

impl Watch {
    /// The answer that streams it.
    pub(super) fn respond(self) -> Response {
        let stream = futures::stream::unfold(self, |mut watch| async move {
            let text = watch.next().await?;
            Some((Ok::<_, std::convert::Infallible>(Bytes::from(text)), watch))
        });
        (
            [(header::CONTENT_TYPE, "application/json")],
            Body::from_stream(stream),
        )
            .into_response()
    }

    async fn next(&mut self) -> Option<String> {
        if let Some(front) = self.front.take() {
            return Some(front);
        }
        loop {
            if self.over {
                return None;
            }
            let seen = self.bell.hear();
            if seen > self.version
                && let Some(text) = self.catch_up()
            {
                return Some(text);
            }
            if self.over {
                return None;
            }
            let now = Instant::now();
            if now >= self.deadline {
                self.over = true;
                return self.bookmarks.then(|| self.bookmark());
            }
            if self.bookmarks && now >= self.next_bookmark {
                self.next_bookmark = next_bookmark();
                return Some(self.bookmark());
            }
            let wake = if self.bookmarks {
                self.deadline.min(self.next_bookmark)
            } else {
                self.deadline
            };
            tokio::select! {
                biased;
                changed = self.bell.changed() => {
                    if !changed {
                        return None;
                    }
                }
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    /// The lines of the changes since the last version shown; `None` when none concern this watch.
    fn catch_up(&mut self) -> Option<String> {
        let inner = self.inner.upgrade()?;
        let state = inner.lock();
        if self.version < state.forgotten() {
            self.over = true;
            let refusal = Status::expired(format!(
                "too old resource version: {} ({})",
                self.version,
                state.forgotten()
            ));
            return Some(line("ERROR", &refusal.json()));
        }
        let mut text = String::new();
        let mut shown = 0;
        for change in state.since(self.version) {
            if shown == BATCH {
                return Some(text);
            }
            self.version = change.version;
            if change.resource == self.res.stored()
                && let Some(word) = self.word(change)
            {
                text.push_str(&line(word, &self.shape.of(self.res, &change.object)));
                shown += 1;
            }
        }
        (!text.is_empty()).then_some(text)
    }

    /// What a change means to this watch: an object that moves into the selection was added to it.
    fn word(&self, change: &StoredChange) -> Option<&'static str> {
        if self
            .namespace
            .as_ref()
            .is_some_and(|n| n != namespace(&change.object))
        {
            return None;
        }
        let is = self.selector.matches(&change.object);
        let was = change
            .before
            .as_ref()
            .is_some_and(|b| self.selector.matches(b));
        match (change.event, was, is) {
            (WatchEventKind::Deleted, true, _) | (_, true, false) => {
                Some(WatchEventKind::Deleted.word())
            }
            (WatchEventKind::Deleted, false, _) | (_, false, false) => None,
            (_, false, true) => Some(WatchEventKind::Added.word()),
            (_, true, true) => Some(WatchEventKind::Modified.word()),
        }
    }

    fn bookmark(&mut self) -> String {
        if let Some(inner) = self.inner.upgrade() {
            // Everything up to here was looked at; nothing of it concerned this watch.
            self.version = self.version.max(inner.lock().version());
        }
        let row = self.res.row();
        let object = json!({
            "kind": row.kind,
            "apiVersion": row.api_version(),
            "metadata": {"resourceVersion": self.version.to_string(), "creationTimestamp": null},
        });
        line("BOOKMARK", &object)
    }
}
