//! Claims and volumes in every state that a scheduler meets.

use serde_json::{Map, Value, json};

use super::rng::SeededRng;
use super::world::{DRIVER, HOSTNAME, Setting, ZONE};

/// A finalizer that keeps what is being deleted, until the world is cleared away.
pub(crate) const HOLD: &str = "test.pve-autoscaler.io/hold";

/// A driver that says what it has free.
const COUNTED: &str = "counted.example.com";

/// All claims and volumes of a world.
#[derive(Clone, Debug, Default)]
pub(crate) struct Storage {
    pub(crate) claims: Vec<Made>,
    pub(crate) volumes: Vec<Made>,
    pub(crate) attachments: Vec<Value>,
}

/// An object, the phase that it is then given, and whether its deletion is then begun.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) object: Value,
    pub(crate) phase: &'static str,
    pub(crate) deleting: bool,
}

/// The StorageClasses of all worlds.
pub(crate) fn classes() -> Vec<Value> {
    let class = |name: &str, provisioner: &str, mode: &str| {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode,
        })
    };
    let mut zonal = class("zonal", "example.com/made", "WaitForFirstConsumer");
    zonal["allowedTopologies"] = json!([
        {"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]},
        {"matchLabelExpressions": [{"key": "rack", "values": ["1"]}]},
    ]);
    vec![
        class("wait", DRIVER, "WaitForFirstConsumer"),
        class("now", "example.com/made", "Immediate"),
        class(
            "fixed",
            "kubernetes.io/no-provisioner",
            "WaitForFirstConsumer",
        ),
        class("counted", COUNTED, "WaitForFirstConsumer"),
        zonal,
    ]
}

/// A driver that says what it has free, and what it says: the same in all worlds.
pub(crate) fn published() -> Vec<Value> {
    let free = |name: &str, nodes: Value, amounts: Value| {
        let mut object = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
            "metadata": {"name": name, "namespace": "default"}, "storageClassName": "counted",
        });
        if !nodes.is_null() {
            object["nodeTopology"] = nodes;
        }
        for (key, amount) in amounts.as_object().into_iter().flatten() {
            object[key] = amount.clone();
        }
        object
    };
    vec![
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
            "metadata": {"name": COUNTED}, "spec": {"storageCapacity": true},
        }),
        free(
            "a",
            json!({"matchLabels": {ZONE: "a"}}),
            json!({"capacity": "1Gi"}),
        ),
        free(
            "b",
            json!({"matchExpressions": [
                {"key": ZONE, "operator": "In", "values": ["b"]},
                {"key": "rack", "operator": "NotIn", "values": ["1"]},
            ]}),
            json!({"capacity": "2Gi", "maximumVolumeSize": "4Gi"}),
        ),
        free("unknown", json!({"matchLabels": {ZONE: "c"}}), json!({})),
        free("nowhere", Value::Null, json!({"capacity": "1Ti"})),
    ]
}

/// Makes a claim for a pod, or finds one that another pod uses; returns its name.
pub(crate) fn claim(
    rng: &mut SeededRng,
    setting: &Setting<'_>,
    namespace: &str,
    name: &str,
    waits: bool,
    storage: &mut Storage,
) -> String {
    let others: Vec<String> = storage
        .claims
        .iter()
        .filter(|made| made.object["metadata"]["namespace"] == namespace)
        .filter_map(|made| Some(made.object["metadata"]["name"].as_str()?.to_owned()))
        .collect();
    if !others.is_empty() && rng.chance(30) {
        return rng.one(&others);
    }
    let mut claim = empty(rng, namespace, name);
    let kind = if waits { rng.number(0, 99) } else { 0 };
    match kind {
        0..=59 => bound(rng, setting, &mut claim, name, storage),
        60..=62 => claim.object["spec"]["storageClassName"] = json!("wait"),
        63..=66 => {
            let size = rng.one(&["1Gi", "3Gi", "4Gi", "5Gi"]);
            claim.object["spec"]["storageClassName"] = json!("counted");
            claim.object["spec"]["resources"]["requests"]["storage"] = json!(size);
        }
        67..=73 => claim.object["spec"]["storageClassName"] = json!("zonal"),
        74..=84 => waiting(rng, setting, &mut claim, name, storage),
        85..=87 => claim.object["spec"]["storageClassName"] = json!("now"),
        88..=89 => claim.object["spec"]["storageClassName"] = json!("missing"),
        // No class at all, and no default.
        90 => {}
        91..=92 => {
            claim.object["spec"]["storageClassName"] = json!("wait");
            let node = rng.one(setting.nodes);
            annotate(&mut claim, "volume.kubernetes.io/selected-node", &node);
        }
        93..=94 => {
            bound(rng, setting, &mut claim, name, storage);
            claim.deleting = true;
        }
        95..=96 => {
            bound(rng, setting, &mut claim, name, storage);
            claim.phase = "Lost";
        }
        // It names a volume, and the binding has not been done.
        97 => claim.object["spec"]["volumeName"] = json!(format!("{name}-later")),
        // Its volume is gone.
        98 => {
            bound(rng, setting, &mut claim, name, storage);
            storage.volumes.pop();
        }
        _ => return format!("{name}-missing"),
    }
    storage.claims.push(claim);
    name.to_owned()
}

