//! What PVE checks of single configuration values beyond their type, in its words: recorded from
//! PVE's own code (qemu-server 9.2.6).

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::properties;
use super::schema::split;
use super::wire::{ErrorAnswer, decode};

/// NIC models that a VM may have.
const MODELS: [&str; 14] = [
    "e1000",
    "e1000-82540em",
    "e1000-82544gc",
    "e1000-82545em",
    "e1000e",
    "i82551",
    "i82557b",
    "i82559er",
    "ne2k_isa",
    "ne2k_pci",
    "pcnet",
    "rtl8139",
    "virtio",
    "vmxnet3",
];
/// Beginnings of the CPU types that PVE knows; each has variants such as `-v2` or `-IBRS`.
const CPUS: [&str; 40] = [
    "486",
    "Broadwell",
    "Cascadelake-Server",
    "ClearwaterForest",
    "Conroe",
    "Cooperlake",
    "EPYC",
    "GraniteRapids",
    "Haswell",
    "Icelake-Client",
    "Icelake-Server",
    "IvyBridge",
    "KnightsMill",
    "Nehalem",
    "Opteron_G1",
    "Opteron_G2",
    "Opteron_G3",
    "Opteron_G4",
    "Opteron_G5",
    "Penryn",
    "SandyBridge",
    "SapphireRapids",
    "SierraForest",
    "Skylake-Client",
    "Skylake-Server",
    "Westmere",
    "athlon",
    "core2duo",
    "coreduo",
    "host",
    "kvm32",
    "kvm64",
    "max",
    "pentium",
    "pentium2",
    "pentium3",
    "phenom",
    "qemu32",
    "qemu64",
    "x86-64",
];
/// Largest VLAN tag.
const MAX_TAG: u32 = 4094;

/// Whether `key` may have this value.
pub(super) fn verify(key: &str, text: &str) -> Result<(), ErrorAnswer> {
    let said = match key.trim_end_matches(|c: char| c.is_ascii_digit()) {
        "net" => net(key, text),
        "cpu" => cpu(text),
        "hostpci" => super::pci::verify(key, text),
        "agent" => agent(text),
        "scsi" | "virtio" | "sata" | "ide" => drive(key, text),
        "numa" if key != "numa" => super::numa::verify(key, text),
        "affinity" if !cpu_set(text) => Err("unable to parse cpuset option".to_owned()),
        "sshkeys" if !ssh_keys(text) => {
            return Err(ErrorAnswer::die("SSH public key validation error"));
        }
        _ => super::device_formats::verify(key, text),
    };
    said.map_err(|why| ErrorAnswer::parameter(key, format!("invalid format - {why}\n")))
}

fn net(key: &str, text: &str) -> Result<(), String> {
    let options = properties(text, "model");
    let bad = |why: String| Err(format!("format error\n{key}.{why}"));
    // `virtio=MAC` says both in one.
    let model = options.get("model").copied().or_else(|| {
        let known = MODELS.iter().find(|model| options.contains_key(**model));
        known.copied()
    });
    let mac = model.and_then(|model| options.get(model).or_else(|| options.get("macaddr")));
    let words = [
        "bridge",
        "firewall",
        "link_down",
        "macaddr",
        "mtu",
        "queues",
        "rate",
        "tag",
        "trunks",
    ];
    let other = options
        .keys()
        .find(|name| !words.contains(name) && !MODELS.contains(name));
    if let Some(other) = other.filter(|_| model.is_none()) {
        return bad(format!(
            "{other}: property is not defined in schema and the schema does not allow additional properties\n\
             {key}.model: property is missing and it is not optional"
        ));
    }
    if !model.is_some_and(|model| MODELS.contains(&model)) {
        return bad(format!(
            "model: value '{}' does not have a value in the enumeration '{}'",
            model.unwrap_or_default(),
            MODELS.join(", ")
        ));
    }
    if mac.is_some_and(|mac| !unicast(mac)) {
        return bad(
            "macaddr: invalid format - value does not look like a valid unicast MAC address\n"
                .to_owned(),
        );
    }
    for (name, least, most) in [("mtu", 1, 65_520), ("queues", 0, 64)] {
        if let Some(given) = options.get(name) {
            let why = range(given, least, most);
            why.map_err(|why| format!("format error\n{key}.{name}: {why}"))?;
        }
    }
    if let Some(Err(why)) = options.get("rate").map(|given| positive(given)) {
        return bad(format!("rate: {why}"));
    }
    for name in ["firewall", "link_down"] {
        if let Some(given) = options.get(name).filter(|given| !is_boolean(given)) {
            return bad(format!(
                "{name}: type check ('boolean') failed - got '{given}'"
            ));
        }
    }
    match options.get("tag").map(|tag| tag.parse::<u32>()) {
        Some(Ok(0)) => bad("tag: value must have a minimum value of 1".to_owned()),
        Some(Ok(tag)) if tag > MAX_TAG => {
            bad(format!("tag: value must have a maximum value of {MAX_TAG}"))
        }
        _ => Ok(()),
    }
}

