//! What is left behind: placeholders, VMs without a node, nodes without a VM, entries without either.

use super::lab::{Lab, MI};
use super::lifecycle::{kinds, machine, pool, remove};
use model::action::Kind;
use model::cluster::ReadyStatus;
use model::mark::{Mark, Ownership};
use model::reasons::Held;
use model::region::{Busy, Machine, MachineVm, Step, Vm};
use model::time::Span;

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
    assert_eq!(kinds(&lab.decide()), [Kind::DeletePlaceholder]);
    // What no intent names is not ours.
    let not_ours = lab.edit_machine("m", |machine| machine.intended = false);
    assert!(!kinds(&not_ours.decide()).contains(&Kind::DeletePlaceholder));
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
        [Kind::DeletePlaceholder]
    );
    // Another's removal, another's lock.
    assert_eq!(remains(Step::Destroy, "backup"), []);
    // A placeholder that was being cleared has its quarantine.
    assert_eq!(remains(Step::Destroy, "clone"), []);
}

/// VMs outside of the range are not read: such a machine looks as if its VM were gone.
#[test]
fn a_machine_outside_of_the_range_is_left_alone_and_named() {
    let mut lab = pool().ours("m", "p", "one").edit_machine("m", |machine| {
        machine.vm = None;
    });
    let vmid = lab.snapshot.machines["m"].mark.vmid;
    let region = lab.snapshot.regions.get_mut("home").expect("home");
    region.vms.get_mut(&vmid).expect("its VM").ownership = None;
    let region = lab.policy.regions.get_mut("home").expect("home");
    (region.vmid_first, region.vmid_last) = (vmid + 1, vmid + 50);
    let decision = lab.turn();
    assert!(decision.plan.is_empty(), "{:?}", decision.plan);
    let said = format!(
        "machine m: left alone: its VMID {vmid} is not in the range {}-{}",
        vmid + 1,
        vmid + 50
    );
    let told = decision.report.warnings.iter();
    assert!(told.clone().any(|text| text.starts_with(&said)), "{told:?}");
    let mut lab = lab.after(Span::minutes(30));
    assert!(lab.turn().plan.is_empty(), "no quarantine ends it");
    // Its VM is gone: then it goes as any other, after its quarantine.
    let region = lab.snapshot.regions.get_mut("home").expect("home");
    region.vms.remove(&vmid);
    lab.snapshot.cluster.nodes.clear();
    let mut lab = lab.edit_machine("m", |machine| machine.node = None);
    let told = lab.turn().report.warnings;
    assert!(told[0].contains("it is in quarantine"), "{told:?}");
}

/// The machine is known by its journal alone, which remembers its VM.
fn without_vm(machine: &mut Machine) {
    machine.vm = None;
    machine.remembered = Some("uuid-m".into());
}

/// A machine at VMID 9000, whose VM runs, after the range was moved to 9001 and on.
fn outside(step: Step) -> Lab {
    let lab = machine(step).edit_machine("m", without_vm);
    lab.with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        region.vms.get_mut(&9000).expect("its VM").ownership = None;
        let range = lab.policy.regions.get_mut("home").expect("home");
        (range.vmid_first, range.vmid_last) = (9001, 9050);
    })
}

/// PVE lists the VM of such a machine, and of one whose mark is damaged or gone, as one that runs; what it has is promised once.
#[test]
fn a_machine_whose_vm_shows_no_mark_takes_its_hosts_memory_once() {
    let promised = |lab: &Lab| {
        let host = lab.decide().report.hosts["home"]["pve1"].clone();
        (
            host.machines,
            host.promised_cpu_milli,
            host.promised_memory / MI,
        )
    };
    for ownership in [
        None,
        Some(Ownership::Unmarked),
        Some(Ownership::Damaged("x".into())),
    ] {
        for step in [Step::Clone, Step::Start, Step::Join, Step::Done] {
            let lab = machine(step);
            assert_eq!(promised(&lab), (1, 2000, 4096), "{step:?}: with its mark");
            let lab = match &ownership {
                None => outside(step),
                Some(ownership) => lab.edit_machine("m", without_vm).with(|lab| {
                    let region = lab.snapshot.regions.get_mut("home").expect("home");
                    region.vms.get_mut(&9000).expect("its VM").ownership = Some(ownership.clone());
                }),
            };
            assert_eq!(promised(&lab), (1, 2000, 4096), "{step:?}: {ownership:?}");
        }
    }
    // Of one that is off its type's memory is kept for it.
    let off = outside(Step::Done).with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        region.vms.get_mut(&9000).expect("its VM").running = false;
    });
    assert_eq!(promised(&off), (1, 2000, 4096), "off");
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

#[test]
fn an_old_view_of_the_region_begins_no_quarantine_and_ends_none() {
    let lost = || {
        let lab = pool().ours("m", "p", "one");
        lab.with(|lab| lab.snapshot.cluster.nodes.clear())
    };
    let old = |lab: &mut Lab| {
        let source = lab.snapshot.sources.get_mut("pve/home").expect("there");
        source.as_of = source.as_of - Span::minutes(4);
    };
    let mut unseen = lost().with(old);
    unseen.turn();
    assert!(unseen.memory.quarantine.is_empty());
    let mut seen = lost();
    seen.turn();
    assert_eq!(seen.memory.quarantine.len(), 1);
    let over = seen.after(Span::minutes(6));
    assert_eq!(kinds(&over.clone().with(old).decide()), []);
    assert_eq!(kinds(&over.decide()), remove(false));
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

/// We deleted it, and a controller of somebody else holds it by its finalizer: that is said, and nothing is done.
#[test]
fn a_deleted_node_that_a_finalizer_keeps_is_told_as_that() {
    let mut kept = orphan();
    let deleted = kept.now;
    kept = kept.edit_node("p-lost", |node| node.deletion = Some(deleted));
    let decision = kept.turn();
    let said = decision.report.warnings.join(" ");
    assert!(said.contains("a finalizer keeps it"), "{said}");
    let mut kept = kept.after(Span::minutes(5));
    assert!(kept.turn().plan.is_empty());
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
            .any(|hold| matches!(hold.why.held, Held::ClusterUnhealthy { .. }))
    );
}

/// The state directory was set back, so that the VMID of a machine was given to another; then the entry of the one
/// whose VM somebody had destroyed came back.
#[test]
fn an_entry_whose_vmid_is_another_machines_is_dropped_after_a_quarantine() {
    let mut lab = pool()
        .ours("m", "p", "one")
        .edit_machine("m", |machine| machine.intended = true);
    let mut theirs = Mark::clone(&lab.snapshot.machines["m"].mark);
    theirs.machine = "other".into();
    lab = lab.edit_machine("m", |machine| (machine.vm, machine.node) = (None, None));
    lab.snapshot.cluster.nodes.clear();
    let region = lab.snapshot.regions.get_mut("home").expect("home");
    let vm = region.vms.get_mut(&9000).expect("its VM");
    vm.ownership = Some(Ownership::Marked(theirs.into()));
    assert_eq!(kinds(&lab.turn()), [], "it is in quarantine");
    let lab = lab.after(Span::minutes(5));
    assert_eq!(kinds(&lab.decide()), [Kind::DropIntent]);
}
