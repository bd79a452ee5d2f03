//! The PCI devices that machines get: their mappings, which hosts have some, and what the template must be for them. Mappings of USB devices
//! and directories that options name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::finding::Findings;
use super::mends;
use super::region::{RegionSeen, SeenRegion};
use super::templates::{self, copies};
use crate::config::{Settings, vm_options};
use crate::model::lacking::PartKind;
use crate::model::policy::{InstanceType, PoolPolicy};
use crate::model::region::MappedDevices;
use crate::model::words;
use crate::pve::{CallError, Client};

/// Looks at the devices of a region's instance types.
pub(super) async fn look(region: &SeenRegion, findings: &mut Findings) {
    let SeenRegion { region, seen } = region;
    let (name, settings) = (&*region.name, &*region.here.settings);
    passed_on(name, seen, settings, findings);
    let client = &region.client;
    let (usb, dir) = (client.usb_mappings(), client.dir_mappings());
    look_at_named(name, settings, (PartKind::UsbMapping, "usb"), usb, findings).await;
    look_at_named(name, settings, (PartKind::DirMapping, "dir"), dir, findings).await;
    if settings.policy.mappings_in(name).is_empty() {
        return;
    }
    match mapped(client, name, seen, settings).await {
        Ok(mapped) => judge(name, seen, &mapped, settings, findings),
        Err(error) => {
            findings
                .warning(format!(
                    "region {name}: the mappings of PCI devices: {}",
                    error.words()
                ))
                .mend(mends::of_call(&error, None));
        }
    }
}

/// How many mediated devices of which types a host says are left, or why it does not.
type MediatedAnswer = Result<BTreeMap<Arc<str>, u32>, CallError>;

/// What PVE tells of mappings of PCI devices.
#[derive(Default)]
struct MappedSeen {
    mappings: BTreeMap<Arc<str>, MappedDevices>,
    /// Those that are marked for mediated devices.
    marked: BTreeSet<Arc<str>>,
    /// By mapping and host.
    left: BTreeMap<(Arc<str>, Arc<str>), MediatedAnswer>,
}

/// Reads the mappings, and what is left of mediated devices on the hosts where machines may get some.
async fn mapped(
    client: &Client,
    region: &str,
    seen: &RegionSeen,
    settings: &Settings,
) -> Result<MappedSeen, CallError> {
    let mut told = MappedSeen {
        mappings: client.pci_mappings().await?,
        ..MappedSeen::default()
    };
    let devices = settings.policy.devices_in(region);
    if devices.iter().all(|(_, mdev)| mdev.is_none()) {
        return Ok(told);
    }
    told.marked = client.mediated_mappings().await?;
    let hosts = seen.resources.hosts.iter();
    for (host, _) in hosts.filter(|(_, of)| of.online) {
        for mapping in settings.policy.mediated_at(region, host) {
            let hosts = told.mappings.get(mapping);
            if hosts.is_some_and(|hosts| hosts.contains_key(host)) {
                let left = client.mediated_left(host, mapping).await;
                told.left.insert((mapping.clone(), host.clone()), left);
            }
        }
    }
    Ok(told)
}

/// Mappings of a kind that the options of templates name. PVE is asked where there are some.
async fn look_at_named(
    region: &str,
    settings: &Settings,
    (kind, path): (PartKind, &str),
    asked: impl Future<Output = Result<BTreeSet<String>, CallError>>,
    findings: &mut Findings,
) {
    let wanted = templates::of(region, settings).flat_map(|(template, of)| {
        let names = vm_options::mappings(&of.hardware.options, path).into_iter();
        names.map(move |name| (template, name))
    });
    let wanted: BTreeSet<(&Arc<str>, String)> = wanted.collect();
    if wanted.is_empty() {
        return;
    }
    let found = match asked.await {
        Ok(found) => found,
        Err(error) => {
            findings
                .warning(format!("region {region}: each {kind}: {}", error.words()))
                .mend(mends::of_call(&error, None));
            return;
        }
    };
    for (template, name) in wanted {
        if found.contains(&name) {
            findings.fine(format!("template {template}: {kind} {name}"));
        } else {
            findings
                .wrong(format!(
                    "template {template}: PVE shows no {kind} {name}, so that no machine of it starts"
                ))
                .mend(format!(
                    "add it (Datacenter, Resource Mappings); a token sees it with Mapping.Use on /mapping/{path}/{name}"
                ));
        }
    }
}

