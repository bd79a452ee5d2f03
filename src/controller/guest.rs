//! What we say to the guest agent and how its answers read: three small shell scripts, their
//! arguments, and a strict parser of their output. Pure; the calls are made elsewhere.

use std::collections::BTreeMap;

use super::token_redaction::without_tokens;
use crate::model::foreign::{self, ForeignOutput, ForeignText};

/// Says how far the guest has booted; waits three seconds for the end of cloud-init, if need be.
pub const PROBE: &str = include_str!("guest/probe.sh");
/// Starts `kubeadm join` once, with the configuration on stdin; run again it attaches.
pub const JOIN: &str = include_str!("guest/join.sh");
/// Says how the join stands.
pub const STATE: &str = include_str!("guest/state.sh");

/// Bytes of kubeadm's log that [`STATE`] gives at most.
const TAIL: usize = 4096;
/// Lines of it that go into our own log …
const LINES: usize = 40;
/// … and characters of each.
const LINE: usize = 400;

/// The command line that runs `script` in the guest. A shell is always there, and a missing
/// program inside it is an exit code, not the 596 that PVE makes of a missing program.
pub fn command(script: &str) -> [&str; 4] {
    ["/bin/sh", "-c", script, "pve-autoscaler"]
}

/// How far a guest has booted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestProbe {
    /// What cloud-init says of itself.
    pub cloud_init: ForeignText,
    /// What systemd says of itself.
    pub system: ForeignText,
    /// kubeadm's version, such as `v1.34.1`; empty when there is none.
    pub kubeadm: ForeignText,
    /// The version of k3s, such as `v1.34.1+k3s1`.
    pub k3s: ForeignText,
    /// The version of RKE2.
    pub rke2: ForeignText,
    /// No join was begun.
    pub fresh: bool,
}

impl GuestProbe {
    /// Reads the output of [`PROBE`]; `None` when it is not that.
    pub fn read(output: &ForeignOutput) -> Option<GuestProbe> {
        let (mut values, _) = values(output.raw());
        Some(GuestProbe {
            cloud_init: values.remove("cloud_init")?,
            system: values.remove("system")?,
            kubeadm: values.remove("kubeadm")?,
            k3s: values.remove("k3s").unwrap_or_default(),
            rke2: values.remove("rke2").unwrap_or_default(),
            // A guest that does not say is asked in full.
            fresh: values.remove("join").is_some_and(|join| *join == *"none"),
        })
    }

    /// Whether the system has come up: cloud-init has ended in whatever way (one that ended badly
    /// is said, not held against it), or there is none and systemd has started everything.
    pub fn ready(&self) -> bool {
        match self.cloud_init.as_str() {
            "done" | "degraded" | "error" => true,
            "absent" | "disabled" => {
                matches!(self.system.as_str(), "running" | "degraded" | "unknown")
            }
            _ => false,
        }
    }
}

/// How a join stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinState {
    /// None was started.
    None,
    /// It runs (or was started just now).
    Running,
    /// It ended.
    Exited {
        /// kubeadm's exit code; 255 when it vanished without one.
        code: i32,
        /// The last lines of its log.
        log: ForeignOutput,
    },
}

impl JoinState {
    /// Reads the output of [`JOIN`] or [`STATE`]; `None` when it is neither's.
    pub fn read(output: &ForeignOutput) -> Option<JoinState> {
        let (values, log) = values(output.raw());
        match values.get("state")?.as_str() {
            "none" => Some(JoinState::None),
            "running" | "started" => Some(JoinState::Running),
            "exited" => Some(JoinState::Exited {
                code: values.get("exit")?.parse().ok()?,
                log: whole_lines(log).trim().into(),
            }),
            _ => None,
        }
    }
}

/// The `key=value` lines before `---`, and the text after it.
fn values(output: &str) -> (BTreeMap<&str, ForeignText>, &str) {
    let (head, rest) = output.split_once("---\n").unwrap_or((output, ""));
    let values = head
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.trim(), value.into()))
        .collect();
    (values, rest)
}

/// A log whose first line may have been cut, and a secret in it with it, without that line.
fn whole_lines(log: &str) -> &str {
    if log.len() < TAIL {
        return log;
    }
    log.split_once('\n').map_or("", |(_, rest)| rest)
}

/// The lines of kubeadm's log that say why it failed: its error lines if it has any, else the last ones; at most
/// `limit` characters on one line. Bootstrap tokens are blotted out; `token` is the id of ours.
pub fn cause(log: &ForeignOutput, token: &str, limit: usize) -> ForeignText {
    // Before it is taken apart: a token may be split over lines.
    let log = without_tokens(log.raw(), token);
    let telling: Vec<&str> = log
        .lines()
        .map(str::trim)
        .filter(|line| {
            let lower = line.to_lowercase();
            !line.is_empty()
                && (lower.starts_with("error")
                    || lower.contains("[error")
                    || lower.contains("failed"))
        })
        .collect();
    let lines: Vec<&str> = if telling.is_empty() {
        log.lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect()
    } else {
        telling
    };
    ForeignText::new(lines[lines.len().saturating_sub(6)..].join("; ")).cut(limit)
}

