//! Mistakes in manifests that somebody supposes, found before the answer is of other pods: misspelt fields, words and amounts that the API
//! server would refuse.

use serde_json::Value;

use crate::model::quantity::Quantity;

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

/// The keys of an object, and no others.
type KnownKeys = (&'static str, &'static [&'static str]);

/// Keys of those parts of a pod's spec that decide where it runs.
const TOLERATION: KnownKeys = (
    "tolerations",
    &["key", "operator", "value", "effect", "tolerationSeconds"],
);
const SPREAD: KnownKeys = (
    "topologySpreadConstraints",
    &[
        "maxSkew",
        "minDomains",
        "topologyKey",
        "whenUnsatisfiable",
        "labelSelector",
        "matchLabelKeys",
        "nodeAffinityPolicy",
        "nodeTaintsPolicy",
    ],
);
const AFFINITY: &[&str] = &[
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
];

/// What is wrong with a manifest of pods, if something is.
///
/// # Errors
/// The first mistake, in words for who wrote it.
pub(super) fn find_mistake(document: &Value) -> Result<(), String> {
    find_misspelt(document)?;
    let template = &document["spec"]["template"];
    let pod = if template.is_null() {
        &document["spec"]
    } else {
        &template["spec"]
    };
    find_wrong_amount(pod)?;
    find_wrong_word(pod)
}

/// Fails where an amount of a resource is none.
fn find_wrong_amount(pod: &Value) -> Result<(), String> {
    for list in ["initContainers", "containers"] {
        for (place, container) in pod[list].as_array().into_iter().flatten().enumerate() {
            let whose = match container["name"].as_str() {
                Some(name) => format!("container {name}"),
                None => format!("{list}[{place}]"),
            };
            for part in ["requests", "limits"] {
                let amounts = container["resources"][part].as_object();
                for (resource, amount) in amounts.into_iter().flatten() {
                    wrong_amount(amount).map_or(Ok(()), |why| {
                        Err(format!(
                            "{whose}: resources.{part}.{resource} is {amount}: {why}"
                        ))
                    })?;
                }
            }
        }
    }
    Ok(())
}

fn wrong_amount(amount: &Value) -> Option<String> {
    const EXPECTED: &str = "expected an amount such as 500m, 2 or 1.5Gi";
    let text = match amount {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return Some(EXPECTED.to_owned()),
    };
    match text.parse::<Quantity>() {
        Err(_) => Some(EXPECTED.to_owned()),
        Ok(quantity) if quantity < Quantity::default() => {
            Some("expected no less than 0".to_owned())
        }
        Ok(quantity) if quantity.units() > LARGEST => {
            Some("that is more than any machine has".to_owned())
        }
        Ok(_) => None,
    }
}

/// More of anything than this nobody asks: 4 PiB.
const LARGEST: i64 = 1 << 52;

/// Fails where a word is none of those that may stand there.
fn find_wrong_word(pod: &Value) -> Result<(), String> {
    for (list, keys) in [TOLERATION, SPREAD] {
        for (place, item) in pod[list].as_array().into_iter().flatten().enumerate() {
            only(item, keys, &format!("{list}[{place}]"))?;
        }
    }
    for kind in ["nodeAffinity", "podAffinity", "podAntiAffinity"] {
        only(
            &pod["affinity"][kind],
            AFFINITY,
            &format!("affinity.{kind}"),
        )?;
    }
    let spreads = pod[SPREAD.0].as_array().into_iter().flatten();
    for (place, spread) in spreads.enumerate() {
        let path = format!("{}[{place}]", SPREAD.0);
        word(
            spread,
            "whenUnsatisfiable",
            &["DoNotSchedule", "ScheduleAnyway"],
            &path,
        )?;
        word(spread, "nodeAffinityPolicy", &["Honor", "Ignore"], &path)?;
        word(spread, "nodeTaintsPolicy", &["Honor", "Ignore"], &path)?;
        if spread["maxSkew"].as_i64().is_none_or(|skew| skew < 1) {
            return Err(format!(
                "{path}.maxSkew is {}: expected a number from 1",
                spread["maxSkew"]
            ));
        }
    }
    let tolerations = pod[TOLERATION.0].as_array().into_iter().flatten();
    for (place, toleration) in tolerations.enumerate() {
        let path = format!("{}[{place}]", TOLERATION.0);
        word(
            toleration,
            "operator",
            &["Exists", "Equal", "Lt", "Gt"],
            &path,
        )?;
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute", ""];
        word(toleration, "effect", &effects, &path)?;
    }
    Ok(())
}

/// Fails where an object has a key beside these.
fn only(object: &Value, keys: &[&str], path: &str) -> Result<(), String> {
    let given = object.as_object().into_iter().flatten();
    for (key, _) in given {
        if !keys.contains(&&**key) {
            let near = similar::get_close_matches(&**key, keys, 1, 0.5);
            let near = near.first().map_or_else(
                || format!("known are {}", keys.join(", ")),
                |known| format!("did you mean {known}?"),
            );
            return Err(format!("{path}.{key} is no field here; {near}"));
        }
    }
    Ok(())
}

/// Fails where a key has another value than one of these; it need not be there.
fn word(object: &Value, key: &str, words: &[&str], path: &str) -> Result<(), String> {
    match &object[key] {
        Value::Null => Ok(()),
        Value::String(word) if words.contains(&&**word) => Ok(()),
        other => {
            let words: Vec<&str> = words
                .iter()
                .copied()
                .filter(|word| !word.is_empty())
                .collect();
            Err(format!(
                "{path}.{key} is {other}: expected {}",
                words.join(" or ")
            ))
        }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_api_server_would_refuse_is_told_with_its_place() {
        let wrong = |path: &str, value: Value| {
            let mut pod = json!({"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}});
            match path {
                "" => pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = value,
                key => pod["spec"][key] = value,
            }
            find_mistake(&pod).err().unwrap_or_default()
        };
        for (amount, said) in [
            (
                json!(null),
                "container c: resources.requests.cpu is null: expected an amount",
            ),
            (json!("500 m"), "is \"500 m\": expected an amount"),
            (json!("-1"), "expected no less than 0"),
            (json!("1e30"), "more than any machine has"),
            (json!([]), "expected an amount"),
        ] {
            let told = wrong("", amount);
            assert!(told.contains(said), "{told}");
        }
        for amount in [
            json!("500m"),
            json!(2),
            json!(0.5),
            json!("1.5Gi"),
            json!(0),
        ] {
            assert_eq!(wrong("", amount), "");
        }
        let zone = "topology.kubernetes.io/zone";
        for (key, value, said) in [
            (
                "topologySpreadConstraints",
                json!([{"maxSkew": 1, "topologyKey": zone, "whenUnsatisfiable": "Foo"}]),
                "topologySpreadConstraints[0].whenUnsatisfiable is \"Foo\": expected DoNotSchedule or ScheduleAnyway",
            ),
            (
                "topologySpreadConstraints",
                json!([{"topologyKey": zone}]),
                "[0].maxSkew is null: expected a number from 1",
            ),
            (
                "affinity",
                json!({"podAffinity": {"requiredDuringScheduling": []}}),
                "affinity.podAffinity.requiredDuringScheduling is no field here; did you mean requiredDuringSchedulingIgnoredDuringExecution?",
            ),
            (
                "tolerations",
                json!([{"key": "a", "effects": "NoSchedule"}]),
                "tolerations[0].effects is no field here; did you mean effect?",
            ),
            (
                "tolerations",
                json!([{"key": "a", "operator": "Is"}]),
                "tolerations[0].operator is \"Is\": expected Exists or Equal",
            ),
        ] {
            let told = wrong(key, value);
            assert!(told.contains(said), "{told}");
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
        assert_eq!(find_mistake(&workload), Ok(()));
        assert_eq!(
            find_mistake(&json!({"spec": workload["spec"]["template"]["spec"]})),
            Ok(())
        );
    }
}
