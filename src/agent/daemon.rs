//! The loop: a turn observes, decides, remembers, publishes and acts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::{Notify, watch as channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::agent::announce::Announcer;
use crate::agent::executor::{Ended, Executor, NotBegun, Observer, Tools};
use crate::agent::journal::{Journal, JournalError};
use crate::agent::observe::{self, Sources};
use crate::agent::region::{RegionView, RegionWatcher};
use crate::agent::state::{StateError, StateFiles};
use crate::agent::turn::Turn;
use crate::brain;
use crate::clock::Clock;
use crate::config::settings::Settings;
use crate::kube::lease::{Holder, Leadership, LeaseName, Timing, elect};
use crate::kube::{Changes, ClusterStore, watch};
use crate::model::memory::Memory;
use crate::model::region::RegionName;
use crate::model::snapshot::Snapshot;
use crate::model::time::Time;
use crate::pve::transport::Transport;

/// Turns are at least this far apart: a burst of changes is seen as one.
const SPACING: Duration = Duration::from_millis(50);
/// A turn at least this often, for the watchdog and for what has no event.
const LONGEST_REST: Duration = Duration::from_secs(30);
/// The Lease of those who may act; one per cluster and namespace.
const LEASE: &str = "pve-autoscaler";
/// After something failed that only time mends.
const RETRY: Duration = Duration::from_secs(5);

/// What the loop is made of. `main` and the simulator give the same things.
#[derive(Debug)]
pub struct Parts {
    /// The configuration.
    pub settings: Arc<Settings>,
    /// What time it is.
    pub clock: Clock,
    /// Dice.
    pub random: Arc<Mutex<StdRng>>,
    /// Kubernetes.
    pub kube: crate::kube::Client,
    /// PVE by region.
    pub pve: BTreeMap<RegionName, Arc<dyn Transport>>,
    /// The state directory.
    pub state: StateFiles,
    /// Who we are in the Lease: this host's name, unique among those that may run the daemon.
    pub identity: String,
    /// Who hears of steps and evictions.
    pub observer: Arc<dyn Observer>,
    /// Where each turn is published.
    pub turns: channel::Sender<Option<Arc<Turn>>>,
    /// Asks for a turn at once: a pause began or ended, somebody wants a plan.
    pub poke: Arc<Notify>,
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
    /// A task of ours ended that never should.
    #[error("{0} ended unexpectedly; the daemon is started anew")]
    TaskEnded(String),
}

/// Runs until it is dropped or cannot go on.
pub async fn run(parts: Parts) -> Result<std::convert::Infallible, DaemonError> {
    let (journal, unreadable) = Journal::open(&parts.state.journal())?;
    for problem in unreadable {
        tracing::error!(%problem, "a journal entry cannot be read; its machine is known by its mark alone");
    }
    let (memory, word) = parts.state.load_memory();
    if let Some(word) = word {
        tracing::warn!("{word}");
    }
    let mut tasks = JoinSet::new();
    let store = ClusterStore::new();
    let seed = parts
        .random
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .random();
    tasks.spawn(named(
        "the watches",
        watch::watch(parts.kube.clone(), store.clone(), seed),
    ));
    tasks.spawn({
        let kube = parts.kube.clone();
        async move {
            kube.maintain().await;
            "the kubeconfig's watcher".to_owned()
        }
    });
    let lease = LeaseName {
        namespace: parts.settings.kubernetes.namespace.clone(),
        name: LEASE.to_owned(),
    };
    let dice = StdRng::seed_from_u64(seed);
    // A lease held under an earlier start's name is somebody else's.
    let identity = format!("{}_{seed:016x}", parts.identity);
    let timing = Timing::DEFAULT;
    let (leadership, election) = elect(
        parts.kube.clone(),
        lease,
        identity,
        timing,
        dice,
        std::future::pending(),
    );
    tasks.spawn(named("the election", election));
    let (hurry, hurrying) = channel::channel(false);
    let mut regions = BTreeMap::new();
    let mut pokes = Vec::new();
    let mut clients = BTreeMap::new();
    for (name, transport) in &parts.pve {
        let client = crate::pve::Client::new(transport.clone());
        let (sender, receiver) = channel::channel(RegionView::default());
        let poke = Arc::new(Notify::new());
        let watcher = RegionWatcher::new(
            name.clone(),
            client.clone(),
            parts.clock,
            parts.settings.clone(),
        );
        tasks.spawn(named(
            "a region's watcher",
            watcher.run(sender, hurrying.clone(), poke.clone()),
        ));
        regions.insert(name.clone(), receiver);
        pokes.push(poke);
        clients.insert(name.clone(), client);
    }
    let tools = Tools {
        clock: parts.clock,
        settings: parts.settings.clone(),
        pve: clients,
        kube: parts.kube.clone(),
        store: store.clone(),
        journal: journal.clone(),
        random: parts.random.clone(),
        observer: parts.observer.clone(),
        clones: crate::agent::executor::Turns::default(),
    };
    let (announcer, announcing) =
        Announcer::new(&parts.kube, &parts.settings, parts.identity.clone());
    tasks.spawn(named("the announcer", announcing));
    let (cluster_ids, cluster_id) = channel::channel(None);
    tasks.spawn(named(
        "the identity",
        identify(
            parts.kube.clone(),
            parts.settings.kubernetes.name.clone(),
            cluster_ids,
        ),
    ));
    let mut turning = Loop {
        executor: Executor::new(tools),
        parts,
        journal,
        changes: store.changes(),
        store,
        regions,
        pokes,
        hurry,
        holder: leadership.holder(),
        leadership,
        cluster_id,
        announcer,
        memory,
        number: 0,
    };
    let ended = tokio::select! {
        biased;
        error = turning.run() => return Err(error),
        ended = tasks.join_next() => ended,
    };
    let name = match ended {
        Some(Ok(name)) => name,
        Some(Err(error)) => error.to_string(),
        None => "a task".to_owned(),
    };
    Err(DaemonError::TaskEnded(name))
}

