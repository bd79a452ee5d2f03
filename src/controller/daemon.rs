//! The loop: a turn observes, decides, remembers, publishes and acts.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tokio::sync::{Notify, watch as channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::brain;
use crate::clock::Clock;
use crate::config::settings::Settings;
use crate::controller::announce::Announcer;
use crate::controller::clock_steps::ClockSteps;
use crate::controller::executor::{
    ActionWaits, ConcurrencyLimits, Ended, Executor, NotBegun, Observer, Tools,
};
use crate::controller::identity::{identify, tell_former};
use crate::controller::journal::{Journal, JournalError};
use crate::controller::nominations::PodNominator;
use crate::controller::observe::{self, Sources};
use crate::controller::on_wire::WireBook;
use crate::controller::panicked_view;
use crate::controller::recording::Recording;
use crate::controller::region::{Doubts, RegionView, RegionWatcher};
use crate::controller::retries::RetryWait;
use crate::controller::soft_taints::SoftTaints;
use crate::controller::state::{StateError, StateFiles};
use crate::controller::turn::Turn;
use crate::controller::turn_timing::{
    AnswerTimes, SHORTEST_INTERVAL, interval_after, wait_for_change,
};
use crate::controller::{background, evacuations, startup};
use crate::kubernetes::lease::{self, Holder, Leadership, LeaseName, Timing, elect};
use crate::kubernetes::{ChangeCounts, ClusterStore, watch};
use crate::model::foreign::ForeignText;
use crate::model::memory::Memory;
use crate::model::region::RegionName;
use crate::model::snapshot::{Lease, Snapshot};
use crate::model::time::{Span, Time};
use crate::pve::transport::Transport;

/// A turn at least this often, for the watchdog and for what has no event.
const LONGEST_REST: Duration = Duration::from_secs(30);
/// The Lease of those who may act; one per cluster and namespace.
const LEASE: &str = "pve-autoscaler";
/// The name of the task that stands for election.
const ELECTION: &str = "the election";
/// Giving the Lease back, when we end, takes no longer: one call, whose own deadline is five seconds.
const GIVING_BACK: Duration = Duration::from_secs(6);

/// What the loop is made of. `main` and the simulator give the same things.
#[derive(Debug)]
pub struct DaemonParts {
    /// The configuration.
    pub settings: Arc<Settings>,
    /// What time it is.
    pub clock: Clock,
    /// Random numbers: pauses that differ.
    pub random: Arc<Mutex<StdRng>>,
    /// Kubernetes.
    pub kube: crate::kubernetes::KubeClient,
    /// PVE by region.
    pub pve: BTreeMap<RegionName, Arc<dyn Transport>>,
    /// Who has addresses on the wire.
    pub wire: WireBook,
    /// The state directory.
    pub state: StateFiles,
    /// Who we are in the Lease: this host's name, unique among those that may run the daemon.
    pub identity: String,
    /// Who hears of steps and evictions.
    pub observer: Arc<dyn Observer>,
    /// Where each turn is published.
    pub turns: channel::Sender<Option<Arc<Turn>>>,
    /// Asks for a turn at once: a pause began or ended, somebody wants a plan.
    pub wake_up: Arc<Notify>,
    /// Why the loop begins, for the record; `None`: the daemon was started.
    pub begins: Option<crate::record::RecordStart>,
}

/// Why the loop ended.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// What it needs cannot be had.
    #[error("{0}")]
    CannotBegin(String),
    /// A task of ours ended that never should.
    #[error("{0} ended unexpectedly; the daemon is started anew")]
    TaskEnded(String),
}

/// Runs until it is dropped or cannot go on; its end is as a crash to the next one.
///
/// # Errors
/// The journal or the state directory cannot be used, or a task of ours ended.
pub async fn run(parts: DaemonParts) -> Result<std::convert::Infallible, DaemonError> {
    run_until(parts, CancellationToken::new()).await?;
    Err(DaemonError::TaskEnded("the loop".to_owned()))
}

