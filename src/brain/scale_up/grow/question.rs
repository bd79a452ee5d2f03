//! What is planned, as plain numbers for [`super::draft`].

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::catalog::Catalog;
use super::draft::{
    FixedPlace, LaunchOption, LaunchOptionClass, LaunchOptionSet, LaunchSite, Lot, Problem,
};
use super::min_lots::MinLots;
use super::one_domain;
use super::pending::PendingGroups;
use super::planner::Planner;
use super::view::PlanView;
use super::withdrawal::{NoSecondPlan, ReplannedGroup, Withdrawal};
use crate::constraints::fit::ports;
use crate::index::{
    AmountIndex, ChoiceIndex, FixedIndex, GroupIndex, IndexVec, KeyId, LaunchOptionClassIndex,
    LaunchOptionIndex, LotIndex, NodeIndex, OfferIndex, ShapeId, TallyIndex, TierIndex,
};
use crate::simulation::inter_pod::topology::{DomainsByKey, FRESH};
use crate::simulation::inter_pod::{Asks, CounterRules, Tally};
use crate::simulation::offer::{Choice, Daemon, Offer};
use model::resources::Resources;

/// Nodes that are looked at for pods that others may open them to.
const MAX_NODES: usize = 64;
/// With more options than this there is no second plan; nor with more offers × (1 + counters), where a counter is a rule of
/// affinity, anti-affinity or topology spread.
const MAX_OPTIONS: usize = 1024;
const MAX_OFFERS: usize = 60_000;
/// Counters of affinity, anti-affinity and spread times groups, at most: each group asks each counter wherever it goes.
const MAX_COUNTERS: usize = 8_000_000;

/// What is counted of a pod or a node: resources, then volumes by driver; and after them what [`MinLots::amounts`] says.
#[derive(Debug, Default)]
struct CountedNames {
    resources: Vec<Arc<str>>,
    drivers: Vec<Arc<str>>,
}

/// What makes offers one class: domains, which counters count there, and DaemonSet pods that they count.
type LaunchOptionClassKey = (
    DomainsByKey,
    IndexVec<TallyIndex, bool>,
    IndexVec<TallyIndex, i64>,
);

/// All options, and by lot which of them it may be on.
type OptionsOfLots = (
    IndexVec<LaunchOptionIndex, LaunchOption>,
    IndexVec<LotIndex, LaunchOptionSet>,
);

/// An offer with what decides which option it is of.
struct SeenOffer<'c, 'a> {
    choice: ChoiceIndex,
    at: OfferIndex,
    of: &'c Offer<'a>,
    class: LaunchOptionClassIndex,
}

/// What a question is made of: pods that may be packed again, and all that stays as it is.
struct Inquiry<'q, 'v, 'a> {
    view: PlanView<'v, 'a>,
    replanned: &'q IndexVec<LotIndex, ReplannedGroup>,
    mins: MinLots<'q>,
    names: CountedNames,
}

/// The second plan's question, and the simulated nodes of the places that stay.
/// [`prepare`] comes first.
///
/// # Errors
///
/// It is too large, or no machine may be made.
pub(super) fn pose_question(
    view: PlanView<'_, '_>,
    withdrawal: &Withdrawal,
) -> Result<(Problem, IndexVec<FixedIndex, NodeIndex>), NoSecondPlan> {
    let replanned = &withdrawal.replanned;
    let inquiry = Inquiry {
        view,
        replanned,
        mins: MinLots {
            mins: &withdrawal.mins,
            groups: replanned.len(),
        },
        names: list_counted(view, replanned),
    };
    let shapes: Vec<ShapeId> = replanned
        .iter()
        .map(|of| view.group(of.group).shape)
        .collect();
    let numbers = view.world.inter_pod.numbers(&shapes);
    let choices = view.catalog.choices;
    let offers: usize = choices.iter().map(|choice| choice.offers.len()).sum();
    let counters = numbers.counters.len();
    if offers.saturating_mul(1 + counters) > MAX_OFFERS
        || replanned.len().saturating_mul(counters) > MAX_COUNTERS
    {
        return Err(NoSecondPlan::TooLarge);
    }
    let (mut classes, seen) = inquiry.classes(&numbers);
    let (options, may) = inquiry.options(seen)?;
    let (fixed, nodes) = inquiry.fixed(withdrawal, &numbers);
    if options.is_empty() && withdrawal.coming.is_empty() {
        return Err(NoSecondPlan::Nothing);
    }
    for class in &mut classes {
        class.options = LaunchOptionSet::none(options.len());
    }
    for (index, option) in options.indexed() {
        classes[option.class].options.insert(index);
    }
    let lots = inquiry.lots(numbers.shapes, may);
    let spare = view.limits.remaining(view.turn, choices);
    let mut problem = Problem {
        lots,
        options,
        classes,
        fixed,
        counters: numbers.counters,
        pools: spare.pools,
        total: spare.total,
        hosts: spare.hosts,
        demands: spare.demands,
        stores: spare.stores,
        numbers: spare.numbers,
        number_demands: spare.number_demands,
        rank: withdrawal.rank,
        queue: inquiry.queue(),
        deals: true,
        looks: Cell::default(),
        looked: Cell::default(),
    };
    one_domain::leave_out_spread(&mut problem);
    tie(&mut problem);
    Ok((problem, nodes))
}

