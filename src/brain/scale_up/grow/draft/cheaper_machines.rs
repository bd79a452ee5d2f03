//! Makes an expensive plan cheaper, machines first: others that cost less and have enough of everything together ([`anneal_machines`]); and then
//! its pods are put together on those, some of which carry too much on the way ([`overload`]).
//!
//! [`super::cheapen`], [`super::share`] and [`super::cheapen_tied`] take a few machines apart at a time, and place their pods one after the other, each
//! where it breaks no rule. A plan that leaves little room on any machine is not reached that way, least of all where
//! pods are spread: so soon as one pod has no room, a machine more is made.

use super::anneal_machines::{self, Wanted};
use super::cheapen::SeededRng;
use super::overload;
use super::ruin_and_recreate;
use super::state::Draft;
use super::whole::Filler;

/// Plans of more pods are left to searches that look at a few machines at a time.
const MAX_PODS: u64 = 128;
/// So often two machines share their pods again, for all machines that are tried.
const SHARINGS: usize = 20_000;
/// At most so often, of these, for the machines of one try.
const SHARINGS_OF_TRY: usize = 3_000;
/// Machines that are tried at most.
const MAX_TRIES: u64 = 24;
/// After so many tries with machines of a price on which pods could not be put together it is held too low.
const TRIES_OF_PRICE: usize = 2;
/// The search ends where the plan costs less than a hundredth more than what is held too low.
const PRICE_PARTS: i128 = 100;

/// A plan that is better than `start`, if one is found: it costs less, and leaves no pods out.
///
/// The price that is tried is halfway between the plan's and one that is held too low.
pub(super) fn search<'p>(start: &Draft<'p>, filler: &Filler<'p>) -> Option<Draft<'p>> {
    let problem = start.problem;
    if problem.pods() > MAX_PODS || start.rank().lost > 0 {
        return None;
    }
    let unplaceable = ruin_and_recreate::unplaceable(problem);
    let mut rng = SeededRng::new(11);
    let mut best = start.clone();
    best.drop_empty();
    let (mut rank, mut found) = (best.rank(), None);
    let grain = filler.rates.grain();
    let mut low = filler.floor().saturating_sub(grain);
    let (mut sharings, mut missed) = (SHARINGS, 0);
    for attempt in 0..MAX_TRIES {
        let between = rank.price.saturating_sub(low);
        let is_near = between <= grain || between.saturating_mul(PRICE_PARTS) < rank.price;
        if sharings == 0 || is_near {
            break;
        }
        let grains = (between / 2 / grain).max(1);
        let most = low.saturating_add(grains.saturating_mul(grain));
        let mut trial = best.clone();
        let wanted = (Wanted::Priced(most), &unplaceable);
        if !anneal_machines::enlarge(&mut trial, wanted, &mut rng) {
            (low, missed) = (most, 0);
            continue;
        }
        trial.settle_classes();
        let mut allowed = SHARINGS_OF_TRY.min(sharings);
        sharings -= allowed;
        let seed = SeededRng::new(attempt);
        let better = overload::share_all(&trial, &unplaceable, (seed, &mut allowed));
        sharings += allowed;
        if let Some(better) = better.filter(|of| of.rank() < rank && of.is_fair()) {
            (rank, missed) = (better.rank(), 0);
            best = better.clone();
            best.drop_empty();
            found = Some(better);
        } else {
            missed += 1;
            if missed == TRIES_OF_PRICE {
                (low, missed) = (most, 0);
            }
        }
    }
    found
}

impl Draft<'_> {
    /// Machines whose class pods asked for are of the class that they are bound to now. What counters have counted is left as it is.
    fn settle_classes(&mut self) {
        for machine in &mut self.machines {
            if let (Some(_), Some((option, _))) = (machine.class, machine.bound) {
                machine.class = Some(self.problem.options[option].class);
            }
        }
    }
}
