//! Pools.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::networks::{self, Networks};
use super::regions::ResolvedRegions;
use super::types::{InstanceTypes, attach_limits};
use super::{
    Problems, disruption, each, hardware, hosts, joining, kubelet, labels, name, shared, sources,
    topology,
};
use crate::config::file::{self, ConfigFile};
use crate::config::place::KeyPath;
use crate::config::scalar::TaintText;
use crate::config::settings::{DrainSettings, PoolSettings, TemplateSettings, TemplateUser};
use crate::config::syntax;
use crate::model::mark;
use crate::model::policy::{KeepFailed, PoolPolicy, ScaleDown, VOLUMES_VMID};
use crate::model::scheduling::Taint;
use crate::model::time::Span;

/// A pool with where it stands in the file.
pub(super) struct ResolvedPool {
    pub(super) path: KeyPath,
    pub(super) policy: PoolPolicy,
    pub(super) settings: PoolSettings,
}

/// A node is called `POOL-xxxxx`, and is a DNS label.
const MAX_POOL_NAME: usize = 63 - 6;
/// Machines of one pool; a typing error should not fill a cluster.
const MAX_NODES: u32 = 5000;
/// Most failed machines that a pool keeps: a person looks into one or two.
const MAX_KEPT: u32 = 10;
/// Longest time for which a failed machine is kept: what nobody looked into for a week is forgotten.
const MAX_KEEP: Span = Span::minutes(7 * 24 * 60);

/// The pools.
pub(super) fn pools(
    file: &ConfigFile,
    regions: &ResolvedRegions,
    (templates, networks, types): (
        &BTreeMap<Arc<str>, TemplateSettings>,
        &Networks,
        &InstanceTypes,
    ),
    problems: &mut Problems,
) -> BTreeMap<Arc<str>, ResolvedPool> {
    let mut pools = BTreeMap::new();
    for (key, pool) in &file.pool {
        let path = KeyPath::default().at("pool").at(key);
        name(&path, key, MAX_POOL_NAME, problems);
        let sources = sources::of_pool(pool, regions, templates, &path, problems);
        let said = policy(pool, (file, types), &path, problems);
        let kept = said.reserved.memory;
        let sources = sources.into_iter().map(|source| {
            let mut policy = PoolPolicy {
                networks: networks::of_pool(pool, source.template, networks, &path, problems),
                region: source.region.unwrap_or_default(),
                template: source
                    .template
                    .map(|(name, _)| name.clone())
                    .unwrap_or_default(),
                ..said.clone()
            };
            let template = templates.get(&policy.template);
            let sockets = template.and_then(|template| template.hardware.sockets);
            policy.sockets = sockets.unwrap_or(0);
            if let Some(region) = regions.get(&policy.region) {
                policy.weight = policy.weight.saturating_add(region.weight);
                hosts::complete(&mut policy, pool, &region.hosts, &path, problems);
            }
            (policy.region.clone(), policy)
        });
        let mut further: BTreeMap<_, _> = sources.collect();
        let (_, first) = further.pop_first().unwrap_or_default();
        let policy = PoolPolicy { further, ..first };
        let settings = settings(pool, kept, &path, problems);
        pools.insert(
            shared(key),
            ResolvedPool {
                path,
                policy,
                settings,
            },
        );
    }
    pools
}

