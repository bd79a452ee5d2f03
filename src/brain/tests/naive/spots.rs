//! The nodes there are, that are on their way, and that are planned.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::guest;
use crate::tests::lab::Lab;
use filters::{NodeInfo, PodInfo, Site, attached, bears, chosen};
use model::action::Kind;
use model::cluster::{Node, ObjectKey, ReadyStatus};
use model::decision::Decision;
use model::policy::{LEAVING_TAINT, STARTUP_TAINT};
use model::region::{Busy, Machine, Step};
use model::resources::Resources;
use model::scheduling::{Labels, Taint};

/// Taints that Kubernetes takes away by itself.
const PASSING: [&str; 6] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/unschedulable",
    "node.cloudprovider.kubernetes.io/uninitialized",
    "node.kubernetes.io/out-of-service",
];

fn tainted(node: &Node, key: &str) -> bool {
    node.taints.iter().any(|taint| &*taint.key == key)
}

fn machine_of<'a>(lab: &'a Lab, node: &str) -> Option<&'a Machine> {
    let mut machines = lab.snapshot.machines.values();
    machines.find(|machine| machine.node.as_deref() == Some(node))
}

fn starting(lab: &Lab, machine: &Machine, node: &Node) -> bool {
    let pool = &lab.policy.pools[machine.mark.pool.as_str()];
    let mut startup = pool.startup_taints.iter();
    machine.step.is_none_or(|(step, _)| step < Step::Done)
        && (tainted(node, STARTUP_TAINT) || startup.any(|taint| tainted(node, &taint.key)))
}

/// Whether a node is leaving, or never became one.
pub(super) fn leaving(lab: &Lab, name: &str) -> bool {
    let Some(node) = lab.snapshot.cluster.nodes.get(name) else {
        return false;
    };
    let machine = machine_of(lab, name);
    node.deletion.is_some()
        || tainted(node, LEAVING_TAINT)
        || machine.is_some_and(|machine| {
            let late = lab.now.since(machine.mark.created) > lab.policy.scale_up.max_provision_time;
            let failed = machine
                .failure
                .as_ref()
                .is_some_and(|failure| failure.step < Step::Done);
            machine.busy == Some(Busy::Down)
                || machine.vm.is_none()
                || machine.step.is_some_and(|(step, _)| step > Step::Done)
                || starting(lab, machine, node) && (failed || late)
        })
}

/// All spots, with what stands on them.
pub(in crate::tests) fn all(lab: &Lab, decision: &Decision) -> Vec<NodeInfo> {
    let mut spots = Vec::new();
    for (name, node) in &lab.snapshot.cluster.nodes {
        if !leaving(lab, name) {
            spots.push(of_node(lab, name, node));
        }
    }
    for (name, machine) in &lab.snapshot.machines {
        let late = lab.now.since(machine.mark.created) > lab.policy.scale_up.max_provision_time;
        let coming = machine.node.is_none()
            && machine.failure.is_none()
            && machine.busy != Some(Busy::Down)
            && machine.step.is_none_or(|(step, _)| step < Step::Done)
            && !late;
        if coming {
            let mark = &machine.mark;
            let (pool, kind) = (mark.pool.as_str(), mark.instance_type.as_str());
            spots.push(template(lab, name, pool, kind, &machine.host, Site::Coming));
        }
    }
    for action in &decision.plan {
        if let Kind::Create(spec) = &action.kind {
            let (pool, kind) = (spec.mark.pool.as_str(), spec.mark.instance_type.as_str());
            let target = &action.target;
            spots.push(template(
                lab,
                &target.machine,
                pool,
                kind,
                &target.host,
                Site::Planned,
            ));
        }
    }
    spots
}

/// One empty machine of every choice, on every host.
pub(super) fn offers(lab: &Lab) -> Vec<NodeInfo> {
    let mut spots = Vec::new();
    for (name, pool) in &lab.policy.pools {
        for kind in &pool.instance_types {
            for host in lab.snapshot.regions[&pool.region].hosts.keys() {
                if (pool.hosts.is_empty() || pool.hosts.contains(host))
                    && !pool.host_rules.exclude.contains(host)
                {
                    let called: Arc<str> = format!("new {name}/{kind} on {host}").into();
                    spots.push(template(lab, &called, name, kind, host, Site::Planned));
                }
            }
        }
    }
    spots
}

fn of_node(lab: &Lab, name: &Arc<str>, node: &Node) -> NodeInfo {
    let machine = machine_of(lab, name);
    let coming = machine.is_some_and(|machine| starting(lab, machine, node));
    let lost = machine.is_some() && !coming && node.ready.status != ReadyStatus::True;
    let mut spot = NodeInfo {
        name: name.clone(),
        site: if coming { Site::Coming } else { Site::Node },
        labels: (*node.labels).clone(),
        taints: node.taints.clone(),
        cordoned: node.unschedulable,
        offers: node.allocatable.clone(),
        limits: said_limits(lab, name),
        attached: attached(&lab.snapshot.cluster)
            .remove(name)
            .unwrap_or_default(),
        pods: standing(lab, name),
        ..NodeInfo::default()
    };
    if let (Some(machine), true) = (machine, coming || lost) {
        spot.taints.retain(|taint| !PASSING.contains(&&*taint.key));
        if coming {
            let mark = &machine.mark;
            let pool = &lab.policy.pools[mark.pool.as_str()];
            let passes = |taint: &Taint| {
                &*taint.key == STARTUP_TAINT
                    || pool.startup_taints.iter().any(|own| own.key == taint.key)
            };
            spot.taints.retain(|taint| !passes(taint));
            let (kind, host) = (mark.instance_type.as_str(), &machine.host);
            let promised = template(lab, name, &mark.pool, kind, host, Site::Coming);
            for (key, value) in promised.labels {
                spot.labels.entry(key).or_insert(value);
            }
            for (driver, limit) in promised.limits {
                spot.limits.entry(driver).or_insert(limit);
            }
            let there: Vec<PodInfo> = spot.pods.clone();
            let set = |guest: &PodInfo| guest.shape.owner.as_ref().map(|owner| owner.uid.clone());
            let more = promised.pods.into_iter();
            let missing = more.filter(|daemon| !there.iter().any(|it| set(it) == set(daemon)));
            spot.pods.extend(missing);
        }
    }
    spot
}

