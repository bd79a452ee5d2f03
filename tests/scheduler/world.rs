//! Small worlds out of a seed: nodes, volumes, pods that run and pods that wait, as the objects that
//! are sent to the API server.

use serde_json::{Map, Value, json};

use super::pods;
use super::rng::{self, SeededRng, Words};
use super::volumes::{self, Storage};

/// What nodes are labelled with, besides their name.
pub(crate) const NODE_WORDS: &Words = &[
    (ZONE, &["a", "b", "c"]),
    ("topology.kubernetes.io/region", &["r1", "r2"]),
    ("disk", &["ssd", "hdd"]),
    ("kubernetes.io/arch", &["amd64", "arm64"]),
    ("rack", &["1", "2", "3", "4"]),
    ("size", &["01", "0", "2", "4", "8", "large"]),
];
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";
/// Taint keys; some of them have a meaning of their own to the scheduler.
pub(crate) const TAINTS: [&str; 4] = [
    "dedicated",
    "gpu",
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/not-ready",
];
pub(crate) const EFFECTS: [&str; 3] = ["NoSchedule", "NoExecute", "PreferNoSchedule"];
/// The namespaces of all worlds, with their labels.
pub(crate) const NAMESPACES: [(&str, &[(&str, &str)]); 3] = [
    ("blue", &[("team", "blue"), ("env", "prod")]),
    ("green", &[("team", "green"), ("env", "test")]),
    ("plain", &[]),
];
/// A CSI driver that some nodes have.
pub(crate) const DRIVER: &str = "csi.example.com";

/// One world. Names begin with `w` and its number, so that no two worlds share one.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) nodes: Vec<Value>,
    pub(crate) csi_nodes: Vec<Value>,
    pub(crate) storage: Storage,
    /// Pods that are bound already.
    pub(crate) bound: Vec<Bound>,
    /// Pods that wait.
    pub(crate) pending: Vec<Value>,
}

/// A pod on a node.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) pod: Value,
    /// Its deletion has begun and will not end by itself.
    pub(crate) terminating: bool,
    /// Its containers have ended.
    pub(crate) ended: bool,
}

/// What pods are made in.
#[derive(Debug)]
pub(crate) struct Setting<'a> {
    /// The beginning of all names.
    pub(crate) prefix: &'a str,
    /// Names of the nodes.
    pub(crate) nodes: &'a [String],
    /// All pods are of one namespace and mostly alike, so that what they want of each other bites.
    pub(crate) crowd: bool,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let rng = &mut SeededRng::new(seed);
        let prefix = format!("w{seed}");
        let count = rng.number(2, 8);
        let names: Vec<String> = (0..count).map(|i| format!("{prefix}-n{i}")).collect();
        let setting = Setting {
            prefix: &prefix,
            nodes: &names,
            crowd: rng.chance(40),
        };
        let nodes = names.iter().map(|name| node(rng, name)).collect();
        let csi_nodes = csi_nodes(rng, &names);
        let mut storage = Storage::default();
        let most = if setting.crowd { 18 } else { 12 };
        let bound = (0..rng.number(0, most))
            .map(|i| bound(rng, &setting, i, &mut storage))
            .collect();
        let pending = (0..rng.number(2, 8))
            .map(|i| {
                let name = format!("{prefix}-p{i}");
                pods::pending(rng, &setting, &name, &mut storage)
            })
            .collect();
        volumes::attachments(rng, &setting, &mut storage);
        World {
            seed,
            nodes,
            csi_nodes,
            storage,
            bound,
            pending,
        }
    }
}

fn node(rng: &mut SeededRng, name: &str) -> Value {
    let mut labels = rng::labels(rng, NODE_WORDS, 75);
    if rng.chance(97) {
        labels.insert(HOSTNAME.into(), json!(name));
    }
    let mut taints: Vec<Value> = Vec::new();
    for key in TAINTS {
        if rng.chance(6) {
            let value = rng.one(&["", "a", "b"]);
            taints.push(json!({"key": key, "value": value, "effect": rng.one(&EFFECTS)}));
        }
    }
    let mut allocatable = Map::new();
    let mut offer = |name: &str, amount: &str| {
        allocatable.insert(name.to_owned(), json!(amount));
    };
    offer("cpu", rng.one(&["500m", "1", "2", "4", "8"]));
    offer("memory", rng.one(&["512Mi", "2Gi", "8Gi", "1500M", "4Gi"]));
    offer("pods", rng.one(&["3", "6", "110", "110", "110"]));
    if rng.chance(80) {
        offer("ephemeral-storage", rng.one(&["1Gi", "10Gi"]));
    }
    if rng.chance(40) {
        offer("example.com/gpu", rng.one(&["0", "1", "2", "4"]));
    }
    if rng.chance(20) {
        offer("hugepages-2Mi", "64Mi");
    }
    let mut spec = Map::new();
    if rng.chance(7) {
        spec.insert("unschedulable".into(), json!(true));
    }
    spec.insert("taints".into(), Value::Array(taints));
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {
            "allocatable": allocatable, "capacity": allocatable,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

/// CSINodes of most nodes, with few slots.
fn csi_nodes(rng: &mut SeededRng, nodes: &[String]) -> Vec<Value> {
    let mut made = Vec::new();
    for name in nodes {
        if !rng.chance(80) {
            continue;
        }
        let mut driver = json!({"name": DRIVER, "nodeID": name, "topologyKeys": []});
        if rng.chance(80) {
            driver["allocatable"] = json!({"count": rng.number(1, 3)});
        }
        let drivers = if rng.chance(90) {
            vec![driver]
        } else {
            Vec::new()
        };
        made.push(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
            "metadata": {"name": name}, "spec": {"drivers": drivers},
        }));
    }
    made
}

fn bound(rng: &mut SeededRng, setting: &Setting<'_>, index: usize, storage: &mut Storage) -> Bound {
    let name = format!("{}-b{index}", setting.prefix);
    let mut pod = pods::running(rng, setting, &name, storage);
    let gone = format!("{}-gone", setting.prefix);
    let node = if rng.chance(97) {
        rng.one(setting.nodes)
    } else {
        gone
    };
    pod["spec"]["nodeName"] = json!(node);
    let terminating = rng.chance(12);
    Bound {
        pod,
        terminating,
        ended: !terminating && rng.chance(7),
    }
}
