//! The record's directory: segments by number, and how many of them stay.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::frame::{self, SegmentEnd};
use crate::model::time::{Span, Time};

/// What the name of a segment ends with.
const ENDING: &str = ".segment";
/// File systems give whole blocks of about this many bytes.
const BLOCK: u64 = 4096;

/// A segment in a directory. Its name is `NUMBER-BEGAN.segment`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SegmentFile {
    pub(super) path: PathBuf,
    /// Counts the segments of this directory.
    pub(super) number: u64,
    /// The time of its first record.
    pub(super) began: Time,
    /// Bytes that it takes.
    pub(super) bytes: u64,
}

impl SegmentFile {
    fn of(path: PathBuf, bytes: u64) -> Option<SegmentFile> {
        let name = path.file_name()?.to_str()?.strip_suffix(ENDING)?;
        let (number, began) = name.split_once('-')?;
        Some(SegmentFile {
            number: number.parse().ok()?,
            began: Time(began.parse().ok()?),
            bytes: bytes.next_multiple_of(BLOCK),
            path,
        })
    }
}

/// The segments of a directory in the order in which they were written; none when there is no such directory.
pub(super) fn segments(directory: &Path) -> io::Result<Vec<SegmentFile>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        // One that is removed right now is none.
        if let Ok(about) = entry.metadata()
            && about.is_file()
        {
            found.extend(SegmentFile::of(entry.path(), about.len()));
        }
    }
    found.sort_by_key(|segment| segment.number);
    Ok(found)
}

/// Begins a segment after all that there are.
pub(super) fn create(directory: &Path, began: Time) -> io::Result<(File, PathBuf)> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let last = segments(directory)?.last().map_or(0, |last| last.number);
    let path = directory.join(format!("{:08}-{}{ENDING}", last + 1, began.0));
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    Ok((file, path))
}

/// Cuts what a writer that was killed has left half written at the end of the last segment. Gives the bytes that went.
pub(super) fn cut_torn_tail(directory: &Path) -> io::Result<Option<(PathBuf, u64)>> {
    let Some(last) = segments(directory)?.pop() else {
        return Ok(None);
    };
    let file = OpenOptions::new().read(true).write(true).open(&last.path)?;
    let (whole, end) = frame::whole(BufReader::new(&file));
    let length = file.metadata()?.len();
    // A power cut may leave zeros where the last frames should be.
    if end == SegmentEnd::Clean || whole >= length {
        return Ok(None);
    }
    if whole == 0 {
        fs::remove_file(&last.path)?;
    } else {
        file.set_len(whole)?;
    }
    Ok(Some((last.path, length - whole)))
}

/// Removes the oldest segments until all others take `max_bytes` at most and none ended longer ago than `max_age`. The
/// last one stays. Gives the bytes that are left.
pub(super) fn make_room(
    directory: &Path,
    max_bytes: u64,
    max_age: Span,
    now: Time,
) -> io::Result<u64> {
    let segments = segments(directory)?;
    let mut bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
    for pair in segments.windows(2) {
        let (oldest, next) = (&pair[0], &pair[1]);
        let old = now.since(next.began) > max_age;
        if bytes <= max_bytes && !old {
            break;
        }
        match fs::remove_file(&oldest.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => bytes -= oldest.bytes,
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(directory: &Path, number: u64, began: i64, bytes: usize) {
        let name = format!("{number:08}-{began}{ENDING}");
        fs::write(directory.join(name), vec![0; bytes]).expect("written");
    }

    fn numbers(directory: &Path) -> Vec<u64> {
        let segments = segments(directory).expect("read");
        segments.iter().map(|segment| segment.number).collect()
    }

    #[test]
    fn the_oldest_go_for_room_and_for_their_age_and_the_last_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        for number in 1..=5u32 {
            file(path, u64::from(number), i64::from(number) * 1_000, 4_000);
        }
        fs::write(path.join("notes.txt"), "mine").expect("written");
        let room = |bytes, age, now| make_room(path, bytes, Span(age), Time(now)).expect("made");
        assert_eq!(room(5 * BLOCK, 100_000, 6_000), 5 * BLOCK);
        assert_eq!(room(3 * BLOCK + 1, 100_000, 6_000), 3 * BLOCK);
        assert_eq!(numbers(path), [3, 4, 5]);
        // The third ended when the fourth began.
        assert_eq!(room(5 * BLOCK, 2_000, 6_000), 3 * BLOCK);
        assert_eq!(room(5 * BLOCK, 1_999, 6_000), 2 * BLOCK);
        assert_eq!(numbers(path), [4, 5]);
        // A clock that was set back makes nothing old.
        assert_eq!(room(5 * BLOCK, 0, 0), 2 * BLOCK);
        assert_eq!(room(0, 0, 9_000), BLOCK);
        assert_eq!(numbers(path), [5]);
        assert!(path.join("notes.txt").exists());
        let (_, next) = create(path, Time(7)).expect("created");
        assert!(next.ends_with("00000006-7.segment"), "{next:?}");
    }

    #[test]
    fn a_directory_that_is_not_there_has_no_segments() {
        let directory = tempfile::tempdir().expect("a directory");
        let missing = directory.path().join("missing");
        assert_eq!(segments(&missing).expect("read"), []);
        assert_eq!(cut_torn_tail(&missing).expect("nothing to do"), None);
    }
}
