//! What `explain` says of preferences: which are met at the place of the decision, and why not the others.

use std::sync::Arc;

use proptest::prelude::*;

use super::lab::{GI, Lab, lab, shape};
use super::wide;
use crate::report::explain::{self, Asked};
use model::cluster::ObjectKey;
use model::policy::ZONE_LABEL;
use model::report::PodVerdict;
use model::scheduling::{
    Effect, LabelSelector, Labels, NodeTerm, Operator, PodTerm, Requirement, SpreadConstraint,
    Taint,
};
use model::story::{PodStory, PreferenceAnswer, PreferenceKind};

const HOSTNAME: &str = "kubernetes.io/hostname";

fn story(lab: &Lab, pod: &str) -> PodStory {
    let decision = lab.decide();
    let asked = Asked {
        snapshot: &lab.snapshot,
        policy: &lab.policy,
        memory: &lab.memory,
        decision: &decision,
        now: lab.now,
    };
    let told = explain::pod(asked, &ObjectKey::new("default", pod)).expect("the pod is there");
    let again = explain::pod(asked, &ObjectKey::new("default", pod));
    assert_eq!(again.as_ref(), Some(&told));
    told
}

/// What is said of the preferences of a pod, one line each.
fn said(lab: &Lab, pod: &str) -> Vec<String> {
    let line = |preference: &PreferenceAnswer| {
        let pods = preference.pods.iter();
        let pods: Vec<String> = pods.map(|(at, n)| format!(" {n} in {at}")).collect();
        let met = if preference.met { "met" } else { "not met" };
        let why = preference
            .why
            .as_ref()
            .map_or(String::new(), |why| format!(": {why}"));
        format!("{}{} {met}{why}", preference.preference, pods.join(","))
    };
    story(lab, pod).preferences.iter().map(line).collect()
}

fn in_zones(zones: &[&str]) -> NodeTerm {
    NodeTerm {
        expressions: vec![Requirement {
            key: ZONE_LABEL.into(),
            operator: Operator::In,
            values: zones.iter().map(|zone| Arc::from(*zone)).collect(),
        }],
        fields: Vec::new(),
    }
}

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

fn evenly(app: &str, key: &str) -> SpreadConstraint {
    SpreadConstraint {
        max_skew: 1,
        topology_key: key.into(),
        hard: false,
        selector: term(app, key).selector,
        min_domains: None,
        match_label_keys: Vec::new(),
        honor_affinity: true,
        honor_taints: false,
    }
}

/// One pool of one type of 4 cores, on hosts of which pve2 has 1 GiB left.
fn world() -> Lab {
    lab()
        .kind("four", 4, 4096)
        .pool("p", &["four"])
        .with(|lab| {
            let hosts = &mut lab.snapshot.regions.get_mut("home").expect("home").hosts;
            hosts.get_mut("pve2").expect("pve2").memory = GI;
        })
}

#[test]
fn a_host_that_is_full_is_the_reason() {
    let lab = world().pod("web", 1000, 100).shape("web", |shape| {
        shape.preferred_nodes = vec![(50, in_zones(&["pve2"])), (10, in_zones(&["pve1"]))];
    });
    assert_eq!(
        said(&lab, "web"),
        [
            "prefers nodes with topology.kubernetes.io/zone In [pve2] not met: no machine of p/four can be \
             made on pve2: the host pve2 has 1Gi of memory left for VMs, one of this type takes 4Gi",
            "prefers nodes with topology.kubernetes.io/zone In [pve1] met",
        ]
    );
}

#[test]
fn a_preference_that_nothing_could_meet_says_so() {
    let lab = world().pod("web", 1000, 100).shape("web", |shape| {
        shape.preferred_nodes = vec![(50, in_zones(&["moon"])), (1, NodeTerm::default())];
    });
    assert_eq!(
        said(&lab, "web"),
        [
            "prefers nodes with topology.kubernetes.io/zone In [moon] not met: no other node would meet it, and no new machine would",
            "prefers nodes by a term without requirements, which no node meets not met: no other node would meet it, and no new machine would",
        ]
    );
}

