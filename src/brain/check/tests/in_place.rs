//! The rules for changing a VM in place.

use super::{decided, edit_node, planted, pool, region};
use crate::check::{CheckRule, check_beside, check_plan};
use crate::tests::in_place::differs;
use crate::tests::lab::Lab;
use model::action::{Kind, Reason};
use model::in_place::AT_ONCE;
use model::policy::LEAVING_TAINT;
use model::region::{Busy, Machine, MachineVm, Step};
use model::scheduling::Taint;
use model::time::Time;

fn working(lab: Lab, name: &str) -> Lab {
    let lab = lab.ours(name, "p", "one");
    let lab = lab.bound(&format!("web-{name}"), name, 1900, 1);
    lab.edit_machine(name, |machine| {
        machine.vm.as_mut().expect("a VM").differs = vec![differs("tags", None)];
    })
}

fn edit(lab: &mut Lab, change: impl FnOnce(&mut Machine)) {
    *lab = lab.clone().edit_machine("n1", change);
}

fn vm(lab: &mut Lab, change: impl FnOnce(&mut MachineVm)) {
    edit(lab, |machine| change(machine.vm.as_mut().expect("a VM")));
}

#[test]
fn a_vm_is_changed_in_place_while_it_is_at_rest_and_something_differs() {
    let base = decided(working(pool(), "n1"));
    assert_eq!(base.1.kind, Kind::Update);
    planted(&base, CheckRule::Power, &|lab, _| {
        vm(lab, |vm| vm.lock = Some("backup".into()));
    });
    planted(&base, CheckRule::Power, &|lab, _| {
        vm(lab, |vm| vm.ha = true);
    });
    planted(&base, CheckRule::Ours, &|lab, _| {
        vm(lab, |vm| vm.marked = false);
    });
    planted(&base, CheckRule::InPlace, &|lab, _| {
        vm(lab, |vm| vm.differs.clear());
    });
    planted(&base, CheckRule::InPlace, &|lab, _| {
        vm(lab, |vm| {
            vm.differs = vec![differs("tags", Some((Time(0), true)))];
        });
    });
    planted(&base, CheckRule::InPlace, &|_, action| {
        let keys = vec!["cores".into()];
        action.reason = Reason::Differs { keys };
    });
    planted(&base, CheckRule::InPlace, &|_, action| {
        action.reason = Reason::Unfinished;
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
            machine.step = Some((Step::Drain, machine.mark.created));
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

#[test]
fn a_few_are_changed_at_a_time() {
    let names: Vec<String> = (0..=AT_ONCE).map(|number| format!("n{number}")).collect();
    let lab = names.iter().fold(pool(), |lab, name| working(lab, name));
    let mut plan = lab.decide().plan;
    assert_eq!(plan.len(), AT_ONCE);
    let mut one_more = plan[0].clone();
    let last = lab.clone();
    let target = &lab.snapshot.machines[&*names[AT_ONCE]];
    one_more.target.machine = names[AT_ONCE].as_str().into();
    one_more.target.vmid = target.mark.vmid;
    let node = one_more.target.node.as_mut().expect("a node");
    node.name = names[AT_ONCE].as_str().into();
    node.uid = last.snapshot.cluster.nodes[&node.name].uid.clone();
    one_more.precondition.mark = Some((*target.mark).clone());
    let begun: Vec<_> = plan.iter().collect();
    let refused = check_beside(&one_more, &begun, &lab.snapshot, &lab.policy, lab.now);
    assert_eq!(
        refused.map_err(|refusal| refusal.rule),
        Err(CheckRule::Parallel)
    );
    let alone = check_beside(&one_more, &[], &lab.snapshot, &lab.policy, lab.now);
    assert_eq!(alone, Ok(()));
    plan.push(one_more);
    let refused = check_plan(&plan, &lab.snapshot, &lab.policy, lab.now);
    assert_eq!(
        refused.map_err(|refusal| refusal.rule),
        Err(CheckRule::Parallel)
    );
}
