//! What a pod asks for and what a node offers, as plain numbers.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::model::quantity::Quantity;
use crate::sim::kube::object::{list, map, text, truth};

/// Amounts by resource name: CPU in thousandths, everything else in whole units.
pub(in crate::sim::kube) type Amounts = BTreeMap<String, i64>;

/// One quantity of a resource.
pub(in crate::sim::kube) fn amount(resource: &str, value: &Value) -> i64 {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let quantity: Quantity = text.parse().unwrap_or_default();
    if resource == "cpu" {
        quantity.milli()
    } else {
        quantity.units()
    }
}

/// A map of quantities.
pub(in crate::sim::kube) fn amounts(quantities: Option<&Map<String, Value>>) -> Amounts {
    quantities
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), amount(name, value)))
        .collect()
}

fn add(into: &mut Amounts, more: &Amounts) {
    for (name, value) in more {
        let slot = into.entry(name.clone()).or_default();
        *slot = slot.saturating_add(*value);
    }
}

fn raise(into: &mut Amounts, other: &Amounts) {
    for (name, value) in other {
        let slot = into.entry(name.clone()).or_default();
        *slot = (*slot).max(*value);
    }
}

/// What a pod needs on its node, by `component-helpers/resource.PodRequests`: containers and
/// sidecars together, but at least what the initialisation needs at its worst moment; then the
/// overhead. One pod counts as one of `pods`.
pub(in crate::sim::kube) fn pod_requests(pod: &Value) -> Amounts {
    let mut total = Amounts::new();
    let of = |container: &Value| amounts(map(container, "/resources/requests"));
    for container in list(pod, "/spec/containers") {
        add(&mut total, &of(container));
    }
    let mut sidecars = Amounts::new();
    let mut worst = Amounts::new();
    for container in list(pod, "/spec/initContainers") {
        let own = of(container);
        if text(container, "/restartPolicy") == "Always" {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            raise(&mut worst, &sidecars);
        } else {
            let mut moment = own;
            add(&mut moment, &sidecars);
            raise(&mut worst, &moment);
        }
    }
    raise(&mut total, &worst);
    if let Some(whole) = map(pod, "/spec/resources/requests") {
        for (name, value) in amounts(Some(whole)) {
            total.insert(name, value);
        }
    }
    add(&mut total, &amounts(map(pod, "/spec/overhead")));
    total.insert("pods".to_owned(), 1);
    total
}

/// A port of the node that a pod takes: address, protocol, number.
pub(in crate::sim::kube) type HostPort = (String, String, i64);

/// The host ports of a pod.
pub(in crate::sim::kube) fn host_ports(pod: &Value) -> BTreeSet<HostPort> {
    let mut ports = BTreeSet::new();
    let host_network = truth(pod, "/spec/hostNetwork");
    let sidecars = list(pod, "/spec/initContainers")
        .iter()
        .filter(|c| text(c, "/restartPolicy") == "Always");
    for container in list(pod, "/spec/containers").iter().chain(sidecars) {
        for port in list(container, "/ports") {
            let own = port["hostPort"].as_i64().filter(|p| *p > 0);
            let number = own.or_else(|| {
                host_network
                    .then(|| port["containerPort"].as_i64())
                    .flatten()
            });
            let word = |at: &str, default: &str| match text(port, at) {
                "" => default.to_owned(),
                given => given.to_owned(),
            };
            if let Some(number) = number {
                ports.insert((word("/hostIP", "0.0.0.0"), word("/protocol", "TCP"), number));
            }
        }
    }
    ports
}

/// Whether two sets of host ports collide.
pub(in crate::sim::kube) fn ports_collide(
    one: &BTreeSet<HostPort>,
    other: &BTreeSet<HostPort>,
) -> bool {
    one.iter().any(|(ip, protocol, number)| {
        other.iter().any(|(ip2, protocol2, number2)| {
            number == number2
                && protocol == protocol2
                && (ip == ip2 || ip == "0.0.0.0" || ip2 == "0.0.0.0")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn initialisation_and_sidecars_count_as_upstream_counts_them() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let mut sidecar = container("300m");
        sidecar["restartPolicy"] = json!("Always");
        let pod = json!({"spec": {
            "containers": [container("500m"), container("250m")],
            "initContainers": [container("100m"), sidecar, container("2")],
            "overhead": {"cpu": "50m", "memory": "1Mi"},
        }});
        let total = pod_requests(&pod);
        assert_eq!(total.get("cpu"), Some(&2_350));
        assert_eq!(total.get("memory"), Some(&(1 << 20)));
        assert_eq!(total.get("pods"), Some(&1));
    }
}
