//! What templates there are, which of them nothing needs any more, and their removal.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::snippets::{BuildSnippets, Cleaned};
use super::{BuiltVm, TemplatePlace, TemplateRegion, chosen, host, tell};
use crate::cli::CliFailure;
use crate::cli::output::OutputFormat;
use crate::cli::table::table;
use crate::clock::Clock;
use crate::config::Settings;
use crate::config::file::Build;
use crate::config::settings::TemplateSettings;
use crate::controller::template_mark::{self, BuildStage};
use crate::model::region::GuestKind;
use crate::model::time::{Span, Time};
use crate::model::words;
use crate::pve::ClusterResources;

/// The state of a template that is finished.
const READY: &str = "ready";
/// PVE clones no locked VM.
const LOCKED: &str = "locked";
/// What a template was built of that was built of the file's definition as it is.
const CURRENT: &str = "current";
/// Of another definition than the file has now.
const OLDER: &str = "older";
/// Of none: a person made it.
const NO_DEFINITION: &str = "none";

/// In the place of what nobody knows.
const UNKNOWN: &str = "-";
/// Where the VM's name stands in a row.
const NAME_COLUMN: usize = 3;

/// What is to become of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
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

/// As `-o json` prints it.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::cli) struct TemplateList {
    /// The version of this form.
    schema_version: u32,
    /// Every template that is there.
    templates: Vec<TemplateRow>,
    /// Templates of the configuration of which PVE shows no VM.
    missing: Vec<String>,
}

/// A template, as it is told.
#[derive(Debug, Serialize, JsonSchema)]
struct TemplateRow {
    /// Its table in the configuration.
    template: String,
    /// The host that its VM is on.
    host: String,
    /// The VM.
    vmid: u32,
    /// The VM's name.
    name: String,
    /// `ready`, `locked`, `building`, `failed`, `offline` or `no template`.
    state: &'static str,
    /// `current`, `older`, or `none` where a person made it.
    definition: &'static str,
    /// VMs whose disks are linked to the template's; `None` where that cannot be read.
    clones: Option<Vec<u32>>,
    /// Since when it is built; of a person's template nobody knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    age_seconds: Option<i64>,
    /// What is to become of it.
    fate: TemplateUse,
}

/// A template of the configuration of which PVE shows no VM.
#[derive(Debug)]
struct MissingTemplate {
    name: String,
    /// The file says how it is built.
    has_build: bool,
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
    let time = Clock::System.now();
    let now = time.0 / 1_000;
    let (here, longest) = (place.mark_reader(), host::longest(build));
    let mut rows = Vec::new();
    for built in &found {
        // A template whose clones nobody can list, since a storage is away for instance, counts as one that has some.
        let found_clones = clones(place, (built.vmid, &built.host), &built.storages).await;
        let linked = match found_clones {
            Ok(linked) => Some(linked),
            Err(error) => {
                crate::cli::say(&format!(
                    "pve-autoscaler: which VMs are clones of the VM {} is not known: {error:#}",
                    built.vmid
                ));
                None
            }
        };
        let at = TemplatePlace::of(&build.storage, built, resources);
        let beside: Vec<&BuiltVm> = found.iter().filter(|other| at.has(other)).collect();
        let is_cloned = linked.as_ref().is_none_or(|clones| !clones.is_empty());
        let may = built.mark.may_be_under_way(&here, longest, time);
        let fate = fate(built, &beside, &wanted, (is_cloned, may));
        let row = TemplateRow {
            template: name.to_owned(),
            host: built.host.to_string(),
            vmid: built.vmid,
            name: built.name.to_string(),
            state: match built.mark.stage {
                BuildStage::Ready if built.template && is_locked(resources, built.vmid) => LOCKED,
                BuildStage::Ready if built.template => READY,
                BuildStage::Failed => "failed",
                _ => "building",
            },
            definition: if built.mark.definition == wanted {
                CURRENT
            } else {
                OLDER
            },
            clones: linked.map(|linked| linked.into_iter().collect()),
            age_seconds: Some(now.saturating_sub(built.mark.begun).max(0)),
            fate,
        };
        rows.push((built.clone(), row));
    }
    Ok(rows)
}

/// Whether PVE shows a lock on a VM.
fn is_locked(resources: &ClusterResources, vmid: u32) -> bool {
    let guest = resources.guests.get(&vmid);
    guest.is_some_and(|guest| guest.lock.is_some())
}

