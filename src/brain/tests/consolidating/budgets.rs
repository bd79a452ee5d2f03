//! Disruption budgets: of pods, and of pools.

use crate::tests::lab::{Lab, kept, made, removed};

use model::cluster::{DisruptionBudget, ObjectKey, ReadyStatus};
use model::disruption::{Cause, NodeBudget, Share, Window};
use model::policy::LEAVING_TAINT;
use model::region::{Busy, Step};
use model::report::NodeVerdict;
use model::scheduling::Taint;
use model::time::Span;

use super::{consolidated, dear, looked, nothing};
#[test]
fn cn_07_cn_28_disruption_budgets() {
    let mut lab = dear().budget("b", "web", 0);
    assert_eq!(kept(&nothing(lab.clone()), "n1"), "NotEnoughPdb");
    let budget: DisruptionBudget = lab
        .snapshot
        .cluster
        .budgets
        .values()
        .next()
        .expect("b")
        .clone();
    lab.snapshot.cluster.budgets.clear();
    lab.snapshot
        .cluster
        .budgets
        .insert(ObjectKey::new("other", "b"), budget);
    assert_eq!(made(&looked(lab)), ["s"], "CN-07: of another namespace");
    let two = dear().budget("a", "web", 9).budget("b", "web", 9);
    assert_eq!(kept(&nothing(two), "n1"), "NotEnoughPdb", "CN-28");
}

/// Ten empty nodes under these budgets.
fn empties(budgets: Vec<NodeBudget>) -> Lab {
    (0..10)
        .fold(consolidated(), |lab, n| {
            lab.ours(&format!("n{n}"), "c", "s")
        })
        .edit_pool("c", |pool| pool.budgets = budgets)
}

pub(super) fn at_most(nodes: Share) -> NodeBudget {
    NodeBudget {
        nodes,
        window: None,
        causes: [].into(),
    }
}

#[test]
fn cn_18_budgets_of_the_pool() {
    let gone = |budgets| removed(&looked(empties(budgets))).len();
    assert_eq!(gone(vec![at_most(Share::Nodes(3))]), 3);
    assert_eq!(gone(vec![at_most(Share::Percent(100))]), 10);
    assert_eq!(gone(vec![at_most(Share::Nodes(0))]), 0);
    assert_eq!(gone(vec![at_most(Share::Percent(11))]), 2, "rounded up");
    let both = vec![at_most(Share::Nodes(5)), at_most(Share::Percent(10))];
    assert_eq!(gone(both), 1, "the tightest");
    let other = NodeBudget {
        causes: [Cause::Underused].into(),
        ..at_most(Share::Nodes(0))
    };
    assert_eq!(gone(vec![other]), 10, "for another cause");
}

#[test]
fn budgets_have_windows() {
    let budget = |schedule: &str| NodeBudget {
        window: Some(Window {
            schedule: schedule.parse().expect("a schedule"),
            duration: Span::minutes(60),
        }),
        ..at_most(Share::Nodes(0))
    };
    let lab = empties(vec![budget("* * * * *")]);
    let decision = looked(lab.clone());
    assert_eq!(removed(&decision).len(), 0);
    match &decision.report.nodes["n0"] {
        NodeVerdict::Kept { why, until, .. } => {
            let why = why.to_string();
            assert!(why.contains("lets 0 of 10 nodes be disrupted"), "{why}");
            assert!(until.is_some());
        }
        other => panic!("{other:?}"),
    }
    // START is of the 18th of November 2026.
    let closed = empties(vec![budget("0 0 1 1 *")]);
    assert_eq!(removed(&looked(closed)).len(), 10);
}

#[test]
fn cn_41_nodes_that_are_leaving_or_not_ready_use_up_budgets() {
    let lab = || empties(vec![at_most(Share::Nodes(3))]);
    let unready = lab().edit_node("n9", |node| node.ready.status = ReadyStatus::False);
    assert_eq!(removed(&looked(unready)).len(), 2);
    let leaving = lab()
        .edit_machine("n9", |machine| machine.busy = Some(Busy::Down))
        .edit_node("n9", |node| {
            node.taints.push(Taint::no_schedule(LEAVING_TAINT, "0"));
        });
    assert_eq!(removed(&looked(leaving)).len(), 2);
    let coming = lab()
        .machine("x", "c", "s", Step::Join)
        .edit_machine("x", |machine| machine.busy = Some(Busy::Up));
    assert_eq!(removed(&looked(coming)).len(), 3);
    let many = (5..10).fold(lab(), |lab, n| {
        lab.edit_node(&format!("n{n}"), |node| {
            node.ready.status = ReadyStatus::False;
        })
        .with(|lab| lab.policy.scale_down.ok_total_unready = 9)
    });
    assert_eq!(removed(&looked(many)).len(), 0, "never negative");
}
