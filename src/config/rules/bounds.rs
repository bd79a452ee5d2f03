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

/// Limits over all pools that are less than one machine: of any pool, or of some.
fn warn_of_limits(
    file: &ConfigFile,
    types: &BTreeMap<Arc<str>, InstanceType>,
    pools: &BTreeMap<Arc<str>, ResolvedPool>,
    warnings: &mut Vec<String>,
) {
    // A pool that may have no machine is given up, and misses none.
    let pools = pools.iter().filter(|(_, pool)| pool.policy.max > 0);
    let smallest = pools.map(|(name, pool)| {
        let kinds = pool.policy.instance_types.iter();
        let kinds: Vec<&InstanceType> = kinds.filter_map(|kind| types.get(kind)).collect();
        let cores = kinds.iter().map(|kind| i64::from(kind.cores)).min();
        (name, cores, kinds.iter().map(|kind| kind.memory).min())
    });
    let smallest: Vec<(&Arc<str>, Option<i64>, Option<i64>)> = smallest.collect();
    if let Some(limit) = file.limits.max_cpu {
        let cores = smallest
            .iter()
            .filter_map(|(name, cores, _)| Some((*name, (*cores)?)));
        let key = format!("limits.max_cpu = {}", words::cores(limit.0));
        let has = |cores: i64| words::count(cores, "core");
        let fits = |cores: i64| cores.saturating_mul(1000) <= limit.0;
        warnings.extend(told_of_limit(&key, &cores.collect::<Vec<_>>(), fits, has));
    }
    if let Some(limit) = file.limits.max_memory {
        let memory = smallest
            .iter()
            .filter_map(|(name, _, memory)| Some((*name, (*memory)?)));
        let key = format!("limits.max_memory = \"{limit}\"");
        let has = |memory: i64| Size(memory).to_string();
        let fits = |memory: i64| memory <= limit.0;
        warnings.extend(told_of_limit(&key, &memory.collect::<Vec<_>>(), fits, has));
    }
}

/// What to say of a limit (`key` with its value) below which the smallest machine of some pools does not fit.
fn told_of_limit(
    key: &str,
    smallest: &[(&Arc<str>, i64)],
    fits: impl Fn(i64) -> bool,
    has: impl Fn(i64) -> String,
) -> Vec<String> {
    let unfit = smallest.iter().filter(|(_, amount)| !fits(*amount));
    let unfit: Vec<&(&Arc<str>, i64)> = unfit.collect();
    let least = unfit.iter().map(|(_, amount)| *amount).min();
    match least {
        Some(least) if unfit.len() == smallest.len() => vec![format!(
            "{key}: no machine can be made, since the smallest instance type that a pool uses has {}",
            has(least)
        )],
        _ => unfit
            .into_iter()
            .map(|(pool, amount)| {
                format!(
                    "{key}: no machine of the pool {pool} can be made, since the smallest of its instance types has {}",
                    has(*amount)
                )
            })
            .collect(),
    }
}

/// What keeps machines from being made, or removed.
pub(super) fn warn(
    file: &ConfigFile,
    types: &BTreeMap<Arc<str>, InstanceType>,
    pools: &BTreeMap<Arc<str>, ResolvedPool>,
    warnings: &mut Vec<String>,
) {
    warn_of_limits(file, types, pools, warnings);
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
