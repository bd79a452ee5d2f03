//! The daemon as a person meets it: reloads, pauses, reasons, words in the log.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pve_autoscaler::clock::Clock;
use pve_autoscaler::model::memory::{Backoff, Memory, VERSION};
use pve_autoscaler::model::time::Span;
use pve_autoscaler::pve::transport::https::{Https, TokenOptions};
use pve_autoscaler::pve::transport::{HttpMethod, PveRequest, Transport as _};
use pve_autoscaler::sim::pve::{PveSpec, TokenSpec};

use super::setup::on_one_line;
use super::simulators::{Process, Simulators};
use super::{program, text};

const TEMPLATE: &str = "debian-13-k8s";
/// How often something is looked for that comes with time, and the pause in between.
const TRIES: u32 = 600;
const PAUSE: Duration = Duration::from_millis(100);

/// A daemon, with a port for its web server and its log in a file.
struct Daemon {
    simulators: Simulators,
    process: Process,
    config: PathBuf,
    port: u16,
}

impl Daemon {
    /// Starts it with this kubeconfig: an administrator's, or one that the test made.
    fn start(kubeconfig: impl FnOnce(&Simulators) -> PathBuf) -> Daemon {
        Daemon::start_with(|command| command, kubeconfig)
    }

    /// The same, as this would have it.
    fn start_with(
        set: impl FnOnce(&mut Command) -> &mut Command,
        kubeconfig: impl FnOnce(&Simulators) -> PathBuf,
    ) -> Daemon {
        Daemon::of(&PveSpec::default(), set, kubeconfig, |_| ())
    }

    /// The same, of this PVE cluster and with another file.
    fn of(
        spec: &PveSpec,
        set: impl FnOnce(&mut Command) -> &mut Command,
        kubeconfig: impl FnOnce(&Simulators) -> PathBuf,
        edit: impl FnOnce(&Path),
    ) -> Daemon {
        let simulators = Simulators::start(spec);
        let kubeconfig = kubeconfig(&simulators);
        let config = simulators.config(&kubeconfig, TEMPLATE, "9100-9120");
        edit(&config);
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("it is bound").port();
        drop(free);
        replace(&config, "127.0.0.1:0", &format!("127.0.0.1:{port}"));
        let log = File::create(simulators.path("log")).expect("made");
        let mut command = run(&simulators, &config, log);
        let process = Process(set(&mut command).spawn().expect("it starts"));
        Daemon {
            simulators,
            process,
            config,
            port,
        }
    }

    fn socket(&self) -> PathBuf {
        self.simulators.path("control.sock")
    }

    /// What a command says and how it ends.
    fn says(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = program()
            .args(arguments)
            .arg("--socket")
            .arg(self.socket())
            .output()
            .expect("it runs");
        (
            output.status.code(),
            text(&output.stdout) + &text(&output.stderr),
        )
    }

    /// Waits until `status` says all of it and nothing of the rest.
    fn status(&self, wanted: &[&str], unwanted: &[&str]) -> String {
        until("status", || self.says(&["status"]).1, wanted, unwanted)
    }

    /// Waits until a page says it.
    fn page(&self, path: &str, wanted: &[&str]) -> String {
        until(path, || get(self.port, path), wanted, &[])
    }

    fn log(&self) -> String {
        fs::read_to_string(self.simulators.path("log")).expect("it is there")
    }

    fn tell(&self, signal: Signal) {
        let id = i32::try_from(self.process.0.id()).expect("an id");
        kill(Pid::from_raw(id), signal).expect("it runs");
    }
}

pub(crate) fn run(simulators: &Simulators, config: &Path, log: File) -> Command {
    run_in(&simulators.path("state"), simulators, config, log)
}

/// The daemon with another state directory.
fn run_in(state: &Path, simulators: &Simulators, config: &Path, log: File) -> Command {
    daemon_command(config, state, &simulators.path("control.sock"), log)
}

/// The daemon with this file, its state and its control socket there, and its log in a file.
pub(crate) fn daemon_command(config: &Path, state: &Path, socket: &Path, log: File) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"));
    command
        .env_remove("JOURNAL_STREAM")
        .env_remove("NOTIFY_SOCKET")
        .arg("--config")
        .arg(config)
        .arg("run")
        .arg("--state-directory")
        .arg(state)
        .arg("--control-socket")
        .arg(socket)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    command
}

