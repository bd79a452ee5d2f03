//! A plan while it is laid out: what each planned machine carries, what could still carry it, and what the
//! counters of topology spread and affinity have counted. Whatever is done can be taken back.

use smallvec::SmallVec;

use super::amounts::ResourceAmounts;
use super::bind::RemainingLimits;
use super::{BetterPlan, LaunchOptionSet, Placement, Problem, Rank, To};
use crate::index::{
    DraftMachineIndex, FixedIndex, IndexVec, LaunchOptionClassIndex, LaunchOptionIndex, LotIndex,
    MadeIndex, SiteIndex, TallyIndex, UndoIndex,
};
use crate::simulation::inter_pod::topology::{DomainId, FRESH};

/// Pods that share a place.
#[derive(Clone, Debug, Default)]
pub(super) struct Load {
    /// Lots with how many pods of each.
    pub(super) counts: SmallVec<[(LotIndex, usize); 6]>,
    pub(super) sum: ResourceAmounts,
}

/// A planned machine.
#[derive(Clone, Debug)]
pub(super) struct DraftMachine {
    pub(super) load: Load,
    /// The options that can carry it.
    pub(super) options: LaunchOptionSet,
    /// The class that its pods asked for; until one does, it may be of any.
    pub(super) class: Option<LaunchOptionClassIndex>,
    /// The option it would be made of, and on which of its sites, if all were made now.
    pub(super) bound: Option<(LaunchOptionIndex, SiteIndex)>,
}

/// What takes back one change.
#[derive(Clone, Debug)]
enum Undo {
    Fixed(FixedIndex, Load),
    Machine(DraftMachineIndex, DraftMachine),
    Made,
    Pods(TallyIndex, DomainId, i64),
    Total(TallyIndex, i64),
    Place(TallyIndex, DomainId),
    Left(LotIndex, usize),
    Step(usize),
}

/// The plan.
#[derive(Clone, Debug)]
pub(super) struct Draft<'p> {
    pub(super) problem: &'p Problem,
    pub(super) machines: IndexVec<DraftMachineIndex, DraftMachine>,
    pub(super) fixed: IndexVec<FixedIndex, Load>,
    pub(super) limits: RemainingLimits,
    /// By lot: pods without a place.
    pub(super) left: IndexVec<LotIndex, usize>,
    /// By counter and domain.
    pub(super) pods: IndexVec<TallyIndex, IndexVec<DomainId, i64>>,
    pub(super) places: IndexVec<TallyIndex, IndexVec<DomainId, u32>>,
    pub(super) totals: IndexVec<TallyIndex, i64>,
    pub(super) steps: Vec<Placement>,
    undo: Vec<Undo>,
}

/// Where a pod is to be, as the counters see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) to: Option<To>,
    pub(super) class: Option<LaunchOptionClassIndex>,
}

impl Load {
    /// Nothing, in as many resources as pods of a problem ask.
    pub(super) fn empty(problem: &Problem) -> Load {
        Load {
            counts: SmallVec::new(),
            sum: ResourceAmounts::none(problem.count_resources()),
        }
    }

    pub(super) fn count(&self, lot: LotIndex) -> usize {
        let found = self.counts.iter().find(|(of, _)| *of == lot);
        found.map_or(0, |(_, count)| *count)
    }

    pub(super) fn add(&mut self, problem: &Problem, lot: LotIndex, count: usize) {
        match self.counts.iter_mut().find(|(of, _)| *of == lot) {
            Some((_, known)) => *known += count,
            None => self.counts.push((lot, count)),
        }
        let times = i64::try_from(count).unwrap_or(i64::MAX);
        for (sum, asked) in self.sum.iter_mut().zip(&problem.lots[lot].asked) {
            *sum = sum.saturating_add(asked.saturating_mul(times));
        }
    }

    /// Takes pods of a lot away again.
    pub(super) fn remove(&mut self, problem: &Problem, lot: LotIndex, count: usize) {
        for (_, known) in self.counts.iter_mut().filter(|(of, _)| *of == lot) {
            *known = known.saturating_sub(count);
        }
        self.counts.retain(|(_, known)| *known > 0);
        let times = i64::try_from(count).unwrap_or(i64::MAX);
        for (sum, asked) in self.sum.iter_mut().zip(&problem.lots[lot].asked) {
            *sum = sum.saturating_sub(asked.saturating_mul(times));
        }
    }

    /// Nothing of a resource fits everywhere, as kube-scheduler has it.
    pub(super) fn within(&self, free: &[i64]) -> bool {
        let mut both = self.sum.iter().zip(free);
        both.all(|(sum, most)| *sum == 0 || sum <= most)
    }