/// The VMs that the table of a template means which a person made.
async fn rows_by_hand(
    place: &TemplateRegion,
    name: &str,
    template: &TemplateSettings,
    resources: &ClusterResources,
) -> anyhow::Result<Vec<TemplateRow>> {
    let mut rows = Vec::new();
    for (vmid, guest) in &resources.guests {
        let meant = template.means(*vmid, guest.template, &guest.name, &guest.tags);
        if guest.kind != GuestKind::Qemu || !meant {
            continue;
        }
        let host = resources.hosts.get(&guest.host);
        let online = host.is_some_and(|host| host.online);
        let mut linked = None;
        if online {
            let config = place.client.vm_config(&guest.host, *vmid).await?;
            let disks = config.disks.values();
            let disks = disks.filter(|disk| !disk.cdrom && !disk.storage.is_empty());
            let storages: Vec<Arc<str>> = disks.map(|disk| disk.storage.clone()).collect();
            // A token may be kept from looking into a storage.
            let found = clones(place, (*vmid, &guest.host), &storages).await;
            linked = found.ok().map(|found| found.into_iter().collect());
        }
        rows.push(TemplateRow {
            template: name.to_owned(),
            host: guest.host.to_string(),
            vmid: *vmid,
            name: guest.name.to_string(),
            state: match (online, guest.template) {
                (false, _) => "offline",
                (true, true) if guest.lock.is_some() => LOCKED,
                (true, true) => READY,
                (true, false) => "no template",
            },
            definition: NO_DEFINITION,
            clones: linked,
            age_seconds: None,
            fate: TemplateUse::InUse,
        });
    }
    Ok(rows)
}

/// VMs whose disks are linked to a template's, by the names of the volumes. Where names do not tell (thin LVM) a clone needs its
/// template no more.
async fn clones(
    place: &TemplateRegion,
    (template, host): (u32, &str),
    storages: &[Arc<str>],
) -> anyhow::Result<BTreeSet<u32>> {
    let base = format!("base-{template}-disk-");
    let storages: BTreeSet<_> = storages.iter().collect();
    let mut clones = BTreeSet::new();
    for storage in storages {
        let disks = place.client.disks(host, storage).await?;
        let linked = disks
            .iter()
            .filter(|(volume, vmid)| **vmid != template && volume.contains(&base));
        clones.extend(linked.map(|(_, vmid)| *vmid));
    }
    Ok(clones)
}

