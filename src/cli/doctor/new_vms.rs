//! Machines that are made of settings: whether each host that gets some has the storage, the image and the ISO.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::finding::Findings;
use super::region::SeenRegion;
use super::templates;
use crate::config::new_vm::NewVm;

/// Looks at what VMs are made of in a region.
pub(super) async fn look(region: &SeenRegion, findings: &mut Findings) {
    let (name, settings) = (&*region.region.name, &*region.region.here.settings);
    for (template, of) in templates::of(name, settings) {
        let Some(new) = &of.new_vm else {
            continue;
        };
        let pools = settings.policy.pools.values();
        let pools = pools.filter_map(|pool| pool.of_template(template));
        let pools: Vec<_> = pools.collect();
        let hosts = region.seen.resources.hosts.iter();
        let hosts = hosts.filter(|(host, about)| {
            about.online && (pools.is_empty() || pools.iter().any(|pool| pool.may_use(host)))
        });
        let mut lacking: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        let mut whole = Vec::new();
        for (host, _) in hosts {
            match lack(region, host, new).await {
                None => whole.push(&**host),
                Some(why) => lacking.entry(why).or_default().push(host),
            }
        }
        for (why, hosts) in &lacking {
            findings
                .wrong(format!(
                    "template {template}: no machine is made on {}: {why}",
                    hosts.join(", ")
                ))
                .mend("bring it there, or name other hosts for the pools (hosts, exclude_hosts)");
        }
        if !whole.is_empty() {
            findings.fine(format!(
                "template {template}: VMs are made of settings on {}",
                whole.join(", ")
            ));
        }
    }
}

/// What a host lacks.
async fn lack(region: &SeenRegion, host: &Arc<str>, new: &NewVm) -> Option<String> {
    let create = &new.create;
    let storages = region.seen.resources.storages.get(host);
    let storage = &create.storage;
    match storages.and_then(|of| of.get(storage.as_str())) {
        None => return Some(format!("it has no storage {storage}")),
        Some(found) if !found.active => {
            return Some(format!("its storage {storage} is not available"));
        }
        Some(found) if !found.content.iter().any(|content| content == "images") => {
            return Some(format!(
                "its storage {storage} is not for VM disks (content images)"
            ));
        }
        Some(_) => {}
    }
    for (content, volume) in [("import", &create.image), ("iso", &create.iso)] {
        let Some(volume) = volume else { continue };
        let storage = volume.split(':').next().unwrap_or_default();
        match region.region.client.files(host, storage, content).await {
            Ok(there) if there.contains(volume) => {}
            Ok(_) => return Some(format!("there is no {volume}")),
            Err(error) => return Some(format!("{volume} could not be looked for: {error}")),
        }
    }
    None
}
