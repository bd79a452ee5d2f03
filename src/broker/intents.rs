//! What was asked to be cloned, on disk before it is asked.
//!
//! A new clone is a locked VM without a mark until PVE has copied its disks. If the clone's worker
//! dies then, only an intent proves that the remains are ours. Once the VM shows its mark the intent
//! stays as the broker's own record of it, until the VM is gone or is another's.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::model::action::{CLONE_LOCK, CREATE_LOCK, NO_TEMPLATE};
use crate::model::cpus::CpuSet;
use crate::model::mark::Mark;
use crate::model::time::Time;
use crate::pve::{LATE_CALL, Upid};

use super::durable;
use super::records::{RecordDirectory, VmRecord};

/// How many calls without answer are kept of a machine, the newest: a client that goes away before each answer must not
/// make the record grow, nor account for more clones than it could have asked for in earnest.
const MOST_UNANSWERED: usize = 8;

/// A clone that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CloneIntent {
    /// VMID of the new VM.
    pub(super) vmid: u32,
    /// Name of the machine that it makes.
    pub(super) machine: String,
    /// The cluster id of its mark.
    pub(super) cluster: String,
    /// The host where it is cloned: there the placeholder is.
    pub(super) host: String,
    /// VMID of the template: the clone's task carries it. [`NO_TEMPLATE`] where the VM is made of settings.
    pub(super) template: u32,
    /// When it was asked for.
    pub(super) asked: Time,
    /// The clone's task, once PVE told it.
    #[serde(default)]
    pub(super) task: Option<Upid>,
    /// The pool of its mark.
    #[serde(default)]
    pub(super) pool: String,
    /// The instance type of its mark.
    #[serde(default)]
    pub(super) instance_type: String,
    /// The addresses of its mark.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) addresses: Vec<IpAddr>,
    /// The CPUs of its mark, and the host whose they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cpus: Option<(String, CpuSet)>,
    /// The VM was seen with its mark: the clone has done its work, and the record lasts as long as the
    /// VM. It then is what the broker itself knows of the machine.
    #[serde(default)]
    pub(super) settled: bool,
    /// It was configured or started through us: what is protected since then, a person protected.
    #[serde(default)]
    pub(super) configured: bool,
    /// When the clones of this machine were passed on whose answer never came, oldest first. Each may still be begun
    /// for [`LATE_CALL`] after that, also when a later call was answered or its VM is gone again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) unanswered: Vec<Time>,
}

impl CloneIntent {
    /// The intent of a clone that carries `mark`.
    pub(super) fn new(mark: &Mark, host: &str, template: u32, asked: Time) -> CloneIntent {
        CloneIntent {
            vmid: mark.vmid,
            machine: mark.machine.clone(),
            cluster: mark.cluster.clone(),
            host: host.to_owned(),
            template,
            asked,
            task: None,
            pool: mark.pool.clone(),
            instance_type: mark.instance_type.clone(),
            addresses: mark.addresses.values().flatten().copied().collect(),
            cpus: None,
            settled: false,
            configured: false,
            unanswered: vec![asked],
        }
    }

