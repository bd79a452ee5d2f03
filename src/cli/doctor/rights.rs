//! The privileges of an API token, against those that the daemon's calls need; `docs/operations.md` has the table.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt as _};

use super::bridges::{self, Card};
use super::finding::Findings;
use super::mends;
use super::region::{AT_A_TIME, RegionSeen, SeenRegion};
use super::templates::{self, copies};
use crate::config::Settings;
use crate::config::settings::{Channel, TemplateSettings};
use crate::config::storage_names::StorageNames;
use crate::config::vm_options::{self, OptionPrivilege};
use crate::pve::{BridgeKind, Client};

/// Hosts that are asked for their VNets.
const MAX_HOSTS: usize = 64;
/// Where the rights to bridges and VNets lie: below it the zone, the bridge and the VLAN.
const SDN_ZONES: &str = "/sdn/zones";
/// How many parts the path of a bridge has, the empty one before the first slash included.
const BRIDGE_DEPTH: usize = 5;
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
/// What is to be known of a bridge that the token does not see.
const OF_A_VNET: &str = "; where a bridge is a VNet of PVE's SDN, the path is /sdn/zones/ZONE/VNET (pvesh get /cluster/sdn/vnets shows the zone)";
/// VMIDs of one build that a right is given on one by one; who has more gives it on a resource pool.
const MAX_BUILDS: usize = 64;
/// What is asked for on a template.
const ON_TEMPLATE: [&str; 2] = ["VM.Audit", "VM.Clone"];
/// What is asked for on a storage that ISOs for cloud-init come to.
const FOR_ISOS: [&str; 3] = [
    "Datastore.Allocate",
    "Datastore.AllocateTemplate",
    "Datastore.Audit",
];
/// PVE that has privileges of their own for the guest agent; before, `VM.Monitor` was it.
const AGENT_PRIVILEGES: u32 = 9;

/// Looks at what the token may do.
pub(super) async fn look(region: &SeenRegion, findings: &mut Findings) {
    let SeenRegion {
        region: reached,
        seen,
    } = region;
    let (client, name, settings) = (&reached.client, &*reached.name, &*reached.here.settings);
    let Some(Channel::Token { token_id, .. }) =
        settings.regions.get(name).map(|region| &region.channel)
    else {
        return;
    };
    let mut missing = Vec::new();
    let zones = zones(client, seen).await;
    let needed = needed(name, seen, &zones, settings);
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
    look_at_guests(client, (name, token_id), findings).await;
    look_at_builds(region, token_id, findings).await;
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
                "give a role with them to the token (pveum acl modify PATH --tokens '{token_id}' --roles ROLE), or add them to the role that it has there (pveum role modify ROLE --append 1 --privs PRIVILEGES), and to its user too when privileges are separated{}",
                if missing.iter().any(|one| one.contains(SDN_ZONES)) { OF_A_VNET } else { "" }
            ));
    }
}

/// Warns of a token that does not see every guest.
async fn look_at_guests(client: &Client, (name, token_id): (&str, &str), findings: &mut Findings) {
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
}

/// The zones of VNets, by their names; `None` where PVE shows the VNet to the token and not its zone.
pub(in crate::cli) type ZonesOfVNets = BTreeMap<String, Option<String>>;

/// Reads the zones of VNets. PVE tells them to who may audit the VNet. On a host it shows a VNet to who may audit or use it: without a zone it
/// may be used.
async fn zones(client: &Client, seen: &RegionSeen) -> ZonesOfVNets {
    let mut zones = ZonesOfVNets::new();
    let online = seen.resources.hosts.iter().filter(|(_, host)| host.online);
    let asked = online.take(MAX_HOSTS).map(|(host, _)| client.bridges(host));
    let mut asked = stream::iter(asked).buffered(AT_A_TIME);
    while let Some(bridges) = asked.next().await {
        // `network` tells of a host whose bridges cannot be read.
        let bridges = bridges.unwrap_or_default().into_iter();
        let vnets = bridges.filter(|(_, bridge)| bridge.kind == BridgeKind::VNet);
        zones.extend(vnets.map(|(vnet, _)| (vnet, None)));
    }
    let told = client.vnet_zones().await.unwrap_or_default();
    zones.extend(told.into_iter().map(|(vnet, zone)| (vnet, Some(zone))));
    zones
}

/// Where PVE asks for the right to use what a card is plugged into: its bridge or VNet, or the card's VLAN on it; `None` where that cannot be known.
fn path_of_card(card: &Card, zones: &ZonesOfVNets) -> Option<String> {
    let zone = match zones.get(&card.bridge) {
        Some(zone) => zone.as_deref()?,
        None => "localnetwork",
    };
    let bridge = format!("{SDN_ZONES}/{zone}/{}", card.bridge);
    Some(match card.vlan {
        Some(vlan) => format!("{bridge}/{vlan}"),
        None => bridge,
    })
}

/// The bridge or VNet of such a path, where a right is given for all its VLANs.
pub(in crate::cli) fn path_of_bridge(path: &str) -> String {
    let deep = path.starts_with(SDN_ZONES) && path.split('/').count() > BRIDGE_DEPTH;
    let bridge = path.rsplit_once('/').map(|(bridge, _)| bridge);
    bridge.filter(|_| deep).unwrap_or(path).to_owned()
}

