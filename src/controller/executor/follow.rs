//! Following a task of PVE's to its end, and how long tasks usually take.
//!
//! PVE tells of a task's end only when asked. Whoever asks seldom hears late, and where turns are few (a storage bears
//! two clones at a time) the next one waits for that. So the tasks that went before tell when to look.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::controller::disk_storages::chosen_of;
use crate::model::foreign::ForeignText;
use crate::pve::remedy::RemedyContext;
use crate::pve::{FailureCause, TaskState, Upid};

use super::task::TaskFailure;
use super::work::{SHORTEST_LOOK, Stop, Work, pace_alone};

/// No pause between two looks at a task is longer than this.
const LONGEST_LOOK: Duration = Duration::from_secs(2);
/// Lines at the end of a failed task's log that are read.
const LOG_LINES: usize = 30;
/// Reading a log takes no longer.
const LOG_PATIENCE: Duration = Duration::from_secs(10);
/// Around the usual end of a task it is looked at each time this part of its usual time has passed, however many
/// machines are worked on …
const PART_OF_USUAL: u32 = 20;
/// … for this many looks. A task that takes longer is looked at as one that nothing is known of.
const LOOKS_AT_END: u32 = 10;
/// Tasks whose time is remembered. Hosts and templates are few; whoever has more loses nothing but a second.
const MAX_REMEMBERED: usize = 1_000;

/// How long the last task of each kind took on each host, that of clones by their template too. Clones are the same
/// memory. It is lost with the process, and needs not be kept: it only says when to look.
#[derive(Clone, Debug, Default)]
pub struct TaskTimes(Arc<Mutex<BTreeMap<TaskKey, Duration>>>);

/// Kind, host, and of a clone the template's VMID.
type TaskKey = (String, Arc<str>, Option<String>);

impl TaskTimes {
    fn key(upid: &Upid) -> TaskKey {
        let source = (upid.kind() == "qmclone").then(|| upid.id().to_owned());
        (upid.kind().to_owned(), upid.node().clone(), source)
    }

    fn usual(&self, upid: &Upid) -> Option<Duration> {
        let times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        times.get(&TaskTimes::key(upid)).copied()
    }

    fn remember(&self, upid: &Upid, took: Duration) {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if times.len() >= MAX_REMEMBERED {
            times.clear();
        }
        times.insert(TaskTimes::key(upid), took);
    }
}

/// The pause before the next look at a task that has run for `waited`, where its like took `usual` and `pace` is the
/// pause for something of which nothing is known.
fn pause_before_look(usual: Option<Duration>, waited: Duration, pace: Duration) -> Duration {
    let Some(usual) = usual else {
        return pace;
    };
    let part = (usual / PART_OF_USUAL).max(SHORTEST_LOOK);
    let first = usual.saturating_sub(part);
    if waited < first {
        pace.min(first.saturating_sub(waited)).max(SHORTEST_LOOK)
    } else if waited < first.saturating_add(part.saturating_mul(LOOKS_AT_END)) {
        pace.min(part)
    } else {
        pace
    }
}

impl Work {
    /// Follows a task to its end. `Ok(None)`: it succeeded.
    pub(super) async fn follow(&self, upid: &Upid) -> Result<Option<TaskFailure>, Stop> {
        let began = Instant::now();
        let times = &self.tools.task_times;
        let usual = times.usual(upid);
        let mut ran = false;
        loop {
            let status = self
                .patiently("following a task", || self.pve.task_status(upid))
                .await?;
            match status {
                TaskState::Running => {
                    ran = true;
                    self.progress(format!("task {} runs", upid.kind()));
                    // Clones have turns: there are few of them, and others wait for their end.
                    let pace = if upid.kind() == "qmclone" {
                        pace_alone(began.elapsed()).min(LONGEST_LOOK)
                    } else {
                        self.pace(began, LONGEST_LOOK)
                    };
                    sleep(pause_before_look(usual, began.elapsed(), pace)).await;
                }
                TaskState::Ok | TaskState::Warnings(_) => {
                    // One that had ended before the first look tells nothing of its time.
                    if ran {
                        times.remember(upid, began.elapsed());
                    }
                    if let TaskState::Warnings(text) = status {
                        self.tell_of_remains(upid, text).await;
                    }
                    return Ok(None);
                }
                TaskState::Failed(text) => {
                    let log = self.end_of_log(upid).await;
                    return Ok(Some(self.task_failure(upid, text, &log)));
                }
            }
        }
    }

