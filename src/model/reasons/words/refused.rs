//! Why no machine is made, in words.

use std::fmt::{self, Display, Formatter};

use crate::action::NO_TEMPLATE;
use crate::reasons::{GuestAt, HostRefused, Limit, Refusals, Refused, UnknownAddresses};
use crate::words::{are, bytes, cores, count, percent, price};

use super::Joined;

impl Display for Refusals {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Joined(self.iter(), "; ").fmt(f)
    }
}

impl Display for Refused {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Refused::FilterFailure { filter_failure } => filter_failure.fmt(f),
            Refused::Held { hold } => hold.fmt(f),
            Refused::NoPool => write!(f, "no pool is configured"),
            Refused::NoInstanceType => write!(f, "it has no instance type"),
            Refused::NoFreeVmid => write!(f, "no VMID is free"),
            Refused::NoFreeName => write!(f, "no unused name was found"),
            Refused::NoHostShown { region, excluded } => {
                write!(f, "the region {region} shows no host that the pool may use")?;
                if excluded.is_empty() {
                    return Ok(());
                }
                let shown = Joined(excluded.iter(), ", ");
                write!(
                    f,
                    ": hosts and exclude_hosts leave none of its hosts ({shown})"
                )
            }
            Refused::NoHost => write!(f, "no host of its region may be used"),
            Refused::Host { host, refusal } => of_host(host, refusal, f),
            Refused::NoneOfHosts { hosts, first } => {
                // What is so of each host, of the template for instance, is said once.
                let mut said: Vec<String> = Vec::new();
                for refused in first {
                    let text = refused.to_string();
                    if !said.contains(&text) {
                        said.push(text);
                    }
                }
                write!(f, "none of {hosts} hosts will do: {}", said.join("; "))
            }
            Refused::CarriesLess { winner } => {
                write!(f, "{winner} carries more for its price")
            }
            Refused::WeighsLess { pool } => write!(f, "the pool {pool} weighs more"),
            Refused::NotCheaper => {
                write!(f, "no plan that has it is cheaper for all pods together")
            }
            Refused::ForOtherPods => write!(
                f,
                "this plan gives its machines to other pods, since more pods have a place so"
            ),
            Refused::TargetWaits { pod } => {
                write!(f, "it has pod affinity to {pod}, which has no place itself")
            }
            Refused::TargetPlanned { pod, machine } => write!(
                f,
                "it has pod affinity to {pod}, which goes to {machine} in this plan, where it does not fit"
            ),
            Refused::PlannedBeside {
                filter_failure,
                pod,
            } => {
                write!(f, "{filter_failure}, as {pod} goes there in this plan")
            }
            Refused::TooComplex { excess } => excess.fmt(f),
            Refused::Chained => write!(
                f,
                "too complex: its place depends on a longer chain of other pods than one decision looks at"
            ),
            Refused::TooDear { .. }
            | Refused::SameType { .. }
            | Refused::WeighsLessThanNode { .. }
            | Refused::LastOfDomain { .. }
            | Refused::NotAllPods { .. }
            | Refused::AnotherCheaper => of_replacement(self, f),
            limits => of_limits(limits, f),
        }
    }
}

