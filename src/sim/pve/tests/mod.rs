//! The fake PVE over its wire, in memory, on virtual time.

mod access;
mod admin;
mod agent;
mod by_hand;
mod cloning;
mod firewall;
mod numa;
mod options;
mod pci;
mod pools;
mod power;
mod recorded;
mod releases;
mod schema;
mod storages;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::{Pve, PveSpec, TEMPLATE};
use crate::clock::Clock;
use crate::model::time::Time;
use crate::sim::guests::none::NoGuests;

/// A cluster, and a caller who is root@pam in person.
struct Bench {
    pve: Pve,
    root: Router,
}

/// An answer: status, reason, body (null when empty).
#[derive(Debug)]
struct Answer {
    status: u16,
    reason: String,
    body: Value,
}

impl Answer {
    fn data(&self) -> &Value {
        assert_eq!(self.status, 200, "{self:?}");
        &self.body["data"]
    }

    fn upid(&self) -> String {
        let upid = self.data().as_str().expect("a UPID").to_owned();
        assert!(upid.starts_with("UPID:"), "{upid}");
        upid
    }

    fn refused(&self, status: u16, text: &str) {
        assert_eq!(
            (self.status, self.reason.as_str()),
            (status, text),
            "{self:?}"
        );
    }
}

impl Bench {
    fn new() -> Bench {
        Bench::with(PveSpec::default())
    }

    fn with(spec: PveSpec) -> Bench {
        Bench::seeded(spec, 7)
    }

    fn seeded(spec: PveSpec, seed: u64) -> Bench {
        Bench::made(spec, seed, Duration::from_secs(20), Duration::from_secs(5))
    }

    fn made(spec: PveSpec, seed: u64, boot: Duration, shutdown: Duration) -> Bench {
        let guests = NoGuests::new(boot, shutdown);
        let clock = Clock::starting_at(Time(1_760_000_000_000));
        let pve = Pve::new(spec, Arc::new(guests), clock, seed);
        let root = pve.router_as("root@pam");
        Bench { pve, root }
    }

    /// A running clone, 5001, whose guest takes its time.
    async fn with_guests(boot: Duration, shutdown: Duration) -> Bench {
        let bench = Bench::made(PveSpec::default(), 7, boot, shutdown);
        let path = format!("/nodes/pve1/qemu/{TEMPLATE}/clone");
        assert_eq!(bench.task(Method::POST, &path, "newid=5001").await, "OK");
        let start = "/nodes/pve1/qemu/5001/status/start";
        assert_eq!(bench.task(Method::POST, start, "").await, "OK");
        bench
    }

