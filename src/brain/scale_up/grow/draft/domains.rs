//! How far pods of a plan keep the rules about topology domains that are wider than machines, counted while a search moves them; and
//! those about the machine of pods that choose whose machine they are on ([`Movables::chooses`]).
//!
//! It knows what is counted in each domain, and returns how many pods break a rule where they are. It does not know in which
//! order pods come: what keeps all rules here is laid out once more before it counts.

use super::movables::{Movables, is_local};
use super::state::{Draft, Load, signed};
use super::{Lot, Problem};
use crate::index::{
    DomainRuleIndex, DraftMachineIndex, IndexVec, KeyId, LaunchOptionClassIndex, ListIndex,
    LotIndex, MovableIndex, TallyIndex,
};
use crate::simulation::inter_pod::topology::{DomainId, FRESH};

/// A rule that pods of one lot have about the topology domain that they are in.
#[derive(Debug)]
enum DomainDemand {
    /// Topology spread: at most `skew` counted pods more than in the domain with the fewest, of these domains.
    Spread { skew: i64, among: Vec<DomainId> },
    /// Required affinity: a counted pod in the domain, other than its own where those are counted. Or all of them in one domain.
    Beside { itself: bool },
    /// Required anti-affinity: no counted pod in the domain, other than itself where it is counted.
    Apart { itself: bool },
}

/// One rule of one lot, with what is counted for it.
#[derive(Debug)]
struct DomainRule {
    lot: LotIndex,
    demand: DomainDemand,
    counter: TallyIndex,
    key: KeyId,
    /// Each planned machine is a domain, and nothing else is one.
    by_machine: bool,
    /// By domain: the counted pods, and the pods of the lot.
    pods: IndexVec<DomainId, DomainPods>,
}

#[derive(Clone, Copy, Debug, Default)]
struct DomainPods {
    counted: i64,
    own: i64,
}

/// A planned machine, with the class that it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClassedMachine {
    pub(super) at: DraftMachineIndex,
    pub(super) class: LaunchOptionClassIndex,
}

/// How many pods a movable brings to what a rule counts.
#[derive(Clone, Copy, Debug)]
struct MovableShare {
    rule: DomainRuleIndex,
    pods: DomainPods,
}

/// The rules of a plan's pods, with what is counted as pods are now.
#[derive(Debug)]
pub(super) struct DomainRules {
    rules: IndexVec<DomainRuleIndex, DomainRule>,
    /// By movable: the rules that it matters to.
    shares: IndexVec<MovableIndex, Vec<MovableShare>>,
}

/// A rule that some movables on two machines matter to.
#[derive(Debug)]
pub(super) struct SharedRule {
    rule: DomainRuleIndex,
    /// The domains of the two machines.
    domains: [Option<DomainId>; 2],
    /// By movable of those looked at: what it brings.
    brings: Vec<DomainPods>,
}

impl DomainRules {
    /// The rules, with the pods that stay where they are; movables are to be added.
    pub(super) fn of(draft: &Draft<'_>, movables: &Movables, stays: &[Load]) -> DomainRules {
        let problem = draft.problem;
        let lots = problem.lots.indexed();
        let rules = lots.flat_map(|(lot, of)| {
            let demands = demands(of).into_iter();
            let demands = demands.filter(move |(counter, demand)| {
                let beside = matches!(demand, DomainDemand::Beside { .. });
                !is_local(problem, *counter) || (beside && movables.chooses[lot])
            });
            demands.map(move |(counter, demand)| DomainRule {
                lot,
                demand,
                counter,
                key: problem.counters[counter].key,
                by_machine: is_local(problem, counter),
                pods: IndexVec::default(),
            })
        });
        let mut rules: IndexVec<DomainRuleIndex, DomainRule> = rules.collect();
        for rule in &mut rules {
            rule.count_those_who_stay(draft, stays);
        }
        let shares = movables.all.iter().map(|movable| {
            let shares = rules.indexed().map(|(rule, of)| MovableShare {
                rule,
                pods: of.share(problem, &movable.parts),
            });
            shares
                .filter(|of| of.pods.counted + of.pods.own > 0)
                .collect()
        });
        DomainRules {
            shares: shares.collect(),
            rules,
        }
    }

