//! A plan comes true: pods are nominated for the nodes that were made for them.

use std::cell::RefCell;
use std::time::Duration;

use pve_autoscaler::model::action::Kind;
use pve_autoscaler::model::reasons::Warning;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::{GuestSpec, Range};
use pve_autoscaler::sim::kube::{KubeSpec, KubeUserSpec, PolicyRule};
use pve_autoscaler::sim::pve::{GIB, PveSpec};
use pve_autoscaler::sim::workload::{Act, Workload, WorkloadStep};
use pve_autoscaler::sim::world::WorldSpec;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;

use crate::common::{Scene, simulate};

const CONFIG: &str = "
version = 1
[kubernetes]
name = \"test\"
[proxmox]
vmids = \"9100-9150\"
[template.debian]
vmid = 9000
[instance_type.small]
cores = 2
memory = \"4GiB\"
disk = \"20GiB\"
[instance_type.large]
cores = 4
memory = \"8GiB\"
disk = \"20GiB\"
[pool.general]
template = \"debian\"
instance_types = [\"small\", \"large\"]
max = 20
[scale_up]
max_in_flight = 20
";

/// Pods of many sizes, all at once.
fn mixed(seed: u64, count: usize) -> Workload {
    let mut rng = StdRng::seed_from_u64(seed);
    let pod = |number: usize| {
        let cpu = rng.random_range(2..=30) * 50;
        let memory = rng.random_range(1..=30) * 100;
        let object = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("pod-{number}")},
            "spec": {"containers": [{
                "name": "main", "image": "registry.k8s.io/pause:3.10",
                "resources": {"requests": {"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")}},
            }]},
        });
        let path = "/api/v1/namespaces/default/pods".to_owned();
        WorkloadStep {
            at: Span::ZERO,
            act: Act::Create { path, object },
        }
    };
    Workload {
        steps: (0..count).map(pod).collect(),
    }
}

/// From so many seconds to so many.
fn seconds(least: i64, most: i64) -> Range {
    Range {
        min: Span::seconds(least),
        max: Span::seconds(most),
    }
}

/// Guests that boot in very different times.
pub(crate) fn apart() -> GuestSpec {
    GuestSpec {
        boot: seconds(6, 60),
        ..GuestSpec::default()
    }
}

/// Hosts on which there is room for all machines.
fn roomy(seed: u64, config: &str, guests: GuestSpec) -> Scene {
    let mut pve = PveSpec::default();
    for host in &mut pve.hosts {
        (host.memory, host.cpus) = (512 * GIB, 64);
    }
    Scene::of(WorldSpec {
        seed,
        pve,
        kube: KubeSpec::default(),
        guests,
        config: config.to_owned(),
    })
}

/// Machines of the first plan and of all plans, and the judge's findings, when all pods run.
fn planned_and_made(seed: u64, config: &str, guests: GuestSpec) -> (usize, usize, Vec<String>) {
    simulate(async {
        let scene = roomy(seed, config, guests);
        let planned = RefCell::new(0);
        let watching = async {
            let mut turns = scene.world.turns.subscribe();
            while turns.changed().await.is_ok() {
                let turn = turns.borrow_and_update().clone();
                let plan = turn.iter().flat_map(|turn| &turn.decision.plan);
                let count = plan.filter(|action| matches!(action.kind, Kind::Create(_)));
                let count = count.count();
                if *planned.borrow() == 0 {
                    planned.replace(count);
                }
            }
        };
        let all_run = async {
            let run = || {
                let pods = scene.world.kube.objects("v1", "Pod");
                let running = pods
                    .iter()
                    .filter(|pod| pod["status"]["phase"] == "Running");
                let names = running.filter_map(|pod| pod["metadata"]["name"].as_str());
                names.filter(|name| name.starts_with("pod-")).count() == 20
            };
            while !run() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::select! {
            biased;
            () = scene.live_on(0, |_| {}) => {}
            () = scene.preside() => {}
            () = watching => {}
            () = scene.play(mixed(seed, 20)) => {}
            () = all_run => {}
            () = tokio::time::sleep(Duration::from_mins(30)) => panic!("pods still wait"),
        }
        let planned = *planned.borrow();
        (planned, scene.machines_made(), scene.findings())
    })
}

/// Six worlds of twenty pods: with nominations the first plan is all that is made, without them somebody needs
/// more.
#[test]
fn pods_go_to_the_nodes_that_were_made_for_them() {
    let without = format!("{CONFIG}nominate_pods = false\n");
    let mut more = 0;
    for seed in 0..6 {
        let (planned, made, findings) = planned_and_made(seed, CONFIG, apart());
        assert_eq!(findings, Vec::<String>::new(), "seed {seed}");
        assert_eq!(made, planned, "seed {seed}: machines made and planned");
        let (planned, made, _) = planned_and_made(seed, &without, apart());
        more += usize::from(made > planned);
    }
    assert!(more > 0, "kube-scheduler's own order would have done");
}

/// Targets and up to three pods behind each that must run on its node, all at once.
fn followed(seed: u64, count: usize) -> Workload {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut target = 0;
    let pod = |number: usize| {
        let follows = number > 0 && number - target <= 3 && rng.random_range(0..3) < 2;
        if !follows {
            target = number;
        }
        let cpu = rng.random_range(2..=30) * 25;
        let memory = rng.random_range(1..=30) * 50;
        let mut object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("pod-{number}"), "labels": {"app": format!("app-{number}")}},
            "spec": {"containers": [{
                "name": "main", "image": "registry.k8s.io/pause:3.10",
                "resources": {"requests": {"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")}},
            }]},
        });
        if follows {
            object["spec"]["affinity"]["podAffinity"] = json!({
                "requiredDuringSchedulingIgnoredDuringExecution": [{
                    "labelSelector": {"matchLabels": {"app": format!("app-{target}")}},
                    "topologyKey": "kubernetes.io/hostname",
                }],
            });
        }
        let path = "/api/v1/namespaces/default/pods".to_owned();
        WorkloadStep {
            at: Span::ZERO,
            act: Act::Create { path, object },
        }
    };
    Workload {
        steps: (0..count).map(pod).collect(),
    }
}

