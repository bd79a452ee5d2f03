//! Doing it: one task per machine, each deriving its steps from what PVE and Kubernetes show.
//!
//! An action is refused unless the independent checker passes it against the newest snapshot. A
//! task may be dropped at any await and begun again later, by this process or the next one: every
//! step first looks whether it is done already.

mod awaiting_refresh;
mod clone;
mod concurrency;
mod down;
mod drain;
mod firewall;
mod follow;
mod guest;
mod in_place;
mod joining;
mod late;
#[cfg(test)]
#[path = "tests/looks.rs"]
mod looks;
mod nocloud;
mod node;
mod on_wire;
mod reserved;
mod restart;
mod step_time;
mod stop;
mod sweep;
mod task;
#[cfg(test)]
mod tests;
mod tools;
mod transient;
mod up;
mod vm;
mod waits;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::brain;
use crate::controller::drift;
use crate::controller::journal::{JournalEntry, UNKNOWN_TEMPLATE};
use crate::controller::planned_join::PlannedJoin;
use crate::model::action::{Action, CreateSpec, Kind, Target};
use crate::model::chosen_storages::ChosenStorages;
use crate::model::policy::Policy;
use crate::model::region::{Busy, Failure, Machine, RegionName, Step};
use crate::model::snapshot::Snapshot;
use crate::model::time::Time;

use awaiting_refresh::AwaitingRefresh;

pub use concurrency::{CloneLimits, ConcurrencyLimits};
pub use follow::TaskTimes;
pub use guest::REFUSES_COMMANDS;
pub use tools::{Nothing, Observer, Tools};
pub use waits::{ActionWait, ActionWaits, Overdue, PATIENCE};

/// Machines worked on at the same time. Beyond this a plan waits for the next turn; the brain's own
/// limits lie far below.
const MAX_TASKS: usize = 200;
/// After a failed action the same action on the same machine waits this long …
const FIRST_COOLING: Duration = Duration::from_secs(10);
/// … doubling up to this.
const LONGEST_COOLING: Duration = Duration::from_mins(5);

/// An action that came to its end.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The action.
    pub action: Action,
    /// How it ended.
    pub result: Result<(), Failure>,
}

/// Why an action was not begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotBegun {
    /// The checker does not pass it.
    #[error("the checker refuses it ({rule}): {why}")]
    Refused {
        /// The rule it breaks.
        rule: String,
        /// How.
        why: String,
    },
    /// The machine is being worked on, or too many are.
    #[error("{0}")]
    Waits(String),
    /// The intent could not be made durable.
    #[error("{0}")]
    Journal(String),
    /// The intent of a new machine could not be written: no machine can be made.
    #[error("{0}")]
    Unwritten(String),
}

/// Runs actions.
#[derive(Debug)]
pub struct Executor {
    tools: Tools,
    running: BTreeMap<Arc<str>, RunningAction>,
    tasks: JoinSet<Ended>,
    cooling: BTreeMap<(Arc<str>, &'static str), Cooling>,
    settling: AwaitingRefresh,
}

#[derive(Debug)]
struct RunningAction {
    busy: Busy,
    action: Action,
    handle: AbortHandle,
}

#[derive(Debug)]
struct Cooling {
    until: Instant,
    next: Duration,
}

impl Executor {
    /// An executor with nothing to do.
    pub fn new(tools: Tools) -> Executor {
        Executor {
            tools,
            running: BTreeMap::new(),
            tasks: JoinSet::new(),
            cooling: BTreeMap::new(),
            settling: AwaitingRefresh::default(),
        }
    }

    /// What is being done with which machine, or was until after the region was last read.
    pub fn busy(&self) -> BTreeMap<Arc<str>, Busy> {
        let running = self
            .running
            .iter()
            .map(|(machine, running)| (machine.clone(), running.busy));
        self.settling.busy().chain(running).collect()
    }

    /// What has been waited for long enough to be told; each cause once.
    pub fn overdue(&self, now: Time) -> Vec<Overdue> {
        self.tools.waits.overdue(now)
    }

    /// Regions were read: `begun` says when the reading of a region's newest view began.
    pub fn saw(&mut self, begun: impl Fn(&RegionName) -> Option<Instant>) {
        self.settling.saw(begun);
    }

