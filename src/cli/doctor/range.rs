//! The range of VMIDs: what is ours in it, what is not, and whether there is a free one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use super::ClusterId;
use super::finding::Findings;
use super::region::{RegionSeen, SeenRegion};
use crate::cli::host_name;
use crate::config::Settings;
use crate::config::settings::Channel;
use crate::controller::journal::{Journal, JournalEntry};
use crate::controller::template_mark::{self, MarkedProcess, TemplateMark};
use crate::model::action::is_being_made;
use crate::model::cluster::Node;
use crate::model::identity;
use crate::model::mark::Ownership;
use crate::model::policy::{MACHINE_ANNOTATION, VOLUMES_VMID};
use crate::model::reasons::LeftAlone;
use crate::model::words;
use crate::pve::VmConfig;

/// VMIDs named in one finding.
const MAX_NAMED: usize = 10;

/// Machines of ours in a region, by VMID, with their names.
type NamedMachines = BTreeMap<u32, Arc<str>>;

/// Judges what lies in a region's range, and which machines of ours lie outside of it.
pub(super) async fn look(region: &SeenRegion, findings: &mut Findings) {
    let of = &region.region;
    let (settings, cluster) = (&of.here.settings, of.cluster.as_ref());
    let entries = Journal::entries_in(&of.here.state).unwrap_or_default();
    let lost = lost_marks(entries.values(), &region.seen, &of.name, cluster);
    judge(&region.seen, &of.name, settings, (cluster, &lost), findings);
    // The configurations of VMs outside of the range, and so their marks, are told to nobody. Where the journal cannot be read, `journal`
    // says so, and where nodes cannot, `skew`.
    let mut machines = of_journal(entries.values(), &of.name, cluster);
    if let Some(client) = &of.kubernetes {
        let nodes = client.nodes().await.unwrap_or_default();
        machines.extend(of_nodes(&nodes, &of.name));
    }
    judge_outside(&region.seen, &of.name, settings, &machines, findings);
}

/// Machines of ours whose VMs do not carry their marks any more, by VMID, with what is said of each: they are known by the UUID that the journal
/// has of them. The words are those of `status`.
fn lost_marks<'a>(
    entries: impl Iterator<Item = &'a JournalEntry>,
    seen: &RegionSeen,
    region: &str,
    cluster: Option<&ClusterId>,
) -> BTreeMap<u32, String> {
    let lost = entries.filter_map(|entry| {
        let (vmid, mark) = (entry.target.vmid, &entry.spec.mark);
        let ours = cluster.is_none_or(|id| *mark.cluster == **id);
        let config = seen.configs.get(&vmid)?;
        let host = seen.resources.guests.get(&vmid)?.host.clone();
        let same = entry.uuid.is_some() && entry.uuid == config.uuid;
        if !(ours && same && *entry.target.region == *region) {
            return None;
        }
        let line: Arc<str> = mark.line().into();
        let why = match config.ownership() {
            Ownership::Unmarked => LeftAlone::LostMark { vmid, host, line }.to_string(),
            Ownership::Damaged(damage) => format!(
                "the mark in the description of its VM {vmid} on {host} is damaged ({damage}); in its place `{line}` makes it ours again"
            ),
            Ownership::Marked(_) | Ownership::UnknownVersion(_) => return None,
        };
        Some((vmid, format!("{}: {why}", entry.target.machine)))
    });
    lost.collect()
}

/// The machines that a journal names in a region; those of other clusters are none of ours.
fn of_journal<'a>(
    entries: impl Iterator<Item = &'a JournalEntry>,
    region: &str,
    cluster: Option<&ClusterId>,
) -> NamedMachines {
    let ours = entries.filter(|entry| {
        *entry.target.region == *region && cluster.is_none_or(|id| *entry.spec.mark.cluster == **id)
    });
    ours.map(|entry| (entry.target.vmid, entry.target.machine.clone()))
        .collect()
}

