//! `when`: what a case does to its world, and what came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::brain::LowerBound;
use crate::brain::check;
use crate::brain::inspect::{self, DrainPreview, RequestedShare};
use crate::model::action::{Action, Kind};
use crate::model::cluster::ObjectKey;
use crate::model::decision::Decision;
use crate::model::time::Span;

use super::fields::CaseFields;
use super::scalars::{parse_span, span, text, truth, whole};
use super::stage::CaseWorld;
use super::value::{CaseError, CaseValue};

const KNOWN: &str = "plan_scale_up, plan_scale_down, plan, consolidate, consolidate(SPAN), drain_rules(NODE), utilization(NODE), reconcile(LOOPS), nothing";
/// Loops of `reconcile` at most: a day of them at ten seconds.
const MAX_LOOPS: u32 = 10_000;

/// Time between two decisions of `consolidate`.
const PAUSE: Span = Span::seconds(10);
/// How long `consolidate` waits for a plan.
const PATIENCE: Span = Span::minutes(5);

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CaseAction {
    /// Decide once.
    Plan,
    /// Only carry out what the step adds and takes away.
    Nothing,
    /// Ask what a drain of this node would do.
    DrainRules(String),
    /// Ask how full this node is.
    Utilization(String),
    /// Decide again and again, carrying nothing out, until something is planned: what was found must
    /// be found once more, and nodes must have been at rest.
    Consolidate {
        /// For so long.
        within: Span,
    },
    /// Decide and carry out, again and again.
    Reconcile {
        /// How often.
        loops: u32,
        /// Time between two.
        every: Span,
    },
}

/// A machine that was planned.
#[derive(Clone, Debug)]
pub(super) struct PlannedNode {
    pub(super) name: Arc<str>,
    /// Pool and type as the case calls them.
    pub(super) pool: String,
    pub(super) kind: String,
    pub(super) host: Arc<str>,
}

impl CaseAction {
    /// The node that is asked about.
    pub(super) fn node(&self) -> Option<&str> {
        match self {
            CaseAction::DrainRules(node) | CaseAction::Utilization(node) => Some(node),
            _ => None,
        }
    }
}

/// What came of it.
#[derive(Debug)]
pub(super) struct CaseResult {
    /// The world that was decided on (for `reconcile`, the first).
    pub(super) before: CaseWorld,
    /// The world once all plans are carried out.
    pub(super) after: CaseWorld,
    /// The decisions, in order.
    pub(super) decisions: Vec<Decision>,
    /// All machines planned.
    pub(super) planned: Vec<PlannedNode>,
    /// Nodes planned to go.
    pub(super) removed: Vec<String>,
    /// All actions.
    pub(super) actions: Vec<Action>,
    /// Actions that the checker refuses, and why.
    pub(super) refused: Vec<String>,
    /// The lower bound of the last decision.
    pub(super) lower_bound: LowerBound,
    pub(super) drain: Option<DrainPreview>,
    pub(super) utilization: Option<Result<RequestedShare, String>>,
    /// Names and amounts of pods that were waiting before.
    pub(super) waited: BTreeSet<ObjectKey>,
}

impl CaseResult {
    /// The last decision, or none was made.
    pub(super) fn last(&self) -> Option<&Decision> {
        self.decisions.last()
    }
}

/// Reads `when`.
pub(super) fn read(value: &CaseValue) -> Result<CaseAction, CaseError> {
    if let Some(written) = value.scalar() {
        let (name, argument) = match written.strip_suffix(')').and_then(|w| w.split_once('(')) {
            Some((name, argument)) => (name.trim(), Some(argument.trim())),
            None => (written.trim(), None),
        };
        return simple(value, name, argument);
    }
    let entries = value.map().unwrap_or_default();
    let [entry] = entries else {
        return Err(value.expected(&format!("one of {KNOWN}")));
    };
    if entry.value.map().is_none() {
        return simple(value, &entry.key, entry.value.scalar());
    }
    let mut fields = CaseFields::of(&entry.value, "when")?;
    let when = match entry.key.as_str() {
        "reconcile" => CaseAction::Reconcile {
            loops: fields.with("loops", whole)?.unwrap_or(10).min(MAX_LOOPS),
            every: fields.with("every", span)?.unwrap_or(Span::seconds(10)),
        },
        "drain_rules" => CaseAction::DrainRules(text(fields.need("node")?)?.to_owned()),
        "utilization" => CaseAction::Utilization(text(fields.need("node")?)?.to_owned()),
        other => {
            fields.rest();
            simple(value, other, None)?
        }
    };
    fields.done()?;
    Ok(when)
}

