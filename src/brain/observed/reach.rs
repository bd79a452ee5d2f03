//! Which copy of its pool's template a machine on a host is cloned from, and why there is none.

use std::sync::Arc;

use model::policy::PoolPolicy;
use model::reasons::HostRefused;
use model::region::{Region, TemplateCopy, TemplateDisk};

/// The template copy to clone for a machine on `host`: the one on that host, else a shared one whose host is online (the
/// clone call goes there). Its clones' storages must be on the host, where PVE shows them at all, and of a known size where the pool
/// leaves a part of them free.
pub(crate) fn copy<'a>(
    region: &'a Region,
    pool: &PoolPolicy,
    host: &str,
) -> Result<&'a TemplateCopy, HostRefused> {
    let copies = region
        .templates
        .get(&pool.template)
        .map_or(&[][..], Vec::as_slice);
    let online = |name: &str| region.hosts.get(name).is_some_and(|seen| seen.online);
    if !online(host) {
        return Err(HostRefused::Offline);
    }
    if region.hosts.get(host).is_some_and(|host| host.maintenance) {
        return Err(HostRefused::Maintenance);
    }
    if let Some(since) = region.hosts.get(host).and_then(|host| host.evacuated) {
        return Err(HostRefused::Evacuated { since });
    }
    let unread = region.hosts.get(host).and_then(|host| host.unread.as_ref());
    if let Some(why) = unread {
        return Err(HostRefused::Unread { why: why.clone() });
    }
    let within = copies
        .iter()
        .filter(|copy| *copy.host == *host || (copy.shared && online(&copy.host)));
    let mut lacks = None;
    let clonable = within.filter(|copy| {
        let lack = lack(region, (pool, copy), host);
        let complete = lack.is_none();
        lacks = lacks.take().or(lack);
        complete
    });
    let found = clonable.min_by_key(|copy| (copy.redefined, *copy.host != *host, *copy));
    found.ok_or_else(|| {
        lacks.unwrap_or_else(|| HostRefused::NoTemplate {
            template: pool.template.clone(),
            seen: copies.len(),
            tied: copies.iter().find_map(|copy| copy.tied.clone()),
        })
    })
}

/// What a host lacks for a clone of a template: a template of which machines of the pool can come, or a storage that PVE shows on other
/// hosts only, shows as not available, or tells no size of.
fn lack(region: &Region, at: (&PoolPolicy, &TemplateCopy), host: &str) -> Option<HostRefused> {
    let (pool, copy) = at;
    let shared = copy.shared_addresses.iter();
    // A network of the pool takes the place of the template's address.
    let mut shared = shared.filter(|(card, _)| !pool.networks.contains_key(card));
    let fault = copy.fault.as_ref();
    if let Some(fault) = fault.or_else(|| shared.next().map(|(_, told)| told)) {
        return Some(HostRefused::TemplateFault {
            fault: fault.clone(),
        });
    }
    copy.disks.iter().find_map(|disk| {
        if disk.or.is_empty() {
            return lack_of(region, at, host, (disk, &disk.storage));
        }
        let mut usable = usable(region, at, host, disk).into_iter();
        usable
            .next()
            .is_none()
            .then(|| HostRefused::NoneOfStorages {
                each: disk
                    .storages()
                    .map(|name| {
                        let lack = lack_of(region, at, host, (disk, name));
                        lack.unwrap_or_else(|| HostRefused::NoStorage {
                            storage: name.clone(),
                            template: copy.vmid,
                        })
                    })
                    .collect(),
            })
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
) -> Option<HostRefused> {
    let storages = region.storages.get(host);
    let (storage, template) = (name.clone(), copy.vmid);
    // A copy whose clones come to one storage says itself whether other hosts can have some.
    let of_list = !disk.or.is_empty() && disk.slot.is_none();
    match storages.and_then(|storages| storages.get(name)) {
        Some(seen) if !seen.active => Some(HostRefused::StorageInactive { storage, template }),
        // What PVE clones to another host is on shared storage from its first moment on; a further disk is made where the VM is by then.
        Some(seen) if !seen.shared && of_list && *copy.host != *host => {
            Some(HostRefused::StorageNotShared { storage, template })
        }
        Some(_) => unknown_size(region, pool, host, name),
        None => {
            let shown = region.storages.values().any(|of| of.contains_key(name));
            if shown {
                return Some(HostRefused::NoStorage { storage, template });
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
) -> Option<HostRefused> {
    pool.host_rules.min_free_storage?;
    let is_sized = region.storages.iter().any(|(at, storages)| {
        let storage = storages.get(name);
        storage.is_some_and(|of| of.total > 0 && (of.shared || **at == *host))
    });
    (!is_sized).then(|| HostRefused::StorageUnknown {
        storage: name.clone(),
    })
}
