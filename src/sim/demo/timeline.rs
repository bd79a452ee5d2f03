//! The demo's timeline: what changed between two turns, in lines that a person reads. Pure.
//!
//! What was decided and what went wrong is told at once. Steps of machines, and the numbers of pods and nodes, come in
//! crowds: they are gathered for a moment and told together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::controller::turn::Turn;
use crate::controller::wording;
use crate::model::action::{Action, Kind};
use crate::model::cluster::ReadyStatus;
use crate::model::foreign::ForeignText;
use crate::model::region::{Machine, Region, Step};
use crate::model::snapshot::Snapshot;
use crate::model::words;

/// How a line is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tone {
    /// Something the daemon decided.
    Decision,
    /// Something arrives or grows.
    Up,
    /// Something leaves.
    Down,
    /// Something went wrong.
    Trouble,
    /// A host or a template is out of use. The demo's own story has nothing of the kind: somebody asked for it on the page.
    Fault,
    /// A plain fact.
    Fact,
}

impl Tone {
    /// The sign at the beginning of its lines.
    pub(super) fn sign(self) -> char {
        match self {
            Tone::Decision => '»',
            Tone::Up => '+',
            Tone::Down => '-',
            Tone::Trouble | Tone::Fault => '!',
            Tone::Fact => ' ',
        }
    }
}

/// One line of the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TimelineLine {
    /// How it is meant.
    pub(super) tone: Tone,
    /// What is said.
    pub(super) text: String,
}

fn line(tone: Tone, text: String) -> TimelineLine {
    TimelineLine { tone, text }
}

/// Pods and nodes in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TimelineNumbers {
    /// Pods that no DaemonSet made.
    pub(super) pods: usize,
    /// Those of them without a node.
    pub(super) pending: usize,
    /// Nodes.
    pub(super) nodes: usize,
    /// Those of them that are Ready.
    pub(super) ready: usize,
}

impl TimelineNumbers {
    /// Those of a view.
    pub(super) fn of(snapshot: &Snapshot) -> TimelineNumbers {
        let cluster = &snapshot.cluster;
        let pods = cluster.pods.values().filter(|pod| {
            let owner = pod.shape.owner.as_ref();
            owner.is_none_or(|owner| &*owner.kind != "DaemonSet")
        });
        let ready = |status: ReadyStatus| status == ReadyStatus::True;
        TimelineNumbers {
            pods: pods.clone().count(),
            pending: pods.filter(|pod| pod.node.is_none()).count(),
            nodes: cluster.nodes.len(),
            ready: cluster
                .nodes
                .values()
                .filter(|node| ready(node.ready.status))
                .count(),
        }
    }

    fn line(self) -> TimelineLine {
        let pods = words::count(self.pods, "pod");
        let nodes = words::count(self.nodes, "node");
        line(
            Tone::Fact,
            format!(
                "{pods}, {} pending; {nodes}, {} Ready",
                self.pending, self.ready
            ),
        )
    }
}

/// What waits to be told.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// The last step that each machine came to.
    steps: BTreeMap<Arc<str>, Step>,
    gone: BTreeSet<Arc<str>>,
    /// Machines whose clone PVE refuses: nothing of them is under way.
    refused: BTreeSet<Arc<str>>,
    numbers: TimelineNumbers,
    said: TimelineNumbers,
}

impl Gathered {
    /// Takes what is new in `after`, and gives back what is told at once.
    pub(super) fn take(&mut self, before: Option<&Turn>, after: &Turn) -> Vec<TimelineLine> {
        let none = BTreeMap::new();
        let old = before.map_or(&none, |turn| &turn.snapshot.machines);
        let new = &after.snapshot.machines;
        self.numbers = TimelineNumbers::of(&after.snapshot);
        for (name, machine) in new {
            let step = |machine: &Machine| machine.step.map(|(step, _)| step);
            let now = step(machine).filter(|step| said(*step).is_some());
            let again = self.refused.contains(name);
            if let Some(now) = now
                && (old.get(name).and_then(step) != Some(now) || again)
            {
                self.steps.insert(name.clone(), now);
            }
        }
        for name in old.keys().filter(|name| !new.contains_key(*name)) {
            self.steps.remove(name);
            self.refused.remove(name);
            self.gone.insert(name.clone());
        }
        let refused = self.refusals(after);
        let region = after.settings.policy.regions.len() > 1;
        let plan = after.decision.plan.iter();
        let mut lines: Vec<TimelineLine> =
            plan.filter_map(|action| decided(action, region)).collect();
        lines.extend(refused);
        lines.extend(failures(old, new));
        lines.extend(troubles(
            before.map(|turn| &*turn.snapshot),
            &after.snapshot,
        ));
        lines
    }

    /// Clones that PVE refuses, each told when that begins. None of them is told of as one that is under way.
    fn refusals(&mut self, after: &Turn) -> Vec<TimelineLine> {
        let mut lines = Vec::new();
        for (name, machine) in &after.snapshot.machines {
            let clones = matches!(machine.step, Some((Step::Intent | Step::Clone, _)));
            let wait = after.waits.of(name);
            let wait = wait.filter(|wait| clones && wait.hindered && is_refusal(&wait.what));
            let Some(wait) = wait else {
                self.refused.remove(name);
                continue;
            };
            self.steps.remove(name);
            if self.refused.insert(name.clone()) {
                lines.push(line(
                    Tone::Trouble,
                    format!("no clone for {name} yet: {}", wait.what),
                ));
            }
        }
        lines
    }

