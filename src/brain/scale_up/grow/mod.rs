//! New machines: for pools below their `min`, and for pods that fit nowhere.
//!
//! Greedy: the first group in order (priority, then whether every pod needs a node of its own, then
//! size) opens a node of the choice that carries most for its price, other groups fill it up, the same
//! node is opened as often as it pays, and so on. Weight comes before price. A planned machine may
//! still become a larger one, and in the end becomes the cheapest that holds what was put on it. A plan
//! for a few pods is then searched for a better one.
//! Limits are booked as it goes.

mod anew;
mod choose;
pub(crate) mod domains;
mod draft;
mod larger;
mod market;
mod min;
mod preferences;
mod question;
mod refusals;
mod regions;
mod retype;
mod rows;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use model::cluster::PodKey;
use model::reasons::{Misfit, Reasons, Refused, Warning};
use model::report::PodVerdict;
use model::resources::Resources;
use model::time::Time;

use crate::constraints::fit::volumes::Need;
use crate::constraints::shape::ShapeId;
use crate::decision::asker::Asker;
use crate::decision::turn::Turn;
use crate::scale_up::batch;
use crate::scale_up::limits::Ledger;
use crate::simulation::company::topology::DomainId;
use crate::simulation::company::{Preferences, Rules};
use crate::simulation::demand::Group;
use crate::simulation::offer::{self, Choice};
use crate::simulation::pack::{self, Lane, Seats, Why};
use crate::simulation::planned::{CreateReason, PlannedMachines};
use crate::simulation::work;
use crate::simulation::world::World;
use anew::Visit;
use market::Market;
use refusals::Refusals;
use rows::{Row, Rows};

/// Pods of one group that still need a place.
#[derive(Debug)]
struct Queue<'a> {
    shape: ShapeId,
    need: Option<Arc<Need>>,
    pods: Vec<Asker<'a>>,
    /// The pods before this one have a place.
    next: usize,
    /// What the offers say to it.
    row: usize,
    /// Index of its [`Kind`] among the [`Grower`]'s.
    kind: usize,
    /// Other pods matter to it.
    dependent: bool,
    /// What it prefers of the company of others.
    preferences: Option<Arc<Preferences>>,
    /// Every pod needs a node of its own.
    alone: bool,
    /// Why choices were not taken, for its verdicts.
    why: Arc<Why>,
}

/// Groups that follow one another and ask the same of a node.
#[derive(Debug)]
struct Kind<'a> {
    groups: Range<usize>,
    /// What each of their pods asks.
    asked: &'a Resources,
    row: usize,
    alone: bool,
    /// What one pod is worth, in the units of the default price.
    worth: i128,
    /// Pods that still need a place.
    left: usize,
}

/// What one node of an offer would take.
#[derive(Debug)]
struct Pick {
    choice: usize,
    offer: usize,
    /// How many pods of the leading group.
    lead: usize,
    /// The worth of all pods it might take.
    worth: i128,
    /// What is paid for it, preferences that are not met included.
    cost: i128,
    /// The planned machine that grows to this, instead of a new one.
    instead: Option<usize>,
}

struct Grower<'t, 'w, 'c, 'a> {
    turn: &'t mut Turn<'a>,
    world: &'w mut World<'a>,
    choices: &'c [Choice<'a>],
    market: Market,
    groups: Vec<Queue<'a>>,
    kinds: Vec<Kind<'a>>,
    rows: Rows<'a>,
    /// The domain of every offer, by offer and topology key.
    domains: Vec<Vec<DomainId>>,
    ledger: Ledger,
    planned: PlannedMachines,
    /// The places there are: pods put on planned machines may open them to others.
    existing: Lane,
    /// Pods that came to those, once machines were planned.
    visits: Vec<Visit>,
}

/// Plans the machines to make. `groups` are the pods that fit on nothing there is (`existing`).
pub(crate) fn plan<'a>(
    turn: &mut Turn<'a>,
    world: &mut World<'a>,
    choices: &[Choice<'a>],
    groups: Vec<Group<'a>>,
    existing: Lane,
) {
    let ledger = Ledger::of(turn);
    let planned = PlannedMachines::begin();
    let mut grower = Grower {
        turn,
        world,
        choices,
        market: Market::of(choices),
        groups: Vec::new(),
        kinds: Vec::new(),
        rows: Rows::default(),
        domains: Vec::new(),
        ledger,
        planned,
        existing,
        visits: Vec::new(),
    };
    grower.sort_out(groups);
    grower.keep_min();
    if let Some(until) = grower.batched() {
        grower.wait(until);
    } else {
        grower.serve_all();
        grower.shrink_to_fit();
        grower.lay_anew();
        grower.apply_preferences();
    }
    grower.world.company.close();
    let Grower {
        turn,
        planned,
        groups,
        ..
    } = grower;
    planned.finish(turn, choices, |assigned| {
        &groups[assigned.group].pods[assigned.pods.clone()]
    });
}

