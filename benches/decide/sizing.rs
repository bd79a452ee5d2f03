//! The `sizing` worlds: pods of many sizes, and pods for which there is one machine too few; a decision searches a plan for them that places more
//! pods or costs less.

use std::sync::Arc;

use pve_autoscaler::model::policy::InstanceType;
use pve_autoscaler::model::scheduling::{PodTerm, SpreadConstraint};

use super::worlds::{GI, HOSTNAME, MI, SeededRng, World, ZONE, selector, shape, spread, world};

/// No pods yet, and six types of a pool without limits; with `most`, of so many machines at most.
fn of_six_types(most: Option<u32>) -> World {
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
    world
}

/// Sixty pods of many sizes, eleven of which keep apart, on ten machines: one machine too few.
pub(super) fn apart() -> World {
    let mut world = of_six_types(Some(10));
    let mut rng = SeededRng(7);
    for pod in 0..60 {
        let milli = rng.of(&[250, 500, 500, 1000, 1000, 1500]);
        let mib = rng.of(&[512, 1024, 1024, 2048, 3072]);
        let mut shape = shape(&format!("app-{pod}"), milli, mib * MI);
        if pod < 11 {
            shape.labels.insert("apart".into(), "yes".into());
            shape.pod_anti_affinity.push(PodTerm {
                selector: Some(selector("apart", "yes")),
                topology_key: HOSTNAME.into(),
                ..PodTerm::default()
            });
        }
        world.pod(&format!("app-{pod:0>2}"), &Arc::new(shape), None);
    }
    world
}

/// Forty-three equal pods that are spread over three zones, on five machines of up to eleven of them: one machine too few.
pub(super) fn over_zones() -> World {
    let mut world = of_six_types(Some(5));
    let mut shape = shape("web", 700, 1400 * MI);
    shape.spread.push(SpreadConstraint {
        selector: Some(selector("app", "web")),
        ..spread(ZONE, "")
    });
    let shape = Arc::new(shape);
    for pod in 0..43 {
        world.pod(&format!("web-{pod:0>2}"), &shape, None);
    }
    world
}

/// Pods of many sizes, a fifth of them with rules about others, and no node yet, on six types of pools without
/// limits; with `most`, on so many machines at most, so that pods are left out by every decision.
pub(super) fn unequal(pods: usize, most: Option<u32>) -> World {
    let mut world = of_six_types(most);
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
