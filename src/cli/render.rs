//! A decision and its reasons as text for people. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use super::causes::SharedCauses;
use super::narrow;
use super::networks;
use super::stores;
use super::table::table;
use super::verdicts::{WhyRow, held_rows, nodes, once, pods};
use crate::controller::wording::act;
pub(super) use crate::controller::wording::{
    add_addresses, node_verdict, one_line, pod_verdict, preempted, when, whole_seconds,
};
use crate::model::action::Action;
use crate::model::cpus::CpuSet;
use crate::model::decision::Decision;
use crate::model::report::{ComingMachine, Hold, HostState, PoolState};
use crate::model::time::Time;
use crate::model::words;

/// Lines of one section at most; a cluster of thousands of nodes has its report in `-o json`.
const MAX_ROWS: usize = 200;

/// What would be done now, and why, for every pool, pod and node.
/// `wide`: each pod on a line of its own, however many have the same lot.
pub(super) fn decision(decision: &Decision, wide: bool, now: Time) -> String {
    let report = &decision.report;
    let mut text = String::new();
    section(
        &mut text,
        &plan_heading(&decision.plan),
        &["ACTION", "MACHINE", "WHAT", "WHY"],
        plan(&decision.plan),
    );
    if let Some(growth) = report.scale_up {
        let _ = writeln!(text, "{growth}\n");
    }
    chosen_hosts(&mut text, decision);
    let held = held_rows(&report.holds, now);
    let pods = pods(&report.pods, now);
    let pods = if wide { pods } else { once(pods) };
    let nodes = nodes(&report.nodes, now);
    let all = held.iter().chain(&pods).chain(&nodes);
    let mut causes = SharedCauses::among(wide, all.map(|row| &row.why));
    let mut write =
        |rows: Vec<WhyRow>| rows.into_iter().map(|row| row.write(&mut causes)).collect();
    let (held, pods, nodes) = (write(held), write(pods), write(nodes));
    section(&mut text, "On hold", &HOLDS, held);
    let pools_shown = if wide {
        report.pools.clone()
    } else {
        narrow::short_back_offs(report)
    };
    pools(&mut text, &pools_shown, now);
    coming(&mut text, &report.coming);
    hosts(&mut text, &report.hosts);
    stores::storages(&mut text, &report.storages, wide);
    stores::devices(&mut text, &report.devices);
    stores::own_cpus(&mut text, &report.own_cpus);
    networks::table(&mut text, &report.networks);
    section(
        &mut text,
        "Pods without a node",
        &["POD", "OUTCOME", "WHY"],
        pods,
    );
    section(&mut text, "Nodes", &["NODE", "VERDICT", "WHY"], nodes);
    causes.tell(&mut text);
    warnings(&mut text, &report.warnings);
    if let Some(wake) = decision.wake {
        let _ = writeln!(text, "Next decision at the latest {}.", when(wake, now));
    }
    text
}

fn plan_heading(plan: &[Action]) -> String {
    match plan.len() {
        0 => "Nothing to do now".to_owned(),
        1 => "One action".to_owned(),
        many => format!("{many} actions"),
    }
}

fn plan(plan: &[Action]) -> Vec<Vec<String>> {
    plan.iter()
        .map(|action| {
            let (verb, what) = act(action);
            vec![
                verb.to_owned(),
                action.target.machine.to_string(),
                what,
                action.reason.to_string(),
            ]
        })
        .collect()
}

const HOLDS: [&str; 3] = ["SCOPE", "WHY", "UNTIL"];

/// What is on hold.
pub(super) fn held(text: &mut String, holds: &[Hold], now: Time) {
    let rows = held_rows(holds, now);
    let mut causes = SharedCauses::among(true, rows.iter().map(|row| &row.why));
    let rows = rows.into_iter().map(|row| row.write(&mut causes));
    let rows = rows.collect();
    section(text, "On hold", &HOLDS, rows);
}