fn empty(rng: &mut SeededRng, namespace: &str, name: &str) -> Made {
    let once = rng.chance(15);
    let mode = if once {
        "ReadWriteOncePod"
    } else {
        "ReadWriteOnce"
    };
    Made {
        object: json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace, "annotations": {}},
            "spec": {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}},
        }),
        phase: "Pending",
        deleting: false,
    }
}

fn annotate(claim: &mut Made, key: &str, value: &str) {
    claim.object["metadata"]["annotations"][key] = json!(value);
}

/// Binds a claim to a volume made for it.
fn bound(
    rng: &mut SeededRng,
    setting: &Setting<'_>,
    claim: &mut Made,
    name: &str,
    storage: &mut Storage,
) {
    claim.phase = "Bound";
    claim.object["spec"]["volumeName"] = json!(name);
    claim.object["spec"]["storageClassName"] = json!("wait");
    annotate(claim, "pv.kubernetes.io/bind-completed", "yes");
    let modes = claim.object["spec"]["accessModes"].clone();
    let mut volume = volume(rng, setting, name, modes);
    volume.object["spec"]["claimRef"] = json!({
        "namespace": claim.object["metadata"]["namespace"], "name": name,
    });
    storage.volumes.push(volume);
}

fn volume(rng: &mut SeededRng, setting: &Setting<'_>, name: &str, modes: Value) -> Made {
    let mut spec = Map::new();
    let mut labels = Map::new();
    let mut affinity = None;
    match rng.number(0, 9) {
        0..=5 => {
            // Some handles are of one volume under two names.
            let handle = rng.one(&[name, name, name, setting.prefix]);
            spec.insert(
                "csi".into(),
                json!({"driver": DRIVER, "volumeHandle": handle}),
            );
            if rng.chance(60) {
                affinity = Some(
                    json!({"key": ZONE, "operator": "In", "values": rng.some(&["a", "b", "c"], 2)}),
                );
            }
        }
        6 => {
            spec.insert("local".into(), json!({"path": "/mnt/one"}));
            affinity = Some(
                json!({"key": HOSTNAME, "operator": "In", "values": [rng.one(setting.nodes)]}),
            );
        }
        7 => {
            spec.insert("hostPath".into(), json!({"path": "/mnt/one"}));
        }
        _ => {
            spec.insert("nfs".into(), json!({"server": "nfs", "path": "/"}));
            let key = rng.one(&[
                ZONE,
                "topology.kubernetes.io/region",
                "failure-domain.beta.kubernetes.io/zone",
            ]);
            let value = rng.one(&["a", "b", "a__b", "r1"]);
            labels.insert(key.into(), json!(value));
        }
    }
    if let Some(requirement) = affinity {
        let terms = json!([{"matchExpressions": [requirement]}]);
        spec.insert(
            "nodeAffinity".into(),
            json!({"required": {"nodeSelectorTerms": terms}}),
        );
    }
    spec.insert("capacity".into(), json!({"storage": "1Gi"}));
    spec.insert("accessModes".into(), modes);
    spec.insert("storageClassName".into(), json!("wait"));
    Made {
        object: json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
        }),
        phase: "Bound",
        deleting: rng.chance(8),
    }
}

