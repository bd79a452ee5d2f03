//! cloud-init's first boot from a NoCloud drive, as far as simulated guests have one: the drive's files are read, its user data and
//! network configuration looked at, and the script for the first boot found in its vendor data.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::GuestSpec;
use super::payload::{self, WrittenPayload};

/// The files of a drive by their names.
pub(super) type Files = BTreeMap<String, String>;

/// A sector.
const SECTOR: usize = 2048;
/// The first line of our scripts.
const MARK: &str = "# pve-autoscaler guest script: first-boot";

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let four: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(four)).ok()
}

/// The files in the root of an ISO's Joliet directory, if its label is one that cloud-init looks for.
pub(super) fn files(image: &[u8]) -> Option<Files> {
    let primary = image.get(16 * SECTOR..17 * SECTOR)?;
    let joliet = image.get(17 * SECTOR..18 * SECTOR)?;
    let label = String::from_utf8_lossy(&primary[40..72])
        .trim()
        .to_lowercase();
    let whole = number(primary, 80)? * SECTOR == image.len();
    if !primary.starts_with(b"\x01CD001")
        || !joliet.starts_with(b"\x02CD001")
        || label != "cidata"
        || !whole
    {
        return None;
    }
    let (root, length) = (number(joliet, 156 + 2)?, number(joliet, 156 + 10)?);
    let directory = image.get(root * SECTOR..root * SECTOR + length)?;
    let mut files = Files::new();
    let mut at = 0;
    while let Some(size) = directory.get(at).copied().filter(|size| *size > 0) {
        let record = directory.get(at..at + usize::from(size))?;
        at += usize::from(size);
        let name = record.get(33..33 + usize::from(record[32]))?;
        if name.len() < 2 {
            continue;
        }
        let name: Vec<u16> = name
            .chunks(2)
            .map(|two| u16::from_be_bytes([two[0], two[1]]))
            .collect();
        let (from, length) = (number(record, 2)? * SECTOR, number(record, 10)?);
        let content = image.get(from..from + length)?;
        let text = String::from_utf8(content.to_vec()).ok()?;
        files.insert(String::from_utf16(&name).ok()?, text);
    }
    Some(files)
}

/// Which instance a drive makes of a disk.
pub(super) fn instance(files: &Files) -> String {
    let meta = files.get("meta-data").map_or("", String::as_str);
    let meta: Value = serde_saphyr::from_str(meta).unwrap_or_default();
    meta["instance-id"].as_str().unwrap_or_default().to_owned()
}

/// What the first boot runs: a join, nothing, or an error of cloud-init's or the script's.
pub(super) fn script(files: &Files, spec: &GuestSpec) -> Result<Option<WrittenPayload>, String> {
    let user = files.get("user-data").map_or("", String::as_str);
    if let Some(text) = user.strip_prefix("#cloud-config\n") {
        let read: Result<Value, _> = serde_saphyr::from_str(text);
        read.map_err(|error| format!("user-data: {error}"))?;
    }
    if let Some(network) = files.get("network-config") {
        let read: Value = serde_saphyr::from_str(network).map_err(|error| error.to_string())?;
        if read["version"].as_i64().is_none() {
            return Err("network-config has no version".to_owned());
        }
    }
    let vendor = files.get("vendor-data").map_or("", String::as_str);
    let scripts = parts(vendor);
    let Some(script) = scripts.iter().find(|text| text.contains(MARK)) else {
        return Ok(None);
    };
    if !script.contains("payload") {
        return Ok(None);
    }
    chosen(script, spec).map(Some)
}

/// The parts of a MIME message that are shell scripts.
fn parts(message: &str) -> Vec<String> {
    let boundary = message
        .lines()
        .next()
        .and_then(|line| line.split("boundary=\"").nth(1))
        .and_then(|rest| rest.strip_suffix('"'));
    let Some(boundary) = boundary else {
        return Vec::new();
    };
    let boundary = format!("--{boundary}");
    let parts = message.split(&boundary).map(|part| {
        let (head, body) = part.split_once("\n\n")?;
        let shell = head.contains("text/x-shellscript") && head.contains("base64");
        let body: String = body.chars().filter(|c| !c.is_whitespace()).collect();
        let bytes = STANDARD.decode(body).ok().filter(|_| shell)?;
        String::from_utf8(bytes).ok()
    });
    parts.flatten().collect()
}

/// The payload that the script hands to the join, by the version of the guest's program.
fn chosen(script: &str, spec: &GuestSpec) -> Result<WrittenPayload, String> {
    let line = |begin: &str| script.lines().find_map(|line| line.strip_prefix(begin));
    let version = match line("program=") {
        None => "v1.0.0",
        Some("kubeadm") => &spec.kubeadm,
        Some("k3s") => &spec.k3s,
        Some(_) => &spec.rke2,
    };
    let minor = version
        .split('.')
        .nth(1)
        .and_then(|minor| minor.parse::<u32>().ok());
    let minor = minor.ok_or("error: the guest has no such program")?;
    let minor = if line("program=").is_none() { 0 } else { minor };
    let from = |line: &str| -> Option<u32> {
        let rest = line.trim().split("\"$minor\" -ge ").nth(1)?;
        rest.split(' ').next()?.parse().ok()
    };
    let mut lines = script.lines();
    while let Some(line) = lines.next() {
        if from(line).is_some_and(|least| minor >= least) {
            let text = lines.next().unwrap_or_default();
            let end = text
                .trim()
                .strip_prefix("cat <<'")
                .and_then(|end| end.strip_suffix('\''));
            let end = end.ok_or_else(|| text.trim().to_owned())?;
            let payload: Vec<&str> = lines.take_while(|line| *line != end).collect();
            return payload::read(payload.join("\n").as_bytes());
        }
    }
    Err("error: the version is too old".to_owned())
}
