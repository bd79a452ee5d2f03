//! The kinds of objects that are watched, and how one of each gets into and out of the view.
//!
//! PriorityClasses and RuntimeClasses are watched although pods carry what they give: DaemonSet
//! templates have not seen admission, and their pods count on every new node.

use serde_json::value::RawValue;

use super::list::{ListItem, object, too_large};
use super::pods::read_pod;
use super::store::ClusterState;
use super::translate::{self, ObjectReader};
use super::wire;
use crate::model::cluster::{ObjectKey, Pod};

/// A watched kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchedKind {
    /// Pods that have not ended.
    Pods,
    /// Nodes.
    Nodes,
    /// DaemonSets.
    DaemonSets,
    /// PodDisruptionBudgets.
    Budgets,
    /// PersistentVolumeClaims.
    Claims,
    /// PersistentVolumes.
    Volumes,
    /// StorageClasses.
    StorageClasses,
    /// CSIDrivers.
    CsiDrivers,
    /// CSIStorageCapacities.
    Capacities,
    /// CSINodes.
    CsiNodes,
    /// VolumeAttachments.
    Attachments,
    /// Namespaces.
    Namespaces,
    /// PriorityClasses.
    PriorityClasses,
    /// RuntimeClasses.
    RuntimeClasses,
}

impl WatchedKind {
    /// All of them, in the order in which they are first listed.
    pub const ALL: [WatchedKind; 14] = [
        WatchedKind::Nodes,
        WatchedKind::Namespaces,
        WatchedKind::PriorityClasses,
        WatchedKind::RuntimeClasses,
        WatchedKind::DaemonSets,
        WatchedKind::Budgets,
        WatchedKind::StorageClasses,
        WatchedKind::Claims,
        WatchedKind::Volumes,
        WatchedKind::CsiDrivers,
        WatchedKind::Capacities,
        WatchedKind::CsiNodes,
        WatchedKind::Attachments,
        WatchedKind::Pods,
    ];

    /// The plural resource: `pods`.
    pub fn resource(self) -> &'static str {
        self.names().0
    }

    /// The source's name in a snapshot: `kube/pods`.
    pub fn source(self) -> &'static str {
        self.names().1
    }

    /// The path of its list over all namespaces.
    pub(super) fn path(self) -> &'static str {
        self.names().2
    }

    fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            WatchedKind::Pods => ("pods", "kube/pods", "/api/v1/pods"),
            WatchedKind::Nodes => ("nodes", "kube/nodes", "/api/v1/nodes"),
            WatchedKind::DaemonSets => {
                ("daemonsets", "kube/daemonsets", "/apis/apps/v1/daemonsets")
            }
            WatchedKind::Budgets => (
                "poddisruptionbudgets",
                "kube/poddisruptionbudgets",
                "/apis/policy/v1/poddisruptionbudgets",
            ),
            WatchedKind::Claims => (
                "persistentvolumeclaims",
                "kube/persistentvolumeclaims",
                "/api/v1/persistentvolumeclaims",
            ),
            WatchedKind::Volumes => (
                "persistentvolumes",
                "kube/persistentvolumes",
                "/api/v1/persistentvolumes",
            ),
            WatchedKind::StorageClasses => (
                "storageclasses",
                "kube/storageclasses",
                "/apis/storage.k8s.io/v1/storageclasses",
            ),
            WatchedKind::CsiDrivers => (
                "csidrivers",
                "kube/csidrivers",
                "/apis/storage.k8s.io/v1/csidrivers",
            ),
            WatchedKind::Capacities => (
                "csistoragecapacities",
                "kube/csistoragecapacities",
                "/apis/storage.k8s.io/v1/csistoragecapacities",
            ),
            WatchedKind::CsiNodes => (
                "csinodes",
                "kube/csinodes",
                "/apis/storage.k8s.io/v1/csinodes",
            ),
            WatchedKind::Attachments => (
                "volumeattachments",
                "kube/volumeattachments",
                "/apis/storage.k8s.io/v1/volumeattachments",
            ),
            WatchedKind::Namespaces => ("namespaces", "kube/namespaces", "/api/v1/namespaces"),
            WatchedKind::PriorityClasses => (
                "priorityclasses",
                "kube/priorityclasses",
                "/apis/scheduling.k8s.io/v1/priorityclasses",
            ),
            WatchedKind::RuntimeClasses => (
                "runtimeclasses",
                "kube/runtimeclasses",
                "/apis/node.k8s.io/v1/runtimeclasses",
            ),
        }
    }

    /// Ended pods hold nothing and are not even sent; a pod that ends comes as deleted.
    pub(super) fn field_selector(self) -> &'static str {
        match self {
            WatchedKind::Pods => "status.phase!=Succeeded,status.phase!=Failed",
            _ => "",
        }
    }
}

