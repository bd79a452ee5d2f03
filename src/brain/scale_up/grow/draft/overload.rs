//! Searches on where pods have no place although there is room for them in parts: unplaced pods are put on some machine, and
//! two machines at a time share their pods again until none carries more than it can.
//!
//! It computes with amounts alone, on the machines of one plan as they are bound: pods that may not share a machine never do, and
//! rules about zones, and about whose machine a pod is on, may be broken for a while ([`super::domains`]), as machines may carry too much. What comes out is laid out once more by all
//! rules before it counts.

use smallvec::SmallVec;

use super::amounts::ResourceAmounts;
use super::anneal_machines::{self, Wanted};
use super::cheapen::SeededRng;
use super::domains::{ClassedMachine, DomainRules, SharedRule};
use super::movables::{Movable, Movables};
use super::ruin_and_recreate;
use super::state::{Draft, Load};
use super::{Problem, Rank};
use crate::index::{
    DraftMachineIndex, IndexVec, LaunchOptionClassIndex, LaunchOptionIndex, LotIndex, MovableIndex,
};

/// Plans of more pods are left to searches that look at fewer of them at a time.
const MAX_PODS: u64 = 512;
/// How many times the search begins again, and how often two machines share their pods again each time: ten million ways are looked at
/// in each start that finds no place.
const STARTS: usize = 16;
const SHARINGS: usize = 10_000;
/// A start is stuck that never had less excess than this, [`BROKEN_RULE_PARTS`] and more, and that so many sharings made no better. Of 19 starts
/// at questions that have an answer none was: all were below this within 1,400 sharings, and waited for a lower one no longer than 1,100. Where nothing is to
/// be had, the least is reached within 200, and stays.
const STUCK_EXCESS: i64 = 350;
const STUCK_SHARINGS: usize = 2_500;
/// So often two machines share that have no other pods than those which are shared at once: each time all ways are seen.
const WHOLE_SHARINGS: usize = 20;
/// The search ends after so many stuck starts in a row.
const MAX_STUCK_STARTS: usize = 4;
/// The search ends after more than this many attempts that find no machines with enough.
const MAX_VAIN_ATTEMPTS: usize = 4;
/// How many movables of two machines are shared again at once: each of the 1,024 ways is looked at.
const SHARED_MOVABLES: usize = 10;
/// By how many parts of a machine another way of sharing may be worse. Of 72 starts at hard questions without rules 29 were answered with 50,
/// 25 with 100, 34 with 30 and 28 with 15; of 184 at others 45 with 50, 26 with 100, 41 with 30 and 37 with 10.
const MAX_HARM: usize = 50;
/// Parts of a machine that each resource counts of which it carries too much, beside what is too much: better little room is missing in one place
/// than less in each of two. It was 54 of the 184 starts with 40 parts, and 49 with one.
const OVERLOAD_PARTS: i64 = 40;
/// Parts of a machine in which it is counted what is too much.
const MACHINE_PARTS: i64 = 10_000;
/// Parts of a machine that a pod counts which breaks a rule about its topology domain.
const BROKEN_RULE_PARTS: i64 = 200;

/// A plan better than `best` in which every unplaced pod of `start` has a place, if one is found.
pub(super) fn search<'p>(start: &Draft<'p>, best: Rank) -> Option<Draft<'p>> {
    if start.problem.pods() > MAX_PODS {
        return None;
    }
    let mut plan = start.clone();
    plan.drop_empty();
    let unplaceable = ruin_and_recreate::unplaceable(plan.problem);
    let (mut vain, mut seen, mut stuck) = (0, false, 0);
    for attempt in 0..STARTS {
        let mut rng = SeededRng::new(7 + attempt as u64);
        let Some(dealt) = deal(&plan, (attempt, &unplaceable), &mut rng) else {
            vain += 1;
            if vain > MAX_VAIN_ATTEMPTS && !seen {
                break;
            }
            continue;
        };
        seen = true;
        let movables = Movables::of(&dealt, attempt, &unplaceable);
        let Some(mut search) = Overload::new(&dealt, &movables, rng) else {
            continue;
        };
        let mut sharings = SHARINGS;
        if !search.run(&mut sharings) {
            stuck = if search.least < STUCK_EXCESS {
                0
            } else {
                stuck + 1
            };
            if stuck == MAX_STUCK_STARTS {
                break;
            }
            continue;
        }
        if let Some(found) = dealt.with_places(&movables.all, &search.places)
            && found.is_fair()
            && found.rank() < best
        {
            return Some(found);
        }
    }
    None
}

