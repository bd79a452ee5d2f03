//! The broker behind its socket and in front of a PVE of the test's making.

mod addresses;
mod clones;
mod cpus;
mod devices;
mod firewall;
mod flood;
mod generated;
mod hardware;
mod isos;
mod limits;
mod new_vms;
mod options;
mod ownership;
mod pools;
mod proofs;
mod reads;
mod records;
mod removals;
mod rig;
mod values;
mod waits;
mod wire;
pub(in crate::broker) mod world;

pub(in crate::broker) use rig::{Rig, rig_with};
pub(in crate::broker) use waits::Lines;
