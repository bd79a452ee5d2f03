//! PCI devices of hosts that machines are given, by PVE's resource mappings.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Devices that one VM can have (qemu-server, `MAX_HOSTPCI_DEVICES`).
pub const MAX_DEVICES: usize = 16;

/// A device that a machine of an instance type gets: one of those that a mapping has on its host.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct PciDevice {
    /// The mapping.
    pub mapping: Arc<str>,
    /// PVE's `pcie`: it is on the PCI Express bus, which the machine type q35 has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pcie: bool,
    /// PVE's `x-vga`: it is the VM's first screen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub x_vga: bool,
    /// PVE's `rombar=0`: the guest does not see its ROM.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_rom: bool,
}

impl PciDevice {
    /// The device's options as PVE writes them, in PVE's order.
    fn options(&self) -> impl Iterator<Item = &'static str> {
        let options = [
            (self.pcie, "pcie=1"),
            (self.no_rom, "rombar=0"),
            (self.x_vga, "x-vga=1"),
        ];
        let set = options.into_iter().filter(|(set, _)| *set);
        set.map(|(_, text)| text)
    }

    /// The value of `hostpciN`.
    pub fn value(&self) -> String {
        format!("mapping={self}")
    }
}

impl fmt::Display for PciDevice {
    /// Writes the device as the configuration has it: `gpu,pcie=1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.mapping)?;
        self.options().try_for_each(|text| write!(f, ",{text}"))
    }
}

/// What one `hostpciN` of a guest takes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PciUse {
    /// A device of a mapping; PVE chooses which when the guest starts.
    Mapping(Arc<str>),
    /// A certain device, by its address.
    Device(Arc<str>),
}

impl PciUse {
    /// Reads the value of a `hostpciN`; `None` when it names no device.
    pub fn read(value: &str) -> Option<PciUse> {
        let mut host = None;
        for (index, part) in value.trim().split(',').enumerate() {
            match part.split_once('=') {
                Some(("mapping", name)) if !name.is_empty() => {
                    return Some(PciUse::Mapping(name.into()));
                }
                Some(("host", address)) => host = Some(address),
                None if index == 0 && !part.is_empty() => host = Some(part),
                _ => {}
            }
        }
        host.map(|address| PciUse::Device(address.into()))
    }

    /// What the guests' configurations say, of all their keys with a number.
    pub fn all<'a>(keys: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<PciUse> {
        let keys = keys.filter(|(key, _)| {
            let number = key.strip_prefix("hostpci");
            number.is_some_and(|number| number.parse::<u8>().is_ok())
        });
        keys.filter_map(|(_, value)| PciUse::read(value)).collect()
    }
}

/// Whether two addresses mean a device in common: `0000:01:00` is all functions of it, `;` stands between several, and PVE
/// lets the domain be left out where it is 0.
pub fn share_a_device(one: &str, other: &str) -> bool {
    let full = |address: &str| {
        let address = address.trim().to_ascii_lowercase();
        if address.matches(':').count() < 2 {
            format!("0000:{address}")
        } else {
            address
        }
    };
    let within = |outer: &str, inner: &str| {
        let rest = inner.strip_prefix(outer);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    one.split(';').map(full).any(|one| {
        let mut others = other.split(';').map(full);
        others.any(|each| within(&one, &each) || within(&each, &one))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_and_read_as_pve_has_them() {
        let device = PciDevice {
            mapping: "gpu".into(),
            pcie: true,
            x_vga: true,
            no_rom: true,
        };
        assert_eq!(device.value(), "mapping=gpu,pcie=1,rombar=0,x-vga=1");
        let gpu = || Some(PciUse::Mapping("gpu".into()));
        assert_eq!(PciUse::read(&device.value()), gpu());
        assert_eq!(PciUse::read("pcie=1,mapping=gpu"), gpu());
        let device = |address: &str| Some(PciUse::Device(address.into()));
        assert_eq!(PciUse::read("0000:01:00.0,pcie=1"), device("0000:01:00.0"));
        assert_eq!(PciUse::read("pcie=1,host=01:00"), device("01:00"));
        assert_eq!(PciUse::read(""), None);
        assert_eq!(PciUse::read("pcie=1"), None);
        let keys = [("hostpci0", "mapping=a"), ("hostpcix", "b"), ("net0", "c")];
        let all = PciUse::all(keys.into_iter());
        assert_eq!(all, [PciUse::Mapping("a".into())]);
    }

    #[test]
    fn addresses_are_the_same_device_however_they_are_written() {
        for (one, other, same) in [
            ("0000:01:00.0", "0000:01:00.0", true),
            ("01:00.0", "0000:01:00.0", true),
            ("0000:01:00", "0000:01:00.1", true),
            ("0000:0A:00.0", "0000:0a:00", true),
            ("0000:01:00.0;0000:01:00.1", "0000:01:00.1", true),
            ("0000:01:00.0", "0000:01:00.1", false),
            ("0000:01:00", "0000:01:001", false),
            ("0001:01:00.0", "01:00.0", false),
        ] {
            assert_eq!(share_a_device(one, other), same, "{one} {other}");
            assert_eq!(share_a_device(other, one), same, "{other} {one}");
        }
    }
}
