//! Rules for a new machine.

use super::{Case, CheckResult, CheckRule, addresses, consolidation, ensure, newcomer, refuse};
use model::action::{Action, CreateSpec, Reason};
use model::cluster::{ObjectKey, ReadyStatus};
use model::policy::{LEAVING_TAINT, PoolPolicy, VOLUMES_VMID};
use model::region::{Busy, Host, Machine, Region};

/// Length of a bootstrap token's id.
const TOKEN_ID: usize = 6;
/// Longest DNS label.
const DNS_LABEL: usize = 63;

pub(super) fn check(case: Case<'_>, action: &Action, spec: &CreateSpec) -> CheckResult {
    let pool = pool(case, action, spec)?;
    let target = &action.target;
    let Some(region) = case.snapshot.regions.get(&target.region) else {
        return refuse(CheckRule::Region, format!("{} was not seen", target.region));
    };
    host(region, pool, action)?;
    template(region, pool, action, spec)?;
    vmid(case, region, action, spec)?;
    addresses::check(case, spec, pool)?;
    name(case, action)?;
    mark(case, action, spec)?;
    needed(case, action, spec, pool)
}

fn pool<'a>(
    case: Case<'a>,
    action: &Action,
    spec: &CreateSpec,
) -> Result<&'a PoolPolicy, super::Refusal> {
    let mark = &spec.mark;
    let Some(configured) = case.policy.pools.get(mark.pool.as_str()) else {
        return refuse(
            CheckRule::Pool,
            format!("no pool {} is configured", mark.pool),
        );
    };
    let region = &action.target.region;
    let all = std::iter::once((&configured.region, configured)).chain(&configured.further);
    let Some((_, pool)) = all.into_iter().find(|(name, _)| *name == region) else {
        return refuse(
            CheckRule::Pool,
            format!("the pool {} has no machines in {region}", mark.pool),
        );
    };
    let listed = pool
        .instance_types
        .iter()
        .any(|name| **name == *mark.instance_type);
    let defined = case
        .policy
        .instance_types
        .contains_key(mark.instance_type.as_str());
    ensure(listed && defined, CheckRule::Pool, || {
        format!(
            "the pool {} has no instance type {}",
            mark.pool, mark.instance_type
        )
    })?;
    ensure(*pool.template == *mark.template, CheckRule::Pool, || {
        format!(
            "the pool's template is {}, not {}",
            pool.template, mark.template
        )
    })?;
    Ok(pool)
}

fn host(region: &Region, pool: &PoolPolicy, action: &Action) -> CheckResult {
    let host = &action.target.host;
    let online = region.hosts.get(host).is_some_and(|host| host.online);
    ensure(online, CheckRule::Host, || {
        format!("the host {host} is not online")
    })?;
    let stays = region.hosts.get(host).is_some_and(|host| !host.maintenance);
    ensure(stays, CheckRule::Host, || {
        format!("the host {host} is in maintenance")
    })?;
    let evacuated = region.hosts.get(host).and_then(|host| host.evacuated);
    ensure(evacuated.is_none(), CheckRule::Evacuated, || {
        format!("the host {host} is evacuated")
    })?;
    let unread = region.hosts.get(host).and_then(|host| host.unread.as_ref());
    ensure(unread.is_none(), CheckRule::Host, || {
        format!("what of the host {host} is free is not known")
    })?;
    let named = pool.hosts.is_empty() || pool.hosts.iter().any(|name| name == host);
    let excluded = pool.host_rules.exclude.iter().any(|name| name == host);
    ensure(named && !excluded, CheckRule::Host, || {
        format!("the pool may not use the host {host}")
    })
}