/// Finds the rules of all these pods, and the domains of all offers.
pub(super) fn prepare<'a>(
    planner: &mut Planner<'_, 'a>,
    catalog: &mut Catalog<'_, 'a>,
    pending: &PendingGroups<'a>,
    replanned: &[ReplannedGroup],
) {
    for of in replanned {
        let shape = pending.groups[of.group].shape;
        planner.world.rules(shape);
        planner.world.prepare(shape);
    }
    catalog.locate(planner.world);
}

/// By priority, what one pod without a place counts: more than all of lower priorities together.
pub(super) fn count_losses(
    view: PlanView<'_, '_>,
    replanned: &[ReplannedGroup],
) -> BTreeMap<i32, u128> {
    let mut pods: BTreeMap<i32, usize> = BTreeMap::new();
    for of in replanned {
        *pods.entry(view.priority(of.group)).or_default() += of.pods.len();
    }
    let mut below = 0u128;
    let losses = pods.into_iter().map(|(priority, pods)| {
        let loss = below.saturating_add(1);
        below = below.saturating_add(loss.saturating_mul(pods as u128));
        (priority, loss)
    });
    losses.collect()
}

/// How much a choice has that none of these groups asks for.
pub(super) fn count_unrequested(
    view: PlanView<'_, '_>,
    choice: ChoiceIndex,
    replanned: &[ReplannedGroup],
) -> u32 {
    let names = list_counted(view, replanned);
    view.choice(choice)
        .count_unrequested(&find_wanted(view, replanned, &names))
}

/// What is counted of these pods.
fn list_counted(view: PlanView<'_, '_>, replanned: &[ReplannedGroup]) -> CountedNames {
    let asked = replanned.iter().map(|of| asked(view, of.group));
    let resources = asked.flat_map(|asked| asked.extended.keys());
    let resources: BTreeSet<&Arc<str>> = resources.collect();
    let needs = replanned.iter();
    let needs = needs.filter_map(|of| view.group(of.group).need.as_deref());
    let drivers: BTreeSet<&Arc<str>> = needs.flat_map(|need| need.attach.keys()).collect();
    CountedNames {
        resources: resources.into_iter().cloned().collect(),
        drivers: drivers.into_iter().cloned().collect(),
    }
}

/// What one pod of a group asks.
fn asked<'a>(view: PlanView<'_, 'a>, group: GroupIndex) -> &'a Resources {
    &view.shape(group).shape.requests
}

/// The extended resources that some group asks for.
fn find_wanted<'n>(
    view: PlanView<'_, '_>,
    replanned: &[ReplannedGroup],
    names: &'n CountedNames,
) -> BTreeSet<&'n Arc<str>> {
    let asks = |name: &&Arc<str>| {
        let mut groups = replanned.iter();
        groups.any(|of| asked(view, of.group).get(name) > 0)
    };
    names.resources.iter().filter(asks).collect()
}

/// Whether host ports keep pods of two groups from one node.
fn ports_clash(view: PlanView<'_, '_>, one: GroupIndex, other: GroupIndex) -> bool {
    let ports = |group: GroupIndex| &view.shape(group).shape.host_ports;
    ports::taken(ports(one), ports(other)).is_some()
}

