//! PCI devices of hosts: which host has one for a new machine, and what is said where none has.

use super::lab::{Lab, lab, verdict, why};
use model::action::Kind;
use model::pci::{PciDevice, PciUse};
use model::region::{MediatedLeft, Step, Vm};
use model::report::PodVerdict;

const GPU: &str = "nvidia.com/gpu";

/// A pool whose machines have a graphics card each, and one of larger machines without. `gpu` has these devices.
fn carded(devices: &[(&str, &[&str])]) -> Lab {
    let lab = lab().kind("g", 2, 4096).kind("plain", 8, 16_384);
    let lab = lab.edit_kind("g", |kind| {
        kind.extended.insert(GPU.into(), 1);
        kind.pci = vec![device("gpu")];
    });
    let lab = lab.pool("cards", &["g"]).pool("others", &["plain"]);
    devices.iter().fold(lab, |lab, (host, devices)| {
        mapped(lab, "gpu", host, devices)
    })
}

fn device(mapping: &str) -> PciDevice {
    PciDevice {
        mapping: mapping.into(),
        ..PciDevice::default()
    }
}

fn mapped(lab: Lab, mapping: &str, host: &str, devices: &[&str]) -> Lab {
    lab.with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        let hosts = region.mappings.entry(mapping.into()).or_default();
        let devices = devices.iter().map(|device| (*device).into());
        hosts.insert(host.into(), devices.collect());
    })
}

/// Pods that ask for a card each.
fn asking(lab: Lab, count: usize) -> Lab {
    lab.pods("train", count, 100, 100).shapes("train", |shape| {
        let traits = std::sync::Arc::make_mut(&mut shape.traits);
        traits.requests.extended.insert(GPU.into(), 1);
    })
}

/// A guest of somebody else's on a host, with these devices.
fn guest(lab: Lab, vmid: u32, host: &str, devices: Option<Vec<PciUse>>) -> Lab {
    lab.with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        let vm = Vm {
            host: host.into(),
            devices,
            ..Vm::default()
        };
        region.vms.insert(vmid, vm);
    })
}

fn named(name: &str) -> Vec<PciUse> {
    vec![PciUse::Mapping(name.into())]
}

fn at(address: &str) -> Vec<PciUse> {
    vec![PciUse::Device(address.into())]
}

/// Pool and host of each machine that is made.
fn made(lab: &Lab) -> Vec<(String, String)> {
    let plan = lab.decide().plan;
    let made = plan.iter().filter_map(|action| match &action.kind {
        Kind::Create(spec) => Some((spec.mark.pool.clone(), action.target.host.to_string())),
        _ => None,
    });
    let mut made: Vec<(String, String)> = made.collect();
    made.sort();
    made
}

fn cards_on(hosts: &[&str]) -> Vec<(String, String)> {
    let hosts = hosts.iter();
    hosts
        .map(|host| ("cards".to_owned(), (*host).to_owned()))
        .collect()
}

const TWO: &[&str] = &["0000:01:00.0", "0000:02:00.0"];

#[test]
fn each_machine_gets_a_device_of_its_own_and_who_finds_none_waits_with_the_reason() {
    let lab = asking(carded(&[("pve2", TWO)]), 3);
    assert_eq!(made(&lab), cards_on(&["pve2", "pve2"]));
    let decision = lab.decide();
    let held = |pod: &&str| matches!(verdict(&decision, pod), PodVerdict::Held { .. });
    let pods = ["train-0", "train-1", "train-2"].into_iter();
    let waits: Vec<&str> = pods.filter(held).collect();
    assert_eq!(waits.len(), 1, "{:?}", decision.report.pods);
    let text = why(&decision, waits[0], "cards/g");
    assert!(
        text.contains(
            "the mapping gpu has 2 PCI devices on the host pve2, 0 of them free, one of this type takes 1"
        ),
        "{text}"
    );
    assert!(
        text.contains("the mapping gpu has no PCI device on the host pve1"),
        "{text}"
    );
    let unknown = asking(carded(&[]), 1);
    let text = why(&unknown.decide(), "train-0", "cards/g");
    assert!(text.contains("PVE shows no mapping gpu"), "{text}");
}

