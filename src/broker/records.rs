//! What was asked of PVE and must outlive us: one small file per VMID in a directory of root's, on
//! disk before it is asked.

use std::marker::PhantomData;
use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::time::{Span, Time};
use crate::model::tolerant::{self, UnknownParts};

use super::durable;

/// After this a record proves nothing any more: what nobody cleaned up in a week is a human's to
/// judge, and the VMID may long be somebody else's.
pub(super) const LIFE: Span = Span::minutes(7 * 24 * 60);

/// The format that this version reads. Records name it only where it is another: a version that has something an older one must not
/// act without knowing says so by `version`.
const FORMAT: u32 = 1;

/// What is recorded of a VMID.
pub(super) trait VmRecord: Serialize + DeserializeOwned {
    /// What it is, for messages.
    const WHAT: &'static str;
    /// The VMID.
    fn vmid(&self) -> u32;
    /// Whether another record is about the same machine, and not about another one that has its VMID.
    fn is_about_same_machine(&self, other: &Self) -> bool;
    /// When it was asked for.
    fn asked(&self) -> Time;
    /// Whether the record counts however old it is.
    fn lasts(&self) -> bool {
        false
    }
}

/// A directory of records.
#[derive(Debug)]
pub(super) struct RecordDirectory<T> {
    directory: PathBuf,
    kind: PhantomData<fn() -> T>,
}

impl<T: VmRecord> RecordDirectory<T> {
    /// Records in `directory`, which is made when it is not there.
    pub(super) fn open(directory: PathBuf) -> Result<RecordDirectory<T>, String> {
        std::fs::create_dir_all(&directory)
            .map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
        Ok(RecordDirectory {
            directory,
            kind: PhantomData,
        })
    }

    fn path(&self, vmid: u32) -> PathBuf {
        self.directory.join(format!("{vmid}.json"))
    }

    /// The record for `vmid`, if there is one that still counts.
    pub(super) fn get(&self, vmid: u32, now: Time) -> Result<Option<T>, String> {
        let path = self.path(vmid);
        let fail = |why: String| format!("cannot read {} {}: {why}", T::WHAT, path.display());
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fail(error.to_string())),
        };
        let (record, _) = tolerant::read::<T>(&bytes, FORMAT).map_err(fail)?;
        if record.vmid() != vmid {
            return Err(fail(format!("it is about VM {}", record.vmid())));
        }
        let counts = record.lasts() || now.since(record.asked()) <= LIFE;
        Ok(counts.then_some(record))
    }

    /// Makes `record` durable, in place of an older one for its VMID. What a newer version knows of the machine stays in it.
    pub(super) fn record(&self, record: &T) -> Result<(), String> {
        let path = self.path(record.vmid());
        let mut document = serde_json::to_value(record)
            .map_err(|error| format!("cannot write {}: {error}", T::WHAT))?;
        self.unknown_of(record).put_back(&mut document);
        durable::write(&path, document.to_string().as_bytes())
            .map_err(|error| format!("cannot write {} {}: {error}", T::WHAT, path.display()))
    }

    /// What the record on disk has that this version does not know, where it is about the same machine.
    fn unknown_of(&self, record: &T) -> UnknownParts {
        let bytes = std::fs::read(self.path(record.vmid())).unwrap_or_default();
        match tolerant::read::<T>(&bytes, FORMAT) {
            Ok((before, unknown)) if before.is_about_same_machine(record) => unknown,
            _ => UnknownParts::default(),
        }
    }

    /// Forgets the record for `vmid`.
    pub(super) fn forget(&self, vmid: u32) -> Result<(), String> {
        let path = self.path(vmid);
        durable::remove(&path)
            .map_err(|error| format!("cannot remove {} {}: {error}", T::WHAT, path.display()))
    }

    /// The VMIDs that something is recorded of, whatever it is worth.
    pub(super) fn vmids(&self) -> Vec<u32> {
        let files = std::fs::read_dir(&self.directory).into_iter().flatten();
        let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
        names
            .filter_map(|name| name.strip_suffix(".json")?.parse().ok())
            .collect()
    }
}
