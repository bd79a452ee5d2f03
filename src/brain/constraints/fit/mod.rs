//! Where a pod may run: kube-scheduler's filters, one file each.
//!
//! The filters that do not depend on what else runs on a node ([`filter_failure`]) are asked once for each
//! shape and node; what is left ([`amounts`], [`ports`]) is counted. Source: `pkg/scheduler/framework/plugins`.

pub(crate) mod amounts;
pub(crate) mod attach;
pub(crate) mod node_preferences;
pub(crate) mod ports;
pub(crate) mod selector;
pub(crate) mod taints;
pub(crate) mod volumes;

use model::reasons::FilterFailure;
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

/// The filter failure as it is said of a node there is; [`first_shortage`] says it of one that could be made.
pub(crate) fn here(mut filter_failure: FilterFailure) -> FilterFailure {
    if let FilterFailure::Insufficient { new_node, .. } = &mut filter_failure {
        *new_node = false;
    }
    filter_failure
}

/// The first filter that keeps a pod of this shape off a node whatever runs there.
pub(crate) fn filter_failure(shape: &PodShape, place: NodeView<'_>) -> Option<FilterFailure> {
    filter_failures(shape, place).next()
}

/// All that keeps a pod of this shape off a node whatever runs there, in the order of the filters. A filter is asked when its turn
/// comes.
pub(crate) fn filter_failures<'s>(
    shape: &'s PodShape,
    place: NodeView<'s>,
) -> impl Iterator<Item = FilterFailure> + 's {
    let cordoned = place.unschedulable && !taints::bears_cordon(&shape.tolerations);
    // The taint of a cordon says once more what the cordon says.
    let taints = taints::untolerated(place.taints, &shape.tolerations)
        .filter(move |taint| !cordoned || !taints::is_of_cordon(taint));
    let taints = taints.map(|taint| FilterFailure::Taint {
        taint: taint.clone(),
        compares_numbers: shape.compared_taints.contains(&taint.key),
    });
    let selector = shape.node_selector.iter();
    let selector = selector.filter(move |(key, value)| place.labels.get(*key) != Some(*value));
    let selector = selector.map(|(key, value)| FilterFailure::NodeSelector {
        key: key.clone(),
        value: value.clone(),
    });
    let terms = shape.node_affinity.iter();
    let terms = terms.filter(move |terms| !selector::any_term(terms, place.name, place.labels));
    let affinity = terms.map(|terms| FilterFailure::NodeAffinity {
        terms: terms.clone(),
    });
    cordoned
        .then_some(FilterFailure::Cordoned)
        .into_iter()
        .chain(taints)
        .chain(selector)
        .chain(affinity)
}

/// The first resource or port that does not fit on a new node.
pub(crate) fn first_shortage(
    shape: &PodShape,
    free: &Resources,
    ports: &[HostPort],
) -> Option<FilterFailure> {
    all_shortages(shape, free, ports).next()
}

/// The ports and resources that do not fit on a new node: of ports the first.
pub(crate) fn all_shortages<'s>(
    shape: &'s PodShape,
    free: &'s Resources,
    ports: &[HostPort],
) -> impl Iterator<Item = FilterFailure> + use<'s> {
    let port = ports::taken(&shape.host_ports, ports);
    let port = port.map(|port| FilterFailure::HostPort {
        port: port.clone(),
        daemon_set: None,
    });
    let full = free.pods < 1;
    let pods = full.then(|| insufficient("pods", 1, free.pods));
    let lacking = shape.requests.lacking(free);
    let lacking = lacking.filter(move |lack| !full || lack.resource != "pods");
    let lacking = lacking.map(|lack| insufficient(lack.resource, lack.asked, lack.free));
    port.into_iter().chain(pods).chain(lacking)
}

fn insufficient(resource: &str, asked: i64, free: i64) -> FilterFailure {
    FilterFailure::Insufficient {
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