pub(crate) fn until(
    what: &str,
    mut look: impl FnMut() -> String,
    wanted: &[&str],
    unwanted: &[&str],
) -> String {
    let mut last = String::new();
    for _ in 0..TRIES {
        last = look();
        let has = |words: &&&str| last.contains(**words);
        if wanted.iter().all(|words| has(&words)) && !unwanted.iter().any(|words| has(&words)) {
            return last;
        }
        std::thread::sleep(PAUSE);
    }
    panic!("{what} never said {wanted:?} without {unwanted:?}: {last}");
}

/// A page with its status line; what hinders it when there is none.
pub(crate) fn get(port: u16, path: &str) -> String {
    let asked = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        std::io::Result::Ok(answer)
    };
    asked().unwrap_or_else(|error| error.to_string())
}

pub(crate) fn replace(file: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).expect("it is there");
    assert!(text.contains(from), "{from} is not in {text}");
    fs::write(file, text.replace(from, to)).expect("written");
}

#[test]
fn a_bad_file_is_not_taken_up_and_all_say_so_until_it_is_mended() {
    let daemon = Daemon::start(|simulators| simulators.path("admin.conf"));
    daemon.status(
        &["leader; 0 nodes of ours, 0 pods pending"],
        &["Wrong", "On hold"],
    );
    daemon.page("/readyz", &["HTTP/1.1 200", "ok"]);
    daemon.page("/livez", &["HTTP/1.1 200"]);

    replace(&daemon.config, "max = 2", "max = two\nmax = \"3\"");
    daemon.tell(Signal::SIGHUP);
    let status = daemon.status(
        &[
            "the file has errors; the previous configuration is in force",
            "general  0    2",
        ],
        &[],
    );
    assert!(
        status.contains("config.toml:20:7: pool.general.max = two: expected a value"),
        "{status}"
    );
    assert!(!status.contains('^'), "{status}");
    daemon.page(
        "/metrics",
        &[
            "\npve_autoscaler_config_valid 0",
            "cluster_autoscaler_errors_total{type=\"configurationError\"} 1",
            "cluster_autoscaler_node_group_max_count{node_group=\"general\"} 2",
        ],
    );
    daemon.page("/readyz", &["HTTP/1.1 200"]);
    let log = daemon.log();
    assert!(
        log.contains("the configuration has errors; the previous one stays in force"),
        "{log}"
    );

    replace(&daemon.config, "max = two\nmax = \"3\"", "max = 3");
    daemon.tell(Signal::SIGHUP);
    daemon.status(&["general  0    3", "leader;"], &["Wrong"]);
    daemon.page(
        "/metrics",
        &[
            "\npve_autoscaler_config_valid 1",
            "cluster_autoscaler_node_group_max_count{node_group=\"general\"} 3",
        ],
    );
}

/// It finds a daemon that sends a person to another file than the one that it was started with.
#[test]
fn a_daemon_that_is_not_configured_names_its_own_file() {
    let daemon = Daemon::of(
        &PveSpec::default(),
        |command| command,
        |simulators| simulators.path("admin.conf"),
        |config| {
            fs::write(config, "version = 1\n[web]\nlisten = \"127.0.0.1:0\"\n").expect("written");
        },
    );
    let file = daemon.config.canonicalize().expect("it is there");
    let file = file.display();
    let words = format!(
        "not configured: run `pve-autoscaler setup --config {file}`, or edit {file}, then systemctl reload pve-autoscaler"
    );
    daemon.status(&[&words], &[]);
    daemon.page("/readyz", &[&words]);
    let log = daemon.log();
    assert!(log.contains(&words), "{log}");

    // Its first configuration is no change of one, though the file has all its keys and had none of them.
    let admin = daemon.simulators.path("admin.conf");
    let config = daemon.simulators.config(&admin, TEMPLATE, "9100-9120");
    assert_eq!(config, daemon.config);
    daemon.tell(Signal::SIGHUP);
    let record = daemon.simulators.path("state/record");
    let history = || {
        let output = program()
            .arg("history")
            .arg("--record")
            .arg(&record)
            .output();
        on_one_line(&text(&output.expect("it runs").stdout))
    };
    let row = "the daemon has a configuration now it ran without one before";
    until("history", history, &[row], &["read anew", "changed"]);
    let log = daemon.log();
    let read = "the configuration was read; nothing was configured before";
    assert!(log.contains(read) && !log.contains("read again"), "{log}");
}

