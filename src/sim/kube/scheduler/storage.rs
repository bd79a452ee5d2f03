//! Namespaces and all that has to do with volumes, as the filters want them.

use std::collections::BTreeMap;
use std::sync::Arc;

use filters::ZONES;
use serde_json::Value;

use super::read::{each, given, node_terms, selector, strings, texts};
use super::requests::amount;
use crate::model::cluster::{
    Attachment, Claim, ClaimRequest, Cluster, Free, ObjectKey, PersistentVolume, StorageCapacity,
    StorageClass, ZoneLabel,
};
use crate::model::scheduling::{NodeTerm, Operator, Requirement};
use crate::sim::kube::object::{
    annotation, at, deleting, label, list, map, name, namespace, number, text, truth, uid,
};
use crate::sim::kube::resources::{
    CSICAPACITIES, CSIDRIVERS, CSINODES, NAMESPACES, PVCS, PVS, Res, STORAGECLASSES,
    VOLUMEATTACHMENTS,
};
use crate::sim::kube::store::State;

/// Namespaces and storage.
pub(super) fn cluster(state: &State) -> Cluster {
    fn all<K: Ord, V>(state: &State, res: Res, read: impl Fn(&Value) -> (K, V)) -> BTreeMap<K, V> {
        state.all(res).values().map(|object| read(object)).collect()
    }
    let key = |object: &Value| ObjectKey::new(namespace(object), name(object));
    Cluster {
        namespaces: all(state, NAMESPACES, |one| {
            (name(one).into(), texts(map(one, "/metadata/labels")))
        }),
        claims: all(state, PVCS, |one| (key(one), claim(one))),
        volumes: all(state, PVS, |one| (name(one).into(), persistent_volume(one))),
        storage_classes: all(state, STORAGECLASSES, |one| (name(one).into(), class(one))),
        csi_drivers: all(state, CSIDRIVERS, |one| {
            (name(one).into(), truth(one, "/spec/storageCapacity"))
        }),
        capacities: all(state, CSICAPACITIES, |one| (key(one), capacity(one))),
        attachments: all(state, VOLUMEATTACHMENTS, |one| {
            let attachment = Attachment {
                node: text(one, "/spec/nodeName").into(),
                volume: given(one, "/spec/source/persistentVolumeName"),
                driver: text(one, "/spec/attacher").into(),
            };
            (name(one).into(), attachment)
        }),
        ..Cluster::default()
    }
}

/// What a node can attach, by its CSINode.
pub(super) fn limits(state: &State, node: &str) -> BTreeMap<Arc<str>, i32> {
    let said = state.get(CSINODES, "", node).unwrap_or_default();
    let limit = |driver: &Value| {
        let count = number(driver, "/allocatable/count")?;
        Some((text(driver, "/name").into(), i32::try_from(count).ok()?))
    };
    list(&said, "/spec/drivers")
        .iter()
        .filter_map(limit)
        .collect()
}

fn bytes(object: &Value, path: &str) -> Option<i64> {
    let quantity = at(object, path).filter(|quantity| !quantity.is_null());
    quantity.map(|quantity| amount("storage", quantity))
}

/// The class of a claim or a volume: an annotation of old comes before the field.
fn class_of(object: &Value) -> Option<Arc<str>> {
    match annotation(object, "volume.beta.kubernetes.io/storage-class") {
        Some(class) => Some(class.into()).filter(|_| !class.is_empty()),
        None => given(object, "/spec/storageClassName"),
    }
}

fn attributes(object: &Value) -> Arc<str> {
    text(object, "/spec/volumeAttributesClassName").into()
}

fn block(object: &Value) -> bool {
    text(object, "/spec/volumeMode") == "Block"
}

/// UID of the object that controls another.
fn controller(object: &Value) -> Option<Arc<str>> {
    let owners = list(object, "/metadata/ownerReferences");
    let found = owners.iter().find(|owner| owner["controller"] == true)?;
    given(found, "/uid")
}

