//! Disks that may lie on several storages: on each host on the first of the file's list that the host has and that has room.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::lab::{GI, Lab, lab, verdict};
use crate::check;
use model::action::{Action, CreateSpec, Kind};
use model::chosen_storages::ChosenStorages;
use model::reasons::StorageNote;
use model::region::{Machine, Step, Storage, TemplateDisk};
use model::report::PodVerdict;

const HOSTS: [&str; 3] = ["pve1", "pve2", "pve3"];

/// A storage of a host, with GiB that are free.
type Free<'a> = (&'a str, &'a str, i64);

/// Machines with a boot disk of 20 GiB on `zfs` or `lvm`, made of settings on each host that has one of them.
fn stored(storages: &[Free<'_>]) -> Lab {
    let mut lab = lab().kind("one", 2, 4096).pool("p", &["one"]);
    let region = lab.snapshot.regions.get_mut("home").expect("home");
    for host in HOSTS {
        region.storages.entry(host.into()).or_default();
    }
    for (host, name, free) in storages {
        let storage = Storage {
            active: true,
            free: free * GI,
            total: 1000 * GI,
            thick: true,
            ..Storage::default()
        };
        let of_host = region.storages.entry((*host).into()).or_default();
        of_host.insert((*name).into(), storage);
    }
    let disk = TemplateDisk {
        storage: "zfs".into(),
        or: vec!["lvm".into()],
        size: 20 * GI,
        boot: true,
        ..TemplateDisk::default()
    };
    let mut copies = region.templates.values_mut();
    let copies = copies.next().expect("a template");
    let of_host = |host: &str| {
        let mut copy = copies[0].clone();
        (copy.host, copy.shared, copy.disks) = (host.into(), false, vec![disk.clone()]);
        copy
    };
    *copies = HOSTS.map(of_host).into();
    lab
}

/// Gives each copy of the template a further disk of 10 GiB.
fn with_further(lab: Lab, storages: &[&str]) -> Lab {
    lab.with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        for copy in region.templates.values_mut().flatten() {
            copy.disks.push(TemplateDisk {
                storage: storages[0].into(),
                or: storages[1..].iter().map(|name| (*name).into()).collect(),
                slot: (storages.len() > 1).then(|| "scsi1".into()),
                size: 10 * GI,
                boot: false,
            });
        }
    })
}

/// Pods that each fill a machine.
fn pods(lab: Lab, count: usize) -> Lab {
    (0..count).fold(lab, |lab, n| lab.pod(&format!("web{n}"), 1500, 2000))
}

fn creations(lab: &Lab) -> Vec<(Action, CreateSpec)> {
    let decision = lab.decide();
    let made = decision.plan.iter();
    let made = made.filter_map(|action| match &action.kind {
        Kind::Create(spec) => Some((action.clone(), (**spec).clone())),
        _ => None,
    });
    made.collect()
}

/// The machines that are made, as `HOST/STORAGE`, in order.
fn made(lab: &Lab) -> Vec<String> {
    let made = creations(lab).into_iter().map(|(action, spec)| {
        let own = spec.storages.own.as_deref().unwrap_or("-");
        format!("{}/{own}", action.target.host)
    });
    let mut made: Vec<String> = made.collect();
    made.sort();
    made
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
fn each_host_takes_the_first_storage_of_the_list_that_it_has() {
    let lab = stored(&[
        ("pve1", "zfs", 900),
        ("pve2", "lvm", 900),
        ("pve3", "zfs", 900),
        ("pve3", "lvm", 900),
    ]);
    assert_eq!(made(&pods(lab, 3)), ["pve1/zfs", "pve2/lvm", "pve3/zfs"]);
}

#[test]
fn a_storage_that_is_away_is_passed_over() {
    let lab = stored(&[("pve3", "zfs", 900), ("pve3", "lvm", 900)]);
    let lab = lab.with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        let of_host = region.storages.get_mut("pve3").expect("pve3");
        of_host.get_mut("zfs").expect("zfs").active = false;
    });
    assert_eq!(made(&pods(lab, 1)), ["pve3/lvm"]);
}

