//! The daemon itself: whether systemd has it running, whether it answers, and whether it runs this configuration.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command as Program;
use tokio::time::{Instant, sleep, timeout};

use super::Here;
use super::finding::Findings;
use crate::cli::args::CONTROL_SOCKET;
use crate::controller::control::{self, ControlCommand};
use crate::controller::status::{DaemonStatus, directory_of};

const UNIT: &str = "pve-autoscaler.service";
/// Where systemd runs, and nowhere else.
const SYSTEMD: &str = "/run/systemd/system";
/// systemctl asks a process that is there; it takes no second.
const PATIENCE: Duration = Duration::from_secs(5);

/// `systemctl reload` ends when the daemon was told of it, a moment before it has the file …
const RELOAD: Duration = Duration::from_secs(5);
/// … and so often it is asked meanwhile.
const AGAIN: Duration = Duration::from_millis(200);

/// Gives a daemon a moment that runs with what stood in this file before: it may be about to take up what stands in it now.
pub(super) async fn settled(here: &Here) {
    let end = Instant::now() + RELOAD;
    while here.runs && Instant::now() < end {
        let answer = control::ask(&here.control, &ControlCommand::Status).await;
        let status = answer.map(serde_json::from_value::<DaemonStatus>);
        let Ok(Ok(status)) = status else {
            return;
        };
        let is_this = status.configuration.is_empty() || status.configuration == here.digest;
        if is_this || runs_elsewhere(&status, here) {
            return;
        }
        sleep(AGAIN).await;
    }
}

/// Whether the daemon was started with another file, which no reload changes.
fn runs_elsewhere(status: &DaemonStatus, here: &Here) -> bool {
    !status.configuration_file.is_empty() && status.configuration_file != here.file
}

/// What is looked at, with the directory that the daemon says is its own, where nobody named one. The package's stands for it where
/// no daemon says; with another socket than the package's that is told.
pub(super) async fn with_its_directory(here: &Here, findings: &mut Findings) -> Here {
    let mut found = here.clone();
    if here.state_is_named {
        return found;
    }
    let answer = timeout(
        here.patience,
        control::ask(&here.control, &ControlCommand::Status),
    );
    let status = match answer.await {
        Ok(Ok(status)) => serde_json::from_value::<DaemonStatus>(status).ok(),
        _ => None,
    };
    let record = status.as_ref().map(|status| status.record.as_str());
    if let Some(directory) = record.and_then(directory_of) {
        directory.clone_into(&mut found.state);
    } else if here.control != Path::new(CONTROL_SOCKET) {
        findings
            .warning(format!(
                "daemon: none at {} says where its own directory is: {} was looked at",
                here.control.display(),
                here.state.display()
            ))
            .mend("--state-directory names another");
    }
    found
}

/// Looks at the unit, and asks the daemon.
pub(super) async fn look(here: &Here, findings: &mut Findings) {
    let unit = unit().await;
    if let Some(state) = &unit {
        judge_unit(state, findings);
    }
    let answer = control::ask(&here.control, &ControlCommand::Status).await;
    match answer.map(serde_json::from_value::<DaemonStatus>) {
        Ok(Ok(status)) => judge_status(&status, here, findings),
        Ok(Err(error)) => {
            findings
                .warning(format!("daemon: its status cannot be read: {error}"))
                .mend("systemctl restart pve-autoscaler, if this program was upgraded");
        }
        Err(error) if unit.as_deref() == Some("active") => {
            findings
                .wrong(format!("daemon: {error}"))
                .mend("journalctl -u pve-autoscaler -n 50");
        }
        Err(_) if unit.is_some() => {}
        // There is a socket, and nobody behind it, or it lets this user not in.
        Err(error) if here.control.exists() => {
            findings
                .warning(format!("daemon: {error}"))
                .mend("pve-autoscaler status, as root");
        }
        Err(_) => findings.fine(format!(
            "daemon: none answers at {}",
            here.control.display()
        )),
    }
}

/// What systemd says of the unit; `None` where there is no systemd to ask.
async fn unit() -> Option<String> {
    std::fs::metadata(SYSTEMD).ok()?;
    let asked = Program::new("systemctl")
        .args(["show", "--property=ActiveState", "--value", UNIT])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(PATIENCE, asked).await.ok()?.ok()?;
    let state = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (!state.is_empty()).then_some(state)
}

fn judge_unit(state: &str, findings: &mut Findings) {
    match state {
        "active" => findings.fine(format!("daemon: {UNIT} is active")),
        "failed" | "activating" => findings
            .wrong(format!("daemon: {UNIT} is {state}"))
            .mend("journalctl -u pve-autoscaler -n 50 says why; systemctl restart pve-autoscaler"),
        _ => findings
            .warning(format!("daemon: {UNIT} is {state}"))
            .mend("systemctl enable --now pve-autoscaler"),
    }
}

