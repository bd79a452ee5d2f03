//! Creating a VM from nothing.

use serde_json::Value;

use super::config::Edit;
use super::locks::VM_LOCK;
use super::tasks::{Worker, WorkerEnd};
use super::wire::ErrorAnswer;
use super::world::{PveWorld, SimVm};
use super::{CheckedCall, Pve};
use crate::model::time::Time;

impl Pve {
    pub(super) fn create(&self, asked: CheckedCall) -> Result<Value, ErrorAnswer> {
        let path = asked.given("pool").map_or_else(
            || format!("/vms/{}", asked.vmid),
            |pool| format!("/pool/{pool}"),
        );
        self.need(&asked.caller, &path, &["VM.Allocate"])?;
        self.pool_exists(&asked)?;
        let edit = Edit::read(self, &asked, true)?;
        // The configuration is there, locked and empty, before the call is answered (`create_and_lock_config`).
        self.world(|world, now| {
            world.check_create(&asked)?;
            let mut vm = SimVm::new(asked.vmid, &asked.node);
            vm.config.insert("lock".to_owned(), "create".to_owned());
            world.vms.insert(asked.vmid, vm);
            world.touch(asked.vmid, now);
            WorkerEnd::Ok(())
        })
        .map_err(ErrorAnswer::die)?;
        let (node, id) = (asked.node.clone(), asked.vmid.to_string());
        let user = asked.caller.name.clone();
        Ok(self.fork(&node, "qmcreate", &id, &user, false, |worker| {
            Box::pin(create(worker, asked, edit))
        }))
    }

    /// A pool that is not there is a right that nobody has.
    pub(super) fn pool_exists(&self, asked: &CheckedCall) -> Result<(), ErrorAnswer> {
        let missing = asked
            .given("pool")
            .filter(|pool| !self.world(|world, _| world.pools.contains_key(*pool)));
        missing.map_or(Ok(()), |pool| {
            Err(ErrorAnswer::forbidden(format!(
                "Permission check failed (pool '{pool}' does not exist)"
            )))
        })
    }
}

async fn create(worker: Worker, asked: CheckedCall, edit: Edit) -> WorkerEnd {
    let pve = worker.pve.clone();
    pve.world(|world, _| world.clones.insert(asked.vmid, worker.upid.clone()));
    let made = async {
        let _lock = pve.lock_vm(asked.vmid, VM_LOCK).await?;
        pve.take(pve.timings().clone).await;
        pve.world(|world, now| world.create(&asked, &edit, &worker.user, now))
    };
    if let Err(words) = made.await {
        // The worker takes the empty configuration away again.
        pve.world(|world, _| {
            let bare = |vm: &mut SimVm| vm.text("lock") == "create";
            if world.vms.get_mut(&asked.vmid).is_some_and(bare) {
                world.vms.remove(&asked.vmid);
            }
        });
        return Err(words);
    }
    if asked.flag("start") {
        pve.start(&asked).map_err(|fault| fault.message)?;
    }
    Ok(())
}

impl PveWorld {
    fn check_create(&self, asked: &CheckedCall) -> WorkerEnd {
        self.check_quorum()?;
        let vmid = asked.vmid;
        match self.vms.get(&vmid) {
            Some(vm) if vm.host == asked.node => Err(format!(
                "unable to create VM {vmid}: config file already exists"
            )),
            Some(vm) => Err(format!(
                "unable to create VM {vmid} - VM {vmid} already exists on node '{}'",
                vm.host
            )),
            None => Ok(()),
        }
    }

    fn create(&mut self, asked: &CheckedCall, edit: &Edit, by: &str, now: Time) -> WorkerEnd {
        self.check_quorum()?;
        let (vmid, root) = (asked.vmid, asked.caller.is_root());
        self.check_tags(asked)
            .map_err(|fault| format!("unable to create VM {vmid} - {}", fault.message))?;
        let mut vm = SimVm::new(vmid, &asked.node);
        for (key, value) in &edit.set {
            match self.prepare(&vm, key, value, root, now) {
                // Its line is none that PVE reads back.
                Ok(text) if key == "affinity" && text.is_empty() => {}
                Ok(text) => drop(vm.config.insert(key.clone(), text)),
                Err(words) => {
                    self.volumes.retain(|_, volume| volume.vmid != vmid);
                    return Err(format!("unable to create VM {vmid} - {words}"));
                }
            }
        }
        if vm.text("smbios1").contains("uuid=") {
            // A UUID that the call names stays.
            let given = vm.text("smbios1").to_owned();
            self.identify(&mut vm, true);
            vm.config.insert("smbios1".to_owned(), given);
        } else {
            self.identify(&mut vm, true);
        }
        self.vms.insert(vmid, vm);
        if let Some(pool) = asked.given("pool") {
            self.pools.entry(pool.to_owned()).or_default().insert(vmid);
        }
        self.note(now, by, vmid, "create");
        self.touch(vmid, now);
        Ok(())
    }
}
