//! Node selectors, affinity, taints, volumes, other pods.

use super::lab::{Lab, lab, made, owner, shape, verdict, why};
use model::cluster::{Claim, ObjectKey, PersistentVolume, Phase, Pod, StorageClass};
use model::reasons::Warning;
use model::report::PodVerdict;
use model::scheduling::{
    Effect, LabelSelector, Labels, NodeTerm, Operator, PodTerm, Requirement, SpreadConstraint,
    Taint, Toleration, Volume,
};
use model::time::{Span, Time};

fn pool() -> Lab {
    lab()
        .kind("one", 4, 4096)
        .pool("p", &["one"])
        .edit_pool("p", |pool| {
            pool.labels.insert("k".into(), "v".into());
        })
}

fn requirement(key: &str, operator: Operator, values: &[&str]) -> Requirement {
    Requirement {
        key: key.into(),
        operator,
        values: values.iter().map(|v| (*v).into()).collect(),
    }
}

fn term(requirements: &[Requirement]) -> NodeTerm {
    NodeTerm {
        expressions: requirements.to_vec(),
        fields: Vec::new(),
    }
}

/// Whether a pod with this affinity gets a node.
fn with_affinity(terms: Vec<NodeTerm>) -> bool {
    let lab = pool()
        .pod("web", 10, 10)
        .shape("web", |shape| shape.node_affinity = Some(terms));
    !lab.decide().plan.is_empty()
}

#[test]
fn rq_01_rq_02_node_selectors() {
    let select = |value: &str| {
        pool().pod("web", 10, 10).shape("web", |shape| {
            shape.node_selector.insert("k".into(), value.into());
        })
    };
    assert_eq!(made(&pool().pod("web", 10, 10).decide()), ["one"]);
    assert_eq!(made(&select("v").decide()), ["one"]);
    let decision = select("other").decide();
    assert_eq!(
        why(&decision, "web", "p/one"),
        "node selector k=other does not match"
    );
}

#[test]
fn rq_05_rq_07_every_operator() {
    let one = |operator, key: &str, values: &[&str]| {
        with_affinity(vec![term(&[requirement(key, operator, values)])])
    };
    assert!(one(Operator::In, "k", &["a", "v"]));
    assert!(!one(Operator::In, "k", &["b"]));
    assert!(!one(Operator::NotIn, "k", &["v"]));
    assert!(one(Operator::Exists, "k", &[]));
    assert!(!one(Operator::DoesNotExist, "k", &[]));
    // An undefined key.
    assert!(!one(Operator::In, "none", &["a"]));
    assert!(!one(Operator::Exists, "none", &[]));
    assert!(one(Operator::NotIn, "none", &["a"]));
    assert!(one(Operator::DoesNotExist, "none", &[]));
    // Integers.
    assert!(!one(Operator::Gt, "k", &["1"]), "v is no number");
    let number = |operator, bound: &str| {
        let lab = pool()
            .edit_pool("p", |pool| {
                pool.labels.insert("gen".into(), "7".into());
            })
            .pod("web", 10, 10)
            .shape("web", |shape| {
                shape.node_affinity = Some(vec![term(&[requirement("gen", operator, &[bound])])]);
            });
        !lab.decide().plan.is_empty()
    };
    assert!(number(Operator::Gt, "6") && !number(Operator::Gt, "7"));
    assert!(number(Operator::Lt, "8") && !number(Operator::Lt, "7"));
    assert!(!number(Operator::Lt, "many"));
}

#[test]
fn rq_10_a_certain_host_name_never_makes_a_node() {
    let lab = pool().pod("web", 10, 10).shape("web", |shape| {
        shape
            .node_selector
            .insert("kubernetes.io/hostname".into(), "x".into());
    });
    assert!(matches!(
        verdict(&lab.decide(), "web"),
        PodVerdict::NoCompatiblePool { .. }
    ));
    let by_field = NodeTerm {
        expressions: Vec::new(),
        fields: vec![requirement("metadata.name", Operator::In, &["x"])],
    };
    assert!(!with_affinity(vec![by_field]));
    let not_that_host = requirement("kubernetes.io/hostname", Operator::NotIn, &["x"]);
    assert!(with_affinity(vec![term(&[not_that_host])]));
}

