//! A node that waits for others takes pods by itself at last: after two minutes, and when half of its step's time is over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::{lab, simulate};
use crate::controller::executor::perform;
use crate::controller::journal::JournalEntry;
use crate::model::action::Kind;
use crate::model::policy::STARTUP_TAINT;
use crate::model::region::Step;
use crate::model::time::Span;

/// The work on a machine goes on after so much of the time of its step, whose node is Ready and is to take pods after one that never
/// comes. How long it takes until the startup taint is gone.
async fn opens_after(spent: Span) -> Duration {
    let lab = lab("").await;
    let mut action = lab.removals[0].clone();
    action.kind = Kind::Continue;
    let machine = action.target.machine.clone();
    let taint = json!({ "spec": { "taints": [{ "key": STARTUP_TAINT, "effect": "NoSchedule" }] } });
    lab.api("PATCH", &lab.node_path(0), taint).await;
    let since = lab.tools.clock.now();
    let set = |entry: &mut JournalEntry| {
        (entry.step, entry.since, entry.spent) = (Step::Initialize, since, spent);
    };
    lab.tools.journal.update(&machine, set).expect("kept");
    let another: Arc<str> = "another".into();
    let after = BTreeMap::from([(machine.clone(), vec![another])]);
    lab.tools.nominations.openings.plan(&after);
    // The executor's own view of the cluster has the taint by then.
    sleep(Duration::from_secs(2)).await;
    let entry = lab.tools.journal.get(&machine);
    let began = Instant::now();
    let work = Box::pin(perform(lab.tools.clone(), action, entry));
    let opens = async {
        loop {
            let node = lab.api("GET", &lab.node_path(0), json!(null)).await;
            let taints = node["spec"]["taints"].to_string();
            if !taints.contains(STARTUP_TAINT) {
                return began.elapsed();
            }
            sleep(Duration::from_secs(1)).await;
        }
    };
    let opens = timeout(Duration::from_mins(10), opens);
    let (ended, took) = tokio::join!(work, opens);
    assert_eq!(ended.result, Ok(()));
    took.expect("it takes pods")
}

#[test]
fn a_node_waits_for_others_for_two_minutes_and_for_half_of_its_steps_time_at_most() {
    // The step has five minutes.
    for (spent, opens) in [(0, 120), (20, 120), (60, 90), (150, 0), (240, 0)] {
        simulate(async {
            let took = opens_after(Span::seconds(spent)).await.as_secs();
            assert!(
                (opens..opens + 20).contains(&took),
                "{spent} s spent: it takes pods after {took} s, not {opens}"
            );
        });
    }
}
