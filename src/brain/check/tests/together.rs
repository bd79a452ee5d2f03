//! Several actions of one plan: each alone would do, not all together.

use std::sync::Arc;

use super::{creation, pool};
use crate::check::{CheckRule, check_plan};
use crate::tests::lab::Lab;
use model::action::Action;
use model::time::Span;

#[test]
fn a_plan_is_refused_for_what_holds_only_one_by_one() {
    let rule = |lab: &Lab, plan: &[Action]| {
        check_plan(plan, &lab.snapshot, &lab.policy, lab.now).map_err(|refusal| refusal.rule)
    };
    let (lab, action) = creation();
    assert_eq!(rule(&lab, &[action.clone(), action]), Err(CheckRule::Twice));
    // Two machines, one too many for the pool.
    let lab = pool().pods("web", 2, 1900, 100);
    let plan = lab.decide().plan;
    assert_eq!((plan.len(), rule(&lab, &plan)), (2, Ok(())));
    let tight = lab.edit_pool("p", |pool| pool.max = 1);
    assert_eq!(rule(&tight, &plan), Err(CheckRule::PoolMax));
    // Two removals whose pods do not both land.
    let mut lab = pool()
        .ours("n1", "p", "one")
        .ours("n2", "p", "one")
        .bound("a", "n1", 400, 1)
        .bound("b", "n2", 400, 1)
        .node("other", 800, 1024);
    lab.policy.scale_down.max_parallel_drain = 2;
    lab.turn();
    let lab = lab.after(Span::minutes(11));
    let plan = lab.decide().plan;
    assert_eq!((plan.len(), rule(&lab, &plan)), (2, Ok(())));
    let small = lab
        .clone()
        .edit_node("other", |node| node.allocatable.cpu_milli = 799);
    assert_eq!(rule(&small, &plan), Err(CheckRule::Landing));
    let kept = lab.clone().edit_pool("p", |pool| pool.min = 1);
    assert_eq!(rule(&kept, &plan), Err(CheckRule::PoolMin));
    let mut shared = lab.budget("x", "a", 1);
    for pod in shared.snapshot.cluster.pods.values_mut() {
        Arc::make_mut(&mut pod.shape)
            .labels
            .insert("app".into(), "a".into());
    }
    assert_eq!(rule(&shared, &plan), Err(CheckRule::Budget));
}
