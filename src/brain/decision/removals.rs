//! Why machines are removed, remembered for as long as that takes: the decision that plans a removal knows its reason, and those after it
//! see no more than that it is under way.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::action::{Action, Kind, Reason};

use crate::decision::holds::Holds;
use crate::observed::machines::MachineViews;
use crate::observed::view::MachinePhase;

/// Adds the reasons of the removals of this plan, and forgets those of machines that are not leaving any more. Right after a start a machine may
/// only look so: its node, or whose it is, was not read yet.
pub(super) fn remember(
    reasons: &mut BTreeMap<Arc<str>, Reason>,
    plan: &[Action],
    machines: &MachineViews<'_>,
    holds: &Holds,
) {
    reasons.retain(|name, _| {
        machines.get(name).is_some_and(|machine| {
            machine.phase == MachinePhase::Leaving
                || holds.unread_in(&machine.seen.region).is_some()
        })
    });
    for action in plan {
        let name = &action.target.machine;
        match (&action.kind, &action.reason) {
            // One that was cut short is brought to an end for the reason that it began with.
            (Kind::Remove { .. }, Reason::NotWanted) => {}
            (Kind::Remove { .. }, reason) => {
                reasons.insert(name.clone(), reason.clone());
            }
            (Kind::Release, _) => {
                reasons.remove(name);
            }
            _ => {}
        }
    }
}
