//! Pods that must be on the node of others, while machines are on their way.

use std::collections::BTreeMap;

use model::cluster::ObjectKey;
use model::decision::Decision;
use model::policy::ZONE_LABEL;
use model::region::Step;
use model::report::PodVerdict;
use model::scheduling::{HOSTNAME_LABEL, LabelSelector, Labels, PodShape, PodTerm};

use super::lab::{Lab, lab, made};
use super::sizing::{SeededRng, first_world};
use crate::report::explain::{self, Asked};

/// A term that takes in pods of this app; the lab's pods have their name, without the number, as the label `app`.
fn beside(app: &str) -> PodTerm {
    PodTerm {
        selector: Some(LabelSelector {
            labels: Labels::from([("app".into(), app.into())]),
            ..LabelSelector::default()
        }),
        topology_key: HOSTNAME_LABEL.into(),
        ..PodTerm::default()
    }
}

/// Asks to be on the node of a pod of this app.
fn follow(app: &'static str) -> impl Fn(&mut PodShape) {
    move |shape| shape.pod_affinity.push(beside(app))
}

/// A machine `m0` of four cores is on its way; new ones are of these types.
fn world(types: &[&str]) -> Lab {
    lab()
        .kind("small", 4, 8192)
        .kind("large", 8, 16_384)
        .pool("p", types)
        .machine("m0", "p", "small", Step::Agent)
}

/// A target of three cores and a follower that finds no room beside it on `m0`.
fn pair(types: &[&str]) -> Lab {
    let lab = world(types).pod("target-0", 3000, 1024);
    let lab = lab.pod("follower-0", 2000, 1024);
    lab.shape("follower-0", follow("target"))
}

/// Where a pod goes: the name of a node or of a machine on its way, `new`, or `waits`.
fn place(decision: &Decision, name: &str) -> String {
    match &decision.report.pods[&ObjectKey::new("default", name)] {
        PodVerdict::FitsNode { node, .. } => node.to_string(),
        PodVerdict::FitsMachine { machine } => machine.to_string(),
        PodVerdict::Triggers { .. } => "new".to_owned(),
        _ => "waits".to_owned(),
    }
}

/// The places of all pods, in the order of their names.
fn places(decision: &Decision) -> Vec<String> {
    let pods = decision.report.pods.keys();
    pods.map(|key| place(decision, &key.name)).collect()
}

/// Decides once more with what the decision remembers.
fn again(lab: &Lab, decision: &Decision) -> Decision {
    lab.clone()
        .with(|lab| lab.memory = decision.memory.clone())
        .decide()
}

#[test]
fn a_target_goes_to_a_machine_on_its_way_with_its_follower() {
    let lab = pair(&["small", "large"]).shape("follower-0", |shape| shape.requests.cpu_milli = 500);
    let decision = lab.decide();
    assert_eq!(places(&decision), ["m0", "m0"]);
    assert!(made(&decision).is_empty());
    assert_eq!(places(&again(&lab, &decision)), ["m0", "m0"]);
}

#[test]
fn a_target_whose_follower_has_no_room_there_gets_a_new_machine_with_it() {
    let decision = pair(&["small", "large"]).decide();
    assert_eq!(places(&decision), ["new", "new"]);
    assert_eq!(made(&decision), ["large"]);
}

#[test]
fn a_target_goes_to_the_machine_that_has_room_for_its_follower_too() {
    let lab = pair(&["small", "large"]).machine("m1", "p", "large", Step::Agent);
    let decision = lab.decide();
    assert_eq!(places(&decision), ["m1", "m1"]);
    assert!(made(&decision).is_empty());
}

#[test]
fn a_target_whose_follower_no_machine_holds_goes_alone_and_keeps_no_place() {
    let lab = pair(&["small"]);
    let decision = lab.decide();
    assert_eq!(places(&decision), ["waits", "m0"]);
    assert!(made(&decision).is_empty());
    // Once a larger type is there, both get a machine of it.
    let later = lab.with(|lab| {
        let pool = lab.policy.pools.get_mut("p").expect("the pool");
        pool.instance_types.push("large".into());
    });
    assert_eq!(places(&again(&later, &decision)), ["new", "new"]);
}

#[test]
fn a_target_goes_alone_where_limits_allow_no_machine() {
    let lab = pair(&["small", "large"]).edit_pool("p", |pool| pool.max = 1);
    assert_eq!(places(&lab.decide()), ["waits", "m0"]);
}

/// The follower finds no node in a zone that there is: no offer says so before the plan is made.
#[test]
fn a_target_goes_alone_where_no_plan_holds_its_follower() {
    let lab = pair(&["small", "large"]).shape("follower-0", |shape| {
        shape.pod_anti_affinity.push(PodTerm {
            topology_key: ZONE_LABEL.into(),
            ..beside("web")
        });
    });
    let lab = ["pve1", "pve2", "pve3"].into_iter().fold(lab, |lab, host| {
        let (node, pod) = (format!("node-{host}"), format!("web-{}", &host[3..]));
        let lab = lab.node(&node, 1000, 8192).edit_node(&node, |node| {
            node.labels.insert(ZONE_LABEL.into(), host.into());
        });
        lab.bound(&pod, &node, 1000, 100)
    });
    let decision = lab.decide();
    assert_eq!(place(&decision, "target-0"), "m0");
    assert_eq!(place(&decision, "follower-0"), "waits");
}

