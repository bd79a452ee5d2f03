//! The page beyond the host: TLS, a login, and nothing without them.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pve_autoscaler::sim::pve::PveSpec;
use reqwest::{Certificate, Method, Response};
use serde_json::{Value, json};

use super::service::{get, replace, run, until};
use super::simulators::{Process, Simulators};
use super::{program, text};

const PASSWORD: &str = "correct horse battery";
const PATIENCE: Duration = Duration::from_mins(1);

/// A daemon that others reach, as a person would set it up.
struct Open {
    simulators: Simulators,
    config: PathBuf,
    port: u16,
    root: Certificate,
    runtime: tokio::runtime::Runtime,
}

/// Writes a certificate and its key, and gives what trusts it.
fn certify(simulators: &Simulators) -> Certificate {
    let names = ["localhost", "127.0.0.1"].map(str::to_owned).to_vec();
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    secret(
        &simulators.path("tls.key"),
        &made.signing_key.serialize_pem(),
    );
    fs::write(simulators.path("tls.pem"), made.cert.pem()).expect("written");
    Certificate::from_pem(made.cert.pem().as_bytes()).expect("a certificate")
}

fn secret(path: &Path, text: &str) {
    fs::write(path, text).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o640)).expect("changed");
}

/// Sets a password by the command, as a script would: how it ended and what it said.
fn set_password(config: &Path, name: &str, password: &str) -> (Option<i32>, String) {
    let mut child = program()
        .arg("--config")
        .arg(config)
        .args(["web-password", name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut input = child.stdin.take().expect("it is piped");
    writeln!(input, "{password}").expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    let said = text(&output.stdout) + &text(&output.stderr);
    (output.status.code(), said)
}

impl Open {
    /// The files and the configuration; nothing runs yet.
    fn prepare() -> Open {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let simulators = Simulators::start(&PveSpec::default());
        let config =
            simulators.config(&simulators.path("admin.conf"), "debian-13-k8s", "9100-9120");
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("it is bound").port();
        let at = |name: &str| simulators.path(name).display().to_string();
        let keys = format!(
            "0.0.0.0:{port}\"\ntls_certificate = \"{}\"\ntls_key = \"{}\"\nusers_file = \"{}",
            at("tls.pem"),
            at("tls.key"),
            at("users")
        );
        replace(&config, "127.0.0.1:0", &keys);
        let root = certify(&simulators);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        Open {
            simulators,
            config,
            port,
            root,
            runtime: runtime.expect("a runtime"),
        }
    }

    fn start(&self) -> Process {
        let log = File::create(self.simulators.path("log")).expect("made");
        let process = run(&self.simulators, &self.config, log).spawn();
        Process(process.expect("it starts"))
    }

    /// How the daemon ends that does not begin, and what it says.
    fn refuses(&self) -> (Option<i32>, String) {
        let mut process = self.start();
        let ended = process.0.wait().expect("it ends");
        (ended.code(), self.log())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.simulators.path("log")).expect("it is there")
    }

    /// What comes of a request by somebody who trusts `root` alone.
    fn asked(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> reqwest::Result<Answer> {
        let client = reqwest::Client::builder()
            .tls_certs_only([self.root.clone()])
            .timeout(PATIENCE)
            .build()
            .expect("a client");
        let mut request = client.request(method, format!("https://127.0.0.1:{}{path}", self.port));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        self.runtime
            .block_on(async { Ok(Answer::of(request.send().await?).await) })
    }

    fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.asked(Method::GET, path, headers, None)
            .expect("an answer")
    }

    fn log_in(&self, password: &str, headers: &[(&str, &str)]) -> Answer {
        let form = json!({"user": "ann", "password": password});
        self.asked(Method::POST, "/api/login", headers, Some(&form))
            .expect("an answer")
    }

    /// Waits until it serves.
    fn serves(&self) {
        let look = || match self.asked(Method::GET, "/livez", &[], None) {
            Ok(answer) => answer.body,
            Err(error) => format!("{error:?}"),
        };
        until("/livez", look, &["ok"], &[]);
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
    cookie: String,
}

impl Answer {
    async fn of(response: Response) -> Answer {
        let cookie = response.headers().get("set-cookie");
        let cookie = cookie.map(|cookie| cookie.to_str().expect("text").to_owned());
        Answer {
            status: response.status().as_u16(),
            head: format!("{:?}", response.headers()),
            cookie: cookie.unwrap_or_default(),
            body: response.text().await.expect("text"),
        }
    }

    /// The pair that a browser sends back.
    fn pair(&self) -> String {
        self.cookie.split(';').next().unwrap_or_default().to_owned()
    }
}

#[test]
fn beyond_the_host_there_is_tls_and_a_login_or_nothing_begins() {
    let open = Open::prepare();
    let whole = fs::read_to_string(&open.config).expect("it is there");
    let lines: Vec<&str> = whole.lines().collect();
    let without = |key: &str| {
        let kept: Vec<&str> = lines
            .iter()
            .copied()
            .filter(|line| !line.starts_with(key))
            .collect();
        fs::write(&open.config, kept.join("\n")).expect("written");
        open.refuses()
    };
    let (code, said) = without("users_file");
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("web.listen")
            && said.contains("wants TLS and a login: users_file is missing"),
        "{said}"
    );
    let (code, said) = without("tls_key");
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("web.tls_certificate") && said.contains("no use without tls_key"),
        "{said}"
    );
    fs::write(&open.config, &whole).expect("written");

    // Each file that cannot be used is named by its key, with what to do.
    let (code, said) = open.refuses();
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("users_file") && said.contains("web-password NAME` makes it"),
        "{said}"
    );
    let users = open.simulators.path("users");
    for (text, wanted) in [
        ("ann:secret-word", "line 1: the hash is none of bcrypt"),
        ("# nobody\n", "names nobody"),
        ("secret-word", "line 1 is not NAME:HASH"),
    ] {
        secret(&users, text);
        let (code, said) = open.refuses();
        assert!(
            code == Some(1) && said.contains("users_file") && said.contains(wanted),
            "{said}"
        );
        assert!(!said.contains("secret-word"), "{said}");
    }
    fs::remove_file(&users).expect("it was there");
    assert_eq!(set_password(&open.config, "ann", PASSWORD).0, Some(0));
    let key = fs::read_to_string(open.simulators.path("tls.key")).expect("it is there");
    fs::set_permissions(
        open.simulators.path("tls.key"),
        fs::Permissions::from_mode(0o644),
    )
    .expect("changed");
    let (code, said) = open.refuses();
    assert!(
        code == Some(1) && said.contains("tls_key") && said.contains("has mode 0644"),
        "{said}"
    );
    certify(&open.simulators);
    secret(&open.simulators.path("tls.key"), &key);
    let (code, said) = open.refuses();
    assert!(
        code == Some(1) && said.contains("both must be of one pair"),
        "{said}"
    );
    fs::write(open.simulators.path("tls.pem"), "nothing").expect("written");
    let (code, said) = open.refuses();
    assert!(
        code == Some(1) && said.contains("tls_certificate") && said.contains("has no certificate"),
        "{said}"
    );
}

