//! What the broker may let pass, as far as it follows from the file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use super::new_vm::NewVm;
use super::settings::NetworkSettings;
use super::vm_options::VmOptions;
use crate::model::pci::PciDevice;
use crate::model::time::Span;
use crate::model::topology::{Pinning, Topologies};

/// What the broker lets the daemon do, all from the root-owned file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BrokerAllow {
    /// First and last VMID.
    pub vmids: Vec<(u32, u32)>,
    /// Template VMIDs that may be cloned; empty with `template_names` for look-up by name.
    pub template_vmids: Vec<u32>,
    /// Template names that may be cloned.
    pub template_names: Vec<String>,
    /// Templates that may be cloned by their tags, of which each has all of one list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub template_tags: Vec<Vec<String>>,
    /// Storages that clones and disks may be on; the template's own always.
    pub storages: Vec<String>,
    /// Storages that ISOs for cloud-init may come to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub iso_storages: Vec<String>,
    /// The region whose name is in the names of those ISOs, with the cluster's; `None` where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iso_region: Option<String>,
    /// Bridges that NICs may be on.
    pub bridges: Vec<String>,
    /// PVE resource pools that clones may be put in.
    pub resource_pools: Vec<String>,
    /// The PVE resource pools that machines are moved to, by the name of their template in the file.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub template_pools: BTreeMap<String, String>,
    /// The security groups that machines' network cards get, by the name of their template in the file: group and card.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub template_groups: BTreeMap<String, Vec<(String, u8)>>,
    /// Templates of the file whose machines' firewalls may be switched on.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub template_firewalls: BTreeSet<String>,
    /// PVE's options that machines' VMs get, by the name of their template in the file.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub template_options: BTreeMap<String, VmOptions>,
    /// Options and limits that the boot disks of machines get, by the name of their template in the file, and the disk if the file names it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub template_boot_disks: BTreeMap<String, BootDiskAllow>,
    /// What VMs may be made of without a template to clone, by the name of the template in the file.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub new_vms: BTreeMap<String, Arc<NewVm>>,
    /// Largest cores, memory (bytes) and disk (bytes) of any instance type.
    pub max_cores: u32,
    /// Largest memory in bytes.
    pub max_memory: i64,
    /// Largest disk in bytes.
    pub max_disk: i64,
    /// What each pool may have, by its name.
    pub pools: BTreeMap<String, PoolAllow>,
    /// Sizes of the pools' instance types, by name.
    pub types: BTreeMap<String, TypeAllow>,
    /// Machines of all pools at most.
    pub max_machines: Option<u32>,
    /// CPU of all pools' machines at most, in thousandths of a core.
    pub max_cpu_milli: Option<i64>,
    /// Memory of all pools' machines at most, in bytes.
    pub max_memory_total: Option<i64>,
    /// Second part of the cluster ids that a clone's mark may carry.
    pub cluster_name: String,
    /// Networks that pools use, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub networks: BTreeMap<String, NetworkSettings>,
    /// What hosts' CPUs are to each other, as far as the file says.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub topologies: Topologies,
    /// A locked, markless placeholder may be destroyed only this long after its clone was asked for.
    pub quarantine: Span,
}

/// What of the disk that a template's machines boot from may be written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BootDiskAllow {
    /// The disk; found by the boot order when absent.
    pub slot: Option<String>,
    /// Options and limits by PVE's names.
    pub options: BTreeMap<String, String>,
}

/// What a pool may have through the broker.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PoolAllow {
    /// Machines at most.
    pub max: u32,
    /// CPU of its machines at most, in thousandths of a core.
    pub max_cpu_milli: Option<i64>,
    /// Memory of its machines at most, in bytes.
    pub max_memory: Option<i64>,
    /// Names of the instance types that its machines may have.
    pub types: Vec<String>,
    /// Names of the networks that give its machines addresses, by the number of the network card.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub networks: BTreeMap<u8, String>,
    /// Hosts that its machines may be on; empty for all.
    pub hosts: Vec<String>,
    /// Hosts that they may not be on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude_hosts: Vec<String>,
    /// VMID of its template.
    pub template_vmid: Option<u32>,
    /// VM name of its template.
    pub template_name: Option<String>,
    /// Tags of its template.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub template_tags: Vec<String>,
    /// The name of its template in the file, where its VMs are made of settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_vm: Option<String>,
    /// Further disks that its machines get, by their places: what is written to PVE, for each storage that the disk may lie on.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub disks: BTreeMap<String, BTreeSet<String>>,
    /// What its machines have of their host's CPUs and memory for themselves.
    #[serde(skip_serializing_if = "is_default")]
    pub pinning: Pinning,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The size of an instance type.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TypeAllow {
    /// Cores.
    pub cores: u32,
    /// Memory in bytes.
    pub memory: i64,
    /// Disk in bytes; 0 leaves it as the template has it.
    pub disk: i64,
    /// PCI devices that such a machine gets, `hostpci0` and so on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pci: Vec<PciDevice>,
}
