//! What if: the plan that the present view would have with more pods, or under another configuration. It is decided by
//! the brain as every plan is, and nothing is carried out. Pure.

use std::collections::BTreeSet;

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
pub const MAX_TEXT: usize = 64 * 1024;
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
    let policy = &turn.settings.policy;
    let changed = changed(&turn.settings.text, &supposed.changes, policy)?;
    if pods.is_empty() && changed.is_none() {
        return Err("Nothing is supposed: paste a Pod or a workload, or change a key.".to_owned());
    }
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
    let (mut reader, mut claims) = (Manifests::default(), Manifests::default());
    let mut added = Vec::new();
    for (place, document) in documents.into_iter().enumerate() {
        if document.is_null() {
            continue;
        }
        let name = |text: &str| format!("Document {}: {text}", place + 1);
        for mut object in objects_of(document) {
            if object["metadata"]["namespace"].is_null() && object["metadata"].is_object() {
                object["metadata"]["namespace"] = "default".into();
            }
            for claim in workloads::claims(&object) {
                claims.put(&claim).map_err(|why| name(&why))?;
            }
            let room = MAX_PODS - added.len();
            for object in pods_of(object, room).map_err(|why| name(&why))? {
                let (key, pod) = read(&mut reader, object, now).map_err(|why| name(&why))?;
                if snapshot.cluster.pods.contains_key(&key) {
                    let why = format!("there is a pod {key} already; give it another name");
                    return Err(name(&why));
                }
                snapshot.cluster.pods.insert(key.clone(), pod);
                added.push(key);
            }
        }
    }
    for (key, claim) in claims.into_cluster().claims {
        // One that is there already is the pod's, as its controller would have it.
        snapshot.cluster.claims.entry(key).or_insert(claim);
    }
    Ok(added)
}

/// The objects of a document: those of a List, as `kubectl get -o yaml` prints it, and the Job that a CronJob starts.
fn objects_of(document: Value) -> Vec<Value> {
    match document["kind"].as_str() {
        Some("List") => {
            let items = document["items"].as_array().cloned().unwrap_or_default();
            items.into_iter().flat_map(objects_of).collect()
        }
        Some("CronJob") => vec![json!({
            "kind": "Job",
            "metadata": document["metadata"],
            "spec": document["spec"]["jobTemplate"]["spec"],
        })],
        _ => vec![document],
    }
}

/// The pods that a document stands for.
fn pods_of(document: Value, room: usize) -> Result<Vec<Value>, String> {
    if !document.is_object() {
        return Err(
            "it is no object of Kubernetes: expected apiVersion, kind, metadata and spec"
                .to_owned(),
        );
    }
    let kind = document["kind"].as_str().unwrap_or_default().to_owned();
    if kind != "Pod" && !workloads::makes_pods(&kind) {
        return Err(format!(
            "{}; known are {}, and a List of them",
            wrong_kind(&kind),
            KINDS.join(", ")
        ));
    }
    find_misspelt(&document)?;
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
    let number = |key: &str| match &document["spec"][key] {
        Value::Null => Ok(1),
        value => value.as_u64().ok_or_else(|| {
            format!("spec.{key} of the {kind} is {value}: expected a whole number from 0")
        }),
    };
    let wanted = match kind.as_str() {
        "Pod" => 1,
        "Job" => number("parallelism")?,
        _ => number("replicas")?,
    };
    if wanted > room as u64 {
        return Err(format!(
            "the {kind} has {wanted} pods; {MAX_PODS} may be supposed in all"
        ));
    }
    Ok(workloads::pods(document))
}

/// Kinds that may be supposed.
const KINDS: [&str; 6] = [
    "Pod",
    "Deployment",
    "ReplicaSet",
    "StatefulSet",
    "Job",
    "CronJob",
];
/// Fields of workloads and pods that a decision reads, where a misspelt one would be passed over.
const FIELDS: [&str; 21] = [
    "spec",
    "template",
    "metadata",
    "labels",
    "replicas",
    "parallelism",
    "containers",
    "initContainers",
    "resources",
    "requests",
    "limits",
    "nodeSelector",
    "affinity",
    "nodeAffinity",
    "podAffinity",
    "podAntiAffinity",
    "tolerations",
    "topologySpreadConstraints",
    "priorityClassName",
    "schedulerName",
    "volumeClaimTemplates",
];
/// How alike a word must be to a known one, 1 being the same.
const ALIKE: f32 = 0.74;

