//! What there is comes first: working nodes, nodes that register, machines on their way, and pods
//! of nodes that are leaving.

use std::collections::BTreeMap;

use super::lab::{Lab, lab, made, owner, verdict, why};
use model::action::{Kind, Reason};
use model::cluster::{Phase, ReadyStatus};
use model::policy::LEAVING_TAINT;
use model::region::{Busy, Step};
use model::report::PodVerdict;
use model::scheduling::Taint;
use model::time::Span;

fn pool() -> Lab {
    lab().kind("one", 2, 4096).pool("p", &["one"])
}

fn created(lab: &Lab) -> usize {
    made(&lab.decide()).len()
}

#[test]
fn if_01_a_machine_on_its_way_has_room() {
    let mut lab = pool().pod("a", 10, 10);
    assert_eq!(made(&lab.turn()).len(), 1);
    let lab = lab.pod("b", 10, 10);
    let decision = lab.decide();
    assert!(decision.plan.is_empty());
    for pod in ["a", "b"] {
        assert!(matches!(
            verdict(&decision, pod),
            PodVerdict::FitsMachine { .. }
        ));
    }
}

#[test]
fn if_02_a_machine_on_its_way_has_its_zone() {
    let zone = |zone: &str| {
        pool()
            .machine("p-there", "p", "one", Step::Agent)
            .edit_machine("p-there", |machine| machine.busy = Some(Busy::Up))
            .pod("web", 10, 10)
            .shape("web", |shape| {
                shape
                    .node_selector
                    .insert("topology.kubernetes.io/zone".into(), zone.into());
            })
    };
    assert_eq!(created(&zone("pve1")), 0);
    assert_eq!(created(&zone("pve2")), 1);
}

#[test]
fn if_05_a_leaving_machine_is_no_place() {
    let lab = pool()
        .ours("n1", "p", "one")
        .edit_machine("n1", |machine| machine.busy = Some(Busy::Down))
        .pod("web", 10, 10);
    assert_eq!(created(&lab), 1);
}

/// A node of ours that has just registered, with what the kubelet and we put on it.
fn registering(pod: &str) -> Lab {
    pool()
        .edit_pool("p", |pool| {
            pool.startup_taints.push(Taint::no_schedule("cni", ""));
        })
        .machine("n1", "p", "one", Step::Initialize)
        .with(|lab| lab.register("n1", false))
        .edit_machine("n1", |machine| machine.busy = Some(Busy::Up))
        .edit_node("n1", |node| {
            node.ready.status = ReadyStatus::False;
            node.taints
                .push(Taint::no_schedule("node.kubernetes.io/not-ready", ""));
        })
        .pod(pod, 10, 10)
}

#[test]
fn if_08_if_10_taints_that_go_by_themselves() {
    let decision = registering("web").decide();
    assert!(decision.plan.is_empty());
    assert!(matches!(
        verdict(&decision, "web"),
        PodVerdict::FitsMachine { .. }
    ));
}

#[test]
fn if_11_a_startup_taint_that_came_back_counts() {
    let lab = pool()
        .edit_pool("p", |pool| {
            pool.startup_taints.push(Taint::no_schedule("cni", ""));
        })
        .ours("n1", "p", "one")
        .edit_node("n1", |node| node.taints.push(Taint::no_schedule("cni", "")))
        .pod("web", 10, 10);
    assert_eq!(created(&lab), 1);
}

#[test]
fn if_12_a_node_that_lost_contact_is_expected_back_for_a_while() {
    let lost = |ago: Span| {
        let lab = pool().ours("n1", "p", "one");
        let since = lab.now - ago;
        lab.edit_node("n1", |node| {
            node.ready.status = ReadyStatus::Unknown;
            node.ready.since = Some(since);
            node.taints
                .push(Taint::no_schedule("node.kubernetes.io/unreachable", ""));
        })
        .pod("web", 10, 10)
    };
    assert_eq!(created(&lost(Span::minutes(2))), 0);
    assert_eq!(created(&lost(Span::minutes(16))), 1);
}

