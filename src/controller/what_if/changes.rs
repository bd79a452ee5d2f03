//! Other values for keys of the configuration that somebody supposes: the policy that the whole file would give, by all its rules.

use serde::Deserialize;

use crate::config::{self, paths};
use crate::model::policy::Policy;
use crate::model::words;

/// Changes of the configuration at once.
const MAX_CHANGES: usize = 20;
/// Longest key or value of a change, in bytes.
const MAX_WORD: usize = 1_000;

/// A key of the configuration with another value.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigChange {
    /// The key with its tables, such as `pool.general.max`.
    pub key: String,
    /// The value as it would stand in the file: `20`, `"4GiB"`, `["small"]`.
    pub value: String,
}

/// The policy of the changed configuration, which is another than `policy`; `None` when nothing is changed.
pub(super) fn changed(
    text: &str,
    changes: &[ConfigChange],
    policy: &Policy,
) -> Result<Option<Policy>, String> {
    if changes.is_empty() {
        return Ok(None);
    }
    if changes.len() > MAX_CHANGES {
        return Err(format!(
            "At most {MAX_CHANGES} keys may be changed at once."
        ));
    }
    let mut file: toml::Table = text
        .parse()
        .map_err(|error| format!("The configuration cannot be read: {error}"))?;
    let strange = changes
        .iter()
        .find_map(|change| strange(&file, &change.key));
    for change in changes {
        let key = change.key.trim();
        if key == "kubernetes.name" {
            return Err("kubernetes.name: by another name the machines there are would be another cluster's, which nobody here sees or touches; that is not decided".to_owned());
        }
        set(&mut file, change).map_err(|why| match key {
            "" => format!("A value without a key: {why}."),
            key => format!("{key}: {why}."),
        })?;
    }
    let written = toml::to_string(&file).map_err(|error| error.to_string())?;
    if let Some(key) = find_other_path(text, &written) {
        return Err(format!(
            "{key}: no other file than those that the configuration names is looked at here; no plan hangs on what is in it"
        ));
    }
    let settings = config::parse(&written, "the changed configuration").map_err(|errors| {
        // Lines are those of a text that nobody sees.
        let said = errors.problems.iter().map(|problem| match &problem.value {
            Some(value) => format!("{} = {value}: {}", problem.key, problem.message),
            None if problem.key.is_empty() => problem.message.clone(),
            None => format!("{}: {}", problem.key, problem.message),
        });
        let said: Vec<String> = said.collect();
        match strange {
            Some(strange) => format!(
                "{strange} A new one wants all that it needs: {}",
                said.join("; ")
            ),
            None => format!("The changed configuration is wrong: {}", said.join("; ")),
        }
    })?;
    if settings.policy == *policy {
        let keys: Vec<&str> = changes.iter().map(|change| change.key.trim()).collect();
        return Err(format!(
            "With {} so, every plan is what it is: that is the value already, or no decision reads it.",
            keys.join(", ")
        ));
    }
    Ok(Some(settings.policy))
}

/// A key at which the changed configuration names a file that the present one does not name there. Whoever may ask what if need not be
/// allowed to read this host's files, nor to learn which there are.
fn find_other_path(text: &str, written: &str) -> Option<String> {
    let known = paths::named(text);
    let mut named = paths::named(written).into_iter();
    let other = named.find(|named| !known.contains(named));
    other.map(|(key, _)| key)
}

/// Tables whose parts have names of the person's own.
const NAMED: [&str; 6] = [
    "pool",
    "instance_type",
    "template",
    "region",
    "network",
    "notification",
];

/// What a key names that is not in the file, and what there is instead; `None` where it names nothing of that kind.
fn strange(file: &toml::Table, key: &str) -> Option<String> {
    let mut parts = key.trim().split('.');
    let (table, name) = (parts.next()?, parts.next()?);
    let table = NAMED.iter().find(|named| **named == table)?;
    let there = file.get(*table).and_then(toml::Value::as_table);
    let names: Vec<&String> = there.into_iter().flat_map(toml::Table::keys).collect();
    if names.iter().any(|known| *known == name) {
        return None;
    }
    let kind = table.replace('_', " ");
    let instead = match names.len() {
        0 => format!("the file has no {kind}"),
        1 => format!("the {kind} that there is is {}", names[0]),
        _ => format!("the {kind}s are {}", words::names(&names)),
    };
    Some(format!("There is no {kind} {name}; {instead}."))
}

/// Sets one key; tables on the way are made.
fn set(file: &mut toml::Table, change: &ConfigChange) -> Result<(), String> {
    if change.key.len() > MAX_WORD || change.value.len() > MAX_WORD {
        return Err(format!("a key and its value have at most {MAX_WORD} bytes"));
    }
    let wrong = "expected a key with its tables, such as pool.general.max";
    let value = format!("value = {}", change.value.trim());
    let mut value: toml::Table = value
        .parse()
        .map_err(|_| wrong_value(change.value.trim()))?;
    if value.len() != 1 {
        return Err(format!("{} is more than one value", change.value));
    }
    let value = value.remove("value").ok_or("it has no value")?;
    let parts: Vec<&str> = change.key.trim().split('.').collect();
    let Some((last, tables)) = parts.split_last() else {
        return Err(wrong.to_owned());
    };
    if parts.iter().any(|part| part.is_empty()) {
        return Err(wrong.to_owned());
    }
    let mut table = file;
    for name in tables {
        let next = table
            .entry((*name).to_owned())
            .or_insert_with(|| toml::Value::Table(toml::Table::new()));
        table = next
            .as_table_mut()
            .ok_or_else(|| format!("{name} is no table in the configuration"))?;
    }
    table.insert((*last).to_owned(), value);
    Ok(())
}

