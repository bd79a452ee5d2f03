//! Makes a plan cheaper: the pods of a few machines are shared among others that cost less together, of all ways that there are ([`loads`]),
//! or among equally expensive ones in another way, from where something cheaper may be found.
//!
//! Unlike [`super::cheapen`] it does not depend on the order in which pods are placed. It leaves alone all machines with pods whose places
//! depend on others, and plans in which pods have no place.

use super::cheapen::SeededRng;
use super::loads::{self, ShareQuestion};
use super::state::Draft;
use super::whole::{Filler, Values, put};
use super::{Rank, To};
use crate::index::{DraftMachineIndex, LotIndex};

/// Pods that are shared together, but for those of two machines.
pub(super) const PODS_TOGETHER: usize = 15;
/// Steps of one search, each some ten nanoseconds: a load is looked at in one, or a few where pods are of many sorts.
const STEPS_PER_SHARING: usize = 2_000;
/// Steps of all searches for one plan: at most, and for each pod, some ten milliseconds.
const ALL_STEPS: usize = 150_000;
const ALL_STEPS_EACH: usize = 4_000;
/// Steps that emptying machines and putting all back counts, beside one for each machine of the plan.
const STEPS_PER_TRY: usize = 50;
/// Where another way to share pods for the same price is looked for, the value of each is lowered by less than this many thousandths: so
/// loads are tried in another order.
const LOWERED: usize = 100;

/// What a search may find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WantedShare {
    Better,
    /// Another way to share pods that is no worse.
    AsGood,
}

/// Makes a plan cheaper, if it finds how. `values` is what pods count: at what they were seen to cost, few loads are worth their price.
pub(super) fn improve(draft: &mut Draft<'_>, filler: &Filler<'_>, values: &Values) {
    let pods = usize::try_from(draft.problem.pods()).unwrap_or(usize::MAX);
    let mut steps = ALL_STEPS.min(ALL_STEPS_EACH.saturating_mul(pods));
    let mut rng = SeededRng::new(5);
    while steps > 0 {
        let before = draft.rank();
        let machines = replanned(draft);
        if before.lost > 0 || before.price <= filler.floor() || machines.len() < 2 {
            return;
        }
        steps = steps.saturating_sub(STEPS_PER_TRY + machines.len());
        let mark = draft.mark();
        let victims = victims(draft, machines, &mut rng);
        for at in &victims {
            draft.unload(*at, |_| true);
        }
        let mut found = false;
        for wanted in [WantedShare::Better, WantedShare::AsGood] {
            let mut pay = |lot: LotIndex| match wanted {
                WantedShare::Better => values.of_pod(lot),
                WantedShare::AsGood => lower(values.of_pod(lot), &mut rng),
            };
            let mut allowed = STEPS_PER_SHARING.min(steps);
            steps -= allowed;
            let with = (before, wanted);
            found = found || share(draft, (filler, &victims), &mut pay, with, &mut allowed);
            steps += allowed;
        }
        if found {
            draft.commit();
        } else {
            draft.rollback(mark);
        }
    }
}

/// Shares the pods that have no place and depend on no others, where they are few, among machines such that the plan is better than `before`, if it
/// finds how: on those of `used` that are empty, and new ones.
pub(super) fn share_rest(
    draft: &mut Draft<'_>,
    filler: &Filler<'_>,
    values: &Values,
    used: &[DraftMachineIndex],
    before: Rank,
) -> bool {
    let empty = |at: &DraftMachineIndex| draft.machines[*at].load.counts.is_empty();
    let spare: Vec<DraftMachineIndex> = used.iter().copied().filter(empty).collect();
    let mut pay = |lot: LotIndex| values.of_pod(lot);
    let (wanted, mut steps) = ((before, WantedShare::Better), STEPS_PER_SHARING);
    before.lost == 0 && share(draft, (filler, &spare), &mut pay, wanted, &mut steps)
}

/// `value`, lowered at random by less than [`LOWERED`] thousandths.
fn lower(value: i128, rng: &mut SeededRng) -> i128 {
    value / 1000 * (1000 - rng.below(LOWERED) as i128)
}

/// Machines on which no pod's place depends on others.
fn replanned(draft: &Draft<'_>) -> Vec<DraftMachineIndex> {
    let machines = draft.machines.indexed();
    let replanned = machines.filter(|(_, machine)| {
        let counts = &machine.load.counts;
        !counts.is_empty() && counts.iter().all(|(lot, _)| !draft.problem.lots[*lot].tied)
    });
    replanned.map(|(at, _)| at).collect()
}

/// Some of these machines, in order: two, and more as long as they have few pods.
fn victims(
    draft: &Draft<'_>,
    mut machines: Vec<DraftMachineIndex>,
    rng: &mut SeededRng,
) -> Vec<DraftMachineIndex> {
    let (mut victims, mut pods) = (Vec::new(), 0);
    while !machines.is_empty() {
        let at = machines.swap_remove(rng.below(machines.len()));
        let counts = draft.machines[at].load.counts.iter();
        pods += counts.map(|(_, count)| count).sum::<usize>();
        if victims.len() >= 2 && pods > PODS_TOGETHER {
            break;
        }
        victims.push(at);
    }
    victims.sort_unstable();
    victims
}

/// Shares what has no place among machines that are empty, and new ones. Returns whether the plan is what is wanted. Else it is as it was.
fn share(
    draft: &mut Draft<'_>,
    (filler, spare): (&Filler<'_>, &[DraftMachineIndex]),
    pay: &mut dyn FnMut(LotIndex) -> i128,
    (before, wanted): (Rank, WantedShare),
    steps: &mut usize,
) -> bool {
    let problem = draft.problem;
    let lots = draft.left.indexed();
    let pods = lots.filter(|(lot, left)| **left > 0 && !problem.lots[*lot].tied);
    let mut below = before.price.saturating_sub(draft.rank().price);
    if wanted == WantedShare::AsGood {
        below = below.saturating_add(filler.rates.grain());
    }
    let question = ShareQuestion {
        problem,
        filler,
        pods: pods.map(|(lot, left)| (lot, *left)).collect(),
        below,
    };
    let Some(found) = loads::find(&question, pay, steps) else {
        return false;
    };
    let mark = draft.mark();
    let mut spare = spare.to_vec();
    for (choice, load) in found {
        let to = spare.pop().map(To::Machine);
        if !put(draft, &load, to, &filler.choices[choice].1) {
            draft.rollback(mark);
            return false;
        }
    }
    draft.rebind();
    let rank = draft.rank();
    let good = rank < before || (wanted == WantedShare::AsGood && rank == before);
    if !(good && draft.is_fair()) {
        draft.rollback(mark);
        return false;
    }
    true
}
