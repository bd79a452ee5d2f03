//! Where a pod may run: kube-scheduler's filters, one file each.
//!
//! The filters that do not depend on what else runs on a node ([`misfit`]) are asked once for each
//! shape and node; what is left ([`amounts`], [`ports`]) is counted. Source: `pkg/scheduler/framework/plugins`.

pub(crate) mod amounts;
pub(crate) mod attach;
pub(crate) mod node_preferences;
pub(crate) mod ports;
pub(crate) mod selector;
pub(crate) mod taints;
pub(crate) mod volumes;

use model::reasons::Misfit;
use model::resources::Resources;
use model::scheduling::{HostPort, Labels, PodShape, Taint};

/// The name and host-name label of a node that has no name yet. No real one has these characters,
/// so that no selector for a certain host can match it.
pub(crate) const NEW: &str = "<new>";

/// What a filter reads of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeView<'a> {
    /// The node's name, [`NEW`] for one that has none yet.
    pub(crate) name: &'a str,
    /// Labels.
    pub(crate) labels: &'a Labels,
    /// Taints that count.
    pub(crate) taints: &'a [Taint],
    /// Cordoned.
    pub(crate) unschedulable: bool,
}

/// The misfit as it is said of a node there is; [`crowded`] says it of one that could be made.
pub(crate) fn here(mut misfit: Misfit) -> Misfit {
    if let Misfit::Insufficient { new_node, .. } = &mut misfit {
        *new_node = false;
    }
    misfit
}

/// The first filter that keeps a pod of this shape off a node whatever runs there.
pub(crate) fn misfit(shape: &PodShape, place: NodeView<'_>) -> Option<Misfit> {
    if place.unschedulable && !taints::bears_cordon(&shape.tolerations) {
        return Some(Misfit::Cordoned);
    }
    if let Some(taint) = taints::untolerated(place.taints, &shape.tolerations) {
        return Some(Misfit::Taint {
            taint: taint.clone(),
            compares_numbers: shape.compared_taints.contains(&taint.key),
        });
    }
    if let Some((key, value)) = shape
        .node_selector
        .iter()
        .find(|(key, value)| place.labels.get(*key) != Some(*value))
    {
        let (key, value) = (key.clone(), value.clone());
        return Some(Misfit::NodeSelector { key, value });
    }
    let terms = shape.node_affinity.as_ref()?;
    if selector::any_term(terms, place.name, place.labels) {
        return None;
    }
    Some(Misfit::NodeAffinity {
        terms: terms.clone(),
    })
}

/// The first resource or port that does not fit on a new node.
pub(crate) fn crowded(shape: &PodShape, free: &Resources, ports: &[HostPort]) -> Option<Misfit> {
    if let Some(port) = ports::taken(&shape.host_ports, ports) {
        return Some(Misfit::HostPort { port: port.clone() });
    }
    if free.pods < 1 {
        return Some(insufficient("pods", 1, free.pods));
    }
    shape
        .requests
        .lacking(free)
        .next()
        .map(|lack| insufficient(lack.resource, lack.asked, lack.free))
}

fn insufficient(resource: &str, asked: i64, free: i64) -> Misfit {
    Misfit::Insufficient {
        resource: resource.into(),
        asked,
        free,
        new_node: true,
    }
}

/// How many pods of this shape a node with `free` and `ports` still holds. A shape with host ports
/// conflicts with itself.
pub(crate) fn room(shape: &PodShape, free: &Resources, ports: &[HostPort]) -> u64 {
    let room = amounts::room(&shape.requests, free);
    if room == 0 || ports::taken(&shape.host_ports, ports).is_some() {
        return 0;
    }
    if shape.host_ports.is_empty() {
        room
    } else {
        room.min(1)
    }
}