#[test]
fn the_first_that_has_room_wins_also_within_one_plan() {
    // Two disks of 20 GiB find room on the first storage, one more on the second; the fourth machine finds none.
    let lab = pods(stored(&[("pve1", "zfs", 50), ("pve1", "lvm", 30)]), 4);
    assert_eq!(made(&lab), ["pve1/lvm", "pve1/zfs", "pve1/zfs"]);
    let text = why(&lab, "web3");
    for part in [
        "none of the storages that are listed takes a disk",
        "the storage zfs of the host pve1 has 10Gi free",
        "the storage lvm of the host pve1 has 10Gi free",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_host_with_none_of_the_list_is_told_with_each() {
    let lab = pods(stored(&[("pve1", "zfs", 5), ("pve2", "lvm", 5)]), 1);
    assert!(made(&lab).is_empty());
    let text = why(&lab, "web0");
    assert!(
        text.contains("the host pve3 has no storage zfs")
            && text.contains("the host pve3 has no storage lvm"),
        "{text}"
    );
    let only = "the storage zfs of the host pve1 has 5Gi free";
    assert!(text.contains(only), "one of them is there: {text}");
}

#[test]
fn what_is_being_made_counts_on_the_storage_that_was_chosen_for_it() {
    let on = |storage: &'static str| {
        move |machine: &mut Machine| {
            machine.host = "pve1".into();
            machine.storages.own = Some(storage.into());
        }
    };
    let lab = pods(stored(&[("pve1", "zfs", 50), ("pve1", "lvm", 30)]), 4);
    let lab = lab.machine("m", "p", "one", Step::Clone);
    let there = lab.clone().edit_machine("m", on("lvm"));
    assert_eq!(made(&there), ["pve1/zfs", "pve1/zfs"]);
    let here = lab.edit_machine("m", on("zfs"));
    assert_eq!(made(&here), ["pve1/lvm", "pve1/zfs"]);
    let states = here.decide().report.storages.remove("home");
    let states = states.unwrap_or_default();
    let coming = |name: &str| states[name].coming;
    assert_eq!((coming("pve1/zfs"), coming("pve1/lvm")), (20 * GI, 0));
}

#[test]
fn further_disks_have_a_storage_of_their_own() {
    let lab = stored(&[("pve1", "zfs", 30), ("pve1", "lvm", 900)]);
    // The boot disk leaves 10 GiB on the first, which the further disk of the first machine takes.
    let lab = pods(with_further(lab, &["zfs", "lvm"]), 2);
    let mut chosen: Vec<ChosenStorages> = creations(&lab)
        .into_iter()
        .map(|(_, spec)| spec.storages)
        .collect();
    chosen.sort();
    let one = |own: &str, further: &str| ChosenStorages {
        own: Some(own.into()),
        further: BTreeMap::from([(Arc::from("scsi1"), Arc::from(further))]),
    };
    assert_eq!(chosen, [one("lvm", "lvm"), one("zfs", "zfs")]);
}

#[test]
fn a_disk_makes_way_for_one_that_has_a_single_storage() {
    // On the first storage there is room for one of the two disks, and the further one goes nowhere else.
    let lab = stored(&[("pve1", "zfs", 25), ("pve1", "lvm", 900)]);
    let lab = pods(with_further(lab, &["zfs"]), 1);
    assert_eq!(made(&lab), ["pve1/lvm"]);
}

#[test]
fn clones_come_to_other_hosts_on_shared_storage_alone() {
    let lab = stored(&[("pve1", "zfs", 900), ("pve2", "zfs", 900)]).with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        for host in ["pve1", "pve2", "pve3"] {
            let of_host = region.storages.get_mut(host).expect("a host");
            let shared = Storage {
                active: true,
                shared: true,
                free: 900 * GI,
                total: 1000 * GI,
                ..Storage::default()
            };
            of_host.insert("lvm".into(), shared);
        }
        let mut copies = region.templates.values_mut();
        let copies = copies.next().expect("a template");
        copies.truncate(1);
        copies[0].shared = true;
    });
    assert_eq!(
        made(&pods(lab, 3)),
        ["pve1/zfs", "pve2/lvm", "pve3/lvm"],
        "the template is on pve1"
    );
}

#[test]
fn a_storage_that_nobody_shows_is_passed_over() {
    let lab = stored(&[("pve1", "lvm", 900), ("pve2", "lvm", 900)]);
    assert_eq!(made(&pods(lab.clone(), 2)), ["pve1/lvm", "pve2/lvm"]);
    // PVE tells nothing of storages: nobody knows which are there.
    let blind = lab.with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        region.storages.clear();
    });
    assert_eq!(made(&pods(blind, 1)).len(), 1);
}

#[test]
fn a_full_storage_is_in_nobodys_way_while_the_next_has_room() {
    let notes = |free: i64| {
        let lab = stored(&[("pve1", "zfs", 5), ("pve1", "lvm", free)]);
        let mut states = lab.decide().report.storages.remove("home").expect("home");
        let state = states.remove("pve1/zfs").expect("zfs");
        state.notes_details
    };
    assert_eq!(notes(900), []);
    let no_room = StorageNote::NoRoom {
        pools: vec!["p".into()],
        asks: 20 * GI,
    };
    assert_eq!(notes(5), [no_room]);
}

#[test]
fn the_check_wants_a_storage_of_the_list() {
    let lab = pods(stored(&[("pve1", "zfs", 50), ("pve1", "lvm", 5)]), 1);
    let decision = lab.decide();
    let action = decision.plan.into_iter().next().expect("a machine");
    let judge = |change: &dyn Fn(&mut ChosenStorages)| {
        let mut action = action.clone();
        let Kind::Create(spec) = &mut action.kind else {
            panic!("{action:?}");
        };
        change(&mut spec.storages);
        let told = check::check(&action, &lab.snapshot, &lab.policy, lab.now);
        told.map_err(|refusal| refusal.why)
    };
    assert_eq!(judge(&|_| {}), Ok(()));
    for (own, part) in [
        (None, "no storage, which is none"),
        (Some("other"), "other, which is none"),
        (Some("lvm"), "disks under way on lvm"),
    ] {
        let told = judge(&|storages| storages.own = own.map(Arc::from));
        assert!(
            told.as_ref().is_err_and(|told| told.contains(part)),
            "{told:?}"
        );
    }
}
