//! A simulated world with its judge and a directory for the daemon's state, for tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pve_autoscaler::controller::turn::Turn;
use pve_autoscaler::sim::demo;
use pve_autoscaler::sim::faults::CallCounter;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::judge::Judge;
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::pve::PveSpec;
use pve_autoscaler::sim::workload::Workload;
use pve_autoscaler::sim::world::{World, WorldSpec};
use tokio_util::sync::CancellationToken;

/// When a workload begins: the daemon has the lease by then.
const BEGINS: Duration = Duration::from_secs(45);

/// The daemon's end, when nothing hinders it.
const GOODBYE: Duration = Duration::from_secs(1);

/// A lease that was given back is taken with the first look.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Runs on a paused clock of its own.
pub(crate) fn simulate<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime")
        .block_on(future)
}

/// A world, its judge, and the daemon's state.
pub(crate) struct Scene {
    pub(crate) world: World,
    judge: Mutex<Judge>,
    /// Those of further regions.
    judges: Mutex<Vec<Judge>>,
    state: tempfile::TempDir,
}

impl Scene {
    /// A new world.
    pub(crate) fn new(seed: u64, config: &str, guests: GuestSpec) -> Scene {
        Scene::of(WorldSpec {
            seed,
            pve: PveSpec::default(),
            kube: KubeSpec::default(),
            guests,
            config: config.to_owned(),
        })
    }

    /// A world of one's own.
    pub(crate) fn of(spec: WorldSpec) -> Scene {
        Scene::with_regions(spec, BTreeMap::new())
    }

    /// A world with further regions, each with a PVE cluster and a judge of its own.
    pub(crate) fn with_regions(mut spec: WorldSpec, further: BTreeMap<String, PveSpec>) -> Scene {
        spec.kube.keep_trace = true;
        // Stories that are about something else do without the record: there are thousands of worlds.
        if !spec.config.contains("[recorder]") {
            spec.config.push_str("\n[recorder]\nenabled = false\n");
        }
        let world = World::with_regions(spec, further).unwrap_or_else(|errors| panic!("{errors}"));
        let mut judges = demo::judges(&world);
        let judge = judges.remove(0);
        // On a tmpfs where there is one: the journal is synced to disk at every step.
        let shared_memory = std::path::Path::new("/dev/shm");
        let state = if shared_memory.is_dir() {
            tempfile::tempdir_in(shared_memory)
        } else {
            tempfile::tempdir()
        };
        let state = state.expect("a directory");
        Scene {
            world,
            judge: Mutex::new(judge),
            judges: Mutex::new(judges),
            state,
        }
    }

    /// Runs the daemon for `time` while the workload plays.
    pub(crate) async fn live(
        &self,
        counter: Option<&CallCounter>,
        start: u64,
        workload: Workload,
        time: Duration,
    ) {
        tokio::select! {
            biased;
            ended = self.world.daemon(self.state.path(), counter, start) => {
                panic!("the daemon ended: {}", ended.expect_err("it never ends well"));
            }
            () = self.preside() => {}
            () = self.play(workload) => {}
            () = tokio::time::sleep(time) => {}
        }
    }

    /// Runs the daemon until the counter kills it, starts it again at once, and goes on until the
    /// workload is over and nothing is left, or `time` is up.
    pub(crate) async fn live_and_die(
        &self,
        counter: &CallCounter,
        workload: Workload,
        time: Duration,
    ) {
        let ends = BEGINS + workload.length().to_std();
        let lives = async {
            tokio::select! {
                biased;
                () = counter.killed() => {}
                ended = self.world.daemon(self.state.path(), Some(counter), 0) => {
                    panic!("the daemon ended: {}", ended.expect_err("it never ends well"));
                }
            }
            let ended = self.world.daemon(self.state.path(), None, 1).await;
            panic!(
                "the daemon ended: {}",
                ended.expect_err("it never ends well")
            );
        };
        tokio::select! {
            biased;
            () = lives => {}
            () = self.preside() => {}
            () = self.play(workload) => {}
            () = self.rests(ends) => {}
            () = tokio::time::sleep(time) => {}
        }
    }

    /// Runs the daemon for `first`, ends it well, starts it again at once, and goes on until the
    /// workload is over and nothing is left, or `time` is up.
    pub(crate) async fn live_and_stop(&self, first: Duration, workload: Workload, time: Duration) {
        let ends = BEGINS + workload.length().to_std();
        let lives = async {
            self.live_until(first, 0).await;
            self.live_on(1, |after| {
                assert!(after < AT_ONCE, "it led after {after:?} only");
            })
            .await;
        };
        tokio::select! {
            biased;
            () = lives => {}
            () = self.preside() => {}
            () = self.play(workload) => {}
            () = self.rests(ends) => {}
            () = tokio::time::sleep(time) => {}
        }
    }

