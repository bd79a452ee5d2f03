//! Limits that two machines share are given to the one that gains more by them.
//!
//! A machine is bound to the first of its options that limits allow when it is made ([`Draft::bind`]). A pool's `max`, say, may be used up so by a
//! machine that costs the same in another pool, and one that is cheaper in this pool alone goes without. Once pods are placed, two such machines
//! exchange what they take of limits.

use super::bind::MAX_MACHINES_ASKED;
use super::state::{Draft, signed};
use crate::index::{DraftMachineIndex, LaunchOptionIndex, SiteIndex};

/// Plans of no more machines are looked through even where no looks are left: a search through small plans is bounded by its own steps.
const FEW_MACHINES: usize = 8;

/// What a machine counts in [`super::Rank`]: pods in pools of lower weight, its price, what was not requested. Of an exchange: how much more
/// both count after it than before.
type Cost = [i128; 3];

/// A machine of a plan, and what it is made of.
#[derive(Clone, Copy, Debug)]
struct BoundMachine {
    machine: DraftMachineIndex,
    option: LaunchOptionIndex,
    site: SiteIndex,
}

impl Draft<'_> {
    /// Lets machines that limits keep from a cheaper option have it where another makes way, as long as both together cost less then.
    pub(super) fn exchange_options(&mut self) {
        if self.machines.len() > MAX_MACHINES_ASKED {
            return;
        }
        // Each makes the plan cheaper, and one may open the way for the next.
        for _ in 0..self.machines.len() {
            let mut exchanged = false;
            for at in self.machines.indexes() {
                let Some(pair) = self.bound(at).and_then(|bound| self.find_exchange(bound)) else {
                    continue;
                };
                exchanged = true;
                for one in pair {
                    self.save(one.machine);
                    self.unbook(one.machine);
                }
                for one in pair {
                    self.set(one.machine, (one.option, one.site));
                }
            }
            if !exchanged {
                return;
            }
        }
    }

    /// The option and site that a machine of the plan is bound to; `None` of one without pods, which is not made.
    fn bound(&self, machine: DraftMachineIndex) -> Option<BoundMachine> {
        let of = &self.machines[machine];
        let (option, site) = of.bound.filter(|_| !of.load.counts.is_empty())?;
        Some(BoundMachine {
            machine,
            option,
            site,
        })
    }

    /// What a machine with its pods counts in the rank of the plan if it is made of this option.
    fn cost_of(&self, machine: DraftMachineIndex, option: LaunchOptionIndex) -> Cost {
        let of = &self.problem.options[option];
        let counts = &self.machines[machine].load.counts;
        let pods: usize = counts.iter().map(|(_, count)| count).sum();
        let weight_loss = pods.saturating_mul(of.tier.0);
        [
            i128::from(signed(weight_loss)),
            i128::from(of.price),
            i128::from(of.unrequested),
        ]
    }

    /// How much more it counts if a machine is made of this option than of the one it is bound to.
    fn added_cost(&self, of: BoundMachine, option: LaunchOptionIndex) -> Cost {
        let mut cost = self.cost_of(of.machine, option);
        for (more, before) in cost.iter_mut().zip(self.cost_of(of.machine, of.option)) {
            *more -= before;
        }
        cost
    }

    /// What this machine and another become, where that makes the plan cheaper; of all such exchanges the cheapest.
    fn find_exchange(&mut self, mine: BoundMachine) -> Option<[BoundMachine; 2]> {
        let problem = self.problem;
        let options = self.machines[mine.machine].options.iter();
        let better = options.map(|option| (self.added_cost(mine, option), option));
        // What was not requested alone is worth no exchange.
        let better = better.filter(|(cost, _)| [cost[0], cost[1]] < [0, 0]);
        let better: Vec<(Cost, LaunchOptionIndex)> = better.collect();
        if better.is_empty() {
            return None;
        }
        let mut best: Option<(Cost, [BoundMachine; 2])> = None;
        self.limits.give(problem, mine.option, mine.site);
        for other in self.machines.indexes() {
            let Some(theirs) = self.bound(other).filter(|_| other != mine.machine) else {
                continue;
            };
            if !problem.look(1) && self.machines.len() > FEW_MACHINES {
                break;
            }
            self.limits.give(problem, theirs.option, theirs.site);
            for (saved, option) in &better {
                let Some(site) = self.limits.site(problem, *option) else {
                    continue;
                };
                self.limits.take(problem, *option, site);
                let theirs_to_be = &self.machines[other].options;
                let instead = self.limits.choose_option(problem, theirs_to_be);
                self.limits.give(problem, *option, site);
                let Some((others_option, others_site)) = instead else {
                    continue;
                };
                let mut cost = self.added_cost(theirs, others_option);
                for (sum, part) in cost.iter_mut().zip(saved) {
                    *sum += part;
                }
                if cost < [0; 3] && best.is_none_or(|(least, _)| cost < least) {
                    let pair = [
                        BoundMachine {
                            option: *option,
                            site,
                            ..mine
                        },
                        BoundMachine {
                            option: others_option,
                            site: others_site,
                            ..theirs
                        },
                    ];
                    best = Some((cost, pair));
                }
            }
            self.limits.take(problem, theirs.option, theirs.site);
        }
        self.limits.take(problem, mine.option, mine.site);
        best.map(|(_, pair)| pair)
    }
}
