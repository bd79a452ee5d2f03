//! The paths of this host that the file names.

use std::path::PathBuf;

use toml::Value;

/// Every key that names a path; `*` stands for a name that the file gives. Who adds a key that is a path adds it here: a test compares
/// this list with the types of the file.
const KEYS: [&str; 20] = [
    "broker.socket",
    "kubernetes.kubeconfig",
    "notification.*.ca_file",
    "notification.*.headers_file",
    "notification.*.socket",
    "notification.*.url_file",
    "pool.*.join.secret_file",
    "proxmox.ca_file",
    "proxmox.token_secret_file",
    "region.*.ca_file",
    "region.*.token_secret_file",
    "telemetry.ca_file",
    "telemetry.headers_file",
    "template.*.cloud_init.machine_config_file",
    "template.*.cloud_init.network_config_file",
    "template.*.cloud_init.user_data_file",
    "template.*.cloud_init.vendor_data_file",
    "web.tls_certificate",
    "web.tls_key",
    "web.users_file",
];

/// Each path that stands in a file's text, by its whole key. Defaults are not among them.
pub fn named(text: &str) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    let Ok(file) = text.parse::<toml::Table>() else {
        return found;
    };
    let file = Value::Table(file);
    for key in KEYS {
        let parts: Vec<&str> = key.split('.').collect();
        gather(&file, &parts, &mut Vec::new(), &mut found);
    }
    found
}

/// Adds what stands at these keys below `value`, which is at the keys `at`.
fn gather<'a>(
    value: &'a Value,
    keys: &[&'a str],
    at: &mut Vec<&'a str>,
    found: &mut Vec<(String, PathBuf)>,
) {
    let Some((first, rest)) = keys.split_first() else {
        let path = value.as_str().map(PathBuf::from);
        found.extend(path.map(|path| (at.join("."), path)));
        return;
    };
    let below = value.as_table().into_iter().flatten();
    for (key, inner) in below.filter(|(key, _)| *first == "*" || key == first) {
        at.push(key);
        gather(inner, rest, at, found);
        at.pop();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;
    use crate::config::schema::schema;

    /// The names of all fields of the file's types that are paths.
    fn fields() -> BTreeSet<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config/file");
        let mut names = BTreeSet::new();
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let text = std::fs::read_to_string(path).expect("it is there");
            let fields = text.lines().filter_map(|line| {
                let (name, kind) = line.trim().strip_prefix("pub ")?.split_once(": ")?;
                kind.contains("PathBuf").then(|| name.to_owned())
            });
            names.extend(fields);
        }
        names
    }

    /// Where these fields stand, by the schema: it knows their tables, and not that they are paths.
    fn walk(
        (schema, node): (&serde_json::Value, &serde_json::Value),
        at: &mut Vec<String>,
        fields: &BTreeSet<String>,
        found: &mut BTreeSet<String>,
    ) {
        assert!(at.len() < 20, "{at:?}");
        let named = node["$ref"].as_str().and_then(|to| to.rsplit('/').next());
        if let Some(name) = named {
            walk((schema, &schema["$defs"][name]), at, fields, found);
        }
        let properties = node["properties"].as_object();
        for (key, inner) in properties.into_iter().flatten() {
            at.push(key.clone());
            if fields.contains(key) && inner["type"] == "string" {
                found.insert(at.join("."));
            }
            walk((schema, inner), at, fields, found);
            at.pop();
        }
        for (key, name) in [("additionalProperties", "*"), ("items", "[]")] {
            if node[key].is_object() {
                at.push(name.to_owned());
                walk((schema, &node[key]), at, fields, found);
                at.pop();
            }
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            for inner in node[key].as_array().into_iter().flatten() {
                walk((schema, inner), at, fields, found);
            }
        }
    }

    /// It finds a key that was added to the file and not to the list.
    #[test]
    fn every_key_that_is_a_path_is_listed() {
        let fields = fields();
        assert!(fields.len() > 10, "{fields:?}");
        let schema = schema();
        let mut found = BTreeSet::new();
        walk((&schema, &schema), &mut Vec::new(), &fields, &mut found);
        let listed = KEYS.map(str::to_owned);
        assert_eq!(found, BTreeSet::from(listed));
    }

    /// A file with each key in it, and the keys as they are told.
    #[test]
    fn a_path_at_every_key_is_found() {
        let mut file = toml::Table::new();
        let mut wanted = BTreeSet::new();
        for key in KEYS {
            let key = key.replace('*', "one");
            let mut at = &mut file;
            let (tables, last) = key.rsplit_once('.').expect("a table");
            for table in tables.split('.') {
                let inner = at
                    .entry(table)
                    .or_insert_with(|| Value::Table(toml::Table::new()));
                at = inner.as_table_mut().expect("a table");
            }
            at.insert(last.to_owned(), Value::from(format!("/root/{key}")));
            wanted.insert((key.clone(), PathBuf::from(format!("/root/{key}"))));
        }
        // Some name of a person's own that is a key elsewhere.
        let text = format!("{file}\n[pool.one.annotations]\nsocket = \"/root/none\"\n");
        let found: BTreeSet<_> = named(&text).into_iter().collect();
        assert_eq!(found, wanted);
    }
}
