//! Bad luck between a client and a simulated server, by seeded random numbers; and the end of the client
//! after a chosen call.
//!
//! [`Faults`] goes around any router (fake PVE or fake Kubernetes) and can be turned on and off while
//! it runs: first a phase with faults for safety, then one without for liveness. [`CallCounter`] goes
//! around all routers of one life of a client and stops the world at one call, so that a test can
//! kill the client at every call there is.

pub mod damage;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use futures::StreamExt as _;
use http::{HeaderValue, StatusCode, header};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use damage::Damager;
pub use damage::Spoilt;

/// Marks a call that is carried out after whoever made it has given up.
pub const LATE: &str = "x-simulator-late";

/// Whose errors are imitated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// pveproxy's.
    Pve,
    /// The Kubernetes API server's.
    Kubernetes,
}

/// How much bad luck: in calls of a thousand, unless said otherwise. The default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FaultPlan {
    /// Delay of every call: least and most milliseconds.
    pub latency_ms: [u64; 2],
    /// Calls that take `slow_ms` longer.
    pub slow: u16,
    /// How much longer: least and most milliseconds.
    pub slow_ms: [u64; 2],
    /// Calls that are not carried out and never answered.
    pub silent: u16,
    /// Calls whose connection breaks before they are carried out.
    pub broken: u16,
    /// Calls that are refused with an error of the server's own (500 and its kin), not carried out.
    pub errors: u16,
    /// Calls that are carried out and whose answer is lost with the connection.
    pub lost: u16,
    /// Calls that are carried out and never answered.
    pub swallowed: u16,
    /// Answers whose body breaks off (for streams: after at most `cut_ms`).
    pub cut: u16,
    /// Streams that go silent without an end.
    pub stalled: u16,
    /// Calls that are forbidden (403), as every API server does for some seconds after its start, until it has read
    /// its roles; PVE has no such time.
    pub forbidden: u16,
    /// Longest life of a stream that is cut or stalls, in milliseconds.
    pub cut_ms: u64,
    /// How many milliseconds longer every eviction takes before it is carried out: a webhook on
    /// `pods/eviction` that does not answer within its `timeoutSeconds`, with `failurePolicy: Ignore`.
    pub eviction_ms: u64,
    /// Evictions are turned away with 429, as by API Priority and Fairness, and this `Retry-After` in
    /// seconds.
    pub eviction_busy_s: Option<u64>,
    /// Calls that are carried out after whoever made them has given up: nobody hears of it.
    pub late: u16,
    /// How much later: least and most milliseconds.
    pub late_ms: [u64; 2],
    /// Answers of PVE's that come damaged: texts for numbers, rows twice, values that cannot be ([`damage`]).
    pub damaged: u16,
}

impl FaultPlan {
    /// A bad day: one call in ten goes wrong in one of the ways.
    pub fn bad_day() -> FaultPlan {
        FaultPlan {
            latency_ms: [1, 60],
            slow: 20,
            slow_ms: [1_000, 20_000],
            silent: 10,
            broken: 20,
            errors: 30,
            lost: 20,
            swallowed: 10,
            cut: 50,
            stalled: 10,
            forbidden: 10,
            cut_ms: 120_000,
            eviction_ms: 0,
            eviction_busy_s: None,
            late: 5,
            late_ms: [60_000, 180_000],
            damaged: 0,
        }
    }

    /// A plan of its own for every seed: each kind of fault is absent, rare or frequent.
    pub fn drawn(seed: u64) -> FaultPlan {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut rate = |most: u16| match rng.random_range(0..3) {
            0 => 0,
            1 => rng.random_range(1..=most.div_ceil(10)),
            _ => rng.random_range(1..=most),
        };
        FaultPlan {
            latency_ms: [1, 1 + u64::from(rate(200))],
            slow: rate(50),
            slow_ms: [1_000, 40_000],
            silent: rate(30),
            broken: rate(60),
            errors: rate(100),
            lost: rate(60),
            swallowed: rate(30),
            cut: rate(100),
            stalled: rate(30),
            forbidden: rate(60),
            cut_ms: 240_000,
            eviction_ms: 0,
            eviction_busy_s: None,
            late: 0,
            late_ms: [0, 0],
            damaged: 0,
        }
    }
}

/// What happened to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultOutcome {
    Fine,
    Silent,
    Broken,
    Error,
    Forbidden,
    Lost,
    Swallowed,
    Cut(Duration),
    Stalled(Duration),
    Late(Duration),
    Damaged,
}

