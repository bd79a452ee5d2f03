//! Plans for pods that are not nominated for nodes: kube-scheduler takes them in its queue's order, and fills whatever node has come
//! up by then. What a set of machines comes to is simulated, for several orders in which their nodes may come up:
//! pods that find no place call for machines more, whose price is part of what the plan costs in the end. Of the sets
//! of machines near the tightest plan the one that costs least in the end is made.

use super::cheapen::SeededRng;
use super::fill::{self, PackingMode};
use super::state::{Draft, Spot};
use super::units::Unit;
use super::{LaunchOptionSet, Problem, To};
use crate::index::{DraftMachineIndex, LaunchOptionIndex, LotIndex, indexes_in};

/// Orders in which nodes come up that are simulated: the one in which the machines are planned, and others.
const NODE_ORDERS: usize = 5;
/// A machine that is made later costs a quarter of its price more (`1 / LATER_DIVISOR`): pods wait for it once more.
const LATER_DIVISOR: i128 = 4;
/// What may be simulated in one decision: pods on machines, by this many a look.
const MAX_LOOKS: u64 = 60_000;
const PODS_PER_LOOK: usize = 64;
/// Choices that machines may become of, at most: those that cost least.
const MAX_CHOICES: usize = 8;

/// What a set of machines costs in the end, over all orders; and the plan, where all pods find a place in the first.
struct QueueOutcome<'p> {
    cost: i128,
    plan: Option<Draft<'p>>,
}

/// The plan that costs least in the end, of those that were simulated.
struct Best<'p> {
    cost: i128,
    /// How much weight pods may lose, as in [`super::Rank`].
    weight_loss: usize,
    plan: Draft<'p>,
}

/// The plan that costs least in the end: `tight`, or one of other machines. `queue` has pods by lot, in the order in
/// which kube-scheduler takes them.
pub(super) fn settle<'p>(tight: Draft<'p>, queue: &[(LotIndex, usize)]) -> Draft<'p> {
    let problem = tight.problem;
    problem.allow(MAX_LOOKS, MAX_LOOKS);
    let weight_loss = tight.rank().weight_loss;
    let machines = tight.machines.iter().filter_map(|machine| {
        let (option, _) = machine.bound?;
        (!machine.load.counts.is_empty()).then_some(option)
    });
    let mut first: Vec<LaunchOptionIndex> = machines.collect();
    first.sort_unstable();
    let choices = choices(problem, &first);
    let Some(known) = simulate_queue(problem, queue, &first) else {
        return tight;
    };
    let mut best = Best {
        cost: known.cost,
        weight_loss,
        plan: known.plan.unwrap_or(tight),
    };
    let starts = choices
        .iter()
        .filter_map(|option| alike(problem, queue, *option));
    for start in std::iter::once(first).chain(starts.collect::<Vec<_>>()) {
        descend(problem, queue, (start, &choices), &mut best);
    }
    best.plan
}

/// Goes from one set of machines to the best beside it, as long as that costs less in the end.
fn descend<'p>(
    problem: &'p Problem,
    queue: &[(LotIndex, usize)],
    (start, choices): (Vec<LaunchOptionIndex>, &[LaunchOptionIndex]),
    best: &mut Best<'p>,
) {
    let Some(known) = simulate_queue(problem, queue, &start) else {
        return;
    };
    let (mut set, mut cost) = (start, known.cost);
    best.keep(known);
    loop {
        let mut next: Option<(i128, Vec<LaunchOptionIndex>)> = None;
        for beside in beside(&set, choices) {
            let Some(outcome) = simulate_queue(problem, queue, &beside) else {
                continue;
            };
            if outcome.cost < next.as_ref().map_or(cost, |(cost, _)| *cost) {
                next = Some((outcome.cost, beside));
            }
            best.keep(outcome);
        }
        match next {
            Some(better) => (cost, set) = better,
            None => return,
        }
    }
}

impl<'p> Best<'p> {
    fn keep(&mut self, outcome: QueueOutcome<'p>) {
        let plan = outcome.plan.filter(|_| outcome.cost < self.cost);
        if let Some(plan) = plan.filter(|plan| plan.rank().weight_loss <= self.weight_loss) {
            (self.cost, self.plan) = (outcome.cost, plan);
        }
    }
}

/// Sets with a machine more, one less, or one of another choice.
fn beside(set: &[LaunchOptionIndex], choices: &[LaunchOptionIndex]) -> Vec<Vec<LaunchOptionIndex>> {
    let mut all = Vec::new();
    let mut add = |without: Option<usize>, with: Option<LaunchOptionIndex>| {
        let mut other = set.to_vec();
        if let Some(at) = without {
            other.remove(at);
        }
        other.extend(with);
        other.sort_unstable();
        all.push(other);
    };
    for choice in choices {
        add(None, Some(*choice));
    }
    for at in 0..set.len() {
        // Machines of one option are alike.
        if at > 0 && set[at] == set[at - 1] {
            continue;
        }
        add(Some(at), None);
        for choice in choices.iter().filter(|choice| **choice != set[at]) {
            add(Some(at), Some(*choice));
        }
    }
    all
}

