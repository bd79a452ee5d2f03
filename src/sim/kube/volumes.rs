//! Claims, volumes and attachments: enough of the volume controllers and of a CSI driver that pods
//! with claims start, stay where their volume is, and leave an attachment behind for a while.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::object::{annotation, deleting, list, name, namespace, seconds, set, text, uid};
use super::resources::{PODS, PVCS, PVS, STORAGECLASSES, VOLUMEATTACHMENTS};
use super::store::State;
use super::verbs;
use crate::model::cluster::ObjectKey;
use crate::model::time::{Span, Time};

/// The simulated CSI driver.
pub(super) const DRIVER: &str = "csi.sim.pve-autoscaler.io";

const PROTECTION: &str = "kubernetes.io/pvc-protection";
/// When the driver was told to let a volume go.
const DETACH_SINCE: &str = "sim.pve-autoscaler.io/detach-since";

/// The names of a pod's claims.
fn claims(pod: &Value) -> Vec<String> {
    list(pod, "/spec/volumes")
        .iter()
        .filter_map(|v| {
            if v.get("ephemeral").is_some() {
                return Some(format!("{}-{}", name(pod), text(v, "/name")));
            }
            let claim = text(v, "/persistentVolumeClaim/claimName");
            (!claim.is_empty()).then(|| claim.to_owned())
        })
        .collect()
}

/// Whether a claim's class binds it only when a pod needs it.
fn waits_for_pod(state: &State, claim: &Value) -> bool {
    let class = state.get(STORAGECLASSES, "", text(claim, "/spec/storageClassName"));
    class.is_some_and(|c| text(&c, "/volumeBindingMode") == "WaitForFirstConsumer")
}

/// Binds the claims of a pod that gets this node.
pub(super) fn claim_for(state: &mut State, pod: &Value, node: &str) {
    for title in claims(pod) {
        let Some(claim) = state.get(PVCS, namespace(pod), &title) else {
            continue;
        };
        if text(&claim, "/spec/volumeName").is_empty() {
            provision(state, &claim, Some(node));
        }
    }
}

/// Makes a volume for a claim and binds the two.
fn provision(state: &mut State, claim: &Value, node: Option<&str>) {
    let class = text(claim, "/spec/storageClassName").to_owned();
    let Some(found) = state.get(STORAGECLASSES, "", &class) else {
        return;
    };
    let title = format!("pvc-{}", uid(claim));
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": title, "annotations": {"pv.kubernetes.io/provisioned-by": found["provisioner"]}},
        "spec": {
            "accessModes": claim["spec"]["accessModes"],
            "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": name(claim),
                "namespace": namespace(claim), "uid": uid(claim),
            },
            "csi": {"driver": found["provisioner"], "volumeHandle": title},
            "persistentVolumeReclaimPolicy": found["reclaimPolicy"],
            "storageClassName": class,
            "volumeMode": claim["spec"]["volumeMode"],
        },
        "status": {"phase": "Bound"},
    });
    let _ = state.insert(PVS, volume);
    state.change(PVCS, namespace(claim), name(claim), |c| {
        if let Some(node) = node {
            let key = "volume.kubernetes.io/selected-node";
            set(c, &["metadata", "annotations", key], json!(node));
        }
        let capacity = c["spec"]["resources"]["requests"].clone();
        bound(c, &title, &capacity);
    });
}

/// A claim that has got its volume.
fn bound(claim: &mut Value, volume: &str, capacity: &Value) {
    set(claim, &["spec", "volumeName"], json!(volume));
    let modes = claim["spec"]["accessModes"].clone();
    set(
        claim,
        &["status"],
        json!({"phase": "Bound", "capacity": capacity, "accessModes": modes}),
    );
}

/// Binds a claim to a volume that is there, unless it is another's.
pub(super) fn take(state: &mut State, claim: &ObjectKey, volume: &str) {
    let Some(found) = state.get(PVCS, &claim.namespace, &claim.name) else {
        return;
    };
    let there = state.get(PVS, "", volume).unwrap_or_default();
    let part = |field: &str| text(&there, &format!("/spec/claimRef/{field}")).to_owned();
    let of = ObjectKey::new(part("namespace"), part("name"));
    if !of.name.is_empty() && of != *claim {
        return;
    }
    let mut capacity = json!({});
    state.change(PVS, "", volume, |v| {
        capacity = v["spec"]["capacity"].clone();
        let to = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": name(&found),
            "namespace": namespace(&found), "uid": uid(&found),
        });
        set(v, &["spec", "claimRef"], to);
        set(v, &["status", "phase"], json!("Bound"));
    });
    state.change(PVCS, &claim.namespace, &claim.name, |c| {
        bound(c, volume, &capacity);
    });
}

/// One turn of the volume controllers; returns when the next detachment is done.
pub(super) fn reconcile(state: &mut State, detach: Span) -> Option<Time> {
    bind(state);
    if state.all(PVCS).is_empty() && state.all(PVS).is_empty() {
        return attach(state, detach);
    }
    release(state);
    attach(state, detach)
}

