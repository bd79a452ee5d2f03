//! `status`: how things stand, as text or JSON.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::Context as _;

use super::args::{OutputOptions, StatusOptions};
use super::causes::{SharedCauses, WhyCell};
use super::output::{self, OutputFormat, VersionedAnswer};
use super::render::section;
use super::{CliFailure, control, evacuations, host_name, narrow, render, stores};
use crate::controller::control::ControlCommand;
use crate::controller::executor::{ActionWait, PATIENCE};
use crate::controller::status::{DaemonStatus, MachineStatus};
use crate::controller::trouble;
use crate::kubernetes::lease;
use crate::model::foreign;
use crate::model::region::{Busy, Step};
use crate::model::report::Hold;
use crate::model::time::{Span, Time};
use crate::model::words;
use crate::screen::Screen;

/// Columns of lines where there is no terminal that tells its own.
const COLUMNS: usize = 100;

/// Shows the status: once, or again and again until somebody ends it.
pub(super) fn run(options: &StatusOptions) -> Result<(), CliFailure> {
    let watched = options.watch.is_on();
    options
        .watch
        .show("status", || shown(&options.output, watched))
}

/// The daemon's status as it is to be printed.
fn shown(options: &OutputOptions, watched: bool) -> Result<String, CliFailure> {
    let (answer, now) = control::ask_with_time(&options.control, &ControlCommand::Status)?;
    match options.output {
        OutputFormat::Json => {
            let text = serde_json::to_string_pretty(&VersionedAnswer::of(&answer))?;
            return Ok(foreign::json(&(text + "\n")).into_owned());
        }
        OutputFormat::Yaml => return output::yaml(&VersionedAnswer::of(&answer)),
        OutputFormat::Table | OutputFormat::Wide => {}
    }
    let status: DaemonStatus = serde_json::from_value(answer)
        .context("the daemon's answer cannot be read; is it of another version?")?;
    let layout = StatusLayout {
        wide: options.output == OutputFormat::Wide,
        watched,
        columns: Screen::now().columns.unwrap_or(COLUMNS),
    };
    Ok(options.output.laid_out(&layout.text(&status, now)))
}

/// How the status is laid out for people.
#[derive(Clone, Copy, Debug)]
struct StatusLayout {
    /// Every failure is told in full where it belongs, else in full below.
    wide: bool,
    /// Somebody waits for something: what changes comes first, since a terminal shows the first lines alone.
    watched: bool,
    /// Columns of a line of what is told in full.
    columns: usize,
}

