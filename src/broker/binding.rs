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
