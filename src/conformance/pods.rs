//! Pods: from an entry of `pods` to Kubernetes' own form, which is then read as the daemon reads it.

use serde_json::{Map, Value as Json, json};

use crate::model::time::{Span, Time};

use super::containers;
use super::fields::CaseFields;
use super::scalars::{many, several, span, text, time, truth, whole};
use super::shape;
use super::short;
use super::value::{CaseError, CaseValue, INDEX, numbered_name};

/// Pods that nothing else is said of are so old, in milliseconds: long enough to be considered.
const PENDING_AGE: i64 = 60_000;
/// Bound ones so old.
const BOUND_AGE: i64 = 24 * 3_600_000;
/// `spec.terminationGracePeriodSeconds` when it is absent.
const GRACE: i64 = 30;

/// `status.phase`.
const PHASES: [&str; 5] = ["Pending", "Running", "Succeeded", "Failed", "Unknown"];

/// What an entry of `pods` stands for.
#[derive(Debug)]
pub(super) struct PodDraft {
    /// One pod; further ones differ in name alone.
    pub(super) object: Json,
    /// The names of all, the first is the object's.
    pub(super) names: Vec<String>,
}

/// Reads an entry of `pods`: several drafts when it has a count and something in it is numbered.
pub(super) fn drafts(
    value: &CaseValue,
    default_name: &str,
    now: Time,
) -> Result<Vec<PodDraft>, CaseError> {
    let stem = base_name(value, default_name)?;
    let many = value.get("count").map(many).transpose()?;
    let Some(many) = many else {
        return Ok(vec![draft(value, &stem, stem.clone(), now)?]);
    };
    let named = stem.contains(INDEX);
    let name = |index| numbered_name(&stem, index);
    // What the pods share is named like what is left without the number.
    let shared = stem.replace(INDEX, "");
    let shared = shared.trim_end_matches('-');
    if !named && !value.has_index() {
        let mut draft = draft(value, shared, name(0), now)?;
        draft.names = (0..many).map(name).collect();
        return Ok(if many == 0 { Vec::new() } else { vec![draft] });
    }
    (0..many)
        .map(|index| draft(&value.numbered(index), shared, name(index), now))
        .collect()
}

/// The name of an entry, before it is numbered.
fn base_name(value: &CaseValue, default_name: &str) -> Result<String, CaseError> {
    let named = value
        .get("name")
        .or_else(|| value.get("manifest")?.get("metadata")?.get("name"))
        .or_else(|| value.get("metadata")?.get("name"));
    named.map_or_else(
        || Ok(default_name.to_owned()),
        |value| Ok(text(value)?.to_owned()),
    )
}

fn draft(value: &CaseValue, stem: &str, name: String, now: Time) -> Result<PodDraft, CaseError> {
    let mut fields = CaseFields::of(value, format!("the pod {stem}"))?;
    fields.take("name");
    fields.take("count");
    let whole = value.get("spec").is_some() || value.get("metadata").is_some();
    let mut object = match fields.take("manifest") {
        Some(manifest) => beside(&mut fields, shape::manifest(manifest)?, stem)?,
        None if whole => {
            let object = whole_manifest(&mut fields);
            shape::check(&object, value)?;
            beside(&mut fields, object, stem)?
        }
        None => written(&mut fields, stem)?,
    };
    object["metadata"]["name"] = name.clone().into();
    object["metadata"]["uid"] = format!("uid-{name}").into();
    if object["metadata"]["namespace"].is_null() {
        object["metadata"]["namespace"] = "default".into();
    }
    state(&mut fields, &mut object, now)?;
    fields.done()?;
    Ok(PodDraft {
        object,
        names: vec![name],
    })
}

/// A pod as Kubernetes prints it, in the entry itself.
fn whole_manifest(fields: &mut CaseFields<'_>) -> Json {
    fields.take("apiVersion");
    fields.take("kind");
    let mut part = |key| fields.take(key).map(CaseValue::json);
    json!({"metadata": part("metadata"), "spec": part("spec"), "status": part("status")})
}