fn policy(
    pool: &file::Pool,
    (file, all): (&ConfigFile, &InstanceTypes),
    path: &KeyPath,
    problems: &mut Problems,
) -> PoolPolicy {
    let max = problems
        .require(pool.max, &path.at("max"), "the largest number of nodes")
        .unwrap_or(pool.min);
    problems.unless(pool.min <= max, &path.at("min"), || {
        format!("expected at most max, which is {max}")
    });
    problems.unless(max <= MAX_NODES, &path.at("max"), || {
        format!("expected at most {MAX_NODES}")
    });
    let types = all.of_pool(pool, path, problems);
    problems.unless(
        matches!(pool.arch.as_str(), "amd64" | "arm64"),
        &path.at("arch"),
        || "expected \"amd64\" or \"arm64\"".to_owned(),
    );
    let reserved = kubelet::reserved(pool, &all.disks(&types), path, problems);
    all.check_reserved(&reserved, &types, path, problems);
    PoolPolicy {
        instance_types: types.iter().map(|kind| shared(kind)).collect(),
        hosts: pool.hosts.iter().map(|host| shared(host)).collect(),
        host_rules: hosts::of_pool(pool, path, problems),
        pinning: topology::of_pool(pool),
        min: pool.min,
        max,
        max_cpu_milli: pool.max_cpu.map(|cpu| cpu.0),
        max_memory: pool.max_memory.map(|size| size.0),
        weight: pool.weight,
        labels: labels::of_pool(pool, path, problems),
        taints: taints(&pool.taints, &path.at("taints"), problems),
        startup_taints: taints(&pool.startup_taints, &path.at("startup_taints"), problems),
        reserved,
        max_pods: pool.max_pods.unwrap_or(kubelet::MAX_PODS),
        scale_down_disabled: pool.scale_down.enabled == Some(false),
        scale_down: scale_down(&file.scale_down.policy(), &pool.scale_down),
        arch: shared(&pool.arch),
        consolidation: disruption::consolidation(pool, path, problems),
        rollout: disruption::rollout(pool, path, problems),
        budgets: disruption::budgets(pool, path, problems),
        keep_failed: keep_failed(pool, path, problems),
        atomic: pool.atomic,
        attach_limits: attach_limits(&pool.attach_limits, path, problems),
        joins_itself: pool.join.method == file::Method::Itself,
        ..PoolPolicy::default()
    }
}

/// How failed machines are kept.
fn keep_failed(pool: &file::Pool, path: &KeyPath, problems: &mut Problems) -> Option<KeepFailed> {
    let (machines, how_long) = (pool.keep_failed, pool.keep_failed_for.0);
    problems.unless(machines <= MAX_KEPT, &path.at("keep_failed"), || {
        format!("expected at most {MAX_KEPT} machines")
    });
    problems.unless(
        (Span::minutes(1)..=MAX_KEEP).contains(&how_long),
        &path.at("keep_failed_for"),
        || format!("expected 1m to {MAX_KEEP}"),
    );
    (machines > 0).then_some(KeepFailed { machines, how_long })
}

/// The pool's own scale-down settings, when it has any.
fn scale_down(general: &ScaleDown, own: &file::PoolScaleDown) -> Option<ScaleDown> {
    let merged = ScaleDown {
        enabled: own.enabled.unwrap_or(general.enabled),
        utilization_threshold_permille: own
            .utilization_threshold
            .map_or(general.utilization_threshold_permille, |ratio| ratio.0),
        unneeded_time: own
            .unneeded_time
            .map_or(general.unneeded_time, |time| time.0),
        unready_time: own.unready_time.map_or(general.unready_time, |time| time.0),
        unready_enabled: own.unready_enabled.unwrap_or(general.unready_enabled),
        min_node_age: own.min_node_age.map_or(general.min_node_age, |time| time.0),
        skip_system_pods: own
            .skip_nodes_with_system_pods
            .unwrap_or(general.skip_system_pods),
        skip_local_storage: own
            .skip_nodes_with_local_storage
            .unwrap_or(general.skip_local_storage),
        skip_custom_controllers: own
            .skip_nodes_with_custom_controller_pods
            .unwrap_or(general.skip_custom_controllers),
        ignore_daemonsets: own
            .ignore_daemonsets_utilization
            .unwrap_or(general.ignore_daemonsets),
        ignore_mirrors: own
            .ignore_mirror_pods_utilization
            .unwrap_or(general.ignore_mirrors),
        system_pod_timeout: own
            .blocking_system_pod_disruption_timeout
            .map_or(general.system_pod_timeout, |time| time.0),
        ..general.clone()
    };
    (*own != file::PoolScaleDown::default()).then_some(merged)
}

