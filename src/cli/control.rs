//! The commands that ask the running daemon, over its control socket.

use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use serde_json::Value;

use super::args::{ControlOptions, SnapshotOptions};
use super::complete;
use super::{CliFailure, explain, output, place, print, runtime, write};
use crate::controller::control::{self, ControlCommand, EvacuationAnswer, EvacuationOrder};
use crate::model::foreign;
use crate::model::time::Time;
use crate::model::words;
use crate::notify::Tried;

/// What `pause` is told.
#[derive(Debug, Args)]
pub(super) struct PauseOptions {
    #[command(flatten)]
    pub(super) control: ControlOptions,
    /// Why, for those who look later.
    #[arg(value_name = "REASON")]
    pub(super) reason: Vec<String>,
}

/// What `retry` is told.
#[derive(Debug, Args)]
pub(super) struct RetryOptions {
    /// The pool, as the configuration names it.
    #[arg(value_name = "POOL", value_parser = explain::name, add = complete::pools())]
    pub(super) pool: String,
    #[command(flatten)]
    pub(super) control: ControlOptions,
}

/// What `evacuate` is told.
#[derive(Debug, Args)]
pub(super) struct EvacuateOptions {
    /// The host, as PVE names it.
    #[arg(value_name = "HOST", value_parser = explain::name, add = complete::hosts())]
    pub(super) host: String,
    /// The host's region, where several have a host of that name.
    #[arg(long, value_name = "NAME", value_parser = explain::name)]
    pub(super) region: Option<String>,
    /// It may have machines again.
    #[arg(long)]
    pub(super) end: bool,
    #[command(flatten)]
    pub(super) control: ControlOptions,
}

/// What `notify-test` is told.
#[derive(Debug, Args)]
pub(super) struct NotifyTestOptions {
    /// One of them, as the configuration names it. Default: all.
    #[arg(value_name = "NAME", add = complete::notifications())]
    name: Option<String>,
    #[command(flatten)]
    control: ControlOptions,
}

/// Begins a pause.
pub(super) fn pause(options: &PauseOptions) -> Result<(), CliFailure> {
    let reason = control::signed_reason(&options.reason.join(" "), &control::person());
    let before = ask(&options.control, &ControlCommand::Pause { reason })?;
    write(&output::sentences(&paused(&before)))
}

/// That it is paused, and what for it was before.
fn paused(before: &Value) -> String {
    let already = match before {
        Value::String(reason) => format!("; it was so before: {reason}"),
        _ => String::new(),
    };
    format!("paused{already}; `pve-autoscaler resume` ends it\n")
}

/// Ends a pause.
pub(super) fn resume(options: &ControlOptions) -> Result<(), CliFailure> {
    let paused = ask(options, &ControlCommand::Resume)?;
    print(if paused == Value::Bool(false) {
        "nothing was paused\n"
    } else {
        "resumed\n"
    })
}

/// Ends the waits of a pool.
pub(super) fn retry(options: &RetryOptions) -> Result<(), CliFailure> {
    let pool = options.pool.clone();
    let ended = ask(&options.control, &ControlCommand::Retry { pool })?;
    let ended: Vec<String> = serde_json::from_value(ended).context("reading the answer")?;
    if ended.is_empty() {
        return write(&output::sentences(&format!(
            "nothing was waited for: no failure holds the pool {} back; what its nodes offer is learned anew; `pve-autoscaler plan` says what else holds it back\n",
            options.pool
        )));
    }
    let ended = ended.iter().fold(String::new(), |text, wait| {
        text + "no longer waits: " + wait + "\n"
    });
    write(&output::sentences(&ended))
}

/// Begins or ends the evacuation of a host.
pub(super) fn evacuate(options: &EvacuateOptions) -> Result<(), CliFailure> {
    // `status` writes hosts of several regions as REGION/HOST.
    let (of_name, host) = match options.host.split_once('/') {
        Some((region, host)) => (Some(region.to_owned()), host.to_owned()),
        None => (None, options.host.clone()),
    };
    let order = EvacuationOrder {
        host,
        region: options.region.clone().or(of_name),
        end: options.end,
    };
    let answer = ask(&options.control, &ControlCommand::Evacuate(order))?;
    let answer = serde_json::from_value(answer).context("reading the answer")?;
    write(&output::sentences(&evacuated(options, &answer)))
}

