//! Pods.

use super::{ObjectReader, nonempty, uid};
use crate::kubernetes::wire::{self, WireCondition};
use crate::model::cluster::{ObjectKey, Phase, Pod};
use crate::model::resources::Resources;
use crate::model::scheduling::{NodeTerm, Operator, PodShape, PodTraits};

/// The object's version as a number, which grows with every write to the API server; 0 where it is none.
fn arrival(meta: &wire::Meta) -> u64 {
    let version = meta.resource_version.as_deref();
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

/// A pod's view; `None` when it lacks namespace or name.
pub(in crate::kubernetes) fn pod(
    reader: &mut ObjectReader<'_>,
    pod: &wire::WirePod,
) -> Option<(ObjectKey, Pod)> {
    let meta = &pod.metadata;
    let key = reader.key(meta)?;
    let conditions = pod.status.conditions.as_deref().unwrap_or_default();
    let scheduled = find(conditions, "PodScheduled");
    let held_back = scheduled
        .filter(|condition| condition.status.as_deref() == Some("False"))
        .and_then(|condition| condition.reason.as_deref());
    let mut shape = reader.shape(meta, &pod.spec, &pod.status);
    if let Some(node) = nonempty(pod.spec.node_name.as_deref()) {
        forget_own_node(&mut shape, node);
    }
    let view = Pod {
        uid: uid(meta),
        shape: reader.kept(shape),
        node: nonempty(pod.spec.node_name.as_deref()).map(|name| reader.interner.text(name)),
        nominated: nonempty(pod.status.nominated_node_name.as_deref())
            .map(|name| reader.interner.text(name)),
        phase: phase(pod.status.phase.as_deref()),
        created: reader.created(meta),
        arrival: arrival(meta),
        started: reader.time("status.startTime", pod.status.start_time.as_deref()),
        deletion: reader.time(
            "metadata.deletionTimestamp",
            meta.deletion_timestamp.as_deref(),
        ),
        deletion_grace_seconds: meta
            .deletion_grace_period_seconds
            .map(|seconds| i32::try_from(seconds).unwrap_or(i32::MAX)),
        unschedulable_since: match held_back {
            Some("Unschedulable") => {
                let since = scheduled.and_then(|c| c.last_transition_time.as_deref());
                Some(
                    reader
                        .time("the condition PodScheduled's lastTransitionTime", since)
                        .unwrap_or_else(|| reader.created(meta)),
                )
            }
            _ => None,
        },
        gated: held_back == Some("SchedulingGated")
            || pod
                .spec
                .scheduling_gates
                .as_ref()
                .is_some_and(|gates| !gates.is_empty()),
        mirror: meta
            .annotations
            .as_ref()
            .is_some_and(|all| all.contains_key("kubernetes.io/config.mirror")),
        ready: find(conditions, "Ready")
            .is_some_and(|condition| condition.status.as_deref() == Some("True")),
    };
    Some((key, view))
}

/// The view of a pod of which only the metadata could be read: it asks for more than any node has
/// and, when its node is known, fills that up.
pub(in crate::kubernetes) fn unreadable_pod(
    reader: &mut ObjectReader<'_>,
    meta: &wire::Meta,
    node: Option<&str>,
) -> Option<(ObjectKey, Pod)> {
    let key = reader.key(meta)?;
    let requests = Resources {
        cpu_milli: i64::MAX,
        memory: i64::MAX,
        ephemeral: i64::MAX,
        pods: 1,
        ..Resources::default()
    };
    let shape = PodShape::from(PodTraits {
        requests,
        ..PodTraits::default()
    });
    let view = Pod {
        uid: uid(meta),
        shape: reader.interner.shape(shape),
        node: nonempty(node).map(|name| reader.interner.text(name)),
        nominated: None,
        phase: Phase::Unknown,
        created: reader.created(meta),
        arrival: arrival(meta),
        started: None,
        deletion: None,
        deletion_grace_seconds: None,
        unschedulable_since: None,
        gated: false,
        mirror: false,
        ready: false,
    };
    Some((key, view))
}

/// The DaemonSet controller names the node in its pod's affinity. Once the pod is bound this says nothing
/// more, and without it all pods of the set share one shape.
fn forget_own_node(shape: &mut PodShape, node: &str) {
    let owner = shape.owner.as_ref();
    let named = |term: &NodeTerm| {
        let [field] = &term.fields[..] else {
            return false;
        };
        let value = field.values.iter().map(|value| &**value);
        term.expressions.is_empty()
            && &*field.key == "metadata.name"
            && field.operator == Operator::In
            && value.eq([node])
    };
    let own = |terms: &Vec<NodeTerm>| terms.len() == 1 && terms.iter().all(named);
    if owner.is_some_and(|owner| &*owner.kind == "DaemonSet")
        && shape.node_affinity.as_ref().is_some_and(own)
    {
        shape.node_affinity = None;
    }
}

pub(super) fn find<'a>(conditions: &'a [WireCondition], kind: &str) -> Option<&'a WireCondition> {
    conditions
        .iter()
        .find(|condition| condition.kind.as_deref() == Some(kind))
}

fn phase(text: Option<&str>) -> Phase {
    match text.unwrap_or_default() {
        "" | "Pending" => Phase::Pending,
        "Running" => Phase::Running,
        "Succeeded" => Phase::Succeeded,
        "Failed" => Phase::Failed,
        _ => Phase::Unknown,
    }
}
