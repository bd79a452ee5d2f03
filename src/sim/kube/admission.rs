//! Defaulting, admission and validation of what is written: the part of it that clients notice.

mod pods;

use serde_json::{Value, json};

use super::auth::User;
use super::object::{carry, deleting, list, map, name, namespace, number, set, text, uid, unset};
use super::resources::{
    CSRS, DAEMONSETS, DEPLOYMENTS, JOBS, NAMESPACES, NODES, PDBS, PODS, PVCS, PVS, REPLICASETS,
    Res, SECRETS, STATEFULSETS, STORAGECLASSES,
};
use super::status::Status;
use super::store::State;

/// Prepares a new object, or says why it may not be.
pub(super) fn create(
    state: &mut State,
    res: Res,
    namespace: &str,
    mut object: Value,
    user: &User,
) -> Result<Value, Status> {
    let row = res.row();
    identify(res, &mut object, namespace)?;
    check_name(res, &object)?;
    check_namespace(state, res, &object)?;
    for field in ["resourceVersion", "uid", "creationTimestamp", "generation"] {
        unset(&mut object, &["metadata", field]);
    }
    for field in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
    ] {
        unset(&mut object, &["metadata", field]);
    }
    if row.status && res != NODES {
        unset(&mut object, &["status"]);
    }
    match res {
        PODS => pods::admit(state, &mut object)?,
        NODES => node(&mut object, user)?,
        NAMESPACES => new_namespace(&mut object),
        SECRETS => secret(&mut object),
        CSRS => certificate_request(&mut object, user),
        DEPLOYMENTS | REPLICASETS | STATEFULSETS | DAEMONSETS => workload(res, &mut object)?,
        JOBS => job(state, &mut object),
        PVCS => claim(state, &mut object),
        PVS => volume(&mut object),
        PDBS => budget(&mut object),
        _ => {}
    }
    Ok(object)
}

/// Kind, version and namespace must be those of the path.
fn identify(res: Res, object: &mut Value, namespace: &str) -> Result<(), Status> {
    let row = res.row();
    if !object.is_object() {
        return Err(Status::bad_request(
            "the object provided is unrecognized (must be of type Object)",
        ));
    }
    let (kind, version) = (text(object, "/kind"), text(object, "/apiVersion"));
    if (!kind.is_empty() && kind != row.kind)
        || (!version.is_empty() && version != row.api_version())
    {
        return Err(Status::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: the API version in the data ({version}, Kind={kind}) does not match the expected API version ({})",
            row.kind,
            row.version,
            row.kind,
            row.api_version()
        )));
    }
    set(object, &["kind"], json!(row.kind));
    set(object, &["apiVersion"], json!(row.api_version()));
    if row.namespaced {
        let given = text(object, "/metadata/namespace").to_owned();
        if !given.is_empty() && given != namespace {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        set(object, &["metadata", "namespace"], json!(namespace));
    } else {
        unset(object, &["metadata", "namespace"]);
    }
    Ok(())
}

/// Names are DNS subdomains; RBAC names may hold colons.
fn check_name(res: Res, object: &Value) -> Result<(), Status> {
    let given = name(object);
    let generated = text(object, "/metadata/generateName");
    if given.is_empty() && generated.is_empty() {
        return Err(Status::invalid(
            res,
            "",
            "metadata.name",
            "Required value: name or generateName is required",
        ));
    }
    let shown = if given.is_empty() { generated } else { given };
    let free = res.row().group == "rbac.authorization.k8s.io";
    let fits = shown.len() <= 253
        && shown
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.'))
        && shown
            .bytes()
            .next()
            .is_some_and(|b| b.is_ascii_alphanumeric())
        && (given.is_empty()
            || given
                .bytes()
                .last()
                .is_some_and(|b| b.is_ascii_alphanumeric()));
    if fits || free {
        return Ok(());
    }
    Err(Status::invalid(
        res,
        shown,
        "metadata.name",
        &format!(
            "Invalid value: \"{shown}\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"
        ),
    ))
}

fn check_namespace(state: &State, res: Res, object: &Value) -> Result<(), Status> {
    if !res.row().namespaced {
        return Ok(());
    }
    let wanted = namespace(object);
    match state.get(NAMESPACES, "", wanted) {
        None => Err(Status::not_found(NAMESPACES, wanted)),
        Some(found) if deleting(&found) => Err(Status::forbidden(
            res,
            name(object),
            &format!(
                "unable to create new content in namespace {wanted} because it is being terminated"
            ),
        )),
        Some(_) => Ok(()),
    }
}