/// Whether a text is a boolean of a property string, where PVE takes more words for one than elsewhere (`parse_boolean`).
pub(super) fn is_boolean(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    is_true(&text) || ["0", "off", "no", "false"].contains(&text.as_str())
}

/// Whether a boolean of a property string is true.
pub(super) fn is_true(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    ["1", "on", "yes", "true"].contains(&text.as_str())
}

/// A whole number of a property string between two bounds.
pub(super) fn range(given: &str, least: i64, most: i64) -> Result<(), String> {
    match given.parse::<i64>() {
        Err(_) => Err(format!("type check ('integer') failed - got '{given}'")),
        Ok(number) if number < least => Err(format!("value must have a minimum value of {least}")),
        Ok(number) if number > most => Err(format!("value must have a maximum value of {most}")),
        Ok(_) => Ok(()),
    }
}

/// A number of 0 or more, which need not be whole.
fn positive(given: &str) -> Result<(), String> {
    match given.parse::<f64>() {
        Err(_) => Err(format!("type check ('number') failed - got '{given}'")),
        Ok(number) if number < 0.0 => Err("value must have a minimum value of 0".to_owned()),
        Ok(_) => Ok(()),
    }
}

fn unicast(mac: &str) -> bool {
    let bytes: Vec<Option<u8>> = mac
        .split(':')
        .map(|pair| {
            u8::from_str_radix(pair, 16)
                .ok()
                .filter(|_| pair.len() == 2)
        })
        .collect();
    bytes.len() == 6
        && bytes.iter().all(Option::is_some)
        && bytes[0].is_some_and(|first| first & 1 == 0)
}

/// Options of drives that have values of a few words, and which buses have them (qemu-server, `QemuServer/Drive.pm`).
const DRIVE_OPTIONS: [(&str, &[&str], &[&str]); 9] = [
    (
        "aio",
        &["native", "threads", "io_uring"],
        &["scsi", "virtio", "sata", "ide"],
    ),
    ("backup", &["0", "1"], &["scsi", "virtio", "sata", "ide"]),
    (
        "cache",
        &["none", "writethrough", "writeback", "unsafe", "directsync"],
        &["scsi", "virtio", "sata", "ide"],
    ),
    (
        "discard",
        &["ignore", "on"],
        &["scsi", "virtio", "sata", "ide"],
    ),
    ("iothread", &["0", "1"], &["scsi", "virtio"]),
    (
        "media",
        &["cdrom", "disk"],
        &["scsi", "virtio", "sata", "ide"],
    ),
    ("replicate", &["0", "1"], &["scsi", "virtio", "sata", "ide"]),
    ("ro", &["0", "1"], &["scsi", "virtio"]),
    ("ssd", &["0", "1"], &["scsi", "sata", "ide"]),
];

/// Limits of drives, and what PVE takes them for.
const DRIVE_LIMITS: [(&str, &str); 6] = [
    ("iops", "integer"),
    ("iops_rd", "integer"),
    ("iops_wr", "integer"),
    ("mbps", "number"),
    ("mbps_rd", "number"),
    ("mbps_wr", "number"),
];

