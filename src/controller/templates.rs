//! Where the configured templates are, and what a clone of each would have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::config::file::Firmware;
use crate::config::new_vm::NewVm;
use crate::config::settings::TemplateSettings;
use crate::controller::inspection;
use crate::controller::template_mark::is_of_another_definition;
use crate::model::action::NO_TEMPLATE;
use crate::model::region::{GuestKind, RegionName, TemplateCopy, TemplateDisk};
use crate::pve::{ClusterResources, Disk, GuestResource, Net, VmConfig};

/// What an EFI disk takes: that of PVE's own firmware has 528 KiB, which storages of blocks round up to 4 MiB.
const EFI_DISK: i64 = 4 << 20;

/// The configured templates of a region.
#[derive(Clone, Copy, Debug)]
pub struct RegionTemplates<'a> {
    /// The region.
    pub region: &'a RegionName,
    /// Those of all regions.
    pub all: &'a BTreeMap<Arc<str>, TemplateSettings>,
}

impl<'a> RegionTemplates<'a> {
    fn own(self) -> impl Iterator<Item = (&'a Arc<str>, &'a TemplateSettings)> {
        let all = self.all.iter();
        all.filter(move |(_, template)| template.region == *self.region)
    }

    /// Whether a guest is a copy of one of them.
    pub(super) fn any_is(self, vmid: u32, guest: &GuestResource) -> bool {
        self.own().any(|(_, template)| is(vmid, guest, template))
    }

    /// The VMs that PVE lists as a copy of each of them, whether or not their configurations could be read.
    pub(super) fn named(self, resources: &ClusterResources) -> BTreeMap<Arc<str>, BTreeSet<u32>> {
        let of = |template: &TemplateSettings| {
            let guests = resources.guests.iter();
            let copies = guests.filter(|(vmid, guest)| is(**vmid, guest, template));
            copies.map(|(vmid, _)| *vmid).collect()
        };
        self.own()
            .map(|(name, template)| (name.clone(), of(template)))
            .collect()
    }

    /// Where each of them is, by what PVE lists and the configurations that were read.
    pub fn find<'c>(
        self,
        resources: &ClusterResources,
        config: impl Fn(u32) -> Option<&'c VmConfig>,
    ) -> BTreeMap<Arc<str>, Vec<TemplateCopy>> {
        let mut found = BTreeMap::new();
        for (name, template) in self.own() {
            if let Some(new) = &template.new_vm {
                let hosts = resources.hosts.keys();
                let each = hosts.map(|host| of_settings(new, template, host, resources));
                found.insert(name.clone(), each.collect());
                continue;
            }
            let guests = resources.guests.iter();
            let copies = guests.filter(|(vmid, guest)| is(**vmid, guest, template));
            let copies = copies.filter_map(|(vmid, guest)| {
                let config = config(*vmid).filter(|config| config.template)?;
                let tied = tied((*vmid, config), template, &guest.host, resources);
                Some(TemplateCopy {
                    vmid: *vmid,
                    fault: fault((*vmid, config), template, &guest.host, resources).map(Into::into),
                    shared_addresses: inspection::shared_addresses(*vmid, config, template)
                        .into_iter()
                        .map(|(card, why)| (card, why.into()))
                        .collect(),
                    bridges: bridges(&config.cards(), template),
                    host: guest.host.clone(),
                    shared: tied.is_none(),
                    tied: tied.map(Into::into),
                    disk: config
                        .boot_disk()
                        .and_then(|(_, disk)| disk.size)
                        .unwrap_or(0),
                    disks: disks(config, template, &guest.host, resources),
                    uuid: config.uuid.clone(),
                    redefined: is_of_another_definition(*vmid, config, template.build.as_deref()),
                })
            });
            found.insert(name.clone(), copies.collect());
        }
        found
    }
}

/// What stands for a template on a host where VMs are made of settings: every host can make one that has the storages.
fn of_settings(
    new: &NewVm,
    template: &TemplateSettings,
    host: &Arc<str>,
    resources: &ClusterResources,
) -> TemplateCopy {
    let names = || new.create.storage.iter();
    let boot = TemplateDisk {
        boot: true,
        ..disk_of(names(), host, resources)
    };
    let efi = (new.create.bios == Firmware::Ovmf).then(|| TemplateDisk {
        size: EFI_DISK,
        ..disk_of(names(), host, resources)
    });
    let own = std::iter::once(boot).chain(efi);
    let disks: Vec<TemplateDisk> = own.chain(further(template, host, resources)).collect();
    let fault = refused_disk(&disks, host, resources);
    TemplateCopy {
        vmid: NO_TEMPLATE,
        host: host.clone(),
        shared: false,
        tied: None,
        disk: 0,
        fault: fault.map(Into::into),
        shared_addresses: BTreeMap::new(),
        bridges: bridges(&BTreeMap::new(), template),
        disks,
        uuid: None,
        redefined: false,
    }
}

