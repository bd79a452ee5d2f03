//! What the API server makes of a new pod.

use serde_json::{Value, json};

use super::default;
use crate::sim::kube::object::{list, map, name, number, set, text, unset};
use crate::sim::kube::resources::{PODS, PRIORITYCLASSES, RUNTIMECLASSES};
use crate::sim::kube::status::Status;
use crate::sim::kube::store::State;

/// Defaults of a pod spec, of pods and templates alike.
pub(super) fn complete_spec(spec: &mut Value) {
    default(spec, &["restartPolicy"], json!("Always"));
    default(spec, &["terminationGracePeriodSeconds"], json!(30));
    default(spec, &["dnsPolicy"], json!("ClusterFirst"));
    default(spec, &["schedulerName"], json!("default-scheduler"));
    default(spec, &["securityContext"], json!({}));
    for field in ["containers", "initContainers"] {
        for container in spec[field].as_array_mut().into_iter().flatten() {
            default(container, &["resources"], json!({}));
            default(container, &["imagePullPolicy"], json!("IfNotPresent"));
            default(
                container,
                &["terminationMessagePath"],
                json!("/dev/termination-log"),
            );
            default(container, &["terminationMessagePolicy"], json!("File"));
            let limits = map(container, "/resources/limits").cloned();
            for (key, limit) in limits.into_iter().flatten() {
                default(container, &["resources", "requests", &key], limit);
            }
        }
    }
    if spec.get("initContainers").is_some_and(Value::is_null) {
        unset(spec, &["initContainers"]);
    }
}

/// A new pod: defaults, its classes' part, and what the API server writes into its terms.
pub(super) fn admit(state: &State, object: &mut Value) -> Result<(), Status> {
    let shown = name(object).to_owned();
    if list(object, "/spec/containers").is_empty() {
        return Err(Status::invalid(
            PODS,
            &shown,
            "spec.containers",
            "Required value",
        ));
    }
    complete_spec(&mut object["spec"]);
    default(object, &["spec", "enableServiceLinks"], json!(true));
    default(object, &["spec", "serviceAccountName"], json!("default"));
    default(
        object,
        &["spec", "serviceAccount"],
        object["spec"]["serviceAccountName"].clone(),
    );
    priority(state, object)?;
    runtime(state, object)?;
    default_tolerations(object);
    merge_label_keys(object);
    set(
        object,
        &["status"],
        json!({"phase": "Pending", "qosClass": quality(object)}),
    );
    Ok(())
}

/// Admission plugin Priority.
fn priority(state: &State, object: &mut Value) -> Result<(), Status> {
    let class = text(object, "/spec/priorityClassName").to_owned();
    let found = if class.is_empty() {
        None
    } else {
        let unknown = format!("no PriorityClass with name {class} was found");
        let found = state.get(PRIORITYCLASSES, "", &class);
        Some(found.ok_or_else(|| Status::forbidden(PODS, name(object), &unknown))?)
    };
    let value = found.as_ref().and_then(|class| number(class, "/value"));
    set(object, &["spec", "priority"], json!(value.unwrap_or(0)));
    let policy = found
        .as_ref()
        .map_or("", |class| text(class, "/preemptionPolicy"));
    let policy = if policy.is_empty() {
        "PreemptLowerPriority"
    } else {
        policy
    };
    default(object, &["spec", "preemptionPolicy"], json!(policy));
    Ok(())
}

