//! Locks that are files on a real host: one per VM, one per storage.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use tokio::time::timeout;

use super::Pve;
use super::world::PveWorld;

/// How long PVE waits for a VM's lock.
pub(super) const VM_LOCK: Duration = Duration::from_secs(10);
/// How long a clone waits for its source's and its own.
pub(super) const CLONE_LOCK: Duration = Duration::from_secs(1);
/// How long PVE waits for a storage's lock.
const STORAGE_LOCK: Duration = Duration::from_secs(10);

/// All locks, made as needed.
#[derive(Debug, Default)]
pub(super) struct Locks {
    vms: BTreeMap<u32, Arc<RwLock<()>>>,
    storages: BTreeMap<(String, String), Arc<Mutex<()>>>,
    agents: BTreeMap<u32, Arc<Mutex<()>>>,
}

impl Pve {
    fn vm_lock(&self, vmid: u32) -> Arc<RwLock<()>> {
        let mut locks = self
            .inner
            .locks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Arc::clone(locks.vms.entry(vmid).or_default())
    }

    /// The VM's lock for one alone.
    pub(super) async fn lock_vm(
        &self,
        vmid: u32,
        wait: Duration,
    ) -> Result<OwnedRwLockWriteGuard<()>, String> {
        timeout(wait, self.vm_lock(vmid).write_owned())
            .await
            .map_err(|_| timed_out(vmid))
    }

    /// The VM's lock together with others who only read it.
    pub(super) async fn share_vm(
        &self,
        vmid: u32,
        wait: Duration,
    ) -> Result<OwnedRwLockReadGuard<()>, String> {
        timeout(wait, self.vm_lock(vmid).read_owned())
            .await
            .map_err(|_| timed_out(vmid))
    }

    /// The storage's lock: of the cluster when shared, else of the host.
    pub(super) async fn lock_storage(
        &self,
        storage: &str,
        host: &str,
    ) -> Result<OwnedMutexGuard<()>, String> {
        let place = self.world(|world, _| PveWorld::place(world, storage, host).to_owned());
        let shared = place.is_empty();
        let lock = {
            let mut locks = self
                .inner
                .locks
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            Arc::clone(
                locks
                    .storages
                    .entry((place, storage.to_owned()))
                    .or_default(),
            )
        };
        timeout(STORAGE_LOCK, lock.lock_owned()).await.map_err(|_| {
            if shared {
                format!("error during cfs-locked 'storage-{storage}' operation: got lock request timeout")
            } else {
                format!("can't lock file '/var/lock/pve-manager/pve-storage-{storage}' - got timeout")
            }
        })
    }

    /// The guest agent's socket, which takes one client at a time.
    pub(super) fn agent_socket(&self, vmid: u32) -> Arc<Mutex<()>> {
        let mut locks = self
            .inner
            .locks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Arc::clone(locks.agents.entry(vmid).or_default())
    }
}

fn timed_out(vmid: u32) -> String {
    format!("can't lock file '/var/lock/qemu-server/lock-{vmid}.conf' - got timeout")
}
