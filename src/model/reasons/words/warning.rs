//! What a person should look at, in words: what it is about comes first, then what is wrong, then what to do.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use super::Joined;
use crate::foreign::ForeignText;
use crate::lacking::{LackingPart, PartKind};
use crate::reasons::Refused;
use crate::reasons::warning::{HostNote, Lost, Orphan, StorageNote, VmAt, Warning};
use crate::words::{bytes, cores, count, names};

impl Display for VmAt {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "region {}: VM {} ({})",
            self.region, self.vmid, self.name
        )
    }
}

fn write_no_template(
    f: &mut Formatter<'_>,
    (pool, further_pools): (&Arc<str>, &[Arc<str>]),
    (region, template): (&str, &str),
    fault: Option<&ForeignText>,
) -> fmt::Result {
    let they = if let Some((last, between)) = further_pools.split_last() {
        let first = std::iter::once(pool).chain(between);
        write!(f, "the pools {} and {last} get", Joined(first, ", "))?;
        "they"
    } else {
        write!(f, "the pool {pool} gets")?;
        "it"
    };
    write!(f, " no machine in the region {region}")?;
    match fault {
        None => write!(
            f,
            ": no host that {they} may use has the template {template}; `pve-autoscaler doctor` says what to do"
        ),
        Some(fault) => write!(
            f,
            ", since none is made of the template {template}: {fault}"
        ),
    }
}

fn write_redefined_template(
    f: &mut Formatter<'_>,
    (region, template): (&str, &str),
    hosts: &[Arc<str>],
) -> fmt::Result {
    write!(
        f,
        "the template {template} in the region {region} was built from another definition than the file has now: new machines on {} are made of it as it is; `pve-autoscaler template build {template}` builds it anew",
        Joined(hosts.iter(), ", ")
    )
}

/// What the configuration names and a region does not have, or has otherwise.
fn of_configuration(warning: &Warning, f: &mut Formatter<'_>) -> fmt::Result {
    match warning {
        Warning::NoTemplate {
            pool,
            further_pools,
            region,
            template,
            fault,
        } => {
            let pools = (pool, further_pools.as_slice());
            write_no_template(f, pools, (region, template), fault.as_ref())
        }
        Warning::TemplateRedefined {
            region,
            template,
            hosts,
        } => write_redefined_template(f, (region, template), hosts),
        Warning::UnknownHost {
            region,
            host,
            hosts,
        } => write!(
            f,
            "the configuration names the host {host}, which the region {region} does not have: its hosts are {}",
            Joined(hosts.iter(), ", ")
        ),
        Warning::Lacking { region, part } => write_lacking(f, region, part),
        _ => Ok(()),
    }
}

fn write_lacking(f: &mut Formatter<'_>, region: &str, part: &LackingPart) -> fmt::Result {
    let LackingPart { kind, name, pools } = part;
    let of = of_pools(pools);
    write!(f, "region {region}: ")?;
    match kind {
        PartKind::SecurityGroup => write!(
            f,
            "there is no security group {name}: machines of {of} are made all the same, and the rule with it lets nothing through; `pvesh create /cluster/firewall/groups --group {name}` makes it, without rules"
        ),
        PartKind::Tag => write!(
            f,
            "the API token may not set the tag {name}, or take it away, by the datacenter's rules for tags: machines of {of} fail after their clone; `pve-autoscaler doctor` says what lets it"
        ),
        PartKind::PciMapping | PartKind::UsbMapping | PartKind::DirMapping => write!(
            f,
            "PVE shows no {kind} {name}, of which machines of {of} have something by the file: they cannot start; add it (Datacenter, Resource Mappings), or correct the file"
        ),
    }
}

/// Something that does not do its part: a host, kube-scheduler, the API server.
fn outage(warning: &Warning, f: &mut Formatter<'_>) -> fmt::Result {
    match warning {
        Warning::HostOffline {
            region,
            host,
            machines,
        } => write!(
            f,
            "the host {host} of the region {region} is offline, with {}: Kubernetes moves their pods when it gives the nodes up, and nothing of them can be removed before the host is back; see what is wrong with it",
            count(*machines, "machine")
        ),
        Warning::NominationsRefused => f.write_str(
            "the API server does not let pods be nominated for the nodes that are made for them (patch of pods/status), so plans have more machines than the tightest one, and pods that must run beside others may wait for good; apply contrib/kubernetes/rbac.yaml of this version (`pve-autoscaler kubeconfig` does), or set scale_up.nominate_pods = false",
        ),
        Warning::SchedulerSilent { pods } => write!(
            f,
            "kube-scheduler has not looked at {} for more than two minutes, nor at any other pod since: a machine is made for pods that it finds no place for, so see whether it runs (that of k3s and RKE2 begins when the first node is there: let a pool's `min` be 1)",
            count(*pods, "pod")
        ),
        _ => Ok(()),
    }
}