/// The bridges and VNets that the cards of a template's machines are on: those of the file, else those of the template's own cards.
fn bridges(own: &BTreeMap<u8, Net>, template: &TemplateSettings) -> BTreeSet<Arc<str>> {
    let of_file: BTreeMap<u8, Option<String>> = template
        .cards()
        .map(|(number, card)| (number, card.bridge))
        .collect();
    let numbers: BTreeSet<u8> = own.keys().chain(of_file.keys()).copied().collect();
    let bridges = numbers.iter().filter_map(|number| {
        let said = of_file.get(number).and_then(Option::as_deref);
        said.or_else(|| own.get(number)?.bridge.as_deref())
    });
    bridges.map(Arc::from).collect()
}

/// A disk that may lie on these storages. Those of several that PVE would put no disk of a VM on are left out, as long as one is left.
fn disk_of<'n>(
    names: impl Iterator<Item = &'n str>,
    host: &str,
    resources: &ClusterResources,
) -> TemplateDisk {
    let names: Vec<&str> = names.collect();
    let fit = |name: &&str| refuses_disks(name, host, resources).is_none();
    let mut fitting: Vec<&str> = names.iter().copied().filter(fit).collect();
    if fitting.is_empty() {
        fitting = names;
    }
    let mut fitting = fitting.into_iter().map(Arc::from);
    TemplateDisk {
        storage: fitting.next().unwrap_or_default(),
        or: fitting.collect(),
        ..TemplateDisk::default()
    }
}

/// Why no disk of a VM can be made on any of the storages that it may lie on.
fn refused_disk(
    disks: &[TemplateDisk],
    host: &str,
    resources: &ClusterResources,
) -> Option<String> {
    disks.iter().find_map(|disk| {
        let each = disk
            .storages()
            .map(|name| refuses_disks(name, host, resources));
        let each: Vec<String> = each.collect::<Option<_>>()?;
        Some(join_refusals(&each))
    })
}

/// Why each of several storages takes no disk; what helps stands behind a semicolon.
fn join_refusals(each: &[String]) -> String {
    if let [only] = each {
        return only.clone();
    }
    let whats = each
        .iter()
        .map(|why| why.split("; ").next().unwrap_or_default());
    format!(
        "{}; another storage in the template's table",
        whats.collect::<Vec<_>>().join(", and ")
    )
}

/// Why no machine is made of a copy of a template: it, or PVE, would make none that works.
fn fault(
    (vmid, config): (u32, &VmConfig),
    template: &TemplateSettings,
    host: &str,
    resources: &ClusterResources,
) -> Option<String> {
    let plugin = |storage: &str| {
        let storage = resources.storages.get(host)?.get(storage)?;
        Some(storage.plugin.clone())
    };
    let unlinkable = || inspection::unlinkable(vmid, config, plugin);
    let new_disks = disks(config, template, host, resources);
    inspection::obstacle(vmid, config, template)
        .or_else(|| unlinkable().filter(|_| !template.full_clone))
        .or_else(|| {
            let why = refused_disk(&new_disks, host, resources);
            why.or_else(|| target_missing(template, host, resources))
                .map(|why| format!("VM {vmid}: {why}"))
        })
}

/// Why PVE makes no full clone to the storages that the template's table names: the template's host, where PVE makes all its clones,
/// has none of them (`clone_vm`, `storage_check_enabled`). Nothing where no host shows one of them: PVE may not tell of it.
pub fn target_missing(
    template: &TemplateSettings,
    host: &str,
    resources: &ClusterResources,
) -> Option<String> {
    let names = template.storage.as_ref().filter(|_| template.full_clone)?;
    let mut targets = names.iter();
    if targets.any(|name| is_target(name, host, resources)) {
        return None;
    }
    Some(if names.is_list() {
        format!(
            "clones go to the first of the storages {names} that is there, and PVE makes them on the template's host {host}, which has none of them; let {host} have one (Datacenter, Storage, Nodes), or list one that it has"
        )
    } else {
        format!(
            "clones go to the storage {names}, and PVE makes them on the template's host {host}, which does not have it; let {host} have it (Datacenter, Storage, Nodes), or another storage in the template's table"
        )
    })
}

/// Whether PVE may clone from a template's host to a storage: the host has it, or PVE tells of it nowhere.
fn is_target(name: &str, host: &str, resources: &ClusterResources) -> bool {
    let here = resources.storages.get(host);
    let there = || resources.storages.values().any(|of| of.contains_key(name));
    here.is_some_and(|of| of.contains_key(name)) || !there()
}

/// Why a storage that the template's table names takes no disk of a machine, by what PVE lists of it on a host; what is not listed
/// there is told otherwise.
fn refuses_disks(storage: &str, host: &str, resources: &ClusterResources) -> Option<String> {
    let found = resources.storages.get(host)?.get(storage)?;
    inspection::refuses_disks(storage, found)
}

