//! Topology spread where limits allow few machines: zones that get none do not count.

use model::policy::ZONE_LABEL;
use model::report::PodVerdict;
use model::scheduling::{LabelSelector, Labels, SpreadConstraint};

use super::lab::{GI, Lab, lab, made};

/// As many machines of four cores at most; strangers of a higher priority that fill one each, and pods that are spread over zones, of which
/// one holds four.
fn world(strangers: usize, spread: usize, max: u32) -> Lab {
    let constraint = SpreadConstraint {
        max_skew: 1,
        topology_key: ZONE_LABEL.into(),
        hard: true,
        selector: Some(LabelSelector {
            labels: Labels::from([("app".into(), "web".into())]),
            ..LabelSelector::default()
        }),
        min_domains: None,
        match_label_keys: Vec::new(),
        honor_affinity: true,
        honor_taints: false,
    };
    lab()
        .kind("one", 4, 8192)
        .pool("p", &["one"])
        .edit_pool("p", |pool| pool.max = max)
        .pods("stranger", strangers, 3500, 512)
        .shapes("stranger", |shape| shape.priority = 1)
        .pods("web", spread, 900, 512)
        .shapes("web", |shape| shape.spread.push(constraint.clone()))
}

fn waiting(lab: &Lab) -> Vec<String> {
    let decision = lab.decide();
    assert!(made(&decision).len() <= 5);
    let pods = decision.report.pods.iter();
    let waiting = pods.filter(|(_, verdict)| !PodVerdict::is_placed(verdict));
    waiting.map(|(key, _)| key.name.to_string()).collect()
}

#[test]
fn one_zone_of_two_is_left_out() {
    let lab = world(1, 4, 2).edit_pool("p", |pool| pool.hosts = vec!["pve1".into(), "pve2".into()]);
    assert_eq!(waiting(&lab), [""; 0]);
}

/// With a machine in a second zone, whose machine is full, one of the spread pods has a place, with one in a third as well.
#[test]
fn two_zones_of_three_are_left_out_at_once() {
    assert_eq!(waiting(&world(2, 4, 3)), [""; 0]);
}

/// Each host has memory for three machines, so two zones stay.
#[test]
fn three_zones_of_five_are_left_out_at_once() {
    let lab = world(3, 8, 5).with(|lab| {
        let home = lab.snapshot.regions.get_mut("home").expect("home");
        for host in home.hosts.values_mut() {
            host.memory = 26 * GI;
        }
        for name in ["pve4", "pve5"] {
            let host = home.hosts["pve1"].clone();
            home.hosts.insert(name.into(), host);
        }
    });
    assert_eq!(waiting(&lab), [""; 0]);
}

/// Nobody is left out so that spread pods find a place: one of these may be in one zone alone.
#[test]
fn a_zone_that_pods_must_be_in_stays() {
    let lab = world(2, 4, 3)
        .shape("stranger-0", |shape| {
            shape.node_selector.insert(ZONE_LABEL.into(), "pve1".into());
        })
        .shape("stranger-1", |shape| {
            shape.node_selector.insert(ZONE_LABEL.into(), "pve2".into());
        });
    let waiting = waiting(&lab);
    assert!(!waiting.contains(&"stranger-0".to_owned()), "{waiting:?}");
    assert!(!waiting.contains(&"stranger-1".to_owned()), "{waiting:?}");
}
