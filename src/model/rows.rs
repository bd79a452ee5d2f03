//! What a walk over all pods reads of each, side by side. The pods themselves lie far apart in memory, and
//! in a large cluster a walk over them spends its time waiting for it.

use std::sync::Arc;

use super::cluster::{ObjectKey, Pod};
use super::scheduling::PodShape;

/// Some pods in the order of their keys.
#[derive(Debug)]
pub struct Rows {
    /// Namespaces and shapes, each as often as pods begin to have them.
    kinds: Vec<WorkloadShape>,
    rows: Vec<PodSummary>,
}

/// What pods of one workload share.
#[derive(Debug)]
pub struct WorkloadShape {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// What scheduling reads.
    pub shape: Arc<PodShape>,
}

/// What is read of every pod.
#[derive(Debug)]
pub struct PodSummary {
    /// Where it is bound.
    pub node: Option<Arc<str>>,
    /// Which of [`Rows::kinds`] it is of.
    pub kind: usize,
    /// It has ended and holds nothing on its node any more.
    pub ended: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// It is a static pod's mirror.
    pub mirror: bool,
}

impl Rows {
    /// The rows of some pods in the order of their keys.
    pub(super) fn of<'p>(pods: impl Iterator<Item = (&'p ObjectKey, &'p Pod)>) -> Rows {
        let mut rows = Rows {
            kinds: Vec::new(),
            rows: Vec::with_capacity(pods.size_hint().0),
        };
        for (key, pod) in pods {
            let kind = rows.kind(key, pod);
            rows.rows.push(PodSummary {
                node: pod.node.clone(),
                kind,
                ended: pod.phase.terminal(),
                deleting: pod.deletion.is_some(),
                mirror: pod.mirror,
            });
        }
        rows
    }

    /// Pods of one workload mostly follow each other, and share their texts and their shape.
    fn kind(&mut self, key: &ObjectKey, pod: &Pod) -> usize {
        let same = |last: &WorkloadShape| {
            Arc::ptr_eq(&last.namespace, &key.namespace) && Arc::ptr_eq(&last.shape, &pod.shape)
        };
        if !self.kinds.last().is_some_and(same) {
            self.kinds.push(WorkloadShape {
                namespace: key.namespace.clone(),
                shape: pod.shape.clone(),
            });
        }
        self.kinds.len() - 1
    }

    /// Namespaces and shapes that pods here have, some of them more than once.
    pub fn kinds(&self) -> &[WorkloadShape] {
        &self.kinds
    }

    /// One for each pod.
    pub fn all(&self) -> &[PodSummary] {
        &self.rows
    }
}
