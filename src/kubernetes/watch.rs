//! Lists and watches of all kinds into the [`ClusterStore`], with a bound on every wait.
//!
//! Not kube's reflector: the age of the view is an input of every decision, so it must be known
//! when the view was last right. A source is as new as the moment before its list was asked for,
//! and then as its newest event or bookmark (the API server sends one a minute).

#[cfg(test)]
mod tests;

use std::time::Duration;

use http_body_util::BodyExt;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};

use super::client::{KubeClient, KubeRequest, MAX_BODY, Stream};
use super::error::KubeError;
use super::kinds::WatchedKind;
use super::list::Listing;
use super::store::{ClusterStore, FailureScope, Listed};
use super::wire;
use crate::model::time::Span;

/// How long one watch is asked to last; below the idle limit of load balancers that cut silently.
pub const WATCH_SECONDS: u32 = 290;
/// Bookmarks come each minute, where they come: after this silence the watch may be dead.
pub const SILENCE: Duration = Duration::from_secs(100);
/// First wait after a failure; doubles up to [`BACKOFF_MAX`], plus up to half of it by lot.
pub const BACKOFF_FIRST: Duration = Duration::from_millis(800);
/// Longest wait after a failure.
pub const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Failures in a row after which even a resourceVersion that was never refused is given up and
/// everything is listed again: some proxies answer an expired one with any error at all.
const FAILURES_TO_RELIST: u32 = 5;
/// A watch that ended sooner than this without a word counts as a failure, lest it spins.
const SHORT: Duration = Duration::from_secs(5);
/// Longest line of a watch, in bytes: one object, as much as is read of any answer.
const MAX_LINE: usize = MAX_BODY;
/// A line buffer above this is given back once it is empty.
const KEEP_BUFFER: usize = 64 * 1024;

/// Keeps `store` up to date. Never returns; the daemon runs it as a task. `seed` is for the jitter
/// of the waits.
pub async fn watch(client: KubeClient, store: ClusterStore, seed: u64) {
    let watchers = WatchedKind::ALL
        .iter()
        .zip(seed..)
        .map(|(kind, seed)| Watcher {
            client: client.clone(),
            store: store.clone(),
            kind: *kind,
            rng: StdRng::seed_from_u64(seed),
            failures: 0,
            gone: 0,
            in_vain: 0,
        });
    futures::future::join_all(watchers.map(Watcher::run)).await;
}

struct Watcher {
    client: KubeClient,
    store: ClusterStore,
    kind: WatchedKind,
    rng: StdRng,
    /// Failures in a row; a good list ends the row.
    failures: u32,
    /// 410s since a watch last came to something.
    gone: u32,
    /// Good lists in a row after which no watch came to anything: what makes a server waited for that
    /// lists and never watches.
    in_vain: u32,
}

/// How a watch ended that was in order.
enum Ending {
    /// The server ended it.
    Server,
    /// Nothing came for [`SILENCE`], not even a bookmark: everything is listed again. No failure, since
    /// an API server's watch cache sends no bookmarks of a kind that it has seen no event of since it
    /// began, unless etcd was told to report its progress. A server that hangs is found by the list.
    Silence,
}

/// Why a watch ended without its server's will.
enum Broken {
    /// The resourceVersion is too old (410): list again.
    Expired,
    /// Anything else: go on from the same version, unless what came cannot be trusted.
    Failed {
        message: String,
        /// What is behind it, in the same words for all watches that it hinders.
        cause: Option<String>,
        retry_after: Option<Duration>,
        relist: bool,
        trouble: FailureScope,
    },
}

impl From<KubeError> for Broken {
    fn from(error: KubeError) -> Broken {
        if error.code() == Some(410) {
            return Broken::Expired;
        }
        let retry_after = match &error {
            KubeError::Refused { retry_after, .. } => retry_after.map(Span::to_std),
            _ => None,
        };
        let trouble = match error.code() {
            None | Some(401 | 429 | 500..=599) => FailureScope::Shared,
            // It has not read its roles yet, as for some seconds after its start.
            Some(403) if error.to_string().contains("RBAC: ") => FailureScope::Shared,
            Some(_) => FailureScope::Own,
        };
        Broken::Failed {
            message: error.to_string(),
            cause: Some(error.cause()),
            retry_after,
            relist: false,
            trouble,
        }
    }
}

#[derive(Deserialize)]
struct WatchEvent<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WatchStatus {
    code: Option<u16>,
    message: Option<String>,
}

impl Watcher {
    async fn run(mut self) {
        let mut version = None;
        loop {
            let mut generation = self.client.generation();
            let turn = self.turn(&mut version);
            tokio::select! {
                biased;
                () = turn => {}
                // A new client may speak to another cluster: nothing of the old view counts on.
                Ok(()) = generation.changed() => version = None,
            }
        }
    }

    /// One list where needed, one watch, and the wait after a failure.
    async fn turn(&mut self, version: &mut Option<String>) {
        let result = match version {
            None => self.list().await.map(|listed| {
                *version = Some(listed);
                self.failures = 0;
                self.in_vain = self.in_vain.saturating_add(1);
            }),
            Some(from) => match self.follow(from).await {
                Ok(ending) => {
                    self.progressed();
                    if matches!(ending, Ending::Silence) {
                        *version = None;
                    }
                    Ok(())
                }
                Err(broken) => Err(broken),
            },
        };
        let Err(broken) = result else { return };
        let retry_after = match broken {
            Broken::Expired => {
                *version = None;
                self.gone = self.gone.saturating_add(1);
                // Listing at once is right once; a server that says 410 again and again is waited for.
                if self.gone == 1 {
                    return;
                }
                self.failures += 1;
                let message = "the API server says 410 Gone again and again";
                self.store
                    .failed(self.kind, message, None, FailureScope::Own);
                None
            }
            Broken::Failed {
                message,
                cause,
                retry_after,
                relist,
                trouble,
            } => {
                self.failures += 1;
                self.store
                    .failed(self.kind, &message, cause.as_deref(), trouble);
                if relist || self.failures.is_multiple_of(FAILURES_TO_RELIST) {
                    *version = None;
                }
                retry_after
            }
        };
        let wait = self.backoff().max(retry_after.unwrap_or_default());
        tokio::time::sleep(wait).await;
    }

