//! What the cluster would let through, tried without doing it: dry runs, whose user we are, and whether the address
//! where machines join is a place. For `doctor` and `setup`.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::client::Body;
use kube::config::Kubeconfig;
use serde::Deserialize;
use serde_json::json;

use super::client::{KubeClient, KubeRequest, encode};
use super::cluster::ClusterInfo;
use super::connect;
use super::error::{KubeError, chain};
use super::tokens::{self, BootstrapToken};
use super::wire;
use crate::model::foreign::ForeignText;
use crate::model::policy::{MACHINE_ANNOTATION, POOL_LABEL};
use crate::model::time::Span;

/// Longest wait for an answer at the address where machines join.
const ANSWER: Duration = Duration::from_secs(10);
/// The token that is tried; it never exists.
const TRIED_TOKEN: &str = "doctor";
/// The annotation that no node gets.
const TRIED_ANNOTATION: &str = "pve-autoscaler.io/doctor";
/// Nodes without the pool's label that are looked at, for one that is no machine of ours.
const MAX_NODES: usize = 50;
/// Statuses with which a policy refuses, and RBAC.
const REFUSED: [u16; 2] = [403, 422];

/// A policy of admission-policy.yaml. Each holds the daemon's user only while it is there and bound by the binding of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionPolicy {
    /// Of Secrets it lets bootstrap tokens through.
    Tokens,
    /// Of Nodes it lets those of our machines through.
    Nodes,
    /// Of a pod's status it lets nominations through.
    Pods,
}

impl AdmissionPolicy {
    /// All that the file has.
    pub const ALL: [AdmissionPolicy; 3] = [
        AdmissionPolicy::Tokens,
        AdmissionPolicy::Nodes,
        AdmissionPolicy::Pods,
    ];

    /// The policy's name, and its binding's.
    pub fn name(self) -> &'static str {
        match self {
            AdmissionPolicy::Tokens => "pve-autoscaler-tokens",
            AdmissionPolicy::Nodes => "pve-autoscaler-nodes",
            AdmissionPolicy::Pods => "pve-autoscaler-pods",
        }
    }
}

