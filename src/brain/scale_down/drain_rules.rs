//! Which pods of a node may be evicted: the first rule that decides wins.
//!
//! Source: cluster-autoscaler's `simulator/drainability/rules`. Two deviations: `safe-to-evict: false`
//! and budgets are asked before the age of a system pod, and budgets even with `safe-to-evict: true`.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::cluster::{DisruptionBudget, ObjectKey, Phase, Pod};
use model::guard::{self, DO_NOT_DISRUPT, Guard, SAFE_TO_EVICT};
use model::policy::ScaleDown;
use model::reasons::{Blocked, Kept};
use model::scheduling::{PodShape, Volume};
use model::time::{Span, Time};

use crate::constraints::fit::selector;
use crate::constraints::shape::Keyed;
use crate::observed::view::SnapshotView;

const SAFE_VOLUMES: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";
/// A pod whose grace period ended so long ago does not go by itself any more.
const LONG_TERMINATING: Span = Span::seconds(30);
/// Controllers that are known to make their pods anew.
const RECREATING: [&str; 4] = ["ReplicaSet", "ReplicationController", "StatefulSet", "Job"];

/// What becomes of a pod when its node goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DrainOutcome {
    /// It does not matter: static, of a DaemonSet, long dead.
    Stays,
    /// It goes, and nothing that must be placed comes for it.
    Goes,
    /// It, or its successor, needs another place.
    Moves,
    /// It blocks the drain of its node.
    Blocks(Block),
}

/// Why a pod blocks, and until when if that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) why: Blocked,
    pub(crate) until: Option<Time>,
}

fn block(why: Blocked) -> Block {
    Block { why, until: None }
}

/// The settings and budgets that decide which pods of a node may be evicted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrainRules<'b, 'a> {
    pub(crate) settings: &'b ScaleDown,
    /// Pods of a lower priority need no other place.
    pub(crate) expendable: i32,
    pub(crate) budgets: &'b Budgets<'a>,
    /// The pool is consolidated: budgets and `do-not-disrupt` of DaemonSet pods count too, as
    /// Karpenter has it.
    pub(crate) strict: bool,
    pub(crate) now: Time,
}

fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.shape.annotations.get(key).map(|value| &**value)
}

/// Whether a pod is a DaemonSet's, or says it is like one.
pub(crate) fn daemon(pod: &Pod) -> bool {
    daemonic(&pod.shape)
}

/// Whether pods of this shape are a DaemonSet's, or say they are like one.
pub(crate) fn daemonic(shape: &PodShape) -> bool {
    guard::is_daemon(shape)
}

/// Whether a pod should have been gone for a while.
pub(crate) fn long_terminating(pod: &Pod, now: Time) -> bool {
    let grace = pod
        .deletion_grace_seconds
        .map_or(pod.shape.grace_seconds, i64::from)
        .max(0);
    let grace = Span(
        grace
            .saturating_mul(1000)
            .saturating_add(LONG_TERMINATING.0),
    );
    pod.deletion.is_some_and(|end| now.since(end) > grace)
}

/// Whether a drain has to do with a pod at all.
pub(crate) fn concerned(pod: &Pod, now: Time) -> bool {
    !pod.mirror && !daemon(pod) && !long_terminating(pod, now)
}

/// The disruption budgets, and how many evictions each has left.
#[derive(Clone, Debug)]
pub(crate) struct Budgets<'a> {
    /// By namespace.
    all: BTreeMap<&'a str, Vec<(&'a ObjectKey, &'a DisruptionBudget)>>,
    left: BTreeMap<&'a ObjectKey, i64>,
    /// Nodes that take of each, in this plan and under way.
    nodes: BTreeMap<&'a ObjectKey, u32>,
}