/// What an object changed in the view: the further down, the more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ViewChange {
    /// Nothing.
    #[default]
    None,
    /// Only whether a bound pod runs and is ready: no decision waits for that.
    Quiet,
    /// Something.
    Plain,
    /// A pod became unschedulable.
    Unschedulable,
}

impl From<bool> for ViewChange {
    fn from(changed: bool) -> ViewChange {
        if changed {
            ViewChange::Plain
        } else {
            ViewChange::None
        }
    }
}

/// What became of one object.
#[derive(Debug, Default)]
pub(super) struct Applied {
    /// The object's key; cluster-wide objects have an empty namespace. `None` when the object has no name.
    pub(super) key: Option<ObjectKey>,
    /// What the object changed in the view.
    pub(super) changed: ViewChange,
    /// What could not be understood, and was taken for the worst.
    pub(super) problems: Vec<String>,
    /// It could not be read at all, and nothing cautious can stand in for it.
    pub(super) unreadable: Option<String>,
}

/// What the view of a pod changes in the place of an older one.
fn change(old: Option<&Pod>, new: &Pod) -> ViewChange {
    let waited = old.is_some_and(|old| old.unschedulable_since.is_some());
    if new.unschedulable_since.is_some() && !waited {
        return ViewChange::Unschedulable;
    }
    let Some(old) = old else {
        return ViewChange::Plain;
    };
    if old == new {
        return ViewChange::None;
    }
    let quiet = Pod {
        phase: old.phase,
        started: old.started,
        ready: old.ready,
        ..new.clone()
    };
    if new.node.is_some() && quiet == *old {
        ViewChange::Quiet
    } else {
        ViewChange::Plain
    }
}

/// Puts a view into a map; tells whether that changed anything.
fn put<K: Ord, V: PartialEq>(map: &mut std::collections::BTreeMap<K, V>, key: K, value: V) -> bool {
    match map.get(&key) {
        Some(old) if *old == value => false,
        _ => {
            map.insert(key, value);
            true
        }
    }
}

/// Translates a named, cluster-wide object and puts it into `$map`.
macro_rules! named {
    ($state:ident, $raw:ident, $wire:ty, $translate:path, $map:expr) => {{
        let mut applied = Applied::default();
        match object::<$wire>($raw) {
            Ok(read) => {
                let mut reader = ObjectReader::new(&mut $state.interner);
                if let Some((name, view)) = $translate(&mut reader, &read) {
                    applied.problems = reader.problems;
                    applied.key = Some(ObjectKey::new("", name.clone()));
                    applied.changed = put(&mut $map, name, view).into();
                }
            }
            Err(error) => applied.damaged(error),
        }
        applied
    }};
}

/// Translates a namespaced object and puts it into `$map`.
macro_rules! keyed {
    ($state:ident, $raw:ident, $wire:ty, $translate:path, $map:expr) => {{
        let mut applied = Applied::default();
        match object::<$wire>($raw) {
            Ok(read) => {
                let mut reader = ObjectReader::new(&mut $state.interner);
                if let Some((key, view)) = $translate(&mut reader, &read) {
                    applied.problems = reader.problems;
                    applied.key = Some(key.clone());
                    applied.changed = put(&mut $map, key, view).into();
                }
            }
            Err(error) => applied.damaged(error),
        }
        applied
    }};
}

