//! The kubelet of a simulated machine: registers its node, keeps its lease, reports its status and
//! runs the pods bound to it. One task, one queue of things to do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use super::GuestVm;
use super::api::{Api, Lines};
use super::kubeadm::JoinConfiguration;
use super::node;
use super::spec::{GuestFault, GuestSpec, GuestTraits};
use crate::clock::Clock;
use crate::model::time::{Span, Time};

/// Annotation of a pod: how long it runs before it succeeds, such as `90s`, `5m`.
pub const DURATION: &str = "sim.pve-autoscaler.io/duration";
/// Annotation of a pod: how long it takes to stop; its grace period is an upper bound.
pub const STOPPING: &str = "sim.pve-autoscaler.io/stopping";

/// The kubelet's lease renewal (a quarter of `nodeLeaseDurationSeconds` 40).
const RENEW_EVERY: Duration = Duration::from_secs(10);
/// The kubelet's `nodeStatusReportFrequency`.
const REPORT_EVERY: Duration = Duration::from_mins(5);
/// How long to wait after a refused request.
const RETRY: Duration = Duration::from_secs(1);
/// Registration is tried this often, as often as the kubelet's back-off does within some minutes.
const REGISTRATIONS: u32 = 60;

/// The system UUIDs that kubelets tell instead of their VMs' own, by VMID.
pub(super) type Lies = Arc<Mutex<BTreeMap<u32, String>>>;

/// What the kubelet has to do later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum KubeletTask {
    BecomeReady,
    Renew,
    Report,
    Start,
    Finish,
    Stop,
}

/// A pod in the kubelet's hands.
#[derive(Clone, Debug)]
struct KubeletPod {
    namespace: String,
    name: String,
    running: bool,
    stopping: bool,
    pod: Value,
}

/// A kubelet at work.
pub(super) struct SimKubelet {
    api: Api,
    clock: Clock,
    vm: GuestVm,
    lies: Lies,
    spec: GuestSpec,
    join: JoinConfiguration,
    fate: GuestTraits,
    /// The node's UID since registration.
    uid: String,
    ready: bool,
    moved: Time,
    ready_at: Instant,
    pods: BTreeMap<String, KubeletPod>,
    /// By time, then what, then the pod's UID.
    queue: BTreeSet<(Instant, KubeletTask, String)>,
}

/// A span as written in an annotation: `90s`, `5m`, `1h`, `250ms`.
pub(super) fn span(text: &str) -> Option<Span> {
    let at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(at);
    let number: i64 = number.parse().ok()?;
    Some(Span(number.checked_mul(match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    })?))
}

fn part<'a>(pod: &'a Value, pointer: &str) -> &'a str {
    pod.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

fn annotated(pod: &Value, key: &str) -> Option<Span> {
    span(pod["metadata"]["annotations"][key].as_str()?)
}

impl SimKubelet {
    /// A kubelet that has its certificate.
    pub(super) fn new(
        api: Api,
        clock: Clock,
        (vm, lies): (GuestVm, Lies),
        spec: GuestSpec,
        join: JoinConfiguration,
        fate: GuestTraits,
    ) -> SimKubelet {
        SimKubelet {
            api,
            clock,
            vm,
            lies,
            spec,
            join,
            fate,
            uid: String::new(),
            ready: false,
            moved: clock.now(),
            ready_at: Instant::now(),
            pods: BTreeMap::new(),
            queue: BTreeSet::new(),
        }
    }

    /// The VM as the kubelet tells of it.
    fn told(&self) -> GuestVm {
        let lies = self.lies.lock().unwrap_or_else(PoisonError::into_inner);
        let uuid = lies.get(&self.vm.vmid).unwrap_or(&self.vm.uuid).clone();
        GuestVm {
            uuid,
            ..self.vm.clone()
        }
    }

    fn node_path(&self) -> String {
        format!("/api/v1/nodes/{}", self.join.node)
    }

    /// Registers the node; a node of that name that exists is taken over, as the kubelet does.
    pub(super) async fn register(&mut self) -> Result<(), String> {
        let mut last = String::new();
        for _ in 0..REGISTRATIONS {
            let now = self.clock.now();
            let object =
                node::registration(&self.told(), &self.spec, &self.join, self.fate.fault, now);
            let made = match self.api.post("/api/v1/nodes", &object).await {
                Err(error) if error.code == 409 => {
                    let status = json!({"status": object["status"]});
                    self.api
                        .patch(&format!("{}/status", self.node_path()), &status)
                        .await
                }
                other => other,
            };
            match made {
                Ok(node) => {
                    part(&node, "/metadata/uid").clone_into(&mut self.uid);
                    self.announce_driver().await;
                    return Ok(());
                }
                Err(error) => last = error.to_string(),
            }
            tokio::time::sleep(RETRY).await;
        }
        Err(last)
    }