/// Runs until `stop` is cancelled or it cannot go on. Either way it ends what is being done (the
/// journal knows where) and gives the Lease back, so that the next one need not wait for its end.
///
/// # Errors
/// As [`run`].
pub async fn run_until(parts: DaemonParts, stop: CancellationToken) -> Result<(), DaemonError> {
    let mut tasks = JoinSet::new();
    let idle = CancellationToken::new();
    let mut turning = Loop::begin(parts, &mut tasks, idle.clone())?;
    let ended = tokio::select! {
        biased;
        error = turning.run() => Err(error),
        ended = tasks.join_next() => Err(DaemonError::TaskEnded(match ended {
            Some(Ok(name)) => name,
            Some(Err(error)) => error.to_string(),
            None => "a task".to_owned(),
        })),
        () = stop.cancelled() => Ok(()),
    };
    turning.executor.shut_down().await;
    idle.cancel();
    // The lease is free once the election has ended; it may be what ended.
    let given_back = async {
        while let Some(task) = tasks.join_next().await {
            if task.is_ok_and(|name| name == ELECTION) {
                break;
            }
        }
    };
    let was_election = matches!(&ended, Err(DaemonError::TaskEnded(name)) if name == ELECTION);
    if !was_election && timeout(GIVING_BACK, given_back).await.is_err() {
        tracing::warn!("the lease was not given back in time; it runs out by itself");
    }
    ended
}

/// Stands for election with a name of this start alone: a lease held under an earlier start's name
/// is somebody else's.
fn election(
    parts: &DaemonParts,
    seed: u64,
    tasks: &mut JoinSet<String>,
    idle: CancellationToken,
) -> Leadership {
    let lease = LeaseName {
        namespace: parts.settings.kubernetes.namespace.clone(),
        name: LEASE.to_owned(),
    };
    let identity = lease::identity(&parts.identity, seed);
    let rng = StdRng::seed_from_u64(seed);
    let (leadership, election) = elect(
        parts.kube.clone(),
        lease,
        identity,
        Timing::DEFAULT,
        rng,
        idle.cancelled_owned(),
    );
    tasks.spawn(named(ELECTION, election));
    leadership
}

/// Begins to watch Kubernetes, and the credentials for it.
fn watch_cluster(
    kube: &crate::kubernetes::KubeClient,
    seed: u64,
    tasks: &mut JoinSet<String>,
) -> ClusterStore {
    let store = ClusterStore::new();
    let watches = watch::watch(kube.clone(), store.clone(), seed);
    tasks.spawn(named("the watches", watches));
    let kube = kube.clone();
    let maintaining = async move { kube.maintain().await };
    tasks.spawn(named("the kubeconfig's watcher", maintaining));
    store
}

/// Begins to ask which cluster this is: its id, and what hinders to know it.
fn ask_identity(
    parts: &DaemonParts,
    tasks: &mut JoinSet<String>,
) -> (
    channel::Receiver<Option<Arc<str>>>,
    channel::Receiver<Option<String>>,
) {
    let (ids, cluster_id) = channel::channel(None);
    let (errors, error) = channel::channel(None);
    let name = parts.settings.kubernetes.name.clone();
    let (client, made) = (parts.kube.clone(), parts.kube.generation());
    let ask = move || {
        let client = client.clone();
        async move {
            let uid = client.kube_system_uid().await;
            uid.map_err(|failure| failure.cause())
        }
    };
    let identity = identify(ask, made, name, (ids, errors));
    tasks.spawn(named("the identity", identity));
    (cluster_id, error)
}

/// The regions' views, and how to ask for a new look at them.
type RegionWatches = (
    BTreeMap<RegionName, channel::Receiver<RegionView>>,
    Vec<Arc<Notify>>,
);

/// Begins to watch every region.
fn watch_regions(
    parts: &DaemonParts,
    clients: &BTreeMap<RegionName, crate::pve::Client>,
    fast_polls: &channel::Receiver<bool>,
    doubts: &Doubts,
    tasks: &mut JoinSet<String>,
) -> RegionWatches {
    let (mut views, mut poll_requests) = (BTreeMap::new(), Vec::new());
    for (name, client) in clients {
        let (sender, receiver) = channel::channel(RegionView::default());
        let poll_now = Arc::new(Notify::new());
        let settings = parts.settings.clone();
        let watcher = RegionWatcher::new(name.clone(), client.clone(), parts.clock, settings);
        let watcher = watcher.with_doubts(doubts.clone());
        let watching = watcher.run(sender, fast_polls.clone(), poll_now.clone());
        tasks.spawn(named("a region's watcher", watching));
        views.insert(name.clone(), receiver);
        poll_requests.push(poll_now);
    }
    (views, poll_requests)
}

/// A supervised task: its name is what is left when it ends.
pub(super) async fn named(name: &str, task: impl Future<Output = ()>) -> String {
    task.await;
    name.to_owned()
}

