//! New machines for pools that have less than their `min`.

use std::cmp::Reverse;
use std::sync::Arc;

use model::reasons::{Held, Refused};
use model::report::{Hold, Scope};

use super::Grower;
use super::refusals::No;
use crate::decision::unread;
use crate::observed::view::Standing;
use crate::scale_up::hosts::HostRank;
use crate::simulation::places;
use crate::simulation::planned::CreateReason;

/// How good a choice is: its weight and its price, and then its host.
type Found = ((Reverse<i32>, i64), HostRank);

impl Grower<'_, '_, '_, '_> {
    /// Opens machines for pools that have less than their `min`.
    pub(super) fn keep_min(&mut self) {
        let policy = self.turn.view.policy;
        for (name, pool) in &policy.pools {
            let have = self
                .turn
                .view
                .machines
                .values()
                .filter(|known| known.pool_name() == &**name)
                .filter(|known| {
                    // One whose drain was interrupted is let go on only where the pool keeps its `min`.
                    let stays = matches!(known.standing, Standing::Up | Standing::Coming);
                    // In the place of a node that is given up another one is made.
                    (stays || known.resumable()) && !places::is_given_up(self.turn, known)
                })
                .count();
            let unread = unread::find(self.turn.view.snapshot, policy);
            let unread = unread.filter(|unread| unread.pool.0 == name).count();
            let dark = unread::nodes(self.turn);
            let dark = dark.filter(|(pool, _)| *pool == name).count();
            let have = u32::try_from(have + unread + dark).unwrap_or(u32::MAX);
            for _ in have..pool.min {
                let min = pool.min;
                if let Err(refused) = self.open_cheapest(name, have, min) {
                    let held = Held::BelowMin { have, min, refused };
                    let hold = Hold::new(Scope::Pool(name.clone()), held);
                    self.turn.report.holds.push(hold);
                    break;
                }
            }
        }
    }

    fn open_cheapest(&mut self, pool: &Arc<str>, have: u32, min: u32) -> Result<(), Arc<Refused>> {
        let mut order: Vec<usize> = (0..self.choices.len())
            .filter(|index| self.choices[*index].pool == pool)
            .collect();
        // Of several regions the heavier one comes before the price.
        let rank = |index: usize| {
            let choice = &self.choices[index];
            (Reverse(choice.policy.weight), choice.price)
        };
        order.sort_by_key(|index| (rank(*index), *index));
        let mut refusal = None;
        let mut best: Option<(Found, usize, usize)> = None;
        for index in order {
            if best.is_some_and(|((best, _), ..)| best != rank(index)) {
                break;
            }
            let choice = &self.choices[index];
            let found = self
                .ledger
                .admits(self.turn, choice)
                .map_err(No::Held)
                .and_then(|()| self.host(index, None));
            match found {
                Ok((offer, _)) => {
                    let host = self.ledger.host_rank(choice, &choice.offers[offer]);
                    let found = ((rank(index), host), index, offer);
                    let of_type = |other: usize| self.choices[other].type_name == choice.type_name;
                    if best.is_none_or(|(best, other, _)| of_type(other) && found.0 < best) {
                        best = Some(found);
                    }
                }
                Err(why) => refusal = refusal.or(Some(self.refused(why, None, &mut Vec::new()))),
            }
        }
        if let Some((_, choice, offer)) = best {
            let opened = self.open(choice, offer, CreateReason::Min { have, min });
            return opened.map(|_| ()).map_err(Arc::new);
        }
        Err(refusal.unwrap_or_else(|| Arc::new(Refused::NoInstanceType)))
    }
}
