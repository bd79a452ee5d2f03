//! What the page's first view shows, as data: the status that `status` tells, the plan that `plan` tells, and beside
//! them what the snapshot of the same turn holds of hosts, guests, nodes and pods. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::config::settings::Deadlines;
use crate::controller::status::DaemonStatus;
use crate::controller::turn::Turn;
use crate::controller::usual::UsualTime;
use crate::controller::wording;
use crate::model::cluster::{Node, ObjectKey, Pod, ReadyStatus};
use crate::model::host_choice::HostDecision;
use crate::model::region::{GuestKind, Host, Region, Step, Vm};
use crate::model::report::{NodeVerdict, PodVerdict};
use crate::model::time::Time;

/// Version of what is served here; a page of another version asks to be loaded anew.
const FORMAT: u32 = 1;
/// Pending pods that are shown at most: the search finds the others.
const MAX_PENDING: usize = 2_000;
/// Guests of one host that are named at most.
const MAX_GUESTS: usize = 500;

/// All of it.
#[derive(Debug, Serialize)]
pub(super) struct PageView<'a> {
    format: u32,
    /// What the daemon's clock shows, in milliseconds since 1970.
    now: i64,
    /// How many of its seconds pass in one: more than one in the demo alone.
    pace: u32,
    /// The daemon's world is a simulation that people may act on.
    demo: bool,
    /// The headline.
    line: String,
    status: &'a DaemonStatus,
    plan: Vec<PlannedView<'a>>,
    /// What the new machines of the plan cost, in words.
    growth: Option<String>,
    /// When the next decision is due at the latest.
    wake: Option<Time>,
    /// By region and host.
    hosts: BTreeMap<&'a str, BTreeMap<&'a str, HostNow<'a>>>,
    nodes: Vec<NodeNow<'a>>,
    /// The NUMA nodes of their hosts from which machines have CPUs of their own, by machine.
    numa: BTreeMap<&'a str, Vec<usize>>,
    /// Why machines on their way up came to their hosts, by machine.
    made: BTreeMap<Arc<str>, HostDecision>,
    pending: PendingView<'a>,
    /// What each step of a pool's machines usually takes, as measured lately.
    usual: BTreeMap<Arc<str>, BTreeMap<Step, UsualTime>>,
    /// What each step may take, in milliseconds.
    deadlines: BTreeMap<&'static str, i64>,
}

/// An action of the plan, in words.
#[derive(Debug, Serialize)]
struct PlannedView<'a> {
    verb: &'static str,
    machine: &'a str,
    what: String,
    why: String,
}

/// What a host has in use, and its guests.
#[derive(Debug, Serialize)]
struct HostNow<'a> {
    cpu_used_milli: i64,
    memory_used: i64,
    /// In milliseconds; zero when unknown.
    uptime: i64,
    guests: Vec<GuestView<'a>>,
    /// Guests that are not named for want of room.
    more: usize,
}

/// A VM or container on a host.
#[derive(Debug, Serialize)]
struct GuestView<'a> {
    vmid: u32,
    name: &'a str,
    container: bool,
    template: bool,
    running: bool,
    onboot: bool,
    cpus: u32,
    memory: i64,
    /// The machine of ours that it is.
    machine: Option<&'a str>,
}

/// A node.
#[derive(Debug, Serialize)]
struct NodeNow<'a> {
    name: &'a str,
    machine: Option<&'a str>,
    pool: Option<&'a str>,
    host: Option<&'a str>,
    created: Time,
    ready: bool,
    cordoned: bool,
    cpu_milli: i64,
    memory: i64,
    asked_cpu_milli: i64,
    asked_memory: i64,
    pods: u32,
    max_pods: i64,
    /// The verdict and why, as `plan` has them.
    verdict: Option<(String, String)>,
}

/// Pods without a node. Pods of one sentence share it.
#[derive(Debug, Default, Serialize)]
struct PendingView<'a> {
    total: usize,
    /// What becomes of a pod, and why.
    sentences: Vec<(String, String)>,
    pods: Vec<PendingPod<'a>>,
}

#[derive(Debug, Serialize)]
struct PendingPod<'a> {
    pod: &'a ObjectKey,
    verdict: &'static str,
    /// Which sentence.
    says: usize,
    since: Option<Time>,
    cpu_milli: i64,
    memory: i64,
}

/// What is shown when there is no turn yet, and what goes with one.
#[derive(Clone, Copy)]
pub(super) struct Frame<'a> {
    pub(super) now: Time,
    pub(super) pace: u32,
    pub(super) demo: bool,
    pub(super) status: &'a DaemonStatus,
}

