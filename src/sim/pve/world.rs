//! The simulated cluster's state: hosts, storages, machines, tasks; and what others saw of it last.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use sha2::{Digest as _, Sha256};

use super::disks::{CLOUDINIT_SIZE, DiskVolume, Drive, NewVolume, format_size};
use super::facts::{MachineChange, Seen};
use super::firewall::GuestRule;
use super::isos::IsoExports;
use super::pci::HeldDevice;
use super::spec::{HostSpec, MachineSpec, PveSpec, StorageSpec};
use super::tasks::WorkerTask;
use crate::model::time::{Span, Time};
use crate::sim::guests::GuestExecResult;

/// How often pvestatd tells the cluster what its VMs do (pvestatd.pm).
const BROADCAST: Span = Span::seconds(10);
/// After how long without word the last broadcast is dropped (pmxcfs status.c).
const BROADCAST_KEPT: Span = Span::minutes(5);
/// What PVE writes first into a new clone's configuration; read back, it is the description.
pub(super) const PLACEHOLDER: &str = " qmclone temporary file";

/// A host.
#[derive(Clone, Debug)]
pub(super) struct SimHost {
    pub(super) spec: HostSpec,
    pub(super) offline_since: Option<Time>,
    pub(super) maintenance: bool,
    /// It is not in the cluster any more.
    pub(super) removed: bool,
    /// Thousandths of its CPUs that are in use.
    pub(super) cpu_permille: u32,
    /// Bytes that its own system uses.
    pub(super) own_memory: u64,
    /// How loaded it was, from when on.
    pub(super) loads: Vec<OwnLoad>,
    pub(super) booted: Time,
    /// When within ten seconds its pvestatd speaks, in milliseconds.
    phase: i64,
}

/// What a host does beside its guests, from a time on.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnLoad {
    pub(super) since: Time,
    /// Thousandths of its CPUs.
    pub(super) cpu: u32,
    /// Bytes.
    pub(super) memory: u64,
    /// Thousandths of the time in which something waits for CPU, memory, disk.
    pub(super) pressure: [u32; 3],
}

/// Whether a machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    Stopped,
    Running { since: Time, pid: u32 },
    Paused { since: Time, pid: u32 },
}

impl Run {
    /// Powered on.
    pub(super) fn is_on(self) -> bool {
        self != Run::Stopped
    }

    /// Since when, and QEMU's process.
    pub(super) fn process(self) -> Option<(Time, u32)> {
        match self {
            Run::Stopped => None,
            Run::Running { since, pid } | Run::Paused { since, pid } => Some((since, pid)),
        }
    }
}

/// What a broadcast says of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) run: Run,
    pub(super) name: String,
    pub(super) template: bool,
    pub(super) cpus: u32,
    pub(super) memory: u64,
    pub(super) disk: u64,
}

/// A VM or container.
#[derive(Clone, Debug)]
pub(super) struct SimVm {
    pub(super) vmid: u32,
    pub(super) host: String,
    pub(super) container: bool,
    pub(super) config: BTreeMap<String, String>,
    /// Tells it from those of its VMID before it: what lies on its disks is its own, whatever its configuration says.
    pub(super) incarnation: u64,
    /// Keys that a JSON body set to a number; they are answered as numbers.
    pub(super) numbers: BTreeSet<String>,
    /// Changes that wait for the next start; `None` deletes.
    pub(super) pending: BTreeMap<String, Option<String>>,
    pub(super) run: Run,
    /// The PCI devices that it has while it runs.
    pub(super) devices: BTreeSet<HeldDevice>,
    /// Commands run by the agent; `None` while they run.
    pub(super) commands: BTreeMap<i64, Option<Result<GuestExecResult, String>>>,
    shown: Vec<(Time, Shown)>,
}

