//! PCI devices, by PVE's mappings.

use std::fmt;

use super::Scalar;
use crate::config::syntax;
use crate::model::pci::PciDevice;

/// A mapping with PVE's options behind it: `"gpu"`, `"gpu,pcie=1,x-vga=1"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciText(pub PciDevice);

impl Scalar for PciText {
    const EXPECTED: &'static str = "the name of a mapping of PCI devices, such as \"gpu\", and behind it \
         pcie, rombar or x-vga, as in \"gpu,pcie=1,x-vga=1\"; mediated devices (mdev) and devices without a mapping are not planned";
    const NAME: &'static str = "pci-device";

    fn read(text: &str) -> Option<PciText> {
        let mut parts = text.split(',').map(str::trim);
        let name = parts.next()?;
        let mut device = PciDevice {
            mapping: syntax::pve_config_id(name).then(|| name.into())?,
            ..PciDevice::default()
        };
        let mut seen = Vec::new();
        for part in parts {
            let (key, value) = part.split_once('=')?;
            let on = match value {
                "1" => true,
                "0" => false,
                _ => return None,
            };
            if seen.contains(&key) {
                return None;
            }
            seen.push(key);
            match key {
                "pcie" => device.pcie = on,
                "x-vga" => device.x_vga = on,
                "rombar" => device.no_rom = !on,
                _ => return None,
            }
        }
        Some(PciText(device))
    }
}

impl fmt::Display for PciText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_mappings_with_options() {
        for (text, value) in [
            ("gpu", "mapping=gpu"),
            ("gpu,pcie=0", "mapping=gpu"),
            ("gpu, x-vga=1, pcie=1", "mapping=gpu,pcie=1,x-vga=1"),
            ("gpu_a-1,rombar=0", "mapping=gpu_a-1,rombar=0"),
        ] {
            let device = PciText::read(text).unwrap_or_else(|| panic!("{text} is refused"));
            assert_eq!(device.0.value(), value);
            assert_eq!(PciText::read(&device.to_string()), Some(device));
        }
        for text in [
            "",
            "g",
            "1gpu",
            "gpu.a",
            "gpu,",
            "gpu,pcie",
            "gpu,pcie=yes",
            "gpu,pcie=1,pcie=1",
            "gpu,mdev=nvidia-35",
            "mapping=gpu",
            "0000:01:00.0",
        ] {
            assert_eq!(PciText::read(text), None, "{text}");
        }
    }
}
