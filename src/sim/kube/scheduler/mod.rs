//! A small kube-scheduler: priority order, upstream's filters (`src/filters`) with upstream's words, least-allocated scoring.
//! It honours nominated nodes and preempts; it ignores preferences.

mod arrivals;
pub(in crate::sim::kube) mod fit;
mod nominations;
mod opinion;
mod preemption;
pub(in crate::sim::kube) mod read;
pub(in crate::sim::kube) mod requests;
mod storage;
#[cfg(test)]
mod tests;
mod unschedulable;

use std::collections::BTreeMap;
use std::sync::Arc;

use filters::{No, NodeInfo, NodeInfos, PodInfo, attached};
use serde_json::Value;

use super::eviction::assign;
use super::object::{
    controller, deleting, list, name, namespace, number, set_condition, text, version,
};
use super::resources::{NODES, PODS};
use super::store::{Key, State};
use super::volumes;
use crate::model::cluster::Cluster;
use crate::model::time::Time;
use arrivals::Arrivals;
use nominations::{Nominations, Occasions, nominated};
pub use opinion::{Opinion, opinion};
use unschedulable::Unschedulable;

/// The scheduler and what it has read: each pod once for each of its versions.
#[derive(Debug, Default)]
pub(super) struct Scheduler {
    known: BTreeMap<Key, (u64, PodInfo)>,
    occasions: Occasions,
    arrivals: Arrivals,
    unschedulable: Unschedulable,
    /// See [`preemption::find_lowest`]; of this turn.
    lowest: i64,
}

/// What stands before the part about preemption in a refusal.
const PREEMPTION: &str = " preemption: ";

/// Why a pod gets no node.
#[derive(Debug)]
struct SchedulingFailure {
    /// In kube-scheduler's words.
    message: String,
    /// Indices of the nodes that might take it if other pods went.
    preemptible: Vec<usize>,
}

impl SchedulingFailure {
    /// A refusal that no pod's leaving would change.
    fn of(message: String) -> SchedulingFailure {
        SchedulingFailure {
            message,
            preemptible: Vec::new(),
        }
    }
}

impl Scheduler {
    /// Binds what fits and says of the rest why not. Says when to look again, though nothing changes, where it misses events.
    pub(super) fn turn(&mut self, state: &mut State, misses_events: bool) -> Option<Time> {
        if !state.all(PODS).values().any(|p| waits(p)) {
            return None;
        }
        self.read(state);
        let cluster = storage::cluster(state);
        let mut world = NodeInfos {
            nodes: self.node_infos(state, &cluster),
            cluster: &cluster,
            default_spread: &[],
            claims_come: false,
            gone: Vec::new(),
        };
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
        self.occasions.look(state, &world.nodes, &queue);
        if misses_events {
            self.unschedulable.leave_out(&mut queue, state.now);
        }
        // Pods of one owner are alike: where one did not fit, neither will the next in this turn.
        let mut refused: BTreeMap<String, String> = BTreeMap::new();
        for pod in queue {
            let kin = controller(&pod)
                .filter(|_| nominated(&pod).is_none())
                .filter(|o| text(o, "/kind") != "DaemonSet" && text(o, "/kind") != "StatefulSet")
                .map(|o| text(o, "/uid").to_owned());
            let known = kin.as_ref().and_then(|k| refused.get(k)).cloned();
            let outcome = match known {
                Some(message) => Err(SchedulingFailure::of(message)),
                None => self.place(&mut world, &nominations, &pod),
            };
            match outcome {
                Ok(at) => {
                    self.bind(state, &mut world, &pod, at);
                    nominations.forget(&pod);
                }
                Err(mut refusal) => {
                    let of = (&mut nominations, &pod);
                    if self.preempt(state, &mut world, of, &mut refusal) {
                        continue;
                    }
                    let message = refusal.message;
                    if let Some(kin) = kin {
                        refused.insert(kin, message.clone());
                    }
                    refuse(state, &pod, &message);
                    if self.occasions.clears(&pod) {
                        nominations::clear(state, &pod);
                        nominations.forget(&pod);
                    }
                    if misses_events {
                        self.unschedulable.note(state, &pod);
                    }
                }
            }
        }
        self.unschedulable.next().filter(|_| misses_events)
    }

