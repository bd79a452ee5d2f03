//! How a record begins or goes on: what the daemon tells of its start, and what stood in the record before.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::frame;
use super::store;

/// Changed keys that a record keeps.
const MOST_KEYS: usize = 50;
/// Bytes of a segment's first record that are looked at: the program and the host stand at its beginning, and a whole state behind them.
const HEAD: usize = 4 << 10;

/// Why a record begins, or goes on in a new segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BeginCause {
    /// The daemon was started.
    #[default]
    Started,
    /// The daemon, which ran without a configuration, read one.
    Configured,
    /// The daemon read its configuration anew.
    Reloaded,
    /// The daemon's loop ended with an error and was started anew.
    Again,
    /// A new segment was due.
    Segment,
}

/// What the daemon tells of how its record begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordStart {
    /// Why.
    pub cause: BeginCause,
    /// The keys of the configuration that are not as they were, after a reload.
    pub changed: Vec<String>,
    /// The host that the daemon runs on.
    pub host: String,
}

/// What stands of that in the first record of a segment. Its names and their order are the format.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Beginning {
    /// The host that the daemon runs on.
    pub(super) host: Arc<str>,
    /// Why the record begins.
    pub(super) cause: BeginCause,
    /// The keys of the configuration that are not as they were.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) changed: Vec<String>,
    /// Who recorded before, where it was another program or another host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) former: Option<FormerRecorder>,
}

/// Who recorded before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct FormerRecorder {
    /// The version of the program.
    pub(super) program: String,
    /// Its host; `None` where the record does not tell it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) host: Option<Arc<str>>,
}

impl Beginning {
    /// The first of a daemon, or of its loop, in this directory.
    pub(super) fn first(start: RecordStart, program: &str, directory: &Path) -> Beginning {
        let mut changed = start.changed;
        changed.truncate(MOST_KEYS);
        let host: Arc<str> = start.host.into();
        let former = read_former(directory).filter(|former| {
            let elsewhere = former.host.as_ref().is_some_and(|other| *other != host);
            elsewhere || former.program != program
        });
        Beginning {
            host,
            cause: start.cause,
            changed,
            former,
        }
    }

    /// The next segment of the same daemon.
    pub(super) fn go_on(&mut self) {
        *self = Beginning {
            host: self.host.clone(),
            cause: BeginCause::Segment,
            ..Beginning::default()
        };
    }
}

/// Who wrote the last segment of a directory; `None` where there is none, or it cannot be read.
fn read_former(directory: &Path) -> Option<FormerRecorder> {
    let last = store::segments(directory).ok()?.pop()?;
    let text = frame::read_head(File::open(last.path).ok()?, HEAD)?;
    let program = value_of(&text, "\"program\":")?;
    let host = value_of(&text, "\"beginning\":{\"host\":").map(Arc::from);
    Some(FormerRecorder { program, host })
}

/// The text that stands behind a key of a document of which only the beginning is there.
fn value_of(text: &str, key: &str) -> Option<String> {
    let at = text.find(key)? + key.len();
    let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<String>();
    values.next()?.ok()
}
