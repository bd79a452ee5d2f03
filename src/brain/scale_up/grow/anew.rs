//! The plan is laid out anew where that places more pods, or as many for less: the first plan opens one machine
//! after the other and settles its type at once; [`super::draft`] keeps machines open until the end.
//!
//! Nobody loses for a price alone: as long as every pod has a place, none comes into a lighter pool or to more unmet
//! preferences about the node than its group had. What comes out is tried in the world, pod by pod; unless that is
//! better the plan stays as it was.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::Grower;
use super::draft::{self, Answer, Problem, Rank, To};
use crate::constraints::shape::{Resident, ShapeId};
use crate::simulation::pack::{self, Lane, Seats};
use crate::simulation::planned::{CreateReason, PlannedMachine};
use crate::simulation::world::{self, Saved};
use model::reasons::Refused;
use model::report::PodVerdict;

/// Plans for more pods, or more groups, stay as they are.
const PODS: usize = 2_000;
const GROUPS: usize = 300;

/// A group whose pods may be laid out anew.
#[derive(Debug)]
pub(super) struct Loose {
    pub(super) group: usize,
    /// The group's pods on machines that are withdrawn, and those without a place: by their number in the group.
    pub(super) pods: Vec<usize>,
    /// How many of `pods` have a place in the plan there is; they come first in it.
    pub(super) placed: usize,
    /// The lightest tier they may be in, and the most of their preferences that may not be met.
    pub(super) tier: usize,
    pub(super) unmet: i64,
}

/// Pods that came to nodes there are, once machines were planned.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) group: usize,
    pub(super) pods: Range<usize>,
    /// Where they went, and how many.
    pub(super) seats: Vec<(usize, usize)>,
    /// What takes it back; nothing does where others were preempted.
    pub(super) undo: Option<Vec<(usize, Saved)>>,
}

/// Where pods of a loose group went.
struct Seat {
    loose: usize,
    bin: usize,
    count: usize,
}

impl Grower<'_, '_, '_, '_> {
    /// Lays the plan out anew, if a better one is found.
    pub(super) fn lay_anew(&mut self) {
        let Some(withdrawn) = self.withdrawable() else {
            return;
        };
        let loose = self.loose(&withdrawn);
        let pods: usize = loose.iter().map(|of| of.pods.len()).sum();
        if pods == 0 || pods > PODS || loose.len() > GROUPS {
            return;
        }
        let mut rank = self.rank(&withdrawn, &loose);
        if !self.turn.view.policy.scale_up.nominate_pods {
            // What a plan costs in the end is more than its price, and is not known of this one.
            rank.price = i128::MAX;
        }
        let visits = std::mem::take(&mut self.visits);
        let visits = self.leave(visits);
        for machine in &withdrawn {
            self.cancel(*machine);
        }
        let question = self.question(&withdrawn, &loose, rank);
        let answer = question.and_then(|(problem, bins)| {
            let answer = self.ask(&problem)?;
            Some((answer, problem, bins))
        });
        let done = answer.is_some_and(|(answer, problem, bins)| {
            self.replace(&withdrawn, &loose, &answer, (&problem, &bins))
        });
        if !done {
            for machine in withdrawn {
                self.confirm(machine);
            }
            self.come_again(visits);
        }
    }

    /// A better plan, if one is found. What found none is not asked again as long as nothing has changed: where
    /// limits leave somebody out for good, every decision would pay for it.
    fn ask(&mut self, problem: &Problem) -> Option<Answer> {
        let digest = problem.digest();
        if self.turn.memory.no_better_plan == Some(digest) {
            return None;
        }
        let answer = draft::solve(problem);
        self.turn.memory.no_better_plan = answer.is_none().then_some(digest);
        answer
    }