    /// Whether anything waits.
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.gone.is_empty() && self.numbers == self.said
    }

    /// All that waits, machines of one step together.
    pub(super) fn tell(&mut self) -> Vec<TimelineLine> {
        let mut steps: Vec<(Step, BTreeSet<Arc<str>>)> = Vec::new();
        for (name, step) in std::mem::take(&mut self.steps) {
            match steps.iter_mut().find(|(of, _)| *of == step) {
                Some((_, names)) => {
                    names.insert(name);
                }
                None => steps.push((step, BTreeSet::from([name]))),
            }
        }
        // Who is further on comes first.
        steps.sort_by(|(one, _), (other, _)| other.cmp(one));
        let mut lines: Vec<TimelineLine> = Vec::new();
        for (step, names) in steps {
            if let Some((tone, text)) = said(step) {
                let names: Vec<_> = names.into_iter().collect();
                lines.push(line(tone, format!("{text}: {}", names.join(", "))));
            }
        }
        let gone: Vec<_> = std::mem::take(&mut self.gone).into_iter().collect();
        if !gone.is_empty() {
            lines.push(line(
                Tone::Down,
                format!("gone, VM and all: {}", gone.join(", ")),
            ));
        }
        if self.numbers != self.said {
            self.said = self.numbers;
            lines.push(self.numbers.line());
        }
        lines
    }
}

/// Whether a wait is for what PVE answered.
fn is_refusal(what: &str) -> bool {
    what.contains("PVE call ")
}

/// Hosts and templates of which something is wrong now, and was not before, and those that are well again.
fn troubles(before: Option<&Snapshot>, after: &Snapshot) -> Vec<TimelineLine> {
    let mut lines = Vec::new();
    let Some(before) = before else {
        return lines;
    };
    for (name, region) in &after.regions {
        let Some(old) = before.regions.get(name) else {
            continue;
        };
        for (host, now) in &region.hosts {
            let was = old.hosts.get(host).is_none_or(|old| old.online);
            let at = words::at(name, host);
            match (was, now.online) {
                (true, false) => {
                    let machines = after.machines.values();
                    let there = machines
                        .filter(|one| one.region == *name && one.host == *host)
                        .count();
                    let there = words::count(there, "machine");
                    lines.push(line(
                        Tone::Fault,
                        format!("host {at} is offline, with {there} of ours"),
                    ));
                }
                (false, true) => {
                    lines.push(line(Tone::Up, format!("host {at} is online again")));
                }
                _ => {}
            }
        }
        let faults = |of: &Region| -> BTreeMap<(Arc<str>, u32), Option<ForeignText>> {
            let copies = of.templates.iter();
            let copies = copies
                .flat_map(|(name, copies)| copies.iter().map(move |copy| (name.clone(), copy)));
            copies
                .map(|(name, copy)| ((name, copy.vmid), copy.fault.clone()))
                .collect()
        };
        let old = faults(old);
        for (copy, fault) in faults(region) {
            let was = old.get(&copy).cloned().flatten();
            let (template, vmid) = copy;
            match (was, fault) {
                (was, Some(fault)) if was.as_ref() != Some(&fault) => {
                    lines.push(line(Tone::Fault, format!("template {template}: {fault}")));
                }
                (Some(_), None) => lines.push(line(
                    Tone::Up,
                    format!("template {template}: VM {vmid} can be cloned again"),
                )),
                _ => {}
            }
        }
    }
    lines
}

/// Whether an action puts right what went wrong.
pub(super) fn is_repair(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::Start | Kind::Release | Kind::Relabel | Kind::DeletePlaceholder | Kind::DropIntent
    )
}

/// An action of a plan in the plan's own words, where a person wants to read of it.
pub(super) fn decided(action: &Action, regions: bool) -> Option<TimelineLine> {
    let machine = &action.target.machine;
    let (verb, _) = wording::act(action);
    let what = match &action.kind {
        Kind::Create(spec) => {
            let region = if regions {
                format!(" in {}", action.target.region)
            } else {
                String::new()
            };
            format!(
                "{verb} {machine} ({} on {}{region}, VMID {})",
                spec.mark.instance_type, action.target.host, action.target.vmid
            )
        }
        Kind::Continue => return None,
        _ => format!("{verb} {machine}"),
    };
    let text = format!("{what}: {}", action.reason);
    Some(line(Tone::Decision, text))
}

/// Failures that were not there before.
pub(super) fn failures(
    old: &BTreeMap<Arc<str>, Machine>,
    new: &BTreeMap<Arc<str>, Machine>,
) -> Vec<TimelineLine> {
    let failed = new.iter().filter_map(|(name, machine)| {
        let before = old.get(name).and_then(|machine| machine.failure.as_ref());
        let failure = machine.failure.as_ref()?;
        (before != Some(failure))
            .then(|| line(Tone::Trouble, format!("{name} failed: {}", failure.message)))
    });
    failed.collect()
}

/// How a step reads; of a way up and a way down these are what a person follows.
fn said(step: Step) -> Option<(Tone, &'static str)> {
    match step {
        Step::Clone => Some((Tone::Up, "cloning the template")),
        Step::Agent => Some((Tone::Up, "booting")),
        Step::Join => Some((Tone::Up, "joining with kubeadm")),
        Step::Done => Some((Tone::Up, "in service")),
        Step::Drain => Some((Tone::Down, "cordoned, draining")),
        _ => None,
    }
}