fn settings(pool: &file::Pool, kept: i64, path: &KeyPath, problems: &mut Problems) -> PoolSettings {
    each(
        &pool.tags,
        &path.at("tags"),
        syntax::tag,
        "a tag: lower-case letters, digits, '_', '-', '+' and '.'",
        problems,
    );
    let marked = pool
        .description
        .lines()
        .any(|line| line.trim().starts_with(mark::PREFIX));
    problems.unless(!marked, &path.at("description"), || {
        format!(
            "no line may begin with {:?}: that is the mark's",
            mark::PREFIX
        )
    });
    problems.unless(
        pool.cpu_units
            .is_none_or(|units| (1..=10_000).contains(&units)),
        &path.at("cpu_units"),
        || "expected PVE's cpuunits, 1 to 10000".to_owned(),
    );
    let plain = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    problems.unless(
        pool.description.chars().all(plain),
        &path.at("description"),
        || "has a control character; expected text, of which lines end with a line feed".to_owned(),
    );
    problems.unless(
        pool.description.len() <= 4096,
        &path.at("description"),
        || "expected at most 4096 bytes".to_owned(),
    );
    PoolSettings {
        annotations: labels::annotations(pool, path, problems),
        tags: pool.tags.clone(),
        description: pool.description.clone(),
        cpu_units: pool.cpu_units,
        cpu_limit_milli: hardware::cpu_limit(pool, path, problems),
        balloon: hardware::balloon(pool, kept, path, problems),
        join: joining::join(&pool.join, path, problems),
        kubelet: kubelet::kubelet(pool, path, problems),
        drain: DrainSettings {
            max_grace: pool.drain.max_graceful_termination.0,
            timeout: pool.drain.timeout.0,
            detach_timeout: pool.drain.detach_timeout.0,
            shutdown_timeout: pool.drain.shutdown_timeout.0,
        },
        taints: pool.taints.iter().map(|taint| taint.0.clone()).collect(),
    }
}

fn taints(taints: &[TaintText], path: &KeyPath, problems: &mut Problems) -> Vec<Taint> {
    for (position, TaintText(taint)) in taints.iter().enumerate() {
        problems.unless(
            !taint.key.starts_with("pve-autoscaler.io/"),
            &path.at(&position),
            || "taints of pve-autoscaler.io are the program's own".to_owned(),
        );
        let twice = taints[..position]
            .iter()
            .any(|TaintText(other)| other.key == taint.key && other.effect == taint.effect);
        problems.unless(!twice, &path.at(&position), || {
            "key and effect are there twice".to_owned()
        });
    }
    taints.iter().map(|taint| taint.0.clone()).collect()
}

/// Tells templates which pools make their machines of them.
pub(super) fn tell_templates(
    templates: &mut BTreeMap<Arc<str>, TemplateSettings>,
    pools: &BTreeMap<Arc<str>, ResolvedPool>,
) {
    for (name, template) in templates {
        let users = pools.iter().filter_map(|(pool, of)| {
            let there = of.policy.of_template(name)?;
            let user = TemplateUser {
                max: there.max,
                networks: there.networks.keys().copied().collect(),
                hugepages: there.pinning.hugepages.is_some(),
            };
            Some((pool.clone(), user))
        });
        template.pools = users.collect();
    }
}

/// Every region has a VMID for every machine that its pools may have.
pub(super) fn check_vmids(
    regions: &ResolvedRegions,
    pools: &BTreeMap<Arc<str>, ResolvedPool>,
    problems: &mut Problems,
) {
    for (name, region) in regions {
        let wanted = pools
            .values()
            .filter(|pool| pool.policy.at(name).is_some())
            .fold(0u32, |sum, pool| sum.saturating_add(pool.policy.max));
        let range = region.vmids.first..=region.vmids.last;
        let kept = range.contains(&VOLUMES_VMID);
        let have = region.vmids.len().saturating_sub(u32::from(kept));
        // Without a range there is a line of its own about it.
        let missing = region.vmids.first == 0;
        problems.unless(missing || have >= wanted, &region.path.at("vmids"), || {
            let kept = if kept {
                format!(" ({VOLUMES_VMID} is never one: the Proxmox CSI plugin names its volumes after it)")
            } else {
                String::new()
            };
            format!("has {have} VMIDs for machines{kept}, but the pools may have {wanted} machines")
        });
    }
    for pool in pools.values() {
        let mut places = pool.policy.everywhere().map(|there| &there.region);
        problems.unless(
            places.all(|region| region.is_empty() || regions.contains_key(region)),
            &pool.path,
            || "its region is not usable".to_owned(),
        );
    }
}