/// Metadata that stands beside a manifest: it is laid over the manifest's own.
fn beside(fields: &mut CaseFields<'_>, mut object: Json, stem: &str) -> Result<Json, CaseError> {
    for key in ["labels", "annotations"] {
        let Some(Json::Object(more)) = fields.with(key, short::string_map)? else {
            continue;
        };
        for (name, value) in more {
            object["metadata"][key][name] = value;
        }
    }
    if let Some(namespace) = fields.any(&["ns", "namespace"]) {
        object["metadata"]["namespace"] = text(namespace)?.into();
    }
    if let Some(owner) = fields.take("owner") {
        object["metadata"]["ownerReferences"] = owner_reference(Some(owner), stem)?;
    }
    Ok(object)
}

/// The pod of a manifest that stands by itself, with the state that is not said.
pub(super) fn from_manifest(mut object: Json, now: Time) -> Result<Json, CaseError> {
    let nothing = CaseValue {
        at: super::value::SourcePosition {
            file: "".into(),
            line: 0,
        },
        data: super::value::CaseData::Map(Vec::new()),
    };
    if object["metadata"]["namespace"].is_null() {
        object["metadata"]["namespace"] = "default".into();
    }
    state(&mut CaseFields::of(&nothing, "a pod")?, &mut object, now)?;
    Ok(object)
}

/// Metadata and spec.
fn written(fields: &mut CaseFields<'_>, stem: &str) -> Result<Json, CaseError> {
    let labels = fields.with("labels", short::string_map)?;
    let labels = labels.unwrap_or_else(|| json!({ "app": stem }));
    let namespace = fields.any(&["ns", "namespace"]).map(text).transpose()?;
    let annotations = fields.with("annotations", short::string_map)?;
    let owner = fields.take("owner");
    let owners = fields.take("ownerReferences").map(CaseValue::json);
    let mut object = json!({
        "metadata": {
            "namespace": namespace.unwrap_or("default"),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": owners.map_or_else(|| owner_reference(owner, stem), Ok)?,
        },
        "spec": spec(fields, &labels)?,
        "status": {},
    });
    if fields.with("mirror", truth)? == Some(true) {
        let annotations = &mut object["metadata"]["annotations"];
        if annotations.is_null() {
            *annotations = json!({});
        }
        annotations["kubernetes.io/config.mirror"] = "yes".into();
    }
    Ok(object)
}

/// The specification of a pod, or of a template's pods.
pub(super) fn spec(fields: &mut CaseFields<'_>, labels: &Json) -> Result<Json, CaseError> {
    let mut spec = Map::new();
    let mut set = |key: &str, value: Option<Json>| {
        if let Some(value) = value {
            spec.insert(key.to_owned(), value);
        }
    };
    let containers = containers::read(fields)?;
    set("containers", Some(containers.main));
    set("initContainers", Some(containers.init));
    set("overhead", fields.with("overhead", containers::amounts)?);
    set(
        "resources",
        fields.with("resources", containers::pod_level)?,
    );
    set(
        "nodeSelector",
        fields.with("nodeSelector", short::node_map)?,
    );
    set("affinity", affinity(fields, labels)?);
    let spread = fields.any(&["spread", "topologySpreadConstraints"]);
    set(
        "topologySpreadConstraints",
        spread
            .map(|value| list(value, |item| short::spread(item, labels)))
            .transpose()?,
    );
    set(
        "tolerations",
        fields.with("tolerations", |value| list(value, short::toleration))?,
    );
    set("volumes", fields.with("volumes", containers::volumes)?);
    set(
        "priority",
        fields.with("priority", whole::<i32>)?.map(Into::into),
    );
    for key in [
        "preemptionPolicy",
        "restartPolicy",
        "priorityClassName",
        "runtimeClassName",
    ] {
        set(key, fields.with(key, text)?.map(Into::into));
    }
    let scheduler = fields.any(&["scheduler", "schedulerName"]).map(text);
    set("schedulerName", scheduler.transpose()?.map(Into::into));
    set(
        "hostNetwork",
        fields.with("hostNetwork", truth)?.map(Into::into),
    );
    let gates = fields.any(&["gates", "schedulingGates"]);
    set(
        "schedulingGates",
        gates.map(|value| list(value, gate)).transpose()?,
    );
    let grace = fields.any(&["grace", "terminationGracePeriodSeconds"]);
    set(
        "terminationGracePeriodSeconds",
        grace.map(seconds).transpose()?.map(Into::into),
    );
    Ok(Json::Object(spec))
}

