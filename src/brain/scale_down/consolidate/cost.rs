//! What a node costs, and what it costs to move its pods.

use crate::constraints::shape::Keyed;
use crate::observed::view::MachineView;
use crate::simulation::offer;
use model::policy::Policy;

/// One eviction. In these units a deletion cost counts once and a priority four times (Karpenter's
/// `1 + deletion-cost / 2^27 + priority / 2^25`), so that no fraction is ever needed.
const EVICTION_COST: i128 = 1 << 27;
/// The cost of a pod is clamped to ±10 evictions.
const MAX_COST: i128 = 10 * EVICTION_COST;
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The eviction cost of one pod, in parts of [`EVICTION_COST`].
pub(crate) fn of_pod(pod: &model::cluster::Pod) -> i128 {
    let deletion = pod
        .shape
        .annotations
        .get(DELETION_COST)
        .and_then(|text| text.parse::<i32>().ok())
        .unwrap_or(0);
    let cost = EVICTION_COST + i128::from(deletion) + 4 * i128::from(pod.shape.priority);
    cost.clamp(-MAX_COST, MAX_COST)
}

/// The eviction cost of a node with these pods: a pod that is better gone counts nothing.
pub(crate) fn of_pods(pods: &[Keyed<'_>]) -> i128 {
    pods.iter()
        .filter(|(_, pod)| pod.deletion.is_none())
        .map(|(_, pod)| of_pod(pod).max(0))
        .sum()
}

/// The price of a node per eviction cost of its pods, times a thousand: how much is saved for what it costs to move them.
pub(crate) fn price_per_eviction(price: i64, cost: i128) -> i128 {
    // A thousandth of an eviction's worth is more than prices in millionths tell apart.
    i128::from(price.max(0)) * EVICTION_COST * 1000 / (EVICTION_COST + cost.max(0))
}

/// The price of a machine, by its type and its region; of one whose type is gone nothing is known.
pub(crate) fn price(policy: &Policy, machine: &MachineView<'_>) -> i64 {
    let price = machine.instance_type.map_or(0, offer::price_of_type);
    policy.price_in(&machine.seen.region, price)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::lab::lab;
    use model::cluster::{ObjectKey, Pod};

    fn pod(priority: i32, deletion: Option<&str>) -> Pod {
        let lab = lab().pod("web", 1, 1).shape("web", |shape| {
            shape.priority = priority;
            if let Some(cost) = deletion {
                shape.annotations.insert(DELETION_COST.into(), cost.into());
            }
        });
        lab.snapshot.cluster.pods[&ObjectKey::new("default", "web")].clone()
    }

    #[test]
    fn cn_35_deletion_costs_and_priorities_order_pods() {
        let plain = of_pod(&pod(0, None));
        assert_eq!(plain, EVICTION_COST);
        assert!(of_pod(&pod(0, Some("100"))) > plain);
        assert!(of_pod(&pod(0, Some("-100"))) < plain);
        assert!(of_pod(&pod(1, None)) > plain);
        assert!(of_pod(&pod(-1, None)) < plain);
        assert!(of_pod(&pod(0, Some("101"))) > of_pod(&pod(0, Some("100"))));
        assert_eq!(of_pod(&pod(0, Some("dear"))), plain, "no number is none");
        assert_eq!(of_pod(&pod(i32::MAX, Some("2147483647"))), MAX_COST);
        assert_eq!(of_pod(&pod(i32::MIN, Some("-2147483648"))), -MAX_COST);
    }

    #[test]
    fn the_price_by_the_evictions() {
        assert!(
            price_per_eviction(100, EVICTION_COST) > price_per_eviction(100, 2 * EVICTION_COST)
        );
        assert!(
            price_per_eviction(200, 2 * EVICTION_COST) > price_per_eviction(100, 2 * EVICTION_COST)
        );
        assert_eq!(price_per_eviction(100, 0), 100_000);
        assert!(price_per_eviction(i64::MAX, 0) > 0);
    }
}
