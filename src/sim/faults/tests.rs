use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::any;
use http::Request;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout};
use tower::ServiceExt as _;

use super::{CallCounter, FaultPlan, Faults, Kill, KillMoment, Style};

/// A server that counts what it carried out.
#[derive(Clone, Debug, Default)]
struct Server(Arc<AtomicU64>);

impl Server {
    fn router(&self) -> Router {
        async fn carry_out(State(server): State<Server>) -> &'static str {
            server.0.fetch_add(1, Ordering::Relaxed);
            "done"
        }
        Router::new()
            .route("/", any(carry_out))
            .with_state(self.clone())
    }

    fn carried_out(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a client sees: a status and a body, a broken body, or nothing within a minute.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Answer(u16, String),
    Broken,
    Silence,
}

async fn ask(router: &Router) -> Seen {
    let exchange = async {
        let request = Request::post("/").body(Body::empty()).expect("a request");
        let response = router.clone().oneshot(request).await.expect("an answer");
        let status = response.status().as_u16();
        match response.into_body().collect().await {
            Ok(body) => Seen::Answer(
                status,
                String::from_utf8_lossy(&body.to_bytes()).into_owned(),
            ),
            Err(_) => Seen::Broken,
        }
    };
    timeout(Duration::from_mins(1), exchange)
        .await
        .unwrap_or(Seen::Silence)
}

fn done() -> Seen {
    Seen::Answer(200, "done".to_owned())
}

#[tokio::test(start_paused = true)]
async fn every_fault_is_what_it_says() {
    let none = FaultPlan::default();
    let always = 1_000;
    let cases = [
        (
            FaultPlan {
                silent: always,
                ..none
            },
            Seen::Silence,
            0,
        ),
        (
            FaultPlan {
                broken: always,
                ..none
            },
            Seen::Broken,
            0,
        ),
        (
            FaultPlan {
                lost: always,
                ..none
            },
            Seen::Broken,
            1,
        ),
        (
            FaultPlan {
                swallowed: always,
                ..none
            },
            Seen::Silence,
            1,
        ),
        (
            FaultPlan {
                stalled: always,
                ..none
            },
            Seen::Silence,
            1,
        ),
        (
            FaultPlan {
                cut: always,
                ..none
            },
            Seen::Broken,
            1,
        ),
        (none, done(), 1),
    ];
    for (plan, seen, carried_out) in cases {
        let server = Server::default();
        let faults = Faults::new(1);
        let router = faults.wrap(server.router(), Style::Pve);
        faults.set(plan);
        assert_eq!(ask(&router).await, seen, "{plan:?}");
        assert_eq!(server.carried_out(), carried_out, "{plan:?}");
        faults.quiet();
        assert_eq!(ask(&router).await, done(), "the phase without faults");
    }
}

