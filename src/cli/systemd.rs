//! What we tell systemd. Without systemd (no `NOTIFY_SOCKET`) nothing is told.
//!
//! `Type=notify` and not `notify-reload`: Debian 12's systemd 252 does not know the latter.

use systemd::daemon;

use crate::model::foreign;

/// Longest value, in characters: systemd drops a message of more than 4096 bytes whole, `READY=1` with it, and shows
/// one line of a terminal.
const LONGEST: usize = 500;

/// The service is up: all listeners are bound.
pub(super) fn ready(status: &str) {
    tell(&[("READY", "1"), ("STATUS", status)]);
}

/// A reload begins; [`ready`] ends it.
pub(super) fn reloading() {
    tell(&[("RELOADING", "1")]);
}

/// The service is going.
pub(super) fn stopping() {
    tell(&[("STOPPING", "1")]);
}

/// The one line that `systemctl status` shows.
pub(super) fn status(line: &str) {
    tell(&[("STATUS", line)]);
}

/// A turn of the loop has ended.
pub(super) fn watchdog() {
    tell(&[("WATCHDOG", "1")]);
}

fn tell(state: &[(&'static str, &str)]) {
    // A line break would begin another word of the protocol, `WATCHDOG=1` for instance, and the library panics on a NUL.
    let clean = state
        .iter()
        .map(|(name, value)| (*name, foreign::line(value, LONGEST)));
    let clean: Vec<(&str, String)> = clean.collect();
    if let Err(error) = daemon::notify(clean.iter()) {
        tracing::debug!(%error, "systemd could not be told");
    }
}
