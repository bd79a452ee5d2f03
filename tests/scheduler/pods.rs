//! Pods with a few constraints each, out of everything that kube-scheduler filters on.

use serde_json::{Map, Value, json};

use super::dice::{self, Dice, Words};
use super::volumes::{self, Storage};
use super::world::{EFFECTS, HOSTNAME, NAMESPACES, NODE_WORDS, Setting, TAINTS, ZONE};

const POD_WORDS: &Words = &[
    ("app", &["web", "db", "cache"]),
    ("tier", &["front", "back"]),
    ("version", &["1", "2"]),
];
const CROWD_WORDS: &Words = &[("app", &["web", "web", "db"]), ("version", &["1"])];
const NAMESPACE_WORDS: &Words = &[
    ("team", &["blue", "green"]),
    ("env", &["prod", "test"]),
    ("kubernetes.io/metadata.name", &["blue", "plain"]),
];
const TOPOLOGY: [&str; 6] = [
    HOSTNAME,
    ZONE,
    ZONE,
    "rack",
    "topology.kubernetes.io/region",
    "nobody-has-it",
];

/// Gives a pod one constraint.
type Constraint = fn(&mut Dice, &Setting<'_>, &mut Pod<'_>);

/// What pods that wait may ask for, and in how many of a hundred pods.
const CONSTRAINTS: [(u32, Constraint); 13] = [
    (20, node_selector),
    (25, node_affinity),
    (30, tolerations),
    (15, host_ports),
    (30, pod_affinity),
    (30, pod_anti_affinity),
    (35, spread),
    (20, sidecars),
    (12, runtime_class),
    (22, claims),
    (10, disks),
    (3, ephemeral),
    (8, pod_level),
];

/// A pod being made.
struct Pod<'a> {
    name: &'a str,
    namespace: &'static str,
    spec: Map<String, Value>,
    labels: Map<String, Value>,
    waits: bool,
    storage: &'a mut Storage,
}

/// A pod that waits for a node.
pub(crate) fn pending(
    dice: &mut Dice,
    setting: &Setting<'_>,
    name: &str,
    storage: &mut Storage,
) -> Value {
    let mut pod = begin(dice, setting, name, true, storage);
    if setting.crowd && dice.chance(50) {
        company(dice, setting, &mut pod);
        return end(&pod);
    }
    // A pod that asks for everything fits nowhere, and says nothing of most of it.
    let scale = dice.one(&[0, 50, 100, 100, 150]);
    for (percent, constrain) in CONSTRAINTS {
        if dice.chance(percent * scale / 100) {
            constrain(dice, setting, &mut pod);
        }
    }
    let class = dice.one(&["", "", "low", "high"]);
    if !class.is_empty() {
        pod.spec.insert("priorityClassName".into(), json!(class));
    }
    end(&pod)
}

/// Constraints about other pods alone, so that nothing else hides what becomes of them.
fn company(dice: &mut Dice, setting: &Setting<'_>, pod: &mut Pod<'_>) {
    pod.spec.insert(
        "containers".into(),
        json!([{"name": "c0", "image": "none"}]),
    );
    let constrain: Constraint = dice.one(&[
        spread,
        spread,
        pod_affinity,
        pod_anti_affinity,
        claims,
        disks,
    ]);
    constrain(dice, setting, pod);
    for (percent, constrain) in [(25, node_affinity as Constraint), (30, tolerations)] {
        if dice.chance(percent) {
            constrain(dice, setting, pod);
        }
    }
}

/// A pod that runs: what it asked for itself no longer matters, but its room, its ports, its claims
/// and its anti-affinity do.
pub(crate) fn running(
    dice: &mut Dice,
    setting: &Setting<'_>,
    name: &str,
    storage: &mut Storage,
) -> Value {
    let mut pod = begin(dice, setting, name, false, storage);
    let constraints: [(u32, Constraint); 6] = [
        (25, pod_anti_affinity),
        (10, pod_affinity),
        (15, host_ports),
        (15, sidecars),
        (30, claims),
        (25, disks),
    ];
    for (percent, constrain) in constraints {
        if dice.chance(percent) {
            constrain(dice, setting, &mut pod);
        }
    }
    end(&pod)
}

