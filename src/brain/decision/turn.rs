//! One decision in the making: what the steps share and add to.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use model::action::{self, Action, Kind, NodeRef, Precondition, Reason, Target};
use model::cluster::ObjectKey;
use model::decision::Decision;
use model::memory::{self, Memory};
use model::policy::Policy;
use model::reasons::{GivenUp, WaitsFor, Warning};
use model::report::{PodVerdict, Report};
use model::snapshot::Snapshot;
use model::time::{Span, Time};

use crate::constraints::claims::ClaimReservations;
use crate::constraints::shape::NamespacedShape;
use crate::decision::holds::Holds;
use crate::decision::pod_to_place::PodToPlace;
use crate::index::{IndexVec, LineIndex};
use crate::observed::provisioning;
use crate::observed::view::{MachineView, SnapshotView};

/// Steps of one decision, for all pods together: reading one part of a selector, or asking one rule of one
/// place. A step is some nanoseconds, and a decision makes each of them a few times.
pub(crate) const DECISION_STEPS: u64 = 100_000_000;

/// A decision in the making.
#[derive(Debug)]
pub(crate) struct DecisionBuilder<'a> {
    pub(crate) view: SnapshotView<'a>,
    /// The memory as it will be.
    pub(crate) memory: Memory,
    /// What holds the brain back.
    pub(crate) holds: Holds,
    pub(crate) plan: Vec<Action>,
    pub(crate) report: Report,
    /// Claims for one pod alone that pods of this decision got.
    pub(crate) claim_reservations: ClaimReservations<'a>,
    /// The pods that are not bound, in the order of their keys, with their verdicts.
    lines: IndexVec<LineIndex, (ObjectKey, Option<PodVerdict>)>,
    wake: Option<Time>,
    /// The budget of work.
    pub(crate) steps: u64,
    /// A pod that is not in the view and is tried in its world: whoever explains one leaves it out.
    pub(crate) beside: Option<NamespacedShape<'a>>,
    /// Questions in which a topology domain gets no machine, and that found no better plan in the last decision.
    pub(crate) fewer_domains_before: BTreeSet<u64>,
    /// Outdated nodes that this decision gives up, so that their pools need others for their `min`.
    pub(crate) outdated: BTreeSet<Arc<str>>,
    /// By name the nodes that this decision gives up: why, and what those wait for whose turn comes later.
    pub(crate) given_up: BTreeMap<Arc<str>, (GivenUp, Option<WaitsFor>)>,
    /// Verdicts of pods that run on nodes which are to go, and would need another place; explanations of those nodes are made of them.
    pub(crate) bound_pods: BTreeMap<&'a ObjectKey, PodVerdict>,
    /// What this decision still finds in quarantine.
    in_quarantine: BTreeSet<Arc<str>>,
}

impl<'a> DecisionBuilder<'a> {
    /// Begins with what is known and remembered.
    pub(crate) fn begin(
        snapshot: &'a Snapshot,
        policy: &'a Policy,
        memory: &Memory,
        now: Time,
    ) -> DecisionBuilder<'a> {
        let mut memory = remember(memory, now);
        provisioning::count(&mut memory, snapshot, now);
        begin_vmids(&mut memory, snapshot);
        DecisionBuilder {
            view: SnapshotView::new(snapshot, policy, &memory, now),
            memory,
            holds: Holds::default(),
            plan: Vec::new(),
            report: Report::default(),
            claim_reservations: ClaimReservations::default(),
            lines: IndexVec::default(),
            wake: None,
            steps: DECISION_STEPS,
            beside: None,
            fewer_domains_before: BTreeSet::new(),
            outdated: BTreeSet::new(),
            given_up: BTreeMap::new(),
            bound_pods: BTreeMap::new(),
            in_quarantine: BTreeSet::new(),
        }
    }

    /// What time it is.
    pub(crate) fn now(&self) -> Time {
        self.view.now
    }

    /// Something may be due at `time`.
    pub(crate) fn wake_at(&mut self, time: Time) {
        if time > self.view.now {
            self.wake = Some(self.wake.map_or(time, |wake| wake.min(time)));
        }
    }

    /// Allocates the verdicts of at most `pods` pods at once, lest the list is moved again and again as it grows.
    pub(crate) fn reserve_lines(&mut self, pods: usize) {
        self.lines.reserve(pods);
    }

    /// A line in the report for one more pod; pods come in the order of their keys.
    pub(crate) fn line(&mut self, key: &ObjectKey) -> LineIndex {
        self.lines.push((key.clone(), None))
    }

    /// Writes a pod's verdict; the last one counts.
    pub(crate) fn answer(&mut self, line: LineIndex, verdict: PodVerdict) {
        self.lines[line].1 = Some(verdict);
    }

    /// Writes the verdict of a pod that needs a place; that of one that is bound is not in the report.
    pub(crate) fn say(&mut self, to_place: PodToPlace<'a>, verdict: &PodVerdict) {
        match to_place.line {
            Some(line) => self.answer(line, verdict.clone()),
            None => {
                self.bound_pods.insert(to_place.key, verdict.clone());
            }
        }
    }

    /// The verdict that a pod which needs a place has so far.
    pub(crate) fn verdict(&self, to_place: PodToPlace<'a>) -> Option<&PodVerdict> {
        self.lines[to_place.line?].1.as_ref()
    }

    /// Tells a person.
    pub(crate) fn warn(&mut self, warning: Warning) {
        let said = &mut self.report.warnings_details;
        if !said.contains(&warning) {
            said.push(warning);
        }
    }

    /// Plans an action on a machine there is.
    pub(crate) fn act(
        &mut self,
        kind: Kind,
        target: Target,
        precondition: Precondition,
        reason: Reason,
    ) {
        self.plan.push(Action {
            version: action::VERSION,
            kind,
            target,
            precondition: Precondition {
                planned: self.view.snapshot.taken,
                ..precondition
            },
            reason,
        });
    }

    /// Whether something has been in quarantine for long enough. It begins now if it had not, but
    /// never on a view that is not good (`good`).
    pub(crate) fn quarantine_over(&mut self, key: &str, good: bool) -> bool {
        let now = self.view.now;
        let key: Arc<str> = key.into();
        let since = match self.memory.quarantine.get(&key) {
            Some(since) => *since,
            None if !good => return false,
            None => now,
        };
        self.memory.quarantine.insert(key.clone(), since);
        self.in_quarantine.insert(key);
        let over = since + self.view.policy.scale_down.quarantine;
        self.wake_at(over);
        good && (over <= now || planted!(NoQuarantine))
    }

    /// The decision.
    pub(crate) fn finish(mut self) -> Decision {
        let warnings = std::mem::take(&mut self.report.warnings_details);
        let mut sorted: Vec<(String, Warning)> = warnings.into_iter().map(with_words).collect();
        sorted.sort();
        (self.report.warnings, self.report.warnings_details) = sorted.into_iter().unzip();
        let lines = std::mem::take(&mut self.lines).into_iter();
        let holds = &self.holds;
        self.report.pods = lines
            .filter_map(|(key, verdict)| Some((key, known(verdict?, holds))))
            .collect();
        let found = &self.in_quarantine;
        self.memory.quarantine.retain(|key, _| found.contains(key));
        for action in &self.plan {
            if let Kind::Create(_) = action.kind {
                let (region, vmid) = (action.target.region.clone(), action.target.vmid);
                self.memory.last_vmids.insert(region, vmid);
            }
        }
        let (policy, snapshot) = (self.view.policy, self.view.snapshot);
        super::addresses::remember(&mut self.memory, &self.plan, policy);
        super::last_hosts::remember(&mut self.memory, &self.plan, policy, snapshot);
        provisioning::begin(&mut self.memory, &self.plan, self.view.now);
        let reasons = &mut self.memory.removals;
        super::removals::remember(reasons, &self.plan, &self.view.machines, &self.holds);
        Decision {
            plan: self.plan,
            report: self.report,
            memory: self.memory,
            wake: self.wake,
        }
    }
}

