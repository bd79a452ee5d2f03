//! Whether a manifest has maps and lists where Kubernetes has them. The API server refuses one that has not, and so
//! does this: what is filled in later is put into these maps.

use serde_json::Value as Json;

use super::value::{CaseError, CaseValue};

/// Where a map must be, or nothing; `[]` is every item of a list.
const MAPS: [&str; 13] = [
    "metadata.labels",
    "metadata.annotations",
    "status",
    "spec.nodeSelector",
    "spec.template.metadata.labels",
    "spec.template.metadata.annotations",
    "spec.template.spec.nodeSelector",
    "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution.[].labelSelector",
    "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution.[].podAffinityTerm.labelSelector",
    "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution.[].labelSelector",
    "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution.[].podAffinityTerm.labelSelector",
    "spec.template.spec.affinity.podAffinity",
    "spec.template.spec.affinity.podAntiAffinity",
];

/// The manifest that a value holds.
pub(super) fn manifest(value: &CaseValue) -> Result<Json, CaseError> {
    let object = value.json();
    check(&object, value)?;
    Ok(object)
}

/// Whether `object`, which stands at `value`, has the shape.
pub(super) fn check(object: &Json, value: &CaseValue) -> Result<(), CaseError> {
    if !object.is_object() {
        return Err(value.expected("a manifest as a map"));
    }
    for path in MAPS {
        let keys: Vec<&str> = path.split('.').collect();
        if let Some(bad) = misshapen(object, &keys) {
            let at = keys[..bad].join(".");
            return Err(value.wrong(format!(
                "{at} of the manifest is not what Kubernetes has there"
            )));
        }
    }
    Ok(())
}

/// How many keys of the path lead to something that is neither what the next one needs nor nothing; `None`: all is well.
fn misshapen(json: &Json, keys: &[&str]) -> Option<usize> {
    if json.is_null() {
        return None;
    }
    let below = match keys.split_first() {
        None => return (!json.is_object()).then_some(0),
        Some((&"[]", rest)) => match json.as_array() {
            Some(items) => items.iter().find_map(|item| misshapen(item, rest)),
            None => return Some(0),
        },
        Some((key, rest)) => match json.as_object() {
            Some(map) => map.get(*key).and_then(|json| misshapen(json, rest)),
            None => return Some(0),
        },
    };
    below.map(|keys| keys + 1)
}