fn begin<'a>(
    dice: &mut Dice,
    setting: &Setting<'_>,
    name: &'a str,
    waits: bool,
    storage: &'a mut Storage,
) -> Pod<'a> {
    let namespaces = if setting.crowd {
        &NAMESPACES[..1]
    } else {
        &NAMESPACES[..]
    };
    let namespace = dice.one(namespaces).0;
    let (words, likely) = if setting.crowd {
        (CROWD_WORDS, 95)
    } else {
        (POD_WORDS, 65)
    };
    let containers: Vec<Value> = (0..dice.number(1, 2))
        .map(|i| container(dice, &format!("c{i}"), if waits { 65 } else { 45 }))
        .collect();
    let mut spec = Map::new();
    spec.insert("containers".into(), Value::Array(containers));
    spec.insert("terminationGracePeriodSeconds".into(), json!(3600));
    Pod {
        name,
        namespace,
        spec,
        labels: dice::labels(dice, words, likely),
        waits,
        storage,
    }
}

fn end(pod: &Pod<'_>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "labels": pod.labels},
        "spec": pod.spec,
    })
}

fn container(dice: &mut Dice, name: &str, percent: u32) -> Value {
    let mut requests = Map::new();
    let mut limits = Map::new();
    if dice.chance(percent) {
        requests.insert(
            "cpu".into(),
            json!(dice.one(&["0", "1m", "100m", "250m", "500m", "1"])),
        );
    }
    if dice.chance(percent) {
        let amount = dice.one(&["0", "1", "64Mi", "256Mi", "500M", "700Mi"]);
        requests.insert("memory".into(), json!(amount));
    }
    if dice.chance(10) {
        limits.insert("cpu".into(), json!("1500m"));
    }
    if dice.chance(12) {
        requests.insert(
            "ephemeral-storage".into(),
            json!(dice.one(&["100Mi", "900Mi", "4Gi"])),
        );
    }
    if dice.chance(8) {
        let amount = json!(dice.one(&["0", "1", "2"]));
        requests.insert("example.com/gpu".into(), amount.clone());
        limits.insert("example.com/gpu".into(), amount);
    }
    if dice.chance(4) && requests.contains_key("memory") {
        requests.insert("hugepages-2Mi".into(), json!("32Mi"));
        limits.insert("hugepages-2Mi".into(), json!("32Mi"));
    }
    if let (Some(asked), Some(_)) = (requests.get("cpu"), limits.get("cpu"))
        && asked == "0"
    {
        requests.remove("cpu");
    }
    json!({"name": name, "image": "none", "resources": {"requests": requests, "limits": limits}})
}

fn sidecars(dice: &mut Dice, _: &Setting<'_>, pod: &mut Pod<'_>) {
    let containers: Vec<Value> = (0..dice.number(1, 3))
        .map(|i| {
            let mut made = container(dice, &format!("i{i}"), 70);
            if dice.chance(50) {
                made["restartPolicy"] = json!("Always");
            }
            made
        })
        .collect();
    pod.spec
        .insert("initContainers".into(), Value::Array(containers));
}

/// More than the containers ask together, so that the API server takes it.
fn pod_level(dice: &mut Dice, _: &Setting<'_>, pod: &mut Pod<'_>) {
    let cpu = dice.one(&["2", "3500m"]);
    let mut requests = Map::new();
    requests.insert("cpu".into(), json!(cpu));
    if dice.chance(50) {
        requests.insert("memory".into(), json!("3Gi"));
    }
    pod.spec
        .insert("resources".into(), json!({"requests": requests}));
}

fn runtime_class(dice: &mut Dice, _: &Setting<'_>, pod: &mut Pod<'_>) {
    let class = dice.one(&["heavy", "picky"]);
    pod.spec.insert("runtimeClassName".into(), json!(class));
}

fn node_selector(dice: &mut Dice, setting: &Setting<'_>, pod: &mut Pod<'_>) {
    let mut wanted = dice::labels(dice, NODE_WORDS, 12);
    if wanted.is_empty() {
        let (key, values) = dice.one(NODE_WORDS);
        wanted.insert(key.to_owned(), json!(dice.one(values)));
    }
    if dice.chance(10) {
        wanted.insert(HOSTNAME.into(), json!(dice.one(setting.nodes)));
    }
    pod.spec
        .insert("nodeSelector".into(), Value::Object(wanted));
}

