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

use std::fmt;
use std::sync::Arc;

use model::resources::Resources;
use model::scheduling::{HostPort, Labels, PodShape, Taint};

use crate::words;

/// The name and host-name label of a node that has no name yet. No real one has these characters,
/// so that no selector for a certain host can match it.
pub(crate) const NEW: &str = "<new>";

/// What a filter reads of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// The node's name, [`NEW`] for one that has none yet.
    pub(crate) name: &'a str,
    /// Labels.
    pub(crate) labels: &'a Labels,
    /// Taints that count.
    pub(crate) taints: &'a [Taint],
    /// Cordoned.
    pub(crate) unschedulable: bool,
}

/// Why a pod does not fit, in the order the filters are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// The node is cordoned.
    Cordoned,
    /// A taint is not tolerated.
    Taint(Taint, bool),
    /// `nodeSelector`.
    Selector(Arc<str>, Arc<str>),
    /// Required node affinity, with its terms in words.
    Affinity(String),
    /// A volume.
    Volume(String),
    /// A host port.
    Port(HostPort),
    /// A resource, with what is asked and what is there.
    Lacks(Arc<str>, i64, i64),
    /// Other pods: affinity, anti-affinity, spread.
    Others(String),
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misfit::Cordoned => write!(f, "the node is cordoned"),
            Misfit::Taint(taint, compared) => {
                write!(f, "does not tolerate the taint {}", taint.key)?;
                if !taint.value.is_empty() {
                    write!(f, "={}", taint.value)?;
                }
                write!(f, ":{:?}", taint.effect)?;
                if *compared {
                    let gate = "TaintTolerationComparisonOperators";
                    write!(
                        f,
                        "; its toleration compares numbers, which needs the feature gate {gate}"
                    )?;
                }
                Ok(())
            }
            Misfit::Selector(key, value) => write!(f, "node selector {key}={value} does not match"),
            Misfit::Affinity(terms) => write!(f, "node affinity does not match: {terms}"),
            Misfit::Volume(why) | Misfit::Others(why) => write!(f, "{why}"),
            Misfit::Port(disk) if disk.port == 0 => {
                write!(f, "another pod of the node has {}", disk.protocol)
            }
            Misfit::Port(port) => write!(f, "host port {}/{} is taken", port.port, port.protocol),
            Misfit::Lacks(resource, asked, free) => write!(
                f,
                "{resource}: asks {}, a node offers {} after DaemonSets",
                words::amount(resource, *asked),
                words::amount(resource, *free)
            ),
        }
    }
}

impl Misfit {
    /// The words for a node there is; [`fmt::Display`] has those for one that could be made.
    pub(crate) fn here(&self) -> String {
        match self {
            Misfit::Lacks(resource, asked, free) => format!(
                "{resource}: asks {}, {} are free",
                words::amount(resource, *asked),
                words::amount(resource, *free)
            ),
            other => other.to_string(),
        }
    }
}

/// The first filter that keeps a pod of this shape off a node whatever runs there.
pub(crate) fn misfit(shape: &PodShape, place: Place<'_>) -> Option<Misfit> {
    if place.unschedulable && !taints::bears_cordon(&shape.tolerations) {
        return Some(Misfit::Cordoned);
    }
    if let Some(taint) = taints::untolerated(place.taints, &shape.tolerations) {
        let compared = shape.compared_taints.contains(&taint.key);
        return Some(Misfit::Taint(taint.clone(), compared));
    }
    if let Some((key, value)) = shape
        .node_selector
        .iter()
        .find(|(key, value)| place.labels.get(*key) != Some(*value))
    {
        return Some(Misfit::Selector(key.clone(), value.clone()));
    }
    let terms = shape.node_affinity.as_ref()?;
    if selector::any_term(terms, place.name, place.labels) {
        return None;
    }
    let words: Vec<String> = terms
        .iter()
        .map(|term| {
            let all: Vec<String> = term
                .expressions
                .iter()
                .chain(&term.fields)
                .map(selector::words)
                .collect();
            all.join(" and ")
        })
        .collect();
    Some(Misfit::Affinity(words.join(", or ")))
}

/// The first resource or port that does not fit.
pub(crate) fn crowded(shape: &PodShape, free: &Resources, ports: &[HostPort]) -> Option<Misfit> {
    if let Some(port) = ports::taken(&shape.host_ports, ports) {
        return Some(Misfit::Port(port.clone()));
    }
    if free.pods < 1 {
        return Some(Misfit::Lacks("pods".into(), 1, free.pods));
    }
    shape
        .requests
        .lacking(free)
        .next()
        .map(|lack| Misfit::Lacks(lack.resource.into(), lack.asked, lack.free))
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
