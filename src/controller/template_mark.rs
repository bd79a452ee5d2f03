//! Whose template it is: a line in the VM's description that proves it, as a machine's mark does.
//!
//! It says what no clone of it can say (the VM's own VMID), which template of which cluster's configuration it is, and from which
//! definition it was built.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::config::file::Build;
use crate::model::time::{Span, Time};
use crate::model::tolerant::UnknownFields;
use crate::pve::VmConfig;

/// The generation of the scripts that build templates: another one builds them anew.
const RECIPE: &str = "1";
/// Bytes of a definition's hash.
const HASH: usize = 6;
/// Bytes of the sum over a mark, which sees an edit.
const SUM: usize = 6;
/// What the line begins with.
const PREFIX: &str = "pve-autoscaler-template:v1 ";

/// How far a build is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BuildStage {
    /// Under way, or cut short.
    Building,
    /// It failed, and was kept to be looked at.
    Failed,
    /// All is installed; a template once PVE has made it one.
    Ready,
    /// A clone that `template try` boots and removes.
    Trial,
}

/// The mark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateMark {
    /// The template's name in the configuration.
    pub template: String,
    /// `kubernetes.name` of that configuration.
    pub cluster: String,
    /// The VMID of the VM that carries it: a copy's is another.
    pub vmid: u32,
    /// The definition it was built from, as [`definition`] has it.
    pub definition: String,
    /// How far it is.
    pub stage: BuildStage,
    /// The process that builds it: `HOST/PID`.
    pub by: String,
    /// The machine which that process runs on: hosts of two PVE clusters may have one name. Absent in marks of older programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// When that began, in seconds since 1970.
    pub begun: i64,
    /// What a newer version wrote besides. It stays where the mark is written again.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// The machine that looks at a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkReader {
    /// Its name in PVE.
    pub host: String,
    /// What no other machine is called, whatever its name.
    pub machine: String,
    /// The mark is in the PVE cluster of this host: no other host of that has its name.
    pub local: bool,
}

/// What is known of the process that a mark names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkedProcess {
    /// It runs here, as this process.
    Running(u32),
    /// It ran here, and is gone.
    Gone,
    /// It is on another machine, or may be: its number says nothing here.
    Elsewhere,
}

impl TemplateMark {
    /// The description that carries it.
    pub fn describe(&self) -> String {
        let what = match self.stage {
            BuildStage::Trial => {
                "A trial by `pve-autoscaler template try`, which removes it at its end."
            }
            _ => {
                "Built by `pve-autoscaler template build`; `template prune` removes it when nothing needs it."
            }
        };
        format!("{what}\n{}", self.line())
    }

    fn line(&self) -> String {
        let body = serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned());
        format!("{PREFIX}{body} {}", hex(body.as_bytes(), SUM))
    }

    /// The mark in a VM's description, which must be the VM's own, as it was written, and alone.
    pub fn read(vmid: u32, config: &VmConfig) -> Option<TemplateMark> {
        let mut lines = config.description.lines().map(str::trim);
        let line = lines.find(|line| line.starts_with(PREFIX))?;
        if lines.any(|other| other.starts_with(PREFIX)) {
            return None;
        }
        let (body, sum) = line[PREFIX.len()..].rsplit_once(' ')?;
        let mark: TemplateMark = serde_json::from_str(body).ok()?;
        (mark.vmid == vmid && hex(body.as_bytes(), SUM) == sum).then_some(mark)
    }

    /// What is known here of the process that builds it. An older program's mark has the host's name alone, which says which machine it
    /// is within one PVE cluster only.
    pub fn process(&self, here: &MarkReader) -> MarkedProcess {
        let Some((host, pid)) = self.by.split_once('/') else {
            return MarkedProcess::Elsewhere;
        };
        let is_here = match &self.machine {
            Some(machine) => *machine == here.machine,
            None => here.local && host == here.host,
        };
        let Some(pid) = pid.parse().ok().filter(|_| is_here) else {
            return MarkedProcess::Elsewhere;
        };
        if runs(pid) {
            MarkedProcess::Running(pid)
        } else {
            MarkedProcess::Gone
        }
    }

    /// What is done with the VM may still be under way: by a process that runs here, or by one of another machine that was begun less
    /// than `longest` ago. A build that failed is over wherever it ran.
    pub fn may_be_under_way(&self, here: &MarkReader, longest: Span, now: Time) -> bool {
        let age = now.0.saturating_sub(self.begun.saturating_mul(1_000));
        match (self.stage, self.process(here)) {
            (BuildStage::Failed, _) | (_, MarkedProcess::Gone) => false,
            (_, MarkedProcess::Running(_)) => true,
            // The clocks of two machines may differ.
            (_, MarkedProcess::Elsewhere) => age.saturating_abs() < longest.0,
        }
    }

    /// How that is told, where it may be under way: by which process, and until when that counts.
    pub fn tell_process(&self, here: &MarkReader, longest: Span) -> String {
        if let MarkedProcess::Running(pid) = self.process(here) {
            return format!("process {pid}; wait for it, or end it");
        }
        let (host, pid) = self.by.split_once('/').unwrap_or((&self.by, "?"));
        let since = Time(self.begun.saturating_mul(1_000));
        format!(
            "process {pid} of a machine called {host}, whose processes nobody sees from here; it counts as over {longest} after its begin at {since}"
        )
    }
}

