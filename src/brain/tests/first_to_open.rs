//! Which new nodes take pods after which others: those that a target could come to before its own.

use super::constraints::{HOSTNAME, own_term};
use super::lab::{Lab, lab};
use model::region::Step;

/// Two machines on their way up with 4 cores each: the first has two cores booked, the second a target and two followers.
fn world() -> Lab {
    lab()
        .kind("large", 4, 8 << 10)
        .pool("ng", &["large"])
        .machine("ng-a", "ng", "large", Step::Clone)
        .machine("ng-b", "ng", "large", Step::Clone)
        .pod("alone", 2000, 100)
        .pod("target", 1000, 100)
        .pod("follower-1", 1000, 100)
        .pod("follower-2", 1000, 100)
        .shapes("follower", |shape| {
            shape.pod_affinity = vec![own_term("target", HOSTNAME)];
        })
        .with(|lab| {
            book(lab, "ng-a", &["alone"]);
            book(lab, "ng-b", &["target", "follower-1", "follower-2"]);
        })
}

fn book(lab: &mut Lab, machine: &str, pods: &[&str]) {
    let uids = pods.iter().map(|name| {
        let mut all = lab.snapshot.cluster.pods.iter();
        let found = all.find(|(key, _)| *key.name == **name);
        found.expect("a pod of this name").1.uid.clone()
    });
    let uids = uids.collect();
    lab.memory.bookings.insert(machine.into(), uids);
}

/// `node > node it waits for, …` for each node that waits.
fn order(lab: &Lab) -> Vec<String> {
    let after = lab.decide().report.takes_pods_after;
    let lines = after
        .iter()
        .map(|(node, first)| format!("{node} > {}", first.join(", ")));
    lines.collect()
}

#[test]
fn a_node_with_room_for_a_target_alone_waits_for_the_target_s_own() {
    // Two cores are left on the first: less than the three that the target and its followers ask for.
    assert_eq!(order(&world()), ["ng-a > ng-b"]);
}

#[test]
fn a_node_with_room_for_all_of_them_waits_for_nobody() {
    let lab = world().shape("alone", |shape| shape.requests.cpu_milli = 200);
    assert_eq!(order(&lab), [""; 0]);
}

#[test]
fn a_node_that_the_target_cannot_come_to_waits_for_nobody() {
    let full = world().shape("alone", |shape| shape.requests.cpu_milli = 3500);
    assert_eq!(order(&full), [""; 0]);
    let kept_off = world().shape("target", |shape| {
        shape.node_selector = [("disk".into(), "ssd".into())].into();
    });
    assert_eq!(order(&kept_off), [""; 0]);
}

#[test]
fn pods_that_follow_one_another_are_each_other_s_targets() {
    let lab = world()
        .shapes("follower", |shape| {
            shape.pod_affinity = vec![own_term("same", HOSTNAME)];
            shape.labels = [("app".into(), "same".into())].into();
            shape.requests.cpu_milli = 1800;
        })
        .shape("target", |shape| shape.requests.cpu_milli = 10);
    assert_eq!(order(&lab), ["ng-a > ng-b"]);
}

#[test]
fn two_targets_that_could_take_one_room_are_counted_together() {
    let lab = world()
        .machine("ng-c", "ng", "large", Step::Clone)
        .pod("another", 100, 100)
        .pod("behind", 2600, 100)
        .shape("behind", |shape| {
            shape.pod_affinity = vec![own_term("another", HOSTNAME)];
        })
        // Its room is more than three cores: for either target with its followers, and not for both.
        .shape("alone", |shape| shape.requests.cpu_milli = 300)
        .with(|lab| book(lab, "ng-c", &["another", "behind"]));
    assert_eq!(
        order(&lab),
        ["ng-a > ng-b, ng-c", "ng-b > ng-c", "ng-c > ng-b"]
    );
}

#[test]
fn nothing_waits_without_nominations() {
    let lab = world().with(|lab| lab.policy.scale_up.nominate_pods = false);
    assert_eq!(order(&lab), [""; 0]);
}
