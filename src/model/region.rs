//! The Proxmox VE side of a snapshot: one region is one PVE cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::chosen_storages::ChosenStorages;
use super::drift::Drift;
use super::foreign::ForeignText;
use super::hosts::LoadKind;
use super::identity::{Contradiction, Signs};
use super::in_place::Difference;
use super::lacking::LackingPart;
use super::mark::{Mark, Ownership};
use super::pci::PciUse;
use super::policy::Terms;
use super::shared::Shared;
use super::time::{Span, Time};
use super::topology::Pins;

/// PVE's own bounds of a VMID (`pve-vmid`).
pub const VMIDS: std::ops::RangeInclusive<u32> = 100..=999_999_999;

/// Name of a region in the configuration.
pub type RegionName = Arc<str>;

/// What is seen of one PVE cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Region {
    /// `/cluster/status`: the cluster has quorum (a single host always has).
    pub quorate: bool,
    /// Hosts by name.
    pub hosts: BTreeMap<Arc<str>, Host>,
    /// Every VM *and container* of the cluster: they take VMIDs and memory.
    pub vms: BTreeMap<u32, Vm>,
    /// Storages by host and name.
    pub storages: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Storage>>,
    /// Where each configured template was found, by its name in the configuration.
    pub templates: BTreeMap<Arc<str>, Vec<TemplateCopy>>,
    /// The mappings of PCI devices that instance types name, as far as PVE shows them: by name and host the addresses of
    /// the devices.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mappings: BTreeMap<Arc<str>, MappedDevices>,
    /// What hosts have left of mediated devices, by host and mapping: as they told it when they were asked last. Of one that did not tell
    /// there is nothing.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mediated: BTreeMap<Arc<str>, BTreeMap<Arc<str>, MediatedLeft>>,
    /// What machines here have by the file and PVE does not have, or does not let them have, as far as that was read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lacking: Vec<LackingPart>,
    /// The addresses that hosts have, and the gateways that they use, as far as PVE tells them. Machines get none of them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub host_addresses: BTreeSet<IpAddr>,
}

/// The devices of a mapping by host: each by its address, or the addresses of its functions.
pub type MappedDevices = BTreeMap<Arc<str>, Vec<Arc<str>>>;

/// What is left of a mapping's mediated devices on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MediatedLeft {
    /// How many more PVE can make, by type. Of a type that is not in it there is none.
    pub left: BTreeMap<Arc<str>, u32>,
    /// The VMs that ran there when it was asked: what is left is beside what they have.
    pub running: BTreeSet<u32>,
}

/// A PVE node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Host {
    /// `status: online`.
    pub online: bool,
    /// Logical CPUs; 0 when unknown.
    pub cpus: u32,
    /// Installed memory in bytes; 0 when unknown.
    pub memory: i64,
    /// Memory in use in bytes, 10 s old at best.
    pub memory_used: i64,
    /// CPU in use in thousandths of a logical CPU, 10 s old at best.
    #[serde(skip_serializing_if = "is_default")]
    pub cpu_used_milli: i64,
    /// The HA manager has it in maintenance (`hastate` of its row in `/cluster/resources`): somebody empties it.
    #[serde(skip_serializing_if = "is_default")]
    pub maintenance: bool,
    /// Since when a person evacuates it (`pve-autoscaler evacuate`): its nodes are drained, and it gets no machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evacuated: Option<Time>,
    /// How long it had been up when it was read; zero when unknown.
    #[serde(skip_serializing_if = "is_default")]
    pub uptime: Span,
    /// How far its clock was ahead of this host's when it was last asked; negative: behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_ahead: Option<Span>,
    /// How loaded it was of late, on average; `None` where no pool asks for that, or it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<HostLoad>,
    /// The bridges and VNets that network cards of machines can be on there; `None` where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridges: Option<BTreeSet<Arc<str>>>,
    /// Why nobody knows what it has and what of it is promised: PVE's row of it, or of a guest on it, cannot be read, or it is silent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unread: Option<ForeignText>,
    /// PVE lists it as online, and it answers no call: nothing is begun on it.
    #[serde(skip_serializing_if = "is_default")]
    pub silent: bool,
}

impl Host {
    /// Whether calls to it have a chance: it is online, and not silent.
    pub fn answers(&self) -> bool {
        self.online && !self.silent
    }
}

