//! Machines under way, failures, back-off, what is left behind, and what holds everything back.

use super::lab::{CLUSTER, Lab, lab, made, verdict};
use crate::model::action::{Kind, Reason};
use crate::model::cluster::ReadyStatus;
use crate::model::decision::Decision;
use crate::model::mark::Ownership;
use crate::model::memory::Memory;
use crate::model::region::{Busy, Failure, MachineVm, Step, Vm};
use crate::model::report::PodVerdict;
use crate::model::time::Span;

fn pool() -> Lab {
    lab().kind("one", 2, 4096).pool("p", &["one"])
}

/// A machine `m` that stands at a step, with a marked VM, and nobody at it.
fn machine(step: Step) -> Lab {
    pool().machine("m", "p", "one", step)
}

fn failed(step: Step, transient: bool) -> Lab {
    let lab = machine(step);
    let at = lab.now;
    lab.edit_machine("m", |machine| {
        machine.failure = Some(Failure {
            step,
            message: "kubeadm: no route to host".into(),
            at,
            transient,
        });
    })
}

pub(super) fn kinds(decision: &Decision) -> Vec<Kind> {
    decision
        .plan
        .iter()
        .map(|action| action.kind.clone())
        .collect()
}

fn remove(drain: bool) -> Vec<Kind> {
    vec![Kind::Remove { drain }]
}

#[test]
fn unfinished_machines_go_on_wherever_they_stand() {
    for step in [Step::Clone, Step::Agent, Step::Join, Step::Initialize] {
        let mut lab = machine(step);
        let decision = lab.turn();
        assert_eq!(kinds(&decision), [Kind::Continue], "{step:?}");
        let overdue = lab.now + Span::minutes(15) + Span(1);
        assert_eq!(decision.wake, Some(overdue));
        assert!(lab.decide().plan.is_empty(), "the executor is at it");
    }
    let intent = machine(Step::Intent).edit_machine("m", |machine| machine.vm = None);
    assert_eq!(kinds(&intent.decide()), [Kind::Continue]);
    // Nothing but the journal is behind.
    let initialised = pool().ours("m", "p", "one").edit_machine("m", |machine| {
        machine.step = Some((Step::Initialize, machine.mark.created));
    });
    assert_eq!(kinds(&initialised.decide()), [Kind::Continue]);
    assert!(pool().ours("m", "p", "one").decide().plan.is_empty());
}

#[test]
fn lc_07_a_node_is_initialised_when_its_startup_taints_are_gone() {
    let mut lab = machine(Step::Initialize);
    lab.register("m", false);
    assert_eq!(lab.decide().report.pools["p"].coming, 1);
    let lab = lab.edit_node("m", |node| node.taints.clear());
    assert_eq!(lab.decide().report.pools["p"].ready, 1);
}

#[test]
fn lc_01_what_does_not_come_up_in_time_has_failed() {
    let lab = machine(Step::Agent).pod("web", 10, 10);
    let early = lab.clone().after(Span::minutes(15));
    assert_eq!(kinds(&early.decide()), [Kind::Continue]);
    let mut late = lab.after(Span::minutes(16));
    let decision = late.turn();
    assert_eq!(kinds(&decision), remove(false));
    assert!(decision.report.pools["p"].backoff_until.is_some());
    // The pods wait for the pool, or go to another one.
    assert!(matches!(verdict(&decision, "web"), PodVerdict::Held { .. }));
    let other = late.kind("two", 2, 4096).pool("q", &["two"]);
    assert_eq!(made(&other.decide()), ["two"]);
}

#[test]
fn a_failed_machine_is_removed_and_its_pool_backs_off_once() {
    let mut lab = failed(Step::Join, false);
    let decision = lab.turn();
    assert_eq!(kinds(&decision), remove(false));
    assert_eq!(
        decision.plan[0].reason,
        Reason::Failed {
            message: "kubeadm: no route to host".into()
        }
    );
    let until = lab.memory.backoff["p"].until;
    assert_eq!(until, lab.now + Span::minutes(5));
    let mut lab = lab.after(Span::minutes(1));
    lab.turn();
    assert_eq!(lab.memory.backoff["p"].until, until, "counted once");
    lab.settle();
    lab.turn();
    assert!(
        lab.memory.counted_failures.is_empty(),
        "forgotten with the machine"
    );
}

