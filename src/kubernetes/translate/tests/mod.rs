//! Real objects in, views out.

mod damage;
mod volumes;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::model::cluster::{Node, Phase, Pod, ReadyStatus};
use crate::model::resources::Resources;
use crate::model::scheduling::{Effect, HostPort, NodeTerm, Operator, Taint, Volume};

const POD: &str = include_str!("../fixtures/pod_pending.json");
const NODE: &str = include_str!("../fixtures/node.json");

fn fixture(text: &str) -> Value {
    serde_json::from_str(text).expect("fixtures are JSON")
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("it reads")
}

fn pod_of(value: Value) -> (Pod, Vec<String>) {
    let mut interner = Interner::default();
    let mut reader = ObjectReader::new(&mut interner);
    let (_, view) = pod(&mut reader, &read(value)).expect("it has a name");
    (view, reader.problems)
}

fn node_of(value: Value) -> (Node, Vec<String>) {
    let mut interner = Interner::default();
    let mut reader = ObjectReader::new(&mut interner);
    let (_, view) = node(&mut reader, &read(value)).expect("it has a name");
    (view, reader.problems)
}

fn requests(spec: &Value) -> Resources {
    let meta = json!({ "name": "p", "namespace": "n", "uid": "u", "creationTimestamp": "2026-11-21T12:00:00Z" });
    let (view, problems) = pod_of(json!({ "metadata": meta, "spec": spec }));
    assert_eq!(problems, Vec::<String>::new());
    view.shape.requests.clone()
}

const MIB: i64 = 1 << 20;

#[test]
fn a_pending_pod() {
    let (view, problems) = pod_of(fixture(POD));
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(&*view.uid, "5f0e9d52-3a53-4a37-a3c9-8f6a3b1f7c11");
    assert_eq!(view.phase, Phase::Pending);
    assert_eq!(view.node, None);
    assert_eq!(
        view.unschedulable_since
            .map(|time| time.to_string())
            .as_deref(),
        Some("2026-11-21T13:00:00Z")
    );
    assert!(!view.gated && !view.mirror && !view.ready);
    let shape = &view.shape;
    // init: 1500m + sidecar 100m; running: 500m + 250m + 100m; overhead 250m
    assert_eq!(shape.requests.cpu_milli, 1_600 + 250);
    assert_eq!(shape.requests.memory, (1_024 + 128 + 64 + 120) * MIB);
    assert_eq!(shape.requests.ephemeral, 1_610_612_736);
    assert_eq!(shape.requests.pods, 1);
    assert_eq!(shape.requests.get("nvidia.com/gpu"), 1);
    assert_eq!(shape.annotations.len(), 1);
    assert_eq!(
        shape.owner.as_ref().map(|owner| &*owner.kind),
        Some("ReplicaSet")
    );
    assert_eq!(&*shape.scheduler, "");
    assert_eq!((shape.priority, shape.never_preempts), (1_000, true));
    assert_eq!((shape.grace_seconds, shape.run_once), (60, false));
    assert_eq!(
        shape.volumes,
        [
            Volume::EmptyDir("cache".into()),
            Volume::Claim("shop-data".into()),
            Volume::Ephemeral {
                name: "scratch".into(),
                class: Some("fast".into())
            },
            Volume::HostPath("logs".into()),
        ]
    );
    let port = |protocol: &str, port| HostPort {
        protocol: protocol.into(),
        ip: "".into(),
        port,
    };
    assert_eq!(shape.host_ports, [port("TCP", 15_090), port("UDP", 9_999)]);
    let terms = shape.node_affinity.as_ref().expect("it has node affinity");
    assert_eq!(
        (
            terms.len(),
            terms[0].expressions.len(),
            terms[0].fields.len()
        ),
        (1, 2, 1)
    );
    assert_eq!(shape.preferred_nodes[0].0, 10);
    assert_eq!(
        &*shape.pod_anti_affinity[0].topology_key,
        "kubernetes.io/hostname"
    );
    let preferred = &shape.preferred_anti_pods[0].1;
    assert_eq!(preferred.namespace_selector, Some(LabelSelector::default()));
    let spread = &shape.spread[0];
    assert!(spread.hard && spread.honor_affinity && spread.honor_taints);
    assert_eq!((spread.max_skew, spread.min_domains), (1, Some(2)));
    let taint = Taint::no_schedule("dedicated", "shop");
    assert!(shape.tolerations[0].tolerates(&taint));
    assert!(!shape.tolerations[1].tolerates(&taint));
    assert!(shape.tolerations[2].tolerates(&taint));
}