fn template(region: &Region, pool: &PoolPolicy, action: &Action, spec: &CreateSpec) -> CheckResult {
    let copies = region.templates.get(&pool.template);
    let copy = copies
        .into_iter()
        .flatten()
        .find(|copy| copy.vmid == spec.template_vmid && copy.host == spec.template_host);
    let Some(copy) = copy else {
        return refuse(
            CheckRule::Template,
            format!(
                "VM {} on {} is no copy of the template {}",
                spec.template_vmid, spec.template_host, pool.template
            ),
        );
    };
    let there = region.hosts.get(&copy.host).is_some_and(Host::answers);
    ensure(
        there && (copy.shared || copy.host == action.target.host),
        CheckRule::Template,
        || {
            format!(
                "the copy on {} cannot be cloned to {}",
                copy.host, action.target.host
            )
        },
    )?;
    copy.disks.iter().try_for_each(|disk| {
        let chosen = spec.storages.at(disk.slot.as_deref());
        let listed = chosen.is_some_and(|chosen| disk.storages().any(|name| name == chosen));
        ensure(listed || disk.or.is_empty(), CheckRule::Storage, || {
            format!(
                "a disk is to be made on {}, which is none of the storages listed for it",
                chosen.map_or("no storage", |name| name)
            )
        })?;
        let here = region.storages.get(&action.target.host);
        let storage = here.and_then(|here| here.get(spec.storages.of(disk)));
        let own = !disk.or.is_empty() && disk.slot.is_none();
        let away = own && copy.host != action.target.host;
        let local = storage.is_some_and(|storage| !storage.shared);
        ensure(!(away && local), CheckRule::Storage, || {
            format!(
                "a clone of VM {} on {} cannot be made on {}, which {} has alone",
                copy.vmid,
                copy.host,
                spec.storages.of(disk),
                action.target.host
            )
        })
    })
}

fn vmid(case: Case<'_>, region: &Region, action: &Action, spec: &CreateSpec) -> CheckResult {
    let target = &action.target;
    let vmid = target.vmid;
    let range = case
        .policy
        .regions
        .get(&target.region)
        .is_some_and(|policy| policy.vmid_first <= vmid && vmid <= policy.vmid_last);
    ensure(range, CheckRule::Vmid, || {
        format!("VMID {vmid} is outside the region's range")
    })?;
    ensure(vmid != VOLUMES_VMID, CheckRule::Vmid, || {
        format!("VMID {vmid} is the one that the Proxmox CSI plugin names its volumes after")
    })?;
    ensure(
        !region.vms.contains_key(&vmid) && vmid != spec.template_vmid,
        CheckRule::Vmid,
        || format!("VMID {vmid} is taken by a guest"),
    )?;
    let holder = case
        .snapshot
        .machines
        .iter()
        .find(|(_, machine)| machine.region == target.region && machine.mark.vmid == vmid);
    match holder {
        Some((name, _)) => refuse(
            CheckRule::Vmid,
            format!("VMID {vmid} is intended for the machine {name}"),
        ),
        None => Ok(()),
    }
}

fn name(case: Case<'_>, action: &Action) -> CheckResult {
    let name = &*action.target.machine;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label = !name.is_empty()
        && name.len() <= DNS_LABEL
        && name.chars().all(|c| plain(c) || c == '-')
        && name.starts_with(plain)
        && name.ends_with(plain);
    ensure(label, CheckRule::Name, || {
        format!("{name:?} is no DNS label of at most {DNS_LABEL} characters")
    })?;
    let snapshot = case.snapshot;
    let taken = snapshot.machines.contains_key(name)
        || snapshot.cluster.nodes.contains_key(name)
        || snapshot
            .regions
            .values()
            .flat_map(|region| region.vms.values())
            .any(|vm| *vm.name == *name);
    ensure(!taken, CheckRule::Name, || {
        format!("a machine, node or VM is called {name} already")
    })
}

