//! Where in the text a key or value stands: from a path to a span and back, and the excerpt that
//! an error shows.

use std::fmt::Write as _;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The way to a key: names, or positions in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeyPath(pub(super) Vec<String>);

impl KeyPath {
    /// The path one step further down.
    #[must_use]
    pub(super) fn at(&self, key: &(impl ToString + ?Sized)) -> KeyPath {
        let mut path = self.clone();
        path.0.push(key.to_string());
        path
    }

    /// Whether that nothing could be read here is a reason for what is wrong there: at or below this key, at the table that it is
    /// in, or at the key for one of what this one has a list of (`template` beside `templates`).
    pub(super) fn explains(&self, other: &KeyPath) -> bool {
        let Some((key, table)) = self.0.split_last() else {
            return false;
        };
        let singular = |one: &String| key.strip_suffix('s') == Some(one.as_str());
        let beside = other
            .0
            .split_last()
            .is_some_and(|(last, of)| of == table && singular(last));
        other.0.starts_with(&self.0) || other.0 == table || beside
    }
}

impl std::fmt::Display for KeyPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (position, key) in self.0.iter().enumerate() {
            let bare = !key.is_empty()
                && key
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
            if position > 0 {
                f.write_char('.')?;
            }
            if bare {
                f.write_str(key)?;
            } else {
                write!(f, "{key:?}")?;
            }
        }
        Ok(())
    }
}

type Root<'t> = Spanned<DeTable<'t>>;

/// The innermost key or value around a span, as its path.
pub(super) fn path_of(root: &Root<'_>, span: &Range<usize>) -> Option<KeyPath> {
    let mut best = None;
    search_table(root.get_ref(), span, &KeyPath::default(), &mut best);
    best.map(|(_, path)| path)
}

type BestMatch = Option<(usize, KeyPath)>;

fn search_table(table: &DeTable<'_>, span: &Range<usize>, path: &KeyPath, best: &mut BestMatch) {
    for (key, value) in table {
        let here = path.at(key.get_ref());
        offer(&key.span(), span, &here, best);
        search_value(value, span, &here, best);
    }
}

fn search_value(
    value: &Spanned<DeValue<'_>>,
    span: &Range<usize>,
    path: &KeyPath,
    best: &mut BestMatch,
) {
    offer(&value.span(), span, path, best);
    match value.get_ref() {
        DeValue::Table(table) => search_table(table, span, path, best),
        DeValue::Array(list) => {
            for (position, element) in list.iter().enumerate() {
                search_value(element, span, &path.at(&position), best);
            }
        }
        _ => {}
    }
}

/// The smallest span around the wanted one wins; of equal ones the deeper.
fn offer(candidate: &Range<usize>, wanted: &Range<usize>, path: &KeyPath, best: &mut BestMatch) {
    let around = candidate.start <= wanted.start && wanted.end <= candidate.end;
    let size = candidate.len();
    if around && best.as_ref().is_none_or(|(least, _)| size <= *least) {
        *best = Some((size, path.clone()));
    }
}

