//! Stories: what `explain` says of a pod and of a node.

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::lab::{Lab, lab, owner};
use super::optimum::{build, tiny_below_min};
use crate::report::explain::{self, Asked};
use model::action::Kind;
use model::cluster::ObjectKey;
use model::memory::Backoff;
use model::reasons::{Refused, Unremovable};
use model::report::{NodeVerdict, PodVerdict};
use model::scheduling::{LabelSelector, PodShape, PodTerm, Taint};
use model::story::{NodeStory, OfferAnswer, PodOutcome, PodStory};
use model::time::Span;
use std::sync::Arc;

fn asked(lab: &Lab) -> (Option<PodStory>, Option<NodeStory>) {
    let decision = lab.decide();
    let asked = Asked {
        snapshot: &lab.snapshot,
        policy: &lab.policy,
        memory: &lab.memory,
        decision: &decision,
        now: lab.now,
    };
    (
        explain::pod(asked, &ObjectKey::new("default", "web")),
        explain::node(asked, "n1"),
    )
}

/// A pool of two types, a node of ours with room for a little.
fn world() -> Lab {
    lab()
        .kind("small", 2, 4096)
        .kind("big", 8, 16_384)
        .pool("p", &["small", "big"])
        .ours("n1", "p", "small")
        .bound("old", "n1", 1_500, 100)
}

#[test]
fn a_pending_pod_is_tried_everywhere_with_numbers() {
    let (story, _) = asked(&world().pod("web", 4_000, 100));
    let story = story.expect("the pod is there");
    assert!(matches!(story.verdict, Some(PodVerdict::Triggers { .. })));
    let [node] = &story.nodes[..] else {
        panic!("{:?}", story.nodes);
    };
    assert_eq!(
        node.filter_failure
            .as_ref()
            .map(ToString::to_string)
            .as_deref(),
        Some("cpu: asks 4, 0.5 are free")
    );
    // One answer for each type on each of the three hosts.
    assert_eq!(story.offers.len(), 6);
    for offer in &story.offers {
        let fits = &*offer.instance_type == "big";
        assert_eq!(offer.filter_failure.is_none(), fits, "{offer:?}");
        assert_eq!(offer.held, None);
    }
    let why = story.offers[0]
        .filter_failure
        .as_ref()
        .map(ToString::to_string);
    let why = why.as_deref();
    assert_eq!(why, Some("cpu: asks 4, a node offers 2 after DaemonSets"));
}

#[test]
fn all_that_keeps_a_pod_away_is_told_and_not_the_first_alone() {
    let lab = world()
        .edit_pool("p", |pool| {
            let taint = |key: &str| Taint::no_schedule(key, "");
            pool.taints = vec![taint("example.com/a"), taint("example.com/b")];
        })
        .pod("web", 4_000, 8_192)
        .shape("web", |shape| {
            let label = |key: &str| (key.into(), "yes".into());
            shape.node_selector = ["c", "d"].map(label).into();
            let requests = &mut shape.requests;
            requests.extended.insert("example.com/gpu".into(), 1);
        });
    let told = |lab: &Lab, kind: &str| {
        let story = asked(lab).0.expect("the pod is there");
        let offer = story.offers.iter().find(|o| &*o.instance_type == kind);
        let offer = offer.expect("an offer");
        let all = offer.filter_failure.iter().chain(&offer.further);
        all.map(ToString::to_string).collect::<Vec<_>>()
    };
    let of_pool = [
        "does not tolerate the taint example.com/a:NoSchedule",
        "does not tolerate the taint example.com/b:NoSchedule",
        "node selector c=yes does not match",
        "node selector d=yes does not match",
    ];
    let cpu = "cpu: asks 4, a node offers 2 after DaemonSets";
    let memory = "memory: asks 8Gi, a node offers 4Gi after DaemonSets";
    let gpu = "example.com/gpu: asks 1, a node offers 0 after DaemonSets";
    assert_eq!(
        told(&lab, "small"),
        [&of_pool[..], &[cpu, memory, gpu]].concat()
    );
    assert_eq!(told(&lab, "big"), [&of_pool[..], &[gpu]].concat());
    let node = &asked(&lab).0.expect("the pod is there").nodes[0];
    assert_eq!(node.further.len(), 4, "{node:?}");
    // Whoever mends all of it has a pod that runs.
    let mended = lab
        .edit_pool("p", |pool| pool.taints.clear())
        .shape("web", |shape| {
            shape.node_selector.clear();
            shape.requests.extended.clear();
        });
    assert_eq!(told(&mended, "small"), [cpu, memory]);
    assert_eq!(told(&mended, "big"), [""; 0]);
}

