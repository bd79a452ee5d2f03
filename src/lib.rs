//! A node autoscaler for Kubernetes on Proxmox VE.
//!
//! `docs/architecture.md` has the picture. Dependencies point inward: `cli`, `web` → `controller` →
//! {`brain`, `kubernetes`, `pve`}; the brain depends on `model` alone; nothing depends on `sim` but
//! `simulator` and the tests. `tests/tidy.rs` holds these rules.
//!
//! Without the feature `simulator`, which is on by default, there are no `sim`, `conformance` and `simulator`:
//! so the package's daemon and broker are built.

// They end the process where nobody can read what they write; `cli::say` and `cli::print` do not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

#[macro_use]
pub extern crate planted;

pub use {brain, model};

mod bounded_file;
pub mod broker;
pub mod cli;
pub mod clock;
pub mod config;
#[cfg(feature = "simulator")]
pub mod conformance;
pub mod controller;
pub mod kubernetes;
pub mod notify;
pub mod pinning;
mod post;
pub mod pve;
pub mod record;
mod screen;
#[cfg(feature = "simulator")]
pub mod sim;
#[cfg(feature = "simulator")]
pub mod simulator;
pub mod simulator_args;
pub mod trace;
mod typed_number;
pub mod web;
pub mod wire;