/// Another process of this program has the number.
fn runs(pid: u32) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
    pid != std::process::id() && name.is_ok_and(|name| name.starts_with("pve-autoscaler"))
}

/// The hash of all that goes into a template.
pub fn definition(build: &Build) -> String {
    let text = serde_json::to_string(&build.contents()).unwrap_or_default();
    hex(format!("{RECIPE}\n{text}").as_bytes(), HASH)
}

/// Whether a template was built from another definition than the file has now; no template that a person made was.
pub fn is_of_another_definition(vmid: u32, config: &VmConfig, build: Option<&Build>) -> bool {
    let mark = TemplateMark::read(vmid, config);
    let built = mark.filter(|mark| mark.stage == BuildStage::Ready);
    let wanted = build.map(definition);
    built
        .zip(wanted)
        .is_some_and(|(built, wanted)| built.definition != wanted)
}

/// Whether a VM is a template that was built, of whichever configuration.
pub fn is_built(vmid: u32, config: &VmConfig) -> bool {
    let mark = TemplateMark::read(vmid, config);
    mark.is_some_and(|mark| mark.stage == BuildStage::Ready)
}

/// The mark of a VM that `template try` made with this cluster's configuration; `None` for any other VM.
pub fn read_trial(vmid: u32, config: &VmConfig, cluster: &str) -> Option<TemplateMark> {
    let mark = TemplateMark::read(vmid, config)?;
    (mark.stage == BuildStage::Trial && mark.cluster == cluster && !config.template).then_some(mark)
}

