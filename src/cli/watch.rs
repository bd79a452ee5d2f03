//! `--watch`: what a command shows, again and again until somebody ends it.

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;

use super::{CliFailure, said, write};
use crate::model::{foreign, words};
use crate::typed_number::whole;

/// How often something is shown.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct WatchOptions {
    /// Show it again every two seconds, or every so many, until Ctrl-C: on a terminal in the same place, elsewhere one
    /// below the other.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = whole::<u64>(1..=3600))]
    watch: Option<u64>,
}

impl WatchOptions {
    /// Whether it is shown more than once.
    pub(super) fn is_on(self) -> bool {
        self.watch.is_some()
    }

    /// Writes what `shown` gives: once, or again and again. `command` is what shows all of it.
    pub(super) fn show(
        self,
        command: &str,
        shown: impl Fn() -> Result<String, CliFailure>,
    ) -> Result<(), CliFailure> {
        let Some(seconds) = self.watch else {
            return write(&shown()?);
        };
        let term = std::env::var("TERM").unwrap_or_default();
        let redraws = std::io::stdout().is_terminal() && !matches!(&*term, "" | "dumb");
        loop {
            // A daemon that is away is one of the things that somebody who watches wants to see.
            let text = match shown() {
                Ok(text) => text,
                Err(CliFailure::Other(error)) => {
                    foreign::lines(&format!("{}\n", said(&error))).into_owned()
                }
                Err(other) => return Err(other),
            };
            let rows = redraws.then(|| crate::screen::rows().unwrap_or(usize::MAX));
            write(&framed(&text, rows, command))?;
            if super::is_reader_gone() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_secs(seconds));
        }
    }
}

/// One picture of many: in the place of the one before, where a terminal of so many rows can do that, else below it. What is beyond the last
/// row is left out and counted: it would push the headline out of sight, and every picture into what one scrolls back to.
pub(super) fn framed(text: &str, rows: Option<usize>, command: &str) -> String {
    let Some(rows) = rows else {
        return format!("{text}\n");
    };
    // The last row is for what is typed next.
    let room = rows.saturating_sub(1).max(1);
    let mut lines: Vec<&str> = text.lines().collect();
    let over = lines.len().saturating_sub(room);
    let more = (over > 0).then(|| {
        lines.truncate(room - 1);
        let left_out = words::count(over + 1, "line");
        format!("… {left_out} more; pve-autoscaler {command} has all")
    });
    lines.extend(more.as_deref());
    // From the corner on, each line to its end, then all that is below: nothing is cleared before there is something to show.
    let lines = lines.iter().map(|line| format!("{line}\u{1b}[K\n"));
    format!("\u{1b}[H{}\u{1b}[J", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_takes_the_place_of_the_one_before_on_a_terminal_alone() {
        let drawn = |text: &str, rows: usize| {
            let drawn = framed(text, Some(rows), "status");
            let inner = drawn
                .strip_prefix("\u{1b}[H")
                .and_then(|text| text.strip_suffix("\u{1b}[J"));
            inner
                .expect("from the corner to the end")
                .replace("\u{1b}[K", "")
        };
        assert_eq!(drawn("a\nb\n", 3), "a\nb\n");
        // One row less, and the headline is what stays.
        assert_eq!(
            drawn("a\nb\nc\nd\n", 4),
            "a\nb\n… 2 lines more; pve-autoscaler status has all\n"
        );
        assert_eq!(
            drawn("a\nb\n", 1),
            "… 2 lines more; pve-autoscaler status has all\n"
        );
        assert_eq!(framed("a\n", None, "status"), "a\n\n");
    }
}