#[test]
fn a_changed_listen_takes_effect_on_reload_or_says_that_it_does_not() {
    let daemon = Daemon::start(|simulators| simulators.path("admin.conf"));
    daemon.page("/readyz", &["HTTP/1.1 200"]);
    let place = |port: u16| format!("127.0.0.1:{port}");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let other = taken.local_addr().expect("it is bound").port();

    replace(&daemon.config, &place(daemon.port), &place(other));
    daemon.tell(Signal::SIGHUP);
    let said = format!("cannot listen on {} ([web] listen)", place(other));
    let before = format!("it listens on {} as before", place(daemon.port));
    daemon.status(&[&said, &before, "then reload"], &[]);
    daemon.page("/readyz", &["HTTP/1.1 200"]);

    drop(taken);
    // A child that another test begins has it, too, until it is another program.
    until("the port", || get(other, "/"), &["refused"], &[]);
    daemon.tell(Signal::SIGHUP);
    let asked = || format!("{}\n{}", get(other, "/readyz"), daemon.log());
    until("the new address", asked, &["HTTP/1.1 200"], &[]);
    daemon.status(&["leader;"], &["cannot listen"]);
    let old = get(daemon.port, "/readyz");
    assert!(old.contains("refused"), "{old}");
    // Whoever asks later what happened learns of both reloads, and which keys were changed.
    let record = daemon.simulators.path("state/record");
    let history = || {
        let output = program()
            .arg("history")
            .arg("--record")
            .arg(&record)
            .output();
        on_one_line(&text(&output.expect("it runs").stdout))
    };
    let rows = [
        "the daemon starts, version ",
        "the configuration is read anew changed: web.listen",
        "the configuration is read anew nothing in the file was changed",
    ];
    until("history", history, &rows, &["a record begins"]);

    // Beyond this host there is a login or nothing: such a file is not taken, and the page stays where it is.
    replace(&daemon.config, &place(other), &format!("0.0.0.0:{other}"));
    daemon.tell(Signal::SIGHUP);
    let refused = format!("web.listen = \"0.0.0.0:{other}\"");
    until(
        "the log",
        || daemon.log(),
        &[&refused],
        &["listening on 0.0.0.0"],
    );
    until("the address before", asked, &["HTTP/1.1 200"], &[]);
}

/// Who runs the tests, as the programs that they start see it.
fn user() -> String {
    let own = nix::unistd::geteuid();
    let by_sudo = std::env::var("SUDO_USER").ok();
    let by_sudo = by_sudo.filter(|name| own.is_root() && !name.is_empty() && name != "root");
    by_sudo.unwrap_or_else(|| {
        let user = nix::unistd::User::from_uid(own).expect("it is looked up");
        user.map_or_else(|| format!("uid {own}"), |user| user.name)
    })
}

fn a_pause_without_a_reason_says_so(daemon: &Daemon) {
    assert_eq!(daemon.says(&["pause", ""]).0, Some(0));
    let (_, status) = daemon.says(&["status"]);
    let unexplained = format!("no reason given (by {})", user());
    assert!(
        status.contains(&format!("paused: {unexplained}")),
        "{status}"
    );
    // Whoever pauses anew is told what there was before.
    let (_, anew) = daemon.says(&["pause", ""]);
    assert_eq!(
        anew,
        format!("paused; it was so before: {unexplained}; `pve-autoscaler resume` ends it\n")
    );
}