/// Of a machine whose CPUs are not its own.
fn of_cpus(warning: &Warning, f: &mut Formatter<'_>) -> fmt::Result {
    let Warning::LostCpus {
        machine,
        host,
        cpus,
        shared,
        with,
        lacking,
        untold,
        far,
    } = warning
    else {
        return Ok(());
    };
    write!(
        f,
        "machine {machine} on the host {host} has the CPUs {cpus} by its affinity"
    )?;
    if let Some(with) = with {
        write!(f, "; VM {with} has {shared} of them too")?;
    }
    if !lacking.is_empty() {
        write!(f, "; {lacking} of them are not the host's for machines")?;
    }
    if *untold {
        f.write_str(
            "; the file has no topology of that host, so nobody knows which CPUs these are there",
        )?;
    }
    if *far {
        f.write_str("; its memory is bound to other NUMA nodes there than these CPUs are in")?;
    }
    f.write_str(": a VM that is migrated keeps its affinity; migrate the one back that came, or drain the node, and a new machine gets CPUs of its own")
}

fn of_node(warning: &Warning, f: &mut Formatter<'_>) -> fmt::Result {
    match warning {
        Warning::OrphanNode { node, orphan } => {
            write!(f, "node {node}: {}", of_orphan(*orphan))
        }
        _ => Ok(()),
    }
}

/// Of a pool whose nodes offer less than is reckoned.
fn of_less(warning: &Warning, f: &mut Formatter<'_>) -> fmt::Result {
    let Warning::NodesOfferLess {
        pool,
        instance_type,
        cpu_milli,
        memory,
        reckoned_cpu_milli,
        reckoned_memory,
    } = warning
    else {
        return Ok(());
    };
    write!(
        f,
        "nodes of {pool}/{instance_type} offer pods {} CPU and {}, where {} and {} are reckoned: let [pool.{pool}.reserved] say what their kubelet keeps; \
         if the template was mended, `pve-autoscaler retry {pool}` forgets what its nodes offered",
        cores(*cpu_milli),
        bytes(*memory),
        cores(*reckoned_cpu_milli),
        bytes(*reckoned_memory)
    )
}

impl Display for Warning {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Warning::FormerCluster { cluster, machines } => write!(
                f,
                "the journal has {} of the cluster {cluster}, which is not this one: they are left alone and not counted; `pve-autoscaler adopt` shows what is left of that cluster and sets its journal aside",
                count(*machines, "machine"),
            ),
            Warning::NodesLost { lost, running } => write!(
                f,
                "{lost} of {running} running machines have no Node any more; none of them is removed for that: a Node comes back when its kubelet is started anew"
            ),
            Warning::TooComplex { namespaces, more } => {
                let named = Joined(namespaces.iter(), ", ");
                write!(f, "pods of the namespaces {named}")?;
                if *more > 0 {
                    write!(f, " and {more} more")?;
                }
                write!(
                    f,
                    " are too complex to be weighed within the budget of one decision: pending ones get no machine, running ones keep their nodes, and their anti-affinity towards other pods is ignored"
                )
            }
            Warning::TooManyToReplan { pods } => write!(
                f,
                "{} for a machine, and no plan is looked for that has a place for more of them: too many pods, or kinds of pods, come together in one decision; a larger max or larger types may help them",
                match pods {
                    1 => "1 pod waits".to_owned(),
                    many => format!("{many} pods wait"),
                }
            ),
            Warning::NotMade {
                replacement,
                refused,
            } if *replacement => write!(f, "no replacement is made: {refused}"),
            Warning::NotMade { refused, .. } => write!(f, "no machine is made: {refused}"),
            Warning::SharedZone { zone, regions } => write!(
                f,
                "the regions {} each have a host {zone}, which for Kubernetes is one zone: with zone = \"region.host\" in their tables pods are spread over both",
                Joined(regions.iter(), " and ")
            ),
            Warning::NoTemplate { .. }
            | Warning::TemplateRedefined { .. }
            | Warning::UnknownHost { .. }
            | Warning::Lacking { .. } => of_configuration(self, f),
            Warning::HostOffline { .. }
            | Warning::NominationsRefused
            | Warning::SchedulerSilent { .. } => outage(self, f),
            Warning::NodesOfferLess { .. } => of_less(self, f),
            Warning::LostCpus { .. } => of_cpus(self, f),
            Warning::OrphanNode { .. } => of_node(self, f),
            Warning::Quarantined { .. }
            | Warning::LeftAlone { .. }
            | Warning::PoolGone { .. }
            | Warning::FailedAndKept { .. }
            | Warning::FailedAndAnnotated { .. }
            | Warning::NotUpdated { .. }
            | Warning::PoweredOff { .. } => of_machine(self, f),
            Warning::DamagedMark { .. }
            | Warning::UnknownMark { .. }
            | Warning::OtherCluster { .. }
            | Warning::CopiedMark { .. }
            | Warning::HalfDestroyed { .. }
            | Warning::TrialVm { .. }
            | Warning::ForeignVm { .. }
            | Warning::UnreadMachine { .. }
            | Warning::UnreadVm { .. }
            | Warning::UnreadRow { .. }
            | Warning::UnreadHost { .. } => of_vm(self, f),
        }
    }
}

