//! `/cluster/resources`: hosts, guests and storages, read leniently.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::Value;

use super::perl::{self, Fields};
use super::rows::{MOST_BYTES, ODD, is_amount};
use crate::model::foreign::ForeignText;
use crate::model::network::fixed_addresses;
use crate::model::pci::PciUse;
use crate::model::region;
use crate::model::region::GuestKind;
use crate::model::time::Span;
use crate::model::topology::Pins;

/// `GET /cluster/resources`. Existence, host, type, pool, tags and lock are immediate; names,
/// states and numbers are up to 10 s old, and a new clone shows none of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterResources {
    /// Hosts by name.
    pub hosts: BTreeMap<Arc<str>, HostResource>,
    /// VMs and containers by VMID.
    pub guests: BTreeMap<u32, GuestResource>,
    /// Storages by host and name.
    pub storages: BTreeMap<Arc<str>, BTreeMap<Arc<str>, StorageResource>>,
}

/// A host in the resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostResource {
    /// `status: online`.
    pub online: bool,
    /// Logical CPUs; 0 when unknown.
    pub cpus: u32,
    /// CPU in use, 0 to 1.
    pub cpu_used: f64,
    /// Installed memory in bytes; 0 when unknown.
    pub memory: i64,
    /// Memory in use in bytes.
    pub memory_used: i64,
    /// Seconds since it booted.
    pub uptime: i64,
    /// `hastate` is `maintenance`: somebody told the HA manager to empty it.
    pub maintenance: bool,
    /// Why PVE's row cannot be read: it is there, and nothing of what it has is known.
    pub odd: Option<ForeignText>,
}

/// What counts of a guest that is not ours: what its host has to keep for it, and the addresses that nobody else may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestPromise {
    /// It starts with its host.
    pub onboot: bool,
    /// The memory that ballooning leaves it at least, in bytes; `None`: all of it.
    pub memory_min: Option<i64>,
    /// The fixed addresses that its configuration gives it, each once.
    pub addresses: Vec<IpAddr>,
    /// The PCI devices that its configuration gives it.
    pub devices: Vec<PciUse>,
    /// The CPUs and NUMA nodes that its configuration keeps for it; `None` where that cannot be read.
    pub pins: Option<Pins>,
}

/// The fixed addresses in a guest's configuration: of `ipconfigN` for a VM, of `netN` for a container.
pub(super) fn addresses<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<IpAddr> {
    let numbered = |key: &str, stem: &str| {
        let number = key.strip_prefix(stem);
        number.is_some_and(|number| number.parse::<u8>().is_ok())
    };
    let pairs = pairs.filter(|(key, _)| numbered(key, "ipconfig") || numbered(key, "net"));
    let all = pairs.flat_map(|(_, value)| fixed_addresses(value));
    all.collect::<BTreeSet<IpAddr>>().into_iter().collect()
}

impl GuestPromise {
    /// Reads the data of `GET /nodes/{node}/{qemu,lxc}/{vmid}/config`.
    pub fn read(data: &Value) -> GuestPromise {
        let fields = Fields::of(data);
        // 0 switches the balloon off.
        let least = fields.integer("balloon").filter(|mib| *mib > 0);
        GuestPromise {
            onboot: fields.flag("onboot"),
            memory_min: least.map(|mib| mib.saturating_mul(1 << 20)),
            addresses: {
                let pairs = data.as_object().into_iter().flatten();
                addresses(pairs.filter_map(|(key, value)| Some((&**key, value.as_str()?))))
            },
            devices: {
                let pairs = data.as_object().into_iter().flatten();
                PciUse::all(pairs.filter_map(|(key, value)| Some((&**key, value.as_str()?))))
            },
            pins: {
                let pairs = data.as_object().into_iter().flatten();
                let pairs = pairs.filter_map(|(key, value)| Some((key, perl::text(value)?)));
                let pairs: Vec<(&String, String)> = pairs.collect();
                Pins::of(pairs.iter().map(|(key, value)| (&***key, &**value)))
            },
        }
    }
}

/// A VM or container in the resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestResource {
    /// VM or container.
    pub kind: GuestKind,
    /// The host that the guest is on.
    pub host: Arc<str>,
    /// Name; empty while unknown.
    pub name: Arc<str>,
    /// `running`, `stopped`, `unknown` …
    pub status: Arc<str>,
    /// A template.
    pub template: bool,
    /// The configuration's lock.
    pub lock: Option<Arc<str>>,
    /// PVE resource pool.
    pub pool: Option<Arc<str>>,
    /// Tags, as PVE separates them; lower-cased and sorted by PVE's settings.
    pub tags: Vec<String>,
    /// State by HA, when HA manages it.
    pub ha_state: Option<Arc<str>>,
    /// Configured logical CPUs.
    pub cpus: u32,
    /// Configured memory in bytes.
    pub memory: i64,
    /// Size of the boot disk in bytes.
    pub disk: i64,
    /// Seconds since it started.
    pub uptime: i64,
    /// Why PVE's row cannot be read: it is there, and what is told of it beside its VMID may be untrue. Its host is empty where
    /// that is not known.
    pub odd: Option<ForeignText>,
}