/// A claim that a volume made by a person may serve, and such volumes, most of them with something amiss.
fn waiting(
    rng: &mut SeededRng,
    setting: &Setting<'_>,
    claim: &mut Made,
    name: &str,
    storage: &mut Storage,
) {
    let class = rng.one(&["fixed", "fixed", "fixed", "wait", "zonal"]);
    let spec = &mut claim.object["spec"];
    spec["storageClassName"] = json!(class);
    spec["resources"]["requests"]["storage"] = json!(rng.one(&["1Gi", "1500Mi", "2Gi"]));
    if rng.chance(20) {
        spec["selector"] = json!({"matchLabels": {"tier": "gold"}});
    }
    if rng.chance(10) {
        spec["volumeMode"] = json!("Block");
    }
    for number in 0..rng.number(0, 3) {
        let volume = free(rng, setting, claim, &format!("{name}-free-{number}"));
        storage.volumes.push(volume);
    }
}

/// A volume that a claim may find, or not.
fn free(rng: &mut SeededRng, setting: &Setting<'_>, claim: &Made, name: &str) -> Made {
    let mut spec = Map::new();
    let zone = rng.some(&["a", "b", "c"], 2);
    let requirement = match rng.number(0, 9) {
        0..=3 => {
            Some(json!({"key": HOSTNAME, "operator": "In", "values": rng.some(setting.nodes, 2)}))
        }
        4..=7 => Some(json!({"key": ZONE, "operator": "In", "values": zone})),
        _ => None,
    };
    let source = if requirement.is_some() && rng.chance(50) {
        ("local", json!({"path": "/mnt/free"}))
    } else {
        ("nfs", json!({"server": "nfs", "path": "/"}))
    };
    spec.insert(source.0.into(), source.1);
    if let Some(requirement) = requirement {
        let terms = json!([{"matchExpressions": [requirement]}]);
        spec.insert(
            "nodeAffinity".into(),
            json!({"required": {"nodeSelectorTerms": terms}}),
        );
    }
    let asked = &claim.object["spec"];
    let modes = match rng.number(0, 9) {
        0 => json!(["ReadOnlyMany"]),
        1..=2 => json!(["ReadWriteOncePod"]),
        3..=5 => json!(["ReadWriteOnce", "ReadWriteMany"]),
        _ => asked["accessModes"].clone(),
    };
    spec.insert("accessModes".into(), modes);
    let size = rng.one(&["1Gi", "1400Mi", "2Gi", "3Gi"]);
    spec.insert("capacity".into(), json!({"storage": size}));
    let class = if rng.chance(90) {
        asked["storageClassName"].clone()
    } else {
        json!("wait")
    };
    spec.insert("storageClassName".into(), class);
    if rng.chance(12) {
        spec.insert("volumeMode".into(), json!("Block"));
    }
    if rng.chance(25) {
        let mut kept = json!({
            "namespace": claim.object["metadata"]["namespace"],
            "name": claim.object["metadata"]["name"],
        });
        match rng.number(0, 3) {
            0 => kept["uid"] = json!("of-an-earlier-claim"),
            1 => kept["name"] = json!(format!("{name}-other")),
            _ => {}
        }
        spec.insert("claimRef".into(), kept);
    }
    let tier = rng.one(&["gold", "gold", "lead"]);
    Made {
        object: json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": name, "labels": {"tier": tier}},
            "spec": spec,
        }),
        phase: rng.one(&[
            "Available",
            "Available",
            "Available",
            "Available",
            "Pending",
            "Released",
        ]),
        deleting: rng.chance(8),
    }
}

/// Volumes that are attached to a node, whether a pod there uses them or not.
pub(crate) fn attachments(rng: &mut SeededRng, setting: &Setting<'_>, storage: &mut Storage) {
    for made in &storage.volumes {
        let spec = &made.object["spec"];
        if spec.get("csi").is_none() || !rng.chance(30) {
            continue;
        }
        let volume = &made.object["metadata"]["name"];
        storage.attachments.push(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": {"name": volume},
            "spec": {
                "attacher": DRIVER, "nodeName": rng.one(setting.nodes),
                "source": {"persistentVolumeName": volume},
            },
        }));
    }
}
