//! The table of calls agrees with PVE's own schema.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::super::schema::{ParamKind, ParamSchema, disks};
use super::super::table::{ApiMethod, all};

/// Where the whole schema lies, seen from the repository: beside it, or beside its worktrees.
const WHOLE: &[&str] = &[
    "../shared/pve/api-schema.json",
    "../../shared/pve/api-schema.json",
];
/// An excerpt of the same form.
const EXCERPT: &str = include_str!("api.json");
/// The calls about containers, which the whole schema leaves out: as pve-container has them (`PVE/API2/LXC/Config.pm`).
const CONTAINERS: &str = include_str!("containers.json");
/// The calls about mappings, which it leaves out too: as pve-manager has them (`PVE/API2/Cluster/Mapping/PCI.pm`).
const MAPPINGS: &str = include_str!("mappings.json");

/// The removal of a firewall's rule and the options of the datacenter's firewall, which it leaves out as well: as pve-firewall has them
/// (`PVE/API2/Firewall/Rules.pm`, `Cluster.pm`).
const FIREWALL: &str = include_str!("firewall.json");
/// The averages of a host, which it has for VMs alone: as pve-manager has them (`PVE/API2/Nodes.pm`).
const LOAD: &str = include_str!("load.json");
/// The VNets, which it leaves out with all of the SDN: as pve-network has them (`PVE/API2/Network/SDN/Vnets.pm`).
const SDN: &str = include_str!("sdn.json");
/// The options of the datacenter, which it leaves out: as pve-manager has them (`PVE/API2/Cluster.pm`).
const OPTIONS: &str = include_str!("options.json");

type Schema = BTreeMap<(String, String), Value>;

fn read(text: &str) -> Schema {
    let calls: Vec<Value> = serde_json::from_str(text).expect("a schema");
    let key = |call: &Value, name: &str| call[name].as_str().expect("a name").to_owned();
    calls
        .iter()
        .map(|call| {
            (
                (key(call, "method"), key(call, "path")),
                call["parameters"]["properties"].clone(),
            )
        })
        .collect()
}

/// PVE writes some numbers as strings.
fn number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

fn flag(value: &Value) -> bool {
    number(value) == Some(1)
}

/// What the table says of a parameter, in the schema's words.
fn said(param: &ParamSchema) -> Vec<(&'static str, Value)> {
    let bounds = |least: Option<i64>, most: Option<i64>| {
        vec![("minimum", json!(least)), ("maximum", json!(most))]
    };
    match param.kind {
        ParamKind::Integer(least, most) => {
            [vec![("type", json!("integer"))], bounds(least, most)].concat()
        }
        ParamKind::Number(least, most) => {
            [vec![("type", json!("number"))], bounds(least, most)].concat()
        }
        ParamKind::Boolean => vec![("type", json!("boolean"))],
        ParamKind::Text(limit) => vec![
            ("type", json!("string")),
            ("maxLength", json!(limit)),
            ("enum", json!(null)),
        ],
        ParamKind::Enum(values) => vec![("type", json!("string")), ("enum", json!(values))],
        ParamKind::Pattern(pattern, _) => {
            vec![("type", json!("string")), ("pattern", json!(pattern))]
        }
        ParamKind::Format(format, limit, _) => {
            vec![
                ("type", json!("string")),
                ("format", json!(format)),
                ("maxLength", json!(limit)),
            ]
        }
        ParamKind::Properties => vec![
            ("type", json!("string")),
            ("enum", json!(null)),
            ("pattern", json!(null)),
        ],
        ParamKind::List => vec![("type", json!("array"))],
        ParamKind::Disk => vec![("type", json!("string")), ("enum", json!(disks()))],
    }
}

fn differences(call: &ApiMethod, schema: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let params: Vec<&ParamSchema> = call.params.iter().flat_map(|group| group.iter()).collect();
    for param in &params {
        let property = &schema[param.name];
        if property.is_null() {
            wrong.push(format!("{} is not in the schema", param.name));
            continue;
        }
        if param.optional != flag(&property["optional"]) {
            wrong.push(format!("{}: optional differs", param.name));
        }
        if property["requires"] != json!(param.requires) {
            wrong.push(format!("{}: requires {}", param.name, property["requires"]));
        }
        for (key, ours) in said(param) {
            let theirs = &property[key];
            let same = match key {
                "minimum" | "maximum" => number(theirs) == number(&ours),
                "enum" if matches!(param.kind, ParamKind::Disk) => contains(theirs, &ours),
                _ => *theirs == ours,
            };
            if !same {
                wrong.push(format!(
                    "{}: {key} is {ours}, the schema says {theirs}",
                    param.name
                ));
            }
        }
    }
    for (name, property) in schema.as_object().into_iter().flatten() {
        if !flag(&property["optional"]) && !params.iter().any(|param| param.name == name) {
            wrong.push(format!("{name} must be given and is not in the table"));
        }
    }
    wrong
}

/// The schema's disks are ours; it may name more (`unused…`).
fn contains(theirs: &Value, ours: &Value) -> bool {
    let theirs: Vec<&str> = theirs
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    ours.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .all(|disk| theirs.contains(&disk))
}

fn compare(schema: &Schema, whole: bool) -> usize {
    let mut wrong = Vec::new();
    let mut compared = 0;
    for call in all() {
        let key = (call.method.to_owned(), call.path.to_owned());
        match schema.get(&key) {
            Some(properties) => {
                compared += 1;
                let place = format!("{} {}", call.method, call.path);
                wrong.extend(
                    differences(call, properties)
                        .iter()
                        .map(|words| format!("{place}: {words}")),
                );
            }
            None if whole => wrong.push(format!(
                "{} {} is not in the schema",
                call.method, call.path
            )),
            None => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    compared
}

#[test]
fn the_table_agrees_with_the_excerpt() {
    let schema = read(EXCERPT);
    assert_eq!(compare(&schema, false), schema.len());
}

#[test]
fn the_table_agrees_with_the_whole_schema() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let Some(path) = WHOLE
        .iter()
        .map(|path| root.join(path))
        .find(|path| path.exists())
    else {
        println!("skipped: {} is not there", WHOLE[0]);
        return;
    };
    let mut schema = read(&std::fs::read_to_string(path).expect("the schema"));
    schema.extend(read(CONTAINERS));
    schema.extend(read(MAPPINGS));
    schema.extend(read(FIREWALL));
    schema.extend(read(LOAD));
    schema.extend(read(SDN));
    schema.extend(read(OPTIONS));
    assert_eq!(compare(&schema, true), all().count());
}

#[test]
fn a_difference_is_seen() {
    let call = all()
        .find(|call| call.path.ends_with("/agent/exec-status"))
        .expect("the call");
    let right = json!({
        "node": { "type": "string", "format": "pve-node" },
        "vmid": { "type": "integer", "format": "pve-vmid", "minimum": 100, "maximum": 999_999_999 },
        "pid": { "type": "integer" },
    });
    assert_eq!(differences(call, &right), Vec::<String>::new());
    for (name, key, value) in [
        ("pid", "type", json!("string")),
        ("pid", "optional", json!(1)),
        ("vmid", "minimum", json!(1)),
        ("node", "format", json!("other")),
    ] {
        let mut other = right.clone();
        other[name][key] = value;
        assert_eq!(differences(call, &other).len(), 1, "{name} {key}");
    }
    let mut more = right.clone();
    more["new"] = json!({ "type": "string" });
    assert_eq!(differences(call, &more).len(), 1);
}
