//! The `sizing` worlds: pods of many sizes, for which a decision searches a plan that places more pods or costs less.

use std::sync::Arc;

use pve_autoscaler::model::policy::InstanceType;
use pve_autoscaler::model::scheduling::{PodTerm, SpreadConstraint};

use super::worlds::{GI, HOSTNAME, MI, SeededRng, World, ZONE, selector, shape, spread, world};

/// Pods of many sizes, a fifth of them with rules about others, and no node yet, on six types of pools without
/// limits; with `most`, on so many machines at most, so that pods are left out by every decision.
pub(super) fn unequal(pods: usize, most: Option<u32>) -> World {
    let types = [(2, 4), (4, 8), (8, 16), (2, 8), (4, 16), (4, 4)].map(|(cores, gib)| {
        let kind = InstanceType {
            cores,
            memory: gib * GI,
            ..InstanceType::default()
        };
        (format!("type-{cores}-{gib}"), kind)
    });
    let mut world = world(types.into(), 110);
    if let Some(most) = most {
        world.policy.pools.get_mut("pool").expect("the pool").max = most;
    }
    let mut rng = SeededRng(7);
    let (mut made, mut group) = (0, 0);
    while made < pods {
        let app = format!("app-{group}");
        let milli = rng.of(&[100, 250, 500, 500, 1000, 1000, 1500, 2000, 3000]);
        let mib = rng.of(&[128, 256, 512, 1024, 1024, 2048, 3072, 4096]);
        let mut shape = shape(&app, milli, mib * MI);
        match rng.below(15) {
            0 => shape.spread.push(SpreadConstraint {
                selector: Some(selector("app", &app)),
                ..spread(ZONE, "")
            }),
            1 => shape.pod_anti_affinity.push(PodTerm {
                selector: Some(selector("app", &app)),
                topology_key: HOSTNAME.into(),
                ..PodTerm::default()
            }),
            2 => shape.pod_affinity.push(PodTerm {
                selector: Some(selector("app", &format!("app-{}", group / 2))),
                topology_key: HOSTNAME.into(),
                ..PodTerm::default()
            }),
            _ => {}
        }
        let shape = Arc::new(shape);
        for n in 0..(1 + rng.below(2 + pods / 20)).min(pods - made) {
            world.pod(&format!("{app}-{n:0>4}"), &shape, None);
            made += 1;
        }
        group += 1;
    }
    world
}
