//! Why no machine of a pool and type is made for a pod or a pool, or for a node that could be replaced.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::excess::{Excess, ExcessForm};
use super::filter_failure::FilterFailure;
use super::held::Hindrance;
use super::removal::Limit;
use crate::cluster::ObjectKey;
use crate::foreign::ForeignText;
use crate::hosts::LoadKind;
use crate::time::Time;

/// Refusals by `pool/type`, `pool/*` or `*`; shared between the pods of one shape.
pub type Reasons = Arc<BTreeMap<Arc<str>, Refusals>>;

/// Why a machine is not made, or was not chosen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum Refused {
    /// The pod would not run on it.
    #[serde(alias = "misfit")]
    FilterFailure {
        /// Why.
        #[serde(alias = "misfit")]
        filter_failure: Box<FilterFailure>,
    },
    /// Making machines is on hold, at all or in the region.
    Held {
        /// Why.
        hold: Arc<Hindrance>,
    },
    /// No pool is configured.
    NoPool,
    /// The pool has no instance type.
    NoInstanceType,
    /// The pool's `max`.
    PoolMax {
        /// Machines that it has, with those planned.
        machines: u64,
        /// The pool's `max`.
        max: u32,
        /// How many of these nodes are planned now.
        planned: u64,
    },
    /// `max_nodes_total`.
    NodesTotal {
        /// Nodes of the cluster, with those on their way.
        nodes: u64,
        /// `max_nodes_total`.
        max: u32,
    },
    /// The pool backs off after a failure.
    BacksOff {
        /// Until when.
        until: Time,
    },
    /// `max_in_flight`.
    InFlight {
        /// Machines that are being made.
        machines: u64,
        /// `max_in_flight`.
        max: u32,
    },
    /// The region has no free VMID in its range.
    NoVmid {
        /// The region.
        region: Arc<str>,
    },
    /// A network of the pool gives no address now.
    NetworkClosed {
        /// The network.
        network: Arc<str>,
        /// Whose addresses are not known.
        unknown: UnknownAddresses,
    },
    /// A network of the pool has too few free addresses for one more machine.
    NetworkFull {
        /// The network.
        network: Arc<str>,
        /// The ranges that are taken, as a person writes them; `None` where there are none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ranges: Option<Arc<str>>,
        /// How many of the addresses were in use when they were asked for on the wire; `None` where it is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        on_wire: Option<u64>,
    },
    /// No VMID is free.
    NoFreeVmid,
    /// No unused name was found.
    NoFreeName,
    /// A ceiling of the pool over CPU or memory of its VMs.
    PoolCeiling {
        /// What the limit is of: CPU or memory.
        of: Limit,
        /// Millicores or bytes that the VMs would have.
        would: i64,
        /// Millicores or bytes that they may have.
        max: i64,
    },
    /// A ceiling over CPU or memory of all VMs.
    ClusterCeiling {
        /// What the limit is of: CPU or memory.
        of: Limit,
        /// Millicores or bytes that the VMs would have.
        would: i64,
        /// Millicores or bytes that they may have.
        max: i64,
    },
    /// The region shows no host that the pool may use.
    NoHostShown {
        /// The region.
        region: Arc<str>,
        /// Hosts that it shows, where `hosts` and `exclude_hosts` leave none of them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        excluded: Vec<Arc<str>>,
    },
    /// No host of the region may be used.
    NoHost,
    /// A host takes no machine.
    Host {
        /// The host.
        host: Arc<str>,
        /// Why.
        refusal: HostRefused,
    },
    /// None of several hosts takes one.
    NoneOfHosts {
        /// How many hosts.
        hosts: usize,
        /// What the first of them say.
        first: Vec<Refused>,
    },
    /// Another type carries more for its price.
    CarriesLess {
        /// The other, as `pool/type`.
        winner: Arc<str>,
    },
    /// Another pool weighs more.
    WeighsLess {
        /// The other pool.
        pool: Arc<str>,
    },
    /// The plan is no cheaper with it.
    NotCheaper,
    /// Machines of it are for other pods of this plan.
    ForOtherPods,
    /// The pod has required affinity to a pod that has no place itself.
    TargetWaits {
        /// The other pod.
        pod: ObjectKey,
    },
    /// The pod has required affinity to a pod that goes to a machine of this plan, and does not fit there.
    TargetPlanned {
        /// The other pod.
        pod: ObjectKey,
        /// The machine.
        machine: Arc<str>,
    },
    /// The pod would not run on it, because of a pod of this plan.
    PlannedBeside {
        /// Why.
        #[serde(alias = "misfit")]
        filter_failure: Box<FilterFailure>,
        /// The other pod.
        pod: ObjectKey,
    },
    /// The pod's constraints are more than one decision looks at.
    TooComplex {
        /// What was counted; in JSON `why` and `excess`.
        #[serde(flatten, with = "super::excess")]
        #[schemars(with = "ExcessForm")]
        excess: Excess,
    },
    /// The pod's place hangs on others' in too long a chain.
    Chained,
    /// A machine of this choice is too dear as a replacement.
    TooDear {
        /// The price of a machine of this choice, in millionths per hour.
        price: i64,
        /// What the replacement may cost at most.
        most: i64,
    },
    /// A replacement would be of the type that a node is of.
    SameType {
        /// The node.
        node: Arc<str>,
    },
    /// The pool of a node that would be replaced weighs more.
    WeighsLessThanNode {
        /// The node.
        node: Arc<str>,
    },
    /// The pods are spread, and a replacement would not be in a domain of which nothing else is left.
    LastOfDomain {
        /// Topology key.
        key: Arc<str>,
        /// The domain.
        domain: Arc<str>,
    },
    /// One machine of it does not hold all pods that would move.
    NotAllPods {
        /// The first that finds no room.
        pod: ObjectKey,
    },
    /// Another replacement is cheaper.
    AnotherCheaper,
}

