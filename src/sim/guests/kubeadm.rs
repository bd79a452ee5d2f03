//! `kubeadm join` as a simulated guest runs it: discovery by token, TLS bootstrap through a
//! certificate request, all over the fake API server's own wire.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::api::{Api, ApiError};
use super::config;
use super::payload::WrittenPayload;
use crate::sim::kube::{certificate_bearer, detached_jws, hex, key_pair, merge_patch};

/// kubeadm's `timeouts.discovery` and `timeouts.tlsBootstrap`.
const PATIENCE: Duration = Duration::from_mins(5);
/// How often kubeadm asks again.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// kubeadm's `timeouts.kubernetesAPICall`: for so long it asks for its configuration …
const API_CALL: Duration = Duration::from_mins(1);
/// … and so often.
const API_CALL_EVERY: Duration = Duration::from_millis(500);
/// How often the kubelet looks for its certificate.
const CERTIFICATE_EVERY: Duration = Duration::from_millis(500);

/// What a JoinConfiguration says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JoinConfiguration {
    pub(super) token_id: String,
    pub(super) token_secret: String,
    pub(super) ca_hashes: Vec<String>,
    pub(super) node: String,
    pub(super) taints: Vec<Value>,
    /// Arguments of the kubelet, in order.
    pub(super) kubelet_args: Vec<(String, String)>,
    pub(super) cri_socket: String,
    /// What of the KubeletConfiguration was given to this kubelet.
    pub(super) kubelet: Value,
}

impl JoinConfiguration {
    /// A kubelet argument; the last of its name counts.
    pub(super) fn arg(&self, name: &str) -> Option<&str> {
        self.kubelet_args
            .iter()
            .rev()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }
}

/// Who a kubelet is after its bootstrap.
#[derive(Clone, Debug)]
pub(super) struct KubeletCredentials {
    /// The bearer that stands for the client certificate.
    pub(super) bearer: String,
}

/// The minor version of `v1.34.1`.
fn minor(version: &str) -> u32 {
    let part = version.trim_start_matches('v').split('.').nth(1);
    part.and_then(|m| m.parse().ok()).unwrap_or(0)
}

/// Reads what `kubeadm join --config` is given, with the patches that it names.
pub(super) fn read(
    payload: &WrittenPayload,
    kubeadm: &str,
    host: &str,
) -> Result<JoinConfiguration, String> {
    let path = payload
        .script
        .trim()
        .split("--config ")
        .nth(1)
        .unwrap_or("");
    let text = payload.files.get(path);
    let text = text.ok_or_else(|| format!("open {path}: no such file or directory"))?;
    let mut join = configuration(text, kubeadm, host)?;
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    if let Some(directory) = value["patches"]["directory"].as_str() {
        let target = format!("{directory}/kubeletconfiguration");
        let patches = payload
            .files
            .iter()
            .filter(|(path, _)| path.starts_with(&target));
        for (_, patch) in patches.filter(|_| minor(kubeadm) >= 25) {
            let patch = serde_json::from_str(patch)
                .map_err(|e| format!("error parsing the kubelet patch: {e}"))?;
            merge_patch(&mut join.kubelet, &patch);
        }
    }
    match config::refusal(&join) {
        Some(why) => Err(format!(
            "error execution phase kubelet-start: timed out waiting for the condition; kubelet.service: {why}"
        )),
        None => Ok(join),
    }
}