    /// The planned machines that may be given up, all their pods being free to go; `None` where nothing is to be
    /// laid out.
    fn withdrawable(&mut self) -> Option<Vec<usize>> {
        let visits = self.visits.iter();
        let mut settled = visits.map(|visit| visit.undo.is_none() || !self.is_loose(visit.group));
        if settled.any(|settled| settled) {
            return None;
        }
        let machines = (0..self.planned.machines.len()).filter(|machine| {
            let planned = &self.planned.machines[*machine];
            let for_pods = matches!(planned.reason, CreateReason::Pods);
            for_pods && planned.groups().all(|group| self.is_loose(group))
        });
        let machines: Vec<usize> = machines.collect();
        let left = (0..self.groups.len())
            .any(|group| self.is_loose(group) && self.groups[group].left() > 0);
        (left || !machines.is_empty()).then_some(machines)
    }

    /// Whether pods of a group may go anywhere as far as their claims are concerned.
    fn is_loose(&self, group: usize) -> bool {
        let need = self.groups[group].need.as_deref();
        need.is_none_or(|need| need.alone.is_empty())
    }

    pub(super) fn tier(&self, choice: usize) -> usize {
        let weight = self.choices[choice].policy.weight;
        let of = |tier: &super::market::Tier| {
            let first = tier.choices.first();
            first.is_some_and(|choice| self.choices[*choice].policy.weight == weight)
        };
        self.market.tiers.iter().position(of).unwrap_or(0)
    }

    fn loose(&self, withdrawn: &[usize]) -> Vec<Loose> {
        let groups = (0..self.groups.len()).filter(|group| self.is_loose(*group));
        let mut all: Vec<Loose> = groups
            .map(|group| Loose {
                group,
                pods: Vec::new(),
                placed: 0,
                tier: 0,
                unmet: 0,
            })
            .collect();
        let at: Vec<usize> = all.iter().map(|loose| loose.group).collect();
        for planned in withdrawn
            .iter()
            .map(|machine| &self.planned.machines[*machine])
        {
            let tier = self.tier(planned.choice);
            for assigned in &planned.assigned {
                let Ok(index) = at.binary_search(&assigned.group) else {
                    continue;
                };
                let unmet = self.unmet(assigned.group, planned.choice, planned.offer);
                let loose = &mut all[index];
                loose.pods.extend(assigned.pods.clone());
                loose.unmet = loose.unmet.max(unmet);
                loose.tier = loose.tier.max(tier);
            }
        }
        for visit in &self.visits {
            if let Ok(index) = at.binary_search(&visit.group) {
                all[index].pods.extend(visit.pods.clone());
            }
        }
        let left = all.iter().any(|loose| self.groups[loose.group].left() > 0);
        for loose in &mut all {
            loose.placed = loose.pods.len();
            // Where somebody has no place, that comes before preferences and weights.
            if left || loose.placed == 0 {
                (loose.tier, loose.unmet) = (usize::MAX, i64::MAX);
            }
            loose.pods.sort_unstable();
            let queue = &self.groups[loose.group];
            loose.pods.extend(queue.next..queue.pods.len());
        }
        all.retain(|loose| !loose.pods.is_empty());
        all
    }

    /// What the plan there is compared by.
    fn rank(&self, withdrawn: &[usize], loose: &[Loose]) -> Rank {
        let losses = self.losses(loose);
        let lost = loose.iter().map(|of| {
            let loss = losses.get(&self.priority(of.group)).copied().unwrap_or(1);
            loss.saturating_mul((of.pods.len() - of.placed) as u128)
        });
        let made = || {
            withdrawn
                .iter()
                .map(|machine| &self.planned.machines[*machine])
        };
        let price = |planned: &PlannedMachine| i128::from(self.choices[planned.choice].price);
        Rank {
            lost: lost.fold(0, u128::saturating_add),
            lighter: made()
                .map(|planned| planned.count() * self.tier(planned.choice))
                .sum(),
            price: made().map(price).sum(),
            machines: withdrawn.len(),
            scarce: made()
                .map(|planned| u64::from(self.scarcity(planned.choice, loose)))
                .sum(),
        }
    }

    /// Pods leave the nodes that they came to.
    fn leave(&mut self, mut visits: Vec<Visit>) -> Vec<Visit> {
        for visit in visits.iter_mut().rev() {
            for (bin, saved) in visit.undo.take().into_iter().flatten().rev() {
                self.world.restore(bin, saved);
            }
            let shape = self.groups[visit.group].shape;
            for (bin, _) in &visit.seats {
                let guests = &mut self.world.bins[*bin].guests;
                if let Some(last) = guests.iter().rposition(|(of, ..)| *of == shape) {
                    guests.remove(last);
                }
            }
        }
        if !visits.is_empty() {
            self.renew_existing();
        }
        visits
    }