#[test]
fn who_is_elsewhere_logs_in_and_a_scraper_has_a_password() {
    let open = Open::prepare();
    let (code, said) = set_password(&open.config, "ann", "short");
    assert_eq!(code, Some(1));
    assert!(said.contains("shorter than 12 characters"), "{said}");
    let (code, said) = set_password(&open.config, "ann", PASSWORD);
    assert_eq!(code, Some(0), "{said}");
    let users = open.simulators.path("users");
    let written = fs::read_to_string(&users).expect("it is there");
    assert!(
        written.starts_with("ann:$2b$12$") && !written.contains(PASSWORD),
        "{written}"
    );
    assert_eq!(
        fs::metadata(&users)
            .expect("it is there")
            .permissions()
            .mode()
            & 0o777,
        0o640
    );
    let _daemon = open.start();
    open.serves();

    // What the page is made of tells nothing; what it asks for does.
    assert_eq!(open.get("/", &[]).status, 200);
    assert_eq!(open.get("/page/main.js", &[]).status, 200);
    for path in [
        "/api/events",
        "/api/find?q=",
        "/api/pods/x",
        "/api/explain/pod/a/b",
    ] {
        let answer = open.get(path, &[]);
        assert_eq!(answer.status, 401, "{path}: {answer:?}");
        let forged = open.get(path, &[("cookie", "__Host-pve-autoscaler=x")]);
        assert_eq!(forged.status, 401, "{path}: {forged:?}");
    }
    let supposed = json!({"manifests": "", "changes": []});
    let answer = open
        .asked(Method::POST, "/api/what-if", &[], Some(&supposed))
        .expect("an answer");
    assert_eq!(answer.status, 401, "{answer:?}");
    assert_eq!(
        open.get("/api/session", &[]).body,
        r#"{"acts":false,"login":true,"user":null}"#
    );

    assert_eq!(open.log_in("wrong", &[]).status, 401);
    let elsewhere = open.log_in(PASSWORD, &[("origin", "https://evil.example")]);
    assert_eq!((elsewhere.status, &*elsewhere.cookie), (403, ""));
    let origin = format!("https://127.0.0.1:{}", open.port);
    let inside = open.log_in(PASSWORD, &[("origin", &origin)]);
    assert_eq!(inside.status, 200, "{inside:?}");
    let cookie = &inside.cookie;
    assert!(cookie.starts_with("__Host-pve-autoscaler="), "{cookie}");
    for term in [
        "; Path=/;",
        "; HttpOnly",
        "; SameSite=Strict",
        "; Secure",
        "; Max-Age=43200",
    ] {
        assert!(cookie.contains(term), "{cookie} lacks {term}");
    }
    let pair = inside.pair();
    let found = until(
        "/api/find",
        || open.get("/api/find?q=", &[("cookie", &pair)]).body,
        &["\"pods\""],
        &[],
    );
    assert!(found.contains("\"nodes\""), "{found}");
    assert_eq!(
        open.get("/api/session", &[("cookie", &pair)]).body,
        r#"{"acts":true,"login":true,"user":"ann"}"#
    );

    let bare = open.get("/metrics", &[]);
    assert!(
        bare.status == 401 && bare.head.contains("Basic realm="),
        "{bare:?}"
    );
    // ann:correct horse battery
    let basic = "Basic YW5uOmNvcnJlY3QgaG9yc2UgYmF0dGVyeQ==";
    let metrics = open.get("/metrics", &[("authorization", basic)]);
    assert!(
        metrics.status == 200 && metrics.body.contains("cluster_autoscaler"),
        "{metrics:?}"
    );
    assert_eq!(
        open.get("/api/find?q=", &[("authorization", basic)]).status,
        401
    );

    let out = open.asked(
        Method::POST,
        "/api/logout",
        &[("cookie", &pair)],
        Some(&json!({})),
    );
    assert!(out.expect("an answer").cookie.contains("Max-Age=0"));
    assert_eq!(open.get("/api/find?q=", &[("cookie", &pair)]).status, 401);
}

