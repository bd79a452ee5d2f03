//! The parts of Kubernetes objects that we read, as they come over the wire.
//!
//! Every field may be absent, and text, numbers and lists may be `null`: no object is refused for
//! what it lacks. They live only until [`super::translate`] has made a view of them.

mod objects;
mod pod;

use std::collections::BTreeMap;

use serde::Deserialize;

pub(super) use objects::*;
pub(super) use pod::*;

/// A string map as Kubernetes writes it.
pub(super) type Map = BTreeMap<String, String>;

/// `metadata`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Meta {
    pub(super) name: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) uid: Option<String>,
    pub(super) resource_version: Option<String>,
    pub(super) generation: Option<i64>,
    pub(super) creation_timestamp: Option<String>,
    pub(super) deletion_timestamp: Option<String>,
    pub(super) deletion_grace_period_seconds: Option<i64>,
    pub(super) labels: Option<Map>,
    pub(super) annotations: Option<Map>,
    pub(super) owner_references: Option<Vec<OwnerReference>>,
}

/// One of `metadata.ownerReferences`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OwnerReference {
    pub(super) kind: Option<String>,
    pub(super) name: Option<String>,
    pub(super) uid: Option<String>,
    pub(super) controller: Option<bool>,
}

/// An object of which only the metadata matters, or could be read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MetadataOnly {
    pub(super) metadata: Meta,
}

/// A condition of a pod or node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WireCondition {
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) status: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    pub(super) last_transition_time: Option<String>,
}

/// A label selector.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WireSelector {
    pub(super) match_labels: Option<Map>,
    pub(super) match_expressions: Option<Vec<WireRequirement>>,
}

/// A requirement of a label or node selector.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireRequirement {
    pub(super) key: Option<String>,
    pub(super) operator: Option<String>,
    pub(super) values: Option<Vec<String>>,
}

/// A node selector.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NodeSelector {
    pub(super) node_selector_terms: Option<Vec<WireNodeTerm>>,
}

/// A node selector term.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WireNodeTerm {
    pub(super) match_expressions: Option<Vec<WireRequirement>>,
    pub(super) match_fields: Option<Vec<WireRequirement>>,
}

/// A quantity: a string, though a bare number is a quantity too.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum WireQuantity {
    Text(String),
    Number(serde_json::Number),
}

impl std::fmt::Display for WireQuantity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WireQuantity::Text(text) => f.write_str(text),
            WireQuantity::Number(number) => write!(f, "{number}"),
        }
    }
}

/// A resource list.
pub(super) type WireResourceList = BTreeMap<String, WireQuantity>;
