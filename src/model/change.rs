//! What would have to change so that a waiting pod gets a machine: one sentence for each thing in the way, with the key of the file, the
//! field of the pod or the command. What passes by itself (machines under way, a view that is not read yet) has none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster::ObjectKey;
use crate::hosts::LoadKind;
use crate::reasons::{FilterFailure, HostRefused, Limit, Refusals, Refused, VolumeFilterFailure};
use crate::story::{OfferAnswer, PlannedAnswer};
use crate::words::{UNCOUNTED, amount, bytes, cores};

#[cfg(test)]
mod tests;

/// Of how many ways to a machine a person is told: those with the fewest changes.
const MOST: usize = 4;

/// One way to a machine for a pod: all that would have to change for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The machines that come into reach by it, as `pool/type`.
    pub places: Vec<Arc<str>>,
    /// The changes, all of them needed, in words.
    pub needed: Vec<String>,
}

/// The ways to a machine for a pod that has none, of what a machine of each pool, instance type and host is to it, and each machine that is
/// planned: the one with the fewest changes first, then the one with the cheapest machine. Empty where nothing that a person could change is in
/// the way. `target` is the pod that it has to be with, where that one has no place itself.
pub fn find_changes(
    offers: &[OfferAnswer],
    planned: &[PlannedAnswer],
    target: Option<&ObjectKey>,
) -> Vec<Change> {
    // By pool and type the host with the fewest changes.
    let mut best: BTreeMap<(&str, &str), (i64, Vec<String>)> = BTreeMap::new();
    for offer in offers {
        let Some(needed) = of_offer(offer, target).filter(|needed| !needed.is_empty()) else {
            continue;
        };
        let known = best.entry((&offer.pool, &offer.instance_type));
        let known = known.or_insert_with(|| (offer.price, needed.clone()));
        if needed.len() < known.1.len() {
            *known = (offer.price, needed);
        }
    }
    // What takes the same changes is one way.
    let mut ways: BTreeMap<Vec<String>, (i64, Vec<Arc<str>>)> = BTreeMap::new();
    for ((pool, instance_type), (price, needed)) in best {
        let way = ways.entry(needed).or_insert((price, Vec::new()));
        way.0 = way.0.min(price);
        way.1.push(format!("{pool}/{instance_type}").into());
    }
    for machine in find_roomless(offers, planned) {
        let needed = of_planned(machine, offers);
        let way = ways.entry(needed).or_insert((0, Vec::new()));
        way.1.push(format!("{}, planned", machine.name).into());
    }
    let mut ways: Vec<_> = ways.into_iter().collect();
    ways.sort_by_key(|(needed, (price, _))| (needed.len(), *price));
    ways.truncate(MOST);
    ways.into_iter()
        .map(|(needed, (_, places))| Change { places, needed })
        .collect()
}

/// What would have to change for one machine; `None` where something is in the way that nobody can change.
fn of_offer(offer: &OfferAnswer, target: Option<&ObjectKey>) -> Option<Vec<String>> {
    let filter_failures = offer.filter_failure.iter().chain(&offer.further);
    let filter_failures = filter_failures.map(|filter_failure| match (filter_failure, target) {
        (FilterFailure::Affinity { nowhere: true, .. }, Some(target)) => Some(format!(
            "see to it that {target} gets a place, which the pod has to be with (type: pve-autoscaler explain pod {target})"
        )),
        _ => of_filter_failure(filter_failure, &offer.pool),
    });
    let held = offer.held.iter().flat_map(Refusals::iter);
    let held = held.map(|refused| of_refused(refused, &offer.pool));
    let mut needed: Vec<String> = filter_failures.chain(held).collect::<Option<_>>()?;
    needed.dedup();
    Some(needed)
}

/// The planned machines that lack nothing but room, with the least lacking first, where the pod has to be with pods that have their places: a new
/// machine is no help to it. Of each pool and type one.
fn find_roomless<'p>(
    offers: &[OfferAnswer],
    planned: &'p [PlannedAnswer],
) -> Vec<&'p PlannedAnswer> {
    let apart = |offer: &OfferAnswer| {
        let mut all = offer.filter_failure.iter().chain(&offer.further);
        all.any(|why| matches!(why, FilterFailure::Affinity { nowhere: false, .. }))
    };
    if !offers.iter().all(apart) {
        return Vec::new();
    }
    let lacks = |machine: &PlannedAnswer| {
        let all = machine.filter_failure.iter().chain(&machine.further);
        let lacks = all.map(|why| match why {
            FilterFailure::Insufficient { asked, free, .. } => Some(asked.saturating_sub(*free)),
            _ => None,
        });
        lacks.collect::<Option<Vec<i64>>>()
    };
    let mut roomless: Vec<_> = planned
        .iter()
        .filter_map(|machine| Some((lacks(machine)?, machine)))
        .filter(|(lacks, _)| !lacks.is_empty())
        .collect();
    roomless.sort_by(|(a, _), (b, _)| (a.len(), a).cmp(&(b.len(), b)));
    let mut seen = BTreeSet::new();
    roomless.retain(|(_, machine)| seen.insert((&machine.pool, &machine.instance_type)));
    roomless.into_iter().map(|(_, machine)| machine).collect()
}

