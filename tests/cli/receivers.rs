//! What the daemon sends is given to those who receive such things in service, where they are at hand: `contrib/dev test` builds the programs
//! in tests/receivers, with Go, and looks for ntfy's own server.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::notifications::{Hook, TAKES, daemon, says, secret_file, stage, status};
use super::simulators::Process;
use super::text;

/// How often something is looked for that comes with time, and the pause in between.
const TRIES: u32 = 200;
const PAUSE: Duration = Duration::from_millis(100);

/// What a change of the daemon might bring, and what a Collector refuses or does not understand.
const OTLP_FAULTS: [(&str, &str); 9] = [
    ("\"traceId\":\"", "\"traceId\":\"x"),
    ("\"traceId\":", "\"traceID\":"),
    ("\"spanId\":", "\"spanID\":"),
    ("\"startTimeUnixNano\":\"", "\"startTimeUnixNano\":\"at "),
    ("\"endTimeUnixNano\":", "\"endTime\":"),
    ("\"kind\":1", "\"kind\":\"INTERNAL\""),
    ("\"code\":1", "\"code\":\"OK\""),
    ("\"stringValue\":", "\"string\":"),
    ("\"intValue\":\"", "\"intValue\":\"#"),
];

/// A program that a variable names; `None`, and a word about it, where none does.
fn program_in(variable: &str, what: &str) -> Option<PathBuf> {
    let found = std::env::var_os(variable).map(PathBuf::from);
    if found.is_none() {
        eprintln!(
            "skipped: {what} ({variable} names no program; `contrib/dev test` sets it where that can be had)"
        );
    }
    found
}

/// A port that nobody has just now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound").port()
}

/// Waits until somebody listens at a port of this host.
fn until_it_listens(port: u16) {
    for _ in 0..TRIES {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    panic!("nobody listens at {port}");
}

/// Sends the bytes of a request, and gives those of the answer.
fn exchange(port: u16, request: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.write_all(request).expect("sent");
    let (mut answer, mut piece) = (Vec::new(), [0; 4_096]);
    while !super::notifications::is_whole(&answer) {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(many) => answer.extend_from_slice(&piece[..many]),
        }
    }
    answer
}

/// An OpenTelemetry Collector's own receiver.
pub(crate) struct OtlpReceiver {
    _process: Process,
    folder: tempfile::TempDir,
    port: u16,
}

impl OtlpReceiver {
    /// Starts it, where it was built.
    pub(crate) fn start() -> Option<OtlpReceiver> {
        let program = program_in("OTLP_RECEIVER", "traces are given to no Collector")?;
        let folder = tempfile::tempdir().expect("a folder");
        let port = free_port();
        let log = File::create(folder.path().join("understood")).expect("made");
        let child = Command::new(program)
            .arg(format!("127.0.0.1:{port}"))
            .stdin(Stdio::null())
            .stdout(log)
            .spawn();
        let process = Process(child.expect("it starts"));
        until_it_listens(port);
        Some(OtlpReceiver {
            _process: process,
            folder,
            port,
        })
    }

    /// Gives it a request as it came, and gives back its answer.
    pub(crate) fn take(&self, request: &[u8]) -> String {
        text(&exchange(self.port, request))
    }

