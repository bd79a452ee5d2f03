//! What is told about a decision: explanations, growth, pools, hosts, views for others; and the lower bound that
//! judges plans.
//!
//! `README.md` beside this file tells more.

mod bound;
pub(crate) mod chosen_hosts;
mod devices;
pub mod explain;
pub(crate) mod growth;
pub(crate) mod hosts;
pub mod inspect;
pub(crate) mod lost_cpus;
pub(crate) mod networks;
mod own_cpus;
pub(crate) mod pools;
mod storages;

pub use bound::{LowerBound, lower_bound};
