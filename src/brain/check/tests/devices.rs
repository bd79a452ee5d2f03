//! The rule about PCI devices: each planned machine has one of its own.

use super::{CheckRule, Lab, decided, lab, planted, region};
use model::action::Action;
use model::pci::{PciDevice, PciUse};
use model::region::{MediatedLeft, Vm};

fn card() -> (Lab, Action) {
    let lab = lab().kind("g", 2, 4096).edit_kind("g", |kind| {
        let mapping = "gpu".into();
        kind.pci = vec![PciDevice {
            mapping,
            ..PciDevice::default()
        }];
    });
    let mut lab = lab.pool("p", &["g"]).pod("web", 100, 100);
    let devices = ["0000:01:00.0".into(), "0000:02:00.0".into()];
    let hosts = [("pve1".into(), devices.into())];
    region(&mut lab).mappings.insert("gpu".into(), hosts.into());
    let free = (300, Some(vec![PciUse::Device("01:00.0".into())]));
    guest(&mut lab, free);
    decided(lab)
}

fn guest(lab: &mut Lab, (vmid, devices): (u32, Option<Vec<PciUse>>)) {
    let vm = Vm {
        host: "pve1".into(),
        devices,
        ..Vm::default()
    };
    region(lab).vms.insert(vmid, vm);
}

#[test]
fn a_machine_gets_a_device_that_its_host_has_and_nobody_else() {
    let base = card();
    let device = |address: &str| Some(vec![PciUse::Device(address.into())]);
    let mapping = |name: &str| Some(vec![PciUse::Mapping(name.into())]);
    planted(&base, CheckRule::Device, &|lab, _| {
        guest(lab, (301, device("0000:02:00")));
    });
    planted(&base, CheckRule::Device, &|lab, _| {
        guest(lab, (301, mapping("gpu")));
    });
    planted(&base, CheckRule::Device, &|lab, _| guest(lab, (301, None)));
    planted(&base, CheckRule::Device, &|lab, _| {
        region(lab).mappings.clear();
    });
    planted(&base, CheckRule::Device, &|lab, _| {
        let hosts = region(lab).mappings.get_mut("gpu").expect("there");
        let devices = hosts.remove("pve1").expect("there");
        hosts.insert("pve2".into(), devices);
    });
    planted(&base, CheckRule::Device, &|lab, _| {
        // Another mapping of the device that is left, and a guest that has it.
        let hosts = [("pve1".into(), vec!["0000:02:00.0".into()])];
        region(lab).mappings.insert("any".into(), hosts.into());
        guest(lab, (301, mapping("any")));
    });
    planted(&base, CheckRule::Device, &|lab, _| {
        let step = model::region::Step::Clone;
        *lab = lab.clone().machine("g-00001", "p", "g", step);
        let machine = lab.snapshot.machines.get_mut("g-00001").expect("made");
        machine.mark.vmid = 9001;
        let vms = &mut region(lab).vms;
        let vm = vms.remove(&9000).expect("its VM");
        vms.insert(9001, vm);
    });
}

/// A machine with a part of a card, beside a running guest with another type of it.
fn part() -> (Lab, Action) {
    let lab = lab().kind("g", 2, 4096).edit_kind("g", |kind| {
        kind.pci = vec![PciDevice {
            mapping: "vgpu".into(),
            mdev: Some("nvidia-63".into()),
            ..PciDevice::default()
        }];
    });
    let mut lab = lab.pool("p", &["g"]).pod("web", 100, 100);
    let hosts = [("pve1".into(), vec!["0000:41:00.0".into()])];
    let region = region(&mut lab);
    region.mappings.insert("vgpu".into(), hosts.into());
    let left = MediatedLeft {
        left: [("nvidia-63".into(), 1)].into(),
        running: [300].into(),
    };
    let told = [("vgpu".into(), left)];
    region.mediated.insert("pve1".into(), told.into());
    guest(
        &mut lab,
        (
            300,
            PciUse::read("41:00.0,mdev=nvidia-64").map(|one| vec![one]),
        ),
    );
    decided(lab)
}

#[test]
fn a_machine_gets_a_part_of_a_card_that_its_host_has_left_for_nobody_else() {
    let base = part();
    let of = |text: &str| PciUse::read(text).map(|one| vec![one]);
    for text in [
        "mapping=vgpu,mdev=nvidia-63",
        "0000:41:00.4,mdev=nvidia-63",
        "mapping=vgpu,mdev=nvidia-64",
        "mapping=vgpu",
        "41:00",
    ] {
        planted(&base, CheckRule::Device, &|lab, _| {
            guest(lab, (301, of(text)));
        });
    }
    planted(&base, CheckRule::Device, &|lab, _| {
        // It ran, and has a card whole: that is not what was left.
        guest(lab, (300, of("41:00")));
    });
    planted(&base, CheckRule::Device, &|lab, _| guest(lab, (301, None)));
    planted(&base, CheckRule::Device, &|lab, _| {
        region(lab).mediated.clear();
    });
    planted(&base, CheckRule::Device, &|lab, _| {
        let told = region(lab).mediated.get_mut("pve1").expect("there");
        told.get_mut("vgpu").expect("there").left.clear();
    });
    planted(&base, CheckRule::Device, &|lab, _| {
        let told = region(lab).mediated.get_mut("pve1").expect("there");
        told.get_mut("vgpu").expect("there").running.clear();
    });
    planted(&base, CheckRule::Device, &|lab, _| {
        region(lab).mappings.clear();
    });
}
