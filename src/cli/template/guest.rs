//! A template's guest while it is built: commands through its agent, their output as it comes.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use tokio::time::{Instant, sleep};

use crate::model::time::Span;
use crate::pve::{Client, ExecResult};

/// Between two looks at a step.
const PAUSE: Duration = Duration::from_secs(2);
/// Between two lines about an agent that does not answer yet.
const NEWS: Duration = Duration::from_mins(1);
/// One command of the protocol: it starts something, or reads a file.
const COMMAND: Duration = Duration::from_mins(1);
/// Looks at a step that may fail one after the other: the agent restarts when its package is upgraded.
const FAILURES: u32 = 30;
const START: &str = include_str!("scripts/start.sh");
const FOLLOW: &str = include_str!("scripts/follow.sh");
const READY: &str = include_str!("scripts/ready.sh");

/// The guest of a VM.
#[derive(Clone, Copy, Debug)]
pub(super) struct TemplateGuest<'a> {
    pub(super) client: &'a Client,
    pub(super) host: &'a str,
    pub(super) vmid: u32,
}

/// How far a step is.
#[derive(Debug, Default, PartialEq, Eq)]
struct Progress {
    state: String,
    exit: Option<i64>,
    size: u64,
    next: u64,
    text: String,
}

impl Progress {
    fn read(output: &str) -> Progress {
        let (head, text) = output.split_once("---\n").unwrap_or((output, ""));
        let value = |key: &str| {
            let lines = head.lines().filter_map(|line| line.split_once('='));
            lines
                .filter(|(name, _)| *name == key)
                .map(|(_, value)| value.trim())
                .next()
        };
        let number = |key: &str| value(key).and_then(|text| text.parse::<u64>().ok());
        Progress {
            state: value("state").unwrap_or_default().to_owned(),
            exit: value("exit").and_then(|text| text.parse().ok()),
            size: number("size").unwrap_or(0),
            next: number("next").unwrap_or(0),
            text: text.to_owned(),
        }
    }
}