    /// Begins an action, if it may begin. `snapshot` is the newest one.
    pub fn begin(
        &mut self,
        action: &Action,
        snapshot: &Snapshot,
        policy: &Policy,
        now: Time,
    ) -> Result<(), NotBegun> {
        let machine = action.target.machine.clone();
        let kind = kind(&action.kind);
        let busy = busy(&action.kind);
        if let Some(running) = self.running.get(&machine) {
            // A removal ends an attempt to bring the machine up; nothing else interrupts anything.
            if running.busy == Busy::Down || busy != Busy::Down {
                return Err(NotBegun::Waits(format!("{machine} is being worked on")));
            }
        }
        if self.settling.holds(&machine) {
            return Err(NotBegun::Waits(format!(
                "an action on {machine} ended just now; its region is read first"
            )));
        }
        if self.tasks.len() >= MAX_TASKS {
            return Err(NotBegun::Waits(format!(
                "{MAX_TASKS} machines are being worked on"
            )));
        }
        let key = (machine.clone(), kind);
        if let Some(cooling) = self
            .cooling
            .get(&key)
            .filter(|cooling| Instant::now() < cooling.until)
        {
            let left = cooling.until - Instant::now();
            return Err(NotBegun::Waits(format!(
                "the last attempt to {kind} {machine} failed; the next is in {} s",
                left.as_secs() + u64::from(left.subsec_nanos() > 0)
            )));
        }
        let unseen: Vec<&Action> = self.unseen(snapshot).collect();
        brain::check::check_beside(action, &unseen, snapshot, policy, now).map_err(|refusal| {
            NotBegun::Refused {
                rule: refusal.rule.to_string(),
                why: refusal.why,
            }
        })?;
        let entry = self.entry(action, snapshot.machines.get(&machine), now)?;
        self.tools.clones.saw(&snapshot.regions);
        if let Some(running) = self.running.remove(&machine) {
            running.handle.abort();
        }
        tracing::info!(%machine, action = kind, vmid = action.target.vmid, host = %action.target.host,
            reason = %action.reason, "begun");
        let handle = self
            .tasks
            .spawn(perform(self.tools.clone(), action.clone(), entry));
        self.running.insert(
            machine,
            RunningAction {
                busy,
                action: action.clone(),
                handle,
            },
        );
        Ok(())
    }

    /// What was begun after the snapshot was taken: it does not show that.
    fn unseen(&self, snapshot: &Snapshot) -> impl Iterator<Item = &Action> {
        let running = self.running.iter().filter(|(name, _)| {
            let machine = snapshot.machines.get(&***name);
            machine.is_none_or(|machine| machine.busy.is_none())
        });
        running.map(|(_, running)| &running.action)
    }

    /// The entry of a machine that is planned now.
    fn planned(&self, target: &Target, spec: &CreateSpec, now: Time) -> JournalEntry {
        let settings = &self.tools.settings;
        let pool = settings.pools.get(spec.mark.pool.as_str());
        JournalEntry {
            made_of: drift::made_of(settings, &spec.mark),
            made_on: Some(target.host.clone()),
            joins: pool.map(|pool| Box::new(PlannedJoin::of(pool))),
            ..JournalEntry::new(target.clone(), spec.clone(), now)
        }
    }

