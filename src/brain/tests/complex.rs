//! What a tenant who may create pods can make a decision cost: whatever it is, the decision ends within its budget, says
//! what it left out, and another's pod gets its node in the same decision.

use std::borrow::Cow;
use std::sync::Arc;

use super::lab::{Lab, kept, lab, made, removed, shape, verdict};
use crate::budget::{within, within_steps};
use crate::{decide, decide_within};
use model::cluster::{DisruptionBudget, ObjectKey, Phase, Pod};
use model::decision::Decision;
use model::reasons::Refused;
use model::report::PodVerdict;
use model::scheduling::{
    HostPort, LabelSelector, NodeTerm, Operator, PodShape, PodTerm, Requirement, SpreadConstraint,
    Toleration, Volume,
};

/// A budget that small worlds exceed.
const LITTLE: u64 = 60_000;
/// Complex pods of a world.
const PODS: usize = 30;
/// What each has of what makes it complex.
const EACH: usize = 60;

fn requirement(key: String, operator: Operator, values: Vec<Arc<str>>) -> Requirement {
    Requirement {
        key: key.into(),
        operator,
        values,
    }
}

/// A term that takes in nearly every pod, and is like no other.
fn term(pod: usize, number: usize, everywhere: bool) -> PodTerm {
    PodTerm {
        selector: Some(LabelSelector {
            expressions: vec![requirement(
                format!("x-{pod}-{number}"),
                Operator::DoesNotExist,
                Vec::new(),
            )],
            ..LabelSelector::default()
        }),
        topology_key: "kubernetes.io/hostname".into(),
        namespace_selector: everywhere.then(LabelSelector::default),
        ..PodTerm::default()
    }
}

fn spread(pod: usize, number: usize) -> SpreadConstraint {
    SpreadConstraint {
        max_skew: 1,
        topology_key: format!("zone-{number}").into(),
        hard: true,
        selector: term(pod, number, false).selector,
        min_domains: None,
        match_label_keys: Vec::new(),
        honor_affinity: true,
        honor_taints: false,
    }
}

type Twist = fn(&mut PodShape, usize);

fn each<T>(pod: usize, make: fn(usize, usize) -> T) -> Vec<T> {
    (0..EACH).map(|number| make(pod, number)).collect()
}

/// Everything that a tenant can have many of, by name.
const TWISTS: [(&str, Twist); 10] = [
    ("anti-affinity to everybody", |shape, pod| {
        shape.pod_anti_affinity = each(pod, |pod, number| term(pod, number, true));
    }),
    ("anti-affinity at home", |shape, pod| {
        shape.pod_anti_affinity = each(pod, |pod, number| term(pod, number, false));
    }),
    ("affinity", |shape, pod| {
        shape.pod_affinity = each(pod, |pod, number| term(pod, number, true));
    }),
    ("preferences", |shape, pod| {
        shape.preferred_anti_pods = each(pod, |pod, number| (100, term(pod, number, true)));
        shape.preferred_pods = each(pod, |pod, number| (1, term(pod, number, true)));
    }),
    ("spreading", |shape, pod| shape.spread = each(pod, spread)),
    ("node affinity", |shape, pod| {
        let term = |pod: usize, number: usize| NodeTerm {
            expressions: vec![requirement(
                format!("n-{pod}"),
                Operator::NotIn,
                vec![number.to_string().into()],
            )],
            fields: Vec::new(),
        };
        shape.node_affinity = Some(each(pod, term));
    }),
    ("tolerations", |shape, pod| {
        let toleration = |number: usize| Toleration {
            key: Some(format!("t-{pod}-{number}").into()),
            exists: true,
            value: "".into(),
            effect: None,
        };
        shape.tolerations = (0..4 * EACH).map(toleration).collect();
    }),
    ("host ports", |shape, pod| {
        shape.host_ports = each(pod, |_, number| HostPort {
            protocol: "TCP".into(),
            ip: "".into(),
            port: i32::try_from(number + 1).unwrap_or(1),
        });
    }),
    ("volumes", |shape, pod| {
        shape.volumes = each(pod, |pod, number| {
            Volume::Claim(format!("c-{pod}-{number}").into())
        });
    }),
    ("resources of its own", |shape, pod| {
        let names = each(pod, |pod, number| {
            Arc::from(format!("example.com/{pod}-{number}"))
        });
        shape.requests.extended = names.into_iter().map(|name| (name, 1)).collect();
    }),
];

impl Lab {
    fn pod_of(mut self, namespace: &str, name: &str, change: impl FnOnce(&mut Pod)) -> Lab {
        let pods = &mut self.snapshot.cluster.pods;
        let key = ObjectKey::new("default", name);
        let had = pods.remove(&key);
        self = self.pod(name, 100, 64);
        let pods = &mut self.snapshot.cluster.pods;
        let mut pod = pods.remove(&key).expect("just made");
        if let Some(had) = had {
            pods.insert(key, had);
        }
        change(&mut pod);
        pods.insert(ObjectKey::new(namespace, name), pod);
        self
    }