/// The span of a path: of its value if that is written in one place, else of its key; of the nearest
/// table above when the path is not in the text.
pub(super) fn span_of(root: &Root<'_>, path: &KeyPath) -> Option<Range<usize>> {
    let mut found = None;
    let mut table = Some(root.get_ref());
    let mut list: Option<&[Spanned<DeValue<'_>>]> = None;
    for key in &path.0 {
        let next = if let Some(elements) = list {
            let element = key.parse().ok().and_then(|n: usize| elements.get(n));
            element.map(|value| (value.span(), value))
        } else {
            let entry = table.and_then(|table| table.get_key_value(key.as_str()));
            entry.map(|(name, value)| {
                let whole = matches!(value.get_ref(), DeValue::Table(_) | DeValue::Array(_));
                let span = if whole { name.span() } else { value.span() };
                (span, value)
            })
        };
        let Some((span, value)) = next else { break };
        found = Some(span);
        table = value.get_ref().as_table();
        list = value.get_ref().as_array().map(|array| &array[..]);
    }
    found
}

/// The span of the last name of a path; `None` where the path is not in the text, or leads through a list.
pub(super) fn name_span_of(root: &Root<'_>, path: &KeyPath) -> Option<Range<usize>> {
    let (last, above) = path.0.split_last()?;
    let mut table = root.get_ref();
    for key in above {
        let (_, value) = table.get_key_value(key.as_str())?;
        table = value.get_ref().as_table()?;
    }
    let (name, _) = table.get_key_value(last.as_str())?;
    Some(name.span())
}

/// Takes the innermost entry around a span out of the table, and gives its path. `None` when there is none.
pub(super) fn remove(table: &mut DeTable<'_>, span: &Range<usize>) -> Option<KeyPath> {
    let mut path = path_of(&Spanned::new(0..usize::MAX, table.clone()), span)?;
    let depth = remove_path(table, &path.0)?;
    path.0.truncate(depth);
    Some(path)
}

/// How long the path of what was removed is.
fn remove_path(table: &mut DeTable<'_>, path: &[String]) -> Option<usize> {
    let [first, rest @ ..] = path else {
        return None;
    };
    if rest.is_empty() {
        return table.remove(first.as_str()).map(|_| 1);
    }
    match table.get_mut(first.as_str()).map(Spanned::get_mut) {
        Some(DeValue::Table(inner)) => remove_path(inner, rest).map(|depth| depth + 1),
        // A list whose element is wrong goes as a whole: the others were read already.
        Some(_) => table.remove(first.as_str()).map(|_| 1),
        None => None,
    }
}

/// Puts text in the place of a value. False when the path leads to none.
pub(super) fn put_text(table: &mut DeTable<'_>, path: &KeyPath, text: &'static str) -> bool {
    let value = value_at(table, path);
    value.is_some_and(|value| {
        *value = DeValue::String(text.into());
        true
    })
}

/// Puts the first of a list of tables in the place of the list. False when the path leads to no such list.
pub(super) fn put_first(table: &mut DeTable<'_>, path: &KeyPath) -> bool {
    let Some(value) = value_at(table, path) else {
        return false;
    };
    let list = value.as_array();
    let first = list
        .and_then(|list| list.first())
        .map(|first| first.get_ref().clone());
    let Some(first) = first.filter(|first| matches!(first, DeValue::Table(_))) else {
        return false;
    };
    *value = first;
    true
}

/// The value at a path.
fn value_at<'v, 't>(table: &'v mut DeTable<'t>, path: &KeyPath) -> Option<&'v mut DeValue<'t>> {
    let (first, rest) = path.0.split_first()?;
    let mut value = table.get_mut(first.as_str())?;
    for key in rest {
        value = match value.get_mut() {
            DeValue::Table(inner) => inner.get_mut(key.as_str())?,
            DeValue::Array(list) => list.get_mut(key.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    Some(value.get_mut())
}

/// Line and column of a byte, counted from 1, the column in characters.
pub(super) fn line_and_column(text: &str, byte: usize) -> (usize, usize) {
    let before = &text[..floor(text, byte)];
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = before.matches('\n').count() + 1;
    (line, before[start..].chars().count() + 1)
}

/// The key and the value at a byte, read from the line it is in and the table's header above it: for text that is
/// no TOML. The key is empty where the line has none, such as a header.
pub(super) fn around(text: &str, byte: usize) -> (String, Option<String>) {
    let byte = floor(text, byte);
    let start = text[..byte].rfind('\n').map_or(0, |at| at + 1);
    let line = text[start..].lines().next().unwrap_or("").trim();
    if let Some(header) = line.strip_prefix('[') {
        return (bare_header(header), None);
    }
    let Some((key, value)) = line.split_once('=') else {
        return (String::new(), None);
    };
    let above = text[..start].lines().rev();
    let header = above.map(str::trim).find_map(|line| line.strip_prefix('['));
    let table = header.map(bare_header).filter(|table| !table.is_empty());
    let key = key.trim();
    let key = table.map_or_else(|| key.to_owned(), |table| format!("{table}.{key}"));
    let value = value.trim();
    let shown = value_text(value, &(0..value.len()));
    (key, (!shown.is_empty()).then_some(shown))
}

/// The name in a header whose first bracket is cut off.
fn bare_header(header: &str) -> String {
    let name = header.split(']').next().unwrap_or("");
    name.trim_start_matches('[').trim().to_owned()
}

/// The text of a span, shortened to one line of at most 60 characters.
pub(super) fn value_text(text: &str, span: &Range<usize>) -> String {
    let value = &text[floor(text, span.start)..floor(text, span.end)];
    let line = value.lines().next().unwrap_or("");
    let shortened: String = line.chars().take(60).collect();
    if shortened.len() < value.trim_end().len() {
        shortened + "…"
    } else {
        shortened
    }
}

/// The line of a span with a caret under it.
pub(super) fn excerpt(text: &str, span: &Range<usize>) -> String {
    let (number, column) = line_and_column(text, span.start);
    let line = text
        .lines()
        .nth(number - 1)
        .unwrap_or("")
        .replace('\t', " ");
    let width = text[floor(text, span.start)..floor(text, span.end)]
        .lines()
        .next()
        .map_or(1, |marked| marked.chars().count().max(1));
    let gutter = " ".repeat(number.to_string().len());
    let mut excerpt = String::new();
    let _ = writeln!(excerpt, "{gutter} |");
    let _ = writeln!(excerpt, "{number} | {line}");
    let _ = write!(
        excerpt,
        "{gutter} | {}{}",
        " ".repeat(column - 1),
        "^".repeat(width)
    );
    excerpt
}

/// The nearest character boundary at or before a byte.
fn floor(text: &str, byte: usize) -> usize {
    let mut byte = byte.min(text.len());
    while !text.is_char_boundary(byte) {
        byte -= 1;
    }
    byte
}
