//! From text to [`ConfigFile`](super::file::ConfigFile) or another form, gathering every error of syntax and type on the way.
//!
//! serde stops at the first error. So the entry that an error points at is taken out and the rest
//! read again, until nothing is wrong any more; what was taken out keeps its default.

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::DeTable;

use super::error::Collector;
use super::near::nearest;
use super::place::{self, KeyPath};
use super::rules::options;

/// Errors of syntax and type gathered from one file; nobody mends more at once.
const MAX_PROBLEMS: usize = 50;

/// A file as far as it could be read.
pub(super) struct ReadFile<'t, T> {
    /// The text's tables with their spans.
    pub(super) root: Spanned<DeTable<'t>>,
    /// The file; entries that could not be read have their defaults.
    pub(super) file: T,
    /// Keys whose values could not be read.
    pub(super) unread: Vec<KeyPath>,
}

/// What is wrong with a text whose lines end with CR, which TOML takes for no line's end: all of it would be one line.
pub(super) fn judge_line_ends(text: &str) -> Option<String> {
    let is_one_line = text.contains('\r') && !text.contains('\n');
    is_one_line.then(|| {
        "the file's lines end with CR; expected LF or CRLF: tr '\\r' '\\n' <FILE >NEW writes them so"
            .to_owned()
    })
}

/// How the TOML reader's message begins for a CR within a line.
const LONE_CR: &str = "carriage return must be followed by newline";

/// Reads the text; `None` when its syntax is wrong.
pub(super) fn read<'t, T: DeserializeOwned>(
    text: &'t str,
    problems: &mut Collector<'t>,
) -> Option<ReadFile<'t, T>> {
    let (root, syntax) = DeTable::parse_recoverable(text);
    if let Some((error, format)) = syntax.first().zip(other_format(text)) {
        let said = format!(
            "the file is TOML (`key = value` below `[table]`), and this looks like {format}"
        );
        problems.at_syntax(&error.span().unwrap_or(0..0), said);
        return None;
    }
    let mut has_told = false;
    let news = syntax.iter().filter(|error| {
        let is_cr = error.message().starts_with(LONE_CR);
        !(is_cr && std::mem::replace(&mut has_told, true))
    });
    for error in news.take(MAX_PROBLEMS) {
        let span = error.span().unwrap_or(0..0);
        problems.at_syntax(&span, syntax_reworded(error.message()));
    }
    if !syntax.is_empty() {
        return None;
    }
    let mut readable = root.clone();
    let mut unread = Vec::new();
    for _ in 0..MAX_PROBLEMS {
        let error = match T::deserialize(toml::Deserializer::from(readable.clone())) {
            Ok(file) => return Some(ReadFile { root, file, unread }),
            Err(error) => error,
        };
        let mut span = error.span().unwrap_or(0..0);
        let mut path = place::path_of(&root, &span);
        let mut message = error.message().to_owned();
        let listed = path
            .as_ref()
            .and_then(|path| listed::<T>(&root, &readable, path));
        if let Some((table, at)) = listed {
            message = format!("expected a table: write [{table}], in single brackets");
            (path, span) = (Some(table), at);
        }
        let message = &*message;
        // A required key that was taken out before is no news.
        let told = missing_field(message)
            .zip(path.as_ref())
            .is_some_and(|(key, table)| unread.contains(&table.at(key)));
        if !told {
            let known = path
                .as_ref()
                .and_then(|path| variants::<T>(&readable, path, message));
            let known = path.as_ref().and_then(options::wrong_name).or(known);
            let said =
                known.unwrap_or_else(|| reworded(message, path.as_ref(), header(text, &span)));
            problems.at_span(path.as_ref(), &span, said);
        }
        unread.push(place::remove(readable.get_mut(), &span)?);
        unread.extend(path);
    }
    None
}

/// The format in which a text that is no TOML seems to be written, by its first line that says something.
fn other_format(text: &str) -> Option<&'static str> {
    let mut lines = text.lines().map(str::trim);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'))?;
    let key = first.split(':').next().unwrap_or_default();
    let word = |text: &str| {
        text.chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
    };
    if first.starts_with('{') {
        Some("JSON")
    } else if first == "---" || (first.len() > key.len() && !key.is_empty() && word(key)) {
        Some("YAML")
    } else {
        None
    }
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
    if message.starts_with(LONE_CR) {
        return "a line ends here with CR; expected LF or CRLF".to_owned();
    }
    if message.starts_with("duplicate key") {
        return "is there twice; expected once".to_owned();
    }
    message.replace('\n', ", ")
}

/// The key that a message misses.
fn missing_field(message: &str) -> Option<&str> {
    let rest = message.strip_prefix("missing field `")?;
    rest.strip_suffix('`')
}