    /// Pods of the namespace `evil` with one twist.
    fn twisted(mut self, twist: Twist) -> Lab {
        for number in 0..PODS {
            self = self.pod_of("evil", &format!("evil{number}-0"), |pod| {
                let mut shape = shape(&format!("evil{number}-0"), 100, 64);
                twist(&mut shape, number);
                pod.shape = Arc::new(shape);
            });
        }
        self
    }

    fn decide_within(&self, steps: u64) -> (Decision, u64) {
        decide_within(steps, &self.snapshot, &self.policy, &self.memory, self.now)
    }
}

/// A pool whose machines hold a few pods each.
fn pool() -> Lab {
    lab().kind("m", 2, 4096).pool("p", &["m"])
}

fn of_evil(decision: &Decision) -> impl Iterator<Item = &PodVerdict> {
    let pods = decision.report.pods.iter();
    pods.filter(|(key, _)| &*key.namespace == "evil")
        .map(|(_, verdict)| verdict)
}

fn too_complex(verdict: &PodVerdict) -> bool {
    match verdict {
        PodVerdict::NoCompatiblePool { why } => why
            .get("*")
            .is_some_and(|why| matches!(*why.first, Refused::TooComplex { .. } | Refused::Chained)),
        _ => false,
    }
}

#[test]
fn whatever_a_tenant_has_many_of_another_gets_its_node() {
    for (name, twist) in TWISTS {
        let lab = pool().twisted(twist).pod("web-0", 500, 512);
        let (decision, steps) = lab.decide_within(LITTLE);
        let web = verdict(&decision, "web-0");
        assert!(
            matches!(web, PodVerdict::Triggers { .. }),
            "{name}: {web:?}"
        );
        let left_out = of_evil(&decision)
            .filter(|verdict| too_complex(verdict))
            .count();
        assert!(left_out > 0, "{name}: none was left out, {steps} steps");
        assert!(steps <= 20 * LITTLE, "{name}: {steps} steps");
        let warned = decision
            .report
            .warnings
            .iter()
            .any(|text| text.contains("evil"));
        assert!(warned, "{name}: {:?}", decision.report.warnings);
    }
}

/// What small worlds have is no matter with the budget that decisions have.
#[test]
fn the_budget_is_far_away() {
    for (name, twist) in TWISTS {
        let lab = pool().twisted(twist).pod("web-0", 500, 512);
        let lean = within(&lab.snapshot, &lab.policy);
        assert!(matches!(lean, Cow::Borrowed(_)), "{name}");
    }
}

#[test]
fn many_kinds_of_pods_are_charged_to_their_namespace() {
    let mut lab = pool().pod("web-0", 500, 512);
    for number in 0..2_000 {
        lab = lab.pod_of("evil", &format!("evil{number}-0"), |_| ());
    }
    let (decision, _) = lab.decide_within(20_000);
    let web = verdict(&decision, "web-0");
    assert!(matches!(web, PodVerdict::Triggers { .. }), "{web:?}");
    let left_out = of_evil(&decision)
        .filter(|verdict| too_complex(verdict))
        .count();
    assert!((1..2_000).contains(&left_out), "{left_out}");
}

/// The cheapest of a namespace stay in, and one namespace's do not use up what another's need.
#[test]
fn who_has_used_up_most_is_left_out_first() {
    let modest: Twist = |shape, pod| shape.pod_anti_affinity = vec![term(pod, 0, false)];
    let mut lab = pool().twisted(TWISTS[0].1);
    for number in 0..10 {
        lab = lab.pod_of("good", &format!("good{number}-0"), |pod| {
            modest(Arc::make_mut(&mut pod.shape), number);
        });
    }
    let simple = |pod: &mut Pod| modest(Arc::make_mut(&mut pod.shape), 99);
    let lab = lab.pod_of("evil", "simple-0", simple);
    let (decision, _) = lab.decide_within(LITTLE);
    for (key, verdict) in &decision.report.pods {
        let evil = key.name.starts_with("evil");
        assert!(evil || !too_complex(verdict), "{key}: {verdict:?}");
    }
    assert!(of_evil(&decision).any(too_complex));
}

#[test]
fn a_lean_view_stays_as_it_is() {
    for (name, twist) in TWISTS {
        let lab = pool().twisted(twist).pod("web-0", 500, 512);
        let Cow::Owned(lean) = within_steps(&lab.snapshot, &lab.policy, LITTLE) else {
            panic!("{name}: it is within the budget");
        };
        let again = within_steps(&lean, &lab.policy, LITTLE);
        assert!(matches!(again, Cow::Borrowed(_)), "{name}");
    }
}

