//! What one machine by itself is made of: which pool and type, and where.
//!
//! Such a machine is made for a pool's `min` before pods are looked at, or in the place of nodes that consolidation takes away. All its pods
//! are known from the beginning, and no other machine makes way for it. So it takes the first choice in its order that has a host.

use super::hosts::HostRank;
use super::limits::LimitTracker;
use crate::index::{ChoiceIndex, OfferIndex};
use crate::simulation::offer::ChoiceList;

/// Takes the first of the choices in `order` for which `find_host` finds a host, and that host. Of a pool over several regions, in which its type has the same
/// rank, the host is the one that its strategy takes, as if all hosts were in one.
///
/// `refuse` hears of all others: with what is against a choice, or with nothing where another came before it.
pub(crate) fn choose_for_one_machine<Rank: PartialEq, Why>(
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
