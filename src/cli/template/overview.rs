//! What templates there are, which of them nothing needs any more, and their removal.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Serialize;

use super::snippets::{BuildSnippets, Cleaned};
use super::{BuiltVm, TemplateRegion, chosen, is_shared, tell};
use crate::cli::CliFailure;
use crate::cli::host_name;
use crate::cli::output::OutputFormat;
use crate::cli::table::table;
use crate::clock::Clock;
use crate::config::Settings;
use crate::config::file::Build;
use crate::controller::template_mark::{self, BuildStage};
use crate::model::time::{Span, Time};
use crate::model::words;
use crate::pve::ClusterResources;

/// The state of a template that is finished.
const READY: &str = "ready";

/// What is to become of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum TemplateUse {
    /// Machines are made of it.
    InUse,
    /// Linked clones need it.
    Cloned,
    /// It is being built.
    UnderWay,
    /// Nothing needs it.
    Removable,
}

/// A template, as it is told.
#[derive(Debug, Serialize)]
struct TemplateRow {
    template: String,
    host: String,
    vmid: u32,
    name: String,
    state: &'static str,
    definition: &'static str,
    clones: Vec<u32>,
    age_seconds: i64,
    fate: TemplateUse,
}

impl TemplateRow {
    /// It was finished, and a newer one, or one of the definition as it is, has taken its place.
    fn is_old(&self) -> bool {
        self.state == READY && matches!(self.fate, TemplateUse::Cloned | TemplateUse::Removable)
    }
}

/// Every template of a build with what is to become of it.
async fn rows(
    place: &TemplateRegion,
    name: &str,
    build: &Build,
    resources: &ClusterResources,
) -> anyhow::Result<Vec<(BuiltVm, TemplateRow)>> {
    let found = place.find(resources, name, build).await?;
    let wanted = template_mark::definition(build);
    let now = Clock::System.now().0 / 1_000;
    let mut rows = Vec::new();
    for built in &found {
        let clones = clones(place, built).await?;
        let shared = is_shared(resources, &build.storage, &built.host);
        let fate = fate(built, &found, &wanted, shared, !clones.is_empty());
        let row = TemplateRow {
            template: name.to_owned(),
            host: built.host.to_string(),
            vmid: built.vmid,
            name: built.name.to_string(),
            state: match built.mark.stage {
                BuildStage::Ready if built.template => READY,
                BuildStage::Failed => "failed",
                _ => "building",
            },
            definition: if built.mark.definition == wanted {
                "current"
            } else {
                "older"
            },
            clones: clones.into_iter().collect(),
            age_seconds: now.saturating_sub(built.mark.begun).max(0),
            fate,
        };
        rows.push((built.clone(), row));
    }
    Ok(rows)
}

/// VMs whose disks are linked to a template's, by the names of the volumes. Where names do not tell (thin LVM) a clone needs its
/// template no more.
async fn clones(place: &TemplateRegion, built: &BuiltVm) -> anyhow::Result<BTreeSet<u32>> {
    let base = format!("base-{}-disk-", built.vmid);
    let storages: BTreeSet<_> = built.storages.iter().collect();
    let mut clones = BTreeSet::new();
    for storage in storages {
        let disks = place.client.disks(&built.host, storage).await?;
        let linked = disks
            .iter()
            .filter(|(volume, vmid)| **vmid != built.vmid && volume.contains(&base));
        clones.extend(linked.map(|(_, vmid)| *vmid));
    }
    Ok(clones)
}

/// The newest template of the current definition is in use; without one the newest of any.
fn fate(built: &BuiltVm, all: &[BuiltVm], wanted: &str, shared: bool, cloned: bool) -> TemplateUse {
    if !built.finished() {
        let busy = built.mark.builder(&host_name::in_pve()).is_some();
        return if busy {
            TemplateUse::UnderWay
        } else {
            TemplateUse::Removable
        };
    }
    let beside = all
        .iter()
        .filter(|other| other.finished() && (shared || other.host == built.host));
    let best = beside.max_by_key(|other| {
        (
            other.mark.definition == wanted,
            other.mark.begun,
            other.vmid,
        )
    });
    if best.is_some_and(|best| best.vmid == built.vmid) {
        TemplateUse::InUse
    } else if cloned {
        TemplateUse::Cloned
    } else {
        TemplateUse::Removable
    }
}

