//! `host-pinning`: the host's side of CPUs for one machine alone, once or for as long as the service runs.

use std::collections::BTreeSet;
use std::fmt::{Display, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::{CliFailure, crash, log, print, runtime, systemd};
use crate::clock::Clock;
use crate::model::cpus::CpuSet;
use crate::model::foreign;
use crate::model::time::Span;
use crate::pinning::{
    Kernel, LookTimes, Pinner, PinningOutcome, PinningReport, Roots, VmStarts, Wishes,
};
use crate::typed_number::whole;

#[derive(Debug, Args)]
pub(super) struct HostPinningOptions {
    /// CPUs for QEMU's other threads, such as 0-1. Default: where PVE put them, on the machine's own CPUs.
    #[arg(long, value_name = "CPUS", value_parser = cpus)]
    housekeeping: Option<CpuSet>,
    /// Leave the interrupts of passed-through devices where they are.
    #[arg(long)]
    no_interrupts: bool,
    /// The cpufreq governor of the machines' CPUs, such as performance; they get back their own when the machine is gone. Not with --once.
    #[arg(long, value_name = "NAME", value_parser = governor)]
    governor: Option<String>,
    /// Seconds from one look to the next; a VM that starts is looked at soon after.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = whole::<u64>(1..=3600))]
    every: u64,
    /// Look once, tell what was done, and end.
    #[arg(long, conflicts_with = "show")]
    once: bool,
    /// Give CPUs back the governors that they had before the service gave them one, and end; the service does so when it ends.
    #[arg(long, conflicts_with_all = ["once", "show", "housekeeping", "governor", "no_interrupts"])]
    give_back: bool,
    /// Tell what the service on this host has placed, and change nothing.
    #[arg(long)]
    show: bool,
    /// A tree in whose proc, sys, run and etc/pve all is looked for.
    #[arg(long, hide = true, value_name = "DIRECTORY")]
    root: Option<PathBuf>,
}

/// Reads a list of CPUs.
pub(super) fn cpus(text: &str) -> Result<CpuSet, String> {
    CpuSet::read(text).ok_or_else(|| "expected CPUs such as 0-1,32-33".to_owned())
}

/// Reads the name of a governor: a word of the kernel's.
pub(super) fn governor(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if text.is_empty() || text.len() > 15 || !text.chars().all(fits) {
        return Err("expected a governor of /sys/devices/system/cpu/cpu0/cpufreq/scaling_available_governors, such as performance".to_owned());
    }
    Ok(text.to_owned())
}

/// Does it, or tells of it.
pub(super) fn run(options: HostPinningOptions) -> Result<(), CliFailure> {
    let roots = options
        .root
        .as_deref()
        .map_or_else(Roots::default, Roots::below);
    if options.show {
        return show(&roots);
    }
    if options.once && options.governor.is_some() {
        return Err(CliFailure::Usage(anyhow::anyhow!(
            "--once sets no --governor: nobody would be left to give the CPUs back their own; the service does (pve-autoscaler-pinning.service)"
        )));
    }
    let wishes = Wishes {
        housekeeping: options.housekeeping,
        interrupts: !options.no_interrupts,
        governor: options.governor,
    };
    let pinner = Pinner::new(roots.clone(), wishes, Kernel);
    if options.give_back {
        return give_back(&pinner);
    }
    if options.once {
        let outcome = pinner.pass();
        let report = PinningReport {
            outcome,
            ..PinningReport::default()
        };
        print(&told(&report))?;
        let failed = report.problems().next().is_some();
        return if failed {
            Err(CliFailure::Said)
        } else {
            Ok(())
        };
    }
    log::start();
    crash::end_on_panic(None);
    runtime()?.block_on(serve(&pinner, &roots, Duration::from_secs(options.every)))
}

/// Gives back governors that a service has left behind.
fn give_back(pinner: &Pinner<Kernel>) -> Result<(), CliFailure> {
    let outcome = pinner.end();
    print(&lines(&outcome.changes, outcome.problems.iter()))?;
    if outcome.problems.is_empty() {
        Ok(())
    } else {
        Err(CliFailure::Said)
    }
}

/// A line for each change and problem.
fn lines(changes: &[String], problems: impl Iterator<Item = impl Display>) -> String {
    let mut text = String::new();
    for change in changes {
        let _ = writeln!(text, "{change}");
    }
    for problem in problems {
        let _ = writeln!(text, "problem: {problem}");
    }
    foreign::lines(&text).into_owned()
}

/// What the service has placed.
fn show(roots: &Roots) -> Result<(), CliFailure> {
    let report = PinningReport::read(roots, Clock::System.now()).map_err(anyhow::Error::msg)?;
    match report {
        Some(report) => print(&told(&report)),
        None => print(
            "pve-autoscaler-pinning.service does not run on this host: vCPUs are where PVE put them, among their machine's CPUs.\n",
        ),
    }
}

fn told(report: &PinningReport) -> String {
    let mut text = format!("{}.\n", report.summary());
    for (vmid, machine) in &report.outcome.machines {
        let _ = write!(
            text,
            "VM {vmid} ({}), CPUs {}:",
            machine.machine, machine.cpus
        );
        for (vcpu, cpu) in &machine.vcpus {
            let _ = write!(text, " {vcpu} on {cpu}");
        }
        let interrupts = machine.interrupts.iter().map(u32::to_string);
        let interrupts: Vec<String> = interrupts.collect();
        if !interrupts.is_empty() {
            let _ = write!(text, "; interrupts {}", interrupts.join(", "));
        }
        text.push('\n');
    }
    text = foreign::lines(&text).into_owned();
    text + &lines(&report.outcome.changes, report.problems())
}

/// Looks again and again until it is told to end: so often, and soon after a VM starts.
async fn serve(pinner: &Pinner<Kernel>, roots: &Roots, every: Duration) -> Result<(), CliFailure> {
    let mut ends = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    let mut said = BTreeSet::new();
    let mut starts = VmStarts::of(roots);
    let mut looks = LookTimes::every(every);
    systemd::ready("looking for the first time");
    loop {
        let now = Clock::System.now();
        starts.forget();
        let mut outcome = pinner.pass();
        tell(&outcome, &mut said);
        // What was done once is no news for who asks later.
        outcome.changes.clear();
        let next = now + Span(i64::try_from(every.as_millis()).unwrap_or(i64::MAX));
        let report = PinningReport {
            at: now,
            next,
            outcome,
        };
        if let Err(error) = report.write(roots) {
            tracing::warn!(error, "nobody can be told what is placed");
        }
        systemd::status(&report.summary());
        systemd::watchdog();
        let rest = looks.after_look(report.problems().next().is_none());
        let due = async {
            if starts.wait(rest).await {
                tokio::time::sleep(looks.after_news()).await;
            }
        };
        tokio::select! {
            biased;
            _ = ends.recv() => break,
            () = due => {}
        }
    }
    systemd::stopping();
    tell(&pinner.end(), &mut BTreeSet::new());
    PinningReport::remove(roots);
    Ok(())
}

/// Logs what was changed, and a problem when it comes.
fn tell(outcome: &PinningOutcome, said: &mut BTreeSet<String>) {
    for change in &outcome.changes {
        tracing::info!("{change}");
    }
    let report = PinningReport {
        outcome: outcome.clone(),
        ..PinningReport::default()
    };
    let now: BTreeSet<String> = report.problems().collect();
    for problem in now.difference(said) {
        tracing::warn!("{problem}");
    }
    *said = now;
}
