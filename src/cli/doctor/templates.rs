//! Templates: whether they are there, and whether PVE and the guest can do with them what is wanted.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::finding::Findings;
use super::mends;
use super::region::{RegionSeen, SeenRegion};
use crate::config::Settings;
use crate::config::settings::{Channel, TemplateSettings};
use crate::config::storage_names::StorageNames;
use crate::controller::inspection;
use crate::controller::template_mark::is_of_another_definition;
use crate::controller::templates::target_missing;
use crate::model::region::GuestKind;
use crate::pve::{GuestResource, VmConfig};

/// Templates named where the one that is wanted is not there.
const MAX_NAMED: usize = 10;

/// The templates of a region.
pub(super) fn of<'a>(
    region: &'a str,
    settings: &'a Settings,
) -> impl Iterator<Item = (&'a Arc<str>, &'a TemplateSettings)> {
    let all = settings.templates.iter();
    all.filter(move |(_, template)| *template.region == *region)
}

/// The VMs that a template's table means.
pub(super) fn copies<'a>(
    seen: &'a RegionSeen,
    template: &'a TemplateSettings,
) -> impl Iterator<Item = (&'a u32, &'a GuestResource)> {
    let guests = seen.resources.guests.iter();
    guests.filter(move |(vmid, guest)| means(template, **vmid, guest))
}

/// Whether a template's table means this VM.
pub(super) fn means(template: &TemplateSettings, vmid: u32, guest: &GuestResource) -> bool {
    guest.kind == GuestKind::Qemu && template.means(vmid, guest.template, &guest.name, &guest.tags)
}

/// Judges every template of a region.
pub(super) fn look(region: &SeenRegion, findings: &mut Findings) {
    let settings = &region.region.here.settings;
    for (name, template) in of(&region.region.name, settings) {
        judge(&region.seen, name, template, settings, findings);
    }
}

/// Judges the copies of a template.
pub(super) fn judge(
    seen: &RegionSeen,
    name: &str,
    template: &TemplateSettings,
    settings: &Settings,
    findings: &mut Findings,
) {
    if template.new_vm.is_some() {
        // `new_vms` looks at what its machines are made of.
        return;
    }
    let copies: Vec<_> = copies(seen, template).collect();
    if copies.is_empty() {
        let wanted = match (&template.vm_name, template.vmid) {
            (Some(name), _) => format!("no template of the name {name}"),
            (None, Some(vmid)) => format!("no VM {vmid}"),
            (None, None) => format!("no template with the tags {}", template.tags.join(", ")),
        };
        let there = seen.resources.guests.iter();
        let there = there.filter(|(_, guest)| guest.template && guest.kind == GuestKind::Qemu);
        let there: Vec<String> = there
            .take(MAX_NAMED)
            .map(|(vmid, guest)| format!("{vmid} {}", guest.name).trim_end().to_owned())
            .collect();
        let there = if there.is_empty() {
            "PVE shows no template".to_owned()
        } else {
            format!("templates that PVE shows: {}", there.join(", "))
        };
        let help = match &template.build {
            Some(_) => mends::of_build(name, settings),
            None => format!(
                "vmid, vm_name or tags in [template.{name}] must name one that is there ({there}); {}",
                say_what_makes_one(name, settings)
            ),
        };
        findings
            .wrong(format!(
                "template {name}: there is {wanted} in region {}",
                template.region
            ))
            .mend(help);
    }
    for (vmid, guest) in copies {
        let before = findings.0.len();
        if let Some(config) = seen.configs.get(vmid) {
            judge_config(seen, (name, template), *vmid, config, settings, findings);
            let region = settings.regions.get(&*template.region);
            let by_token = region.is_some_and(|of| matches!(of.channel, Channel::Token { .. }));
            judge_presence(seen, name, (*vmid, guest), (config, by_token), findings);
            judge_cloning(seen, (name, template), (*vmid, guest), config, findings);
        }
        if findings.0.len() == before {
            findings.fine(format!(
                "template {name}: VM {vmid} on host {}; whether its machines boot and could join, `pve-autoscaler template try {name}` tries",
                guest.host
            ));
        }
    }
    if let Some(names) = &template.storage {
        judge_storages(seen, name, names, findings);
    }
}

