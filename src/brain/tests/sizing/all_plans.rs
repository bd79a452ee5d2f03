//! All plans for a dozen pods, by a search that is written apart from the deciding code.
//!
//! Pods of a group are equal, so a set of pods is how many there are of each group. It knows which of these sets one machine can hold, in
//! each zone; from that what so many machines of one zone can hold and cost at least; and goes through all ways to share pods among the
//! three zones. Zones without a machine need not count where pods are spread, as they have no node.

use super::plant::{HOSTS, Rule, World};

const ZONES: usize = HOSTS.len();
/// The priorities of such worlds, the highest first.
const PRIORITIES: [i32; 2] = [100, 0];
/// As many ways at most to share the pods among zones are gone through.
const MOST_WAYS: usize = 4_000_000;

/// How many pods of each group.
pub(super) type Counts = Vec<u32>;

/// By set of pods: what it costs at least, if it can be.
type Prices = Vec<Option<i64>>;

/// The plans for one set of pods.
#[derive(Debug)]
pub(super) struct Plans {
    pub(super) placed: Counts,
    /// The price of the cheapest plan that places these pods, in millionths an hour.
    pub(super) price: i64,
    /// The price of the cheapest plan that places these pods and keeps `maxSkew` over all zones, zones without a machine counted as zero pods; in
    /// millionths an hour. `None`: every plan for these pods leaves a zone out.
    pub(super) price_of_all_zones: Option<i64>,
}

/// A world's sets of pods: the digits of a number, one for each group.
pub(super) struct Search<'w> {
    world: &'w World,
    /// By set: how many of each group.
    counts: Vec<Counts>,
    /// By set: all sets of which it has as many pods of each group or more.
    within: Vec<Vec<usize>>,
    /// Groups that are spread over machines, and those that are spread over zones, with the skew that they bear.
    even: Vec<usize>,
    spread: Vec<(usize, u32)>,
    /// Groups whose pods all share one machine.
    together: Vec<usize>,
    /// Whether a rule is about zones.
    by_zone: bool,
}