/// The judge's findings, and whether pods do not run twenty minutes after they came, though there is no limit that machines could
/// reach.
pub(crate) async fn left_behind(seed: u64, guests: GuestSpec) -> Vec<String> {
    let scene = roomy(seed, CONFIG, guests);
    tokio::select! {
        biased;
        () = scene.live_on(0, |_| {}) => {}
        () = scene.preside() => {}
        () = scene.play(followed(seed, 40)) => {}
        () = tokio::time::sleep(Duration::from_mins(20)) => {}
    }
    let pods = scene.world.kube.objects("v1", "Pod");
    let waiting = pods
        .iter()
        .filter(|pod| pod["status"]["phase"] != "Running");
    let mut found = scene.findings();
    match waiting.count() {
        0 => {}
        count => found.push(format!("seed {seed}: {count} pods were left behind")),
    }
    found
}

/// A target that kube-scheduler puts on a node which has no room for its followers keeps them waiting for good. So a node on which that
/// could happen takes pods after the target's own, whether guests boot at different times or all at one.
#[test]
fn targets_do_not_leave_their_followers_behind() {
    for seed in 0..6 {
        for guests in [apart(), together()] {
            assert_eq!(simulate(left_behind(seed, guests)), Vec::<String>::new());
        }
    }
}

/// Guests that all boot in the same time.
fn together() -> GuestSpec {
    GuestSpec {
        boot: seconds(20, 20),
        cloud_init: seconds(1, 1),
        preflight: seconds(1, 1),
        ready: seconds(5, 5),
        ..GuestSpec::default()
    }
}

/// All machines boot in the same time, so that their nodes come up together: the first plan is all that is made then, too.
#[test]
fn nodes_that_come_up_together_take_their_own_pods() {
    for seed in 0..6 {
        let (planned, made, findings) = planned_and_made(seed, CONFIG, together());
        assert_eq!(findings, Vec::<String>::new(), "seed {seed}");
        assert_eq!(made, planned, "seed {seed}: machines made and planned");
    }
}

fn pod_at(at: Span, name: &str) -> WorkloadStep {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{
            "name": "main", "image": "registry.k8s.io/pause:3.10",
            "resources": {"requests": {"cpu": "3", "memory": "1Gi"}},
        }]},
    });
    let path = "/api/v1/namespaces/default/pods".to_owned();
    let act = Act::Create { path, object };
    WorkloadStep { at, act }
}

