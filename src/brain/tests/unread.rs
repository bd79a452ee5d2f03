//! VMs whose mark nobody can read count by their name.

use super::lab::{GI, Lab, lab};
use model::mark::Ownership;
use model::reasons::{Refusals, Refused};
use model::region::{GuestKind, Vm};
use model::report::PodVerdict;

/// A pool of one machine at most, a pod that waits, and a VM on a host that is away.
fn world(name: &str, edit: impl Fn(&mut Vm)) -> Lab {
    let lab = lab().kind("small", 2, 4 << 10).pool("ng", &["small"]);
    let lab = lab.pods("web", 1, 500, 512);
    lab.edit_pool("ng", |pool| pool.max = 1).with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        region.hosts.get_mut("pve2").expect("pve2").online = false;
        let mut vm = Vm {
            host: "pve2".into(),
            name: name.into(),
            cpus: 2,
            memory: 4 * GI,
            ..Vm::default()
        };
        edit(&mut vm);
        region.vms.insert(9001, vm);
    })
}

#[test]
fn a_vm_that_cannot_be_read_takes_a_place_of_its_pool() {
    let decision = world("ng-bcdfg", |_| {}).decide();
    assert!(decision.plan.is_empty(), "{:?}", decision.plan);
    let verdict = decision.report.pods.values().next().expect("the pod");
    let PodVerdict::Held { why } = verdict else {
        panic!("{verdict:?}");
    };
    let full = |why: &Refusals| {
        matches!(
            *why.first,
            Refused::PoolMax {
                machines: 1,
                max: 1,
                ..
            }
        )
    };
    assert!(why.values().all(full), "{why:?}");
    assert_eq!(
        decision.report.warnings,
        [
            "region home: VM 9001 (ng-bcdfg): its configuration cannot be read; until pve2 answers it counts as a machine of the pool ng, by its name"
        ]
    );
}

#[test]
fn it_counts_for_the_min_too() {
    let mut lab = world("ng-bcdfg", |_| {});
    lab.snapshot.cluster.pods.clear();
    let lab = lab.edit_pool("ng", |pool| (pool.min, pool.max) = (1, 3));
    assert!(lab.decide().plan.is_empty());
}

#[test]
fn one_that_shows_no_name_either_is_told_and_counts_for_nobody() {
    let decision = world("", |_| {}).decide();
    assert_eq!(decision.plan.len(), 1, "{:?}", decision.plan);
    assert_eq!(
        decision.report.warnings,
        [
            "region home: VM 9001: neither its configuration nor its name can be read until pve2 answers; if it is a machine of ours, its pool has one more than is counted"
        ]
    );
    let mut back = world("", |_| {});
    let region = back.snapshot.regions.get_mut("home").expect("home");
    region.hosts.get_mut("pve2").expect("pve2").online = true;
    // Its name comes within seconds.
    assert_eq!(back.decide().report.warnings, [""; 0]);
}

type Edit = fn(&mut Vm);

#[test]
fn what_is_no_machine_by_its_name_or_can_be_read_takes_none() {
    let edits: [(&str, Edit); 7] = [
        ("ng-bcdf", |_| {}),
        ("ng-bcdfa", |_| {}),
        ("other-bcdfg", |_| {}),
        ("nggbcdfg", |_| {}),
        ("ng-bcdfg", |vm| vm.template = true),
        ("ng-bcdfg", |vm| vm.kind = GuestKind::Lxc),
        ("ng-bcdfg", |vm| vm.ownership = Some(Ownership::Unmarked)),
    ];
    for (name, edit) in edits {
        let decision = world(name, edit).decide();
        assert_eq!(decision.plan.len(), 1, "{name}: {decision:?}");
    }
}
