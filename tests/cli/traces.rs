//! The daemon as a process sends traces to a collector, which is away at first and then looks at every byte.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pve_autoscaler::clock::Clock;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::{GuestSpec, KubeGuests, Range};
use pve_autoscaler::sim::kube::{Kube, KubeSpec};
use pve_autoscaler::sim::listen::{Listener, Tls};
use pve_autoscaler::sim::pve::{AdminAct, Pve, PveSpec};
use pve_autoscaler::sim::workload::{Act, Workload, WorkloadKind, WorkloadPods, WorkloadStep};
use serde_json::{Map, Value, json};

use super::receivers::OtlpReceiver;
use super::simulators::Process;
use super::{program, text};

/// What must not be shown anywhere.
const SECRET: &str = "hush-hush-0815";
/// How often something is looked for that comes with time, and the pause in between.
const TRIES: u32 = 1_500;
const PAUSE: Duration = Duration::from_millis(100);
/// A token of the simulated PVE.
const TOKEN: (&str, &str) = ("root@pam!sim", "00000000-0000-4000-8000-000000000002");

/// A collector: it answers 503 until it is told to take what comes.
struct Collector {
    port: u16,
    takes: Arc<AtomicBool>,
    /// Bodies that were taken.
    bodies: Arc<Mutex<Vec<Value>>>,
    /// What was wrong with requests.
    faults: Arc<Mutex<Vec<String>>>,
    /// The real one behind it, where there is one: it gets each request as it came once they are taken, and its answer is the daemon's.
    real: Arc<Option<OtlpReceiver>>,
}

impl Collector {
    fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let collector = Collector {
            port: listener.local_addr().expect("bound").port(),
            takes: Arc::default(),
            bodies: Arc::default(),
            faults: Arc::default(),
            real: Arc::new(OtlpReceiver::start()),
        };
        let (takes, bodies) = (collector.takes.clone(), collector.bodies.clone());
        let (faults, real) = (collector.faults.clone(), collector.real.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let takes = takes.load(Ordering::SeqCst);
                answer(stream, takes, real.as_ref().as_ref(), (&bodies, &faults));
            }
        });
        collector
    }

    fn spans(&self) -> Vec<Value> {
        let bodies = self.bodies.lock().expect("no panic");
        let spans = bodies.iter().flat_map(|body| {
            let resources = body["resourceSpans"].as_array().cloned();
            let resources = resources.unwrap_or_default().into_iter();
            resources.flat_map(|resource| {
                let spans = resource["scopeSpans"][0]["spans"].as_array().cloned();
                spans.unwrap_or_default()
            })
        });
        spans.collect()
    }

    /// The spans of this name, once there is one.
    fn until(&self, name: &str) -> Vec<Value> {
        for tries in 0.. {
            let mut spans = self.spans();
            spans.retain(|span| span["name"] == name);
            if !spans.is_empty() {
                return spans;
            }
            let names: Vec<Value> = self.spans().iter().map(|s| s["name"].clone()).collect();
            assert!(tries < TRIES, "no span {name}: {names:?}");
            std::thread::sleep(PAUSE);
        }
        Vec::new()
    }
}

type Kept<'a> = (&'a Mutex<Vec<Value>>, &'a Mutex<Vec<String>>);

fn answer(
    mut stream: TcpStream,
    takes: bool,
    real: Option<&OtlpReceiver>,
    (bodies, faults): Kept<'_>,
) {
    let (mut request, mut piece) = (Vec::new(), [0; 4_096]);
    let (head, body) = loop {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return,
            Ok(many) => request.extend_from_slice(&piece[..many]),
        }
        let text = String::from_utf8_lossy(&request).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head.to_lowercase();
        let length = length.split("content-length: ").nth(1);
        let length = length.and_then(|rest| rest.lines().next()?.parse::<usize>().ok());
        if length.is_some_and(|length| body.len() >= length) {
            break (head.to_owned(), body.to_owned());
        }
    };
    let mut wrong = Vec::new();
    for wanted in [
        "POST /v1/traces HTTP/1.1",
        "content-type: application/json",
        &format!("authorization: Bearer {SECRET}"),
    ] {
        if !head.contains(wanted) {
            wrong.push(format!("no {wanted:?} in {head}"));
        }
    }
    let said: Value = serde_json::from_str(&body).unwrap_or_default();
    wrong.extend(not_otlp(&said));
    faults.lock().expect("no panic").extend(wrong);
    let (status, text) = if takes {
        if let Some(real) = real {
            let theirs = real.take(&request);
            bodies.lock().expect("no panic").push(said);
            // Each connection here is for one request.
            let closes = theirs.replacen("\r\n", "\r\nconnection: close\r\n", 1);
            let _ = stream.write_all(closes.as_bytes());
            return;
        }
        bodies.lock().expect("no panic").push(said);
        ("200 OK", "{}".to_owned())
    } else {
        // Some servers repeat what they were sent.
        ("503 Service Unavailable", head.replace("\r\n", " "))
    };
    let length = text.len();
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}"
    );
}

