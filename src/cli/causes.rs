//! Causes of one answer, each told once: a cell of a table has the number of its cause, and what the number means stands
//! below the table, where it may be as long as it is. Pure.

use std::collections::BTreeMap;

use super::render::{one_line, section};

/// Characters of a cause that is told in every row that it is the cause of: a number would be no shorter by much.
const SHORT: usize = 30;

/// The causes told so far, in the order of their numbers.
#[derive(Debug)]
pub(super) struct Causes {
    known: Vec<String>,
    /// Causes stay where they are, however long and often they are there.
    wide: bool,
}

impl Causes {
    /// None yet.
    pub(super) fn new(wide: bool) -> Causes {
        let known = Vec::new();
        Causes { known, wide }
    }

    /// `what` for this cause: `would not run (2)`, or the cause itself where each row has its own.
    pub(super) fn of(&mut self, what: &str, cause: &str) -> String {
        self.of_all(what, [cause.to_owned()])
    }

    /// `what` for all of these causes together: `would not run (2, 3)`, or the causes themselves.
    pub(super) fn of_all(
        &mut self,
        what: &str,
        causes: impl IntoIterator<Item = String>,
    ) -> String {
        let causes = causes.into_iter().map(|cause| one_line(&cause));
        if self.wide {
            let causes: Vec<String> = causes.collect();
            return format!("{what}: {}", causes.join("; and "));
        }
        let numbers: Vec<String> = causes.map(|cause| self.number(cause).to_string()).collect();
        format!("{what} ({})", numbers.join(", "))
    }

    /// The number of a cause, 1 or more.
    fn number(&mut self, cause: String) -> usize {
        let at = self.known.iter().position(|known| *known == cause);
        let at = at.unwrap_or_else(|| {
            self.known.push(cause);
            self.known.len() - 1
        });
        at + 1
    }

    /// Whether this is one that stands below.
    pub(super) fn know(&self, cause: &str) -> bool {
        self.known.contains(&one_line(cause))
    }

    /// Tells what the numbers mean.
    pub(super) fn tell(&self, text: &mut String) {
        let rows = self.known.iter().enumerate();
        let rows = rows.map(|(at, cause)| vec![format!("({})", at + 1), cause.clone()]);
        section(text, "Why", &[], rows.collect());
    }
}

/// A cell that says why, in parts.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct WhyCell {
    parts: Vec<WhyPart>,
}

/// One cause in a cell.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct WhyPart {
    /// What it is the cause of; empty where the row says so.
    what: String,
    cause: String,
    /// What follows the cause.
    rest: String,
}

impl WhyPart {
    /// Whether nothing stands before the cause or behind it.
    fn is_cause_alone(&self) -> bool {
        self.what.is_empty() && self.rest.is_empty()
    }
}

impl WhyCell {
    /// A cell with one cause, and what follows it.
    pub(super) fn one(cause: &str, rest: &str) -> WhyCell {
        let part = WhyPart {
            what: String::new(),
            cause: one_line(cause),
            rest: rest.to_owned(),
        };
        let parts = vec![part];
        WhyCell { parts }
    }

    /// A cell with causes of several things: what each is the cause of, and the cause.
    pub(super) fn of_each(causes: Vec<(String, String)>) -> WhyCell {
        WhyCell::default().and(causes)
    }

    /// Whether it says nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The cell with causes of several things behind what it has.
    pub(super) fn and(mut self, causes: Vec<(String, String)>) -> WhyCell {
        let parts = causes.into_iter().map(|(what, cause)| WhyPart {
            what,
            cause,
            rest: String::new(),
        });
        self.parts.extend(parts);
        self
    }
}

/// Causes of several tables: one that stands in several cells has a number there, and is told once below. Others stay where they are.
#[derive(Debug)]
pub(super) struct SharedCauses {
    /// In how many cells each cause stands.
    cells: BTreeMap<String, usize>,
    told: Causes,
}