/// Admission plugin RuntimeClass: overhead, and on which nodes the class is.
fn runtime(state: &State, object: &mut Value) -> Result<(), Status> {
    let class = text(object, "/spec/runtimeClassName").to_owned();
    if class.is_empty() {
        return Ok(());
    }
    let found = state.get(RUNTIMECLASSES, "", &class).ok_or_else(|| {
        let unknown = format!("pod rejected: RuntimeClass \"{class}\" not found");
        Status::forbidden(PODS, name(object), &unknown)
    })?;
    if let Some(overhead) = found.pointer("/overhead/podFixed") {
        set(object, &["spec", "overhead"], overhead.clone());
    }
    for (key, value) in map(&found, "/scheduling/nodeSelector")
        .into_iter()
        .flatten()
    {
        let own = map(object, "/spec/nodeSelector").and_then(|own| own.get(key));
        if own.is_some_and(|own| own != value) {
            let conflict = "conflict: runtimeClass.scheduling.nodeSelector.%KEY% differs from the pod's nodeSelector".replace("%KEY%", key);
            return Err(Status::forbidden(PODS, name(object), &conflict));
        }
        set(object, &["spec", "nodeSelector", key], value.clone());
    }
    let mut tolerations = list(object, "/spec/tolerations").to_vec();
    tolerations.extend(list(&found, "/scheduling/tolerations").iter().cloned());
    if !tolerations.is_empty() {
        set(object, &["spec", "tolerations"], Value::Array(tolerations));
    }
    Ok(())
}

/// `matchLabelKeys` and `mismatchLabelKeys` become requirements of the selector beside them, with the values that the pod's
/// own labels have; scheduler and autoscalers read the selector alone.
fn merge_label_keys(object: &mut Value) {
    let labels = map(object, "/metadata/labels").cloned().unwrap_or_default();
    let merge = |term: &mut Value| {
        if !term["labelSelector"].is_object() {
            return;
        }
        let mut all = list(term, "/labelSelector/matchExpressions").to_vec();
        for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
            let keys = term[field].as_array().into_iter().flatten();
            let keys = keys.filter_map(Value::as_str);
            all.extend(keys.filter_map(|key| {
                let value = labels.get(key)?;
                Some(json!({"key": key, "operator": operator, "values": [value]}))
            }));
        }
        if !all.is_empty() {
            set(
                term,
                &["labelSelector", "matchExpressions"],
                Value::Array(all),
            );
        }
    };
    let spec = &mut object["spec"];
    let spread = spec.get_mut("topologySpreadConstraints");
    let spread = spread.and_then(Value::as_array_mut);
    spread.into_iter().flatten().for_each(merge);
    for kind in ["podAffinity", "podAntiAffinity"] {
        for (list, term) in [
            ("requiredDuringSchedulingIgnoredDuringExecution", ""),
            (
                "preferredDuringSchedulingIgnoredDuringExecution",
                "/podAffinityTerm",
            ),
        ] {
            let terms = spec.pointer_mut(&format!("/affinity/{kind}/{list}"));
            let terms = terms.and_then(Value::as_array_mut).into_iter().flatten();
            terms
                .filter_map(|one| one.pointer_mut(term))
                .for_each(merge);
        }
    }
}

/// Admission plugin DefaultTolerationSeconds: 300 s of tolerance for sick nodes.
fn default_tolerations(object: &mut Value) {
    let mut tolerations = list(object, "/spec/tolerations").to_vec();
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        let covered = tolerations.iter().any(|t| {
            matches!(text(t, "/key"), k if k == key || k.is_empty())
                && matches!(text(t, "/effect"), "NoExecute" | "")
        });
        if !covered {
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
            }));
        }
    }
    set(object, &["spec", "tolerations"], Value::Array(tolerations));
}

/// `status.qosClass`.
fn quality(pod: &Value) -> &'static str {
    let (mut any, mut all) = (false, true);
    for field in ["/spec/containers", "/spec/initContainers"] {
        for container in list(pod, field) {
            for resource in ["cpu", "memory"] {
                let at = |kind: &str| container.pointer(&format!("/resources/{kind}/{resource}"));
                any |= at("requests").is_some() || at("limits").is_some();
                all &= at("limits").is_some() && at("limits") == at("requests");
            }
        }
    }
    match (any, all) {
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
        _ => "BestEffort",
    }
}
