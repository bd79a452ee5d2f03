//! What a node that does not exist yet will offer: modelled, then learned from those that came.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use model::memory::Memory;
use model::policy::{InstanceType, PoolPolicy};
use model::reasons::Warning;
use model::resources::{Resources, huge_pages, huge_pages_of};
use model::time::Span;

use crate::decision::turn::DecisionBuilder;
use crate::observed::view::{MachinePhase, MachineView};

/// Thousandths of a whole.
const PERMILLE: i64 = 1000;
/// Thousandths by which nodes may offer less than is reckoned before it is told.
const LESS_PERMILLE: i64 = 150;
/// The time to which it is noted when a node last offered something.
const HOUR: Span = Span::minutes(60);
/// What no node has offered for this long is forgotten.
const DAY: Span = Span::minutes(24 * 60);

/// Allocatable by the model: capacity minus what kernel, kubelet, system and eviction keep, and of memory minus the huge
/// pages that the type offers, as a kubelet has it.
/// `template_disk` is used where the type keeps the template's disk.
pub(crate) fn predicted(
    pool: &PoolPolicy,
    instance_type: &InstanceType,
    template_disk: i64,
) -> Resources {
    let mut offer = instance_type.capacity();
    let reserved = &pool.reserved;
    offer.cpu_milli = offer.cpu_milli.saturating_sub(reserved.cpu_milli).max(0);
    offer.memory = offer
        .memory
        .saturating_sub(reserved.kernel_memory)
        .saturating_sub(permille(
            instance_type.memory,
            reserved.kernel_memory_permille,
        ))
        .saturating_sub(reserved.memory)
        .saturating_sub(reserved.eviction_memory)
        .saturating_sub(huge_pages_of(&instance_type.extended))
        .max(0);
    let disk = if instance_type.disk > 0 {
        instance_type.disk
    } else {
        template_disk
    };
    offer.ephemeral = disk
        .saturating_sub(permille(disk, reserved.disk_permille))
        .max(0);
    offer.pods = i64::from(pool.max_pods);
    offer
}

fn permille(of: i64, permille: i64) -> i64 {
    let part = i128::from(of) * i128::from(permille) / i128::from(PERMILLE);
    i64::try_from(part).unwrap_or(i64::MAX)
}

/// Under which name a lesson is remembered. The end stands for what was promised: sizes and
/// reservations that are changed make a new promise, and old lessons do not apply to it.
pub(crate) fn lesson_key(
    pool_name: &str,
    type_name: &str,
    pool: &PoolPolicy,
    instance_type: &InstanceType,
) -> Arc<str> {
    let reserved = &pool.reserved;
    let mut text = format!(
        "{} {} {} {} {} {} {} {} {} {}",
        instance_type.cores,
        instance_type.memory,
        instance_type.disk,
        pool.max_pods,
        reserved.kernel_memory,
        reserved.kernel_memory_permille,
        reserved.cpu_milli,
        reserved.memory,
        reserved.eviction_memory,
        reserved.disk_permille,
    );
    for (name, amount) in &instance_type.extended {
        let _ = write!(text, " {name}={amount}");
    }
    let sum = Sha256::digest(text.as_bytes());
    let promise = sum.iter().take(4).fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    format!("{pool_name}/{type_name}/{}#{promise}", pool.template).into()
}

/// Reads the truth from every node of ours that has come, and remembers it by pool, type and
/// template. Of several nodes the least of each amount counts. Pods that the kubelet brings along
/// (static pods) are part of the truth.
pub(crate) fn learn(turn: &mut DecisionBuilder<'_>) {
    // By pool, type and template: the key, which costs more, is made once for all machines that are alike.
    let mut seen: BTreeMap<(&str, &str, &str), (Arc<str>, Resources)> = BTreeMap::new();
    for machine in turn.view.machines.values() {
        // A machine with terms of its own teaches nothing about those to come, unless it has their size.
        let instance_type = turn
            .view
            .policy
            .instance_types
            .get(&*machine.seen.mark.instance_type);
        let (Some(pool), Some(instance_type)) = (machine.pool, instance_type) else {
            continue;
        };
        let Some(truth) = lesson(turn, machine, pool, instance_type) else {
            continue;
        };
        let mark = &machine.seen.mark;
        let alike = (&*mark.pool, &*mark.instance_type, &*pool.template);
        match seen.get_mut(&alike) {
            Some((_, least)) => lower_to(least, &truth),
            None => {
                let key = lesson_key(&mark.pool, &mark.instance_type, pool, instance_type);
                seen.insert(alike, (key, truth));
            }
        }
    }
    let now = turn.now();
    for (key, truth) in seen.into_values() {
        let at = turn.memory.learned_at.get(&key);
        // The memory is written when it changes: not with every turn.
        if at.is_none_or(|at| now.since(*at) >= HOUR) {
            turn.memory.learned_at.insert(key.clone(), now);
        }
        turn.memory.learned.insert(key, truth);
    }
    forget_old(turn);
}

