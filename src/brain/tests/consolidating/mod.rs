//! Consolidation: nodes that go because their pods do well elsewhere, and nodes that a cheaper machine
//! takes the place of.

mod bars;
mod budgets;
mod prices;

use std::sync::Arc;

use bars::do_not_disrupt;
use budgets::at_most;

use super::lab::{Lab, kept, lab, made, removed};
use model::action::{Kind, Reason};
use model::cluster::ObjectKey;
use model::decision::Decision;
use model::disruption::{Consolidation, ConsolidationPolicy, Saving, Share};
use model::policy::POOL_LABEL;
use model::region::{Failure, Step};
use model::report::NodeVerdict;

use model::scheduling::{LabelSelector, PodShape, PodTerm, SpreadConstraint};
use model::time::Span;

/// A second look is due after this.
const LOOK: Span = Span::seconds(15);
const HOSTNAME: &str = "kubernetes.io/hostname";
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

/// Pods of the app `web` are spread over zones, `skew` at most.
fn spread_over_zones(shape: &mut PodShape, skew: i32) {
    shape.spread.push(SpreadConstraint {
        max_skew: skew,
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
                assert_eq!(&*moves[&ObjectKey::new("default", "c")], "n1");
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
fn a_replacement_is_made_by_no_older_view_than_a_removal() {
    for (up, down) in [(5, 2), (2, 5)] {
        let mut lab = dear().with(|lab| {
            lab.policy.scale_up.max_view_age = Span::minutes(up);
            lab.policy.scale_down.max_view_age = Span::minutes(down);
        });
        lab.turn();
        let decision = lab.after(LOOK).decide();
        maker(&decision);
        let age = decision.plan[0].precondition.max_view_age;
        assert_eq!(age, Span::minutes(2), "{up} {down}");
    }
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
            &[ObjectKey::new("default", "web")][..],
            200
        )
    );
    match &decision.report.nodes["n1"] {
        NodeVerdict::Replaced { by, others, .. } => {
            assert_eq!(*by, machine);
            assert_eq!(others["c/m"].to_string(), "another is cheaper");
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
            saving: 200,
            others: Vec::new(),
            gone: Vec::new(),
        }
    );
    assert_eq!(
        removal.precondition.landing[&ObjectKey::new("default", "web")],
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
fn no_more_replacements_are_under_way_than_drains_may_be() {
    for (most, expected) in [(1, 0), (2, 1)] {
        let mut lab = dear().pool("d", &["s", "m", "l"]).edit_pool("d", |pool| {
            pool.consolidation = Some(underused());
        });
        lab.policy.scale_down.max_parallel_drain = most;
        lab.turn();
        let mut lab = lab.after(LOOK);
        assert_eq!(made(&lab.turn()), ["s"]);
        // While that one is made a node of another pool becomes dear. Its pod may be on no other pool's.
        let mut lab = lab
            .ours("n2", "d", "l")
            .bound("db", "n2", 500, 1)
            .shape("db", |shape| {
                shape.node_selector.insert(POOL_LABEL.into(), "d".into());
            });
        assert_eq!(lab.turn().plan, []);
        let decision = lab.after(LOOK).decide();
        let count = made(&decision).len();
        assert_eq!(count, expected, "where {most} may drain at once");
    }
}

#[test]
fn a_replacement_that_holds_the_pods_in_one_order_alone_is_not_made() {
    let lab = |room| {
        consolidated()
            .ours("n1", "c", "l")
            .bound("a", "n1", 1800, 1)
            .bound("b", "n1", 2900, 1)
            .node("other", room, 8192)
    };
    // kube-scheduler has no reason to leave the room on `other` to b, and then b finds none on a small machine.
    nothing(lab(3000));
    // Where both fit beside each other on what is there nobody is needed; where none fits, one machine of the middle size.
    assert_eq!(removed(&looked(lab(4700))), ["n1"]);
}

#[test]
fn the_zone_of_several_nodes_that_go_together_is_kept() {
    let mut lab = consolidated();
    for (node, kind, host, milli) in [
        ("n1", "m", "pve1", 3000),
        ("n2", "m", "pve1", 3000),
        ("n3", "s", "pve2", 1900),
    ] {
        let pod = format!("web-{node}");
        lab = lab
            .ours(node, "c", kind)
            .on_host(node, host)
            .bound(&pod, node, milli, 1);
    }
    let lab = lab.shapes("web", |shape| spread_over_zones(shape, 5));
    let decision = looked(lab);
    assert_eq!(made(&decision), ["l"]);
    // pve3 has no machine of the pool yet, and would come first.
    assert_eq!(&*decision.plan[0].target.host, "pve1");
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
                advice: None,
                step: Step::Join,
                message: "no".into(),
                at,
                transient: false,
                host: None,
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
    lab.memory = model::memory::Memory::default();
    for _ in 0..9 {
        assert_eq!(lab.turn().plan, []);
        lab = lab.after(Span::minutes(1));
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

#[test]
fn pods_that_each_need_a_host_of_their_own_are_consolidated_too() {
    let apart = |lab: Lab| {
        lab.shapes("web", |shape| {
            let selector = Some(LabelSelector {
                labels: shape
                    .labels
                    .iter()
                    .map(|(k, v)| (k.clone(), v.clone()))
                    .collect(),
                ..LabelSelector::default()
            });
            shape.pod_anti_affinity.push(PodTerm {
                selector: selector.clone(),
                topology_key: HOSTNAME.into(),
                ..PodTerm::default()
            });
            shape.spread.push(SpreadConstraint {
                max_skew: 1,
                topology_key: HOSTNAME.into(),
                hard: true,
                selector,
                min_domains: None,
                match_label_keys: Vec::new(),
                honor_affinity: true,
                honor_taints: false,
            });
        })
    };
    let lab = consolidated()
        .ours("n1", "c", "l")
        .ours("n2", "c", "s")
        .bound("web-0", "n1", 500, 1)
        .bound("web-1", "n2", 500, 1);
    let decision = looked(apart(lab));
    assert_eq!(
        made(&decision),
        ["s"],
        "n2 has no room for a second of them"
    );
}