/// The pods of a plan, and those that it has no place for yet, on its machines as they are bound, if so many sharings find a way in which none
/// carries too much. It takes what it needs from `sharings`.
pub(super) fn share_all<'p>(
    dealt: &Draft<'p>,
    unplaceable: &IndexVec<LotIndex, bool>,
    (rng, sharings): (SeededRng, &mut usize),
) -> Option<Draft<'p>> {
    let movables = Movables::of(dealt, 0, unplaceable);
    let mut search = Overload::new(dealt, &movables, rng)?;
    if !search.run(sharings) {
        return None;
    }
    dealt.with_places(&movables.all, &search.places)
}

/// The machines to begin with: those of a plan, or others where those have not enough together. In all attempts but the first,
/// machines whose class no pod has settled yet get a random one. In every other attempt there are as few machines as possible.
/// Further machines use what limits leave. Returns `None` where no machines have enough.
fn deal<'p>(
    plan: &Draft<'p>,
    (attempt, unplaceable): (usize, &IndexVec<LotIndex, bool>),
    rng: &mut SeededRng,
) -> Option<Draft<'p>> {
    let mut dealt = plan.clone();
    if attempt > 0 {
        for at in dealt.machines.indexes() {
            if dealt.machines[at].class.is_none() {
                let class = LaunchOptionClassIndex(rng.below(plan.problem.classes.len()));
                dealt.move_to_class(at, class);
            }
        }
    }
    let wanted = match attempt % 2 {
        0 => Wanted::Enough,
        _ => Wanted::Fewest,
    };
    if !anneal_machines::enlarge(&mut dealt, (wanted, unplaceable), rng) {
        return None;
    }
    let waiting: usize = dealt.left.iter().sum();
    let options = plan.problem.options.len();
    for _ in 0..waiting.min(anneal_machines::MAX_MORE_MACHINES) {
        let begin = rng.below(options);
        let mut around = (0..options).map(|at| LaunchOptionIndex((begin + at) % options));
        if !around.any(|option| dealt.open(option).is_some()) {
            break;
        }
    }
    dealt.commit();
    Some(dealt)
}

struct Overload<'m, 'p> {
    problem: &'p Problem,
    movables: &'m Movables,
    rules: DomainRules,
    machines: IndexVec<DraftMachineIndex, SharingMachine>,
    /// By movable: its machine.
    places: IndexVec<MovableIndex, DraftMachineIndex>,
    /// What all machines carry too much, in parts of each.
    excess: i64,
    /// The least that this was.
    least: i64,
    rng: SeededRng,
}

struct SharingMachine {
    option: LaunchOptionIndex,
    class: LaunchOptionClassIndex,
    size: ResourceAmounts,
    /// What stays there whatever happens.
    stays: Load,
    /// The sum of the requests of all pods on this machine, movable or not.
    sum: ResourceAmounts,
    /// The movables on it.
    on: Vec<MovableIndex>,
}

impl SharingMachine {
    /// Whether it is large enough for what stays on it.
    fn holds_what_stays(&self) -> bool {
        self.stays.within(&self.size)
    }
}

/// Some movables of two machines, and which of them may be where. A bit stands for each of them.
struct Sharing {
    of: SmallVec<[MovableIndex; SHARED_MOVABLES]>,
    /// Those on the second machine now.
    on_second: u32,
    not_first: u32,
    not_second: u32,
    /// By movable: with whom it may not be.
    apart: SmallVec<[u32; SHARED_MOVABLES]>,
}

impl Sharing {
    fn all(&self) -> u32 {
        (1 << self.of.len()) - 1
    }

    /// Whether every pod may be where this way of sharing has it, resources aside.
    fn is_fair(&self, on_second: u32) -> bool {
        let on_first = self.all() & !on_second;
        on_second & self.not_second == 0
            && on_first & self.not_first == 0
            && self.apart.iter().enumerate().all(|(at, apart)| {
                let beside = if on_second >> at & 1 == 1 {
                    on_second
                } else {
                    on_first
                };
                beside & apart == 0
            })
    }
}

