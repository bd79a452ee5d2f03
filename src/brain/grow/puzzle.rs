//! A small plan as numbers, searched through for a better one: which pods share a machine, of which type and
//! on which host each is made. Branch and bound, within a fixed number of steps; it knows nothing but what
//! is in here, and whoever asked tries its answer in the world before anything comes of it.
//!
//! Pods are dealt out one by one, the largest first: onto a machine that stays as it is, to a load that
//! others share, to a load of their own, or nowhere, where the plan there is left some out too. A load is priced by
//! the cheapest model that holds it, which only rises as pods are added; limits are asked when all are dealt.

use super::rates::{self, Rate};
use crate::brain::limits::{Allowance, HostSpare};

/// So many steps are searched, a few milliseconds. Of small worlds that could be told from the best by hand half
/// need one, nine in ten fewer than a hundred; eight times as many steps found two better plans in 4,000.
const STEPS: usize = 5_000;

/// Pods of one group.
#[derive(Debug)]
pub(super) struct Lot {
    /// What one asks, by resource: CPU, memory, disk, pods, others; never negative.
    pub(super) asked: Vec<i64>,
    pub(super) count: usize,
    /// How many may be left without a place.
    pub(super) spare: usize,
    /// What it counts to leave one out: more than all of a lower priority together.
    pub(super) loss: u128,
    /// By lot: it may not share a machine with one of those.
    pub(super) apart: Vec<bool>,
}

/// A machine that could be made: a choice on hosts where it offers the same.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) choice: usize,
    pub(super) offers: Vec<Site>,
    pub(super) pool: usize,
    pub(super) tier: usize,
    pub(super) price: i64,
    pub(super) free: Vec<i64>,
    /// What it takes of limits.
    pub(super) cpu_milli: i64,
    pub(super) memory: i64,
    /// By lot: whether such a pod may be there.
    pub(super) may: Vec<bool>,
}

/// Where a model can be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    pub(super) offer: usize,
    pub(super) host: usize,
}

/// A planned machine that stays as it is.
#[derive(Debug)]
pub(super) struct Fixed {
    pub(super) free: Vec<i64>,
    pub(super) tier: usize,
    pub(super) may: Vec<bool>,
}

/// What a plan is compared by: who has no place, what it costs, how many machines it makes.
pub(super) type Rank = (u128, i128, usize);

/// The question.
#[derive(Debug)]
pub(super) struct Puzzle {
    pub(super) lots: Vec<Lot>,
    /// The cheapest first.
    pub(super) models: Vec<Model>,
    pub(super) fixed: Vec<Fixed>,
    pub(super) pools: Vec<Allowance>,
    /// Over all pools.
    pub(super) total: Allowance,
    /// In the order of their names.
    pub(super) hosts: Vec<HostSpare>,
    /// By tier: so many pods at least on machines of it and of heavier ones.
    pub(super) heavy: Vec<usize>,
    /// The plan there is: only a better one is an answer.
    pub(super) rank: Rank,
}

/// A better plan.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) made: Vec<Made>,
    /// By fixed machine: how many pods of which lot come to it.
    pub(super) added: Vec<Vec<usize>>,
}

/// A machine of it.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) model: usize,
    pub(super) offer: usize,
    /// By lot.
    pub(super) counts: Vec<usize>,
}

/// Pods that share a machine.
#[derive(Clone, Debug)]
struct Load {
    sum: Vec<i64>,
    counts: Vec<usize>,
    /// The cheapest model that holds them; those before it do not.
    model: usize,
    /// By rate.
    worth: Vec<i128>,
}

struct Solver<'p> {
    puzzle: &'p Puzzle,
    rates: Vec<Rate>,
    /// All prices are multiples of it.
    grain: i128,
    /// The lot of every pod, in the order in which they are dealt.
    pods: Vec<usize>,
    /// By rate: what the pods from this one on are worth.
    rest: Vec<Vec<i128>>,
    fixed: Vec<Load>,
    loads: Vec<Load>,
    left: Vec<usize>,
    lost: u128,
    best: Rank,
    answer: Option<Answer>,
    steps: usize,
}

