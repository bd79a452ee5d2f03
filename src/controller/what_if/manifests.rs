//! Pods and workloads that somebody supposes, as YAML: put into the view as the watches and controllers would have them, or refused in a
//! sentence where the answer would be of other pods.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::mistakes::find_mistake;

use crate::config::yaml;
use crate::kubernetes::manifests::Manifests;
use crate::kubernetes::workloads;
use crate::model::cluster::{ObjectKey, Pod};
use crate::model::snapshot::Snapshot;
use crate::model::time::{Span, Time};

/// Longest text of manifests, in bytes.
pub const MAX_TEXT: usize = 64 * 1024;
/// Pods that may be supposed at once.
const MAX_PODS: usize = 500;
/// Claims that one StatefulSet may make for its pods.
const MAX_CLAIMS: u64 = 1_000;
/// How old supposed pods are: no delay for young pods holds them.
const AGE: Span = Span::minutes(60);
/// Kinds of which pods come.
const KINDS: [&str; 6] = [
    "Pod",
    "Deployment",
    "ReplicaSet",
    "StatefulSet",
    "Job",
    "CronJob",
];
/// Kinds that matter to where pods run, and are no pods.
const COUNTED: [&str; 5] = [
    "DaemonSet",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "StorageClass",
    "Namespace",
];
/// The priority classes that every cluster has.
const SYSTEM: [(&str, i64); 2] = [
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
];
/// How alike an unknown kind must be to a known one to be a slip of the pen, 1 being the same.
const MISSPELT: f32 = 0.85;

/// What supposed manifests put into the view of the cluster.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AddedManifests {
    /// The pods that come of the manifests.
    pub(super) pods: Vec<ObjectKey>,
    /// Sentences on the objects of the manifests of which no pod comes: those that count all the same, those that do not.
    pub(super) notes: Vec<String>,
}

/// Puts the pods of manifests into the view, as if they waited for a node, and what else of them matters to where pods may run.
pub(super) fn add(
    snapshot: &mut Snapshot,
    text: &str,
    now: Time,
) -> Result<AddedManifests, String> {
    if text.trim().is_empty() {
        return Ok(AddedManifests::default());
    }
    if text.len() > MAX_TEXT {
        return Err(format!(
            "The manifests have {} bytes, at most {MAX_TEXT} are read.",
            text.len()
        ));
    }
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| {
        format!(
            "The manifests are no YAML: {}",
            reworded(&error.to_string(), text)
        )
    })?;
    let mut reading = ManifestReader {
        now,
        ..ManifestReader::default()
    };
    let all = documents.into_iter().enumerate();
    let all = all.flat_map(|(place, document)| {
        let objects = objects_of(document).into_iter();
        objects.map(move |object| (place + 1, object))
    });
    let all: Vec<(usize, Value)> = all.filter(|(_, object)| !object.is_null()).collect();
    // Pods take their priority from a class, wherever in the text it stands.
    for (_, object) in &all {
        reading.learn(object);
    }
    for (place, object) in all {
        let name = named(&object);
        let read = reading.read(snapshot, object);
        read.map_err(|why| format!("Document {place}{name}: {why}"))?;
    }
    Ok(reading.finish(snapshot))
}

/// The name of an object, for a message, in brackets.
fn named(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
    match (kind.is_empty(), name.is_empty()) {
        (true, _) => String::new(),
        (false, true) => format!(" ({kind})"),
        (false, false) => format!(" ({kind} {name})"),
    }
}

/// The YAML reader's message without what is for programmers.
fn reworded(message: &str, text: &str) -> String {
    if text.contains("{{") {
        return "it looks like a template of Helm; paste what `helm template` prints".to_owned();
    }
    if message.contains("budget breached") {
        return "it has too many aliases, or is nested too deeply".to_owned();
    }
    yaml::reword(message)
}

