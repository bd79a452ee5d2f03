//! The control socket: how `status`, `pause`, `resume`, `retry`, `evacuate`, `notify-test`, `snapshot`, `plan`, `explain` and the completion
//! of names reach the daemon.
//!
//! One JSON object per line each way. The socket's mode lets in root and the daemon's group; on top
//! the peer is asked for: only root and the daemon's own user may change anything.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::clock::Clock;
use crate::model::cluster::ObjectKey;
use crate::model::foreign;
use crate::model::time::Time;

/// Longest request line: a pause's reason is the longest part of one.
const MAX_REQUEST: u64 = 64 * 1024;
/// Longest answer: a snapshot of 150,000 pods is some 200 MB of JSON at the worst.
const MAX_ANSWER: u64 = 1 << 30;
/// Connections served at the same time; people type these commands.
const MAX_CONNECTIONS: usize = 8;
/// A peer that does not get on within this time is dropped.
const DEADLINE: Duration = Duration::from_secs(30);

/// What may be asked of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "command")]
pub enum ControlCommand {
    /// How things stand.
    Status,
    /// Begin a pause.
    Pause {
        /// Why, for those who look later.
        reason: String,
    },
    /// End a pause.
    Resume,
    /// End the waits of a pool, whose cause a person has mended.
    Retry {
        /// The pool.
        pool: String,
    },
    /// Empty a host of machines, or let it have machines again.
    Evacuate(EvacuationOrder),
    /// Send a test to those who are notified.
    NotifyTest {
        /// One of them; `None`: all.
        name: Option<String>,
    },
    /// What the daemon sees, without secrets.
    Snapshot,
    /// What it would do now, and why.
    Plan,
    /// Why one pod is pending, and what would run it.
    ExplainPod {
        /// The pod.
        pod: ObjectKey,
    },
    /// Why one node stays or goes.
    ExplainNode {
        /// The node, or a machine on its way up.
        node: String,
    },
    /// Names that begin with something, for the completion of what a person types.
    Names {
        /// Names of which things.
        kind: NameKind,
        /// How they begin.
        prefix: String,
    },
}

/// Which host is to be emptied, or to have machines again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvacuationOrder {
    /// The host.
    pub host: String,
    /// The host's region; `None` where one region alone has a host of that name.
    pub region: Option<String>,
    /// Whether the evacuation is to end, so that the host may have machines again.
    #[serde(default)]
    pub end: bool,
}

/// What an [`EvacuationOrder`] changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvacuationAnswer {
    /// Whether the order changed anything; false where the host was evacuated already, or was not.
    pub changed: bool,
    /// The machines that the host has.
    pub machines: Vec<Arc<str>>,
    /// Those of them that are on their way up: they are no nodes yet, and have no pods.
    #[serde(default)]
    pub coming: Vec<Arc<str>>,
    /// The host is offline: nothing of its machines can be removed.
    #[serde(default)]
    pub offline: bool,
    /// Why nothing is removed for now: a pause, for instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
}

/// The kinds of things whose names a shell completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NameKind {
    /// Pods, as `NAMESPACE/NAME`.
    Pods,
    /// Nodes, and machines on their way up.
    Nodes,
    /// Machines.
    Machines,
    /// Pools.
    Pools,
    /// Hosts of all regions.
    Hosts,
}

/// The reason of a pause with who pauses, as `status`, `history`, notices and the page show it: `storage move (by ann)`.
pub fn signed_reason(reason: &str, by: &str) -> String {
    if reason.trim().is_empty() {
        format!("by {by}")
    } else {
        format!("{} (by {by})", reason.trim())
    }
}

/// The reason of a pause as it was given: without the name that [`signed_reason`] put to it.
pub(super) fn unsigned_reason<'r>(signed: &'r str, by: &str) -> &'r str {
    let own = signed.strip_suffix(&format!("(by {by})"));
    let own = own.or_else(|| {
        signed
            .strip_suffix(&format!("by {by}"))
            .filter(|own| own.is_empty())
    });
    own.map_or(signed, str::trim)
}

