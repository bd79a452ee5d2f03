//! What a node alone decides: cordon, taints, selectors, ports, resources.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::cluster::ObjectKey;
use model::scheduling::{
    Effect, HostPort, LabelSelector, NodeTerm, Operator, PodShape, Requirement, Taint, Toleration,
};

use crate::{No, NodeInfo, PodInfo};

/// Whether a toleration is one of a taint, as the API documentation tells it.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let key = match &toleration.key {
        None => toleration.exists,
        Some(key) => *key == taint.key,
    };
    let value = toleration.exists || toleration.value == taint.value;
    let effect = match toleration.effect {
        None => true,
        Some(effect) => effect == taint.effect,
    };
    key && value && effect
}

/// The first taint with one of these effects that a pod does not tolerate.
pub fn unbearable<'t>(
    shape: &PodShape,
    taints: &'t [Taint],
    effects: &[Effect],
) -> Option<&'t Taint> {
    let borne = |taint: &Taint| shape.tolerations.iter().any(|one| tolerates(one, taint));
    taints
        .iter()
        .find(|taint| effects.contains(&taint.effect) && !borne(taint))
}

/// How many taints a pod rather avoids (`PreferNoSchedule`) and does not tolerate.
pub fn avoided(shape: &PodShape, taints: &[Taint]) -> usize {
    let borne = |taint: &Taint| shape.tolerations.iter().any(|one| tolerates(one, taint));
    let soft = taints
        .iter()
        .filter(|taint| taint.effect == Effect::PreferNoSchedule);
    soft.filter(|taint| !borne(taint)).count()
}

/// Whether all taints that keep new pods away are tolerated.
pub fn bears(shape: &PodShape, taints: &[Taint]) -> bool {
    repelling(shape, taints).is_none()
}

fn repelling<'t>(shape: &PodShape, taints: &'t [Taint]) -> Option<&'t Taint> {
    unbearable(shape, taints, &[Effect::NoSchedule, Effect::NoExecute])
}

/// Cordon, taints, `nodeSelector` and required node affinity.
pub fn welcome(shape: &PodShape, spot: &NodeInfo) -> Result<(), No> {
    let cordon = Taint {
        key: "node.kubernetes.io/unschedulable".into(),
        value: "".into(),
        effect: Effect::NoSchedule,
    };
    if spot.cordoned && !bears(shape, &[cordon]) {
        return Err(No::firm("node(s) were unschedulable", ""));
    }
    if let Some(taint) = repelling(shape, &spot.taints) {
        let about = format!("{}={}", taint.key, taint.value);
        return Err(No::firm("node(s) had untolerated taint(s)", &about));
    }
    if !chosen(shape, spot) {
        let said = "node(s) didn't match Pod's node affinity/selector";
        return Err(No::firm(said, ""));
    }
    Ok(())
}

/// `nodeSelector` and required node affinity.
pub fn chosen(shape: &PodShape, spot: &NodeInfo) -> bool {
    for (key, value) in &shape.node_selector {
        if spot.labels.get(key) != Some(value) {
            return false;
        }
    }
    match &shape.node_affinity {
        None => true,
        Some(terms) => meets_one(terms, spot),
    }
}

/// The nodes that a pod's affinity names, where each of its terms names some.
pub(crate) fn named(shape: &PodShape) -> Option<BTreeSet<&Arc<str>>> {
    let terms = shape
        .node_affinity
        .as_ref()
        .filter(|terms| !terms.is_empty())?;
    let mut all = BTreeSet::new();
    for term in terms {
        let mut lists = term
            .fields
            .iter()
            .filter(|wanted| &*wanted.key == "metadata.name" && wanted.operator == Operator::In);
        let mut names: Vec<&Arc<str>> = lists.next()?.values.iter().collect();
        lists.for_each(|more| names.retain(|name| more.values.contains(name)));
        all.extend(names);
    }
    Some(all)
}

/// Terms are OR-ed, an empty term matches nothing.
pub fn meets_one(terms: &[NodeTerm], spot: &NodeInfo) -> bool {
    for term in terms {
        let mut all = !(term.expressions.is_empty() && term.fields.is_empty());
        for wanted in &term.expressions {
            all &= satisfied(wanted, spot.labels.get(&wanted.key).map(AsRef::as_ref));
        }
        for wanted in &term.fields {
            all &= &*wanted.key == "metadata.name" && satisfied(wanted, Some(&spot.name));
        }
        if all {
            return true;
        }
    }
    false
}

