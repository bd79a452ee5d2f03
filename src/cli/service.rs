//! `pve-autoscaler run`: the daemon as a systemd service. Reads the configuration, opens the ways
//! out, and keeps the loop running: anew after a reload, not at all while nothing is configured.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::config::settings::Channel;
use crate::config::{self, ConfigErrors, Settings};
use crate::controller::daemon::{self, DaemonError, DaemonParts};
use crate::controller::journal::UnreadableEntry;
use crate::controller::on_wire::WireBook;
use crate::controller::state::{StateError, StateFiles};
use crate::controller::state_lock::{StateInUse, StateLock};
use crate::controller::status::DaemonStatus;
use crate::controller::turn::Turn;
use crate::controller::{control, evacuations};
use crate::kubernetes::Connector;
use crate::model::time::Span;
use crate::pve::transport::Transport;
use crate::record::{BeginCause, RecordStart};
use crate::web::access::Access;
use crate::web::metrics::Metered;
use crate::web::{Health, Metrics};
use crate::wire::HostWire;

use super::channels::RegionChannel;
use super::host_name::identity;
use super::in_force::{InForce, whole_path};
use super::page::{OpenError, PageServer};
use super::{crash, systemd};

mod agreeing;
mod answering;
mod credentials;
mod journal_files;
mod notifying;
mod placing;
mod reloading;
mod shown;
mod spans;

use agreeing::{agree, agreeing};
use answering::handler;
use credentials::Logins;
use notifying::Telling;
use shown::shown;

/// Where things lie.
#[derive(Clone, Debug)]
pub(super) struct ServiceOptions {
    /// The configuration file.
    pub(super) config: PathBuf,
    /// The state directory.
    pub(super) state: PathBuf,
    /// The control socket.
    pub(super) control: PathBuf,
}

/// After the loop could not go on.
const RESTART_PAUSE: Duration = Duration::from_secs(5);
/// How often the minder looks besides after turns: well within the watchdog's minute.
const MIND: Duration = Duration::from_secs(20);
/// How often the broker is asked whether it still agrees; while it does not, every [`MIND`].
const AGREE: Duration = Duration::from_mins(5);
/// A turn must be taken within this time for the watchdog to be fed: the loop rests 30 s at most.
const TURN_DEADLINE: Duration = Duration::from_mins(1);
/// The loop's end: what is being done is dropped at once, giving the lease back is one call.
const GOODBYE: Duration = Duration::from_secs(10);

