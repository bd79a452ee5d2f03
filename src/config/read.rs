//! From text to [`File`], gathering every error of syntax and type on the way.
//!
//! serde stops at the first error. So the entry that an error points at is taken out and the rest
//! read again, until nothing is wrong any more; what was taken out keeps its default.

use serde::Deserialize;
use toml::Spanned;
use toml::de::DeTable;

use super::error::Collector;
use super::file::File;
use super::place::{self, KeyPath};

/// Errors of syntax and type gathered from one file; nobody mends more at once.
const MAX_PROBLEMS: usize = 50;

/// A file as far as it could be read.
pub(super) struct Read<'t> {
    /// The text's tables with their spans.
    pub(super) root: Spanned<DeTable<'t>>,
    /// The file; entries that could not be read have their defaults.
    pub(super) file: File,
    /// These could not be read.
    pub(super) unread: Vec<KeyPath>,
}

/// Reads the text; `None` when its syntax is wrong.
pub(super) fn read<'t>(text: &'t str, problems: &mut Collector<'t>) -> Option<Read<'t>> {
    let (root, syntax) = DeTable::parse_recoverable(text);
    for error in syntax.iter().take(MAX_PROBLEMS) {
        let span = error.span().unwrap_or(0..0);
        problems.at_syntax(&span, syntax_reworded(error.message()));
    }
    if !syntax.is_empty() {
        return None;
    }
    let mut readable = root.clone();
    let mut unread = Vec::new();
    for _ in 0..MAX_PROBLEMS {
        let error = match File::deserialize(toml::Deserializer::from(readable.clone())) {
            Ok(file) => return Some(Read { root, file, unread }),
            Err(error) => error,
        };
        let span = error.span().unwrap_or(0..0);
        let path = place::path_of(&root, &span);
        problems.at_span(path.as_ref(), &span, reworded(error.message()));
        if !place::remove(readable.get_mut(), &span) {
            return None;
        }
        unread.extend(path);
    }
    None
}

/// The TOML reader's messages, where they say little to who wrote the file.
fn syntax_reworded(message: &str) -> String {
    let unquoted = [
        "string values must be quoted",
        "invalid date",
        "invalid time",
        "invalid boolean",
    ];
    if unquoted.iter().any(|start| message.starts_with(start)) {
        return "expected a value: a number, true or false, a list, or text in quotes such as \"4GiB\""
            .to_owned();
    }
    if message.starts_with("duplicate key") {
        return "is there twice; expected once".to_owned();
    }
    message.replace('\n', ", ")
}

/// serde's messages in the words of the file.
fn reworded(message: &str) -> String {
    if let Some(rest) = message.strip_prefix("unknown field ") {
        let (name, expected) = rest.split_once(", ").unwrap_or((rest, ""));
        let expected = expected
            .strip_prefix("expected one of ")
            .or(expected.strip_prefix("expected "));
        return match expected {
            Some(keys) => format!("unknown key {name}; the keys here are {keys}"),
            None => format!("unknown key {name}; there are no keys here"),
        };
    }
    if let Some(rest) = message.strip_prefix("unknown variant ") {
        return format!("unknown value {rest}");
    }
    if message == "invalid socket address syntax" {
        return "expected an address such as \"127.0.0.1:9808\"".to_owned();
    }
    let invalid = ["invalid type: ", "invalid value: ", "invalid length "]
        .iter()
        .find_map(|prefix| message.strip_prefix(prefix));
    match invalid.and_then(|rest| rest.rsplit_once(", expected ")) {
        Some((found, expected)) => format!("expected {}, found {found}", in_words(expected)),
        None => message.to_owned(),
    }
}

/// What serde calls by Rust's names.
fn in_words(expected: &str) -> &str {
    match expected {
        "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "i32" | "i64" => "a whole number",
        "a map" => "a table",
        "a sequence" => "a list",
        "a boolean" => "true or false",
        "path string" => "a path",
        "socket address" => "an address such as \"127.0.0.1:9808\"",
        expected if expected.starts_with("struct ") => "a table",
        expected => expected,
    }
}
