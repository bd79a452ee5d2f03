//! One planted bug for each filter that the checker asks of pods and their new places.

use std::sync::Arc;

use super::{Bug, creation, decided, planted, pool, removal};
use crate::check::{CheckRule, check};
use crate::tests::lab::Lab;
use model::action::Action;
use model::cluster::{
    Claim, Free, ObjectKey, PersistentVolume, StorageCapacity, StorageClass, ZoneLabel,
};
use model::scheduling::{
    HostPort, LabelSelector, NodeTerm, Operator, PodShape, PodTerm, Requirement, Taint, Volume,
};

const DRIVER: &str = "csi.example.com";
const ZONE: &str = "topology.kubernetes.io/zone";

fn shape(lab: &mut Lab, pod: &str, change: impl FnOnce(&mut PodShape)) {
    *lab = lab.clone().shape(pod, change);
}

/// A pod's claim that is bound to a volume of a driver with limits.
fn claim(lab: &mut Lab, pod: &str, name: &str, change: impl FnOnce(&mut PersistentVolume)) {
    shape(lab, pod, |shape| {
        shape.volumes.push(Volume::Claim(name.into()));
    });
    let mut volume = PersistentVolume {
        driver: Some(DRIVER.into()),
        handle: Some(format!("handle-{name}").into()),
        ..PersistentVolume::default()
    };
    change(&mut volume);
    let claim = Claim {
        volume: Some(format!("pv-{name}").into()),
        bound: true,
        ..Claim::default()
    };
    let cluster = &mut lab.snapshot.cluster;
    cluster.volumes.insert(format!("pv-{name}").into(), volume);
    cluster
        .claims
        .insert(ObjectKey::new("default", name), claim);
}

fn once(lab: &mut Lab, name: &str) {
    let claim = lab
        .snapshot
        .cluster
        .claims
        .get_mut(&ObjectKey::new("default", name));
    claim.expect("just made").once_pod = true;
}

fn port(shape: &mut PodShape) {
    shape.host_ports.push(HostPort {
        protocol: "UDP".into(),
        ip: "".into(),
        port: 53,
    });
}

fn averse(shape: &mut PodShape) {
    shape.pod_anti_affinity.push(PodTerm {
        selector: Some(LabelSelector::default()),
        topology_key: "kubernetes.io/hostname".into(),
        ..PodTerm::default()
    });
}

fn zone(value: &str) -> NodeTerm {
    NodeTerm {
        expressions: vec![Requirement {
            key: ZONE.into(),
            operator: Operator::In,
            values: vec![value.into()],
        }],
        ..NodeTerm::default()
    }
}

/// Bugs of one pod's volumes that no node can mend.
fn broken(base: &(Lab, Action), rule: CheckRule) {
    let broken: [Bug<'_>; 6] = [
        &|lab, _| {
            claim(lab, "web", "data", |pv| {
                pv.node_affinity = Some(vec![zone("mars")]);
            });
        },
        &|lab, _| {
            claim(lab, "web", "data", |_| {});
            lab.snapshot.cluster.volumes.clear();
        },
        &|lab, _| {
            claim(lab, "web", "data", |_| {});
            for claim in lab.snapshot.cluster.claims.values_mut() {
                claim.lost = true;
            }
        },
        &|lab, _| {
            shape(lab, "web", |shape| {
                shape.volumes.push(Volume::Claim("missing".into()));
            });
        },
        &|lab, _| {
            shape(lab, "web", |shape| {
                shape.volumes.push(Volume::Ephemeral {
                    name: "scratch".into(),
                    class: Some("missing".into()),
                });
            });
        },
        &|lab, _| {
            *lab = lab
                .clone()
                .node("third", 100, 100)
                .bound("user", "third", 1, 1);
            claim(lab, "web", "data", |_| {});
            shape(lab, "user", |shape| {
                shape.volumes.push(Volume::Claim("data".into()));
            });
            once(lab, "data");
        },
    ];
    for bug in broken {
        planted(base, rule, bug);
    }
}