/// Shows every template that was built.
pub(super) async fn list(settings: &Settings, output: OutputFormat) -> Result<(), CliFailure> {
    let mut all = Vec::new();
    for (name, (template, build)) in chosen(settings, &[])? {
        let place = TemplateRegion::open(settings, &template.region)?;
        let resources = place.client.resources().await?;
        let rows = rows(&place, name, build, &resources).await?;
        all.extend(rows.into_iter().map(|(_, row)| row));
    }
    output.show(&all, || overview(&all))
}

fn overview(all: &[TemplateRow]) -> String {
    if all.is_empty() {
        return "no template is built; `pve-autoscaler template build` makes them\n".to_owned();
    }
    let cells: Vec<Vec<String>> = all
        .iter()
        .map(|row| {
            vec![
                row.template.clone(),
                row.host.clone(),
                row.vmid.to_string(),
                row.name.clone(),
                if row.is_old() { "old" } else { row.state }.to_owned(),
                row.definition.to_owned(),
                row.clones.len().to_string(),
                Span::seconds(row.age_seconds).to_string(),
            ]
        })
        .collect();
    let heading = [
        "TEMPLATE",
        "HOST",
        "VMID",
        "NAME",
        "STATE",
        "DEFINITION",
        "CLONES",
        "AGE",
    ];
    table(&heading, &cells) + &describe_old(all)
}

/// What is to be said of templates of which no machine is made any more.
fn describe_old(all: &[TemplateRow]) -> String {
    let old = || all.iter().filter(|row| row.is_old());
    let kept = old().filter(|row| row.fate == TemplateUse::Cloned);
    let kept: Vec<String> = kept
        .map(|row| {
            let clones = words::count(row.clones.len(), "clone");
            format!("VM {} for {clones}", row.vmid)
        })
        .collect();
    let free = old().filter(|row| row.fate == TemplateUse::Removable);
    let free: Vec<String> = free.map(|row| format!("VM {}", row.vmid)).collect();
    let mut text = String::new();
    if !kept.is_empty() || !free.is_empty() {
        text.push_str("\nNo machine is made of an old template any more.\n");
    }
    if !kept.is_empty() {
        let named = words::names(&kept);
        let _ = writeln!(
            text,
            "Kept while linked clones need it: {named}; later `pve-autoscaler template prune` removes it."
        );
    }
    if !free.is_empty() {
        let named = words::names(&free);
        let _ = writeln!(
            text,
            "Nothing needs {named}: `pve-autoscaler template prune` removes it."
        );
    }
    text
}

/// Removes what nothing needs: VMs, and the files that interrupted builds left.
pub(super) async fn prune(settings: &Settings, dry_run: bool) -> Result<(), CliFailure> {
    let (mut vms, mut snippets) = (Cleaned::default(), Cleaned::default());
    for (name, (template, build)) in chosen(settings, &[])? {
        let place = TemplateRegion::open(settings, &template.region)?;
        let resources = place.client.resources().await?;
        let mut over = BTreeMap::new();
        for (built, row) in rows(&place, name, build, &resources).await? {
            let before = vms.removed;
            prune_vm(&place, (name, &built, &row), dry_run, &mut vms).await?;
            if vms.removed > before {
                over.insert(built.vmid, Time(built.mark.begun.saturating_mul(1000)));
            }
        }
        let of_builds = BuildSnippets {
            place: &place,
            template: name,
            build,
            over: &over,
        };
        let cleaned = of_builds.clean(dry_run).await?;
        snippets.removed += cleaned.removed;
        snippets.failed += cleaned.failed;
    }
    let mut count = words::count(vms.removed, "template");
    if snippets.removed > 0 {
        let files = words::count(snippets.removed, "file");
        count = format!("{count}, {files} of interrupted builds");
    }
    let verb = if dry_run {
        "would be removed"
    } else {
        "removed"
    };
    tell(&format!("{count} {verb}\n"))?;
    if vms.failed + snippets.failed > 0 {
        Err(CliFailure::Said)
    } else {
        Ok(())
    }
}

