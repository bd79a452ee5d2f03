//! Scale-down, the rarer rules: what counts as used, guarded nodes, evicted pods, atomic pools, pools
//! above their `max`, floors, and how many nodes become unneeded at once.

use std::sync::Arc;

use super::lab::{Lab, kept, lab, owner, removed};
use crate::decide;
use model::action::Reason;
use model::cluster::{ObjectKey, Pod, ReadyStatus};
use model::decision::Decision;
use model::policy::LEAVING_TAINT;
use model::region::Busy;
use model::report::{NodeVerdict, PodVerdict, Scope};
use model::scheduling::{Taint, Volume};
use model::time::Span;

fn pool() -> Lab {
    lab()
        .kind("one", 1, 1024)
        .kind("two", 2, 2048)
        .pool("p", &["one", "two"])
}

fn nodes(count: usize) -> Lab {
    (1..=count).fold(pool(), |lab, n| lab.ours(&format!("n{n}"), "p", "one"))
}

fn later(mut lab: Lab) -> Decision {
    lab.turn();
    lab.after(Span::minutes(11)).decide()
}

fn why(decision: &Decision, node: &str) -> String {
    match &decision.report.nodes[node] {
        NodeVerdict::Kept { why, .. } => why.to_string(),
        other => panic!("{other:?}"),
    }
}

/// What UT-01 has: two pods of a tenth of the memory each, and one that asks for nothing.
fn utilised() -> Lab {
    pool()
        .kind("ut", 2, 2000)
        .pool("q", &["ut"])
        .ours("n1", "q", "ut")
        .bound("a", "n1", 100, 200)
        .bound("b", "n1", 100, 200)
        .bound("c", "n1", 0, 0)
        .node("other", 64_000, 65_536)
}

/// The utilisation that the removal of n1 names.
fn permille(lab: Lab) -> i64 {
    match &later(lab).plan[0].reason {
        Reason::Unneeded {
            utilization_permille,
            ..
        } => *utilization_permille,
        other => panic!("{other:?}"),
    }
}

#[test]
fn ut_01_to_07_what_counts_as_used() {
    assert_eq!(permille(utilised()), 200, "UT-01");
    let daemons = || {
        utilised()
            .bound("d", "n1", 100, 200)
            .shape("d", |shape| shape.owner = Some(owner("DaemonSet", "d")))
            .bound("e", "n1", 100, 200)
            .shape("e", |shape| {
                shape.annotations.insert(
                    "cluster-autoscaler.kubernetes.io/daemonset-pod".into(),
                    "true".into(),
                );
            })
    };
    let ignored = daemons().with(|lab| lab.policy.scale_down.ignore_daemonsets = true);
    assert_eq!(permille(ignored), 250, "UT-04: of 1600 that are left, 400");
    assert_eq!(permille(daemons()), 400, "and all of them otherwise");
    let mirror = || {
        utilised()
            .bound("m", "n1", 100, 200)
            .edit("m", |pod| pod.mirror = true)
    };
    let ignored = mirror().with(|lab| lab.policy.scale_down.ignore_mirrors = true);
    assert_eq!(permille(ignored), 222, "UT-05: two ninths");
    assert_eq!(permille(mirror()), 300);
}

#[test]
fn el_07_nodes_that_are_not_ready_may_be_left_alone() {
    let lab = nodes(1)
        .edit_node("n1", |node| node.ready.status = ReadyStatus::Unknown)
        .with(|lab| lab.policy.scale_down.unready_enabled = false);
    assert_eq!(kept(&later(lab), "n1"), "ScaleDownUnreadyDisabled");
}

