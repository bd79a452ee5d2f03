//! Text that others wrote: guests, PVE, Kubernetes, whoever may edit their objects or our files.
//!
//! Such text ends in a terminal of root's, in systemd's protocol, in the journal, in Events and in JSON. So it
//! becomes a [`ForeignText`] where it enters, and that holds one bounded line without anything that steers a reader.
//! The exits use [`line()`], [`lines`] and [`json`] once more, for what came in by another door.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::ops::Deref;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// What stands for the rest of a text that was cut.
const CUT: char = '…';

/// One line of somebody else's text, escaped and cut: no control character, no line break, nothing that changes
/// the direction or hides characters, and [`ForeignText::MAX`] characters at most.
///
/// There is no way to make one that is not so, reading it from a file included.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct ForeignText(String);

impl ForeignText {
    /// Longest text kept, in characters. PVE's own messages are a line and kubeadm's six; a proxy's may be a page.
    pub const MAX: usize = 2_000;

    /// The text as it may be shown.
    pub fn new(text: impl AsRef<str>) -> ForeignText {
        ForeignText(line(text.as_ref(), ForeignText::MAX))
    }

    /// The text cut to at most `limit` characters.
    #[must_use]
    pub fn cut(&self, limit: usize) -> ForeignText {
        ForeignText(line(&self.0, limit))
    }

    /// The text as a plain `str`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for ForeignText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for ForeignText {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// It is compared, ordered and hashed as its text: a map of them is asked with text.
impl Borrow<str> for ForeignText {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ForeignText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ForeignText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl From<&str> for ForeignText {
    fn from(text: &str) -> ForeignText {
        ForeignText::new(text)
    }
}

impl From<String> for ForeignText {
    fn from(text: String) -> ForeignText {
        ForeignText::new(text)
    }
}

impl From<ForeignText> for String {
    fn from(text: ForeignText) -> String {
        text.0
    }
}

impl PartialEq<str> for ForeignText {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for ForeignText {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl<'de> Deserialize<'de> for ForeignText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ForeignText, D::Error> {
        // A state file of an earlier version, or one that was written by hand, is as foreign as the rest.
        String::deserialize(deserializer).map(ForeignText::from)
    }
}

/// What somebody else's program printed, as it came: to be read by a parser of ours, not to be shown. Whoever shows a
/// part of it makes a [`ForeignText`] of that.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ForeignOutput(String);

impl ForeignOutput {
    /// The output as it came, for a parser.
    pub fn raw(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ForeignOutput {
    fn from(text: &str) -> ForeignOutput {
        ForeignOutput(text.to_owned())
    }
}

impl From<String> for ForeignOutput {
    fn from(text: String) -> ForeignOutput {
        ForeignOutput(text)
    }
}

impl fmt::Debug for ForeignOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&line(&self.0, ForeignText::MAX), f)
    }
}

/// The text on one line of at most `limit` characters: blanks and line breaks in a row become one blank, what
/// steers becomes visible as `\u{1b}`. Done twice it changes nothing more.
pub fn line(text: &str, limit: usize) -> String {
    let mut out = Bounded::new(limit);
    for word in text.split_whitespace() {
        if !out.text.is_empty() && !out.push(' ') {
            break;
        }
        if !word.chars().all(|c| out.push_visible(c)) {
            break;
        }
    }
    out.finish()
}

/// The text with its line breaks, for what is meant to have several lines; everything else as in [`line()`], but
/// blanks stay as they are and a tab is one.
pub fn lines(text: &str) -> Cow<'_, str> {
    let plain = |c: char| c == '\n' || !steers(c);
    if text.chars().all(plain) {
        return Cow::Borrowed(text);
    }
    let mut out = Bounded::new(usize::MAX);
    for c in text.chars() {
        match c {
            '\n' => out.push('\n'),
            '\t' => out.push(' '),
            c => out.push_visible(c),
        };
    }
    Cow::Owned(out.finish())
}

/// A JSON document as it may go to a terminal: what would steer it is escaped as JSON does. The document says the
/// same as before.
pub fn json(document: &str) -> Cow<'_, str> {
    use std::fmt::Write as _;
    let plain = |c: char| c == '\n' || !steers(c);
    if document.chars().all(plain) {
        return Cow::Borrowed(document);
    }
    let mut out = String::with_capacity(document.len());
    for c in document.chars() {
        if plain(c) {
            out.push(c);
        } else {
            // JSON writes what it must escape within strings alone, and nothing else can be there.
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    Cow::Owned(out)
}

/// UTF-8 whose bytes were taken for Latin-1, decoded again; other text as it is. PVE hands out so what the guest
/// agent says: `“` arrives as `â` and two C1 controls.
pub fn from_latin1(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let bytes: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(c).ok()).collect();
    let Some(bytes) = bytes else {
        return Cow::Borrowed(text);
    };
    let mut out = String::with_capacity(bytes.len());
    // A sequence may be cut in two at either end, where somebody took the last bytes of a log.
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|byte| char::from(*byte)));
    }
    Cow::Owned(out)
}

/// Whether a character does something to whoever shows it: controls (C0, DEL, C1), line and paragraph separators,
/// marks of direction, what has no width, tags, and the ends of planes that are no characters.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
        || u32::from(c) & 0xfffe == 0xfffe
}

/// A text that grows to a limit in characters.
struct Bounded {
    text: String,
    length: usize,
    limit: usize,
    cut: bool,
}

