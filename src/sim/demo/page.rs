//! The page of the demo: the same that the daemon serves, of the simulated cluster, and what a person may do to that.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

use super::ask::DemoAnswers;
use super::show;
use crate::clock::Clock;
use crate::controller::conditions::{self, ConditionInput, FoundConditions};
use crate::controller::status::DaemonStatus;
use crate::controller::turn::Turn;
use crate::model::time::{Span, Time};
use crate::model::words;
use crate::sim::kube::Kube;
use crate::sim::pve::{AdminAct, Pve};
use crate::sim::workload::{Act, Workload, WorkloadKind, WorkloadPods, WorkloadStep};
use crate::sim::world::World;
use crate::web::access::Access;
use crate::web::{self, Actor, ConditionSource, Health, Metrics, StatusSource, WebState};

/// Where the page is, when nobody says otherwise and the port is free.
const USUAL_PORT: u16 = 9818;
/// The template that both pools clone.
const TEMPLATE: u32 = 9000;
/// The host that a person may kill.
const HOST: &str = "pve2";
/// Workloads that a person may have at the same time.
const MOST_WORKLOADS: u32 = 5;

/// What a person may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, tag = "do")]
enum DemoAct {
    /// A Deployment of six pods comes.
    AddWorkload,
    /// A pod comes that no pool can run.
    AddGiant,
    /// All that a person added goes.
    RemoveWorkloads,
    /// A host loses its power.
    KillHost,
    /// It is back.
    ReviveHost,
    /// The template is locked, so that no clone of it is made.
    BreakTemplate,
    /// It is unlocked.
    MendTemplate,
}

/// The world that is acted on.
#[derive(Clone, Debug)]
struct DemoWorld {
    kube: Kube,
    pve: Pve,
    /// Workloads that a person added.
    added: Arc<AtomicU32>,
    touched: Touched,
    clock: Clock,
    turns: watch::Receiver<Option<Arc<Turn>>>,
}

/// Whether a person did anything: from then on the story is theirs, and its end is not the demo's to judge.
#[derive(Clone, Debug, Default)]
pub(super) struct Touched(Arc<AtomicBool>);

impl Touched {
    /// Whether a person did anything.
    pub(super) fn is(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// A person did something.
    pub(super) fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The page, listening.
#[derive(Debug)]
pub(super) struct DemoPage {
    listener: TcpListener,
    state: WebState,
    health: watch::Sender<Health>,
    turns: watch::Receiver<Option<Arc<Turn>>>,
    max_view_age: Span,
    /// Where it is.
    pub(super) address: SocketAddr,
}

impl DemoPage {
    /// Listens. The world's daemon is measured from now on. `record`: where it records its decisions.
    ///
    /// # Errors
    /// The address cannot be had.
    pub(super) async fn open(
        world: &mut World,
        wanted: Option<SocketAddr>,
        pace: u32,
        touched: &Touched,
        record: PathBuf,
    ) -> std::io::Result<DemoPage> {
        let listener = listen(wanted).await?;
        let address = listener.local_addr()?;
        let metrics = Arc::new(Metrics::new());
        world.observer = metrics.clone();
        world.kube_observer = metrics.clone();
        world.pve_meter = Some(metrics.clone());
        let health = watch::Sender::new(Health::starting(Instant::now()));
        let turns = world.turns.subscribe();
        let seen = turns.clone();
        let status = StatusSource::new(move || status(seen.borrow().as_deref()));
        let (clock, watched) = (world.clock, turns.clone());
        let conditions = ConditionSource::new(move || {
            Some(conditions(watched.borrow().as_deref(), clock.now()))
        });
        let stage = DemoWorld {
            kube: world.kube.clone(),
            pve: world.pve.clone(),
            added: Arc::default(),
            touched: touched.clone(),
            clock: world.clock,
            turns: turns.clone(),
        };
        let acts = Router::new()
            .route("/demo/act", post(act))
            .with_state(stage);
        let state = WebState::new(
            metrics,
            health.subscribe(),
            turns.clone(),
            status,
            world.clock,
        );
        Ok(DemoPage {
            listener,
            state: state
                .demonstrated(pace, acts)
                .watched(conditions)
                .recorded(record),
            health,
            turns,
            max_view_age: world.settings.policy.scale_up.max_view_age,
            address,
        })
    }

    /// This page, which lets in whom `access` says, and has `answers` do what they ask for who are logged in.
    pub(super) fn behind(self, access: Access, answers: DemoAnswers) -> DemoPage {
        let actor = Actor::new(move |command, user| answers.answer(command, user));
        DemoPage {
            state: self.state.behind(access).acting(actor),
            ..self
        }
    }

    /// Serves for ever.
    pub(super) async fn serve(self) {
        let DemoPage {
            health,
            mut turns,
            max_view_age,
            ..
        } = self;
        let minding = async move {
            while turns.changed().await.is_ok() {
                if let Some(turn) = turns.borrow_and_update().as_deref() {
                    health.send_replace(Health::after(turn, max_view_age, Instant::now()));
                }
            }
        };
        let serving = web::serve(self.listener, self.state, std::future::pending());
        tokio::join!(minding, serving);
    }
}

/// In which conditions a person would have to act, by the last turn: the demo's daemon has no faults of its own to tell.
fn conditions(turn: Option<&Turn>, now: Time) -> FoundConditions {
    conditions::find(ConditionInput {
        turn,
        problems: &BTreeMap::new(),
        not_recording: false,
        failing: &BTreeMap::new(),
        now,
    })
}

/// How things stand in the simulated world.
pub(super) fn status(turn: Option<&Turn>) -> DaemonStatus {
    turn.map_or_else(
        || DaemonStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            configured: true,
            ..DaemonStatus::default()
        },
        DaemonStatus::of,
    )
}

/// Listens there; when nobody says where, at the usual place or at any that is free.
async fn listen(wanted: Option<SocketAddr>) -> std::io::Result<TcpListener> {
    if let Some(wanted) = wanted {
        return TcpListener::bind(wanted).await;
    }
    match TcpListener::bind((Ipv4Addr::LOCALHOST, USUAL_PORT)).await {
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await
        }
        bound => bound,
    }
}