#[test]
fn el_02_another_autoscalers_fresh_taint_is_respected() {
    let tainted = |age: i64| {
        let lab = nodes(1);
        // The taint is as old as that when the second decision is made.
        let at = lab.now + Span::minutes(11) - Span::seconds(age);
        lab.edit_node("n1", |node| {
            let taint =
                Taint::no_schedule("ToBeDeletedByClusterAutoscaler", &(at.0 / 1000).to_string());
            node.taints.push(taint);
        })
    };
    assert_eq!(kept(&later(tainted(30)), "n1"), "CurrentlyBeingDeleted");
    let mut old = tainted(11 * 60 + 301);
    old.turn();
    assert_eq!(removed(&old.after(Span::minutes(11)).decide()), ["n1"]);
}

#[test]
fn do_not_disrupt_ends_after_its_span() {
    let guarded = |span: &str| {
        let lab = nodes(1)
            .node("other", 4000, 4096)
            .bound("web", "n1", 100, 1);
        let mut lab = lab.shape("web", |shape| {
            shape
                .annotations
                .insert("karpenter.sh/do-not-disrupt".into(), span.into());
        });
        lab.turn();
        lab
    };
    let lab = guarded("20m");
    let at = lab.now;
    let early = lab.clone().after(Span::minutes(11)).decide();
    assert_eq!(kept(&early, "n1"), "NotSafeToEvictAnnotation");
    assert_eq!(early.wake, Some(at + Span::minutes(20)));
    let mut over = lab.after(Span::minutes(20));
    assert!(removed(&over.turn()).is_empty(), "its timer starts then");
    assert_eq!(removed(&over.after(Span::minutes(10)).decide()), ["n1"]);
    let late = guarded("true").after(Span::minutes(60)).decide();
    assert_eq!(kept(&late, "n1"), "NotSafeToEvictAnnotation");
    for no_span in ["20 minutes or so", "-20m", "false", ""] {
        let lab = guarded(no_span).after(Span::minutes(11));
        assert_eq!(removed(&lab.decide()), ["n1"], "{no_span}");
    }
}

#[test]
fn dr_12_dr_14_dr_24_nx_02_exceptions_to_the_drain_rules() {
    let web = |change: fn(&mut model::scheduling::PodShape)| {
        nodes(1)
            .bound("web", "n1", 100, 1)
            .shape("web", change)
            .node("other", 4000, 4096)
    };
    let safe = web(|shape| {
        shape.owner = None;
        shape.volumes = vec![Volume::EmptyDir("scratch".into())];
        shape.annotations.insert(
            "cluster-autoscaler.kubernetes.io/safe-to-evict".into(),
            "true".into(),
        );
    });
    assert_eq!(removed(&later(safe.clone())), ["n1"], "DR-14");
    assert_eq!(
        kept(&later(safe.budget("b", "web", 0)), "n1"),
        "NotEnoughPdb"
    );
    let none = web(|_| {}).budget("b", "nothing", 0);
    assert_eq!(removed(&later(none)), ["n1"], "DR-24");
    assert_eq!(
        kept(&later(web(|shape| shape.owner = None)), "n1"),
        "NotReplicated"
    );
}

/// n1 and `others` beside a node n9 that is leaving and on which pods of `milli` ran a moment ago.
fn after_eviction(evicted: usize, milli: i64, others: &[(&str, i64)]) -> Lab {
    after_eviction_of((evicted, |_: &mut Pod| {}), milli, others)
}

/// The world of [`after_eviction`] with its evicted pods changed before they go.
fn after_eviction_of(
    (evicted, change): (usize, impl Fn(&mut Pod)),
    milli: i64,
    others: &[(&str, i64)],
) -> Lab {
    let mut lab = others
        .iter()
        .fold(pool(), |lab, (name, _)| lab.ours(name, "p", "one"));
    for (name, used) in others.iter().filter(|(_, used)| *used > 0) {
        lab = lab.bound(&format!("on-{name}"), name, *used, 1);
    }
    lab = lab.ours("n9", "p", "two");
    for n in 0..evicted {
        lab = lab
            .bound(&format!("gone-{n}"), "n9", milli, 1)
            .edit(&format!("gone-{n}"), |pod| {
                pod.created = pod.created - Span::minutes(60);
                change(pod);
            });
    }
    let mut lab = lab
        .edit_machine("n9", |machine| machine.busy = Some(Busy::Down))
        .edit_node("n9", |node| {
            node.taints.push(Taint::no_schedule(LEAVING_TAINT, "0"));
        });
    lab.turn();
    lab.memory.unneeded_since.clear();
    let mut lab = lab.after(Span::seconds(5));
    for n in 0..evicted {
        let key = ObjectKey::new("default", format!("gone-{n}"));
        lab.snapshot.cluster.pods.remove(&key);
    }
    lab
}

