//! What `status` says of hosts that a person evacuates: each machine that is there yet, and what it waits for. Pure.

use std::collections::BTreeSet;

use super::render::{one_line, section, whole_seconds};
use crate::controller::status::{DaemonStatus, MachineStatus, WhyNodeStays};
use crate::controller::wording::kept_until;
use crate::model::reasons::{HostNote, Kept, Reasons, Refusals, Unneeded, WaitsFor};
use crate::model::region::{Busy, Step};
use crate::model::time::Time;
use crate::model::words;

/// Adds the evacuated hosts, a line for each machine; nothing where no host is evacuated.
pub(super) fn table(text: &mut String, status: &DaemonStatus, now: Time) {
    let several = status.hosts.len() > 1;
    let mut rows = Vec::new();
    for (region, hosts) in &status.hosts {
        for (host, state) in hosts {
            let since = state.notes_details.iter().find_map(|note| match note {
                HostNote::Evacuated { since } => Some(*since),
                _ => None,
            });
            let Some(since) = since else {
                continue;
            };
            let name = if several {
                words::at(region, host)
            } else {
                host.to_string()
            };
            let row = |machine: &str, stands: String| {
                let span = whole_seconds(now.since(since)).to_string();
                vec![name.clone(), span, machine.to_owned(), stands]
            };
            let machines = status.machines.iter();
            let there =
                machines.filter(|(_, machine)| machine.host == *host && machine.region == *region);
            let before = rows.len();
            rows.extend(
                there.map(|(name, machine)| row(name, one_line(&tell_standing(machine, now)))),
            );
            if rows.len() == before {
                rows.push(row("-", "it has no machine".to_owned()));
            }
        }
    }
    let heading = ["HOST", "FOR", "MACHINE", "WHAT BECOMES OF IT"];
    section(text, "Evacuated hosts", &heading, rows);
}

/// How far a machine of an evacuated host is, or what keeps it.
fn tell_standing(machine: &MachineStatus, now: Time) -> String {
    let leaves = machine
        .step
        .filter(|(step, _)| *step > Step::Done)
        .filter(|_| machine.stays.is_none());
    if let Some((step, since)) = leaves {
        let span = whole_seconds(now.since(since));
        return format!("leaves: {}, for {span}", step.word());
    }
    if machine.leaves || machine.busy == Some(Busy::Down) {
        return "leaves".to_owned();
    }
    if let Some(stays) = &machine.stays {
        return tell_what_keeps(stays) + &kept_until(&stays.why, stays.pod.as_ref(), None, now);
    }
    if machine.node.is_some() {
        return "nothing is decided of it yet".to_owned();
    }
    let before_done = |step: Step| step < Step::Done;
    let failure = machine.failure.as_ref();
    if failure.is_some_and(|failure| before_done(failure.step)) {
        "it failed to become a node".to_owned()
    } else if machine.step.is_none_or(|(step, _)| before_done(step)) {
        "on its way up; it goes once it works".to_owned()
    } else {
        "it has no node any more".to_owned()
    }
}

/// What keeps a node, short: that its host is evacuated stands beside it, and why no machine can be made `explain node` says for each pool and
/// type.
fn tell_what_keeps(stays: &WhyNodeStays) -> String {
    let Kept::GivenUp { waits, .. } = &stays.why else {
        return tell_rule(&stays.why);
    };
    match &**waits {
        WaitsFor::Other { kept } => tell_rule(kept),
        WaitsFor::NoMachine { pod, refused } => {
            let short = WaitsFor::NoMachine {
                pod: pod.clone(),
                refused: Reasons::default(),
            };
            short.to_string() + &tell_main_cause(refused)
        }
        other => other.to_string(),
    }
}

/// Why no machine can be made: the limits, such as a pool at its `max`, that alone keep it from being made with some pools and types; else
/// the cause where all have the same.
fn tell_main_cause(refused: &Reasons) -> String {
    let limited = refused.values().filter(|of_place| {
        let mut reasons = of_place.iter();
        reasons.all(|reason| reason.is_limit())
    });
    let limits = list_different(limited);
    if !limits.is_empty() {
        return format!(": {}; it waits until that changes", limits.join("; "));
    }
    match &list_different(refused.values())[..] {
        [cause] => format!(": {cause}"),
        _ => String::new(),
    }
}

/// Refusals in words, what many say alike once.
fn list_different<'r>(refused: impl Iterator<Item = &'r Refusals>) -> Vec<String> {
    let words: BTreeSet<String> = refused.map(ToString::to_string).collect();
    words.into_iter().collect()
}