/// Limits of pools and cluster.
fn of_limits(refused: &Refused, f: &mut Formatter<'_>) -> fmt::Result {
    match refused {
        Refused::PoolMax {
            machines,
            max,
            planned,
        } => {
            let has = count(*machines, "machine");
            write!(f, "pool limit: it has {has}, its max is {max}")?;
            match planned {
                0 => Ok(()),
                planned => write!(f, ", {planned} of them planned now"),
            }
        }
        Refused::NodesTotal { nodes, max } => write!(
            f,
            "the cluster has {} with those on their way, max_nodes_total is {max}",
            count(*nodes, "node")
        ),
        Refused::BacksOff { until } => write!(f, "the pool backs off until {until}"),
        Refused::InFlight { machines, max } => {
            let made = are(*machines, "machine");
            write!(f, "{made} being made, max_in_flight is {max}")
        }
        Refused::NoVmid { region } => {
            write!(f, "the region {region} has no free VMID in its range")
        }
        Refused::NetworkClosed { network, unknown } => {
            write!(f, "the network {network} gives no address: {unknown}")
        }
        Refused::NetworkFull {
            network,
            ranges,
            on_wire,
        } => of_full_network(network, ranges.as_deref(), *on_wire, f),
        Refused::PoolCeiling { of, would, max } => match of {
            Limit::Cpu => write!(
                f,
                "pool limit: its VMs would have {} cores, its ceiling is {}",
                cores(*would),
                cores(*max)
            ),
            Limit::Memory => write!(
                f,
                "pool limit: its VMs would have {} of memory, its ceiling is {}",
                bytes(*would),
                bytes(*max)
            ),
        },
        Refused::ClusterCeiling { of, would, max } => match of {
            Limit::Cpu => write!(
                f,
                "cluster limit: all VMs would have {} cores, {} is the most",
                cores(*would),
                cores(*max)
            ),
            Limit::Memory => write!(
                f,
                "cluster limit: all VMs would have {} of memory, {} is the most",
                bytes(*would),
                bytes(*max)
            ),
        },
        _ => Ok(()),
    }
}

/// A network whose addresses are all taken.
fn of_full_network(
    network: &str,
    ranges: Option<&str>,
    on_wire: Option<u64>,
    f: &mut Formatter<'_>,
) -> fmt::Result {
    write!(f, "the network {network} has no free address: ")?;
    match ranges {
        Some(ranges) => write!(f, "all of {ranges} are taken")?,
        None => f.write_str("it has none")?,
    }
    match on_wire {
        Some(1) => f.write_str(", 1 of them was seen in use on the wire"),
        Some(many) => write!(f, ", {many} of them were seen in use on the wire"),
        None => Ok(()),
    }
}

impl Display for UnknownAddresses {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the addresses of {} of the region {} are not known yet: {}",
            count(self.guests, "guest"),
            self.region,
            Joined(self.first.iter(), ", ")
        )?;
        let more = self.guests > self.first.len();
        f.write_str(if more { ", …" } else { "" })
    }
}

impl Display for GuestAt {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.vmid, self.host)
    }
}

/// Why a choice does not take the place of nodes.
fn of_replacement(refused: &Refused, f: &mut Formatter<'_>) -> fmt::Result {
    match refused {
        Refused::TooDear { price: asks, most } => write!(
            f,
            "it costs {} an hour, the replacement may cost at most {}",
            price(*asks),
            price(*most)
        ),
        Refused::SameType { node } => write!(f, "{node} is of this type"),
        Refused::WeighsLessThanNode { node } => write!(f, "the pool of {node} weighs more"),
        Refused::LastOfDomain { key, domain } => write!(
            f,
            "the pods are spread over {key}, and no other node is left in {domain}"
        ),
        Refused::NotAllPods { pod } => {
            write!(f, "one machine of it does not hold all pods: {pod}")
        }
        Refused::AnotherCheaper => write!(f, "another is cheaper"),
        _ => Ok(()),
    }
}

/// Whose disks come to a storage: those of a template's clones, or of VMs that are made of settings.
fn made_of(template: u32) -> String {
    if template == NO_TEMPLATE {
        "the disks of new VMs".to_owned()
    } else {
        format!("clones of template {template}")
    }
}

