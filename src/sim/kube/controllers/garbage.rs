//! What goes with what is gone: dependents of deleted owners, pods of deleted nodes, the content of
//! namespaces that end.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::erase;
use crate::model::time::{Span, Time};
use crate::sim::kube::object::{deleting, list, name, namespace, set, text, truth, uid};
use crate::sim::kube::resources::{
    CSINODES, DAEMONSETS, DEPLOYMENTS, JOBS, LEASES, NAMESPACES, NODES, PDBS, PODS, PVCS,
    REPLICASETS, RESOURCES, Res, STATEFULSETS,
};
use crate::sim::kube::store::State;
use crate::sim::kube::verbs;

/// podgc: how long a pod's node must be gone before the pod is removed by force.
const QUARANTINE: Span = Span::seconds(40);
/// What may have an owner.
const DEPENDENTS: &[Res] = &[PODS, REPLICASETS, JOBS, LEASES, CSINODES, PVCS, PDBS];
/// What may own something.
const OWNERS: &[Res] = &[
    DEPLOYMENTS,
    REPLICASETS,
    DAEMONSETS,
    STATEFULSETS,
    JOBS,
    NODES,
    PODS,
];

/// The collector and what it remembers.
#[derive(Debug, Default)]
pub(super) struct Garbage {
    /// Since when pods have had no node, by UID.
    orphans: BTreeMap<String, Time>,
}

impl Garbage {
    pub(super) fn collect(&mut self, state: &mut State) {
        dependents(state);
        finalizers(state);
        self.orphaned_pods(state);
        namespaces(state);
    }

    /// Pods bound to nodes that do not exist are removed by force after a quarantine.
    fn orphaned_pods(&mut self, state: &mut State) {
        let nodes: BTreeSet<String> = state
            .all(NODES)
            .values()
            .map(|n| name(n).to_owned())
            .collect();
        let mut still = BTreeMap::new();
        for pod in state.snapshot(PODS) {
            let node = text(&pod, "/spec/nodeName");
            if node.is_empty() || nodes.contains(node) {
                continue;
            }
            let since = *self.orphans.get(uid(&pod)).unwrap_or(&state.now);
            if state.now.since(since) >= QUARANTINE {
                let options = json!({"gracePeriodSeconds": 0});
                let _ = verbs::delete(state, PODS, namespace(&pod), name(&pod), &options);
            } else {
                still.insert(uid(&pod).to_owned(), since);
            }
        }
        self.orphans = still;
    }
}

/// Deletes what lost all its owners.
fn dependents(state: &mut State) {
    let owners: BTreeSet<String> = OWNERS
        .iter()
        .flat_map(|r| state.all(*r).values().map(|o| uid(o).to_owned()))
        .collect();
    for res in DEPENDENTS {
        for object in state.snapshot(*res) {
            let above = list(&object, "/metadata/ownerReferences");
            let known = above.iter().filter(|o| {
                Res::of_kind(text(o, "/apiVersion"), text(o, "/kind"))
                    .is_some_and(|r| OWNERS.contains(&r))
            });
            let (mut any, mut alive) = (false, false);
            for owner in known {
                any = true;
                alive |= owners.contains(text(owner, "/uid"));
            }
            if any && !alive && !deleting(&object) {
                erase(state, *res, &object);
            }
        }
    }
}

/// Foreground and orphaning deletion.
fn finalizers(state: &mut State) {
    for res in OWNERS.iter().copied().filter(|r| *r != PODS) {
        for owner in state.snapshot(res) {
            if !deleting(&owner) {
                continue;
            }
            let has = |finalizer: &str| {
                list(&owner, "/metadata/finalizers")
                    .iter()
                    .any(|f| f == finalizer)
            };
            if has("orphan") {
                for (below, object) in children(state, &owner) {
                    state.change(below, namespace(&object), name(&object), |o| {
                        let kept: Vec<Value> = list(o, "/metadata/ownerReferences")
                            .iter()
                            .filter(|r| text(r, "/uid") != uid(&owner))
                            .cloned()
                            .collect();
                        set(o, &["metadata", "ownerReferences"], Value::Array(kept));
                    });
                }
                unlock(state, res, &owner, "orphan");
            } else if has("foregroundDeletion") {
                let below = children(state, &owner);
                if !below.iter().any(|(_, o)| blocks(o, &owner)) {
                    unlock(state, res, &owner, "foregroundDeletion");
                }
                for (res, object) in below.iter().filter(|(_, o)| !deleting(o)) {
                    // What owns nothing has nothing to wait for.
                    let policy = if children(state, object).is_empty() {
                        "Background"
                    } else {
                        "Foreground"
                    };
                    let options = json!({ "propagationPolicy": policy });
                    let _ = verbs::delete(state, *res, namespace(object), name(object), &options);
                }
            }
        }
    }
}

fn children(state: &State, owner: &Value) -> Vec<(Res, Value)> {
    let mut found = Vec::new();
    for res in DEPENDENTS {
        for object in state.all(*res).values() {
            if list(object, "/metadata/ownerReferences")
                .iter()
                .any(|o| text(o, "/uid") == uid(owner))
            {
                found.push((*res, Value::clone(object)));
            }
        }
    }
    found
}

fn blocks(object: &Value, owner: &Value) -> bool {
    list(object, "/metadata/ownerReferences")
        .iter()
        .any(|o| text(o, "/uid") == uid(owner) && truth(o, "/blockOwnerDeletion"))
}

fn unlock(state: &mut State, res: Res, object: &Value, finalizer: &str) {
    state.change(res, namespace(object), name(object), |o| {
        let kept: Vec<Value> = list(o, "/metadata/finalizers")
            .iter()
            .filter(|f| *f != finalizer)
            .cloned()
            .collect();
        set(o, &["metadata", "finalizers"], Value::Array(kept));
    });
}

/// Empties namespaces that are being deleted, then lets them go.
fn namespaces(state: &mut State) {
    for space in state.snapshot(NAMESPACES) {
        if !deleting(&space) {
            continue;
        }
        let mut empty = true;
        for at in (0..RESOURCES.len())
            .map(Res)
            .filter(|r| r.row().namespaced && *r == r.stored())
        {
            for object in state.snapshot(at) {
                if namespace(&object) == name(&space) {
                    empty = false;
                    if !deleting(&object) {
                        erase(state, at, &object);
                    }
                }
            }
        }
        if empty {
            state.change(NAMESPACES, "", name(&space), |s| {
                set(s, &["spec", "finalizers"], json!([]));
            });
        }
    }
}