impl<'a> Grower<'_, '_, '_, 'a> {
    /// Finds out which choice could hold which group; groups that none could hold have no compatible pool.
    fn sort_out(&mut self, groups: Vec<Group<'a>>) {
        for group in groups {
            let index = self.rows.of(self.world, self.choices, &group);
            let row = self.rows.get(index);
            let why = row.why.clone();
            if let Some(verdict) = self.waits(group.pods[0].key, group.need.as_deref()) {
                self.turn.say(group.pods[0], &verdict);
                continue;
            }
            if !row.hopeful() {
                let verdict = if row.known {
                    PodVerdict::NoCompatiblePool { why }
                } else {
                    PodVerdict::Held { why }
                };
                for asker in &group.pods {
                    self.turn.say(*asker, &verdict);
                }
                continue;
            }
            let rules = self.world.rules(group.shape);
            let preferences = self.world.preferences(group.shape, false);
            let ports = &self.world.shapes[group.shape].shape.host_ports;
            self.groups.push(Queue {
                shape: group.shape,
                need: group.need,
                pods: group.pods,
                next: 0,
                row: index,
                kind: 0,
                dependent: rules.is_some(),
                preferences,
                alone: rules.is_some_and(|rules| rules.solitary()) || !ports.is_empty(),
                why,
            });
        }
        let world = &*self.world;
        self.groups.sort_by_cached_key(|group| {
            let shape = world.shapes[group.shape].shape;
            let size = std::cmp::Reverse(offer::price(&shape.requests));
            let rank = (std::cmp::Reverse(shape.priority), !group.alone, size);
            let first = group.pods[0];
            (rank, group.row, first.pod.created, first.key)
        });
        for index in 0..self.groups.len() {
            let group = &self.groups[index];
            let shape = self.world.shapes[group.shape].shape;
            let (row, alone, left) = (group.row, group.alone, group.left());
            let last = self.kinds.last_mut();
            let last = last.filter(|kind| (kind.row, kind.alone) == (row, alone));
            if let Some(kind) = last {
                kind.left += left;
                kind.groups.end = index + 1;
            } else {
                // A pod is worth something even if it asks for nothing.
                let worth = i128::from(offer::price(&shape.requests)).saturating_add(1);
                self.kinds.push(Kind {
                    groups: index..index + 1,
                    asked: &shape.requests,
                    row,
                    alone,
                    worth,
                    left,
                });
            }
            self.groups[index].kind = self.kinds.len() - 1;
        }
    }

    /// The verdict on a pod whose claim is for one pod alone and goes to another.
    fn waits(&self, key: &PodKey, need: Option<&Need>) -> Option<PodVerdict> {
        let why = self.turn.promises.taken(key, need)?;
        let misfit = Box::new(Misfit::Volume { volume: why });
        let refusals = Refused::Misfit { misfit }.into();
        let why = Arc::new(Why::from([("*".into(), refusals)]));
        Some(PodVerdict::Held { why })
    }

    /// Until when the batch is open, if it is.
    fn batched(&mut self) -> Option<Time> {
        let pods = self.groups.iter().flat_map(|group| &group.pods);
        let uids: BTreeSet<Arc<str>> = pods.map(|asker| asker.pod.uid.clone()).collect();
        batch::update(self.turn, uids)
    }

    fn wait(&mut self, until: Time) {
        for group in std::mem::take(&mut self.groups) {
            for asker in group.pods {
                self.turn.say(asker, &PodVerdict::Batched { until });
            }
        }
    }

    /// Opens one machine; says which place it is in the world.
    fn open(&mut self, choice: usize, offer: usize, cause: CreateReason) -> Result<usize, Refused> {
        let chosen = &self.choices[choice];
        let vmid = self
            .ledger
            .vmid(self.turn, &chosen.policy.region)
            .ok_or(Refused::NoFreeVmid)?;
        let (planned, at) = (&mut self.planned, (choice, offer));
        let bin = planned
            .add(self.turn, self.world, self.choices, at, vmid, cause)
            .ok_or(Refused::NoFreeName)?;
        self.ledger.book(chosen, &chosen.offers[offer], vmid);
        Ok(bin)
    }

    /// Serves every group in order. Groups that depend on other pods are tried again as long as
    /// something was placed in between: every round but the last places a pod, so it ends.
    fn serve_all(&mut self) {
        let mut waiting: Vec<usize> = (0..self.groups.len()).collect();
        loop {
            let before = self.left_over();
            let mut refusals = Refusals::default();
            for lead in &waiting {
                self.serve(*lead, &mut refusals);
            }
            let groups = &self.groups;
            waiting.retain(|lead| groups[*lead].dependent && groups[*lead].left() > 0);
            if waiting.is_empty() || self.left_over() == before {
                return;
            }
            if work::used_up(self.turn, self.world, 0) {
                return self.leave_out(&waiting);
            }
        }
    }

    /// These groups are looked at no more in this decision.
    fn leave_out(&mut self, waiting: &[usize]) {
        let why = work::chained();
        for group in waiting.iter().map(|group| &self.groups[*group]) {
            for asker in &group.pods[group.next..] {
                self.turn
                    .say(*asker, &PodVerdict::NoCompatiblePool { why: why.clone() });
            }
        }
    }

    fn left_over(&self) -> usize {
        self.groups.iter().map(Queue::left).sum()
    }

    /// Finds the domains of all offers, where topology keys came into use since.
    fn locate(&mut self) {
        let keys = self.world.company.keys();
        if self.domains.first().is_some_and(|row| row.len() == keys) {
            return;
        }
        let offers = self.choices.iter().flat_map(|choice| &choice.offers);
        let offers: Vec<_> = offers.collect();
        self.domains.resize_with(offers.len(), Vec::new);
        for (offer, row) in offers.iter().zip(&mut self.domains) {
            for key in row.len()..keys {
                row.push(self.world.company.domain(key, &offer.labels));
            }
        }
    }

    /// Places all pods of one group: on planned nodes first, then on new ones. What was planned may have
    /// opened places there are to pods that depend on others: those come before.
    fn serve(&mut self, lead: usize, refusals: &mut Refusals) {
        let group = &self.groups[lead];
        let rules = self.world.rules(group.shape);
        if let Some(asker) = group.pods.get(group.next).copied()
            && let Some(verdict) = self.waits(asker.key, group.need.as_deref())
        {
            return self.turn.say(asker, &verdict);
        }
        self.locate();
        if rules.is_some() && !self.planned.lane.is_empty() {
            self.fill_existing(lead);
        }
        let floor = self.floor(rules.as_deref());
        self.fill(lead, rules.as_deref(), floor);
        while self.groups[lead].left() > 0 {
            let floor = self.floor(rules.as_deref());
            let pick = match self.choose(lead, rules.as_deref(), refusals) {
                Ok(pick) => pick,
                Err((why, held)) => return self.refuse(lead, why, held),
            };
            if let Err(why) = self.realise(lead, &pick, rules.as_deref()) {
                return self.turn.warn(Warning::NotMade {
                    replacement: false,
                    refused: Box::new(why),
                });
            }
            self.fill(lead, rules.as_deref(), floor);
        }
    }

    /// First fit on what is planned, and on the places there are whenever the least domain got one more
    /// than `floor`: then others may take one more too. Every round but the last places a pod.
    fn fill(&mut self, lead: usize, rules: Option<&Rules>, mut floor: Option<i64>) {
        loop {
            if self.floor(rules) > floor {
                self.fill_existing(lead);
            }
            floor = self.floor(rules);
            self.fill_planned(lead);
            if self.groups[lead].left() == 0 || self.floor(rules) <= floor {
                return;
            }
        }
    }

    /// The least that domains have of what a group's pods are spread over.
    fn floor(&self, rules: Option<&Rules>) -> Option<i64> {
        let rules = rules.filter(|rules| rules.loosens())?;
        Some(self.world.company.floor(rules))
    }

    /// First fit on the places there are.
    fn fill_existing(&mut self, lead: usize) {
        let group = &self.groups[lead];
        let (shape, left) = (group.shape, group.left());
        let need = group.need.clone();
        let lane = &mut self.existing;
        let (turn, world) = (&*self.turn, &mut *self.world);
        let mut undo = world.soft.is_empty().then(Vec::new);
        let found = match &mut undo {
            Some(undo) => pack::lay_with_undo(world, shape, need.as_deref(), left, lane, undo)
                .into_iter()
                .map(|(bin, count)| Seats::free(bin, count))
                .collect(),
            None => pack::on_existing(turn, world, shape, need.as_deref(), left, lane),
        };
        if !found.is_empty() {
            let seats: Vec<_> = found.iter().map(|seats| (seats.bin, seats.count)).collect();
            let count: usize = seats.iter().map(|(_, count)| count).sum();
            let next = self.groups[lead].next;
            self.visits.push(Visit {
                group: lead,
                pods: next..next + count,
                seats,
                undo,
            });
        }
        for seats in found {
            let bin = &mut self.world.bins[seats.bin];
            bin.guests.push((shape, need.clone(), seats.count));
            let pods = self.next_pods(lead, seats.count);
            let verdict = seats.verdict(self.world);
            for asker in pods {
                self.turn.say(asker, &verdict);
            }
        }
    }

    /// Takes the next pods of a group off the list.
    fn next_pods(&mut self, group: usize, count: usize) -> Vec<Asker<'a>> {
        let queue = &mut self.groups[group];
        let pods = queue.pods[queue.next..queue.next + count].to_vec();
        queue.next += count;
        self.kinds[queue.kind].left -= count;
        for asker in &pods {
            self.turn.promises.give(asker.key, queue.need.as_deref());
        }
        pods
    }

    fn refuse(&mut self, lead: usize, why: Reasons, held: bool) {
        let group = &self.groups[lead];
        let verdict = if held {
            PodVerdict::Held { why }
        } else {
            PodVerdict::NoCompatiblePool { why }
        };
        for asker in &group.pods[group.next..] {
            self.turn.say(*asker, &verdict);
        }
    }

    /// First fit on the nodes planned so far.
    fn fill_planned(&mut self, lead: usize) {
        let group = &self.groups[lead];
        let (shape, left) = (group.shape, group.left());
        let need = group.need.clone();
        let lane = &mut self.planned.lane;
        for (bin, count) in pack::place(self.world, shape, need.as_deref(), left, lane) {
            self.assign(lead, bin, count);
        }
    }

    /// The next pods of a group go to a planned node.
    fn assign(&mut self, group: usize, bin: usize, count: usize) {
        let first = self.groups[group].next;
        let pods = self.next_pods(group, count);
        let range = first..first + count;
        let verdict = PodVerdict::Triggers {
            machine: self.world.bins[bin].name.clone(),
            others: self.groups[group].why.clone(),
        };
        for asker in &pods {
            self.turn.say(*asker, &verdict);
        }
        self.planned
            .assign(&self.world.bins[bin].site, group, range);
    }

    /// Opens what was picked, again and again as long as the same filling goes in.
    fn realise(&mut self, lead: usize, pick: &Pick, rules: Option<&Rules>) -> Result<(), Refused> {
        let fill = self.filling(lead, pick);
        let mut offer = pick.offer;
        loop {
            let bin = match pick.instead {
                Some(machine) => self.enlarge(machine, pick.choice, offer),
                None => self.open(pick.choice, offer, CreateReason::Pods)?,
            };
            for (group, count) in &fill {
                let id = self.groups[*group].shape;
                self.world.put(bin, id, *count as u64, false);
                let need = self.groups[*group].need.as_deref();
                self.world.supply(bin, need, *count as u64);
                self.assign(*group, bin, *count);
            }
            let loosened = rules.is_some_and(Rules::loosens);
            if loosened || pick.instead.is_some() {
                return Ok(());
            }
            match self.next_offer(pick, &fill, rules) {
                Some(next) => offer = next,
                None => return Ok(()),
            }
        }
    }

    /// Where the same filling goes in once more, if anywhere.
    fn next_offer(
        &self,
        pick: &Pick,
        fill: &[(usize, usize)],
        rules: Option<&Rules>,
    ) -> Option<usize> {
        let enough = |(group, count): &(usize, usize)| self.groups[*group].left() >= *count;
        // Each takes other volumes.
        let waits = |(group, _): &(usize, usize)| {
            let need = self.groups[*group].need.as_deref();
            need.is_some_and(|need| !need.waiting.is_empty())
        };
        if !fill.iter().all(enough) || fill.iter().any(waits) {
            return None;
        }
        let choice = &self.choices[pick.choice];
        self.ledger.pool_admits(self.turn, choice).ok()?;
        self.ledger.type_admits(choice, None).ok()?;
        let (lead, count) = *fill.first()?;
        let (next, _) = self.host(pick.choice, Some((lead, rules))).ok()?;
        let fits = |(group, _): &(usize, usize)| self.row(*group).fits[choice.first + next];
        let may = rules.map_or(usize::MAX, |rules| self.may(rules, pick.choice, next));
        if self.rather_elsewhere(pick.choice, next, (lead, rules)) {
            return None;
        }
        let same = choice.offers[next].free == choice.offers[pick.offer].free;
        (same && may >= count && fill.iter().all(fits)).then_some(next)
    }

    fn row(&self, group: usize) -> &Row {
        self.rows.get(self.groups[group].row)
    }
}

impl Queue<'_> {
    /// How many pods still need a place.
    fn left(&self) -> usize {
        self.pods.len() - self.next
    }
}