#[test]
fn rq_11_rq_12_terms_are_alternatives() {
    let impossible = term(&[requirement("k", Operator::In, &["no"])]);
    let possible = term(&[requirement("k", Operator::In, &["v"])]);
    assert!(with_affinity(vec![impossible.clone(), possible]));
    assert!(!with_affinity(vec![impossible.clone(), impossible]));
    assert!(!with_affinity(vec![]), "no term matches nothing");
    assert!(!with_affinity(vec![term(&[])]), "nor does an empty one");
}

#[test]
fn rq_14_preferences_never_stand_in_the_way() {
    let lab = pool().pod("web", 10, 10).shape("web", |shape| {
        let term = term(&[requirement("k", Operator::In, &["no"])]);
        shape.preferred_nodes.push((100, term));
    });
    assert_eq!(made(&lab.decide()), ["one"]);
}

#[test]
fn rq_17_rq_21_taints_and_tolerations() {
    let tainted = |effect, toleration: Option<Toleration>| {
        let lab = pool()
            .edit_pool("p", |pool| {
                pool.taints.push(Taint {
                    key: "team".into(),
                    value: "ml".into(),
                    effect,
                });
            })
            .pod("web", 10, 10)
            .shape("web", |shape| shape.tolerations.extend(toleration));
        !lab.decide().plan.is_empty()
    };
    let equal = |value: &str| Toleration {
        key: Some("team".into()),
        value: value.into(),
        ..Toleration::default()
    };
    let exists = Toleration {
        exists: true,
        ..Toleration::default()
    };
    assert!(!tainted(Effect::NoSchedule, None));
    assert!(!tainted(Effect::NoExecute, None));
    assert!(tainted(Effect::PreferNoSchedule, None));
    assert!(tainted(Effect::NoSchedule, Some(equal("ml"))));
    assert!(!tainted(Effect::NoSchedule, Some(equal("web"))));
    assert!(tainted(Effect::NoSchedule, Some(exists)));
}

#[test]
fn rq_18_startup_taints_go_before_pods_run() {
    let lab = pool()
        .edit_pool("p", |pool| {
            pool.startup_taints.push(Taint::no_schedule("cni", ""));
        })
        .pod("web", 10, 10);
    assert_eq!(made(&lab.decide()), ["one"]);
}

#[test]
fn zones_are_hosts() {
    let lab = pool().pod("web", 10, 10).shape("web", |shape| {
        shape
            .node_selector
            .insert("topology.kubernetes.io/zone".into(), "pve3".into());
    });
    assert_eq!(&*lab.decide().plan[0].target.host, "pve3");
}

fn claim(lab: Lab, claim: Claim, class: StorageClass, volume: PersistentVolume) -> Lab {
    let mut lab = lab.pod("db", 10, 10).shape("db", |shape| {
        shape.volumes.push(Volume::Claim("data".into()));
    });
    let cluster = &mut lab.snapshot.cluster;
    cluster
        .claims
        .insert(ObjectKey::new("default", "data"), claim);
    cluster.storage_classes.insert("fast".into(), class);
    cluster.volumes.insert("pv".into(), volume);
    lab
}

fn unbound() -> Claim {
    Claim {
        class: Some("fast".into()),
        ..Claim::default()
    }
}

fn bound() -> Claim {
    Claim {
        volume: Some("pv".into()),
        bound: true,
        ..unbound()
    }
}

fn waits() -> StorageClass {
    StorageClass {
        provisioner: "csi.example".into(),
        wait_for_consumer: true,
        ..StorageClass::default()
    }
}

#[test]
fn vo_05_a_bound_local_volume_pins_its_pod() {
    let local = PersistentVolume {
        local: true,
        ..PersistentVolume::default()
    };
    let decision = claim(pool(), bound(), waits(), local).decide();
    assert!(decision.plan.is_empty());
    assert!(why(&decision, "db", "p/one").starts_with("pinned by local volume pv"));
}

