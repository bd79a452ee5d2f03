//! Pods and workloads that somebody supposes, as YAML: put into the view as the watches and controllers would have them, or refused in a
//! sentence where the answer would be of other pods.

use serde_json::{Value, json};

use crate::kube::manifests::Manifests;
use crate::kube::workloads;
use crate::model::cluster::{Pod, PodKey};
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
/// Fields of Kubernetes that look like one of [`FIELDS`].
const OTHER_FIELDS: [&str; 5] = [
    "ephemeralContainers",
    "priority",
    "resourceClaims",
    "runtimeClassName",
    "selector",
];

/// Puts the pods of manifests into the view, as if they waited for a node.
pub(super) fn add_pods(
    snapshot: &mut Snapshot,
    text: &str,
    now: Time,
) -> Result<Vec<PodKey>, String> {
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
            let room = MAX_PODS - added.len();
            let pods = pods_of(object.clone(), room).map_err(|why| name(&why))?;
            // Only of what may be supposed: as many as there are pods.
            for claim in workloads::claims(&object) {
                claims.put(&claim).map_err(|why| name(&why))?;
            }
            for object in pods {
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

/// A pod as the watches would show it.
fn read(reader: &mut Manifests, mut object: Value, now: Time) -> Result<(PodKey, Pod), String> {
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