fn node_affinity(dice: &mut Dice, setting: &Setting<'_>, pod: &mut Pod<'_>) {
    let terms: Vec<Value> = (0..dice.number(1, 3))
        .map(|_| {
            let mut term = Map::new();
            if dice.chance(85) {
                let all: Vec<Value> = (0..dice.number(1, 2))
                    .map(|_| dice::requirement(dice, NODE_WORDS, true))
                    .collect();
                term.insert("matchExpressions".into(), Value::Array(all));
            }
            if dice.chance(20) {
                let operator = dice.one(&["In", "NotIn"]);
                let field = json!({"key": "metadata.name", "operator": operator, "values": [dice.one(setting.nodes)]});
                term.insert("matchFields".into(), json!([field]));
            }
            Value::Object(term)
        })
        .collect();
    let required = json!({"nodeSelectorTerms": terms});
    affinity(pod, "nodeAffinity", &required);
}

fn affinity(pod: &mut Pod<'_>, kind: &str, required: &Value) {
    let all = pod.spec.entry("affinity").or_insert_with(|| json!({}));
    all[kind] = json!({"requiredDuringSchedulingIgnoredDuringExecution": required});
}

fn tolerations(dice: &mut Dice, _: &Setting<'_>, pod: &mut Pod<'_>) {
    let all: Vec<Value> = (0..dice.number(1, 3))
        .map(|_| {
            let mut toleration = Map::new();
            let exists = dice.chance(50);
            let mut set = |key: &str, value: &str| toleration.insert(key.into(), json!(value));
            if exists {
                set("operator", "Exists");
            } else if dice.chance(50) {
                set("operator", "Equal");
            }
            if !exists || dice.chance(85) {
                set("key", dice.one(&TAINTS));
            }
            if !exists {
                set("value", dice.one(&["", "a", "b"]));
            }
            if dice.chance(60) {
                set("effect", dice.one(&EFFECTS));
            }
            Value::Object(toleration)
        })
        .collect();
    pod.spec.insert("tolerations".into(), Value::Array(all));
}

fn host_ports(dice: &mut Dice, _: &Setting<'_>, pod: &mut Pod<'_>) {
    let network = dice.chance(20);
    if network {
        pod.spec.insert("hostNetwork".into(), json!(true));
    }
    let mut ports = Vec::new();
    for number in dice.some(&[8080, 8081, 9090], 2) {
        let mut port = json!({"containerPort": number});
        if !network || dice.chance(50) {
            port["hostPort"] = json!(number);
        }
        let protocol = dice.one(&["", "TCP", "TCP", "UDP"]);
        if !protocol.is_empty() {
            port["protocol"] = json!(protocol);
        }
        let ip = dice.one(&["", "", "0.0.0.0", "127.0.0.1", "10.0.0.1", "::"]);
        if !ip.is_empty() && !network {
            port["hostIP"] = json!(ip);
        }
        ports.push(port);
    }
    let inits = pod
        .spec
        .get_mut("initContainers")
        .filter(|_| dice.chance(50));
    let target = inits.and_then(|all| all.as_array_mut()?.first_mut());
    if let Some(container) = target {
        container["ports"] = Value::Array(ports);
    } else if let Some(containers) = pod.spec.get_mut("containers") {
        containers[0]["ports"] = Value::Array(ports);
    }
}

fn terms(dice: &mut Dice, pod: &mut Pod<'_>) -> Value {
    let most = if dice.chance(75) { 1 } else { 3 };
    let terms: Vec<Value> = (0..dice.number(1, most)).map(|_| term(dice, pod)).collect();
    Value::Array(terms)
}

fn term(dice: &mut Dice, pod: &Pod<'_>) -> Value {
    let mut term = json!({"topologyKey": dice.one(&TOPOLOGY)});
    if dice.chance(95) {
        term["labelSelector"] = own_or_other(dice, pod);
        if dice.chance(15) {
            let key = dice.one(POD_WORDS).0;
            let field = dice.one(&["matchLabelKeys", "mismatchLabelKeys"]);
            if !names(&term["labelSelector"], key) {
                term[field] = json!([key]);
            }
        }
    }
    if dice.chance(20) {
        let all = NAMESPACES.map(|(name, _)| name);
        term["namespaces"] = json!(dice.some(&all, 2));
    }
    if dice.chance(20) {
        term["namespaceSelector"] = dice::selector(dice, NAMESPACE_WORDS);
    }
    term
}

