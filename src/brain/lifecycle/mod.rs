//! What every machine and cluster needs besides pods: what holds everything back, back-off, machines that failed or were left behind, power.
//!
//! `README.md` beside this file tells more.

pub(crate) mod backoff;
pub(crate) mod find_holds;
pub(crate) mod in_place;
pub(crate) mod life;
pub(crate) mod migrated;
pub(crate) mod power;
pub(crate) mod reregistered;
mod shut_out;
pub(crate) mod sweep;
