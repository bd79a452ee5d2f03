//! Effects on pods: what runs on a node now, evictions, and the volumes that hang on a node.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;

use super::client::{KubeClient, KubeRequest, encode};
use super::error::KubeError;
use super::intern::Interner;
use super::list::{ListItem, Listing, UnreadableObject};
use super::translate::{self, ObjectReader};
use super::wire;
use crate::model::cluster::{Attachment, ObjectKey, Pod};
use crate::model::foreign::ForeignText;
use crate::model::time::Span;

/// What an eviction came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictOutcome {
    /// The pod is being deleted.
    Accepted,
    /// There is no such pod.
    Gone,
    /// Not now: a disruption budget, or an API server under load. Try again.
    Blocked {
        /// The API server's reason, which names the budget.
        why: ForeignText,
        /// How long it asks to wait.
        retry_after: Option<Span>,
    },
    /// A pod of this name is there, but it is another one (UID precondition).
    Conflict,
    /// Anything else; with [`KubeError::maybe_done`] look again first.
    Failed(KubeError),
}

/// What a nomination came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nomination {
    /// It stands in the pod's status.
    Written,
    /// The pod is gone, bound, or nominated by somebody else.
    Void,
}

/// Where a nomination stands.
const NOMINATED: &str = "/status/nominatedNodeName";

/// The API server's answer when several budgets select one pod: a 500 that will not go away by
/// itself, but that is no accident either (`pkg/registry/core/pod/storage/eviction.go`).
const SEVERAL_BUDGETS: &str = "more than one PodDisruptionBudget";

/// The pod's place where nothing else could be read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Placed {
    spec: PlacedSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PlacedSpec {
    node_name: Option<String>,
}

/// Reads one pod for the store or a drain; problems are sentences that name it. `node` is where a pod
/// is that cannot be read, if nothing else says so.
pub(super) fn read_pod(
    interner: &mut Interner,
    item: ListItem<'_>,
    node: Option<&str>,
) -> (Option<(ObjectKey, Pod)>, Vec<String>) {
    let mut reader = ObjectReader::new(interner);
    match item.object::<wire::WirePod>() {
        Ok(pod) => {
            let view = translate::pod(&mut reader, &pod);
            (view, reader.problems)
        }
        Err(unreadable) => {
            let (ListItem::Whole(raw) | ListItem::TooLarge(raw)) = item;
            let placed: Placed = serde_json::from_str(raw.get()).unwrap_or_default();
            let node = placed.spec.node_name.as_deref().or(node);
            let view = translate::unreadable_pod(&mut reader, &unreadable.meta, node);
            (view, vec![unreadable.message.into()])
        }
    }
}

