//! What a decision allocates on small worlds of the benchmarks' kinds (`benches/decide/worlds.rs`): a gate
//! against slow growth that no timing shows. Allocations are the same in every run; time is not.

#[path = "../benches/decide/worlds.rs"]
#[allow(dead_code, reason = "the bench uses the rest")]
mod worlds;

use std::fmt::Write as _;

use worlds::World;

/// How much more than recorded is let pass, in thousandths: a compiler or a library may allocate a little
/// otherwise.
const SLACK_PERMILLE: u64 = 50;

/// What one decision took when it was last recorded: workload, allocations, and the most bytes at a time.
const RECORDED: [(&str, u64, u64); 6] = [
    ("W1", 60_019, 5_542_987),
    ("W2", 4_817, 1_789_052),
    ("W3", 881, 1_073_548),
    ("W4", 4_601, 1_710_142),
    ("W4 one pod later", 4_604, 1_710_670),
    ("W5", 14_288, 1_950_556),
];

fn world(workload: &str) -> World {
    match workload {
        "W1" => worlds::diverse(1_000),
        "W2" => worlds::binpacking(2_500, 50),
        "W3" => worlds::no_compatible_pool(100, 1_200, 10),
        "W4" => worlds::large(150),
        "W4 one pod later" => {
            let mut world = worlds::large(150);
            world.one_more();
            world
        }
        "W5" => worlds::idle(100),
        other => panic!("there is no workload {other}"),
    }
}

#[test]
fn a_decision_allocates_no_more_than_recorded() {
    let (mut table, mut over) = (String::new(), String::new());
    for (workload, allocations, bytes) in RECORDED {
        let world = world(workload);
        let mut decision = None;
        let counted = allocation_counter::measure(|| decision = Some(world.decide()));
        assert!(decision.is_some(), "{workload}");
        let (count, most) = (counted.count_total, counted.bytes_max);
        let _ = writeln!(table, "    (\"{workload}\", {count}, {most}),");
        let bound = |recorded: u64| recorded + recorded * SLACK_PERMILLE / 1000;
        for (what, is, recorded) in [
            ("allocations", count, allocations),
            ("bytes at a time", most, bytes),
        ] {
            if is > bound(recorded) {
                let _ = writeln!(over, "{workload}: {is} {what}, recorded are {recorded}");
            }
        }
    }
    assert!(
        over.is_empty(),
        "a decision takes more than recorded:\n{over}Find out why. If it is worth it, put this in the place of \
         RECORDED in tests/allocations.rs, and say in the commit what it buys:\n{table}"
    );
}