    /// Lets a pod that was refused take the place of others, where it may and that helps. The pod is nominated for their node then.
    fn preempt(
        &self,
        state: &mut State,
        world: &mut NodeInfos<'_>,
        (nominations, pod): (&mut Nominations, &Arc<Value>),
        refusal: &mut SchedulingFailure,
    ) -> bool {
        let (told, _) = refusal
            .message
            .split_once(PREEMPTION)
            .unwrap_or((&refusal.message, ""));
        let told = told.to_owned();
        if let Err(why) = preemption::may_preempt(state, pod) {
            refusal.message = format!("{told}{PREEMPTION}{why}");
            return false;
        }
        if preemption::priority(pod) <= self.lowest {
            return false;
        }
        let mut kept = BTreeMap::new();
        for (node, pods) in nominations.against(pod) {
            if let Some(at) = find(world, node) {
                let pods = pods.into_iter().map(|other| self.info_of(other));
                kept.insert(at, pods.collect::<Vec<_>>());
            }
        }
        let info = self.info_of(pod);
        let nodes = &refusal.preemptible;
        let asked = (&**pod, &info);
        let Some(candidate) = preemption::find_candidate(state, world, asked, nodes, &kept) else {
            return false;
        };
        refuse(state, pod, &told);
        preemption::carry_out(state, world, pod, &candidate);
        let waiting = state.all(PODS).values().filter(|pod| waits(pod)).cloned();
        *nominations = Nominations::of(&waiting.collect::<Vec<_>>());
        true
    }

    /// Binds a pod to the node at this place, with the volumes that are found or made for it.
    fn bind(&self, state: &mut State, world: &mut NodeInfos<'_>, pod: &Arc<Value>, at: usize) {
        let info = self.info_of(pod);
        let found = world.found(&info, &world.nodes[at]).unwrap_or_default();
        for (claim, volume) in &found {
            volumes::take(state, claim, volume);
        }
        world.gone.extend(found);
        let spot = &mut world.nodes[at];
        volumes::claim_for(state, pod, &spot.name);
        assign(state, pod, &spot.name);
        spot.pods.push(PodInfo {
            bound: true,
            ..info
        });
    }

    fn read(&mut self, state: &State) {
        let mut known = BTreeMap::new();
        for (key, pod) in state.all(PODS) {
            let before = self.known.remove(key);
            let before = before.filter(|(seen, _)| *seen == version(pod));
            let now = before.unwrap_or_else(|| (version(pod), read::pod_info(pod)));
            known.insert(key.clone(), now);
        }
        self.known = known;
        self.lowest = preemption::find_lowest(state);
    }

    fn info_of(&self, pod: &Value) -> PodInfo {
        let key = (namespace(pod).to_owned(), name(pod).to_owned());
        let known = self.known.get(&key).map(|(_, info)| info.clone());
        known.unwrap_or_else(|| read::pod_info(pod))
    }

    /// The nodes with what runs on them.
    fn node_infos(&self, state: &State, cluster: &Cluster) -> Vec<NodeInfo> {
        let mut attached = attached(cluster);
        let spot = |node: &Arc<Value>| NodeInfo {
            limits: storage::limits(state, name(node)),
            attached: attached.remove(name(node)).unwrap_or_default(),
            ..read::node_info(node)
        };
        let mut nodes: Vec<NodeInfo> = state.all(NODES).values().map(spot).collect();
        let index: BTreeMap<Arc<str>, usize> = nodes
            .iter()
            .enumerate()
            .map(|(at, spot)| (spot.name.clone(), at))
            .collect();
        for pod in state.all(PODS).values().filter(|pod| !ended(pod)) {
            if let Some(at) = index.get(text(pod, "/spec/nodeName")) {
                nodes[*at].pods.push(self.info_of(pod));
            }
        }
        nodes
    }

