//! The journal: one small file per machine, written before anything is done to it.
//!
//! It holds what neither PVE nor Kubernetes can show: that a machine is *intended* (durable before
//! the clone call, so that a VM without name and description is ours only if an entry names it),
//! the step it is in and since when, the task being followed, and why the last action failed.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::model::action::{Birth, Target};
use crate::model::region::{Failure, Machine, Step, VMIDS};
use crate::model::time::{Span, Time};
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
pub struct Entry {
    /// Format version.
    pub version: u32,
    /// Region, host, VMID, name.
    pub target: Target,
    /// Mark, template, instance type.
    pub birth: Birth,
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
    /// The VM was seen with our mark: from then on it is ours, before it is ours by intent alone.
    #[serde(default)]
    pub marked: bool,
    /// The first configuration write was done: what the VM has from then on that we did not write,
    /// `protection` for instance, is a person's and not its template's.
    #[serde(default)]
    pub configured: bool,
    /// The VM's SMBIOS UUID when it was first seen with our mark: its node is known by it, and an edit is seen.
    #[serde(default)]
    pub uuid: Option<Arc<str>>,
    /// Why the last action on it ended.
    #[serde(default)]
    pub failure: Option<Failure>,
}

impl Entry {
    /// A new machine's entry.
    pub fn new(target: Target, birth: Birth, now: Time) -> Entry {
        Entry {
            version: VERSION,
            target,
            birth,
            step: Step::Intent,
            since: now,
            spent: Span::ZERO,
            reached: Some(Step::Intent),
            upid: None,
            marked: false,
            configured: false,
            uuid: None,
            failure: None,
        }
    }
}

impl Entry {
    /// Whether its VM was seen with our mark: from then on no clone of ours can make it any more.
    pub fn was_ours(&self) -> bool {
        self.marked || self.birth.template_vmid == UNKNOWN_TEMPLATE
    }

    /// Forgets what belongs to a VM: there is none yet, or none any more.
    pub fn forget_vm(&mut self) {
        self.marked = false;
        self.configured = false;
        self.upid = None;
        self.uuid = None;
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
pub struct Unreadable {
    path: PathBuf,
    why: String,
}

impl Unreadable {
    /// Whether nobody has removed the file yet.
    pub fn exists(&self) -> bool {
        self.path.exists()
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.why)
    }
}

/// The journal, shared by everything that reads or writes it.
#[derive(Clone, Debug)]
pub struct Journal {
    directory: Arc<PathBuf>,
    entries: Arc<Mutex<BTreeMap<Arc<str>, Entry>>>,
}

impl Journal {
    /// Reads the journal in `directory`, made if need be. Returns with it what could not be read.
    pub fn open(directory: &Path) -> Result<(Journal, Vec<Unreadable>), JournalError> {
        let fail = |verb, source| JournalError {
            verb,
            path: directory.to_owned(),
            source,
        };
        std::fs::create_dir_all(directory).map_err(|e| fail("make", e))?;
        let mut entries = BTreeMap::new();
        let mut unreadable = Vec::new();
        for file in std::fs::read_dir(directory).map_err(|e| fail("list", e))? {
            let path = file.map_err(|e| fail("list", e))?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let text = std::fs::read(&path).map_err(|source| JournalError {
                verb: "read",
                path: path.clone(),
                source,
            })?;
            match read(&path, &text) {
                Ok(entry) => drop(entries.insert(entry.target.machine.clone(), entry)),
                Err(why) => unreadable.push(Unreadable { path, why }),
            }
        }
        let journal = Journal {
            directory: Arc::new(directory.to_owned()),
            entries: Arc::new(Mutex::new(entries)),
        };
        Ok((journal, unreadable))
    }

    /// The machines of other clusters than `cluster` in the journal of the state directory `state`,
    /// which need not exist. Changes nothing; what cannot be read is left out.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn former(state: &Path, cluster: &str) -> Result<Former, JournalError> {
        let directory = state.join(DIRECTORY);
        match std::fs::metadata(&directory) {
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Former::default());
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
        let mut former = Former::default();
        for (name, entry) in journal.entries() {
            let of = entry.birth.mark.cluster.clone();
            if of != cluster {
                former.0.entry(of).or_default().push(name.to_string());
            }
        }
        Ok(former)
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
    pub fn entries(&self) -> BTreeMap<Arc<str>, Entry> {
        self.lock().clone()
    }