    async fn call(&self, method: Method, path: &str, form: &str) -> Answer {
        send(&self.root, method, path, form, &[]).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, "").await
    }

    /// Does something that is a task, and waits for its end.
    async fn task(&self, method: Method, path: &str, form: &str) -> String {
        let upid = self.call(method, path, form).await.upid();
        self.end(&upid).await
    }

    async fn end(&self, upid: &str) -> String {
        let node = upid.split(':').nth(1).expect("a node");
        for _ in 0..10_000 {
            let answer = self
                .get(&format!("/nodes/{node}/tasks/{upid}/status"))
                .await;
            if answer.data()["status"] == "stopped" {
                return answer.data()["exitstatus"]
                    .as_str()
                    .expect("an exit status")
                    .to_owned();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{upid} never ends");
    }
}

async fn send(
    router: &Router,
    method: Method,
    path: &str,
    form: &str,
    headers: &[(&str, &str)],
) -> Answer {
    let query = matches!(method, Method::GET | Method::DELETE) && !form.is_empty();
    let uri = if query {
        format!("/api2/json{path}?{form}")
    } else {
        format!("/api2/json{path}")
    };
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = if query {
        Body::empty()
    } else {
        Body::from(form.to_owned())
    };
    let request = request.body(body).expect("a request");
    answer_of(router.clone().oneshot(request).await.expect("an answer")).await
}

async fn answer_of(response: http::Response<Body>) -> Answer {
    let status = response.status().as_u16();
    let reason = response.extensions().get::<hyper::ext::ReasonPhrase>();
    let reason = reason
        .map(|reason| String::from_utf8_lossy(reason.as_bytes()).into_owned())
        .unwrap_or_default();
    let body = response
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Answer {
        status,
        reason,
        body,
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_born_lives_and_dies() {
    let bench = Bench::new();
    let form = "newid=5000&name=web-1&full=0&description=mine";
    let path = format!("/nodes/pve1/qemu/{TEMPLATE}/clone");
    assert_eq!(bench.task(Method::POST, &path, form).await, "OK");
    let vm = bench.pve.vm(5000).expect("the clone");
    assert_eq!(
        (vm.name.as_str(), vm.description.as_str(), vm.lock),
        ("web-1", "mine", None)
    );
    let set = "cores=4&memory=4096&protection=0&tags=B%3Ba&ciupgrade=0";
    assert_eq!(
        bench
            .call(Method::PUT, "/nodes/pve1/qemu/5000/config", set)
            .await
            .status,
        200
    );
    let config = bench.get("/nodes/pve1/qemu/5000/config").await;
    assert_eq!(config.data()["cores"], json!(4));
    assert_eq!(config.data()["memory"], json!("4096"));
    assert_eq!(config.data()["tags"], json!("a;b"));
    assert_eq!(config.data()["description"], json!("mine"));
    assert_eq!(
        bench
            .task(
                Method::PUT,
                "/nodes/pve1/qemu/5000/resize",
                "disk=scsi0&size=20G"
            )
            .await,
        "OK"
    );
    assert_eq!(
        bench
            .task(Method::POST, "/nodes/pve1/qemu/5000/status/start", "")
            .await,
        "OK"
    );
    let ping = bench
        .call(Method::POST, "/nodes/pve1/qemu/5000/agent/ping", "")
        .await;
    ping.refused(500, "QEMU guest agent is not running");
    tokio::time::sleep(Duration::from_secs(20)).await;
    let ping = bench
        .call(Method::POST, "/nodes/pve1/qemu/5000/agent/ping", "")
        .await;
    assert_eq!(ping.status, 200);
    let exec = "command=/bin/cat&command=-&input-data=hello";
    let exec = bench
        .call(Method::POST, "/nodes/pve1/qemu/5000/agent/exec", exec)
        .await;
    let pid = exec.data()["pid"].as_i64().expect("a pid");
    let status = format!("pid={pid}");
    let first = bench
        .call(
            Method::GET,
            "/nodes/pve1/qemu/5000/agent/exec-status",
            &status,
        )
        .await;
    assert_eq!(
        first.data(),
        &json!({ "exited": 1, "exitcode": 0, "out-data": "hello" })
    );
    let second = bench
        .call(
            Method::GET,
            "/nodes/pve1/qemu/5000/agent/exec-status",
            &status,
        )
        .await;
    second.refused(500, "Agent error: PID ld does not exist");
    let running = bench
        .call(Method::DELETE, "/nodes/pve1/qemu/5000", "purge=1")
        .await;
    running.refused(500, "VM 5000 is running - destroy failed");
    assert_eq!(
        bench
            .task(Method::POST, "/nodes/pve1/qemu/5000/status/shutdown", "")
            .await,
        "OK"
    );
    assert_eq!(
        bench
            .task(Method::DELETE, "/nodes/pve1/qemu/5000", "purge=1")
            .await,
        "OK"
    );
    assert_eq!(bench.pve.vm(5000), None);
    assert_eq!(bench.pve.orphaned_volumes(), Vec::<String>::new());
    let done: Vec<String> = bench
        .pve
        .changes()
        .into_iter()
        .map(|change| change.what)
        .collect();
    assert_eq!(
        done,
        ["clone", "config", "resize", "start", "shutdown", "destroy"]
    );
}