fn judge_status(status: &DaemonStatus, here: &Here, findings: &mut Findings) {
    let before = findings.0.len();
    if status.version != env!("CARGO_PKG_VERSION") {
        findings
            .warning(format!(
                "daemon: it is version {}, this program {}",
                status.version,
                env!("CARGO_PKG_VERSION")
            ))
            .mend("systemctl restart pve-autoscaler");
    }
    let is_other = !status.configuration.is_empty() && status.configuration != here.digest;
    if is_other && runs_elsewhere(status, here) {
        let file = &status.configuration_file;
        findings
            .warning(format!("daemon: it runs with another file, {file}"))
            .mend(format!(
                "pve-autoscaler doctor --config {file} looks at that one"
            ));
    } else if is_other {
        findings
            .warning("daemon: it runs with another configuration than this file")
            .mend("systemctl reload pve-autoscaler");
    }
    for problem in &status.problems {
        findings
            .warning(format!("daemon: it says: {problem}"))
            .mend("pve-autoscaler status");
    }
    if let Some(reason) = &status.paused {
        findings
            .warning(format!("daemon: it is paused: {reason}"))
            .mend("pve-autoscaler resume");
    }
    if findings.0.len() == before {
        findings.fine(if status.configuration.is_empty() {
            "daemon: it answers; it does not say which file it runs with, as a demo does not"
        } else {
            "daemon: it answers and runs with this file"
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::control::{ControlAnswer, Handler, SocketClock};

    /// The daemon at a socket of its own says where its directory is; where none says, the one that was looked at is named, and a
    /// person's word goes before both.
    #[tokio::test]
    async fn the_directory_is_that_of_the_daemon_that_is_asked() {
        let folder = tempfile::tempdir().expect("a folder");
        let here = Here {
            state_is_named: false,
            patience: Duration::from_secs(20),
            ..Here::of_test(folder.path())
        };
        let mut findings = Findings::default();
        let found = with_its_directory(&here, &mut findings).await;
        assert_eq!(found.state, here.state);
        let said = findings.0.first().map(ToString::to_string);
        let words = format!("is: {} was looked at", here.state.display());
        assert!(said.is_some_and(|said| said.contains(&words)), "{words}");

        let own = folder.path().join("another");
        let record = own.join("record").display().to_string();
        let handler: Handler = std::sync::Arc::new(move |_, _| {
            let status = DaemonStatus {
                record: record.clone(),
                ..DaemonStatus::default()
            };
            let status = serde_json::to_value(status).expect("plain data");
            Box::pin(async move { ControlAnswer::Ok(status) })
        });
        let socket = control::bind(&here.control).await.expect("it binds");
        let server = tokio::spawn(control::serve(socket, SocketClock::HOST, handler));
        let mut findings = Findings::default();
        let found = with_its_directory(&here, &mut findings).await;
        assert_eq!((found.state, findings.0.len()), (own, 0));
        let named = Here {
            state_is_named: true,
            ..here
        };
        let found = with_its_directory(&named, &mut findings).await;
        assert_eq!(found.state, named.state);
        server.abort();
    }

    #[test]
    fn what_the_daemon_says_is_held_against_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let here = Here {
            digest: "new".to_owned(),
            ..Here::of_test(folder.path())
        };
        let good = DaemonStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            configuration: "new".to_owned(),
            ..DaemonStatus::default()
        };
        let said = |status: DaemonStatus| {
            let mut findings = Findings::default();
            judge_status(&status, &here, &mut findings);
            let said = findings.0.iter().map(ToString::to_string);
            said.collect::<Vec<_>>().join("\n")
        };
        assert_eq!(
            said(good.clone()),
            "ok: daemon: it answers and runs with this file"
        );
        let other = said(DaemonStatus {
            configuration: "old".to_owned(),
            paused: Some("lunch".to_owned()),
            ..good.clone()
        });
        assert!(
            other.contains("another configuration than this file; systemctl reload"),
            "{other}"
        );
        assert!(
            other.contains("paused: lunch; pve-autoscaler resume"),
            "{other}"
        );
        let elsewhere = said(DaemonStatus {
            configuration: "old".to_owned(),
            configuration_file: "/etc/other.toml".to_owned(),
            ..good.clone()
        });
        assert!(
            elsewhere.contains("another file, /etc/other.toml") && !elsewhere.contains("reload"),
            "{elsewhere}"
        );
        let copy = said(DaemonStatus {
            configuration_file: "/etc/other.toml".to_owned(),
            ..good.clone()
        });
        assert_eq!(copy, "ok: daemon: it answers and runs with this file");
        let old = said(DaemonStatus {
            version: "0.0.1".to_owned(),
            ..good
        });
        assert!(old.contains("it is version 0.0.1"), "{old}");
    }
}