/// Does what a person wants; says what came of it.
async fn act(
    Shared(stage): Shared<DemoWorld>,
    Json(deed): Json<DemoAct>,
) -> (StatusCode, Json<serde_json::Value>) {
    stage.touched.note();
    match stage.perform(deed).await {
        Ok(said) => {
            show::by_person(stage.clock.now(), &format!("You, on the page: {said}"));
            (StatusCode::OK, Json(json!({"said": said})))
        }
        Err(why) => (StatusCode::CONFLICT, Json(json!({"error": why}))),
    }
}

impl DemoWorld {
    async fn perform(&self, deed: DemoAct) -> Result<String, String> {
        match deed {
            DemoAct::AddWorkload => self.add(6, WorkloadPods::of("1", "2Gi")).await,
            DemoAct::AddGiant => self.add(1, WorkloadPods::of("64", "2Gi")).await,
            DemoAct::RemoveWorkloads => {
                for number in 1..=self.added.swap(0, Ordering::Relaxed) {
                    let (kind, name) = (WorkloadKind::Deployment, name(number));
                    self.play(Act::Delete { kind, name }).await?;
                }
                Ok("What you added is gone.".to_owned())
            }
            DemoAct::KillHost => self.host(false),
            DemoAct::ReviveHost => self.host(true),
            DemoAct::BreakTemplate => self.lock(
                Some("backup"),
                "The template is locked, as a backup does it: nothing can be cloned.",
            ),
            DemoAct::MendTemplate => self.lock(None, &mended(self.turns.borrow().as_deref())),
        }
    }

    async fn add(&self, replicas: u32, pods: WorkloadPods) -> Result<String, String> {
        let number = self.added.load(Ordering::Relaxed) + 1;
        if number > MOST_WORKLOADS {
            return Err(format!(
                "There are {MOST_WORKLOADS} of yours already; remove them first."
            ));
        }
        let (name, asks) = (name(number), format!("{} CPU, {}", pods.cpu, pods.memory));
        let deploy = Act::Deploy {
            name: name.clone(),
            replicas,
            pods,
        };
        self.play(deploy).await?;
        self.added.store(number, Ordering::Relaxed);
        Ok(format!("Deployment {name}: {replicas} × {asks}."))
    }

    async fn play(&self, act: Act) -> Result<(), String> {
        let steps = vec![WorkloadStep {
            at: Span::ZERO,
            act,
        }];
        let played = Workload { steps }.play(self.kube.router()).await;
        played.map_err(|error| format!("{error:#}"))
    }

    fn host(&self, online: bool) -> Result<String, String> {
        let host = HOST.to_owned();
        self.pve
            .administer(&AdminAct::HostOnline { host, online })?;
        Ok(if online {
            format!("{HOST} has power again.")
        } else {
            format!("{HOST} has lost its power, and all on it.")
        })
    }

    fn lock(&self, lock: Option<&str>, said: &str) -> Result<String, String> {
        let lock = lock.map(str::to_owned);
        self.pve.administer(&AdminAct::Lock {
            vmid: TEMPLATE,
            lock,
        })?;
        Ok(said.to_owned())
    }
}

/// What is said when the template is unlocked: when the next attempt comes.
fn mended(turn: Option<&Turn>) -> String {
    let pools = turn
        .into_iter()
        .flat_map(|turn| &turn.decision.report.pools);
    let waiting: Vec<&str> = pools
        .filter(|(_, pool)| pool.backoff_until.is_some())
        .map(|(name, _)| &**name)
        .collect();
    if waiting.is_empty() {
        return "The template is unlocked: machines are made of it again.".to_owned();
    }
    let (pool, waits) = if waiting.len() == 1 {
        ("pool", "waits")
    } else {
        ("pools", "wait")
    };
    format!(
        "The template is unlocked. The {pool} {} {waits} until the back-off ends, or until somebody retries.",
        words::names(&waiting)
    )
}

/// The name of a person's workload.
fn name(number: u32) -> String {
    format!("yours-{number}")
}