/// Who types: the user that became root by sudo, or the user of this process.
pub fn person() -> String {
    let own = nix::unistd::geteuid();
    let by_sudo = std::env::var("SUDO_USER").ok();
    let by_sudo = by_sudo.filter(|name| own.is_root() && !name.is_empty() && name != "root");
    let name = by_sudo.or_else(|| {
        let user = nix::unistd::User::from_uid(own).ok().flatten();
        user.map(|user| user.name)
    });
    name.unwrap_or_else(|| format!("uid {own}"))
}

/// A command on the wire.
#[derive(Debug, Serialize)]
struct SignedCommand<'a> {
    #[serde(flatten)]
    command: &'a ControlCommand,
    /// Who types it, where it changes anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
}

/// Who asks, as it is read from the wire. Commands of older versions do not say it.
#[derive(Debug, Default, Deserialize)]
struct Asker {
    #[serde(default)]
    by: Option<String>,
}

/// Longest name of who asks, in characters.
const MAX_ASKER: usize = 200;

impl Asker {
    /// Who sent this request.
    fn read(request: &str) -> Option<String> {
        let Asker { by } = serde_json::from_str(request).unwrap_or_default();
        let by = foreign::line(by?.trim(), MAX_ASKER);
        Some(by).filter(|by| !by.is_empty())
    }
}

impl ControlCommand {
    /// Whether it changes anything.
    pub fn changes(&self) -> bool {
        matches!(
            self,
            ControlCommand::Pause { .. }
                | ControlCommand::Resume
                | ControlCommand::Retry { .. }
                | ControlCommand::Evacuate(_)
                | ControlCommand::NotifyTest { .. }
        )
    }
}

/// The daemon's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlAnswer {
    /// As asked.
    Ok(Value),
    /// Not done, and why.
    Error(String),
}

/// An answer on the wire.
#[derive(Debug, Serialize)]
struct TimedAnswer<'a> {
    #[serde(flatten)]
    answer: &'a ControlAnswer,
    /// What the daemon's clock shows: that of a simulation is not the asker's.
    now: Time,
}

/// An answer as it is read from the wire. Daemons of older versions send no time.
#[derive(Debug, Deserialize)]
struct Received {
    /// Whatever was asked for; `null` is an answer too.
    #[serde(default, deserialize_with = "there")]
    ok: Option<Value>,
    error: Option<String>,
    now: Option<Time>,
}

fn there<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

/// What the daemon said, and when by its own clock.
#[derive(Clone, Debug, PartialEq)]
pub struct DaemonAnswer {
    /// What was asked for.
    pub value: Value,
    /// The daemon's time; that of this host where the daemon tells none.
    pub now: Time,
}

/// Why the daemon could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody listens, or we may not.
    #[error(
        "cannot reach the daemon at {path}: {source}; is pve-autoscaler running (systemctl status pve-autoscaler), and are you root?"
    )]
    Unreachable {
        /// The socket.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// No or no readable answer.
    #[error("the daemon at {path} did not answer: {why}")]
    NoAnswer {
        /// The socket.
        path: PathBuf,
        /// What came instead.
        why: String,
    },
    /// It refused.
    #[error("{0}")]
    Refused(String),
}

/// Asks the daemon behind `socket`.
///
/// # Errors
/// It cannot be reached, does not answer, or refuses.
pub async fn ask(socket: &Path, command: &ControlCommand) -> Result<Value, ControlError> {
    let answer = ask_with_time(socket, command).await?;
    Ok(answer.value)
}

/// Why a path can be no control socket: a directory or a file is there. Connecting to one fails with `Connection refused`,
/// which tells nobody what is wrong.
fn no_socket(path: &Path) -> Option<&'static str> {
    use std::os::unix::fs::FileTypeExt as _;
    let kind = std::fs::metadata(path).ok()?.file_type();
    match (kind.is_socket(), kind.is_dir()) {
        (true, _) => None,
        (false, true) => Some("it is a directory and no socket"),
        (false, false) => Some("it is a file and no socket"),
    }
}

