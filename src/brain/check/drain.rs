//! Rules for the pods of a node that is to go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Case, CheckResult, CheckRule, ensure, refuse};
use model::action::{Action, Reason};
use model::cluster::{DisruptionBudget, Node, ObjectKey, Phase, Pod};
use model::policy::{LEAVING_TAINT, PoolPolicy, ScaleDown};
use model::scheduling::{Effect, Toleration, Volume};
use model::time::Time;

const SAFE: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
const SAFE_VOLUMES: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";
const DAEMON: &str = "cluster-autoscaler.kubernetes.io/daemonset-pod";
const DAEMON_EVICTION: &str = "cluster-autoscaler.kubernetes.io/enable-ds-eviction";
const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
/// A pod that should have been gone for this long does not count any more.
const OVERDUE_MS: i64 = 30_000;
/// Controllers that make their pods anew.
const RECREATING: [&str; 4] = ["ReplicaSet", "ReplicationController", "StatefulSet", "Job"];
/// Resources that decide alone how full a node is, when it has them.
const GPUS: [&str; 3] = ["nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915"];

type KeyedPod<'a> = (&'a ObjectKey, &'a Pod);

/// The pods that run on a node.
pub(super) fn on<'a>(case: Case<'a>, node: &str) -> Vec<KeyedPod<'a>> {
    case.snapshot
        .cluster
        .pods
        .iter()
        .filter(|(_, pod)| pod.node.as_deref() == Some(node) && !pod.phase.terminal())
        .collect()
}

fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.shape.annotations.get(key).map(AsRef::as_ref)
}

fn daemon(pod: &Pod) -> bool {
    pod.shape
        .owner
        .as_ref()
        .is_some_and(|o| &*o.kind == "DaemonSet")
        || annotation(pod, DAEMON) == Some("true")
}

fn overdue(pod: &Pod, now: Time) -> bool {
    let Some(deletion) = pod.deletion else {
        return false;
    };
    let grace = pod
        .deletion_grace_seconds
        .map_or(pod.shape.grace_seconds, i64::from)
        .max(0);
    now.0.saturating_sub(deletion.0) > grace.saturating_mul(1000).saturating_add(OVERDUE_MS)
}

/// Pods that a drain has to do with: not the kubelet's, not a DaemonSet's, not long dead.
pub(super) fn concerned<'a>(case: Case<'a>, node: &str) -> Vec<KeyedPod<'a>> {
    let mut pods = on(case, node);
    pods.retain(|(_, pod)| !pod.mirror && !daemon(pod) && !overdue(pod, case.now));
    pods
}

/// Whether a pod will need another place when its node goes.
pub(super) fn moves(case: Case<'_>, pod: &Pod) -> bool {
    let stateful = pod
        .shape
        .owner
        .as_ref()
        .is_some_and(|o| &*o.kind == "StatefulSet");
    pod.shape.priority >= case.policy.scale_up.expendable_priority
        && (pod.deletion.is_none() || stateful)
}

/// A machine that failed has no pods that a drain would move, but those that the removal names.
pub(super) fn nobody_moves(case: Case<'_>, action: &Action) -> CheckResult {
    let name = action.target.node.as_ref().map_or("", |of| &of.name);
    match concerned(case, name)
        .iter()
        .find(|(key, pod)| pod.deletion.is_none() && !action.precondition.pods.contains(key))
    {
        None => Ok(()),
        Some((key, _)) => refuse(CheckRule::BlockingPod, format!("{key} runs there")),
    }
}

/// Whether `do-not-disrupt` holds: `true`, or a span of time (in Go's units) that is not over.
pub(super) fn guarded(value: Option<&str>, since: Time, now: Time) -> bool {
    let Some(value) = value.filter(|value| *value != "true") else {
        return value.is_some();
    };
    let plain = value
        .chars()
        .all(|c| matches!(c, '0'..='9' | '.' | 'h' | 'm' | 's' | 'u' | 'µ' | 'n'));
    let span = value.parse::<jiff::SignedDuration>().ok();
    let millis = span.and_then(|span| i64::try_from(span.as_millis()).ok());
    plain && millis.is_some_and(|millis| since.0.saturating_add(millis) > now.0)
}

/// From when on a pod's span of `do-not-disrupt` counts: its start, and not before it has one.
fn began(pod: &Pod, now: Time) -> Time {
    let waits = pod.started.is_none() && matches!(pod.phase, Phase::Pending);
    if waits {
        now
    } else {
        pod.started.unwrap_or(pod.created)
    }
}