/// What came of trying what a policy forbids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyTrial {
    /// The policy refused it, on the object of this name.
    Held(String),
    /// The API server would have done it, on the object of this name: the policy is not there, or not bound.
    Passed(String),
    /// A missing right or another policy refused it, with this message.
    RefusedElsewhere {
        /// The object on which it was tried.
        object: String,
        /// The API server's words.
        message: ForeignText,
    },
    /// There is no object on which it could be tried.
    Untried,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MetadataList {
    /// A real API server answers `null` where there is none.
    items: Option<Vec<wire::MetadataOnly>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SelfSubjectReview {
    status: SelfSubjectReviewStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SelfSubjectReviewStatus {
    user_info: UserInfo,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct UserInfo {
    username: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ResourceList {
    resources: Vec<ApiResource>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ApiResource {
    name: String,
}

/// Why the address where machines join is none for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreached {
    /// Who answers there has no certificate of the cluster's CA for that name.
    Distrusted(String),
    /// Nobody answers, as seen from this host.
    Silent(String),
}

impl KubeClient {
    /// Whether a bootstrap token could be made, as one is made for every machine. Nothing is stored.
    ///
    /// # Errors
    /// What the API server refuses it with; that a Secret of this name is there is none.
    pub async fn try_token(&self) -> Result<(), KubeError> {
        let token = BootstrapToken {
            id: TRIED_TOKEN.to_owned(),
            secret: "0000000000000000".to_owned().into(),
            expires: self.clock().now() + Span::minutes(10),
            description: "a dry run of pve-autoscaler doctor".to_owned(),
        };
        let request = tokens::creation(&token).query("dryRun", "All");
        match self.call(request).await {
            Err(error) if !error.already_exists() => Err(error),
            _ => Ok(()),
        }
    }

    /// Tries what a policy of admission-policy.yaml forbids the daemon's user: another Secret than a token, a change of a Node that is
    /// no machine of ours, a change of a pod's status that is no nomination. Nothing is stored (`dryRun=All`).
    ///
    /// # Errors
    /// What came back in place of a yes or a refusal: then nothing is known of the policy.
    pub async fn try_policy(&self, policy: AdmissionPolicy) -> Result<PolicyTrial, KubeError> {
        let request = match policy {
            AdmissionPolicy::Tokens => Some(prepare_other_secret()),
            AdmissionPolicy::Nodes => self.prepare_node_change().await?,
            AdmissionPolicy::Pods => self.prepare_pod_change().await?,
        };
        let Some(request) = request else {
            return Ok(PolicyTrial::Untried);
        };
        let object = request.call.name.clone();
        match self.call(request.query("dryRun", "All")).await {
            Ok(_) => Ok(PolicyTrial::Passed(object)),
            Err(KubeError::Refused { code, message, .. }) if REFUSED.contains(&code) => {
                Ok(if message.contains(policy.name()) {
                    PolicyTrial::Held(object)
                } else {
                    PolicyTrial::RefusedElsewhere { object, message }
                })
            }
            // The node or pod went meanwhile.
            Err(error) if error.not_found() => Ok(PolicyTrial::Untried),
            Err(error) => Err(error),
        }
    }

    /// A change of a Node that is no machine of ours, if there is such a Node.
    async fn prepare_node_change(&self) -> Result<Option<KubeRequest>, KubeError> {
        let request = KubeRequest::new("list", "nodes", "", "/api/v1/nodes".to_owned())
            .query("labelSelector", format!("!{POOL_LABEL}"))
            .query("limit", MAX_NODES.to_string());
        let list: MetadataList = self.read(request.names_only()).await?;
        let foreign = list
            .items
            .into_iter()
            .flatten()
            .map(|item| item.metadata)
            .find(|meta| {
                let annotations = meta.annotations.as_ref();
                !annotations.is_some_and(|all| all.contains_key(MACHINE_ANNOTATION))
            });
        Ok(foreign.and_then(|meta| meta.name).map(|name| {
            let path = format!("/api/v1/nodes/{}", encode(&name));
            KubeRequest::new("patch", "nodes", name, path).merge_patch(
                json!({ "metadata": { "annotations": { TRIED_ANNOTATION: "dry run" } } }),
            )
        }))
    }

    /// A change of a pod's status that is no nomination, if there is a pod.
    async fn prepare_pod_change(&self) -> Result<Option<KubeRequest>, KubeError> {
        let request =
            KubeRequest::new("list", "pods", "", "/api/v1/pods".to_owned()).query("limit", "1");
        let list: MetadataList = self.read(request.names_only()).await?;
        let mut items = list.items.into_iter().flatten();
        let first = items.next().map(|item| item.metadata);
        let Some((Some(namespace), Some(name))) = first.map(|meta| (meta.namespace, meta.name))
        else {
            return Ok(None);
        };
        let path = format!(
            "/api/v1/namespaces/{}/pods/{}/status",
            encode(&namespace),
            encode(&name)
        );
        let request = KubeRequest::new("patch", "pods/status", format!("{namespace}/{name}"), path);
        let status = json!({ "status": { "message": "a dry run of pve-autoscaler doctor" } });
        Ok(Some(request.merge_patch(status)))
    }

    /// Whose credentials these are (`SelfSubjectReview`, Kubernetes 1.28 or newer).
    pub async fn user_name(&self) -> Result<String, KubeError> {
        let request = KubeRequest::new(
            "create",
            "selfsubjectreviews",
            "",
            "/apis/authentication.k8s.io/v1/selfsubjectreviews".to_owned(),
        );
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let review: SelfSubjectReview = self.read(request.json(body)).await?;
        Ok(review.status.user_info.username)
    }

    /// Whether the API server has ValidatingAdmissionPolicy, as from Kubernetes 1.30 on.
    ///
    /// # Errors
    /// What came back in place of the list of what it has.
    pub async fn has_admission_policies(&self) -> Result<bool, KubeError> {
        let path = "/apis/admissionregistration.k8s.io/v1".to_owned();
        let request = KubeRequest::new("get", "apis", "admissionregistration.k8s.io/v1", path);
        match self.read::<ResourceList>(request).await {
            Ok(list) => {
                let mut resources = list.resources.iter();
                Ok(resources.any(|resource| resource.name == "validatingadmissionpolicies"))
            }
            Err(error) if error.not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether there is a namespace of this name.
    pub async fn namespace_is_there(&self, name: &str) -> Result<bool, KubeError> {
        let path = format!("/api/v1/namespaces/{}", encode(name));
        match self
            .read::<wire::MetadataOnly>(KubeRequest::new("get", "namespaces", name, path))
            .await
        {
            Ok(_) => Ok(true),
            Err(error) if error.not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// A Secret that is no bootstrap token.
fn prepare_other_secret() -> KubeRequest {
    let name = "pve-autoscaler-doctor";
    let body = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": name, "namespace": "kube-system" },
        "type": "Opaque",
    });
    KubeRequest::new("create", "secrets", name, tokens::SECRETS.to_owned()).json(body)
}

impl ClusterInfo {
    /// Whether an API server answers at `address` (`host:port`) with a certificate that the CA of cluster-info signed.
    /// Any answer will do: nobody logs in.
    ///
    /// # Errors
    /// Why machines could not join there.
    pub async fn try_at(&self, address: &str) -> Result<(), Unreached> {
        let silent = |why: String| Unreached::Silent(why);
        let file = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "c", "cluster": {
                "server": format!("https://{address}"),
                "certificate-authority-data": STANDARD.encode(&self.ca_pem),
            }}],
            "users": [{ "name": "u", "user": {} }],
            "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u" } }],
            "current-context": "x",
        });
        let file: Kubeconfig =
            serde_json::from_value(file).map_err(|error| silent(error.to_string()))?;
        let client = connect::build(file, "x").await.map_err(silent)?;
        let request = http::Request::get("/livez")
            .body(Body::empty())
            .map_err(|error| silent(error.to_string()))?;
        match tokio::time::timeout(ANSWER, client.send(request)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(judge(chain(&error))),
            Err(_) => Err(silent(format!("no answer within {} s", ANSWER.as_secs()))),
        }
    }
}

/// What rustls says of a certificate that it does not take names it.
fn judge(why: String) -> Unreached {
    if why.contains("certificate") {
        Unreached::Distrusted(why)
    } else {
        Unreached::Silent(why)
    }
}
