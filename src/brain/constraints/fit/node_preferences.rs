//! Preferences about a node: preferred node affinity and `PreferNoSchedule`. They make a choice dearer,
//! never impossible.

use super::{NodeView, selector};
use model::scheduling::{Effect, PodShape};

/// What a `PreferNoSchedule` taint that is not tolerated weighs: as much as the strongest preference.
const TAINT_PENALTY: i64 = 100;
/// What all preferences together weigh at most.
const MAX_PENALTY: i64 = 1000;

/// The weight of a shape's preferences that a place does not meet.
pub(crate) fn unmet(shape: &PodShape, place: NodeView<'_>) -> i64 {
    let preferences = shape.preferred_nodes.iter();
    let missed = preferences.filter(|(_, term)| !selector::term(term, place.name, place.labels));
    let missed = missed.map(|(weight, _)| i64::from(*weight).clamp(0, 100));
    let taints = place
        .taints
        .iter()
        .filter(|taint| taint.effect == Effect::PreferNoSchedule)
        .filter(|taint| !shape.tolerations.iter().any(|t| t.tolerates(taint)))
        .map(|_| TAINT_PENALTY);
    missed
        .chain(taints)
        .fold(0, i64::saturating_add)
        .min(MAX_PENALTY)
}
