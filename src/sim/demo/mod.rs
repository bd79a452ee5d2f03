//! The demo: the real daemon on the simulator, with a timeline in the terminal.
//!
//! A workload arrives, nodes come, it ends, nodes go. The world runs on a paused clock; a pacer
//! holds it back so that a person can follow. The daemon has no code path of its own for it.

mod ask;
mod pace;
mod page;
mod show;
mod story;
mod sums;
mod timeline;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, sleep_until};

use crate::config::settings::WebSettings;
use crate::config::{ConfigErrors, Settings};
use crate::controller::state::{StateError, StateFiles};
use crate::controller::turn::Turn;
use crate::model::resources::huge_pages_of;
use crate::sim::faults::FaultPlan;
use crate::sim::guests::GuestSpec;
use crate::sim::judge::{Judge, JudgeTerms, PoolRule};
use crate::sim::kube::KubeSpec;
use crate::sim::pve::{Pve, PveSpec};
use crate::sim::world::{World, WorldError, WorldSpec};
use crate::simulator_args::DemoOptions;
use crate::web::access::Access;

use ask::{DemoAnswers, Socket};
use page::{DemoPage, Touched};
use show::{Introduction, Show};

/// The configuration that the simulated cluster's user wrote.
pub const CONFIG: &str = include_str!("demo.toml");
/// The configuration that the user of a simulated cluster over two PVE clusters wrote.
pub const REGIONS: &str = include_str!("regions.toml");
/// After the story's last step everything must be gone within this time: the longest timers are
/// ten minutes after the last addition and ten minutes unneeded, then the removals.
const PATIENCE: Duration = Duration::from_mins(45);
/// With two PVE clusters: when the way to the second one is cut, and for how long.
const AWAY: (Duration, Duration) = (Duration::from_secs(250), Duration::from_mins(4));
/// Between two tellings of the story.
const PAUSE: Duration = Duration::from_mins(1);
/// How often it is looked whether all is gone.
const LOOK: Duration = Duration::from_secs(5);

/// Why the demo did not end well.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The runtime or the directory for the daemon's state could not be made.
    #[error("cannot set the demo up: {0}")]
    Setup(#[from] std::io::Error),
    /// The built-in configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The page's address is taken.
    #[error("cannot listen on {address} for the page: {source}; give another one with --page")]
    Page {
        /// Where.
        address: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The file of those who may log in cannot be used.
    #[error("{0}")]
    Users(String),
    /// The control socket cannot be made.
    #[error("cannot listen on the control socket {path}: {source}; give another one with --socket")]
    Socket {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Somebody ended a demo that was to end by itself.
    #[error("interrupted before the workload and its nodes were gone again")]
    Interrupted,
    /// The directory for the daemon's state cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The daemon ended.
    #[error("the daemon ended: {0}")]
    Daemon(#[from] WorldError),
    /// The workload could not be played.
    #[error("the workload could not be played: {0}")]
    Workload(String),
    /// Something that must never happen did.
    #[error("seed {seed}: {}", findings.join("; "))]
    Broken {
        /// The seed that shows it again.
        seed: u64,
        /// What happened.
        findings: Vec<String>,
    },
}

/// Runs the demo; without `once` until it is interrupted.
///
/// # Errors
/// What did not go well.
pub fn run(options: &DemoOptions) -> Result<(), DemoError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()?;
    // The daemon's state, gone with the demo.
    let state = tempfile::Builder::new()
        .prefix("pve-autoscaler-demo-")
        .tempdir()?;
    runtime.block_on(play(options, state.path()))
}

async fn play(options: &DemoOptions, state: &Path) -> Result<(), DemoError> {
    // Before anything is said: who reads it may end the demo at once.
    let stopped = stopped()?;
    let mut world = world(options)?;
    let touched = Touched::default();
    let files = StateFiles::open(state)?;
    let answers = DemoAnswers::of(&world, files.clone(), &touched);
    let page = page(&mut world, options, &touched, (files.record(), &answers)).await?;
    let socket = socket(options, state).await?;
    Introduction {
        options,
        page: page.as_ref().map(|page| page.address),
        command: socket.as_ref().map(Socket::command),
    }
    .say();
    let mut judges = judges(&world);
    let show = Show::default();
    let story = Story {
        world: &world,
        options,
        show: &show,
        touched: &touched,
    };
    tokio::select! {
        biased;
        ended = world.daemon(state, None, 0) => match ended? {},
        () = pace::hold_back(options.speed) => Ok(()),
        () = show.timeline(&world) => Ok(()),
        told = story.tell(&mut judges) => told,
        () = away(&world, &show) => Ok(()),
        () = serve(page) => Ok(()),
        () = answer(socket, &world, answers, options.speed) => Ok(()),
        () = show::unread() => Ok(()),
        () = stopped => if options.once {
            Err(DemoError::Interrupted)
        } else {
            show.whole(world.clock.now());
            Ok(())
        },
    }
}

/// Until somebody ends the demo.
fn stopped() -> std::io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    // The terminal was closed.
    let mut hang_up = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hang_up.recv() => {}
        }
    })
}