#[test]
fn a_pause_holds_from_its_answer_to_the_answer_of_resume() {
    let daemon = Daemon::start(|simulators| simulators.path("admin.conf"));
    daemon.status(&["leader;"], &["On hold"]);
    assert_eq!(daemon.says(&["pause", "storage move"]).0, Some(0));
    let (_, status) = daemon.says(&["status"]);
    assert!(status.contains("paused: storage move"), "{status}");
    let (_, plan) = daemon.says(&["plan"]);
    assert!(plan.contains("everything  paused: storage move"), "{plan}");
    let (_, said) = daemon.says(&["pause", &"x".repeat(70_000)]);
    assert!(said.contains("at most 65536 bytes"), "{said}");
    let forged = "two\nlines \u{1b}[31mred\u{9b}1m";
    assert_eq!(daemon.says(&["pause", forged]).0, Some(0));
    for asked in ["status", "plan"] {
        let (_, said) = daemon.says(&[asked]);
        assert!(
            said.contains("paused: two lines \\u{1b}[31mred\\u{9b}1m"),
            "{said}"
        );
    }
    a_pause_without_a_reason_says_so(&daemon);
    assert_eq!(daemon.says(&["resume"]).0, Some(0));
    let (_, status) = daemon.says(&["status"]);
    assert!(!status.contains("paused"), "{status}");
    let (_, again) = daemon.says(&["resume"]);
    assert_eq!(again, "nothing was paused\n");
    assert_eq!(daemon.says(&["retry", "general"]).0, Some(0));
    let (code, said) = daemon.says(&["evacuate", "pve2"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("pve2 is evacuated: no machine is made there")
            && said.contains("none of ours"),
        "{said}"
    );
    let (_, status) = daemon.says(&["status"]);
    assert!(status.contains("evacuated since"), "{status}");
    let (_, before) = daemon.says(&["evacuate", "pve2"]);
    assert!(before.contains("evacuated since before"), "{before}");
    let (code, unknown) = daemon.says(&["evacuate", "pve9"]);
    assert_eq!(code, Some(1), "{unknown}");
    assert!(
        unknown.contains("there is no host pve9; the hosts are pve1, pve2, pve3"),
        "{unknown}"
    );
    let (_, ended) = daemon.says(&["evacuate", "--end", "pve2"]);
    assert_eq!(ended, "pve2 may have machines again\n");
    let (_, never) = daemon.says(&["evacuate", "--end", "pve2"]);
    assert_eq!(never, "pve2 was not evacuated\n");
    let (_, status) = daemon.says(&["status"]);
    assert!(!status.contains("evacuated"), "{status}");
    // Whoever asks later what happened learns of it.
    let record = daemon.simulators.path("state/record");
    let mut told = String::new();
    for _ in 0..20 {
        let history = program()
            .arg("history")
            .arg("--record")
            .arg(&record)
            .output();
        told = text(&history.expect("it runs").stdout);
        if told.contains(" asked: evacuate --end pve2") {
            break;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    // Who it was stands beside each.
    let by = user();
    for words in [
        format!("{by} asked: pause storage move"),
        format!("{by} asked: pause no reason given"),
        format!("{by} asked: resume"),
        format!("{by} asked: retry general"),
        format!("{by} asked: evacuate pve2"),
        format!("{by} asked: evacuate --end pve2"),
    ] {
        let squeezed: Vec<&str> = told.split_whitespace().collect();
        assert!(squeezed.join(" ").contains(&words), "{words}: {told}");
    }
    // The daemon says where its record is, for those who replay it, too.
    let (_, replayed) = daemon.says(&["replay"]);
    assert!(
        replayed.contains("decided anew by version ") && replayed.contains("recorded decisions: "),
        "{replayed}"
    );
    let json = program()
        .args(["history", "-o", "json", "--record"])
        .arg(&record)
        .output();
    let json: serde_json::Value =
        serde_json::from_slice(&json.expect("it runs").stdout).expect("JSON");
    let deeds = json["deeds"].as_array().expect("a list").iter();
    let orders = deeds.filter(|deed| {
        let asked = deed["asked"].as_str();
        asked.is_some_and(|asked| asked == "retry" || asked.starts_with("evacuate"))
    });
    let orders: Vec<&serde_json::Value> = orders.collect();
    assert_eq!(orders.len(), 3, "{json}");
    assert!(orders.iter().all(|deed| deed["by"] == user()), "{json}");
}

/// What keeps machines from a host stands beside it. It finds a status that is silent about a bound on what PVE does not tell.
#[test]
fn status_says_what_pools_bound_and_pve_does_not_tell() {
    let spec = PveSpec {
        version: "8.4.14".to_owned(),
        ..PveSpec::default()
    };
    let bound = |config: &Path| {
        replace(config, "max = 2\n", "max = 2\nmax_pressure = 0.3\n");
    };
    let kubeconfig = |simulators: &Simulators| simulators.path("admin.conf");
    let daemon = Daemon::of(&spec, |command| command, kubeconfig, bound);
    daemon.status(
        &["PVE does not tell what max_pressure bounds, so that pool general makes nothing here"],
        &[],
    );
}

/// A second one, started by hand, must not take the first one's socket away.
#[test]
fn a_second_daemon_leaves_the_first_ones_socket_alone() {
    let daemon = Daemon::start(|simulators| simulators.path("admin.conf"));
    daemon.status(&["leader;"], &[]);
    let log = daemon.simulators.path("second");
    let file = File::create(&log).expect("made");
    let ended = run(&daemon.simulators, &daemon.config, file).status();
    assert_eq!(ended.expect("it runs").code(), Some(1));
    let said = fs::read_to_string(log).expect("it is there");
    assert!(
        said.contains("another daemon uses the state directory"),
        "{said}"
    );
    let (code, said) = daemon.says(&["status"]);
    assert_eq!(code, Some(0), "{said}");
    // With a state directory of its own it is the socket that is taken.
    let log = daemon.simulators.path("third");
    let file = File::create(&log).expect("made");
    let apart = daemon.simulators.path("apart");
    let ended = run_in(&apart, &daemon.simulators, &daemon.config, file).status();
    assert_eq!(ended.expect("it runs").code(), Some(1));
    let said = fs::read_to_string(log).expect("it is there");
    assert!(said.contains("another daemon listens there"), "{said}");
}

#[test]
fn who_cannot_be_reached_is_named_by_status_and_readyz() {
    let daemon = Daemon::start(|simulators| {
        let dead = simulators.path("dead.conf");
        fs::copy(simulators.path("admin.conf"), &dead).expect("copied");
        replace(&dead, &simulators.kube, "https://127.0.0.1:1");
        dead
    });
    // Whatever cannot be read because of it, it is said once.
    let cause = "Kubernetes at https://127.0.0.1:1: Connection refused";
    let page = daemon.page("/readyz", &["HTTP/1.1 503", cause]);
    assert_eq!(page.matches(cause).count(), 1, "{page}");
    let status = daemon.status(&["without the lease; ", cause], &[]);
    let first = status.lines().next().unwrap_or_default();
    assert!(first.contains(cause), "{status}");
    assert_eq!(status.matches(cause).count(), 1, "{status}");
}

/// Neither PVE nor Kubernetes was ever read: nobody is told that what he asks for is not there, without a word of that.
#[test]
fn what_was_not_read_is_not_just_called_absent() {
    let daemon = Daemon::of(
        &PveSpec::default(),
        |command| command,
        |simulators| {
            let dead = simulators.path("dead.conf");
            fs::copy(simulators.path("admin.conf"), &dead).expect("copied");
            replace(&dead, &simulators.kube, "https://127.0.0.1:1");
            dead
        },
        |config| {
            let text = fs::read_to_string(config).expect("it is there");
            let lines = text.lines().map(|line| {
                if line.starts_with("endpoints = ") {
                    "endpoints = [\"https://127.0.0.1:1\"]"
                } else {
                    line
                }
            });
            let lines: Vec<&str> = lines.collect();
            fs::write(config, lines.join("\n")).expect("written");
        },
    );
    let maybe = "; it may be there all the same: ";
    let refused = "Connection refused";
    for (arguments, words) in [
        (
            &["explain", "pod", "shop/a"][..],
            [
                "no pod shop/a is seen",
                maybe,
                "kube/pods was not yet read completely: ",
                refused,
            ],
        ),
        (
            &["explain", "node", "w-1"],
            [
                "no node or machine w-1 is seen",
                maybe,
                "kube/nodes was not yet read completely: ",
                refused,
            ],
        ),
        (
            &["evacuate", "pve2"],
            [
                "there is no host pve2",
                maybe,
                "pve/default was not yet read completely: ",
                refused,
            ],
        ),
    ] {
        let name = arguments.join(" ");
        until(&name, || daemon.says(arguments).1, &words, &[]);
        assert_eq!(daemon.says(arguments).0, Some(1), "{name}");
    }
}

/// What keeps the loop from beginning is said while it does, and no longer.
#[test]
fn a_secret_that_is_missing_is_said_until_it_is_there() {
    let daemon = Daemon::start(|simulators| {
        fs::rename(simulators.path("secret"), simulators.path("kept")).expect("moved");
        simulators.path("admin.conf")
    });
    daemon.page(
        "/readyz",
        &["HTTP/1.1 503", "cannot read token_secret_file"],
    );
    daemon.status(&["starting", "cannot read token_secret_file"], &[]);
    let kept = daemon.simulators.path("kept");
    fs::rename(kept, daemon.simulators.path("secret")).expect("moved");
    daemon.status(&["leader;"], &["token_secret_file"]);
    daemon.page("/readyz", &["HTTP/1.1 200"]);
}

/// A certificate that ends in ten days, which no authority of the cluster made: the file is read before anybody
/// is asked with it.
#[test]
fn a_certificate_about_to_end_is_a_line_in_the_log_a_problem_and_a_number() {
    let daemon = Daemon::start(|simulators| {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut made = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
        let now = u64::try_from(Clock::System.now().0).expect("after 1970");
        let ends = Duration::from_millis(now) + Duration::from_hours(10 * 24 + 1);
        made.not_after = (std::time::UNIX_EPOCH + ends).into();
        let certificate = made.self_signed(&key).expect("a certificate").pem();
        let data = |text: String| base64::engine::general_purpose::STANDARD.encode(text);
        let user = format!(
            "client-certificate-data: {}\n    client-key-data: {}",
            data(certificate),
            data(key.serialize_pem())
        );
        let path = simulators.path("ending.conf");
        fs::copy(simulators.path("admin.conf"), &path).expect("copied");
        replace(&path, "token: sim-admin-token", &user);
        path
    });
    let words = "the kubeconfig's client certificate ends at ";
    daemon.status(&["Wrong with the daemon", words, ", in 10 days"], &[]);
    daemon.page(
        "/metrics",
        &["\npve_autoscaler_kubeconfig_expiry_timestamp_seconds 1"],
    );
    let log = daemon.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(words)).collect();
    assert_eq!(lines.len(), 1, "once, and no more: {log}");
    assert!(lines[0].contains("WARN"), "{log}");
}

/// What systemd is told, a line a word, as it comes.
struct Notified(std::os::unix::net::UnixDatagram);

impl Notified {
    /// Waits for a word that begins so; those before it are passed over.
    fn until(&self, start: &str) -> String {
        let mut passed = Vec::new();
        for _ in 0..TRIES {
            let mut buffer = [0; 4096];
            if let Ok(length) = self.0.recv(&mut buffer) {
                let words = text(&buffer[..length]);
                if let Some(line) = words.lines().find(|line| line.starts_with(start)) {
                    return line.to_owned();
                }
                passed.push(words);
            }
        }
        panic!("systemd was never told {start}: {passed:?}");
    }
}

/// The unit's status names the file in force: also where nobody sent a signal, since `systemctl reload` does not send
/// one for a file with errors.
fn the_file_in_force_is_told(daemon: &Daemon, told: &Notified) {
    let in_force = format!("; in force: {} as read at 2", daemon.config.display());
    let status = |wanted: &str, unwanted: &str| {
        for _ in 0..TRIES {
            let line = told.until("STATUS=");
            assert!(line.contains(&in_force), "{line}");
            if line.contains(wanted) && (unwanted.is_empty() || !line.contains(unwanted)) {
                return line;
            }
        }
        panic!("systemd was never told {wanted} without {unwanted}");
    };
    let before = status("", "since");
    replace(&daemon.config, "max = 2", "max = two");
    status("it has errors since then", "");
    daemon.page("/metrics", &["\npve_autoscaler_config_valid 0"]);
    daemon.status(
        &["the file has errors; the previous configuration is in force"],
        &[],
    );
    replace(&daemon.config, "max = two", "max = 4");
    status("it was changed since, and a reload takes it up", "errors");
    daemon.page(
        "/metrics",
        &[
            "\npve_autoscaler_config_valid 1",
            "cluster_autoscaler_errors_total{type=\"configurationError\"} 1",
        ],
    );
    daemon.tell(Signal::SIGHUP);
    daemon.status(&["general  0    4"], &["Wrong"]);
    let (_, read) = before.split_once("as read at ").expect("it is told");
    status("as read at ", read);
}

#[test]
fn systemd_is_told_of_readiness_turns_reloads_and_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).expect("bound");
    socket.set_read_timeout(Some(PAUSE)).expect("set");
    let told = Notified(socket);
    let mut daemon = Daemon::start_with(
        |command| command.env("NOTIFY_SOCKET", &path),
        |simulators| simulators.path("admin.conf"),
    );
    told.until("READY=1");
    // Whoever is told so may ask at once.
    assert!(get(daemon.port, "/livez").contains("HTTP/1.1 200"));
    assert_eq!(daemon.says(&["status"]).0, Some(0));
    told.until("WATCHDOG=1");
    told.until("STATUS=leader; 0 nodes of ours, 0 pods pending");
    the_file_in_force_is_told(&daemon, &told);
    daemon.tell(Signal::SIGHUP);
    told.until("RELOADING=1");
    told.until("READY=1");
    daemon.tell(Signal::SIGTERM);
    told.until("STOPPING=1");
    assert_eq!(daemon.process.0.wait().expect("it ends").code(), Some(0));
}

