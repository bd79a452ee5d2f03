//! Names replaced by tokens in text that leaves the host, for who may not give names away. Pure but for its random salt.
//!
//! Nobody lists the names: what is no word of ours, of Kubernetes or of PVE ([`words`]) and no number is taken for one. So a name
//! that stands in a line of the log alone, or in a field that came later than this, is replaced as well. The same name has the same
//! token everywhere, by a hash with a salt that is thrown away: two bundles have no token in common.

mod address;
mod parts;
#[cfg(test)]
mod tests;
mod words;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

use rand::TryRng as _;
use rand::rngs::SysRng;
use serde::de::IgnoredAny;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use address::TokenKind;
use parts::{TextPart, TextParts};

/// Digits of a number in a name that stays, such as that of a StatefulSet's pod.
const ORDINAL: usize = 3;

/// How the words of a text are taken that stand alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextForm {
    /// A sentence: the words that the program says stay, but in quotes.
    Sentence,
    /// All words are names.
    Names,
}

/// Labels of metrics whose values are words of the program, of Kubernetes or of PVE.
const OWN_LABELS: [&str; 18] = [
    "activity",
    "call",
    "eviction_result",
    "family",
    "function",
    "kind",
    "le",
    "method",
    "node_group_type",
    "outcome",
    "phase",
    "reason",
    "state",
    "step",
    "type",
    "verb",
    "verdict",
    "version",
];

/// What a file of the bundle is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileForm {
    Json,
    Toml,
    /// What `pveversion` prints.
    Packages,
    /// Prometheus' format.
    Metrics,
    Lines,
}

impl FileForm {
    fn of(file: &str) -> FileForm {
        match Path::new(file).extension().and_then(OsStr::to_str) {
            Some("json") => FileForm::Json,
            Some("toml") => FileForm::Toml,
            Some("prom") => FileForm::Metrics,
            _ if file == "versions/pve.txt" => FileForm::Packages,
            _ => FileForm::Lines,
        }
    }
}

/// Replaces names.
pub(super) struct NameHasher {
    salt: [u8; 32],
    /// Words of sentences that are names here, in small letters.
    names: BTreeSet<String>,
    tokens: RefCell<GivenTokens>,
}

/// What stands for what.
#[derive(Default)]
struct GivenTokens {
    given: BTreeMap<(TokenKind, String), String>,
    taken: BTreeSet<String>,
}

impl fmt::Debug for NameHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NameHasher({} names)", self.tokens.borrow().given.len())
    }
}

impl NameHasher {
    /// With a salt that nobody else has.
    ///
    /// # Errors
    /// The operating system gives no randomness.
    pub(super) fn new() -> anyhow::Result<NameHasher> {
        let mut salt = [0; 32];
        SysRng.try_fill_bytes(&mut salt).map_err(|error| {
            anyhow::anyhow!("the operating system gives no randomness: {error}")
        })?;
        Ok(NameHasher::with_salt(salt))
    }

    fn with_salt(salt: [u8; 32]) -> NameHasher {
        NameHasher {
            salt,
            names: BTreeSet::new(),
            tokens: RefCell::default(),
        }
    }

    /// Takes note of the names in a file of the bundle that are words of sentences as well, such as a pool `backup`: from then on
    /// they are replaced in sentences, too.
    pub(super) fn learn(&mut self, file: &str, text: &str) {
        if FileForm::of(file) == FileForm::Json {
            self.learn_json(text);
        } else if FileForm::of(file) == FileForm::Toml {
            for line in text.lines() {
                for part in TextParts::of(line.split_at(comment(line)).0) {
                    if let TextPart::Word {
                        text,
                        enclosed,
                        key,
                    } = part
                        && (enclosed || key)
                    {
                        self.learn_name(text);
                    }
                }
            }
        }
    }

    /// Takes note of the names in a document in JSON, as `learn` does.
    pub(super) fn learn_json(&mut self, text: &str) {
        for (_, string) in json_strings(text) {
            if let Some(string) = string.filter(|string| stands_alone(string)) {
                for part in TextParts::of(&string) {
                    if let TextPart::Word { text, .. } = part {
                        self.learn_name(text);
                    }
                }
            }
        }
    }

    fn learn_name(&mut self, name: &str) {
        for word in name.split(['/', ':', '@', '.', '+', '~']) {
            let small = word.to_ascii_lowercase();
            if !words::is_kept(word) && words::is_in_sentences(&small) {
                self.names.insert(small);
            }
        }
    }

    /// A file of the bundle without names.
    pub(super) fn hashed(&self, file: &str, text: &str) -> String {
        match FileForm::of(file) {
            FileForm::Json => self.hashed_json(text),
            FileForm::Toml => {
                let lines = text.split_inclusive('\n').map(|line| {
                    let (settings, said) = line.split_at(comment(line));
                    self.hashed_text(settings, TextForm::Names)
                        + &self.hashed_text(said, TextForm::Sentence)
                });
                lines.collect()
            }
            FileForm::Packages => text
                .split_inclusive('\n')
                .map(|line| self.hashed_package(line))
                .collect(),
            FileForm::Metrics => text
                .split_inclusive('\n')
                .map(|line| self.hashed_series(line))
                .collect(),
            FileForm::Lines => self.hashed_text(text, TextForm::Sentence),
        }
    }

