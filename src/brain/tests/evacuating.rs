//! Hosts that a person evacuates: their nodes are drained and removed whatever they carry, pods have a place before their node
//! goes, and nothing comes there.

use std::collections::BTreeMap;

use super::lab::{Lab, kept, lab, made, owner, removed, verdict};
use model::action::{Kind, Reason};
use model::cluster::{ObjectKey, ReadyStatus};
use model::decision::Decision;
use model::guard::SCALE_DOWN_DISABLED;
use model::reasons::{FateReason, GivenUp, Kept, Refusals, Refused, Removed, Unneeded, WaitsFor};
use model::region::{Busy, Step};
use model::report::{GoesOnceUp, NodeVerdict, PodVerdict};
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
    let WaitsFor::NoMachine { pod, refused } = &waits else {
        panic!("{waits:?}");
    };
    assert_eq!(pod.as_ref().map(|pod| &*pod.name), Some("web-2"));
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
        said.contains(
            "; its pod default/web-2 fits on no other node, and no machine can be made for it now; p/one: "
        ),
        "{said}"
    );
    let story = explain(&lab, &decision, "n2");
    assert_eq!(story.verdict, Some(decision.report.nodes["n2"].clone()));
    assert!(story.replacement.is_none());
    // What would have to change is said as it is of the pod, whose own explanation names the node that is to go.
    let asked = |key: &ObjectKey| {
        let asked = crate::explain::Asked {
            snapshot: &lab.snapshot,
            policy: &lab.policy,
            memory: &decision.memory,
            decision: &decision,
            now: lab.now,
        };
        crate::explain::pod(asked, key).expect("it is there")
    };
    let of_pod = asked(&ObjectKey::new("default", "web-2"));
    let needed: Vec<&str> = of_pod
        .changes
        .iter()
        .flat_map(|change| &change.needed)
        .map(|needed| &**needed)
        .collect();
    assert!(
        needed.iter().any(|needed| needed.contains("max")),
        "{needed:?}"
    );
    assert_eq!(story.changes, of_pod.changes);
    let to_go = of_pod.node_to_go.expect("its node is to go");
    assert_eq!(Some(&to_go.verdict), story.verdict.as_ref());
    assert_eq!(to_go.fate, story.pods[0]);
    assert_eq!(asked(&ObjectKey::new("default", "web-1")).node_to_go, None);
    assert!(
        asked(&ObjectKey::new("default", "web-1"))
            .changes
            .is_empty()
    );
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

