//! Scale-down: eligibility, utilisation, drain rules, simulation, timers, budgets.

use std::sync::Arc;

use super::lab::{Lab, kept, lab, owner, removed};
use crate::model::action::{Kind, Reason};
use crate::model::cluster::{Phase, PodKey, ReadyStatus};
use crate::model::policy::LEAVING_TAINT;
use crate::model::region::{Busy, Step};
use crate::model::report::NodeVerdict;
use crate::model::resources::Resources;
use crate::model::scheduling::{Effect, Taint, Volume};
use crate::model::time::Span;

const SAFE: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";

/// A pool `p` of nodes with one core and 1024 MiB.
fn pool() -> Lab {
    lab()
        .kind("one", 1, 1024)
        .kind("two", 2, 2048)
        .pool("p", &["one", "two"])
}

/// `count` nodes `n1` and on.
fn nodes(count: usize) -> Lab {
    (1..=count).fold(pool(), |lab, n| lab.ours(&format!("n{n}"), "p", "one"))
}

/// The first decision starts the timers; the plan after eleven minutes is the answer.
fn later(lab: Lab) -> (Lab, crate::model::decision::Decision) {
    later_by(lab, Span::minutes(11))
}

fn later_by(mut lab: Lab, span: Span) -> (Lab, crate::model::decision::Decision) {
    let first = lab.turn();
    assert_eq!(
        removed(&first),
        Vec::<String>::new(),
        "nothing goes at once"
    );
    let lab = lab.after(span);
    let decision = lab.decide();
    (lab, decision)
}

fn gone(lab: Lab) -> Vec<String> {
    removed(&later(lab).1)
}

#[test]
fn el_01_an_empty_node_goes_after_its_time() {
    let (lab, decision) = later(nodes(1));
    assert_eq!(removed(&decision), ["n1"]);
    assert!(matches!(decision.plan[0].reason, Reason::Unneeded { .. }));
    let mut lab = lab;
    lab.turn();
    assert_eq!(
        lab.decide().plan,
        [],
        "once it is begun there is nothing to add"
    );
}

#[test]
fn el_04_el_05_utilisation_decides() {
    let with = |milli| {
        let lab = nodes(2)
            .bound("web", "n1", milli, 1)
            .bound("db", "n2", 900, 1);
        later(lab.node("other", 4000, 4096)).1
    };
    assert_eq!(kept(&with(600), "n1"), "NotUnderutilized");
    assert_eq!(kept(&with(500), "n1"), "NotUnderutilized");
    assert_eq!(removed(&with(499)), ["n1"]);
    assert_eq!(removed(&with(100)), ["n1"]);
}