#[test]
fn if_12_a_node_whose_host_is_off_is_not_expected_back() {
    let lab = pool().ours("n1", "p", "one");
    let since = lab.now;
    let lost = lab
        .edit_node("n1", |node| {
            node.ready.status = ReadyStatus::Unknown;
            node.ready.since = Some(since);
            node.taints
                .push(Taint::no_schedule("node.kubernetes.io/unreachable", ""));
        })
        .pod("web", 10, 10);
    assert_eq!(created(&lost), 0);
    let off = lost.with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        region.hosts.get_mut("pve1").expect("pve1").online = false;
        region.templates.get_mut("debian").expect("debian")[0].host = "pve2".into();
    });
    assert_eq!(created(&off), 1);
}

#[test]
fn if_12_a_node_that_is_given_up_does_not_count_for_the_min() {
    let lost = |ago: Span, host_on: bool| {
        let lab = pool().ours("n1", "p", "one");
        let lab = lab.edit_pool("p", |pool| pool.min = 1);
        let since = lab.now - ago;
        let lab = lab.edit_node("n1", |node| {
            node.ready.status = ReadyStatus::Unknown;
            node.ready.since = Some(since);
        });
        lab.with(|lab| {
            let region = lab.snapshot.regions.get_mut("home").expect("home");
            region.hosts.get_mut("pve1").expect("pve1").online = host_on;
            if !host_on {
                region.templates.get_mut("debian").expect("debian")[0].host = "pve2".into();
            }
        })
    };
    assert_eq!(created(&lost(Span::minutes(2), true)), 0);
    for lab in [lost(Span::minutes(16), true), lost(Span::minutes(2), false)] {
        let decision = lab.decide();
        let action = &decision.plan[0];
        assert_eq!(
            action.reason,
            Reason::BelowMin {
                have: 0,
                min: 1,
                pods: Vec::new(),
                in_place_of: BTreeMap::new(),
            }
        );
        let verdict = crate::check::check(action, &lab.snapshot, &lab.policy, lab.now);
        assert_eq!(verdict, Ok(()));
    }
}

/// A pool of a fixed size has no room for another node beside the dead one.
#[test]
fn a_dead_node_of_a_pool_at_its_min_and_max_is_replaced() {
    let mut lab = pool().ours("n1", "p", "one").ours("n2", "p", "one");
    lab = lab.edit_pool("p", |pool| (pool.min, pool.max) = (2, 2));
    lab.policy.scale_down.ok_total_unready = 3;
    let since = lab.now;
    lab = lab.edit_node("n1", |node| {
        node.ready.status = ReadyStatus::Unknown;
        node.ready.since = Some(since);
    });
    let (mut gone, mut made) = (Vec::new(), 0);
    for _ in 0..60 {
        let decision = lab.turn();
        for action in &decision.plan {
            match action.kind {
                Kind::Remove { .. } => gone.push(action.target.machine.to_string()),
                Kind::Create(_) => made += 1,
                _ => {}
            }
        }
        lab.settle();
        lab = lab.after(Span::minutes(1));
    }
    assert_eq!((gone, made), (vec!["n1".to_owned()], 1));
    // It is not one of those that the min keeps: who works stays.
    let mut lab = pool().ours("n1", "p", "one").ours("n2", "p", "one");
    lab = lab.edit_pool("p", |pool| (pool.min, pool.max) = (1, 2));
    let long_ago = lab.now - Span::minutes(60);
    lab = lab.edit_node("n1", |node| {
        node.ready.status = ReadyStatus::Unknown;
        node.ready.since = Some(long_ago);
    });
    for _ in 0..60 {
        let decision = lab.turn();
        let of_n2 = |action: &&model::action::Action| &*action.target.machine == "n2";
        assert_eq!(decision.plan.iter().find(of_n2), None);
        lab = lab.after(Span::minutes(1));
    }
}

#[test]
fn if_14_pods_that_run_are_counted_whatever_they_are() {
    let lab = pool()
        .ours("n1", "p", "one")
        .bound("agent", "n1", 1000, 100)
        .shape("agent", |shape| {
            shape.owner = Some(owner("DaemonSet", "agent"));
        })
        .pod("web", 1500, 10);
    assert_eq!(created(&lab), 1);
}

