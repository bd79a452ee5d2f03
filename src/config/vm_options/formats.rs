//! PVE's property strings (`KEY=VALUE,…`) of options that a file may name, and the rules of their parts.
//! Source: the formats of PVE's schema for `POST /nodes/{node}/qemu`, and of qemu-server 9.2.6 where the schema names a format only
//! (`QemuServer.pm`: watchdog, smbios1; `RNG.pm`; `CPUConfig.pm`: SEV, TDX).

use std::collections::BTreeSet;

use crate::config::syntax;

/// A property string: its parts, and which of them is meant by one without a key.
#[derive(Debug)]
pub(super) struct PropertyFormat {
    bare: Option<&'static str>,
    parts: &'static [Property],
}

/// One part of a property string.
#[derive(Debug)]
struct Property {
    key: &'static str,
    kind: PropertyKind,
    required: bool,
}

/// What a part may be.
#[derive(Debug)]
enum PropertyKind {
    /// `0` or `1`.
    Flag,
    /// A whole number between two bounds.
    Whole(i64, i64),
    /// One of some words.
    Words(&'static [&'static str]),
    /// Text for which the function holds; and what it must be.
    Form(fn(&str) -> bool, &'static str),
}

use PropertyKind::{Flag, Form, Whole, Words};

const fn may(key: &'static str, kind: PropertyKind) -> Property {
    Property {
        key,
        kind,
        required: false,
    }
}

const fn must(key: &'static str, kind: PropertyKind) -> Property {
    Property {
        key,
        kind,
        required: true,
    }
}

const MAPPING: PropertyKind = Form(syntax::pve_config_id, "the name of a mapping");

pub(super) static WATCHDOG: PropertyFormat = PropertyFormat {
    bare: Some("model"),
    parts: &[
        may(
            "model",
            Form(
                |model| model == "i6300esb",
                "i6300esb (PVE has ib700, too, and starts no VM with it)",
            ),
        ),
        may(
            "action",
            Words(&["reset", "shutdown", "poweroff", "pause", "debug", "none"]),
        ),
    ],
};

/// The generator that only one host has, and that a token needs a right for.
pub(super) const HARDWARE_RNG: &str = "/dev/hwrng";

pub(super) static RNG: PropertyFormat = PropertyFormat {
    bare: Some("source"),
    parts: &[
        must(
            "source",
            Words(&["/dev/urandom", "/dev/random", HARDWARE_RNG]),
        ),
        may("max_bytes", Whole(0, i64::MAX)),
        may("period", Whole(1, i64::MAX)),
    ],
};

pub(super) static VGA: PropertyFormat = PropertyFormat {
    bare: Some("type"),
    parts: &[
        may(
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
        ),
        may("memory", Whole(4, 512)),
        may("clipboard", Words(&["vnc"])),
    ],
};

pub(super) static AUDIO: PropertyFormat = PropertyFormat {
    bare: None,
    parts: &[
        must("device", Words(&["ich9-intel-hda", "intel-hda", "AC97"])),
        may("driver", Words(&["spice", "none"])),
    ],
};

pub(super) static SPICE: PropertyFormat = PropertyFormat {
    bare: None,
    parts: &[
        may("foldersharing", Flag),
        may("videostreaming", Words(&["off", "all", "filter"])),
    ],
};

/// PVE takes a machine without a type for the older chipset: whoever names the rest names it too.
pub(super) static MACHINE: PropertyFormat = PropertyFormat {
    bare: Some("type"),
    parts: &[
        must(
            "type",
            Form(
                is_machine,
                "q35, pc, or one of a version such as pc-q35-9.2",
            ),
        ),
        may("viommu", Words(&["intel", "virtio"])),
        may("aw-bits", Whole(32, 64)),
        may("enable-s3", Flag),
        may("enable-s4", Flag),
    ],
};

pub(super) static USB: PropertyFormat = PropertyFormat {
    bare: Some("host"),
    parts: &[
        may(
            "host",
            Form(
                is_usb_device,
                "spice, a device such as 046d:c52b, or a port such as 1-2.3",
            ),
        ),
        may("mapping", MAPPING),
        may("usb3", Flag),
    ],
};

pub(super) static VIRTIOFS: PropertyFormat = PropertyFormat {
    bare: Some("dirid"),
    parts: &[
        must("dirid", MAPPING),
        may("cache", Words(&["auto", "always", "metadata", "never"])),
        may("direct-io", Flag),
        may("expose-acl", Flag),
        may("expose-xattr", Flag),
    ],
};