/// What of a body is not as OTLP has it in JSON: `opentelemetry/proto/collector/trace/v1` by protobuf's JSON mapping, with
/// ids as hexadecimal digits and enumerations as numbers.
fn not_otlp(body: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    keys(body, &["resourceSpans"], &[], &mut wrong);
    for resource in list(&body["resourceSpans"]) {
        keys(&resource, &["resource", "scopeSpans"], &[], &mut wrong);
        keys(&resource["resource"], &["attributes"], &[], &mut wrong);
        attributes(&resource["resource"]["attributes"], &mut wrong);
        for scope in list(&resource["scopeSpans"]) {
            keys(&scope, &["scope", "spans"], &[], &mut wrong);
            keys(&scope["scope"], &["name", "version"], &[], &mut wrong);
            for one in list(&scope["spans"]) {
                span(&one, &mut wrong);
            }
        }
    }
    wrong
}

fn span(span: &Value, wrong: &mut Vec<String>) {
    let all = [
        "traceId",
        "spanId",
        "name",
        "kind",
        "startTimeUnixNano",
        "endTimeUnixNano",
        "attributes",
        "events",
        "status",
    ];
    keys(span, &all, &["parentSpanId"], wrong);
    let hex = |value: &Value, digits: usize| {
        let small = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let text = value.as_str().unwrap_or_default();
        text.len() == digits && text.bytes().all(small) && text.bytes().any(|b| b != b'0')
    };
    let number = |value: &Value| value.as_str().and_then(|text| text.parse::<u64>().ok());
    let (began, ended) = (
        number(&span["startTimeUnixNano"]),
        number(&span["endTimeUnixNano"]),
    );
    let parent = &span["parentSpanId"];
    let name = span["name"].as_str().unwrap_or_default();
    let error = span["status"]["message"].as_str();
    for (rule, holds) in [
        ("traceId", hex(&span["traceId"], 32)),
        ("spanId", hex(&span["spanId"], 16)),
        ("parentSpanId", parent.is_null() || hex(parent, 16)),
        ("name", !name.is_empty()),
        ("kind", span["kind"] == 1),
        (
            "times",
            began > Some(1_700_000_000_000_000_000) && ended >= began,
        ),
        (
            "status",
            match span["status"]["code"].as_u64() {
                Some(0 | 1) => error.is_none(),
                Some(2) => error.is_some_and(|why| !why.is_empty()),
                _ => false,
            },
        ),
    ] {
        if !holds {
            wrong.push(format!("{rule} of {span}"));
        }
    }
    attributes(&span["attributes"], wrong);
    for event in span["events"].as_array().cloned().unwrap_or_default() {
        keys(&event, &["name", "timeUnixNano"], &[], wrong);
        if number(&event["timeUnixNano"]).is_none() {
            wrong.push(format!("time of {event}"));
        }
    }
}

fn attributes(list: &Value, wrong: &mut Vec<String>) {
    let mut seen = Map::new();
    for attribute in list.as_array().cloned().unwrap_or_default() {
        keys(&attribute, &["key", "value"], &[], wrong);
        let value = &attribute["value"];
        let fine = match value
            .as_object()
            .map(|value| value.iter().collect::<Vec<_>>())
        {
            Some(one) if one.len() == 1 => match one[0] {
                (kind, Value::String(_)) if kind == "stringValue" => true,
                (kind, Value::String(text)) if kind == "intValue" => text.parse::<i64>().is_ok(),
                _ => false,
            },
            _ => false,
        };
        let key = attribute["key"].as_str().unwrap_or_default().to_owned();
        if !fine || key.is_empty() || seen.insert(key, Value::Null).is_some() {
            wrong.push(format!("attribute {attribute}"));
        }
    }
}

/// An object has these keys and no other.
fn keys(object: &Value, all: &[&str], more: &[&str], wrong: &mut Vec<String>) {
    let Some(object) = object.as_object() else {
        wrong.push(format!("{object} is no object with {all:?}"));
        return;
    };
    let missing = all.iter().filter(|key| !object.contains_key(**key));
    wrong.extend(missing.map(|key| format!("no {key} in {object:?}")));
    let known = |key: &&String| all.contains(&key.as_str()) || more.contains(&key.as_str());
    let strange = object.keys().filter(|key| !known(key));
    wrong.extend(strange.map(|key| format!("{key} in {object:?}")));
}

