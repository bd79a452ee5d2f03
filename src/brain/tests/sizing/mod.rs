//! Who waits although some plan would place everybody: worlds of every kind that are made around a plan.
//!
//! Each world begins with machines of some types on some hosts and pods that fill them, by rules written here and
//! apart from the deciding code; then the machines are forgotten, and limits are set that leave room for them. So
//! there is a plan for all pods, and nobody may wait. `PROPTEST_CASES` says how many worlds of each kind and number of
//! types are tried, `PVE_AUTOSCALER_WORLDS_FROM` the number of the first one: worlds that nobody tuned the code on.

mod all_plans;
mod coming;
mod exact;
mod kinds;
mod plant;
mod pools;
mod too_few;

use proptest::test_runner::Config;

use super::lab::Lab;
use kinds::{Kind, Limit, Style};
pub(super) use plant::SIZES;
use plant::World;

/// Numbers that look thrown, the same in every run.
#[derive(Debug)]
pub(super) struct SeededRng(u64);

impl SeededRng {
    pub(super) fn new(seed: u64) -> SeededRng {
        let mut rng = SeededRng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d);
        for _ in 0..4 {
            rng.below(2);
        }
        rng
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let bound = u64::try_from(bound.max(1)).expect("a small number");
        usize::try_from((self.0 >> 33) % bound).expect("a small number")
    }

    /// One of some things.
    pub(super) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// Pods without a place, and what the plan costs.
fn outcome(lab: &Lab) -> (Vec<String>, i64) {
    let report = lab.decide().report;
    let pods = report.pods.iter();
    let waits = pods.filter(|(_, verdict)| !verdict.is_placed());
    let waits = waits.map(|(key, verdict)| format!("{key}: {verdict:?}"));
    let price = report.scale_up.as_ref().map_or(0, |growth| growth.price);
    (waits.collect(), price)
}

/// How worlds of a kind come out.
#[derive(Debug, Default)]
struct Tally {
    worlds: usize,
    /// Somebody waits.
    waits: usize,
    pods: usize,
    /// Where nobody waits, what plans cost for ten thousand of what the plans cost that the worlds are made around: by world.
    prices: Vec<(i64, u64)>,
    first: Option<String>,
}

impl Tally {
    /// The mean price of our plans, in per cent of the price of the plan that each world was made around.
    fn percent(&self) -> i64 {
        let sum: i64 = self.prices.iter().map(|(price, _)| price).sum();
        sum / 100 / i64::try_from(self.prices.len().max(1)).expect("few")
    }

    /// The plan that costs most beside the world's own, for ten thousand of that, and the number of its world.
    fn dearest(&self) -> (i64, u64) {
        self.prices.iter().copied().max().unwrap_or_default()
    }

    /// The worlds whose plan costs more than their own.
    fn dearer(&self) -> usize {
        self.prices
            .iter()
            .filter(|(price, _)| *price > 10_000)
            .count()
    }
}

/// The world of this number: every other one is of any sizes; limits take turns.
fn nth(kind: Kind, types: usize, pods: usize, case: u64) -> World {
    let at = usize::try_from(case).expect("few");
    let style = if at.is_multiple_of(2) {
        Style::Usual
    } else {
        Style::Wild
    };
    let limit = Limit::ALL[at / 2 % Limit::ALL.len()];
    World::plant(kind, types, pods, (limit, style), &mut SeededRng::new(case))
}

/// The number of the first world: 0, unless the environment says another.
pub(super) fn first_world() -> u64 {
    let from = std::env::var("PVE_AUTOSCALER_WORLDS_FROM");
    from.map_or(0, |from| from.parse().expect("a number of a world"))
}

fn tally(kind: Kind, types: usize, pods: usize, cases: u64) -> Tally {
    let mut tally = Tally::default();
    let first = first_world();
    for case in first..first + cases {
        let world = nth(kind, types, pods, case);
        let lab = world.build();
        let (waits, price) = outcome(&lab);
        tally.worlds += 1;
        tally.pods += world.pods();
        if waits.is_empty() {
            tally
                .prices
                .push((price * 10_000 / world.price().max(1), case));
        } else {
            tally.waits += 1;
            eprintln!(
                "{kind:?}, {types} types, world {case}, {:?}: {} of {} pods wait",
                world.limit,
                waits.len(),
                world.pods()
            );
            if tally.first.is_none() {
                tally.first = Some(format!("case {case}: {waits:#?}\n{world:?}"));
            }
        }
    }
    tally
}

