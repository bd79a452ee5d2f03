//! A file in which nothing is wrong but that its only region has no `vmids`: it is one that `setup` completes. Pure.

use toml_edit::{DocumentMut, Item, TableLike, value};

use crate::config::{self, ConfigErrors, ConfigProblem, Settings};

/// What stands for the range until one is chosen: nearly all VMIDs that nobody uses.
const STAND_IN: &str = "100000000-999999999";

/// What the file says with a range in the place of the one that it lacks.
///
/// # Errors
/// What else is wrong with it, or all where it has several regions or lacks no range.
pub(super) fn complete(
    text: &str,
    name: &str,
    errors: ConfigErrors,
) -> Result<Settings, ConfigErrors> {
    let completed = with_range(text, STAND_IN).filter(|_| errors.problems.iter().any(is_lacking));
    let Some(completed) = completed else {
        return Err(errors);
    };
    config::parse(&completed, name).map_err(|of_completed| {
        // At the places that the file itself has.
        let mut others = errors;
        others.problems.retain(|problem| !is_lacking(problem));
        if others.problems.is_empty() {
            of_completed
        } else {
            others
        }
    })
}

/// Whether it is that a region has no range.
fn is_lacking(problem: &ConfigProblem) -> bool {
    let of_region = problem.key.starts_with("proxmox.") || problem.key.starts_with("region.");
    let is_range = problem.key.rsplit('.').next() == Some("vmids");
    of_region && is_range && problem.message.starts_with("is missing")
}

/// The text with a range in the table of its only region; `None` where it has several regions or none, or one that has a range.
pub(super) fn with_range(text: &str, range: &str) -> Option<String> {
    let mut document: DocumentMut = text.parse().ok()?;
    let region = only_region(&mut document)?;
    let mut entry = value(range);
    // In a table of one line all behind a comment would belong to it.
    if region.is_table()
        && let Some(entry) = entry.as_value_mut()
    {
        entry.decor_mut().set_suffix("  # for machines alone");
    }
    let table = region.as_table_like_mut()?;
    if table.contains_key("vmids") {
        return None;
    }
    table.insert("vmids", entry);
    Some(document.to_string())
}

fn only_region(document: &mut DocumentMut) -> Option<&mut Item> {
    let others = document.get("region").and_then(Item::as_table_like);
    match (
        document.contains_key("proxmox"),
        others.map_or(0, TableLike::len),
    ) {
        (true, 0) => document.get_mut("proxmox"),
        (false, 1) => {
            let others = document.get_mut("region")?.as_table_like_mut()?;
            others.iter_mut().next().map(|(_, region)| region)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(text: &str) -> Result<Settings, String> {
        match config::parse(text, "file") {
            Ok(_) => Err("nothing is wrong".to_owned()),
            Err(errors) => complete(text, "file", errors).map_err(|errors| errors.line()),
        }
    }

    #[test]
    fn a_region_without_a_range_is_completed() {
        for text in [
            "version = 1\n[proxmox]\n",
            "version = 1\nproxmox = { channel = \"local\" }\n",
            "version = 1\n[region.home]\nchannel = \"local\"\n[web]\n",
            "version = 1\n[proxmox]\nchannel = \"local\"\n\n# the page\n[web]\nlisten = \"127.0.0.1:0\"\n",
        ] {
            let settings = completed(text).unwrap_or_else(|errors| panic!("{text}: {errors}"));
            assert_eq!(settings.regions.len(), 1, "{text}");
            let with = with_range(text, "7000-7099").expect("it has none");
            let settings = config::parse(&with, "file").unwrap_or_else(|e| panic!("{e}"));
            let range = settings.policy.regions.values().next();
            let range = range.map(|range| (range.vmid_first, range.vmid_last));
            assert_eq!(range, Some((7_000, 7_099)), "{with}");
            // All else stays as it is.
            let lines: Vec<&str> = with.lines().collect();
            let kept = text.lines().filter(|line| lines.contains(line)).count();
            let inline = usize::from(text.contains('{'));
            assert_eq!(kept + inline, text.lines().count(), "{with}");
        }
    }

    /// It finds a setup that hides what else is wrong, or names it in lines that the file does not have.
    #[test]
    fn what_else_is_wrong_is_told_where_it_stands() {
        let said = |text: &str| completed(text).err().unwrap_or_default();
        let two = said("version = 1\n[proxmox]\nchannel = \"token\"\n[web]\nlisten = 1\n");
        assert!(two.contains("file:5:10: web.listen = 1: "), "{two}");
        assert!(two.contains("proxmox.token_id: is missing"), "{two}");
        assert!(!two.contains("vmids"), "{two}");
        let several = said("version = 1\n[region.a]\n[region.b]\nchannel = \"token\"\n");
        assert!(several.contains("region.a.vmids: is missing"), "{several}");
        let other = said("version = 1\n[proxmox]\nvmids = \"9\"\n");
        assert!(other.contains("proxmox.vmids = \"9\": "), "{other}");
    }
}