#[test]
fn if_17_a_device_that_has_not_come_up_yet_is_still_promised() {
    let gpu = |working: bool| {
        pool()
            .edit_kind("one", |kind| {
                kind.extended.insert("nvidia.com/gpu".into(), 1);
            })
            .machine("n1", "p", "one", Step::Initialize)
            .with(|lab| lab.register("n1", working))
            .edit_machine("n1", |machine| machine.busy = Some(Busy::Up))
            .edit_node("n1", |node| node.allocatable.extended.clear())
            .pod("ml", 10, 10)
            .shape("ml", |shape| {
                shape.requests.extended.insert("nvidia.com/gpu".into(), 1);
            })
    };
    assert!(matches!(
        verdict(&gpu(false).decide(), "ml"),
        PodVerdict::FitsMachine { .. }
    ));
    // Once the node works without it, that is the truth, and another would be no better.
    assert!(matches!(
        verdict(&gpu(true).decide(), "ml"),
        PodVerdict::NoCompatiblePool { .. }
    ));
}

#[test]
fn if_18_followers_join_the_zone_of_a_machine_on_its_way() {
    let lab = pool().pods("web", 1, 1500, 10).shapes("web", |shape| {
        shape.pod_affinity.push(model::scheduling::PodTerm {
            selector: Some(model::scheduling::LabelSelector {
                labels: [("app".into(), "web".into())].into(),
                ..Default::default()
            }),
            topology_key: "topology.kubernetes.io/zone".into(),
            ..Default::default()
        });
    });
    let mut lab = lab;
    let first = lab.turn().plan[0].target.host.clone();
    let pod = lab
        .snapshot
        .cluster
        .pods
        .values()
        .next()
        .expect("one")
        .clone();
    let key = model::cluster::ObjectKey::new("default", "web-1");
    lab.snapshot.cluster.pods.insert(
        key,
        model::cluster::Pod {
            uid: "uid-2".into(),
            ..pod
        },
    );
    let decision = lab.decide();
    assert_eq!(made(&decision).len(), 1);
    assert_eq!(decision.plan[0].target.host, first);
}

#[test]
fn if_20_nodes_of_others_have_room_too() {
    let lab = pool().node("old", 1000, 4096).pods("web", 4, 250, 10);
    assert_eq!(created(&lab), 0);
    assert_eq!(created(&lab.pods("more", 1, 250, 10)), 1);
}

/// Which of some pods, in this order of age, call for a machine on a node with so much free.
fn called(free: i64, pods: &[i64]) -> Vec<usize> {
    let mut lab = pool().node("old", free, 4096);
    for (n, milli) in pods.iter().enumerate() {
        lab = lab.pod(&format!("pod{n}"), *milli, 1);
    }
    let decision = lab.decide();
    (0..pods.len())
        .filter(|n| {
            matches!(
                verdict(&decision, &format!("pod{n}")),
                PodVerdict::Triggers { .. }
            )
        })
        .collect()
}

#[test]
fn if_21_to_if_25_first_come_first_placed() {
    assert_eq!(called(2000, &[200, 500, 800]), Vec::<usize>::new());
    assert_eq!(called(2000, &[200, 500, 1800]), [2]);
    assert_eq!(called(1500, &[1000, 300, 300]), [2]);
    assert_eq!(called(500, &[1000, 300, 300]), [0, 2]);
}

#[test]
fn if_27_a_nominated_pod_is_placed() {
    let lab = pool()
        .node("old", 1000, 4096)
        .bound("victim", "old", 1000, 10)
        .pod("web", 1000, 10)
        .edit("web", |pod| pod.nominated = Some("old".into()));
    let decision = lab.decide();
    assert!(decision.plan.is_empty());
    assert!(matches!(
        verdict(&decision, "web"),
        PodVerdict::FitsNode { .. }
    ));
    // A nomination for a node that is gone is none.
    let gone = lab.edit("web", |pod| pod.nominated = Some("gone".into()));
    assert_eq!(created(&gone), 1);
}