/// A pod that runs keeps its room and its node; nodes of others go.
#[test]
fn a_node_with_a_pod_that_is_left_out_stays() {
    let mut lab = pool()
        .ours("p-a", "p", "m")
        .ours("p-b", "p", "m")
        .twisted(TWISTS[0].1);
    for (key, pod) in &mut lab.snapshot.cluster.pods {
        assert_eq!(&*key.namespace, "evil");
        pod.node = Some("p-a".into());
        pod.phase = Phase::Running;
        pod.unschedulable_since = None;
        pod.ready = true;
        Arc::make_mut(&mut pod.shape).requests.cpu_milli = 1;
    }
    let mut last = None;
    for _ in 0..40 {
        let (decision, _) = lab.decide_within(LITTLE);
        lab.memory = decision.memory.clone();
        let done = !removed(&decision).is_empty();
        last = Some(decision);
        if done {
            break;
        }
        lab = lab.after(model::time::Span::minutes(1));
    }
    let decision = last.expect("decided");
    assert_eq!(removed(&decision), ["p-b"]);
    assert_eq!(kept(&decision, "p-a"), "UnexpectedError");
    // With the budget that decisions have they are weighed.
    assert_ne!(
        kept(
            &decide(&lab.snapshot, &lab.policy, &lab.memory, lab.now),
            "p-a"
        ),
        "UnexpectedError"
    );
}

/// Each pod wants to be where the next one is: every round over them places one more.
#[test]
fn a_long_chain_of_pods_is_cut_and_named() {
    let chain = |count: usize| {
        // One whom all of them may follow is where none of them may go: they are tried everywhere, again and again.
        let link = |number: usize| (Arc::from(format!("link-{number}")), Arc::from(""));
        let lab = pool().pod("web-0", 1_000, 1_024);
        let lab = lab
            .node("shut", 64_000, 262_144)
            .bound("seed", "shut", 1, 1);
        let lab = lab.edit_node("shut", |node| node.unschedulable = true);
        let mut lab = lab.shape("seed", |shape| {
            shape.labels = (0..count).map(link).collect();
        });
        for number in 0..60 {
            lab = lab.node(&format!("n{number:02}"), 64_000, 262_144);
        }
        for number in 0..count {
            lab = lab.pod_of("evil", &format!("c{number:03}-0"), |pod| {
                let shape = Arc::make_mut(&mut pod.shape);
                shape.labels = [link(number)].into();
                if number + 1 < count {
                    shape.pod_affinity = vec![PodTerm {
                        selector: Some(LabelSelector {
                            labels: [link(number + 1)].into(),
                            ..LabelSelector::default()
                        }),
                        topology_key: "kubernetes.io/hostname".into(),
                        namespaces: vec!["default".into(), "evil".into()],
                        ..PodTerm::default()
                    }];
                }
            });
        }
        lab
    };
    let lab = chain(100);
    let (decision, free) = lab.decide_within(crate::decision::turn::DECISION_STEPS);
    assert!(of_evil(&decision).all(|verdict| matches!(verdict, PodVerdict::FitsNode { .. })));
    // So much that they are looked at, and too little for all rounds.
    let is_whole = |steps: &u64| {
        let lean = within_steps(&lab.snapshot, &lab.policy, *steps);
        matches!(lean, Cow::Borrowed(_))
    };
    let mut parts = (6..=10).rev().map(|parts| free / parts);
    let little = parts
        .find(is_whole)
        .expect("what it costs is more than is reckoned");
    let (decision, steps) = lab.decide_within(little);
    assert!(steps < free, "{steps} of {free} steps");
    assert!(
        of_evil(&decision).any(too_complex),
        "{:?}",
        decision.report.pods
    );
    let web = verdict(&decision, "web-0");
    assert!(matches!(web, PodVerdict::FitsNode { .. }), "{web:?}");
    assert_eq!(made(&decision), Vec::<String>::new());
}

/// Budgets that would have to be asked too often: nobody is evicted there, and they hold up nobody else.
#[test]
fn disruption_budgets_without_number_are_not_asked() {
    let mut lab = pool().ours("p-a", "p", "m").ours("p-b", "p", "m");
    for number in 0..50 {
        lab = lab.pod_of("evil", &format!("evil{number}-0"), |pod| {
            pod.node = Some("p-a".into());
            pod.phase = Phase::Running;
            pod.unschedulable_since = None;
            pod.ready = true;
            let requests = &mut Arc::make_mut(&mut pod.shape).requests;
            (requests.cpu_milli, requests.memory) = (1, 1);
        });
    }
    for number in 0..2_000 {
        let budget = DisruptionBudget {
            selector: term(0, number, false).selector,
            allowed: 1,
            always_allow_unhealthy: false,
            healthy: true,
        };
        let key = ObjectKey::new("evil", format!("b{number}"));
        lab.snapshot.cluster.budgets.insert(key, budget);
    }
    let (decision, _) = lab.decide_within(100_000);
    assert_eq!(kept(&decision, "p-a"), "UnexpectedError");
    assert_ne!(kept(&decision, "p-b"), "UnexpectedError");
}
