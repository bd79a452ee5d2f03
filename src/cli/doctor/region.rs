//! A region: what is read of it first, since the other probes judge by it; PVE's version, and quorum.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::stream::{self, StreamExt as _};
use tokio::time::timeout;

use super::addresses::ClusterAddresses;
use super::broker;
use super::endpoints;
use super::finding::Findings;
use super::mends;
use super::probe::give_up;
use super::templates;
use super::{ClusterId, Here};
use crate::cli::channels;
use crate::config::Settings;
use crate::config::settings::{Channel, TemplateSettings};
use crate::kubernetes::KubeClient;
use crate::model::region::GuestKind;
use crate::model::words;
use crate::pve::transport::CallEffect;
use crate::pve::{Client, ClusterResources, ClusterStatus, GuestResource, PveVersion, VmConfig};

/// Oldest PVE that this program was written for.
const OLDEST: u32 = 8;
/// Configurations of VMs in our range that are read; more are only counted.
const MAX_READ: usize = 500;
/// Calls to one region at the same time; the broker takes eight.
pub(super) const AT_A_TIME: usize = 4;

/// A region whose channel is open.
#[derive(Debug)]
pub(super) struct ReachedRegion {
    pub(super) here: Here,
    pub(super) name: Arc<str>,
    pub(super) client: Client,
    /// Our cluster's id, when it is known.
    pub(super) cluster: Option<ClusterId>,
    /// The cluster that machines are nodes of, if it could be reached.
    pub(super) kubernetes: Option<KubeClient>,
    /// What addresses the cluster's nodes and its API server have, where that is known.
    pub(super) addresses: ClusterAddresses,
}

/// What was seen of a region.
#[derive(Debug, Default)]
pub(in crate::cli) struct RegionSeen {
    pub(in crate::cli) version: PveVersion,
    pub(in crate::cli) status: ClusterStatus,
    pub(in crate::cli) resources: ClusterResources,
    /// Configurations of templates and of VMs in our range.
    pub(in crate::cli) configs: BTreeMap<u32, VmConfig>,
}

/// A region that could be read.
#[derive(Debug)]
pub(super) struct SeenRegion {
    pub(super) region: ReachedRegion,
    pub(super) seen: RegionSeen,
}

/// Opens the way to a region and reads what the other probes judge by, as far as that is possible within a probe's time.
pub(super) async fn reach(
    here: &Here,
    name: &Arc<str>,
) -> (Findings, Option<(ReachedRegion, Option<RegionSeen>)>) {
    let mut findings = Findings::default();
    let settings = &here.settings;
    let Some(region) = settings.regions.get(name) else {
        return (findings, None);
    };
    let client = match channels::open(region, &settings.broker.socket) {
        Ok(transport) => Client::new(transport),
        Err(error) => {
            findings
                .wrong(format!("region {name}: {error:#}"))
                .mend("see the file's line above, and what docs/configuration.md says of the keys of this channel");
            return (findings, None);
        }
    };
    let reading = read(&client, name, settings, &mut findings);
    let reading = timeout(here.patience, reading);
    let (seen, of_endpoints) = tokio::join!(reading, endpoints::look(here, name, region));
    let seen = match seen {
        Ok(seen) => seen,
        Err(_) => {
            give_up(
                &format!("region {name}"),
                "PVE",
                here.patience,
                &mut findings,
            );
            None
        }
    };
    findings.0.extend(of_endpoints.0);
    let region = ReachedRegion {
        here: here.clone(),
        name: name.clone(),
        client,
        cluster: None,
        kubernetes: None,
        addresses: ClusterAddresses::default(),
    };
    (findings, Some((region, seen)))
}

