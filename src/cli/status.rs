//! `status`: how things stand, as text or JSON.

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::Context as _;

use super::args::{Format, OutputOptions};
use super::{Failure, control, print, print_json, render};
use crate::agent::control::Command;
use crate::agent::status::{MachineStatus, Status};
use crate::clock::Clock;
use crate::model::region::Busy;
use crate::model::snapshot::SourceState;
use crate::model::time::Time;

/// Shows the status.
pub(super) fn run(options: &OutputOptions) -> Result<(), Failure> {
    let answer = control::ask(&options.control, &Command::Status)?;
    if options.output == Format::Json {
        return print_json(&answer);
    }
    let status: Status = serde_json::from_value(answer)
        .context("the daemon's answer cannot be read; is it of another version?")?;
    print(&text(&status, Clock::System.now()))
}

fn text(status: &Status, now: Time) -> String {
    let mut text = format!("pve-autoscaler {}: {}\n", status.version, status.line());
    if let Some(at) = status.at {
        let cluster = status.cluster_id.as_deref().unwrap_or("not known yet");
        let _ = writeln!(
            text,
            "turn {} {}, cluster {cluster}",
            status.turns,
            render::when(at, now)
        );
    }
    if let Some(reason) = &status.paused {
        let _ = writeln!(text, "paused: {}", render::one_line(reason));
    }
    text.push('\n');
    let problems = status.problems.iter();
    let rows = problems.map(|problem| vec![render::one_line(problem)]);
    render::section(&mut text, "Wrong with the daemon", &[], rows.collect());
    render::pools(&mut text, &status.pools, now);
    machines(&mut text, status, now);
    pending(&mut text, status);
    render::held(&mut text, &status.holds, now);
    views(&mut text, status, now);
    render::warnings(&mut text, &status.warnings);
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn machines(text: &mut String, status: &Status, now: Time) {
    let rows = status
        .machines
        .iter()
        .map(|(name, machine)| {
            vec![
                name.to_string(),
                machine.instance_type.clone(),
                machine.host.to_string(),
                machine.vmid.to_string(),
                machine.node.as_ref().map_or("-", |_| "yes").to_owned(),
                step(machine, now),
                trouble(machine, now),
            ]
        })
        .collect();
    let heading = ["MACHINE", "TYPE", "HOST", "VMID", "NODE", "STEP", "TROUBLE"];
    render::section(text, "Machines", &heading, rows);
}

fn step(machine: &MachineStatus, now: Time) -> String {
    let direction = match machine.busy {
        Some(Busy::Up) => ", under way",
        Some(Busy::Down) => ", being removed",
        None => "",
    };
    match machine.step {
        Some((step, since)) => {
            let name = serde_json::to_value(step).ok();
            let name = name.as_ref().and_then(|name| name.as_str());
            let name = name.unwrap_or("unknown");
            format!(
                "{name}{direction}, for {}",
                render::whole_seconds(now.since(since))
            )
        }
        None => format!("not known{direction}"),
    }
}

fn trouble(machine: &MachineStatus, now: Time) -> String {
    machine
        .failure
        .as_ref()
        .map_or_else(String::new, |failure| {
            let message = render::one_line(&failure.message);
            format!("{message} ({})", render::when(failure.at, now))
        })
}

fn pending(text: &mut String, status: &Status) {
    let pending = status.pending;
    if pending.all > 0 {
        let _ = writeln!(
            text,
            "Pods without a node: {}; {} wait for a node that is there or comes, {} are held back, \
             {} fit no pool. `pve-autoscaler plan` says why.\n",
            pending.all, pending.awaited, pending.held, pending.hopeless
        );
    }
}

/// Views that are not as they should be; of the others nobody needs to hear.
fn views(text: &mut String, status: &Status, now: Time) {
    let troubled = status
        .sources
        .iter()
        .filter(|(_, source)| !source.complete || source.error.is_some());
    let said = |(name, source): &(&Arc<str>, &SourceState)| {
        let error = source.error.as_deref().unwrap_or_default();
        (source.complete, render::but_for(error, name))
    };
    let rows = render::alike(troubled, said)
        .into_iter()
        .map(|((name, source), others)| {
            let age = if source.complete {
                format!("as of {}", render::when(source.as_of, now))
            } else {
                "not read completely yet".to_owned()
            };
            let error = source.error.as_deref().map(render::one_line);
            let mut name = name.to_string();
            if others > 0 {
                let _ = write!(name, " and {others} more");
            }
            vec![name, age, error.unwrap_or_default()]
        })
        .collect();
    render::section(text, "Views in trouble", &["VIEW", "STATE", "ERROR"], rows);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::agent::status::Pending;
    use crate::model::region::{Failure, Step};
    use crate::model::report::{Hold, PoolState};
    use crate::model::time::Span;

    const NOW: Time = Time(1_795_000_000_000);

    fn machine(vmid: u32, node: bool, step: Step, ago: Span) -> MachineStatus {
        MachineStatus {
            pool: "small".into(),
            instance_type: "s2".into(),
            host: "pve1".into(),
            vmid,
            node: node.then(|| Arc::from("node")),
            step: Some((step, NOW - ago)),
            busy: None,
            failure: None,
        }
    }

    #[test]
    fn a_busy_day() {
        let mut coming = machine(9001, false, Step::Join, Span::seconds(40));
        coming.busy = Some(Busy::Up);
        let mut failed = machine(9002, false, Step::Clone, Span::minutes(3));
        failed.failure = Some(Failure {
            step: Step::Clone,
            message: "no space\nleft".into(),
            at: NOW - Span::minutes(2),
            transient: false,
        });
        let state = |complete, error: Option<&str>| SourceState {
            complete,
            as_of: NOW - Span::seconds(90),
            error: error.map(Into::into),
        };
        let pool = PoolState {
            max: 3,
            ready: 1,
            coming: 1,
            ..PoolState::default()
        };
        let status = Status {
            version: "1.2.3".into(),
            configured: true,
            problems: vec!["the file has errors and the one before is in force".into()],
            at: Some(NOW - Span::seconds(2)),
            turns: 12,
            cluster_id: Some("uid/default".into()),
            leader: true,
            holds: vec![Hold {
                scope: "scale-down".into(),
                why: "a node came".into(),
                until: Some(NOW + Span::minutes(6)),
            }],
            warnings: vec!["VM 9005 carries no mark".into()],
            pools: BTreeMap::from([(Arc::from("small"), pool)]),
            machines: BTreeMap::from([
                (
                    Arc::from("small-a"),
                    machine(9000, true, Step::Done, Span::minutes(90)),
                ),
                (Arc::from("small-b"), coming),
                (Arc::from("small-c"), failed),
            ]),
            pending: Pending {
                all: 4,
                awaited: 2,
                held: 1,
                hopeless: 1,
            },
            sources: BTreeMap::from([
                (Arc::from("kube/pods"), state(true, None)),
                (
                    Arc::from("pve/default"),
                    state(true, Some("connection refused")),
                ),
                (Arc::from("kube/nodes"), state(false, None)),
            ]),
            ..Status::default()
        };
        insta::assert_snapshot!(text(&status, NOW));
    }

    /// A kubeconfig that is not there hinders twelve views, and is told once for each thing that is held back.
    #[test]
    fn one_reason_of_many_views_is_told_once() {
        let views = ["pods", "nodes", "csinodes", "daemonsets"].map(|view| {
            let source = SourceState {
                complete: false,
                as_of: NOW,
                error: Some(format!("list {view} was not sent: no kubeconfig").into()),
            };
            (Arc::from(format!("kube/{view}")), source)
        });
        let hold = |scope: &str, view: &str| Hold {
            scope: scope.to_owned(),
            why: format!("{view} was not yet read completely: no kubeconfig"),
            until: None,
        };
        let names = views
            .each_ref()
            .map(|(name, _): &(Arc<str>, _)| name.clone());
        let holds = ["scale-up", "scale-down"]
            .into_iter()
            .flat_map(|scope| names.iter().map(move |view| hold(scope, view)));
        let status = Status {
            configured: true,
            holds: holds.collect(),
            sources: BTreeMap::from(views),
            ..Status::default()
        };
        let text = text(&status, NOW);
        assert_eq!(
            text.matches("the same of 3 other views").count(),
            2,
            "{text}"
        );
        assert_eq!(
            text.matches("kube/csinodes and 3 more").count(),
            1,
            "{text}"
        );
        assert_eq!(text.matches("no kubeconfig").count(), 3, "{text}");
    }

    #[test]
    fn nothing_configured() {
        let status = Status {
            version: "1.2.3".into(),
            ..Status::default()
        };
        let text = text(&status, NOW);
        assert!(
            text.starts_with("pve-autoscaler 1.2.3: not configured: edit "),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}
