//! `/etc/pve-autoscaler.toml`: from text to validated settings, with errors that name line, column,
//! key, value and what was expected.

pub mod settings;
