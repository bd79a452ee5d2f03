//! CPUs, NUMA nodes and huge pages that VMs keep of their host, as PVE asks for them at the start (qemu-server,
//! `QemuServer/Memory.pm`). Words of errors as there.

use std::collections::BTreeMap;

use super::power::EXITED;
use super::properties;
use super::spec::HostSpec;
use super::world::SimVm;

/// What PVE says where it does not get a VM's huge pages together: Perl adds where it was said, as to all words without a line's end.
const NO_PAGES: &str = "start failed: hugepage allocation failed at /usr/share/perl5/PVE/QemuServer/Memory.pm line 731.";
/// What PVE says of huge pages without NUMA, and of a NUMA node without a node of the host. Perl adds where.
const NO_NUMA: &str = "numa needs to be enabled to use hugepages at /usr/share/perl5/PVE/QemuServer/Memory.pm line 388.";
const NO_NODE: &str = "numa hostnodes need to be defined to use hugepages at /usr/share/perl5/PVE/QemuServer/Memory.pm line 430.";
/// What PVE says of a node of the guest over several of the host's, with huge pages.
const SEVERAL: &str = "start failed: more than 1 hostnode value in numa node is not supported when hugepages are enabled at \
                       /usr/share/perl5/PVE/QemuServer/Memory.pm line 629.";
/// MiB of a page of `any`, where the memory is no whole GiB.
const SMALL: u64 = 2;
/// Where the memory of a NUMA node of the guest may come from.
const POLICIES: [&str; 3] = ["preferred", "bind", "interleave"];

/// Whether the text of a NUMA node can be stored.
pub(super) fn verify(key: &str, text: &str) -> Result<(), String> {
    let bad = |why: String| Err(format!("format error\n{key}.{why}"));
    let options = properties(text, "cpus");
    for (name, value) in &options {
        match *name {
            "cpus" | "hostnodes" if !is_list(value) => {
                return bad(format!("{name}: value does not match the regex pattern"));
            }
            "memory" if value.parse::<f64>().is_err() => {
                return bad(format!(
                    "memory: type check ('number') failed - got '{value}'"
                ));
            }
            "policy" if !POLICIES.contains(value) => {
                return bad(format!(
                    "policy: value '{value}' does not have a value in the enumeration '{}'",
                    POLICIES.join(", ")
                ));
            }
            "cpus" | "hostnodes" | "memory" | "policy" => {}
            _ => {
                return bad(format!(
                    "{name}: property is not defined in schema and the schema does not allow additional properties"
                ));
            }
        }
    }
    if options.contains_key("cpus") {
        Ok(())
    } else {
        bad("cpus: property is missing and it is not optional".to_owned())
    }
}

/// `0-3;8`.
fn is_list(text: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.split(';').all(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        number(first) && number(last)
    })
}

/// Whether a VM can be started with what it has.
pub(super) fn check(vm: &SimVm, host: &HostSpec) -> Result<(), String> {
    let hugepages = vm.text("hugepages");
    if !hugepages.is_empty() && !vm.flag("numa") {
        return Err(NO_NUMA.to_owned());
    }
    let nodes = (0..8).filter_map(|at| Some((at, vm.config.get(&format!("numa{at}"))?)));
    let nodes: Vec<(u32, &String)> = nodes.filter(|_| vm.flag("numa")).collect();
    let mut total = 0;
    for (at, text) in &nodes {
        let properties = properties(text, "cpus");
        let memory = properties.get("memory").and_then(|text| text.parse().ok());
        let memory: u64 = memory.ok_or_else(|| format!("missing NUMA node{at} memory value"))?;
        check_pages(hugepages, memory)?;
        if let Some(hosts) = properties.get("hostnodes") {
            let missing = numbers(hosts).find(|number| *number >= host.numa_nodes);
            if let Some(missing) = missing {
                return Err(format!("host NUMA node{missing} doesn't exist"));
            }
            if !properties.contains_key("policy") {
                return Err(format!("you need to define a policy for hostnode {hosts}"));
            }
        } else if !hugepages.is_empty() {
            return Err(NO_NODE.to_owned());
        }
        total += memory;
    }
    if !nodes.is_empty() && total != vm.memory_mib() {
        return Err("total memory for NUMA nodes must be equal to vm static memory".to_owned());
    }
    if nodes.is_empty() && !hugepages.is_empty() {
        let sockets = vm.number("sockets", 1).max(1);
        if sockets > u64::from(host.numa_nodes) {
            return Err(format!("host NUMA node{} doesn't exist", host.numa_nodes));
        }
        check_pages(hugepages, vm.memory_mib() / sockets)?;
    }
    let affinity = vm.text("affinity");
    // Perl takes the text 0 for none.
    let pinned = affinity != "0" && !affinity.is_empty();
    // CPUs that the host does not have are passed over while it has one of them: so does the kernel. `taskset` takes no comma at the end,
    // which PVE stores.
    let none = numbers(affinity).all(|cpu| cpu >= host.cpus);
    if pinned && (none || affinity.ends_with(',')) {
        return Err(EXITED.to_owned());
    }
    Ok(())
}