impl TemplateGuest<'_> {
    /// Waits until the agent answers, and says now and then that it still waits. `kept`: the VM stays when it does not.
    pub(super) async fn answers(
        self,
        (within, kept): (Duration, bool),
        mut line: impl FnMut(&str) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let begun = Instant::now();
        let end = begun + within;
        let mut told = begun;
        loop {
            let Err(error) = self.client.agent_ping(self.host, self.vmid).await else {
                return Ok(());
            };
            // Nobody waits for a guest that does not run at all.
            let status = self.client.vm_status(self.host, self.vmid).await;
            if let Some(stopped) = status.ok().and_then(|status| status.stopped_by_qemu()) {
                bail!("the guest of VM {} cannot answer: {stopped}", self.vmid);
            }
            if Instant::now() >= end {
                let again = if kept {
                    ""
                } else {
                    "build again with --keep-failed: "
                };
                bail!(
                    "the guest agent of VM {} did not answer within {}: {error}. It is installed at the first boot from the \
                     distribution's mirrors: is there an address (ipconfig), a name server, a way out of the bridge? {again}`qm terminal \
                     VMID --iface serial0` on {} shows the guest's console",
                    self.vmid,
                    span(within),
                    self.host
                );
            }
            if told.elapsed() >= NEWS {
                told = Instant::now();
                line(&format!(
                    "the agent does not answer yet, {} after the start; at most {}",
                    span(begun.elapsed()),
                    span(within)
                ))?;
            }
            sleep(PAUSE).await;
        }
    }

    /// Waits until the first boot is over and the agent runs commands: until then cloud-init may restart it, and with it whatever it
    /// runs; on systems like RHEL it refuses commands before.
    pub(super) async fn ready(self, within: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + within;
        loop {
            let last = match self.exec(READY, &[], "").await {
                Ok(result) if result.stdout.raw().contains("state=booting") => {
                    anyhow!("cloud-init is still at work")
                }
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            if Instant::now() >= end {
                return Err(last.context(format!(
                    "the first boot of VM {} was not over within {}",
                    self.vmid,
                    span(within)
                )));
            }
            sleep(PAUSE).await;
        }
    }

    /// Runs a script to its end, and hands out its output line by line.
    pub(super) async fn run(
        self,
        step: &str,
        script: &str,
        within: Duration,
        mut line: impl FnMut(&str),
    ) -> anyhow::Result<i64> {
        let end = Instant::now() + within;
        let started = self.exec(START, &[step], script).await?;
        if started.exit_code != Some(0) {
            bail!("the step could not be started: {}", ending(&started));
        }
        let (mut from, mut rest, mut failures) = (0, String::new(), 0);
        loop {
            let offset = from.to_string();
            let looked = self.exec(FOLLOW, &[step, &offset], "").await;
            let progress = match looked {
                Ok(result) if result.exit_code == Some(0) => Progress::read(result.stdout.raw()),
                Ok(_) | Err(_) if failures < FAILURES && Instant::now() < end => {
                    failures += 1;
                    sleep(PAUSE).await;
                    continue;
                }
                Ok(result) => bail!("cannot look at the step: {}", ending(&result)),
                Err(error) => return Err(error.context("cannot look at the step")),
            };
            failures = 0;
            from = progress.next;
            rest.push_str(&progress.text);
            while let Some((one, more)) = rest.split_once('\n') {
                line(shown(one));
                rest = more.to_owned();
            }
            let drained = progress.next >= progress.size;
            match &*progress.state {
                "exited" if drained => {
                    if !rest.is_empty() {
                        line(shown(&rest));
                    }
                    return Ok(progress.exit.unwrap_or(255));
                }
                "killed" if drained => {
                    if !rest.is_empty() {
                        line(shown(&rest));
                    }
                    bail!(
                        "something ended it: the guest was out of memory (`journalctl -k` there tells), or its agent was stopped with \
                         all that it had started"
                    );
                }
                "none" => bail!("the guest knows nothing of the step any more: did it restart?"),
                _ if Instant::now() >= end => {
                    bail!(
                        "it did not end within {} (timeout of the build)",
                        span(within)
                    );
                }
                _ if drained => sleep(PAUSE).await,
                _ => {}
            }
        }
    }

    /// Runs a short script of the protocol; `words` are its arguments.
    pub(super) async fn exec(
        self,
        script: &str,
        words: &[&str],
        stdin: &str,
    ) -> anyhow::Result<ExecResult> {
        let mut argv = vec!["/bin/sh", "-c", script, "pve-autoscaler"];
        argv.extend_from_slice(words);
        let end = Instant::now() + COMMAND;
        let (host, vmid) = (self.host, self.vmid);
        let pid = self
            .client
            .agent_exec(host, vmid, &argv, stdin)
            .await
            .context("running a command in the guest")?;
        loop {
            let status = self.client.agent_exec_status(host, vmid, pid).await;
            if let Some(result) = status.context("waiting for a command in the guest")? {
                return Ok(result);
            }
            if Instant::now() >= end {
                bail!(
                    "a command in the guest did not end within {}",
                    span(COMMAND)
                );
            }
            sleep(Duration::from_millis(300)).await;
        }
    }
}

/// The text of a line that a terminal shows in the end: what stands behind the last carriage return, those at the end aside (dpkg
/// writes CR LF).
fn shown(line: &str) -> &str {
    let line = line.trim_end_matches('\r');
    line.rsplit('\r').next().unwrap_or(line)
}

/// A length of time as people read it.
pub(super) fn span(length: Duration) -> Span {
    Span::seconds(i64::try_from(length.as_secs()).unwrap_or(i64::MAX / 1_000))
}

/// How a command in the guest ended, and what it said.
pub(super) fn ending(result: &ExecResult) -> String {
    let text = [result.stderr.raw(), result.stdout.raw()].join(" ");
    told(result.exit_code, text.trim())
}