/// Which nodes become unneeded.
fn unneeded(lab: &Lab) -> Vec<String> {
    let decision = lab.decide();
    let names = decision.memory.unneeded_since.keys();
    names.map(ToString::to_string).collect()
}

#[test]
fn pl_11_to_pl_21_room_is_kept_for_pods_that_were_just_evicted() {
    assert_eq!(unneeded(&after_eviction(0, 0, &[("n1", 0)])), ["n1"]);
    let none: [&str; 0] = [];
    let one = after_eviction(1, 500, &[("n1", 0)]);
    assert_eq!(unneeded(&one), none, "PL-11");
    let two = after_eviction(1, 500, &[("n1", 0), ("n2", 0)]);
    assert_eq!(unneeded(&two), ["n1"], "PL-14");
    let huge = after_eviction(1, 2000, &[("n1", 0), ("n2", 0)]);
    assert_eq!(
        unneeded(&huge),
        ["n1", "n2"],
        "PL-15: nothing could hold it"
    );
    let full = after_eviction(2, 900, &[("n1", 0), ("n2", 400), ("n3", 0)]);
    assert_eq!(unneeded(&full), none, "PL-21");
    // A minute later nobody waits for it any more.
    let mut late = after_eviction(1, 500, &[("n1", 0)]);
    late.turn();
    assert_eq!(unneeded(&late.after(Span::minutes(1))), ["n1"]);
}

#[test]
fn no_room_is_kept_for_pods_that_nobody_moves() {
    let after = |change: fn(&mut Pod)| after_eviction_of((1, change), 500, &[("n1", 0)]);
    let none: [&str; 0] = [];
    assert_eq!(unneeded(&after(|_| {})), none);
    let daemon = after(|pod| {
        Arc::make_mut(&mut pod.shape).owner = Some(owner("DaemonSet", "agent"));
    });
    assert_eq!(unneeded(&daemon), ["n1"], "each node has its own");
    let static_pod = after(|pod| pod.mirror = true);
    assert_eq!(unneeded(&static_pod), ["n1"], "it is the node's own");
    let stuck = after(|pod| {
        pod.deletion = Some(pod.created);
        pod.deletion_grace_seconds = Some(30);
    });
    assert_eq!(
        unneeded(&stuck),
        ["n1"],
        "it should have been gone long ago"
    );
}

#[test]
fn pl_17_pl_18_successors_are_counted() {
    let lab = after_eviction(2, 900, &[("n1", 0), ("n2", 0), ("n3", 0)]);
    assert_eq!(
        unneeded(&lab),
        ["n1"],
        "PL-18: two have not come back, n3 and n2 wait"
    );
    let back = lab.bound("back-0", "n3", 400, 1).shape("back-0", |shape| {
        shape.owner = Some(owner("ReplicaSet", "gone"));
    });
    assert_eq!(unneeded(&back), ["n1"], "PL-17: one has");
    let both = back.bound("back-1", "n3", 400, 1).shape("back-1", |shape| {
        shape.owner = Some(owner("ReplicaSet", "gone"));
    });
    assert_eq!(unneeded(&both), ["n1", "n2"]);
}

