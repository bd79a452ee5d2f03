//! The `JoinConfiguration` a machine joins with, in the API version that its kubeadm speaks. Pure.
//!
//! Source: `kubeadm.k8s.io/v1beta4` (kubeadm ≥ 1.31) and `v1beta3` (1.22 to 1.30). JSON is YAML.

use std::fmt::Write as _;
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use crate::config::settings::Join;
use crate::model::policy::STARTUP_TAINT;
use crate::model::scheduling::{Effect, Labels, Taint};

/// All that goes into a join.
#[derive(Debug)]
pub struct JoinInput<'a> {
    /// kubeadm's version as the guest says it, such as `v1.34.1`.
    pub kubeadm: &'a str,
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
    /// The pool's join settings.
    pub settings: &'a Join,
}

/// Why no configuration can be made.
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
}

/// The configuration as JSON text. It holds the token's secret: hand it on through stdin only.
pub fn configuration(input: &JoinInput<'_>) -> Result<SecretString, JoinError> {
    if input.kubeadm.is_empty() {
        return Err(JoinError::NoKubeadm);
    }
    let minor = minor(input.kubeadm).ok_or_else(|| JoinError::Version(input.kubeadm.to_owned()))?;
    let version = match minor {
        0..22 => return Err(JoinError::Version(input.kubeadm.to_owned())),
        22..31 => "v1beta3",
        _ => "v1beta4",
    };
    let (id, secret) = input.token;
    let token = format!("{id}.{}", secret.expose_secret());
    let mut registration = json!({
        "name": input.node_name,
        "taints": taints(input.taints),
        "kubeletExtraArgs": kubelet_args(input, version),
    });
    if !input.settings.ignore_preflight_errors.is_empty() {
        registration["ignorePreflightErrors"] = json!(input.settings.ignore_preflight_errors);
    }
    if let Some(socket) = &input.settings.cri_socket {
        registration["criSocket"] = json!(socket);
    }
    let configuration = json!({
        "apiVersion": format!("kubeadm.k8s.io/{version}"),
        "kind": "JoinConfiguration",
        "discovery": {
            "bootstrapToken": {
                "token": token,
                "apiServerEndpoint": input.endpoint,
                "caCertHashes": input.ca_hashes,
            },
        },
        "nodeRegistration": registration,
    });
    Ok(SecretString::from(ascii(&configuration.to_string())))
}

/// JSON text with everything beyond ASCII as `\uXXXX`: PVE garbles other characters on their way to
/// the guest, or refuses them.
fn ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() {
            text.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(text, "\\u{unit:04x}");
            }
        }
    }
    text
}

/// The minor of `v1.34.1`.
fn minor(version: &str) -> Option<u32> {
    let mut parts = version.trim().strip_prefix('v')?.split('.');
    if parts.next()? != "1" {
        return None;
    }
    parts.next()?.parse().ok()
}

fn taints(pool: &[Taint]) -> Vec<Value> {
    let startup = Taint {
        key: STARTUP_TAINT.into(),
        value: Arc::from(""),
        effect: Effect::NoSchedule,
    };
    pool.iter()
        .chain(std::iter::once(&startup))
        .map(|taint| json!({"key": &*taint.key, "value": &*taint.value, "effect": format!("{:?}", taint.effect)}))
        .collect()
}

fn kubelet_args(input: &JoinInput<'_>, version: &str) -> Value {
    let mut args = input.settings.kubelet_args.clone();
    let labels: Vec<String> = input
        .labels
        .iter()
        .filter(|(key, _)| kubelet_may_set(key))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    if !labels.is_empty() {
        args.insert("node-labels".to_owned(), labels.join(","));
    }
    if let Some(id) = input.provider_id {
        args.insert("provider-id".to_owned(), id.to_owned());
    }
    if version == "v1beta3" {
        json!(args)
    } else {
        args.iter()
            .map(|(name, value)| json!({"name": name, "value": value}))
            .collect()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn made(kubeadm: &str) -> Result<Value, JoinError> {
        let labels: Labels = [
            ("pve-autoscaler.io/pool", "small"),
            ("topology.kubernetes.io/zone", "pve1"),
            ("node-role.kubernetes.io/worker", ""),
        ]
        .into_iter()
        .map(|(k, v)| (Arc::from(k), Arc::from(v)))
        .collect();
        let secret = SecretString::from("0123456789abcdef".to_owned());
        configuration(&JoinInput {
            kubeadm,
            node_name: "small-abcde",
            token: ("abcdef", &secret),
            endpoint: "10.0.0.1:6443",
            ca_hashes: &["sha256:00".to_owned()],
            labels: &labels,
            taints: &[Taint::no_schedule("gpu", "yes")],
            provider_id: Some("proxmox://home/9001"),
            settings: &Join::default(),
        })
        .map(|text| serde_json::from_str(text.expose_secret()).expect("json"))
    }

    #[test]
    fn each_kubeadm_gets_its_own_api_version() {
        let new = made("v1.36.2").expect("made");
        assert_eq!(new["apiVersion"], "kubeadm.k8s.io/v1beta4");
        assert_eq!(
            new["nodeRegistration"]["kubeletExtraArgs"],
            json!([{"name": "node-labels", "value": "pve-autoscaler.io/pool=small,topology.kubernetes.io/zone=pve1"}, {"name": "provider-id", "value": "proxmox://home/9001"}])
        );
        let old = made("v1.29.0").expect("made");
        assert_eq!(old["apiVersion"], "kubeadm.k8s.io/v1beta3");
        assert!(old["nodeRegistration"]["kubeletExtraArgs"]["node-labels"].is_string());
        assert_eq!(
            new["nodeRegistration"]["taints"],
            json!([
                {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
                {"key": STARTUP_TAINT, "value": "", "effect": "NoSchedule"},
            ])
        );
        let odd = json!({"a": "Müller … 🚀 \\ \""}).to_string();
        assert!(ascii(&odd).is_ascii());
        assert_eq!(
            serde_json::from_str::<Value>(&ascii(&odd)).expect("json"),
            serde_json::from_str::<Value>(&odd).expect("json")
        );
        assert_eq!(made(""), Err(JoinError::NoKubeadm));
        assert!(matches!(made("v1.19.0"), Err(JoinError::Version(_))));
        assert!(matches!(made("oops"), Err(JoinError::Version(_))));
    }
}
