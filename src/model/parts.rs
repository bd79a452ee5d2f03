//! How much there is to what a pod asks, in parts: a requirement, a value, a label, a port. Kubernetes bounds
//! none of them but by the size of the object.

use std::sync::Arc;

use super::reasons::Excess;
use super::scheduling::{
    LabelSelector, NodeTerm, PodShape, PodTerm, PodTraits, Requirement, SpreadConstraint,
};

/// A pod of which there is more is not read in full: it would take tens of megabytes to keep. Pods have some ten parts.
pub const MAX_PARTS: u64 = 20_000;
/// How many labels, ports, volumes, tolerations and extended resources are kept, of each, of a pod whose constraints are left out.
const FEW: usize = 64;

impl PodTraits {
    /// Parts of what is asked of a node's labels and taints.
    pub fn node_parts(&self) -> u64 {
        let preferred = self.preferred_nodes.iter().map(|(_, term)| term);
        let terms = self.node_affinity.iter().flatten().chain(preferred);
        let lists = [
            self.node_selector.len(),
            self.tolerations.len(),
            self.compared_taints.len(),
        ];
        let lists: u64 = lists.into_iter().map(count).sum();
        terms.map(NodeTerm::parts).sum::<u64>() + lists
    }

    /// All terms about other pods, required and preferred.
    pub fn terms(&self) -> impl Iterator<Item = &PodTerm> {
        let required = self.pod_affinity.iter().chain(&self.pod_anti_affinity);
        let preferred = self.preferred_pods.iter().chain(&self.preferred_anti_pods);
        required.chain(preferred.map(|(_, term)| term))
    }
}

impl PodShape {
    /// Parts of everything that is asked, and labels.
    pub fn parts(&self) -> u64 {
        let terms: u64 = self.terms().map(PodTerm::parts).sum();
        let spread: u64 = self.spread.iter().map(SpreadConstraint::parts).sum();
        let lists = [
            self.labels.len(),
            self.annotations.len(),
            self.host_ports.len(),
            self.volumes.len(),
            self.requests.extended.len(),
        ];
        lists
            .into_iter()
            .map(count)
            .fold(terms + spread + self.node_parts(), u64::saturating_add)
    }

    /// The shape without the constraints that are left out, and why they are. What it asks for itself stays.
    #[must_use]
    pub fn without_constraints(&self, why: Excess) -> PodShape {
        let mut labels = self.labels.clone();
        labels.truncate(FEW);
        let mut plain = PodTraits {
            left_out: Some(why),
            node_affinity: None,
            preferred_nodes: Vec::new(),
            pod_affinity: Vec::new(),
            pod_anti_affinity: Vec::new(),
            preferred_pods: Vec::new(),
            preferred_anti_pods: Vec::new(),
            spread: Vec::new(),
            compared_taints: Vec::new(),
            ..PodTraits::clone(self)
        };
        plain.tolerations.truncate(FEW);
        plain.host_ports.truncate(FEW);
        plain.volumes.truncate(FEW);
        for pairs in [&mut plain.annotations, &mut plain.node_selector] {
            let all = std::mem::take(pairs);
            *pairs = all.into_iter().take(FEW).collect();
        }
        let extended = std::mem::take(&mut plain.requests.extended);
        plain.requests.extended = extended.into_iter().take(FEW).collect();
        PodShape {
            labels,
            owner: self.owner.clone(),
            traits: Arc::new(plain),
        }
    }

    /// The shape as it is kept: without its constraints when they have more than [`MAX_PARTS`].
    #[must_use]
    pub fn bounded(self) -> PodShape {
        let parts = self.parts();
        if parts <= MAX_PARTS {
            return self;
        }
        self.without_constraints(Excess::Parts { parts })
    }
}

impl PodTerm {
    /// Requirements, values, labels and namespaces, and the term itself.
    pub fn parts(&self) -> u64 {
        let selector = self.selector.as_ref().map_or(0, LabelSelector::parts);
        let namespaces = self.namespace_selector.as_ref();
        1 + selector + count(self.namespaces.len()) + namespaces.map_or(0, LabelSelector::parts)
    }
}

impl LabelSelector {
    /// Labels, requirements and values.
    pub fn parts(&self) -> u64 {
        count(self.labels.len()) + requirements(&self.expressions)
    }
}

impl NodeTerm {
    /// Requirements and values, and the term itself.
    pub fn parts(&self) -> u64 {
        1 + requirements(&self.expressions) + requirements(&self.fields)
    }
}

impl SpreadConstraint {
    /// Requirements, values and labels, and the constraint itself.
    pub fn parts(&self) -> u64 {
        let selector = self.selector.as_ref().map_or(0, LabelSelector::parts);
        1 + selector + count(self.match_label_keys.len())
    }
}

fn requirements(all: &[Requirement]) -> u64 {
    all.iter().map(|one| 1 + count(one.values.len())).sum()
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduling::Operator;

    #[test]
    fn what_is_beyond_the_bound_is_not_kept() {
        let with = |values: u64| {
            let values = (0..values).map(|value| value.to_string().into());
            let requirement = Requirement {
                key: "x".into(),
                operator: Operator::NotIn,
                values: values.collect(),
            };
            let selector = LabelSelector {
                expressions: vec![requirement],
                ..LabelSelector::default()
            };
            let term = PodTerm {
                selector: Some(selector),
                ..PodTerm::default()
            };
            PodShape::from(PodTraits {
                pod_anti_affinity: vec![term],
                priority: 7,
                ..PodTraits::default()
            })
        };
        let most = with(MAX_PARTS - 2);
        assert_eq!(most.parts(), MAX_PARTS);
        assert_eq!(most.clone().bounded(), most);
        let cut = with(MAX_PARTS - 1).bounded();
        assert!(cut.pod_anti_affinity.is_empty() && cut.priority == 7);
        assert_eq!(cut.left_out, Some(Excess::Parts { parts: 20_001 }));
    }
}
