//! What the join script of the guest protocol reads: files, and a script to run.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The files that were written, by path, and what is to be run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WrittenPayload {
    pub(super) files: BTreeMap<String, String>,
    pub(super) script: String,
}

/// Reads the lines as the script does; the error is what it writes to stderr.
pub(super) fn read(stdin: &[u8]) -> Result<WrittenPayload, String> {
    let text = std::str::from_utf8(stdin).map_err(|_| "cannot do: binary".to_owned())?;
    let decoded = |text: &str| {
        let bytes = STANDARD.decode(text).ok()?;
        String::from_utf8(bytes).ok()
    };
    let mut payload = WrittenPayload::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let done = match words[..] {
            ["file", mode, path, content] if mode.starts_with('0') && path.starts_with('/') => {
                decoded(content).map(|content| drop(payload.files.insert(path.to_owned(), content)))
            }
            ["run", script] => decoded(script).map(|script| payload.script = script),
            _ => None,
        };
        done.ok_or_else(|| format!("cannot do: {}", words[0]))?;
    }
    if payload.script.is_empty() {
        return Err("there is nothing to run".to_owned());
    }
    Ok(payload)
}

/// The payload of a `kubeadm join` with this configuration.
#[cfg(test)]
pub(in crate::sim) fn of_kubeadm(configuration: &serde_json::Value) -> Vec<u8> {
    let configuration = STANDARD.encode(configuration.to_string());
    let script = STANDARD.encode("kubeadm join --config /run/pve-autoscaler/files/join.json\n");
    let path = "/run/pve-autoscaler/files/join.json";
    format!("file 0600 {path} {configuration}\nrun {script}\n").into_bytes()
}
