//! The thread that writes the record, and the ends at which it is told.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::beginning::{Beginning, RecordStart};
use super::change::StateDifference;
use super::frame::SegmentWriter;
use super::line::{FORMAT, LineContent, Point, RecordLine, Skipped};
use super::recorded_turn::RecordedTurn;
use super::store;
use crate::model::action::Action;
use crate::model::region::{Failure, Step};
use crate::model::time::{Span, Time};

/// What waits to be written at most. More is left out: a disk that hangs must not fill the memory.
const QUEUE: usize = 32;
/// The end of the thread is waited for no longer: a disk may hang.
const GOODBYE: Duration = Duration::from_secs(2);
/// While nothing happens, this often a line says that it is so. The page takes a record that is older for one that has ended (`HOLDS`).
const QUIET: Span = Span::minutes(10);
/// A segment is closed after this long: with it what is too old can go.
const SEGMENT_AGE: Span = Span::minutes(12 * 60);
/// A segment has at most this part of all bytes.
const SEGMENT_PART: u64 = 16;
/// No segment is larger, so that reading a part of the record does not begin far before it.
const SEGMENT_BYTES: u64 = 8 << 20;
/// After a failed write the next is tried after this long, then after twice as long each time …
const RETRY: Duration = Duration::from_secs(30);
/// … up to this.
const LONGEST_RETRY: Duration = Duration::from_mins(10);
/// The version that records.
const PROGRAM: &str = env!("CARGO_PKG_VERSION");
/// What the thread calls is shallow, but for the JSON of a report.
const STACK: usize = 1 << 20;

/// What becomes of what is told while the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It is left out, and counted: nobody waits for a disk.
    LeaveOut,
    /// Whoever tells it waits: in a simulation that takes no time.
    Wait,
}

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLimits {
    /// Bytes on disk at most.
    pub max_bytes: u64,
    /// How long at most.
    pub max_age: Span,
}

/// What is to be written.
#[derive(Debug)]
enum Message {
    Decided(Box<RecordedTurn>),
    NotBegun(u64, Box<Action>, String, Time),
    Ended(Box<Action>, Option<Failure>, Time),
    Step(Arc<str>, Step, Span, bool, Time),
    Asked(&'static str, String, Option<String>, Time),
    Leads(Option<String>, Time),
    End,
}

/// Tells the record what becomes of decisions.
#[derive(Clone, Debug)]
pub struct RecordSender {
    sender: SyncSender<Message>,
    lost: Arc<LostCounts>,
    full: WhenFull,
}

/// What could not be recorded.
#[derive(Debug, Default)]
struct LostCounts {
    /// Since it was last told in the record.
    untold: AtomicU64,
    /// Since the beginning.
    all: AtomicU64,
}

impl LostCounts {
    fn one(&self) {
        self.untold.fetch_add(1, Ordering::Relaxed);
        self.all.fetch_add(1, Ordering::Relaxed);
    }
}

impl RecordSender {
    fn tell(&self, message: Message) {
        let taken = match self.full {
            WhenFull::LeaveOut => self.sender.try_send(message).is_ok(),
            WhenFull::Wait => self.sender.send(message).is_ok(),
        };
        if !taken {
            self.lost.one();
        }
    }

    /// An action of a decision was not begun.
    pub fn not_begun(&self, decision: u64, action: &Action, why: String, now: Time) {
        self.tell(Message::NotBegun(
            decision,
            Box::new(action.clone()),
            why,
            now,
        ));
    }

    /// An action ended.
    pub fn ended(&self, action: &Action, failure: Option<&Failure>, now: Time) {
        self.tell(Message::Ended(
            Box::new(action.clone()),
            failure.cloned(),
            now,
        ));
    }

    /// Somebody had the daemon do something: `pause` for a reason, `resume`, `retry` a pool, `evacuate` a host or end that. `by`: who,
    /// where the reason does not say it.
    pub fn asked(&self, what: &'static str, why: &str, by: Option<String>, now: Time) {
        self.tell(Message::Asked(what, why.to_owned(), by, now));
    }

    /// Another instance leads from now on, on this host, or this one does after another.
    pub fn leads(&self, host: Option<String>, now: Time) {
        self.tell(Message::Leads(host, now));
    }