#[test]
fn lc_17_back_off_doubles_to_its_longest_and_is_forgotten() {
    let mut lab = pool();
    let mut lengths = Vec::new();
    for n in 0..5 {
        let name = format!("m{n}");
        let now = lab.now;
        lab = lab
            .machine(&name, "p", "one", Step::Join)
            .edit_machine(&name, |machine| {
                machine.failure = Some(Failure {
                    step: Step::Join,
                    message: "no".into(),
                    at: now,
                    transient: false,
                });
            });
        lab.turn();
        lab.settle();
        lengths.push(lab.memory.backoff["p"].length);
        lab = lab.after(Span::minutes(31));
    }
    let minutes = [5, 10, 20, 30, 30].map(Span::minutes);
    assert_eq!(lengths, minutes);
    let mut lab = lab.after(Span::minutes(180));
    lab.turn();
    assert!(lab.memory.backoff.is_empty());
}

#[test]
fn nx_08_nx_10_a_transient_failure_backs_nothing_off() {
    let mut lab = failed(Step::Clone, true).edit_machine("m", |machine| machine.vm = None);
    let decision = lab.turn();
    assert_eq!(kinds(&decision), [Kind::DropIntent]);
    assert!(lab.memory.backoff.is_empty());
}

#[test]
fn a_failed_machine_with_a_node_is_drained() {
    let mut lab = failed(Step::Initialize, false);
    lab.register("m", false);
    assert_eq!(kinds(&lab.decide()), remove(true));
}

#[test]
fn a_failed_machine_stays_whose_node_somebody_wants_to_keep() {
    const DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
    let annotated = |value: &'static str| {
        let mut lab = failed(Step::Initialize, false);
        lab.register("m", false);
        let node = lab.edit_node("m", |node| {
            let mut annotations = (*node.annotations).clone();
            annotations.insert(DISABLED.into(), value.into());
            node.annotations = annotations.into();
        });
        node.decide()
    };
    let decision = annotated("true");
    assert_eq!(kinds(&decision), []);
    assert_eq!(
        decision.report.warnings,
        [format!(
            "machine m failed: kubeadm: no route to host; it is kept, because its node is annotated with {DISABLED}=true"
        )]
    );
    assert_eq!(kinds(&annotated("false")), remove(true));
}

#[test]
fn a_lost_memory_lets_a_pool_without_healthy_nodes_wait() {
    let mut lab = failed(Step::Join, true)
        .after(Span::minutes(1))
        .pod("web", 10, 10);
    lab.settle();
    assert_eq!(made(&lab.decide()), ["one"]);
    lab.memory = Memory::default();
    let decision = lab.turn();
    assert_eq!(made(&decision), Vec::<String>::new());
    let lab = lab.after(Span::minutes(5));
    assert_eq!(made(&lab.decide()), ["one"]);
    // The first machines of a new installation are no such case.
    let mut fresh = pool()
        .pod("web", 10, 10)
        .with(|lab| lab.memory = Memory::default());
    assert_eq!(made(&fresh.turn()), ["one"]);
    let fresh = fresh.after(Span::minutes(1)).pod("big", 2000, 10);
    assert_eq!(made(&fresh.decide()), ["one"]);
}

/// A locked, markless VM that an intent names.
fn placeholder() -> Lab {
    machine(Step::Clone)
        .edit_machine("m", |machine| {
            machine.vm = Some(MachineVm {
                lock: Some("clone".into()),
                ..MachineVm::default()
            });
        })
        .with(|lab| {
            let region = lab.snapshot.regions.get_mut("home").expect("home");
            let vm = region.vms.get_mut(&9000).expect("its VM");
            vm.running = false;
            vm.ownership = Some(Ownership::Unmarked);
        })
}

