//! Over the real wire: unix socket in front, TLS and Perl behind.

use std::collections::VecDeque;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::world::{HOST, UPID, mark, policy};
use crate::broker::forward::Forward;
use crate::broker::service::BrokerService;
use crate::broker::{Paths, http};
use crate::clock::Clock;
use crate::pve::transport::unix::UnixSocket;
use crate::pve::{CallEffect, CallError, Client, CloneVm};

/// What PVE does with one request.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// Status line after the version, body.
    Say(&'static str, Value),
    /// Reads the request and closes the connection.
    Break,
}

/// What the TLS server saw and shall do.
#[derive(Debug, Default)]
struct Script {
    /// Requests as they came.
    seen: Vec<String>,
    /// Answers by the beginning of the request line; the last of a list stays.
    acts: Vec<(String, VecDeque<Act>)>,
    /// Called for a POST: whether the intent is on disk at that moment.
    intent: Option<PathBuf>,
    intent_was_there: Vec<bool>,
}

impl Script {
    fn act(&mut self, line: &str) -> Act {
        let found = self
            .acts
            .iter_mut()
            .rev()
            .find(|(start, _)| line.starts_with(start.as_str()));
        let Some((_, acts)) = found else {
            return Act::Say("501 Not implemented", json!({ "data": null }));
        };
        if acts.len() > 1 {
            acts.pop_front().expect("one of several")
        } else {
            acts.front().expect("at least one").clone()
        }
    }
}

/// A PVE host in a directory: certificate, Perl modules, a TLS server.
pub(super) struct Host {
    dir: tempfile::TempDir,
    script: Arc<Mutex<Script>>,
    paths: Paths,
    server: JoinHandle<()>,
}

/// A certificate for `dir`, and its acceptor.
fn certify(dir: &Path) -> TlsAcceptor {
    let made = rcgen::generate_simple_self_signed(["pve1".to_owned()]).expect("a certificate");
    std::fs::write(dir.join("pve-ssl.pem"), made.cert.pem()).expect("written");
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.expect("a key"))
        .expect("a server");
    TlsAcceptor::from(Arc::new(config))
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, script: Arc<Mutex<Script>>) {
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        let (acceptor, script) = (acceptor.clone(), Arc::clone(&script));
        tokio::spawn(async move {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                return;
            };
            let mut bytes = Vec::new();
            while !complete(&bytes) {
                if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                    return;
                }
            }
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let act = {
                let mut script = script.lock().expect("held");
                if let Some(intent) = &script.intent
                    && text.starts_with("POST")
                {
                    let there = intent.exists();
                    script.intent_was_there.push(there);
                }
                let act = script.act(&text);
                script.seen.push(text);
                act
            };
            if let Act::Say(status, body) = act {
                let body = body.to_string();
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            }
            let _ = stream.shutdown().await;
        });
    }
}

fn complete(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |value| value.parse().expect("a length"));
    body.len() >= length
}

fn executable(path: &Path, text: &str) {
    std::fs::write(path, text).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("executable");
}

/// PVE's modules as the ticket run needs them: each run gives another ticket and leaves a line.
const ACCESS_CONTROL: &str = r#"package PVE::AccessControl;
sub runs { open(my $f, '>>', "$ENV{HOME}/runs") or die; print $f "x"; close $f; return -s "$ENV{HOME}/runs"; }
sub assemble_ticket { my ($user) = @_; die "no key\n" if -e "$ENV{HOME}/no-key"; return "PVE:$user:" . runs() . "::secret+/="; }
sub assemble_csrf_prevention_token { return "66F0A1B2:csrf-secret"; }
1;
"#;