impl SimVm {
    /// A machine without configuration.
    pub(super) fn new(vmid: u32, host: &str) -> SimVm {
        SimVm {
            vmid,
            host: host.to_owned(),
            container: false,
            config: BTreeMap::new(),
            incarnation: 0,
            numbers: BTreeSet::new(),
            pending: BTreeMap::new(),
            run: Run::Stopped,
            devices: BTreeSet::new(),
            commands: BTreeMap::new(),
            shown: Vec::new(),
        }
    }

    pub(super) fn text(&self, key: &str) -> &str {
        self.config.get(key).map_or("", String::as_str)
    }

    pub(super) fn number(&self, key: &str, default: u64) -> u64 {
        self.config
            .get(key)
            .and_then(|text| text.parse().ok())
            .unwrap_or(default)
    }

    pub(super) fn flag(&self, key: &str) -> bool {
        self.text(key) == "1"
    }

    /// Logical CPUs.
    pub(super) fn cpus(&self) -> u32 {
        let cpus = self.number("vcpus", self.number("cores", 1) * self.number("sockets", 1));
        u32::try_from(cpus).unwrap_or(u32::MAX)
    }

    /// Memory in MiB.
    pub(super) fn memory_mib(&self) -> u64 {
        let text = self.text("memory");
        text.strip_prefix("current=")
            .unwrap_or(text)
            .parse()
            .unwrap_or(512)
    }

    /// The SMBIOS UUID, lower case.
    pub(super) fn uuid(&self) -> String {
        let smbios = self.text("smbios1");
        let uuid = smbios
            .split(',')
            .find_map(|part| part.strip_prefix("uuid="));
        uuid.unwrap_or_default().to_ascii_lowercase()
    }

    /// `VM is locked (…)` where its configuration carries a lock.
    pub(super) fn check_lock(&self) -> Result<(), String> {
        match self.config.get("lock") {
            Some(lock) => Err(format!("VM is locked ({lock})")),
            None => Ok(()),
        }
    }

    /// The digest of its configuration file: 40 hexadecimal digits, opaque to clients.
    pub(super) fn digest(&self) -> String {
        let mut file = String::new();
        for (key, value) in &self.config {
            let _ = writeln!(file, "{key}: {value}");
        }
        for (key, value) in &self.pending {
            let _ = writeln!(file, "[PENDING] {key}: {value:?}");
        }
        let sum = Sha256::digest(file.as_bytes());
        let mut text = sum.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        text.truncate(40);
        text
    }

    /// The VM's name, or what PVE calls a VM without one.
    pub(super) fn title(&self) -> String {
        let name = self.config.get("name").cloned();
        name.unwrap_or_else(|| format!("VM {}", self.vmid))
    }

    fn show(&self) -> Shown {
        Shown {
            run: self.run,
            name: self.title(),
            template: self.flag("template"),
            cpus: self.cpus(),
            memory: self.memory_mib() << 20,
            disk: self.boot_disk(),
        }
    }
}

