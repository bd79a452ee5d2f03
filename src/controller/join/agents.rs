//! Agents of k3s and RKE2: a drop-in for their configuration, a token for the time of the join, and the start of their unit.
//!
//! Source: k3s `pkg/clientaccess/token.go` (tokens and the hash of CAs in them; an agent reads its token at every start and ends up nowhere
//! without one, though its kubelet's certificate is what lets it in from the second start on), `pkg/agent/run.go` (the unit is up when the
//! node is there and its network has begun), `pkg/server/auth` (any bootstrap token's group may ask for node certificates). RKE2 is built on it.

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use super::payload::JoinPayload;
use super::{JoinError, JoinInput, kubelet_args, minor, own_labels, taints};

/// The first release whose kubelet reads a directory of configurations.
const DROP_INS_SINCE: u32 = 32;

/// The secret of the token that stays in a guest after its join: sixteen zeros, which let nobody in. Each start of an agent parses the token
/// of its configuration, and ends without one; what lets it in from then on is its kubelet's certificate.
const SPENT: &str = "0000000000000000";

/// A distribution with an agent of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentDistribution {
    /// k3s.
    K3s,
    /// RKE2.
    Rke2,
}

impl AgentDistribution {
    /// The name of the program.
    pub fn program(self) -> &'static str {
        match self {
            AgentDistribution::K3s => "k3s",
            AgentDistribution::Rke2 => "rke2",
        }
    }
}

/// The payload. It holds the token's secret.
pub(super) fn payload(
    of: AgentDistribution,
    input: &JoinInput<'_>,
    token: (&str, &SecretString),
    ca_hash: &str,
) -> Result<SecretString, JoinError> {
    let program = of.program();
    if input.version.is_empty() {
        return Err(JoinError::NoAgent(program));
    }
    let minor = minor(input.version).unwrap_or(0);
    if minor < DROP_INS_SINCE && !input.kubelet.is_empty() {
        return Err(JoinError::AgentKubelet(program, input.version.to_owned()));
    }
    let mut args = kubelet_args(input);
    args.remove("node-labels");
    let addresses = args.remove("node-ip");
    let args = args.iter();
    let args: Vec<String> = args
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let taints = taints(input.taints);
    let taints: Vec<String> = taints
        .map(|taint| format!("{}={}:{:?}", taint.key, taint.value, taint.effect))
        .collect();
    let mut configuration = json!({
        "server": format!("https://{}", input.endpoint),
        "node-name": input.node_name,
        "node-label": own_labels(input.labels),
        "node-taint": taints,
    });
    // The agent hands it to its kubelet, and tells it to its server's cloud controller and its network besides.
    if let Some(addresses) = addresses {
        let addresses: Vec<&str> = addresses.split(',').map(str::trim).collect();
        configuration["node-ip"] = json!(addresses);
    }
    if !args.is_empty() {
        configuration["kubelet-arg"] = json!(args);
    }
    let (id, secret) = token;
    let spent = json!({ "token": format!("K10{ca_hash}::{id}.{SPENT}") }).to_string();
    let full_token = format!("K10{ca_hash}::{id}.{}", secret.expose_secret());
    let directory = format!("/etc/rancher/{program}/config.yaml.d");
    let token_file = format!("{directory}/60-pve-autoscaler-token.yaml");
    let mut payload = JoinPayload::default();
    let path = format!("{directory}/50-pve-autoscaler.yaml");
    payload.file("0600", &path, &configuration.to_string());
    payload.file(
        "0600",
        &token_file,
        &json!({ "token": full_token }).to_string(),
    );
    if !input.kubelet.is_empty() {
        let mut kubelet = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        });
        if let Value::Object(all) = &mut kubelet {
            all.extend(input.kubelet.clone());
        }
        let kubelet_file =
            format!("/var/lib/rancher/{program}/agent/etc/kubelet.conf.d/50-pve-autoscaler.conf");
        payload.file("0600", &kubelet_file, &kubelet.to_string());
    }
    Ok(payload.run(&script(program, &token_file, &spent)))
}

/// Starts the agent's unit, which says that it is up when its node is there. The token goes in any case; of one that was used a spent one
/// stays, without which the agent would not come back after a reboot.
fn script(program: &str, token_file: &str, spent: &str) -> String {
    format!(
        "trap 'rm -f {token_file}' EXIT
unit={program}-agent.service
if ! systemctl cat \"$unit\" >/dev/null 2>&1; then
  echo \"error: the guest has no unit $unit: install {program} in the template as an agent that is not started\" >&2
  exit 1
fi
systemctl stop \"$unit\"
systemctl enable \"$unit\" && systemctl --no-block start \"$unit\" || exit 1
waits=0
until [ \"$(systemctl is-active \"$unit\")\" = active ]; do
  if [ \"$waits\" -ge 120 ] || {{ [ \"$waits\" -ge 5 ] && [ \"$(systemctl is-active \"$unit\")\" = failed ]; }}; then
    journalctl -u \"$unit\" -n 40 --no-pager -o cat
    systemctl stop \"$unit\"
    echo \"error: $unit is not up after $((waits * 2)) seconds\" >&2
    exit 1
  fi
  sleep 2
  waits=$((waits + 1))
done
(umask 077 && printf '%s\\n' '{spent}' >{token_file}.spent) && mv {token_file}.spent {token_file} || exit 1
trap - EXIT
"
    )
}