/// What would have to change for a planned machine that lacks room.
fn of_planned(machine: &PlannedAnswer, offers: &[OfferAnswer]) -> Vec<String> {
    let of_pool = offers.iter().filter(|offer| offer.pool == machine.pool);
    let empty = of_pool.clone().find(|offer| {
        (&offer.instance_type, &offer.host) == (&machine.instance_type, &machine.host)
    });
    let failures = machine.filter_failure.iter().chain(&machine.further);
    let needed = failures.filter_map(|why| {
        let FilterFailure::Insufficient {
            resource,
            asked,
            free,
            ..
        } = why
        else {
            return None;
        };
        let used = empty.map_or(0, |offer| offer.free.get(resource).saturating_sub(*free));
        let all = used.saturating_add(*asked);
        let is_large = of_pool.clone().any(|offer| offer.free.get(resource) >= all);
        if *asked == UNCOUNTED || &**resource == "pods" || !is_large {
            return Some(of_room_beside(resource, (*asked, all), *free, &machine.pool));
        }
        let larger = format!(
            "let a larger machine of [pool.{}] be made in its place, which limits or hosts keep now",
            machine.pool
        );
        Some(or_less(resource, *free, larger))
    });
    needed.collect()
}

/// What would have to change for a pod that has to be beside others: `all` is what they ask together.
fn of_room_beside(resource: &str, (asked, all): (i64, i64), free: i64, pool: &str) -> String {
    if asked == UNCOUNTED || resource == "pods" {
        return of_resource(resource, asked, free, pool);
    }
    let all = amount(resource, all);
    let larger = format!(
        "give [pool.{pool}] an instance type that has {all} of {resource} for it and the pods beside it"
    );
    or_less(resource, free, larger)
}

/// What would do in place of smaller requests, with these where there is any room.
fn or_less(resource: &str, free: i64, larger: String) -> String {
    if free <= 0 {
        return larger;
    }
    format!(
        "ask for at most {} of {resource}, or {larger}",
        amount(resource, free)
    )
}

/// Whether a label's value is the node's own, which no table of the file gives it.
fn is_own_label(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    domain == "kubernetes.io" || domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io")
}

fn of_filter_failure(filter_failure: &FilterFailure, pool: &str) -> Option<String> {
    let change = match filter_failure {
        FilterFailure::Taint { taint, .. } => {
            let value = match &*taint.value {
                "" => String::new(),
                value => format!("={value}"),
            };
            format!(
                "let the pod tolerate the taint {}{value}:{:?} (spec.tolerations)",
                taint.key, taint.effect
            )
        }
        FilterFailure::NodeSelector { key, value } if is_own_label(key) => {
            format!("change {key}={value} in the pod's nodeSelector")
        }
        FilterFailure::NodeSelector { key, value } => format!(
            "give the nodes the label {key}={value} (labels of [pool.{pool}]), or take it from the pod's nodeSelector"
        ),
        FilterFailure::NodeAffinity { .. } => {
            format!("change the pod's required node affinity, or labels of [pool.{pool}]")
        }
        FilterFailure::Volume { volume } => return of_volume(volume),
        FilterFailure::HostPort {
            daemon_set: Some(set),
            ..
        } => format!("use a host port that the DaemonSet {set} does not have"),
        FilterFailure::Insufficient {
            resource,
            asked,
            free,
            ..
        } => of_resource(resource, *asked, *free, pool),
        FilterFailure::AntiAffinity { key, .. }
        | FilterFailure::AntiAffinityOfOthers { key, .. } => format!(
            "prefer the anti-affinity over {key} in place of requiring it, or give [pool.{pool}] hosts in further domains of it"
        ),
        FilterFailure::AffinityLabel { key } | FilterFailure::SpreadLabel { key } => {
            format!("give the nodes the label {key} (labels of [pool.{pool}])")
        }
        FilterFailure::Affinity { nowhere: true, .. } => {
            "start a pod that the pod's affinity selects, and that has a place itself".to_owned()
        }
        FilterFailure::Affinity { key, .. } => format!(
            "make room where a pod is that the pod's affinity selects, or prefer the affinity over {key} in place of requiring it"
        ),
        FilterFailure::Spread {
            key,
            min_domains: Some(_),
            ..
        } => format!("lower minDomains of the pod's topology spread over {key}, or add a domain"),
        FilterFailure::Spread { key, .. } => format!(
            "raise maxSkew of the pod's topology spread over {key}, or set whenUnsatisfiable: ScheduleAnyway"
        ),
        FilterFailure::DaemonSetAntiAffinity { key, .. } => {
            format!("change the anti-affinity over {key} between the pod and the DaemonSet's pods")
        }
        FilterFailure::Leaving | FilterFailure::Cordoned | FilterFailure::HostPort { .. } => {
            return None;
        }
    };
    Some(change)
}

