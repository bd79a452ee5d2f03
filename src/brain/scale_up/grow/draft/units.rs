//! Which pods belong together: pods that may only be on one machine are placed as one.

use super::state::Load;
use super::{Problem, partly};
use crate::index::{IndexVec, LotIndex, TallyIndex};
use crate::simulation::inter_pod::topology::FRESH;

/// Pods that go to one place together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    /// Lots with how many pods of each; lots that others have required affinity to come first.
    pub(super) parts: Vec<(LotIndex, usize)>,
    /// How many such units there are to place.
    pub(super) times: usize,
}

/// How pods are dealt to several that they could be with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DealMode {
    /// As many as a machine holds to the first, then to the next.
    Packed,
    /// To each in turn.
    Even,
    /// They are placed one by one.
    Apart,
}

/// Lots that have required affinity to others on their machine.
struct Bonds {
    /// By lot: a lot that it is placed with.
    with: IndexVec<LotIndex, LotIndex>,
    /// Followers with those of whom one must be there.
    followers: Vec<(LotIndex, Vec<LotIndex>)>,
}

impl Bonds {
    fn of(problem: &Problem) -> Bonds {
        let mut bonds = Bonds {
            with: problem.lots.indexes().collect(),
            followers: Vec::new(),
        };
        for (lot, of) in problem.lots.indexed() {
            let local = |counter: &&TallyIndex| {
                let key = problem.counters[**counter].key;
                let mut classes = problem.classes.iter();
                classes.all(|class| class.domains[key] == FRESH)
            };
            let Some(counter) = of.asks.wanted.iter().find(local) else {
                continue;
            };
            // Where some are there already, they may follow those.
            if problem.counters[*counter].pods.iter().any(|pods| *pods > 0) {
                continue;
            }
            let all = problem.lots.indexed();
            let targets = all.filter(|(_, other)| other.asks.feeds.contains(counter));
            let targets: Vec<LotIndex> = targets.map(|(target, _)| target).collect();
            let pods: usize = targets
                .iter()
                .map(|target| problem.lots[*target].count)
                .sum();
            // Pods of a lot that follow each other are all in one place.
            let in_one_place = matches!(targets[..], [target] if {
                let asks = &problem.lots[target].asks;
                asks.wants_itself && asks.wanted.iter().any(|own| local(&own))
            });
            if of.asks.wants_itself || pods == 1 || in_one_place {
                for target in targets {
                    bonds.join(lot, target);
                }
            } else if pods > 1 {
                bonds.followers.push((lot, targets));
            }
        }
        bonds
    }

    fn root(&self, mut lot: LotIndex) -> LotIndex {
        while self.with[lot] != lot {
            lot = self.with[lot];
        }
        lot
    }

    fn join(&mut self, a: LotIndex, b: LotIndex) {
        let (a, b) = (self.root(a), self.root(b));
        self.with[a.max(b)] = a.min(b);
    }
}

/// All pods, as they belong together; and whether that depends on how they are dealt.
pub(super) fn of(problem: &Problem, deal: DealMode) -> (Vec<Unit>, bool) {
    waiting(
        problem,
        problem.lots.iter().map(|lot| lot.count).collect(),
        deal,
    )
}

/// Every pod by itself, and by lot how many others come before it: a pod that may be with several has to follow one of them, and not all.
/// And whether some pod has that choice.
pub(super) fn singles(problem: &Problem) -> (Vec<Unit>, IndexVec<LotIndex, usize>, bool) {
    let lots = &problem.lots;
    let feeders = |lot: LotIndex| {
        let wanted = &lots[lot].asks.wanted;
        let feeds = move |other: &LotIndex| {
            let feeds = &lots[*other].asks.feeds;
            *other != lot && wanted.iter().any(|counter| feeds.contains(counter))
        };
        lots.indexes().filter(feeds)
    };
    let pods = |lot: LotIndex| feeders(lot).map(|other| lots[other].count).sum::<usize>();
    let choice = |lot: LotIndex| lots[lot].asks.wants_itself && pods(lot) > 0;
    let choice = lots.indexes().any(choice);
    // A chain is no longer than there are lots; in a circle it ends there.
    let mut depths: IndexVec<LotIndex, usize> = vec![0; lots.len()].into();
    for _ in 0..lots.len() {
        for lot in lots.indexes() {
            let before = feeders(lot).map(|other| depths[other]).min();
            depths[lot] = before.map_or(0, |before| (before + 1).min(lots.len()));
        }
    }
    let all = lots.indexes().map(|lot| single(lot, lots[lot].count));
    (all.collect(), depths, choice)
}

