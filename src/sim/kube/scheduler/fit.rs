//! Whether a pod may run on a node by its labels and taints.

use serde_json::Value;

use crate::sim::kube::object::cordoned;
use crate::sim::kube::object::{list, map, name, text};

/// Whether a toleration covers a taint.
pub(in crate::sim::kube) fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let effect = text(toleration, "/effect");
    if !effect.is_empty() && effect != text(taint, "/effect") {
        return false;
    }
    let key = text(toleration, "/key");
    if !key.is_empty() && key != text(taint, "/key") {
        return false;
    }
    match text(toleration, "/operator") {
        "Exists" => true,
        "" | "Equal" => !key.is_empty() && text(toleration, "/value") == text(taint, "/value"),
        _ => false,
    }
}

/// The first taint with one of these effects that the pod does not tolerate.
pub(in crate::sim::kube) fn untolerated<'a>(
    pod: &Value,
    node: &'a Value,
    effects: &[&str],
) -> Option<&'a Value> {
    let tolerations = list(pod, "/spec/tolerations");
    list(node, "/spec/taints").iter().find(|taint| {
        effects.contains(&text(taint, "/effect"))
            && !tolerations.iter().any(|t| tolerates(t, taint))
    })
}

fn expression(e: &Value, found: Option<&str>) -> bool {
    let values = list(e, "/values");
    let among = |f: &str| values.iter().any(|v| v.as_str() == Some(f));
    let number = |v: Option<&str>| v.and_then(|v| v.parse::<i64>().ok());
    let bound = || number(values.first().and_then(Value::as_str));
    match text(e, "/operator") {
        "In" => found.is_some_and(among),
        "NotIn" => found.is_none_or(|f| !among(f)),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => matches!((number(found), bound()), (Some(a), Some(b)) if a > b),
        "Lt" => matches!((number(found), bound()), (Some(a), Some(b)) if a < b),
        _ => false,
    }
}

fn term(term: &Value, node: &Value) -> bool {
    let (labels, fields) = (list(term, "/matchExpressions"), list(term, "/matchFields"));
    if labels.is_empty() && fields.is_empty() {
        return false;
    }
    let label = |key: &str| map(node, "/metadata/labels").and_then(|l| l.get(key)?.as_str());
    labels.iter().all(|e| expression(e, label(text(e, "/key"))))
        && fields
            .iter()
            .all(|e| text(e, "/key") == "metadata.name" && expression(e, Some(name(node))))
}

/// Whether any of a node selector's terms matches.
pub(in crate::sim::kube) fn node_selector(selector: &Value, node: &Value) -> bool {
    list(selector, "/nodeSelectorTerms")
        .iter()
        .any(|t| term(t, node))
}

/// Node selector and required node affinity.
pub(in crate::sim::kube) fn chosen(pod: &Value, node: &Value) -> bool {
    let labels = map(node, "/metadata/labels");
    let exact = map(pod, "/spec/nodeSelector").is_none_or(|wanted| {
        wanted
            .iter()
            .all(|(key, value)| labels.and_then(|l| l.get(key)) == Some(value))
    });
    let required =
        pod.pointer("/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution");
    exact && required.is_none_or(|r| r.is_null() || node_selector(r, node))
}

/// Whether the daemon controller makes a pod for a node.
pub(in crate::sim::kube) fn daemon_starts(pod: &Value, node: &Value) -> bool {
    let wanted = text(pod, "/spec/nodeName");
    (wanted.is_empty() || wanted == name(node))
        && chosen(pod, node)
        && untolerated(pod, node, &["NoSchedule", "NoExecute"]).is_none()
}

/// Whether a daemon pod may stay where it is.
pub(in crate::sim::kube) fn daemon_stays(pod: &Value, node: &Value) -> bool {
    chosen(pod, node) && untolerated(pod, node, &["NoExecute"]).is_none()
}

/// Whether the node is cordoned and the pod does not tolerate that.
pub(in crate::sim::kube) fn shut(pod: &Value, node: &Value) -> bool {
    let taint =
        serde_json::json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
    cordoned(node)
        && !list(pod, "/spec/tolerations")
            .iter()
            .any(|t| tolerates(t, &taint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tolerations_match_as_upstream_matches_them() {
        let taint = json!({"key": "a", "value": "1", "effect": "NoSchedule"});
        for (toleration, wanted) in [
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
        ] {
            assert_eq!(tolerates(&toleration, &taint), wanted, "{toleration}");
        }
    }

    #[test]
    fn an_empty_term_matches_nothing() {
        let node = json!({"metadata": {"name": "n", "labels": {"size": "4"}}});
        let selector = |terms: Value| json!({"nodeSelectorTerms": terms});
        assert!(!node_selector(&selector(json!([{}])), &node));
        let gt =
            json!([{}, {"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["3"]}]}]);
        assert!(node_selector(&selector(gt), &node));
        let field =
            json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m"]}]}]);
        assert!(!node_selector(&selector(field), &node));
    }
}