/// Manifests in the reading.
#[derive(Default)]
struct ManifestReader {
    now: Time,
    pods: Manifests,
    others: Manifests,
    added: AddedManifests,
    /// Priorities by class.
    priorities: BTreeMap<String, i64>,
    /// Objects that count beside pods.
    counted: Vec<String>,
    /// Objects that do not count.
    left_out: Vec<String>,
    /// Priority classes of which the value is not known.
    unknown_classes: BTreeSet<String>,
}

impl ManifestReader {
    /// Gets to know a PriorityClass.
    fn learn(&mut self, object: &Value) {
        if let ("PriorityClass", Some(name), Some(value)) = (
            object["kind"].as_str().unwrap_or_default(),
            object["metadata"]["name"].as_str(),
            object["value"].as_i64(),
        ) {
            self.priorities.insert(name.to_owned(), value);
        }
    }

    fn read(&mut self, snapshot: &mut Snapshot, mut object: Value) -> Result<(), String> {
        if object["metadata"]["namespace"].is_null() && object["metadata"].is_object() {
            object["metadata"]["namespace"] = "default".into();
        }
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let whole = format!("{kind} {name}").trim_end().to_owned();
        if kind == "PriorityClass" {
            self.counted.push(whole);
            return Ok(());
        }
        if COUNTED.contains(&&*kind) {
            if kind == "PersistentVolumeClaim" && object["status"].is_null() {
                object["status"]["phase"] = "Pending".into();
            }
            self.counted.push(whole);
            return self.others.put(&object);
        }
        if !KINDS.contains(&&*kind) && is_other(&object, &kind) {
            self.left_out.push(whole);
            return Ok(());
        }
        let room = MAX_PODS - self.added.pods.len();
        let pods = pods_of(object.clone(), room)?;
        // Only of what may be supposed: as many as there are pods.
        for claim in workloads::claims(&object) {
            self.others.put(&claim)?;
        }
        if pods.is_empty() {
            self.left_out.push(format!("{whole} (it wants no pod)"));
        }
        for mut pod in pods {
            self.give_priority(&mut pod["spec"]);
            let (key, pod) = read(&mut self.pods, pod, self.now)?;
            if snapshot.cluster.pods.contains_key(&key) {
                return Err(format!(
                    "there is a pod {key} already; give it another name"
                ));
            }
            snapshot.cluster.pods.insert(key.clone(), pod);
            self.added.pods.push(key);
        }
        Ok(())
    }

    /// A pod has the priority of its class, as the API server gives it.
    fn give_priority(&mut self, spec: &mut Value) {
        let Some(class) = spec["priorityClassName"].as_str().map(str::to_owned) else {
            return;
        };
        if !spec["priority"].is_null() || class.is_empty() {
            return;
        }
        let known = self.priorities.get(&class).copied();
        let of_system = SYSTEM.iter().find(|(name, _)| *name == class);
        match known.or(of_system.map(|(_, value)| *value)) {
            Some(value) => spec["priority"] = value.into(),
            None => {
                self.unknown_classes.insert(class);
            }
        }
    }

    /// Puts the objects that are no pods into the view, and gives what the manifests added in all.
    fn finish(mut self, snapshot: &mut Snapshot) -> AddedManifests {
        let notes = &mut self.added.notes;
        if !self.counted.is_empty() {
            notes.push(format!(
                "Counts where it is not there yet: {}.",
                self.counted.join(", ")
            ));
        }
        if !self.left_out.is_empty() {
            notes.push(format!("No pod comes of: {}.", self.left_out.join(", ")));
        }
        for class in &self.unknown_classes {
            notes.push(format!(
                "The value of the priority class {class} is not known here, and 0 is supposed: paste the PriorityClass too, or give the pods spec.priority."
            ));
        }
        let (into, from) = (&mut snapshot.cluster, self.others.into_cluster());
        // What is there already stays: its controller would have it so.
        for (key, claim) in from.claims {
            into.claims.entry(key).or_insert(claim);
        }
        for (key, set) in from.daemon_sets {
            into.daemon_sets.entry(key).or_insert(set);
        }
        for (name, volume) in from.volumes {
            into.volumes.entry(name).or_insert(volume);
        }
        for (name, class) in from.storage_classes {
            into.storage_classes.entry(name).or_insert(class);
        }
        for (name, labels) in from.namespaces {
            into.namespaces.entry(name).or_insert(labels);
        }
        self.added
    }
}

