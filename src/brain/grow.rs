//! New machines: for pools below their `min`, and for pods that fit nowhere.
//!
//! Greedy: the first group in order (priority, then size) opens a node of the choice that carries
//! most for its price, other groups fill it up, the same node is opened as often as it pays, and so
//! on. Weight comes before price. Limits are booked as it goes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::report::{Hold, PodVerdict, Reasons};
use crate::model::resources::Resources;
use crate::model::scheduling::HostPort;

use super::batch;
use super::births::{Births, Cause};
use super::company::Rules;
use super::company::topology::DomainId;
use super::demand::Group;
use super::fit::{self, NEW, amounts, volumes};
use super::limits::Ledger;
use super::offer::{self, Choice};
use super::pack::{self, Why};
use super::turn::Turn;
use super::view::Standing;
use super::world::World;

/// Which offers an empty node of would hold a pod of a group, by choice and offer.
type Fits = Vec<Vec<bool>>;

/// What one node of a choice would take.
struct Pick {
    choice: usize,
    offer: usize,
    /// How many pods of which group.
    fill: Vec<(usize, usize)>,
    /// The worth of those pods, in the units of the default price.
    worth: i128,
}

/// Why no machine is made somewhere.
enum No {
    /// A limit, a hold, a host that is full: that may change.
    Held(String),
    /// Other pods forbid it.
    Misfit(String),
}

impl No {
    fn text(self) -> String {
        match self {
            No::Held(text) | No::Misfit(text) => text,
        }
    }
}

struct Grower<'t, 'w, 'c, 'a> {
    turn: &'t mut Turn<'a>,
    world: &'w mut World<'a>,
    choices: &'c [Choice<'a>],
    groups: Vec<Group<'a>>,
    fits: Vec<Fits>,
    /// Why a choice does not hold a pod of the group at all.
    whys: Vec<Why>,
    /// Whether other pods matter to a group.
    dependent: Vec<bool>,
    /// The domain of every offer, by choice, offer and topology key.
    domains: Vec<Vec<Vec<DomainId>>>,
    ledger: Ledger,
    births: Births,
}

/// Plans the machines to make. `groups` are the pods that fit on nothing there is.
pub(super) fn plan<'a>(
    turn: &mut Turn<'a>,
    world: &mut World<'a>,
    choices: &[Choice<'a>],
    groups: Vec<Group<'a>>,
) {
    let ledger = Ledger::of(turn);
    let births = Births::begin(turn);
    let mut grower = Grower {
        turn,
        world,
        choices,
        groups: Vec::new(),
        fits: Vec::new(),
        whys: Vec::new(),
        dependent: Vec::new(),
        domains: Vec::new(),
        ledger,
        births,
    };
    grower.sort_out(groups);
    grower.keep_min();
    if let Some(until) = grower.batched() {
        grower.wait(until);
    } else {
        grower.serve_all();
    }
    let Grower { turn, births, .. } = grower;
    births.finish(turn);
}

