//! What if: the plan that the present view would have with more pods, or under another configuration. It is decided by
//! the brain as every plan is, and nothing is carried out. Pure.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::agent::turn::Turn;
use crate::agent::wording;
use crate::brain;
use crate::config;
use crate::kube::manifests::Manifests;
use crate::kube::workloads;
use crate::model::action::Action;
use crate::model::cluster::PodKey;
use crate::model::decision::Decision;
use crate::model::memory::Memory;
use crate::model::policy::Policy;
use crate::model::snapshot::Snapshot;
use crate::model::time::{Span, Time};

/// Longest text of manifests.
const MAX_TEXT: usize = 64 * 1024;
/// Pods that may be supposed at once.
const MAX_PODS: usize = 500;
/// Changes of the configuration at once.
const MAX_CHANGES: usize = 20;
/// Longest key or value of a change.
const MAX_WORD: usize = 1_000;
/// Pods and nodes of the cluster of which it is told that their lot changes.
const MAX_TOLD: usize = 100;
/// How old supposed pods are: no delay for young pods holds them.
const AGE: Span = Span::minutes(60);

/// What is supposed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Supposition {
    /// Pods, Deployments, ReplicaSets, StatefulSets and Jobs in YAML.
    pub manifests: String,
    /// Keys of the configuration and what they would be.
    pub changes: Vec<ConfigChange>,
}

/// A key of the configuration with another value.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigChange {
    /// The key with its tables, such as `pool.general.max`.
    pub key: String,
    /// The value as it would stand in the file: `20`, `"4GiB"`, `["small"]`.
    pub value: String,
}

/// What would come of it.
#[derive(Clone, Debug, Serialize)]
pub struct WhatIfOutcome {
    /// The supposed pods.
    pub pods: Vec<WhatIfVerdict>,
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
    let pods = add_pods(&mut snapshot, &supposed.manifests, turn.at)?;
    let changed = changed(&turn.settings.text, &supposed.changes)?;
    if pods.is_empty() && changed.is_none() {
        return Err("Nothing is supposed: paste a Pod or a workload, or change a key.".to_owned());
    }
    let policy = &turn.settings.policy;
    let memory = &turn.decision.memory;
    let (as_is, _) = settled(&turn.snapshot, policy, memory, turn.at);
    let (would, at) = settled(
        &snapshot,
        changed.as_ref().unwrap_or(policy),
        memory,
        turn.at,
    );
    Ok(compare(&pods, &as_is, &would, at))
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

/// Puts the pods of manifests into the view, as if they waited for a node.
fn add_pods(snapshot: &mut Snapshot, text: &str, now: Time) -> Result<Vec<PodKey>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    if text.len() > MAX_TEXT {
        return Err(format!(
            "The manifests have {} bytes, at most {MAX_TEXT} are read.",
            text.len()
        ));
    }
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)
        .map_err(|error| format!("The manifests are no YAML: {error}"))?;
    let mut reader = Manifests::default();
    let mut added = Vec::new();
    for (place, document) in documents.into_iter().enumerate() {
        if document.is_null() {
            continue;
        }
        let name = |text: &str| format!("Document {}: {text}", place + 1);
        let room = MAX_PODS - added.len();
        for object in pods_of(document, room).map_err(|why| name(&why))? {
            let (key, pod) = read(&mut reader, object, now).map_err(|why| name(&why))?;
            if snapshot.cluster.pods.contains_key(&key) {
                let why = format!("there is a pod {key} already; give it another name");
                return Err(name(&why));
            }
            snapshot.cluster.pods.insert(key.clone(), pod);
            added.push(key);
        }
    }
    Ok(added)
}

/// The pods that a document stands for.
fn pods_of(document: Value, room: usize) -> Result<Vec<Value>, String> {
    let kind = document["kind"].as_str().unwrap_or_default().to_owned();
    if kind != "Pod" && !workloads::makes_pods(&kind) {
        let said = if kind.is_empty() {
            "it has no kind".to_owned()
        } else {
            format!("kind {kind}")
        };
        return Err(format!(
            "{said}; known are Pod, Deployment, ReplicaSet, StatefulSet and Job"
        ));
    }
    if document["metadata"]["name"]
        .as_str()
        .is_none_or(str::is_empty)
    {
        return Err(format!("the {kind} has no metadata.name"));
    }
    let containers = match kind.as_str() {
        "Pod" => &document["spec"]["containers"],
        _ => &document["spec"]["template"]["spec"]["containers"],
    };
    if containers.as_array().is_none_or(Vec::is_empty) {
        return Err(format!("the {kind} has no containers"));
    }
    let number = |key: &str| document["spec"][key].as_u64().unwrap_or(1);
    let wanted = match kind.as_str() {
        "Pod" => 1,
        "Job" => number("parallelism"),
        _ => number("replicas"),
    };
    if wanted > room as u64 {
        return Err(format!(
            "the {kind} has {wanted} pods; {MAX_PODS} may be supposed in all"
        ));
    }
    Ok(workloads::pods(document))
}

/// A pod as the watches would show it.
fn read(
    reader: &mut Manifests,
    mut object: Value,
    now: Time,
) -> Result<(PodKey, crate::model::cluster::Pod), String> {
    let since = (now - AGE).to_string();
    let metadata = &mut object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default().to_owned();
    metadata["uid"] = format!("supposed-{name}").into();
    metadata["creationTimestamp"] = since.as_str().into();
    if metadata["namespace"].is_null() {
        metadata["namespace"] = "default".into();
    }
    if let Some(spec) = object["spec"].as_object_mut() {
        spec.remove("nodeName");
    }
    object["status"] = json!({
        "phase": "Pending",
        "conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": since,
        }],
    });
    let (pod, problems) = reader.pod(&object);
    if let Some(problem) = problems.first() {
        return Err(format!("pod {name}: {problem}"));
    }
    pod.ok_or_else(|| format!("pod {name} cannot be read"))
}