/// Both simulated APIs on sockets of this process, with guests that join, and a configuration.
pub(crate) struct Stage {
    folder: tempfile::TempDir,
    pub(crate) config: PathBuf,
    kube: Kube,
    pve: Pve,
    runtime: tokio::runtime::Runtime,
}

impl Stage {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// With a collector at this port, if anybody listens there.
    pub(crate) fn begin(port: u16) -> Stage {
        Stage::of(PveSpec::default(), port)
    }

    /// The same with this PVE cluster.
    pub(crate) fn of(spec: PveSpec, port: u16) -> Stage {
        Stage::of_both(spec, KubeSpec::default(), port)
    }

    /// The same with these clusters.
    pub(crate) fn of_both(spec: PveSpec, kube: KubeSpec, port: u16) -> Stage {
        let bound = TcpListener::bind("127.0.0.1:0").expect("a port");
        Stage::on(bound, spec, kube, port)
    }

    /// The same, in which machines are told the address that the API server has.
    pub(crate) fn where_machines_join(spec: PveSpec, mut kube: KubeSpec) -> Stage {
        let bound = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = bound.local_addr().expect("it is bound");
        kube.endpoint = format!("https://{address}");
        Stage::on(bound, spec, kube, 9)
    }

    fn on(bound: TcpListener, spec: PveSpec, kube: KubeSpec, port: u16) -> Stage {
        let folder = tempfile::tempdir().expect("a folder");
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let inside = runtime.enter();
        let kube = Kube::new(kube, Clock::System, 1);
        let quick = |seconds: i64| Range {
            min: Span::seconds(seconds),
            max: Span::seconds(seconds),
        };
        let guests = GuestSpec {
            boot: quick(12),
            cloud_init: quick(1),
            preflight: quick(1),
            ready: quick(1),
            pod_start: quick(0),
            pod_stop: quick(0),
            shutdown: quick(1),
            ..GuestSpec::default()
        };
        let guests = KubeGuests::new(kube.public_router(), guests, Clock::System, 1);
        let pve = Pve::new(spec, Arc::new(guests), Clock::System, 1);
        let (url, fingerprint, kubeconfig) = runtime.block_on(async {
            let names = ["localhost", "127.0.0.1"];
            let (certificate, key) = kube.server_certificate(&names).expect("a certificate");
            let tls = Tls::from_pem(&certificate, &key).expect("a certificate");
            let listener = Listener::on(bound, Some(tls)).expect("a socket");
            let url = listener.url().expect("an address");
            let kubeconfig = kube.admin_kubeconfig(&url, Some(&kube.authority()));
            tokio::spawn(listener.serve(kube.public_router()));
            let tls = Tls::self_signed(&["127.0.0.1"]).expect("a certificate");
            let fingerprint = tls.fingerprint();
            let listener = Listener::bind("127.0.0.1:0", Some(tls))
                .await
                .expect("a port");
            let url = listener.url().expect("an address");
            tokio::spawn(listener.serve(pve.router()));
            (url, fingerprint, kubeconfig)
        });
        let config = configure(folder.path(), (&url, &fingerprint), &kubeconfig, port);
        drop(inside);
        Stage {
            folder,
            config,
            kube,
            pve,
            runtime,
        }
    }

