//! The daemon's admission policy (`contrib/kubernetes/admission-policy.yaml`), where it is applied and bound: what of it
//! this server can judge without an interpreter of CEL. Its expressions are held against the real one in the end-to-end
//! tests.

use serde_json::Value;

use super::auth::User;
use super::object::{map, member, name, text};
use super::resources::{NODES, PODS, Res, SECRETS};
use super::status::Status;
use super::store::State;

/// The user whom the policy holds.
const HELD: &str = "pve-autoscaler";
const GROUP: &str = "admissionregistration.k8s.io/v1";
const TOKEN: &str = "bootstrap.kubernetes.io/token";

/// Judges a new object.
pub(super) fn create(state: &State, res: Res, object: &Value, user: &User) -> Result<(), Status> {
    if res != SECRETS || !binds(state, "pve-autoscaler-tokens", user) {
        return Ok(());
    }
    let token = text(object, "/type") == TOKEN && name(object).starts_with("bootstrap-token-");
    judge(
        token,
        res,
        object,
        "tokens",
        "may create bootstrap tokens only",
    )
}

/// Judges a change of a stored object through this subresource, or its removal where there is no new form of it.
pub(super) fn change(
    state: &State,
    (res, subresource): (Res, &str),
    (stored, new): (&Value, Option<&Value>),
    user: &User,
) -> Result<(), Status> {
    if res == PODS
        && subresource == "status"
        && let Some(new) = new
        && binds(state, "pve-autoscaler-pods", user)
    {
        return judge_nomination(stored, new);
    }
    if res == NODES && binds(state, "pve-autoscaler-nodes", user) {
        let taints = stored.pointer("/spec/taints").and_then(Value::as_array);
        let mut taints = taints.into_iter().flatten();
        let ours = member(stored, "/metadata/annotations", "pve-autoscaler.io/machine").is_some()
            || member(stored, "/metadata/labels", "pve-autoscaler.io/pool").is_some()
            || taints.any(|taint| taint["key"] == "pve-autoscaler.io/uninitialized");
        let words = "may change and delete Nodes of its own machines only";
        return judge(ours, res, stored, "nodes", words);
    }
    if res == SECRETS && binds(state, "pve-autoscaler-tokens", user) {
        if new.is_some() {
            return judge(false, res, stored, "tokens", "may not change Secrets");
        }
        let label = member(stored, "/metadata/labels", "app.kubernetes.io/managed-by");
        let own = text(stored, "/type") == TOKEN && label == Some(HELD);
        return judge(
            own,
            res,
            stored,
            "tokens",
            "may delete its own bootstrap tokens only",
        );
    }
    Ok(())
}

/// The key of a pod's status that may change.
const NOMINATED: &str = "nominatedNodeName";

/// Judges a change of a pod's status: of a pod that waits it may set the nomination, or take it back, and nothing else.
fn judge_nomination(stored: &Value, new: &Value) -> Result<(), Status> {
    let refuse = |words: &str| judge(false, PODS, stored, "pods", words);
    if !text(stored, "/spec/nodeName").is_empty() {
        return refuse("may nominate only pods that wait for a node");
    }
    let others = |pod: &Value| {
        let mut status = map(pod, "/status").cloned().unwrap_or_default();
        status.remove(NOMINATED);
        status
    };
    if others(stored) != others(new) {
        return refuse("may change nominatedNodeName in a pod's status, and nothing else");
    }
    let nominated = |pod: &Value| {
        member(pod, "/status", NOMINATED)
            .unwrap_or_default()
            .to_owned()
    };
    let (before, after) = (nominated(stored), nominated(new));
    if !before.is_empty() && !after.is_empty() && before != after {
        return refuse("may not nominate a pod for another node than it is nominated for");
    }
    Ok(())
}

/// Whether a policy of this name is there, is bound, and is about this user.
fn binds(state: &State, policy: &str, user: &User) -> bool {
    let there = |kind: &str| {
        let res = Res::of_kind(GROUP, kind);
        res.is_some_and(|res| state.get(res, "", policy).is_some())
    };
    user.name == HELD
        && there("ValidatingAdmissionPolicy")
        && there("ValidatingAdmissionPolicyBinding")
}

fn judge(fine: bool, res: Res, object: &Value, policy: &str, words: &str) -> Result<(), Status> {
    if fine {
        return Ok(());
    }
    let policy = format!("pve-autoscaler-{policy}");
    Err(Status::denied(
        res,
        name(object),
        &format!(
            "ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {HELD} {words}"
        ),
    ))
}
