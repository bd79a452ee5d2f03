//! Machines that are made of settings: whether each host that gets some has the storage, the image and the ISO.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::broker;
use super::finding::Findings;
use super::region::SeenRegion;
use super::templates;
use crate::config::new_vm::NewVm;
use crate::config::storage_names::StorageNames;
use crate::controller::disk_storages;
use crate::pve::ClusterResources;

/// What a host lacks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CreationLack {
    /// It is as it says.
    Seen(String),
    /// This volume is not among what the broker tells, which tells no files but those of the file that it has read.
    Untold(String),
}

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
        let mut lacking: BTreeMap<CreationLack, Vec<&str>> = BTreeMap::new();
        let mut whole = Vec::new();
        let behind = broker::is_behind(&region.region.client, name, settings).await;
        for (host, _) in hosts {
            match lack(region, host, new, behind).await {
                None => whole.push(&**host),
                Some(why) => lacking.entry(why).or_default().push(host),
            }
        }
        for (why, hosts) in &lacking {
            tell(template, why, &hosts.join(", "), findings);
        }
        if !whole.is_empty() {
            let names = &new.create.storage;
            let whole = whole.into_iter().map(|host| {
                let chosen = disk_storages::choose(names, host, &region.seen.resources);
                match chosen.filter(|_| names.is_list()) {
                    Some(storage) => format!("{host} ({storage})"),
                    None => host.to_owned(),
                }
            });
            findings.fine(format!(
                "template {template}: VMs are made of settings on {}",
                whole.collect::<Vec<_>>().join(", ")
            ));
        }
    }
}

fn tell(template: &str, lack: &CreationLack, hosts: &str, findings: &mut Findings) {
    match lack {
        CreationLack::Seen(why) => findings
            .wrong(format!(
                "template {template}: no machine is made on {hosts}: {why}"
            ))
            .mend("bring it there, or name other hosts for the pools (hosts, exclude_hosts)"),
        // It is no fault of the file.
        CreationLack::Untold(volume) => findings
            .warning(format!(
                "template {template}: whether {volume} is on {hosts} shows when the broker has read this file"
            ))
            .mend("systemctl reload pve-autoscaler; pve-autoscaler doctor"),
    }
}

/// What keeps each of the listed storages from having disks on a host, in words that fit several hosts.
fn lacks_each(names: &StorageNames, host: &str, resources: &ClusterResources) -> String {
    let of_host = resources.storages.get(host);
    let each = names.iter().map(|name| {
        let found = of_host.and_then(|of_host| of_host.get(name));
        match found {
            None => format!("it has no storage {name}"),
            Some(found) if !found.active => format!("its storage {name} is not available"),
            Some(_) => format!("its storage {name} is not for VM disks (content images)"),
        }
    });
    each.collect::<Vec<_>>().join(", ")
}

/// What a host lacks.
async fn lack(
    region: &SeenRegion,
    host: &Arc<str>,
    new: &NewVm,
    broker_behind: bool,
) -> Option<CreationLack> {
    let create = &new.create;
    let resources = &region.seen.resources;
    let storages = resources.storages.get(host);
    let seen = |why: String| Some(CreationLack::Seen(why));
    let chosen = disk_storages::choose(&create.storage, host, resources);
    if chosen.is_none() && create.storage.is_list() {
        return seen(lacks_each(&create.storage, host, resources));
    }
    let storage = chosen.unwrap_or_else(|| create.storage.first());
    match storages.and_then(|of| of.get(storage)) {
        None => return seen(format!("it has no storage {storage}")),
        Some(found) if !found.active => {
            return seen(format!("its storage {storage} is not available"));
        }
        Some(found) if !found.content.iter().any(|content| content == "images") => {
            return seen(format!(
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
            Ok(_) if broker_behind => return Some(CreationLack::Untold(volume.clone())),
            Ok(_) => return seen(format!("there is no {volume}")),
            Err(error) => return seen(format!("{volume} could not be looked for: {error}")),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_broker_with_another_file_does_not_tell_is_not_taken_for_missing() {
        let said = |lack: CreationLack| {
            let mut findings = Findings::default();
            tell("edge", &lack, "pve1", &mut findings);
            let said = findings.0.iter().map(ToString::to_string);
            said.collect::<Vec<_>>().join("\n")
        };
        let missing = said(CreationLack::Seen("there is no local:iso/a.iso".to_owned()));
        assert!(missing.starts_with("WRONG: template edge: "), "{missing}");
        let untold = said(CreationLack::Untold("local:iso/a.iso".to_owned()));
        assert!(
            untold.starts_with("warning: template edge: ") && untold.contains("systemctl reload"),
            "{untold}"
        );
    }
}
