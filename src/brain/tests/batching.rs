//! The batch window: who waits for whom, and for how long.

use proptest::prelude::*;

use super::growing::plain;
use super::lab::{Lab, made, verdict};
use model::report::PodVerdict;
use model::time::Span;

/// Windows of one second, ten at most.
fn gathering(mut lab: Lab) -> Lab {
    lab.policy.scale_up.batch_idle = Span::seconds(1);
    lab.policy.scale_up.batch_max = Span::seconds(10);
    lab
}

#[test]
fn the_batch_window_waits_for_company() {
    let mut lab = gathering(plain(4, 4096, 110)).pod("a", 100, 100);
    let start = lab.now;
    let decision = lab.turn();
    assert!(decision.plan.is_empty());
    assert_eq!(decision.wake, Some(start + Span::seconds(1)));
    // A pod every 900 ms keeps the window open, up to its longest time.
    for n in 1..=11 {
        lab = lab.after(Span(900)).pod(&format!("b{n}"), 100, 100);
        let decision = lab.turn();
        assert!(decision.plan.is_empty(), "after {n} pods");
        assert!(decision.wake <= Some(start + Span::seconds(10)));
    }
    let mut lab = lab.after(Span(100));
    let decision = lab.turn();
    assert_eq!(made(&decision), ["one"]);
    assert!(lab.decide().plan.is_empty());
}

/// The daemon does not look while a batch fills: what came meanwhile came when it was seen.
#[test]
fn a_window_that_nobody_looked_into_closes_as_one_that_was_watched() {
    let mut lab = gathering(plain(4, 4096, 110)).pod("a", 100, 100);
    let start = lab.now;
    lab.turn();
    for (at, came, until) in [
        (1_000, 400, 1_400),
        (1_400, 1_300, 2_300),
        (2_300, 2_300, 3_300),
    ] {
        lab = lab.pod(&format!("b-{at}"), 100, 100);
        lab.now = start + Span(at);
        lab.snapshot.cluster.unschedulable_at = Some(start + Span(came));
        lab = lab.after(Span::ZERO);
        let decision = lab.turn();
        assert!(decision.plan.is_empty(), "at {at}");
        assert_eq!(decision.wake, Some(start + Span(until)));
    }
    lab.now = start + Span(3_300);
    assert_eq!(made(&lab.after(Span::ZERO).decide()), ["one"]);
    // However long pods come, it closes.
    let lab = gathering(plain(4, 4096, 110)).pod("a", 100, 100);
    let mut lab = lab.with(|lab| drop(lab.turn())).pod("b", 100, 100);
    lab.now = start + Span::seconds(10);
    lab.snapshot.cluster.unschedulable_at = Some(lab.now);
    assert_eq!(made(&lab.after(Span::ZERO).decide()), ["one"]);
}

#[test]
fn pods_that_cannot_be_helped_open_no_window_of_their_own() {
    let mut lab = gathering(plain(4, 4096, 110))
        .edit_pool("p", |pool| pool.max = 0)
        .pod("held", 100, 100);
    lab.turn();
    let mut lab = lab.after(Span::seconds(1));
    assert!(matches!(
        verdict(&lab.turn(), "held"),
        PodVerdict::Held { .. }
    ));
    let mut lab = lab.after(Span::seconds(1));
    assert_eq!(lab.turn().wake, None, "nothing is to be waited for");
    // Once the limit is lifted there is nothing to wait for either.
    let lab = lab.edit_pool("p", |pool| pool.max = 1);
    assert_eq!(made(&lab.decide()), ["one"]);
}

#[test]
fn a_pod_that_comes_as_the_window_closes_is_planned_for_with_it() {
    let lab = gathering(plain(4, 4096, 110)).pod("a", 3000, 100);
    let lab = lab.with(|lab| drop(lab.turn())).after(Span::seconds(1));
    assert_eq!(made(&lab.pod("b", 3000, 100).decide()), ["one", "one"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A decision is made whenever a pod comes and whenever the last decision asked for one, as in service. Both
    /// often fall together: pods come at tenths of a second.
    #[test]
    fn no_pod_waits_longer_than_a_window_whatever_the_stream(
        gaps in proptest::collection::vec(0..=10i64, 20..45),
    ) {
        let mut lab = gathering(plain(4, 4096, 3));
        let mut waiting = Vec::new();
        for (n, gap) in gaps.iter().enumerate() {
            let name = format!("p{n}");
            lab = lab.pod(&name, 1, 1);
            waiting.push((name, lab.now));
            let until = lab.now + Span(*gap * 100);
            loop {
                let decision = lab.turn();
                let now = lab.now;
                waiting.retain(|(name, came)| {
                    let waits = matches!(verdict(&decision, name), PodVerdict::Batched { .. });
                    assert!(!waits || now.since(*came) < Span::seconds(10), "{name} of {came} at {now}");
                    waits
                });
                let wake = decision.wake.filter(|wake| *wake < until && *wake > now);
                let next = wake.unwrap_or(until);
                lab = lab.after(next.since(now));
                if next == until {
                    break;
                }
            }
        }
    }
}
