//! Machines that somebody migrated: the zone of their nodes follows.

use super::lab::Lab;
use super::lifecycle::{kinds, pool};
use model::action::{Kind, Reason};
use model::policy::ZONE_LABEL;

/// A working machine on a host, whose node says that its zone is another one.
fn migrated(says: &str, host: &'static str) -> Lab {
    let lab = pool().ours("m", "p", "one").bound("web", "m", 1900, 1);
    let lab = lab.edit_machine("m", |machine| machine.host = host.into());
    lab.edit_node("m", |node| {
        node.labels.insert(ZONE_LABEL.into(), says.into());
    })
}

#[test]
fn the_zone_of_a_node_follows_its_vm() {
    let mut lab = migrated("pve1", "pve2");
    let decision = lab.turn();
    assert_eq!(kinds(&decision), [Kind::Relabel]);
    let from = "pve1".into();
    assert_eq!(decision.plan[0].reason, Reason::Migrated { from });
    assert_eq!(&*decision.plan[0].target.host, "pve2");
    assert_eq!(kinds(&lab.turn()), [], "it says so now");
}

#[test]
fn a_zone_that_is_no_hosts_name_is_somebodys_own() {
    assert_eq!(kinds(&migrated("rack-7", "pve2").decide()), []);
    let bare = migrated("pve1", "pve2").edit_node("m", |node| node.labels.clear());
    assert_eq!(kinds(&bare.decide()), []);
    // PVE shows the VM on a host that it does not show.
    assert_eq!(kinds(&migrated("pve1", "pve9").decide()), []);
}

#[test]
fn nothing_is_written_while_the_vm_is_on_its_way() {
    let lab = migrated("pve1", "pve2").edit_machine("m", |machine| {
        machine.vm.as_mut().expect("a VM").lock = Some("migrate".into());
    });
    assert_eq!(kinds(&lab.decide()), []);
}