fn mark(case: Case<'_>, action: &Action, spec: &CreateSpec) -> CheckResult {
    let (mark, target) = (&spec.mark, &action.target);
    let agrees = Some(mark.cluster.as_str()) == case.snapshot.cluster_id.as_deref()
        && mark.machine == *target.machine
        && mark.vmid == target.vmid
        && target.node.is_none();
    ensure(agrees, CheckRule::Mark, || {
        format!(
            "the mark names cluster {}, machine {}, VMID {}",
            mark.cluster, mark.machine, mark.vmid
        )
    })?;
    let none = case
        .policy
        .pools
        .get(mark.pool.as_str())
        .is_some_and(|pool| pool.joins_itself);
    if none {
        return ensure(mark.token.is_empty(), CheckRule::Token, || {
            "machines of its pool join by themselves, and it has a token".to_owned()
        });
    }
    let form = mark.token.len() == TOKEN_ID
        && mark
            .token
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let shared = case
        .snapshot
        .machines
        .values()
        .any(|machine| machine.mark.token == mark.token);
    ensure(form && !shared, CheckRule::Token, || {
        "the token's id is malformed or another machine's".to_owned()
    })
}

/// Somebody must still need it.
fn needed(case: Case<'_>, action: &Action, spec: &CreateSpec, pool: &PoolPolicy) -> CheckResult {
    match &action.reason {
        Reason::PendingPods { pods, .. } => awaited(case, action, spec, pods),
        Reason::BelowMin { pods, .. } => {
            let have = count_for_min(case, &spec.mark.pool);
            ensure(have < pool.min as usize, CheckRule::Needed, || {
                format!("the pool has {have} machines already")
            })?;
            // For `min` alone the cheapest type would do; a dearer one is what its pods chose, and some of these must wait.
            let none_waits = !pods.iter().any(|key| unplaced(case, key));
            if pods.is_empty() || (none_waits && is_cheapest(case, action, spec, pool)) {
                return Ok(());
            }
            awaited(case, action, spec, pods)
        }
        Reason::Replaces { .. } => consolidation::creation(case, action, spec),
        other => refuse(
            CheckRule::Needed,
            format!("no reason to make a machine: {other}"),
        ),
    }
}

/// How many machines of a pool count for its `min`: as many outdated ones as are given up do not.
fn count_for_min(case: Case<'_>, pool: &str) -> usize {
    let machines = case.snapshot.machines.values();
    let counting: Vec<&Machine> = machines
        .filter(|machine| *machine.mark.pool == *pool)
        .filter(|machine| machine.failure.is_none() && machine.busy != Some(Busy::Down))
        .filter(|machine| {
            machine.vm.is_some()
                || machine
                    .step
                    .is_none_or(|s| s.0 < model::region::Step::Configure)
        })
        .filter(|machine| {
            let old = case.now.0.saturating_sub(machine.mark.created.0)
                > case.policy.scale_up.max_provision_time.0;
            // It was a node, and somebody deleted the node.
            let over = machine
                .step
                .is_some_and(|(step, _)| step == model::region::Step::Done);
            match machine.node {
                Some(_) => !is_given_up(case, machine),
                // On its way up, on a host that is there.
                None => !(old || over || host_is_off(case, machine)),
            }
        })
        .collect();
    let outdated = counting.iter().filter(|machine| is_outdated(case, machine));
    let given_up = outdated.count().min(count_rollout_room(case, pool));
    counting.len() - given_up
}

/// Whether no type of the pool costs less in the region.
fn is_cheapest(case: Case<'_>, action: &Action, spec: &CreateSpec, pool: &PoolPolicy) -> bool {
    let price = |kind: &str| consolidation::price_of(case, kind, &action.target.region);
    let own = price(&spec.mark.instance_type);
    pool.instance_types.iter().all(|kind| price(kind) >= own)
}

/// Some of the pods that it is for must still wait, and it must hold those.
fn awaited(case: Case<'_>, action: &Action, spec: &CreateSpec, pods: &[ObjectKey]) -> CheckResult {
    let waiting: Vec<_> = pods
        .iter()
        .filter(|key| unplaced(case, key))
        .filter_map(|key| case.snapshot.cluster.pods.get_key_value(key))
        .collect();
    ensure(!waiting.is_empty(), CheckRule::Needed, || {
        format!("none of its {} pods waits any more", pods.len())
    })?;
    newcomer::holds(case, action, spec, &waiting, CheckRule::Unfit)
}

