//! What one machine by itself is made of: which pool and type, and where.
//!
//! A planned machine is its pods and the set of pools, types and hosts that can still carry them all. Beside others each pod that comes narrows the
//! set, and the binding of all machines to what limits leave is kept beside it (`grow/draft`). One that comes alone, for a pool's `min` before
//! pods are looked at or in the place of nodes that go, has all its pods from the beginning, and no other machine makes way for it: what
//! is first of its set is its binding.

use super::hosts::HostRank;
use super::limits::LimitTracker;
use crate::index::{ChoiceIndex, OfferIndex};
use crate::simulation::offer::ChoiceList;

/// The first of the choices in `order` for which `find_host` finds a host. Of a pool over several regions, in which its type has the same
/// rank, the host is the one that its strategy takes, as if all hosts were in one.
///
/// `refuse` hears of all others: with what is against a choice, or with nothing where another came before it.
pub(crate) fn bind<Rank: PartialEq, Why>(
    (choices, limits): (&ChoiceList<'_>, &LimitTracker),
    order: &[(Rank, ChoiceIndex)],
    mut find_host: impl FnMut(ChoiceIndex) -> Result<OfferIndex, Why>,
    mut refuse: impl FnMut(ChoiceIndex, Option<Why>),
) -> Option<(ChoiceIndex, OfferIndex)> {
    let mut best: Option<(&Rank, HostRank, (ChoiceIndex, OfferIndex))> = None;
    for (rank, index) in order {
        let choice = &choices[*index];
        let beaten = best.as_ref().is_some_and(|(of_best, _, (best, _))| {
            rank != *of_best || choices[*best].pool_type != choice.pool_type
        });
        if beaten {
            refuse(*index, None);
            continue;
        }
        let offer = match find_host(*index) {
            Ok(offer) => offer,
            Err(why) => {
                refuse(*index, Some(why));
                continue;
            }
        };
        let host = limits.host_rank(choice, &choice.offers[offer]);
        match &best {
            Some((_, other, _)) if *other <= host => refuse(*index, None),
            Some((.., (other, _))) => {
                refuse(*other, None);
                best = Some((rank, host, (*index, offer)));
            }
            None => best = Some((rank, host, (*index, offer))),
        }
    }
    best.map(|(.., found)| found)
}
