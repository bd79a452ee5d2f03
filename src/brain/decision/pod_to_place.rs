//! A pod that needs a place, and where its verdict goes.

use model::cluster::{ObjectKey, Pod};

use crate::index::LineIndex;

/// A pod that needs a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodToPlace<'a> {
    pub(crate) key: &'a ObjectKey,
    pub(crate) pod: &'a Pod,
    /// Where its verdict goes; `None` for a pod that is bound.
    pub(crate) line: Option<LineIndex>,
}
