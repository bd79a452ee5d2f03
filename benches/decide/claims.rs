//! Pods of StatefulSets, of which no two are equal.

use std::sync::Arc;

use pve_autoscaler::model::cluster::{Claim, ObjectKey, StorageClass};
use pve_autoscaler::model::policy::InstanceType;
use pve_autoscaler::model::scheduling::Volume;

use crate::worlds::{GI, World, shape, world};

/// Pods of StatefulSets that wait: each with a claim and a label of its own, on types of one to sixteen cores.
pub(crate) fn stateful(pods: usize) -> World {
    let types = [1u32, 2, 4, 8, 16].map(|cores| {
        let kind = InstanceType {
            cores,
            memory: i64::from(cores) * 4 * GI,
            ..InstanceType::default()
        };
        (format!("type-{cores:0>4}"), kind)
    });
    let mut world = world(types.into(), 110);
    let class = StorageClass {
        provisioner: "csi.example".into(),
        wait_for_consumer: true,
        ..StorageClass::default()
    };
    let cluster = &mut world.snapshot.cluster;
    cluster.storage_classes.insert("fast".into(), class);
    for n in 0..pods {
        let claim = Claim {
            class: Some("fast".into()),
            ..Claim::default()
        };
        let (app, name) = (
            format!("db-{}", n % 20),
            format!("db-{}-{}", n % 20, n / 20),
        );
        let key = ObjectKey::new("default", format!("data-{name}"));
        world.snapshot.cluster.claims.insert(key.clone(), claim);
        let mut shape = shape(&app, 250, GI);
        let label = ("statefulset.kubernetes.io/pod-name", &*name);
        shape.labels.insert(label.0.into(), label.1.into());
        shape.volumes.push(Volume::Claim(key.name));
        world.pod(&name, &Arc::new(shape), None);
    }
    world
}