/// Why the new machines come to their hosts, in the plan's order: each counts with those before it.
fn chosen_hosts(text: &mut String, decision: &Decision) {
    let machines = decision.plan.iter().map(|action| &action.target.machine);
    let rows = machines.filter_map(|machine| {
        let chosen = decision.report.chosen_hosts.get(machine)?;
        Some(vec![
            machine.to_string(),
            chosen.host.to_string(),
            one_line(&chosen.to_string()),
        ])
    });
    section(
        text,
        "Hosts of new machines",
        &["MACHINE", "HOST", "WHY"],
        rows.collect(),
    );
}

/// The pools in numbers.
pub(super) fn pools(text: &mut String, pools: &BTreeMap<Arc<str>, PoolState>, now: Time) {
    let rows = pools
        .iter()
        .map(|(name, pool)| {
            let backoff = pool.backoff_until.map(|until| {
                let why = pool.backoff_message.as_deref();
                let why = why.unwrap_or("none of its machines works yet");
                format!("ends {}: {}", when(until, now), one_line(why))
            });
            let mut row = vec![name.to_string()];
            row.extend([pool.min, pool.max].map(|number| number.to_string()));
            let counted = [pool.ready, pool.coming, pool.leaving, pool.unready];
            // What they are counted from may not be read yet.
            let shown = |number: u32| Some(number.to_string()).filter(|_| !pool.unread);
            row.extend(counted.map(|number| shown(number).unwrap_or_else(|| "?".to_owned())));
            row.push(backoff.unwrap_or_default());
            row
        })
        .collect();
    let heading = [
        "POOL", "MIN", "MAX", "READY", "COMING", "LEAVING", "UNREADY", "BACK-OFF",
    ];
    section(text, "Pools", &heading, rows);
}

/// Machines that are on their way up.
fn coming(text: &mut String, machines: &BTreeMap<Arc<str>, ComingMachine>) {
    let some_go = machines.values().any(|machine| machine.given_up.is_some());
    let rows = machines.iter().map(|(name, machine)| {
        let mut row = vec![
            name.to_string(),
            machine.pool.to_string(),
            machine.instance_type.to_string(),
            words::at(&machine.region, &machine.host),
            machine.vmid.to_string(),
        ];
        if some_go {
            let goes = machine.given_up.as_ref();
            let goes = goes.map(|goes| one_line(&format!("it goes once it works: {}", goes.why)));
            row.push(goes.unwrap_or_default());
        }
        row
    });
    let heading = ["MACHINE", "POOL", "TYPE", "HOST", "VMID", "NOTE"];
    let columns = if some_go { 6 } else { 5 };
    section(
        text,
        "Machines on their way",
        &heading[..columns],
        rows.collect(),
    );
}

/// Hosts as new machines find them.
pub(super) fn hosts(
    text: &mut String,
    regions: &BTreeMap<Arc<str>, BTreeMap<Arc<str>, HostState>>,
) {
    let several = regions.len() > 1;
    let mut rows = Vec::new();
    for (region, hosts) in regions {
        for (name, host) in hosts {
            let name = if several {
                format!("{region}/{name}")
            } else {
                name.to_string()
            };
            // A host that is off tells no numbers.
            let of = |promised: String, has: i64, all: String| match has {
                0 => "?".to_owned(),
                _ => format!("{promised} of {all}"),
            };
            let cpus = i64::from(host.cpus);
            rows.push(vec![
                name,
                host.machines.to_string(),
                of(
                    words::bytes(host.promised_memory),
                    host.memory,
                    words::bytes(host.memory),
                ),
                words::bytes(host.left_memory),
                of(
                    words::cores(host.promised_cpu_milli),
                    cpus,
                    cpus.to_string(),
                ),
                one_line(&host.notes.join("; ")),
            ]);
        }
    }
    let heading = [
        "HOST",
        "MACHINES",
        "MEMORY PROMISED",
        "LEFT FOR MACHINES",
        "CORES PROMISED",
        "NOTE",
    ];
    section(text, "Hosts", &heading, rows);
}