/// Room becomes free for a pod, and kube-scheduler misses that. The pod would be pending for five minutes if nobody brought it back
/// into the queue.
#[test]
fn a_pod_that_kube_scheduler_forgot_is_brought_back() {
    simulate(async {
        let scene = Scene::of(WorldSpec {
            seed: 7,
            pve: PveSpec::default(),
            kube: KubeSpec {
                scheduler_misses_events: true,
                ..KubeSpec::default()
            },
            guests: GuestSpec::default(),
            config: CONFIG.replace("max = 20", "max = 1"),
        });
        let phase = |name: &str| {
            let pods = scene.world.kube.objects("v1", "Pod");
            let pod = pods.iter().find(|pod| pod["metadata"]["name"] == name)?;
            Some(pod["status"]["phase"].as_str()?.to_owned())
        };
        let until = async |name: &str, wanted: Option<&str>| {
            while phase(name).as_deref() != wanted {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            tokio::time::Instant::now()
        };
        let path = "/api/v1/namespaces/default/pods/first".to_owned();
        let steps = vec![
            pod_at(Span::ZERO, "first"),
            pod_at(Span::minutes(5), "second"),
            WorkloadStep {
                at: Span::minutes(7),
                act: Act::Remove { path },
            },
        ];
        let story = async {
            until("first", Some("Running")).await;
            let free = until("first", None).await;
            assert_eq!(phase("second").as_deref(), Some("Pending"));
            until("second", Some("Running")).await - free
        };
        let waited = tokio::select! {
            biased;
            () = scene.live_on(0, |_| {}) => Duration::MAX,
            () = scene.play(Workload { steps }) => Duration::MAX,
            waited = story => waited,
            () = tokio::time::sleep(Duration::from_mins(30)) => panic!("a pod still waits"),
        };
        let right = Duration::from_secs(20)..Duration::from_secs(50);
        assert!(right.contains(&waited), "it ran after {waited:?}");
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

const RBAC: &str = "rbac.authorization.k8s.io";
const TOKEN: &str = "token-of-the-daemon";

/// The daemon's user, who may do all that it does but nominate pods: a cluster with contrib/kubernetes/rbac.yaml of an older version.
fn without_nominations() -> KubeUserSpec {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let rule = |groups: &[&str], resources: &[&str]| PolicyRule {
        verbs: texts(&["*"]),
        api_groups: texts(groups),
        resources: texts(resources),
        ..PolicyRule::default()
    };
    let core = [
        "pods",
        "pods/eviction",
        "nodes",
        "namespaces",
        "events",
        "secrets",
        "configmaps",
        "persistentvolumes",
        "persistentvolumeclaims",
    ];
    let others = [
        "apps",
        "policy",
        "storage.k8s.io",
        "scheduling.k8s.io",
        "node.k8s.io",
        "coordination.k8s.io",
    ];
    KubeUserSpec {
        name: "pve-autoscaler".to_owned(),
        token: TOKEN.to_owned(),
        groups: Vec::new(),
        rules: vec![rule(&[""], &core), rule(&others, &["*"])],
    }
}

/// Somebody applies the newer rbac.yaml.
fn right_is_given(at: Span) -> Vec<WorkloadStep> {
    let name = json!({"name": "nominations"});
    let role = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": name,
        "rules": [{"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}],
    });
    let binding = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": name,
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "nominations"},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "pve-autoscaler"}],
    });
    let both = [("clusterroles", role), ("clusterrolebindings", binding)];
    let both = both.into_iter().map(|(plural, object)| {
        let path = format!("/apis/{RBAC}/v1/{plural}");
        let act = Act::Create { path, object };
        WorkloadStep { at, act }
    });
    both.collect()
}

/// Where the API server refuses nominations, plans do not count on them, and a warning says so, until one passes again.
#[test]
fn plans_count_on_no_nominations_until_one_passes() {
    simulate(async {
        let mut scene = Scene::of(WorldSpec {
            seed: 3,
            pve: PveSpec::default(),
            kube: KubeSpec {
                users: vec![without_nominations()],
                ..KubeSpec::default()
            },
            guests: GuestSpec::default(),
            config: CONFIG.to_owned(),
        });
        scene.world.kube_token = Some(TOKEN.to_owned());
        let refused = || {
            let turn = scene.world.turns.borrow().clone();
            turn.is_some_and(|turn| {
                let warnings = &turn.decision.report.warnings_details;
                let told = warnings
                    .iter()
                    .any(|of| matches!(of, Warning::NominationsRefused));
                assert_eq!(told, turn.snapshot.nominations_refused);
                told
            })
        };
        let until = async |wanted: bool| {
            while refused() != wanted {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            scene.world.turns.borrow().as_ref().map(|turn| turn.at)
        };
        let mut steps = vec![pod_at(Span::ZERO, "first")];
        steps.extend(right_is_given(Span::minutes(10)));
        steps.push(pod_at(Span::minutes(12), "second"));
        let story = async {
            let began = tokio::time::Instant::now();
            until(true).await;
            let told = began.elapsed();
            assert!(told < Duration::from_mins(5), "told after {told:?}");
            tokio::time::sleep(Duration::from_mins(12).saturating_sub(told)).await;
            assert!(refused(), "nothing has passed since");
            until(false).await;
        };
        tokio::select! {
            biased;
            () = scene.live_on(0, |_| {}) => {}
            () = scene.preside() => {}
            () = scene.play(Workload { steps }) => {}
            () = story => {}
            () = tokio::time::sleep(Duration::from_mins(30)) => panic!("nothing passes"),
        }
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}
