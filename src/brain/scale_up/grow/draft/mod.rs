//! A plan for pods that need new machines, made in plain numbers.
//!
//! A planned machine is its pods and the set of launch options (pool, type and hosts that are alike) that can still
//! carry them all, narrowed by each pod that comes ([`state`]). Beside the set stands the best binding that all
//! limits of pools, hosts and the cluster allow together ([`bind`]), so that no machine is planned that could not
//! be made. Plans are laid out in several orders ([`fill`]), small ones searched through ([`exact`]), larger ones
//! made cheaper a few machines at a time ([`cheapen`]). Plans are always compared by [`Rank`]; `../../README.md` explains
//! its numbers.
//!
//! Nothing here knows the world. The caller tries the answer there before anything comes of it.

mod amounts;
mod anneal_machines;
mod bind;
mod cheapen;
mod cheapen_tied;
mod cheaper_machines;
mod domains;
mod even;
mod everyone;
mod exact;
mod exchange;
mod fill;
mod launch_option_set;
mod least_lost;
mod loads;
mod movables;
mod overload;
mod partly;
mod rates;
mod ruin_and_recreate;
mod rules;
mod share;
mod simulate_queue;
mod state;
mod tied_first;
mod units;
mod whole;

use std::cell::Cell;
use std::hash::{DefaultHasher, Hash, Hasher};

pub(super) use launch_option_set::LaunchOptionSet;

use crate::index::{
    AmountIndex, ChoiceIndex, DraftMachineIndex, FixedIndex, HostIndex, IndexVec, KeyId,
    LaunchOptionClassIndex, LaunchOptionIndex, LotIndex, MadeIndex, OfferIndex, PoolIndex,
    PoolRegionIndex, PoolTypeIndex, SiteIndex, TallyIndex, TierIndex, indexes_in,
};
use crate::scale_up::hosts::{HostCapacity, HostDemand};
use crate::scale_up::limits::RemainingMachines;
use crate::scale_up::numbers::{NumberDemands, NumberRooms};
use crate::scale_up::stores::Stores;
use crate::simulation::inter_pod::topology::{DomainId, DomainsByKey};
use crate::simulation::inter_pod::{Asks, Tally};
use crate::simulation::takes::Takes;
use least_lost::LeastLost;
use state::Draft;

/// How much the search may do in one decision, in looks; a look is one machine that is considered for one pod. Plans are laid out with
/// `SOLVE_LOOKS`, or with `SOLVE_LOOKS_EACH` times the square of the number of pods where that is less. To lay out once more the plan that is
/// to be made cheaper takes a quarter of `SOLVE_LOOKS`, or `SOLVE_LOOKS_EACH` for each pod. Where limits leave pods out for good, every decision pays for it.
const SOLVE_LOOKS: u64 = 400_000;
const SOLVE_LOOKS_EACH: u64 = 400;

/// How many plans are laid out, of which the best is made cheaper, where none was better than the first plan.
const IMPROVED_PLANS: usize = 8;

/// The places of CPU and memory among the amounts that pods ask.
const CPU: AmountIndex = AmountIndex(0);
const MEMORY: AmountIndex = AmountIndex(1);

/// Pods of one group.
#[derive(Debug, Hash)]
pub(super) struct Lot {
    /// What one asks, by resource: CPU, memory, disk, pods, others; never negative.
    pub(super) asked: IndexVec<AmountIndex, i64>,
    pub(super) count: usize,
    /// How many of its pods may be left without a place: no pod loses its place to another of the same priority.
    pub(super) spare: usize,
    /// What it counts to leave one out: more than all of a lower priority together.
    pub(super) loss: u128,
    pub(super) priority: i32,
    /// By lot: it may not share a machine with one of those, for their host ports.
    pub(super) apart: IndexVec<LotIndex, bool>,
    /// The options that it may be on.
    pub(super) may: LaunchOptionSet,
    /// What other pods ask of its place.
    pub(super) asks: Asks,
    /// A place for its pods must be known down to the topology domain: other pods count them, or they count
    /// others, over more than the host name.
    pub(super) zoned: bool,
    /// The places of its pods depend on those of other pods, or the other way round, by more than that they may not share a
    /// machine: they stay where they were put first.
    pub(super) tied: bool,
}