/// Whether a machine's node has not been Ready for longer than a new one takes, or its host is off or evacuated.
pub(super) fn is_given_up(case: Case<'_>, machine: &Machine) -> bool {
    let node = machine.node.as_ref();
    let Some(node) = node.and_then(|name| case.snapshot.cluster.nodes.get(name)) else {
        return false;
    };
    let patience = case.policy.scale_up.max_provision_time.0;
    let long = node
        .ready
        .since
        .is_some_and(|since| case.now.0.saturating_sub(since.0) > patience);
    let lost = node.ready.status != ReadyStatus::True && (long || host_is_off(case, machine));
    lost || evacuated(case, machine).is_some()
}

/// Whether PVE, with quorum, shows a machine's host offline.
pub(super) fn host_is_off(case: Case<'_>, machine: &Machine) -> bool {
    let region = case.snapshot.regions.get(&machine.region);
    let host = region
        .filter(|region| region.quorate)
        .and_then(|region| region.hosts.get(&machine.host));
    host.is_some_and(|host| !host.online)
}

/// Since when a person evacuates the host of a machine.
pub(super) fn evacuated(case: Case<'_>, machine: &Machine) -> Option<model::time::Time> {
    let region = case.snapshot.regions.get(&machine.region)?;
    region.hosts.get(&machine.host)?.evacuated
}

/// Whether a machine has drifted or is too old, and its pool replaces such machines.
pub(super) fn is_outdated(case: Case<'_>, machine: &Machine) -> bool {
    let pool = case.policy.pools.get(machine.mark.pool.as_str());
    let Some(rollout) = pool.and_then(|pool| pool.rollout.as_ref()) else {
        return false;
    };
    let vm = machine.vm.as_ref().filter(|_| rollout.drifted);
    let drifted = vm.and_then(|vm| vm.drifted.as_ref());
    let age = case.now.0.saturating_sub(machine.mark.created.0);
    let old = rollout.expire_after.is_some_and(|limit| age >= limit.0);
    old || drifted.is_some_and(|parts| !parts.is_empty())
}

/// How many more outdated nodes of a pool may be given up now: no more than its rollout replaces at once, with those that are being removed.
fn count_rollout_room(case: Case<'_>, pool: &str) -> usize {
    let machines = case.snapshot.machines.values();
    let of_pool = machines.filter(|machine| *machine.mark.pool == *pool);
    let going = of_pool.filter(|machine| {
        let there = machine.node.is_some() && machine.vm.is_some();
        there && machine.busy == Some(Busy::Down) && is_outdated(case, machine)
    });
    let policy = case.policy.pools.get(pool);
    let rollout = policy.and_then(|policy| policy.rollout.as_ref());
    let at_once = rollout.map_or(0, |rollout| rollout.max_parallel as usize);
    at_once.saturating_sub(going.count())
}

/// A pod that has no node, or one that is leaving, is outdated or whose host a person evacuates.
fn unplaced(case: Case<'_>, key: &ObjectKey) -> bool {
    let cluster = &case.snapshot.cluster;
    let Some(pod) = cluster.pods.get(key) else {
        return false;
    };
    let Some(name) = &pod.node else {
        return pod.deletion.is_none();
    };
    let Some(node) = cluster.nodes.get(name) else {
        return true;
    };
    let going = node.deletion.is_some() || node.taints.iter().any(|t| &*t.key == LEAVING_TAINT);
    let machine_going = case
        .snapshot
        .machines
        .values()
        .filter(|machine| machine.node.as_ref() == Some(name))
        .any(|machine| {
            machine.busy == Some(Busy::Down)
                || evacuated(case, machine).is_some()
                || is_outdated(case, machine)
                || machine.failure.is_some()
                || machine.vm.is_none()
                || machine
                    .step
                    .is_none_or(|(step, _)| step != model::region::Step::Done)
        });
    going || machine_going
}