/// Whether the API server takes an eviction of a pod off its budget (`eviction.go`).
fn counts(pod: &Pod, budget: &DisruptionBudget) -> bool {
    let unready = !pod.ready && (budget.always_allow_unhealthy || budget.healthy);
    !unready && !matches!(pod.phase, Phase::Pending)
}

/// Whether a DaemonSet's pod is not evicted when its node goes: it tolerates the taint of a node that goes, or everything, or says so.
fn ends_with_node(pod: &Pod) -> bool {
    let tolerates = |toleration: &Toleration| match &toleration.key {
        Some(key) => **key == *LEAVING_TAINT,
        None => toleration.exists,
    };
    let mut stays = pod.shape.tolerations.iter();
    let refuses = annotation(pod, DAEMON_EVICTION).is_some_and(|word| word != "true");
    refuses || stays.any(|t| tolerates(t) && matches!(t.effect, None | Some(Effect::NoSchedule)))
}

/// DaemonSet and static pods of a consolidated pool's node: `do-not-disrupt` holds for them too, and for
/// DaemonSet pods that are evicted budgets do.
fn daemons(case: Case<'_>, name: &str) -> CheckResult {
    let pods = on(case, name).into_iter();
    let stays = |pod: &Pod| (daemon(pod) || pod.mirror) && pod.deletion.is_none();
    for (key, pod) in pods.filter(|(_, pod)| stays(pod)) {
        let guard = annotation(pod, DO_NOT_DISRUPT);
        ensure(
            !guarded(guard, began(pod, case.now), case.now),
            CheckRule::BlockingPod,
            || format!("{key}: do-not-disrupt forbids it"),
        )?;
        if pod.mirror || ends_with_node(pod) {
            continue;
        }
        let of = budgets(case, key, pod);
        let spent = of.iter().any(|budget_key| {
            let budget = &case.snapshot.cluster.budgets[*budget_key];
            budget.allowed < 1 && counts(pod, budget)
        });
        let many = of.len() > 1 && pod.phase != Phase::Pending;
        ensure(!spent && !many, CheckRule::Budget, || {
            format!("{key}: its disruption budgets do not allow it")
        })?;
    }
    Ok(())
}

pub(super) fn pods(
    case: Case<'_>,
    action: &Action,
    name: &str,
    pool: &PoolPolicy,
    settings: &ScaleDown,
) -> CheckResult {
    if pool.consolidation.is_some() {
        daemons(case, name)?;
    }
    let taken = match &action.reason {
        Reason::Replaces { pods, .. } => &pods[..],
        _ => &[],
    };
    for (key, pod) in concerned(case, name) {
        ensure(
            action.precondition.pods.contains(key),
            CheckRule::Stranger,
            || format!("{key} came to {name} in between"),
        )?;
        let of = budgets(case, key, pod).len();
        let asked = pod.deletion.is_none() && pod.phase != Phase::Pending;
        ensure(of <= 1 || !asked, CheckRule::Budget, || {
            format!("{key} is in {of} budgets, which the API server refuses to evict")
        })?;
        if pod.deletion.is_none()
            && let Some(why) = blocks(case, key, pod, settings)
        {
            return refuse(CheckRule::BlockingPod, format!("{key}: {why}"));
        }
        ensure(
            !moves(case, pod)
                || action.precondition.landing.contains_key(key)
                || taken.contains(key),
            CheckRule::Landing,
            || format!("no place is named for {key}"),
        )?;
    }
    Ok(())
}

/// Why a pod may not be evicted, budgets apart.
fn blocks(
    case: Case<'_>,
    key: &ObjectKey,
    pod: &Pod,
    settings: &ScaleDown,
) -> Option<&'static str> {
    let safe = annotation(pod, SAFE);
    if safe.is_some_and(|value| value != "true") {
        return Some("safe-to-evict forbids it");
    }
    if guarded(
        annotation(pod, DO_NOT_DISRUPT),
        began(pod, case.now),
        case.now,
    ) {
        return Some("do-not-disrupt forbids it");
    }
    if pod.shape.devices {
        return Some("it uses devices by ResourceClaim");
    }
    if safe == Some("true") {
        return None;
    }
    let Some(owner) = &pod.shape.owner else {
        return Some("no controller makes it anew");
    };
    if settings.skip_custom_controllers && !RECREATING.contains(&&*owner.kind) {
        return Some("its controller is not known to make it anew");
    }
    let young = case.now.0.saturating_sub(pod.created.0) <= settings.system_pod_timeout.0;
    if settings.skip_system_pods
        && &*key.namespace == "kube-system"
        && young
        && budgets(case, key, pod).is_empty()
    {
        return Some("a kube-system pod without a budget");
    }
    let excused: Vec<&str> = annotation(pod, SAFE_VOLUMES)
        .unwrap_or_default()
        .split(',')
        .map(str::trim)
        .collect();
    let local = pod.shape.volumes.iter().any(|volume| match volume {
        Volume::EmptyDir(name) | Volume::HostPath(name) => !excused.contains(&&**name),
        Volume::Claim(_) | Volume::Ephemeral { .. } => false,
    });
    (settings.skip_local_storage && local).then_some("it has local storage")
}

