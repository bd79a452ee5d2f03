//! Decisions about more kinds of pods than people think of: a restart of a whole cluster has a thousand and more.

use super::constraints::{HOSTNAME, own_term};
use super::lab::{Lab, lab};
use model::reasons::Warning;
use model::report::PodVerdict;

/// Targets of four sizes, each with three followers that must be on its node, and no two pods alike.
fn families(count: usize) -> Lab {
    let mut lab = lab()
        .kind("one", 4, 16 << 10)
        .kind("two", 8, 32 << 10)
        .pool("p", &["one", "two"]);
    for family in 0..count {
        let target = format!("t{family}");
        for (member, milli) in [300, 900, 700, 500].into_iter().enumerate() {
            let name = match member {
                0 => target.clone(),
                _ => format!("f{family}-{member}"),
            };
            // In the order of their names neither a target nor its followers come together.
            let own = i64::try_from((family * 7 + member * 13) % 400).expect("a size");
            let mib = 200 + i64::try_from(family * 4 + member).expect("a size");
            lab = lab.pod(&name, milli + own, mib);
            if member > 0 {
                lab = lab.shape(&name, |shape| {
                    shape.pod_affinity = vec![own_term(&target, HOSTNAME)];
                });
            }
        }
    }
    lab
}

fn waiting(lab: &Lab) -> (usize, Vec<Warning>) {
    let report = lab.decide().report;
    let placed = |verdict: &&PodVerdict| !matches!(verdict, PodVerdict::Triggers { .. });
    (
        report.pods.values().filter(placed).count(),
        report.warnings_details,
    )
}

#[test]
fn followers_of_a_thousand_kinds_of_pods_find_their_targets() {
    assert_eq!(waiting(&families(300)), (0, Vec::new()));
}

#[test]
fn where_there_are_too_many_kinds_for_a_better_plan_it_is_told_how_many_wait() {
    let mut lab = lab().kind("one", 4, 16 << 10).pool("p", &["one"]);
    for number in 0..4001 {
        lab = lab.pod(&format!("a{number}"), 100, 100 + number);
    }
    // All of them are on machines, and nothing better is asked for.
    assert_eq!(waiting(&lab), (0, Vec::new()));
    let lab = lab.edit_pool("p", |pool| pool.max = 50);
    let (pods, warnings) = waiting(&lab);
    assert!(pods > 0, "{pods} pods wait");
    assert_eq!(warnings, [Warning::TooManyToReplan { pods }]);
}
