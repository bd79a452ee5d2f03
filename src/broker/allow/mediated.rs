//! Mediated devices: what a host has left of those that machines get.

use super::PathSegment::{Fixed, Host, Mapping};
use super::{AllowRule, BrokerPolicy, table};

/// How many a host has left, of a mapping that passes [`check_mapping`].
pub(super) const LEFT: AllowRule = table::read(
    "mediated-left",
    &[
        Fixed("nodes"),
        Host,
        Fixed("hardware"),
        Fixed("pci"),
        Mapping,
        Fixed("mdev"),
    ],
    &[],
);

/// A mapping of which machines of some instance type get mediated devices.
pub(super) fn check_mapping(policy: &BrokerPolicy, mapping: &str) -> Result<(), String> {
    let types = policy.allow.types.values();
    let mut devices = types.flat_map(|kind| &kind.pci);
    if devices.any(|device| device.mdev.is_some() && *device.mapping == *mapping) {
        return Ok(());
    }
    Err(format!(
        "mapping {mapping}: no instance type names a mediated device of it"
    ))
}
