//! All Kubernetes objects of a case but pods, nodes and storage, from their short forms to Kubernetes' own.

use serde_json::{Value as Json, json};

use crate::kubernetes::manifests::Manifests;
use crate::kubernetes::workloads;
use crate::model::time::{Span, Time};

use super::budgets;
use super::containers;
use super::fields::CaseFields;
use super::pods;
use super::scalars::{many, several, span, text, truth, whole};
use super::shape;
use super::short;
use super::stage::CaseWorld;
use super::storage;
use super::value::{CaseError, CaseValue, numbered_name};

/// Objects that nothing else is said of are so old.
const AGE: Span = Span::minutes(24 * 60);

type NamedObject = (Option<String>, CaseValue);

/// The items of a list, or of a map from name to item; entries with a `count` come numbered.
pub(super) fn named(value: &CaseValue) -> Result<Vec<NamedObject>, CaseError> {
    let mut all = Vec::new();
    for (name, item) in listed(value)? {
        all.extend(numbered(name, item)?);
    }
    Ok(all)
}

/// The items of a list or a map, as they are written: `count` is not read. A name alone is an item of which nothing else is said.
pub(super) fn listed(value: &CaseValue) -> Result<Vec<NamedObject>, CaseError> {
    match (value.map(), value.list()) {
        (Some(entries), _) => Ok(entries
            .iter()
            .map(|entry| (Some(entry.key.clone()), entry.value.clone()))
            .collect()),
        (None, Some(items)) => Ok(items
            .iter()
            .map(|item| match item.scalar() {
                Some(name) => (Some(name.to_owned()), item.emptied()),
                None => (None, item.clone()),
            })
            .collect()),
        (None, None) if value.is_null() => Ok(Vec::new()),
        (None, None) => Err(value.expected("a list, or a map by name")),
    }
}

/// As many as `count` says.
pub(super) fn numbered(
    name: Option<String>,
    item: CaseValue,
) -> Result<Vec<NamedObject>, CaseError> {
    let Some(how_many) = item.get("count").map(many).transpose()? else {
        return Ok(vec![(name, item)]);
    };
    let named = item.get("name").and_then(CaseValue::scalar);
    let stem = named.map(str::to_owned).or(name);
    let one = |index| {
        let name = stem.as_ref().map(|stem| numbered_name(stem, index));
        let item = match &name {
            Some(name) => item.numbered(index).with_text("name", name),
            None => item.numbered(index),
        };
        (name, item)
    };
    Ok((0..how_many).map(one).collect())
}

/// The name of an item: its own key, else the one of the map it stands in.
pub(super) fn name_of(
    fields: &mut CaseFields<'_>,
    given: Option<&String>,
    what: &str,
) -> Result<String, CaseError> {
    fields.take("count");
    match (fields.take("name"), given) {
        (Some(value), _) => Ok(text(value)?.to_owned()),
        (None, Some(name)) => Ok(name.clone()),
        (None, None) => Err(fields
            .value()
            .wrong(format!("{what} needs the key \"name\""))),
    }
}