#[test]
fn a_new_machine_could_run_the_pods_it_is_for() {
    let base = creation();
    planted(&base, CheckRule::Unfit, &|lab, _| {
        let pool = lab.policy.pools.get_mut("p").expect("p");
        pool.taints.push(Taint::no_schedule("team", "x"));
    });
    planted(&base, CheckRule::Unfit, &|lab, _| {
        shape(lab, "web", |shape| {
            shape.node_selector.insert(ZONE.into(), "mars".into());
        });
    });
    planted(&base, CheckRule::Unfit, &|lab, _| {
        shape(lab, "web", |shape| {
            shape.node_affinity = Some(vec![zone("mars"), NodeTerm::default()]);
        });
    });
    planted(&base, CheckRule::Unfit, &|lab, _| {
        shape(lab, "web", |shape| shape.requests.cpu_milli = 2001);
    });
    planted(&base, CheckRule::Unfit, &|lab, _| {
        shape(lab, "web", |shape| {
            shape.requests.extended.insert("example.com/gpu".into(), 1);
        });
    });
    planted(&base, CheckRule::Unfit, &|lab, _| {
        // Each fits, and the pages are part of the machine's 4 GiB.
        let kind = lab.policy.instance_types.get_mut("one").expect("one");
        kind.extended.insert("hugepages-2Mi".into(), 2 << 30);
        shape(lab, "web", |shape| {
            shape.requests.memory = 3 << 30;
            let pages = &mut shape.requests.extended;
            pages.insert("hugepages-2Mi".into(), 2 << 30);
        });
    });
    planted(&base, CheckRule::Unfit, &|lab, _| {
        lab.policy.instance_types.get_mut("one").expect("one").disk = 1 << 30;
        shape(lab, "web", |shape| shape.requests.ephemeral = 2 << 30);
    });
    planted(&base, CheckRule::Unfit, &|lab, _| {
        lab.policy.pools.get_mut("p").expect("p").max_pods = 0;
    });
    planted(&base, CheckRule::Unfit, &|lab, _| {
        claim(lab, "web", "data", |pv| pv.local = true);
    });
    broken(&base, CheckRule::Unfit);
}

#[test]
fn the_pods_of_a_new_machine_bear_one_another() {
    let base = decided(pool().pods("web", 2, 100, 100));
    planted(&base, CheckRule::Unfit, &|lab, _| {
        shape(lab, "web-0", port);
        shape(lab, "web-1", port);
    });
    planted(&base, CheckRule::Unfit, &|lab, _| {
        shape(lab, "web-1", averse);
    });
    planted(&base, CheckRule::Unfit, &|lab, _| {
        claim(lab, "web-0", "data", |_| {});
        claim(lab, "web-1", "data", |_| {});
        once(lab, "data");
    });
    planted(&base, CheckRule::Unfit, &|lab, _| {
        for pod in ["web-0", "web-1"] {
            shape(lab, pod, |shape| shape.requests.memory = 3 << 30);
        }
    });
    // One volume more than a node can attach: as the type says, and as a node of the pool says.
    let volumes = |lab: &mut Lab| {
        claim(lab, "web-0", "a", |_| {});
        claim(lab, "web-1", "b", |_| {});
    };
    planted(&base, CheckRule::Unfit, &|lab, _| {
        volumes(lab);
        let kind = lab.policy.instance_types.get_mut("one").expect("one");
        kind.attach_limits.insert(DRIVER.into(), 1);
    });
    planted(&base, CheckRule::Unfit, &|lab, action| {
        volumes(lab);
        *lab = lab.clone().ours("n1", "p", "one");
        let limits = [(Arc::from(DRIVER), Some(1))].into();
        lab.snapshot.cluster.csi_nodes.insert("n1".into(), limits);
        // That node has taken the VMID.
        action.target.vmid = 9100;
        super::spec(action).mark.vmid = 9100;
        super::spec(action).mark.token = "009100".into();
    });
}

/// Both pods wait with a claim of their own, and there are so many volumes.
fn waiting(lab: &mut Lab, volumes: usize, change: impl Fn(&mut PersistentVolume, &mut Free)) {
    let class = StorageClass {
        provisioner: "kubernetes.io/no-provisioner".into(),
        wait_for_consumer: true,
        ..StorageClass::default()
    };
    for (pod, name) in [("web-0", "a"), ("web-1", "b")] {
        shape(lab, pod, |shape| {
            shape.volumes.push(Volume::Claim(name.into()));
        });
        let claim = Claim {
            class: Some("local".into()),
            asks: Some(Arc::default()),
            ..Claim::default()
        };
        let claims = &mut lab.snapshot.cluster.claims;
        claims.insert(ObjectKey::new("default", name), claim);
    }
    let cluster = &mut lab.snapshot.cluster;
    cluster.storage_classes.insert("local".into(), class);
    for number in 0..volumes {
        let mut free = Free {
            class: "local".into(),
            available: true,
            ..Free::default()
        };
        let mut volume = PersistentVolume::default();
        change(&mut volume, &mut free);
        volume.free = Some(Arc::new(free));
        let name = format!("free-{number}");
        cluster.volumes.insert(name.into(), volume);
    }
}

