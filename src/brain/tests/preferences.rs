//! Preferences about other pods: they steer what costs nothing, and never make a machine.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::lab::{Lab, lab, made, owner};
use crate::check;
use model::action::Kind;
use model::cluster::ObjectKey;
use model::decision::Decision;
use model::policy::{Policy, ZONE_LABEL};
use model::report::PodVerdict;
use model::scheduling::{
    LabelSelector, Labels, NodeTerm, Operator, PodShape, PodTerm, Requirement, SpreadConstraint,
};

const HOSTNAME: &str = "kubernetes.io/hostname";

fn term(app: &str, key: &str) -> PodTerm {
    PodTerm {
        selector: Some(LabelSelector {
            labels: Labels::from([("app".into(), app.into())]),
            ..LabelSelector::default()
        }),
        topology_key: key.into(),
        ..PodTerm::default()
    }
}

fn spread(app: &str, key: &str, hard: bool) -> SpreadConstraint {
    SpreadConstraint {
        max_skew: 1,
        topology_key: key.into(),
        hard,
        selector: term(app, key).selector,
        min_domains: None,
        match_label_keys: Vec::new(),
        honor_affinity: true,
        honor_taints: false,
    }
}

fn app(shape: &mut PodShape, name: &str) {
    shape.labels.insert("app".into(), name.into());
}

/// The machine that a pod of the namespace `default` is planned for.
fn machine<'a>(decision: &'a Decision, pod: &str) -> &'a str {
    match &decision.report.pods[&ObjectKey::new("default", pod)] {
        PodVerdict::Triggers { machine, .. } => machine,
        other => panic!("{pod}: {other:?}"),
    }
}

/// The host of every planned machine.
fn hosts(decision: &Decision) -> BTreeMap<&str, &str> {
    let plan = decision.plan.iter();
    plan.map(|action| (&*action.target.machine, &*action.target.host))
        .collect()
}

fn host<'a>(decision: &'a Decision, pod: &str) -> &'a str {
    hosts(decision)[machine(decision, pod)]
}

/// How many of the pods `PREFIX-N` are on each planned machine, sorted.
fn shares(decision: &Decision, prefix: &str) -> Vec<usize> {
    let mut shares: BTreeMap<&str, usize> = BTreeMap::new();
    for (key, verdict) in &decision.report.pods {
        if let PodVerdict::Triggers { machine, .. } = verdict
            && key.name.starts_with(prefix)
        {
            *shares.entry(machine).or_default() += 1;
        }
    }
    let mut shares: Vec<usize> = shares.into_values().collect();
    shares.sort_unstable();
    shares
}

fn checked(lab: &Lab) -> Decision {
    let decision = lab.decide();
    let refused = check::check_plan(&decision.plan, &lab.snapshot, &lab.policy, lab.now);
    assert_eq!(refused, Ok(()));
    decision
}

#[test]
fn pods_that_would_be_apart_share_the_machines_that_are_needed_anyway() {
    let lab = lab()
        .kind("four", 4, 8192)
        .pool("p", &["four"])
        .pods("web", 4, 1000, 100)
        .pods("fill", 3, 1000, 100);
    let preference =
        |shape: &mut PodShape| shape.preferred_anti_pods = vec![(100, term("web", HOSTNAME))];
    let plain = checked(&lab.clone().shapes("web", |shape| app(shape, "web")));
    assert_eq!(made(&plain), ["four"; 2]);
    let lab = lab.shapes("web", |shape| {
        app(shape, "web");
        preference(shape);
    });
    let decision = checked(&lab);
    assert_eq!(made(&decision), made(&plain));
    assert_eq!(shares(&plain, "web"), [1, 3]);
    assert_eq!(shares(&decision, "web"), [2, 2]);
}