/// A resource of which it matters how two machines share.
struct ScarceResource {
    /// What each of the two machines has.
    sizes: [i64; 2],
    /// What each carries.
    sums: [i64; 2],
    /// By movable that is shared: what it asks.
    asked: SmallVec<[i64; SHARED_MOVABLES]>,
}

impl ScarceResource {
    /// What both machines carry too much, in parts of each.
    fn excess(&self) -> i64 {
        excess_of(self.sums[0], self.sizes[0]) + excess_of(self.sums[1], self.sizes[1])
    }

    /// A movable comes to the other machine.
    fn change(&mut self, movable: usize, leaves_second: bool) {
        let asked = self.asked[movable];
        let asked = if leaves_second { -asked } else { asked };
        self.sums[0] = self.sums[0].saturating_sub(asked);
        self.sums[1] = self.sums[1].saturating_add(asked);
    }
}

impl<'m, 'p> Overload<'m, 'p> {
    /// Every unplaced pod is put on some machine. `None` where there is not room enough in all.
    fn new(start: &Draft<'p>, movables: &'m Movables, rng: SeededRng) -> Option<Overload<'m, 'p>> {
        let problem = start.problem;
        let remainders = movables.remainders(start);
        let rules = DomainRules::of(start, movables, &remainders);
        let mut machines = Vec::with_capacity(remainders.len());
        for (machine, stays) in start.machines.iter().zip(remainders) {
            let (option, _) = machine.bound?;
            machines.push(SharingMachine {
                option,
                class: problem.options[option].class,
                size: problem.options[option].free.iter().copied().collect(),
                sum: stays.sum.clone(),
                stays,
                on: Vec::new(),
            });
        }
        let mut search = Overload {
            problem,
            movables,
            rules,
            machines: machines.into(),
            places: movables.all.with_each(DraftMachineIndex(0)),
            excess: 0,
            least: i64::MAX,
            rng,
        };
        if !search.has_room() || !search.machines.iter().all(SharingMachine::holds_what_stays) {
            return None;
        }
        let places = movables.all.iter().map(|movable| {
            let may = |at: &DraftMachineIndex| movable.may.has(search.machines[*at].option);
            movable.start().filter(may)
        });
        let places: IndexVec<MovableIndex, Option<DraftMachineIndex>> = places.collect();
        for (of, place) in places.indexed() {
            if let Some(at) = place {
                search.put(*at, of);
            }
        }
        for (of, _) in places.indexed().filter(|(_, place)| place.is_none()) {
            let able = search
                .machines
                .indexes()
                .filter(|at| search.takes(*at, of, &[]));
            let able: Vec<DraftMachineIndex> = able.collect();
            let at = able.get(search.rng.below(able.len()))?;
            search.put(*at, of);
        }
        let over = search.machines.iter();
        let over = over.map(|machine| excess(machine, &machine.sum));
        search.excess = over.sum::<i64>() + search.rules.all_broken() * BROKEN_RULE_PARTS;
        Some(search)
    }

    /// Whether all machines together have what all pods ask.
    fn has_room(&self) -> bool {
        let mut resources = self.problem.resources();
        resources.all(|resource| {
            let machines = self.machines.iter();
            let room = machines.map(|of| i128::from(of.size[resource].max(0) - of.sum[resource]));
            let all = self.movables.all.iter();
            let asked = all.map(|of| i128::from(of.asked[resource]));
            asked.sum::<i128>() <= room.sum()
        })
    }

    /// Lets machines share again until none carries too much, or that leads nowhere; takes what it does from `sharings`. Returns whether none does.
    fn run(&mut self, sharings: &mut usize) -> bool {
        let mut since = 0;
        while *sharings > 0 {
            if self.excess == 0 || self.machines.len() < 2 || since > self.patience() {
                break;
            }
            *sharings -= 1;
            if let Some((first, second)) = self.choose_two() {
                self.share_anew(first, second);
                since = if self.excess < self.least {
                    0
                } else {
                    since + 1
                };
                self.least = self.least.min(self.excess);
            }
        }
        self.excess == 0
    }

    /// After how many sharings that brought no less excess than ever the start is given up.
    fn patience(&self) -> usize {
        let whole = self.machines.len() == 2 && self.movables.all.len() <= SHARED_MOVABLES;
        if whole {
            WHOLE_SHARINGS
        } else if self.least >= STUCK_EXCESS {
            STUCK_SHARINGS
        } else {
            SHARINGS
        }
    }