fn drive(key: &str, text: &str) -> Result<(), String> {
    let bus = key.trim_end_matches(|c: char| c.is_ascii_digit());
    for (option, value) in properties(text, "file") {
        if let Some((_, kind)) = DRIVE_LIMITS.iter().find(|(name, _)| *name == option) {
            let fits = match *kind {
                "integer" => value.parse::<i64>().is_ok(),
                _ => value.parse::<f64>().is_ok_and(f64::is_finite),
            };
            if !fits {
                return Err(format!(
                    "format error\n{key}.{option}: type check ('{kind}') failed - got '{value}'"
                ));
            }
            continue;
        }
        let known = DRIVE_OPTIONS.iter().find(|(name, ..)| *name == option);
        let Some((_, values, buses)) = known else {
            continue;
        };
        if !buses.contains(&bus) {
            return Err(format!(
                "format error\n{key}.{option}: property is not defined in schema and the schema does not allow additional properties"
            ));
        }
        let boolean = values.contains(&"0");
        let known = values.contains(&value) || (boolean && is_boolean(value));
        if !known {
            return Err(if boolean {
                format!(
                    "format error\n{key}.{option}: type check ('boolean') failed - got '{value}'"
                )
            } else {
                format!(
                    "format error\n{key}.{option}: value '{value}' does not have a value in the enumeration '{}'",
                    values.join(", ")
                )
            });
        }
    }
    Ok(())
}

/// Flags that a VM may have or not have; a custom CPU model may have others (`CPUConfig.pm`).
const CPU_FLAGS: [&str; 13] = [
    "aes",
    "amd-no-ssb",
    "amd-ssbd",
    "hv-evmcs",
    "hv-tlbflush",
    "ibpb",
    "md-clear",
    "nested-virt",
    "pcid",
    "pdpe1gb",
    "spec-ctrl",
    "ssbd",
    "virt-ssbd",
];

fn cpu(text: &str) -> Result<(), String> {
    let options = properties(text, "cputype");
    let model = options.get("cputype").copied().unwrap_or_default();
    if let Some(own) = model.strip_prefix("custom-") {
        return Err(format!("Custom cputype '{own}' not found"));
    }
    let known = CPUS.iter().any(|known| {
        model
            .strip_prefix(known)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    });
    let flags = options.get("flags").copied().unwrap_or_default();
    let mut flags = flags.split(';').filter(|flag| !flag.is_empty());
    let fine = |flag: &str| {
        let name = flag.strip_prefix(['+', '-']);
        name.is_some_and(|name| CPU_FLAGS.contains(&name))
    };
    let signed = |flag: &str| flag.starts_with(['+', '-']);
    if known && !flags.clone().all(signed) {
        Err("format error\ncpu.flags: value does not match the regex pattern".to_owned())
    } else if known && !flags.all(fine) {
        Err(format!(
            "VM-specific CPU flags must be a subset of: {}",
            CPU_FLAGS.join(", ")
        ))
    } else if known {
        Ok(())
    } else {
        Err(format!(
            "Built-in cputype '{model}' is not defined (missing 'custom-' prefix?)"
        ))
    }
}

/// `0,5,8-11`, with commas at its end as well, or nothing (`PVE::CpuSet::parse_cpuset`).
fn cpu_set(text: &str) -> bool {
    let text = text.trim_end_matches(',');
    let mut parts = text.split(',').map(str::trim);
    text.is_empty()
        || parts.all(|part| match part.split_once('-') {
            Some((first, last)) => {
                let (first, last) = (number(first), number(last));
                first.is_some() && last.is_some() && first <= last
            }
            None => number(part).is_some(),
        })
}

/// Digits alone.
fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// Whether every line is a public key: PVE asks `ssh-keygen`. The text is percent-encoded.
fn ssh_keys(text: &str) -> bool {
    let text = decode(text, false);
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.all(|line| {
        let mut words = line.split_whitespace();
        let (Some(kind), Some(key)) = (words.next(), words.next()) else {
            return false;
        };
        STANDARD.decode(key).is_ok_and(|key| is_key(kind, &key))
    })
}

