//! When the HTTP API cannot be used: the same call through PVE's own Perl code.
//!
//! Each call is one Perl run of a second or more, so this is for hours in which pveproxy is broken,
//! and every use is reported. Perl runs as a transient service of systemd's, not as a child of the
//! broker: what it starts (QEMU, in the end) must not inherit the broker's sandbox. The call comes
//! in on its standard input, never on a command line. Only this host can be served: for others
//! PVE's code would go through ssh with the parameters in the open.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::pve::PveRequest;

use super::Paths;
use super::forward::{ForwardResult, PveAnswer};
use super::gate;
use super::perl;

/// Perl runs at a time: each takes 160 MB and a core.
const AT_ONCE: usize = 2;

/// Reads one call as JSON from standard input, makes it as root@pam inside PVE's API code, prints
/// one line of JSON. Workers that it forks must not keep the output open, hence `atfork`.
const SCRIPT: &str = include_str!("fallback.pl");

/// The way through PVE's Perl.
#[derive(Debug)]
pub(super) struct Fallback {
    systemd_run: PathBuf,
    perl: PathBuf,
    slots: Semaphore,
    used: AtomicBool,
}

#[derive(Deserialize)]
struct PrintedAnswer {
    status: u16,
    #[serde(default)]
    message: String,
    #[serde(default)]
    errors: Map<String, Value>,
    #[serde(default)]
    data: Value,
}

impl Fallback {
    pub(super) fn new(paths: &Paths) -> Fallback {
        Fallback {
            systemd_run: paths.systemd_run.clone(),
            perl: paths.perl.clone(),
            slots: Semaphore::new(AT_ONCE),
            used: AtomicBool::new(false),
        }
    }