    /// Runs the daemon for a while and ends it well.
    pub(crate) async fn live_until(&self, time: Duration, start: u64) {
        let stop = CancellationToken::new();
        let life = self
            .world
            .daemon_until(self.state.path(), start, stop.clone());
        let bell = async {
            tokio::time::sleep(time).await;
            stop.cancel();
            tokio::time::sleep(GOODBYE).await;
            panic!("the daemon did not end within {GOODBYE:?}");
        };
        tokio::select! {
            biased;
            ended = life => ended.expect("the daemon ends well"),
            () = bell => {}
        }
    }

    /// Starts the daemon, says how long it took until it led, and goes on without end.
    pub(crate) async fn live_on(&self, start: u64, led: impl FnOnce(Duration)) {
        let began = tokio::time::Instant::now();
        let mut turns = self.world.turns.subscribe();
        turns.mark_unchanged();
        let leading = async {
            let leads = |turn: &Option<Arc<Turn>>| turn.as_ref().is_some_and(|t| t.snapshot.leader);
            // The sender is the world's.
            while turns.changed().await.is_ok() && !leads(&turns.borrow_and_update()) {}
            led(began.elapsed());
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            ended = self.world.daemon(self.state.path(), None, start) => {
                panic!("the daemon ended: {}", ended.expect_err("it never ends well"));
            }
            () = leading => {}
        }
    }

    /// Plays and then rests.
    pub(crate) async fn play(&self, workload: Workload) {
        tokio::time::sleep(BEGINS).await;
        let told = workload.play(self.world.kube.router()).await;
        told.expect("the workload plays");
        std::future::pending::<()>().await;
    }

    /// Ends when nothing has been left for a while after the workload.
    async fn rests(&self, workload: Duration) {
        tokio::time::sleep(workload).await;
        let mut quiet = 0;
        while quiet < 6 {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let rests = self.left().is_empty();
            quiet = if rests { quiet + 1 } else { 0 };
        }
    }

    pub(crate) async fn preside(&self) {
        loop {
            self.judge().look(self.world.clock.now());
            for judge in &mut *self.judges() {
                judge.look(self.world.clock.now());
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Where the daemon keeps its state.
    pub(crate) fn state(&self) -> &std::path::Path {
        self.state.path()
    }

    pub(crate) fn judge(&self) -> MutexGuard<'_, Judge> {
        self.judge.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judges(&self) -> MutexGuard<'_, Vec<Judge>> {
        self.judges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the judges found.
    pub(crate) fn findings(&self) -> Vec<String> {
        let mut findings = self.judge().findings();
        findings.extend(self.judges().iter().flat_map(Judge::findings));
        findings
    }

    /// The world has come to rest with no machine of ours.
    pub(crate) fn nothing_is_left(&self) {
        let findings = self.verdict();
        assert!(findings.is_empty(), "{findings:#?}");
    }

    /// What the judge found, and what is left in a world that should have come to rest with no machine of ours.
    pub(crate) fn verdict(&self) -> Vec<String> {
        let mut findings = self.findings();
        findings.extend(self.left());
        findings
    }

    /// What a world that should have come to rest with no machine of ours still has: there, or in the state
    /// directory.
    pub(crate) fn left(&self) -> Vec<String> {
        let judge = self.judge();
        let mut left = judge.at_rest(&BTreeMap::new());
        for judge in &*self.judges() {
            left.extend(judge.at_rest(&BTreeMap::new()));
        }
        left.extend(judge.left_in(self.state()));
        left
    }

    /// Machines asked for so far, cloned or made of settings, that PVE took.
    pub(crate) fn machines_made(&self) -> usize {
        let requests = self.world.pve.requests();
        let makes = |path: &str| path.ends_with("/clone") || path.ends_with("/qemu");
        let taken = requests
            .iter()
            .filter(|seen| makes(&seen.path) && seen.method == "POST" && seen.status == Some(200));
        taken.count()
    }

    /// Everything that went over either wire.
    pub(crate) fn trace(&self) -> Vec<String> {
        let mut lines = self.world.kube.trace().1;
        lines.extend(
            self.world
                .pve
                .requests()
                .iter()
                .map(|seen| format!("{seen:?}")),
        );
        lines
    }
}

/// Lets this thread's log lines go to `subscriber`. A call site that another thread reaches first while one
/// subscriber alone listens would stay silent here: a second one, of all threads, prevents that.
pub(crate) fn listen(
    subscriber: impl tracing::Subscriber + Send + Sync + 'static,
) -> tracing::subscriber::DefaultGuard {
    let of_all = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::INFO)
        .with_writer(std::io::sink)
        .finish();
    // It is set already, by another test.
    let _ = tracing::subscriber::set_global_default(of_all);
    tracing::subscriber::set_default(subscriber)
}