    /// A step of a machine's life ended.
    pub fn step(&self, machine: &str, step: Step, took: Span, ok: bool, now: Time) {
        self.tell(Message::Step(machine.into(), step, took, ok, now));
    }
}

/// The record of a running daemon. Dropped, it writes what it was told and ends.
#[derive(Debug)]
pub struct TurnRecorder {
    teller: RecordSender,
    closing: Arc<AtomicBool>,
    done: Mutex<Receiver<()>>,
}

impl TurnRecorder {
    /// Begins to write in this directory, which is made with the first record. `None` when there can be no thread, which
    /// is said.
    pub fn begin(
        directory: PathBuf,
        limits: RecordLimits,
        full: WhenFull,
        start: RecordStart,
    ) -> Option<TurnRecorder> {
        TurnRecorder::with_retry(directory, limits, (full, start), RETRY)
    }

    fn with_retry(
        directory: PathBuf,
        limits: RecordLimits,
        (full, start): (WhenFull, RecordStart),
        retry: Duration,
    ) -> Option<TurnRecorder> {
        let (sender, messages) = sync_channel(QUEUE);
        let (end, done) = sync_channel::<()>(1);
        let lost = Arc::new(LostCounts::default());
        let closing = Arc::new(AtomicBool::new(false));
        let writer = Writer {
            beginning: Beginning::first(start, PROGRAM, &directory),
            directory,
            limits,
            lost: lost.clone(),
            open: None,
            last: None,
            skipped: Skipped::default(),
            written: None,
            failing: None,
            retry,
        };
        let told = closing.clone();
        let thread = std::thread::Builder::new()
            .name("recorder".to_owned())
            .stack_size(STACK)
            .spawn(move || {
                writer.run(&messages, &told);
                drop(end);
            });
        match thread {
            Ok(_) => Some(TurnRecorder {
                teller: RecordSender { sender, lost, full },
                closing,
                done: Mutex::new(done),
            }),
            Err(error) => {
                tracing::error!(%error, "decisions are not recorded: there can be no thread for it");
                None
            }
        }
    }

    /// Takes a decision.
    pub fn decided(&self, decided: RecordedTurn) {
        self.teller.tell(Message::Decided(Box::new(decided)));
    }

    /// Decisions and events that could not be recorded so far.
    pub fn lost(&self) -> u64 {
        self.teller.lost.all.load(Ordering::Relaxed)
    }

    /// For those who tell what becomes of decisions.
    pub fn teller(&self) -> RecordSender {
        self.teller.clone()
    }
}

impl Drop for TurnRecorder {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Release);
        // A full queue wakes it too.
        let _ = self.teller.sender.try_send(Message::End);
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        // The next daemon of this process writes in the same directory.
        if done.recv_timeout(GOODBYE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            tracing::warn!("the record was not written to its end in time");
        }
    }
}

/// The segment that is being written.
#[derive(Debug)]
struct Open {
    segment: SegmentWriter<File>,
    path: PathBuf,
    began: Time,
    /// Bytes up to the last whole record.
    whole: u64,
    /// Bytes of all segments when this one was begun.
    others: u64,
}

/// Since when nothing can be written.
#[derive(Debug)]
struct Failing {
    next: Instant,
    pause: Duration,
}

/// What the thread has.
#[derive(Debug)]
struct Writer {
    /// What the next segment tells of its beginning.
    beginning: Beginning,
    directory: PathBuf,
    limits: RecordLimits,
    lost: Arc<LostCounts>,
    open: Option<Open>,
    /// The decision that was recorded last, in this segment.
    last: Option<RecordedTurn>,
    skipped: Skipped,
    /// The time of the last record.
    written: Option<Time>,
    failing: Option<Failing>,
    retry: Duration,
}