fn told(exit_code: Option<i64>, text: &str) -> String {
    let said = if text.is_empty() {
        "it said nothing"
    } else {
        text
    };
    match exit_code {
        Some(0) if text.is_empty() => "its command ended well and said nothing".to_owned(),
        Some(0) => format!("its command ended well and said: {text}"),
        Some(code) => format!("exit code {code}: {said}"),
        None => format!("a signal ended it: {said}"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::{Command, Stdio};

    use super::{FOLLOW, Progress, START, told};

    /// apt reads its keys as a user of its own: a step's files are as a person at a terminal makes them. Its log is root's.
    #[test]
    fn how_a_command_ended_is_told_in_words() {
        assert_eq!(told(Some(0), ""), "its command ended well and said nothing");
        assert_eq!(told(Some(127), ""), "exit code 127: it said nothing");
        assert_eq!(told(Some(1), "no sh"), "exit code 1: no sh");
        assert_eq!(told(None, ""), "a signal ended it: it said nothing");
    }

    #[test]
    fn a_steps_files_are_readable_and_its_log_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name).display().to_string();
        let script = START.replace("/run/pve-autoscaler-build", &at("build"));
        let step = format!("mkdir {} && echo key >{}\n", at("keys"), at("keys/key"));
        std::fs::write(at("step"), step).expect("written");
        let started = Command::new("/bin/sh")
            .args(["-c", &script, "pve-autoscaler", "install"])
            .stdin(Stdio::from(std::fs::File::open(at("step")).expect("there")))
            .output()
            .expect("it runs");
        assert_eq!(String::from_utf8_lossy(&started.stdout), "state=started\n");
        let ended = (0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            std::fs::read_to_string(at("build/install.exit")).is_ok_and(|code| code == "0\n")
        });
        assert!(ended, "the step did not end");
        let mode = |name: &str| {
            std::fs::metadata(at(name))
                .expect("there")
                .permissions()
                .mode()
                & 0o777
        };
        assert_eq!((mode("keys"), mode("keys/key")), (0o755, 0o644));
        assert_eq!((mode("build"), mode("build/install.log")), (0o700, 0o600));
    }

    #[test]
    fn a_step_that_something_ended_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name).display().to_string();
        let shell = |script: &str, words: &[&str], stdin: Stdio| {
            let script = script.replace("/run/pve-autoscaler-build", &at("build"));
            let run = Command::new("/bin/sh")
                .args(["-c", &script, "pve-autoscaler", "install"])
                .args(words)
                .stdin(stdin)
                .output();
            String::from_utf8_lossy(&run.expect("it runs").stdout).into_owned()
        };
        std::fs::write(at("step"), "echo begun\nsleep 300\n").expect("written");
        let step = std::fs::File::open(at("step")).expect("there");
        assert_eq!(shell(START, &[], Stdio::from(step)), "state=started\n");
        let said = || shell(FOLLOW, &["0"], Stdio::null());
        let tries = |wanted: &str| {
            (0..500).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(20));
                said() == wanted
            })
        };
        assert!(
            tries("state=running\nsize=6\nnext=6\n---\nbegun\n"),
            "{}",
            said()
        );
        let kill = "kill -s KILL -- \"-$(cat /run/pve-autoscaler-build/$1.pid)\"";
        shell(kill, &[], Stdio::null());
        assert!(
            tries("state=killed\nsize=6\nnext=6\n---\nbegun\n"),
            "{}",
            said()
        );
    }

    #[test]
    fn progress_is_read_from_the_protocol() {
        let read = Progress::read("state=exited\nexit=3\nsize=12\nnext=10\n---\nhello\n---\n");
        assert_eq!((read.exit, read.size, read.next), (Some(3), 12, 10));
        assert_eq!(read.state, "exited");
        assert_eq!(read.text, "hello\n---\n");
        assert_eq!(Progress::read("").state, "");
    }
}