/// A key is fields with their lengths before them; the first is its kind, and it has more.
fn is_key(kind: &str, mut rest: &[u8]) -> bool {
    let mut fields = 0;
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        let Some((field, after)) = after.split_at_checked(length) else {
            return false;
        };
        if fields == 0 && field != kind.as_bytes() {
            return false;
        }
        fields += 1;
        rest = after;
    }
    rest.is_empty() && fields > 1
}

/// Options of the guest agent (qemu-server, `$agent_fmt` in `QemuServer/Agent.pm`), of which `freeze-fs` has three names.
fn agent(text: &str) -> Result<(), String> {
    let options = properties(text, "enabled");
    let booleans = [
        "enabled",
        "freeze-fs",
        "freeze-fs-on-backup",
        "fstrim_cloned_disks",
        "guest-fsfreeze",
    ];
    let known = |option: &&str| *option == "type" || booleans.contains(option);
    if let Some(option) = options.keys().find(|option| !known(option)) {
        return Err(format!(
            "invalid key in comma-separated list property: {option}"
        ));
    }
    for (option, value) in &options {
        if *option == "type" && !matches!(*value, "virtio" | "isa") {
            return Err(format!(
                "format error\nagent.type: value '{value}' does not have a value in the enumeration 'virtio, isa'"
            ));
        }
        if *option != "type" && !matches!(*value, "0" | "1") {
            return Err(format!(
                "format error\nagent.{option}: type check ('boolean') failed - got '{value}'"
            ));
        }
    }
    if options.contains_key("enabled") {
        Ok(())
    } else {
        Err("format error\nagent.enabled: property is missing and it is not optional".to_owned())
    }
}

