//! The patch types of the API server: JSON merge patch (RFC 7386), JSON patch (RFC 6902), strategic
//! merge patch and the merging half of server-side apply.

use serde_json::{Map, Value};

use super::object::text;
use super::status::Status;

/// Merges by RFC 7386: `null` removes, maps merge, everything else replaces.
pub(in crate::sim) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(members) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(into) = target else { return };
    for (key, value) in members {
        if value.is_null() {
            into.remove(key);
        } else {
            merge(into.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Most operations of one JSON patch; the API server's own limit.
const MOST_OPERATIONS: usize = 10_000;

/// Applies a JSON patch. A failed `test` or a missing path is 422, as the API server answers.
pub(super) fn json_patch(target: &mut Value, patch: &Value) -> Result<(), Status> {
    let operations = patch
        .as_array()
        .ok_or_else(|| Status::bad_request("error decoding patch: a JSON patch is a list"))?;
    if operations.len() > MOST_OPERATIONS {
        return Err(Status::too_large());
    }
    for operation in operations {
        operate(target, operation).map_err(|message| Status {
            code: 422,
            reason: "Invalid",
            message,
            details: Value::Null,
            retry_after: 0,
        })?;
    }
    Ok(())
}

fn operate(target: &mut Value, operation: &Value) -> Result<(), String> {
    let path = text(operation, "/path");
    let missing = || {
        format!(
            "the server rejected our request due to an error in our request: {} operation does not apply: doc is missing path: {path:?}: missing value",
            text(operation, "/op")
        )
    };
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    match text(operation, "/op") {
        "add" => insert(target, path, value()).ok_or_else(missing),
        "replace" => {
            *target.pointer_mut(path).ok_or_else(missing)? = value();
            Ok(())
        }
        "remove" => take(target, path).map(|_| ()).ok_or_else(missing),
        "test" => {
            let found = target.pointer(path).cloned().unwrap_or(Value::Null);
            if found == value() {
                Ok(())
            } else {
                Err(format!(
                    "the server rejected our request due to an error in our request: testing value {path} failed: test failed"
                ))
            }
        }
        "move" => {
            let moved = take(target, text(operation, "/from")).ok_or_else(missing)?;
            insert(target, path, moved).ok_or_else(missing)
        }
        "copy" => {
            let copied = target
                .pointer(text(operation, "/from"))
                .cloned()
                .ok_or_else(missing)?;
            insert(target, path, copied).ok_or_else(missing)
        }
        other => Err(format!("unexpected kind of patch operation: {other:?}")),
    }
}

/// The parent of a pointer and its last key, unescaped.
fn parent<'a>(target: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (front, last) = path.rsplit_once('/')?;
    Some((
        target.pointer_mut(front)?,
        last.replace("~1", "/").replace("~0", "~"),
    ))
}

fn insert(target: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *target = value;
        return Some(());
    }
    let (parent, key) = parent(target, path)?;
    match parent {
        Value::Object(members) => {
            members.insert(key, value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let at: usize = key.parse().ok()?;
            if at > items.len() {
                return None;
            }
            items.insert(at, value);
        }
        _ => return None,
    }
    Some(())
}

fn take(target: &mut Value, path: &str) -> Option<Value> {
    let (parent, key) = parent(target, path)?;
    match parent {
        Value::Object(members) => members.remove(&key),
        Value::Array(items) => {
            let at: usize = key.parse().ok()?;
            (at < items.len()).then(|| items.remove(at))
        }
        _ => None,
    }
}

/// How a list merges.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Merging {
    /// As a whole.
    Replace,
    /// Item by item, by this key.
    By(&'static str),
    /// As a set of plain values.
    Set,
}

/// The lists that carry `patchStrategy: merge` in the types of core, apps and batch, with their
/// keys. `spec.taints` and `tolerations` are not among them: they are replaced as a whole.
fn strategy(parent: &str, field: &str, apply: bool) -> Merging {
    match field {
        "conditions" | "addresses" => Merging::By("type"),
        "ownerReferences" => Merging::By("uid"),
        "finalizers" | "podCIDRs" => Merging::Set,
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "env"
        | "imagePullSecrets"
        | "schedulingGates"
        | "resourceClaims" => Merging::By("name"),
        "containerStatuses" | "initContainerStatuses" if apply => Merging::Replace,
        "volumeMounts" => Merging::By("mountPath"),
        "volumeDevices" => Merging::By("devicePath"),
        "hostAliases" | "podIPs" | "hostIPs" => Merging::By("ip"),
        "topologySpreadConstraints" => Merging::By("topologyKey"),
        "ports" if parent == "containers" || parent == "initContainers" => {
            Merging::By("containerPort")
        }
        "ports" => Merging::By("port"),
        _ => Merging::Replace,
    }
}

/// Strategic merge patch, with its directives `$patch`, `$deleteFromPrimitiveList` and
/// `$retainKeys`.
pub(super) fn strategic(target: &mut Value, patch: &Value) {
    strategic_at(target, patch, "", false);
}

/// The merging of server-side apply: as a strategic merge, but `null` is a value like others.
pub(super) fn apply(target: &mut Value, configuration: &Value) {
    strategic_at(target, configuration, "", true);
}

fn strategic_at(target: &mut Value, patch: &Value, parent: &str, apply: bool) {
    let Value::Object(members) = patch else {
        *target = patch.clone();
        return;
    };
    if members.get("$patch").and_then(Value::as_str) == Some("replace") {
        let mut replaced = members.clone();
        replaced.remove("$patch");
        *target = Value::Object(replaced);
        return;
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(into) = target else { return };
    if let Some(kept) = members.get("$retainKeys").and_then(Value::as_array) {
        into.retain(|key, _| kept.iter().any(|k| k.as_str() == Some(key)));
    }
    for (key, value) in members {
        if let Some(field) = key.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = value.as_array().map_or(&[][..], Vec::as_slice);
            if let Some(Value::Array(items)) = into.get_mut(field) {
                items.retain(|i| !gone.contains(i));
            }
        } else if key.starts_with('$') {
            // $setElementOrder only orders; the order of these lists carries no meaning here.
        } else if value.is_null() && !apply {
            into.remove(key);
        } else if let Value::Array(items) = value {
            let slot = into.entry(key.clone()).or_insert(Value::Null);
            merge_list(slot, items, strategy(parent, key, apply), key, apply);
        } else {
            let slot = into.entry(key.clone()).or_insert(Value::Null);
            // Labels and annotations may have any key; nothing below them is a list.
            strategic_at(slot, value, key, apply);
        }
    }
}

fn merge_list(slot: &mut Value, items: &[Value], how: Merging, field: &str, apply: bool) {
    let replaces = items
        .iter()
        .any(|i| text(i, "/$patch") == "replace" && i.as_object().is_some_and(|o| o.len() == 1));
    let Merging::By(key) = how else {
        let mut merged = match (how, slot.as_array()) {
            (Merging::Set, Some(old)) => old.clone(),
            _ => Vec::new(),
        };
        for item in items {
            if how == Merging::Replace || !merged.contains(item) {
                merged.push(item.clone());
            }
        }
        *slot = Value::Array(merged);
        return;
    };
    let mut merged = match slot.as_array() {
        Some(old) if !replaces => old.clone(),
        _ => Vec::new(),
    };
    for item in items {
        let id = item.get(key);
        if text(item, "/$patch") == "delete" {
            merged.retain(|m| m.get(key) != id);
        } else if text(item, "/$patch") == "replace"
            && item.as_object().is_some_and(|o| o.len() == 1)
        {
            // The directive alone: the list was emptied above.
        } else if let Some(old) = merged.iter_mut().find(|m| m.get(key) == id) {
            strategic_at(old, item, field, apply);
        } else {
            let mut new = Value::Object(Map::new());
            strategic_at(&mut new, item, field, apply);
            merged.push(new);
        }
    }
    *slot = Value::Array(merged);
}

/// Removes what `old` configured and `new` no longer does, as server-side apply does for a manager's
/// own fields. Items of keyed lists go by their key.
pub(super) fn prune(target: &mut Value, old: &Value, new: &Value, field: &str) {
    let (Value::Object(was), Some(into)) = (old, target.as_object_mut()) else {
        return;
    };
    for (key, value) in was {
        match (new.get(key), value) {
            (None, _) => {
                into.remove(key);
            }
            (Some(Value::Array(now)), Value::Array(then)) => {
                let Some(Value::Array(items)) = into.get_mut(key) else {
                    continue;
                };
                let same = |a: &Value, b: &Value| match strategy(field, key, true) {
                    Merging::By(id) => a.get(id) == b.get(id),
                    _ => a == b,
                };
                items
                    .retain(|i| now.iter().any(|n| same(n, i)) || !then.iter().any(|t| same(t, i)));
            }
            (Some(now), Value::Object(_)) => {
                if let Some(slot) = into.get_mut(key) {
                    prune(slot, value, now, key);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn merge_patches_remove_by_null() {
        let mut node = json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"x": [1]}});
        merge(
            &mut node,
            &json!({"metadata": {"labels": {"a": null, "c": "3"}}, "spec": {"x": [2]}}),
        );
        assert_eq!(
            node,
            json!({"metadata": {"labels": {"b": "2", "c": "3"}}, "spec": {"x": [2]}})
        );
    }

    #[test]
    fn a_failed_test_changes_nothing_further() {
        let mut node = json!({"spec": {"taints": [{"key": "a"}]}});
        let patch = json!([
            {"op": "test", "path": "/spec/taints/0/key", "value": "b"},
            {"op": "remove", "path": "/spec/taints/0"},
        ]);
        let refused = json_patch(&mut node, &patch).expect_err("the test fails");
        assert_eq!(refused.code, 422);
        assert_eq!(node, json!({"spec": {"taints": [{"key": "a"}]}}));
        let patch = json!([
            {"op": "test", "path": "/spec/taints/0/key", "value": "a"},
            {"op": "add", "path": "/spec/taints/-", "value": {"key": "c"}},
            {"op": "remove", "path": "/spec/taints/0"},
            {"op": "add", "path": "/metadata", "value": {"labels": {}}},
            {"op": "add", "path": "/metadata/labels/x~1y", "value": "z"},
        ]);
        json_patch(&mut node, &patch).expect("it applies");
        assert_eq!(
            node,
            json!({"spec": {"taints": [{"key": "c"}]}, "metadata": {"labels": {"x/y": "z"}}})
        );
    }

    #[test]
    fn strategic_patches_merge_conditions_and_replace_taints() {
        let mut node = json!({
            "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]},
        });
        strategic(
            &mut node,
            &json!({
                "spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]},
                "status": {"conditions": [
                    {"type": "Ready", "status": "Unknown"},
                    {"type": "DiskPressure", "status": "False"},
                ]},
            }),
        );
        assert_eq!(
            node,
            json!({
                "spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]},
                "status": {"conditions": [
                    {"type": "Ready", "status": "Unknown", "reason": "KubeletReady"},
                    {"type": "DiskPressure", "status": "False"},
                ]},
            })
        );
        strategic(
            &mut node,
            &json!({"status": {"conditions": [{"$patch": "delete", "type": "DiskPressure"}]}}),
        );
        assert_eq!(
            node["status"]["conditions"].as_array().map(Vec::len),
            Some(1)
        );
    }

    #[test]
    fn apply_forgets_what_is_no_longer_applied() {
        let old = json!({"metadata": {"labels": {"a": "1", "b": "2"}}});
        let new = json!({"metadata": {"labels": {"a": "1"}}});
        let mut object =
            json!({"metadata": {"name": "x", "labels": {"a": "1", "b": "2", "c": "3"}}});
        prune(&mut object, &old, &new, "");
        apply(&mut object, &new);
        assert_eq!(
            object,
            json!({"metadata": {"name": "x", "labels": {"a": "1", "c": "3"}}})
        );
    }
}