impl StatusLayout {
    fn text(self, whole: &DaemonStatus, now: Time) -> String {
        let short = if self.wide {
            whole.clone()
        } else {
            narrow::once(whole)
        };
        let mut text = headline(&short, now);
        if self.watched {
            self.add_what_changes_first(&mut text, &short, now);
        } else {
            self.add_what_there_is_first(&mut text, &short, now);
        }
        if !self.wide {
            narrow::in_full(&mut text, whole, self.columns);
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        text
    }

    /// Pools and what machines are made of, then machines, then what is in the way.
    fn add_what_there_is_first(self, text: &mut String, status: &DaemonStatus, now: Time) {
        render::pools(text, &status.pools, now);
        self.add_resources(text, status);
        let mut causes = self.causes(status, now);
        let all = status.machines.iter();
        let rows = self.machines(status, all, now, &mut causes);
        section(text, "Machines", &MACHINES, rows);
        causes.tell(text);
        evacuations::table(text, status, now);
        pending(text, status);
        held(text, status, now);
        troubles(text, status);
        render::warnings(text, &status.warnings);
    }

    /// Evacuated hosts, machines under way and pods that wait, then pools, then what is in the way; hosts and storages come last.
    fn add_what_changes_first(self, text: &mut String, status: &DaemonStatus, now: Time) {
        let (moving, mut others): (Vec<_>, Vec<_>) = status
            .machines
            .iter()
            .partition(|(_, machine)| is_under_way(status, machine, now));
        let title = if moving.is_empty() {
            "Machines"
        } else {
            "Other machines"
        };
        // Those that have drifted are the next ones to be replaced.
        let drifted = |machine: &MachineStatus| {
            let parts = machine.drifted.as_ref();
            parts.is_some_and(|parts| !parts.is_empty())
        };
        others.sort_by_key(|(_, machine)| !drifted(machine));
        evacuations::table(text, status, now);
        let mut causes = self.causes(status, now);
        let moving = self.machines(status, moving.into_iter(), now, &mut causes);
        section(text, "Machines under way", &MACHINES, moving);
        // Those that are under no way have no trouble.
        causes.tell(text);
        pending(text, status);
        render::pools(text, &status.pools, now);
        held(text, status, now);
        troubles(text, status);
        render::warnings(text, &status.warnings);
        let others = self.machines(status, others.into_iter(), now, &mut causes);
        section(text, title, &MACHINES, others);
        self.add_resources(text, status);
    }

    /// What machines are made of: hosts, storages, devices, CPUs of their own, addresses.
    fn add_resources(self, text: &mut String, status: &DaemonStatus) {
        render::hosts(text, &status.hosts);
        stores::storages(text, &status.storages, self.wide);
        stores::devices(text, &status.devices);
        stores::own_cpus(text, &status.own_cpus);
        super::networks::table(text, &status.networks);
    }

    /// What is in the way of several machines, such as a host that is offline: told once.
    fn causes(self, status: &DaemonStatus, now: Time) -> SharedCauses {
        let machines = status.machines.values();
        let cells: Vec<WhyCell> = machines
            .map(|machine| trouble(status, machine, now))
            .collect();
        SharedCauses::among(self.wide, &cells)
    }

    /// Rows of machines. Wide: the region of each, even where there is one alone, and the addresses of each.
    fn machines<'a>(
        self,
        status: &DaemonStatus,
        machines: impl Iterator<Item = (&'a Arc<str>, &'a MachineStatus)>,
        now: Time,
        causes: &mut SharedCauses,
    ) -> Vec<Vec<String>> {
        let named = self.wide || several_regions(status);
        let rows = machines.map(|(name, machine)| {
            let region = Some(&*machine.region).filter(|_| named);
            let mut place = render::place(&machine.host, region, &machine.cpus);
            if self.wide {
                place = render::add_addresses(place, &machine.addresses);
            }
            vec![
                name.to_string(),
                machine.instance_type.clone(),
                place,
                machine.vmid.to_string(),
                machine.node.as_ref().map_or("-", |_| "yes").to_owned(),
                step(machine, now),
                causes.write(&trouble(status, machine, now)),
            ]
        });
        rows.collect()
    }
}

const MACHINES: [&str; 7] = ["MACHINE", "TYPE", "HOST", "VMID", "NODE", "STEP", "TROUBLE"];

/// Whether a machine is being made, changed or removed, or something is wrong with it.
fn is_under_way(status: &DaemonStatus, machine: &MachineStatus, now: Time) -> bool {
    let settled = match machine.step {
        Some((step, _)) => step == Step::Done,
        None => machine.node.is_some(),
    };
    machine.busy.is_some() || !settled || !trouble(status, machine, now).is_empty()
}

/// Whether a machine's host is seen and offline.
fn is_on_offline_host(status: &DaemonStatus, machine: &MachineStatus) -> bool {
    let hosts = status.hosts.get(&machine.region);
    let host = hosts.and_then(|hosts| hosts.get(&machine.host));
    host.is_some_and(|host| !host.online)
}

/// What is to be said of a standby whose host holds the Lease under another name: each start of a daemon has its own.
fn describe_own_lease(status: &DaemonStatus, own: Option<&str>) -> Option<String> {
    let is_own = !status.holder.is_empty() && Some(lease::host_of(&status.holder)) == own;
    (!status.leader && is_own).then(|| {
        "the Lease is in the name of an earlier start of the daemon on this host, which did not give it back; it runs out within half a minute (if it does not, a second daemon runs here)".to_owned()
    })
}

/// How the daemon is, and what is wrong with it.
fn headline(status: &DaemonStatus, now: Time) -> String {
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
    if let Some(told) = describe_own_lease(status, host_name::own().as_deref()) {
        let _ = writeln!(text, "{told}");
    }
    let paused = status.paused.as_deref().map(render::one_line);
    // The headline names what holds everything.
    let paused = paused.map(|reason| format!("paused: {reason}"));
    if let Some(paused) = paused.filter(|paused| !status.line().contains(&**paused)) {
        let _ = writeln!(text, "{paused}");
    }
    text.push('\n');
    let problems = status.problems.iter();
    let rows = problems.map(|problem| vec![render::one_line(problem)]);
    section(&mut text, "Wrong with the daemon", &[], rows.collect());
    text
}

