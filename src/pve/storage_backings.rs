//! What the volumes of storages lie in: two storages on one ZFS pool, or on one export, share its space.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::client::Client;
use super::encode::path;
use super::perl::Fields;
use super::transport::CallError;
use super::types::deadline;

impl Client {
    /// `GET /storage`: by storage, what its volumes lie in. PVE lists the storages that the caller may see; one whose definition does
    /// not tell is missing.
    pub async fn storage_backings(&self) -> Result<BTreeMap<Arc<str>, Arc<str>>, CallError> {
        let data = self
            .get("storages", path(&["storage"]), vec![], deadline::READ)
            .await?;
        Ok(read(&data))
    }
}

/// Reads the data of `GET /storage`.
pub(super) fn read(data: &Value) -> BTreeMap<Arc<str>, Arc<str>> {
    let definitions = data.as_array().into_iter().flatten().map(Fields::of);
    let told = definitions.filter_map(|definition| {
        let name = definition.text("storage")?;
        Some((name.into(), backing(definition)?.into()))
    });
    told.collect()
}

/// What the definition of a storage says that its volumes lie in. The keys are those of PVE's plugins (`PVE::Storage::*Plugin`,
/// `properties`).
fn backing(definition: Fields<'_>) -> Option<String> {
    let text = |key: &str| definition.text(key).filter(|text| !text.is_empty());
    let plugin = text("type")?;
    let place = match &*plugin {
        // Datasets of a pool share what is free in it.
        "zfspool" => format!("ZFS pool {}", zfs_pool(&text("pool")?)),
        "zfs" => format!(
            "ZFS pool {} of {}",
            zfs_pool(&text("pool")?),
            text("portal")?
        ),
        "lvm" => format!("volume group {}", text("vgname")?),
        "lvmthin" => format!("thin pool {}/{}", text("vgname")?, text("thinpool")?),
        // Without monitors it is the cluster of the hosts themselves, and without a pool it is `rbd`. Where data has a pool of its own
        // (erasure coding), disks take their space of that one, and PVE tells its numbers (`RBDPlugin.pm`, `status`).
        "rbd" => {
            let pool = text("data-pool").or_else(|| text("pool"));
            let pool = pool.unwrap_or_else(|| "rbd".to_owned());
            format!("Ceph pool {pool} {}", text("monhost").unwrap_or_default())
        }
        "cephfs" => {
            let name = text("fs-name").unwrap_or_default();
            format!("CephFS {name} {}", text("monhost").unwrap_or_default())
        }
        "nfs" => format!("export {}:{}", text("server")?, text("export")?),
        "cifs" => format!("share {}/{}", text("server")?, text("share")?),
        "iscsi" | "iscsidirect" => format!("target {} {}", text("portal")?, text("target")?),
        "dir" | "btrfs" => format!("directory {}", text("path")?.trim_end_matches('/')),
        _ => return None,
    };
    Some(place.trim_end().to_owned())
}

/// `rpool` of `rpool/data`.
fn zfs_pool(dataset: &str) -> &str {
    dataset.split('/').next().unwrap_or(dataset)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(definition: &Value) -> Option<String> {
        backing(Fields::of(definition))
    }

    #[test]
    fn storages_on_one_pool_export_or_directory_say_the_same() {
        let data =
            json!({ "storage": "vms", "type": "zfspool", "pool": "rpool/data", "sparse": 1 });
        let other = json!({ "storage": "more", "type": "zfspool", "pool": "rpool/more" });
        let bare = json!({ "storage": "bare", "type": "zfspool", "pool": "rpool" });
        assert_eq!(of(&data).as_deref(), Some("ZFS pool rpool"));
        assert_eq!(of(&data), of(&other));
        assert_eq!(of(&data), of(&bare));
        let tank = json!({ "storage": "tank", "type": "zfspool", "pool": "rpool2/data" });
        assert_ne!(of(&data), of(&tank));
        let thin = |pool: &str| json!({ "type": "lvmthin", "vgname": "pve", "thinpool": pool });
        assert_eq!(of(&thin("data")), of(&thin("data")));
        assert_ne!(of(&thin("data")), of(&thin("fast")));
        // The rest of the volume group is not the thin pool's.
        let thick = json!({ "type": "lvm", "vgname": "pve" });
        assert_ne!(of(&thin("data")), of(&thick));
        let dir = |path: &str| json!({ "type": "dir", "path": path });
        assert_eq!(of(&dir("/mnt/a/")), of(&dir("/mnt/a")));
        let nfs = |export: &str| json!({ "type": "nfs", "server": "nas", "export": export });
        assert_ne!(of(&nfs("/a")), of(&nfs("/b")));
        let own = json!({ "type": "rbd", "pool": "vms" });
        let far = json!({ "type": "rbd", "pool": "vms", "monhost": "10.0.0.1" });
        assert_ne!(of(&own), of(&far));
        // One for containers through the kernel and one in a namespace are the same pool; so are two whose data goes to one.
        let beside = json!({ "type": "rbd", "pool": "vms", "krbd": 1, "namespace": "k8s" });
        assert_eq!(of(&own), of(&beside));
        let coded =
            |pool: &str, data: &str| json!({ "type": "rbd", "pool": pool, "data-pool": data });
        assert_eq!(of(&coded("a", "vms")), of(&coded("b", "vms")));
        assert_eq!(of(&coded("a", "vms")), of(&own));
        assert_ne!(of(&coded("vms", "ec")), of(&own));
    }

    #[test]
    fn what_a_definition_does_not_tell_is_not_guessed() {
        for definition in [
            json!({ "type": "zfspool" }),
            json!({ "type": "zfspool", "pool": "" }),
            json!({ "type": "pbs", "server": "backup" }),
            json!({ "pool": "rpool" }),
            json!({ "type": "nfs", "server": "nas" }),
            json!("text"),
            json!(null),
        ] {
            assert_eq!(of(&definition), None, "{definition}");
        }
    }
}