fn is(vmid: u32, guest: &GuestResource, template: &TemplateSettings) -> bool {
    guest.kind == GuestKind::Qemu && template.means(vmid, guest.template, &guest.name, &guest.tags)
}

/// Whether a clone gets a volume of its own for a drive: a CD image is only named, the cloud-init drive is made anew
/// (`qemu-server`, `clone_vm`).
fn is_cloned(disk: &Disk) -> bool {
    !disk.storage.is_empty() && (disk.cloud_init || !disk.cdrom)
}

/// The disks that a machine gets: those of its clone, where the template's are, or on a storage that full clones go to, and further ones.
fn disks(
    config: &VmConfig,
    template: &TemplateSettings,
    host: &str,
    resources: &ClusterResources,
) -> Vec<TemplateDisk> {
    let named = template.storage.as_ref().filter(|_| template.full_clone);
    let named = named.map(|names| {
        let targets = names.iter().filter(|name| is_target(name, host, resources));
        let mut targets: Vec<&str> = targets.collect();
        if targets.is_empty() {
            targets = names.iter().collect();
        }
        disk_of(targets.into_iter(), host, resources)
    });
    let boot = config.boot_disk().map(|(key, _)| key);
    let cloned = config.disks.iter().filter(|(_, disk)| is_cloned(disk));
    let disks = cloned.map(|(key, disk)| {
        let own = || TemplateDisk {
            storage: disk.storage.clone(),
            ..TemplateDisk::default()
        };
        TemplateDisk {
            size: disk.size.unwrap_or(0),
            boot: boot == Some(key),
            ..named.clone().unwrap_or_else(own)
        }
    });
    disks.chain(further(template, host, resources)).collect()
}

/// The further disks of a machine. They are made right after its VM: they count with it, and a host that has not their storage
/// makes no such machine.
fn further<'t>(
    template: &'t TemplateSettings,
    host: &'t str,
    resources: &'t ClusterResources,
) -> impl Iterator<Item = TemplateDisk> + 't {
    let further = template.hardware.disks.iter();
    further.map(move |(slot, disk)| {
        let slot: Arc<str> = slot.as_str().into();
        TemplateDisk {
            size: disk.size,
            slot: disk.storage.is_list().then_some(slot),
            ..disk_of(disk.storage.iter(), host, resources)
        }
    })
}

/// Sizes of a VM's disks in bytes, summed up by storage.
pub(super) fn sizes(config: &VmConfig) -> BTreeMap<Arc<str>, i64> {
    let mut sizes: BTreeMap<Arc<str>, i64> = BTreeMap::new();
    for disk in config.disks.values().filter(|disk| is_cloned(disk)) {
        let sum = sizes.entry(disk.storage.clone()).or_default();
        *sum = sum.saturating_add(disk.size.unwrap_or(0).max(0));
    }
    sizes
}

/// Why PVE makes clones of a template on its own host alone (`clone_vm`: "VM uses local storage", "can't clone to non-shared
/// storage"): a drive of it, the cloud-init drive and images in CD drives too, or the storage that full clones go to is not shared.
fn tied(
    (vmid, config): (u32, &VmConfig),
    template: &TemplateSettings,
    host: &str,
    resources: &ClusterResources,
) -> Option<String> {
    let storages = resources.storages.get(host);
    let local = |name: &str| {
        let storage = storages.and_then(|storages| storages.get(name));
        match storage {
            Some(storage) if storage.shared => None,
            Some(_) => Some("is not shared".to_owned()),
            None => Some(format!("PVE does not show on {host}")),
        }
    };
    let mut drives = config.disks.iter();
    let of_drive = drives.find_map(|(key, disk)| {
        // The host's own CD drive is another one on each host.
        let nowhere = matches!(&*disk.volume, "none" | "cdrom");
        if !nowhere && disk.storage.is_empty() {
            return Some(format!("its {key} is {}, a path of that host", disk.volume));
        }
        let (name, how) = (&disk.storage, local(&disk.storage).filter(|_| !nowhere)?);
        Some(format!("its {key} is on {name}, which {how}"))
    });
    let targets = template.storage.as_ref().filter(|_| template.full_clone);
    let why = of_drive.or_else(|| {
        // One that other hosts have as well is enough.
        let each = targets?.iter().map(|name| Some((name, local(name)?)));
        let each: Vec<(&str, String)> = each.collect::<Option<_>>()?;
        let each = each
            .into_iter()
            .map(|(name, how)| format!("clones go to {name}, which {how}"));
        Some(each.collect::<Vec<_>>().join(", and "))
    })?;
    Some(format!(
        "VM {vmid} is cloned on its host {host} alone, since {why}"
    ))
}
