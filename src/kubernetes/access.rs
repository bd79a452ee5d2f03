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

impl KubeClient {
    /// Whether we may: a `SelfSubjectAccessReview`, which every user may create and which stores
    /// nothing.
    pub async fn may(&self, right: &AccessRight) -> Result<bool, KubeError> {
        let (resource, subresource) = right
            .resource
            .split_once('/')
            .unwrap_or((&right.resource, ""));
        let request = KubeRequest::new(
            "create",
            "selfsubjectaccessreviews",
            right.to_string(),
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned(),
        )
        .json(json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": {
                "verb": right.verb,
                "group": right.group,
                "resource": resource,
                "subresource": subresource,
                "name": right.name,
                "namespace": right.namespace,
            }},
        }));
        let review: AccessReview = self.read(request).await?;
        Ok(review.status.allowed)
    }
}
