//! People are told what they must do: by webhook and by mail, once, whatever the other side does.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use pve_autoscaler::clock::Clock;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::pve::PveSpec;

use super::service::{run, until};
use super::simulators::{Process, Simulators};
use super::{program, text};

/// What must not be shown anywhere.
const SECRET: &str = "hush-hush-4711";
/// The notifier looks every five seconds.
const LOOKS: Duration = Duration::from_secs(11);

/// How a server behaves.
const FAILS: u8 = 0;
const CLOSES: u8 = 1;
const SLEEPS: u8 = 2;
pub(super) const TAKES: u8 = 3;

/// A web server that is told.
pub(super) struct Hook {
    pub(super) port: u16,
    mode: Arc<AtomicU8>,
    /// Requests, head and body.
    taken: Arc<Mutex<Vec<String>>>,
}

impl Hook {
    pub(super) fn start() -> Hook {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let hook = Hook {
            port: listener.local_addr().expect("bound").port(),
            mode: Arc::default(),
            taken: Arc::default(),
        };
        let (mode, taken) = (hook.mode.clone(), hook.taken.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (mode, taken) = (mode.clone(), taken.clone());
                std::thread::spawn(move || answer(stream, mode.load(Ordering::SeqCst), &taken));
            }
        });
        hook
    }

    pub(super) fn behaves(&self, mode: u8) {
        self.mode.store(mode, Ordering::SeqCst);
    }

    /// The bodies that were taken and that name this.
    pub(super) fn bodies(&self, word: &str) -> Vec<serde_json::Value> {
        let taken = self.taken.lock().expect("no panic");
        let bodies = taken
            .iter()
            .filter_map(|request| request.split_once("\r\n\r\n"));
        let bodies = bodies.filter(|(_, body)| body.contains(word));
        bodies
            .map(|(_, body)| serde_json::from_str(body).expect("JSON"))
            .collect()
    }
}

/// Reads a request to its end by its Content-Length, and answers as it shall.
fn answer(mut stream: TcpStream, mode: u8, taken: &Mutex<Vec<String>>) {
    let (mut request, mut piece) = (Vec::new(), [0; 4096]);
    while !is_whole(&request) {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return,
            Ok(many) => request.extend_from_slice(&piece[..many]),
        }
        if mode == CLOSES {
            return;
        }
    }
    let request = String::from_utf8(request).expect("text");
    match mode {
        // Some servers repeat what they were sent.
        FAILS => {
            let head = request.replace("\r\n", " ");
            let length = head.len();
            let _ = write!(
                stream,
                "HTTP/1.1 500 Oh\r\ncontent-length: {length}\r\n\r\n{head}"
            );
        }
        SLEEPS => std::thread::sleep(Duration::from_secs(8)),
        _ => {
            taken.lock().expect("no panic").push(request);
            let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\ntaken");
        }
    }
}

pub(super) fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    text.split_once("\r\n\r\n").is_some_and(|(head, body)| {
        let head = head.to_lowercase();
        let length = head.split("content-length: ").nth(1);
        let length = length.and_then(|rest| rest.lines().next()?.parse::<usize>().ok());
        length.is_some_and(|length| body.len() >= length)
    })
}

pub(super) fn secret_file(simulators: &Simulators, name: &str, text: &str) -> PathBuf {
    let path = simulators.path(name);
    fs::write(&path, text).expect("written");
    let mode = fs::Permissions::from_mode(0o600);
    fs::set_permissions(&path, mode).expect("changed");
    path
}

/// Simulators, a configuration with these notifications, and a daemon before that ended by a fault: a condition that
/// is told at once.
pub(super) fn stage(notifications: impl FnOnce(&Simulators) -> String) -> (Simulators, PathBuf) {
    let simulators = Simulators::start(&PveSpec::default());
    let config = simulators.config(&simulators.path("admin.conf"), "debian-13-k8s", "9100-9120");
    let more = notifications(&simulators);
    let whole = fs::read_to_string(&config).expect("it is there") + &more;
    fs::write(&config, whole).expect("written");
    let at = (Clock::System.now() - Span::minutes(1)).to_string();
    let panics = serde_json::json!({"panics": [{"at": at, "said": "panicked at x\nBcc: thief@example.org"}]});
    fs::create_dir_all(simulators.path("state")).expect("made");
    fs::write(simulators.path("state/panics.json"), panics.to_string()).expect("written");
    (simulators, config)
}

