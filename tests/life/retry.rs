//! A person ends a back-off (`pve-autoscaler retry`), once its cause is mended.

use std::collections::BTreeMap;
use std::time::Duration;

use pve_autoscaler::controller::state::StateFiles;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::record::{DeedKind, Filter, History};
use pve_autoscaler::sim::guests::{GuestFault, GuestSpec};
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};

use crate::HASTY;
use crate::common::{Scene, simulate};

/// Machines that were made within ten minutes, where the first cannot join and its pool waits for twenty after it; and what the
/// record tells.
fn machines_made(retry: bool) -> (usize, Vec<DeedKind>) {
    let config = HASTY.replace("initial_backoff = \"30s\"", "initial_backoff = \"20m\"");
    assert_ne!(config, HASTY);
    let config = format!("{config}\n[recorder]\nenabled = true\n");
    simulate(async {
        let guests = GuestSpec {
            fates: BTreeMap::from([(0, GuestFault::JoinFails)]),
            ..GuestSpec::default()
        };
        let scene = Scene::new(5, &config, guests);
        let web = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(60));
        let person = async {
            tokio::time::sleep(Duration::from_mins(6)).await;
            if retry {
                let state = StateFiles::open(scene.state()).expect("it is there");
                state.add_retry("general").expect("noted");
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, web, Duration::from_mins(10)) => {}
            () = person => {}
        }
        let findings = scene.findings();
        assert!(findings.is_empty(), "{findings:#?}");
        let history = History::open(&scene.state().join("record")).expect("there is a record");
        let deeds = history.deeds(&Filter::default(), 1_000).expect("read");
        let told = deeds.into_iter().map(|deed| deed.kind).collect();
        (scene.machines_made(), told)
    })
}

#[test]
fn a_pool_that_is_retried_makes_a_machine_at_once_and_another_waits() {
    assert_eq!(machines_made(false).0, 1, "it waits for twenty minutes");
    let (made, told) = machines_made(true);
    assert_eq!(made, 2, "nothing keeps it from the next");
    // What somebody asked for stands before the machine that came of it.
    let asked = told
        .iter()
        .position(|deed| matches!(deed, DeedKind::Asked { asked, .. } if asked == "retry"));
    let creates =
        |deed: &DeedKind| matches!(deed, DeedKind::Planned { action, .. } if action == "create");
    let made = told.iter().rposition(creates);
    assert!(asked.is_some() && asked < made, "{asked:?} {made:?}");
    let failed = |deed: &DeedKind| {
        matches!(
            deed,
            DeedKind::Ended {
                failure: Some(_),
                ..
            }
        )
    };
    let failed = told.iter().position(failed);
    assert!(failed < asked, "{failed:?} {asked:?}");
}