/// Of the templates that serve the same hosts (`beside`) the newest of the current definition is in use; without one the newest of any.
fn fate(
    built: &BuiltVm,
    beside: &[&BuiltVm],
    wanted: &str,
    (cloned, under_way): (bool, bool),
) -> TemplateUse {
    if !built.finished() {
        return if under_way {
            TemplateUse::UnderWay
        } else {
            TemplateUse::Removable
        };
    }
    let finished = beside.iter().filter(|other| other.finished());
    let best = finished.max_by_key(|other| {
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

/// Shows every template that was built, and those that a person made for the configuration.
pub(super) async fn list(settings: &Settings, output: OutputFormat) -> Result<(), CliFailure> {
    let (mut all, mut missing) = (Vec::new(), Vec::new());
    let cloned = settings.templates.iter();
    for (name, template) in cloned.filter(|(_, template)| template.new_vm.is_none()) {
        let place = TemplateRegion::open(settings, &template.region)?;
        let resources = place.client.resources().await?;
        let before = all.len();
        match &template.build {
            Some(build) => {
                let rows = rows(&place, name, build, &resources).await?;
                all.extend(rows.into_iter().map(|(_, row)| row));
            }
            None => all.extend(rows_by_hand(&place, name, template, &resources).await?),
        }
        if all.len() == before {
            missing.push(MissingTemplate {
                name: name.to_string(),
                has_build: template.build.is_some(),
            });
        }
    }
    let wide = output == OutputFormat::Wide;
    let list = TemplateList {
        schema_version: 1,
        templates: all,
        missing: missing.iter().map(|one| one.name.clone()).collect(),
    };
    output.show(&list, || overview(&list.templates, &missing, wide))
}

/// The table, and what is to be said of it. `wide`: with the names of the VMs, for which 80 columns are too few.
fn overview(all: &[TemplateRow], missing: &[MissingTemplate], wide: bool) -> String {
    if all.is_empty() {
        return nothing_there(missing);
    }
    let cells = all.iter().map(|row| {
        let clones = row.clones.as_ref().map(|clones| clones.len().to_string());
        let age = row.age_seconds.map(|age| Span::seconds(age).to_string());
        let of_none = row.definition == NO_DEFINITION;
        let mut cells = vec![
            row.template.clone(),
            row.host.clone(),
            row.vmid.to_string(),
            row.name.clone(),
            if row.is_old() { "old" } else { row.state }.to_owned(),
            if of_none { "by hand" } else { row.definition }.to_owned(),
            clones.unwrap_or_else(|| UNKNOWN.to_owned()),
            age.unwrap_or_else(|| UNKNOWN.to_owned()),
        ];
        if !wide {
            cells.remove(NAME_COLUMN);
        }
        cells
    });
    let cells: Vec<Vec<String>> = cells.collect();
    let mut heading = vec![
        "TEMPLATE",
        "HOST",
        "VMID",
        "NAME",
        "STATE",
        "DEFINITION",
        "CLONES",
        "AGE",
    ];
    if !wide {
        heading.remove(NAME_COLUMN);
    }
    let told = describe_locked(all)
        + &describe_old(all)
        + &describe_older(all)
        + &describe_missing(missing);
    table(&heading, &cells) + &told
}

/// What is said in the place of a table.
fn nothing_there(missing: &[MissingTemplate]) -> String {
    if missing.is_empty() {
        return "the configuration has no template that machines are cloned from; docs/template.md shows one\n".to_owned();
    }
    if missing.iter().all(|one| one.has_build) {
        return "no template is built; `pve-autoscaler template build` makes them\n".to_owned();
    }
    describe_missing(missing).trim_start().to_owned()
}

/// What is to be said of templates of which PVE shows no VM.
fn describe_missing(missing: &[MissingTemplate]) -> String {
    let mut text = String::new();
    for (has_build, told) in [
        (
            true,
            (
                "Not built: ",
                "`pve-autoscaler template build` builds what is missing",
            ),
        ),
        (
            false,
            (
                "Not there: ",
                "`pve-autoscaler doctor` says which templates PVE shows",
            ),
        ),
    ] {
        let of_kind = missing.iter().filter(|one| one.has_build == has_build);
        let named: Vec<&str> = of_kind.map(|one| &*one.name).collect();
        if !named.is_empty() {
            let named = words::names(&named);
            let _ = writeln!(text, "\n{}{named}; {}.", told.0, told.1);
        }
    }
    text
}

/// What is to be said of templates that are locked: no machine is made of them.
fn describe_locked(all: &[TemplateRow]) -> String {
    let locked = all.iter().filter(|row| row.state == LOCKED);
    let named: Vec<String> = locked.map(|row| format!("VM {}", row.vmid)).collect();
    if named.is_empty() {
        return String::new();
    }
    format!(
        "\nNo machine is made of {} while it is locked; `pve-autoscaler doctor` says by what, and how to end it.\n",
        words::names(&named)
    )
}

/// What is to be said of templates of which machines are made, and which were built of another definition than the file has.
fn describe_older(all: &[TemplateRow]) -> String {
    let mut hosts: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let older = |row: &&TemplateRow| {
        row.definition == OLDER && row.state == READY && row.fate == TemplateUse::InUse
    };
    for row in all.iter().filter(older) {
        hosts.entry(&row.template).or_default().insert(&row.host);
    }
    let told = hosts.into_iter().map(|(template, hosts)| {
        format!(
            "\nMachines are made of {template} as an older definition says, on {}: `pve-autoscaler template build {template}` builds it as the file has it now.\n",
            words::names(hosts)
        )
    });
    told.collect()
}

/// One thing, or several, where they were named before.
fn pronoun(many: usize) -> &'static str {
    if many == 1 { "it" } else { "them" }
}

/// What is to be said of templates of which no machine is made any more.
fn describe_old(all: &[TemplateRow]) -> String {
    let old = || all.iter().filter(|row| row.is_old());
    let kept = old().filter(|row| row.fate == TemplateUse::Cloned);
    let kept: Vec<String> = kept
        .map(|row| {
            let clones = row.clones.as_ref().map_or_else(
                || "clones that cannot be listed".to_owned(),
                |clones| words::count(clones.len(), "clone"),
            );
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
        let them = pronoun(kept.len());
        let _ = writeln!(
            text,
            "Kept while linked clones need {them}: {named}; later `pve-autoscaler template prune` removes {them}."
        );
    }
    if !free.is_empty() {
        let named = words::names(&free);
        let them = pronoun(free.len());
        let _ = writeln!(
            text,
            "Nothing needs {named}: `pve-autoscaler template prune` removes {them}."
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
            prune_vm(&place, (name, &built, &row, build), dry_run, &mut vms).await?;
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
    (name, built, row, build): (&str, &BuiltVm, &TemplateRow, &Build),
    dry_run: bool,
    vms: &mut Cleaned,
) -> Result<(), CliFailure> {
    let about = format!(
        "{name} on {}: VM {} ({})",
        built.host, built.vmid, built.name
    );
    let said = match row.fate {
        TemplateUse::InUse => "is in use".to_owned(),
        TemplateUse::UnderWay => {
            let (here, mark) = (place.mark_reader(), &built.mark);
            let process = mark.tell_process(&here, host::longest(build));
            let by_hand = host::by_hand(mark, &here, (built.vmid, &built.host));
            format!("is being built by {process}{by_hand}")
        }
        TemplateUse::Cloned if row.clones.is_none() => {
            "is kept: whether linked clones need it is not known".to_owned()
        }
        TemplateUse::Cloned => {
            let clones = row.clones.iter().flatten();
            let clones: Vec<String> = clones.map(u32::to_string).collect();
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
    use super::TemplateUse::{Cloned, InUse, Removable, UnderWay};
    use super::*;
    use crate::config::storage_names::StorageNames;
    use crate::controller::template_mark::TemplateMark;
    use crate::pve::StorageResource;

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
                machine: None,
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
            definition: CURRENT,
            clones: Some(clones.to_vec()),
            age_seconds: Some(60),
            fate,
        }
    }

    /// By their names alone nobody would tell them from those that machines are made of.
    #[test]
    fn old_templates_are_listed_as_such_and_why_they_are_there() {
        let all = [
            row(1, READY, InUse, &[7]),
            row(2, READY, Cloned, &[8]),
            row(3, READY, Cloned, &[9, 10]),
            row(4, READY, Removable, &[]),
            row(5, "failed", Removable, &[]),
        ];
        let shown = overview(&all, &[], true);
        let states = shown.lines().skip(1).take(5);
        let states: Vec<&str> = states
            .filter_map(|line| line.split_whitespace().nth(4))
            .collect();
        assert_eq!(states, ["ready", "old", "old", "old", "failed"]);
        for words in [
            "need them: VM 2 for 1 clone, VM 3 for 2 clones; later `pve-autoscaler template prune` removes them.",
            "Nothing needs VM 4: `pve-autoscaler template prune` removes it.",
        ] {
            assert!(shown.contains(words), "{words:?} is not in {shown}");
        }
        assert!(!shown.contains("locked"), "{shown}");
        let locked = overview(&[row(1, LOCKED, InUse, &[])], &[], false);
        let told = "No machine is made of VM 1 while it is locked;";
        assert!(
            locked.contains("  locked") && locked.contains(told),
            "{locked}"
        );
        let new = [row(1, READY, InUse, &[7]), row(5, "failed", Removable, &[])];
        let new = overview(&new, &[], true);
        assert!(!new.contains("old"), "{new}");
    }

    /// The state after every rebuild: the VM before is called `NAME-old-VMID`, which alone takes a third of a terminal.
    #[test]
    fn a_row_fits_80_columns_whatever_the_vm_is_called() {
        let mut rows = [
            row(800_000, READY, InUse, &[7]),
            row(800_001, READY, Cloned, &[8]),
        ];
        rows[1].name = format!("{}-old-800001", "n".repeat(40));
        let shown = overview(&rows, &[], false);
        let lines: Vec<&str> = shown.lines().take(3).collect();
        assert_eq!(
            lines,
            [
                "  TEMPLATE  HOST  VMID    STATE  DEFINITION  CLONES  AGE",
                "  debian    pve1  800000  ready  current     1       1m",
                "  debian    pve1  800001  old    current     1       1m",
            ]
        );
        let wide = overview(&rows, &[], true);
        assert!(
            wide.contains(" NAME ") && wide.contains("-old-800001 "),
            "{wide}"
        );
    }

    /// A storage that is away says nothing of clones: the table is there all the same, and the template is kept.
    #[test]
    fn a_template_whose_clones_nobody_can_list_is_kept_and_told() {
        let mut rows = [row(1, READY, InUse, &[7]), row(2, READY, Cloned, &[])];
        rows[1].clones = None;
        let shown = overview(&rows, &[], false);
        let told = "Kept while linked clones need it: VM 2 for clones that cannot be listed;";
        assert!(shown.contains(told), "{shown}");
    }

    #[test]
    fn what_is_older_is_told_with_what_builds_it() {
        let mut rows = [
            row(1, READY, InUse, &[]),
            row(2, READY, InUse, &[]),
            row(3, READY, Removable, &[]),
            row(4, "failed", Removable, &[]),
        ];
        assert!(!overview(&rows, &[], false).contains("older"));
        for one in &mut rows {
            one.definition = OLDER;
        }
        rows[1].host = "pve2".to_owned();
        rows[2].host = "pve3".to_owned();
        let shown = overview(&rows, &[], false);
        let told = "\nMachines are made of debian as an older definition says, on pve1, pve2: `pve-autoscaler template build debian` builds it as the file has it now.\n";
        assert!(shown.ends_with(told), "{shown}");
    }

    #[test]
    fn templates_made_by_hand_and_missing_ones_are_told() {
        let mut by_hand = row(9000, READY, InUse, &[]);
        (by_hand.definition, by_hand.age_seconds, by_hand.clones) = (NO_DEFINITION, None, None);
        let missing = |name: &str, has_build: bool| MissingTemplate {
            name: name.to_owned(),
            has_build,
        };
        let both = [missing("suse", false), missing("rocky", true)];
        let told = "Not built: rocky; `pve-autoscaler template build` builds what is missing.\n\n\
             Not there: suse; `pve-autoscaler doctor` says which templates PVE shows.\n";
        let shown = overview(&[by_hand], &both, false);
        assert_eq!(
            shown,
            format!(
                "  TEMPLATE  HOST  VMID  STATE  DEFINITION  CLONES  AGE\n  debian    pve1  9000  ready  by hand     -       -\n\n{told}"
            )
        );
        assert_eq!(overview(&[], &both, false), told);
        let unbuilt = overview(&[], &[missing("rocky", true)], false);
        assert!(unbuilt.starts_with("no template is built; "), "{unbuilt}");
        let none = overview(&[], &[], false);
        assert!(
            none.starts_with("the configuration has no template "),
            "{none}"
        );
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
            let fates = all.iter().map(|one| {
                let beside = all.iter().filter(|other| shared || other.host == one.host);
                let beside: Vec<&BuiltVm> = beside.collect();
                fate(one, &beside, "new", (cloned, false))
            });
            fates.collect::<Vec<_>>()
        };
        assert_eq!(fates(false, false), [Removable, InUse, InUse, Removable]);
        assert_eq!(fates(false, true), [Cloned, InUse, InUse, Cloned]);
        assert_eq!(fates(true, false), [Removable, InUse, Removable, Removable]);
        let mut half = built(5, "pve1", "new", 9);
        half.template = false;
        let with = [all[0].clone(), half.clone()];
        let both: Vec<&BuiltVm> = with.iter().collect();
        assert_eq!(fate(&half, &both, "new", (false, false)), Removable);
        assert_eq!(fate(&half, &both, "new", (false, true)), UnderWay);
        assert_eq!(fate(&with[0], &both, "new", (false, true)), InUse);
    }

    #[test]
    fn of_a_list_a_template_serves_the_hosts_of_its_own_storage() {
        let storage = |shared| StorageResource {
            active: true,
            shared,
            ..StorageResource::default()
        };
        let of_hosts = [
            ("pve1", "zfs", false),
            ("pve2", "ceph", true),
            ("pve3", "ceph", true),
        ];
        let storages = of_hosts.map(|(host, name, shared)| {
            let of_host = BTreeMap::from([(Arc::from(name), storage(shared))]);
            (Arc::from(host), of_host)
        });
        let resources = ClusterResources {
            storages: storages.into(),
            ..ClusterResources::default()
        };
        let names = StorageNames::from(["zfs", "ceph"]);
        let on = |vmid, host: &str, storage: &str| BuiltVm {
            storages: vec![storage.into()],
            ..built(vmid, host, "new", 1)
        };
        let (local, shared) = (on(1, "pve1", "zfs"), on(2, "pve2", "ceph"));
        for (host, own) in [("pve1", &local), ("pve2", &shared), ("pve3", &shared)] {
            let at = TemplatePlace::on(&names, host, &resources);
            for one in [&local, &shared] {
                assert_eq!(at.has(one), one.vmid == own.vmid, "{host} {}", one.vmid);
            }
        }
        assert!(!TemplatePlace::of(&names, &shared, &resources).has(&local));
        assert!(TemplatePlace::of(&names, &shared, &resources).has(&on(3, "pve3", "ceph")));
    }
}