/// Bad luck for some calls alone, whatever is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// Calls below this path are refused with an error of the server's own.
    Refuse(&'static str),
    /// Calls below any of these paths are not carried out, and never answered: a host that hangs.
    Hang(&'static [&'static str]),
    /// Every call is answered with 403: an API server that has just been started and whose RBAC cache is empty yet.
    Forbid,
    /// The next POST to a path that ends so is carried out, and its answer is lost.
    LoseAnswer(&'static str),
    /// The next POST to a path that ends so is carried out so much later; nobody hears of it.
    Delay(&'static str, Duration),
}

/// A layer of bad luck. Clones share the random numbers and the plan.
#[derive(Clone, Debug)]
pub struct Faults {
    state: Arc<Mutex<FaultState>>,
}

#[derive(Debug)]
struct FaultState {
    plan: FaultPlan,
    rng: StdRng,
    dealt: u64,
    aim: Option<Aim>,
    /// What is wrong with single rows of every list.
    spoilt: Vec<Spoilt>,
    /// Damages answers; with random numbers of its own, so that it does not shift the luck of later calls.
    damager: Damager,
}

impl Faults {
    /// No faults yet, and random numbers for later.
    pub fn new(seed: u64) -> Faults {
        let state = FaultState {
            plan: FaultPlan::default(),
            rng: StdRng::seed_from_u64(seed),
            dealt: 0,
            aim: None,
            spoilt: Vec::new(),
            damager: Damager::new(seed ^ 0xda),
        };
        Faults {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// What goes wrong from now on.
    pub fn set(&self, plan: FaultPlan) {
        self.with_state(|state| state.plan = plan);
    }

    /// Aims at some calls, or no longer.
    pub fn aim(&self, at: Option<Aim>) {
        self.with_state(|state| state.aim = at);
    }

    /// Spoils these rows of PVE's lists from now on, and no others.
    pub fn spoil(&self, rows: Vec<Spoilt>) {
        self.with_state(|state| state.spoilt = rows);
    }

    /// Nothing goes wrong from now on.
    pub fn quiet(&self) {
        self.set(FaultPlan::default());
    }

    /// What goes wrong now.
    pub fn plan(&self) -> FaultPlan {
        self.with_state(|state| state.plan)
    }

    /// An API server that is started anew: for five seconds nobody gets through to it, then it forbids everybody
    /// everything until it has read its roles, and then nothing goes wrong.
    pub async fn restart(&self) {
        for (plan, seconds) in [
            (
                FaultPlan {
                    broken: 1_000,
                    ..FaultPlan::default()
                },
                5,
            ),
            (
                FaultPlan {
                    forbidden: 1_000,
                    ..FaultPlan::default()
                },
                8,
            ),
        ] {
            self.set(plan);
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
        self.quiet();
    }

    /// How many faults there were.
    pub fn dealt(&self) -> u64 {
        self.with_state(|state| state.dealt)
    }

    /// The router with bad luck around it.
    pub fn wrap(&self, router: Router, style: Style) -> Router {
        router.layer(from_fn_with_state((self.clone(), style), disturb))
    }

    fn with_state<R>(&self, act: impl FnOnce(&mut FaultState) -> R) -> R {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl FaultState {
    /// The fate of a call that somebody aims at.
    fn hit(&mut self, request: &Request) -> Option<FaultOutcome> {
        let path = request.uri().path();
        let below = |paths: &[&str]| paths.iter().any(|one| path.starts_with(one));
        let (end, fate) = match self.aim? {
            Aim::Forbid => return Some(FaultOutcome::Forbidden),
            Aim::Refuse(one) => return below(&[one]).then_some(FaultOutcome::Error),
            Aim::Hang(paths) => return below(paths).then_some(FaultOutcome::Silent),
            Aim::LoseAnswer(end) => (end, FaultOutcome::Lost),
            Aim::Delay(end, late) => (end, FaultOutcome::Late(late)),
        };
        let hit = request.method() == http::Method::POST && path.ends_with(end);
        hit.then(|| {
            self.aim = None;
            fate
        })
    }

    /// Rolls one call's delay and fate. Always as many rolls, so that one plan's change does not
    /// shift the luck of later calls.
    fn roll(&mut self) -> (Duration, FaultOutcome) {
        let plan = self.plan;
        let pick =
            |rng: &mut StdRng, [least, most]: [u64; 2]| rng.random_range(least..=most.max(least));
        let mut delay = pick(&mut self.rng, plan.latency_ms);
        let slow = pick(&mut self.rng, plan.slow_ms);
        if self.rng.random_range(0..1_000) < plan.slow {
            delay += slow;
        }
        let life = Duration::from_millis(pick(&mut self.rng, [0, plan.cut_ms]));
        let [soonest, latest] = plan.late_ms;
        let life_ms = u64::try_from(life.as_millis()).unwrap_or(u64::MAX);
        let part = life_ms.saturating_mul(latest.saturating_sub(soonest)) / plan.cut_ms.max(1);
        let late = Duration::from_millis(soonest + part);
        let mut roll = self.rng.random_range(0..1_000);
        let fates = [
            (plan.silent, FaultOutcome::Silent),
            (plan.broken, FaultOutcome::Broken),
            (plan.errors, FaultOutcome::Error),
            (plan.lost, FaultOutcome::Lost),
            (plan.swallowed, FaultOutcome::Swallowed),
            (plan.cut, FaultOutcome::Cut(life)),
            (plan.stalled, FaultOutcome::Stalled(life)),
            (plan.forbidden, FaultOutcome::Forbidden),
            (plan.late, FaultOutcome::Late(late)),
            (plan.damaged, FaultOutcome::Damaged),
        ];
        let mut fate = FaultOutcome::Fine;
        for (rate, one) in fates {
            if roll < rate {
                fate = one;
                break;
            }
            roll -= rate;
        }
        if fate != FaultOutcome::Fine {
            self.dealt += 1;
        }
        (Duration::from_millis(delay), fate)
    }
}

async fn disturb(
    State((faults, style)): State<(Faults, Style)>,
    request: Request,
    next: Next,
) -> Response {
    let (mut delay, rolled) = faults.with_state(FaultState::roll);
    let fate = faults
        .with_state(|state| state.hit(&request))
        .unwrap_or(rolled);
    let mut busy = None;
    if request.uri().path().ends_with("/eviction") {
        let plan = faults.plan();
        delay += Duration::from_millis(plan.eviction_ms);
        busy = plan.eviction_busy_s;
    }
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    if let Some(seconds) = busy {
        return turned_away(&faults, seconds);
    }
    match fate {
        FaultOutcome::Silent => std::future::pending().await,
        FaultOutcome::Broken => broken(),
        FaultOutcome::Error => error(style),
        FaultOutcome::Forbidden if style == Style::Pve => next.run(request).await,
        FaultOutcome::Damaged if style == Style::Pve => {
            let answer = next.run(request).await;
            damage::of(answer, |data| {
                faults.with_state(|state| state.damager.damage(data));
            })
            .await
        }
        FaultOutcome::Forbidden => forbidden(),
        FaultOutcome::Late(after) => {
            let mut request = request;
            let millis = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
            request
                .headers_mut()
                .insert(LATE, HeaderValue::from(millis));
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                drop(next.run(request).await);
            });
            std::future::pending().await
        }
        // Kubernetes' answers are never damaged.
        FaultOutcome::Fine | FaultOutcome::Damaged if style == Style::Kubernetes => {
            next.run(request).await
        }
        FaultOutcome::Fine | FaultOutcome::Damaged => {
            let answer = next.run(request).await;
            let spoilt = faults.with_state(|state| state.spoilt.clone());
            if spoilt.is_empty() {
                return answer;
            }
            damage::of(answer, |data| damage::spoil(data, &spoilt)).await
        }
        FaultOutcome::Lost => {
            let _ = next.run(request).await;
            broken()
        }
        FaultOutcome::Swallowed => {
            let _ = next.run(request).await;
            std::future::pending().await
        }
        FaultOutcome::Cut(life) => cut(next.run(request).await, life, true),
        FaultOutcome::Stalled(life) => cut(next.run(request).await, life, false),
    }
}

fn reset() -> Result<Bytes, io::Error> {
    Err(io::Error::new(
        io::ErrorKind::ConnectionReset,
        "connection reset by the simulator",
    ))
}

/// An answer whose body cannot be read: what a broken connection is to a client.
fn broken() -> Response {
    Response::new(Body::from_stream(futures::stream::once(async { reset() })))
}

/// An answer that ends early, in an error or in silence. One that ended before is left alone.
fn cut(response: Response, life: Duration, loud: bool) -> Response {
    let (mut parts, body) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    let end = tokio::time::sleep(life);
    let whole = Arc::new(Mutex::new(false));
    let seen = Arc::clone(&whole);
    let data = body
        .into_data_stream()
        .map(|chunk| chunk.map_err(io::Error::other));
    // Marks that the body came to its own end before its life was over.
    let data = data.chain(futures::stream::poll_fn(move |_| {
        *seen.lock().unwrap_or_else(PoisonError::into_inner) = true;
        std::task::Poll::Ready(None)
    }));
    let tail = futures::stream::once(async move {
        if *whole.lock().unwrap_or_else(PoisonError::into_inner) {
            return None;
        }
        if loud {
            Some(reset())
        } else {
            std::future::pending().await
        }
    });
    let body = data
        .take_until(end)
        .chain(tail.filter_map(|item| async { item }));
    Response::from_parts(parts, Body::from_stream(body))
}

/// What the RBAC authorizer answers while its informers have not synchronised: it finds the bindings' roles nowhere.
fn forbidden() -> Response {
    let body = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"forbidden: User \"system:serviceaccount:kube-system:pve-autoscaler\" cannot do this: RBAC: clusterrole.rbac.authorization.k8s.io \"pve-autoscaler\" not found","reason":"Forbidden","details":{},"code":403}"#;
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::FORBIDDEN;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

/// What API Priority and Fairness answers when its queues are full.
fn turned_away(faults: &Faults, seconds: u64) -> Response {
    faults.with_state(|state| state.dealt += 1);
    let mut response = Response::new(Body::from("Too many requests, please try again later.\n"));
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}

fn error(style: Style) -> Response {
    let (status, kind, body) = match style {
        Style::Pve => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "application/json;charset=UTF-8",
            r#"{"data":null,"message":"got timeout\n"}"#,
        ),
        Style::Kubernetes => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "application/json",
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"etcdserver: request timed out","reason":"InternalError","code":500}"#,
        ),
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// When within a call the client dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KillMoment {
    /// Nothing of the call leaves.
    BeforeSending,
    /// The call is carried out; its answer is not seen.
    AfterCarriedOut,
}

/// A point at which the client dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kill {
    /// The call, counted from 1 in this life.
    pub call: u64,
    /// When within it.
    pub when: KillMoment,
}

/// Counts the calls of one life of a client, over all routers that it uses, and ends that life at a
/// chosen call. From then on no call of this life is answered.
///
/// ```text
/// let life = CallCounter::new(Some(Kill { call, when }));
/// let (pve, kube) = (life.wrap(pve.router()), life.wrap(kube.router()));
/// tokio::select! { biased; () = life.killed() => {}, _ = daemon(pve, kube) => {} }
/// ```
#[derive(Clone, Debug)]
pub struct CallCounter {
    state: Arc<Mutex<CountedCalls>>,
    dead: CancellationToken,
}

#[derive(Debug, Default)]
struct CountedCalls {
    calls: Vec<String>,
    kill: Option<Kill>,
}

impl CallCounter {
    /// Counts calls, and ends the life at `kill` if there is one.
    pub fn new(kill: Option<Kill>) -> CallCounter {
        CallCounter {
            state: Arc::new(Mutex::new(CountedCalls {
                calls: Vec::new(),
                kill,
            })),
            dead: CancellationToken::new(),
        }
    }

    /// The router as this life sees it.
    pub fn wrap(&self, router: Router) -> Router {
        router.layer(from_fn_with_state(self.clone(), count))
    }

    /// How many calls there were in this life.
    pub fn calls(&self) -> u64 {
        self.count(|count| count.calls.len() as u64)
    }

    /// The calls of this life as `METHOD path`.
    pub fn seen(&self) -> Vec<String> {
        self.count(|count| count.calls.clone())
    }

    /// Ends when this life does.
    pub async fn killed(&self) {
        self.dead.cancelled().await;
    }

    /// Whether this life is over.
    pub fn is_dead(&self) -> bool {
        self.dead.is_cancelled()
    }

    fn count<R>(&self, act: impl FnOnce(&mut CountedCalls) -> R) -> R {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn count(State(life): State<CallCounter>, request: Request, next: Next) -> Response {
    if life.is_dead() {
        return std::future::pending().await;
    }
    let when = life.count(|count| {
        count
            .calls
            .push(format!("{} {}", request.method(), request.uri().path()));
        let number = count.calls.len() as u64;
        count
            .kill
            .filter(|kill| kill.call == number)
            .map(|kill| kill.when)
    });
    if when == Some(KillMoment::BeforeSending) {
        life.dead.cancel();
        return std::future::pending().await;
    }
    let response = next.run(request).await;
    if when == Some(KillMoment::AfterCarriedOut) {
        life.dead.cancel();
    }
    // Other calls under way when the client died: carried out, and their answers are lost as well.
    if life.is_dead() {
        return std::future::pending().await;
    }
    response
}