impl Search<'_> {
    /// `None` for a world with too many plans.
    pub(super) fn of(world: &World) -> Option<Search<'_>> {
        let groups = world.groups.iter().enumerate();
        let of_rule = |wanted: fn(Rule) -> bool| -> Vec<usize> {
            let groups = groups.clone().filter(|(_, group)| wanted(group.rule));
            groups.map(|(at, _)| at).collect()
        };
        let spread = groups.clone().filter_map(|(at, group)| match group.rule {
            Rule::Spread(skew) => Some((at, skew.unsigned_abs())),
            _ => None,
        });
        let mut search = Search {
            world,
            counts: vec![Counts::new()],
            within: Vec::new(),
            even: of_rule(|rule| rule == Rule::Even),
            spread: spread.collect(),
            together: of_rule(|rule| rule == Rule::Together),
            by_zone: groups.clone().any(|(_, group)| {
                matches!(
                    group.rule,
                    Rule::Spread(_) | Rule::Near(_) | Rule::ZoneEach | Rule::Claim(Some(_))
                )
            }),
        };
        let pods = || world.groups.iter().map(|group| group.on.len());
        // In how many ways a group's equal pods can be shared out: among three zones and those that wait, where zones matter; else among one
        // machine, the others and those that wait.
        let ways = pods().map(|pods| {
            let of_one_zone = (pods + 1) * (pods + 2) / 2;
            if search.by_zone {
                of_one_zone * (pods + 3) / 3
            } else {
                of_one_zone
            }
        });
        let evens = search
            .even
            .iter()
            .map(|group| world.groups[*group].on.len() + 1);
        let ways = ways.chain(evens).try_fold(1_usize, usize::checked_mul)?;
        if ways > MOST_WAYS {
            return None;
        }
        for pods in pods() {
            let pods = u32::try_from(pods).expect("few");
            let sets = std::mem::take(&mut search.counts);
            // The first group is the lowest digit.
            search.counts = (0..=pods)
                .flat_map(|count| {
                    sets.iter().map(move |set| {
                        let mut more = set.clone();
                        more.push(count);
                        more
                    })
                })
                .collect();
        }
        search.within = search
            .counts
            .iter()
            .map(|set| search.sets_in(set))
            .collect();
        Some(search)
    }

    /// All sets within one, by their numbers.
    fn sets_in(&self, set: &Counts) -> Vec<usize> {
        let (mut sets, mut digit) = (vec![0], 1);
        for (group, count) in self.world.groups.iter().zip(set) {
            let counts = 0..=usize::try_from(*count).expect("few");
            let more = counts.flat_map(|count| sets.iter().map(move |set| set + count * digit));
            sets = more.collect();
            digit *= group.on.len() + 1;
        }
        sets
    }

    /// How many pods of each group have a place where these wait; `waits` begins with their names.
    pub(super) fn placed(&self, waits: &[String]) -> Counts {
        let mut placed = self.counts.last().expect("all pods").clone();
        for wait in waits {
            let group = wait
                .trim_start_matches("default/app")
                .split_once('-')
                .expect("a pod's name")
                .0;
            placed[group.parse::<usize>().expect("a number")] -= 1;
        }
        placed
    }

    pub(super) fn is_everybody(&self, set: &Counts) -> bool {
        self.counts.last() == Some(set)
    }

    /// Whether more pods have a place than with these numbers by group, and everybody who has one then keeps it, unless it goes to a pod of a
    /// higher priority.
    pub(super) fn is_more(&self, here: &[u32], than: &[u32]) -> bool {
        for priority in PRIORITIES {
            let groups = self.world.groups.iter().zip(here.iter().zip(than));
            let mut of_priority = groups.filter(|(group, _)| group.priority == priority);
            if of_priority.clone().any(|(_, (here, than))| here < than) {
                return false;
            }
            if of_priority.any(|(_, (here, than))| here > than) {
                return true;
            }
        }
        false
    }

    /// The price of the cheapest machine in a zone that holds exactly this set of pods, in millionths an hour; `None`: no machine can. `least`: for
    /// each group that is spread over machines, the fewest pods of it on any machine; a machine has that many or one more.
    fn price_of(&self, set: &Counts, zone: usize, least: &[u32]) -> Option<i64> {
        let (mut milli, mut mib) = (0, 0);
        for (at, group) in self.world.groups.iter().enumerate() {
            let here = set[at];
            if here == 0 {
                continue;
            }
            milli += group.milli * i64::from(here);
            mib += group.mib * i64::from(here);
            let fits = match group.rule {
                Rule::With(target) => set[target] > 0,
                Rule::Without(other) => set[other] == 0,
                Rule::Apart => here == 1,
                Rule::Claim(Some(of)) => of == zone,
                _ => true,
            };
            if !fits {
                return None;
            }
        }
        let mut even = self.even.iter().zip(least);
        if !even.all(|(group, least)| (*least..=least + 1).contains(&set[*group])) {
            return None;
        }
        let sizes = self.world.sizes.iter().enumerate();
        let fit =
            sizes.filter(|(_, (cores, gib))| milli <= i64::from(*cores) * 1000 && mib <= gib << 10);
        fit.map(|(size, _)| self.world.price_of(size)).min()
    }

    /// By number of machines at most: what the machines of a zone cost that hold these pods.
    fn zone(&self, zone: usize, machines: usize, least: &[u32]) -> Vec<Prices> {
        let sets = self.counts.iter().enumerate();
        let prices: Prices = sets
            .map(|(at, set)| (at > 0).then(|| self.price_of(set, zone, least)).flatten())
            .collect();
        let mut none: Prices = vec![None; prices.len()];
        none[0] = Some(0);
        let mut by_machines = vec![none];
        for _ in 0..machines {
            let before = by_machines.last().expect("no machine");
            let mut next = before.clone();
            for (all, best) in next.iter_mut().enumerate() {
                for &one in &self.within[all] {
                    let (Some(price), Some(others)) = (prices[one], before[all - one]) else {
                        continue;
                    };
                    if self.parts(&[one, all - one]) {
                        continue;
                    }
                    keep_least(best, Some(price + others));
                }
            }
            by_machines.push(next);
        }
        for prices in &mut by_machines {
            for (set, price) in self.counts.iter().zip(prices) {
                if !self.may_share_a_zone(set) {
                    *price = None;
                }
            }
        }
        by_machines
    }

    /// Whether these sets part pods that share a machine.
    fn parts(&self, sets: &[usize]) -> bool {
        self.together.iter().any(|group| {
            let with = sets.iter().filter(|set| self.counts[**set][*group] > 0);
            with.count() > 1
        })
    }

    fn may_share_a_zone(&self, set: &Counts) -> bool {
        let groups = self.world.groups.iter().zip(set);
        let mut here = groups.filter(|(_, count)| **count > 0);
        here.all(|(group, count)| match group.rule {
            Rule::Near(target) => set[target] > 0,
            Rule::ZoneEach => *count == 1,
            _ => true,
        })
    }

    /// Whether pods are spread as they must be over these zones.
    fn is_spread<'s>(&self, zones: &(impl Iterator<Item = &'s usize> + Clone)) -> bool {
        self.spread.iter().all(|(group, skew)| {
            let counts = zones.clone().map(|set| self.counts[*set][*group]);
            let (least, most) = counts.fold((u32::MAX, 0), |(least, most), count| {
                (least.min(count), most.max(count))
            });
            most <= least.saturating_add(*skew)
        })
    }

    /// All sets of pods that so many machines can hold at most, and what the cheapest plan for each costs.
    pub(super) fn plans(&self, machines: usize) -> Vec<Plans> {
        let mut best: [Prices; 2] = [(); 2].map(|()| vec![None; self.counts.len()]);
        let mut bases = vec![Vec::new()];
        for group in &self.even {
            let pods = u32::try_from(self.world.groups[*group].on.len()).expect("few");
            let more = bases.iter().flat_map(|base: &Vec<u32>| {
                (0..=pods).map(|least| [base.as_slice(), &[least]].concat())
            });
            bases = more.collect();
        }
        for least in bases {
            if self.by_zone {
                let zones = (0..ZONES).map(|zone| self.zone(zone, machines, &least));
                self.share(&zones.collect::<Vec<_>>(), machines, &mut best);
                continue;
            }
            // Where no rule is about zones, one zone is as good as three.
            let prices = self.zone(0, machines, &least).pop();
            for (set, price) in prices.into_iter().flatten().enumerate() {
                for best in &mut best {
                    keep_least(&mut best[set], price);
                }
            }
        }
        let [any, of_all_zones] = best;
        let plans = self.counts.iter().zip(any.into_iter().zip(of_all_zones));
        let plans = plans.filter_map(|(set, (any, of_all_zones))| {
            Some(Plans {
                placed: set.clone(),
                price: any?,
                price_of_all_zones: of_all_zones,
            })
        });
        plans.collect()
    }

    /// Goes through all ways to share pods among zones: the best of any, and of those that spread pods over all zones.
    fn share(&self, zones: &[Vec<Prices>], machines: usize, best: &mut [Prices; 2]) {
        let all = self.counts.len() - 1;
        let can_be = |zone: usize, set: usize| zones[zone][machines][set].is_some();
        for &first in self.within[all].iter().filter(|set| can_be(0, **set)) {
            for &second in self.within[all - first]
                .iter()
                .filter(|set| can_be(1, **set))
            {
                let left = &self.within[all - first - second];
                for &third in left.iter().filter(|set| can_be(2, **set)) {
                    let sets = [first, second, third];
                    let used = sets.iter().filter(|set| **set > 0);
                    if self.parts(&sets) || !self.is_spread(&used) {
                        continue;
                    }
                    let Some(price) = cheapest(zones, machines, sets) else {
                        continue;
                    };
                    let kept = 1 + usize::from(self.is_spread(&sets.iter()));
                    for best in &mut best[..kept] {
                        keep_least(&mut best[first + second + third], Some(price));
                    }
                }
            }
        }
    }
}

fn keep_least(best: &mut Option<i64>, price: Option<i64>) {
    *best = [*best, price].into_iter().flatten().min();
}

/// The least price of so many machines that hold these pods of each zone.
fn cheapest(zones: &[Vec<Prices>], machines: usize, sets: [usize; ZONES]) -> Option<i64> {
    let price = |zone: usize, machines: usize| zones[zone][machines][sets[zone]];
    let ways = (0..=machines).flat_map(|first| {
        (0..=machines - first).filter_map(move |second| {
            let third = machines - first - second;
            Some(price(0, first)? + price(1, second)? + price(2, third)?)
        })
    });
    ways.min()
}
