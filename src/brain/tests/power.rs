//! Machines whose VM is off: when one is started, and how often.

use super::lifecycle::{kinds, pool};
use model::action::Kind;
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