/// The first bytes of a SHA-256 in hexadecimal.
pub fn hex(text: &[u8], bytes: usize) -> String {
    let sum = Sha256::digest(text);
    sum.iter()
        .take(bytes)
        .fold(String::new(), |mut digits, byte| {
            let _ = write!(digits, "{byte:02x}");
            digits
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn mark() -> TemplateMark {
        TemplateMark {
            template: "debian".to_owned(),
            cluster: "home".to_owned(),
            vmid: 8000,
            definition: "0123456789ab".to_owned(),
            stage: BuildStage::Ready,
            by: "pve1/77".to_owned(),
            machine: None,
            begun: 1_764_000_000,
            unknown: UnknownFields::new(),
        }
    }

    fn read(vmid: u32, description: &str) -> Option<TemplateMark> {
        let config = VmConfig::read(&json!({ "description": description }));
        TemplateMark::read(vmid, &config)
    }

    /// A template that a newer version has built is one that was built, and what is written of it keeps what that version knows.
    #[test]
    fn what_a_newer_version_wrote_is_kept_and_takes_nothing_from_the_proof() {
        let body = serde_json::to_string(&mark()).expect("plain data");
        let body = body.replacen('{', "{\"kernel\":[\"6.12\"],", 1);
        let text = format!("{PREFIX}{body} {}", hex(body.as_bytes(), SUM));
        let newer = read(8000, &text).expect("it is ours");
        assert_eq!(newer.stage, BuildStage::Ready);
        assert!(newer.unknown.contains_key("kernel"));
        let failed = TemplateMark {
            stage: BuildStage::Failed,
            ..newer
        };
        let text = failed.describe();
        assert!(text.contains("\"kernel\":[\"6.12\"]"), "{text}");
        assert_eq!(read(8000, &text), Some(failed));
        assert_eq!(read(8000, &text.replace("6.12", "6.13")), None);
    }

    /// What is told as a trial's is told to be removed by the next one: that looks at nothing else.
    #[test]
    fn a_trial_is_known_by_the_whole_mark_and_not_by_its_name() {
        let trial = TemplateMark {
            stage: BuildStage::Trial,
            ..mark()
        };
        let known = |vmid: u32, cluster: &str, more: serde_json::Value, mark: &TemplateMark| {
            let mut config =
                json!({ "name": "pve-autoscaler-trial-8000", "description": mark.describe() });
            for (key, value) in more.as_object().into_iter().flatten() {
                config[key] = value.clone();
            }
            read_trial(vmid, &VmConfig::read(&config), cluster).map(|mark| mark.template)
        };
        assert_eq!(
            known(8000, "home", json!({}), &trial),
            Some("debian".to_owned())
        );
        assert_eq!(known(8000, "other", json!({}), &trial), None);
        assert_eq!(known(8001, "home", json!({}), &trial), None, "a copy");
        assert_eq!(known(8000, "home", json!({}), &mark()), None, "a build");
        assert_eq!(known(8000, "home", json!({ "template": 1 }), &trial), None);
        let edited = json!({ "description": trial.describe().replace("debian", "rocky") });
        assert_eq!(known(8000, "home", edited, &trial), None);
        let bare = json!({ "description": "" });
        assert_eq!(known(8000, "home", bare, &trial), None, "its name alone");
    }

    /// Two PVE clusters have a host `pve1`: the number of a process on the one says nothing on the other.
    #[test]
    fn a_process_is_looked_for_on_its_own_machine_alone() {
        let here = |local: bool| MarkReader {
            host: "pve1".to_owned(),
            machine: "0a0a0a0a0a0a".to_owned(),
            local,
        };
        let of = |by: &str, machine: Option<&str>| TemplateMark {
            by: by.to_owned(),
            machine: machine.map(str::to_owned),
            stage: BuildStage::Building,
            ..mark()
        };
        let own = Some("0a0a0a0a0a0a");
        // No process has the number 0.
        for (by, machine, local, known) in [
            ("pve1/0", own, true, MarkedProcess::Gone),
            ("pve1/0", own, false, MarkedProcess::Gone),
            ("renamed/0", own, false, MarkedProcess::Gone),
            (
                "pve1/0",
                Some("0b0b0b0b0b0b"),
                true,
                MarkedProcess::Elsewhere,
            ),
            // As older programs wrote it.
            ("pve1/0", None, true, MarkedProcess::Gone),
            ("pve1/0", None, false, MarkedProcess::Elsewhere),
            ("pve2/0", None, true, MarkedProcess::Elsewhere),
            ("pve1", own, true, MarkedProcess::Elsewhere),
        ] {
            let found = of(by, machine).process(&here(local));
            assert_eq!(found, known, "{by} {machine:?} {local}");
        }
        let other = of("pve1/0", Some("0b0b0b0b0b0b"));
        let begun = other.begun * 1_000;
        let may = |mark: &TemplateMark, minutes: i64| {
            let now = Time(begun + minutes * 60_000);
            mark.may_be_under_way(&here(true), Span::minutes(60), now)
        };
        assert!(may(&other, 59) && may(&other, -59) && !may(&other, 60));
        let failed = TemplateMark {
            stage: BuildStage::Failed,
            ..other.clone()
        };
        assert!(!may(&failed, 1) && !may(&of("pve1/0", own), 1));
        let told = other.tell_process(&here(true), Span::minutes(60));
        assert!(
            told.starts_with("process 0 of a machine called pve1, "),
            "{told}"
        );
    }

    #[test]
    fn it_is_read_as_it_was_written_and_proves_nothing_once_edited_or_copied() {
        let text = mark().describe();
        assert_eq!(read(8000, &text), Some(mark()));
        assert_eq!(read(8000, &format!("{text}\n")), Some(mark()));
        // PVE's own end of a description, and a person's note above.
        assert_eq!(read(8000, &format!("mine\n{text}")), Some(mark()));
        for (vmid, text) in [
            (8001, text.clone()),
            (8000, text.replace("debian", "ubuntu")),
            (8000, text.replace("ready", "failed")),
            (8000, format!("{text}\n{text}")),
            (8000, String::new()),
            (8000, "pve-autoscaler-template:v1 {}".to_owned()),
        ] {
            assert_eq!(read(vmid, &text), None, "{vmid} {text}");
        }
        let machines = crate::model::mark::read(&text);
        assert_eq!(machines, crate::model::mark::Ownership::Unmarked);
    }
}
