//! Scale-down: eligibility, utilisation, simulation, timers, budgets, removals that were begun.

use super::lab::{Lab, kept, lab, owner, removed};
use model::action::{Kind, Reason};
use model::cluster::{Phase, ReadyStatus};
use model::decision::Decision;
use model::policy::LEAVING_TAINT;
use model::region::{Busy, Failure, Step};
use model::report::NodeVerdict;
use model::scheduling::Taint;
use model::time::Span;

/// A pool `p` of nodes with one core and 1024 MiB, or two of each.
fn pool() -> Lab {
    lab()
        .kind("one", 1, 1024)
        .kind("two", 2, 2048)
        .pool("p", &["one", "two"])
}

/// `count` nodes `n1` and on.
pub(super) fn nodes(count: usize) -> Lab {
    (1..=count).fold(pool(), |lab, n| lab.ours(&format!("n{n}"), "p", "one"))
}

/// The first decision starts the timers; the one after eleven minutes is the answer.
fn later(mut lab: Lab) -> Decision {
    let first = lab.turn();
    assert_eq!(
        removed(&first),
        Vec::<String>::new(),
        "nothing goes at once"
    );
    lab.after(Span::minutes(11)).decide()
}

fn gone(lab: Lab) -> Vec<String> {
    removed(&later(lab))
}

