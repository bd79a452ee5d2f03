//! The `tenant` worlds: pods of one tenant whose constraints cost more than a decision may spend, among others' that
//! wait.

use std::sync::Arc;

use pve_autoscaler::model::decision::Decision;
use pve_autoscaler::model::scheduling::{LabelSelector, Operator, PodTerm, Requirement};

use super::worlds::{GI, HOSTNAME, World, large, shape};

/// The namespace of the tenant.
const TENANT: &str = "tenant";
/// Values of each selector.
const VALUES: usize = 30;
/// Nodes of the cluster, with 30 pods each.
const NODES: usize = 100;
/// Pods of others that wait and need machines.
const OTHERS: usize = 200;

/// A cluster at work, pods of others that wait, and so many of the tenant, each with so many anti-affinity terms
/// against everybody, no two alike.
pub(super) fn hostile(pods: usize, terms: usize) -> World {
    let mut world = large(NODES);
    let other = Arc::new(shape("other", 4_000, GI));
    for n in 0..OTHERS {
        world.pod(&format!("other-{n}"), &other, None);
    }
    let values: Vec<Arc<str>> = (0..VALUES).map(|value| value.to_string().into()).collect();
    for n in 0..pods {
        let name = format!("averse-{n}");
        let mut shape = shape(&name, 500, GI);
        shape.pod_anti_affinity = (0..terms)
            .map(|term| PodTerm {
                selector: Some(LabelSelector {
                    expressions: vec![Requirement {
                        key: format!("{name}-{term}").into(),
                        operator: Operator::NotIn,
                        values: values.clone(),
                    }],
                    ..LabelSelector::default()
                }),
                topology_key: HOSTNAME.into(),
                namespace_selector: Some(LabelSelector::default()),
                ..PodTerm::default()
            })
            .collect();
        world.pod_in(TENANT.into(), &name, &Arc::new(shape), None);
    }
    world
}

/// Pods of others that the decision finds no place for.
pub(super) fn others_without(decision: &Decision) -> usize {
    let pods = decision.report.pods.iter();
    pods.filter(|(key, verdict)| !verdict.is_placed() && &*key.namespace != TENANT)
        .count()
}
