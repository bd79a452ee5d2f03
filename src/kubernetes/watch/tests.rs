//! The watch loop against a server that misbehaves on cue, on paused time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request as HttpRequest, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::*;
use crate::clock::Clock;
use crate::kubernetes::{ClusterStore, Unobserved, connect};
use crate::model::time::{Span, Time};

const EPOCH: Time = Time(1_795_000_000_000);

/// How a list of pods is answered.
enum List {
    Items(Vec<Value>, &'static str),
    /// A page with more to come.
    Page(Vec<Value>, &'static str),
    Status(u16),
    Hang,
    Garbage,
}

/// What a watch of pods does, in order; then it goes on with bookmarks.
#[derive(Clone)]
enum Cue {
    Line(Value),
    Raw(&'static [u8]),
    /// A line that does not end: so many bytes of it.
    Endless(usize),
    Wait(u64),
    /// Ends the stream.
    End,
    /// Never says anything again.
    Silence,
    /// Answers with this status instead of a stream.
    Status(u16),
}

#[derive(Default)]
struct Script {
    lists: VecDeque<List>,
    watches: VecDeque<Vec<Cue>>,
    /// Milliseconds since the start, and the query, of every request about pods.
    log: Vec<(u128, String)>,
}

#[derive(Clone)]
struct Server {
    script: Arc<Mutex<Script>>,
    start: Instant,
}

impl Server {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn times(&self, of: &str) -> Vec<u128> {
        let script = self.script();
        let found = script.log.iter().filter(|(_, query)| query.contains(of));
        found.map(|(at, _)| *at).collect()
    }

    fn queries(&self) -> Vec<String> {
        self.script()
            .log
            .iter()
            .map(|(_, query)| query.clone())
            .collect()
    }
}

fn pod(name: &str, version: &str) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-{name}"),
            "resourceVersion": version, "creationTimestamp": "2026-11-18T10:00:00Z" },
        "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "100m" } } }] },
        "status": { "phase": "Pending" },
    })
}