/// Of two whose pods find no room, and of which one machine at a time can be made, the first machine is for the pods of the one in whose place it
/// was made, though the other comes first by name.
#[test]
fn the_node_goes_in_whose_place_the_machine_was_made() {
    let full = || {
        evacuated()
            .shape("web-1", |shape| {
                shape.traits = super::lab::shape("web-1", 600, 1).traits;
            })
            .ours("n5", "p", "one")
            .on_host("n5", "pve2")
            .bound("web-5", "n5", 600, 1)
            .edit("web-5", |pod| pod.created = pod.created - Span::minutes(5))
            .edit_pool("p", |pool| pool.max = 5)
    };
    let names = |decision: &Decision| -> Vec<String> {
        let made = decision.plan.iter();
        let made = made.filter_map(|action| action.reason.given_up());
        made.flat_map(|nodes| nodes.keys().map(ToString::to_string))
            .collect()
    };
    let mut lab = full();
    let first = lab.turn();
    assert_eq!(names(&first), ["n5"]);
    lab.settle();
    let lab = lab.after(Span::minutes(1));
    // A failure before keeps them for a while, and the room stays that of the pods that it was made for.
    let mut held = lab.clone();
    held.memory.last_scale_down_failure = Some(held.now);
    assert!(removed(&held.turn()).is_empty());
    for mut lab in [lab, held.after(Span::minutes(10))] {
        let second = lab.turn();
        assert_eq!(removed(&second), ["n5"], "{:?}", second.plan);
        assert!(names(&second).is_empty(), "the pool is at its max");
    }
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

/// The node at a step of its removal.
fn leaving(lab: Lab, node: &str, step: Step) -> Lab {
    lab.edit_machine(node, |machine| {
        machine.step = Some((step, machine.mark.created));
        machine.busy = Some(Busy::Down);
    })
}

/// Why a node goes whose removal is under way; `None` where nobody remembers that.
fn under_way(decision: &Decision, node: &str) -> Option<Reason> {
    match &decision.report.nodes[node] {
        NodeVerdict::Leaving {
            why: Removed::UnderWay { reason },
            ..
        } => reason.clone(),
        other => panic!("{other:?}"),
    }
}

/// It is said until the machine is gone, and over a restart that has the memory.
#[test]
fn why_a_node_goes_is_said_for_as_long_as_that_takes() {
    let mut lab = evacuated();
    let planned = lab.turn();
    assert_eq!(removed(&planned), ["n2"]);
    let reason = planned.plan[0].reason.clone();
    let mut lab = leaving(lab, "n2", Step::Drain).after(Span::seconds(5));
    assert_eq!(under_way(&lab.turn(), "n2"), Some(reason.clone()));
    // The evacuation ends, or the work stands still: it went for that all the same.
    let mut lab = leaving(lab, "n2", Step::Shutdown)
        .after(Span::seconds(5))
        .with(|lab| {
            let region = lab.snapshot.regions.get_mut("home").expect("home");
            region.hosts.get_mut("pve2").expect("a host").evacuated = None;
        })
        .edit_machine("n2", |machine| machine.busy = None);
    let resumed = lab.turn();
    assert_eq!(resumed.plan[0].reason, Reason::NotWanted);
    assert_eq!(under_way(&resumed, "n2"), Some(reason.clone()));
    let said = match &resumed.report.nodes["n2"] {
        NodeVerdict::Leaving { why, .. } => why.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(said, format!("{reason}; it is being taken down"));
    // Without the memory nobody makes up a reason.
    let mut forgot = lab.clone();
    forgot.memory.removals.clear();
    assert_eq!(under_way(&forgot.turn(), "n2"), None);
    // It is forgotten with the machine.
    let gone = lab.with(|lab| {
        let machine = lab.snapshot.machines.remove("n2").expect("it was there");
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        region.vms.remove(&machine.mark.vmid);
        lab.snapshot.cluster.nodes.remove("n2");
    });
    assert!(gone.decide().memory.removals.is_empty());
}

/// After a start things are read one after another. A machine whose node was not read yet, or of which it is not known yet whose it is, looks
/// as if it were not leaving any more.
#[test]
fn why_a_node_goes_is_kept_while_something_was_not_read_yet() {
    let mut lab = evacuated();
    let planned = lab.turn();
    let reason = planned.plan[0].reason.clone();
    let lab = leaving(lab, "n2", Step::Drain).after(Span::seconds(5));
    let mut started = lab
        .clone()
        .edit_machine("n2", |machine| {
            machine.busy = None;
            machine.node = None;
        })
        .with(|lab| {
            lab.snapshot.cluster.nodes.clear();
            lab.snapshot.cluster.pods.clear();
            for (name, source) in &mut lab.snapshot.sources {
                source.complete = !name.starts_with("kube/");
            }
            lab.snapshot.cluster_id = None;
        });
    started.turn();
    let id = &lab.snapshot.cluster_id;
    started.snapshot.cluster_id.clone_from(id);
    started.turn();
    let mut read = lab;
    read.memory = started.memory;
    assert_eq!(under_way(&read.decide(), "n2"), Some(reason));
    // Once all is read it is seen that the node stays: nobody may say later that it goes for that.
    let back = read
        .edit_machine("n2", |machine| {
            machine.busy = None;
            machine.step = Some((Step::Done, machine.mark.created));
        })
        .edit_node("n2", |node| node.taints.clear())
        .with(|lab| lab.snapshot.paused = Some("lunch".into()));
    assert!(back.decide().memory.removals.is_empty());
}

/// A removal that is taken back was for nothing: the next one says its own reason.
#[test]
fn why_a_node_goes_is_forgotten_when_it_is_released() {
    let mut lab = evacuated();
    lab.turn();
    let stopped = leaving(lab, "n2", Step::Drain)
        .after(Span::seconds(5))
        .edit_machine("n2", |machine| machine.busy = None)
        .with(|lab| {
            let region = lab.snapshot.regions.get_mut("home").expect("home");
            region.hosts.get_mut("pve2").expect("a host").evacuated = None;
        });
    let decision = stopped.decide();
    assert!(
        decision
            .plan
            .iter()
            .any(|action| action.kind == Kind::Release),
        "{:?}",
        decision.plan
    );
    assert!(decision.memory.removals.is_empty());
}

/// Found by it: pods of a node that is drained "find no place", since they have taken the room that there is, and "nothing replaces" one whose
/// successor runs.
#[test]
fn pods_of_a_node_that_is_drained_have_their_places_and_successors() {
    let mut lab = evacuated();
    lab.turn();
    let mut lab = leaving(lab, "n2", Step::Drain).after(Span::seconds(5));
    let before = lab.clone();
    let decision = lab.turn();
    let fate = |lab: &Lab, decision: &Decision| {
        let mut pods = explain(lab, decision, "n2").pods.into_iter();
        let web = pods.find(|pod| &*pod.pod.name == "web-2");
        web.map(|pod| (pod.fate, pod.why)).expect("it is there")
    };
    let to = PodOutcome::Moves { to: "n1".into() };
    assert_eq!(fate(&before, &decision), (to, None));
    // It is evicted, and its ReplicaSet makes another one. One that was there before is not in its place.
    let now = lab.now;
    let evicted = lab.edit("web-2", |pod| {
        pod.deletion = Some(now + Span::seconds(30));
        pod.deletion_grace_seconds = Some(30);
    });
    let alone = fate(&evicted, &evicted.decide());
    assert_eq!(alone, (PodOutcome::Terminates, None));
    let mut later = evicted.after(Span::seconds(1)).pod("web-9", 600, 1);
    let successor = || ObjectKey::new("default", "web-9");
    let waits = FateReason::SuccessorThere {
        successor: successor(),
        node: None,
    };
    let decision = later.decide();
    assert_eq!(
        fate(&later, &decision),
        (PodOutcome::Terminates, Some(waits))
    );
    later = later.edit("web-9", |pod| pod.node = Some("n1".into()));
    let runs = FateReason::SuccessorThere {
        successor: successor(),
        node: Some("n1".into()),
    };
    assert_eq!(
        fate(&later, &later.decide()),
        (PodOutcome::Terminates, Some(runs))
    );
    // A StatefulSet's comes once it is gone, where its place is kept.
    let stateful = evicted_stateful();
    let comes = FateReason::SuccessorComes { to: "n1".into() };
    assert_eq!(
        fate(&stateful, &stateful.decide()),
        (PodOutcome::Terminates, Some(comes))
    );
}

/// A pod of a StatefulSet that was evicted from the node that is drained.
fn evicted_stateful() -> Lab {
    let mut lab = evacuated().shape("web-2", |shape| {
        shape.owner = Some(owner("StatefulSet", "web"));
    });
    lab.turn();
    let lab = leaving(lab, "n2", Step::Drain).after(Span::seconds(5));
    let now = lab.now;
    lab.edit("web-2", |pod| {
        pod.deletion = Some(now + Span::seconds(30));
        pod.deletion_grace_seconds = Some(30);
    })
}

/// A machine that comes up on the host goes when it works, which is said before that, with a node or without one.
#[test]
fn a_machine_on_its_way_up_is_said_to_go() {
    let since = evacuated().now;
    let cause = || GivenUp::HostEvacuated {
        host: "pve2".into(),
        since,
    };
    let goes = || Some(GoesOnceUp { why: cause() });
    let mut lab = evacuated()
        .machine("p-new", "p", "one", Step::Os)
        .edit_machine("p-new", |machine| machine.host = "pve2".into());
    let decision = lab.decide();
    assert_eq!(decision.report.coming["p-new"].given_up, goes());
    let story = explain(&lab, &decision, "p-new");
    assert_eq!((story.verdict, story.given_up), (None, goes()));
    // Of another host it is not.
    let other = evacuated().machine("p-new", "p", "one", Step::Os);
    assert_eq!(other.decide().report.coming["p-new"].given_up, None);
    lab.register("p-new", false);
    let decision = lab.decide();
    let kept = Box::new(Kept::ComingUp);
    let waits = WaitsFor::Other { kept };
    assert_eq!(given_up(&decision, "p-new"), (cause(), waits));
    assert_eq!(explain(&lab, &decision, "p-new").given_up, None);
}

/// How long it has been unneeded is of no use where it goes for another reason.
#[test]
fn it_is_not_called_unneeded() {
    let paused = |lab: Lab| lab.with(|lab| lab.snapshot.paused = Some("lunch".into()));
    let since = |mut lab: Lab| {
        lab.turn();
        let lab = lab.after(Span::minutes(3));
        let decision = lab.decide();
        assert!(decision.memory.unneeded_since.contains_key("n2"));
        explain(&lab, &decision, "n2").unneeded_since
    };
    assert_eq!(since(paused(evacuated())), None);
    let usual = evacuated()
        .shape("web-2", |shape| {
            shape.traits = super::lab::shape("web-2", 100, 1).traits;
        })
        .with(|lab| {
            let region = lab.snapshot.regions.get_mut("home").expect("home");
            region.hosts.get_mut("pve2").expect("a host").evacuated = None;
        });
    assert!(since(usual).is_some());
}

/// Of two that are evicted at once, and one pod that their controller has made, only the first has that in its place.
#[test]
fn a_pod_is_in_the_place_of_one_other_pod() {
    let mut lab = evacuated().bound("web-4", "n2", 100, 1);
    assert_eq!(removed(&lab.turn()), ["n2"]);
    let mut lab = leaving(lab, "n2", Step::Drain).after(Span::seconds(5));
    let end = lab.now + Span::seconds(30);
    for name in ["web-2", "web-4"] {
        lab = lab.edit(name, |pod| {
            pod.deletion = Some(end);
            pod.deletion_grace_seconds = Some(30);
        });
    }
    let lab = lab.after(Span::seconds(1)).pod("web-9", 600, 1);
    let story = explain(&lab, &lab.decide(), "n2");
    let told: Vec<_> = story.pods.iter().map(|pod| (&pod.fate, &pod.why)).collect();
    let successor = ObjectKey::new("default", "web-9");
    let there = Some(FateReason::SuccessorThere {
        successor,
        node: None,
    });
    let ends = PodOutcome::Terminates;
    assert_eq!(told, [(&ends, &there), (&ends, &None)]);
}

/// Not Ready since now, and used by so much.
fn lost(milli: i64) -> Lab {
    let lab = evacuated().shape("web-2", |shape| {
        shape.traits = super::lab::shape("web-2", milli, 1).traits;
    });
    let now = lab.now;
    lab.edit_node("n2", |node| {
        node.ready.status = ReadyStatus::False;
        node.ready.since = Some(now);
    })
}

/// It is not drained at once, since nothing runs there that anybody sees, and its kubelet may come back. It goes when it has not been Ready for
/// long enough, however much is requested of it, and says since when that counts.
#[test]
fn a_node_that_is_not_ready_goes_after_its_time_however_much_it_is_used() {
    for milli in [100, 600] {
        let mut lab = lost(milli);
        let since = lab.now;
        lab.turn();
        let lab = lab.after(Span::minutes(3));
        let decision = lab.decide();
        assert!(decision.plan.is_empty(), "{:?}", decision.plan);
        let (cause, waits) = given_up(&decision, "n2");
        let host = "pve2".into();
        let ordered = evacuated().now;
        assert_eq!(
            cause,
            GivenUp::HostEvacuated {
                host,
                since: ordered
            }
        );
        let kept = Box::new(Kept::NotLongEnough {
            state: Unneeded::Unready,
            since,
            waited: Span::minutes(3),
            wanted: Span::minutes(20),
        });
        assert_eq!(waits, WaitsFor::Other { kept });
        let story = explain(&lab, &decision, "n2");
        assert_eq!(story.unneeded_since, None, "{story:?}");
        let lab = lab.after(Span::minutes(17));
        let decision = lab.decide();
        assert_eq!(removed(&decision), ["n2"]);
        assert_eq!(decision.plan[0].reason, Reason::Unready { since });
        // Another host's stays where its pods ask for more than half of it.
        let usual = lab.with(|lab| {
            let region = lab.snapshot.regions.get_mut("home").expect("home");
            region.hosts.get_mut("pve2").expect("a host").evacuated = None;
        });
        assert!(!removed(&usual.decide()).iter().any(|name| name == "n2"));
    }
}

/// For a pod that outlives the loss of its node, and that finds no room, a machine is made once the node would go.
#[test]
fn a_pod_of_a_node_that_is_not_ready_has_a_machine_made_for_it_when_the_node_would_go() {
    let full = lost(600).shape("web-1", |shape| {
        shape.traits = super::lab::shape("web-1", 600, 1).traits;
    });
    let lab = full.after(Span::minutes(10));
    assert!(made(&lab.decide()).is_empty());
    let mut lab = lab.after(Span::minutes(10));
    let decision = lab.turn();
    assert_eq!(made(&decision), ["one"]);
    assert!(removed(&decision).is_empty());
    lab.settle();
    assert_eq!(removed(&lab.after(Span::minutes(1)).decide()), ["n2"]);
}

/// Whoever has said that such nodes stay has them stay, scale-down in general does not matter, and of a host that is off nothing is known.
#[test]
fn what_is_said_of_nodes_that_are_not_ready_holds_on_an_evacuated_host_too() {
    let late = || lost(600).after(Span::minutes(30));
    let off = late().with(|lab| lab.policy.scale_down.enabled = false);
    assert_eq!(removed(&off.decide()), ["n2"]);
    let stays = late().with(|lab| lab.policy.scale_down.unready_enabled = false);
    let decision = stays.decide();
    assert_eq!(kept(&decision, "n2"), "ScaleDownUnreadyDisabled");
    assert!(decision.plan.is_empty(), "{:?}", decision.plan);
    let dark = late().with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        region.hosts.get_mut("pve2").expect("a host").online = false;
    });
    let decision = dark.decide();
    assert!(removed(&decision).is_empty(), "{:?}", decision.plan);
    let (_, waits) = given_up(&decision, "n2");
    assert!(
        matches!(&waits, WaitsFor::Other { kept } if matches!(**kept, Kept::HostOffline { .. })),
        "{waits:?}"
    );
}
