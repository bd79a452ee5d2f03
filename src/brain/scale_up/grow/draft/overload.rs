//! Searches on where somebody has no place although there is room for them in parts: whoever waits is put somewhere, and
//! pods change places between two machines at a time until none carries more than it can.
//!
//! It computes with amounts alone, on the machines of one plan as they are bound: who may not share a machine never does, and
//! who is counted in a zone stays there, but machines carry too much for a while. What comes out is laid out once more by all
//! rules before it counts.

use smallvec::SmallVec;

use super::cheapen::Dice;
use super::movables::{Movable, Movables};
use super::state::{Draft, Load, ResourceAmounts};
use super::{Problem, Rank};

/// Plans of more pods are left to searches that look at fewer of them at a time.
const PODS: u64 = 512;
/// How many times the search begins anew, and of how many changes of place it thinks each time: some 50 ms.
const STARTS: usize = 4;
const CHANGES: usize = 400_000;
/// On more machines than these a change takes longer to think of, so that fewer are.
const MACHINES: usize = 24;
/// Parts of a machine in which it is counted what is too much.
const PARTS: i64 = 10_000;
/// By how many such parts a change may make things worse in the beginning; less and less as the search goes on.
const HARM: usize = 300;
/// How many pods go from the machine of the first one beside it, and how many come back, by turns.
const SHAPES: [(usize, usize); 8] = [
    (0, 0),
    (0, 1),
    (0, 1),
    (0, 1),
    (0, 2),
    (1, 1),
    (1, 2),
    (1, 1),
];

/// A plan better than `best` in which everybody has a place who waits in `start`, if one is found.
pub(super) fn search<'p>(start: &Draft<'p>, best: Rank) -> Option<Draft<'p>> {
    if start.problem.pods() > PODS {
        return None;
    }
    let mut start = start.clone();
    start.drop_empty();
    for attempt in 0..STARTS {
        let movables = Movables::of(&start, attempt);
        let Some(mut search) = Overload::new(&start, &movables, attempt) else {
            continue;
        };
        if !search.run() {
            continue;
        }
        if let Some(found) = start.with_places(&movables.all, &search.places)
            && found.is_fair()
            && found.rank() < best
        {
            return Some(found);
        }
    }
    None
}

struct Overload<'m> {
    movables: &'m Movables,
    machines: Vec<ExchangingMachine>,
    /// By movable: its machine.
    places: Vec<usize>,
    /// What all machines carry too much, in parts of each.
    excess: i64,
    dice: Dice,
}

struct ExchangingMachine {
    model: usize,
    class: usize,
    size: ResourceAmounts,
    /// What stays there whatever happens.
    stays: Load,
    /// The sum of the requests of all pods on this machine, movable or not.
    sum: ResourceAmounts,
    /// The movables on it.
    on: Vec<usize>,
}

/// A few movables.
type Few = SmallVec<[usize; 2]>;

/// Movables that leave one machine for another, and those that come back.
struct MachineExchange {
    from: usize,
    to: usize,
    go: Few,
    back: Few,
    /// What both machines carry afterwards.
    after: [ResourceAmounts; 2],
}

