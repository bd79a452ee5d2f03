//! Pods that exclude each other: cliques, of whose pods no two may be on one node.
//!
//! A clique is a host port, or an anti-affinity term over the host name that its pods both hold and
//! are meant by.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::neighbours::selected;
use crate::constraints::shape::HOSTNAME_LABEL;
use crate::constraints::shape::NamespacedShape;
use crate::index::{CliqueIndex, IndexVec};
use model::scheduling::{HostPort, Labels, PodTerm};

/// Cliques that the bound looks at, at most: the largest. Each is a levy.
const MAX_CLIQUES: usize = 16;

/// Why pods exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Clique<'a> {
    /// Protocol, address (empty for those that take all) and port.
    Port(&'a str, &'a str, i32),
    /// Namespace and term.
    Term(&'a str, &'a PodTerm),
}

impl Clique<'_> {
    /// Whether a pod that runs keeps all pods of the clique off its node.
    pub(super) fn barred_by(&self, pod: NamespacedShape<'_>) -> bool {
        match self {
            Clique::Port(protocol, address, port) => pod.shape.host_ports.iter().any(|taken| {
                taken.port == *port
                    && protocol_of(taken) == *protocol
                    && (address_of(taken).is_empty() || address_of(taken) == *address)
            }),
            Clique::Term(namespace, term) => {
                *namespace == pod.namespace && selected(term.selector.as_ref(), &pod.shape.labels)
            }
        }
    }

    /// Whether it holds on a node with these labels.
    pub(super) fn holds_at(&self, labels: &Labels) -> bool {
        match self {
            Clique::Port(..) => true,
            Clique::Term(..) => labels.contains_key(HOSTNAME_LABEL),
        }
    }
}

fn protocol_of(port: &HostPort) -> &str {
    if port.protocol.is_empty() {
        "TCP"
    } else {
        &port.protocol
    }
}

/// Empty for a port on all addresses.
fn address_of(port: &HostPort) -> &str {
    if *port.ip == *"0.0.0.0" { "" } else { &port.ip }
}

/// The cliques of these pods (with how many there are of each), and for each shape those it is in.
pub(super) fn find_cliques<'a>(
    pods: &[(NamespacedShape<'a>, u64)],
) -> (IndexVec<CliqueIndex, Clique<'a>>, Vec<Vec<CliqueIndex>>) {
    let ports = pods.iter().flat_map(|(pod, _)| &pod.shape.host_ports);
    let ports: BTreeSet<(&str, i32, &str)> = ports
        .map(|port| (protocol_of(port), port.port, address_of(port)))
        .collect();
    let mut sizes: BTreeMap<Clique<'a>, u64> = BTreeMap::new();
    let mut within: Vec<Vec<Clique<'a>>> = Vec::with_capacity(pods.len());
    for (pod, count) in pods {
        let mut of: Vec<Clique<'a>> = Vec::new();
        for port in &pod.shape.host_ports {
            let (protocol, address) = (protocol_of(port), address_of(port));
            let same = ports.range((protocol, port.port, "")..);
            let same = same.take_while(|(p, n, _)| (*p, *n) == (protocol, port.port));
            // One on all addresses excludes those on any.
            let same = same.filter(|(.., other)| address.is_empty() || *other == address);
            of.extend(same.map(|(p, n, taken)| Clique::Port(p, taken, *n)));
        }
        for term in &pod.shape.pod_anti_affinity {
            let here = term.namespaces.is_empty() && term.namespace_selector.is_none()
                || term.namespaces.iter().any(|name| **name == *pod.namespace);
            let own = selected(term.selector.as_ref(), &pod.shape.labels);
            if here && own && *term.topology_key == *HOSTNAME_LABEL {
                of.push(Clique::Term(pod.namespace, term));
            }
        }
        of.sort_unstable();
        of.dedup();
        for clique in &of {
            *sizes.entry(*clique).or_default() += count;
        }
        within.push(of);
    }
    let mut largest: Vec<(Clique<'a>, u64)> = sizes.into_iter().filter(|(_, n)| *n > 1).collect();
    largest.sort_by_key(|(clique, size)| (std::cmp::Reverse(*size), *clique));
    largest.truncate(MAX_CLIQUES);
    let cliques = largest.into_iter().map(|(clique, _)| clique);
    let cliques: IndexVec<CliqueIndex, Clique<'a>> = cliques.collect();
    let index = |clique: &Clique<'a>| cliques.index_of(|known| known == clique);
    let within = within
        .iter()
        .map(|of| of.iter().filter_map(index).collect())
        .collect();
    (cliques, within)
}

/// How many pods of each clique a room may take, where that is limited. `barred` are the cliques whose pods a pod that stays there
/// keeps off.
pub(super) fn count_most_in_room(
    cliques: &IndexVec<CliqueIndex, Clique<'_>>,
    labels: &Labels,
    barred: &IndexVec<CliqueIndex, bool>,
) -> IndexVec<CliqueIndex, Option<i128>> {
    let of = cliques.indexed();
    of.map(|(index, clique)| match clique {
        _ if !clique.holds_at(labels) => None,
        _ if barred[index] => Some(0),
        _ => Some(1),
    })
    .collect()
}
