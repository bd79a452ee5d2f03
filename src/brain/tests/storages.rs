//! Where the disks of new machines have room, and what is said where they have none.

use super::lab::{GI, Lab, lab, verdict};
use model::action::Kind;
use model::region::{Step, Storage, TemplateDisk};
use model::report::PodVerdict;

const HOSTS: [&str; 3] = ["pve1", "pve2", "pve3"];

/// GiB: the size of a storage and what is in use of it.
type Size = (i64, i64);

/// Machines with a boot disk of 20 GiB on `fast`, of which each host shows one of a size.
fn stored(hosts: [Option<Size>; 3], edit: impl Fn(&mut Storage)) -> Lab {
    let mut lab = lab().kind("one", 2, 4096).pool("p", &["one"]);
    let region = lab.snapshot.regions.get_mut("home").expect("home");
    for (host, size) in HOSTS.iter().zip(hosts) {
        let storages = region.storages.entry((*host).into()).or_default();
        if let Some((total, used)) = size {
            let mut storage = Storage {
                active: true,
                free: (total - used) * GI,
                total: total * GI,
                ..Storage::default()
            };
            edit(&mut storage);
            storages.insert("fast".into(), storage);
        }
    }
    let disk = TemplateDisk {
        storage: "fast".into(),
        size: 20 * GI,
        boot: true,
        ..TemplateDisk::default()
    };
    for copy in region.templates.values_mut().flatten() {
        copy.disks = vec![disk.clone()];
    }
    lab
}

/// Pods that each fill a machine.
fn pods(lab: Lab, count: usize) -> Lab {
    (0..count).fold(lab, |lab, n| lab.pod(&format!("web{n}"), 1500, 2000))
}

/// The hosts of the machines that are made.
fn made(lab: &Lab) -> Vec<String> {
    let plan = lab.decide().plan;
    let made = plan.iter();
    let made = made.filter(|action| matches!(action.kind, Kind::Create(_)));
    let mut hosts: Vec<String> = made.map(|action| action.target.host.to_string()).collect();
    hosts.sort();
    hosts
}

fn why(lab: &Lab, pod: &str) -> String {
    let decision = lab.decide();
    let verdict = verdict(&decision, pod);
    let PodVerdict::Held { why } = verdict else {
        panic!("{verdict:?}");
    };
    let whys = why.values().map(ToString::to_string);
    whys.collect::<Vec<_>>().join("; ")
}

#[test]
fn a_host_without_the_storage_of_clones_gets_no_machine() {
    let lab = pods(stored([None, Some((500, 0)), None], |_| {}), 3);
    assert_eq!(made(&lab), ["pve2"; 3]);
    let lab = pods(stored([None, None, None], |_| {}), 3);
    assert_eq!(
        made(&lab).len(),
        3,
        "PVE shows no storage: nothing is known"
    );
    let away = |storage: &mut Storage| storage.active = false;
    let lab = pods(stored([None, Some((500, 0)), None], away), 1);
    assert!(made(&lab).is_empty());
    let text = why(&lab, "web0");
    assert!(text.contains("fast"), "{text}");
}

#[test]
fn what_is_free_holds_every_disk_that_is_planned_or_coming() {
    // 50 GiB are free on each: two disks of 20.
    let hosts = [Some((5000, 4950)); 3];
    let lab = pods(stored(hosts, |storage| storage.thick = true), 9);
    assert_eq!(made(&lab).len(), 6);
    let text = why(&lab, "web8");
    assert!(text.contains("10Gi free"), "{text}");
    // A machine that is being made on pve1 takes one, though its VM has no disk yet.
    let mut lab = lab.machine("m", "p", "one", Step::Clone);
    let host = |machine: &mut model::region::Machine| machine.host = "pve1".into();
    lab = lab.edit_machine("m", host);
    let hosts = made(&lab);
    assert_eq!(hosts, ["pve1", "pve2", "pve2", "pve3", "pve3"]);
    // One that works has its own already.
    let lab = pods(stored(hosts_of(50), |storage| storage.thick = true), 9);
    let lab = lab.ours("m", "p", "one").edit_machine("m", host);
    assert_eq!(made(&lab).len(), 6);
    // So does one whose journal is lost.
    let lab = lab.edit_machine("m", |machine| machine.step = None);
    assert_eq!(made(&lab).len(), 6);
}

fn hosts_of(free: i64) -> [Option<Size>; 3] {
    [Some((5000, 5000 - free)); 3]
}

#[test]
fn a_shared_storage_is_one_for_all_hosts() {
    let shared = |storage: &mut Storage| (storage.shared, storage.thick) = (true, true);
    let lab = pods(stored(hosts_of(50), shared), 9);
    assert_eq!(made(&lab).len(), 2);
}

