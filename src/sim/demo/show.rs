//! What the demo prints.

use std::cell::RefCell;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::controller::turn::Turn;
use crate::model::foreign::{self, ForeignText};
use crate::model::time::{Span, Time};
use crate::screen::{Flow, Screen};
use crate::sim::world::{EPOCH, World};
use crate::simulator_args::DemoOptions;

use super::sums::{SumNumbers, Sums};
use super::timeline::{Gathered, TimelineLine, Tone};

/// What comes in crowds is told once nothing more came for this long.
const QUIET: Duration = Duration::from_secs(2);
/// And after this long in any case.
const PATIENCE: Duration = Duration::from_secs(15);
/// Where a line of the timeline goes on: below its text, behind time and sign …
const TOLD: usize = 11;
/// … and where one of the sums does.
const SUMS: usize = 4;
/// A terminal narrower than this has no room for that.
const NARROW: usize = 30;
/// Whoever read what is printed went away.
static GONE: AtomicBool = AtomicBool::new(false);

/// What to say of a demo that begins.
pub(super) struct Introduction<'a> {
    /// What was asked for.
    pub(super) options: &'a DemoOptions,
    /// Where the page is.
    pub(super) page: Option<SocketAddr>,
    /// What to type in a second terminal.
    pub(super) command: Option<String>,
}

impl Introduction<'_> {
    /// Printed before anything happens.
    pub(super) fn say(self) {
        let Introduction { options, .. } = self;
        let clusters = if options.regions > 1 {
            "two simulated Proxmox VE clusters (east and west, three hosts each, of the same names) and a"
        } else {
            "a simulated Proxmox VE cluster (three hosts) and a"
        };
        say(&format!(
            "pve-autoscaler demo: the real daemon between {clusters} simulated Kubernetes cluster. Seed {}, {} simulated seconds in a second. Ctrl-C ends it.\n",
            options.seed, options.speed
        ));
        if !options.once {
            say(
                "A workload arrives and ends, and its nodes come and go, in some twenty minutes of the clusters' time. After each such round it begins anew.\n",
            );
        }
        if let Some(page) = self.page {
            say(&format!(
                "The page: http://{page}/  There you may add a workload, kill a host and break the template.\n"
            ));
            if options.users.is_some() {
                say("Who is in the file of --users may log in there, pause, retry and evacuate.\n");
            } else if !page.ip().is_loopback() {
                say("Whoever reaches that address may do so, too: a demo has no login.\n");
            }
        }
        if let Some(command) = self.command {
            say("In a second terminal:");
            // Whole on a terminal of any width, to be copied.
            write(&format!("  {command}"));
            say(
                "and with the same --socket: plan, explain pod NAME, explain node NAME, history, pause, resume, retry POOL, evacuate HOST.\n",
            );
        }
        say(
            "Each line: minutes and seconds of the clusters' time, and » decided, + comes, - goes, ! went wrong.\n",
        );
    }
}

/// What is told of a world, and what it comes to.
#[derive(Debug, Default)]
pub(super) struct Show {
    gathered: RefCell<Gathered>,
    sums: RefCell<Sums>,
    /// The sums of the rounds that are over.
    rounds: RefCell<SumNumbers>,
    /// When the round began that is counted.
    since: RefCell<Option<Time>>,
}

impl Show {
    /// A new part of the story begins.
    pub(super) fn chapter(&self, world: &World, text: &str) {
        let now = world.clock.now();
        self.flush(now);
        told(now, "1", text);
    }

    /// Prints what changes, turn by turn; never ends.
    pub(super) async fn timeline(&self, world: &World) {
        let mut turns = world.turns.subscribe();
        let mut before: Option<Arc<Turn>> = None;
        // When it is told at the latest, and when if nothing more comes.
        let mut due: Option<(Instant, Instant)> = None;
        loop {
            let at = due.map(|(latest, quiet)| latest.min(quiet));
            tokio::select! {
                biased;
                changed = turns.changed() => if changed.is_err() {
                    return std::future::pending().await;
                },
                () = sleep_until(at.unwrap_or_else(Instant::now)), if at.is_some() => {
                    self.flush(world.clock.now());
                    due = None;
                    continue;
                }
            }
            let Some(turn) = turns.borrow_and_update().clone() else {
                continue;
            };
            self.sums.borrow_mut().count(before.as_deref(), &turn);
            let lines = self.gathered.borrow_mut().take(before.as_deref(), &turn);
            self.sums.borrow_mut().told(&lines);
            print(turn.at, &lines);
            if self.gathered.borrow().is_empty() {
                due = None;
            } else {
                let now = Instant::now();
                let latest = due.map_or(now + PATIENCE, |(latest, _)| latest);
                due = Some((latest, now + QUIET));
            }
            before = Some(turn);
        }
    }