#[test]
fn pods_change_places_where_there_is_no_room() {
    let mut lab = lab().kind("two", 3, 8192).pool("p", &["two"]);
    for name in ["a", "b"] {
        lab = lab.pods(name, 2, 1000, 100).shapes(name, |shape| {
            app(shape, name);
            shape.preferred_anti_pods = vec![(1, term(name, HOSTNAME))];
        });
    }
    let decision = checked(&lab);
    assert_eq!(made(&decision), ["two"; 2]);
    assert_eq!(shares(&decision, "a"), [1, 1]);
    assert_eq!(shares(&decision, "b"), [1, 1]);
}

#[test]
fn a_machine_is_made_in_the_zone_of_friends_and_away_from_others() {
    let lab = lab()
        .kind("two", 2, 4096)
        .pool("p", &["two"])
        .node("n1", 100, 100)
        .edit_node("n1", |node| {
            node.labels.insert(ZONE_LABEL.into(), "pve3".into());
        })
        .bound("db", "n1", 10, 10)
        .shape("db", |shape| app(shape, "db"))
        .pod("web", 1000, 1000);
    assert_eq!(host(&checked(&lab), "web"), "pve1");
    let near = lab.clone().shape("web", |shape| {
        shape.preferred_pods = vec![(1, term("db", ZONE_LABEL))];
    });
    assert_eq!(host(&checked(&near), "web"), "pve3");
    let apart = lab.with(|lab| {
        lab.snapshot
            .cluster
            .nodes
            .get_mut("n1")
            .expect("n1")
            .labels
            .insert(ZONE_LABEL.into(), "pve1".into());
    });
    let apart = apart.shape("web", |shape| {
        shape.preferred_anti_pods = vec![(1, term("db", ZONE_LABEL))];
    });
    assert_ne!(host(&checked(&apart), "web"), "pve1");
}

#[test]
fn schedule_anyway_counts_what_runs_already() {
    let preference = |shape: &mut PodShape| {
        app(shape, "web");
        shape.spread = vec![spread("web", ZONE_LABEL, false)];
    };
    let mut lab = lab().kind("two", 2, 4096).pool("p", &["two"]);
    for (node, zone) in [("n1", "pve1"), ("n2", "pve2")] {
        lab = lab.node(node, 100, 100).edit_node(node, |node| {
            node.labels.insert(ZONE_LABEL.into(), zone.into());
        });
        lab = lab.bound(&format!("old-{node}"), node, 10, 10);
    }
    let lab = lab
        .shapes("old", preference)
        .pods("web", 3, 1500, 1000)
        .shapes("web", preference);
    let decision = checked(&lab);
    assert_eq!(made(&decision), ["two"; 3]);
    let mut count = BTreeMap::from([("pve1", 1), ("pve2", 1)]);
    for n in 0..3 {
        *count
            .entry(host(&decision, &format!("web-{n}")))
            .or_insert(0) += 1;
    }
    assert_eq!(count.into_values().collect::<Vec<_>>(), [2, 2, 1]);
}

#[test]
fn the_schedulers_own_preference_puts_a_machine_where_the_controller_has_no_pod() {
    let mut lab = lab().kind("two", 2, 4096).pool("p", &["two"]);
    for (node, zone) in [("n1", "pve1"), ("n2", "pve2")] {
        lab = lab
            .node(node, 100, 100)
            .edit_node(node, |node| {
                node.labels.insert(ZONE_LABEL.into(), zone.into());
            })
            .bound(&format!("web-{node}"), node, 10, 10);
    }
    let lab = lab.pod("web", 1000, 1000).shapes("web", |shape| {
        shape.owner = Some(owner("ReplicaSet", "web"));
    });
    assert_eq!(host(&checked(&lab), "web"), "pve3");
    // One that names its own constraints has these alone.
    let own = lab.shapes("web", |shape| {
        shape.spread = vec![spread("x", HOSTNAME, true)];
    });
    assert_eq!(host(&checked(&own), "web"), "pve1");
}