    /// Pods come to nodes as they did.
    fn come_again(&mut self, visits: Vec<Visit>) {
        for visit in visits {
            let shape = self.groups[visit.group].shape;
            let need = self.groups[visit.group].need.clone();
            for (bin, count) in &visit.seats {
                self.world.put(*bin, shape, *count as u64, false);
                self.world.supply(*bin, need.as_deref(), *count as u64);
                let guest = (shape, need.clone(), *count);
                self.world.bins[*bin].guests.push(guest);
            }
        }
    }

    fn renew_existing(&mut self) {
        let bins = (0..self.existing.len()).map(|position| self.existing.at(position));
        let bins: Vec<usize> = bins.collect();
        self.existing = Lane::over(&bins, self.world);
    }

    /// Takes back what limits were booked for a planned machine, and what volumes its pods took.
    fn cancel(&mut self, machine: usize) {
        let planned = &self.planned.machines[machine];
        let choice = &self.choices[planned.choice];
        let offer = &choice.offers[planned.offer];
        self.ledger.unbook(choice, offer, planned.vmid);
        let bin = planned.bin;
        self.world.given.revoke(&self.world.bins[bin].gift);
        self.world.close(bin);
    }

    fn confirm(&mut self, machine: usize) {
        let planned = &self.planned.machines[machine];
        let choice = &self.choices[planned.choice];
        let offer = &choice.offers[planned.offer];
        self.ledger.book(choice, offer, planned.vmid);
        let bin = planned.bin;
        self.world.reopen(bin);
        self.world.given.give(&self.world.bins[bin].gift);
    }

    /// Makes the plan what the answer says, if the world lets it and it is better; says whether it did.
    /// Otherwise all is as it was, the machines withdrawn.
    fn replace(
        &mut self,
        withdrawn: &[usize],
        loose: &[Loose],
        answer: &Answer,
        (problem, bins): (&Problem, &[usize]),
    ) -> bool {
        let all = std::mem::take(&mut self.planned.machines);
        let (mut old, mut kept) = (Vec::new(), Vec::new());
        for (machine, planned) in all.into_iter().enumerate() {
            if withdrawn.contains(&machine) {
                old.push(planned);
            } else {
                kept.push(planned);
            }
        }
        let stay = kept.len();
        self.planned.machines = kept;
        self.number();
        let mut undo = Vec::new();
        let seats = self.lay(loose, answer, (problem, bins), &mut undo);
        let better = |seats: &Vec<Seat>| self.is_better(stay, loose, seats, problem);
        if let Some(seats) = seats.filter(better) {
            self.drop_empty(stay);
            self.tell(loose, &seats);
            self.hand_out(loose, &seats);
            self.renew_existing();
            return true;
        }
        for (bin, saved) in undo.into_iter().rev() {
            self.world.restore(bin, saved);
        }
        for machine in (stay..self.planned.machines.len()).rev() {
            self.cancel(machine);
        }
        self.planned.machines.truncate(stay);
        for (planned, at) in old.into_iter().zip(withdrawn) {
            self.planned.machines.insert(*at, planned);
        }
        self.number();
        false
    }

    /// Numbers the planned machines anew.
    fn number(&mut self) {
        let bins = self.planned.machines.iter().map(|planned| planned.bin);
        let bins: Vec<usize> = bins.collect();
        for (machine, bin) in bins.iter().enumerate() {
            self.world.bins[*bin].site = world::Site::Planned(machine);
        }
        self.planned.lane = Lane::over(&bins, self.world);
    }

