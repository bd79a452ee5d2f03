//! Where new nodes could be: pods that are spread reckon with every domain in which a node could be made
//! for them, though none is there yet.
//!
//! kube-scheduler counts the domains of the nodes there are. Planning by that alone would put all pods of
//! a new workload into the first zone: as long as it is the only one, any number may go there.

use std::collections::{BTreeMap, BTreeSet};

use super::fit_matrix::FitMatrix;
use crate::decision::turn::DecisionBuilder;
use crate::index::{CatalogOfferIndex, CounterId, IndexVec, KeyId, RowIndex};
use crate::scale_up::limits::LimitTracker;
use crate::simulation::demand::{Demand, Group, Origin};
use crate::simulation::inter_pod::Rules;
use crate::simulation::inter_pod::topology::{DomainId, DomainsByKey, FRESH, NOWHERE};
use crate::simulation::offer::ChoiceList;
use crate::simulation::work;
use crate::simulation::world::SimCluster;
use model::scheduling::Labels;

/// What decides which domains are open: the row of the fit matrix, the offers that other pods bar, the key, and all keys of the constraints.
type DomainQuestion = (RowIndex, Vec<CatalogOfferIndex>, KeyId, Vec<KeyId>);

/// Of every offer whether a machine of it may be made now, and the labels of its node.
type ListedOffers<'c> = IndexVec<CatalogOfferIndex, (bool, &'c Labels)>;

/// Lists all offers, of all choices.
fn list_offers<'c>(turn: &DecisionBuilder<'_>, choices: &'c ChoiceList<'_>) -> ListedOffers<'c> {
    let limits = LimitTracker::of(turn);
    let mut offers = ListedOffers::default();
    for choice in choices {
        let admits = limits.admits(turn, choice).is_ok();
        for offer in &choice.offers {
            let open = admits && limits.host_admits(choice, offer).is_ok();
            offers.push((open, &offer.labels));
        }
    }
    offers
}

/// The domain that a node of each offer would be in, by topology key; the rules of all pods that are spread are known by now, and with
/// them their keys.
fn find_domains(
    world: &mut SimCluster<'_>,
    offers: &ListedOffers<'_>,
) -> IndexVec<CatalogOfferIndex, DomainsByKey> {
    let of_offer = |(_, labels): &(bool, &Labels)| {
        let keys = world.inter_pod.key_ids();
        let of_key = keys.map(|key| world.inter_pod.domain(key, labels));
        of_key.collect()
    };
    offers.iter().map(of_offer).collect()
}

/// In which domains those pods could be that others have affinity to and that have no place yet.
#[derive(Default)]
struct ComingTargets {
    /// By counter of such pods; empty where it is not known, and then nothing is barred.
    of_counter: BTreeMap<CounterId, BTreeSet<DomainId>>,
    /// By row of the fit matrix and key: all pods of a row ask the same of a node.
    of_row: BTreeMap<(RowIndex, KeyId), Vec<DomainId>>,
}

/// What the search for domains reads: the groups that need a place, and of each offer, by its number, whether a machine of it may be
/// made now and the domains of its node, by topology key.
struct DomainsAsked<'q, 'a> {
    turn: &'q DecisionBuilder<'a>,
    choices: &'q ChoiceList<'a>,
    groups: &'q [Group<'a>],
    offers: &'q ListedOffers<'q>,
    domains: &'q IndexVec<CatalogOfferIndex, DomainsByKey>,
}

impl DomainsAsked<'_, '_> {
    /// The domain of an offer's node.
    fn of(&self, offer: CatalogOfferIndex, key: KeyId) -> DomainId {
        self.domains[offer].get(key).copied().unwrap_or(NOWHERE)
    }
}

impl ComingTargets {
    /// The offers at which a pod with these rules can never be, by affinity and anti-affinity.
    fn barred<'a>(
        &mut self,
        asked: &DomainsAsked<'_, 'a>,
        world: &mut SimCluster<'a>,
        rows: &mut FitMatrix<'a>,
        rules: &Rules,
    ) -> Vec<CatalogOfferIndex> {
        let targetless = world.inter_pod.without_target(rules);
        for counter in &targetless {
            if !self.of_counter.contains_key(counter) {
                let found = self.find(asked, world, rows, *counter);
                self.of_counter.insert(*counter, found);
            }
        }
        let barred = asked.offers.indexes().filter(|offer| {
            let at = |key| asked.of(*offer, key);
            world.inter_pod.is_barred(rules, at)
                || targetless
                    .iter()
                    .any(|counter| self.never_in(world, *counter, at))
        });
        barred.collect()
    }

    /// Where the pending pods of a counter could be: on new nodes, or on those there are.
    fn find<'a>(
        &mut self,
        asked: &DomainsAsked<'_, 'a>,
        world: &mut SimCluster<'a>,
        rows: &mut FitMatrix<'a>,
        counter: CounterId,
    ) -> BTreeSet<DomainId> {
        let key = world.inter_pod.key_of(counter);
        let mut found = BTreeSet::new();
        world.inter_pod.work(asked.groups.len());
        for group in asked.groups {
            if !world.inter_pod.is_counted(counter, group.shape) {
                continue;
            }
            if work::used_up(asked.turn, world, 0) {
                return BTreeSet::new();
            }
            let row = rows.of(world, asked.choices, group);
            let domains = self.of_row.entry((row, key)).or_insert_with(|| {
                let fits = &rows.get(row).fits;
                find_domains_of_row(asked, world, group, (fits, key))
            });
            world.inter_pod.work(domains.len());
            found.extend(domains.iter().copied());
        }
        found
    }

    /// Whether none of a counter's pods could be in the domain of an offer, and some elsewhere.
    fn never_in(
        &self,
        world: &SimCluster<'_>,
        counter: CounterId,
        at: impl Fn(KeyId) -> DomainId,
    ) -> bool {
        let domains = self.of_counter.get(&counter);
        domains.is_some_and(|domains| {
            !domains.is_empty() && !domains.contains(&at(world.inter_pod.key_of(counter)))
        })
    }
}