/// The pools of a region with each of their instance types.
fn pools<'a>(
    region: &'a str,
    settings: &'a Settings,
) -> impl Iterator<Item = (&'a Arc<str>, &'a PoolPolicy, &'a Arc<str>, &'a InstanceType)> {
    let policy = &settings.policy;
    policy.pools_in(region).flat_map(move |(name, pool)| {
        let types = pool.instance_types.iter();
        types.filter_map(move |kind| Some((name, pool, kind, policy.instance_types.get(kind)?)))
    })
}

fn judge(
    region: &str,
    seen: &RegionSeen,
    mapped: &MappedSeen,
    settings: &Settings,
    findings: &mut Findings,
) {
    for (name, pool, type_name, kind) in pools(region, settings) {
        let of = format!("pool {name}: instance type {type_name}");
        let mut wanted: BTreeMap<(&Arc<str>, Option<&Arc<str>>), usize> = BTreeMap::new();
        for device in &kind.pci {
            let what = (&device.mapping, device.mdev.as_ref());
            *wanted.entry(what).or_default() += 1;
        }
        for ((mapping, mdev), count) in wanted {
            // One device makes several mediated ones.
            let count = if mdev.is_some() { 1 } else { count };
            let mappings = (seen, &mapped.mappings);
            let usable = judge_mapping(&of, (mapping, count), pool, mappings, findings);
            if let Some(mdev) = mdev.filter(|_| usable) {
                judge_mediated(&of, (mapping, mdev), pool, mapped, findings);
            }
        }
        if kind.pci.iter().any(|device| device.pcie) {
            judge_machine(&of, pool, seen, settings, findings);
        }
    }
}

fn judge_mapping(
    of: &str,
    (mapping, count): (&Arc<str>, usize),
    pool: &PoolPolicy,
    (seen, mappings): (&RegionSeen, &BTreeMap<Arc<str>, MappedDevices>),
    findings: &mut Findings,
) -> bool {
    let Some(hosts) = mappings.get(mapping) else {
        findings
            .wrong(format!("{of}: PVE shows no mapping {mapping} of PCI devices"))
            .mend(format!(
                "add it (Datacenter, Resource Mappings); a token sees it with Mapping.Use on /mapping/pci/{mapping}"
            ));
        return false;
    };
    let usable = hosts.iter().filter(|(host, devices)| {
        seen.resources.hosts.contains_key(*host) && pool.may_use(host) && devices.len() >= count
    });
    let usable: Vec<String> = usable
        .map(|(host, devices)| format!("{} on {host}", words::count(devices.len(), "device")))
        .collect();
    if usable.is_empty() {
        let devices = words::count(count, "device");
        findings
            .wrong(format!(
                "{of}: no host that the pool may use has {devices} of the mapping {mapping}"
            ))
            .mend("add the host's devices to the mapping (Datacenter, Resource Mappings)");
    } else {
        findings.fine(format!("{of}: mapping {mapping}: {}", usable.join(", ")));
    }
    !usable.is_empty()
}

/// A mapping's mark for mediated devices, and on each host what is left of a type.
fn judge_mediated(
    of: &str,
    (mapping, mdev): (&Arc<str>, &Arc<str>),
    pool: &PoolPolicy,
    mapped: &MappedSeen,
    findings: &mut Findings,
) {
    if !mapped.marked.contains(mapping) {
        findings
            .wrong(format!(
                "{of}: the mapping {mapping} is not marked for mediated devices, and PVE starts no machine with one of it"
            ))
            .mend("mark it (Datacenter, Resource Mappings: Use with Mediated Devices)");
    }
    let told = mapped.left.iter();
    let told = told.filter(|((name, host), _)| name == mapping && pool.may_use(host));
    for ((_, host), left) in told {
        match left {
            Err(error) => {
                findings
                    .warning(format!(
                        "{of}: how many mediated devices of the mapping {mapping} are left on {host} could not be looked at, which takes Sys.Audit on /: {}",
                        error.words()
                    ))
                    .mend(mends::of_call(error, None));
            }
            Ok(types) if types.contains_key(mdev) => {
                let left = types.get(mdev).copied().unwrap_or_default();
                findings.fine(format!(
                    "{of}: {left} more mediated devices {mdev} of the mapping {mapping} on {host}"
                ));
            }
            Ok(types) => {
                let others = if types.is_empty() {
                    "it lists no type".to_owned()
                } else {
                    format!("its types are {}", words::names(types.keys()))
                };
                findings
                    .warning(format!(
                        "{of}: {host} has no mediated device {mdev} of the mapping {mapping}: {others}"
                    ))
                    .mend(format!(
                        "where none is in use there, correct mdev: `pvesh get /nodes/{host}/hardware/pci/{mapping}/mdev` lists the types"
                    ));
            }
        }
    }
}