/// The machines that nodes of the cluster name in a region by our annotation, the node's own UUID in it.
fn of_nodes(nodes: &[(Arc<str>, Node)], region: &str) -> NamedMachines {
    let named = nodes.iter().filter_map(|(name, node)| {
        let vm = identity::named(node.annotations.get(MACHINE_ANNOTATION)?)?;
        let is_own = vm.uuid.eq_ignore_ascii_case(&node.system_uuid);
        (is_own && vm.region == region).then(|| (vm.vmid, name.clone()))
    });
    named.collect()
}

/// Says which machines of ours have VMs whose VMIDs are not in the range.
fn judge_outside(
    seen: &RegionSeen,
    name: &str,
    settings: &Settings,
    machines: &NamedMachines,
    findings: &mut Findings,
) {
    let Some(range) = settings.policy.regions.get(name) else {
        return;
    };
    let (first, last) = (range.vmid_first, range.vmid_last);
    let outside = machines.iter().filter(|(vmid, _)| {
        !(first..=last).contains(*vmid) && seen.resources.guests.contains_key(*vmid)
    });
    let outside: Vec<String> = outside
        .map(|(vmid, machine)| format!("{vmid} ({machine})"))
        .collect();
    if !outside.is_empty() {
        findings
            .warning(format!(
                "region {name}: machines of ours outside of the VMIDs {first} to {last}, which are left alone, and never removed: {}",
                some(&outside)
            ))
            .mend("a range in vmids that holds them, too. Or, to give them up: kubectl drain and kubectl delete node of each, and qm stop VMID; qm destroy VMID on its host");
    }
}

pub(super) fn judge(
    seen: &RegionSeen,
    name: &str,
    settings: &Settings,
    (cluster, lost): (Option<&ClusterId>, &BTreeMap<u32, String>),
    findings: &mut Findings,
) {
    let Some(range) = settings.policy.regions.get(name) else {
        return;
    };
    let (mut ours, mut foreign, mut damaged) = (0, Vec::new(), Vec::new());
    let mut trials = Vec::new();
    for (vmid, guest) in seen
        .resources
        .guests
        .range(range.vmid_first..=range.vmid_last)
    {
        let ownership = seen.configs.get(vmid).map(VmConfig::ownership);
        match ownership {
            _ if lost.contains_key(vmid) => ours += 1,
            Some(Ownership::Marked(mark)) if cluster.is_none_or(|id| *mark.cluster == **id) => {
                ours += 1;
            }
            Some(Ownership::Damaged(why)) => damaged.push(format!("{vmid} ({why})")),
            _ => match trial(seen, *vmid, settings) {
                Some(trial) => trials.push((*vmid, trial)),
                None if is_being_made(guest.lock.as_deref()) => {}
                None => foreign.push(vmid.to_string()),
            },
        }
    }
    findings.fine(format!(
        "region {name}: VMIDs {} to {}: {} of ours",
        range.vmid_first,
        range.vmid_last,
        words::count(ours, "machine")
    ));
    judge_room(
        name,
        settings,
        (range.vmid_first, range.vmid_last),
        seen,
        ours,
        findings,
    );
    for (vmid, trial) in trials {
        judge_trial(name, vmid, &trial, settings, findings);
    }
    for machine in lost.values() {
        findings
            .warning(format!("region {name}: left alone: {machine}"))
            .mend("that line into the VM's notes, as it stands here");
    }
    if !foreign.is_empty() {
        findings
            .warning(format!(
                "region {name}: VMs in our range that are not ours, and are left alone: {}",
                some(&foreign)
            ))
            .mend("nothing, where they may stay: their VMIDs are not used. Else another range in vmids, or give the VMs other VMIDs (vzdump, and qmrestore with another VMID)");
    }
    if !damaged.is_empty() {
        findings
            .warning(format!(
                "region {name}: VMs whose mark is damaged, and that are left alone: {}",
                some(&damaged)
            ))
            .mend("somebody changed the line that begins with pve-autoscaler in the VM's notes: put it back as it was, or destroy the VM (qm destroy VMID) once its node is drained and deleted");
    }
}

