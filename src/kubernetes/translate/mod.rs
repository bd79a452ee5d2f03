//! From Kubernetes' objects to the brain's views ([`crate::model::cluster`]). Pure.
//!
//! What cannot be understood is never taken for harmless: an unreadable quantity of a pod asks for
//! more than any node has, one of a node offers nothing, an unknown selector operator matches
//! nothing, and an unknown toleration tolerates nothing. Every such reading is reported by name.

mod disks;
mod objects;
mod pod;
mod requests;
mod shape;
#[cfg(test)]
mod tests;
mod volumes;

use std::sync::Arc;

use super::intern::Interner;
use super::wire;
use crate::model::cluster::ObjectKey;
use crate::model::label_list::LabelList;
use crate::model::scheduling::{LabelSelector, Labels, NodeTerm, Operator, PodShape, Requirement};
use crate::model::time::Time;

pub(super) use objects::{
    PriorityClass, RuntimeClass, attachment, budget, csi_driver, csi_node, daemon_set, namespace,
    node, priority_class, runtime_class, storage_class,
};
pub(super) use pod::{pod, unreadable_pod};
pub(super) use volumes::{claim, persistent_volume, storage_capacity};

/// Stands in for a creation time that is absent or unreadable: the end of the year 9999, so that
/// nothing counts as old enough.
const NEVER: Time = Time(253_402_300_799_000);

/// What a translation needs and leaves behind.
#[derive(Debug)]
pub(super) struct ObjectReader<'a> {
    pub(super) interner: &'a mut Interner,
    /// What could not be understood, one sentence each, without the object's name.
    pub(super) problems: Vec<String>,
}

impl<'a> ObjectReader<'a> {
    pub(super) fn new(interner: &'a mut Interner) -> ObjectReader<'a> {
        ObjectReader {
            interner,
            problems: Vec::new(),
        }
    }

    /// The shared form of a shape as it is kept. One that is cut leaves none of its texts behind.
    fn kept(&mut self, shape: PodShape) -> Arc<PodShape> {
        let bounded = shape.bounded();
        let cut = bounded.left_out.is_some();
        let shared = self.interner.shape(bounded);
        if cut {
            self.interner.prune();
        }
        shared
    }

    fn text(&mut self, text: Option<&str>) -> Arc<str> {
        self.interner.text(text.unwrap_or_default())
    }

    fn labels(&mut self, labels: Option<&wire::Map>) -> Labels {
        self.interner.labels(labels.into_iter().flatten())
    }

    fn label_list(&mut self, labels: Option<&wire::Map>) -> LabelList {
        let labels = labels.into_iter().flatten();
        labels
            .map(|(key, value)| (self.interner.text(key), self.interner.text(value)))
            .collect()
    }

    fn labels_if(&mut self, labels: Option<&wire::Map>, keep: fn(&str) -> bool) -> Labels {
        let kept = labels.into_iter().flatten().filter(|(key, _)| keep(key));
        self.interner.labels(kept)
    }

    /// A time of the object's own; `None` when absent or unreadable.
    fn time(&mut self, field: &str, text: Option<&str>) -> Option<Time> {
        let text = text?;
        if let Ok(timestamp) = text.parse::<jiff::Timestamp>() {
            Some(Time(timestamp.as_millisecond()))
        } else {
            self.problems
                .push(format!("{field} {text:?} is not a time"));
            None
        }
    }

    fn created(&mut self, meta: &wire::Meta) -> Time {
        self.time(
            "metadata.creationTimestamp",
            meta.creation_timestamp.as_deref(),
        )
        .unwrap_or(NEVER)
    }

    fn selector(&mut self, selector: &wire::WireSelector) -> LabelSelector {
        LabelSelector {
            labels: self.labels(selector.match_labels.as_ref()),
            expressions: self.requirements(selector.match_expressions.as_deref()),
        }
    }

    fn requirements(&mut self, requirements: Option<&[wire::WireRequirement]>) -> Vec<Requirement> {
        requirements
            .unwrap_or_default()
            .iter()
            .map(|requirement| self.requirement(requirement))
            .collect()
    }

    fn requirement(&mut self, requirement: &wire::WireRequirement) -> Requirement {
        let key = self.text(requirement.key.as_deref());
        let operator = match requirement.operator.as_deref().unwrap_or_default() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" => Operator::Gt,
            "Lt" => Operator::Lt,
            other => {
                self.problems.push(format!(
                    "selector operator {other:?} is unknown and matches nothing"
                ));
                // "one of no values" holds nowhere
                return Requirement {
                    key,
                    operator: Operator::In,
                    values: Vec::new(),
                };
            }
        };
        Requirement {
            key,
            operator,
            values: self.texts(requirement.values.as_deref()),
        }
    }

    fn texts(&mut self, texts: Option<&[String]>) -> Vec<Arc<str>> {
        texts
            .unwrap_or_default()
            .iter()
            .map(|text| self.interner.text(text))
            .collect()
    }

    fn node_terms(&mut self, selector: &wire::NodeSelector) -> Vec<NodeTerm> {
        selector
            .node_selector_terms
            .iter()
            .flatten()
            .map(|term| self.node_term(term))
            .collect()
    }

    fn node_term(&mut self, term: &wire::WireNodeTerm) -> NodeTerm {
        NodeTerm {
            expressions: self.requirements(term.match_expressions.as_deref()),
            fields: self.requirements(term.match_fields.as_deref()),
        }
    }

    /// The key of a namespaced object; `None` when a part of it is missing.
    fn key(&mut self, meta: &wire::Meta) -> Option<ObjectKey> {
        let namespace = nonempty(meta.namespace.as_deref())?;
        let name = nonempty(meta.name.as_deref())?;
        Some(ObjectKey {
            namespace: self.interner.text(namespace),
            name: name.into(),
        })
    }

    /// The name of a cluster-wide object, shared with whatever refers to it.
    fn name(&mut self, meta: &wire::Meta) -> Option<Arc<str>> {
        nonempty(meta.name.as_deref()).map(|name| self.interner.text(name))
    }
}

fn nonempty(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

fn uid(meta: &wire::Meta) -> Arc<str> {
    meta.uid.as_deref().unwrap_or_default().into()
}

/// Annotations of pods that autoscaling reads.
fn pod_annotation(key: &str) -> bool {
    key.starts_with("cluster-autoscaler.kubernetes.io/")
        || key.starts_with("karpenter.sh/")
        || key == "controller.kubernetes.io/pod-deletion-cost"
}

/// Annotations that begin so ask for a wait between the drain and the node's end.
pub const DELAY_DELETION: &str = "delay-deletion.cluster-autoscaler.kubernetes.io/";

/// Annotations of nodes that autoscaling reads.
fn node_annotation(key: &str) -> bool {
    key.starts_with("pve-autoscaler.io/")
        || key.starts_with("cluster-autoscaler.kubernetes.io/")
        || key.starts_with(DELAY_DELETION)
        || key.starts_with("karpenter.sh/")
}