    /// Opens the machines of an answer and puts the pods on them, as far as the world lets them. Says how many
    /// pods of which loose group are at which place; `None` where a machine could not be made.
    fn lay(
        &mut self,
        loose: &[Loose],
        answer: &Answer,
        (problem, bins): (&Problem, &[usize]),
        undo: &mut Vec<(usize, Saved)>,
    ) -> Option<Vec<Seat>> {
        let mut opened = vec![None; answer.made.len()];
        let mut seats = Vec::new();
        let mut waiting: Vec<(usize, usize, usize)> = Vec::new();
        for step in &answer.steps {
            let bin = match step.to {
                To::Fixed(at) => bins[at],
                To::Machine(at) => match opened[at] {
                    Some(bin) => bin,
                    None => {
                        let (model, offer) = answer.made[at];
                        let choice = problem.models[model].choice;
                        let bin = self.open(choice, offer, CreateReason::Pods).ok()?;
                        opened[at] = Some(bin);
                        bin
                    }
                },
            };
            let count = self.put_some(loose[step.lot].group, bin, step.count, undo);
            if count > 0 {
                seats.push(Seat {
                    loose: step.lot,
                    bin,
                    count,
                });
            }
            if count < step.count {
                waiting.push((step.lot, bin, step.count - count));
            }
        }
        // Others may have opened it since; else any planned machine will do.
        let planned: Vec<usize> = self
            .planned
            .machines
            .iter()
            .map(|planned| planned.bin)
            .collect();
        let mut before = usize::MAX;
        while before != waiting.len() && !waiting.is_empty() {
            before = waiting.len();
            for (lot, bin, count) in std::mem::take(&mut waiting) {
                let mut left = count;
                for bin in [bin].into_iter().chain(planned.iter().copied()) {
                    let some = self.put_some(loose[lot].group, bin, left, undo);
                    if some > 0 {
                        seats.push(Seat {
                            loose: lot,
                            bin,
                            count: some,
                        });
                        left -= some;
                    }
                    if left == 0 {
                        break;
                    }
                }
                if left > 0 {
                    waiting.push((lot, bin, left));
                }
            }
        }
        Some(seats)
    }

    /// Puts up to `count` pods of a group on a place; says how many.
    fn put_some(
        &mut self,
        group: usize,
        bin: usize,
        count: usize,
        undo: &mut Vec<(usize, Saved)>,
    ) -> usize {
        let shape: ShapeId = self.groups[group].shape;
        let need = self.groups[group].need.clone();
        let mut placed = 0;
        while placed < count {
            let rules = self.world.rules(shape);
            self.world.prepare(shape);
            let room = pack::admitted(self.world, shape, need.as_deref(), bin, rules.as_deref());
            let room = usize::try_from(room.unwrap_or(0)).unwrap_or(usize::MAX);
            let some = room.min(count - placed);
            if some == 0 {
                break;
            }
            let mut saved = self.world.save(bin, Resident::of(shape, some as u64));
            self.world.put(bin, shape, some as u64, false);
            saved.with(self.world.supply(bin, need.as_deref(), some as u64));
            undo.push((bin, saved));
            placed += some;
        }
        placed
    }

    /// Whether what was laid out is better than what there was.
    fn is_better(&self, stay: usize, loose: &[Loose], seats: &[Seat], than: &Problem) -> bool {
        let losses = self.losses(loose);
        let mut lost = 0u128;
        for (index, of) in loose.iter().enumerate() {
            let placed = seats.iter().filter(|seat| seat.loose == index);
            let placed: usize = placed.map(|seat| seat.count).sum();
            if of.pods.len() - placed > than.lots[index].spare {
                return false;
            }
            let loss = losses.get(&self.priority(of.group)).copied().unwrap_or(1);
            lost = lost.saturating_add(loss.saturating_mul((of.pods.len() - placed) as u128));
        }
        let used = |planned: &&PlannedMachine| seats.iter().any(|seat| seat.bin == planned.bin);
        let made = || self.planned.machines[stay..].iter().filter(used);
        let pods = |planned: &PlannedMachine| {
            let on = seats.iter().filter(|seat| seat.bin == planned.bin);
            on.map(|seat| seat.count).sum::<usize>()
        };
        let rank = Rank {
            lost,
            lighter: made()
                .map(|planned| pods(planned) * self.tier(planned.choice))
                .sum(),
            price: made()
                .map(|planned| i128::from(self.choices[planned.choice].price))
                .sum(),
            machines: made().count(),
            scarce: made()
                .map(|planned| u64::from(self.scarcity(planned.choice, loose)))
                .sum(),
        };
        rank < than.rank
    }

