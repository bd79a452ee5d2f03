//! The reference manual, `docs/configuration.md`, made from the schema and so from the types.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::schema::schema;

/// The tables in the order of the manual: heading and definition; the file itself has none.
const TABLES: [(&str, &str); 35] = [
    ("`[kubernetes]`", "Kubernetes"),
    ("`[proxmox]` or `[region.NAME]`", "Region"),
    ("`[region.NAME.host.HOST]`", "Host"),
    ("`[region.NAME.topology.HOST]`", "Topology"),
    ("`[template.NAME]`", "Template"),
    ("`[[template.NAME.nic]]`", "NetCard"),
    ("`[template.NAME.cloud_init]`", "CloudInit"),
    ("`[[template.NAME.disk]]`", "FurtherDisk"),
    ("`[template.NAME.startup]`", "Startup"),
    ("`[template.NAME.create]`", "Create"),
    ("`[template.NAME.build]`", "Build"),
    ("`[template.NAME.build.agent]`", "BuildAgent"),
    ("`[[template.NAME.build.nic]]`", "BuildNic"),
    ("`[network.NAME]`", "Network"),
    ("`[instance_type.NAME]`", "InstanceType"),
    ("`[instance_matrix.NAME]`", "InstanceMatrix"),
    ("`[pool.NAME]`", "Pool"),
    ("`[pool.NAME.reserved]`", "Reserved"),
    ("`[pool.NAME.kubelet]`", "Kubelet"),
    (
        "`[pool.NAME.kubelet.kube_reserved]`, `[pool.NAME.kubelet.system_reserved]`",
        "KubeletReserved",
    ),
    ("`[pool.NAME.join]`", "Join"),
    ("`[pool.NAME.drain]`", "Drain"),
    ("`[pool.NAME.scale_down]`", "PoolScaleDown"),
    ("`[[pool.NAME.budget]]`", "NodeBudget"),
    ("`[scale_up]`", "ScaleUp"),
    ("`[[scale_up.default_spread]]`", "DefaultSpread"),
    ("`[scale_down]`", "ScaleDown"),
    ("`[limits]`", "Limits"),
    ("`[lifecycle]`", "Lifecycle"),
    ("`[broker]`", "Broker"),
    ("`[web]`", "Web"),
    ("`[recorder]`", "Recorder"),
    ("`[notification.NAME]`", "Notification"),
    ("`[notification.NAME.quiet]`", "QuietHours"),
    ("`[telemetry]`", "Telemetry"),
];

const INTRODUCTION: &str = "# Configuration

<!-- Made from the types in src/config/file by `pve-autoscaler generate`; do not edit. -->

`/etc/pve-autoscaler.toml` is TOML, owned by root, and holds no secrets. Unknown keys are errors.
`pve-autoscaler check` says everything that is wrong with it, with line and column; `systemctl reload
pve-autoscaler` takes a change up, for the broker too. A file with an error is not taken up: the old one stays in
force, and the daemon says so. The broker reads the same file; when the two run with different policies, `status`
and the log say it.