    /// Two machines, of which the first one carries too much three times of four.
    fn choose_two(&mut self) -> Option<(DraftMachineIndex, DraftMachineIndex)> {
        let count = self.machines.len();
        let begin = DraftMachineIndex(self.rng.below(count));
        let first = if self.rng.below(4) == 0 {
            begin
        } else {
            let around = (0..count).map(|at| (begin.0 + at) % count);
            let mut around = around.map(DraftMachineIndex);
            let over =
                |at: &DraftMachineIndex| excess(&self.machines[*at], &self.machines[*at].sum) > 0;
            around.find(over).unwrap_or(begin)
        };
        let second = DraftMachineIndex(self.rng.below(count));
        (first != second).then_some((first, second))
    }

    /// Looks at every other way in which two machines can share some of their movables, and takes the best (of equal ones any),
    /// unless it exceeds what they carry too much now by more than a few parts: so the search leaves places that lead nowhere.
    fn share_anew(&mut self, first: DraftMachineIndex, second: DraftMachineIndex) {
        let sharing = self.sharing(first, second);
        let mut rng = std::mem::replace(&mut self.rng, SeededRng::new(0));
        let mut scarce = self.scarce([first, second], &sharing.of);
        let both = [first, second].map(|at| self.classed(at));
        let shared = self.rules.shared(self.problem, &sharing.of, both);
        let broken = |moves: u32| {
            let rules = shared.iter();
            let broken = |rule: &SharedRule| self.rules.broken(rule, sharing.on_second, moves);
            rules.map(broken).sum::<i64>() * BROKEN_RULE_PARTS
        };
        let before = scarce.iter().map(ScarceResource::excess).sum::<i64>() + broken(0);
        let (mut best, mut chosen, mut equals) = (i64::MAX, sharing.on_second, 0);
        let mut on_second = sharing.on_second;
        // Each way differs from the one before it by one movable (a Gray code).
        for step in 1..=sharing.all() {
            let at = step.trailing_zeros() as usize;
            let leaves_second = on_second >> at & 1 == 1;
            on_second ^= 1 << at;
            let mut after = 0;
            for resource in &mut scarce {
                resource.change(at, leaves_second);
                after += resource.excess();
            }
            if after > best || !sharing.is_fair(on_second) {
                continue;
            }
            after += broken(on_second ^ sharing.on_second);
            if after > best {
                continue;
            }
            equals = if after < best { 1 } else { equals + 1 };
            if rng.below(equals) == 0 {
                (best, chosen) = (after, on_second);
            }
        }
        let harm = i64::try_from(rng.below(MAX_HARM + 1)).unwrap_or(0);
        self.rng = rng;
        if best > before.saturating_add(harm) {
            return;
        }
        self.excess += best - before;
        for (at, of) in sharing.of.iter().enumerate() {
            if (chosen ^ sharing.on_second) >> at & 1 == 1 {
                self.remove(*of);
                let to = if chosen >> at & 1 == 1 { second } else { first };
                self.put(to, *of);
            }
        }
    }

    /// The resources of which one of two machines could carry too much, if it had all that both carry.
    fn scarce(
        &self,
        machines: [DraftMachineIndex; 2],
        of: &[MovableIndex],
    ) -> SmallVec<[ScarceResource; 2]> {
        let [first, second] = machines.map(|at| &self.machines[at]);
        let resources = self.problem.resources().filter(|resource| {
            let both = first.sum[*resource].saturating_add(second.sum[*resource]);
            both > first.size[*resource].min(second.size[*resource])
        });
        let scarce = resources.map(|resource| {
            let asked = of.iter().map(|one| self.movables.all[*one].asked[resource]);
            ScarceResource {
                sizes: [first.size[resource], second.size[resource]],
                sums: [first.sum[resource], second.sum[resource]],
                asked: asked.collect(),
            }
        });
        scarce.collect()
    }