/// A rule that keeps a node. A time alone does not say which rule it is of: its name does.
fn tell_rule(why: &Kept) -> String {
    match why {
        Kept::NotLongEnough {
            state: Unneeded::Unneeded,
            ..
        } => format!("{}: {why}", why.reason()),
        _ => why.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::cluster::ObjectKey;
    use crate::model::cpus::CpuSet;
    use crate::model::network::NicAddresses;
    use crate::model::reasons::{GivenUp, Refused};
    use crate::model::region::Failure;
    use crate::model::report::HostState;
    use crate::model::time::Span;

    const NOW: Time = Time(1_795_000_000_000);

    fn machine(step: Step, node: bool, waits: Option<WaitsFor>) -> MachineStatus {
        let since = NOW - Span::minutes(3);
        let cause = || {
            let host = "pve2".into();
            Box::new(GivenUp::HostEvacuated { host, since })
        };
        MachineStatus {
            pool: "p".into(),
            instance_type: "s".into(),
            region: "home".into(),
            host: "pve2".into(),
            cpus: CpuSet::new(),
            addresses: NicAddresses::new(),
            vmid: 9000,
            node: node.then(|| Arc::from("node")),
            step: Some((step, NOW - Span::seconds(5))),
            busy: None,
            failure: None,
            waits: None,
            ails: None,
            off: false,
            differs: Vec::new(),
            drifted: None,
            stays: waits.map(|waits| WhyNodeStays {
                reason: waits.reason(),
                why: Kept::GivenUp {
                    cause: cause(),
                    waits: Box::new(waits),
                },
                pod: Some(ObjectKey::new("shop", "web-1")),
            }),
            leaves: false,
            usual: None,
        }
    }

    /// A pod that no machine can be made for: of one pool's types two are kept by its `max`, one by that beside hosts that are too small.
    fn held_by_max() -> WaitsFor {
        let max = Refused::PoolMax {
            machines: 5,
            max: 5,
            planned: 0,
        };
        let too_small = || Refused::NoneOfHosts {
            hosts: 1,
            first: Vec::new(),
        };
        let both = Refusals {
            first: Arc::new(too_small()),
            more: vec![Arc::new(max.clone())],
        };
        let small: Refusals = too_small().into();
        WaitsFor::NoMachine {
            pod: Some(ObjectKey::new("shop", "web-1")),
            refused: Reasons::new(
                [
                    ("p/l".into(), max.clone().into()),
                    ("p/m".into(), max.into()),
                    ("p/s".into(), both),
                    ("q/s".into(), small),
                ]
                .into(),
            ),
        }
    }

    /// Each node that stays says what for, whichever host of several it is on; and a host that is empty says so.
    #[test]
    fn each_machine_of_an_evacuated_host_says_what_becomes_of_it() {
        let evacuated = || HostState {
            notes_details: vec![HostNote::Evacuated {
                since: NOW - Span::minutes(3),
            }],
            ..HostState::default()
        };
        let without = WaitsFor::NoMachine {
            pod: Some(ObjectKey::new("shop", "web-1")),
            refused: Reasons::new([("*".into(), Refused::NoFreeVmid.into())].into()),
        };
        let at_max = held_by_max();
        let comes = WaitsFor::MachineComing {
            machine: "p-x".into(),
        };
        let not_ready = WaitsFor::Other {
            kept: Box::new(Kept::NotLongEnough {
                state: Unneeded::Unready,
                since: NOW - Span::minutes(3),
                waited: Span::minutes(3),
                wanted: Span::minutes(20),
            }),
        };
        // The removal is planned, or a taint alone says that it is under way.
        let mut goes = machine(Step::Done, true, None);
        goes.leaves = true;
        let mut failed = machine(Step::Join, false, None);
        failed.failure = Some(Failure {
            advice: None,
            step: Step::Join,
            message: "a join failed".into(),
            at: NOW,
            transient: false,
            host: None,
        });
        let hosts = [
            ("pve1", HostState::default()),
            ("pve2", evacuated()),
            ("pve3", evacuated()),
        ];
        let machines = [
            ("p-a", machine(Step::Done, true, Some(without))),
            ("p-b", machine(Step::Done, true, Some(comes))),
            ("p-c", machine(Step::Drain, true, None)),
            ("p-d", machine(Step::Os, false, None)),
            ("p-f", failed),
            ("p-g", goes),
            ("p-h", machine(Step::Done, false, None)),
            ("p-i", machine(Step::Done, true, Some(not_ready))),
            ("p-j", machine(Step::Done, true, None)),
            ("p-k", machine(Step::Done, true, Some(at_max))),
        ];
        let mut status = DaemonStatus {
            hosts: [(
                "home".into(),
                hosts.map(|(name, state)| (name.into(), state)).into(),
            )]
            .into(),
            machines: machines
                .map(|(name, machine)| (name.into(), machine))
                .into(),
            ..DaemonStatus::default()
        };
        let mut elsewhere = machine(Step::Done, true, None);
        elsewhere.host = "pve1".into();
        status.machines.insert("p-e".into(), elsewhere);
        let mut text = String::new();
        table(&mut text, &status, NOW);
        let wanted = [
            "Evacuated hosts",
            "  HOST  FOR  MACHINE  WHAT BECOMES OF IT",
            "  pve2  3m   p-a      its pod shop/web-1 fits on no other node, and no machine can be made for it now: no VMID is free; it waits until that changes",
            "  pve2  3m   p-b      p-x is on its way in its place",
            "  pve2  3m   p-c      leaves: drain, for 5s",
            "  pve2  3m   p-d      on its way up; it goes once it works",
            "  pve2  3m   p-f      it failed to become a node",
            "  pve2  3m   p-g      leaves",
            "  pve2  3m   p-h      it has no node any more",
            "  pve2  3m   p-i      not Ready since 2026-11-18T11:03:40Z, that is 3m of 20m (pod shop/web-1)",
            "  pve2  3m   p-j      nothing is decided of it yet",
            "  pve2  3m   p-k      its pod shop/web-1 fits on no other node, and no machine can be made for it now: pool limit: it has 5 machines, its max is 5; it waits until that changes",
            "  pve3  3m   -        it has no machine",
            "",
        ];
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines, wanted);
        status.hosts.clear();
        let mut text = String::new();
        table(&mut text, &status, NOW);
        assert_eq!(text, "");
    }
}