/// What is said of a node that claims to be ours.
fn of_orphan(orphan: Orphan) -> &'static str {
    match orphan {
        Orphan::Unchecked => {
            "it claims to be ours, but no machine of ours is behind it, and the claim cannot be checked"
        }
        Orphan::LeftAlone => {
            "it claims to be ours, but no machine of ours is behind it; it is left alone"
        }
        Orphan::Deleted => {
            "it claims to be ours and was deleted, and a finalizer keeps it: `kubectl get node -o yaml` of it shows whose"
        }
        Orphan::Quarantined => "its VM is gone; it is in quarantine",
    }
}

/// Writes a warning about a machine of ours.
fn of_machine(warning: &Warning, f: &mut Formatter<'_>) -> fmt::Result {
    match warning {
        Warning::Quarantined { machine, lost } => {
            let what = match lost {
                Lost::Node => "its node is gone",
                Lost::Vm => "its VM is gone",
                Lost::Mark => "its VM does not carry our mark any more",
            };
            write!(f, "machine {machine}: {what}; it is in quarantine")
        }
        Warning::LeftAlone {
            machine,
            left_alone,
        } => write!(f, "machine {machine}: left alone: {left_alone}"),
        Warning::PoolGone { machine, pool } => write!(
            f,
            "machine {machine}: its pool {pool} is not in the configuration any more, and it is kept as it is: bring [pool.{pool}] back, with max = 0 to have it removed"
        ),
        Warning::FailedAndKept {
            machine,
            vmid,
            host,
            failure,
            until,
        } => write!(
            f,
            "machine {machine} failed: {failure}; it is kept until {until} to be looked into (keep_failed): `qm guest exec {vmid} -- journalctl -b` or \
             `qm terminal {vmid}` on the host {host}; `qm stop {vmid}` ends it now"
        ),
        Warning::FailedAndAnnotated {
            machine,
            failure,
            annotation,
        } => write!(
            f,
            "machine {machine} failed: {failure}; it is kept, because its node is annotated with {annotation}=true"
        ),
        Warning::NotUpdated {
            machine,
            differences,
        } => write!(
            f,
            "machine {machine}: {}; change the file or the VM",
            Joined(differences.iter(), "; ")
        ),
        Warning::PoweredOff {
            machine,
            vmid,
            host,
            since,
            started,
        } => {
            write!(
                f,
                "machine {machine}: its VM {vmid} on {host} is off since {since}; "
            )?;
            match started {
                None => write!(f, "the HA manager has it and decides"),
                Some(started) => write!(
                    f,
                    "it was started at {started} and is not started again: `qm start {vmid}` on {host} does"
                ),
            }
        }
        _ => Ok(()),
    }
}

