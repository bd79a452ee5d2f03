//! The commands that ask the running daemon, over its control socket.

use anyhow::Context as _;
use serde_json::Value;

use super::args::{ControlOptions, PauseOptions, SnapshotOptions};
use super::{Failure, print, runtime, write};
use crate::agent::control::{self, Command};
use crate::model::foreign;

/// Begins a pause.
pub(super) fn pause(options: &PauseOptions) -> Result<(), Failure> {
    let reason = options.reason.clone();
    ask(&options.control, &Command::Pause { reason })?;
    print("paused; `pve-autoscaler resume` ends it\n")
}

/// Ends a pause.
pub(super) fn resume(options: &ControlOptions) -> Result<(), Failure> {
    ask(options, &Command::Resume)?;
    print("resumed\n")
}

/// Saves what the daemon sees.
pub(super) fn snapshot(options: &SnapshotOptions) -> Result<(), Failure> {
    let mut text = serde_json::to_string(&ask(&options.control, &Command::Snapshot)?)?;
    text.push('\n');
    match &options.file {
        None => write(&foreign::json(&text)),
        Some(path) => Ok(std::fs::write(path, text)
            .with_context(|| format!("cannot write the snapshot to {}", path.display()))?),
    }
}

/// Asks the daemon.
pub(super) fn ask(options: &ControlOptions, command: &Command) -> Result<Value, Failure> {
    Ok(runtime()?.block_on(control::ask(&options.socket, command))?)
}
