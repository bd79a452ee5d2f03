//! A text cut into the words that may be names, and what stands between them. Pure.

use super::address::{self, TokenKind};

/// Signs that join words to one name, such as `NAMESPACE/NAME`, `HOST.DOMAIN:PORT`, `USER@REALM`.
const JOINERS: &str = "-_./:@+~";

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextPart<'a> {
    /// No letter and no number, or an escape such as `\n`.
    Between(&'a str),
    /// An address or id.
    Address(TokenKind, &'a str),
    /// Words that are joined, or one word.
    Word {
        /// The words.
        text: &'a str,
        /// It stands alone in quotes or brackets.
        enclosed: bool,
        /// An equals sign follows.
        key: bool,
    },
}

/// The parts of a text.
#[derive(Clone, Debug)]
pub(super) struct TextParts<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> TextParts<'a> {
    pub(super) fn of(text: &'a str) -> TextParts<'a> {
        TextParts { text, at: 0 }
    }

    /// Whether what lies from `begin` to `end` stands alone in quotes or brackets.
    fn is_enclosed(&self, begin: usize, end: usize) -> bool {
        let before = self.text[..begin].chars().next_back();
        let after = self.text[end..].chars().next();
        match (before, after) {
            (Some('['), Some(']')) => true,
            (Some(before), Some(after)) => before == after && "\"'`".contains(before),
            _ => false,
        }
    }
}

impl<'a> Iterator for TextParts<'a> {
    type Item = TextPart<'a>;

    fn next(&mut self) -> Option<TextPart<'a>> {
        let (begin, text) = (self.at, self.text);
        let rest = &text[begin..];
        let first = rest.chars().next()?;
        if (first.is_alphanumeric() || first == ':')
            && let Some((kind, length)) = address::at(rest)
        {
            self.at += length;
            return Some(TextPart::Address(kind, &rest[..length]));
        }
        if first.is_alphanumeric() {
            let end = begin + joined(rest);
            self.at = end;
            return Some(TextPart::Word {
                text: &text[begin..end],
                enclosed: self.is_enclosed(begin, end),
                key: text[end..].trim_start_matches([' ', '\t']).starts_with('='),
            });
        }
        let length = if first == '\\' {
            escape(rest)
        } else {
            first.len_utf8()
        };
        self.at += length;
        Some(TextPart::Between(&rest[..length]))
    }
}

/// The length of the joined words that a text begins with.
fn joined(text: &str) -> usize {
    let mut end = 0;
    for (at, c) in text.char_indices() {
        if c.is_alphanumeric() {
            end = at + c.len_utf8();
        } else if !JOINERS.contains(c) {
            break;
        }
    }
    end
}

/// The length of the escape that a text begins with: its letter belongs to no word.
fn escape(text: &str) -> usize {
    let digits = |from: usize, many: usize| {
        text.as_bytes()
            .get(from..from + many)
            .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    match text.as_bytes().get(1) {
        Some(b'n' | b'r' | b't' | b'0' | b'"' | b'\\') => 2,
        Some(b'x') if digits(2, 2) => 4,
        Some(b'u') if digits(2, 4) => 6,
        Some(b'U') if digits(2, 8) => 10,
        _ => 1,
    }
}
