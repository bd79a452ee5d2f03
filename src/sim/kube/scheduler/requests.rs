//! What a pod asks for and what a node offers, as plain numbers.

use serde_json::{Map, Value};

use crate::model::quantity::Quantity;
use crate::model::resources::Resources;
use crate::model::scheduling::HostPort;
use crate::sim::kube::object::{list, map, text, truth};

/// One quantity of a resource: CPU in thousandths, everything else in whole units.
pub(super) fn amount(resource: &str, value: &Value) -> i64 {
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

fn set(total: &mut Resources, quantities: Option<&Map<String, Value>>) {
    for (name, value) in quantities.into_iter().flatten() {
        let amount = amount(name, value);
        match name.as_str() {
            "cpu" => total.cpu_milli = amount,
            "memory" => total.memory = amount,
            "ephemeral-storage" => total.ephemeral = amount,
            "pods" => total.pods = amount,
            other => drop(total.extended.insert(other.into(), amount)),
        }
    }
}

/// A map of quantities.
pub(in crate::sim::kube) fn amounts(quantities: Option<&Map<String, Value>>) -> Resources {
    let mut total = Resources::default();
    set(&mut total, quantities);
    total
}

/// What a pod needs on its node, by `component-helpers/resource.PodRequests`: containers and
/// sidecars together, but at least what the initialisation needs at its worst moment; then the
/// overhead. One pod counts as one of `pods`.
pub(in crate::sim::kube) fn pod_requests(pod: &Value) -> Resources {
    let mut total = Resources::default();
    let of = |container: &Value| amounts(map(container, "/resources/requests"));
    for container in list(pod, "/spec/containers") {
        total.add(&of(container));
    }
    let mut sidecars = Resources::default();
    let mut worst = Resources::default();
    for container in list(pod, "/spec/initContainers") {
        let own = of(container);
        if text(container, "/restartPolicy") == "Always" {
            total.add(&own);
            sidecars.add(&own);
            worst.raise_to(&sidecars);
        } else {
            let mut moment = own;
            moment.add(&sidecars);
            worst.raise_to(&moment);
        }
    }
    total.raise_to(&worst);
    set(&mut total, map(pod, "/spec/resources/requests"));
    total.add(&amounts(map(pod, "/spec/overhead")));
    total.pods = 1;
    total
}

/// The host ports of a pod.
pub(in crate::sim::kube) fn host_ports(pod: &Value) -> Vec<HostPort> {
    let mut ports = Vec::new();
    let host_network = truth(pod, "/spec/hostNetwork");
    let sidecars = list(pod, "/spec/initContainers")
        .iter()
        .filter(|c| text(c, "/restartPolicy") == "Always");
    for container in list(pod, "/spec/containers").iter().chain(sidecars) {
        for port in list(container, "/ports") {
            let own = port["hostPort"].as_i64().filter(|p| *p > 0);
            let own = own.or_else(|| port["containerPort"].as_i64().filter(|_| host_network));
            if let Some(number) = own.and_then(|number| i32::try_from(number).ok()) {
                ports.push(HostPort {
                    protocol: text(port, "/protocol").into(),
                    ip: text(port, "/hostIP").into(),
                    port: number,
                });
            }
        }
    }
    ports
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
        assert_eq!(total.cpu_milli, 2_350);
        assert_eq!(total.memory, 1 << 20);
        assert_eq!(total.pods, 1);
    }
}
