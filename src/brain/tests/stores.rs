//! What the report says of storages and PCI devices: what is free, what is promised to whom, and what keeps machines off.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::lab::{GI, Lab, lab};
use model::hosts::StorageFloor;
use model::pci::{PciDevice, PciUse};
use model::reasons::{HostRefused, StorageNote};
use model::region::{Step, Storage, TemplateDisk, Vm};
use model::store_states::{DeviceState, StorageShare, StorageState};

const NONE: [StorageNote; 0] = [];

/// A pool whose machines take 20 GiB on `fast`, of which each host has 500 GiB, 100 of them in use.
fn stored() -> Lab {
    let lab = lab().kind("one", 2, 4096).pool("p", &["one"]);
    let lab = lab.with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        for host in ["pve1", "pve2"] {
            let storages = region.storages.entry(host.into()).or_default();
            let storage = Storage {
                active: true,
                free: 400 * GI,
                total: 500 * GI,
                ..Storage::default()
            };
            storages.insert("fast".into(), storage);
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
    });
    let here = |machine: &mut model::region::Machine| machine.host = "pve1".into();
    let lab = lab.ours("m", "p", "one").edit_machine("m", here);
    lab.machine("n", "p", "one", Step::Clone)
        .edit_machine("n", here)
}

/// Edits the storage `fast` of a host.
fn with_storage(lab: Lab, host: &str, edit: impl FnOnce(&mut Storage)) -> Lab {
    lab.with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        let storages = region.storages.get_mut(host).expect("a host");
        edit(storages.get_mut("fast").expect("its storage"));
    })
}

fn told(lab: &Lab) -> BTreeMap<Arc<str>, StorageState> {
    let mut regions = lab.decide().report.storages;
    regions.remove("home").unwrap_or_default()
}

#[test]
fn a_storage_is_told_with_what_is_free_and_what_is_promised_to_whom() {
    let states = told(&stored());
    let names: Vec<&str> = states.keys().map(|name| &**name).collect();
    assert_eq!(names, ["pve1/fast", "pve2/fast"]);
    let one = &states["pve1/fast"];
    let wanted = StorageState {
        storage: "fast".into(),
        shared: false,
        hosts: vec!["pve1".into()],
        total: 500 * GI,
        free: 400 * GI,
        promised: 40 * GI,
        coming: 20 * GI,
        most: Some(500 * GI),
        // 100 are in use, and two disks may grow to 40.
        left: Some(360 * GI),
        pools: BTreeMap::from([(
            "p".into(),
            StorageShare {
                machines: 2,
                promised: 40 * GI,
                min_free: 0,
            },
        )]),
        ..StorageState::default()
    };
    assert_eq!(*one, wanted);
    let other = &states["pve2/fast"];
    assert_eq!((other.promised, other.left), (0, Some(400 * GI)));
    assert_eq!(other.pools["p"].machines, 0, "it may get some");
    assert!(!other.is_in_want());
}

#[test]
fn limits_of_the_file_are_told_with_a_storage() {
    let lab = stored().with(|lab| {
        let region = lab.policy.regions.get_mut("home").expect("home");
        region.capacity.storage_overcommit_permille = 500;
    });
    let lab = lab.edit_pool("p", |pool| {
        pool.host_rules.min_free_storage = Some(StorageFloor::Permille(100));
    });
    let one = &told(&lab)["pve1/fast"];
    assert_eq!(one.most, Some(250 * GI));
    assert_eq!(one.pools["p"].min_free, 50 * GI);
    assert_eq!(one.left, Some(60 * GI), "250 - 100 - 40 - 50");
    // Of two pools the one that leaves less of it free has more left.
    let lab = lab.pool("q", &["one"]);
    assert_eq!(told(&lab)["pve1/fast"].left, Some(110 * GI));
    // A disk that takes its space when it is made does not grow.
    let lab = with_storage(stored(), "pve1", |storage| storage.thick = true);
    let one = &told(&lab)["pve1/fast"];
    assert_eq!((one.most, one.left), (None, Some(380 * GI)));
}

#[test]
fn a_shared_storage_is_told_once() {
    let shared = |storage: &mut Storage| storage.shared = true;
    let lab = with_storage(with_storage(stored(), "pve1", shared), "pve2", shared);
    let states = told(&lab);
    assert_eq!(states.len(), 1, "{states:?}");
    let hosts: Vec<&str> = states["fast"].hosts.iter().map(|host| &**host).collect();
    assert_eq!(hosts, ["pve1", "pve2"]);
    assert_eq!(states["fast"].promised, 40 * GI);
}