impl Host {
    pub(super) async fn new() -> Host {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        for name in ["local", "state", "lib/PVE"] {
            std::fs::create_dir_all(at(name)).expect("made");
        }
        std::fs::write(at("lib/PVE/AccessControl.pm"), ACCESS_CONTROL).expect("written");
        let cluster = "package PVE::Cluster; sub cfs_update {} 1;";
        std::fs::write(at("lib/PVE/Cluster.pm"), cluster).expect("written");
        let (home, lib) = (dir.path().display(), at("lib"));
        executable(
            &at("perl"),
            &format!(
                "#!/bin/sh\nHOME={home} exec perl -I{} \"$@\"\n",
                lib.display()
            ),
        );
        // Like systemd-run: what follows the -- is run elsewhere, with these pipes.
        executable(
            &at("systemd-run"),
            "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done; shift; exec \"$@\"\n",
        );
        std::fs::write(at("pveproxy"), "LISTEN_IP=\"127.0.0.1\"\n").expect("written");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let paths = Paths {
            node: at("local"),
            pveproxy: at("pveproxy"),
            port: listener.local_addr().expect("an address").port(),
            state: at("state"),
            perl: at("perl"),
            systemd_run: at("systemd-run"),
            owner: nix::unistd::getuid().as_raw(),
            fallback_after: Duration::from_hours(1),
        };
        let script = Arc::new(Mutex::new(Script::default()));
        let acceptor = certify(&paths.node);
        let server = tokio::spawn(serve(listener, acceptor, Arc::clone(&script)));
        let host = Host {
            dir,
            script,
            paths,
            server,
        };
        host.on(
            "GET /api2/json/version ",
            &[say(&json!({"version": "9.2.11"}))],
        );
        let bare = json!([{"type": "node", "node": "pve1", "status": "online"}]);
        host.on("GET /api2/json/cluster/resources ", &[say(&bare)]);
        let hosts =
            ["pve1", "elsewhere", &here()].map(|name| json!({"type": "node", "name": name}));
        host.on("GET /api2/json/cluster/status ", &[say(&json!(hosts))]);
        let ours = json!({"description": mark(9001).line(), "digest": "d1", "name": "small-09001"});
        host.on("GET /api2/json/nodes/pve1/qemu/9001/config ", &[say(&ours)]);
        let template = json!({"name": "debian-13", "template": 1, "digest": "d1"});
        host.on(
            "GET /api2/json/nodes/pve1/qemu/9000/config ",
            &[say(&template)],
        );
        host.on("POST /api2/json/nodes/pve1/qemu/", &[say(&json!(UPID))]);
        host
    }

    pub(super) fn on(&self, start: &str, acts: &[Act]) {
        let mut script = self.script.lock().expect("held");
        script
            .acts
            .push((start.to_owned(), acts.iter().cloned().collect()));
    }

    pub(super) fn seen(&self, start: &str) -> Vec<String> {
        let script = self.script.lock().expect("held");
        let found = script.seen.iter().filter(|text| text.starts_with(start));
        found.cloned().collect()
    }

    fn runs(&self) -> usize {
        std::fs::read(self.dir.path().join("runs")).map_or(0, |bytes| bytes.len())
    }

    /// A broker in front of this host, and the daemon's client on its socket.
    pub(super) fn broker(&self) -> Broker {
        let way = Arc::new(Forward::new(self.paths.clone()));
        let service = BrokerService::new(policy(), way, &self.paths.state, Clock::System);
        let socket = self.dir.path().join("pve.sock");
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).expect("a socket");
        let (stop, stopping) = watch::channel(false);
        let service = Arc::new(service.expect("a service"));
        let task = tokio::spawn(async move { http::serve(&listener, &service, stopping).await });
        let end = UnixSocket::new(&socket).expect("an end");
        Broker {
            client: Client::new(Arc::new(end)),
            socket,
            stop,
            task,
        }
    }
}

