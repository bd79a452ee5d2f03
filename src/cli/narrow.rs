//! What `status` and `plan` do with failures that are longer than a line of a terminal: each is told once, short, where it belongs,
//! and as it is below, or with what is on hold. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::controller::status::DaemonStatus;
use crate::model::foreign::ForeignText;
use crate::model::reasons::Held;
use crate::model::report::{PoolState, Report, Scope};
/// Characters of a failure in a table: beside the usual columns that is what fits.
pub(super) const SHOWN: usize = 32;

/// The status with each failure told once and short: a back-off names the machine whose failure began it, while that is
/// there to tell of it, and a hold does not say again what its pool says.
pub(super) fn once(status: &DaemonStatus) -> DaemonStatus {
    let mut short = status.clone();
    for (name, pool) in &mut short.pools {
        let Some(message) = pool.backoff_message.clone() else {
            continue;
        };
        let scope = Scope::Pool(name.clone());
        for hold in &mut short.holds {
            if hold.scope == scope && matches!(hold.why.held, Held::BacksOff { .. }) {
                hold.why = Arc::new(Held::BacksOff { failure: None }.into());
            }
        }
        pool.backoff_message = Some(match teller(status, &message) {
            Some(machine) => ForeignText::new(format!("{machine} failed")),
            None => message.cut(SHOWN),
        });
    }
    for machine in short.machines.values_mut() {
        if let Some(failure) = &mut machine.failure {
            failure.message = failure.message.cut(SHOWN);
        }
    }
    short
}

/// The pools of a report, a back-off in short where a hold tells it whole.
pub(super) fn short_back_offs(report: &Report) -> BTreeMap<Arc<str>, PoolState> {
    let mut pools = report.pools.clone();
    for (name, pool) in &mut pools {
        let scope = Scope::Pool(name.clone());
        let is_told = report.holds.iter().any(|hold| {
            let whole = matches!(&hold.why.held, Held::BacksOff { failure: Some(_) });
            whole && hold.scope == scope
        });
        if is_told {
            pool.backoff_message = pool
                .backoff_message
                .as_ref()
                .map(|message| message.cut(SHOWN));
        }
    }
    pools
}

/// The machine whose failure began a back-off, where it is there to tell of it. The message begins with its name; others may
/// have failed with the same words. A message that was too long lacks its end.
fn teller<'a>(status: &'a DaemonStatus, message: &'a str) -> Option<&'a str> {
    let (name, words) = message.split_once(": ")?;
    let failure = status.machines.get(name)?.failure.as_ref()?;
    let words = words.trim_end_matches('…');
    (!words.is_empty() && failure.message.starts_with(words)).then_some(name)
}

/// The failures that [`once`] cut, as far as the daemon keeps them, in lines of so many columns.
pub(super) fn in_full(text: &mut String, status: &DaemonStatus, columns: usize) {
    let mut cut: Vec<(&str, &str)> = Vec::new();
    for (name, machine) in &status.machines {
        cut.extend(
            machine
                .failure
                .as_ref()
                .map(|failure| (&**name, failure.message.as_str())),
        );
    }
    for (name, pool) in &status.pools {
        let message = pool.backoff_message.as_deref().unwrap_or_default();
        if teller(status, message).is_none() {
            cut.push((&**name, message));
        }
    }
    cut.retain(|(_, message)| message.chars().count() > SHOWN);
    if cut.is_empty() {
        return;
    }
    text.push_str("What failed\n");
    for (name, message) in cut {
        let _ = writeln!(text, "  {name}:");
        for line in wrapped(message, columns.saturating_sub(4).max(1)) {
            let _ = writeln!(text, "    {line}");
        }
    }
    text.push('\n');
}