/// In a region where the VMID planned last is not known, the highest that a machine has stands for it: one that is removed
/// next must not be followed by another at its VMID.
fn begin_vmids(memory: &mut Memory, snapshot: &Snapshot) {
    let mut highest: BTreeMap<&Arc<str>, u32> = BTreeMap::new();
    for machine in snapshot.machines.values() {
        if !memory.last_vmids.contains_key(&machine.region) {
            let highest = highest.entry(&machine.region).or_default();
            *highest = machine.mark.vmid.max(*highest);
        }
    }
    let begun = highest.into_iter();
    memory
        .last_vmids
        .extend(begun.map(|(region, vmid)| (region.clone(), vmid)));
}

/// A verdict, as far as it can be given: not on what was not read yet. What other regions have no place
/// for may well find one there.
fn known(verdict: PodVerdict, holds: &Holds) -> PodVerdict {
    let unread = match &verdict {
        PodVerdict::Ignored { .. } | PodVerdict::Unread { .. } => None,
        PodVerdict::Held { .. } | PodVerdict::NoCompatiblePool { .. } => holds.unread(),
        PodVerdict::FitsNode { .. }
        | PodVerdict::FitsMachine { .. }
        | PodVerdict::Triggers { .. }
        | PodVerdict::Batched { .. } => holds.unread_kubernetes(),
    };
    match unread {
        Some(why) => PodVerdict::Unread { why: why.clone() },
        None => verdict,
    }
}

/// The target that names a machine of ours.
pub(crate) fn target(machine: &MachineView<'_>) -> Target {
    Target {
        region: machine.seen.region.clone(),
        host: machine.seen.host.clone(),
        vmid: machine.seen.mark.vmid,
        machine: machine.name.clone(),
        node: machine.node.map(|(name, node)| NodeRef {
            name: name.clone(),
            uid: node.uid.clone(),
        }),
    }
}

/// The precondition of an action on a machine whose VM carries its mark.
pub(crate) fn precondition(machine: &MachineView<'_>, max_view_age: Span) -> Precondition {
    let vm = machine.seen.vm.as_ref();
    Precondition {
        mark: vm
            .filter(|vm| vm.marked)
            .map(|_| (*machine.seen.mark).clone()),
        digest: None,
        max_view_age,
        ..Precondition::default()
    }
}

/// The memory to go on with. One of another version is lost; times that lie in the future (the
/// clock was set back) are moved to now, so that their timers start anew and nothing comes early.
fn remember(memory: &Memory, now: Time) -> Memory {
    let mut memory = if memory.version == memory::VERSION {
        memory.clone()
    } else {
        Memory::default()
    };
    memory.version = memory::VERSION;
    memory.end_future(now);
    memory.began.get_or_insert(now);
    memory
}

/// A warning with its sentence, which most often fits into so many bytes.
fn with_words(warning: Warning) -> (String, Warning) {
    let mut words = String::with_capacity(192);
    // Writing to a string does not fail.
    let _ = write!(words, "{warning}");
    (words, warning)
}