#[test]
fn pl_12_a_pod_without_controller_is_awaited_too() {
    let mut lab = after_eviction(1, 900, &[("n1", 0)]);
    for pod in lab.memory.evicted.values_mut() {
        Arc::make_mut(&mut pod.shape).owner = None;
    }
    assert!(unneeded(&lab).is_empty());
}

/// How many of a hundred empty nodes become unneeded, with so many from before.
fn newcomers(before: usize, unneeded: Span, interval: Span) -> usize {
    let mut lab = nodes(100);
    lab.policy.scale_down.unneeded_time = unneeded;
    lab.policy.scale_down.scan_interval = interval;
    for n in 1..=before {
        let name = format!("n{n}");
        lab.memory.unneeded_since.insert(name.into(), lab.now);
    }
    let decision = decide(&lab.snapshot, &lab.policy, &lab.memory, lab.now);
    decision.memory.unneeded_since.len()
}

#[test]
fn lm_so_many_nodes_become_unneeded_at_once() {
    let (minute, second) = (Span::minutes(1), Span::seconds(1));
    assert_eq!(newcomers(0, minute, Span::seconds(10)), 20, "LM-01");
    assert_eq!(newcomers(3, minute, Span::seconds(10)), 23, "LM-02");
    assert_eq!(newcomers(0, Span::ZERO, Span::seconds(10)), 20, "LM-04");
    assert_eq!(newcomers(13, minute, second), 33, "LM-05");
    let atomic = nodes(100).edit_pool("p", |pool| pool.atomic = true);
    let decision = decide(&atomic.snapshot, &atomic.policy, &atomic.memory, atomic.now);
    assert_eq!(decision.memory.unneeded_since.len(), 100, "LM-07");
}

#[test]
fn those_that_did_not_become_unneeded_follow() {
    let mut lab = nodes(50);
    let first = lab.turn();
    assert_eq!(lab.memory.unneeded_since.len(), 20);
    assert_eq!(first.wake, Some(lab.now + Span::seconds(10)));
    let mut lab = lab.after(Span::seconds(10));
    lab.turn();
    assert_eq!(lab.memory.unneeded_since.len(), 40);
}

/// Atomic pools `a`, of so many nodes, and maybe `b`.
fn atomic(a: usize, b: usize) -> Lab {
    let mut lab = pool().pool("a", &["one"]).pool("b", &["one"]);
    for (name, count) in [("a", a), ("b", b)] {
        lab = lab.edit_pool(name, |pool| pool.atomic = true);
        for n in 0..count {
            lab = lab.ours(&format!("{name}{n:02}"), name, "one");
        }
    }
    lab.node("other", 100_000, 100_000)
}

#[test]
fn bu_15_an_atomic_pool_goes_as_a_whole_and_may_overshoot_once() {
    assert_eq!(removed(&later(atomic(11, 0))).len(), 11);
    let two = later(atomic(11, 11));
    assert_eq!(removed(&two).len(), 11, "no second pool begins");
    assert_eq!(kept(&two, "b00"), "NodeGroupMaxDeletionCountReached");
    let busy = atomic(11, 0)
        .ours("n1", "p", "one")
        .edit_machine("n1", |machine| machine.busy = Some(Busy::Down));
    assert!(removed(&later(busy)).is_empty(), "something is under way");
}

#[test]
fn an_atomic_pool_stays_for_one_of_its_nodes() {
    let used = later(atomic(3, 0).bound("web", "a01", 900, 1));
    assert!(removed(&used).is_empty());
    assert_eq!(kept(&used, "a00"), "AtomicScaleDownFailed");
    assert!(why(&used, "a00").contains("a01"), "{}", why(&used, "a00"));
    assert_eq!(kept(&used, "a01"), "NotUnderutilized");
    // No place for one pod: the others' pods stand where they stood.
    let mut lab = atomic(2, 0)
        .bound("web", "a00", 400, 1)
        .bound("big", "a01", 450, 1);
    lab.snapshot.cluster.nodes.remove("other");
    let lab = lab.node("other", 500, 1024);
    let none = later(lab.clone());
    assert_eq!(kept(&none, "a00"), "AtomicScaleDownFailed");
    assert_eq!(kept(&none, "a01"), "NoPlaceToMovePods");
    let min = later(atomic(2, 0).edit_pool("a", |pool| pool.min = 1));
    assert!(removed(&min).is_empty());
    let drained = atomic(2, 0)
        .bound("web", "a00", 100, 1)
        .bound("db", "a01", 100, 1);
    assert_eq!(removed(&later(drained)).len(), 2, "both drain at once");
}