struct Loop {
    parts: DaemonParts,
    executor: Executor,
    recording: Recording,
    retry: RetryWait,
    journal: Journal,
    store: ClusterStore,
    changes: channel::Receiver<ChangeCounts>,
    /// Those that the last turn saw.
    seen: ChangeCounts,
    regions: BTreeMap<RegionName, channel::Receiver<RegionView>>,
    poll_requests: Vec<Arc<Notify>>,
    poll_fast: channel::Sender<bool>,
    leadership: Leadership,
    holder: channel::Receiver<Holder>,
    cluster_id: channel::Receiver<Option<Arc<str>>>,
    announcer: Announcer,
    nominations: PodNominator,
    soft_taints: SoftTaints,
    memory: Memory,
    /// Since when we lead without a gap.
    awake: Option<Time>,
    /// When the lease became ours, by the clock that nobody sets; regions read before that count as not read.
    leads: Option<Instant>,
    steps: ClockSteps,
    /// The machines of other clusters that were told of.
    former: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    number: u64,
    waits: ActionWaits,
    /// Why the cluster's id cannot be read.
    id_error: channel::Receiver<Option<String>>,
    /// The last turn.
    last: Option<Arc<Turn>>,
}

impl Loop {
    /// Begins everything that runs beside the loop, and the loop with it.
    /// `idle` is cancelled when nothing is being done any more and the Lease may be given back.
    fn begin(
        parts: DaemonParts,
        tasks: &mut JoinSet<String>,
        idle: CancellationToken,
    ) -> Result<Loop, DaemonError> {
        let journal = startup::journal(&parts.state)?;
        let memory = startup::memory(&parts.state, &journal, parts.clock.now())?;
        let (kube, seed) = (parts.kube.clone(), startup::seed(&parts.random));
        let store = watch_cluster(&kube, seed, tasks);
        let leadership = election(&parts, seed, tasks, idle);
        let (poll_fast, fast_polls) = channel::channel(false);
        let (clients, doubts) = (startup::clients(&parts), Doubts::default());
        let (regions, poll_requests) = watch_regions(&parts, &clients, &fast_polls, &doubts, tasks);
        let (announcer, announcing) =
            Announcer::new(&kube, &parts.settings, parts.identity.clone());
        tasks.spawn(named("the announcer", announcing));
        let (cluster_id, id_error) = ask_identity(&parts, tasks);
        let nominations = PodNominator::start(&kube, &memory.bookings, tasks);
        let soft_taints = SoftTaints::begin(&kube, tasks);
        let recording = Recording::begin(&parts);
        let known = (leadership.holder(), cluster_id.clone());
        background::begin(&parts, (&clients, &journal, &store), known, tasks);
        let tools = Tools {
            clock: parts.clock,
            settings: parts.settings.clone(),
            pve: clients,
            kube,
            store: store.clone(),
            journal: journal.clone(),
            random: parts.random.clone(),
            observer: recording.hearing(&parts.observer, parts.clock),
            clones: crate::controller::executor::CloneLimits::default(),
            task_times: crate::controller::executor::TaskTimes::default(),
            agent_pings: ConcurrencyLimits::default(),
            wire: parts.wire.clone(),
            doubts,
            nominations: nominations.clone(),
            active_tasks: Arc::default(),
            waits: ActionWaits::default(),
            works: Arc::default(),
        };
        Ok(Loop {
            waits: tools.waits.clone(),
            executor: Executor::new(tools),
            recording,
            retry: RetryWait::default(),
            parts,
            journal,
            changes: store.changes(),
            seen: ChangeCounts::default(),
            store,
            regions,
            poll_requests,
            poll_fast,
            holder: leadership.holder(),
            leadership,
            cluster_id,
            announcer,
            nominations,
            soft_taints,
            memory,
            awake: None,
            leads: None,
            steps: ClockSteps::default(),
            former: BTreeMap::new(),
            number: 0,
            id_error,
            last: None,
        })
    }