/// The pods that have no place, `left` of each lot, as they belong together; and whether that depends on how they are dealt.
pub(super) fn waiting(
    problem: &Problem,
    mut left: IndexVec<LotIndex, usize>,
    deal: DealMode,
) -> (Vec<Unit>, bool) {
    let bonds = Bonds::of(problem);
    let mut units = Vec::new();
    let has_followers = !bonds.followers.is_empty();
    if deal != DealMode::Apart {
        dealt(problem, &bonds, deal, &mut left, &mut units);
    }
    for root in problem.lots.indexes() {
        let members = problem
            .lots
            .indexes()
            .filter(|other| bonds.root(*other) == root);
        let mut members: Vec<LotIndex> = members.filter(|other| left[*other] > 0).collect();
        // A pod that follows placed pods comes to them by itself.
        let leads = |lot: &LotIndex| {
            let (of, asks) = (&problem.lots[*lot], &problem.lots[*lot].asks);
            asks.wanted.is_empty() || (asks.wants_itself && left[*lot] == of.count)
        };
        let alone = members.len() == 1 && !problem.lots[members[0]].asks.wants_itself;
        if alone || !members.iter().any(leads) {
            units.extend(members.iter().map(|lot| single(*lot, left[*lot])));
        } else {
            members.sort_by_key(|lot| !problem.lots[*lot].asks.wanted.is_empty());
            together(problem, &members, &left, &mut units);
        }
    }
    (units, has_followers)
}

fn single(lot: LotIndex, times: usize) -> Unit {
    Unit {
        parts: vec![(lot, 1)],
        times,
    }
}

/// One unit of as many pods of these lots as some machine holds, in the order of [`partly::wishes`]; the others by themselves.
fn together(
    problem: &Problem,
    members: &[LotIndex],
    left: &IndexVec<LotIndex, usize>,
    units: &mut Vec<Unit>,
) {
    let local = members.iter().any(|lot| {
        let mut wanted = problem.lots[*lot].asks.wanted.iter();
        wanted.any(|counter| {
            let key = problem.counters[*counter].key;
            let mut classes = problem.classes.iter();
            classes.all(|class| class.domains[key] == FRESH)
        })
    });
    if !local {
        units.extend(members.iter().map(|lot| single(*lot, left[*lot])));
        return;
    }
    let mut load = Load::empty(problem);
    let all = members.iter().map(|lot| (*lot, left[*lot]));
    for (lot, count) in partly::wishes(problem, &all.collect::<Vec<_>>()) {
        for _ in 0..count {
            let mut more = load.clone();
            more.add(problem, lot, 1);
            if !held(problem, &more) {
                break;
            }
            load = more;
        }
    }
    for lot in members {
        let rest = left[*lot] - load.count(*lot);
        if rest > 0 {
            units.push(single(*lot, rest));
        }
    }
    if !load.counts.is_empty() {
        units.push(Unit {
            parts: load.counts.into_vec(),
            times: 1,
        });
    }
}

/// Deals followers to those of whom one must be with them.
fn dealt(
    problem: &Problem,
    bonds: &Bonds,
    deal: DealMode,
    left: &mut IndexVec<LotIndex, usize>,
    units: &mut Vec<Unit>,
) {
    let mut hosts: Vec<Load> = Vec::new();
    let alone = |lot: LotIndex| {
        bonds
            .with
            .indexes()
            .filter(|o| bonds.root(*o) == bonds.root(lot))
            .count()
            == 1
    };
    for (follower, targets) in &bonds.followers {
        let usable = |lot: &&LotIndex| alone(**lot) && problem.lots[**lot].asks.wanted.is_empty();
        for target in targets.iter().filter(usable) {
            for _ in 0..std::mem::take(&mut left[*target]) {
                let mut load = Load::empty(problem);
                load.add(problem, *target, 1);
                hosts.push(load);
            }
        }
        let mut at = 0;
        let mut misses = 0;
        let with = |load: &Load| targets.iter().any(|target| load.count(*target) > 0);
        while alone(*follower) && left[*follower] > 0 && misses < hosts.len() {
            let index = at % hosts.len();
            let mut more = hosts[index].clone();
            more.add(problem, *follower, 1);
            if with(&hosts[index]) && held(problem, &more) {
                hosts[index] = more;
                left[*follower] -= 1;
                misses = 0;
                at += usize::from(deal == DealMode::Even);
            } else {
                misses += 1;
                at += 1;
            }
        }
    }
    for host in hosts {
        let parts = host.counts.into_vec();
        match units.iter_mut().find(|unit| unit.parts == parts) {
            Some(unit) => unit.times += 1,
            None => units.push(Unit { parts, times: 1 }),
        }
    }
}

/// Whether some option or place could hold a load, empty as it is.
fn held(problem: &Problem, load: &Load) -> bool {
    let option = problem.options.indexed().any(|(index, option)| {
        let mut lots = load.counts.iter();
        load.within(&option.free) && lots.all(|(lot, _)| problem.lots[*lot].may.has(index))
    });
    let fixed = || {
        problem.fixed.iter().any(|fixed| {
            let mut lots = load.counts.iter();
            load.within(&fixed.free) && lots.all(|(lot, _)| fixed.may[*lot])
        })
    };
    let ports = load.counts.iter().all(|(lot, count)| {
        let apart = &problem.lots[*lot].apart;
        !(apart[*lot] && *count > 1)
            && load
                .counts
                .iter()
                .all(|(other, _)| other == lot || !apart[*other])
    });
    ports && (option || fixed())
}