#[test]
fn claims_that_wait_count_on_a_volume_each() {
    let base = decided(pool().pods("web", 2, 100, 100));
    let (mut lab, action) = base.clone();
    waiting(&mut lab, 2, |_, _| {});
    let fine = check(&action, &lab.snapshot, &lab.policy, lab.now);
    assert_eq!(fine, Ok(()));
    planted(&base, CheckRule::Unfit, &|lab, _| {
        waiting(lab, 1, |_, _| {});
    });
    planted(&base, CheckRule::Unfit, &|lab, _| {
        waiting(lab, 0, |_, _| {});
    });
    let amiss: [fn(&mut PersistentVolume, &mut Free); 8] = [
        |volume, _| volume.local = true,
        |volume, _| volume.deleting = true,
        |volume, _| volume.node_affinity = Some(vec![zone("mars")]),
        |_, free| free.storage = -1,
        |_, free| free.class = "other".into(),
        |_, free| free.available = false,
        |_, free| free.block = true,
        |_, free| free.claim = Some(ObjectKey::new("default", "c")),
    ];
    for change in amiss {
        planted(&base, CheckRule::Unfit, &|lab, _| waiting(lab, 2, change));
    }
}

/// Both pods wait with a claim whose volume is to be made by a driver that says it has so much free, and where.
fn counted(lab: &mut Lab, largest: i64, nodes: Option<&[(&str, &str)]>) {
    waiting(lab, 0, |_, _| {});
    let cluster = &mut lab.snapshot.cluster;
    let class = StorageClass {
        provisioner: DRIVER.into(),
        wait_for_consumer: true,
        ..StorageClass::default()
    };
    cluster.storage_classes.insert("local".into(), class);
    cluster.csi_drivers.insert(DRIVER.into(), true);
    let labels = |all: &[(&str, &str)]| LabelSelector {
        labels: all
            .iter()
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect(),
        ..LabelSelector::default()
    };
    let capacity = StorageCapacity {
        class: "local".into(),
        nodes: nodes.map(labels),
        largest: Some(largest),
    };
    let key = ObjectKey::new("csi", "free");
    cluster.capacities.insert(key, capacity);
}

#[test]
fn volumes_are_made_where_there_is_room() {
    let base = decided(pool().pods("web", 2, 100, 100));
    let (mut lab, action) = base.clone();
    counted(&mut lab, 0, Some(&[]));
    let fine = check(&action, &lab.snapshot, &lab.policy, lab.now);
    assert_eq!(fine, Ok(()));
    planted(&base, CheckRule::Unfit, &|lab, _| {
        counted(lab, -1, Some(&[]));
    });
    planted(&base, CheckRule::Unfit, &|lab, _| counted(lab, 0, None));
    let elsewhere: &[(&str, &str)] = &[(ZONE, "mars")];
    planted(&base, CheckRule::Unfit, &|lab, _| {
        counted(lab, 0, Some(elsewhere));
    });
    planted(&base, CheckRule::Unfit, &|lab, _| {
        counted(lab, 0, Some(&[]));
        lab.snapshot.cluster.capacities.clear();
    });
}

#[test]
fn a_pod_lands_where_its_volumes_let_it() {
    let base = removal();
    broken(&base, CheckRule::Landing);
    planted(&base, CheckRule::Landing, &|lab, _| {
        claim(lab, "web", "data", |_| {});
        *lab = lab.clone().bound("user", "other", 1, 1);
        claim(lab, "user", "more", |_| {});
        let limits = [(Arc::from(DRIVER), Some(1))].into();
        lab.snapshot
            .cluster
            .csi_nodes
            .insert("other".into(), limits);
    });
    planted(&base, CheckRule::Landing, &|lab, _| {
        let label = ZoneLabel {
            key: ZONE.into(),
            values: vec!["pve1".into()],
        };
        claim(lab, "web", "data", |pv| pv.zones.push(label));
        *lab = lab.clone().edit_node("other", |node| {
            node.labels.insert(ZONE.into(), "pve2".into());
        });
    });
    planted(&base, CheckRule::Landing, &|lab, _| {
        shape(lab, "web", |shape| shape.requests.ephemeral = 21 << 30);
    });
    planted(&base, CheckRule::Landing, &|lab, _| {
        *lab = lab
            .clone()
            .edit_node("other", |node| node.allocatable.pods = 0);
    });
}
