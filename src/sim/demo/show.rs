//! What the demo prints.

use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::agent::turn::Turn;
use crate::model::foreign::{self, ForeignText};
use crate::model::time::Time;
use crate::sim::world::{EPOCH, World};
use crate::simulator_args::DemoOptions;

use super::timeline::{self, Tone};

/// Printed before anything happens.
pub(super) fn introduction(options: &DemoOptions, page: Option<SocketAddr>) {
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
    if let Some(page) = page {
        say(&format!(
            "The page: http://{page}/  There you may add a workload, kill a host and break the template.\n"
        ));
    }
}

/// A new part of the story begins.
pub(super) fn chapter(world: &World, text: &str) {
    say(&format!(
        "{}  {}",
        clock(world.clock.now()),
        paint("1", text)
    ));
}

/// Prints what changes, turn by turn; never ends.
pub(super) async fn timeline(world: &World) {
    let mut turns = world.turns.subscribe();
    let mut before: Option<Arc<Turn>> = None;
    while turns.changed().await.is_ok() {
        let Some(turn) = turns.borrow_and_update().clone() else {
            continue;
        };
        for line in timeline::lines(before.as_deref(), &turn) {
            let (sign, color) = match line.tone {
                Tone::Up => ("+", "32"),
                Tone::Down => ("-", "33"),
                Tone::Decision => ("»", "36"),
                Tone::Trouble => ("!", "31"),
                Tone::Fact => (" ", "0"),
            };
            say(&format!(
                "{}  {}",
                clock(turn.at),
                paint(
                    color,
                    &format!("{sign} {}", foreign::line(&line.text, ForeignText::MAX))
                )
            ));
        }
        before = Some(turn);
    }
}

/// Simulated time since the beginning, `MM:SS`.
fn clock(now: Time) -> String {
    let seconds = now.since(EPOCH).0 / 1000;
    format!("{:>4}:{:02}", seconds / 60, seconds % 60)
}

fn paint(color: &str, text: &str) -> String {
    if std::io::stdout().is_terminal() {
        format!("\u{1b}[{color}m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}

fn say(line: &str) {
    // A reader that went away (`| head`) ends the demo at its next line; there is nobody to tell.
    let _ = writeln!(std::io::stdout(), "{line}");
}