/// A machine that could be made: a choice on hosts where it offers the same (Karpenter: one of the instance types that are left on a NodeClaim).
#[derive(Debug, Hash)]
pub(super) struct LaunchOption {
    pub(super) choice: ChoiceIndex,
    pub(super) sites: IndexVec<SiteIndex, LaunchSite>,
    /// What it takes beside CPU and memory.
    pub(super) takes: IndexVec<SiteIndex, Takes>,
    pub(super) pool: PoolIndex,
    pub(super) pool_region: PoolRegionIndex,
    pub(super) pool_type: PoolTypeIndex,
    pub(super) tier: TierIndex,
    pub(super) price: i64,
    /// How much it has that these pods do not request: extended resources, taints, labels.
    pub(super) unrequested: u32,
    pub(super) free: IndexVec<AmountIndex, i64>,
    /// What it takes of limits.
    pub(super) cpu_milli: i64,
    pub(super) memory: i64,
    pub(super) class: LaunchOptionClassIndex,
}

/// A host that a launch option can be made on.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct LaunchSite {
    pub(super) offer: OfferIndex,
    pub(super) host: HostIndex,
}

/// Options whose nodes are the same to affinity, anti-affinity and topology spread of pods.
#[derive(Debug, Hash)]
pub(super) struct LaunchOptionClass {
    /// By topology key.
    pub(super) domains: DomainsByKey,
    /// By counter: whether its pods are counted there.
    pub(super) counts: IndexVec<TallyIndex, bool>,
    /// By counter: DaemonSet pods of a new node that it counts.
    pub(super) daemons: IndexVec<TallyIndex, i64>,
    pub(super) options: LaunchOptionSet,
}

/// A place that stays as it is: a node, or a machine that is planned for something else.
#[derive(Debug, Hash)]
pub(super) struct FixedPlace {
    pub(super) free: IndexVec<AmountIndex, i64>,
    pub(super) tier: TierIndex,
    /// By lot.
    pub(super) may: IndexVec<LotIndex, bool>,
    /// By topology key.
    pub(super) domains: DomainsByKey,
    /// By counter.
    pub(super) counts: IndexVec<TallyIndex, bool>,
}

/// The question.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) lots: IndexVec<LotIndex, Lot>,
    /// Those of pools of higher weight first, then the cheapest.
    pub(super) options: IndexVec<LaunchOptionIndex, LaunchOption>,
    pub(super) classes: IndexVec<LaunchOptionClassIndex, LaunchOptionClass>,
    pub(super) fixed: IndexVec<FixedIndex, FixedPlace>,
    pub(super) counters: IndexVec<TallyIndex, Tally>,
    pub(super) pools: IndexVec<PoolIndex, RemainingMachines>,
    /// What the limits of all pools together still allow.
    pub(super) total: RemainingMachines,
    pub(super) hosts: IndexVec<HostIndex, HostCapacity>,
    /// What each pool asks of hosts in each of its regions.
    pub(super) demands: IndexVec<PoolRegionIndex, HostDemand>,
    pub(super) stores: Stores,
    /// Addresses of networks and VMIDs of regions, which pools may share.
    pub(super) numbers: NumberRooms,
    pub(super) number_demands: NumberDemands,
    /// The plan there is: only a better one is an answer.
    pub(super) rank: Rank,
    /// Where pods are not nominated for nodes: lots with how many pods, in the order in which kube-scheduler takes them.
    pub(super) queue: Option<Vec<(LotIndex, usize)>>,
    /// Whether pods that are spread may be dealt out before all others ([`even`]).
    pub(super) deals: bool,
    /// Machines that may still be looked at.
    pub(super) looks: Cell<u64>,
    /// Machines that were looked at.
    pub(super) looked: Cell<u64>,
}

/// What plans are compared by: the first number that differs decides, and less is better. Preferences are not part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Rank {
    /// What the pods without a place count: one counts more than all pods of lower priorities together.
    pub(super) lost: u128,
    /// Where all pods have a place: pods whose hard topology spread would break if all new nodes came up at once. Otherwise 0.
    pub(super) uneven: usize,
    /// Pods in pools of lower weight: each counts one for every weight that some pool has above its own pool's. A machine for `min` counts as a pod.
    pub(super) weight_loss: usize,
    pub(super) price: i128,
    pub(super) machines: usize,
    /// What the machines have that was not requested ([`crate::simulation::offer::Choice::count_unrequested`]), summed up.
    pub(super) unrequested: u64,
}

/// A better plan.
#[derive(Clone, Debug)]
pub(super) struct BetterPlan {
    /// Its machines, each by option and offer.
    pub(super) made: IndexVec<MadeIndex, (LaunchOptionIndex, OfferIndex)>,
    /// Which pods go where, in an order in which each may go there.
    pub(super) steps: Vec<Placement<MadeIndex>>,
}

