//! From the text of a file to [`CaseValue`]s: YAML documents one by one, so that a later one that is
//! broken does not take the earlier ones with it, or one TOML table.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};
use toml::de::{DeTable, DeValue};

use super::value::{CaseData, CaseEntry, CaseError, CaseValue, INDEX, SourcePosition};

/// Values in one file, aliases expanded: far beyond what a person writes, and small in memory.
const MAX_VALUES: usize = 300_000;
/// What [`INDEX`] is while YAML is read: a character for private use.
const INDEX_SIGN: &str = "\u{e0f0}";
/// How deep values may be nested; the reader recurses.
const MAX_DEPTH: usize = 100;

/// What a file holds: the documents that could be read, and the error that ended it, if one did.
#[derive(Debug)]
pub(super) struct ReadDocuments {
    pub(super) documents: Vec<CaseValue>,
    pub(super) error: Option<CaseError>,
}

/// Reads a YAML file.
pub(super) fn yaml(file: &Arc<str>, text: &str) -> ReadDocuments {
    // `{i}` needs no quotes, though braces begin a map in YAML.
    let text = text.replace(INDEX, INDEX_SIGN);
    let mut reader = Yaml {
        events: Parser::new_from_str(&text),
        file: file.clone(),
        anchors: BTreeMap::new(),
        values: 0,
        depth: 0,
        line: 1,
    };
    let mut documents = Vec::new();
    loop {
        match reader.document() {
            Ok(Some(document)) => documents.push(document),
            Ok(None) => {
                return ReadDocuments {
                    documents,
                    error: None,
                };
            }
            Err(error) => {
                return ReadDocuments {
                    documents,
                    error: Some(error),
                };
            }
        }
    }
}

struct Yaml<'t> {
    events: Parser<'t, StrInput<'t>>,
    file: Arc<str>,
    anchors: BTreeMap<usize, CaseValue>,
    values: usize,
    depth: usize,
    line: usize,
}

impl<'t> Yaml<'t> {
    fn place(&self, line: usize) -> SourcePosition {
        SourcePosition {
            file: self.file.clone(),
            line,
        }
    }

    fn wrong(&self, line: usize, text: impl Into<String>) -> CaseError {
        CaseError {
            at: self.place(line),
            text: text.into(),
        }
    }

    /// The next event that is no comment.
    fn next(&mut self) -> Result<Option<(Event<'t>, Span)>, CaseError> {
        loop {
            match self.events.next_event() {
                None => return Ok(None),
                Some(Ok((Event::Comment(..), _))) => {}
                Some(Ok((event, span))) => {
                    self.line = span.start.line().max(1);
                    return Ok(Some((event, span)));
                }
                Some(Err(error)) => return Err(self.broken(&error)),
            }
        }
    }

    fn broken(&self, error: &ScanError) -> CaseError {
        let line = error.marker().line().max(1);
        self.wrong(line, format!("expected YAML: {}", error.info()))
    }

    /// The next document; `None` at the end of the file.
    fn document(&mut self) -> Result<Option<CaseValue>, CaseError> {
        while let Some((event, _)) = self.next()? {
            match event {
                Event::DocumentStart(..) => {
                    self.anchors.clear();
                    let first = self.next()?;
                    let value = self.value(first)?;
                    return Ok(Some(value));
                }
                Event::StreamEnd => return Ok(None),
                _ => {}
            }
        }
        Ok(None)
    }

