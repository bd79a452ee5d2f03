//! A configuration with a comment for each line, as a person would keep it, and only what our own reading of it takes.

use std::fmt::Write as _;

use anyhow::anyhow;
use toml_edit::Value;

use crate::config::{self, ConfigProblem};
use crate::model::foreign;

/// The column at which comments are wrapped.
const WIDTH: usize = 110;
/// How a comment begins that is for a person.
pub(super) const DECIDE: &str = "DECIDE";

/// Tables with what stands in them.
#[derive(Debug, Default)]
pub(super) struct ConfigDraft {
    pub(super) head: Vec<String>,
    pub(super) tables: Vec<Table>,
}

/// A table; without a name, what stands before all others.
#[derive(Debug)]
pub(super) struct Table {
    name: String,
    lines: Vec<DraftLine>,
}

#[derive(Debug)]
struct DraftLine {
    comment: String,
    entry: Option<DraftEntry>,
}

#[derive(Debug)]
struct DraftEntry {
    key: String,
    value: Value,
    /// Else it is a comment, too.
    active: bool,
    /// What takes its place where the value is none that the file may have.
    fallback: Option<Value>,
}

impl Table {
    pub(super) fn new(name: impl Into<String>) -> Table {
        Table {
            name: name.into(),
            lines: Vec::new(),
        }
    }

    /// A comment alone.
    pub(super) fn note(&mut self, comment: impl Into<String>) {
        self.lines.push(DraftLine {
            comment: comment.into(),
            entry: None,
        });
    }

    /// A key with its value, and why.
    pub(super) fn set(&mut self, key: &str, value: impl Into<Value>, comment: impl Into<String>) {
        self.push(key, value.into(), comment.into(), true, None);
    }

    /// A key that the file must have, with its value, what takes its place where the file may not have that, and why.
    pub(super) fn require(
        &mut self,
        key: &str,
        (value, fallback): (impl Into<Value>, impl Into<Value>),
        comment: impl Into<String>,
    ) {
        self.push(
            key,
            value.into(),
            comment.into(),
            true,
            Some(fallback.into()),
        );
    }

    /// A key that a person may switch on.
    pub(super) fn offer(&mut self, key: &str, value: impl Into<Value>, comment: impl Into<String>) {
        self.push(key, value.into(), comment.into(), false, None);
    }

    fn push(
        &mut self,
        key: &str,
        value: Value,
        comment: String,
        active: bool,
        fallback: Option<Value>,
    ) {
        self.lines.push(DraftLine {
            comment,
            entry: Some(DraftEntry {
                key: key.to_owned(),
                value,
                active,
                fallback,
            }),
        });
    }

    /// The way to a key, as errors of the configuration name it.
    fn path(&self, key: &str) -> String {
        format!("{}.{}", self.name, written(key))
    }

    fn write(&self, text: &mut String) {
        if self.lines.is_empty() {
            return;
        }
        text.push('\n');
        if !self.name.is_empty() {
            let _ = writeln!(text, "[{}]", self.name);
        }
        for line in &self.lines {
            comment(text, &line.comment);
            let Some(entry) = &line.entry else { continue };
            let setting = format!(
                "{} = {}",
                written(&entry.key),
                entry.value.to_string().trim()
            );
            match (entry.active, setting.contains('\n')) {
                (true, _) => text.push_str(&(setting + "\n")),
                // One line of it would be left without its sign.
                (false, true) => {}
                (false, false) => {
                    let _ = writeln!(text, "#{setting}");
                }
            }
        }
    }
}

impl ConfigDraft {
    fn text(&self) -> String {
        let mut text = String::new();
        for line in &self.head {
            comment(&mut text, line);
        }
        text.push_str("\nversion = 1\n");
        for table in &self.tables {
            table.write(&mut text);
        }
        // As it comes to whoever reads it.
        foreign::lines(&text).into_owned()
    }

    /// The text of the file. What its rules do not take is left out, and the rule's words stand there instead.
    pub(super) fn finish(mut self) -> anyhow::Result<String> {
        loop {
            let text = self.text();
            let Err(errors) = config::parse(&text, "the result") else {
                return Ok(text);
            };
            if !errors.problems.iter().any(|problem| self.left_out(problem)) {
                return Err(anyhow!(
                    "what came of the settings is no valid configuration; please report it: {}",
                    errors.line()
                ));
            }
        }
    }

    /// Takes an entry out that a problem is about.
    fn left_out(&mut self, problem: &ConfigProblem) -> bool {
        for table in &mut self.tables {
            let name = &table.name;
            let concerned = table.lines.iter().position(|line| {
                let entry = line.entry.as_ref().filter(|entry| entry.active);
                entry.is_some_and(|entry| {
                    let rest = problem.key.strip_prefix(&table.path(&entry.key));
                    !name.is_empty()
                        && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                })
            });
            let Some(line) = concerned.map(|at| &mut table.lines[at]) else {
                continue;
            };
            let Some(entry) = &mut line.entry else {
                continue;
            };
            let value = entry.value.to_string();
            let value = value.trim();
            let was = std::mem::take(&mut line.comment);
            let was = if was.is_empty() {
                was
            } else {
                format!(" It was: {was}")
            };
            if let Some(fallback) = entry.fallback.take() {
                let instead = fallback.to_string();
                line.comment = format!(
                    "{DECIDE}: not {value}: {}. In its place stands {}.{was}",
                    problem.message,
                    instead.trim()
                );
                entry.value = fallback;
            } else {
                line.comment = format!("{DECIDE}: left out: {}.{was}", problem.message);
                entry.active = false;
            }
            return true;
        }
        false
    }
}

/// A key as TOML has it, and as errors of the configuration write it.
fn written(key: &str) -> String {
    let bare = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if !key.is_empty() && key.bytes().all(bare) {
        key.to_owned()
    } else {
        format!("{key:?}")
    }
}

/// Lines with a sign before them, wrapped.
fn comment(text: &mut String, comment: &str) {
    let mut line = String::new();
    for word in comment.split_whitespace() {
        if !line.is_empty() && line.chars().count() + word.chars().count() + 3 > WIDTH {
            let _ = writeln!(text, "# {line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        let _ = writeln!(text, "# {line}");
    }
}