/// How loaded a host was, on average over some minutes, in thousandths; `None` where PVE does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostLoad {
    /// CPU in use, of what it has.
    pub cpu: Option<i64>,
    /// Memory in use, of what it has.
    pub memory: Option<i64>,
    /// How much of the time something waited for a CPU (PSI, `some`); not before PVE 9.
    pub cpu_pressure: Option<i64>,
    /// How much of the time something waited for memory (PSI, `some`); not before PVE 9.
    pub memory_pressure: Option<i64>,
    /// How much of the time something waited for a disk (PSI, `some`); not before PVE 9.
    pub io_pressure: Option<i64>,
}

impl HostLoad {
    /// The number that is bounded as one of these.
    pub fn of(&self, kind: LoadKind) -> Option<i64> {
        match kind {
            LoadKind::Cpu => self.cpu,
            LoadKind::Memory => self.memory,
            LoadKind::CpuPressure => self.cpu_pressure,
            LoadKind::MemoryPressure => self.memory_pressure,
            LoadKind::IoPressure => self.io_pressure,
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What kind of guest holds a VMID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestKind {
    /// A virtual machine.
    #[default]
    Qemu,
    /// A container.
    Lxc,
}

/// A VM or container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Vm {
    /// The host it is on now; it moves.
    pub host: Arc<str>,
    /// VM or container.
    pub kind: GuestKind,
    /// Name; empty while unknown (a new clone shows none for up to 10 s).
    pub name: Arc<str>,
    /// `status: running`.
    pub running: bool,
    /// A template, which never runs.
    pub template: bool,
    /// The configuration's `lock`, such as `clone` or `backup`.
    pub lock: Option<Arc<str>>,
    /// The HA manager decides whether it runs.
    #[serde(skip_serializing_if = "is_default")]
    pub ha: bool,
    /// Configured logical CPUs.
    pub cpus: u32,
    /// Configured memory in bytes.
    pub memory: i64,
    /// The memory in bytes that ballooning leaves it at least; `None`: all of it, or not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_min: Option<i64>,
    /// It starts with its host, or is off and was not read yet; of guests that run it tells nothing.
    #[serde(skip_serializing_if = "is_default")]
    pub onboot: bool,
    /// SMBIOS UUID, lower case; `None` when its configuration was not read or names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<Arc<str>>,
    /// What its description says; `None` when not read (outside our VMID range, or a container).
    pub ownership: Option<Ownership>,
    /// The template that `pve-autoscaler template try` tries with it, by the mark of this configuration in its description; `None` for
    /// any other VM, and while that was not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial_of: Option<Arc<str>>,
    /// The fixed addresses that its configuration gives it; `None` while that was not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addresses: Option<Vec<IpAddr>>,
    /// The PCI devices that its configuration gives it; `None` while that was not read, and of a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<Vec<PciUse>>,
    /// The CPUs and NUMA nodes of its host that its configuration keeps for it; `None` while that was not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pins: Option<Pins>,
    /// Sizes of its disks in bytes, summed up by storage; empty when its configuration was not read.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub disks: BTreeMap<Arc<str>, i64>,
    /// Why PVE's row of it cannot be read: it is there, and what is told of it is what was seen last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unread: Option<ForeignText>,
}

/// A storage on a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Storage {
    /// Reachable and enabled.
    pub active: bool,
    /// The storage is one and the same on every host (`shared`).
    pub shared: bool,
    /// Free bytes; 0 when unknown.
    pub free: i64,
    /// Size in bytes; 0 when unknown.
    pub total: i64,
    /// A volume takes its space when it is made (`lvm`, `iscsi`), not when it is written.
    #[serde(skip_serializing_if = "is_default")]
    pub thick: bool,
    /// What its volumes lie in: a ZFS pool, a volume group, a thin pool, an export, a directory, as its definition says. Storages of a
    /// host that say the same share their space. `None` where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backing: Option<Arc<str>>,
}

/// A template VM found in a region.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TemplateCopy {
    /// The VM's id.
    pub vmid: u32,
    /// The host whose configuration directory holds it.
    pub host: Arc<str>,
    /// Every disk, the cloud-init drive too, is on shared storage: clones may target other hosts.
    pub shared: bool,
    /// Why PVE makes its clones on its own host alone, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tied: Option<ForeignText>,
    /// Size of its boot disk in bytes; 0 when unknown.
    pub disk: i64,
    /// The disks that a clone of it gets; empty when unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<TemplateDisk>,
    /// Why no machine is made of it: none would join, or PVE would make none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<ForeignText>,
    /// Why a pool makes no machine of it, by the network card on which it has no network: machines would share a fixed address there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shared_addresses: BTreeMap<u8, ForeignText>,
    /// The bridges and VNets that network cards of machines of it are on.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub bridges: BTreeSet<Arc<str>>,
    /// The template's SMBIOS UUID, by which it is told from another template that later has its VMID; `None` where its configuration names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<Arc<str>>,
    /// `template build` made it of another definition than the file has now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redefined: bool,
}