/// How a person comes by a template that the file does not build.
fn say_what_makes_one(name: &str, settings: &Settings) -> String {
    if mends::is_reached_by_token(name, settings) {
        return format!(
            "one is made by hand, as docs/template.md says, or built by `pve-autoscaler template build` {}",
            mends::BUILDERS
        );
    }
    "`pve-autoscaler template build` makes one, docs/template.md says how".to_owned()
}

/// What is wrong with a copy of a template, and whether its disk fits the instance types.
fn judge_config(
    seen: &RegionSeen,
    (name, template): (&str, &TemplateSettings),
    vmid: u32,
    config: &VmConfig,
    settings: &Settings,
    findings: &mut Findings,
) {
    if is_of_another_definition(vmid, config, template.build.as_deref()) {
        findings
            .warning(format!(
                "template {name}: VM {vmid} was built from another definition than the file has: machines are made of it as it is"
            ))
            .mend(mends::of_build(name, settings));
    }
    for fault in inspection::inspect(vmid, config, template, |storage| {
        is_on_all_hosts(seen, storage)
    }) {
        // What to do stands behind the fault.
        let (what, mend) = match fault.text.split_once("; ") {
            Some((what, mend)) => (what, Some(mend)),
            None => (&*fault.text, None),
        };
        let text = format!("template {name}: {what}");
        let finding = if fault.fatal {
            findings.wrong(text)
        } else {
            findings.warning(text)
        };
        if let Some(mend) = mend {
            finding.mend(mend);
        }
    }
    let about = format!("template {name}: VM {vmid}");
    let disk = match &template.boot_disk {
        Some(key) => config
            .disks
            .get(key.as_str())
            .map(|disk| (key.as_str(), disk)),
        None => config.boot_disk().map(|(key, disk)| (&**key, disk)),
    };
    let Some((key, disk)) = disk else {
        return;
    };
    let size = disk.size.unwrap_or(0);
    let pools = settings
        .policy
        .pools
        .values()
        .filter(|pool| pool.of_template(name).is_some());
    for kind in pools.flat_map(|pool| &pool.instance_types) {
        let wanted = settings
            .policy
            .instance_types
            .get(kind)
            .map_or(0, |kind| kind.disk);
        if wanted > 0 && wanted < size {
            findings
                .wrong(format!(
                    "{about}: its {key} has {} GiB, more than the {} GiB of instance type {kind}; disks only grow",
                    size >> 30,
                    wanted >> 30
                ))
                .mend(format!(
                    "disk = \"{}GiB\" or more in [instance_type.{kind}]",
                    (size + (1 << 30) - 1) >> 30
                ));
        }
    }
}

/// Whether all hosts that are online have the same storage of a name.
fn is_on_all_hosts(seen: &RegionSeen, storage: &str) -> bool {
    let resources = &seen.resources;
    let mut online = resources.hosts.iter().filter(|(_, host)| host.online);
    online.all(|(host, _)| {
        let of_host = resources.storages.get(host);
        of_host
            .and_then(|of_host| of_host.get(storage))
            .is_some_and(|storage| storage.shared)
    })
}

/// Drives on storages that the template's host does not have: PVE clones no VM with one. A token is not shown a storage that it may not
/// look at, and may clone a disk on it all the same.
fn judge_presence(
    seen: &RegionSeen,
    name: &str,
    (vmid, guest): (u32, &GuestResource),
    (config, by_token): (&VmConfig, bool),
    findings: &mut Findings,
) {
    let host = &guest.host;
    let Some(storages) = seen.resources.storages.get(host) else {
        return;
    };
    for (key, disk) in &config.disks {
        let storage = &disk.storage;
        if storage.is_empty() || storages.contains_key(storage) || !seen.resources.is_online(host) {
            continue;
        }
        let text = format!(
            "template {name}: VM {vmid}: its {key} is on {storage}, which PVE does not show on {host}: PVE clones no VM with a drive on a storage that is not there"
        );
        let mend = format!(
            "`pvesm status` on {host} shows those that are there; qm set {vmid} --delete {key} takes the drive out where it is of no use"
        );
        if by_token {
            findings.warning(text).mend(format!(
                "{mend}; a token sees storages that it has Datastore.Audit on"
            ));
        } else {
            findings.wrong(text).mend(mend);
        }
    }
}

