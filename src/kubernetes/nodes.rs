//! Effects on nodes. Every change reads the node first and carries its `resourceVersion`, so that
//! nothing that came in between is overwritten, and is refused for a node of another UID.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::client::{KubeClient, KubeRequest, encode};
use super::error::KubeError;
use super::intern::Interner;
use super::list::{ListItem, Listing, UnreadableObject};
use super::translate::{self, ObjectReader};
use super::wire;
use crate::model::action::NodeRef;
use crate::model::cluster::Node;
use crate::model::policy::{CANDIDATE_TAINT, LEAVING_TAINT};
use crate::model::scheduling::Labels;
use crate::model::time::Time;

/// How often a change is tried anew after somebody else changed the node in between. The kubelet
/// and the node controller write every few seconds at most.
const CONFLICT_TRIES: usize = 5;

/// Remembers that a node had been cordoned before we cordoned it, so that giving its removal up
/// does not undo what a person did.
pub const WAS_CORDONED: &str = "pve-autoscaler.io/was-cordoned";

/// Nodes with this label get no more traffic from external load balancers (the service controller,
/// KEP-1143); whatever its value, so the value says that it was us.
pub const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// The label's value when we put it there.
const EXCLUDED_BY_US: &str = "pve-autoscaler";

/// What a change of a node came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeChange {
    /// It was changed.
    Changed,
    /// It was so already; nothing was written.
    AlreadySo,
    /// There is no node of this name and UID.
    Gone,
}

/// What a change needs to know of the node.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Current {
    metadata: wire::Meta,
    spec: CurrentSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CurrentSpec {
    /// Raw: fields that we do not know (`timeAdded`) stay as they are.
    taints: Option<Vec<Value>>,
    unschedulable: Option<bool>,
}

impl Current {
    fn taints(&self) -> &[Value] {
        self.spec.taints.as_deref().unwrap_or_default()
    }

    fn without_taint(&self, key: &str) -> Vec<Value> {
        self.taints()
            .iter()
            .filter(|taint| taint["key"] != key)
            .cloned()
            .collect()
    }

    fn label(&self, key: &str) -> Option<&str> {
        let labels = self.metadata.labels.as_ref()?;
        labels.get(key).map(String::as_str)
    }

    fn has_taint(&self, key: &str) -> bool {
        self.taints().iter().any(|taint| taint["key"] == key)
    }
}

