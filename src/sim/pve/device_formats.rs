//! What PVE checks of devices and settings of a VM that nobody plans with: watchdog, random numbers, display, sound, USB, shared
//! directories, firmware tables, encrypted memory, the disks of firmware and TPM. Words of errors as PVE::JSONSchema has them
//! (`check_object`, `parse_property_string`).

use std::collections::BTreeMap;

use super::properties;
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
        stem: "amd-sev",
        bare: Some("type"),
        parts: &[
            ("type", Words(&["std", "es", "snp"]), true),
            ("no-debug", Flag, false),
            ("no-key-sharing", Flag, false),
            ("allow-smt", Flag, false),
            ("kernel-hashes", Flag, false),
        ],
    },
    DeviceFormat {
        stem: "intel-tdx",
        bare: Some("type"),
        parts: &[
            ("type", Words(&["tdx"]), true),
            ("attestation", Flag, true),
            ("vsock-cid", Whole(2, i64::MAX), false),
            ("vsock-port", Whole(0, i64::MAX), false),
        ],
    },
    DeviceFormat {
        stem: "ivshmem",
        bare: None,
        parts: &[
            ("size", Whole(1, i64::MAX), true),
            ("name", Pattern(is_name), false),
        ],
    },
    DeviceFormat {
        stem: "efidisk",
        bare: Some("file"),
        parts: &[
            ("file", Pattern(is_anything), false),
            ("volume", Pattern(is_anything), false),
            ("efitype", Words(&["2m", "4m"]), false),
            ("format", Pattern(is_anything), false),
            ("import-from", Pattern(is_anything), false),
            ("ms-cert", Words(&["2011", "2023", "2023w", "2023k"]), false),
            ("pre-enrolled-keys", Flag, false),
            ("size", Pattern(is_anything), false),
        ],
    },
    DeviceFormat {
        stem: "tpmstate",
        bare: Some("file"),
        parts: &[
            ("file", Pattern(is_anything), false),
            ("volume", Pattern(is_anything), false),
            ("format", Pattern(is_anything), false),
            ("import-from", Pattern(is_anything), false),
            ("size", Pattern(is_anything), false),
            ("version", Words(&["v1.2", "v2.0"]), false),
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

/// What PVE finds wrong of a machine whose parts are right (`assert_valid_machine_property`).
pub(super) fn check_machine(text: &str) -> Result<(), String> {
    let parts = properties(text, "type");
    let viommu = parts.get("viommu").copied();
    if viommu == Some("intel") {
        if !parts.get("type").is_some_and(|kind| kind.contains("q35")) {
            return Err("to use Intel vIOMMU please set the machine type to q35".to_owned());
        }
        if parts
            .get("aw-bits")
            .is_some_and(|bits| !matches!(*bits, "39" | "48"))
        {
            return Err("Intel vIOMMU supports only 39 or 48 bits as address width".to_owned());
        }
    }
    if viommu.is_none() && parts.contains_key("aw-bits") {
        return Err("cannot set aw-bits if no vIOMMU is configured".to_owned());
    }
    Ok(())
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

/// `[a-zA-Z0-9\-]+`.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// What is read elsewhere.
fn is_anything(_: &str) -> bool {
    true
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
    fn devices_are_taken_as_pve_does() {
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
            ("amd-sev", "snp,no-debug=1"),
            ("intel-tdx", "tdx,attestation=0,vsock-port=4050"),
            ("ivshmem", "size=32,name=a-b"),
            ("efidisk0", "nas:1,efitype=4m,pre-enrolled-keys=0"),
            (
                "efidisk0",
                "nas:9160/vm-9160-disk-0.raw,efitype=4m,ms-cert=2023k,size=528K",
            ),
            ("tpmstate0", "nas:1,version=v2.0"),
            ("keyboard", "of another format"),
        ] {
            assert_eq!(verify(key, text), Ok(()), "{key} {text}");
        }
    }

    #[test]
    fn devices_are_refused_as_pve_does() {
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
                "amd-sev",
                "x",
                "amd-sev.type: value 'x' does not have a value in the enumeration 'std, es, snp'",
            ),
            (
                "intel-tdx",
                "type=tdx",
                "intel-tdx.attestation: property is missing and it is not optional",
            ),
            (
                "ivshmem",
                "name=x",
                "ivshmem.size: property is missing and it is not optional",
            ),
            (
                "efidisk0",
                "nas:1,efitype=8m",
                "efidisk0.efitype: value '8m' does not have a value in the enumeration '2m, 4m'",
            ),
            (
                "tpmstate0",
                "nas:1,version=v3",
                "tpmstate0.version: value 'v3' does not have a value in the enumeration 'v1.2, v2.0'",
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

    #[test]
    fn a_virtual_iommu_wants_its_machine() {
        for text in [
            "q35",
            "q35,viommu=intel,aw-bits=39",
            "pc,viommu=virtio,aw-bits=40",
        ] {
            assert_eq!(check_machine(text), Ok(()), "{text}");
        }
        for (text, said) in [
            ("pc,viommu=intel", "please set the machine type to q35"),
            ("viommu=intel", "please set the machine type to q35"),
            ("q35,viommu=intel,aw-bits=40", "39 or 48 bits"),
            ("pc,aw-bits=48", "cannot set aw-bits"),
        ] {
            let why = check_machine(text).expect_err(text);
            assert!(why.contains(said), "{text}: {why}");
        }
    }
}