/// Which privileges are needed on which path.
pub(in crate::cli) fn needed(
    name: &str,
    seen: &RegionSeen,
    zones: &ZonesOfVNets,
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
        add(machines.clone(), &[agent]);
        if template.hardware.startup.is_some() {
            // PVE asks for it: the order concerns all guests of a host.
            add("/".to_owned(), &["Sys.Modify"]);
        }
        for privilege in of_options(template) {
            let path = privilege.path.unwrap_or_else(|| machines.clone());
            add(path, &[privilege.name]);
        }
        for path in of_template(seen, template) {
            add(path, &ON_TEMPLATE);
        }
        if template.new_vm.is_some() {
            add(machines.clone(), &["VM.Config.CDROM", "VM.Config.HWType"]);
        }
        for storage in storages(seen, template) {
            let privileges = ["Datastore.AllocateSpace", "Datastore.Audit"];
            add(format!("/storage/{storage}"), &privileges);
        }
        for storage in storages_of_files(template) {
            add(format!("/storage/{storage}"), &["Datastore.Audit"]);
        }
        if let Some(cloud_init) = &template.cloud_init {
            for storage in cloud_init.storage.iter() {
                add(format!("/storage/{storage}"), &FOR_ISOS);
            }
            add(machines, for_drive(template));
        }
        let own = bridges::cloned(seen, template);
        for card in bridges::wanted(seen, template).union(&own) {
            if let Some(path) = path_of_card(card, zones) {
                add(path, &["SDN.Use"]);
            }
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

/// What PVE asks for of the options that the file has for a template's machines.
fn of_options(template: &TemplateSettings) -> impl Iterator<Item = OptionPrivilege> + '_ {
    let options = template.hardware.options.iter();
    options.flat_map(|(name, value)| vm_options::privileges(name, value).unwrap_or_default())
}

/// Where the right to clone a template is asked for: on each copy that is there, and on the resource pool that is to have those to come.
fn of_template(seen: &RegionSeen, template: &TemplateSettings) -> Vec<String> {
    let copies = copies(seen, template).map(|(vmid, _)| format!("/vms/{vmid}"));
    let build = template.build.as_ref();
    let pool = build.and_then(|build| build.resource_pool.as_ref());
    copies
        .chain(pool.map(|pool| format!("/pool/{pool}")))
        .collect()
}

/// The VMIDs that built templates of a region will have, where no resource pool carries the right to clone them.
pub(in crate::cli) fn vmids_of_builds(name: &str, settings: &Settings) -> Vec<u32> {
    let builds = templates::of(name, settings).filter_map(|(_, of)| of.build.as_ref());
    let builds = builds.filter(|build| build.resource_pool.is_none());
    let ranges = builds.filter_map(|build| build.vmids);
    let vmids = ranges.flat_map(|range| (range.first..=range.last).take(MAX_BUILDS));
    vmids.collect()
}

/// Warns of builds whose next template the token could not clone: each has another VMID than the one before.
async fn look_at_builds(region: &SeenRegion, token_id: &str, findings: &mut Findings) {
    let SeenRegion { region, seen } = region;
    let (name, settings) = (&*region.name, &*region.here.settings);
    for (template, of) in templates::of(name, settings) {
        let build = of.build.as_ref();
        let range = build.filter(|build| build.resource_pool.is_none());
        let Some(range) = range.and_then(|build| build.vmids) else {
            continue;
        };
        let mut vmids = range.first..=range.last;
        let Some(next) = vmids.find(|vmid| !seen.resources.guests.contains_key(vmid)) else {
            continue;
        };
        // Why it cannot be read was said above.
        let Ok(held) = region.client.permissions(&format!("/vms/{next}")).await else {
            continue;
        };
        let lacks: Vec<&str> = ON_TEMPLATE
            .into_iter()
            .filter(|one| !held.contains(*one))
            .collect();
        if lacks.is_empty() {
            continue;
        }
        findings
            .warning(format!(
                "template {template}: the next one that is built will be VM {next}, of which the token {token_id} could not make machines: it lacks {} on /vms/{next}",
                lacks.join(", ")
            ))
            .mend(format!(
                "resource_pool in [template.{template}.build], and a role with {} on that pool for the token (docs/operations.md#without-the-broker-rights-of-an-api-token); PVE takes a right on /vms/{next} away with the VM that has the number",
                ON_TEMPLATE.join(", ")
            ));
    }
}

/// The storages that a template's machines have disks on, or are made of.
fn storages(seen: &RegionSeen, template: &TemplateSettings) -> BTreeSet<String> {
    let further = template.hardware.disks.values();
    let named = further
        .map(|disk| &disk.storage)
        .chain(&template.storage)
        .flat_map(StorageNames::iter);
    let mut storages: BTreeSet<String> = named.map(str::to_owned).collect();
    if !template.full_clone || template.storage.is_none() {
        let configs = copies(seen, template).filter_map(|(vmid, _)| seen.configs.get(vmid));
        let disks = configs.flat_map(|config| config.disks.values());
        let disks = disks.filter(|disk| !disk.storage.is_empty());
        storages.extend(disks.map(|disk| disk.storage.to_string()));
    }
    if let Some(new) = &template.new_vm {
        storages.extend(new.create.storage.iter().map(str::to_owned));
    }
    storages
}

/// What a machine's drive for the ISO needs. A clone has PVE's own cloud-init drive there: PVE asks for the right to that one, too.
fn for_drive(template: &TemplateSettings) -> &'static [&'static str] {
    match template.new_vm {
        Some(_) => &["VM.Config.CDROM"],
        None => &["VM.Config.CDROM", "VM.Config.Cloudinit"],
    }
}

/// The storages of image and ISO that new VMs are made with: they are read, and nothing comes to lie on them.
fn storages_of_files(template: &TemplateSettings) -> impl Iterator<Item = &str> {
    let new = template.new_vm.iter();
    let files = new.flat_map(|new| [&new.create.image, &new.create.iso]);
    files
        .flatten()
        .filter_map(|volume| volume.split(':').next())
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
