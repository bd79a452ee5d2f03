//! ISOs for cloud-init: whether the storages that they come to take them, whether some are left, and which pool should join its
//! machines by them.

use std::collections::BTreeSet;
use std::sync::Arc;

use secrecy::ExposeSecret as _;

use super::finding::Findings;
use super::region::{RegionSeen, SeenRegion};
use super::templates;
use crate::config::Settings;
use crate::config::cloud_init as texts;
use crate::config::storage_names::StorageNames;
use crate::controller::executor::REFUSES_COMMANDS;
use crate::controller::file_storages;
use crate::controller::inspection::{can_hold, with_content};
use crate::controller::nocloud;
use crate::model::facts::Facts;
use crate::model::memory::Memory;
use crate::pve::{IsoFile, IsoOwner, iso_volume};

/// PVE's content type of ISOs.
const ISO: &str = "iso";
/// A machine as there may be one.
const SAMPLE: Facts<'static> = Facts {
    machine: "pool-abcde",
    vmid: 9000,
    host: "pve1",
    region: "default",
    pool: "pool",
    instance_type: "type",
};

/// Looks at the storages of a region's templates.
pub(super) async fn look(region: &SeenRegion, findings: &mut Findings) {
    let SeenRegion { region, seen } = region;
    let (name, settings) = (&*region.name, &*region.here.settings);
    recommend(
        &region.here.state.join("memory.json"),
        name,
        settings,
        findings,
    );
    let mut looked = BTreeSet::new();
    let cluster = region.cluster.as_ref();
    let own = cluster.map(|cluster| IsoOwner::of(cluster, name));
    for (template, of) in templates::of(name, settings) {
        let Some(cloud_init) = &of.cloud_init else {
            continue;
        };
        if let Some(path) = &cloud_init.machine_config {
            judge_machine_config(template, path, findings);
        }
        let names = &cloud_init.storage;
        let pools = settings.policy.pools.values();
        let pools = pools.filter_map(|pool| pool.of_template(template));
        let pools: Vec<_> = pools.collect();
        let hosts = seen.resources.hosts.iter();
        let hosts = hosts.filter(|(host, about)| {
            about.online && (pools.is_empty() || pools.iter().any(|pool| pool.may_use(host)))
        });
        let hosts: Vec<Arc<str>> = hosts.map(|(host, _)| host.clone()).collect();
        if names.is_list() {
            judge_list(template, names, &hosts, seen, findings);
        } else {
            judge(template, names.first(), &hosts, seen, findings);
        }
        let places = hosts.iter().flat_map(|host| {
            let names = names.iter();
            names.map(move |storage| (host.clone(), storage.to_owned()))
        });
        for (host, storage) in places {
            let of_host = seen.resources.storages.get(&host);
            let is_there = of_host.is_some_and(|of| of.contains_key(&*storage));
            if !is_there || !looked.insert((host.clone(), storage.clone())) {
                continue;
            }
            let Ok(isos) = region.client.isos(&host, &storage).await else {
                // What hinders that is told of the storage, or of the token.
                continue;
            };
            for volume in isos.into_keys() {
                let file = iso_volume(&volume).map(|(_, file)| file);
                let gone = |file: &IsoFile| !seen.resources.guests.contains_key(&file.vmid);
                if let Some(file) = file.filter(gone) {
                    let about = format!("template {template}: {volume} on host {host}");
                    judge_left(&about, &volume, (file.owner, own.as_ref()), findings);
                }
            }
        }
    }
}

/// An ISO of whose VMID no VM is there: by its name ours, another installation's on a shared storage, or, as older programs wrote it,
/// anybody's.
fn judge_left(
    about: &str,
    volume: &str,
    (owner, own): (Option<IsoOwner>, Option<&IsoOwner>),
    findings: &mut Findings,
) {
    match owner {
        Some(owner) if own.is_none_or(|own| *own == owner) => findings
            .warning(format!(
                "{about} is an ISO of a machine that is gone; the daemon removes it within an hour"
            ))
            .mend(format!("pvesm free {volume}, on that host, where no daemon runs")),
        Some(_) => {}
        None => findings
            .warning(format!(
                "{about} is an ISO that an older version brought for a machine that is gone; its name does not say whose it is, and the daemon leaves it alone where nothing else does"
            ))
            .mend(format!(
                "pvesm free {volume}, on that host, once you know that no other PVE cluster's machine of this VMID needs it"
            )),
    }
}

/// Talos' machine configuration: the daemon can read it, nobody else, and it is a worker's.
fn judge_machine_config(template: &str, path: &std::path::Path, findings: &mut Findings) {
    let judged = nocloud::read_machine_config(path).and_then(|text| {
        let filled = texts::filled(
            texts::CloudInitKind::Machine,
            text.expose_secret(),
            &SAMPLE,
            &texts::GapValues::sample(),
        );
        filled.map_err(|why| format!("{}: {why}", path.display()))
    });
    match judged {
        Ok(_) => findings.fine(format!(
            "template {template}: {} is a worker's machine configuration",
            path.display()
        )),
        Err(why) => findings
            .wrong(format!("template {template}: {why}"))
            .mend("talosctl gen config --output-types worker makes one; docs/talos.md says what of it is another for each machine"),
    }
}

