//! What the daemon answers from its last turn: the view, the plan, and stories of one pod or node.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::brain::explain::{self, Asked};
use crate::controller::control::{ControlAnswer, NameKind};
use crate::controller::turn::Turn;
use crate::model::cluster::ObjectKey;
use crate::model::snapshot::SourceState;
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
    Pod(ObjectKey),
    /// All about one node.
    Node(String),
    /// Names that begin with a text, in order, [`MAX_NAMES`] at most.
    Names(NameKind, String),
}

impl TurnQuestion {
    /// The answer of one turn. That about a pod or a node may read the record, and is made beside the loop.
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
                        if let Some(seen) = turn.snapshot.machines.get(&machine.name) {
                            let created = seen.mark.created;
                            machine.made = turn.made.find(&machine.name, created);
                            machine.made_by = turn.made.maker(&machine.name, created);
                        }
                    }
                    if let Some(machine) = &mut story.replacement {
                        work_on(turn, machine);
                    }
                    json(&story)
                }
                None => ControlAnswer::Error(no_node(turn, name)),
            },
            TurnQuestion::Names(kind, prefix) => json(&names(turn, *kind, prefix)),
        }
    }
}

/// Adds to a machine's facts what no snapshot has: the step that it is at since the turn, and what that step waits for.
fn work_on(turn: &Turn, machine: &mut MachineFacts) {
    let further = turn.waits.step(&machine.name);
    machine.step = further
        .filter(|(step, _)| machine.step.is_none_or(|(seen, _)| seen < *step))
        .or(machine.step);
    machine.waits = turn.waits.of(&machine.name).map(|wait| wait.what);
}

/// Others that are named where one is not seen, such as the pods of a Deployment.
const NAMED: usize = 5;

/// How alike two names are of which one may be meant by the other, 1 being the same.
const ALIKE: f32 = 0.7;

/// More names are not compared with one: the daemon has other things to do.
const MAX_COMPARED: usize = 1_000;

/// That a pod is not seen, and which there are whose names begin like its name, else those of names like its.
fn not_seen(turn: &Turn, key: &ObjectKey) -> String {
    let pods = || turn.snapshot.cluster.pods.keys();
    let begin = pods().filter(|other| other.name.starts_with(&*key.name));
    let mut others: Vec<String> = begin.map(ToString::to_string).collect();
    if others.is_empty() {
        let near = pods().filter(|other| other.namespace == key.namespace);
        others = alike(&key.to_string(), near.map(ToString::to_string));
    }
    others.sort();
    let named = like_it(&others);
    let was = if turn.made.has_recorded_pod(key) {
        format!("; `pve-autoscaler history --pod {key}` has what became of it")
    } else {
        String::new()
    };
    let why = unsure(turn, ["kube/pods"]);
    let why = why.or_else(|| {
        was.is_empty()
            .then(|| "ended pods are not kept in view".to_owned())
    });
    let why = why.map_or_else(String::new, |why| format!("; {why}"));
    format!("no pod {key} is seen{was}{named}{why}")
}

/// That what is not seen may be there all the same, and why: one of these sources was not read yet, or cannot be read now.
pub(super) fn unsure<'a>(
    turn: &Turn,
    sources: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    sources.into_iter().find_map(|name| {
        let source = turn.snapshot.sources.get(name)?;
        let because = source
            .reason()
            .map_or_else(String::new, |why| format!(": {why}"));
        let SourceState {
            complete, as_of, ..
        } = source;
        if !complete {
            Some(format!(
                "it may be there all the same: {name} was not yet read completely{because}"
            ))
        } else if because.is_empty() {
            None
        } else {
            Some(format!(
                "it may be there all the same: {name} was last read at {as_of}{because}"
            ))
        }
    })
}

/// That there is no such node, and what the name is else, or which nodes there are.
fn no_node(turn: &Turn, name: &str) -> String {
    let snapshot = &turn.snapshot;
    let machines = snapshot.machines.iter();
    let on_host: Vec<String> = machines
        .filter(|(_, machine)| *machine.host == *name)
        .map(|(machine, _)| machine.to_string())
        .collect();
    let mut hosts = snapshot.regions.values().flat_map(|of| of.hosts.keys());
    if hosts.any(|host| **host == *name) {
        let there = if on_host.is_empty() {
            "it has no machine of ours".to_owned()
        } else {
            format!("its machines: {}", some(&on_host))
        };
        return format!(
            "{name} is a host of PVE, and no node or machine of that name is seen; {there}"
        );
    }
    if turn.settings.policy.pools.contains_key(name) {
        return format!(
            "{name} is a pool, and no node or machine of that name is seen; `status` shows the pool's machines"
        );
    }
    let all: Vec<String> = names(turn, NameKind::Nodes, "").into_iter().collect();
    let near = alike(name, all.iter().cloned());
    let others = if near.is_empty() {
        there_are(&all)
    } else {
        like_it(&near)
    };
    let regions = snapshot
        .regions
        .keys()
        .map(|region| format!("pve/{region}"));
    let regions: Vec<String> = regions.collect();
    let sources = regions.iter().map(String::as_str);
    let why = unsure(turn, std::iter::once("kube/nodes").chain(sources));
    let why = why.map_or_else(String::new, |why| format!("; {why}"));
    let was = if turn.made.has_recorded(name) {
        format!("; `pve-autoscaler history --node {name}` has what became of it")
    } else {
        String::new()
    };
    format!("no node or machine {name} is seen{was}{others}{why}")
}

/// The names that are most like one, best first.
fn alike(name: &str, all: impl Iterator<Item = String>) -> Vec<String> {
    let all: Vec<String> = all.take(MAX_COMPARED).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let found = similar::get_close_matches(name, &all, NAMED, ALIKE);
    found.into_iter().map(str::to_owned).collect()
}

/// Some of all that there are.
fn like_it(others: &[String]) -> String {
    if others.is_empty() {
        return String::new();
    }
    format!("; names like it: {}", some(others))
}

/// All that there are.
fn there_are(others: &[String]) -> String {
    if others.is_empty() {
        return String::new();
    }
    format!("; there are {}", some(others))
}

/// Names, [`NAMED`] at most.
fn some(names: &[String]) -> String {
    let first = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
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