/// Asks the daemon behind `socket`, and says what its clock showed then: ages are reckoned from that.
///
/// # Errors
/// As of [`ask`].
pub async fn ask_with_time(
    socket: &Path,
    command: &ControlCommand,
) -> Result<DaemonAnswer, ControlError> {
    let unreachable = |source| ControlError::Unreachable {
        path: socket.to_owned(),
        source,
    };
    let silent = |why: String| ControlError::NoAnswer {
        path: socket.to_owned(),
        why,
    };
    let exchange = async {
        if let Some(why) = no_socket(socket) {
            return Err(unreachable(std::io::Error::other(why)));
        }
        let stream = UnixStream::connect(socket).await.map_err(unreachable)?;
        let mut stream = BufReader::new(stream);
        let signed = SignedCommand {
            command,
            by: command.changes().then(person),
        };
        let mut line = serde_json::to_vec(&signed).map_err(|e| silent(e.to_string()))?;
        line.push(b'\n');
        stream
            .get_mut()
            .write_all(&line)
            .await
            .map_err(unreachable)?;
        let mut answer = Vec::new();
        stream
            .take(MAX_ANSWER)
            .read_to_end(&mut answer)
            .await
            .map_err(unreachable)?;
        let received: Received =
            serde_json::from_slice(&answer).map_err(|e| silent(e.to_string()))?;
        match (received.ok, received.error) {
            (_, Some(why)) => Err(ControlError::Refused(why)),
            (Some(value), None) => Ok(DaemonAnswer {
                value,
                now: received.now.unwrap_or_else(|| Clock::System.now()),
            }),
            (None, None) => Err(silent("neither what was asked for nor an error".to_owned())),
        }
    };
    timeout(DEADLINE, exchange)
        .await
        .map_err(|_| silent("it took too long".to_owned()))?
}

/// Answers one command, with who asks where the command says it. Given by the daemon.
pub type Handler =
    Arc<dyn Fn(ControlCommand, Option<String>) -> BoxFuture<'static, ControlAnswer> + Send + Sync>;

/// Binds the socket. A stale one of an earlier run is replaced; one that a daemon listens on is not, nor is any
/// other file.
pub async fn bind(path: &Path) -> std::io::Result<UnixListener> {
    use std::io::{Error, ErrorKind};
    use std::os::unix::fs::FileTypeExt as _;
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                "there is a file that is no socket",
            ));
        }
        Ok(_) => match timeout(DEADLINE, UnixStream::connect(path)).await {
            Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => remove_stale(path)?,
            // An earlier daemon took it away at that moment.
            Ok(Err(error)) if error.kind() == ErrorKind::NotFound => {}
            Ok(Err(error)) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            // Somebody accepts, or so many wait to be accepted that the kernel takes no more.
            Ok(_) | Err(_) => {
                return Err(Error::new(
                    ErrorKind::AddrInUse,
                    "another daemon listens there",
                ));
            }
        },
    }
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}

