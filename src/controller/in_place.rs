//! What of a working machine's VM is not as the file says, where PVE lets it change while the VM runs. Pure.
//!
//! Whoever looks after PVE may write tags and notes too: tags that are not ours stay, and so do notes that somebody
//! edited. So the journal keeps what we wrote last ([`Written`]). A key that the file does not name is left as it is.
//! Source: `qemu-server` `PVE/QemuServer.pm`, `vmconfig_hotplug_pending` (`$fast_plug_option`, `cpuunits`, `cpulimit`,
//! `hotplug`, `tablet`).
//! The resource pool is no part of a VM's configuration: `pve-manager` `PVE/API2/Pool.pm`, `update_pool`. Security groups stand
//! with its firewall, see [`groups`].

pub mod annotations;
pub mod groups;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::config::settings::{Channel, Settings, TemplateSettings};
use crate::controller::journal::JournalEntry;
use crate::controller::machines::Observed;
use crate::controller::vm_config;
use crate::model::in_place::{Difference, FailedWrite};
use crate::model::mark::{self, Mark};
use crate::model::region::{Machine, RegionName, Step};
use crate::pve::{FirewallRule, GuestResource, VmConfig};

/// The name of the notes above the mark where a difference is told; PVE's key for them.
pub const DESCRIPTION: &str = "description";
/// The name of the resource pool where a difference is told.
pub const POOL: &str = "pool";
pub use annotations::WrittenAnnotations;
pub use groups::GROUPS;

pub use crate::model::in_place::ANNOTATIONS;

/// A VM's resource pool and firewall rules, which PVE keeps outside of the VM's configuration; each as far as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// The PVE resource pool; empty for none, `None` where that is not seen.
    pub pool: Option<Arc<str>>,
    /// The rules of its firewall; `None` where they were not read.
    pub rules: Option<Arc<Vec<FirewallRule>>>,
}

/// The resource pool that PVE's list shows for a VM. It leaves out those that the caller may not audit, so that to a token a VM
/// without a pool tells nothing.
pub fn seen_pool(settings: &Settings, region: &str, guest: &GuestResource) -> Option<Arc<str>> {
    let region = settings.regions.get(region);
    let sees_all = region.is_some_and(|region| region.channel == Channel::Local);
    let none = || sees_all.then(|| Arc::from(""));
    guest.pool.clone().or_else(none)
}

/// What was last written to a VM that others may write too, and what could not be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Written {
    /// Our tags.
    pub tags: Vec<String>,
    /// The text above the mark; `None` where an older program, or another host's, wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The text that is about to be written, or was without an answer: the VM may have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
    /// The annotations of its node; `None` where an older program, or another host's, wrote them: those of the file are written once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<WrittenAnnotations>,
    /// The storage that an ISO for cloud-init was brought to: the file may name another by then, or none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_storage: Option<String>,
    /// By key the value that PVE takes for wrong or makes another of, and how that was seen: it is not written again.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub given_up: BTreeMap<String, (String, FailedWrite)>,
    /// What the VM had for these when that was seen: somebody who changes it since may have mended what was wrong. Absent
    /// where an older program wrote this.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub given_up_at: BTreeMap<String, BTreeSet<String>>,
    /// Why the last try failed for another reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedWrite>,
    /// By key the values that were to be written then; empty where that was not known yet.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failed_for: BTreeMap<String, String>,
}

impl Written {
    /// These values are about to be written: whatever becomes of the answer, what the VM then has of them is ours.
    pub fn asks(&mut self, changes: &[SettingChange], ours: &[String]) {
        for change in changes {
            match change.key {
                "tags" => {
                    let new = ours.iter().filter(|tag| !self.tags.contains(tag));
                    let new: Vec<String> = new.cloned().collect();
                    self.tags.extend(new);
                }
                DESCRIPTION => self.asked = Some(change.wanted.clone()),
                _ => {}
            }
        }
    }

    /// What came of writing just this value before, if it is not written again: while the file says it, and the VM has
    /// what it had then.
    pub fn given_up(&self, change: &SettingChange) -> Option<&FailedWrite> {
        let given_up = self.given_up.get(change.key);
        let same = given_up.filter(|(wanted, _)| *wanted == change.wanted);
        let at = self.given_up_at.get(change.key);
        let unchanged = at.is_none_or(|at| at.contains(&change.is));
        same.filter(|_| unchanged).map(|(_, failed)| failed)
    }

    /// This value is not written again while the VM has what it has now.
    pub fn give_up(&mut self, change: &SettingChange, failed: FailedWrite) {
        let new = (change.wanted.clone(), failed);
        let old = self.given_up.insert(change.key.to_owned(), new);
        let at = self.given_up_at.entry(change.key.to_owned()).or_default();
        if old.is_none_or(|(wanted, _)| wanted != change.wanted) {
            at.clear();
        }
        at.insert(change.is.clone());
    }

    /// It was written.
    pub fn done(&mut self, key: &str) {
        self.given_up.remove(key);
        self.given_up_at.remove(key);
    }

    /// Why writing this value failed last, if it was to be written then.
    fn failed(&self, change: &SettingChange) -> Option<&FailedWrite> {
        let meant = |key: &str| self.failed_for.get(key) == Some(&change.wanted);
        let all = self.failed_for.is_empty();
        self.failed.as_ref().filter(|_| all || meant(change.key))
    }
}

/// One value to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingChange {
    /// PVE's key.
    pub key: &'static str,
    /// What is there; empty where nothing is.
    pub is: String,
    /// What the file says.
    pub wanted: String,
}

