//! What kube-controller-manager does, as far as a node autoscaler meets it. One task turns through
//! all controllers in a fixed order whenever something changed or a timer rang.

mod budget;
mod daemonset;
mod deployment;
mod garbage;
mod job;
mod nodes;
mod statefulset;

pub(super) use daemonset::prototype as daemon_pod;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::{Value, json};

use super::auth::User;
use super::bell::BellListener;
use super::object::{controller, map, namespace, owner_reference, set, text};
use super::resources::{
    CONFIGMAPS, CSICAPACITIES, CSIDRIVERS, CSINODES, CSRS, DAEMONSETS, DEPLOYMENTS, JOBS,
    NAMESPACES, NODES, PDBS, PODS, PVCS, PVS, REPLICASETS, Res, SECRETS, STATEFULSETS,
    STORAGECLASSES, VOLUMEATTACHMENTS,
};
use super::scheduler::Scheduler;
use super::store::State;
use super::{KubeInner, bootstrap, verbs, volumes};
use crate::model::time::{Span, Time};

/// How long the controllers take to notice a change: what arrives meanwhile is seen in one turn.
const NOTICE: Duration = Duration::from_millis(5);
/// What the scheduler reads: where none of it changed, no pod fits now that did not fit before.
const SCHEDULER_READS: &[Res] = &[
    PODS,
    NODES,
    PVCS,
    PVS,
    NAMESPACES,
    STORAGECLASSES,
    CSINODES,
    CSIDRIVERS,
    CSICAPACITIES,
    VOLUMEATTACHMENTS,
];
/// kube-controller-manager's `--node-monitor-period`.
const MONITOR_PERIOD: Span = Span::seconds(5);
/// How often expired certificate requests and orphaned pods are looked for.
const GARBAGE_PERIOD: Span = Span::seconds(20);
/// Most pods that one workload makes in one turn (`BurstReplicas`).
const BURST: usize = 500;

/// Starts the controllers of a cluster; they end with it.
pub(super) fn start(inner: &Arc<KubeInner>) {
    let weak = Arc::downgrade(inner);
    let bell = inner.lock().any_bell();
    tokio::spawn(run(weak, bell));
}

