//! Bounds that are so tight that nothing is ever done: allowed, and told.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::pools::ResolvedPool;
use crate::config::file::ConfigFile;
use crate::config::scalar::Size;
use crate::model::policy::InstanceType;
use crate::model::time::Span;
use crate::model::words;

/// No machine is a working node sooner: a clone, a boot, cloud-init and kubeadm take a minute at the very least.
const FASTEST: Span = Span::minutes(1);
/// A view of Kubernetes in which nothing changes is this old before it is listed again. The API server confirms it once a minute, and
/// not at all for some kinds.
const QUIET: Span = Span::seconds(100);

/// What keeps machines from being made, or removed.
pub(super) fn warn(
    file: &ConfigFile,
    types: &BTreeMap<Arc<str>, InstanceType>,
    pools: &BTreeMap<Arc<str>, ResolvedPool>,
    warnings: &mut Vec<String>,
) {
    let kinds = pools.values().flat_map(|pool| &pool.policy.instance_types);
    let kinds: Vec<&InstanceType> = kinds.filter_map(|kind| types.get(kind)).collect();
    let cores = kinds.iter().map(|kind| kind.cores).min();
    if let Some((limit, cores)) = file.limits.max_cpu.zip(cores)
        && i64::from(cores) * 1000 > limit.0
    {
        warnings.push(format!(
            "limits.max_cpu = {}: no machine can be made, since the smallest instance type that a pool uses has {}",
            words::cores(limit.0),
            words::count(cores as usize, "core")
        ));
    }
    let memory = kinds.iter().map(|kind| kind.memory).min();
    if let Some((limit, memory)) = file.limits.max_memory.zip(memory)
        && memory > limit.0
    {
        warnings.push(format!(
            "limits.max_memory = \"{limit}\": no machine can be made, since the smallest instance type that a pool uses has {}",
            Size(memory)
        ));
    }
    let provision = file.scale_up.max_node_provision_time;
    if provision.0 < FASTEST {
        warnings.push(format!(
            "scale_up.max_node_provision_time = \"{provision}\": no machine is a working node within {FASTEST}, so that each would be removed before it is one"
        ));
    }
    for (table, age, what) in [
        ("scale_up", file.scale_up.max_view_age, "made"),
        ("scale_down", file.scale_down.max_view_age, "removed"),
    ] {
        if age.0 < QUIET {
            warnings.push(format!(
                "{table}.max_view_age = \"{age}\": while nothing changes in Kubernetes its view is confirmed once a minute, or listed again after {QUIET}; with less than that no machine is {what} for much of the time"
            ));
        }
    }
}
