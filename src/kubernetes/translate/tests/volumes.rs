//! What volumes offer that are free, and what claims without one ask.

use std::sync::Arc;

use serde_json::{Value, json};

use super::read;
use crate::kubernetes::intern::Interner;
use crate::kubernetes::translate::{
    ObjectReader, claim, csi_driver, persistent_volume, storage_capacity,
};
use crate::model::cluster::{ClaimRequest, Free, ObjectKey};

fn offered(change: impl FnOnce(&mut Value)) -> (Option<Arc<Free>>, Vec<String>) {
    let mut object = json!({
        "metadata": { "name": "v", "labels": { "tier": "gold" } },
        "spec": {
            "capacity": { "storage": "10Gi" }, "accessModes": ["ReadWriteOnce"], "volumeMode": "Block",
            "storageClassName": "local", "volumeAttributesClassName": "swift",
        },
        "status": { "phase": "Available" },
    });
    change(&mut object);
    let mut interner = Interner::default();
    let mut reader = ObjectReader::new(&mut interner);
    let (_, view) = persistent_volume(&mut reader, &read(object)).expect("a volume");
    (view.free, reader.problems)
}

fn asked(change: impl FnOnce(&mut Value)) -> (Option<Arc<ClaimRequest>>, Vec<String>) {
    let mut object = json!({
        "metadata": { "name": "c", "namespace": "n", "uid": "u" },
        "spec": {
            "resources": { "requests": { "storage": "5Gi" } }, "accessModes": ["ReadWriteOnce"],
            "selector": { "matchLabels": { "tier": "gold" } },
        },
        "status": { "phase": "Pending" },
    });
    change(&mut object);
    let mut interner = Interner::default();
    let mut reader = ObjectReader::new(&mut interner);
    let (_, view) = claim(&mut reader, &read(object)).expect("a claim");
    (view.asks, reader.problems)
}

#[test]
fn a_free_volume_says_what_it_offers() {
    let (free, problems) = offered(|_| {});
    let free = free.expect("it is free");
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!((free.storage, &*free.class), (10 << 30, "local"));
    assert!(free.block && free.available && free.claim.is_none());
    assert_eq!((free.labels.len(), &*free.attributes), (1, "swift"));
    let old = "volume.beta.kubernetes.io/storage-class";
    let (free, _) = offered(|object| object["metadata"]["annotations"] = json!({ old: "older" }));
    assert_eq!(
        free.map(|free| free.class.clone()).as_deref(),
        Some("older")
    );
}

#[test]
fn a_volume_that_is_bound_or_was_offers_nothing_unless_a_person_keeps_it() {
    for phase in ["Bound", "Released", "Failed"] {
        let (free, _) = offered(|object| {
            object["status"]["phase"] = phase.into();
            object["spec"]["claimRef"] = json!({ "namespace": "n", "name": "c", "uid": "u" });
        });
        assert_eq!(free, None, "{phase}");
        let (free, _) = offered(|object| {
            object["status"]["phase"] = phase.into();
            object["spec"]["claimRef"] = json!({ "namespace": "n", "name": "c" });
        });
        let free = free.expect("it is kept");
        assert_eq!(free.claim, Some(ObjectKey::new("n", "c")));
        assert!(!free.available && free.claim_uid.is_empty());
    }
    let (free, _) = offered(|object| object["status"] = json!({}));
    assert!(free.is_some_and(|free| !free.available));
}

#[test]
fn a_claim_without_a_volume_says_what_it_asks() {
    let (asks, problems) = asked(|_| {});
    let asks = asks.expect("it asks");
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(
        (asks.storage, &*asks.uid, asks.block),
        (5 << 30, "u", false)
    );
    assert!(asks.selector.is_some() && asks.modes.len() == 1);
    let (asks, _) = asked(|object| object["spec"]["volumeName"] = "v".into());
    assert_eq!(asks, None);
}

#[test]
fn sizes_that_cannot_be_read_are_told_and_taken_for_the_worst() {
    let size =
        |object: &mut Value| object["spec"]["resources"]["requests"]["storage"] = "much".into();
    let (asks, problems) = asked(size);
    assert_eq!(asks.map(|asks| asks.storage), Some(i64::MAX));
    assert_eq!(problems.len(), 1);
    let (free, problems) = offered(|object| object["spec"]["capacity"]["storage"] = "much".into());
    assert_eq!(free.map(|free| free.storage), Some(0));
    assert_eq!(problems.len(), 1);
    // What is absent is none.
    let (asks, problems) = asked(|object| object["spec"]["resources"] = Value::Null);
    assert_eq!(asks.map(|asks| asks.storage), Some(0));
    assert!(problems.is_empty());
}

#[test]
fn what_a_driver_has_free() {
    let mut interner = Interner::default();
    let mut reader = ObjectReader::new(&mut interner);
    let driver = |spec: Value| json!({ "metadata": { "name": "csi" }, "spec": spec });
    for (spec, publishes) in [
        (json!({ "storageCapacity": true }), true),
        (json!({ "storageCapacity": false }), false),
        (json!({}), false),
    ] {
        let (name, view) = csi_driver(&mut reader, &read(driver(spec))).expect("a driver");
        assert_eq!((&*name, view), ("csi", publishes));
    }
    let free = |object: Value| {
        let mut interner = Interner::default();
        let mut reader = ObjectReader::new(&mut interner);
        let mut object = object;
        object["metadata"] = json!({ "name": "csisc-1", "namespace": "csi-proxmox" });
        let (_, view) = storage_capacity(&mut reader, &read(object)).expect("it has a name");
        (view, reader.problems)
    };
    let (view, problems) = free(json!({
        "storageClassName": "lvm", "capacity": "100Gi", "maximumVolumeSize": 1024,
        "nodeTopology": { "matchLabels": { "topology.kubernetes.io/zone": "pve1" } },
    }));
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!((&*view.class, view.largest), ("lvm", Some(1024)));
    assert!(view.nodes.is_some_and(|nodes| nodes.labels.len() == 1));
    let (view, _) = free(json!({ "storageClassName": "lvm", "capacity": "1Gi" }));
    assert_eq!((view.nodes, view.largest), (None, Some(1 << 30)));
    let (view, problems) = free(json!({ "storageClassName": "lvm", "capacity": "much" }));
    assert_eq!((view.largest, problems.len()), (None, 1));
}