#[test]
fn vo_10_vo_11_claims_that_no_node_can_help() {
    let volume = PersistentVolume::default;
    let immediate = StorageClass {
        wait_for_consumer: false,
        ..waits()
    };
    let lost = Claim {
        lost: true,
        ..bound()
    };
    let deleting = Claim {
        deleting: true,
        ..bound()
    };
    let dying = PersistentVolume {
        deleting: true,
        ..volume()
    };
    for (lab, words) in [
        (
            claim(pool(), unbound(), immediate, volume()),
            "binds immediately",
        ),
        (claim(pool(), lost, waits(), volume()), "lost its volume"),
        (
            claim(pool(), deleting, waits(), volume()),
            "is being deleted",
        ),
        (claim(pool(), bound(), waits(), dying), "is being deleted"),
    ] {
        let decision = lab.decide();
        assert!(decision.plan.is_empty());
        let why = why(&decision, "db", "p/one");
        assert!(why.contains(words), "{why}");
    }
    assert_eq!(
        made(&claim(pool(), unbound(), waits(), volume()).decide()),
        ["one"]
    );
    assert_eq!(
        made(&claim(pool(), bound(), waits(), volume()).decide()),
        ["one"]
    );
}

#[test]
fn vo_14_a_volume_of_one_host_puts_the_machine_there() {
    let volume = PersistentVolume {
        node_affinity: Some(vec![term(&[requirement(
            "topology.kubernetes.io/zone",
            Operator::In,
            &["pve2"],
        )])]),
        ..PersistentVolume::default()
    };
    let lab = claim(pool(), bound(), waits(), volume);
    assert_eq!(&*lab.decide().plan[0].target.host, "pve2");
    let nowhere = lab.edit_pool("p", |pool| pool.hosts = vec!["pve1".into()]);
    let decision = nowhere.decide();
    assert!(decision.plan.is_empty());
    assert!(why(&decision, "db", "p/one").contains("pve2"));
}

pub(super) fn own_term(app: &str, key: &str) -> PodTerm {
    PodTerm {
        selector: Some(LabelSelector {
            labels: Labels::from([("app".into(), app.into())]),
            ..LabelSelector::default()
        }),
        topology_key: key.into(),
        ..PodTerm::default()
    }
}

pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

#[test]
fn af_04_self_affinity_keeps_pods_together() {
    let lab = pool().pods("web", 3, 100, 100).shapes("web", |shape| {
        shape.pod_affinity.push(own_term("web", HOSTNAME));
    });
    assert_eq!(made(&lab.decide()).len(), 1);
}

#[test]
fn af_05_self_affinity_ends_with_its_node() {
    let lab = pool()
        .edit_pool("p", |pool| pool.max_pods = 5)
        .pods("web", 10, 100, 100)
        .shapes("web", |shape| {
            shape.pod_affinity.push(own_term("web", HOSTNAME));
        });
    let decision = lab.decide();
    assert_eq!(made(&decision).len(), 1);
    let pods = decision.report.pods.iter();
    let waiting = pods.filter(|(_, verdict)| matches!(verdict, PodVerdict::Held { .. }));
    let waiting: Vec<&str> = waiting.map(|(pod, _)| &*pod.name).collect();
    assert_eq!(waiting.len(), 5);
    let told = why(&decision, waiting[0], "p/one");
    assert!(
        told.ends_with("in this plan, where it does not fit"),
        "{told}"
    );
}

#[test]
fn af_07_af_08_zone_affinity() {
    let lab = pool()
        .edit_pool("p", |pool| pool.max_pods = 1)
        .pods("web", 3, 100, 100)
        .shapes("web", |shape| {
            shape.pod_affinity.push(own_term("web", ZONE));
            shape.node_selector.insert(ZONE.into(), "pve3".into());
        });
    let decision = lab.decide();
    assert_eq!(made(&decision).len(), 3);
    assert!(decision.plan.iter().all(|a| &*a.target.host == "pve3"));
}

#[test]
fn af_12_anti_affinity_works_in_either_direction() {
    for averse in ["a", "b"] {
        let lab = pool()
            .pod("a", 10, 10)
            .pod("b", 20, 20)
            .shape(averse, |shape| {
                let other = if averse == "a" { "b" } else { "a" };
                shape.pod_anti_affinity.push(own_term(other, HOSTNAME));
            });
        assert_eq!(made(&lab.decide()).len(), 2, "{averse}");
    }
}