/// What is on hold; a fault that is named elsewhere is not named again.
fn held(text: &mut String, status: &DaemonStatus, now: Time) {
    let named = |cause: &str| {
        let causes = status
            .troubles
            .iter()
            .filter_map(|trouble| trouble.cause.as_ref());
        causes.into_iter().any(|known| known.as_str() == cause)
    };
    let holds = status.holds.iter().map(|hold| match &hold.why.cause {
        Some(cause) if named(cause) => Hold {
            why: Arc::new(hold.why.held.clone().into()),
            ..hold.clone()
        },
        _ => hold.clone(),
    });
    render::held(text, &holds.collect::<Vec<_>>(), now);
}

/// Whether the daemon looks after machines in several regions, or did.
fn several_regions(status: &DaemonStatus) -> bool {
    let sources = status.sources.keys();
    let sources = sources.filter_map(|source| source.strip_prefix("pve/")?.split('/').next());
    let hosts = status.hosts.keys().map(|region| &**region);
    let machines = status.machines.values().map(|machine| &*machine.region);
    let regions: BTreeSet<&str> = sources.chain(hosts).chain(machines).collect();
    regions.len() > 1
}

fn step(machine: &MachineStatus, now: Time) -> String {
    let direction = match machine.busy {
        Some(Busy::Up) => ", under way",
        Some(Busy::Down) => ", being removed",
        Some(Busy::Update) => ", being updated in place",
        None => "",
    };
    let goes_on = machine.waits.as_ref().filter(|wait| !stuck(wait, now));
    // What PVE said of it is told when it lasts.
    let brief = |wait: &ActionWait| {
        let what = wait.what.to_string();
        what.split(": PVE call ")
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let goes_on = goes_on.map_or_else(String::new, |wait| format!(": {}", brief(wait)));
    match machine.step {
        Some((step, since)) => {
            let drifted = machine.drifted.as_ref().filter(|parts| !parts.is_empty());
            let drifted = drifted.map_or_else(String::new, |parts| {
                let parts = words::names(parts.iter().map(ToString::to_string));
                format!(", drifted ({parts})")
            });
            // Nobody knows since when it is off, or drifted: the time stands with the step, whose it is.
            let off = if machine.off { ", its VM is off" } else { "" };
            let usual = machine.usual.map_or_else(String::new, |usual| {
                let usual = render::whole_seconds(Span(usual.median));
                format!(", usually {usual}")
            });
            format!(
                "{}{direction}, for {}{usual}{off}{drifted}{goes_on}",
                step.word(),
                render::whole_seconds(now.since(since))
            )
        }
        // The journal is gone, as after a restore; it has become a node.
        None if machine.node.is_some() && machine.busy.is_none() => {
            "done, nobody knows since when".to_owned()
        }
        None => format!("not known{direction}{goes_on}"),
    }
}

/// What is in the way of the work on a machine, and what went wrong with it last.
fn trouble(status: &DaemonStatus, machine: &MachineStatus, now: Time) -> WhyCell {
    let waits = machine.waits.as_ref().filter(|wait| stuck(wait, now));
    let waits = waits.map(|wait| {
        let since = render::whole_seconds(now.since(wait.since));
        (format!("waits, for {since}"), wait.what.to_string())
    });
    let failed = machine.failure.as_ref().map(|failure| {
        let message = render::one_line(&failure.message);
        let at = format!(" ({})", render::when(failure.at, now));
        (unended(&message).to_owned(), at)
    });
    let differs = machine.differs.iter().filter(|one| one.failed.is_some());
    let differs: Vec<String> = differs
        .map(|one| render::one_line(&one.to_string()))
        .collect();
    let differs = (!differs.is_empty()).then(|| differs.join("; "));
    let ails = machine.ails.as_ref().map(ToString::to_string).or(differs);
    // Kubernetes takes some time to see it, and sees nothing of a machine without a node.
    let offline = is_on_offline_host(status, machine);
    let offline = offline.then(|| "its host is offline".to_owned());
    let ails = ails.or(offline).map(|ails| (String::new(), ails));
    // With and without something behind it the words are the same, so that they are told once.
    let lasts = waits.or(ails);
    let lasts = lasts.map(|(what, cause)| (what, unended(&cause).to_owned()));
    match (lasts, failed) {
        (Some(lasts), Some((failed, at))) => {
            WhyCell::of_each(vec![lasts, ("before".to_owned(), failed + &at)])
        }
        (Some(lasts), None) => WhyCell::of_each(vec![lasts]),
        (None, Some((failed, at))) => WhyCell::one(&failed, &at),
        (None, None) => WhyCell::default(),
    }
}

/// Words of others without the full stop at their end: ours go on behind them.
fn unended(words: &str) -> &str {
    let words = words.trim_end();
    words
        .strip_suffix('.')
        .filter(|_| !words.ends_with(".."))
        .unwrap_or(words)
}

/// Whether a wait is trouble: something is in the way, or it has lasted for a while.
fn stuck(wait: &ActionWait, now: Time) -> bool {
    wait.hindered || now.since(wait.since) >= PATIENCE
}

fn pending(text: &mut String, status: &DaemonStatus) {
    let pending = status.pending;
    if pending.all > 0 {
        let _ = writeln!(
            text,
            "Pods without a node: {}; {}. `pve-autoscaler plan` says why.\n",
            pending.all,
            pending.lots().join(", ")
        );
    }
}

/// What faults hinder. The headline names the first of them already.
fn troubles(text: &mut String, status: &DaemonStatus) {
    let rows = status
        .troubles
        .iter()
        .enumerate()
        .map(|(position, trouble)| {
            let cause = trouble.cause.as_ref().map(ToString::to_string);
            let cause = cause.filter(|_| position > 0);
            let cause = cause.unwrap_or_else(|| match &trouble.cause {
                Some(_) => "see above".to_owned(),
                None => trouble::UNREAD.to_owned(),
            });
            vec![trouble.effect.clone(), cause]
        });
    section(text, "Views in trouble", &["VIEWS", "WHY"], rows.collect());
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::cli::{fold, watch};
    use crate::controller::status::PendingCounts;
    use crate::controller::status::WhyNodeStays;
    use crate::controller::trouble::Trouble;
    use crate::controller::usual::UsualTime;
    use crate::model::cpus::CpuSet;
    use crate::model::drift::Drift;
    use crate::model::network::NicAddresses;
    use crate::model::reasons::{Held, Hindrance, HostNote, Kept, StorageNote};
    use crate::model::region::Failure;
    use crate::model::report::{Hold, HostState, PoolState, Scope};
    use crate::model::store_states::StorageState;

    const NOW: Time = Time(1_795_000_000_000);

    fn text(status: &DaemonStatus, wide: bool, columns: usize, now: Time) -> String {
        let layout = StatusLayout {
            wide,
            watched: false,
            columns,
        };
        layout.text(status, now)
    }

    fn machine(vmid: u32, node: bool, step: Step, ago: Span) -> MachineStatus {
        MachineStatus {
            region: "default".into(),
            pool: "small".into(),
            instance_type: "s2".into(),
            host: "pve1".into(),
            cpus: CpuSet::new(),
            addresses: NicAddresses::new(),
            vmid,
            node: node.then(|| Arc::from("node")),
            step: Some((step, NOW - ago)),
            busy: None,
            failure: None,
            off: false,
            differs: Vec::new(),
            drifted: None,
            stays: None,
            leaves: false,
            usual: None,
            waits: None,
            ails: None,
        }
    }

    fn wait(what: &str, ago: Span, hindered: bool) -> ActionWait {
        let (what, since) = (what.into(), NOW - ago);
        ActionWait {
            what,
            since,
            hindered,
        }
    }

    /// All machines of a host that is offline have the same trouble: each row has its number, and what it is stands once below, with or
    /// without `--watch`; wide each row has it.
    #[test]
    fn the_trouble_of_several_machines_is_told_once() {
        const WHY: &str =
            "its host pve2 is offline; its node is not Ready: Kubelet stopped posting node status.";
        let mut status = DaemonStatus::default();
        for (number, name) in (0..).zip(["a", "b", "c", "d"]) {
            let mut machine = machine(9000 + number, true, Step::Done, Span::minutes(9));
            machine.ails = (name != "d").then(|| WHY.into());
            if name == "c" {
                machine.failure = Some(Failure {
                    advice: None,
                    step: Step::Start,
                    message: "a disk is full".into(),
                    at: NOW - Span::minutes(3),
                    transient: false,
                    host: None,
                });
            }
            status.machines.insert(name.into(), machine);
        }
        let text = |wide, watched| {
            let columns = 100;
            let layout = StatusLayout {
                wide,
                watched,
                columns,
            };
            layout.text(&status, NOW)
        };
        for watched in [false, true] {
            let told = text(false, watched);
            assert_eq!(told.matches("Kubelet stopped").count(), 1, "{told}");
            let row = |name: &str| {
                let begin = format!("  {name} ");
                let row = told.lines().find(|line| line.starts_with(&begin));
                row.unwrap_or_default().trim_end().to_owned()
            };
            assert!(
                row("a").ends_with(" (1)") && row("b").ends_with(" (1)"),
                "{told}"
            );
            assert!(
                row("c").ends_with("(1); before: a disk is full (3m ago)"),
                "{told}"
            );
            assert!(!row("d").contains("(1)"), "{told}");
            assert!(
                told.contains(&format!("\nWhy\n  (1)  {}", WHY.trim_end_matches('.'))),
                "{told}"
            );
        }
        assert_eq!(text(true, false).matches("Kubelet stopped").count(), 3);
    }

    #[test]
    fn a_lease_of_an_earlier_start_here_is_told() {
        let told = |leader: bool, holder: &str| {
            let status = DaemonStatus {
                leader,
                holder: holder.to_owned(),
                ..DaemonStatus::default()
            };
            describe_own_lease(&status, Some("pve1")).is_some()
        };
        let (here, there) = (lease::identity("pve1", 7), lease::identity("pve2", 7));
        assert!(told(false, &here));
        assert!(!told(true, &here) && !told(false, &there) && !told(false, ""));
    }

    #[test]
    fn a_busy_day() {
        let mut coming = machine(9001, false, Step::Join, Span::seconds(40));
        coming.busy = Some(Busy::Up);
        coming.usual = Some(UsualTime {
            median: 62_400,
            of: 12,
        });
        coming.waits = Some(wait("kubeadm join runs", Span::seconds(40), false));
        let mut slow = machine(9003, false, Step::Agent, Span::minutes(2));
        slow.busy = Some(Busy::Up);
        slow.waits = Some(wait(
            "the guest agent does not answer",
            Span::minutes(2),
            false,
        ));
        let mut leaving = machine(9004, true, Step::Drain, Span::seconds(5));
        leaving.busy = Some(Busy::Down);
        leaving.waits = Some(wait(
            "pod default/db-0 may not be evicted: a budget",
            Span::seconds(4),
            true,
        ));
        let mut failed = machine(9002, false, Step::Clone, Span::minutes(3));
        failed.failure = Some(Failure {
            advice: None,
            step: Step::Clone,
            message: "no space\nleft".into(),
            at: NOW - Span::minutes(2),
            transient: false,
            host: None,
        });
        let pool = PoolState {
            max: 3,
            ready: 1,
            coming: 1,
            ..PoolState::default()
        };
        let status = DaemonStatus {
            version: "1.2.3".into(),
            configured: true,
            problems: vec!["the file has errors; the previous configuration is in force".into()],
            at: Some(NOW - Span::seconds(2)),
            turns: 12,
            cluster_id: Some("uid/default".into()),
            leader: true,
            holds: vec![Hold {
                until: Some(NOW + Span::minutes(6)),
                ..Hold::new(Scope::ScaleDown, Held::ScaleDownDisabled)
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
                (Arc::from("small-d"), slow),
                (Arc::from("small-e"), leaving),
            ]),
            pending: PendingCounts {
                all: 4,
                awaited: 2,
                held: 1,
                no_compatible_pool: 1,
                ..PendingCounts::default()
            },
            troubles: vec![Trouble {
                cause: Some("pve1: connection refused".into()),
                effect: "1m old: pve/default".into(),
                hinders: true,
            }],
            ..DaemonStatus::default()
        };
        insta::assert_snapshot!(text(&status, false, COLUMNS, NOW));
    }

    /// The status of a small cluster in which a machine is made, one is removed and one failed, beside twelve at work.
    fn waited_for() -> DaemonStatus {
        let mut coming = machine(9012, false, Step::Clone, Span::seconds(3));
        coming.busy = Some(Busy::Up);
        let mut leaving = machine(9013, true, Step::Drain, Span::seconds(5));
        leaving.busy = Some(Busy::Down);
        let mut failed = machine(9014, false, Step::Clone, Span::minutes(3));
        failed.failure = Some(Failure {
            advice: None,
            step: Step::Clone,
            message: "no space left".into(),
            at: NOW - Span::minutes(2),
            transient: false,
            host: None,
        });
        let mut machines: BTreeMap<Arc<str>, MachineStatus> = (0..12)
            .map(|at| {
                let done = machine(9000 + at, true, Step::Done, Span::minutes(90));
                (format!("small-{at:02}").into(), done)
            })
            .collect();
        machines.insert("small-ycome".into(), coming);
        machines.insert("small-ygoes".into(), leaving);
        machines.insert("small-zfail".into(), failed);
        let host = |at| {
            let host = HostState {
                online: true,
                machines: 4,
                memory: 64 << 30,
                promised_memory: 60 << 30,
                cpus: 16,
                ..HostState::default()
            };
            (Arc::from(format!("pve{at}")), host)
        };
        let full = StorageNote::NoRoom {
            pools: vec!["small".into()],
            asks: 20 << 30,
        };
        let storage = StorageState {
            storage: "local-zfs".into(),
            hosts: vec!["pve1".into()],
            total: 500 << 30,
            free: 10 << 30,
            notes: vec![full.to_string()],
            notes_details: vec![full],
            ..StorageState::default()
        };
        let pool = PoolState {
            max: 20,
            ready: 12,
            coming: 1,
            ..PoolState::default()
        };
        DaemonStatus {
            version: "1.2.3".into(),
            configured: true,
            leader: true,
            at: Some(NOW - Span::seconds(2)),
            pools: BTreeMap::from([(Arc::from("small"), pool)]),
            hosts: BTreeMap::from([("default".into(), (1..=3).map(host).collect())]),
            storages: BTreeMap::from([(
                "default".into(),
                BTreeMap::from([("pve1/local-zfs".into(), storage)]),
            )]),
            machines,
            pending: PendingCounts {
                all: 4,
                awaited: 4,
                ..PendingCounts::default()
            },
            ..DaemonStatus::default()
        }
    }

    /// What it was doing when its host went is no word on how it is.
    #[test]
    fn a_machine_on_an_offline_host_is_in_trouble() {
        let mut status = DaemonStatus {
            machines: BTreeMap::from([(
                Arc::from("small-a"),
                machine(9001, true, Step::Done, Span::minutes(5)),
            )]),
            ..DaemonStatus::default()
        };
        let told = |status: &DaemonStatus| {
            let one = &status.machines["small-a"];
            let cell = trouble(status, one, NOW);
            let said = SharedCauses::among(true, [&cell]).write(&cell);
            (said, is_under_way(status, one, NOW))
        };
        assert_eq!(
            told(&status),
            (String::new(), false),
            "its host is not seen"
        );
        for (online, said) in [(true, ""), (false, "its host is offline")] {
            let host = HostState {
                online,
                ..HostState::default()
            };
            let hosts = BTreeMap::from([(Arc::from("pve1"), host)]);
            status.hosts = BTreeMap::from([(Arc::from("default"), hosts)]);
            assert_eq!(told(&status), (said.to_owned(), !online));
        }
        let one = status.machines.get_mut("small-a").expect("there");
        one.waits = Some(wait("PVE does not answer", Span::minutes(5), true));
        let said = told(&status).0;
        assert_eq!(said, "waits, for 5m: PVE does not answer");
    }

    /// Found by it: on 24 lines hosts and storages, and below the edge the machines that one waits for.
    #[test]
    fn what_one_waits_for_is_on_a_terminal_of_80_by_24() {
        let status = waited_for();
        let watched = StatusLayout {
            wide: false,
            watched: true,
            columns: 80,
        };
        let folded = fold::fold(&watched.text(&status, NOW), 80);
        assert!(folded.lines().count() > 24, "{folded}");
        let shown = watch::framed(&folded, Some(24), "status");
        for part in [
            "small-ycome",
            "small-ygoes",
            "small-zfail",
            "Pods without a node: 4",
            "\nPools",
        ] {
            assert!(shown.contains(part), "{part} is not in\n{shown}");
        }
        // The same is told in either order.
        let words = |text: &str| {
            let mut words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
            words.sort();
            words
        };
        let usual = fold::fold(&text(&status, false, 80, NOW), 80);
        let missing: Vec<_> = words(&usual)
            .into_iter()
            .filter(|word| !folded.contains(&**word))
            .collect();
        assert_eq!(missing, Vec::<String>::new(), "{folded}");
    }

    /// Found by it: with eight machines the hosts' table is cut, and with that all that told of an evacuation.
    #[test]
    fn an_evacuation_is_on_a_terminal_of_80_by_24() {
        let mut status = waited_for();
        let since = NOW - Span::minutes(3);
        let state = HostState {
            notes: vec!["evacuated".to_owned()],
            notes_details: vec![HostNote::Evacuated { since }],
            ..HostState::default()
        };
        let hosts = status.hosts.entry("default".into()).or_default();
        hosts.insert("pve9".into(), state);
        let mut kept = machine(9020, true, Step::Done, Span::minutes(90));
        kept.host = "pve9".into();
        let why = Kept::MaxDrainParallelism {
            draining: 1,
            max: 1,
        };
        kept.stays = Some(WhyNodeStays {
            reason: why.reason(),
            why,
            pod: None,
        });
        status.machines.insert("small-zkept".into(), kept);
        let watched = StatusLayout {
            wide: false,
            watched: true,
            columns: 80,
        };
        let folded = fold::fold(&watched.text(&status, NOW), 80);
        assert!(folded.lines().count() > 24, "{folded}");
        let shown = watch::framed(&folded, Some(24), "status");
        let row = shown.lines().find(|line| line.contains("small-zkept"));
        let row = row.unwrap_or_else(|| panic!("{shown}"));
        assert!(row.contains("pve9") && row.contains("1 node is"), "{shown}");
        let usual = text(&status, false, 80, NOW);
        assert!(usual.contains("Evacuated hosts\n"), "{usual}");
        assert!(!text(&waited_for(), false, 80, NOW).contains("Evacuated"));
    }

    /// Found by it: the note of a storage in a column of 14, which made the table nine lines high.
    #[test]
    fn a_storages_note_takes_the_width_of_the_terminal() {
        let folded = fold::fold(&text(&waited_for(), false, 80, NOW), 80);
        let table = folded.split("Storages\n").nth(1).unwrap_or_default();
        let lines: Vec<&str> = table.lines().take_while(|line| !line.is_empty()).collect();
        assert!(lines.len() <= 4, "{folded}");
        assert!(
            lines
                .iter()
                .any(|line| line.starts_with("    NOTE: no room")),
            "{folded}"
        );
    }

    /// Of many nodes that have drifted one waits for the next to go: they come before those that stay as they are.
    #[test]
    fn machines_that_have_drifted_come_before_those_that_have_not() {
        let mut drifted = machine(9002, true, Step::Done, Span::minutes(9));
        drifted.drifted = Some(vec![Drift::Cpus]);
        let status = DaemonStatus {
            configured: true,
            at: Some(NOW),
            machines: BTreeMap::from([
                (
                    Arc::from("small-a"),
                    machine(9001, true, Step::Done, Span::minutes(9)),
                ),
                (Arc::from("small-b"), drifted),
            ]),
            ..DaemonStatus::default()
        };
        let watched = StatusLayout {
            wide: false,
            watched: true,
            columns: COLUMNS,
        };
        let told = watched.text(&status, NOW);
        assert!(told.find("small-b") < told.find("small-a"), "{told}");
        assert!(told.contains("\nMachines\n"), "{told}");
        let usual = text(&status, false, COLUMNS, NOW);
        assert!(usual.find("small-a") < usual.find("small-b"), "{usual}");
    }

    /// Addresses of two families would make every line long; `-o wide` has them, and so has JSON.
    #[test]
    fn a_machines_addresses_stand_in_what_is_wide() {
        let mut one = machine(9000, true, Step::Done, Span::minutes(9));
        let addresses = ["192.0.2.50", "2001:db8::50"].map(|ip| ip.parse().expect("an address"));
        one.addresses = [(0, addresses.to_vec())].into();
        let status = DaemonStatus {
            configured: true,
            at: Some(NOW),
            machines: BTreeMap::from([(Arc::from("small-a"), one)]),
            ..DaemonStatus::default()
        };
        let wide = text(&status, true, COLUMNS, NOW);
        let wanted = "pve1 in default, 192.0.2.50, 2001:db8::50  9000";
        assert!(wide.contains(wanted), "{wide}");
        let narrow = text(&status, false, COLUMNS, NOW);
        assert!(narrow.contains("pve1  9000"), "{narrow}");
        let json = serde_json::to_value(&status).expect("JSON");
        let told = &json["machines"]["small-a"]["addresses"];
        assert_eq!(told["0"][1], "2001:db8::50", "{json}");
        let read: DaemonStatus = serde_json::from_value(json).expect("it reads its own form");
        assert_eq!(read, status);
    }

    /// A kubeconfig that is not there hinders fourteen views, the lease and the cluster's id: the fault is named once.
    #[test]
    fn one_fault_is_told_once() {
        let cause = "kubeconfig /etc/x: it cannot be read";
        let hold = |scope: Scope, held: Held| Hold {
            scope,
            why: Arc::new(Hindrance {
                held,
                cause: Some(cause.into()),
            }),
            until: None,
        };
        let others = (0..13).map(|n| format!("kube/{n}").into());
        let sources: Vec<Arc<str>> = [Arc::from("kube/nodes")]
            .into_iter()
            .chain(others)
            .collect();
        let unread = || Held::NotRead {
            sources: sources.clone(),
        };
        let status = DaemonStatus {
            configured: true,
            at: Some(NOW),
            unread: BTreeSet::from([Arc::from("kube/pods")]),
            holds: vec![
                hold(Scope::Everything, Held::NotLeader { holder: None }),
                hold(Scope::ScaleUp, unread()),
                hold(Scope::ScaleDown, unread()),
            ],
            troubles: vec![Trouble {
                cause: Some(cause.into()),
                effect: "not read yet: the lease and 15 others".into(),
                hinders: true,
            }],
            ..DaemonStatus::default()
        };
        let text = text(&status, false, COLUMNS, NOW);
        assert_eq!(text.matches(cause).count(), 1, "{text}");
        let first = text.lines().next().unwrap_or_default();
        assert!(first.ends_with(cause), "{text}");
        assert!(
            !first.contains("0 nodes"),
            "numbers that nobody knows: {text}"
        );
        assert_eq!(
            text.matches("kube/nodes and 13 others").count(),
            2,
            "{text}"
        );
    }

    /// Found by it: right after a reload nothing stood beside what was not read yet, as if something were wrong that nobody knows.
    #[test]
    fn what_is_not_read_yet_says_what_it_waits_for() {
        let trouble = |cause: Option<&str>, effect: &str| Trouble {
            cause: cause.map(Into::into),
            effect: effect.to_owned(),
            hinders: true,
        };
        let status = DaemonStatus {
            configured: true,
            at: Some(NOW),
            troubles: vec![
                trouble(Some("pve1: connection refused"), "1m old: pve/default"),
                trouble(None, "not read yet: pve/east"),
            ],
            ..DaemonStatus::default()
        };
        let text = text(&status, false, COLUMNS, NOW);
        let waits = format!("  not read yet: pve/east  {}\n", trouble::UNREAD);
        assert!(text.contains(&waits), "{text}");
    }

    /// What kubeadm said at its end is told on one line that fits, and in full below.
    #[test]
    fn a_failed_join_is_one_line_that_fits_the_terminal() {
        let said = format!(
            "kubeadm join failed with code 1: [ERROR CRI]: could not connect to the container runtime: {}; error: error \
             execution phase preflight: preflight checks failed",
            "failed to create new CRI runtime service ".repeat(6)
        );
        let mut failed = machine(9002, false, Step::Join, Span::minutes(3));
        failed.failure = Some(Failure {
            advice: None,
            step: Step::Join,
            message: said.as_str().into(),
            at: NOW - Span::minutes(2),
            transient: false,
            host: None,
        });
        let backoff = format!("general-abcde: {said}");
        let pool = PoolState {
            max: 3,
            backoff_until: Some(NOW + Span::minutes(3)),
            backoff_message: Some(backoff.as_str().into()),
            ..PoolState::default()
        };
        let status = DaemonStatus {
            version: "1.2.3".into(),
            configured: true,
            leader: true,
            at: Some(NOW),
            holds: vec![Hold {
                until: Some(NOW + Span::minutes(3)),
                ..Hold::new(
                    Scope::Pool("general".into()),
                    Held::BacksOff {
                        failure: pool.backoff_message.clone(),
                    },
                )
            }],
            pools: BTreeMap::from([(Arc::from("general"), pool.clone())]),
            machines: BTreeMap::from([(Arc::from("general-abcde"), failed)]),
            ..DaemonStatus::default()
        };
        let whole = |text: &str| {
            let (_, below) = text.split_once("What failed").expect("it is told below");
            below
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .contains(said.trim())
        };
        let shown = text(&status, false, COLUMNS, NOW);
        assert!(
            shown.lines().all(|line| line.chars().count() <= 100),
            "{shown}"
        );
        let (tables, _) = shown.split_once("What failed").expect("it is told below");
        let lines = tables
            .lines()
            .filter(|line| line.contains("kubeadm join failed"));
        assert_eq!(lines.count(), 1, "{shown}");
        assert!(whole(&shown), "{shown}");
        // The machine is gone: its pool tells of it.
        let gone = text(
            &DaemonStatus {
                machines: BTreeMap::new(),
                ..status
            },
            false,
            COLUMNS,
            NOW,
        );
        assert!(
            gone.lines().all(|line| line.chars().count() <= 100),
            "{gone}"
        );
        assert!(
            gone.contains("ends in 3m: general-abcde: kubeadm") && whole(&gone),
            "{gone}"
        );
    }

    #[test]
    fn nothing_configured() {
        let status = DaemonStatus {
            version: "1.2.3".into(),
            ..DaemonStatus::default()
        };
        let text = text(&status, false, COLUMNS, NOW);
        assert!(
            text.starts_with(
                "pve-autoscaler 1.2.3: not configured: run `pve-autoscaler setup`, or edit /etc/pve-autoscaler.toml, "
            ),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}