/// The cluster.
#[derive(Debug)]
pub(super) struct PveWorld {
    pub(super) spec: PveSpec,
    pub(super) rng: StdRng,
    pub(super) quorate: bool,
    pub(super) hosts: BTreeMap<String, SimHost>,
    pub(super) storages: BTreeMap<String, StorageSpec>,
    /// Bytes that an administrator filled, by place and storage.
    pub(super) filled: BTreeMap<(String, String), u64>,
    /// By place (host, or empty for shared storage) and id.
    pub(super) volumes: BTreeMap<(String, String), DiskVolume>,
    /// Images to import from with their sizes, by place and id.
    pub(super) images: BTreeMap<(String, String), u64>,
    /// ISOs with their content, by place and id.
    pub(super) isos: BTreeMap<(String, String), Vec<u8>>,
    /// Those of shared storages, by volume, where another cluster has the same storages.
    pub(super) exports: Option<IsoExports>,
    /// Files that were sent and are not copied yet, by where they lie.
    pub(super) uploads: BTreeMap<String, Vec<u8>>,
    pub(super) vms: BTreeMap<u32, SimVm>,
    pub(super) pools: BTreeMap<String, BTreeSet<u32>>,
    /// The rules of VMs' firewalls.
    pub(super) firewalls: BTreeMap<u32, Vec<GuestRule>>,
    /// VMs whose firewall is switched on.
    pub(super) firewalls_on: BTreeSet<u32>,
    /// `enable` of the datacenter's firewall; none while nobody set it.
    pub(super) datacenter_firewall: Option<i64>,
    /// Roles that were made, with their privileges.
    pub(super) roles: BTreeMap<String, Vec<String>>,
    /// Who was given which role where: user or token, path, role.
    pub(super) role_grants: BTreeSet<(String, String, String)>,
    /// Wanted state of machines that the HA manager keeps.
    pub(super) ha: BTreeMap<u32, String>,
    pub(super) tasks: BTreeMap<String, WorkerTask>,
    /// UPIDs, oldest first.
    pub(super) task_order: VecDeque<String>,
    /// Full copies under way, by place and storage.
    pub(super) copies: BTreeMap<(String, String), u64>,
    next_pid: u32,
    pub(super) seen: VecDeque<Seen>,
    /// Requests ever, also those no more in `seen`.
    pub(super) requests: u64,
    /// VMs that were ever made.
    incarnations: u64,
    pub(super) changes: Vec<MachineChange>,
    /// The last clone task that was to make a VM, by the VM's id.
    pub(super) clones: BTreeMap<u32, String>,
    /// Workers killed ever.
    pub(super) killed: u64,
}

impl PveWorld {
    pub(super) fn new(mut spec: PveSpec, seed: u64, now: Time) -> PveWorld {
        spec.storages.iter_mut().for_each(StorageSpec::read_as_pve);
        let mut rng = StdRng::seed_from_u64(seed);
        let hosts = spec
            .hosts
            .iter()
            .map(|host| {
                let host = SimHost {
                    spec: host.clone(),
                    offline_since: None,
                    removed: false,
                    maintenance: false,
                    cpu_permille: 20,
                    own_memory: 2 * super::GIB,
                    loads: Vec::new(),
                    booted: now - Span::minutes(60 * 24),
                    phase: rng.random_range(0..BROADCAST.0),
                };
                (host.spec.name.clone(), host)
            })
            .collect();
        let mut world = PveWorld {
            rng,
            quorate: true,
            hosts,
            storages: spec
                .storages
                .iter()
                .map(|one| (one.name.clone(), one.clone()))
                .collect(),
            filled: BTreeMap::new(),
            images: BTreeMap::new(),
            isos: BTreeMap::new(),
            exports: None,
            uploads: BTreeMap::new(),
            volumes: BTreeMap::new(),
            vms: BTreeMap::new(),
            roles: BTreeMap::new(),
            role_grants: BTreeSet::new(),
            pools: spec
                .pools
                .iter()
                .map(|name| (name.clone(), BTreeSet::new()))
                .collect(),
            firewalls: BTreeMap::new(),
            firewalls_on: spec.firewall_on.iter().copied().collect(),
            datacenter_firewall: spec.datacenter_firewall,
            ha: BTreeMap::new(),
            tasks: BTreeMap::new(),
            task_order: VecDeque::new(),
            copies: BTreeMap::new(),
            next_pid: 1_000,
            seen: VecDeque::new(),
            requests: 0,
            incarnations: 0,
            changes: Vec::new(),
            clones: BTreeMap::new(),
            killed: 0,
            spec,
        };
        world.lay_images();
        for machine in world.spec.machines.clone() {
            // A spec that does not fit its own storage is met by the first who looks at the disks.
            let _ = world.install(&machine, now);
        }
        world
    }