#[test]
fn disks_may_not_grow_beyond_a_thin_pool_unless_that_is_asked_for() {
    // 100 GiB, 40 in use by others: three disks of 20 may be promised, though all begin small.
    let lab = pods(stored([Some((100, 40)), None, None], |_| {}), 9);
    assert_eq!(made(&lab).len(), 3);
    let mut lab = lab;
    let region = lab.policy.regions.get_mut("home").expect("home");
    region.capacity.storage_overcommit_permille = 2000;
    // What is free now bounds the disks that are made at once.
    assert_eq!(made(&lab).len(), 3);
    // Two machines work there, and their clones have taken little of their 40.
    for name in ["m1", "m2"] {
        lab = lab.ours(name, "p", "one").edit_machine(name, |machine| {
            machine.host = "pve1".into();
        });
        let vmid = lab.snapshot.machines[name].mark.vmid;
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        let vm = region.vms.get_mut(&vmid).expect("there");
        (vm.host, vm.disks) = ("pve1".into(), [("fast".into(), 20 * GI)].into());
    }
    assert_eq!(made(&lab).len(), 3);
    let region = lab.policy.regions.get_mut("home").expect("home");
    region.capacity.storage_overcommit_permille = 1000;
    assert_eq!(made(&lab).len(), 1);
    let text = why(&lab, "web8");
    assert!(text.contains("storage_overcommit"), "{text}");
}

#[test]
fn the_larger_disk_of_a_type_counts() {
    let mut lab = stored(hosts_of(90), |storage| storage.thick = true);
    let kind = lab.policy.instance_types.get_mut("one").expect("one");
    kind.disk = 80 * GI;
    let lab = pods(lab, 9);
    assert_eq!(made(&lab), HOSTS);
}

#[test]
fn storages_in_one_pool_share_what_is_free() {
    // 50 GiB are free in the pool, and both storages say so; a machine that is being made on `slow` takes 20 of them.
    let making = |backing: &[(&str, &str)]| {
        let mut lab = pods(
            stored([Some((5000, 4950)), None, None], |storage| {
                storage.thick = true;
            }),
            9,
        );
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        let storages = region.storages.get_mut("pve1").expect("pve1");
        let slow = storages["fast"].clone();
        storages.insert("slow".into(), slow);
        for (name, backing) in backing {
            storages.get_mut(*name).expect("storage").backing = Some((*backing).into());
        }
        let slow = lab.snapshot.regions["home"]
            .templates
            .values()
            .flatten()
            .next();
        let mut disk = slow.expect("template").disks[0].clone();
        disk.storage = "slow".into();
        for copy in lab
            .snapshot
            .regions
            .get_mut("home")
            .expect("home")
            .templates
            .values_mut()
            .flatten()
        {
            copy.disks.push(disk.clone());
        }
        made(&lab).len()
    };
    // Each machine has 20 GiB on each storage.
    assert_eq!(making(&[]), 2);
    assert_eq!(making(&[("fast", "ZFS pool rpool")]), 2);
    assert_eq!(
        making(&[("fast", "ZFS pool rpool"), ("slow", "ZFS pool tank")]),
        2
    );
    assert_eq!(
        making(&[("fast", "ZFS pool rpool"), ("slow", "ZFS pool rpool")]),
        1
    );
}

#[test]
fn a_machine_on_the_other_storage_of_a_pool_takes_its_part() {
    let mut lab = pods(stored([Some((5000, 4950)), None, None], |_| {}), 9);
    let region = lab.snapshot.regions.get_mut("home").expect("home");
    let storages = region.storages.get_mut("pve1").expect("pve1");
    let mut slow = storages["fast"].clone();
    slow.backing = Some("thin pool pve/data".into());
    storages.insert("slow".into(), slow);
    let lab = lab
        .ours("m", "p", "one")
        .edit_machine("m", |machine| machine.host = "pve1".into());
    let vm = |lab: Lab| {
        let mut lab = lab;
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        let vms = region.vms.values_mut();
        for vm in vms.filter(|vm| vm.ownership.is_some()) {
            vm.disks = [("slow".into(), 20 * GI)].into();
        }
        lab
    };
    let mut lab = vm(lab);
    assert_eq!(made(&lab).len(), 2, "two pools");
    let region = lab.snapshot.regions.get_mut("home").expect("home");
    let fast = region
        .storages
        .get_mut("pve1")
        .expect("pve1")
        .get_mut("fast");
    fast.expect("fast").backing = Some("thin pool pve/data".into());
    assert_eq!(made(&lab).len(), 1, "one pool of which 20 GiB are promised");
}