/// Reads a JoinConfiguration as a kubeadm of this version does.
fn configuration(text: &str, kubeadm: &str, host: &str) -> Result<JoinConfiguration, String> {
    let value: Value = serde_json::from_str(text)
        .map_err(|e| format!("error converting YAML to JSON: yaml: {e}"))?;
    let version = value["apiVersion"].as_str().unwrap_or_default();
    let known = match version {
        "kubeadm.k8s.io/v1beta3" => (22..=36).contains(&minor(kubeadm)),
        "kubeadm.k8s.io/v1beta4" => minor(kubeadm) >= 31,
        _ => false,
    };
    if !known || value["kind"] != "JoinConfiguration" {
        return Err(format!(
            "no kind \"JoinConfiguration\" is registered for version \"{version}\" in scheme \"k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/scheme/scheme.go:31\""
        ));
    }
    let discovery = &value["discovery"]["bootstrapToken"];
    let token = discovery["token"].as_str().unwrap_or_default();
    let (id, secret) = token
        .split_once('.')
        .filter(|(id, secret)| id.len() == 6 && secret.len() == 16)
        .ok_or(
            "discovery.bootstrapToken.token: Invalid value: \"\": the bootstrap token is invalid",
        )?;
    if discovery["apiServerEndpoint"]
        .as_str()
        .is_none_or(|e| !e.contains(':'))
    {
        return Err("discovery.bootstrapToken.apiServerEndpoint: Invalid value: \"\": missing port in address".to_owned());
    }
    let texts = |list: &Value| -> Vec<String> {
        let items = list.as_array().into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let ca_hashes = texts(&discovery["caCertHashes"]);
    if ca_hashes.is_empty() && discovery["unsafeSkipCAVerification"] != true {
        return Err("discovery.bootstrapToken: Invalid value: \"\": using token-based discovery without caCertHashes can be unsafe. Set unsafeSkipCAVerification as true in your kubeadm config file or pass --discovery-token-unsafe-skip-ca-verification flag to continue".to_owned());
    }
    let registration = &value["nodeRegistration"];
    Ok(JoinConfiguration {
        token_id: id.to_owned(),
        token_secret: secret.to_owned(),
        ca_hashes,
        node: registration["name"]
            .as_str()
            .filter(|n| !n.is_empty())
            .unwrap_or(host)
            .to_lowercase(),
        taints: registration["taints"]
            .as_array()
            .cloned()
            .unwrap_or_default(),
        kubelet_args: arguments(&registration["kubeletExtraArgs"]),
        cri_socket: registration["criSocket"]
            .as_str()
            .unwrap_or("unix:///var/run/containerd/containerd.sock")
            .to_owned(),
        kubelet: Value::Null,
    })
}

/// A map in v1beta3, a list of name and value in v1beta4.
fn arguments(value: &Value) -> Vec<(String, String)> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    match value {
        Value::Object(map) => map.iter().map(|(k, v)| (k.clone(), text(v))).collect(),
        Value::Array(list) => list
            .iter()
            .map(|a| (text(&a["name"]), text(&a["value"])))
            .collect(),
        _ => Vec::new(),
    }
}

/// The whole join up to the client certificate. The error is what kubeadm writes to stderr.
pub(super) async fn join(
    api: &Api,
    join: &JoinConfiguration,
) -> Result<KubeletCredentials, String> {
    discover(api, join).await.map_err(|why| {
        format!("error execution phase preflight: couldn't validate the identity of the API Server: {why}\nTo see the stack trace of this error execute with --v=5 or higher")
    })?;
    let token = format!("{}.{}", join.token_id, join.token_secret);
    let bootstrap = api.with_bearer(token);
    uploaded_configuration(&bootstrap).await.map_err(|why| {
        format!("error execution phase preflight: unable to fetch the kubeadm-config ConfigMap: {why}\nTo see the stack trace of this error execute with --v=5 or higher")
    })?;
    let twin = bootstrap.get(&format!("/api/v1/nodes/{}", join.node)).await;
    if twin.is_ok_and(|node| is_ready(&node)) {
        return Err(format!(
            "error execution phase kubelet-start: a Node with name \"{}\" and status \"Ready\" already exists in the cluster. You must delete the existing Node or change the name of this new joining Node\nTo see the stack trace of this error execute with --v=5 or higher",
            join.node
        ));
    }
    certificate(&bootstrap, &join.node).await
}

/// Reads what `kubeadm init` left for those who join.
async fn uploaded_configuration(bootstrap: &Api) -> Result<(), String> {
    let end = tokio::time::Instant::now() + API_CALL;
    let held = |error: &ApiError| error.code != 401 && tokio::time::Instant::now() < end;
    while let Err(error) = config_map(bootstrap, "kubeadm-config").await {
        if !held(&error) {
            return Err(format!("failed to get config map: {}", error.message));
        }
        tokio::time::sleep(API_CALL_EVERY).await;
    }
    let kubelet = config_map(bootstrap, "kubelet-config").await;
    kubelet.map(drop).map_err(|error| {
        format!("failed to get component configs: could not download the kubelet configuration from ConfigMap \"kubelet-config\": {}", error.message)
    })
}

async fn config_map(api: &Api, name: &str) -> Result<Value, ApiError> {
    api.get(&format!("/api/v1/namespaces/kube-system/configmaps/{name}"))
        .await
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    conditions
        .filter(|c| c["type"] == "Ready")
        .any(|c| c["status"] == "True")
}

