//! One decision in the making: what every step reads and adds to.
//!
//! `README.md` beside this file tells more.

pub(crate) mod addresses;
pub(crate) mod cpu_book;
pub(crate) mod cpus;
pub(crate) mod holds;
mod last_hosts;
pub(crate) mod names;
pub(crate) mod overlaps;
pub(crate) mod pod_to_place;
mod removals;
pub(crate) mod turn;
pub(crate) mod unread;
