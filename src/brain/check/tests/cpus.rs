//! The rule about CPUs: each planned machine has some of its own.

use super::{CheckRule, Lab, decided, lab, planted, region, spec};
use crate::tests::cpus::{guest, pinned, topology};
use model::action::Action;
use model::cpus::CpuSet;
use model::topology::Pins;

fn alone() -> (Lab, Action) {
    decided(pinned(lab().kind("one", 4, 4096).pool("p", &["one"])).pod("web", 100, 100))
}

fn cpus(text: &str) -> CpuSet {
    CpuSet::read(text).expect("a list")
}

#[test]
fn a_machine_gets_cpus_that_its_host_has_and_nobody_else() {
    let base = alone();
    let given = |action: &mut Action| spec(action).mark.cpus.clone();
    let host = base.1.target.host.clone();
    assert_eq!(given(&mut base.1.clone()).len(), 4);
    for wrong in ["2-4", "2-6", "0-3", "29-32", "61-64"] {
        planted(&base, CheckRule::Cpus, &|_, action| {
            spec(action).mark.cpus = cpus(wrong);
        });
    }
    planted(&base, CheckRule::Cpus, &|_, action| {
        spec(action).mark.cpus = CpuSet::new();
    });
    planted(&base, CheckRule::Cpus, &|lab, action| {
        let pins = Pins {
            cpus: given(action),
            ..Pins::default()
        };
        guest(lab, 301, &host, Some(pins));
    });
    planted(&base, CheckRule::Cpus, &|lab, _| {
        guest(lab, 301, &host, None);
    });
    planted(&base, CheckRule::Cpus, &|lab, _| {
        let policy = lab.policy.regions.get_mut("home").expect("home");
        policy.topologies.clear();
    });
    planted(&base, CheckRule::Cpus, &|lab, _| {
        region(lab).hosts.get_mut(&host).expect("there").cpus = 63;
    });
    planted(&base, CheckRule::Cpus, &|lab, _| {
        lab.policy.pools.get_mut("p").expect("p").pinning.cpus = false;
    });
    planted(&base, CheckRule::Cpus, &|lab, action| {
        // A machine under way has one of them.
        let step = model::region::Step::Clone;
        *lab = lab.clone().machine("p-00001", "p", "one", step);
        let machine = lab.snapshot.machines.get_mut("p-00001").expect("made");
        let mark = model::mark::Mark {
            vmid: 9001,
            cpus: given(action),
            ..(*machine.mark).clone()
        };
        machine.mark = mark.into();
        machine.host = host.clone();
        let vms = &mut region(lab).vms;
        let vm = vms.remove(&9000).expect("its VM");
        vms.insert(9001, vm);
    });
    planted(&base, CheckRule::Cpus, &|lab, _| {
        let mut small = topology();
        for node in &mut small.numa {
            node.memory = Some(1 << 30);
        }
        let policy = lab.policy.regions.get_mut("home").expect("home");
        policy.topologies.insert(host.clone(), small.into());
    });
}