#[test]
fn a_placeholder_is_followed_first_and_cleared_after_a_quarantine() {
    let mut lab = placeholder();
    let decision = lab.decide();
    assert_eq!(kinds(&decision), [Kind::Continue]);
    assert_eq!(decision.wake, Some(lab.now + Span::minutes(5)));
    // Somebody is at it: no quarantine runs.
    let mut busy = lab.clone();
    busy.turn();
    busy.turn();
    let busy = busy
        .after(Span::minutes(6))
        .edit_machine("m", |machine| machine.busy = None);
    assert_eq!(kinds(&busy.decide()), [Kind::Continue]);
    // Nobody is.
    lab.memory = lab.decide().memory;
    let lab = lab.after(Span::minutes(5));
    assert_eq!(kinds(&lab.decide()), [Kind::ClearPlaceholder]);
    // What no intent names is not ours.
    let not_ours = lab.edit_machine("m", |machine| machine.intended = false);
    assert!(!kinds(&not_ours.decide()).contains(&Kind::ClearPlaceholder));
}

#[test]
fn what_a_removal_of_ours_left_is_cleared_at_once() {
    let remains = |step, lock: &str| {
        let lab = placeholder().edit_machine("m", |machine| {
            machine.step = Some((step, machine.mark.created));
            machine.vm.as_mut().expect("its VM").lock = Some(lock.into());
        });
        kinds(&lab.decide())
    };
    assert_eq!(
        remains(Step::Destroy, "destroyed"),
        [Kind::ClearPlaceholder]
    );
    // Another's removal, another's lock.
    assert_eq!(remains(Step::Destroy, "backup"), []);
    // A placeholder that was being cleared has its quarantine.
    assert_eq!(remains(Step::Destroy, "clone"), []);
}

#[test]
fn a_vm_without_node_goes_after_a_quarantine() {
    let mut lab = pool().ours("m", "p", "one").with(|lab| {
        lab.snapshot.cluster.nodes.clear();
    });
    let decision = lab.turn();
    assert!(decision.plan.is_empty());
    assert!(decision.report.warnings[0].contains("quarantine"));
    let back = lab.clone().after(Span::minutes(4)).node("m", 1, 1);
    let mut back = back;
    back.turn();
    assert!(back.memory.quarantine.is_empty(), "its node came back");
    let lab = lab.after(Span::minutes(5));
    assert_eq!(kinds(&lab.decide()), remove(false));
}

#[test]
fn one_whose_node_goes_while_it_is_emptied_waits_for_the_quarantine_too() {
    for step in [Step::Drain, Step::Detach] {
        let mut lab = machine(step);
        assert_eq!(kinds(&lab.turn()), [], "{step:?}");
        let mut back = lab.clone();
        back.register("m", true);
        assert_eq!(kinds(&back.decide()), [], "{step:?}: its node came back");
        let lab = lab.after(Span::minutes(5));
        assert_eq!(kinds(&lab.decide()), remove(false), "{step:?}");
        // While somebody is at it, the executor itself looks at the node.
        let at_it = lab.edit_machine("m", |machine| machine.busy = Some(Busy::Down));
        assert_eq!(kinds(&at_it.decide()), [], "{step:?}");
    }
}

#[test]
fn a_view_that_is_not_good_begins_no_quarantine() {
    let mut lab = pool().ours("m", "p", "one").with(|lab| {
        lab.snapshot.cluster.nodes.clear();
        lab.snapshot
            .sources
            .get_mut("kube/nodes")
            .expect("there")
            .complete = false;
    });
    lab.turn();
    assert!(lab.memory.quarantine.is_empty());
    let mut lab = lab.after(Span::minutes(6));
    assert!(lab.turn().plan.is_empty(), "it begins now");
}

/// A node that says it is of VM 9500, which is not there.
fn orphan() -> Lab {
    pool()
        .node("p-lost", 1000, 1024)
        .edit_node("p-lost", |node| {
            node.labels
                .insert("pve-autoscaler.io/pool".into(), "p".into());
            let says = "home/9500/uuid-p-lost";
            node.annotations
                .insert("pve-autoscaler.io/machine".into(), says.into());
            node.ready.status = ReadyStatus::Unknown;
        })
}

