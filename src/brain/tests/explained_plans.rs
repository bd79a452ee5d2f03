//! Stories of pods whose reasons are other pods of the same decision: what heads a story and the rows below it never contradict one another.

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::lab::{GI, Lab, lab};
use crate::report::explain::{self, Asked};
use model::action::Kind;
use model::cluster::ObjectKey;
use model::decision::Decision;
use model::reasons::{FilterFailure, Refused};
use model::report::PodVerdict;
use model::scheduling::{LabelSelector, Labels, PodShape, PodTerm, SpreadConstraint};
use model::story::{OfferAnswer, PodStory};

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// Pods that are alike, and what they ask of each other's places.
#[derive(Clone, Copy, Debug)]
struct Lot {
    count: usize,
    milli: i64,
    tie: Tie,
    priority: i32,
}

/// What pods ask of the places of others.
#[derive(Clone, Copy, Debug)]
enum Tie {
    Free,
    /// No two in one domain of a key.
    Apart(&'static str),
    /// All in one domain of a key.
    Together(&'static str),
    /// Beside a pod of the lot before, or away from it.
    Follows(&'static str),
    Avoids(&'static str),
    /// Even over zones, with `minDomains` where it is not 0.
    Spread(i32),
}

/// Pods of one decision with ties among them, and what limits allow.
#[derive(Clone, Debug)]
struct Tied {
    lots: Vec<Lot>,
    max: u32,
    host_gib: i64,
    /// A node there is, with so much of a core.
    node: Option<i64>,
}

fn lot() -> impl Strategy<Value = Lot> {
    let key = prop::sample::select(vec![HOSTNAME, ZONE]);
    let tie = prop_oneof![
        3 => Just(Tie::Free),
        2 => key.clone().prop_map(Tie::Apart),
        2 => key.clone().prop_map(Tie::Together),
        3 => key.clone().prop_map(Tie::Follows),
        2 => key.prop_map(Tie::Avoids),
        2 => prop::sample::select(vec![0, 2, 4]).prop_map(Tie::Spread),
    ];
    let milli = prop::sample::select(vec![250, 500, 1000, 1500, 2000, 3500]);
    let priority = prop::sample::select(vec![0, 0, 0, 100]);
    (1..6usize, milli, tie, priority).prop_map(|(count, milli, tie, priority)| Lot {
        count,
        milli,
        tie,
        priority,
    })
}

fn tied() -> impl Strategy<Value = Tied> {
    (
        prop::collection::vec(lot(), 1..5),
        1..6u32,
        prop::sample::select(vec![8, 16, 24, 4096]),
        prop::option::of(500..4000i64),
    )
        .prop_map(|(lots, max, host_gib, node)| Tied {
            lots,
            max,
            host_gib,
            node,
        })
}

fn app(name: &str) -> LabelSelector {
    LabelSelector {
        labels: Labels::from([("app".into(), name.into())]),
        ..LabelSelector::default()
    }
}

fn term(name: &str, key: &str) -> Vec<PodTerm> {
    vec![PodTerm {
        selector: Some(app(name)),
        topology_key: key.into(),
        ..PodTerm::default()
    }]
}

/// Ties pods to those of their own lot and of the lot before.
fn tie(shape: &mut PodShape, tie: Tie, (own, before): (&str, &str)) {
    match tie {
        Tie::Free => {}
        Tie::Apart(key) => shape.pod_anti_affinity = term(own, key),
        Tie::Together(key) => shape.pod_affinity = term(own, key),
        Tie::Follows(key) => shape.pod_affinity = term(before, key),
        Tie::Avoids(key) => shape.pod_anti_affinity = term(before, key),
        Tie::Spread(least) => {
            shape.spread = vec![SpreadConstraint {
                min_domains: (least > 0).then_some(least),
                ..spread(own)
            }];
        }
    }
}

fn spread(name: &str) -> SpreadConstraint {
    SpreadConstraint {
        max_skew: 1,
        topology_key: ZONE.into(),
        hard: true,
        selector: Some(app(name)),
        min_domains: None,
        match_label_keys: Vec::new(),
        honor_affinity: true,
        honor_taints: false,
    }
}

/// Three types; hosts of so much memory.
fn world(max: u32, host_gib: i64) -> Lab {
    let lab = lab()
        .kind("small", 2, 4096)
        .kind("medium", 4, 8192)
        .kind("large", 8, 16_384)
        .pool("p", &["small", "medium", "large"])
        .edit_pool("p", |pool| pool.max = max);
    lab.with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        for host in region.hosts.values_mut() {
            host.memory = host_gib * GI;
        }
    })
}

/// Pods of a lot: `a-0`, `a-1` and so on, with the label `app=a`.
fn add(lab: Lab, name: &str, count: usize, milli: i64, change: impl Fn(&mut PodShape)) -> Lab {
    (0..count).fold(lab, |lab, number| {
        let pod = format!("{name}-{number}");
        lab.pod(&pod, milli, 100).shape(&pod, |shape| {
            shape.labels = [("app".into(), name.into())].into();
            change(shape);
        })
    })
}

fn build(tied: &Tied) -> Lab {
    let mut lab = world(tied.max, tied.host_gib);
    if let Some(milli) = tied.node {
        lab = lab.node("there", milli, 8192).edit_node("there", |node| {
            node.labels.insert(ZONE.into(), "pve1".into());
        });
    }
    let names = ["a", "b", "c", "d"];
    for (at, lot) in tied.lots.iter().enumerate() {
        let (own, before) = (names[at], names[at.saturating_sub(1)]);
        lab = add(lab, own, lot.count, lot.milli, |shape| {
            shape.priority = lot.priority;
            tie(shape, lot.tie, (own, before));
        });
    }
    lab
}

fn asked<'a>(lab: &'a Lab, decision: &'a Decision) -> Asked<'a> {
    Asked {
        snapshot: &lab.snapshot,
        policy: &lab.policy,
        memory: &lab.memory,
        decision,
        now: lab.now,
    }
}

fn story(lab: &Lab, pod: &str) -> PodStory {
    let decision = lab.decide();
    let key = ObjectKey::new("default", pod);
    explain::pod(asked(lab, &decision), &key).expect("the pod is there")
}

fn is_possible(offer: &OfferAnswer) -> bool {
    offer.filter_failure.is_none() && offer.held.is_none()
}

/// What would have to change, as a person reads it.
fn changes(story: &PodStory) -> Vec<String> {
    let changes = story.changes.iter();
    let told =
        changes.map(|way| format!("{}: {}", way.places.join(", "), way.needed.join(" and ")));
    told.collect()
}

/// The pool and type of a planned machine, as verdicts name them.
fn label_of(decision: &Decision, machine: &str) -> String {
    let mut plan = decision.plan.iter();
    let action = plan.find(|action| *action.target.machine == *machine);
    match &action.expect("the machine is made").kind {
        Kind::Create(spec) => format!("{}/{}", spec.mark.pool, spec.mark.instance_type),
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(Config::with_cases(32))]

    /// What waits has no machine that would run it and may be made now; what goes to a place would run there by its row; and no reason
    /// against others is one against the machine that a pod got.
    #[test]
    fn what_heads_a_story_and_its_rows_agree(tied in tied()) {
        let lab = build(&tied);
        let decision = lab.decide();
        for (key, verdict) in &decision.report.pods {
            let story = explain::pod(asked(&lab, &decision), key).expect("the pod is there");
            match verdict {
                PodVerdict::Held { .. } | PodVerdict::NoCompatiblePool { .. } => {
                    let possible = story.offers.iter().find(|offer| is_possible(offer));
                    prop_assert!(possible.is_none(), "{key}: {verdict:?}: {possible:?}");
                    let planned = story.planned.iter().find(|one| one.filter_failure.is_none());
                    prop_assert!(planned.is_none(), "{key}: {verdict:?}: {planned:?}");
                }
                PodVerdict::FitsNode { node, .. } => {
                    let row = story.nodes.iter().find(|row| row.name == *node);
                    let row = row.expect("its node");
                    prop_assert!(row.filter_failure.is_none(), "{key}: {row:?}");
                }
                PodVerdict::Triggers { machine, others } => {
                    let own: Vec<_> = story.planned.iter().filter(|row| row.own).collect();
                    prop_assert_eq!(own.len(), 1);
                    prop_assert_eq!(&own[0].name, machine);
                    prop_assert!(own[0].filter_failure.is_none(), "{}: {:?}", key, own[0]);
                    let label = label_of(&decision, machine);
                    prop_assert!(!others.contains_key(&*label), "{}: {}: {:?}", key, label, others);
                    let full = others.iter().find(|(_, why)| {
                        why.iter().any(|why| matches!(**why, Refused::PoolMax { .. }))
                    });
                    // All machines are of one pool, and it is on one of them.
                    prop_assert!(full.is_none(), "{key}: {full:?}");
                }
                _ => {}
            }
        }
    }
}

/// Of five pods that keep out of each other's zones the last two have to wait; every row says so.
#[test]
fn pods_that_need_a_zone_each_are_told_so_of_every_zone() {
    let lab = add(world(8, 4096), "z", 5, 500, |shape| {
        shape.pod_anti_affinity = term("z", ZONE);
    });
    let story = story(&lab, "z-4");
    assert!(matches!(story.verdict, Some(PodVerdict::Held { .. })));
    for offer in &story.offers {
        let why = offer.filter_failure.as_ref().map(ToString::to_string);
        let zone = format!(
            "a pod in zone {} has anti-affinity to it over {ZONE}",
            offer.host
        );
        assert_eq!(why, Some(zone));
    }
    assert_eq!(
        changes(&story),
        [
            "p/large, p/medium, p/small: prefer the anti-affinity over topology.kubernetes.io/zone in place of requiring it, or give [pool.p] hosts in further domains of it"
        ]
    );
}

/// Nine pods insist on one node and the largest holds eight: a larger type would do, or smaller requests.
#[test]
fn a_pod_that_finds_no_room_beside_the_others_is_told_of_a_larger_type() {
    let lab = add(world(8, 4096), "s", 9, 1000, |shape| {
        shape.pod_affinity = term("s", HOSTNAME);
    });
    let story = story(&lab, "s-8");
    assert!(matches!(story.verdict, Some(PodVerdict::Held { .. })));
    let [machine] = &story.planned[..] else {
        panic!("{:?}", story.planned);
    };
    let why = machine.filter_failure.as_ref().map(ToString::to_string);
    assert_eq!(why.as_deref(), Some("cpu: asks 1, 0 are free"));
    let told = changes(&story);
    let larger = format!(
        "{}, planned: give [pool.p] an instance type that has 9 of cpu for it and the pods beside it",
        machine.name
    );
    assert!(told.contains(&larger), "{told:?}");
    assert!(
        !told.iter().any(|way| way.contains("start a pod")),
        "{told:?}"
    );
}

/// A pod whose target is planned is told of the target's machine, and not to start a target.
#[test]
fn a_follower_goes_where_its_target_is_planned() {
    let lab = add(world(8, 4096), "t", 1, 4000, |_| {});
    let lab = add(lab, "f", 3, 2000, |shape| {
        shape.pod_affinity = term("t", HOSTNAME);
    });
    let first = story(&lab, "f-0");
    assert!(matches!(first.verdict, Some(PodVerdict::Triggers { .. })));
    assert!(
        first
            .planned
            .iter()
            .any(|row| row.own && row.filter_failure.is_none())
    );
    let last = story(&lab, "f-2");
    assert!(matches!(last.verdict, Some(PodVerdict::Held { .. })));
    let nowhere = last.offers.iter().any(|offer| {
        matches!(
            &offer.filter_failure,
            Some(FilterFailure::Affinity { nowhere: true, .. })
        )
    });
    assert!(!nowhere, "{:?}", last.offers);
    let told = changes(&last);
    assert!(
        told.iter().any(|way| way.contains("has 10 of cpu for it")),
        "{told:?}"
    );
    assert!(
        !told.iter().any(|way| way.contains("start a pod")),
        "{told:?}"
    );
}

/// Where the target itself waits, it is the one to see to.
#[test]
fn a_follower_of_a_pod_that_waits_is_told_of_that_one() {
    let lab = add(world(8, 4096), "t", 1, 16_000, |_| {});
    let lab = add(lab, "f", 1, 500, |shape| {
        shape.pod_affinity = term("t", HOSTNAME);
    });
    let told = changes(&story(&lab, "f-0"));
    let see = "see to it that default/t-0 gets a place, which the pod has to be with (type: pve-autoscaler explain pod default/t-0)";
    assert_eq!(told, [format!("p/large, p/medium, p/small: {see}")]);
}

/// Too few zones for `minDomains`.
#[test]
fn too_few_zones_are_said_of_every_row() {
    let lab = add(world(8, 4096), "w", 6, 1500, |shape| {
        shape.spread = vec![SpreadConstraint {
            min_domains: Some(4),
            ..spread("w")
        }];
    });
    let story = story(&lab, "w-5");
    assert!(matches!(story.verdict, Some(PodVerdict::Held { .. })));
    assert!(
        story
            .offers
            .iter()
            .all(|offer| offer.filter_failure.is_some())
    );
    let told = changes(&story);
    assert!(told[0].contains("lower minDomains"), "{told:?}");
}

/// A person asks; the answer may cost more than a decision, and comes all the same.
#[test]
fn a_story_of_a_plan_for_300_pods_is_told() {
    let mut lab = world(90, 4096);
    for lot in 0..60 {
        let (own, before) = (format!("a{lot}"), format!("a{}", lot / 2));
        lab = add(lab, &own, 5, 500 + 10 * lot, |shape| {
            if lot % 2 == 1 {
                shape.pod_affinity = term(&before, HOSTNAME);
            }
        });
    }
    let decision = lab.decide();
    let key = ObjectKey::new("default", "a59-4");
    let story = explain::pod(asked(&lab, &decision), &key).expect("the pod is there");
    assert!(
        !story.planned.is_empty(),
        "the plan's machines are rows of it"
    );
}
