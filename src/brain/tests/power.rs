//! Machines whose VM is off: when one is started, and how often.

use super::lab::Lab;
use super::lifecycle::{kinds, pool};
use model::action::Kind;
use model::region::MachineVm;
use model::time::Span;

/// PVE shows for ten seconds after a start that the VM is off, and a daemon looks again at once.
#[test]
fn a_start_is_not_planned_again_before_pve_can_show_it() {
    let mut lab = pool().ours("m", "p", "one");
    let mut after = |span: Span, running: bool| {
        lab = lab.clone().after(span).edit_machine("m", |machine| {
            machine.vm.as_mut().expect("a VM").running = running;
        });
        let decision = lab.decide();
        lab.memory = decision.memory.clone();
        kinds(&decision)
    };
    assert_eq!(after(Span::ZERO, false), [], "it may be a reboot");
    assert_eq!(after(Span::seconds(61), false), [Kind::Start]);
    let again = (0..100).flat_map(|_| after(Span::seconds(1), false));
    assert_eq!(again.count(), 5, "once in twenty seconds");
    assert_eq!(after(Span::seconds(1), true), []);
    assert_eq!(lab.memory.power["m"].tried, None);
}

#[test]
fn only_a_vm_that_pve_shows_to_be_off_and_leaves_to_us_is_started() {
    fn vm(lab: &mut Lab) -> &mut MachineVm {
        let machine = lab.snapshot.machines.get_mut("m").expect("there");
        machine.vm.as_mut().expect("a VM")
    }
    let later = |change: fn(&mut Lab)| {
        let lab = pool()
            .ours("m", "p", "one")
            .with(|lab| vm(lab).running = false);
        let mut lab = lab.with(change);
        lab.turn();
        let decision = lab.after(Span::seconds(61)).decide();
        (kinds(&decision), decision.memory.power.contains_key("m"))
    };
    assert_eq!(later(|_| {}), (vec![Kind::Start], true));
    let ha = later(|lab| vm(lab).ha = true);
    assert_eq!(ha, (vec![], true), "the HA manager decides");
    let locked = later(|lab| vm(lab).lock = Some("backup".into()));
    assert_eq!(locked, (vec![], true), "somebody is at it");
    let offline = later(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        region
            .hosts
            .values_mut()
            .for_each(|host| host.online = false);
    });
    assert_eq!(offline, (vec![], false), "its host does not say how it is");
    let alone = later(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        region.quorate = false;
    });
    assert_eq!(
        alone,
        (vec![], false),
        "what a part of the hosts says is no proof"
    );
}