/// The world: one PVE cluster, or two.
fn world(options: &DemoOptions) -> Result<World, ConfigErrors> {
    let cluster = |name: &str| PveSpec {
        cluster: name.to_owned(),
        ..PveSpec::default()
    };
    let spec = WorldSpec {
        seed: options.seed,
        pve: PveSpec::default(),
        kube: KubeSpec::default(),
        guests: GuestSpec::default(),
        config: CONFIG.to_owned(),
    };
    if options.regions < 2 {
        return World::new(spec);
    }
    let spec = WorldSpec {
        pve: cluster("east"),
        config: REGIONS.to_owned(),
        ..spec
    };
    World::with_regions(spec, BTreeMap::from([("west".to_owned(), cluster("west"))]))
}

/// The way to further PVE clusters is cut once, while the workload grows. Never ends.
async fn away(world: &World, show: &Show) {
    if world.further.is_empty() {
        return std::future::pending().await;
    }
    let names: Vec<&str> = world.further.keys().map(|name| &**name).collect();
    let names = names.join(", ");
    sleep(AWAY.0).await;
    show.chapter(
        world,
        &format!("{names} does not answer any more; its nodes go on."),
    );
    for site in world.further.values() {
        site.faults.set(FaultPlan {
            silent: 1000,
            ..FaultPlan::default()
        });
    }
    sleep(AWAY.1).await;
    for site in world.further.values() {
        site.faults.quiet();
    }
    show.chapter(world, &format!("{names} answers again."));
    std::future::pending::<()>().await;
}

/// All judges look at their parts of the world, until the future is dropped.
async fn preside(judges: &mut [Judge], world: &World) {
    let all = judges.iter_mut().map(|judge| judge.preside(world.clock));
    futures::future::join_all(all).await;
}

/// Opens the page, unless the demo ends by itself and nobody asks for it. It has the record, and who does what is asked for by those who are
/// logged in.
async fn page(
    world: &mut World,
    options: &DemoOptions,
    touched: &Touched,
    (record, answers): (PathBuf, &DemoAnswers),
) -> Result<Option<DemoPage>, DemoError> {
    if options.once && options.page.is_none() {
        return Ok(None);
    }
    let access = access(options)?;
    let page = DemoPage::open(world, options.page, options.speed, touched, record).await;
    let page = page.map(|page| page.behind(access, answers.clone()));
    page.map(Some).map_err(|source| DemoError::Page {
        address: options
            .page
            .map_or_else(|| "a port of 127.0.0.1".to_owned(), |page| page.to_string()),
        source,
    })
}

/// Who is let in: everybody, or those of the file that `--users` names.
fn access(options: &DemoOptions) -> Result<Access, DemoError> {
    let web = WebSettings {
        users_file: options.users.clone(),
        ..WebSettings::default()
    };
    Access::open(&web).map_err(|why| {
        DemoError::Users(
            why.replace("users_file ", "--users ")
                .replace(" ([web])", ""),
        )
    })
}

async fn serve(page: Option<DemoPage>) {
    match page {
        Some(page) => page.serve().await,
        None => std::future::pending().await,
    }
}

/// Opens the control socket, unless the demo ends by itself and nobody asks for it.
async fn socket(options: &DemoOptions, state: &Path) -> Result<Option<Socket>, DemoError> {
    let path = match &options.socket {
        Some(path) => path.clone(),
        None if options.once => return Ok(None),
        None => state.join("control.sock"),
    };
    let opened = Socket::open(path.clone()).await;
    opened
        .map(Some)
        .map_err(|source| DemoError::Socket { path, source })
}

async fn answer(socket: Option<Socket>, world: &World, answers: DemoAnswers, pace: u32) {
    match socket {
        Some(socket) => socket.serve(world, answers, pace).await,
        None => std::future::pending().await,
    }
}

/// What is told, and to whom.
struct Story<'a> {
    world: &'a World,
    options: &'a DemoOptions,
    show: &'a Show,
    touched: &'a Touched,
}

impl Story<'_> {
    /// Tells the story, once or for ever.
    async fn tell(&self, judges: &mut [Judge]) -> Result<(), DemoError> {
        let Story { world, show, .. } = *self;
        let broken = |findings: Vec<String>| DemoError::Broken {
            seed: self.options.seed,
            findings,
        };
        loop {
            let story = story::workload();
            show.chapter(world, "A workload arrives.");
            let playing = story.play(world.kube.router());
            let told = tokio::select! {
                biased;
                () = preside(judges, world) => Ok(()),
                told = playing => told,
            };
            told.map_err(|error| DemoError::Workload(format!("{error:#}")))?;
            show.chapter(
                world,
                "The workload is gone. Its nodes are unneeded now, and go in ten minutes.",
            );
            tokio::select! {
                biased;
                () = preside(judges, world) => {}
                rested = rest(world, self.touched) => rested.map_err(&broken)?,
            }
            if !self.touched.is() {
                let mut findings = Vec::new();
                for judge in &mut *judges {
                    findings.extend(judge.findings());
                    findings.extend(judge.at_rest(&BTreeMap::new()));
                }
                if !findings.is_empty() {
                    return Err(broken(findings));
                }
                show.chapter(world, "All machines are gone; nothing is left behind.");
            }
            show.round(world.clock.now());
            if self.options.once && !self.touched.is() {
                return Ok(());
            }
            sleep(PAUSE).await;
        }
    }
}