    /// The machine's journal entry, made durable before anything is done to it.
    fn entry(
        &self,
        action: &Action,
        machine: Option<&Machine>,
        now: Time,
    ) -> Result<Option<JournalEntry>, NotBegun> {
        let journal = &self.tools.journal;
        if let Some(mut entry) = journal.get(&action.target.machine) {
            let ours = match (&action.kind, machine) {
                (Kind::Create(spec), _) => &*spec.mark.cluster,
                (_, Some(machine)) => &*machine.mark.cluster,
                (_, None) => &*entry.spec.mark.cluster,
            };
            if entry.spec.mark.cluster != ours {
                return Err(NotBegun::Journal(format!(
                    "the journal has a machine {} of the cluster {}; `pve-autoscaler adopt` sets it aside",
                    action.target.machine, entry.spec.mark.cluster
                )));
            }
            if entry.target.host != action.target.host && !matches!(action.kind, Kind::Create(_)) {
                entry.target.host = action.target.host.clone();
                journal
                    .put(entry.clone())
                    .map_err(|error| NotBegun::Journal(error.to_string()))?;
            }
            return Ok(Some(entry));
        }
        let mut entry = match (&action.kind, machine) {
            (Kind::Create(spec), _) => self.planned(&action.target, spec, now),
            // A machine of an earlier installation: its mark says all that is needed from here on.
            (_, Some(machine)) => {
                let spec = CreateSpec {
                    mark: (*machine.mark).clone(),
                    template_vmid: UNKNOWN_TEMPLATE,
                    template_host: machine.host.clone(),
                    template_uuid: None,
                    storages: ChosenStorages::default(),
                    terms: None,
                };
                let mut entry = JournalEntry::new(action.target.clone(), spec, now);
                let vm = machine.vm.as_ref();
                entry.marked = vm.is_some_and(|vm| vm.marked);
                let uuid = vm.and_then(|vm| vm.uuid.clone());
                // What a node of its name contradicts is not remembered. Without a node nothing speaks against what PVE shows.
                entry.uuid = uuid.filter(|_| entry.marked && machine.contradiction.is_none());
                // It is started after the first configuration write.
                entry.configured = machine.node.is_some() || vm.is_some_and(|vm| vm.running);
                // How far it came before us is not known.
                entry.reached = None;
                entry.step = if entry.configured {
                    Step::Register
                } else {
                    Step::Configure
                };
                entry
            }
            // A node whose VM is gone: nothing to write down.
            (_, None) => return Ok(None),
        };
        entry.target.node = None;
        let unwritten = match action.kind {
            Kind::Create(_) => NotBegun::Unwritten,
            _ => NotBegun::Journal,
        };
        let written = journal.put(entry.clone());
        written.map_err(|error| unwritten(error.to_string()))?;
        Ok(Some(entry))
    }

    /// Ends all that is being done: somebody else holds the lease. What was begun is found again.
    pub fn stop(&mut self) {
        let actions = self.running.len();
        self.tasks.abort_all();
        self.running.clear();
        if actions > 0 {
            tracing::warn!(actions, "not leading any more; stopping");
            self.tools.observer.stopped();
        }
    }

    /// Ends all that is being done and waits until it has ended: no call is sent after it. One that
    /// was sent may still be carried out, as after a crash; the next start looks before it acts.
    pub async fn shut_down(&mut self) {
        self.tasks.shutdown().await;
        if !self.running.is_empty() {
            self.tools.observer.stopped();
        }
        self.running.clear();
    }

    /// Waits for the next action to end; never ends while nothing runs.
    pub async fn ended(&mut self) -> Ended {
        loop {
            match self.tasks.join_next().await {
                None => std::future::pending::<()>().await,
                Some(Ok(ended)) => {
                    self.close(&ended);
                    return ended;
                }
                // Aborted by a removal that took over, or panicked (an abort in release builds):
                // what was done is seen by the next look.
                Some(Err(error)) => {
                    if error.is_panic() {
                        tracing::error!(%error, "an action panicked; the next turn decides on it again");
                    }
                    self.running
                        .retain(|_, running| !running.handle.is_finished());
                }
            }
        }
    }

    fn close(&mut self, ended: &Ended) {
        let machine = &ended.action.target.machine;
        if self
            .running
            .get(machine)
            .is_some_and(|running| running.action == ended.action)
            && let Some(running) = self.running.remove(machine)
        {
            let region = ended.action.target.region.clone();
            self.settling
                .ended(machine.clone(), running.busy, region, Instant::now());
        }
        let key = (machine.clone(), kind(&ended.action.kind));
        match &ended.result {
            Ok(()) => {
                self.cooling.retain(|(name, _), _| name != machine);
            }
            Err(_) => {
                let next = self
                    .cooling
                    .get(&key)
                    .map_or(FIRST_COOLING, |cooling| cooling.next);
                let until = Instant::now() + next;
                self.cooling.insert(
                    key,
                    Cooling {
                        until,
                        next: (next * 2).min(LONGEST_COOLING),
                    },
                );
            }
        }
        // Machines that are no more leave nothing behind.
        let now = Instant::now();
        self.cooling
            .retain(|_, cooling| now < cooling.until + LONGEST_COOLING);
    }
}

/// An action's kind as a word.
pub fn kind(kind: &Kind) -> &'static str {
    match kind {
        Kind::Create(_) => "create",
        Kind::Continue => "continue",
        Kind::Remove { .. } => "remove",
        Kind::Start => "start",
        Kind::Release => "release",
        Kind::Relabel => "relabel",
        Kind::Update => "update in place",
        Kind::DeleteNode => "delete node",
        Kind::DeletePlaceholder => "delete placeholder",
        Kind::DropIntent => "drop intent",
    }
}