/// The disruption budgets that a pod counts in.
pub(super) fn budgets<'a>(case: Case<'a>, key: &ObjectKey, pod: &Pod) -> Vec<&'a ObjectKey> {
    let labels = &pod.shape.labels;
    case.snapshot
        .cluster
        .budgets
        .iter()
        .filter(|(name, _)| name.namespace == key.namespace)
        .filter(|(_, budget)| {
            budget.selector.as_ref().is_some_and(|selector| {
                selector
                    .labels
                    .iter()
                    .all(|(k, v)| labels.get(k) == Some(v))
                    && selector.expressions.iter().all(|wanted| {
                        super::matching::meets(wanted, labels.get(&wanted.key).map(AsRef::as_ref))
                    })
            })
        })
        .map(|(name, _)| name)
        .collect()
}

/// An unneeded node is requested no more than the threshold.
pub(super) fn utilization(
    case: Case<'_>,
    action: &Action,
    settings: &ScaleDown,
    node: &Node,
) -> CheckResult {
    if !matches!(action.reason, Reason::Unneeded { .. }) {
        return Ok(());
    }
    let name = action.target.node.as_ref().map_or("", |of| &of.name);
    let gpu = GPUS.into_iter().find(|gpu| node.allocatable.get(gpu) > 0);
    for resource in gpu.map_or(vec!["cpu", "memory"], |gpu| vec![gpu]) {
        let (mut asked, mut apart) = (0i128, 0i128);
        for (_, pod) in on(case, name) {
            let amount = i128::from(pod.shape.requests.get(resource).max(0));
            if overdue(pod, case.now)
                || pod.shape.priority < case.policy.scale_up.expendable_priority
            {
            } else if (daemon(pod) && settings.ignore_daemonsets)
                || (pod.mirror && settings.ignore_mirrors)
            {
                apart += amount;
            } else {
                asked += amount;
            }
        }
        let offered = i128::from(node.allocatable.get(resource)) - apart;
        let permille = i128::from(settings.utilization_threshold_permille);
        ensure(
            offered > 0 && asked * 1000 <= permille * offered,
            CheckRule::Utilization,
            || {
                format!(
                    "{asked} of {offered} {resource} are requested, the limit is {permille} permille"
                )
            },
        )?;
    }
    Ok(())
}

/// What removals ask of one budget.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demanded {
    pub(super) evictions: i64,
    pub(super) nodes: usize,
}

/// How many evictions every budget would see from removing these nodes, and those being removed.
pub(super) fn demanded<'a>(case: Case<'a>, nodes: &[&str]) -> BTreeMap<&'a ObjectKey, Demanded> {
    let mut sum: BTreeMap<&ObjectKey, Demanded> = BTreeMap::new();
    for name in nodes {
        let mut touched: BTreeSet<&ObjectKey> = BTreeSet::new();
        for (key, pod) in concerned(case, name) {
            if pod.deletion.is_some() {
                continue;
            }
            for budget_key in budgets(case, key, pod) {
                let budget = &case.snapshot.cluster.budgets[budget_key];
                if counts(pod, budget) {
                    let demanded = sum.entry(budget_key).or_default();
                    demanded.evictions += 1;
                    demanded.nodes += usize::from(touched.insert(budget_key));
                }
            }
        }
    }
    sum
}

/// The names of the nodes that some actions take down.
pub(super) fn nodes_of<'a>(actions: &[&'a Action]) -> Vec<&'a Arc<str>> {
    actions
        .iter()
        .filter_map(|action| action.target.node.as_ref())
        .map(|node| &node.name)
        .collect()
}