#[test]
fn a_node_without_vm_goes_after_a_quarantine() {
    let deleted = |mut lab: Lab| {
        lab.turn();
        let mut lab = lab.after(Span::minutes(5));
        let decision = lab.turn();
        assert!(lab.decide().plan.is_empty());
        kinds(&decision)
    };
    assert_eq!(deleted(orphan()), [Kind::DeleteNode]);
    let alive = orphan().edit_node("p-lost", |node| node.ready.status = ReadyStatus::True);
    assert_eq!(deleted(alive), []);
    let vm_there = orphan().with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        region.vms.insert(9500, Vm::default());
    });
    assert_eq!(deleted(vm_there), []);
    let reused = orphan().with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        let vm = Vm {
            uuid: Some("uuid-of-another".into()),
            ..Vm::default()
        };
        region.vms.insert(9500, vm);
    });
    assert_eq!(deleted(reused), [Kind::DeleteNode], "VMIDs are used again");
    let name_there = orphan().with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        let vm = Vm {
            name: "p-lost".into(),
            ..Vm::default()
        };
        region.vms.insert(300, vm);
    });
    assert_eq!(deleted(name_there), []);
    let edited = orphan().edit_node("p-lost", |node| node.system_uuid = "another".into());
    assert_eq!(deleted(edited), []);
    let unknown_pool = orphan().edit_node("p-lost", |node| {
        node.labels
            .insert("pve-autoscaler.io/pool".into(), "q".into());
    });
    assert_eq!(deleted(unknown_pool), []);
}

#[test]
fn a_machine_whose_vm_is_gone_loses_its_node_and_its_intent() {
    let mut lab = pool().ours("m", "p", "one").edit_machine("m", |machine| {
        machine.vm = None;
    });
    lab.snapshot
        .regions
        .get_mut("home")
        .expect("home")
        .vms
        .remove(&9000);
    let lab = lab.edit_node("m", |node| node.ready.status = ReadyStatus::Unknown);
    let mut lab = lab;
    assert!(lab.turn().plan.is_empty());
    let mut lab = lab.after(Span::minutes(5));
    assert_eq!(kinds(&lab.turn()), [Kind::DeleteNode]);
    assert_eq!(kinds(&lab.turn()), [Kind::DropIntent]);
    assert!(lab.decide().plan.is_empty());
}

#[test]
fn a_machine_made_since_the_region_was_read_is_coming() {
    for step in [Step::Configure, Step::Join, Step::Initialize, Step::Done] {
        let unseen = |ago: Span| {
            let mut lab = machine(step).edit_machine("m", |machine| {
                machine.vm = None;
                machine.busy = Some(Busy::Up);
            });
            let now = lab.now;
            lab.snapshot
                .regions
                .get_mut("home")
                .expect("home")
                .vms
                .clear();
            lab.policy.pools.get_mut("p").expect("p").min = 1;
            let read = lab.snapshot.sources.get_mut("pve/home").expect("there");
            read.as_of = now - Span::seconds(10);
            lab.edit_machine("m", |machine| {
                machine.step = Some((step, now - ago));
            })
        };
        let decision = unseen(Span::seconds(2)).decide();
        assert_eq!(kinds(&decision), [], "{step:?}: it has its node to be");
        assert_eq!(decision.report.pools["p"].coming, 1, "{step:?}");
        let decision = unseen(Span::seconds(12)).decide();
        let made = matches!(kinds(&decision)[..], [Kind::Create(_)]);
        assert!(made, "{step:?}: its VM is gone, {:?}", decision.plan);
    }
}

#[test]
fn marks_that_are_not_intact_mean_hands_off() {
    let overdue = || failed(Step::Join, false);
    let mark = overdue().snapshot.machines["m"].mark.clone();
    let mut doubled = mark.clone();
    doubled.vmid = 9001;
    for (what, vmid, ownership) in [
        ("damaged", 9000, Ownership::Damaged("edited".into())),
        (
            "unknown version",
            9000,
            Ownership::UnknownVersion("v7".into()),
        ),
        ("a copy", 9001, Ownership::Marked(mark.clone())),
        ("doubled", 9001, Ownership::Marked(doubled)),
    ] {
        let lab = overdue().with(|lab| {
            let region = lab.snapshot.regions.get_mut("home").expect("home");
            let vm = region.vms.entry(vmid).or_default();
            vm.ownership = Some(ownership);
        });
        let decision = lab.decide();
        assert!(decision.plan.is_empty(), "{what}: {:?}", decision.plan);
        assert!(!decision.report.warnings.is_empty(), "{what}");
    }
    let foreign = overdue().edit_machine("m", |machine| {
        machine.mark.cluster = "uid/another".into();
    });
    assert!(foreign.decide().plan.is_empty());
    assert_eq!(mark.cluster, CLUSTER);
}