/// A disk that a clone gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TemplateDisk {
    /// The storage it will be on: the template's, or the one that full clones go to. Of a list in the file the first.
    pub storage: Arc<str>,
    /// The others of the file's list, in its order: the disk is made on the first that its host has and that has room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub or: Vec<Arc<str>>,
    /// The place of a further disk whose storages are a list; `None` of any other disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<Arc<str>>,
    /// Size in bytes; 0 when unknown.
    pub size: i64,
    /// It boots from it: this one grows to what the instance type says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub boot: bool,
}

impl TemplateDisk {
    /// The storages that it may be on, in the file's order.
    pub fn storages(&self) -> impl Iterator<Item = &Arc<str>> {
        std::iter::once(&self.storage).chain(&self.or)
    }
}

/// A machine: a VM we own or have intended, joined from the intent, the VM, the node and the
/// executor's journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The region that the machine is in.
    pub region: RegionName,
    /// The machine's host: where the VM is, else where it is intended.
    pub host: Arc<str>,
    /// The mark's contents, from the VM's mark or else from the intent (same fields).
    pub mark: Shared<Mark>,
    /// A durable intent of ours names it. A machine without one was made by an earlier installation.
    pub intended: bool,
    /// The VM as seen; `None` when there is none (yet, or no more).
    #[serde(default)]
    pub vm: Option<MachineVm>,
    /// The terms under which it was made, from its intent; `None`: those of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<Arc<Terms>>,
    /// The storages that its disks are made on, from its intent, where the file lists several.
    #[serde(default, skip_serializing_if = "ChosenStorages::is_empty")]
    pub storages: ChosenStorages,
    /// The machine's Kubernetes node, by the rule of [`identity`](super::identity).
    #[serde(default)]
    pub node: Option<Arc<str>>,
    /// What the nodes, the VM and what is remembered of it say against each other: the machine is left alone. Then `node` is
    /// `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contradiction: Option<Contradiction>,
    /// The SMBIOS UUID of its VM when that was first seen, from the durable journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remembered: Option<Arc<str>>,
    /// The step the executor last reached, with the time it began; from its durable journal.
    #[serde(default)]
    pub step: Option<(Step, Time)>,
    /// Why the last action on it ended. With a step before [`Step::Done`]: it will not become a
    /// node, and must be removed. With [`Step::Drain`] or later: a *removal* failed and was given
    /// up (the node was released); the machine goes on working, and `at` counts as the time of a
    /// failed scale-down. Kept until a later action on the machine succeeds.
    #[serde(default)]
    pub failure: Option<Failure>,
    /// An action on it runs in the executor right now. A machine that is not busy but whose `step`
    /// is [`Step::Shutdown`] or later was interrupted while going: plan its removal again
    /// (`drain: true` is safe from any point). With step [`Step::Drain`] or [`Step::Detach`] and
    /// not busy, decide afresh: remove it if it is still unneeded, else release its node.
    #[serde(default)]
    pub busy: Option<Busy>,
}

impl Machine {
    /// The VM that was the machine's, by the UUID that is remembered, if somebody took the mark out of its description. With
    /// another UUID it is another VM, or somebody wants it for themselves.
    pub fn lost_mark<'a>(&self, region: &'a Region) -> Option<&'a Vm> {
        let vm = region.vms.get(&self.mark.vmid)?;
        let unmarked = vm.ownership == Some(Ownership::Unmarked);
        let same = vm.uuid.is_some() && vm.uuid == self.remembered;
        (self.vm.is_none() && unmarked && same).then_some(vm)
    }

    /// What its node must show, while it has a VM that carries its mark: before and after it has no node. A VM
    /// that a removal of ours has switched off is known by the UUID it had: what was edited and pending came
    /// into force with the stop, and no node is on it.
    pub fn signs(&self) -> Option<Signs<'_>> {
        let vm = self.vm.as_ref().filter(|vm| vm.marked)?;
        // Before its first start no node can be on it: a UUID that is edited then, and put back, tells nothing.
        let could_run = self.step.is_none_or(|(step, _)| step >= Step::Start);
        let remembered = self.remembered.as_deref().filter(|_| could_run);
        let uuid = vm.uuid.as_deref();
        let shut = !vm.running && self.step.is_some_and(|(step, _)| step >= Step::Shutdown);
        Some(Signs {
            machine: &self.mark.machine,
            region: &self.region,
            vmid: self.mark.vmid,
            uuid: remembered.filter(|_| shut).or(uuid),
            remembered,
        })
    }
}