/// Why a text is no value of a configuration.
fn wrong_value(text: &str) -> String {
    let digits = text.trim_start_matches(['+', '-']);
    if text.is_empty() {
        "it has no value".to_owned()
    } else if !digits.is_empty() && digits.chars().all(|letter| letter.is_ascii_digit()) {
        format!("{text} is a larger number than can stand there")
    } else if text.contains(['"', '\n']) {
        format!("{text} is no value; a text stands in quotes")
    } else {
        format!("{text} is no value; a text stands in quotes: \"{text}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "version = 1\n[proxmox]\nvmids = \"9000-9999\"\n[template.debian]\nvmid = 8000\n\
        [instance_type.small]\ncores = 2\nmemory = \"4GiB\"\n[pool.workers]\ntemplate = \"debian\"\n\
        instance_types = [\"small\"]\nmax = 5\n";

    fn change(key: &str, value: &str) -> Vec<ConfigChange> {
        vec![ConfigChange {
            key: key.to_owned(),
            value: value.to_owned(),
        }]
    }

    #[test]
    fn a_key_is_changed_and_a_wrong_one_is_named() {
        let as_is = config::parse(FILE, "it").expect("it is fine").policy;
        let changed = |text: &str, changes: &[ConfigChange]| super::changed(text, changes, &as_is);
        let policy = changed(FILE, &change("pool.workers.max", "20")).expect("it is fine");
        assert_eq!(policy.expect("changed").pools["workers"].max, 20);
        let policy = changed(FILE, &change("scale_up.max_in_flight", "3")).expect("a new table");
        assert_eq!(policy.expect("changed").scale_up.max_in_flight, 3);
        assert!(changed(FILE, &[]).expect("nothing").is_none());
        for (key, value, wanted) in [
            ("pool.workers.max", "many", "many is no value"),
            (
                "pool.workers.max",
                "\"x\"",
                "pool.workers.max = \"x\": expected a whole number",
            ),
            ("pool.workers.maxx", "3", "maxx: unknown key"),
            (
                "pool.nosuch.max",
                "3",
                "There is no pool nosuch; the pool that there is is workers. A new one wants",
            ),
            ("pool.workers.max.more", "3", "max is no table"),
            ("", "3", "expected a key"),
            ("pool..max", "3", "expected a key"),
            ("pool.workers.max", "3\nmin = 1", "more than one value"),
            ("pool.workers.max", "", "it has no value"),
            ("scale_up.batch_max", "1m", "stands in quotes: \"1m\""),
            (
                "pool.workers.max",
                "99999999999999999999",
                "a larger number",
            ),
            ("pool.workers.max", "5", "every plan is what it is"),
            (
                "web.listen",
                "\"127.0.0.1:9809\"",
                "every plan is what it is",
            ),
            (
                "kubernetes.name",
                "\"other\"",
                "which nobody here sees or touches",
            ),
        ] {
            let why = changed(FILE, &change(key, value)).expect_err(key);
            assert!(why.contains(wanted), "{key}: {why}");
        }
    }

    #[test]
    fn no_file_is_opened_that_the_configuration_does_not_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let (own, other) = (folder.path().join("own"), folder.path().join("other"));
        std::fs::write(&own, "#cloud-config\n").expect("written");
        std::fs::write(&other, "hush-hush\n").expect("written");
        let (own, other) = (own.display().to_string(), other.display().to_string());
        let cloud_init = "template.debian.cloud_init";
        let file = format!("{FILE}[{cloud_init}]\nstorage = \"iso\"\nuser_data_file = \"{own}\"\n");
        let as_is = config::parse(&file, "it").expect("it is fine").policy;
        let gone = folder.path().join("gone").display().to_string();
        for path in [&other, &gone, &"/etc/shadow".to_owned()] {
            let table = format!("{{ storage = \"iso\", vendor_data_file = \"{path}\" }}");
            for (key, value) in [
                (
                    format!("{cloud_init}.user_data_file"),
                    format!("\"{path}\""),
                ),
                (
                    format!("{cloud_init}.vendor_data_file"),
                    format!("\"{path}\""),
                ),
                (cloud_init.to_owned(), table),
                (
                    "template.new.cloud_init.user_data_file".to_owned(),
                    format!("\"{path}\""),
                ),
                ("web.users_file".to_owned(), format!("\"{path}\"")),
            ] {
                let why = super::changed(&file, &change(&key, &value), &as_is).expect_err(&key);
                assert!(why.contains("no other file"), "{key}: {why}");
                assert!(
                    !why.contains("hush") && !why.contains("gone"),
                    "{key}: {why}"
                );
            }
        }
        // What it names is read as ever.
        let more = super::changed(&file, &change("pool.workers.max", "20"), &as_is);
        assert!(more.expect("it is fine").is_some());
    }
}