/// What the daemon before this one left in its state directory.
fn left_behind(simulators: &Simulators, name: &str, text: &str) {
    let file = simulators.path("state").join(name);
    fs::create_dir_all(file.parent().expect("a directory")).expect("made");
    fs::write(file, text).expect("written");
}

/// A guest printed a NUL and a word of systemd's protocol, and an earlier version kept them as they were: the next
/// daemon would die of the one and speak the other.
#[test]
fn a_poisoned_memory_neither_ends_the_daemon_nor_speaks_to_systemd() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).expect("bound");
    socket.set_read_timeout(Some(PAUSE)).expect("set");
    let daemon = Daemon::start_with(
        |command| command.env("NOTIFY_SOCKET", &path),
        |simulators| {
            let now = Clock::System.now();
            let backoff = Backoff {
                advice: None,
                until: now + Span::minutes(30),
                length: Span::minutes(30),
                failed: now,
                message: "POISON".into(),
            };
            let memory = Memory {
                version: VERSION,
                began: Some(now),
                backoff: [("general".into(), backoff)].into(),
                ..Memory::default()
            };
            let text = serde_json::to_string(&memory).expect("written");
            let poison = r"a\u0000b\nWATCHDOG=1\nREADY=1\u001b[2J\u202e";
            left_behind(simulators, "memory.json", &text.replace("POISON", poison));
            simulators.path("admin.conf")
        },
    );
    let mut words = None;
    for _ in 0..TRIES {
        let mut buffer = [0; 8192];
        if let Ok(length) = socket.recv(&mut buffer) {
            let told = text(&buffer[..length]);
            if told.starts_with("STATUS=") && told.contains("pool general on hold") {
                words = Some(told);
                break;
            }
        }
    }
    let words = words.expect("systemd is told of the back-off");
    assert_eq!(words.trim_end().lines().count(), 1, "{words:?}");
    let clean = r"a\u{0}b WATCHDOG=1 READY=1\u{1b}[2J\u{202e}";
    assert!(words.contains(clean), "{words:?}");
    let status = daemon.status(&["leader;", clean], &[]);
    assert!(
        !status.contains('\u{1b}') && !status.contains('\0'),
        "{status:?}"
    );
    let (_, json) = daemon.says(&["status", "-o", "json"]);
    assert!(json.contains(r"a\\u{0}b WATCHDOG=1"), "{json}");
    assert!(!daemon.log().contains('\u{1b}'), "{}", daemon.log());
}

