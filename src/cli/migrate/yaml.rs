//! YAML as values that know their line, bounded in number and depth: what is read was written by others.

use std::collections::BTreeMap;

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, Span, StrInput};

/// Values in one file, aliases expanded: a chart's values have some hundred, a cluster's ConfigMaps some thousand.
const MAX_VALUES: usize = 100_000;
/// How deep values may be nested; the reader recurses.
const MAX_DEPTH: usize = 64;

/// A value and the line that it begins in, from 1.
#[derive(Clone, Debug)]
pub(super) struct YamlNode {
    pub(super) line: usize,
    pub(super) data: YamlData,
}

/// What a value is; scalars keep their text.
#[derive(Clone, Debug)]
pub(super) enum YamlData {
    /// Nothing, `~` or `null`.
    Null,
    Scalar(String),
    List(Vec<YamlNode>),
    Map(Vec<YamlEntry>),
}

/// A key with its value.
#[derive(Clone, Debug)]
pub(super) struct YamlEntry {
    pub(super) key: String,
    pub(super) line: usize,
    pub(super) value: YamlNode,
}

/// What is wrong, and in which line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct YamlError {
    pub(super) line: usize,
    pub(super) text: String,
}

impl YamlNode {
    /// The value of a key, if this is a map that has it.
    pub(super) fn get(&self, key: &str) -> Option<&YamlNode> {
        let entry = self.entries().iter().find(|entry| entry.key == key);
        entry.map(|entry| &entry.value)
    }

    /// The value at the end of several keys.
    pub(super) fn at(&self, path: &[&str]) -> Option<&YamlNode> {
        path.iter().try_fold(self, |node, key| node.get(key))
    }

    /// The keys; none where it is no map.
    pub(super) fn entries(&self) -> &[YamlEntry] {
        match &self.data {
            YamlData::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The items; none where it is no list.
    pub(super) fn items(&self) -> &[YamlNode] {
        match &self.data {
            YamlData::List(items) => items,
            _ => &[],
        }
    }

    /// Whether there is no value, or a map without keys.
    pub(super) fn is_nothing(&self) -> bool {
        match &self.data {
            YamlData::Null => true,
            YamlData::Map(entries) => entries.is_empty(),
            _ => false,
        }
    }

    /// The text of a scalar.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.data {
            YamlData::Scalar(text) => Some(text),
            _ => None,
        }
    }

    /// What it is, in words.
    pub(super) fn kind(&self) -> &'static str {
        match &self.data {
            YamlData::Null => "nothing",
            YamlData::Scalar(_) => "text",
            YamlData::List(_) => "a list",
            YamlData::Map(_) => "a map",
        }
    }
}

/// The documents of a text.
pub(super) fn documents(text: &str) -> Result<Vec<YamlNode>, YamlError> {
    let mut reader = YamlReader {
        events: Parser::new_from_str(text),
        anchors: BTreeMap::new(),
        values: 0,
        depth: 0,
        line: 1,
    };
    let mut documents = Vec::new();
    while let Some((event, _)) = reader.next()? {
        match event {
            Event::DocumentStart(..) => {
                reader.anchors.clear();
                let first = reader.next()?;
                documents.push(reader.value(first)?);
            }
            Event::StreamEnd => break,
            _ => {}
        }
    }
    Ok(documents)
}

struct YamlReader<'t> {
    events: Parser<'t, StrInput<'t>>,
    anchors: BTreeMap<usize, YamlNode>,
    values: usize,
    depth: usize,
    line: usize,
}

impl<'t> YamlReader<'t> {
    /// The next event that is no comment.
    fn next(&mut self) -> Result<Option<(Event<'t>, Span)>, YamlError> {
        loop {
            match self.events.next_event() {
                None => return Ok(None),
                Some(Ok((Event::Comment(..), _))) => {}
                Some(Ok((event, span))) => {
                    self.line = span.start.line().max(1);
                    return Ok(Some((event, span)));
                }
                Some(Err(error)) => {
                    return Err(YamlError {
                        line: error.marker().line().max(1),
                        text: format!("is no YAML: {}", error.info()),
                    });
                }
            }
        }
    }

    fn wrong<T>(&self, text: impl Into<String>) -> Result<T, YamlError> {
        Err(YamlError {
            line: self.line,
            text: text.into(),
        })
    }

    fn count(&mut self, values: usize) -> Result<(), YamlError> {
        self.values = self.values.saturating_add(values);
        if self.values > MAX_VALUES {
            return self.wrong(format!(
                "has more than {MAX_VALUES} values; is it the right file?"
            ));
        }
        Ok(())
    }

