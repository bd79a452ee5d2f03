//! What every bench needs: measuring, the table for people, the lines for programs.
//!
//! A bench is a program of its own (`harness = false` in `Cargo.toml`). It prints a table with each
//! target and whether it is met; with `--json` it prints one object a line instead, as soon as a
//! number is known. Standard output carries nothing else: what else is to be said goes through
//! [`note`] to standard error. Where a target is missed, the program fails: [`Report::finish`].
//!
//! ```ignore
//! mod common;
//! use common::{Report, Row, measure};
//!
//! fn main() -> ExitCode {
//!     let mut report = Report::new("What is measured, in a line");
//!     for pods in [1_000, 5_000] {
//!         let world = world(pods);
//!         let measured = measure(|| decide(&world));
//!         let nodes = measured.value.plan.len();
//!         report.add(
//!             Row::new("W1", pods)
//!                 .measured(&measured)                    // seconds, allocations, peak_bytes
//!                 .field("nodes", nodes)
//!                 .at_most("seconds", 0.2)                // targets are of fields already there
//!                 .exactly("nodes", 2_595),
//!         );
//!     }
//!     report.finish()
//! }
//! ```
//!
//! Every line has `workload`, `size` and `seconds`, and `allocations` and `peak_bytes` where they were
//! counted; with a target also `target` (text) and `met`.

#![allow(dead_code, reason = "each bench is a program and uses a part of this")]

pub(crate) mod config;
pub(crate) mod daemon;
pub(crate) mod populated;
pub(crate) mod process;
pub(crate) mod scene;
pub(crate) mod services;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::Value;

/// A workload is timed at most this often; the median counts.
const MOST_RUNS: usize = 9;
/// No further run begins after this long, but for the first.
const LONG_ENOUGH: Duration = Duration::from_secs(3);

/// What running something took.
#[derive(Debug)]
pub(crate) struct Measured<T> {
    /// What it gave, the last time.
    pub(crate) value: T,
    /// The median of its runs in seconds of real time.
    pub(crate) seconds: f64,
    /// Allocations of one run, on this thread.
    pub(crate) allocations: u64,
    /// The most bytes that were allocated at a time during a run, beyond what was before it.
    pub(crate) peak_bytes: u64,
}

/// Runs something once to count its allocations and then several times to time it. What it gives is
/// dropped outside of the timing. The counting allocator stays below the timed runs, switched off:
/// its cost, a nanosecond or two an allocation, is in the time.
pub(crate) fn measure<T>(mut run: impl FnMut() -> T) -> Measured<T> {
    measure_on(|| (), |()| run())
}

/// As [`measure`], for something that uses up what `setup` makes anew for every run.
pub(crate) fn measure_on<I, T>(
    mut setup: impl FnMut() -> I,
    mut run: impl FnMut(I) -> T,
) -> Measured<T> {
    let input = setup();
    let mut value = None;
    let counted = allocation_counter::measure(|| value = Some(black_box(run(black_box(input)))));
    drop(value.take());
    let mut timed = None;
    allocation_counter::opt_out(|| timed = Some(time(&mut setup, &mut run)));
    let (seconds, value) = timed.expect("it ran");
    Measured {
        value,
        seconds,
        allocations: counted.count_total,
        peak_bytes: counted.bytes_max,
    }
}

/// The median time of some runs, and what the last gave.
fn time<I, T>(setup: &mut impl FnMut() -> I, run: &mut impl FnMut(I) -> T) -> (f64, T) {
    let mut times = Vec::with_capacity(MOST_RUNS);
    let begin = now();
    loop {
        let input = setup();
        let began = now();
        let value = black_box(run(black_box(input)));
        times.push(began.elapsed());
        if times.len() == MOST_RUNS || begin.elapsed() >= LONG_ENOUGH {
            times.sort_unstable();
            return (times[times.len() / 2].as_secs_f64(), value);
        }
    }
}

/// Real time.
#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Says something beside the numbers, on standard error.
pub(crate) fn note(words: impl std::fmt::Display) {
    eprintln!("    {words}");
}

/// A line of results.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    fields: Vec<(String, Value)>,
    targets: Vec<String>,
    met: bool,
}

impl Row {
    /// Results of a workload at one size.
    pub(crate) fn new(workload: &str, size: impl Into<Value>) -> Row {
        let fields = vec![
            ("workload".to_owned(), Value::from(workload)),
            ("size".to_owned(), size.into()),
        ];
        Row {
            fields,
            targets: Vec::new(),
            met: true,
        }
    }

    /// `seconds`, `allocations` and `peak_bytes` of what was measured.
    #[must_use]
    pub(crate) fn measured<T>(self, measured: &Measured<T>) -> Row {
        self.field("seconds", measured.seconds)
            .field("allocations", measured.allocations)
            .field("peak_bytes", measured.peak_bytes)
    }

