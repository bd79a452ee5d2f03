//! Text in columns on a terminal that is narrower than its lines: what is too long goes on below where its last column
//! began, and what heads a section is bright. Pure.

/// Columns that a last cell needs at least below where it began; with fewer it goes on near the left.
const LEAST: usize = 24;
/// Where it goes on then.
const NEAR: usize = 6;
/// A terminal narrower than this folds by itself: there is no room for columns.
const NARROW: usize = 30;

const BOLD: &str = "\u{1b}[1m";
const YELLOW: &str = "\u{1b}[1;33m";
const RED: &str = "\u{1b}[1;31m";
const PLAIN: &str = "\u{1b}[0m";

/// What a person should look at first.
const CARE: &[&str] = &[
    "On hold",
    "Warnings",
    "Views in trouble",
    "What failed, in full",
];
const WRONG: &[&str] = &["Wrong with the daemon"];

/// The text with no line longer than `columns`, as far as words allow. Nothing is lost but blanks.
pub(super) fn fold(text: &str, columns: usize) -> String {
    if columns < NARROW {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        fold_line(&mut out, line, columns);
    }
    out
}

fn fold_line(out: &mut String, line: &str, columns: usize) {
    if line.chars().count() <= columns {
        out.push_str(line);
        out.push('\n');
        return;
    }
    let (head, last) = split(line);
    let began = head.chars().count();
    let indent = line.chars().take_while(|c| *c == ' ').count();
    let hang = if head.trim().is_empty() && indent == 0 {
        // A sentence: what looks like a row below it would make it a heading.
        0
    } else if head.trim().is_empty() {
        indent + 2
    } else if began + LEAST <= columns {
        began
    } else {
        NEAR
    };
    out.push_str(head);
    let mut at = began;
    // Nothing but blanks stands on the line yet: a word that is too long is no shorter on the next one.
    let mut blank = head.trim().is_empty();
    for (number, word) in last.split(' ').enumerate() {
        let length = word.chars().count();
        let glue = usize::from(number > 0 && !blank);
        if at + glue + length > columns && !blank {
            trim_end(out);
            out.push('\n');
            out.push_str(&" ".repeat(hang));
            at = hang;
        } else if glue > 0 {
            out.push(' ');
            at += 1;
        }
        out.push_str(word);
        at += length;
        blank = blank && length == 0;
    }
    trim_end(out);
    out.push('\n');
}

fn trim_end(out: &mut String) {
    out.truncate(out.trim_end_matches(' ').len());
}

/// The line up to where its last column begins, and that column.
fn split(line: &str) -> (&str, &str) {
    let start = line.len() - line.trim_start().len();
    let at = line[start..].rfind("  ").map_or(start, |at| start + at + 2);
    line.split_at(at)
}

/// The text with its headings bright, where a section follows.
pub(super) fn paint(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let heads = lines.peek().is_some_and(|next| next.starts_with("  "));
        if heads && !line.is_empty() && !line.starts_with(' ') {
            let colour = if WRONG.contains(&line) {
                RED
            } else if CARE.contains(&line) {
                YELLOW
            } else {
                BOLD
            };
            for part in [colour, line, PLAIN, "\n"] {
                out.push_str(part);
            }
        } else {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "Pods without a node\n  POD            OUTCOME   WHY\n  default/web-1  waits     p/small: cpu: asks 3, a node offers 2 after DaemonSets; p/large: the pool has its max\n\nThe end of it\n";

    #[test]
    fn the_last_column_goes_on_below_itself() {
        let text = fold(TABLE, 60);
        let wanted = "Pods without a node\n  POD            OUTCOME   WHY\n  default/web-1  waits     p/small: cpu: asks 3, a node\n                           offers 2 after DaemonSets;\n                           p/large: the pool has its max\n\nThe end of it\n";
        assert_eq!(text, wanted);
        assert_eq!(fold(TABLE, 200), TABLE);
        assert_eq!(fold(TABLE, 10), TABLE, "there is no room for columns");
    }

    #[test]
    fn a_last_column_without_room_goes_on_near_the_left() {
        let text = fold(TABLE, 44);
        assert!(text.contains("\n      asks 3"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 44),
            "{text}"
        );
    }

    #[test]
    fn what_is_folded_says_the_same() {
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let long = format!("  {}\n", "x".repeat(200));
        for columns in 30..140 {
            for text in [
                TABLE,
                &long,
                "a sentence of some words that is longer than the line can be, by far\n",
                "",
                "\n",
                "   \n",
            ] {
                assert_eq!(words(&fold(text, columns)), words(text), "{columns}");
            }
        }
    }

    #[test]
    fn headings_of_sections_are_bright_and_nothing_else() {
        assert_eq!(
            paint("On hold\n  pool x\n\nNothing to do now.\n\n"),
            format!("{YELLOW}On hold{PLAIN}\n  pool x\n\nNothing to do now.\n\n")
        );
    }
}