impl KubeClient {
    /// The pods bound to a node, fresh from etcd, ended ones among them. A pod that cannot be read
    /// is there with a request that fits nowhere, so that it is never overlooked.
    pub async fn pods_on(&self, node: &str) -> Result<Vec<(ObjectKey, Pod)>, KubeError> {
        let selector = format!("spec.nodeName={node}");
        let listing = Listing {
            kind: "pods",
            path: "/api/v1/pods",
            field_selector: &selector,
        };
        let read = |found: &mut (Interner, Vec<(ObjectKey, Pod)>), item: ListItem<'_>| {
            let (interner, pods) = found;
            pods.extend(read_pod(interner, item, Some(node)).0);
        };
        let (_, mut pods) = self.gather(listing, read).await?;
        // A server that does not know the selector would answer with every pod there is.
        pods.retain(|(_, pod)| pod.node.as_deref() == Some(node));
        Ok(pods)
    }

    /// Asks for the eviction of one pod (`policy/v1`), which respects disruption budgets. `grace`
    /// in seconds; the pod's own when absent.
    pub async fn evict(&self, pod: &ObjectKey, uid: &str, grace: Option<i64>) -> EvictOutcome {
        let path = format!(
            "/api/v1/namespaces/{}/pods/{}/eviction",
            encode(&pod.namespace),
            encode(&pod.name)
        );
        let mut options = json!({ "preconditions": { "uid": uid } });
        if let Some(seconds) = grace {
            options["gracePeriodSeconds"] = json!(seconds);
        }
        let request =
            KubeRequest::new("create", "pods/eviction", pod.to_string(), path).json(json!({
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": { "namespace": &*pod.namespace, "name": &*pod.name },
                "deleteOptions": options,
            }));
        let request = if planted!(PodsDeleted) {
            let (namespace, name) = (encode(&pod.namespace), encode(&pod.name));
            let pod_path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
            KubeRequest::new("delete", "pods", pod.to_string(), pod_path)
        } else {
            request
        };
        match self.call(request.expect_refusals(&[404, 409, 429])).await {
            Ok(_) => EvictOutcome::Accepted,
            Err(KubeError::Refused { code: 404, .. }) => EvictOutcome::Gone,
            Err(KubeError::Refused { code: 409, .. }) => EvictOutcome::Conflict,
            Err(KubeError::Refused {
                code: 429,
                message,
                retry_after,
                ..
            }) => EvictOutcome::Blocked {
                why: message,
                retry_after,
            },
            Err(KubeError::Unknown {
                code: Some(500),
                message,
                ..
            }) if message.contains(SEVERAL_BUDGETS) => EvictOutcome::Blocked {
                why: message,
                retry_after: None,
            },
            Err(error) => EvictOutcome::Failed(error),
        }
    }

    /// Nominates a pod for a node (`status.nominatedNodeName`, KEP-5278), or takes that back: `from` must be
    /// what stands there, and the pod be this one and still wait.
    ///
    /// # Errors
    /// The call failed. That the pod is gone, bound, or nominated by somebody else is
    /// [`Nomination::Void`].
    pub async fn nominate(
        &self,
        pod: &ObjectKey,
        uid: &str,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<Nomination, KubeError> {
        let path = format!(
            "/api/v1/namespaces/{}/pods/{}/status",
            encode(&pod.namespace),
            encode(&pod.name)
        );
        let change = match to {
            Some(node) => json!({"op": "add", "path": NOMINATED, "value": node}),
            None => json!({"op": "remove", "path": NOMINATED}),
        };
        let request = KubeRequest::new("patch", "pods/status", pod.to_string(), path);
        let request = request.json_patch(json!([
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "test", "path": "/spec/nodeName", "value": null},
            {"op": "test", "path": NOMINATED, "value": from},
            change,
        ]));
        match self.call(request.expect_refusals(&[404, 409, 422])).await {
            Ok(_) => Ok(Nomination::Written),
            // A test that failed is 422.
            Err(KubeError::Refused {
                code: 404 | 409 | 422,
                ..
            }) => Ok(Nomination::Void),
            Err(error) => Err(error),
        }
    }

    /// The VolumeAttachments of a node, fresh from etcd: a node whose volumes still hang on it must
    /// not be destroyed.
    ///
    /// # Errors
    /// Also when an attachment cannot be read: it might be of this node.
    pub async fn attachments_on(
        &self,
        node: &str,
    ) -> Result<Vec<(Arc<str>, Attachment)>, KubeError> {
        type AttachmentsRead = (
            Interner,
            Vec<(Arc<str>, Attachment)>,
            Option<UnreadableObject>,
        );

        let listing = Listing {
            kind: "volumeattachments",
            path: "/apis/storage.k8s.io/v1/volumeattachments",
            field_selector: "",
        };
        let read = |all: &mut AttachmentsRead, item: ListItem<'_>| {
            let (interner, found, damaged) = all;
            match item.object::<wire::WireAttachment>() {
                Ok(read) => {
                    found.extend(translate::attachment(
                        &mut ObjectReader::new(interner),
                        &read,
                    ));
                }
                Err(unreadable) => *damaged = Some(unreadable),
            }
        };
        let (_, mut found, damaged) = self.gather(listing, read).await?;
        if let Some(unreadable) = damaged {
            return Err(KubeError::Unknown {
                call: KubeRequest::new("list", "volumeattachments", "", String::new()).call,
                code: None,
                message: format!(
                    "volumeattachment {:?} cannot be read: {}",
                    unreadable.meta.name.unwrap_or_default(),
                    unreadable.message
                )
                .into(),
            });
        }
        found.retain(|(_, attachment)| &*attachment.node == node);
        Ok(found)
    }
}
