//! Claims for one pod alone, attach limits, zones of volumes, volumes that are being deleted.

use super::lab::{Lab, lab, made, verdict, why};
use model::cluster::{Attachment, Claim, ObjectKey, PersistentVolume, StorageClass, ZoneLabel};
use model::report::PodVerdict;
use model::scheduling::{Labels, Volume};

const DRIVER: &str = "csi.example";

/// A pool, and a node of somebody's with room for all.
fn world() -> Lab {
    let class = StorageClass {
        provisioner: DRIVER.into(),
        wait_for_consumer: true,
        ..StorageClass::default()
    };
    lab()
        .kind("one", 4, 4096)
        .pool("p", &["one"])
        .node("n1", 16_000, 64_000)
        .with(|lab| {
            let classes = &mut lab.snapshot.cluster.storage_classes;
            classes.insert("fast".into(), class);
        })
}

fn uses(lab: Lab, pod: &str, claim: &str) -> Lab {
    lab.shape(pod, |shape| shape.volumes.push(Volume::Claim(claim.into())))
}

/// A claim that is bound to a volume with this name as its handle.
fn bound(lab: Lab, name: &str, change: impl FnOnce(&mut Claim, &mut PersistentVolume)) -> Lab {
    let mut claim = Claim {
        volume: Some(name.into()),
        class: Some("fast".into()),
        bound: true,
        ..Claim::default()
    };
    let mut volume = PersistentVolume {
        driver: Some(DRIVER.into()),
        handle: Some(name.into()),
        ..PersistentVolume::default()
    };
    change(&mut claim, &mut volume);
    lab.with(|lab| {
        let cluster = &mut lab.snapshot.cluster;
        cluster
            .claims
            .insert(ObjectKey::new("default", name), claim);
        cluster.volumes.insert(name.into(), volume);
    })
}

/// A claim whose volume is made when a pod uses it.
fn unbound(lab: Lab, name: &str) -> Lab {
    let claim = Claim {
        class: Some("fast".into()),
        ..Claim::default()
    };
    lab.with(|lab| {
        let claims = &mut lab.snapshot.cluster.claims;
        claims.insert(ObjectKey::new("default", name), claim);
    })
}

fn limit(lab: Lab, node: &str, limit: i32) -> Lab {
    lab.with(|lab| {
        let limits = [(DRIVER.into(), Some(limit))].into();
        lab.snapshot.cluster.csi_nodes.insert(node.into(), limits);
    })
}

fn fits(lab: &Lab, pod: &str) -> bool {
    matches!(verdict(&lab.decide(), pod), PodVerdict::FitsNode { .. })
}

#[test]
fn a_claim_for_one_pod_alone_keeps_the_second_away_from_every_node() {
    let lab = world().bound("first", "n1", 10, 10).pod("second", 10, 10);
    let lab = uses(uses(lab, "first", "data"), "second", "data");
    let shared = bound(lab.clone(), "data", |_, _| {});
    assert!(fits(&shared, "second"));
    let alone = bound(lab, "data", |claim, _| claim.once_pod = true);
    let decision = alone.decide();
    assert!(decision.plan.is_empty());
    let why = why(&decision, "second", "p/one");
    assert!(why.contains("default/first uses it"), "{why}");
}

#[test]
fn a_full_node_takes_no_more_volumes_and_a_new_one_is_made() {
    let lab = limit(
        world().bound("old", "n1", 10, 10).pod("web", 10, 10),
        "n1",
        1,
    );
    let lab = uses(uses(lab, "old", "a"), "web", "b");
    let lab = bound(bound(lab, "a", |_, _| {}), "b", |_, _| {});
    assert_eq!(made(&lab.decide()), ["one"]);
    // The same volume costs nothing more.
    let same = bound(lab.clone(), "b", |_, volume| {
        volume.handle = Some("a".into());
    });
    assert!(fits(&same, "web"));
    let roomy = limit(lab, "n1", 2);
    assert!(fits(&roomy, "web"));
    // What is still attached after its pod went counts too.
    let left = bound(roomy, "c", |_, _| {}).with(|lab| {
        let attachment = Attachment {
            node: "n1".into(),
            volume: Some("c".into()),
            driver: DRIVER.into(),
        };
        let attachments = &mut lab.snapshot.cluster.attachments;
        attachments.insert("c".into(), attachment);
    });
    assert!(!fits(&left, "web"));
}

#[test]
fn limits_hold_among_the_pods_of_one_decision_and_on_new_nodes() {
    let mut lab = limit(world(), "n1", 1).edit_kind("one", |kind| {
        kind.attach_limits.insert(DRIVER.into(), 2);
    });
    for pod in ["a", "b", "c", "d", "e"] {
        lab = unbound(uses(lab.pod(pod, 10, 10), pod, pod), pod);
    }
    // One on the node, two on each new one.
    assert_eq!(made(&lab.decide()), ["one", "one"]);
    let greedy = uses(
        uses(uses(lab.pod("f", 10, 10), "f", "a"), "f", "b"),
        "f",
        "c",
    );
    let why = why(&greedy.decide(), "f", "p/one").clone();
    assert!(why.contains("3 more volumes"), "{why}");
}