fn default(object: &mut Value, path: &[&str], value: Value) {
    let pointer: String = path.iter().flat_map(|p| ["/", *p]).collect();
    if object.pointer(&pointer).is_none_or(Value::is_null) {
        set(object, path, value);
    }
}

fn node(object: &mut Value, user: &User) -> Result<(), Status> {
    if let Some(own) = user.node()
        && own != name(object)
    {
        return Err(Status::forbidden(
            NODES,
            name(object),
            &format!(
                "node \"{own}\" is not allowed to modify node \"{}\"",
                name(object)
            ),
        ));
    }
    default(object, &["spec"], json!({}));
    default(object, &["status"], json!({}));
    // Admission plugin TaintNodesByCondition.
    let mut taints = list(object, "/spec/taints").to_vec();
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    if !taints.iter().any(|t| {
        text(t, "/key") == "node.kubernetes.io/not-ready" && text(t, "/effect") == "NoSchedule"
    }) {
        taints.push(taint);
    }
    set(object, &["spec", "taints"], Value::Array(taints));
    check_taints(object)
}

/// No two taints of the same key and effect.
fn check_taints(object: &Value) -> Result<(), Status> {
    let taints = list(object, "/spec/taints");
    for (at, taint) in taints.iter().enumerate() {
        let effect = text(taint, "/effect");
        if !matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
            return Err(Status::invalid(
                NODES,
                name(object),
                &format!("metadata.taints[{at}].effect"),
                &format!(
                    "Unsupported value: \"{effect}\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\""
                ),
            ));
        }
        let twin = taints[..at]
            .iter()
            .any(|t| text(t, "/key") == text(taint, "/key") && text(t, "/effect") == effect);
        if twin {
            return Err(Status::invalid(
                NODES,
                name(object),
                &format!("metadata.taints[{at}]"),
                &format!("Duplicate value: {taint}: taints must be unique by key and effect pair"),
            ));
        }
    }
    Ok(())
}

fn new_namespace(object: &mut Value) {
    let own = name(object).to_owned();
    set(
        object,
        &["metadata", "labels", "kubernetes.io/metadata.name"],
        json!(own),
    );
    set(object, &["spec", "finalizers"], json!(["kubernetes"]));
    set(object, &["status"], json!({"phase": "Active"}));
}

/// `stringData` goes into `data`, base64.
fn secret(object: &mut Value) {
    use base64::Engine as _;
    let plain = map(object, "/stringData").cloned().unwrap_or_default();
    for (key, value) in plain {
        let encoded =
            base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or(""));
        set(object, &["data", &key], json!(encoded));
    }
    unset(object, &["stringData"]);
    default(object, &["type"], json!("Opaque"));
}

fn certificate_request(object: &mut Value, user: &User) {
    set(object, &["spec", "username"], json!(user.name));
    set(object, &["spec", "groups"], json!(user.groups));
    set(object, &["status"], json!({}));
}

fn workload(res: Res, object: &mut Value) -> Result<(), Status> {
    let shown = name(object).to_owned();
    let selector = object["spec"]["selector"].clone();
    let labels = map(object, "/spec/template/metadata/labels");
    if !super::selector::label_selector(&selector, labels) {
        return Err(Status::invalid(
            res,
            &shown,
            "spec.template.metadata.labels",
            "Invalid value: `selector` does not match template `labels`",
        ));
    }
    if res != DAEMONSETS {
        default(object, &["spec", "replicas"], json!(1));
    }
    pods::complete_spec(&mut object["spec"]["template"]["spec"]);
    match res {
        DEPLOYMENTS => default(
            object,
            &["spec", "strategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}),
        ),
        STATEFULSETS => default(
            object,
            &["spec", "podManagementPolicy"],
            json!("OrderedReady"),
        ),
        DAEMONSETS => default(
            object,
            &["spec", "updateStrategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}),
        ),
        _ => {}
    }
    set(object, &["status"], json!({}));
    Ok(())
}

fn job(state: &mut State, object: &mut Value) {
    for (field, value) in [
        ("parallelism", json!(1)),
        ("completions", json!(1)),
        ("backoffLimit", json!(6)),
        ("completionMode", json!("NonIndexed")),
        ("suspend", json!(false)),
    ] {
        default(object, &["spec", field], value);
    }
    let shown = name(object).to_owned();
    // The store gives the UID later; the selector only has to be unique.
    let unique = state.uuid();
    for (key, value) in [
        ("batch.kubernetes.io/controller-uid", &unique),
        ("controller-uid", &unique),
        ("batch.kubernetes.io/job-name", &shown),
        ("job-name", &shown),
    ] {
        set(
            object,
            &["spec", "template", "metadata", "labels", key],
            json!(value),
        );
    }
    set(
        object,
        &["spec", "selector"],
        json!({"matchLabels": {"batch.kubernetes.io/controller-uid": unique}}),
    );
    pods::complete_spec(&mut object["spec"]["template"]["spec"]);
    set(object, &["status"], json!({}));
}

fn claim(state: &State, object: &mut Value) {
    let standard = state.all(STORAGECLASSES).values().find(|c| {
        super::object::annotation(c, "storageclass.kubernetes.io/is-default-class") == Some("true")
    });
    if let Some(class) = standard {
        default(object, &["spec", "storageClassName"], json!(name(class)));
    }
    default(object, &["spec", "volumeMode"], json!("Filesystem"));
    set(object, &["status"], json!({"phase": "Pending"}));
    default(
        object,
        &["metadata", "finalizers"],
        json!(["kubernetes.io/pvc-protection"]),
    );
}

fn volume(object: &mut Value) {
    default(
        object,
        &["spec", "persistentVolumeReclaimPolicy"],
        json!("Retain"),
    );
    default(object, &["spec", "volumeMode"], json!("Filesystem"));
    set(object, &["status"], json!({"phase": "Available"}));
}

fn budget(object: &mut Value) {
    set(
        object,
        &["status"],
        json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}),
    );
}

