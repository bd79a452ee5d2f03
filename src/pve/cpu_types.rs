//! CPU types, and what a host's CPU must have for each. PVE passes `enforce` to QEMU, which then starts no VM of a type of which the
//! host lacks anything. Sources: qemu-server `QemuServer/CPUConfig.pm` for PVE's own types, QEMU `target/i386/cpu.c` for the others.
//!
//! Of QEMU's types the table has what sets one generation of CPUs apart from others, and what KVM cannot stand in for; so what is said
//! to be lacking is, and a host that lacks something else may still be passed.

use std::collections::BTreeSet;

use super::vm_config;

/// A type: its name without what stands behind it for mitigations, TSX and versions; the type whose flags it has as well, or none;
/// and further flags, as /proc/cpuinfo writes them.
struct CpuType(&'static str, &'static str, &'static [&'static str]);

const AVX512: &[&str] = &["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"];

/// PVE's own types, the best one first.
pub const GENERIC: [&str; 4] = ["x86-64-v4", "x86-64-v3", "x86-64-v2-AES", "x86-64-v2"];

/// The types that ask for something.
const TYPES: &[CpuType] = &[
    CpuType("x86-64-v2", "", &["ssse3", "sse4_1", "sse4_2", "popcnt"]),
    CpuType("x86-64-v2-AES", "x86-64-v2", &["aes"]),
    CpuType(
        "x86-64-v3",
        "x86-64-v2-AES",
        &[
            "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave",
        ],
    ),
    CpuType("x86-64-v4", "x86-64-v3", AVX512),
    CpuType("Nehalem", "x86-64-v2", &[]),
    CpuType("Westmere", "Nehalem", &["aes", "pclmulqdq"]),
    CpuType("SandyBridge", "Westmere", &["avx", "xsave"]),
    CpuType(
        "IvyBridge",
        "SandyBridge",
        &["f16c", "rdrand", "fsgsbase", "smep", "erms"],
    ),
    CpuType(
        "Haswell",
        "IvyBridge",
        &["avx2", "bmi1", "bmi2", "fma", "movbe", "pcid", "invpcid"],
    ),
    CpuType("Broadwell", "Haswell", &["adx", "rdseed", "smap"]),
    CpuType("Skylake-Client", "Broadwell", &[]),
    CpuType("Skylake-Server", "x86-64-v4", &["pcid", "adx", "clwb"]),
    CpuType("Cascadelake-Server", "Skylake-Server", &["avx512_vnni"]),
    CpuType("Cooperlake", "Cascadelake-Server", &["avx512_bf16"]),
    CpuType(
        "Icelake-Server",
        "Cascadelake-Server",
        &["avx512vbmi", "avx512_vbmi2", "gfni", "vaes"],
    ),
    CpuType(
        "SapphireRapids",
        "Icelake-Server",
        &["avx512_bf16", "avx512_fp16", "amx_tile"],
    ),
    CpuType("GraniteRapids", "SapphireRapids", &[]),
    CpuType("SierraForest", "x86-64-v3", &["gfni", "vaes", "avx_vnni"]),
    CpuType("ClearwaterForest", "SierraForest", &[]),
    CpuType(
        "Opteron_G4",
        "x86-64-v2-AES",
        &["sse4a", "avx", "xsave", "xop", "fma4"],
    ),
    CpuType("Opteron_G5", "Opteron_G4", &["f16c", "fma", "tbm"]),
    CpuType("EPYC", "x86-64-v3", &["sse4a", "adx", "smap", "sha_ni"]),
    CpuType("EPYC-Rome", "EPYC", &["clwb"]),
    CpuType("EPYC-Milan", "EPYC-Rome", &["erms", "invpcid", "pku"]),
    CpuType(
        "EPYC-Genoa",
        "EPYC-Milan",
        &["avx512f", "avx512vl", "avx512_bf16", "gfni", "vaes"],
    ),
    CpuType("EPYC-Turin", "EPYC-Genoa", &["avx_vnni"]),
];

/// Types with TSX, which many CPUs have lost to a microcode; those whose names have `noTSX` or a later version do without.
const WITH_TSX: [&str; 11] = [
    "Haswell",
    "Haswell-IBRS",
    "Broadwell",
    "Broadwell-IBRS",
    "Skylake-Client",
    "Skylake-Client-IBRS",
    "Skylake-Server",
    "Skylake-Server-IBRS",
    "Cascadelake-Server",
    "Cascadelake-Server-v2",
    "Icelake-Server",
];

/// Flags that `flags` of a CPU may switch on, and that are called so by the kernel too.
const BY_NAME: [&str; 3] = ["aes", "pcid", "pdpe1gb"];

/// The type of a CPU as a VM's configuration writes it: `x86-64-v3,flags=+aes`.
pub fn cpu_type(cpu: &str) -> &str {
    let first = cpu.split(',').next().unwrap_or_default();
    let named = cpu
        .split(',')
        .find_map(|part| part.strip_prefix("cputype="));
    named.unwrap_or(if first.contains('=') { "" } else { first })
}

