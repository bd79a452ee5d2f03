//! Hosts that a person evacuates: their nodes are drained and removed whatever they carry, pods have a place before their node
//! goes, and nothing comes there.

use std::collections::BTreeMap;

use super::lab::{Lab, kept, lab, made, removed, verdict};
use model::action::{Kind, Reason};
use model::cluster::ObjectKey;
use model::decision::Decision;
use model::guard::SCALE_DOWN_DISABLED;
use model::reasons::{FateReason, GivenUp, Kept, Refusals, Refused, WaitsFor};
use model::report::{NodeVerdict, PodVerdict};
use model::story::{NodeStory, PodOutcome};
use model::time::Span;

/// Three hosts with a node of one core each, all of them young and well used; pve2 is evacuated.
fn evacuated() -> Lab {
    let lab = lab()
        .kind("one", 1, 1024)
        .pool("p", &["one"])
        .ours("n1", "p", "one")
        .ours("n2", "p", "one")
        .ours("n3", "p", "one")
        .on_host("n1", "pve1")
        .on_host("n2", "pve2")
        .on_host("n3", "pve3")
        .bound("web-1", "n1", 300, 1)
        .bound("web-2", "n2", 600, 1)
        .bound("web-3", "n3", 600, 1);
    order(lab, "pve2")
}

fn order(lab: Lab, host: &str) -> Lab {
    lab.with(|lab| {
        let now = lab.now;
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        region.hosts.get_mut(host).expect("a host").evacuated = Some(now);
    })
}

/// Why a node is given up that stays, and what it waits for.
pub(super) fn given_up(decision: &Decision, node: &str) -> (GivenUp, WaitsFor) {
    match &decision.report.nodes[node] {
        NodeVerdict::Kept {
            why: Kept::GivenUp { cause, waits },
            ..
        } => ((**cause).clone(), (**waits).clone()),
        other => panic!("{other:?}"),
    }
}

fn explain(lab: &Lab, decision: &Decision, node: &str) -> NodeStory {
    let asked = crate::explain::Asked {
        snapshot: &lab.snapshot,
        policy: &lab.policy,
        memory: &decision.memory,
        decision,
        now: lab.now,
    };
    crate::explain::node(asked, node).expect("it is there")
}

fn hosts_made(decision: &Decision) -> Vec<&str> {
    let made = decision
        .plan
        .iter()
        .filter(|action| matches!(action.kind, Kind::Create(_)));
    made.map(|action| &*action.target.host).collect()
}

#[test]
fn a_node_goes_at_once_when_its_pods_have_room_elsewhere() {
    let decision = evacuated().decide();
    assert_eq!(removed(&decision), ["n2"]);
    assert!(
        matches!(&decision.plan[0].reason, Reason::Evacuated { host, .. } if **host == *"pve2")
    );
    let landing = &decision.plan[0].precondition.landing;
    let to: Vec<&str> = landing.values().map(|node| &**node).collect();
    assert_eq!(to, ["n1"], "n3 has no room");
    assert!(made(&decision).is_empty());
    let host = &decision.report.hosts["home"]["pve2"];
    assert!(
        host.notes[0].starts_with("evacuated since"),
        "{:?}",
        host.notes
    );
    // Without the order it stays: it is used by more than half.
    let usual = evacuated().with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        region.hosts.get_mut("pve2").expect("a host").evacuated = None;
    });
    assert_eq!(kept(&usual.decide(), "n2"), "NotUnderutilized");
}