#[test]
fn of_pools_that_are_alike_the_one_in_the_right_zone_is_taken() {
    let mut lab = lab()
        .kind("two", 2, 4096)
        .node("n1", 100, 100)
        .edit_node("n1", |node| {
            node.labels.insert(ZONE_LABEL.into(), "pve2".into());
        })
        .bound("db", "n1", 10, 10)
        .shape("db", |shape| app(shape, "db"))
        .pod("web", 1000, 1000)
        .shape("web", |shape| {
            shape.preferred_pods = vec![(50, term("db", ZONE_LABEL))];
        });
    for (pool, at) in [("a", "pve1"), ("b", "pve2")] {
        lab = lab
            .pool(pool, &["two"])
            .edit_pool(pool, |pool| pool.hosts = vec![at.into()]);
    }
    assert_eq!(host(&checked(&lab), "web"), "pve2");
    // Not at a higher price.
    let lab = lab
        .kind("dear", 2, 4096)
        .edit_kind("dear", |kind| kind.price = Some(99_000_000))
        .edit_pool("b", |pool| pool.instance_types = vec!["dear".into()]);
    assert_eq!(host(&checked(&lab), "web"), "pve1");
}

#[test]
fn what_pods_insist_on_is_kept_when_others_prefer() {
    let preference = |shape: &mut PodShape| {
        app(shape, "web");
        shape.spread = vec![spread("web", ZONE_LABEL, true)];
        shape.preferred_pods = vec![(100, term("db", ZONE_LABEL))];
    };
    let lab = lab()
        .kind("two", 2, 4096)
        .pool("p", &["two"])
        .node("n1", 100, 100)
        .edit_node("n1", |node| {
            node.labels.insert(ZONE_LABEL.into(), "pve2".into());
        })
        .bound("db", "n1", 10, 10)
        .shape("db", |shape| app(shape, "db"))
        .pods("web", 3, 1500, 1000)
        .shapes("web", preference);
    let decision = checked(&lab);
    let at: BTreeSet<&str> = (0..3)
        .map(|n| host(&decision, &format!("web-{n}")))
        .collect();
    assert_eq!(at.len(), 3);
}

#[test]
fn a_preference_about_the_node_is_no_reason_for_more_machines() {
    let small = NodeTerm {
        expressions: vec![Requirement {
            key: "size".into(),
            operator: Operator::In,
            values: vec!["small".into()],
        }],
        ..NodeTerm::default()
    };
    let lab = lab()
        .kind("large", 16, 32_768)
        .kind("small", 2, 4096)
        .edit_kind("large", |kind| kind.price = Some(100))
        .edit_kind("small", |kind| {
            kind.price = Some(30);
            kind.labels.insert("size".into(), "small".into());
        })
        .pool("p", &["large", "small"])
        .pods("web", 10, 1000, 1000);
    assert_eq!(made(&lab.decide()), ["large"]);
    let search = lab.shapes("web", |shape| {
        shape.preferred_nodes = vec![(100, small.clone())];
    });
    assert_eq!(made(&search.decide()), ["large"]);
    // One pod alone gets what it prefers: a dearer type, not more machines.
    let one = lab_of_one(&search.policy, small);
    assert_eq!(made(&one.decide()), ["small"]);
}

/// One pod that prefers a small node; a smaller one without the label is cheaper.
fn lab_of_one(policy: &Policy, small: NodeTerm) -> Lab {
    let mut lab = lab().pod("web", 500, 500).shape("web", |shape| {
        shape.preferred_nodes = vec![(100, small)];
    });
    lab.policy = policy.clone();
    lab.kind("tiny", 1, 2048)
        .edit_kind("tiny", |kind| kind.price = Some(20))
        .edit_pool("p", |pool| pool.instance_types.push("tiny".into()))
}

#[derive(Clone, Debug)]
struct Recipe {
    milli: i64,
    app: u8,
    twist: u8,
    weight: i32,
}

fn recipes() -> impl Strategy<Value = Vec<Recipe>> {
    let recipe =
        (100..2500i64, 0..3u8, 0..9u8, 1..100i32).prop_map(|(milli, app, twist, weight)| Recipe {
            milli,
            app,
            twist,
            weight,
        });
    proptest::collection::vec(recipe, 1..25)
}