impl Applied {
    fn damaged(&mut self, error: super::list::UnreadableObject) {
        let name = error.meta.name.unwrap_or_default();
        self.key = Some(ObjectKey::new(
            error.meta.namespace.unwrap_or_default(),
            name,
        ));
        self.unreadable = Some(error.message.into());
    }
}

impl ClusterState {
    /// Puts one object into the view.
    pub(super) fn put_object(&mut self, kind: WatchedKind, raw: &RawValue) -> Applied {
        match kind {
            WatchedKind::Pods => self.put_pod(raw),
            WatchedKind::Nodes => self.put_node(raw),
            WatchedKind::DaemonSets => self.put_daemon_set(raw),
            WatchedKind::Budgets => {
                keyed!(
                    self,
                    raw,
                    wire::Budget,
                    translate::budget,
                    self.cluster.budgets
                )
            }
            WatchedKind::Claims
            | WatchedKind::Volumes
            | WatchedKind::StorageClasses
            | WatchedKind::CsiDrivers
            | WatchedKind::Capacities
            | WatchedKind::CsiNodes
            | WatchedKind::Attachments => self.put_storage(kind, raw),
            WatchedKind::Namespaces => named!(
                self,
                raw,
                wire::MetadataOnly,
                translate::namespace,
                self.cluster.namespaces
            ),
            WatchedKind::PriorityClasses | WatchedKind::RuntimeClasses => self.put_class(kind, raw),
        }
    }

    /// Notes an object that is larger than what is read: the view keeps what it shows of it, if anything.
    pub(super) fn pass_over(kind: WatchedKind, metadata: &RawValue) -> Applied {
        let mut applied = Applied::default();
        let mut unreadable = too_large(metadata);
        if kind == WatchedKind::Pods {
            unreadable.message = format!(
                "{}; it gets no machine, and the room that it takes on a node is not counted",
                unreadable.message
            )
            .into();
        }
        applied.damaged(unreadable);
        applied
    }

    /// An object of storage; attachments are the last kind of these.
    fn put_storage(&mut self, kind: WatchedKind, raw: &RawValue) -> Applied {
        match kind {
            WatchedKind::Claims => keyed!(
                self,
                raw,
                wire::WireClaim,
                translate::claim,
                self.cluster.claims
            ),
            WatchedKind::Volumes => named!(
                self,
                raw,
                wire::WirePersistentVolume,
                translate::persistent_volume,
                self.cluster.volumes
            ),
            WatchedKind::StorageClasses => named!(
                self,
                raw,
                wire::WireStorageClass,
                translate::storage_class,
                self.cluster.storage_classes
            ),
            WatchedKind::CsiDrivers => named!(
                self,
                raw,
                wire::CsiDriver,
                translate::csi_driver,
                self.cluster.csi_drivers
            ),
            WatchedKind::Capacities => keyed!(
                self,
                raw,
                wire::WireStorageCapacity,
                translate::storage_capacity,
                self.cluster.capacities
            ),
            WatchedKind::CsiNodes => named!(
                self,
                raw,
                wire::CsiNode,
                translate::csi_node,
                self.cluster.csi_nodes
            ),
            _ => named!(
                self,
                raw,
                wire::WireAttachment,
                translate::attachment,
                self.cluster.attachments
            ),
        }
    }

    /// A class that pod templates name: when it changes, they mean something else.
    fn put_class(&mut self, kind: WatchedKind, raw: &RawValue) -> Applied {
        let mut applied = if kind == WatchedKind::PriorityClasses {
            named!(
                self,
                raw,
                wire::WirePriorityClass,
                translate::priority_class,
                self.priorities
            )
        } else {
            named!(
                self,
                raw,
                wire::WireRuntimeClass,
                translate::runtime_class,
                self.runtimes
            )
        };
        let changed = applied.changed != ViewChange::None && self.retranslate_daemon_sets();
        applied.changed = changed.into();
        applied
    }