#[test]
fn a_daemon_set_that_has_the_host_port_on_new_nodes_is_named() {
    let port = model::scheduling::HostPort {
        protocol: "TCP".into(),
        ip: "".into(),
        port: 80,
    };
    let mut lab = world().daemon("quiet", 10, 10).daemon("proxy", 10, 10);
    let proxy = ObjectKey::new("kube-system", "proxy");
    let sets = &mut lab.snapshot.cluster.daemon_sets;
    let set = sets.get_mut(&proxy).expect("just made");
    let shape = Arc::make_mut(&mut set.shape);
    Arc::make_mut(&mut shape.traits).host_ports = vec![port.clone()];
    let lab = lab
        .pod("web", 500, 100)
        .shape("web", |shape| shape.host_ports.push(port.clone()));
    let story = asked(&lab).0.expect("the pod is there");
    for offer in &story.offers {
        let why = offer.filter_failure.as_ref().expect("a reason").to_string();
        let wanted =
            "host port 80/TCP is taken by the DaemonSet kube-system/proxy on each new node";
        assert_eq!(why, wanted);
    }
}

#[test]
fn a_pod_does_not_stand_in_its_own_way() {
    let fills = world().pod("web", 500, 100).shape("web", |shape| {
        shape.host_ports.push(model::scheduling::HostPort {
            protocol: "TCP".into(),
            ip: "".into(),
            port: 80,
        });
    });
    for lab in [
        fills.clone(),
        fills.edit("web", |pod| pod.node = Some("n1".into())),
    ] {
        let (story, _) = asked(&lab);
        let story = story.expect("the pod is there");
        assert_eq!(story.nodes[0].filter_failure, None);
    }
}

#[test]
fn what_fits_and_may_not_be_made_says_both() {
    let lab = world()
        .edit_pool("p", |pool| pool.max = 1)
        .pod("web", 4_000, 100);
    let (story, _) = asked(&lab);
    let story = story.expect("the pod is there");
    let big = story.offers.iter().find(|o| &*o.instance_type == "big");
    let big = big.expect("an offer");
    assert_eq!(big.filter_failure, None);
    let held = big
        .held
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    assert!(held.contains("its max is 1"), "{held}");
}

#[test]
fn what_is_not_there_has_no_story() {
    let lab = world();
    let (pod, node) = asked(&lab);
    assert!(pod.is_none());
    assert!(node.is_some());
}

#[test]
fn a_node_says_what_becomes_of_each_pod() {
    let lab = world()
        .node("other", 2_000, 4_096)
        .bound("bare", "n1", 100, 1)
        .edit("bare", |pod| {
            std::sync::Arc::make_mut(&mut pod.shape).owner = None;
        })
        .bound("log", "n1", 100, 1)
        .edit("log", |pod| {
            std::sync::Arc::make_mut(&mut pod.shape).owner = Some(owner("DaemonSet", "log"));
        });
    let (_, story) = asked(&lab);
    let story = story.expect("the node is there");
    let fates: Vec<(&str, &PodOutcome)> = story
        .pods
        .iter()
        .map(|pod| (&*pod.pod.name, &pod.fate))
        .collect();
    let blocks = PodOutcome::Blocks {
        reason: Unremovable::NotReplicated,
    };
    let moves = PodOutcome::Moves { to: "other".into() };
    assert_eq!(
        fates,
        [
            ("bare", &blocks),
            ("log", &PodOutcome::Stays),
            ("old", &moves)
        ]
    );
    assert_eq!(story.requested_permille["cpu"], 850);
    assert_eq!(story.machine.map(|m| m.standing).as_deref(), Some("up"));
}

