//! Leaving, on the simulator: a machine that the real daemon brought up is taken down by the executor
//! alone, while something hinders it.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use rand::{SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::controller::state::StateFiles;
use crate::controller::{journal::Journal, region::Doubts};
use crate::kubernetes::nodes::EXCLUDED;
use crate::kubernetes::{ClusterStore, KubeClient, Unobserved, in_memory, watch};
use crate::model::action::{NodeRef, Precondition, Reason, Target};
use crate::model::cluster::ObjectKey;
use crate::model::policy::LEAVING_TAINT;
use crate::model::time::Span;
use crate::pve::transport::{Transport, memory::RouterTransport};
use crate::sim::pve::{AdminAct, PveSpec};
use crate::sim::world::{World, WorldSpec};
use crate::sim::{guests::GuestSpec, kube::KubeSpec, workload::Workload, workload::WorkloadPods};
mod asking;
mod beginning;
mod damaged;
mod opening;

const DELAY: &str = "delay-deletion.cluster-autoscaler.kubernetes.io/ingress";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

/// Scale-down is off: nothing leaves but by the test's hand.
const CONFIG: &str = "
version = 1
[kubernetes]
name = \"test\"
[proxmox]
vmids = \"9100-9120\"
[template.debian]
vmid = 9000
[instance_type.small]
cores = 2
memory = \"4GiB\"
disk = \"20GiB\"
[pool.general]
template = \"debian\"
instance_types = [\"small\"]
max = 3
drain = { timeout = \"1m\", detach_timeout = \"1m\" }
[scale_down]
enabled = false
";

/// Machines in service, and what takes them down.
pub(super) struct Lab {
    pub(super) world: World,
    pub(super) tools: Tools,
    /// Removals of the machines, in the order of their names.
    pub(super) removals: Vec<Action>,
    _state: tempfile::TempDir,
}

pub(super) fn simulate<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime")
        .block_on(future)
}

/// One machine with one pod `web-…`.
pub(super) async fn lab(scale_down: &str) -> Lab {
    machines(1, scale_down, |router| router).await
}

/// `count` machines with a pod each. `way` lies between the executor and Kubernetes.
async fn machines(count: u32, scale_down: &str, way: impl FnOnce(Router) -> Router) -> Lab {
    made(count, scale_down, Span::seconds(4), way).await
}

async fn made(
    count: u32,
    scale_down: &str,
    detach_latency: Span,
    way: impl FnOnce(Router) -> Router,
) -> Lab {
    let kube = KubeSpec {
        keep_trace: true,
        detach_latency,
        ..KubeSpec::default()
    };
    let world = World::new(WorldSpec {
        seed: 5,
        pve: PveSpec::default(),
        kube,
        guests: GuestSpec::default(),
        config: format!("{CONFIG}{scale_down}"),
    });
    let world = world.unwrap_or_else(|errors| panic!("{errors}"));
    let state = tempfile::tempdir().expect("a directory");
    let workload = Workload::visit(
        "web",
        count,
        WorkloadPods::of("1500m", "1Gi"),
        Span::minutes(60),
    );
    tokio::select! {
        biased;
        _ = world.daemon(state.path(), None, 0) => panic!("the daemon ended"),
        _ = workload.play(world.kube.router()) => panic!("the workload ended"),
        () = tokio::time::sleep(Duration::from_mins(3)) => {}
    }
    let tools = tools(&world, state.path(), way(world.kube_way())).await;
    let removals = removals(&world);
    assert_eq!(removals.len(), count as usize, "machines in service");
    Lab {
        world,
        tools,
        removals,
        _state: state,
    }
}

async fn tools(world: &World, state: &std::path::Path, way: Router) -> Tools {
    let kube = KubeClient::new(in_memory(way), world.clock, Arc::new(Unobserved)).await;
    let store = ClusterStore::new();
    tokio::spawn(watch::watch(kube.clone(), store.clone(), 1));
    let pve: Arc<dyn Transport> = Arc::new(RouterTransport::new(world.pve_way()));
    let region = world.settings.regions.keys().next().expect("a region");
    let files = StateFiles::open(state).expect("it opens");
    let (journal, unreadable) = Journal::open(&files.journal()).expect("it opens");
    assert!(unreadable.is_empty());
    Tools {
        clock: world.clock,
        settings: world.settings.clone(),
        pve: BTreeMap::from([(region.clone(), crate::pve::Client::new(pve))]),
        kube,
        store,
        journal,
        random: Arc::new(Mutex::new(StdRng::seed_from_u64(1))),
        observer: Arc::new(Nothing),
        clones: CloneLimits::default(),
        task_times: TaskTimes::default(),
        agent_pings: ConcurrencyLimits::default(),
        nominations: crate::controller::nominations::PodNominator::default(),
        wire: world.wire_way(),
        doubts: Doubts::default(),
        active_tasks: Arc::default(),
        waits: super::ActionWaits::default(),
        works: Arc::default(),
    }
}

/// What the brain would plan for the machines that it sees.
fn removals(world: &World) -> Vec<Action> {
    let turn = world.turns.borrow().clone().expect("it took turns");
    let seen = &turn.snapshot;
    let removal = |(name, machine): (&Arc<str>, &Machine)| {
        let node = machine.node.clone().expect("it is in service");
        let uid = seen.cluster.nodes[&node].uid.clone();
        let pods = seen.cluster.pods.iter();
        let pods = pods.filter(|(_, pod)| pod.node.as_ref() == Some(&node));
        Action {
            version: crate::model::action::VERSION,
            kind: Kind::Remove { drain: true },
            target: Target {
                region: machine.region.clone(),
                host: machine.host.clone(),
                vmid: machine.mark.vmid,
                machine: name.clone(),
                node: Some(NodeRef {
                    name: node.clone(),
                    uid,
                }),
            },
            precondition: Precondition {
                pods: pods.map(|(key, _)| key.clone()).collect(),
                ..Precondition::default()
            },
            reason: Reason::NotWanted,
        }
    };
    seen.machines.iter().map(removal).collect()
}

impl Lab {
    /// One call to the API server by its administrator.
    pub(super) async fn api(&self, method: &str, path: &str, body: Value) -> Value {
        let media = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", media)
            .body(if method == "GET" {
                Body::empty()
            } else {
                Body::from(body.to_string())
            });
        let router = self.world.kube.router();
        let answer = router.oneshot(request.expect("a request")).await;
        let (head, body) = answer.expect("an answer").into_parts();
        let body = axum::body::to_bytes(body, 1 << 20).await.expect("a body");
        let text = String::from_utf8_lossy(&body);
        assert!(head.status.is_success(), "{method} {path}: {text}");
        serde_json::from_str(&text).expect("JSON")
    }

    /// Takes a machine down, if nothing hinders it, and says how long it took.
    pub(super) async fn remove(&self, index: usize) -> (Result<(), Failure>, Duration) {
        let action = self.removals[index].clone();
        let entry = self.tools.journal.get(&action.target.machine);
        let began = tokio::time::Instant::now();
        let ended = Box::pin(perform(self.tools.clone(), action, entry)).await;
        (ended.result, began.elapsed())
    }

    /// Takes the first machine down, as `remove` does, while something happens after so many seconds.
    pub(super) async fn remove_while(
        &self,
        after: u64,
        act: impl Future<Output = ()>,
    ) -> (Result<(), Failure>, Duration) {
        let act = async {
            tokio::time::sleep(Duration::from_secs(after)).await;
            act.await;
        };
        tokio::join!(self.remove(0), act).0
    }

    pub(super) fn node_path(&self, index: usize) -> String {
        let node = self.removals[index].target.node.as_ref();
        format!("/api/v1/nodes/{}", node.expect("a node").name)
    }

    async fn annotate(&self, key: &str, value: Value) {
        let patch = json!({ "metadata": { "annotations": { key: value } } });
        self.api("PATCH", &self.node_path(0), patch).await;
    }

    /// The node works on as if nothing had been.
    pub(super) async fn in_service(&self, index: usize) {
        let node = self.api("GET", &self.node_path(index), Value::Null).await;
        assert_ne!(node["spec"]["unschedulable"], true);
        let taints = node["spec"]["taints"].as_array().into_iter().flatten();
        let keys: Vec<_> = taints.map(|taint| taint["key"].clone()).collect();
        assert!(!keys.contains(&json!(LEAVING_TAINT)), "{keys:?}");
        assert_eq!(node["metadata"]["labels"][EXCLUDED], Value::Null);
        let vm = self.world.pve.vm(self.removals[index].target.vmid);
        assert!(vm.is_some_and(|vm| vm.running));
        let entry = self.tools.journal.get(&self.removals[index].target.machine);
        assert_eq!(entry.map(|entry| entry.step), Some(Step::Done));
    }

    /// Nothing is left of the machine.
    pub(super) fn gone(&self, index: usize) {
        let target = &self.removals[index].target;
        assert_eq!(self.world.pve.vm(target.vmid), None);
        let nodes = self.world.kube.objects("v1", "Node");
        let names: Vec<_> = nodes.iter().map(|n| &n["metadata"]["name"]).collect();
        assert!(!names.contains(&&json!(&*target.machine)), "{names:?}");
        assert_eq!(self.tools.journal.get(&target.machine), None);
    }

    /// Lines of the API server's trace about evictions of pods whose name begins so.
    fn evictions(&self, name: &str) -> usize {
        let (_, lines) = self.world.kube.trace();
        let asked = lines.iter().filter(|line| {
            line.contains("POST")
                && line.contains(&format!("/pods/{name}"))
                && line.contains("/eviction")
        });
        asked.count()
    }

    /// A DaemonSet, with a running pod on every node.
    async fn daemon(&self, name: &str, annotations: Value) {
        self.daemon_of(name, annotations, json!([])).await;
    }

    /// A DaemonSet whose pods have volumes.
    async fn daemon_of(&self, name: &str, annotations: Value, volumes: Value) {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": name },
            "spec": { "selector": { "matchLabels": { "app": name } }, "template": {
                "metadata": { "labels": { "app": name }, "annotations": annotations },
                "spec": { "containers": [{ "name": "c", "image": "c" }], "volumes": volumes } } },
        });
        self.api("POST", DAEMON_SETS, object).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
    }

    /// A StatefulSet's pod with a volume, known to the plan.
    async fn database(&mut self) {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "db" },
            "spec": { "replicas": 1, "serviceName": "db", "selector": { "matchLabels": { "app": "db" } },
                "template": { "metadata": { "labels": { "app": "db" } },
                    "spec": { "containers": [{ "name": "c", "image": "c" }] } },
                "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": {
                    "storageClassName": "standard", "accessModes": ["ReadWriteOnce"],
                    "resources": { "requests": { "storage": "1Gi" } } } }] },
        });
        let sets = "/apis/apps/v1/namespaces/default/statefulsets";
        self.api("POST", sets, object).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(self.attachments(), 1, "its volume is attached");
        let pods = &mut self.removals[0].precondition.pods;
        pods.push(ObjectKey::new("default", "db-0"));
    }

    fn attachments(&self) -> usize {
        let all = self
            .world
            .kube
            .objects("storage.k8s.io/v1", "VolumeAttachment");
        all.len()
    }

    /// A budget that never lets a pod of this app go.
    async fn budget(&self, app: &str) {
        let object = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": app },
            "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": app } } },
        });
        self.api("POST", BUDGETS, object).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
    }

    /// The workload goes, so that the node is empty, and the plan knows that.
    async fn emptied(&mut self) {
        self.api("DELETE", &format!("{DEPLOYMENTS}/web"), json!({}))
            .await;
        tokio::time::sleep(Duration::from_secs(40)).await;
        for removal in &mut self.removals {
            removal.precondition.pods.clear();
        }
    }
}

