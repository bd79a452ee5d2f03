//! Everything but pods.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::pod::find;
use super::{ObjectReader, node_annotation, nonempty, uid};
use crate::kubernetes::wire;
use crate::model::cluster::{
    Attachment, DaemonSet, DisruptionBudget, Node, ObjectKey, Readiness, ReadyStatus, StorageClass,
};
use crate::model::foreign::ForeignText;
use crate::model::resources::Resources;
use crate::model::scheduling::{
    Effect, Labels, NodeTerm, Operator, Owner, PodShape, Requirement, Taint, Toleration,
};

/// A node's view.
pub(in crate::kubernetes) fn node(
    reader: &mut ObjectReader<'_>,
    node: &wire::WireNode,
) -> Option<(Arc<str>, Node)> {
    let meta = &node.metadata;
    let name = reader.name(meta)?;
    let conditions = node.status.conditions.as_deref().unwrap_or_default();
    let ready = find(conditions, "Ready");
    let info = node.status.node_info.as_ref();
    let view = Node {
        uid: uid(meta),
        system_uuid: info
            .and_then(|info| info.system_uuid.as_deref())
            .unwrap_or_default()
            .to_ascii_lowercase()
            .into(),
        provider_id: nonempty(node.spec.provider_id.as_deref()).map(Into::into),
        created: reader.created(meta),
        deletion: reader.time(
            "metadata.deletionTimestamp",
            meta.deletion_timestamp.as_deref(),
        ),
        labels: reader.labels(meta.labels.as_ref()).into(),
        annotations: reader
            .labels_if(meta.annotations.as_ref(), node_annotation)
            .into(),
        taints: taints(reader, node.spec.taints.as_deref()),
        unschedulable: node.spec.unschedulable.unwrap_or(false),
        allocatable: reader.offered("status.allocatable", node.status.allocatable.as_ref()),
        capacity: reader.offered("status.capacity", node.status.capacity.as_ref()),
        ready: Readiness {
            status: match ready.and_then(|condition| condition.status.as_deref()) {
                Some("True") => ReadyStatus::True,
                Some("False") => ReadyStatus::False,
                _ => ReadyStatus::Unknown,
            },
            since: reader.time(
                "the condition Ready's lastTransitionTime",
                ready.and_then(|condition| condition.last_transition_time.as_deref()),
            ),
            why: ready.and_then(not_ready),
        },
        kubelet_version: reader.text(info.and_then(|info| info.kubelet_version.as_deref())),
        addresses: addresses(node.status.addresses.as_deref().unwrap_or_default()),
    };
    Some((name, view))
}

/// The IP addresses among a node's addresses, each once; host names are left out.
fn addresses(told: &[wire::NodeAddress]) -> Vec<IpAddr> {
    let texts = told.iter().filter_map(|told| told.address.as_deref());
    let addresses: BTreeSet<IpAddr> = texts.filter_map(|text| text.parse().ok()).collect();
    addresses.into_iter().collect()
}

/// Why a node is not ready, as its condition says.
fn not_ready(ready: &wire::WireCondition) -> Option<ForeignText> {
    let said = [&ready.reason, &ready.message].into_iter().flatten();
    let said: Vec<&str> = said
        .map(String::as_str)
        .filter(|text| !text.is_empty())
        .collect();
    let ready = ready.status.as_deref() == Some("True");
    (!ready && !said.is_empty()).then(|| said.join(": ").into())
}

fn taints(reader: &mut ObjectReader<'_>, taints: Option<&[wire::WireTaint]>) -> Vec<Taint> {
    taints
        .unwrap_or_default()
        .iter()
        .map(|taint| Taint {
            key: reader.text(taint.key.as_deref()),
            value: reader.text(taint.value.as_deref()),
            // an effect we do not know keeps pods away
            effect: reader
                .effect(taint.effect.as_deref().unwrap_or_default())
                .unwrap_or(Effect::NoSchedule),
        })
        .collect()
}

/// What a PriorityClass gives a pod that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kubernetes) struct PriorityClass {
    pub(in crate::kubernetes) value: i32,
    pub(in crate::kubernetes) default: bool,
    pub(in crate::kubernetes) never_preempts: bool,
}

/// What a RuntimeClass adds to a pod that names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::kubernetes) struct RuntimeClass {
    pub(in crate::kubernetes) overhead: Resources,
    pub(in crate::kubernetes) node_selector: Labels,
    pub(in crate::kubernetes) tolerations: Vec<Toleration>,
}

/// A PriorityClass.
pub(in crate::kubernetes) fn priority_class(
    reader: &mut ObjectReader<'_>,
    class: &wire::WirePriorityClass,
) -> Option<(Arc<str>, PriorityClass)> {
    let view = PriorityClass {
        value: class.value,
        default: class.global_default.unwrap_or(false),
        never_preempts: class.preemption_policy.as_deref() == Some("Never"),
    };
    Some((reader.name(&class.metadata)?, view))
}