pub(super) static SEV: PropertyFormat = PropertyFormat {
    bare: Some("type"),
    parts: &[
        must("type", Words(&["std", "es", "snp"])),
        may("no-debug", Flag),
        may("no-key-sharing", Flag),
        may("allow-smt", Flag),
        may("kernel-hashes", Flag),
    ],
};

pub(super) static TDX: PropertyFormat = PropertyFormat {
    bare: Some("type"),
    parts: &[
        must("type", Words(&["tdx"])),
        must("attestation", Flag),
        may("vsock-cid", Whole(2, i64::MAX)),
        may("vsock-port", Whole(0, i64::MAX)),
    ],
};

impl PropertyFormat {
    /// What is wrong with a text.
    pub(super) fn check(&self, text: &str) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        for part in text.split(',') {
            let (key, value) = self.pair(part)?;
            let known = self.parts.iter().find(|known| known.key == key);
            let known = known
                .ok_or_else(|| format!("PVE has no {key:?} in it; expected {}", self.keys()))?;
            if !seen.insert(key) {
                return Err(format!("{key} is in it twice; expected once"));
            }
            known.check(value)?;
        }
        let missing = self
            .parts
            .iter()
            .find(|part| part.required && !seen.contains(part.key));
        match missing {
            Some(part) => Err(format!(
                "{} is missing in it; expected {}",
                part.key,
                part.expected()
            )),
            None => Ok(()),
        }
    }

    /// The value of a part, if the text has it.
    pub(super) fn value<'t>(&self, text: &'t str, key: &str) -> Option<&'t str> {
        let mut pairs = text.split(',').filter_map(|part| self.pair(part).ok());
        pairs.find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    fn pair<'t>(&self, part: &'t str) -> Result<(&'t str, &'t str), String> {
        let pair = part.split_once('=');
        let pair = pair.or_else(|| self.bare.map(|bare| (bare, part)));
        pair.filter(|(_, value)| !value.is_empty()).ok_or_else(|| {
            format!(
                "expected KEY=VALUE, separated by commas, with {}",
                self.keys()
            )
        })
    }

    fn keys(&self) -> String {
        let keys: Vec<&str> = self.parts.iter().map(|part| part.key).collect();
        keys.join(", ")
    }
}

impl Property {
    fn check(&self, value: &str) -> Result<(), String> {
        let fits = match &self.kind {
            Flag => matches!(value, "0" | "1"),
            Whole(least, most) => {
                let number = value.parse::<i64>();
                number.is_ok_and(|number| (*least..=*most).contains(&number))
            }
            Words(words) => words.contains(&value),
            Form(fits, _) => fits(value),
        };
        if fits {
            Ok(())
        } else {
            Err(format!(
                "{} is {value:?}; expected {}",
                self.key,
                self.expected()
            ))
        }
    }

    fn expected(&self) -> String {
        match &self.kind {
            Flag => "0 or 1".to_owned(),
            Whole(least, i64::MAX) => format!("a whole number, {least} or more"),
            Whole(least, most) => format!("a whole number, {least} to {most}"),
            Words([word]) => (*word).to_owned(),
            Words(words) => format!("one of {}", words.join(", ")),
            Form(_, expected) => (*expected).to_owned(),
        }
    }
}

/// Longest machine type in characters (PVE's schema).
const MAX_MACHINE: usize = 40;

/// `q35`, `pc`, `pc-q35-9.2+pve1`, `pc-i440fx-9.2`; those of other processors are none of ours.
fn is_machine(text: &str) -> bool {
    if text == "q35" || text == "pc" {
        return true;
    }
    let Some(version) = text.strip_prefix("pc-") else {
        return false;
    };
    let version = version
        .strip_prefix("q35-")
        .or_else(|| version.strip_prefix("i440fx-"))
        .unwrap_or(version);
    let version = version.strip_suffix(".pxe").unwrap_or(version);
    let (version, build) = version.split_once("+pve").unwrap_or((version, "0"));
    let mut numbers = version.split('.');
    text.len() <= MAX_MACHINE && version.contains('.') && numbers.all(is_number) && is_number(build)
}

/// Whether a machine type has the chipset Q35.
pub(super) fn is_q35(value: &str) -> bool {
    MACHINE
        .value(value, "type")
        .is_some_and(|kind| kind.contains("q35"))
}