/// Whether an action brings a machine up, or down.
fn busy(kind: &Kind) -> Busy {
    match kind {
        Kind::Create(_) | Kind::Continue | Kind::Start | Kind::Relabel => Busy::Up,
        Kind::Update => Busy::Update,
        Kind::Remove { .. }
        | Kind::Release
        | Kind::DeleteNode
        | Kind::DeletePlaceholder
        | Kind::DropIntent => Busy::Down,
    }
}

/// Does the work of an action.
async fn carry_out(
    tools: &Tools,
    action: &Action,
    entry: Option<JournalEntry>,
) -> Result<(), Failure> {
    match (&action.kind, entry) {
        (Kind::Create(_), Some(entry)) => {
            Box::pin(up::bring_up(tools.clone(), &entry, up::PlanOrigin::Fresh)).await
        }
        (Kind::Continue, Some(entry)) => {
            Box::pin(up::bring_up(tools.clone(), &entry, up::PlanOrigin::Earlier)).await
        }
        (Kind::Remove { drain }, Some(entry)) => {
            down::take_down(tools.clone(), action, &entry, *drain).await
        }
        (Kind::DeletePlaceholder, Some(entry)) => {
            sweep::delete_placeholder(tools.clone(), &entry).await
        }
        (Kind::DropIntent, Some(entry)) => sweep::drop_intent(tools.clone(), &entry).await,
        (Kind::Start, Some(entry)) => up::start(tools.clone(), &entry).await,
        (Kind::Relabel, Some(entry)) => up::relabel(tools.clone(), &entry).await,
        (Kind::Update, Some(entry)) => in_place::update(tools.clone(), &entry).await,
        (Kind::Release, entry) => sweep::release(tools, action, entry.as_ref()).await,
        (Kind::DeleteNode, _) => sweep::delete_node(tools, action).await,
        (_, None) => Err(Failure {
            advice: None,
            step: Step::Intent,
            message: "nothing is known of this machine any more".into(),
            at: tools.clock.now(),
            transient: true,
            host: None,
        }),
    }
}

async fn perform(tools: Tools, action: Action, entry: Option<JournalEntry>) -> Ended {
    tools.observer.begun(&action, entry.as_ref());
    // On the heap: whoever performs an action holds it only once.
    let result = Box::pin(carry_out(&tools, &action, entry)).await;
    let machine = &action.target.machine;
    let kept = match &result {
        // It works, whatever came of that; what went wrong before is none of it.
        _ if action.kind == Kind::Update => Ok(()),
        Ok(()) => tools
            .journal
            .update(machine, |stored| stored.failure = None),
        Err(failure) => tools
            .journal
            .update(machine, |stored| keep_failure(stored, failure)),
    };
    if let Err(error) = kept {
        tracing::error!(%machine, %error, "the journal could not be written");
    }
    match &result {
        Ok(()) => tracing::info!(%machine, action = kind(&action.kind), "done"),
        Err(failure) => {
            tracing::warn!(%machine, action = kind(&action.kind), step = failure.step.word(),
                error = %failure.message, "failed");
        }
    }
    tools.observer.ended(&action, result.as_ref().err());
    Ended { action, result }
}

/// Writes a failure down. A machine that failed on its way up and cannot be removed either, since a pod holds its node, has failed still:
/// with the failure of its removal alone it would be on its way again.
fn keep_failure(entry: &mut JournalEntry, failure: &Failure) {
    let held = failure.step > Step::Done && entry.step < Step::Done;
    let failed = entry.failure.as_ref();
    if !(held && failed.is_some_and(|before| before.step < Step::Done)) {
        entry.failure = Some(failure.clone());
    }
}
