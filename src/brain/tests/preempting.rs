//! Expendable pods that run: their room is free for whom kube-scheduler preempts them, and for nobody else.

use std::collections::BTreeMap;

use super::lab::{Lab, kept, lab, made, removed, verdict};
use crate::check::{CheckRule, check_plan};
use crate::report::explain::{self, Asked};
use model::cluster::ObjectKey;
use model::report::PodVerdict;
use model::scheduling::{HostPort, LabelSelector, PodShape, PodTerm};
use model::time::Span;

/// A full node `n1` of four cores: `low` of three, which is expendable, and `web` of one.
fn world() -> Lab {
    lab()
        .kind("four", 4, 4096)
        .pool("p", &["four"])
        .ours("n1", "p", "four")
        .bound("low", "n1", 3000, 100)
        .shape("low", |shape| shape.priority = -100)
        .bound("web", "n1", 1000, 100)
}

/// Where a pod goes, and at whose cost.
fn goes(lab: &Lab, pod: &str) -> Option<(String, Vec<(String, i32)>)> {
    match verdict(&lab.decide(), pod) {
        PodVerdict::FitsNode { node, preempts } => {
            let victims = preempts.iter();
            let victims = victims.map(|(key, priority)| (key.name.to_string(), *priority));
            Some((node.to_string(), victims.collect()))
        }
        _ => None,
    }
}

fn at(node: &str, victims: &[(&str, i32)]) -> (String, Vec<(String, i32)>) {
    let victims = victims.iter().map(|(name, p)| ((*name).to_owned(), *p));
    (node.to_owned(), victims.collect())
}

fn never(shape: &mut PodShape) {
    shape.never_preempts = true;
}

#[test]
fn a_pod_goes_where_an_expendable_one_runs() {
    let lab = world().pod("a", 3000, 100);
    assert_eq!(made(&lab.decide()), Vec::<String>::new());
    assert_eq!(goes(&lab, "a"), Some(at("n1", &[("low", -100)])));
    // One that counts, of the lowest priority that does, is in the way.
    let counts = lab.shape("low", |shape| shape.priority = -10);
    assert_eq!(goes(&counts, "a"), None);
    assert_eq!(made(&counts.decide()).len(), 1);
}

/// Pods that placing cannot tell from each other are one kind, and still each is named where it runs.
#[test]
fn victims_with_labels_of_their_own_are_named() {
    let own = |name: &str| {
        let label = (std::sync::Arc::from("job-name"), std::sync::Arc::from(name));
        move |shape: &mut PodShape| {
            shape.labels = [label.clone()].into();
            shape.owner = Some(super::lab::owner("Job", &label.1));
            shape.priority = -100;
        }
    };
    let lab = world()
        .bound("low-1", "n1", 0, 10)
        .shape("low", own("one"))
        .shape("low-1", own("two"))
        .ours("n2", "p", "four")
        .bound("low-2", "n2", 1500, 100)
        .bound("low-3", "n2", 1500, 100)
        .bound("web-2", "n2", 1000, 100)
        .shape("low-2", own("three"))
        .shape("low-3", own("four"))
        .pod("a", 3000, 100)
        .edit_node("n1", |node| node.unschedulable = true);
    let victims = [("low-2", -100), ("low-3", -100)];
    assert_eq!(goes(&lab, "a"), Some(at("n2", &victims)));
}

#[test]
fn a_pod_that_preempts_nobody_finds_no_room_there() {
    let lab = world().pod("a", 3000, 100).shape("a", never);
    assert_eq!(made(&lab.decide()).len(), 1);
    // Unless somebody else makes it: of three cores one is left.
    let lab = world()
        .pod("a", 1000, 100)
        .shape("a", never)
        .pod("b", 2000, 100);
    assert_eq!(made(&lab.decide()), Vec::<String>::new());
    assert_eq!(goes(&lab, "b"), Some(at("n1", &[("low", -100)])));
    assert_eq!(goes(&lab, "a"), Some(at("n1", &[])));
}

#[test]
fn nobody_is_preempted_where_there_is_room() {
    let lab = world().ours("n2", "p", "four").pod("a", 3000, 100);
    assert_eq!(goes(&lab, "a"), Some(at("n2", &[])));
}

