//! Kubernetes objects as manifests, read the way the watches read them: for what is written down
//! instead of watched, such as conformance cases.

use serde_json::Value;
use serde_json::value::to_raw_value;

use super::kinds::WatchedKind;
use super::list::ListItem;
use super::pods::read_pod;
use super::store::ClusterState;
use crate::model::cluster::{Cluster, ObjectKey, Pod};

/// A cluster put together from manifests.
#[derive(Debug, Default)]
pub struct Manifests {
    state: ClusterState,
}

impl Manifests {
    /// One pod; an ended one too, which the watches do not even see. Errors say what in it could not
    /// be understood and was taken for the worst.
    pub fn pod(&mut self, object: &Value) -> (Option<(ObjectKey, Pod)>, Vec<String>) {
        match to_raw_value(object) {
            Ok(raw) => read_pod(&mut self.state.interner, ListItem::Whole(&raw), None),
            Err(error) => (None, vec![error.to_string()]),
        }
    }

    /// Puts an object of any watched kind but Pod into the cluster. Errors say what could not be
    /// understood.
    pub fn put(&mut self, object: &Value) -> Result<(), String> {
        let named = object["kind"].as_str().unwrap_or_default();
        let kind = kind(named).ok_or_else(|| {
            format!(
                "no object of the kind {named:?} is read; known: {}",
                known()
            )
        })?;
        let raw = to_raw_value(object).map_err(|error| error.to_string())?;
        let applied = self.state.put_object(kind, &raw);
        match applied.unreadable.or(applied.problems.into_iter().next()) {
            Some(problem) => Err(problem),
            None if applied.key.is_none() => {
                Err(format!("the {named} has no name, or no namespace"))
            }
            None => Ok(()),
        }
    }

    /// Whether a node of this name was put.
    #[must_use]
    pub fn has_node(&self, name: &str) -> bool {
        self.state.cluster.nodes.contains_key(name)
    }

    /// What was put in.
    pub fn into_cluster(self) -> Cluster {
        self.state.cluster
    }
}

const KINDS: [(&str, WatchedKind); 13] = [
    ("Node", WatchedKind::Nodes),
    ("DaemonSet", WatchedKind::DaemonSets),
    ("PodDisruptionBudget", WatchedKind::Budgets),
    ("PersistentVolumeClaim", WatchedKind::Claims),
    ("PersistentVolume", WatchedKind::Volumes),
    ("StorageClass", WatchedKind::StorageClasses),
    ("CSIDriver", WatchedKind::CsiDrivers),
    ("CSIStorageCapacity", WatchedKind::Capacities),
    ("CSINode", WatchedKind::CsiNodes),
    ("VolumeAttachment", WatchedKind::Attachments),
    ("Namespace", WatchedKind::Namespaces),
    ("PriorityClass", WatchedKind::PriorityClasses),
    ("RuntimeClass", WatchedKind::RuntimeClasses),
];

fn kind(name: &str) -> Option<WatchedKind> {
    KINDS
        .into_iter()
        .find(|(known, _)| *known == name)
        .map(|(_, kind)| kind)
}

fn known() -> String {
    let names: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
    format!("Pod, {}", names.join(", "))
}