impl<'a> PageView<'a> {
    /// The view after a turn.
    pub(super) fn of(frame: Frame<'a>, turn: Option<&'a Turn>) -> PageView<'a> {
        let now = frame.now;
        let mut view = PageView {
            format: FORMAT,
            now: now.0,
            pace: frame.pace,
            demo: frame.demo,
            line: frame.status.line(),
            status: frame.status,
            plan: Vec::new(),
            growth: None,
            wake: None,
            hosts: BTreeMap::new(),
            nodes: Vec::new(),
            numa: BTreeMap::new(),
            made: BTreeMap::new(),
            pending: PendingView::default(),
            usual: BTreeMap::new(),
            deadlines: BTreeMap::new(),
        };
        let Some(turn) = turn else {
            return view;
        };
        let decision = &turn.decision;
        view.usual = turn.usual.times();
        view.plan = decision.plan.iter().map(planned).collect();
        view.growth = decision.report.scale_up.map(|growth| growth.to_string());
        view.wake = decision.wake;
        view.hosts = hosts(turn);
        view.nodes = nodes(turn, now);
        view.numa = numa(turn);
        view.made = turn.made.under_way();
        view.pending = pending(turn, now);
        view.deadlines = deadlines(&turn.settings.deadlines);
        view
    }
}

fn planned(action: &crate::model::action::Action) -> PlannedView<'_> {
    let (verb, what) = wording::act(action);
    PlannedView {
        verb,
        machine: &action.target.machine,
        what,
        why: action.reason.to_string(),
    }
}

fn hosts(turn: &Turn) -> BTreeMap<&str, BTreeMap<&str, HostNow<'_>>> {
    let snapshot = &turn.snapshot;
    let mut machines: BTreeMap<(&str, u32), &str> = BTreeMap::new();
    for (name, machine) in &snapshot.machines {
        machines.insert((&machine.region, machine.mark.vmid), name);
    }
    let regions = snapshot.regions.iter().map(|(region, seen)| {
        let of_ours = |vmid: u32| machines.get(&(&**region, vmid)).copied();
        (&**region, hosts_of(seen, of_ours))
    });
    regions.collect()
}

fn hosts_of<'a>(
    region: &'a Region,
    machine: impl Fn(u32) -> Option<&'a str>,
) -> BTreeMap<&'a str, HostNow<'a>> {
    let mut hosts: BTreeMap<&str, HostNow<'_>> = region
        .hosts
        .iter()
        .map(|(name, host)| (&**name, host_now(host)))
        .collect();
    for (vmid, vm) in &region.vms {
        let Some(host) = hosts.get_mut(&*vm.host) else {
            continue;
        };
        if host.guests.len() == MAX_GUESTS {
            host.more += 1;
        } else {
            host.guests.push(guest(*vmid, vm, machine(*vmid)));
        }
    }
    hosts
}

/// Where a host's topology is not told there is nothing to say; its machines have CPUs of their own no more then.
fn numa(turn: &Turn) -> BTreeMap<&str, Vec<usize>> {
    let regions = &turn.settings.policy.regions;
    let machines = turn.snapshot.machines.iter();
    let pinned = machines.filter(|(_, machine)| !machine.mark.cpus.is_empty());
    let nodes = pinned.filter_map(|(name, machine)| {
        let region = regions.get(&machine.region)?;
        let host = region.topologies.get(&machine.host)?;
        let numbers = host.numa.iter().enumerate();
        let of = numbers.filter(|(_, node)| !node.cpus.both(&machine.mark.cpus).is_empty());
        Some((&**name, of.map(|(number, _)| number).collect()))
    });
    nodes.collect()
}

fn host_now(host: &Host) -> HostNow<'_> {
    HostNow {
        cpu_used_milli: host.cpu_used_milli,
        memory_used: host.memory_used,
        uptime: host.uptime.0,
        guests: Vec::new(),
        more: 0,
    }
}

fn guest<'a>(vmid: u32, vm: &'a Vm, machine: Option<&'a str>) -> GuestView<'a> {
    GuestView {
        vmid,
        name: &vm.name,
        container: vm.kind == GuestKind::Lxc,
        template: vm.template,
        running: vm.running,
        onboot: vm.onboot,
        cpus: vm.cpus,
        memory: vm.memory,
        machine,
    }
}

/// What the pods of a node ask for.
#[derive(Clone, Copy, Default)]
struct RequestedByPods {
    pods: u32,
    cpu_milli: i64,
    memory: i64,
}