async fn run(weak: Weak<KubeInner>, mut bell: BellListener) {
    let mut controllers = Controllers::default();
    loop {
        bell.hear();
        let Some(inner) = weak.upgrade() else { return };
        let next = controllers.turn(&inner);
        let wait = next.since(inner.clock.now()).to_std().max(NOTICE);
        drop(inner);
        tokio::select! {
            biased;
            changed = bell.changed() => {
                if !changed {
                    return;
                }
                tokio::time::sleep(NOTICE).await;
            }
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Pods by the UID of their controller.
type Owned = BTreeMap<String, Vec<Arc<Value>>>;

fn owned(state: &State, res: Res) -> Owned {
    let mut owned = Owned::new();
    for object in state.all(res).values() {
        if let Some(owner) = controller(object) {
            owned
                .entry(text(owner, "/uid").to_owned())
                .or_default()
                .push(Arc::clone(object));
        }
    }
    owned
}

/// The controllers and what they have seen.
#[derive(Debug, Default)]
struct Controllers {
    /// For each controller the version of the store before its last turn.
    seen: BTreeMap<&'static str, u64>,
    /// When controllers with timers want to be called again.
    timers: BTreeMap<&'static str, Time>,
    scheduler: Scheduler,
    garbage: garbage::Garbage,
}

impl Controllers {
    /// Whether a controller has something to do: an input changed or its timer rang.
    fn due(&mut self, state: &State, who: &'static str, inputs: &[Res]) -> bool {
        let seen = self.seen.get(who).copied();
        let changed = inputs
            .iter()
            .any(|r| seen.is_none_or(|s| state.changed(*r) > s));
        let rang = self.timers.get(who).is_some_and(|t| *t <= state.now);
        if changed || rang {
            self.seen.insert(who, state.version());
            self.timers.remove(who);
        }
        changed || rang
    }

    fn ring(&mut self, who: &'static str, at: Option<Time>) {
        if let Some(at) = at {
            self.timers.insert(who, at);
        }
    }

    /// One turn of all; returns when the next timer rings.
    fn turn(&mut self, inner: &KubeInner) -> Time {
        let state = &mut *inner.lock();
        self.workloads(state);
        if self.due(
            state,
            "volumes",
            &[PVCS, PVS, PODS, STORAGECLASSES, VOLUMEATTACHMENTS],
        ) {
            let next = volumes::reconcile(state, inner.spec.detach_latency);
            self.ring("volumes", next);
        }
        if self.due(state, "scheduler", SCHEDULER_READS) {
            let next = self
                .scheduler
                .turn(state, inner.spec.scheduler_misses_events);
            self.ring("scheduler", next);
        }
        if self.due(
            state,
            "budgets",
            &[PDBS, PODS, REPLICASETS, DEPLOYMENTS, STATEFULSETS],
        ) {
            let next = budget::reconcile(state);
            self.ring("budgets", next);
        }
        if self.due(state, "nodes", &[NODES]) {
            let next = nodes::reconcile(state, inner.spec.node_monitor_grace);
            let monitor = state.now + MONITOR_PERIOD;
            self.ring("nodes", Some(next.map_or(monitor, |n| n.min(monitor))));
        }
        let owners = [
            DEPLOYMENTS,
            REPLICASETS,
            DAEMONSETS,
            STATEFULSETS,
            JOBS,
            NODES,
            NAMESPACES,
        ];
        if self.due(state, "garbage", &owners) {
            self.garbage.collect(state);
            bootstrap::old_certificates(state);
            let again = state.now + GARBAGE_PERIOD;
            self.ring("garbage", Some(again));
        }
        if self.due(state, "tokens", &[SECRETS, CONFIGMAPS]) {
            let next = bootstrap::tokens(state);
            self.ring("tokens", next);
        }
        if self.due(state, "certificates", &[CSRS]) {
            let next = bootstrap::certificates(state, &inner.spec, &inner.pki);
            self.ring("certificates", next);
        }
        let idle = state.now + Span::minutes(60);
        self.timers.values().copied().min().unwrap_or(idle)
    }

    fn workloads(&mut self, state: &mut State) {
        if self.due(state, "deployments", &[DEPLOYMENTS, REPLICASETS]) {
            deployment::deployments(state);
        }
        if self.due(state, "replicasets", &[REPLICASETS, PODS]) {
            deployment::replica_sets(state);
        }
        if self.due(state, "statefulsets", &[STATEFULSETS, PODS]) {
            statefulset::reconcile(state);
        }
        if self.due(state, "daemonsets", &[DAEMONSETS, NODES, PODS]) {
            daemonset::reconcile(state);
        }
        if self.due(state, "jobs", &[JOBS, PODS]) {
            let next = job::reconcile(state);
            self.ring("jobs", next);
        }
    }
}

/// The controllers' own identity.
fn system() -> User {
    User::admin()
}

/// A pod made from a workload's template, not yet stored.
fn from_template(owner: &Value) -> Value {
    let template = &owner["spec"]["template"];
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}});
    for field in ["labels", "annotations"] {
        if let Some(members) = map(template, &format!("/metadata/{field}")) {
            set(
                &mut pod,
                &["metadata", field],
                Value::Object(members.clone()),
            );
        }
    }
    set(&mut pod, &["spec"], template["spec"].clone());
    set(
        &mut pod,
        &["metadata", "ownerReferences"],
        json!([owner_reference(owner)]),
    );
    set(
        &mut pod,
        &["metadata", "namespace"],
        json!(namespace(owner)),
    );
    pod
}

/// Stores an object through admission. A refusal (a missing priority class, a namespace that ends)
/// is tried again at the next change, as the controllers do.
fn store(state: &mut State, res: Res, object: Value) -> bool {
    let space = namespace(&object).to_owned();
    verbs::create(state, res, &space, object, &system()).is_ok()
}

/// Deletes in the background with the object's own grace.
fn erase(state: &mut State, res: Res, object: &Value) {
    let options = json!({});
    let _ = verbs::delete(
        state,
        res,
        namespace(object),
        super::object::name(object),
        &options,
    );
}

/// Whether a pod counts as one of its workload's replicas.
fn active(pod: &Value) -> bool {
    !super::object::deleting(pod) && !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}