impl Refused {
    /// Whether it is a limit or a state of the moment: such a machine would do, and is made when there is less of what is limited, or when
    /// what is the matter is over.
    pub fn is_limit(&self) -> bool {
        matches!(
            self,
            Refused::Held { .. }
                | Refused::PoolMax { .. }
                | Refused::NodesTotal { .. }
                | Refused::BacksOff { .. }
                | Refused::InFlight { .. }
                | Refused::NoVmid { .. }
                | Refused::NetworkClosed { .. }
                | Refused::NetworkFull { .. }
                | Refused::NoFreeVmid
                | Refused::NoFreeName
                | Refused::PoolCeiling { .. }
                | Refused::ClusterCeiling { .. }
        )
    }
}

/// Guests of a region of which it is not known which addresses they have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct UnknownAddresses {
    /// The region.
    pub region: Arc<str>,
    /// How many guests.
    pub guests: usize,
    /// The first of them.
    pub first: Vec<GuestAt>,
}

/// A guest and the host that it is on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct GuestAt {
    /// The guest.
    pub vmid: u32,
    /// The host.
    pub host: Arc<str>,
}

/// Why a host takes no further machine of a type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum HostRefused {
    /// It is not online.
    Offline,
    /// It is in the HA manager's maintenance.
    Maintenance,
    /// A person evacuates it.
    Evacuated {
        /// Since when.
        since: Time,
    },
    /// PVE does not tell what the host has or what of it is taken, or the host answers no call.
    Unread {
        /// Why.
        why: ForeignText,
    },
    /// It can clone no copy of the template.
    NoTemplate {
        /// The template.
        template: Arc<str>,
        /// Copies that the region shows.
        seen: usize,
        /// Why PVE makes clones of a copy on that copy's own host alone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tied: Option<ForeignText>,
    },
    /// No machine is made of the copy of the template that it would clone.
    TemplateFault {
        /// What is wrong with the copy.
        fault: ForeignText,
    },
    /// A storage that clones go to is not available there.
    StorageInactive {
        /// The storage.
        storage: Arc<str>,
        /// The template's VMID.
        template: u32,
    },
    /// A storage that clones go to is not there.
    NoStorage {
        /// The storage.
        storage: Arc<str>,
        /// The template's VMID.
        template: u32,
    },
    /// It has not a bridge or VNet that network cards of the machine are on, and other hosts have it.
    NoBridge {
        /// The bridge or VNet.
        bridge: Arc<str>,
    },
    /// How much memory it has is not known.
    UnknownMemory,
    /// How many CPUs it has is not known.
    UnknownCpus,
    /// It has fewer CPUs than one machine of the type.
    FewerCpus {
        /// Millicores that it has.
        has: i64,
        /// Millicores of the type.
        asks: i64,
    },
    /// A machine of the pool failed there.
    BacksOff {
        /// Until when the pool does not use it.
        until: Time,
    },
    /// The pool's `max_per_host`.
    PoolMax {
        /// Machines of the pool there.
        machines: u64,
    },
    /// The region's `max_per_host`.
    RegionMax {
        /// Machines there.
        machines: u64,
    },
    /// Too little memory is left for VMs.
    Memory {
        /// Bytes that are left.
        left: i64,
        /// Bytes of the type.
        asks: i64,
    },
    /// Too little CPU is left for VMs within `cpu_overcommit`.
    Cpu {
        /// Millicores that are left.
        left: i64,
        /// Millicores of the type.
        asks: i64,
    },
    /// `min_free_memory` would not be kept.
    IdleMemory {
        /// Bytes that are not in use.
        idle: i64,
        /// Bytes of the type.
        asks: i64,
        /// `min_free_memory` in bytes.
        keep: i64,
    },
    /// `min_free_cores` would not be kept.
    IdleCpu {
        /// Millicores that are not in use.
        idle: i64,
        /// Millicores of the type.
        asks: i64,
        /// `min_free_cores` in millicores.
        keep: i64,
    },
    /// It is more loaded of late than `max_cpu_load`, `max_memory_load` or `max_pressure` allows.
    Load {
        /// In which way.
        of: LoadKind,
        /// How much, in thousandths, on average over some minutes; `None` where that is not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        is: Option<i64>,
        /// The most, in thousandths.
        most: i64,
    },
    /// A storage there has too little free that machines under way do not take.
    StorageFree {
        /// The storage.
        storage: Arc<str>,
        /// Bytes that are free.
        free: i64,
        /// Bytes of the type's disks.
        asks: i64,
        /// `min_free_storage` in bytes, where that is set.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keep: Option<i64>,
    },
    /// Disks could grow beyond `storage_overcommit` on a storage there.
    StorageGrowth {
        /// The storage.
        storage: Arc<str>,
        /// Bytes by which disks may still grow.
        left: i64,
        /// Bytes of the type's disks.
        asks: i64,
        /// `min_free_storage` in bytes, where that is set; it is taken off.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keep: Option<i64>,
    },
    /// How large a storage there is is not known, and `min_free_storage` is set.
    StorageUnknown {
        /// The storage.
        storage: Arc<str>,
    },
    /// A storage that clones may go to is the host's own, and PVE clones the template to other hosts on shared storages alone.
    StorageNotShared {
        /// The storage.
        storage: Arc<str>,
        /// The template's VMID.
        template: u32,
    },
    /// Of the storages that the file lists for a disk none takes it there.
    NoneOfStorages {
        /// Why each of them does not, in the file's order.
        each: Vec<HostRefused>,
    },
    /// PVE shows no mapping of PCI devices of that name.
    UnknownMapping {
        /// The mapping.
        mapping: Arc<str>,
    },
    /// A mapping of PCI devices has none there.
    NoDevice {
        /// The mapping.
        mapping: Arc<str>,
    },
    /// Too few PCI devices of a mapping are free there.
    Devices {
        /// The mapping.
        mapping: Arc<str>,
        /// Devices that it has there.
        has: i64,
        /// The devices that no guest has and no machine under way will have.
        free: i64,
        /// Devices of the type.
        asks: i64,
    },
    /// Too few mediated devices of a type are left there.
    MediatedDevices {
        /// The mapping.
        mapping: Arc<str>,
        /// The type.
        mdev: Arc<str>,
        /// Those that are left, and those that VMs there have.
        has: i64,
        /// Those of them that no guest has and no machine under way will have.
        free: i64,
        /// Devices of the type of machine.
        asks: i64,
    },
    /// A card of the mapping is in use, or promised, in another way: whole, or for another type of mediated device.
    MixedDevices {
        /// The mapping.
        mapping: Arc<str>,
        /// The type of mediated device; `None`: a whole device is wanted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mdev: Option<Arc<str>>,
    },
    /// The host did not tell how many mediated devices it has left.
    UntoldDevices {
        /// The mapping.
        mapping: Arc<str>,
        /// The type.
        mdev: Arc<str>,
    },
    /// The NUMA nodes that PVE takes huge pages from for a machine without CPUs of its own have too little memory left, or are not there.
    HugePages {
        /// How many nodes, from the first on.
        nodes: u32,
        /// Bytes of the type.
        asks: i64,
    },
    /// Which PCI devices guests there have is not known yet.
    UnreadDevices {
        /// The mapping.
        mapping: Arc<str>,
        /// The first of the guests whose configuration was not read.
        guest: u32,
        /// How many they are.
        guests: usize,
    },
    /// The configuration does not say what its CPUs are to each other.
    NoTopology,
    /// The configuration speaks of another number of CPUs than it has.
    OtherTopology {
        /// CPUs of which the configuration speaks.
        listed: usize,
        /// CPUs that it has.
        has: u32,
    },
    /// Too few of its CPUs are free for one machine alone.
    PinnedCpus {
        /// CPUs that nothing has, reserved ones aside.
        free: usize,
        /// CPUs of the type.
        asks: u32,
    },
    /// No NUMA nodes have free CPUs and free memory enough.
    NumaMemory {
        /// CPUs of the type.
        cpus: u32,
        /// Bytes of the type.
        asks: i64,
    },
    /// Which CPUs guests there have is not known yet.
    UnreadCpus {
        /// The first of the guests whose configuration was not read.
        guest: u32,
        /// How many they are.
        guests: usize,
    },
}

