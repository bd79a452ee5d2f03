//! What pods that are placed ask of the place of the next one: `InterPodConstraints::most`, on numbers.

use std::collections::BTreeSet;

use super::To;
use super::state::{Draft, DraftMachine, Spot};
use crate::index::{DraftMachineIndex, KeyId, LaunchOptionClassIndex, LotIndex, TallyIndex};
use crate::simulation::inter_pod::Even;
use crate::simulation::inter_pod::topology::{DomainId, FRESH, NOWHERE};

impl Draft<'_> {
    /// The domain of a spot.
    fn domain(&self, spot: Spot, key: KeyId) -> DomainId {
        match (spot.to, self.class_of(spot)) {
            (Some(To::Fixed(at)), _) => self.problem.fixed[at].domains[key],
            (_, Some(class)) => self.problem.classes[class].domains[key],
            // Only the host name matters where no class was asked for.
            (_, None) => FRESH,
        }
    }

    fn class_of(&self, spot: Spot) -> Option<LaunchOptionClassIndex> {
        match spot.to {
            Some(To::Machine(at)) => self.machines[at].class.or(spot.class),
            _ => spot.class,
        }
    }

    /// The class of a machine: the one that its pods asked for, or that of what it would be made of now. `None` for one that is not bound.
    fn class_now(&self, machine: &DraftMachine) -> Option<LaunchOptionClassIndex> {
        let (option, _) = machine.bound?;
        machine
            .class
            .or_else(|| Some(self.problem.options[option].class))
    }

    /// Pods that a counter has counted in the domain of a spot.
    pub(super) fn pods(&self, counter: TallyIndex, spot: Spot) -> i64 {
        let domain = self.domain(spot, self.problem.counters[counter].key);
        if domain == FRESH {
            let daemons = self.class_of(spot);
            let daemons = daemons.map_or(0, |class| self.problem.classes[class].daemons[counter]);
            return match spot.to {
                Some(To::Machine(at)) => self.machines[at].load.pods_of(self.problem, counter),
                _ => 0,
            } + daemons;
        }
        self.pods[counter].get(domain).copied().unwrap_or(0)
    }

    /// How many pods of a lot others let onto a spot, resources aside.
    pub(super) fn may(&self, lot: LotIndex, spot: Spot) -> usize {
        let asks = &self.problem.lots[lot].asks;
        let nowhere =
            |counter: TallyIndex| self.domain(spot, self.problem.counters[counter].key) == NOWHERE;
        let mut most = usize::MAX;
        if asks.forbidden.iter().any(|id| self.pods(*id, spot) > 0) {
            return 0;
        }
        for (counter, itself) in &asks.unwanted {
            if nowhere(*counter) {
                continue;
            }
            if self.pods(*counter, spot) > 0 {
                return 0;
            }
            if *itself {
                most = 1;
            }
        }
        if asks.wanted.iter().any(|counter| nowhere(*counter)) {
            return 0;
        }
        let met = asks
            .wanted
            .iter()
            .all(|counter| self.pods(*counter, spot) > 0);
        let first = || asks.wants_itself && asks.wanted.iter().all(|id| self.totals[*id] == 0);
        if !met && !first() {
            return 0;
        }
        for even in &asks.spread {
            most = most.min(self.even_room(even, spot));
            if most == 0 {
                break;
            }
        }
        most
    }

    /// Domains that a counter knows, with the pods of each; one of them left out.
    fn levels(&self, counter: TallyIndex, but: Spot) -> (usize, Option<i64>) {
        let key = self.problem.counters[counter].key;
        let own = self.domain(but, key);
        let places = self.places[counter].indexed();
        let known = places.filter(|(domain, places)| **places > 0 && *domain != own);
        let pods = &self.pods[counter];
        let known = known.map(|(domain, _)| pods.get(domain).copied().unwrap_or(0));
        let fresh = self.machines.indexed().filter(|(at, machine)| {
            but.to != Some(To::Machine(*at))
                && self.class_now(machine).is_some_and(|class| {
                    let class = &self.problem.classes[class];
                    class.domains[key] == FRESH && class.counts[counter]
                })
        });
        let hosts = self
            .problem
            .classes
            .iter()
            .any(|class| class.domains[key] == FRESH);
        let fresh = fresh.filter(|_| hosts);
        let fresh = fresh.map(|(_, machine)| machine.load.pods_of(self.problem, counter));
        let (mut count, mut least) = (0, None);
        for level in known.chain(fresh) {
            count += 1;
            least = Some(least.map_or(level, |least: i64| least.min(level)));
        }
        (count, least)
    }

    /// Domains that a counter does not know and that machines are in whose pods asked for no class, with the fewest counted pods of any. None of those
    /// pods is counted.
    fn levels_of_unclassed(&self, counter: TallyIndex) -> (usize, Option<i64>) {
        let key = self.problem.counters[counter].key;
        let machines = self.machines.iter();
        let machines =
            machines.filter(|machine| machine.class.is_none() && !machine.load.counts.is_empty());
        let domains = machines.filter_map(|machine| {
            let class = &self.problem.classes[self.class_now(machine)?];
            let domain = class.domains[key];
            let is_new = domain < FRESH && class.counts[counter] && !self.knows(counter, domain);
            is_new.then_some((domain, class.daemons[counter]))
        });
        let domains: BTreeSet<(DomainId, i64)> = domains.collect();
        let least = domains.iter().map(|(_, daemons)| *daemons).min();
        (domains.len(), least)
    }

    fn knows(&self, counter: TallyIndex, domain: DomainId) -> bool {
        let places = self.places[counter].get(domain);
        domain < FRESH && places.is_some_and(|places| *places > 0)
    }

    /// How many pods a spread constraint lets onto a spot: what `InterPodConstraints::spread_room` returns.
    fn even_room(&self, even: &Even, spot: Spot) -> usize {
        let counter = even.counter;
        let domain = self.domain(spot, self.problem.counters[counter].key);
        let missing = |key: &KeyId| self.domain(spot, *key) == NOWHERE;
        if domain == NOWHERE || even.keys.iter().any(missing) {
            return 0;
        }
        let known = match (spot.to, domain) {
            (Some(To::Machine(at)), FRESH) => self.machines[at].bound.is_some(),
            _ => self.knows(counter, domain),
        };
        let here = if known { self.pods(counter, spot) } else { 0 };
        let (beside, least) = self.levels(counter, spot);
        let mut open = even.open.iter();
        let too_few = beside + 1 < even.min_domains
            || open.any(|other| *other != domain && !self.knows(counter, *other));
        let room = |limit: i64| usize::try_from(limit.saturating_sub(here)).unwrap_or(0);
        if !even.counts_itself {
            let least = if known && !too_few {
                least.map_or(here, |least| least.min(here))
            } else {
                0
            };
            let fits = here.saturating_sub(least) <= even.max_skew;
            return if fits { usize::MAX } else { 0 };
        }
        if too_few {
            return room(even.max_skew);
        }
        match least {
            _ if even.max_skew < 1 => 0,
            None => usize::MAX,
            Some(least) => room(least.saturating_add(even.max_skew)),
        }
    }

    /// Pods that planned machines have beyond what their spread lets them once all machines are there: kube-scheduler may come to them
    /// in any order, and all at once.
    pub(super) fn uneven(&self) -> usize {
        let mut sum = 0;
        for (lot, of) in self.problem.lots.indexed() {
            for even in &of.asks.spread {
                sum += self.uneven_over(lot, even);
            }
        }
        sum
    }

    fn uneven_over(&self, lot: LotIndex, even: &Even) -> usize {
        let key = self.problem.counters[even.counter].key;
        let nowhere = Spot {
            to: None,
            class: None,
        };
        let on = self.machines.indexes();
        let on: Vec<DraftMachineIndex> = on
            .filter(|at| self.machines[*at].load.count(lot) > 0)
            .collect();
        if on.is_empty() || !even.counts_itself {
            return 0;
        }
        let (count, least) = self.levels(even.counter, nowhere);
        let (more, least_of_those) = self.levels_of_unclassed(even.counter);
        let least = least.into_iter().chain(least_of_those).min();
        let Some(least) = least else {
            return 0;
        };
        let least = if count + more < even.min_domains {
            0
        } else {
            least
        };
        let most = least.saturating_add(even.max_skew);
        // Each domain once, by its number, or by its machine where that is one by itself.
        let mut seen = BTreeSet::new();
        let mut sum = 0;
        for at in on {
            let spot = Spot {
                to: Some(To::Machine(at)),
                class: None,
            };
            let domain = self.domain(spot, key);
            let own = if domain == FRESH { Some(at) } else { None };
            if domain != NOWHERE && seen.insert((domain, own)) {
                sum += usize::try_from(self.pods(even.counter, spot) - most).unwrap_or(0);
            }
        }
        sum
    }

    /// Pods that spread constraints of a lot have counted in the domain of a spot, over any key but the host
    /// name.
    pub(super) fn crowd(&self, lot: LotIndex, spot: Spot) -> i64 {
        let wide = |even: &&Even| {
            let key = self.problem.counters[even.counter].key;
            let mut classes = self.problem.classes.iter();
            classes.any(|class| class.domains[key] < FRESH)
        };
        let spread = self.problem.lots[lot].asks.spread.iter().filter(wide);
        spread.map(|even| self.pods(even.counter, spot)).sum()
    }
}