impl<'v, 'a> Inquiry<'_, 'v, 'a> {
    /// Lots with how many pods, in the order in which kube-scheduler takes them; none where pods are nominated for the
    /// nodes that are made for them. The first machines of a pool are those for its `min`.
    fn queue(&self) -> Option<Vec<(LotIndex, usize)>> {
        let view = self.view;
        if view.turn.view.nominates() {
            return None;
        }
        let pods = self.replanned.indexed().flat_map(|(lot, of)| {
            let priority = view.priority(of.group);
            of.pods.iter().map(move |index| {
                let to_place = &view.group(of.group).pods[*index];
                let pod = to_place.pod;
                (
                    Reverse(priority),
                    pod.created,
                    pod.arrival,
                    to_place.key,
                    lot,
                )
            })
        });
        let mut pods: Vec<_> = pods.collect();
        pods.sort_unstable();
        let mut queue: Vec<(LotIndex, usize)> = self.mins.counts().collect();
        for (.., lot) in pods {
            match queue.last_mut() {
                Some((last, count)) if *last == lot => *count += 1,
                _ => queue.push((lot, 1)),
            }
        }
        Some(queue)
    }

    /// What one pod of a group asks.
    fn asks(&self, group: GroupIndex) -> IndexVec<AmountIndex, i64> {
        let mut asked = amounts(asked(self.view, group), &self.names, true);
        let need = self.view.group(group).need.as_deref();
        asked.extend(self.names.drivers.iter().map(|driver| {
            let volumes = need.and_then(|need| need.attach.get(driver));
            let count = volumes.map_or(0, |volumes| volumes.known.len() + volumes.fresh.len());
            i64::try_from(count).unwrap_or(i64::MAX)
        }));
        asked.extend(self.mins.amounts(None));
        asked
    }

    fn lots(
        &self,
        asks_of: Vec<Asks>,
        options_of: IndexVec<LotIndex, LaunchOptionSet>,
    ) -> IndexVec<LotIndex, Lot> {
        let (view, replanned) = (self.view, self.replanned);
        let losses = count_losses(view, replanned);
        // Pods without a place may take that of pods of a lower priority.
        let waiting = replanned.iter().filter(|of| of.pods.len() > of.placed);
        let first = waiting.map(|of| view.priority(of.group)).max();
        let mut options_of = options_of.into_iter();
        let both = replanned.iter().zip(asks_of).zip(options_of.by_ref());
        let lots = both.map(|((of, asks), may)| {
            let priority = view.priority(of.group);
            Lot {
                asked: self.asks(of.group),
                count: of.pods.len(),
                spare: if first.is_some_and(|first| first > priority) {
                    of.pods.len()
                } else {
                    of.pods.len() - of.placed
                },
                loss: losses.get(&priority).copied().unwrap_or(1),
                priority,
                apart: replanned
                    .iter()
                    .map(|other| ports_clash(view, of.group, other.group))
                    .chain(self.mins.mins.iter().map(|_| false))
                    .collect(),
                may,
                asks,
                zoned: false,
                tied: false,
            }
        });
        let mut lots: IndexVec<LotIndex, Lot> = lots.collect();
        self.mins.add_to(&mut lots, options_of);
        lots
    }

    /// What offers are to affinity, anti-affinity and topology spread of pods.
    fn classes(
        &self,
        numbers: &CounterRules,
    ) -> (
        IndexVec<LaunchOptionClassIndex, LaunchOptionClass>,
        Vec<SeenOffer<'v, 'a>>,
    ) {
        let view = self.view;
        let mut known: BTreeMap<LaunchOptionClassKey, LaunchOptionClassIndex> = BTreeMap::new();
        let (mut classes, mut seen) = (IndexVec::default(), Vec::new());
        for (index, choice) in view.catalog.choices.indexed() {
            for (at, offer) in choice.offers.indexed() {
                if view.limits.host_admits(choice, offer).is_err() {
                    continue;
                }
                let row = &view.catalog.domains[choice.index_in_catalog(at)];
                let used = |key: KeyId| numbers.counters.iter().any(|tally| tally.key == key);
                let domains = row.indexed();
                let domains = domains.map(|(key, domain)| if used(key) { *domain } else { FRESH });
                let domains: DomainsByKey = domains.collect();
                let counts = |tally: &Tally| {
                    let inter_pod = &view.world.inter_pod;
                    inter_pod.would_count(tally, &offer.labels, &choice.policy.taints, row)
                };
                let counts: IndexVec<TallyIndex, bool> =
                    numbers.counters.iter().map(counts).collect();
                let daemons = |tally: &Tally| {
                    let of = offer.residents.iter().map(Daemon::pod);
                    let of = of.filter(|pod| view.world.inter_pod.would_take(tally, *pod));
                    i64::try_from(of.count()).unwrap_or(i64::MAX)
                };
                let daemons: IndexVec<TallyIndex, i64> =
                    numbers.counters.iter().map(daemons).collect();
                let class = *known
                    .entry((domains.clone(), counts.clone(), daemons.clone()))
                    .or_insert_with(|| {
                        classes.push(LaunchOptionClass {
                            domains,
                            counts,
                            daemons,
                            options: LaunchOptionSet::default(),
                        })
                    });
                seen.push(SeenOffer {
                    choice: index,
                    at,
                    of: offer,
                    class,
                });
            }
        }
        (classes, seen)
    }

    /// The options, and by lot which of them it may be on.
    fn options(&self, seen: Vec<SeenOffer<'v, 'a>>) -> Result<OptionsOfLots, NoSecondPlan> {
        let (view, choices) = (self.view, self.view.catalog.choices);
        let spare = view.limits.remaining(view.turn, choices);
        let wanted = find_wanted(view, self.replanned, &self.names);
        let mut options: Vec<(LaunchOption, IndexVec<LotIndex, bool>)> = Vec::new();
        let mut first = 0;
        let admits = |choice: &Choice<'_>| view.limits.admits(view.turn, choice).is_ok();
        let admits: IndexVec<ChoiceIndex, bool> = choices.iter().map(admits).collect();
        for offer in seen {
            let choice = &choices[offer.choice];
            if spare.pools[choice.pool_index].machines == 0 || !admits[offer.choice] {
                continue;
            }
            if options
                .last()
                .is_none_or(|(last, _)| last.choice != offer.choice)
            {
                first = options.len();
            }
            let Some((option, may)) = self.option(&offer, &wanted) else {
                continue;
            };
            let alike = options[first..].iter_mut().find(|(other, also)| {
                other.class == option.class && other.free == option.free && *also == may
            });
            match alike {
                Some((other, _)) => {
                    other.sites.extend(option.sites);
                    other.takes.extend(option.takes);
                }
                None => options.push((option, may)),
            }
            if options.len() > MAX_OPTIONS {
                return Err(NoSecondPlan::TooLarge);
            }
        }
        options.sort_by_key(|(option, _)| (option.rank(), option.choice));
        let options: IndexVec<LaunchOptionIndex, (LaunchOption, IndexVec<LotIndex, bool>)> =
            options.into();
        let may = self.mins.all().map(|lot| {
            let mut options_of_lot = LaunchOptionSet::none(options.len());
            for (index, (_, may)) in options.indexed() {
                if may[lot] {
                    options_of_lot.insert(index);
                }
            }
            options_of_lot
        });
        let may = may.collect();
        let options: IndexVec<LaunchOptionIndex, LaunchOption> =
            options.into_iter().map(|(option, _)| option).collect();
        Ok((options, may))
    }

    /// The option of an offer by itself, and by lot whether it may be on it; none where none may.
    fn option(
        &self,
        offer: &SeenOffer<'v, 'a>,
        wanted: &BTreeSet<&Arc<str>>,
    ) -> Option<(LaunchOption, IndexVec<LotIndex, bool>)> {
        let view = self.view;
        let choice = view.choice(offer.choice);
        let tier = view.tier(offer.choice);
        let may = self.replanned.iter().map(|of| {
            view.row(of.group).fits[choice.index_in_catalog(offer.at)]
                && tier <= of.tier
                && view.unmet(of.group, offer.choice, offer.at) <= of.unmet
        });
        let may = may.chain(self.mins.may(choice.pool_index));
        let may: IndexVec<LotIndex, bool> = may.collect();
        let mut free = amounts(&offer.of.free, &self.names, false);
        free.extend(self.names.drivers.iter().map(|driver| {
            let limit = choice.slots.as_ref().and_then(|slots| slots.limit(driver));
            limit.map_or(i64::MAX, i64::from)
        }));
        free.extend(self.mins.amounts(Some(choice.pool_index)));
        let site = LaunchSite {
            offer: offer.at,
            host: offer.of.host_index,
        };
        let option = LaunchOption {
            choice: offer.choice,
            sites: vec![site].into(),
            takes: vec![offer.of.takes.clone()].into(),
            pool: choice.pool_index,
            pool_region: choice.pool_region,
            pool_type: choice.pool_type,
            tier,
            price: choice.price,
            unrequested: choice.count_unrequested(wanted),
            free,
            cpu_milli: i64::from(choice.instance_type.cores) * 1000,
            memory: choice.instance_type.memory,
            class: offer.class,
        };
        may.contains(&true).then_some((option, may))
    }

    /// The places that stay, and their nodes: machines that are planned for something else, those on their way that pods may go to, and
    /// nodes that others may open to pods.
    fn fixed(
        &self,
        withdrawal: &Withdrawal,
        numbers: &CounterRules,
    ) -> (
        IndexVec<FixedIndex, FixedPlace>,
        IndexVec<FixedIndex, NodeIndex>,
    ) {
        let (view, replanned) = (self.view, self.replanned);
        let mut fixed = IndexVec::default();
        let mut nodes = IndexVec::default();
        let mut add = |node: NodeIndex, tier: TierIndex, mut may: IndexVec<LotIndex, bool>| {
            if !may.contains(&true) {
                return;
            }
            for _ in self.mins.mins {
                may.push(false);
            }
            let at = view.world.inter_pod.at(node);
            let mut free = amounts(&view.world.nodes[node].free, &self.names, false);
            let slots = view.world.nodes[node].slots.as_ref();
            free.extend(self.names.drivers.iter().map(|driver| {
                let left = slots.and_then(|slots| slots.left(driver));
                left.unwrap_or(i64::MAX)
            }));
            free.extend(self.mins.amounts(None));
            let counts = numbers.counters.iter();
            let counts = counts.map(|tally| view.world.inter_pod.counts_on(tally, node));
            fixed.push(FixedPlace {
                free,
                tier,
                may,
                domains: view.world.inter_pod.key_ids().map(at).collect(),
                counts: counts.collect(),
            });
            nodes.push(node);
        };
        for (machine, planned) in view.planned.machines.indexed() {
            if withdrawal.machines.contains(&machine) {
                continue;
            }
            let tier = view.tier(planned.choice);
            let may = replanned.iter().map(|of| {
                tier <= of.tier
                    && view.unmet(of.group, planned.choice, planned.offer) <= of.unmet
                    && view.room_beside(of.group, planned.node) > 0
            });
            add(planned.node, tier, may.collect());
        }
        for node in withdrawal.coming.iter().copied() {
            let may = replanned.iter();
            let may = may.map(|of| view.room_beside(of.group, node) > 0);
            add(node, TierIndex(0), may.collect());
        }
        let dependent = |of: &ReplannedGroup| view.group(of.group).dependent;
        let some = replanned.iter().filter(|of| dependent(of)).count();
        let existing = view.existing.nodes();
        if some == 0 || some.saturating_mul(existing.len()) > MAX_NODES * MAX_NODES {
            return (fixed, nodes);
        }
        for node in existing.iter().copied() {
            if view.world.nodes[node].closed || withdrawal.coming.contains(&node) {
                continue;
            }
            let may = replanned.iter();
            let may = may.map(|of| dependent(of) && view.room_beside(of.group, node) > 0);
            add(node, TierIndex(0), may.collect());
        }
        (fixed, nodes)
    }
}