fn nobody_waits(kind: Kind) {
    let cases = u64::from(Config::default().cases).min(20_000) / 4;
    for types in [1, 3, 10] {
        let tally = tally(kind, types, 12, cases.max(8));
        eprintln!(
            "{kind:?}, {types} types: {} of {} worlds wait, {} pods, {} % of the price, {} dearer, at worst {:?}",
            tally.waits,
            tally.worlds,
            tally.pods,
            tally.percent(),
            tally.dearer(),
            tally.dearest(),
        );
        assert_eq!(
            tally.waits,
            0,
            "{kind:?}, {types} types: {}",
            tally.first.clone().unwrap_or_default()
        );
        // The plan that the world was made around is one of all there are. Spread pods may cost more: their places must hold in whatever
        // order nodes come up.
        let (dearest, world) = tally.dearest();
        let bears_more = matches!(kind, Kind::Spread | Kind::Mixed);
        assert!(
            bears_more || dearest <= 10_000,
            "{kind:?}, {types} types, world {world}: {dearest} for ten thousand of the world's own price"
        );
    }
}

#[test]
fn plain_pods_never_wait_where_a_plan_places_all() {
    nobody_waits(Kind::Plain);
}

#[test]
fn spread_pods_never_wait_where_a_plan_places_all() {
    nobody_waits(Kind::Spread);
}

#[test]
fn followers_never_wait_where_a_plan_places_all() {
    nobody_waits(Kind::Affinity);
}

#[test]
fn pods_that_keep_apart_never_wait_where_a_plan_places_all() {
    nobody_waits(Kind::Apart);
}

#[test]
fn pods_with_claims_never_wait_where_a_plan_places_all() {
    nobody_waits(Kind::Claims);
}

#[test]
fn pods_of_all_kinds_never_wait_where_a_plan_places_all() {
    nobody_waits(Kind::Mixed);
}

/// Worlds of sixty pods of every kind, with one, three and ten types: by kind how many there are, and in how many somebody waits.
fn at_sixty_pods(cases: u64) -> Vec<(Kind, usize, usize)> {
    let of_kind = Kind::ALL.into_iter().map(|kind| {
        let (mut worlds, mut waits) = (0, 0);
        for types in [1, 3, 10] {
            let tally = tally(kind, types, 60, cases);
            eprintln!(
                "{kind:?}, {types} types, 60 pods: {} of {} wait, {} % of the price, {} dearer, at worst {:?}",
                tally.waits,
                tally.worlds,
                tally.percent(),
                tally.dearer(),
                tally.dearest(),
            );
            worlds += tally.worlds;
            waits += tally.waits;
        }
        (kind, worlds, waits)
    });
    of_kind.collect()
}

#[test]
fn at_sixty_pods_few_wait() {
    let kinds = at_sixty_pods(8);
    let waits: usize = kinds.iter().map(|(_, _, waits)| waits).sum();
    let worlds: usize = kinds.iter().map(|(_, worlds, _)| worlds).sum();
    assert!(waits * 100 <= worlds, "{kinds:?}");
}

/// Worlds in which a pod waited although there was room for it in parts: machines carry too much for a while, and two at a
/// time share their pods anew (`grow/draft/overload.rs`).
#[test]
fn room_in_parts_is_brought_together() {
    nobody_waits_in(&[
        (Kind::Plain, 1, 89),
        (Kind::Affinity, 1, 41),
        // Pods that are spread over machines change places.
        (Kind::Spread, 1, 20_041),
        // Pods that are spread over zones go to other zones, and machines that nobody asked a zone of.
        (Kind::Spread, 1, 20_002),
        // Limits that the machines of the plan use up let larger ones be made, or more.
        (Kind::Affinity, 3, 20_032),
    ]);
}

/// The others of those worlds.
#[test]
#[ignore = "takes minutes"]
fn room_in_parts_is_brought_together_everywhere() {
    nobody_waits_in(&[
        (Kind::Plain, 1, 97),
        (Kind::Spread, 1, 56),
        (Kind::Spread, 3, 41),
        (Kind::Plain, 1, 93),
        (Kind::Spread, 1, 46),
        (Kind::Mixed, 1, 56),
        (Kind::Spread, 1, 20_087),
        (Kind::Spread, 1, 20_050),
        (Kind::Apart, 3, 20_007),
    ]);
}

fn nobody_waits_in(worlds: &[(Kind, usize, u64)]) {
    for &(kind, types, case) in worlds {
        let (waits, _) = outcome(&nth(kind, types, 60, case).build());
        assert_eq!(waits, Vec::<String>::new(), "{kind:?}, {types}, {case}");
    }
}

