//! The types of storages and the rules of each: what they may hold, whether all hosts share them, the names and formats of their
//! volumes, and what a clone can be linked to (`PVE::Storage::*Plugin` of pve-storage 9.1.7: `plugindata`, `parse_volname`,
//! `clone_image`, `volume_has_feature`).

use serde::{Deserialize, Serialize};

use super::schema::split;
use super::spec::StorageSpec;

/// What kind of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StorageKind {
    /// Files in a directory (qcow2).
    Dir,
    /// Files on a network file system (qcow2).
    Nfs,
    /// Subvolumes of BTRFS (raw). A linked clone is a snapshot and needs its base no more.
    Btrfs,
    /// Files on CephFS, which holds no disks of VMs.
    CephFs,
    /// Thin logical volumes (raw).
    LvmThin,
    /// Logical volumes (raw), which no clone is linked to.
    Lvm,
    /// ZFS volumes (raw).
    ZfsPool,
    /// ZFS volumes of another machine, over iSCSI (raw).
    Zfs,
    /// LUNs of a target (raw), which PVE uses as they are: it makes and removes none.
    Iscsi,
    /// Images of a Ceph pool (raw), thin.
    Rbd,
    /// A Proxmox Backup Server, which holds backups alone.
    Pbs,
}

impl StorageKind {
    /// Whether its volumes are block devices, without files or formats.
    pub fn is_block(self) -> bool {
        self.is_zfs()
            || matches!(
                self,
                StorageKind::LvmThin | StorageKind::Lvm | StorageKind::Rbd | StorageKind::Iscsi
            )
    }

    /// Whether files can be put on it: its definition has a `path`.
    pub(super) fn has_files(self) -> bool {
        !self.is_block() && self != StorageKind::Pbs
    }

    /// Whether its volumes are those of ZFS.
    pub(super) fn is_zfs(self) -> bool {
        matches!(self, StorageKind::ZfsPool | StorageKind::Zfs)
    }

    /// Whether it is shared without being told so (`@SHARED_STORAGE` of Plugin.pm).
    fn is_always_shared(self) -> bool {
        matches!(
            self,
            StorageKind::Nfs
                | StorageKind::CephFs
                | StorageKind::Zfs
                | StorageKind::Iscsi
                | StorageKind::Rbd
                | StorageKind::Pbs
        )
    }

    /// PVE's name of the type.
    pub fn as_str(self) -> &'static str {
        match self {
            StorageKind::Dir => "dir",
            StorageKind::Nfs => "nfs",
            StorageKind::Btrfs => "btrfs",
            StorageKind::CephFs => "cephfs",
            StorageKind::LvmThin => "lvmthin",
            StorageKind::Lvm => "lvm",
            StorageKind::ZfsPool => "zfspool",
            StorageKind::Zfs => "zfs",
            StorageKind::Iscsi => "iscsi",
            StorageKind::Rbd => "rbd",
            StorageKind::Pbs => "pbs",
        }
    }

    /// The content that it may be used for.
    fn contents(self) -> &'static [&'static str] {
        match self {
            StorageKind::Dir | StorageKind::Btrfs => &[
                "images", "rootdir", "vztmpl", "iso", "backup", "snippets", "none", "import",
            ],
            StorageKind::Nfs => &[
                "images", "rootdir", "vztmpl", "iso", "backup", "snippets", "import",
            ],
            StorageKind::CephFs => &["vztmpl", "iso", "backup", "snippets", "import"],
            StorageKind::LvmThin | StorageKind::Lvm | StorageKind::ZfsPool | StorageKind::Rbd => {
                &["images", "rootdir"]
            }
            StorageKind::Zfs => &["images"],
            StorageKind::Iscsi => &["images", "none"],
            StorageKind::Pbs => &["backup", "none"],
        }
    }

    /// The content that it is used for when nothing valid is written.
    fn default_content(self) -> &'static str {
        match self {
            StorageKind::CephFs | StorageKind::Pbs => "backup",
            StorageKind::Dir | StorageKind::Btrfs | StorageKind::LvmThin | StorageKind::ZfsPool => {
                "images,rootdir"
            }
            StorageKind::Nfs
            | StorageKind::Lvm
            | StorageKind::Zfs
            | StorageKind::Iscsi
            | StorageKind::Rbd => "images",
        }
    }

    /// The format of a disk on it.
    pub(super) fn format(self) -> &'static str {
        match self {
            StorageKind::Dir | StorageKind::Nfs | StorageKind::CephFs => "qcow2",
            _ => "raw",
        }
    }

    /// The format of a cloud-init drive on it. A new one is qcow2 wherever there are files, though BTRFS has none of that format in its
    /// list; a copied one has a format of the list (qemu-server `API2/Qemu.pm`, `create_disks`, and `QemuServer.pm`, `clone_disk`).
    pub(super) fn cloudinit_format(self, copied: bool) -> &'static str {
        if self.has_files() && !copied {
            "qcow2"
        } else {
            self.format()
        }
    }

    /// Whether the name of a linked clone's volume has the base image in it. It is nowhere to be seen of thin logical volumes, and
    /// BTRFS needs the base no more.
    pub(super) fn names_base(self) -> bool {
        !matches!(self, StorageKind::LvmThin | StorageKind::Btrfs)
    }

    /// Whether `qm template` makes base images of its volumes (feature `template`); elsewhere they keep their names.
    pub(super) fn has_bases(self) -> bool {
        !matches!(self, StorageKind::Lvm | StorageKind::Iscsi)
    }

    /// Whether a clone can be linked to a volume (feature `clone`): to a base image alone, and on BTRFS to any raw one.
    pub(super) fn links_clones_to(self, volume: &str) -> bool {
        let name = volume.rsplit(['/', ':']).next().unwrap_or_default();
        match self {
            StorageKind::Lvm | StorageKind::Iscsi | StorageKind::Pbs => false,
            StorageKind::Btrfs if volume.rsplit('.').next() == Some("raw") => true,
            _ => name.starts_with("base-"),
        }
    }
}

impl StorageSpec {
    /// Reads the definition as PVE reads its file: content that the type cannot be used for is left out, with a warning in PVE's log
    /// ("storage does not support content type"; Plugin.pm, `decode_value`), and some types are shared whatever is written.
    pub(super) fn read_as_pve(&mut self) {
        self.shared |= self.kind.is_always_shared();
        let valid = self.kind.contents();
        let held: Vec<&str> = split(&self.content).collect();
        if held.iter().all(|one| valid.contains(one)) {
            return;
        }
        let kept: Vec<&str> = held.into_iter().filter(|one| valid.contains(one)).collect();
        self.content = if kept.is_empty() {
            self.kind.default_content().to_owned()
        } else {
            kept.join(",")
        };
    }
}