/// Why a host takes no further machine.
fn of_host(host: &str, refusal: &HostRefused, f: &mut Formatter<'_>) -> fmt::Result {
    match refusal {
        HostRefused::Offline => write!(f, "the host {host} is not online"),
        HostRefused::Maintenance => {
            write!(f, "the host {host} is in maintenance (the HA manager's)")
        }
        HostRefused::Evacuated { since } => write!(
            f,
            "the host {host} is evacuated since {since} (`pve-autoscaler evacuate --end {host}` ends that)"
        ),
        HostRefused::Unread { why } => {
            write!(f, "nobody knows how much of the host {host} is free: {why}")
        }
        HostRefused::NoTemplate { .. }
        | HostRefused::TemplateFault { .. }
        | HostRefused::StorageInactive { .. }
        | HostRefused::StorageNotShared { .. }
        | HostRefused::NoStorage { .. }
        | HostRefused::NoBridge { .. } => of_template(host, refusal, f),
        HostRefused::UnknownMemory => write!(f, "the memory of the host {host} is not known"),
        HostRefused::UnknownCpus => write!(f, "the CPUs of the host {host} are not known"),
        HostRefused::FewerCpus { has, asks } => write!(
            f,
            "the host {host} has {} CPUs, one of this type has {}, and PVE starts no VM with more than its host",
            cores(*has),
            cores(*asks)
        ),
        HostRefused::BacksOff { until } => write!(
            f,
            "a machine of the pool failed on the host {host}, which the pool does not use until {until}"
        ),
        HostRefused::PoolMax { machines } => write!(
            f,
            "the host {host} has {} of the pool, its max_per_host allows no more",
            count(*machines, "machine")
        ),
        HostRefused::RegionMax { machines } => write!(
            f,
            "the host {host} has {}, the region's max_per_host allows no more",
            count(*machines, "machine")
        ),
        HostRefused::UnknownMapping { .. }
        | HostRefused::NoDevice { .. }
        | HostRefused::Devices { .. }
        | HostRefused::MediatedDevices { .. }
        | HostRefused::MixedDevices { .. }
        | HostRefused::UntoldDevices { .. }
        | HostRefused::UnreadDevices { .. } => of_devices(host, refusal, f),
        HostRefused::NoTopology
        | HostRefused::OtherTopology { .. }
        | HostRefused::PinnedCpus { .. }
        | HostRefused::NumaMemory { .. }
        | HostRefused::HugePages { .. }
        | HostRefused::UnreadCpus { .. } => of_cpus(host, refusal, f),
        room => of_room(host, room, f),
    }
}

/// Why a host cannot clone the template.
fn of_template(host: &str, refusal: &HostRefused, f: &mut Formatter<'_>) -> fmt::Result {
    match refusal {
        HostRefused::NoTemplate {
            template,
            seen,
            tied,
        } => {
            write!(
                f,
                "the template {template} has no copy that the host {host} can clone ({seen} seen)"
            )?;
            match tied {
                Some(tied) => write!(f, ": {tied}"),
                None => Ok(()),
            }
        }
        HostRefused::TemplateFault { fault } => {
            write!(f, "no machine is made of the template: {fault}")
        }
        HostRefused::StorageInactive { storage, template } => write!(
            f,
            "the storage {storage} is not available on the host {host}, and {} go there",
            made_of(*template)
        ),
        HostRefused::NoStorage { storage, template } => write!(
            f,
            "the host {host} has no storage {storage}, and {} go there",
            made_of(*template)
        ),
        HostRefused::NoBridge { bridge } => write!(
            f,
            "the host {host} has no bridge {bridge}, which a network card of the machine is on (a token sees the bridges that it has SDN.Use on)"
        ),
        HostRefused::StorageNotShared { storage, template } => write!(
            f,
            "the storage {storage} of the host {host} is not shared, and {} come there from another host",
            made_of(*template)
        ),
        _ => Ok(()),
    }
}

