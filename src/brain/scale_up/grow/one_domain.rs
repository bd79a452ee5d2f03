//! Topology spread over a key of which there is one domain alone, such as zones where all nodes are on one host: whatever the plan is,
//! there is no domain with fewer pods. [`leave_out_spread`] takes such rules out of the second plan's question, so that pods
//! which nothing else ties may be moved as freely as others.

use std::collections::BTreeSet;

use super::draft::{Lot, Problem};
use crate::index::{KeyId, TallyIndex};
use crate::simulation::inter_pod::Even;
use crate::simulation::inter_pod::topology::{DomainId, FRESH, NOWHERE};

/// Takes out spread that no plan can break, and what pods are counted in that nobody asks about then.
pub(super) fn leave_out_spread(problem: &mut Problem) {
    let idle: Vec<Vec<bool>> = problem
        .lots
        .indexed()
        .map(|(index, lot)| {
            let fixed = problem.fixed.iter().filter(|place| place.may[index]);
            let fixed: Vec<_> = fixed.map(|place| &place.domains).collect();
            let rules = lot.asks.spread.iter();
            rules
                .map(|even| {
                    let known = |key: KeyId, domain: DomainId| {
                        fixed.iter().all(|domains| domains[key] == domain)
                    };
                    is_idle(problem, lot, even, &known)
                })
                .collect()
        })
        .collect();
    if !idle.iter().flatten().any(|idle| *idle) {
        return;
    }
    for (lot, rules) in problem.lots.iter_mut().zip(idle) {
        let mut rules = rules.into_iter();
        lot.asks
            .spread
            .retain(|_| !rules.next().unwrap_or_default());
    }
    let asked: BTreeSet<TallyIndex> = problem.lots.iter().flat_map(counters_asked).collect();
    for lot in &mut problem.lots {
        lot.asks.feeds.retain(|counter| asked.contains(counter));
    }
}

/// The counters whose pods decide where those of a lot may be.
fn counters_asked(lot: &Lot) -> impl Iterator<Item = TallyIndex> {
    let asks = &lot.asks;
    let unwanted = asks.unwanted.iter().map(|(counter, _)| *counter);
    let spread = asks.spread.iter().map(|even| even.counter);
    let others = asks.forbidden.iter().chain(&asks.wanted).copied();
    others.chain(unwanted).chain(spread)
}

/// Whether a rule of spread holds wherever pods of this lot are put. `fixed` says whether all places that stay, and that
/// the lot may be on, are in this domain of a key.
fn is_idle(
    problem: &Problem,
    lot: &Lot,
    even: &Even,
    fixed: &dyn Fn(KeyId, DomainId) -> bool,
) -> bool {
    let tally = &problem.counters[even.counter];
    let of_key = |key: KeyId| {
        let options = lot.may.iter();
        options.map(move |index| problem.classes[problem.options[index].class].domains[key])
    };
    let Some(domain) = of_key(tally.key).next() else {
        return false;
    };
    let mut others = tally.places.indexed().filter(|(_, places)| **places > 0);
    even.max_skew >= 1
        && even.min_domains <= 1
        && domain != FRESH
        && domain != NOWHERE
        && of_key(tally.key).all(|other| other == domain)
        && fixed(tally.key, domain)
        // A place must have the other keys as well: whether all places that stay have them is not looked at.
        && even.keys.iter().all(|key| *key == tally.key)
        && even.open.iter().all(|other| *other == domain)
        && others.all(|(other, _)| other == domain)
}