    /// One more field.
    #[must_use]
    pub(crate) fn field(mut self, name: &str, value: impl Into<Value>) -> Row {
        self.fields.push((name.to_owned(), value.into()));
        self
    }

    /// The field may not be more than this.
    #[must_use]
    pub(crate) fn at_most(self, name: &str, most: impl Into<Value>) -> Row {
        self.target(name, "<=", &most.into(), |is, most| is <= most)
    }

    /// The field may not be less than this.
    #[must_use]
    pub(crate) fn at_least(self, name: &str, least: impl Into<Value>) -> Row {
        self.target(name, ">=", &least.into(), |is, least| is >= least)
    }

    /// The field must be this.
    #[must_use]
    pub(crate) fn exactly(self, name: &str, wanted: impl Into<Value>) -> Row {
        self.target(name, "=", &wanted.into(), |is, wanted| {
            is.total_cmp(&wanted).is_eq()
        })
    }

    fn target(mut self, name: &str, sign: &str, bound: &Value, holds: fn(f64, f64) -> bool) -> Row {
        let is = self.get(name).and_then(Value::as_f64);
        let is = is.unwrap_or_else(|| panic!("a target of {name}, which is no number of this row"));
        self.met &= holds(is, bound.as_f64().expect("a bound is a number"));
        self.targets.push(format!("{name} {sign} {}", shown(bound)));
        self
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.fields
            .iter()
            .find(|(field, _)| field == name)
            .map(|(_, value)| value)
    }

    /// With the target's two fields, where there is a target.
    fn complete(mut self) -> Row {
        if !self.targets.is_empty() {
            let target = self.targets.join(", ");
            let met = self.met;
            self = self.field("target", target).field("met", met);
        }
        self
    }

    /// One object in one line, fields in their order.
    fn json(&self) -> String {
        let fields: Vec<String> = self
            .fields
            .iter()
            .map(|(name, value)| format!("{}:{value}", Value::from(name.as_str())))
            .collect();
        format!("{{{}}}", fields.join(","))
    }
}

/// The results of a bench.
#[derive(Debug)]
pub(crate) struct Report {
    title: String,
    json: bool,
    rows: Vec<Row>,
}

impl Report {
    /// Begins a report; whether it is for programs is in the program's arguments.
    pub(crate) fn new(title: &str) -> Report {
        Report {
            title: title.to_owned(),
            json: std::env::args().any(|argument| argument == "--json"),
            rows: Vec::new(),
        }
    }

    /// Adds a line; for programs it is printed at once.
    pub(crate) fn add(&mut self, row: Row) {
        let row = row.complete();
        if self.json {
            println!("{}", row.json());
        } else {
            note(row.json());
        }
        self.rows.push(row);
    }

    /// Prints the table for people. A target that was missed makes the program fail, whoever reads it.
    pub(crate) fn finish(self) -> ExitCode {
        if !self.json {
            print!("\n{}\n\n{}\n", self.title, table(&self.rows));
        }
        let missed = self.rows.iter().filter(|row| !row.met).count();
        if missed == 0 {
            return ExitCode::SUCCESS;
        }
        note(format!(
            "{missed} of {} lines miss their target",
            self.rows.len()
        ));
        ExitCode::FAILURE
    }
}

/// The rows as a table: all columns that some row has, in the order of their first appearance, the
/// target last.
fn table(rows: &[Row]) -> String {
    let mut columns: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().flat_map(|row| &row.fields) {
        if !columns.contains(&name.as_str()) {
            columns.push(name);
        }
    }
    columns.sort_by_key(|column| matches!(*column, "target" | "met"));
    let cell = |row: &Row, column: &str| row.get(column).map(shown).unwrap_or_default();
    let widths: BTreeMap<&str, usize> = columns
        .iter()
        .map(|column| {
            let cells = rows.iter().map(|row| cell(row, column).chars().count());
            (*column, cells.max().unwrap_or(0).max(column.len()))
        })
        .collect();
    let mut text = String::new();
    let mut line = |cells: &dyn Fn(&str) -> (String, bool)| {
        for column in &columns {
            let (cell, left) = cells(column);
            let width = widths[column];
            let _ = if left {
                write!(text, "{cell:<width$}  ")
            } else {
                write!(text, "{cell:>width$}  ")
            };
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    };
    let words = |column: &str| {
        rows.iter()
            .any(|row| row.get(column).is_some_and(|value| !value.is_number()))
    };
    line(&|column| (column.to_owned(), words(column)));
    for row in rows {
        line(&|column| (cell(row, column), words(column)));
    }
    text
}

/// A value as people read it: thousands apart, four significant places, yes and no.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "NO".to_owned(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => thousands(whole),
            (None, Some(real)) if real != 0.0 && real.abs() < 1.0 => format!("{real:.5}"),
            (None, Some(real)) => format!("{real:.2}"),
            (None, None) => number.to_string(),
        },
        other => other.to_string(),
    }
}

fn thousands(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0 { format!("-{text}") } else { text }
}
