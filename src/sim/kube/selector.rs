//! Label and field selectors, as query strings and as `LabelSelector` objects.

use serde_json::{Map, Value};

use super::object::map;
use super::resources::{EVENTS, NAMESPACES, NODES, PODS, Res, SECRETS};
use super::scheduler::read;
use super::status::Status;

/// One requirement of a label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LabelRequirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

/// A selector of a list or watch: labels and fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ListSelector {
    labels: Vec<LabelRequirement>,
    /// Field, wanted value, and whether it must differ.
    fields: Vec<(String, String, bool)>,
}

fn values(text: &str) -> Option<Vec<String>> {
    let inner = text.trim().strip_prefix('(')?.strip_suffix(')')?;
    Some(inner.split(',').map(|v| v.trim().to_owned()).collect())
}

/// Splits at commas outside parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_i32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn requirement(part: &str) -> Option<LabelRequirement> {
    if let Some(key) = part.strip_prefix('!') {
        return Some(LabelRequirement::Absent(key.trim().to_owned()));
    }
    let one = |key: &str, value: &str| (key.trim().to_owned(), vec![value.trim().to_owned()]);
    if let Some((key, value)) = part.split_once("!=") {
        let (key, value) = one(key, value);
        return Some(LabelRequirement::NotIn(key, value));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        let (key, value) = one(key, value);
        return Some(LabelRequirement::In(key, value));
    }
    let mut words = part.splitn(2, char::is_whitespace);
    let key = words.next()?.to_owned();
    match words.next().map(str::trim) {
        None | Some("") => Some(LabelRequirement::Exists(key)),
        Some(rest) => {
            if let Some(list) = rest.strip_prefix("notin") {
                Some(LabelRequirement::NotIn(key, values(list)?))
            } else {
                Some(LabelRequirement::In(key, values(rest.strip_prefix("in")?)?))
            }
        }
    }
}

fn holds(requirement: &LabelRequirement, labels: Option<&Map<String, Value>>) -> bool {
    let get = |key: &str| labels.and_then(|l| l.get(key)).and_then(Value::as_str);
    match requirement {
        LabelRequirement::In(key, values) => {
            get(key).is_some_and(|v| values.iter().any(|w| w == v))
        }
        LabelRequirement::NotIn(key, values) => {
            get(key).is_none_or(|v| values.iter().all(|w| w != v))
        }
        LabelRequirement::Exists(key) => get(key).is_some(),
        LabelRequirement::Absent(key) => get(key).is_none(),
    }
}

/// The fields that a resource can be selected by, besides name and namespace.
fn selectable(res: Res, field: &str) -> bool {
    if matches!(field, "metadata.name" | "metadata.namespace") {
        return true;
    }
    match res {
        PODS => matches!(
            field,
            "spec.nodeName"
                | "spec.restartPolicy"
                | "spec.schedulerName"
                | "spec.serviceAccountName"
                | "status.phase"
                | "status.podIP"
                | "status.nominatedNodeName"
        ),
        NODES => field == "spec.unschedulable",
        NAMESPACES => field == "status.phase",
        SECRETS => field == "type",
        EVENTS => {
            field.starts_with("involvedObject.")
                || matches!(field, "reason" | "reportingComponent" | "source" | "type")
        }
        _ => res.row().kind == "CertificateSigningRequest" && field == "spec.signerName",
    }
}

impl ListSelector {
    /// Reads the two query parameters.
    pub(super) fn parse(res: Res, labels: &str, fields: &str) -> Result<ListSelector, Status> {
        let mut selector = ListSelector::default();
        for part in split(labels)
            .into_iter()
            .map(str::trim)
            .filter(|p| !p.is_empty())
        {
            selector.labels.push(requirement(part).ok_or_else(|| {
                Status::bad_request(format!("unable to parse requirement: {part:?}"))
            })?);
        }
        for part in fields.split(',').filter(|p| !p.is_empty()) {
            let (field, value, differs) = if let Some((f, v)) = part.split_once("!=") {
                (f, v, true)
            } else if let Some((f, v)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (f, v, false)
            } else {
                return Err(Status::bad_request(format!(
                    "invalid selector: '{part}'; can't understand '{part}'"
                )));
            };
            if !selectable(res.stored(), field) {
                return Err(Status::bad_request(format!(
                    "field label not supported: {field}"
                )));
            }
            selector
                .fields
                .push((field.to_owned(), value.to_owned(), differs));
        }
        Ok(selector)
    }

    /// Whether an object is selected.
    pub(super) fn matches(&self, object: &Value) -> bool {
        let labels = map(object, "/metadata/labels");
        self.labels.iter().all(|r| holds(r, labels))
            && self.fields.iter().all(|(field, wanted, differs)| {
                let pointer = format!("/{}", field.replace('.', "/"));
                let found = match object.pointer(&pointer) {
                    Some(Value::String(text)) => text.clone(),
                    Some(Value::Bool(value)) => value.to_string(),
                    _ if field == "spec.unschedulable" => "false".to_owned(),
                    _ => String::new(),
                };
                (found == *wanted) != *differs
            })
    }

    /// Whether everything is selected.
    pub(super) fn is_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }
}

/// Whether labels match a `LabelSelector` object. `null` matches nothing, `{}` everything.
pub(super) fn label_selector(selector: &Value, labels: Option<&Map<String, Value>>) -> bool {
    let selector = read::selector(selector);
    filters::selects(selector.as_ref(), |key| labels?.get(key)?.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn label_selectors_read_as_kubectl_writes_them() {
        let pod = json!({"metadata": {"name": "p", "labels": {"a": "1", "b": "2"}}});
        for (text, wanted) in [
            ("a=1", true),
            ("a==1,b=2", true),
            ("a!=1", false),
            ("c!=1", true),
            ("a in (1,3),b", true),
            ("a notin (1, 3)", false),
            ("!c", true),
            ("!a", false),
        ] {
            let selector = ListSelector::parse(PODS, text, "").expect("it parses");
            assert_eq!(selector.matches(&pod), wanted, "{text}");
        }
    }

    #[test]
    fn unknown_fields_are_refused() {
        let refused = ListSelector::parse(PODS, "", "spec.hostname=x").expect_err("refused");
        assert_eq!(refused.code, 400);
        let selector = ListSelector::parse(PODS, "", "spec.nodeName=,status.phase!=Failed");
        let pod = json!({"metadata": {"name": "p"}, "spec": {}, "status": {"phase": "Pending"}});
        assert!(selector.expect("it parses").matches(&pod));
    }
}