    /// One machine's entry.
    pub fn get(&self, machine: &str) -> Option<Entry> {
        self.lock().get(machine).cloned()
    }

    /// Writes an entry, durable when this returns.
    pub fn put(&self, entry: Entry) -> Result<(), JournalError> {
        let mut entries = self.lock();
        if entries.get(&entry.target.machine) == Some(&entry) {
            return Ok(());
        }
        let path = self.path(&entry.target.machine);
        let text = serde_json::to_vec_pretty(&entry).map_err(|e| JournalError {
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

    /// Writes down the UUIDs that are known of machines' VMs, of those that have none yet.
    pub fn remember_uuids(
        &self,
        machines: &BTreeMap<Arc<str>, Machine>,
    ) -> Result<(), JournalError> {
        for (name, machine) in machines {
            let uuid = machine.vm.as_ref().and_then(|vm| vm.uuid.as_ref());
            // Only what nobody doubts: its node shows it.
            if let (Some(uuid), Some(_), None) = (uuid, &machine.node, &machine.remembered) {
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
        change: impl FnOnce(&mut Entry),
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
                Ok(())
            }
        }
    }

    fn path(&self, machine: &str) -> PathBuf {
        self.directory.join(file_name(machine))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Entry>> {
        // The map is consistent at every point where a panic could happen.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An entry from its file. A copy of a file, or one whose parts contradict each other, is none: nobody knows which
/// machine it is about.
fn read(path: &Path, text: &[u8]) -> Result<Entry, String> {
    let entry: Entry = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let (target, birth) = (&entry.target, &entry.birth);
    let (machine, mark) = (&*target.machine, &birth.mark);
    let own = file_name(machine);
    let template = birth.template_vmid;
    if entry.version != VERSION {
        Err(format!("version {} is unknown", entry.version))
    } else if path.file_name() != Some(own.as_ref()) {
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
    } else if template != UNKNOWN_TEMPLATE && !VMIDS.contains(&template) {
        Err(format!("{template} is no VMID of a template"))
    } else if let Some(Err(error)) = entry.upid.as_deref().map(Upid::from_str) {
        Err(error.to_string())
    } else {
        Ok(entry)
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::agent::machines::machines;
    use crate::model::cluster::Cluster;
    use crate::model::mark::Mark;

    fn entry(machine: &str) -> Entry {
        let mark = Mark {
            cluster: "uid/home".into(),
            machine: machine.into(),
            vmid: 9001,
            pool: "small".into(),
            instance_type: "s2".into(),
            template: "debian".into(),
            token: "abcdef".into(),
            created: Time(1_000),
        };
        let target = Target {
            region: "default".into(),
            host: "pve1".into(),
            vmid: 9001,
            machine: machine.into(),
            node: None,
        };
        Entry::new(
            target,
            Birth {
                mark,
                template_vmid: 9000,
                template_host: "pve1".into(),
                terms: None,
            },
            Time(1_000),
        )
    }

    #[test]
    fn an_intent_survives_a_crash_and_goes_when_told() {
        let directory = tempfile::tempdir().expect("a directory");
        let (journal, _) = Journal::open(directory.path()).expect("opens");
        journal.put(entry("small-aaaaa")).expect("is written");
        journal
            .update("small-aaaaa", |e| e.step = Step::Clone)
            .expect("is changed");
        let (again, unreadable) = Journal::open(directory.path()).expect("opens again");
        assert!(unreadable.is_empty());
        assert_eq!(again.get("small-aaaaa").map(|e| e.step), Some(Step::Clone));
        again.remove("small-aaaaa").expect("goes");
        again.remove("small-aaaaa").expect("is gone already");
        let (last, _) = Journal::open(directory.path()).expect("opens");
        assert!(last.entries().is_empty());
    }

    #[test]
    fn what_cannot_be_read_is_said_and_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let bad = directory.path().join("x.json");
        std::fs::write(&bad, "{").expect("written");
        let (journal, unreadable) = Journal::open(directory.path()).expect("opens");
        assert!(journal.entries().is_empty());
        assert_eq!(unreadable.len(), 1);
        assert!(bad.exists());
    }

    /// A directory with an entry's file, of which `edit` changes the text.
    fn edited(file: &str, edit: impl Fn(&mut Value)) -> tempfile::TempDir {
        let mut value = serde_json::to_value(entry("small-aaaaa")).expect("it serialises");
        edit(&mut value);
        let directory = tempfile::tempdir().expect("a directory");
        let text = serde_json::to_vec_pretty(&value).expect("it serialises");
        std::fs::write(directory.path().join(file), text).expect("written");
        directory
    }

    #[test]
    fn a_file_whose_parts_contradict_each_other_is_no_entry() {
        let own = "small-aaaaa.json";
        let upid = "UPID:pve1:0000042E:0084E9D6:69562C42:qmclone:9000:root@pam:";
        for (file, key, value, why) in [
            (own, "/upid", json!(upid), None),
            (own, "/birth/template_vmid", json!(0), None),
            (
                "small-aaaaa copy.json",
                "/step",
                json!("intent"),
                Some("whose file is"),
            ),
            (
                own,
                "/target/machine",
                json!("../small-b"),
                Some("whose file is"),
            ),
            (
                own,
                "/birth/mark/machine",
                json!("small-b"),
                Some("its mark of \"small-b\""),
            ),
            (
                own,
                "/target/vmid",
                json!(9002),
                Some("its mark of VM 9001"),
            ),
            (
                own,
                "/birth/template_vmid",
                json!(99),
                Some("99 is no VMID"),
            ),
            (own, "/upid", json!("UPID:../x:"), Some("PVE task id")),
            (own, "/version", json!(2), Some("version 2 is unknown")),
            (own, "/step", json!("fly"), Some("unknown variant `fly`")),
        ] {
            let directory = edited(file, |entry| {
                *entry.pointer_mut(key).expect("the key is there") = value.clone();
            });
            let (journal, unreadable) = Journal::open(directory.path()).expect("opens");
            assert_eq!(journal.entries().is_empty(), why.is_some(), "{key} {value}");
            let told = unreadable
                .iter()
                .any(|file| file.to_string().contains(why.unwrap_or("nothing")));
            assert!(told == why.is_some(), "{key} {value}: {unreadable:?}");
        }
    }

    proptest::proptest! {
        /// Whatever stands in a file: it is an entry that can be worked with, or it is told.
        #[test]
        fn no_text_of_a_journal_ends_the_program(
            edits in proptest::collection::vec((0usize..40, 0usize..12), 0..5),
            text in "(?s).{0,40}",
            cut in proptest::option::of(0usize..1_000),
        ) {
            let nasty = [
                json!(null), json!(true), json!(0), json!(-1), json!(u64::MAX), json!(i64::MIN), json!(1e300), json!(text),
                json!("-009999-01-02T01:59:59Z"), json!("9999-12-30T22:00:00Z"), json!([]), json!({}),
            ];
            let directory = edited("small-aaaaa.json", |entry| {
                for (at, with) in &edits {
                    replace(entry, &mut at.clone(), &nasty[*with]);
                }
            });
            let path = directory.path().join("small-aaaaa.json");
            if let Some(cut) = cut {
                let whole = std::fs::read(&path).expect("read");
                let cut = cut.min(whole.len());
                let all = [&whole[..cut], text.as_bytes(), &whole[cut..]].concat();
                std::fs::write(&path, all).expect("written");
            }
            let (journal, unreadable) = Journal::open(directory.path()).expect("opens");
            proptest::prop_assert_eq!(journal.entries().len() + unreadable.len(), 1);
            for now in [Time(0), Time(1_767_255_280_719)] {
                journal.step(Span::minutes(-90), now).expect("written");
                let entries = journal.entries();
                proptest::prop_assert!(entries.values().all(|entry| entry.since <= now));
                let of = entries.values().next().map_or("", |entry| entry.birth.mark.cluster.as_str());
                let regions = BTreeMap::new();
                let found = machines(of, &regions, &Cluster::default(), &entries, &BTreeMap::new());
                proptest::prop_assert_eq!(found.len(), entries.len());
            }
            let (again, _) = Journal::open(directory.path()).expect("opens");
            let text = |journal: &Journal| serde_json::to_string(&journal.entries()).expect("it is written");
            proptest::prop_assert_eq!(text(&again), text(&journal));
        }
    }

    /// Replaces the value at a place of a document, counted from its beginning.
    fn replace(value: &mut Value, left: &mut usize, with: &Value) -> bool {
        if *left == 0 {
            value.clone_from(with);
            return true;
        }
        *left -= 1;
        match value {
            Value::Array(list) => list.iter_mut().any(|item| replace(item, left, with)),
            Value::Object(map) => map.values_mut().any(|item| replace(item, left, with)),
            _ => false,
        }
    }
}