/// What a value of another type than text may be, where only some words may be there: serde lists them for a wrong word alone.
fn variants<T: DeserializeOwned>(
    root: &Spanned<DeTable<'_>>,
    path: &KeyPath,
    message: &str,
) -> Option<String> {
    const NONE_OF_THEM: &str = "\u{0}";
    let of_enum = message.contains("string or table") || message.contains("string or map");
    if !of_enum && !message.contains("expected enum") {
        return None;
    }
    let mut other = root.clone();
    if !place::put_text(other.get_mut(), path, NONE_OF_THEM) {
        return None;
    }
    let error = T::deserialize(toml::Deserializer::from(other)).err()?;
    let rest = error.message().strip_prefix("unknown variant ")?;
    let (_, expected) = rest.split_once(", expected ")?;
    let words = expected.trim_start_matches("one of ").replace('`', "\"");
    Some(format!("expected one of {words}, in quotes"))
}

/// The key that was probably meant, of keys in back-ticks.
fn near(name: &str, keys: &str) -> String {
    let keys: Vec<&str> = keys
        .split(['`', ',', ' '])
        .filter(|key| !key.is_empty())
        .collect();
    let found = nearest(name.trim_matches('`'), &keys);
    found.map_or_else(String::new, |key| format!("did you mean `{key}`? "))
}

/// serde's messages in the words of the file.
fn reworded(message: &str, path: Option<&KeyPath>, header: bool) -> String {
    if let Some(key) = missing_field(message) {
        return format!("the key {key} is missing here");
    }
    if let Some(rest) = message.strip_prefix("unknown field ") {
        let (name, expected) = rest.split_once(", ").unwrap_or((rest, ""));
        let expected = expected
            .strip_prefix("expected one of ")
            .or(expected.strip_prefix("expected "));
        return match expected {
            Some(keys) => {
                let near = near(name, keys);
                format!("unknown key {name}; {near}the keys here are {keys}")
            }
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
        Some((found, expected)) => {
            let expected = in_words(expected, path);
            let found = found_in_words(found);
            format!(
                "expected {expected}, found {found}{}",
                brackets(&found, &expected, path.filter(|_| header))
            )
        }
        None => message.to_owned(),
    }
}

/// The innermost list of tables around a path that reads well as a table: it has two brackets for one. With the span of its header.
fn listed<T: DeserializeOwned>(
    root: &Spanned<DeTable<'_>>,
    readable: &Spanned<DeTable<'_>>,
    path: &KeyPath,
) -> Option<(KeyPath, std::ops::Range<usize>)> {
    let position = path
        .0
        .iter()
        .rposition(|key| key.parse::<usize>().is_ok())?;
    let table = path_up_to(path, position);
    let header = place::span_of(root, &path_up_to(path, position + 1))?;
    let mut single = readable.clone();
    if !place::put_first(single.get_mut(), &table) {
        return None;
    }
    match T::deserialize(toml::Deserializer::from(single)) {
        Err(error) if error.message().contains("expected a sequence") => None,
        _ => Some((table, header)),
    }
}

fn path_up_to(path: &KeyPath, length: usize) -> KeyPath {
    KeyPath(path.0[..length].to_vec())
}

/// Whether a span is that of a table with a header of its own, and not of a list or table in a line.
fn header(text: &str, span: &std::ops::Range<usize>) -> bool {
    let before = text.get(..span.start).unwrap_or_default();
    let line = before.rfind('\n').map_or(0, |at| at + 1);
    text[line..].trim_start().starts_with('[')
}

/// How a table is begun that was begun with the wrong brackets.
fn brackets(found: &str, expected: &str, path: Option<&KeyPath>) -> String {
    let Some(path) = path else {
        return String::new();
    };
    match (found, expected) {
        ("a table", "a list") => format!(": write [[{path}]], in double brackets, once for each"),
        _ => String::new(),
    }
}

/// What was found, without the names of Rust's types.
fn found_in_words(found: &str) -> String {
    let number = found
        .strip_prefix("integer `")
        .or_else(|| found.strip_prefix("floating point `"));
    if let Some((number, _)) = number.and_then(|rest| rest.split_once('`')) {
        return format!("the number {number}");
    }
    match found {
        "sequence" => "a list".to_owned(),
        "map" => "a table".to_owned(),
        other => other
            .strip_prefix("boolean `")
            .map_or(other, |rest| rest.trim_end_matches('`'))
            .to_owned(),
    }
}

/// What serde calls by Rust's names.
fn in_words(expected: &str, path: Option<&KeyPath>) -> String {
    let key = path.and_then(|path| path.0.last());
    let text = match (expected, key.map(String::as_str)) {
        (_, Some("vlan")) => "a VLAN tag, 1 to 4094",
        ("u32", Some("max")) => "a whole number, 0 to 5000",
        ("u8", _) => "a whole number, 0 to 255",
        ("u16", _) => "a whole number, 0 to 65535",
        ("u32", _) => "a whole number, 0 to 4294967295",
        ("i32", _) => "a whole number, -2147483648 to 2147483647",
        ("u64" | "usize", _) => "a whole number, 0 or more",
        ("i64", _) => "a whole number",
        ("a map", _) => "a table",
        ("a sequence", _) => "a list",
        ("a boolean", _) => "true or false",
        ("path string", _) => "a path",
        ("socket address", _) => "an address such as \"127.0.0.1:9808\"",
        (expected, _) if expected.starts_with("struct ") => "a table",
        (expected, _) => expected,
    };
    text.to_owned()
}
