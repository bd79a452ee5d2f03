//! `kubeadm join`: a `JoinConfiguration` in the API version that the guest's kubeadm speaks, and a patch of the kubelet's
//! configuration.
//!
//! Source: `kubeadm.k8s.io/v1beta4` (kubeadm ≥ 1.31) and `v1beta3` (1.22 to 1.30); patches of `kubeletconfiguration` from 1.25 on.

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use super::payload::{FILES, JoinPayload};
use super::{JoinError, JoinInput, kubelet_args, minor, taints};

/// Where the patch lies. It stays: `kubeadm upgrade node --patches` needs it again.
const PATCHES: &str = "/etc/kubernetes/pve-autoscaler-patches";
/// The first kubeadm that patches the kubelet's configuration.
const PATCHES_SINCE: u32 = 25;
/// The first kubelet that knows `NoSwap`; before it, a kubelet that is told nothing gives pods none.
const NO_SWAP_SINCE: u32 = 30;

/// The payload. It holds the token's secret.
pub(super) fn payload(
    input: &JoinInput<'_>,
    token: (&str, &SecretString),
    ca_hashes: &[String],
) -> Result<SecretString, JoinError> {
    let version = input.version;
    if version.is_empty() {
        return Err(JoinError::NoKubeadm);
    }
    let minor = minor(version).ok_or_else(|| JoinError::Version(version.to_owned()))?;
    let api = match minor {
        0..22 => return Err(JoinError::Version(version.to_owned())),
        22..31 => "v1beta3",
        _ => "v1beta4",
    };
    if minor < PATCHES_SINCE && !input.kubelet.is_empty() {
        return Err(JoinError::Kubelet(version.to_owned()));
    }
    let mut registration = json!({
        "name": input.node_name,
        "taints": taints(input.taints).map(|taint| json!({
            "key": &*taint.key, "value": &*taint.value, "effect": format!("{:?}", taint.effect),
        })).collect::<Vec<Value>>(),
        "kubeletExtraArgs": arguments(input, api),
    });
    if !input.settings.ignore_preflight_errors.is_empty() {
        registration["ignorePreflightErrors"] = json!(input.settings.ignore_preflight_errors);
    }
    if let Some(socket) = &input.settings.cri_socket {
        registration["criSocket"] = json!(socket);
    }
    let (id, secret) = token;
    let mut configuration = json!({
        "apiVersion": format!("kubeadm.k8s.io/{api}"),
        "kind": "JoinConfiguration",
        "discovery": {
            "bootstrapToken": {
                "token": format!("{id}.{}", secret.expose_secret()),
                "apiServerEndpoint": input.endpoint,
                "caCertHashes": ca_hashes,
            },
        },
        "nodeRegistration": registration,
    });
    let mut payload = JoinPayload::default();
    if !input.kubelet.is_empty() {
        configuration["patches"] = json!({"directory": PATCHES});
        let mut patch = input.kubelet.clone();
        let behaviour = patch.get("memorySwap").map(|swap| &swap["swapBehavior"]);
        if minor < NO_SWAP_SINCE && behaviour == Some(&json!("NoSwap")) {
            patch.remove("memorySwap");
        }
        let path = format!("{PATCHES}/kubeletconfiguration+merge.json");
        payload.file("0644", &path, &Value::Object(patch).to_string());
    }
    let path = format!("{FILES}/join.json");
    payload.file("0600", &path, &configuration.to_string());
    Ok(payload.run(&format!("kubeadm join --config {path}\n")))
}

/// A map in v1beta3, a list of name and value in v1beta4.
fn arguments(input: &JoinInput<'_>, api: &str) -> Value {
    let args = kubelet_args(input);
    if api == "v1beta3" {
        return json!(args);
    }
    args.iter()
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect()
}