/// Why the service ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServiceError {
    /// The file is wrong.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// Another daemon has it.
    #[error(transparent)]
    InUse(#[from] StateInUse),
    /// An address or socket is taken.
    #[error("cannot listen on {what}: {source}")]
    Listen {
        /// Which.
        what: String,
        /// Why.
        source: std::io::Error,
    },
    /// A file that `[web]` names cannot be used.
    #[error("the page cannot be served: {0}")]
    Web(String),
    /// Signals cannot be received.
    #[error("cannot receive signals: {0}")]
    Signals(std::io::Error),
    /// A task of ours ended that never should.
    #[error("{0} ended unexpectedly")]
    TaskEnded(&'static str),
}

/// What the whole service shares.
#[derive(Debug)]
struct ServiceShared {
    panics: crash::News,
    state: StateFiles,
    /// Files of the journal that the present work could not use.
    unreadable: Mutex<Vec<UnreadableEntry>>,
    turns: watch::Sender<Option<Arc<Turn>>>,
    wake_up: Arc<Notify>,
    /// Whether there is anything to do, and what is wrong with the daemon itself.
    standing: Mutex<ServiceState>,
    metrics: Arc<Metrics>,
    health: watch::Sender<Health>,
    /// What the present work logs in with.
    logins: Mutex<Logins>,
    /// Whom the page lets in.
    access: Mutex<Access>,
    /// The configuration that was read last and had no errors.
    in_force: watch::Sender<InForce>,
    /// Who is told when a person must do something.
    telling: Telling,
}

#[derive(Clone, Debug, Default)]
struct ServiceState {
    configured: bool,
    max_view_age: Span,
    problems: BTreeMap<&'static str, String>,
}

impl ServiceShared {
    fn standing(&self) -> std::sync::MutexGuard<'_, ServiceState> {
        self.standing
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Notes or takes back what is wrong with the daemon itself.
    fn problem(&self, subject: &'static str, problem: Option<String>) {
        let mut standing = self.standing();
        match problem {
            Some(problem) => standing.problems.insert(subject, problem),
            None => standing.problems.remove(subject),
        };
    }

    /// Looks for files of the journal that the work that begins cannot use.
    fn look_at_journal(&self) {
        let found = self.state.unreadable_entries();
        *self.unreadable() = found;
    }

    /// What there is to say of those that are still no entries.
    fn journal_problem(&self) -> Option<String> {
        journal_files::tell(&mut self.unreadable())
    }

    fn unreadable(&self) -> std::sync::MutexGuard<'_, Vec<UnreadableEntry>> {
        self.unreadable
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Looks at the files that `[web]` names.
    fn look_at_access(&self) {
        let access = self.access().clone();
        self.problem("access", access.problem(Clock::System.now()));
    }

    fn access(&self) -> std::sync::MutexGuard<'_, Access> {
        self.access
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Work with these settings begins.
    fn begin(&self, settings: &Settings) {
        self.telling.begin(settings);
        let mut standing = self.standing();
        standing.configured = settings.configured;
        standing.max_view_age = settings.policy.scale_up.max_view_age;
        // Until the broker is asked, and where there is none.
        self.metrics.policies_agree(true);
        standing.problems.remove("broker");
        standing.problems.remove("binding");
        if !settings.configured {
            // What was seen before the file was emptied is not how things stand.
            standing.problems.remove("loop");
            self.turns.send_replace(None);
            let file = self.in_force.borrow().file_name();
            self.health
                .send_replace(Health::not_configured(&file, Instant::now()));
        }
    }

    /// Which cluster this is, by the last turn.
    fn cluster_id(&self) -> Option<Arc<str>> {
        let turn = self.turns.borrow();
        turn.as_ref()?.snapshot.cluster_id.clone()
    }

    fn status(&self) -> DaemonStatus {
        let standing = self.standing().clone();
        let mut status = self
            .turns
            .borrow()
            .as_ref()
            .map_or_else(DaemonStatus::default, |turn| DaemonStatus::of(turn));
        env!("CARGO_PKG_VERSION").clone_into(&mut status.version);
        status.configured = standing.configured;
        self.in_force.borrow().name_in(&mut status);
        status.record = whole_path(&self.state.record());
        status.paused = evacuations::read(&self.state).1;
        placing::tell(&mut status, self.turns.borrow().as_deref());
        // A fault that a view shows too is named once.
        let named = |problem: &String| {
            let mut causes = status
                .troubles
                .iter()
                .filter_map(|trouble| trouble.cause.as_ref());
            causes.any(|cause| cause.as_str() == problem)
        };
        let problems = standing.problems.into_values();
        status.problems = problems.filter(|problem| !named(problem)).collect();
        status
    }

    /// How things stand in one line, and by which configuration. Notes what is wrong with the file, which a person
    /// edits without telling us.
    fn line(&self) -> String {
        let in_force = self.in_force.borrow();
        let file = in_force.file();
        let problem = file.problem();
        if self.standing().problems.get("configuration") != problem.as_ref() {
            // A wrong file counts as an error, once.
            self.metrics.config_valid(problem.is_none());
            self.problem("configuration", problem);
        }
        format!("{}; {}", self.status().line(), in_force.words(&file))
    }
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// What keeps it from starting, or a part of it that ended.
pub(super) async fn run(options: ServiceOptions) -> Result<(), ServiceError> {
    // What ends the service is told in the journal.
    let (in_force, settings) = InForce::load(&options.config, Clock::System.now())
        .map_err(ConfigErrors::without_secrets)?;
    let mut settings = Arc::new(settings);
    let state = StateFiles::open(&options.state)?;
    let _lock = StateLock::take(&options.state)?;
    let shared = Arc::new(ServiceShared {
        // Before the memory is read.
        panics: crash::News::of(&state),
        state,
        unreadable: Mutex::default(),
        turns: watch::Sender::new(None),
        wake_up: Arc::new(Notify::new()),
        standing: Mutex::default(),
        metrics: Arc::new(Metrics::new()),
        health: watch::Sender::new(Health::starting(Instant::now())),
        logins: Mutex::default(),
        access: Mutex::default(),
        in_force: watch::Sender::new(in_force),
        telling: Telling::default(),
    });
    shared.metrics.config_valid(true);
    shared.problem("panic", shared.panics.word());
    let mut outside = Outside::begin(&settings, &shared, &options).await?;
    systemd::ready(&shared.line());
    let mut begins = RecordStart::default();
    loop {
        let ended = one_loop((&settings, begins), &shared, &options, &mut outside).await?;
        begins = RecordStart {
            cause: BeginCause::Again,
            ..RecordStart::default()
        };
        match ended {
            LoopEnd::Told => return Ok(()),
            LoopEnd::Reloaded(next) => {
                begins = reloading::begin_record(&settings, &next);
                settings = next;
            }
            LoopEnd::Asked | LoopEnd::Ended(Ok(())) => {}
            LoopEnd::Ended(Err(error)) => {
                tracing::error!(%error, "the control loop ended; it restarts in {} s", RESTART_PAUSE.as_secs());
                shared.problem("loop", Some(error.to_string()));
                shared.health.send_modify(|health| {
                    health.problems = vec![format!("the loop ended: {error}")];
                });
                sleep(RESTART_PAUSE).await;
            }
        }
    }
}

/// Runs the loop with these settings until there is a reason not to, and ends it well.
async fn one_loop(
    (settings, begins): (&Arc<Settings>, RecordStart),
    shared: &Arc<ServiceShared>,
    options: &ServiceOptions,
    outside: &mut Outside,
) -> Result<LoopEnd, ServiceError> {
    shared.begin(settings);
    let stop = CancellationToken::new();
    let work = work((settings, begins), shared, options, stop.clone());
    tokio::pin!(work);
    let why = loop {
        let why = tokio::select! {
            biased;
            why = outside.speaks() => match why {
                Ok(why) => why,
                Err(error) => {
                    stop.cancel();
                    end(&mut work).await;
                    return Err(error);
                }
            },
            ended = &mut work => return Ok(LoopEnd::Ended(ended)),
        };
        if !matches!(why, LoopEnd::Asked) {
            break why;
        }
        let asked = (&*options.config, settings.configured);
        if let Some(next) = reloaded(asked, shared, &mut outside.page).await {
            break LoopEnd::Reloaded(next);
        }
    };
    if matches!(why, LoopEnd::Told) {
        tracing::info!("stopping; machines under way continue at the next start");
        systemd::stopping();
    }
    stop.cancel();
    end(&mut work).await;
    Ok(why)
}

/// Waits for the end of a loop that was told to end.
async fn end<T>(work: impl Future<Output = T>) {
    if timeout(GOODBYE, work).await.is_err() {
        tracing::warn!("the loop did not end in time; its lease runs out by itself");
    }
}

/// Why the loop is not to run on as it does.
enum LoopEnd {
    /// systemd or a person told us to end.
    Told,
    /// We are asked to read the configuration again.
    Asked,
    /// There are new settings.
    Reloaded(Arc<Settings>),
    /// It ended by itself.
    Ended(Result<(), DaemonError>),
}

/// What runs beside the loop, for as long as the process.
struct Outside {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
    control: JoinHandle<()>,
    page: PageServer,
    minder: JoinHandle<()>,
    notifier: JoinHandle<()>,
}

impl Outside {
    /// Begins all of it.
    async fn begin(
        settings: &Settings,
        shared: &Arc<ServiceShared>,
        options: &ServiceOptions,
    ) -> Result<Outside, ServiceError> {
        let listen = |what: String| move |source| ServiceError::Listen { what, source };
        let control = control::bind(&options.control)
            .await
            .map_err(listen(format!(
                "the control socket {}",
                options.control.display()
            )))?;
        let address = settings.web.listen;
        let page = match PageServer::open(&settings.web, shown(shared)).await {
            Ok(page) => page,
            Err(OpenError::File(why)) => return Err(ServiceError::Web(why)),
            Err(OpenError::Listen(error)) => {
                return Err(listen(format!("{address} ([web] listen)"))(error));
            }
        };
        page.access().clone_into(&mut shared.access());
        let control = tokio::spawn(control::serve(
            control,
            control::SocketClock::HOST,
            handler(shared.clone()),
        ));
        Ok(Outside {
            hangup: signal(SignalKind::hangup()).map_err(ServiceError::Signals)?,
            terminate: signal(SignalKind::terminate()).map_err(ServiceError::Signals)?,
            interrupt: signal(SignalKind::interrupt()).map_err(ServiceError::Signals)?,
            control,
            page,
            minder: tokio::spawn(mind(shared.clone())),
            notifier: notifying::begin(shared),
        })
    }

    /// A word from outside.
    async fn speaks(&mut self) -> Result<LoopEnd, ServiceError> {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => Ok(LoopEnd::Told),
            _ = self.interrupt.recv() => Ok(LoopEnd::Told),
            _ = &mut self.control => Err(ServiceError::TaskEnded("the control socket")),
            () = self.page.ended() => Err(ServiceError::TaskEnded("the web server")),
            _ = &mut self.notifier => Err(ServiceError::TaskEnded("the notifier")),
            _ = &mut self.minder => Err(ServiceError::TaskEnded("the watchdog's feeder")),
            _ = self.hangup.recv() => Ok(LoopEnd::Asked),
        }
    }
}

/// The new settings; `None` when the file is wrong and the old ones stay.
async fn reloaded(
    (path, was_configured): (&Path, bool),
    shared: &ServiceShared,
    page: &mut PageServer,
) -> Option<Arc<Settings>> {
    systemd::reloading();
    let next = match InForce::load(path, Clock::System.now()) {
        Ok((in_force, settings)) => {
            shared.in_force.send_replace(in_force);
            reloading::log_reading(was_configured, settings.configured);
            let moved = page.move_to(&settings.web).await.err();
            page.access().clone_into(&mut shared.access());
            if let Some(problem) = &moved {
                tracing::error!("{problem}");
            }
            shared.problem("web", moved);
            Some(Arc::new(settings))
        }
        Err(errors) => {
            tracing::error!(
                "the configuration has errors; the previous one stays in force (`pve-autoscaler check` shows all of it):\n{}",
                errors.without_secrets()
            );
            None
        }
    };
    systemd::ready(&shared.line());
    next
}

/// Does the work until something ends it; nothing at all while nothing is configured. Ends early, and
/// well, when it is told to.
async fn work(
    (settings, begins): (&Arc<Settings>, RecordStart),
    shared: &Arc<ServiceShared>,
    options: &ServiceOptions,
    stop: CancellationToken,
) -> Result<(), DaemonError> {
    if !settings.configured {
        tracing::warn!("{}", config::not_configured(&whole_path(&options.config)));
        stop.cancelled().await;
        return Ok(());
    }
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    shared.look_at_journal();
    let parts = tokio::select! {
        biased;
        () = stop.cancelled() => return Ok(()),
        parts = parts(settings, shared) => parts,
    };
    let mut parts = parts.map_err(DaemonError::CannotBegin)?;
    let (observer, exporter) = spans::begin(settings, &shared.metrics);
    parts.observer = observer;
    parts.begins = Some(begins);
    let ended = tokio::select! {
        biased;
        ended = daemon::run_until(parts, stop) => ended,
        never = agreeing(settings, shared) => match never {},
    };
    if let Some(exporter) = exporter {
        exporter.end().await;
    }
    ended
}

async fn parts(
    settings: &Arc<Settings>,
    shared: &Arc<ServiceShared>,
) -> Result<DaemonParts, String> {
    let connector = Connector::File {
        path: settings.kubernetes.kubeconfig.clone(),
        context: settings.kubernetes.context.clone(),
    };
    let kube =
        crate::kubernetes::KubeClient::new(connector, Clock::System, shared.metrics.clone()).await;
    shared.log_in(Logins::of(&kube));
    shared.credentials();
    let mut pve: BTreeMap<Arc<str>, Arc<dyn Transport>> = BTreeMap::new();
    for (name, region) in &settings.regions {
        let channel = RegionChannel::open(region, &settings.broker.socket)
            .map_err(|error| format!("region {name}: {error:#}"))?;
        shared.log_in_to(name, &channel);
        let transport = channel.transport();
        if region.channel == Channel::Local {
            let broker = crate::pve::Client::new(transport.clone());
            agree(&broker, settings, shared).await;
        }
        let metered = Metered::new(transport, shared.metrics.clone());
        pve.insert(name.clone(), Arc::new(metered));
    }
    let rng = StdRng::try_from_rng(&mut rand::rngs::SysRng)
        .map_err(|error| format!("the operating system gives no randomness: {error}"))?;
    Ok(DaemonParts {
        settings: settings.clone(),
        clock: Clock::System,
        random: Arc::new(Mutex::new(rng)),
        kube,
        pve,
        wire: WireBook::new(Arc::new(HostWire::default())),
        state: shared.state.clone(),
        identity: identity(),
        observer: shared.metrics.clone(),
        turns: shared.turns.clone(),
        wake_up: shared.wake_up.clone(),
        begins: None,
    })
}

/// Feeds the watchdog with finished turns, keeps systemd's status line and the metrics.
async fn mind(shared: Arc<ServiceShared>) {
    let mut turns = shared.turns.subscribe();
    let mut beat = Instant::now();
    loop {
        let turned = timeout(MIND, turns.changed()).await;
        shared.credentials();
        shared.problem("panic", shared.panics.word());
        shared.problem("journal", shared.journal_problem());
        shared.look_at_access();
        let line = shared.line();
        match turned {
            Ok(Err(_)) => return,
            Ok(Ok(())) => {
                beat = Instant::now();
                shared.problem("loop", None);
                if let Some(turn) = turns.borrow_and_update().clone() {
                    let age = shared.standing().max_view_age;
                    let mut health = Health::after(&turn, age, Instant::now());
                    let problems = &shared.standing().problems;
                    health.problems.extend(problems.get("binding").cloned());
                    shared.health.send_replace(health);
                }
                systemd::watchdog();
            }
            // Nothing to do is no failure to do it.
            Err(_) if !shared.standing().configured => {
                beat = Instant::now();
                let file = shared.in_force.borrow().file_name();
                shared
                    .health
                    .send_replace(Health::not_configured(&file, Instant::now()));
                systemd::watchdog();
            }
            // The loop rests.
            Err(_) if beat.elapsed() < TURN_DEADLINE => {}
            // No turn for so long: the watchdog goes hungry.
            Err(_) => tracing::error!(
                "no turn of the loop has ended for {} s",
                TURN_DEADLINE.as_secs()
            ),
        }
        systemd::status(&line);
    }
}
