//! Pods with a few constraints each, out of everything that kube-scheduler filters on.

use serde_json::{Map, Value, json};

use super::rng::{self, SeededRng, Words};
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
type Constraint = fn(&mut SeededRng, &Setting<'_>, &mut Pod<'_>);

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
    rng: &mut SeededRng,
    setting: &Setting<'_>,
    name: &str,
    storage: &mut Storage,
) -> Value {
    let mut pod = begin(rng, setting, name, true, storage);
    if setting.crowd && rng.chance(50) {
        company(rng, setting, &mut pod);
        return end(&pod);
    }
    // A pod that asks for everything fits nowhere, and says nothing of most of it.
    let scale = rng.one(&[0, 50, 100, 100, 150]);
    for (percent, constrain) in CONSTRAINTS {
        if rng.chance(percent * scale / 100) {
            constrain(rng, setting, &mut pod);
        }
    }
    let class = rng.one(&["", "", "low", "high"]);
    if !class.is_empty() {
        pod.spec.insert("priorityClassName".into(), json!(class));
    }
    end(&pod)
}

/// Constraints about other pods alone, so that nothing else hides what becomes of them.
fn company(rng: &mut SeededRng, setting: &Setting<'_>, pod: &mut Pod<'_>) {
    pod.spec.insert(
        "containers".into(),
        json!([{"name": "c0", "image": "none"}]),
    );
    let constrain: Constraint = rng.one(&[
        spread,
        spread,
        pod_affinity,
        pod_anti_affinity,
        claims,
        disks,
    ]);
    constrain(rng, setting, pod);
    for (percent, constrain) in [(25, node_affinity as Constraint), (30, tolerations)] {
        if rng.chance(percent) {
            constrain(rng, setting, pod);
        }
    }
}

/// A pod that runs: what it asked for itself no longer matters, but its room, its ports, its claims
/// and its anti-affinity do.
pub(crate) fn running(
    rng: &mut SeededRng,
    setting: &Setting<'_>,
    name: &str,
    storage: &mut Storage,
) -> Value {
    let mut pod = begin(rng, setting, name, false, storage);
    let constraints: [(u32, Constraint); 6] = [
        (25, pod_anti_affinity),
        (10, pod_affinity),
        (15, host_ports),
        (15, sidecars),
        (30, claims),
        (25, disks),
    ];
    for (percent, constrain) in constraints {
        if rng.chance(percent) {
            constrain(rng, setting, &mut pod);
        }
    }
    end(&pod)
}

