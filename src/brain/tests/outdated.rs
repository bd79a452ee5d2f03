//! Pools that replace outdated nodes: those whose machines have drifted, and those that are too old.

use std::collections::BTreeSet;

use super::evacuating::given_up;
use super::lab::{Lab, kept, lab, made, removed};
use crate::decide;
use model::action::{Kind, Reason};
use model::cluster::{Claim, ObjectKey, PersistentVolume, Phase, ReadyStatus};
use model::decision::Decision;
use model::disruption::{Cause, NodeBudget, Rollout, Share};
use model::drift::{Drift, Outdated};
use model::memory::Backoff;
use model::reasons::{GivenUp, Kept, WaitsFor};
use model::region::{Busy, Failure, Step};
use model::report::NodeVerdict;
use model::scheduling::{HostPort, Volume};
use model::time::{Span, Time};

const WEEK: Span = Span::minutes(7 * 24 * 60);

/// Nodes of two cores, each with a pod of 1.2; all of them drifted. The pool may have one node more.
fn drifted(nodes: u32) -> Lab {
    let lab = lab().kind("two", 2, 4096).pool("p", &["two"]);
    let lab = lab.edit_pool("p", |pool| {
        pool.max = nodes + 1;
        pool.rollout = Some(Rollout {
            drifted: true,
            expire_after: None,
            max_parallel: 1,
        });
    });
    (1..=nodes).fold(lab, |lab, n| {
        let name = format!("n{n}");
        lab.ours(&name, "p", "two")
            .bound(&format!("web{n}"), &name, 1200, 64)
            .edit_machine(&name, drift)
    })
}

fn drift(machine: &mut model::region::Machine) {
    let vm = machine.vm.as_mut().expect("it has a VM");
    vm.drifted = Some(vec![Drift::Template]);
}