    /// What it understood of each request that it took and that had a span.
    fn understood(&self) -> Vec<Value> {
        let path = self.folder.path().join("understood");
        let said = fs::read_to_string(path).expect("it is there");
        let lines = said.lines();
        lines
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    /// Posts this body. Whether it was taken, and what was understood of it.
    fn post(&self, body: &str) -> Option<Value> {
        let before = self.understood().len();
        let request = format!(
            "POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = self.take(request.as_bytes());
        if !answer.starts_with("HTTP/1.1 200 ") {
            assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
            return None;
        }
        Some(self.understood()[before].clone())
    }

    /// It understood all of these bodies as they were meant, and nothing else came. And it would have seen a fault in them.
    pub(crate) fn judge(&self, sent: &[Value]) {
        let sent: Vec<Value> = sent
            .iter()
            .map(said)
            .filter(|body| *body != json!({}))
            .collect();
        let understood: Vec<Value> = self.understood().iter().map(said).collect();
        assert_eq!(understood, sent);
        let whole = sent.iter().find(|body| {
            let text = body.to_string();
            OTLP_FAULTS.iter().all(|(right, _)| text.contains(right))
        });
        let whole = whole.expect("a body with all that may be wrong");
        assert_eq!(
            self.post(&whole.to_string()).as_ref().map(said).as_ref(),
            Some(whole)
        );
        for (right, wrong) in OTLP_FAULTS {
            let planted = whole.to_string().replacen(right, wrong, 1);
            let taken = self.post(&planted);
            assert_ne!(
                taken.as_ref().map(said).as_ref(),
                Some(whole),
                "{wrong} is not found"
            );
        }
    }
}

/// A document without lists and objects that have nothing in them, which a Collector does not write.
fn said(value: &Value) -> Value {
    let empty = |value: &Value| match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    match value {
        Value::Array(list) => list.iter().map(said).collect(),
        Value::Object(map) => {
            let fields = map.iter().map(|(key, value)| (key.clone(), said(value)));
            fields.filter(|(_, value)| !empty(value)).collect()
        }
        other => other.clone(),
    }
}

/// What is wrong with bodies of incoming webhooks, by Slack's library for Go; and what it read of those that are right.
fn read_by_slack(program: &Path, bodies: &[String]) -> (bool, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let paths = bodies.iter().enumerate().map(|(number, body)| {
        let path = folder.path().join(number.to_string());
        fs::write(&path, body).expect("written");
        path
    });
    let output = Command::new(program).args(paths).output().expect("it runs");
    (output.status.success(), text(&output.stdout))
}

/// Slack's library has a place for all that is sent, and reads the notice's words. Found by it: a field that Slack has not, a text of another
/// type or none, one that Slack would cut.
#[test]
fn slack_reads_a_notice() {
    let Some(program) = program_in("SLACK_CHECK", "notices are read by no library of Slack's")
    else {
        return;
    };
    let (plain, slack) = (Hook::start(), Hook::start());
    for hook in [&plain, &slack] {
        hook.behaves(TAKES);
    }
    let (simulators, config) = stage(|_| {
        format!(
            "[notification.plain]\nkind = \"webhook\"\nurl = \"http://127.0.0.1:{}/x\"\n[notification.slack]\nkind = \"webhook\"\nurl = \"http://127.0.0.1:{}/x\"\nformat = \"slack\"\n",
            plain.port, slack.port
        )
    });
    let _daemon = daemon(&simulators, &config, "log");
    status(&simulators, &["leader;"], &[]);
    let (code, said) = says(&simulators, &["notify-test"]);
    assert_eq!(code, Some(0), "{said}");
    let mut notices = Vec::new();
    for _ in 0..TRIES {
        notices = plain.bodies("");
        if notices.len() > 1 && slack.bodies("").len() > 1 {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    assert!(notices.len() > 1, "{notices:?}");
    let bodies: Vec<String> = slack.bodies("").iter().map(Value::to_string).collect();
    let (fine, read) = read_by_slack(&program, &bodies);
    assert!(fine, "{read}");
    let unescaped = read.replace("&lt;", "<").replace("&gt;", ">");
    let unescaped = unescaped.replace("&amp;", "&");
    for notice in &notices {
        let part = |key: &str| notice[key].as_str().expect("a text").to_owned();
        let wanted = format!("*{}*\n{}", part("title"), part("text"));
        assert!(unescaped.contains(&wanted), "{wanted:?} in {unescaped:?}");
    }
    for (wrong, found) in [
        (json!({"txt": "a"}), "unknown field"),
        (json!({"text": 5}), "cannot unmarshal"),
        (json!({"text": ""}), "neither text nor blocks"),
        (json!({"text": "a".repeat(40_001)}), "Slack cuts it"),
        (json!(["text"]), "cannot unmarshal"),
    ] {
        let (fine, said) = read_by_slack(&program, &[wrong.to_string()]);
        assert!(!fine && said.contains(found), "{wrong}: {said}");
    }
}

/// ntfy's own server.
struct Ntfy {
    _process: Process,
    _folder: tempfile::TempDir,
    port: u16,
}

impl Ntfy {
    fn start() -> Option<Ntfy> {
        let program = program_in("NTFY", "notices are read by no server of ntfy's")?;
        let folder = tempfile::tempdir().expect("a folder");
        let port = free_port();
        let child = Command::new(program)
            .arg("serve")
            .arg("--listen-http")
            .arg(format!("127.0.0.1:{port}"))
            .arg("--cache-file")
            .arg(folder.path().join("cache.db"))
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let process = Process(child.expect("it starts"));
        until_it_listens(port);
        Some(Ntfy {
            _process: process,
            _folder: folder,
            port,
        })
    }

    /// All messages of a topic, the first one first, by ntfy's own API.
    fn messages(&self, topic: &str) -> Vec<Value> {
        let request = format!(
            "GET /{topic}/json?poll=1 HTTP/1.0\r\nhost: 127.0.0.1:{}\r\n\r\n",
            self.port
        );
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        assert!(head.contains(" 200 "), "{answer}");
        let lines = body.lines().filter(|line| line.starts_with('{'));
        let all = lines.map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        all.filter(|message| message["event"] == "message")
            .collect()
    }
}

/// ntfy shows a notice as it is meant: its title, text, priority and tag. What ntfy does not take is no success.
#[test]
fn ntfy_shows_a_notice() {
    let Some(ntfy) = Ntfy::start() else {
        return;
    };
    let plain = Hook::start();
    plain.behaves(TAKES);
    let (simulators, config) = stage(|simulators| {
        let wrong = secret_file(simulators, "wrong", "Priority: greatest\n");
        format!(
            "[notification.plain]\nkind = \"webhook\"\nurl = \"http://127.0.0.1:{0}/x\"\n[notification.ops]\nkind = \"webhook\"\nurl = \"http://127.0.0.1:{1}/ops\"\nformat = \"ntfy\"\n[notification.wrong]\nkind = \"webhook\"\nurl = \"http://127.0.0.1:{1}/wrong\"\nformat = \"ntfy\"\nheaders_file = \"{2}\"\n",
            plain.port,
            ntfy.port,
            wrong.display()
        )
    });
    let _daemon = daemon(&simulators, &config, "log");
    status(&simulators, &["leader;"], &[]);
    for name in ["plain", "ops"] {
        let (code, said) = says(&simulators, &["notify-test", name]);
        assert_eq!(code, Some(0), "{said}");
    }
    let (code, said) = says(&simulators, &["notify-test", "wrong"]);
    assert!(
        code == Some(1) && said.contains("it answered 400"),
        "{said}"
    );
    assert!(ntfy.messages("wrong").is_empty());
    let (mut told, mut shown) = (Vec::new(), Vec::new());
    for _ in 0..TRIES {
        told = plain.bodies("");
        // ntfy takes sixty requests in a row, and then one in five seconds.
        if told.len() > 1 {
            std::thread::sleep(PAUSE * 5);
            shown = ntfy.messages("ops");
        }
        if shown.len() > 1 {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    assert!(told.len() > 1, "{told:?}");
    for notice in &told {
        let same = |message: &&Value| message["title"] == notice["title"];
        let message = shown.iter().find(same);
        let message = message.unwrap_or_else(|| panic!("{notice} in {shown:?}"));
        // ntfy takes blanks off the end, and leaves out a priority of 3, which is its own.
        let text = notice["text"].as_str().map(str::trim);
        assert_eq!(message["message"].as_str(), text);
        let (priority, tag) = match notice["conditions"][0]["state"].as_str() {
            Some("test") => (Value::Null, "white_check_mark"),
            _ => (json!(4), "warning"),
        };
        let priority_shown = if message["priority"] == 3 {
            &Value::Null
        } else {
            &message["priority"]
        };
        assert_eq!(
            (priority_shown, &message["tags"]),
            (&priority, &json!([tag]))
        );
    }
}