/// A selector, half the time one that the pod itself meets.
fn own_or_other(dice: &mut Dice, pod: &Pod<'_>) -> Value {
    let own: Vec<(String, Value)> = pod.labels.clone().into_iter().collect();
    if own.is_empty() || dice.chance(50) {
        return dice::selector(dice, POD_WORDS);
    }
    let (key, value) = dice.one(&own);
    json!({"matchLabels": {key: value}})
}

/// Whether a selector names a key; the API server refuses such a one with the key in `matchLabelKeys`.
fn names(selector: &Value, key: &str) -> bool {
    let labels = selector["matchLabels"].get(key).is_some();
    let all = selector["matchExpressions"].as_array();
    labels || all.is_some_and(|all| all.iter().any(|one| one["key"] == key))
}

fn pod_affinity(dice: &mut Dice, _: &Setting<'_>, pod: &mut Pod<'_>) {
    let terms = terms(dice, pod);
    affinity(pod, "podAffinity", &terms);
}

fn pod_anti_affinity(dice: &mut Dice, _: &Setting<'_>, pod: &mut Pod<'_>) {
    let terms = terms(dice, pod);
    affinity(pod, "podAntiAffinity", &terms);
}

fn spread(dice: &mut Dice, _: &Setting<'_>, pod: &mut Pod<'_>) {
    let mut all = Vec::new();
    for key in dice.some(&TOPOLOGY, 2) {
        let hard = dice.chance(90);
        let when = if hard {
            "DoNotSchedule"
        } else {
            "ScheduleAnyway"
        };
        let skew = dice.one(&[1, 1, 2, 3]);
        let mut one = json!({"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when});
        if dice.chance(95) {
            one["labelSelector"] = own_or_other(dice, pod);
            let key = dice.one(POD_WORDS).0;
            if dice.chance(20) && !names(&one["labelSelector"], key) {
                one["matchLabelKeys"] = json!([key]);
            }
        }
        if hard && dice.chance(25) {
            one["minDomains"] = json!(dice.number(1, 4));
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if dice.chance(35) {
                one[field] = json!(dice.one(&["Honor", "Ignore"]));
            }
        }
        all.push(one);
    }
    pod.spec
        .insert("topologySpreadConstraints".into(), Value::Array(all));
}

fn claims(dice: &mut Dice, setting: &Setting<'_>, pod: &mut Pod<'_>) {
    let mut list = Vec::new();
    for index in 0..dice.number(1, 2) {
        let name = format!("{}-{index}", pod.name);
        let claim = volumes::claim(dice, setting, pod.namespace, &name, pod.waits, pod.storage);
        list.push(
            json!({"name": format!("v{index}"), "persistentVolumeClaim": {"claimName": claim}}),
        );
    }
    volumes_of(pod).extend(list);
}

fn volumes_of<'p>(pod: &'p mut Pod<'_>) -> &'p mut Vec<Value> {
    let volumes = pod.spec.entry("volumes").or_insert_with(|| json!([]));
    volumes.as_array_mut().expect("a list")
}

/// A disk that the pod names itself.
fn disks(dice: &mut Dice, _: &Setting<'_>, pod: &mut Pod<'_>) {
    let disk = dice.one(&["one", "one", "two"]);
    let read = dice.chance(50);
    let monitors = dice.some(&["a", "b"], 2);
    let mut volume = match dice.number(0, 3) {
        0 => json!({"gcePersistentDisk": {"pdName": disk, "readOnly": read}}),
        1 => json!({"awsElasticBlockStore": {"volumeID": disk, "readOnly": read}}),
        2 => json!({"iscsi": {"iqn": format!("iqn.2001-04.com.example:{disk}"),
            "targetPortal": "10.0.0.1:3260", "lun": 0, "readOnly": read}}),
        _ => json!({"rbd": {"monitors": monitors, "image": disk, "readOnly": read}}),
    };
    volume["name"] = json!("disk");
    volumes_of(pod).push(volume);
}

/// No controller makes the claim of such a volume here.
fn ephemeral(_: &mut Dice, _: &Setting<'_>, pod: &mut Pod<'_>) {
    let spec = json!({
        "accessModes": ["ReadWriteOnce"], "storageClassName": "wait",
        "resources": {"requests": {"storage": "1Gi"}},
    });
    let volume = json!({"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}});
    volumes_of(pod).push(volume);
}
