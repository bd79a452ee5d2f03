//! Nodes that were deleted and registered anew.

use super::lab::Lab;
use super::lifecycle::{kinds, pool};
use model::action::{Kind, Reason};
use model::cluster::ReadyStatus;
use model::policy::{STARTUP_TAINT, ZONE_LABEL};
use model::scheduling::Taint;

/// A machine that worked, and whose node bears the startup taint again.
fn anew() -> Lab {
    let lab = pool().ours("m", "p", "one").bound("web", "m", 1900, 1);
    lab.edit_node("m", |node| {
        node.taints.push(Taint::no_schedule(STARTUP_TAINT, ""));
    })
}

#[test]
fn a_node_that_was_registered_anew_is_opened_again() {
    let mut lab = anew();
    let decision = lab.turn();
    assert_eq!(kinds(&decision), [Kind::Relabel]);
    assert_eq!(decision.plan[0].reason, Reason::Reregistered);
    assert_eq!(kinds(&lab.turn()), [], "it is open now");
}

#[test]
fn one_action_does_when_its_machine_was_migrated_too() {
    let lab = anew().edit_machine("m", |machine| machine.host = "pve2".into());
    let lab = lab.edit_node("m", |node| {
        node.labels.insert(ZONE_LABEL.into(), "pve1".into());
    });
    let decision = lab.decide();
    assert_eq!(kinds(&decision), [Kind::Relabel]);
    assert_eq!(decision.plan[0].reason, Reason::Reregistered);
}

#[test]
fn it_is_waited_for_until_it_is_ready_and_its_vm_at_rest() {
    let unready = anew().edit_node("m", |node| node.ready.status = ReadyStatus::False);
    assert_eq!(kinds(&unready.decide()), []);
    let moving = anew().edit_machine("m", |machine| {
        machine.vm.as_mut().expect("a VM").lock = Some("migrate".into());
    });
    assert_eq!(kinds(&moving.decide()), []);
}
