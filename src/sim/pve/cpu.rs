//! What PVE's own CPU types ask of a host's CPU (qemu-server, `QemuServer/CPUConfig.pm`). PVE passes `enforce`, so that QEMU starts no
//! VM where the host lacks some of it.

use super::properties;
use super::spec::HostSpec;
use super::world::SimVm;

/// What begins the reason for which QEMU exits without starting: behind it stand the features that the host lacks, by line.
pub(super) const LACKING: &str = "host doesn't support: ";
/// The last line of QEMU's then.
pub(super) const UNSUPPORTED: &str = "kvm: Host doesn't support requested features";
/// What each type has beside that of the row before: the flag by the kernel's name, and as QEMU names it.
const TYPES: &[(&str, &[(&str, &str)])] = &[
    (
        "x86-64-v2",
        &[
            ("popcnt", "CPUID.01H:ECX.popcnt [bit 23]"),
            ("sse4_1", "CPUID.01H:ECX.sse4.1 [bit 19]"),
            ("sse4_2", "CPUID.01H:ECX.sse4.2 [bit 20]"),
            ("ssse3", "CPUID.01H:ECX.ssse3 [bit 9]"),
        ],
    ),
    ("x86-64-v2-AES", &[("aes", "CPUID.01H:ECX.aes [bit 25]")]),
    (
        "x86-64-v3",
        &[
            ("avx", "CPUID.01H:ECX.avx [bit 28]"),
            ("avx2", "CPUID.07H:EBX.avx2 [bit 5]"),
            ("bmi1", "CPUID.07H:EBX.bmi1 [bit 3]"),
            ("bmi2", "CPUID.07H:EBX.bmi2 [bit 8]"),
            ("f16c", "CPUID.01H:ECX.f16c [bit 29]"),
            ("fma", "CPUID.01H:ECX.fma [bit 12]"),
            ("abm", "CPUID.80000001H:ECX.abm [bit 5]"),
            ("movbe", "CPUID.01H:ECX.movbe [bit 22]"),
            ("xsave", "CPUID.01H:ECX.xsave [bit 26]"),
        ],
    ),
    (
        "x86-64-v4",
        &[
            ("avx512f", "CPUID.07H:EBX.avx512f [bit 16]"),
            ("avx512bw", "CPUID.07H:EBX.avx512bw [bit 30]"),
            ("avx512cd", "CPUID.07H:EBX.avx512cd [bit 28]"),
            ("avx512dq", "CPUID.07H:EBX.avx512dq [bit 17]"),
            ("avx512vl", "CPUID.07H:EBX.avx512vl [bit 31]"),
        ],
    ),
];

/// Whether a host has what a VM's CPU type asks, of the types that are PVE's own.
pub(super) fn check(vm: &SimVm, host: &HostSpec) -> Result<(), String> {
    let properties = properties(vm.text("cpu"), "cputype");
    let kind = properties.get("cputype").copied().unwrap_or_default();
    let Some(last) = TYPES.iter().position(|(name, _)| *name == kind) else {
        return Ok(());
    };
    let has = |flag: &str| host.cpu_flags.split(' ').any(|one| one == flag);
    let wanted = TYPES[..=last].iter().flat_map(|(_, flags)| flags.iter());
    let lacks: Vec<&str> = wanted
        .filter(|(flag, _)| !has(flag))
        .map(|(_, feature)| *feature)
        .collect();
    if lacks.is_empty() {
        return Ok(());
    }
    Err(format!("{LACKING}{}", lacks.join("\n")))
}
