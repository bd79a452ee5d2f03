//! What our credentials may do, by the API server's own word.

use serde::Deserialize;
use serde_json::json;

use super::client::{KubeClient, KubeRequest};
use super::error::KubeError;

/// Something that may be allowed or not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccessRight {
    /// Verb, such as `watch`.
    pub verb: String,
    /// API group; empty for the core one.
    pub group: String,
    /// Resource, with its subresource as `pods/eviction`.
    pub resource: String,
    /// The one object that it is about; empty for all.
    pub name: String,
    /// Where; empty for everywhere.
    pub namespace: String,
}

impl std::fmt::Display for AccessRight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if !self.name.is_empty() {
            write!(f, " {}", self.name)?;
        }
        if !self.namespace.is_empty() {
            write!(f, " in {}", self.namespace)?;
        }
        Ok(())
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AccessReview {
    status: AccessReviewStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AccessReviewStatus {
    allowed: bool,
}

impl AccessRight {
    /// As reviews name it.
    fn attributes(&self) -> serde_json::Value {
        let parts = self.resource.split_once('/');
        let (resource, subresource) = parts.unwrap_or((&self.resource, ""));
        json!({
            "verb": self.verb,
            "group": self.group,
            "resource": resource,
            "subresource": subresource,
            "name": self.name,
            "namespace": self.namespace,
        })
    }
}

impl KubeClient {
    /// Whether we may: a `SelfSubjectAccessReview`, which every user may create and which stores
    /// nothing.
    pub async fn may(&self, right: &AccessRight) -> Result<bool, KubeError> {
        let request = KubeRequest::new(
            "create",
            "selfsubjectaccessreviews",
            right.to_string(),
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned(),
        )
        .json(json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": right.attributes() },
        }));
        let review: AccessReview = self.read(request).await?;
        Ok(review.status.allowed)
    }

    /// Whether members of these groups may, in the right's namespace: a `LocalSubjectAccessReview`, for which the caller needs a right in
    /// that namespace, and which stores nothing.
    pub async fn may_they(&self, groups: &[&str], right: &AccessRight) -> Result<bool, KubeError> {
        let namespace = super::client::encode(&right.namespace);
        let request = KubeRequest::new(
            "create",
            "localsubjectaccessreviews",
            right.to_string(),
            format!(
                "/apis/authorization.k8s.io/v1/namespaces/{namespace}/localsubjectaccessreviews"
            ),
        )
        .json(json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "LocalSubjectAccessReview",
            "metadata": { "namespace": right.namespace },
            "spec": { "groups": groups, "resourceAttributes": right.attributes() },
        }));
        let review: AccessReview = self.read(request).await?;
        Ok(review.status.allowed)
    }
}
