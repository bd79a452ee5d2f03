//! Talking to the guest: the agent answers, the system is up, kubeadm joins.

use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::{Instant, sleep, sleep_until};

use crate::config::settings::JoinMethod;
use crate::controller::guest::{self, GuestProbe, JoinState};
use crate::model::foreign::ForeignOutput;
use crate::model::time::Span;
use crate::pve::FailureCause;

use super::work::{Stop, Work, is_transient, pace_alone};
use super::{joining, node};

/// Longest pause between two questions while the guest boots or kubeadm runs.
const LONGEST_POLL: Duration = Duration::from_secs(1);
/// A question that was itself waited with, PVE for the agent or the guest for cloud-init, three seconds
/// both, is asked again at once: what begins or ends in the meantime answers it.
const NEXT_QUESTION: Duration = Duration::from_millis(50);
/// Between two looks whether a VM runs whose guest nobody asks.
const FIRST_BOOT_LOOK: Duration = Duration::from_secs(15);
/// What stands in the failure of a machine whose guest agent runs no commands.
pub const REFUSES_COMMANDS: &str = "the guest agent must allow guest-exec";
/// How many of the first looks at a script's output follow each other quickly, however many machines are worked on.
const QUICK_LOOKS: u32 = 2;
/// A guest that takes longer to answer may be one that does not run at all.
const USUAL_BOOT: Duration = Duration::from_secs(30);
/// Before a guest command that could not be run is run again.
const AGAIN: Duration = Duration::from_secs(1);
/// Our scripts end within seconds; one that does not is given up and asked again.
const EXEC_DEADLINE: Duration = Duration::from_mins(1);
/// Characters of kubeadm's log that go into a failure's message.
const CAUSE_LENGTH: usize = 800;

/// Waits until the agent answers.
pub(super) async fn agent_answers(work: &Work) -> Result<(), Stop> {
    let began = Instant::now();
    loop {
        let asked = Instant::now();
        let host = work.host()?;
        let turn = work
            .tools
            .ping_permit(&work.entry()?.target.region, &host)
            .await;
        let answer = work.pve.agent_ping(&host, work.mark.vmid).await;
        drop(turn);
        match answer {
            Ok(()) => return Ok(()),
            Err(error) => match error.cause() {
                FailureCause::AgentNotConfigured => {
                    return Err(error.into());
                }
                // So it is while the guest boots.
                FailureCause::AgentNotRunning | FailureCause::Agent(_) | FailureCause::Timeout => {
                    let stopped = stopped_by_qemu(work, &host, began).await;
                    // PVE's words, and what to do, would alarm whoever looks on while a guest boots as usual.
                    let silent = if began.elapsed() < USUAL_BOOT {
                        "the guest agent does not answer yet: the guest boots".to_owned()
                    } else {
                        format!("the guest agent does not answer: {error}")
                    };
                    work.progress(stopped.unwrap_or(silent));
                }
                // It may have moved: find it again.
                FailureCause::Gone => {
                    super::vm::ours(work).await?;
                }
                FailureCause::NotRunning => return Err(went_off(work).await),
                _ if is_transient(&error) => work.note_outage(error.to_string()),
                _ => return Err(error.into()),
            },
        }
        next_question(work, began, asked).await;
    }
}