#[test]
fn a_journal_file_that_is_no_entry_is_told_until_it_is_removed() {
    let daemon = Daemon::start(|simulators| {
        left_behind(
            simulators,
            "journal/general-x.json",
            r#"{"version": 1, "step": "\u001b[31m"}"#,
        );
        let state = simulators.path("state/journal");
        fs::create_dir(state.join("general-y.json")).expect("made");
        simulators.path("admin.conf")
    });
    let told = [
        "leader;",
        "a journal file is not a valid entry",
        "general-x.json: unknown variant",
    ];
    let status = daemon.status(&told, &[]);
    assert!(!status.contains('\u{1b}'), "{status}");
    let journal = |file: &str| daemon.simulators.path("state/journal").join(file);
    assert!(status.contains("general-y.json"), "{status}");
    fs::remove_file(journal("general-x.json")).expect("it is there");
    daemon.status(&["general-y.json: it is a directory"], &["general-x.json"]);
    fs::remove_dir(journal("general-y.json")).expect("it is there");
    daemon.status(&["leader;"], &["a journal file"]);
}

/// A fault that each life meets again is told by the next one, and the memory that may hold it is set aside.
#[test]
fn panics_of_earlier_daemons_are_told_and_set_the_memory_aside() {
    let daemon = Daemon::start(|simulators| {
        let at = |minutes| (Clock::System.now() - Span::minutes(minutes)).to_string();
        let panic = |minutes| serde_json::json!({"at": at(minutes), "said": "panicked at src/x.rs:1:1: a\u{1b}b"});
        let panics = serde_json::json!({"panics": [panic(3), panic(2), panic(1)]});
        left_behind(simulators, "panics.json", &panics.to_string());
        left_behind(simulators, "memory.json", "{\"version\":1}");
        simulators.path("admin.conf")
    });
    let status = daemon.status(&["leader;", "Wrong with the daemon"], &[]);
    for words in [
        "the daemon ended by a fault of its own 3 times",
        r"panicked at src/x.rs:1:1: a\u{1b}b",
        "memory.json.set-aside and timers began anew",
    ] {
        let flat = status.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(words), "{words}: {status}");
    }
    // It works all the same.
    daemon.page("/readyz", &["HTTP/1.1 200", "ok"]);
    let aside = daemon
        .simulators
        .path("state")
        .join("memory.json.set-aside");
    assert_eq!(
        fs::read_to_string(aside).expect("it is kept"),
        "{\"version\":1}"
    );
}