#[test]
fn what_guests_have_counts_however_they_name_it_and_whether_they_run_or_not() {
    let base = || asking(carded(&[("pve1", TWO), ("pve3", &["0000:03:00"])]), 9);
    assert_eq!(made(&base()), cards_on(&["pve1", "pve1", "pve3"]));
    for (host, has, left) in [
        ("pve1", Some(named("gpu")), &["pve1", "pve3"][..]),
        ("pve1", Some(at("0000:02:00.0")), &["pve1", "pve3"]),
        ("pve1", Some(at("02:00")), &["pve1", "pve3"]),
        ("pve3", Some(at("03:00.1")), &["pve1", "pve1"]),
        ("pve2", Some(named("gpu")), &["pve1", "pve1", "pve3"]),
        ("pve1", Some(named("sound")), &["pve1", "pve1", "pve3"]),
        ("pve1", Some(Vec::new()), &["pve1", "pve1", "pve3"]),
        // Which it has is not known.
        ("pve1", None, &["pve3"]),
    ] {
        let lab = guest(base(), 300, host, has.clone());
        assert_eq!(made(&lab), cards_on(left), "{host} {has:?}");
    }
    let running = guest(base(), 300, "pve1", Some(named("gpu"))).with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        region.vms.get_mut(&300).expect("there").running = true;
    });
    assert_eq!(made(&running), cards_on(&["pve1", "pve3"]));
    let unread = guest(base(), 300, "pve1", None);
    let decision = unread.decide();
    let text = why(&decision, "train-8", "cards/g");
    assert!(text.contains("the configuration of 1 guest"), "{text}");
}

#[test]
fn a_mapping_that_shares_devices_counts_as_far_as_it_does() {
    let base = || {
        let lab = carded(&[("pve1", TWO)]);
        asking(
            mapped(lab, "any", "pve1", &["0000:02:00.0", "0000:07:00.0"]),
            9,
        )
    };
    // Two guests have devices of `any`; at most one of them is one of `gpu`'s.
    let lab = guest(base(), 300, "pve1", Some(named("any")));
    let lab = guest(lab, 301, "pve1", Some(named("any")));
    assert_eq!(made(&lab), cards_on(&["pve1"]));
    // Machines of both mappings in one plan never share a device.
    let both = base().kind("a", 2, 4096).edit_kind("a", |kind| {
        kind.pci = vec![device("any")];
        kind.extended.insert("example.com/any".into(), 1);
    });
    let both = both.pool("anys", &["a"]).pods("any", 2, 100, 100);
    let both = both.shapes("any", |shape| {
        let traits = std::sync::Arc::make_mut(&mut shape.traits);
        let requests = &mut traits.requests;
        requests.extended.insert("example.com/any".into(), 1);
    });
    let made = made(&both).len();
    assert!((1..=3).contains(&made), "{made} machines for three devices");
}

#[test]
fn machines_under_way_and_those_that_leave_have_their_device_until_their_vm_is_gone() {
    let base = |step: Step| {
        let lab = asking(carded(&[("pve1", TWO)]), 9);
        lab.machine("g-00001", "cards", "g", step)
    };
    for step in [Step::Intent, Step::Clone, Step::Configure, Step::Start] {
        assert_eq!(made(&base(step)), cards_on(&["pve1"]), "{step:?}");
        let early = base(step).with(|lab| {
            let machine = lab.snapshot.machines.get_mut("g-00001").expect("there");
            machine.vm = None;
            let vmid = machine.mark.vmid;
            let region = lab.snapshot.regions.get_mut("home").expect("home");
            region.vms.remove(&vmid);
        });
        if step < Step::Configure {
            assert_eq!(made(&early), cards_on(&["pve1"]), "{step:?} without a VM");
        }
    }
    let leaving = |written: bool| {
        base(Step::Destroy).with(|lab| {
            let vmid = lab.snapshot.machines["g-00001"].mark.vmid;
            let region = lab.snapshot.regions.get_mut("home").expect("home");
            let vm = region.vms.get_mut(&vmid).expect("there");
            vm.devices = if written {
                Some(named("gpu"))
            } else {
                Some(Vec::new())
            };
        })
    };
    assert_eq!(made(&leaving(true)), cards_on(&["pve1"]));
    assert_eq!(made(&leaving(false)), cards_on(&["pve1", "pve1"]));
    // A configuration that was read says so once, not twice.
    let written = base(Step::Start).with(|lab| {
        let vmid = lab.snapshot.machines["g-00001"].mark.vmid;
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        region.vms.get_mut(&vmid).expect("there").devices = Some(named("gpu"));
    });
    assert_eq!(made(&written), cards_on(&["pve1"]));
}

