//! The RBAC manifest and the admission policy as objects to apply.

use serde::Deserialize;
use serde_json::Value;

use crate::kubernetes::access::AccessRight;
use crate::kubernetes::client::encode;

/// `contrib/kubernetes/rbac.yaml`.
pub const MANIFEST: &str = include_str!("../../../contrib/kubernetes/rbac.yaml");

/// `contrib/kubernetes/admission-policy.yaml`.
pub const POLICY: &str = include_str!("../../../contrib/kubernetes/admission-policy.yaml");

/// `contrib/kubernetes/serving-certificates.yaml`.
pub const SERVING: &str = include_str!("../../../contrib/kubernetes/serving-certificates.yaml");

/// The name of the role that `doctor` alone makes use of.
pub const DOCTOR: &str = "pve-autoscaler-doctor";

/// One object of them.
#[derive(Debug)]
pub(super) struct Object {
    /// Plural resource.
    pub(super) kind: &'static str,
    /// The object's own path in the API.
    pub(super) path: String,
    /// `Role kube-system/pve-autoscaler`.
    pub(super) said: String,
    pub(super) content: Value,
}

/// The RBAC manifest as text, with the objects of the daemon's own namespace in `namespace`.
pub fn manifest_in(namespace: &str) -> String {
    let own = format!("  name: {}\n  namespace: kube-system\n", super::USER);
    let there = format!("  name: {}\n  namespace: {namespace}\n", super::USER);
    MANIFEST.replace(&own, &there)
}

/// All objects, with those of the daemon's own namespace moved to `namespace`. The roles over
/// bootstrap tokens and cluster-info stay where Kubernetes wants those.
pub(super) fn objects(namespace: &str) -> Result<Vec<Object>, String> {
    read(MANIFEST, namespace)
}

/// The objects of the admission policy: each policy before what binds it.
pub(super) fn policy() -> Result<Vec<Object>, String> {
    read(POLICY, "")
}

fn read(manifest: &str, namespace: &str) -> Result<Vec<Object>, String> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(manifest)
        .map_err(|error| format!("the built-in manifest is damaged: {error}"))?;
    documents
        .into_iter()
        .filter(|document| !document.is_null())
        .map(|document| object(document, namespace))
        .collect()
}

fn object(mut content: Value, own: &str) -> Result<Object, String> {
    let text = |pointer: &str| content.pointer(pointer).and_then(Value::as_str);
    let base = format!("/apis/{}", text("/apiVersion").unwrap_or_default());
    let name = text("/metadata/name").unwrap_or_default().to_owned();
    let (word, kind) = match text("/kind").unwrap_or_default() {
        "ClusterRole" => ("ClusterRole", "clusterroles"),
        "ClusterRoleBinding" => ("ClusterRoleBinding", "clusterrolebindings"),
        "Role" => ("Role", "roles"),
        "RoleBinding" => ("RoleBinding", "rolebindings"),
        "ValidatingAdmissionPolicy" => ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        "ValidatingAdmissionPolicyBinding" => (
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
        ),
        other => {
            return Err(format!(
                "the built-in manifest has an unknown kind {other:?}"
            ));
        }
    };
    let mut namespace = text("/metadata/namespace").map(str::to_owned);
    if namespace.as_deref() == Some("kube-system") && name == super::USER {
        namespace = Some(own.to_owned());
        content["metadata"]["namespace"] = Value::from(own);
    }
    let (path, said) = match &namespace {
        Some(namespace) => (
            format!(
                "{base}/namespaces/{}/{kind}/{}",
                encode(namespace),
                encode(&name)
            ),
            format!("{word} {namespace}/{name}"),
        ),
        None => (
            format!("{base}/{kind}/{}", encode(&name)),
            format!("{word} {name}"),
        ),
    };
    Ok(Object {
        kind,
        path,
        said,
        content,
    })
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RoleRule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    resource_names: Vec<String>,
    verbs: Vec<String>,
}

/// Every right that the daemon needs, one by one, as the manifest grants them: what `doctor` asks for. What the manifest grants to `doctor`
/// itself is none of them, so that a cluster with an older manifest lacks nothing.
pub fn rights(namespace: &str) -> Result<Vec<AccessRight>, String> {
    let mut objects = objects(namespace)?;
    objects.retain(|object| object.content.pointer("/metadata/name") != Some(&DOCTOR.into()));
    granted(objects)
}

/// Every right that `contrib/kubernetes/serving-certificates.yaml` grants beside these.
pub fn serving_rights() -> Result<Vec<AccessRight>, String> {
    granted(read(SERVING, "")?)
}

fn granted(objects: Vec<Object>) -> Result<Vec<AccessRight>, String> {
    let mut all = Vec::new();
    for object in objects {
        let rules = object.content.get("rules").cloned().unwrap_or_default();
        let rules: Option<Vec<RoleRule>> = serde_json::from_value(rules)
            .map_err(|error| format!("the built-in manifest is damaged: {error}"))?;
        let place = object.content.pointer("/metadata/namespace");
        let place = place.and_then(Value::as_str).unwrap_or_default();
        for rule in rules.unwrap_or_default() {
            all.extend(spread(&rule, place));
        }
    }
    Ok(all)
}

fn spread(rule: &RoleRule, namespace: &str) -> Vec<AccessRight> {
    let everything = [String::new()];
    let names: &[String] = if rule.resource_names.is_empty() {
        &everything
    } else {
        &rule.resource_names
    };
    let mut rights = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                rights.extend(names.iter().map(|name| AccessRight {
                    verb: verb.clone(),
                    group: group.clone(),
                    resource: resource.clone(),
                    name: name.clone(),
                    namespace: namespace.to_owned(),
                }));
            }
        }
    }
    rights
}
