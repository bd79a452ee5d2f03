//! What the API server makes of a pod before it is stored, and so before anybody sees it: the priority
//! of its class, what its runtime class adds, label keys of affinity terms as requirements.
//!
//! Source: admission plugins `Priority` and `RuntimeClass`; `applyMatchLabelKeysAndMismatchLabelKeys`
//! of the registry's pod strategy (KEP-3633).

use std::collections::BTreeMap;

use crate::model::words;
use serde_json::{Value as Json, json};

/// The classes of a case by name, as manifests.
#[derive(Clone, Debug, Default)]
pub(super) struct CaseClasses {
    priority: BTreeMap<String, Json>,
    runtime: BTreeMap<String, Json>,
}

/// Classes that every cluster has.
const BUILT_IN: [(&str, i64); 2] = [
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
];
const HARD: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const SOFT: &str = "preferredDuringSchedulingIgnoredDuringExecution";

impl CaseClasses {
    /// Remembers an object if it is a class.
    pub(super) fn learn(&mut self, object: &Json) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let classes = match object["kind"].as_str() {
            Some("PriorityClass") => &mut self.priority,
            Some("RuntimeClass") => &mut self.runtime,
            _ => return,
        };
        classes.insert(name.to_owned(), object.clone());
    }

    /// Changes a pod as admission would. Errors name a class that is not there.
    pub(super) fn admit(&self, pod: &mut Json) -> Result<(), String> {
        let labels = pod["metadata"]["labels"].clone();
        let spec = &mut pod["spec"];
        self.prioritise(spec)?;
        self.equip(spec)?;
        for kind in ["podAffinity", "podAntiAffinity"] {
            if spec["affinity"][kind].is_null() {
                continue;
            }
            let affinity = &mut spec["affinity"][kind];
            for term in affinity[HARD].as_array_mut().into_iter().flatten() {
                merge_keys(term, &labels);
            }
            for term in affinity[SOFT].as_array_mut().into_iter().flatten() {
                merge_keys(&mut term["podAffinityTerm"], &labels);
            }
        }
        Ok(())
    }

    fn prioritise(&self, spec: &mut Json) -> Result<(), String> {
        if !spec["priority"].is_null() {
            return Ok(());
        }
        let named = spec["priorityClassName"].as_str().filter(|n| !n.is_empty());
        let Some(name) = named.map(str::to_owned) else {
            let mut classes = self.priority.values();
            if let Some(class) = classes.find(|class| class["globalDefault"] == true) {
                take_priority(spec, class);
            }
            return Ok(());
        };
        if let Some((_, value)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            spec["priority"] = (*value).into();
            return Ok(());
        }
        let class = self.priority.get(&name).ok_or_else(|| {
            let known: Vec<&str> = self.priority.keys().map(String::as_str).collect();
            format!(
                "expected a PriorityClass that is there, found {name:?}; known: {}",
                words::names(&known)
            )
        })?;
        take_priority(spec, class);
        Ok(())
    }

    /// Overhead, node selector and tolerations of the runtime class.
    fn equip(&self, spec: &mut Json) -> Result<(), String> {
        let Some(name) = spec["runtimeClassName"].as_str().filter(|n| !n.is_empty()) else {
            return Ok(());
        };
        let class = self.runtime.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.runtime.keys().map(String::as_str).collect();
            format!(
                "expected a RuntimeClass that is there, found {name:?}; known: {}",
                words::names(&known)
            )
        })?;
        if spec["overhead"].is_null() {
            spec["overhead"] = class["overhead"]["podFixed"].clone();
        }
        let scheduling = &class["scheduling"];
        for (key, value) in scheduling["nodeSelector"].as_object().into_iter().flatten() {
            spec["nodeSelector"][key] = value.clone();
        }
        if let Some(more) = scheduling["tolerations"].as_array() {
            if spec["tolerations"].is_null() {
                spec["tolerations"] = json!([]);
            }
            if let Some(tolerations) = spec["tolerations"].as_array_mut() {
                tolerations.extend(more.iter().cloned());
            }
        }
        Ok(())
    }
}

fn take_priority(spec: &mut Json, class: &Json) {
    spec["priority"] = class["value"].clone();
    if spec["preemptionPolicy"].is_null() {
        spec["preemptionPolicy"] = class["preemptionPolicy"].clone();
    }
}

/// `matchLabelKeys` and `mismatchLabelKeys` become requirements with the pod's own values.
fn merge_keys(term: &mut Json, labels: &Json) {
    if !term["labelSelector"].is_object() {
        return;
    }
    for (keys, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        let keys = term[keys].as_array().cloned().unwrap_or_default();
        for key in keys.iter().filter_map(Json::as_str) {
            let Some(value) = labels[key].as_str() else {
                continue;
            };
            let requirement = json!({"key": key, "operator": operator, "values": [value]});
            let expressions = &mut term["labelSelector"]["matchExpressions"];
            if expressions.is_null() {
                *expressions = json!([]);
            }
            if let Some(expressions) = expressions.as_array_mut() {
                expressions.push(requirement);
            }
        }
    }
}