/// Removes the socket of a daemon that is gone; somebody else may have done so already.
fn remove_stale(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The time that a socket's answers are given by.
#[derive(Clone, Copy, Debug)]
pub struct SocketClock {
    /// The daemon's clock.
    pub clock: Clock,
    /// How many seconds of the clock pass in one real second: more than one in simulations alone.
    pub seconds: u32,
}

impl SocketClock {
    /// The host's own time.
    pub const HOST: SocketClock = SocketClock {
        clock: Clock::System,
        seconds: 1,
    };
}

/// Serves until dropped.
pub async fn serve(listener: UnixListener, pace: SocketClock, handler: Handler) {
    let deadline = DEADLINE * pace.seconds;
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let handler = handler.clone();
                tokio::spawn(async move {
                    let answered = answer(stream, pace.clock, handler);
                    if timeout(deadline, answered).await.is_err() {
                        tracing::debug!("a peer of the control socket took too long");
                    }
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept on the control socket");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

async fn answer(stream: UnixStream, clock: Clock, handler: Handler) {
    let peer = stream.peer_cred().ok().map(|peer| peer.uid());
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    let read = (&mut stream).take(MAX_REQUEST).read_line(&mut line).await;
    let answer = match read.map(|_| serde_json::from_str::<ControlCommand>(&line)) {
        Err(error) => ControlAnswer::Error(error.to_string()),
        Ok(Err(_)) if line.len() as u64 == MAX_REQUEST => {
            ControlAnswer::Error(format!("a request may have at most {MAX_REQUEST} bytes"))
        }
        Ok(Err(error)) => ControlAnswer::Error(format!("not a command: {error}")),
        Ok(Ok(command)) if command.changes() && !may_change(peer) => {
            ControlAnswer::Error("only root and the daemon's own user may do this".to_owned())
        }
        // Whoever may change anything is believed, as with the reason of a pause.
        Ok(Ok(command)) => handler(command, Asker::read(&line)).await,
    };
    let sent = TimedAnswer {
        answer: &answer,
        now: clock.now(),
    };
    if let Ok(text) = serde_json::to_vec(&sent) {
        // A peer that went away is no concern of ours.
        let _ = stream.get_mut().write_all(&text).await;
        let _ = stream.get_mut().shutdown().await;
        // A socket that is closed before all of the request is read is reset, and the answer in it is lost.
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    }
}

fn may_change(peer: Option<u32>) -> bool {
    peer.is_some_and(|uid| uid == 0 || uid == nix::unistd::geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_command_is_answered_and_nonsense_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("control.sock");
        let handler: Handler = Arc::new(|command, by| {
            Box::pin(async move {
                match command {
                    ControlCommand::Pause { reason } => ControlAnswer::Ok(Value::String(reason)),
                    ControlCommand::Evacuate(_) | ControlCommand::Plan => {
                        ControlAnswer::Ok(json!(by))
                    }
                    _ => ControlAnswer::Error("no".to_owned()),
                }
            })
        });
        let server = tokio::spawn(serve(
            bind(&path).await.expect("binds"),
            SocketClock::HOST,
            handler,
        ));
        let said = ask(
            &path,
            &ControlCommand::Pause {
                reason: "lunch".into(),
            },
        )
        .await
        .expect("answered");
        assert_eq!(said, "lunch");
        // Who changes anything says who that is.
        let order = EvacuationOrder {
            host: "pve2".to_owned(),
            region: None,
            end: false,
        };
        let asked = ask(&path, &ControlCommand::Evacuate(order)).await;
        assert_eq!(asked.expect("answered"), json!(person()));
        let asked = ask(&path, &ControlCommand::Plan).await;
        assert_eq!(asked.expect("answered"), Value::Null);
        let refused = ask(&path, &ControlCommand::Status)
            .await
            .expect_err("refused");
        assert_eq!(refused.to_string(), "no");
        let mut raw = UnixStream::connect(&path).await.expect("connects");
        raw.write_all(b"nonsense\n").await.expect("writes");
        let mut text = String::new();
        raw.read_to_string(&mut text).await.expect("reads");
        assert!(text.contains("not a command"), "{text}");
        let taken = bind(&path).await.expect_err("a daemon listens there");
        assert_eq!(taken.to_string(), "another daemon listens there");
        assert!(ask(&path, &ControlCommand::Status).await.is_err());
        server.abort();
        let _ = server.await;
        assert!(bind(&path).await.is_ok(), "a stale socket is replaced");
        let file = directory.path().join("precious");
        std::fs::write(&file, "text").expect("written");
        assert!(bind(&file).await.is_err());
        assert_eq!(std::fs::read_to_string(&file).expect("it is there"), "text");
    }

    /// Requests as a person, a script of another version, or a fuzzer sends them.
    fn request() -> impl Strategy<Value = Vec<u8>> {
        let verb = proptest::sample::select(vec![
            "status",
            "pause",
            "resume",
            "retry",
            "plan",
            "explain_pod",
            "explain_node",
            "",
            "Status",
        ]);
        let value = prop_oneof![
            "(?s).{0,20}".prop_map(Value::String),
            Just(json!(null)),
            Just(json!({"namespace": "a", "name": "b"})),
            Just(json!({"namespace": 1})),
            Just(json!("x".repeat(70_000))),
        ];
        let key = proptest::sample::select(vec!["reason", "pod", "node", "x"]);
        let command = (verb, key, value).prop_map(|(verb, key, value)| {
            serde_json::to_vec(&json!({"command": verb, (key): value})).expect("it serialises")
        });
        prop_oneof![
            3 => command,
            1 => proptest::collection::vec(any::<u8>(), 0..200),
            1 => (1usize..20_000).prop_map(|depth| b"[".repeat(depth)),
        ]
    }

    proptest! {
        /// Whatever comes in: one line of JSON goes out, and the daemon does what the line says or nothing.
        #[test]
        fn every_request_has_an_answer(
            request in request(),
            ended in any::<bool>(),
            then in "[ -~]{0,10}",
        ) {
            let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
            let seen = asked.clone();
            let handler: Handler = Arc::new(move |command, _| {
                seen.lock().expect("no panic").push(command);
                Box::pin(async { ControlAnswer::Ok(json!("done")) })
            });
            let mut line = request.clone();
            if ended {
                line.push(b'\n');
                line.extend(then.bytes());
            }
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let text = runtime.block_on(async {
                let (mut ours, theirs) = UnixStream::pair().expect("a pair");
                let served = tokio::spawn(answer(theirs, Clock::System, handler));
                // It may hang up before all is read.
                let _ = ours.write_all(&line).await;
                let _ = ours.shutdown().await;
                let mut text = Vec::new();
                let _ = ours.read_to_end(&mut text).await;
                served.await.expect("no panic");
                text
            });
            let asked = asked.lock().expect("no panic").clone();
            let said: Received = serde_json::from_slice(&text).expect("an answer");
            let command = serde_json::from_slice::<ControlCommand>(&request).ok();
            let taken = command.filter(|_| request.len() < 64 * 1024);
            prop_assert_eq!(said.ok == Some(json!("done")), taken.is_some(), "{:?}", said);
            prop_assert_eq!(asked, taken.into_iter().collect::<Vec<_>>());
        }
    }

    /// Commands of other versions and of programs that speak to the socket themselves are answered whatever they say of who asks.
    #[test]
    fn who_asks_is_read_where_it_is_said() {
        for (request, by) in [
            (r#"{"command": "resume", "by": "ann"}"#, Some("ann")),
            (
                "{\"command\": \"resume\", \"by\": \"ann\\u001b[31m\"}\n",
                Some(r"ann\u{1b}[31m"),
            ),
            (r#"{"command": "resume", "by": "  "}"#, None),
            (r#"{"command": "resume", "by": 7}"#, None),
            (r#"{"command": "resume", "by": null}"#, None),
            (r#"{"command": "resume"}"#, None),
            ("nonsense", None),
        ] {
            assert_eq!(Asker::read(request).as_deref(), by, "{request}");
        }
        let long = format!(r#"{{"by": "{}"}}"#, "x".repeat(10_000));
        let by = Asker::read(&long).expect("a name");
        assert!(by.chars().count() <= MAX_ASKER + 1, "{by}");
    }

    #[test]
    fn only_root_and_the_daemons_user_may_change_anything() {
        let own = nix::unistd::geteuid().as_raw();
        assert!(may_change(Some(0)) && may_change(Some(own)));
        assert!(!may_change(None) && !may_change(Some(own + 1)));
    }
}
