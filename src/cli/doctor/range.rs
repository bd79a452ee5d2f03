//! The range of VMIDs: what is ours in it, what is not, and whether there is a free one.

use std::fmt::Write as _;

use super::ClusterId;
use super::finding::Findings;
use super::region::{RegionSeen, SeenRegion};
use crate::config::Settings;
use crate::model::action::is_being_made;
use crate::model::mark::Ownership;
use crate::model::policy::VOLUMES_VMID;
use crate::model::words;
use crate::pve::VmConfig;

/// VMIDs named in one finding.
const MAX_NAMED: usize = 10;

/// Judges what lies in a region's range.
pub(super) fn look(region: &SeenRegion, findings: &mut Findings) {
    let of = &region.region;
    let cluster = of.cluster.as_ref();
    judge(&region.seen, &of.name, &of.here.settings, cluster, findings);
}

pub(super) fn judge(
    seen: &RegionSeen,
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
            _ if is_being_made(guest.lock.as_deref()) => {}
            _ => foreign.push(vmid.to_string()),
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
