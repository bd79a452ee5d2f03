//! Whether a pod may run on a node: a plain reading of kube-scheduler's filters, written apart from
//! the one that decides, slow and simple.

use model::cluster::Node;
use model::resources::Resources;
use model::scheduling::{
    Effect, HostPort, Labels, NodeTerm, Operator, PodShape, Requirement, Taint,
};

/// Why the pod may not run on the node whatever else runs there, if so.
pub(super) fn mismatch(shape: &PodShape, name: &str, node: &Node) -> Option<String> {
    let cordon = Taint::no_schedule("node.kubernetes.io/unschedulable", "");
    if node.unschedulable && !shape.tolerations.iter().any(|t| t.tolerates(&cordon)) {
        return Some("it is cordoned".to_owned());
    }
    mismatch_with(shape, name, &node.labels, &node.taints)
}

/// Why the pod may not run on a node with these labels and taints, if so; for a node that does not exist yet, which
/// cannot be cordoned.
pub(crate) fn mismatch_with(
    shape: &PodShape,
    name: &str,
    labels: &Labels,
    taints: &[Taint],
) -> Option<String> {
    for taint in taints {
        let soft = taint.effect == Effect::PreferNoSchedule;
        let mut tolerated = false;
        for toleration in &shape.tolerations {
            tolerated = tolerated || toleration.tolerates(taint);
        }
        if !soft && !tolerated {
            return Some(format!("its taint {} is not tolerated", taint.key));
        }
    }
    for (key, wanted) in &shape.node_selector {
        if labels.get(key) != Some(wanted) {
            return Some(format!("its label {key} is not {wanted}"));
        }
    }
    match &shape.node_affinity {
        Some(terms) if !terms.iter().any(|term| term_matches(term, name, labels)) => {
            Some("the pod's node affinity does not match it".to_owned())
        }
        _ => None,
    }
}

/// Whether a term of node affinity matches.
pub(super) fn term_matches(term: &NodeTerm, name: &str, labels: &Labels) -> bool {
    let empty = term.expressions.is_empty() && term.fields.is_empty();
    let by_labels = term
        .expressions
        .iter()
        .all(|wanted| meets(wanted, labels.get(&wanted.key).map(AsRef::as_ref)));
    let by_fields = term
        .fields
        .iter()
        .all(|wanted| &*wanted.key == "metadata.name" && meets(wanted, Some(name)));
    !empty && by_labels && by_fields
}

/// Whether a value, or its absence, meets a requirement.
pub(super) fn meets(wanted: &Requirement, value: Option<&str>) -> bool {
    let number = |text: &str| text.parse::<i64>().ok();
    let bound = match wanted.values.as_slice() {
        [one] => number(one),
        _ => None,
    };
    let listed = wanted.values.iter().any(|v| Some(&**v) == value);
    match wanted.operator {
        Operator::Exists => value.is_some(),
        Operator::DoesNotExist => value.is_none(),
        Operator::In => listed,
        Operator::NotIn => !listed,
        Operator::Gt => matches!((value.and_then(number), bound), (Some(v), Some(b)) if v > b),
        Operator::Lt => matches!((value.and_then(number), bound), (Some(v), Some(b)) if v < b),
    }
}

/// The first amount of `asked` that exceeds `free`.
pub(super) fn lacking(asked: &Resources, free: &Resources) -> Option<String> {
    if free.pods < 1 {
        return Some("no pod slot is free".to_owned());
    }
    asked.lacking(free).next().map(|lack| {
        format!(
            "{}: {} asked, {} free",
            lack.resource, lack.asked, lack.free
        )
    })
}

/// Takes what a pod asks for, and its slot.
pub(super) fn charge(free: &mut Resources, asked: &Resources) {
    let before = free.pods;
    let mut asked = asked.clone();
    asked.raise_to(&Resources::default());
    free.subtract(&asked);
    free.pods = before.saturating_sub(1);
}

/// Whether two host ports cannot live on one node.
pub(super) fn clash(a: &HostPort, b: &HostPort) -> bool {
    let any = |port: &HostPort| matches!(&*port.ip, "" | "0.0.0.0");
    let protocol = |port: &HostPort| match &*port.protocol {
        "" => "TCP".to_owned(),
        other => other.to_owned(),
    };
    a.port == b.port && protocol(a) == protocol(b) && (a.ip == b.ip || any(a) || any(b))
}