impl SettingChange {
    /// The value for PVE: the notes go with the mark, which stays.
    pub fn value(&self, mark: &Mark) -> String {
        match self.key {
            DESCRIPTION => mark.describe(&self.wanted),
            _ => self.wanted.clone(),
        }
    }
}

/// The differences between a VM (its configuration, resource pool and firewall rules) and what the settings say for the machine that
/// has this mark.
pub fn changes(
    (config, beside): (&VmConfig, &Beside),
    mark: &Mark,
    settings: &Settings,
    written: &Written,
) -> Vec<SettingChange> {
    let Some(pool) = settings.pools.get(mark.pool.as_str()) else {
        return Vec::new();
    };
    let template = settings.templates.get(mark.template.as_str());
    let wanted = vm_config::in_place(template, pool);
    let plain = wanted.into_iter().filter_map(|(key, wanted)| {
        let is = config.raw.get(key);
        let same = vm_config::same(key, is.map(String::as_str), &wanted);
        (!same).then(|| SettingChange {
            key,
            is: is.cloned().unwrap_or_default(),
            wanted,
        })
    });
    let mut changes: Vec<SettingChange> = plain.collect();
    let is = config.raw.get("tags").cloned().unwrap_or_default();
    if let Some(joined) = tags(&is, &vm_config::tags(pool), &written.tags) {
        changes.push(SettingChange {
            key: "tags",
            is,
            wanted: joined,
        });
    }
    let above = mark::text_above(&config.description);
    let text = pool.description.trim_end();
    // What somebody else wrote there is his.
    let known = [&written.text, &written.asked].into_iter().flatten();
    let ours = above.is_empty()
        || known
            .map(|known| known.trim_end())
            .any(|known| known == above);
    if ours && above != text {
        changes.push(SettingChange {
            key: DESCRIPTION,
            is: above.to_owned(),
            wanted: text.to_owned(),
        });
    }
    changes.extend(pool_change(template, beside));
    changes.extend(groups_change(template, beside));
    changes
}

/// Out of another resource pool into the template's, if the file names one.
fn pool_change(template: Option<&TemplateSettings>, beside: &Beside) -> Option<SettingChange> {
    let wanted = template?.resource_pool.as_deref()?;
    let is = beside.pool.as_deref()?;
    (is != wanted).then(|| SettingChange {
        key: POOL,
        is: is.to_owned(),
        wanted: wanted.to_owned(),
    })
}

/// The tags that a VM is to have, if it has not: all of ours, none that we wrote before and the file does not name any
/// more, and what others gave it.
fn tags(is: &str, ours: &[String], before: &[String]) -> Option<String> {
    let known = |tags: &[String], tag: &str| {
        let mut tags = tags.iter();
        tags.any(|other| other.eq_ignore_ascii_case(tag))
    };
    let there = vm_config::split_tags(is);
    let stays = |tag: &&str| known(ours, tag) || !known(before, tag);
    let mut wanted: Vec<&str> = there.iter().copied().filter(stays).collect();
    let has = |tag: &&str| there.iter().any(|other| other.eq_ignore_ascii_case(tag));
    let missing = ours.iter().map(String::as_str).filter(|tag| !has(tag));
    let (kept, missing): (usize, Vec<&str>) = (wanted.len(), missing.collect());
    if kept == there.len() && missing.is_empty() {
        return None;
    }
    wanted.extend(missing);
    // As PVE sorts them.
    wanted.sort_by_key(|tag| tag.to_lowercase());
    Some(wanted.join(";"))
}

/// To the security groups that the file names, if it says something of them.
fn groups_change(template: Option<&TemplateSettings>, beside: &Beside) -> Option<SettingChange> {
    let wanted = groups::wanted(template?)?;
    let (is, wanted) = groups::difference(&wanted, beside.rules.as_ref()?)?;
    Some(SettingChange {
        key: GROUPS,
        is,
        wanted,
    })
}

/// Writes into the machines that became nodes what their VMs have and the file gives another value.
pub fn compare(
    machines: &mut BTreeMap<Arc<str>, Machine>,
    regions: &BTreeMap<RegionName, Observed>,
    journal: &BTreeMap<Arc<str>, JournalEntry>,
    settings: &Settings,
) {
    let nothing = Written::default();
    for (name, machine) in machines {
        let worked = machine.step.is_none_or(|(step, _)| step == Step::Done);
        let facts = regions.get(&machine.region);
        let facts = facts.and_then(|observed| observed.facts.get(&machine.mark.vmid));
        let read = facts.and_then(|facts| Some((facts.config.as_deref()?, &facts.beside)));
        let Some(read) = read else {
            continue;
        };
        let vm = machine.vm.as_mut();
        let Some(vm) = vm.filter(|vm| vm.marked && worked && machine.node.is_some()) else {
            continue;
        };
        let written = journal.get(name).map_or(&nothing, |entry| &*entry.written);
        let mark = &machine.mark;
        let at = (&*machine.region, &machine.host);
        let mut changes = changes(read, mark, settings, written);
        changes.extend(annotations::change(settings, mark, at, written));
        vm.differs = changes
            .into_iter()
            .map(|change| difference(change, written))
            .collect();
    }
}

fn difference(change: SettingChange, written: &Written) -> Difference {
    let failed = written.given_up(&change);
    let failed = failed.or_else(|| written.failed(&change));
    Difference {
        failed: failed.cloned(),
        key: change.key.into(),
        is: change.is.into(),
        wanted: change.wanted.into(),
    }
}

#[cfg(test)]
mod tests;