impl Bounded {
    fn new(limit: usize) -> Bounded {
        Bounded {
            text: String::new(),
            length: 0,
            limit,
            cut: false,
        }
    }

    /// Whether there was room.
    fn push(&mut self, c: char) -> bool {
        self.cut |= self.length >= self.limit;
        if !self.cut {
            self.text.push(c);
            self.length += 1;
        }
        !self.cut
    }

    /// An escape comes whole or not at all.
    fn push_visible(&mut self, c: char) -> bool {
        if !steers(c) {
            return self.push(c);
        }
        let escape = c.escape_unicode();
        self.cut |= self.limit - self.length < escape.len();
        !self.cut && escape.into_iter().all(|part| self.push(part))
    }

    fn finish(mut self) -> String {
        if self.cut {
            while self.length >= self.limit.max(1) {
                self.text.pop();
                self.length -= 1;
            }
            let kept = self.text.trim_end().len();
            self.text.truncate(kept);
            self.text.push(CUT);
        }
        self.text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What somebody who wishes us ill would send.
    const HOSTILE: &[&str] = &[
        "\0",
        "\n",
        "\r\n",
        "\nWATCHDOG=1\n",
        "\u{1b}]0;owned\u{7}",
        "\u{1b}[2J",
        "\u{9b}31m",
        "\u{202e}txt.exe",
        "\u{2028}",
        "\u{feff}",
        "\u{7f}",
        "\u{e0041}",
        "\u{ffff}",
    ];

    fn hostile() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            proptest::sample::select(HOSTILE).prop_map(str::to_owned),
            "\\PC{0,20}",
            any::<char>().prop_map(String::from),
            "[ \t\n]{0,4}",
        ];
        proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn any_text_is_one_bounded_line_that_steers_nothing(text in hostile(), limit in 1usize..200) {
            let shown = line(&text, limit);
            prop_assert!(shown.chars().count() <= limit, "{shown:?}");
            prop_assert!(!shown.chars().any(steers), "{shown:?}");
            prop_assert_eq!(line(&shown, limit), shown.clone());
            let whole = ForeignText::new(&text);
            prop_assert!(whole.chars().count() <= ForeignText::MAX);
            prop_assert_eq!(ForeignText::new(whole.as_str()), whole);
        }

        #[test]
        fn several_lines_stay_lines_and_nothing_else_of_it_steers(text in hostile()) {
            let shown = lines(&text);
            prop_assert!(!shown.chars().any(|c| c != '\n' && steers(c)), "{shown:?}");
            prop_assert_eq!(shown.matches('\n').count(), text.matches('\n').count());
            prop_assert_eq!(lines(&shown), shown.clone());
        }

        #[test]
        fn json_says_the_same_and_steers_nothing(text in hostile()) {
            let value = serde_json::json!({ text.clone(): [text.clone()] });
            let document = serde_json::to_string_pretty(&value).expect("written");
            let shown = json(&document);
            prop_assert!(!shown.chars().any(|c| c != '\n' && steers(c)), "{shown:?}");
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).expect("read"), value);
        }

        #[test]
        fn a_state_file_is_read_clean(text in hostile()) {
            let file = serde_json::to_string(&text).expect("written");
            let read: ForeignText = serde_json::from_str(&file).expect("read");
            prop_assert_eq!(read, ForeignText::new(&text));
        }

        #[test]
        fn utf8_taken_for_latin1_comes_back(text in "\\PC{0,60}") {
            let seen: String = text.bytes().map(char::from).collect();
            prop_assert_eq!(from_latin1(&seen), text);
        }

        #[test]
        fn a_log_that_was_cut_in_a_character_comes_back_but_for_that(text in "\\PC{1,30}", cut in 0usize..4) {
            let seen: String = text.bytes().skip(cut).map(char::from).collect();
            let back = from_latin1(&seen);
            let whole = text.char_indices().map(|(at, _)| at).find(|at| *at >= cut);
            prop_assert!(back.ends_with(whole.map_or("", |at| &text[at..])), "{back:?}");
        }
    }

    #[test]
    fn what_steers_is_seen() {
        let shown = ForeignText::new("a\0b\n c\u{1b}[31m\u{202e}d\u{9b}\te");
        assert_eq!(shown, r"a\u{0}b c\u{1b}[31m\u{202e}d\u{9b} e");
        assert_eq!(lines("a\n\tb\r\n\u{1b}"), "a\n b\\u{d}\n\\u{1b}");
        assert_eq!(
            json("{\"a\":\"\u{9b}\u{e0041}\"}"),
            "{\"a\":\"\\u009b\\udb40\\udc41\"}"
        );
    }

    #[test]
    fn what_is_too_long_is_cut_and_no_escape_in_the_middle() {
        assert_eq!(line("four four", 4), "fou…");
        assert_eq!(line("four", 4), "four");
        assert_eq!(line("a\u{1b}\u{1b}", 9), r"a\u{1b}…");
        assert_eq!(line("one two", 4), "one…");
        assert_eq!(line("x", 0), "…");
        let endless = "\0".repeat(1 << 20);
        assert!(ForeignText::new(endless).chars().count() <= ForeignText::MAX);
    }

    #[test]
    fn text_of_others_that_is_no_utf8_in_disguise_stays() {
        for text in ["plain", "Zürich", "“quoted”", "naïve 日本"] {
            assert_eq!(from_latin1(text), text);
        }
        assert_eq!(from_latin1("â\u{80}\u{9c}quotedâ\u{80}\u{9d}"), "“quoted”");
    }
}