pub(super) fn daemon(simulators: &Simulators, config: &Path, log: &str) -> Process {
    let log = File::create(simulators.path(log)).expect("made");
    Process(run(simulators, config, log).spawn().expect("it starts"))
}

/// What a command says and how it ends.
pub(super) fn says(simulators: &Simulators, arguments: &[&str]) -> (Option<i32>, String) {
    let output = program()
        .args(arguments)
        .arg("--socket")
        .arg(simulators.path("control.sock"))
        .output()
        .expect("it runs");
    (
        output.status.code(),
        text(&output.stdout) + &text(&output.stderr),
    )
}

/// `status` as one line, once it says this.
pub(super) fn status(simulators: &Simulators, wanted: &[&str], unwanted: &[&str]) -> String {
    let look = || {
        let (_, said) = says(simulators, &["status"]);
        said.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    until("status", look, wanted, unwanted)
}

#[test]
fn a_webhook_is_tried_until_it_takes_a_notice_and_gets_it_once() {
    let hook = Hook::start();
    let (simulators, config) = stage(|simulators| {
        let headers = format!("# for the hook\nAuthorization: Bearer {SECRET}\n");
        let headers = secret_file(simulators, "headers", &headers);
        format!(
            "[notification.ops]\nkind = \"webhook\"\nurl = \"http://127.0.0.1:{}/x\"\nheaders_file = \"{}\"\ntimeout = \"1s\"\n",
            hook.port,
            headers.display()
        )
    });
    let first = daemon(&simulators, &config, "log");
    let failing = status(
        &simulators,
        &[
            "the notification ops (webhook",
            "it answered 500",
            "leader;",
        ],
        &[],
    );
    assert!(failing.contains("<redacted>"), "{failing}");
    hook.behaves(CLOSES);
    let (code, said) = says(&simulators, &["notify-test"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("ops: NOT SENT"), "{said}");
    // While it waits for the one that sleeps, the daemon works on.
    hook.behaves(SLEEPS);
    let slow = std::thread::scope(|scope| {
        let slow = scope.spawn(|| says(&simulators, &["notify-test", "ops"]));
        let (code, said) = says(&simulators, &["plan"]);
        assert_eq!(code, Some(0), "{said}");
        slow.join().expect("no panic")
    });
    assert_eq!(slow.0, Some(1));
    assert!(slow.1.contains("no answer within 1 s"), "{}", slow.1);
    hook.behaves(TAKES);
    let (code, said) = says(&simulators, &["notify-test", "ops"]);
    assert_eq!(
        (code, said.contains("ops: sent (webhook http://127.0.0.1:")),
        (Some(0), true),
        "{said}"
    );
    assert_eq!(hook.bodies("notify-test").len(), 1);
    status(&simulators, &["leader;"], &["the notification ops"]);
    let told = hook.bodies("\"crashed\"");
    assert_eq!(told.len(), 1, "{told:?}");
    let condition = &told[0]["conditions"][0];
    assert_eq!(
        (&told[0]["version"], &condition["state"]),
        (&1.into(), &"began".into())
    );
    assert!(
        condition["todo"]
            .as_str()
            .is_some_and(|todo| todo.contains("support-bundle"))
    );
    // Another daemon knows what the first one told.
    drop(first);
    let _second = daemon(&simulators, &config, "log2");
    status(&simulators, &["leader;", "ended by a fault"], &[]);
    std::thread::sleep(LOOKS);
    assert_eq!(hook.bodies("\"crashed\"").len(), 1);
    let (_, said) = says(&simulators, &["notify-test", "nobody"]);
    assert!(
        said.contains("there is no notification nobody; there are ops"),
        "{said}"
    );
    for log in ["log", "log2", "state/notifications.json"] {
        let log = fs::read_to_string(simulators.path(log)).expect("it is there");
        assert!(!log.contains(SECRET), "{log}");
    }
}

/// A sendmail that writes down what it gets.
fn stub(simulators: &Simulators, end: &str) -> PathBuf {
    let path = simulators.path("sendmail");
    let folder = simulators.folder.path().display();
    let script = format!(
        "#!/bin/sh\nfor word; do echo \"$word\"; done >{folder}/arguments\ncat >{folder}/mail\nenv >{folder}/environment\n{end}\n"
    );
    fs::write(&path, script).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("changed");
    path
}

fn relay(config: &Path, sendmail: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"));
    command
        .arg("--config")
        .arg(config)
        .arg("mail-relay")
        .arg("--sendmail")
        .arg(sendmail);
    command
}

#[test]
fn a_mail_goes_through_the_relay_to_sendmail() {
    let (simulators, config) = stage(|simulators| {
        let socket = simulators.path("mail.sock");
        format!(
            "[notification.mail]\nkind = \"mail\"\nto = [\"root\", \"ops@example.org\"]\nfrom = \"scaler@example.org\"\nsocket = \"{}\"\n",
            socket.display()
        )
    });
    let _daemon = daemon(&simulators, &config, "log");
    status(
        &simulators,
        &["leader;", "cannot be reached", "pve-autoscaler-mail.socket"],
        &[],
    );
    // What systemd does for the socket with Accept=yes.
    let sendmail = stub(&simulators, "");
    let listener = UnixListener::bind(simulators.path("mail.sock")).expect("bound");
    let (config_of_relay, program) = (config.clone(), sendmail.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let again = stream.try_clone().expect("cloned");
            let started = relay(&config_of_relay, &program)
                .stdin(Stdio::from(OwnedFd::from(stream)))
                .stdout(Stdio::from(OwnedFd::from(again)))
                .status();
            started.expect("it runs");
        }
    });
    let (code, said) = says(&simulators, &["notify-test", "mail"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("mail: sent (mail to root, ops@example.org)"),
        "{said}"
    );
    let read = |name: &str| fs::read_to_string(simulators.path(name)).expect("it is there");
    assert_eq!(
        read("arguments"),
        "-i\n-f\nscaler@example.org\n--\nroot\nops@example.org\n"
    );
    // The notice that waited follows at once.
    let body = || {
        let mail = read("mail");
        let body = mail
            .split_once("\n\n")
            .map(|(_, body)| body.replace('\n', ""));
        let body = base64::engine::general_purpose::STANDARD.decode(body.unwrap_or_default());
        text(&body.unwrap_or_default())
    };
    until(
        "the mail",
        body,
        &["fault of its own", "panicked at x Bcc: thief"],
        &[],
    );
    let mail = read("mail");
    assert!(
        mail.starts_with("From: scaler@example.org\nTo: root,\n ops@example.org\nSubject: "),
        "{mail}"
    );
    assert!(!mail.contains("Bcc"), "{mail}");
    status(&simulators, &["leader;"], &["the notification mail"]);
    stub(&simulators, "echo 'queue file write error' >&2; exit 75");
    let (code, said) = says(&simulators, &["notify-test"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("exit status: 75: queue file write error"),
        "{said}"
    );
}

#[test]
fn no_order_makes_a_header_a_recipient_or_an_argument() {
    let (simulators, config) =
        stage(|_| "[notification.mail]\nkind = \"mail\"\nto = [\"root\"]\n".to_owned());
    let sendmail = stub(&simulators, "");
    let order = |order: &serde_json::Value| {
        let mut child = relay(&config, &sendmail)
            .env("SECRET_OF_THE_DAEMON", SECRET)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let mut input = child.stdin.take().expect("it is piped");
        input
            .write_all(order.to_string().as_bytes())
            .expect("written");
        drop(input);
        text(&child.wait_with_output().expect("it ends").stdout)
    };
    let evil = "pod a\r\nBcc: thief@example.org\r\n\r\n\0.\n";
    let said = order(&serde_json::json!({"notification": "mail", "subject": evil, "text": evil}));
    assert!(said.contains("\"taken\""), "{said}");
    let read = |name: &str| fs::read_to_string(simulators.path(name)).expect("it is there");
    let (mail, arguments) = (read("mail"), read("arguments"));
    assert_eq!(arguments, "-i\n-f\npve-autoscaler\n--\nroot\n");
    let (head, body) = mail.split_once("\n\n").expect("head and body");
    assert!(
        !head.contains("Bcc: thief") || head.contains("Subject: pod a Bcc: thief"),
        "{mail}"
    );
    assert!(!head.lines().any(|line| line.starts_with("Bcc")), "{mail}");
    assert!(!body.contains("Bcc") && !mail.contains('\0'), "{mail}");
    assert!(!read("environment").contains(SECRET));
    // Neither another name nor more recipients.
    for (asked, refused) in [
        (
            serde_json::json!({"notification": "other", "subject": "", "text": ""}),
            "no notification",
        ),
        (
            serde_json::json!({"notification": "mail", "subject": "", "text": "", "to": ["x"]}),
            "unknown field",
        ),
        (serde_json::json!("mail"), "cannot be read"),
    ] {
        let said = order(&asked);
        assert!(
            said.contains("\"refused\"") && said.contains(refused),
            "{said}"
        );
    }
}