#[test]
fn dr_12_what_lies_in_memory_is_no_local_storage() {
    let volumes = |source: Value| {
        let meta = json!({ "name": "p", "namespace": "n", "uid": "u" });
        let volume = json!({ "name": "v" });
        let mut pod = json!({ "metadata": meta, "spec": { "volumes": [volume] } });
        pod["spec"]["volumes"][0]["emptyDir"] = source;
        pod_of(pod).0.shape.volumes.clone()
    };
    assert_eq!(volumes(json!({ "medium": "Memory" })), []);
    let limited = json!({ "medium": "Memory", "sizeLimit": "64Mi" });
    assert_eq!(volumes(limited), []);
    for on_disk in [
        json!({}),
        json!({ "medium": "" }),
        json!({ "medium": "HugePages" }),
    ] {
        assert_eq!(
            volumes(on_disk.clone()),
            [Volume::EmptyDir("v".into())],
            "{on_disk}"
        );
    }
}

#[test]
fn pods_of_one_controller_share_their_shape() {
    let mut interner = Interner::default();
    let mut other = fixture(POD);
    other["metadata"]["name"] = "shop-6c9f7d8b5d-zzzzz".into();
    other["metadata"]["uid"] = "other".into();
    let (_, first) =
        pod(&mut ObjectReader::new(&mut interner), &read(fixture(POD))).expect("a pod");
    let (_, second) = pod(&mut ObjectReader::new(&mut interner), &read(other)).expect("a pod");
    assert!(Arc::ptr_eq(&first.shape, &second.shape));
}

#[test]
fn requests_follow_kep_753_and_2837() {
    let container = |cpu: &str| json!({ "name": "c", "resources": { "requests": { "cpu": cpu } } });
    let sidecar = |name: &str, cpu: &str| json!({ "name": name, "restartPolicy": "Always", "resources": { "requests": { "cpu": cpu } } });
    let init = |cpu: &str| json!({ "name": "i", "resources": { "requests": { "cpu": cpu } } });
    for (what, spec, cpu) in [
        (
            "sum of containers",
            json!({ "containers": [container("100m"), container("200m")] }),
            300,
        ),
        (
            "a larger init container",
            json!({ "initContainers": [init("1")], "containers": [container("100m")] }),
            1_000,
        ),
        (
            "a smaller one",
            json!({ "initContainers": [init("50m")], "containers": [container("100m")] }),
            100,
        ),
        (
            "a sidecar after a large init",
            json!({ "initContainers": [init("1"), sidecar("s", "500m")], "containers": [container("100m")] }),
            1_000,
        ),
        (
            "a sidecar before a large init",
            json!({ "initContainers": [sidecar("s", "500m"), init("1")], "containers": [container("100m")] }),
            1_500,
        ),
        (
            "pod level wins over the sum",
            json!({ "resources": { "requests": { "cpu": "2" } }, "containers": [container("100m")] }),
            2_000,
        ),
        (
            "pod level may be less than init",
            json!({ "resources": { "requests": { "cpu": "700m" } }, "initContainers": [init("600m")], "containers": [container("100m")] }),
            700,
        ),
        (
            "overhead comes on top",
            json!({ "overhead": { "cpu": "30m" }, "containers": [container("100m")] }),
            130,
        ),
        (
            "a limit stands in for a request",
            json!({ "containers": [ { "name": "c", "resources": { "limits": { "cpu": "3" } } } ] }),
            3_000,
        ),
        (
            "a bare number is a quantity",
            json!({ "containers": [ { "name": "c", "resources": { "requests": { "cpu": 2 } } } ] }),
            2_000,
        ),
        (
            "nothing asked",
            json!({ "containers": [ { "name": "c" } ] }),
            0,
        ),
    ] {
        let asked = requests(&spec);
        assert_eq!((asked.cpu_milli, asked.pods), (cpu, 1), "{what}");
    }
}

