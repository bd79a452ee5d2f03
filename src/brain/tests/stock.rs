//! Volumes that exist and wait for a claim: what the cases in `tests/conformance/06-volumes.yaml` do not say.

use std::sync::Arc;

use super::lab::{Lab, lab, made, verdict, why};
use super::wide::claims::within;
use model::cluster::{Claim, ClaimRequest, Free, ObjectKey, PersistentVolume, StorageClass};
use model::report::PodVerdict;
use model::scheduling::{Labels, Volume};

pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// A pool, and a class that nothing can provision.
pub(super) fn world() -> Lab {
    let class = StorageClass {
        provisioner: "kubernetes.io/no-provisioner".into(),
        wait_for_consumer: true,
        ..StorageClass::default()
    };
    lab().kind("one", 4, 4096).pool("p", &["one"]).with(|lab| {
        let classes = &mut lab.snapshot.cluster.storage_classes;
        classes.insert("local".into(), class);
    })
}

/// A pod that waits with a claim of its own, of so many bytes.
pub(super) fn waits(lab: Lab, pod: &str, milli: i64, size: i64) -> Lab {
    let claim = Claim {
        class: Some("local".into()),
        asks: Some(Arc::new(ClaimRequest {
            storage: size,
            ..ClaimRequest::default()
        })),
        ..Claim::default()
    };
    let name: Arc<str> = format!("data-{pod}").into();
    lab.pod(pod, milli, 100)
        .shape(pod, |shape| shape.volumes.push(Volume::Claim(name.clone())))
        .with(|lab| {
            let claims = &mut lab.snapshot.cluster.claims;
            claims.insert(ObjectKey::new("default", name), claim);
        })
}

/// A free volume, where a label has this value.
pub(super) fn volume(lab: Lab, name: &str, size: i64, at: Option<(&str, &str)>) -> Lab {
    let free = Free {
        class: "local".into(),
        storage: size,
        available: true,
        ..Free::default()
    };
    let volume = PersistentVolume {
        node_affinity: at.map(|(key, value)| vec![within(key, &[value])]),
        free: Some(Arc::new(free)),
        ..PersistentVolume::default()
    };
    lab.with(|lab| {
        lab.snapshot.cluster.volumes.insert(name.into(), volume);
    })
}

fn on(lab: &Lab, pod: &str) -> Option<Arc<str>> {
    match verdict(&lab.decide(), pod) {
        PodVerdict::FitsNode { node, .. } => Some(node.clone()),
        _ => None,
    }
}

fn named(lab: Lab, name: &str) -> Lab {
    lab.node(name, 16_000, 64_000).edit_node(name, |node| {
        let labels: Labels = [(HOSTNAME.into(), name.into())].into();
        node.labels.extend(labels);
    })
}

#[test]
fn of_equal_volumes_the_one_that_fits_in_fewer_places_goes_first() {
    let lab = named(named(world(), "n1"), "n2");
    let lab = volume(lab, "everywhere", 10, None);
    let lab = volume(lab, "here", 10, Some((HOSTNAME, "n1")));
    let lab = waits(waits(lab, "a", 10, 5), "b", 10_000, 5).edit_node("n1", |node| {
        node.allocatable.cpu_milli = 100;
    });
    // The first takes the one of n1; the second finds the other one on n2.
    assert_eq!(on(&lab, "a").as_deref(), Some("n1"));
    assert_eq!(on(&lab, "b").as_deref(), Some("n2"));
}

#[test]
fn volumes_run_out_among_nodes_and_machines_together() {
    let mut lab = named(world(), "n1");
    for number in 0..3 {
        lab = volume(lab, &format!("v{number}"), 10, None);
    }
    for pod in ["a", "b", "c", "d"] {
        lab = waits(lab, pod, 3_000, 5);
    }
    let lab = lab.edit_node("n1", |node| node.allocatable.cpu_milli = 3_500);
    let decision = lab.decide();
    assert_eq!(on(&lab, "a").as_deref(), Some("n1"));
    assert_eq!(made(&decision), ["one", "one"]);
    let why = why(&decision, "d", "p/one");
    assert!(why.contains("can reach is left"), "{why}");
}

#[test]
fn a_view_of_an_earlier_version_serves_no_such_claim() {
    let lab = volume(named(world(), "n1"), "v", 10, None);
    let lab = waits(lab, "a", 10, 5).with(|lab| {
        for claim in lab.snapshot.cluster.claims.values_mut() {
            claim.asks = None;
        }
    });
    assert_eq!(on(&lab, "a"), None);
    assert!(lab.decide().plan.is_empty());
}

#[test]
fn a_volume_of_a_host_chooses_the_host_of_the_machine_until_it_is_used_up() {
    let mut lab = world();
    lab = volume(lab, "v1", 10, Some((ZONE, "pve1")));
    lab = volume(lab, "v2", 10, Some((ZONE, "mars")));
    lab = waits(waits(lab, "a", 3_000, 5), "b", 3_000, 5);
    let decision = lab.decide();
    assert_eq!(made(&decision), ["one"]);
    assert_eq!(&*decision.plan[0].target.host, "pve1");
    assert!(matches!(
        verdict(&decision, "b"),
        PodVerdict::NoCompatiblePool { .. }
    ));
}

#[test]
fn hostile_sizes_do_not_panic() {
    for (asked, offered) in [(i64::MIN, i64::MAX), (i64::MAX, i64::MIN), (-1, 0)] {
        let lab = volume(named(world(), "n1"), "v", offered, None);
        let lab = waits(lab, "a", 10, asked);
        assert_eq!(on(&lab, "a").is_some(), offered >= asked);
    }
}
