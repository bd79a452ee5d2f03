//! ISOs for cloud-init that no machine needs any more are swept away: what a crash, a PVE that did not answer or a lost journal left.
//!
//! The names say of which cluster's and region's machine they are, and only such are looked at: a storage may be shared with another PVE
//! cluster, where the same VMIDs are in use. A name that an older program wrote has the VMID alone; such an ISO goes where a VM of ours
//! has it in a drive, or the journal says that it was brought to a storage which no other host has. A machine that is being brought up keeps
//! its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::config::settings::Settings;
use crate::controller::journal::Journal;
use crate::kubernetes::lease::Holder;
use crate::model::mark::{Mark, Ownership};
use crate::model::region::{RegionName, Step};
use crate::pve::{
    CallError, Client, ClusterResources, ConfigUpdate, IsoFile, IsoOwner, VmConfig, iso_volume,
};

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
    /// The id of our cluster, once it is known.
    pub(super) cluster: watch::Receiver<Option<Arc<str>>>,
}

/// A storage of a region, as a host has it.
#[derive(Debug)]
struct IsoPlace<'a> {
    region: &'a RegionName,
    client: &'a Client,
    cluster: &'a str,
    host: &'a str,
    storage: &'a str,
    /// Other hosts have the same.
    shared: bool,
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
                let Some(cluster) = self.cluster.borrow().clone() else {
                    continue;
                };
                let swept = self.sweep((region, client), &cluster, &storages).await;
                if let Err(error) = swept {
                    tracing::warn!(%region, %error, "ISOs for cloud-init that nobody needs were not all looked for; tried again in an hour");
                }
            }
            sleep(EVERY).await;
        }
    }

    fn storages(&self, region: &RegionName) -> BTreeSet<String> {
        let templates = self.settings.templates.values();
        let here = templates.filter(|template| template.region == *region);
        let named = here.filter_map(|template| template.cloud_init.as_ref());
        let names = named.flat_map(|cloud_init| cloud_init.storage.iter());
        names.map(str::to_owned).collect()
    }

    async fn sweep(
        &self,
        (region, client): (&RegionName, &Client),
        cluster: &str,
        storages: &BTreeSet<String>,
    ) -> Result<(), CallError> {
        let resources = client.resources().await?;
        let mut first = Ok(());
        for (host, storage, shared) in places(&resources, storages) {
            let place = IsoPlace {
                region,
                client,
                cluster,
                host: &host,
                storage: &storage,
                shared,
            };
            // A host that does not answer keeps nobody from looking on the others.
            first = first.and(self.sweep_storage(&place).await);
        }
        first
    }

    /// Removes the images on one storage that nobody needs. One that cannot be removed does not keep the others; the first error is told.
    async fn sweep_storage(&self, place: &IsoPlace<'_>) -> Result<(), CallError> {
        let (region, host, client) = (place.region, place.host, place.client);
        let owner = IsoOwner::of(place.cluster, region);
        let mut first = Ok(());
        for volume in client.isos(host, place.storage).await?.into_keys() {
            let file = iso_volume(&volume).map(|(_, file)| file);
            let may_be_ours = |file: &IsoFile| file.owner.as_ref().is_none_or(|own| *own == owner);
            let Some(file) =
                file.filter(|file| may_be_ours(file) && !self.needs(region, file.vmid))
            else {
                continue;
            };
            let removed = match self.take_out(place, &volume, &file).await {
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

    /// A machine of this VMID lies in our range and is not done: it may start with its image yet, unless it has failed. Those of other
    /// ranges are others'.
    fn needs(&self, region: &RegionName, vmid: u32) -> bool {
        let range = self.settings.policy.regions.get(region);
        let ours = range.is_some_and(|range| (range.vmid_first..=range.vmid_last).contains(&vmid));
        let entries = self.journal.entries();
        let coming = entries.values().any(|entry| {
            let failed = entry.failure.as_ref().is_some_and(|it| !it.transient);
            entry.target.vmid == vmid
                && entry.target.region == *region
                && entry.step < Step::Done
                && !failed
        });
        !ours || coming
    }

    /// The journal says that an image of this VMID was brought to the storage of this host, which no other has.
    fn journal_proves(&self, place: &IsoPlace<'_>, vmid: u32) -> bool {
        let entries = self.journal.entries();
        let mut own = entries.values().filter(|entry| {
            let mark = &entry.spec.mark;
            mark.vmid == vmid
                && entry.target.region == *place.region
                && *entry.target.host == *place.host
                && *mark.cluster == *place.cluster
        });
        !place.shared
            && own.any(|entry| entry.written.image_storage.as_deref() == Some(place.storage))
    }

    /// Takes the image out of the VM that may have it in; says whether it may be removed.
    async fn take_out(
        &self,
        place: &IsoPlace<'_>,
        volume: &str,
        file: &IsoFile,
    ) -> Result<bool, CallError> {
        let (client, vmid) = (place.client, file.vmid);
        let proven = file.owner.is_some() || self.journal_proves(place, vmid);
        // Read anew: the VM may have come since.
        let resources = client.resources().await?;
        let Some(guest) = resources.guests.get(&vmid) else {
            return Ok(proven);
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
            return Ok(proven);
        }
        if !is_ours(&config, vmid, place.cluster) || config.lock.is_some() {
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

/// A VM carries its own mark, of this cluster.
fn is_ours(config: &VmConfig, vmid: u32, cluster: &str) -> bool {
    let own = |mark: &Mark| mark.vmid == vmid && mark.cluster == cluster;
    matches!(config.ownership(), Ownership::Marked(mark) if own(&mark))
}

/// Where ISOs may lie, a host to ask there, and whether others have the same storage: that is asked for once.
fn places(
    resources: &ClusterResources,
    storages: &BTreeSet<String>,
) -> Vec<(Arc<str>, String, bool)> {
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
                places.push((host.clone(), name.to_string(), storage.shared));
            }
        }
    }
    places
}