    /// The lock that PVE holds on the VM while it is made.
    pub(super) fn lock(&self) -> &'static str {
        if self.template == NO_TEMPLATE {
            CREATE_LOCK
        } else {
            CLONE_LOCK
        }
    }

    /// The kind of the task that makes the VM.
    pub(super) fn task_kind(&self) -> &'static str {
        if self.template == NO_TEMPLATE {
            "qmcreate"
        } else {
            "qmclone"
        }
    }

    /// What such a task carries: the VMID of the template, or without one that of the VM itself. Nothing where that is not known.
    pub(super) fn task_id(&self) -> Option<u32> {
        match self.template {
            0 => None,
            NO_TEMPLATE => Some(self.vmid),
            template => Some(template),
        }
    }

    /// Notes the CPUs of the mark, and the host that the machine comes to, whose they are.
    pub(super) fn on(mut self, mark: &Mark, target: &str) -> CloneIntent {
        let some = (!mark.cpus.is_empty()).then(|| (target.to_owned(), mark.cpus.clone()));
        self.cpus = some;
        self
    }

    /// Adds the calls of `earlier` that may still be begun, when it is about the same machine in the same place.
    pub(super) fn after(mut self, earlier: Option<&CloneIntent>) -> CloneIntent {
        let same = earlier.filter(|earlier| {
            earlier.machine == self.machine
                && earlier.cluster == self.cluster
                && earlier.host == self.host
                && earlier.template == self.template
        });
        let calls = same.map_or(&[][..], |same| &same.unanswered);
        let open = calls.iter().copied();
        let mut open: Vec<Time> = open.filter(|call| is_open(*call, self.asked)).collect();
        open.append(&mut self.unanswered);
        open.drain(..open.len().saturating_sub(MOST_UNANSWERED));
        self.unanswered = open;
        self
    }

    /// PVE answered the last call with this task.
    pub(super) fn answered(mut self, task: Upid) -> CloneIntent {
        self.task = Some(task);
        self.unanswered.pop();
        self
    }

    /// The VM shows its mark: its clone is over.
    pub(super) fn settle(mut self) -> CloneIntent {
        self.settled = true;
        if self.task.is_none() && !self.unanswered.is_empty() {
            // One of the calls without answer made it. Which one is not known: the last one stays open longest.
            self.unanswered.remove(0);
        }
        self
    }

    /// Whether PVE may still begin a clone of the machine whose answer never came.
    pub(super) fn may_come(&self, now: Time) -> bool {
        self.unanswered.iter().any(|call| is_open(*call, now))
    }

    /// What is left of the record when its VM is gone and a clone may still come: the intent of that clone.
    pub(super) fn of_open_clones(self) -> CloneIntent {
        CloneIntent {
            asked: self.unanswered.last().copied().unwrap_or(self.asked),
            task: None,
            settled: false,
            configured: false,
            ..self
        }
    }

    /// Whether a VM at its VMID that has this lock and shows no mark may be what a call of it left.
    pub(super) fn may_be_placeholder(&self, lock: Option<&str>) -> bool {
        lock == Some(self.lock()) && (!self.settled || !self.unanswered.is_empty())
    }

    /// When its first and its last clone were asked for that a VM without a mark may be of.
    pub(super) fn span(&self) -> (Time, Time) {
        let calls = || self.unanswered.iter().copied().chain([self.asked]);
        let first = calls().min().unwrap_or(self.asked);
        (first, calls().max().unwrap_or(self.asked))
    }
}

/// Whether PVE may still begin what it was asked for at `call`.
fn is_open(call: Time, now: Time) -> bool {
    now.since(call) < LATE_CALL
}

impl VmRecord for CloneIntent {
    const WHAT: &'static str = "intent";

    fn vmid(&self) -> u32 {
        self.vmid
    }

    fn is_about_same_machine(&self, other: &Self) -> bool {
        (&self.machine, &self.cluster) == (&other.machine, &other.cluster)
    }

    fn asked(&self) -> Time {
        self.asked
    }

    fn lasts(&self) -> bool {
        self.settled
    }
}

/// The directory of intents.
pub(super) type Intents = RecordDirectory<CloneIntent>;

/// Which Kubernetes cluster of the configured name is ours: learnt from the first change that
/// carries its mark, and held.
#[derive(Debug)]
pub(super) struct BoundCluster {
    path: PathBuf,
}

impl BoundCluster {
    /// The memory at `path`.
    pub(super) fn open(path: PathBuf) -> BoundCluster {
        BoundCluster { path }
    }

    /// `cluster` is the one that was learnt, or none was learnt yet.
    pub(super) fn check(&self, cluster: &str) -> Result<(), String> {
        let path = self.path.display();
        match std::fs::read_to_string(&self.path) {
            Ok(learnt) if learnt.trim() == cluster => Ok(()),
            Ok(learnt) => Err(format!(
                "the mark is of cluster {cluster}, but this broker serves {}; if the cluster was built anew, `pve-autoscaler adopt` on this host shows what is left of the one before and changes {path}",
                learnt.trim()
            )),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(format!("cannot read {path}: {error}")),
        }
    }

    /// The one that was learnt; `None` where none was, or where it cannot be read.
    pub(super) fn learnt(&self) -> Option<String> {
        let text = std::fs::read_to_string(&self.path).ok()?;
        Some(text.trim().to_owned())
    }

