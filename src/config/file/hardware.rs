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

/// How QEMU reads and writes a disk's file or device on its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiskAio {
    /// By the kernel's `io_uring`: PVE's default on most storages.
    IoUring,
    /// By the kernel's older `io_submit`; with `cache` `none` or `directsync` alone.
    Native,
    /// By threads of QEMU's own.
    Threads,
}

impl DiskAio {
    /// As PVE writes it.
    pub(crate) fn called(self) -> &'static str {
        match self {
            DiskAio::IoUring => "io_uring",
            DiskAio::Native => "native",
            DiskAio::Threads => "threads",
        }
    }
}

/// Options and limits of the disk that machines boot from. What is not said stays as the template has it, or with `[template.NAME.create]` as
/// PVE has it, but for `discard` and, under `virtio-scsi-single`, `iothread`, which are on there. Machines that are there stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DiskOptions {
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
    /// How it is read and written on its host. Default: PVE's, by the storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aio: Option<DiskAio>,
    /// Whether backups of the VM have it. Default: PVE's, they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<bool>,
    /// How much is read at most, in MB a second, which are 1,048,576 bytes to PVE. Default: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub mbps_rd: Option<u32>,
    /// How much is written at most, in MB a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub mbps_wr: Option<u32>,
    /// How often is read at most, in operations a second. Default: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub iops_rd: Option<u32>,
    /// How often is written at most, in operations a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub iops_wr: Option<u32>,
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
    /// How it is read and written on its host. Default: PVE's, by the storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aio: Option<DiskAio>,
    /// Whether backups of the VM have it. Default: PVE's, they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<bool>,
    /// How much is read at most, in MB a second, which are 1,048,576 bytes to PVE. Default: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub mbps_rd: Option<u32>,
    /// How much is written at most, in MB a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub mbps_wr: Option<u32>,
    /// How often is read at most, in operations a second. Default: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub iops_rd: Option<u32>,
    /// How often is written at most, in operations a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub iops_wr: Option<u32>,
}

impl FurtherDisk {
    /// Its options and limits.
    pub(crate) fn options(&self) -> DiskOptions {
        DiskOptions {
            iothread: self.iothread,
            ssd: self.ssd,
            discard: self.discard,
            cache: self.cache,
            aio: self.aio,
            backup: self.backup,
            mbps_rd: self.mbps_rd,
            mbps_wr: self.mbps_wr,
            iops_rd: self.iops_rd,
            iops_wr: self.iops_wr,
        }
    }
}