    /// How many more pods that ask this fit.
    pub(super) fn room(&self, asked: &[i64], free: &[i64]) -> usize {
        let each = self.sum.iter().zip(asked).zip(free);
        let each = each.filter(|((_, amount), _)| **amount > 0);
        let room = each.map(|((sum, amount), most)| most.saturating_sub(*sum).max(0) / amount);
        usize::try_from(room.min().unwrap_or(i64::MAX)).unwrap_or(usize::MAX)
    }

    pub(super) fn pods_of(&self, problem: &Problem, counter: TallyIndex) -> i64 {
        let feeds = |lot: LotIndex| problem.lots[lot].asks.feeds.contains(&counter);
        let counts = self.counts.iter().filter(|(lot, _)| feeds(*lot));
        counts.map(|(_, count)| signed(*count)).sum()
    }
}

impl<'p> Draft<'p> {
    pub(super) fn new(problem: &'p Problem) -> Draft<'p> {
        let empty = Load::empty(problem);
        let counters = problem.counters.iter();
        Draft {
            problem,
            machines: IndexVec::default(),
            fixed: problem.fixed.with_each(empty),
            limits: RemainingLimits::of(problem),
            left: problem.lots.iter().map(|lot| lot.count).collect(),
            pods: counters.clone().map(|tally| tally.pods.clone()).collect(),
            places: counters.clone().map(|tally| tally.places.clone()).collect(),
            totals: counters.map(|tally| tally.pods.iter().sum()).collect(),
            steps: Vec::new(),
            undo: Vec::new(),
        }
    }

    pub(super) fn mark(&self) -> UndoIndex {
        UndoIndex(self.undo.len())
    }

    /// Takes back what was done since a mark.
    pub(super) fn rollback(&mut self, mark: UndoIndex) {
        while self.mark() > mark {
            match self.undo.pop() {
                Some(Undo::Fixed(at, load)) => self.fixed[at] = load,
                Some(Undo::Machine(at, machine)) => {
                    self.unbook(at);
                    self.machines[at] = machine;
                    self.rebook(at);
                }
                Some(Undo::Made) => {
                    if let Some(last) = self.machines.last_index() {
                        self.unbook(last);
                        self.machines.truncate(last);
                    }
                }
                Some(Undo::Pods(counter, domain, count)) => {
                    self.pods[counter][domain] -= count;
                }
                Some(Undo::Total(counter, count)) => self.totals[counter] -= count,
                Some(Undo::Place(counter, domain)) => self.places[counter][domain] -= 1,
                Some(Undo::Left(lot, left)) => self.left[lot] = left,
                Some(Undo::Step(0)) => {
                    self.steps.pop();
                }
                Some(Undo::Step(count)) => {
                    if let Some(last) = self.steps.last_mut() {
                        last.count -= count;
                    }
                }
                None => return,
            }
        }
    }

    /// Keeps a machine as it is, for taking back what is done to it.
    pub(super) fn save(&mut self, at: DraftMachineIndex) {
        self.undo.push(Undo::Machine(at, self.machines[at].clone()));
    }

    pub(super) fn unbook(&mut self, at: DraftMachineIndex) {
        if let Some((option, site)) = self.machines[at].bound {
            self.limits.give(self.problem, option, site);
        }
    }

    fn rebook(&mut self, at: DraftMachineIndex) {
        if let Some((option, site)) = self.machines[at].bound {
            self.limits.take(self.problem, option, site);
        }
    }

    /// A machine with nothing on it.
    pub(super) fn make(&mut self) -> DraftMachineIndex {
        let options = self.problem.options.len();
        let made = self.machines.push(DraftMachine {
            load: Load::empty(self.problem),
            options: LaunchOptionSet::all(options),
            class: None,
            bound: None,
        });
        self.undo.push(Undo::Made);
        made
    }

    /// Puts pods of a lot on a place or, where there is none, on a new machine, which may then be of these
    /// options. Returns where. `None` where something is against it, and all is as it was.
    pub(super) fn put(
        &mut self,
        lot: LotIndex,
        count: usize,
        spot: Spot,
        menu: &LaunchOptionSet,
    ) -> Option<To> {
        let mark = self.mark();
        if self.may(lot, spot) < count {
            return None;
        }
        let to = match spot.to {
            Some(To::Fixed(at)) => self.put_fixed(at, lot, count),
            Some(To::Machine(at)) => self.put_machine(at, lot, count, spot.class, menu),
            None => {
                let at = self.make();
                self.put_machine(at, lot, count, spot.class, menu)
            }
        };
        match to {
            Some(to) => {
                self.undo.push(Undo::Left(lot, self.left[lot]));
                self.left[lot] -= count;
                self.note(lot, to, count);
            }
            None => self.rollback(mark),
        }
        to
    }

    fn note(&mut self, lot: LotIndex, to: To, count: usize) {
        match self.steps.last_mut() {
            Some(last) if last.lot == lot && last.to == to => {
                last.count += count;
                self.undo.push(Undo::Step(count));
            }
            _ => {
                self.steps.push(Placement { lot, to, count });
                self.undo.push(Undo::Step(0));
            }
        }
    }

    fn put_fixed(&mut self, at: FixedIndex, lot: LotIndex, count: usize) -> Option<To> {
        let place = &self.problem.fixed[at];
        let room = self.fixed[at].room(&self.problem.lots[lot].asked, &place.free);
        if !place.may[lot] || room < count || self.apart(&self.fixed[at], lot, count) {
            return None;
        }
        self.undo.push(Undo::Fixed(at, self.fixed[at].clone()));
        self.fixed[at].add(self.problem, lot, count);
        for counter in &self.problem.lots[lot].asks.feeds {
            if place.counts[*counter] {
                let domain = place.domains[self.problem.counters[*counter].key];
                self.count(*counter, domain, signed(count));
            }
        }
        Some(To::Fixed(at))
    }

    /// Whether host ports keep pods of a lot off a load, or from each other.
    fn apart(&self, load: &Load, lot: LotIndex, count: usize) -> bool {
        let apart = &self.problem.lots[lot].apart;
        (apart[lot] && count > 1) || load.counts.iter().any(|(other, _)| apart[*other])
    }

    fn put_machine(
        &mut self,
        at: DraftMachineIndex,
        lot: LotIndex,
        count: usize,
        class: Option<LaunchOptionClassIndex>,
        menu: &LaunchOptionSet,
    ) -> Option<To> {
        if self.apart(&self.machines[at].load, lot, count) {
            return None;
        }
        self.save(at);
        let problem = self.problem;
        let machine = &mut self.machines[at];
        machine.load.add(problem, lot, count);
        machine.options.intersect(&problem.lots[lot].may);
        let settles = machine.class.is_none() && class.is_some();
        if settles && let Some(class) = class {
            machine.class = Some(class);
            machine.options.intersect(&problem.classes[class].options);
        }
        let mut options = std::mem::take(&mut machine.options);
        for option in options.clone().iter() {
            if !machine.load.within(&problem.options[option].free) {
                options.remove(option);
            }
        }
        let fits = options.meets(menu);
        machine.options = options;
        if !fits {
            return None;
        }
        if settles {
            self.settle(at);
        }
        self.count_on(at, lot, count);
        let bound = self.machines[at].bound;
        let holds = bound.is_some_and(|(option, _)| self.machines[at].options.has(option));
        (holds || self.bind(at)).then_some(To::Machine(at))
    }

    /// A machine is of a class from now on: it is a place of the class's domains, and what is on it counts
    /// there.
    fn settle(&mut self, at: DraftMachineIndex) {
        let Some(class) = self.machines[at].class else {
            return;
        };
        let class = &self.problem.classes[class];
        for (counter, tally) in self.problem.counters.indexed() {
            let domain = class.domains[tally.key];
            if domain >= FRESH || !class.counts[counter] {
                continue;
            }
            if tally.spreads {
                *self.places[counter].get_or_grow(domain) += 1;
                self.undo.push(Undo::Place(counter, domain));
            }
            if class.daemons[counter] > 0 {
                self.count(counter, domain, class.daemons[counter]);
            }
        }
    }

    fn count_on(&mut self, at: DraftMachineIndex, lot: LotIndex, count: usize) {
        let problem = self.problem;
        for counter in &problem.lots[lot].asks.feeds {
            let domain = match self.machines[at].class {
                Some(class) if !problem.classes[class].counts[*counter] => continue,
                Some(class) => problem.classes[class].domains[problem.counters[*counter].key],
                None => FRESH,
            };
            self.count(*counter, domain, signed(count));
        }
    }

    pub(super) fn count(&mut self, counter: TallyIndex, domain: DomainId, count: i64) {
        self.totals[counter] += count;
        self.undo.push(Undo::Total(counter, count));
        if domain < FRESH {
            *self.pods[counter].get_or_grow(domain) += count;
            self.undo.push(Undo::Pods(counter, domain, count));
        }
    }

    /// The plan's rank.
    pub(super) fn rank(&self) -> Rank {
        let problem = self.problem;
        let lots = self.left.iter().zip(&problem.lots);
        let lost = lots.map(|(left, lot)| lot.loss.saturating_mul(*left as u128));
        let pods = |load: &Load| load.counts.iter().map(|(_, count)| count).sum::<usize>();
        let fixed = self.fixed.iter().zip(&problem.fixed);
        let fixed = fixed.map(|(load, fixed)| pods(load) * fixed.tier.0);
        let made = self.machines.iter().filter_map(|machine| {
            let (option, _) = machine.bound?;
            (!machine.load.counts.is_empty()).then_some((machine, &problem.options[option]))
        });
        let lost = lost.fold(0, u128::saturating_add);
        Rank {
            lost,
            // As long as pods have no place, the search is for places.
            uneven: if lost > 0 { 0 } else { self.uneven() },
            weight_loss: made
                .clone()
                .map(|(machine, option)| pods(&machine.load) * option.tier.0)
                .chain(fixed)
                .sum(),
            price: made
                .clone()
                .map(|(_, option)| i128::from(option.price))
                .sum(),
            machines: made.clone().count(),
            unrequested: made.map(|(_, option)| u64::from(option.unrequested)).sum(),
        }
    }

    /// Whether no more of any lot are left out than may be.
    pub(super) fn is_fair(&self) -> bool {
        let mut lots = self.left.iter().zip(&self.problem.lots);
        lots.all(|(left, lot)| *left <= lot.spare)
    }

    /// Takes pods off a machine on which nothing but resources and host ports depends.
    pub(super) fn unload(&mut self, at: DraftMachineIndex, replanned: impl Fn(LotIndex) -> bool) {
        self.save(at);
        let problem = self.problem;
        let machine = &mut self.machines[at];
        let counts = machine.load.counts.clone();
        let (away, stay): (Vec<_>, Vec<_>) =
            counts.into_iter().partition(|(lot, _)| replanned(*lot));
        machine.load.counts.clear();
        machine.load.sum.fill(0);
        machine.options = match machine.class {
            Some(class) => problem.classes[class].options.clone(),
            None => LaunchOptionSet::all(problem.options.len()),
        };
        for (lot, count) in stay {
            machine.load.add(problem, lot, count);
            machine.options.intersect(&problem.lots[lot].may);
        }
        for option in machine.options.clone().iter() {
            if !machine.load.within(&problem.options[option].free) {
                machine.options.remove(option);
            }
        }
        for (lot, count) in away {
            self.undo.push(Undo::Left(lot, self.left[lot]));
            self.left[lot] += count;
        }
        if self.machines[at].load.counts.is_empty() {
            self.unbook(at);
            self.machines[at].bound = None;
        }
    }

    /// Nothing that was done so far is taken back any more.
    pub(super) fn commit(&mut self) {
        self.undo.clear();
    }

    /// Which pods are where, those whose places depend on others first, in the order in which they came.
    pub(super) fn steps_in_order(&self) -> Vec<Placement> {
        let tied = |lot: LotIndex| self.problem.lots[lot].tied;
        let of_tied = self.steps.iter().filter(|step| tied(step.lot)).copied();
        let fixed = self.fixed.indexed();
        let fixed = fixed.map(|(at, load)| (To::Fixed(at), load));
        let machines = self.machines.indexed();
        let machines = machines.map(|(at, machine)| (To::Machine(at), &machine.load));
        let loads = fixed.chain(machines);
        let replanned = loads.flat_map(|(to, load)| {
            let counts = load.counts.iter().filter(|(lot, _)| !tied(*lot));
            counts.map(move |(lot, count)| Placement {
                lot: *lot,
                to,
                count: *count,
            })
        });
        of_tied.chain(replanned).collect()
    }

    /// The plan as a [`BetterPlan`].
    pub(super) fn answer(&self) -> BetterPlan {
        let mut index = self.machines.with_each(MadeIndex(usize::MAX));
        let mut made = IndexVec::default();
        for (at, machine) in self.machines.indexed() {
            if let Some((option, site)) = machine.bound.filter(|_| !machine.load.counts.is_empty())
            {
                index[at] = made.push((option, self.problem.options[option].sites[site].offer));
            }
        }
        let steps = self.steps_in_order().into_iter();
        let steps = steps.map(|Placement { lot, to, count }| {
            let to = match to {
                To::Fixed(at) => To::Fixed(at),
                To::Machine(at) => To::Machine(index[at]),
            };
            Placement { lot, to, count }
        });
        BetterPlan {
            made,
            steps: steps.collect(),
        }
    }
}

pub(super) fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
