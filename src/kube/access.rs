//! What our credentials may do, by the API server's own word.

use serde::Deserialize;
use serde_json::json;

use super::client::{Client, Request};
use super::error::Error;

/// Something that may be allowed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// Verb, such as `watch`.
    pub verb: &'static str,
    /// API group; empty for the core one.
    pub group: &'static str,
    /// Resource, with its subresource as `pods/eviction`.
    pub resource: &'static str,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Review {
    status: ReviewStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ReviewStatus {
    allowed: bool,
}

impl Client {
    /// Whether we may: a `SelfSubjectAccessReview`, which every user may create and which stores
    /// nothing. Without a namespace the right is asked for in all of them.
    pub async fn may(&self, right: Right, namespace: Option<&str>) -> Result<bool, Error> {
        let (resource, subresource) = right
            .resource
            .split_once('/')
            .unwrap_or((right.resource, ""));
        let request = Request::new(
            "create",
            "selfsubjectaccessreviews",
            format!("{} {}", right.verb, right.resource),
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
                "namespace": namespace.unwrap_or_default(),
            }},
        }));
        let review: Review = self.read(request).await?;
        Ok(review.status.allowed)
    }
}
