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
/// Characters of its owner's hash.
const OWNER: usize = 12;

/// Whose machines' ISOs: those of one Kubernetes cluster in one region. Two PVE clusters may have one storage for ISOs and the same VMIDs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IsoOwner(String);

impl IsoOwner {
    /// The owner of the ISOs of a cluster, by its id as marks have it, in a region of its configuration.
    pub fn of(cluster: &str, region: &str) -> IsoOwner {
        let text = hex(&Sha256::digest(format!("{cluster}\n{region}")));
        IsoOwner(text[..OWNER].to_owned())
    }
}

/// What the name of an ISO says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsoFile {
    /// The machine's VM.
    pub vmid: u32,
    /// Whose machine it is. Older programs wrote names without: such an ISO may be anybody's.
    pub owner: Option<IsoOwner>,
}

impl IsoFile {
    /// What the name of a file says; `None` where it is no ISO of a machine's.
    pub fn named(name: &str) -> Option<IsoFile> {
        let rest = name.strip_prefix(STEM)?.strip_suffix(".iso")?;
        let mut parts = rest.split('-');
        let (vmid, second, third) = (parts.next()?, parts.next()?, parts.next());
        let (owner, marks) = match third {
            Some(third) => (Some(second), third),
            None => (None, second),
        };
        let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_hash = |text: &str, length| text.len() == length && text.bytes().all(hex);
        let plain = !vmid.starts_with('0') && vmid.bytes().all(|byte| byte.is_ascii_digit());
        let right = parts.next().is_none()
            && is_hash(marks, MARKS)
            && owner.is_none_or(|owner| is_hash(owner, OWNER))
            && plain;
        let vmid = vmid.parse().ok().filter(|_| right)?;
        let owner = owner.map(|owner| IsoOwner(owner.to_owned()));
        Some(IsoFile { vmid, owner })
    }

    /// Its name says that it is this owner's machine's.
    pub fn is_of(&self, owner: &IsoOwner, vmid: u32) -> bool {
        self.vmid == vmid && self.owner.as_ref() == Some(owner)
    }

    /// Its name says of this VMID alone that it is its, as older programs wrote it.
    pub fn may_be_of(&self, vmid: u32) -> bool {
        self.vmid == vmid && self.owner.is_none()
    }
}

/// The name of the ISO of a VM, which says whose it is, and which one: no two images have the same.
pub fn iso_name(owner: &IsoOwner, vmid: u32, image: &[u8]) -> String {
    let text = hex(&Sha256::digest(image));
    format!("{STEM}{vmid}-{}-{}.iso", owner.0, &text[..MARKS])
}

/// Storage and name of a volume that is such an ISO: `STORAGE:iso/NAME`.
pub fn iso_volume(volume: &str) -> Option<(&str, IsoFile)> {
    let (storage, name) = volume.split_once(":iso/")?;
    Some((storage, IsoFile::named(name)?))
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

    const OWN: &str = "pve-autoscaler-9001-ace20a332e32-2d711642b726b044.iso";

    #[test]
    fn a_name_says_whose_it_is_and_which() {
        let owner = IsoOwner::of("0b5f3a6e/home", "default");
        let name = iso_name(&owner, 9001, b"x");
        assert_eq!(name, OWN);
        assert_ne!(iso_name(&owner, 9001, b"y"), name);
        let volume = format!("local:iso/{name}");
        let (storage, file) = iso_volume(&volume).expect("it is one");
        assert_eq!(storage, "local");
        assert!(file.is_of(&owner, 9001) && !file.is_of(&owner, 9002) && !file.may_be_of(9001));
        for (cluster, region) in [("0b5f3a6e/home", "west"), ("77777777/home", "default")] {
            let other = IsoOwner::of(cluster, region);
            assert!(!file.is_of(&other, 9001), "{cluster} {region}");
        }
        // As older programs wrote it.
        let old = IsoFile::named("pve-autoscaler-9001-2d711642b726b044.iso").expect("it is one");
        assert!(old.may_be_of(9001) && !old.is_of(&owner, 9001) && !old.may_be_of(9002));
        for other in [
            "pve-autoscaler-9001.iso",
            "pve-autoscaler-9001-0123456789ab-2d711642b726b044-00.iso",
            "pve-autoscaler-9001-0123456789a-2d711642b726b044.iso",
            "pve-autoscaler-9001--2d711642b726b044.iso",
            "pve-autoscaler-9001-0123456789aB-2d711642b726b044.iso",
            "pve-autoscaler-09001-2d711642b726b044.iso",
            "pve-autoscaler-9001-2d711642b726b04.iso",
            "pve-autoscaler-9001-2D711642B726B044.iso",
            "pve-autoscaler-9001-2d711642b726b044.img",
            "pve-autoscaler-+9001-2d711642b726b044.iso",
            "pve-autoscaler--2d711642b726b044.iso",
            "x/../pve-autoscaler-9001-2d711642b726b044.iso",
            "debian-13.iso",
        ] {
            assert_eq!(IsoFile::named(other), None, "{other}");
        }
    }
}