#[test]
fn without_nominations_the_first_machine_takes_the_target() {
    let lab = pair(&["small", "large"]);
    let lab = lab.with(|lab| lab.policy.scale_up.nominate_pods = false);
    assert_eq!(places(&lab.decide()), ["waits", "m0"]);
}

#[test]
fn a_node_that_works_takes_the_target_whoever_follows() {
    let lab = pair(&["small", "large"]).node("n0", 4000, 8192);
    assert_eq!(places(&lab.decide()), ["waits", "n0"]);
}

#[test]
fn a_follower_that_comes_later_takes_the_target_s_place_from_it() {
    let lab = world(&["small", "large"]).pod("target-0", 3000, 1024);
    let alone = lab.decide();
    assert_eq!(places(&alone), ["m0"]);
    let both = pair(&["small", "large"]);
    assert_eq!(places(&again(&both, &alone)), ["new", "new"]);
}

#[test]
fn a_target_with_one_follower_beside_it_keeps_its_place() {
    let fits = |shape: &mut PodShape| shape.requests.cpu_milli = 1000;
    let lab = pair(&["small", "large"]).shape("follower-0", fits);
    let decision = lab.decide();
    assert_eq!(places(&decision), ["m0", "m0"]);
    let more = lab.pod("follower-1", 1000, 1024);
    let more = more.shape("follower-1", follow("target"));
    assert_eq!(places(&again(&more, &decision)), ["m0", "waits", "m0"]);
}

#[test]
fn several_followers_are_placed_with_their_target() {
    let with = |milli| {
        let lab = world(&["small", "large"]).pod("target-0", 1500, 512);
        // These come between them in kube-scheduler's order.
        let lab = lab.pods("stranger", 2, 1500, 512);
        let lab = lab.pods("x-follower", 3, milli, 512);
        lab.shapes("x-follower", follow("target"))
            .shapes("target", |shape| shape.priority = 1)
            .decide()
    };
    let (fits, too_much) = (with(800), with(900));
    for name in ["target-0", "x-follower-0", "x-follower-1", "x-follower-2"] {
        assert_eq!(place(&fits, name), "m0", "{name}");
        assert_eq!(place(&too_much, name), "new", "{name}");
    }
    for name in ["stranger-0", "stranger-1"] {
        assert_eq!(place(&fits, name), "new", "{name}");
        assert_eq!(place(&too_much, name), "m0", "{name}");
    }
}

#[test]
fn followers_of_followers_count_too() {
    let with = |milli| {
        let lab = world(&["small", "large"]).pod("target-0", 1500, 512);
        let lab = lab.pod("follower-0", 1500, 512).pod("last-0", milli, 512);
        let lab = lab.shape("follower-0", follow("target"));
        lab.shape("last-0", follow("follower")).decide()
    };
    assert_eq!(places(&with(1000)), ["m0"; 3]);
    assert_eq!(places(&with(1500)), ["new"; 3]);
}

#[test]
fn pods_that_want_each_other_are_all_on_the_machine_on_its_way_or_none_is() {
    let with = |pods| {
        let lab = world(&["small", "large"]).pods("group", pods, 1500, 512);
        lab.shapes("group", follow("group")).decide()
    };
    assert_eq!(places(&with(2)), ["m0"; 2]);
    assert_eq!(places(&with(4)), ["new"; 4]);
}

/// A follower of pods that run goes to them; then its target has no follower that waits.
#[test]
fn a_follower_goes_to_a_target_that_runs_already() {
    let with = |free: i64| {
        pair(&["small", "large"])
            .node("n0", 1000 + free, 8192)
            .bound("target-9", "n0", 1000, 100)
            .decide()
    };
    let (room, full) = (with(2000), with(1000));
    assert_eq!(place(&room, "follower-0"), "n0");
    assert_eq!(place(&room, "target-0"), "m0");
    assert!(made(&room).is_empty());
    // Where it has no room there, it needs the target that waits.
    assert_eq!(place(&full, "follower-0"), "new");
    assert_eq!(place(&full, "target-0"), "new");
}

/// As [`a_follower_goes_to_a_target_that_runs_already`], of a follower whose turn comes after the target's: this is tried again.
#[test]
fn a_target_is_tried_again_once_its_follower_has_a_place() {
    let lab = pair(&["small", "large"])
        .shape("target-0", |shape| shape.priority = 1)
        .node("n0", 3000, 8192)
        .bound("target-9", "n0", 1000, 100);
    let decision = lab.decide();
    assert_eq!(place(&decision, "follower-0"), "n0");
    assert_eq!(place(&decision, "target-0"), "m0");
    assert!(made(&decision).is_empty());
}