impl<'a> Grower<'_, '_, '_, 'a> {
    /// Finds out which choice could hold which group; groups that none could are hopeless.
    fn sort_out(&mut self, groups: Vec<Group<'a>>) {
        let mut sorted: Vec<(Group<'a>, Fits, Why)> = Vec::new();
        for group in groups {
            let (fits, why, known) = self.examine(&group);
            if fits.iter().flatten().any(|fits| *fits) {
                sorted.push((group, fits, why));
                continue;
            }
            let why: Reasons = Arc::new(why);
            let verdict = if known {
                PodVerdict::Hopeless { why }
            } else {
                PodVerdict::Held { why }
            };
            self.say(&group, &verdict);
        }
        let world = &*self.world;
        sorted.sort_by_key(|(group, _, _)| {
            let shape = world.shapes[group.shape].shape;
            let first = group.pods[0];
            let size = std::cmp::Reverse(offer::price(&shape.requests));
            let rank = (std::cmp::Reverse(shape.priority), size);
            (rank, first.pod.created, first.key)
        });
        for (group, fits, why) in sorted {
            let dependent = self.world.rules(group.shape).is_some();
            self.dependent.push(dependent);
            self.groups.push(group);
            self.fits.push(fits);
            self.whys.push(why);
        }
    }

    /// Which offers hold a pod of the group, why the others do not, and whether every choice could
    /// be judged.
    fn examine(&self, group: &Group<'_>) -> (Fits, Why, bool) {
        let shape = self.world.shapes[group.shape].shape;
        let (mut fits, mut why, mut known) = (Vec::new(), Why::new(), !self.choices.is_empty());
        for choice in self.choices {
            let mut misfit = None;
            let row: Vec<bool> = choice
                .offers
                .iter()
                .map(|offer| {
                    let found = choice.misfit(offer, shape).or_else(|| {
                        let need = group.need.as_deref()?;
                        volumes::misfit(need, NEW, &offer.labels, true)
                    });
                    let fits = found.is_none();
                    misfit = misfit.take().or(found);
                    fits
                })
                .collect();
            if row.is_empty() {
                known = false;
                why.insert(
                    choice.label.clone(),
                    format!(
                        "the region {} shows no host that the pool may use",
                        choice.policy.region
                    ),
                );
            } else if !row.contains(&true)
                && let Some(misfit) = misfit
            {
                why.insert(choice.label.clone(), misfit.to_string());
            }
            fits.push(row);
        }
        if self.choices.is_empty() {
            why.insert("*".into(), "no pool is configured".to_owned());
            known = true;
        }
        (fits, why, known)
    }

    fn say(&mut self, group: &Group<'a>, verdict: &PodVerdict) {
        for asker in &group.pods {
            self.turn.say(*asker, verdict);
        }
    }

    /// Until when the batch is open, if it is.
    fn batched(&mut self) -> Option<crate::model::time::Time> {
        let uids: BTreeSet<Arc<str>> = self
            .groups
            .iter()
            .flat_map(|group| group.pods.iter().map(|asker| asker.pod.uid.clone()))
            .collect();
        batch::update(self.turn, uids)
    }

    fn wait(&mut self, until: crate::model::time::Time) {
        for group in std::mem::take(&mut self.groups) {
            self.say(&group, &PodVerdict::Batched { until });
        }
    }

    /// Opens machines for pools that have less than their `min`.
    fn keep_min(&mut self) {
        let policy = self.turn.view.policy;
        for (name, pool) in &policy.pools {
            let have = self
                .turn
                .view
                .machines
                .values()
                .filter(|known| known.pool_name() == &**name)
                .filter(|known| matches!(known.standing, Standing::Up | Standing::Coming))
                .count();
            let have = u32::try_from(have).unwrap_or(u32::MAX);
            for _ in have..pool.min {
                if let Err(why) = self.open_cheapest(name, have, pool.min) {
                    self.turn.report.holds.push(Hold {
                        scope: format!("pool {name}"),
                        why: format!("it has {have} nodes, its min is {}, but {why}", pool.min),
                        until: None,
                    });
                    break;
                }
            }
        }
    }

    fn open_cheapest(&mut self, pool: &Arc<str>, have: u32, min: u32) -> Result<(), String> {
        let mut order: Vec<usize> = (0..self.choices.len())
            .filter(|index| self.choices[*index].pool == pool)
            .collect();
        order.sort_by_key(|index| (self.choices[*index].price, *index));
        let mut refusal = None;
        for index in order {
            let choice = &self.choices[index];
            let found = self
                .ledger
                .admits(self.turn, choice)
                .map_err(No::Held)
                .and_then(|()| self.host(index, None, None));
            match found {
                Ok(offer) => {
                    return self
                        .open(index, offer, Cause::Min { have, min })
                        .map(|_| ());
                }
                Err(why) => refusal = refusal.or(Some(why.text())),
            }
        }
        Err(refusal.unwrap_or_else(|| "it has no instance type".to_owned()))
    }

    /// The host for one more machine of a choice: the one with the fewest of the pool, then the
    /// most free memory, then by name.
    fn host(
        &self,
        choice: usize,
        group: Option<usize>,
        rules: Option<&Rules>,
    ) -> Result<usize, No> {
        let chosen = &self.choices[choice];
        let mut refusal: Option<No> = None;
        let mut best = None;
        for (index, offer) in chosen.offers.iter().enumerate() {
            if group.is_some_and(|group| !self.fits[group][choice][index]) {
                continue;
            }
            let misfit = rules.and_then(|rules| {
                let at = |key| self.domains[choice][index][key];
                self.world.company.misfit(rules, at)
            });
            let verdict = match misfit {
                Some(misfit) => Err(No::Misfit(misfit.to_string())),
                None => self
                    .ledger
                    .host_admits(self.turn, chosen, offer)
                    .map_err(No::Held),
            };
            if let Err(why) = verdict {
                // What may change by itself is said before what may not.
                if refusal.is_none() || matches!(why, No::Held(_)) {
                    refusal = Some(why);
                }
                continue;
            }
            let free = self.ledger.free_memory(self.turn, chosen, offer);
            let rank = (
                self.ledger.on_host(chosen, offer),
                std::cmp::Reverse(free),
                offer.host,
            );
            if best.as_ref().is_none_or(|(other, _)| rank < *other) {
                best = Some((rank, index));
            }
        }
        best.map(|(_, index)| index).ok_or_else(|| {
            refusal.unwrap_or_else(|| No::Held("no host of its region may be used".to_owned()))
        })
    }

    /// Opens one machine; says which place it is in the world.
    fn open(&mut self, choice: usize, offer: usize, cause: Cause) -> Result<usize, String> {
        let chosen = &self.choices[choice];
        let at = &chosen.offers[offer];
        let vmid = self
            .ledger
            .vmid(self.turn, &chosen.policy.region)
            .ok_or_else(|| "no VMID is free".to_owned())?;
        let birth = self
            .births
            .add(self.turn, chosen, at, vmid, cause)
            .ok_or_else(|| "no unused name was found".to_owned())?;
        self.ledger.book(chosen, at, vmid);
        Ok(self.births.place(self.world, chosen, at, birth))
    }

    /// Serves every group in order. Groups that depend on other pods are tried again as long as
    /// something was placed in between: every round but the last places a pod, so it ends.
    fn serve_all(&mut self) {
        let mut waiting: Vec<usize> = (0..self.groups.len()).collect();
        loop {
            let count = |grower: &Self| grower.groups.iter().map(|g| g.pods.len()).sum::<usize>();
            let before = count(self);
            for lead in &waiting {
                self.serve(*lead);
            }
            waiting.retain(|lead| {
                let group = &self.groups[*lead];
                !group.pods.is_empty() && self.world.rules(group.shape).is_some()
            });
            if waiting.is_empty() || count(self) == before {
                return;
            }
        }
    }

    /// Finds the domains of all offers, where topology keys came into use since.
    fn locate(&mut self) {
        let keys = self.world.company.keys();
        let choices = self.choices;
        self.domains.resize_with(choices.len(), Vec::new);
        for (choice, rows) in choices.iter().zip(&mut self.domains) {
            rows.resize_with(choice.offers.len(), Vec::new);
            for (offer, row) in choice.offers.iter().zip(rows) {
                for key in row.len()..keys {
                    row.push(self.world.company.domain(key, &offer.labels));
                }
            }
        }
    }

    /// Places all pods of one group: on planned nodes first, then on new ones.
    fn serve(&mut self, lead: usize) {
        self.locate();
        let rules = self.world.rules(self.groups[lead].shape);
        self.fill_planned(lead);
        while !self.groups[lead].pods.is_empty() {
            let pick = match self.choose(lead, rules.as_deref()) {
                Ok(pick) => pick,
                Err((mut why, held)) => {
                    why.extend(self.whys[lead].clone());
                    let group = self.groups[lead].clone();
                    let why = Arc::new(why);
                    let verdict = if held {
                        PodVerdict::Held { why }
                    } else {
                        PodVerdict::Hopeless { why }
                    };
                    return self.say(&group, &verdict);
                }
            };
            if self.open_filled(&pick, rules.is_some()).is_err() {
                return;
            }
            if rules.is_some() {
                self.fill_planned(lead);
            }
        }
    }

    /// First fit on the nodes planned so far.
    fn fill_planned(&mut self, lead: usize) {
        let lane = &mut self.births.lane;
        for (bin, count) in pack::place(self.world, &self.groups[lead], lane) {
            self.assign(lead, bin, count);
        }
    }

    /// Takes the next pods of a group off the list: they go to a planned node.
    fn assign(&mut self, group: usize, bin: usize, count: usize) {
        let pods: Vec<_> = self.groups[group].pods.drain(..count).collect();
        let machine = self.world.bins[bin].name.clone();
        let others: Reasons = Arc::new(self.whys[group].clone());
        let verdict = PodVerdict::Triggers { machine, others };
        for asker in &pods {
            self.turn.say(*asker, &verdict);
        }
        let keys = pods.iter().map(|asker| asker.key.clone());
        self.births.carry(&self.world.bins[bin].site, keys);
    }

    /// The choice to open for a group: of the heaviest pools that may, the one that carries most
    /// for its price.
    ///
    /// Otherwise says why not, and whether that can change without other pods changing.
    fn choose(&mut self, lead: usize, rules: Option<&Rules>) -> Result<Pick, (Why, bool)> {
        let (mut why, mut held) = (Why::new(), false);
        let mut tiers: BTreeMap<std::cmp::Reverse<i32>, Vec<(usize, usize)>> = BTreeMap::new();
        for (index, choice) in self.choices.iter().enumerate() {
            if !self.fits[lead][index].contains(&true) {
                continue;
            }
            let found = self
                .ledger
                .admits(self.turn, choice)
                .map_err(No::Held)
                .and_then(|()| self.host(index, Some(lead), rules));
            match found {
                Ok(offer) => tiers
                    .entry(std::cmp::Reverse(choice.policy.weight))
                    .or_default()
                    .push((index, offer)),
                Err(refusal) => {
                    held |= matches!(refusal, No::Held(_));
                    why.insert(choice.label.clone(), refusal.text());
                }
            }
        }
        let Some((_, tier)) = tiers.pop_first() else {
            return Err((why, held));
        };
        let best = tier
            .iter()
            .map(|(choice, offer)| self.fill(lead, *choice, *offer, rules))
            .reduce(|best, next| {
                if self.cheaper(&next, &best) {
                    next
                } else {
                    best
                }
            });
        let Some(best) = best.filter(|pick| !pick.fill.is_empty()) else {
            return Err((why, held));
        };
        let lighter = tiers.values().flatten().map(|(choice, _)| *choice);
        let label = &self.choices[best.choice].label;
        for index in lighter {
            let text = format!("the pool of {label} weighs more");
            why.insert(self.choices[index].label.clone(), text);
        }
        for (index, _) in tier.iter().filter(|(index, _)| *index != best.choice) {
            let text = format!("{label} carries more for its price");
            why.insert(self.choices[*index].label.clone(), text);
        }
        self.whys[lead].extend(why);
        Ok(best)
    }

    /// Whether `a` carries more for its price than `b`; of equals the one that carries more.
    fn cheaper(&self, a: &Pick, b: &Pick) -> bool {
        let price = |pick: &Pick| i128::from(self.choices[pick.choice].price);
        let (left, right) = (
            price(a).saturating_mul(b.worth),
            price(b).saturating_mul(a.worth),
        );
        left < right || (left == right && a.worth > b.worth)
    }

    /// What one node of an offer would take: the leading group first, then the others in order.
    fn fill(&self, lead: usize, choice: usize, offer: usize, rules: Option<&Rules>) -> Pick {
        let at = &self.choices[choice].offers[offer];
        let mut free = at.free.clone();
        let mut ports = at.ports.clone();
        let mut pick = Pick {
            choice,
            offer,
            fill: Vec::new(),
            worth: 0,
        };
        if let Some(rules) = rules {
            let most = self.fits_shape(lead, &free, &ports);
            let at = |key| self.domains[choice][offer][key];
            let may = self.world.company.most(rules, at);
            let may = usize::try_from(may).unwrap_or(usize::MAX);
            let count = may.min(most).min(self.groups[lead].pods.len());
            self.add_fill(&mut pick, lead, count, &mut free, &mut ports);
            return pick;
        }
        for group in lead..self.groups.len() {
            let left = self.groups[group].pods.len();
            if left == 0 || !self.fits[group][choice][offer] {
                continue;
            }
            if group != lead && self.dependent[group] {
                continue;
            }
            let count = self.fits_shape(group, &free, &ports).min(left);
            self.add_fill(&mut pick, group, count, &mut free, &mut ports);
        }
        pick
    }

    fn fits_shape(&self, group: usize, free: &Resources, ports: &[HostPort]) -> usize {
        let shape = self.world.shapes[self.groups[group].shape].shape;
        usize::try_from(fit::room(shape, free, ports)).unwrap_or(usize::MAX)
    }

    fn add_fill(
        &self,
        pick: &mut Pick,
        group: usize,
        count: usize,
        free: &mut Resources,
        ports: &mut Vec<HostPort>,
    ) {
        if count == 0 {
            return;
        }
        let shape = self.world.shapes[self.groups[group].shape].shape;
        amounts::take(free, &shape.requests, count as u64);
        ports.extend(shape.host_ports.iter().cloned());
        // A pod is worth something even if it asks for nothing.
        let worth = i128::from(offer::price(&shape.requests)).saturating_add(1);
        pick.worth = pick
            .worth
            .saturating_add(worth.saturating_mul(i128::try_from(count).unwrap_or(i128::MAX)));
        pick.fill.push((group, count));
    }

    /// Opens nodes filled like `pick` as long as the same filling goes in.
    fn open_filled(&mut self, pick: &Pick, once: bool) -> Result<(), ()> {
        let lead = pick.fill.first().map_or(0, |(group, _)| *group);
        let mut offer = pick.offer;
        loop {
            let bin = match self.open(pick.choice, offer, Cause::Pods) {
                Ok(bin) => bin,
                Err(why) => {
                    self.turn.warn(why);
                    return Err(());
                }
            };
            let fill: &[(usize, usize)] = if once { &[(lead, 1)] } else { &pick.fill };
            for (group, count) in fill {
                let id = self.groups[*group].shape;
                self.world.put(bin, id, *count as u64, false);
                self.assign(*group, bin, *count);
            }
            let again = pick
                .fill
                .iter()
                .all(|(group, count)| self.groups[*group].pods.len() >= *count);
            if once || !again {
                return Ok(());
            }
            let choice = &self.choices[pick.choice];
            let next = self
                .ledger
                .admits(self.turn, choice)
                .map_err(No::Held)
                .and_then(|()| self.host(pick.choice, Some(lead), None));
            let Ok(next) = next else {
                return Ok(());
            };
            let same = choice.offers[next].free == choice.offers[pick.offer].free
                && pick
                    .fill
                    .iter()
                    .all(|(group, _)| self.fits[*group][pick.choice][next]);
            if !same {
                return Ok(());
            }
            offer = next;
        }
    }
}