/// A supervised task: its name is what is left when it ends.
async fn named(name: &str, task: impl Future<Output = ()>) -> String {
    task.await;
    name.to_owned()
}

/// Finds out which cluster this is, and then rests.
async fn identify(kube: crate::kube::Client, name: String, id: channel::Sender<Option<Arc<str>>>) {
    loop {
        match kube.kube_system_uid().await {
            Ok(uid) => {
                id.send_replace(Some(Arc::from(format!("{uid}/{name}"))));
                id.closed().await;
                std::future::pending::<()>().await;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read the UID of namespace kube-system, which names our cluster");
                sleep(RETRY).await;
            }
        }
    }
}

struct Loop {
    parts: Parts,
    executor: Executor,
    journal: Journal,
    store: ClusterStore,
    changes: channel::Receiver<Changes>,
    regions: BTreeMap<RegionName, channel::Receiver<RegionView>>,
    pokes: Vec<Arc<Notify>>,
    hurry: channel::Sender<bool>,
    leadership: Leadership,
    holder: channel::Receiver<Holder>,
    cluster_id: channel::Receiver<Option<Arc<str>>>,
    announcer: Announcer,
    memory: Memory,
    number: u64,
}

impl Loop {
    async fn run(&mut self) -> DaemonError {
        let mut wake = Instant::now();
        loop {
            if let Some(ended) = self.rest(wake).await {
                self.announcer.ended(&ended);
                self.pokes.iter().for_each(|poke| poke.notify_one());
            }
            sleep(SPACING).await;
            match self.turn() {
                Ok(next) => wake = next,
                Err(error) => return error,
            }
        }
    }

    /// Waits for a reason to look again.
    async fn rest(&mut self, wake: Instant) -> Option<Ended> {
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
            () = self.parts.poke.notified() => {}
            _ = self.holder.changed() => {}
            _ = self.cluster_id.changed() => {}
            _ = self.changes.changed() => {}
            () = region => {}
            () = sleep_until(wake.min(Instant::now() + LONGEST_REST)) => {}
        }
        None
    }

    /// One turn. Gives the time of the next at the latest.
    fn turn(&mut self) -> Result<Instant, DaemonError> {
        let now = self.parts.clock.now();
        let snapshot = Arc::new(self.observe(now));
        if !snapshot.leader {
            self.executor.stop();
        }
        let policy = &self.parts.settings.policy;
        let decision = brain::decide(&snapshot, policy, &self.memory, now);
        if decision.memory != self.memory {
            // Before anything is done: a lesson must not be lost because what taught it crashed us.
            self.parts.state.save_memory(&decision.memory)?;
            self.memory = decision.memory.clone();
        }
        self.number += 1;
        let wake = decision.wake;
        let turn = Arc::new(Turn {
            number: self.number,
            at: now,
            snapshot,
            decision: Arc::new(decision),
        });
        self.act(&turn);
        self.announcer.decided(&turn);
        self.parts.turns.send_replace(Some(turn));
        let busy = !self.executor.busy().is_empty();
        self.hurry
            .send_if_modified(|hurry| std::mem::replace(hurry, busy) != busy);
        Ok(wake.map_or_else(
            || Instant::now() + LONGEST_REST,
            |wake| Instant::now() + wake.since(now).to_std(),
        ))
    }

    fn observe(&mut self, now: Time) -> Snapshot {
        let regions = self
            .regions
            .iter_mut()
            .map(|(name, view)| (name.clone(), view.borrow_and_update().clone()));
        self.changes.mark_unchanged();
        self.holder.mark_unchanged();
        let view = self.store.view();
        observe::snapshot(Sources {
            now,
            cluster_id: self.cluster_id.borrow_and_update().clone(),
            cluster: view.cluster,
            watches: view.sources,
            regions: regions.collect(),
            journal: &self.journal.entries(),
            busy: &self.executor.busy(),
            leader: self.leadership.held(),
            paused: self.parts.state.paused(),
        })
    }

    fn act(&mut self, turn: &Turn) {
        for action in &turn.decision.plan {
            let policy = &self.parts.settings.policy;
            match self.executor.begin(action, &turn.snapshot, policy, turn.at) {
                Ok(()) => self.announcer.begun(action, turn),
                Err(NotBegun::Waits(why)) => {
                    tracing::debug!(machine = %action.target.machine, %why, "not begun");
                }
                Err(error) => {
                    tracing::error!(machine = %action.target.machine, action = ?action.kind, %error, "not begun");
                }
            }
        }
    }
}
