//! The pod subresources `eviction` and `binding`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::auth::User;
use super::object::{
    deleting, is_true, map, name, namespace, number, seconds, set, set_condition, text, unset,
};
use super::resources::{NODES, PDBS, PODS};
use super::selector::label_selector;
use super::status::{Status, success};
use super::store::State;
use super::verbs;

/// Whether a disruption budget covers a pod.
pub(super) fn covers(budget: &Value, pod: &Value) -> bool {
    namespace(budget) == namespace(pod)
        && label_selector(&budget["spec"]["selector"], map(pod, "/metadata/labels"))
}

/// POST `pods/NAME/eviction` (policy/v1), by `registry/core/pod/storage/eviction.go`.
pub(super) fn evict(
    state: &mut State,
    space: &str,
    wanted: &str,
    eviction: &Value,
    user: &User,
) -> Result<Value, Status> {
    let asked = name(eviction);
    if !asked.is_empty() && asked != wanted {
        return Err(Status::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    let options = eviction.get("deleteOptions").cloned().unwrap_or(json!({}));
    let pod = verbs::get(state, PODS, space, wanted)?;
    verbs::preconditions(PODS, &pod, &options)?;
    let free = deleting(&pod)
        || matches!(
            text(&pod, "/status/phase"),
            "Succeeded" | "Failed" | "Pending"
        );
    if !free {
        take_from_budget(state, &pod)?;
    }
    let now = state.now;
    state.change(PODS, space, wanted, |pod| {
        if !deleting(pod) {
            set_condition(
                pod,
                "DisruptionTarget",
                "True",
                "EvictionByEvictionAPI",
                &format!("Eviction API: evicting by {}", user.name),
                now,
            );
        }
    });
    verbs::delete(state, PODS, space, wanted, &options)?;
    Ok(success(None))
}

/// Spends one disruption of the pod's budget, if it has one and needs it.
fn take_from_budget(state: &mut State, pod: &Value) -> Result<(), Status> {
    let budgets: Vec<Arc<Value>> = state
        .all(PDBS)
        .values()
        .filter(|b| covers(b, pod))
        .cloned()
        .collect();
    let budget = match budgets.as_slice() {
        [] => return Ok(()),
        [one] => one,
        _ => {
            return Err(Status::internal(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    };
    let field = |key: &str| number(budget, &format!("/status/{key}")).unwrap_or(0);
    if !is_true(pod, "Ready") {
        let always = text(budget, "/spec/unhealthyPodEvictionPolicy") == "AlwaysAllow";
        let healthy =
            field("currentHealthy") >= field("desiredHealthy") && field("desiredHealthy") > 0;
        if always || healthy {
            return Ok(());
        }
    }
    let title = name(budget);
    if field("observedGeneration") < number(budget, "/metadata/generation").unwrap_or(0) {
        return Err(Status::budget(
            &format!("The disruption budget {title} is still being processed by the server."),
            10,
        ));
    }
    if field("disruptionsAllowed") <= 0 {
        return Err(Status::budget(
            &format!(
                "The disruption budget {title} needs {} healthy pods and has {} currently",
                field("desiredHealthy"),
                field("currentHealthy")
            ),
            0,
        ));
    }
    let left = field("disruptionsAllowed") - 1;
    let mut new = Value::clone(budget);
    set(&mut new, &["status", "disruptionsAllowed"], json!(left));
    set(
        &mut new,
        &["status", "disruptedPods", name(pod)],
        json!(seconds(state.now)),
    );
    state.replace(PDBS, new);
    Ok(())
}

/// POST `pods/NAME/binding`.
pub(super) fn bind(
    state: &mut State,
    space: &str,
    wanted: &str,
    binding: &Value,
) -> Result<Value, Status> {
    let pod = verbs::get(state, PODS, space, wanted)?;
    let node = text(binding, "/target/name");
    let bound = text(&pod, "/spec/nodeName");
    if !bound.is_empty() {
        return Err(Status::conflict(
            PODS,
            wanted,
            &format!("pod {wanted} is already assigned to node \"{bound}\""),
        ));
    }
    if deleting(&pod) {
        return Err(Status::conflict(
            PODS,
            wanted,
            &format!("pod {wanted} is being deleted, cannot be assigned to a host"),
        ));
    }
    if node.is_empty() || state.get(NODES, "", node).is_none() {
        return Err(Status::not_found(NODES, node));
    }
    assign(state, &pod, node);
    Ok(success(None))
}

/// Gives a pod its node.
pub(super) fn assign(state: &mut State, pod: &Value, node: &str) {
    let mut new = pod.clone();
    set(&mut new, &["spec", "nodeName"], json!(node));
    // Since Kubernetes 1.35 (KEP-5278).
    unset(&mut new, &["status", "nominatedNodeName"]);
    let now = state.now;
    set_condition(&mut new, "PodScheduled", "True", "", "", now);
    state.replace(PODS, new);
}