fn said_limits(lab: &Lab, name: &str) -> BTreeMap<Arc<str>, i32> {
    let said = lab.snapshot.cluster.csi_nodes.get(name);
    let said = said.into_iter().flatten();
    said.filter_map(|(driver, limit)| Some((driver.clone(), (*limit)?)))
        .collect()
}

/// What stands on a node, and what kube-scheduler has nominated it for.
fn standing(lab: &Lab, name: &str) -> Vec<PodInfo> {
    let mut guests = Vec::new();
    for (key, pod) in &lab.snapshot.cluster.pods {
        let awaited =
            pod.node.is_none() && pod.nominated.as_deref() == Some(name) && pod.deletion.is_none();
        if (pod.node.as_deref() == Some(name) || awaited) && !pod.phase.terminal() {
            guests.push(guest(key, pod));
        }
    }
    guests
}

/// A machine as its pool and type promise it, with the DaemonSets that will run there.
pub(in crate::tests) fn template(
    lab: &Lab,
    name: &Arc<str>,
    pool: &str,
    kind: &str,
    host: &str,
    site: Site,
) -> NodeInfo {
    let (policy, of) = (&lab.policy.pools[pool], &lab.policy.instance_types[kind]);
    let mut labels: Labels = of.labels.clone();
    labels.extend(policy.labels.clone());
    for (key, value) in [
        ("pve-autoscaler.io/pool", pool),
        ("node.kubernetes.io/instance-type", kind),
        ("topology.kubernetes.io/zone", host),
        ("topology.kubernetes.io/region", &policy.region),
        ("kubernetes.io/hostname", name),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", &policy.arch),
    ] {
        labels.insert(key.into(), value.into());
    }
    let mut spot = NodeInfo {
        name: name.clone(),
        site,
        labels,
        taints: policy.taints.clone(),
        offers: promise(lab, pool, kind),
        limits: promised_limits(lab, pool, kind),
        empty: site == Site::Planned,
        ..NodeInfo::default()
    };
    for (key, set) in &lab.snapshot.cluster.daemon_sets {
        let runs = bears(&set.shape, &spot.taints) && chosen(&set.shape, &spot);
        if runs {
            spot.pods.push(PodInfo {
                key: ObjectKey::new(key.namespace.clone(), format!("{}-{name}", key.name)),
                uid: Arc::default(),
                shape: set.shape.clone(),
                deleting: false,
                bound: false,
            });
        }
    }
    spot
}

/// What a node of a type offers: the size of the VM without what is reserved, and no more than any node
/// of it has said.
fn promise(lab: &Lab, pool: &str, kind: &str) -> Resources {
    let (policy, of) = (&lab.policy.pools[pool], &lab.policy.instance_types[kind]);
    let disk = if of.disk > 0 { of.disk } else { 20 << 30 };
    let mut offers = Resources {
        cpu_milli: i64::from(of.cores) * 1000 - policy.reserved.cpu_milli,
        memory: of.memory - policy.reserved.memory,
        ephemeral: disk,
        pods: i64::from(policy.max_pods),
        extended: of.extended.clone(),
    };
    for machine in lab.snapshot.machines.values() {
        let mark = &machine.mark;
        let same = mark.pool == *pool && mark.instance_type == *kind;
        let node = machine.node.as_ref().filter(|_| same);
        let Some((name, node)) =
            node.and_then(|node| lab.snapshot.cluster.nodes.get_key_value(node))
        else {
            continue;
        };
        let teaches = !leaving(lab, name)
            && (node.ready.status == ReadyStatus::True || starting(lab, machine, node));
        if teaches {
            offers.cpu_milli = offers.cpu_milli.min(node.allocatable.cpu_milli);
            offers.memory = offers.memory.min(node.allocatable.memory);
            offers.pods = offers.pods.min(node.allocatable.pods);
        }
    }
    offers
}

/// The least that a node of the pool has said, else what the type gives.
fn promised_limits(lab: &Lab, pool: &str, kind: &str) -> BTreeMap<Arc<str>, i32> {
    let mut limits: BTreeMap<Arc<str>, i32> = BTreeMap::new();
    for machine in lab.snapshot.machines.values() {
        let node = machine.node.as_ref().filter(|_| machine.mark.pool == *pool);
        for (driver, limit) in node
            .map(|node| said_limits(lab, node))
            .into_iter()
            .flatten()
        {
            let least = limits.entry(driver).or_insert(limit);
            *least = (*least).min(limit);
        }
    }
    for (driver, limit) in &lab.policy.instance_types[kind].attach_limits {
        limits.entry(driver.clone()).or_insert(*limit);
    }
    limits
}
