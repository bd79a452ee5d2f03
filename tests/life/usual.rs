//! What a step usually takes: measured by pool, told by `status`, and known after a restart.

use std::time::Duration;

use pve_autoscaler::controller::status::DaemonStatus;
use pve_autoscaler::model::region::Step;
use pve_autoscaler::sim::guests::GuestSpec;

use crate::common::{Scene, simulate};
use crate::waiting::until;
use crate::{HASTY, visit};

/// It finds a daemon that has nothing to compare a step with after each upgrade, until a machine was made.
#[test]
fn what_was_usual_before_a_restart_stands_beside_a_step_after_it() {
    simulate(async {
        let scene = Scene::new(3, HASTY, GuestSpec::default());
        scene.live(None, 0, visit(), Duration::from_mins(6)).await;
        let turn = || scene.world.turns.borrow().clone().expect("a turn");
        let measured = turn().usual.times();
        let of_pool = &measured["general"];
        for step in [Step::Clone, Step::Join, Step::Drain] {
            let time = of_pool
                .get(&step)
                .unwrap_or_else(|| panic!("{step:?}: {of_pool:?}"));
            assert!(time.median > 0 && time.of >= 1, "{time:?}");
        }
        let told = async {
            until(&scene, "a step beside its usual time", 10, || {
                let status = DaemonStatus::of(&turn());
                let mut machines = status.machines.values();
                machines.any(|machine| {
                    let step = machine.step.map(|(step, _)| step);
                    machine.usual.is_some()
                        && machine.usual == step.and_then(|step| of_pool.get(&step).copied())
                })
            })
            .await;
        };
        tokio::select! {
            biased;
            () = told => {}
            () = scene.live(None, 1, visit(), Duration::from_mins(12)) => panic!("it took too long"),
        }
    });
}