/// The end of kubeadm's log as the lines that it has, each as it may be shown. Bootstrap tokens are blotted out;
/// `token` is the id of ours.
pub fn last_lines(log: &ForeignOutput, token: &str) -> String {
    let log = without_tokens(log.raw(), token);
    let lines: Vec<String> = log
        .lines()
        .rev()
        .map(|line| foreign::line(line, LINE))
        .filter(|line| !line.is_empty())
        .take(LINES)
        .collect();
    lines.into_iter().rev().collect::<Vec<String>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_script_names_its_verb_first() {
        for (script, verb) in [(PROBE, "probe"), (JOIN, "join"), (STATE, "state")] {
            assert_eq!(
                script.lines().next(),
                Some(format!("# pve-autoscaler guest script: {verb}").as_str())
            );
        }
    }

    /// Files that a join makes in the system can be read by others, as containers' networks need it; our own folder stays root's alone.
    #[test]
    fn what_joins_makes_its_files_as_a_person_at_a_terminal_does() {
        use std::os::unix::fs::PermissionsExt as _;

        use base64::Engine as _;

        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name).display().to_string();
        let script = JOIN
            .replace("/run/pve-autoscaler", &at("run"))
            .replace("/etc/kubernetes", &at("etc"));
        let joins = format!("mkdir {} && echo made >{}\n", at("cni"), at("cni/conf"));
        let joins = base64::engine::general_purpose::STANDARD.encode(joins);
        std::fs::write(at("payload"), format!("run {joins}\n")).expect("written");
        let payload = std::fs::File::open(at("payload")).expect("there");
        let started = std::process::Command::new("/bin/sh")
            .args(["-c", &script, "pve-autoscaler"])
            .stdin(std::process::Stdio::from(payload))
            .output()
            .expect("it runs");
        // So little is to be done that it may have ended by the time when it is told.
        let said = String::from_utf8_lossy(&started.stdout);
        assert!(
            ["state=started\n", "state=exited\nexit=0\n"].contains(&&*said),
            "{said}"
        );
        let ended = (0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            std::fs::read_to_string(at("run/exit")).is_ok_and(|code| code == "0\n")
        });
        assert!(ended, "it did not end");
        let mode = |name: &str| {
            let found = std::fs::metadata(at(name)).expect("there");
            found.permissions().mode() & 0o777
        };
        assert_eq!((mode("cni"), mode("cni/conf")), (0o755, 0o644));
        assert_eq!((mode("run"), mode("run/log")), (0o700, 0o600));
    }

    #[test]
    fn a_degraded_cloud_init_is_ready_and_a_running_one_is_not() {
        let probe = |cloud: &str, system: &str| {
            let said = format!("cloud_init={cloud}\nsystem={system}\nkubeadm=v1.34.1\n");
            GuestProbe::read(&said.into()).expect("a probe")
        };
        assert!(probe("done", "starting").ready());
        assert!(probe("degraded", "degraded").ready());
        assert!(!probe("running", "running").ready());
        assert!(probe("absent", "degraded").ready());
        assert!(!probe("absent", "starting").ready());
        assert_eq!(GuestProbe::read(&"garbage".into()), None);
        let said = "cloud_init=done\nsystem=running\nkubeadm=\njoin=";
        let fresh = |join: &str| {
            GuestProbe::read(&format!("{said}{join}\n").into()).is_some_and(|p| p.fresh)
        };
        assert!(fresh("none") && !fresh("begun"));
        assert!(!probe("done", "running").fresh);
    }

    #[test]
    fn join_states_read() {
        assert_eq!(
            JoinState::read(&"state=started\n".into()),
            Some(JoinState::Running)
        );
        assert_eq!(
            JoinState::read(&"state=none\n---\n".into()),
            Some(JoinState::None)
        );
        assert_eq!(
            JoinState::read(&"state=exited\nexit=1\n---\nboom\n".into()),
            Some(JoinState::Exited {
                code: 1,
                log: "boom".into()
            })
        );
        assert_eq!(JoinState::read(&"state=exited\n".into()), None);
        assert_eq!(JoinState::read(&"".into()), None);
    }

    #[test]
    fn the_cause_is_the_error_and_holds_no_token() {
        let log = "[preflight] Running\nerror execution phase preflight: couldn't validate abcdef.0123456789abcdef.\nTo see the stack trace";
        let cause = |log: &str, limit| cause(&log.into(), "abcdef", limit);
        let said = cause(log, 200);
        assert!(
            said.starts_with("error execution phase preflight"),
            "{said}"
        );
        assert!(!said.contains("0123456789abcdef"), "{said}");
        assert_eq!(cause("a\nb", 100), "a; b");
        let split = "error: token abcdef.01234567\n89abcdef failed";
        assert_eq!(cause(split, 100), "error: token abcdef.<redacted> failed");
    }

    #[test]
    fn what_a_guest_prints_steers_nothing() {
        let log = "one\0\nWATCHDOG=1\u{1b}[2J\nerror: \u{202e}three";
        assert_eq!(cause(&log.into(), "", 100), "error: \\u{202e}three");
        assert_eq!(
            last_lines(&log.into(), ""),
            "one\\u{0}\nWATCHDOG=1\\u{1b}[2J\nerror: \\u{202e}three"
        );
        let probe = GuestProbe::read(&"cloud_init=\u{1b}[31m\nsystem=a\0b\nkubeadm=\n".into());
        let probe = probe.expect("a probe");
        assert_eq!(
            (&*probe.cloud_init, &*probe.system),
            ("\\u{1b}[31m", "a\\u{0}b")
        );
    }

    /// The script gives the last 4096 bytes: they may begin in the middle of a token.
    #[test]
    fn the_rest_of_a_line_that_was_cut_is_not_shown() {
        let tail = format!("9abcdef is refused\n{}", "x".repeat(TAIL));
        let said = JoinState::read(&format!("state=exited\nexit=1\n---\n{tail}").into());
        let Some(JoinState::Exited { log, .. }) = said else {
            panic!("{said:?}");
        };
        assert!(log.raw().starts_with("xxx"), "{log:?}");
    }
}
