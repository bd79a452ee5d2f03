//! Which keys of a file are not as they were.

use std::collections::{BTreeMap, BTreeSet};

use toml::Value;

/// The keys that one of two files has and the other has not, or has with another value: names alone, never values. A list is one value.
/// Nothing where one of them cannot be read.
pub fn changed_keys(before: &str, after: &str) -> Vec<String> {
    let (Some(old), Some(new)) = (list_values(before), list_values(after)) else {
        return Vec::new();
    };
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let changed = keys
        .into_iter()
        .filter(|key| old.get(*key) != new.get(*key));
    changed.cloned().collect()
}

/// Each value of a file by its whole key.
fn list_values(text: &str) -> Option<BTreeMap<String, Value>> {
    let file = text.parse::<toml::Table>().ok()?;
    let mut values = BTreeMap::new();
    gather("", Value::Table(file), &mut values);
    Some(values)
}

fn gather(at: &str, value: Value, values: &mut BTreeMap<String, Value>) {
    match value {
        Value::Table(table) if !table.is_empty() => {
            for (key, inner) in table {
                let whole = match at {
                    "" => key,
                    at => format!("{at}.{key}"),
                };
                gather(&whole, inner, values);
            }
        }
        other => {
            values.insert(at.to_owned(), other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_named_that_are_not_as_they_were_and_values_are_not() {
        let before =
            "[pool.workers]\nmax = 3\nmin = 1\ninstance_types = ['s']\n[web]\nlisten = 'a'\n";
        let after = "# a comment\n[pool.workers]\ninstance_types = ['s', 'm']\nmin = 1\nmax = 3\n[pool.batch]\nmax = 2\n";
        assert_eq!(
            changed_keys(before, after),
            [
                "pool.batch.max",
                "pool.workers.instance_types",
                "web.listen"
            ]
        );
        assert!(changed_keys(before, before).is_empty());
        assert!(changed_keys(before, "no file").is_empty());
    }
}