#[test]
fn what_keeps_disks_off_a_storage_is_told() {
    let notes = |lab: &Lab, name: &str| {
        let state = told(lab).remove(name).expect("a storage");
        assert_eq!(state.notes.len(), state.notes_details.len());
        state.notes_details
    };
    let full = with_storage(stored(), "pve2", |storage| storage.free = 10 * GI);
    let no_room = StorageNote::NoRoom {
        pools: vec!["p".into()],
        asks: 20 * GI,
    };
    assert_eq!(notes(&full, "pve2/fast"), [no_room]);
    assert_eq!(notes(&full, "pve1/fast"), NONE);
    let exact = with_storage(stored(), "pve2", |storage| storage.free = 20 * GI);
    assert_eq!(notes(&exact, "pve2/fast"), NONE);
    let away = |lab: Lab| {
        with_storage(lab, "pve2", |storage| {
            *storage = Storage::default();
        })
    };
    let not_available = StorageNote::NotAvailable {
        hosts: vec!["pve2".into()],
    };
    assert_eq!(notes(&away(stored()), "pve2/fast"), [not_available]);
    // Of a host that is off, or that nobody uses, nothing is to be said.
    let off = away(stored()).with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        region.hosts.get_mut("pve2").expect("there").online = false;
    });
    assert_eq!(notes(&off, "pve2/fast"), NONE);
    let untold = with_storage(stored(), "pve2", |storage| {
        (storage.total, storage.free) = (0, 0);
    });
    let unknown = |pools: &[&str]| StorageNote::UnknownSize {
        pools: pools.iter().map(|pool| (*pool).into()).collect(),
    };
    assert_eq!(notes(&untold, "pve2/fast"), [unknown(&[])]);
    assert_eq!(told(&untold)["pve2/fast"].left, None);
    let bounded = untold.edit_pool("p", |pool| {
        pool.host_rules.min_free_storage = Some(StorageFloor::Bytes(1));
    });
    assert_eq!(notes(&bounded, "pve2/fast"), [unknown(&["p"])]);
}

#[test]
fn storages_that_share_their_space_say_so_and_count_each_others_disks() {
    let pooled = |storage: &mut Storage| storage.backing = Some("ZFS pool rpool".into());
    let lab = with_storage(stored(), "pve1", pooled).with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        let storages = region.storages.get_mut("pve1").expect("pve1");
        let slow = storages["fast"].clone();
        storages.insert("slow".into(), slow);
    });
    let states = told(&lab);
    for (name, other) in [("fast", "slow"), ("slow", "fast")] {
        let state = &states[&*format!("pve1/{name}")];
        assert_eq!(state.promised, 40 * GI, "{name}");
        let shares = StorageNote::SharesSpace {
            with: vec![other.into()],
        };
        assert_eq!(state.notes_details, [shares], "{name}");
        assert!(!state.is_in_want());
    }
}

/// A pool whose machines have a card of `gpu` each, of which pve1 has these.
fn carded(devices: &[&str]) -> Lab {
    let lab = lab().kind("g", 2, 4096).edit_kind("g", |kind| {
        kind.pci = vec![PciDevice {
            mapping: "gpu".into(),
            ..PciDevice::default()
        }];
    });
    lab.pool("cards", &["g"]).with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        if !devices.is_empty() {
            let devices = devices.iter().map(|device| (*device).into());
            let hosts = BTreeMap::from([("pve1".into(), devices.collect())]);
            region.mappings.insert("gpu".into(), hosts);
        }
    })
}

/// A guest of somebody else's on pve1, with these devices.
fn guest(lab: Lab, vmid: u32, devices: Option<Vec<PciUse>>) -> Lab {
    lab.with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        let vm = Vm {
            host: "pve1".into(),
            devices,
            ..Vm::default()
        };
        region.vms.insert(vmid, vm);
    })
}

#[test]
fn devices_are_told_with_who_has_them_and_how_many_are_free() {
    let three = ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"];
    let lab = carded(&three).machine("g-00001", "cards", "g", Step::Start);
    let lab = lab.edit_machine("g-00001", |machine| machine.host = "pve1".into());
    let lab = guest(lab, 300, Some(vec![PciUse::Device("02:00".into())]));
    let told = |lab: &Lab| lab.decide().report.devices["home"]["gpu"].clone();
    let wanted = DeviceState {
        has: 3,
        free: 1,
        machines: BTreeMap::from([("g-00001".into(), 1)]),
        guests: BTreeMap::from([(300, 1)]),
        note: None,
        note_details: None,
    };
    assert_eq!(told(&lab), BTreeMap::from([("pve1".into(), wanted)]));
    let unread = told(&guest(lab, 301, None));
    let why = unread["pve1"].note_details.as_ref();
    assert!(
        matches!(why, Some(HostRefused::UnreadDevices { guest: 301, .. })),
        "{unread:?}"
    );
    assert!(unread["pve1"].note.is_some());
    assert_eq!(
        told(&carded(&[])),
        BTreeMap::new(),
        "PVE shows no such mapping"
    );
    assert_eq!(stored().decide().report.devices, BTreeMap::new());
}