    /// A movable comes to a machine, or leaves it.
    pub(super) fn add(
        &mut self,
        problem: &Problem,
        movable: MovableIndex,
        machine: ClassedMachine,
        sign: i64,
    ) {
        for share in &self.shares[movable] {
            let rule = &mut self.rules[share.rule];
            if let Some(domain) = rule.domain(problem, machine) {
                rule.pods[domain].counted += sign * share.pods.counted;
                rule.pods[domain].own += sign * share.pods.own;
            }
        }
    }

    /// The rules that matter where some movables change between two machines.
    pub(super) fn shared(
        &self,
        problem: &Problem,
        movables: &[MovableIndex],
        machines: [ClassedMachine; 2],
    ) -> Vec<SharedRule> {
        let same = machines[0].class == machines[1].class;
        let mut shared: Vec<SharedRule> = Vec::new();
        for (at, movable) in movables.iter().enumerate() {
            let shares = self.shares[*movable].iter();
            for share in shares.filter(|of| !same || self.rules[of.rule].by_machine) {
                let known = shared.iter().position(|of| of.rule == share.rule);
                let index = known.unwrap_or_else(|| {
                    let rule = &self.rules[share.rule];
                    shared.push(SharedRule {
                        rule: share.rule,
                        domains: machines.map(|machine| rule.domain(problem, machine)),
                        brings: vec![DomainPods::default(); movables.len()],
                    });
                    shared.len() - 1
                });
                shared[index].brings[at] = share.pods;
            }
        }
        shared.retain(|of| of.domains[0] != of.domains[1]);
        shared
    }

    /// How many pods break a shared rule when those whose bit is set in `moves` change their machine; those with a bit in
    /// `on_second` are on the second one before.
    pub(super) fn broken(&self, shared: &SharedRule, on_second: u32, moves: u32) -> i64 {
        let mut second = DomainPods::default();
        for (at, brings) in shared.brings.iter().enumerate() {
            if moves >> at & 1 == 1 {
                let sign = if on_second >> at & 1 == 1 { -1 } else { 1 };
                second.counted += sign * brings.counted;
                second.own += sign * brings.own;
            }
        }
        let [from, to] = shared.domains;
        let rule = &self.rules[shared.rule];
        let changed = |domain, mut pods: DomainPods| {
            let sign = i64::from(Some(domain) == to) - i64::from(Some(domain) == from);
            pods.counted += sign * second.counted;
            pods.own += sign * second.own;
            pods
        };
        if !rule.is_by_domain() {
            return rule.broken(changed);
        }
        let both = shared.domains.iter().flatten();
        both.map(|domain| rule.broken_in(changed(*domain, rule.pods[*domain])))
            .sum()
    }

    /// How many pods break any rule.
    pub(super) fn all_broken(&self) -> i64 {
        let rules = self.rules.iter();
        rules.map(|rule| rule.broken(|_, pods| pods)).sum()
    }
}

impl DomainRule {
    /// The domain of a machine; `None` where it is of none that counts.
    fn domain(&self, problem: &Problem, machine: ClassedMachine) -> Option<DomainId> {
        let class = &problem.classes[machine.class];
        let domain = if self.by_machine {
            DomainId::at(machine.at.0)
        } else {
            class.domains[self.key]
        };
        class.counts[self.counter].then_some(())?;
        counted(domain).filter(|domain| *domain < self.pods.next_index())
    }

    fn share(&self, problem: &Problem, parts: &[(LotIndex, usize)]) -> DomainPods {
        let mut pods = DomainPods::default();
        for (lot, count) in parts {
            if problem.lots[*lot].asks.feeds.contains(&self.counter) {
                pods.counted += signed(*count);
            }
            if *lot == self.lot {
                pods.own += signed(*count);
            }
        }
        pods
    }

    fn count_those_who_stay(&mut self, draft: &Draft<'_>, stays: &[Load]) {
        if self.by_machine {
            self.pods.grow_to(draft.machines.len());
        } else {
            self.count_those_on_nodes(draft);
        }
        let problem = draft.problem;
        for ((at, machine), load) in draft.machines.indexed().zip(stays) {
            let class = machine
                .bound
                .map(|(option, _)| problem.options[option].class);
            if let Some(class) = class
                && let Some(domain) = self.domain(problem, ClassedMachine { at, class })
            {
                let daemons = problem.classes[class].daemons[self.counter];
                self.stay(problem, domain, load, daemons);
            }
        }
    }