fn satisfied(wanted: &Requirement, value: Option<&str>) -> bool {
    let listed = |value: &str| wanted.values.iter().any(|one| **one == *value);
    match (wanted.operator, value) {
        (Operator::In, Some(value)) => listed(value),
        (Operator::NotIn, Some(value)) => !listed(value),
        (Operator::Exists, Some(_)) | (Operator::NotIn | Operator::DoesNotExist, None) => true,
        (Operator::Gt, Some(value)) => numbers(value, &wanted.values).is_some_and(|(a, b)| a > b),
        (Operator::Lt, Some(value)) => numbers(value, &wanted.values).is_some_and(|(a, b)| a < b),
        _ => false,
    }
}

fn numbers(value: &str, values: &[Arc<str>]) -> Option<(i64, i64)> {
    match values {
        [bound] => Some((value.parse().ok()?, bound.parse().ok()?)),
        _ => None,
    }
}

/// Whether a label selector takes labels in; none takes in nothing, an empty one everything.
pub fn selects<'l>(
    selector: Option<&LabelSelector>,
    label: impl Fn(&str) -> Option<&'l str>,
) -> bool {
    let Some(selector) = selector else {
        return false;
    };
    for (key, value) in &selector.labels {
        if label(key) != Some(&**value) {
            return false;
        }
    }
    for wanted in &selector.expressions {
        if !satisfied(wanted, label(&wanted.key)) {
            return false;
        }
    }
    true
}

/// Host ports and resources beside all that is there.
pub fn room(shape: &PodShape, spot: &NodeInfo) -> Result<(), No> {
    if let Some(guest) = user(shape, spot, |port| port.port != 0) {
        let said = "node(s) didn't have free ports for the requested pod ports";
        return Err(No::soft(said, guest));
    }
    resources(shape, spot)
}

/// Who has one of a pod's disks that a node's pods do not share; they are written as ports with the number 0.
pub(crate) fn disk_user<'s>(shape: &PodShape, spot: &'s NodeInfo) -> Option<&'s ObjectKey> {
    user(shape, spot, |port| port.port == 0)
}

fn user<'s>(
    shape: &PodShape,
    spot: &'s NodeInfo,
    asked: impl Fn(&HostPort) -> bool,
) -> Option<&'s ObjectKey> {
    let ports: Vec<&HostPort> = shape.host_ports.iter().filter(|one| asked(one)).collect();
    let taken = |guest: &&PodInfo| {
        let mut theirs = guest.shape.host_ports.iter();
        theirs.any(|other| ports.iter().any(|port| clash(port, other)))
    };
    let mut guests = spot.pods.iter().filter(|_| !ports.is_empty());
    guests.find(taken).map(|guest| &guest.key)
}

/// Every pod takes a slot of `pods`; of all else, nothing fits anywhere.
fn resources(shape: &PodShape, spot: &NodeInfo) -> Result<(), No> {
    let mut said = Vec::new();
    let mut beyond = false;
    let mut compare = |resource: &str, asked: i128, used: i128| {
        let offered = i128::from(spot.offers.get(resource));
        if asked > 0 && used + asked > offered {
            beyond |= asked > offered && resource != "pods";
            said.push(match resource {
                "pods" => "Too many pods".into(),
                other => format!("Insufficient {other}").into(),
            });
        }
    };
    compare("pods", 1, spot.pods.len() as i128);
    let extended = shape.requests.extended.keys().map(AsRef::as_ref);
    for name in ["cpu", "memory", "ephemeral-storage"]
        .into_iter()
        .chain(extended)
    {
        compare(name, shape.requests.get(name).into(), spot.used(name));
    }
    if said.is_empty() {
        return Ok(());
    }
    Err(No {
        said,
        // Not even the empty node has enough.
        preemptible: !beyond,
        about: String::new(),
    })
}

impl NodeInfo {
    /// What the pods on it ask for of a resource.
    pub fn used(&self, resource: &str) -> i128 {
        let asked = self
            .pods
            .iter()
            .map(|guest| guest.shape.requests.get(resource));
        asked.map(|asked| i128::from(asked).max(0)).sum()
    }
}

fn clash(one: &HostPort, other: &HostPort) -> bool {
    let everywhere = |port: &HostPort| port.ip.is_empty() || &*port.ip == "0.0.0.0";
    let address = one.ip == other.ip || everywhere(one) || everywhere(other);
    let protocol = |port: &HostPort| match &*port.protocol {
        "" => "TCP".to_owned(),
        named => named.to_owned(),
    };
    one.port == other.port && protocol(one) == protocol(other) && address
}