/// The domains of a key in which a pod of a group could be, by what it asks of a node.
fn find_domains_of_row<'a>(
    asked: &DomainsAsked<'_, 'a>,
    world: &mut SimCluster<'a>,
    group: &Group<'a>,
    (fits, key): (&IndexVec<CatalogOfferIndex, bool>, KeyId),
) -> Vec<DomainId> {
    world.prepare(group.shape);
    world.inter_pod.work(fits.len() + world.nodes.len());
    let offers = asked.offers.indexed();
    let offers = offers.filter(|(offer, (open, _))| fits[*offer] && *open);
    let mut found: BTreeSet<DomainId> = offers.map(|(offer, _)| asked.of(offer, key)).collect();
    for place in world.nodes.indexes() {
        let domain = world.inter_pod.at(place)(key);
        let need = group.need.as_deref();
        let could = || {
            !world.nodes[place].closed
                && world.admits(group.shape, place)
                && world.reach_filter_failure(place, need).is_none()
        };
        if !found.contains(&domain) && could() {
            found.insert(domain);
        }
    }
    found.into_iter().collect()
}

/// The groups that insist on being spread. Their rules, and with them all topology keys, are known afterwards.
fn spread_groups<'d, 'a>(world: &mut SimCluster<'a>, demand: &'d Demand<'a>) -> Vec<&'d Group<'a>> {
    // Those that must leave their nodes go where the removal found room, by the domains there are.
    let waiting = demand
        .groups
        .iter()
        .filter(|group| group.origin != Origin::Leaves);
    let spread = waiting.filter(|group| {
        let pod = world.shapes[group.shape];
        let constraints = world.inter_pod.constraints(pod);
        constraints.iter().any(|constraint| constraint.hard)
    });
    let spread: Vec<_> = spread.collect();
    for group in &spread {
        world.rules(group.shape);
    }
    spread
}

/// Opens these domains to the pods that need a place; [`super::plan`] closes them.
pub(crate) fn open<'a>(
    turn: &DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    choices: &ChoiceList<'a>,
    demand: &Demand<'a>,
) {
    let spread = spread_groups(world, demand);
    if spread.is_empty() {
        return;
    }
    let offers = list_offers(turn, choices);
    let mut rows = FitMatrix::default();
    // Many groups ask the same.
    let mut known: BTreeMap<DomainQuestion, Vec<DomainId>> = BTreeMap::new();
    let mut everywhere = None;
    let mut coming = ComingTargets::default();
    // The domain that a node of each offer would be in.
    let mut of_key: BTreeMap<KeyId, IndexVec<CatalogOfferIndex, DomainId>> = BTreeMap::new();
    for group in spread {
        let rules = world
            .rules(group.shape)
            .filter(|rules| rules.has_affinity());
        let barred = rules.map_or_else(Vec::new, |rules| {
            let domains = everywhere.get_or_insert_with(|| find_domains(world, &offers));
            let asked = DomainsAsked {
                turn,
                choices,
                groups: &demand.groups,
                offers: &offers,
                domains,
            };
            coming.barred(&asked, world, &mut rows, &rules)
        });
        let row = rows.of(world, choices, group);
        let fits = &rows.get(row).fits;
        world.inter_pod.open(group.shape, |topology, key, keys| {
            let question = (row, barred.clone(), key, keys.to_vec());
            let found = known.entry(question).or_insert_with(|| {
                for one in keys.iter().chain([&key]) {
                    of_key.entry(*one).or_insert_with(|| {
                        let labels = offers.iter().map(|(_, labels)| *labels);
                        labels.map(|labels| topology.domain(*one, labels)).collect()
                    });
                }
                // A node without one of the keys counts for none of them.
                let all =
                    |offer: CatalogOfferIndex| keys.iter().all(|one| of_key[one][offer] != NOWHERE);
                let open = offers.indexed();
                let bars = |offer: CatalogOfferIndex| barred.binary_search(&offer).is_ok();
                let open = open.filter(|(offer, (open, _))| {
                    *open && fits[*offer] && all(*offer) && !bars(*offer)
                });
                let open = open.map(|(offer, _)| of_key[&key][offer]);
                let open: BTreeSet<_> = open.filter(|domain| *domain < FRESH).collect();
                open.into_iter().collect()
            });
            found.clone()
        });
    }
}