fn of_resource(resource: &str, asked: i64, free: i64, pool: &str) -> String {
    if asked == UNCOUNTED {
        return format!(
            "mend the pod's request of {resource}: it cannot be read, or is more than any node has"
        );
    }
    let (asks, offers) = (amount(resource, asked), amount(resource, free));
    match resource {
        "pods" => format!("raise max_pods of [pool.{pool}]"),
        "cpu" | "memory" if free > 0 => format!(
            "ask for at most {offers} of {resource}, or give [pool.{pool}] an instance type that has {asks} of it for pods"
        ),
        "ephemeral-storage" if free > 0 => format!(
            "ask for at most {offers} of {resource}, or give [pool.{pool}] an instance type with a larger disk"
        ),
        _ => format!("give [pool.{pool}] an instance type with {asks} of {resource}"),
    }
}

fn of_volume(volume: &VolumeFilterFailure) -> Option<String> {
    let change = match volume {
        VolumeFilterFailure::ClaimInUse { claim, user } => {
            format!("end the pod {user}, which has the claim {claim} for itself")
        }
        VolumeFilterFailure::NoClaim { claim } => format!("create the claim {claim}"),
        VolumeFilterFailure::ClaimLost { claim } | VolumeFilterFailure::NoVolume { claim, .. } => {
            format!("restore the volume of the claim {claim}, or make the claim anew")
        }
        VolumeFilterFailure::NoStorageClass { claim, class } => {
            format!("create the StorageClass {class}, or name another in the claim {claim}")
        }
        VolumeFilterFailure::UnboundWithoutClass { claim } => {
            format!("name a StorageClass in the claim {claim}, or make one the default")
        }
        VolumeFilterFailure::UnboundImmediate { claim, class } => format!(
            "see why the claim {claim} is not bound (the provisioner of the StorageClass {class}), or use a class with volumeBindingMode: WaitForFirstConsumer"
        ),
        VolumeFilterFailure::NoneFree { claim, class, .. } => {
            format!("make a volume of the StorageClass {class} for the claim {claim}")
        }
        _ => return None,
    };
    Some(change)
}

fn of_refused(refused: &Refused, pool: &str) -> Option<String> {
    let change = match refused {
        Refused::FilterFailure { filter_failure } => {
            return of_filter_failure(filter_failure, pool);
        }
        Refused::PoolMax { max, .. } => format!("raise max of [pool.{pool}] above {max}"),
        Refused::NodesTotal { max, .. } => {
            format!("raise max_nodes_total of [scale_up] above {max}")
        }
        Refused::BacksOff { .. } => format!(
            "mend what made its machines fail (status tells), then type: pve-autoscaler retry {pool}"
        ),
        Refused::NoVmid { region } => format!("widen vmids of the region {region}"),
        Refused::NetworkFull { network, .. } => format!("widen ranges of [network.{network}]"),
        Refused::PoolCeiling { of, would, .. } => format!(
            "raise {} of [pool.{pool}] to {}",
            limit_key(*of),
            limit_amount(*of, *would)
        ),
        Refused::ClusterCeiling { of, would, .. } => format!(
            "raise {} of [limits] to {}",
            limit_key(*of),
            limit_amount(*of, *would)
        ),
        Refused::NoHostShown { .. } | Refused::NoHost => {
            format!("let [pool.{pool}] use a host (hosts, exclude_hosts)")
        }
        Refused::Host { host, refusal } => return of_host(host, refusal, pool),
        Refused::NoneOfHosts { first, .. } => {
            return first.iter().find_map(|one| of_refused(one, pool));
        }
        _ => return None,
    };
    Some(change)
}

fn limit_key(of: Limit) -> &'static str {
    match of {
        Limit::Cpu => "max_cpu",
        Limit::Memory => "max_memory",
    }
}

fn limit_amount(of: Limit, amount: i64) -> String {
    match of {
        Limit::Cpu => cores(amount),
        Limit::Memory => bytes(amount),
    }
}