#[test]
fn as_few_as_possible_go_and_the_lowest_first() {
    let lab = world()
        .shape("low", |shape| shape.requests.cpu_milli = 1000)
        .bound("lower", "n1", 1000, 100)
        .shape("lower", |shape| shape.priority = -200)
        .bound("lowest", "n1", 1000, 100)
        .shape("lowest", |shape| shape.priority = -300);
    let one = lab.clone().pod("a", 1000, 100);
    assert_eq!(goes(&one, "a"), Some(at("n1", &[("lowest", -300)])));
    let two = one.pod("b", 500, 100);
    assert_eq!(goes(&two, "b"), Some(at("n1", &[("lower", -200)])));
    let more = two.pod("c", 500, 100);
    assert_eq!(goes(&more, "c"), Some(at("n1", &[])));
}

#[test]
fn ports_and_anti_affinity_of_an_expendable_pod_go_with_it() {
    let port = |shape: &mut PodShape| {
        shape.host_ports.push(HostPort {
            protocol: "TCP".into(),
            ip: "".into(),
            port: 80,
        });
    };
    let small = world()
        .shape("low", |shape| shape.requests.cpu_milli = 1000)
        .pod("a", 1000, 100);
    assert_eq!(goes(&small, "a"), Some(at("n1", &[])));
    let ports = small.clone().shape("low", port).shape("a", port);
    assert_eq!(goes(&ports, "a"), Some(at("n1", &[("low", -100)])));
    let averse = |key: &str| {
        small.clone().shape("low", |shape| {
            shape.pod_anti_affinity.push(PodTerm {
                selector: Some(LabelSelector::default()),
                topology_key: key.into(),
                ..PodTerm::default()
            });
        })
    };
    let host = averse("kubernetes.io/hostname");
    assert_eq!(goes(&host, "a"), Some(at("n1", &[("low", -100)])));
    assert_eq!(goes(&host.shape("a", never), "a"), None);
    // A pod of another node is not preempted: it keeps the whole zone.
    let zone = averse("topology.kubernetes.io/zone").ours("n2", "p", "four");
    let elsewhere = zone.shape("a", |shape| {
        let name = |name: &str| ("kubernetes.io/hostname".into(), name.into());
        shape.node_selector.extend([name("n2")]);
    });
    assert_eq!(goes(&elsewhere, "a"), None);
}

#[test]
fn a_drained_pod_may_go_where_an_expendable_one_runs() {
    let mut lab = world()
        .shape("web", |shape| shape.priority = 1)
        .edit_node("n1", |node| {
            node.annotations.insert(
                "cluster-autoscaler.kubernetes.io/scale-down-disabled".into(),
                "true".into(),
            );
        })
        .ours("n2", "p", "four")
        .bound("moves", "n2", 1500, 100);
    lab.turn();
    let lab = lab.after(Span::minutes(11));
    let plan = lab.decide().plan;
    assert_eq!(removed(&lab.decide()), ["n2"]);
    let moves = ObjectKey::new("default", "moves");
    assert_eq!(&*plan[0].precondition.landing[&moves], "n1");
    let check = |lab: &Lab| {
        check_plan(&plan, &lab.snapshot, &lab.policy, lab.now).map_err(|refusal| refusal.rule)
    };
    assert_eq!(check(&lab), Ok(()));
    // The checker knows who preempts whom.
    let timid = lab.clone().shape("moves", never);
    assert_eq!(check(&timid), Err(CheckRule::Landing));
    assert_eq!(kept(&timid.decide(), "n2"), "NoPlaceToMovePods");
    let counts = lab.clone().shape("low", |shape| shape.priority = -10);
    assert_eq!(check(&counts), Err(CheckRule::Landing));
    let full = lab.shape("web", |shape| shape.requests.cpu_milli = 2501);
    assert_eq!(check(&full), Err(CheckRule::Landing));
}

#[test]
fn the_bound_counts_room_that_expendable_pods_hold() {
    let lab = world().pods("a", 3, 3000, 100);
    let decision = lab.decide();
    let growth = decision.report.scale_up.expect("machines are made");
    assert_eq!((growth.nodes, lab.lower_bound(&decision).nodes), (2, 2));
}

#[test]
fn a_story_names_who_is_preempted() {
    let lab = world().pod("web2", 3000, 100);
    let decision = lab.decide();
    let asked = Asked {
        snapshot: &lab.snapshot,
        policy: &lab.policy,
        memory: &lab.memory,
        decision: &decision,
        now: lab.now,
    };
    let story = explain::pod(asked, &ObjectKey::new("default", "web2")).expect("the pod is there");
    let low = BTreeMap::from([(ObjectKey::new("default", "low"), -100)]);
    assert_eq!(
        story.verdict,
        Some(PodVerdict::FitsNode {
            node: "n1".into(),
            preempts: low.clone(),
        })
    );
    assert_eq!(
        (&story.nodes[0].filter_failure, &story.nodes[0].preempts),
        (&None, &low)
    );
}
