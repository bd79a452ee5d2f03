//! A new machine could run the pods that it is made for, all together: an upper bound, what the VM has
//! and the pool promises. What kubelet and DaemonSets keep of it is not asked here.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Case, CheckResult, CheckRule, ensure, matching, neighbours, refuse, volumes};
use model::action::{Action, CreateSpec};
use model::cluster::{ObjectKey, Pod};
use model::facts::{self, Facts};
use model::policy::{
    INSTANCE_TYPE_LABEL, InstanceType, POOL_LABEL, PoolPolicy, REGION_LABEL, ZONE_LABEL,
};
use model::resources::Resources;
use model::scheduling::{HostPort, Labels};

pub(super) fn holds(
    case: Case<'_>,
    action: &Action,
    spec: &CreateSpec,
    pods: &[(&ObjectKey, &Pod)],
    rule: CheckRule,
) -> CheckResult {
    let mark = &spec.mark;
    let pool = case.policy.pools.get(mark.pool.as_str());
    let kind = case.policy.instance_types.get(mark.instance_type.as_str());
    let (Some(pool), Some(kind)) = (pool, kind) else {
        return refuse(
            CheckRule::Pool,
            format!("{}/{}", mark.pool, mark.instance_type),
        );
    };
    let labels = labels(case, action, spec, pool, kind);
    let name = &*action.target.machine;
    let at = volumes::CheckedNode {
        name,
        labels: &labels,
        new: true,
    };
    let mut left = capacity(pool, kind);
    let mut ports: Vec<&HostPort> = Vec::new();
    let mut attached = std::collections::BTreeSet::new();
    for (key, pod) in pods {
        let shape = &pod.shape;
        let requests = with_pages(&shape.requests);
        let why = matching::mismatch_with(shape, name, &labels, &pool.taints)
            .or_else(|| matching::lacking(&requests, &left))
            .or_else(|| volumes::unreachable(case, key, pod, at));
        if let Some(why) = why {
            return refuse(rule, format!("{key} could not run there: {why}"));
        }
        matching::charge(&mut left, &requests);
        for port in &shape.host_ports {
            let clash = ports.iter().any(|other| matching::clash(port, other));
            ensure(!clash, rule, || format!("{key}: port {} twice", port.port))?;
        }
        ports.extend(&shape.host_ports);
        attached.extend(volumes::attached(case, key, pod));
    }
    let limits = limits(case, &mark.pool, kind);
    if let Some(why) = volumes::too_many(&limits, &attached) {
        return refuse(rule, format!("its pods need {why}"));
    }
    if let Some(claim) = volumes::shared(case, pods) {
        return refuse(rule, format!("{claim} is for one pod alone"));
    }
    match neighbours::find_conflict(case, pods, &labels) {
        Some((one, other)) => refuse(rule, format!("{one} does not bear {other}")),
        None => Ok(()),
    }
}

/// What a pod takes of the VM: the huge pages that it asks for are part of the VM's memory.
fn with_pages(requests: &Resources) -> Resources {
    let mut requests = requests.clone();
    requests.memory = requests.memory.saturating_add(requests.huge_pages());
    requests
}

fn capacity(pool: &PoolPolicy, kind: &InstanceType) -> Resources {
    let mut capacity = kind.capacity();
    capacity.pods = i64::from(pool.max_pods);
    // The template's disk, which is not the type's affair.
    if kind.disk == 0 {
        capacity.ephemeral = i64::MAX;
    }
    capacity
}

/// The labels that a new machine's node will have.
pub(super) fn labels_of(case: Case<'_>, action: &Action, spec: &CreateSpec) -> Option<Labels> {
    let mark = &spec.mark;
    let pool = case.policy.pools.get(mark.pool.as_str())?;
    let kind = case
        .policy
        .instance_types
        .get(mark.instance_type.as_str())?;
    Some(labels(case, action, spec, pool, kind))
}

fn labels(
    case: Case<'_>,
    action: &Action,
    spec: &CreateSpec,
    pool: &PoolPolicy,
    kind: &InstanceType,
) -> Labels {
    let mut written = kind.labels.clone();
    written.extend(pool.labels.clone());
    let facts = Facts {
        machine: &action.target.machine,
        vmid: spec.mark.vmid,
        host: &action.target.host,
        region: &action.target.region,
        pool: &spec.mark.pool,
        instance_type: &spec.mark.instance_type,
    };
    let mut labels = facts::fill_labels(&written, &facts).0;
    labels
        .entry("kubernetes.io/os".into())
        .or_insert_with(|| "linux".into());
    let os = labels["kubernetes.io/os"].clone();
    let own: [(&str, Arc<str>); 8] = [
        (POOL_LABEL, spec.mark.pool.as_str().into()),
        (INSTANCE_TYPE_LABEL, spec.mark.instance_type.as_str().into()),
        (
            ZONE_LABEL,
            case.policy
                .zone_of(&action.target.region, &action.target.host),
        ),
        (REGION_LABEL, action.target.region.clone()),
        ("kubernetes.io/hostname", action.target.machine.clone()),
        ("kubernetes.io/arch", pool.arch.clone()),
        ("beta.kubernetes.io/os", os),
        ("beta.kubernetes.io/arch", pool.arch.clone()),
    ];
    labels.extend(own.map(|(key, value)| (Arc::from(key), value)));
    labels
}

/// What a node of the pool can attach: the least that one of them has said, else what the type gives.
fn limits(case: Case<'_>, pool: &str, kind: &InstanceType) -> BTreeMap<Arc<str>, i32> {
    let mut least: BTreeMap<Arc<str>, i32> = BTreeMap::new();
    let machines = case.snapshot.machines.values();
    for machine in machines.filter(|machine| machine.mark.pool == pool) {
        let Some(node) = &machine.node else {
            continue;
        };
        for (driver, limit) in volumes::limits(case, node) {
            let known = least.entry(driver).or_insert(limit);
            *known = (*known).min(limit);
        }
    }
    for (driver, limit) in &kind.attach_limits {
        least.entry(driver.clone()).or_insert(*limit);
    }
    least
}
