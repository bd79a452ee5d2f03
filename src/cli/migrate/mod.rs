//! `migrate`: the settings of another autoscaler as a configuration of ours, with what each became.

mod draft;
mod join;
mod kproximate;
mod labels;
mod settings;
mod yaml;

use std::borrow::Cow;
use std::io::Read;
use std::path::Path;

use anyhow::anyhow;

use super::args::{KproximateOptions, MigrateCommand};
use super::{CliFailure, print};
use crate::config;
use crate::model::foreign;

use settings::{FoundSettings, SettingsReader};
use yaml::YamlNode;

/// Largest file that is read: values of the chart have some 5 kB, all ConfigMaps of a namespace some hundred.
const MAX_BYTES: u64 = 4 << 20;
/// The name of standard input.
const STDIN: &str = "-";

/// Prints the configuration.
pub(super) fn run(command: &MigrateCommand) -> Result<(), CliFailure> {
    let MigrateCommand::Kproximate(options) = command;
    print(&kproximate(options)?)
}

fn kproximate(options: &KproximateOptions) -> anyhow::Result<String> {
    let mut found = FoundSettings::default();
    let mut names = Vec::new();
    for path in &options.files {
        let name = if path.as_os_str() == STDIN {
            "standard input".to_owned()
        } else {
            foreign::line(&path.display().to_string(), 200)
        };
        let text = read(path).map_err(|why| anyhow!("{name}: {why}"))?;
        look(&name, &text, &mut found);
        names.push(name);
    }
    found.judge_empty();
    if !found.wrong.is_empty() {
        let lines = found.wrong.join("\n");
        return Err(anyhow!(
            "kproximate's settings cannot be taken over as they are, and nothing was written:\n{lines}"
        ));
    }
    if found.is_empty() && found.nothing {
        return Err(anyhow!(
            "{}: no value is in it: what was installed has the chart's own values, and `helm get values --all` prints those too",
            names.join(", ")
        ));
    }
    if found.is_empty() {
        let elsewhere = if found.elsewhere {
            " Its variables come from the ConfigMap and the Secret that envFrom or valueFrom name: give those."
        } else {
            ""
        };
        return Err(anyhow!(
            "{}: no setting of kproximate is in it; expected its Helm values (helm get values kproximate), its ConfigMap, Secret or \
             Deployment (kubectl get configmap,secret,deployment -o yaml), or lines such as kpNodeCores=2.{elsewhere}",
            names.join(", ")
        ));
    }
    kproximate::convert(&found, &names.join(", ")).finish()
}

/// The first line of what `helm get values` prints, with and without `--all`.
const HELM: [&str; 2] = ["USER-SUPPLIED VALUES:", "COMPUTED VALUES:"];

/// The text with helm's heading, if it has that, as a comment: lines keep their numbers.
fn without_heading(text: &str) -> Cow<'_, str> {
    let first = text.lines().next().unwrap_or_default();
    if HELM.contains(&first.trim_end()) {
        Cow::Owned(format!("# {text}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Reads a file's text into what was found.
fn look(name: &str, text: &str, found: &mut FoundSettings) {
    let text = &*without_heading(text);
    let mut reader = SettingsReader { file: name, found };
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    if lines.clone().next().is_some_and(is_variable) {
        reader.lines(1, text);
        return;
    }
    match yaml::documents(text) {
        Ok(documents) => {
            if !documents.is_empty() && documents.iter().all(YamlNode::is_nothing) {
                reader.found.nothing = true;
            }
            for node in &documents {
                reader.document(node);
            }
        }
        Err(wrong) => reader.wrong(wrong.line, &wrong.text),
    }
}

/// `kpNodeCores=2`, as files of variables have it.
fn is_variable(line: &str) -> bool {
    let line = line.strip_prefix("export ").unwrap_or(line);
    line.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    })
}

/// The text of a file, or of standard input.
fn read(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let limit = MAX_BYTES + 1;
    if path.as_os_str() == STDIN {
        std::io::stdin().lock().take(limit).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes))
    }
    .map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!(
            "is larger than {MAX_BYTES} bytes; is it the right file?"
        ));
    }
    let text = config::as_text(bytes)?;
    Ok(text
        .strip_prefix('\u{feff}')
        .map(str::to_owned)
        .unwrap_or(text))
}
