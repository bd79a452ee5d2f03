//! Pods that must be on the node of others, while machines are on their way.

use model::cluster::PodKey;
use model::decision::Decision;
use model::region::Step;
use model::report::PodVerdict;
use model::scheduling::{HOSTNAME_LABEL, LabelSelector, Labels, PodShape, PodTerm};

use super::lab::{Lab, lab, made};

/// Asks to be on the node of a pod of this name's app.
fn follow(app: &'static str) -> impl Fn(&mut PodShape) {
    move |shape| {
        shape.pod_affinity.push(PodTerm {
            selector: Some(LabelSelector {
                labels: Labels::from([("app".into(), app.into())]),
                ..LabelSelector::default()
            }),
            topology_key: HOSTNAME_LABEL.into(),
            ..PodTerm::default()
        });
    }
}

/// A machine of four cores is on its way; new ones are of these types.
fn world(types: &[&str]) -> Lab {
    lab()
        .kind("small", 4, 8192)
        .kind("large", 8, 16_384)
        .pool("p", types)
        .machine("m0", "p", "small", Step::Agent)
}

/// Whether a pod goes to the machine on its way.
fn on_its_way(decision: &Decision, name: &str) -> bool {
    let verdict = &decision.report.pods[&PodKey::new("default", name)];
    matches!(verdict, PodVerdict::FitsMachine { .. })
}

fn placed(decision: &Decision, name: &str) -> bool {
    decision.report.pods[&PodKey::new("default", name)].is_placed()
}

#[test]
fn a_target_goes_to_a_machine_on_its_way_with_its_follower_or_not_at_all() {
    let with = |milli| {
        let lab = world(&["small", "large"]).pod("target-0", 3000, 1024);
        let lab = lab.pod("follower-0", milli, 1024);
        lab.shape("follower-0", follow("target")).decide()
    };
    let both = with(500);
    assert!(on_its_way(&both, "target-0") && on_its_way(&both, "follower-0"));
    assert!(made(&both).is_empty());
    let neither = with(2000);
    assert_eq!(made(&neither), ["large"]);
    for name in ["target-0", "follower-0"] {
        assert!(
            placed(&neither, name) && !on_its_way(&neither, name),
            "{name}"
        );
    }
}

#[test]
fn a_target_whose_follower_no_machine_holds_goes_alone() {
    let lab = world(&["small"]).pod("target-0", 3000, 1024);
    let lab = lab.pod("follower-0", 2000, 1024);
    let decision = lab.shape("follower-0", follow("target")).decide();
    assert!(on_its_way(&decision, "target-0"));
    assert!(!placed(&decision, "follower-0"));
    assert!(made(&decision).is_empty());
}

#[test]
fn strangers_do_not_take_the_room_of_followers() {
    let lab = world(&["small", "large"]).pod("target-0", 1500, 512);
    let lab = lab.pods("web", 2, 1500, 512);
    let lab = lab.pods("follower", 2, 700, 512);
    let decision = lab.shapes("follower", follow("target")).decide();
    for name in ["target-0", "follower-0", "follower-1"] {
        assert!(on_its_way(&decision, name), "{name}");
    }
    for name in ["web-0", "web-1"] {
        assert!(
            placed(&decision, name) && !on_its_way(&decision, name),
            "{name}"
        );
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
    let (fits, too_much) = (with(500), with(1500));
    assert!(made(&fits).is_empty());
    assert_eq!(made(&too_much), ["large"]);
    for name in ["target-0", "follower-0", "last-0"] {
        assert!(on_its_way(&fits, name), "{name}");
        assert!(
            placed(&too_much, name) && !on_its_way(&too_much, name),
            "{name}"
        );
    }
}

#[test]
fn pods_that_want_each_other_are_all_on_the_machine_on_its_way_or_none_is() {
    let with = |pods| {
        let lab = world(&["small", "large"]).pods("group", pods, 1500, 512);
        lab.shapes("group", follow("group")).decide()
    };
    let two = with(2);
    assert!(made(&two).is_empty());
    assert!(on_its_way(&two, "group-0") && on_its_way(&two, "group-1"));
    let four = with(4);
    assert_eq!(made(&four), ["large"]);
    for name in ["group-0", "group-1", "group-2", "group-3"] {
        assert!(placed(&four, name) && !on_its_way(&four, name), "{name}");
    }
}
