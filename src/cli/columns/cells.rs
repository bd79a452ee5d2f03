//! Cells of a row beside one another, each folded in its own width, or below one another as a list. Pure.

use crate::screen::words;

/// Columns no wider than this are folded last of all: a point in time with its zone has so many letters.
const WHOLE: usize = 20;

/// Blanks before each cell.
pub(in super::super) const GAP: usize = 2;

/// How wide each column is so that all fit into `columns` and none is cut within a word; none is thinner than `thin` but
/// by nature. `None`: they do not fit.
pub(in super::super) fn widths<'a>(
    rows: impl Iterator<Item = &'a Vec<&'a str>>,
    columns: usize,
    thin: usize,
) -> Option<Vec<usize>> {
    let mut natural: Vec<usize> = Vec::new();
    let mut least: Vec<usize> = Vec::new();
    for row in rows {
        natural.resize(natural.len().max(row.len()), 0);
        least.resize(natural.len(), 0);
        for ((cell, natural), least) in row.iter().zip(&mut natural).zip(&mut least) {
            let word = words(cell).map(length).max().unwrap_or_default();
            *natural = (*natural).max(length(cell));
            *least = (*least).max(word);
        }
    }
    let room = columns.checked_sub(GAP * natural.len())?;
    let at = |level: usize, whole: usize| -> Vec<usize> {
        let both = natural.iter().zip(&least);
        let widths = both.map(|(natural, least)| match *natural {
            short if short <= whole => short,
            long => long.min(level).max(*least),
        });
        widths.collect()
    };
    // Short columns, such as points in time, are left whole where the others can be folded enough without them.
    [WHOLE, 0].into_iter().find_map(|whole| {
        let fits = |level: &usize| at(*level, whole).iter().sum::<usize>() <= room;
        let level = (thin..=columns).rev().find(fits)?;
        Some(at(level, whole))
    })
}

/// How wide each column is when nothing is folded.
pub(in super::super) fn unfolded<'a>(rows: impl Iterator<Item = &'a Vec<&'a str>>) -> Vec<usize> {
    let mut natural: Vec<usize> = Vec::new();
    for row in rows {
        natural.resize(natural.len().max(row.len()), 0);
        for (cell, natural) in row.iter().zip(&mut natural) {
            *natural = (*natural).max(length(cell));
        }
    }
    natural
}

/// The cells of a row beside one another but for the last, which stands below them with the heading of its column. Of the
/// heading's own row it is left out, and of one where it is empty. `widths`: those of the others.
pub(in super::super) fn last_below(
    out: &mut String,
    heading: &[&str],
    row: &[&str],
    widths: &[usize],
    indent: usize,
    columns: usize,
) {
    beside(out, row, widths);
    let at = widths.len();
    if let (Some(name), Some(cell)) = (heading.get(at), row.get(at))
        && !cell.is_empty()
        && heading != row
    {
        add_item(out, &format!("{name}: {cell}"), indent, columns);
    }
}

/// The cells of a row beside one another.
pub(in super::super) fn beside(out: &mut String, row: &[&str], widths: &[usize]) {
    let folded: Vec<Vec<String>> = row
        .iter()
        .zip(widths)
        .map(|(cell, width)| wrapped(cell, *width, 0))
        .collect();
    let lines = folded.iter().map(Vec::len).max().unwrap_or_default();
    for number in 0..lines {
        let mut line = String::new();
        for (cell, width) in folded.iter().zip(widths) {
            let part = cell.get(number).map_or("", String::as_str);
            line.push_str(&" ".repeat(GAP));
            line.push_str(part);
            line.push_str(&" ".repeat(width.saturating_sub(length(part))));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

/// The cells of a row as a list under its first one, each with the heading of its column; empty ones are left out.
pub(in super::super) fn below(
    out: &mut String,
    heading: &[&str],
    row: &[&str],
    indent: usize,
    columns: usize,
) {
    let mut named = heading.iter().zip(row);
    if let Some((_, first)) = named.next() {
        add_item(out, first, GAP, columns);
    }
    for (name, cell) in named.filter(|(_, cell)| !cell.is_empty()) {
        add_item(out, &format!("{name}: {cell}"), indent, columns);
    }
}

/// An item of a list, so far in; what does not fit goes on further in.
fn add_item(out: &mut String, text: &str, indent: usize, columns: usize) {
    for (number, line) in wrapped(text, columns - indent, GAP).into_iter().enumerate() {
        let hang = if number > 0 { GAP } else { 0 };
        out.push_str(&" ".repeat(indent + hang));
        out.push_str(&line);
        out.push('\n');
    }
}

/// Words in lines of at most so many characters, those after the first shorter by `hang`; a longer word has a line of its
/// own.
fn wrapped(text: &str, width: usize, hang: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words(text) {
        let room = if lines.len() > 1 {
            width.saturating_sub(hang)
        } else {
            width
        };
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if length(line) + 1 + length(word) <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn length(text: &str) -> usize {
    text.chars().count()
}
