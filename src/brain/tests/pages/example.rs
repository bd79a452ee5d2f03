//! The worked example of a room's page, held to the code number by number.
//!
//! A test builds its world of the numbers that the page gives ([`Example::numbers`]), works it out, and says what came of it in the
//! page's own words ([`Example::says`]). In the end no number of the example may be left over ([`Example::end`]). So a page that changes
//! alone fails its test, and so does code that changes alone.

use std::ops::Range;
use std::path::Path;

use model::time::Time;

/// The example of one page: all from the heading that begins with `Example` to the next heading.
pub(crate) struct Example {
    /// The page, as a complaint names it.
    page: String,
    /// The words of the example with one blank between them, without backticks, emphasis, list marks and targets of links.
    words: String,
    /// By byte of `words`: a test has read it or said it.
    held: Vec<bool>,
}

impl Example {
    /// Reads the example of a room's page.
    pub(crate) fn of(room: &str) -> Example {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(room)
            .join("README.md");
        let page = path.display().to_string();
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{page}: {e}"));
        let (_, text) = text
            .split_once("\n## Example")
            .unwrap_or_else(|| panic!("{page} has no example"));
        let text = text.split("\n## ").next().unwrap_or_default();
        Example::read(page, text)
    }

    fn read(page: String, text: &str) -> Example {
        let lines = text.lines().map(plain);
        let words = lines.collect::<Vec<_>>().join(" ");
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        Example {
            page,
            held: vec![false; words.len()],
            words,
        }
    }

    /// The numbers that stand in these words, of which each `{}` is one; a number may have commas between its thousands.
    pub(crate) fn numbers<const N: usize>(&mut self, words: &str) -> [i64; N] {
        self.find(words).map(|found: String| {
            let digits = found.replace(',', "");
            let whole = digits.parse();
            whole.unwrap_or_else(|e| panic!("{}: {found} in {words}: {e}", self.page))
        })
    }

    /// The prices that stand in these words, in millionths.
    pub(crate) fn prices<const N: usize>(&mut self, words: &str) -> [i64; N] {
        self.find(words).map(|found: String| {
            let (whole, part) = found.split_once('.').unwrap_or((&found, ""));
            let digits = format!("{whole}{part:0<6}");
            let price = digits.parse();
            price.unwrap_or_else(|e| panic!("{}: {found} in {words}: {e}", self.page))
        })
    }

    /// The page says this.
    pub(crate) fn says(&mut self, words: &str) {
        let found: Vec<usize> = self.words.match_indices(words).map(|(at, _)| at).collect();
        assert!(
            !found.is_empty(),
            "{} does not say: {words}\nIts example is: {}",
            self.page,
            self.words
        );
        for at in found {
            self.hold(at..at + words.len());
        }
    }

    /// Every number of the example was read or said.
    pub(crate) fn end(&self) {
        let left = self.left();
        assert!(
            left.is_empty(),
            "{}: no test holds the numbers with which these words begin: {left:#?}",
            self.page
        );
    }

    /// Words that begin with a number which nothing holds. Digits that belong to a name (`n1`, `web-0`) are no number.
    fn left(&self) -> Vec<&str> {
        let bytes = self.words.as_bytes();
        let in_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        let (mut begins, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            let length = number_length(&bytes[at..]);
            let named = at > 0 && in_name(bytes[at - 1]);
            if length > 0 && !named && !self.held[at] {
                begins.push(at);
            }
            at += length.max(1);
        }
        let some = |at: usize| {
            let few = self.words[at..].split_inclusive(' ').take(6);
            let length: usize = few.map(str::len).sum();
            &self.words[at..at + length]
        };
        begins.into_iter().map(some).collect()
    }

    fn hold(&mut self, range: Range<usize>) {
        self.held[range].fill(true);
    }

    /// What stands at each `{}` of these words, at the first place that has them all.
    fn find<const N: usize>(&mut self, words: &str) -> [String; N] {
        let parts: Vec<&str> = words.split("{}").collect();
        assert_eq!(parts.len(), N + 1, "{words}");
        assert!(!parts[0].is_empty(), "begin with a word: {words}");
        let places = self.words.match_indices(parts[0]).map(|(at, _)| at);
        let mut found = places.filter_map(|at| Some((at, take(&self.words[at..], &parts)?)));
        let Some((at, (length, numbers))) = found.next() else {
            panic!("{} does not say: {words}", self.page)
        };
        self.hold(at..at + length);
        numbers.try_into().expect("one for each")
    }
}

/// The numbers between these parts, if the text begins with all of them, and how long all of it is.
fn take(text: &str, parts: &[&str]) -> Option<(usize, Vec<String>)> {
    let mut rest = text.strip_prefix(parts[0])?;
    let mut numbers = Vec::new();
    for part in &parts[1..] {
        let length = number_length(rest.as_bytes());
        numbers.push(rest[..length].to_owned());
        rest = rest[length..].strip_prefix(part).filter(|_| length > 0)?;
    }
    Some((text.len() - rest.len(), numbers))
}

/// How many bytes the number has with which a text begins: digits, and commas and points between them.
fn number_length(bytes: &[u8]) -> usize {
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut length = 0;
    while digit(length)
        || length > 0 && matches!(bytes.get(length), Some(b',' | b'.')) && digit(length + 1)
    {
        length += 1;
    }
    length
}

/// A line without its list mark, backticks, emphasis and targets of links.
fn plain(line: &str) -> String {
    let line = line.trim_start();
    let numbered = line
        .split_once(". ")
        .filter(|(number, _)| number.bytes().all(|b| b.is_ascii_digit()))
        .map(|(_, rest)| rest);
    let line = numbered.unwrap_or(line);
    let line = line
        .strip_prefix("* ")
        .unwrap_or(line)
        .replace(['`', '*'], "");
    let mut parts = line.split("](");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(part.split_once(')').map_or(part, |(_, rest)| rest));
    }
    plain
}

/// A number with commas between its thousands, as pages write large ones.
pub(crate) fn grouped(number: impl Into<i128>) -> String {
    let digits = number.into().to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Millionths as pages write prices: `0.25`.
pub(crate) fn price(millionths: i64) -> String {
    let text = format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The time of day: `11:06:40`.
pub(crate) fn clock(time: Time) -> String {
    let text = time.to_string();
    let (_, clock) = text.split_once('T').expect("a date and a time");
    clock.trim_end_matches('Z').to_owned()
}

/// A time of the same day.
pub(crate) fn time_of_day(day: Time, [hours, minutes, seconds]: [i64; 3]) -> Time {
    let midnight = day.0 - day.0.rem_euclid(86_400_000);
    Time(midnight + ((hours * 60 + minutes) * 60 + seconds) * 1_000)
}

#[test]
fn what_no_test_says_is_left_over() {
    let text = "1. Node `n1` has 1,500 millicores, at 11:06:40.\n   It costs 0.25 ([why](../a-2.md)).\n* **Two** of 4.";
    let mut example = Example::read("a page".into(), text);
    assert_eq!(example.numbers("n1 has {} millicores"), [1500]);
    assert_eq!(example.numbers("at {}:{}:{}."), [11, 6, 40]);
    assert_eq!(example.left(), ["0.25 ([why). Two of 4.", "4."]);
    assert_eq!(example.prices("costs {} ("), [250_000]);
    example.says("Two of 4");
    example.end();
}

#[test]
#[should_panic(expected = "does not say: 5 of them")]
fn what_a_page_does_not_say_fails() {
    Example::read("a page".into(), "There are 4 of them.").says("5 of them");
}
