//! Puts the snapshot together: Kubernetes, the regions, the journal, and how old each of them is.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::config::settings::Settings;
use crate::controller::clock_steps;
use crate::controller::drift;
use crate::controller::evacuations::{self, Evacuations};
use crate::controller::in_place;
use crate::controller::journal::JournalEntry;
use crate::controller::machines::{self, Observed};
use crate::controller::region::RegionView;
use crate::model::cluster::Cluster;
use crate::model::foreign::ForeignText;
use crate::model::on_wire::AddressHolder;
use crate::model::region::{Busy, RegionName};
use crate::model::snapshot::{Lease, Snapshot, SourceState, VERSION};
use crate::model::time::Time;

/// Everything a snapshot is made of.
#[derive(Debug)]
pub struct Sources<'a> {
    /// Now.
    pub now: Time,
    /// `kube-system`'s UID and the configured name.
    pub cluster_id: Option<Arc<str>>,
    /// Kubernetes.
    pub cluster: Cluster,
    /// How far each watch can be trusted.
    pub watches: BTreeMap<Arc<str>, SourceState>,
    /// The regions.
    pub regions: BTreeMap<RegionName, RegionView>,
    /// What the file says now.
    pub settings: &'a Settings,
    /// The journal.
    pub journal: &'a BTreeMap<Arc<str>, JournalEntry>,
    /// What the executor is doing.
    pub busy: &'a BTreeMap<Arc<str>, Busy>,
    /// We hold the lease.
    pub leader: bool,
    /// Who holds it, and what hinders its election.
    pub lease: Lease,
    /// Why the cluster's id cannot be read.
    pub cluster_id_error: Option<ForeignText>,
    /// The pause, if one holds.
    pub paused: Option<String>,
    /// The hosts that a person evacuates.
    pub evacuations: Evacuations,
    /// Since when we lead.
    pub awake: Option<Time>,
    /// Who has addresses on the wire.
    pub on_wire: BTreeMap<IpAddr, AddressHolder>,
    /// The API server refuses nominations.
    pub nominations_refused: bool,
}

/// A region's view with its age counted back from `now`, whatever the clock showed when it was read.
pub(super) fn seen(view: &RegionView, now: Time) -> RegionView {
    let mut view = view.clone();
    if let Some(begun) = view.begun {
        view.source.as_of = now - clock_steps::ceil(begun.elapsed());
    }
    view
}

/// The snapshot.
pub fn snapshot(sources: Sources<'_>) -> Snapshot {
    let mut observed: BTreeMap<RegionName, Observed> = sources
        .regions
        .iter()
        .map(|(name, view)| (name.clone(), (*view.observed).clone()))
        .collect();
    for (name, hosts) in &sources.evacuations {
        if let Some(observed) = observed.get_mut(name) {
            evacuations::mark(&mut observed.region, hosts);
        }
    }
    // Without a cluster id no mark can be ours, and the brain holds everything anyway.
    let id = sources.cluster_id.clone().unwrap_or_default();
    let id = &*id;
    let mut machines = machines::machines(
        id,
        &observed,
        &sources.cluster,
        sources.journal,
        sources.busy,
    );
    in_place::compare(&mut machines, &observed, sources.journal, sources.settings);
    drift::mark(&mut machines, &observed, sources.journal, sources.settings);
    let mut states = sources.watches;
    for (name, view) in sources.regions {
        states.insert(Arc::from(format!("pve/{name}")), view.source);
    }
    Snapshot {
        version: VERSION,
        taken: sources.now,
        cluster_id: sources.cluster_id,
        sources: states,
        cluster: sources.cluster,
        regions: observed
            .into_iter()
            .map(|(name, observed)| (name, observed.region))
            .collect(),
        machines,
        leader: sources.leader,
        lease: sources.lease,
        cluster_id_error: sources.cluster_id_error,
        paused: sources.paused,
        awake: sources.awake,
        former: machines::former(id, sources.journal),
        on_wire: sources.on_wire,
        nominations_refused: sources.nominations_refused,
    }
}