    /// Prints what this round came to, and begins to count anew.
    pub(super) fn round(&self, now: Time) {
        self.flush(now);
        let since = self.since.replace(Some(now)).unwrap_or(EPOCH);
        let sums = self.sums.borrow_mut().part().numbers();
        summed("this round", now.since(since), &sums);
        self.rounds.borrow_mut().add(&sums);
    }

    /// Prints what the whole demo came to.
    pub(super) fn whole(&self, now: Time) {
        self.flush(now);
        let mut all = self.rounds.borrow().clone();
        all.add(&self.sums.borrow().numbers());
        summed("the whole demo", now.since(EPOCH), &all);
    }

    fn flush(&self, now: Time) {
        print(now, &self.gathered.borrow_mut().tell());
    }
}

/// Prints what something came to that took so long.
fn summed(what: &str, took: Span, sums: &SumNumbers) {
    let took = Span::seconds(took.0 / 1000);
    say(&format!("\nIn {took} of the clusters' time, {what}:"));
    for (tone, text) in sums.lines() {
        let text = format!("{} {text}", tone.sign());
        say_in(color(tone), "  ", &text, SUMS);
    }
    say("");
}

/// Prints what a person did on the page.
pub(super) fn by_person(now: Time, text: &str) {
    told(now, "1", text);
}

fn print(at: Time, lines: &[TimelineLine]) {
    for line in lines {
        let text = foreign::line(&in_story(&line.text), ForeignText::MAX);
        told(
            at,
            color(line.tone),
            &format!("{} {text}", line.tone.sign()),
        );
    }
}

fn color(tone: Tone) -> &'static str {
    match tone {
        Tone::Up => "32",
        Tone::Down => "33",
        Tone::Decision => "36",
        Tone::Trouble | Tone::Fault => "31",
        Tone::Fact => "0",
    }
}

/// Simulated time since the beginning, `MM:SS`.
fn clock(now: Time) -> String {
    let seconds = now.since(EPOCH).0 / 1000;
    format!("{:>4}:{:02}", seconds / 60, seconds % 60)
}

/// A text with each point in time that it names as the timeline writes them: `10:07`.
fn in_story(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((begin, at, length)) = Time::find_in(rest) {
        out.push_str(&rest[..begin]);
        out.push_str(clock(at).trim_start());
        rest = &rest[begin + length..];
    }
    out + rest
}

/// Prints what was at a time, in this colour. What is too long for the terminal goes on below where it began.
fn told(at: Time, color: &str, text: &str) {
    say_in(color, &format!("{}  ", clock(at)), text, TOLD);
}

/// Prints a line, folded to the terminal.
fn say(text: &str) {
    for line in text.split('\n') {
        say_in("", "", line, 0);
    }
}

/// Prints a line, what stands `before` it plain and the rest in this colour, folded to the terminal; it goes on so far in,
/// where there is room for that.
fn say_in(color: &str, before: &str, text: &str, hang: usize) {
    let screen = Screen::now();
    let text = &format!("{before}{text}");
    let text = match screen.columns {
        Some(columns) => {
            let hang = if columns < NARROW { hang.min(1) } else { hang };
            Flow { columns, hang }.line(text)
        }
        None => text.to_owned(),
    };
    if color.is_empty() || !screen.colours {
        return write(&text);
    }
    for line in text.split('\n') {
        let blanks = line.len() - line.trim_start_matches(' ').len();
        let begin = if line.starts_with(before) {
            before.len()
        } else {
            blanks
        };
        let (plain, line) = line.split_at(begin);
        write(&format!("{plain}\u{1b}[{color}m{line}\u{1b}[0m"));
    }
}

/// Prints this.
fn write(text: &str) {
    let written = writeln!(std::io::stdout(), "{text}");
    // A reader that went away (`| head`) ends the demo; of what else keeps a line from being written nobody can be told.
    if written.is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe) {
        GONE.store(true, Ordering::Relaxed);
    }
}

/// Until nobody reads what is printed.
pub(super) async fn unread() {
    while !GONE.load(Ordering::Relaxed) {
        tokio::time::sleep(QUIET).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_in_time_are_those_of_the_story() {
        for (text, wanted) in [
            (
                "remove a: its host pve2 is evacuated since 2026-01-01T08:10:07.1Z",
                "remove a: its host pve2 is evacuated since 10:07",
            ),
            (
                "from 2026-01-01T08:00:00Z, until 2026-01-01T10:05:09Z at the latest",
                "from 0:00, until 125:09 at the latest",
            ),
            ("1 pod fits nowhere else", "1 pod fits nowhere else"),
        ] {
            assert_eq!(in_story(text), wanted);
        }
    }
}
