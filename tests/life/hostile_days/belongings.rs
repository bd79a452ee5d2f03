//! What runs in the cluster beside the weather, and is hard to move: nodes that stand, volumes, DaemonSets, budgets of
//! zero, pods that nobody makes anew.

use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::{DURATION, StandingNode, stand as standing};
use pve_autoscaler::sim::workload::{Act, Workload, WorkloadKind, WorkloadPods, WorkloadStep};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

use super::WORKLOAD;
use super::plan::Day;
use crate::common::Scene;

const SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const DAEMONS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const PODS: &str = "/api/v1/namespaces/default/pods";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Belonging {
    /// A control plane and a small worker that nobody's autoscaler made.
    StandingNodes,
    /// A StatefulSet with a volume for each pod, which goes once and finds its volumes again.
    Volumes,
    /// A DaemonSet with a pod on every node.
    DaemonSet,
    /// A Deployment of which no pod may be evicted.
    Immovable,
    /// Pods without a controller, some of which end by themselves.
    BarePods,
    /// A Deployment whose pods say that they may not be evicted.
    NotSafe,
    /// A Deployment whose pods have local storage and take long to stop.
    Slow,
}

pub(super) const ALL: [Belonging; 7] = [
    Belonging::StandingNodes,
    Belonging::Volumes,
    Belonging::DaemonSet,
    Belonging::Immovable,
    Belonging::BarePods,
    Belonging::NotSafe,
    Belonging::Slow,
];

/// The nodes that stand begin.
pub(super) fn stand(scene: &Scene, day: &Day) {
    if !day.belongings.contains(&Belonging::StandingNodes) {
        return;
    }
    let worker = StandingNode {
        name: "worker".to_owned(),
        cores: 2,
        memory_mib: 4_096,
        labels: String::new(),
        taints: Vec::new(),
        ..StandingNode::default()
    };
    for (number, node) in (1..).zip([StandingNode::default(), worker]) {
        // Its kubelet ends with the world.
        drop(standing(
            &scene.world.kube,
            &node,
            number,
            scene.world.clock,
        ));
    }
}

/// The weather of the day with all that belongs to it. Everything is gone a minute before the end.
pub(super) fn workload(seed: u64, day: &Day) -> Workload {
    let mut workload = Workload::random(seed, WORKLOAD, Span::minutes(1));
    let mut rng = StdRng::seed_from_u64(seed ^ 0x66);
    for belonging in &day.belongings {
        workload.steps.extend(steps(*belonging, &mut rng));
    }
    workload
}

fn step(minutes: i64, act: Act) -> WorkloadStep {
    WorkloadStep {
        at: Span::minutes(minutes),
        act,
    }
}

/// The workload's last minute but one.
fn end() -> i64 {
    WORKLOAD.0 / 60_000 - 1
}

fn create(path: &str, object: Value) -> Act {
    Act::Create {
        path: path.to_owned(),
        object,
    }
}

fn remove(path: String) -> Act {
    Act::Remove { path }
}

/// A Deployment from a minute on to the end.
fn deployment(at: i64, name: &str, replicas: u32, pods: WorkloadPods) -> Vec<WorkloadStep> {
    let name = name.to_owned();
    let kind = WorkloadKind::Deployment;
    let deploy = Act::Deploy {
        name: name.clone(),
        replicas,
        pods,
    };
    vec![step(at, deploy), step(end(), Act::Delete { kind, name })]
}

fn steps(belonging: Belonging, rng: &mut StdRng) -> Vec<WorkloadStep> {
    let at = rng.random_range(0..15);
    let count = rng.random_range(1..4);
    match belonging {
        Belonging::StandingNodes => Vec::new(),
        Belonging::Volumes => {
            let path = || format!("{SETS}/db");
            let away = rng.random_range(20..40);
            vec![
                step(at, create(SETS, stateful(count))),
                step(away, remove(path())),
                step(away + 3, create(SETS, stateful(count + 1))),
                step(end(), remove(path())),
            ]
        }
        Belonging::DaemonSet => vec![step(at, create(DAEMONS, daemon()))],
        Belonging::Immovable => {
            let name = || "immovable".to_owned();
            let budget = Act::Budget {
                name: name(),
                most_unavailable: 0,
            };
            let gone = Act::Delete {
                kind: WorkloadKind::Budget,
                name: name(),
            };
            let mut steps = deployment(at, "immovable", count, WorkloadPods::of("600m", "512Mi"));
            steps.extend([step(at, budget), step(end(), gone)]);
            steps
        }
        Belonging::BarePods => (0..count).flat_map(|number| bare(at, number)).collect(),
        Belonging::NotSafe => {
            let key = "cluster-autoscaler.kubernetes.io/safe-to-evict";
            let pods = WorkloadPods {
                template: json!({"metadata": {"annotations": {key: "false"}}}),
                ..WorkloadPods::of("500m", "1Gi")
            };
            deployment(at, "not-safe", count, pods)
        }
        Belonging::Slow => {
            let pods = WorkloadPods {
                stopping: Some(Span::seconds(25)),
                template: json!({"spec": {"volumes": [{"name": "scratch", "emptyDir": {}}]}}),
                ..WorkloadPods::of("700m", "1Gi")
            };
            deployment(at, "slow", count, pods)
        }
    }
}

fn containers(cpu: &str) -> Value {
    json!([{
        "name": "main", "image": "registry.k8s.io/pause:3.10",
        "resources": {"requests": {"cpu": cpu, "memory": "256Mi"}},
    }])
}

fn stateful(replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {
            "replicas": replicas, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": containers("800m")},
            },
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "standard",
                "resources": {"requests": {"storage": "1Gi"}},
            }}],
        },
    })
}

fn daemon() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {
                    "tolerations": [{"operator": "Exists"}],
                    "containers": containers("100m"),
                },
            },
        },
    })
}

/// A pod that nobody makes anew; every other one ends by itself.
fn bare(at: i64, number: u32) -> Vec<WorkloadStep> {
    let name = format!("bare-{number}");
    let annotations = if number.is_multiple_of(2) {
        json!({})
    } else {
        json!({DURATION: "900000ms"})
    };
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": containers("500m")},
    });
    vec![
        step(at, create(PODS, pod)),
        step(end(), remove(format!("{PODS}/{name}"))),
    ]
}