fn evacuated(options: &EvacuateOptions, answer: &EvacuationAnswer) -> String {
    let changed = answer.changed;
    let host = &options.host;
    let region = options.region.as_ref();
    let region = region.map_or_else(String::new, |region| format!("--region {region} "));
    match (options.end, changed) {
        (true, true) => format!("{host} may have machines again\n"),
        (true, false) => format!("{host} was not evacuated\n"),
        (false, _) => {
            let before = if changed { "" } else { " since before" };
            let there = tell_machines(answer);
            format!(
                "{host} is evacuated{before}: no machine is made there until `pve-autoscaler evacuate --end {region}{host}`\n{there}\n"
            )
        }
    }
}

/// The machines of an evacuated host, and when they go, as far as that is known now.
fn tell_machines(answer: &EvacuationAnswer) -> String {
    let EvacuationAnswer {
        machines,
        coming,
        offline,
        held,
        ..
    } = answer;
    if machines.is_empty() {
        return "It has none of ours.".to_owned();
    }
    let mut said = vec![format!(
        "It has {}: {}.",
        words::count(machines.len(), "machine"),
        words::names(machines)
    )];
    if let Some(held) = held {
        said.push(format!(
            "Nothing is removed for now: {}.",
            held.trim_end_matches('.')
        ));
    }
    if *offline {
        said.push("The host is offline: nothing of it is removed before it is back.".to_owned());
    }
    let nodes = machines.iter().filter(|name| !coming.contains(name));
    let nodes: Vec<&Arc<str>> = nodes.collect();
    // Of some of them it is told by name where the others do not go by the same.
    let named = !nodes.is_empty() && !coming.is_empty();
    let subject = |of: &[&Arc<str>]| {
        let (first, pronoun) = match (held.is_some() || *offline, of) {
            (false, [_]) => ("", "It"),
            (false, _) => ("", "They"),
            (true, [_]) => ("After that ", "it"),
            (true, _) => ("After that ", "they"),
        };
        if named {
            format!("{first}{}", words::names(of))
        } else {
            format!("{first}{pronoun}")
        }
    };
    match &nodes[..] {
        [] => {}
        [_] => said.push(format!(
            "{} goes once its pods have a place elsewhere.",
            subject(&nodes)
        )),
        _ => said.push(format!(
            "{} go once their pods have a place elsewhere, those with pods one after the other.",
            subject(&nodes)
        )),
    }
    let coming: Vec<&Arc<str>> = coming.iter().collect();
    match &coming[..] {
        [] => {}
        [_] => said.push(format!(
            "{} goes once it works: it is on its way up.",
            subject(&coming)
        )),
        _ => said.push(format!(
            "{} go once they work: they are on their way up.",
            subject(&coming)
        )),
    }
    said.push("`pve-autoscaler status` and `explain node` tell how far that is.".to_owned());
    said.join(" ")
}

/// Has the daemon send a test to those who are notified, and says what came back.
pub(super) fn notify_test(options: &NotifyTestOptions) -> Result<(), CliFailure> {
    let name = options.name.clone();
    let tried = ask(&options.control, &ControlCommand::NotifyTest { name })?;
    let tried: Vec<Tried> = serde_json::from_value(tried).context("reading the answer")?;
    let said = tried.iter().fold(String::new(), |text, tried| {
        let Tried { name, to, said, .. } = tried;
        let came = if tried.ok { "sent" } else { "NOT SENT" };
        format!("{text}{name}: {came} ({to}): {said}\n")
    });
    write(&output::sentences(&said))?;
    if tried.iter().all(|tried| tried.ok) {
        Ok(())
    } else {
        Err(CliFailure::Said)
    }
}

/// Saves what the daemon sees.
pub(super) fn snapshot(options: &SnapshotOptions) -> Result<(), CliFailure> {
    if let Some(path) = &options.file {
        let known = ("snapshot", place::is_snapshot as fn(&[u8]) -> bool);
        options.force.check(path, known)?;
    }
    let mut text = serde_json::to_string(&ask(&options.control, &ControlCommand::Snapshot)?)?;
    text.push('\n');
    match &options.file {
        None => write(&foreign::json(&text)),
        Some(path) => Ok(write_private(path, text.as_bytes())
            .with_context(|| format!("cannot write the snapshot to {}", path.display()))?),
    }
}