#[test]
fn foreign_vms_in_our_range_are_named() {
    let lab = pool().with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        region.vms.insert(
            9042,
            Vm {
                name: "mine".into(),
                ownership: Some(Ownership::Unmarked),
                ..Vm::default()
            },
        );
    });
    assert_eq!(
        lab.decide().report.warnings,
        ["region home: VM 9042 (mine): somebody else's, inside our VMID range"]
    );
}

#[test]
fn nothing_is_destroyed_for_a_pool_that_left_the_configuration() {
    for lab in [failed(Step::Join, false), pool().ours("m", "p", "one")] {
        let mut lab = lab.with(|lab| {
            lab.policy.pools.clear();
        });
        lab.turn();
        let decision = lab.after(Span::minutes(30)).decide();
        assert!(decision.plan.is_empty());
        assert!(decision.report.warnings[0].contains("not in the configuration"));
    }
}

#[test]
fn a_removal_that_was_begun_on_a_machine_without_node_goes_on() {
    let lab = machine(Step::Destroy);
    assert_eq!(kinds(&lab.decide()), remove(false));
    let mut half = machine(Step::Join);
    half.register("m", false);
    let half = half.edit_machine("m", |machine| {
        machine.step = Some((Step::Drain, machine.mark.created));
    });
    assert_eq!(kinds(&half.decide()), remove(true));
}

/// What a change to the view makes of a world with something to add, continue and remove.
pub(super) fn held(change: impl Fn(&mut Lab)) -> (Vec<Kind>, Vec<String>) {
    let mut lab = pool()
        .ours("idle", "p", "one")
        .machine("m", "p", "one", Step::Agent)
        .edit_machine("m", |machine| machine.busy = Some(Busy::Up))
        .edit_pool("p", |pool| pool.scale_down = None);
    lab.policy.scale_down.delay_after_add = Span::ZERO;
    lab.turn();
    let lab = lab
        .after(Span::minutes(11))
        .edit_machine("m", |machine| machine.busy = None)
        .pod("web", 2000, 4000)
        .pod("web2", 2000, 4000)
        .shape("web", |shape| {
            shape
                .node_selector
                .insert("topology.kubernetes.io/zone".into(), "pve2".into());
        })
        .shape("web2", |shape| {
            shape
                .node_selector
                .insert("topology.kubernetes.io/zone".into(), "pve2".into());
        })
        .with(change);
    let decision = lab.decide();
    let holds = decision
        .report
        .holds
        .iter()
        .map(|hold| format!("{}: {}", hold.scope, hold.why))
        .collect();
    (kinds(&decision), holds)
}

pub(super) fn creates(kinds: &[Kind]) -> usize {
    kinds
        .iter()
        .filter(|kind| matches!(kind, Kind::Create(_)))
        .count()
}

#[test]
fn without_a_hold_everything_happens() {
    let (kinds, holds) = held(|_| {});
    assert_eq!(holds, Vec::<String>::new());
    assert_eq!(creates(&kinds), 2);
    assert!(kinds.contains(&Kind::Continue));
}