fn simple(value: &CaseValue, name: &str, argument: Option<&str>) -> Result<CaseAction, CaseError> {
    let node = || {
        argument
            .filter(|node| !node.is_empty())
            .map(str::to_owned)
            .ok_or_else(|| value.wrong(format!("{name} needs a node, as {name}(n1)")))
    };
    Ok(match name {
        "plan" | "plan_scale_up" | "plan_scale_down" | "scale_up" | "scale_down" | "decide" => {
            CaseAction::Plan
        }
        "consolidate" => CaseAction::Consolidate {
            within: match argument {
                None => PATIENCE,
                Some(within) => {
                    parse_span(within).ok_or_else(|| value.expected("consolidate(SPAN)"))?
                }
            },
        },
        "nothing" => CaseAction::Nothing,
        "drain_rules" => CaseAction::DrainRules(node()?),
        "utilization" => CaseAction::Utilization(node()?),
        "reconcile" => {
            let argument = argument.unwrap_or("10");
            let (loops, every) = argument.split_once(',').unwrap_or((argument, "10s"));
            let loops = loops
                .split_whitespace()
                .next()
                .and_then(|n| n.parse::<u32>().ok());
            let every = parse_span(every.trim());
            match (loops, every) {
                (Some(loops), Some(every)) => CaseAction::Reconcile {
                    loops: loops.min(MAX_LOOPS),
                    every,
                },
                _ => return Err(value.expected("reconcile(LOOPS) or reconcile(LOOPS, EVERY)")),
            }
        }
        _ => return Err(value.expected(&format!("one of {KNOWN}"))),
    })
}

/// Does it. The stage is left as decided on; [`CaseResult::after`] has the plan carried out.
pub(super) fn perform(when: &CaseAction, stage: &CaseWorld) -> CaseResult {
    let mut outcome = CaseResult {
        before: stage.clone(),
        after: stage.clone(),
        decisions: Vec::new(),
        planned: Vec::new(),
        removed: Vec::new(),
        actions: Vec::new(),
        refused: Vec::new(),
        lower_bound: LowerBound::default(),
        drain: None,
        utilization: None,
        waited: waiting(stage),
    };
    let (snapshot, policy, memory) = (&stage.snapshot, &stage.policy, &stage.memory);
    match when {
        CaseAction::Nothing => {}
        CaseAction::Plan => once(&mut outcome),
        CaseAction::Consolidate { within } => {
            let end = stage.now + *within;
            let mut waiting = stage.clone();
            let (mut decision, mut bound) = waiting.decide();
            while decision.plan.is_empty() && waiting.now < end {
                waiting.advance(PAUSE);
                (decision, bound) = waiting.decide();
            }
            outcome.lower_bound = bound;
            outcome.after = waiting;
            carry_out(&mut outcome, decision);
        }
        CaseAction::DrainRules(node) => {
            outcome.drain = Some(inspect::drain(snapshot, policy, memory, node, stage.now));
        }
        CaseAction::Utilization(node) => {
            outcome.utilization = Some(inspect::utilization(
                snapshot, policy, memory, node, stage.now,
            ));
        }
        CaseAction::Reconcile { loops, every } => {
            for turn in 0..*loops {
                if turn > 0 {
                    outcome.after.advance(*every);
                }
                once(&mut outcome);
            }
        }
    }
    outcome
}

fn waiting(stage: &CaseWorld) -> BTreeSet<ObjectKey> {
    let pods = stage.snapshot.cluster.pods.iter();
    pods.filter(|(_, pod)| pod.node.is_none())
        .map(|(key, _)| key.clone())
        .collect()
}

