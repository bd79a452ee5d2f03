//! What a command answers, as somebody asked for it: a table folded to the terminal, the same unfolded, JSON or YAML.

use clap::ValueEnum;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::Serialize;

use super::{CliFailure, fold, times, write};
use crate::model::foreign;
use crate::screen::{self, Screen};

/// How to print an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    /// For people: folded to the width of the terminal.
    Table,
    /// For people: each row on one line, nothing shortened.
    Wide,
    /// For programs.
    Json,
    /// For programs: what `json` prints, as YAML.
    Yaml,
}

/// The version of what `plan`, `explain` and `status` print for programs. It grows when a field goes or means something else, not when
/// one comes.
const SCHEMA_VERSION: u32 = 1;

/// A document for programs.
#[derive(Serialize, JsonSchema)]
pub(super) struct VersionedAnswer<T> {
    /// The document's version; that of the program stands in `version` of `status`.
    schema_version: u32,
    #[serde(flatten)]
    value: T,
}

impl<T> VersionedAnswer<T> {
    /// The value as a document.
    pub(super) fn of(value: T) -> VersionedAnswer<T> {
        VersionedAnswer {
            schema_version: SCHEMA_VERSION,
            value,
        }
    }
}

impl OutputFormat {
    /// Writes the answer: `text` for people, `value` for programs.
    pub(super) fn show(
        self,
        value: &impl serde::Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<(), CliFailure> {
        write(&self.shown(value, text)?)
    }

    /// The answer as [`OutputFormat::show`] writes it.
    pub(super) fn shown(
        self,
        value: &impl serde::Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<String, CliFailure> {
        match self {
            OutputFormat::Table | OutputFormat::Wide => Ok(self.laid_out(&text())),
            OutputFormat::Json => json(value),
            OutputFormat::Yaml => yaml(value),
        }
    }

    /// Writes the answer like [`OutputFormat::show`], for people as sentences that begin with a grade and a colon.
    pub(super) fn show_graded(
        self,
        value: &impl serde::Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<(), CliFailure> {
        if !matches!(self, OutputFormat::Table | OutputFormat::Wide) {
            return self.show(value, text);
        }
        let screen = Screen::now();
        let mut text = times::in_zone(&foreign::lines(&text()), &TimeZone::system());
        if let Some(columns) = screen.columns.filter(|_| self == OutputFormat::Table) {
            text = fold::sentences(&text, columns);
        }
        if screen.colours {
            text = fold::paint_grades(&text);
        }
        write(&text)
    }

    /// Text for people as it goes to standard output: nothing of it steers a terminal but our own colours.
    pub(super) fn laid_out(self, text: &str) -> String {
        let screen = Screen::now();
        let mut text = times::in_zone(&foreign::lines(text), &TimeZone::system());
        if let Some(columns) = screen.columns {
            text = match self {
                OutputFormat::Wide => fold::fold_prose(&text, columns),
                _ => fold::fold(&text, columns),
            };
        }
        if screen.colours {
            fold::paint(&text)
        } else {
            text
        }
    }
}

/// Sentences as they go to standard output, a line each, folded to the terminal, with points in time by this host's zone;
/// nothing of them steers the terminal.
pub(super) fn sentences(text: &str) -> String {
    let text = times::in_zone(&foreign::lines(text), &TimeZone::system());
    match Screen::now().columns {
        Some(columns) => fold::sentences(&text, columns),
        None => text,
    }
}

/// What a record has, as it goes to standard output: folded to the terminal like tables, with points in time and values as they
/// stand in it; nothing of it steers the terminal.
pub(super) fn recorded(text: &str) -> String {
    let text = foreign::lines(text);
    match Screen::now().columns {
        Some(columns) => fold::fold(&text, columns),
        None => text.into_owned(),
    }
}

/// A line of a command that tells what it does, as it goes to standard output: behind `head`, which says of what it is and
/// since when, stands `text`, and goes on below itself. Nothing of it steers the terminal.
pub(super) fn headed_line(head: &str, text: &str) -> String {
    let (head, text) = (foreign::lines(head), foreign::lines(text));
    match Screen::now().columns {
        Some(columns) => fold::headed_line(&head, &text, columns),
        None => format!("{head}{text}\n"),
    }
}

/// What standard error is told: the lines that are sentences are folded to the terminal that it may be, the others stay.
pub(super) fn errors(text: &str, is_sentence: impl Fn(&str) -> bool) -> String {
    let Some(columns) = screen::columns_of_errors() else {
        return text.to_owned();
    };
    folded_where(text, columns, is_sentence)
}

fn folded_where(text: &str, columns: usize, is_sentence: impl Fn(&str) -> bool) -> String {
    let folded = text.lines().map(|line| {
        if is_sentence(line) {
            fold::sentences(line, columns)
        } else {
            format!("{line}\n")
        }
    });
    let mut folded: String = folded.collect();
    folded.truncate(folded.trim_end().len());
    folded
}

/// A value as JSON, with nothing that steers a terminal.
fn json(value: &impl serde::Serialize) -> Result<String, CliFailure> {
    let text = serde_json::to_string_pretty(value)? + "\n";
    Ok(foreign::json(&text).into_owned())
}

/// A value as YAML, with nothing that steers a terminal.
pub(super) fn yaml(value: &impl serde::Serialize) -> Result<String, CliFailure> {
    // By way of JSON's values: keys that are no strings, such as a pod's, are written as they are in JSON.
    let value = serde_json::to_value(value)?;
    let text = serde_saphyr::to_string(&value).map_err(anyhow::Error::new)?;
    if foreign::lines(&text) == text {
        return Ok(text);
    }
    // A writer of YAML leaves characters as they are that would steer a terminal. JSON escapes them, and is YAML.
    json(&value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_an_error_are_folded_and_the_line_of_the_file_is_not() {
        let line = format!("3 | name = \"{}\"", "x ".repeat(40));
        let text = format!(
            "a.toml:3:1: pool.p: {}\n{line}\n  | ^",
            "a word ".repeat(12)
        );
        let folded = folded_where(text.trim(), 60, |line| line.starts_with("a.toml"));
        let (words, rest) = folded.split_once("\n3 |").expect("the excerpt");
        assert!(words.lines().count() > 1, "{folded}");
        assert!(
            words.lines().all(|line| line.chars().count() <= 60),
            "{folded}"
        );
        assert!(
            words.lines().skip(1).all(|line| line.starts_with("    ")),
            "{folded}"
        );
        assert_eq!(format!("3 |{rest}"), format!("{line}\n  | ^"));
    }

    #[test]
    fn yaml_says_what_json_says_whatever_others_wrote() {
        let words = [
            "yes",
            "no",
            "null",
            "~",
            "1e3",
            "0x10",
            "010",
            "",
            " ",
            "a: b",
            "- a",
            "# a",
            "a #b",
            "\"",
            "'",
            "|",
            ">",
            "%",
            "@a",
            "one\ntwo\n",
            "\u{1b}[31m",
            "\u{85}",
            "\u{2028}",
            "\0",
            "\u{202e}abc",
            "\t",
            "2026-11-25",
            "!!int 3",
            "*a",
            "&a",
            "<<",
            "...",
            "---",
            "\u{feff}",
        ];
        let value = serde_json::json!({ "words": words.to_vec(), "yes": { "a/b": [1, -2, 1.5, true, null, []] }, "e": {} });
        let text = yaml(&value).expect("it is written");
        for word in words {
            let text = yaml(&word).expect("it is written");
            let read: String = serde_saphyr::from_str(&text).expect(&text);
            assert_eq!(read, word, "{text:?}");
        }
        let read: serde_json::Value = serde_saphyr::from_str(&text).expect(&text);
        assert_eq!(read, value, "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
