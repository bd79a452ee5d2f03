//! Which copy of its pool's template a machine on a host is cloned from, and why there is none.

use std::sync::Arc;

use model::foreign::ForeignText;
use model::policy::PoolPolicy;
use model::reasons::{HostRefused, Refused};
use model::region::{Host, Region, TemplateCopy, TemplateDisk};
use model::time::Time;

/// Why a host clones no copy of a pool's template: those reasons of [`HostRefused`] for which no machine of any type is made there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyRefused {
    /// The host is not online.
    Offline,
    /// The host is in the HA manager's maintenance.
    Maintenance,
    /// A person evacuates the host.
    Evacuated {
        /// Since when.
        since: Time,
    },
    /// PVE does not tell what the host has, or the host answers no call.
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
    /// A storage that is listed for a disk is not shared, and PVE clones it to another host onto a shared one only.
    StorageNotShared {
        /// The storage.
        storage: Arc<str>,
        /// The template's VMID.
        template: u32,
    },
    /// None of the storages that are listed for a disk can have it there.
    NoneOfStorages {
        /// Why each cannot, in the order of the list.
        each: Vec<CopyRefused>,
    },
    /// It has not a bridge that network cards of the machine are on, and other hosts have it.
    NoBridge {
        /// The bridge or VNet.
        bridge: Arc<str>,
    },
    /// How large a storage there is is not known, and `min_free_storage` is set.
    StorageUnknown {
        /// The storage.
        storage: Arc<str>,
    },
}

impl CopyRefused {
    /// It in words, as decisions say it of `host`.
    pub fn words(self, host: &str) -> String {
        let refused = Refused::Host {
            host: host.into(),
            refusal: self.into(),
        };
        refused.to_string()
    }
}

impl From<CopyRefused> for HostRefused {
    fn from(refused: CopyRefused) -> HostRefused {
        match refused {
            CopyRefused::Offline => HostRefused::Offline,
            CopyRefused::Maintenance => HostRefused::Maintenance,
            CopyRefused::Evacuated { since } => HostRefused::Evacuated { since },
            CopyRefused::Unread { why } => HostRefused::Unread { why },
            CopyRefused::NoTemplate {
                template,
                seen,
                tied,
            } => HostRefused::NoTemplate {
                template,
                seen,
                tied,
            },
            CopyRefused::TemplateFault { fault } => HostRefused::TemplateFault { fault },
            CopyRefused::StorageInactive { storage, template } => {
                HostRefused::StorageInactive { storage, template }
            }
            CopyRefused::NoStorage { storage, template } => {
                HostRefused::NoStorage { storage, template }
            }
            CopyRefused::StorageNotShared { storage, template } => {
                HostRefused::StorageNotShared { storage, template }
            }
            CopyRefused::NoneOfStorages { each } => HostRefused::NoneOfStorages {
                each: each.into_iter().map(HostRefused::from).collect(),
            },
            CopyRefused::NoBridge { bridge } => HostRefused::NoBridge { bridge },
            CopyRefused::StorageUnknown { storage } => HostRefused::StorageUnknown { storage },
        }
    }
}

/// The template copy to clone for a machine on `host`: the one on that host, else a shared one whose host answers (the
/// clone call goes there). Its clones' storages and the bridges of its cards must be on the host, where PVE shows them at all, and the
/// storages of a known size where the pool leaves a part of them free.
pub(crate) fn copy<'a>(
    region: &'a Region,
    pool: &PoolPolicy,
    host: &str,
) -> Result<&'a TemplateCopy, CopyRefused> {
    let copies = region
        .templates
        .get(&pool.template)
        .map_or(&[][..], Vec::as_slice);
    let answers = |name: &str| region.hosts.get(name).is_some_and(Host::answers);
    if !region.hosts.get(host).is_some_and(|seen| seen.online) {
        return Err(CopyRefused::Offline);
    }
    if region.hosts.get(host).is_some_and(|host| host.maintenance) {
        return Err(CopyRefused::Maintenance);
    }
    if let Some(since) = region.hosts.get(host).and_then(|host| host.evacuated) {
        return Err(CopyRefused::Evacuated { since });
    }
    let unread = region.hosts.get(host).and_then(|host| host.unread.as_ref());
    if let Some(why) = unread {
        return Err(CopyRefused::Unread { why: why.clone() });
    }
    let within = copies
        .iter()
        .filter(|copy| *copy.host == *host || (copy.shared && answers(&copy.host)));
    let mut lacks = None;
    let clonable = within.filter(|copy| {
        let lack = lack(region, (pool, copy), host);
        let complete = lack.is_none();
        lacks = lacks.take().or(lack);
        complete
    });
    let found = clonable.min_by_key(|copy| (copy.redefined, *copy.host != *host, *copy));
    found.ok_or_else(|| {
        lacks.unwrap_or_else(|| CopyRefused::NoTemplate {
            template: pool.template.clone(),
            seen: copies.len(),
            tied: copies.iter().find_map(|copy| copy.tied.clone()),
        })
    })
}