/// The mark of a VM that `template try` made with this configuration.
fn trial(seen: &RegionSeen, vmid: u32, settings: &Settings) -> Option<TemplateMark> {
    let cluster = &settings.broker.allow.cluster_name;
    template_mark::read_trial(vmid, seen.configs.get(&vmid)?, cluster)
}

/// Says of a VM of `template try` whether that runs, and what removes the VM where it does not.
fn judge_trial(
    region: &str,
    vmid: u32,
    trial: &TemplateMark,
    settings: &Settings,
    findings: &mut Findings,
) {
    let template = &trial.template;
    let about = format!(
        "region {region}: VM {vmid} in our range is of `pve-autoscaler template try`, which tries the template {template} with it"
    );
    let (host, _) = trial.by.split_once('/').unwrap_or_default();
    let here = settings.regions.get(region);
    let here = host_name::mark_reader(here.is_some_and(|here| here.channel == Channel::Local));
    match trial.process(&here) {
        MarkedProcess::Running(process) => findings.fine(format!("{about} and runs as process {process}")),
        _ if settings.templates.contains_key(template.as_str()) => findings
            .warning(format!(
                "{about}; unless that runs on {host}, it was interrupted or told to keep the VM"
            ))
            .mend(format!(
                "`pve-autoscaler template try {template}` removes it before it tries anew"
            )),
        _ => findings
            .warning(format!(
                "{about}; unless that runs on {host}, it was interrupted or told to keep the VM, and the file has no such template any more"
            ))
            .mend(format!("qm stop {vmid}; qm destroy {vmid}, on its host")),
    }
}