#[test]
fn a_volume_with_a_zone_label_is_of_that_zone() {
    let zone = "topology.kubernetes.io/zone";
    let old = "failure-domain.beta.kubernetes.io/zone";
    let fits = |key: &str, value: &str, node: &[(&str, &str)]| {
        let lab = uses(world().pod("web", 10, 10), "web", "data").edit_node("n1", |n1| {
            n1.labels
                .extend(node.iter().map(|(k, v)| ((*k).into(), (*v).into())));
        });
        let label = |wanted: &str| (wanted == key).then_some(value);
        let lab = bound(lab, "data", |_, volume| {
            volume.zones = ZoneLabel::among(label);
        });
        fits(&lab, "web")
    };
    assert!(fits(zone, "a", &[(zone, "a")]));
    assert!(!fits(zone, "a", &[(zone, "b")]));
    assert!(fits(zone, "a__b", &[(zone, "b")]));
    assert!(fits(old, "a", &[(zone, "a")]));
    assert!(!fits(zone, "a", &[("topology.kubernetes.io/region", "a")]));
    assert!(fits(zone, "a", &[]), "a node without zones is everywhere");
    assert!(ZoneLabel::among(|_| Some("a__")).is_empty());
    let none = Labels::new();
    assert!(ZoneLabel::default().admits(&none));
}

#[test]
fn vo_11_a_volume_that_is_being_deleted_serves_where_there_is_room_and_brings_no_node() {
    let lab = uses(world().pod("web", 10, 10), "web", "data");
    let lab = bound(lab, "data", |_, volume| volume.deleting = true);
    assert!(fits(&lab, "web"));
    let full = lab.edit_node("n1", |n1| n1.unschedulable = true);
    let decision = full.decide();
    assert!(decision.plan.is_empty());
    assert!(why(&decision, "web", "p/one").contains("is being deleted"));
}

#[test]
fn of_two_pending_pods_that_share_a_claim_for_one_pod_alone_the_second_waits() {
    let shared = |lab: Lab| bound(lab, "data", |claim, _| claim.once_pod = true);
    let two = |lab: Lab| {
        let lab = lab.pod("first", 10, 10).pod("second", 20, 10);
        shared(uses(uses(lab, "first", "data"), "second", "data"))
    };
    // On a node there is …
    let decision = two(world()).decide();
    assert!(matches!(
        verdict(&decision, "first"),
        PodVerdict::FitsNode { .. }
    ));
    assert!(decision.plan.is_empty());
    let text = why(&decision, "second", "*");
    assert!(text.contains("default/first gets it"), "{text}");
    // … and on new ones, the more important first, equal pods too.
    let full = |lab: Lab| lab.edit_node("n1", |n1| n1.unschedulable = true);
    let decision = full(two(world()).shape("second", |shape| shape.priority = 7)).decide();
    assert_eq!(made(&decision), ["one"]);
    assert!(why(&decision, "first", "*").contains("default/second gets it"));
    let mut lab = full(shared(world()));
    for pod in ["a", "b", "c"] {
        lab = uses(lab.pod(pod, 3000, 10), pod, "data");
    }
    let decision = lab.decide();
    assert_eq!(made(&decision), ["one"]);
    let waiting = ["a", "b", "c"].iter().filter(
        |pod| matches!(verdict(&decision, pod), PodVerdict::Held { why } if why.contains_key("*")),
    );
    assert_eq!(waiting.count(), 2);
    // One that fits nowhere keeps nobody away.
    let large = two(world()).shape("first", |shape| {
        shape.priority = 7;
        shape.requests.cpu_milli = 99_000;
    });
    assert!(fits(&large, "second"));
}

#[test]
fn a_type_is_worth_no_more_pods_than_it_can_attach_volumes() {
    let mut lab = world()
        .edit_node("n1", |n1| n1.unschedulable = true)
        .kind("two", 64, 65_536)
        .edit_pool("p", |pool| pool.instance_types.push("two".into()));
    for kind in ["one", "two"] {
        lab = lab.edit_kind(kind, |kind| {
            kind.attach_limits.insert(DRIVER.into(), 2);
        });
    }
    for n in 0..12 {
        let pod = format!("web{n}");
        lab = unbound(uses(lab.pod(&pod, 10, 10), &pod, &pod), &pod);
    }
    assert_eq!(made(&lab.decide()), ["one"; 6]);
    // Equal pods with volumes of their own are no exception.
    let lab = lab.with(|lab| {
        for pod in lab.snapshot.cluster.pods.values_mut() {
            let shape = std::sync::Arc::make_mut(&mut pod.shape);
            shape.labels.clear();
            shape.volumes = vec![Volume::Ephemeral {
                name: "scratch".into(),
                class: Some("fast".into()),
            }];
        }
    });
    assert_eq!(made(&lab.decide()), ["one"; 6]);
}
