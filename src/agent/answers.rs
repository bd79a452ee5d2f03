//! What the daemon answers from its last turn: the view, the plan, and stories of one pod or node.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::agent::control::{ControlAnswer, NameKind};
use crate::agent::turn::Turn;
use crate::brain::explain::{self, Asked};
use crate::model::cluster::PodKey;
use crate::model::story::MachineFacts;

/// More names than this help nobody who types one.
const MAX_NAMES: usize = 500;

/// What is asked of a turn.
#[derive(Clone, Debug)]
pub enum TurnQuestion {
    /// What was seen.
    Snapshot,
    /// What was decided.
    Plan,
    /// All about one pod.
    Pod(PodKey),
    /// All about one node.
    Node(String),
    /// Names that begin with a text, in order, [`MAX_NAMES`] at most.
    Names(NameKind, String),
}

impl TurnQuestion {
    /// The answer of one turn.
    pub fn answer(&self, turn: &Turn) -> ControlAnswer {
        let asked = Asked {
            snapshot: &turn.snapshot,
            policy: &turn.settings.policy,
            memory: &turn.decision.memory,
            decision: &turn.decision,
            now: turn.at,
        };
        match self {
            TurnQuestion::Snapshot => json(&*turn.snapshot),
            TurnQuestion::Plan => json(&*turn.decision),
            TurnQuestion::Pod(key) => match explain::pod(asked, key) {
                Some(story) => json(&story),
                None => ControlAnswer::Error(not_seen(turn, key)),
            },
            TurnQuestion::Node(name) => match explain::node(asked, name) {
                Some(mut story) => {
                    if let Some(machine) = &mut story.machine {
                        work_on(turn, machine);
                    }
                    json(&story)
                }
                None => ControlAnswer::Error(format!("no node or machine {name} is seen")),
            },
            TurnQuestion::Names(kind, prefix) => json(&names(turn, *kind, prefix)),
        }
    }
}

/// Adds to a machine's facts what the executor alone knows: the step that it is at since the turn, and what that step waits for.
fn work_on(turn: &Turn, machine: &mut MachineFacts) {
    let further = turn.waits.step(&machine.name);
    machine.step = further
        .filter(|(step, _)| machine.step.is_none_or(|(seen, _)| seen < *step))
        .or(machine.step);
    machine.waits = turn.waits.of(&machine.name).map(|wait| wait.what);
}

/// Pods of a longer name that are named where one is not seen, such as those of a Deployment.
const NAMED: usize = 5;

/// That a pod is not seen, and which there are whose names begin like its name.
fn not_seen(turn: &Turn, key: &PodKey) -> String {
    let pods = turn.snapshot.cluster.pods.iter();
    let others = pods.filter(|(other, _)| other.name.starts_with(&*key.name));
    let mut others: Vec<String> = others.map(|(other, _)| other.to_string()).collect();
    others.sort();
    let more = others.len().saturating_sub(NAMED);
    others.truncate(NAMED);
    let named = match more {
        _ if others.is_empty() => String::new(),
        0 => format!("; there are {}", others.join(", ")),
        more => format!("; there are {} and {more} more", others.join(", ")),
    };
    format!("no pod {key} is seen{named}; ended pods are not kept in view")
}

/// The names of a kind that begin with `prefix`.
fn names(turn: &Turn, kind: NameKind, prefix: &str) -> BTreeSet<String> {
    let snapshot = &turn.snapshot;
    let nodes = || snapshot.cluster.nodes.keys().map(ToString::to_string);
    let machines = || snapshot.machines.keys().map(ToString::to_string);
    let pools = turn.settings.policy.pools.keys();
    let hosts = snapshot
        .regions
        .values()
        .flat_map(|region| region.hosts.keys());
    let pods = snapshot.cluster.pods.iter();
    let all: Box<dyn Iterator<Item = String> + '_> = match kind {
        NameKind::Pods => Box::new(pods.map(|(key, _)| key.to_string())),
        NameKind::Nodes => Box::new(nodes().chain(machines())),
        NameKind::Machines => Box::new(machines()),
        NameKind::Pools => Box::new(pools.map(ToString::to_string)),
        NameKind::Hosts => Box::new(hosts.map(ToString::to_string)),
    };
    let mut found: BTreeSet<String> = all.filter(|name| name.starts_with(prefix)).collect();
    if let Some(first) = found.iter().nth(MAX_NAMES).cloned() {
        found.split_off(&first);
    }
    found
}

/// A value as an answer.
pub fn json(value: &impl Serialize) -> ControlAnswer {
    match serde_json::to_value(value) {
        Ok(value) => ControlAnswer::Ok(value),
        Err(error) => ControlAnswer::Error(error.to_string()),
    }
}
