//! `/version`, `/api`, `/apis` and what lies below them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::resources::{RESOURCES, ResourceKind};
use super::spec::KubeSpec;

/// Answers a discovery path; `None` when it is none.
pub(super) fn answer(spec: &KubeSpec, segments: &[String]) -> Option<Value> {
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["version"] => Some(version(spec)),
        ["api"] => Some(json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{
                "clientCIDR": "0.0.0.0/0",
                "serverAddress": spec.endpoint.trim_start_matches("https://"),
            }],
        })),
        ["apis"] => Some(json!({
            "kind": "APIGroupList", "apiVersion": "v1",
            "groups": groups().keys().map(|g| group(g)).collect::<Vec<_>>(),
        })),
        ["api", "v1"] => Some(resources(spec, "", "v1")),
        ["apis", name] if groups().contains_key(name) => {
            let mut group = group(name);
            group["kind"] = json!("APIGroup");
            group["apiVersion"] = json!("v1");
            Some(group)
        }
        ["apis", name, version] if groups().get(name) == Some(version) => {
            Some(resources(spec, name, version))
        }
        _ => None,
    }
}

fn version(spec: &KubeSpec) -> Value {
    let mut parts = spec.version.trim_start_matches('v').split('.');
    json!({
        "major": parts.next().unwrap_or("1"),
        "minor": parts.next().unwrap_or("0"),
        "gitVersion": spec.version,
        "gitCommit": "0000000000000000000000000000000000000000",
        "gitTreeState": "clean",
        "buildDate": "2025-09-09T19:43:15Z",
        "goVersion": "go1.24.6",
        "compiler": "gc",
        "platform": "linux/amd64",
    })
}

fn groups() -> BTreeMap<&'static str, &'static str> {
    RESOURCES
        .iter()
        .filter(|r| !r.group.is_empty())
        .map(|r| (r.group, r.version))
        .collect()
}

fn group(name: &str) -> Value {
    let version = groups().get(name).copied().unwrap_or("v1");
    let shown = json!({"groupVersion": format!("{name}/{version}"), "version": version});
    json!({"name": name, "versions": [shown], "preferredVersion": shown})
}

/// Whether the API server of this version has ValidatingAdmissionPolicy in its stable form, as from 1.30 on.
fn has_policies(spec: &KubeSpec) -> bool {
    let mut parts = spec.version.split('.').skip(1);
    let minor = parts.next().and_then(|minor| minor.parse::<u32>().ok());
    minor.is_none_or(|minor| minor >= 30)
}

fn resources(spec: &KubeSpec, group: &str, version: &str) -> Value {
    let mut list = Vec::new();
    let policies = has_policies(spec);
    for row in RESOURCES
        .iter()
        .filter(|r| r.group == group && r.version == version)
        .filter(|r| policies || !r.plural.starts_with("validatingadmissionpolic"))
    {
        list.extend(shown(row));
    }
    let title = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": title, "resources": list})
}

fn shown(row: &ResourceKind) -> Vec<Value> {
    let verbs: &[&str] = if row.review {
        &["create"]
    } else {
        &[
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch",
        ]
    };
    let mut list = vec![json!({
        "name": row.plural, "singularName": row.singular, "namespaced": row.namespaced,
        "kind": row.kind, "verbs": verbs, "shortNames": row.short,
    })];
    if row.status {
        list.push(json!({
            "name": format!("{}/status", row.plural), "singularName": "",
            "namespaced": row.namespaced, "kind": row.kind, "verbs": ["get", "patch", "update"],
        }));
    }
    for (name, kind) in row.subresources {
        let verbs: &[&str] = match *name {
            "eviction" | "binding" => &["create"],
            _ => &["get", "patch", "update"],
        };
        let mut entry = json!({
            "name": format!("{}/{name}", row.plural), "singularName": "",
            "namespaced": row.namespaced, "kind": kind, "verbs": verbs,
        });
        let home = match *kind {
            "Eviction" => Some("policy"),
            "Scale" => Some("autoscaling"),
            _ => None,
        };
        if let Some(group) = home {
            entry["group"] = json!(group);
            entry["version"] = json!("v1");
        }
        list.push(entry);
    }
    list
}
