//! What is told about a decision: explanations, the lower bound, pools, views for others.
//!
//! `README.md` beside this file tells more.

pub(crate) mod bound;
pub mod explain;
pub(crate) mod hosts;
pub mod inspect;
pub(crate) mod networks;
pub(crate) mod pools;
