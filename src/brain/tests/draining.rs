//! Drain rules, one pod at a time: what it does to the removal of its node.

use std::sync::Arc;

use super::lab::{Lab, kept, lab, owner, removed};
use model::cluster::{ObjectKey, Phase, Pod};
use model::scheduling::Volume;
use model::time::Span;

const SAFE: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";

/// An underused node `n1` with one pod, beside another with room; the pod is in this namespace.
fn node_with(namespace: &str, change: impl FnOnce(&mut Pod)) -> Lab {
    let mut lab = lab()
        .kind("one", 1, 1024)
        .pool("p", &["one"])
        .ours("n1", "p", "one")
        .node("other", 4000, 4096)
        .bound("web", "n1", 100, 1)
        .edit("web", change);
    let pods = &mut lab.snapshot.cluster.pods;
    let pod = pods
        .remove(&ObjectKey::new("default", "web"))
        .expect("just made");
    pods.insert(ObjectKey::new(namespace, "web"), pod);
    lab
}

/// What the decision after eleven minutes says of the node: `goes`, or the reason for which it stays.
fn outcome(lab: Lab) -> String {
    let mut lab = lab;
    lab.turn();
    let decision = lab.after(Span::minutes(11)).decide();
    if removed(&decision) == ["n1"] {
        "goes".to_owned()
    } else {
        kept(&decision, "n1").to_owned()
    }
}

fn owned(kind: &'static str) -> impl FnOnce(&mut Pod) {
    move |pod| {
        Arc::make_mut(&mut pod.shape).owner = (!kind.is_empty()).then(|| owner(kind, "web"));
    }
}

fn annotated(key: &'static str, value: &'static str) -> impl Fn(&mut Pod) {
    move |pod| {
        Arc::make_mut(&mut pod.shape)
            .annotations
            .insert(key.into(), value.into());
    }
}

fn local(pod: &mut Pod) {
    Arc::make_mut(&mut pod.shape)
        .volumes
        .push(Volume::EmptyDir("cache".into()));
}

fn default(change: impl FnOnce(&mut Pod)) -> String {
    outcome(node_with("default", change))
}

#[test]
fn dr_01_dr_02_controllers() {
    assert_eq!(default(owned("")), "NotReplicated");
    for kind in ["ReplicaSet", "ReplicationController", "StatefulSet", "Job"] {
        assert_eq!(default(owned(kind)), "goes", "{kind}");
    }
    assert_eq!(default(owned("MyController")), "NotReplicated");
    let lab = node_with("default", owned("MyController"));
    let lab = lab.with(|lab| lab.policy.scale_down.skip_custom_controllers = false);
    assert_eq!(outcome(lab), "goes");
}

#[test]
fn dr_04_dr_05_daemonset_and_static_pods_never_block() {
    assert_eq!(default(owned("DaemonSet")), "goes");
    assert_eq!(
        default(|pod| {
            owned("")(pod);
            annotated("cluster-autoscaler.kubernetes.io/daemonset-pod", "true")(pod);
        }),
        "goes"
    );
    assert_eq!(
        default(|pod| {
            owned("")(pod);
            pod.mirror = true;
        }),
        "goes"
    );
}

#[test]
fn dr_07_dr_08_dr_10_system_pods() {
    let system = |age: Span| {
        let lab = node_with("kube-system", |_| {});
        let created = lab.now - age;
        let mut lab = lab;
        let key = ObjectKey::new("kube-system", "web");
        lab.snapshot
            .cluster
            .pods
            .get_mut(&key)
            .expect("there")
            .created = created;
        lab
    };
    assert_eq!(outcome(system(Span::minutes(10))), "UnmovableKubeSystemPod");
    assert_eq!(outcome(system(Span::minutes(61))), "goes");
    let budget = |app: &str| {
        let mut lab = system(Span::minutes(10)).budget("b", app, 1);
        let budgets = &mut lab.snapshot.cluster.budgets;
        let budget = budgets
            .remove(&ObjectKey::new("default", "b"))
            .expect("just made");
        budgets.insert(ObjectKey::new("kube-system", "b"), budget);
        outcome(lab)
    };
    assert_eq!(budget("web"), "goes");
    assert_eq!(budget("other"), "UnmovableKubeSystemPod");
}

#[test]
fn dr_11_local_storage() {
    assert_eq!(default(local), "LocalStorageRequested");
    let host_path = |pod: &mut Pod| {
        Arc::make_mut(&mut pod.shape)
            .volumes
            .push(Volume::HostPath("var".into()));
    };
    assert_eq!(default(host_path), "LocalStorageRequested");
    let excused = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";
    assert_eq!(
        default(|pod| {
            local(pod);
            annotated(excused, "other, cache")(pod);
        }),
        "goes"
    );
    let lab = node_with("default", local);
    assert_eq!(
        outcome(lab.with(|lab| lab.policy.scale_down.skip_local_storage = false)),
        "goes"
    );
}

#[test]
fn dr_14_dr_15_safe_to_evict() {
    let safe = annotated(SAFE, "true");
    assert_eq!(
        default(|pod| {
            owned("")(pod);
            safe(pod);
        }),
        "goes"
    );
    assert_eq!(
        default(|pod| {
            local(pod);
            safe(pod);
        }),
        "goes"
    );
    assert_eq!(outcome(node_with("kube-system", safe)), "goes");
    assert_eq!(
        default(annotated(SAFE, "false")),
        "NotSafeToEvictAnnotation"
    );
    assert_eq!(
        default(annotated("karpenter.sh/do-not-disrupt", "true")),
        "NotSafeToEvictAnnotation"
    );
}

