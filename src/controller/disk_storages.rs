//! Which of the storages that the file lists for a disk a host takes: the first that it has, enabled, available and for disks of VMs. For
//! machines the brain chooses by the same rule, and by what is free as well; whoever makes a disk without a plan asks here.

use crate::config::settings::TemplateSettings;
use crate::config::storage_names::StorageNames;
use crate::controller::inspection;
use crate::model::chosen_storages::ChosenStorages;
use crate::pve::{ClusterResources, StorageResource};

/// A storage as a host has it, available; or why it is not, with what helps behind a semicolon.
///
/// # Errors
/// The host does not have it, or it is not available there.
pub fn available<'r>(
    name: &str,
    host: &str,
    resources: &'r ClusterResources,
) -> Result<&'r StorageResource, String> {
    let of_host = resources.storages.get(host);
    match of_host.and_then(|of_host| of_host.get(name)) {
        None => Err(format!("the host {host} has no storage {name}")),
        Some(found) if !found.active => Err(format!(
            "storage {name} is not available on the host {host}; pvesm status --storage {name} there"
        )),
        Some(found) => Ok(found),
    }
}

/// Why a host has no disk of a VM on a storage; what helps stands behind a semicolon.
pub fn lack(name: &str, host: &str, resources: &ClusterResources) -> Option<String> {
    match available(name, host, resources) {
        Err(why) => Some(why),
        Ok(found) => inspection::refuses_disks(name, found),
    }
}

/// The storage that a host takes of these.
pub fn choose<'n>(
    names: &'n StorageNames,
    host: &str,
    resources: &ClusterResources,
) -> Option<&'n str> {
    let mut names = names.iter();
    names.find(|name| lack(name, host, resources).is_none())
}

/// Why a host takes none of these: of each storage what is wrong with it.
pub fn explain_none(names: &StorageNames, host: &str, resources: &ClusterResources) -> String {
    let each = names.iter().filter_map(|name| lack(name, host, resources));
    let each: Vec<String> = each.collect();
    match &each[..] {
        [only] => only.clone(),
        // With several there is one way more out: whichever is easiest.
        _ => {
            let whats = each
                .iter()
                .map(|why| why.split("; ").next().unwrap_or_default());
            format!(
                "none of the storages {names} takes a disk there: {}",
                whats.collect::<Vec<_>>().join(", ")
            )
        }
    }
}

/// The storages for the disks of a machine on a host, where the file lists several: for one that nobody planned.
pub fn choose_all(
    template: &TemplateSettings,
    host: &str,
    resources: &ClusterResources,
) -> ChosenStorages {
    let mut chosen = ChosenStorages::default();
    let made = template.new_vm.as_ref().map(|new| &new.create.storage);
    let cloned = template
        .storage
        .as_ref()
        .filter(|_| template.full_clone && made.is_none());
    let of = |names: &StorageNames| {
        let name = choose(names, host, resources).filter(|_| names.is_list());
        name.map(Into::into)
    };
    chosen.own = made.or(cloned).and_then(of);
    let further = template.hardware.disks.iter();
    chosen.further = further
        .filter_map(|(slot, disk)| Some((slot.as_str().into(), of(&disk.storage)?)))
        .collect();
    chosen
}

/// The storage of these that was chosen; the first where none was, or the file does not list it any more.
pub fn chosen_of<'n>(names: &'n StorageNames, chosen: Option<&'n str>) -> &'n str {
    let listed = chosen.filter(|chosen| names.contains(chosen));
    listed.unwrap_or_else(|| names.first())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn resources(of_host: &[(&str, bool, &str)]) -> ClusterResources {
        let storages = of_host.iter().map(|(name, active, content)| {
            let storage = StorageResource {
                active: *active,
                content: vec![(*content).to_owned()],
                plugin: "dir".into(),
                ..StorageResource::default()
            };
            ((*name).into(), storage)
        });
        ClusterResources {
            storages: BTreeMap::from([("pve1".into(), storages.collect())]),
            ..ClusterResources::default()
        }
    }

    #[test]
    fn a_host_takes_the_first_that_can_have_the_disk() {
        let names = StorageNames::from(["zfs", "lvm", "dir"]);
        for (of_host, wanted) in [
            (
                &[("lvm", true, "images"), ("dir", true, "images")][..],
                Some("lvm"),
            ),
            (
                &[("zfs", false, "images"), ("dir", true, "images")],
                Some("dir"),
            ),
            (
                &[("zfs", true, "iso"), ("lvm", true, "images")],
                Some("lvm"),
            ),
            (&[("zfs", true, "iso"), ("other", true, "images")], None),
        ] {
            let seen = resources(of_host);
            assert_eq!(choose(&names, "pve1", &seen), wanted, "{of_host:?}");
            assert_eq!(choose(&names, "pve2", &seen), None);
        }
        let seen = resources(&[("zfs", true, "iso"), ("lvm", false, "images")]);
        assert_eq!(
            explain_none(&names, "pve1", &seen),
            "none of the storages zfs, lvm or dir takes a disk there: storage zfs is not for disks of VMs (its content is iso), storage lvm is not available on the host pve1, the host pve1 has no storage dir"
        );
        assert_eq!(
            explain_none(&StorageNames::from("dir"), "pve1", &seen),
            "the host pve1 has no storage dir"
        );
    }

    #[test]
    fn only_lists_are_chosen_from() {
        let mut template = TemplateSettings {
            full_clone: true,
            storage: Some(["zfs", "lvm"].into()),
            ..TemplateSettings::default()
        };
        let seen = resources(&[("lvm", true, "images")]);
        let chosen = choose_all(&template, "pve1", &seen);
        assert_eq!(chosen.own.as_deref(), Some("lvm"));
        template.storage = Some("lvm".into());
        assert!(choose_all(&template, "pve1", &seen).is_empty());
        let names = StorageNames::from(["zfs", "lvm"]);
        assert_eq!(chosen_of(&names, Some("lvm")), "lvm");
        assert_eq!(chosen_of(&names, Some("other")), "zfs");
        assert_eq!(chosen_of(&names, None), "zfs");
    }
}