#[test]
fn af_17_pods_there_keep_others_out_of_their_zone() {
    let mut lab = pool();
    for (n, zone) in ["pve1", "pve2", "pve3"].into_iter().enumerate() {
        let (node, pod) = (format!("old{n}"), format!("guard{n}"));
        lab = lab
            .node(&node, 100, 100)
            .edit_node(&node, |node| {
                node.labels.insert(ZONE.into(), zone.into());
            })
            .bound(&pod, &node, 100, 10)
            .shape(&pod, |shape| {
                shape.pod_anti_affinity.push(own_term("web", ZONE));
            });
    }
    let decision = lab.pod("web", 200, 10).decide();
    assert!(decision.plan.is_empty());
    assert!(why(&decision, "web", "p/one").contains("anti-affinity"));
}

#[test]
fn af_21_affinity_to_nothing_ends() {
    let lab = pool().pods("web", 10, 10, 10).shapes("web", |shape| {
        shape.pod_affinity.push(own_term("nobody", ZONE));
    });
    let decision = lab.decide();
    assert!(decision.plan.is_empty());
    assert!(matches!(
        verdict(&decision, "web-0"),
        PodVerdict::NoCompatiblePool { .. }
    ));
}

#[test]
fn af_22_followers_of_a_pod_in_the_same_batch() {
    let lab = pool()
        .pod("target", 10, 10)
        .pods("web", 10, 100, 100)
        .shapes("web", |shape| {
            shape.pod_affinity.push(own_term("target", ZONE));
        });
    let decision = lab.decide();
    let zones: std::collections::BTreeSet<_> = decision
        .plan
        .iter()
        .map(|a| a.target.host.clone())
        .collect();
    assert_eq!(zones.len(), 1);
    assert!(
        decision
            .report
            .pods
            .values()
            .all(|verdict| matches!(verdict, PodVerdict::Triggers { .. }))
    );
}

fn spread(app: &str, key: &str, max_skew: i32) -> SpreadConstraint {
    SpreadConstraint {
        max_skew,
        topology_key: key.into(),
        hard: true,
        selector: own_term(app, key).selector,
        min_domains: None,
        match_label_keys: Vec::new(),
        honor_affinity: true,
        honor_taints: false,
    }
}

/// How many pods a decision puts on each host, sorted.
fn skew(lab: &Lab) -> Vec<usize> {
    let decision = lab.decide();
    let mut hosts = std::collections::BTreeMap::new();
    for verdict in decision.report.pods.values() {
        if let PodVerdict::Triggers { machine, .. } = verdict {
            let action = decision.plan.iter().find(|a| a.target.machine == *machine);
            let host = action.expect("its machine").target.host.clone();
            *hosts.entry(host).or_insert(0) += 1;
        }
    }
    let mut counts: Vec<usize> = hosts.into_values().collect();
    counts.sort_unstable();
    counts
}

#[test]
fn ts_01_pods_spread_over_zones() {
    // A node in every zone makes all three zones domains.
    let mut lab = pool().pods("web", 4, 100, 100).shapes("web", |shape| {
        shape.spread.push(spread("web", ZONE, 1));
    });
    for zone in ["pve1", "pve2", "pve3"] {
        lab = lab.node(zone, 10, 10).edit_node(zone, |node| {
            node.labels.insert(ZONE.into(), zone.into());
        });
    }
    assert_eq!(skew(&lab), [1, 1, 2]);
}

#[test]
fn ts_15_a_key_that_no_node_has() {
    let lab = pool().pod("web", 100, 100).shape("web", |shape| {
        shape.spread.push(spread("web", "unknown", 1));
    });
    assert!(lab.decide().plan.is_empty());
}

#[test]
fn ts_12_min_domains_that_cannot_be_reached() {
    let lab = pool()
        .edit_pool("p", |pool| pool.hosts = vec!["pve1".into(), "pve2".into()])
        .pods("web", 3, 100, 100)
        .shapes("web", |shape| {
            let mut spread = spread("web", ZONE, 1);
            spread.min_domains = Some(3);
            shape.spread.push(spread);
        });
    assert_eq!(skew(&lab), [1, 1]);
}