fn begin<'a>(
    rng: &mut SeededRng,
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
    let namespace = rng.one(namespaces).0;
    let (words, likely) = if setting.crowd {
        (CROWD_WORDS, 95)
    } else {
        (POD_WORDS, 65)
    };
    let containers: Vec<Value> = (0..rng.number(1, 2))
        .map(|i| container(rng, &format!("c{i}"), if waits { 65 } else { 45 }))
        .collect();
    let mut spec = Map::new();
    spec.insert("containers".into(), Value::Array(containers));
    spec.insert("terminationGracePeriodSeconds".into(), json!(3600));
    Pod {
        name,
        namespace,
        spec,
        labels: rng::labels(rng, words, likely),
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

fn container(rng: &mut SeededRng, name: &str, percent: u32) -> Value {
    let mut requests = Map::new();
    let mut limits = Map::new();
    if rng.chance(percent) {
        requests.insert(
            "cpu".into(),
            json!(rng.one(&["0", "1m", "100m", "250m", "500m", "1"])),
        );
    }
    if rng.chance(percent) {
        let amount = rng.one(&["0", "1", "64Mi", "256Mi", "500M", "700Mi"]);
        requests.insert("memory".into(), json!(amount));
    }
    if rng.chance(10) {
        limits.insert("cpu".into(), json!("1500m"));
    }
    if rng.chance(12) {
        requests.insert(
            "ephemeral-storage".into(),
            json!(rng.one(&["100Mi", "900Mi", "4Gi"])),
        );
    }
    if rng.chance(8) {
        let amount = json!(rng.one(&["0", "1", "2"]));
        requests.insert("example.com/gpu".into(), amount.clone());
        limits.insert("example.com/gpu".into(), amount);
    }
    if rng.chance(4) && requests.contains_key("memory") {
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

fn sidecars(rng: &mut SeededRng, _: &Setting<'_>, pod: &mut Pod<'_>) {
    let containers: Vec<Value> = (0..rng.number(1, 3))
        .map(|i| {
            let mut made = container(rng, &format!("i{i}"), 70);
            if rng.chance(50) {
                made["restartPolicy"] = json!("Always");
            }
            made
        })
        .collect();
    pod.spec
        .insert("initContainers".into(), Value::Array(containers));
}

/// More than the containers ask together, so that the API server takes it.
fn pod_level(rng: &mut SeededRng, _: &Setting<'_>, pod: &mut Pod<'_>) {
    let cpu = rng.one(&["2", "3500m"]);
    let mut requests = Map::new();
    requests.insert("cpu".into(), json!(cpu));
    if rng.chance(50) {
        requests.insert("memory".into(), json!("3Gi"));
    }
    pod.spec
        .insert("resources".into(), json!({"requests": requests}));
}

fn runtime_class(rng: &mut SeededRng, _: &Setting<'_>, pod: &mut Pod<'_>) {
    let class = rng.one(&["heavy", "picky"]);
    pod.spec.insert("runtimeClassName".into(), json!(class));
}

fn node_selector(rng: &mut SeededRng, setting: &Setting<'_>, pod: &mut Pod<'_>) {
    let mut wanted = rng::labels(rng, NODE_WORDS, 12);
    if wanted.is_empty() {
        let (key, values) = rng.one(NODE_WORDS);
        wanted.insert(key.to_owned(), json!(rng.one(values)));
    }
    if rng.chance(10) {
        wanted.insert(HOSTNAME.into(), json!(rng.one(setting.nodes)));
    }
    pod.spec
        .insert("nodeSelector".into(), Value::Object(wanted));
}

fn node_affinity(rng: &mut SeededRng, setting: &Setting<'_>, pod: &mut Pod<'_>) {
    let terms: Vec<Value> = (0..rng.number(1, 3))
        .map(|_| {
            let mut term = Map::new();
            if rng.chance(85) {
                let all: Vec<Value> = (0..rng.number(1, 2))
                    .map(|_| rng::requirement(rng, NODE_WORDS, true))
                    .collect();
                term.insert("matchExpressions".into(), Value::Array(all));
            }
            if rng.chance(20) {
                let operator = rng.one(&["In", "NotIn"]);
                let field = json!({"key": "metadata.name", "operator": operator, "values": [rng.one(setting.nodes)]});
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

fn tolerations(rng: &mut SeededRng, _: &Setting<'_>, pod: &mut Pod<'_>) {
    let all: Vec<Value> = (0..rng.number(1, 3))
        .map(|_| {
            let mut toleration = Map::new();
            let exists = rng.chance(50);
            let mut set = |key: &str, value: &str| toleration.insert(key.into(), json!(value));
            if exists {
                set("operator", "Exists");
            } else if rng.chance(50) {
                set("operator", "Equal");
            }
            if !exists || rng.chance(85) {
                set("key", rng.one(&TAINTS));
            }
            if !exists {
                set("value", rng.one(&["", "a", "b"]));
            }
            if rng.chance(60) {
                set("effect", rng.one(&EFFECTS));
            }
            Value::Object(toleration)
        })
        .collect();
    pod.spec.insert("tolerations".into(), Value::Array(all));
}

fn host_ports(rng: &mut SeededRng, _: &Setting<'_>, pod: &mut Pod<'_>) {
    let network = rng.chance(20);
    if network {
        pod.spec.insert("hostNetwork".into(), json!(true));
    }
    let mut ports = Vec::new();
    for number in rng.some(&[8080, 8081, 9090], 2) {
        let mut port = json!({"containerPort": number});
        if !network || rng.chance(50) {
            port["hostPort"] = json!(number);
        }
        let protocol = rng.one(&["", "TCP", "TCP", "UDP"]);
        if !protocol.is_empty() {
            port["protocol"] = json!(protocol);
        }
        let ip = rng.one(&["", "", "0.0.0.0", "127.0.0.1", "10.0.0.1", "::"]);
        if !ip.is_empty() && !network {
            port["hostIP"] = json!(ip);
        }
        ports.push(port);
    }
    let inits = pod
        .spec
        .get_mut("initContainers")
        .filter(|_| rng.chance(50));
    let target = inits.and_then(|all| all.as_array_mut()?.first_mut());
    if let Some(container) = target {
        container["ports"] = Value::Array(ports);
    } else if let Some(containers) = pod.spec.get_mut("containers") {
        containers[0]["ports"] = Value::Array(ports);
    }
}

fn terms(rng: &mut SeededRng, pod: &mut Pod<'_>) -> Value {
    let most = if rng.chance(75) { 1 } else { 3 };
    let terms: Vec<Value> = (0..rng.number(1, most)).map(|_| term(rng, pod)).collect();
    Value::Array(terms)
}

fn term(rng: &mut SeededRng, pod: &Pod<'_>) -> Value {
    let mut term = json!({"topologyKey": rng.one(&TOPOLOGY)});
    if rng.chance(95) {
        term["labelSelector"] = own_or_other(rng, pod);
        if rng.chance(15) {
            let key = rng.one(POD_WORDS).0;
            let field = rng.one(&["matchLabelKeys", "mismatchLabelKeys"]);
            if !names(&term["labelSelector"], key) {
                term[field] = json!([key]);
            }
        }
    }
    if rng.chance(20) {
        let all = NAMESPACES.map(|(name, _)| name);
        term["namespaces"] = json!(rng.some(&all, 2));
    }
    if rng.chance(20) {
        term["namespaceSelector"] = rng::selector(rng, NAMESPACE_WORDS);
    }
    term
}

/// A selector, half the time one that the pod itself meets.
fn own_or_other(rng: &mut SeededRng, pod: &Pod<'_>) -> Value {
    let own: Vec<(String, Value)> = pod.labels.clone().into_iter().collect();
    if own.is_empty() || rng.chance(50) {
        return rng::selector(rng, POD_WORDS);
    }
    let (key, value) = rng.one(&own);
    json!({"matchLabels": {key: value}})
}

/// Whether a selector names a key; the API server refuses such a one with the key in `matchLabelKeys`.
fn names(selector: &Value, key: &str) -> bool {
    let labels = selector["matchLabels"].get(key).is_some();
    let all = selector["matchExpressions"].as_array();
    labels || all.is_some_and(|all| all.iter().any(|one| one["key"] == key))
}

fn pod_affinity(rng: &mut SeededRng, _: &Setting<'_>, pod: &mut Pod<'_>) {
    let terms = terms(rng, pod);
    affinity(pod, "podAffinity", &terms);
}

fn pod_anti_affinity(rng: &mut SeededRng, _: &Setting<'_>, pod: &mut Pod<'_>) {
    let terms = terms(rng, pod);
    affinity(pod, "podAntiAffinity", &terms);
}

fn spread(rng: &mut SeededRng, _: &Setting<'_>, pod: &mut Pod<'_>) {
    let mut all = Vec::new();
    for key in rng.some(&TOPOLOGY, 2) {
        let hard = rng.chance(90);
        let when = if hard {
            "DoNotSchedule"
        } else {
            "ScheduleAnyway"
        };
        let skew = rng.one(&[1, 1, 2, 3]);
        let mut one = json!({"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when});
        if rng.chance(95) {
            one["labelSelector"] = own_or_other(rng, pod);
            let key = rng.one(POD_WORDS).0;
            if rng.chance(20) && !names(&one["labelSelector"], key) {
                one["matchLabelKeys"] = json!([key]);
            }
        }
        if hard && rng.chance(25) {
            one["minDomains"] = json!(rng.number(1, 4));
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if rng.chance(35) {
                one[field] = json!(rng.one(&["Honor", "Ignore"]));
            }
        }
        all.push(one);
    }
    pod.spec
        .insert("topologySpreadConstraints".into(), Value::Array(all));
}

fn claims(rng: &mut SeededRng, setting: &Setting<'_>, pod: &mut Pod<'_>) {
    let mut list = Vec::new();
    for index in 0..rng.number(1, 2) {
        let name = format!("{}-{index}", pod.name);
        let claim = volumes::claim(rng, setting, pod.namespace, &name, pod.waits, pod.storage);
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
fn disks(rng: &mut SeededRng, _: &Setting<'_>, pod: &mut Pod<'_>) {
    let disk = rng.one(&["one", "one", "two"]);
    let read = rng.chance(50);
    let monitors = rng.some(&["a", "b"], 2);
    let mut volume = match rng.number(0, 3) {
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
fn ephemeral(_: &mut SeededRng, _: &Setting<'_>, pod: &mut Pod<'_>) {
    let spec = json!({
        "accessModes": ["ReadWriteOnce"], "storageClassName": "wait",
        "resources": {"requests": {"storage": "1Gi"}},
    });
    let volume = json!({"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}});
    volumes_of(pod).push(volume);
}