    /// A watch came to something: whatever failed before is over.
    fn progressed(&mut self) {
        self.failures = 0;
        self.gone = 0;
        self.in_vain = 0;
    }

    fn backoff(&mut self) -> Duration {
        let before = self.in_vain.saturating_sub(1);
        let doublings = before.saturating_add(self.failures.saturating_sub(1));
        let wait = BACKOFF_FIRST
            .saturating_mul(1 << doublings.min(16))
            .min(BACKOFF_MAX);
        wait + wait.mul_f64(self.rng.random_range(0.0..0.5))
    }

    /// Lists everything; returns the version to watch from.
    async fn list(&mut self) -> Result<String, Broken> {
        let mut listed = Listed::new(self.kind, self.client.clock().now());
        let listing = Listing {
            kind: self.kind.resource(),
            path: self.kind.path(),
            field_selector: self.kind.field_selector(),
        };
        let store = self.store.clone();
        let version = self
            .client
            .list(listing, |item| store.take_listed(&mut listed, item))
            .await?;
        self.store.end_list(&listed);
        Ok(version)
    }

    /// Watches from `version`, which moves along, until the server ends it.
    async fn follow(&mut self, version: &mut String) -> Result<Ending, Broken> {
        let mut request =
            KubeRequest::new("watch", self.kind.resource(), "", self.kind.path().into())
                .query("watch", "true")
                .query("allowWatchBookmarks", "true")
                .query("timeoutSeconds", WATCH_SECONDS.to_string())
                .query("resourceVersion", version.as_str())
                .expect_refusals(&[410]);
        if !self.kind.field_selector().is_empty() {
            request = request.query("fieldSelector", self.kind.field_selector());
        }
        let opened = Instant::now();
        let stream = self.client.open(request).await?;
        self.store.watch_opened(self.kind);
        let before = version.clone();
        let ending = self.read(stream, version).await?;
        if opened.elapsed() < SHORT && *version == before {
            return Err(failed("the watch ended at once without an event"));
        }
        Ok(ending)
    }

    async fn read(&mut self, stream: Stream, version: &mut String) -> Result<Ending, Broken> {
        let mut body = stream.body;
        let mut buffer: Vec<u8> = Vec::new();
        loop {
            let frame = match timeout(SILENCE, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => {
                    return Err(failed(&format!("the watch broke off: {error}")));
                }
                Ok(None) => return Ok(Ending::Server),
                Err(_) => return Ok(Ending::Silence),
            };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let searched = buffer.len();
            buffer.extend_from_slice(&data);
            let mut start = 0;
            let mut from = searched;
            while let Some(offset) = buffer[from..].iter().position(|byte| *byte == b'\n') {
                let end = from + offset;
                self.line(&buffer[start..end], version)?;
                start = end + 1;
                from = start;
            }
            buffer.drain(..start);
            if buffer.is_empty() && buffer.capacity() > KEEP_BUFFER {
                buffer = Vec::new();
            }
            if buffer.len() > MAX_LINE {
                // The list names the object, and the next watch begins after it.
                return Err(relist(format!(
                    "a line of the watch is longer than {} MiB",
                    MAX_LINE >> 20
                )));
            }
        }
    }

    /// Takes one line. What cannot be read at all ends the watch, and the next list brings it.
    fn line(&mut self, line: &[u8], version: &mut String) -> Result<(), Broken> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let event: WatchEvent<'_> = serde_json::from_slice(line)
            .map_err(|error| relist(format!("an event of the watch cannot be read: {error}")))?;
        if event.kind == "ERROR" {
            let status: WatchStatus = serde_json::from_str(event.object.get()).unwrap_or_default();
            if status.code == Some(410) {
                return Err(Broken::Expired);
            }
            let message = status.message.unwrap_or_default();
            return Err(failed(&format!(
                "the API server ended the watch: {message}"
            )));
        }
        let now = self.client.clock().now();
        let meta = serde_json::from_str::<wire::MetadataOnly>(event.object.get())
            .unwrap_or_default()
            .metadata;
        match event.kind {
            "ADDED" | "MODIFIED" => self.store.take_changed(self.kind, event.object, now),
            "DELETED" => self.store.take_deleted(self.kind, &meta, now),
            "BOOKMARK" => self.store.take_bookmark(self.kind, now),
            // A type of event that does not exist yet cannot be about the state of an object.
            other => tracing::debug!(event = other, "unknown watch event"),
        }
        self.progressed();
        if let Some(newer) = meta.resource_version.filter(|newer| !newer.is_empty()) {
            *version = newer;
        }
        Ok(())
    }
}

/// The watch failed, and with it most likely the others.
fn failed(message: &str) -> Broken {
    Broken::Failed {
        message: message.to_owned(),
        cause: None,
        retry_after: None,
        relist: false,
        trouble: FailureScope::Shared,
    }
}

/// What came cannot be used: everything of the kind is listed again.
fn relist(message: String) -> Broken {
    Broken::Failed {
        message,
        cause: None,
        retry_after: None,
        relist: true,
        trouble: FailureScope::Own,
    }
}
