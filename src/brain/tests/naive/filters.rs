//! What a node alone decides: cordon, taints, selectors, ports, resources.

use super::Spot;
use model::label_list::LabelSet;
use model::scheduling::{
    Effect, HostPort, LabelSelector, Labels, NodeTerm, Operator, PodShape, Requirement, Taint,
};

/// A toleration of a taint, as the API documentation tells it.
pub(super) fn tolerates(shape: &PodShape, taint: &Taint) -> bool {
    shape.tolerations.iter().any(|toleration| {
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
    })
}

/// Whether all taints that keep pods away are tolerated.
pub(super) fn bears(shape: &PodShape, taints: &[Taint]) -> bool {
    let repels = |taint: &&Taint| taint.effect != Effect::PreferNoSchedule;
    taints
        .iter()
        .filter(repels)
        .all(|taint| tolerates(shape, taint))
}

pub(super) fn node(shape: &PodShape, spot: &Spot) -> Result<(), String> {
    let cordon = Taint {
        key: "node.kubernetes.io/unschedulable".into(),
        value: "".into(),
        effect: Effect::NoSchedule,
    };
    if spot.cordoned && !tolerates(shape, &cordon) {
        return Err("cordoned".to_owned());
    }
    if !bears(shape, &spot.taints) {
        return Err(format!("a taint of {:?}", spot.taints));
    }
    if !chosen(shape, &spot.name, &spot.labels) {
        return Err("node selector or affinity".to_owned());
    }
    Ok(())
}

/// `nodeSelector` and required node affinity.
pub(super) fn chosen(shape: &PodShape, name: &str, labels: &Labels) -> bool {
    for (key, value) in &shape.node_selector {
        if labels.get(key) != Some(value) {
            return false;
        }
    }
    match &shape.node_affinity {
        None => true,
        Some(terms) => one_of(terms, name, labels),
    }
}

/// Terms are OR-ed, an empty term matches nothing.
pub(super) fn one_of(terms: &[NodeTerm], name: &str, labels: &Labels) -> bool {
    for term in terms {
        let mut all = !(term.expressions.is_empty() && term.fields.is_empty());
        for wanted in &term.expressions {
            all &= satisfied(wanted, labels.get(&wanted.key).map(AsRef::as_ref));
        }
        for wanted in &term.fields {
            all &= &*wanted.key == "metadata.name" && satisfied(wanted, Some(name));
        }
        if all {
            return true;
        }
    }
    false
}

fn satisfied(wanted: &Requirement, value: Option<&str>) -> bool {
    let values: Vec<&str> = wanted.values.iter().map(AsRef::as_ref).collect();
    match (wanted.operator, value) {
        (Operator::In, Some(value)) => values.contains(&value),
        (Operator::NotIn, Some(value)) => !values.contains(&value),
        (Operator::Exists, Some(_)) | (Operator::NotIn | Operator::DoesNotExist, None) => true,
        (Operator::Gt, Some(value)) => numbers(value, &values).is_some_and(|(a, b)| a > b),
        (Operator::Lt, Some(value)) => numbers(value, &values).is_some_and(|(a, b)| a < b),
        _ => false,
    }
}

fn numbers(value: &str, values: &[&str]) -> Option<(i64, i64)> {
    match values {
        [bound] => Some((value.parse().ok()?, bound.parse().ok()?)),
        _ => None,
    }
}

/// A label selector; none selects nothing.
pub(super) fn selects(selector: Option<&LabelSelector>, labels: &impl LabelSet) -> bool {
    let Some(selector) = selector else {
        return false;
    };
    for (key, value) in &selector.labels {
        if labels.value(key) != Some(value) {
            return false;
        }
    }
    for wanted in &selector.expressions {
        if !satisfied(wanted, labels.value(&wanted.key).map(AsRef::as_ref)) {
            return false;
        }
    }
    true
}

/// Host ports and resources beside all that is there.
pub(super) fn room(shape: &PodShape, spot: &Spot) -> Result<(), String> {
    for port in &shape.host_ports {
        for guest in &spot.guests {
            if let Some(other) = guest.shape.host_ports.iter().find(|o| clash(port, o)) {
                return Err(format!("port {} is that of {}", other.port, guest.key));
            }
        }
    }
    let slots = i128::from(spot.offers.pods);
    if spot.guests.len() as i128 + 1 > slots {
        return Err(format!("{} of {slots} pods", spot.guests.len()));
    }
    let mut names: Vec<&str> = vec!["cpu", "memory", "ephemeral-storage"];
    names.extend(shape.requests.extended.keys().map(AsRef::as_ref));
    for name in names {
        let asked = i128::from(shape.requests.get(name));
        let offered = i128::from(spot.offers.get(name));
        let mut used = 0i128;
        for guest in &spot.guests {
            used += i128::from(guest.shape.requests.get(name)).max(0);
        }
        if asked > 0 && used + asked > offered {
            return Err(format!("{name}: {asked} more than {used} of {offered}"));
        }
    }
    Ok(())
}

fn clash(one: &HostPort, other: &HostPort) -> bool {
    let everywhere = |port: &HostPort| port.ip.is_empty() || &*port.ip == "0.0.0.0";
    let address = one.ip == other.ip || everywhere(one) || everywhere(other);
    let protocol = |port: &HostPort| {
        if port.protocol.is_empty() {
            "TCP".to_owned()
        } else {
            port.protocol.to_string()
        }
    };
    one.port == other.port && protocol(one) == protocol(other) && address
}
