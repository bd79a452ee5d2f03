//! The shipped file, the schema, the reference manual and the tables of pages agree with the types.

mod commands;
mod recipes;
mod tables;

use std::collections::{BTreeMap, BTreeSet};

use pve_autoscaler::config;
use pve_autoscaler::config::file::ConfigFile;
use pve_autoscaler::model::condition::ConditionKind;
use pve_autoscaler::model::time::Span;
use serde_json::Value;

/// What the package lays at /etc/pve-autoscaler.toml.
const INSTALLED: &str = include_str!("../../packaging/pve-autoscaler.toml");

/// The example to copy from, in the package's documentation.
const SHIPPED: &str = include_str!("../../contrib/pve-autoscaler.toml");

/// Alerts for Prometheus.
const RULES: &str = include_str!("../../contrib/prometheus/pve-autoscaler.rules.yaml");

/// The page about notifications.
const NOTIFICATIONS: &str = include_str!("../../docs/notifications.md");

/// The shipped file with every setting switched on.
fn switched_on() -> String {
    SHIPPED.lines().fold(String::new(), |text, line| {
        let setting = line
            .strip_prefix('#')
            .filter(|rest| !rest.is_empty() && !rest.starts_with(' '));
        text + setting.unwrap_or(line) + "\n"
    })
}

#[test]
fn the_shipped_files_are_valid_and_configure_nothing() {
    for text in [INSTALLED, SHIPPED] {
        let settings = config::parse(text, "shipped").unwrap_or_else(|e| panic!("{e}"));
        assert!(!settings.configured);
        assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
    }
}

/// dpkg asks about a configuration file that was edited and has changed in the package: it holds nothing that a new
/// version would have a reason to change.
#[test]
fn the_installed_file_is_short() {
    let settings = INSTALLED
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("# ") && *line != "#");
    assert_eq!(settings.collect::<Vec<_>>(), ["version = 1"]);
    assert!(INSTALLED.lines().count() <= 12, "{INSTALLED}");
    for place in [
        "doc/pve-autoscaler/examples/pve-autoscaler.toml",
        "man 5 pve-autoscaler.toml",
    ] {
        assert!(INSTALLED.contains(place), "{place:?} is not in it");
    }
}

#[test]
fn every_setting_shown_in_the_shipped_file_is_valid() {
    let settings = config::parse(&switched_on(), "shipped").unwrap_or_else(|e| panic!("{e}"));
    assert!(settings.configured);
    assert_eq!(settings.policy.pools["workers"].max, 5);
    assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
}

/// What the file's head tells a newcomer to do: the names of four tables and what is marked EDIT.
#[test]
fn the_shipped_file_is_whole_with_what_is_marked_to_edit() {
    let names = [
        "[proxmox]",
        "[template.debian]",
        "[instance_type.small]",
        "[pool.workers]",
    ];
    let edited = SHIPPED.lines().fold(String::new(), |text, line| {
        let setting = line.strip_prefix('#').filter(|rest| {
            names.contains(rest) || !rest.starts_with(' ') && rest.contains("# EDIT")
        });
        text + setting.unwrap_or(line) + "\n"
    });
    let settings = config::parse(&edited, "edited").unwrap_or_else(|e| panic!("{e}"));
    assert!(settings.configured);
    assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
    let pool = &settings.policy.pools["workers"];
    assert!(pool.taints.is_empty() && pool.startup_taints.is_empty());
}

/// The shipped file says "the default is shown": where a value is the same in the types' defaults,
/// the text must not drift from it.
#[test]
fn the_scaling_defaults_shown_are_the_real_ones() {
    let shown: ConfigFile = toml::from_str(&switched_on()).expect("it is valid");
    assert_eq!(shown.scale_up, ConfigFile::default().scale_up);
    assert_eq!(shown.scale_down, ConfigFile::default().scale_down);
    assert_eq!(shown.web, ConfigFile::default().web);
    assert_eq!(shown.kubernetes.name, ConfigFile::default().kubernetes.name);
    let smallest: ConfigFile =
        toml::from_str("[proxmox]\nvmids = \"9000-9999\"").expect("it is valid");
    assert_eq!(
        shown.proxmox.map(|region| (
            region.poll,
            region.host_memory_reserve,
            region.max_clones_per_storage
        )),
        smallest.proxmox.map(|region| (
            region.poll,
            region.host_memory_reserve,
            region.max_clones_per_storage
        )),
    );
}

/// Notes which keys of which definition occur in `value`, which is what `node` of the schema describes.
fn occurring(
    schema: &Value,
    node: &Value,
    value: &toml::Value,
    found: &mut BTreeSet<(String, String)>,
) {
    let reference = node["$ref"].as_str().or_else(|| {
        let mut choices = node["anyOf"].as_array().into_iter().flatten();
        choices.find_map(|choice| choice["$ref"].as_str())
    });
    let name = reference.map_or("File", |reference| reference.trim_start_matches("#/$defs/"));
    let node = reference.map_or(node, |_| &schema["$defs"][name]);
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                let known = &node["properties"][key];
                if known.is_null() {
                    occurring(schema, &node["additionalProperties"], value, found);
                } else {
                    found.insert((name.to_owned(), key.clone()));
                    occurring(schema, known, value, found);
                }
            }
        }
        toml::Value::Array(items) => {
            for item in items {
                occurring(schema, &node["items"], item, found);
            }
        }
        _ => {}
    }
}

