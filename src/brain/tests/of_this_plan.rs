//! A pod that waits because of other pods of the same decision is told which.

use super::lab::{Lab, lab, verdict, why};
use model::policy::POOL_LABEL;
use model::report::PodVerdict;
use model::scheduling::{HOSTNAME_LABEL, LabelSelector, PodShape, PodTerm};

const ZONE: &str = "topology.kubernetes.io/zone";

/// A term that selects the pods of an app.
fn term(app: &str, key: &str) -> PodTerm {
    PodTerm {
        selector: Some(LabelSelector {
            labels: [("app".into(), app.into())].into_iter().collect(),
            expressions: Vec::new(),
        }),
        topology_key: key.into(),
        namespaces: Vec::new(),
        namespace_selector: None,
    }
}

fn follows(app: &'static str) -> impl FnOnce(&mut PodShape) {
    move |shape| shape.pod_affinity.push(term(app, HOSTNAME_LABEL))
}

fn world() -> Lab {
    lab()
        .kind("small", 2, 4096)
        .kind("medium", 4, 8192)
        .pool("p", &["small", "medium"])
}

#[test]
fn a_follower_of_a_pod_that_limits_leave_out_waits_for_it() {
    let lab = world()
        .pool("q", &["medium"])
        .edit_pool("q", |pool| pool.max = 0)
        .pod("db", 500, 100)
        .shape("db", |shape| {
            shape.node_selector.insert(POOL_LABEL.into(), "q".into());
        })
        .pod("app", 400, 100)
        .shape("app", follows("db"));
    let decision = lab.decide();
    for pod in ["db", "app"] {
        let told = verdict(&decision, pod);
        assert!(matches!(told, PodVerdict::Held { .. }), "{pod}: {told:?}");
    }
    let expected = "it has pod affinity to default/db, which has no place itself";
    assert_eq!(why(&decision, "app", "p/small"), expected);
}

#[test]
fn a_follower_of_a_pod_that_no_pool_can_run_is_told_which_pod_that_is() {
    let lab = world()
        .pod("db", 35_000, 100)
        .pod("app", 400, 100)
        .shape("app", follows("db"));
    let decision = lab.decide();
    let told = verdict(&decision, "app");
    assert!(
        matches!(told, PodVerdict::NoCompatiblePool { .. }),
        "{told:?}"
    );
    let expected = "it has pod affinity to default/db, which has no place itself";
    assert_eq!(why(&decision, "app", "p/small"), expected);
}

#[test]
fn a_follower_that_has_no_room_beside_its_target_is_told_where_the_target_goes() {
    let lab = world()
        .pod("db", 3_000, 100)
        .pod("app", 2_000, 100)
        .shape("app", follows("db"));
    let decision = lab.decide();
    let PodVerdict::Triggers { machine, .. } = verdict(&decision, "db") else {
        panic!("{:?}", decision.report.pods);
    };
    let told = verdict(&decision, "app");
    assert!(matches!(told, PodVerdict::Held { .. }), "{told:?}");
    let expected = format!(
        "it has pod affinity to default/db, which goes to {machine} in this plan, where it does not fit"
    );
    assert_eq!(why(&decision, "app", "p/medium"), expected);
}

#[test]
fn a_pod_whose_zones_its_own_siblings_take_is_told_which() {
    let lab = world().pods("web", 4, 500, 100).shapes("web-", |shape| {
        shape.pod_anti_affinity.push(term("web", ZONE));
    });
    let decision = lab.decide();
    let pods = &decision.report.pods;
    let waiting = pods
        .iter()
        .filter(|(_, verdict)| matches!(verdict, PodVerdict::Held { .. }));
    let waiting: Vec<&str> = waiting.map(|(pod, _)| &*pod.name).collect();
    let [last] = &waiting[..] else {
        panic!("{pods:?}");
    };
    let told = why(&decision, last, "p/small");
    assert!(
        told.contains(", as default/web-") && told.contains(" goes there in this plan"),
        "{told}"
    );
}

#[test]
fn a_pod_whose_target_is_nowhere_has_no_compatible_pool() {
    let lab = world().pod("app", 400, 100).shape("app", follows("db"));
    let decision = lab.decide();
    let told = verdict(&decision, "app");
    assert!(
        matches!(told, PodVerdict::NoCompatiblePool { .. }),
        "{told:?}"
    );
    let told = why(&decision, "app", "p/small");
    assert!(
        told.ends_with(
            "there is no pod of the namespace default with app=db, and one must have a place first"
        ),
        "{told}"
    );
}