/// What a host lacks for a clone of a template: a template of which machines of the pool can come, a storage or a bridge that PVE shows on
/// other hosts only, or a storage that it shows as not available or tells no size of.
fn lack(region: &Region, at: (&PoolPolicy, &TemplateCopy), host: &str) -> Option<CopyRefused> {
    let (pool, copy) = at;
    let shared = copy.shared_addresses.iter();
    // A network of the pool takes the place of the template's address.
    let mut shared = shared.filter(|(card, _)| !pool.networks.contains_key(card));
    let fault = copy.fault.as_ref();
    if let Some(fault) = fault.or_else(|| shared.next().map(|(_, told)| told)) {
        return Some(CopyRefused::TemplateFault {
            fault: fault.clone(),
        });
    }
    let of_storage = copy.disks.iter().find_map(|disk| {
        if disk.or.is_empty() {
            return lack_of(region, at, host, (disk, &disk.storage));
        }
        let usable = usable(region, at, host, disk);
        let lack = |name: &Arc<str>| {
            let lack = lack_of(region, at, host, (disk, name));
            lack.unwrap_or_else(|| CopyRefused::NoStorage {
                storage: name.clone(),
                template: copy.vmid,
            })
        };
        usable.is_empty().then(|| CopyRefused::NoneOfStorages {
            each: disk.storages().map(lack).collect(),
        })
    });
    of_storage.or_else(|| no_bridge(region, copy, host))
}

/// A bridge of the machine's cards that a host does not have, by its own word. One that no host has counts as one of which PVE does not tell:
/// it tells those of a host's `/etc/network/interfaces` alone, and whether a VM starts there only its start shows.
fn no_bridge(region: &Region, copy: &TemplateCopy, host: &str) -> Option<CopyRefused> {
    let here = region.hosts.get(host)?.bridges.as_ref()?;
    let mut told = copy.bridges.iter().filter(|bridge| {
        let mut of_hosts = region.hosts.values().filter_map(|of| of.bridges.as_ref());
        of_hosts.any(|of| of.contains(*bridge))
    });
    let bridge = told.find(|bridge| !here.contains(*bridge))?;
    Some(CopyRefused::NoBridge {
        bridge: bridge.clone(),
    })
}

/// The storages on which a host can have a disk, of those that the file lists for it and in its order, whether or not they have room. Where
/// no host shows any of them PVE may not tell of storages, and nobody knows that they are not there.
pub(crate) fn usable<'a>(
    region: &Region,
    at: (&PoolPolicy, &TemplateCopy),
    host: &str,
    disk: &'a TemplateDisk,
) -> Vec<&'a Arc<str>> {
    let fit = |name: &&Arc<str>| lack_of(region, at, host, (disk, name)).is_none();
    let shown = |name: &&Arc<str>| {
        let storages = region.storages.get(host);
        storages.is_some_and(|storages| storages.contains_key(*name))
    };
    let on_some_host = |name: &Arc<str>| region.storages.values().any(|of| of.contains_key(name));
    if disk.storages().any(on_some_host) {
        return disk.storages().filter(shown).filter(fit).collect();
    }
    disk.storages().filter(fit).collect()
}

/// What keeps one storage of a host from having a disk of a template's clones, whatever is free on it.
fn lack_of(
    region: &Region,
    (pool, copy): (&PoolPolicy, &TemplateCopy),
    host: &str,
    (disk, name): (&TemplateDisk, &Arc<str>),
) -> Option<CopyRefused> {
    let storages = region.storages.get(host);
    let (storage, template) = (name.clone(), copy.vmid);
    // A copy whose clones come to one storage says itself whether other hosts can have some.
    let of_list = !disk.or.is_empty() && disk.slot.is_none();
    match storages.and_then(|storages| storages.get(name)) {
        Some(seen) if !seen.active => Some(CopyRefused::StorageInactive { storage, template }),
        // What PVE clones to another host is on shared storage from its first moment on; a further disk is made where the VM is by then.
        Some(seen) if !seen.shared && of_list && *copy.host != *host => {
            Some(CopyRefused::StorageNotShared { storage, template })
        }
        Some(_) => unknown_size(region, pool, host, name),
        None => {
            let shown = region.storages.values().any(|of| of.contains_key(name));
            if shown {
                return Some(CopyRefused::NoStorage { storage, template });
            }
            unknown_size(region, pool, host, name)
        }
    }
}

/// A storage that clones go to, of which a part is to stay free and no host tells how large it is.
fn unknown_size(
    region: &Region,
    pool: &PoolPolicy,
    host: &str,
    name: &Arc<str>,
) -> Option<CopyRefused> {
    pool.host_rules.min_free_storage?;
    let is_sized = region.storages.iter().any(|(at, storages)| {
        let storage = storages.get(name);
        storage.is_some_and(|of| of.total > 0 && (of.shared || **at == *host))
    });
    (!is_sized).then(|| CopyRefused::StorageUnknown {
        storage: name.clone(),
    })
}
