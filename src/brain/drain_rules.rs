//! Which pods of a node may be evicted: the first rule that decides wins.
//!
//! Source: cluster-autoscaler's `simulator/drainability/rules`. Two deviations: `safe-to-evict: false`
//! and budgets are asked before the age of a system pod, and budgets even with `safe-to-evict: true`.

use std::collections::BTreeMap;

use crate::model::cluster::{DisruptionBudget, Pod, PodKey};
use crate::model::policy::ScaleDown;
use crate::model::scheduling::Volume;
use crate::model::time::{Span, Time};

use super::fit::selector;
use super::view::{Keyed, View};

const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
const SAFE_VOLUMES: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";
const DAEMON_POD: &str = "cluster-autoscaler.kubernetes.io/daemonset-pod";
const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
/// A pod whose grace period ended so long ago does not go by itself any more.
const LONG_TERMINATING: Span = Span::seconds(30);
/// Controllers that are known to make their pods anew.
const RECREATING: [&str; 4] = ["ReplicaSet", "ReplicationController", "StatefulSet", "Job"];

/// What becomes of a pod when its node goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It does not matter: static, of a DaemonSet, long dead.
    Stays,
    /// It goes, and nothing that must be placed comes for it.
    Goes,
    /// It, or its successor, needs another place.
    Moves,
    /// It blocks, by cluster-autoscaler's `BlockingPodReason`, and in words.
    Blocks(&'static str, String),
}

fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.shape.annotations.get(key).map(|value| &**value)
}

/// Whether a pod is a DaemonSet's, or says it is like one.
pub(super) fn daemon(pod: &Pod) -> bool {
    let owned = pod
        .shape
        .owner
        .as_ref()
        .is_some_and(|owner| &*owner.kind == "DaemonSet");
    owned || annotation(pod, DAEMON_POD) == Some("true")
}

/// Whether a pod should have been gone for a while.
pub(super) fn long_terminating(pod: &Pod, now: Time) -> bool {
    let grace = pod
        .deletion_grace_seconds
        .unwrap_or(pod.shape.grace_seconds)
        .max(0);
    let grace = Span(
        grace
            .saturating_mul(1000)
            .saturating_add(LONG_TERMINATING.0),
    );
    pod.deletion.is_some_and(|end| now.since(end) > grace)
}

/// Whether a drain has to do with a pod at all.
pub(super) fn concerned(pod: &Pod, now: Time) -> bool {
    !pod.mirror && !daemon(pod) && !long_terminating(pod, now)
}

/// What a node annotation of Karpenter's says.
pub(super) fn forbids(value: Option<&str>) -> bool {
    !matches!(value, None | Some("false"))
}

/// The disruption budgets, and how many evictions each has left.
#[derive(Debug)]
pub(super) struct Budgets<'a> {
    all: Vec<(&'a PodKey, &'a DisruptionBudget)>,
    left: BTreeMap<&'a PodKey, i64>,
    /// Nodes that take of each, in this plan and under way.
    nodes: BTreeMap<&'a PodKey, u32>,
}