impl<'m> Overload<'m> {
    /// Whoever waits is put somewhere. `None` where there is not room enough in all.
    fn new(start: &Draft<'_>, movables: &'m Movables, attempt: usize) -> Option<Overload<'m>> {
        let problem = start.problem;
        let stays = movables.remainders(start);
        let mut machines = Vec::with_capacity(stays.len());
        for (machine, stays) in start.machines.iter().zip(stays) {
            let (model, _) = machine.bound?;
            machines.push(ExchangingMachine {
                model,
                class: problem.models[model].class,
                size: problem.models[model].free.iter().copied().collect(),
                sum: stays.sum.clone(),
                stays,
                on: Vec::new(),
            });
        }
        let mut search = Overload {
            movables,
            machines,
            places: vec![0; movables.all.len()],
            excess: 0,
            dice: Dice::new(7 + attempt as u64),
        };
        search.has_room(problem).then_some(())?;
        let places = movables.all.iter().map(Movable::start);
        let places: Vec<Option<usize>> = places.collect();
        for (of, place) in places.iter().enumerate() {
            if let Some(at) = place {
                search.put(*at, of);
            }
        }
        for (of, _) in places
            .iter()
            .enumerate()
            .filter(|(_, place)| place.is_none())
        {
            let able = (0..search.machines.len()).filter(|at| search.takes(*at, of, &[], &[]));
            let able: Vec<usize> = able.collect();
            let at = able.get(search.dice.below(able.len()))?;
            search.put(*at, of);
        }
        let machines = search.machines.iter();
        search.excess = machines.map(|machine| excess(machine, &machine.sum)).sum();
        Some(search)
    }

    /// Whether all machines together have what all pods ask.
    fn has_room(&self, problem: &Problem) -> bool {
        let resources = problem.lots.first().map_or(0, |lot| lot.asked.len());
        (0..resources).all(|resource| {
            let machines = self.machines.iter();
            let room = machines.map(|of| i128::from(of.size[resource].max(0) - of.sum[resource]));
            let all = self.movables.all.iter();
            let asked = all.map(|of| i128::from(of.asked[resource]));
            asked.sum::<i128>() <= room.sum()
        })
    }

    /// Changes places until no machine carries too much; says whether that is so.
    fn run(&mut self) -> bool {
        if self.machines.len() < 2 {
            return self.excess == 0;
        }
        let changes = CHANGES * MACHINES / self.machines.len().max(MACHINES);
        for step in 0..changes {
            if self.excess == 0 {
                return true;
            }
            let Some(change) = self.think() else { continue };
            let left = (changes - step) * 100 / changes;
            let harm = self.dice.below(HARM * left * left / 10_000 + 1);
            let of = |at: usize, sum: &ResourceAmounts| excess(&self.machines[at], sum);
            let (from, to) = (change.from, change.to);
            let before = of(from, &self.machines[from].sum) + of(to, &self.machines[to].sum);
            let after = of(from, &change.after[0]) + of(to, &change.after[1]);
            if after - before <= i64::try_from(harm).unwrap_or(0) && self.may(&change) {
                self.excess += after - before;
                self.make(change);
            }
        }
        self.excess == 0
    }

    /// Some change of places, every other one from a machine that carries too much.
    fn think(&mut self) -> Option<MachineExchange> {
        let first = if self.dice.below(2) == 0 {
            let begin = self.dice.below(self.machines.len());
            let around = (0..self.machines.len()).map(|at| (begin + at) % self.machines.len());
            let too_much = |at: &usize| excess(&self.machines[*at], &self.machines[*at].sum) > 0;
            let at = around.clone().find(too_much)?;
            one(&mut self.dice, &self.machines[at].on)?
        } else {
            self.dice.below(self.places.len())
        };
        let from = self.places[first];
        let to = self.dice.below(self.machines.len());
        if from == to {
            return None;
        }
        let (more, less) = SHAPES[self.dice.below(SHAPES.len())];
        let (mut go, mut back): (Few, Few) = (SmallVec::new(), SmallVec::new());
        go.push(first);
        for (at, count, list) in [(from, more, &mut go), (to, less, &mut back)] {
            for _ in 0..count {
                let other = one(&mut self.dice, &self.machines[at].on);
                if let Some(other) = other.filter(|other| !list.contains(other)) {
                    list.push(other);
                }
            }
        }
        let mut after = [
            self.machines[from].sum.clone(),
            self.machines[to].sum.clone(),
        ];
        for (list, here, there) in [(&go, 0, 1), (&back, 1, 0)] {
            for of in list {
                for (resource, asked) in self.movables.all[*of].asked.iter().enumerate() {
                    after[here][resource] -= asked;
                    after[there][resource] += asked;
                }
            }
        }
        Some(MachineExchange {
            from,
            to,
            go,
            back,
            after,
        })
    }

    /// Whether both machines may be those of all who come.
    fn may(&self, change: &MachineExchange) -> bool {
        let (go, back) = (&change.go, &change.back);
        go.iter().all(|of| self.takes(change.to, *of, back, go))
            && back.iter().all(|of| self.takes(change.from, *of, go, back))
    }

    /// Whether a machine may be that of a movable beside those that stay there and those that come with it, resources
    /// aside.
    fn takes(&self, at: usize, of: usize, leave: &[usize], come: &[usize]) -> bool {
        let all = &self.movables.all;
        let (machine, movable) = (&self.machines[at], &all[of]);
        let classes = movable.classes.as_ref();
        if !movable.may.has(machine.model)
            || classes.is_some_and(|classes| !classes.contains(&machine.class))
        {
            return false;
        }
        movable.parts.iter().all(|(lot, _)| {
            self.movables.apart[*lot].iter().all(|other| {
                let has = |of: &usize| has_lot(&all[*of], *other);
                let stay = machine
                    .on
                    .iter()
                    .filter(|on| !leave.contains(on) && **on != of);
                let mut beside = stay.chain(come.iter().filter(|come| **come != of));
                machine.stays.count(*other) == 0 && !beside.any(has)
            })
        })
    }

    fn make(&mut self, change: MachineExchange) {
        let [from, to] = change.after;
        self.machines[change.from].sum = from;
        self.machines[change.to].sum = to;
        for (list, here, there) in [
            (change.go, change.from, change.to),
            (change.back, change.to, change.from),
        ] {
            for of in list {
                self.machines[here].on.retain(|on| *on != of);
                self.machines[there].on.push(of);
                self.places[of] = there;
            }
        }
    }

    fn put(&mut self, at: usize, of: usize) {
        let machine = &mut self.machines[at];
        for (sum, asked) in machine.sum.iter_mut().zip(&self.movables.all[of].asked) {
            *sum = sum.saturating_add(*asked);
        }
        machine.on.push(of);
        self.places[of] = at;
    }
}

fn has_lot(movable: &Movable, lot: usize) -> bool {
    movable.parts.iter().any(|(of, _)| *of == lot)
}

/// One of some, if there are any.
fn one(dice: &mut Dice, of: &[usize]) -> Option<usize> {
    of.get(dice.below(of.len())).copied()
}

/// What a machine would carry too much, in parts of it.
fn excess(machine: &ExchangingMachine, sum: &ResourceAmounts) -> i64 {
    let over = sum.iter().zip(&machine.size).map(|(sum, size)| {
        let over = i128::from(sum - size) * i128::from(PARTS);
        if *sum <= *size || *sum <= 0 {
            return 0;
        }
        // However little it is, it is too much.
        i64::try_from(over / i128::from((*size).max(1))).unwrap_or(i64::MAX / 64) + 1
    });
    over.sum()
}
