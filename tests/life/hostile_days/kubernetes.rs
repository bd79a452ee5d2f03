//! What persons with kubectl do to nodes and pods, and what the API server does by itself.

use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Value, json};

use super::remedy::{Remedy, patch, without};
use super::stage::{Stage, name, text};
use crate::call;

/// Our annotation on nodes.
pub(super) const MACHINE: &str = "pve-autoscaler.io/machine";
/// The label that names a node's pool.
const POOL: &str = "pve-autoscaler.io/pool";
/// The daemon's taint on nodes that leave.
const LEAVING: &str = "pve-autoscaler.io/leaving";
/// Forbids the removal of a node.
const DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
/// A person's taint.
const MAINTENANCE: &str = "example.org/maintenance";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Act {
    /// `kubectl cordon`.
    Cordon,
    /// `kubectl drain`.
    Drain,
    /// `kubectl uncordon` while the daemon empties the node, with its taint taken off or without.
    Rescue,
    /// `kubectl delete node` of a machine that runs.
    DeleteNode,
    /// `kubectl annotate`: the node is not to be removed.
    Forbid,
    /// `kubectl annotate`: another machine is said to be behind the node, or none.
    EditMachine,
    /// `kubectl label`: the node is in another pool, or in none.
    EditPool,
    /// `kubectl taint`.
    Taint,
    /// `kubectl delete pod --force`.
    DeletePod,
    /// The API server's history is gone: 410 to every watch.
    Compact,
    /// The API server is started anew.
    Restart,
}

pub(super) const ALL: [Act; 11] = [
    Act::Cordon,
    Act::Drain,
    Act::Rescue,
    Act::DeleteNode,
    Act::Forbid,
    Act::EditMachine,
    Act::EditPool,
    Act::Taint,
    Act::DeletePod,
    Act::Compact,
    Act::Restart,
];

/// Does it, and says what undoes it; `None` when there is nobody whom it can happen to.
pub(super) async fn perform(act: Act, stage: &Stage<'_>, rng: &mut StdRng) -> Option<Remedy> {
    match act {
        Act::Compact => {
            stage.scene.world.kube.compact();
            Some(Remedy::Nothing)
        }
        Act::Restart => {
            let faults = &stage.scene.world.kube_faults;
            let plan = faults.plan();
            faults.restart().await;
            faults.set(plan);
            Some(Remedy::Nothing)
        }
        Act::DeletePod => delete_pod(stage, rng).await,
        _ => {
            let mut nodes = stage.nodes();
            if act == Act::Rescue {
                nodes.retain(|node| without(node, LEAVING).len() < without(node, "").len());
            }
            let node = nodes.choose(rng)?;
            to_node(act, stage, rng, node).await
        }
    }
}

async fn to_node(act: Act, stage: &Stage<'_>, rng: &mut StdRng, node: &Value) -> Option<Remedy> {
    let title = name(node).to_owned();
    let cordon =
        |on: bool| json!({"spec": {"unschedulable": if on { json!(true) } else { Value::Null }}});
    let (change, back) = match act {
        Act::Cordon | Act::Drain => (cordon(true), Some(cordon(false))),
        Act::Rescue => {
            let mut change = cordon(false);
            if rng.random_bool(0.5) {
                change["spec"]["taints"] = json!(without(node, LEAVING));
            }
            (change, None)
        }
        Act::Forbid => annotated(node, "annotations", DISABLED, Some("true")),
        Act::EditMachine => {
            let others = stage.nodes();
            let other = others.choose(rng)?;
            let text = other["metadata"]["annotations"][MACHINE].as_str();
            let text = [text, Some("none/1/of-them"), None].choose(rng).copied()?;
            annotated(node, "annotations", MACHINE, text)
        }
        Act::EditPool => {
            let pools = [Some("general"), Some("other"), Some("nobodys"), None];
            let pool = pools.choose(rng).copied()?;
            annotated(node, "labels", POOL, pool)
        }
        Act::Taint => return Some(taint(stage, rng, node).await),
        _ => {
            let delete = http::Request::delete(format!("/api/v1/nodes/{title}"));
            call(stage.scene, delete, "{}".to_owned()).await;
            stage.note(format!("node {title} is deleted"));
            return Some(Remedy::Nothing);
        }
    };
    patch(stage, &title, &change).await;
    stage.note(format!("node {title} is changed: {change}"));
    if act == Act::Drain {
        evict_all(stage, &title).await;
    }
    let uid = text(&node["metadata"]["uid"]).to_owned();
    Some(back.map_or(Remedy::Nothing, |change| Remedy::Node {
        name: title,
        uid,
        change,
    }))
}

/// An annotation or a label with another value, and with the one that it had.
fn annotated(node: &Value, part: &str, key: &str, value: Option<&str>) -> (Value, Option<Value>) {
    let with = |value: Value| json!({"metadata": {part: {key: value}}});
    let before = node["metadata"][part][key].clone();
    (with(json!(value)), Some(with(before)))
}

async fn taint(stage: &Stage<'_>, rng: &mut StdRng, node: &Value) -> Remedy {
    let mut taints = without(node, MAINTENANCE);
    let effect = if rng.random_bool(0.5) {
        "NoSchedule"
    } else {
        "NoExecute"
    };
    taints.push(json!({"key": MAINTENANCE, "effect": effect}));
    let title = name(node).to_owned();
    patch(stage, &title, &json!({"spec": {"taints": taints}})).await;
    stage.note(format!("node {title} is tainted: {effect}"));
    Remedy::Untaint {
        name: title,
        uid: text(&node["metadata"]["uid"]).to_owned(),
        key: MAINTENANCE,
    }
}

/// Asks for the eviction of every pod of a node once, as `kubectl drain` does first.
async fn evict_all(stage: &Stage<'_>, node: &str) {
    for pod in stage.objects("v1", "Pod") {
        let daemon = pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet";
        if pod["spec"]["nodeName"] == node && !daemon {
            let (space, title) = (text(&pod["metadata"]["namespace"]), name(&pod));
            let post =
                http::Request::post(format!("/api/v1/namespaces/{space}/pods/{title}/eviction"));
            let eviction = json!({
                "apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": {"name": title, "namespace": space},
            });
            call(stage.scene, post, eviction.to_string()).await;
        }
    }
}

async fn delete_pod(stage: &Stage<'_>, rng: &mut StdRng) -> Option<Remedy> {
    let mut pods = stage.objects("v1", "Pod");
    pods.retain(|pod| pod["status"]["phase"] == "Running");
    let pod = pods.choose(rng)?;
    let (space, title) = (text(&pod["metadata"]["namespace"]), name(pod));
    let delete = http::Request::delete(format!("/api/v1/namespaces/{space}/pods/{title}"));
    let now = json!({"gracePeriodSeconds": 0});
    call(stage.scene, delete, now.to_string()).await;
    stage.note(format!("pod {title} is deleted"));
    Some(Remedy::Nothing)
}
