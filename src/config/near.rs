//! Which known key a person meant by one that is not known. Whole words are compared: `rate` is no `create`, though all its letters
//! are in it, and `memory_manager_policy` is no `topology_manager_policy`.

/// Letters of a name at most that is compared: longer ones are no slip of the pen, and cost more.
const LONGEST: usize = 64;

/// The known name that a person meant: the same words with a slip of the pen, however they are joined; else the one that has a word more or
/// a word less, where there is one such name alone.
pub(crate) fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    if name.len() > LONGEST {
        return None;
    }
    let letters = plain(name);
    let slips = known.iter().map(|key| (slips(&letters, &plain(key)), *key));
    let slips = slips.filter_map(|(slips, key)| Some((slips?, key)));
    if let Some((_, key)) = slips.min() {
        return Some(key);
    }
    let wanted = words(name);
    let mut akin = known
        .iter()
        .filter(|key| differ_by_a_word(&wanted, &words(key)));
    let first = akin.next()?;
    akin.next().is_none().then_some(*first)
}

/// Letters to change, add, leave out or exchange with their neighbour; `None` where these are too many for a slip of the pen.
fn slips(one: &str, other: &str) -> Option<usize> {
    let most = match one.len().max(other.len()) {
        0..=3 => 0,
        4..=7 => 1,
        _ => 2,
    };
    let found = distance(one, other);
    (found <= most).then_some(found)
}

/// Whether one has all words of the other, in any order, and one more.
fn differ_by_a_word(one: &[&str], other: &[&str]) -> bool {
    let (short, long) = if one.len() < other.len() {
        (one, other)
    } else {
        (other, one)
    };
    let mut rest = long.to_vec();
    for word in short {
        let Some(at) = rest.iter().position(|of_long| of_long == word) else {
            return false;
        };
        rest.remove(at);
    }
    !short.is_empty() && rest.len() == 1
}

fn words(name: &str) -> Vec<&str> {
    let words = name.split(['_', '-', '.']);
    words.filter(|word| !word.is_empty()).collect()
}

/// Case, dashes and underscores are no difference.
fn plain(name: &str) -> String {
    let letters = name.chars().filter(|letter| !matches!(letter, '_' | '-'));
    letters.flat_map(char::to_lowercase).collect()
}

/// Letters to change, add, leave out or exchange with their neighbour until one text is the other.
pub(crate) fn distance(one: &str, other: &str) -> usize {
    let one: Vec<char> = one.chars().collect();
    let other: Vec<char> = other.chars().collect();
    // A row for each letter of `one`: what its beginning is away from each beginning of `other`.
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let changed = rows[i][j] + usize::from(a != b);
            let mut least = changed.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && one[i - 1] == *b && other[j - 1] == *a {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_meant_by_its_words_and_not_by_its_letters() {
        let keys = [
            "boot_disk",
            "bridge",
            "cpu_manager_policy",
            "create",
            "host_memory_reserve",
            "max",
            "min",
            "tags",
            "topology_manager_policy",
            "unneeded_time",
            "unready_time",
            "vm_name",
        ];
        for (name, wanted) in [
            // A slip of the pen, and words joined otherwise.
            ("uneeded_time", Some("unneeded_time")),
            ("unneededTime", Some("unneeded_time")),
            ("bootdisk", Some("boot_disk")),
            ("boot-dsk", Some("boot_disk")),
            ("bridges", Some("bridge")),
            ("tgas", Some("tags")),
            ("maxi", Some("max")),
            // A word more or less.
            ("name", Some("vm_name")),
            ("memory_reserve", Some("host_memory_reserve")),
            ("unneeded_time_seconds", Some("unneeded_time")),
            // Letters that are alike by accident.
            ("rate", None),
            ("memory_manager_policy", None),
            ("mix", None),
            // Several are as near.
            ("manager_policy", None),
            ("time", None),
            ("surprise", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, &keys), wanted, "{name}");
        }
        assert_eq!(nearest(&"a".repeat(10_000), &keys), None);
    }

    #[test]
    fn the_distance_is_in_letters() {
        for (one, other, letters) in [
            ("", "", 0),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("tgas", "tags", 1),
            ("rate", "create", 2),
            ("größe", "grösse", 2),
        ] {
            assert_eq!(distance(one, other), letters, "{one} {other}");
            assert_eq!(distance(other, one), letters, "{other} {one}");
        }
    }
}