fn unschedulable(mut pod: Value) -> Value {
    pod["status"]["conditions"] = json!([{ "type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "lastTransitionTime": "2026-11-18T11:06:41Z" }]);
    pod
}

fn event(kind: &str, object: impl Into<Value>) -> Cue {
    let object: Value = object.into();
    Cue::Line(json!({ "type": kind, "object": object }))
}

fn bookmark(version: &str) -> Cue {
    event(
        "BOOKMARK",
        json!({ "kind": "Pod", "metadata": { "resourceVersion": version } }),
    )
}

fn expired() -> Cue {
    event(
        "ERROR",
        json!({ "kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version" }),
    )
}

fn status(code: u16) -> Response {
    let code = StatusCode::from_u16(code).expect("a status");
    let body = json!({ "kind": "Status", "code": code.as_u16(), "reason": "Test", "message": "as scripted" });
    (code, axum::Json(body)).into_response()
}

async fn serve(State(server): State<Server>, request: HttpRequest) -> Response {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let watches = query.contains("watch=true");
    if request.uri().path() != "/api/v1/pods" {
        return if watches {
            stream(VecDeque::new())
        } else {
            axum::Json(json!({ "metadata": { "resourceVersion": "1" }, "items": [] }))
                .into_response()
        };
    }
    let at = server.start.elapsed().as_millis();
    server.script().log.push((at, query));
    if watches {
        let cues = server.script().watches.pop_front().unwrap_or_default();
        if let Some(Cue::Status(code)) = cues.first() {
            return status(*code);
        }
        return stream(cues.into());
    }
    let list = server.script().lists.pop_front();
    let (items, version, token) = match list {
        Some(List::Items(items, version)) => (items, version, ""),
        Some(List::Page(items, version)) => (items, version, "next/page=1"),
        Some(List::Status(code)) => return status(code),
        Some(List::Garbage) => return "<html>a proxy's page</html>".into_response(),
        Some(List::Hang) => std::future::pending().await,
        None => (Vec::new(), "1", ""),
    };
    let meta = json!({ "resourceVersion": version, "continue": token });
    axum::Json(json!({ "kind": "PodList", "metadata": meta, "items": items })).into_response()
}

/// Lines as cued, then a bookmark a minute without a version.
fn stream(cues: VecDeque<Cue>) -> Response {
    let frames = futures::stream::unfold(cues, |mut cues| async {
        loop {
            match cues.pop_front() {
                Some(Cue::Line(value)) => {
                    let line = Bytes::from(format!("{value}\n"));
                    return Some((Ok::<_, std::io::Error>(line), cues));
                }
                Some(Cue::Raw(bytes)) => return Some((Ok(Bytes::from_static(bytes)), cues)),
                Some(Cue::Endless(bytes)) => return Some((Ok(vec![b'['; bytes].into()), cues)),
                Some(Cue::Wait(seconds)) => sleep(Duration::from_secs(seconds)).await,
                Some(Cue::End) => return None,
                Some(Cue::Silence | Cue::Status(_)) => std::future::pending().await,
                None => {
                    sleep(Duration::from_mins(1)).await;
                    let mark = json!({ "type": "BOOKMARK", "object": { "metadata": {} } });
                    return Some((Ok(Bytes::from(format!("{mark}\n"))), cues));
                }
            }
        }
    });
    Body::from_stream(frames).into_response()
}

/// Runs the watches for `seconds` and shows where they are.
async fn run(script: Script, seconds: u64) -> (Server, ClusterStore) {
    run_seeded(script, seconds, 7).await
}

async fn run_seeded(script: Script, seconds: u64, seed: u64) -> (Server, ClusterStore) {
    let server = Server {
        script: Arc::new(Mutex::new(script)),
        start: Instant::now(),
    };
    let router = axum::Router::new()
        .fallback(serve)
        .with_state(server.clone());
    let clock = Clock::starting_at(EPOCH);
    let client = KubeClient::new(connect::in_memory(router), clock, Arc::new(Unobserved)).await;
    let store = ClusterStore::new();
    let watching = watch(client, store.clone(), seed);
    let _ = tokio::time::timeout(Duration::from_secs(seconds), watching).await;
    (server, store)
}

fn names(store: &ClusterStore) -> Vec<String> {
    let view = store.view();
    view.cluster
        .pods
        .keys()
        .map(|key| key.name.to_string())
        .collect()
}

fn source(store: &ClusterStore) -> crate::model::snapshot::SourceState {
    store
        .view()
        .sources
        .get("kube/pods")
        .cloned()
        .expect("pods are a source")
}

/// kube-scheduler takes pods of one second in the order in which they came, whatever is written to them later.
#[tokio::test(start_paused = true)]
async fn a_pod_keeps_its_place_among_those_of_its_second() {
    let another = |mut pod: Value| {
        pod["metadata"]["uid"] = json!("another");
        pod
    };
    let script = Script {
        lists: [List::Page(vec![pod("a", "7"), pod("b", "5")], "10")].into(),
        watches: [vec![
            event("ADDED", pod("c", "11")),
            event("MODIFIED", unschedulable(pod("b", "12"))),
            event("MODIFIED", another(pod("a", "13"))),
            event("ADDED", pod("d", "no number")),
            Cue::Wait(10),
        ]]
        .into(),
        ..Script::default()
    };
    let (_, store) = run(script, 5).await;
    let view = store.view();
    let places: Vec<(&str, u64)> = view
        .cluster
        .pods
        .iter()
        .map(|(key, pod)| (&*key.name, pod.arrival))
        .collect();
    assert_eq!(places, [("a", 13), ("b", 5), ("c", 11), ("d", 0)]);
}

#[tokio::test(start_paused = true)]
async fn pages_are_listed_and_events_followed() {
    let script = Script {
        lists: [
            List::Page(vec![pod("a", "1"), pod("b", "2")], "10"),
            List::Items(vec![pod("c", "3")], "10"),
        ]
        .into(),
        watches: [vec![
            event("ADDED", unschedulable(pod("d", "11"))),
            event("DELETED", pod("a", "12")),
            event("MODIFIED", json!({ "metadata": { "name": "b", "namespace": "default", "resourceVersion": "13" }, "status": { "phase": "Succeeded" } })),
            Cue::Raw(b"{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":"),
            Cue::Wait(20),
            Cue::Raw(b"{\"resourceVersion\":\"20\"}}}\n\n"),
            Cue::Wait(10),
            Cue::End,
        ]]
        .into(),
        ..Script::default()
    };
    let (server, store) = run(script, 35).await;
    assert_eq!(names(&store), ["c", "d"]);
    assert!(store.complete());
    let source = source(&store);
    assert!(source.complete && source.error.is_none());
    assert_eq!(
        source.as_of,
        EPOCH + Span::seconds(20),
        "the bookmark's arrival"
    );
    let changes = store.view().changes;
    assert_eq!((changes.unschedulable, changes.nodes), (1, 0));
    let came = store.view().cluster.unschedulable_at;
    assert!(came.is_some_and(|came| came >= EPOCH), "{came:?}");
    assert!(changes.pods >= 3, "{changes:?}");
    let queries = server.queries();
    assert!(
        queries[0].contains("limit=100") && queries[0].contains("status.phase%21%3DSucceeded"),
        "{}",
        queries[0]
    );
    assert!(
        queries[1].contains("continue=next%2Fpage%3D1"),
        "{}",
        queries[1]
    );
    assert!(
        queries[2].contains("resourceVersion=10")
            && queries[2].contains("allowWatchBookmarks=true")
    );
    // it went on where the bookmark stood, without a list and without a wait
    assert!(queries[3].contains("resourceVersion=20"), "{}", queries[3]);
    assert_eq!(server.times("watch=true"), [0, 30_000]);
}

#[tokio::test(start_paused = true)]
async fn after_a_silence_everything_is_listed_again_without_a_complaint() {
    let script = || Script {
        lists: [
            List::Items(vec![pod("a", "1")], "10"),
            List::Items(vec![pod("a", "1"), pod("c", "12")], "12"),
        ]
        .into(),
        watches: [vec![event("ADDED", pod("b", "11")), Cue::Silence]].into(),
        ..Script::default()
    };
    let (server, store) = run(script(), 99).await;
    assert_eq!(source(&store).as_of, EPOCH);
    assert_eq!(server.times("watch=true"), [0]);

    let (server, store) = run(script(), 101).await;
    assert_eq!(server.times("limit=100"), [0, 100_000]);
    assert_eq!(server.times("watch=true"), [0, 100_000]);
    assert!(server.queries()[3].contains("resourceVersion=12"));
    assert_eq!(source(&store).error, None);
    assert_eq!(source(&store).as_of, EPOCH + Span::seconds(100));
    assert_eq!(names(&store), ["a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn gone_means_listing_again_at_once_whichever_way_it_is_said() {
    for gone in [expired(), Cue::Status(410)] {
        let script = Script {
            lists: [
                List::Items(vec![pod("a", "1"), pod("b", "2")], "10"),
                List::Items(vec![pod("b", "2"), pod("c", "30")], "31"),
            ]
            .into(),
            watches: [vec![gone]].into(),
            ..Script::default()
        };
        let (server, store) = run(script, 50).await;
        assert_eq!(names(&store), ["b", "c"], "what went unseen is gone");
        assert_eq!(server.times("limit=100"), [0, 0]);
        assert!(server.queries()[3].contains("resourceVersion=31"));
        assert_eq!(source(&store).error, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_gone_for_ever_is_waited_for() {
    let script = Script {
        watches: (0..1_000).map(|_| vec![expired()]).collect(),
        ..Script::default()
    };
    let (server, store) = run(script, 600).await;
    let watches = server.times("watch=true").len();
    assert!(
        (10..40).contains(&watches),
        "{watches} watches in ten minutes"
    );
    assert!(source(&store).error.is_some());
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_and_replay_with_their_seed() {
    let script = || Script {
        lists: (0..8)
            .map(|n| {
                if n % 2 == 0 {
                    List::Status(500)
                } else {
                    List::Status(429)
                }
            })
            .chain([
                List::Garbage,
                List::Hang,
                List::Items(vec![pod("a", "1")], "9"),
            ])
            .collect(),
        ..Script::default()
    };
    let (server, store) = run_seeded(script(), 3_600, 1).await;
    assert_eq!(names(&store), ["a"]);
    assert_eq!(source(&store).error, None);
    let times = server.times("limit=100");
    assert_eq!(times.len(), 11);
    let gaps: Vec<u128> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (number, gap) in gaps.iter().take(9).enumerate() {
        let base = (800u128 << number).min(30_000);
        assert!(
            (base..=base * 3 / 2 + 2).contains(gap),
            "wait {number}: {gap} ms"
        );
    }
    // the hanging list cost its 30 s and then the wait
    assert!((60_000..=75_010).contains(&gaps[9]), "{gaps:?}");
    let (again, _) = run_seeded(script(), 3_600, 1).await;
    assert_eq!(again.times(""), server.times(""));
    let (other, _) = run_seeded(script(), 3_600, 2).await;
    assert_ne!(other.times(""), server.times(""));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_complete_before_the_last_page() {
    let script = Script {
        lists: [
            List::Page(vec![pod("a", "1")], "10"),
            List::Hang,
            List::Hang,
        ]
        .into(),
        ..Script::default()
    };
    let (_, store) = run(script, 31).await;
    let source = source(&store);
    assert!(!source.complete && source.error.is_some(), "{source:?}");
    assert!(!store.complete());
}

#[tokio::test(start_paused = true)]
async fn a_damaged_object_does_not_hide_the_others() {
    let mut damaged = pod("bad", "5");
    damaged["spec"]["containers"] = json!("not a list");
    damaged["spec"]["nodeName"] = "n1".into();
    let mut greedy = pod("greedy", "6");
    greedy["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "lots".into();
    let script = Script {
        lists: [List::Items(
            vec![pod("a", "1"), damaged, greedy, json!(7), pod("z", "2")],
            "10",
        )]
        .into(),
        watches: [vec![
            Cue::Wait(10),
            event("MODIFIED", json!("nonsense")),
            event("MODIFIED", pod("bad", "11")),
            event("ADDED", pod("b", "12")),
        ]]
        .into(),
        ..Script::default()
    };
    let first = Script {
        lists: [match &script.lists[0] {
            List::Items(items, version) => List::Items(items.clone(), version),
            _ => unreachable!("it is written above"),
        }]
        .into(),
        ..Script::default()
    };
    let (_, store) = run(first, 5).await;
    assert_eq!(names(&store), ["a", "bad", "greedy", "z"]);
    let view = store.view();
    let shape = |name: &str| {
        let key = crate::model::cluster::ObjectKey::new("default", name);
        view.cluster
            .pods
            .get(&key)
            .map(|pod| pod.shape.requests.cpu_milli)
    };
    assert_eq!(shape("bad"), Some(i64::MAX));
    assert_eq!(shape("greedy"), Some(i64::MAX));
    let problems = store.problems().join("\n");
    assert!(
        problems.contains("default/bad") && problems.contains("default/greedy"),
        "{problems}"
    );

    let (_, store) = run(script, 15).await;
    let problems = store.problems().join("\n");
    assert!(
        !problems.contains("default/bad") && problems.contains("default/greedy"),
        "{problems}"
    );
    assert!(names(&store).contains(&"b".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_line_that_is_no_event_leads_to_a_new_list() {
    let script = Script {
        lists: [
            List::Items(vec![pod("a", "1")], "10"),
            List::Items(vec![pod("b", "1")], "20"),
        ]
        .into(),
        watches: [vec![Cue::Raw(b"{\"type\":\"ADDED\",\"obj\n")]].into(),
        ..Script::default()
    };
    let (server, store) = run(script, 10).await;
    assert_eq!(names(&store), ["b"]);
    assert_eq!(server.times("limit=100").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_line_without_end_leads_to_a_new_list() {
    let script = Script {
        lists: [
            List::Items(vec![pod("a", "1")], "10"),
            List::Items(vec![pod("b", "1")], "20"),
        ]
        .into(),
        watches: [vec![Cue::Endless(MAX_LINE + 1), Cue::Silence]].into(),
        ..Script::default()
    };
    let (server, store) = run(script, 10).await;
    assert_eq!(names(&store), ["b"]);
    assert!(server.queries()[3].contains("resourceVersion=20"));
}

/// The outage's failures are over with the first good list, so a 410 after it is as good as any other.
#[tokio::test(start_paused = true)]
async fn after_an_outage_the_first_gone_leads_to_a_list_at_once() {
    let failures = (0..9).map(|_| List::Status(500));
    let good = [
        List::Items(vec![pod("a", "1")], "10"),
        List::Items(vec![pod("b", "1")], "20"),
    ];
    let script = Script {
        lists: failures.chain(good).collect(),
        watches: [vec![expired()]].into(),
        ..Script::default()
    };
    let (server, store) = run(script, 400).await;
    assert_eq!(names(&store), ["b"]);
    let lists = server.times("limit=100");
    assert_eq!(lists.len(), 11);
    assert_eq!(lists[10], lists[9], "it waited after the 410");
    assert_eq!(source(&store).error, None);
}

/// Neither a watch that failed a few times before, nor a list that is told 410 in its middle for ever.
#[tokio::test(start_paused = true)]
async fn gone_is_looked_at_at_once_after_failures_and_waited_for_in_lists() {
    let script = Script {
        lists: [
            List::Items(vec![pod("a", "1")], "10"),
            List::Items(vec![pod("b", "1")], "20"),
        ]
        .into(),
        watches: [
            vec![Cue::Status(503)],
            vec![Cue::Status(503)],
            vec![Cue::Status(410)],
        ]
        .into(),
        ..Script::default()
    };
    let (server, store) = run(script, 60).await;
    assert_eq!(names(&store), ["b"]);
    let (lists, watches) = (server.times("limit=100"), server.times("watch=true"));
    assert_eq!(lists[1], watches[2], "it waited after the 410");

    let pages = |_| [List::Page(vec![pod("a", "1")], "10"), List::Status(410)];
    let script = Script {
        lists: (0..1_000).flat_map(pages).collect(),
        ..Script::default()
    };
    let (server, store) = run(script, 600).await;
    let lists = server.times("limit=100").len();
    assert!((10..80).contains(&lists), "{lists} pages in ten minutes");
    assert!(source(&store).error.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_always_ends_at_once_does_not_spin() {
    let script = Script {
        watches: (0..100_000).map(|_| vec![Cue::End]).collect(),
        ..Script::default()
    };
    let (server, store) = run(script, 600).await;
    let requests = server.queries().len();
    assert!(requests < 50, "{requests} requests in ten minutes");
    assert!(source(&store).error.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_quiet_hour_changes_nothing_and_stays_fresh() {
    let script = Script {
        lists: [List::Items(vec![pod("a", "1")], "10")].into(),
        watches: [vec![bookmark("11")]].into(),
        ..Script::default()
    };
    let (server, store) = run(script, 3_600).await;
    let changes = store.view().changes;
    let kinds = WatchedKind::ALL.len() as u64;
    assert_eq!((changes.pods, changes.sources), (1, kinds));
    assert!(source(&store).as_of >= EPOCH + Span::seconds(3_600 - 61));
    assert!(server.queries().len() <= 3, "{:?}", server.queries());
}