    /// How the last start of the VM failed, if PVE calls it failed and tells so now: the VM may have run all the same, for a while.
    pub(super) async fn failed_start(&self) -> Option<TaskFailure> {
        let upid: Upid = self.entry().ok()?.start?.parse().ok()?;
        let status = timeout(LOG_PATIENCE, self.pve.task_status(&upid)).await;
        let TaskState::Failed(text) = status.ok()?.ok()? else {
            return None;
        };
        // Another start, by whomever, had done it.
        if FailureCause::of(&text) == FailureCause::AlreadyRunning {
            return None;
        }
        let log = self.end_of_log(&upid).await;
        Some(self.task_failure(&upid, text, &log))
    }

    /// The last lines of a task's log, as far as PVE tells them in short time.
    async fn end_of_log(&self, upid: &Upid) -> Vec<String> {
        let log = self.pve.task_log(upid, LOG_LINES);
        match timeout(LOG_PATIENCE, log).await {
            Ok(Ok(lines)) => lines,
            // Its last word must do.
            Ok(Err(_)) | Err(_) => Vec::new(),
        }
    }

    /// Says what a removal with warnings left: PVE destroys a VM whose disk it cannot remove, and only warns of that in the task's log.
    async fn tell_of_remains(&self, upid: &Upid, text: ForeignText) {
        if upid.kind() != "qmdestroy" {
            return;
        }
        let log = self.end_of_log(upid).await;
        let why = self.task_failure(upid, text, &log);
        tracing::warn!(machine = %self.machine, vmid = self.mark.vmid, %why, "PVE destroyed the VM with warnings; something of it may be left");
    }

    /// A failed task of PVE's about this machine.
    fn task_failure(&self, upid: &Upid, text: ForeignText, log: &[String]) -> TaskFailure {
        let template = self.mark.template.as_str();
        let settings = self.tools.settings.templates.get(template);
        let chosen = self.entry().map(|entry| entry.spec.storages.own);
        let chosen = chosen.ok().flatten();
        let names = settings.and_then(|settings| settings.storage.as_ref());
        let context = RemedyContext {
            host: Some(upid.node()),
            vmid: Some(self.mark.vmid),
            // A start or a resize may be about a disk that lies elsewhere.
            storage: names
                .map(|names| chosen_of(names, chosen.as_deref()))
                .filter(|_| upid.kind() == "qmclone"),
            template: Some(template),
            pool: Some(self.mark.pool.as_str()),
        };
        TaskFailure::new(text, log, &context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn millis(many: u64) -> Duration {
        Duration::from_millis(many)
    }

    /// The looks at a task that ends after `takes`: how late its end is seen, and how many looks that took.
    fn watch(usual: Option<Duration>, takes: Duration, crowd: u32) -> (Duration, u32) {
        let (mut waited, mut looks) = (Duration::ZERO, 1);
        while waited < takes {
            let pace = (waited / 10).max(SHORTEST_LOOK) * crowd;
            waited += pause_before_look(usual, waited, pace.min(LONGEST_LOOK));
            looks += 1;
        }
        (waited.saturating_sub(takes), looks)
    }

    #[test]
    fn the_end_of_a_task_like_those_before_is_seen_at_once_in_any_crowd() {
        for takes in [millis(900), millis(2_000), millis(4_000), millis(60_000)] {
            for usual in [takes * 9 / 10, takes, takes * 11 / 10] {
                let (late, _) = watch(Some(usual), takes, 50);
                let limit = (usual / PART_OF_USUAL).max(SHORTEST_LOOK) * 2;
                assert!(late <= limit, "{takes:?} after {usual:?}: {late:?} late");
            }
        }
    }

    #[test]
    fn without_them_it_is_seen_as_late_as_a_crowd_lets_it() {
        assert!(watch(None, millis(900), 50).0 >= millis(1_000));
        assert!(watch(None, millis(900), 1).0 <= SHORTEST_LOOK);
    }

    proptest! {
        /// However wrong what is remembered, a task costs few looks more than one of which nothing is known.
        #[test]
        fn a_wrong_memory_costs_few_looks(usual in 0u64..600_000, takes in 0u64..600_000, crowd in 1u32..60) {
            let (_, without) = watch(None, millis(takes), crowd);
            let (late, with) = watch(Some(millis(usual)), millis(takes), crowd);
            prop_assert!(with <= without + LOOKS_AT_END + 1, "{with} looks instead of {without}");
            prop_assert!(late <= LONGEST_LOOK);
        }
    }
}
