//! Which cluster the broker of this host serves, for the command that binds it to another one.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::durable;

/// Where everything lies that belonged to another cluster.
const FORMER: &str = "former";
/// The directories of records, and what a record is called.
const RECORDS: [(&str, &str); 2] = [("intents", "clone"), ("removals", "removal")];

/// The broker's own directory, read and changed while no broker need run.
#[derive(Clone, Debug)]
pub struct Binding {
    directory: PathBuf,
}

/// Something that was asked of PVE for a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingRecord {
    /// `clone` or `removal`.
    pub what: &'static str,
    /// The VMID.
    pub vmid: u32,
    /// The machine's name.
    pub machine: String,
    /// The id of the cluster that it was asked for.
    pub cluster: String,
    path: PathBuf,
}

/// What every record says.
#[derive(Deserialize)]
struct RecordOwner {
    vmid: u32,
    machine: String,
    cluster: String,
}

impl Binding {
    /// The broker's directory at `directory`; it need not exist.
    pub fn at(directory: &Path) -> Binding {
        Binding {
            directory: directory.to_owned(),
        }
    }

    /// The id of the cluster that the broker is bound to; `None`: it takes the first that it sees.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn cluster(&self) -> Result<Option<String>, String> {
        let path = self.file();
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("cannot read {}: {error}", path.display())),
        }
    }

    /// The clones and removals that were asked for by other clusters than `cluster`. What cannot be
    /// read proves nothing and is left out.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub fn of_others(&self, cluster: &str) -> Result<Vec<BindingRecord>, String> {
        let mut records = Vec::new();
        for (folder, what) in RECORDS {
            let folder = self.directory.join(folder);
            let files = match std::fs::read_dir(&folder) {
                Ok(files) => files,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(format!("cannot read {}: {error}", folder.display())),
            };
            for path in files.filter_map(|file| Some(file.ok()?.path())) {
                let text = std::fs::read(&path).unwrap_or_default();
                let Ok(said) = serde_json::from_slice::<RecordOwner>(&text) else {
                    continue;
                };
                if said.cluster != cluster {
                    records.push(BindingRecord {
                        what,
                        vmid: said.vmid,
                        machine: said.machine,
                        cluster: said.cluster,
                        path,
                    });
                }
            }
        }
        records.sort_by_key(|record| (record.vmid, record.what));
        Ok(records)
    }

    /// Sets these records aside and binds the broker to `cluster`; durable when this returns. May be
    /// begun again from any point.
    ///
    /// # Errors
    /// A file cannot be moved or written.
    pub fn bind(&self, cluster: &str, others: &[BindingRecord]) -> Result<(), String> {
        let former = self.directory.join(FORMER);
        for record in others {
            let target = former.join(format!("{}-{}.json", record.what, record.vmid));
            std::fs::create_dir_all(&former)
                .and_then(|()| std::fs::rename(&record.path, &target))
                .map_err(|error| format!("cannot move {}: {error}", record.path.display()))?;
        }
        let path = self.file();
        durable::write(&path, format!("{cluster}\n").as_bytes())
            .map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    fn file(&self) -> PathBuf {
        self.directory.join("cluster")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    fn record(directory: &Path, name: &str, (vmid, cluster): (u32, &str)) {
        let record =
            json!({ "vmid": vmid, "machine": format!("m-{vmid}"), "cluster": cluster, "more": 1 });
        fs::create_dir_all(directory.join(name).parent().expect("a folder")).expect("made");
        fs::write(directory.join(name), record.to_string()).expect("written");
    }

    fn told(records: &[BindingRecord]) -> Vec<(&str, u32, &str)> {
        let told = records.iter();
        told.map(|one| (one.what, one.vmid, one.cluster.as_str()))
            .collect()
    }

    /// The broker takes what it finds there for its own word: records of the cluster that it serves must stay, and others' must not be
    /// taken for its own.
    #[test]
    fn records_of_other_clusters_are_set_aside_and_no_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let directory = folder.path();
        let binding = Binding::at(directory);
        assert_eq!(binding.cluster(), Ok(None));
        assert_eq!(binding.of_others("a/home"), Ok(Vec::new()));
        record(directory, "intents/9002.json", (9002, "b/old"));
        record(directory, "intents/9001.json", (9001, "a/home"));
        record(directory, "removals/9002.json", (9002, "b/old"));
        record(directory, "removals/9000.json", (9000, "c/old"));
        fs::write(directory.join("intents/9003.json"), "{").expect("written");
        let others = binding.of_others("a/home").expect("readable");
        let wanted = [
            ("removal", 9000, "c/old"),
            ("clone", 9002, "b/old"),
            ("removal", 9002, "b/old"),
        ];
        assert_eq!(told(&others), wanted);
        assert_eq!(others[1].machine, "m-9002");
        binding.bind("a/home", &others).expect("bound");
        assert_eq!(binding.cluster(), Ok(Some("a/home".to_owned())));
        assert_eq!(binding.of_others("a/home"), Ok(Vec::new()));
        let there = |name: &str| directory.join(name).exists();
        assert!(there("intents/9001.json") && there("intents/9003.json"));
        for (gone, kept) in [
            ("intents/9002.json", "former/clone-9002.json"),
            ("removals/9002.json", "former/removal-9002.json"),
            ("removals/9000.json", "former/removal-9000.json"),
        ] {
            assert!(!there(gone) && there(kept), "{gone}");
        }
        // One that was moved already is no reason to bind the broker without it.
        let again = binding.bind("d/new", &others);
        assert!(again.is_err_and(|why| why.starts_with("cannot move ")));
        assert_eq!(binding.cluster(), Ok(Some("a/home".to_owned())));
    }

    /// What cannot be read is not the same as what is not there.
    #[test]
    fn a_directory_that_cannot_be_read_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let binding = Binding::at(folder.path());
        fs::write(folder.path().join("removals"), "").expect("written");
        let others = binding.of_others("a/home");
        assert!(others.is_err_and(|why| why.starts_with("cannot read ")));
        fs::create_dir(folder.path().join("cluster")).expect("made");
        let bound = binding.cluster();
        assert!(bound.is_err_and(|why| why.starts_with("cannot read ")));
    }
}