/// The storage takes ISOs on every host that gets machines.
fn judge(
    template: &str,
    storage: &str,
    hosts: &[Arc<str>],
    seen: &RegionSeen,
    findings: &mut Findings,
) {
    let before = findings.0.len();
    for host in hosts {
        let of_host = seen.resources.storages.get(host);
        let Some(found) = of_host.and_then(|of| of.get(storage)) else {
            findings
                .wrong(format!(
                    "template {template}: the host {host} has no storage {storage} (cloud_init.storage)"
                ))
                .mend("another storage in the template's cloud_init, or exclude_hosts in its pools");
            continue;
        };
        if !found.active {
            findings
                .wrong(format!(
                    "template {template}: storage {storage} is not available on the host {host}"
                ))
                .mend(format!("pvesm status --storage {storage}, on {host}"));
        } else if !found.content.iter().any(|content| content == "iso") {
            let mend = if can_hold(&found.plugin, "iso") {
                format!(
                    "pvesm set {storage} --content {}",
                    with_content(found, "iso")
                )
            } else {
                let kind = &found.plugin;
                format!("another storage in the template's cloud_init: type {kind} holds no files")
            };
            findings
                .wrong(format!(
                    "template {template}: storage {storage} takes no ISOs (content iso), and cloud-init's come to it"
                ))
                .mend(mend);
            return;
        }
    }
    if findings.0.len() == before {
        findings.fine(format!(
            "template {template}: storage {storage} takes cloud-init's ISOs"
        ));
    }
}

/// Every host that gets machines has one of the listed storages for ISOs.
fn judge_list(
    template: &str,
    names: &StorageNames,
    hosts: &[Arc<str>],
    seen: &RegionSeen,
    findings: &mut Findings,
) {
    let mut taken = Vec::new();
    for host in hosts {
        match file_storages::choose(names, ISO, host, &seen.resources) {
            Some(storage) => taken.push(format!("{storage} on {host}")),
            None => {
                let why = file_storages::explain_none(names, ISO, host, &seen.resources);
                findings
                    .wrong(format!(
                        "template {template}: cloud-init's ISOs come to no storage of the host {host} (cloud_init.storage): {why}"
                    ))
                    .mend(format!(
                        "a storage of that host, with content iso, in storage of [template.{template}.cloud_init], or exclude_hosts in its pools"
                    ));
            }
        }
    }
    if !taken.is_empty() {
        findings.fine(format!(
            "template {template}: cloud-init's ISOs come to {}",
            taken.join(", ")
        ));
    }
}

/// Pools whose last machine failed since its guest agent runs no commands.
fn recommend(memory: &std::path::Path, region: &str, settings: &Settings, findings: &mut Findings) {
    let text = std::fs::read(memory).unwrap_or_default();
    // What cannot be read is told by the daemon.
    let memory: Memory = serde_json::from_slice(&text).unwrap_or_default();
    for (name, backoff) in &memory.backoff {
        let pool = settings.policy.pools.get(name);
        let joins = settings
            .pools
            .get(name)
            .is_some_and(|pool| !pool.join.at_first_boot);
        let here = pool.is_some_and(|pool| pool.at(region).is_some()) && joins;
        if here && backoff.message.contains(REFUSES_COMMANDS) {
            findings
                .warning(format!(
                    "pool {name}: the guest agent of its machines runs no commands, by which they would join"
                ))
                .mend(format!(
                    "delivery = \"cloud-init\" in [pool.{name}.join], with [template.NAME.cloud_init]: docs/cloud-init.md; or allow guest-exec in the template"
                ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;
    use crate::model::memory::Backoff;
    use crate::model::time::{Span, Time};

    const FILE: &str = r#"
version = 1
[proxmox]
vmids = "9000-9019"
[template.debian]
vmid = 8000
[template.debian.cloud_init]
storage = "local"
[instance_type.s]
cores = 2
memory = "4GiB"
[pool.small]
template = "debian"
instance_types = ["s"]
max = 3
"#;

    /// What is said of a pool whose last machine failed with `message`.
    fn said(file: &str, message: &str) -> Vec<String> {
        let settings = parse(file, "test").unwrap_or_else(|errors| panic!("{errors}"));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("memory.json");
        let mut memory = Memory::default();
        let backoff = Backoff {
            advice: None,
            until: Time(2),
            length: Span::minutes(1),
            failed: Time(1),
            message: message.into(),
        };
        memory.backoff.insert("small".into(), backoff);
        let text = serde_json::to_vec(&memory).expect("JSON");
        std::fs::write(&path, text).expect("written");
        let mut findings = Findings::default();
        recommend(&path, "default", &settings, &mut findings);
        recommend(folder.path(), "default", &settings, &mut findings);
        findings.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_first_boot_is_recommended_where_the_guest_agent_refuses_commands() {
        let refused = format!("Agent error; {REFUSES_COMMANDS} (BLOCK_RPCS)");
        let [told] = &said(FILE, &refused)[..] else {
            panic!("one finding")
        };
        assert!(told.contains("pool small: the guest agent of its machines runs no commands"));
        assert!(told.contains("delivery = \"cloud-init\" in [pool.small.join]"));
        assert!(said(FILE, "no space left").is_empty());
        let first = format!("{FILE}[pool.small.join]\ndelivery = \"cloud-init\"\n");
        assert!(said(&first, &refused).is_empty(), "it does so already");
    }
}
