//! Whether a planned machine should become a larger one, instead of one more.

use super::choose::{Search, WHOLE, cheaper};
use super::{Grower, Pick};
use crate::constraints::fit;
use crate::simulation::offer;

/// Planned machines that are tried in the next size before one more is made, at most: those with most to spare.
const ROOMY: usize = 8;
/// Planned machines that may turn out closed to a group by other pods before no more of them are asked: there may be
/// thousands for each of thousands of groups.
const REFUSALS: usize = 256;
/// Dearer types of its pool that are asked, the cheapest first, for one that a planned machine could become.
const STEPS: usize = 16;

impl Grower<'_, '_, '_, '_> {
    /// Finds a planned machine that could become the best choice's type and take pods of the leading group with it:
    /// one machine less.
    pub(super) fn larger(&self, search: &Search<'_>, best: &Pick) -> Option<Pick> {
        // Asked for each of thousands of groups of each of thousands of machines: the cheapest question first.
        let wanted = &self.choices[best.choice];
        let smaller = |choice: usize| {
            let now = &self.choices[choice];
            now.pool_slot == wanted.pool_slot && now.price < wanted.price
        };
        let machines = self.planned.machines.iter().enumerate();
        let mut machines = machines.filter(|(_, planned)| smaller(planned.choice));
        machines.find_map(|(machine, _)| self.enlarged(search, machine, best.choice))
    }

    /// Finds a planned machine to make one size larger. Candidates are those with most free of what the leading
    /// group asks; each would become the next size that holds one more of the group's pods. The one that then
    /// carries most for the added price wins: what it has free of one resource is of use once it has more of the
    /// other.
    pub(super) fn roomier(&self, search: &Search<'_>, best: &Pick) -> Option<Pick> {
        // Where each pod needs a node of its own there are as many in the end.
        search.others?;
        let roomy = self.roomy(search, best).into_iter();
        let picks = roomy.filter_map(|machine| {
            let choice = self.next_size(search.lead, machine)?;
            self.enlarged(search, machine, choice)
        });
        picks.reduce(|best, pick| if cheaper(&pick, &best) { pick } else { best })
    }

    /// What more would go on a planned machine if it became one of a choice.
    fn enlarged(&self, search: &Search<'_>, machine: usize, choice: usize) -> Option<Pick> {
        let lead = search.lead;
        let offer = self.may_become(machine, choice)?;
        let planned = &self.planned.machines[machine];
        let slot = self.choices[choice].first + offer;
        if !self.row(lead).fits[slot] {
            return None;
        }
        let at = self.world.company.at(planned.bin);
        let may = search.rules;
        let may = may.map_or(u64::MAX, |rules| self.world.company.most(rules, at));
        let more =
            i128::from(self.choices[choice].price) - i128::from(self.choices[planned.choice].price);
        let unmet = i128::from(self.unmet(lead, choice, offer));
        let mut pick = Pick {
            choice,
            offer,
            lead: 0,
            worth: 0,
            cost: more * (WHOLE + unmet),
            instead: Some(machine),
        };
        let room = self.room_as(machine, &pick);
        let may = usize::try_from(may).unwrap_or(usize::MAX);
        self.weigh(&mut pick, (lead, may), search.others, room);
        (pick.lead > 0).then_some(pick)
    }

    /// The planned machines of the pool that have most to spare of what a pod of the leading group mostly
    /// asks, and that other pods let it onto.
    fn roomy(&self, search: &Search<'_>, best: &Pick) -> Vec<usize> {
        let pool = self.choices[best.choice].pool_slot;
        let asked = &self.world.shapes[self.groups[search.lead].shape]
            .shape
            .requests;
        let by_cpu = offer::price_of_cpu(asked) > offer::price_of_memory(asked);
        let mut most: Vec<(i64, usize)> = Vec::with_capacity(ROOMY + 1);
        let mut refusals = 0;
        for (machine, planned) in self.planned.machines.iter().enumerate() {
            let free = &self.world.bins[planned.bin].free;
            let spare = if by_cpu { free.cpu_milli } else { free.memory };
            let last = most.get(ROOMY - 1);
            let less = last.is_some_and(|(least, _)| spare <= *least);
            if less || self.choices[planned.choice].pool_slot != pool {
                continue;
            }
            let at = self.world.company.at(planned.bin);
            let company = &self.world.company;
            if search
                .rules
                .is_some_and(|rules| company.most(rules, at) == 0)
            {
                refusals += 1;
            } else {
                let position = most.partition_point(|(other, _)| *other >= spare);
                most.insert(position, (spare, machine));
                most.truncate(ROOMY);
            }
            if refusals == REFUSALS {
                break;
            }
        }
        most.into_iter().map(|(_, machine)| machine).collect()
    }

    /// The cheapest dearer choice of its pool as which a planned machine would hold one pod more of a
    /// group.
    fn next_size(&self, group: usize, machine: usize) -> Option<usize> {
        let planned = &self.planned.machines[machine];
        let now = &self.choices[planned.choice];
        let shape = self.world.shapes[self.groups[group].shape].shape;
        let ports = &self.world.bins[planned.bin].ports;
        let sizes = self.market.sizes(now.pool_slot);
        let above = sizes.partition_point(|choice| self.choices[*choice].price <= now.price);
        let mut above = sizes[above..].iter().take(STEPS).copied();
        above.find(|choice| {
            let offer = self.same_host(machine, *choice);
            let free = offer.map(|offer| self.free_as(machine, *choice, offer));
            free.is_some_and(|free| fit::room(shape, &free, ports) > 0)
        })
    }
}