/// The policy of the changed configuration; `None` when nothing is changed.
fn changed(text: &str, changes: &[ConfigChange]) -> Result<Option<Policy>, String> {
    if changes.is_empty() {
        return Ok(None);
    }
    if changes.len() > MAX_CHANGES {
        return Err(format!(
            "At most {MAX_CHANGES} keys may be changed at once."
        ));
    }
    let mut file: toml::Table = text
        .parse()
        .map_err(|error| format!("The configuration cannot be read: {error}"))?;
    for change in changes {
        set(&mut file, change).map_err(|why| format!("{}: {why}", change.key))?;
    }
    let text = toml::to_string(&file).map_err(|error| error.to_string())?;
    let settings = config::parse(&text, "the changed configuration").map_err(|errors| {
        let mut said = "The changed configuration has errors:".to_owned();
        for line in errors
            .to_string()
            .lines()
            .filter(|line| line.contains(": "))
        {
            let _ = write!(
                said,
                " {}",
                line.trim_start_matches("the changed configuration")
            );
        }
        said
    })?;
    Ok(Some(settings.policy))
}

/// Sets one key; tables on the way are made.
fn set(file: &mut toml::Table, change: &ConfigChange) -> Result<(), String> {
    if change.key.len() > MAX_WORD || change.value.len() > MAX_WORD {
        return Err(format!("a key and its value have at most {MAX_WORD} bytes"));
    }
    let wrong = "expected a key with its tables, such as pool.general.max";
    let value = format!("value = {}", change.value.trim());
    let mut value: toml::Table = value
        .parse()
        .map_err(|_| format!("{} is no value; text stands in quotes", change.value))?;
    if value.len() != 1 {
        return Err(format!("{} is more than one value", change.value));
    }
    let value = value.remove("value").ok_or("it has no value")?;
    let parts: Vec<&str> = change.key.trim().split('.').collect();
    let Some((last, tables)) = parts.split_last() else {
        return Err(wrong.to_owned());
    };
    if parts.iter().any(|part| part.is_empty()) {
        return Err(wrong.to_owned());
    }
    let mut table = file;
    for name in tables {
        let next = table
            .entry((*name).to_owned())
            .or_insert_with(|| toml::Value::Table(toml::Table::new()));
        table = next
            .as_table_mut()
            .ok_or_else(|| format!("{name} is no table in the configuration"))?;
    }
    table.insert((*last).to_owned(), value);
    Ok(())
}

fn compare(pods: &[PodKey], as_is: &Decision, would: &Decision, at: Time) -> WhatIfOutcome {
    let supposed: BTreeSet<&PodKey> = pods.iter().collect();
    let fate = |key: &PodKey, now: String| {
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
        match known.iter().position(|other| *other == sign) {
            Some(place) => {
                known.swap_remove(place);
                false
            }
            None => true,
        }
    });
    fresh.map(deed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "version = 1\n[proxmox]\nvmids = \"9000-9999\"\n[template.debian]\nvmid = 8000\n\
        [instance_type.small]\ncores = 2\nmemory = \"4GiB\"\n[pool.workers]\ntemplate = \"debian\"\n\
        instance_types = [\"small\"]\nmax = 5\n";

    fn change(key: &str, value: &str) -> Vec<ConfigChange> {
        vec![ConfigChange {
            key: key.to_owned(),
            value: value.to_owned(),
        }]
    }

    #[test]
    fn a_key_is_changed_and_a_wrong_one_is_named() {
        let policy = changed(FILE, &change("pool.workers.max", "20")).expect("it is fine");
        assert_eq!(policy.expect("changed").pools["workers"].max, 20);
        let policy = changed(FILE, &change("scale_up.max_in_flight", "3")).expect("a new table");
        assert_eq!(policy.expect("changed").scale_up.max_in_flight, 3);
        assert!(changed(FILE, &[]).expect("nothing").is_none());
        for (key, value, wanted) in [
            ("pool.workers.max", "many", "many is no value"),
            (
                "pool.workers.max",
                "\"x\"",
                "pool.workers.max = \"x\": expected a whole number",
            ),
            ("pool.workers.maxx", "3", "maxx: unknown key"),
            ("pool.workers.max.more", "3", "max is no table"),
            ("", "3", "expected a key"),
            ("pool..max", "3", "expected a key"),
            ("pool.workers.max", "3\nmin = 1", "more than one value"),
        ] {
            let why = changed(FILE, &change(key, value)).expect_err(key);
            assert!(why.contains(wanted), "{key}: {why}");
        }
    }

    #[test]
    fn what_is_no_workload_is_refused_by_name() {
        let none = Value::Null;
        let deployment = |replicas: u64, containers: Value| {
            json!({"kind": "Deployment", "metadata": {"name": "a"},
                "spec": {"replicas": replicas, "template": {"spec": {"containers": containers}}}})
        };
        let one = json!([{"name": "c"}]);
        assert_eq!(
            pods_of(deployment(3, one.clone()), 10)
                .expect("three")
                .len(),
            3
        );
        for (document, wanted) in [
            (none, "it has no kind"),
            (json!({"kind": "Service"}), "kind Service; known are Pod"),
            (json!({"kind": "Pod"}), "has no metadata.name"),
            (deployment(1, json!([])), "has no containers"),
            (deployment(11, one), "has 11 pods; 500 may be supposed"),
        ] {
            let why = pods_of(document, 10).expect_err(wanted);
            assert!(why.contains(wanted), "{why}");
        }
    }
}