    /// Holds on to `cluster` from now on, unless one is held already.
    pub(super) fn learn(&self, cluster: &str) -> Result<(), String> {
        if self.path.exists() {
            return Ok(());
        }
        durable::write(&self.path, format!("{cluster}\n").as_bytes())
            .map_err(|error| format!("cannot write {}: {error}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::records::LIFE;
    use crate::model::time::Span;

    fn intent(vmid: u32) -> CloneIntent {
        CloneIntent {
            vmid,
            machine: "small-k3x9p".into(),
            cluster: "0b5f/home".into(),
            host: "pve1".into(),
            template: 9000,
            asked: Time(1_000_000),
            task: None,
            pool: "small".into(),
            instance_type: "s2".into(),
            addresses: Vec::new(),
            cpus: None,
            settled: false,
            configured: false,
            unanswered: Vec::new(),
        }
    }

    #[test]
    fn an_intent_is_there_until_forgotten_or_too_old() {
        let dir = tempfile::tempdir().expect("a directory");
        let intents = Intents::open(dir.path().join("intents")).expect("open");
        let now = Time(1_000_000);
        assert_eq!(intents.get(9001, now), Ok(None));
        intents.record(&intent(9001)).expect("recorded");
        // Another process finds it.
        let again = Intents::open(dir.path().join("intents")).expect("open");
        assert_eq!(again.get(9001, now), Ok(Some(intent(9001))));
        assert_eq!(again.get(9001, now + LIFE), Ok(Some(intent(9001))));
        assert_eq!(again.get(9001, now + LIFE + Span(1)), Ok(None));
        // Of a VM that was seen it lasts as long as the VM.
        let settled = CloneIntent {
            settled: true,
            ..intent(9002)
        };
        intents.record(&settled).expect("recorded");
        assert_eq!(again.get(9002, now + LIFE + LIFE), Ok(Some(settled)));
        again.forget(9001).expect("forgotten");
        again.forget(9001).expect("twice is fine");
        assert_eq!(intents.get(9001, now), Ok(None));
    }

    #[test]
    fn a_damaged_or_misplaced_intent_is_an_error_and_no_proof() {
        let dir = tempfile::tempdir().expect("a directory");
        let intents = Intents::open(dir.path().to_owned()).expect("open");
        let now = Time(1_000_000);
        std::fs::write(dir.path().join("9001.json"), "{").expect("written");
        assert!(intents.get(9001, now).is_err());
        let other = serde_json::to_vec(&intent(9002)).expect("json");
        std::fs::write(dir.path().join("9001.json"), other).expect("written");
        assert!(intents.get(9001, now).is_err());
    }

    /// The broker of an older version finds the intent: its known fields prove whose VM it is. It settles it, and the newer version finds
    /// all that it wrote. A record of another machine at the VMID gets none of it.
    #[test]
    fn an_intent_of_a_newer_version_proves_the_same_and_stays_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let intents = Intents::open(dir.path().to_owned()).expect("open");
        let path = dir.path().join("9001.json");
        let now = Time(1_000_000);
        let on_disk = || -> serde_json::Value {
            let bytes = std::fs::read(&path).expect("it is there");
            serde_json::from_slice(&bytes).expect("JSON")
        };
        let mut newer = serde_json::to_value(intent(9001)).expect("plain data");
        newer["rack"] = serde_json::json!({"row": 3});
        std::fs::write(&path, newer.to_string()).expect("written");
        let found = intents.get(9001, now).expect("it is read");
        assert_eq!(found, Some(intent(9001)));
        intents
            .record(&intent(9001).settle())
            .expect("it is written");
        assert_eq!(on_disk()["settled"], true);
        assert_eq!(on_disk()["rack"], newer["rack"]);
        let other = CloneIntent {
            machine: "small-other".into(),
            ..intent(9001)
        };
        intents.record(&other).expect("it is written");
        assert_eq!(on_disk().get("rack"), None, "{}", on_disk());
        // One that an older version must not act on says so.
        newer["version"] = 2.into();
        std::fs::write(&path, newer.to_string()).expect("written");
        let refused = intents.get(9001, now).expect_err("it is no proof");
        assert!(refused.contains("version 2 is unknown"), "{refused}");
    }

    #[test]
    fn calls_without_answer_are_kept_as_long_as_they_may_come_and_not_without_end() {
        let asked = |seconds: i64| CloneIntent {
            asked: Time(seconds * 1000),
            unanswered: vec![Time(seconds * 1000)],
            ..intent(9001)
        };
        let after = |earlier: CloneIntent, seconds| asked(seconds).after(Some(&earlier)).unanswered;
        assert_eq!(after(asked(0), 299), [Time(0), Time(299_000)]);
        assert_eq!(after(asked(0), 300), [Time(300_000)]);
        let other = CloneIntent {
            machine: "small-other".into(),
            ..asked(0)
        };
        assert_eq!(after(other, 10), [Time(10_000)]);
        let many = (1..100).fold(asked(0), |earlier, at| asked(at).after(Some(&earlier)));
        assert_eq!(many.unanswered.len(), MOST_UNANSWERED);
        assert_eq!(many.unanswered.last(), Some(&Time(99_000)));
    }

    #[test]
    fn the_first_cluster_is_held() {
        let dir = tempfile::tempdir().expect("a directory");
        let cluster = BoundCluster::open(dir.path().join("cluster"));
        assert_eq!(cluster.check("a/home"), Ok(()));
        cluster.learn("a/home").expect("learnt");
        cluster.learn("b/home").expect("nothing to learn");
        assert_eq!(cluster.check("a/home"), Ok(()));
        assert!(cluster.check("b/home").is_err());
    }
}
