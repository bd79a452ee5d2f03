//! Tasks that run beside the loop as long as the daemon does, each with its own pace: sweeping ISOs away, approving serving
//! certificates, looking for the API server's addresses.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::controller::daemon::{DaemonParts, named};
use crate::controller::journal::Journal;
use crate::controller::{api_addresses, isos, serving};
use crate::kubernetes::ClusterStore;
use crate::kubernetes::lease::Holder;
use crate::model::region::RegionName;

/// Begins all of them.
pub(super) fn begin(
    parts: &DaemonParts,
    (clients, journal, store): (
        &BTreeMap<RegionName, crate::pve::Client>,
        &Journal,
        &ClusterStore,
    ),
    (holder, cluster): (watch::Receiver<Holder>, watch::Receiver<Option<Arc<str>>>),
    tasks: &mut JoinSet<String>,
) {
    sweep_isos(parts, (clients, journal), (holder.clone(), cluster), tasks);
    approve_certificates(parts, clients, holder, tasks);
    let addresses = api_addresses::keep(parts.kube.clone(), store.clone(), &parts.settings);
    tasks.spawn(named("the look for the API server's addresses", addresses));
}

/// Begins to sweep ISOs away that no machine needs.
fn sweep_isos(
    parts: &DaemonParts,
    (clients, journal): (&BTreeMap<RegionName, crate::pve::Client>, &Journal),
    (holder, cluster): (watch::Receiver<Holder>, watch::Receiver<Option<Arc<str>>>),
    tasks: &mut JoinSet<String>,
) {
    let sweeper = isos::Sweeper {
        settings: parts.settings.clone(),
        clients: clients.clone(),
        journal: journal.clone(),
        holder,
        cluster,
    };
    tasks.spawn(named("the sweeper of ISOs", sweeper.run()));
}

/// Begins to approve serving certificates, if the file asks for it.
fn approve_certificates(
    parts: &DaemonParts,
    clients: &BTreeMap<RegionName, crate::pve::Client>,
    holder: watch::Receiver<Holder>,
    tasks: &mut JoinSet<String>,
) {
    if !parts.settings.kubernetes.serving_certificates {
        return;
    }
    let (events, sending) = crate::kubernetes::recorder(parts.kube.clone(), parts.identity.clone());
    let approver = serving::Approver {
        settings: parts.settings.clone(),
        kube: parts.kube.clone(),
        clients: clients.clone(),
        holder,
        turns: parts.turns.subscribe(),
        events,
    };
    let both = async move {
        futures::future::join(sending, approver.run()).await;
    };
    tasks.spawn(named("the approver of serving certificates", both));
}