/// Waits until no machine is left.
///
/// When a person acted on the world, what is left is theirs: it waits as long as the story's own nodes take.
async fn rest(world: &World, touched: &Touched) -> Result<(), Vec<String>> {
    let end = Instant::now() + PATIENCE;
    loop {
        sleep_until((Instant::now() + LOOK).min(end)).await;
        let turn = world.turns.borrow().clone();
        let left = turn.as_deref().map(left).unwrap_or_default();
        if turn.is_some() && left.is_empty() {
            return Ok(());
        }
        if Instant::now() >= end && touched.is() {
            return Ok(());
        }
        if Instant::now() >= end {
            let minutes = PATIENCE.as_secs() / 60;
            return Err(vec![format!(
                "after {minutes} minutes these are left: {}",
                left.join(", ")
            )]);
        }
    }
}

fn left(turn: &Turn) -> Vec<String> {
    turn.snapshot
        .machines
        .keys()
        .map(ToString::to_string)
        .collect()
}

/// The judges of a world as it is now, one for each of its PVE clusters; the first is that of `world.pve`.
pub fn judges(world: &World) -> Vec<Judge> {
    let settings = &world.settings;
    let name = &settings.kubernetes.name;
    // The pools of a region, or those of all regions that `world.pve` stands for.
    let rules = |region: Option<&str>| {
        pool_rules(settings, |of| match region {
            Some(region) => of == region,
            None => !world.further.contains_key(of),
        })
    };
    let further = world.further.values().map(|site| site.pve.clone());
    let first = Judge::new(world.kube.clone(), world.pve.clone(), name, rules(None))
        .knowing(world.guests.clone(), terms(settings))
        .behind(world.broker.clone())
        .on_wire(world.wire.clone())
        .beside(further.collect());
    let mut judges = vec![first];
    for (region, site) in &world.further {
        let others = world.further.iter().filter(|(other, _)| *other != region);
        let mut elsewhere: Vec<Pve> = others.map(|(_, site)| site.pve.clone()).collect();
        elsewhere.push(world.pve.clone());
        let judge = Judge::new(
            world.kube.clone(),
            site.pve.clone(),
            name,
            rules(Some(region)),
        )
        .knowing(site.guests.clone(), terms(settings))
        .beside(elsewhere);
        judges.push(judge);
    }
    judges
}

/// What the judge of the regions that `here` means must know of the pools: a node as large as the smallest instance type makes it.
pub fn pool_rules(settings: &Settings, here: impl Fn(&str) -> bool) -> Vec<PoolRule> {
    let policy = &settings.policy;
    let pools = policy.pools.iter();
    let pools = pools.filter_map(|(name, pool)| {
        let there = pool.everywhere().find(|there| here(&there.region))?;
        Some((name, pool, there))
    });
    let pools = pools.map(|(name, pool, there)| {
        let types = pool.instance_types.iter().filter_map(|name| policy.instance_types.get(name));
        let (cores, memory) = types.fold((u32::MAX, i64::MAX), |(cores, memory), size| {
            let kernel = size.memory / 1000 * pool.reserved.kernel_memory_permille;
            (cores.min(size.cores), memory.min(size.memory - kernel - huge_pages_of(&size.extended)))
        });
        let milli = i64::from(cores) * 1000 - pool.reserved.cpu_milli;
        let bytes = memory - pool.reserved.kernel_memory - pool.reserved.memory - pool.reserved.eviction_memory;
        PoolRule {
            name: name.to_string(),
            // Of a pool over several regions none has to have any machines.
            min: if pool.further.is_empty() { usize::try_from(pool.min).unwrap_or(usize::MAX) } else { 0 },
            max: usize::try_from(pool.max).unwrap_or(usize::MAX),
            allocatable: json!({
                "cpu": format!("{milli}m"), "memory": bytes.to_string(), "pods": pool.max_pods.to_string(),
                "ephemeral-storage": "10Gi",
            }),
            labels: pool.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
            taints: pool
                .taints
                .iter()
                .map(|taint| json!({"key": &*taint.key, "value": &*taint.value, "effect": format!("{:?}", taint.effect)}))
                .collect(),
            hosts: there.hosts.iter().map(ToString::to_string).collect(),
            exclude_hosts: there.host_rules.exclude.iter().map(ToString::to_string).collect(),
            replaces: there.rollout.is_some(),
        }
    });
    pools.collect()
}

/// What the judge holds the daemon to for all pools together.
pub fn terms(settings: &Settings) -> JudgeTerms {
    let (up, down) = (&settings.policy.scale_up, &settings.policy.scale_down);
    JudgeTerms {
        quarantine: down.quarantine,
        backoff: up.backoff_first,
        few_lost: usize::try_from(down.ok_total_unready).unwrap_or(usize::MAX),
        lost_percent: usize::try_from(down.max_total_unready_percent).unwrap_or(usize::MAX),
    }
}