#[test]
fn a_resize_holds_the_larger_amount() {
    let mut value = fixture(POD);
    value["status"]["containerStatuses"] = json!([
        { "name": "shop", "allocatedResources": { "cpu": "3" }, "resources": { "requests": { "cpu": "500m", "memory": "2Gi" } } }
    ]);
    let (view, _) = pod_of(value);
    assert_eq!(view.shape.requests.cpu_milli, 3_000 + 250 + 100 + 250);
    assert_eq!(view.shape.requests.memory, (2_048 + 128 + 64 + 120) * MIB);
}

#[test]
fn a_resize_that_the_node_refused_counts_what_the_pod_holds() {
    for (reason, cpu) in [("Deferred", 100_000), ("Infeasible", 1_000)] {
        let status = json!({
            "conditions": [{ "type": "PodResizePending", "status": "True", "reason": reason }],
            "containerStatuses": [
                { "name": "c", "allocatedResources": { "cpu": "1" }, "resources": { "requests": { "cpu": "1" } } }
            ],
        });
        let (view, _) = pod_of(json!({
            "metadata": { "name": "p", "namespace": "default", "uid": "u" },
            "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "100" } } }] },
            "status": status,
        }));
        assert_eq!(view.shape.requests.cpu_milli, cpu, "{reason}");
        let (view, _) = pod_of(json!({
            "metadata": { "name": "p", "namespace": "default", "uid": "u" },
            "spec": {
                "containers": [{ "name": "d" }],
                "resources": { "requests": { "cpu": "100" } },
            },
            "status": {
                "conditions": status["conditions"],
                "resources": { "requests": { "cpu": "500m" } },
                "allocatedResources": { "cpu": "1" },
            },
        }));
        assert_eq!(view.shape.requests.cpu_milli, cpu, "{reason}, for the pod");
    }
}

#[test]
fn an_unreadable_request_fits_nowhere_and_is_named() {
    for resource in ["cpu", "memory", "ephemeral-storage", "example.com/dongle"] {
        let mut value = fixture(POD);
        value["spec"]["containers"][0]["resources"]["requests"][resource] = "a lot".into();
        let (view, problems) = pod_of(value);
        assert_eq!(view.shape.requests.get(resource), i64::MAX, "{resource}");
        assert!(
            problems[0].contains(resource) && problems[0].contains("a lot"),
            "{problems:?}"
        );
        let huge = Resources {
            cpu_milli: 1 << 40,
            memory: 1 << 50,
            ephemeral: 1 << 60,
            pods: 500,
            ..Resources::default()
        };
        assert!(!view.shape.requests.fits(&huge), "{resource}");
    }
}

#[test]
fn states_of_pods() {
    let mut gated = fixture(POD);
    gated["spec"]["schedulingGates"] = json!([{ "name": "example.com/gate" }]);
    gated["status"]["conditions"][0]["reason"] = "SchedulingGated".into();
    let (view, _) = pod_of(gated);
    assert!(view.gated && view.unschedulable_since.is_none());

    let mut running = fixture(POD);
    running["spec"]["nodeName"] = "small-k3x9p".into();
    running["metadata"]["deletionTimestamp"] = "2026-11-21T13:05:00Z".into();
    running["metadata"]["deletionGracePeriodSeconds"] = 60.into();
    running["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "abc".into();
    running["status"] = json!({ "phase": "Running", "startTime": "2026-11-21T13:00:02Z", "conditions": [
        { "type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T13:00:00Z" },
        { "type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T13:00:09Z" },
    ] });
    let (view, _) = pod_of(running);
    assert_eq!(view.node.as_deref(), Some("small-k3x9p"));
    assert!(view.ready && view.mirror && view.unschedulable_since.is_none());
    assert_eq!(view.deletion_grace_seconds, Some(60));
    assert!(view.deletion.is_some());
    let started = view.started.map(|time| time.to_string());
    assert_eq!(started.as_deref(), Some("2026-11-21T13:00:02Z"));

    let mut bare = fixture(POD);
    bare["metadata"]["ownerReferences"] = Value::Null;
    bare["spec"]["restartPolicy"] = "OnFailure".into();
    let (view, _) = pod_of(bare);
    assert!(view.shape.run_once && view.shape.owner.is_none());
}

#[test]
fn bound_pods_of_a_daemon_set_share_a_shape() {
    let on = |named: &str, bound: Option<&str>, kind: &str| {
        let value = json!({
            "metadata": {
                "namespace": "default", "name": named, "creationTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [{ "controller": true, "kind": kind, "name": "agent", "uid": "u", "apiVersion": "apps/v1" }],
            },
            "spec": {
                "nodeName": bound,
                "containers": [{ "name": "agent" }],
                "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{ "matchFields": [
                        { "key": "metadata.name", "operator": "In", "values": [named] }
                    ] }]
                } } },
            },
        });
        pod_of(value).0.shape
    };
    assert_eq!(
        on("a", Some("a"), "DaemonSet"),
        on("b", Some("b"), "DaemonSet")
    );
    for (bound, kind) in [
        (None, "DaemonSet"),
        (Some("b"), "DaemonSet"),
        (Some("a"), "ReplicaSet"),
    ] {
        assert!(
            on("a", bound, kind).node_affinity.is_some(),
            "{bound:?} {kind}"
        );
    }
}