    /// The last call went this way.
    pub(super) fn in_use(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// The HTTP API works again.
    pub(super) fn rest(&self) {
        if self.used.swap(false, Ordering::Relaxed) {
            tracing::info!("the PVE HTTP API works again; calls no longer go through Perl");
        }
    }

    /// Makes the call; `why` says what is wrong with the HTTP API.
    pub(super) async fn send(
        &self,
        request: &PveRequest,
        why: &str,
        end: Instant,
    ) -> ForwardResult {
        if request.multipart {
            return ForwardResult::Never(format!(
                "{why}; and files come to PVE over its HTTP API alone"
            ));
        }
        let here = hostname();
        if let Some(host) = host_of(&request.path)
            && host != here
        {
            return ForwardResult::Never(format!(
                "{why}; and host {host} cannot be reached through this host's Perl"
            ));
        }
        let Ok(Ok(_slot)) = timeout_at(end, self.slots.acquire()).await else {
            return ForwardResult::Never(format!("{why}; and too many calls wait for Perl"));
        };
        self.used.store(true, Ordering::Relaxed);
        tracing::warn!(
            reason = why,
            method = %request.method,
            path = %request.path,
            "the PVE HTTP API cannot be used: this call goes through PVE's Perl code (slow)"
        );
        match timeout_at(end, self.run(request)).await {
            Ok(sent) => sent,
            Err(_) => ForwardResult::Unknown(format!("{why}; Perl did not answer in time")),
        }
    }

    fn command(&self) -> Command {
        // The task's worker outlives the call that forked it.
        let properties = ["KillMode=process"];
        let description = "a PVE call through Perl";
        let mut command = perl::outside(&self.systemd_run, description, &properties);
        command
            .arg(&self.perl)
            .args(["-e", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        perl::secluded(&mut command);
        command
    }

    async fn run(&self, request: &PveRequest) -> ForwardResult {
        let not_sent = |why: String| ForwardResult::Never(format!("PVE's Perl code: {why}"));
        let mut child = match self.command().spawn() {
            Ok(child) => child,
            Err(error) => {
                return not_sent(format!("{}: {error}", self.systemd_run.display()));
            }
        };
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return not_sent("it has no pipes".to_owned());
        };
        let input = json!({
            "method": request.method.to_string(),
            "path": crate::broker::form::plain_path(&request.path),
            "params": fields(&request.params),
        });
        // Perl begins only when it has read to the end.
        let written = stdin.write_all(input.to_string().as_bytes()).await;
        drop(stdin);
        if let Err(error) = written {
            return not_sent(format!("it did not take the call: {error}"));
        }
        let most = u64::try_from(gate::most(request)).unwrap_or(0);
        let mut line = Vec::new();
        let mut reader = BufReader::new(stdout.take(most));
        let read = reader.read_until(b'\n', &mut line).await;
        let status = child.wait().await;
        let printed = read
            .ok()
            .and_then(|_| serde_json::from_slice::<PrintedAnswer>(&line).ok());
        match printed {
            Some(printed) => ForwardResult::Answer(answer(&printed)),
            None => ForwardResult::Unknown(format!(
                "PVE's Perl code gave no answer ({})",
                status.map_or_else(|error| error.to_string(), |status| status.to_string())
            )),
        }
    }
}

/// In the shape that pveproxy gives.
fn answer(printed: &PrintedAnswer) -> PveAnswer {
    let body = if (200..300).contains(&printed.status) {
        json!({ "data": printed.data })
    } else if printed.errors.is_empty() {
        json!({ "data": null, "message": printed.message })
    } else {
        json!({ "data": null, "message": printed.message, "errors": printed.errors })
    };
    PveAnswer {
        status: printed.status,
        reason: printed.message.lines().next().unwrap_or("OK").to_owned(),
        body: body.to_string().into_bytes(),
    }
}

/// Parameters as Perl takes them: a repeated one is an array.
fn fields(params: &[(String, String)]) -> Map<String, Value> {
    let mut fields = Map::new();
    for (name, value) in params {
        match fields.get_mut(name) {
            None => {
                fields.insert(name.clone(), Value::from(value.as_str()));
            }
            Some(Value::Array(list)) => list.push(Value::from(value.as_str())),
            Some(one) => *one = json!([one.take(), value]),
        }
    }
    fields
}

pub(super) fn host_of(path: &str) -> Option<&str> {
    path.strip_prefix("/nodes/")?.split('/').next()
}

/// The host's own name in PVE: its host name without a domain.
pub(super) fn hostname() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default();
    let name = name.to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use super::*;
    use crate::pve::HttpMethod;

    /// A run takes milliseconds; one that waits for an end that does not come is told after this.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn executable(folder: &tempfile::TempDir, name: &str, script: &str) -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, mode).expect("it is ours");
        path
    }

    /// The way through a program that does this in Perl's place; it runs in the folder.
    fn fallback(folder: &tempfile::TempDir, script: &str) -> Fallback {
        let outside = "while [ \"$1\" != -- ]; do shift; done; shift; exec \"$@\"";
        let script = format!("cd '{}'\n{script}", folder.path().display());
        Fallback {
            systemd_run: executable(folder, "systemd-run", outside),
            perl: executable(folder, "perl", &script),
            slots: Semaphore::new(AT_ONCE),
            used: AtomicBool::new(false),
        }
    }

    fn request(path: &str) -> PveRequest {
        PveRequest {
            call: "start",
            method: HttpMethod::Post,
            path: path.to_owned(),
            params: vec![("timeout".to_owned(), "7".to_owned())],
            multipart: false,
            timeout: PATIENCE,
        }
    }

    async fn sent(fallback: &Fallback, request: &PveRequest) -> ForwardResult {
        let end = Instant::now() + PATIENCE;
        fallback.send(request, "pveproxy is away", end).await
    }