    pub(crate) fn daemon(&self, log: &str) -> Process {
        let log = File::create(self.path(log)).expect("made");
        let child: std::io::Result<Child> = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"))
            .env_remove("JOURNAL_STREAM")
            .env_remove("NOTIFY_SOCKET")
            .arg("--config")
            .arg(&self.config)
            .arg("run")
            .arg("--state-directory")
            .arg(self.path("state"))
            .arg("--control-socket")
            .arg(self.path("control.sock"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        Process(child.expect("it starts"))
    }

    /// What doctor finds of the collector.
    fn doctor(&self) -> String {
        let output = program()
            .arg("--config")
            .arg(&self.config)
            .args(["doctor", "--timeout", "5", "--state-directory"])
            .arg(self.path("state"))
            .arg("--socket")
            .arg(self.path("control.sock"))
            .output()
            .expect("it runs");
        let said = text(&output.stdout) + &text(&output.stderr);
        let lines = said.lines().filter(|line| line.contains("telemetry"));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// A broker that lets everything pass, at a socket.
    pub(crate) fn open_broker(&self, socket: &Path) {
        let said = |mut answer: axum::response::Response| async {
            let outcome = if answer.status().is_success() {
                "done"
            } else {
                "refused"
            };
            let outcome = http::HeaderValue::from_static(outcome);
            answer
                .headers_mut()
                .insert("x-pve-autoscaler-outcome", outcome);
            answer
        };
        let router = self.pve.router_as("root@pam");
        let router = router.layer(axum::middleware::map_response(said));
        let inside = self.runtime.enter();
        let listener = tokio::net::UnixListener::bind(socket).expect("a socket");
        tokio::spawn(async move { axum::serve(listener, router).await });
        drop(inside);
    }

    /// Somebody does something to PVE.
    pub(crate) fn act(&self, act: &AdminAct) {
        let _inside = self.runtime.enter();
        self.pve.administer(act).expect("it is possible");
    }

    /// Makes an object, as an administrator.
    pub(crate) fn make(&self, path: &str, object: &Value) {
        self.send("POST", path, &object.to_string());
    }

    /// Deletes an object, as an administrator.
    pub(crate) fn delete(&self, path: &str) {
        self.send("DELETE", path, "");
    }

    fn send(&self, method: &str, path: &str, body: &str) {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(axum::body::Body::from(body.to_owned()))
            .expect("a request");
        let done = self
            .runtime
            .block_on(tower::ServiceExt::oneshot(self.kube.router(), request));
        let done = done.expect("an answer");
        assert!(done.status().is_success(), "{path}: {body}: {done:?}");
    }

    fn play(&self, act: Act) {
        let steps = vec![WorkloadStep {
            at: Span::ZERO,
            act,
        }];
        let played = self
            .runtime
            .block_on(Workload { steps }.play(self.kube.router()));
        played.expect("the workload plays");
    }
}

fn private(path: &Path, text: &str) {
    fs::write(path, text).expect("written");
    let mode = fs::Permissions::from_mode(0o600);
    fs::set_permissions(path, mode).expect("changed");
}

fn configure(
    folder: &Path,
    (url, fingerprint): (&str, &str),
    kubeconfig: &str,
    port: u16,
) -> PathBuf {
    let path = |name: &str| folder.join(name);
    private(&path("kubeconfig"), kubeconfig);
    private(&path("secret"), TOKEN.1);
    private(
        &path("headers"),
        &format!("Authorization: Bearer {SECRET}\n"),
    );
    fs::create_dir(path("state")).expect("made");
    let text = format!(
        "version = 1
[kubernetes]
kubeconfig = \"{}\"
name = \"home\"
[proxmox]
channel = \"token\"
endpoints = [\"{url}\"]
token_id = \"{}\"
token_secret_file = \"{}\"
fingerprint = \"{fingerprint}\"
vmids = \"9100-9120\"
[template.debian]
vm_name = \"debian-13-k8s\"
[instance_type.small]
cores = 2
memory = \"4GiB\"
disk = \"20GiB\"
[pool.general]
template = \"debian\"
instance_types = [\"small\"]
max = 2
[scale_up]
batch_idle = \"1s\"
[scale_down]
unneeded_time = \"2s\"
delay_after_add = \"1s\"
delay_after_failure = \"1s\"
min_node_age = \"0s\"
[web]
listen = \"127.0.0.1:0\"
[telemetry]
otlp_endpoint = \"http://127.0.0.1:{port}/\"
headers_file = \"{}\"
",
        path("kubeconfig").display(),
        TOKEN.0,
        path("secret").display(),
        path("headers").display(),
    );
    fs::write(path("config.toml"), text).expect("written");
    path("config.toml")
}

fn value<'a>(span: &'a Value, key: &str) -> &'a Value {
    let list = span["attributes"].as_array().expect("a list");
    let found = list.iter().find(|attribute| attribute["key"] == key);
    found.map_or(&Value::Null, |attribute| &attribute["value"]["stringValue"])
}

/// Every span but one has a parent among them, and none begins before that one.
fn are_one_tree(spans: &[Value]) {
    let (roots, others): (Vec<&Value>, Vec<&Value>) = spans
        .iter()
        .partition(|span| span["parentSpanId"].is_null());
    let [root] = roots[..] else {
        panic!("no single root: {roots:#?}");
    };
    let began = |span: &Value| span["startTimeUnixNano"].as_str().map(str::to_owned);
    for span in others {
        let parent = |other: &Value| other["spanId"] == span["parentSpanId"];
        assert!(spans.iter().any(parent), "no parent of {span:#}");
        assert!(began(span) >= began(root), "{span:#} before {root:#}");
    }
}

/// A machine comes, the daemon is told to end and starts anew in the middle of it, and it goes: all of it is one trace at
/// the collector. Found by it: numbers that are no strings, ids in base64, an id that is drawn, spans that are lost at the
/// end of the daemon, the attempt under way among them, a collector that holds up the loop, a login in the log.
#[test]
fn a_machine_that_comes_and_goes_is_one_trace_at_the_collector() {
    let collector = Collector::start();
    let stage = Stage::begin(collector.port);
    let said = stage.doctor();
    assert!(
        said.contains("warning") && said.contains("it answered 503") && !said.contains(SECRET),
        "{said}"
    );
    let mut first = stage.daemon("log");
    stage.play(Act::Deploy {
        name: "web".to_owned(),
        replicas: 1,
        pods: WorkloadPods::of("1", "1Gi"),
    });
    // The collector is away until the machine is half made; the daemon does not mind.
    let entry = stage.path("state/journal");
    let half = || {
        let files = fs::read_dir(&entry).into_iter().flatten().flatten();
        let texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
        texts
            .filter_map(|text| serde_json::from_str::<Value>(&text).ok())
            .any(|entry| entry["step"] == "agent")
    };
    let log = || fs::read_to_string(stage.path("log")).unwrap_or_default();
    let mut tries = 0;
    while !half() || !log().contains("traces cannot be sent to") {
        tries += 1;
        assert!(tries < TRIES, "{}", log());
        std::thread::sleep(PAUSE);
    }
    collector.takes.store(true, Ordering::SeqCst);
    collector.until("clone");
    let pid = Pid::from_raw(i32::try_from(first.0.id()).expect("a small number"));
    kill(pid, Signal::SIGTERM).expect("it is there");
    first.0.wait().expect("it ends");
    // It was sent before the process was gone.
    let spans = collector.spans();
    let broken_off: Vec<&Value> = spans
        .iter()
        .filter(|span| span["name"] == "create")
        .collect();
    assert_eq!(broken_off.len(), 1, "{spans:#?}");
    assert_eq!(broken_off[0]["status"]["code"], 2, "{broken_off:#?}");
    assert_eq!(value(broken_off[0], "error.type"), "interrupted");
    let second = stage.daemon("log2");
    let root = collector.until("machine").remove(0);
    stage.play(Act::Delete {
        kind: WorkloadKind::Deployment,
        name: "web".to_owned(),
    });
    let removed = collector.until("remove").remove(0);
    let spans = collector.spans();
    assert_eq!(
        *collector.faults.lock().expect("no panic"),
        Vec::<String>::new()
    );
    let traces: std::collections::BTreeSet<String> = spans
        .iter()
        .map(|span| span["traceId"].to_string())
        .collect();
    assert_eq!(traces.len(), 1, "{spans:#?}");
    are_one_tree(&spans);
    assert!(root["parentSpanId"].is_null() && root["status"] == json!({"code": 1}));
    assert_eq!(removed["parentSpanId"], root["spanId"]);
    let machine = value(&root, "k8s.node.name").as_str().expect("a name");
    assert!(machine.starts_with("general-"), "{machine}");
    for (key, wanted) in [
        ("host.name", machine),
        ("host.type", "small"),
        ("host.image.name", "debian"),
        ("pve_autoscaler.pool", "general"),
        ("pve_autoscaler.region", "default"),
    ] {
        assert_eq!(value(&root, key), wanted, "{key}");
    }
    assert!(value(&removed, "host.id").is_string() && value(&removed, "k8s.node.uid").is_string());
    let names: Vec<&str> = spans
        .iter()
        .filter_map(|span| span["name"].as_str())
        .collect();
    for name in ["clone", "start", "join", "initialize", "drain", "destroy"] {
        assert!(names.contains(&name), "{name} of {names:?}");
    }
    let resource =
        collector.bodies.lock().expect("no panic")[0]["resourceSpans"][0]["resource"].clone();
    assert_eq!(value(&resource, "service.name"), "pve-autoscaler");
    assert_eq!(value(&resource, "k8s.cluster.name"), "home");
    let said = stage.doctor();
    assert!(said.contains("takes traces: it answered 200"), "{said}");
    let log = log();
    assert_eq!(log.matches("traces cannot be sent to").count(), 1, "{log}");
    assert!(log.contains("traces are sent again"), "{log}");
    for name in ["log", "log2"] {
        let log = fs::read_to_string(stage.path(name)).expect("it is there");
        assert!(!log.contains(SECRET), "{log}");
    }
    if let Some(real) = collector.real.as_ref() {
        // Nothing comes any more, and what was under way is there.
        drop(second);
        std::thread::sleep(PAUSE);
        let bodies = collector.bodies.lock().expect("no panic").clone();
        real.judge(&bodies);
    }
}
