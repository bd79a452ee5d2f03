//! Machines for a pool's `min`: pods of the same decision come to them and choose their types.

use std::collections::BTreeMap;

use super::lab::{GI, Lab, lab, made, verdict};
use crate::Decision;
use model::action::{Action, Kind, Reason};
use model::cluster::ObjectKey;
use model::policy::POOL_LABEL;
use model::report::PodVerdict;
use model::scheduling::{NodeTerm, Operator, PodShape, Requirement};
use model::time::Span;

/// Types of 2, 8 and 16 cores, priced by size; pool `p` has them all, and its `min` is so many.
fn pool(min: u32) -> Lab {
    lab()
        .kind("small", 2, 4096)
        .kind("large", 8, 16_384)
        .kind("huge", 16, 32_768)
        .pool("p", &["small", "large", "huge"])
        .edit_pool("p", |pool| pool.min = min)
}

fn below(have: u32, min: u32, pods: &[&str]) -> Reason {
    let pods = pods
        .iter()
        .map(|pod| ObjectKey::new("default", *pod))
        .collect();
    Reason::BelowMin {
        have,
        min,
        pods,
        in_place_of: BTreeMap::new(),
    }
}

fn pending(pods: &[&str]) -> Reason {
    let pods = pods
        .iter()
        .map(|pod| ObjectKey::new("default", *pod))
        .collect();
    Reason::PendingPods {
        pods,
        in_place_of: BTreeMap::new(),
    }
}

/// Types and reasons of what is made, each of which the checker lets through; the reasons name the pods that the report sends there.
fn plan_of(lab: &Lab) -> Vec<(String, String, Reason)> {
    let decision = lab.decide();
    for action in &decision.plan {
        let verdict = crate::check::check(action, &lab.snapshot, &lab.policy, lab.now);
        assert_eq!(verdict, Ok(()), "{action:?}");
        assert_eq!(action.reason.pending_pods(), sent_to(&decision, action));
    }
    let checked = crate::check::check_plan(&decision.plan, &lab.snapshot, &lab.policy, lab.now);
    assert_eq!(checked, Ok(()));
    let made = decision.plan.into_iter().filter_map(|action| {
        let Kind::Create(spec) = action.kind else {
            return None;
        };
        Some((spec.mark.pool, spec.mark.instance_type, action.reason))
    });
    let mut made: Vec<_> = made.collect();
    made.sort_by_key(|(pool, of, reason)| (pool.clone(), of.clone(), reason.to_string()));
    made
}

/// The pods that the report sends to the machine of an action.
fn sent_to(decision: &Decision, action: &Action) -> Vec<ObjectKey> {
    let machine = &action.target.machine;
    let pods = decision.report.pods.iter().filter(
        |(_, verdict)| matches!(verdict, PodVerdict::Triggers { machine: to, .. } if to == machine),
    );
    pods.map(|(pod, _)| pod.clone()).collect()
}

fn of(pool: &str, kind: &str, reason: Reason) -> (String, String, Reason) {
    (pool.to_owned(), kind.to_owned(), reason)
}

#[test]
fn one_machine_is_for_the_min_and_for_a_large_pod() {
    let lab = pool(1).pod("web", 6000, 1024);
    assert_eq!(plan_of(&lab), [of("p", "large", below(0, 1, &["web"]))]);
    let words = lab.decide().plan[0].reason.to_string();
    let both = "the pool has 0 nodes, its min is 1; 1 pod fits nowhere else: default/web";
    assert_eq!(words, both);
    let mut after = lab;
    after.turn();
    assert!(after.decide().plan.is_empty());
}

/// With the cheapest type for `min` and no machine more the pod would wait for ever.
#[test]
fn a_pod_fits_on_the_one_machine_that_a_pool_may_have() {
    let lab = pool(1).edit_pool("p", |pool| pool.max = 1);
    let lab = lab.pod("web", 6000, 1024);
    assert_eq!(plan_of(&lab), [of("p", "large", below(0, 1, &["web"]))]);
    // As with a ceiling for its memory: two small ones would leave no room for a large one.
    let ceiling = |gib: i64| {
        let lab = pool(2).edit_pool("p", |pool| pool.max_memory = Some(gib * GI));
        lab.pod("web", 6000, 1024)
    };
    assert_eq!(
        plan_of(&ceiling(20)),
        [
            of("p", "large", below(0, 2, &["web"])),
            of("p", "small", below(0, 2, &[])),
        ]
    );
    // The pool's `min` comes first.
    let scarce = ceiling(19);
    assert_eq!(
        plan_of(&scarce),
        [
            of("p", "small", below(0, 2, &[])),
            of("p", "small", below(0, 2, &[])),
        ]
    );
    assert!(matches!(
        verdict(&scarce.decide(), "web"),
        PodVerdict::Held { .. }
    ));
    // Also what of it cannot be made yet.
    let mut slow = scarce;
    slow.policy.scale_up.max_in_flight = 1;
    assert_eq!(plan_of(&slow), [of("p", "small", below(0, 2, &[]))]);
}

