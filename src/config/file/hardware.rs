//! What `[template.NAME]` says of its machines' hardware: how they start, network cards, further disks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::scalar::{Duration, Size};
use crate::config::storage_names::StorageNames;

/// What a network card looks like to its guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NicModel {
    /// Paravirtualised: the fastest.
    Virtio,
    /// Intel's of 2004.
    E1000,
    /// Intel's of 2008.
    E1000e,
    /// Realtek's.
    Rtl8139,
    /// VMware's.
    Vmxnet3,
}

impl NicModel {
    /// As PVE writes it.
    pub(crate) fn called(self) -> &'static str {
        match self {
            NicModel::Virtio => "virtio",
            NicModel::E1000 => "e1000",
            NicModel::E1000e => "e1000e",
            NicModel::Rtl8139 => "rtl8139",
            NicModel::Vmxnet3 => "vmxnet3",
        }
    }
}

/// When PVE starts machines with their host and stops them with it, beside its other guests: PVE's *Start/Shutdown order*. A token
/// needs `Sys.Modify` on `/` to set it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Startup {
    /// Guests with a lower number start earlier and stop later; those without one come last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<u32>,
    /// PVE waits for so long after the start, in whole seconds, before the next guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<Duration>,
    /// A guest that has not shut down after this, in whole seconds, is stopped when its host goes down. Default: PVE's, three minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down: Option<Duration>,
}

/// How writes of a disk are kept by its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiskCache {
    /// Not: PVE's default.
    None,
    /// For reading.
    Writethrough,
    /// For reading and writing.
    Writeback,
    /// For reading and writing, and flushes are not waited for: a host that fails costs the disk.
    Unsafe,
    /// Neither, and each write is waited for.
    Directsync,
}

impl DiskCache {
    /// As PVE writes it.
    pub(crate) fn called(self) -> &'static str {
        match self {
            DiskCache::None => "none",
            DiskCache::Writethrough => "writethrough",
            DiskCache::Writeback => "writeback",
            DiskCache::Unsafe => "unsafe",
            DiskCache::Directsync => "directsync",
        }
    }
}

/// A further disk of machines, empty when they start: made with their first configuration, destroyed with the VM. It counts on its
/// storage before it is there. What partitions and mounts it is in the template or in cloud-init; pods' `ephemeral-storage` stays
/// that of the boot disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FurtherDisk {
    /// The disk's storage, on each host that makes such machines, or a list of storages: the disk is made on the first of it that the host
    /// has and that has room.
    pub storage: Option<StorageNames>,
    /// The disk's size, in whole GiB.
    pub size: Option<Size>,
    /// The disk's place: `scsi1` to `scsi7`, `virtio1` to `virtio7`, `sata1` to `sata5`; the template has nothing there. Default: `scsi1` for the
    /// first of the list, `scsi2` for the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// A thread of its own (`scsi` with the controller `virtio-scsi-single`, and `virtio`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iothread: Option<bool>,
    /// The guest sees an SSD (not with `virtio`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssd: Option<bool>,
    /// What the guest discards is given back to the storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discard: Option<bool>,
    /// How its host keeps writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<DiskCache>,
    /// Whether backups of the VM have it. Default: PVE's, they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<bool>,
}
