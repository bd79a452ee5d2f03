//! What is to be covered, as plain numbers.
//!
//! Amounts are by resource, in the same order everywhere: CPU in millicores, memory and ephemeral
//! storage in bytes, pods, then extended resources. None is negative.

use crate::index::{IndexVec, PoolIndex};

/// Pods that are alike here.
#[derive(Debug)]
pub(super) struct PodClass {
    pub(super) amounts: Vec<i64>,
    pub(super) count: i128,
    /// By candidate: one pod alone may be there.
    pub(super) may: Vec<bool>,
    /// The cliques that they are in.
    pub(super) cliques: Vec<usize>,
}

/// What a new machine could be.
#[derive(Debug)]
pub(super) struct MachineOption {
    /// At most what it offers, on any host.
    pub(super) amounts: Vec<i64>,
    pub(super) price: i128,
    pub(super) pool: PoolIndex,
}

/// A node there is, or a machine under way.
#[derive(Debug)]
pub(super) struct ExistingNode {
    /// What is free.
    pub(super) amounts: Vec<i64>,
    /// By class: one pod alone may be there.
    pub(super) may: Vec<bool>,
    /// By clique: how many of its pods may be there at most; `None` for no limit.
    pub(super) most: Vec<Option<i128>>,
}

/// All of it.
#[derive(Debug)]
pub(super) struct CoverProblem {
    pub(super) classes: Vec<PodClass>,
    pub(super) candidates: Vec<MachineOption>,
    pub(super) rooms: Vec<ExistingNode>,
    /// Cliques: of the pods of one, no two may be on the same machine.
    pub(super) cliques: usize,
    /// By pool: machines that are made for its `min`.
    pub(super) kept: IndexVec<PoolIndex, i128>,
}

/// Whether one pod that asks this has room.
pub(super) fn holds(amounts: &[i64], asked: &[i64]) -> bool {
    asked.iter().zip(amounts).all(|(asked, has)| asked <= has)
}
