//! A copy of a part of the record whose text was gone over, to be given to others; the text alone, to be looked at.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde_json::value::RawValue;

use super::frame::{SegmentReader, SegmentWriter};
use super::query::{Filter, History};
use super::read::ReadError;
use super::store::SegmentFile;

impl History {
    /// Writes the segments that have something of a time into a directory, each record as `clean` gives it back. A record that
    /// is no JSON any more is left out, and so is what cannot be read.
    ///
    /// # Errors
    /// The record cannot be read, or the directory not be written.
    pub fn copy(
        &self,
        filter: &Filter,
        to: &Path,
        clean: &dyn Fn(&str) -> String,
    ) -> Result<(), ReadError> {
        for segment in self.segments(filter)? {
            let failed = |source| unreadable(&segment, source);
            let Some(mut records) = opened(&segment)? else {
                continue;
            };
            let name = segment.path.file_name().unwrap_or_default();
            let copy = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(to.join(name));
            let mut copy = copy.and_then(SegmentWriter::begin).map_err(failed)?;
            while let Ok(text) = records.next() {
                let text = clean(&String::from_utf8_lossy(&text));
                if let Ok(record) = RawValue::from_string(text) {
                    copy.add(&record).map_err(failed)?;
                }
            }
        }
        Ok(())
    }

    /// Shows the text of each record in the segments that have something of a time. What cannot be read is passed over.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn texts(&self, filter: &Filter, show: &mut dyn FnMut(&str)) -> Result<(), ReadError> {
        for segment in self.segments(filter)? {
            let Some(mut records) = opened(&segment)? else {
                continue;
            };
            while let Ok(text) = records.next() {
                show(&String::from_utf8_lossy(&text));
            }
        }
        Ok(())
    }
}

fn unreadable(segment: &SegmentFile, source: io::Error) -> ReadError {
    ReadError::Unreadable {
        path: segment.path.clone(),
        source,
    }
}

/// The records of a segment; `None` where it is gone by now, or is no segment.
fn opened(segment: &SegmentFile) -> Result<Option<SegmentReader<BufReader<File>>>, ReadError> {
    match File::open(&segment.path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(segment, error)),
        Ok(file) => Ok(SegmentReader::open(BufReader::new(file)).ok()),
    }
}