    /// Puts a machine there as if it had always been.
    pub(super) fn install(&mut self, spec: &MachineSpec, now: Time) -> Result<(), String> {
        if let Some(other) = self.vms.get(&spec.vmid) {
            return Err(format!(
                "VM {} already exists on node '{}'",
                spec.vmid, other.host
            ));
        }
        if !self.hosts.contains_key(&spec.host) {
            return Err(format!("no such cluster node '{}'", spec.host));
        }
        let mut vm = SimVm::new(spec.vmid, &spec.host);
        vm.incarnation = self.next_incarnation();
        vm.container = spec.container;
        vm.config.clone_from(&spec.config);
        let new = NewVolume {
            storage: &spec.storage,
            host: &spec.host,
            vmid: spec.vmid,
            size: spec.disk,
            used: spec.disk_used,
            parent: None,
            cloudinit: false,
            copied: false,
            base: spec.template,
            ctime: now.0 / 1_000,
        };
        let disk = self.allocate(&new)?;
        let key = if spec.container { "rootfs" } else { "scsi0" };
        vm.config.insert(
            key.to_owned(),
            format!("{disk},size={}", format_size(spec.disk)),
        );
        if spec.cloudinit {
            let drive = NewVolume {
                size: CLOUDINIT_SIZE,
                used: CLOUDINIT_SIZE,
                cloudinit: true,
                base: false,
                ..new
            };
            let drive = self.allocate(&drive)?;
            vm.config
                .insert("ide2".to_owned(), format!("{drive},media=cdrom"));
        }
        if !spec.container {
            self.equip(&mut vm);
        }
        if spec.template {
            vm.config.insert("template".to_owned(), "1".to_owned());
        }
        if spec.running {
            vm.run = Run::Running {
                since: now - Span::minutes(60),
                pid: self.pid(),
            };
        }
        vm.shown.push((now - BROADCAST - BROADCAST, vm.show()));
        if let Some(pool) = &spec.pool {
            self.pools
                .entry(pool.clone())
                .or_default()
                .insert(spec.vmid);
        }
        self.vms.insert(spec.vmid, vm);
        if spec.running {
            self.hold_devices(spec.vmid);
        }
        Ok(())
    }

    /// Gives a VM of a scene what the scene does not name: its UUID, its generation and a network card.
    fn equip(&mut self, vm: &mut SimVm) {
        // A scene that names a VM's UUID has a node with the same `systemUUID`.
        let smbios = vm.text("smbios1");
        if smbios.split(',').any(|part| part.starts_with("uuid=")) {
            let generation = self.uuid();
            vm.config.entry("vmgenid".to_owned()).or_insert(generation);
        } else {
            self.identify(vm, true);
        }
        if !vm.config.contains_key("net0") {
            let mac = self.mac();
            vm.config
                .insert("net0".to_owned(), format!("virtio={mac},bridge=vmbr0"));
        }
    }

    fn next_incarnation(&mut self) -> u64 {
        self.incarnations += 1;
        self.incarnations
    }

    /// Gives a VM new identities: an SMBIOS UUID and, if wanted, a generation id.
    pub(super) fn identify(&mut self, vm: &mut SimVm, generation: bool) {
        let rest: Vec<String> = vm
            .text("smbios1")
            .split(',')
            .filter(|part| !part.is_empty() && !part.starts_with("uuid="))
            .map(|part| format!(",{part}"))
            .collect();
        vm.incarnation = self.next_incarnation();
        let uuid = self.uuid();
        vm.config.insert(
            "smbios1".to_owned(),
            format!("uuid={uuid}{}", rest.concat()),
        );
        if generation {
            let generation = self.uuid();
            vm.config.insert("vmgenid".to_owned(), generation);
        }
    }

