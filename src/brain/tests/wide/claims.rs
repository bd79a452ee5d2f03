//! Claims of every kind, the same in each namespace.

use std::sync::Arc;

use super::{DRIVER, NAMESPACES, ZONE};
use crate::tests::lab::Lab;
use model::cluster::{
    Attachment, Claim, ClaimRequest, Free, ObjectKey, PersistentVolume, StorageCapacity,
    StorageClass, ZoneLabel,
};
use model::scheduling::{LabelSelector, NodeTerm, Operator, Requirement};

/// How many kinds there are: `claim0` and on.
pub(super) const COUNT: usize = 23;

const GI: i64 = 1 << 30;
/// A driver that says what it has free.
const COUNTED: &str = "counted.example.com";
const HOSTNAME: &str = "kubernetes.io/hostname";

pub(in crate::tests) fn within(key: &str, values: &[&str]) -> NodeTerm {
    NodeTerm {
        expressions: vec![Requirement {
            key: key.into(),
            operator: Operator::In,
            values: values.iter().map(|value| Arc::from(*value)).collect(),
        }],
        ..NodeTerm::default()
    }
}

/// Storage classes, and the claims with their volumes.
pub(super) fn add(mut lab: Lab) -> Lab {
    let dynamic = |wait: bool, topologies: Vec<NodeTerm>| StorageClass {
        provisioner: DRIVER.into(),
        wait_for_consumer: wait,
        topologies,
        ..StorageClass::default()
    };
    let fixed = StorageClass {
        provisioner: "kubernetes.io/no-provisioner".into(),
        wait_for_consumer: true,
        ..StorageClass::default()
    };
    let counted = StorageClass {
        provisioner: COUNTED.into(),
        wait_for_consumer: true,
        ..StorageClass::default()
    };
    let cluster = &mut lab.snapshot.cluster;
    for (name, class) in [
        ("fast", dynamic(true, vec![])),
        (
            "zoned",
            dynamic(true, vec![within(ZONE, &["pve1", "pve3"])]),
        ),
        ("eager", dynamic(false, vec![])),
        ("fixed", fixed),
        ("counted", counted),
    ] {
        cluster.storage_classes.insert(name.into(), class);
    }
    cluster.csi_drivers.insert(COUNTED.into(), true);
    for (number, (nodes, largest)) in free().into_iter().enumerate() {
        let capacity = StorageCapacity {
            class: "counted".into(),
            nodes,
            largest,
        };
        let key = ObjectKey::new("csi", format!("free-{number}"));
        cluster.capacities.insert(key, capacity);
    }
    for namespace in NAMESPACES {
        for number in 0..COUNT {
            let key = ObjectKey::new(namespace, format!("claim{number}"));
            let (claim, volume) = kind(number);
            let mut claim = claim;
            if let Some(volume) = volume {
                let name: Arc<str> = format!("pv-{namespace}-{number}").into();
                claim.volume = Some(name.clone());
                claim.bound = true;
                let handle = Some(format!("handle-{name}").into());
                let driver = Some(DRIVER.into());
                let volume = PersistentVolume {
                    driver,
                    handle,
                    ..volume
                };
                cluster.volumes.insert(name, volume);
            }
            cluster.claims.insert(key, claim);
        }
    }
    for (name, volume) in spare() {
        cluster.volumes.insert(name.into(), volume);
    }
    let attached = Attachment {
        node: "n1".into(),
        volume: Some("pv-default-0".into()),
        driver: DRIVER.into(),
    };
    cluster.attachments.insert("attached".into(), attached);
    lab
}

/// What the driver that says it has free for volumes, and where.
fn free() -> Vec<(Option<LabelSelector>, Option<i64>)> {
    let zone = |name: &str| LabelSelector {
        expressions: within(ZONE, &[name]).expressions,
        ..LabelSelector::default()
    };
    vec![
        (Some(zone("pve1")), Some(GI)),
        (Some(zone("pve2")), Some(4 * GI)),
        (Some(zone("pve3")), None),
        (None, Some(16 * GI)),
    ]
}