/// Finds the lots whose places must be known to the domain, and those whose places depend on other lots'.
fn tie(problem: &mut Problem) {
    let local = |(index, tally): (TallyIndex, &Tally)| {
        problem.classes.iter().all(|class| {
            class.domains[tally.key] == FRESH && class.counts[index] && class.daemons[index] == 0
        })
    };
    let local = problem.counters.indexed().map(local);
    let local: IndexVec<TallyIndex, bool> = local.collect();
    let mut binding: IndexVec<TallyIndex, bool> = vec![false; problem.counters.len()].into();
    for lot in &problem.lots {
        let spread = lot.asks.spread.iter().map(|even| even.counter);
        for counter in lot.asks.wanted.iter().copied().chain(spread) {
            binding[counter] = true;
        }
    }
    for lot in &mut problem.lots {
        let asks = &lot.asks;
        let unwanted = asks.unwanted.iter().map(|(counter, _)| *counter);
        let spread = asks.spread.iter().map(|even| even.counter);
        let others = asks.feeds.iter().chain(&asks.forbidden).chain(&asks.wanted);
        let all = others.copied().chain(unwanted).chain(spread);
        let all: Vec<TallyIndex> = all.collect();
        lot.zoned = all.iter().any(|counter| !local[*counter]);
        lot.tied = lot.zoned || all.iter().any(|counter| binding[*counter]);
    }
}

/// What a group asks or an offer has, by resource.
fn amounts(of: &Resources, names: &CountedNames, asked: bool) -> IndexVec<AmountIndex, i64> {
    let pods = if asked { 1 } else { of.pods };
    let fixed = [of.cpu_milli, of.memory, of.ephemeral, pods];
    let extended = names.resources.iter().map(|name| of.get(name));
    let all = fixed.into_iter().chain(extended);
    all.map(|amount| if asked { amount.max(0) } else { amount })
        .collect()
}