/// Claims of ephemeral volumes, and claims that need not wait for a pod.
fn bind(state: &mut State) {
    for pod in state.snapshot(PODS) {
        for volume in list(&pod, "/spec/volumes") {
            let Some(template) = volume.pointer("/ephemeral/volumeClaimTemplate") else {
                continue;
            };
            let title = format!("{}-{}", name(&pod), text(volume, "/name"));
            if deleting(&pod) || state.get(PVCS, namespace(&pod), &title).is_some() {
                continue;
            }
            let mut owner = super::object::owner_reference(&pod);
            set(&mut owner, &["controller"], json!(true));
            let claim = json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": title, "namespace": namespace(&pod), "ownerReferences": [owner]},
                "spec": template["spec"],
            });
            let user = super::auth::User::admin();
            let _ = verbs::create(state, PVCS, namespace(&pod), claim, &user);
        }
    }
    for claim in state.snapshot(PVCS) {
        if text(&claim, "/spec/volumeName").is_empty()
            && !deleting(&claim)
            && !waits_for_pod(state, &claim)
        {
            provision(state, &claim, None);
        } else if text(&claim, "/status/phase") == "Pending"
            && !text(&claim, "/spec/volumeName").is_empty()
        {
            let key = ObjectKey::new(namespace(&claim), name(&claim));
            take(state, &key, text(&claim, "/spec/volumeName"));
        }
    }
}

/// Claims being deleted go once no pod uses them, and their volumes by their policy.
fn release(state: &mut State) {
    let mut used = BTreeSet::new();
    for pod in state.all(PODS).values() {
        if !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") {
            used.extend(
                claims(pod)
                    .into_iter()
                    .map(|c| (namespace(pod).to_owned(), c)),
            );
        }
    }
    for claim in state.snapshot(PVCS) {
        let key = (namespace(&claim).to_owned(), name(&claim).to_owned());
        if deleting(&claim) && !used.contains(&key) {
            state.change(PVCS, &key.0, &key.1, |c| {
                let kept: Vec<Value> = list(c, "/metadata/finalizers")
                    .iter()
                    .filter(|f| *f != PROTECTION)
                    .cloned()
                    .collect();
                set(c, &["metadata", "finalizers"], Value::Array(kept));
            });
        }
    }
    for volume in state.snapshot(PVS) {
        let (space, title) = (
            text(&volume, "/spec/claimRef/namespace"),
            text(&volume, "/spec/claimRef/name"),
        );
        // A volume that a person keeps for a claim waits for it.
        let bound = text(&volume, "/status/phase") == "Bound";
        if !bound || state.get(PVCS, space, title).is_some() {
            continue;
        }
        if text(&volume, "/spec/persistentVolumeReclaimPolicy") == "Delete" {
            state.remove(PVS, &volume);
        } else {
            state.change(PVS, "", name(&volume), |v| {
                set(v, &["status", "phase"], json!("Released"));
            });
        }
    }
}

/// Attachments follow the pods: made when one is bound, let go some time after it ended.
fn attach(state: &mut State, detach: Span) -> Option<Time> {
    let mut wanted: BTreeSet<(String, String)> = BTreeSet::new();
    if state.all(PVS).is_empty() && state.all(VOLUMEATTACHMENTS).is_empty() {
        return None;
    }
    for pod in state.snapshot(PODS) {
        let node = text(&pod, "/spec/nodeName");
        let ended = matches!(text(&pod, "/status/phase"), "Succeeded" | "Failed");
        if node.is_empty() || ended {
            continue;
        }
        for title in claims(&pod) {
            let claim = state.get(PVCS, namespace(&pod), &title);
            let volume = claim.and_then(|c| state.get(PVS, "", text(&c, "/spec/volumeName")));
            if let Some(volume) = volume.filter(|v| !text(v, "/spec/csi/driver").is_empty()) {
                wanted.insert((name(&volume).to_owned(), node.to_owned()));
            }
        }
    }
    let mut next: Option<Time> = None;
    for attachment in state.snapshot(VOLUMEATTACHMENTS) {
        let key = (
            text(&attachment, "/spec/source/persistentVolumeName").to_owned(),
            text(&attachment, "/spec/nodeName").to_owned(),
        );
        if wanted.remove(&key) {
            continue;
        }
        let due = let_go(state, &attachment, detach);
        next = match (next, due) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
    for (volume, node) in wanted {
        let object = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": {"name": format!("csi-{}-{node}", volume.trim_start_matches("pvc-"))},
            "spec": {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": volume}},
            "status": {"attached": true},
        });
        let _ = state.insert(VOLUMEATTACHMENTS, object);
    }
    next
}

/// Detaches after the driver's latency; returns when that is.
fn let_go(state: &mut State, attachment: &Arc<Value>, detach: Span) -> Option<Time> {
    let told = annotation(attachment, DETACH_SINCE).and_then(|t| t.parse::<jiff::Timestamp>().ok());
    let due = told.map(|since| Time(since.as_millisecond()) + detach);
    match due {
        Some(due) if due <= state.now => {
            state.remove(VOLUMEATTACHMENTS, attachment);
            None
        }
        Some(due) => Some(due),
        None => {
            let since = seconds(state.now);
            state.change(VOLUMEATTACHMENTS, "", name(attachment), |a| {
                set(a, &["metadata", "annotations", DETACH_SINCE], json!(since));
            });
            Some(state.now + detach)
        }
    }
}