#[test]
fn a_pod_that_finds_no_other_place_is_unplaced() {
    let (_, story) = asked(&world());
    let story = story.expect("the node is there");
    assert_eq!(story.pods[0].fate, PodOutcome::Unplaced);
    let why = story.pods[0].why.as_ref().map(ToString::to_string);
    assert_eq!(
        why.as_deref(),
        Some("there is no other ready node that stays")
    );
}

#[test]
fn a_node_names_the_pending_pods_that_are_to_come() {
    let (_, story) = asked(&world().pod("web", 400, 100));
    let story = story.expect("the node is there");
    assert_eq!(story.expected, [ObjectKey::new("default", "web")]);
}

/// What is said of the pods of `n1`: fate and why.
fn fates(lab: &Lab) -> Vec<(PodOutcome, Option<String>)> {
    let (_, story) = asked(lab);
    let pods = story.expect("the node is there").pods.into_iter();
    pods.map(|pod| (pod.fate, pod.why.map(|why| why.to_string())))
        .collect()
}

#[test]
fn a_node_that_pending_pods_are_to_come_to_says_what_the_verdict_says() {
    let lab = world()
        .edit("old", |pod| {
            std::sync::Arc::make_mut(&mut pod.shape).requests.cpu_milli = 500;
        })
        .node("other", 600, 4096)
        .pod("web", 500, 200);
    let why = "the one other ready node does not hold it; other: cpu: asks 0.5, 0.1 are free";
    let (_, story) = asked(&lab);
    let verdict = story.expect("the node is there").verdict;
    assert!(
        matches!(&verdict, Some(NodeVerdict::Kept { why: said, .. }) if said.to_string() == why),
        "{verdict:?}"
    );
    assert_eq!(fates(&lab), [(PodOutcome::Unplaced, Some(why.to_owned()))]);
}

/// Of nodes that hold it not, one is named that lacks room; of such a machine's; and not the control plane that comes first by name.
#[test]
fn the_node_that_tells_most_is_named() {
    let full = world()
        .edit("old", |pod| {
            std::sync::Arc::make_mut(&mut pod.shape).requests.cpu_milli = 1_500;
        })
        .node("aa-control", 8_000, 4096)
        .edit_node("aa-control", |node| {
            let taint = Taint::no_schedule("node-role.kubernetes.io/control-plane", "");
            node.taints = vec![taint];
        });
    let told = |lab: &Lab| {
        let [(_, why)] = &fates(lab)[..] else {
            panic!("one pod");
        };
        why.clone().unwrap_or_default()
    };
    assert_eq!(
        told(&full),
        "the one other ready node does not hold it; aa-control: does not tolerate the taint node-role.kubernetes.io/control-plane:NoSchedule"
    );
    let with_other = full.node("bb", 600, 4096);
    assert_eq!(
        told(&with_other),
        "none of the 2 other ready nodes holds it; bb: cpu: asks 1.5, 0.6 are free"
    );
    let with_ours = with_other
        .ours("zz", "p", "small")
        .bound("busy", "zz", 1_000, 100);
    assert_eq!(
        told(&with_ours),
        "none of the 3 other ready nodes holds it; zz: cpu: asks 1.5, 1 are free"
    );
}

/// The node controller's taint says what the cordon says.
#[test]
fn a_cordoned_node_is_told_once() {
    let lab = world()
        .pod("web", 100, 100)
        .node("other", 8_000, 4096)
        .edit_node("other", |node| {
            node.unschedulable = true;
            let taint = |key: &str| Taint::no_schedule(key, "");
            node.taints = vec![
                taint("node.kubernetes.io/unschedulable"),
                taint("example.com/a"),
            ];
        });
    let story = asked(&lab).0.expect("the pod is there");
    let other = story.nodes.iter().find(|node| &*node.name == "other");
    let other = other.expect("it is told");
    let all = other.filter_failure.iter().chain(&other.further);
    let all: Vec<String> = all.map(ToString::to_string).collect();
    assert_eq!(
        all,
        [
            "the node is cordoned",
            "does not tolerate the taint example.com/a:NoSchedule"
        ]
    );
}