pub(super) struct Broker {
    pub(super) client: Client,
    pub(super) socket: PathBuf,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

pub(super) fn say(data: &Value) -> Act {
    Act::Say("200 OK", json!({ "data": data }))
}

fn outcome<T: std::fmt::Debug>(result: Result<T, CallError>) -> CallEffect {
    result.expect_err("an error").outcome
}

fn clone_of(vmid: u32) -> CloneVm {
    CloneVm {
        newid: vmid,
        name: mark(vmid).machine,
        description: mark(vmid).describe("for the shop"),
        ..CloneVm::default()
    }
}

#[tokio::test]
async fn calls_go_out_as_root_with_one_ticket() {
    let host = Host::new().await;
    let broker = host.broker();
    assert_eq!(
        broker.client.version().await.expect("version").version,
        "9.2.11"
    );
    let upid = broker.client.start(HOST, 9001).await.expect("a task");
    assert_eq!(upid.as_str(), UPID);
    assert_eq!(host.runs(), 1, "one Perl run for all");
    let read = &host.seen("GET /api2/json/version ")[0];
    assert!(
        read.contains("cookie: PVEAuthCookie=PVE%3Aroot%40pam%3A1%3A%3Asecret%2B%2F%3D\r\n"),
        "{read}"
    );
    assert!(!read.contains("csrf"), "{read}");
    let change = &host.seen("POST ")[0];
    assert!(
        change.contains("csrfpreventiontoken: 66F0A1B2:csrf-secret\r\n"),
        "{change}"
    );
    let info = broker.client.broker_info().await.expect("info");
    assert_eq!(
        (info.policy_hash.as_str(), info.channel.as_str()),
        ("hash", "https")
    );
    assert_eq!(info.pve_version.as_deref(), Some("9.2.11"));
}

#[tokio::test]
async fn a_ticket_that_pve_refuses_is_made_anew_once() {
    let host = Host::new().await;
    let broker = host.broker();
    let start = "POST /api2/json/nodes/pve1/qemu/9001/status/start ";
    let no = Act::Say("401 Authentication failed!", Value::Null);
    host.on(start, &[no.clone(), say(&json!(UPID))]);
    broker.client.start(HOST, 9001).await.expect("a task");
    assert_eq!((host.runs(), host.seen(start).len()), (2, 2));
    host.on(start, &[no]);
    let error = broker.client.start(HOST, 9001).await.expect_err("refused");
    assert_eq!(
        (error.outcome, error.status),
        (CallEffect::Refused, Some(401))
    );
    assert_eq!(error.message, "Authentication failed!");
    assert_eq!(host.seen(start).len(), 4, "twice, not for ever");
}

#[tokio::test]
async fn pves_answers_pass_through_and_outcomes_are_told_apart() {
    let host = Host::new().await;
    let broker = host.broker();
    let start = "POST /api2/json/nodes/pve1/qemu/9001/status/start ";
    let body = json!({"data": null, "message": "VM is locked (backup)\n", "errors": {"a": "b"}});
    host.on(start, &[Act::Say("500 VM is locked (backup)", body)]);
    let error = broker.client.start(HOST, 9001).await.expect_err("locked");
    assert_eq!(
        (error.outcome, error.status),
        (CallEffect::Refused, Some(500))
    );
    assert_eq!(
        error.cause(),
        crate::pve::FailureCause::Locked("backup".into())
    );
    assert_eq!(error.errors["a"], "b");
    // Older PVE has the message in the status line alone.
    host.on(
        start,
        &[Act::Say("500 VM is locked (clone)", json!({"data": null}))],
    );
    let error = broker.client.start(HOST, 9001).await.expect_err("locked");
    assert_eq!(
        error.cause(),
        crate::pve::FailureCause::Locked("clone".into())
    );
    for (act, want) in [
        (
            Act::Say("595 No route to host", Value::Null),
            CallEffect::NotSent,
        ),
        (
            Act::Say("596 Broken pipe", Value::Null),
            CallEffect::Unknown,
        ),
        (Act::Break, CallEffect::Unknown),
    ] {
        host.on(start, std::slice::from_ref(&act));
        let before = host.seen(start).len();
        assert_eq!(
            outcome(broker.client.start(HOST, 9001).await),
            want,
            "{act:?}"
        );
        assert_eq!(
            host.seen(start).len() - before,
            1,
            "{act:?} is not repeated"
        );
    }
    assert_eq!(
        outcome(broker.client.start(HOST, 9002).await),
        CallEffect::Refused,
        "a VM that PVE does not know"
    );
    assert_eq!(
        outcome(broker.client.start(HOST, 300).await),
        CallEffect::RefusedByBroker
    );
}

#[tokio::test]
async fn an_intent_is_on_disk_before_the_clone_is_asked_for() {
    let host = Host::new().await;
    let broker = host.broker();
    let intent = host.paths.state.join("intents/9050.json");
    host.script.lock().expect("held").intent = Some(intent.clone());
    let clone = clone_of(9050);
    broker
        .client
        .clone_vm(HOST, 9000, &clone)
        .await
        .expect("a task");
    assert_eq!(host.script.lock().expect("held").intent_was_there, [true]);
    let mode = std::fs::metadata(&intent)
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    // Without a place for it nothing is asked.
    std::fs::remove_dir_all(host.paths.state.join("intents")).expect("removed");
    let before = host.seen("POST").len();
    let clone = clone_of(9051);
    let result = broker.client.clone_vm(HOST, 9000, &clone).await;
    assert_eq!(outcome(result), CallEffect::NotSent);
    assert_eq!(host.seen("POST").len(), before);
}

#[tokio::test]
async fn a_new_certificate_is_read_and_a_strangers_is_not_trusted() {
    let host = Host::new().await;
    let broker = host.broker();
    broker.client.version().await.expect("version");
    // The host got a new certificate, and pveproxy serves it.
    host.server.abort();
    let address = ("127.0.0.1", host.paths.port);
    let renewed = certify(&host.paths.node);
    let listener = bind_again(address).await;
    let server = tokio::spawn(serve(listener, renewed, Arc::clone(&host.script)));
    broker
        .client
        .version()
        .await
        .expect("version by the new certificate");
    // Something else listens there, with a certificate that is not on this host's disk.
    server.abort();
    let elsewhere = tempfile::tempdir().expect("a directory");
    let strange = certify(elsewhere.path());
    let listener = bind_again(address).await;
    tokio::spawn(serve(listener, strange, Arc::clone(&host.script)));
    let before = host.script.lock().expect("held").seen.len();
    let error = broker
        .client
        .start(HOST, 9001)
        .await
        .expect_err("not trusted");
    assert_eq!(error.outcome, CallEffect::NotSent);
    assert!(error.message.contains("fingerprint"), "{}", error.message);
    assert_eq!(host.script.lock().expect("held").seen.len(), before);
    let info = broker.client.broker_info().await.expect("info");
    assert!(info.last_error.expect("an error").contains("fingerprint"));
}

async fn bind_again(address: (&str, u16)) -> TcpListener {
    for _ in 0..200 {
        if let Ok(listener) = TcpListener::bind(address).await {
            return listener;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the port is not free again");
}

#[tokio::test]
async fn no_ticket_means_not_sent_and_no_storm_of_perl() {
    let host = Host::new().await;
    std::fs::write(host.dir.path().join("no-key"), "").expect("written");
    let broker = host.broker();
    for _ in 0..3 {
        let error = broker.client.version().await.expect_err("no ticket");
        assert_eq!(error.outcome, CallEffect::NotSent);
        assert!(error.message.contains("no key"), "{}", error.message);
        assert!(!error.message.contains("assemble"), "{}", error.message);
    }
    assert!(host.script.lock().expect("held").seen.is_empty());
}

/// PVE's REST code as the fallback calls it.
const API: &str = r#"package PVE::API2;
use JSON::PP;
sub find_handler { my ($class, $method, $path, $params) = @_;
    return if $path !~ m!^/(version|cluster/|nodes/[^/]+/(qemu/(\d+)|tasks))!;
    $params->{vmid} = $3 if defined $3;
    return ($class, { method => $method, path => $path }); }
sub handle { my ($class, $info, $params) = @_;
    print "noise of the code\n";
    die "must not see the sandbox\n" if $ENV{INVOCATION_ID};
    die PVE::Exception->new($info->{path}) if $info->{path} =~ m!9003!;
    die "VM is locked (backup)\n" if $info->{path} =~ m!/status/start$!;
    return [map { { type => 'node', name => $_ } } @ARGV, 'elsewhere', split(/\s/, `hostname -s`)] if $info->{path} eq '/cluster/status';
    return { version => '9.2.11' } if $info->{path} eq '/version';
    return { %$params, description => $ENV{TEST_MARK} // '', digest => 'd1', ran => $info->{method} }; }
package PVE::Exception;
sub new { return bless { code => 400, msg => "Parameter verification failed.\n", errors => { newid => 'taken' } }, shift; }
1;
"#;

fn api_code(host: &Host) {
    let lib = host.dir.path().join("lib/PVE");
    let inotify = "package PVE::INotify; sub inotify_init {} 1;";
    let environment = "package PVE::RPCEnvironment; sub init { bless {}, shift } sub init_request {} sub set_language {} sub set_user {} 1;";
    for (file, code) in [
        ("API2.pm", API),
        ("INotify.pm", inotify),
        ("RPCEnvironment.pm", environment),
    ] {
        std::fs::write(lib.join(file), code).expect("written");
    }
}

fn here() -> String {
    let name = nix::unistd::gethostname().expect("a name");
    let name = name.to_string_lossy();
    name.split('.').next().expect("a name").to_owned()
}

#[tokio::test]
async fn reads_that_pveproxy_answers_do_not_hide_a_pvedaemon_that_is_down() {
    let mut host = Host::new().await;
    host.paths.fallback_after = Duration::from_millis(1);
    api_code(&host);
    let here = here();
    let ours = json!({"description": mark(9001).line(), "digest": "d1", "name": "small-09001"});
    let at = format!("/api2/json/nodes/{here}/qemu/9001");
    host.on(&format!("GET {at}/config "), &[say(&ours)]);
    let down = [Act::Say("595 Connection refused", Value::Null)];
    host.on(&format!("POST {at}/status/start "), &down);
    let broker = host.broker();
    let start = || broker.client.start(&here, 9001);
    assert_eq!(outcome(start().await), CallEffect::NotSent);
    broker.client.version().await.expect("pveproxy answers");
    tokio::time::sleep(Duration::from_millis(5)).await;
    let error = start().await.expect_err("locked");
    assert_eq!(
        error.cause(),
        crate::pve::FailureCause::Locked("backup".into())
    );
    let info = broker.client.broker_info().await.expect("info");
    assert!(info.last_error.expect("said").contains("pvedaemon"));
}

#[tokio::test]
async fn a_pvedaemon_that_was_back_in_between_is_not_down_since_before() {
    let mut host = Host::new().await;
    host.paths.fallback_after = Duration::from_millis(400);
    api_code(&host);
    let here = here();
    let ours = json!({"description": mark(9001).line(), "digest": "d1", "name": "small-09001"});
    let at = format!("/api2/json/nodes/{here}/qemu/9001");
    host.on(&format!("GET {at}/config "), &[say(&ours)]);
    let down = Act::Say("595 Connection refused", Value::Null);
    let acts = [down.clone(), say(&json!(UPID)), down];
    host.on(&format!("POST {at}/status/start "), &acts);
    let broker = host.broker();
    let start = || broker.client.start(&here, 9001);
    assert_eq!(outcome(start().await), CallEffect::NotSent);
    tokio::time::sleep(Duration::from_millis(500)).await;
    start().await.expect("it is back");
    // Perl would answer that the VM is locked.
    assert_eq!(outcome(start().await), CallEffect::NotSent);
}

#[tokio::test]
async fn without_the_http_api_calls_go_through_perl() {
    let mut host = Host::new().await;
    host.server.abort();
    let _ = (&mut host.server).await;
    host.paths.fallback_after = Duration::ZERO;
    api_code(&host);
    let broker = host.broker();
    assert_eq!(
        broker.client.version().await.expect("version").version,
        "9.2.11"
    );
    let info = broker.client.broker_info().await.expect("info");
    assert_eq!(info.channel, "perl");
    assert!(info.last_error.is_some());

    let here = here();
    let config = broker
        .client
        .vm_config(&here, 9001)
        .await
        .expect("a config");
    assert_eq!(config.raw["ran"], "GET");
    // Errors of PVE's code arrive as pveproxy would send them.
    let error = broker
        .client
        .vm_config(&here, 9003)
        .await
        .expect_err("an exception");
    assert_eq!(
        (error.outcome, error.status),
        (CallEffect::Refused, Some(400))
    );
    assert_eq!(error.errors["newid"], "taken");
    // Another host cannot be reached this way.
    let error = broker.client.vm_config("elsewhere", 9001).await;
    assert_eq!(outcome(error), CallEffect::NotSent);
}

#[tokio::test]
async fn told_to_stop_it_lets_the_call_under_way_end() {
    let host = Host::new().await;
    let broker = host.broker();
    let client = broker.client.clone();
    let call = tokio::spawn(async move { client.start(HOST, 9001).await });
    while host.seen("GET /api2/json/nodes").is_empty() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    broker.stop.send(true).expect("told");
    call.await.expect("ended").expect("a task");
    broker.task.await.expect("ended");
}