fn gate(value: &CaseValue) -> Result<Json, CaseError> {
    match value.map() {
        Some(_) => Ok(value.json()),
        None => Ok(json!({ "name": text(value)? })),
    }
}

/// Seconds, as a number or a span.
fn seconds(value: &CaseValue) -> Result<i64, CaseError> {
    whole::<i64>(value).or_else(|_| Ok(span(value)?.0 / 1000))
}

/// A list, or one thing, each read alike.
fn list(
    value: &CaseValue,
    read: impl Fn(&CaseValue) -> Result<Json, CaseError>,
) -> Result<Json, CaseError> {
    several(value).into_iter().map(read).collect()
}

fn affinity(fields: &mut CaseFields<'_>, labels: &Json) -> Result<Option<Json>, CaseError> {
    let (mut node, mut together, mut apart) = (None, None, None);
    let pods = |value| short::pod_affinity(value, labels);
    if let Some(value) = fields.take("affinity") {
        let parts = ["nodeAffinity", "podAffinity", "podAntiAffinity"];
        if value.map().is_some_and(|entries| {
            entries.is_empty() || entries.iter().any(|entry| parts.contains(&&*entry.key))
        }) {
            let mut fields = CaseFields::of(value, "the affinity")?;
            node = fields.with("nodeAffinity", short::node_affinity)?;
            together = fields.with("podAffinity", pods)?;
            apart = fields.with("podAntiAffinity", pods)?;
            fields.done()?;
        } else {
            together = Some(pods(value)?);
        }
    }
    if let Some(value) = fields.with("nodeAffinity", short::node_affinity)? {
        node = Some(value);
    }
    if let Some(value) = fields.with("podAffinity", pods)? {
        together = Some(value);
    }
    let own = fields.any(&["antiAffinity", "podAntiAffinity"]);
    if let Some(value) = own.map(pods).transpose()? {
        apart = Some(value);
    }
    let any = node.is_some() || together.is_some() || apart.is_some();
    Ok(any
        .then(|| json!({"nodeAffinity": node, "podAffinity": together, "podAntiAffinity": apart})))
}

/// `ReplicaSet/web`, `DaemonSet`, `none`, or `{kind, name}`; a ReplicaSet of the pod's name by default.
fn owner_reference(value: Option<&CaseValue>, stem: &str) -> Result<Json, CaseError> {
    let (kind, name) = match value {
        None => ("ReplicaSet", stem),
        Some(value) if value.map().is_some() => {
            let mut fields = CaseFields::of(value, "an owner")?;
            let kind = text(fields.need("kind")?)?;
            let name = fields.with("name", text)?.unwrap_or(stem);
            fields.take("replicas");
            fields.take("apiVersion");
            fields.done()?;
            (kind, name)
        }
        Some(value) => match text(value)? {
            "none" | "naked" => return Ok(json!([])),
            written => written.split_once('/').unwrap_or((written, stem)),
        },
    };
    // A DaemonSet may be one of the case's own, and those are `uid-NAME`.
    let uid = match kind {
        "DaemonSet" => format!("uid-{name}"),
        _ => format!("uid-{kind}-{name}"),
    };
    Ok(json!([{
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": true,
    }]))
}

