//! A region: reachable, quorate, templates usable, the VMID range clean.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use super::{ClusterId, Findings, clocks, hosts};
use crate::config::Settings;
use crate::config::settings::Template;
use crate::model::mark::Ownership;
use crate::model::region::GuestKind;
use crate::model::time::Span;
use crate::model::words;
use crate::pve::{Client, ClusterStatus, GuestResource, Resources, Version, VmConfig};

/// Oldest PVE that this program was written for.
const OLDEST: u32 = 8;
/// Configurations of VMs in our range that are read; more are only counted.
const MAX_READ: usize = 500;
/// VMIDs named in one finding.
const MAX_NAMED: usize = 10;

/// What was seen of a region.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) version: Version,
    status: ClusterStatus,
    pub(super) resources: Resources,
    /// Configurations of templates and of VMs in our range.
    pub(super) configs: BTreeMap<u32, VmConfig>,
    /// How far the hosts' clocks are ahead of ours.
    clocks: BTreeMap<Arc<str>, Span>,
}

/// Looks; `None` when PVE could not be read.
pub(super) async fn look(
    client: &Client,
    name: &str,
    settings: &Settings,
    findings: &mut Findings,
) -> Option<Seen> {
    let read = async {
        let version = client.version().await?;
        let status = client.cluster_status().await?;
        let resources = client.resources().await?;
        Ok::<_, crate::pve::transport::CallError>((version, status, resources))
    };
    let (version, status, resources) = match read.await {
        Ok(read) => read,
        Err(error) => {
            findings.wrong(format!("region {name}: {error}"));
            return None;
        }
    };
    let mut configs = BTreeMap::new();
    let range = settings.policy.regions.get(name);
    let templates: Vec<&Template> = templates(name, settings)
        .map(|(_, template)| template)
        .collect();
    let wanted = resources.guests.iter().filter(|(vmid, guest)| {
        let ours = range.is_some_and(|range| (range.vmid_first..=range.vmid_last).contains(vmid));
        guest.kind == GuestKind::Qemu
            && (ours
                || templates
                    .iter()
                    .any(|template| names(template, **vmid, &guest.name)))
    });
    for (vmid, guest) in wanted.take(MAX_READ) {
        match client.vm_config(&guest.host, *vmid).await {
            Ok(config) => {
                configs.insert(*vmid, config);
            }
            Err(error) => findings.warning(format!("region {name}: VM {vmid}: {error}")),
        }
    }
    let clocks = clocks::read(client, name, &resources, findings).await;
    Some(Seen {
        version,
        status,
        resources,
        configs,
        clocks,
    })
}

/// The templates of a region.
pub(super) fn templates<'a>(
    region: &'a str,
    settings: &'a Settings,
) -> impl Iterator<Item = (&'a Arc<str>, &'a Template)> {
    let all = settings.templates.iter();
    all.filter(move |(_, template)| *template.region == *region)
}

/// The VMs that a template's table means.
pub(super) fn copies<'a>(
    seen: &'a Seen,
    template: &'a Template,
) -> impl Iterator<Item = (&'a u32, &'a GuestResource)> {
    let guests = seen.resources.guests.iter();
    guests.filter(move |(vmid, guest)| {
        let is_template = guest.template || template.vmid.is_some();
        guest.kind == GuestKind::Qemu && is_template && names(template, **vmid, &guest.name)
    })
}

/// Whether a template's table means this VM.
fn names(template: &Template, vmid: u32, name: &str) -> bool {
    template.vmid == Some(vmid) || template.vm_name.as_deref() == Some(name)
}

/// Judges what was seen.
pub(super) fn judge(
    seen: &Seen,
    name: &str,
    settings: &Settings,
    cluster: Option<&ClusterId>,
    findings: &mut Findings,
) {
    let hosts = seen.resources.hosts.len();
    findings.fine(format!(
        "region {name}: PVE {} with {}",
        seen.version.version,
        words::count(hosts, "host")
    ));
    if seen.version.major() < OLDEST {
        findings.warning(format!(
            "region {name}: PVE {} is older than {OLDEST}, which this program was written for",
            seen.version.version
        ));
    }
    if seen.status.quorate {
        findings.fine(format!("region {name}: the cluster has quorum"));
    } else {
        findings.wrong(format!(
            "region {name}: the cluster has no quorum; nothing is changed until it has"
        ));
    }
    clocks::judge(&seen.clocks, name, findings);
    let pools = settings
        .policy
        .pools
        .iter()
        .filter(|(_, pool)| *pool.region == *name);
    for (pool_name, pool) in pools {
        hosts::judge_pool(&seen.resources, pool_name, pool, &settings.policy, findings);
    }
    for (template_name, template) in templates(name, settings) {
        judge_template(seen, template_name, template, settings, findings);
    }
    judge_range(seen, name, settings, cluster, findings);
}