#[test]
fn small_pods_come_to_the_machines_for_the_min() {
    let lab = pool(2).pods("web", 2, 1500, 1024);
    assert_eq!(
        plan_of(&lab),
        [
            of("p", "small", below(0, 2, &["web-0"])),
            of("p", "small", below(0, 2, &["web-1"])),
        ]
    );
    // Both on one: the other is made all the same.
    let lab = pool(2).pods("web", 2, 500, 1024);
    assert_eq!(made(&lab.decide()), ["small", "small"]);
    // One more than two hold makes one of them larger, rather than a third.
    let lab = pool(2).pods("web", 3, 1500, 1024);
    let lab = lab.edit_kind("large", |kind| kind.price = Some(170_000));
    assert_eq!(made(&lab.decide()), ["small", "small", "small"]);
    let cheap = lab.edit_kind("large", |kind| kind.price = Some(90_000));
    let mut kinds = made(&cheap.decide());
    kinds.sort();
    assert_eq!(kinds, ["large", "small"]);
}

#[test]
fn a_machine_for_the_min_and_pods_of_another_pool_have_nothing_to_do_with_each_other() {
    let lab = pool(1).pool("q", &["small", "large"]);
    let lab = lab.pod("web", 6000, 1024).shape("web", |shape| {
        shape.node_selector.insert(POOL_LABEL.into(), "q".into());
    });
    assert_eq!(
        plan_of(&lab),
        [
            of("p", "small", below(0, 1, &[])),
            of("q", "large", pending(&["web"])),
        ]
    );
}

/// The pod's best machine by itself is of another pool; with the one for `min` beside it that is dearer than a large one for both.
#[test]
fn the_price_of_the_whole_plan_counts() {
    let lab = pool(1)
        .kind("bargain", 8, 16_384)
        .edit_kind("bargain", |kind| kind.price = Some(300_000))
        .pool("q", &["bargain"])
        .pod("web", 6000, 1024);
    // 0.32 for p's large one; 0.08 and 0.30 for a small one and the bargain.
    assert_eq!(plan_of(&lab), [of("p", "large", below(0, 1, &["web"]))]);
    let cheaper = lab.edit_kind("bargain", |kind| kind.price = Some(230_000));
    assert_eq!(
        plan_of(&cheaper),
        [
            of("p", "small", below(0, 1, &[])),
            of("q", "bargain", pending(&["web"])),
        ]
    );
}

/// A heavier pool has the pods for which a machine must be chosen; what is made for `min` anyway takes pods as a node does.
#[test]
fn pods_come_to_a_lighter_pool_only_where_its_machine_is_made_anyway() {
    let heavy = |lab: Lab| {
        lab.pool("q", &["small", "large"])
            .edit_pool("q", |pool| pool.weight = 10)
    };
    let lab = heavy(pool(1)).pod("web", 1000, 1024);
    assert_eq!(plan_of(&lab), [of("p", "small", below(0, 1, &["web"]))]);
    let lab = heavy(pool(1)).pod("web", 6000, 1024);
    assert_eq!(
        plan_of(&lab),
        [
            of("p", "small", below(0, 1, &[])),
            of("q", "large", pending(&["web"])),
        ]
    );
    // Where the heavier pool is full, nobody waits.
    let lab =
        heavy(pool(1).edit_pool("p", |pool| pool.max = 1)).edit_pool("q", |pool| pool.max = 0);
    let lab = lab.pod("web", 6000, 1024);
    assert_eq!(plan_of(&lab), [of("p", "large", below(0, 1, &["web"]))]);
}

/// Who is in a heavier pool stays there, whatever becomes of the machine for `min`: it keeps nobody from choosing the machine's type.
#[test]
fn pods_of_a_heavier_pool_do_not_keep_a_machine_for_min_small() {
    let of_pools = |shape: &mut PodShape, pools: [&str; 2]| {
        let expressions = vec![Requirement {
            key: POOL_LABEL.into(),
            operator: Operator::In,
            values: pools.map(Into::into).to_vec(),
        }];
        let term = NodeTerm {
            expressions,
            fields: Vec::new(),
        };
        shape.node_affinity = Some(vec![term]);
    };
    // The best machine for `web` by itself is the bargain; `api` may be in the heavier pool.
    let both = |api: i64| {
        pool(1)
            .kind("bargain", 8, 16_384)
            .edit_kind("bargain", |kind| kind.price = Some(300_000))
            .pool("q", &["small", "large"])
            .edit_pool("q", |pool| pool.weight = 10)
            .pool("r", &["bargain"])
            .pod("web", 7000, 1024)
            .shape("web", |shape| of_pools(shape, ["p", "r"]))
            .pod("api", api, 1024)
            .shape("api", |shape| of_pools(shape, ["p", "q"]))
    };
    // 0.32 for p's large one; 0.08 and 0.30 for a small one and the bargain.
    assert_eq!(
        plan_of(&both(6000)),
        [
            of("p", "large", below(0, 1, &["web"])),
            of("q", "large", pending(&["api"])),
        ]
    );
    // One that came to the machine for `min`, and has no room beside `web`, would get a machine of the heavier pool: the machine stays.
    assert_eq!(
        plan_of(&both(1500)),
        [
            of("p", "small", below(0, 1, &["api"])),
            of("r", "bargain", pending(&["web"])),
        ]
    );
}