Which host gets a machine, with recipes: [hosts](hosts.md). Several PVE clusters: [regions](regions.md). How machines become
nodes: [joining](joining.md). Addresses without DHCP: [networks](networks.md). Sizes, disks and other hardware: [machines](machines.md).
What cloud-init is told: [cloud-init](cloud-init.md). How a template is built: [templates](template.md).
Whole files to begin with: [recipes](recipes.md), among them [six hosts with local ZFS](recipes.md#six-hosts-with-local-zfs),
[static addresses in a VLAN](recipes.md#static-addresses-in-a-vlan), a [GPU pool](recipes.md#gpu-pool), a
[pinned low-latency pool](recipes.md#pinned-low-latency-pool), [two PVE clusters](recipes.md#two-pve-clusters) and [k3s](recipes.md#k3s).
From another autoscaler: [moving](moving.md).
Who is told when something is wrong: [notifications](notifications.md). Traces for OpenTelemetry: [traces](traces.md).

The smallest useful file:

```toml
version = 1

[proxmox]
vmids = \"9000-9999\"

[template.debian]
vmid = 8000

[instance_type.small]
cores = 2
memory = \"4GiB\"

[pool.workers]
template = \"debian\"
instance_types = [\"small\"]
max = 5
```
";

/// A file in which every key occurs.
pub const EXAMPLE: &str = include_str!("example.toml");

/// One table of the file.
#[derive(Debug)]
pub struct Section {
    /// The table's name in Markdown, such as `` `[kubernetes]` ``.
    pub heading: &'static str,
    /// What it is for, in Markdown.
    pub text: String,
    /// The table's keys in the order of their names.
    pub keys: Vec<ReferenceKey>,
}

/// One key of a table; all texts are Markdown.
#[derive(Debug)]
pub struct ReferenceKey {
    /// As it is written in the file.
    pub name: String,
    /// What kind of value it takes.
    pub kind: String,
    /// What counts when it is not set; empty where nothing does.
    pub default: String,
    /// What it means.
    pub text: String,
}

/// The tables with their keys.
pub fn sections() -> Vec<Section> {
    let schema = schema();
    let nothing = Map::new();
    TABLES
        .into_iter()
        .map(|(heading, definition)| {
            let definition = &schema["$defs"][definition];
            let properties = definition["properties"].as_object().unwrap_or(&nothing);
            let key = |(name, property): (&String, &Value)| ReferenceKey {
                name: name.clone(),
                kind: kind(property, &schema),
                default: default(name, property, definition),
                text: prose(property),
            };
            Section {
                heading,
                text: prose(definition),
                keys: properties.iter().map(key).collect(),
            }
        })
        .collect()
}

/// The kinds of values that are more than TOML's own, each with how it is written.
pub fn values() -> Vec<(String, String)> {
    let schema = schema();
    let nothing = Map::new();
    let definitions = schema["$defs"].as_object().unwrap_or(&nothing);
    definitions
        .iter()
        .filter(|(name, _)| name.starts_with(|c: char| c.is_ascii_lowercase()))
        .map(|(name, definition)| (name.clone(), prose(definition)))
        .collect()
}

/// The manual.
pub fn reference() -> String {
    let mut text = INTRODUCTION.to_owned();
    for section in sections() {
        let _ = write!(text, "\n## {}\n\n{}\n\n", section.heading, section.text);
        if section.keys.is_empty() {
            continue;
        }
        let _ = writeln!(
            text,
            "| key | value | default | meaning |\n|---|---|---|---|"
        );
        for key in section.keys {
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {} |",
                key.name,
                key.kind,
                key.default,
                key.text.replace('|', "\\|"),
            );
        }
    }
    let _ = writeln!(text, "\n## Values\n\n| name | written as |\n|---|---|");
    for (name, written) in values() {
        let _ = writeln!(text, "| {name} | {written} |");
    }
    let _ = write!(
        text,
        "\n## Every key in use\n\nNobody needs all of them; most stand here with their defaults.\n\n```toml\n{EXAMPLE}```\n"
    );
    text
}

fn prose(node: &Value) -> String {
    node["description"]
        .as_str()
        .unwrap_or_default()
        .replace('\n', " ")
}

fn kind(property: &Value, schema: &Value) -> String {
    if let Some(reference) = property["$ref"].as_str() {
        let name = reference.trim_start_matches("#/$defs/");
        let choices: Vec<String> = schema["$defs"][name]["oneOf"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|choice| choice["const"].as_str())
            .map(|choice| format!("`\"{choice}\"`"))
            .collect();
        let is_table = schema["$defs"][name]["type"] == "object";
        return match (choices.is_empty(), is_table) {
            (false, _) => choices.join(" or "),
            (true, true) => "table".to_owned(),
            (true, false) => name.to_owned(),
        };
    }
    match property["type"].as_str() {
        Some("array") => format!("list of {}", kind(&property["items"], schema)),
        Some("object") => format!(
            "table of {}",
            kind(&property["additionalProperties"], schema)
        ),
        Some("boolean") => "true or false".to_owned(),
        Some(other) => other.to_owned(),
        None => String::new(),
    }
}

fn default(key: &str, property: &Value, definition: &Value) -> String {
    let required = definition["required"].as_array();
    if required.is_some_and(|keys| keys.iter().any(|name| name == key)) {
        return "**required**".to_owned();
    }
    match &property["default"] {
        Value::Null | Value::Object(_) => String::new(),
        Value::Array(list) if list.is_empty() => String::new(),
        Value::String(text) if text.is_empty() => String::new(),
        value => format!("`{value}`"),
    }
}
