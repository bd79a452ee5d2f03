//! What of a VM's settings came with which release of Proxmox VE: a host of an older one refuses to set it.
//!
//! Source: qemu-server 9.2.6 beside 8.4.10 (`PVE/QemuServer.pm`, `PVE/QemuServer/Machine.pm`, `PVE/QemuServer/CPUConfig.pm`); virtiofs as
//! the release notes of 8.4 have it.

/// A release of Proxmox VE: `(8, 4)`.
pub type PveRelease = (u32, u32);

/// What is known of everything here: where a text does not say which release of 9 it came with, the first.
const NINE: PveRelease = (9, 0);

/// Options by the release that they came with.
const OPTIONS: [(&str, PveRelease); 3] = [
    ("allow-ksm", NINE),
    ("intel-tdx", NINE),
    ("virtiofs", (8, 4)),
];
/// CPU types that 8.4 does not have.
const CPU_TYPES: [&str; 14] = [
    "ClearwaterForest",
    "EPYC-Genoa-v2",
    "EPYC-Milan-v3",
    "EPYC-Rome-v5",
    "EPYC-Turin",
    "EPYC-v5",
    "GraniteRapids-v2",
    "GraniteRapids-v3",
    "Icelake-Server-v7",
    "SapphireRapids-v3",
    "SapphireRapids-v4",
    "SierraForest",
    "SierraForest-v2",
    "SierraForest-v3",
];

/// The part of an option's value that an older release does not know, if it is not the option itself; and the release that it came with.
/// `None` for what every release knows that this program was written for.
pub fn came_with(name: &str, value: &str) -> Option<(Option<String>, PveRelease)> {
    let stem = name.trim_end_matches(|last: char| last.is_ascii_digit());
    let option = OPTIONS.iter().find(|(listed, _)| *listed == stem);
    if let Some((_, release)) = option {
        return Some((None, *release));
    }
    let has = |key: &str| {
        let mut parts = value.split(',').filter_map(|part| part.split_once('='));
        parts.any(|(named, _)| named == key)
    };
    match name {
        "machine" if has("aw-bits") => Some((Some("aw-bits".to_owned()), NINE)),
        _ => None,
    }
}

/// The same of a CPU as PVE writes it (`MODEL,flags=+FLAG;…`): its type, or the part behind it.
pub fn cpu_came_with(cpu: &str) -> Option<(String, PveRelease)> {
    let mut parts = cpu.split(',');
    let first = parts.next().unwrap_or_default();
    let model = first.strip_prefix("cputype=").unwrap_or(first);
    if CPU_TYPES.contains(&model) {
        return Some((model.to_owned(), NINE));
    }
    let newer = parts.find_map(|part| match part.split_once('=')? {
        ("guest-phys-bits", _) => Some("guest-phys-bits"),
        ("flags", flags) => {
            let mut flags = flags.split(';');
            let named = flags.any(|flag| flag.trim_start_matches(['+', '-']) == "nested-virt");
            named.then_some("nested-virt")
        }
        _ => None,
    });
    newer.map(|part| (part.to_owned(), NINE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_newer_is_known_by_its_name_or_by_a_part_of_its_value() {
        let part = |name: &str| Some((Some(name.to_owned()), NINE));
        for (name, value, wanted) in [
            ("allow-ksm", "0", Some((None, NINE))),
            ("intel-tdx", "tdx,attestation=1", Some((None, NINE))),
            ("virtiofs3", "dirid=data", Some((None, (8, 4)))),
            ("machine", "q35,viommu=intel,aw-bits=39", part("aw-bits")),
            ("machine", "q35,viommu=intel", None),
            ("shares", "1000", None),
            ("vga", "type=aw-bits", None),
        ] {
            assert_eq!(came_with(name, value), wanted, "{name}={value}");
        }
    }

    #[test]
    fn a_cpu_is_newer_by_its_type_or_by_a_flag() {
        let newer = |name: &str| Some((name.to_owned(), NINE));
        for (cpu, wanted) in [
            ("host", None),
            ("EPYC-Milan", None),
            ("EPYC-Milan-v3", newer("EPYC-Milan-v3")),
            ("cputype=EPYC-Turin,flags=+aes", newer("EPYC-Turin")),
            ("host,flags=+aes;-nested-virt", newer("nested-virt")),
            ("host,guest-phys-bits=40", newer("guest-phys-bits")),
            ("custom-EPYC-Turin", None),
        ] {
            assert_eq!(cpu_came_with(cpu), wanted, "{cpu}");
        }
    }
}
