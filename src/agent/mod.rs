//! The daemon: observe, decide, check, act.

pub mod announce;
mod blot;
pub mod clocks;
pub mod control;
pub mod daemon;
pub mod drain_order;
pub mod executor;
pub mod guest;
pub mod identity;
pub mod join;
pub mod journal;
pub mod machines;
pub mod news;
pub mod nominations;
pub mod observe;
mod panics;
pub mod region;
mod spacing;
pub mod state;
pub mod status;
mod steps;
mod strangers;
pub mod templates;
pub mod trouble;
pub mod turn;
pub mod vm_config;
