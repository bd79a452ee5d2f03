//! What the service has placed on its host, for people and for doctor.

use std::io::ErrorKind;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{PinningOutcome, Roots};
use crate::model::time::{Span, Time};
use crate::model::words;

/// A report is good for this long after the next look was due.
const GRACE: Span = Span::minutes(2);

/// The last pass of the service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinningReport {
    /// When it was.
    pub at: Time,
    /// When the next one is due.
    pub next: Time,
    /// What is where.
    pub outcome: PinningOutcome,
}

impl PinningReport {
    /// Writes it down, for whoever asks.
    pub fn write(&self, roots: &Roots) -> Result<(), String> {
        let (path, new) = (file(roots), roots.state.join("report.new"));
        let text = serde_json::to_string(self).map_err(|error| error.to_string())?;
        let written = std::fs::create_dir_all(&roots.state)
            .and_then(|()| std::fs::write(&new, text))
            .and_then(|()| std::fs::rename(&new, &path));
        written.map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    /// Takes it away: nobody looks any more.
    pub fn remove(roots: &Roots) {
        let _ = std::fs::remove_file(file(roots));
    }

    /// Reads it; `None` where no service runs, an error where it should and does not.
    pub fn read(roots: &Roots, now: Time) -> Result<Option<PinningReport>, String> {
        let path = file(roots);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
        };
        let report: PinningReport = serde_json::from_str(&text)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        if now > report.next + GRACE {
            return Err(format!(
                "nobody has placed vCPUs on this host since {}, and nobody said that it ends",
                report.at
            ));
        }
        Ok(Some(report))
    }

    /// What is placed, in a line.
    pub fn summary(&self) -> String {
        let placed = self.outcome.machines.values();
        let vcpus = placed.map(|machine| machine.vcpus.len()).sum::<usize>();
        format!(
            "vCPUs are placed on this host: {} of {}",
            words::count(vcpus, "vCPU"),
            words::count(self.outcome.machines.len(), "machine")
        )
    }

    /// What could not be done.
    pub fn problems(&self) -> impl Iterator<Item = String> {
        let machines = self.outcome.machines.iter().flat_map(|(vmid, machine)| {
            let problems = machine.problems.iter();
            problems.map(move |problem| format!("VM {vmid} ({}): {problem}", machine.machine))
        });
        let all = self.outcome.problems.iter().cloned();
        all.chain(machines.collect::<Vec<_>>())
    }
}

fn file(roots: &Roots) -> PathBuf {
    roots.state.join("report.json")
}