/// One or more refusals, in the order in which they are said.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(into = "Vec<Arc<Refused>>", try_from = "Vec<Arc<Refused>>")]
#[schemars(with = "Vec<Refused>")]
pub struct Refusals {
    /// The first.
    pub first: Arc<Refused>,
    /// The others.
    pub more: Vec<Arc<Refused>>,
}

impl Refusals {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Refused>> + Clone {
        std::iter::once(&self.first).chain(&self.more)
    }
}

impl From<Refused> for Refusals {
    fn from(refused: Refused) -> Refusals {
        Refusals::from(Arc::new(refused))
    }
}

impl From<Arc<Refused>> for Refusals {
    fn from(first: Arc<Refused>) -> Refusals {
        Refusals {
            first,
            more: Vec::new(),
        }
    }
}

impl From<Refusals> for Vec<Arc<Refused>> {
    fn from(refusals: Refusals) -> Vec<Arc<Refused>> {
        let mut all = refusals.more;
        all.insert(0, refusals.first);
        all
    }
}

impl TryFrom<Vec<Arc<Refused>>> for Refusals {
    type Error = &'static str;

    fn try_from(mut all: Vec<Arc<Refused>>) -> Result<Refusals, &'static str> {
        if all.is_empty() {
            return Err("a refusal without a reason");
        }
        let more = all.split_off(1);
        let first = all.remove(0);
        Ok(Refusals { first, more })
    }
}
