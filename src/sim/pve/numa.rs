//! CPUs, NUMA nodes and huge pages that VMs keep of their host, as PVE asks for them at the start (qemu-server,
//! `QemuServer/Memory.pm`). Words of errors as there.

use super::power::EXITED;
use super::properties;
use super::spec::HostSpec;
use super::world::SimVm;

/// MiB of a page of `any`, where the memory is no whole GiB.
const SMALL: u64 = 2;

/// Whether a VM can be started with what it has.
pub(super) fn check(vm: &SimVm, host: &HostSpec) -> Result<(), String> {
    let hugepages = vm.text("hugepages");
    if !hugepages.is_empty() && !vm.flag("numa") {
        return Err("numa needs to be enabled to use hugepages".to_owned());
    }
    let nodes = (0..8).filter_map(|at| Some((at, vm.config.get(&format!("numa{at}"))?)));
    let nodes: Vec<(u32, &String)> = nodes.filter(|_| vm.flag("numa")).collect();
    let mut total = 0;
    for (at, text) in &nodes {
        let properties = properties(text, "cpus");
        let memory = properties.get("memory").and_then(|text| text.parse().ok());
        let memory: u64 = memory.ok_or_else(|| format!("missing NUMA node{at} memory value"))?;
        if let Some(hosts) = properties.get("hostnodes") {
            let missing = numbers(hosts).find(|number| *number >= host.numa_nodes);
            if let Some(missing) = missing {
                return Err(format!("host NUMA node{missing} doesn't exist"));
            }
            if !properties.contains_key("policy") {
                return Err(format!("you need to define a policy for hostnode {hosts}"));
            }
        } else if !hugepages.is_empty() {
            return Err("numa hostnodes need to be defined to use hugepages".to_owned());
        }
        check_pages(hugepages, memory)?;
        total += memory;
    }
    if !nodes.is_empty() && total != vm.memory_mib() {
        return Err("total memory for NUMA nodes must be equal to vm static memory".to_owned());
    }
    if nodes.is_empty() {
        check_pages(hugepages, vm.memory_mib())?;
    }
    let affinity = vm.text("affinity");
    // Perl takes the text 0 for none.
    let pinned = affinity != "0" && !affinity.is_empty();
    if pinned && numbers(affinity).any(|cpu| cpu >= host.cpus) {
        return Err(EXITED.to_owned());
    }
    Ok(())
}

/// Memory is whole pages.
fn check_pages(hugepages: &str, memory: u64) -> Result<(), String> {
    let page = match hugepages {
        "" => return Ok(()),
        "any" => SMALL,
        size => size.parse().unwrap_or(SMALL),
    };
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
