//! kube-scheduler's filters, written apart from the brain and from its checker, straight from what the Kubernetes
//! documentation says of each field: slow and obvious.
//!
//! They are the second opinion on the brain's placements in its tests, and the filters of the simulator's scheduler. Both say
//! what there is in plain data; no method of that data which decides something is used here. Preferences are no
//! filters and are not here.

mod inter_pod;
mod node;
mod volumes;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::cluster::{Cluster, ObjectKey};
use model::resources::Resources;
use model::scheduling::{Labels, PodShape, SpreadConstraint, Taint};

use inter_pod::PodTerms;
pub use node::{avoided, bears, chosen, meets_one, room, selects, tolerates, unbearable, welcome};
use volumes::PodVolumes;
pub use volumes::{VolumeOnNode, ZONES, attached};

/// What stands behind a node, in the order in which kube-scheduler can fill them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Site {
    /// A node.
    #[default]
    Node,
    /// A machine on its way.
    Coming,
    /// A machine that is to be made.
    Planned,
}

/// A pod that stands somewhere, or asks where it may stand.
#[derive(Clone, Debug)]
pub struct PodInfo {
    /// Namespace and name.
    pub key: ObjectKey,
    /// `metadata.uid`; empty for a pod that is to be made.
    pub uid: Arc<str>,
    /// The pod's requests and constraints.
    pub shape: Arc<PodShape>,
    /// It is being deleted.
    pub deleting: bool,
    /// It is bound to a node.
    pub bound: bool,
}

/// A node as the filters see it.
#[derive(Clone, Debug, Default)]
pub struct NodeInfo {
    /// The node's name.
    pub name: Arc<str>,
    /// What stands behind it.
    pub site: Site,
    /// The node's labels.
    pub labels: Labels,
    /// The node's taints.
    pub taints: Vec<Taint>,
    /// No pod shall come (`spec.unschedulable`).
    pub cordoned: bool,
    /// What pods may ask for in all (`status.allocatable`).
    pub offers: Resources,
    /// How many volumes it can attach, by CSI driver.
    pub limits: BTreeMap<Arc<str>, i32>,
    /// Volumes that are attached to it, whether a pod uses them or not.
    pub attached: BTreeSet<VolumeOnNode>,
    /// The pods on it, and those for which it is kept.
    pub pods: Vec<PodInfo>,
    /// Pods that were preempted here: their volumes are not detached at once.
    pub preempted: Vec<PodInfo>,
    /// A planned node that nobody was laid on yet: it is no domain.
    pub empty: bool,
}

/// The world in which a pod looks for a node.
#[derive(Clone, Debug)]
pub struct NodeInfos<'a> {
    /// The nodes.
    pub nodes: Vec<NodeInfo>,
    /// Namespaces and all that has to do with volumes; its pods and nodes are not looked at.
    pub cluster: &'a Cluster,
    /// What kube-scheduler's configuration asks of replicated pods that name no spread constraint.
    pub default_spread: &'a [SpreadConstraint],
    /// Claims of ephemeral volumes that are not there are taken for made: kube-scheduler waits for them, and who plans
    /// does not.
    pub claims_come: bool,
    /// Claims that waited, and the volumes they got.
    pub gone: Vec<(ObjectKey, Arc<str>)>,
}

/// Why a pod may not come to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct No {
    /// In kube-scheduler's words.
    pub said: Vec<Cow<'static, str>>,
    /// Evicting others could change it, kube-scheduler thinks.
    pub preemptible: bool,
    /// Who or what is in the way, where kube-scheduler does not say it.
    pub about: String,
}

impl No {
    fn firm(said: impl Into<Cow<'static, str>>, about: &(impl ToString + ?Sized)) -> No {
        No {
            said: vec![said.into()],
            preemptible: false,
            about: about.to_string(),
        }
    }

    fn soft(said: &'static str, about: &(impl ToString + ?Sized)) -> No {
        No {
            preemptible: true,
            ..No::firm(said, about)
        }
    }
}

/// A pod that asks where it may stand: what is the same on all nodes has been looked up.
#[derive(Debug)]
pub struct Question<'w> {
    world: &'w NodeInfos<'w>,
    pod: &'w PodInfo,
    /// The nodes that it names, where it names some.
    named: Option<BTreeSet<&'w Arc<str>>>,
    volumes: Result<PodVolumes<'w>, No>,
    pod_terms: PodTerms<'w>,
}

impl NodeInfos<'_> {
    /// Asks for a pod.
    pub fn ask<'w>(&'w self, pod: &'w PodInfo) -> Question<'w> {
        Question {
            world: self,
            pod,
            named: node::named(&pod.shape),
            volumes: PodVolumes::of(self, pod),
            pod_terms: PodTerms::of(self, pod),
        }
    }

    /// The volumes that claims of a pod which wait get on a node; for the others one is made there.
    pub fn found(&self, pod: &PodInfo, spot: &NodeInfo) -> Result<Vec<(ObjectKey, Arc<str>)>, No> {
        PodVolumes::of(self, pod)?.bind(spot)
    }
}

impl Question<'_> {
    /// Why the pod may run nowhere, whatever the node; kube-scheduler says it instead of each node's reason.
    pub fn fits_somewhere(&self) -> Result<(), No> {
        if self.named.as_ref().is_some_and(BTreeSet::is_empty) {
            return Err(No::firm("pod affinity terms conflict", ""));
        }
        self.volumes.as_ref().map(drop).map_err(No::clone)
    }

    /// Why the pod may not come to a node, by the first of kube-scheduler's filters that says so.
    pub fn fits(&self, at: usize) -> Result<(), No> {
        self.fits_somewhere()?;
        let (pod, spot) = (self.pod, &self.world.nodes[at]);
        if let Some(named) = &self.named
            && !named.contains(&spot.name)
        {
            return Err(No::firm(
                "node(s) didn't satisfy plugin(s) [NodeAffinity]",
                "",
            ));
        }
        node::welcome(&pod.shape, spot)?;
        node::room(&pod.shape, spot)?;
        self.volumes.as_ref().map_err(No::clone)?.fit(spot)?;
        self.pod_terms.spread(at)?;
        self.pod_terms.affinity(at)
    }
}
