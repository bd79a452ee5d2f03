//! Selectors: `nodeSelector`, node affinity with every operator and `matchFields`, and label
//! selectors over pods.
//!
//! Source: `component-helpers/scheduling/corev1/nodeaffinity`, `apimachinery/pkg/labels/selector.go`.

use model::label_list::LabelSet;
use model::scheduling::{LabelSelector, Labels, NodeTerm, Operator, Requirement};

/// The one field that `matchFields` supports.
const NAME_FIELD: &str = "metadata.name";

/// Whether `labels` meet one requirement.
pub(crate) fn requirement(requirement: &Requirement, labels: &impl LabelSet) -> bool {
    holds(requirement, labels.value(&requirement.key).map(|v| &**v))
}

fn holds(requirement: &Requirement, value: Option<&str>) -> bool {
    let listed = |have: &str| requirement.values.iter().any(|v| **v == *have);
    match requirement.operator {
        Operator::In => value.is_some_and(listed),
        Operator::NotIn => !value.is_some_and(listed),
        Operator::Exists => value.is_some(),
        Operator::DoesNotExist => value.is_none(),
        Operator::Gt => compare(requirement, value, |have, bound| have > bound),
        Operator::Lt => compare(requirement, value, |have, bound| have < bound),
    }
}

/// `Gt` and `Lt` hold for integers alone, and for exactly one bound.
fn compare(requirement: &Requirement, value: Option<&str>, op: fn(i64, i64) -> bool) -> bool {
    let [bound] = requirement.values.as_slice() else {
        return false;
    };
    match (
        value.and_then(|v| v.parse::<i64>().ok()),
        bound.parse::<i64>(),
    ) {
        (Some(have), Ok(bound)) => op(have, bound),
        _ => false,
    }
}

/// Whether a node of this name and these labels meets one term. A term without any requirement
/// matches nothing, as in Kubernetes.
pub(crate) fn term(term: &NodeTerm, name: &str, labels: &Labels) -> bool {
    if term.expressions.is_empty() && term.fields.is_empty() {
        return false;
    }
    term.expressions.iter().all(|r| requirement(r, labels))
        && term
            .fields
            .iter()
            .all(|r| &*r.key == NAME_FIELD && holds(r, Some(name)))
}

/// Whether one of the terms matches.
pub(crate) fn any_term(terms: &[NodeTerm], name: &str, labels: &Labels) -> bool {
    terms.iter().any(|t| term(t, name, labels))
}

/// Whether a label selector takes in `labels`; `None` selects nothing.
pub(crate) fn selects(selector: Option<&LabelSelector>, labels: &impl LabelSet) -> bool {
    selector.is_some_and(|selector| {
        selector
            .labels
            .iter()
            .all(|(key, value)| labels.value(key) == Some(value))
            && selector.expressions.iter().all(|r| requirement(r, labels))
    })
}
