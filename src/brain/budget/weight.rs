//! What there is to the constraints of one kind of pod, as far as it makes decisions dear.

use model::scheduling::{LabelSelector, PodShape, PodTerm, SpreadConstraint, Volume};

use super::count;

/// Parts of what a pod asks of a node's labels and taints that cost nothing: every pod has tolerations, and nodes that are
/// alike are asked once.
const UNCOUNTED_PARTS: u64 = 16;

/// What there is to the constraints of one kind of pod, or of several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weight {
    /// Parts of all constraints.
    pub(super) parts: u64,
    /// Parts of terms and spread constraints, which are compared with other pods.
    pub(super) matched: u64,
    /// Terms about others, required and preferred, and spread constraints: how many.
    pub(super) terms: u64,
    /// Required anti-affinity terms, which concern others: how many.
    pub(super) anti_affinity: u64,
    /// Parts of spread constraints.
    pub(super) spread: u64,
    /// Parts of what is asked of a node alone, beyond the usual.
    pub(super) node: u64,
    /// Host ports.
    pub(super) ports: u64,
    /// Host ports squared: what it costs to compare them with those of another such pod.
    pub(super) clashes: u64,
    /// Claims.
    pub(super) volumes: u64,
    /// Extended resources.
    pub(super) extended: u64,
}

impl Weight {
    /// The weight of a shape.
    pub(super) fn of(shape: &PodShape) -> Weight {
        let spread = shape.spread.iter().map(SpreadConstraint::parts).sum();
        let claims = shape
            .volumes
            .iter()
            .filter(|volume| matches!(volume, Volume::Claim(_) | Volume::Ephemeral { .. }));
        let ports = count(shape.host_ports.len());
        Weight {
            parts: shape.parts(),
            matched: shape.terms().map(PodTerm::parts).sum::<u64>() + spread,
            terms: count(shape.terms().count() + shape.spread.len()),
            anti_affinity: count(shape.pod_anti_affinity.len()),
            spread,
            node: shape.node_parts().saturating_sub(UNCOUNTED_PARTS),
            ports,
            clashes: ports.saturating_mul(ports),
            volumes: count(claims.count()),
            extended: count(shape.requests.extended.len()),
        }
    }

    /// What one look at a place costs.
    pub(super) fn probes(&self) -> u64 {
        let terms = self.terms.saturating_add(self.node);
        terms.saturating_add(self.clashes)
    }

    /// Adds another.
    pub(super) fn add(&mut self, other: &Weight) {
        self.each(other, u64::saturating_add);
    }

    /// Takes what is more in another.
    pub(super) fn raise(&mut self, other: &Weight) {
        self.each(other, u64::max);
    }

    fn each(&mut self, other: &Weight, join: fn(u64, u64) -> u64) {
        *self = Weight {
            parts: join(self.parts, other.parts),
            matched: join(self.matched, other.matched),
            terms: join(self.terms, other.terms),
            anti_affinity: join(self.anti_affinity, other.anti_affinity),
            spread: join(self.spread, other.spread),
            node: join(self.node, other.node),
            ports: join(self.ports, other.ports),
            clashes: join(self.clashes, other.clashes),
            volumes: join(self.volumes, other.volumes),
            extended: join(self.extended, other.extended),
        };
    }
}

/// Parts of a label selector, and one for asking it.
pub(super) fn asking(selector: Option<&LabelSelector>) -> u64 {
    1 + selector.map_or(0, LabelSelector::parts)
}
