//! Nodes that are alike to every filter that looks at labels, taints and cordon alone, so that such
//! a filter is asked once for each kind of pod and class of nodes.

use std::collections::BTreeMap;

use model::scheduling::{Labels, NodeTerm, PodShape, Taint, Toleration};

use crate::constraints::fit::{self, NodeView};
use crate::constraints::shape::HOSTNAME_LABEL;
use crate::index::{ClassId, IndexVec, RequirementsId};
use crate::simulation::world::SimNode;

/// What the nodes of one class share.
#[derive(Debug)]
struct NodeClass {
    /// Without the host name.
    labels: Labels,
    taints: Vec<Taint>,
    unschedulable: bool,
}

/// What a shape asks of labels and taints.
type NodeRequirements<'a> = (&'a Labels, Option<&'a [NodeTerm]>, &'a [Toleration]);

/// Which classes of nodes meet what some kinds of pods ask of labels and taints.
#[derive(Debug)]
struct RequirementFits<'a> {
    /// Any shape with these requirements.
    shape: &'a PodShape,
    /// It asks for a node by name: classes do not answer that.
    by_name: bool,
    /// By class.
    fits: IndexVec<ClassId, bool>,
}

/// All classes, and what was asked of them.
#[derive(Debug, Default)]
pub(crate) struct NodeClasses<'a> {
    all: IndexVec<ClassId, NodeClass>,
    /// All of them in the order of what they share, so that one is found without making a key for it.
    sorted: Vec<ClassId>,
    requirements: BTreeMap<NodeRequirements<'a>, RequirementsId>,
    requirement_fits: IndexVec<RequirementsId, RequirementFits<'a>>,
}

impl<'a> NodeClasses<'a> {
    /// The class of a node.
    pub(crate) fn class(
        &mut self,
        labels: &Labels,
        taints: &[Taint],
        unschedulable: bool,
    ) -> ClassId {
        let found = self.sorted.binary_search_by(|id| {
            let class = &self.all[*id];
            let shared = labels.iter().filter(|(key, _)| ***key != *HOSTNAME_LABEL);
            class
                .labels
                .iter()
                .cmp(shared)
                .then_with(|| class.taints[..].cmp(taints))
                .then_with(|| class.unschedulable.cmp(&unschedulable))
        });
        match found {
            Ok(position) => self.sorted[position],
            Err(position) => {
                let mut labels = labels.clone();
                labels.remove(HOSTNAME_LABEL);
                let id = self.all.next_index();
                self.all.push(NodeClass {
                    labels,
                    taints: taints.to_vec(),
                    unschedulable,
                });
                self.sorted.insert(position, id);
                id
            }
        }
    }

    /// What a shape asks.
    pub(crate) fn requirements(&mut self, shape: &'a PodShape) -> RequirementsId {
        let requirements = (
            &shape.node_selector,
            shape.node_affinity.as_deref(),
            &shape.tolerations[..],
        );
        let next = self.requirement_fits.next_index();
        let id = *self.requirements.entry(requirements).or_insert(next);
        if id == next {
            self.requirement_fits.push(RequirementFits {
                shape,
                by_name: by_name(shape),
                fits: IndexVec::default(),
            });
        }
        id
    }

    /// Asks all classes there are, so that [`NodeClasses::fits`] can answer.
    pub(crate) fn ask(&mut self, id: RequirementsId) {
        let requirement_fits = &mut self.requirement_fits[id];
        if requirement_fits.by_name {
            return;
        }
        for class in self.all.tail(requirement_fits.fits.next_index()) {
            let place = NodeView {
                name: "",
                labels: &class.labels,
                taints: &class.taints,
                unschedulable: class.unschedulable,
            };
            let fits = fit::filter_failure(requirement_fits.shape, place).is_none();
            requirement_fits.fits.push(fits);
        }
    }

    /// Whether requirements are met by a place.
    pub(crate) fn fits(&self, id: RequirementsId, node: &SimNode) -> bool {
        let requirement_fits = &self.requirement_fits[id];
        match requirement_fits.fits.get(node.class) {
            Some(fits) => *fits,
            None => fit::filter_failure(requirement_fits.shape, node.place()).is_none(),
        }
    }
}

/// Whether a shape looks at names of nodes.
fn by_name(shape: &PodShape) -> bool {
    shape.node_selector.contains_key(HOSTNAME_LABEL)
        || shape.node_affinity.iter().flatten().any(|term| {
            !term.fields.is_empty()
                || term
                    .expressions
                    .iter()
                    .any(|requirement| &*requirement.key == HOSTNAME_LABEL)
        })
}