#[test]
fn what_is_not_known_is_taken_for_the_worst() {
    let mut value = fixture(POD);
    value["spec"]["tolerations"] = json!([
        { "key": "gpu-memory", "operator": "Resembles", "value": "10" },
        { "key": "sla", "operator": "Gt", "value": "950" }
    ]);
    value["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        [0]["matchExpressions"][0]["operator"] = "Resembles".into();
    value["metadata"]["creationTimestamp"] = "yesterday".into();
    let (view, problems) = pod_of(value);
    assert!(view.shape.tolerations.is_empty());
    assert_eq!(view.shape.compared_taints, [Arc::from("sla")]);
    let terms = view.shape.node_affinity.as_ref().expect("affinity");
    assert_eq!(terms[0].expressions[0].operator, Operator::In);
    assert!(terms[0].expressions[0].values.is_empty());
    assert_eq!(view.created, NEVER);
    assert_eq!(problems.len(), 3, "{problems:?}");
}

#[test]
fn a_node() {
    let (view, problems) = node_of(fixture(NODE));
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(&*view.system_uuid, "4a1c8d1e-9c1f-4e5b-8d4a-3b6b2c9a7e21");
    assert_eq!(view.provider_id.as_deref(), Some("pve://home/9001"));
    assert_eq!(view.annotations.len(), 2);
    assert_eq!(view.allocatable.cpu_milli, 1_900);
    assert_eq!(view.allocatable.memory, 3_912_924 * 1_024);
    assert_eq!(view.allocatable.pods, 110);
    assert_eq!(view.capacity.get("nvidia.com/gpu"), 1);
    assert!(!view.capacity.extended.contains_key("hugepages-2Mi"));
    assert_eq!(view.ready.status, ReadyStatus::True);
    assert_eq!(
        view.ready.since.map(|time| time.to_string()).as_deref(),
        Some("2026-11-21T12:30:45Z")
    );
    assert!(view.unschedulable);
    assert_eq!(view.taints.len(), 2);
    assert_eq!(&*view.kubelet_version, "v1.34.1");
}

#[test]
fn a_node_that_says_nothing_offers_nothing() {
    let (view, _) = node_of(json!({ "metadata": { "name": "n" } }));
    assert_eq!(view.allocatable, Resources::default());
    assert_eq!(view.ready.status, ReadyStatus::Unknown);
    assert_eq!(view.created, NEVER);
    let mut value = fixture(NODE);
    value["status"]["allocatable"]["memory"] = "plenty".into();
    value["spec"]["taints"][0]["effect"] = "NoThinking".into();
    let (view, problems) = node_of(value);
    assert_eq!(view.allocatable.memory, 0);
    assert_eq!(view.taints[0].effect, Effect::NoSchedule);
    assert_eq!(problems.len(), 2, "{problems:?}");
}

#[test]
fn a_daemon_sets_pods_count_as_its_controller_and_admission_make_them() {
    let mut interner = Interner::default();
    let mut reader = ObjectReader::new(&mut interner);
    let priorities = BTreeMap::from([
        (
            "critical".into(),
            PriorityClass {
                value: 2_000,
                default: false,
                never_preempts: false,
            },
        ),
        (
            "usual".into(),
            PriorityClass {
                value: 7,
                default: true,
                never_preempts: true,
            },
        ),
    ]);
    let runtime = runtime_class(
        &mut reader,
        &read(json!({
            "metadata": { "name": "kata" }, "handler": "kata",
            "overhead": { "podFixed": { "cpu": "100m" } },
            "scheduling": { "nodeSelector": { "kata": "yes" }, "tolerations": [{ "key": "kata", "operator": "Exists" }] },
        })),
    )
    .expect("a class");
    let runtimes = BTreeMap::from([runtime]);
    let set = json!({
        "metadata": { "name": "cni", "namespace": "kube-system", "uid": "d" },
        "spec": { "template": {
            "metadata": { "labels": { "app": "cni" }, "creationTimestamp": null },
            "spec": {
                "hostNetwork": true, "priorityClassName": "critical", "runtimeClassName": "kata",
                "containers": [{ "name": "cni", "ports": [{ "containerPort": 4244 }],
                    "resources": { "limits": { "memory": "50Mi" }, "requests": { "cpu": "100m" } } }],
            },
        } },
    });
    let (key, view) =
        daemon_set(&mut reader, &read(set.clone()), &priorities, &runtimes).expect("a set");
    assert_eq!(key.to_string(), "kube-system/cni");
    let shape = &view.shape;
    assert_eq!(
        (shape.requests.cpu_milli, shape.requests.memory),
        (200, 50 * MIB)
    );
    assert_eq!(shape.priority, 2_000);
    assert_eq!(shape.host_ports[0].port, 4_244);
    assert_eq!(shape.node_selector.len(), 1);
    let tolerated = |key: &str, effect| {
        let taint = Taint {
            key: key.into(),
            value: "".into(),
            effect,
        };
        shape
            .tolerations
            .iter()
            .any(|toleration| toleration.tolerates(&taint))
    };
    assert!(tolerated("node.kubernetes.io/not-ready", Effect::NoExecute));
    assert!(!tolerated(
        "node.kubernetes.io/not-ready",
        Effect::NoSchedule
    ));
    assert!(tolerated(
        "node.kubernetes.io/unschedulable",
        Effect::NoSchedule
    ));
    assert!(tolerated(
        "node.kubernetes.io/network-unavailable",
        Effect::NoSchedule
    ));
    assert!(tolerated("kata", Effect::NoSchedule));
    assert!(!tolerated("pve-autoscaler.io/leaving", Effect::NoSchedule));

    let mut plain = set;
    plain["spec"]["template"]["spec"] = json!({ "containers": [] });
    let (_, view) = daemon_set(&mut reader, &read(plain), &priorities, &runtimes).expect("a set");
    assert_eq!((view.shape.priority, view.shape.never_preempts), (7, true));
    let taint = Taint::no_schedule("node.kubernetes.io/network-unavailable", "");
    assert!(!view.shape.tolerations.iter().any(|t| t.tolerates(&taint)));
}

#[test]
fn a_daemon_set_whose_template_names_a_node_is_there_alone() {
    let mut interner = Interner::default();
    let mut reader = ObjectReader::new(&mut interner);
    let mut terms = |affinity: Value| {
        let set = json!({
            "metadata": { "name": "probe", "namespace": "default", "uid": "d" },
            "spec": { "template": { "spec": {
                "nodeName": "n1", "affinity": affinity, "containers": [{ "name": "c" }],
            } } },
        });
        let classes = (BTreeMap::new(), BTreeMap::new());
        let (_, view) = daemon_set(&mut reader, &read(set), &classes.0, &classes.1).expect("a set");
        view.shape.node_affinity.clone().expect("an affinity")
    };
    let required = |terms: Value| {
        let selector = json!({ "nodeSelectorTerms": terms });
        json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": selector } })
    };
    let named = |term: &NodeTerm| {
        let [field] = &term.fields[..] else {
            return false;
        };
        &*field.key == "metadata.name"
            && field.operator == Operator::In
            && field.values.iter().map(|value| &**value).eq(["n1"])
    };
    let alone = terms(Value::Null);
    assert_eq!((alone.len(), alone[0].expressions.len()), (1, 0));
    assert!(named(&alone[0]));
    let disk = json!({ "matchExpressions": [{ "key": "disk", "operator": "Exists" }] });
    let both = terms(required(json!([disk, {}])));
    assert_eq!((both.len(), both[0].expressions.len()), (1, 1));
    assert!(named(&both[0]));
    assert!(terms(required(json!([{}]))).is_empty());
}

#[test]
fn a_budget_that_its_controller_has_not_seen_allows_nothing() {
    let mut interner = Interner::default();
    let mut budget_of = |value: Value| {
        budget(&mut ObjectReader::new(&mut interner), &read(value))
            .expect("a budget")
            .1
    };
    let mut value = json!({
        "metadata": { "name": "b", "namespace": "n", "generation": 2 },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "x" } }, "unhealthyPodEvictionPolicy": "AlwaysAllow" },
        "status": { "disruptionsAllowed": 1, "observedGeneration": 2, "currentHealthy": 2 },
    });
    let view = budget_of(value.clone());
    assert_eq!((view.allowed, view.always_allow_unhealthy), (1, true));
    value["status"]["observedGeneration"] = 1.into();
    assert_eq!(budget_of(value.clone()).allowed, 0);
    value["spec"]["selector"] = json!({});
    assert_eq!(
        budget_of(value.clone()).selector,
        Some(LabelSelector::default())
    );
    value["spec"]["selector"] = Value::Null;
    assert_eq!(budget_of(value).selector, None);
}

