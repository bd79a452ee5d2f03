//! The journal: one small file per machine, written before anything is done to it.
//!
//! It holds what neither PVE nor Kubernetes can show: that a machine is *intended* (durable before
//! the clone call, so that a VM without name and description is ours only if an entry names it),
//! the step it is in and since when, the task being followed, and why the last action failed.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::controller::drift::MadeOf;
use crate::controller::in_place::Written;
use crate::controller::planned_join::PlannedJoin;
use crate::model::action::{CreateSpec, NO_TEMPLATE, Target};
use crate::model::drift::Drift;
use crate::model::region::{Failure, Machine, Step, VMIDS};
use crate::model::time::{Span, Time};
use crate::model::tolerant::{self, UnknownParts};
use crate::pve::Upid;

/// Version of the format that this program writes.
const VERSION: u32 = 1;
/// The journal's directory in the state directory.
pub const DIRECTORY: &str = "journal";
/// Where the entries of former clusters lie, in the state directory.
const FORMER: &str = "former";

/// In the place of a template's VMID for a machine that is known by its mark alone.
pub const UNKNOWN_TEMPLATE: u32 = 0;

/// What is known of one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JournalEntry {
    /// Format version.
    pub version: u32,
    /// Region, host, VMID, name.
    pub target: Target,
    /// Mark, template, instance type.
    #[serde(alias = "birth")] // as older programs wrote it
    pub spec: CreateSpec,
    /// The step reached.
    pub step: Step,
    /// Since when.
    pub since: Time,
    /// How long somebody has worked at this step, rounded up: the time in which no daemon ran, or
    /// another one led, does not count.
    #[serde(default)]
    pub spent: Span,
    /// The furthest step on the way up that was ever begun; `None` when an older program wrote this.
    #[serde(default)]
    pub reached: Option<Step>,
    /// The task of this step, to be followed after a restart.
    #[serde(default)]
    pub upid: Option<String>,
    /// The task of the VM's last start. PVE may call a start failed of a VM that runs all the same; it is asked how the start went when the
    /// VM stops while it comes up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// When a clone was last asked for without an answer: the call may still be carried out for a while, whatever
    /// became of the machine since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unanswered_clone: Option<Time>,
    /// When a shutdown or a stop was last sent that PVE did not refuse: without an answer it may still be carried out for
    /// a while, and a guest may obey long after PVE has given up waiting for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_off_sent: Option<Time>,
    /// The VM was seen with our mark: from then on it is ours, before it is ours by intent alone.
    #[serde(default)]
    pub marked: bool,
    /// The first configuration write was done: what the VM has from then on that we did not write,
    /// `protection` for instance, is a person's and not its template's.
    #[serde(default)]
    pub configured: bool,
    /// What was written to the VM that others may write too, its tags for instance.
    #[serde(default)]
    pub written: Box<Written>,
    /// Hashes of the settings that it is made with, by part; empty where an older program, or another host's, planned it.
    /// A newer version may have more parts, which are left out.
    #[serde(default, deserialize_with = "tolerant::known_entries")]
    pub made_of: MadeOf,
    /// How it joins; `None` where an older program, or another host's, planned it, or a newer one joins it in a way that is not known here.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "tolerant::if_known"
    )]
    pub joins: Option<Box<PlannedJoin>>,
    /// The host that it was planned for, whose CPUs it may have for itself; `None` where an older program, or another host's, planned it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_on: Option<Arc<str>>,
    /// The VM's SMBIOS UUID when it was first seen with our mark: its node is known by it, and an edit is seen.
    #[serde(default)]
    pub uuid: Option<Arc<str>>,
    /// Why the last action on it ended.
    #[serde(default)]
    pub failure: Option<Failure>,
}

impl JournalEntry {
    /// A new machine's entry.
    pub fn new(target: Target, spec: CreateSpec, now: Time) -> JournalEntry {
        JournalEntry {
            version: VERSION,
            target,
            spec,
            step: Step::Intent,
            since: now,
            spent: Span::ZERO,
            reached: Some(Step::Intent),
            upid: None,
            start: None,
            unanswered_clone: None,
            power_off_sent: None,
            marked: false,
            configured: false,
            written: Box::default(),
            made_of: MadeOf::new(),
            joins: None,
            made_on: None,
            uuid: None,
            failure: None,
        }
    }
}