#[test]
fn where_a_node_has_room_no_machine_is_made_for_a_preference() {
    let lab = world().ours("n1", "p", "four").pod("web", 1000, 100);
    let lab = lab.shape("web", |shape| {
        shape.preferred_nodes = vec![(100, in_zones(&["pve3"]))];
    });
    assert_eq!(
        said(&lab, "web"),
        [
            "prefers nodes with topology.kubernetes.io/zone In [pve3] not met: a preference alone makes no machine",
        ]
    );
    // A node that has it and is full comes first.
    let lab = lab.ours("n2", "p", "four").edit_node("n2", |node| {
        node.labels.insert(ZONE_LABEL.into(), "pve3".into());
    });
    let lab = lab.bound("full", "n2", 3500, 100);
    assert_eq!(
        said(&lab, "web"),
        [
            "prefers nodes with topology.kubernetes.io/zone In [pve3] not met: on n2: cpu: asks 1, 0.5 are \
             free; a preference alone makes no machine",
        ]
    );
}

#[test]
fn a_taint_that_is_cheaper_to_bear_says_what_the_others_lack() {
    let batch = Taint {
        key: "dedicated".into(),
        value: "batch".into(),
        effect: Effect::PreferNoSchedule,
    };
    let lab = world()
        .edit_pool("p", |pool| pool.taints.push(batch))
        .pool("q", &["four"])
        .pod("web", 1000, 100);
    let preference = "prefers no taint dedicated=batch:PreferNoSchedule";
    assert_eq!(said(&lab, "web"), [format!("{preference} met")]);
    let lab = lab.edit_pool("q", |pool| pool.max = 0);
    assert_eq!(
        said(&lab, "web"),
        [format!(
            "{preference} not met: no machine of q/four can be made on pve1: pool limit: it has 0 machines, its \
             max is 0"
        )]
    );
    // Who tolerates it has no such preference.
    let lab = lab.shape("web", |shape| {
        shape.tolerations = vec![model::scheduling::Toleration {
            key: Some("dedicated".into()),
            value: "batch".into(),
            exists: false,
            effect: None,
        }];
    });
    assert_eq!(said(&lab, "web"), [""; 0]);
}

#[test]
fn company_is_counted_as_the_decision_leaves_it() {
    let lab = world().pods("web", 2, 2000, 100).shapes("web", |shape| {
        shape.preferred_pods = vec![(30, term("db", ZONE_LABEL))];
        shape.preferred_anti_pods = vec![(100, term("web", HOSTNAME))];
    });
    assert_eq!(
        said(&lab, "web-0"),
        [
            "prefers to be near pods app=db within the same topology.kubernetes.io/zone not met: there is \
             no such pod",
            "prefers to be away from pods app=web on the same node not met: one such pod is there; its \
             machine is made for another pod too, and a preference alone makes no other one",
        ]
        .map(|line: &str| line.to_owned())
    );
    // With a machine more for other reasons both are met.
    let lab = lab
        .pods("fill", 3, 2000, 100)
        .ours("n1", "p", "four")
        .bound("db", "n1", 4000, 100);
    let met = said(&lab, "web-0");
    assert!(
        met[1].ends_with(" met") && !met[1].contains("not met"),
        "{met:?}"
    );
}

#[test]
fn a_spread_names_its_domains() {
    let lab = world()
        .ours("n1", "p", "four")
        .bound("web-8", "n1", 500, 10)
        .bound("web-9", "n1", 500, 10)
        .pods("web", 1, 1000, 100)
        .shapes("web", |shape| {
            shape.spread = vec![evenly("web", ZONE_LABEL)];
        });
    assert_eq!(
        said(&lab, "web-0"),
        [
            "ScheduleAnyway over topology.kubernetes.io/zone, maxSkew 1 3 in pve1, 0 in pve2, 0 in pve3 not \
             met: a preference alone makes no machine",
        ]
    );
    // A machine is made all the same: it is made where there is none yet, and that is even enough.
    let lab = lab.edit("web-0", |pod| {
        Arc::make_mut(&mut pod.shape).requests.cpu_milli = 4000;
    });
    let [preference] = &story(&lab, "web-0").preferences[..] else {
        panic!("one preference");
    };
    assert!(preference.met, "{preference:?}");
    assert_eq!(preference.pods["pve3"], 1);
    assert_eq!(preference.kind, PreferenceKind::TopologySpread);
}