#[test]
fn another_password_ends_sessions_and_guessing_is_slow() {
    let open = Open::prepare();
    assert_eq!(set_password(&open.config, "ann", PASSWORD).0, Some(0));
    let _daemon = open.start();
    open.serves();
    let metrics = || {
        // ann:correct horse battery
        let basic = "Basic YW5uOmNvcnJlY3QgaG9yc2UgYmF0dGVyeQ==";
        open.get("/metrics", &[("authorization", basic)]).status
    };
    assert_eq!(metrics(), 200);
    // Another password ends the sessions of the one before, by itself.
    let pair = open.log_in(PASSWORD, &[]).pair();
    until(
        "the first turn",
        || open.get("/api/find?q=", &[("cookie", &pair)]).body,
        &["\"pods\""],
        &[],
    );
    assert_eq!(open.get("/api/find?q=", &[("cookie", &pair)]).status, 200);
    assert_eq!(
        set_password(&open.config, "ann", "another long password").0,
        Some(0)
    );
    let status = || {
        open.get("/api/find?q=", &[("cookie", &pair)])
            .status
            .to_string()
    };
    until("the session's end", status, &["401"], &[]);
    assert_eq!(metrics(), 401);

    // Guessing is slow.
    let guess = || {
        let answer = open.log_in("guess", &[]);
        format!("{} {}", answer.status, answer.head)
    };
    let waits = until("a guess", guess, &["429", "retry-after"], &[]);
    let right = open.log_in("another long password", &[]);
    assert_eq!(right.status, 429, "{waits}, then {right:?}");

    let log = open.log();
    assert!(
        log.contains("logged in to the page") && log.contains("a login to the web server failed"),
        "{log}"
    );
    for secret in [PASSWORD, "guess", &pair] {
        assert!(!log.contains(secret), "{secret} is in {log}");
    }
}

