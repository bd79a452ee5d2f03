//! Which copy of its pool's template a machine on a host is cloned from, and why there is none.

use std::sync::Arc;

use model::policy::PoolPolicy;
use model::region::{Region, TemplateCopy};

/// The template copy to clone for a machine on `host`: the one on that host, else a shared one whose host is online (the
/// clone call goes there). Its clones' storages must be on the host, where PVE shows them at all.
pub(crate) fn copy<'a>(
    region: &'a Region,
    pool: &PoolPolicy,
    host: &str,
) -> Result<&'a TemplateCopy, String> {
    let copies = region
        .templates
        .get(&pool.template)
        .map_or(&[][..], Vec::as_slice);
    let online = |host: &str| region.hosts.get(host).is_some_and(|host| host.online);
    if !online(host) {
        return Err(format!("the host {host} is not online"));
    }
    if region.hosts.get(host).is_some_and(|host| host.maintenance) {
        return Err(format!(
            "the host {host} is in maintenance (the HA manager's)"
        ));
    }
    let within = copies
        .iter()
        .filter(|copy| *copy.host == *host || (copy.shared && online(&copy.host)));
    let mut lacks = None;
    let clonable = within.filter(|copy| {
        let lack = lack(region, copy, host);
        let complete = lack.is_none();
        lacks = lacks.take().or(lack);
        complete
    });
    let found = clonable.min_by_key(|copy| (*copy.host != *host, *copy));
    found.ok_or_else(|| {
        lacks.unwrap_or_else(|| {
            format!(
                "the template {} has no copy that the host {host} can clone ({} seen)",
                pool.template,
                copies.len()
            )
        })
    })
}

/// What a host lacks for a clone of a template: a template of which machines can come, or a storage that PVE shows on other hosts only, or shows as not available.
fn lack(region: &Region, copy: &TemplateCopy, host: &str) -> Option<String> {
    if let Some(fault) = &copy.fault {
        return Some(format!("no machine is made of the template: {fault}"));
    }
    let storages = region.storages.get(host);
    copy.disks.iter().find_map(|disk| {
        let name: &Arc<str> = &disk.storage;
        match storages.and_then(|storages| storages.get(name)) {
            Some(storage) if storage.active => None,
            Some(_) => Some(format!(
                "the storage {name} is not available on the host {host}, and clones of template {} go there",
                copy.vmid
            )),
            None => {
                let shown = region.storages.values().any(|of| of.contains_key(name));
                shown.then(|| {
                    format!(
                        "the host {host} has no storage {name}, and clones of template {} go there",
                        copy.vmid
                    )
                })
            }
        }
    })
}
