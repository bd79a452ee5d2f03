//! Objects of the wire as the filters want them, read apart from how the daemon reads the same objects.

use std::sync::Arc;

use filters::{NodeInfo, PodInfo};
use serde_json::{Map, Value};

use super::requests::{amounts, host_ports, pod_requests};
use crate::model::cluster::ObjectKey;
use crate::model::scheduling::{
    Effect, HostPort, LabelSelector, Labels, NodeTerm, Operator, PodShape, PodTerm, PodTraits,
    Requirement, SpreadConstraint, Taint, Toleration, Volume,
};
use crate::sim::kube::object::{
    cordoned, deleting, list, map, name, namespace, number, text, truth, uid,
};

/// A pod, or one of a template.
pub(in crate::sim::kube) fn pod_info(pod: &Value) -> PodInfo {
    let required = |kind: &str| {
        let path = format!("/spec/affinity/{kind}/requiredDuringSchedulingIgnoredDuringExecution");
        pod.pointer(&path).filter(|required| !required.is_null())
    };
    let pod_terms =
        |kind: &str| required(kind).map_or(Vec::new(), |terms| each(terms, "", pod_term));
    let traits = PodTraits {
        requests: pod_requests(pod),
        node_selector: texts(map(pod, "/spec/nodeSelector")),
        node_affinity: required("nodeAffinity").map(node_terms),
        tolerations: list(pod, "/spec/tolerations")
            .iter()
            .filter_map(toleration)
            .collect(),
        pod_affinity: pod_terms("podAffinity"),
        pod_anti_affinity: pod_terms("podAntiAffinity"),
        spread: each(pod, "/spec/topologySpreadConstraints", spread),
        host_ports: [host_ports(pod), disks(pod)].concat(),
        volumes: list(pod, "/spec/volumes")
            .iter()
            .filter_map(volume)
            .collect(),
        ..PodTraits::default()
    };
    PodInfo {
        key: ObjectKey::new(namespace(pod), name(pod)),
        uid: uid(pod).into(),
        shape: Arc::new(PodShape {
            labels: texts(map(pod, "/metadata/labels")).into(),
            owner: None,
            traits: Arc::new(traits),
        }),
        deleting: deleting(pod),
        bound: !text(pod, "/spec/nodeName").is_empty(),
    }
}

/// A node on which nothing runs.
pub(in crate::sim::kube) fn node_info(node: &Value) -> NodeInfo {
    NodeInfo {
        name: name(node).into(),
        labels: texts(map(node, "/metadata/labels")),
        taints: each(node, "/spec/taints", taint),
        cordoned: cordoned(node),
        offers: amounts(map(node, "/status/allocatable")),
        ..NodeInfo::default()
    }
}

/// The text at a path, unless it is empty.
pub(super) fn given(object: &Value, path: &str) -> Option<Arc<str>> {
    Some(text(object, path))
        .filter(|text| !text.is_empty())
        .map(Arc::from)
}

pub(super) fn each<T>(object: &Value, path: &str, read: impl FnMut(&Value) -> T) -> Vec<T> {
    list(object, path).iter().map(read).collect()
}

pub(super) fn strings(object: &Value, path: &str) -> Vec<Arc<str>> {
    let values = list(object, path).iter();
    values
        .filter_map(|value| Some(value.as_str()?.into()))
        .collect()
}

pub(super) fn texts(map: Option<&Map<String, Value>>) -> Labels {
    let pairs = map.into_iter().flatten();
    let text =
        |(key, value): (&String, &Value)| Some((key.as_str().into(), value.as_str()?.into()));
    pairs.filter_map(text).collect()
}

/// The API server lets no other effect in.
fn effect(word: &str) -> Effect {
    match word {
        "NoSchedule" => Effect::NoSchedule,
        "NoExecute" => Effect::NoExecute,
        _ => Effect::PreferNoSchedule,
    }
}

/// A taint of a node.
pub(in crate::sim::kube) fn taint(taint: &Value) -> Taint {
    Taint {
        key: text(taint, "/key").into(),
        value: text(taint, "/value").into(),
        effect: effect(text(taint, "/effect")),
    }
}

/// A toleration; `None` for one that compares numbers, which covers nothing.
pub(in crate::sim::kube) fn toleration(toleration: &Value) -> Option<Toleration> {
    let operator = text(toleration, "/operator");
    ["", "Equal", "Exists"]
        .contains(&operator)
        .then(|| Toleration {
            key: given(toleration, "/key"),
            exists: operator == "Exists",
            value: text(toleration, "/value").into(),
            effect: given(toleration, "/effect").map(|word| effect(&word)),
        })
}

/// The terms of a node selector.
pub(super) fn node_terms(selector: &Value) -> Vec<NodeTerm> {
    each(selector, "/nodeSelectorTerms", |term| NodeTerm {
        expressions: each(term, "/matchExpressions", requirement),
        fields: each(term, "/matchFields", requirement),
    })
}