#[test]
fn a_renewed_certificate_is_taken_up_and_a_broken_one_is_not() {
    let mut open = Open::prepare();
    assert_eq!(set_password(&open.config, "ann", PASSWORD).0, Some(0));
    let _daemon = open.start();
    open.serves();
    // Who forgot the s is told so.
    // The server may close before all of the request is written.
    let plain = || get(open.port, "/");
    until("the hint", plain, &["400 Bad Request", "https://"], &[]);
    // A peer that says nothing holds nobody up.
    let mut silent = TcpStream::connect(("127.0.0.1", open.port)).expect("connects");

    let old = open.root.clone();
    open.root = certify(&open.simulators);
    open.serves();
    let new = std::mem::replace(&mut open.root, old);
    assert!(
        open.asked(Method::GET, "/livez", &[], None).is_err(),
        "the old one is gone"
    );
    open.root = new;

    fs::write(open.simulators.path("tls.pem"), "half of a").expect("written");
    let status = || {
        let socket = open.simulators.path("control.sock");
        let output = program().args(["status", "--socket"]).arg(socket).output();
        let output = output.expect("it runs");
        text(&output.stdout) + &text(&output.stderr)
    };
    until(
        "status",
        status,
        &["tls_certificate", "has no certificate"],
        &[],
    );
    open.serves();
    open.root = certify(&open.simulators);
    open.serves();
    until("status", status, &["leader;"], &["tls_certificate"]);

    // Within ten seconds it is hung up on.
    silent.set_read_timeout(Some(PATIENCE)).expect("set");
    let mut rest = Vec::new();
    silent.read_to_end(&mut rest).expect("it is closed");
}

