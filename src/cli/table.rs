//! Text in columns.

/// Rows of cells under a heading, aligned to the left, each line indented by two.
pub(super) fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = heading.iter().map(|cell| width(cell)).collect();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            match widths.get_mut(column) {
                Some(widest) => *widest = (*widest).max(width(cell)),
                None => widths.push(width(cell)),
            }
        }
    }
    let heading: Vec<String> = heading.iter().map(ToString::to_string).collect();
    let mut text = String::new();
    for row in std::iter::once(&heading).chain(rows) {
        if row.is_empty() {
            continue;
        }
        let mut line = String::new();
        for (cell, widest) in row.iter().zip(&widths) {
            line.push_str("  ");
            line.push_str(cell);
            line.push_str(&" ".repeat(widest - width(cell)));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn width(text: &str) -> usize {
    text.chars().count()
}
