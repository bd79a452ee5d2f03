//! Joins that are no kubeadm's, as a simulated guest runs them: the agents of k3s and RKE2, and a program of its own, `sim-agent`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::api::{Api, ApiError};
use super::config;
use super::kubeadm::{self, JoinConfiguration, KubeletCredentials};
use super::payload::WrittenPayload;
use crate::sim::kube::{certificate_bearer, hex};

/// How often an agent asks its server again.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// How often before its starter gives it up.
const ASKS: u32 = 48;

/// The program whose agent the script starts, if it starts one.
pub(super) fn agent(script: &str) -> Option<&'static str> {
    let starts = |program: &&str| script.contains(&format!("unit={program}-agent.service"));
    ["k3s", "rke2"].into_iter().find(starts)
}

/// What an agent is told by its drop-ins, which are read in the order of their names.
pub(super) fn read(
    payload: &WrittenPayload,
    program: &str,
    host: &str,
) -> Result<JoinConfiguration, String> {
    let mut all: BTreeMap<String, Value> = BTreeMap::new();
    let directory = format!("/etc/rancher/{program}/config.yaml.d/");
    for (path, text) in &payload.files {
        if path.starts_with(&directory) {
            let more: BTreeMap<String, Value> = serde_json::from_str(text).map_err(|error| {
                format!("level=fatal msg=\"error parsing config file {path}: {error}\"")
            })?;
            all.extend(more);
        }
    }
    let text = |key: &str| all.get(key).and_then(Value::as_str).unwrap_or_default();
    let list = |key: &str| -> Vec<String> {
        let items = all.get(key).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    if text("token").is_empty() {
        return Err("level=fatal msg=\"Error: --token is required\"".to_owned());
    }
    if !text("server").starts_with("https://") {
        return Err("level=fatal msg=\"Error: --server is required\"".to_owned());
    }
    let token = text("token").strip_prefix("K10").unwrap_or_default();
    let (hash, token) = token.split_once("::").unwrap_or(("", text("token")));
    let (id, secret) = token.split_once('.').unwrap_or((token, ""));
    let mut kubelet = Value::Null;
    let directory = format!("/var/lib/rancher/{program}/agent/etc/kubelet.conf.d/");
    for (path, text) in &payload.files {
        if path.starts_with(&directory) {
            let more = serde_json::from_str(text)
                .map_err(|error| format!("failed to load kubelet config file {path}: {error}"))?;
            crate::sim::kube::merge_patch(&mut kubelet, &more);
        }
    }
    let name = text("node-name");
    let mut args = vec![("node-labels".to_owned(), list("node-label").join(","))];
    let addresses = list("node-ip");
    if !addresses.is_empty() {
        args.push(("node-ip".to_owned(), addresses.join(",")));
    }
    let pairs = list("kubelet-arg");
    args.extend(
        pairs
            .iter()
            .filter_map(|arg| arg.split_once('='))
            .map(owned),
    );
    let join = JoinConfiguration {
        token_id: id.to_owned(),
        token_secret: secret.to_owned(),
        ca_hashes: vec![hash.to_owned()],
        node: if name.is_empty() { host } else { name }.to_lowercase(),
        taints: list("node-taint")
            .iter()
            .filter_map(|text| taint(text))
            .collect(),
        kubelet_args: args,
        cri_socket: format!("unix:///run/{program}/containerd/containerd.sock"),
        kubelet,
    };
    match config::refusal(&join) {
        Some(why) => Err(format!("level=fatal msg=\"kubelet exited: {why}\"")),
        None => Ok(join),
    }
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// `key=value:Effect`.
fn taint(text: &str) -> Option<Value> {
    let (front, effect) = text.rsplit_once(':')?;
    let (key, value) = front.split_once('=').unwrap_or((front, ""));
    Some(json!({"key": key, "value": value, "effect": effect}))
}

/// The agent's way to its certificate. It asks for as long as its starter has patience.
pub(super) async fn join(
    api: &Api,
    join: &JoinConfiguration,
    program: &str,
) -> Result<KubeletCredentials, String> {
    let mut why = String::new();
    for _ in 0..ASKS {
        match ask(api, join, program).await {
            Ok(credentials) => return Ok(credentials),
            Err(error) => why = error,
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
    Err(format!(
        "level=error msg=\"{why}\"\nerror: {program}-agent.service is not up after 4 minutes"
    ))
}

async fn ask(
    api: &Api,
    join: &JoinConfiguration,
    program: &str,
) -> Result<KubeletCredentials, String> {
    let failed = |error: ApiError| format!("failed to get CA certs: {error}");
    let pem = api.get("/cacerts").await.map_err(failed)?;
    let found = hex(&Sha256::digest(pem.as_str().unwrap_or_default()));
    let wanted = join.ca_hashes.first().map_or("", String::as_str);
    if !wanted.is_empty() && wanted != found {
        return Err(format!(
            "token CA hash does not match the Cluster CA certificate hash: {wanted} != {found}"
        ));
    }
    let request = kubeadm::request(&join.node).map_err(|error| error.to_string())?;
    let headers = [
        (format!("{program}-node-name"), join.node.clone()),
        (
            format!("{program}-node-password"),
            format!("password of {}", join.node),
        ),
    ];
    let path = format!("/v1-{program}/client-kubelet.crt");
    let bearer = format!("{}.{}", join.token_id, join.token_secret);
    let certificate = api
        .with_bearer(bearer)
        .submit(&path, &headers, request)
        .await
        .map_err(|error| format!("failed to retrieve configuration from server: {error}"))?;
    Ok(KubeletCredentials {
        bearer: certificate_bearer(&certificate),
    })
}

/// `sim-agent --name NAME --labels LABELS --taints TAINTS --provider-id ID --node-ip ADDRESS`, as the last line of a script that has the token's file in
/// its environment; anything else is a program that this guest lacks.
pub(super) fn read_command(
    payload: &WrittenPayload,
    host: &str,
) -> Result<JoinConfiguration, String> {
    let line = payload.script.trim().lines().last().unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    let Some(("sim-agent", options)) = words.split_first().map(|(first, rest)| (*first, rest))
    else {
        let program = words.first().unwrap_or(&"");
        return Err(format!("sh: 1: {program}: not found"));
    };
    let option = |name: &str| {
        let mut pairs = options.windows(2);
        pairs.find(|pair| pair[0] == name).map(|pair| pair[1])
    };
    let exported = payload
        .script
        .lines()
        .find_map(|line| line.strip_prefix("export PVE_AUTOSCALER_TOKEN_FILE="));
    let token = exported.and_then(|path| payload.files.get(path));
    let token = token.ok_or("error: no token")?;
    let (id, secret) = token.split_once('.').unwrap_or((token, ""));
    let mut args = Vec::new();
    for (name, option_name) in [
        ("node-labels", "--labels"),
        ("provider-id", "--provider-id"),
        ("node-ip", "--node-ip"),
    ] {
        args.extend(option(option_name).map(|value| (name.to_owned(), value.to_owned())));
    }
    Ok(JoinConfiguration {
        token_id: id.to_owned(),
        token_secret: secret.to_owned(),
        ca_hashes: Vec::new(),
        node: option("--name").unwrap_or(host).to_owned(),
        taints: option("--taints")
            .unwrap_or("")
            .split(',')
            .filter_map(taint)
            .collect(),
        kubelet_args: args,
        cri_socket: "unix:///run/containerd/containerd.sock".to_owned(),
        kubelet: Value::Null,
    })
}

/// The way of `sim-agent` to its certificate; what it says when it fails has its token in it.
pub(super) async fn join_by_command(
    api: &Api,
    join: &JoinConfiguration,
) -> Result<KubeletCredentials, String> {
    let mut token = join.token_id.clone();
    if !join.token_secret.is_empty() {
        token = format!("{token}.{}", join.token_secret);
    }
    let certificate = kubeadm::certificate(&api.with_bearer(token.clone()), &join.node).await;
    certificate.map_err(|why| format!("error: {token} was refused: {why}"))
}
