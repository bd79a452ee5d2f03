//! StatefulSets: named pods with claims of their own, one after another.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{active, erase, from_template, owned, store};
use crate::sim::kube::object::{deleting, is_true, list, name, namespace, number, set, text, uid};
use crate::sim::kube::resources::{PODS, PVCS, STATEFULSETS};
use crate::sim::kube::store::State;

pub(super) fn reconcile(state: &mut State) {
    if state.all(STATEFULSETS).is_empty() {
        return;
    }
    let pods = owned(state, PODS);
    for target in state.snapshot(STATEFULSETS) {
        if deleting(&target) {
            continue;
        }
        let own = pods.get(uid(&target)).map_or(&[][..], Vec::as_slice);
        let wanted = number(&target, "/spec/replicas").unwrap_or(1);
        let parallel = text(&target, "/spec/podManagementPolicy") == "Parallel";
        for at in 0..wanted {
            let title = format!("{}-{at}", name(&target));
            match own.iter().find(|p| name(p) == title) {
                Some(pod) if !active(pod) && !deleting(pod) => erase(state, PODS, pod),
                Some(pod) => {
                    if !parallel && !is_true(pod, "Ready") {
                        break;
                    }
                }
                None => {
                    add(state, &target, &title, at);
                    if !parallel {
                        break;
                    }
                }
            }
        }
        shrink(state, own, wanted, parallel);
        let count = |ready: bool| {
            own.iter()
                .filter(|p| active(p) && (!ready || is_true(p, "Ready")))
                .count()
        };
        let mut new = Value::clone(&target);
        for (field, value) in [
            ("replicas", json!(count(false))),
            ("readyReplicas", json!(count(true))),
            ("availableReplicas", json!(count(true))),
            ("currentReplicas", json!(count(false))),
            ("updatedReplicas", json!(count(false))),
            (
                "observedGeneration",
                target["metadata"]["generation"].clone(),
            ),
        ] {
            set(&mut new, &["status", field], value);
        }
        state.replace(STATEFULSETS, new);
    }
}

/// A pod's number in its set.
fn ordinal(pod: &Value) -> Option<i64> {
    name(pod).rsplit('-').next()?.parse().ok()
}

/// Pods beyond the wanted number go: the last first, and in order only when the one before has gone.
fn shrink(state: &mut State, own: &[Arc<Value>], wanted: i64, parallel: bool) {
    let mut surplus: Vec<_> = own
        .iter()
        .filter_map(|pod| Some((ordinal(pod)?, pod)))
        .filter(|(at, _)| *at >= wanted)
        .collect();
    surplus.sort_unstable_by_key(|(at, _)| std::cmp::Reverse(*at));
    for (_, pod) in surplus {
        if !deleting(pod) {
            erase(state, PODS, pod);
        }
        if !parallel {
            return;
        }
    }
}

fn add(state: &mut State, target: &Value, title: &str, at: i64) {
    let mut pod = from_template(target);
    set(&mut pod, &["metadata", "name"], json!(title));
    for (key, value) in [
        ("statefulset.kubernetes.io/pod-name", title.to_owned()),
        ("apps.kubernetes.io/pod-index", at.to_string()),
    ] {
        set(&mut pod, &["metadata", "labels", key], json!(value));
    }
    let mut volumes = list(&pod, "/spec/volumes").to_vec();
    for template in list(target, "/spec/volumeClaimTemplates") {
        let claim = format!("{}-{title}", name(template));
        if state.get(PVCS, namespace(target), &claim).is_none() {
            let mut object = template.clone();
            set(&mut object, &["apiVersion"], json!("v1"));
            set(&mut object, &["kind"], json!("PersistentVolumeClaim"));
            set(&mut object, &["metadata", "name"], json!(claim));
            set(
                &mut object,
                &["metadata", "namespace"],
                json!(namespace(target)),
            );
            store(state, PVCS, object);
        }
        volumes.push(json!({
            "name": name(template), "persistentVolumeClaim": {"claimName": claim},
        }));
    }
    if !volumes.is_empty() {
        set(&mut pod, &["spec", "volumes"], Value::Array(volumes));
    }
    store(state, PODS, pod);
}