impl Writer {
    fn run(mut self, messages: &Receiver<Message>, closing: &AtomicBool) {
        match store::cut_torn_tail(&self.directory) {
            Ok(None) => {}
            Ok(Some((path, bytes))) => tracing::warn!(
                "the record was cut short: the last {bytes} bytes of {} were no whole record and are gone",
                path.display()
            ),
            // The first record meets the same.
            Err(error) => tracing::debug!(%error, "the record cannot be looked at"),
        }
        while let Ok(message) = messages.recv() {
            match message {
                Message::End => break,
                Message::Decided(decided) => self.decided(*decided),
                other => self.event(&other),
            }
            if closing.load(Ordering::Acquire) {
                break;
            }
        }
        // What was told before the end; nobody waits for what comes later.
        for message in messages.try_iter() {
            match message {
                Message::Decided(decided) => self.decided(*decided),
                other => self.event(&other),
            }
        }
        self.stopped();
    }

    /// Says that nothing is recorded after this, and up to when it was as before.
    fn stopped(&mut self) {
        let last = self.skipped.until.max(self.written);
        if let Some(at) = last.filter(|_| self.open.is_some() && self.may_write()) {
            let skipped = self.skipped();
            let done = self.write(LineContent::Stopped { skipped }, at, false);
            self.after(done, at);
        }
    }

    /// Whether something may be written now.
    fn may_write(&self) -> bool {
        let failing = self.failing.as_ref();
        failing.is_none_or(|failing| failing.next <= Instant::now())
    }

    fn decided(&mut self, decided: RecordedTurn) {
        let same = self.last.as_ref();
        let same = same.is_some_and(|last| last.says_the_same(&decided));
        let at = decided.at;
        let back = self.written.is_some_and(|written| at < written);
        if same && !back && self.open.is_some() {
            self.skipped.quiet += 1;
            self.skipped.until = Some(at);
            let long_ago = self
                .written
                .is_none_or(|written| at.since(written) >= QUIET);
            if long_ago {
                self.quiet(at);
            }
            return;
        }
        if !self.may_write() {
            self.lost.one();
            return;
        }
        let full = self.open.as_ref().is_none_or(|open| {
            back || open.whole >= self.segment_bytes() || at.since(open.began) >= SEGMENT_AGE
        });
        let done = if full {
            self.whole(decided)
        } else {
            self.difference(decided)
        };
        self.after(done, at);
    }

    /// Bytes of a segment, about: it may end with a record that is longer.
    fn segment_bytes(&self) -> u64 {
        (self.limits.max_bytes / SEGMENT_PART).min(SEGMENT_BYTES)
    }

    /// Begins a segment with a whole state.
    fn whole(&mut self, decided: RecordedTurn) -> io::Result<()> {
        self.open = None;
        self.last = None;
        let (max, age) = (self.limits.max_bytes, self.limits.max_age);
        // Room for the segment that begins.
        let room = max.saturating_sub(self.segment_bytes());
        let others = store::make_room(&self.directory, room, age, decided.at)?;
        let (file, path) = store::create(&self.directory, decided.at)?;
        let segment = match SegmentWriter::begin(file) {
            Ok(segment) => segment,
            Err(error) => {
                // Not a single byte of it could be written.
                let _ = std::fs::remove_file(&path);
                return Err(error);
            }
        };
        self.open = Some(Open {
            segment,
            path,
            began: decided.at,
            whole: 0,
            others,
        });
        let what = LineContent::Whole {
            program: PROGRAM,
            beginning: &self.beginning.clone(),
            number: decided.number,
            skipped: self.skipped(),
            point: Point::of(&decided.decision, decided.at),
            plan: &decided.decision.plan,
            chosen_hosts: &decided.decision.report.chosen_hosts,
            state: decided.state(),
        };
        self.write(what, decided.at, true)?;
        self.beginning.go_on();
        self.last = Some(decided);
        Ok(())
    }

    /// Adds what differs from the last recorded state.
    fn difference(&mut self, decided: RecordedTurn) -> io::Result<()> {
        let Some(last) = self.last.take() else {
            return self.whole(decided);
        };
        let what = LineContent::Decision {
            number: decided.number,
            skipped: self.skipped(),
            point: Point::of(&decided.decision, decided.at),
            plan: &decided.decision.plan,
            chosen_hosts: &decided.decision.report.chosen_hosts,
            changes: StateDifference {
                old: last.state(),
                new: decided.state(),
            },
        };
        let acts = !decided.decision.plan.is_empty();
        self.write(what, decided.at, acts)?;
        self.last = Some(decided);
        Ok(())
    }

