//! Scale-up: packing, constraints, existing and coming capacity first, limits.

use super::lab::{GI, Lab, MI, lab, made, verdict};
use crate::model::policy::Reserved;
use crate::model::report::PodVerdict;

/// The types of the scenarios' fixture: every one keeps 100m and 10Mi for itself.
fn fixture() -> Lab {
    let mut lab = lab()
        .kind("default", 4, 4096)
        .kind("small", 2, 2048)
        .pool("p", &["default", "small"]);
    for (name, cpu, memory) in [("default", 4, 4), ("small", 2, 2)] {
        lab = lab.edit_kind(name, |kind| {
            kind.price = Some(cpu * 100_000 + memory * 107_374);
        });
    }
    lab.edit_pool("p", |pool| {
        pool.max_pods = 5;
        pool.reserved = Reserved {
            cpu_milli: 100,
            memory: 10 * MI,
            ..Reserved::default()
        };
    })
}

#[test]
fn bp_01_the_cheapest_type_that_fits() {
    let decision = fixture().pod("web", 0, 100).decide();
    assert_eq!(made(&decision), ["small"]);
    assert!(matches!(
        verdict(&decision, "web"),
        PodVerdict::Triggers { .. }
    ));
}

#[test]
fn bp_02_what_is_reserved_is_not_offered() {
    let asks = |bytes: i64| {
        let lab = fixture()
            .pod("web", 0, 0)
            .shape("web", |shape| shape.requests.memory = bytes);
        made(&lab.decide())
    };
    assert_eq!(asks(2_000_000_000), ["small"]);
    assert_eq!(asks(2 * GI), ["default"]);
}

#[test]
fn bp_04_five_small_pods_share_a_node() {
    assert_eq!(made(&fixture().pods("web", 5, 10, 10).decide()), ["small"]);
}

#[test]
fn bp_05_forty_pods_two_to_a_node() {
    let lab = fixture()
        .pods("web", 40, 0, 0)
        .shapes("web", |shape| shape.requests.memory = 1_800_000_000);
    assert_eq!(made(&lab.decide()), vec!["default"; 20]);
}

#[test]
fn bp_07_each_pod_gets_the_type_it_needs() {
    let mut lab = lab();
    let names = ["c1", "c2", "c3", "c4", "c5"];
    for (cores, name) in (1..).zip(names) {
        lab = lab.kind(name, cores, 8192);
    }
    let lab = lab
        .pool("p", &names)
        .edit_pool("p", |pool| pool.reserved.cpu_milli = 100)
        .pod("big", 4500, 0)
        .pod("small", 1000, 0);
    assert_eq!(made(&lab.decide()), ["c2", "c5"]);
}
