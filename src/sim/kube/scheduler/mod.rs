//! A small kube-scheduler: filters in upstream's order with upstream's words, least-allocated
//! scoring, priority order. It honours nominated nodes; it does not preempt and ignores preferences.

mod arrivals;
pub(in crate::sim::kube) mod fit;
mod nominations;
mod pods;
pub(in crate::sim::kube) mod requests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::eviction::assign;
use super::object::{
    controller, deleting, list, map, name, namespace, number, set_condition, text, version,
};
use super::resources::{NODES, PODS};
use super::store::{Key, State};
use super::volumes;
use arrivals::Arrivals;
use nominations::{Nominations, Occasions, nominated};
use requests::{Amounts, HostPort, amounts, host_ports, pod_requests, ports_collide};

/// What a pod needs, read once for each of its versions.
#[derive(Debug)]
struct Needs {
    version: u64,
    requests: Amounts,
    ports: BTreeSet<HostPort>,
}

/// A node with what runs on it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) node: Arc<Value>,
    free: Amounts,
    capacity: Amounts,
    ports: BTreeSet<HostPort>,
    pub(super) pods: Vec<Arc<Value>>,
}

/// Why a node does not take a pod, and whether evicting others could change that.
#[derive(Clone, Debug, PartialEq, Eq)]
struct No {
    reasons: Vec<String>,
    preemptible: bool,
}

impl No {
    fn firm(reason: impl Into<String>) -> No {
        No {
            reasons: vec![reason.into()],
            preemptible: false,
        }
    }

    fn soft(reasons: Vec<String>) -> No {
        No {
            reasons,
            preemptible: true,
        }
    }
}

/// The scheduler and what it has read.
#[derive(Debug, Default)]
pub(super) struct Scheduler {
    needs: BTreeMap<Key, Arc<Needs>>,
    occasions: Occasions,
    arrivals: Arrivals,
}

impl Scheduler {
    /// Binds what fits and says of the rest why not.
    pub(super) fn turn(&mut self, state: &mut State) {
        if !state.all(PODS).values().any(|p| waits(p)) {
            return;
        }
        self.read(state);
        let mut places = self.places(state);
        let mut queue: Vec<Arc<Value>> = state
            .all(PODS)
            .values()
            .filter(|p| waits(p))
            .cloned()
            .collect();
        self.arrivals.note(&queue);
        queue.sort_by_key(|p| {
            (
                std::cmp::Reverse(number(p, "/spec/priority").unwrap_or(0)),
                self.arrivals.place(p),
            )
        });
        let mut nominations = Nominations::of(&queue);
        self.occasions.look(&places, &queue);
        // Pods of one owner are alike: where one did not fit, neither will the next in this turn.
        let mut refused: BTreeMap<String, String> = BTreeMap::new();
        for pod in queue {
            let kin = controller(&pod)
                .filter(|_| nominated(&pod).is_none())
                .filter(|o| text(o, "/kind") != "DaemonSet" && text(o, "/kind") != "StatefulSet")
                .map(|o| text(o, "/uid").to_owned());
            let known = kin.as_ref().and_then(|k| refused.get(k)).cloned();
            let outcome = match known {
                Some(message) => Err(message),
                None => self.place(state, &places, &nominations, &pod),
            };
            match outcome {
                Ok(at) => {
                    let title = name(&places[at].node).to_owned();
                    volumes::claim_for(state, &pod, &places[at].node);
                    assign(state, &pod, &title);
                    self.occupy(&mut places[at], &pod);
                    nominations.forget(&pod);
                }
                Err(message) => {
                    if let Some(kin) = kin {
                        refused.insert(kin, message.clone());
                    }
                    refuse(state, &pod, &message);
                    if self.occasions.clears(&pod) {
                        nominations::clear(state, &pod);
                        nominations.forget(&pod);
                    }
                }
            }
        }
    }

