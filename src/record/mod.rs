//! The record: every decision of the daemon with all that it was made of, what was done for it and how that ended, in
//! bounded, compressed files in the state directory.
//!
//! # Writing
//! [`TurnRecorder::begin`] starts a thread that writes. The loop hands it what it decided ([`TurnRecorder::decided`]) and the
//! executor what became of it ([`RecordSender`]); both return at once. When the thread cannot keep up, or the disk cannot be
//! written, decisions are left out, that is counted, and the daemon goes on.
//!
//! # Reading
//! [`History::open`] takes the record's directory, or one segment of it.
//! It works while a daemon writes, and never holds more than one record in memory. For the page:
//!
//! ```text
//! let history = History::open(directory)?; // `StateFiles::record()` names the directory
//! let filter = Filter { since: Some(now - Span::minutes(60 * 24)), ..Filter::default() };
//! let points = history.points(&filter, 500)?;     // at most 500: pods pending, nodes there and wanted, by time
//! let machines = history.machines(&filter)?;      // each machine's phases with durations, and how it ended
//! let deeds = history.deeds(&filter, 1_000)?;     // the latest 1,000: what was decided, did not begin, ended
//! let state = history.state(deed.decision, deed.at)?; // all that this decision was made of, as JSON
//! ```
//! All of these read files: in the daemon call them by `tokio::task::spawn_blocking`, and one at a time.
//!
//! # Format
//! Segments in the directory are numbered; each begins with a whole state and stands alone ([`frame`] has the bytes,
//! [`line`] the records, [`change`] what a state differs by). A record carries its format version, and who reads it passes
//! over what it does not know.

mod beginning;
mod change;
mod copy;
mod deeds;
mod frame;
mod idle;
mod known;
mod line;
mod query;
mod read;
mod recorded_turn;
pub mod replay;
mod store;
mod timeline;
pub mod words;
mod writer;

pub use beginning::{BeginCause, RecordStart};
pub use idle::{IdleCause, IdleTime, LONGEST_SILENCE};
pub use line::{Deed, DeedKind, Point, PoolPoint};
pub use query::{Filter, History, Recorded, RecordedMachine, RecordedStep, ToldDeeds};
pub use read::ReadError;
pub use recorded_turn::RecordedTurn;
pub use timeline::{Most, Timeline};
pub use writer::{RecordLimits, RecordSender, TurnRecorder, WhenFull};

/// The record's directory in the state directory.
pub const DIRECTORY: &str = "record";