impl SharedCauses {
    /// The causes of all these cells. `wide`: all stay where they are.
    pub(super) fn among<'c>(wide: bool, cells: impl IntoIterator<Item = &'c WhyCell>) -> Self {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let parts = cells.into_iter().flat_map(|cell| &cell.parts);
        for part in parts.filter(|part| part.cause.chars().count() > SHORT) {
            *counts.entry(part.cause.clone()).or_default() += 1;
        }
        SharedCauses {
            cells: counts,
            told: Causes::new(wide),
        }
    }

    /// The cell as it is shown: `a/s2 (1); b/s4: Insufficient cpu`. Causes that nothing stands before are all told below where one
    /// of them is: `(1, 2)`.
    pub(super) fn write(&mut self, cell: &WhyCell) -> String {
        let is_shared = |part: &WhyPart| {
            let cells = self.cells.get(&part.cause);
            cells.is_some_and(|cells| *cells > 1)
        };
        let alone = cell.parts.len() > 1 && cell.parts.iter().all(WhyPart::is_cause_alone);
        if alone && !self.told.wide && cell.parts.iter().any(is_shared) {
            let causes = cell.parts.iter().map(|part| part.cause.clone());
            let numbers = causes.map(|cause| self.told.number(cause).to_string());
            return format!("({})", numbers.collect::<Vec<_>>().join(", "));
        }
        let parts = cell.parts.iter().map(|part| {
            let text = if is_shared(part) && !self.told.wide {
                let number = self.told.number(part.cause.clone());
                let gap = if part.what.is_empty() { "" } else { " " };
                format!("{}{gap}({number})", part.what)
            } else if part.what.is_empty() {
                part.cause.clone()
            } else {
                format!("{}: {}", part.what, part.cause)
            };
            text + &part.rest
        });
        parts.collect::<Vec<_>>().join("; ")
    }

    /// Tells what the numbers mean.
    pub(super) fn tell(&self, text: &mut String) {
        self.told.tell(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "75.0 % of its cpu is requested, the threshold is 50.0 %";

    #[test]
    fn a_cause_of_several_rows_is_told_once_below() {
        let other = "the pool has its max of 3 nodes, and none of them leaves";
        let cells = [
            WhyCell::one(LONG, "; looked at again in 5m"),
            WhyCell::of_each(vec![
                ("a/s2, b/s2".to_owned(), other.to_owned()),
                ("c/s4".to_owned(), LONG.to_owned()),
            ]),
            WhyCell::one("not ours", ""),
            WhyCell::one("not ours", ""),
        ];
        let shown = |wide: bool| {
            let mut causes = SharedCauses::among(wide, &cells);
            let rows: Vec<String> = cells.iter().map(|cell| causes.write(cell)).collect();
            let mut below = String::new();
            causes.tell(&mut below);
            (rows, below)
        };
        let (rows, below) = shown(false);
        let second = format!("a/s2, b/s2: {other}; c/s4 (1)");
        let expected = [
            "(1); looked at again in 5m",
            &second,
            "not ours",
            "not ours",
        ];
        assert_eq!(rows, expected);
        assert!(below.contains(&format!("(1)  {LONG}")), "{below}");
        let (rows, below) = shown(true);
        assert!(
            rows[0].starts_with(LONG) && rows[1].ends_with(LONG),
            "{rows:?}"
        );
        assert_eq!(below, "");
    }

    /// Found by it: `(1); 2 pods fit nowhere else: …; (2)`, in which nobody sees where a cause ends.
    #[test]
    fn causes_side_by_side_are_all_numbers_or_all_words() {
        let (other, third) = ("1 pod fits nowhere else: a/web-1", "its min is 2, it has 1");
        let several = |causes: &[&str]| {
            let parts = causes
                .iter()
                .map(|cause| (String::new(), (*cause).to_owned()));
            WhyCell::of_each(parts.collect())
        };
        let cells = [
            several(&[third, LONG, other]),
            WhyCell::one(LONG, ""),
            several(&[third, other]),
            several(&[third, "not ours"]),
        ];
        let shown = |wide: bool, cells: &[WhyCell]| {
            let mut causes = SharedCauses::among(wide, cells);
            let rows: Vec<String> = cells.iter().map(|cell| causes.write(cell)).collect();
            let mut below = String::new();
            causes.tell(&mut below);
            (rows, below)
        };
        let (rows, below) = shown(false, &cells);
        let words = format!("{third}; not ours");
        assert_eq!(rows, ["(1, 2, 3)", "(2)", "(1, 3)", &words]);
        for (number, cause) in [(1, third), (2, LONG), (3, other)] {
            let told = format!("({number})  {cause}");
            assert_eq!(below.matches(&told).count(), 1, "{below}");
        }
        let (rows, below) = shown(true, &cells);
        assert_eq!(rows[0], format!("{third}; {LONG}; {other}"));
        assert_eq!(below, "");
        // Where none of them stands elsewhere, they are words.
        let (rows, _) = shown(false, &cells[2..3]);
        assert_eq!(rows, [format!("{third}; {other}")]);
    }
}
