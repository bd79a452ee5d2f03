//! The clock of the daemon's host is set, ahead or back, while machines come, work and go.

use std::time::Duration;

use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};

use crate::HASTY;
use crate::common::{Scene, simulate};

const HOUR: Span = Span::minutes(60);

/// Sets the host's clock at this time of the world's, and then waits for ever.
async fn set(scene: &Scene, at: Duration, by: Span) {
    tokio::time::sleep(at).await;
    scene.world.host_clock.set_ahead(by);
    std::future::pending::<()>().await;
}

/// One pod from 45 s to 135 s; the clock is set at a time. Gives how long it took until nothing was
/// left.
fn gone_after(config: &str, sets: &[(Duration, Span)]) -> Duration {
    simulate(async {
        let scene = Scene::new(3, config, GuestSpec::default());
        let visit = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::seconds(90));
        let begun = tokio::time::Instant::now();
        let clocks = async {
            let sets = sets.iter().map(|(at, by)| set(&scene, *at, *by));
            futures::future::join_all(sets).await;
            std::future::pending::<()>().await;
        };
        let gone = async {
            tokio::time::sleep(Duration::from_secs(140)).await;
            while !scene.left().is_empty() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, visit, Duration::from_hours(2)) => {}
            () = clocks => {}
            () = gone => {}
        }
        scene.nothing_is_left();
        assert_eq!(scene.machines_made(), 1);
        begun.elapsed()
    })
}

#[test]
fn a_clock_set_back_holds_nothing() {
    let usual = gone_after(HASTY, &[]);
    let (start, back) = (Duration::ZERO, Span(-HOUR.0));
    // A clock that was wrong from the start is put right; one that was right is not.
    let wrong = |at| vec![(start, HOUR), (Duration::from_secs(at), back)];
    let right = |at| vec![(Duration::from_secs(at), back)];
    let sets = [20, 60, 100, 150].map(wrong);
    for sets in sets.into_iter().chain([80, 100, 150].map(right)) {
        let took = gone_after(HASTY, &sets);
        assert!(
            took < usual + Duration::from_mins(1),
            "set by {sets:?}: gone after {took:?}, else after {usual:?}"
        );
    }
}

#[test]
fn a_clock_set_ahead_rings_no_timer() {
    let config = HASTY.replace("unneeded_time = \"20s\"", "unneeded_time = \"10m\"");
    assert_ne!(config, HASTY);
    let usual = gone_after(&config, &[]);
    // Ahead by an hour while the node is unneeded, twice.
    let sets = [
        (Duration::from_secs(200), HOUR),
        (Duration::from_mins(5), HOUR),
    ];
    let took = gone_after(&config, &sets);
    assert!(
        took + Duration::from_secs(30) > usual && took < usual + Duration::from_mins(1),
        "gone after {took:?}, else after {usual:?}"
    );
}

/// The API server's clock is ahead of ours from the join on, so that the node and its pods are of the future.
#[test]
fn nodes_and_pods_of_the_future_block_nothing() {
    let config = HASTY.replace("min_node_age = \"0s\"", "min_node_age = \"1m\"");
    assert_ne!(config, HASTY);
    let usual = gone_after(&config, &[]);
    let took = gone_after(&config, &[(Duration::from_secs(75), Span(-HOUR.0))]);
    assert!(
        took < usual + Duration::from_mins(2),
        "gone after {took:?}, else after {usual:?}"
    );
}

/// The daemon is stopped while the clock is set back: nothing that it remembers of the future holds it.
#[test]
fn what_is_remembered_of_the_future_holds_nothing_after_a_restart() {
    simulate(async {
        let scene = Scene::new(3, HASTY, GuestSpec::default());
        let visit = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::seconds(90));
        let clock = set(&scene, Duration::from_millis(150_500), Span(-HOUR.0));
        tokio::select! {
            biased;
            () = scene.live_and_stop(Duration::from_secs(150), visit, Duration::from_mins(8)) => {}
            () = clock => {}
        }
        scene.nothing_is_left();
    });
}
