//! Worlds of a dozen pods with a machine or two too few, against all plans there are: who waits although a plan has a place for him and
//! for everybody who has one, and what the plan costs over the cheapest for these pods.
//!
//! No pod loses its place to another of its priority, so that plans are not compared by how many pods wait: upstream's case `BP-24` has
//! few large pods placed where more small ones could be. The search that knows all plans is `all_plans.rs`.

use proptest::test_runner::Config;

use super::all_plans::{Plans, Search};
use super::kinds::{Kind, Limit, Style};
use super::plant::World;
use super::{SeededRng, first_world, outcome};

/// How the plans of a kind compare with all others.
#[derive(Debug, Default)]
struct Tally {
    worlds: usize,
    /// Worlds with more plans than can be gone through.
    too_large: usize,
    /// In so many worlds no plan has a place for everybody.
    short: usize,
    /// In so many worlds somebody waits for nothing.
    worse: usize,
    /// In ten thousandths of the price: what plans cost more than the cheapest for the same pods, all together and the most.
    dearer: i64,
    dearest: i64,
    first: Option<String>,
}

impl Tally {
    /// Compares the plan for one world with all others.
    fn add(&mut self, told: &str, world: &World, machines: usize) {
        let Some(search) = Search::of(world) else {
            self.too_large += 1;
            return;
        };
        let max = u32::try_from(machines).expect("few");
        let lab = world.build().edit_pool("ng", |pool| pool.max = max);
        let (waits, price) = outcome(&lab);
        let here = search.placed(&waits);
        let known = search.plans(machines);
        let same = known.iter().find(|plans| plans.placed == here);
        let same = same
            .unwrap_or_else(|| panic!("{told}: the search has no plan for {here:?}: {world:?}"));
        assert!(
            same.price <= price,
            "{told}: the search is wrong: {same:?}, {price}: {world:?}"
        );
        self.worlds += 1;
        self.short += usize::from(!known.iter().any(|plans| search.is_everybody(&plans.placed)));
        // A zone is given up for pods without a place, and not for the price: where one must be, prices say nothing.
        let cheapest = same.price_of_all_zones.unwrap_or(price);
        let dearer = (price - cheapest).max(0) * 10_000 / cheapest.max(1);
        if dearer > 500 {
            eprintln!("{told}, {machines} machines: {price}, the cheapest {cheapest}");
        }
        self.dearer += dearer;
        self.dearest = self.dearest.max(dearer);
        let more = |plans: &&Plans| search.is_more(&plans.placed, &here);
        if let Some(Plans { placed: better, .. }) = known.iter().find(more) {
            self.worse += 1;
            eprintln!("{told}, {machines} machines: {here:?}, not {better:?}");
            self.first.get_or_insert_with(|| {
                format!("{told}, {machines} machines: {better:?}, not {here:?}: {world:?}")
            });
        }
    }
}

fn tally(kind: Kind, types: usize, cases: u64) -> Tally {
    let mut tally = Tally::default();
    let first = first_world();
    for case in first..first + cases {
        let style = if case.is_multiple_of(2) {
            Style::Usual
        } else {
            Style::Wild
        };
        let limit = (Limit::Machines(0), style);
        let world = World::plant(kind, types, 12, limit, &mut SeededRng::new(case));
        let fewer = 1 + usize::try_from(case / 2 % 2).expect("few");
        let machines = world.machines().saturating_sub(fewer);
        if machines > 0 {
            let told = format!("{kind:?}, {types} types, world {case}");
            tally.add(&told, &world, machines);
        }
    }
    eprintln!("{kind:?}, {types} types: {tally:?}");
    tally
}

/// Nobody waits for nothing, and prices are the least but for one per cent in the mean.
fn nobody_waits_for_nothing(cases: u64) {
    for kind in Kind::ALL {
        let mut short = 0;
        for types in [1, 3, 10] {
            let tally = tally(kind, types, cases);
            short += tally.short;
            assert_eq!(tally.worse, 0, "{kind:?}, {types} types: {tally:?}");
            let worlds = i64::try_from(tally.worlds).expect("few");
            assert!(tally.dearer <= worlds * 100, "{tally:?}");
        }
        assert!(short > 0, "{kind:?}: everybody has a place in all worlds");
    }
}

#[test]
fn of_a_dozen_pods_none_waits_whom_a_plan_places_beside_the_others() {
    nobody_waits_for_nothing((u64::from(Config::default().cases) / 16).max(8));
}

/// The numbers of `PROPTEST_CASES` worlds of each kind and number of types, and no judgement.
#[test]
#[ignore = "tells, and takes minutes"]
fn how_many_of_a_dozen_wait_for_nothing() {
    let cases = u64::from(Config::default().cases);
    for kind in Kind::ALL {
        for types in [1, 3, 10] {
            tally(kind, types, cases);
        }
    }
}