    /// A random UUID (version 4).
    pub(super) fn uuid(&mut self) -> String {
        let bits: u128 = self.rng.random();
        let bits = bits & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        [
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..],
        ]
        .join("-")
    }

    /// A random network address with Proxmox's prefix.
    pub(super) fn mac(&mut self) -> String {
        let [_, a, b, c] = self.rng.random::<u32>().to_be_bytes();
        format!("BC:24:11:{a:02X}:{b:02X}:{c:02X}")
    }

    /// A process id that no other process has.
    pub(super) fn pid(&mut self) -> u32 {
        self.next_pid += 1 + self.rng.random_range(0..7);
        self.next_pid
    }

    /// Remembers that a machine's broadcast is another from now on.
    pub(super) fn touch(&mut self, vmid: u32, now: Time) {
        let Some(vm) = self.vms.get(&vmid) else {
            return;
        };
        let tick = self.tick(&vm.host, now);
        let Some(vm) = self.vms.get_mut(&vmid) else {
            return;
        };
        let shown = vm.show();
        if vm.shown.last().is_none_or(|(_, last)| *last != shown) {
            vm.shown.push((now, shown));
        }
        // Nobody asks any more what came before the last broadcast.
        let keep = vm
            .shown
            .iter()
            .rposition(|(at, _)| *at <= tick)
            .unwrap_or(0);
        vm.shown.drain(..keep);
    }

    /// When the host's pvestatd spoke last.
    fn tick(&self, host: &str, now: Time) -> Time {
        let Some(host) = self.hosts.get(host) else {
            return now;
        };
        let until = host.offline_since.unwrap_or(now);
        until - Span((until.0 - host.phase).rem_euclid(BROADCAST.0))
    }

    /// What the cluster knows of a machine: the last broadcast, or nothing.
    pub(super) fn shown<'a>(&self, vm: &'a SimVm, now: Time) -> Option<&'a Shown> {
        let tick = self.tick(&vm.host, now);
        if now.since(tick) > BROADCAST_KEPT {
            return None;
        }
        vm.shown
            .iter()
            .rev()
            .find(|(at, _)| *at <= tick)
            .map(|(_, shown)| shown)
    }

    /// The host, when it answers.
    pub(super) fn online(&self, host: &str) -> bool {
        self.hosts
            .get(host)
            .is_some_and(|host| host.offline_since.is_none())
    }

    /// The VM on that host, else PVE's words.
    pub(super) fn vm(&self, host: &str, vmid: u32) -> Result<&SimVm, String> {
        self.vms
            .get(&vmid)
            .filter(|vm| vm.host == host && !vm.container)
            .ok_or_else(|| missing(host, vmid))
    }

    /// The VM on that host, to change it, else PVE's words.
    pub(super) fn vm_mut(&mut self, host: &str, vmid: u32) -> Result<&mut SimVm, String> {
        self.vms
            .get_mut(&vmid)
            .filter(|vm| vm.host == host && !vm.container)
            .ok_or_else(|| missing(host, vmid))
    }

    /// What PVE says when it looks for a VM's process and finds no VM.
    pub(super) fn on_node(&self, host: &str, vmid: u32) -> Result<(), String> {
        match self.vm(host, vmid) {
            Ok(_) => Ok(()),
            Err(_) => Err(format!(
                "unable to find configuration file for VM {vmid} on node '{host}'"
            )),
        }
    }

    /// The volumes that a VM's drives name.
    pub(super) fn volumes_of(vm: &SimVm) -> Vec<String> {
        let drives = vm.drives().into_iter().map(|(_, drive)| drive.file);
        let unused = vm
            .config
            .iter()
            .filter(|(key, _)| key.starts_with("unused"));
        let root = vm.config.get("rootfs").map(|text| Drive::parse(text).file);
        drives
            .chain(unused.map(|(_, text)| Drive::parse(text).file))
            .chain(root)
            .collect()
    }

    /// Writing below /etc/pve needs quorum.
    pub(super) fn writable(&self, host: &str, vmid: u32) -> Result<(), String> {
        if self.quorate {
            return Ok(());
        }
        Err(format!(
            "unable to open file '/etc/pve/nodes/{host}/qemu-server/{vmid}.conf.tmp.158' - Permission denied"
        ))
    }

    /// The early check that some calls make.
    pub(super) fn check_quorum(&self) -> Result<(), String> {
        if self.quorate {
            Ok(())
        } else {
            Err("cluster not ready - no quorum?".to_owned())
        }
    }
}

fn missing(host: &str, vmid: u32) -> String {
    format!("Configuration file 'nodes/{host}/qemu-server/{vmid}.conf' does not exist")
}