    /// A time series, `NAME{LABEL="VALUE",…} NUMBER`: the values of labels that are no words of the program's are replaced.
    fn hashed_series(&self, line: &str) -> String {
        if line.starts_with('#') {
            return line.to_owned();
        }
        if line.contains("\\\"") {
            return self.hashed_text(line, TextForm::Names);
        }
        let mut own = true;
        let parts = line.split('"').enumerate().map(|(number, part)| {
            if number % 2 == 1 && !own {
                return self.hashed_text(part, TextForm::Names);
            }
            let label = part.trim_end_matches('=').rsplit(['{', ',']).next();
            own = label.is_some_and(|label| OWN_LABELS.contains(&label));
            part.to_owned()
        });
        parts.collect::<Vec<_>>().join("\"")
    }

    /// A document in JSON without names; it stays one.
    pub(super) fn hashed_json(&self, text: &str) -> String {
        if serde_json::from_str::<IgnoredAny>(text).is_err() {
            return self.hashed_text(text, TextForm::Sentence);
        }
        let mut out = String::with_capacity(text.len());
        for (literal, string) in json_strings(text) {
            match string {
                Some(string) => {
                    let form = if stands_alone(&string) {
                        TextForm::Names
                    } else {
                        TextForm::Sentence
                    };
                    let string = self.hashed_text(&string, form);
                    out.push_str(&Value::String(string).to_string());
                }
                None => out.push_str(literal),
            }
        }
        out
    }

    /// A line `PACKAGE: VERSION` of `pveversion`: packages are PVE's.
    fn hashed_package(&self, line: &str) -> String {
        let number = |version: &str| version.starts_with(|c: char| c.is_ascii_digit());
        match line.split_once(": ") {
            Some((package, version)) if number(version) && !package.contains(' ') => {
                let version = self.hashed_text(version, TextForm::Sentence);
                format!("{package}: {version}")
            }
            _ => self.hashed_text(line, TextForm::Sentence),
        }
    }

    fn hashed_text(&self, text: &str, form: TextForm) -> String {
        let mut out = String::with_capacity(text.len());
        for part in TextParts::of(text) {
            match part {
                TextPart::Between(text) => out.push_str(text),
                TextPart::Address(kind, address) => out.push_str(&self.token(kind, address)),
                TextPart::Word { text, enclosed, .. } => {
                    let name = enclosed || form == TextForm::Names;
                    self.hash_joined(text, name, &mut out);
                }
            }
        }
        out
    }

    /// Words that are joined, or one word.
    fn hash_joined(&self, words: &str, name: bool, out: &mut String) {
        if words::is_kept(words) || self.is_said(words, name) {
            out.push_str(words);
            return;
        }
        each_part(words, &['/', '@'], out, |part, out| {
            if let Some((kind, length)) = address::at(part)
                && length == part.len()
            {
                out.push_str(&self.token(kind, part));
                return;
            }
            // A MAC behind a word, as in `mac:52:54:00:12:34:56`.
            let behind = part.match_indices(':').map(|(at, _)| at + 1);
            let mac = behind
                .into_iter()
                .find_map(|at| match address::at(&part[at..]) {
                    Some((TokenKind::Pairs, length)) => Some((at, at + length)),
                    _ => None,
                });
            let (before, after) =
                mac.map_or((part, ""), |(begin, end)| (&part[..begin], &part[end..]));
            each_part(before, &[':'], out, |part, out| self.hash_dotted(part, out));
            if let Some((begin, end)) = mac {
                out.push_str(&self.token(TokenKind::Pairs, &part[begin..end]));
            }
            each_part(after, &[':'], out, |part, out| self.hash_dotted(part, out));
        });
    }

    /// Whether the program says this itself. Of one word in the place of a name nobody knows.
    fn is_said(&self, words: &str, name: bool) -> bool {
        let joined = words.contains(|c: char| !c.is_alphanumeric());
        let small = words.to_ascii_lowercase();
        (joined || !name) && words::is_in_sentences(&small) && !self.names.contains(&small)
    }

    /// What has dots in it: an address, a version, a domain.
    fn hash_dotted(&self, words: &str, out: &mut String) {
        let digit = |c: char| c.is_ascii_digit();
        let mut from = 0;
        while let Some(found) = words[from..].find(digit) {
            let begin = from + found;
            if let Some((TokenKind::Ipv4, length)) = address::at(&words[begin..]) {
                let (before, rest) = words.split_at(begin);
                let (address, after) = rest.split_at(length);
                self.hash_dotted(before, out);
                out.push_str(&self.token(TokenKind::Ipv4, address));
                self.hash_dotted(after, out);
                return;
            }
            let rest = words[begin..].find(|c: char| !c.is_ascii_digit() && c != '.');
            from = rest.map_or(words.len(), |length| begin + length);
        }
        if words::is_kept(words) || words::is_version(words) {
            out.push_str(words);
            return;
        }
        // What is left of an address without its end, such as 10.1.2.x.
        let parts: Vec<&str> = words.split('.').collect();
        let numbers = parts.iter().take_while(|part| part.parse::<u8>().is_ok());
        let of_address = words::are_of_address(&parts[..numbers.count()]);
        each_part(words, &['.', '+', '~'], out, |word, out| {
            if of_address && word.parse::<u8>().is_ok() {
                out.push_str(&self.token(TokenKind::Word, word));
            } else {
                self.hash_word(word, out);
            }
        });
    }

