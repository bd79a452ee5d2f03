//! PCI devices of hosts that machines are given, by PVE's resource mappings.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::policy::{Policy, PoolPolicy};

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
    /// PVE's `mdev`: the type of mediated device of which it gets one, made on a device of the mapping when it starts. `None`: it gets a
    /// whole device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mdev: Option<Arc<str>>,
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

    /// What a guest that has it takes.
    pub fn taken(&self) -> PciUse {
        let mapping = self.mapping.clone();
        match self.mdev.clone() {
            None => PciUse::Mapping(mapping),
            Some(mdev) => PciUse::Mdev { mapping, mdev },
        }
    }

    /// What it is called where devices are counted.
    pub fn called(&self) -> Arc<str> {
        called(&self.mapping, self.mdev.as_ref())
    }
}

/// What devices of a mapping are called where they are counted: `gpu`; mediated ones of a type, as PVE writes them, `vgpu,mdev=nvidia-63`.
pub fn called(mapping: &Arc<str>, mdev: Option<&Arc<str>>) -> Arc<str> {
    match mdev {
        None => mapping.clone(),
        Some(mdev) => format!("{mapping},mdev={mdev}").into(),
    }
}

impl fmt::Display for PciDevice {
    /// Writes the device as PVE has it behind `mapping=`: `gpu,pcie=1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.mapping)?;
        if let Some(mdev) = &self.mdev {
            write!(f, ",mdev={mdev}")?;
        }
        self.options().try_for_each(|text| write!(f, ",{text}"))
    }
}

impl Policy {
    /// The mappings of PCI devices that machines in a region may get some of.
    pub fn mappings_in(&self, region: &str) -> BTreeSet<&Arc<str>> {
        let devices = self.devices_in(region).into_iter();
        devices.map(|(mapping, _)| mapping).collect()
    }

    /// These mappings once more, for whole devices and for each type of mediated device of which machines may get some.
    pub fn devices_in(&self, region: &str) -> BTreeSet<(&Arc<str>, Option<&Arc<str>>)> {
        let pools = self.pools_in(region).map(|(_, pool)| pool);
        pools.flat_map(|pool| self.devices_of(pool)).collect()
    }

    /// The devices of machines of a pool: by mapping, and type where it is a mediated one.
    fn devices_of<'a>(
        &'a self,
        pool: &'a PoolPolicy,
    ) -> impl Iterator<Item = (&'a Arc<str>, Option<&'a Arc<str>>)> {
        let types = pool.instance_types.iter();
        let types = types.filter_map(move |name| self.instance_types.get(name));
        let devices = types.flat_map(|kind| &kind.pci);
        devices.map(|device| (&device.mapping, device.mdev.as_ref()))
    }

    /// The mappings of which machines may get mediated devices on a host of a region.
    pub fn mediated_at(&self, region: &str, host: &Arc<str>) -> BTreeSet<&Arc<str>> {
        let pools = self.pools_in(region).map(|(_, pool)| pool);
        let devices = pools
            .filter(|pool| pool.may_use(host))
            .flat_map(|pool| self.devices_of(pool));
        devices
            .filter_map(|(mapping, mdev)| mdev.map(|_| mapping))
            .collect()
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
    /// A mediated device of a type, made on one of a mapping's devices when the guest starts.
    Mdev {
        /// The mapping.
        mapping: Arc<str>,
        /// The type.
        mdev: Arc<str>,
    },
    /// A mediated device of a type, made on a certain device.
    MdevOf {
        /// The device's address.
        device: Arc<str>,
        /// The type.
        mdev: Arc<str>,
    },
}

impl PciUse {
    /// Reads the value of a `hostpciN`; `None` when it names no device.
    pub fn read(value: &str) -> Option<PciUse> {
        let (mut host, mut mapping, mut mdev) = (None, None, None);
        for (index, part) in value.trim().split(',').enumerate() {
            match part.split_once('=') {
                Some(("mapping", name)) if !name.is_empty() => mapping = mapping.or(Some(name)),
                Some(("host", address)) => host = Some(address),
                Some(("mdev", name)) if !name.is_empty() => mdev = Some(Arc::from(name)),
                None if index == 0 && !part.is_empty() => host = Some(part),
                _ => {}
            }
        }
        match (mapping.map(Arc::from), host.map(Arc::from), mdev) {
            (Some(mapping), _, None) => Some(PciUse::Mapping(mapping)),
            (Some(mapping), _, Some(mdev)) => Some(PciUse::Mdev { mapping, mdev }),
            (None, Some(device), None) => Some(PciUse::Device(device)),
            (None, Some(device), Some(mdev)) => Some(PciUse::MdevOf { device, mdev }),
            (None, None, _) => None,
        }
    }