fn judge_template(
    seen: &Seen,
    name: &str,
    template: &Template,
    settings: &Settings,
    findings: &mut Findings,
) {
    let copies: Vec<_> = copies(seen, template).collect();
    if copies.is_empty() {
        let wanted = match (&template.vm_name, template.vmid) {
            (Some(name), _) => format!("no template of the name {name}"),
            (None, vmid) => format!("no VM {}", vmid.unwrap_or(0)),
        };
        findings.wrong(format!(
            "template {name}: there is {wanted} in region {}",
            template.region
        ));
    }
    for (vmid, guest) in copies {
        let before = findings.0.len();
        if let Some(config) = seen.configs.get(vmid) {
            judge_config(name, template, *vmid, config, settings, findings);
        }
        if findings.0.len() == before {
            findings.fine(format!("template {name}: VM {vmid} on host {}", guest.host));
        }
    }
    if let Some(storage) = &template.storage {
        judge_storage(seen, name, storage, findings);
    }
}

fn judge_config(
    name: &str,
    template: &Template,
    vmid: u32,
    config: &VmConfig,
    settings: &Settings,
    findings: &mut Findings,
) {
    let about = format!("template {name}: VM {vmid}");
    if !config.template {
        findings.wrong(format!(
            "{about} is no template; qm template {vmid} makes it one"
        ));
    }
    if !config.agent {
        findings.wrong(format!("{about} has no guest agent enabled; qm set {vmid} --agent enabled=1, and qemu-guest-agent installed in it"));
    }
    if !config.disks.values().any(|disk| disk.cloud_init) {
        findings.warning(format!("{about} has no cloud-init drive; its machines get no host name, no network settings and no growing disk by it"));
    }
    let disk = match &template.boot_disk {
        Some(key) => config
            .disks
            .get(key.as_str())
            .map(|disk| (key.as_str(), disk)),
        None => config.boot_disk().map(|(key, disk)| (&**key, disk)),
    };
    let Some((key, disk)) = disk else {
        findings.wrong(format!(
            "{about} has no {}",
            template
                .boot_disk
                .as_deref()
                .unwrap_or("disk that it boots from")
        ));
        return;
    };
    let size = disk.size.unwrap_or(0);
    let pools = settings
        .policy
        .pools
        .values()
        .filter(|pool| *pool.template == *name);
    for kind in pools.flat_map(|pool| &pool.instance_types) {
        let wanted = settings
            .policy
            .instance_types
            .get(kind)
            .map_or(0, |kind| kind.disk);
        if wanted > 0 && wanted < size {
            findings.wrong(format!(
                "{about}: its {key} has {} GiB, more than the {} GiB of instance type {kind}; disks only grow",
                size >> 30,
                wanted >> 30
            ));
        }
    }
}

fn judge_storage(seen: &Seen, name: &str, storage: &str, findings: &mut Findings) {
    let found: Vec<_> = seen
        .resources
        .storages
        .values()
        .filter_map(|of_host| of_host.get(storage))
        .collect();
    if found.is_empty() {
        findings.wrong(format!("template {name}: there is no storage {storage}"));
    } else if !found.iter().any(|storage| storage.active) {
        findings.wrong(format!(
            "template {name}: storage {storage} is not available on any host"
        ));
    } else if !found
        .iter()
        .any(|storage| storage.content.iter().any(|content| content == "images"))
    {
        findings.wrong(format!(
            "template {name}: storage {storage} is not for VM disks (content images)"
        ));
    } else {
        findings.fine(format!("template {name}: storage {storage}"));
    }
}

fn judge_range(
    seen: &Seen,
    name: &str,
    settings: &Settings,
    cluster: Option<&ClusterId>,
    findings: &mut Findings,
) {
    let Some(range) = settings.policy.regions.get(name) else {
        return;
    };
    let (mut ours, mut foreign, mut damaged) = (0, Vec::new(), Vec::new());
    for (vmid, guest) in seen
        .resources
        .guests
        .range(range.vmid_first..=range.vmid_last)
    {
        let ownership = seen.configs.get(vmid).map(VmConfig::ownership);
        match ownership {
            Some(Ownership::Marked(mark)) if cluster.is_none_or(|id| *mark.cluster == **id) => {
                ours += 1;
            }
            Some(Ownership::Damaged(why)) => damaged.push(format!("{vmid} ({why})")),
            _ if guest.lock.as_deref() == Some("clone") => {}
            _ => foreign.push(vmid.to_string()),
        }
    }
    findings.fine(format!(
        "region {name}: VMIDs {} to {}: {} of ours",
        range.vmid_first,
        range.vmid_last,
        words::count(ours, "machine")
    ));
    if !foreign.is_empty() {
        findings.warning(format!(
            "region {name}: VMs in our range that are not ours, and are left alone: {}",
            some(&foreign)
        ));
    }
    if !damaged.is_empty() {
        findings.warning(format!(
            "region {name}: VMs whose mark is damaged, and that are left alone: {}",
            some(&damaged)
        ));
    }
}