/// Where a machine is: its host, its region where that is to be told, and the CPUs that it has for itself.
pub(super) fn place(host: &str, region: Option<&str>, cpus: &CpuSet) -> String {
    let mut text = host.to_owned();
    if let Some(region) = region.filter(|region| !region.is_empty()) {
        let _ = write!(text, " in {region}");
    }
    if !cpus.is_empty() {
        let _ = write!(text, ", CPUs {cpus}");
    }
    text
}

/// What a person should look at.
pub(super) fn warnings(text: &mut String, warnings: &[String]) {
    let rows = warnings
        .iter()
        .map(|warning| vec![one_line(warning)])
        .collect();
    section(text, "Warnings", &[], rows);
}

/// A heading and its rows; nothing when there are no rows, but for a heading that says so itself.
pub(super) fn section(
    text: &mut String,
    title: &str,
    heading: &[&str],
    mut rows: Vec<Vec<String>>,
) {
    if rows.is_empty() {
        if title.starts_with("Nothing") {
            let _ = writeln!(text, "{title}.\n");
        }
        return;
    }
    let left = rows.len().saturating_sub(MAX_ROWS);
    rows.truncate(MAX_ROWS);
    let _ = writeln!(text, "{title}");
    text.push_str(&table(heading, &rows));
    if left > 0 {
        let _ = writeln!(text, "  … and {left} more; -o json has them all");
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::action::{CreateSpec, Kind, NodeRef, Precondition, Reason, Target, VERSION};
    use crate::model::cluster::ObjectKey;
    use crate::model::host_choice::{HostChoice, HostStanding};
    use crate::model::hosts::HostStrategy;
    use crate::model::mark::Mark;
    use crate::model::memory::Memory;
    use crate::model::reasons::{
        Aborted, Blocked, FilterFailure, GivenUp, Held, Ignored, Kept, Reasons, Refused, Removed,
        Unremovable, WaitsFor,
    };
    use crate::model::report::{GoesOnceUp, Growth, Report, Scope};
    use crate::model::report::{NodeVerdict, PodVerdict};
    use crate::model::time::Span;

    const NOW: Time = Time(1_795_000_000_000);

    fn action(kind: Kind, machine: &str, reason: Reason) -> Action {
        Action {
            version: VERSION,
            kind,
            target: Target {
                region: "default".into(),
                host: "pve1".into(),
                vmid: 9001,
                machine: machine.into(),
                node: Some(NodeRef {
                    name: machine.into(),
                    uid: "u".into(),
                }),
            },
            precondition: Precondition::default(),
            reason,
        }
    }

    fn spec() -> CreateSpec {
        CreateSpec {
            mark: Mark {
                cluster: "uid/default".into(),
                machine: "small-k3x9p".into(),
                vmid: 9001,
                pool: "small".into(),
                instance_type: "s2".into(),
                template: "debian".into(),
                token: "abc123".into(),
                created: NOW,
                addresses: BTreeMap::new(),
                cpus: crate::model::cpus::CpuSet::new(),
                unknown: [].into(),
            },
            template_vmid: 8000,
            template_host: "pve1".into(),
            template_uuid: None,
            storages: crate::model::chosen_storages::ChosenStorages::default(),
            terms: None,
        }
    }

    fn some_hosts() -> BTreeMap<Arc<str>, BTreeMap<Arc<str>, HostState>> {
        let full = HostState {
            online: true,
            machines: 3,
            cpus: 16,
            promised_cpu_milli: 22_500,
            memory: 64 << 30,
            promised_memory: 60 << 30,
            left_memory: 4 << 30,
            most_memory: 64 << 30,
            most_cpu_milli: None,
            notes: vec!["pool small takes it last: a: kubeadm failed\u{1b}[31m".to_owned()],
            notes_details: Vec::new(),
        };
        let off = HostState {
            notes: vec!["offline".to_owned()],
            ..HostState::default()
        };
        let hosts = [("pve1", full), ("pve2", off)];
        let hosts = hosts.map(|(name, host)| (Arc::from(name), host));
        BTreeMap::from([(Arc::from("default"), hosts.into())])
    }

    fn some_choice() -> HostChoice {
        HostChoice {
            host: "pve1".into(),
            strategy: HostStrategy::Spread,
            standing: HostStanding::default(),
            other: None,
        }
    }

    fn some_pools() -> BTreeMap<Arc<str>, PoolState> {
        BTreeMap::from([
            (
                Arc::from("big"),
                PoolState {
                    max: 2,
                    backoff_until: Some(NOW + Span::minutes(5)),
                    backoff_message: Some(
                        "kubeadm join failed:\ncannot reach 10.0.0.1:6443".into(),
                    ),
                    ..PoolState::default()
                },
            ),
            (
                Arc::from("small"),
                PoolState {
                    min: 1,
                    max: 3,
                    ready: 2,
                    coming: 1,
                    ..PoolState::default()
                },
            ),
        ])
    }

    fn some_nodes() -> BTreeMap<Arc<str>, NodeVerdict> {
        BTreeMap::from([
            (Arc::from("cp-1"), NodeVerdict::NotAutoscaled),
            (
                Arc::from("small-aaaaa"),
                NodeVerdict::Kept {
                    reason: Unremovable::NotEnoughPdb,
                    why: Kept::BlockedByPod {
                        pod: ObjectKey::new("default", "db-0"),
                        blocked: Box::new(Blocked::Budget {
                            budget: ObjectKey::new("default", "db"),
                            allowed: 0,
                            left: 0,
                            unready: false,
                        }),
                    },
                    pod: Some(ObjectKey::new("default", "db-0")),
                    until: Some(NOW + Span::minutes(5)),
                },
            ),
            (
                Arc::from("small-bbbbb"),
                NodeVerdict::Leaving {
                    why: Removed::Planned {
                        reason: Reason::Unneeded {
                            since: NOW - Span::minutes(10),
                            utilization_permille: 125,
                        },
                    },
                    moves: BTreeMap::new(),
                },
            ),
        ])
    }

    fn report() -> Report {
        let pod = |name: &str| ObjectKey::new("default", name);
        let why = |refused: Refused| {
            Arc::new(BTreeMap::from([
                (Arc::from("big/b8"), refused.clone().into()),
                (Arc::from("small/s2"), refused.into()),
            ]))
        };
        let filter_failure = FilterFailure::Insufficient {
            resource: "nvidia.com/gpu".into(),
            asked: 1,
            free: 0,
            new_node: true,
        };
        let reason = "lunch\u{1b}[31m".into();
        let paused = Held::Paused { reason };
        Report {
            unread: BTreeSet::new(),
            hosts: some_hosts(),
            storages: BTreeMap::new(),
            devices: BTreeMap::new(),
            own_cpus: BTreeMap::new(),
            networks: BTreeMap::new(),
            holds: vec![Hold {
                until: Some(NOW + Span::minutes(6)),
                ..Hold::new(Scope::ScaleDown, Held::ScaleDownDisabled)
            }],
            pods: BTreeMap::from([
                (
                    pod("a"),
                    PodVerdict::Triggers {
                        machine: "small-k3x9p".into(),
                        others: why(Refused::CarriesLess {
                            winner: "small/s4".into(),
                        }),
                    },
                ),
                (
                    pod("b"),
                    PodVerdict::FitsMachine {
                        machine: "small-k3x9p".into(),
                    },
                ),
                (
                    pod("c"),
                    PodVerdict::NoCompatiblePool {
                        why: why(Refused::FilterFailure {
                            filter_failure: filter_failure.into(),
                        }),
                    },
                ),
                (
                    pod("d"),
                    PodVerdict::Held {
                        why: why(Refused::Held {
                            hold: Arc::new(paused.into()),
                        }),
                    },
                ),
                (
                    pod("e"),
                    PodVerdict::Batched {
                        until: NOW + Span::seconds(3),
                    },
                ),
                (
                    pod("f"),
                    PodVerdict::Ignored {
                        why: Ignored::Gated,
                    },
                ),
                (
                    pod("g"),
                    PodVerdict::FitsNode {
                        node: "small-aaaaa".into(),
                        preempts: BTreeMap::from([(pod("low"), -100)]),
                    },
                ),
            ]),
            nodes: some_nodes(),
            pools: some_pools(),
            coming: BTreeMap::new(),
            warnings: vec!["VM 9005 in our range carries no mark".into()],
            warnings_details: Vec::new(),
            scale_up: Some(Growth {
                nodes: 5,
                price: 350_000,
            }),
            chosen_hosts: BTreeMap::from([("small-k3x9p".into(), some_choice())]),
            takes_pods_after: BTreeMap::new(),
        }
    }

    #[test]
    fn a_decision_reads_as_a_story() {
        let pods = vec![
            ObjectKey::new("default", "a"),
            ObjectKey::new("default", "b"),
        ];
        let made = Decision {
            plan: vec![
                action(
                    Kind::Create(Box::new(spec())),
                    "small-k3x9p",
                    Reason::PendingPods {
                        pods,
                        in_place_of: BTreeMap::new(),
                    },
                ),
                action(
                    Kind::Remove { drain: true },
                    "small-bbbbb",
                    Reason::Unneeded {
                        since: NOW - Span::minutes(10),
                        utilization_permille: 125,
                    },
                ),
                action(
                    Kind::Release,
                    "small-ccccc",
                    Reason::Aborted {
                        because: Aborted::NotWanted,
                    },
                ),
            ],
            report: report(),
            memory: Memory::default(),
            wake: Some(NOW + Span::seconds(3)),
        };
        insta::assert_snapshot!(decision(&made, false, NOW));
    }

    #[test]
    fn machines_that_are_on_their_way_are_listed() {
        let machine = |region: &str| ComingMachine {
            pool: "small".into(),
            instance_type: "s2".into(),
            region: region.into(),
            host: "pve2".into(),
            vmid: 9002,
            given_up: None,
        };
        let mut text = String::new();
        coming(&mut text, &BTreeMap::new());
        assert_eq!(text, "");
        let both = [("small-a", "default"), ("small-b", "east")];
        let mut both: BTreeMap<Arc<str>, ComingMachine> = both
            .map(|(name, region)| (Arc::from(name), machine(region)))
            .into();
        let rows = |both: &BTreeMap<Arc<str>, ComingMachine>| -> Vec<String> {
            let mut text = String::new();
            coming(&mut text, both);
            let lines = text.lines();
            lines
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect()
        };
        assert_eq!(
            rows(&both),
            [
                "Machines on their way",
                "MACHINE POOL TYPE HOST VMID",
                "small-a small s2 pve2 9002",
                "small-b small s2 pve2 in east 9002",
                "",
            ]
        );
        // One whose host is evacuated goes again, and nobody takes it for one that stays.
        let why = evacuation("pve2");
        if let Some(machine) = both.get_mut("small-b") {
            machine.given_up = Some(GoesOnceUp { why });
        }
        let noted = rows(&both);
        assert_eq!(noted[1], "MACHINE POOL TYPE HOST VMID NOTE");
        assert_eq!(noted[2], "small-a small s2 pve2 9002");
        assert_eq!(
            noted[3],
            "small-b small s2 pve2 in east 9002 it goes once it works: its host pve2 is evacuated since 2026-11-18T11:06:40Z"
        );
    }

    fn evacuation(host: &str) -> GivenUp {
        GivenUp::HostEvacuated {
            host: host.into(),
            since: NOW,
        }
    }

    /// Found by it: the same nine lines for each node of evacuated hosts, with the pod behind the last bracket. A machine that comes in a node's
    /// place is not for one pod of it.
    #[test]
    fn nodes_without_a_replacement_share_their_causes() {
        let refused = || -> Reasons {
            let max = Refused::PoolMax {
                machines: 3,
                max: 3,
                planned: 0,
            };
            Arc::new([("small/s2".into(), max.into())].into())
        };
        let node = |host: &str, pod: &str, waits: fn(ObjectKey, Reasons) -> WaitsFor| {
            let pod = ObjectKey::new("default", pod);
            let waits = waits(pod.clone(), refused());
            NodeVerdict::Kept {
                reason: waits.reason(),
                why: Kept::GivenUp {
                    cause: Box::new(evacuation(host)),
                    waits: Box::new(waits),
                },
                pod: Some(pod),
                until: None,
            }
        };
        let without = |pod: ObjectKey, refused: Reasons| WaitsFor::NoMachine {
            pod: Some(pod),
            refused,
        };
        let comes = |_: ObjectKey, _: Reasons| WaitsFor::MachineComing {
            machine: "small-x".into(),
        };
        let nodes = [
            ("small-a", node("pve1", "web-1", without)),
            ("small-b", node("pve2", "web-2", without)),
            ("small-c", node("pve3", "web-3", comes)),
        ];
        let made = Decision {
            plan: Vec::new(),
            report: Report {
                nodes: nodes.map(|(name, verdict)| (name.into(), verdict)).into(),
                ..Report::default()
            },
            memory: Memory::default(),
            wake: None,
        };
        let text = decision(&made, false, NOW);
        assert_eq!(text.matches("pool limit").count(), 1, "{text}");
        for host in ["pve1", "pve2"] {
            let cause = format!("its host {host} is evacuated since ");
            assert!(text.contains(&cause), "{text}");
        }
        let row = "its pod default/web-1 fits on no other node, and no machine can be made for it now; small/s2 (1)";
        assert!(text.contains(row), "{text}");
        assert!(
            text.contains("small-x is on its way in its place\n"),
            "{text}"
        );
        assert!(!text.contains("(pod "), "{text}");
    }

    /// Six nodes are kept for the same reason: it stands below the tables, once.
    #[test]
    fn a_cause_of_many_nodes_is_told_once() {
        let why = || Kept::BlockedByPod {
            pod: ObjectKey::new("default", "db-0"),
            blocked: Box::new(Blocked::Budget {
                budget: ObjectKey::new("default", "db"),
                allowed: 0,
                left: 0,
                unready: false,
            }),
        };
        let kept = || NodeVerdict::Kept {
            reason: Unremovable::NotEnoughPdb,
            why: why(),
            pod: None,
            until: None,
        };
        let nodes = (0..6).map(|node| (Arc::from(format!("small-{node}")), kept()));
        let made = Decision {
            plan: Vec::new(),
            report: Report {
                nodes: nodes.collect(),
                ..Report::default()
            },
            memory: Memory::default(),
            wake: None,
        };
        let why = why().to_string();
        let narrow = decision(&made, false, NOW);
        assert_eq!(narrow.matches(&why).count(), 1, "{narrow}");
        assert_eq!(narrow.matches("NotEnoughPdb  (1)").count(), 6, "{narrow}");
        assert_eq!(decision(&made, true, NOW).matches(&why).count(), 6);
    }

    #[test]
    fn nothing_to_do_is_said() {
        let none = Decision {
            plan: Vec::new(),
            report: Report::default(),
            memory: Memory::default(),
            wake: None,
        };
        assert_eq!(decision(&none, false, NOW), "Nothing to do now.\n\n");
    }

    #[test]
    fn a_long_list_is_cut_and_says_so() {
        let mut report = Report::default();
        for number in 0..250 {
            report.warnings.push(format!("warning {number}"));
        }
        let mut text = String::new();
        warnings(&mut text, &report.warnings);
        assert!(
            text.contains("warning 199\n") && !text.contains("warning 200"),
            "{text}"
        );
        assert!(text.contains("and 50 more"), "{text}");
    }

    #[test]
    fn words_of_others_cannot_steer_a_terminal() {
        assert_eq!(one_line("a\n b\u{1b}[31m\tc"), r"a b\u{1b}[31m c");
    }
}