    fn read(&mut self, state: &State) {
        let mut needs = BTreeMap::new();
        for (key, pod) in state.all(PODS) {
            let known = self
                .needs
                .get(key)
                .filter(|n| n.version == version(pod))
                .cloned();
            let fresh = || {
                Arc::new(Needs {
                    version: version(pod),
                    requests: pod_requests(pod),
                    ports: host_ports(pod),
                })
            };
            needs.insert(key.clone(), known.unwrap_or_else(fresh));
        }
        self.needs = needs;
    }

    fn of(&self, pod: &Value) -> Arc<Needs> {
        let key = (namespace(pod).to_owned(), name(pod).to_owned());
        self.needs.get(&key).cloned().unwrap_or_else(|| {
            Arc::new(Needs {
                version: 0,
                requests: pod_requests(pod),
                ports: host_ports(pod),
            })
        })
    }

    fn places(&self, state: &State) -> Vec<Place> {
        let mut places: Vec<Place> = state
            .all(NODES)
            .values()
            .map(|node| {
                let capacity = amounts(map(node, "/status/allocatable"));
                Place {
                    node: Arc::clone(node),
                    free: capacity.clone(),
                    capacity,
                    ports: BTreeSet::new(),
                    pods: Vec::new(),
                }
            })
            .collect();
        let index: BTreeMap<String, usize> = places
            .iter()
            .enumerate()
            .map(|(at, p)| (name(&p.node).to_owned(), at))
            .collect();
        for pod in state.all(PODS).values() {
            let there = index.get(text(pod, "/spec/nodeName"));
            let ended = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
            if let Some(at) = there.filter(|_| !ended) {
                self.occupy(&mut places[*at], pod);
            }
        }
        places
    }

    fn occupy(&self, place: &mut Place, pod: &Arc<Value>) {
        let needs = self.of(pod);
        for (resource, wanted) in &needs.requests {
            *place.free.entry(resource.clone()).or_default() -= wanted;
        }
        place.ports.extend(needs.ports.iter().cloned());
        place.pods.push(Arc::clone(pod));
    }

    /// The node for a pod, or the message why there is none.
    fn place(
        &self,
        state: &State,
        places: &[Place],
        nominations: &Nominations,
        pod: &Arc<Value>,
    ) -> Result<usize, String> {
        if places.is_empty() {
            return Err("no nodes available to schedule pods".to_owned());
        }
        if let Some(reason) = volumes::unready(state, pod) {
            return Err(format!(
                "0/{} nodes are available: {reason}. preemption: 0/{0} nodes are available: {0} Preemption is not helpful for scheduling.",
                places.len()
            ));
        }
        let needs = self.of(pod);
        let takes = |at: usize| self.takes(state, (places, at), nominations, pod, &needs);
        let first = nominated(pod);
        let first = first.and_then(|node| places.iter().position(|p| name(&p.node) == node));
        if let Some(at) = first.filter(|at| takes(*at).is_ok()) {
            return Ok(at);
        }
        let mut best: Option<(i64, usize)> = None;
        let mut refusals = Vec::new();
        for (at, place) in places.iter().enumerate() {
            match takes(at) {
                Ok(()) => {
                    let score = score(place, &needs);
                    if best.is_none_or(|(highest, _)| score > highest) {
                        best = Some((score, at));
                    }
                }
                Err(no) => refusals.push(no),
            }
        }
        best.map(|(_, at)| at).ok_or_else(|| message(&refusals))
    }

    /// All filters for a node, with the pods whose room on it is kept, and without them: those may never come,
    /// and others need their company.
    fn takes(
        &self,
        state: &State,
        (places, at): (&[Place], usize),
        nominations: &Nominations,
        pod: &Arc<Value>,
        needs: &Needs,
    ) -> Result<(), No> {
        let place = &places[at];
        if !nominations.is_empty() {
            let kept = nominations.against(name(&place.node), pod);
            if !kept.is_empty() {
                let mut places = places.to_vec();
                for other in &kept {
                    self.occupy(&mut places[at], other);
                }
                filter(state, &places, &places[at], pod, needs)?;
            }
        }
        filter(state, places, place, pod, needs)
    }
}