/// As many as are missing: those there are count.
#[test]
fn what_a_pool_has_counts_for_its_min() {
    let lab = pool(2)
        .ours("n1", "p", "small")
        .bound("full", "n1", 2000, 1024);
    let lab = lab.pod("web", 6000, 1024).pod("more", 12_000, 1024);
    let plan = plan_of(&lab);
    let reasons: Vec<&Reason> = plan.iter().map(|(.., reason)| reason).collect();
    let for_min = |reason: &&&Reason| {
        matches!(
            reason,
            Reason::BelowMin {
                have: 1,
                min: 2,
                ..
            }
        )
    };
    assert_eq!(reasons.iter().filter(for_min).count(), 1, "{plan:?}");
}

/// A pool to which no pod of the batch could come does not wait for it.
#[test]
fn machines_for_the_min_of_another_pool_wait_for_no_batch() {
    let mut lab = pool(1).pool("q", &["large"]).pod("web", 6000, 1024);
    lab = lab.edit_pool("p", |pool| {
        pool.taints.push(model::scheduling::Taint {
            key: "only".into(),
            value: "p".into(),
            effect: model::scheduling::Effect::NoSchedule,
        });
    });
    lab.policy.scale_up.batch_idle = Span::seconds(1);
    lab.policy.scale_up.batch_max = Span::seconds(10);
    assert_eq!(plan_of(&lab), [of("p", "small", below(0, 1, &[]))]);
}

/// A machine for `min` waits with the pods whose batch is open, and becomes one that holds them. Without pods it waits for nothing.
#[test]
fn machines_for_min_wait_for_an_open_batch() {
    let mut lab = pool(1);
    lab.policy.scale_up.batch_idle = Span::seconds(1);
    lab.policy.scale_up.batch_max = Span::seconds(10);
    assert_eq!(plan_of(&lab), [of("p", "small", below(0, 1, &[]))]);
    let mut lab = lab.pod("web", 6000, 1024);
    let open = lab.decide();
    assert!(open.plan.is_empty(), "{:?}", open.plan);
    let closes = open.wake.expect("the batch closes");
    assert!(closes.since(lab.now) <= Span::seconds(1));
    lab.memory = open.memory;
    let lab = lab.after(Span::seconds(1));
    assert_eq!(plan_of(&lab), [of("p", "large", below(0, 1, &["web"]))]);
}

/// A machine that pods made larger is not made once they have places.
#[test]
fn the_checker_lets_no_larger_machine_through_without_its_pods() {
    let lab = pool(1).pod("web", 6000, 1024);
    let decision = lab.decide();
    let placed = lab
        .clone()
        .node("n1", 8000, 16_384)
        .edit("web", |pod| pod.node = Some("n1".into()));
    let verdict = crate::check::check(
        &decision.plan[0],
        &placed.snapshot,
        &placed.policy,
        placed.now,
    );
    let refusal = verdict.expect_err("nobody waits");
    assert_eq!(refusal.rule, crate::check::CheckRule::Needed);
    // One of the cheapest type is what `min` alone asks for, whoever was to come along.
    let small = pool(1).pod("web", 500, 256);
    let decision = small.decide();
    assert_eq!(plan_of(&small), [of("p", "small", below(0, 1, &["web"]))]);
    let placed = small
        .clone()
        .node("n1", 8000, 16_384)
        .edit("web", |pod| pod.node = Some("n1".into()));
    let (snapshot, policy) = (&placed.snapshot, &placed.policy);
    let verdict = crate::check::check(&decision.plan[0], snapshot, policy, placed.now);
    assert_eq!(verdict, Ok(()));
    // Nor one that does not hold them.
    let grown = lab.edit("web", |pod| {
        std::sync::Arc::make_mut(&mut pod.shape).requests.cpu_milli = 9000;
    });
    let verdict = crate::check::check(&decision.plan[0], &grown.snapshot, &grown.policy, grown.now);
    let refusal = verdict.expect_err("it is too small");
    assert_eq!(refusal.rule, crate::check::CheckRule::Unfit);
}
