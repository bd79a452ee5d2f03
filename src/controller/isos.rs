//! ISOs for cloud-init that no machine needs any more are swept away: what a crash, a PVE that did not answer or a lost journal left.
//!
//! The names say whose they are, and only such names are looked at. A machine that is being brought up keeps its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::config::settings::Settings;
use crate::controller::journal::Journal;
use crate::kubernetes::lease::Holder;
use crate::model::mark::Ownership;
use crate::model::region::{RegionName, Step};
use crate::pve::{CallError, Client, ClusterResources, ConfigUpdate, iso_volume};

/// The first sweep comes this long after a start: by then the loop has taken up what was being done.
const FIRST: Duration = Duration::from_mins(2);
/// Between two sweeps.
const EVERY: Duration = Duration::from_hours(1);

/// What is swept, and with what.
#[derive(Debug)]
pub(super) struct Sweeper {
    pub(super) settings: Arc<Settings>,
    pub(super) clients: BTreeMap<RegionName, Client>,
    pub(super) journal: Journal,
    pub(super) holder: watch::Receiver<Holder>,
}

impl Sweeper {
    /// Sweeps now and then, while the lease is ours.
    pub(super) async fn run(self) {
        sleep(FIRST).await;
        loop {
            for (region, client) in &self.clients {
                let storages = self.storages(region);
                if storages.is_empty() || !self.holder.borrow().ours {
                    continue;
                }
                if let Err(error) = self.sweep(region, client, &storages).await {
                    tracing::warn!(%region, %error, "ISOs for cloud-init that nobody needs were not all looked for; tried again in an hour");
                }
            }
            sleep(EVERY).await;
        }
    }

    fn storages(&self, region: &RegionName) -> BTreeSet<String> {
        let templates = self.settings.templates.values();
        let here = templates.filter(|template| template.region == *region);
        here.filter_map(|template| Some(template.cloud_init.as_ref()?.storage.clone()))
            .collect()
    }

    async fn sweep(
        &self,
        region: &RegionName,
        client: &Client,
        storages: &BTreeSet<String>,
    ) -> Result<(), CallError> {
        let resources = client.resources().await?;
        let mut first = Ok(());
        for (host, storage) in places(&resources, storages) {
            // A host that does not answer keeps nobody from looking on the others.
            let swept = self.sweep_storage(region, client, &host, &storage).await;
            first = first.and(swept);
        }
        first
    }

    /// Removes the images on one storage that nobody needs. One that cannot be removed does not keep the others; the first error is told.
    async fn sweep_storage(
        &self,
        region: &RegionName,
        client: &Client,
        host: &str,
        storage: &str,
    ) -> Result<(), CallError> {
        let mut first = Ok(());
        for volume in client.isos(host, storage).await?.into_keys() {
            let vmid = iso_volume(&volume).map(|(_, vmid)| vmid);
            let Some(vmid) = vmid.filter(|vmid| !self.needs(region, *vmid)) else {
                continue;
            };
            let removed = match self.take_out(client, &volume, vmid).await {
                Ok(false) => continue,
                Ok(true) => client.remove_iso(host, &volume).await,
                Err(error) => Err(error),
            };
            if removed.is_ok() {
                tracing::info!(%region, %host, volume, "an ISO for cloud-init that no machine needs was removed");
            }
            first = first.and(removed);
        }
        first
    }

    /// A machine of this VMID lies in our range and is not done: it may start with its image yet. Those of other ranges are others'.
    fn needs(&self, region: &RegionName, vmid: u32) -> bool {
        let range = self.settings.policy.regions.get(region);
        let ours = range.is_some_and(|range| (range.vmid_first..=range.vmid_last).contains(&vmid));
        let entries = self.journal.entries();
        let coming = entries.values().any(|entry| {
            entry.target.vmid == vmid && entry.target.region == *region && entry.step < Step::Done
        });
        !ours || coming
    }

    /// Takes the image out of the VM that may have it in; says whether it may be removed.
    async fn take_out(&self, client: &Client, volume: &str, vmid: u32) -> Result<bool, CallError> {
        // Read anew: the VM may have come since.
        let resources = client.resources().await?;
        let Some(guest) = resources.guests.get(&vmid) else {
            return Ok(true);
        };
        let config = client.vm_config(&guest.host, vmid).await?;
        let holds = config
            .disks
            .iter()
            .filter(|(_, disk)| disk.volume == volume);
        let set: BTreeMap<String, String> = holds
            .map(|(key, _)| (key.to_string(), "none,media=cdrom".to_owned()))
            .collect();
        if set.is_empty() {
            return Ok(true);
        }
        if !matches!(config.ownership(), Ownership::Marked(_)) || config.lock.is_some() {
            return Ok(false);
        }
        let update = ConfigUpdate {
            set,
            delete: Vec::new(),
            digest: config.digest.clone(),
        };
        client.update_config(&guest.host, vmid, &update).await?;
        Ok(true)
    }
}

/// Where ISOs may lie, and a host to ask there: a shared storage is asked for once.
fn places(resources: &ClusterResources, storages: &BTreeSet<String>) -> Vec<(Arc<str>, String)> {
    let mut shared = BTreeSet::new();
    let mut places = Vec::new();
    for (host, of_host) in &resources.storages {
        if !resources.hosts.get(host).is_some_and(|host| host.online) {
            continue;
        }
        for (name, storage) in of_host
            .iter()
            .filter(|(name, _)| storages.contains(&***name))
        {
            if storage.active && (!storage.shared || shared.insert(name.clone())) {
                places.push((host.clone(), name.to_string()));
            }
        }
    }
    places
}