#[test]
fn a_machine_leaves_and_nothing_is_left() {
    simulate(async {
        let lab = lab("").await;
        let (result, _) = lab.remove(0).await;
        assert_eq!(result, Ok(()));
        lab.gone(0);
        assert_eq!(lab.evictions("web-"), 1);
    });
}

#[test]
fn tm_10_tm_14_the_node_is_out_of_the_balancers_before_the_eviction_and_waits_a_while() {
    simulate(async {
        let lab = lab("").await;
        let look = async {
            let node = lab.api("GET", &lab.node_path(0), Value::Null).await;
            assert_eq!(node["metadata"]["labels"][EXCLUDED], "pve-autoscaler");
            assert_eq!(node["spec"]["unschedulable"], true);
            assert_eq!(
                lab.evictions("web-"),
                0,
                "evicted within the first four seconds"
            );
        };
        let (result, took) = lab.remove_while(4, look).await;
        assert_eq!(result, Ok(()));
        assert!(took >= Duration::from_secs(5));
    });
}

#[test]
fn tm_11_a_vm_runs_until_its_volumes_are_let_go() {
    simulate(async {
        let mut lab = made(1, "", Span::seconds(40), |router| router).await;
        lab.database().await;
        let look = async {
            // The pods went within the first quarter of a minute; the volume hangs on.
            assert_eq!(lab.evictions("db-"), 1);
            assert_eq!(lab.attachments(), 1);
            let vm = lab.world.pve.vm(lab.removals[0].target.vmid);
            assert!(vm.is_some_and(|vm| vm.running));
        };
        let (result, took) = lab.remove_while(30, look).await;
        assert_eq!(result, Ok(()));
        assert!(took > Duration::from_secs(40), "{took:?}");
        lab.gone(0);
    });
}

