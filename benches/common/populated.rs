//! A cluster with nodes that are machines of ours and pods as large as real ones, in this process
//! and on real time.

use std::collections::BTreeMap;
use std::time::Duration;

use pve_autoscaler::clock::Clock;
use pve_autoscaler::model::mark::Mark;
use pve_autoscaler::model::time::{Span, Time};
use pve_autoscaler::sim::guests::none::NoGuests;
use pve_autoscaler::sim::guests::{StandingNode, stand};
use pve_autoscaler::sim::kube::{Kube, KubeSpec};
use pve_autoscaler::sim::pve::{GIB, MachineSpec, Pve};
use pve_autoscaler::sim::workload::{Act, Pods, Step, Workload};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::scene::roomy;

/// Pods on every node.
pub(crate) const PODS_PER_NODE: usize = 30;
/// Of these, one of each DaemonSet.
const DAEMONS: usize = 3;
/// What each pod asks for: as many as stated fit on a node of four cores, and no more.
const POD: (&str, &str) = ("130m", "200Mi");
/// All pods run within this time; kubelets start them in earnest.
const ARRIVAL: Duration = Duration::from_mins(10);
/// The first VMID.
const FIRST_VMID: u32 = 9_100;
/// The configuration's name for the cluster.
const NAME: &str = "bench";

/// A running cluster of both kinds.
pub(crate) struct Populated {
    pub(crate) kube: Kube,
    pub(crate) pve: Pve,
    _kubelets: Vec<JoinHandle<()>>,
}

impl Populated {
    /// A cluster of `nodes` nodes, each a machine of ours with so many pods; [`PODS_PER_NODE`] fill it. Takes a minute
    /// for 3,000 pods.
    pub(crate) async fn begin(nodes: usize, pods_per_node: usize) -> Populated {
        let kube = Kube::new(KubeSpec::default(), Clock::System, 1);
        let numbers: Vec<u32> = (1..=nodes)
            .map(|number| u32::try_from(number).expect("a small number"))
            .collect();
        let kubelets = numbers
            .iter()
            .map(|number| stand(&kube, &node(*number), *number, Clock::System))
            .collect();
        until("the nodes are registered", || {
            let all = kube.objects("v1", "Node");
            let uuids = all
                .iter()
                .map(|node| &node["status"]["nodeInfo"]["systemUUID"]);
            let there = uuids.filter(|uuid| uuid.is_string()).count();
            (there != nodes).then(|| format!("{there} of {nodes} are"))
        })
        .await;
        let mut spec = roomy();
        for (number, uuid) in numbers.iter().zip(uuids(&kube, nodes)) {
            spec.machines.push(machine(*number, &uuid, &kube));
        }
        let second = Duration::from_secs(1);
        let guests = std::sync::Arc::new(NoGuests::new(second, second));
        let pve = Pve::new(spec, guests, Clock::System, 1);
        // First what has to be on every node: Deployments' pods would take its room, to the last.
        for (acts, running) in [
            (daemon_sets(), DAEMONS),
            (deployments(nodes, pods_per_node - DAEMONS), pods_per_node),
        ] {
            let played = at_once(acts).play(kube.router()).await;
            played.expect("the workload plays");
            let all = nodes * running;
            until("all pods run", || waiting(&kube, all)).await;
        }
        Populated {
            kube,
            pve,
            _kubelets: kubelets,
        }
    }
}

/// How many pods run, if not `all` of them do, and what one says that does not.
fn waiting(kube: &Kube, all: usize) -> Option<String> {
    let pods = kube.objects("v1", "Pod");
    let runs = |pod: &Value| pod["status"]["phase"] == "Running";
    let count = pods.iter().filter(|pod| runs(pod)).count();
    let one = pods.iter().find(|pod| !runs(pod));
    let one = one.map(|pod| format!("; {}: {}", pod["metadata"]["name"], pod["status"]));
    (count != all).then(|| format!("{count} of {all} run{}", one.unwrap_or_default()))
}