    fn value(&mut self, event: Option<(Event<'t>, Span)>) -> Result<YamlNode, YamlError> {
        let line = self.line;
        let Some((event, _)) = event else {
            return self.wrong("is no YAML: it ends where a value should be");
        };
        self.count(1)?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.wrong(format!(
                "is nested deeper than {MAX_DEPTH}; is it the right file?"
            ));
        }
        let (anchor, data) = match event {
            Event::Scalar(text, style, anchor, _) => {
                let nothing = style == ScalarStyle::Plain
                    && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let scalar = || YamlData::Scalar(text.to_string());
                (anchor, if nothing { YamlData::Null } else { scalar() })
            }
            Event::SequenceStart(_, anchor, _) => (anchor, self.sequence()?),
            Event::MappingStart(_, anchor, _) => (anchor, self.mapping()?),
            Event::Alias(id) => {
                let Some(node) = self.anchors.get(&id).cloned() else {
                    return self.wrong("is no YAML: an alias stands inside what it names");
                };
                self.count(size(&node))?;
                (0, node.data)
            }
            _ => return self.wrong("is no YAML: expected a value"),
        };
        self.depth -= 1;
        let node = YamlNode { line, data };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn sequence(&mut self) -> Result<YamlData, YamlError> {
        let mut items = Vec::new();
        loop {
            let event = self.next()?;
            if matches!(&event, Some((Event::SequenceEnd, _))) {
                return Ok(YamlData::List(items));
            }
            items.push(self.value(event)?);
        }
    }

    fn mapping(&mut self) -> Result<YamlData, YamlError> {
        let mut entries: Vec<YamlEntry> = Vec::new();
        let mut merged = Vec::new();
        loop {
            let event = self.next()?;
            if matches!(&event, Some((Event::MappingEnd, _))) {
                break;
            }
            let key = self.value(event)?;
            let YamlData::Scalar(name) = key.data else {
                self.line = key.line;
                return self.wrong(format!("a key is {}; expected text", key.kind()));
            };
            let event = self.next()?;
            let value = self.value(event)?;
            if name == "<<" {
                merged.push(value);
                continue;
            }
            if let Some(first) = entries.iter().find(|entry| entry.key == name) {
                let first = first.line;
                self.line = key.line;
                return self.wrong(format!("{name} is there twice, in line {first} first"));
            }
            entries.push(YamlEntry {
                key: name,
                line: key.line,
                value,
            });
        }
        for source in merged {
            let sources = std::iter::once(&source).chain(source.items());
            for entry in sources.flat_map(YamlNode::entries) {
                if !entries.iter().any(|known| known.key == entry.key) {
                    entries.push(entry.clone());
                }
            }
        }
        Ok(YamlData::Map(entries))
    }
}

/// Values in a value, itself included.
fn size(node: &YamlNode) -> usize {
    let items = node.items().iter().map(size).sum::<usize>();
    let values = node.entries().iter();
    1 + items + values.map(|entry| size(&entry.value)).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_know_their_lines_and_anchors_are_followed() {
        let text = "a: &x\n  b: 1\nc:\n  <<: *x\n  d: [~, 'null']\n---\n# nothing\n";
        let documents = documents(text).expect("it is YAML");
        let c = documents[0].get("c").expect("c");
        assert_eq!(c.at(&["b"]).and_then(YamlNode::text), Some("1"));
        let d = c.get("d").expect("d");
        assert_eq!(d.line, 5);
        assert!(matches!(d.items()[0].data, YamlData::Null));
        assert_eq!(d.items()[1].text(), Some("null"));
    }

    #[test]
    fn what_is_broken_or_without_end_is_told_with_its_line() {
        let deep = "- ".repeat(200) + "x";
        let bomb = std::iter::once("a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned())
            .chain((1..9).map(|n| {
                let last = format!("*a{}", n - 1);
                format!("a{n}: &a{n} [{}]\n", [&*last; 8].join(", "))
            }))
            .collect::<String>();
        for (text, line, why) in [
            ("a: 1\nb: [1\n", 2, "is no YAML"),
            ("a: 1\n\tb: 2\n", 1, "is no YAML"),
            ("a: 1\nb: 2\na: 3\n", 3, "a is there twice, in line 1 first"),
            ("? [x]\n: 1\n", 1, "a key is a list"),
            (&deep, 1, "nested deeper"),
            (&bomb, 6, "more than 100000 values"),
        ] {
            let wrong = documents(text).expect_err("it is wrong");
            assert!(wrong.text.contains(why), "{wrong:?}");
            assert_eq!(wrong.line, line, "{wrong:?}");
        }
    }
}