#[test]
fn other_pods_are_a_reason_too() {
    let apart = |shape: &mut PodShape| {
        shape.pod_anti_affinity = vec![PodTerm {
            selector: Some(LabelSelector::default()),
            topology_key: "kubernetes.io/hostname".into(),
            ..PodTerm::default()
        }];
    };
    let lab = world()
        .shape("old", apart)
        .node("other", 4_000, 4_096)
        .bound("there", "other", 100, 1);
    let [(fate, why)] = &fates(&lab)[..] else {
        panic!("one pod");
    };
    assert_eq!(*fate, PodOutcome::Unplaced);
    let why = why.as_deref().unwrap_or_default();
    assert!(
        why.ends_with("its pod anti-affinity over kubernetes.io/hostname: a pod of the namespace default is on other"),
        "{why}"
    );
}

#[test]
fn pods_do_not_move_to_a_node_that_the_decision_takes_down() {
    let mut lab = lab()
        .kind("small", 2, 4096)
        .pool("p", &["small"])
        .ours("n0", "p", "small")
        .ours("n1", "p", "small")
        .bound("a", "n0", 100, 1)
        .bound("b", "n1", 110, 1);
    lab.turn();
    let lab = lab.after(Span::minutes(11));
    assert_eq!(super::lab::removed(&lab.decide()), ["n0"]);
    let why = Some("there is no other ready node that stays".to_owned());
    assert_eq!(fates(&lab), [(PodOutcome::Unplaced, why)]);
}

#[test]
fn a_pod_that_waits_for_what_the_plan_takes_says_so_of_every_offer() {
    let lab = world()
        .edit_pool("p", |pool| pool.max = 2)
        .pod("first", 4_000, 100)
        .edit("first", |pod| pod.created = pod.created - Span::minutes(1))
        .pod("web", 7_000, 100)
        .shape("first", |shape| shape.priority = 10);
    let (story, _) = asked(&lab);
    let story = story.expect("the pod is there");
    assert!(
        matches!(story.verdict, Some(PodVerdict::Held { .. })),
        "{:?}",
        story.verdict
    );
    for offer in &story.offers {
        let held = offer.held.as_ref().map(ToString::to_string);
        let held = held.as_deref();
        assert_eq!(
            held,
            Some("pool limit: it has 2 machines, its max is 2, 1 of them planned now")
        );
    }
}

#[test]
fn what_does_not_pass_is_said_before_what_does_and_hosts_are_counted() {
    let lab = world().pod("web", 4_000, 100).with(|lab| {
        let backoff = Backoff {
            advice: None,
            until: lab.now + Span::minutes(4),
            length: Span::minutes(5),
            failed: lab.now - Span::minutes(1),
            message: "a join failed".into(),
        };
        lab.memory.backoff.insert("p".into(), backoff);
    });
    let held = |lab: &Lab| match asked(lab).0.and_then(|story| story.verdict) {
        Some(PodVerdict::Held { why }) => why["p/big"].to_string(),
        other => panic!("{other:?}"),
    };
    assert!(held(&lab).starts_with("the pool backs off until"));
    let full = lab.clone().edit_pool("p", |pool| pool.max = 1);
    assert_eq!(held(&full), "pool limit: it has 1 machine, its max is 1");
    let dark = lab.with(|lab| {
        lab.memory.backoff.clear();
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        for host in region.hosts.values_mut() {
            host.online = false;
        }
    });
    assert_eq!(
        held(&dark),
        "none of 3 hosts will do: the host pve1 is not online; the host pve2 is not online; the host pve3 is not online"
    );
}

#[test]
fn a_machine_whose_vm_is_not_as_the_file_says_is_told_so() {
    let lab = world().edit_machine("n1", |machine| {
        let differs = super::in_place::differs("tags", None);
        machine.vm.as_mut().expect("its VM").differs = vec![differs];
    });
    let machine = asked(&lab).1.expect("it is known").machine;
    let told = "up; to be updated in place: tags is a, the file says b";
    assert_eq!(machine.expect("a machine").standing, told);
}