/// What is wrong with a kind that is not known.
fn wrong_kind(kind: &str) -> String {
    if kind.is_empty() {
        return "it has no kind".to_owned();
    }
    if kind == "DaemonSet" {
        return "kind DaemonSet: its pods run on nodes that are there, and no machine is made for them".to_owned();
    }
    let mut known = KINDS.iter();
    match known.find(|known| known.eq_ignore_ascii_case(kind)) {
        Some(known) => format!("kind {kind}: did you mean {known}?"),
        None => format!("kind {kind}"),
    }
}

/// Fails where a field looks like one that a decision reads, misspelt: the answer would be of another pod.
fn find_misspelt(document: &Value) -> Result<(), String> {
    let spec = &document["spec"];
    let template = &spec["template"];
    let pod = if template.is_null() {
        spec
    } else {
        &template["spec"]
    };
    let lists = ["containers", "initContainers"].map(|list| pod[list].as_array());
    let containers = lists.into_iter().flatten().flatten();
    let objects = [document, spec, template, pod, &pod["affinity"]];
    let containers = containers.flat_map(|of| [of, &of["resources"]]);
    for object in objects.into_iter().chain(containers) {
        for field in object
            .as_object()
            .into_iter()
            .flat_map(serde_json::Map::keys)
        {
            let alike = similar::get_close_matches(&**field, &FIELDS, 1, ALIKE);
            match alike.first() {
                Some(known) if *known != field && !OTHER_FIELDS.contains(&&**field) => {
                    return Err(format!("{field} is no field here; did you mean {known}?"));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Fields of Kubernetes that look like one of [`FIELDS`].
const OTHER_FIELDS: [&str; 5] = [
    "ephemeralContainers",
    "priority",
    "resourceClaims",
    "runtimeClassName",
    "selector",
];

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
    if let Some(node) = object["spec"]["nodeName"].as_str() {
        return Err(format!(
            "pod {name}: spec.nodeName is {node}: it runs there and nowhere else, kube-scheduler is not asked; leave nodeName out"
        ));
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

/// The policy of the changed configuration, which is another than `policy`; `None` when nothing is changed.
fn changed(
    text: &str,
    changes: &[ConfigChange],
    policy: &Policy,
) -> Result<Option<Policy>, String> {
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
        let key = change.key.trim();
        if key == "kubernetes.name" {
            return Err("kubernetes.name: by another name the machines there are would be another cluster's, which nobody here sees or touches; that is not decided".to_owned());
        }
        set(&mut file, change).map_err(|why| match key {
            "" => format!("A value without a key: {why}."),
            key => format!("{key}: {why}."),
        })?;
    }
    let text = toml::to_string(&file).map_err(|error| error.to_string())?;
    let settings = config::parse(&text, "the changed configuration").map_err(|errors| {
        // Lines are those of a text that nobody sees.
        let said = errors.problems.iter().map(|problem| match &problem.value {
            Some(value) => format!("{} = {value}: {}", problem.key, problem.message),
            None if problem.key.is_empty() => problem.message.clone(),
            None => format!("{}: {}", problem.key, problem.message),
        });
        let said: Vec<String> = said.collect();
        format!("The changed configuration is wrong: {}", said.join("; "))
    })?;
    if settings.policy == *policy {
        let keys: Vec<&str> = changes.iter().map(|change| change.key.trim()).collect();
        return Err(format!(
            "With {} so, every plan is what it is: that is the value already, or no decision reads it.",
            keys.join(", ")
        ));
    }
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
        .map_err(|_| wrong_value(change.value.trim()))?;
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

/// Why a text is no value of a configuration.
fn wrong_value(text: &str) -> String {
    let digits = text.trim_start_matches(['+', '-']);
    if text.is_empty() {
        "it has no value".to_owned()
    } else if !digits.is_empty() && digits.chars().all(|letter| letter.is_ascii_digit()) {
        format!("{text} is a larger number than can stand there")
    } else if text.contains(['"', '\n']) {
        format!("{text} is no value; a text stands in quotes")
    } else {
        format!("{text} is no value; a text stands in quotes: \"{text}\"")
    }
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
        let as_is = config::parse(FILE, "it").expect("it is fine").policy;
        let changed = |text: &str, changes: &[ConfigChange]| super::changed(text, changes, &as_is);
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
            ("pool.workers.max", "", "it has no value"),
            ("scale_up.batch_max", "1m", "stands in quotes: \"1m\""),
            (
                "pool.workers.max",
                "99999999999999999999",
                "a larger number",
            ),
            ("pool.workers.max", "5", "every plan is what it is"),
            (
                "web.listen",
                "\"127.0.0.1:9809\"",
                "every plan is what it is",
            ),
            (
                "kubernetes.name",
                "\"other\"",
                "which nobody here sees or touches",
            ),
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
            (none, "it is no object of Kubernetes"),
            (json!("asdf qwer"), "it is no object of Kubernetes"),
            (json!({"apiVersion": "v1"}), "it has no kind; known are Pod"),
            (json!({"kind": "pod"}), "did you mean Pod?"),
            (json!({"kind": "DaemonSet"}), "no machine is made for them"),
            (
                json!({"kind": "Pod", "spek": {}}),
                "spek is no field here; did you mean spec?",
            ),
            (
                deployment(1, json!([{"name": "c", "resourcs": {}}])),
                "resourcs is no field here; did you mean resources?",
            ),
            (
                json!({"kind": "Job", "metadata": {"name": "a"},
                    "spec": {"parallelism": "3", "template": {"spec": {"containers": one}}}}),
                "spec.parallelism of the Job is \"3\": expected a whole number",
            ),
            (json!({"kind": "Service"}), "kind Service; known are Pod"),
            (json!({"kind": "Pod"}), "has no metadata.name"),
            (deployment(1, json!([])), "has no containers"),
            (deployment(11, one), "has 11 pods; 500 may be supposed"),
        ] {
            let why = pods_of(document, 10).expect_err(wanted);
            assert!(why.contains(wanted), "{why}");
        }
    }

    #[test]
    fn no_field_of_kubernetes_passes_for_a_misspelt_one() {
        let fields = |text: &str| {
            let names = text.split(' ').map(|name| (name.to_owned(), Value::Null));
            names.collect::<serde_json::Map<String, Value>>()
        };
        let mut pod = fields(
            "activeDeadlineSeconds affinity automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks ephemeralContainers \
             hostAliases hostIPC hostNetwork hostPID hostUsers hostname hostnameOverride imagePullSecrets initContainers nodeName \
             nodeSelector os overhead preemptionPolicy priority priorityClassName readinessGates resourceClaims resources \
             restartPolicy runtimeClassName schedulerName schedulingGates securityContext serviceAccount serviceAccountName \
             setHostnameAsFQDN shareProcessNamespace subdomain terminationGracePeriodSeconds tolerations topologySpreadConstraints volumes",
        );
        let container = fields(
            "args command env envFrom image imagePullPolicy lifecycle livenessProbe name ports readinessProbe resizePolicy resources \
             restartPolicy securityContext startupProbe stdin stdinOnce terminationMessagePath terminationMessagePolicy tty \
             volumeDevices volumeMounts workingDir",
        );
        pod.insert("containers".to_owned(), json!([container]));
        let mut spec = fields(
            "minReadySeconds ordinals parallelism paused persistentVolumeClaimRetentionPolicy podManagementPolicy \
             progressDeadlineSeconds replicas revisionHistoryLimit selector serviceName strategy updateStrategy volumeClaimTemplates \
             activeDeadlineSeconds backoffLimit backoffLimitPerIndex completionMode completions managedBy manualSelector \
             maxFailedIndexes podFailurePolicy podReplacementPolicy successPolicy suspend ttlSecondsAfterFinished",
        );
        spec.insert("template".to_owned(), json!({"metadata": {}, "spec": pod}));
        let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}, "spec": spec, "status": {}});
        assert_eq!(find_misspelt(&workload), Ok(()));
        assert_eq!(
            find_misspelt(&json!({"spec": workload["spec"]["template"]["spec"]})),
            Ok(())
        );
    }

    #[test]
    fn lists_and_cron_jobs_stand_for_what_is_in_them() {
        let job = json!({"kind": "CronJob", "metadata": {"name": "nightly"},
            "spec": {"jobTemplate": {"spec": {"parallelism": 2, "template": {"spec": {"containers": [{"name": "c"}]}}}}}});
        let list = json!({"kind": "List", "items": [job, {"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{}]}}]});
        let pods = objects_of(list)
            .into_iter()
            .map(|object| pods_of(object, 10));
        let pods: Vec<usize> = pods.map(|pods| pods.expect("they are").len()).collect();
        assert_eq!(pods, [2, 1]);
    }
}