/// Whether an object is of a kind that has nothing to do with where pods run. One that makes pods in a way that is not known here, and
/// one whose kind is misspelt, is not.
fn is_other(object: &Value, kind: &str) -> bool {
    let makes_pods = object.pointer("/spec/template/spec/containers").is_some();
    !kind.is_empty() && !makes_pods && near_kind(kind).is_none()
}

/// The known kind that a misspelt one most likely means, if one is near.
fn near_kind(kind: &str) -> Option<&'static str> {
    let known = KINDS.iter().chain(&COUNTED);
    let known: Vec<(String, &str)> = known.map(|of| (of.to_lowercase(), *of)).collect();
    let lower: Vec<&str> = known.iter().map(|(lower, _)| lower.as_str()).collect();
    let near = similar::get_close_matches(&*kind.to_lowercase(), &lower, 1, MISSPELT);
    let near = near.first()?;
    known
        .iter()
        .find(|(word, _)| word == near)
        .map(|(_, of)| *of)
}

/// The objects of a document: those of a List, as `kubectl get -o yaml` prints it (a List in a List is none of them); of a CronJob the Job that
/// it starts.
fn objects_of(mut document: Value) -> Vec<Value> {
    let objects = match document["kind"].as_str() {
        Some("List") => match document["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        },
        _ => vec![document],
    };
    let objects = objects.into_iter().map(|object| {
        if object["kind"] != "CronJob" {
            return object;
        }
        // Whatever stands there: what is read is null where it is no mapping, what is written would panic.
        json!({
            "kind": "Job",
            "metadata": object["metadata"],
            "spec": object["spec"]["jobTemplate"]["spec"],
        })
    });
    objects.collect()
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
            "{}; pods come of {}, and of a List of them",
            wrong_kind(&kind),
            KINDS.join(", ")
        ));
    }
    find_mistake(&document)?;
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
    let templates = document["spec"]["volumeClaimTemplates"].as_array();
    let templates = templates.map_or(0, |templates| templates.len() as u64);
    if templates.saturating_mul(wanted) > MAX_CLAIMS {
        return Err(format!(
            "the {kind} has {templates} templates of claims for {wanted} pods each; {MAX_CLAIMS} claims may be supposed"
        ));
    }
    Ok(workloads::pods(document))
}

/// Says why pods of a kind cannot be supposed, as the beginning of a sentence.
fn wrong_kind(kind: &str) -> String {
    if kind.is_empty() {
        return "it has no kind".to_owned();
    }
    match near_kind(kind) {
        Some(known) => format!("kind {kind}: did you mean {known}?"),
        None => format!("kind {kind} is not known here: write its pods as those of another kind"),
    }
}

