//! What `kubeadm init` leaves in a cluster and what the controller-manager does with it: namespaces,
//! configuration, `cluster-info` and its signatures, bootstrap tokens, node certificates.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::auth::{NODE_GROUP, approved, data};
use super::object::{condition, list, name, set, set_condition, text};
use super::pki::{Pki, certificate_bearer, detached_jws};
use super::resources::{
    CONFIGMAPS, CSRS, NAMESPACES, PRIORITYCLASSES, Res, SECRETS, SERVICEACCOUNTS, STORAGECLASSES,
};
use super::spec::{Distribution, KubeSpec};
use super::store::State;
use crate::model::time::{Span, Time};

/// The group of Roles and their bindings.
const RBAC: &str = "rbac.authorization.k8s.io";
/// The signer of kubelets' client certificates.
const KUBELET_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// For any client of the API server; nothing approves its requests but a person.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// Of kubelets' serving certificates; nothing in the cluster approves them.
const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";

/// Base64 to text.
pub(super) fn decoded(text: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(text).ok()?).ok()
}

/// A field of a Secret, decoded.
pub(super) fn secret_field(secret: &Value, key: &str) -> Option<String> {
    decoded(data(secret, key)?)
}

/// When a bootstrap token ends.
pub(super) fn expiry(secret: &Value) -> Option<Time> {
    let text = secret_field(secret, "expiration")?;
    // A date that cannot be read counts as expired, as upstream has it.
    Some(
        text.parse::<jiff::Timestamp>()
            .map_or(Time(0), |t| Time(t.as_millisecond())),
    )
}

/// The kubeconfig of `cluster-info`.
fn cluster_kubeconfig(spec: &KubeSpec, pki: &Pki) -> String {
    format!(
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {}\n    server: {}\n  name: \"\"\ncontexts: null\ncurrent-context: \"\"\nkind: Config\npreferences: {{}}\nusers: null\n",
        STANDARD.encode(pki.pem()),
        spec.endpoint
    )
}

/// What kubeadm leaves for machines that join.
fn config_maps(state: &mut State, spec: &KubeSpec, pki: &Pki) {
    let short = spec.version.trim_start_matches('v');
    let minor: String = short.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
    for (namespace, name, key, content) in [
        (
            "kube-public",
            "cluster-info",
            "kubeconfig",
            cluster_kubeconfig(spec, pki),
        ),
        (
            "kube-system",
            "kubeadm-config",
            "ClusterConfiguration",
            format!(
                "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nclusterName: kubernetes\ncontrolPlaneEndpoint: {}\nkubernetesVersion: {}\n",
                spec.endpoint.trim_start_matches("https://"),
                spec.version
            ),
        ),
        (
            "kube-system",
            "kubelet-config",
            "kubelet",
            format!(
                "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n# for {minor}\nrotateCertificates: true\n"
            ),
        ),
    ] {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace},
            "data": {key: content},
        });
        let _ = state.insert(CONFIGMAPS, object);
    }
}

/// Who may read that, as kubeadm's `upload-config` and `kube-proxy` leave it.
fn roles(state: &mut State) {
    for (role, map) in [
        ("kubeadm:nodes-kubeadm-config", "kubeadm-config"),
        ("kubeadm:kubelet-config", "kubelet-config"),
        ("kube-proxy", "kube-proxy"),
    ] {
        let rule = json!({
            "apiGroups": [""], "resources": ["configmaps"], "resourceNames": [map], "verbs": ["get"],
        });
        let subject = json!({
            "apiGroup": RBAC, "kind": "Group", "name": NODE_GROUP,
        });
        for (kind, key, value) in [
            ("Role", "rules", json!([rule])),
            ("RoleBinding", "subjects", json!([subject])),
        ] {
            let version = format!("{RBAC}/v1");
            let mut object = json!({
                "apiVersion": version, "kind": kind,
                "metadata": {"name": role, "namespace": "kube-system"},
            });
            object[key] = value;
            if kind == "RoleBinding" {
                object["roleRef"] = json!({"apiGroup": RBAC, "kind": "Role", "name": role});
            }
            if let Some(res) = Res::of_kind(&version, kind) {
                let _ = state.insert(res, object);
            }
        }
    }
}

/// Fills a new cluster.
pub(super) fn seed_objects(state: &mut State, spec: &KubeSpec, pki: &Pki) {
    for namespace in ["kube-system", "kube-public", "kube-node-lease", "default"] {
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": namespace, "labels": {"kubernetes.io/metadata.name": namespace}},
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        });
        let _ = state.insert(NAMESPACES, object);
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": namespace},
        });
        let _ = state.insert(SERVICEACCOUNTS, account);
    }
    if spec.distribution == Distribution::Kubeadm {
        config_maps(state, spec, pki);
        roles(state);
    }
    for (name, value) in [
        ("system-cluster-critical", 2_000_000_000_i64),
        ("system-node-critical", 2_000_001_000),
    ] {
        let object = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name}, "value": value, "preemptionPolicy": "PreemptLowerPriority",
        });
        let _ = state.insert(PRIORITYCLASSES, object);
    }
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": super::volumes::DRIVER, "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    let _ = state.insert(STORAGECLASSES, class);
}

