//! What the cluster would let through, tried without doing it: dry runs, whose user we are, and whether the address
//! where machines join is a place. For `doctor`.

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
use crate::model::time::Span;

/// Longest wait for an answer at the address where machines join.
const ANSWER: Duration = Duration::from_secs(10);
/// The token that is tried; it never exists.
const TRIED_TOKEN: &str = "doctor";

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

    /// Whether a Secret could be made that is no bootstrap token, which admission-policy.yaml forbids. Nothing is stored.
    ///
    /// # Errors
    /// What the API server refuses it with.
    pub async fn try_other_secret(&self) -> Result<(), KubeError> {
        let name = "pve-autoscaler-doctor";
        let body = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": name, "namespace": "kube-system" },
            "type": "Opaque",
        });
        let request = KubeRequest::new("create", "secrets", name, tokens::SECRETS.to_owned());
        self.call(request.query("dryRun", "All").json(body))
            .await
            .map(|_| ())
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
