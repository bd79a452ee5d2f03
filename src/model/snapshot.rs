//! All that a decision may know of the world, with the age of every source.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cluster::Cluster;
use super::foreign::ForeignText;
use super::on_wire::AddressHolder;
use super::region::{Machine, Region, RegionName};
use super::shared::Shared;
use super::time::Time;

/// Version of the snapshot format that this program writes.
pub const VERSION: u32 = 1;

/// One view of the world. It holds no secret and may be shown to anybody who may see the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// Format version, [`VERSION`].
    pub version: u32,
    /// When it was put together, by this host's clock.
    pub taken: Time,
    /// `kube-system`'s UID and the configured name, `uid/name`; `None` until known.
    pub cluster_id: Option<Arc<str>>,
    /// The state of every source by name: `kube/pods`, `pve/REGION`, …
    pub sources: BTreeMap<Arc<str>, SourceState>,
    /// Kubernetes.
    pub cluster: Cluster,
    /// Proxmox VE, by region.
    pub regions: BTreeMap<RegionName, Shared<Region>>,
    /// Our machines by name.
    pub machines: BTreeMap<Arc<str>, Machine>,
    /// This instance holds the lease.
    pub leader: bool,
    /// Who holds the lease, and what hinders its election.
    #[serde(default)]
    pub lease: Lease,
    /// Why the cluster's id cannot be read.
    #[serde(default)]
    pub cluster_id_error: Option<ForeignText>,
    /// A person said pause: who or why, as given.
    #[serde(default)]
    pub paused: Option<String>,
    /// Since when this start of the daemon leads without a gap. What was to be done before may have
    /// waited for it; `None` where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awake: Option<Time>,
    /// Machines in the journal that belong to another cluster, by its id. Nothing is done to them, and
    /// they count nowhere.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub former: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    /// Addresses of networks that somebody had when they were last asked for on the wire, and who. Machines get none of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub on_wire: BTreeMap<IpAddr, AddressHolder>,
    /// The API server refused the nomination of a pod for want of a right, and none has passed since: plans count on none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nominations_refused: bool,
}

impl Snapshot {
    /// Whether a machine's region was last read before the machine's present step began: a VM that was cloned since then is not in that view
    /// and not gone, and one that was started since then is not off.
    pub fn was_read_before(&self, machine: &Machine) -> bool {
        let source = self.sources.get(format!("pve/{}", machine.region).as_str());
        let step = machine.step.zip(source);
        step.is_some_and(|((_, since), read)| read.as_of < since)
    }
}

/// What is known of the lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lease {
    /// The identity that holds it; empty when nobody does, or when it was not read yet.
    pub holder: String,
    /// Why it can be neither read nor written now.
    pub error: Option<ForeignText>,
}

/// How far a source can be trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SourceState {
    /// It has been read completely at least once. A missing answer is not an empty answer.
    pub complete: bool,
    /// Until when its view is known to be right: the last list, event or bookmark.
    pub as_of: Time,
    /// What is wrong with it now.
    pub error: Option<ForeignText>,
    /// What is behind the error, in words that are the same for all sources that it hinders; `None` when
    /// the error says it.
    pub cause: Option<ForeignText>,
}

impl SourceState {
    /// Why it cannot be read now, in words that are the same for all sources that this hinders.
    pub fn reason(&self) -> Option<&str> {
        self.cause.as_deref().or(self.error.as_deref())
    }
}