/// A RuntimeClass.
pub(in crate::kubernetes) fn runtime_class(
    reader: &mut ObjectReader<'_>,
    class: &wire::WireRuntimeClass,
) -> Option<(Arc<str>, RuntimeClass)> {
    let name = reader.name(&class.metadata)?;
    let overhead = class.overhead.as_ref().and_then(|o| o.pod_fixed.as_ref());
    let scheduling = class.scheduling.as_ref();
    let view = RuntimeClass {
        overhead: overhead.map_or_else(Resources::default, |o| reader.asked("overhead", o)),
        node_selector: reader.labels(scheduling.and_then(|s| s.node_selector.as_ref())),
        tolerations: reader.tolerations(scheduling.and_then(|s| s.tolerations.as_deref())),
    };
    Some((name, view))
}

/// Taints that the DaemonSet controller makes every one of its pods tolerate
/// (`pkg/controller/daemon/util` `AddOrUpdateDaemonPodTolerations`).
const DAEMON_TOLERATIONS: [(&str, Effect); 6] = [
    ("node.kubernetes.io/not-ready", Effect::NoExecute),
    ("node.kubernetes.io/unreachable", Effect::NoExecute),
    ("node.kubernetes.io/disk-pressure", Effect::NoSchedule),
    ("node.kubernetes.io/memory-pressure", Effect::NoSchedule),
    ("node.kubernetes.io/pid-pressure", Effect::NoSchedule),
    ("node.kubernetes.io/unschedulable", Effect::NoSchedule),
];

/// A DaemonSet's view. Its template has not seen admission, so the classes it names are passed in.
pub(in crate::kubernetes) fn daemon_set(
    reader: &mut ObjectReader<'_>,
    set: &wire::WireDaemonSet,
    priorities: &BTreeMap<Arc<str>, PriorityClass>,
    runtimes: &BTreeMap<Arc<str>, RuntimeClass>,
) -> Option<(ObjectKey, DaemonSet)> {
    let key = reader.key(&set.metadata)?;
    let template = &set.spec.template;
    let spec = &template.spec;
    let meta = template.metadata.clone().unwrap_or_default();
    let mut shape = reader.shape(&meta, spec, &wire::PodStatus::default());
    for (taint, effect) in DAEMON_TOLERATIONS {
        tolerate(reader, &mut shape, taint, effect);
    }
    if spec.host_network == Some(true) {
        let taint = "node.kubernetes.io/network-unavailable";
        tolerate(reader, &mut shape, taint, Effect::NoSchedule);
    }
    if spec.priority.is_none() {
        let class = match nonempty(spec.priority_class_name.as_deref()) {
            Some(name) => priorities.get(name),
            None => priorities.values().find(|class| class.default),
        };
        if let Some(class) = class {
            shape.priority = class.value;
            shape.never_preempts |= class.never_preempts;
        }
    }
    if let Some(class) = nonempty(spec.runtime_class_name.as_deref()).and_then(|n| runtimes.get(n))
    {
        if spec.overhead.is_none() {
            shape.requests.add(&class.overhead);
        }
        shape.node_selector.extend(class.node_selector.clone());
        shape.tolerations.extend(class.tolerations.iter().cloned());
    }
    if let Some(node) = nonempty(spec.node_name.as_deref()) {
        keep_to_node(reader, &mut shape, node);
    }
    // A template names no owner; its pods name this one, and are known by it.
    shape.owner = Some(Arc::new(Owner {
        kind: reader.interner.text("DaemonSet"),
        name: key.name.clone(),
        uid: uid(&set.metadata),
    }));
    let view = DaemonSet {
        uid: uid(&set.metadata),
        shape: reader.kept(shape),
    };
    Some((key, view))
}

/// Pods of this shape run on the node of this name alone: a DaemonSet whose template names a node has a pod there and nowhere
/// else (`NodeShouldRunDaemonPod`).
fn keep_to_node(reader: &mut ObjectReader<'_>, shape: &mut PodShape, node: &str) {
    let named = Requirement {
        key: reader.interner.text("metadata.name"),
        operator: Operator::In,
        values: vec![reader.interner.text(node)],
    };
    match &mut shape.node_affinity {
        None => {
            shape.node_affinity = Some(vec![NodeTerm {
                fields: vec![named],
                ..NodeTerm::default()
            }]);
        }
        Some(terms) => {
            // A term without any requirement matches nothing, and would match the node with this one.
            terms.retain(|term| !(term.expressions.is_empty() && term.fields.is_empty()));
            for term in terms {
                term.fields.push(named.clone());
            }
        }
    }
}

