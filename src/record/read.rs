//! Reading the record: segment by segment, record by record, and the states that records differ by.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::change::{self, ValueChange};
use super::frame::{SegmentEnd, SegmentReader};
use super::line::{FORMAT, ReadLine};
use super::store::{self, SegmentFile};
use crate::model::time::Time;

/// Why the record cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The operating system says no.
    #[error(
        "cannot read the record {path}: {source}; it may be read by root and by the daemon's user"
    )]
    Unreadable {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is nothing in it.
    #[error(
        "there is no record in {path}; the daemon writes one while recorder.enabled is true in its configuration"
    )]
    Nothing {
        /// Where.
        path: PathBuf,
    },
    /// It is something else.
    #[error("{path} is no record: {why}")]
    NoRecord {
        /// Where.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

/// The segments of a directory, or the one segment that a path names.
pub(super) fn segments_at(path: &Path) -> Result<Vec<SegmentFile>, ReadError> {
    let unreadable = |source| ReadError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let about = match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(ReadError::Nothing {
                path: path.to_owned(),
            });
        }
        about => about.map_err(unreadable)?,
    };
    let segments = if about.is_dir() {
        store::segments(path).map_err(unreadable)?
    } else {
        vec![SegmentFile {
            path: path.to_owned(),
            number: 0,
            began: Time(0),
            bytes: about.len(),
        }]
    };
    if segments.is_empty() {
        return Err(ReadError::Nothing {
            path: path.to_owned(),
        });
    }
    Ok(segments)
}

/// The records of some segments, one after the other. What is damaged is passed over, and told of.
#[derive(Debug)]
pub(super) struct RecordReader {
    segments: VecDeque<SegmentFile>,
    open: Option<(SegmentFile, SegmentReader<BufReader<File>>)>,
    /// What could not be read.
    pub(super) damage: Vec<String>,
}

/// Segments whose damage is told of at most.
const MOST_DAMAGE: usize = 100;

impl RecordReader {
    pub(super) fn of(segments: impl IntoIterator<Item = SegmentFile>) -> RecordReader {
        RecordReader {
            segments: segments.into_iter().collect(),
            open: None,
            damage: Vec::new(),
        }
    }

    fn damaged(&mut self, segment: &SegmentFile, why: &str) {
        if self.damage.len() < MOST_DAMAGE {
            let path = segment.path.display();
            self.damage.push(format!(
                "{path}: {why}; the rest of this segment is not read"
            ));
        }
    }

    /// The next record.
    pub(super) fn next(&mut self) -> Result<Option<ReadLine>, ReadError> {
        loop {
            let Some((segment, mut reader)) = self.open.take() else {
                let Some(segment) = self.segments.pop_front() else {
                    return Ok(None);
                };
                match File::open(&segment.path) {
                    // It went while we read those before.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(source) => {
                        return Err(ReadError::Unreadable {
                            path: segment.path,
                            source,
                        });
                    }
                    Ok(file) => match SegmentReader::open(BufReader::new(file)) {
                        Ok(reader) => self.open = Some((segment, reader)),
                        Err(SegmentEnd::Damaged(why)) => self.damaged(&segment, &why),
                        Err(_) => {}
                    },
                }
                continue;
            };
            match reader.next() {
                Ok(text) => match serde_json::from_slice::<ReadLine>(&text) {
                    Ok(line) if line.format > FORMAT => {
                        let format = line.format;
                        let why = format!(
                            "a newer program wrote it, in format {format}; this one reads {FORMAT}"
                        );
                        self.damaged(&segment, &why);
                    }
                    Ok(line) => {
                        self.open = Some((segment, reader));
                        return Ok(Some(line));
                    }
                    Err(error) => {
                        let why = format!("a record cannot be read: {error}");
                        self.damaged(&segment, &why);
                    }
                },
                Err(SegmentEnd::Damaged(why)) => self.damaged(&segment, &why),
                // A record that is being written, or was when its writer was killed.
                Err(SegmentEnd::Clean | SegmentEnd::Torn) => {}
            }
        }
    }
}

/// The state that records lead to.
#[derive(Debug, Default)]
pub(super) struct RebuiltState {
    state: Option<Value>,
}

impl RebuiltState {
    /// Takes a record. Says whether it tells of a decision, whose state then stands.
    pub(super) fn take(&mut self, line: &ReadLine) -> Result<bool, serde_json::Error> {
        if let Some(state) = &line.state {
            self.state = None;
            self.state = Some(serde_json::from_str(state.get())?);
            return Ok(true);
        }
        let (Some(changes), Some(state)) = (&line.changes, &mut self.state) else {
            return Ok(false);
        };
        match serde_json::from_str::<Vec<ValueChange>>(changes.get()) {
            Ok(changes) => {
                change::apply(state, changes);
                Ok(true)
            }
            Err(error) => {
                self.state = None;
                Err(error)
            }
        }
    }

    /// The state now.
    pub(super) fn state(&self) -> Option<&Value> {
        self.state.as_ref()
    }
}
