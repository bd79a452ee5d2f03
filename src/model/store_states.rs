//! What of hosts machines take beside shares of CPU and memory, in numbers: storages, PCI devices by PVE's mappings, CPUs of their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cpus::CpuSet;
use super::reasons::{HostRefused, StorageNote};

/// A storage in numbers, as disks of new machines find it: one that clones of a pool go to, or that disks of machines are on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StorageState {
    /// The storage's name in PVE.
    pub storage: Arc<str>,
    /// It is one and the same on all its hosts.
    pub shared: bool,
    /// The hosts that have it; one alone where it is not shared.
    pub hosts: Vec<Arc<str>>,
    /// Size in bytes; 0 when unknown.
    pub total: i64,
    /// Free bytes.
    pub free: i64,
    /// Bytes that disks of machines have there, grown to their full size. Where storages share their space, disks on the others too.
    pub promised: i64,
    /// The part of it in bytes that is not in use yet, of machines that are being made.
    pub coming: i64,
    /// Bytes that all may come to that is in use, together with the disks of machines in full (`storage_overcommit`); `None` where a
    /// disk takes its space when it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<i64>,
    /// Bytes that disks of new machines may still take, in the pool that leaves the least of it free; `None`: its size is not known, so
    /// nothing is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<i64>,
    /// The pools that have disks there or may get some.
    pub pools: BTreeMap<Arc<str>, StorageShare>,
    /// What keeps disks off it, and with which storages it shares its space.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The entries of `notes` with their codes and numbers, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes_details: Vec<StorageNote>,
}

impl StorageState {
    /// Whether something keeps disks of machines off it.
    pub fn is_in_want(&self) -> bool {
        self.notes_details.iter().any(StorageNote::is_in_the_way)
    }
}

/// What the machines of a pool have of a storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StorageShare {
    /// How many machines have disks there.
    pub machines: u32,
    /// Bytes of these disks, grown to their full size.
    pub promised: i64,
    /// Bytes that a new machine of the pool leaves free there (`min_free_storage`); 0: no such bound.
    pub min_free: i64,
}

/// The PCI devices of a mapping on one host, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceState {
    /// How many the mapping has there.
    pub has: u32,
    /// How many of them new machines can get. A device that is in two mappings, and taken of either, is free in none.
    pub free: u32,
    /// Our machines that have some of them, and how many.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub machines: BTreeMap<Arc<str>, u32>,
    /// Other guests that have some of them, by VMID, and how many.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub guests: BTreeMap<u32, u32>,
    /// Why none is given now, whatever is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What the note says, with its code and numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note_details: Option<HostRefused>,
}

/// The CPUs of one NUMA node of a host that machines can get for themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OwnCpuState {
    /// The NUMA node's CPUs.
    pub cpus: CpuSet,
    /// Those of them that no machine gets (`reserved` of the topology).
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub reserved: CpuSet,
    /// Those that new machines can get.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub free: CpuSet,
    /// Bytes of its memory that new machines can get beside them; `None`: the file does not say how much there is, so it is not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_memory: Option<i64>,
    /// Our machines that have some of them, planned ones too.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub machines: BTreeMap<Arc<str>, CpuSet>,
    /// Other guests whose affinity names some of them, by VMID.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub guests: BTreeMap<u32, CpuSet>,
    /// Why none is given now, whatever is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What the note says, with its code and numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note_details: Option<HostRefused>,
}

/// By region, host and number of the NUMA node the CPUs that machines can get for themselves.
pub type OwnCpuStates = BTreeMap<Arc<str>, BTreeMap<Arc<str>, BTreeMap<u16, OwnCpuState>>>;

/// By region, mapping and host the PCI devices that machines can get.
pub type DeviceStates = BTreeMap<Arc<str>, BTreeMap<Arc<str>, BTreeMap<Arc<str>, DeviceState>>>;

/// By region the storages of machines: a shared one under its name, any other under `HOST/NAME`.
pub type StorageStates = BTreeMap<Arc<str>, BTreeMap<Arc<str>, StorageState>>;
