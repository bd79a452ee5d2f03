//! Text in columns on a terminal that is narrower than its lines. Of a table the last cell goes on below where it began;
//! where the cells before it leave too little room for that, it stands below its row, or all cells are folded, or each
//! row becomes a list of its cells. On the narrowest there are lists alone. What heads a section is bright. Pure.

use super::columns::{Columns, cells};
use crate::screen::{self, Flow};

/// Columns that a last cell needs at least below where it began; with fewer the other cells are folded, too.
const LEAST: usize = 24;
/// A cell that is folded beside others is no narrower than this: sentences in less are no sentences.
const THIN: usize = 14;
/// Where a line goes on that is no row of a table, and has no room below its last part.
const NEAR: usize = 6;
/// Where the cells of a row stand that became a list …
const LISTED: usize = 4;
/// … and where on a narrow terminal: a column further in than the first one.
const NARROW_LISTED: usize = 3;
/// Where a sentence goes on that stands by itself.
const SENTENCE: usize = 4;
/// On a terminal narrower than this there is no room for columns, and little for indents …
const NARROW: usize = 30;
/// … so that what goes on stands so far in …
const NARROW_INDENT: usize = 1;
/// … and on one narrower than this there is no room for words: it folds by itself.
const NOTHING: usize = 8;

const BOLD: &str = "\u{1b}[1m";
const YELLOW: &str = "\u{1b}[1;33m";
const RED: &str = "\u{1b}[1;31m";
const PLAIN: &str = "\u{1b}[0m";

/// What a person should look at first.
const CARE: &[&str] = &["On hold", "Warnings", "Views in trouble", "What failed"];
const WRONG: &[&str] = &["Wrong with the daemon"];

/// The text with no line longer than `columns`, as far as words allow. Nothing is lost but blanks.
pub(super) fn fold(text: &str, columns: usize) -> String {
    if columns < NOTHING {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    // A table stands under a title, or at the beginning.
    let mut titled = true;
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let table = Columns::of(line).filter(|_| titled);
        titled = !line.is_empty() && !line.starts_with(' ');
        let Some(table) = table else {
            fold_line(&mut out, line, columns);
            continue;
        };
        let mut rows = vec![line];
        while let Some(row) = lines.next_if(|row| row.starts_with("  ")) {
            rows.push(row);
        }
        fold_table(&mut out, &table, &rows, columns);
    }
    out
}

/// The text with its sentences folded and its tables as they are: each row on one line, however long that is.
pub(super) fn fold_prose(text: &str, columns: usize) -> String {
    if columns < NOTHING {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        // Rows and what goes on below them stand further in, headings in capitals as well.
        if line.starts_with(' ') {
            out.push_str(line);
            out.push('\n');
        } else {
            fold_line(&mut out, line, columns);
        }
    }
    out
}

/// Sentences, a line each, that no table is among: none longer than `columns`, as far as words allow.
pub(super) fn sentences(text: &str, columns: usize) -> String {
    if columns < NOTHING {
        return text.to_owned();
    }
    let hang = indent_of(SENTENCE, columns);
    let lines = text.lines().map(|line| {
        let begin = line.len() - line.trim_start_matches(' ').len();
        let hang = begin + hang;
        Flow { columns, hang }.line(line) + "\n"
    });
    lines.collect()
}

/// A line of which `text` goes on below itself, behind `head`; where there is no room for that, a little further in than the
/// line begins. Lines of the text after its first are sentences by themselves.
pub(super) fn headed_line(head: &str, text: &str, columns: usize) -> String {
    let (first, others) = text.split_once('\n').unwrap_or((text, ""));
    let began = head.chars().count();
    let indent = first.chars().take_while(|c| *c == ' ').count();
    let mut out = head.to_owned();
    if columns < NOTHING {
        out.push_str(first);
    } else {
        let hang = if began + indent + LEAST <= columns {
            began + indent
        } else {
            indent_of(NEAR, columns)
        };
        Flow { columns, hang }.append(&mut out, first, began, false);
    }
    for other in others.lines() {
        out.push('\n');
        out.push_str(sentences(other, columns).trim_end());
    }
    out.push('\n');
    out
}

/// An indent where there is room for it.
fn indent_of(wanted: usize, columns: usize) -> usize {
    if columns < NARROW {
        NARROW_INDENT
    } else {
        wanted
    }
}