fn nodes(turn: &Turn, now: Time) -> Vec<NodeNow<'_>> {
    let snapshot = &turn.snapshot;
    let mut asked: BTreeMap<&str, RequestedByPods> = BTreeMap::new();
    for pod in snapshot.cluster.pods.values() {
        if let Some(node) = &pod.node {
            let sum = asked.entry(node).or_default();
            sum.pods += 1;
            sum.cpu_milli = sum.cpu_milli.saturating_add(pod.shape.requests.cpu_milli);
            sum.memory = sum.memory.saturating_add(pod.shape.requests.memory);
        }
    }
    let machines = snapshot.machines.iter();
    let machines: BTreeMap<&str, (&str, &str, &str)> = machines
        .filter_map(|(name, machine)| {
            let node = machine.node.as_deref()?;
            Some((node, (&**name, &*machine.mark.pool, &*machine.host)))
        })
        .collect();
    let verdicts = &turn.decision.report.nodes;
    let nodes = snapshot.cluster.nodes.iter().map(|(name, node)| {
        let asked = asked.get(&**name).copied().unwrap_or_default();
        node_now(
            (name, node),
            asked,
            machines.get(&**name),
            verdicts.get(name),
            now,
        )
    });
    nodes.collect()
}

fn node_now<'a>(
    (name, node): (&'a Arc<str>, &'a Node),
    asked: RequestedByPods,
    machine: Option<&(&'a str, &'a str, &'a str)>,
    verdict: Option<&NodeVerdict>,
    now: Time,
) -> NodeNow<'a> {
    NodeNow {
        name,
        machine: machine.map(|machine| machine.0),
        pool: machine.map(|machine| machine.1),
        host: machine.map(|machine| machine.2),
        created: node.created,
        ready: node.ready.status == ReadyStatus::True,
        cordoned: node.unschedulable,
        cpu_milli: node.allocatable.cpu_milli,
        memory: node.allocatable.memory,
        asked_cpu_milli: asked.cpu_milli,
        asked_memory: asked.memory,
        pods: asked.pods,
        max_pods: node.allocatable.pods,
        verdict: verdict.map(|verdict| wording::node_verdict(verdict, now)),
    }
}

/// Those that wait longest for what nobody gives them come first.
fn pending(turn: &Turn, now: Time) -> PendingView<'_> {
    let pods = &turn.snapshot.cluster.pods;
    let verdicts = &turn.decision.report.pods;
    let since = |key: &ObjectKey| pods.get(key).map(waiting_since);
    let mut order: Vec<(u8, Option<Time>, &ObjectKey, &PodVerdict)> = verdicts
        .iter()
        .map(|(key, verdict)| (rank(verdict), since(key), key, verdict))
        .collect();
    order.sort_by(|one, other| (one.0, one.1, one.2).cmp(&(other.0, other.1, other.2)));
    let mut shown = PendingView {
        total: order.len(),
        ..PendingView::default()
    };
    let mut known: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (_, since, key, verdict) in order.into_iter().take(MAX_PENDING) {
        let next = known.len();
        let says = *known
            .entry(wording::pod_verdict(verdict, now))
            .or_insert(next);
        let requests = pods.get(key).map(|pod| &pod.shape.requests);
        shown.pods.push(PendingPod {
            pod: key,
            verdict: verdict.name(),
            says,
            since,
            cpu_milli: requests.map_or(0, |requests| requests.cpu_milli),
            memory: requests.map_or(0, |requests| requests.memory),
        });
    }
    let mut sentences: Vec<_> = known.into_iter().collect();
    sentences.sort_by_key(|(_, number)| *number);
    shown.sentences = sentences
        .into_iter()
        .map(|(sentence, _)| sentence)
        .collect();
    shown
}

fn waiting_since(pod: &Pod) -> Time {
    pod.unschedulable_since.unwrap_or(pod.created)
}

/// The order in which a person wants to read of pods.
fn rank(verdict: &PodVerdict) -> u8 {
    match verdict {
        PodVerdict::NoCompatiblePool { .. } => 0,
        PodVerdict::Held { .. } => 1,
        PodVerdict::Unread { .. } => 2,
        PodVerdict::Batched { .. } => 3,
        PodVerdict::Triggers { .. } => 4,
        PodVerdict::FitsMachine { .. } => 5,
        PodVerdict::FitsNode { .. } => 6,
        PodVerdict::Ignored { .. } => 7,
    }
}

fn deadlines(of: &Deadlines) -> BTreeMap<&'static str, i64> {
    let pairs = [
        ("clone", of.clone),
        ("configure", of.configure),
        ("resize", of.resize),
        ("start", of.start),
        ("agent", of.agent),
        ("os", of.os),
        ("join", of.join),
        ("register", of.register),
        ("initialize", of.initialize),
        ("destroy", of.destroy),
    ];
    pairs
        .into_iter()
        .map(|(step, limit)| (step, limit.0))
        .collect()
}
