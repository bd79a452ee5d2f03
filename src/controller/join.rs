//! What a guest is given so that its machine becomes a node. Pure.

mod agents;
mod command;
mod kubeadm;
mod payload;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use secrecy::SecretString;
use serde_json::{Map, Value};

use crate::config::settings::{JoinMethod, JoinSettings};
pub use agents::AgentDistribution;

use crate::model::policy::STARTUP_TAINT;
use crate::model::scheduling::{Effect, Labels, Taint};

/// Where servers of RKE2 listen for agents.
pub const RKE2_PORT: u16 = 9345;

/// Minor versions of Kubernetes from which on a join is told otherwise, and one that is older than all: by kubeadm's API, its patches and
/// the kubelet's settings (`kubeadm`), and by the drop-ins of k3s' kubelet (`agents`).
pub const CHANGES: [u32; 6] = [20, 22, 25, 30, 31, 32];

/// All that goes into a join.
#[derive(Debug)]
pub struct JoinInput<'a> {
    /// The version of kubeadm, k3s or rke2 as the guest says it, such as `v1.34.1`; empty when it has none.
    pub version: &'a str,
    /// Node name.
    pub node_name: &'a str,
    /// `host:port` of the API server, or of the supervisor of k3s or RKE2.
    pub endpoint: &'a str,
    /// What it shows for being let in, and how it knows the cluster.
    pub trust: JoinTrust<'a>,
    /// Labels that the node shall carry.
    pub labels: &'a Labels,
    /// The pool's taints; our startup taint is added.
    pub taints: &'a [Taint],
    /// `spec.providerID` of the node, if it shall have one from the start.
    pub provider_id: Option<&'a str>,
    /// What the pool sets in the kubelet's configuration.
    pub kubelet: &'a Map<String, Value>,
    /// The pool's join settings.
    pub settings: &'a JoinSettings,
}

/// The secret that lets a machine in, and how it knows the cluster.
#[derive(Debug)]
pub enum JoinTrust<'a> {
    /// A bootstrap token by id and secret, and `sha256:…` of the keys of the cluster's CAs.
    Keys((&'a str, &'a SecretString), &'a [String]),
    /// A bootstrap token by id and secret, and the hash that k3s makes of the cluster's CAs.
    Bundle((&'a str, &'a SecretString), &'a str),
    /// Any secret, the cluster's CAs in PEM, and the script that uses them, with its gaps filled in.
    Script(&'a SecretString, &'a str, &'a str),
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
    /// A kubeadm that cannot patch the kubelet's configuration.
    #[error(
        "the guest's kubeadm {0} does not take settings of the kubelet (pool.NAME.kubelet, max_pods); 1.25 or newer does: update the template"
    )]
    Kubelet(String),
    /// No agent in the guest.
    #[error("the guest has no {0}; install it in the template as an agent that is not started")]
    NoAgent(&'static str),
    /// An agent whose kubelet reads no drop-ins.
    #[error(
        "the guest's {0} {1} does not take settings of the kubelet (pool.NAME.kubelet, max_pods); 1.32 or newer does: update the template"
    )]
    AgentKubelet(&'static str, String),
    /// The settings were changed in between.
    #[error("the pool's join.method was changed while the machine joined")]
    Changed,
}

/// What the guest's join script reads on its standard input. It holds secrets: hand it on through stdin only.
pub fn payload(input: &JoinInput<'_>) -> Result<SecretString, JoinError> {
    match (&input.settings.method, &input.trust) {
        (JoinMethod::Kubeadm, JoinTrust::Keys(token, hashes)) => {
            kubeadm::payload(input, *token, hashes)
        }
        (JoinMethod::K3s, JoinTrust::Bundle(token, hash)) => {
            agents::payload(AgentDistribution::K3s, input, *token, hash)
        }
        (JoinMethod::Rke2, JoinTrust::Bundle(token, hash)) => {
            agents::payload(AgentDistribution::Rke2, input, *token, hash)
        }
        (JoinMethod::Command { .. }, JoinTrust::Script(secret, ca, script)) => {
            Ok(command::payload(script, secret, ca))
        }
        _ => Err(JoinError::Changed),
    }
}

/// What a command of the configuration may name beside its machine: labels and taints as the kubelet's arguments take them.
pub fn words(labels: &Labels, pool: &[Taint]) -> (String, String) {
    let taints = taints(pool).map(|t| format!("{}={}:{:?}", t.key, t.value, t.effect));
    let taints: Vec<String> = taints.collect();
    (own_labels(labels).join(","), taints.join(","))
}

/// `host:port` of a kubeconfig's server, for machines; with another port where one is given.
///
/// # Errors
/// When other machines could not reach it under that name.
pub fn endpoint(server: &str, port: Option<u16>) -> Result<String, String> {
    let uri: Option<http::Uri> = server.parse().ok();
    let host = uri.as_ref().and_then(http::Uri::host).unwrap_or_default();
    let own = ["localhost", "127.0.0.1", "[::1]", ""].contains(&host);
    if own || host.starts_with("127.") {
        return Err(format!(
            "the kubeconfig's server {server:?} is no address that machines could reach: set join.endpoint of the pool"
        ));
    }
    let port = port.or_else(|| uri.as_ref().and_then(http::Uri::port_u16));
    Ok(format!("{host}:{}", port.unwrap_or(443)))
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
pub fn taints(pool: &[Taint]) -> impl Iterator<Item = Taint> + '_ {
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
    labels
        .map(|(key, value)| format!("{key}={value}"))
        .collect()
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
