//! Lists of objects of any size, against a server that keeps to what it is asked.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Request as HttpRequest, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::*;
use crate::clock::Clock;
use crate::kubernetes::{ClusterStore, Unobserved, connect, watch};
use crate::model::time::Time;

const MIB: usize = 1024 * 1024;

#[derive(Default)]
struct Shelf {
    /// Pods: name and size in bytes.
    pods: Vec<(String, usize)>,
    /// Pages that are still answered before one 410.
    gone_after: Option<usize>,
    /// Limits that were asked for.
    limits: Vec<usize>,
    /// Largest answer that was given, in bytes.
    largest: usize,
}

type Shared = Arc<Mutex<Shelf>>;

fn pod(name: &str, size: usize) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-{name}"),
            "resourceVersion": "1", "creationTimestamp": "2026-11-18T10:00:00Z" },
        "spec": { "containers": [{ "name": "c", "args": ["x".repeat(size)] }] },
        "status": { "phase": "Pending" },
    })
}

async fn serve(State(shelf): State<Shared>, request: HttpRequest) -> Response {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let field = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs
            .find(|(key, _)| *key == name)
            .and_then(|(_, value)| value.parse::<usize>().ok())
    };
    if query.contains("watch=true") {
        std::future::pending::<()>().await;
    }
    if request.uri().path() != "/api/v1/pods" {
        let empty = json!({ "metadata": { "resourceVersion": "1" }, "items": [] });
        return axum::Json(empty).into_response();
    }
    let accept = request.headers().get("accept").cloned();
    let accept = accept.expect("the form that is wanted");
    let bare = accept
        .to_str()
        .is_ok_and(|form| form.contains("as=PartialObjectMetadataList"));
    let mut shelf = shelf.lock().unwrap_or_else(PoisonError::into_inner);
    let (limit, from) = (
        field("limit").expect("a limit"),
        field("continue").unwrap_or(0),
    );
    shelf.limits.push(limit);
    match shelf.gone_after {
        Some(0) => {
            shelf.gone_after = None;
            let status = json!({ "kind": "Status", "code": 410, "reason": "Expired" });
            return (StatusCode::GONE, axum::Json(status)).into_response();
        }
        Some(pages) => shelf.gone_after = Some(pages - 1),
        None => {}
    }
    let to = (from + limit).min(shelf.pods.len());
    let sizes = shelf.pods[from..to].iter().map(|(_, size)| *size);
    if !bare && sizes.sum::<usize>() > MAX_BODY {
        // Nobody reads to its end.
        return vec![b'['; MAX_BODY + 1].into_response();
    }
    let items = shelf.pods[from..to].iter().map(|(name, size)| {
        let pod = pod(name, if bare { 0 } else { *size });
        if bare {
            json!({ "kind": "PartialObjectMetadata", "metadata": pod["metadata"] })
        } else {
            pod
        }
    });
    let items: Vec<Value> = items.collect();
    let token = if to < shelf.pods.len() {
        to.to_string()
    } else {
        String::new()
    };
    let list = json!({ "metadata": { "resourceVersion": "9", "continue": token }, "items": items });
    let body = list.to_string();
    if body.len() <= MAX_BODY {
        shelf.largest = shelf.largest.max(body.len());
    }
    body.into_response()
}

async fn client(pods: Vec<(String, usize)>, gone_after: Option<usize>) -> (KubeClient, Shared) {
    let shelf = Arc::new(Mutex::new(Shelf {
        pods,
        gone_after,
        ..Shelf::default()
    }));
    let router = axum::Router::new()
        .fallback(serve)
        .with_state(shelf.clone());
    let clock = Clock::starting_at(Time(1_795_000_000_000));
    let client = KubeClient::new(connect::in_memory(router), clock, Arc::new(Unobserved)).await;
    (client, shelf)
}

fn pods(count: usize, size: usize) -> Vec<(String, usize)> {
    (0..count).map(|n| (format!("p{n:04}"), size)).collect()
}

const PODS: Listing<'static> = Listing {
    kind: "pods",
    path: "/api/v1/pods",
    field_selector: "",
};

/// Names of what was read whole, and of what was not.
async fn listed(client: &KubeClient) -> Result<(Vec<String>, Vec<String>), KubeError> {
    let read =
        |(whole, rest): &mut (Vec<String>, Vec<String>), item: ListItem<'_>| match item
            .object::<wire::WirePod>()
        {
            Ok(pod) => whole.extend(pod.metadata.name),
            Err(unreadable) => rest.extend(unreadable.meta.name),
        };
    client.gather(PODS, read).await
}

#[tokio::test]
async fn a_page_that_is_too_large_is_halved_and_grows_again() {
    let all = [pods(75, MIB), pods(400, 100)].concat();
    let (client, shelf) = client(all.clone(), None).await;
    let (whole, rest) = listed(&client).await.expect("it is listed");
    let names: Vec<String> = all.into_iter().map(|(name, _)| name).collect();
    assert_eq!((whole, rest), (names, Vec::new()));
    let shelf = shelf.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(shelf.limits[..4], [100, 50, 25, 12]);
    assert_eq!(shelf.limits.last(), Some(&100), "{:?}", shelf.limits);
    assert!(shelf.limits.len() < 25, "{:?}", shelf.limits);
    assert!(shelf.largest <= MAX_BODY);
}

#[tokio::test]
async fn an_object_that_is_too_large_by_itself_is_named_and_hides_no_other() {
    let mut all = pods(30, 100);
    all[7] = ("huge".to_owned(), MAX_BODY + 1);
    all[8] = ("vast".to_owned(), 2 * MAX_BODY);
    let (client, _) = client(all, None).await;
    let (whole, rest) = listed(&client).await.expect("it is listed");
    assert_eq!(whole.len(), 28);
    assert_eq!(rest, ["huge", "vast"]);
}

#[tokio::test]
async fn a_drain_sees_a_pod_that_cannot_be_read() {
    let (client, _) = client(vec![("huge".to_owned(), MAX_BODY + 1)], None).await;
    let pods = client.pods_on("n1").await.expect("it is listed");
    assert_eq!(pods.len(), 1);
    assert_eq!(&*pods[0].0.name, "huge");
    assert_eq!(pods[0].1.shape.requests.cpu_milli, i64::MAX);
}

#[tokio::test]
async fn a_list_whose_version_is_forgotten_in_its_middle_begins_anew() {
    let (client, shelf) = client(pods(250, 100), Some(2)).await;
    let (whole, _) = listed(&client).await.expect("it is listed");
    assert_eq!(whole.len(), 250, "nothing twice");
    let limits = shelf
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .limits
        .len();
    assert_eq!(limits, 3 + 3);
}

#[tokio::test(start_paused = true)]
async fn the_view_is_complete_and_says_what_it_lacks() {
    let mut all = pods(30, 100);
    all[7] = ("huge".to_owned(), MAX_BODY + 1);
    let (client, _) = client(all, None).await;
    let store = ClusterStore::new();
    let watching = watch::watch(client, store.clone(), 1);
    let _ = tokio::time::timeout(Duration::from_secs(50), watching).await;
    let view = store.view();
    assert_eq!(view.cluster.pods.len(), 29);
    let source = &view.sources["kube/pods"];
    assert!(source.complete);
    let error = source.error.clone().unwrap_or_default();
    assert!(
        error.contains("default/huge: it is larger than 16 MiB"),
        "{error}"
    );
    let problems = store.problems().join("\n");
    assert!(problems.contains("gets no machine"), "{problems}");
}