fn claim(claim: &Value) -> Claim {
    let modes = strings(claim, "/spec/accessModes");
    let volume = given(claim, "/spec/volumeName");
    let asks = || ClaimRequest {
        uid: uid(claim).into(),
        storage: bytes(claim, "/spec/resources/requests/storage").unwrap_or(0),
        modes: modes.clone(),
        block: block(claim),
        selector: selector(&claim["spec"]["selector"]),
        attributes: attributes(claim),
    };
    Claim {
        class: class_of(claim),
        bound: text(claim, "/status/phase") == "Bound",
        lost: text(claim, "/status/phase") == "Lost",
        deleting: deleting(claim),
        once_pod: modes.iter().any(|mode| &**mode == "ReadWriteOncePod"),
        selected_node: annotation(claim, "volume.kubernetes.io/selected-node").map(Arc::from),
        owner: controller(claim),
        asks: volume.is_none().then(|| Arc::new(asks())),
        volume,
    }
}

fn persistent_volume(volume: &Value) -> PersistentVolume {
    let source = |kind: &str| volume["spec"].get(kind).is_some();
    PersistentVolume {
        node_affinity: at(volume, "/spec/nodeAffinity/required").map(node_terms),
        zones: ZONES
            .iter()
            .filter_map(|(key, _)| zone(volume, key))
            .collect(),
        driver: given(volume, "/spec/csi/driver"),
        handle: given(volume, "/spec/csi/volumeHandle"),
        local: source("local") || source("hostPath"),
        deleting: deleting(volume),
        free: Some(Arc::new(free(volume))),
    }
}

/// Several zones stand in one label, with two underscores between them; where one of them is empty, it says nothing.
fn zone(volume: &Value, key: &str) -> Option<ZoneLabel> {
    let parts = label(volume, key)?.split("__").map(str::trim);
    let values: Vec<Arc<str>> = parts.map(Arc::from).collect();
    let whole = values.iter().all(|value| !value.is_empty());
    whole.then(|| ZoneLabel {
        key: key.into(),
        values,
    })
}

/// Whom a volume could be given to. kube-scheduler looks at all volumes, bound ones too: a claim of their name and
/// UID takes them.
fn free(volume: &Value) -> Free {
    let named = given(volume, "/spec/claimRef/name");
    Free {
        class: class_of(volume).unwrap_or_default(),
        storage: bytes(volume, "/spec/capacity/storage").unwrap_or(0),
        modes: strings(volume, "/spec/accessModes"),
        block: block(volume),
        labels: texts(map(volume, "/metadata/labels")),
        attributes: attributes(volume),
        claim: named.map(|name| ObjectKey::new(text(volume, "/spec/claimRef/namespace"), name)),
        claim_uid: text(volume, "/spec/claimRef/uid").into(),
        available: text(volume, "/status/phase") == "Available",
    }
}

fn class(class: &Value) -> StorageClass {
    let term = |term: &Value| NodeTerm {
        expressions: each(term, "/matchLabelExpressions", |wanted| Requirement {
            key: text(wanted, "/key").into(),
            operator: Operator::In,
            values: strings(wanted, "/values"),
        }),
        fields: Vec::new(),
    };
    StorageClass {
        provisioner: text(class, "/provisioner").into(),
        wait_for_consumer: text(class, "/volumeBindingMode") == "WaitForFirstConsumer",
        topologies: each(class, "/allowedTopologies", term),
        ..StorageClass::default()
    }
}

fn capacity(capacity: &Value) -> StorageCapacity {
    let largest = bytes(capacity, "/maximumVolumeSize");
    StorageCapacity {
        class: text(capacity, "/storageClassName").into(),
        nodes: selector(&capacity["nodeTopology"]),
        largest: largest.or_else(|| bytes(capacity, "/capacity")),
    }
}
