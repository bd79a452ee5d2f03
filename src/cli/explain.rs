//! `explain`: why one pod is pending, why one node stays or goes. By the running daemon's view or a
//! saved one. Never acts.

use anyhow::{Context as _, anyhow};
use serde::de::DeserializeOwned;
use std::path::Path;

use super::args::{ExplainCommand, ExplainOptions};
use super::output::{OutputFormat, VersionedAnswer};
use super::{CliFailure, control, load, plan, story};
use crate::brain::explain::{self, Asked};
use crate::controller::control::ControlCommand;
use crate::model::cluster::ObjectKey;
use crate::model::time::Time;

/// Tells of a pod or a node: once, or again and again until somebody ends it.
pub(super) fn run(config: &Path, command: &ExplainCommand) -> Result<(), CliFailure> {
    match command {
        ExplainCommand::Pod { pod, options } => {
            let all = format!("explain pod {pod}");
            options.watch.show(&all, || of_pod(config, pod, options))
        }
        ExplainCommand::Node { node, options } => {
            let all = format!("explain node {node}");
            options.watch.show(&all, || of_node(config, node, options))
        }
    }
}

fn of_pod(config: &Path, pod: &ObjectKey, options: &ExplainOptions) -> Result<String, CliFailure> {
    let question = ControlCommand::ExplainPod { pod: pod.clone() };
    let (told, now) = tell(config, options, &question, |asked| {
        explain::pod(asked, pod).ok_or_else(|| anyhow!("the snapshot has no pod {pod}"))
    })?;
    let output = options.output.output;
    output.shown(&VersionedAnswer::of(&told), || {
        story::pod(&told, output == OutputFormat::Wide, now)
    })
}

fn of_node(config: &Path, node: &str, options: &ExplainOptions) -> Result<String, CliFailure> {
    let question = ControlCommand::ExplainNode {
        node: node.to_owned(),
    };
    let (told, now) = tell(config, options, &question, |asked| {
        explain::node(asked, node)
            .ok_or_else(|| anyhow!("the snapshot has no node or machine {node}"))
    })?;
    let output = options.output.output;
    output.shown(&VersionedAnswer::of(&told), || {
        story::node(&told, output == OutputFormat::Wide, now)
    })
}

/// Characters of a name in Kubernetes at most.
const LONGEST: usize = 253;

/// The name of a node, machine or pool. What cannot be one is told before anybody is asked.
pub(super) fn name(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("expected a name, and got none".to_owned());
    }
    if text.len() > LONGEST {
        return Err(format!("no name has more than {LONGEST} characters"));
    }
    if text.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Err("no name has blanks, line breaks or other control characters".to_owned());
    }
    Ok(text.to_owned())
}

/// A pod as `kubectl` names it.
pub(super) fn key(text: &str) -> Result<ObjectKey, String> {
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    for part in [namespace, name]
        .into_iter()
        .filter(|part| !part.is_empty())
    {
        self::name(part)?;
    }
    if namespace.is_empty() || name.is_empty() || name.contains('/') {
        return Err("expected NAMESPACE/NAME, or NAME for the namespace default".to_owned());
    }
    Ok(ObjectKey::new(namespace, name))
}

/// Asks the daemon, or a brain on a saved view.
fn tell<T: DeserializeOwned>(
    config: &Path,
    options: &ExplainOptions,
    question: &ControlCommand,
    on_saved: impl FnOnce(Asked<'_>) -> anyhow::Result<T>,
) -> Result<(T, Time), CliFailure> {
    let Some(path) = &options.snapshot else {
        let (answer, now) = control::ask_with_time(&options.output.control, question)?;
        let told = serde_json::from_value(answer)
            .context("the daemon's answer cannot be read; is it of another version?")?;
        return Ok((told, now));
    };
    let settings = load(config)?;
    let snapshot = plan::read_for(path, &settings.policy)?;
    let (decision, now) = plan::planned(&snapshot, &settings.policy);
    let told = on_saved(Asked {
        snapshot: &snapshot,
        policy: &settings.policy,
        memory: &decision.memory,
        decision: &decision,
        now,
    })?;
    Ok((told, now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_named_as_kubectl_names_them() {
        assert_eq!(key("web").expect("a key"), ObjectKey::new("default", "web"));
        assert_eq!(key("a/b").expect("a key"), ObjectKey::new("a", "b"));
        let long = "x".repeat(300);
        for text in [
            "",
            "/",
            "a/",
            "/b",
            "a/b/c",
            "a\nb",
            "a/\u{1b}[31m",
            " ",
            &long,
        ] {
            assert!(key(text).is_err(), "{text:?}");
            assert!(text.contains('/') || name(text).is_err(), "{text:?}");
        }
    }
}
