//! Starting a VM that is off.

use super::{decided, edit_node, planted, pool, region};
use crate::check::CheckRule;
use crate::tests::lab::Lab;
use model::action::{Action, Kind};
use model::policy::LEAVING_TAINT;
use model::region::{Busy, Machine, Step};
use model::scheduling::Taint;
use model::time::Span;

/// A working node whose VM is off, and its start.
fn off() -> (Lab, Action) {
    let mut off = pool()
        .ours("n1", "p", "one")
        .bound("web", "n1", 1900, 1)
        .edit_machine("n1", |machine| {
            machine.vm.as_mut().expect("a VM").running = false;
        });
    assert_eq!(off.turn().plan, [], "a reboot is off and on");
    decided(off.after(Span::minutes(1)))
}

fn edit(lab: &mut Lab, change: impl FnOnce(&mut Machine)) {
    *lab = lab.clone().edit_machine("n1", change);
}

#[test]
fn a_start_is_of_a_working_node_whose_vm_is_off_and_ours_to_switch_on() {
    let base = off();
    assert_eq!(base.1.kind, Kind::Start);
    planted(&base, CheckRule::Power, &|lab, _| {
        edit(lab, |machine| {
            machine.vm.as_mut().expect("a VM").running = true;
        });
    });
    planted(&base, CheckRule::Power, &|lab, _| {
        edit(lab, |machine| {
            machine.vm.as_mut().expect("a VM").lock = Some("backup".into());
        });
    });
    planted(&base, CheckRule::Power, &|lab, _| {
        edit(lab, |machine| machine.vm.as_mut().expect("a VM").ha = true);
    });
    planted(&base, CheckRule::Host, &|lab, _| {
        for host in region(lab).hosts.values_mut() {
            host.online = false;
        }
    });
    planted(&base, CheckRule::Leaving, &|lab, _| {
        edit(lab, |machine| machine.busy = Some(Busy::Down));
    });
    planted(&base, CheckRule::Leaving, &|lab, _| {
        edit(lab, |machine| {
            machine.step = Some((Step::Shutdown, machine.mark.created));
        });
    });
    planted(&base, CheckRule::Leaving, &|lab, _| {
        edit_node(lab, |node| {
            node.taints.push(Taint::no_schedule(LEAVING_TAINT, "0"));
        });
    });
    planted(&base, CheckRule::Node, &|lab, _| {
        lab.snapshot.cluster.nodes.clear();
    });
}