    fn put_node(&mut self, raw: &RawValue) -> Applied {
        let mut applied = Applied::default();
        match object::<wire::WireNode>(raw) {
            Ok(read) => {
                let mut reader = ObjectReader::new(&mut self.interner);
                if let Some((name, mut node)) = translate::node(&mut reader, &read) {
                    self.early.tame_node(&mut node);
                    applied.problems = reader.problems;
                    applied.key = Some(ObjectKey::new("", name.clone()));
                    applied.changed = put(&mut self.cluster.nodes, name, node).into();
                }
            }
            Err(error) => applied.damaged(error),
        }
        applied
    }

    fn put_pod(&mut self, raw: &RawValue) -> Applied {
        let (view, problems) = read_pod(&mut self.interner, ListItem::Whole(raw), None);
        let Some((key, mut pod)) = view else {
            return Applied {
                unreadable: problems.into_iter().next(),
                ..Applied::default()
            };
        };
        let mut applied = Applied {
            key: Some(key.clone()),
            problems,
            ..Applied::default()
        };
        self.early.tame_pod(&mut pod);
        if pod.phase.terminal() {
            applied.changed = self.cluster.pods.remove(&key).is_some().into();
            return applied;
        }
        let known = self.cluster.pods.get(&key);
        if let Some(known) = known.filter(|known| known.uid == pod.uid) {
            pod.arrival = known.arrival;
        }
        applied.changed = change(known, &pod);
        if applied.changed != ViewChange::None {
            self.cluster.pods.insert(key, pod);
        }
        applied
    }

    fn put_daemon_set(&mut self, raw: &RawValue) -> Applied {
        let mut applied = Applied::default();
        match object::<wire::WireDaemonSet>(raw) {
            Ok(read) => {
                let mut reader = ObjectReader::new(&mut self.interner);
                let view =
                    translate::daemon_set(&mut reader, &read, &self.priorities, &self.runtimes);
                if let Some((key, view)) = view {
                    applied.problems = reader.problems;
                    applied.key = Some(key.clone());
                    // The DaemonSet controller makes no more pods for one that is being deleted: a new node gets none.
                    if read.metadata.deletion_timestamp.is_some() {
                        self.daemon_templates.remove(&key);
                        applied.changed = self.cluster.daemon_sets.remove(&key).is_some().into();
                        return applied;
                    }
                    self.daemon_templates.insert(key.clone(), Box::new(read));
                    applied.changed = put(&mut self.cluster.daemon_sets, key, view).into();
                }
            }
            Err(error) => applied.damaged(error),
        }
        applied
    }

    /// After a class changed; tells whether that changed a DaemonSet.
    fn retranslate_daemon_sets(&mut self) -> bool {
        let mut changed = false;
        for read in self.daemon_templates.values() {
            let mut reader = ObjectReader::new(&mut self.interner);
            let view = translate::daemon_set(&mut reader, read, &self.priorities, &self.runtimes);
            if let Some((key, view)) = view {
                changed |= put(&mut self.cluster.daemon_sets, key, view);
            }
        }
        changed
    }

