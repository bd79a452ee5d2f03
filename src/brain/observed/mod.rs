//! What the snapshot says, indexed: which pods run where, which machine is behind a node, how each machine stands.
//!
//! `README.md` beside this file tells more.

pub(crate) mod by_node;
mod kept;
pub(crate) mod machines;
pub(crate) mod provisioning;
pub(crate) mod reach;
pub(crate) mod view;
