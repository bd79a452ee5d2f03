//! The rule for the zone of a node whose VM was migrated.

use super::*;
use model::policy::ZONE_LABEL;

#[test]
fn a_zone_follows_a_vm_that_is_at_rest() {
    let moved = pool().ours("n1", "p", "one").bound("web", "n1", 1900, 1);
    let moved = moved.edit_machine("n1", |machine| machine.host = "pve2".into());
    let moved = moved.edit_node("n1", |node| {
        node.labels.insert(ZONE_LABEL.into(), "pve1".into());
    });
    let base = decided(moved);
    assert_eq!(base.1.kind, Kind::Relabel);
    let zone = |lab: &mut Lab, zone: &str| {
        edit_node(lab, |node| {
            node.labels.insert(ZONE_LABEL.into(), zone.into());
        });
    };
    planted(&base, CheckRule::Host, &|lab, _| zone(lab, "pve2"));
    planted(&base, CheckRule::Host, &|lab, _| zone(lab, "rack-7"));
    planted(&base, CheckRule::Leaving, &|lab, _| {
        *lab = lab.clone().edit_machine("n1", |machine| {
            machine.vm.as_mut().expect("its VM").lock = Some("migrate".into());
        });
    });
    planted(&base, CheckRule::Leaving, &|lab, _| {
        edit_node(lab, |node| {
            node.taints.push(Taint::no_schedule(LEAVING_TAINT, "0"));
        });
    });
}
