//! A node autoscaler for Kubernetes on Proxmox VE.
//!
//! `docs/architecture.md` has the picture. Dependencies point inward: `cli`, `web` → `agent` →
//! {`brain`, `kube`, `pve`}; the brain depends on `model` alone; nothing depends on `sim` but the
//! demo and the tests. `tests/tidy.rs` holds these rules.

#[macro_use]
pub mod planted;

pub mod agent;
pub mod brain;
pub mod broker;
pub mod cli;
pub mod clock;
pub mod config;
pub mod conformance;
pub mod kube;
pub mod model;
pub mod pve;
pub mod sim;
pub mod web;
