//! Claims of every kind, the same in each namespace.

use std::sync::Arc;

use super::{DRIVER, NAMESPACES, ZONE};
use crate::brain::tests::lab::Lab;
use crate::model::cluster::{Attachment, Claim, PersistentVolume, PodKey, StorageClass, ZoneLabel};
use crate::model::scheduling::{NodeTerm, Operator, Requirement};

/// How many kinds there are: `claim0` and on.
pub(super) const COUNT: usize = 12;

pub(super) fn within(key: &str, values: &[&str]) -> NodeTerm {
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
    let cluster = &mut lab.snapshot.cluster;
    for (name, class) in [
        ("fast", dynamic(true, vec![])),
        (
            "zoned",
            dynamic(true, vec![within(ZONE, &["pve1", "pve3"])]),
        ),
        ("eager", dynamic(false, vec![])),
        ("fixed", fixed),
    ] {
        cluster.storage_classes.insert(name.into(), class);
    }
    for namespace in NAMESPACES {
        for number in 0..COUNT {
            let key = PodKey::new(namespace, format!("claim{number}"));
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
    let attached = Attachment {
        node: "n1".into(),
        volume: Some("pv-default-0".into()),
        driver: DRIVER.into(),
    };
    cluster.attachments.insert("attached".into(), attached);
    lab
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
            let terms = Some(vec![within("kubernetes.io/hostname", &["n0"])]);
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
        9 => (of("fixed"), None),
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