impl KubeClient {
    /// One node, fresh from etcd (`GET /api/v1/nodes/NAME`); `None` when there is none.
    pub async fn node(&self, name: &str) -> Result<Option<Node>, KubeError> {
        match self.read::<wire::WireNode>(get(name)).await {
            Ok(node) => Ok(view(&node).map(|(_, node)| node)),
            Err(error) if error.not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All nodes, fresh from etcd.
    ///
    /// # Errors
    /// Also when one node cannot be read: an incomplete list is no list.
    pub async fn nodes(&self) -> Result<Vec<(Arc<str>, Node)>, KubeError> {
        type NodesRead = (Vec<(Arc<str>, Node)>, Option<UnreadableObject>);

        let listing = Listing {
            kind: "nodes",
            path: "/api/v1/nodes",
            field_selector: "",
        };
        let read = |(nodes, damaged): &mut NodesRead, item: ListItem<'_>| match item
            .object::<wire::WireNode>()
        {
            Ok(node) => nodes.extend(view(&node)),
            Err(unreadable) => *damaged = Some(unreadable),
        };
        let (nodes, damaged) = self.gather(listing, read).await?;
        match damaged {
            None => Ok(nodes),
            Some(unreadable) => Err(KubeError::Unknown {
                call: KubeRequest::new("list", "nodes", "", String::new()).call,
                code: None,
                message: format!(
                    "node {:?} cannot be read: {}",
                    unreadable.meta.name.unwrap_or_default(),
                    unreadable.message
                )
                .into(),
            }),
        }
    }

    /// Cordons the node, puts our leaving taint on it and takes it out of external load balancers,
    /// in one write. `since` is the taint's value; a node that carries the taint already keeps the
    /// older value.
    pub async fn mark_leaving(&self, node: &NodeRef, since: Time) -> Result<NodeChange, KubeError> {
        if planted!(NoCordon) {
            return Ok(NodeChange::AlreadySo);
        }
        self.change_node(node, |current| {
            let cordoned = current.spec.unschedulable == Some(true);
            let tainted = current.has_taint(LEAVING_TAINT);
            let excluded = current.label(EXCLUDED).is_some();
            if cordoned && tainted && excluded {
                return None;
            }
            let mut patch = json!({ "spec": { "unschedulable": true } });
            if !excluded {
                patch["metadata"]["labels"] = json!({ EXCLUDED: EXCLUDED_BY_US });
            }
            if !tainted {
                let mut taints = current.taints().to_vec();
                taints.push(json!({
                    "key": LEAVING_TAINT,
                    "value": (since.0 / 1_000).to_string(),
                    "effect": "NoSchedule",
                }));
                patch["spec"]["taints"] = Value::Array(taints);
                if cordoned {
                    patch["metadata"]["annotations"] = json!({ WAS_CORDONED: "true" });
                }
            }
            Some(patch)
        })
        .await
    }

    /// Ends a removal that was given up: takes our leaving taint off, lets load balancers in again,
    /// and uncordons, unless the node had been cordoned before.
    pub async fn release_node(&self, node: &NodeRef) -> Result<NodeChange, KubeError> {
        self.change_node(node, |current| {
            if !current.has_taint(LEAVING_TAINT) {
                return None;
            }
            let annotations = current.metadata.annotations.as_ref();
            let was_cordoned = annotations.is_some_and(|all| all.contains_key(WAS_CORDONED));
            let mut patch = json!({ "spec": { "taints": current.without_taint(LEAVING_TAINT) } });
            if current.label(EXCLUDED) == Some(EXCLUDED_BY_US) {
                patch["metadata"]["labels"] = json!({ EXCLUDED: null });
            }
            if was_cordoned {
                patch["metadata"]["annotations"] = json!({ WAS_CORDONED: null });
            } else {
                patch["spec"]["unschedulable"] = Value::Null;
            }
            Some(patch)
        })
        .await
    }

    /// Puts the taint of deletion candidates on a node that does not have it.
    pub async fn mark_candidate(&self, node: &NodeRef) -> Result<NodeChange, KubeError> {
        self.change_node(node, |current| {
            // One that is leaving takes no pods at all.
            if current.has_taint(CANDIDATE_TAINT) || current.has_taint(LEAVING_TAINT) {
                return None;
            }
            let mut taints = current.taints().to_vec();
            taints.push(json!({ "key": CANDIDATE_TAINT, "effect": "PreferNoSchedule" }));
            Some(json!({ "spec": { "taints": taints } }))
        })
        .await
    }

    /// Takes every taint of this key off, such as the startup taint.
    pub async fn remove_taint(&self, node: &NodeRef, key: &str) -> Result<NodeChange, KubeError> {
        self.change_node(node, |current| {
            current
                .has_taint(key)
                .then(|| json!({ "spec": { "taints": current.without_taint(key) } }))
        })
        .await
    }

    /// Sets labels and annotations; those not named stay as they are.
    pub async fn label_node(
        &self,
        node: &NodeRef,
        labels: &Labels,
        annotations: &Labels,
    ) -> Result<NodeChange, KubeError> {
        self.change_node(node, |current| {
            let labels = missing(labels, current.metadata.labels.as_ref());
            let annotations = missing(annotations, current.metadata.annotations.as_ref());
            if labels.is_empty() && annotations.is_empty() {
                return None;
            }
            Some(json!({ "metadata": { "labels": labels, "annotations": annotations } }))
        })
        .await
    }

    /// Sets annotations and takes others off; those not named stay as they are.
    pub async fn annotate_node(
        &self,
        node: &NodeRef,
        set: &Labels,
        gone: &[Arc<str>],
    ) -> Result<NodeChange, KubeError> {
        self.change_node(node, |current| {
            let have = current.metadata.annotations.as_ref();
            let set = missing(set, have);
            let there = |key: &&Arc<str>| have.is_some_and(|have| have.contains_key(&***key));
            let gone = gone.iter().filter(there);
            let set = set
                .into_iter()
                .map(|(key, value)| (key, Value::from(value)));
            let gone = gone.map(|key| (&**key, Value::Null));
            let all: BTreeMap<&str, Value> = set.chain(gone).collect();
            (!all.is_empty()).then(|| json!({ "metadata": { "annotations": all } }))
        })
        .await
    }

    /// Deletes the Node object, if it is still the one of this UID.
    pub async fn delete_node(&self, node: &NodeRef) -> Result<NodeChange, KubeError> {
        let path = format!("/api/v1/nodes/{}", encode(&node.name));
        let request = KubeRequest::new("delete", "nodes", &*node.name, path).json(json!({
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": { "uid": &*node.uid },
        }));
        match self.call(request.expect_refusals(&[404, 409])).await {
            Ok(_) => Ok(NodeChange::Changed),
            // 409: the name is in use again, for another node
            Err(error) if error.not_found() || error.conflict() => Ok(NodeChange::Gone),
            Err(error) => Err(error),
        }
    }

    /// Reads, computes a merge patch and writes it under the version that was read.
    async fn change_node(
        &self,
        node: &NodeRef,
        compute: impl Fn(&Current) -> Option<Value>,
    ) -> Result<NodeChange, KubeError> {
        let mut last = None;
        for _ in 0..CONFLICT_TRIES {
            let current: Current = match self.read(get(&node.name)).await {
                Ok(current) => current,
                Err(error) if error.not_found() => return Ok(NodeChange::Gone),
                Err(error) => return Err(error),
            };
            if current.metadata.uid.as_deref() != Some(&*node.uid) {
                return Ok(NodeChange::Gone);
            }
            let Some(mut patch) = compute(&current) else {
                return Ok(NodeChange::AlreadySo);
            };
            patch["metadata"]["resourceVersion"] = json!(current.metadata.resource_version);
            patch["metadata"]["uid"] = json!(current.metadata.uid);
            let url = format!("/api/v1/nodes/{}", encode(&node.name));
            let request = KubeRequest::new("patch", "nodes", &*node.name, url).merge_patch(patch);
            match self.call(request.expect_refusals(&[404, 409])).await {
                Ok(_) => return Ok(NodeChange::Changed),
                Err(error) if error.not_found() => return Ok(NodeChange::Gone),
                Err(error) if error.conflict() => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        // The loop ran at least once and every way round ended in a conflict.
        last.map_or(Ok(NodeChange::AlreadySo), Err)
    }
}

fn get(name: &str) -> KubeRequest {
    let path = format!("/api/v1/nodes/{}", encode(name));
    KubeRequest::new("get", "nodes", name, path).expect_refusals(&[404])
}

fn view(node: &wire::WireNode) -> Option<(Arc<str>, Node)> {
    let mut interner = Interner::default();
    translate::node(&mut ObjectReader::new(&mut interner), node)
}

/// The entries of `wanted` that `have` lacks or has differently.
fn missing<'a>(wanted: &'a Labels, have: Option<&wire::Map>) -> BTreeMap<&'a str, &'a str> {
    wanted
        .iter()
        .map(|(key, value)| (&**key, &**value))
        .filter(|(key, value)| {
            have.and_then(|have| have.get(*key)).map(String::as_str) != Some(*value)
        })
        .collect()
}