    /// The type of mediated device, if it is one.
    pub fn mdev(&self) -> Option<&Arc<str>> {
        match self {
            PciUse::Mdev { mdev, .. } | PciUse::MdevOf { mdev, .. } => Some(mdev),
            PciUse::Mapping(_) | PciUse::Device(_) => None,
        }
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

impl fmt::Display for PciUse {
    /// Writes it as a `hostpciN` without other options: `mapping=gpu`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PciUse::Mapping(mapping) => write!(f, "mapping={mapping}"),
            PciUse::Device(device) => write!(f, "host={device}"),
            PciUse::Mdev { mapping, mdev } => write!(f, "mapping={mapping},mdev={mdev}"),
            PciUse::MdevOf { device, mdev } => write!(f, "host={device},mdev={mdev}"),
        }
    }
}

/// Whether two addresses mean a device in common: `0000:01:00` is all functions of it, `;` stands between several, and PVE
/// lets the domain be left out where it is 0.
pub fn share_a_device(one: &str, other: &str) -> bool {
    let within = |outer: &str, inner: &str| {
        let rest = inner.strip_prefix(outer);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    one.split(';').map(full).any(|one| {
        let mut others = other.split(';').map(full);
        others.any(|each| within(&one, &each) || within(&each, &one))
    })
}

/// Whether two addresses may be of one card. A card that makes mediated devices is alone on its bus, its virtual functions beside it: what is on
/// one bus counts as one card.
pub fn share_a_card(one: &str, other: &str) -> bool {
    let bus = |address: &str| {
        let address = full(address);
        let end = address.rfind(':').unwrap_or(address.len());
        address[..end].to_owned()
    };
    one.split(';')
        .any(|one| other.split(';').any(|other| bus(one) == bus(other)))
}

/// An address in lower case with its domain.
fn full(address: &str) -> String {
    let address = address.trim().to_ascii_lowercase();
    if address.matches(':').count() < 2 {
        format!("0000:{address}")
    } else {
        address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_and_read_as_pve_has_them() {
        let device = PciDevice {
            mapping: "gpu".into(),
            mdev: None,
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
        let vgpu = PciDevice {
            mapping: "vgpu".into(),
            mdev: Some("nvidia-63".into()),
            pcie: true,
            ..PciDevice::default()
        };
        assert_eq!(vgpu.value(), "mapping=vgpu,mdev=nvidia-63,pcie=1");
        assert_eq!(&*vgpu.called(), "vgpu,mdev=nvidia-63");
        for text in [&*vgpu.value(), "pcie=1,mdev=nvidia-63,mapping=vgpu"] {
            assert_eq!(PciUse::read(text), Some(vgpu.taken()), "{text}");
        }
        assert_eq!(
            PciUse::read("0000:01:00.4,mdev=nvidia-63").map(|taken| taken.to_string()),
            Some("host=0000:01:00.4,mdev=nvidia-63".to_owned())
        );
        assert_eq!(PciUse::read("mdev=nvidia-63"), None);
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

    #[test]
    fn functions_on_one_bus_are_of_one_card() {
        for (one, other, same) in [
            ("0000:01:00.4", "0000:01:02.1", true),
            ("01:00.0", "0000:01:1f.7", true),
            ("0000:0A:00", "0000:0a:00.4;0000:0a:00.5", true),
            ("0000:01:00.0", "0000:02:00.0", false),
            ("0001:01:00.0", "01:00.0", false),
        ] {
            assert_eq!(share_a_card(one, other), same, "{one} {other}");
            assert_eq!(share_a_card(other, one), same, "{other} {one}");
        }
    }
}