#[test]
fn the_default_spread_is_said_where_it_is_not_met() {
    let lab = world().ours("n1", "p", "four").pods("web", 7, 100, 10);
    let [preference] = &story(&lab, "web-0").preferences[..] else {
        panic!("one preference");
    };
    assert_eq!(
        (preference.kind, preference.met),
        (PreferenceKind::DefaultSpread, false)
    );
    assert_eq!(preference.pods["pve1"], 7);
    let lab = world().ours("n1", "p", "four").pods("web", 5, 100, 10);
    assert_eq!(said(&lab, "web-0"), [""; 0]);
}

#[test]
fn a_pod_that_runs_is_told_of_where_it_runs_and_one_without_place_of_nothing() {
    let lab = world()
        .ours("n1", "p", "four")
        .bound("web", "n1", 500, 10)
        .shape("web", |shape| {
            shape.preferred_nodes = vec![(1, in_zones(&["pve3"]))];
        });
    let told = story(&lab, "web");
    assert_eq!(told.place.as_deref(), Some("n1"));
    let why = told.preferences[0].why.as_deref().unwrap_or_default();
    assert!(why.contains("kube-scheduler chose that node"), "{why}");
    let lab = lab.edit("web", |pod| {
        *pod = model::cluster::Pod {
            shape: Arc::new(shape("web", 64_000, 1)),
            ..world().pod("web", 1, 1).snapshot.cluster.pods[&ObjectKey::new("default", "web")]
                .clone()
        };
    });
    let told = story(&lab, "web");
    assert!(told.place.is_none() && told.preferences.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Every pod of every world can be told of; preferences are weighed where the decision has the pod, and
    /// whatever is not met has a reason.
    #[test]
    fn stories_agree_with_the_decision(wide in wide::wide(5, 14)) {
        let lab = wide.build();
        let decision = lab.decide();
        let asked = Asked {
            snapshot: &lab.snapshot,
            policy: &lab.policy,
            memory: &lab.memory,
            decision: &decision,
            now: lab.now,
        };
        for (key, pod) in &lab.snapshot.cluster.pods {
            let told = explain::pod(asked, key).expect("it is there");
            let at = match decision.report.pods.get(key) {
                None => pod.node.as_ref(),
                Some(PodVerdict::FitsNode { node: name, .. }
                    | PodVerdict::FitsMachine { machine: name }
                    | PodVerdict::Triggers { machine: name, .. }) => Some(name),
                Some(_) => None,
            };
            if let Some(place) = &told.place {
                prop_assert_eq!(Some(place), at);
            } else {
                prop_assert!(told.preferences.is_empty());
                // A machine that became a node under another name is known by its own.
                prop_assert!(at.is_none() || pod.node.is_some(), "{key} has a place: {at:?}");
            }
            let offers = told.offers.iter().map(|offer| (&offer.filter_failure, &offer.further));
            let nodes = told.nodes.iter().map(|node| (&node.filter_failure, &node.further));
            for (first, further) in offers.chain(nodes) {
                let all: Vec<_> = first.iter().chain(further).collect();
                let alike = |one: &_| all.iter().filter(|other| **other == one).count() > 1;
                prop_assert!(first.is_some() || further.is_empty(), "{further:?}");
                prop_assert!(!all.iter().any(|one| alike(*one)), "told twice: {all:?}");
            }
            let kinds: Vec<PreferenceKind> = told.preferences.iter().map(|preference| preference.kind).collect();
            prop_assert!(kinds.is_sorted());
            let named = |kind| kinds.iter().filter(|of| **of == kind).count();
            if told.place.is_some() {
                prop_assert_eq!(named(PreferenceKind::NodeAffinity), pod.shape.preferred_nodes.len());
                prop_assert_eq!(named(PreferenceKind::PodAffinity), pod.shape.preferred_pods.len());
                prop_assert_eq!(named(PreferenceKind::PodAntiAffinity), pod.shape.preferred_anti_pods.len());
            }
            for preference in &told.preferences {
                prop_assert_eq!(preference.met, preference.why.is_none(), "{:?}", preference);
                let spread = matches!(preference.kind, PreferenceKind::TopologySpread | PreferenceKind::DefaultSpread);
                prop_assert!(spread || preference.pods.is_empty());
                prop_assert!(preference.pods.values().all(|pods| *pods >= 0), "{:?}", preference);
            }
        }
    }
}