    /// Takes what was skipped since the last record.
    fn skipped(&mut self) -> Skipped {
        let mut skipped = std::mem::take(&mut self.skipped);
        skipped.lost += self.lost.untold.swap(0, Ordering::Relaxed);
        skipped
    }

    fn quiet(&mut self, at: Time) {
        if self.may_write() {
            let skipped = self.skipped();
            let done = self.write(LineContent::Quiet { skipped }, at, false);
            self.after(done, at);
        }
    }

    fn event(&mut self, message: &Message) {
        let (what, at) = match message {
            Message::NotBegun(number, action, message, at) => (
                LineContent::NotBegun {
                    number: *number,
                    action,
                    message,
                },
                *at,
            ),
            Message::Ended(action, failure, at) => (
                LineContent::Ended {
                    action,
                    failure: failure.as_ref(),
                },
                *at,
            ),
            Message::Step(machine, step, took, ok, at) => (
                LineContent::Step {
                    machine,
                    step: *step,
                    took: *took,
                    ok: *ok,
                },
                *at,
            ),
            Message::Asked(asked, message, by, at) => (
                LineContent::Asked {
                    asked,
                    message,
                    by: by.as_deref(),
                },
                *at,
            ),
            Message::Leads(host, at) => (
                LineContent::Leads {
                    leader: host.as_deref(),
                },
                *at,
            ),
            Message::Decided(_) | Message::End => return,
        };
        // A segment begins with a state.
        if self.open.is_none() || !self.may_write() {
            self.lost.one();
            return;
        }
        let ended = matches!(what, LineContent::Ended { .. });
        let done = self.write(what, at, ended);
        self.after(done, at);
    }

    /// Writes one record; `durable` ones outlive a power cut.
    fn write(&mut self, what: LineContent<'_>, at: Time, durable: bool) -> io::Result<()> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        open.segment.add(&RecordLine {
            format: FORMAT,
            at,
            what,
        })?;
        if durable {
            open.segment.file().sync_data()?;
        }
        open.whole = open.segment.written();
        if open.others + open.whole > self.limits.max_bytes {
            let (max, age) = (self.limits.max_bytes, self.limits.max_age);
            let all = store::make_room(&self.directory, max, age, at)?;
            open.others = all.saturating_sub(open.whole);
            if open.whole > max {
                return Err(io::Error::other(format!(
                    "one view of this cluster takes {} bytes, more than recorder.max_size",
                    open.whole
                )));
            }
        }
        Ok(())
    }

    /// What follows from a write.
    fn after(&mut self, done: io::Result<()>, at: Time) {
        match done {
            Ok(()) => {
                self.written = Some(at);
                if self.failing.take().is_some() {
                    tracing::info!("decisions are recorded again");
                }
            }
            Err(error) => self.failed(&error),
        }
    }

    /// Says it once, leaves whole records alone in the file, and tries again after a while.
    fn failed(&mut self, error: &io::Error) {
        self.lost.one();
        self.last = None;
        if let Some(open) = self.open.take() {
            let left = if open.whole <= self.limits.max_bytes {
                open.segment.file().set_len(open.whole)
            } else {
                open.segment.file().set_len(0)
            };
            let empty = open
                .segment
                .file()
                .metadata()
                .is_ok_and(|file| file.len() == 0);
            if empty {
                let _ = std::fs::remove_file(&open.path);
            }
            if let Err(error) = left {
                tracing::debug!(%error, "a half record stays at the end of its segment");
            }
        }
        let before = self.failing.as_ref().map(|failing| failing.pause);
        if before.is_none() {
            tracing::warn!(
                "decisions are not recorded: cannot write in {}: {error}; all else goes on, and it is tried again from time to time",
                Path::new(&self.directory).display()
            );
        }
        let pause = before.map_or(self.retry, |pause| (pause * 2).min(LONGEST_RETRY));
        self.failing = Some(Failing {
            next: Instant::now() + pause,
            pause,
        });
    }
}

#[cfg(test)]
#[path = "writer/tests.rs"]
mod tests;
