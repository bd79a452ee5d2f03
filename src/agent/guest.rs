//! What we say to the guest agent and how its answers read: three small shell scripts, their
//! arguments, and a strict parser of their output. Pure; the calls are made elsewhere.

use std::collections::BTreeMap;

/// Says how far the guest has booted; waits three seconds for the end of cloud-init, if need be.
pub const PROBE: &str = include_str!("guest/probe.sh");
/// Starts `kubeadm join` once, with the configuration on stdin; run again it attaches.
pub const JOIN: &str = include_str!("guest/join.sh");
/// Says how the join stands.
pub const STATE: &str = include_str!("guest/state.sh");

/// The command line that runs `script` in the guest. A shell is always there, and a missing
/// program inside it is an exit code, not the 596 that PVE makes of a missing program.
pub fn command(script: &str) -> [&str; 4] {
    ["/bin/sh", "-c", script, "pve-autoscaler"]
}

/// How far a guest has booted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    /// What cloud-init says of itself.
    pub cloud_init: String,
    /// What systemd says of itself.
    pub system: String,
    /// kubeadm's version, such as `v1.34.1`; empty when there is none.
    pub kubeadm: String,
    /// No join was begun.
    pub fresh: bool,
}

impl Probe {
    /// Reads the output of [`PROBE`]; `None` when it is not that.
    pub fn read(output: &str) -> Option<Probe> {
        let (mut values, _) = values(output);
        Some(Probe {
            cloud_init: values.remove("cloud_init")?,
            system: values.remove("system")?,
            kubeadm: values.remove("kubeadm")?,
            // A guest that does not say is asked in full.
            fresh: values.remove("join").is_some_and(|join| join == "none"),
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
        log: String,
    },
}

impl JoinState {
    /// Reads the output of [`JOIN`] or [`STATE`]; `None` when it is neither's.
    pub fn read(output: &str) -> Option<JoinState> {
        let (values, log) = values(output);
        match values.get("state")?.as_str() {
            "none" => Some(JoinState::None),
            "running" | "started" => Some(JoinState::Running),
            "exited" => Some(JoinState::Exited {
                code: values.get("exit")?.parse().ok()?,
                log: log.trim().to_owned(),
            }),
            _ => None,
        }
    }
}

/// The `key=value` lines before `---`, and the text after it.
fn values(output: &str) -> (BTreeMap<String, String>, &str) {
    let (head, rest) = output.split_once("---\n").unwrap_or((output, ""));
    let values = head
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
        .collect();
    (values, rest)
}

/// The lines of kubeadm's log that say why it failed: its error lines if it has any, else the last
/// ones; at most `limit` characters. Bootstrap tokens are blotted out.
pub fn cause(log: &str, limit: usize) -> String {
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
    let text = without_tokens(&lines[lines.len().saturating_sub(6)..].join("; "));
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The text with anything that looks like a bootstrap token's secret blotted out.
fn without_tokens(text: &str) -> String {
    let is_token = |word: &str| {
        word.len() == 23
            && word.as_bytes()[6] == b'.'
            && word
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.')
    };
    text.split_inclusive(|c: char| !(c.is_ascii_alphanumeric() || c == '.'))
        .map(|piece| {
            let word = piece.trim_end_matches(|c: char| !(c.is_ascii_alphanumeric() || c == '.'));
            if is_token(word) {
                format!("{}.<redacted>{}", &word[..6], &piece[word.len()..])
            } else {
                piece.to_owned()
            }
        })
        .collect()
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

    #[test]
    fn a_degraded_cloud_init_is_ready_and_a_running_one_is_not() {
        let probe = |cloud: &str, system: &str| {
            Probe::read(&format!(
                "cloud_init={cloud}\nsystem={system}\nkubeadm=v1.34.1\n"
            ))
            .expect("a probe")
        };
        assert!(probe("done", "starting").ready());
        assert!(probe("degraded", "degraded").ready());
        assert!(!probe("running", "running").ready());
        assert!(probe("absent", "degraded").ready());
        assert!(!probe("absent", "starting").ready());
        assert_eq!(Probe::read("garbage"), None);
        let said = "cloud_init=done\nsystem=running\nkubeadm=\njoin=";
        let fresh = |join: &str| Probe::read(&format!("{said}{join}\n")).is_some_and(|p| p.fresh);
        assert!(fresh("none") && !fresh("begun"));
        assert!(!probe("done", "running").fresh);
    }

    #[test]
    fn join_states_read() {
        assert_eq!(JoinState::read("state=started\n"), Some(JoinState::Running));
        assert_eq!(JoinState::read("state=none\n---\n"), Some(JoinState::None));
        assert_eq!(
            JoinState::read("state=exited\nexit=1\n---\nboom\n"),
            Some(JoinState::Exited {
                code: 1,
                log: "boom".into()
            })
        );
        assert_eq!(JoinState::read("state=exited\n"), None);
        assert_eq!(JoinState::read(""), None);
    }

    #[test]
    fn the_cause_is_the_error_and_holds_no_token() {
        let log = "[preflight] Running\nerror execution phase preflight: couldn't validate abcdef.0123456789abcdef: timed out\nTo see the stack trace";
        let cause = cause(log, 200);
        assert!(
            cause.starts_with("error execution phase preflight"),
            "{cause}"
        );
        assert!(!cause.contains("0123456789abcdef"), "{cause}");
        assert_eq!(super::cause("a\nb", 100), "a; b");
    }
}