    fn value(&mut self, event: Option<(Event<'t>, Span)>) -> Result<CaseValue, CaseError> {
        let line = self.line;
        let Some((event, _)) = event else {
            return Err(self.wrong(line, "expected a value, the file ends"));
        };
        self.values += 1;
        self.depth += 1;
        if self.values > MAX_VALUES || self.depth > MAX_DEPTH {
            return Err(self.wrong(
                line,
                format!("more than {MAX_VALUES} values, or nested deeper than {MAX_DEPTH}"),
            ));
        }
        let (anchor, data) = match event {
            Event::Scalar(text, style, anchor, _) => {
                let plain = style == ScalarStyle::Plain;
                let data = if plain && matches!(&*text, "" | "~" | "null") {
                    CaseData::Null
                } else {
                    CaseData::Scalar {
                        text: text.replace(INDEX_SIGN, INDEX),
                        plain,
                    }
                };
                (anchor, data)
            }
            Event::SequenceStart(_, anchor, _) => (anchor, self.sequence()?),
            Event::MappingStart(_, anchor, _) => (anchor, self.mapping()?),
            Event::Alias(id) => {
                let Some(value) = self.anchors.get(&id) else {
                    return Err(self.wrong(line, "an alias inside what it names"));
                };
                self.values += size(value);
                self.depth -= 1;
                if self.values > MAX_VALUES {
                    return Err(self.wrong(line, format!("more than {MAX_VALUES} values")));
                }
                return Ok(value.clone());
            }
            other => {
                return Err(self.wrong(line, format!("expected a value, found {other:?}")));
            }
        };
        self.depth -= 1;
        let value = CaseValue {
            at: self.place(line),
            data,
        };
        if anchor > 0 {
            self.anchors.insert(anchor, value.clone());
        }
        Ok(value)
    }

    fn sequence(&mut self) -> Result<CaseData, CaseError> {
        let mut items = Vec::new();
        loop {
            let event = self.next()?;
            if matches!(&event, Some((Event::SequenceEnd, _))) {
                return Ok(CaseData::List(items));
            }
            items.push(self.value(event)?);
        }
    }

    fn mapping(&mut self) -> Result<CaseData, CaseError> {
        let mut entries: Vec<CaseEntry> = Vec::new();
        let mut merged = Vec::new();
        loop {
            let event = self.next()?;
            if matches!(&event, Some((Event::MappingEnd, _))) {
                break;
            }
            let line = self.line;
            let key = self.value(event)?;
            let key = match &key.data {
                CaseData::Scalar { text, .. } => text.clone(),
                CaseData::Null => "null".to_owned(),
                _ => return Err(self.wrong(line, "expected a key of text")),
            };
            let event = self.next()?;
            let value = self.value(event)?;
            if key == "<<" {
                merged.push(value);
                continue;
            }
            add(
                &mut entries,
                CaseEntry {
                    key,
                    at: self.place(line),
                    value,
                },
            )?;
        }
        for value in merged {
            let sources = value
                .list()
                .map_or_else(|| vec![&value], |list| list.iter().collect());
            for source in sources {
                let known = source
                    .map()
                    .ok_or_else(|| source.expected("a map to merge after <<"))?;
                for entry in known {
                    if !entries.iter().any(|mine| mine.key == entry.key) {
                        entries.push(entry.clone());
                    }
                }
            }
        }
        Ok(CaseData::Map(entries))
    }
}

/// Values in a value, itself included.
fn size(value: &CaseValue) -> usize {
    match &value.data {
        CaseData::Null | CaseData::Scalar { .. } => 1,
        CaseData::List(items) => 1 + items.iter().map(size).sum::<usize>(),
        CaseData::Map(entries) => 1 + entries.iter().map(|e| size(&e.value)).sum::<usize>(),
    }
}

fn add(entries: &mut Vec<CaseEntry>, entry: CaseEntry) -> Result<(), CaseError> {
    if let Some(first) = entries.iter().find(|known| known.key == entry.key) {
        return Err(CaseError {
            text: format!(
                "the key {:?} is there twice, first in line {}",
                entry.key, first.at.line
            ),
            at: entry.at,
        });
    }
    entries.push(entry);
    Ok(())
}

/// Reads a TOML file: one document.
pub(super) fn toml(file: &Arc<str>, text: &str) -> ReadDocuments {
    let line_of = |offset: usize| {
        let before = text.get(..offset).unwrap_or(text);
        before.bytes().filter(|byte| *byte == b'\n').count() + 1
    };
    match DeTable::parse(text) {
        Ok(table) => {
            let place = |offset: usize| SourcePosition {
                file: file.clone(),
                line: line_of(offset),
            };
            ReadDocuments {
                documents: vec![table_value(table.get_ref(), table.span().start, &place)],
                error: None,
            }
        }
        Err(error) => ReadDocuments {
            documents: Vec::new(),
            error: Some(CaseError {
                at: SourcePosition {
                    file: file.clone(),
                    line: line_of(error.span().map_or(0, |span| span.start)),
                },
                text: format!("expected TOML: {}", error.message().replace('\n', ", ")),
            }),
        },
    }
}

fn table_value(
    table: &DeTable<'_>,
    start: usize,
    place: &dyn Fn(usize) -> SourcePosition,
) -> CaseValue {
    let mut entries: Vec<(usize, CaseEntry)> = table
        .iter()
        .map(|(key, value)| {
            let entry = CaseEntry {
                key: key.get_ref().to_string(),
                at: place(key.span().start),
                value: toml_value(value.get_ref(), value.span().start, place),
            };
            (key.span().start, entry)
        })
        .collect();
    entries.sort_by_key(|(start, _)| *start);
    CaseValue {
        at: place(start),
        data: CaseData::Map(entries.into_iter().map(|(_, entry)| entry).collect()),
    }
}

fn toml_value(
    value: &DeValue<'_>,
    start: usize,
    place: &dyn Fn(usize) -> SourcePosition,
) -> CaseValue {
    let plain = |text: String| CaseData::Scalar { text, plain: true };
    let data = match value {
        DeValue::String(text) => CaseData::Scalar {
            text: text.to_string(),
            plain: false,
        },
        DeValue::Integer(number) => plain(
            i64::from_str_radix(number.as_str(), number.radix())
                .map_or_else(|_| number.as_str().to_owned(), |number| number.to_string()),
        ),
        DeValue::Float(number) => plain(number.as_str().to_owned()),
        DeValue::Boolean(value) => plain(value.to_string()),
        DeValue::Datetime(time) => plain(time.to_string()),
        DeValue::Array(items) => CaseData::List(
            items
                .iter()
                .map(|item| toml_value(item.get_ref(), item.span().start, place))
                .collect(),
        ),
        DeValue::Table(table) => return table_value(table, start, place),
    };
    CaseValue {
        at: place(start),
        data,
    }
}