/// Reads `cluster-info` without credentials; believes it by the token's signature and the pin of
/// the authority.
async fn discover(api: &Api, join: &JoinConfiguration) -> Result<(), String> {
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        let why = match cluster_info(api, join).await {
            Ok(()) => return Ok(()),
            Err(why) => why,
        };
        if tokio::time::Instant::now() + ASK_EVERY > end {
            return Err(why);
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

async fn cluster_info(api: &Api, join: &JoinConfiguration) -> Result<(), String> {
    let info = api
        .get("/api/v1/namespaces/kube-public/configmaps/cluster-info")
        .await
        .map_err(|e| format!("failed to request the cluster-info ConfigMap: {e}"))?;
    let content = info["data"]["kubeconfig"]
        .as_str()
        .ok_or("there is no kubeconfig key in the cluster-info ConfigMap")?;
    let signature = info["data"][format!("jws-kubeconfig-{}", join.token_id)]
        .as_str()
        .ok_or_else(|| {
            format!(
                "could not find a JWS signature in the cluster-info ConfigMap for token ID \"{}\"",
                join.token_id
            )
        })?;
    if signature != detached_jws(content, &join.token_id, &join.token_secret) {
        return Err(format!(
            "failed to verify JWS signature of received cluster info object, can't trust this API Server for token ID \"{}\"",
            join.token_id
        ));
    }
    let data = content
        .lines()
        .find_map(|l| l.trim().strip_prefix("certificate-authority-data:"))
        .ok_or("cluster CA found in cluster-info ConfigMap is invalid")?;
    let pem = STANDARD
        .decode(data.trim())
        .map_err(|e| format!("cluster CA is no base64: {e}"))?;
    let pin = pin(&String::from_utf8_lossy(&pem)).ok_or("cluster CA is no certificate")?;
    if join.ca_hashes.is_empty() || join.ca_hashes.contains(&pin) {
        return Ok(());
    }
    Err(format!(
        "cluster CA found in cluster-info ConfigMap is invalid: none of the public keys \"{pin}\" are pinned"
    ))
}

/// kubeadm's pin of a certificate in PEM: `sha256:` of its SubjectPublicKeyInfo.
pub(in crate::sim) fn pin(pem: &str) -> Option<String> {
    let body: String = pem
        .lines()
        .skip_while(|l| !l.starts_with("-----BEGIN CERTIFICATE"))
        .skip(1)
        .take_while(|l| !l.starts_with("-----END"))
        .collect();
    let der = STANDARD.decode(body).ok()?;
    let (certificate, _) = element(&der)?;
    let (body, _) = element(certificate.1)?;
    let mut rest = body.1;
    let mut fields = Vec::new();
    while let Some((field, after)) = element(rest) {
        fields.push(field);
        rest = after;
    }
    // An explicit version [0] comes first, then serial, algorithm, issuer, validity, subject, key.
    let first = usize::from(fields.first()?.0[0] == 0xa0);
    let key = fields.get(first + 5)?;
    Some(format!("sha256:{}", hex(&Sha256::digest(key.0))))
}

/// One DER element: the whole of it, its content, and what follows.
type Element<'a> = ((&'a [u8], &'a [u8]), &'a [u8]);

fn element(der: &[u8]) -> Option<Element<'_>> {
    let first = usize::from(*der.get(1)?);
    let (front, length) = if first < 0x80 {
        (2, first)
    } else {
        let digits = der.get(2..2 + (first & 0x7f))?;
        let length = digits.iter().try_fold(0_usize, |n, b| {
            n.checked_mul(256)?.checked_add(usize::from(*b))
        })?;
        (2 + digits.len(), length)
    };
    let end = front.checked_add(length)?;
    Some(((der.get(..end)?, der.get(front..end)?), der.get(end..)?))
}

/// TLS bootstrap: asks for a client certificate and waits for it.
pub(super) async fn certificate(bootstrap: &Api, node: &str) -> Result<KubeletCredentials, String> {
    let request = request(node).map_err(|e| format!("cannot make a key: {e}"))?;
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "csr-"},
        "spec": {
            "request": STANDARD.encode(request),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
        },
    });
    let failed = |error: &ApiError| {
        format!("error execution phase kubelet-start: cannot request a certificate: {error}")
    };
    let made = bootstrap
        .post(requests, &object)
        .await
        .map_err(|e| failed(&e))?;
    let path = format!(
        "{requests}/{}",
        made["metadata"]["name"].as_str().unwrap_or("")
    );
    let end = tokio::time::Instant::now() + PATIENCE;
    while tokio::time::Instant::now() < end {
        if let Ok(seen) = bootstrap.get(&path).await
            && let Some(issued) = seen["status"]["certificate"].as_str()
            && let Ok(pem) = STANDARD.decode(issued)
        {
            let bearer = certificate_bearer(&String::from_utf8_lossy(&pem));
            return Ok(KubeletCredentials { bearer });
        }
        tokio::time::sleep(CERTIFICATE_EVERY).await;
    }
    Err("error execution phase kubelet-start: timed out waiting for the condition\nTo see the stack trace of this error execute with --v=5 or higher".to_owned())
}