#[test]
fn who_asks_for_no_device_gets_a_machine_without_one_where_others_will_do() {
    let lab = carded(&[("pve1", TWO), ("pve2", TWO)]);
    let plain = lab.pods("web", 3, 500, 500);
    let pools = |lab: &Lab| made(lab).into_iter().map(|(pool, _)| pool);
    assert!(
        pools(&plain).all(|pool| pool == "others"),
        "{:?}",
        made(&plain)
    );
    assert!(!made(&plain).is_empty());
    let mixed = asking(plain.clone(), 1);
    let with_cards = pools(&mixed).filter(|pool| pool == "cards").count();
    assert_eq!(with_cards, 1, "{:?}", made(&mixed));
    // Nothing else will do.
    let full = plain.edit_pool("others", |pool| pool.max = 0);
    assert!(pools(&full).any(|pool| pool == "cards"));
}

#[test]
fn a_type_with_two_devices_needs_both_on_one_host() {
    let lab = carded(&[("pve1", &["0000:01:00.0"]), ("pve2", TWO)]);
    let lab = lab.edit_kind("g", |kind| kind.pci = vec![device("gpu"); 2]);
    let lab = asking(lab, 2);
    assert_eq!(made(&lab), cards_on(&["pve2"]));
}

/// A pool whose machines have a part of a card each. pve1 told that two more can be made, while VM 300 ran.
fn in_parts() -> Lab {
    let lab = carded(&[]).edit_kind("g", |kind| {
        kind.pci = vec![PciDevice {
            mdev: Some("nvidia-63".into()),
            ..device("vgpu")
        }];
    });
    let lab = mapped(lab, "vgpu", "pve1", &["0000:41:00.0"]);
    asking(lab, 3).with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        let left = MediatedLeft {
            left: [("nvidia-63".into(), 2)].into(),
            running: [300].into(),
        };
        let told = [("vgpu".into(), left)];
        region.mediated.insert("pve1".into(), told.into());
    })
}

fn part(text: &str) -> Option<Vec<PciUse>> {
    PciUse::read(text).map(|one| vec![one])
}

/// What stands with a number is who ran when it was told: who came and went since is counted right.
#[test]
fn parts_of_cards_are_those_that_are_left_less_what_others_were_promised_since() {
    let count = |lab: Lab| made(&lab).len();
    assert_eq!(count(in_parts()), 2);
    // It ran when the host told what is left: that is beside it, and stays so when it stops.
    let has = || part("mapping=vgpu,mdev=nvidia-63");
    assert_eq!(count(guest(in_parts(), 300, "pve1", has())), 2);
    // It started since, or is off.
    assert_eq!(count(guest(in_parts(), 301, "pve1", has())), 1);
    // On another host it takes nothing here.
    assert_eq!(count(guest(in_parts(), 301, "pve2", has())), 2);
    let by_address = part("0000:41:00.0,mdev=nvidia-63");
    assert_eq!(count(guest(in_parts(), 301, "pve1", by_address)), 1);
    let other = || part("mapping=vgpu,mdev=nvidia-64");
    assert_eq!(count(guest(in_parts(), 300, "pve1", other())), 2);
    assert_eq!(count(guest(in_parts(), 301, "pve1", other())), 0);
}

/// The table of devices has them by mapping and type.
#[test]
fn the_report_has_parts_of_cards_by_their_type() {
    let lab = guest(in_parts(), 300, "pve1", part("mapping=vgpu,mdev=nvidia-63"));
    let decision = guest(lab, 301, "pve1", part("mapping=vgpu,mdev=nvidia-63")).decide();
    let devices = &decision.report.devices["home"];
    assert_eq!(devices.len(), 1, "{devices:?}");
    let there = &devices["vgpu,mdev=nvidia-63"]["pve1"];
    assert_eq!((there.has, there.note.as_deref()), (3, None));
    assert_eq!(there.guests, [(300, 1), (301, 1)].into());
    let lab = guest(in_parts(), 301, "pve1", part("41:00"));
    let there = lab.decide().report.devices["home"]["vgpu,mdev=nvidia-63"]["pve1"].clone();
    assert_eq!((there.has, there.free), (2, 0));
    let note = there.note.expect("it says why");
    assert!(note.contains("promised whole"), "{note}");
}