/// A pod as the watches would show it.
fn read(reader: &mut Manifests, mut object: Value, now: Time) -> Result<(ObjectKey, Pod), String> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
            (
                json!({"apiVersion": "v1"}),
                "it has no kind; pods come of Pod",
            ),
            (json!({"kind": "pod"}), "did you mean Pod?"),
            (json!({"kind": "Deploymnt"}), "did you mean Deployment?"),
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
            (json!({"kind": "Rollout"}), "kind Rollout is not known here"),
            (json!({"kind": "Pod"}), "has no metadata.name"),
            (deployment(1, json!([])), "has no containers"),
            (deployment(11, one), "has 11 pods; 500 may be supposed"),
        ] {
            let why = pods_of(document, 10).expect_err(wanted);
            assert!(why.contains(wanted), "{why}");
        }
    }

    fn supposed(text: &str) -> Result<(Snapshot, AddedManifests), String> {
        let view = json!({"version": 1, "taken": "2026-01-02T00:00:00Z", "sources": {}, "leader": true,
            "cluster": {}, "regions": {}, "machines": {}});
        let mut snapshot: Snapshot =
            serde_json::from_value(view).unwrap_or_else(|error| panic!("a view: {error}"));
        let added = add(&mut snapshot, text, Time(0))?;
        Ok((snapshot, added))
    }

    /// As `helm template` prints it.
    #[test]
    fn what_is_no_pod_is_counted_or_left_out_and_told() {
        let text = "---\n# Source: web/templates/sa.yaml\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: web}\n---\n\
            kind: Service\nmetadata: {name: web}\n---\n---\n\
            apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 2\n  template:\n    spec:\n      priorityClassName: high\n      \
            containers: [{name: c}]\n---\n\
            kind: PriorityClass\nmetadata: {name: high}\nvalue: 7\n---\n\
            apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {storageClassName: fast, accessModes: [ReadWriteOnce]}\n---\n\
            kind: HorizontalPodAutoscaler\nmetadata: {name: web}\n";
        let (snapshot, added) = supposed(text).expect("it is taken");
        assert_eq!(added.pods.len(), 2);
        let mut pods = snapshot.cluster.pods.values();
        assert!(pods.all(|pod| pod.shape.priority == 7));
        assert!(
            snapshot
                .cluster
                .claims
                .contains_key(&ObjectKey::new("default", "data"))
        );
        assert_eq!(
            added.notes,
            [
                "Counts where it is not there yet: PriorityClass high, PersistentVolumeClaim data.",
                "No pod comes of: ServiceAccount web, Service web, HorizontalPodAutoscaler web.",
            ]
        );
    }

    #[test]
    fn what_is_not_known_is_told() {
        let pod = "kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c}], priorityClassName: nosuch}\n";
        let (_, added) = supposed(pod).expect("it is taken");
        assert!(
            added.notes[0].contains("priority class nosuch"),
            "{:?}",
            added.notes
        );
        let none = "kind: Deployment\nmetadata: {name: w}\nspec: {replicas: 0, template: {spec: {containers: [{name: c}]}}}\n";
        let (_, added) = supposed(none).expect("it is taken");
        assert_eq!(
            added.notes,
            ["No pod comes of: Deployment w (it wants no pod)."]
        );
        for (text, said) in [
            ("kind: Pod\nkind: Pod\n", "duplicate mapping key: kind"),
            ("metadata:\n  : a\n", "line 2 column 3: a key is null"),
            (
                "image: {{ .Values.image }}\n",
                "paste what `helm template` prints",
            ),
            (
                "kind: Rollout\nmetadata: {name: r}\nspec: {template: {spec: {containers: []}}}\n",
                "Document 1 (Rollout r): kind Rollout is not known here",
            ),
            (
                "kind: statefulSets\nmetadata: {name: s}\n",
                "kind statefulSets: did you mean StatefulSet?",
            ),
            (
                "kind: StorageClas\nmetadata: {name: s}\n",
                "kind StorageClas: did you mean StorageClass?",
            ),
        ] {
            let why = supposed(text).expect_err(said);
            assert!(
                why.contains(said) && !why.contains("Policy") && !why.contains("Option"),
                "{why}"
            );
        }
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
        for strange in [
            "x",
            "[1]",
            "{kind: List, items: 3}",
            "{kind: CronJob, metadata: x, spec: [x]}",
            "{kind: Pod, metadata: x, spec: x}",
        ] {
            let value: Value = serde_saphyr::from_str(strange).expect(strange);
            for object in objects_of(value) {
                assert!(pods_of(object, 10).is_err(), "{strange}");
            }
        }
    }
}