#[test]
fn holds_stop_everything_and_say_why() {
    for (change, words) in [
        (
            (|lab: &mut Lab| lab.snapshot.leader = false) as fn(&mut Lab),
            "everything: this instance does not hold the lease",
        ),
        (
            |lab| lab.snapshot.paused = Some("ann".into()),
            "everything: paused: ann",
        ),
        (
            |lab| lab.snapshot.cluster_id = None,
            "everything: the cluster id is not known yet",
        ),
        (
            |lab| lab.now = lab.now - Span::minutes(1),
            "everything: the clock was set back",
        ),
        (
            |lab| {
                lab.snapshot.sources.remove("kube/nodes");
            },
            "scale-up: kube/nodes was not yet read completely",
        ),
        (
            |lab| {
                let source = lab.snapshot.sources.get_mut("kube/daemonsets");
                source.expect("there").complete = false;
            },
            "scale-up: kube/daemonsets was not yet read completely",
        ),
        (
            |lab| {
                let source = lab.snapshot.sources.get_mut("kube/pods").expect("there");
                source.as_of = source.as_of - Span::minutes(4);
            },
            "scale-up: the view of kube/pods is 4m old, at most 3m is allowed",
        ),
        (
            |lab| {
                let region = lab.snapshot.regions.get_mut("home").expect("home");
                region.quorate = false;
            },
            "region home: the PVE cluster of the region home has no quorum",
        ),
        (
            |lab| {
                lab.snapshot.sources.remove("pve/home");
            },
            "region home: pve/home was not yet read completely",
        ),
        (
            |lab| {
                let unread = crate::model::region::Region::default();
                lab.snapshot.regions.insert("home".into(), unread.into());
                let source = lab.snapshot.sources.get_mut("pve/home").expect("there");
                source.complete = false;
                source.error = Some("connection refused".into());
            },
            "region home: pve/home was not yet read completely: connection refused",
        ),
    ] {
        let (kinds, holds) = held(change);
        assert_eq!(kinds, [], "{words}");
        assert!(holds[0].starts_with(words), "{holds:?}");
    }
}

#[test]
fn scale_up_and_scale_down_have_their_own_limits() {
    let old = |up: i64, down: i64| {
        held(move |lab| {
            lab.policy.scale_up.max_view_age = Span::minutes(up);
            lab.policy.scale_down.max_view_age = Span::minutes(down);
            for source in lab.snapshot.sources.values_mut() {
                source.as_of = source.as_of - Span::minutes(5);
            }
        })
        .0
    };
    assert_eq!(creates(&old(10, 1)), 2);
    assert_eq!(creates(&old(1, 10)), 0);
}

/// PVE shows for ten seconds after a start that the VM is off, and a daemon looks again at once.
#[test]
fn a_start_is_not_planned_again_before_pve_can_show_it() {
    let mut lab = pool().ours("m", "p", "one");
    let mut after = |span: Span, running: bool| {
        lab = lab.clone().after(span).edit_machine("m", |machine| {
            machine.vm.as_mut().expect("a VM").running = running;
        });
        let decision = lab.decide();
        lab.memory = decision.memory.clone();
        kinds(&decision)
    };
    assert_eq!(after(Span::ZERO, false), [], "it may be a reboot");
    assert_eq!(after(Span::seconds(61), false), [Kind::Start]);
    let again = (0..100).flat_map(|_| after(Span::seconds(1), false));
    assert_eq!(again.count(), 5, "once in twenty seconds");
    assert_eq!(after(Span::seconds(1), true), []);
    assert_eq!(lab.memory.power["m"].tried, None);
}

/// Somebody destroyed most VMs of the cluster, and their nodes are not Ready.
#[test]
fn the_brake_keeps_no_entry_of_a_vm_that_is_gone() {
    let names = ["a", "b", "c", "d", "e"];
    let mut lab = names.iter().fold(pool(), |lab, name| {
        let lab = lab.ours(name, "p", "one").edit_machine(name, |machine| {
            machine.intended = true;
            (machine.vm, machine.node) = (None, None);
        });
        lab.edit_node(name, |node| node.ready.status = ReadyStatus::False)
    });
    let region = lab.snapshot.regions.get_mut("home").expect("home");
    region.vms.clear();
    assert_eq!(kinds(&lab.turn()), [], "they are in quarantine");
    let lab = lab.after(Span::minutes(5));
    let decision = lab.decide();
    assert_eq!(kinds(&decision), [const { Kind::DropIntent }; 5]);
    let held = decision.report.holds.iter();
    assert!(
        held.clone()
            .any(|hold| hold.why.contains("ClusterUnhealthy"))
    );
}