impl<'a> Budgets<'a> {
    /// What the budgets allow, minus what removals under way will still take.
    pub(crate) fn of(view: &SnapshotView<'a>, leaving: &[&str]) -> Budgets<'a> {
        let seen = &view.snapshot.cluster.budgets;
        let left = seen
            .iter()
            .map(|(key, budget)| (key, i64::from(budget.allowed)))
            .collect();
        let mut all: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for (key, budget) in seen {
            all.entry(&*key.namespace).or_default().push((key, budget));
        }
        let mut budgets = Budgets {
            all,
            left,
            nodes: BTreeMap::new(),
        };
        for node in leaving {
            let pods: Vec<Keyed<'a>> = view
                .pods(node)
                .iter()
                .filter(|(_, pod)| concerned(pod, view.now))
                .copied()
                .collect();
            budgets.take(&pods);
        }
        budgets
    }

    /// The budgets that a pod counts in.
    fn matching(&self, key: &ObjectKey, pod: &Pod) -> Vec<(&'a ObjectKey, &'a DisruptionBudget)> {
        let of_namespace = self.all.get(&*key.namespace);
        of_namespace
            .map_or(&[][..], Vec::as_slice)
            .iter()
            .filter(|(_, budget)| selector::selects(budget.selector.as_ref(), &pod.shape.labels))
            .copied()
            .collect()
    }

    /// Why a pod may not be evicted now, if it may not.
    fn refusal(&self, key: &ObjectKey, pod: &Pod) -> Option<Blocked> {
        if pod.phase == Phase::Pending {
            return None;
        }
        let matching = self.matching(key, pod);
        if matching.len() > 1 {
            let budgets = matching.len();
            return Some(Blocked::SeveralBudgets { budgets });
        }
        let (name, budget) = matching.first()?;
        let left = self.left.get(name).copied().unwrap_or(0);
        (spends(pod, budget) && left < 1).then(|| Blocked::Budget {
            budget: (*name).clone(),
            allowed: budget.allowed,
            left,
            unready: !pod.ready,
        })
    }

    /// What a removal of a node with these pods takes, by budget.
    fn cost(&self, pods: &[Keyed<'_>]) -> BTreeMap<&'a ObjectKey, i64> {
        let mut cost = BTreeMap::new();
        for (key, pod) in pods.iter().filter(|(_, pod)| pod.deletion.is_none()) {
            for (name, budget) in self.matching(key, pod) {
                if spends(pod, budget) {
                    *cost.entry(name).or_insert(0) += 1;
                }
            }
        }
        cost
    }

    /// Whether a node with these pods can be drained beside what is planned already. One node alone
    /// may need more evictions than are allowed at once: they come one after the other.
    pub(crate) fn admit(&self, pods: &[Keyed<'_>]) -> Result<(), Kept> {
        for (name, wanted) in self.cost(pods) {
            let left = self.left.get(name).copied().unwrap_or(0);
            let shared = self.nodes.get(name).is_some_and(|nodes| *nodes > 0);
            if left < 1 || (wanted > left && shared) {
                return Err(Kept::BudgetShared {
                    budget: name.clone(),
                    left,
                    wanted,
                });
            }
        }
        Ok(())
    }

    /// Whether draining these pods takes more evictions at once than are allowed.
    pub(crate) fn risky(&self, pods: &[Keyed<'_>]) -> bool {
        self.cost(pods)
            .iter()
            .any(|(name, wanted)| *wanted > self.left.get(name).copied().unwrap_or(0))
    }

    /// Counts a removal.
    pub(crate) fn take(&mut self, pods: &[Keyed<'_>]) {
        for (name, wanted) in self.cost(pods) {
            let left = self.left.entry(name).or_insert(0);
            *left = left.saturating_sub(wanted);
            *self.nodes.entry(name).or_insert(0) += 1;
        }
    }
}

/// Whether an eviction takes one of a budget's disruptions. The API server asks no budget for a pod
/// that has not begun to run, and lets one that is not ready go while the others suffice.
fn spends(pod: &Pod, budget: &DisruptionBudget) -> bool {
    let free = budget.always_allow_unhealthy || budget.healthy;
    pod.phase != Phase::Pending && (pod.ready || !free)
}

/// The fate of one pod.
pub(crate) fn decide_outcome(
    key: &ObjectKey,
    pod: &Pod,
    rules: DrainRules<'_, '_>,
) -> DrainOutcome {
    if !concerned(pod, rules.now) {
        return match held_daemon(key, pod, rules) {
            Some(block) => DrainOutcome::Blocks(block),
            None => DrainOutcome::Stays,
        };
    }
    let stateful = pod
        .shape
        .owner
        .as_ref()
        .is_some_and(|owner| &*owner.kind == "StatefulSet");
    if pod.deletion.is_some() {
        // Its successor is there already; a StatefulSet's waits for it to be gone.
        return if stateful {
            DrainOutcome::Moves
        } else {
            DrainOutcome::Goes
        };
    }
    if let Some(block) = blocking(key, pod, rules) {
        return DrainOutcome::Blocks(block);
    }
    if pod.shape.priority < rules.expendable {
        return DrainOutcome::Goes;
    }
    DrainOutcome::Moves
}

/// Why a pod that no drain moves, a DaemonSet's or a static one, keeps its node from being consolidated, if
/// it does. No disruption budget counts for a pod that nobody evicts: a static one, and one that says itself, by toleration or annotation,
/// that it stays. What the configuration says of the others is not known here: their budgets count.
fn held_daemon(key: &ObjectKey, pod: &Pod, rules: DrainRules<'_, '_>) -> Option<Block> {
    if !rules.strict || pod.deletion.is_some() || !(pod.mirror || daemon(pod)) {
        return None;
    }
    guarded(pod, rules.now).or_else(|| {
        let evicted = guard::evicts_daemon(&pod.shape) != Some(false);
        if pod.mirror || guard::tolerates_leaving(&pod.shape) || !evicted {
            return None;
        }
        Some(block(rules.budgets.refusal(key, pod)?))
    })
}

/// `do-not-disrupt` on a pod.
fn guarded(pod: &Pod, now: Time) -> Option<Block> {
    let value = annotation(pod, DO_NOT_DISRUPT);
    let Guard { until } = Guard::of_pod(pod, now)?;
    Some(Block {
        why: Blocked::Annotation {
            annotation: DO_NOT_DISRUPT.into(),
            value: value.unwrap_or_default().into(),
        },
        until,
    })
}

fn blocking(key: &ObjectKey, pod: &Pod, rules: DrainRules<'_, '_>) -> Option<Block> {
    let DrainRules {
        settings,
        budgets,
        now,
        ..
    } = rules;
    if let Some(excess) = &pod.shape.left_out {
        let excess = excess.clone();
        return Some(block(Blocked::TooComplex { excess }));
    }
    let safe = annotation(pod, SAFE_TO_EVICT);
    if let Some(value) = safe.filter(|value| *value != "true") {
        return Some(block(Blocked::Annotation {
            annotation: SAFE_TO_EVICT.into(),
            value: value.into(),
        }));
    }
    if let Some(guarded) = guarded(pod, now) {
        return Some(guarded);
    }
    if let Some(why) = budgets.refusal(key, pod) {
        return Some(block(why));
    }
    if pod.shape.devices {
        return Some(block(Blocked::Devices));
    }
    if safe == Some("true") {
        return None;
    }
    let Some(owner) = &pod.shape.owner else {
        return Some(block(Blocked::NoController));
    };
    if settings.skip_custom_controllers && !RECREATING.contains(&&*owner.kind) {
        return Some(block(Blocked::CustomController {
            kind: owner.kind.clone(),
        }));
    }
    let age = now.since(pod.created);
    if settings.skip_system_pods
        && &*key.namespace == "kube-system"
        && budgets.matching(key, pod).is_empty()
    {
        // Once it has held its node for long enough it goes, whatever volumes it has: cluster-autoscaler's rule for such pods has the
        // last word (`rules/system/rule.go`).
        return (age <= settings.system_pod_timeout).then(|| Block {
            why: Blocked::SystemPod {
                timeout: settings.system_pod_timeout,
                age,
            },
            until: Some(pod.created + settings.system_pod_timeout + Span(1)),
        });
    }
    if settings.skip_local_storage
        && let Some(volume) = local_volume(pod)
    {
        return Some(block(Blocked::LocalStorage {
            volume: volume.clone(),
        }));
    }
    None
}

fn local_volume(pod: &Pod) -> Option<&Arc<str>> {
    let excused: Vec<&str> = annotation(pod, SAFE_VOLUMES)
        .unwrap_or_default()
        .split(',')
        .map(str::trim)
        .collect();
    pod.shape.volumes.iter().find_map(|volume| match volume {
        Volume::EmptyDir(name) | Volume::HostPath(name) => {
            Some(name).filter(|name| !excused.contains(&&***name))
        }
        Volume::Claim(_) | Volume::Ephemeral { .. } => None,
    })
}