    /// Takes one object out of the view; tells whether it was there.
    pub(super) fn remove_object(&mut self, kind: WatchedKind, key: &ObjectKey) -> bool {
        let cluster = &mut self.cluster;
        match kind {
            WatchedKind::Pods => cluster.pods.remove(key).is_some(),
            WatchedKind::Nodes => cluster.nodes.remove(&key.name).is_some(),
            WatchedKind::DaemonSets => {
                self.daemon_templates.remove(key);
                cluster.daemon_sets.remove(key).is_some()
            }
            WatchedKind::Budgets => cluster.budgets.remove(key).is_some(),
            WatchedKind::Claims => cluster.claims.remove(key).is_some(),
            WatchedKind::Volumes => cluster.volumes.remove(&key.name).is_some(),
            WatchedKind::StorageClasses => cluster.storage_classes.remove(&key.name).is_some(),
            WatchedKind::CsiDrivers => cluster.csi_drivers.remove(&key.name).is_some(),
            WatchedKind::Capacities => cluster.capacities.remove(key).is_some(),
            WatchedKind::CsiNodes => cluster.csi_nodes.remove(&key.name).is_some(),
            WatchedKind::Attachments => cluster.attachments.remove(&key.name).is_some(),
            WatchedKind::Namespaces => cluster.namespaces.remove(&key.name).is_some(),
            WatchedKind::PriorityClasses => {
                self.priorities.remove(&key.name).is_some() && self.retranslate_daemon_sets()
            }
            WatchedKind::RuntimeClasses => {
                self.runtimes.remove(&key.name).is_some() && self.retranslate_daemon_sets()
            }
        }
    }

    /// The keys of all objects of a kind that are in the view.
    pub(super) fn keys(&self, kind: WatchedKind) -> Vec<ObjectKey> {
        fn named<V>(map: &std::collections::BTreeMap<std::sync::Arc<str>, V>) -> Vec<ObjectKey> {
            map.keys()
                .map(|name| ObjectKey::new("", name.clone()))
                .collect()
        }
        let cluster = &self.cluster;
        match kind {
            WatchedKind::Pods => cluster.pods.keys().cloned().collect(),
            WatchedKind::Nodes => named(&cluster.nodes),
            WatchedKind::DaemonSets => cluster.daemon_sets.keys().cloned().collect(),
            WatchedKind::Budgets => cluster.budgets.keys().cloned().collect(),
            WatchedKind::Claims => cluster.claims.keys().cloned().collect(),
            WatchedKind::Volumes => named(&cluster.volumes),
            WatchedKind::StorageClasses => named(&cluster.storage_classes),
            WatchedKind::CsiDrivers => named(&cluster.csi_drivers),
            WatchedKind::Capacities => cluster.capacities.keys().cloned().collect(),
            WatchedKind::CsiNodes => named(&cluster.csi_nodes),
            WatchedKind::Attachments => named(&cluster.attachments),
            WatchedKind::Namespaces => named(&cluster.namespaces),
            WatchedKind::PriorityClasses => named(&self.priorities),
            WatchedKind::RuntimeClasses => named(&self.runtimes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::cluster::Phase;
    use crate::model::time::Time;

    fn pod(json: serde_json::Value) -> Pod {
        serde_json::from_value(json).expect("a pod")
    }

    #[test]
    fn whether_a_bound_pod_runs_is_a_quiet_change() {
        let bound = pod(serde_json::json!({
            "uid": "u", "shape": {}, "node": "n", "created": "2026-01-01T00:00:00Z",
        }));
        let runs = Pod {
            phase: Phase::Running,
            started: Some(Time(1)),
            ready: true,
            ..bound.clone()
        };
        assert_eq!(change(Some(&bound), &bound), ViewChange::None);
        assert_eq!(change(Some(&bound), &runs), ViewChange::Quiet);
        assert_eq!(change(None, &runs), ViewChange::Plain);
        let leaving = Pod {
            deletion: Some(Time(2)),
            ..runs.clone()
        };
        assert_eq!(change(Some(&bound), &leaving), ViewChange::Plain);
        let waits = Pod {
            node: None,
            unschedulable_since: Some(Time(1)),
            ..bound.clone()
        };
        assert_eq!(change(None, &waits), ViewChange::Unschedulable);
        assert_eq!(change(Some(&waits), &bound), ViewChange::Plain);
        let ready = Pod {
            ready: true,
            ..waits.clone()
        };
        assert_eq!(change(Some(&waits), &ready), ViewChange::Plain);
    }
}
