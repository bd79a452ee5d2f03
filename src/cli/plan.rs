//! `plan`: what would be done now and why, by the running daemon's view or a saved one. Never acts.

use std::path::Path;

use anyhow::{Context as _, bail};

use super::args::PlanOptions;
use super::output::{OutputFormat, VersionedAnswer};
use super::{CliFailure, control, load, render};
use crate::bounded_file;
use crate::brain;
use crate::controller::control::ControlCommand;
use crate::model::decision::Decision;
use crate::model::memory::Memory;
use crate::model::policy::Policy;
use crate::model::snapshot::{Snapshot, VERSION};
use crate::model::time::Time;
use crate::model::words;

/// Shows the plan: once, or again and again until somebody ends it.
pub(super) fn run(config: &Path, options: &PlanOptions) -> Result<(), CliFailure> {
    options.watch.show("plan", || shown(config, options))
}

fn shown(config: &Path, options: &PlanOptions) -> Result<String, CliFailure> {
    let (decision, now) = match &options.snapshot {
        Some(path) => {
            let settings = load(config)?;
            planned(&read_for(path, &settings.policy)?, &settings.policy)
        }
        None => {
            let (answer, now) =
                control::ask_with_time(&options.output.control, &ControlCommand::Plan)?;
            let decision = serde_json::from_value(answer)
                .context("the daemon's answer cannot be read; is it of another version?")?;
            (decision, now)
        }
    };
    let output = options.output.output;
    let wide = output == OutputFormat::Wide;
    output.shown(&VersionedAnswer::of(&decision), || {
        render::decision(&decision, wide, now)
    })
}

/// Reads a saved view for a configuration.
///
/// # Errors
/// It is none, or is of other regions than the configuration's.
pub(super) fn read_for(path: &Path, policy: &Policy) -> anyhow::Result<Snapshot> {
    let snapshot = read(path)?;
    let seen = &snapshot.regions;
    if let Some(missing) = policy.regions.keys().find(|name| !seen.contains_key(*name))
        && !seen.is_empty()
    {
        let seen: Vec<&str> = seen.keys().map(|name| &**name).collect();
        bail!(
            "the configuration has the region {missing}, and {} is of the regions {}: name the file of that installation by --config",
            path.display(),
            words::names(seen)
        );
    }
    Ok(snapshot)
}

/// Reads a saved view.
fn read(path: &Path) -> anyhow::Result<Snapshot> {
    let name = path.display();
    let text = bounded_file::read(path, bounded_file::SNAPSHOT)
        .with_context(|| format!("cannot read the snapshot {name}"))?;
    let other = serde_json::from_slice::<Versioned>(&text).map(|read| read.version);
    if let Ok(version) = other
        && version != u64::from(VERSION)
    {
        bail!("{name} is a snapshot of version {version}, this program reads version {VERSION}");
    }
    let read = serde_json::from_slice(&text);
    read.with_context(|| match serde_json::from_slice::<serde::de::IgnoredAny>(&text) {
        Ok(_) => format!("{name} is not a snapshot of this version"),
        Err(_) => format!(
            "{name} is not a snapshot, and no whole JSON; `pve-autoscaler snapshot --file` writes one"
        ),
    })
}

/// What every version's snapshot has.
#[derive(serde::Deserialize)]
struct Versioned {
    version: u64,
}

/// What is decided on a saved view by a brain that remembers nothing, and when. A new brain gathers
/// pending pods into a batch first; then the decision at the batch's end is the one of interest.
pub(super) fn planned(snapshot: &Snapshot, policy: &Policy) -> (Decision, Time) {
    let now = snapshot.taken;
    let first = brain::decide(snapshot, policy, &Memory::default(), now);
    if first.memory.batch.is_none() {
        return (first, now);
    }
    let later = now + policy.scale_up.batch_max;
    (brain::decide(snapshot, policy, &first.memory, later), later)
}
