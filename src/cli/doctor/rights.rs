//! The privileges of an API token, against those that the daemon's calls need; `docs/operations.md` has the table.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::Findings;
use super::mends;
use super::network;
use super::region::{RegionSeen, SeenRegion};
use super::templates::{self, copies};
use crate::config::Settings;
use crate::config::settings::{Channel, TemplateSettings};

/// Where every guest is seen.
const ALL_GUESTS: &str = "/vms";
/// What is asked for on a machine that is ours, or in the pool that it comes to.
const ON_MACHINES: [&str; 8] = [
    "VM.Allocate",
    "VM.Audit",
    "VM.PowerMgmt",
    "VM.Config.CPU",
    "VM.Config.Memory",
    "VM.Config.Disk",
    "VM.Config.Network",
    "VM.Config.Options",
];
/// PVE that has privileges of their own for the guest agent; before, `VM.Monitor` was it.
const AGENT_PRIVILEGES: u32 = 9;

/// Looks at what the token may do.
pub(super) async fn look(region: &SeenRegion, findings: &mut Findings) {
    let SeenRegion { region, seen } = region;
    let (client, name, settings) = (&region.client, &*region.name, &*region.here.settings);
    let Some(Channel::Token { token_id, .. }) =
        settings.regions.get(name).map(|region| &region.channel)
    else {
        return;
    };
    let mut missing = Vec::new();
    let needed = needed(name, seen, settings);
    for (path, privileges) in &needed {
        let held = match client.permissions(path).await {
            Ok(held) => held,
            Err(error) => {
                findings
                    .warning(format!(
                        "region {name}: what the token {token_id} may do on {path}: {}",
                        error.words()
                    ))
                    .mend(mends::of_call(&error, None));
                return;
            }
        };
        let lacks: Vec<&str> = privileges
            .iter()
            .copied()
            .filter(|one| !held.contains(*one))
            .collect();
        if !lacks.is_empty() {
            missing.push(format!("{} on {path}", lacks.join(", ")));
        }
    }
    match client.permissions(ALL_GUESTS).await {
        Ok(held) if held.contains("VM.Audit") => {}
        Ok(_) => findings
            .warning(format!(
                "region {name}: the token {token_id} lacks VM.Audit on {ALL_GUESTS}: guests that it may not see do not count, and their host may be promised more memory than it has"
            ))
            .mend(format!(
                "pveum acl modify {ALL_GUESTS} --tokens '{token_id}' --roles PVEAuditor"
            )),
        Err(error) => {
            findings
                .warning(format!(
                    "region {name}: what the token {token_id} may do on {ALL_GUESTS}: {}", error.words()))
                .mend(mends::of_call(&error, None));
        }
    }
    if missing.is_empty() {
        let paths: Vec<&str> = needed.keys().map(String::as_str).collect();
        findings.fine(format!(
            "region {name}: the token {token_id} has the privileges that it needs on {}",
            paths.join(", ")
        ));
    } else {
        findings
            .wrong(format!(
                "region {name}: the token {token_id} lacks {}",
                missing.join("; ")
            ))
            .mend(format!(
                "give a role with them to the token (pveum acl modify PATH --tokens '{token_id}' --roles ROLE), and to its user too when privileges are separated"
            ));
    }
}

/// Which privileges are needed on which path.
pub(in crate::cli) fn needed(
    name: &str,
    seen: &RegionSeen,
    settings: &Settings,
) -> BTreeMap<String, BTreeSet<&'static str>> {
    let mut needed: BTreeMap<String, BTreeSet<&'static str>> = BTreeMap::new();
    let mut add = |path: String, privileges: &[&'static str]| {
        needed.entry(path).or_default().extend(privileges);
    };
    add("/".to_owned(), &["Sys.Audit"]);
    let agent = if seen.version.major() >= AGENT_PRIVILEGES {
        "VM.GuestAgent.Unrestricted"
    } else {
        "VM.Monitor"
    };
    for (_, template) in templates::of(name, settings) {
        let machines = on_machines(name, template, settings);
        add(machines.clone(), &ON_MACHINES);
        add(machines, &[agent]);
        if template.hardware.startup.is_some() {
            // PVE asks for it: the order concerns all guests of a host.
            add("/".to_owned(), &["Sys.Modify"]);
        }
        for (vmid, _) in copies(seen, template) {
            add(format!("/vms/{vmid}"), &["VM.Audit", "VM.Clone"]);
        }
        if template.new_vm.is_some() {
            add(
                on_machines(name, template, settings),
                &["VM.Config.CDROM", "VM.Config.HWType"],
            );
        }
        for storage in storages(seen, template) {
            let privileges = ["Datastore.AllocateSpace", "Datastore.Audit"];
            add(format!("/storage/{storage}"), &privileges);
        }
        if let Some(cloud_init) = &template.cloud_init {
            let privileges = [
                "Datastore.Allocate",
                "Datastore.AllocateTemplate",
                "Datastore.Audit",
            ];
            add(format!("/storage/{}", cloud_init.storage), &privileges);
            add(on_machines(name, template, settings), &["VM.Config.CDROM"]);
        }
        for bridge in network::wanted(seen, template) {
            add(format!("/sdn/zones/localnetwork/{bridge}"), &["SDN.Use"]);
        }
    }
    for (_, pool) in settings.policy.pools_in(name) {
        let types = pool.instance_types.iter();
        let types = types.filter_map(|name| settings.policy.instance_types.get(name));
        let devices = types.flat_map(|kind| &kind.pci);
        let template = settings.templates.get(&pool.template);
        for device in devices {
            let mapping = &device.mapping;
            add(format!("/mapping/pci/{mapping}"), &["Mapping.Use"]);
            if let Some(template) = template {
                add(on_machines(name, template, settings), &["VM.Config.HWType"]);
            }
        }
    }
    needed
}

/// The storages that a template's machines have disks on, or are made of.
fn storages(seen: &RegionSeen, template: &TemplateSettings) -> BTreeSet<String> {
    let mut storages: BTreeSet<String> = template.storage.iter().cloned().collect();
    let further = template.hardware.disks.values();
    storages.extend(further.map(|disk| disk.storage.to_string()));
    if !template.full_clone || template.storage.is_none() {
        let configs = copies(seen, template).filter_map(|(vmid, _)| seen.configs.get(vmid));
        let disks = configs.flat_map(|config| config.disks.values());
        let disks = disks.filter(|disk| !disk.storage.is_empty());
        storages.extend(disks.map(|disk| disk.storage.to_string()));
    }
    if let Some(new) = &template.new_vm {
        let files = [&new.create.image, &new.create.iso].into_iter().flatten();
        let files = files.filter_map(|volume| volume.split(':').next());
        let all = files.chain([new.create.storage.as_str()]);
        storages.extend(all.map(str::to_owned));
    }
    storages
}

/// Where a template's machines have their rights: their resource pool, or themselves.
fn on_machines(name: &str, template: &TemplateSettings, settings: &Settings) -> String {
    match &template.resource_pool {
        Some(pool) => format!("/pool/{pool}"),
        None => {
            let range = settings.policy.regions.get(name);
            format!("/vms/{}", range.map_or(0, |range| range.vmid_first))
        }
    }
}
