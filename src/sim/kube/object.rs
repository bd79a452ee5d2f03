//! Reading and writing Kubernetes objects as plain JSON.

use serde_json::{Map, Value, json};

use crate::model::time::Time;

/// The value at a path such as `/spec/containers/0`. Unlike [`Value::pointer`] it knows no escapes
/// and therefore allocates nothing: it is the hottest function of the simulator.
pub(super) fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut here = object;
    for key in path.split('/').skip(1) {
        here = match here {
            Value::Object(members) => members.get(key)?,
            Value::Array(items) => items.get(key.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    Some(here)
}

/// The text at a path; empty when absent.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    at(object, pointer).and_then(Value::as_str).unwrap_or("")
}

/// The whole number at a path.
pub(super) fn number(object: &Value, pointer: &str) -> Option<i64> {
    at(object, pointer).and_then(Value::as_i64)
}

/// Whether a path holds `true`.
pub(super) fn truth(object: &Value, pointer: &str) -> bool {
    at(object, pointer)
        .and_then(Value::as_bool)
        .unwrap_or(false)
}

/// The list at a path; empty when absent.
pub(super) fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    at(object, pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The map at a path.
pub(super) fn map<'a>(object: &'a Value, pointer: &str) -> Option<&'a Map<String, Value>> {
    at(object, pointer).and_then(Value::as_object)
}

/// A member of a map at a pointer, for keys with slashes in them.
pub(super) fn member<'a>(object: &'a Value, pointer: &str, key: &str) -> Option<&'a str> {
    map(object, pointer)?.get(key)?.as_str()
}

/// `metadata.name`.
pub(super) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// `metadata.namespace`; empty for cluster-wide objects.
pub(super) fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

/// `metadata.uid`.
pub(super) fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// `metadata.resourceVersion` as the number it is here.
pub(super) fn version(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion")
        .parse()
        .unwrap_or(0)
}

/// A label.
pub(super) fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    member(object, "/metadata/labels", key)
}

/// An annotation.
pub(super) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    member(object, "/metadata/annotations", key)
}

/// Whether deletion was asked for.
pub(super) fn deleting(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

/// Sets a member at a path of keys; makes the maps on the way.
pub(super) fn set(object: &mut Value, path: &[&str], value: Value) {
    let mut here = object;
    for key in path {
        if !here.is_object() {
            *here = Value::Object(Map::new());
        }
        let Value::Object(members) = here else { return };
        here = members.entry((*key).to_owned()).or_insert(Value::Null);
    }
    *here = value;
}

/// Removes a member at a path of keys.
pub(super) fn unset(object: &mut Value, path: &[&str]) {
    let Some((last, front)) = path.split_last() else {
        return;
    };
    let mut here = object;
    for key in front {
        let Some(next) = here.get_mut(*key) else {
            return;
        };
        here = next;
    }
    if let Some(members) = here.as_object_mut() {
        members.remove(*last);
    }
}

/// Copies a member from one object to another, or removes it where the first has none.
pub(super) fn carry(from: &Value, to: &mut Value, path: &[&str]) {
    let mut here = from;
    for key in path {
        match here.get(*key) {
            Some(next) => here = next,
            None => return unset(to, path),
        }
    }
    set(to, path, here.clone());
}

/// The owner reference with `controller: true`.
pub(super) fn controller(object: &Value) -> Option<&Value> {
    list(object, "/metadata/ownerReferences")
        .iter()
        .find(|o| truth(o, "/controller"))
}

/// An owner reference to an object.
pub(super) fn owner_reference(owner: &Value) -> Value {
    json!({
        "apiVersion": text(owner, "/apiVersion"),
        "kind": text(owner, "/kind"),
        "name": name(owner),
        "uid": uid(owner),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// A condition of the status by type.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, "/status/conditions")
        .iter()
        .find(|c| text(c, "/type") == kind)
}

/// Whether a condition is `True`.
pub(super) fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|c| text(c, "/status") == "True")
}

/// Sets a condition; the transition time moves only when the status does. Extra members of
/// `fields` are laid over it. Returns whether anything but times changed.
pub(super) fn set_condition(
    object: &mut Value,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: Time,
) -> bool {
    let old = condition(object, kind).cloned();
    let changed = old.as_ref().is_none_or(|o| {
        text(o, "/status") != status
            || text(o, "/reason") != reason
            || text(o, "/message") != message
    });
    let mut new = old.clone().unwrap_or_else(|| json!({}));
    let moved = old.as_ref().is_none_or(|o| text(o, "/status") != status);
    set(&mut new, &["type"], json!(kind));
    set(&mut new, &["status"], json!(status));
    for (key, value) in [("reason", reason), ("message", message)] {
        if value.is_empty() {
            unset(&mut new, &[key]);
        } else {
            set(&mut new, &[key], json!(value));
        }
    }
    if moved {
        set(&mut new, &["lastTransitionTime"], json!(seconds(now)));
    }
    let mut conditions = list(object, "/status/conditions").to_vec();
    match conditions.iter_mut().find(|c| text(c, "/type") == kind) {
        Some(slot) => *slot = new,
        None => conditions.push(new),
    }
    set(object, &["status", "conditions"], Value::Array(conditions));
    changed
}

/// Seconds-exact RFC 3339, as `metav1.Time` is written.
pub(super) fn seconds(time: Time) -> String {
    jiff::Timestamp::from_second(time.0.div_euclid(1_000))
        .map(|t| t.to_string())
        .unwrap_or_default()
}

/// A time of an object.
pub(super) fn time(object: &Value, pointer: &str) -> Option<Time> {
    text(object, pointer)
        .parse::<jiff::Timestamp>()
        .ok()
        .map(|t| Time(t.as_millisecond()))
}

/// Whether a pod stands for a static pod of its node.
pub(super) fn is_mirror(pod: &Value) -> bool {
    annotation(pod, "kubernetes.io/config.mirror").is_some()
}

/// Whether a node is cordoned.
pub(super) fn cordoned(node: &Value) -> bool {
    truth(node, "/spec/unschedulable")
}
