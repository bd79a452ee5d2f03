//! Consolidation: nodes that go because their pods do well elsewhere, and nodes that a cheaper machine
//! takes the place of.

use std::sync::Arc;

use super::lab::{Lab, kept, lab, made, owner, removed};
use crate::model::action::{Kind, Reason};
use crate::model::cluster::{DisruptionBudget, Phase, PodKey, ReadyStatus};
use crate::model::decision::Decision;
use crate::model::disruption::{
    Cause, Consolidation, ConsolidationPolicy, NodeBudget, Saving, Share, Window,
};
use crate::model::policy::LEAVING_TAINT;
use crate::model::region::{Busy, Failure, Step};
use crate::model::report::NodeVerdict;
use crate::model::scheduling::{LabelSelector, SpreadConstraint, Taint};
use crate::model::time::Span;

/// A second look is due after this.
const LOOK: Span = Span::seconds(15);
const ZONE: &str = "topology.kubernetes.io/zone";

/// Types of 2, 4 and 8 cores at 100, 200 and 300 an hour, and the pool `c` of them that is consolidated
/// when underused, at once, for any saving.
pub(super) fn consolidated() -> Lab {
    let mut lab = lab();
    for (name, cores, price) in [("s", 2, 100), ("m", 4, 200), ("l", 8, 300)] {
        lab = lab
            .kind(name, cores, i64::from(cores) * 4096)
            .edit_kind(name, |kind| kind.price = Some(price));
    }
    lab.pool("c", &["s", "m", "l"])
        .edit_pool("c", |pool| pool.consolidation = Some(underused()))
}

fn underused() -> Consolidation {
    Consolidation {
        policy: ConsolidationPolicy::WhenUnderused,
        after: Span::ZERO,
        min_saving: Saving::default(),
    }
}

fn how(lab: Lab, change: impl FnOnce(&mut Consolidation)) -> Lab {
    lab.edit_pool("c", |pool| {
        change(pool.consolidation.as_mut().expect("consolidated"));
    })
}

/// The decision after the second look.
fn looked(mut lab: Lab) -> Decision {
    let first = lab.turn();
    assert_eq!(first.plan, [], "nothing is done at once");
    lab.after(LOOK).decide()
}

fn nothing(lab: Lab) -> Decision {
    let decision = looked(lab);
    assert_eq!(decision.plan, []);
    decision
}

/// Pods of the nodes that a plan takes down stand where they were to land.
pub(super) fn land(lab: &mut Lab, decision: &Decision) {
    for action in &decision.plan {
        if !matches!(action.kind, Kind::Remove { .. }) {
            continue;
        }
        for (key, to) in &action.precondition.landing {
            if let Some(pod) = lab.snapshot.cluster.pods.get_mut(key) {
                pod.node = Some(to.clone());
                // A successor of the same name.
                pod.uid = format!("{}'", pod.uid).into();
                pod.created = lab.now;
            }
        }
    }
}

