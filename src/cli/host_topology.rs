//! `host-topology`: what the CPUs of this host are to each other, as the table of the configuration that pools with `cpu_pinning` need.
//!
//! PVE's API tells the number of CPUs and sockets and nothing more, so the kernel is asked, on each host.

use std::fmt::Write as _;

use anyhow::Context as _;

use super::args::HostTopologyOptions;
use super::{CliFailure, print};
use crate::model::cpus::CpuSet;
use crate::model::topology::HostTopology;
use crate::pinning::topology::{devices, read};

/// Where the kernel tells of its CPUs.
pub(super) const SYS: &str = "/sys/devices/system";
/// Where the kernel tells of its PCI devices.
pub(super) const PCI: &str = "/sys/bus/pci/devices";
/// PVE's mappings of PCI devices.
pub(super) const MAPPINGS: &str = "/etc/pve/mapping/pci.cfg";
/// Lists in one line of the table.
const IN_A_LINE: usize = 8;

/// The name of a region or a host: letters, digits and hyphens, as PVE and a key of the configuration have them.
pub(super) fn word(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if text.is_empty() || text.len() > 63 || !text.chars().all(fits) {
        return Err(
            "expected letters, digits and hyphens, at most 63, such as pve1; without a domain"
                .to_owned(),
        );
    }
    Ok(text.to_owned())
}

/// Prints the table of this host.
pub(super) fn run(options: &HostTopologyOptions) -> Result<(), CliFailure> {
    let mut topology = read(&options.sys)?;
    let host = match &options.host {
        Some(host) => host.clone(),
        None => name()?,
    };
    topology.reserved = match &options.reserved {
        Some(text) => CpuSet::read(text).with_context(|| {
            format!("cannot read --reserved {text:?}; expected CPUs such as 0,32 or 0-3")
        })?,
        None => topology.cores.first().cloned().unwrap_or_default(),
    };
    let missing = topology.reserved.without(&topology.cpus());
    if !missing.is_empty() {
        let all = topology.cpus();
        return Err(anyhow::anyhow!(
            "cannot reserve the CPUs {missing}: {host} has {all}; give --reserved some of those"
        )
        .into());
    }
    let mut left_out = String::new();
    let mappings = match std::fs::read_to_string(&options.mappings) {
        Ok(mappings) => mappings,
        // A host without mappings has no such file.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => {
            let file = options.mappings.display();
            left_out = format!(
                "# devices is left out: cannot read {file} ({error}); run this as root where machines get PCI devices.\n"
            );
            String::new()
        }
    };
    topology.devices = devices(&mappings, &options.pci, &host);
    print(&(table(&options.region, &host, &topology) + &left_out))
}

/// The name under which PVE knows this host.
pub(super) fn name() -> anyhow::Result<String> {
    let name = nix::unistd::gethostname().context("cannot tell the name of this host")?;
    let name = name.to_string_lossy();
    let first = name.split('.').next().unwrap_or_default();
    anyhow::ensure!(
        !first.is_empty(),
        "cannot tell the name of this host; name it with --host"
    );
    Ok(first.to_owned())
}

/// The table as the configuration has it.
fn table(region: &str, host: &str, topology: &HostTopology) -> String {
    let mut text = String::new();
    let region = match region {
        "default" => "proxmox".to_owned(),
        region => format!("region.{region}"),
    };
    let _ = writeln!(text, "[{region}.topology.{host}]");
    let quoted = |set: &CpuSet| format!("\"{set}\"");
    let numa: Vec<String> = topology.numa.iter().map(|of| quoted(&of.cpus)).collect();
    let of = |sets: &[CpuSet]| sets.iter().map(quoted).collect::<Vec<String>>();
    write_list(&mut text, "sockets", &of(&topology.sockets));
    write_list(&mut text, "numa", &numa);
    let memory = topology.numa.iter().map(|of| {
        let mib = of.memory.unwrap_or(0) >> 20;
        format!("\"{mib}MiB\"")
    });
    let memory: Vec<String> = memory.collect();
    text.push_str(
        "# What a node has, but for 1 GiB. Leave out more for guests that are bound to none.\n",
    );
    write_list(&mut text, "numa_memory", &memory);
    write_list(&mut text, "caches", &of(&topology.caches));
    write_list(&mut text, "cores", &of(&topology.cores));
    text.push_str("# For PVE itself and for guests without CPUs of their own, which run on all.\n");
    let _ = writeln!(text, "reserved = \"{}\"", topology.reserved);
    if !topology.devices.is_empty() {
        text.push_str("# The NUMA nodes that devices of PVE's mappings are in.\n");
        let devices = topology.devices.iter().map(|(mapping, nodes)| {
            let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
            format!("{mapping} = \"{}\"", nodes.join(","))
        });
        let devices: Vec<String> = devices.collect();
        let _ = writeln!(text, "devices = {{ {} }}", devices.join(", "));
    }
    text
}

fn write_list(text: &mut String, key: &str, items: &[String]) {
    if items.len() <= IN_A_LINE {
        let _ = writeln!(text, "{key} = [{}]", items.join(", "));
        return;
    }
    let _ = writeln!(text, "{key} = [");
    for line in items.chunks(IN_A_LINE) {
        let _ = writeln!(text, "    {},", line.join(", "));
    }
    text.push_str("]\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pinning::topology::tests::kernel;

    #[test]
    fn what_is_printed_is_what_the_kernel_says_and_the_file_takes_it() {
        let sys = kernel();
        let mut topology = read(sys.path()).expect("it is read");
        let texts = |sets: &[CpuSet]| sets.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(&topology.cores), ["0,4", "1,5", "2,6", "3"]);
        assert_eq!(texts(&topology.sockets), ["0-1,4-5", "2-3,6"]);
        assert_eq!(texts(&topology.caches), ["0-1,4-5", "2-3,6"]);
        let nodes: Vec<CpuSet> = topology.numa.iter().map(|node| node.cpus.clone()).collect();
        assert_eq!(texts(&nodes), ["0-1,4-5", "", "2-3,6"]);
        topology.reserved = CpuSet::from_iter([0, 4]);
        topology.devices = [
            ("gpu_a-1".into(), [0, 2].into()),
            ("nic".into(), [2].into()),
        ]
        .into();
        for (region, header) in [("default", "[proxmox]"), ("home", "[region.home]")] {
            let file = format!(
                "version = 1\n{header}\nvmids = \"9000-9019\"\n[template.debian]\nvmid = 8000\n[instance_type.s]\ncores = 2\n\
                 memory = \"4GiB\"\n[pool.small]\ntemplate = \"debian\"\ninstance_types = [\"s\"]\nmax = 3\ncpu_pinning = true\n{}",
                table(region, "pve1", &topology)
            );
            let settings = crate::config::parse(&file, "test.toml");
            let settings = settings.unwrap_or_else(|e| panic!("{e}\n{file}"));
            let policy = &settings.policy.regions[region];
            // A node that is not there has no memory that could be printed.
            topology.numa[1].memory = Some(0);
            assert_eq!(*policy.topologies["pve1"], topology, "{file}");
        }
    }
}
