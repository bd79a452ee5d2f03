//! Which copy of its pool's template a machine on a host is cloned from, and why there is none.

use std::sync::Arc;

use model::policy::PoolPolicy;
use model::reasons::HostRefused;
use model::region::{Region, TemplateCopy};

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
        let lack =
            lack(region, (pool, copy), host).or_else(|| unknown_size(region, (pool, copy), host));
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
/// hosts only, or shows as not available.
fn lack(
    region: &Region,
    (pool, copy): (&PoolPolicy, &TemplateCopy),
    host: &str,
) -> Option<HostRefused> {
    let shared = copy.shared_addresses.iter();
    // A network of the pool takes the place of the template's address.
    let mut shared = shared.filter(|(card, _)| !pool.networks.contains_key(card));
    let fault = copy.fault.as_ref();
    if let Some(fault) = fault.or_else(|| shared.next().map(|(_, told)| told)) {
        return Some(HostRefused::TemplateFault {
            fault: fault.clone(),
        });
    }
    let storages = region.storages.get(host);
    copy.disks.iter().find_map(|disk| {
        let name: &Arc<str> = &disk.storage;
        match storages.and_then(|storages| storages.get(name)) {
            Some(storage) if storage.active => None,
            Some(_) => Some(HostRefused::StorageInactive {
                storage: name.clone(),
                template: copy.vmid,
            }),
            None => {
                let shown = region.storages.values().any(|of| of.contains_key(name));
                shown.then(|| HostRefused::NoStorage {
                    storage: name.clone(),
                    template: copy.vmid,
                })
            }
        }
    })
}

/// A storage that clones go to, of which a part is to stay free and no host tells how large it is.
fn unknown_size(
    region: &Region,
    (pool, copy): (&PoolPolicy, &TemplateCopy),
    host: &str,
) -> Option<HostRefused> {
    pool.host_rules.min_free_storage?;
    let is_sized = |name: &str| {
        region.storages.iter().any(|(at, storages)| {
            let storage = storages.get(name);
            storage.is_some_and(|of| of.total > 0 && (of.shared || **at == *host))
        })
    };
    let unknown = copy.disks.iter().find(|disk| !is_sized(&disk.storage));
    unknown.map(|disk| HostRefused::StorageUnknown {
        storage: disk.storage.clone(),
    })
}