    /// The CSI driver of the cluster runs on every node.
    async fn announce_driver(&self) {
        let object = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
            "metadata": {"name": self.join.node, "ownerReferences": [self.owner()]},
            "spec": {"drivers": [{
                "name": "csi.sim.pve-autoscaler.io", "nodeID": self.join.node,
                "topologyKeys": null, "allocatable": {"count": 24},
            }]},
        });
        // One that is left from before the reboot is as good.
        let _ = self
            .api
            .post("/apis/storage.k8s.io/v1/csinodes", &object)
            .await;
    }

    fn owner(&self) -> Value {
        json!({"apiVersion": "v1", "kind": "Node", "name": self.join.node, "uid": self.uid})
    }

    /// Works until its task is dropped.
    pub(super) async fn run(mut self) {
        let now = Instant::now();
        if self.fate.fault != Some(GuestFault::NeverReady) {
            self.ready_at = now + self.fate.ready.to_std();
            self.put(self.ready_at, KubeletTask::BecomeReady, "");
        }
        self.put(now, KubeletTask::Renew, "");
        self.put(now + REPORT_EVERY, KubeletTask::Report, "");
        loop {
            let Some(mut watch) = self.list().await else {
                self.pass(RETRY).await;
                continue;
            };
            self.follow(&mut watch).await;
        }
    }

    fn put(&mut self, at: Instant, task: KubeletTask, pod: &str) {
        self.queue.insert((at, task, pod.to_owned()));
    }

    /// Does what falls due during a pause.
    async fn pass(&mut self, pause: Duration) {
        let end = Instant::now() + pause;
        while let Some((at, ..)) = self.queue.first().filter(|(at, ..)| *at <= end) {
            tokio::time::sleep_until(*at).await;
            self.next_task().await;
        }
        tokio::time::sleep_until(end).await;
    }

    /// Lists the node's pods and opens a watch from there.
    async fn list(&mut self) -> Option<Lines> {
        let selector = format!("fieldSelector=spec.nodeName%3D{}", self.join.node);
        let list = self
            .api
            .get(&format!("/api/v1/pods?{selector}"))
            .await
            .ok()?;
        let mut seen = BTreeSet::new();
        for pod in list["items"].as_array()? {
            seen.insert(part(pod, "/metadata/uid").to_owned());
            self.notice(pod);
        }
        self.pods.retain(|uid, _| seen.contains(uid));
        let version = part(&list, "/metadata/resourceVersion");
        let path = format!("/api/v1/pods?watch=true&{selector}&resourceVersion={version}");
        self.api.watch(&path).await.ok()
    }

    async fn follow(&mut self, watch: &mut Lines) {
        loop {
            let due = self
                .queue
                .first()
                .map_or_else(|| Instant::now() + RENEW_EVERY, |(at, ..)| *at);
            tokio::select! {
                biased;
                event = watch.next() => match event {
                    Some(event) if event["type"] == "DELETED" => {
                        self.pods.remove(part(&event, "/object/metadata/uid"));
                    }
                    Some(event) if event["type"] != "ERROR" => self.notice(&event["object"]),
                    _ => return,
                },
                () = tokio::time::sleep_until(due) => self.next_task().await,
            }
        }
    }

    /// Looks at a pod and plans what it needs.
    fn notice(&mut self, pod: &Value) {
        let uid = part(pod, "/metadata/uid").to_owned();
        let now = Instant::now();
        let fresh = !self.pods.contains_key(&uid);
        let phase = part(pod, "/status/phase").to_owned();
        let held = self.pods.entry(uid.clone()).or_insert_with(|| KubeletPod {
            namespace: part(pod, "/metadata/namespace").to_owned(),
            name: part(pod, "/metadata/name").to_owned(),
            running: phase == "Running",
            stopping: false,
            pod: Value::Null,
        });
        held.pod = pod.clone();
        let deleting = !part(pod, "/metadata/deletionTimestamp").is_empty();
        if deleting && !held.stopping {
            held.stopping = true;
            let grace = pod["metadata"]["deletionGracePeriodSeconds"]
                .as_i64()
                .unwrap_or(0);
            let own =
                annotated(pod, STOPPING).unwrap_or_else(|| self.fate.span(self.spec.pod_stop));
            let wait = own.min(Span::seconds(grace));
            self.put(now + wait.to_std(), KubeletTask::Stop, &uid);
        } else if fresh && !deleting && phase == "Pending" {
            let daemon = pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet";
            let from = if daemon { now } else { now.max(self.ready_at) };
            let never = self.fate.fault == Some(GuestFault::NeverReady) && !daemon;
            let wait = self.fate.span(self.spec.pod_start);
            if !never {
                self.put(from + wait.to_std(), KubeletTask::Start, &uid);
            }
        } else if fresh && phase == "Running" {
            // The machine was rebooted: the pod's containers start again.
            self.plan_finish(&uid, pod);
        }
    }

    fn plan_finish(&mut self, uid: &str, pod: &Value) {
        if let Some(span) = annotated(pod, DURATION)
            && part(pod, "/spec/restartPolicy") != "Always"
        {
            self.put(Instant::now() + span.to_std(), KubeletTask::Finish, uid);
        }
    }

    async fn next_task(&mut self) {
        let Some((at, task, uid)) = self.queue.pop_first() else {
            return;
        };
        match task {
            KubeletTask::BecomeReady => {
                self.ready = true;
                self.moved = self.clock.now();
                self.report().await;
            }
            KubeletTask::Renew => {
                self.put(at + RENEW_EVERY, KubeletTask::Renew, "");
                self.renew().await;
            }
            KubeletTask::Report => {
                self.put(at + REPORT_EVERY, KubeletTask::Report, "");
                self.report().await;
            }
            KubeletTask::Start => self.start(&uid).await,
            KubeletTask::Finish => self.finish(&uid).await,
            KubeletTask::Stop => self.stop(&uid).await,
        }
    }

    async fn report(&self) {
        let mut status = node::status(&self.told(), &self.spec, &self.join, self.fate.fault);
        status["conditions"] = node::conditions(self.ready, self.moved, self.clock.now());
        let path = format!("{}/status", self.node_path());
        // A node that was deleted stays so: the kubelet registers at its start alone.
        let _ = self.api.patch(&path, &json!({"status": status})).await;
    }

    async fn renew(&self) {
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        let path = format!("{leases}/{}", self.join.node);
        let time = node::micro_stamp(self.clock.now());
        let patch = json!({"spec": {"renewTime": time, "holderIdentity": self.join.node}});
        let Err(error) = self.api.merge(&path, &patch).await else {
            return;
        };
        if error.code == 404 && self.api.get(&self.node_path()).await.is_ok() {
            let object = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {
                    "name": self.join.node, "namespace": "kube-node-lease",
                    "ownerReferences": [self.owner()],
                },
                "spec": {
                    "holderIdentity": self.join.node, "leaseDurationSeconds": 40,
                    "renewTime": time,
                },
            });
            let _ = self.api.post(leases, &object).await;
        }
    }

    fn pod_path(held: &KubeletPod) -> String {
        format!("/api/v1/namespaces/{}/pods/{}", held.namespace, held.name)
    }

    async fn start(&mut self, uid: &str) {
        let Some(held) = self.pods.get_mut(uid).filter(|h| !h.stopping && !h.running) else {
            return;
        };
        held.running = true;
        let held = held.clone();
        let now = node::micro_stamp(self.clock.now());
        let seconds = format!("{}Z", &now[..19]);
        let condition =
            |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": seconds});
        let containers: Vec<Value> = held.pod["spec"]["containers"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|c| {
                json!({
                    "name": c["name"], "image": c["image"], "imageID": "", "ready": true,
                    "started": true, "restartCount": 0,
                    "state": {"running": {"startedAt": seconds}},
                })
            })
            .collect();
        let status = json!({"metadata": {"uid": uid}, "status": {
            "phase": "Running",
            "startTime": seconds,
            "hostIP": node::internal(&self.vm, &self.join).first(),
            "podIP": format!("10.244.{}.{}", self.vm.vmid % 250, self.pods.len() % 250 + 2),
            "conditions": [
                condition("Initialized"), condition("Ready"), condition("ContainersReady"),
                condition("PodReadyToStartContainers"),
            ],
            "containerStatuses": containers,
        }});
        let path = format!("{}/status", SimKubelet::pod_path(&held));
        if self.api.patch(&path, &status).await.is_ok() {
            self.plan_finish(uid, &held.pod);
        }
    }

    async fn finish(&mut self, uid: &str) {
        let Some(held) = self.pods.get(uid).filter(|h| !h.stopping).cloned() else {
            return;
        };
        let no = |kind: &str| json!({"type": kind, "status": "False", "reason": "PodCompleted"});
        let status = json!({"metadata": {"uid": uid}, "status": {
            "phase": "Succeeded",
            "conditions": [no("Ready"), no("ContainersReady")],
        }});
        let path = format!("{}/status", SimKubelet::pod_path(&held));
        let _ = self.api.patch(&path, &status).await;
    }

    async fn stop(&mut self, uid: &str) {
        let Some(held) = self.pods.get(uid).cloned() else {
            return;
        };
        let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
        let _ = self
            .api
            .delete(&SimKubelet::pod_path(&held), &options)
            .await;
    }
}