#[test]
fn if_28_expendable_pods_never_call() {
    let with = |priority| {
        pool()
            .pod("web", 10, 10)
            .shape("web", |shape| shape.priority = priority)
    };
    assert_eq!(created(&with(-11)), 0);
    assert_eq!(created(&with(-10)), 1);
}

#[test]
fn if_30_a_pool_that_backs_off_gets_nothing_and_says_so() {
    let mut lab = pool().pod("web", 10, 10);
    let until = lab.now + Span::minutes(5);
    lab.memory.version = model::memory::VERSION;
    lab.memory.backoff.insert(
        "p".into(),
        model::memory::Backoff {
            advice: None,
            until,
            length: Span::minutes(5),
            failed: lab.now,
            message: "storage is full".into(),
        },
    );
    let decision = lab.decide();
    assert!(decision.plan.is_empty());
    assert!(why(&decision, "web", "p/one").starts_with("the pool backs off until"));
    assert_eq!(decision.wake, Some(until));
    assert_eq!(decision.report.pools["p"].backoff_until, Some(until));
    assert_eq!(created(&lab.after(Span::minutes(5))), 1);
}

#[test]
fn if_32_a_pod_may_ask_to_wait() {
    let lab = pool().pod("web", 10, 10).shape("web", |shape| {
        shape.annotations.insert(
            "cluster-autoscaler.kubernetes.io/pod-scale-up-delay".into(),
            "30s".into(),
        );
    });
    let due = lab.now + Span::seconds(30);
    assert_eq!(lab.decide().wake, Some(due));
    assert_eq!(created(&lab), 0);
    assert_eq!(created(&lab.after(Span::seconds(30))), 1);
}

#[test]
fn if_33_all_young_pods_wait_and_an_annotation_only_lengthens_it() {
    let mut lab = pool().pod("web", 10, 10);
    lab.policy.scale_up.new_pod_delay = Span::seconds(20);
    let after = |lab: &Lab, text: &str, seconds| {
        let asks = lab.clone().shape("web", |shape| {
            let key = "cluster-autoscaler.kubernetes.io/pod-scale-up-delay";
            shape.annotations.insert(key.into(), text.into());
        });
        created(&asks.after(Span::seconds(seconds)))
    };
    assert_eq!(lab.decide().wake, Some(lab.now + Span::seconds(20)));
    assert_eq!(created(&lab), 0);
    assert_eq!(created(&lab.clone().after(Span::seconds(20))), 1);
    assert_eq!((after(&lab, "10s", 19), after(&lab, "10s", 20)), (0, 1));
    assert_eq!((after(&lab, "30s", 29), after(&lab, "30s", 30)), (0, 1));
    assert_eq!((after(&lab, "soon", 19), after(&lab, "soon", 20)), (0, 1));
}

/// A node of ours that is being drained, with one pod.
fn draining() -> Lab {
    pool()
        .ours("n1", "p", "one")
        .edit_machine("n1", |machine| machine.busy = Some(Busy::Down))
        .edit_node("n1", |node| {
            node.taints.push(Taint::no_schedule(LEAVING_TAINT, "0"));
        })
        .bound("web", "n1", 100, 10)
}

#[test]
fn dl_01_pods_of_a_leaving_node_are_counted() {
    let decision = draining().decide();
    assert_eq!(made(&decision).len(), 1);
    assert!(matches!(decision.plan[0].kind, Kind::Create(_)));
    assert_eq!(created(&draining().node("old", 1000, 4096)), 0);
}

#[test]
fn dl_02_dl_04_dl_05_which_of_them_come_back() {
    let ended = draining().edit("web", |pod| pod.phase = Phase::Succeeded);
    assert_eq!(created(&ended), 0);
    let evicted = || draining().edit("web", |pod| pod.deletion = Some(pod.created));
    assert_eq!(created(&evicted()), 0, "its ReplicaSet has made another");
    let stateful = evicted().shape("web", |shape| {
        shape.owner = Some(owner("StatefulSet", "web"));
    });
    assert_eq!(created(&stateful), 1, "the next one waits for it");
    let naked = draining().shape("web", |shape| shape.owner = None);
    assert_eq!(created(&naked), 0, "nobody makes it anew");
}