#[test]
fn a_machine_comes_first_where_a_pod_has_no_room() {
    let full = || {
        evacuated().shape("web-1", |shape| {
            shape.traits = super::lab::shape("web-1", 600, 1).traits;
        })
    };
    let decision = full().decide();
    assert!(removed(&decision).is_empty(), "{:?}", decision.plan);
    assert_eq!(made(&decision), ["one"]);
    assert_ne!(hosts_made(&decision), ["pve2"]);
    // It is said first why it is to go, and then which machine comes for it.
    assert_eq!(kept(&decision, "n2"), "BeingReplaced");
    let (cause, waits) = given_up(&decision, "n2");
    let since = full().now;
    let host = "pve2".into();
    assert_eq!(cause, GivenUp::HostEvacuated { host, since });
    // The machine says the same of itself: the pod that it is for runs.
    let reason = &decision.plan[0].reason;
    let in_place_of = BTreeMap::from([("n2".into(), cause)]);
    let pods = vec![ObjectKey::new("default", "web-2")];
    assert_eq!(*reason, Reason::PendingPods { pods, in_place_of });
    assert_eq!(
        reason.to_string(),
        "in place of n2, whose host pve2 is evacuated; 1 pod fits nowhere else: default/web-2"
    );
    let machine = decision.plan[0].target.machine.clone();
    assert_eq!(waits, WaitsFor::MachinePlanned { machine });
    assert!(decision.report.coming.is_empty());
    // It is asked for once: the machine that comes is for that pod.
    let mut lab = full();
    lab.turn();
    let mut lab = lab.after(Span::seconds(30));
    let before = lab.clone();
    let next = lab.turn();
    assert!(made(&next).is_empty(), "{:?}", next.plan);
    assert!(removed(&next).is_empty());
    assert_eq!(kept(&next, "n2"), "BeingReplaced");
    let machine = next.report.coming.keys().next().expect("it comes").clone();
    let comes = WaitsFor::MachineComing {
        machine: machine.clone(),
    };
    assert_eq!(given_up(&next, "n2").1, comes);
    let story = explain(&before, &next, "n2");
    assert_eq!(story.replacement.expect("a machine").name, machine);
    let [pod] = &story.pods[..] else {
        panic!("{:?}", story.pods);
    };
    assert_eq!(pod.fate, PodOutcome::Moves { to: machine });
    assert_eq!(pod.why, Some(FateReason::OnceMachineWorks));
    // When it is there, the node goes, and nothing more is made.
    lab.settle();
    let mut lab = lab.after(Span::seconds(60));
    let there = lab.turn();
    assert_eq!(removed(&there), ["n2"]);
    assert!(made(&there).is_empty());
}

/// Where none can be made it is said why, for each pool and type, and that the host is evacuated before that.
#[test]
fn it_is_said_why_no_machine_can_be_made_elsewhere() {
    let lab = evacuated()
        .shape("web-1", |shape| {
            shape.traits = super::lab::shape("web-1", 600, 1).traits;
        })
        .edit_pool("p", |pool| pool.max = 3);
    let decision = lab.decide();
    assert!(decision.plan.is_empty(), "{:?}", decision.plan);
    assert_eq!(kept(&decision, "n2"), "NoReplacement");
    let (cause, waits) = given_up(&decision, "n2");
    assert!(matches!(cause, GivenUp::HostEvacuated { .. }), "{cause:?}");
    let WaitsFor::NoMachine { refused } = &waits else {
        panic!("{waits:?}");
    };
    let why = refused.values().flat_map(Refusals::iter);
    let of_max: Vec<_> = why
        .filter(|why| matches!(***why, Refused::PoolMax { max: 3, .. }))
        .collect();
    assert_eq!(of_max.len(), 1, "{refused:?}");
    let NodeVerdict::Kept { why, pod, .. } = &decision.report.nodes["n2"] else {
        panic!("it stays");
    };
    assert_eq!(pod.as_ref().map(|pod| &*pod.name), Some("web-2"));
    let said = why.to_string();
    assert!(
        said.starts_with("its host pve2 is evacuated since "),
        "{said}"
    );
    assert!(
        said.contains("; no machine can be made for a pod of it"),
        "{said}"
    );
    let story = explain(&lab, &decision, "n2");
    assert_eq!(story.verdict, Some(decision.report.nodes["n2"].clone()));
    assert!(story.replacement.is_none());
    // A node of another host is not given up.
    assert_eq!(kept(&decision, "n1"), "NotUnderutilized");
}

#[test]
fn what_comes_goes_to_other_hosts_and_pending_pods_do_not_take_the_room_of_those_that_leave() {
    // n1 has room for one of the two; the pod that leaves pve2 has it.
    let decision = evacuated().pod("more", 600, 1).decide();
    assert_eq!(removed(&decision), ["n2"]);
    assert_eq!(made(&decision), ["one"]);
    assert_ne!(hosts_made(&decision), ["pve2"]);
    assert!(matches!(
        verdict(&decision, "more"),
        PodVerdict::Triggers { .. }
    ));
    // Its pod was pending, and that of the node has its place without it.
    let creates = |kind: &Kind| matches!(kind, Kind::Create(_));
    let mut plan = decision.plan.iter();
    let creation = plan.find(|action| creates(&action.kind));
    assert_eq!(creation.expect("it is made").reason.in_place_of(), None);
    // With all hosts evacuated nothing is made, and that is said.
    let all = order(order(evacuated(), "pve1"), "pve3").pod("more", 600, 1);
    let decision = all.decide();
    assert!(decision.plan.is_empty(), "{:?}", decision.plan);
    let why = super::lab::why(&decision, "more", "p/one");
    assert!(why.contains("evacuated since"), "{why}");
}