/// The cheapest option of each choice, except those of pools of lower weight, or with more that was not requested, than any of a set.
fn choices(problem: &Problem, set: &[LaunchOptionIndex]) -> Vec<LaunchOptionIndex> {
    let of = || set.iter().map(|option| &problem.options[*option]);
    let tier = of().map(|option| option.tier).max().unwrap_or_default();
    let unrequested = of().map(|option| option.unrequested).max().unwrap_or(0);
    let mut found: Vec<LaunchOptionIndex> = Vec::new();
    for (index, option) in problem.options.indexed() {
        let known = |other: &LaunchOptionIndex| problem.options[*other].choice == option.choice;
        let usable = option.tier <= tier && option.unrequested <= unrequested;
        if usable && found.len() < MAX_CHOICES && !found.iter().any(known) {
            found.push(index);
        }
    }
    found
}

/// As many machines of one option as the queue fills.
fn alike(
    problem: &Problem,
    queue: &[(LotIndex, usize)],
    option: LaunchOptionIndex,
) -> Option<Vec<LaunchOptionIndex>> {
    let mut draft = Draft::new(problem);
    let most = queue.iter().map(|(_, count)| count).sum::<usize>();
    while draft.left.iter().any(|left| *left > 0) && draft.machines.len() < most {
        let at = draft.open(option)?;
        draft.come_up(at, queue);
        if draft.machines[at].load.counts.is_empty() || !problem.look(1) {
            return None;
        }
    }
    Some(vec![option; draft.machines.len()])
}

/// What a set of machines comes to; `None` where limits do not have it or there is no time to tell.
fn simulate_queue<'p>(
    problem: &'p Problem,
    queue: &[(LotIndex, usize)],
    set: &[LaunchOptionIndex],
) -> Option<QueueOutcome<'p>> {
    let mut outcome = QueueOutcome {
        cost: 0,
        plan: None,
    };
    let mut rng = SeededRng::new(7);
    let mut order = set.to_vec();
    for round in 0..NODE_ORDERS {
        if !problem.look(1 + queue.len() * set.len() / PODS_PER_LOOK) {
            return None;
        }
        let mut draft = Draft::new(problem);
        for option in &order {
            let at = draft.open(*option)?;
            draft.come_up(at, queue);
        }
        let own = draft.rank();
        if own.lost == 0 {
            draft.commit();
            outcome.plan = outcome.plan.or((round == 0).then(|| draft.clone()));
        }
        // Machines that no pod comes to are no part of a plan, but were made where the order was another.
        let made = set.iter().map(|option| problem.options[*option].price);
        let made: i128 = made.map(i128::from).sum();
        later(&mut draft);
        let rank = draft.rank();
        if rank.lost > 0 {
            return None;
        }
        let later = rank.price - own.price;
        outcome.cost += made + later + later / LATER_DIVISOR;
        for at in (1..order.len()).rev() {
            order.swap(at, rng.below(at + 1));
        }
    }
    Some(outcome)
}

/// Pods that found no place get further machines.
fn later(draft: &mut Draft<'_>) {
    let problem = draft.problem;
    let menu = LaunchOptionSet::all(problem.options.len());
    let mode = PackingMode {
        menu: &menu,
        cheapest: true,
        spin: 0,
        among: None,
    };
    let single = |(lot, left): (LotIndex, &usize)| Unit {
        parts: vec![(lot, 1)],
        times: *left,
    };
    let left = draft.left.indexed().filter(|(_, left)| **left > 0);
    let mut units: Vec<Unit> = left.map(single).collect();
    units.sort_by_cached_key(|unit| std::cmp::Reverse(fill::size(problem, unit)));
    for unit in &units {
        fill::place(draft, unit, mode);
    }
}

impl Draft<'_> {
    /// A node has come up: pods come to it in the queue's order, and those whose places depend on others to earlier ones too.
    fn come_up(&mut self, at: DraftMachineIndex, queue: &[(LotIndex, usize)]) {
        let mut again = true;
        while again {
            again = false;
            for (lot, _) in queue {
                let first = if self.problem.lots[*lot].tied {
                    DraftMachineIndex(0)
                } else {
                    at
                };
                for here in indexes_in(first..DraftMachineIndex(at.0 + 1)) {
                    if self.left[*lot] == 0 {
                        break;
                    }
                    again |= self.come(*lot, here) && self.problem.lots[*lot].tied;
                }
            }
        }
    }

    /// Pods of a lot come to a machine, as many as it takes; says whether any did.
    fn come(&mut self, lot: LotIndex, at: DraftMachineIndex) -> bool {
        let Some((option, _)) = self.machines[at].bound else {
            return false;
        };
        let of = &self.problem.options[option];
        let room = self.machines[at]
            .load
            .room(&self.problem.lots[lot].asked, &of.free);
        if room == 0 || !self.problem.lots[lot].may.has(option) {
            return false;
        }
        let spot = Spot {
            to: Some(To::Machine(at)),
            class: Some(of.class),
        };
        let menu = self.machines[at].options.clone();
        let mut count = room.min(self.left[lot]);
        if self.problem.lots[lot].apart[lot] {
            count = count.min(1);
        }
        count = count.min(self.may(lot, spot));
        count > 0 && self.put(lot, count, spot, &menu).is_some()
    }
}