/// Prepares the new form of an object that exists, written through the main door or through
/// `status`, or says why it may not be.
pub(super) fn update(
    res: Res,
    old: &Value,
    mut new: Value,
    subresource: &str,
    user: &User,
) -> Result<Value, Status> {
    let row = res.row();
    identify(res, &mut new, namespace(old))?;
    if name(&new) != name(old) {
        return Err(Status::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            name(&new),
            name(old)
        )));
    }
    if !uid(&new).is_empty() && uid(&new) != uid(old) {
        return Err(Status::other_uid(res, name(old), uid(&new), uid(old)));
    }
    if let Some(own) = user.node()
        && res == NODES
        && own != name(old)
    {
        let text = format!(
            "node \"{own}\" is not allowed to modify node \"{}\"",
            name(old)
        );
        return Err(Status::forbidden(res, name(old), &text));
    }
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
    ] {
        carry(old, &mut new, &["metadata", field]);
    }
    if !subresource.is_empty() {
        return Ok(status_update(old, &new, subresource));
    }
    if row.status {
        carry(old, &mut new, &["status"]);
    }
    match res {
        PODS => check_pod_update(old, &new)?,
        NODES => check_taints(&new)?,
        SECRETS => secret(&mut new),
        DEPLOYMENTS | REPLICASETS | STATEFULSETS | DAEMONSETS => {
            if new.pointer("/spec/selector") != old.pointer("/spec/selector") {
                return Err(Status::invalid(
                    res,
                    name(old),
                    "spec.selector",
                    "Invalid value: field is immutable",
                ));
            }
            pods::complete_spec(&mut new["spec"]["template"]["spec"]);
        }
        _ => {}
    }
    if row.generation && new.get("spec") != old.get("spec") {
        let next = number(old, "/metadata/generation").unwrap_or(0) + 1;
        set(&mut new, &["metadata", "generation"], json!(next));
    }
    Ok(new)
}

/// A write through a subresource: the status, and with `status` the metadata that goes with it.
fn status_update(old: &Value, given: &Value, subresource: &str) -> Value {
    let mut new = old.clone();
    if subresource == "status" {
        for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
            if let Some(value) = given["metadata"].get(field) {
                set(&mut new, &["metadata", field], value.clone());
            }
        }
    }
    let status = given.get("status").cloned().unwrap_or(json!({}));
    set(&mut new, &["status"], status);
    new
}

/// Of a pod's spec only a few fields may change.
fn check_pod_update(old: &Value, new: &Value) -> Result<(), Status> {
    let bare = |pod: &Value| {
        let mut spec = pod["spec"].clone();
        for field in ["containers", "initContainers"] {
            for container in spec[field].as_array_mut().into_iter().flatten() {
                unset(container, &["image"]);
            }
        }
        if spec["initContainers"].is_null() {
            unset(&mut spec, &["initContainers"]);
        }
        if spec["containers"].is_null() {
            unset(&mut spec, &["containers"]);
        }
        for field in [
            "tolerations",
            "activeDeadlineSeconds",
            "terminationGracePeriodSeconds",
            "schedulingGates",
        ] {
            unset(&mut spec, &[field]);
        }
        spec
    };
    if bare(old) == bare(new) {
        return Ok(());
    }
    Err(Status::invalid(
        PODS,
        name(old),
        "spec",
        "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
    ))
}