/// A table, its heading first.
fn fold_table(out: &mut String, table: &Columns, rows: &[&str], columns: usize) {
    let longest = rows.iter().map(|row| row.chars().count()).max();
    let cells = rows
        .iter()
        .filter_map(|row| table.cut(row)?.last().copied());
    let room = cells.map(|cell| room_for(cell, columns)).max();
    if longest.unwrap_or_default() <= columns || table.last() + room.unwrap_or(LEAST) <= columns {
        for row in rows {
            fold_line(out, row, columns);
        }
        return;
    }
    let cut: Vec<Option<Vec<&str>>> = rows.iter().map(|row| table.cut(row)).collect();
    let cut = without_empty_columns(&cut);
    let heading = cut.first().cloned().flatten().unwrap_or_default();
    let widths = cells::widths(cut.iter().flatten(), columns, THIN).filter(|_| columns >= NARROW);
    let before_last = widths_before_last(&cut, widths.as_deref(), columns);
    let listed = if columns < NARROW {
        NARROW_LISTED
    } else {
        LISTED
    };
    for (row, cut) in rows.iter().zip(&cut) {
        match (cut, &before_last, &widths) {
            // No row of it: what was left out, or a cell with what steers a terminal in it.
            (None, ..) => fold_line(out, row, columns),
            (Some(cut), Some(whole), _) => {
                cells::last_below(out, &heading, cut, whole, listed, columns);
            }
            (Some(cut), None, Some(widths)) => cells::beside(out, cut, widths),
            (Some(cut), None, None) if *cut == heading => {}
            (Some(cut), None, None) => cells::below(out, &heading, cut, listed, columns),
        }
    }
}

/// How wide the columns before the last one are, where they fit on one line and the last one has no room beside them or
/// would be too thin for a sentence: then each last cell stands below its row, as wide as the terminal. `widths`: those of
/// all beside one another, where they fit.
fn widths_before_last(
    rows: &[Option<Vec<&str>>],
    widths: Option<&[usize]>,
    columns: usize,
) -> Option<Vec<usize>> {
    let mut whole = cells::unfolded(rows.iter().flatten());
    let last = whole.pop()?;
    let given = widths.and_then(|widths| widths.last());
    let thin = given.is_none_or(|width| *width < LEAST.min(last));
    let fits = whole.iter().map(|width| cells::GAP + width).sum::<usize>() <= columns;
    (columns >= NARROW && thin && fits).then_some(whole)
}

/// The rows, the heading first, without the columns in which no row has anything: they take room that the others lack.
fn without_empty_columns<'a>(rows: &[Option<Vec<&'a str>>]) -> Vec<Option<Vec<&'a str>>> {
    let says = |column: usize| {
        let mut cells = rows.iter().skip(1).flatten();
        cells.any(|row| row.get(column).is_some_and(|cell| !cell.is_empty()))
    };
    let most = rows
        .iter()
        .flatten()
        .map(Vec::len)
        .max()
        .unwrap_or_default();
    let kept: Vec<usize> = (0..most).filter(|at| *at == 0 || says(*at)).collect();
    let rows = rows.iter().map(|row| {
        let cells = kept.iter().filter_map(|at| row.as_ref()?.get(*at).copied());
        row.as_ref().map(|_| cells.collect())
    });
    rows.collect()
}

fn fold_line(out: &mut String, line: &str, columns: usize) {
    if line.chars().count() <= columns {
        out.push_str(line);
        out.push('\n');
        return;
    }
    let (head, last) = split(line, columns);
    let began = head.chars().count();
    let indent = line.chars().take_while(|c| *c == ' ').count();
    let hang = if head.trim().is_empty() && indent == 0 {
        // A sentence: what looks like a row below it would make it a heading.
        0
    } else if head.trim().is_empty() {
        indent + indent_of(2, columns)
    } else if began + room_for(last, columns) <= columns {
        began
    } else {
        indent_of(NEAR, columns)
    };
    out.push_str(head);
    Flow { columns, hang }.append(out, last, began, head.trim().is_empty());
    out.push('\n');
}

/// Columns that text needs below where it began: more than the least where a word of it is longer, as long as that has room on
/// a line of its own.
fn room_for(text: &str, columns: usize) -> usize {
    let words = screen::words(text).map(|word| word.chars().count());
    let words = words.filter(|length| length + NEAR <= columns);
    words.max().unwrap_or_default().max(LEAST)
}