    async fn run(&mut self) -> DaemonError {
        let mut wake = Instant::now();
        let mut earliest = wake;
        let mut answers = AnswerTimes {
            unhurried: wake,
            hurried: wake,
            filling: false,
        };
        loop {
            if let Some(ended) = self.rest(wake, answers).await {
                if let Some(last) = &self.last {
                    self.announcer.ended(&ended, last);
                }
                self.poll_all();
            }
            // After a while of quiet the first change is looked at at once.
            sleep_until(earliest).await;
            let (began, pods) = (Instant::now(), self.seen.unschedulable);
            let turned = self.turn();
            let cost = began.elapsed();
            let (ended, unhurried) = (Instant::now(), Instant::now() + interval_after(cost));
            earliest = ended + SHORTEST_INTERVAL;
            let batch = self.memory.batch.as_ref();
            let filling = batch.is_some_and(|batch| !batch.closed);
            let in_vain = self.seen.unschedulable != pods && !filling;
            answers = AnswerTimes {
                unhurried,
                hurried: if in_vain { unhurried } else { ended },
                filling,
            };
            self.parts.observer.turned(cost);
            self.recording.tell_lost(&*self.parts.observer);
            match turned {
                Ok(next) => wake = next,
                Err(error) => return error,
            }
        }
    }

    /// Waits for a reason to look again.
    async fn rest(&mut self, wake: Instant, answers: AnswerTimes) -> Option<Ended> {
        // The turn looks at all that changed, whatever calls for it.
        let changed = wait_for_change(&mut self.changes, self.seen, answers);
        let region = async {
            let mut waits: Vec<_> = self
                .regions
                .values_mut()
                .map(|view| Box::pin(view.changed()))
                .collect();
            if waits.is_empty() {
                std::future::pending::<()>().await;
            }
            // A watcher that ended is seen by the supervisor.
            let _ = futures::future::select_all(waits.drain(..)).await;
        };
        tokio::select! {
            biased;
            ended = self.executor.ended() => return Some(ended),
            () = self.parts.wake_up.notified() => {}
            _ = self.holder.changed() => {}
            _ = self.cluster_id.changed() => {}
            _ = self.id_error.changed() => {}
            () = changed => {}
            () = region => {}
            () = sleep_until(wake.min(Instant::now() + LONGEST_REST)) => {}
        }
        None
    }

    /// One turn. Gives the time of the next at the latest.
    fn turn(&mut self) -> Result<Instant, DaemonError> {
        let now = self.parts.clock.now();
        if let Some(step) = self.steps.look(Instant::now(), now) {
            self.clock_was_set(step, now)?;
        }
        let snapshot = self.observe(now);
        // What follows looks at it too, the checker for instance: it has the same budget.
        let lean = match brain::budget::within(&snapshot, &self.parts.settings.policy) {
            Cow::Owned(lean) => Some(lean),
            Cow::Borrowed(_) => None,
        };
        let snapshot = Arc::new(lean.unwrap_or(snapshot));
        if !snapshot.leader && !planted!(LeaseIgnored) {
            self.executor.stop();
        }
        let look = (&self.memory, &snapshot.sources);
        let step = self.retry.look(&self.parts.state, look, now);
        let retried = step.carry_out(|| self.poll_all());
        let memory = retried.as_ref().unwrap_or(&self.memory);
        let decide = || brain::decide_lean(&snapshot, &self.parts.settings.policy, memory, now);
        let decision = panicked_view::decide_on(&snapshot, decide);
        let mut before = None; // What was remembered, if this decision changes it.
        if decision.memory != self.memory {
            // Before anything is done: a lesson must not be lost because what taught it crashed us.
            self.parts.state.save_memory(&decision.memory)?;
            if decision.memory.bookings != self.memory.bookings {
                self.nominations.plan(&decision.memory.bookings);
            }
            before = Some(std::mem::replace(&mut self.memory, decision.memory.clone()));
        }
        let openings = &self.nominations.openings;
        openings.plan(&decision.report.takes_pods_after);
        let ended = retried.as_ref().map(|_| self.parts.state.end_retries());
        let ended = ended.transpose()?.unwrap_or_default();
        let leads = self.still_leads(&snapshot);
        self.nominations.take_back(&snapshot.cluster, leads);
        let wanted = leads && self.parts.settings.policy.scale_up.nominate_pods;
        self.nominations
            .requeue(&snapshot.cluster, &decision.report, wanted);
        self.number += 1;
        let wake = decision.wake;
        let turn = Arc::new(Turn {
            number: self.number,
            at: now,
            settings: self.parts.settings.clone(),
            snapshot,
            decision: Arc::new(decision),
            waits: self.waits.clone(),
            made: self.recording.made(),
            usual: self.recording.usual(),
        });
        self.recording.decided(&turn, retried.or(before), &ended);
        if leads {
            self.act(&turn)?;
            self.soft_taints.apply(&turn);
        }
        self.announcer.decided(&turn);
        for overdue in self.executor.overdue(now) {
            self.announcer.waits(&overdue, &turn);
        }
        self.last = Some(turn.clone());
        self.parts.turns.send_replace(Some(turn));
        let busy = !self.executor.busy().is_empty();
        self.poll_fast
            .send_if_modified(|poll_fast| std::mem::replace(poll_fast, busy) != busy);
        Ok(wake.map_or_else(
            || Instant::now() + LONGEST_REST,
            |wake| Instant::now() + wake.since(now).to_std(),
        ))
    }