#[test]
fn neither_timers_nor_switches_keep_it_and_what_protects_pods_does() {
    let off = evacuated().with(|lab| lab.policy.scale_down.enabled = false);
    assert_eq!(removed(&off.decide()), ["n2"], "a person's order counts");
    let budget = evacuated().budget("b", "web", 0);
    assert_eq!(kept(&budget.decide(), "n2"), "NotEnoughPdb");
    let annotated = evacuated().edit_node("n2", |node| {
        node.annotations
            .insert(SCALE_DOWN_DISABLED.into(), "true".into());
    });
    let decision = annotated
        .shape("web-1", |shape| {
            shape.traits = super::lab::shape("web-1", 900, 1).traits;
        })
        .decide();
    assert_eq!(kept(&decision, "n2"), "ScaleDownDisabledAnnotation");
    assert!(made(&decision).is_empty(), "nobody leaves it");
    let paused = evacuated().with(|lab| lab.snapshot.paused = Some("lunch".into()));
    assert!(paused.decide().plan.is_empty());
}

#[test]
fn they_go_one_after_the_other_and_never_to_each_other() {
    let two = evacuated()
        .ours("n5", "p", "one")
        .on_host("n5", "pve2")
        .bound("web-5", "n5", 100, 1);
    let decision = two.decide();
    // n5 has room for web-2 and is on the same host.
    for action in &decision.plan {
        let to: Vec<&str> = action
            .precondition
            .landing
            .values()
            .map(|node| &**node)
            .collect();
        assert!(!to.contains(&"n5") && !to.contains(&"n2"), "{to:?}");
    }
    assert_eq!(removed(&decision).len(), 1, "max_parallel_drain is 1");
}

#[test]
fn a_pools_min_is_made_elsewhere() {
    let decision = evacuated().edit_pool("p", |pool| pool.min = 3).decide();
    assert_eq!(
        removed(&decision),
        ["n2"],
        "it does not count for min any more"
    );
    assert_eq!(made(&decision), ["one"]);
    assert_ne!(hosts_made(&decision), ["pve2"]);
    let why = |decision: &Decision| {
        let creates = |kind: &Kind| matches!(kind, Kind::Create(_));
        let mut plan = decision.plan.iter();
        let creation = plan.find(|action| creates(&action.kind));
        creation.expect("it is made").reason.to_string()
    };
    assert_eq!(
        why(&decision),
        "in place of n2, whose host pve2 is evacuated; the pool has 2 nodes, its min is 3"
    );
    // Where the pool lacks more than that, none of its machines is for the node alone.
    let decision = evacuated().edit_pool("p", |pool| pool.min = 4).decide();
    assert_eq!(made(&decision), ["one", "one"]);
    assert_eq!(why(&decision), "the pool has 2 nodes, its min is 4");
}

#[test]
fn it_is_explained_where_the_pods_of_a_node_go_that_may_not_go_yet() {
    let lab = evacuated().with(|lab| lab.snapshot.paused = Some("lunch".into()));
    let decision = lab.decide();
    let asked = crate::explain::Asked {
        snapshot: &lab.snapshot,
        policy: &lab.policy,
        memory: &lab.memory,
        decision: &decision,
        now: lab.now,
    };
    let story = crate::explain::node(asked, "n2").expect("it is there");
    let [pod] = &story.pods[..] else {
        panic!("{:?}", story.pods);
    };
    let to = PodOutcome::Moves { to: "n1".into() };
    assert_eq!(pod.fate, to, "its place there is its own, and counts once");
}

#[test]
fn room_that_kube_scheduler_keeps_for_a_nominated_pod_is_not_given_to_pods_of_the_host() {
    // n1 has room for 600m beside web-1, and the nominated pod takes 500m of it.
    let nominated = |node: &str| {
        evacuated()
            .pod("waits", 500, 1)
            .edit("waits", |pod| pod.nominated = Some(node.into()))
    };
    let decision = nominated("n1").decide();
    assert!(removed(&decision).is_empty(), "{:?}", decision.plan);
    assert_eq!(made(&decision), ["one"]);
    assert_eq!(kept(&decision, "n2"), "BeingReplaced");
    // A pod that is to come to the node itself is waited for.
    let decision = nominated("n2").shape("waits", |shape| shape.requests.cpu_milli = 100);
    let decision = decision.decide();
    assert!(removed(&decision).is_empty(), "{:?}", decision.plan);
    let kept = Box::new(Kept::PodsExpected);
    assert_eq!(given_up(&decision, "n2").1, WaitsFor::Other { kept });
}