#[test]
fn who_is_logged_in_pauses_and_resumes_and_the_log_has_the_name() {
    let open = Open::prepare();
    assert_eq!(set_password(&open.config, "ann", PASSWORD).0, Some(0));
    let daemon = open.start();
    open.serves();
    let status = || {
        let socket = open.simulators.path("control.sock");
        let output = program().args(["status", "--socket"]).arg(socket).output();
        text(&output.expect("it runs").stdout)
    };
    until("status", status, &["leader;"], &[]);
    let act = |headers: &[(&str, &str)], what: &Value| {
        open.asked(Method::POST, "/api/act", headers, Some(what))
            .expect("an answer")
    };
    let pause = json!({"do": "pause", "reason": "storage\u{1b}[2J move"});
    assert_eq!(act(&[], &pause).status, 401);
    // ann:correct horse battery
    let basic = (
        "authorization",
        "Basic YW5uOmNvcnJlY3QgaG9yc2UgYmF0dGVyeQ==",
    );
    assert_eq!(act(&[basic], &pause).status, 401);
    let pair = open.log_in(PASSWORD, &[]).pair();
    let cookie = ("cookie", &*pair);
    let other = act(&[cookie, ("origin", "https://evil.example")], &pause);
    assert_eq!(other.status, 403, "{other:?}");
    let other = act(&[cookie, ("sec-fetch-site", "cross-site")], &pause);
    assert_eq!(other.status, 403, "{other:?}");
    assert!(!status().contains("paused"), "{}", status());

    let resume = json!({"do": "resume"});
    let nothing = act(&[cookie], &resume);
    assert_eq!((nothing.status, &*nothing.body), (200, r#"{"done":false}"#));
    let done = act(&[cookie], &pause);
    let wanted = r#"{"done":true,"reason_before":null}"#;
    assert_eq!((done.status, &*done.body), (200, wanted));
    let said = status();
    assert!(
        said.contains("move (by ann)") && !said.contains('\u{1b}'),
        "{said}"
    );
    let retried = act(&[cookie], &json!({"do": "retry", "pool": "general"}));
    assert_eq!(
        (retried.status, &*retried.body),
        (200, r#"{"done":true,"ended":[]}"#)
    );
    let unknown = act(&[cookie], &json!({"do": "retry", "pool": "none"}));
    assert!(
        unknown.status == 409 && unknown.body.contains("there is no pool none"),
        "{unknown:?}"
    );
    let order = |end| json!({"do": "evacuate", "region": "default", "host": "pve2", "end": end});
    let stranger = act(&[], &order(false));
    assert!(matches!(stranger.status, 401 | 403), "{stranger:?}");
    for (end, shown) in [(false, true), (true, false)] {
        for wanted in ["true", "false"] {
            let done = act(&[cookie], &order(end));
            assert_eq!(done.status, 200, "{done:?}");
            let begins = format!("{{\"done\":{wanted},\"host\":{{");
            assert!(done.body.starts_with(&begins), "{done:?}");
        }
        assert_eq!(status().contains("evacuated since"), shown);
    }
    for nonsense in [json!({"do": "evacuate"}), json!({"do": "pause"}), json!({})] {
        assert_eq!(act(&[cookie], &nonsense).status, 400, "{nonsense}");
    }
    let again = act(&[cookie], &json!({"do": "pause", "reason": "lunch"}));
    let before = r#"{"done":true,"reason_before":"storage"#;
    assert!(
        again.body.starts_with(before) && again.body.contains(" move (by ann)"),
        "{again:?}"
    );
    let resumed = act(&[cookie], &resume);
    assert_eq!((resumed.status, &*resumed.body), (200, r#"{"done":true}"#));
    until("status", status, &["leader;"], &["by ann"]);
    let history = || {
        let record = open.simulators.path("state/record");
        let output = program().args(["history", "--record"]).arg(record).output();
        let told = text(&output.expect("it runs").stdout);
        told.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let orders = [
        "ann asked: retry general",
        "ann asked: evacuate pve2",
        "ann asked: evacuate --end pve2",
        "ann asked: resume",
    ];
    until("history", history, &orders, &[]);
    let log = open.log();
    for words in ["paused", "resumed", "a retry was asked for"] {
        let line = log.lines().find(|line| line.contains(words));
        assert!(
            line.is_some_and(|line| line.contains("by=\"ann\"") || line.contains("by=ann")),
            "{words}: {log}"
        );
    }

    without_a_login_it_changes_nothing(&open, daemon.0.id());
}

/// On the host without a login the page changes nothing: every program there could ask it to.
fn without_a_login_it_changes_nothing(open: &Open, daemon: u32) {
    replace(&open.config, "0.0.0.0", "127.0.0.1");
    let config = fs::read_to_string(&open.config).expect("it is there");
    let kept: Vec<&str> = config
        .lines()
        .filter(|line| !line.starts_with("tls_") && !line.starts_with("users_file"))
        .collect();
    fs::write(&open.config, kept.join("\n")).expect("written");
    let id = i32::try_from(daemon).expect("an id");
    kill(Pid::from_raw(id), Signal::SIGHUP).expect("it runs");
    until(
        "/api/session",
        || get(open.port, "/api/session"),
        &["\"login\":false"],
        &[],
    );
    let asked = || {
        let mut stream = TcpStream::connect(("127.0.0.1", open.port)).expect("connects");
        let body = r#"{"do": "resume"}"#;
        write!(
            stream,
            "POST /api/act HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        )
        .expect("writes");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("reads");
        answer
    };
    assert!(asked().starts_with("HTTP/1.1 403"), "{}", asked());
}