/// Reads a region; `None` when PVE could not be read.
pub(super) async fn read(
    client: &Client,
    name: &str,
    settings: &Settings,
    findings: &mut Findings,
) -> Option<RegionSeen> {
    let read = async {
        tokio::try_join!(
            client.version(),
            client.cluster_status(),
            client.resources()
        )
    };
    let (version, status, resources) = match read.await {
        Ok(read) => read,
        // The file that the broker has read may have no region yet: it is no fault of this one.
        Err(error)
            if error.outcome == CallEffect::RefusedByBroker
                && broker::is_behind(client, name, settings).await =>
        {
            findings
                .warning(format!(
                    "region {name}: nothing of it is seen until the broker has read this file: {error}"
                ))
                .mend("systemctl reload pve-autoscaler; pve-autoscaler doctor");
            return None;
        }
        Err(error) => {
            let channel = settings.regions.get(name).map(|region| &region.channel);
            let (what, mend) = mends::of_region(name, channel.unwrap_or(&Channel::Local), &error);
            findings.wrong(format!("region {name}: {what}")).mend(mend);
            return None;
        }
    };
    let mut resources = resources;
    client.tell_kept_space(&mut resources).await;
    let wanted = wanted(name, settings, &resources);
    let wanted = wanted.into_iter().take(MAX_READ);
    let asked = wanted
        .map(|(vmid, guest)| async move { (vmid, client.vm_config(&guest.host, vmid).await) });
    let mut asked = stream::iter(asked).buffered(AT_A_TIME);
    let mut configs = BTreeMap::new();
    while let Some((vmid, config)) = asked.next().await {
        match config {
            Ok(config) => {
                configs.insert(vmid, config);
            }
            Err(error) => {
                findings
                    .warning(format!("region {name}: VM {vmid}: {}", error.words()))
                    .mend(mends::of_call(&error, None));
            }
        }
    }
    drop(asked);
    Some(RegionSeen {
        version,
        status,
        resources,
        configs,
    })
}

/// The VMs whose configuration matters: templates, and what lies in our range.
fn wanted<'a>(
    name: &str,
    settings: &Settings,
    resources: &'a ClusterResources,
) -> Vec<(u32, &'a GuestResource)> {
    let range = settings.policy.regions.get(name);
    let templates: Vec<&TemplateSettings> = templates::of(name, settings)
        .map(|(_, template)| template)
        .collect();
    let guests = resources.guests.iter();
    let wanted = guests.filter(|(vmid, guest)| {
        let ours = range.is_some_and(|range| (range.vmid_first..=range.vmid_last).contains(vmid));
        let is_template = || {
            let mut templates = templates.iter();
            templates.any(|template| templates::means(template, **vmid, guest))
        };
        guest.kind == GuestKind::Qemu && (ours || is_template())
    });
    wanted.map(|(vmid, guest)| (*vmid, guest)).collect()
}

/// Judges PVE's version and whether the cluster can change anything.
pub(super) fn judge(region: &SeenRegion, findings: &mut Findings) {
    judge_seen(&region.seen, &region.region.name, findings);
}

fn judge_seen(seen: &RegionSeen, name: &str, findings: &mut Findings) {
    let hosts = seen.resources.hosts.len();
    findings.fine(format!(
        "region {name}: PVE {} with {}",
        seen.version.version,
        words::count(hosts, "host")
    ));
    if seen.version.major() < OLDEST {
        findings
            .warning(format!(
                "region {name}: PVE {} is older than {OLDEST}, which this program was written for",
                seen.version.version
            ))
            .mend("upgrade PVE");
    }
    if seen.status.quorate {
        findings.fine(format!("region {name}: the cluster has quorum"));
    } else {
        findings
            .wrong(format!(
                "region {name}: the cluster has no quorum; nothing is changed until it has"
            ))
            .mend("pvecm status, on each host");
    }
}

#[cfg(test)]
mod tests {
    use super::super::{clones, hosts, range};
    use super::*;
    use crate::config::parse;
    use crate::pve::{GuestResource, HostResource, StorageResource};
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

    fn said(seen: &RegionSeen) -> Vec<String> {
        let settings = parse(FILE, "test").unwrap_or_else(|e| panic!("{e}"));
        judged(seen, &settings)
    }

    /// What the probes say that judge what was seen.
    fn judged(seen: &RegionSeen, settings: &Settings) -> Vec<String> {
        let findings = judge_all(seen, settings).0;
        findings.iter().map(ToString::to_string).collect()
    }