/// Volumes that are bound to no claim, few enough that pods compete for them.
fn spare() -> Vec<(&'static str, PersistentVolume)> {
    let volume = |class: &str, size: i64, terms: Option<NodeTerm>, change: &dyn Fn(&mut Free)| {
        let mut free = Free {
            class: class.into(),
            storage: size * GI,
            modes: vec!["ReadWriteOnce".into(), "ReadWriteMany".into()],
            available: true,
            ..Free::default()
        };
        change(&mut free);
        PersistentVolume {
            node_affinity: terms.map(|term| vec![term]),
            free: Some(Arc::new(free)),
            ..PersistentVolume::default()
        }
    };
    let plain = |_: &mut Free| {};
    let local = |name: &str, size: i64| PersistentVolume {
        local: true,
        ..volume("fixed", size, Some(within(HOSTNAME, &[name])), &plain)
    };
    let gold = |free: &mut Free| {
        free.labels.insert("tier".into(), "gold".into());
        free.modes.push("ReadWriteOncePod".into());
    };
    let kept = |free: &mut Free| {
        free.claim = Some(ObjectKey::new("default", "claim15"));
        free.available = false;
    };
    let other = |free: &mut Free| {
        free.claim = Some(ObjectKey::new("default", "claim13"));
        free.claim_uid = "gone".into();
    };
    let zone = |name: &str| Some(within(ZONE, &[name]));
    vec![
        ("spare-0", local("n0", 1)),
        ("spare-1", local("n0", 1)),
        ("spare-2", local("n1", 2)),
        ("spare-3", volume("fixed", 2, zone("pve2"), &plain)),
        ("spare-4", volume("fixed", 4, None, &plain)),
        ("spare-5", volume("fixed", 4, zone("pve1"), &gold)),
        ("spare-6", volume("fixed", 1, zone("pve1"), &kept)),
        ("spare-7", volume("fixed", 1, None, &other)),
        (
            "spare-8",
            volume("fixed", 1, None, &|free| free.block = true),
        ),
        ("spare-9", volume("fast", 1, zone("pve1"), &plain)),
        ("spare-10", volume("zoned", 8, zone("pve2"), &plain)),
        ("spare-12", volume("counted", 2, zone("pve3"), &plain)),
        (
            "spare-11",
            PersistentVolume {
                deleting: true,
                ..volume("fixed", 1, None, &plain)
            },
        ),
    ]
}

/// A claim that waits for its consumer, of a class, with a size in GiB.
fn waiting(class: &str, size: i64, change: impl FnOnce(&mut ClaimRequest)) -> Claim {
    let mut asks = ClaimRequest {
        uid: "claim".into(),
        storage: size * GI,
        modes: vec!["ReadWriteOnce".into()],
        ..ClaimRequest::default()
    };
    change(&mut asks);
    Claim {
        class: Some(class.into()),
        asks: Some(Arc::new(asks)),
        ..Claim::default()
    }
}

/// A claim of a kind, and its volume where it is bound.
fn kind(number: usize) -> (Claim, Option<PersistentVolume>) {
    let of = |class: &str| Claim {
        class: Some(class.into()),
        ..Claim::default()
    };
    let volume = |terms: Option<Vec<NodeTerm>>| PersistentVolume {
        node_affinity: terms,
        ..PersistentVolume::default()
    };
    match number {
        0 => (of("fast"), Some(volume(None))),
        1 => (
            of("zoned"),
            Some(volume(Some(vec![within(ZONE, &["pve2"])]))),
        ),
        2 => (of("zoned"), None),
        3 => (of("eager"), None),
        4 => (
            Claim {
                once_pod: true,
                ..of("fast")
            },
            Some(volume(None)),
        ),
        5 => {
            let terms = Some(vec![within(HOSTNAME, &["n0"])]);
            let local = PersistentVolume {
                local: true,
                ..volume(terms)
            };
            (of("fixed"), Some(local))
        }
        6 => (
            Claim {
                lost: true,
                ..of("fast")
            },
            None,
        ),
        7 => (
            Claim {
                selected_node: Some("n1".into()),
                ..of("fast")
            },
            None,
        ),
        8 => {
            let label = ZoneLabel {
                key: ZONE.into(),
                values: vec!["pve1".into(), "pve2".into()],
            };
            let zoned = PersistentVolume {
                zones: vec![label],
                ..volume(None)
            };
            (of("fast"), Some(zoned))
        }
        9 => (waiting("fixed", 100, |_| {}), None),
        12 | 13 => (waiting("fixed", 1, |_| {}), None),
        14 => (waiting("fixed", 3, |_| {}), None),
        // A volume is kept for it, in one of the namespaces.
        15 => (waiting("fixed", 1, |_| {}), None),
        16 => {
            let gold = LabelSelector {
                labels: [("tier".into(), "gold".into())].into(),
                ..LabelSelector::default()
            };
            (waiting("fixed", 1, |asks| asks.selector = Some(gold)), None)
        }
        17 => (waiting("fast", 1, |_| {}), None),
        18 => (waiting("zoned", 2, |_| {}), None),
        19 => {
            let claim = waiting("fixed", 2, |asks| {
                asks.modes = vec!["ReadWriteOncePod".into()];
            });
            let alone = Claim {
                once_pod: true,
                ..claim
            };
            (alone, None)
        }
        20 => (waiting("counted", 1, |_| {}), None),
        21 => (waiting("counted", 3, |_| {}), None),
        22 => (waiting("counted", 8, |_| {}), None),
        10 => (
            Claim {
                once_pod: true,
                ..of("fast")
            },
            None,
        ),
        _ => {
            let doomed = PersistentVolume {
                deleting: true,
                ..volume(None)
            };
            (of("fast"), Some(doomed))
        }
    }
}
