//! What is to be covered, as plain numbers.
//!
//! Amounts are by resource, in the same order everywhere: CPU in millicores, memory and ephemeral
//! storage in bytes, pods, then extended resources. None is negative.

use crate::index::{
    ChoiceIndex, CliqueIndex, IndexVec, PodClassIndex, PoolIndex, ResourceIndex, RoomIndex,
};

/// Amounts by resource.
pub(super) type Amounts = IndexVec<ResourceIndex, i64>;

/// Pods among the amounts.
pub(super) const PODS: ResourceIndex = ResourceIndex(3);

/// Pods that are alike here.
#[derive(Debug)]
pub(super) struct PodClass {
    pub(super) amounts: Amounts,
    pub(super) count: i128,
    /// By candidate: one pod alone may be there.
    pub(super) may: IndexVec<ChoiceIndex, bool>,
    /// The cliques that they are in.
    pub(super) cliques: Vec<CliqueIndex>,
}

/// What a new machine could be.
#[derive(Debug)]
pub(super) struct MachineOption {
    /// At most what it offers, on any host.
    pub(super) amounts: Amounts,
    pub(super) price: i128,
    pub(super) pool: PoolIndex,
}

/// A node there is, or a machine under way.
#[derive(Debug)]
pub(super) struct ExistingNode {
    /// What is free.
    pub(super) amounts: Amounts,
    /// By class: one pod alone may be there.
    pub(super) may: IndexVec<PodClassIndex, bool>,
    /// By clique: how many of its pods may be there at most; `None` for no limit.
    pub(super) most: IndexVec<CliqueIndex, Option<i128>>,
}

/// All of it.
#[derive(Debug)]
pub(super) struct CoverProblem {
    pub(super) classes: IndexVec<PodClassIndex, PodClass>,
    /// One for each of the decision's choices.
    pub(super) candidates: IndexVec<ChoiceIndex, MachineOption>,
    pub(super) rooms: IndexVec<RoomIndex, ExistingNode>,
    /// How many cliques there are: of the pods of one, no two may be on the same machine.
    pub(super) cliques: usize,
    /// By pool: machines that are made for its `min`.
    pub(super) kept: IndexVec<PoolIndex, i128>,
}

/// Whether one pod that asks this has room.
pub(super) fn holds(amounts: &Amounts, asked: &Amounts) -> bool {
    asked.iter().zip(amounts).all(|(asked, has)| asked <= has)
}