/// Removes a VM that nothing needs, or says why it stays.
async fn prune_vm(
    place: &TemplateRegion,
    (name, built, row): (&str, &BuiltVm, &TemplateRow),
    dry_run: bool,
    vms: &mut Cleaned,
) -> Result<(), CliFailure> {
    let about = format!(
        "{name} on {}: VM {} ({})",
        built.host, built.vmid, built.name
    );
    let said = match row.fate {
        TemplateUse::InUse => "is in use".to_owned(),
        TemplateUse::UnderWay => "is being built".to_owned(),
        TemplateUse::Cloned => {
            let clones: Vec<String> = row.clones.iter().map(u32::to_string).collect();
            format!("is kept: linked clones need it: {}", clones.join(", "))
        }
        TemplateUse::Removable if dry_run => {
            vms.removed += 1;
            "would be removed".to_owned()
        }
        TemplateUse::Removable => match place.remove(built.vmid, &built.host, name).await {
            Ok(()) => {
                vms.removed += 1;
                "is removed".to_owned()
            }
            Err(error) => {
                vms.failed += 1;
                format!("is still there: {error:#}")
            }
        },
    };
    tell(&format!("{about} {said}\n"))
}

#[cfg(test)]
mod tests {
    use super::TemplateUse::{Cloned, InUse, Removable};
    use super::*;
    use crate::controller::template_mark::TemplateMark;

    fn built(vmid: u32, host: &str, definition: &str, begun: i64) -> BuiltVm {
        BuiltVm {
            vmid,
            host: host.into(),
            name: "t".into(),
            template: true,
            storages: Vec::new(),
            mark: TemplateMark {
                template: "debian".to_owned(),
                cluster: "home".to_owned(),
                vmid,
                definition: definition.to_owned(),
                stage: BuildStage::Ready,
                by: "gone/1".to_owned(),
                begun,
                unknown: [].into(),
            },
        }
    }

    fn row(vmid: u32, state: &'static str, fate: TemplateUse, clones: &[u32]) -> TemplateRow {
        TemplateRow {
            template: "debian".to_owned(),
            host: "pve1".to_owned(),
            vmid,
            name: "t".to_owned(),
            state,
            definition: "current",
            clones: clones.to_vec(),
            age_seconds: 60,
            fate,
        }
    }

    /// By their names alone nobody would tell them from those that machines are made of.
    #[test]
    fn old_templates_are_listed_as_such_and_why_they_are_there() {
        let shown = overview(&[
            row(1, READY, InUse, &[7]),
            row(2, READY, Cloned, &[8]),
            row(3, READY, Cloned, &[9, 10]),
            row(4, READY, Removable, &[]),
            row(5, "failed", Removable, &[]),
        ]);
        let states = shown.lines().skip(1).take(5);
        let states: Vec<&str> = states
            .filter_map(|line| line.split_whitespace().nth(4))
            .collect();
        assert_eq!(states, ["ready", "old", "old", "old", "failed"]);
        for words in [
            "need it: VM 2 for 1 clone, VM 3 for 2 clones; later `pve-autoscaler template prune`",
            "Nothing needs VM 4: `pve-autoscaler template prune` removes it.",
        ] {
            assert!(shown.contains(words), "{words:?} is not in {shown}");
        }
        let new = overview(&[row(1, READY, InUse, &[7]), row(5, "failed", Removable, &[])]);
        assert!(!new.contains("old"), "{new}");
    }

    #[test]
    fn what_machines_are_made_of_stays_and_so_does_what_clones_need() {
        let all = [
            built(1, "pve1", "old", 1),
            built(2, "pve1", "new", 2),
            built(3, "pve2", "old", 3),
            built(4, "pve2", "older", 1),
        ];
        let fates = |shared, cloned| {
            let fates = all.iter().map(|one| fate(one, &all, "new", shared, cloned));
            fates.collect::<Vec<_>>()
        };
        assert_eq!(fates(false, false), [Removable, InUse, InUse, Removable]);
        assert_eq!(fates(false, true), [Cloned, InUse, InUse, Cloned]);
        assert_eq!(fates(true, false), [Removable, InUse, Removable, Removable]);
        let mut half = built(5, "pve1", "new", 9);
        half.template = false;
        let with = [all[0].clone(), half.clone()];
        assert_eq!(fate(&half, &with, "new", false, false), Removable);
        assert_eq!(fate(&with[0], &with, "new", false, false), InUse);
    }
}