/// The same world, with preferences and without.
fn world(recipes: &[Recipe], old: &[(u8, u8)], host_gib: i64, preferences: bool) -> Lab {
    let mut lab = lab()
        .kind("two", 2, 4096)
        .kind("four", 4, 8192)
        .pool("p", &["two", "four"])
        .pool("q", &["two"])
        .edit_pool("q", |pool| pool.hosts = vec!["pve2".into()]);
    let region = lab.snapshot.regions.get_mut("home").expect("home");
    for host in region.hosts.values_mut() {
        host.memory = host_gib << 30;
    }
    for (n, (zone, app_of)) in old.iter().enumerate() {
        let (node, pod) = (format!("n{n}"), format!("old{n}"));
        lab = lab
            .node(&node, 100, 100)
            .edit_node(&node, |node| {
                let zone = format!("pve{}", zone + 1);
                node.labels.insert(ZONE_LABEL.into(), zone.as_str().into());
            })
            .bound(&pod, &node, 10, 10)
            .shape(&pod, |shape| app(shape, &format!("app{app_of}")));
    }
    for (n, recipe) in recipes.iter().enumerate() {
        let name = format!("pod{n}");
        let own = format!("app{}", recipe.app);
        let next = format!("app{}", (recipe.app + 1) % 3);
        lab = lab.pod(&name, recipe.milli, 500).shape(&name, |shape| {
            app(shape, &own);
            match recipe.twist {
                0 => shape.pod_anti_affinity = vec![term(&own, HOSTNAME)],
                1 => shape.spread = vec![spread(&own, ZONE_LABEL, true)],
                2 => {
                    shape.node_selector.insert(ZONE_LABEL.into(), "pve2".into());
                }
                _ if !preferences => {}
                3 => shape.preferred_anti_pods = vec![(recipe.weight, term(&own, HOSTNAME))],
                4 => shape.preferred_pods = vec![(recipe.weight, term(&next, ZONE_LABEL))],
                5 => shape.spread = vec![spread(&own, ZONE_LABEL, false)],
                6 => {
                    shape.spread = vec![spread(&own, HOSTNAME, false)];
                    shape.preferred_pods = vec![(recipe.weight, term(&next, HOSTNAME))];
                }
                7 => shape.preferred_anti_pods = vec![(recipe.weight, term(&next, ZONE_LABEL))],
                _ => {}
            }
        });
    }
    lab
}

/// Machines, their price, and the pods that none is made for.
fn bill(decision: &Decision, policy: &Policy) -> (usize, i64, usize) {
    let kinds = decision
        .plan
        .iter()
        .filter_map(|action| match &action.kind {
            Kind::Create(spec) => policy.instance_types.get(spec.mark.instance_type.as_str()),
            _ => None,
        });
    let prices: Vec<i64> = kinds.map(|kind| i64::from(kind.cores)).collect();
    let pods = decision.report.pods.values();
    let left = pods.filter(|verdict| !matches!(verdict, PodVerdict::Triggers { .. }));
    (prices.len(), prices.iter().sum(), left.count())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn preferences_cost_nothing_and_break_no_rule(
        recipes in recipes(),
        old in proptest::collection::vec((0..3u8, 0..3u8), 0..4),
        host_gib in prop_oneof![Just(4000i64), 8..40i64],
    ) {
        let plain = world(&recipes, &old, host_gib, false);
        let search = world(&recipes, &old, host_gib, true);
        let (without, with) = (plain.decide(), search.decide());
        prop_assert_eq!(bill(&with, &search.policy), bill(&without, &plain.policy));
        let refused = check::check_plan(&with.plan, &search.snapshot, &search.policy, search.now);
        prop_assert_eq!(refused, Ok(()));
        for action in &with.plan {
            let model::action::Reason::PendingPods { pods, .. } = &action.reason else {
                continue;
            };
            prop_assert!(!pods.is_empty());
            for pod in pods {
                let verdict = &with.report.pods[pod];
                let says = matches!(verdict, PodVerdict::Triggers { machine, .. } if *machine == action.target.machine);
                prop_assert!(says, "{}: {:?}", pod, verdict);
            }
        }
    }
}