/// A value as PVE stores it.
pub(super) fn normal(key: &str, text: &str) -> Result<String, ErrorAnswer> {
    let bad = |why: String| {
        Err(ErrorAnswer::parameter(
            key,
            format!("invalid format - format error\n{why}\n"),
        ))
    };
    Ok(match key {
        "tags" => {
            let tags: BTreeSet<String> = split(text).map(str::to_lowercase).collect();
            tags.into_iter().collect::<Vec<_>>().join(";")
        }
        "description" => text.trim_end().to_owned(),
        "cipassword" => format!("$5$simulated${}", text.len()),
        "memory" => {
            let size = text.strip_prefix("current=").unwrap_or(text);
            match size.parse::<u64>() {
                Ok(16..) => size.to_owned(),
                Ok(_) => {
                    return bad("memory.current: value must have a minimum value of 16".to_owned());
                }
                Err(_) => {
                    return bad(format!(
                        "memory.current: type check ('integer') failed - got '{size}'"
                    ));
                }
            }
        }
        _ => {
            verify(key, text)?;
            text.to_owned()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519%20AAAAC3NzaC1lZDI1NTE5AAAAIDbgX3JZ0mK2yN1N5mJ8u6aRkqM0f3T8cYw2h1pLx0Qe%20a%40b";

    #[test]
    fn options_of_the_agent_are_taken_and_refused_as_pve_does() {
        for text in [
            "1",
            "0",
            "enabled=1,fstrim_cloned_disks=1",
            "enabled=1,freeze-fs-on-backup=0",
            "1,freeze-fs=0,type=isa",
        ] {
            assert!(verify("agent", text).is_ok(), "{text}");
        }
        for text in [
            "",
            "yes",
            "fstrim_cloned_disks=1",
            "enabled=1,fstrim_cloned_disks=on",
            "enabled=1,freeze_fs_on_backup=0",
            "enabled=1,type=serial",
        ] {
            assert!(verify("agent", text).is_err(), "{text}");
        }
    }

    #[test]
    fn values_are_taken_and_refused_as_pve_does() {
        for (key, text) in [
            ("net0", "virtio=BC:24:11:00:11:22,bridge=vmbr0,firewall=1"),
            ("net0", "virtio,bridge=vmbr0,tag=20"),
            ("net0", "virtio,bridge=vmbr0,firewall=0,mtu=1,queues=64"),
            ("net0", "virtio,bridge=vmbr0,rate=0.5"),
            ("net1", "model=e1000,macaddr=BC:24:11:00:11:22"),
            ("cpu", "host"),
            ("cpu", "x86-64-v2-AES,flags=+aes"),
            ("cpu", "cputype=EPYC-v3"),
            ("cpu", "host,flags=+aes;-pcid"),
            (
                "scsi1",
                "local:10,iothread=1,ssd=1,discard=on,cache=none,backup=0",
            ),
            (
                "scsi1",
                "local:10,aio=io_uring,mbps_rd=100,mbps_wr=0.5,iops_rd=500",
            ),
            ("sshkeys", KEY),
            ("sshkeys", &format!("{KEY}%0A{KEY}%0A")),
            ("name", "nonsense"),
            ("affinity", "0,5,8-11"),
            ("affinity", "0 ,1,"),
            ("affinity", ""),
            ("scsi1", "local:10,ssd=true"),
            ("net0", "virtio,bridge=vmbr0,link_down=off"),
            ("hostpci0", "mapping=gpu,pcie=yes"),
            ("hostpci0", "0000:01:00.0;02:00"),
            ("numa0", "cpus=0;2-3,hostnodes=0-1,memory=512,policy=bind"),
            ("numa1", "0"),
        ] {
            assert!(verify(key, text).is_ok(), "{key} {text}");
        }
        for (key, text) in [
            ("net0", "nonsense"),
            ("net0", "virtio,bridge=vmbr0,queues=65"),
            ("net0", "virtio,bridge=vmbr0,mtu=65521"),
            ("net0", "virtio,bridge=vmbr0,mtu=0"),
            ("net0", "virtio,bridge=vmbr0,firewall=2"),
            ("net0", "virtio,bridge=vmbr0,queues=many"),
            ("net0", "virtio,bridge=vmbr0,rate=fast"),
            ("net0", "virtio,bridge=vmbr0,rate=-1"),
            ("net0", "virtio=ZZ,bridge=vmbr0"),
            ("net0", "virtio=01:24:11:00:11:22,bridge=vmbr0"),
            ("net0", "virtio=BC:24:11:00:11:22,bridge=vmbr0,tag=5000"),
            ("net0", "virtio,tag=0"),
            ("cpu", "nonsense"),
            ("cpu", "hostile"),
            ("cpu", "host,flags=+avx512f"),
            ("cpu", "host,flags=aes"),
            ("virtio1", "local:10,ssd=1"),
            ("sata1", "local:10,iothread=1"),
            ("scsi1", "local:10,discard=yes"),
            ("scsi1", "local:10,ssd=2"),
            ("scsi1", "local:10,aio=posix"),
            ("scsi1", "local:10,mbps_rd=fast"),
            ("scsi1", "local:10,iops_wr=0.5"),
            ("affinity", "0-"),
            ("affinity", "1-0"),
            ("affinity", ",0"),
            ("affinity", "0 - 1"),
            ("net0", "foo=BC:24:11:00:11:22,bridge=vmbr0"),
            ("hostpci0", "mapping=no such"),
            ("hostpci0", "gpu"),
            ("numa0", "memory=512"),
            ("numa0", "cpus=0,memory=x"),
            ("numa0", "cpus=a"),
            ("numa0", "cpus=0,policy=foo"),
            ("numa0", "cpus=0,hostnodes=x,memory=1,policy=bind"),
            ("cpu", "custom-x"),
            ("sshkeys", "nonsense"),
            ("sshkeys", "ssh-ed25519%20AAAAC3NzaC1lZDI1NTE5%20cut"),
            ("sshkeys", "ssh-rsa%20AAAAC3NzaC1lZDI1NTE5AAAAIDbgX3JZ"),
        ] {
            assert!(verify(key, text).is_err(), "{key} {text}");
        }
    }
}