/// Writes what names pods, nodes and hosts, for its owner alone as the support bundle is; one that is there is written anew. What
/// is no file, such as a pipe, stays what it is.
fn write_private(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(path)?;
    if file.metadata()?.is_file() {
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    }
    file.write_all(text)
}

/// Asks the daemon what is to be told with times: they are by its clock.
pub(super) fn ask_with_time(
    options: &ControlOptions,
    command: &ControlCommand,
) -> Result<(Value, Time), CliFailure> {
    let told = runtime()?.block_on(control::ask_with_time(&options.socket, command))?;
    Ok((told.value, told.now))
}

/// Asks the daemon.
pub(super) fn ask(options: &ControlOptions, command: &ControlCommand) -> Result<Value, CliFailure> {
    Ok(runtime()?.block_on(control::ask(&options.socket, command))?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn evacuated_with(machines: &[&str], coming: &[&str]) -> EvacuationAnswer {
        let named = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect();
        EvacuationAnswer {
            changed: true,
            machines: named(machines),
            coming: named(coming),
            offline: false,
            held: None,
        }
    }

    /// It promises nothing that a pause, an offline host or a machine's age keeps from coming true.
    #[test]
    fn the_answer_of_an_evacuation_says_what_holds_now() {
        const END: &str = " `pve-autoscaler status` and `explain node` tell how far that is.";
        let told = |answer: &EvacuationAnswer| {
            let told = tell_machines(answer);
            told.strip_suffix(END).unwrap_or(&told).to_owned()
        };
        assert_eq!(told(&evacuated_with(&[], &[])), "It has none of ours.");
        let one = evacuated_with(&["a"], &[]);
        assert_eq!(
            told(&one),
            "It has 1 machine: a. It goes once its pods have a place elsewhere."
        );
        assert_eq!(
            told(&evacuated_with(&["a", "b"], &[])),
            "It has 2 machines: a, b. They go once their pods have a place elsewhere, those with pods one after the other."
        );
        assert_eq!(
            told(&evacuated_with(&["a"], &["a"])),
            "It has 1 machine: a. It goes once it works: it is on its way up."
        );
        assert_eq!(
            told(&evacuated_with(&["a", "b"], &["b"])),
            "It has 2 machines: a, b. a goes once its pods have a place elsewhere. b goes once it works: it is on its way up."
        );
        let paused = EvacuationAnswer {
            held: Some("paused: lunch".to_owned()),
            ..one.clone()
        };
        assert_eq!(
            told(&paused),
            "It has 1 machine: a. Nothing is removed for now: paused: lunch. After that it goes once its pods have a place elsewhere."
        );
        let offline = EvacuationAnswer {
            offline: true,
            ..one
        };
        assert_eq!(
            told(&offline),
            "It has 1 machine: a. The host is offline: nothing of it is removed before it is back. After that it goes once its pods have a place elsewhere."
        );
        // Daemons of older versions tell no more than which machines there are.
        let older = serde_json::json!({"changed": true, "machines": ["a"]});
        let older: EvacuationAnswer = serde_json::from_value(older).expect("it is read");
        assert_eq!(older, evacuated_with(&["a"], &[]));
    }

    #[test]
    fn a_snapshot_in_a_file_is_its_owners_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("view.json");
        let mode = || {
            std::fs::metadata(&path)
                .expect("it is there")
                .permissions()
                .mode()
                & 0o777
        };
        write_private(&path, b"a long one").expect("written");
        assert_eq!(mode(), 0o600);
        // One of before that others may read.
        let open = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(&path, open).expect("set");
        write_private(&path, b"b").expect("written");
        assert_eq!(
            (mode(), std::fs::read(&path).expect("read")),
            (0o600, b"b".to_vec())
        );
        // A device stays everybody's.
        let device = Path::new("/dev/null");
        let of_device = || std::fs::metadata(device).expect("it is there").mode();
        let before = of_device();
        write_private(device, b"c").expect("it takes all");
        assert_eq!(of_device(), before);
    }
}
