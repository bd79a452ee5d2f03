//! Pods as the rules see them: kinds of pods, and how many of a kind are on a node.

use model::cluster::{ObjectKey, Pod};
use model::scheduling::PodShape;

use crate::index::ShapeId;

pub(crate) use model::scheduling::HOSTNAME_LABEL;

/// A pod with its key.
pub(crate) type Keyed<'a> = (&'a ObjectKey, &'a Pod);

/// A shape in a namespace: what filters read of a pod, and of all pods that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NamespacedShape<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) shape: &'a PodShape,
}

/// Pods of one shape on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resident {
    pub(crate) shape: ShapeId,
    pub(crate) count: u64,
    /// Being deleted: it still holds its place and is not counted for spreading.
    pub(crate) deleting: bool,
}

impl Resident {
    /// `count` pods of one shape on one node, none of which is being deleted.
    pub(crate) fn of(shape: ShapeId, count: u64) -> Resident {
        Resident {
            shape,
            count,
            deleting: false,
        }
    }
}