#[test]
fn nx_11_a_node_that_came_up_smaller_is_a_lesson() {
    let mut lab = pool().pod("web", 100, 4000);
    assert_eq!(made(&lab.turn()).len(), 1);
    lab.settle();
    let name = lab
        .snapshot
        .machines
        .keys()
        .next()
        .expect("one")
        .to_string();
    let lab = lab.edit_node(&name, |node| node.allocatable.memory -= 200 << 20);
    let mut lab = lab;
    let decision = lab.turn();
    assert!(
        decision.plan.is_empty(),
        "no second node that is too small as well"
    );
    assert_eq!(
        why(&decision, "web", "p/one"),
        "memory: asks 3.9Gi, a node offers 3.8Gi after DaemonSets"
    );
    // It stays learned when the node is gone, and ends with another promise.
    lab.snapshot.machines.clear();
    lab.snapshot.cluster.nodes.clear();
    lab.snapshot
        .regions
        .get_mut("home")
        .expect("home")
        .vms
        .clear();
    assert_eq!(created(&lab), 0);
    assert_eq!(created(&lab.kind("one", 2, 5000)), 1);
}

#[test]
fn huge_pages_that_a_node_does_not_show_yet_are_no_memory_of_its_pods() {
    let coming = |shown: bool| {
        pool()
            .edit_kind("one", |kind| {
                kind.extended.insert("hugepages-2Mi".into(), 1 << 30);
            })
            .machine("n1", "p", "one", Step::Initialize)
            .with(|lab| lab.register("n1", false))
            .edit_machine("n1", |machine| machine.busy = Some(Busy::Up))
            .edit_node("n1", |node| {
                if shown {
                    node.allocatable.memory -= 1 << 30;
                } else {
                    node.allocatable.extended.clear();
                }
            })
    };
    for shown in [true, false] {
        let fits = coming(shown).pod("web", 100, 3072).decide();
        assert!(
            matches!(verdict(&fits, "web"), PodVerdict::FitsMachine { .. }),
            "{shown}: {:?}",
            verdict(&fits, "web")
        );
        let larger = coming(shown).pod("web", 100, 3073).decide();
        assert!(
            matches!(verdict(&larger, "web"), PodVerdict::NoCompatiblePool { .. }),
            "{shown}: {:?}",
            verdict(&larger, "web")
        );
    }
    // Of a node that works, what it says is the truth: it has no huge pages, and all memory.
    let lab = pool()
        .edit_kind("one", |kind| {
            kind.extended.insert("hugepages-2Mi".into(), 1 << 30);
        })
        .ours("n1", "p", "one")
        .edit_node("n1", |node| node.allocatable.extended.clear());
    assert!(matches!(
        verdict(&lab.pod("web", 100, 3073).decide(), "web"),
        PodVerdict::FitsNode { .. }
    ));
}

#[test]
fn a_static_pod_is_part_of_the_lesson() {
    let mut lab = pool().pod("web", 1500, 100);
    lab.turn();
    lab.settle();
    let name = lab
        .snapshot
        .machines
        .keys()
        .next()
        .expect("one")
        .to_string();
    let lab = lab
        .bound("proxy", &name, 1000, 100)
        .edit("proxy", |pod| pod.mirror = true);
    let decision = lab.decide();
    assert!(decision.plan.is_empty());
    assert_eq!(
        why(&decision, "web", "p/one"),
        "cpu: asks 1.5, a node offers 1 after DaemonSets"
    );
}

#[test]
fn daemonsets_of_a_coming_node_are_counted_before_they_run() {
    let lab = pool()
        .daemon("agent", 500, 100)
        .machine("n1", "p", "one", Step::Initialize)
        .with(|lab| lab.register("n1", false))
        .edit_machine("n1", |machine| machine.busy = Some(Busy::Up));
    assert_eq!(created(&lab.clone().pod("web", 1500, 10)), 0);
    assert!(matches!(
        verdict(&lab.pod("web", 1600, 10).decide(), "web"),
        PodVerdict::NoCompatiblePool { .. }
    ));
}