    /// One word, whose parts may be joined by `-` and `_`.
    fn hash_word(&self, word: &str, out: &mut String) {
        if words::is_kept(word) {
            out.push_str(word);
            return;
        }
        let border = |at: usize| at == 0 || word[..at].ends_with(['-', '_']);
        for (at, _) in word.char_indices().filter(|(at, _)| border(*at)) {
            if let Some((TokenKind::Uuid, length)) = address::at(&word[at..]) {
                self.hash_word(&word[..at], out);
                out.push_str(&self.token(TokenKind::Uuid, &word[at..at + length]));
                self.hash_word(&word[at + length..], out);
                return;
            }
        }
        let parts: Vec<&str> = word.split(['-', '_']).collect();
        let of_address = |many: usize| parts.windows(many).any(words::are_of_address);
        let address = of_address(3) || of_address(6);
        if !address && words::are_numbers(&parts) {
            out.push_str(word);
            return;
        }
        each_part(word, &['-', '_'], out, |part, out| {
            let ordinal = part.len() <= ORDINAL && part.bytes().all(|byte| byte.is_ascii_digit());
            if ordinal && !address {
                out.push_str(part);
            } else {
                out.push_str(&self.token(TokenKind::Word, part));
            }
        });
    }

    /// What stands for a name or an address. An address keeps its last number, so that ranges stay ranges.
    fn token(&self, kind: TokenKind, name: &str) -> String {
        let name = name.to_owned();
        match kind {
            TokenKind::Word => self.given(kind, name),
            TokenKind::Uuid | TokenKind::Pairs => self.given(kind, name.to_ascii_lowercase()),
            TokenKind::Ipv4 => match name.rsplit_once('.') {
                Some((network, last)) => {
                    format!("{}.{last}", self.given(kind, network.to_owned()))
                }
                None => self.given(TokenKind::Word, name),
            },
            TokenKind::Ipv6 => {
                let (network, last) = match name.parse() {
                    Ok(address) => address::ipv6_parts(address),
                    Err(_) => return self.given(TokenKind::Word, name),
                };
                let other = self.given(kind, network.to_string());
                match (other.parse(), last) {
                    (Ok(network), Some(last)) => address::with_last(network, last).to_string(),
                    _ => other,
                }
            }
        }
    }

    /// What stands for this everywhere.
    fn given(&self, kind: TokenKind, name: String) -> String {
        let tokens = &mut *self.tokens.borrow_mut();
        let key = (kind, name);
        if let Some(token) = tokens.given.get(&key) {
            return token.clone();
        }
        let mut attempt: u32 = 0;
        loop {
            let mut sum = Sha256::new();
            sum.update(self.salt);
            sum.update(attempt.to_be_bytes());
            sum.update(&key.1);
            let token = kind.stand_in(&key.1, &sum.finalize().into(), attempt);
            if tokens.taken.insert(token.clone()) {
                tokens.given.insert(key, token.clone());
                return token;
            }
            attempt += 1;
        }
    }
}

/// Whether a string of a document is one word, or words that are joined.
fn stands_alone(string: &str) -> bool {
    !string.contains(char::is_whitespace)
}

/// Gives each part of a text to `change`; the signs between stay.
fn each_part(
    text: &str,
    signs: &[char],
    out: &mut String,
    mut change: impl FnMut(&str, &mut String),
) {
    for piece in text.split_inclusive(signs) {
        let part = piece.strip_suffix(signs).unwrap_or(piece);
        if !part.is_empty() {
            change(part, out);
        }
        out.push_str(&piece[part.len()..]);
    }
}

/// Where the comment of a line of TOML begins, or the line's end. A `#` in a string that has blanks around it is taken for one.
fn comment(line: &str) -> usize {
    let begins = |at: &usize| {
        let before = line[..*at].chars().next_back();
        before.is_none_or(char::is_whitespace)
    };
    let mut signs = line.match_indices('#').map(|(at, _)| at);
    signs.find(begins).unwrap_or(line.len())
}

/// The pieces of a document in JSON: strings with their value, and what stands between them.
fn json_strings(text: &str) -> impl Iterator<Item = (&str, Option<String>)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let length = if rest.starts_with('"') {
            string_end(rest)
        } else {
            rest.find('"').unwrap_or(rest.len())
        };
        let (piece, tail) = rest.split_at(length);
        rest = tail;
        Some((piece, serde_json::from_str::<String>(piece).ok()))
    })
}

/// The length of the string literal that a text begins with.
fn string_end(text: &str) -> usize {
    let mut escaped = false;
    let end = text.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |end| end + 2)
}
