//! The broker behind its socket and in front of a PVE of the test's making.

mod ownership;
pub(in crate::broker) mod world;
