//! What PVE checks of devices and settings of a VM that nobody plans with: watchdog, random numbers, display, sound, USB, shared
//! directories, firmware tables. Words of errors as PVE::JSONSchema has them (`check_object`, `parse_property_string`).

use std::collections::BTreeMap;

use super::schema::{config_id, split};
use super::values::{is_boolean, range};

/// What a part of a property string may be.
enum PartForm {
    Flag,
    Whole(i64, i64),
    Words(&'static [&'static str]),
    /// Text of the schema's pattern.
    Pattern(fn(&str) -> bool),
    /// A mapping's name.
    Id,
}

use PartForm::{Flag, Id, Pattern, Whole, Words};

/// A part: its name, what it may be, and whether it must be there.
type FormatPart = (&'static str, PartForm, bool);

/// The parts of an option, and the one that is meant without a name.
struct DeviceFormat {
    /// The option's name without its number.
    stem: &'static str,
    bare: Option<&'static str>,
    parts: &'static [FormatPart],
}

static FORMATS: &[DeviceFormat] = &[
    DeviceFormat {
        stem: "watchdog",
        bare: Some("model"),
        parts: &[
            ("model", Words(&["i6300esb", "ib700"]), false),
            (
                "action",
                Words(&["reset", "shutdown", "poweroff", "pause", "debug", "none"]),
                false,
            ),
        ],
    },
    DeviceFormat {
        stem: "rng",
        bare: Some("source"),
        parts: &[
            (
                "source",
                Words(&["/dev/urandom", "/dev/random", "/dev/hwrng"]),
                true,
            ),
            ("max_bytes", Whole(i64::MIN, i64::MAX), false),
            ("period", Whole(i64::MIN, i64::MAX), false),
        ],
    },
    DeviceFormat {
        stem: "vga",
        bare: Some("type"),
        parts: &[
            (
                "type",
                Words(&[
                    "cirrus",
                    "qxl",
                    "qxl2",
                    "qxl3",
                    "qxl4",
                    "none",
                    "serial0",
                    "serial1",
                    "serial2",
                    "serial3",
                    "std",
                    "virtio",
                    "virtio-gl",
                    "vmware",
                ]),
                false,
            ),
            ("memory", Whole(4, 512), false),
            ("clipboard", Words(&["vnc"]), false),
        ],
    },
    DeviceFormat {
        stem: "audio",
        bare: None,
        parts: &[
            (
                "device",
                Words(&["ich9-intel-hda", "intel-hda", "AC97"]),
                true,
            ),
            ("driver", Words(&["spice", "none"]), false),
        ],
    },
    DeviceFormat {
        stem: "spice_enhancements",
        bare: None,
        parts: &[
            ("foldersharing", Flag, false),
            ("videostreaming", Words(&["off", "all", "filter"]), false),
        ],
    },
    DeviceFormat {
        stem: "machine",
        bare: Some("type"),
        parts: &[
            ("type", Pattern(is_machine), false),
            ("viommu", Words(&["intel", "virtio"]), false),
            ("aw-bits", Whole(32, 64), false),
            ("enable-s3", Flag, false),
            ("enable-s4", Flag, false),
        ],
    },
    DeviceFormat {
        stem: "usb",
        bare: Some("host"),
        parts: &[
            ("host", Pattern(is_usb), false),
            ("mapping", Id, false),
            ("usb3", Flag, false),
        ],
    },
    DeviceFormat {
        stem: "virtiofs",
        bare: Some("dirid"),
        parts: &[
            ("dirid", Id, true),
            (
                "cache",
                Words(&["auto", "always", "metadata", "never"]),
                false,
            ),
            ("direct-io", Flag, false),
            ("expose-acl", Flag, false),
            ("expose-xattr", Flag, false),
        ],
    },
    DeviceFormat {
        stem: "smbios",
        bare: None,
        parts: &[
            ("uuid", Pattern(super::options::is_uuid), false),
            ("version", Pattern(is_base64), false),
            ("serial", Pattern(is_base64), false),
            ("manufacturer", Pattern(is_base64), false),
            ("product", Pattern(is_base64), false),
            ("sku", Pattern(is_base64), false),
            ("family", Pattern(is_base64), false),
            ("base64", Flag, false),
        ],
    },
];

/// Whether an option may have this value; options of other formats may.
pub(super) fn verify(key: &str, text: &str) -> Result<(), String> {
    let stem = key.trim_end_matches(|c: char| c.is_ascii_digit());
    if stem == "hotplug" {
        return hotplug(text);
    }
    let Some(format) = FORMATS.iter().find(|format| format.stem == stem) else {
        return Ok(());
    };
    let mut given: BTreeMap<&str, &str> = BTreeMap::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (name, value) = match (part.split_once('='), format.bare) {
            (Some(pair), _) => pair,
            (None, Some(bare)) => (bare, part),
            (None, None) => {
                return Err(
                    "value without key, but schema does not define a default key".to_owned(),
                );
            }
        };
        if given.insert(name, value).is_some() {
            return Err(format!(
                "duplicate key in comma-separated list property: {name}"
            ));
        }
    }
    let mut wrong = Vec::new();
    for (name, kind, required) in format.parts {
        match given.get(name) {
            Some(value) => {
                let said = kind.verify(value);
                wrong.extend(said.err().map(|why| format!("{key}.{name}: {why}")));
            }
            None if *required => wrong.push(format!(
                "{key}.{name}: property is missing and it is not optional"
            )),
            None => {}
        }
    }
    for name in given.keys() {
        if format.parts.iter().all(|(known, ..)| known != name) {
            wrong.push(format!(
                "{key}.{name}: property is not defined in schema and the schema does not allow additional properties"
            ));
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!("format error\n{}", wrong.join("\n")))
}

impl PartForm {
    fn verify(&self, value: &str) -> Result<(), String> {
        let pattern = |fits: bool| {
            let why = "value does not match the regex pattern".to_owned();
            fits.then_some(()).ok_or(why)
        };
        match self {
            Flag if is_boolean(value) => Ok(()),
            Flag => Err(format!("type check ('boolean') failed - got '{value}'")),
            Whole(least, most) => range(value, *least, *most),
            Words(words) if words.contains(&value) => Ok(()),
            Words(words) => Err(format!(
                "value '{value}' does not have a value in the enumeration '{}'",
                words.join(", ")
            )),
            Pattern(fits) => pattern(fits(value)),
            Id => config_id(value).map_err(|why| format!("invalid format - {why}\n")),
        }
    }
}

/// What is given to a VM that runs (`parse_hotplug_features`).
pub(super) fn features(text: &str) -> Vec<&str> {
    match text {
        "0" => Vec::new(),
        "1" | "" => vec!["network", "disk", "usb"],
        _ => split(text).collect(),
    }
}

fn hotplug(text: &str) -> Result<(), String> {
    let known = ["network", "disk", "cpu", "memory", "usb", "cloudinit"];
    let features = features(text);
    let other = features.iter().find(|feature| !known.contains(feature));
    match other {
        Some(other) => Err(format!("invalid hotplug feature '{other}'")),
        None => Ok(()),
    }
}

/// `$PVE::QemuServer::Machine`: chipset, perhaps with a version.
fn is_machine(text: &str) -> bool {
    let versioned = |rest: &str| {
        let rest = rest.strip_suffix(".pxe").unwrap_or(rest);
        let (version, build) = rest.split_once("+pve").unwrap_or((rest, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        version.contains('.') && version.split('.').all(digits) && digits(build)
    };
    let beginnings = ["pc-q35-", "pc-i440fx-", "virt-", "pc-"];
    matches!(text, "pc" | "q35" | "virt")
        || beginnings
            .iter()
            .any(|start| text.strip_prefix(start).is_some_and(versioned))
}

/// A device of the host by its ids or its port, or SPICE's.
fn is_usb(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let id = |part: &str| {
        let hex = part.strip_prefix("0x").unwrap_or(part);
        hex.len() == 4 && hex.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let by_id = text.split_once(':').is_some_and(|(a, b)| id(a) && id(b));
    let by_port = text
        .split_once('-')
        .is_some_and(|(bus, port)| digits(bus) && port.split('.').all(digits));
    by_id || by_port || text.eq_ignore_ascii_case("spice")
}

/// `[A-Za-z0-9+\/]+={0,2}`.
fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    !body.is_empty()
        && text.len() - body.len() <= 2
        && body
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_taken_and_refused_as_pve_does() {
        for (key, text) in [
            ("watchdog", "model=i6300esb,action=reset"),
            ("rng0", "/dev/urandom,max_bytes=1024"),
            ("vga", "serial0"),
            ("machine", "q35,viommu=virtio"),
            ("machine", "pc-i440fx-9.2+pve1"),
            ("usb0", "host=1-2.3"),
            ("usb13", "spice,usb3=yes"),
            ("virtiofs0", "data"),
            (
                "smbios1",
                "base64=1,serial=ZHM=,uuid=0b5f3a6e-0000-4000-8000-0123456789ab",
            ),
            ("hotplug", "0"),
            ("hotplug", "network,cloudinit"),
            ("audio0", "device=AC97"),
            ("keyboard", "of another format"),
        ] {
            assert_eq!(verify(key, text), Ok(()), "{key} {text}");
        }
        for (key, text, said) in [
            (
                "watchdog",
                "x",
                "watchdog.model: value 'x' does not have a value in the enumeration 'i6300esb, ib700'",
            ),
            (
                "rng0",
                "max_bytes=a",
                "rng0.source: property is missing and it is not optional\nrng0.max_bytes: type check ('integer') failed - got 'a'",
            ),
            (
                "vga",
                "std,memory=3",
                "vga.memory: value must have a minimum value of 4",
            ),
            ("audio0", "AC97", "schema does not define a default key"),
            (
                "machine",
                "q36",
                "machine.type: value does not match the regex pattern",
            ),
            (
                "usb0",
                "/dev/sda",
                "usb0.host: value does not match the regex pattern",
            ),
            (
                "usb0",
                "host=1-2,host=1-3",
                "duplicate key in comma-separated list property: host",
            ),
            (
                "virtiofs0",
                "data,ro=1",
                "virtiofs0.ro: property is not defined in schema",
            ),
            (
                "smbios1",
                "sku=a b",
                "smbios1.sku: value does not match the regex pattern",
            ),
            (
                "smbios1",
                "uuid=x",
                "smbios1.uuid: value does not match the regex pattern",
            ),
            ("hotplug", "network,pci", "invalid hotplug feature 'pci'"),
        ] {
            let why = verify(key, text).expect_err(text);
            assert!(why.contains(said), "{key} {text}: {why}");
        }
    }
}