/// Makes the token `root@pam!daemon` anew, as an administrator does it; gives its secret.
fn rotate(simulators: &Simulators, admin: &TokenSpec) -> String {
    let way = Https::new(&TokenOptions {
        endpoints: vec![simulators.pve.clone()],
        token_id: admin.id.clone(),
        secret: admin.secret.clone().into(),
        ca_file: None,
        fingerprint: Some(simulators.fingerprint.clone()),
    });
    let way = way.expect("a way");
    let ask = |method, params| {
        let request = PveRequest {
            call: "test",
            method,
            path: "/access/users/root@pam/token/daemon".to_owned(),
            params,
            multipart: false,
            timeout: Duration::from_secs(10),
        };
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(way.call(request)).expect("PVE does it")
    };
    ask(HttpMethod::Delete, Vec::new());
    let made = ask(HttpMethod::Post, vec![("privsep".into(), "0".into())]);
    made["value"].as_str().expect("a secret").to_owned()
}

/// The token is made anew while the daemon runs. It finds a daemon that reads the secret only when it starts, one that takes a secret
/// unseen, and words that do not say which token is meant.
#[test]
fn a_token_that_was_made_anew_is_taken_without_a_reload() {
    let token = |name: &str, secret: &str| TokenSpec {
        id: format!("root@pam!{name}"),
        secret: secret.to_owned(),
        privsep: false,
        acl: Vec::new(),
    };
    let admin = token("setup", "11111111-0000-4000-8000-000000000001");
    let mut spec = PveSpec::default();
    let first = "22222222-0000-4000-8000-000000000001";
    spec.tokens.extend([admin.clone(), token("daemon", first)]);
    let daemon = Daemon::of(
        &spec,
        |command| command,
        |simulators| simulators.path("admin.conf"),
        |config| {
            replace(config, "scaler@pve!sim", "root@pam!daemon");
            replace(config, "vmids = ", "poll = \"5s\"\nvmids = ");
            fs::write(config.with_file_name("secret"), first).expect("written");
        },
    );
    let secret = daemon.simulators.path("secret");
    daemon.status(&["leader;"], &["Wrong with the daemon", "401"]);
    // A secret that is none stays unused, and is told.
    fs::write(&secret, "33333333-0000-4000-8000-000000000001").expect("written");
    let status = daemon.status(
        &[
            "Wrong with the daemon",
            "region default: PVE does not take the new secret of the token root@pam!daemon in ",
            "the one that was read before stays in use",
        ],
        &["cannot read the region"],
    );
    assert!(status.contains("leader;"), "{status}");

    let second = rotate(&daemon.simulators, &admin);
    let advice = "PVE does not take the token root@pam!daemon with the secret in ";
    daemon.status(&["status 401", advice], &[]);
    let (code, said) = daemon.says(&["retry", "general"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("PVE of region default cannot be read: ") && said.contains(advice),
        "{said}"
    );
    let tried = program()
        .args(["template", "try", "--config"])
        .arg(&daemon.config)
        .output()
        .expect("it runs");
    let said = text(&tried.stderr);
    assert!(said.contains(advice), "{said}");
    assert!(said.contains("pveum user token list root@pam"), "{said}");

    fs::write(&secret, second + "\n").expect("written");
    daemon.status(&["leader;"], &["Wrong with the daemon", "401"]);
}