#[test]
fn of_two_targets_each_takes_its_share_of_followers() {
    let lab = world(&["small", "large"])
        .machine("m1", "p", "small", Step::Agent)
        .pods("target", 2, 2000, 512)
        .pods("follower", 2, 1500, 512)
        .shapes("follower", follow("target"));
    let decision = lab.decide();
    assert!(made(&decision).is_empty());
    let mut by_place: BTreeMap<String, usize> = BTreeMap::new();
    for place in places(&decision) {
        *by_place.entry(place).or_default() += 1;
    }
    assert_eq!(by_place, [("m0".into(), 2), ("m1".into(), 2)].into());
}

#[test]
fn a_stranger_takes_the_room_that_a_target_is_held_back_from() {
    let decision = pair(&["small", "large"]).pod("web-0", 2500, 512).decide();
    assert_eq!(place(&decision, "web-0"), "m0");
    assert_eq!(place(&decision, "target-0"), "new");
}

/// With more groups than [`crate::simulation::followers`] looks at, pods are placed one by one.
#[test]
fn beyond_the_cap_a_target_is_placed_as_if_it_had_no_followers() {
    let with = |groups: usize| {
        let lab = world(&["small", "large"]).pod("target-0", 3000, 512);
        let lab = (0..groups).fold(lab, |lab, at| {
            let name = format!("f{at}");
            let milli = 100 + i64::try_from(at).expect("few");
            lab.pod(&name, milli, 10).shape(&name, follow("target"))
        });
        place(&lab.decide(), "target-0")
    };
    assert_eq!(with(32), "new");
    assert_eq!(with(33), "m0");
}

/// `explain` knows where the decision put the target.
#[test]
fn explanations_have_the_target_where_the_decision_has_it() {
    let lab = pair(&["small", "large"]);
    let decision = lab.decide();
    let asked = Asked {
        snapshot: &lab.snapshot,
        policy: &lab.policy,
        memory: &lab.memory,
        decision: &decision,
        now: lab.now,
    };
    let story = explain::pod(asked, &ObjectKey::new("default", "follower-0")).expect("a pod");
    let on = story.nodes.iter().find(|node| &*node.name == "m0");
    let free = &on.expect("the machine on its way").free;
    assert_eq!(free.cpu_milli, 4000, "{story:?}");
}

/// Machines on their way, one or two targets of which each has followers, pods whose own kind they must be beside, and strangers. A large machine
/// holds each target with all its followers.
fn random(case: u64) -> Lab {
    let mut rng = SeededRng::new(case);
    let mut lab = lab()
        .kind("small", 4, 8192)
        .kind("large", 8, 16_384)
        .pool("p", &["small", "large"]);
    for at in 0..=rng.below(3) {
        lab = lab.machine(
            &format!("m{at}"),
            "p",
            rng.one(&["small", "large"]),
            Step::Agent,
        );
    }
    for (target, followers) in [("a", "b"), ("c", "d")].into_iter().take(1 + rng.below(2)) {
        let own = rng.one(&[1000, 2000, 3000]);
        let targets = rng.one(&[1, 1, 1, 2]);
        lab = lab.pods(target, targets, own, 512);
        let count = 1 + rng.below(3);
        let each = (8000 - own) / 1000 / i64::try_from(count).expect("few") * 500;
        lab = lab.pods(followers, count, each + 100, 512);
        let follow = follow(if target == "a" { "a" } else { "c" });
        lab = lab.shapes(&format!("{followers}-"), follow);
        if rng.below(3) == 0 {
            lab = lab.shapes(&format!("{target}-"), |shape| shape.priority = 1);
        }
    }
    if rng.below(3) == 0 {
        lab = lab
            .pods("e", 2 + rng.below(3), 1500, 512)
            .shapes("e-", self::follow("e"));
    }
    lab.pods("web", rng.below(6), rng.one(&[500, 1000, 1500]), 512)
}

/// Nobody waits, the second decision with the same view does as the first one, and few machines are made. `PROPTEST_CASES` says how many worlds are tried.
#[test]
fn nobody_waits_for_a_follower_in_random_worlds() {
    let cases = u64::from(proptest::test_runner::Config::default().cases);
    let (mut waits, mut machines, mut price) = (0, 0, 0);
    for case in first_world()..first_world() + cases {
        let lab = random(case);
        let decision = lab.decide();
        machines += made(&decision).len();
        price += decision
            .report
            .scale_up
            .as_ref()
            .map_or(0, |growth| growth.price);
        let told = places(&decision);
        if told.iter().any(|place| place == "waits") {
            waits += 1;
            eprintln!("world {case}: {told:?}");
        }
    }
    eprintln!("{cases} worlds: {waits} leave pods out, {machines} machines for {price}");
    assert_eq!(waits, 0);
}