/// The line up to where its last column begins, and that column. Where it would begin outside of the terminal there is none.
fn split(line: &str, columns: usize) -> (&str, &str) {
    let start = line.len() - line.trim_start().len();
    let at = line[start..].rfind("  ").map_or(start, |at| start + at + 2);
    let outside = line[..at].trim_end().chars().count() > columns;
    line.split_at(if outside { start } else { at })
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

/// Sentences with the grade at their beginning coloured, where a person should look.
pub(super) fn paint_grades(text: &str) -> String {
    let grades = [("WRONG:", RED), ("warning:", YELLOW), ("unseen:", YELLOW)];
    let lines = text.lines().map(|line| {
        let graded = grades.iter().find(|(grade, _)| line.starts_with(grade));
        match graded {
            Some((grade, colour)) => format!("{colour}{grade}{PLAIN}{}\n", &line[grade.len()..]),
            None => format!("{line}\n"),
        }
    });
    lines.collect()
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
        assert_eq!(fold(TABLE, 7), TABLE, "there is no room for words");
        let narrow = fold(TABLE, 20);
        let wanted = "Pods without a node\n  default/web-1\n   OUTCOME: waits\n   WHY: p/small:\n     cpu: asks 3, a\n";
        assert!(narrow.starts_with(wanted), "{narrow}");
    }

    const WIDE: &str = "New machines\n  POOL/TYPE      FREE                   POD                                  NOW\n  workers/small  cpu 1.9, memory 3.5Gi  would not run: cpu: asks 5 of 1.9    yes\n  workers/big    cpu 3.9                would run                            no: the pool has its max of 3 nodes\n  … and 12 more; -o json has them all, and is for programs, which have no need of a terminal\n";

    /// Found by it: below a table that is shown wide, sentences torn within a word.
    #[test]
    fn below_a_wide_table_sentences_are_folded() {
        let text = "  TEMPLATE  NAME\n  debian    a-name-that-is-as-long-as-names-become\n\nNothing needs VM 4: `pve-autoscaler template prune` removes it.\n";
        let wanted = "  TEMPLATE  NAME\n  debian    a-name-that-is-as-long-as-names-become\n\nNothing needs VM 4: `pve-autoscaler\n";
        let folded = fold_prose(text, 40);
        assert!(folded.starts_with(wanted), "{folded}");
        let below = folded.lines().skip(4);
        assert!(below.clone().count() > 0 && below.clone().all(|line| line.chars().count() <= 40));
    }

    /// Found by it: the time of a row in two lines, for a reason that is long.
    #[test]
    fn a_point_in_time_stays_whole_where_the_others_can_be_folded() {
        let text = "  TIME (Europe/Berlin)  WHAT                                            WHY\n  2026-11-30 04:21:09   workers-abcde is a working node on the host pve1  after 44s, for a pod that waited for a place that nothing else had for it\n";
        let folded = fold(text, 80);
        assert!(folded.contains("2026-11-30 04:21:09"), "{folded}");
        assert!(
            folded.lines().all(|line| line.chars().count() <= 80),
            "{folded}"
        );
    }

    #[test]
    fn wide_columns_before_the_last_are_folded_too() {
        let wanted = "New machines\n  POOL/TYPE      FREE              POD               NOW\n  workers/small  cpu 1.9, memory   would not run:    yes\n                 3.5Gi             cpu: asks 5 of\n                                   1.9\n  workers/big    cpu 3.9           would run         no: the pool has\n                                                     its max of 3\n                                                     nodes\n  … and 12 more; -o json has them all, and is for programs, which have\n    no need of a terminal\n";
        assert_eq!(fold(WIDE, 71), wanted);
        assert_eq!(fold(WIDE, 200), WIDE);
    }

    /// Found by it: pools that are lists on a terminal of 60 columns for a column in which there is nothing.
    #[test]
    fn a_column_with_nothing_in_it_goes_first() {
        let pools = "Pools\n  POOL     MIN  MAX  READY  COMING  LEAVING  UNREADY  BACK-OFF\n  batch    0    4    2      0       0        0\n  general  0    8    6      0       0        0\n";
        let wanted = "Pools\n  POOL     MIN  MAX  READY  COMING  LEAVING  UNREADY\n  batch    0    4    2      0       0        0\n  general  0    8    6      0       0        0\n";
        assert_eq!(fold(pools, 60), wanted);
        assert_eq!(fold(pools, 62), pools);
        let waits = pools.replace(
            "batch    0    4    2      0       0        0",
            "batch    0    4    2      0       0        0        5m",
        );
        assert!(
            fold(&waits, 60).contains("BACK-OFF"),
            "{}",
            fold(&waits, 60)
        );
        let alone = fold("  A  B\n  and this is far longer than it may be\n", 20);
        assert!(alone.contains("longer"), "{alone}");
    }

    /// Found by it: the note of a storage in a column of 14 on 80 columns, five lines high.
    #[test]
    fn a_last_column_that_would_be_thin_stands_below_its_row() {
        let storages = "Storages\n  STORAGE    HOST  FREE           PROMISED  LEFT FOR MACHINES  NOTE\n  local-lvm  pve1  30Gi of 200Gi  160Gi     0                  no room for a machine of the pool workers, which asks for 20Gi\n  other      pve2  10Gi of 200Gi  20Gi      80Gi\n";
        let wanted = "Storages\n  STORAGE    HOST  FREE           PROMISED  LEFT FOR MACHINES\n  local-lvm  pve1  30Gi of 200Gi  160Gi     0\n    NOTE: no room for a machine of the pool workers, which asks for 20Gi\n  other      pve2  10Gi of 200Gi  20Gi      80Gi\n";
        assert_eq!(fold(storages, 80), wanted);
        let narrower = fold(storages, 68);
        assert!(
            narrower.contains("\n    NOTE: no room for a machine of the pool workers, which asks for\n      20Gi\n"),
            "{narrower}"
        );
        // With room for a sentence it stays beside its row.
        assert!(fold(storages, 90).contains("MACHINES  NOTE\n"));
    }

    #[test]
    fn a_table_without_room_becomes_lists() {
        let wanted = "New machines\n  workers/small\n    FREE: cpu 1.9, memory 3.5Gi\n    POD: would not run: cpu: asks 5 of\n      1.9\n    NOW: yes\n  workers/big\n    FREE: cpu 3.9\n    POD: would run\n    NOW: no: the pool has its max of 3\n      nodes\n";
        let text = fold(WIDE, 40);
        assert!(text.starts_with(wanted), "{text}");
    }

    #[test]
    fn what_is_folded_says_the_same_and_fits() {
        let words = |text: &str| {
            let mut words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
            words.sort();
            words
        };
        let long = format!("  {}\n", "x".repeat(200));
        for columns in 8..180 {
            for text in [
                TABLE,
                WIDE,
                &long,
                "a sentence of some words that is longer than the line can be, by far\n",
                "",
                "\n",
                "   \n",
            ] {
                let folded = fold(text, columns);
                let there = words(&folded);
                for word in words(text) {
                    let heads = word.chars().all(|c| c.is_uppercase() || c == '/');
                    assert!(
                        heads || there.contains(&word),
                        "{columns}: {word} is not in {folded}"
                    );
                }
                let wide = |line: &&str| line.chars().count() > columns;
                // A word that has no room beside its indent is not cut.
                let one = |line: &str| line.split_whitespace().count() == 1;
                assert!(folded.lines().filter(wide).all(one), "{columns}: {folded}");
            }
        }
    }

    /// A taint is one word, and longer than what is left beside the other columns.
    #[test]
    fn a_word_that_has_no_room_below_its_column_makes_the_columns_thinner() {
        let text = "Pods without a node\n  POD                           OUTCOME             WHY\n  default/a-pod-with-long-name  no pool can run it  p/small: taint dedicated=batch:NoSchedule is not tolerated\n";
        for columns in [60, 70, 76, 78, 80, 84, 90] {
            let folded = fold(text, columns);
            let longest = folded.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(columns), "{columns}: {folded}");
        }
    }

    /// Found by it: lines of a build as wide as what a program of the guest said.
    #[test]
    fn a_line_with_a_head_goes_on_below_its_text() {
        let head = "debian on pve1    12 s  ";
        let text = "VM 9120 is kept; the next trial of the template removes it";
        assert_eq!(headed_line(head, text, 100), format!("{head}{text}\n"));
        let below = " ".repeat(head.len());
        assert_eq!(
            headed_line(head, text, 60),
            format!("{head}VM 9120 is kept; the next trial of\n{below}the template removes it\n")
        );
        assert_eq!(
            headed_line(head, &format!("  {text}"), 60),
            format!(
                "{head}  VM 9120 is kept; the next trial of\n{below}  the template removes it\n"
            )
        );
        let narrow = headed_line(head, text, 40);
        let mut further = narrow.lines().skip(1).peekable();
        assert!(further.peek().is_some(), "{narrow}");
        assert!(further.all(|line| line.starts_with("      ")), "{narrow}");
        assert!(
            narrow.lines().all(|line| line.chars().count() <= 40),
            "{narrow}"
        );
        assert_eq!(headed_line("a  ", "b\nc d", 80), "a  b\nc d\n");
        assert_eq!(headed_line("a  ", "b c", 7), "a  b c\n");
    }

    /// What a finding goes on with stands further in than its beginning, and nothing but its grade is bright.
    #[test]
    fn a_graded_sentence_goes_on_further_in_and_its_grade_alone_is_bright() {
        let path = "/a/path/of/some/length".repeat(4);
        let text = format!(
            "ok: daemon: the record in {path} is read by others\nWRONG: template: no\n    to mend it: type {path} now\n"
        );
        let folded = sentences(&text, 60);
        let lines = folded.lines().filter(|line| !line.starts_with(' '));
        assert_eq!(lines.count(), 2, "{folded}");
        let painted = paint_grades(&folded);
        assert_eq!(painted.matches('\u{1b}').count(), 2, "{painted}");
        assert!(
            painted.contains(&format!("{RED}WRONG:{PLAIN} template: no\n")),
            "{painted}"
        );
    }

    #[test]
    fn headings_of_sections_are_bright_and_nothing_else() {
        assert_eq!(
            paint("On hold\n  pool x\n\nNothing to do now.\n\n"),
            format!("{YELLOW}On hold{PLAIN}\n  pool x\n\nNothing to do now.\n\n")
        );
    }
}