/// Reads every object key of a case and puts the objects into `manifests`; the manifests of nodes
/// and pods are handed back.
pub(super) fn read(
    case: &mut CaseFields<'_>,
    manifests: &mut Manifests,
    stage: &mut CaseWorld,
) -> Result<Vec<(CaseValue, Json)>, CaseError> {
    type Reader = fn(&CaseValue, Option<&String>, Time) -> Result<Json, CaseError>;
    let now = stage.now;
    let readers: [(&'static str, Reader); 12] = [
        ("priorityclasses", priority_class),
        ("runtimeclasses", runtime_class),
        ("namespaces", namespace),
        ("daemonsets", daemon_set),
        ("pdbs", budget),
        ("storageclasses", storage::storage_class),
        ("pvcs", storage::claim),
        ("pvs", storage::volume),
        ("csidrivers", storage::csi_driver),
        ("csistoragecapacities", storage::storage_capacity),
        ("csinodes", storage::csi_node),
        ("volumeattachments", storage::attachment),
    ];
    let mut later = Vec::new();
    if let Some(value) = case.any(&["manifests", "manifest"]) {
        for item in several(value) {
            let mut object = shape::manifest(item)?;
            stage.classes.learn(&object);
            stage.budgets.extend(budgets::wanted(&object));
            if object["metadata"]["creationTimestamp"].is_null() {
                object["metadata"]["creationTimestamp"] = (now - AGE).to_string().into();
            }
            match object["kind"].as_str() {
                Some(kind) if kind == "Pod" || kind == "Node" || workloads::makes_pods(kind) => {
                    later.push((item.clone(), object));
                }
                _ => put(manifests, item, object)?,
            }
        }
    }
    for (key, read) in readers {
        let Some(value) = case.take(key) else {
            continue;
        };
        for (name, item) in named(value)? {
            let object = read(&item, name.as_ref(), now)?;
            stage.classes.learn(&object);
            stage.budgets.extend(budgets::wanted(&object));
            put(manifests, &item, object)?;
        }
    }
    Ok(later)
}

fn put(manifests: &mut Manifests, value: &CaseValue, mut object: Json) -> Result<(), CaseError> {
    let namespaced = [
        "DaemonSet",
        "PodDisruptionBudget",
        "PersistentVolumeClaim",
        "CSIStorageCapacity",
    ];
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    if namespaced.contains(&&*kind) && object["metadata"]["namespace"].is_null() {
        object["metadata"]["namespace"] = "default".into();
    }
    // The controller has seen it; one that a claim has is bound ([`storage::bind`]).
    if kind == "PersistentVolume" && object["status"]["phase"].is_null() {
        object["status"]["phase"] = "Available".into();
    }
    manifests.put(&object).map_err(|text| value.wrong(text))
}

pub(super) fn meta(
    fields: &mut CaseFields<'_>,
    name: Option<&String>,
    what: &str,
    now: Time,
) -> Result<Json, CaseError> {
    let name = name_of(fields, name, what)?;
    let namespace = fields.any(&["ns", "namespace"]).map(text).transpose()?;
    let age = fields.with("age", span)?.unwrap_or(AGE);
    let deleting = fields.with("deleting", truth)?.unwrap_or(false);
    Ok(json!({
        "name": name,
        "uid": format!("uid-{name}"),
        "namespace": namespace,
        "labels": fields.with("labels", short::string_map)?,
        "annotations": fields.with("annotations", short::string_map)?,
        "creationTimestamp": (now - age).to_string(),
        "deletionTimestamp": deleting.then(|| now.to_string()),
    }))
}

/// A namespace; the API server gives each the label of its name.
fn namespace(value: &CaseValue, name: Option<&String>, now: Time) -> Result<Json, CaseError> {
    let mut namespace = namespace_as_written(value, name, now)?;
    let metadata = &mut namespace["metadata"];
    let name = metadata["name"].clone();
    if metadata["labels"].is_null() {
        metadata["labels"] = json!({});
    }
    metadata["labels"]["kubernetes.io/metadata.name"] = name;
    Ok(namespace)
}

fn namespace_as_written(
    value: &CaseValue,
    name: Option<&String>,
    now: Time,
) -> Result<Json, CaseError> {
    // `namespaces: {team-a: {team: a}}`: the labels alone.
    let labels_alone = name.is_some() && value.get("labels").is_none();
    if labels_alone {
        let labels = if value.is_null() {
            json!({})
        } else {
            short::string_map(value)?
        };
        return Ok(json!({"kind": "Namespace", "metadata": {"name": name, "labels": labels}}));
    }
    let mut fields = CaseFields::of(value, "a namespace")?;
    let metadata = meta(&mut fields, name, "a namespace", now)?;
    fields.done()?;
    Ok(json!({"kind": "Namespace", "metadata": metadata}))
}

/// `{batch: -100}`, or `{name, value, preemptionPolicy, globalDefault}`.
fn priority_class(value: &CaseValue, name: Option<&String>, now: Time) -> Result<Json, CaseError> {
    let kind = "PriorityClass";
    if let (Some(name), Some(_)) = (name, value.scalar()) {
        let priority = whole::<i32>(value)?;
        return Ok(json!({"kind": kind, "metadata": {"name": name}, "value": priority}));
    }
    let mut fields = CaseFields::of(value, "a PriorityClass")?;
    let metadata = meta(&mut fields, name, "a PriorityClass", now)?;
    let priority = whole::<i32>(fields.need("value")?)?;
    let policy = fields.with("preemptionPolicy", text)?;
    let default = fields.any(&["globalDefault", "default"]).map(truth);
    let default = default.transpose()?.unwrap_or(false);
    fields.done()?;
    Ok(json!({
        "kind": kind,
        "metadata": metadata,
        "value": priority,
        "preemptionPolicy": policy,
        "globalDefault": default,
    }))
}

/// `{name, overhead: {cpu, memory}, nodeSelector, tolerations}`.
fn runtime_class(value: &CaseValue, name: Option<&String>, now: Time) -> Result<Json, CaseError> {
    let mut fields = CaseFields::of(value, "a RuntimeClass")?;
    let metadata = meta(&mut fields, name, "a RuntimeClass", now)?;
    let overhead = fields.with("overhead", containers::amounts)?;
    let selector = fields.with("nodeSelector", short::node_map)?;
    let tolerations = fields.with("tolerations", |value| {
        several(value)
            .into_iter()
            .map(short::toleration)
            .collect::<Result<Json, _>>()
    })?;
    fields.done()?;
    Ok(json!({
        "kind": "RuntimeClass",
        "metadata": metadata,
        "handler": "runc",
        "overhead": {"podFixed": overhead},
        "scheduling": {"nodeSelector": selector, "tolerations": tolerations},
    }))
}

fn daemon_set(value: &CaseValue, name: Option<&String>, now: Time) -> Result<Json, CaseError> {
    let mut fields = CaseFields::of(value, "a DaemonSet")?;
    let mut metadata = meta(&mut fields, name, "a DaemonSet", now)?;
    let own = match &metadata["labels"] {
        Json::Null => json!({ "app": metadata["name"] }),
        labels => labels.clone(),
    };
    metadata["labels"] = Json::Null;
    if fields.with("deleting", truth)?.unwrap_or(false) {
        metadata["deletionTimestamp"] = json!(now.to_string());
    }
    let spec = pods::spec(&mut fields, &own)?;
    fields.done()?;
    let template = json!({"metadata": {"labels": own}, "spec": spec});
    Ok(json!({"kind": "DaemonSet", "metadata": metadata, "spec": {"template": template}}))
}

fn budget(value: &CaseValue, name: Option<&String>, now: Time) -> Result<Json, CaseError> {
    let mut fields = CaseFields::of(value, "a disruption budget")?;
    let metadata = meta(&mut fields, name, "a disruption budget", now)?;
    let chosen = fields.any(&["selector", "labels", "matchLabels"]);
    let chosen = chosen
        .map(|value| short::selector(value, &json!({})))
        .transpose()?;
    let allowed = fields.any(&["allowed", "disruptionsAllowed"]);
    let allowed = allowed.map(whole::<i32>).transpose()?;
    let min = fields.with("minAvailable", amount)?;
    let max = fields.with("maxUnavailable", amount)?;
    // What is allowed follows from these, once the pods are known.
    let follows = allowed.is_none() && (min.is_some() || max.is_some());
    let policy = fields.any(&["unhealthy", "unhealthyPodEvictionPolicy"]);
    let policy = policy.map(text).transpose()?;
    fields.done()?;
    Ok(json!({
        "kind": "PodDisruptionBudget",
        "metadata": metadata,
        "spec": {
            "selector": chosen,
            "unhealthyPodEvictionPolicy": policy,
            "minAvailable": min,
            "maxUnavailable": max,
        },
        "status": {"disruptionsAllowed": (!follows).then_some(allowed.unwrap_or(0))},
    }))
}

/// A number of pods, or hundredths of them.
fn amount(value: &CaseValue) -> Result<Json, CaseError> {
    let written = text(value)?;
    if budgets::readable(written) {
        return Ok(written.into());
    }
    Err(value.expected("a number of pods, or a percentage such as 50%"))
}