/// `spice`, `046d:c52b`, `0x046d:0xc52b`, `1-2.3`.
fn is_usb_device(text: &str) -> bool {
    let is_id = |id: &str| {
        let digits = id.strip_prefix("0x").unwrap_or(id);
        digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let is_port = |(bus, ports): (&str, &str)| is_number(bus) && ports.split('.').all(is_number);
    text.eq_ignore_ascii_case("spice")
        || text
            .split_once(':')
            .is_some_and(|(vendor, product)| is_id(vendor) && is_id(product))
        || text.split_once('-').is_some_and(is_port)
}

/// Digits alone.
pub(super) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn property_strings_are_taken_and_refused_as_pve_does() {
        for (format, text) in [
            (&WATCHDOG, "model=i6300esb,action=reset"),
            (&WATCHDOG, "i6300esb"),
            (&WATCHDOG, "action=none"),
            (&RNG, "source=/dev/urandom,max_bytes=1024,period=1000"),
            (&RNG, "/dev/hwrng,max_bytes=0"),
            (&VGA, "serial0"),
            (&VGA, "qxl,memory=32"),
            (&AUDIO, "device=ich9-intel-hda,driver=none"),
            (&SPICE, "videostreaming=all,foldersharing=1"),
            (&MACHINE, "q35,viommu=virtio"),
            (&MACHINE, "pc-q35-9.2+pve1"),
            (&MACHINE, "pc-i440fx-9.0.pxe"),
            (&MACHINE, "type=pc-8.1"),
            (&USB, "host=1-2.3,usb3=1"),
            (&USB, "046d:c52b"),
            (&USB, "SPICE"),
            (&USB, "mapping=key"),
            (&VIRTIOFS, "data,cache=never,direct-io=1"),
            (&SEV, "snp,allow-smt=0"),
            (&TDX, "tdx,attestation=1,vsock-port=4050"),
        ] {
            assert_eq!(format.check(text), Ok(()), "{text}");
        }
        for (format, text, said) in [
            (
                &WATCHDOG,
                "model=x",
                "model is \"x\"; expected i6300esb (PVE has ib700, too, and starts no VM with it)",
            ),
            (
                &WATCHDOG,
                "model=ib700,action=reset",
                "starts no VM with it",
            ),
            (&WATCHDOG, "i6300esb,", "expected KEY=VALUE"),
            (&WATCHDOG, "i6300esb,model=i6300esb", "model is in it twice"),
            (
                &WATCHDOG,
                "mode=ib700",
                "PVE has no \"mode\" in it; expected model, action",
            ),
            (
                &RNG,
                "max_bytes=5",
                "source is missing in it; expected one of /dev/urandom",
            ),
            (&RNG, "/dev/sda", "source is \"/dev/sda\""),
            (
                &RNG,
                "/dev/urandom,period=0",
                "expected a whole number, 1 or more",
            ),
            (&VGA, "std,memory=3", "expected a whole number, 4 to 512"),
            (&AUDIO, "AC97", "expected KEY=VALUE"),
            (&AUDIO, "driver=none", "device is missing"),
            (&SPICE, "foldersharing=yes", "expected 0 or 1"),
            (&MACHINE, "viommu=virtio", "type is missing"),
            (&MACHINE, "virt", "expected q35, pc"),
            (&MACHINE, "pc-q35", "expected q35, pc"),
            (&MACHINE, "pc-q35-9", "expected q35, pc"),
            (&MACHINE, "pc-q35-9.2 -device x", "expected q35, pc"),
            (&USB, "host=/dev/sda", "expected spice, a device"),
            (&USB, "046d:c52", "expected spice, a device"),
            (&VIRTIOFS, "cache=auto", "dirid is missing"),
            (&VIRTIOFS, "/etc", "expected the name of a mapping"),
            (&SEV, "tdx", "expected one of std, es, snp"),
            (&TDX, "tdx", "attestation is missing in it; expected 0 or 1"),
        ] {
            let why = format.check(text).expect_err(text);
            assert!(why.contains(said), "{text}: {why}");
        }
        assert!(is_q35("pc-q35-9.2,viommu=intel") && is_q35("viommu=intel,type=q35"));
        assert!(!is_q35("pc") && !is_q35("pc-i440fx-9.0,enable-s3=0"));
        assert_eq!(USB.value("usb3=1,mapping=key", "mapping"), Some("key"));
        assert_eq!(USB.value("1-2", "host"), Some("1-2"));
    }
}