#[test]
fn tm_11_a_volume_that_is_not_let_go_ends_the_removal() {
    simulate(async {
        let mut lab = made(1, "", Span::minutes(10), |router| router).await;
        lab.database().await;
        let (result, _) = lab.remove(0).await;
        let failure = result.expect_err("the volume hangs on");
        assert_eq!(failure.step, Step::Detach);
        assert!(
            failure.message.contains("volumes are still attached: pvc-"),
            "{failure:?}"
        );
        lab.in_service(0).await;
    });
}

#[test]
fn a_daemon_sets_pod_that_may_not_go_does_not_hold_the_node_by_its_volume() {
    simulate(async {
        let lab = lab("").await;
        let template = json!({ "spec": { "storageClassName": "standard", "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } } } });
        let volumes =
            json!([{ "name": "cache", "ephemeral": { "volumeClaimTemplate": template } }]);
        lab.daemon_of("d1", json!({}), volumes).await;
        lab.budget("d1").await;
        assert_eq!(lab.attachments(), 1, "its volume is attached");
        let (result, took) = lab.remove(0).await;
        assert_eq!(result, Ok(()));
        assert!(took < Duration::from_mins(1), "{took:?}");
        // It was asked once, and refused.
        assert_eq!((lab.evictions("d1-"), lab.evictions("web-")), (1, 1));
        lab.gone(0);
    });
}

#[test]
fn tm_12_without_a_vm_nothing_is_drained() {
    simulate(async {
        let lab = lab("").await;
        let vmid = lab.removals[0].target.vmid;
        let destroyed = lab.world.pve.administer(&AdminAct::Destroy { vmid });
        destroyed.expect("it is there");
        tokio::time::sleep(Duration::from_mins(1)).await;
        let (result, took) = lab.remove(0).await;
        assert_eq!(result, Ok(()));
        assert!(took < Duration::from_secs(3), "it took {took:?}");
        assert_eq!(lab.evictions("web-"), 0);
        lab.gone(0);
    });
}

#[test]
fn a_vm_that_somebody_gave_to_the_ha_manager_is_shut_down_by_it_and_goes() {
    simulate(async {
        let lab = lab("").await;
        let vmid = lab.removals[0].target.vmid;
        let state = Some("started".to_owned());
        let given = lab.world.pve.administer(&AdminAct::Ha { vmid, state });
        given.expect("it is there");
        let (result, _) = lab.remove(0).await;
        assert_eq!(result, Ok(()));
        lab.gone(0);
        let changes = lab.world.pve.changes();
        let stops = changes.iter().filter(|change| change.vmid == vmid);
        let stops: Vec<&str> = stops.map(|change| &*change.what).collect();
        assert!(stops.contains(&"shutdown"), "{stops:?}");
        assert!(!stops.contains(&"stop"), "{stops:?}");
    });
}

#[test]
fn a_vm_that_a_person_protects_stays_in_service() {
    simulate(async {
        let lab = lab("").await;
        let vmid = lab.removals[0].target.vmid;
        let protection = |value: Option<&str>| {
            let act = AdminAct::Configure {
                vmid,
                key: "protection".to_owned(),
                value: value.map(str::to_owned),
            };
            lab.world.pve.administer(&act).expect("it is there");
        };
        protection(Some("1"));
        let (result, _) = lab.remove(0).await;
        let failure = result.expect_err("it is kept");
        assert!(failure.message.contains("protected"), "{failure:?}");
        assert_eq!(lab.evictions("web-"), 0);
        lab.in_service(0).await;
        protection(None);
        assert_eq!(lab.remove(0).await.0, Ok(()));
        lab.gone(0);
    });
}

#[test]
fn tm_17_a_pod_that_may_not_go_ends_the_drain_and_is_named() {
    simulate(async {
        let lab = lab("").await;
        lab.budget("web").await;
        let (result, took) = lab.remove(0).await;
        let failure = result.expect_err("the budget holds");
        assert_eq!(failure.step, Step::Drain);
        assert!(failure.message.contains("default/web-"), "{failure:?}");
        assert!(failure.message.contains("budget"), "{failure:?}");
        assert!(took >= Duration::from_secs(59), "given up after {took:?}");
        assert!(lab.evictions("web-") > 5, "it was not tried again");
        lab.in_service(0).await;
    });
}

#[test]
fn tm_18_a_daemon_sets_pod_that_may_not_go_does_not_hold_the_drain() {
    simulate(async {
        let lab = lab("").await;
        lab.daemon("held", json!({})).await;
        lab.budget("held").await;
        let (result, _) = lab.remove(0).await;
        assert_eq!(result, Ok(()));
        assert_eq!((lab.evictions("held-"), lab.evictions("web-")), (1, 1));
        lab.gone(0);
    });
}

#[test]
fn tm_20_pods_of_daemon_sets_go_from_empty_nodes_as_is_configured_and_annotated() {
    let key = "cluster-autoscaler.kubernetes.io/enable-ds-eviction";
    let on = "daemonset_eviction_for_empty_nodes = true\n";
    for (config, annotation, evicted) in [
        (on, json!({}), (1, 1)),
        ("", json!({}), (0, 0)),
        ("", json!({ key: "true" }), (1, 0)),
        (on, json!({ key: "false" }), (0, 1)),
    ] {
        simulate(async {
            let mut lab = lab(config).await;
            lab.emptied().await;
            lab.daemon("d1", annotation.clone()).await;
            lab.daemon("d2", json!({})).await;
            let (result, _) = lab.remove(0).await;
            assert_eq!(result, Ok(()));
            let asked = (lab.evictions("d1-"), lab.evictions("d2-"));
            assert_eq!(asked, evicted, "{config:?} {annotation}");
        });
    }
}

/// Refuses every change of one node.
async fn refuse(
    axum::extract::State(node): axum::extract::State<Arc<Mutex<String>>>,
    request: axum::extract::Request,
    next: axum::middleware::Next,
) -> axum::response::Response {
    let held = node.lock().expect("a lock").clone();
    if request.method() == http::Method::PATCH && request.uri().path() == held {
        let status = json!({ "kind": "Status", "status": "Failure", "code": 403,
            "reason": "Forbidden", "message": "not this node" });
        let mut response = axum::response::Response::new(Body::from(status.to_string()));
        *response.status_mut() = http::StatusCode::FORBIDDEN;
        return response;
    }
    next.run(request).await
}

/// Cluster-autoscaler taints a batch and undoes all of it when one fails. Ours are no batch: what
/// hinders one removal makes no other one wrong, as no machine's pods count on another that goes.
#[test]
fn tm_21_a_node_that_cannot_be_tainted_stays_and_holds_up_no_other() {
    simulate(async {
        let held = Arc::new(Mutex::new(String::new()));
        let way = axum::middleware::from_fn_with_state(held.clone(), refuse);
        let lab = machines(2, "", |router| router.layer(way)).await;
        *held.lock().expect("a lock") = lab.node_path(1);
        let ((first, _), (second, _)) = tokio::join!(lab.remove(0), lab.remove(1));
        assert_eq!(first, Ok(()));
        lab.gone(0);
        let failure = second.expect_err("its node cannot be tainted");
        assert!(failure.message.contains("not this node"), "{failure:?}");
        lab.in_service(1).await;
    });
}

#[test]
fn tm_22_a_pod_that_came_to_an_empty_node_ends_the_removal() {
    simulate(async {
        let mut lab = lab("").await;
        lab.removals[0].precondition.pods.clear();
        let (result, _) = lab.remove(0).await;
        let failure = result.expect_err("a pod is there");
        assert!(failure.transient, "{failure:?}");
        assert!(failure.message.contains("came after"), "{failure:?}");
        assert_eq!(lab.evictions("web-"), 0);
        lab.in_service(0).await;
        // Known to the next plan, it moves.
        let pods = lab.world.kube.objects("v1", "Pod");
        let web = pods.iter().map(|pod| pod["metadata"]["name"].as_str());
        let web = web.flatten().find(|name| name.starts_with("web-"));
        let key = ObjectKey::new("default", web.expect("it is there"));
        lab.removals[0].precondition.pods = vec![key];
        assert_eq!(lab.remove(0).await.0, Ok(()));
    });
}

#[test]
fn a_node_that_is_uncordoned_before_the_first_eviction_keeps_its_pods() {
    simulate(async {
        let lab = lab("").await;
        let back = async {
            let open = json!({ "spec": { "unschedulable": null } });
            lab.api("PATCH", &lab.node_path(0), open).await;
        };
        let (result, _) = lab.remove_while(3, back).await;
        let failure = result.expect_err("somebody wants it back");
        assert!(failure.message.contains("uncordoned"), "{failure:?}");
        assert_eq!(lab.evictions("web-"), 0);
        lab.in_service(0).await;
    });
}

#[test]
fn a_node_that_is_uncordoned_while_a_budget_or_a_volume_holds_it_is_in_service_again() {
    let back = async |lab: &Lab| {
        let open = async {
            let open = json!({ "spec": { "unschedulable": null } });
            lab.api("PATCH", &lab.node_path(0), open).await;
        };
        let (result, took) = lab.remove_while(30, open).await;
        let failure = result.expect_err("somebody wants it back");
        assert!(failure.message.contains("uncordoned"), "{failure:?}");
        assert!(took < Duration::from_secs(45), "{took:?}");
        lab.in_service(0).await;
    };
    simulate(async {
        let lab = lab("").await;
        lab.budget("web").await;
        back(&lab).await;
        assert!(lab.evictions("web-") > 0, "it was being drained");
    });
    simulate(async {
        let mut lab = made(1, "", Span::minutes(10), |router| router).await;
        lab.database().await;
        back(&lab).await;
        assert_eq!(lab.attachments(), 1, "its volume was waited for");
    });
}

#[test]
fn a_vm_that_a_person_protects_after_the_drain_is_not_destroyed() {
    simulate(async {
        let lab = lab("").await;
        let vmid = lab.removals[0].target.vmid;
        let lock = |lock: Option<&str>| {
            let lock = lock.map(str::to_owned);
            let act = AdminAct::Lock { vmid, lock };
            lab.world.pve.administer(&act).expect("it is there");
        };
        lock(Some("backup"));
        let protect = async {
            let act = AdminAct::Configure {
                vmid,
                key: "protection".to_owned(),
                value: Some("1".to_owned()),
            };
            lab.world.pve.administer(&act).expect("it is there");
            lock(None);
        };
        let (result, _) = lab.remove_while(60, protect).await;
        let failure = result.expect_err("it is kept");
        let why = "somebody wants to keep it";
        assert!(failure.message.contains(why), "{failure:?}");
        let vm = lab.world.pve.vm(vmid).expect("it is there");
        assert_eq!(vm.config.get("protection").map(String::as_str), Some("1"));
    });
}

#[test]
fn tm_24_a_node_waits_for_those_who_ask_it_to() {
    simulate(async {
        let lab = lab("").await;
        let (result, plain) = lab.remove(0).await;
        assert_eq!(result, Ok(()));
        let around = |limit: u64| {
            let least = plain + Duration::from_secs(limit - 15);
            least..least + Duration::from_secs(30)
        };
        let lab = self::lab("").await;
        lab.annotate(DELAY, json!("true")).await;
        let (result, kept) = lab.remove(0).await;
        assert_eq!(result, Ok(()));
        assert!(around(120).contains(&kept), "{plain:?} {kept:?}");

        let lab = self::lab("").await;
        lab.annotate(DELAY, json!("true")).await;
        let taken_off = lab.annotate(DELAY, Value::Null);
        let (result, taken) = lab.remove_while(60, taken_off).await;
        assert_eq!(result, Ok(()));
        let range = Duration::from_mins(1)..plain + Duration::from_secs(70);
        assert!(range.contains(&taken), "{plain:?} {taken:?}");

        let lab = self::lab("node_deletion_delay_timeout = \"0s\"\n").await;
        lab.annotate(DELAY, json!("true")).await;
        let (result, off) = lab.remove(0).await;
        assert_eq!(result, Ok(()));
        assert!(off < plain + Duration::from_secs(5), "{plain:?} {off:?}");
    });
}