/// Pods of one lot that go somewhere. Machines are those of a draft, or of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placement<M = DraftMachineIndex> {
    pub(super) lot: LotIndex,
    pub(super) to: To<M>,
    pub(super) count: usize,
}

/// Where pods go. Machines are those of a draft, or of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum To<M = DraftMachineIndex> {
    /// A place that stays as it is.
    Fixed(FixedIndex),
    /// A planned machine.
    Machine(M),
}

impl Problem {
    /// A number that stands for the question: the same in every run of one version of the program. Another version may
    /// find what this one did not.
    pub(super) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        env!("CARGO_PKG_VERSION").hash(&mut hasher);
        (&self.lots, &self.options, &self.classes, &self.fixed).hash(&mut hasher);
        (&self.counters, &self.pools, &self.total).hash(&mut hasher);
        (&self.hosts, &self.demands, &self.stores).hash(&mut hasher);
        (&self.numbers, &self.number_demands).hash(&mut hasher);
        (&self.rank, &self.queue, self.deals).hash(&mut hasher);
        hasher.finish()
    }

    /// No machine is made in a domain. False, and nothing is changed, where a place that stays is in it.
    pub(super) fn close(&mut self, key: KeyId, domain: DomainId) -> bool {
        if self.fixed.iter().any(|fixed| fixed.domains[key] == domain) {
            return false;
        }
        for class in &self.classes {
            if class.domains[key] == domain {
                for lot in &mut self.lots {
                    class
                        .options
                        .iter()
                        .for_each(|option| lot.may.remove(option));
                }
            }
        }
        true
    }

    /// Sets how many looks may be taken.
    fn allow(&self, most: u64, each: u64) {
        self.looks.set(most.min(each));
    }

    /// The number of resources in every list of amounts.
    fn count_resources(&self) -> usize {
        self.lots.first().map_or(0, |lot| lot.asked.len())
    }

    /// The resources in every list of amounts.
    fn resources(&self) -> impl Iterator<Item = AmountIndex> + use<> {
        indexes_in(AmountIndex(0)..AmountIndex(self.count_resources()))
    }

    fn pods(&self) -> u64 {
        self.lots.iter().map(|lot| lot.count as u64).sum()
    }

    /// Counts these machines as looked at. Returns whether more may be.
    fn look(&self, machines: usize) -> bool {
        let left = self.looks.get().saturating_sub(machines as u64);
        self.looks.set(left);
        self.looked
            .set(self.looked.get().saturating_add(machines as u64));
        left > 0
    }
}

/// A plan better than the one there is, if one is found.
pub(super) fn solve<'p>(problem: &'p Problem) -> Option<BetterPlan> {
    let pods = problem.pods();
    let looks_each = SOLVE_LOOKS_EACH.saturating_mul(pods).saturating_mul(pods);
    problem.allow(SOLVE_LOOKS, looks_each);
    let least = rates::Rates::of(problem);
    let floor = least.floor();
    let mut best: Option<Draft<'p>> = None;
    let mut rank = problem.rank;
    let done = |of: &Rank| {
        (of.lost, of.uneven, of.weight_loss) == (0, 0, 0)
            && of.price <= floor.0
            && of.machines <= floor.1
    };
    if done(&rank) && rank.unrequested == 0 {
        return None;
    }
    let mut see = |draft: &Draft<'p>| {
        let found = draft.rank();
        if found < rank && draft.is_fair() {
            rank = found;
            best = Some(draft.clone());
        }
        (done(&rank), rank)
    };
    let mut seen = (false, problem.rank);
    fill::lay_out_plans(problem, &mut |draft| {
        seen = see(draft);
        seen.0
    });
    // Where pods have no place, other searches look for places.
    if problem.deals && !seen.0 && seen.1.lost == 0 {
        let looks = problem.looks.get();
        problem.allow(SOLVE_LOOKS / 4, looks_each);
        even::deal_plans(problem, seen.1.machines, &mut |draft| see(draft).0);
        problem.looks.set(looks);
    }
    if !done(&rank)
        && let Some(found) = exact::search(problem, &least, rank)
    {
        best = Some(found);
    }
    // A plan that is made cheaper anyway may begin as the one there is, laid out once more.
    let is_better = best.is_some();
    let mut plan = best.or_else(|| lay_out_best_of_few(problem));
    if let Some(draft) = &mut plan {
        let filler = whole::Filler::new(problem, &least);
        cheapen::improve(draft, &filler);
        if place_waiting(draft, (&filler, &least)) {
            cheapen_further(draft, &filler, floor.0);
        }
    }
    let known = plan.as_ref().map_or(rank, |draft| draft.rank().min(rank));
    if is_worth_more(&known, floor.0)
        && let Some(found) = exact::search_longer(problem, &least, known)
    {
        plan = Some(found);
    }
    let mut better =
        plan.filter(|draft| is_better || (draft.rank() < problem.rank && draft.is_fair()));
    if let Some(queue) = &problem.queue {
        better = better.map(|draft| match draft.rank().lost {
            0 => simulate_queue::settle(draft, queue),
            _ => draft,
        });
    }
    better.map(|draft| draft.answer())
}