/// A plan better than the one there is, if one is found.
pub(super) fn solve(puzzle: &Puzzle) -> Option<Answer> {
    let mut solver = Solver::new(puzzle);
    solver.deal(0, 0);
    solver.answer
}

impl<'p> Solver<'p> {
    fn new(puzzle: &'p Puzzle) -> Solver<'p> {
        let rates = rates::of(puzzle);
        let worth = |lot: usize| -> Vec<i128> {
            let asked = &puzzle.lots[lot].asked;
            rates.iter().map(|rate| rate.worth(asked)).collect()
        };
        let mut order: Vec<usize> = (0..puzzle.lots.len()).collect();
        order.sort_by_cached_key(|lot| std::cmp::Reverse(worth(*lot)));
        let lots = order.into_iter();
        let pods: Vec<usize> = lots
            .flat_map(|lot| std::iter::repeat_n(lot, puzzle.lots[lot].count))
            .collect();
        let mut rest = vec![vec![0; rates.len()]];
        for lot in pods.iter().rev() {
            let after = rest.last().into_iter().flatten();
            let with = after.zip(worth(*lot)).map(|(sum, worth)| sum + worth);
            let with = with.collect();
            rest.push(with);
        }
        rest.reverse();
        let empty = |_: &Fixed| Load::empty(puzzle, rates.len());
        Solver {
            puzzle,
            grain: rates::grain(puzzle),
            pods,
            rest,
            fixed: puzzle.fixed.iter().map(empty).collect(),
            loads: Vec::new(),
            left: vec![0; puzzle.lots.len()],
            lost: 0,
            best: puzzle.rank,
            answer: None,
            steps: STEPS,
            rates,
        }
    }

    /// Deals out the pods from `next` on. Alike pods go to places in their order: `from` is where the one
    /// before went, if it is alike.
    fn deal(&mut self, next: usize, from: usize) {
        if self.steps == 0 || self.hopeless(next) {
            return;
        }
        self.steps -= 1;
        let Some(lot) = self.pods.get(next).copied() else {
            return self.settle();
        };
        let first = |place: usize, solver: &Self| {
            let alike = solver.pods.get(next + 1) == Some(&lot);
            if alike { place } else { 0 }
        };
        for place in from..self.fixed.len() {
            if let Some(load) = self.onto_fixed(place, lot) {
                let before = std::mem::replace(&mut self.fixed[place], load);
                self.deal(next + 1, first(place, self));
                self.fixed[place] = before;
            }
        }
        let fixed = self.fixed.len();
        for at in from.saturating_sub(fixed)..self.loads.len() {
            let twin = |other: &Load| other.counts == self.loads[at].counts;
            if self.loads[..at].iter().any(twin) {
                continue;
            }
            if let Some(load) = self.joined(&self.loads[at], lot) {
                let before = std::mem::replace(&mut self.loads[at], load);
                self.deal(next + 1, first(fixed + at, self));
                self.loads[at] = before;
            }
        }
        let machines = self.puzzle.total.machines;
        if u64::try_from(self.loads.len()).is_ok_and(|made| made < machines)
            && let Some(load) = self.joined(&Load::empty(self.puzzle, self.rates.len()), lot)
        {
            self.loads.push(load);
            self.deal(next + 1, first(fixed + self.loads.len() - 1, self));
            self.loads.pop();
        }
        if self.left[lot] < self.puzzle.lots[lot].spare {
            self.left[lot] += 1;
            self.lost += self.puzzle.lots[lot].loss;
            // Those that follow are alike: they are left out too.
            self.deal(next + 1, first(usize::MAX, self));
            self.lost -= self.puzzle.lots[lot].loss;
            self.left[lot] -= 1;
        }
    }

    /// A load with one pod more, if some model holds it.
    fn joined(&self, load: &Load, lot: usize) -> Option<Load> {
        let mut with = self.with(load, lot)?;
        let models = &self.puzzle.models[with.model..];
        with.model += models.iter().position(|model| with.fits(model))?;
        Some(with)
    }

    fn onto_fixed(&self, place: usize, lot: usize) -> Option<Load> {
        let fixed = &self.puzzle.fixed[place];
        let load = self
            .with(&self.fixed[place], lot)
            .filter(|_| fixed.may[lot])?;
        load.within(&fixed.free).then_some(load)
    }

    /// A load with one pod more, if the others let it in.
    fn with(&self, load: &Load, lot: usize) -> Option<Load> {
        let pod = &self.puzzle.lots[lot];
        let mut both = pod.apart.iter().zip(&load.counts);
        if both.any(|(apart, count)| *apart && *count > 0) {
            return None;
        }
        let mut load = load.clone();
        load.counts[lot] += 1;
        for (sum, asked) in load.sum.iter_mut().zip(&pod.asked) {
            *sum = sum.saturating_add(*asked);
        }
        for (worth, rate) in load.worth.iter_mut().zip(&self.rates) {
            *worth += rate.worth(&pod.asked);
        }
        Some(load)
    }

    /// Whether nothing better can come of the pods that are dealt, whatever becomes of those from `next` on.
    fn hopeless(&self, next: usize) -> bool {
        if self.lost != self.best.0 {
            return self.lost > self.best.0;
        }
        let models = &self.puzzle.models;
        let price = |load: &Load| i128::from(models[load.model].price);
        let paid: i128 = self.loads.iter().map(price).sum();
        let mut least = paid;
        for (index, rate) in self.rates.iter().enumerate() {
            let loads = self.loads.iter();
            let room = loads.map(|load| {
                let most = price(load).saturating_mul(rates::WHOLE);
                most.saturating_sub(load.worth[index]).max(0)
            });
            let fixed = self.fixed.iter().zip(&self.puzzle.fixed);
            let fixed = fixed.map(|(load, fixed)| {
                let free = rate.worth(&fixed.free);
                free.saturating_sub(load.worth[index]).max(0)
            });
            let room = room.chain(fixed).fold(0, i128::saturating_add);
            let more = self.rest[next][index].saturating_sub(room).max(0);
            let more = more.div_euclid(rates::WHOLE) + i128::from(more % rates::WHOLE > 0);
            least = least.max(paid.saturating_add(more));
        }
        least = rates::round_up(least, self.grain);
        (least, self.fewest(next)) >= (self.best.1, self.best.2)
    }

    /// At least so many machines there will be.
    fn fewest(&self, next: usize) -> usize {
        let loads = self.loads.len();
        let more = self.rates.iter().enumerate().map(|(index, rate)| {
            if rate.most <= 0 {
                return 0;
            }
            let room = self.loads.iter().map(|load| rate.most - load.worth[index]);
            let fixed = self.fixed.iter().zip(&self.puzzle.fixed);
            let fixed = fixed.map(|(load, fixed)| rate.worth(&fixed.free) - load.worth[index]);
            let room: i128 = room.chain(fixed).map(|room| room.max(0)).sum();
            let rest = (self.rest[next][index] - room).max(0);
            usize::try_from((rest + rate.most - 1) / rate.most).unwrap_or(usize::MAX)
        });
        loads.saturating_add(more.max().unwrap_or(0))
    }

    /// All pods are dealt: looks for models and hosts that limits let pass.
    fn settle(&mut self) {
        let mut books = Books {
            pools: self.puzzle.pools.clone(),
            total: self.puzzle.total.clone(),
            hosts: self.puzzle.hosts.clone(),
            made: Vec::new(),
            price: 0,
        };
        self.make(&mut books);
    }

    /// Finds a model and a host for the next load.
    fn make(&mut self, books: &mut Books) {
        let (puzzle, at) = (self.puzzle, books.made.len());
        let price = |load: &Load| i128::from(puzzle.models[load.model].price);
        let least = books.price + self.loads[at..].iter().map(price).sum::<i128>();
        if self.steps == 0 || (self.lost, least, self.loads.len()) >= self.best {
            return;
        }
        self.steps -= 1;
        if at == self.loads.len() {
            if self.heavy_enough(books) {
                self.best = (self.lost, books.price, self.loads.len());
                self.answer = Some(Answer {
                    made: books.made.clone(),
                    added: self.fixed.iter().map(|load| load.counts.clone()).collect(),
                });
            }
            return;
        }
        for index in self.loads[at].model..puzzle.models.len() {
            let model = &puzzle.models[index];
            if !self.loads[at].fits(model) || !books.admit(model) {
                continue;
            }
            for site in books.sites(model) {
                books.book(model, index, site, self.loads[at].counts.clone());
                self.make(books);
                books.unbook(model, site);
            }
        }
    }

    /// Whether as many pods are on heavy pools as before.
    fn heavy_enough(&self, books: &Books) -> bool {
        let count = |counts: &[usize]| counts.iter().sum::<usize>();
        let made = books.made.iter();
        let made = made.map(|made| (self.puzzle.models[made.model].tier, count(&made.counts)));
        let fixed = self.fixed.iter().zip(&self.puzzle.fixed);
        let fixed = fixed.map(|(load, fixed)| (fixed.tier, count(&load.counts)));
        let pods: Vec<(usize, usize)> = made.chain(fixed).collect();
        let on = |tier: usize| {
            let of = pods.iter().filter(|(of, _)| *of <= tier);
            of.map(|(_, count)| count).sum::<usize>()
        };
        let heavy = self.puzzle.heavy.iter().enumerate();
        heavy.into_iter().all(|(tier, least)| on(tier) >= *least)
    }
}

impl Load {
    fn empty(puzzle: &Puzzle, rates: usize) -> Load {
        Load {
            sum: vec![0; puzzle.lots.first().map_or(0, |lot| lot.asked.len())],
            counts: vec![0; puzzle.lots.len()],
            model: 0,
            worth: vec![0; rates],
        }
    }