/// Worlds whose plans cost more than those that the worlds were made around, of machines with hardly any room left.
#[test]
fn plans_are_found_that_leave_little_room_on_any_machine() {
    for (kind, types, pods, case) in [
        // 20, 9 and 10 per cent more: `grow/draft/cheaper_machines.rs` finds machines of that price.
        (Kind::Mixed, 3, 60, 91_013),
        (Kind::Spread, 1, 60, 91_011),
        (Kind::Apart, 3, 60, 91_001),
        // 4 per cent more: `grow/draft/exact.rs` goes through no plan twice in another order.
        (Kind::Spread, 10, 12, 92_018),
    ] {
        let world = nth(kind, types, pods, case);
        let (waits, price) = outcome(&world.build());
        assert_eq!(waits, Vec::<String>::new(), "{kind:?}, {types}, {case}");
        assert!(
            price <= world.price(),
            "{kind:?}, {types}, {case}: {price}, the world's own {}",
            world.price()
        );
    }
}

/// The aim: at sixty pods at most one world in a hundred of each kind has somebody wait. `PROPTEST_CASES=400 cargo test -p
/// pve-autoscaler-brain --lib sizing -- --include-ignored --nocapture` says in which.
#[test]
#[ignore = "takes minutes"]
fn at_sixty_pods_hardly_anybody_waits() {
    let kinds = at_sixty_pods((u64::from(Config::default().cases) / 4).max(8));
    for (kind, worlds, waits) in &kinds {
        assert!(waits * 100 <= *worlds, "{kind:?} of {kinds:?}");
    }
}

/// `PVE_AUTOSCALER_WORLD=Affinity,3,60,20032` says who waits in one world, of this kind with so many types and pods, and how the
/// world was made.
#[test]
#[ignore = "tells, and fails where somebody waits"]
fn one_world() {
    let Ok(world) = std::env::var("PVE_AUTOSCALER_WORLD") else {
        return;
    };
    let parts: Vec<&str> = world.split(',').collect();
    let [kind, types, pods, case] = parts[..] else {
        panic!("{world} is not KIND,TYPES,PODS,NUMBER");
    };
    let number = |text: &str| text.parse::<usize>().expect("a number");
    let mut kinds = Kind::ALL.into_iter();
    let kind = kinds.find(|of| format!("{of:?}") == kind);
    let kind = kind.expect("the name of a kind");
    let case = u64::try_from(number(case)).expect("a number");
    let world = nth(kind, number(types), number(pods), case);
    eprintln!("{world:#?}");
    let (waits, price) = outcome(&world.build());
    eprintln!("price {price}, the world's own {}", world.price());
    assert_eq!(waits, Vec::<String>::new());
}

/// What plans cost where there is no waste to be had: machines that are full to the last byte are the best plan, at
/// prices by size. The aim: one per cent over the best in the mean, five at worst.
fn plans_cost_little(pods: usize, cases: u64) {
    let (mut sum, mut worst, mut best) = (0, 0, 0);
    for case in 0..cases {
        let types = 3 + usize::try_from(case % 4).expect("few");
        let world = World::full(types, pods, &mut SeededRng::new(case));
        let (waits, price) = outcome(&world.build());
        assert!(waits.is_empty(), "{waits:?}");
        let over = (price - world.price()) * 10_000 / world.price();
        assert!(over >= 0, "the best is not the best");
        sum += over;
        worst = worst.max(over);
        best += u64::from(over == 0);
    }
    let mean = sum / i64::try_from(cases).expect("few");
    eprintln!(
        "{pods} pods: {mean} in ten thousand over the best in the mean, {worst} at worst, {best} of {cases} best"
    );
    assert!(mean <= 100 && worst <= 500, "{pods} pods: {mean}, {worst}");
}

#[test]
fn plans_of_200_pods_cost_little_more_than_the_best() {
    for pods in [20, 50, 200] {
        plans_cost_little(pods, 8);
    }
}

/// `PROPTEST_CASES=960 cargo test -- --ignored --nocapture` shows the numbers of sixty worlds of each size.
#[test]
#[ignore = "takes minutes"]
fn plans_of_1_000_pods_cost_little_more_than_the_best() {
    let cases = u64::from(Config::default().cases) / 16;
    for pods in [20, 50, 200, 1000] {
        plans_cost_little(pods, cases.clamp(4, 60));
    }
}
