//! ISOs for cloud-init: their names, which say whose they are, and the calls that bring them to a storage and take them away.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::calls::{host_path, pair, request};
use super::client::Client;
use super::encode::{hex, path};
use super::perl::Fields;
use super::transport::{CallError, HttpMethod};
use super::types::deadline;

/// What the ISOs' names begin with.
const STEM: &str = "pve-autoscaler-";
/// Characters of an image's hash in its name.
const MARKS: usize = 16;

/// The name of the ISO of a VM, which says which one it is: no two images have the same.
pub fn iso_name(vmid: u32, image: &[u8]) -> String {
    let text = hex(&Sha256::digest(image));
    format!("{STEM}{vmid}-{}.iso", &text[..MARKS])
}

/// Whose ISO a file is, by its name.
pub fn iso_owner(name: &str) -> Option<u32> {
    let rest = name.strip_prefix(STEM)?.strip_suffix(".iso")?;
    let (vmid, marks) = rest.split_once('-')?;
    let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let plain = !vmid.starts_with('0') && vmid.bytes().all(|byte| byte.is_ascii_digit());
    let right = marks.len() == MARKS && marks.bytes().all(hex) && plain;
    right.then(|| vmid.parse().ok())?
}

/// Storage and owner of a volume that is such an ISO: `STORAGE:iso/NAME`.
pub fn iso_volume(volume: &str) -> Option<(&str, u32)> {
    let (storage, name) = volume.split_once(":iso/")?;
    Some((storage, iso_owner(name)?))
}

/// Reads the ISOs of ours in the data of `GET /nodes/{node}/storage/{storage}/content`.
pub(super) fn read(data: &Value) -> BTreeMap<String, usize> {
    let entries = data.as_array().into_iter().flatten().map(Fields::of);
    let isos = entries.filter_map(|entry| {
        let volume = entry
            .text("volid")
            .filter(|volume| iso_volume(volume).is_some())?;
        Some((volume, usize::try_from(entry.integer("size")?).ok()?))
    });
    isos.collect()
}

impl Client {
    /// `GET /nodes/{host}/storage/{storage}/content?content=iso`: the ISOs of ours there, by volume, with their sizes in bytes. The
    /// broker tells of no others.
    pub async fn isos(
        &self,
        host: &str,
        storage: &str,
    ) -> Result<BTreeMap<String, usize>, CallError> {
        let at = host_path(host, &["storage", storage, "content"])?;
        let iso = vec![pair("content", "iso")];
        let data = self.get("isos", at, iso, deadline::READ_HOST).await?;
        Ok(read(&data))
    }

    /// `GET /nodes/{node}/storage/{storage}/content` for `content`, `iso` or `import`: the volumes there. The broker tells of ours and of
    /// those that the configuration names.
    pub async fn files(
        &self,
        host: &str,
        storage: &str,
        content: &str,
    ) -> Result<BTreeSet<String>, CallError> {
        let at = host_path(host, &["storage", storage, "content"])?;
        let params = vec![pair("content", content)];
        let data = self.get("isos", at, params, deadline::READ_HOST).await?;
        let entries = data.as_array().into_iter().flatten().map(Fields::of);
        Ok(entries.filter_map(|entry| entry.text("volid")).collect())
    }

    /// `POST /nodes/{host}/storage/{storage}/upload`: an ISO comes to the storage, in a task of PVE's that copies it there. It is
    /// whole when [`Client::isos`] shows its size.
    pub async fn upload_iso(
        &self,
        host: &str,
        storage: &str,
        name: &str,
        image: &[u8],
    ) -> Result<(), CallError> {
        let at = host_path(host, &["storage", storage, "upload"])?;
        let params = vec![
            pair("content", "iso"),
            pair("filename", name),
            pair("file", STANDARD.encode(image)),
        ];
        let mut request = request("upload_iso", HttpMethod::Post, at, params, deadline::CHANGE);
        request.multipart = true;
        self.send(request).await.map(drop)
    }

    /// `DELETE /nodes/{host}/storage/{storage}/content/{volume}`, in a task of PVE's. It is gone when [`Client::isos`] does not show
    /// it.
    pub async fn remove_iso(&self, host: &str, volume: &str) -> Result<(), CallError> {
        let (storage, name) = volume.split_once(":iso/").unwrap_or((volume, ""));
        // PVE takes what follows as one name, with its slash.
        let iso = format!("{storage}:iso");
        let at = host_path(host, &["storage", storage, "content"])? + &path(&[&iso, name]);
        let request = request(
            "remove_iso",
            HttpMethod::Delete,
            at,
            vec![],
            deadline::CHANGE,
        );
        self.send(request).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_whose_it_is_and_which() {
        let name = iso_name(9001, b"x");
        assert_eq!(name, "pve-autoscaler-9001-2d711642b726b044.iso");
        assert_eq!(iso_owner(&name), Some(9001));
        assert_ne!(iso_name(9001, b"y"), name);
        let volume = format!("local:iso/{name}");
        assert_eq!(iso_volume(&volume), Some(("local", 9001)));
        for other in [
            "pve-autoscaler-9001.iso",
            "pve-autoscaler-09001-2d711642b726b044.iso",
            "pve-autoscaler-9001-2d711642b726b04.iso",
            "pve-autoscaler-9001-2D711642B726B044.iso",
            "pve-autoscaler-9001-2d711642b726b044.img",
            "pve-autoscaler-+9001-2d711642b726b044.iso",
            "pve-autoscaler--2d711642b726b044.iso",
            "x/../pve-autoscaler-9001-2d711642b726b044.iso",
            "debian-13.iso",
        ] {
            assert_eq!(iso_owner(other), None, "{other}");
        }
    }
}
