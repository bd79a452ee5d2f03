//! The known word that is most like an unknown one, for messages.

/// How different a word may be to be named, in thirds of its letters.
const TOLERANCE: usize = 3;

/// `; did you mean "…"?` when a known word is much like this one, else nothing.
pub(super) fn hint<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    nearest(word, known).map_or_else(String::new, |known| format!("; did you mean {known:?}?"))
}

fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let word = plain(word);
    known
        .into_iter()
        .map(|candidate| (distance(&word, &plain(candidate)), candidate))
        .filter(|(distance, _)| *distance <= word.len() / TOLERANCE)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Case, dashes and underscores are no difference.
fn plain(word: &str) -> Vec<char> {
    word.chars()
        .filter(|letter| !matches!(letter, '-' | '_'))
        .flat_map(char::to_lowercase)
        .collect()
}

/// Letters to change, add or leave out.
fn distance(left: &[char], right: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, letter) in left.iter().enumerate() {
        let mut before = row[0];
        row[0] = index + 1;
        for (at, other) in right.iter().enumerate() {
            let changed = before + usize::from(letter != other);
            before = row[at + 1];
            row[at + 1] = changed.min(before + 1).min(row[at] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_pen_are_seen() {
        let known = ["tolerations", "nodeSelector", "node", "pods"];
        for (word, wanted) in [
            ("toleration", Some("tolerations")),
            ("node_selector", Some("nodeSelector")),
            ("Pods", Some("pods")),
            ("weather", None),
            ("x", None),
        ] {
            assert_eq!(nearest(word, known), wanted, "{word}");
        }
    }
}