    /// Up to [`SHARED_MOVABLES`] movables of two machines, whichever they are.
    fn sharing(&mut self, first: DraftMachineIndex, second: DraftMachineIndex) -> Sharing {
        let mut of: SmallVec<[MovableIndex; 2 * SHARED_MOVABLES]> = SmallVec::new();
        of.extend_from_slice(&self.machines[first].on);
        of.extend_from_slice(&self.machines[second].on);
        let count = of.len().min(SHARED_MOVABLES);
        for at in 0..count {
            let other = at + self.rng.below(of.len() - at);
            of.swap(at, other);
        }
        of.truncate(count);
        let bits = |has: &dyn Fn(MovableIndex) -> bool| {
            let those = of.iter().enumerate().filter(|(_, one)| has(**one));
            those.fold(0_u32, |bits, (at, _)| bits | 1 << at)
        };
        Sharing {
            on_second: bits(&|other| self.places[other] == second),
            not_first: bits(&|other| !self.takes(first, other, &of)),
            not_second: bits(&|other| !self.takes(second, other, &of)),
            apart: of
                .iter()
                .map(|one| bits(&|other| self.are_apart(*one, other)))
                .collect(),
            of: of.iter().copied().collect(),
        }
    }

    /// Whether two movables may not be on one machine.
    fn are_apart(&self, one: MovableIndex, other: MovableIndex) -> bool {
        let all = &self.movables.all;
        let bars = |bar: &Movable, barred: &Movable| {
            let mut lots = bar
                .parts
                .iter()
                .flat_map(|(lot, _)| &self.movables.apart[*lot]);
            lots.any(|lot| has_lot(barred, *lot))
        };
        one != other && (bars(&all[one], &all[other]) || bars(&all[other], &all[one]))
    }

    /// Whether a machine may be that of a movable beside those that stay there when `leave` go, resources aside.
    fn takes(&self, at: DraftMachineIndex, of: MovableIndex, leave: &[MovableIndex]) -> bool {
        let all = &self.movables.all;
        let (machine, movable) = (&self.machines[at], &all[of]);
        let classes = movable.classes.as_ref();
        if !movable.may.has(machine.option)
            || classes.is_some_and(|classes| !classes.contains(&machine.class))
        {
            return false;
        }
        let apart = |lot: LotIndex| {
            let stays = machine
                .on
                .iter()
                .filter(|on| !leave.contains(on) && **on != of);
            machine.stays.count(lot) > self.movables.even[lot]
                || stays.into_iter().any(|on| has_lot(&all[*on], lot))
        };
        let mut lots = movable
            .parts
            .iter()
            .flat_map(|(lot, _)| &self.movables.apart[*lot]);
        !lots.any(|lot| apart(*lot))
    }

    fn classed(&self, at: DraftMachineIndex) -> ClassedMachine {
        let class = self.machines[at].class;
        ClassedMachine { at, class }
    }

    fn remove(&mut self, of: MovableIndex) {
        let at = self.places[of];
        let machine = &mut self.machines[at];
        for (sum, asked) in machine.sum.iter_mut().zip(&self.movables.all[of].asked) {
            *sum = sum.saturating_sub(*asked);
        }
        machine.on.retain(|on| *on != of);
        self.rules.add(self.problem, of, self.classed(at), -1);
    }

    fn put(&mut self, at: DraftMachineIndex, of: MovableIndex) {
        let machine = &mut self.machines[at];
        for (sum, asked) in machine.sum.iter_mut().zip(&self.movables.all[of].asked) {
            *sum = sum.saturating_add(*asked);
        }
        machine.on.push(of);
        self.rules.add(self.problem, of, self.classed(at), 1);
        self.places[of] = at;
    }
}

fn has_lot(movable: &Movable, lot: LotIndex) -> bool {
    movable.parts.iter().any(|(of, _)| *of == lot)
}

/// What a machine would carry too much, in parts of it.
fn excess(machine: &SharingMachine, sum: &ResourceAmounts) -> i64 {
    let over = sum.iter().zip(&machine.size);
    over.map(|(has, size)| excess_of(*has, *size)).sum()
}

/// What is too much of one resource, in parts of what the machine has, and [`OVERLOAD_PARTS`] beside.
fn excess_of(sum: i64, size: i64) -> i64 {
    if sum <= size || sum <= 0 {
        return 0;
    }
    // A sum over all machines is a number still.
    let over = sum.saturating_sub(size).saturating_mul(MACHINE_PARTS);
    (over / size.max(1)).min(i64::MAX / 4096) + OVERLOAD_PARTS
}