async fn until(what: &str, missing: impl Fn() -> Option<String>) {
    let end = tokio::time::Instant::now() + ARRIVAL;
    while let Some(missing) = missing() {
        let late = tokio::time::Instant::now() > end;
        assert!(
            !late,
            "{what}: not within {} s: {missing}",
            ARRIVAL.as_secs()
        );
        // Every look copies all pods, 20 MB: not too often.
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

fn name_of(number: u32) -> String {
    format!("general-{number:05}")
}

fn host_of(number: u32) -> String {
    format!("pve{}", number % 3 + 1)
}

fn node(number: u32) -> StandingNode {
    StandingNode {
        name: name_of(number),
        cores: 4,
        memory_mib: 8_192,
        disk: 40 * GIB,
        labels: format!(
            "pve-autoscaler.io/pool=general,node.kubernetes.io/instance-type=node,\
             topology.kubernetes.io/zone={},topology.kubernetes.io/region=proxmox",
            host_of(number)
        ),
        taints: Vec::new(),
    }
}

/// The nodes' UUIDs in the order of their names.
fn uuids(kube: &Kube, nodes: usize) -> Vec<String> {
    let by_name: BTreeMap<String, String> = kube
        .objects("v1", "Node")
        .iter()
        .map(|node| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let uuid = &node["status"]["nodeInfo"]["systemUUID"];
            (text(&node["metadata"]["name"]), text(uuid))
        })
        .collect();
    assert_eq!(by_name.len(), nodes);
    by_name.into_values().collect()
}

/// The VM of a node, as we would have made it.
fn machine(number: u32, uuid: &str, kube: &Kube) -> MachineSpec {
    let vmid = FIRST_VMID + number;
    let mark = Mark {
        cluster: format!("{}/{NAME}", kube.cluster_uid()),
        machine: name_of(number),
        vmid,
        pool: "general".to_owned(),
        instance_type: "node".to_owned(),
        template: "debian".to_owned(),
        token: "abcdef".to_owned(),
        created: Time(Clock::System.now().0 - Span::minutes(60).0),
        addresses: BTreeMap::new(),
        cpus: pve_autoscaler::model::cpus::CpuSet::new(),
        unknown: [].into(),
    };
    let config = [
        ("name", name_of(number)),
        ("description", mark.describe("")),
        ("cores", "4".to_owned()),
        ("memory", "8192".to_owned()),
        ("balloon", "0".to_owned()),
        ("agent", "1".to_owned()),
        ("ostype", "l26".to_owned()),
        ("tags", "pve-autoscaler".to_owned()),
        ("smbios1", format!("uuid={uuid}")),
    ];
    MachineSpec {
        vmid,
        host: host_of(number),
        container: false,
        template: false,
        running: true,
        storage: "shared".to_owned(),
        disk: 40 * GIB,
        disk_used: 4 * GIB,
        cloudinit: true,
        pool: None,
        config: config.map(|(key, value)| (key.to_owned(), value)).into(),
    }
}

/// DaemonSets with a pod on every node.
fn daemon_sets() -> Vec<Act> {
    let daemon_set = |number: usize| {
        let name = format!("daemon-{number}");
        let object = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": template(&name)},
        });
        let path = "/apis/apps/v1/namespaces/default/daemonsets".to_owned();
        Act::Create { path, object }
    };
    (0..DAEMONS).map(daemon_set).collect()
}

/// As many Deployments as `kinds` says, each with one pod for every node.
fn deployments(nodes: usize, kinds: usize) -> Vec<Act> {
    let replicas = u32::try_from(nodes).expect("a small number");
    let deployment = |number: usize| {
        let name = format!("service-{number}");
        let pods = Pods {
            template: template(&name),
            ..Pods::of(POD.0, POD.1)
        };
        Act::Deploy {
            name,
            replicas,
            pods,
        }
    };
    (0..kinds).map(deployment).collect()
}

fn at_once(acts: Vec<Act>) -> Workload {
    let step = |act| Step {
        at: Span::ZERO,
        act,
    };
    Workload {
        steps: acts.into_iter().map(step).collect(),
    }
}

/// A pod as people have them: about six kilobytes of JSON, most of it nothing to us.
fn template(app: &str) -> Value {
    let env: Vec<Value> = (0..20)
        .map(|n| json!({"name": format!("SETTING_{n:02}"), "value": format!("a value of the {n}th setting")}))
        .collect();
    let probe = json!({
        "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "timeoutSeconds": 1,
        "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3, "initialDelaySeconds": 5,
    });
    // In the place of managedFields, which the simulated API server does not keep.
    let fields: Vec<String> = (0..60)
        .map(|n| format!("\"f:field{n}\":{{\"f:name\":{{}},\"f:value\":{{}}}}"))
        .collect();
    json!({
        "metadata": {
            "labels": {
                "app": app, "app.kubernetes.io/name": app, "app.kubernetes.io/part-of": "shop",
                "app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": format!("{app}-1.2.3"),
            },
            "annotations": {
                "checksum/config": "6f1ed002ab5595859014ebf0951522d9b3fb0a1c5b7a7c0d2f1e8a7d9b4c3e21",
                "prometheus.io/scrape": "true", "prometheus.io/port": "8080",
                "example.com/fields": fields.join(","),
            },
        },
        "spec": {
            "containers": [{
                "name": "main", "image": format!("registry.example.com/shop/{app}:1.2.3"),
                "command": ["/usr/bin/server", "--config", "/etc/server/config.yaml", "--listen", ":8080"],
                "env": env, "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
                "resources": {
                    "requests": {"cpu": POD.0, "memory": POD.1}, "limits": {"memory": "400Mi"},
                },
                "livenessProbe": probe, "readinessProbe": probe,
                "volumeMounts": [
                    {"name": "config", "mountPath": "/etc/server", "readOnly": true},
                    {"name": "scratch", "mountPath": "/var/tmp"},
                ],
            }],
            "volumes": [
                {"name": "config", "configMap": {"name": app, "defaultMode": 420}},
                {"name": "scratch", "emptyDir": {}},
            ],
        },
    })
}
