//! Where new nodes could be: pods that are spread reckon with every domain in which a node could be made
//! for them, though none is there yet.
//!
//! kube-scheduler counts the domains of the nodes there are. Planning by that alone would put all pods of
//! a new workload into the first zone: as long as it is the only one, any number may go there.

use std::collections::{BTreeMap, BTreeSet};

use super::fit_matrix::FitMatrix;
use crate::decision::turn::DecisionBuilder;
use crate::scale_up::limits::LimitTracker;
use crate::simulation::company::Rules;
use crate::simulation::company::rules::CounterId;
use crate::simulation::company::topology::{DomainId, FRESH, KeyId, NOWHERE};
use crate::simulation::demand::{Demand, Group, Origin};
use crate::simulation::offer::Choice;
use crate::simulation::world::SimCluster;
use model::scheduling::Labels;

/// What decides which domains are open: the row of the fit matrix, the offers that other pods bar, the key, and all keys of the constraints.
type DomainQuestion = (usize, Vec<usize>, KeyId, Vec<KeyId>);

/// The labels of every offer, and whether a machine of it may be made now.
fn offers_of<'c>(turn: &DecisionBuilder<'_>, choices: &'c [Choice<'_>]) -> Vec<(bool, &'c Labels)> {
    let ledger = LimitTracker::of(turn);
    let mut offers = Vec::new();
    for choice in choices {
        let admits = ledger.admits(turn, choice).is_ok();
        for offer in &choice.offers {
            let open = admits && ledger.host_admits(choice, offer).is_ok();
            offers.push((open, &offer.labels));
        }
    }
    offers
}

/// The domain that a node of each offer would be in, by topology key. By now all keys are known that rules ask for.
fn domains_of(world: &mut SimCluster<'_>, offers: &[(bool, &Labels)]) -> Vec<Vec<DomainId>> {
    let keys = world.company.keys();
    let of_offer = |(_, labels): &(bool, &Labels)| {
        let of_key = (0..keys).map(|key| world.company.domain(key, labels));
        of_key.collect()
    };
    offers.iter().map(of_offer).collect()
}

/// In which domains those pods could be that others have affinity to and that have no place yet, by counter.
#[derive(Default)]
struct ComingTargets(BTreeMap<CounterId, BTreeSet<DomainId>>);

impl ComingTargets {
    /// The offers at which a pod with these rules can never be, by affinity and anti-affinity.
    fn barred<'a>(
        &mut self,
        world: &SimCluster<'a>,
        choices: &[Choice<'a>],
        (groups, rows): (&[Group<'a>], &mut FitMatrix<'a>),
        open: (&[(bool, &Labels)], &[Vec<DomainId>]),
        rules: &Rules,
    ) -> Vec<usize> {
        let targetless = world.company.without_target(rules);
        for counter in &targetless {
            self.find(world, choices, (groups, &mut *rows), open, *counter);
        }
        let barred = open.1.iter().enumerate().filter(|(_, at)| {
            world.company.is_barred(rules, |key| at[key])
                || targetless
                    .iter()
                    .any(|counter| self.never_in(world, *counter, at))
        });
        barred.map(|(offer, _)| offer).collect()
    }

    /// Finds where the pending pods of a counter could be: on new nodes, or on those there are.
    fn find<'a>(
        &mut self,
        world: &SimCluster<'a>,
        choices: &[Choice<'a>],
        (groups, rows): (&[Group<'a>], &mut FitMatrix<'a>),
        (offers, domains): (&[(bool, &Labels)], &[Vec<DomainId>]),
        counter: CounterId,
    ) {
        if self.0.contains_key(&counter) {
            return;
        }
        let key = world.company.key_of(counter);
        let mut found = BTreeSet::new();
        let targets = groups
            .iter()
            .filter(|group| world.company.is_counted(counter, group.shape));
        for group in targets {
            let row = rows.of(world, choices, group);
            let fits = rows.get(row).fits.iter().zip(offers).zip(domains);
            let fits = fits.filter(|((fits, (open, _)), _)| **fits && *open);
            found.extend(fits.map(|(_, at)| at[key]));
            let places = (0..world.nodes.len())
                .filter(|place| !world.nodes[*place].closed && world.admits(group.shape, *place));
            found.extend(places.map(|place| world.company.at(place)(key)));
        }
        self.0.insert(counter, found);
    }

    /// Whether none of a counter's pods could be in the domain of an offer, and some elsewhere.
    fn never_in(&self, world: &SimCluster<'_>, counter: CounterId, at: &[DomainId]) -> bool {
        let domains = self.0.get(&counter);
        domains.is_some_and(|domains| {
            !domains.is_empty() && !domains.contains(&at[world.company.key_of(counter)])
        })
    }
}

/// Opens these domains to the pods that need a place; [`super::plan`] closes them.
pub(crate) fn open<'a>(
    turn: &DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    choices: &[Choice<'a>],
    demand: &Demand<'a>,
) {
    let spread = |world: &SimCluster<'_>, group: &Group<'_>| {
        // Those that must leave their nodes go where the removal found room, by the domains there are.
        if group.origin == Origin::Leaves {
            return false;
        }
        let pod = world.shapes[group.shape];
        let constraints = world.company.constraints(pod);
        constraints.iter().any(|constraint| constraint.hard)
    };
    if !demand.groups.iter().any(|group| spread(world, group)) {
        return;
    }
    let offers = offers_of(turn, choices);
    let mut rows = FitMatrix::default();
    // Many groups ask the same.
    let mut known: BTreeMap<DomainQuestion, Vec<DomainId>> = BTreeMap::new();
    let mut everywhere = None;
    let mut coming = ComingTargets::default();
    // The domain that a node of each offer would be in.
    let mut of_key: BTreeMap<KeyId, Vec<DomainId>> = BTreeMap::new();
    for group in &demand.groups {
        if !spread(world, group) {
            continue;
        }
        let rules = world
            .rules(group.shape)
            .filter(|rules| rules.has_affinity());
        let barred = rules.map_or_else(Vec::new, |rules| {
            let domains = everywhere.get_or_insert_with(|| domains_of(world, &offers));
            let asked = (&demand.groups[..], &mut rows);
            coming.barred(world, choices, asked, (&offers, domains), &rules)
        });
        let row = rows.of(world, choices, group);
        let fits = &rows.get(row).fits;
        world.company.open(group.shape, |topology, key, keys| {
            let question = (row, barred.clone(), key, keys.to_vec());
            let found = known.entry(question).or_insert_with(|| {
                for key in keys.iter().chain([&key]) {
                    of_key.entry(*key).or_insert_with(|| {
                        let labels = offers.iter().map(|(_, labels)| *labels);
                        labels.map(|labels| topology.domain(*key, labels)).collect()
                    });
                }
                // A node without one of the keys counts for none of them.
                let all = |offer: usize| keys.iter().all(|key| of_key[key][offer] != NOWHERE);
                let open = offers.iter().zip(fits).enumerate();
                let bars = |offer: usize| barred.binary_search(&offer).is_ok();
                let open = open.filter(|(offer, ((open, _), fits))| {
                    *open && **fits && all(*offer) && !bars(*offer)
                });
                let open = open.map(|(offer, _)| of_key[&key][offer]);
                let open: BTreeSet<_> = open.filter(|domain| *domain < FRESH).collect();
                open.into_iter().collect()
            });
            found.clone()
        });
    }
}