impl JournalEntry {
    /// Whether its VM was seen with our mark: from then on no clone of ours can make it any more.
    pub fn was_ours(&self) -> bool {
        self.marked || self.spec.template_vmid == UNKNOWN_TEMPLATE
    }

    /// Whether a VM at its VMID that shows no mark and has this lock is one that PVE makes for it.
    pub fn is_placeholder(&self, lock: Option<&str>) -> bool {
        lock == Some(self.spec.lock()) && !self.was_ours()
    }

    /// Forgets what belongs to a VM: there is none yet, or none any more.
    pub fn forget_vm(&mut self) {
        self.marked = false;
        self.configured = false;
        *self.written = Written::default();
        self.upid = None;
        self.start = None;
        self.uuid = None;
        self.power_off_sent = None;
    }
}

/// Machines in a journal that belong to other clusters than ours, by cluster id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Former(BTreeMap<String, Vec<String>>);

impl Former {
    /// How many machines they are.
    pub fn machines(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// The ids of the clusters.
    pub fn clusters(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The machines' names by cluster id.
    pub fn by_cluster(&self) -> impl Iterator<Item = (&str, &[String])> {
        let all = self.0.iter();
        all.map(|(cluster, machines)| (cluster.as_str(), machines.as_slice()))
    }
}

/// Why the journal cannot be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot {verb} the journal at {path}: {source}; nothing may be done to a machine without it"
)]
pub struct JournalError {
    verb: &'static str,
    path: PathBuf,
    source: std::io::Error,
}

/// A file of the journal that is no entry. It stays where it is, for a person to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableEntry {
    path: PathBuf,
    why: String,
}

impl UnreadableEntry {
    /// Whether the file is still there and still no entry: the daemon may have written it anew since.
    pub fn is_still_unreadable(&self) -> bool {
        match std::fs::read(&self.path) {
            Ok(text) => read(&self.path, &text).is_err(),
            // A link to nothing is still there.
            Err(_) => self.path.symlink_metadata().is_ok(),
        }
    }
}

impl fmt::Display for UnreadableEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.why)
    }
}

/// The journal, shared by everything that reads or writes it.
#[derive(Clone, Debug)]
pub struct Journal {
    directory: Arc<PathBuf>,
    entries: Arc<Mutex<BTreeMap<Arc<str>, JournalEntry>>>,
    /// What the files of machines have that only a newer version knows: it stays in them.
    unknown: Arc<Mutex<BTreeMap<Arc<str>, UnknownParts>>>,
}

impl Journal {
    /// Reads the journal in `directory`, made if need be. Returns with it what could not be read.
    pub fn open(directory: &Path) -> Result<(Journal, Vec<UnreadableEntry>), JournalError> {
        let fail = |verb, source| JournalError {
            verb,
            path: directory.to_owned(),
            source,
        };
        std::fs::create_dir_all(directory).map_err(|e| fail("make", e))?;
        let mut entries = BTreeMap::new();
        let mut unknown = BTreeMap::new();
        let mut unreadable = Vec::new();
        for file in std::fs::read_dir(directory).map_err(|e| fail("list", e))? {
            let path = file.map_err(|e| fail("list", e))?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let text = match std::fs::read(&path) {
                Ok(text) => text,
                // It stays as it is until a person sees to it: beginning again and again mends nothing.
                Err(source) => {
                    let Some(why) = lasting(&source) else {
                        return Err(JournalError {
                            verb: "read",
                            path,
                            source,
                        });
                    };
                    unreadable.push(UnreadableEntry { path, why });
                    continue;
                }
            };
            match read(&path, &text) {
                Ok((entry, parts)) => {
                    let machine = entry.target.machine.clone();
                    if !parts.is_empty() {
                        unknown.insert(machine.clone(), parts);
                    }
                    entries.insert(machine, entry);
                }
                Err(why) => unreadable.push(UnreadableEntry { path, why }),
            }
        }
        let journal = Journal {
            directory: Arc::new(directory.to_owned()),
            entries: Arc::new(Mutex::new(entries)),
            unknown: Arc::new(Mutex::new(unknown)),
        };
        Ok((journal, unreadable))
    }