/// A device on the PCI Express bus needs a machine that has one.
fn judge_machine(
    of: &str,
    pool: &PoolPolicy,
    seen: &RegionSeen,
    settings: &Settings,
    findings: &mut Findings,
) {
    let Some(template) = settings.templates.get(&pool.template) else {
        return;
    };
    for (vmid, _) in copies(seen, template) {
        let config = seen.configs.get(vmid);
        let machine = config.map(|config| config.raw.get("machine").map_or("", String::as_str));
        if machine.is_some_and(|machine| !machine.contains("q35")) {
            findings
                .wrong(format!(
                    "{of}: pcie=1 needs the machine type q35, which the template {vmid} does not have; PVE starts no machine of it"
                ))
                .mend(format!("qm set {vmid} --machine q35"));
        }
    }
}

/// Devices that machines have of their template: nothing counts them before there is a machine too many.
fn passed_on(region: &str, seen: &RegionSeen, settings: &Settings, findings: &mut Findings) {
    for (name, pool, type_name, kind) in pools(region, settings) {
        let template = settings.templates.get(&pool.template);
        let Some(template) = template.filter(|_| kind.pci.is_empty()) else {
            continue;
        };
        for (vmid, _) in copies(seen, template) {
            let config = seen.configs.get(vmid);
            let devices = config.map(|config| config.promise().devices);
            if devices.is_some_and(|devices| !devices.is_empty()) {
                findings
                    .warning(format!(
                        "pool {name}: instance type {type_name}: its machines have the PCI devices of the template {vmid}, and no machine is planned by what is free of them"
                    ))
                    .mend(format!(
                        "name the mapping in pci of [instance_type.{type_name}]"
                    ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::parse;
    use crate::pve::{ClusterResources, GuestResource, HostResource, VmConfig};

    const FILE: &str = r#"
version = 1
[proxmox]
vmids = "9000-9019"
[template.debian]
vmid = 8000
[instance_type.card]
cores = 2
memory = "4GiB"
pci = ["gpu,pcie=1"]
extended = { "nvidia.com/gpu" = 1 }
[instance_type.plain]
cores = 2
memory = "4GiB"
[pool.cards]
template = "debian"
instance_types = ["card"]
hosts = ["pve1"]
max = 3
[pool.others]
template = "debian"
instance_types = ["plain"]
max = 3
"#;

    fn seen(config: &serde_json::Value) -> RegionSeen {
        let template = GuestResource {
            host: "pve1".into(),
            template: true,
            ..GuestResource::default()
        };
        let host = |name: &str| (Arc::from(name), HostResource::default());
        RegionSeen {
            resources: ClusterResources {
                hosts: [host("pve1"), host("pve2")].into(),
                guests: BTreeMap::from([(8000, template)]),
                ..ClusterResources::default()
            },
            configs: BTreeMap::from([(8000, VmConfig::read(config))]),
            ..RegionSeen::default()
        }
    }

    fn said(config: &serde_json::Value, mapped: &[(&str, &[&str])]) -> Vec<String> {
        let settings = parse(FILE, "test").unwrap_or_else(|errors| panic!("{errors}"));
        let devices = |host: &str| vec![Arc::from(format!("0000:01:00.{}", host.len()))];
        let mappings = mapped.iter().map(|(name, hosts)| {
            let hosts = hosts.iter().map(|host| (Arc::from(*host), devices(host)));
            (Arc::from(*name), hosts.collect())
        });
        let (seen, mut findings) = (seen(config), Findings::default());
        passed_on("default", &seen, &settings, &mut findings);
        let mapped = MappedSeen {
            mappings: mappings.collect(),
            ..MappedSeen::default()
        };
        judge("default", &seen, &mapped, &settings, &mut findings);
        findings.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn mappings_hosts_and_templates_are_looked_at() {
        let good = json!({"template": 1, "machine": "pc-q35-9.2"});
        assert_eq!(
            said(&good, &[("gpu", &["pve1", "pve2"])]),
            ["ok: pool cards: instance type card: mapping gpu: 1 device on pve1"]
        );
        for (config, mapped, words) in [
            (&good, &[][..], "PVE shows no mapping gpu"),
            (
                &good,
                &[("gpu", &["pve2"][..])],
                "no host that the pool may use has 1 device of the mapping gpu",
            ),
            (
                &json!({"template": 1}),
                &[("gpu", &["pve1"])],
                "pcie=1 needs the machine type q35",
            ),
            (
                &json!({"template": 1, "machine": "q35", "hostpci0": "mapping=gpu"}),
                &[("gpu", &["pve1"])],
                "warning: pool others: instance type plain: its machines have the PCI devices of the template 8000",
            ),
        ] {
            let said = said(config, mapped);
            let bad: Vec<&String> = said
                .iter()
                .filter(|line| !line.starts_with("ok: "))
                .collect();
            let [line] = bad[..] else { panic!("{said:?}") };
            assert!(line.contains(words), "{line}");
        }
    }

    #[test]
    fn the_mark_and_the_types_of_mediated_devices_are_looked_at() {
        let file = FILE.replace(
            "pci = [\"gpu,pcie=1\"]",
            "pci = [{ mapping = \"gpu\", mdev = \"nvidia-63\" }]",
        );
        let settings = parse(&file, "test").unwrap_or_else(|errors| panic!("{errors}"));
        let seen = seen(&json!({"template": 1}));
        let left = |types: &[(&str, u32)]| {
            let types = types.iter().map(|(mdev, left)| (Arc::from(*mdev), *left));
            Ok(types.collect())
        };
        let said = |marked: bool, left: Result<BTreeMap<Arc<str>, u32>, CallError>| {
            let devices = vec![Arc::from("0000:41:00.0")];
            let hosts = ["pve1", "pve2"].map(|host| (Arc::from(host), devices.clone()));
            let at = |host: &str| (Arc::from("gpu"), Arc::from(host));
            let mapped = MappedSeen {
                mappings: [(Arc::from("gpu"), hosts.into())].into(),
                marked: marked.then(|| Arc::from("gpu")).into_iter().collect(),
                left: [(at("pve1"), left.clone()), (at("pve2"), left)].into(),
            };
            let mut findings = Findings::default();
            judge("default", &seen, &mapped, &settings, &mut findings);
            let lines = findings.0.iter().map(ToString::to_string);
            lines.collect::<Vec<String>>().join("\n")
        };
        let of = "pool cards: instance type card:";
        assert_eq!(
            said(true, left(&[("nvidia-63", 3)])),
            format!(
                "ok: {of} mapping gpu: 1 device on pve1\nok: {of} 3 more mediated devices nvidia-63 of the mapping gpu on pve1"
            )
        );
        let unmarked = said(false, left(&[("nvidia-63", 3)]));
        let words = "the mapping gpu is not marked for mediated devices";
        assert!(unmarked.contains(words), "{unmarked}");
        let other = said(true, left(&[("nvidia-64", 0), ("nvidia-65", 1)]));
        let words = "warning: pool cards: instance type card: pve1 has no mediated device nvidia-63 of the mapping gpu: its types are nvidia-64, nvidia-65";
        assert!(other.contains(words) && !other.contains("pve2"), "{other}");
        let none = said(true, left(&[]));
        assert!(none.contains("it lists no type"), "{none}");
        let error = CallError::new(
            crate::pve::CallEffect::Refused,
            "Permission check failed (/, Sys.Audit)",
        );
        let refused = said(true, Err(error));
        assert!(refused.contains("which takes Sys.Audit on /"), "{refused}");
    }
}