    /// Whether the lease is still ours: somebody else may have it after a decision that took long, and acts upon it.
    fn still_leads(&mut self, snapshot: &Snapshot) -> bool {
        let leads = snapshot.leader && self.leadership.held() || planted!(LeaseIgnored);
        if snapshot.leader && !leads {
            tracing::warn!("the lease ran out while it was decided: nothing is carried out");
            self.executor.stop();
        }
        leads
    }

    /// The host's clock was set, or the host slept: what is remembered is moved along, so that no timer
    /// rings for it and none stands still.
    fn clock_was_set(&mut self, step: Span, now: Time) -> Result<(), DaemonError> {
        let way = if step.0 < 0 { "back" } else { "ahead" };
        tracing::warn!(by = %Span(step.0.abs()), "this host's clock was set {way}; timers go on as if it had not been");
        self.memory.step(step);
        self.awake = self.awake.map(|awake| (awake + step).min(now));
        self.store.step(step, now);
        self.journal.step(step, now)?;
        Ok(())
    }

    /// Has every region read now.
    fn poll_all(&self) {
        self.poll_requests.iter().for_each(|now| now.notify_one());
    }

    fn observe(&mut self, now: Time) -> Snapshot {
        let leader = self.leadership.held();
        if leader && self.leads.is_none() {
            self.poll_all();
        }
        self.leads = leader.then(|| self.leads.unwrap_or_else(Instant::now));
        let mut regions: BTreeMap<RegionName, RegionView> = self
            .regions
            .iter_mut()
            .map(|(name, view)| (name.clone(), observe::seen(&view.borrow_and_update(), now)))
            .collect();
        if let Some(since) = self.leads {
            let views = regions.values_mut();
            views.for_each(|view| view.forget_before(since));
        }
        self.executor.saw(|region| {
            let view = regions.get(region)?;
            view.begun.filter(|_| view.source.complete)
        });
        let holder = self.holder.borrow_and_update().clone();
        self.awake = leader.then(|| self.awake.unwrap_or(now));
        let (evacuations, paused) = evacuations::read(&self.parts.state);
        let view = self.store.view();
        self.seen = view.changes;
        let snapshot = observe::snapshot(Sources {
            now,
            cluster_id: self.cluster_id.borrow_and_update().clone(),
            cluster: view.cluster,
            watches: view.sources,
            regions,
            settings: &self.parts.settings,
            journal: &self.journal.entries(),
            busy: &self.executor.busy(),
            leader,
            lease: Lease {
                holder: holder.identity,
                error: holder.error.map(ForeignText::from),
            },
            cluster_id_error: self
                .id_error
                .borrow_and_update()
                .clone()
                .map(ForeignText::from),
            paused,
            evacuations,
            awake: self.awake,
            on_wire: self.parts.wire.holders(now),
            nominations_refused: self.nominations.is_refused(),
        });
        if let Err(error) = self.journal.remember_uuids(&snapshot.machines) {
            tracing::error!(%error, "the journal could not be written");
        }
        tell_former(&mut self.former, &snapshot);
        snapshot
    }

    /// Begins what the plan says. Without a journal each turn would plan another machine: the loop ends, says so, and is started anew, which
    /// makes the journal's directory again.
    fn act(&mut self, turn: &Turn) -> Result<(), DaemonError> {
        for action in &turn.decision.plan {
            let policy = &self.parts.settings.policy;
            match self.executor.begin(action, &turn.snapshot, policy, turn.at) {
                Ok(()) => self.announcer.begun(action, turn),
                Err(NotBegun::Waits(why)) => {
                    tracing::debug!(machine = %action.target.machine, %why, "not begun");
                }
                Err(NotBegun::Unwritten(error)) => return Err(DaemonError::CannotBegin(error)),
                Err(error) => {
                    self.recording.not_begun(action, turn, error.to_string());
                    tracing::error!(machine = %action.target.machine, action = crate::controller::executor::kind(&action.kind), %error, "not begun");
                }
            }
        }
        Ok(())
    }
}
