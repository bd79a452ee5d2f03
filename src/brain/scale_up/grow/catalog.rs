//! What machines could be made, and which pods an empty one of each would hold.

use super::candidate_order::CandidateOrder;
use super::fit_matrix::FitMatrix;
use crate::index::{CatalogOfferIndex, IndexVec};
use crate::simulation::inter_pod::topology::DomainsByKey;
use crate::simulation::offer::ChoiceList;
use crate::simulation::world::SimCluster;

/// What machines could be made. No phase changes it; answers are added as they are asked for.
#[derive(Debug)]
pub(super) struct Catalog<'p, 'a> {
    /// Every pool with each of its types, in each of its regions.
    pub(super) choices: &'p ChoiceList<'a>,
    /// In which order choices are tried.
    pub(super) candidates: CandidateOrder,
    /// Which offers hold which groups.
    pub(super) rows: FitMatrix<'a>,
    /// The domain of every offer, by offer and topology key.
    pub(super) domains: IndexVec<CatalogOfferIndex, DomainsByKey>,
}

impl<'p, 'a> Catalog<'p, 'a> {
    /// The catalogue of these choices, before anybody asked anything.
    pub(super) fn of(choices: &'p ChoiceList<'a>) -> Catalog<'p, 'a> {
        Catalog {
            choices,
            candidates: CandidateOrder::of(choices),
            rows: FitMatrix::default(),
            domains: IndexVec::default(),
        }
    }

    /// Finds the domains of all offers, where topology keys came into use since.
    pub(super) fn locate(&mut self, world: &mut SimCluster<'a>) {
        let keys = world.inter_pod.keys();
        if self.domains.first().is_some_and(|row| row.len() == keys) {
            return;
        }
        let offers = self.choices.iter().flat_map(|choice| &choice.offers);
        let offers: Vec<_> = offers.collect();
        self.domains.grow_to(offers.len());
        for (offer, row) in offers.iter().zip(&mut self.domains) {
            for key in world.inter_pod.key_ids().skip(row.len()) {
                row.push(world.inter_pod.domain(key, &offer.labels));
            }
        }
    }
}
