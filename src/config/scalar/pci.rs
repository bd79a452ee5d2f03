//! PCI devices, by PVE's mappings.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::config::syntax;
use crate::model::pci::PciDevice;

/// What an entry must be, for errors and the schema.
const EXPECTED: &str = "the name of a mapping of PCI devices, such as \"gpu\", and behind it pcie, rombar or x-vga, as in \"gpu,pcie=1,x-vga=1\"; \
     or, for a mediated device, a table such as { mapping = \"vgpu\", mdev = \"nvidia-63\" }; devices without a mapping are not planned";
const MAPPING: &str = "the name of a mapping of PCI devices, such as \"vgpu\"";
const MDEV: &str =
    "a type of mediated device as PVE calls it, such as \"nvidia-63\" or \"i915-GVTg_V5_4\"";
/// Longest name of a type.
const MAX_MDEV: usize = 64;

/// A mapping with PVE's options behind it: `"gpu"`, `"gpu,pcie=1,x-vga=1"`; or a table, which may name a type of mediated device:
/// `{ mapping = "vgpu", mdev = "nvidia-63" }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciText(pub PciDevice);

impl PciText {
    /// Reads the text of a whole device; `None` when it is not what is expected.
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

/// Whether a type of mediated device may be called so: by PVE's pattern, and without what separates the parts of a `hostpciN`.
fn is_mdev(name: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    (1..=MAX_MDEV).contains(&name.len()) && name.bytes().all(fine)
}

/// The table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PciTable {
    #[serde(deserialize_with = "mapping_name")]
    mapping: Arc<str>,
    #[serde(default, deserialize_with = "mdev_type")]
    mdev: Option<Arc<str>>,
    #[serde(default)]
    pcie: bool,
    #[serde(default, rename = "x-vga")]
    x_vga: bool,
    #[serde(default = "is_shown")]
    rombar: bool,
}

fn is_shown() -> bool {
    true
}

/// Text that must be of a kind.
struct NameVisitor {
    expected: &'static str,
    fits: fn(&str) -> bool,
}

impl Visitor<'_> for NameVisitor {
    type Value = Arc<str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Arc<str>, E> {
        if (self.fits)(text) {
            Ok(text.into())
        } else {
            Err(E::custom(format!("expected {}", self.expected)))
        }
    }
}

fn mapping_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
    deserializer.deserialize_any(NameVisitor {
        expected: MAPPING,
        fits: syntax::pve_config_id,
    })
}

fn mdev_type<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<str>>, D::Error> {
    let visitor = NameVisitor {
        expected: MDEV,
        fits: is_mdev,
    };
    deserializer.deserialize_any(visitor).map(Some)
}

struct PciVisitor;

impl<'de> Visitor<'de> for PciVisitor {
    type Value = PciText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<PciText, E> {
        PciText::read(text).ok_or_else(|| E::custom(format!("expected {EXPECTED}")))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PciText, A::Error> {
        let table = PciTable::deserialize(de::value::MapAccessDeserializer::new(map))?;
        Ok(PciText(PciDevice {
            mapping: table.mapping,
            mdev: table.mdev,
            pcie: table.pcie,
            x_vga: table.x_vga,
            no_rom: !table.rombar,
        }))
    }
}

impl<'de> Deserialize<'de> for PciText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PciText, D::Error> {
        deserializer.deserialize_any(PciVisitor)
    }
}

impl Serialize for PciText {
    /// A whole device is text.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let device = &self.0;
        let Some(mdev) = &device.mdev else {
            return serializer.collect_str(self);
        };
        let mut table = serializer.serialize_map(None)?;
        table.serialize_entry("mapping", &device.mapping)?;
        table.serialize_entry("mdev", mdev)?;
        let flags = [("pcie", device.pcie), ("x-vga", device.x_vga)];
        for (key, _) in flags.into_iter().filter(|(_, on)| *on) {
            table.serialize_entry(key, &true)?;
        }
        if device.no_rom {
            table.serialize_entry("rombar", &false)?;
        }
        table.end()
    }
}

impl JsonSchema for PciText {
    fn schema_name() -> Cow<'static, str> {
        "pci-device".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": EXPECTED,
            "anyOf": [
                { "type": "string" },
                {
                    "type": "object",
                    "properties": {
                        "mapping": { "type": "string", "description": MAPPING },
                        "mdev": { "type": "string", "description": MDEV },
                        "pcie": { "type": "boolean" },
                        "x-vga": { "type": "boolean" },
                        "rombar": { "type": "boolean" },
                    },
                    "required": ["mapping"],
                    "additionalProperties": false,
                },
            ],
        })
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

    #[test]
    fn a_table_names_a_type_of_mediated_device() {
        let read = |text: &str| toml::from_str::<std::collections::BTreeMap<String, PciText>>(text);
        for (table, value) in [
            (
                "{ mapping = \"vgpu\", mdev = \"nvidia-63\" }",
                "mapping=vgpu,mdev=nvidia-63",
            ),
            (
                "{ mapping = \"igpu\", mdev = \"i915-GVTg_V5_4\", x-vga = true, pcie = true, rombar = false }",
                "mapping=igpu,mdev=i915-GVTg_V5_4,pcie=1,rombar=0,x-vga=1",
            ),
            ("{ mapping = \"gpu\", pcie = true }", "mapping=gpu,pcie=1"),
        ] {
            let device = read(&format!("d = {table}")).unwrap_or_else(|e| panic!("{table}: {e}"));
            assert_eq!(device["d"].0.value(), value);
            let again = toml::to_string(&device).unwrap_or_else(|e| panic!("{table}: {e}"));
            assert_eq!(read(&again).ok(), Some(device), "{again}");
        }
    }
}
