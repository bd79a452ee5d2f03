//! What standard output is, and text laid out for it: how many columns a terminal has, whether it takes colours, and
//! where a line that is too long for it goes on.

use std::io::IsTerminal as _;
use std::os::fd::AsFd;

/// What standard output is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Screen {
    /// Columns of the terminal; `None` where it is none, or tells no width.
    pub(crate) columns: Option<usize>,
    /// It takes colours.
    pub(crate) colours: bool,
}

impl Screen {
    /// What it is now. No colours where `NO_COLOR` is set to anything (<https://no-color.org>), or `TERM` is `dumb`
    /// or not set.
    pub(crate) fn now() -> Screen {
        let output = std::io::stdout();
        let named = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let term = std::env::var("TERM").unwrap_or_default();
        let is_terminal = output.is_terminal();
        Screen {
            columns: columns_of(&output),
            colours: is_terminal && !named("NO_COLOR") && !matches!(&*term, "" | "dumb"),
        }
    }
}

/// Columns of the terminal that standard error is; `None` where it is none, or tells no width.
pub(crate) fn columns_of_errors() -> Option<usize> {
    columns_of(&std::io::stderr())
}

fn columns_of(output: &(impl AsFd + std::io::IsTerminal)) -> Option<usize> {
    let size = terminal_size::terminal_size_of(output);
    let told = size.map(|(width, _)| usize::from(width.0));
    // A terminal that does not know its own width, such as a serial line, may be told it.
    let typed = || std::env::var("COLUMNS").ok()?.parse().ok();
    let columns = told.filter(|width| *width > 0).or_else(typed);
    columns.filter(|width| output.is_terminal() && *width > 0)
}

/// Rows of the terminal that standard output is; `None` where it is none, or tells no height.
pub(crate) fn rows() -> Option<usize> {
    let (_, height) = terminal_size::terminal_size_of(std::io::stdout())?;
    Some(usize::from(height.0)).filter(|rows| *rows > 0)
}

/// The words of a text. A number and its percent sign are one: between them no line ends.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut blanks = text.match_indices(' ').map(|(at, _)| at);
        let end = blanks.find(|at| !text[at + 1..].starts_with('%'));
        rest = end.map(|at| &text[at + 1..]);
        Some(&text[..end.unwrap_or(text.len())])
    })
}

/// Where text goes on that is too long for its line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    /// Columns of a line.
    pub(crate) columns: usize,
    /// How far in it goes on.
    pub(crate) hang: usize,
}

impl Flow {
    /// Appends the text to a line on which `at` columns are taken already, by blanks alone if `blank`. A word that is
    /// longer than a line stays whole.
    pub(crate) fn append(self, out: &mut String, text: &str, mut at: usize, mut blank: bool) {
        for (number, word) in words(text).enumerate() {
            let length = word.chars().count();
            let glue = usize::from(number > 0 && !blank);
            if at + glue + length > self.columns && !blank {
                out.truncate(out.trim_end_matches(' ').len());
                out.push('\n');
                out.push_str(&" ".repeat(self.hang));
                at = self.hang;
            } else if glue > 0 {
                out.push(' ');
                at += 1;
            }
            out.push_str(word);
            at += length;
            // Nothing but blanks stands on the line yet: a word that is too long is no shorter on the next one.
            blank = blank && length == 0;
        }
        out.truncate(out.trim_end_matches(' ').len());
    }

    /// A line that begins at the left, without its end.
    pub(crate) fn line(self, text: &str) -> String {
        let mut out = String::new();
        let begin = text.len() - text.trim_start_matches(' ').len();
        out.push_str(&text[..begin]);
        self.append(&mut out, &text[begin..], begin, true);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_its_percent_sign_are_one_word() {
        let cut = |text| words(text).collect::<Vec<_>>();
        assert_eq!(cut("is 50.0 %; so"), ["is", "50.0 %;", "so"]);
        for text in ["", " ", "a", " a  b ", "a b"] {
            assert_eq!(cut(text), text.split(' ').collect::<Vec<_>>(), "{text:?}");
        }
        let flow = Flow {
            columns: 14,
            hang: 2,
        };
        assert_eq!(flow.line("  it is 50.0 % now"), "  it is 50.0 %\n  now");
        assert_eq!(flow.line("   it is 50.0 % now"), "   it is\n  50.0 % now");
    }

    #[test]
    fn a_line_goes_on_below_itself_and_no_word_is_cut() {
        let flow = |columns, hang| Flow { columns, hang };
        let text = "pool a: 0 to 3 nodes of small, hosts all";
        assert_eq!(flow(80, 4).line(text), text);
        assert_eq!(
            flow(20, 4).line(text),
            "pool a: 0 to 3 nodes\n    of small, hosts\n    all"
        );
        assert_eq!(flow(4, 1).line("  abcdefgh i"), "  abcdefgh\n i");
        assert_eq!(flow(3, 1).line(""), "");
        for columns in 1..60 {
            for hang in [0, 1, 4] {
                let folded = flow(columns, hang).line(text);
                let words: Vec<&str> = folded.split_whitespace().collect();
                assert_eq!(words, text.split_whitespace().collect::<Vec<_>>());
                let long = |line: &str| line.chars().count() > columns;
                let one = |line: &str| line.split_whitespace().count() == 1;
                assert!(
                    folded.lines().all(|line| !long(line) || one(line)),
                    "{folded}"
                );
            }
        }
    }
}
