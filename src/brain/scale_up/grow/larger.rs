//! Whether a planned machine should become a larger one, instead of one more.

use super::choose::{ChoiceSearch, PRICE_PERCENT, Pick, carries_more_for_its_cost};
use super::trial_node::TrialNode;
use super::type_change::TypeChange;
use crate::constraints::fit;
use crate::index::{ChoiceIndex, PlannedIndex};
use crate::simulation::offer;

/// Planned machines that are tried in the next size before one more is made, at most: those with most to spare.
const MAX_MACHINES: usize = 8;
/// Planned machines that may turn out closed to a group by other pods before no more of them are asked: there may be
/// thousands for each of thousands of groups.
const MAX_CLOSED: usize = 256;
/// More expensive types of its pool that are tried, the cheapest first, for one that a planned machine could become.
const MAX_LARGER_TYPES: usize = 16;

impl ChoiceSearch<'_, '_, '_> {
    /// Finds a planned machine that could become the best choice's type and take pods of the leading group with it:
    /// one machine less.
    pub(super) fn find_larger_type(&self, best: &Pick) -> Option<Pick> {
        // Asked for each of thousands of groups of each of thousands of machines: the cheapest question first.
        let view = self.view;
        let wanted = view.choice(best.choice);
        let smaller = |choice: ChoiceIndex| {
            let now = view.choice(choice);
            now.pool_index == wanted.pool_index && now.price < wanted.price
        };
        let machines = view.planned.machines.indexed();
        let mut machines = machines.filter(|(_, planned)| smaller(planned.choice));
        machines.find_map(|(machine, _)| self.fill_enlarged_on_trial(machine, best.choice))
    }

    /// Finds a planned machine to make one size larger. Candidates are those with most free of what the leading
    /// group asks; each would become the next size that holds one more of the group's pods. The one that then
    /// carries most for the added price wins: what it has free of one resource is of use once it has more of the
    /// other.
    pub(super) fn find_roomier_machine(&self, best: &Pick) -> Option<Pick> {
        // Where each pod needs a node of its own there are as many in the end.
        self.others?;
        let roomy = self.find_roomiest(best).into_iter();
        let picks = roomy.filter_map(|machine| {
            let choice = self.find_next_size(machine)?;
            self.fill_enlarged_on_trial(machine, choice)
        });
        picks.reduce(cheaper_of)
    }

    /// Finds a planned machine that takes pods of the leading group once it is a size larger, whatever pool it is of: of the first
    /// [`MAX_MACHINES`] that would, the one that then carries most for the added price. `trials` counts the machines that are looked at
    /// down to none.
    pub(super) fn find_any_larger(&self, trials: &mut usize) -> Option<Pick> {
        let view = self.view;
        let machines = view.planned.machines.indexes().take(*trials);
        let looked_at = machines.inspect(|_| *trials -= 1);
        let picks = looked_at.filter_map(|machine| {
            let choice = self.find_next_size(machine)?;
            self.fill_enlarged_on_trial(machine, choice)
        });
        picks.take(MAX_MACHINES).reduce(cheaper_of)
    }

    /// What more would go on a planned machine if it became one of a choice.
    fn fill_enlarged_on_trial(&self, machine: PlannedIndex, choice: ChoiceIndex) -> Option<Pick> {
        let (view, lead) = (self.view, self.lead);
        let then = TypeChange::to_dearer(view, machine, choice)?;
        let offer = then.offer;
        let planned = then.planned();
        if !view.row(lead).fits[view.choice(choice).index_in_catalog(offer)] {
            return None;
        }
        let inter_pod = &view.world.inter_pod;
        let at = inter_pod.at(planned.node);
        let may = self
            .rules
            .map_or(u64::MAX, |rules| inter_pod.most(rules, at));
        let price = |of: ChoiceIndex| i128::from(view.choice(of).price);
        let more = price(choice) - price(planned.choice);
        let unmet = i128::from(view.unmet(lead, choice, offer));
        let mut pick = Pick {
            choice,
            offer,
            lead_pods: 0,
            worth: 0,
            cost: more * (PRICE_PERCENT + unmet),
            instead: Some(machine),
        };
        let may = usize::try_from(may).unwrap_or(usize::MAX);
        TrialNode::of_machine(&then).count_fill(&mut pick, (lead, may), self.others);
        (pick.lead_pods > 0).then_some(pick)
    }

    /// The planned machines of the pool that have most to spare of what a pod of the leading group mostly
    /// asks, and that other pods let it onto.
    fn find_roomiest(&self, best: &Pick) -> Vec<PlannedIndex> {
        let view = self.view;
        let pool = view.choice(best.choice).pool_index;
        let asked = &view.shape(self.lead).shape.requests;
        let by_cpu = offer::price_of_cpu(asked) > offer::price_of_memory(asked);
        let mut most: Vec<(i64, PlannedIndex)> = Vec::with_capacity(MAX_MACHINES + 1);
        let mut refusals = 0;
        for (machine, planned) in view.planned.machines.indexed() {
            let free = &view.world.nodes[planned.node].free;
            let spare = if by_cpu { free.cpu_milli } else { free.memory };
            let last = most.get(MAX_MACHINES - 1);
            let less = last.is_some_and(|(least, _)| spare <= *least);
            if less || view.choice(planned.choice).pool_index != pool {
                continue;
            }
            let inter_pod = &view.world.inter_pod;
            let at = inter_pod.at(planned.node);
            if self
                .rules
                .is_some_and(|rules| inter_pod.most(rules, at) == 0)
            {
                refusals += 1;
            } else {
                let position = most.partition_point(|(other, _)| *other >= spare);
                most.insert(position, (spare, machine));
                most.truncate(MAX_MACHINES);
            }
            if refusals == MAX_CLOSED {
                break;
            }
        }
        most.into_iter().map(|(_, machine)| machine).collect()
    }

    /// The cheapest type of its pool that costs more than a planned machine's own and has room for one more pod of the leading group.
    fn find_next_size(&self, machine: PlannedIndex) -> Option<ChoiceIndex> {
        let view = self.view;
        let planned = &view.planned.machines[machine];
        let now = view.choice(planned.choice);
        let shape = view.shape(self.lead).shape;
        let ports = &view.world.nodes[planned.node].ports;
        let choices = view.catalog.candidates.choices_by_price(now.pool_index);
        let above = choices.partition_point(|choice| view.choice(*choice).price <= now.price);
        let mut above = choices[above..].iter().take(MAX_LARGER_TYPES).copied();
        above.find(|choice| {
            let then = TypeChange::on_same_host(view, machine, *choice);
            then.is_some_and(|then| fit::room(shape, &then.free(), ports) > 0)
        })
    }
}

/// The pick that carries more for its cost, the first of equals.
fn cheaper_of(first: Pick, second: Pick) -> Pick {
    if carries_more_for_its_cost(&second, &first) {
        second
    } else {
        first
    }
}