/// What keeps PVE from cloning the template as it is configured, or to all hosts.
fn judge_cloning(
    seen: &RegionSeen,
    (name, template): (&str, &TemplateSettings),
    (vmid, guest): (u32, &GuestResource),
    config: &VmConfig,
    findings: &mut Findings,
) {
    let about = format!("template {name}: VM {vmid}");
    let storages = seen.resources.storages.get(&guest.host);
    for (key, disk) in &config.disks {
        let Some(storage) = storages.and_then(|of| of.get(&disk.storage)) else {
            continue;
        };
        let image = disk.cdrom && !disk.cloud_init;
        if image && !storage.shared {
            findings
                .warning(format!(
                    "{about}: its {key} holds {}, which the host {} has alone, so that its clones stay there",
                    disk.volume, guest.host
                ))
                .mend(format!("qm set {vmid} --{key} none,media=cdrom takes it out"));
        }
    }
    if let Some(why) = target_missing(template, &guest.host, &seen.resources) {
        wrong_with_mend(&about, &why, findings);
    }
    let plugin = |storage: &str| Some(storages?.get(storage)?.plugin.clone());
    let unlinkable = inspection::unlinkable(vmid, config, plugin).filter(|_| !template.full_clone);
    let own = unlinkable.is_none() && (template.storage.is_none() || !template.full_clone);
    let disks = config
        .disks
        .values()
        .filter(|disk| own && (!disk.cdrom || disk.cloud_init));
    let names: BTreeSet<&Arc<str>> = disks.map(|disk| &disk.storage).collect();
    for name in names {
        let storage = storages.and_then(|of| of.get(name));
        if let Some(why) = storage.and_then(|of| inspection::refuses_disks(name, of)) {
            wrong_with_mend(&about, &why, findings);
        }
    }
    if let Some(why) = unlinkable {
        // What to do stands behind it.
        let (what, mend) = why.split_once("; ").unwrap_or((&why, ""));
        findings
            .wrong(format!("template {name}: {what}"))
            .mend(mend);
    }
}

/// Says what is wrong in a sentence behind which it stands what to do.
fn wrong_with_mend(about: &str, why: &str, findings: &mut Findings) {
    let (what, mend) = why.split_once("; ").unwrap_or((why, ""));
    findings.wrong(format!("{about}: {what}")).mend(mend);
}

/// Judges the storages that full clones go to. Of several it is enough that one takes their disks; what is wrong with another is told all
/// the same: the list says that somebody wants it.
fn judge_storages(seen: &RegionSeen, name: &str, names: &StorageNames, findings: &mut Findings) {
    let faults = names
        .iter()
        .filter_map(|storage| storage_fault(seen, name, storage));
    let faults: Vec<(String, String)> = faults.collect();
    let none_left = faults.len() == names.iter().len();
    for (what, mend) in faults {
        let text = format!("template {name}: {what}");
        let finding = if none_left {
            findings.wrong(text)
        } else {
            findings.warning(text)
        };
        finding.mend(mend);
    }
    if !none_left {
        findings.fine(format!("template {name}: storage {names}"));
    }
}

/// What is wrong with a storage that full clones go to, and what helps.
fn storage_fault(seen: &RegionSeen, name: &str, storage: &str) -> Option<(String, String)> {
    let of_hosts = seen.resources.storages.values();
    let found: Vec<_> = of_hosts
        .filter_map(|of_host| of_host.get(storage))
        .collect();
    if found.is_empty() {
        return Some((
            format!("there is no storage {storage}"),
            format!(
                "`pvesm status` shows those that are there; name one in storage of [template.{name}]"
            ),
        ));
    }
    if !found.iter().any(|one| one.active) {
        return Some((
            format!("storage {storage} is not available on any host"),
            format!("pvesm status --storage {storage}, on each host"),
        ));
    }
    let mut found = found.into_iter();
    let why = found.find_map(|one| inspection::refuses_disks(storage, one))?;
    // What to do stands behind it.
    let (what, mend) = why.split_once("; ").unwrap_or((&why, ""));
    Some((what.to_owned(), mend.to_owned()))
}