    fn judge_all(seen: &RegionSeen, settings: &Settings) -> Findings {
        let mut findings = Findings::default();
        judge_seen(seen, "default", &mut findings);
        for (name, pool) in &settings.policy.pools {
            hosts::judge_pool(&seen.resources, name, pool, &settings.policy, &mut findings);
        }
        for (name, template) in templates::of("default", settings) {
            templates::judge(seen, name, template, settings, &mut findings);
        }
        clones::judge(seen, "default", settings, &mut findings);
        range::judge(
            seen,
            "default",
            settings,
            (None, &BTreeMap::new()),
            &mut findings,
        );
        findings
    }

    fn good() -> RegionSeen {
        let host = HostResource {
            online: true,
            memory: 16 << 30,
            cpus: 8,
            ..HostResource::default()
        };
        let template = GuestResource {
            host: "pve1".into(),
            template: true,
            ..GuestResource::default()
        };
        let storage = StorageResource {
            active: true,
            shared: true,
            content: vec!["images".into()],
            ..StorageResource::default()
        };
        let storages = ["fast", "local"].map(|name| (Arc::from(name), storage.clone()));
        let storages = BTreeMap::from(storages);
        let config = VmConfig::read(&json!({
            "template": 1, "agent": "1", "scsi0": "local:base-8000-disk-0,size=8G", "boot": "order=scsi0",
            "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0",
            "ide2": "local:vm-8000-cloudinit,media=cdrom",
        }));
        RegionSeen {
            version: PveVersion {
                version: "9.2.1".into(),
                release: "9.2".into(),
            },
            status: ClusterStatus {
                quorate: true,
                ..ClusterStatus::default()
            },
            resources: ClusterResources {
                hosts: BTreeMap::from([("pve1".into(), host.clone()), ("pve2".into(), host)]),
                guests: BTreeMap::from([(8000, template)]),
                storages: ["pve1", "pve2"]
                    .map(|host| (host.into(), storages.clone()))
                    .into(),
            },
            configs: BTreeMap::from([(8000, config)]),
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
                "ok: pool small: a host is large enough for instance type s",
                "ok: template debian: VM 8000 on host pve1; whether its machines boot and could join, `pve-autoscaler template try debian` tries",
                "ok: template debian: storage fast",
                "ok: pool small: pve1, pve2 can clone its template, and storages have room for a machine of each type",
                "ok: region default: VMIDs 9000 to 9019: 0 machines of ours",
            ]
        );
    }

    /// What is not as it should be says what to do, whatever it is.
    #[test]
    fn every_complaint_says_what_to_do() {
        for found in judge_all(
            &everything_wrong(),
            &parse(FILE, "test").expect("it is valid"),
        )
        .0
        {
            let complains = found.grade != super::super::Grade::Fine;
            assert!(!complains || !found.mend.is_empty(), "{found}");
        }
    }

    #[test]
    fn everything_that_can_be_wrong_is_said() {
        insta::assert_snapshot!(said(&everything_wrong()).join("\n"));
    }

    fn everything_wrong() -> RegionSeen {
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
        seen
    }

    #[test]
    fn a_template_that_is_not_there_is_wrong() {
        let mut seen = good();
        seen.resources.guests.clear();
        let said = said(&seen);
        let wanted = "WRONG: template debian: there is no VM 8000 in region default; vmid, vm_name or tags in [template.debian] must name one";
        assert!(said.iter().any(|line| line.starts_with(wanted)), "{said:?}");
    }

    fn storage<'a>(seen: &'a mut RegionSeen, host: &str, name: &str) -> &'a mut StorageResource {
        let storages = seen.resources.storages.get_mut(host).expect("the host");
        storages.get_mut(name).expect("the storage")
    }

    /// What is said beyond what is fine.
    fn complaints(edit: impl FnOnce(&mut RegionSeen)) -> Vec<String> {
        let mut seen = good();
        edit(&mut seen);
        let mut said = said(&seen);
        said.retain(|line| !line.starts_with("ok: "));
        said
    }

    #[test]
    fn hosts_that_cannot_clone_are_named() {
        let there_alone = complaints(|seen| storage(seen, "pve1", "local").shared = false);
        assert_eq!(
            there_alone,
            [format!(
                "warning: pool small: the template debian has no copy that the host pve2 can clone (1 seen): VM 8000 is cloned on its host pve1 alone, since its ide2 is on local, which is not shared; no machine is made there; {}",
                clones::COPY
            )]
        );
        let off = complaints(|seen| storage(seen, "pve2", "fast").active = false);
        assert_eq!(
            off,
            [format!(
                "warning: pool small: the storage fast is not available on the host pve2, and clones of template 8000 go there; no machine is made there; {}",
                clones::COPY
            )]
        );
        let nowhere = complaints(|seen| {
            for host in ["pve1", "pve2"] {
                storage(seen, host, "fast").active = false;
            }
        });
        assert!(
            nowhere.iter().any(|line| line.starts_with("WRONG: pool small: no host can clone its template: ")),
            "{nowhere:?}"
        );
        // The fault is told once, with what helps; a storage or a copy more would not.
        let locked = complaints(|seen| {
            let config = seen.configs.get_mut(&8000).expect("the template");
            config.lock = Some("backup".into());
        });
        let of_pool = "WRONG: pool small: no host can clone its template debian, since no machine is made of it as it is; ";
        assert!(
            locked.iter().any(|line| line.starts_with(of_pool)),
            "{locked:?}"
        );
        assert!(
            !locked.iter().any(|line| line.contains(clones::COPY)),
            "{locked:?}"
        );
        let told = locked.iter().filter(|line| line.contains("(backup)"));
        assert_eq!(told.count(), 1, "{locked:?}");
    }

    #[test]
    fn of_listed_storages_it_is_said_which_each_host_takes() {
        let file = FILE.replace(
            "storage = \"fast\"",
            "storage = [\"fast\", \"local\", \"tank\"]",
        );
        let settings = parse(&file, "test").unwrap_or_else(|e| panic!("{e}"));
        let mut seen = good();
        let of_host = seen.resources.storages.get_mut("pve2").expect("the host");
        of_host.remove("fast");
        let all = judged(&seen, &settings);
        for told in [
            "warning: template debian: there is no storage tank; ",
            "ok: template debian: storage fast, local or tank",
            "ok: pool small: the disks of a new machine come to fast on pve1, local on pve2",
        ] {
            assert!(
                all.iter().any(|one| one.starts_with(told)),
                "{told}: {all:#?}"
            );
        }
        // The first is full for a machine on pve1.
        let fast = storage(&mut seen, "pve1", "fast");
        (fast.total, fast.used) = (100 << 30, 95 << 30);
        let all = judged(&seen, &settings);
        let told =
            "ok: pool small: the disks of a new machine come to local on pve1, local on pve2";
        assert!(all.iter().any(|one| one == told), "{all:#?}");
        // pve2 has none of the list.
        let of_host = seen.resources.storages.get_mut("pve2").expect("the host");
        of_host.remove("local");
        let all = judged(&seen, &settings);
        let told = "warning: pool small: none of the storages that are listed takes a disk: the host pve2 has no storage fast, and clones of template 8000 go there; the host pve2 has no storage local";
        assert!(all.iter().any(|one| one.starts_with(told)), "{all:#?}");
    }

    #[test]
    fn a_storage_without_room_for_one_machine_is_named() {
        let full = |size: i64, used: i64| {
            complaints(|seen| {
                for host in ["pve1", "pve2"] {
                    let fast = storage(seen, host, "fast");
                    (fast.total, fast.used) = (size << 30, used << 30);
                }
            })
        };
        assert_eq!(full(100, 80), Vec::<String>::new());
        let said = full(100, 95);
        let wanted = "warning: pool small: no host has room for the disks of instance type s: storage fast of host pve1 has 5Gi free, 10Gi wanted; storage fast of host pve2 has 5Gi free, 10Gi wanted; make room there";
        assert!(said.len() == 1 && said[0].starts_with(wanted), "{said:?}");
    }

    #[test]
    fn what_stays_free_of_a_storage_is_no_room() {
        let said = |floor: &str| {
            let text = FILE.replace(
                "max = 3\n",
                &format!("max = 3\nmin_free_storage = \"{floor}\"\n"),
            );
            assert_ne!(text, FILE);
            let settings = parse(&text, "test").unwrap_or_else(|e| panic!("{e}"));
            let mut seen = good();
            for host in ["pve1", "pve2"] {
                let fast = storage(&mut seen, host, "fast");
                (fast.total, fast.used) = (100 << 30, 80 << 30);
            }
            let mut said = judged(&seen, &settings);
            said.retain(|line| !line.starts_with("ok: "));
            said
        };
        assert_eq!(said("10%"), Vec::<String>::new());
        let full = said("11%");
        let wanted = "storage fast of host pve2 has 20Gi free, 10Gi wanted, and min_free_storage keeps 11Gi; make room there";
        assert!(full.len() == 1 && full[0].contains(wanted), "{full:?}");
        assert!(full[0].ends_with("or lower min_free_storage"), "{full:?}");
    }

    /// Hosts that lack different things: what helps is told of each, not of the first alone.
    #[test]
    fn what_helps_is_told_of_each_host_that_cannot_clone() {
        let text = FILE.replace("max = 3\n", "max = 3\nmin_free_storage = \"10%\"\n");
        assert_ne!(text, FILE);
        let settings = parse(&text, "test").unwrap_or_else(|e| panic!("{e}"));
        let mut seen = good();
        for host in ["pve1", "pve2"] {
            storage(&mut seen, host, "fast").total = 0;
        }
        storage(&mut seen, "pve2", "fast").active = false;
        let said = judged(&seen, &settings);
        let begin = "WRONG: pool small: no host can clone its template: ";
        let told = said.iter().find(|line| line.starts_with(begin));
        let told = told.unwrap_or_else(|| panic!("{said:?}"));
        let mends = format!(
            "let PVE tell the storage's size (a token needs Datastore.Audit on it), or min_free_storage = \"0%\" in [pool.small]; {}",
            clones::COPY
        );
        assert!(told.ends_with(&mends), "{told}");
    }

    #[test]
    fn what_further_disks_need_is_looked_for() {
        let disk = "max = 3\nhosts = [\"pve1\", \"pve2\"]\n[[template.debian.disk]]\nstorage = \"local\"\nsize = \"1GiB\"\n";
        let with = |slot: &str| {
            let text = FILE.replace(
                "max = 3\nhosts = [\"pve1\", \"pve2\"]\n",
                &format!("{disk}slot = \"{slot}\"\niothread = true\n"),
            );
            parse(&text, "test").unwrap_or_else(|e| panic!("{e}"))
        };
        let bad = |seen: &RegionSeen, slot: &str| {
            let said = judged(seen, &with(slot));
            said.into_iter()
                .filter(|line| !line.starts_with("ok: "))
                .collect::<Vec<_>>()
                .join("\n")
        };
        assert_eq!(bad(&good(), "virtio1"), "");
        let told = bad(&good(), "scsi1");
        assert!(
            told.contains("has the controller lsi, under which scsi1 gets no thread of its own"),
            "{told}"
        );
        let mut seen = good();
        storage(&mut seen, "pve2", "local").content = vec!["iso".into()];
        let told = bad(&seen, "virtio1");
        assert!(
            told.contains(
                "pool small: the storage local of further disks is not there, or takes no disks of VMs, on pve2"
            ),
            "{told}"
        );
        let mut seen = good();
        let config = seen.configs.get_mut(&8000).expect("there");
        config
            .raw
            .insert("virtio1".into(), "local:base-8000-disk-1,size=1G".into());
        let told = bad(&seen, "virtio1");
        assert!(
            told.contains(
                "has something at virtio1, where its machines are to have a further disk"
            ),
            "{told}"
        );
    }

    #[test]
    fn an_image_in_the_drive_ties_clones_to_its_host() {
        let tied = complaints(|seen| {
            let iso = StorageResource {
                active: true,
                ..StorageResource::default()
            };
            let storages = seen.resources.storages.get_mut("pve1").expect("the host");
            storages.insert("isos".into(), iso);
            let config = seen.configs.get_mut(&8000).expect("the template");
            let mut raw = json!(config.raw);
            raw["sata0"] = json!("isos:iso/debian.iso,media=cdrom");
            *config = VmConfig::read(&raw);
        });
        let text = "warning: template debian: VM 8000: its sata0 holds isos:iso/debian.iso, which the host pve1 has alone";
        assert!(tied.iter().any(|line| line.starts_with(text)), "{tied:?}");
    }

    /// PVE clones no VM with a drive on a storage that nobody has any more. It finds a look at storages that are there alone.
    #[test]
    fn a_drive_on_a_storage_that_is_not_there_is_told() {
        let drive = |value: &'static str| {
            complaints(move |seen| {
                let config = seen.configs.get_mut(&8000).expect("the template");
                let mut raw = json!(config.raw);
                raw["scsi1"] = json!(value);
                *config = VmConfig::read(&raw);
            })
        };
        let told = |lines: &[String]| {
            lines
                .iter()
                .any(|line| line.contains("does not show on pve1: "))
        };
        let gone = drive("attic:vm-8000-disk-9,size=1G");
        let text = "WRONG: template debian: VM 8000: its scsi1 is on attic, which PVE does not show on pve1: ";
        let wrong = gone.iter().find(|line| line.starts_with(text));
        let wrong = wrong.unwrap_or_else(|| panic!("{gone:?}"));
        assert!(wrong.contains("qm set 8000 --delete scsi1"), "{wrong}");
        for fine in ["fast:vm-8000-disk-9,size=1G", "none,media=cdrom"] {
            let said = drive(fine);
            assert!(!told(&said), "{fine}: {said:?}");
        }
        // A token may be kept from seeing it.
        let token = "channel = \"token\"\nendpoints = [\"https://192.0.2.1:8006\"]\ntoken_id = \"a@pve!b\"\ntoken_secret_file = \"/nowhere/secret\"\nca_file = \"/nowhere/ca.pem\"\nvmids";
        let file = FILE.replace("vmids", token);
        let settings = parse(&file, "test").unwrap_or_else(|e| panic!("{e}"));
        let mut seen = good();
        let config = seen.configs.get_mut(&8000).expect("the template");
        let mut raw = json!(config.raw);
        raw["scsi1"] = json!("attic:vm-8000-disk-9,size=1G");
        *config = VmConfig::read(&raw);
        let said = judged(&seen, &settings);
        let text = text.replace("WRONG", "warning");
        let warned = said
            .iter()
            .any(|line| line.starts_with(&text) && line.contains("Datastore.Audit"));
        assert!(warned, "{said:?}");
    }

    /// Hosts that are off tell no size: that none is there is said, and nothing of their memory.
    #[test]
    fn of_hosts_that_are_off_no_size_is_told() {
        let off = complaints(|seen| {
            for host in seen.resources.hosts.values_mut() {
                (host.online, host.memory, host.cpus) = (false, 0, 0);
            }
        });
        assert!(
            off.iter()
                .any(|line| line.contains("none of its hosts is online")),
            "{off:?}"
        );
        assert!(
            !off.iter().any(|line| line.contains("no host has the")),
            "{off:?}"
        );
    }

    #[test]
    fn linked_clones_on_lvm_are_refused_before_pve_does() {
        let linked = FILE.replace("clone = \"full\"\nstorage = \"fast\"", "clone = \"linked\"");
        assert_ne!(linked, FILE);
        let settings = parse(&linked, "test").unwrap_or_else(|e| panic!("{e}"));
        let mut seen = good();
        storage(&mut seen, "pve1", "local").plugin = "lvm".into();
        let said = judged(&seen, &settings);
        let text = "WRONG: template debian: VM 8000: its scsi0 is on local (lvm), which has no linked clones";
        assert!(said.iter().any(|line| line.starts_with(text)), "{said:?}");
    }
}
