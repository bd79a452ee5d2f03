//! Nodes with pods on them, as they will be, and putting pods there.
//!
//! `README.md` beside this file tells more.

pub(crate) mod bookings;
pub(crate) mod capacity;
pub(crate) mod classes;
pub(crate) mod demand;
pub(crate) mod disks;
pub(crate) mod inter_pod;
pub(crate) mod offer;
pub(crate) mod pack;
pub(crate) mod places;
pub(crate) mod planned;
pub(crate) mod preempt;
pub(crate) mod slots;
pub(crate) mod takes;
mod unseen;
pub(crate) mod work;
pub(crate) mod world;