/// Waits until a machine that cloud-init joins, or that joins by itself, has its node. Nobody in it is asked: its agent may refuse that, or not be there.
pub(super) async fn joins_by_itself(work: &Work, uuid: &str) -> Result<(), Stop> {
    let vmid = work.mark.vmid;
    let by_itself = joining::method(work) == JoinMethod::Itself;
    let mut stopped = None;
    loop {
        let usual = if by_itself {
            format!(
                "the machine has not joined by itself yet: its node has its name, {}, and the VM's UUID; its console shows how far it is (`qm terminal {vmid}`)",
                work.machine
            )
        } else {
            format!(
                "cloud-init has not joined the machine yet; its console shows how far it is (`qm terminal {vmid}`), and in it /var/log/cloud-init-output.log"
            )
        };
        work.progress(stopped.take().unwrap_or(usual));
        let ends = Instant::now() + FIRST_BOOT_LOOK;
        while Instant::now() < ends {
            if node::has_joined(work, uuid)? {
                // Its kubelet has its own certificate; what made it may need the token for a moment more.
                node::becomes_ready(work, uuid, FIRST_BOOT_LOOK).await;
                return Ok(());
            }
            let left = ends.saturating_duration_since(Instant::now());
            if node::becomes_ready(work, uuid, left.min(LONGEST_POLL)).await {
                return Ok(());
            }
        }
        let host = work.host()?;
        match work.pve.vm_status(&host, vmid).await {
            Ok(status) if status.running => stopped = status.stopped_by_qemu(),
            Ok(_) => return Err(went_off(work).await),
            Err(error) if error.cause() == FailureCause::Gone => drop(super::vm::ours(work).await?),
            Err(error) if is_transient(&error) => work.note_outage(error.to_string()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Why QEMU has stopped a VM whose guest does not answer; `None` where it runs, or cannot be asked. Nobody asks for the first
/// [`USUAL_BOOT`]: the guest boots.
async fn stopped_by_qemu(work: &Work, host: &Arc<str>, began: Instant) -> Option<String> {
    if began.elapsed() < USUAL_BOOT {
        return None;
    }
    let status = work.pve.vm_status(host, work.mark.vmid).await.ok()?;
    status.stopped_by_qemu()
}

/// The VM is off, though it was started: by its own doing, or because its host went down with it.
pub(super) async fn went_off(work: &Work) -> Stop {
    let message = "the VM stopped while it was coming up";
    let Ok(host) = work.host() else {
        return Stop::Failed(message.to_owned());
    };
    let uptime = match work.pve.node_status(&host).await {
        Ok(status) => Span::seconds(status.uptime.max(0)),
        Err(error) => return Stop::Transient(format!("{message}, and its host: {error}")),
    };
    let age = work.tools.clock.now().since(work.mark.created);
    if uptime < age {
        return Stop::Transient(format!(
            "{message}: its host {host} was started {uptime} ago, after it"
        ));
    }
    match work.failed_start().await {
        Some(start) => Stop::of_failed_start(message, &start),
        None => Stop::Failed(message.to_owned()),
    }
}

/// Waits until the guest may be asked again what it was asked at `asked`.
async fn next_question(work: &Work, began: Instant, asked: Instant) {
    let next = asked + work.pace(began, LONGEST_POLL);
    sleep_until(next.max(Instant::now() + NEXT_QUESTION)).await;
}

/// Waits until the operating system is up; gives what the guest said then.
pub(super) async fn system_ready(work: &Work) -> Result<GuestProbe, Stop> {
    let began = Instant::now();
    loop {
        let asked = Instant::now();
        let output = run(work, guest::PROBE, None).await?;
        match GuestProbe::read(&output) {
            Some(probe) if probe.ready() => {
                if probe.cloud_init == "error" || probe.cloud_init == "degraded" {
                    tracing::warn!(machine = %work.machine, cloud_init = %probe.cloud_init,
                        "cloud-init reported errors; the machine continues; see `cloud-init status --long` in the guest");
                }
                return Ok(probe);
            }
            Some(probe) => work.progress(format!(
                "cloud-init is {}, systemd is {}",
                probe.cloud_init, probe.system
            )),
            None => work.note("the guest's answer could not be read".to_owned()),
        }
        next_question(work, began, asked).await;
    }
}

/// Joins, or attaches to the join that runs, and waits for its end, or until the node is Ready:
/// then it has joined, whatever kubeadm still does. `probe`: what the guest said just now.
pub(super) async fn joined(work: &Work, probe: &GuestProbe, uuid: &str) -> Result<(), Stop> {
    let began = Instant::now();
    let called = joining::method(work).called();
    let mut state = if probe.fresh {
        Some(JoinState::None)
    } else {
        JoinState::read(&run(work, guest::STATE, None).await?)
    };
    loop {
        if state == Some(JoinState::None) {
            state = Some(start_join(work, probe).await?);
        }
        match state {
            Some(JoinState::None) => {
                return Err(Stop::Failed("the join did not start".to_owned()));
            }
            Some(JoinState::Running) => work.progress(format!("{called} runs")),
            Some(JoinState::Exited { code: 0, .. }) => return Ok(()),
            Some(JoinState::Exited { code, log }) => {
                let log = joining::without_secret(work, log).await;
                let cause = guest::cause(&log, &work.mark.token, CAUSE_LENGTH);
                let log = guest::last_lines(&log, &work.mark.token);
                tracing::error!(machine = %work.machine, code, %log, "{called} failed");
                return Err(Stop::Failed(format!(
                    "{called} failed with code {code}: {cause}"
                )));
            }
            None => work.note("the guest's answer could not be read"),
        }
        if node::becomes_ready(work, uuid, work.pace(began, LONGEST_POLL)).await {
            return Ok(());
        }
        state = JoinState::read(&run(work, guest::STATE, None).await?);
    }
}

async fn start_join(work: &Work, probe: &GuestProbe) -> Result<JoinState, Stop> {
    let payload = joining::payload(work, probe).await?;
    let output = run(work, guest::JOIN, Some(&payload)).await?;
    JoinState::read(&output).ok_or_else(|| {
        let said = guest::cause(&output, &work.mark.token, CAUSE_LENGTH);
        Stop::Failed(format!("the join did not start: {said}"))
    })
}

/// Runs one of our scripts and gives its output. Asked again when the agent went away in between
/// (a reboot, an upgrade): every script may be run again.
async fn run(
    work: &Work,
    script: &str,
    stdin: Option<&SecretString>,
) -> Result<ForeignOutput, Stop> {
    loop {
        match tokio::time::timeout(EXEC_DEADLINE, run_once(work, script, stdin)).await {
            Ok(Ok(Some(output))) => return Ok(output),
            Ok(Ok(None)) => {}
            Ok(Err(stop)) => return Err(stop),
            Err(_) => work.note("a guest command did not end"),
        }
        sleep(AGAIN).await;
    }
}

/// `None`: try again.
async fn run_once(
    work: &Work,
    script: &str,
    stdin: Option<&SecretString>,
) -> Result<Option<ForeignOutput>, Stop> {
    let host: Arc<str> = work.host()?;
    let vmid = work.mark.vmid;
    let command = guest::command(script);
    let input = stdin.map_or("", |secret| secret.expose_secret());
    let pid = match work.pve.agent_exec(&host, vmid, &command, input).await {
        Ok(pid) => pid,
        Err(error) => return again(work, &error).await.map(|()| None),
    };
    let began = Instant::now();
    let mut looks = 0u32;
    loop {
        // Most of our scripts end at once; what one of them said is not waited for as long as a boot.
        let pause = if looks < QUICK_LOOKS {
            pace_alone(began.elapsed())
        } else {
            work.pace(began, LONGEST_POLL)
        };
        sleep(pause).await;
        looks = looks.saturating_add(1);
        match work.pve.agent_exec_status(&host, vmid, pid).await {
            Ok(None) => {}
            Ok(Some(result)) if result.exit_code == Some(0) => return Ok(Some(result.stdout)),
            Ok(Some(result)) => {
                let code = result
                    .exit_code
                    .map_or_else(|| "a signal".to_owned(), |code| code.to_string());
                return Err(Stop::Failed(format!(
                    "a guest script ended with {code}: {}",
                    guest::cause(
                        &format!("{}\n{}", result.stdout.raw(), result.stderr.raw()).into(),
                        &work.mark.token,
                        CAUSE_LENGTH
                    )
                )));
            }
            Err(error) => return again(work, &error).await.map(|()| None),
        }
    }
}

/// Notes an error that asking again may mend, else stops.
async fn again(work: &Work, error: &crate::pve::transport::CallError) -> Result<(), Stop> {
    match error.cause() {
        // A backup freezes the guest's file systems for a moment, and the agent with them.
        FailureCause::Agent(text) if text.contains("frozen") => {
            work.note(error.to_string());
            Ok(())
        }
        FailureCause::Agent(text)
            if text.contains("disabled")
                || text.contains("not allowed")
                || text.contains("blacklisted") =>
        {
            Err(Stop::Failed(format!(
                "{}; {REFUSES_COMMANDS} (BLOCK_RPCS or allow-rpcs in its configuration), or cloud-init joins its machines: delivery = \"cloud-init\" in [pool.{}.join]",
                error.words(),
                work.mark.pool
            )))
        }
        // It may have moved: find it again.
        FailureCause::Gone => {
            work.note(error.to_string());
            super::vm::ours(work).await.map(drop)
        }
        FailureCause::AgentNotRunning
        | FailureCause::Agent(_)
        | FailureCause::ExecForgotten
        | FailureCause::Timeout => {
            work.note(error.to_string());
            Ok(())
        }
        FailureCause::NotRunning => Err(went_off(work).await),
        _ if is_transient(error) => {
            work.note_outage(error.to_string());
            Ok(())
        }
        _ => Err(Stop::of_call("the guest agent", error)),
    }
}