fn why(decision: &Decision, node: &str) -> String {
    match &decision.report.nodes[node] {
        NodeVerdict::Kept { why, .. } => why.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn el_01_an_empty_node_goes_after_its_time() {
    let mut lab = nodes(1);
    lab.turn();
    let mut lab = lab.after(Span::minutes(11));
    let decision = lab.turn();
    assert_eq!(removed(&decision), ["n1"]);
    assert!(matches!(decision.plan[0].reason, Reason::Unneeded { .. }));
    assert_eq!(lab.decide().plan, [], "once begun there is nothing to add");
}

#[test]
fn el_02_a_node_that_is_leaving_is_not_decided_on_again() {
    let lab = nodes(1)
        .edit_machine("n1", |machine| machine.busy = Some(Busy::Down))
        .edit_node("n1", |node| {
            node.taints.push(Taint::no_schedule(LEAVING_TAINT, "0"));
        });
    assert_eq!(kept(&later(lab), "n1"), "leaving");
}

#[test]
fn el_04_el_05_utilisation_decides() {
    let with = |milli| {
        let lab = nodes(2)
            .bound("web", "n1", milli, 1)
            .bound("db", "n2", 900, 1);
        later(lab.node("other", 4000, 4096))
    };
    assert_eq!(kept(&with(600), "n1"), "NotUnderutilized");
    assert_eq!(kept(&with(501), "n1"), "NotUnderutilized");
    assert_eq!(removed(&with(500)), ["n1"]);
    assert_eq!(removed(&with(100)), ["n1"]);
    assert_eq!(
        why(&with(600), "n1"),
        "60.0 % of its cpu is requested, the threshold is 50.0 %"
    );
}

#[test]
fn el_07_an_unready_node_waits_longer() {
    let lab = nodes(1).edit_node("n1", |node| {
        node.ready.status = ReadyStatus::Unknown;
    });
    let mut lab = lab;
    lab.turn();
    let early = lab.clone().after(Span::minutes(19)).decide();
    assert_eq!(kept(&early, "n1"), "NotUnreadyLongEnough");
    let late = lab.after(Span::minutes(20)).decide();
    assert_eq!(removed(&late), ["n1"]);
    assert!(matches!(late.plan[0].reason, Reason::Unready { .. }));
}

#[test]
fn el_08_daemonset_pods_may_count_for_nothing() {
    let with = |ignore| {
        let lab = nodes(1)
            .bound("web", "n1", 100, 1)
            .bound("log", "n1", 500, 1)
            .shape("log", |shape| shape.owner = Some(owner("DaemonSet", "log")))
            .node("other", 4000, 4096);
        gone(lab.with(|lab| lab.policy.scale_down.ignore_daemonsets = ignore))
    };
    assert_eq!(with(true), ["n1"]);
    assert_eq!(with(false), Vec::<String>::new());
}

#[test]
fn annotations_and_switches_keep_nodes() {
    for (key, value) in [
        (
            "cluster-autoscaler.kubernetes.io/scale-down-disabled",
            "true",
        ),
        ("karpenter.sh/do-not-disrupt", "true"),
        ("karpenter.sh/do-not-disrupt", "48h"),
    ] {
        let lab = nodes(1).edit_node("n1", |node| {
            node.annotations.insert(key.into(), value.into());
        });
        assert_eq!(kept(&later(lab), "n1"), "ScaleDownDisabledAnnotation");
    }
    let pool_off = nodes(1).edit_pool("p", |pool| pool.scale_down_disabled = true);
    assert_eq!(kept(&later(pool_off), "n1"), "NotUnneededOtherReason");
    let off = nodes(1).with(|lab| lab.policy.scale_down.enabled = false);
    assert_eq!(kept(&later(off), "n1"), "NotUnneededOtherReason");
}

#[test]
fn ut_02_an_amount_that_is_not_reported_is_an_error() {
    let lab = nodes(1).edit_node("n1", |node| node.allocatable.memory = 0);
    let decision = later(lab);
    assert_eq!(kept(&decision, "n1"), "UnexpectedError");
    assert_eq!(
        why(&decision, "n1"),
        "the node reports no allocatable memory"
    );
}

#[test]
fn ut_07_pods_long_gone_do_not_count() {
    let lab = nodes(1).bound("web", "n1", 900, 1).edit("web", |pod| {
        pod.deletion = Some(pod.created - Span::minutes(10));
    });
    assert_eq!(gone(lab), ["n1"]);
}

#[test]
fn ut_08_gpus_decide_alone() {
    let gpu = |free: i64, used: i64| {
        nodes(0)
            .edit_kind("one", |kind| {
                kind.extended.insert("nvidia.com/gpu".into(), 1);
            })
            .ours("n1", "p", "one")
            .node("other", 4000, 4096)
            .edit_node("other", |node| {
                node.allocatable.extended.insert("nvidia.com/gpu".into(), 8);
            })
            .edit_node("n1", |node| {
                node.allocatable
                    .extended
                    .insert("nvidia.com/gpu".into(), free);
            })
            .bound("ml", "n1", 10, 1)
            .shape("ml", |shape| {
                shape
                    .requests
                    .extended
                    .insert("nvidia.com/gpu".into(), used);
            })
    };
    assert_eq!(kept(&later(gpu(1, 1)), "n1"), "NotUnderutilized");
    assert_eq!(gone(gpu(1, 0)), ["n1"]);
    assert_eq!(gone(gpu(0, 0)), ["n1"], "no GPU came up: none is used");
}

#[test]
fn pl_01_pl_04_pl_05_pods_need_another_place() {
    let mut lab = nodes(3);
    lab.policy.scale_down.max_parallel_drain = 10;
    assert_eq!(gone(lab), ["n1", "n2", "n3"]);
    // The other node is leaving: no place.
    let lab = nodes(2)
        .bound("web", "n1", 400, 1)
        .edit_machine("n2", |machine| machine.busy = Some(Busy::Down));
    assert_eq!(kept(&later(lab), "n1"), "NoPlaceToMovePods");
    // The other node is full.
    let lab = nodes(1).node("full", 300, 1024).bound("web", "n1", 400, 1);
    let decision = later(lab);
    assert_eq!(kept(&decision, "n1"), "NoPlaceToMovePods");
    assert!(
        why(&decision, "n1").contains("cpu: asks 0.4"),
        "{}",
        why(&decision, "n1")
    );
}

#[test]
fn pl_08_of_two_only_as_many_as_find_a_place() {
    // Each holds a pod of 400m; one can take the other's, not both can go.
    let lab = nodes(2).bound("a", "n1", 400, 1).bound("b", "n2", 400, 1);
    let decision = later(lab);
    assert_eq!(removed(&decision), ["n1"]);
    assert_eq!(kept(&decision, "n2"), "NoPlaceToMovePods");
}

#[test]
fn a_node_to_which_pods_move_stays_though_its_own_could_go() {
    // The pod of n1, which is judged first, finds memory on n2 alone; that of n2 would find room on the other node.
    let mut lab = nodes(2)
        .node("other", 500, 300)
        .bound("a", "n1", 300, 400)
        .bound("b", "n2", 400, 1);
    lab.policy.scale_down.max_parallel_drain = 10;
    let decision = later(lab);
    assert_eq!(removed(&decision), ["n1"]);
    assert!(
        why(&decision, "n2").contains("pods of other nodes will move here"),
        "{}",
        why(&decision, "n2")
    );
}

#[test]
fn empty_nodes_go_before_pods_are_moved() {
    let lab = nodes(2).bound("web", "n1", 400, 1);
    let decision = later(lab);
    assert_eq!(removed(&decision), ["n2"]);
    assert_eq!(kept(&decision, "n1"), "NoPlaceToMovePods");
}

#[test]
fn pl_14_room_that_pending_pods_will_take_is_not_given_twice() {
    let lab = nodes(1)
        .node("other", 500, 1024)
        .bound("web", "n1", 400, 1)
        .pod("new", 400, 1)
        .edit("new", |pod| pod.nominated = Some("other".into()));
    assert_eq!(kept(&later(lab), "n1"), "NoPlaceToMovePods");
}

#[test]
fn cn_11_a_node_that_comes_up_is_no_destination() {
    let lab = nodes(1)
        .bound("web", "n1", 400, 1)
        .machine("n9", "p", "one", Step::Initialize)
        .with(|lab| lab.register("n9", false))
        .edit_machine("n9", |machine| machine.busy = Some(Busy::Up));
    assert_eq!(kept(&later(lab), "n1"), "NoPlaceToMovePods");
}

#[test]
fn cn_11_a_node_that_is_not_ready_is_no_destination() {
    let lab = nodes(1)
        .bound("web", "n1", 400, 1)
        .node("other", 4000, 8192);
    assert_eq!(gone(lab.clone()), ["n1"]);
    // The node lifecycle controller has not put its taint there yet.
    let sick = lab.edit_node("other", |node| node.ready.status = ReadyStatus::False);
    assert_eq!(kept(&later(sick), "n1"), "NoPlaceToMovePods");
}

#[test]
fn cn_04_a_pod_without_a_compatible_pool_does_not_stop_removals() {
    assert_eq!(gone(nodes(1).pod("huge", 99_000, 1)), ["n1"]);
}

#[test]
fn ts_41_a_removed_node_is_no_domain_any_more() {
    let mut lab = nodes(0);
    for n in 1..=3 {
        let (node, pod) = (format!("n{n}"), format!("web-{n}"));
        lab = lab.ours(&node, "p", "one").bound(&pod, &node, 100, 1);
    }
    let lab = lab.shapes("web", |shape| {
        shape.spread.push(model::scheduling::SpreadConstraint {
            max_skew: 1,
            topology_key: "kubernetes.io/hostname".into(),
            hard: true,
            selector: Some(model::scheduling::LabelSelector {
                labels: [("app".into(), "web".into())].into(),
                ..Default::default()
            }),
            min_domains: Some(2),
            match_label_keys: Vec::new(),
            honor_affinity: true,
            honor_taints: false,
        });
    });
    assert_eq!(gone(lab), ["n1"]);
}

#[test]
fn il_28_expendable_pods_need_no_place() {
    let lab = nodes(1)
        .bound("batch", "n1", 900, 1)
        .shape("batch", |shape| shape.priority = -11);
    assert_eq!(gone(lab), ["n1"]);
}

#[test]
fn un_01_un_02_timers_run_without_a_gap() {
    let mut lab = nodes(1).node("other", 4000, 4096);
    let start = lab.now;
    lab.turn();
    let mut lab = lab.after(Span::minutes(9));
    lab.turn();
    assert_eq!(
        lab.memory.unneeded_since["n1"], start,
        "the oldest time wins"
    );
    let mut used = lab.clone().after(Span(500)).bound("web", "n1", 900, 1);
    used.turn();
    assert!(used.memory.unneeded_since.is_empty());
    used.snapshot.cluster.pods.clear();
    let mut used = used.after(Span::minutes(2));
    let decision = used.turn();
    assert_eq!(kept(&decision, "n1"), "NotUnneededLongEnough");
    assert_eq!(decision.wake, Some(used.now + Span::minutes(10)));
}

#[test]
fn un_04_not_long_enough_with_numbers() {
    let mut lab = nodes(1);
    lab.turn();
    let lab = lab.after(Span::minutes(5));
    let decision = lab.decide();
    assert_eq!(kept(&decision, "n1"), "NotUnneededLongEnough");
    assert!(why(&decision, "n1").ends_with("that is 5m of 10m"));
    assert_eq!(decision.wake, Some(lab.now + Span::minutes(5)));
}

#[test]
fn un_08_nodes_of_others_stay() {
    let decision = later(
        lab()
            .kind("one", 1, 1)
            .pool("p", &["one"])
            .node("old", 1000, 1024),
    );
    assert_eq!(kept(&decision, "old"), "NotAutoscaled");
}

#[test]
fn delays_after_additions_deletions_failures_and_creations() {
    let ready = || {
        let mut lab = nodes(1);
        lab.turn();
        lab.after(Span::minutes(11))
    };
    assert_eq!(removed(&ready().decide()), ["n1"]);
    let minute = Span::minutes(1);
    let added = ready().with(|lab| lab.memory.last_scale_up = Some(lab.now - minute));
    assert_eq!(kept(&added.decide(), "n1"), "NotUnneededOtherReason");
    assert!(removed(&added.after(Span::minutes(9)).decide()).len() == 1);
    let deleted = ready().with(|lab| {
        lab.policy.scale_down.delay_after_delete = Span::minutes(2);
        lab.memory.last_scale_down = Some(lab.now - minute);
    });
    assert_eq!(kept(&deleted.decide(), "n1"), "NotUnneededOtherReason");
    let failed = ready()
        .ours("n2", "p", "one")
        .edit_machine("n2", |machine| {
            machine.failure = Some(Failure {
                advice: None,
                step: Step::Drain,
                message: "429".into(),
                at: machine.mark.created + Span::minutes(24 * 60),
                transient: false,
                host: None,
            });
        });
    let decision = failed.decide();
    assert_eq!(kept(&decision, "n1"), "NotUnneededOtherReason");
    assert!(why(&decision, "n1").contains("failed deletion"));
    // Right after a first start or a restore nothing has failed that anybody knows of: it said "after a failed deletion".
    let new = ready().with(|lab| lab.memory.began = Some(lab.now - minute));
    let decision = new.decide();
    assert_eq!(kept(&decision, "n1"), "NotUnneededOtherReason");
    let words = why(&decision, "n1");
    assert!(
        words.contains("after the daemon began to remember"),
        "{words}"
    );
    let young = ready().with(|lab| {
        let node = lab.snapshot.cluster.nodes.get_mut("n1").expect("n1");
        node.created = lab.now - minute;
        lab.policy.scale_down.delay_after_add = Span::ZERO;
    });
    assert_eq!(kept(&young.decide(), "n1"), "NotUnneededOtherReason");
}

#[test]
fn a_lost_memory_delays_and_never_hastens() {
    let mut lab = nodes(1);
    lab.turn();
    let lab = lab.after(Span::minutes(11));
    assert_eq!(removed(&lab.decide()), ["n1"]);
    let mut lost = lab.with(|lab| lab.memory = model::memory::Memory::default());
    assert_eq!(removed(&lost.turn()), Vec::<String>::new());
    let lost = lost.after(Span::minutes(9));
    assert_eq!(removed(&lost.decide()), Vec::<String>::new());
    assert_eq!(removed(&lost.after(Span::minutes(1)).decide()), ["n1"]);
}

#[test]
fn a_clock_set_back_delays_and_never_hastens() {
    let mut lab = nodes(1);
    lab.turn();
    let mut back = lab.after(Span::minutes(-60));
    let decision = back.turn();
    assert!(
        decision.report.holds[0]
            .why
            .to_string()
            .contains("set back")
    );
    let mut back = back.after(Span::minutes(1));
    assert_eq!(back.turn().report.holds, []);
    assert_eq!(
        removed(&back.clone().after(Span::minutes(8)).decide()),
        Vec::<String>::new()
    );
    assert_eq!(removed(&back.after(Span::minutes(10)).decide()), ["n1"]);
}

#[test]
fn pool_min_is_kept() {
    let lab = nodes(3).edit_pool("p", |pool| pool.min = 2);
    let decision = later(lab);
    assert_eq!(removed(&decision), ["n1"]);
    assert_eq!(kept(&decision, "n2"), "NodeGroupMinSizeReached");
}

/// How many of `empty` empty nodes and `drain` nodes with a pod go, with so many of either under way.
fn budget(empty: usize, drain: usize, under_way: (usize, usize)) -> (usize, usize) {
    let mut lab = pool().node("big", 1_000_000, 1_000_000);
    lab.policy.scale_down.max_parallel_drain = 5;
    // So many nodes at once must not look like trouble.
    let ours = |lab: Lab, name: &str, pod: bool, leaving: bool| {
        let mut lab = lab.ours(name, "p", "one");
        if pod {
            lab = lab.bound(&format!("pod-{name}"), name, 100, 1);
        }
        if leaving {
            lab = lab
                .edit_machine(name, |machine| machine.busy = Some(Busy::Down))
                .edit_node(name, |node| {
                    node.taints.push(Taint::no_schedule(LEAVING_TAINT, "0"));
                });
        }
        lab
    };
    for n in 0..empty {
        lab = ours(lab, &format!("e{n:02}"), false, false);
    }
    for n in 0..drain {
        lab = ours(lab, &format!("d{n:02}"), true, false);
    }
    for n in 0..under_way.0 {
        lab = ours(lab, &format!("le{n:02}"), false, true);
    }
    for n in 0..under_way.1 {
        lab = ours(lab, &format!("ld{n:02}"), true, true);
    }
    let gone = gone(lab);
    let drained = gone.iter().filter(|name| name.starts_with('d')).count();
    (gone.len() - drained, drained)
}

#[test]
fn bu_how_many_at_once() {
    assert_eq!(budget(10, 0, (0, 0)), (10, 0), "BU-01");
    assert_eq!(budget(11, 0, (0, 0)), (10, 0), "BU-02");
    assert_eq!(budget(10, 0, (1, 1)), (8, 0), "BU-04");
    assert_eq!(budget(10, 0, (5, 5)), (0, 0), "BU-05");
    assert_eq!(budget(0, 6, (0, 0)), (0, 5), "BU-07");
    assert_eq!(budget(0, 5, (1, 2)), (0, 3), "BU-08");
    assert_eq!(budget(0, 4, (7, 1)), (0, 2), "BU-10");
    assert_eq!(budget(5, 5, (0, 0)), (5, 5), "BU-11");
    assert_eq!(budget(8, 8, (0, 0)), (8, 2), "BU-12");
    assert_eq!(budget(10, 10, (50, 0)), (0, 0), "BU-14");
}

#[test]
fn the_removal_names_its_pods_and_where_they_land() {
    let lab = nodes(1)
        .bound("web", "n1", 100, 1)
        .bound("log", "n1", 10, 1)
        .shape("log", |shape| shape.owner = Some(owner("DaemonSet", "log")))
        .node("other", 4000, 4096);
    let decision = later(lab);
    let precondition = &decision.plan[0].precondition;
    let names: Vec<String> = precondition.pods.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["default/web"]);
    assert_eq!(&*precondition.landing[&precondition.pods[0]], "other");
}

/// A drain that a crash interrupted.
pub(super) fn interrupted() -> Lab {
    let mut lab = nodes(1)
        .bound("web", "n1", 100, 1)
        .node("other", 4000, 4096);
    lab.turn();
    let now = lab.now + Span::minutes(11);
    lab.after(Span::minutes(11))
        .edit_machine("n1", |machine| machine.step = Some((Step::Drain, now)))
        .edit_node("n1", |node| {
            node.taints.push(Taint::no_schedule(LEAVING_TAINT, "0"));
            node.unschedulable = true;
        })
}

#[test]
fn nx_07_an_interrupted_drain_goes_on() {
    let decision = interrupted().decide();
    assert_eq!(removed(&decision), ["n1"]);
    assert_eq!(decision.plan.len(), 1);
}

#[test]
fn cn_40_what_is_not_wanted_any_more_is_released() {
    let busy = interrupted().bound("more", "n1", 800, 1);
    let decision = busy.decide();
    assert_eq!(decision.plan.len(), 1);
    assert_eq!(decision.plan[0].kind, Kind::Release);
    let mut busy = busy;
    busy.turn();
    assert!(busy.decide().plan.is_empty());
    // With the memory lost it is not known to be unneeded: rather released than drained.
    let lost = interrupted().with(|lab| lab.memory = model::memory::Memory::default());
    assert_eq!(lost.decide().plan[0].kind, Kind::Release);
    // What cannot come back goes on.
    let shut = busy.with(|_| {});
    let now = shut.now;
    let shut = shut.edit_machine("n1", |machine| {
        machine.busy = None;
        machine.step = Some((Step::Shutdown, now));
    });
    assert_eq!(removed(&shut.decide()), ["n1"]);
}

#[test]
fn in_a_steady_state_nothing_happens_for_an_hour() {
    let mut lab = nodes(2)
        .bound("web-1", "n1", 600, 1)
        .bound("web-2", "n2", 700, 1);
    for _ in 0..60 {
        assert!(lab.turn().plan.is_empty());
        lab = lab.after(Span::minutes(1));
    }
}

#[test]
fn ended_pods_are_no_load() {
    let lab = nodes(1)
        .bound("job", "n1", 900, 1)
        .edit("job", |pod| pod.phase = Phase::Succeeded);
    assert_eq!(gone(lab), ["n1"]);
}
