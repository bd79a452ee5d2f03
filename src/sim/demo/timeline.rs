//! The demo's timeline: what changed between two turns, in lines that a person reads. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::agent::turn::Turn;
use crate::model::action::Kind;
use crate::model::cluster::ReadyStatus;
use crate::model::region::{Machine, Step};
use crate::model::snapshot::{Lease, Snapshot};
use crate::model::words;

/// How a line is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Something arrives or grows.
    Up,
    /// Something leaves.
    Down,
    /// Something the daemon decided.
    Decision,
    /// Something went wrong.
    Trouble,
    /// A plain fact.
    Fact,
}

/// One line of the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// How it is meant.
    pub tone: Tone,
    /// What is said.
    pub text: String,
}

fn line(tone: Tone, text: String) -> Line {
    Line { tone, text }
}

/// What is new in `after`.
pub fn lines(before: Option<&Turn>, after: &Turn) -> Vec<Line> {
    let nothing = Snapshot {
        version: 0,
        taken: after.at,
        cluster_id: None,
        sources: BTreeMap::new(),
        cluster: crate::model::cluster::Cluster::default(),
        regions: BTreeMap::new(),
        machines: BTreeMap::new(),
        leader: true,
        lease: Lease::default(),
        cluster_id_error: None,
        paused: None,
        awake: None,
        former: BTreeMap::new(),
    };
    let old = before.map_or(&nothing, |turn| &*turn.snapshot);
    let mut lines = pods(old, &after.snapshot);
    lines.extend(after.decision.plan.iter().filter_map(|action| {
        let machine = &action.target.machine;
        let (tone, verb) = match &action.kind {
            Kind::Create(spec) => {
                let region = if after.settings.policy.regions.len() > 1 {
                    format!(" in {}", action.target.region)
                } else {
                    String::new()
                };
                let what = format!(
                    "create {machine} ({} on {}{region}, VMID {})",
                    spec.mark.instance_type, action.target.host, action.target.vmid
                );
                return Some(line(Tone::Decision, format!("{what}: {}", action.reason)));
            }
            Kind::Continue => return None,
            Kind::Remove { .. } => (Tone::Decision, "remove"),
            Kind::Start => (Tone::Trouble, "start"),
            Kind::Release => (Tone::Trouble, "release"),
            Kind::Relabel => (Tone::Trouble, "relabel"),
            Kind::DeleteNode => (Tone::Decision, "delete the node of"),
            Kind::DeletePlaceholder => (Tone::Trouble, "delete the placeholder of"),
            Kind::DropIntent => (Tone::Trouble, "drop the intent of"),
        };
        Some(line(tone, format!("{verb} {machine}: {}", action.reason)))
    }));
    lines.extend(machines(&old.machines, &after.snapshot.machines));
    lines.extend(nodes(old, &after.snapshot));
    lines
}

fn pods(old: &Snapshot, new: &Snapshot) -> Vec<Line> {
    let count = |snapshot: &Snapshot| {
        let all = snapshot.cluster.pods.values().filter(|pod| {
            pod.shape
                .owner
                .as_ref()
                .is_none_or(|owner| &*owner.kind != "DaemonSet")
        });
        let pending = all.clone().filter(|pod| pod.node.is_none()).count();
        (all.count(), pending)
    };
    let ((was, was_pending), (is, pending)) = (count(old), count(new));
    if (was, was_pending) == (is, pending) {
        return Vec::new();
    }
    let tone = if is < was {
        Tone::Down
    } else if pending > was_pending {
        Tone::Up
    } else {
        Tone::Fact
    };
    vec![line(
        tone,
        format!("{}, {pending} of them pending", words::count(is, "pod")),
    )]
}

fn machines(old: &BTreeMap<Arc<str>, Machine>, new: &BTreeMap<Arc<str>, Machine>) -> Vec<Line> {
    let mut lines = Vec::new();
    for (name, machine) in new {
        let before = old.get(name);
        let step = machine.step.map(|(step, _)| step);
        if step != before.and_then(|machine| machine.step.map(|(step, _)| step))
            && let Some((tone, text)) = step.and_then(said)
        {
            lines.push(line(tone, format!("{name}: {text}")));
        }
        if machine.failure != before.and_then(|machine| machine.failure.clone())
            && let Some(failure) = &machine.failure
        {
            lines.push(line(
                Tone::Trouble,
                format!("{name} failed: {}", failure.message),
            ));
        }
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        lines.push(line(Tone::Down, format!("{name} is gone, VM and all")));
    }
    lines
}

/// How a step reads; steps that are over in no time say nothing.
fn said(step: Step) -> Option<(Tone, &'static str)> {
    match step {
        Step::Clone => Some((Tone::Up, "cloning the template")),
        Step::Start => Some((Tone::Up, "starting")),
        Step::Agent => Some((Tone::Up, "booting")),
        Step::Join => Some((Tone::Up, "joining with kubeadm")),
        Step::Initialize => Some((Tone::Up, "registered; waiting for Ready")),
        Step::Done => Some((Tone::Up, "in service")),
        Step::Drain => Some((Tone::Down, "cordoned, draining")),
        Step::Shutdown => Some((Tone::Down, "drained; shutting down")),
        Step::Destroy => Some((Tone::Down, "destroying the VM")),
        _ => None,
    }
}

fn nodes(old: &Snapshot, new: &Snapshot) -> Vec<Line> {
    let ready = |snapshot: &Snapshot| {
        let nodes = &snapshot.cluster.nodes;
        (
            nodes.len(),
            nodes
                .values()
                .filter(|node| node.ready.status == ReadyStatus::True)
                .count(),
        )
    };
    if ready(old) == ready(new) {
        return Vec::new();
    }
    let (all, up) = ready(new);
    let tone = if all < old.cluster.nodes.len() {
        Tone::Down
    } else {
        Tone::Fact
    };
    vec![line(
        tone,
        format!("{}, {up} of them Ready", words::count(all, "node")),
    )]
}