/// The first few of a list, and how many more there are.
fn some(list: &[String]) -> String {
    let mut text = list
        .iter()
        .take(MAX_NAMED)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    if list.len() > MAX_NAMED {
        let _ = write!(text, " and {} more", list.len() - MAX_NAMED);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;
    use crate::pve::{HostResource, StorageResource};
    use serde_json::json;

    const FILE: &str = r#"
version = 1
[proxmox]
vmids = "9000-9019"
[template.debian]
vmid = 8000
clone = "full"
storage = "fast"
[instance_type.s]
cores = 2
memory = "4GiB"
disk = "10GiB"
[pool.small]
template = "debian"
instance_types = ["s"]
max = 3
hosts = ["pve1", "pve2"]
"#;

    fn said(seen: &Seen) -> Vec<String> {
        let settings = parse(FILE, "test").unwrap_or_else(|e| panic!("{e}"));
        let mut findings = Findings::default();
        judge(seen, "default", &settings, None, &mut findings);
        findings.0.iter().map(ToString::to_string).collect()
    }

    fn good() -> Seen {
        let host = HostResource {
            online: true,
            memory: 16 << 30,
            ..HostResource::default()
        };
        let template = GuestResource {
            host: "pve1".into(),
            template: true,
            ..GuestResource::default()
        };
        let storage = StorageResource {
            active: true,
            content: vec!["images".into()],
            ..StorageResource::default()
        };
        let config = VmConfig::read(&json!({
            "template": 1, "agent": "1", "scsi0": "local:base-8000-disk-0,size=8G", "boot": "order=scsi0",
            "ide2": "local:vm-8000-cloudinit,media=cdrom",
        }));
        Seen {
            version: Version {
                version: "9.2.1".into(),
                release: "9.2".into(),
            },
            status: ClusterStatus {
                quorate: true,
                ..ClusterStatus::default()
            },
            resources: Resources {
                hosts: BTreeMap::from([("pve1".into(), host.clone()), ("pve2".into(), host)]),
                guests: BTreeMap::from([(8000, template)]),
                storages: BTreeMap::from([(
                    "pve1".into(),
                    BTreeMap::from([("fast".into(), storage)]),
                )]),
            },
            configs: BTreeMap::from([(8000, config)]),
            clocks: BTreeMap::new(),
        }
    }

    #[test]
    fn all_is_well() {
        assert_eq!(
            said(&good()),
            [
                "ok: region default: PVE 9.2.1 with 2 hosts",
                "ok: region default: the cluster has quorum",
                "ok: pool small: host pve1",
                "ok: pool small: host pve2",
                "ok: template debian: VM 8000 on host pve1",
                "ok: template debian: storage fast",
                "ok: region default: VMIDs 9000 to 9019: 0 machines of ours",
            ]
        );
    }

    #[test]
    fn everything_that_can_be_wrong_is_said() {
        let mut seen = good();
        seen.version.version = "7.4".into();
        seen.status.quorate = false;
        seen.resources.hosts.remove("pve2");
        if let Some(host) = seen.resources.hosts.get_mut("pve1") {
            host.online = false;
            host.memory = 4 << 30;
        }
        seen.resources.storages.clear();
        let config = json!({"scsi0": "local:vm-8000-disk-0,size=20G"});
        seen.configs.insert(8000, VmConfig::read(&config));
        let stranger = GuestResource {
            host: "pve1".into(),
            ..GuestResource::default()
        };
        for vmid in 9000..9012 {
            seen.resources.guests.insert(vmid, stranger.clone());
        }
        let damaged = json!({"description": "pve-autoscaler:v1 {}"});
        seen.configs.insert(9011, VmConfig::read(&damaged));
        insta::assert_snapshot!(said(&seen).join("\n"));
    }

    #[test]
    fn a_template_that_is_not_there_is_wrong() {
        let mut seen = good();
        seen.resources.guests.clear();
        assert!(
            said(&seen).contains(
                &"WRONG: template debian: there is no VM 8000 in region default".to_owned()
            )
        );
    }
}