/// A storage on a host in the resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageResource {
    /// `status: available`.
    pub active: bool,
    /// Whether every host sees the same volumes on it.
    pub shared: bool,
    /// Size in bytes.
    pub total: i64,
    /// In use in bytes.
    pub used: i64,
    /// Bytes that nobody but root can use: the list of all resources does not tell it ([`crate::pve::Client::kept_space`]).
    pub kept: i64,
    /// `lvmthin`, `dir`, `rbd` …
    pub plugin: Arc<str>,
    /// What its volumes lie in: the list of all resources does not tell it ([`crate::pve::Client::storage_backings`]).
    pub backing: Option<Arc<str>>,
    /// What may lie on it: `images`, `snippets` …
    pub content: Vec<String>,
}

impl ClusterResources {
    /// Whether PVE shows this host online.
    pub fn is_online(&self, host: &str) -> bool {
        self.hosts.get(host).is_some_and(|host| host.online)
    }

    pub(super) fn read(data: &Value) -> ClusterResources {
        let mut resources = ClusterResources::default();
        for entry in data.as_array().into_iter().flatten() {
            let fields = Fields::of(entry);
            let Some(host) = fields.text("node").map(Arc::<str>::from) else {
                continue;
            };
            match fields.text("type").as_deref() {
                Some("node") => {
                    resources.hosts.insert(host, HostResource::read(fields));
                }
                Some(kind @ ("qemu" | "lxc")) => {
                    if let Ok(vmid) = u32::try_from(fields.integer("vmid").unwrap_or(-1)) {
                        let guest = GuestResource::read(kind, host, fields);
                        resources.guests.insert(vmid, guest);
                    }
                }
                Some("storage") => {
                    if let Some(storage) = fields.text("storage") {
                        let of_host = resources.storages.entry(host).or_default();
                        of_host.insert(storage.into(), StorageResource::read(fields));
                    }
                }
                _ => {}
            }
        }
        resources
    }
}

impl HostResource {
    fn read(fields: Fields<'_>) -> HostResource {
        let memory = fields.integer("maxmem").unwrap_or(0);
        HostResource {
            // What cannot be read is not off.
            online: fields
                .text("status")
                .is_none_or(|status| status == "online"),
            cpus: fields.count("maxcpu"),
            // What is not told is in use.
            cpu_used: fields.number("cpu").unwrap_or(1.0),
            memory,
            memory_used: fields.integer("mem").unwrap_or(memory),
            odd: fields.text(ODD).map(ForeignText::from),
            uptime: fields.integer("uptime").unwrap_or(0),
            maintenance: fields.text("hastate").as_deref() == Some("maintenance"),
        }
    }

    /// CPU in use in thousandths of a logical CPU.
    fn cpu_used_milli(&self) -> i64 {
        // Thousandths of what a host has are far within what 52 bits hold; what PVE says beyond its bounds is cut off.
        #[allow(clippy::cast_possible_truncation)]
        let permille = (self.cpu_used.clamp(0.0, 1.0) * 1000.0).round() as i64;
        permille.saturating_mul(i64::from(self.cpus))
    }
}

impl GuestResource {
    fn read(kind: &str, host: Arc<str>, fields: Fields<'_>) -> GuestResource {
        let name = |key: &str| fields.text(key).filter(|text| !text.is_empty());
        GuestResource {
            kind: match kind {
                "lxc" => GuestKind::Lxc,
                _ => GuestKind::Qemu,
            },
            host,
            name: name("name").unwrap_or_default().into(),
            status: name("status").unwrap_or_else(|| "unknown".into()).into(),
            template: fields.flag("template"),
            lock: name("lock").map(Arc::from),
            pool: name("pool").map(Arc::from),
            tags: list(&fields.text("tags").unwrap_or_default()),
            ha_state: name("hastate").map(Arc::from),
            cpus: cpus(fields),
            memory: fields.integer("maxmem").unwrap_or(0),
            disk: fields.integer("maxdisk").unwrap_or(0),
            uptime: fields.integer("uptime").unwrap_or(0),
            odd: fields.text(ODD).map(ForeignText::from),
        }
    }