#[test]
fn cn_01_cn_14_the_node_with_the_fewest_pods_goes() {
    for kind in ["m", "s"] {
        let lab = consolidated()
            .ours("n1", "c", kind)
            .ours("n2", "c", kind)
            .bound("a", "n1", 100, 1)
            .bound("b", "n1", 100, 1)
            .bound("c", "n2", 100, 1);
        let decision = looked(lab);
        assert_eq!(removed(&decision), ["n2"], "{kind}");
        assert_eq!(decision.plan.len(), 1, "nothing is made");
        assert!(matches!(
            decision.plan[0].reason,
            Reason::Consolidated { .. }
        ));
        match &decision.report.nodes["n2"] {
            NodeVerdict::Leaving { moves, .. } => {
                assert_eq!(&*moves[&PodKey::new("default", "c")], "n1");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A node of eight cores that does next to nothing.
fn dear() -> Lab {
    consolidated()
        .ours("n1", "c", "l")
        .bound("web", "n1", 500, 1)
}

/// The machine that a plan makes in place of nodes.
fn maker(decision: &Decision) -> Arc<str> {
    let action = decision.plan.first().expect("a plan");
    assert!(
        matches!(action.reason, Reason::Replaces { .. }),
        "{action:?}"
    );
    action.target.machine.clone()
}

#[test]
fn cn_02_a_cheaper_machine_takes_the_place_of_a_node() {
    let mut lab = dear();
    assert_eq!(lab.turn().plan, []);
    let mut lab = lab.after(LOOK);
    let decision = lab.turn();
    assert_eq!(made(&decision), ["s"], "the cheapest that holds the pod");
    let machine = maker(&decision);
    let Reason::Replaces {
        nodes,
        pods,
        saving,
    } = &decision.plan[0].reason
    else {
        panic!("just seen");
    };
    assert_eq!(
        (&nodes[..], &pods[..], *saving),
        (
            &["n1".into()][..],
            &[PodKey::new("default", "web")][..],
            200
        )
    );
    match &decision.report.nodes["n1"] {
        NodeVerdict::Replaced { by, others, .. } => {
            assert_eq!(*by, machine);
            assert_eq!(others["c/m"], "another is cheaper");
        }
        other => panic!("{other:?}"),
    }
    // The old node stays until the new one works.
    let mut lab = lab.after(Span::minutes(2));
    assert_eq!(lab.turn().plan, []);
    assert_eq!(kept(&lab.decide(), "n1"), "replaced");
    lab.settle();
    let decision = lab.turn();
    assert_eq!(removed(&decision), ["n1"]);
    let removal = &decision.plan[0];
    assert_eq!(
        removal.reason,
        Reason::Replaced {
            by: machine.clone(),
            saving: 200
        }
    );
    assert_eq!(
        removal.precondition.landing[&PodKey::new("default", "web")],
        machine
    );
    land(&mut lab, &decision);
    lab.settle();
    for _ in 0..30 {
        lab = lab.after(Span::minutes(1));
        assert_eq!(lab.turn().plan, [], "nothing is left to do");
    }
    assert!(lab.memory.replacements.is_empty());
    let names: Vec<_> = lab.snapshot.machines.keys().collect();
    assert_eq!(names, [&machine]);
}

#[test]
fn several_nodes_are_replaced_by_one() {
    let mut lab = consolidated()
        .ours("n1", "c", "m")
        .ours("n2", "c", "m")
        .bound("a", "n1", 3000, 1)
        .bound("b", "n2", 3000, 1);
    lab.turn();
    let mut lab = lab.after(LOOK);
    let decision = lab.turn();
    assert_eq!(made(&decision), ["l"]);
    let machine = maker(&decision);
    lab.settle();
    let mut lab = lab.after(Span::minutes(2));
    let mut gone = Vec::new();
    for _ in 0..2 {
        let decision = lab.turn();
        assert_eq!(decision.plan.len(), 1, "one drain at a time");
        gone.extend(removed(&decision));
        land(&mut lab, &decision);
        lab.settle();
    }
    assert_eq!(gone, ["n1", "n2"]);
    let names: Vec<_> = lab.snapshot.machines.keys().collect();
    assert_eq!(names, [&machine]);
}

#[test]
fn when_one_of_several_cannot_go_none_goes() {
    let mut lab = consolidated()
        .ours("n1", "c", "m")
        .ours("n2", "c", "m")
        .bound("a", "n1", 3000, 1)
        .bound("b", "n2", 3000, 1);
    lab.turn();
    let mut lab = lab.after(LOOK);
    lab.turn();
    lab.settle();
    let lab = lab.after(Span::minutes(2)).budget("held", "b", 0);
    let decision = lab.decide();
    assert_eq!(removed(&decision), Vec::<String>::new());
    assert_eq!(kept(&decision, "n2"), "NotEnoughPdb");
    assert_eq!(kept(&decision, "n1"), "NotUnneededOtherReason");
}

#[test]
fn cn_04_a_pod_that_waits_for_ever_does_not_block() {
    let lab = dear().pod("huge", 99_000, 1);
    assert_eq!(made(&looked(lab)), ["s"]);
}

#[test]
fn cn_05_a_pod_without_controller_blocks_all_the_same() {
    // We decide against the scenario: nobody would make the pod anew.
    let lab = dear().shape("web", |shape| shape.owner = None);
    assert_eq!(kept(&nothing(lab), "n1"), "NotReplicated");
}

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
        .insert(PodKey::new("other", "b"), budget);
    assert_eq!(made(&looked(lab)), ["s"], "CN-07: of another namespace");
    let two = dear().budget("a", "web", 9).budget("b", "web", 9);
    assert_eq!(kept(&nothing(two), "n1"), "NotEnoughPdb", "CN-28");
}

fn do_not_disrupt(lab: Lab, pod: &str) -> Lab {
    lab.shape(pod, |shape| {
        shape
            .annotations
            .insert("karpenter.sh/do-not-disrupt".into(), "true".into());
    })
}

#[test]
fn cn_08_cn_25_do_not_disrupt() {
    let pod = do_not_disrupt(dear(), "web");
    assert_eq!(kept(&nothing(pod), "n1"), "NotSafeToEvictAnnotation");
    let node = dear().edit_node("n1", |node| {
        node.annotations
            .insert("karpenter.sh/do-not-disrupt".into(), "true".into());
    });
    assert_eq!(kept(&nothing(node), "n1"), "ScaleDownDisabledAnnotation");
    let ended = do_not_disrupt(dear().bound("job", "n1", 1, 1), "job")
        .edit("job", |pod| pod.phase = Phase::Succeeded);
    assert_eq!(made(&looked(ended)), ["s"]);
    let ending = do_not_disrupt(dear().bound("old", "n1", 1, 1), "old").edit("old", |pod| {
        pod.deletion = Some(pod.created + Span::seconds(30));
    });
    assert_eq!(made(&looked(ending)), ["s"]);
}

#[test]
fn cn_27_pods_of_daemonsets_and_static_pods() {
    let with = |change: fn(&mut crate::model::cluster::Pod)| {
        dear()
            .bound("agent", "n1", 1, 1)
            .edit("agent", change)
            .budget("b", "agent", 0)
    };
    let mirror = with(|pod| pod.mirror = true);
    assert_eq!(made(&looked(mirror)), ["s"]);
    let daemon =
        with(|pod| Arc::make_mut(&mut pod.shape).owner = Some(owner("DaemonSet", "agent")));
    assert_eq!(kept(&nothing(daemon.clone()), "n1"), "NotEnoughPdb");
    // A pool that is not consolidated goes by cluster-autoscaler's rules: DR-04.
    let mut usual = daemon
        .edit_pool("c", |pool| pool.consolidation = None)
        .node("other", 4000, 4096);
    usual.turn();
    assert_eq!(removed(&usual.after(Span::minutes(11)).decide()), ["n1"]);
}

#[test]
fn cn_11_cn_12_nodes_that_are_no_destination() {
    let coming = consolidated()
        .ours("n1", "c", "s")
        .bound("web", "n1", 500, 1)
        .machine("n9", "c", "s", Step::Initialize)
        .with(|lab| lab.register("n9", false))
        .edit_machine("n9", |machine| machine.busy = Some(Busy::Up));
    nothing(coming);
    let restless = how(
        consolidated()
            .ours("n1", "c", "s")
            .ours("n2", "c", "s")
            .bound("web", "n1", 500, 1)
            .bound("db", "n2", 1000, 1),
        |how| how.after = Span::minutes(5),
    );
    let mut lab = restless;
    lab.turn();
    let mut lab = lab.after(Span::minutes(4)).bound("new", "n2", 100, 1);
    lab.turn();
    let mut lab = lab.after(Span::minutes(1));
    assert_eq!(lab.turn().plan, [], "n2 is in its own window");
    assert_eq!(kept(&lab.decide(), "n1"), "NoPlaceToMovePods");
    let mut lab = lab.after(Span::minutes(4));
    lab.turn();
    assert_eq!(removed(&lab.after(LOOK).decide()), ["n1"]);
}

#[test]
fn cn_15_the_replacement_is_in_the_zone_of_the_node() {
    let mut lab = consolidated();
    for (n, (kind, host)) in [("s", "pve1"), ("l", "pve2"), ("s", "pve3")]
        .iter()
        .enumerate()
    {
        let node = format!("n{n}");
        lab = lab
            .ours(&node, "c", kind)
            .edit_machine(&node, |machine| machine.host = (*host).into())
            .edit_node(&node, |node| {
                node.labels.insert(ZONE.into(), (*host).into());
            })
            .with(|lab| {
                let vmid = lab.snapshot.machines[node.as_str()].mark.vmid;
                let region = lab.snapshot.regions.get_mut("home").expect("home");
                region.vms.get_mut(&vmid).expect("a VM").host = (*host).into();
            })
            .bound(&format!("web-{n}"), &node, 900, 1);
    }
    let lab = lab.shapes("web", |shape| {
        shape.spread.push(SpreadConstraint {
            max_skew: 1,
            topology_key: ZONE.into(),
            hard: true,
            selector: Some(LabelSelector {
                labels: [("app".into(), "web".into())].into(),
                ..LabelSelector::default()
            }),
            min_domains: None,
            match_label_keys: Vec::new(),
            honor_affinity: true,
            honor_taints: false,
        });
    });
    let decision = looked(lab);
    assert_eq!(removed(&decision), Vec::<String>::new());
    assert_eq!(made(&decision), ["s"]);
    assert_eq!(&*decision.plan[0].target.host, "pve2");
}

#[test]
fn cn_17_not_before_the_pods_have_been_the_same_for_long_enough() {
    let mut lab = how(dear(), |how| how.after = Span::minutes(5));
    let start = lab.now;
    lab.turn();
    let mut lab = lab.after(Span::minutes(4));
    let early = lab.turn();
    assert_eq!(early.plan, []);
    assert_eq!(early.wake, Some(start + Span::minutes(5)));
    // A pod comes: the time starts anew.
    let mut lab = lab.bound("web-2", "n1", 100, 1);
    lab.turn();
    let mut lab = lab.after(Span::minutes(4));
    assert_eq!(lab.turn().plan, []);
    let mut lab = lab.after(Span::minutes(1));
    assert_eq!(lab.turn().plan, []);
    assert_eq!(made(&lab.after(LOOK).decide()), ["s"]);
}

/// Ten empty nodes under these budgets.
fn empties(budgets: Vec<NodeBudget>) -> Lab {
    (0..10)
        .fold(consolidated(), |lab, n| {
            lab.ours(&format!("n{n}"), "c", "s")
        })
        .edit_pool("c", |pool| pool.budgets = budgets)
}

fn at_most(nodes: Share) -> NodeBudget {
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

#[test]
fn cn_20_cn_21_cn_22_what_changes_before_the_second_look_is_looked_at_anew() {
    let mut lab = dear();
    lab.turn();
    let lab = lab.after(LOOK);
    assert_eq!(made(&lab.decide()), ["s"]);
    let none: [String; 0] = [];
    let mut came = lab.clone().bound("new", "n1", 100, 1);
    assert_eq!(made(&came.turn()), none, "CN-20");
    assert_eq!(made(&came.after(LOOK).decide()), ["s"]);
    let guarded = do_not_disrupt(lab.clone(), "web");
    assert_eq!(made(&guarded.decide()), none, "CN-21");
    let budget = lab.clone().budget("b", "web", 0);
    assert_eq!(made(&budget.decide()), none, "CN-21");
    let mut dearer = lab.edit_pool("c", |pool| {
        pool.instance_types.retain(|kind| &**kind != "s");
    });
    assert_eq!(made(&dearer.turn()), none, "CN-22");
    assert_eq!(made(&dearer.after(LOOK).decide()), ["m"]);
}

#[test]
fn cn_24_what_is_no_candidate() {
    let leaving = dear().edit_node("n1", |node| {
        node.taints.push(Taint::no_schedule(LEAVING_TAINT, "0"));
    });
    let mut leaving = leaving.edit_machine("n1", |machine| machine.busy = Some(Busy::Down));
    leaving.turn();
    leaving.settle();
    let decision = leaving.after(LOOK).decide();
    assert_eq!(
        decision.plan,
        [],
        "its pods got a machine as pending ones do"
    );
    let others = consolidated()
        .node("theirs", 8000, 8192)
        .bound("web", "theirs", 100, 1);
    nothing(others);
    let mut gone = dear();
    gone.policy.pools.clear();
    nothing(gone);
    let failed = dear().edit_machine("n1", |machine| {
        machine.failure = Some(Failure {
            step: Step::Drain,
            message: "429".into(),
            at: machine.mark.created,
            transient: false,
        });
    });
    nothing(failed);
}

#[test]
fn cn_30_terminating_pods() {
    let ending = |kind: &str| {
        let kind = kind.to_owned();
        how(
            consolidated()
                .ours("n1", "c", "s")
                .bound("web", "n1", 100, 1)
                .edit("web", |pod| {
                    pod.deletion = Some(pod.created + Span::minutes(5));
                })
                .shape("web", |shape| shape.owner = Some(owner(&kind, "web"))),
            |how| how.policy = ConsolidationPolicy::WhenEmpty,
        )
    };
    assert_eq!(removed(&looked(ending("ReplicaSet"))), ["n1"]);
    nothing(ending("StatefulSet"));
}

#[test]
fn cn_32_what_saves_too_little_is_left() {
    nothing(dear().edit_pool("c", |pool| pool.instance_types = vec!["l".into()]));
    nothing(
        dear()
            .edit_kind("s", |kind| kind.price = Some(300))
            .edit_kind("m", |kind| kind.price = Some(300)),
    );
    let wanting = |permille, price| how(dear(), |how| how.min_saving = Saving { permille, price });
    assert_eq!(made(&looked(wanting(666, 0))), ["s"]);
    nothing(wanting(667, 0));
    assert_eq!(made(&looked(wanting(0, 200))), ["s"]);
    nothing(wanting(0, 201));
}

#[test]
fn cn_34_the_best_price_for_its_evictions_comes_first() {
    let mut lab = consolidated()
        .ours("a", "c", "m")
        .ours("b", "c", "l")
        .bound("one", "a", 100, 1);
    for n in 0..9 {
        lab = lab.bound(&format!("many-{n}"), "b", 100, 1);
    }
    // a: 200 for one eviction; b: 300 for nine. Both find a place elsewhere, not both may drain.
    let lab = lab.node("other", 2000, 4096);
    assert_eq!(removed(&looked(lab.clone())), ["a"]);
    let few = lab.with(|lab| {
        lab.snapshot
            .cluster
            .pods
            .retain(|key, _| !key.name.starts_with("many") || &*key.name == "many-0");
    });
    assert_eq!(removed(&looked(few)), ["b"]);
}

#[test]
fn cn_37_when_the_replacement_fails_the_node_stays() {
    let mut lab = dear();
    lab.turn();
    let mut lab = lab.after(LOOK);
    let machine = maker(&lab.turn());
    let at = lab.now;
    let mut lab = lab
        .after(Span::minutes(1))
        .edit_machine(&machine, |machine| {
            machine.busy = None;
            machine.failure = Some(Failure {
                step: Step::Join,
                message: "no".into(),
                at,
                transient: false,
            });
        });
    for _ in 0..60 {
        let decision = lab.turn();
        assert!(!removed(&decision).contains(&"n1".to_owned()));
        assert_eq!(
            made(&decision),
            Vec::<String>::new(),
            "not tried again soon"
        );
        lab.settle();
        lab = lab.after(Span::minutes(5));
    }
    let node = &lab.snapshot.cluster.nodes["n1"];
    assert!(!node.unschedulable && node.taints.is_empty());
    // Six hours later it is tried once more.
    let mut lab = lab.after(Span::minutes(6 * 60));
    lab.turn();
    assert_eq!(made(&lab.after(LOOK).decide()), ["s"]);
}

#[test]
fn a_replacement_that_is_not_used_in_time_is_given_up() {
    let mut lab = dear();
    lab.turn();
    let mut lab = lab.after(LOOK);
    let machine = maker(&lab.turn());
    lab.settle();
    let mut lab = do_not_disrupt(lab, "web").after(Span::minutes(5));
    let held = lab.turn();
    assert_eq!(kept(&held, "n1"), "NotSafeToEvictAnnotation");
    assert_eq!(kept(&held, &machine), "NotUnneededOtherReason");
    let mut lab = lab.after(Span::minutes(45));
    lab.turn();
    assert!(lab.memory.replacements.is_empty());
    let decision = lab.after(LOOK).decide();
    assert_eq!(removed(&decision), [machine.to_string()], "it is empty");
}

#[test]
fn losing_the_memory_delays_and_never_hastens() {
    let mut lab = dear();
    lab.turn();
    let mut lab = lab.after(LOOK);
    lab.turn();
    lab.settle();
    let mut lab = lab.after(Span::minutes(2));
    assert_eq!(removed(&lab.decide()), ["n1"]);
    lab.memory = crate::model::memory::Memory::default();
    for _ in 0..9 {
        assert_eq!(lab.turn().plan, []);
        lab = lab.after(Span::minutes(1));
    }
}

#[test]
fn policies_and_their_default() {
    let never = how(dear(), |how| how.policy = ConsolidationPolicy::Never);
    let decision = nothing(never);
    assert_eq!(kept(&decision, "n1"), "NotUnneededOtherReason");
    let empty = how(dear().ours("n2", "c", "s"), |how| {
        how.policy = ConsolidationPolicy::WhenEmpty;
    });
    let decision = looked(empty);
    assert_eq!(removed(&decision), ["n2"]);
    assert_eq!(kept(&decision, "n1"), "NotUnneededOtherReason");
    // Without a policy nothing is replaced, and half full nodes stay.
    let mut usual = dear()
        .bound("more", "n1", 4000, 1)
        .edit_pool("c", |pool| pool.consolidation = None);
    for _ in 0..40 {
        assert_eq!(usual.turn().plan, []);
        usual = usual.after(Span::minutes(1));
    }
}

#[test]
fn heavier_pools_are_not_left_for_lighter_ones_and_floors_hold() {
    let other = |weight| {
        dear()
            .edit_pool("c", |pool| {
                pool.instance_types = vec!["l".into()];
                pool.weight = 5;
            })
            .pool("d", &["s"])
            .edit_pool("d", |pool| pool.weight = weight)
    };
    assert_eq!(made(&looked(other(5))), ["s"]);
    nothing(other(4));
    nothing(other(5).edit_pool("c", |pool| pool.min = 1));
    nothing(dear().with(|lab| lab.policy.totals.min_cpu_milli = 8000));
    nothing(dear().edit_pool("c", |pool| pool.max = 1));
    nothing(dear().edit_pool("c", |pool| {
        pool.budgets = vec![at_most(Share::Nodes(0))];
    }));
    let young = dear().edit_node("n1", |node| {
        node.created = node.created + Span::minutes(1439);
    });
    nothing(young);
}

#[test]
fn what_scale_up_makes_comes_first() {
    // A pod calls for a machine: no replacement in the same breath, and the room is used.
    let mut lab = dear();
    lab.turn();
    let lab = lab.after(LOOK).pod("big", 7900, 1);
    let decision = lab.decide();
    assert_eq!(made(&decision), ["l"]);
    assert!(matches!(
        decision.plan[0].reason,
        Reason::PendingPods { .. }
    ));
}
