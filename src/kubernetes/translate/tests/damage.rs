//! Nothing in makes a translator panic, or take something for less than it is.

use proptest::prelude::*;
use serde_json::Value;

use super::{POD, fixture};
use crate::model::time::Time;

/// Any JSON, biased to the keys that we read and to what may stand there.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        "-?[0-9]{1,30}(m|Ki|Gi|E|e[0-9]{1,9})?".prop_map(Value::from),
        Just(Value::from("2026-11-21T12:00:00Z")),
        Just(Value::from("-9999-01-01T00:00:00Z")),
        Just(Value::from("Always")),
    ];
    let key = proptest::sample::select(vec![
        "metadata",
        "name",
        "namespace",
        "uid",
        "labels",
        "annotations",
        "ownerReferences",
        "controller",
        "spec",
        "status",
        "containers",
        "initContainers",
        "resources",
        "requests",
        "limits",
        "cpu",
        "memory",
        "overhead",
        "volumes",
        "emptyDir",
        "ephemeral",
        "affinity",
        "nodeAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms",
        "matchExpressions",
        "key",
        "operator",
        "values",
        "tolerations",
        "conditions",
        "type",
        "reason",
        "lastTransitionTime",
        "creationTimestamp",
        "template",
        "capacity",
        "allocatable",
        "containerStatuses",
        "allocatedResources",
        "ports",
        "hostPort",
        "taints",
        "effect",
        "drivers",
        "count",
        "nodeName",
        "phase",
        "topologySpreadConstraints",
        "labelSelector",
    ]);
    leaf.prop_recursive(7, 120, 8, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(key.clone(), inner, 0..8).prop_map(|map| {
                Value::Object(map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
            }),
        ]
    })
}

/// Where a random value is put into a good object: a path of keys and indices.
fn mutate(value: &mut Value, path: &[usize], with: Value) {
    let Some((step, rest)) = path.split_first() else {
        *value = with;
        return;
    };
    match value {
        Value::Object(map) if !map.is_empty() => {
            let index = step % map.len();
            if let Some((_, inner)) = map.iter_mut().nth(index) {
                mutate(inner, rest, with);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            let index = step % list.len();
            mutate(&mut list[index], rest, with);
        }
        other => *other = with,
    }
}

fn put_everywhere(value: &Value) -> crate::kubernetes::store::ClusterStore {
    let store = crate::kubernetes::store::ClusterStore::new();
    let raw = serde_json::value::to_raw_value(value).expect("it is JSON");
    for kind in crate::kubernetes::WatchedKind::ALL {
        store.take_changed(kind, &raw, Time(0));
    }
    store
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn no_json_makes_a_translator_panic(value in any_json()) {
        let view = put_everywhere(&value).view();
        prop_assert!(serde_json::to_string(&view.cluster).is_ok());
    }

    #[test]
    fn a_damaged_pod_is_damaged_to_its_own_disadvantage(
        path in proptest::collection::vec(0usize..40, 1..7),
        with in any_json(),
    ) {
        let mut value = fixture(POD);
        mutate(&mut value, &path, with);
        let store = put_everywhere(&value);
        // It must still be seen, unless its very name, namespace or end was hit.
        let named = |field: &str| value["metadata"][field].as_str().is_some_and(|text| !text.is_empty());
        let ended = matches!(value["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        if named("name") && named("namespace") && value["metadata"]["labels"].is_object() && !ended {
            prop_assert!(!store.view().cluster.pods.is_empty() || !store.problems().is_empty());
        }
    }
}