    /// Why nobody knows on which host it is, if its row cannot be read and does not tell.
    pub fn unplaced(&self, vmid: u32) -> Option<String> {
        let why = self.odd.as_ref().filter(|_| self.host.is_empty())?;
        Some(format!("PVE's row of VM {vmid} cannot be read: {why}"))
    }

    /// It holds its memory: up to 10 s old. PVE shows QEMU's own word here (`running`, `paused`,
    /// `prelaunch`, `io-error` …), `stopped` when there is no process and `unknown` when its host says nothing.
    pub fn running(&self) -> bool {
        !matches!(&*self.status, "stopped" | "unknown" | "")
    }
}

/// The CPUs of a guest. A container without `cores` shows its `cpulimit`, which may be half a CPU: a part of one counts as one
/// (pve-container, `PVE::LXC::vmstatus`).
fn cpus(fields: Fields<'_>) -> u32 {
    let whole = fields.count("maxcpu");
    let told = fields.number("maxcpu").unwrap_or(0.0);
    if told > f64::from(whole) {
        whole.saturating_add(1)
    } else {
        whole
    }
}

impl StorageResource {
    /// Free bytes.
    pub fn free(&self) -> i64 {
        let left = self.total.saturating_sub(self.used);
        left.saturating_sub(self.kept).max(0)
    }

    /// Whether a disk takes its whole size when it is made.
    pub fn is_thick(&self) -> bool {
        THICK.contains(&&*self.plugin)
    }

    /// Whether images are files on it: then its file system may keep some of it for root.
    pub fn has_files_of_images(&self) -> bool {
        FILES.contains(&&*self.plugin) && self.content.iter().any(|content| content == "images")
    }

    fn read(fields: Fields<'_>) -> StorageResource {
        let space = ["maxdisk", "disk"].into_iter();
        let mut space = space.filter_map(|key| fields.get(key));
        let believed = space.all(|value| is_amount(value, MOST_BYTES));
        StorageResource {
            // Of one whose numbers cannot be believed nobody knows what is free.
            active: believed && fields.text("status").as_deref() == Some("available"),
            shared: fields.flag("shared"),
            total: fields.integer("maxdisk").unwrap_or(0),
            used: fields.integer("disk").unwrap_or(0),
            kept: 0,
            backing: None,
            plugin: fields.text("plugintype").unwrap_or_default().into(),
            content: list(&fields.text("content").unwrap_or_default()),
        }
    }
}

impl From<&HostResource> for region::Host {
    fn from(host: &HostResource) -> region::Host {
        region::Host {
            online: host.online,
            cpus: host.cpus,
            memory: host.memory,
            memory_used: host.memory_used,
            cpu_used_milli: host.cpu_used_milli(),
            maintenance: host.maintenance,
            evacuated: None,
            uptime: Span(host.uptime.max(0).saturating_mul(1_000)),
            clock_ahead: None,
            load: None,
            bridges: None,
            unread: host.odd.clone(),
            silent: false,
        }
    }
}

impl From<&GuestResource> for region::Vm {
    /// Without ownership, which only the configuration tells.
    fn from(guest: &GuestResource) -> region::Vm {
        region::Vm {
            host: Arc::clone(&guest.host),
            kind: guest.kind,
            name: Arc::clone(&guest.name),
            running: guest.running(),
            template: guest.template,
            lock: guest.lock.clone(),
            ha: guest.ha_state.is_some(),
            cpus: guest.cpus,
            memory: guest.memory,
            memory_min: None,
            onboot: false,
            uuid: None,
            ownership: None,
            trial_of: None,
            addresses: None,
            devices: None,
            pins: None,
            disks: BTreeMap::new(),
            unread: guest.odd.clone(),
        }
    }
}

impl From<&StorageResource> for region::Storage {
    fn from(storage: &StorageResource) -> region::Storage {
        region::Storage {
            active: storage.active,
            shared: storage.shared,
            free: storage.free(),
            total: storage.total,
            thick: storage.is_thick(),
            backing: storage.backing.clone(),
        }
    }
}

/// Storages whose volumes are files of a file system (`PVE::Storage::DirPlugin` and those that are like it).
const FILES: [&str; 6] = ["btrfs", "cephfs", "cifs", "dir", "glusterfs", "nfs"];
/// Storages on which a volume takes all its space when it is made (`PVE::Storage::LVMPlugin`, `ISCSIPlugin`).
const THICK: [&str; 3] = ["lvm", "iscsi", "iscsidirect"];

/// PVE's lists: separated by comma, semicolon or blanks.
fn list(text: &str) -> Vec<String> {
    text.split(|c: char| c == ',' || c == ';' || c.is_whitespace())
        .filter(|item| !item.is_empty())
        .map(str::to_owned)
        .collect()
}
