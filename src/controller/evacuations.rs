//! Hosts that a person evacuates (`pve-autoscaler evacuate HOST`): noted in the state directory, so that a restart changes
//! nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::journal::write_durably;
use super::state::{StateError, StateFiles};
use crate::model::region::{Region, RegionName};
use crate::model::time::Time;

/// Where they are noted.
const FILE: &str = "evacuations.json";

/// Evacuated hosts by region, and since when.
pub type Evacuations = BTreeMap<RegionName, BTreeMap<Arc<str>, Time>>;

impl StateFiles {
    /// The evacuated hosts.
    ///
    /// # Errors
    /// The file cannot be read: which hosts they are is not known then.
    pub fn evacuations(&self) -> Result<Evacuations, StateError> {
        let path = self.path(FILE);
        let read = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Evacuations::new());
            }
            read => read,
        };
        let read = read.and_then(|text| Ok(serde_json::from_slice(&text)?));
        read.map_err(|source| StateError::new("read", path, source))
    }

    /// Whether a host is evacuated.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn is_evacuated(&self, region: &RegionName, host: &str) -> Result<bool, StateError> {
        let all = self.evacuations()?;
        Ok(all.get(region).is_some_and(|of| of.contains_key(host)))
    }

    /// Begins the evacuation of a host; says whether it is a new one.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn evacuate(&self, region: &RegionName, host: &str, now: Time) -> Result<bool, StateError> {
        let mut all = self.evacuations()?;
        let of = all.entry(region.clone()).or_default();
        let new = !of.contains_key(host);
        of.entry(host.into()).or_insert(now);
        self.write_evacuations(&all)?;
        Ok(new)
    }

    /// Ends the evacuation of a host; says whether there was one.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn end_evacuation(&self, region: &RegionName, host: &str) -> Result<bool, StateError> {
        let mut all = self.evacuations()?;
        let ended = all
            .get_mut(region)
            .is_some_and(|of| of.remove(host).is_some());
        all.retain(|_, of| !of.is_empty());
        self.write_evacuations(&all)?;
        Ok(ended)
    }

    fn write_evacuations(&self, all: &Evacuations) -> Result<(), StateError> {
        let path = self.path(FILE);
        let written = serde_json::to_vec(all).map_err(std::io::Error::from);
        written
            .and_then(|text| write_durably(&path, &text))
            .map_err(|source| StateError::new("write", path, source))
    }
}

/// The evacuated hosts, and why everything is paused, if it is: also while nobody knows which hosts these are.
pub fn read(files: &StateFiles) -> (Evacuations, Option<String>) {
    match files.evacuations() {
        Ok(all) => (all, files.paused()),
        Err(error) => {
            let unknown = || {
                format!(
                    "which hosts are evacuated is not known: {error}; take the file away, and order again what still holds"
                )
            };
            (
                Evacuations::new(),
                files.paused().or_else(|| Some(unknown())),
            )
        }
    }
}

/// Marks the hosts of a region that are evacuated.
pub(super) fn mark(region: &mut Region, evacuated: &BTreeMap<Arc<str>, Time>) {
    for (name, since) in evacuated {
        if let Some(host) = region.hosts.get_mut(name) {
            host.evacuated = Some(*since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::region::Host;

    #[test]
    fn an_evacuation_lasts_until_it_is_ended_and_begins_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = StateFiles::open(directory.path()).expect("opens");
        let region: RegionName = "default".into();
        assert_eq!(files.evacuations().expect("read"), Evacuations::new());
        assert!(files.evacuate(&region, "pve2", Time(5)).expect("noted"));
        assert!(!files.evacuate(&region, "pve2", Time(9)).expect("noted"));
        assert!(files.evacuate(&region, "pve3", Time(7)).expect("noted"));
        let again = StateFiles::open(directory.path()).expect("opens");
        let all = again.evacuations().expect("read");
        assert_eq!(all["default"]["pve2"], Time(5), "its beginning stays");
        let holds = |host: &str| again.is_evacuated(&region, host).expect("read");
        assert!(holds("pve2") && holds("pve3") && !holds("pve1"));
        assert!(again.end_evacuation(&region, "pve2").expect("ended"));
        assert!(!again.end_evacuation(&region, "pve2").expect("ended"));
        assert_eq!(again.evacuations().expect("read")["default"].len(), 1);
        assert!(again.end_evacuation(&region, "pve3").expect("ended"));
        assert_eq!(files.evacuations().expect("read"), Evacuations::new());
    }

    #[test]
    fn a_file_that_cannot_be_read_is_said_and_not_written_over() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = StateFiles::open(directory.path()).expect("opens");
        let path = directory.path().join(FILE);
        std::fs::write(&path, "{").expect("written");
        let region: RegionName = "default".into();
        assert!(files.evacuations().is_err());
        let (none, paused) = read(&files);
        assert!(none.is_empty());
        assert!(paused.is_some_and(|why| why.contains("which hosts are evacuated is not known")));
        assert!(files.evacuate(&region, "pve2", Time(5)).is_err());
        assert!(files.end_evacuation(&region, "pve2").is_err());
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "{");
    }

    #[test]
    fn hosts_that_are_there_are_marked() {
        let mut region = Region::default();
        region.hosts.insert("pve1".into(), Host::default());
        let evacuated = BTreeMap::from([("pve1".into(), Time(5)), ("gone".into(), Time(5))]);
        mark(&mut region, &evacuated);
        assert_eq!(region.hosts.len(), 1);
        assert_eq!(region.hosts["pve1"].evacuated, Some(Time(5)));
    }
}
