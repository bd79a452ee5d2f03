//! Pods that must share a machine, where limits leave room for some of them alone: as many as can be have a place.

use super::lab::{GI, Lab, MI, lab, made};
use super::sizing::SeededRng;
use model::report::PodVerdict;
use model::scheduling::{LabelSelector, Labels, PodTerm, SpreadConstraint};

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

fn app(name: &str) -> LabelSelector {
    LabelSelector {
        labels: Labels::from([("app".into(), name.into())]),
        ..LabelSelector::default()
    }
}

/// Pods of one app insist on the company of those of another, or of their own.
fn with(lab: Lab, follower: &str, target: &str, key: &str) -> Lab {
    lab.shapes(&format!("{follower}-"), |shape| {
        shape.pod_affinity.push(PodTerm {
            selector: Some(app(target)),
            topology_key: key.into(),
            ..PodTerm::default()
        });
    })
}

fn spread(lab: Lab, name: &str, (key, skew, least): (&str, i32, Option<i32>)) -> Lab {
    lab.shapes(&format!("{name}-"), |shape| {
        shape.spread.push(SpreadConstraint {
            max_skew: skew,
            topology_key: key.into(),
            hard: true,
            selector: Some(app(name)),
            min_domains: least,
            match_label_keys: Vec::new(),
            honor_affinity: true,
            honor_taints: false,
        });
    })
}

fn kinds(mut lab: Lab, kinds: &[(&str, u32, i64, i64)]) -> Lab {
    for (name, cores, gib, price) in kinds {
        lab = lab
            .kind(name, *cores, gib << 10)
            .edit_kind(name, |kind| kind.price = Some(*price));
    }
    let names: Vec<&str> = kinds.iter().map(|(name, ..)| *name).collect();
    lab.pool("ng", &names)
}

/// How many pods have a place, of those whose name begins like this.
fn placed(lab: &Lab, prefix: &str) -> usize {
    let report = lab.decide().report;
    let placed = report.pods.iter().filter(|(key, verdict)| {
        let has = matches!(
            verdict,
            PodVerdict::Triggers { .. } | PodVerdict::FitsNode { .. }
        );
        has && key.name.starts_with(prefix)
    });
    placed.count()
}

const SIZES: [(&str, u32, i64, i64); 3] = [
    ("t8", 4, 8, 112_000),
    ("t32", 4, 32, 229_000),
    ("big", 8, 16, 224_000),
];

#[test]
fn limits_that_leave_none_of_the_type_for_all_leave_the_one_for_most() {
    let five = with(
        kinds(lab(), &SIZES).pods("a", 5, 1000, 3072),
        "a",
        "a",
        HOSTNAME,
    );
    assert_eq!(placed(&five, "a-"), 5);
    let few = five.edit_pool("ng", |pool| pool.max_cpu_milli = Some(6000));
    assert_eq!(
        (placed(&few, "a-"), made(&few.decide())),
        (4, vec!["t32".to_owned()])
    );
}

#[test]
fn a_target_has_as_many_followers_as_limits_let_it() {
    let lab = kinds(lab(), &SIZES)
        .pods("a", 4, 1000, 3072)
        .pods("b", 1, 100, 128);
    let four = with(lab, "a", "b", HOSTNAME);
    let four = four
        .edit_kind("big", |kind| kind.cores = 16)
        .edit_pool("ng", |pool| pool.max_cpu_milli = Some(6000));
    assert_eq!(placed(&four, ""), 4);
}

#[test]
fn another_pods_machine_leaves_those_who_stay_together_some_room() {
    let kinds = kinds(lab(), &[("t8", 8, 8, 192_000), ("t64", 8, 64, 499_000)]);
    let lab = kinds
        .pods("b", 2, 2000, 6144)
        .pods("c", 1, 1000, 128)
        .pods("d", 1, 3500, 2048);
    let lab = with(lab, "b", "c", HOSTNAME).edit_pool("ng", |pool| pool.max = 1);
    assert_eq!(placed(&lab, ""), 3);
}

#[test]
fn pods_of_one_zone_share_machines_with_others() {
    let lab = kinds(lab(), &[("t", 16, 32, 403_000)])
        .pods("web", 15, 1000, 512)
        .pods("a", 12, 500, 2048)
        .pods("b", 8, 1000, 3072);
    let lab = with(lab, "web", "web", ZONE);
    assert_eq!((placed(&lab, ""), made(&lab.decide()).len()), (35, 2));
}

