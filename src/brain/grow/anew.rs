//! A small plan is laid out anew where that is cheaper, makes fewer machines for the same price, or gives a
//! place to pods that limits left out: the greedy way opens one machine after the other and never sees that two
//! others would do.
//!
//! Nobody loses: as many pods of each group have a place as before, no pod is in a lighter pool than its group
//! was or with more of its wishes about the node unmet, and the heavy pools have as many pods as they had. What
//! comes out is tried in the world, pod by pod; if anything is against it the plan stays as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Grower;
use super::puzzle::{self, Answer, Fixed, Lot, Model, Puzzle, Site};
use crate::brain::births::{Cause, Newborn};
use crate::brain::fit::ports;
use crate::brain::offer::HOSTNAME_LABEL;
use crate::brain::pack::{self, Lane};
use crate::brain::world::{self, Resident, Saved};
use crate::model::report::PodVerdict;
use crate::model::resources::Resources;

/// Plans for more pods stay as they are: what is searched grows much faster than they do, and one machine
/// too many matters less.
const PODS: usize = 32;
/// With more types over all pools than this, hardly a plan would be searched through.
const MODELS: usize = 64;
/// What is said against a choice that could have had a pod.
const NOT_CHEAPER: &str = "no cheaper plan for all pods was found with it";

/// A group whose pods may be laid out anew.
#[derive(Debug)]
struct Loose {
    group: usize,
    /// Its pods on machines that are withdrawn, and those without a place: by their number in the group.
    pods: Vec<usize>,
    /// So many of them have a place.
    placed: usize,
    /// The lightest tier they are in, and the most of their wishes that is not met.
    tier: usize,
    unmet: i64,
}