    /// Counts pods that are on nodes, or come to places that stay.
    fn count_those_on_nodes(&mut self, draft: &Draft<'_>) {
        let problem = draft.problem;
        let tally = &problem.counters[self.counter];
        let classes = problem.classes.iter().map(|class| class.domains[self.key]);
        let fixed = problem.fixed.iter().map(|place| place.domains[self.key]);
        let most = classes.chain(fixed).filter_map(counted).max();
        let domains = most.map_or(0, |most| most.position() + 1);
        self.pods.grow_to(domains.max(tally.pods.len()));
        for (pods, counted) in self.pods.iter_mut().zip(&tally.pods) {
            pods.counted = *counted;
        }
        for (place, load) in problem.fixed.iter().zip(&draft.fixed) {
            if let Some(domain) =
                counted(place.domains[self.key]).filter(|_| place.counts[self.counter])
            {
                self.stay(problem, domain, load, 0);
            }
        }
    }

    fn stay(&mut self, problem: &Problem, domain: DomainId, load: &Load, daemons: i64) {
        let pods = self.share(problem, &load.counts);
        self.pods[domain].counted += pods.counted + daemons;
        self.pods[domain].own += pods.own;
    }

    /// How many pods of the lot break the rule, the numbers of domains being what `changed` makes of them.
    fn broken(&self, changed: impl Fn(DomainId, DomainPods) -> DomainPods) -> i64 {
        let domains = self.pods.indexed();
        let domains = || domains.clone().map(|(domain, pods)| changed(domain, *pods));
        match &self.demand {
            DomainDemand::Spread { skew, among } => {
                let known = among.iter().filter_map(|domain| {
                    let pods = self.pods.get(*domain)?;
                    Some(changed(*domain, *pods).counted)
                });
                let most = known.min().unwrap_or(0).saturating_add(*skew);
                let over = domains().map(|of| (of.counted - most).clamp(0, of.own));
                over.sum()
            }
            DomainDemand::Beside { itself: true } => {
                // Those in domains with others, or all of them in one.
                let (mut alone, mut all, mut most) = (0, 0, 0);
                for of in domains() {
                    alone += if of.counted == of.own { of.own } else { 0 };
                    all += of.own;
                    most = most.max(of.own);
                }
                alone.min(all - most)
            }
            DomainDemand::Beside { itself: false } | DomainDemand::Apart { .. } => {
                domains().map(|of| self.broken_in(of)).sum()
            }
        }
    }

    /// Whether how many pods break the rule in a domain depends on nothing but what is there.
    fn is_by_domain(&self) -> bool {
        match &self.demand {
            DomainDemand::Spread { .. } => false,
            DomainDemand::Beside { itself } => !itself,
            DomainDemand::Apart { .. } => true,
        }
    }

    /// How many pods in one domain break a rule that is by domain.
    fn broken_in(&self, pods: DomainPods) -> i64 {
        match &self.demand {
            DomainDemand::Apart { itself } => {
                (pods.counted - i64::from(*itself)).clamp(0, pods.own)
            }
            DomainDemand::Beside { .. } if pods.counted == 0 => pods.own,
            DomainDemand::Beside { .. } | DomainDemand::Spread { .. } => 0,
        }
    }
}

/// The rules of a lot about topology domains, each with the counter that counts the pods it is about.
fn demands(lot: &Lot) -> Vec<(TallyIndex, DomainDemand)> {
    let asks = &lot.asks;
    let spread = asks.spread.iter().map(|even| {
        let open = even.open.iter().copied().filter_map(counted);
        let demand = DomainDemand::Spread {
            skew: even.max_skew,
            among: open.collect(),
        };
        (even.counter, demand)
    });
    let wanted = asks.wanted.iter().map(|counter| {
        let itself = asks.feeds.contains(counter);
        (*counter, DomainDemand::Beside { itself })
    });
    let unwanted = asks.unwanted.iter().map(|(counter, _)| *counter);
    let apart = unwanted.chain(asks.forbidden.iter().copied());
    let apart = apart.map(|counter| {
        let itself = asks.feeds.contains(&counter);
        (counter, DomainDemand::Apart { itself })
    });
    spread.chain(wanted).chain(apart).collect()
}

/// The domain, if it is one that is counted; `None` for those of one machine, and for machines without the key.
fn counted(domain: DomainId) -> Option<DomainId> {
    (domain < FRESH).then_some(domain)
}
