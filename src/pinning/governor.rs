//! The governor of CPUs that machines have for themselves, and the one that each had before.
//!
//! What a CPU had is written down before it is changed, where it outlives this program and not the host: a governor does the same.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::Roots;
use crate::model::cpus::CpuSet;

/// The file with what CPUs had.
const FILE: &str = "governors.json";

/// What CPUs had before.
#[derive(Debug)]
pub(super) struct Governors {
    roots: Roots,
    /// By CPU: what it had, and what it was given.
    before: BTreeMap<u16, (String, String)>,
}

impl Governors {
    /// Reads what is written down. What cannot be read is no reason to forget it.
    pub(super) fn read(roots: &Roots) -> Result<Governors, String> {
        let path = roots.state.join(FILE);
        let before = match std::fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
        };
        Ok(Governors {
            roots: roots.clone(),
            before,
        })
    }

    /// Gives a CPU this governor, once `proof` says that it is a machine's; whether it had another.
    pub(super) fn set(
        &mut self,
        cpu: u16,
        wanted: &str,
        proof: impl Fn() -> Result<(), String>,
    ) -> Result<bool, String> {
        let path = self.path(cpu);
        let is = std::fs::read_to_string(&path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let is = is.trim();
        if is == wanted {
            return Ok(false);
        }
        proof()?;
        let first = self
            .before
            .remove(&cpu)
            .map_or_else(|| is.to_owned(), |(first, _)| first);
        self.before.insert(cpu, (first, wanted.to_owned()));
        self.write()?;
        std::fs::write(&path, wanted)
            .map_err(|error| format!("cannot write {wanted} to {}: {error}", path.display()))?;
        Ok(true)
    }

    /// Gives all CPUs but these what they had before. One that somebody else gave another governor since keeps that.
    pub(super) fn free(&mut self, but: &CpuSet, changes: &mut Vec<String>) -> Vec<String> {
        let before = std::mem::take(&mut self.before);
        let (stay, free): (BTreeMap<_, _>, BTreeMap<_, _>) =
            before.into_iter().partition(|(cpu, _)| but.contains(*cpu));
        self.before = stay;
        if free.is_empty() {
            return Vec::new();
        }
        let mut problems = Vec::new();
        for (cpu, (first, given)) in free {
            let path = self.path(cpu);
            let is = std::fs::read_to_string(&path).unwrap_or_default();
            if is.trim() != given {
                continue;
            }
            match std::fs::write(&path, &first) {
                Ok(()) => changes.push(format!("CPU {cpu}: governor {first}, as before")),
                Err(error) => {
                    problems.push(format!(
                        "cannot write {first} to {}: {error}",
                        path.display()
                    ));
                    self.before.insert(cpu, (first, given));
                }
            }
        }
        problems.extend(self.write().err());
        problems
    }

    fn path(&self, cpu: u16) -> PathBuf {
        let cpus = self.roots.sys.join("devices/system/cpu");
        cpus.join(format!("cpu{cpu}/cpufreq/scaling_governor"))
    }

    fn write(&self) -> Result<(), String> {
        let path = self.roots.state.join(FILE);
        let new = self.roots.state.join("governors.new");
        let text = serde_json::to_string(&self.before).map_err(|error| error.to_string())?;
        let written = std::fs::create_dir_all(&self.roots.state)
            .and_then(|()| std::fs::write(&new, text))
            .and_then(|()| std::fs::rename(&new, &path));
        written.map_err(|error| format!("cannot write {}: {error}", path.display()))
    }
}