impl<'a> Grower<'_, '_, '_, 'a> {
    /// Lays a small plan out anew, if a better one is found.
    pub(super) fn lay_anew(&mut self) {
        let Some(withdrawn) = self.withdrawable() else {
            return;
        };
        let loose = self.loose(&withdrawn);
        let names = self.resources(&loose);
        for birth in withdrawn.iter().rev() {
            self.cancel(*birth);
        }
        let puzzle = self.puzzle(&withdrawn, &loose, &names);
        let answer = puzzle.filter(|puzzle| puzzle.models.len() <= MODELS);
        let answer = answer.and_then(|puzzle| Some((puzzle::solve(&puzzle)?, puzzle)));
        let done = answer.is_some_and(|(answer, puzzle)| {
            self.replace(&withdrawn, &loose, &answer, &puzzle.models)
        });
        if !done {
            for birth in withdrawn {
                self.confirm(birth);
            }
        }
    }

    /// The planned machines that may be given up, all their pods being free to go: none where the plan is
    /// not a small one.
    fn withdrawable(&mut self) -> Option<Vec<usize>> {
        let born = &self.births.born;
        if born.is_empty() || born.len() > PODS {
            return None;
        }
        let planned: usize = born.iter().map(Newborn::count).sum();
        if planned + self.left_over() > PODS || planned == 0 {
            return None;
        }
        let births = (0..born.len()).filter(|birth| {
            let newborn = &self.births.born[*birth];
            let for_pods = matches!(newborn.cause, Cause::Pods);
            for_pods && newborn.groups().all(|group| self.is_loose(group))
        });
        let births: Vec<usize> = births.collect();
        (!births.is_empty()).then_some(births)
    }

    /// Whether pods of a group may go anywhere as far as claims and other pods are concerned, but for
    /// those that may not be on a node together.
    fn is_loose(&self, group: usize) -> bool {
        let group = &self.groups[group];
        group.need.is_none() && self.world.company.loose(group.shape, HOSTNAME_LABEL)
    }

    fn tier(&self, choice: usize) -> usize {
        let weight = self.choices[choice].policy.weight;
        let of = |tier: &super::market::Tier| {
            let first = tier.choices.first();
            first.is_some_and(|choice| self.choices[*choice].policy.weight == weight)
        };
        self.market.tiers.iter().position(of).unwrap_or(0)
    }

    fn loose(&self, withdrawn: &[usize]) -> Vec<Loose> {
        let of = |group: usize| {
            let mut loose = Loose {
                group,
                pods: Vec::new(),
                placed: 0,
                tier: 0,
                unmet: 0,
            };
            for newborn in withdrawn.iter().map(|birth| &self.births.born[*birth]) {
                let cargo = newborn.cargo.iter().filter(|cargo| cargo.group == group);
                for cargo in cargo {
                    loose.pods.extend(cargo.pods.clone());
                    let unmet = self.unmet(group, newborn.choice, newborn.offer);
                    loose.unmet = loose.unmet.max(unmet);
                    loose.tier = loose.tier.max(self.tier(newborn.choice));
                }
            }
            loose.placed = loose.pods.len();
            if loose.placed == 0 {
                (loose.tier, loose.unmet) = (usize::MAX, i64::MAX);
            }
            loose.pods.sort_unstable();
            let queue = &self.groups[group];
            loose.pods.extend(queue.next..queue.pods.len());
            (!loose.pods.is_empty()).then_some(loose)
        };
        let groups = (0..self.groups.len()).filter(|group| self.is_loose(*group));
        groups.filter_map(of).collect()
    }

    /// The resources that matter: CPU, memory, disk and pods, and what else is asked.
    fn resources(&self, loose: &[Loose]) -> Vec<Arc<str>> {
        let asked = loose.iter().map(|loose| self.asked(loose.group));
        let names = asked.flat_map(|asked| asked.extended.keys());
        let names: BTreeSet<&Arc<str>> = names.collect();
        names.into_iter().cloned().collect()
    }

    fn asked(&self, group: usize) -> &'a Resources {
        &self.world.shapes[self.groups[group].shape].shape.requests
    }

    fn puzzle(
        &mut self,
        withdrawn: &[usize],
        loose: &[Loose],
        names: &[Arc<str>],
    ) -> Option<Puzzle> {
        let fixed = self.fixed(withdrawn, loose, names);
        let old = withdrawn.iter().map(|birth| &self.births.born[*birth]);
        let mut heavy = vec![0; self.market.tiers.len()];
        for newborn in old.clone() {
            for pods in &mut heavy[self.tier(newborn.choice)..] {
                *pods += newborn.count();
            }
        }
        let price = old.map(|newborn| i128::from(self.choices[newborn.choice].price));
        let lots = self.lots(loose, names);
        let lost = lots.iter().map(|lot| lot.loss * lot.spare as u128);
        let rank = (lost.sum(), price.sum(), withdrawn.len());
        let spare = self.ledger.spare(self.turn, self.choices);
        let mut models: Vec<Model> = Vec::new();
        for index in 0..self.choices.len() {
            if spare.pools[self.choices[index].pool_slot].machines > 0 {
                models.extend(self.models(index, loose, names));
            }
        }
        models.sort_by_key(|model| (model.price, model.choice));
        (!models.is_empty()).then_some(Puzzle {
            lots,
            models,
            fixed,
            pools: spare.pools,
            total: spare.total,
            hosts: spare.hosts,
            heavy,
            rank,
        })
    }

    fn lots(&self, loose: &[Loose], names: &[Arc<str>]) -> Vec<Lot> {
        let losses = self.losses(loose);
        let lot = |of: &Loose| Lot {
            asked: amounts(self.asked(of.group), names, true),
            count: of.pods.len(),
            spare: of.pods.len() - of.placed,
            loss: losses.get(&self.priority(of.group)).copied().unwrap_or(1),
            apart: loose
                .iter()
                .map(|other| self.apart(of.group, other.group))
                .collect(),
        };
        loose.iter().map(lot).collect()
    }

    /// By priority, what one pod without a place counts: more than all of lower priorities together.
    fn losses(&self, loose: &[Loose]) -> BTreeMap<i32, u128> {
        let mut left: BTreeMap<i32, usize> = BTreeMap::new();
        for of in loose {
            *left.entry(self.priority(of.group)).or_default() += of.pods.len() - of.placed;
        }
        let mut below = 0;
        let losses = left.into_iter().map(|(priority, left)| {
            let loss = below + 1;
            below += loss * left as u128;
            (priority, loss)
        });
        losses.collect()
    }

    fn priority(&self, group: usize) -> i32 {
        self.world.shapes[self.groups[group].shape].shape.priority
    }

    /// Whether no pod of the one group may be on a node with one of the other.
    fn apart(&self, one: usize, other: usize) -> bool {
        let shapes = &self.world.shapes;
        let (one, other) = (
            shapes[self.groups[one].shape],
            shapes[self.groups[other].shape],
        );
        let clash = ports::taken(&one.shape.host_ports, &other.shape.host_ports).is_some();
        let at_odds = self
            .world
            .company
            .at_odds(one, other, |key| key == HOSTNAME_LABEL);
        clash || at_odds.is_some()
    }

    /// A choice, once for each kind of offer it makes.
    fn models(&self, index: usize, loose: &[Loose], names: &[Arc<str>]) -> Vec<Model> {
        let choice = &self.choices[index];
        let tier = self.tier(index);
        let mut models: Vec<Model> = Vec::new();
        for (at, offer) in choice.offers.iter().enumerate() {
            if self.ledger.host_admits(choice, offer).is_err() {
                continue;
            }
            let may = loose.iter().map(|loose| {
                self.row(loose.group).fits[choice.first + at]
                    && tier <= loose.tier
                    && self.unmet(loose.group, index, at) <= loose.unmet
            });
            let may: Vec<bool> = may.collect();
            let free = amounts(&offer.free, names, false);
            let site = Site {
                offer: at,
                host: offer.host_slot,
            };
            let mut known = models.iter_mut();
            if let Some(known) = known.find(|model| model.free == free && model.may == may) {
                known.offers.push(site);
            } else if may.contains(&true) {
                models.push(Model {
                    choice: index,
                    offers: vec![site],
                    pool: choice.pool_slot,
                    tier,
                    price: choice.price,
                    free,
                    cpu_milli: i64::from(choice.kind.cores) * 1000,
                    memory: choice.kind.memory,
                    may,
                });
            }
        }
        models
    }

    /// The planned machines that stay.
    fn fixed(&mut self, withdrawn: &[usize], loose: &[Loose], names: &[Arc<str>]) -> Vec<Fixed> {
        let mut fixed = Vec::new();
        for birth in self.staying(withdrawn) {
            let newborn = &self.births.born[birth];
            let (bin, tier) = (newborn.bin, self.tier(newborn.choice));
            let unmet = |group: usize| self.unmet(group, newborn.choice, newborn.offer);
            let nice = loose
                .iter()
                .map(|l| tier <= l.tier && unmet(l.group) <= l.unmet);
            let nice: Vec<bool> = nice.collect();
            let free = amounts(&self.world.bins[bin].free, names, false);
            let both = loose.iter().zip(nice);
            let may = both.map(|(loose, nice)| nice && self.room_on(loose.group, bin) > 0);
            let may = may.collect();
            fixed.push(Fixed { free, tier, may });
        }
        fixed
    }

    fn staying(&self, withdrawn: &[usize]) -> Vec<usize> {
        let all = 0..self.births.born.len();
        all.filter(|birth| !withdrawn.contains(birth)).collect()
    }

    /// How many pods of a group a place takes.
    fn room_on(&mut self, group: usize, bin: usize) -> usize {
        let shape = self.groups[group].shape;
        let rules = self.world.rules(shape);
        self.world.prepare(shape);
        let room = pack::admitted(self.world, shape, None, bin, rules.as_deref());
        usize::try_from(room.unwrap_or(0)).unwrap_or(usize::MAX)
    }

    /// Takes back what limits were booked for a planned machine.
    fn cancel(&mut self, birth: usize) {
        let newborn = &self.births.born[birth];
        let choice = &self.choices[newborn.choice];
        let offer = &choice.offers[newborn.offer];
        self.ledger.unbook(choice, offer, newborn.vmid);
    }

    fn confirm(&mut self, birth: usize) {
        let newborn = &self.births.born[birth];
        let choice = &self.choices[newborn.choice];
        let offer = &choice.offers[newborn.offer];
        self.ledger.book(choice, offer, newborn.vmid);
    }

    /// Makes the plan what the answer says, if the world lets it; says whether it did. Otherwise all is
    /// as it was.
    fn replace(
        &mut self,
        withdrawn: &[usize],
        loose: &[Loose],
        answer: &Answer,
        models: &[Model],
    ) -> bool {
        let all = std::mem::take(&mut self.births.born);
        let (mut old, mut kept) = (Vec::new(), Vec::new());
        for (birth, newborn) in all.into_iter().enumerate() {
            if withdrawn.contains(&birth) {
                self.world.close(newborn.bin);
                old.push(newborn);
            } else {
                kept.push(newborn);
            }
        }
        let stay = kept.len();
        self.births.born = kept;
        self.number();
        let mut undo = Vec::new();
        if let Some(seats) = self.lay(loose, answer, models, &mut undo) {
            self.tell(loose, answer, models);
            self.hand_out(loose, &seats);
            return true;
        }
        for birth in (stay..self.births.born.len()).rev() {
            self.cancel(birth);
            self.world.close(self.births.born[birth].bin);
        }
        for (bin, saved) in undo.into_iter().rev() {
            self.world.restore(bin, saved);
        }
        self.births.born.truncate(stay);
        for (newborn, at) in old.into_iter().zip(withdrawn) {
            self.world.reopen(newborn.bin);
            self.births.born.insert(*at, newborn);
        }
        self.number();
        false
    }

    /// Numbers the planned machines anew.
    fn number(&mut self) {
        let bins = self.births.born.iter().map(|newborn| newborn.bin);
        let bins: Vec<usize> = bins.collect();
        for (birth, bin) in bins.iter().enumerate() {
            self.world.bins[*bin].site = world::Site::Planned(birth);
        }
        self.births.lane = Lane::over(&bins, self.world);
    }

    /// Opens the machines of an answer and puts the pods on them; `None` where something is against it.
    /// Says how many pods of which loose group are at which place.
    fn lay(
        &mut self,
        loose: &[Loose],
        answer: &Answer,
        models: &[Model],
        undo: &mut Vec<(usize, Saved)>,
    ) -> Option<Vec<(usize, usize, usize)>> {
        let stay = self.births.born.iter().map(|newborn| newborn.bin);
        let stay: Vec<usize> = stay.collect();
        let mut wanted: Vec<(usize, &[usize])> = Vec::new();
        for (bin, counts) in stay.into_iter().zip(&answer.added) {
            wanted.push((bin, counts));
        }
        for made in &answer.made {
            let choice = models[made.model].choice;
            let bin = self.open(choice, made.offer, Cause::Pods).ok()?;
            wanted.push((bin, &made.counts));
        }
        let mut seats = Vec::new();
        for (bin, counts) in wanted {
            for (index, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                let group = loose[index].group;
                if self.room_on(group, bin) < *count {
                    return None;
                }
                let shape = self.groups[group].shape;
                let pods = Resident::of(shape, *count as u64);
                undo.push((bin, self.world.save(bin, pods)));
                self.world.put(bin, shape, *count as u64, false);
                seats.push((index, bin, *count));
            }
        }
        Some(seats)
    }

    /// Says which pods go where.
    fn hand_out(&mut self, loose: &[Loose], seats: &[(usize, usize, usize)]) {
        let mut next = vec![0; loose.len()];
        for (index, bin, count) in seats {
            let group = loose[*index].group;
            let verdict = PodVerdict::Triggers {
                machine: self.world.bins[*bin].name.clone(),
                others: self.groups[group].why.clone(),
            };
            for pod in &loose[*index].pods[next[*index]..next[*index] + count] {
                self.turn.say(self.groups[group].pods[*pod], &verdict);
                let site = &self.world.bins[*bin].site;
                self.births.carry(site, group, *pod..pod + 1);
            }
            next[*index] += count;
        }
        for (of, placed) in loose.iter().zip(next) {
            let more = placed - of.placed;
            let queue = &mut self.groups[of.group];
            queue.next += more;
            self.kinds[queue.kind].left -= more;
        }
    }

    /// Why the other choices were not taken, for the verdicts on the pods.
    fn tell(&mut self, loose: &[Loose], answer: &Answer, models: &[Model]) {
        for (index, of) in loose.iter().enumerate() {
            let row = self.row(of.group);
            let mut why = (*row.why).clone();
            let made = answer.made.iter().filter(|made| made.counts[index] > 0);
            let taken: BTreeSet<usize> = made.map(|made| models[made.model].choice).collect();
            for (choice, of) in self.choices.iter().enumerate() {
                if row.any[choice] && !taken.contains(&choice) {
                    let refused = self.ledger.admits(self.turn, of).err();
                    let text = refused.unwrap_or_else(|| NOT_CHEAPER.to_owned());
                    why.insert(of.label.clone(), text);
                }
            }
            self.groups[of.group].why = Arc::new(why);
        }
    }
}

/// What a group asks or an offer has, by resource.
fn amounts(of: &Resources, names: &[Arc<str>], asked: bool) -> Vec<i64> {
    let pods = if asked { 1 } else { of.pods };
    let fixed = [of.cpu_milli, of.memory, of.ephemeral, pods];
    let extended = names.iter().map(|name| of.get(name));
    let all = fixed.into_iter().chain(extended);
    all.map(|amount| if asked { amount.max(0) } else { amount })
        .collect()
}