    /// The node for a pod, or why there is none.
    fn place(
        &self,
        world: &mut NodeInfos<'_>,
        nominations: &Nominations,
        pod: &Value,
    ) -> Result<usize, SchedulingFailure> {
        if world.nodes.is_empty() {
            let message = "no nodes available to schedule pods".to_owned();
            return Err(SchedulingFailure::of(message));
        }
        let info = self.info_of(pod);
        let beside_nominated = self.beside_nominated(world, nominations, pod, &info);
        let question = world.ask(&info);
        if let Err(no) = question.fits_somewhere() {
            let all = world.nodes.len();
            return Err(SchedulingFailure::of(format!(
                "0/{all} nodes are available: {}. preemption: 0/{all} nodes are available: {all} Preemption is not helpful for scheduling.",
                no.said.join(", ")
            )));
        }
        let takes = |at: usize| match beside_nominated.get(&at) {
            Some(no) => Err(no.clone()),
            None => question.fits(at),
        };
        let first = nominated(pod).and_then(|node| find(world, node));
        if let Some(at) = first.filter(|at| takes(*at).is_ok()) {
            return Ok(at);
        }
        let avoided = |spot: &NodeInfo| filters::avoided(&info.shape, &spot.taints);
        let most = world.nodes.iter().map(avoided).max().unwrap_or(0);
        let mut best: Option<(i64, usize)> = None;
        let (mut refusals, mut preemptible) = (Vec::new(), Vec::new());
        for (at, spot) in world.nodes.iter().enumerate() {
            match takes(at) {
                Ok(()) => {
                    let score = score(spot, &info) + taint_score(avoided(spot), most);
                    if best.is_none_or(|(highest, _)| score > highest) {
                        best = Some((score, at));
                    }
                }
                Err(no) => {
                    if no.preemptible {
                        preemptible.push(at);
                    }
                    refusals.push(no);
                }
            }
        }
        best.map(|(_, at)| at).ok_or_else(|| SchedulingFailure {
            message: message(&refusals),
            preemptible,
        })
    }

    /// Nodes that do not take a pod beside those whose room on them is kept. That it fits without them is asked as well:
    /// they may never come, and others may depend on them.
    fn beside_nominated(
        &self,
        world: &mut NodeInfos<'_>,
        nominations: &Nominations,
        pod: &Value,
        info: &PodInfo,
    ) -> BTreeMap<usize, No> {
        let mut beside_nominated = BTreeMap::new();
        for (node, kept) in nominations.against(pod) {
            if kept.is_empty() {
                continue;
            }
            let Some(at) = find(world, node) else {
                continue;
            };
            let there = world.nodes[at].pods.len();
            let kept = kept.into_iter().map(|other| self.info_of(other));
            world.nodes[at].pods.extend(kept);
            if let Err(no) = world.ask(info).fits(at) {
                beside_nominated.insert(at, no);
            }
            world.nodes[at].pods.truncate(there);
        }
        beside_nominated
    }
}

fn find(world: &NodeInfos<'_>, node: &str) -> Option<usize> {
    world.nodes.iter().position(|spot| *spot.name == *node)
}

/// Whether a pod holds nothing on its node any more.
pub(super) fn ended(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
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

/// TaintToleration with its weight, three times that of [`score`]: a node with as many taints that a pod rather avoids as any other has none of it.
fn taint_score(avoided: usize, most: usize) -> i64 {
    const WHOLE: usize = 3 * 2 * 10_000;
    let lost = (WHOLE * avoided).checked_div(most).unwrap_or(0);
    i64::try_from(WHOLE - lost).unwrap_or(0)
}

/// NodeResourcesFit's LeastAllocated over CPU and memory, in ten-thousandths.
fn score(spot: &NodeInfo, pod: &PodInfo) -> i64 {
    let share = |resource: &&str| {
        let offered = i128::from(spot.offers.get(resource));
        let left = offered - spot.used(resource) - i128::from(pod.shape.requests.get(resource));
        let share = (left.max(0) * 10_000).checked_div(offered.max(0));
        share
            .and_then(|share| i64::try_from(share).ok())
            .unwrap_or(0)
    };
    ["cpu", "memory"].iter().map(share).sum()
}

/// `0/3 nodes are available: 1 Insufficient cpu, …`, as kube-scheduler writes it.
fn sentence<'r>(all: usize, reasons: impl Iterator<Item = &'r str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in reasons {
        *counts.entry(reason).or_default() += 1;
    }
    let why = counts
        .iter()
        .map(|(reason, count)| format!("{count} {reason}"));
    format!("0/{all} nodes are available: {}.", sorted(why.collect()))
}

fn sorted(mut parts: Vec<String>) -> String {
    parts.sort();
    parts.join(", ")
}

/// Why no node takes a pod, as kube-scheduler writes it, and what became of preemption.
fn message(refusals: &[No]) -> String {
    let all = refusals.len();
    let reasons = refusals.iter().flat_map(|no| &no.said).map(AsRef::as_ref);
    let soft = refusals.iter().filter(|no| no.preemptible).count();
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
        "{} preemption: 0/{all} nodes are available: {}.",
        sentence(all, reasons),
        sorted(preemption)
    )
}