/// Forgets what no node has offered for a day: the template may have been mended since, and a node that offers as little teaches it again.
fn forget_old(turn: &mut DecisionBuilder<'_>) {
    let now = turn.now();
    let Memory {
        learned,
        learned_at,
        ..
    } = &mut turn.memory;
    for key in learned.keys() {
        if !learned_at.contains_key(key) {
            learned_at.insert(key.clone(), now);
        }
    }
    learned_at.retain(|key, at| learned.contains_key(key) && now.since(*at) <= DAY);
    learned.retain(|key, _| learned_at.contains_key(key));
}

/// Says of which pools nodes offer much less than is reckoned: a pod may wait for no other reason.
pub(crate) fn tell_of_less(turn: &mut DecisionBuilder<'_>) {
    let policy = turn.view.policy;
    let less = |offered: i64, reckoned: i64| offered < reckoned - permille(reckoned, LESS_PERMILLE);
    let warnings = turn.memory.learned.iter().filter_map(|(key, offered)| {
        let mut parts = key.split('/');
        let (name, pool) = policy.pools.get_key_value(parts.next()?)?;
        let (type_name, instance_type) = policy.instance_types.get_key_value(parts.next()?)?;
        let reckoned = predicted(pool, instance_type, 0);
        let tells =
            less(offered.cpu_milli, reckoned.cpu_milli) || less(offered.memory, reckoned.memory);
        // What was learned under another promise says nothing of this one.
        let holds = tells && *key == lesson_key(name, type_name, pool, instance_type);
        holds.then(|| Warning::NodesOfferLess {
            pool: name.clone(),
            instance_type: type_name.clone(),
            cpu_milli: offered.cpu_milli,
            memory: offered.memory,
            reckoned_cpu_milli: reckoned.cpu_milli,
            reckoned_memory: reckoned.memory,
        })
    });
    let warnings: Vec<Warning> = warnings.collect();
    for warning in warnings {
        turn.warn(warning);
    }
}

fn lesson(
    turn: &DecisionBuilder<'_>,
    machine: &MachineView<'_>,
    pool: &PoolPolicy,
    instance_type: &InstanceType,
) -> Option<Resources> {
    let ((_, node), index) = (machine.node?, machine.node_index?);
    let working = machine.phase == MachinePhase::Up && machine.ready();
    if !(working || machine.phase == MachinePhase::Coming) {
        return None;
    }
    let mark = &machine.seen.mark;
    let vm = machine.region?.vms.get(&mark.vmid)?;
    // A VM that was made with another size teaches nothing about this one.
    let same = vm.cpus == instance_type.cores
        && vm.memory == instance_type.memory
        && *mark.template == *pool.template;
    let known_size = node.allocatable.cpu_milli > 0 && node.allocatable.memory > 0;
    if !same || !known_size {
        return None;
    }
    let mut truth = node.allocatable.clone();
    for pod in turn.view.running_at(index) {
        if !pod.mirror {
            continue;
        }
        let pods = truth.pods;
        truth.subtract(&turn.view.kinds()[pod.kind].shape.requests);
        truth.pods = pods.saturating_sub(1);
    }
    // Device plugins report late: until the node works the promise stands (see `promised`).
    truth
        .extended
        .retain(|name, _| working && instance_type.extended.contains_key(name));
    if !working {
        truth.extended.clone_from(&instance_type.extended);
        truth.memory = memory_beside(&node.allocatable, &truth);
    }
    Some(truth)
}

/// The memory that a node says, without the huge pages that `counted` has and the node does not show yet: when they are there, its
/// kubelet takes them off its memory.
fn memory_beside(says: &Resources, counted: &Resources) -> i64 {
    let pages = counted.extended.iter();
    let pages = pages.map(|(name, amount)| (&**name, amount.saturating_sub(says.get(name)).max(0)));
    counted.memory.saturating_sub(huge_pages(pages)).max(0)
}

fn lower_to(least: &mut Resources, truth: &Resources) {
    least.cpu_milli = least.cpu_milli.min(truth.cpu_milli);
    least.memory = least.memory.min(truth.memory);
    least.ephemeral = least.ephemeral.min(truth.ephemeral);
    least.pods = least.pods.min(truth.pods);
    for (name, amount) in &mut least.extended {
        *amount = (*amount).min(truth.get(name));
    }
    least.extended.retain(|_, amount| *amount != 0);
}

/// What a node that is not initialised yet counts for: what it says, and what was promised where
/// it says nothing yet (a device plugin that has not started, a kubelet that has not reported).
pub(crate) fn promised(says: &Resources, promise: &Resources) -> Resources {
    let or = |amount: i64, instead: i64| if amount > 0 { amount } else { instead };
    let mut amounts = says.clone();
    amounts.cpu_milli = or(says.cpu_milli, promise.cpu_milli);
    amounts.memory = or(says.memory, promise.memory);
    amounts.ephemeral = or(says.ephemeral, promise.ephemeral);
    amounts.pods = or(says.pods, promise.pods);
    for (name, amount) in &promise.extended {
        let mine = amounts.extended.entry(name.clone()).or_insert(0);
        *mine = or(*mine, *amount);
    }
    // What was promised of memory is without them.
    if says.memory > 0 {
        amounts.memory = memory_beside(says, &amounts);
    }
    amounts
}