/// What a host's CPU lacks for a VM with this CPU, by the names of /proc/cpuinfo, sorted; empty where the type is not known, or asks for
/// nothing in particular (`host`, `max`, `kvm64`, one of the cluster's own).
pub fn lacking(cpu: &str, host: &BTreeSet<String>) -> Vec<&'static str> {
    let kind = cpu_type(cpu);
    let mut needed = BTreeSet::new();
    let mut next = base(kind);
    while let Some(CpuType(_, before, flags)) = TYPES.iter().find(|of| of.0 == next) {
        needed.extend(flags.iter().copied());
        next = before;
    }
    if WITH_TSX.contains(&kind) {
        needed.extend(["hle", "rtm"]);
    }
    let flags = vm_config::option(cpu, "flags").unwrap_or_default();
    for flag in flags.split(';').filter(|_| kind != "host") {
        let known = BY_NAME.iter().find(|known| flag.get(1..) == Some(**known));
        match (known, flag.starts_with('+')) {
            (Some(known), true) => {
                needed.insert(*known);
            }
            (Some(known), false) => {
                needed.remove(known);
            }
            (None, _) => {}
        }
    }
    needed.retain(|flag| !host.contains(*flag));
    needed.into_iter().collect()
}

/// A type's name without what stands behind it: `Haswell` of `Haswell-noTSX-IBRS`, `EPYC` of `EPYC-v4`.
fn base(kind: &str) -> &str {
    if GENERIC.contains(&kind) {
        return kind;
    }
    let mut name = kind;
    while let Some((before, last)) = name.rsplit_once('-') {
        let version = last.strip_prefix('v');
        let version = version.is_some_and(|number| number.parse::<u8>().is_ok());
        if !version && !["IBRS", "IBPB", "noTSX"].contains(&last) {
            break;
        }
        name = before;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(flags: &str) -> BTreeSet<String> {
        flags.split(' ').map(str::to_owned).collect()
    }

    /// A CPU with everything that a type of the table asks for.
    fn whole() -> BTreeSet<String> {
        let flags = TYPES.iter().flat_map(|of| of.2.iter());
        let flags = flags.map(|flag| (*flag).to_owned());
        flags.chain(["hle", "rtm"].map(str::to_owned)).collect()
    }

    #[test]
    fn a_type_asks_for_what_the_types_before_it_have_too() {
        let of = |cpu: &str, flags: &str| lacking(cpu, &host(flags)).join(" ");
        let old = "ssse3 sse4_1 sse4_2 popcnt aes pclmulqdq";
        assert_eq!(of("x86-64-v2", old), "");
        assert_eq!(of("Westmere", old), "");
        assert_eq!(of("SandyBridge-IBRS", old), "avx xsave");
        assert_eq!(of("x86-64-v2-AES", "ssse3 popcnt"), "aes sse4_1 sse4_2");
        let v3 = "abm avx avx2 bmi1 bmi2 f16c fma movbe";
        assert_eq!(of("x86-64-v3", old), format!("{v3} xsave"));
        let more = of("cputype=x86-64-v3,flags=+pcid", old);
        assert_eq!(more, format!("{v3} pcid xsave"));
        assert_eq!(
            of("x86-64-v2-AES,flags=-aes", "ssse3 sse4_1 sse4_2 popcnt"),
            ""
        );
        for any in [
            "host",
            "host,flags=+aes",
            "max",
            "kvm64",
            "custom-x",
            "",
            "hidden=1",
        ] {
            assert_eq!(of(any, "sse2"), "", "{any}");
        }
    }

    #[test]
    fn what_sets_generations_apart_is_found() {
        for (cpu, without, lacks) in [
            ("Haswell", "hle", true),
            ("Haswell-noTSX-IBRS", "hle", false),
            ("Cascadelake-Server-v2", "rtm", true),
            ("Cascadelake-Server-v4", "rtm", false),
            ("Icelake-Server-v3", "rtm", false),
            ("EPYC-v4", "sha_ni", true),
            ("EPYC-IBPB", "sse4a", true),
            ("EPYC-Rome-v2", "clwb", true),
            ("EPYC-Milan", "avx512f", false),
            ("EPYC-Genoa-v2", "avx512f", true),
            ("Opteron_G5", "fma4", true),
            ("SapphireRapids-v3", "amx_tile", true),
            ("GraniteRapids", "amx_tile", true),
            ("Nehalem", "aes", false),
        ] {
            assert_eq!(lacking(cpu, &whole()), Vec::<&str>::new(), "{cpu}");
            let mut host = whole();
            host.remove(without);
            assert_eq!(lacking(cpu, &host) == [without], lacks, "{cpu} {without}");
        }
    }

    #[test]
    fn every_row_ends_and_is_reached_by_its_name() {
        for CpuType(name, before, _) in TYPES {
            assert_eq!(base(name), *name);
            let known = TYPES.iter().any(|of| of.0 == *before);
            assert!(before.is_empty() || known, "{name} {before}");
            assert!(!lacking(name, &BTreeSet::new()).is_empty(), "{name}");
        }
        assert!(
            GENERIC
                .iter()
                .all(|name| TYPES.iter().any(|of| of.0 == *name))
        );
    }
}