#[test]
fn pods_that_are_spread_twice_cost_no_more_than_need_be() {
    let sizes = [
        ("t1x2", 1, 2, 25_000),
        ("t4x16", 4, 16, 144_000),
        ("t8x64", 8, 64, 374_000),
    ];
    let lab = kinds(lab(), &sizes)
        .pods("a", 4, 2000, 6144)
        .pods("b", 7, 750, 2048)
        .pods("c", 9, 2000, 512)
        .edit_pool("ng", |pool| pool.max = 5);
    let lab = spread(lab, "a", (ZONE, 1, None));
    let lab = spread(lab, "a", (HOSTNAME, 1, Some(3)));
    let lab = spread(lab, "b", (ZONE, 1, Some(3)));
    let lab = spread(lab, "c", (HOSTNAME, 2, None));
    let price = lab
        .decide()
        .report
        .scale_up
        .map_or(0, |growth| growth.price);
    assert_eq!(placed(&lab, ""), 20);
    assert!(price <= 1_640_000, "{price}");
}

/// A world in which pods of one app insist on one machine, by themselves or with a pod of another app, and how many of them that machine has
/// room for at most.
fn company(rng: &mut SeededRng) -> (Lab, usize) {
    let (milli, mib) = (
        rng.one(&[250, 500, 1000, 1500]),
        rng.one(&[512, 1024, 3072]),
    );
    let most = if rng.below(4) == 0 { 60 } else { 12 };
    let count = 2 + rng.below(most);
    let mut sizes = Vec::new();
    let types = 2 + rng.below(3);
    for name in &["k0", "k1", "k2", "k3"][..types] {
        let (cores, gib) = (rng.one(&[2, 4, 8, 16]), rng.one(&[4, 8, 16, 32, 64]));
        let plain = i64::from(cores) * 20_000 + gib * 10_000;
        let price = plain * i64::try_from(70 + rng.below(60)).expect("small") / 100;
        sizes.push((*name, cores, gib, price));
    }
    let follows = rng.below(2) == 0;
    let target = if follows { (100, 128) } else { (0, 0) };
    let mut lab = kinds(lab(), &sizes).pods("a", count, milli, mib);
    if follows {
        lab = lab.pods("b", 1, target.0, target.1);
    }
    let mut lab = with(lab, "a", if follows { "b" } else { "a" }, HOSTNAME);
    let (cores, gib) = (rng.one(&[2, 4, 8, 12]), rng.one(&[6, 12, 24, 48]));
    let (mut most_cores, mut most_gib) = (u32::MAX, i64::MAX);
    match rng.below(4) {
        0 => most_cores = cores,
        1 => most_gib = gib,
        2 => (most_cores, most_gib) = (cores, gib),
        _ => {
            most_gib = gib;
            lab = lab.with(|lab| {
                let region = lab.snapshot.regions.get_mut("home").expect("home");
                for host in region.hosts.values_mut() {
                    host.memory = gib * GI;
                }
            });
        }
    }
    let limited = rng.below(2) == 0;
    lab = lab.edit_pool("ng", |pool| {
        pool.max = if limited { 1 } else { 3 };
        pool.max_cpu_milli = (most_cores < u32::MAX).then(|| i64::from(most_cores) * 1000);
        pool.max_memory = (most_gib < i64::MAX).then(|| most_gib * GI);
    });
    let held = sizes
        .iter()
        .filter(|(_, cores, gib, _)| *cores <= most_cores && *gib <= most_gib);
    let held = held.map(|(_, cores, gib, _)| {
        let cpu = i64::from(*cores) * 1000 - target.0;
        let memory = (gib * GI / MI) - target.1;
        usize::try_from((cpu / milli).min(memory / mib)).unwrap_or(0)
    });
    (lab, held.max().unwrap_or(0).min(count))
}

/// Worlds that are made anew from their number: as many of the company have a place as the best machine holds, beside pods of a lower
/// priority too.
#[test]
fn as_many_of_a_company_as_some_machine_holds_have_a_place() {
    let mut few = Vec::new();
    for case in 0..300 {
        let mut rng = SeededRng::new(case);
        let (lab, most) = company(&mut rng);
        let lab = if case % 3 == 0 {
            let count = 1 + rng.below(6);
            let size = (rng.one(&[100, 500, 2000]), rng.one(&[128, 2048, 6144]));
            lab.pods("low", count, size.0, size.1)
                .shapes("low-", |shape| shape.priority = -5)
        } else {
            lab
        };
        let placed = placed(&lab, "a-");
        if placed < most {
            few.push((case, placed, most));
        }
    }
    assert_eq!(few, []);
}
