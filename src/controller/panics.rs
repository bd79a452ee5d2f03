//! Panics of earlier lives of the daemon, in the state directory: told to whoever asks, and what is done when they come
//! one after the other.
//!
//! A panic ends the process, and systemd starts the next one ten seconds later. What made it may lie in the memory, which
//! outlives the process; then every life would end the same way. So the memory is set aside when it has happened often
//! in a short time. That may delay a removal and never hastens one; a pool that failed may be tried again once too early.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::journal::write_durably;
use crate::model::foreign::ForeignText;
use crate::model::time::{Span, Time};
use crate::model::words;

/// Panics that are kept.
const KEPT: usize = 10;
/// This many panics …
const OFTEN: usize = 3;
/// … within this time make the daemon set the memory aside.
const LATELY: Span = Span::minutes(10);
/// The memory is set aside at most once in this time, so that the one that was spoilt is not lost to the next.
const NOT_AGAIN: Span = Span::minutes(60);

/// What the file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Panics {
    /// The latest, oldest first.
    panics: Vec<Panic>,
    /// When the memory was set aside.
    set_aside: Option<Time>,
}

/// One panic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Panic {
    at: Time,
    said: ForeignText,
}

/// Notes a panic in the file, durable when this returns.
pub(super) fn record(file: &Path, said: ForeignText, now: Time) -> std::io::Result<()> {
    let mut known = read(file);
    known.panics.push(Panic { at: now, said });
    let most = known.panics.len().saturating_sub(KEPT);
    known.panics.drain(..most);
    write_durably(file, &serde_json::to_vec(&known)?)
}

/// When the last panic was, and what is to be said of the last ones. Sets the memory aside where they come too often.
pub(super) fn look(file: &Path, memory: &Path, now: Time) -> Option<(Time, String)> {
    let mut known = read(file);
    let last = known.panics.last()?.clone();
    let since = known.set_aside;
    let recent =
        |panic: &&Panic| now.since(panic.at) < LATELY && since.is_none_or(|since| panic.at > since);
    let often = known.panics.iter().filter(recent).count() >= OFTEN;
    let mut word = format!(
        "the daemon ended by a fault of its own {}, last at {}: {}; please report it",
        match known.panics.len() {
            1 => "once".to_owned(),
            many => words::count(many, "time"),
        },
        last.at,
        last.said
    );
    let aside = memory.with_extension("json.set-aside");
    if often && memory.exists() && since.is_none_or(|since| now.since(since) >= NOT_AGAIN) {
        known.set_aside = Some(now);
        let done = std::fs::rename(memory, &aside);
        let kept = done.and_then(|()| write_durably(file, &serde_json::to_vec(&known)?));
        if let Err(error) = kept {
            tracing::error!(%error, "the memory could not be set aside");
        }
    }
    if known
        .set_aside
        .is_some_and(|set_aside| now.since(set_aside) < NOT_AGAIN)
    {
        word.push_str("; its memory was set aside as ");
        word.push_str(&aside.display().to_string());
        word.push_str(" and timers began anew");
    }
    Some((last.at, word))
}

/// A file that cannot be read holds nothing: it tells of faults and is no reason for one.
fn read(file: &Path) -> Panics {
    let text = std::fs::read(file).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_set_aside_when_panics_come_one_after_the_other() {
        let directory = tempfile::tempdir().expect("a directory");
        let (file, memory) = (
            directory.path().join("panics.json"),
            directory.path().join("memory.json"),
        );
        let aside = directory.path().join("memory.json.set-aside");
        let start = Time(1_795_000_000_000);
        assert_eq!(look(&file, &memory, start), None);
        std::fs::write(&memory, "first").expect("written");
        for minute in [0, 30, 31] {
            record(
                &file,
                "panicked at a\u{1b}b".into(),
                start + Span::minutes(minute),
            )
            .expect("recorded");
        }
        let (at, word) = look(&file, &memory, start + Span::minutes(32)).expect("told");
        assert_eq!(at, start + Span::minutes(31));
        assert!(
            word.contains(r"3 times") && word.contains(r"a\u{1b}b"),
            "{word}"
        );
        assert!(
            memory.exists() && !word.contains("set aside"),
            "two within ten minutes: {word}"
        );

        record(&file, "panicked again".into(), start + Span::minutes(33)).expect("recorded");
        let (_, word) = look(&file, &memory, start + Span::minutes(34)).expect("told");
        assert!(
            word.contains("memory.json.set-aside and timers began anew"),
            "{word}"
        );
        assert_eq!(
            std::fs::read_to_string(&aside).expect("it is there"),
            "first"
        );
        assert!(!memory.exists());

        // It panics on without it: the first one is what somebody wants to see.
        std::fs::write(&memory, "second").expect("written");
        for second in 1..9 {
            record(
                &file,
                "and again".into(),
                start + Span::minutes(34) + Span::seconds(second),
            )
            .expect("recorded");
        }
        let now = start + Span::minutes(36);
        assert!(look(&file, &memory, now).is_some_and(|(_, word)| word.contains("set aside")));
        assert_eq!(
            std::fs::read_to_string(&aside).expect("it is there"),
            "first"
        );
        assert_eq!(read(&file).panics.len(), KEPT);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_no_reason_to_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let (file, memory) = (
            directory.path().join("panics.json"),
            directory.path().join("memory.json"),
        );
        for text in [
            "",
            "{",
            "[]",
            "{\"panics\":[{\"at\":1}]}",
            "{\"panics\":null}",
        ] {
            std::fs::write(&file, text).expect("written");
            assert_eq!(look(&file, &memory, Time(5)), None, "{text}");
            record(&file, "x".into(), Time(5)).expect("recorded");
            assert!(look(&file, &memory, Time(5)).is_some());
        }
    }
}
