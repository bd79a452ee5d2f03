//! Guests that join by themselves: nobody tells them to. An image, or what the network boots, has a token in it; Talos reads a
//! machine configuration.

use serde_json::{Value, json};

use super::kubeadm::JoinConfiguration;
use super::nocloud::Files;
use super::spec::GuestSpec;
use super::{GuestVm, config};
use crate::model::policy::STARTUP_TAINT;

/// What begins the SMBIOS serial by which NoCloud and Talos are told a host name.
const SERIAL: &str = "ds=nocloud;";
/// Keys of `machine` that Talos knows, as far as a worker's configuration has them; it refuses others.
const MACHINE: [&str; 18] = [
    "type",
    "token",
    "ca",
    "certSANs",
    "kubelet",
    "network",
    "install",
    "files",
    "env",
    "time",
    "sysctls",
    "registries",
    "features",
    "kernel",
    "nodeLabels",
    "nodeAnnotations",
    "nodeTaints",
    "disks",
];

/// How the machine joins by itself, if it does: by what its image has, or by the drive that it found.
pub(super) fn join(
    spec: &GuestSpec,
    vm: &GuestVm,
    seed: Option<&Files>,
) -> Option<Result<JoinConfiguration, String>> {
    if spec.talos {
        // Without a configuration Talos waits for one.
        return seed.map(|files| talos(files, &host(vm, Some(files))));
    }
    let (id, secret) = spec.joins_with.split_once('.')?;
    Some(Ok(JoinConfiguration {
        token_id: id.to_owned(),
        token_secret: secret.to_owned(),
        ca_hashes: Vec::new(),
        node: host(vm, seed),
        // As the documentation wants of such an image.
        taints: vec![json!({"key": STARTUP_TAINT, "value": "", "effect": "NoSchedule"})],
        kubelet_args: Vec::new(),
        cri_socket: "unix:///run/containerd/containerd.sock".to_owned(),
        kubelet: Value::Null,
    }))
}

/// The guest's host name: by its drive, by its SMBIOS serial, or by what its image does (cloud-init and PVE's own drive).
fn host(vm: &GuestVm, seed: Option<&Files>) -> String {
    let meta = seed.and_then(|files| files.get("meta-data"));
    let meta = meta.and_then(|text| serde_saphyr::from_str::<Value>(text).ok());
    let of_drive = meta.and_then(|meta| meta["local-hostname"].as_str().map(str::to_owned));
    let words = vm.serial.strip_prefix(SERIAL).unwrap_or_default();
    let of_serial = words.split(';').find_map(|word| word.strip_prefix("h="));
    of_drive
        .or(of_serial.map(str::to_owned))
        .unwrap_or_else(|| vm.name.clone())
}

/// A worker's machine configuration.
fn talos(files: &Files, host: &str) -> Result<JoinConfiguration, String> {
    let text = files.get("user-data").map_or("", String::as_str);
    let documents = text.split("\n---");
    let mut all = documents.filter_map(|text| serde_saphyr::from_str::<Value>(text).ok());
    let whole = all.find(|document| document.get("machine").is_some());
    let whole = whole.ok_or("failed to load config: no machine in it")?;
    let (machine, cluster) = (&whole["machine"], &whole["cluster"]);
    let keys = machine.as_object().into_iter().flatten();
    for (key, _) in keys {
        if !MACHINE.contains(&key.as_str()) {
            return Err(format!(
                "failed to load config: unknown keys found during decoding: machine: {key}"
            ));
        }
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if text(&machine["type"]) != "worker" {
        return Err("this is no worker's configuration".to_owned());
    }
    let endpoint = text(&cluster["controlPlane"]["endpoint"]);
    if text(&machine["token"]).is_empty() || !endpoint.starts_with("https://") {
        return Err("failed to validate config: token and controlPlane.endpoint".to_owned());
    }
    let token = text(&cluster["token"]);
    let (id, secret) = token.split_once('.').ok_or("cluster.token is no token")?;
    let labels = machine["nodeLabels"].as_object().into_iter().flatten();
    let labels: Vec<String> = labels
        .map(|(key, value)| format!("{key}={}", text(value)))
        .collect();
    let kubelet = &machine["kubelet"];
    let args = kubelet["extraArgs"].as_object().into_iter().flatten();
    let mut args: Vec<(String, String)> = args
        .map(|(key, value)| (key.clone(), text(value)))
        .collect();
    args.push(("node-labels".to_owned(), labels.join(",")));
    let mut own = kubelet["extraConfig"].clone();
    let taints = own
        .as_object_mut()
        .and_then(|own| own.remove("registerWithTaints"));
    let taints = taints.unwrap_or_else(|| json!([]));
    let name = text(&machine["network"]["hostname"]);
    let join = JoinConfiguration {
        token_id: id.to_owned(),
        token_secret: secret.to_owned(),
        ca_hashes: Vec::new(),
        node: if name.is_empty() {
            host.to_owned()
        } else {
            name
        },
        taints: taints.as_array().cloned().unwrap_or_default(),
        kubelet_args: args,
        cri_socket: "unix:///run/containerd/containerd.sock".to_owned(),
        kubelet: own,
    };
    match config::refusal(&join) {
        Some(why) => Err(format!("service[kubelet](Failed): {why}")),
        None => Ok(join),
    }
}