fn tolerate(reader: &mut ObjectReader<'_>, shape: &mut PodShape, taint: &str, effect: Effect) {
    shape.tolerations.push(Toleration {
        key: Some(reader.interner.text(taint)),
        exists: true,
        value: reader.interner.text(""),
        effect: Some(effect),
    });
}

/// A PodDisruptionBudget's view.
pub(in crate::kubernetes) fn budget(
    reader: &mut ObjectReader<'_>,
    budget: &wire::Budget,
) -> Option<(ObjectKey, DisruptionBudget)> {
    let observed = budget.status.observed_generation.unwrap_or(0);
    let current = observed >= budget.metadata.generation.unwrap_or(0);
    let status = &budget.status;
    let allowed = status.disruptions_allowed.unwrap_or(0);
    let desired = status.desired_healthy.unwrap_or(0);
    let view = DisruptionBudget {
        selector: budget.spec.selector.as_ref().map(|s| reader.selector(s)),
        allowed: if current { allowed } else { 0 },
        always_allow_unhealthy: budget.spec.unhealthy_pod_eviction_policy.as_deref()
            == Some("AlwaysAllow"),
        healthy: current && desired > 0 && status.current_healthy.unwrap_or(0) >= desired,
    };
    Some((reader.key(&budget.metadata)?, view))
}

/// A StorageClass's view.
pub(in crate::kubernetes) fn storage_class(
    reader: &mut ObjectReader<'_>,
    class: &wire::WireStorageClass,
) -> Option<(Arc<str>, StorageClass)> {
    let meta = &class.metadata;
    let is_default = |key: &str| {
        let annotations = meta.annotations.as_ref();
        annotations
            .and_then(|all| all.get(key))
            .is_some_and(|value| value == "true")
    };
    let topologies = class
        .allowed_topologies
        .iter()
        .flatten()
        .map(|topology| NodeTerm {
            expressions: topology
                .match_label_expressions
                .iter()
                .flatten()
                .map(|label| Requirement {
                    key: reader.text(label.key.as_deref()),
                    operator: Operator::In,
                    values: reader.texts(label.values.as_deref()),
                })
                .collect(),
            fields: Vec::new(),
        })
        .collect();
    let view = StorageClass {
        provisioner: reader.text(class.provisioner.as_deref()),
        wait_for_consumer: class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
        topologies,
        default: is_default("storageclass.kubernetes.io/is-default-class")
            || is_default("storageclass.beta.kubernetes.io/is-default-class"),
        created: reader.created(meta),
    };
    Some((reader.name(meta)?, view))
}

/// A CSIDriver's view: whether it publishes what it has free.
pub(in crate::kubernetes) fn csi_driver(
    reader: &mut ObjectReader<'_>,
    driver: &wire::CsiDriver,
) -> Option<(Arc<str>, bool)> {
    let publishes = driver.spec.storage_capacity == Some(true);
    Some((reader.name(&driver.metadata)?, publishes))
}

/// CSI driver to the volumes a node can attach; `None` for no limit.
type AttachLimits = BTreeMap<Arc<str>, Option<i32>>;

/// A CSINode's view: driver to the volumes it can attach, `None` for no limit.
pub(in crate::kubernetes) fn csi_node(
    reader: &mut ObjectReader<'_>,
    node: &wire::CsiNode,
) -> Option<(Arc<str>, AttachLimits)> {
    let drivers = node
        .spec
        .drivers
        .iter()
        .flatten()
        .map(|driver| {
            let count = driver.allocatable.as_ref().and_then(|a| a.count);
            (reader.text(driver.name.as_deref()), count)
        })
        .collect();
    Some((reader.name(&node.metadata)?, drivers))
}

/// A VolumeAttachment's view.
pub(in crate::kubernetes) fn attachment(
    reader: &mut ObjectReader<'_>,
    attachment: &wire::WireAttachment,
) -> Option<(Arc<str>, Attachment)> {
    let spec = &attachment.spec;
    let name = nonempty(attachment.metadata.name.as_deref())?;
    let view = Attachment {
        node: reader.text(spec.node_name.as_deref()),
        volume: nonempty(spec.source.persistent_volume_name.as_deref())
            .map(|volume| reader.interner.text(volume)),
        driver: reader.text(spec.attacher.as_deref()),
    };
    Some((name.into(), view))
}

/// A namespace's labels.
pub(in crate::kubernetes) fn namespace(
    reader: &mut ObjectReader<'_>,
    namespace: &wire::MetadataOnly,
) -> Option<(Arc<str>, Labels)> {
    let name = reader.name(&namespace.metadata)?;
    Some((name, reader.labels(namespace.metadata.labels.as_ref())))
}