/// Whether a pod is the scheduler's business.
fn waits(pod: &Value) -> bool {
    text(pod, "/spec/nodeName").is_empty()
        && text(pod, "/status/phase") == "Pending"
        && text(pod, "/spec/schedulerName") == "default-scheduler"
        && !deleting(pod)
        && list(pod, "/spec/schedulingGates").is_empty()
}

fn refuse(state: &mut State, pod: &Value, message: &str) {
    let now = state.now;
    state.change(PODS, namespace(pod), name(pod), |p| {
        set_condition(p, "PodScheduled", "False", "Unschedulable", message, now);
    });
}

/// All filters in upstream's order; the first that says no ends it.
fn filter(
    state: &State,
    places: &[Place],
    place: &Place,
    pod: &Value,
    needs: &Needs,
) -> Result<(), No> {
    let node = &place.node;
    if fit::shut(pod, node) {
        return Err(No::firm("node(s) were unschedulable"));
    }
    if let Some(taint) = fit::untolerated(pod, node, &["NoSchedule", "NoExecute"]) {
        return Err(No::firm(format!(
            "node(s) had untolerated taint {{{}: {}}}",
            text(taint, "/key"),
            text(taint, "/value")
        )));
    }
    if !fit::chosen(pod, node) {
        return Err(No::firm(
            "node(s) didn't match Pod's node affinity/selector",
        ));
    }
    if ports_collide(&needs.ports, &place.ports) {
        return Err(No::soft(vec![
            "node(s) didn't have free ports for the requested pod ports".to_owned(),
        ]));
    }
    resources(place, needs)?;
    if let Some(reason) = volumes::elsewhere(state, pod, node) {
        return Err(No::firm(reason));
    }
    pods::spread(places, place, pod)?;
    pods::affinity(places, place, pod)
}

fn resources(place: &Place, needs: &Needs) -> Result<(), No> {
    let mut reasons = Vec::new();
    let mut beyond_capacity = false;
    for (resource, wanted) in &needs.requests {
        let free = place.free.get(resource).copied().unwrap_or(0);
        if *wanted > 0 && *wanted > free {
            beyond_capacity |= *wanted > place.capacity.get(resource).copied().unwrap_or(0);
            reasons.push(if resource == "pods" {
                "Too many pods".to_owned()
            } else {
                format!("Insufficient {resource}")
            });
        }
    }
    if reasons.is_empty() {
        Ok(())
    } else if beyond_capacity {
        Err(No {
            reasons,
            preemptible: false,
        })
    } else {
        Err(No::soft(reasons))
    }
}

/// NodeResourcesFit's LeastAllocated over CPU and memory, in ten-thousandths.
fn score(place: &Place, needs: &Needs) -> i64 {
    ["cpu", "memory"]
        .iter()
        .map(|resource| {
            let capacity = place.capacity.get(*resource).copied().unwrap_or(0);
            let wanted = needs.requests.get(*resource).copied().unwrap_or(0);
            let left = place.free.get(*resource).copied().unwrap_or(0) - wanted;
            if capacity > 0 {
                let share = i128::from(left.max(0)) * 10_000 / i128::from(capacity);
                i64::try_from(share).unwrap_or(0)
            } else {
                0
            }
        })
        .sum()
}

/// `0/3 nodes are available: 1 Insufficient cpu, …`, as kube-scheduler writes it.
fn message(refusals: &[No]) -> String {
    let all = refusals.len();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in refusals.iter().flat_map(|n| &n.reasons) {
        *counts.entry(reason).or_default() += 1;
    }
    let join = |mut parts: Vec<String>| {
        parts.sort();
        parts.join(", ")
    };
    let why = join(counts.iter().map(|(r, n)| format!("{n} {r}")).collect());
    let soft = refusals.iter().filter(|n| n.preemptible).count();
    let mut preemption = Vec::new();
    if soft > 0 {
        preemption.push(format!(
            "{soft} No preemption victims found for incoming pod"
        ));
    }
    if soft < all {
        preemption.push(format!(
            "{} Preemption is not helpful for scheduling",
            all - soft
        ));
    }
    format!(
        "0/{all} nodes are available: {why}. preemption: 0/{all} nodes are available: {}.",
        join(preemption)
    )
}
