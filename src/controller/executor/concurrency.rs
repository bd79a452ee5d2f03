//! How many actions may ask PVE for the same thing at once: full clones by storage, agents by host.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::Settings;
use crate::controller::disk_storages::chosen_of;
use crate::controller::journal::JournalEntry;
use crate::model::region::{Region, RegionName};
use crate::model::shared::Shared;

use super::tools::Tools;
use super::work::Work;

/// Semaphores by what they bound; each is made when it is first asked for.
#[derive(Clone, Debug, Default)]
pub struct ConcurrencyLimits(Arc<Mutex<BTreeMap<String, Arc<Semaphore>>>>);

impl ConcurrencyLimits {
    pub(super) fn of(&self, key: String, limit: usize) -> Arc<Semaphore> {
        let mut limits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        limits
            .entry(key)
            .or_insert_with(|| Arc::new(Semaphore::new(limit)))
            .clone()
    }
}

/// How many clones may run at once, by the storage that the copy goes to.
#[derive(Clone, Debug, Default)]
pub struct CloneLimits {
    limits: ConcurrencyLimits,
    /// The regions as they were seen last.
    regions: Arc<Mutex<BTreeMap<RegionName, Shared<Region>>>>,
}

impl CloneLimits {
    /// Takes the storages and templates from the newest view.
    pub(super) fn saw(&self, regions: &BTreeMap<RegionName, Shared<Region>>) {
        let mut seen = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone_from(regions);
    }

    /// Waits until a clone may begin: PVE's per-storage lock times out after about ten seconds, so more than a few full clones
    /// at once fail.
    pub(super) async fn acquire(
        &self,
        settings: &Settings,
        entry: &JournalEntry,
    ) -> Option<OwnedSemaphorePermit> {
        let region = settings.regions.get(&entry.target.region)?;
        let limit = usize::try_from(region.max_clones_per_storage.max(1)).unwrap_or(1);
        let place = self.place(settings, entry);
        // The semaphore is never closed.
        self.limits.of(place, limit).acquire_owned().await.ok()
    }

    /// Where the copy goes: the configured storage, else the template's own. A storage that each host has for itself is
    /// another one on each.
    fn place(&self, settings: &Settings, entry: &JournalEntry) -> String {
        let (name, spec) = (&entry.target.region, &entry.spec);
        let template = settings.templates.get(spec.mark.template.as_str());
        let full = template.filter(|template| template.full_clone);
        let named = full.and_then(|full| full.storage.as_ref());
        let named = named.map(|names| chosen_of(names, spec.storages.own.as_deref()));
        let regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        let region = regions.get(name);
        let own = || {
            let copies = region?.templates.get(spec.mark.template.as_str())?;
            let copy = copies.iter().find(|copy| copy.vmid == spec.template_vmid)?;
            let boot = copy.disks.iter().find(|disk| disk.boot);
            boot.or(copy.disks.first()).map(|disk| &*disk.storage)
        };
        let Some(storage) = named.or_else(own) else {
            return format!("{name}/template {}", spec.template_vmid);
        };
        let host = &spec.template_host;
        let there = region.and_then(|region| region.storages.get(host)?.get(storage));
        if there.is_some_and(|there| !there.shared) {
            return format!("{name}/{storage} of {host}");
        }
        format!("{name}/{storage}")
    }
}

/// While it lives, one action does not poll, and the others may poll the more often.
#[derive(Debug)]
pub(super) struct PollingPause<'a>(&'a Tools);

impl Drop for PollingPause<'_> {
    fn drop(&mut self) {
        self.0.active_tasks.fetch_add(1, Ordering::Relaxed);
    }
}

impl Work {
    /// Does not count among the actions that poll until the result is dropped.
    pub(super) fn pause_polling(&self) -> PollingPause<'_> {
        self.tools.active_tasks.fetch_sub(1, Ordering::Relaxed);
        PollingPause(&self.tools)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::action::{CreateSpec, Target};
    use crate::model::mark::Mark;
    use crate::model::region::{Storage, TemplateCopy, TemplateDisk};
    use crate::model::time::Time;

    fn entry_of_clone(host: &str, template: u32) -> JournalEntry {
        let mark = Mark {
            cluster: "uid/home".into(),
            machine: "small-bcdfg".into(),
            vmid: 9100,
            pool: "small".into(),
            instance_type: "small".into(),
            template: "debian".into(),
            token: "abcdef".into(),
            created: Time(0),
            addresses: BTreeMap::new(),
            cpus: crate::model::cpus::CpuSet::new(),
            unknown: [].into(),
        };
        let target = Target {
            region: "default".into(),
            host: host.into(),
            vmid: 9100,
            machine: "small-bcdfg".into(),
            node: None,
        };
        let spec = CreateSpec {
            mark,
            template_vmid: template,
            template_host: host.into(),
            template_uuid: None,
            storages: crate::model::chosen_storages::ChosenStorages::default(),
            terms: None,
        };
        JournalEntry::new(target, spec, Time(0))
    }

    fn region(shared: bool) -> BTreeMap<RegionName, Shared<Region>> {
        let mut region = Region::default();
        for host in ["pve1", "pve2"] {
            let storage = Storage {
                active: true,
                shared,
                ..Storage::default()
            };
            let storages = BTreeMap::from([("tank".into(), storage)]);
            region.storages.insert(host.into(), storages);
        }
        let copy = |vmid: u32, host: &str| TemplateCopy {
            fault: None,
            shared_addresses: BTreeMap::new(),
            bridges: std::collections::BTreeSet::new(),
            uuid: None,
            redefined: false,
            vmid,
            host: host.into(),
            shared,
            tied: None,
            disk: 0,
            disks: vec![TemplateDisk {
                or: Vec::new(),
                slot: None,
                storage: "tank".into(),
                size: 0,
                boot: true,
            }],
        };
        let copies = vec![copy(9000, "pve1"), copy(9001, "pve2")];
        region.templates.insert("debian".into(), copies);
        BTreeMap::from([("default".into(), region.into())])
    }

    #[test]
    fn a_storage_of_each_host_has_its_turns_on_each() {
        let settings = |clone: &str| {
            let text = format!(
                "version = 1\n[proxmox]\nvmids = \"9100-9199\"\n[template.debian]\nvm_name = \"debian\"\n{clone}\n\
                 [instance_type.small]\ncores = 2\nmemory = \"4GiB\"\n\
                 [pool.small]\ntemplate = \"debian\"\ninstance_types = [\"small\"]\nmax = 3\n"
            );
            crate::config::parse(&text, "test").unwrap_or_else(|errors| panic!("{errors}"))
        };
        let (linked, full) = (
            settings(""),
            settings("clone = \"full\"\nstorage = \"tank\""),
        );
        let one = entry_of_clone("pve1", 9000);
        let other = entry_of_clone("pve2", 9001);
        let limits = CloneLimits::default();
        for settings in [&linked, &full] {
            limits.saw(&region(false));
            assert_eq!(limits.place(settings, &one), "default/tank of pve1");
            assert_eq!(limits.place(settings, &other), "default/tank of pve2");
            limits.saw(&region(true));
            assert_eq!(limits.place(settings, &one), "default/tank");
            assert_eq!(limits.place(settings, &other), "default/tank");
        }
        // Of a template that was not seen the VMID must do.
        limits.saw(&BTreeMap::new());
        assert_eq!(limits.place(&linked, &one), "default/template 9000");
        assert_eq!(limits.place(&full, &one), "default/tank");
    }
}