    fn fits(&self, model: &Model) -> bool {
        let mut lots = self.counts.iter().zip(&model.may);
        self.within(&model.free) && lots.all(|(count, may)| *count == 0 || *may)
    }

    /// Nothing of a resource fits everywhere, as kube-scheduler has it.
    fn within(&self, free: &[i64]) -> bool {
        let mut both = self.sum.iter().zip(free);
        both.all(|(sum, free)| *sum == 0 || sum <= free)
    }
}

/// What limits leave while models are chosen.
struct Books {
    pools: Vec<Allowance>,
    total: Allowance,
    hosts: Vec<HostSpare>,
    made: Vec<Made>,
    price: i128,
}

impl Allowance {
    fn admits(&self, model: &Model) -> bool {
        self.machines > 0 && model.cpu_milli <= self.cpu_milli && model.memory <= self.memory
    }

    fn take(&mut self, model: &Model) {
        self.machines -= 1;
        // What is configured is no reason to panic, however absurd.
        self.cpu_milli = self.cpu_milli.saturating_sub(model.cpu_milli);
        self.memory = self.memory.saturating_sub(model.memory);
    }

    fn give(&mut self, model: &Model) {
        self.machines += 1;
        self.cpu_milli = self.cpu_milli.saturating_add(model.cpu_milli);
        self.memory = self.memory.saturating_add(model.memory);
    }
}

impl Books {
    fn admit(&self, model: &Model) -> bool {
        self.total.admits(model) && self.pools[model.pool].admits(model)
    }

    /// The hosts that have room, in the order in which the plan would take them: fewest machines of the
    /// pool, most free memory, name.
    fn sites(&self, model: &Model) -> Vec<Site> {
        let rank = |site: &Site| {
            let host = &self.hosts[site.host];
            (host.machines[model.pool], -host.memory, site.host)
        };
        let offers = model.offers.iter().copied();
        let mut sites: Vec<Site> = offers
            .filter(|site| self.hosts[site.host].memory >= model.memory)
            .collect();
        sites.sort_by_key(rank);
        sites
    }

    fn book(&mut self, model: &Model, index: usize, site: Site, counts: Vec<usize>) {
        self.pools[model.pool].take(model);
        self.total.take(model);
        self.hosts[site.host].memory -= model.memory;
        self.hosts[site.host].machines[model.pool] += 1;
        self.price += i128::from(model.price);
        self.made.push(Made {
            model: index,
            offer: site.offer,
            counts,
        });
    }

    fn unbook(&mut self, model: &Model, site: Site) {
        self.pools[model.pool].give(model);
        self.total.give(model);
        self.hosts[site.host].memory += model.memory;
        self.hosts[site.host].machines[model.pool] -= 1;
        self.price -= i128::from(model.price);
        self.made.pop();
    }
}