fn of_host(host: &str, refusal: &HostRefused, pool: &str) -> Option<String> {
    let change = match refusal {
        HostRefused::Offline => format!("bring the host {host} back"),
        HostRefused::Maintenance => {
            format!(
                "end the maintenance of {host}: ha-manager crm-command node-maintenance disable {host}"
            )
        }
        HostRefused::Evacuated { .. } => {
            format!("let {host} have machines again: pve-autoscaler evacuate --end {host}")
        }
        HostRefused::NoTemplate { template, .. } => {
            format!("make the template {template} on {host}, or on a storage that {host} shares")
        }
        HostRefused::TemplateFault { fault } => format!("mend the template: {fault}"),
        HostRefused::StorageInactive { storage, .. } | HostRefused::NoStorage { storage, .. } => {
            format!("make the storage {storage} available on {host}")
        }
        HostRefused::NoBridge { bridge } => format!("make the bridge {bridge} on {host}"),
        HostRefused::StorageNotShared { .. } => {
            format!("make the template on {host}, or list a storage that is shared")
        }
        HostRefused::NoneOfStorages { each } => {
            return each.iter().find_map(|one| of_host(host, one, pool));
        }
        HostRefused::BacksOff { .. } => format!(
            "mend what made machines fail on {host} (status tells), then type: pve-autoscaler retry {pool}"
        ),
        HostRefused::PoolMax { machines } => {
            format!("raise max_per_host of [pool.{pool}] above {machines}")
        }
        HostRefused::RegionMax { machines } => {
            format!("raise max_per_host of its region above {machines}")
        }
        room => return of_room(host, room, pool),
    };
    Some(change)
}

/// What would have to change so that a host has room.
fn of_room(host: &str, refusal: &HostRefused, pool: &str) -> Option<String> {
    let change = match refusal {
        HostRefused::Memory { left, asks } => format!(
            "free {} of memory that guests of {host} are promised, or raise memory_overcommit",
            bytes(asks.saturating_sub(*left))
        ),
        HostRefused::Cpu { left, asks } => format!(
            "free {} cores that guests of {host} are promised, or raise cpu_overcommit",
            cores(asks.saturating_sub(*left))
        ),
        HostRefused::IdleMemory { .. } => {
            format!("free memory that is in use on {host}, or lower min_free_memory")
        }
        HostRefused::IdleCpu { .. } => {
            format!("free CPUs that are in use on {host}, or lower min_free_cores")
        }
        HostRefused::Load { of, .. } => {
            format!("take load from {host}, or raise {}", load_key(*of))
        }
        HostRefused::StorageFree {
            storage,
            free,
            asks,
            keep,
        } => {
            let wanted = asks.saturating_add(keep.unwrap_or(0));
            let missing = bytes(wanted.saturating_sub(*free));
            let lower = keep.map_or("", |_| ", or lower min_free_storage");
            format!("free {missing} on the storage {storage} of {host}{lower}")
        }
        HostRefused::StorageGrowth { storage, keep, .. } => {
            let lower = keep.map_or("", |_| " or lower min_free_storage");
            format!("enlarge the storage {storage} of {host}, or raise storage_overcommit{lower}")
        }
        HostRefused::StorageUnknown { storage } => format!(
            "let PVE tell the size of the storage {storage} of {host} (a token needs Datastore.Audit on it), or set min_free_storage of [pool.{pool}] to \"0%\""
        ),
        HostRefused::UnknownMapping { mapping } | HostRefused::NoDevice { mapping } => {
            format!("map a device of {host} as {mapping} (Datacenter, Resource Mappings)")
        }
        HostRefused::MediatedDevices { mapping, mdev, .. } => {
            format!("free a mediated device {mdev} of {mapping} on {host}")
        }
        HostRefused::Devices { mapping, .. } => {
            format!("free a device of {mapping} on {host}")
        }
        HostRefused::HugePages { .. } => format!(
            "free memory of the first NUMA nodes of {host}, or set cpu_pinning of [pool.{pool}], by which the memory is beside free CPUs"
        ),
        HostRefused::NoTopology | HostRefused::OtherTopology { .. } => {
            format!(
                "put the CPUs of {host} into the file: pve-autoscaler host-topology prints them there"
            )
        }
        _ => return None,
    };
    Some(change)
}

fn load_key(of: LoadKind) -> &'static str {
    match of {
        LoadKind::Cpu => "max_cpu_load",
        LoadKind::Memory => "max_memory_load",
        LoadKind::CpuPressure | LoadKind::MemoryPressure | LoadKind::IoPressure => "max_pressure",
    }
}