/// Whether a host has the huge pages of a VM beside those of the VMs that run (`hugepages_allocate`).
pub(super) fn check_free<'v>(
    vm: &SimVm,
    host: &HostSpec,
    running: impl Iterator<Item = &'v SimVm>,
) -> Result<(), String> {
    let mut taken = pages(vm);
    if taken.is_empty() {
        return Ok(());
    }
    let nodes = (0..8).map(|at| properties(vm.text(&format!("numa{at}")), "cpus"));
    let mut hosts = nodes.filter_map(|node| node.get("hostnodes").copied());
    if hosts.any(|text| text.len() != 1) {
        return Err(SEVERAL.to_owned());
    }
    for other in running {
        for (node, mib) in pages(other) {
            *taken.entry(node).or_default() += mib;
        }
    }
    let of_node = (host.memory >> 20) / u64::from(host.numa_nodes.max(1));
    let most = host.huge_pages.unwrap_or(of_node);
    let wanted = pages(vm);
    let mut wanted = wanted.keys();
    if wanted.any(|node| *node >= host.numa_nodes || taken.get(node) > Some(&most)) {
        return Err(NO_PAGES.to_owned());
    }
    Ok(())
}

/// MiB of a VM's huge pages by the host's NUMA nodes: those that `numaN` names, else one for each socket (`hugepages_topology`).
fn pages(vm: &SimVm) -> BTreeMap<u32, u64> {
    let mut pages: BTreeMap<u32, u64> = BTreeMap::new();
    if vm.text("hugepages").is_empty() {
        return pages;
    }
    for at in 0..8 {
        let properties = properties(vm.text(&format!("numa{at}")), "cpus");
        let node = properties.get("hostnodes");
        let node = node.and_then(|text| numbers(text).next());
        let memory = properties.get("memory");
        let memory = memory.and_then(|text| text.parse::<u64>().ok());
        if let (Some(node), Some(memory)) = (node, memory) {
            *pages.entry(node).or_default() += memory;
        }
    }
    if pages.is_empty() {
        let sockets = vm.number("sockets", 1).max(1);
        for node in 0..u32::try_from(sockets).unwrap_or(1) {
            pages.insert(node, vm.memory_mib() / sockets);
        }
    }
    pages
}

/// Memory is whole pages (`hugepages_size`).
fn check_pages(hugepages: &str, memory: u64) -> Result<(), String> {
    let page = match hugepages {
        "" => return Ok(()),
        "any" => SMALL,
        size => size.parse().unwrap_or(SMALL),
    };
    if memory == 0 || !memory.is_multiple_of(2) {
        return Err(format!(
            "memory size '{memory}' is not a positive even integer; cannot use for hugepages"
        ));
    }
    if !memory.is_multiple_of(page) {
        return Err(format!(
            "Memory size {memory} is not a multiple of the requested hugepages size {page}"
        ));
    }
    Ok(())
}

/// The numbers of a list such as `0-3,8` or `0;2`.
fn numbers(text: &str) -> impl Iterator<Item = u32> + '_ {
    let parts = text.split([',', ';']);
    parts.flat_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u32>().unwrap_or(u32::MAX - 1);
        number(first)..=number(last)
    })
}
