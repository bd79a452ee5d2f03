//! Creating a VM from nothing.

use serde_json::Value;

use super::config::Edit;
use super::locks::VM_LOCK;
use super::wire::Fault;
use super::world::Vm;
use super::{Asked, Pve};

impl Pve {
    pub(super) fn create(&self, asked: Asked) -> Result<Value, Fault> {
        let path = asked.given("pool").map_or_else(
            || format!("/vms/{}", asked.vmid),
            |pool| format!("/pool/{pool}"),
        );
        self.need(&asked.caller, &path, &["VM.Allocate"])?;
        let edit = Edit::read(self, &asked, true)?;
        self.world(|world, _| {
            world.check_quorum()?;
            let (node, vmid) = (&asked.node, asked.vmid);
            if let Some(pool) = asked
                .given("pool")
                .filter(|pool| !world.pools.contains_key(*pool))
            {
                return Err(format!("pool '{pool}' does not exist"));
            }
            match world.vms.get(&vmid) {
                Some(vm) if vm.host == *node => Err(format!(
                    "unable to create VM {vmid}: config file already exists"
                )),
                Some(vm) => Err(format!(
                    "unable to create VM {vmid} - VM {vmid} already exists on node '{}'",
                    vm.host
                )),
                None => Ok(()),
            }
        })
        .map_err(Fault::die)?;
        let (id, user) = (asked.vmid.to_string(), asked.caller.name.clone());
        Ok(self.fork(
            &asked.node.clone(),
            "qmcreate",
            &id,
            &user,
            false,
            |worker| {
                Box::pin(async move {
                    let pve = worker.pve.clone();
                    let lock = pve.lock_vm(asked.vmid, VM_LOCK).await?;
                    pve.take(pve.timings().clone).await;
                    pve.world(|world, now| {
                        if let Some(vm) = world.vms.get(&asked.vmid) {
                            return Err(format!(
                                "unable to create VM {0} - VM {0} already exists on node '{1}'",
                                asked.vmid, vm.host
                            ));
                        }
                        let mut vm = Vm::new(asked.vmid, &asked.node);
                        let mut made = Vec::new();
                        for (key, value) in &edit.set {
                            match world.prepare(&vm, key, value, asked.caller.is_root(), now) {
                                Ok(text) => {
                                    vm.config.insert(key.clone(), text);
                                    made = super::world::World::volumes_of(&vm);
                                }
                                Err(words) => {
                                    for volume in &made {
                                        world.free(volume, &asked.node);
                                    }
                                    return Err(format!(
                                        "unable to create VM {} - {words}",
                                        asked.vmid
                                    ));
                                }
                            }
                        }
                        world.identify(&mut vm, true);
                        world.vms.insert(asked.vmid, vm);
                        if let Some(pool) = asked.given("pool") {
                            world
                                .pools
                                .entry(pool.to_owned())
                                .or_default()
                                .insert(asked.vmid);
                        }
                        world.note(now, &worker.user, asked.vmid, "create");
                        world.touch(asked.vmid, now);
                        Ok(())
                    })?;
                    drop(lock);
                    if asked.flag("start") {
                        pve.start(&asked).map_err(|fault| fault.message)?;
                    }
                    Ok(())
                })
            },
        ))
    }
}
