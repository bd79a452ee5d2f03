//! What the demo prints.

use std::cell::RefCell;
use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::agent::turn::Turn;
use crate::model::foreign::{self, ForeignText};
use crate::model::time::{Span, Time};
use crate::sim::world::{EPOCH, World};
use crate::simulator_args::DemoOptions;

use super::sums::Sums;
use super::timeline::{Gathered, Line, Tone};

/// What comes in crowds is told once nothing more came for this long.
const QUIET: Duration = Duration::from_secs(2);
/// And after this long in any case.
const PATIENCE: Duration = Duration::from_secs(15);
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
            "pve-autoscaler demo: the real daemon between {clusters}\n\
             simulated Kubernetes cluster. Seed {}, {} simulated seconds in a second. Ctrl-C ends it.\n",
            options.seed, options.speed
        ));
        if let Some(page) = self.page {
            say(&format!(
                "The page: http://{page}/  There you may add a workload, kill a host and break the template.\n"
            ));
        }
        if let Some(command) = self.command {
            say(&format!(
                "In a second terminal:\n  {command}\n\
                 and with the same --socket: plan, explain pod NAME, explain node NAME, pause, resume, retry POOL.\n"
            ));
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
    /// When the story began that the sums are of.
    since: RefCell<Option<Time>>,
}

impl Show {
    /// A new part of the story begins.
    pub(super) fn chapter(&self, world: &World, text: &str) {
        let now = world.clock.now();
        self.flush(now);
        say(&format!("{}  {}", clock(now), paint("1", text)));
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

    /// Prints what the story came to so far, and begins to count anew.
    pub(super) fn sums(&self, now: Time) {
        self.flush(now);
        let since = self.since.replace(Some(now)).unwrap_or(EPOCH);
        let took = Span::seconds(now.since(since).0 / 1000);
        let sums = self.sums.borrow_mut().part();
        say(&format!("\nIn {took} of the clusters' time:"));
        for (tone, text) in sums.lines() {
            say(&format!("  {}", painted(tone, &text)));
        }
        say("");
    }

    fn flush(&self, now: Time) {
        print(now, &self.gathered.borrow_mut().tell());
    }
}

fn print(at: Time, lines: &[Line]) {
    for line in lines {
        let text = foreign::line(&line.text, ForeignText::MAX);
        say(&format!("{}  {}", clock(at), painted(line.tone, &text)));
    }
}

fn painted(tone: Tone, text: &str) -> String {
    let color = match tone {
        Tone::Up => "32",
        Tone::Down => "33",
        Tone::Decision => "36",
        Tone::Trouble => "31",
        Tone::Fact => "0",
    };
    paint(color, &format!("{} {text}", tone.sign()))
}

/// Simulated time since the beginning, `MM:SS`.
fn clock(now: Time) -> String {
    let seconds = now.since(EPOCH).0 / 1000;
    format!("{:>4}:{:02}", seconds / 60, seconds % 60)
}

/// Bright or in colour on a terminal that can be; by `NO_COLOR` and `TERM`.
fn paint(color: &str, text: &str) -> String {
    let named = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let term = std::env::var("TERM").unwrap_or_default();
    if std::io::stdout().is_terminal() && !named("NO_COLOR") && !matches!(&*term, "" | "dumb") {
        format!("\u{1b}[{color}m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}

fn say(line: &str) {
    let written = writeln!(std::io::stdout(), "{line}");
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
