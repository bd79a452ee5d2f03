//! Where the columns of a table begin, and how its cells are laid out in fewer columns of a terminal. Pure.

pub(super) mod cells;

/// Where each column begins, in characters from the left.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Columns(Vec<usize>);

impl Columns {
    /// Those of a table with this heading: capitals, at least two columns of them, with two blanks or more in between.
    /// What stands in brackets may be small, as `TIME (Europe/Berlin)`.
    pub(super) fn of(heading: &str) -> Option<Columns> {
        let mut named = heading.split(')').filter_map(|part| part.split('(').next());
        let small = named.any(|part| part.chars().any(char::is_lowercase));
        if small || !heading.starts_with("  ") {
            return None;
        }
        let mut blanks = 0;
        let mut starts = Vec::new();
        for (at, letter) in heading.chars().enumerate() {
            if letter == ' ' {
                blanks += 1;
                continue;
            }
            if blanks >= 2 {
                starts.push(at);
            }
            blanks = 0;
        }
        (starts.len() > 1).then_some(Columns(starts))
    }

    /// Where the last one begins.
    pub(super) fn last(&self) -> usize {
        self.0.last().copied().unwrap_or_default()
    }

    /// The cells of a row; `None` where it is none of this table: something stands where two blanks must.
    pub(super) fn cut<'a>(&self, row: &'a str) -> Option<Vec<&'a str>> {
        let place: Vec<usize> = row.char_indices().map(|(at, _)| at).collect();
        let byte = |column: usize| place.get(column).copied().unwrap_or(row.len());
        let ends = self.0.iter().skip(1).map(|start| start - 2);
        let ends = ends.chain([usize::MAX]);
        let mut cells = Vec::new();
        for (number, (start, end)) in self.0.iter().zip(ends).enumerate() {
            if number > 0 && !row[byte(start - 2)..byte(*start)].trim().is_empty() {
                return None;
            }
            cells.push(row[byte(*start)..byte(end)].trim_end());
        }
        Some(cells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_cut_where_the_heading_says() {
        let table = Columns::of("  POD/X  POSSIBLE NOW  WHY").expect("a table");
        assert_eq!(table, Columns(vec![2, 9, 23]));
        let cut = |row| table.cut(row);
        assert_eq!(
            cut("  a      yes           ä  b"),
            Some(vec!["a", "yes", "ä  b"])
        );
        assert_eq!(cut("  ä"), Some(vec!["ä", "", ""]));
        assert_eq!(cut("  a much too long cell"), None);
        assert!(Columns::of("  TIME (Europe/Berlin)  WHY").is_some());
        for line in ["  one two", "  ONE", "ONE  TWO", "", "  a  B"] {
            assert_eq!(Columns::of(line), None, "{line:?}");
        }
    }
}