    /// Perl reads its input to the end before it begins, so that the end must come: a call whose input stays open hangs.
    #[tokio::test]
    async fn a_call_goes_in_whole_with_an_end_and_its_answer_comes_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let fallback = fallback(
            &folder,
            "cat >input; echo '{\"status\":200,\"data\":\"UPID\"}'",
        );
        let path = format!("/nodes/{}/qemu/9001/status/start", hostname());
        let result = sent(&fallback, &request(&path)).await;
        let ForwardResult::Answer(answer) = result else {
            panic!("{result:?}");
        };
        assert_eq!(
            (answer.status, &*answer.body),
            (200, &br#"{"data":"UPID"}"#[..])
        );
        let input = std::fs::read(folder.path().join("input")).expect("it was read");
        let input: Value = serde_json::from_slice(&input).expect("JSON");
        let wanted = json!({ "method": "POST", "path": path, "params": { "timeout": "7" } });
        assert_eq!(input, wanted);
        assert!(fallback.in_use());
        fallback.rest();
        assert!(!fallback.in_use());
    }

    /// What may have been carried out is not asked for again, and what surely was not is told as that.
    #[tokio::test]
    async fn a_run_without_an_answer_may_have_done_it() {
        let own = format!("/nodes/{}/qemu/9001/status/start", hostname());
        let folder = tempfile::tempdir().expect("a folder");
        for script in ["cat >/dev/null", "cat >/dev/null; echo '{\"status\":20'"] {
            let result = sent(&fallback(&folder, script), &request(&own)).await;
            assert!(matches!(result, ForwardResult::Unknown(_)), "{result:?}");
        }
        let perl = "echo '{\"status\":200}'";
        let of_files = PveRequest {
            multipart: true,
            ..request(&own)
        };
        for (request, words) in [
            (
                request("/nodes/elsewhere/qemu/9001/status/start"),
                "host elsewhere cannot be reached",
            ),
            (of_files, "over its HTTP API alone"),
        ] {
            let fallback = fallback(&folder, perl);
            let result = sent(&fallback, &request).await;
            let ForwardResult::Never(why) = result else {
                panic!("{result:?}");
            };
            assert!(
                why.starts_with("pveproxy is away; ") && why.contains(words),
                "{why}"
            );
            assert!(!fallback.in_use(), "{why}");
        }
        let mut without = fallback(&folder, perl);
        without.systemd_run = folder.path().join("none");
        let result = sent(&without, &request(&own)).await;
        assert!(matches!(result, ForwardResult::Never(_)), "{result:?}");
    }

    /// Errors have the shape that pveproxy gives them.
    #[test]
    fn an_answer_has_data_or_what_went_wrong() {
        let printed = |text: &str| {
            let answer = answer(&serde_json::from_str(text).expect("it is one"));
            let body: Value = serde_json::from_slice(&answer.body).expect("JSON");
            (answer.status, answer.reason, body)
        };
        for (text, wanted) in [
            (
                r#"{"status":200,"data":[1]}"#,
                (200, "OK", json!({ "data": [1] })),
            ),
            (
                r#"{"status":500,"message":"VM is locked\n"}"#,
                (
                    500,
                    "VM is locked",
                    json!({ "data": null, "message": "VM is locked\n" }),
                ),
            ),
            (
                r#"{"status":400,"message":"no","errors":{"newid":"taken"}}"#,
                (
                    400,
                    "no",
                    json!({ "data": null, "message": "no", "errors": { "newid": "taken" } }),
                ),
            ),
        ] {
            let (status, reason, body) = printed(text);
            assert_eq!((status, &*reason, body), wanted, "{text}");
        }
    }

    #[test]
    fn a_repeated_parameter_is_an_array() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let params = [
            pair("c", "a"),
            pair("p", "1"),
            pair("c", "b"),
            pair("c", "d"),
        ];
        assert_eq!(
            Value::Object(fields(&params)),
            json!({"c": ["a", "b", "d"], "p": "1"})
        );
    }

    #[test]
    fn the_host_is_found_in_the_path() {
        assert_eq!(host_of("/nodes/pve1/qemu/9/config"), Some("pve1"));
        assert_eq!(host_of("/nodes/pve1"), Some("pve1"));
        assert_eq!(host_of("/cluster/status"), None);
    }
}
