//! The governor of CPUs that machines have for themselves, and the one that each had before.
//!
//! What a CPU had is written down before it is changed, where it outlives this program and not the host: a governor does the same.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Roots;
use crate::model::cpus::CpuSet;

/// The file with what CPUs had.
const FILE: &str = "governors.json";

/// What CPUs had before.
#[derive(Debug)]
pub(super) struct Governors {
    roots: Roots,
    before: BTreeMap<u16, GovernorBefore>,
}

/// What one CPU had.
#[derive(Debug, Serialize, Deserialize)]
struct GovernorBefore {
    /// The CPU's governor before it was a machine's.
    first: String,
    /// What it was given; `None` once somebody else has given it another, which stays.
    given: Option<String>,
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

    /// Gives a CPU this governor, once `proof` says that it is a machine's; what there is to tell of it, if anything. One that somebody
    /// else has given it since is left alone until the CPU is free.
    pub(super) fn set(
        &mut self,
        cpu: u16,
        wanted: &str,
        proof: impl Fn() -> Result<(), String>,
    ) -> Result<Option<String>, String> {
        let is = self.is(cpu)?;
        let known = self.before.get_mut(&cpu);
        if is == wanted || known.as_ref().is_some_and(|known| known.given.is_none()) {
            return Ok(None);
        }
        if let Some(known) = known
            && is != known.first
            && known.given.as_ref() != Some(&is)
        {
            known.given = None;
            self.write()?;
            return Ok(Some(format!(
                "CPU {cpu}: governor {is}, which somebody else has set, stays"
            )));
        }
        proof()?;
        let known = self.before.remove(&cpu);
        let first = known.map_or(is, |known| known.first);
        let given = Some(wanted.to_owned());
        self.before.insert(cpu, GovernorBefore { first, given });
        self.write()?;
        let path = self.path(cpu);
        std::fs::write(&path, wanted)
            .map_err(|error| format!("cannot write {wanted} to {}: {error}", path.display()))?;
        Ok(Some(format!("CPU {cpu}: governor {wanted}")))
    }

    /// Gives all CPUs but these what they had before. One that somebody else gave another governor since keeps that; what one had that
    /// cannot be read, since it is offline, stays written down for later.
    pub(super) fn free(&mut self, but: &CpuSet, changes: &mut Vec<String>) -> Vec<String> {
        let before = std::mem::take(&mut self.before);
        let (stay, free): (BTreeMap<_, _>, BTreeMap<_, _>) =
            before.into_iter().partition(|(cpu, _)| but.contains(*cpu));
        self.before = stay;
        let (mut problems, mut gone) = (Vec::new(), false);
        for (cpu, known) in free {
            match self.give_back(cpu, &known) {
                Ok(change) => {
                    changes.extend(change);
                    gone = true;
                }
                Err(why) => {
                    problems.push(why);
                    self.before.insert(cpu, known);
                }
            }
        }
        if gone {
            problems.extend(self.write().err());
        }
        problems
    }

    /// Gives a CPU what it had, if it has what it was given; what was changed.
    fn give_back(&self, cpu: u16, known: &GovernorBefore) -> Result<Option<String>, String> {
        let Some(given) = &known.given else {
            return Ok(None);
        };
        let first = &known.first;
        let later = |why: String| format!("{why}: CPU {cpu} gets {first} back later");
        if self.is(cpu).map_err(later)? != *given {
            return Ok(None);
        }
        let path = self.path(cpu);
        std::fs::write(&path, first)
            .map_err(|error| format!("cannot write {first} to {}: {error}", path.display()))?;
        Ok(Some(format!("CPU {cpu}: governor {first}, as before")))
    }

    /// The governor that a CPU has.
    fn is(&self, cpu: u16) -> Result<String, String> {
        let path = self.path(cpu);
        let is = std::fs::read_to_string(&path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Ok(is.trim().to_owned())
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