/// The VM behind a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MachineVm {
    /// It runs.
    pub running: bool,
    /// The configuration's `lock`.
    pub lock: Option<Arc<str>>,
    /// The HA manager decides whether it runs.
    #[serde(skip_serializing_if = "is_default")]
    pub ha: bool,
    /// It carries our intact mark; false for the placeholder of a clone under way.
    pub marked: bool,
    /// SMBIOS UUID in force, lower case; `None` until the configuration was read, and when that names none.
    pub uuid: Option<Arc<str>>,
    /// The configuration's digest when it was last read.
    pub digest: Option<Arc<str>>,
    /// What of its configuration the file gives another value, where that can change while it runs; of machines that
    /// became a node alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<Difference>,
    /// What the machine was made with that the file says otherwise now, where that cannot change in place; `None`: not known,
    /// or it has not become a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drifted: Option<Vec<Drift>>,
}

/// The steps of a machine's life, in order.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The intent is durable; no call was made yet.
    Intent,
    /// The clone task runs.
    Clone,
    /// The first configuration write, which undoes what templates pass on.
    Configure,
    /// The boot disk grows.
    Resize,
    /// The VM starts.
    Start,
    /// The guest agent must answer.
    Agent,
    /// The operating system must be ready (cloud-init finished; degraded counts).
    Os,
    /// `kubeadm join` runs.
    Join,
    /// The node must appear, with the VM's UUID.
    Register,
    /// The node must be Ready; labels are set and the startup taint goes.
    Initialize,
    /// It is a working node.
    Done,
    /// Pods are being evicted.
    Drain,
    /// Volumes must be detached.
    Detach,
    /// The VM shuts down.
    Shutdown,
    /// The Node object goes.
    DeleteNode,
    /// The VM is destroyed and must be seen gone.
    Destroy,
}

impl Step {
    /// Every step, in order.
    pub const ALL: [Step; 16] = [
        Step::Intent,
        Step::Clone,
        Step::Configure,
        Step::Resize,
        Step::Start,
        Step::Agent,
        Step::Os,
        Step::Join,
        Step::Register,
        Step::Initialize,
        Step::Done,
        Step::Drain,
        Step::Detach,
        Step::Shutdown,
        Step::DeleteNode,
        Step::Destroy,
    ];

    /// What people call it, everywhere: `status`, `history`, the page.
    pub fn word(self) -> &'static str {
        match self {
            Step::Intent => "intent",
            Step::Clone => "clone",
            Step::Configure => "configure",
            Step::Resize => "resize",
            Step::Start => "start",
            Step::Agent => "agent",
            Step::Os => "os",
            Step::Join => "join",
            Step::Register => "register",
            Step::Initialize => "initialize",
            Step::Done => "done",
            Step::Drain => "drain",
            Step::Detach => "detach",
            Step::Shutdown => "shutdown",
            Step::DeleteNode => "delete node",
            Step::Destroy => "destroy",
        }
    }
}

/// Why a machine failed. It stands in the journal: what a newer version knows of it besides is passed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// In which step.
    pub step: Step,
    /// What came back, kubeadm's last lines for instance. The advice, where there is one, is its end.
    pub message: ForeignText,
    /// What to do about it, where PVE's words tell that. They are our words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<ForeignText>,
    /// When.
    pub at: Time,
    /// Nobody's fault but this attempt's (VMID taken, storage lock): no back-off of the pool.
    #[serde(default)]
    pub transient: bool,
    /// The host on which it failed. PVE may still show the VM on its template's host: a clone for another host is moved at its
    /// end, and the cluster hears of that later. `None` when an older program wrote this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Arc<str>>,
}

/// What the executor is doing with a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Busy {
    /// Bringing it up.
    Up,
    /// Taking it down.
    Down,
    /// It works, and its VM's configuration is brought in line with the file.
    Update,
}