/// One decision, checked and carried out.
fn once(outcome: &mut CaseResult) {
    let (decision, bound) = outcome.after.decide();
    outcome.lower_bound = bound;
    carry_out(outcome, decision);
}

fn carry_out(outcome: &mut CaseResult, decision: Decision) {
    let stage = &mut outcome.after;
    for action in &decision.plan {
        let verdict = check::check(action, &stage.snapshot, &stage.policy, stage.now);
        if let Err(refusal) = verdict {
            outcome
                .refused
                .push(format!("{}: {refusal}", action.target.machine));
        }
        match &action.kind {
            Kind::Create(spec) => outcome.planned.push(PlannedNode {
                name: action.target.machine.clone(),
                pool: stage.names.pool(&spec.mark.pool).to_owned(),
                kind: stage.names.kind(&spec.mark.instance_type).to_owned(),
                host: action.target.host.clone(),
            }),
            Kind::Remove { .. } => outcome.removed.push(action.target.machine.to_string()),
            _ => {}
        }
    }
    outcome.actions.extend(decision.plan.iter().cloned());
    stage.arrive_all();
    stage.apply(&decision);
    outcome.decisions.push(decision);
}

/// Between two steps: pods and nodes that go.
pub(super) fn delete(value: &CaseValue, stage: &mut CaseWorld) -> Result<(), CaseError> {
    let mut fields = CaseFields::of(value, "delete")?;
    let cluster = &mut stage.snapshot.cluster;
    if let Some(value) = fields.take("pods") {
        let mut patterns = super::scalars::texts(value)?;
        let mut found = BTreeSet::new();
        cluster.pods.retain(|key, _| {
            let hit = patterns.iter().find(|pattern| matches(pattern, key));
            found.extend(hit.cloned());
            hit.is_none()
        });
        patterns.retain(|pattern| !found.contains(pattern));
        if let Some(pattern) = patterns.first() {
            return Err(value.wrong(format!("there is no pod {pattern:?} to delete")));
        }
    }
    if let Some(value) = fields.take("pods_in") {
        let wanted = value
            .map()
            .ok_or_else(|| value.expected("a node label with its values, as {zone: [z2, z3]}"))?;
        let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for entry in wanted {
            let key = super::scalars::label_key(&entry.key);
            places.insert(key, super::scalars::texts(&entry.value)?);
        }
        let nodes = &cluster.nodes;
        cluster.pods.retain(|_, pod| {
            let node = pod.node.as_ref().and_then(|name| nodes.get(name));
            !node.is_some_and(|node| {
                places.iter().all(|(key, values)| {
                    node.labels
                        .get(*key)
                        .is_some_and(|of| values.iter().any(|value| *value == **of))
                })
            })
        });
    }
    if let Some(value) = fields.take("nodes") {
        for name in super::scalars::texts(value)? {
            let name: Arc<str> = name.into();
            if cluster.nodes.remove(&name).is_none() && !stage.snapshot.machines.contains_key(&name)
            {
                return Err(value.wrong(format!("there is no node {name:?} to delete")));
            }
            if let Some(machine) = stage.snapshot.machines.remove(&name)
                && let Some(region) = stage.snapshot.regions.get_mut(&machine.region)
            {
                region.vms.remove(&machine.mark.vmid);
            }
            cluster
                .pods
                .retain(|_, pod| pod.node.as_ref() != Some(&name));
        }
    }
    if let Some(value) = fields.take("pdbs") {
        for name in super::scalars::texts(value)? {
            cluster.budgets.retain(|key, _| *key.name != *name);
        }
    }
    fields.done()
}

/// Whether a pod is meant: `name`, `ns/name`, with `*` for any end.
pub(super) fn matches(pattern: &str, key: &ObjectKey) -> bool {
    let full;
    let subject = if pattern.contains('/') {
        full = key.to_string();
        full.as_str()
    } else {
        &*key.name
    };
    match pattern.strip_suffix('*') {
        Some(head) => subject.starts_with(head),
        None => subject == pattern,
    }
}

/// `apply: false` keeps the plan of a step from being carried out before the next.
pub(super) fn applied(value: Option<&CaseValue>) -> Result<bool, CaseError> {
    value.map_or(Ok(true), truth)
}