/// Why a host has no PCI device for a machine.
fn of_devices(host: &str, refusal: &HostRefused, f: &mut Formatter<'_>) -> fmt::Result {
    match refusal {
        HostRefused::UnknownMapping { mapping } => write!(
            f,
            "PVE shows no mapping {mapping} of PCI devices, of which the host {host} would give one (Datacenter, Resource Mappings; \
             a token sees those that it has Mapping.Use on)"
        ),
        HostRefused::NoDevice { mapping } => {
            write!(
                f,
                "the mapping {mapping} has no PCI device on the host {host}"
            )
        }
        HostRefused::Devices {
            mapping,
            has,
            free,
            asks,
        } => {
            let devices = count(*has, "PCI device");
            write!(
                f,
                "the mapping {mapping} has {devices} on the host {host}, {free} of them free, one of this type takes {asks}"
            )
        }
        HostRefused::MediatedDevices { .. }
        | HostRefused::MixedDevices { .. }
        | HostRefused::UntoldDevices { .. } => of_mediated_devices(host, refusal, f),
        HostRefused::UnreadDevices {
            mapping,
            guest,
            guests,
        } => write!(
            f,
            "how many PCI devices of the mapping {mapping} are free on the host {host} is not known yet: the configuration of {} \
             there was not read, the first of them {guest}",
            count(*guests, "guest")
        ),
        _ => Ok(()),
    }
}

/// Why a host has no part of a card for a machine, or no whole one since others have parts.
fn of_mediated_devices(host: &str, refusal: &HostRefused, f: &mut Formatter<'_>) -> fmt::Result {
    match refusal {
        HostRefused::MediatedDevices {
            mapping,
            mdev,
            has: 0,
            ..
        } => write!(
            f,
            "the host {host} has no mediated device {mdev} of the mapping {mapping} left: other types or other guests use its cards, or they have \
             no such type (`pvesh get /nodes/{host}/hardware/pci/{mapping}/mdev` lists them)"
        ),
        HostRefused::MediatedDevices {
            mapping,
            mdev,
            has,
            free,
            asks,
        } => {
            let devices = count(*has, "mediated device");
            write!(
                f,
                "the mapping {mapping} has {devices} {mdev} on the host {host}, {free} of them free, one of this type takes {asks}"
            )
        }
        HostRefused::MixedDevices {
            mapping,
            mdev: Some(mdev),
        } => write!(
            f,
            "cards of the mapping {mapping} on the host {host} are promised whole, or to another type of mediated device than {mdev} before its VM \
             has started: what that leaves of {mdev} is not known"
        ),
        HostRefused::MixedDevices {
            mapping,
            mdev: None,
        } => write!(
            f,
            "cards of the mapping {mapping} on the host {host} are used for mediated devices, and no machine gets a whole one of it"
        ),
        HostRefused::UntoldDevices { mapping, mdev } => write!(
            f,
            "how many mediated devices {mdev} of the mapping {mapping} the host {host} has left is not known: it did not tell (it takes Sys.Audit \
             on /)"
        ),
        _ => Ok(()),
    }
}

/// Why a host has no CPUs for a machine alone.
fn of_cpus(host: &str, refusal: &HostRefused, f: &mut Formatter<'_>) -> fmt::Result {
    match refusal {
        HostRefused::NoTopology => write!(
            f,
            "the configuration has no topology of the host {host}, of which the machine would get CPUs of its own (`pve-autoscaler \
             host-topology` there prints it)"
        ),
        HostRefused::OtherTopology { listed, has } => write!(
            f,
            "the configuration's topology of the host {host} has {}, PVE says {has}: the host has changed since (`pve-autoscaler \
             host-topology` there prints it anew)",
            count(*listed, "CPU")
        ),
        HostRefused::PinnedCpus { free, asks } => write!(
            f,
            "{} of the host {host} that no guest has for itself {} free, one of this type takes {asks}",
            count(*free, "CPU"),
            if *free == 1 { "is" } else { "are" },
        ),
        HostRefused::NumaMemory { cpus, asks } => write!(
            f,
            "no NUMA nodes of the host {host} have {} and {} of memory free for one machine",
            count(*cpus, "CPU"),
            bytes(*asks)
        ),
        HostRefused::HugePages { nodes, asks } => {
            let of = if *nodes == 1 {
                "NUMA node 0".to_owned()
            } else {
                format!(
                    "each of the first {nodes} NUMA nodes (one for each socket; the host may have fewer)"
                )
            };
            write!(
                f,
                "{of} of the host {host} has too little memory left for huge pages of one machine, which takes {}: without \
                 cpu_pinning PVE takes them from there alone",
                bytes(*asks)
            )
        }
        HostRefused::UnreadCpus { guest, guests } => write!(
            f,
            "which CPUs are free on the host {host} is not known yet: the configuration of {} there was not read, the first of \
             them {guest}",
            count(*guests, "guest")
        ),
        _ => Ok(()),
    }
}