/// Says when the range has no VMID for machines that the pools may have.
fn judge_room(
    name: &str,
    settings: &Settings,
    (first, last): (u32, u32),
    seen: &RegionSeen,
    ours: usize,
    findings: &mut Findings,
) {
    let pools = settings.policy.pools_in(name);
    let most: usize = pools.map(|(_, pool)| pool.max as usize).sum();
    let guests = &seen.resources.guests;
    let kept = (first..=last).contains(&VOLUMES_VMID) && !guests.contains_key(&VOLUMES_VMID);
    let all = (last - first) as usize + usize::from(!kept);
    let free = all.saturating_sub(guests.range(first..=last).count());
    let wanted = most.saturating_sub(ours);
    if free == 0 && wanted > 0 {
        findings
            .wrong(format!(
                "region {name}: no VMID from {first} to {last} is free"
            ))
            .mend("a larger range in vmids, or move VMs out of it that are not ours");
    } else if free < wanted {
        findings
            .warning(format!(
                "region {name}: {} free from {first} to {last}, and the pools may make {wanted} more",
                words::are(free, "VMID")
            ))
            .mend("a larger range in vmids, or a smaller max");
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
    use crate::model::action::{CreateSpec, Target};
    use crate::model::cluster::Readiness;
    use crate::model::cpus::CpuSet;
    use crate::model::mark::Mark;
    use crate::model::resources::Resources;
    use crate::model::scheduling::Labels;
    use crate::model::shared::Shared;
    use crate::model::time::Time;
    use crate::pve::GuestResource;

    const UUID: &str = "5fd1a1c0-0000-4000-8000-000000009000";

    fn entry(machine: &str, vmid: u32, cluster: &str) -> JournalEntry {
        let target = Target {
            region: "default".into(),
            host: "pve1".into(),
            vmid,
            machine: machine.into(),
            node: None,
        };
        let mark = Mark {
            cluster: cluster.into(),
            machine: machine.into(),
            vmid,
            pool: "small".into(),
            instance_type: "s".into(),
            template: "debian".into(),
            token: "abcdef".into(),
            created: Time(0),
            addresses: BTreeMap::new(),
            cpus: CpuSet::new(),
            unknown: [].into(),
        };
        let spec = CreateSpec {
            mark,
            template_vmid: 8000,
            template_host: "pve1".into(),
            template_uuid: None,
            storages: crate::model::chosen_storages::ChosenStorages::default(),
            terms: None,
        };
        JournalEntry::new(target, spec, Time(0))
    }

    fn node(name: &str, annotation: &str) -> (Arc<str>, Node) {
        let annotations: Labels = [(MACHINE_ANNOTATION.into(), annotation.into())].into();
        let node = Node {
            uid: "n".into(),
            system_uuid: UUID.into(),
            provider_id: None,
            created: Time(0),
            deletion: None,
            labels: Shared::default(),
            annotations: annotations.into(),
            taints: Vec::new(),
            unschedulable: false,
            allocatable: Resources::default(),
            capacity: Resources::default(),
            ready: Readiness::default(),
            kubelet_version: "v1.36.0".into(),
            addresses: Vec::new(),
        };
        (name.into(), node)
    }

    #[test]
    fn machines_are_named_by_nodes_and_by_the_journal() {
        let id: ClusterId = "uid/home".into();
        let entries = [
            entry("small-a", 9000, "uid/home"),
            entry("small-b", 9001, "uid/other"),
        ];
        let named = of_journal(entries.iter(), "default", Some(&id));
        assert_eq!(named, [(9000, "small-a".into())].into());
        assert_eq!(of_journal(entries.iter(), "other", Some(&id)).len(), 0);
        assert_eq!(of_journal(entries.iter(), "default", None).len(), 2);

        let nodes = [
            node("small-c", &format!("default/9002/{UUID}")),
            node("other-region", &format!("other/9003/{UUID}")),
            node("copied", "default/9004/another-uuid"),
            node("broken", "default"),
        ];
        assert_eq!(
            of_nodes(&nodes, "default"),
            [(9002, "small-c".into())].into()
        );
    }

    /// It finds a doctor that calls a machine's VM somebody else's when its mark is gone, and one that calls another VM with that VMID ours.
    #[test]
    fn a_vm_that_lost_its_mark_is_its_machines_by_the_uuid() {
        let file = "version = 1\n[proxmox]\nvmids = \"9000-9019\"\n";
        let settings = parse(file, "test").unwrap_or_else(|e| panic!("{e}"));
        let mut entry = entry("small-a", 9000, "uid/home");
        entry.uuid = Some(UUID.into());
        let line = entry.spec.mark.line();
        let said = |description: &str, uuid: &str| {
            let mut seen = RegionSeen::default();
            let guest = GuestResource {
                host: "pve1".into(),
                ..GuestResource::default()
            };
            seen.resources.guests.insert(9000, guest);
            let smbios = format!("uuid={uuid}");
            let config = serde_json::json!({ "description": description, "smbios1": smbios });
            seen.configs.insert(9000, VmConfig::read(&config));
            let id: ClusterId = "uid/home".into();
            let lost = lost_marks([&entry].into_iter(), &seen, "default", Some(&id));
            let mut findings = Findings::default();
            judge(
                &seen,
                "default",
                &settings,
                (Some(&id), &lost),
                &mut findings,
            );
            let said = findings.0.iter().skip(1).map(ToString::to_string);
            said.collect::<Vec<_>>().join("\n")
        };
        let told = said("hello", UUID);
        let words = format!(
            "warning: region default: left alone: small-a: its mark is not in the description of its VM 9000 on pve1 any more; as the last line of that `{line}` makes it ours again"
        );
        assert!(
            told.starts_with(&words) && !told.contains("not ours"),
            "{told}"
        );
        let damaged = said(&line.replace("small-a", "small-b"), UUID);
        assert!(
            damaged.contains("is damaged (") && damaged.contains(&line),
            "{damaged}"
        );
        assert!(!damaged.contains("qm destroy"), "{damaged}");
        let others = said("hello", "5fd1a1c0-0000-4000-8000-000000009999");
        assert!(
            others.starts_with("warning: region default: VMs in our range that are not ours"),
            "{others}"
        );
        assert_eq!(said(&line, UUID), "");
    }

    /// A VM of a trial is no stranger's: the command that removes it is told, and none where the trial runs.
    #[test]
    fn a_vm_of_template_try_is_told_with_the_command_that_removes_it() {
        let file =
            "version = 1\n[proxmox]\nvmids = \"9000-9019\"\n[template.debian]\nvmid = 8000\n";
        let settings = parse(file, "test").unwrap_or_else(|e| panic!("{e}"));
        let said = |template: &str, cluster: &str, by: &str| {
            let mark = TemplateMark {
                template: template.to_owned(),
                cluster: cluster.to_owned(),
                vmid: 9019,
                definition: String::new(),
                stage: template_mark::BuildStage::Trial,
                by: by.to_owned(),
                machine: None,
                begun: 0,
                unknown: [].into(),
            };
            let mut seen = RegionSeen::default();
            let guests = &mut seen.resources.guests;
            guests.insert(9019, GuestResource::default());
            let config = serde_json::json!({ "description": mark.describe() });
            seen.configs.insert(9019, VmConfig::read(&config));
            let mut findings = Findings::default();
            judge(
                &seen,
                "default",
                &settings,
                (None, &BTreeMap::new()),
                &mut findings,
            );
            let said = findings.0.iter().skip(1).map(ToString::to_string);
            said.collect::<Vec<_>>().join("\n")
        };
        let vm = "region default: VM 9019 in our range is of `pve-autoscaler template try`, which tries the template debian with it";
        let of_a_gone_process = format!("{}/0", host_name::in_pve());
        for by in ["pve7/1", &*of_a_gone_process] {
            let (host, _) = by.split_once('/').expect("HOST/PID");
            assert_eq!(
                said("debian", "default", by),
                format!(
                    "warning: {vm}; unless that runs on {host}, it was interrupted or told to keep the VM; `pve-autoscaler template try debian` removes it before it tries anew"
                )
            );
        }
        let gone = said("rocky", "default", "pve7/1");
        assert!(
            gone.ends_with("no such template any more; qm stop 9019; qm destroy 9019, on its host"),
            "{gone}"
        );
        // Another cluster's configuration, which names a template alike.
        let other = said("debian", "other", "pve7/1");
        assert!(
            other.starts_with("warning: region default: VMs in our range that are not ours, and are left alone: 9019;"),
            "{other}"
        );
    }

    #[test]
    fn machines_outside_of_the_range_are_warned_of_while_their_vms_are_there() {
        let file = "version = 1\n[proxmox]\nvmids = \"9000-9019\"\n";
        let settings = parse(file, "test").unwrap_or_else(|e| panic!("{e}"));
        let mut seen = RegionSeen::default();
        for vmid in [8999, 9000, 9019, 9020] {
            let guests = &mut seen.resources.guests;
            guests.insert(vmid, GuestResource::default());
        }
        let said = |vmids: &[u32]| {
            let machines = vmids.iter().map(|vmid| (*vmid, format!("m{vmid}").into()));
            let mut findings = Findings::default();
            let machines = machines.collect();
            judge_outside(&seen, "default", &settings, &machines, &mut findings);
            let said = findings.0.iter().map(ToString::to_string);
            said.collect::<Vec<_>>().join("\n")
        };
        // Within; without a VM.
        assert_eq!(said(&[9000, 9019, 9021]), "");
        let told = said(&[8999, 9000, 9020, 9021]);
        let words = "warning: region default: machines of ours outside of the VMIDs 9000 to 9019, which are left alone, and never removed: 8999 (m8999), 9020 (m9020); a range in vmids that holds them, too.";
        assert!(told.starts_with(words), "{told}");
    }
}