/// Writes a warning about a VM that is not provably ours.
fn of_vm(warning: &Warning, f: &mut Formatter<'_>) -> fmt::Result {
    match warning {
        Warning::DamagedMark { vm, damage } => {
            write!(f, "{vm}: its mark is damaged: {damage}; it is left alone")
        }
        Warning::UnknownMark { vm, version } => write!(
            f,
            "{vm}: its mark has the unknown version {version}; it is left alone"
        ),
        Warning::OtherCluster { vm, cluster } => {
            write!(
                f,
                "{vm}: it belongs to the cluster {cluster}; it is left alone"
            )
        }
        Warning::CopiedMark {
            vm,
            original,
            machine,
        } => write!(
            f,
            "{vm}: it is a copy of VM {original}, machine {machine}, and has its mark. Both are left alone until the copy is destroyed, or the line of the mark is out of its description (the VM's Notes)"
        ),
        Warning::HalfDestroyed { vm, host } => write!(
            f,
            "{vm}: what an interrupted removal left, and not known to be ours; `qm destroy {} --skiplock` on {host} finishes it",
            vm.vmid
        ),
        Warning::TrialVm { vm, template } => write!(
            f,
            "{vm}: `pve-autoscaler template try` tries the template {template} with it, and removes it at its end; the next `pve-autoscaler template try {template}` removes it where that was interrupted or told to keep it"
        ),
        Warning::ForeignVm {
            vm,
            being_made: true,
        } => write!(
            f,
            "{vm}: it is being made, by somebody else or by `pve-autoscaler template try`, inside our VMID range"
        ),
        Warning::ForeignVm { vm, .. } => write!(f, "{vm}: somebody else's, inside our VMID range"),
        Warning::UnreadMachine { vm, host, pool } => write!(
            f,
            "{vm}: its configuration cannot be read; until {host} answers it counts as a machine of the pool {pool}, by its name"
        ),
        Warning::UnreadVm { region, vmid, host } => write!(
            f,
            "region {region}: VM {vmid}: neither its configuration nor its name can be read until {host} answers; if it is a machine of ours, its pool has one more than is counted"
        ),
        Warning::UnreadHost { region, host, why } => write!(
            f,
            "region {region}: host {host}: nobody knows how much of it is free, so that no machine is made on it: {why}"
        ),
        Warning::UnreadRow { vm, host, why } => {
            let at = if host.is_empty() { "" } else { " on " };
            write!(
                f,
                "{vm}{at}{host}: PVE's row of it cannot be read: {why}; it counts as there, as it was seen last"
            )
        }
        _ => Ok(()),
    }
}

impl Display for HostNote {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            HostNote::Offline => write!(f, "offline"),
            HostNote::Maintenance => write!(f, "in maintenance"),
            HostNote::Evacuated { since } => write!(f, "evacuated since {since}"),
            HostNote::Unread { why } => write!(f, "nobody knows how much of it is free: {why}"),
            HostNote::NoPool => write!(f, "no pool may use it"),
            HostNote::BacksOff {
                pool,
                until,
                failure,
            } => write!(f, "pool {pool} makes nothing here until {until}: {failure}"),
            HostNote::TakenLast { pool, failure } => {
                write!(
                    f,
                    "pool {pool} makes its next machines on other hosts where they have room, since one failed here: {failure}"
                )
            }
            HostNote::LoadUntold { bound, pools } => {
                let (pool, make) = match pools.len() {
                    1 => ("pool", "makes"),
                    _ => ("pools", "make"),
                };
                let pools = names(pools);
                write!(
                    f,
                    "PVE does not tell what {bound} bounds, so that {pool} {pools} {make} nothing here"
                )
            }
            HostNote::OwnCpus { free: 0, .. } => {
                f.write_str("no CPU is free for one machine alone")
            }
            HostNote::OwnCpus { free, cpus } => write!(
                f,
                "{} free for one machine alone: {cpus}",
                count(*free, "CPU")
            ),
            HostNote::NoOwnCpus { host, refusal } => {
                let (host, refusal) = (host.clone(), refusal.clone());
                Refused::Host { host, refusal }.fmt(f)
            }
        }
    }
}

impl Display for StorageNote {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            StorageNote::NotAvailable { hosts } => write!(f, "not available on {}", names(hosts)),
            StorageNote::UnknownSize { pools } if pools.is_empty() => {
                f.write_str("PVE does not tell its size, so that nothing of it is counted")
            }
            StorageNote::UnknownSize { pools } => write!(
                f,
                "PVE does not tell its size, so that of {} no machine is made: min_free_storage is to stay free of it",
                of_pools(pools)
            ),
            StorageNote::NoRoom { pools, asks } => write!(
                f,
                "no room for a machine of {}, which takes {} of it at least",
                of_pools(pools),
                bytes(*asks)
            ),
            StorageNote::SharesSpace { with } => {
                write!(f, "shares its space with {}", names(with))
            }
        }
    }
}

/// Pools by name: `the pool a`, `the pools a and b`.
fn of_pools(pools: &[Arc<str>]) -> String {
    let pool = if pools.len() == 1 { "pool" } else { "pools" };
    format!("the {pool} {}", names(pools))
}