impl<'a> Budgets<'a> {
    /// What the budgets allow, minus what removals under way will still take.
    pub(super) fn of(view: &View<'a>, leaving: &[&str]) -> Budgets<'a> {
        let all: Vec<_> = view.snapshot.cluster.budgets.iter().collect();
        let left = all
            .iter()
            .map(|(key, budget)| (*key, i64::from(budget.allowed)))
            .collect();
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
    fn matching(&self, key: &PodKey, pod: &Pod) -> Vec<(&'a PodKey, &'a DisruptionBudget)> {
        self.all
            .iter()
            .filter(|(name, _)| name.namespace == key.namespace)
            .filter(|(_, budget)| selector::selects(budget.selector.as_ref(), &pod.shape.labels))
            .copied()
            .collect()
    }

    /// Why a pod may not be evicted now, if it may not.
    fn refusal(&self, key: &PodKey, pod: &Pod) -> Option<String> {
        let matching = self.matching(key, pod);
        if matching.len() > 1 {
            return Some(format!(
                "it is in {} disruption budgets, which the API server refuses to evict",
                matching.len()
            ));
        }
        let (name, budget) = matching.first()?;
        let free = !pod.ready && budget.always_allow_unhealthy;
        let left = self.left.get(name).copied().unwrap_or(0);
        (!free && left < 1).then(|| {
            format!(
                "the disruption budget {name} allows {} evictions, {left} are left",
                budget.allowed
            )
        })
    }

    /// What a removal of a node with these pods takes, by budget.
    fn cost(&self, pods: &[Keyed<'_>]) -> BTreeMap<&'a PodKey, i64> {
        let mut cost = BTreeMap::new();
        for (key, pod) in pods.iter().filter(|(_, pod)| pod.deletion.is_none()) {
            for (name, budget) in self.matching(key, pod) {
                if pod.ready || !budget.always_allow_unhealthy {
                    *cost.entry(name).or_insert(0) += 1;
                }
            }
        }
        cost
    }

    /// Whether a node with these pods can be drained beside what is planned already. One node alone
    /// may need more evictions than are allowed at once: they come one after the other.
    pub(super) fn admit(&self, pods: &[Keyed<'_>]) -> Result<(), String> {
        for (name, wanted) in self.cost(pods) {
            let left = self.left.get(name).copied().unwrap_or(0);
            let shared = self.nodes.get(name).is_some_and(|nodes| *nodes > 0);
            if left < 1 || (wanted > left && shared) {
                return Err(format!(
                    "the disruption budget {name} has {left} evictions left beside other removals, {wanted} are needed"
                ));
            }
        }
        Ok(())
    }

    /// Whether draining these pods takes more evictions at once than are allowed.
    pub(super) fn risky(&self, pods: &[Keyed<'_>]) -> bool {
        self.cost(pods)
            .iter()
            .any(|(name, wanted)| *wanted > self.left.get(name).copied().unwrap_or(0))
    }

    /// Counts a removal.
    pub(super) fn take(&mut self, pods: &[Keyed<'_>]) {
        for (name, wanted) in self.cost(pods) {
            let left = self.left.entry(name).or_insert(0);
            *left = left.saturating_sub(wanted);
            *self.nodes.entry(name).or_insert(0) += 1;
        }
    }
}

/// The fate of one pod.
pub(super) fn fate(
    key: &PodKey,
    pod: &Pod,
    settings: &ScaleDown,
    expendable: i32,
    budgets: &Budgets<'_>,
    now: Time,
) -> Fate {
    if !concerned(pod, now) {
        return Fate::Stays;
    }
    let stateful = pod
        .shape
        .owner
        .as_ref()
        .is_some_and(|owner| &*owner.kind == "StatefulSet");
    if pod.deletion.is_some() {
        // Its successor is there already; a StatefulSet's waits for it to be gone.
        return if stateful { Fate::Moves } else { Fate::Goes };
    }
    if let Some((reason, why)) = blocking(key, pod, settings, budgets, now) {
        return Fate::Blocks(reason, why);
    }
    if pod.shape.priority < expendable {
        return Fate::Goes;
    }
    Fate::Moves
}

fn blocking(
    key: &PodKey,
    pod: &Pod,
    settings: &ScaleDown,
    budgets: &Budgets<'_>,
    now: Time,
) -> Option<(&'static str, String)> {
    let safe = annotation(pod, SAFE_TO_EVICT);
    if let Some(value) = safe.filter(|value| *value != "true") {
        let why = format!("its annotation {SAFE_TO_EVICT} is {value}");
        return Some(("NotSafeToEvictAnnotation", why));
    }
    if let Some(value) = annotation(pod, DO_NOT_DISRUPT).filter(|value| forbids(Some(value))) {
        let why = format!("its annotation {DO_NOT_DISRUPT} is {value}");
        return Some(("NotSafeToEvictAnnotation", why));
    }
    if let Some(why) = budgets.refusal(key, pod) {
        return Some(("NotEnoughPdb", why));
    }
    if safe == Some("true") {
        return None;
    }
    let Some(owner) = &pod.shape.owner else {
        return Some(("NotReplicated", "no controller makes it anew".to_owned()));
    };
    if settings.skip_custom_controllers && !RECREATING.contains(&&*owner.kind) {
        let why = format!(
            "its controller is a {}, which may not make it anew",
            owner.kind
        );
        return Some(("NotReplicated", why));
    }
    let age = now.since(pod.created);
    if settings.skip_system_pods
        && &*key.namespace == "kube-system"
        && age <= settings.system_pod_timeout
        && budgets.matching(key, pod).is_empty()
    {
        let why = format!(
            "a kube-system pod without disruption budget blocks until it is {} old, it is {age}",
            settings.system_pod_timeout
        );
        return Some(("UnmovableKubeSystemPod", why));
    }
    if settings.skip_local_storage
        && let Some(volume) = local_volume(pod)
    {
        let why = format!("its volume {volume} is on the node");
        return Some(("LocalStorageRequested", why));
    }
    None
}

fn local_volume(pod: &Pod) -> Option<&str> {
    let excused: Vec<&str> = annotation(pod, SAFE_VOLUMES)
        .unwrap_or_default()
        .split(',')
        .map(str::trim)
        .collect();
    pod.shape.volumes.iter().find_map(|volume| match volume {
        Volume::EmptyDir(name) | Volume::HostPath(name) => {
            Some(&**name).filter(|name| !excused.contains(name))
        }
        Volume::Claim(_) | Volume::Ephemeral { .. } => None,
    })
}