/// Where the pod stands: node, phase, times and conditions.
fn state(fields: &mut CaseFields<'_>, object: &mut Json, now: Time) -> Result<(), CaseError> {
    if let Some(node) = fields.any(&["node", "nodeName"]).map(text).transpose()? {
        object["spec"]["nodeName"] = node.into();
    }
    if let Some(node) = fields
        .any(&["nominated", "nominatedNodeName"])
        .map(text)
        .transpose()?
    {
        object["status"]["nominatedNodeName"] = node.into();
    }
    let bound = object["spec"]["nodeName"]
        .as_str()
        .is_some_and(|node| !node.is_empty());
    let age = fields.with("age", span)?.map(|span| span.0);
    let created = now - Span(age.unwrap_or(if bound { BOUND_AGE } else { PENDING_AGE }));
    if age.is_some() || object["metadata"]["creationTimestamp"].is_null() {
        object["metadata"]["creationTimestamp"] = created.to_string().into();
    }
    let phase = fields.with("phase", known_phase)?;
    if phase.is_some() || object["status"]["phase"].is_null() {
        let usual = if bound { "Running" } else { "Pending" };
        object["status"]["phase"] = phase.unwrap_or(usual).into();
    }
    // So long ago its kubelet took it on; what runs was taken on when it was created, unless it says otherwise.
    let started = fields.with("started", span)?.map(|ago| now - ago);
    let runs = object["status"]["phase"] == "Running";
    if started.is_some() || (runs && object["status"]["startTime"].is_null()) {
        object["status"]["startTime"] = started.unwrap_or(created).to_string().into();
    }
    if let Some(value) = fields.any(&["terminating", "deletionTimestamp"]) {
        let grace = object["spec"]["terminationGracePeriodSeconds"]
            .as_i64()
            .unwrap_or(GRACE);
        let at = match value.scalar() {
            Some("true") => Some(now + Span(grace.saturating_mul(1000))),
            Some("false") => None,
            _ => Some(time(value, now)?),
        };
        object["metadata"]["deletionTimestamp"] = at.map(|at| at.to_string()).into();
    }
    if let Some(grace) = fields
        .any(&["deletionGrace", "deletionGracePeriodSeconds"])
        .map(seconds)
        .transpose()?
    {
        object["metadata"]["deletionGracePeriodSeconds"] = grace.into();
    }
    conditions(fields, object, bound, created, now)
}

fn known_phase(value: &CaseValue) -> Result<&str, CaseError> {
    let phase = text(value)?;
    if PHASES.contains(&phase) {
        return Ok(phase);
    }
    Err(value.expected(&format!("one of {}", PHASES.join(", "))))
}

fn conditions(
    fields: &mut CaseFields<'_>,
    object: &mut Json,
    bound: bool,
    created: Time,
    now: Time,
) -> Result<(), CaseError> {
    let mut conditions = Vec::new();
    let ready = fields.with("ready", truth)?.unwrap_or(bound);
    conditions.push(json!({"type": "Ready", "status": if ready { "True" } else { "False" }}));
    let since = match fields.any(&["unschedulable", "unschedulable_since"]) {
        None => Some(created),
        Some(value) => match value.scalar() {
            Some("true") => Some(created),
            Some("false") => None,
            _ => Some(time(value, now)?),
        },
    };
    let gated = object["spec"]["schedulingGates"]
        .as_array()
        .is_some_and(|gates| !gates.is_empty());
    let held = if bound {
        json!({"type": "PodScheduled", "status": "True"})
    } else if gated {
        json!({"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"})
    } else if let Some(since) = since {
        json!({
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "lastTransitionTime": since.to_string(),
        })
    } else {
        Json::Null
    };
    if !held.is_null() {
        conditions.push(held);
    }
    if object["status"]["conditions"].is_null() {
        object["status"]["conditions"] = Json::Array(conditions);
    }
    Ok(())
}
