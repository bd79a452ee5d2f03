//! New machines: which ones, within which limits, for which pods.
//!
//! `README.md` beside this file tells more.

pub(crate) mod batch;
pub(crate) mod devices;
pub(crate) mod first_to_open;
pub(crate) mod grow;
pub(crate) mod hosts;
pub(crate) mod limits;
pub(crate) mod machine_disks;
pub(crate) mod numbers;
pub(crate) mod one_machine;
pub(crate) mod pins;
pub(crate) mod storages;
pub(crate) mod stores;