/// Words in lines of at most so many characters. A word that is longer goes over several.
fn wrapped(words: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut line, mut length) = (String::new(), 0);
    for word in words.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for (at, part) in letters.chunks(width.max(1)).enumerate() {
            let glue = usize::from(length > 0 && at == 0);
            if length > 0 && (at > 0 || length + glue + part.len() > width) {
                lines.push(std::mem::take(&mut line));
                length = 0;
            } else if glue > 0 {
                line.push(' ');
                length += 1;
            }
            line.extend(part);
            length += part.len();
        }
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fold;
    use crate::controller::status::MachineStatus;
    use crate::model::region::{Failure, Step};
    use crate::model::report::Hold;
    use crate::model::time::Time;

    const WORDS: &str = "kubeadm join failed with code 1: connection refused by 10.0.0.1:6443";

    /// Two machines that failed with the same words, the second of which began the back-off.
    fn two_alike() -> DaemonStatus {
        let machine = MachineStatus {
            pool: "workers".into(),
            instance_type: "small".into(),
            region: "default".into(),
            host: "pve1".into(),
            cpus: crate::model::cpus::CpuSet::new(),
            addresses: crate::model::network::NicAddresses::new(),
            vmid: 9001,
            node: None,
            step: None,
            busy: None,
            failure: Some(Failure {
                advice: None,
                step: Step::Join,
                message: WORDS.into(),
                at: Time(0),
                transient: false,
                host: None,
            }),
            waits: None,
            ails: None,
            off: false,
            differs: Vec::new(),
            drifted: None,
            stays: None,
            leaves: false,
            usual: None,
        };
        let pool = PoolState {
            backoff_until: Some(Time(1)),
            backoff_message: Some(format!("workers-b: {WORDS}").into()),
            ..PoolState::default()
        };
        DaemonStatus {
            pools: [("workers".into(), pool)].into(),
            machines: ["workers-a", "workers-b"]
                .map(|name| (name.into(), machine.clone()))
                .into(),
            ..DaemonStatus::default()
        }
    }

    #[test]
    fn a_back_off_names_the_machine_that_began_it_among_those_that_failed_alike() {
        let mut status = two_alike();
        let said = |status: &DaemonStatus| {
            let short = once(status);
            short.pools["workers"]
                .backoff_message
                .as_deref()
                .map(str::to_owned)
        };
        assert_eq!(said(&status).as_deref(), Some("workers-b failed"));
        // It is gone: nobody else tells of it in its place.
        status.machines.remove("workers-b");
        let said = said(&status).unwrap_or_default();
        assert!(said.starts_with("workers-b: kubeadm"), "{said}");
        let mut full = String::new();
        in_full(&mut full, &status, 80);
        assert!(
            full.contains("  workers:\n    workers-b: kubeadm"),
            "{full}"
        );
    }

    #[test]
    fn a_back_off_is_short_where_a_hold_tells_it_whole() {
        let status = two_alike();
        let message = status.pools["workers"].backoff_message.clone();
        let hold = |scope: &str, failure: Option<ForeignText>| {
            Hold::new(Scope::Pool(scope.into()), Held::BacksOff { failure })
        };
        let said = |hold: Hold| {
            let report = Report {
                pools: status.pools.clone(),
                holds: vec![hold],
                ..Report::default()
            };
            let mut pools = short_back_offs(&report);
            let pool = pools.remove("workers").expect("it is there");
            pool.backoff_message.expect("it backs off").chars().count()
        };
        let whole = message.as_deref().unwrap_or_default().chars().count();
        assert!(said(hold("workers", message.clone())) <= SHOWN);
        assert_eq!(said(hold("others", message.clone())), whole);
        assert_eq!(said(hold("workers", None)), whole, "nobody else tells it");
    }

    #[test]
    fn what_failed_is_folded_once() {
        let status = two_alike();
        for columns in [20, 40, 60, 80, 96] {
            let mut text = String::new();
            in_full(&mut text, &status, columns);
            assert_eq!(fold::fold(&text, columns), text, "{columns}");
        }
    }

    #[test]
    fn long_words_and_many_are_wrapped_and_none_is_lost() {
        let words = format!("{}{} end", "short words ".repeat(20), "x".repeat(250));
        let lines = wrapped(&words, 96);
        assert!(
            lines.iter().all(|line| line.chars().count() <= 96),
            "{lines:?}"
        );
        assert_eq!(lines.concat().replace(' ', ""), words.replace(' ', ""));
        assert_eq!(wrapped("one two", 7), ["one two"]);
        assert_eq!(wrapped("one two", 6), ["one", "two"]);
    }
}