/// Bootstrap tokens: deletes those that ended (tokencleaner) and keeps the signatures of
/// `cluster-info` up to date (bootstrapsigner). Returns when the next token ends.
pub(super) fn tokens(state: &mut State) -> Option<Time> {
    let now = state.now;
    let secrets: Vec<_> = state
        .all(SECRETS)
        .values()
        .filter(|s| text(s, "/type") == "bootstrap.kubernetes.io/token")
        .cloned()
        .collect();
    let mut next: Option<Time> = None;
    let mut wanted = std::collections::BTreeMap::new();
    for secret in secrets {
        match expiry(&secret) {
            Some(end) if end <= now => {
                state.remove(SECRETS, &secret);
                continue;
            }
            Some(end) => next = Some(next.map_or(end, |n| n.min(end))),
            None => {}
        }
        let field = |key: &str| secret_field(&secret, key).unwrap_or_default();
        if field("usage-bootstrap-signing") == "true" {
            wanted.insert(field("token-id"), field("token-secret"));
        }
    }
    let Some(info) = state.get(CONFIGMAPS, "kube-public", "cluster-info") else {
        return next;
    };
    let content = data(&info, "kubeconfig").unwrap_or("").to_owned();
    let mut new = Value::clone(&info);
    if let Some(fields) = new["data"].as_object_mut() {
        fields.retain(|key, _| !key.starts_with("jws-kubeconfig-"));
        for (id, secret) in wanted {
            fields.insert(
                format!("jws-kubeconfig-{id}"),
                json!(detached_jws(&content, &id, &secret)),
            );
        }
    }
    state.replace(CONFIGMAPS, new);
    next
}

fn is_node_request(request: &Value) -> bool {
    let asker = text(request, "/spec/username");
    let Some(subject) =
        decoded(text(request, "/spec/request")).and_then(|pem| Pki::subject(&pem).ok())
    else {
        return false;
    };
    text(request, "/spec/signerName") == KUBELET_SIGNER
        && subject.name.starts_with("system:node:")
        && subject.organisations == ["system:nodes"]
        && (asker == subject.name
            || list(request, "/spec/groups")
                .iter()
                .any(|g| g == NODE_GROUP))
}

/// Approves kubelets' certificate requests (csrapproving) and signs approved ones (csrsigning).
/// Returns when the next one is due.
pub(super) fn certificates(state: &mut State, spec: &KubeSpec, pki: &Pki) -> Option<Time> {
    let now = state.now;
    let mut next: Option<Time> = None;
    for request in state.snapshot(CSRS) {
        if !text(&request, "/status/certificate").is_empty() {
            continue;
        }
        let mut new = Value::clone(&request);
        if condition(&request, "Approved").is_none() && is_node_request(&request) {
            set_condition(
                &mut new,
                "Approved",
                "True",
                "AutoApproved",
                "Auto approving kubelet client certificate after SubjectAccessReview.",
                now,
            );
            state
                .signing
                .insert(name(&request).to_owned(), now + spec.signing_latency);
        } else if approved(&request)
            && [KUBELET_SIGNER, CLIENT_SIGNER, SERVING_SIGNER]
                .contains(&text(&request, "/spec/signerName"))
        {
            let due = state.signing.get(name(&request)).copied().unwrap_or(now);
            if due > now {
                next = Some(next.map_or(due, |n| n.min(due)));
                continue;
            }
            let serial = state.roll(u64::MAX);
            let pem = decoded(text(&request, "/spec/request")).unwrap_or_default();
            state.signing.remove(name(&request));
            match pki.sign(&pem, serial, now) {
                Ok(certificate) => {
                    // With a serving certificate nobody comes as a client.
                    let serving = text(&request, "/spec/signerName") == SERVING_SIGNER;
                    if let Some(subject) = Pki::subject(&pem).ok().filter(|_| !serving) {
                        let bearer = certificate_bearer(&certificate);
                        state.issued.insert(bearer, subject);
                    }
                    let encoded = json!(STANDARD.encode(certificate));
                    set(&mut new, &["status", "certificate"], encoded);
                }
                Err(error) => {
                    set_condition(
                        &mut new,
                        "Failed",
                        "True",
                        "SignerValidationFailure",
                        &error.to_string(),
                        now,
                    );
                }
            }
        } else {
            continue;
        }
        state.replace(CSRS, new);
        let due = now + spec.signing_latency;
        if text(&request, "/status/certificate").is_empty() {
            next = Some(next.map_or(due, |n| n.min(due)));
        }
    }
    next
}

/// Removes certificate requests an hour after they were issued (csrcleaner).
pub(super) fn old_certificates(state: &mut State) {
    let kept = Span::minutes(60);
    for request in state.snapshot(CSRS) {
        let made = super::object::time(&request, "/metadata/creationTimestamp");
        if made.is_some_and(|m| state.now.since(m) > kept) {
            state.remove(CSRS, &request);
        }
    }
}

/// The kubeconfig of cluster-admin.
pub(super) fn admin_kubeconfig(server: &str, authority: Option<&str>, token: &str) -> String {
    let authority = authority.map_or(String::new(), |pem| {
        format!("    certificate-authority-data: {}\n", STANDARD.encode(pem))
    });
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: sim\n  cluster:\n{authority}    server: {server}\ncontexts:\n- name: sim\n  context:\n    cluster: sim\n    user: admin\ncurrent-context: sim\nusers:\n- name: admin\n  user:\n    token: {token}\n"
    )
}