#[test]
fn storage() {
    let mut interner = Interner::default();
    let mut reader = ObjectReader::new(&mut interner);
    let (_, view) = claim(
        &mut reader,
        &read(json!({
            "metadata": {
                "name": "c", "namespace": "n", "annotations": { "volume.kubernetes.io/selected-node": "n1" },
                "ownerReferences": [{ "kind": "Node", "uid": "no" }, { "kind": "Pod", "uid": "u-7", "controller": true }],
            },
            "spec": { "accessModes": ["ReadWriteOncePod"], "storageClassName": "fast", "volumeName": "pvc-1" },
            "status": { "phase": "Bound" },
        })),
    )
    .expect("a claim");
    assert!(view.bound && view.once_pod && !view.lost && !view.deleting);
    assert_eq!(
        (view.volume.as_deref(), view.selected_node.as_deref()),
        (Some("pvc-1"), Some("n1"))
    );
    assert_eq!(view.owner.as_deref(), Some("u-7"));
    let (_, view) = persistent_volume(
        &mut reader,
        &read(json!({
            "metadata": { "name": "pvc-1" },
            "spec": {
                "csi": { "driver": "csi.proxmox.sinextra.dev", "volumeHandle": "home/pve1/local/vm-9999" },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                    { "key": "topology.kubernetes.io/zone", "operator": "In", "values": ["pve1"] }] }] } },
            },
        })),
    )
    .expect("a volume");
    assert_eq!(view.driver.as_deref(), Some("csi.proxmox.sinextra.dev"));
    assert!(!view.local && view.node_affinity.is_some_and(|terms| terms.len() == 1));
    let (_, view) = persistent_volume(
        &mut reader,
        &read(json!({ "metadata": { "name": "l" }, "spec": { "local": { "path": "/mnt/x" } } })),
    )
    .expect("a volume");
    assert!(view.local);
    let (_, view) = storage_class(
        &mut reader,
        &read(json!({
            "metadata": { "name": "fast", "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } },
            "provisioner": "csi.proxmox.sinextra.dev", "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": [{ "matchLabelExpressions": [{ "key": "topology.kubernetes.io/zone", "values": ["pve1", "pve2"] }] }],
        })),
    )
    .expect("a class");
    assert!(view.default && view.wait_for_consumer);
    assert_eq!(view.topologies[0].expressions[0].values.len(), 2);
    let (_, drivers) = csi_node(
        &mut reader,
        &read(json!({ "metadata": { "name": "n1" }, "spec": { "drivers": [
            { "name": "a", "nodeID": "x", "allocatable": { "count": 24 } }, { "name": "b", "nodeID": "x" }] } })),
    )
    .expect("a node");
    assert_eq!(drivers.get("a"), Some(&Some(24)));
    assert_eq!(drivers.get("b"), Some(&None));
    let (_, view) = attachment(
        &mut reader,
        &read(json!({ "metadata": { "name": "csi-1" }, "spec": {
            "attacher": "a", "nodeName": "n1", "source": { "persistentVolumeName": "pvc-1" } } })),
    )
    .expect("an attachment");
    assert_eq!((&*view.node, view.volume.as_deref()), ("n1", Some("pvc-1")));
}