/// Whether a plan leaves pods out, or costs so much more than the bound that more of a small question is searched through.
fn is_worth_more(rank: &Rank, floor: i128) -> bool {
    rank.lost > 0 || is_dear(rank, floor)
}

/// Whether every pod has a place in a plan, and it costs more than the bound by more than [`EXPENSIVE_PERCENT`] hundredths.
fn is_dear(rank: &Rank, floor: i128) -> bool {
    rank.lost == 0 && is_above(rank, floor)
}

/// Whether a plan costs more than the bound by more than [`EXPENSIVE_PERCENT`] hundredths.
fn is_above(rank: &Rank, floor: i128) -> bool {
    rank.price.saturating_mul(PRICE_PERCENT)
        > floor.saturating_mul(PRICE_PERCENT + EXPENSIVE_PERCENT)
}

/// Hundredths of a price, and by how many of them a plan may be above the bound.
const PRICE_PERCENT: i128 = 100;
const EXPENSIVE_PERCENT: i128 = 4;

/// Makes a plan cheaper in which the places of pods depend on each other, where it is expensive ([`is_above`]); and then, by other machines, any plan in
/// which every pod has a place.
fn cheapen_further<'p>(draft: &mut Draft<'p>, filler: &whole::Filler<'p>, floor: i128) {
    let tied = draft.problem.lots.iter().any(|lot| lot.tied);
    // Where pods have no place, other searches for cheaper plans end early.
    if (tied || draft.rank().lost > 0)
        && is_above(&draft.rank(), floor)
        && let Some(found) = cheapen_tied::search(draft, filler)
    {
        *draft = found;
    }
    if let Some(found) = cheaper_machines::search(draft, filler) {
        *draft = found;
    }
}

/// Looks for places for the pods that have none, in one way after the other, until no plan has more. Returns whether it is proven that none has.
fn place_waiting<'p>(
    draft: &mut Draft<'p>,
    (filler, rates): (&whole::Filler<'p>, &rates::Rates),
) -> bool {
    let problem = draft.problem;
    if draft.rank().lost == 0 {
        return true;
    }
    let least_lost = LeastLost::of(problem, rates);
    let waits = |now: &Draft<'p>| !least_lost.is_met_by(&now.rank());
    let improve = |now: &mut Draft<'p>, found: Option<Draft<'p>>| {
        if let Some(mut found) = found {
            cheapen::improve(&mut found, filler);
            *now = found;
        }
    };
    if waits(draft) {
        let found = tied_first::search(draft, filler, least_lost);
        improve(draft, found);
    }
    if waits(draft) {
        let found = ruin_and_recreate::search(draft, filler, least_lost);
        improve(draft, found);
    }
    // What follows looks for plans in which all have a place.
    if waits(draft) && least_lost.lets_all_be_placed() {
        let found = overload::search(draft, problem.rank.min(draft.rank()));
        improve(draft, found);
    }
    if waits(draft) && least_lost.lets_all_be_placed() {
        let found = everyone::search(problem, problem.rank.min(draft.rank()));
        improve(draft, found);
    }
    !waits(draft)
}

/// The best of the first [`IMPROVED_PLANS`] plans that are laid out. It is no better than the first plan, and may become so.
fn lay_out_best_of_few<'p>(problem: &'p Problem) -> Option<Draft<'p>> {
    let mut best: Option<(Rank, Draft<'p>)> = None;
    let mut tries = 0;
    problem.allow(
        SOLVE_LOOKS / 4,
        SOLVE_LOOKS_EACH.saturating_mul(problem.pods()),
    );
    fill::lay_out_plans(problem, &mut |draft| {
        tries += 1;
        let found = draft.rank();
        if best.as_ref().is_none_or(|(best, _)| found < *best) {
            best = Some((found, draft.clone()));
        }
        tries >= IMPROVED_PLANS
    });
    best.map(|(_, draft)| draft)
}