#[test]
fn the_manuals_example_is_valid_and_has_every_key() {
    let example = config::reference::EXAMPLE;
    let settings = config::parse(example, "example").unwrap_or_else(|e| panic!("{e}"));
    assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
    let schema = config::schema::schema();
    let mut found = BTreeSet::new();
    let value: toml::Value = toml::from_str(example).expect("it is TOML");
    occurring(&schema, &schema, &value, &mut found);
    let definitions = schema["$defs"].as_object().expect("it has some");
    let all = definitions
        .iter()
        .map(|(name, node)| (name.as_str(), node))
        .chain([("File", &schema)]);
    let mut missing = Vec::new();
    for (name, node) in all {
        for key in node["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| key)
        {
            if !found.contains(&(name.to_owned(), key.clone())) {
                missing.push(format!("{name}.{key}"));
            }
        }
    }
    // Files that would have to be there; and the same as [region.default].
    let files = ["network_config", "user_data", "vendor_data"];
    let mut left: Vec<String> = files.map(|key| format!("CloudInit.{key}_file")).into();
    left.push("File.proxmox".to_owned());
    assert_eq!(missing, left);
}

#[test]
fn the_schema_in_contrib_is_up_to_date() {
    let stored = include_str!("../../contrib/pve-autoscaler.schema.json");
    assert!(
        stored == config::schema::schema_text(),
        "contrib/pve-autoscaler.schema.json is out of date: run `pve-autoscaler schema > contrib/pve-autoscaler.schema.json`"
    );
}

#[test]
fn the_reference_manual_is_up_to_date() {
    let stored = include_str!("../../docs/configuration.md");
    assert!(
        stored == config::reference::reference(),
        "docs/configuration.md is out of date: run `pve-autoscaler generate DIR` and copy it"
    );
}

/// What the schema calls required is what the rules require.
#[test]
fn required_keys_of_the_schema_are_those_of_the_rules() {
    let schema = config::schema::schema();
    for (kind, header) in [
        ("Region", "region.a"),
        ("Pool", "pool.a"),
        ("InstanceType", "instance_type.a"),
    ] {
        let required = schema["$defs"][kind]["required"]
            .as_array()
            .expect("it has some");
        let errors = config::parse(&format!("version = 1\n[{header}]\n"), "test")
            .expect_err("keys are missing")
            .problems;
        for key in required {
            let path = format!("{header}.{}", key.as_str().unwrap_or_default());
            assert!(errors.iter().any(|problem| problem.key == path), "{path}");
        }
    }
}

/// Alerts that are no condition: of a daemon that is gone, and of how often something happened.
const ALERTS_ALONE: [&str; 3] = [
    "PveAutoscalerAbsent",
    "PveAutoscalerScaleUpFails",
    "PveAutoscalerScaleDownFails",
];

/// What people are notified of and what Prometheus alerts of is one list, with the same severities and patience.
#[test]
fn alerts_and_notifications_are_of_one_list() {
    let mut alerts = BTreeMap::new();
    for rule in RULES.split("- alert: ").skip(1) {
        let value = |key: &str| {
            let lines = rule.lines().map(str::trim);
            let mut found = lines.filter_map(|line| line.strip_prefix(key));
            found.next().map(|value| value.trim().to_owned())
        };
        let name = rule.lines().next().unwrap_or_default().trim();
        let patience = value("for:").map_or(Some(Span::ZERO), |text| Span::from_go(&text));
        let found = (value("severity:"), patience);
        assert!(alerts.insert(name, found).is_none(), "{name}");
    }
    for (kind, _) in ConditionKind::ALL {
        let alert = kind.alert();
        let (severity, patience) = alerts.remove(alert).unwrap_or_else(|| panic!("{alert}"));
        assert_eq!(severity, Some(kind.severity().to_string()), "{alert}");
        // The metric of removals has their patience in it: one after the other would count as one to Prometheus.
        let patience = match kind {
            ConditionKind::RemovalStuck => patience.map(|rest| Span(rest.0 + kind.patience().0)),
            _ => patience,
        };
        assert_eq!(patience, Some(kind.patience()), "{alert}");
    }
    let left: Vec<&str> = alerts.into_keys().collect();
    let mut alone = ALERTS_ALONE;
    alone.sort_unstable();
    assert_eq!(left, alone);
}

/// The page about notifications lists them as they are.
#[test]
fn the_page_lists_every_condition() {
    let listed: Vec<&str> = NOTIFICATIONS
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    let rows = ConditionKind::ALL.iter().map(|(kind, text)| {
        let patience = if kind.of_pods() {
            "`pending_after`".to_owned()
        } else {
            kind.patience().to_string()
        };
        let (name, severity) = (kind.name(), kind.severity());
        format!("| `{name}` | {severity} | {patience} | {text} |")
    });
    assert_eq!(listed, rows.collect::<Vec<_>>());
}