pub(super) fn request(node: &str) -> Result<String, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::OrganizationName, "system:nodes");
    params
        .distinguished_name
        .push(DnType::CommonName, format!("system:node:{node}"));
    params.serialize_request(&key_pair(node)?)?.pem()
}

/// What kubeadm says where no network leads anywhere.
pub(super) const UNREACHABLE: &str = "error execution phase preflight: couldn't validate the identity of the API Server: failed to request the cluster-info ConfigMap: Get \"https://192.0.2.1:6443/api/v1/namespaces/kube-public/configmaps/cluster-info?timeout=10s\": dial tcp 192.0.2.1:6443: connect: network is unreachable\nTo see the stack trace of this error execute with --v=5 or higher";
/// Ways in which a join fails in the field, as kubeadm words them.
pub(super) const FAILURES: &[&str] = &[
    "[preflight] Some fatal errors occurred:\n\t[ERROR CRI]: could not connect to the container runtime: failed to create new CRI runtime service: validate service connection: validate CRI v1 runtime API for endpoint \"unix:///var/run/containerd/containerd.sock\": rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing: dial unix /var/run/containerd/containerd.sock: connect: no such file or directory\"\n[preflight] If you know what you are doing, you can make a check non-fatal with `--ignore-preflight-errors=...`\nerror: error execution phase preflight: preflight checks failed\nTo see the stack trace of this error execute with --v=5 or higher",
    "[preflight] Some fatal errors occurred:\n\t[ERROR FileContent--proc-sys-net-ipv4-ip_forward]: /proc/sys/net/ipv4/ip_forward contents are not set to 1\n[preflight] If you know what you are doing, you can make a check non-fatal with `--ignore-preflight-errors=...`\nerror: error execution phase preflight: preflight checks failed\nTo see the stack trace of this error execute with --v=5 or higher",
    "[kubelet-check] The kubelet is not healthy after 4m0.000478136s\n\nUnfortunately, an error has occurred, likely caused by:\n\t- The kubelet is not running\nerror: error execution phase kubelet-start: failed while waiting for the kubelet to start: The HTTP call equal to 'curl -sSL http://127.0.0.1:10248/healthz' returned error: Get \"http://127.0.0.1:10248/healthz\": dial tcp 127.0.0.1:10248: connect: connection refused\nTo see the stack trace of this error execute with --v=5 or higher",
];

/// What a guest prints that somebody else has in his hands: all that could write into a terminal, a protocol or a
/// file, and the token that it was given, in four ways.
pub(super) fn ravings(join: &JoinConfiguration) -> String {
    let (id, secret) = (&join.token_id, &join.token_secret);
    let (front, back) = secret.split_at(secret.len() / 2);
    format!(
        "\u{1b}[2J\u{1b}]0;owned\u{7}\nWATCHDOG=1\nREADY=1\0\n\
         [preflight] using \u{2018}--token {id}.{secret}\u{2019}, https://host/?token={id}%2E{secret}\n\
         error: \u{201c}quoted\u{201d}\0 \u{202e}txt.exe\u{9b}31m failed with {id}.{secret}.\n\
         error: {id}.{front}\n{back} failed\n\
         error: {}",
        "x".repeat(3_000)
    )
}

/// What a join that works leaves in its log.
pub(super) const SUCCESS: &str = "[preflight] Running pre-flight checks\n[preflight] Reading configuration from the \"kubeadm-config\" ConfigMap in namespace \"kube-system\"...\n[kubelet-start] Writing kubelet configuration to file \"/var/lib/kubelet/config.yaml\"\n[kubelet-start] Starting the kubelet\n[kubelet-start] Waiting for the kubelet to perform the TLS Bootstrap\n\nThis node has joined the cluster:\n* Certificate signing request was sent to apiserver and a response was received.\n* The Kubelet was informed of the new secure connection details.\n\nRun 'kubectl get nodes' on the control-plane to see this node join the cluster.\n";
