//! What if: the plan that the present view would have with more pods, or under another configuration. It is decided by
//! the brain as every plan is, and nothing is carried out. Pure.

mod changes;
mod manifests;
mod mistakes;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::brain;
use crate::controller::turn::Turn;
use crate::controller::wording;
use crate::model::action::Action;
use crate::model::cluster::ObjectKey;
use crate::model::decision::Decision;
use crate::model::memory::Memory;
use crate::model::policy::Policy;
use crate::model::snapshot::Snapshot;
use crate::model::time::Time;

pub use changes::ConfigChange;
use manifests::AddedManifests;
pub use manifests::MAX_TEXT;

/// Pods and nodes of the cluster of which it is told that their lot changes.
const MAX_TOLD: usize = 100;

/// What is supposed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Supposition {
    /// Pods, Deployments, ReplicaSets, StatefulSets, Jobs and CronJobs in YAML, or a List of them.
    pub manifests: String,
    /// Keys of the configuration and what they would be.
    pub changes: Vec<ConfigChange>,
}

/// What would come of it.
#[derive(Clone, Debug, Serialize)]
pub struct WhatIfOutcome {
    /// The supposed pods.
    pub pods: Vec<WhatIfVerdict>,
    /// What of the manifests counts otherwise than as pods, or not at all, in sentences.
    pub notes: Vec<String>,
    /// What would be done that is not done as things are.
    pub more: Vec<WhatIfAction>,
    /// What would not be done that is done as things are.
    pub less: Vec<WhatIfAction>,
    /// What the new machines would cost, in words.
    pub growth: Option<String>,
    /// What would be on hold.
    pub holds: Vec<String>,
    /// Other pods and nodes whose lot would be another.
    pub others: Vec<WhatIfVerdict>,
    /// There are more of these.
    pub more_others: usize,
}

/// What becomes of a pod or node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WhatIfVerdict {
    /// `pod` or `node`.
    pub kind: &'static str,
    /// The name of the pod or node.
    pub name: String,
    /// What the brain would make of it, in a word; of pods as in JSON.
    pub verdict: String,
    /// What becomes of it.
    pub what: String,
    /// Why.
    pub why: String,
    /// What becomes of it as things are; empty for what is supposed.
    pub now: String,
}

/// An action in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WhatIfAction {
    /// What is done.
    pub verb: &'static str,
    /// To which machine.
    pub machine: String,
    /// With what.
    pub what: String,
    /// Why.
    pub why: String,
}

/// Decides what would be, and compares it with what is.
///
/// # Errors
/// Why that cannot be supposed, in words for who asked.
pub fn suppose(turn: &Turn, supposed: &Supposition) -> Result<WhatIfOutcome, String> {
    let mut snapshot = (*turn.snapshot).clone();
    let added = manifests::add(&mut snapshot, &supposed.manifests, turn.at)?;
    let policy = &turn.settings.policy;
    let changed = changes::changed(&turn.settings.text, &supposed.changes, policy)?;
    if added.pods.is_empty() && changed.is_none() {
        return Err(if added.notes.is_empty() {
            "Nothing is supposed: paste a Pod or a workload, or change a key.".to_owned()
        } else {
            format!("Nothing is supposed. {}", added.notes.join(" "))
        });
    }
    let memory = &turn.decision.memory;
    let (as_is, _) = settled(&turn.snapshot, policy, memory, turn.at);
    let (would, at) = settled(
        &snapshot,
        changed.as_ref().unwrap_or(policy),
        memory,
        turn.at,
    );
    Ok(compare(added, &as_is, &would, at))
}

/// The decision at the end of the batch that new pods are gathered in: the one of interest.
fn settled(snapshot: &Snapshot, policy: &Policy, memory: &Memory, now: Time) -> (Decision, Time) {
    let first = brain::decide(snapshot, policy, memory, now);
    let open = first
        .memory
        .batch
        .as_ref()
        .is_some_and(|batch| !batch.closed);
    if !open {
        return (first, now);
    }
    let later = now + policy.scale_up.batch_max;
    let mut later_view = snapshot.clone();
    // The view is as good as now: what grows old while nobody looks again is no reason to hold.
    for source in later_view.sources.values_mut() {
        source.as_of = source.as_of + policy.scale_up.batch_max;
    }
    (
        brain::decide(&later_view, policy, &first.memory, later),
        later,
    )
}

fn compare(added: AddedManifests, as_is: &Decision, would: &Decision, at: Time) -> WhatIfOutcome {
    let AddedManifests { pods, notes } = added;
    let supposed: BTreeSet<&ObjectKey> = pods.iter().collect();
    let fate = |key: &ObjectKey, now: String| {
        let verdict = would.report.pods.get(key);
        let (what, why) = verdict.map_or_else(
            || ("is not judged".to_owned(), String::new()),
            |verdict| wording::pod_verdict(verdict, at),
        );
        WhatIfVerdict {
            kind: "pod",
            name: key.to_string(),
            verdict: verdict
                .map_or("unread", |verdict| verdict.name())
                .to_owned(),
            what,
            why,
            now,
        }
    };
    let mut others: Vec<WhatIfVerdict> = Vec::new();
    for (key, verdict) in &would.report.pods {
        let was = as_is.report.pods.get(key);
        let differs = was.is_none_or(|was| was.name() != verdict.name());
        if differs && !supposed.contains(key) {
            let was = was.map(|was| wording::pod_verdict(was, at).0);
            others.push(fate(key, was.unwrap_or_else(|| "runs".to_owned())));
        }
    }
    for (name, verdict) in &would.report.nodes {
        let (what, why) = wording::node_verdict(verdict, at);
        let was = as_is.report.nodes.get(name);
        let was = was
            .map(|was| wording::node_verdict(was, at).0)
            .unwrap_or_default();
        if was != what {
            others.push(WhatIfVerdict {
                kind: "node",
                name: name.to_string(),
                verdict: what.clone(),
                what,
                why,
                now: was,
            });
        }
    }
    let more_others = others.len().saturating_sub(MAX_TOLD);
    others.truncate(MAX_TOLD);
    let holds = would.report.holds.iter();
    WhatIfOutcome {
        notes,
        pods: pods.iter().map(|key| fate(key, String::new())).collect(),
        more: beyond(&would.plan, &as_is.plan),
        less: beyond(&as_is.plan, &would.plan),
        growth: would.report.scale_up.map(|growth| growth.to_string()),
        holds: holds
            .map(|hold| format!("{}: {}", hold.scope, hold.why))
            .collect(),
        others,
        more_others,
    }
}

/// The actions of one plan that the other does not have.
fn beyond(plan: &[Action], other: &[Action]) -> Vec<WhatIfAction> {
    let deed = |action: &Action| {
        let (verb, what) = wording::act(action);
        WhatIfAction {
            verb,
            machine: action.target.machine.to_string(),
            what,
            why: action.reason.to_string(),
        }
    };
    // A machine that is planned in both is the same by what it is, whatever it is called.
    let sign = |action: &Action| {
        let (verb, what) = wording::act(action);
        let machine = (verb != "create").then(|| action.target.machine.clone());
        (verb, machine, what)
    };
    let mut known: Vec<_> = other.iter().map(sign).collect();
    let fresh = plan.iter().filter(|action| {
        let sign = sign(action);
        match known.iter().position(|one| *one == sign) {
            Some(place) => {
                known.swap_remove(place);
                false
            }
            None => true,
        }
    });
    fresh.map(deed).collect()
}
