//! Every pool in numbers, and the pools that hold back.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::reasons::Held;
use model::region::Step;
use model::report::{ComingMachine, GoesOnceUp, Hold, PoolState, Scope};

use crate::decision::turn::DecisionBuilder;
use crate::lifecycle::backoff;
use crate::observed::view::{MachinePhase, MachineView};
use crate::scale_down::given_up;

fn drifted(machine: &MachineView<'_>) -> bool {
    let vm = machine.seen.vm.as_ref();
    let drifted = vm.and_then(|vm| vm.drifted.as_ref());
    drifted.is_some_and(|drifted| !drifted.is_empty())
}

/// All machines that are on their way up, those too whose pool left the file or spans a region that was not read yet.
fn list_coming(turn: &DecisionBuilder<'_>) -> BTreeMap<Arc<str>, ComingMachine> {
    let machines = turn.view.machines.values();
    let coming = machines.filter(|machine| {
        // A working one looks like one on its way until its region was read.
        machine.phase == MachinePhase::Coming && machine.step() != Some(Step::Done)
    });
    let told = coming.map(|machine| {
        let mark = &machine.seen.mark;
        let evacuation = given_up::find_evacuation(turn, machine);
        let comes = ComingMachine {
            pool: mark.pool.as_str().into(),
            instance_type: mark.instance_type.as_str().into(),
            region: machine.seen.region.clone(),
            host: machine.seen.host.clone(),
            vmid: mark.vmid,
            given_up: evacuation.map(|why| GoesOnceUp { why }),
        };
        (machine.name.clone(), comes)
    });
    told.collect()
}

/// Writes the pools into the report, and the machines that are on their way up.
pub(crate) fn report(turn: &mut DecisionBuilder<'_>) {
    turn.report.coming = list_coming(turn);
    let policy = turn.view.policy;
    for (name, pool) in &policy.pools {
        let mut state = PoolState {
            min: pool.min,
            max: pool.max,
            ..PoolState::default()
        };
        let mut regions = pool.everywhere().map(|there| &there.region);
        state.unread = regions.any(|region| turn.holds.unread_in(region).is_some());
        for machine in turn.view.machines.values() {
            if state.unread || machine.pool_name() != &**name {
                continue;
            }
            if let Some(until) = machine.kept {
                state.kept.insert(machine.name.clone(), until);
                continue;
            }
            let up = matches!(machine.phase, MachinePhase::Up | MachinePhase::NoVm);
            state.drifted += u32::from(up && drifted(machine));
            match machine.phase {
                MachinePhase::Up if machine.ready() => state.ready += 1,
                MachinePhase::Up | MachinePhase::NoVm => state.unready += 1,
                MachinePhase::Coming => state.coming += 1,
                MachinePhase::Leaving
                | MachinePhase::Failed
                | MachinePhase::Overdue
                | MachinePhase::NoNode => {
                    state.leaving += 1;
                }
                MachinePhase::Untouchable(_) => {}
            }
        }
        if let Some(until) = backoff::find_end(turn, name) {
            state.backoff_until = Some(until);
            state.backoff_message = backoff::find_failure(turn, name).cloned();
            let failure = state.backoff_message.clone();
            let held = match &failure {
                Some(_) => Held::BacksOff { failure },
                None => Held::NoneWorks,
            };
            turn.report.holds.push(Hold {
                until: Some(until),
                ..Hold::new(Scope::Pool(name.clone()), held)
            });
            turn.wake_at(until);
        }
        turn.report.pools.insert(Arc::clone(name), state);
    }
}