/// What would have to change for the pod `web`, as a person reads it.
fn changes(lab: &Lab) -> Vec<String> {
    let (story, _) = asked(lab);
    let changes = story.expect("the pod is there").changes;
    changes
        .iter()
        .map(|change| {
            format!(
                "{}: {}",
                change.places.join(", "),
                change.needed.join(" and ")
            )
        })
        .collect()
}

#[test]
fn a_pod_without_a_place_is_told_what_would_have_to_change() {
    // Too large for every type.
    let told = changes(&world().pod("web", 16_000, 100));
    assert_eq!(
        told,
        [
            "p/small: ask for at most 2 of cpu, or give [pool.p] an instance type that has 16 of it for pods",
            "p/big: ask for at most 8 of cpu, or give [pool.p] an instance type that has 16 of it for pods",
        ]
    );
    // One of them would run it, if there might be one more.
    let full = world().edit_pool("p", |pool| pool.max = 1);
    let told = changes(&full.pod("web", 4_000, 100));
    assert_eq!(told[0], "p/big: raise max of [pool.p] above 1");
    // Two things at once.
    let both = world().edit_pool("p", |pool| {
        pool.max = 1;
        pool.taints = vec![Taint {
            key: "dedicated".into(),
            value: "gpu".into(),
            effect: model::scheduling::Effect::NoSchedule,
        }];
    });
    let told = changes(&both.pod("web", 4_000, 100));
    assert_eq!(
        told[0],
        "p/big: let the pod tolerate the taint dedicated=gpu:NoSchedule (spec.tolerations) and raise max of [pool.p] above 1"
    );
    // Nothing for a pod that gets its machine.
    assert_eq!(changes(&world().pod("web", 4_000, 100)), [""; 0]);
}

proptest! {
    #![proptest_config(Config::with_cases(32))]

    /// What carries a pod is chosen of what `explain` says fits: the offer that its machine is made of is one of those, and a choice that
    /// was not taken since the pod does not fit on it has none.
    #[test]
    fn a_pod_comes_to_a_machine_of_an_offer_that_fits_by_its_story(tiny in tiny_below_min(true)) {
        let lab = build(&tiny);
        let decision = lab.decide();
        let asked = Asked {
            snapshot: &lab.snapshot,
            policy: &lab.policy,
            memory: &lab.memory,
            decision: &decision,
            now: lab.now,
        };
        for (key, verdict) in &decision.report.pods {
            let story = explain::pod(asked, key).expect("the pod is there");
            let of = |offer: &OfferAnswer| format!("{}/{}", offer.pool, offer.instance_type);
            let others = match verdict {
                PodVerdict::Triggers { machine, others } => {
                    let mut plan = decision.plan.iter();
                    let action = plan.find(|action| action.target.machine == *machine);
                    let action = action.expect("the machine is made");
                    let Kind::Create(spec) = &action.kind else {
                        panic!("{action:?}");
                    };
                    let mark = &spec.mark;
                    let taken = format!("{}/{}", mark.pool, mark.instance_type);
                    let mut offers = story.offers.iter();
                    let offer = offers.find(|offer| of(offer) == taken && offer.host == action.target.host);
                    let offer = offer.expect("an offer");
                    prop_assert!(offer.filter_failure.is_none() && offer.held.is_none(), "{offer:?}");
                    prop_assert!(!others.contains_key(&*taken), "{others:?}");
                    others
                }
                PodVerdict::Held { why } | PodVerdict::NoCompatiblePool { why } => why,
                _ => continue,
            };
            for (choice, why) in &**others {
                let offers = story.offers.iter().filter(|offer| *of(offer) == **choice);
                let fits = offers.clone().any(|offer| offer.filter_failure.is_none());
                let filter_failure = matches!(*why.first, Refused::FilterFailure { .. });
                prop_assert!(!(fits && filter_failure), "{choice}: {why:?}, {:?}", story.offers);
            }
        }
    }
}
