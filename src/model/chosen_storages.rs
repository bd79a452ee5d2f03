//! Which storages a machine's disks are made on, where the file lists several.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::region::TemplateDisk;

/// The storages that were chosen for a machine's disks out of the file's lists: of each the first that its host had and that had room. Empty
/// where the file names one storage each.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(default, deny_unknown_fields)]
pub struct ChosenStorages {
    /// That of the disks which its VM has when it is made: those of a full clone, or of `[template.NAME.create]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<Arc<str>>,
    /// Those of its further disks, by their places.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub further: BTreeMap<Arc<str>, Arc<str>>,
}

impl ChosenStorages {
    /// Whether nothing was to be chosen.
    pub fn is_empty(&self) -> bool {
        self.own.is_none() && self.further.is_empty()
    }

    /// The storage of a further disk at a place, or, without a place, of the VM's own disks.
    pub fn at(&self, slot: Option<&str>) -> Option<&Arc<str>> {
        match slot {
            None => self.own.as_ref(),
            Some(slot) => self.further.get(slot),
        }
    }

    /// The storages, each once.
    pub fn names(&self) -> BTreeSet<&Arc<str>> {
        self.own.iter().chain(self.further.values()).collect()
    }

    /// Notes a storage that was chosen.
    pub fn choose(&mut self, slot: Option<&Arc<str>>, storage: Arc<str>) {
        match slot {
            None => self.own = Some(storage),
            Some(slot) => {
                self.further.insert(slot.clone(), storage);
            }
        }
    }

    /// The storage that a disk of a machine is made on: the chosen one, or the only one, or, where nobody knows which was chosen, the first.
    pub fn of<'a>(&'a self, disk: &'a TemplateDisk) -> &'a Arc<str> {
        let chosen = self
            .at(disk.slot.as_deref())
            .filter(|_| !disk.or.is_empty());
        chosen.unwrap_or(&disk.storage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_of_one_storage_is_there_whatever_was_chosen_for_others() {
        let disk = |slot: Option<&str>, names: &[&str]| TemplateDisk {
            storage: names[0].into(),
            or: names[1..].iter().map(|name| (*name).into()).collect(),
            slot: slot.map(Arc::from),
            ..TemplateDisk::default()
        };
        let mut chosen = ChosenStorages::default();
        assert!(chosen.is_empty());
        assert_eq!(&**chosen.of(&disk(None, &["a", "b"])), "a");
        chosen.choose(None, "b".into());
        chosen.choose(Some(&"scsi1".into()), "c".into());
        assert!(!chosen.is_empty());
        assert_eq!(&**chosen.of(&disk(None, &["a", "b"])), "b");
        assert_eq!(&**chosen.of(&disk(None, &["a"])), "a");
        assert_eq!(&**chosen.of(&disk(Some("scsi1"), &["a", "c"])), "c");
        assert_eq!(&**chosen.of(&disk(Some("scsi2"), &["a", "c"])), "a");
    }
}
