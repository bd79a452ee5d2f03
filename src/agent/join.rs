//! What a guest is given so that its machine becomes a node. Pure.

mod kubeadm;
mod payload;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use secrecy::SecretString;
use serde_json::{Map, Value};

use crate::config::settings::Join;
use crate::model::policy::STARTUP_TAINT;
use crate::model::scheduling::{Effect, Labels, Taint};

/// All that goes into a join.
#[derive(Debug)]
pub struct JoinInput<'a> {
    /// kubeadm's version as the guest says it, such as `v1.34.1`.
    pub version: &'a str,
    /// Node name.
    pub node_name: &'a str,
    /// Token id and secret.
    pub token: (&'a str, &'a SecretString),
    /// `host:port` of the API server.
    pub endpoint: &'a str,
    /// `sha256:…` of the cluster's CAs.
    pub ca_hashes: &'a [String],
    /// Labels that the node shall carry.
    pub labels: &'a Labels,
    /// The pool's taints; our startup taint is added.
    pub taints: &'a [Taint],
    /// `spec.providerID` of the node, if it shall have one from the start.
    pub provider_id: Option<&'a str>,
    /// What the pool sets in the kubelet's configuration.
    pub kubelet: &'a Map<String, Value>,
    /// The pool's join settings.
    pub settings: &'a Join,
}

/// Why no join can be prepared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// No kubeadm in the guest.
    #[error(
        "the guest has no kubeadm; install kubeadm, kubelet and a container runtime in the template"
    )]
    NoKubeadm,
    /// A version we cannot read or that is too old.
    #[error("the guest's kubeadm says version {0:?}; 1.22 or newer is needed")]
    Version(String),
    /// It cannot patch the kubelet's configuration.
    #[error(
        "the guest's kubeadm {0} does not take settings of the kubelet (pool.NAME.kubelet, max_pods); 1.25 or newer does: update the template, or use join.kubelet_args"
    )]
    Kubelet(String),
}

/// What the guest's join script reads on its standard input. It holds secrets: hand it on through stdin only.
pub fn payload(input: &JoinInput<'_>) -> Result<SecretString, JoinError> {
    kubeadm::payload(input, input.token, input.ca_hashes)
}

/// The minor of `v1.34.1`.
fn minor(version: &str) -> Option<u32> {
    let mut parts = version.trim().strip_prefix('v')?.split('.');
    if parts.next()? != "1" {
        return None;
    }
    parts.next()?.parse().ok()
}

/// The pool's taints, and our startup taint.
fn taints(pool: &[Taint]) -> impl Iterator<Item = Taint> + '_ {
    let startup = Taint {
        key: STARTUP_TAINT.into(),
        value: Arc::from(""),
        effect: Effect::NoSchedule,
    };
    pool.iter().cloned().chain(std::iter::once(startup))
}

/// The labels that a kubelet may give its own node, as `key=value`.
fn own_labels(labels: &Labels) -> Vec<String> {
    let labels = labels.iter().filter(|(key, _)| kubelet_may_set(key));
    labels.map(|(key, value)| format!("{key}={value}")).collect()
}

/// The kubelet's arguments: the pool's, labels, and the provider id.
fn kubelet_args(input: &JoinInput<'_>) -> BTreeMap<String, String> {
    let mut args = input.settings.kubelet_args.clone();
    let labels = own_labels(input.labels);
    if !labels.is_empty() {
        args.insert("node-labels".to_owned(), labels.join(","));
    }
    if let Some(id) = input.provider_id {
        args.insert("provider-id".to_owned(), id.to_owned());
    }
    args
}

/// Whether a kubelet may give its own node this label (the `NodeRestriction` admission plugin and
/// the kubelet's `--node-labels` check); the others are set afterwards by us.
pub fn kubelet_may_set(key: &str) -> bool {
    const ALLOWED: [&str; 11] = [
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
    ];
    let Some((prefix, _)) = key.split_once('/') else {
        return true;
    };
    let in_domain = |domain: &str| prefix == domain || prefix.ends_with(&format!(".{domain}"));
    if ALLOWED.contains(&key)
        || in_domain("kubelet.kubernetes.io")
        || in_domain("node.kubernetes.io")
    {
        return true;
    }
    !(in_domain("kubernetes.io") || in_domain("k8s.io"))
}