    /// The machines of other clusters than `cluster` in the journal of the state directory `state`,
    /// which need not exist. Changes nothing; what cannot be read is left out.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn former(state: &Path, cluster: &str) -> Result<Former, JournalError> {
        let mut former = Former::default();
        for (name, entry) in Journal::entries_in(state)? {
            let of = entry.spec.mark.cluster.clone();
            if of != cluster {
                former.0.entry(of).or_default().push(name.to_string());
            }
        }
        Ok(former)
    }

    /// All entries in the journal of the state directory `state`, which need not exist, by machine name. Changes nothing; what cannot
    /// be read is left out.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn entries_in(state: &Path) -> Result<BTreeMap<Arc<str>, JournalEntry>, JournalError> {
        let directory = state.join(DIRECTORY);
        match std::fs::metadata(&directory) {
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(BTreeMap::new());
            }
            Err(source) => {
                return Err(JournalError {
                    verb: "read",
                    path: directory,
                    source,
                });
            }
            Ok(_) => {}
        }
        let (journal, _) = Journal::open(&directory)?;
        Ok(journal.entries())
    }

    /// Moves these machines' files out of the journal of the state directory `state`; gives the
    /// directory where they lie then, in words. May be begun again from any point.
    ///
    /// # Errors
    /// A file cannot be moved.
    pub fn set_aside(state: &Path, former: &Former) -> Result<String, JournalError> {
        let (journal, aside) = (state.join(DIRECTORY), state.join(FORMER));
        for machine in former.0.values().flatten() {
            let file = file_name(machine);
            std::fs::create_dir_all(&aside)
                .and_then(|()| std::fs::rename(journal.join(&file), aside.join(&file)))
                .map_err(|source| JournalError {
                    verb: "set aside",
                    path: journal.join(&file),
                    source,
                })?;
        }
        Ok(if former.machines() > 0 {
            aside.display().to_string()
        } else {
            String::new()
        })
    }

    /// All entries by machine name.
    pub fn entries(&self) -> BTreeMap<Arc<str>, JournalEntry> {
        self.lock().clone()
    }

    /// One machine's entry.
    pub fn get(&self, machine: &str) -> Option<JournalEntry> {
        self.lock().get(machine).cloned()
    }

    /// Writes an entry, durable when this returns.
    pub fn put(&self, entry: JournalEntry) -> Result<(), JournalError> {
        let mut entries = self.lock();
        if entries.get(&entry.target.machine) == Some(&entry) {
            return Ok(());
        }
        let path = self.path(&entry.target.machine);
        let text = self.document(&entry).map_err(|e| JournalError {
            verb: "encode",
            path: path.clone(),
            source: e.into(),
        })?;
        let durable =
            !planted!(IntentNotDurable) || entry.upid.is_some() || entry.step > Step::Clone;
        if durable {
            write_durably(&path, &text).map_err(|source| JournalError {
                verb: "write",
                path,
                source,
            })?;
        }
        entries.insert(entry.target.machine.clone(), entry);
        Ok(())
    }

    /// The text of an entry's file, with what a newer version wrote into it.
    fn document(&self, entry: &JournalEntry) -> Result<Vec<u8>, serde_json::Error> {
        let unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(parts) = unknown.get(&entry.target.machine) else {
            return serde_json::to_vec_pretty(entry);
        };
        let mut document = serde_json::to_value(entry)?;
        parts.put_back(&mut document);
        serde_json::to_vec_pretty(&document)
    }

    /// Writes down the UUIDs that are known of machines' VMs, of those that have none yet.
    pub fn remember_uuids(
        &self,
        machines: &BTreeMap<Arc<str>, Machine>,
    ) -> Result<(), JournalError> {
        for (name, machine) in machines {
            let uuid = machine.vm.as_ref().and_then(|vm| vm.uuid.as_ref());
            // Only what nobody doubts: its node shows it, or it comes up and no node says otherwise.
            let marked = machine.vm.as_ref().is_some_and(|vm| vm.marked);
            let comes_up = machine.step.is_some_and(|(step, _)| step < Step::Done);
            let undoubted =
                machine.node.is_some() || marked && comes_up && machine.contradiction.is_none();
            if let (Some(uuid), true, None) = (uuid, undoubted, &machine.remembered) {
                self.update(name, |entry| {
                    entry.uuid.get_or_insert_with(|| uuid.clone());
                })?;
            }
        }
        Ok(())
    }

    /// Changes an entry, if there is one.
    pub fn update(
        &self,
        machine: &str,
        change: impl FnOnce(&mut JournalEntry),
    ) -> Result<(), JournalError> {
        match self.get(machine) {
            Some(mut entry) => {
                change(&mut entry);
                self.put(entry)
            }
            None => Ok(()),
        }
    }

    /// The clock was set ahead by `step`, or back: what happened is as long ago as it was. Nothing lies
    /// in the future of `now`.
    ///
    /// # Errors
    /// As [`Journal::put`].
    pub fn step(&self, step: Span, now: Time) -> Result<(), JournalError> {
        for mut entry in self.entries().into_values() {
            entry.since = (entry.since + step).min(now);
            if let Some(failure) = &mut entry.failure {
                failure.at = (failure.at + step).min(now);
            }
            let asked = [&mut entry.unanswered_clone, &mut entry.power_off_sent];
            for time in asked.into_iter().flatten() {
                *time = (*time + step).min(now);
            }
            self.put(entry)?;
        }
        Ok(())
    }

    /// Removes an entry; one that is not there is fine.
    pub fn remove(&self, machine: &str) -> Result<(), JournalError> {
        let mut entries = self.lock();
        let path = self.path(machine);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(JournalError {
                verb: "remove from",
                path,
                source: error,
            }),
            _ => {
                entries.remove(machine);
                let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
                unknown.remove(machine);
                Ok(())
            }
        }
    }

    fn path(&self, machine: &str) -> PathBuf {
        self.directory.join(file_name(machine))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, JournalEntry>> {
        // The map is consistent at every point where a panic could happen.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why what is there is no file that could have an entry: `None` where there may be one that cannot be read now, for its rights or a disk that fails.
fn lasting(error: &std::io::Error) -> Option<String> {
    use std::io::ErrorKind::{IsADirectory, NotFound};
    let why = match error.kind() {
        IsADirectory => "it is a directory, and an entry is a file",
        NotFound => "it is a link to nothing",
        _ => return None,
    };
    Some(why.to_owned())
}

/// An entry from its file. A copy of a file, or one whose parts contradict each other, is none: nobody knows which
/// machine it is about. What a newer version knows besides comes with it.
fn read(path: &Path, text: &[u8]) -> Result<(JournalEntry, UnknownParts), String> {
    let (entry, mut unknown) = tolerant::read::<JournalEntry>(text, VERSION)?;
    if let Ok(document) = serde_json::from_slice(text) {
        unknown.note_entries::<Drift>(&document, "made_of");
    }
    let (target, spec) = (&entry.target, &entry.spec);
    let (machine, mark) = (&*target.machine, &spec.mark);
    let own = file_name(machine);
    let template = spec.template_vmid;
    if path.file_name() != Some(own.as_ref()) {
        Err(format!(
            "it tells of machine {machine:?}, whose file is {own:?}"
        ))
    } else if mark.machine != machine {
        let other = &mark.machine;
        Err(format!(
            "it tells of machine {machine:?}, and its mark of {other:?}"
        ))
    } else if mark.vmid != target.vmid {
        let (vmid, other) = (target.vmid, mark.vmid);
        Err(format!("it tells of VM {vmid}, and its mark of VM {other}"))
    } else if !VMIDS.contains(&target.vmid) {
        Err(format!("{} is no VMID", target.vmid))
    } else if ![UNKNOWN_TEMPLATE, NO_TEMPLATE].contains(&template) && !VMIDS.contains(&template) {
        Err(format!("{template} is no VMID of a template"))
    } else if let Some(Err(error)) = entry.upid.as_deref().map(Upid::from_str) {
        Err(error.to_string())
    } else {
        Ok((entry, unknown))
    }
}

/// The file of a machine. Machine names are DNS labels; anything else must not become a path.
fn file_name(machine: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let name: String = machine
        .chars()
        .map(|c| if safe(c) { c } else { '_' })
        .collect();
    format!("{name}.json")
}

/// Writes a file so that after a crash either the old or the new content is there, never less.
pub fn write_durably(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let next = path.with_extension("new");
    let mut file = std::fs::File::create(&next)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&next, path)?;
    if let Some(directory) = path.parent() {
        std::fs::File::open(directory)?.sync_all()?;
    }
    Ok(())
}