#[test]
fn un_07_the_least_of_all_pools_is_kept() {
    let lab = nodes(3).with(|lab| lab.policy.totals.min_cpu_milli = 2000);
    let decision = later(lab);
    assert_eq!(removed(&decision), ["n1"]);
    assert_eq!(kept(&decision, "n2"), "MinimalResourceLimitExceeded");
    let lab = nodes(3).with(|lab| lab.policy.totals.min_memory = 1 << 30);
    assert_eq!(removed(&later(lab)), ["n1", "n2"]);
}

#[test]
fn lc_18_the_most_of_all_pools_is_kept() {
    let lab = nodes(2)
        .edit_pool("p", |pool| pool.instance_types = vec!["one".into()])
        .bound("a", "n1", 900, 1)
        .bound("b", "n2", 900, 1)
        .pods("web", 3, 900, 1)
        .with(|lab| lab.policy.totals.max_cpu_milli = Some(4000));
    let decision = lab.decide();
    assert_eq!(super::lab::made(&decision).len(), 2);
    let held = decision.report.pods.values();
    let held = held.filter(|verdict| matches!(verdict, PodVerdict::Held { .. }));
    assert_eq!(held.count(), 1);
    let memory = lab.with(|lab| {
        lab.policy.totals.max_cpu_milli = None;
        lab.policy.totals.max_memory = Some(3 << 30);
    });
    assert_eq!(super::lab::made(&memory.decide()).len(), 1);
}

#[test]
fn a_pool_above_its_max_loses_the_nodes_that_are_cheapest_to_move() {
    let lab = || {
        let mut lab = nodes(4).node("other", 64_000, 65_536);
        for n in 1..=4 {
            lab = lab.bound(&format!("web-{n}"), &format!("n{n}"), 800, 1);
        }
        lab.shape("web-1", |shape| shape.priority = 1_000_000_000)
            .shape("web-3", |shape| shape.priority = -5)
            .edit_pool("p", |pool| pool.max = 2)
            .with(|lab| lab.policy.scale_down.max_parallel_drain = 5)
    };
    let decision = later(lab());
    assert_eq!(removed(&decision), ["n2", "n3"]);
    assert!(matches!(
        decision.plan[0].reason,
        Reason::AboveMax {
            have: 4,
            max: 2,
            ..
        }
    ));
    assert_eq!(kept(&decision, "n4"), "NotUnderutilized");
    let hold = decision
        .report
        .holds
        .iter()
        .find(|hold| hold.scope == Scope::Pool("p".into()));
    assert!(hold.is_some_and(|hold| hold.why.to_string().contains("2 shall go")));
    let none = later(lab().pod("more", 900, 1));
    assert!(
        super::lab::made(&none).is_empty(),
        "nothing is made above max"
    );
    let held = later(lab().budget("b", "web", 0));
    assert_eq!(kept(&held, "n2"), "NotEnoughPdb");
    let one = later(lab().with(|lab| lab.policy.scale_down.max_parallel_drain = 1));
    assert_eq!(removed(&one), ["n3"]);
    let mut soon = lab();
    soon.turn();
    let soon = soon.after(Span::minutes(9)).decide();
    assert_eq!(kept(&soon, "n3"), "NotUnneededLongEnough");
}