#[tokio::test(start_paused = true)]
async fn errors_are_the_servers_own() {
    for (style, words) in [
        (Style::Pve, r#""data":null"#),
        (Style::Kubernetes, r#""kind":"Status""#),
    ] {
        let server = Server::default();
        let faults = Faults::new(1);
        faults.set(FaultPlan {
            errors: 1_000,
            ..FaultPlan::default()
        });
        match ask(&faults.wrap(server.router(), style)).await {
            Seen::Answer(500, body) => assert!(body.contains(words), "{body}"),
            other => panic!("{other:?}"),
        }
        assert_eq!((server.carried_out(), faults.dealt()), (0, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn latency_is_within_its_bounds() {
    let faults = Faults::new(1);
    faults.set(FaultPlan {
        latency_ms: [100, 200],
        ..FaultPlan::default()
    });
    let router = faults.wrap(Server::default().router(), Style::Pve);
    for _ in 0..100 {
        let began = Instant::now();
        assert_eq!(ask(&router).await, done());
        assert!((100..=200).contains(&began.elapsed().as_millis()));
    }
}

#[tokio::test(start_paused = true)]
async fn slow_calls_take_longer_and_are_answered() {
    let faults = Faults::new(1);
    faults.set(FaultPlan {
        latency_ms: [10, 10],
        slow: 500,
        slow_ms: [2_000, 3_000],
        ..FaultPlan::default()
    });
    let router = faults.wrap(Server::default().router(), Style::Pve);
    let mut slow = 0;
    for _ in 0..100 {
        let began = Instant::now();
        assert_eq!(ask(&router).await, done());
        match began.elapsed().as_millis() {
            10 => {}
            2_010..=3_010 => slow += 1,
            other => panic!("neither quick nor slow: {other} ms"),
        }
    }
    assert!((20..80).contains(&slow), "{slow} of 100 were slow");
    assert_eq!(faults.dealt(), 0, "slow is no failure");
}

/// A stream of a line a second, for so long.
fn streaming(seconds: u64) -> Router {
    let lines = move || async move {
        let line = async |number: u64| {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok::<_, std::io::Error>(format!("{number}\n"))
        };
        Body::from_stream(futures::StreamExt::then(
            futures::stream::iter(0..seconds),
            line,
        ))
    };
    Router::new().route("/", axum::routing::get(lines))
}

/// What arrives of a stream, and whether it ended well; `None`: it never ended.
async fn listen(router: &Router) -> (u64, Option<bool>) {
    let request = Request::get("/").body(Body::empty()).expect("a request");
    let mut body = router
        .clone()
        .oneshot(request)
        .await
        .expect("an answer")
        .into_body();
    let mut came = 0;
    loop {
        match timeout(Duration::from_mins(10), body.frame()).await {
            Err(_) => return (came, None),
            Ok(None) => return (came, Some(true)),
            Ok(Some(Err(_))) => return (came, Some(false)),
            Ok(Some(Ok(_))) => came += 1,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn streams_are_cut_or_go_silent_within_their_life_and_short_ones_are_whole() {
    for (cut, stalled, end) in [(1_000, 0, Some(false)), (0, 1_000, None)] {
        let faults = Faults::new(1);
        faults.set(FaultPlan {
            cut,
            stalled,
            cut_ms: 60_000,
            ..FaultPlan::default()
        });
        let (endless, mut lengths) = (streaming(3_600), Vec::new());
        let wrapped = faults.wrap(endless, Style::Kubernetes);
        for _ in 0..20 {
            let (came, ended) = listen(&wrapped).await;
            assert_eq!(ended, end);
            lengths.push(came);
        }
        assert!(lengths.iter().all(|came| *came <= 60), "{lengths:?}");
        assert!(lengths.iter().any(|came| *came > 5), "{lengths:?}");
        // One that is over before it would be cut.
        faults.set(FaultPlan {
            cut,
            stalled,
            cut_ms: u64::MAX >> 20,
            ..FaultPlan::default()
        });
        let short = faults.wrap(streaming(3), Style::Kubernetes);
        assert_eq!(listen(&short).await, (3, Some(true)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_seed_deals_the_same_luck() {
    async fn luck(seed: u64) -> Vec<Seen> {
        let faults = Faults::new(seed);
        faults.set(FaultPlan::bad_day());
        let router = faults.wrap(Server::default().router(), Style::Pve);
        let mut seen = Vec::new();
        for _ in 0..300 {
            seen.push(ask(&router).await);
        }
        seen
    }
    let one = luck(1).await;
    assert_eq!(one, luck(1).await);
    assert_ne!(one, luck(2).await);
    let good = one.iter().filter(|seen| **seen == done()).count();
    assert!((200..300).contains(&good), "{good} of 300 went well");
    let drawn: Vec<FaultPlan> = (0..50).map(FaultPlan::drawn).collect();
    assert!(drawn.iter().any(|plan| plan.silent == 0) && drawn.iter().any(|plan| plan.silent > 0));
    assert_eq!(FaultPlan::drawn(3), FaultPlan::drawn(3));
}

#[tokio::test(start_paused = true)]
async fn a_client_can_be_killed_at_every_call() {
    // A client of three calls, one of them on a second server.
    async fn client(one: Router, two: Router) {
        for router in [&one, &two, &one] {
            ask(router).await;
        }
    }
    let whole = CallCounter::new(None);
    client(
        whole.wrap(Server::default().router()),
        whole.wrap(Server::default().router()),
    )
    .await;
    assert_eq!((whole.calls(), whole.is_dead()), (3, false));
    assert_eq!(whole.seen(), ["POST /", "POST /", "POST /"]);
    for call in 1..=whole.calls() {
        for (when, carried_out) in [
            (KillMoment::BeforeSending, call - 1),
            (KillMoment::AfterCarriedOut, call),
        ] {
            let server = Server::default();
            let life = CallCounter::new(Some(Kill { call, when }));
            let (one, two) = (life.wrap(server.router()), life.wrap(server.router()));
            tokio::select! {
                biased;
                () = life.killed() => {}
                () = client(one.clone(), two) => panic!("it outlived {call} {when:?}"),
            }
            assert_eq!(server.carried_out(), carried_out, "{call} {when:?}");
            assert_eq!(ask(&one).await, Seen::Silence, "the dead speak to nobody");
            assert_eq!(server.carried_out(), carried_out);
            let next = CallCounter::new(None);
            assert_eq!(
                ask(&next.wrap(server.router())).await,
                done(),
                "the next life does"
            );
        }
    }
}