#[test]
fn ts_37_more_nodes_in_one_zone_do_not_help() {
    let lab = pool()
        .edit_pool("p", |pool| pool.hosts = vec!["pve1".into()])
        .node("other", 10, 10)
        .edit_node("other", |node| {
            node.labels.insert(ZONE.into(), "pve2".into());
        })
        .pods("web", 8, 100, 100)
        .shapes("web", |shape| shape.spread.push(spread("web", ZONE, 2)));
    assert_eq!(made(&lab.decide()).len(), 1);
    assert_eq!(skew(&lab), [2]);
}

#[test]
fn ts_38_later_rounds_go_to_earlier_nodes() {
    let lab = pool().pods("web", 12, 20, 10).shapes("web", |shape| {
        let mut spread = spread("web", HOSTNAME, 1);
        spread.min_domains = Some(3);
        shape.spread.push(spread);
    });
    let decision = lab.decide();
    assert_eq!(made(&decision).len(), 3);
    assert_eq!(skew(&lab).iter().sum::<usize>(), 12);
}

#[test]
fn ts_34_soft_spread_is_no_reason_for_nodes() {
    let lab = pool().pods("web", 4, 100, 100).shapes("web", |shape| {
        let mut spread = spread("web", ZONE, 1);
        spread.hard = false;
        shape.spread.push(spread);
    });
    assert_eq!(made(&lab.decide()).len(), 1);
}

#[test]
fn a_scheduler_that_looks_at_no_pod_is_told_of() {
    let silent = |lab: &Lab| {
        let decision = lab.decide();
        let mut warnings = decision.report.warnings_details.into_iter();
        let pods = warnings.find_map(|of| match of {
            Warning::SchedulerSilent { pods } => Some(pods),
            _ => None,
        });
        (pods, decision.wake)
    };
    let unseen = |pod: &mut Pod| pod.unschedulable_since = None;
    let lab = pool()
        .pod("first", 10, 10)
        .edit("first", unseen)
        .pod("gated", 10, 10)
        .edit("gated", unseen)
        .edit("gated", |pod| pod.gated = true);
    let told = lab.now + Span::minutes(2);
    assert_eq!(silent(&lab), (None, Some(told)));
    let lab = lab.after(Span::minutes(2));
    assert_eq!(silent(&lab).0, Some(1));
    let stale = lab.clone().with(|lab| {
        for source in lab.snapshot.sources.values_mut() {
            source.as_of = source.as_of - Span::minutes(10);
        }
    });
    assert_eq!(silent(&stale).0, None);
    // It has looked at another one since, and found no node; or found one, and the kubelet has begun.
    let refused = lab.clone().pod("second", 10, 10);
    assert_eq!(silent(&refused).0, None);
    let bound = |started: Time| {
        lab.clone()
            .node("there", 1_000, 1_000)
            .pod("runs", 10, 10)
            .edit("runs", |pod| {
                unseen(pod);
                pod.node = Some("there".into());
                pod.phase = Phase::Running;
                pod.started = Some(started);
            })
    };
    assert_eq!(silent(&bound(lab.now)).0, None);
    assert_eq!(silent(&bound(lab.now - Span::minutes(3))).0, Some(1));
    // A kubelet runs static pods without it.
    let static_pod = bound(lab.now).edit("runs", |pod| pod.mirror = true);
    assert_eq!(silent(&static_pod).0, Some(1));
}

#[test]
fn another_scheduler_and_gates_are_not_our_business() {
    let lab = pool()
        .pod("gated", 10, 10)
        .edit("gated", |pod| pod.gated = true)
        .pod("other", 10, 10)
        .shape("other", |shape| shape.scheduler = "volcano".into())
        .pod("young", 10, 10)
        .edit("young", |pod| pod.unschedulable_since = None)
        .pod("static", 10, 10)
        .edit("static", |pod| pod.mirror = true)
        .pod("going", 10, 10)
        .edit("going", |pod| pod.deletion = Some(pod.created));
    let decision = lab.decide();
    assert!(decision.plan.is_empty());
    for pod in ["gated", "other", "young", "static", "going"] {
        assert!(
            matches!(verdict(&decision, pod), PodVerdict::Ignored { .. }),
            "{pod}"
        );
    }
    // What the builders make is what the edge would.
    assert_eq!(shape("web-1", 1, 1).owner, Some(owner("ReplicaSet", "web")));
}