/// What a host has too little of.
fn of_room(host: &str, refusal: &HostRefused, f: &mut Formatter<'_>) -> fmt::Result {
    match refusal {
        HostRefused::Memory { left, asks } => write!(
            f,
            "the host {host} has {} of memory left for VMs, one of this type takes {}",
            bytes(*left),
            bytes(*asks)
        ),
        HostRefused::Cpu { left, asks } => write!(
            f,
            "the host {host} has {} cores left for VMs within cpu_overcommit, one of this type takes {}",
            cores(*left),
            cores(*asks)
        ),
        HostRefused::IdleMemory { idle, asks, keep } => write!(
            f,
            "the host {host} has {} of memory that is not in use, one of this type takes {}, and min_free_memory keeps {}",
            bytes(*idle),
            bytes(*asks),
            bytes(*keep)
        ),
        HostRefused::IdleCpu { idle, asks, keep } => write!(
            f,
            "the host {host} has {} cores that are not in use, one of this type takes {}, and min_free_cores keeps {}",
            cores(*idle),
            cores(*asks),
            cores(*keep)
        ),
        HostRefused::Load { of, is, most } => {
            let (key, most) = (of.key(), percent(*most));
            match is {
                Some(is) => write!(
                    f,
                    "the host {host} is too loaded: {} {of} on average, and {key} allows {most}",
                    percent(*is)
                ),
                None => write!(
                    f,
                    "how loaded the host {host} is PVE does not tell, and {key} allows no more than that {most} {of}"
                ),
            }
        }
        storage => of_storage(host, storage, f),
    }
}

/// Why a storage of a host has no room.
fn of_storage(host: &str, refusal: &HostRefused, f: &mut Formatter<'_>) -> fmt::Result {
    match refusal {
        HostRefused::StorageFree {
            storage,
            free,
            asks,
            keep,
        } => {
            let (free, asks) = (bytes(*free), bytes(*asks));
            write!(
                f,
                "the storage {storage} of the host {host} has {free} free that machines under way do not take, one of this type takes {asks}"
            )?;
            match keep {
                Some(keep) => write!(f, ", and min_free_storage keeps {}", bytes(*keep)),
                None => Ok(()),
            }
        }
        HostRefused::StorageGrowth {
            storage,
            left,
            asks,
            keep,
        } => {
            let (left, asks) = (bytes(*left), bytes(*asks));
            write!(
                f,
                "disks of machines may still grow by {left} on the storage {storage} of the host {host} (storage_overcommit"
            )?;
            if let Some(keep) = keep {
                write!(f, ", of which min_free_storage keeps {}", bytes(*keep))?;
            }
            write!(f, "), one of this type takes {asks}")
        }
        HostRefused::StorageUnknown { storage } => write!(
            f,
            "how large the storage {storage} of the host {host} is PVE does not tell, and min_free_storage is to stay free of it"
        ),
        HostRefused::NoneOfStorages { each } => {
            f.write_str("none of the storages that are listed takes a disk: ")?;
            for (position, one) in each.iter().enumerate() {
                if position > 0 {
                    f.write_str("; ")?;
                }
                of_host(host, one, f)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}
