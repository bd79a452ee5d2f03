//! What cloud-init is told, as files and as the ISO that carries them (its NoCloud data source). Pure.
//!
//! Where the configuration gives no text, the files say what PVE's own drive would (qemu-server `PVE/QemuServer/Cloudinit.pm`).

pub mod first_boot;
mod iso;
mod network;
#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::config::cloud_init::{self, CloudInitKind, GapValues};
use crate::config::settings::CloudInitSettings;
use crate::controller::secret_file;
use crate::model::facts::Facts;
use crate::model::scheduling::Labels;
use crate::pve::VmConfig;

pub use network::nics;

/// The label by which cloud-init knows its drive.
const LABEL: &str = "cidata";
/// Between the parts of vendor data; no line of base64 looks like it.
const BOUNDARY: &str = "==pve-autoscaler==";
/// Characters of the hash that tells a machine's data from others.
const MARKS: usize = 16;

fn marks(of: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in of {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part);
    }
    let mut text = crate::pve::hex(&hash.finalize());
    text.truncate(MARKS);
    text
}

/// All that goes into a machine's files.
#[derive(Debug)]
pub struct NocloudInput<'a> {
    /// What the configuration says.
    pub texts: &'a CloudInitSettings,
    /// Packages are upgraded.
    pub upgrade: bool,
    /// The machine.
    pub facts: Facts<'a>,
    /// What else its texts may name.
    pub words: &'a GapValues,
    /// The VM's SMBIOS UUID.
    pub uuid: &'a str,
    /// Talos' machine configuration, with gaps, in place of user and vendor data. It is a secret.
    pub machine_config: Option<&'a SecretString>,
    /// The script that joins it, if cloud-init is to do that. It holds a secret.
    pub first_boot: Option<&'a SecretString>,
}

/// Talos' machine configuration out of the file that the configuration names.
///
/// # Errors
/// What is wrong with the file, and what to do; never what stands in it.
pub fn read_machine_config(path: &std::path::Path) -> Result<SecretString, String> {
    let most = u64::try_from(cloud_init::LONGEST).unwrap_or(u64::MAX);
    secret_file::read_as("cloud_init.machine_config_file", path, most)
}

/// What a VM's configuration says to cloud-init.
pub fn words(config: &VmConfig, zone: &str) -> GapValues {
    let text = |key: &str| config.raw.get(key).cloned().unwrap_or_default();
    let list = |key: &str| -> Vec<String> {
        let text = text(key);
        let items = text.split([' ', ',', ';']).filter(|item| !item.is_empty());
        items.map(str::to_owned).collect()
    };
    let keys = crate::pve::decoded(&text("sshkeys"));
    let keys = keys.lines().map(str::trim).filter(|key| !key.is_empty());
    GapValues {
        zone: zone.to_owned(),
        nics: nics(config),
        nameservers: list("nameserver"),
        searchdomain: text("searchdomain"),
        user: text("ciuser"),
        labels: Labels::new(),
        taints: Vec::new(),
        provider_id: String::new(),
        ssh_keys: keys.map(str::to_owned).collect(),
    }
}

/// The image for a machine. It may hold a secret.
///
/// # Errors
/// A text of the configuration cannot be filled in for this machine.
pub fn image(told: &NocloudInput<'_>) -> Result<Vec<u8>, String> {
    let (facts, words) = (&told.facts, told.words);
    let filled = |kind, key: &str, text: &Option<String>| {
        let text = text.as_ref();
        text.map(|text| cloud_init::filled(kind, text, facts, words))
            .transpose()
            .map_err(|why| format!("cloud_init.{key}: {why}"))
    };
    let texts = told.texts;
    let (user, vendor) = if let Some(config) = told.machine_config {
        // Talos looks for no vendor data.
        let machine =
            cloud_init::filled(CloudInitKind::Machine, config.expose_secret(), facts, words);
        let machine = machine.map_err(|why| format!("cloud_init.machine_config_file: {why}"))?;
        (machine, None)
    } else {
        let user = filled(CloudInitKind::User, "user_data", &texts.user_data)?;
        let user = user.unwrap_or_else(|| user_data(told));
        let vendor = filled(CloudInitKind::Vendor, "vendor_data", &texts.vendor_data)?;
        (user, Some(vendor_data(vendor.as_deref(), told.first_boot)))
    };
    let network = filled(
        CloudInitKind::Network,
        "network_config",
        &texts.network_config,
    )?;
    let network = network
        .or_else(|| network::config(words))
        .unwrap_or_default();
    let vendor = vendor.unwrap_or_default();
    let parts = [&*user, &*vendor, &*network].map(str::as_bytes);
    // Other data are another first boot, also on a disk that has had one.
    let instance = format!("{}-{}", told.uuid, marks(&parts));
    let meta = json!({"instance-id": instance, "local-hostname": facts.machine}).to_string();
    let mut files: Vec<(&str, &[u8])> = vec![("meta-data", meta.as_bytes())];
    if !network.is_empty() {
        files.push(("network-config", network.as_bytes()));
    }
    files.push(("user-data", user.as_bytes()));
    if !vendor.is_empty() {
        files.push(("vendor-data", vendor.as_bytes()));
    }
    iso::image(LABEL, &files).ok_or_else(|| "the ISO for cloud-init cannot be made".to_owned())
}

/// What PVE would write.
fn user_data(told: &NocloudInput<'_>) -> String {
    let (facts, words) = (&told.facts, told.words);
    let mut all = Map::new();
    let mut put = |key: &str, value: Value| drop(all.insert(key.to_owned(), value));
    put("hostname", json!(facts.machine));
    put("manage_etc_hosts", json!(true));
    if !words.searchdomain.is_empty() {
        let name = format!("{}.{}", facts.machine, words.searchdomain);
        put("fqdn", json!(name));
    }
    if !words.user.is_empty() {
        put("user", json!(words.user));
    }
    if words.user == "root" {
        put("disable_root", json!(false));
    } else {
        put("users", json!(["default"]));
    }
    if !words.ssh_keys.is_empty() {
        put("ssh_authorized_keys", json!(words.ssh_keys));
    }
    put("chpasswd", json!({"expire": false}));
    put("package_upgrade", json!(told.upgrade));
    format!("#cloud-config\n{}\n", Value::Object(all))
}

/// What a person gives, and our script, as parts of a MIME message: cloud-init sees by itself what the first one is.
fn vendor_data(given: Option<&str>, script: Option<&SecretString>) -> String {
    let script = script.map_or(first_boot::ONCE, |script| script.expose_secret());
    let given = given.map(|text| ("plain", "vendor-data", text));
    let own = ("x-shellscript", "pve-autoscaler-first-boot", script);
    let parts = given.into_iter().chain([own]);
    let parts = parts.map(|(kind, name, text)| {
        let lines = STANDARD.encode(text);
        let lines: Vec<&str> = (0..lines.len())
            .step_by(76)
            .map(|from| &lines[from..lines.len().min(from + 76)])
            .collect();
        format!(
            "--{BOUNDARY}\nContent-Type: text/{kind}; charset=\"utf-8\"\nMIME-Version: 1.0\nContent-Transfer-Encoding: base64\nContent-Disposition: attachment; filename=\"{name}\"\n\n{}\n\n",
            lines.join("\n")
        )
    });
    let parts: String = parts.collect();
    format!(
        "Content-Type: multipart/mixed; boundary=\"{BOUNDARY}\"\nMIME-Version: 1.0\n\n{parts}--{BOUNDARY}--\n"
    )
}