    /// Machines that nothing came to are not made.
    fn drop_empty(&mut self, stay: usize) {
        for machine in (stay..self.planned.machines.len()).rev() {
            let bin = self.planned.machines[machine].bin;
            let daemons = self.choices[self.planned.machines[machine].choice].offers
                [self.planned.machines[machine].offer]
                .residents
                .len();
            let pods: u64 = self.world.bins[bin].residents.iter().map(|r| r.count).sum();
            if pods <= daemons as u64 {
                self.cancel(machine);
                self.planned.machines.remove(machine);
            }
        }
        self.number();
    }

    /// Says which pods go where, and of those that lost their place why.
    fn hand_out(&mut self, loose: &[Loose], seats: &[Seat]) {
        let mut next = vec![0; loose.len()];
        for seat in seats {
            let of = &loose[seat.loose];
            let pods = &of.pods[next[seat.loose]..next[seat.loose] + seat.count];
            next[seat.loose] += seat.count;
            let site = self.world.bins[seat.bin].site.clone();
            let verdict = match site {
                world::Site::Planned(_) => PodVerdict::Triggers {
                    machine: self.world.bins[seat.bin].name.clone(),
                    others: self.groups[of.group].why.clone(),
                },
                _ => {
                    let group = &self.groups[of.group];
                    let guest = (group.shape, group.need.clone(), seat.count);
                    self.world.bins[seat.bin].guests.push(guest);
                    Seats::free(seat.bin, seat.count).verdict(self.world)
                }
            };
            for pod in pods {
                self.turn.say(self.groups[of.group].pods[*pod], &verdict);
                self.planned.assign(&site, of.group, *pod..pod + 1);
            }
        }
        for (of, placed) in loose.iter().zip(next) {
            let before = self.groups[of.group].next;
            if placed < of.placed {
                let why = self.crowded_out(of.group);
                for pod in &of.pods[placed..of.placed] {
                    let verdict = PodVerdict::Held { why: why.clone() };
                    self.turn.say(self.groups[of.group].pods[*pod], &verdict);
                }
            }
            let queue = &mut self.groups[of.group];
            let kind = &mut self.kinds[queue.kind];
            queue.next = (before + placed).saturating_sub(of.placed);
            kind.left = (kind.left + of.placed).saturating_sub(placed);
        }
    }

    /// Why a group has no place that others took.
    fn crowded_out(&self, group: usize) -> model::reasons::Reasons {
        let row = self.row(group);
        let mut why = (*row.why).clone();
        for (of, _) in self.choices.iter().zip(&row.any).filter(|(_, any)| **any) {
            let refused = self.ledger.admits(self.turn, of).err();
            let refused = refused.unwrap_or(Refused::ForOtherPods);
            why.insert(of.label.clone(), refused.into());
        }
        Arc::new(why)
    }

    /// Why the other choices were not taken, for the verdicts on the pods.
    fn tell(&mut self, loose: &[Loose], seats: &[Seat]) {
        for (index, of) in loose.iter().enumerate() {
            let row = self.row(of.group);
            let mut why = (*row.why).clone();
            let mine = seats.iter().filter(|seat| seat.loose == index);
            let sites = mine.map(|seat| &self.world.bins[seat.bin].site);
            let machines = sites.filter_map(|site| match site {
                world::Site::Planned(machine) => Some(self.planned.machines[*machine].choice),
                _ => None,
            });
            let taken: BTreeSet<usize> = machines.collect();
            for (choice, of) in self.choices.iter().enumerate() {
                if row.any[choice] && !taken.contains(&choice) {
                    let refused = self.ledger.admits(self.turn, of).err();
                    let refused = refused.unwrap_or(Refused::NotCheaper);
                    why.insert(of.label.clone(), refused.into());
                }
            }
            self.groups[of.group].why = Arc::new(why);
        }
    }
}