fn cause(decision: &Decision, node: &str) -> Outdated {
    let action = decision.plan.iter().find(|action| {
        matches!(action.kind, Kind::Remove { .. }) && *action.target.machine == *node
    });
    match &action.expect("it goes").reason {
        Reason::Outdated { outdated } => outdated.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_drifted_node_goes_when_a_new_one_has_room_for_its_pods() {
    let mut lab = drifted(2);
    let first = lab.decide();
    assert_eq!(removed(&first), Vec::<String>::new());
    assert_eq!(made(&first), ["two"], "for the pod of one of them alone");
    // It is said first that it has drifted, and then which machine comes for it; the other one waits its turn.
    assert_eq!(kept(&first, "n1"), "BeingReplaced");
    let (why, waits) = given_up(&first, "n1");
    let outdated = Outdated {
        drifted: vec![Drift::Template],
        expired: None,
    };
    assert_eq!(why, GivenUp::Outdated { outdated });
    let machine = first.plan[0].target.machine.clone();
    assert_eq!(waits, WaitsFor::MachinePlanned { machine });
    assert_eq!(kept(&first, "n2"), "ReplacedLater");
    let after = "n1".into();
    let (_, waits) = given_up(&first, "n2");
    assert_eq!(waits, WaitsFor::Turn { after, max: 1 });
    let said = &first.report.nodes["n2"];
    let NodeVerdict::Kept { why, .. } = said else {
        panic!("{said:?}");
    };
    assert_eq!(
        why.to_string(),
        "outdated: the file says another template now; it waits its turn: n1 goes before it, max_rollout_parallelism is 1"
    );
    // The new one works: the pod has room there.
    lab = lab.ours("new", "p", "two");
    let second = lab.decide();
    assert_eq!(removed(&second), ["n1"], "the first, and only that");
    assert_eq!(made(&second), Vec::<String>::new());
    assert_eq!(cause(&second, "n1").drifted, [Drift::Template]);
    let landing = &second.plan[0].precondition.landing;
    assert!(landing.values().all(|to| &**to == "new"), "{landing:?}");
}

#[test]
fn nothing_is_replaced_where_the_pool_does_not_ask_for_it() {
    let plain = drifted(2).edit_pool("p", |pool| pool.rollout = None);
    assert!(plain.decide().plan.is_empty());
    let by_age = drifted(2).edit_pool("p", |pool| {
        pool.rollout = Some(Rollout {
            drifted: false,
            expire_after: Some(WEEK),
            max_parallel: 1,
        });
    });
    assert!(by_age.decide().plan.is_empty(), "they are a day old");
    let old = by_age.after(WEEK);
    assert_eq!(made(&old.decide()), ["two"]);
    let old = old.ours("new", "p", "two");
    let decision = old.decide();
    assert_eq!(removed(&decision), ["n1"]);
    let age = Outdated {
        drifted: Vec::new(),
        expired: Some(WEEK),
    };
    assert_eq!(cause(&decision, "n1"), age);
}

#[test]
fn a_decision_is_due_when_a_node_is_too_old() {
    let lab = drifted(1).edit_pool("p", |pool| {
        pool.rollout = Some(Rollout {
            drifted: false,
            expire_after: Some(WEEK),
            max_parallel: 1,
        });
    });
    let created = lab.snapshot.machines["n1"].mark.created;
    assert_eq!(lab.decide().wake, Some(created + WEEK));
}

#[test]
fn a_pool_keeps_its_min_meanwhile() {
    // Empty nodes need no room elsewhere, and the pool another one all the same.
    let empty = |nodes: u32, min: u32| {
        let lab = drifted(nodes).edit_pool("p", |pool| pool.min = min);
        (1..=nodes).fold(lab, |lab, n| {
            lab.with(|lab| {
                let key = lab
                    .snapshot
                    .cluster
                    .pods
                    .keys()
                    .find(|key| key.to_string() == format!("default/web{n}"));
                let key = key.expect("it is there").clone();
                lab.snapshot.cluster.pods.remove(&key);
            })
        })
    };
    let lab = empty(2, 2);
    let first = lab.decide();
    assert_eq!(made(&first), ["two"]);
    assert_eq!(removed(&first), Vec::<String>::new());
    let second = lab.ours("new", "p", "two").decide();
    assert_eq!(removed(&second), ["n1"]);
    assert_eq!(made(&second), Vec::<String>::new());
    // Without room below `max` it says so, and nothing happens.
    let full = empty(2, 2).edit_pool("p", |pool| pool.max = 2).decide();
    assert!(full.plan.is_empty(), "{:?}", full.plan);
    let (_, waits) = given_up(&full, "n1");
    let min = Kept::PoolMin { keeps: 1, min: 2 };
    let kept = Box::new(min);
    assert_eq!(waits, WaitsFor::Other { kept });
    // Where none is to be kept, an empty one goes without another.
    let free = empty(1, 0).decide();
    assert_eq!(removed(&free), ["n1"]);
    assert_eq!(made(&free), Vec::<String>::new());
}

#[test]
fn nothing_is_given_up_while_new_machines_fail() {
    let failed = drifted(2).with(|lab| {
        let backoff = Backoff {
            advice: None,
            until: lab.now + Span::minutes(5),
            length: Span::minutes(5),
            failed: lab.now,
            message: "kubeadm join failed".into(),
        };
        lab.memory.backoff.insert("p".into(), backoff);
    });
    let until = failed.now + Span::minutes(5);
    let decision = failed.ours("new", "p", "two").decide();
    assert!(decision.plan.is_empty());
    let pool = "p".into();
    let waits = given_up(&decision, "n1").1;
    assert_eq!(waits, WaitsFor::PoolBackOff { pool, until });
    assert_eq!(looked_at_again(&decision, "n1"), Some(until));
}

/// When a node that stays is looked at again.
fn looked_at_again(decision: &Decision, node: &str) -> Option<Time> {
    match &decision.report.nodes[node] {
        NodeVerdict::Kept { until, .. } => *until,
        other => panic!("{other:?}"),
    }
}

/// The time is that of what a node waits for, and not that of a reason which is not told.
#[test]
fn a_node_that_is_given_up_has_the_time_of_what_it_waits_for() {
    let gathered = drifted(1).with(|lab| {
        lab.policy.scale_up.batch_idle = Span::seconds(10);
        lab.policy.scale_up.batch_max = Span::seconds(30);
    });
    let until = gathered.now + Span::seconds(10);
    let decision = gathered.decide();
    assert_eq!(given_up(&decision, "n1").1, WaitsFor::Batch { until });
    assert_eq!(looked_at_again(&decision, "n1"), Some(until));
    // The pod of n2 has room elsewhere, so that it goes in ten minutes without a turn; with a pod that has none it waits for its turn.
    let small = |milli: i64| {
        drifted(2)
            .node("other", 1000, 1024)
            .shape("web1", |shape| shape.requests.cpu_milli = 1950)
            .shape("web2", |shape| shape.requests.cpu_milli = milli)
    };
    let decision = small(100).decide();
    assert_eq!(kept(&decision, "n1"), "BeingReplaced");
    assert_eq!(kept(&decision, "n2"), "NotUnneededLongEnough");
    let (cause, _) = given_up(&decision, "n2");
    assert!(matches!(cause, GivenUp::Outdated { .. }), "{cause:?}");
    let until = small(100).now + Span::minutes(10);
    assert_eq!(looked_at_again(&decision, "n2"), Some(until));
    let decision = small(1200).decide();
    assert_eq!(kept(&decision, "n2"), "ReplacedLater");
    assert_eq!(looked_at_again(&decision, "n2"), None);
}

#[test]
fn what_keeps_one_node_does_not_keep_the_others() {
    let lab = drifted(3).ours("new", "p", "two").edit_node("n1", |node| {
        let key = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
        node.annotations.insert(key.into(), "true".into());
    });
    let decision = lab.decide();
    assert_eq!(removed(&decision), ["n2"]);
    assert!(
        kept(&decision, "n1").contains("Disabled"),
        "{}",
        kept(&decision, "n1")
    );
    let held = drifted(2).ours("new", "p", "two").budget("b", "web1", 0);
    let held = held.shapes("web1", |shape| {
        shape.labels.insert("app".into(), "web1".into());
    });
    assert_eq!(
        removed(&held.decide()),
        ["n2"],
        "its pod may not be evicted"
    );
}

#[test]
fn as_many_go_at_once_as_the_pool_and_its_budgets_allow() {
    let two = |budgets: Vec<NodeBudget>| {
        let lab = drifted(3).ours("new1", "p", "two").ours("new2", "p", "two");
        lab.edit_pool("p", |pool| {
            pool.max = 6;
            pool.budgets = budgets.clone();
            pool.rollout.as_mut().expect("it rolls").max_parallel = 2;
        })
        .with(|lab| lab.policy.scale_down.max_parallel_drain = 5)
    };
    assert_eq!(removed(&two(Vec::new()).decide()), ["n1", "n2"]);
    let budget = |cause: Cause, nodes: u32| NodeBudget {
        nodes: Share::Nodes(nodes),
        window: None,
        causes: [cause].into(),
    };
    let one = two(vec![budget(Cause::Outdated, 1)]).decide();
    assert_eq!(removed(&one), ["n1"]);
    let none = two(vec![budget(Cause::Outdated, 0)]).decide();
    assert_eq!(removed(&none), Vec::<String>::new());
    let (_, waits) = given_up(&none, "n1");
    let WaitsFor::Other { kept } = waits else {
        panic!("{waits:?}");
    };
    assert!(matches!(*kept, Kept::NodeBudget { .. }), "{kept:?}");
    let other = two(vec![budget(Cause::Underused, 0)]).decide();
    assert_eq!(removed(&other), ["n1", "n2"]);
    // One that drains counts.
    let draining = going(two(Vec::new()), "n1");
    assert_eq!(removed(&draining.decide()), ["n2"]);
}

/// `n1` drains, and its pod has its place on `new`, which has room for one. `n2` is the next that is given up, and may go at once.
fn draining() -> Lab {
    let lab = drifted(2)
        .shapes("web", |shape| *shape = super::lab::shape("web", 1200, 64))
        .ours("new", "p", "two")
        .edit_pool("p", |pool| {
            pool.max = 6;
            pool.rollout.as_mut().expect("it rolls").max_parallel = 2;
        });
    going(lab, "n1").with(|lab| {
        lab.policy.scale_down.max_parallel_drain = 2;
        let booked = vec!["uid-web1".into()];
        lab.memory.bookings.insert("new".into(), booked);
        // They are older than the removal: neither is the successor of the other one.
        for pod in lab.snapshot.cluster.pods.values_mut() {
            pod.created = pod.created - Span::minutes(60);
        }
    })
}

/// The removal of a node is under way.
fn going(lab: Lab, node: &str) -> Lab {
    lab.edit_machine(node, |machine| {
        machine.step = Some((Step::Drain, machine.mark.created));
        machine.busy = Some(Busy::Down);
    })
}

/// By UID which pods are booked where.
fn booked(decision: &Decision) -> BTreeSet<(String, String)> {
    let all = decision.memory.bookings.iter();
    all.flat_map(|(to, pods)| {
        pods.iter()
            .map(move |pod| (to.to_string(), pod.to_string()))
    })
    .collect()
}

/// The pod of `n2`, of the same Deployment as that of `n1`, does not take the place of that: the machine that is made is for the pod of `n2`,
/// by its name and its booking, and is made once; and `n2` goes when it works, not before.
#[test]
fn a_machine_is_made_and_booked_for_the_pod_of_the_node_that_it_replaces() {
    let mut lab = draining();
    let decision = lab.turn();
    let [action] = &decision.plan[..] else {
        panic!("{:?}", decision.plan);
    };
    let Reason::PendingPods { pods, in_place_of } = &action.reason else {
        panic!("{:?}", action.reason);
    };
    assert_eq!(*pods, [ObjectKey::new("default", "web2")]);
    let nodes: Vec<&str> = in_place_of.keys().map(|node| &**node).collect();
    assert_eq!(nodes, ["n2"]);
    assert!(
        matches!(in_place_of["n2"], GivenUp::Outdated { .. }),
        "{in_place_of:?}"
    );
    let said = action.reason.to_string();
    assert!(
        said.starts_with("in place of n2, outdated: the file says another ")
            && said.ends_with("; 1 pod fits nowhere else: default/web2"),
        "{said}"
    );
    let of = |to: &str, pod: &str| (to.to_owned(), format!("uid-{pod}"));
    let of_web2 = of(&action.target.machine, "web2");
    assert_eq!(
        booked(&decision),
        BTreeSet::from([of("new", "web1"), of_web2.clone()])
    );
    let batch = decision.memory.batch.as_ref().expect("one was planned for");
    assert!(batch.pods.iter().all(|uid| **uid == *"uid-web2"));
    // Its booking ends with its eviction. The room on `new` is kept until a successor is there: neither is a machine made nor a node removed.
    let waits = |lab: Lab, when: &str| {
        let mut lab = lab.after(Span::seconds(5));
        let next = lab.turn();
        assert!(next.plan.is_empty(), "{when}: {:?}", next.plan);
        assert_eq!(booked(&next), BTreeSet::from([of_web2.clone()]), "{when}");
        lab
    };
    let ends = lab.now + Span::seconds(30);
    let lab = lab.edit("web1", |pod| pod.deletion = Some(ends));
    let lab = waits(lab, "it is evicted, its successor has not come yet");
    let lab = lab.with(|lab| {
        let key = ObjectKey::new("default", "web1");
        lab.snapshot.cluster.pods.remove(&key);
    });
    let lab = waits(lab, "it is gone");
    let lab = lab
        .pod("web3", 1200, 64)
        .shapes("web3", |shape| {
            *shape = super::lab::shape("web", 1200, 64);
        })
        .edit("web3", |pod| pod.unschedulable_since = None);
    let lab = waits(lab, "kube-scheduler has not tried its successor yet");
    let lab = lab.edit("web3", |pod| {
        pod.node = Some("new".into());
        pod.phase = Phase::Running;
        pod.ready = true;
    });
    let mut lab = waits(lab, "its successor runs");
    lab.settle();
    let last = lab.after(Span::seconds(5)).decide();
    assert_eq!(removed(&last), ["n2"], "the machine works");
    assert_eq!(made(&last), Vec::<String>::new());
}

/// So it is where the pod has a host port, which the node has once, or a claim, which takes one volume.
#[test]
fn a_pod_with_a_host_port_or_a_claim_keeps_the_room_that_was_found_for_it() {
    let port = draining().shape("web1", |shape| {
        shape.host_ports.push(HostPort {
            protocol: "TCP".into(),
            ip: "".into(),
            port: 80,
        });
    });
    let claim = draining()
        .shape("web1", |shape| {
            shape.volumes.push(Volume::Claim("data".into()));
        })
        .with(|lab| {
            let cluster = &mut lab.snapshot.cluster;
            let claim = Claim {
                volume: Some("data".into()),
                bound: true,
                ..Claim::default()
            };
            let volume = PersistentVolume {
                driver: Some("csi.example".into()),
                handle: Some("data".into()),
                ..PersistentVolume::default()
            };
            let key = ObjectKey::new("default", "data");
            cluster.claims.insert(key, claim);
            cluster.volumes.insert("data".into(), volume);
        });
    for (what, lab) in [("a port", port), ("a claim", claim)] {
        let decision = lab.decide();
        assert_eq!(removed(&decision), Vec::<String>::new(), "{what}");
        assert_eq!(made(&decision), ["two"], "{what}");
        // It has its place on the node itself: what was held for it was given back, its port too.
        let its_own = ("new".to_owned(), "uid-web1".to_owned());
        let booked = booked(&decision);
        assert!(booked.contains(&its_own), "{what}: {booked:?}");
    }
}

/// Of those that wait each names the one right before it. One that is being removed is before the first of them.
#[test]
fn each_waits_for_the_one_before_it() {
    let turn = |after: &str| WaitsFor::Turn {
        after: after.into(),
        max: 1,
    };
    let decision = drifted(3).decide();
    assert_eq!(kept(&decision, "n1"), "BeingReplaced");
    assert_eq!(given_up(&decision, "n2").1, turn("n1"));
    assert_eq!(given_up(&decision, "n3").1, turn("n2"));
    let decision = going(drifted(3), "n1").decide();
    assert_eq!(given_up(&decision, "n2").1, turn("n1"));
    assert_eq!(given_up(&decision, "n3").1, turn("n2"));
    // What keeps a node at its turn too is said before that comes.
    let annotated = drifted(3).edit_node("n3", |node| {
        let key = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
        node.annotations.insert(key.into(), "true".into());
    });
    let decision = annotated.decide();
    assert_eq!(kept(&decision, "n3"), "ScaleDownDisabledAnnotation");
    let (cause, _) = given_up(&decision, "n3");
    assert!(matches!(cause, GivenUp::Outdated { .. }), "{cause:?}");
}

/// Nobody waits for a node that is not Ready, or for one that goes since its host is evacuated; nor is it said of these that they wait.
#[test]
fn nobody_waits_for_a_node_that_has_no_turn() {
    let lab = drifted(4)
        .edit_pool("p", |pool| pool.max = 8)
        .edit_node("n2", |node| node.ready.status = ReadyStatus::False)
        .on_host("n3", "pve3")
        .with(|lab| {
            let now = lab.now;
            let region = lab.snapshot.regions.get_mut("home").expect("home");
            region.hosts.get_mut("pve3").expect("a host").evacuated = Some(now);
        });
    let decision = lab.decide();
    assert_eq!(kept(&decision, "n1"), "BeingReplaced");
    let n2 = &decision.report.nodes["n2"];
    let NodeVerdict::Kept { why, .. } = n2 else {
        panic!("{n2:?}");
    };
    assert!(!matches!(why, Kept::GivenUp { .. }), "{why:?}");
    let (cause, _) = given_up(&decision, "n3");
    assert!(matches!(cause, GivenUp::HostEvacuated { .. }), "{cause:?}");
    let (after, max) = ("n1".into(), 1);
    assert_eq!(given_up(&decision, "n4").1, WaitsFor::Turn { after, max });
}

/// A removal that fails each time does not keep the others from their turn.
#[test]
fn a_node_whose_removal_failed_has_its_turn_after_the_others() {
    let lab = drifted(3).edit_machine("n1", |machine| {
        machine.failure = Some(Failure {
            advice: None,
            step: Step::Drain,
            message: "429".into(),
            at: machine.mark.created,
            transient: false,
            host: None,
        });
    });
    let turn = |after: &str| WaitsFor::Turn {
        after: after.into(),
        max: 1,
    };
    let long_ago = lab.decide();
    assert_eq!(given_up(&long_ago, "n2").1, turn("n1"));
    let at = lab.now;
    let lately = lab.edit_machine("n1", |machine| {
        machine.failure.as_mut().expect("it failed").at = at;
    });
    let decision = lately.decide();
    assert_eq!(kept(&decision, "n2"), "BeingReplaced");
    assert_eq!(given_up(&decision, "n3").1, turn("n2"));
    assert_eq!(given_up(&decision, "n1").1, turn("n3"));
}

/// The checker adds up by itself: it refuses what no pool asks for.
#[test]
fn the_checker_passes_what_is_planned_and_refuses_it_without_the_key() {
    let lab = drifted(2).ours("new", "p", "two");
    let decision = lab.decide();
    let action = &decision.plan[0];
    let check = |lab: &Lab| crate::check::check(action, &lab.snapshot, &lab.policy, lab.now);
    assert!(check(&lab).is_ok());
    let off = lab.clone().edit_pool("p", |pool| pool.rollout = None);
    let refused = check(&off).expect_err("nobody asks for it").to_string();
    assert!(refused.contains("does not replace it"), "{refused}");
    let mended = lab.clone().edit_machine("n1", |machine| {
        machine.vm.as_mut().expect("a VM").drifted = Some(Vec::new());
    });
    check(&mended).expect_err("it has not drifted any more");
    let creation = drifted(2);
    let first = creation.decide();
    let check = |lab: &Lab| {
        let action = &first.plan[0];
        crate::check::check(action, &lab.snapshot, &lab.policy, lab.now)
    };
    assert!(check(&creation).is_ok());
    let off = creation.edit_pool("p", |pool| pool.rollout = None);
    check(&off).expect_err("the pod runs where it is");
}

/// A node that is being removed counts neither for `min` nor once more among those that may be missing there: the checker passes a machine in
/// its place, and none in the place of the next one.
#[test]
fn the_checker_passes_no_machine_for_more_nodes_than_are_replaced_at_once() {
    let empty = drifted(2).with(|lab| lab.snapshot.cluster.pods.clear());
    let empty = empty.edit_pool("p", |pool| (pool.min, pool.max) = (2, 6));
    let first = empty.decide();
    let [action] = &first.plan[..] else {
        panic!("{:?}", first.plan);
    };
    let reason = &action.reason;
    assert!(matches!(reason, Reason::BelowMin { .. }), "{reason:?}");
    // Of the two nodes it is the one that is replaced now.
    let said = reason.to_string();
    assert!(
        said.starts_with("in place of n1, outdated: ")
            && said.ends_with("; the pool has 1 node, its min is 2"),
        "{said}"
    );
    let check = |lab: &Lab| crate::check::check(action, &lab.snapshot, &lab.policy, lab.now);
    let removing = going(empty, "n1");
    assert!(check(&removing).is_ok(), "n2 alone is there for two");
    let enough = removing.clone().edit_pool("p", |pool| pool.min = 1);
    let refused = check(&enough).expect_err("n2 stays until n1 is gone");
    let refused = refused.to_string();
    assert!(refused.contains("has 1 machines already"), "{refused}");
    let two = enough.edit_pool("p", |pool| {
        pool.rollout.as_mut().expect("it rolls").max_parallel = 2;
    });
    assert!(check(&two).is_ok(), "n2 is given up beside n1");
}

/// From decision to decision: each node goes once a new one has room for its pod, and never fewer pods have a place.
#[test]
fn a_whole_pool_is_replaced_one_after_the_other() {
    let mut lab = drifted(4);
    let mut gone = Vec::new();
    for round in 0..4 {
        let decision = lab.turn();
        assert_eq!(made(&decision), ["two"], "round {round}");
        let new = format!("new{round}");
        // What was planned comes up under a name of its own.
        let planned: Vec<_> = decision
            .plan
            .iter()
            .map(|a| a.target.machine.clone())
            .collect();
        for name in planned {
            lab.snapshot.machines.remove(&name);
        }
        lab = lab.ours(&new, "p", "two").after(Span::minutes(5));
        let decision = lab.turn();
        let [going] = &removed(&decision)[..] else {
            panic!("round {round}: {:?}", decision.plan);
        };
        let verdict = &decision.report.nodes[going.as_str()];
        assert!(
            matches!(verdict, NodeVerdict::Leaving { .. }),
            "{verdict:?}"
        );
        let going = going.clone();
        lab = lab.with(|lab| {
            lab.snapshot.machines.remove(going.as_str());
            lab.snapshot.cluster.nodes.remove(going.as_str());
            let pods = lab.snapshot.cluster.pods.values_mut();
            for pod in pods.filter(|pod| pod.node.as_deref() == Some(&*going)) {
                pod.node = Some(new.as_str().into());
            }
            for region in lab.snapshot.regions.values_mut() {
                region.vms.retain(|_, vm| *vm.name != *going);
            }
        });
        gone.push(going);
        lab = lab.after(Span::minutes(5));
    }
    assert_eq!(gone, ["n1", "n2", "n3", "n4"]);
    let done = decide(&lab.snapshot, &lab.policy, &lab.memory, lab.now);
    assert!(done.plan.is_empty(), "{:?}", done.plan);
}