fn requirement(wanted: &Value) -> Requirement {
    Requirement {
        key: text(wanted, "/key").into(),
        operator: match text(wanted, "/operator") {
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" => Operator::Gt,
            "Lt" => Operator::Lt,
            // The API server lets no other in.
            _ => Operator::In,
        },
        values: strings(wanted, "/values"),
    }
}

/// A label selector; `null` is none.
pub(in crate::sim::kube) fn selector(selector: &Value) -> Option<LabelSelector> {
    selector.is_object().then(|| LabelSelector {
        labels: texts(map(selector, "/matchLabels")),
        expressions: each(selector, "/matchExpressions", requirement),
    })
}

fn pod_term(term: &Value) -> PodTerm {
    PodTerm {
        selector: selector(&term["labelSelector"]),
        topology_key: text(term, "/topologyKey").into(),
        namespaces: strings(term, "/namespaces"),
        namespace_selector: selector(&term["namespaceSelector"]),
    }
}

fn spread(constraint: &Value) -> SpreadConstraint {
    let small = |path: &str| number(constraint, path).and_then(|n| i32::try_from(n).ok());
    SpreadConstraint {
        max_skew: small("/maxSkew").unwrap_or(1),
        topology_key: text(constraint, "/topologyKey").into(),
        hard: text(constraint, "/whenUnsatisfiable") != "ScheduleAnyway",
        selector: selector(&constraint["labelSelector"]),
        min_domains: small("/minDomains"),
        match_label_keys: strings(constraint, "/matchLabelKeys"),
        honor_affinity: text(constraint, "/nodeAffinityPolicy") != "Ignore",
        honor_taints: text(constraint, "/nodeTaintsPolicy") == "Honor",
    }
}

fn volume(volume: &Value) -> Option<Volume> {
    if volume.get("ephemeral").is_some() {
        return Some(Volume::Ephemeral {
            name: text(volume, "/name").into(),
            class: given(
                volume,
                "/ephemeral/volumeClaimTemplate/spec/storageClassName",
            ),
        });
    }
    given(volume, "/persistentVolumeClaim/claimName").map(Volume::Claim)
}

/// Disks that a pod names itself and that two pods of a node do not share, unless both only read them: ports with the number 0,
/// which who reads takes on an address of its own.
fn disks(pod: &Value) -> Vec<HostPort> {
    let reader = format!("{}/{}", namespace(pod), name(pod));
    let mut disks = Vec::new();
    for volume in list(pod, "/spec/volumes") {
        let mut add = |kind: &str, disk: &str, shared: bool| {
            let reads = shared && truth(volume, &format!("/{kind}/readOnly"));
            disks.push(HostPort {
                protocol: format!("{kind} {disk}").into(),
                ip: if reads {
                    reader.as_str().into()
                } else {
                    "".into()
                },
                port: 0,
            });
        };
        for (kind, key, shared) in [
            ("gcePersistentDisk", "pdName", true),
            ("awsElasticBlockStore", "volumeID", false),
            ("iscsi", "iqn", true),
        ] {
            if let Some(disk) = given(volume, &format!("/{kind}/{key}")) {
                add(kind, &disk, shared);
            }
        }
        let image = text(volume, "/rbd/image");
        let pool = given(volume, "/rbd/pool").unwrap_or_else(|| "rbd".into());
        // One monitor in common makes it the same image.
        for monitor in strings(volume, "/rbd/monitors") {
            add("rbd", &format!("{monitor} {pool} {image}"), true);
        }
    }
    disks
}

#[cfg(test)]
mod tests {
    use super::*;
    use filters::{chosen, tolerates};
    use serde_json::json;

    #[test]
    fn tolerations_match_as_upstream_matches_them() {
        let set = taint(&json!({"key": "a", "value": "1", "effect": "NoSchedule"}));
        for (one, wanted) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "a", "operator": "Exists"}), true),
            (json!({"key": "a", "value": "1"}), true),
            (
                json!({"key": "a", "operator": "Equal", "value": "2"}),
                false,
            ),
            (json!({"key": "b", "operator": "Exists"}), false),
            (
                json!({"key": "a", "operator": "Exists", "effect": "NoExecute"}),
                false,
            ),
            (json!({"value": "1"}), false),
            (json!({"key": "a", "operator": "Lt", "value": "2"}), false),
        ] {
            let tolerated = toleration(&one).is_some_and(|one| tolerates(&one, &set));
            assert_eq!(tolerated, wanted, "{one}");
        }
    }

    #[test]
    fn an_empty_term_matches_nothing() {
        let node = node_info(&json!({"metadata": {"name": "n", "labels": {"size": "4"}}}));
        let meets = |terms: Value| {
            let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
            let pod = json!({"metadata": {}, "spec": {"affinity": {"nodeAffinity": required}}});
            chosen(&pod_info(&pod).shape, &node)
        };
        assert!(!meets(json!([])));
        assert!(!meets(json!([{}])));
        let size = json!({"key": "size", "operator": "Gt", "values": ["3"]});
        assert!(meets(json!([{}, {"matchExpressions": [size]}])));
        let named = json!({"key": "metadata.name", "operator": "In", "values": ["m"]});
        assert!(!meets(json!([{"matchFields": [named]}])));
    }
}