#[test]
fn dr_17_dr_24_cn_28_nx_02_budgets() {
    let with = |allowed| node_with("default", |_| {}).budget("b", "web", allowed);
    assert_eq!(outcome(with(1)), "goes");
    assert_eq!(outcome(with(0)), "NotEnoughPdb");
    assert_eq!(outcome(with(1).budget("c", "web", 1)), "NotEnoughPdb");
    assert_eq!(outcome(with(1).budget("c", "other", 0)), "goes");
    let safe = with(0).edit("web", annotated(SAFE, "true"));
    assert_eq!(outcome(safe), "NotEnoughPdb");
    let selects_nothing = with(0).with(|lab| {
        for budget in lab.snapshot.cluster.budgets.values_mut() {
            budget.selector = None;
        }
    });
    assert_eq!(outcome(selects_nothing), "goes");
    // CN-07: a budget of another namespace.
    let mut elsewhere = with(0);
    let budgets = &mut elsewhere.snapshot.cluster.budgets;
    let budget = budgets
        .remove(&ObjectKey::new("default", "b"))
        .expect("just made");
    budgets.insert(ObjectKey::new("elsewhere", "b"), budget);
    assert_eq!(outcome(elsewhere), "goes");
    let sick = with(0).edit("web", |pod| pod.ready = false);
    assert_eq!(outcome(sick.clone()), "NotEnoughPdb");
    let why = |lab: &Lab| {
        let decision = lab.decide();
        let told = serde_json::to_string(&decision.report.nodes).expect("a report");
        told.contains("unhealthyPodEvictionPolicy: AlwaysAllow")
    };
    assert_eq!((why(&sick), why(&with(0))), (true, false));
    let sick = sick.with(|lab| {
        for budget in lab.snapshot.cluster.budgets.values_mut() {
            budget.always_allow_unhealthy = true;
        }
    });
    assert_eq!(outcome(sick), "goes");
}

#[test]
fn budgets_are_counted_over_the_whole_plan() {
    let mut lab = lab()
        .kind("one", 1, 1024)
        .pool("p", &["one"])
        .node("other", 9000, 9000)
        .budget("b", "web", 2);
    lab.policy.scale_down.max_parallel_drain = 5;
    for n in 1..=3 {
        let node = format!("n{n}");
        lab = lab
            .ours(&node, "p", "one")
            .bound(&format!("web-{n}"), &node, 100, 1);
    }
    lab.turn();
    let decision = lab.after(Span::minutes(11)).decide();
    assert_eq!(removed(&decision), ["n1", "n2"]);
    assert_eq!(kept(&decision, "n3"), "NotEnoughPdb");
}

#[test]
fn one_node_alone_may_be_drained_in_turns() {
    let lab = node_with("default", |_| {})
        .bound("web-2", "n1", 100, 1)
        .budget("b", "web", 1);
    assert_eq!(outcome(lab), "goes");
}

#[test]
fn dr_18_ended_pods_never_block() {
    assert_eq!(
        default(|pod| {
            owned("")(pod);
            annotated("karpenter.sh/do-not-disrupt", "true")(pod);
            pod.phase = Phase::Failed;
        }),
        "goes"
    );
}

#[test]
fn dr_20_dr_21_dr_22_pods_that_are_going() {
    let going = |ago: Span, grace: i32, kind: &'static str| {
        default(move |pod| {
            owned(kind)(pod);
            annotated(SAFE, "false")(pod);
            // Decided on eleven minutes later.
            pod.deletion = Some(pod.created + Span::minutes(11) - ago);
            pod.deletion_grace_seconds = Some(grace);
        })
    };
    assert_eq!(going(Span::seconds(31), 0, ""), "goes");
    assert_eq!(going(Span::seconds(61), 30, ""), "goes");
    assert_eq!(going(Span::seconds(20), 0, "ReplicaSet"), "goes");
    // Its successor waits for it and needs a place.
    let stuck = node_with("default", |pod| {
        owned("StatefulSet")(pod);
        let shape = Arc::make_mut(&mut pod.shape);
        shape.node_selector.insert("only".into(), "here".into());
        pod.deletion = Some(pod.created + Span::minutes(20));
        pod.deletion_grace_seconds = Some(1200);
    });
    let lab = stuck.edit_node("n1", |node| {
        node.labels.insert("only".into(), "here".into());
    });
    assert_eq!(outcome(lab), "NoPlaceToMovePods");
}

#[test]
fn dr_25_the_age_of_a_system_pod_excuses_nothing_else() {
    let old = |change: fn(&mut Pod)| {
        let lab = node_with("kube-system", change);
        let created = lab.now - Span::minutes(120);
        let mut lab = lab;
        let key = ObjectKey::new("kube-system", "web");
        lab.snapshot
            .cluster
            .pods
            .get_mut(&key)
            .expect("there")
            .created = created;
        outcome(lab)
    };
    assert_eq!(
        old(|pod| annotated(SAFE, "false")(pod)),
        "NotSafeToEvictAnnotation"
    );
    assert_eq!(old(|_| {}), "goes");
}
