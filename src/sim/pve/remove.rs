//! Destroying, resizing, templates, moves: the other tasks on a VM.

use serde_json::Value;

use super::config::only_root;
use super::disks::Drive;
use super::locks::VM_LOCK;
use super::tasks::WorkerEnd;
use super::wire::ErrorAnswer;
use super::world::PveWorld;
use super::{CheckedCall, Pve};
use crate::model::time::Time;

impl Pve {
    pub(super) fn destroy(&self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        only_root(asked, "skiplock")?;
        self.world(|world, _| world.check_destroy(&asked.node, asked.vmid, asked.flag("purge")))
            .map_err(ErrorAnswer::die)?;
        let (id, user) = (asked.vmid.to_string(), asked.caller.name.clone());
        let asked = asked.clone();
        Ok(self.fork(
            &asked.node.clone(),
            "qmdestroy",
            &id,
            &user,
            false,
            |worker| {
                Box::pin(async move {
                    let pve = worker.pve.clone();
                    let _lock = pve.lock_vm(asked.vmid, VM_LOCK).await?;
                    pve.world(|world, now| {
                        let vm = world.vm(&asked.node, asked.vmid)?;
                        if !asked.flag("skiplock") {
                            vm.check_lock()?;
                        }
                        world.check_destroy(&asked.node, asked.vmid, asked.flag("purge"))?;
                        world.check_base(&asked.node, asked.vmid)?;
                        world.note(now, &worker.user, asked.vmid, "destroy");
                        Ok::<(), String>(())
                    })?;
                    pve.take(pve.timings().destroy).await;
                    // The disks go before anything is written, also where nothing can be: without
                    // quorum the configuration stays as it is, with its mark. Then a lock is all that
                    // is left of it, while the cluster's files are changed (users, firewall, jobs).
                    // A worker that dies leaves what there is by then.
                    pve.world(|world, _| world.free_volumes(asked.vmid));
                    pve.take(pve.timings().destroy).await;
                    pve.world(|world, _| {
                        world.writable(&asked.node, asked.vmid)?;
                        let vm = world.vm_mut(&asked.node, asked.vmid)?;
                        vm.config.clear();
                        vm.config.insert("lock".to_owned(), "destroyed".to_owned());
                        Ok::<(), String>(())
                    })?;
                    pve.take(pve.timings().destroy).await;
                    pve.world(|world, _| {
                        world.writable(&asked.node, asked.vmid)?;
                        world.destroy(
                            asked.vmid,
                            asked.flag("purge"),
                            asked.flag("destroy-unreferenced-disks"),
                        );
                        Ok(())
                    })
                })
            },
        ))
    }

    pub(super) fn resize(&self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        only_root(asked, "skiplock")?;
        // Everything else, the VM's existence included, is looked at by the worker alone.
        let (id, user) = (asked.vmid.to_string(), asked.caller.name.clone());
        let asked = asked.clone();
        Ok(
            self.fork(&asked.node.clone(), "resize", &id, &user, false, |worker| {
                Box::pin(async move {
                    let pve = worker.pve.clone();
                    let _lock = pve.lock_vm(asked.vmid, VM_LOCK).await?;
                    pve.world(|world, _| {
                        let vm = world.vm(&asked.node, asked.vmid)?;
                        let digest = asked.given("digest");
                        if digest.is_some_and(|digest| digest != vm.digest()) {
                            return Err("checksum mismatch (file change by other user?)".to_owned());
                        }
                        if asked.flag("skiplock") {
                            return Ok(());
                        }
                        vm.check_lock()
                    })?;
                    pve.take(pve.timings().resize).await;
                    pve.world(|world, now| {
                        world.note(now, &worker.user, asked.vmid, "resize");
                        world.resize(
                            &asked.node,
                            asked.vmid,
                            asked.text("disk"),
                            asked.text("size"),
                        )?;
                        world.touch(asked.vmid, now);
                        Ok(())
                    })
                })
            }),
        )
    }

    pub(super) fn template(&self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        self.world(|world, _| {
            let vm = world.vm(&asked.node, asked.vmid)?;
            vm.check_lock()?;
            if vm.flag("template") {
                return Err("you can't convert a template to a template".to_owned());
            }
            if vm.run.is_on() {
                return Err("you can't convert a VM to template if VM is running".to_owned());
            }
            Ok(())
        })
        .map_err(ErrorAnswer::die)?;
        let (id, user) = (asked.vmid.to_string(), asked.caller.name.clone());
        let asked = asked.clone();
        Ok(self.fork(
            &asked.node.clone(),
            "qmtemplate",
            &id,
            &user,
            false,
            |worker| {
                Box::pin(async move {
                    let pve = worker.pve.clone();
                    let _lock = pve.lock_vm(asked.vmid, VM_LOCK).await?;
                    pve.take(pve.timings().template).await;
                    pve.world(|world, now| {
                        world.writable(&asked.node, asked.vmid)?;
                        world.note(now, &worker.user, asked.vmid, "template");
                        world.make_template(&asked.node, asked.vmid, now)
                    })
                })
            },
        ))
    }

    pub(super) fn migrate_vm(&self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        let target = asked.text("target").to_owned();
        if target == asked.node {
            return Err(ErrorAnswer::parameter("target", "target is local node."));
        }
        self.world(|world, _| {
            world.check_quorum()?;
            let vm = world.vm(&asked.node, asked.vmid)?;
            if !world.online(&target) {
                return Err(format!("no such cluster node '{target}'"));
            }
            if vm.run.is_on() && !asked.flag("online") {
                return Err("can't migrate running VM without --online".to_owned());
            }
            Ok(())
        })
        .map_err(ErrorAnswer::die)?;
        let (id, user) = (asked.vmid.to_string(), asked.caller.name.clone());
        let asked = asked.clone();
        Ok(self.fork(
            &asked.node.clone(),
            "qmigrate",
            &id,
            &user,
            false,
            |worker| {
                Box::pin(async move {
                    let pve = worker.pve.clone();
                    let _lock = pve.lock_vm(asked.vmid, VM_LOCK).await?;
                    pve.world(|world, _| {
                        world.check_local_disks(
                            &asked.node,
                            asked.vmid,
                            asked.flag("with-local-disks"),
                        )?;
                        let vm = world.vm_mut(&asked.node, asked.vmid)?;
                        vm.check_lock()?;
                        vm.config.insert("lock".to_owned(), "migrate".to_owned());
                        Ok::<(), String>(())
                    })?;
                    pve.take(pve.timings().migrate).await;
                    pve.world(|world, now| {
                        world.note(now, &worker.user, asked.vmid, "migrate");
                        if let Some(vm) = world.vms.get_mut(&asked.vmid) {
                            vm.config.remove("lock");
                        }
                        world.relocate(asked.vmid, &target, now)
                    })
                })
            },
        ))
    }
}

impl PveWorld {
    fn check_destroy(&self, node: &str, vmid: u32, purge: bool) -> WorkerEnd {
        let vm = self.vm(node, vmid)?;
        if vm.flag("protection") {
            return Err(format!("can't remove VM {vmid} - protection mode enabled"));
        }
        if self.ha.contains_key(&vmid) && !purge {
            return Err(format!(
                "unable to remove VM {vmid} - used in HA resources and purge parameter not set."
            ));
        }
        if vm.run.is_on() {
            return Err(format!("VM {vmid} is running - destroy failed"));
        }
        Ok(())
    }

    /// A base image that linked clones need stays (where the storage knows whose clones they are).
    fn check_base(&self, node: &str, vmid: u32) -> WorkerEnd {
        let vm = self.vm(node, vmid)?;
        for (_, drive) in vm.drives() {
            if self.child_of(&drive.file, node).is_some() {
                return Err(format!(
                    "base volume '{}' is still in use by linked cloned",
                    drive.file
                ));
            }
        }
        Ok(())
    }

    /// Frees a VM's own volumes.
    fn free_volumes(&mut self, vmid: u32) {
        let Some(vm) = self.vms.get(&vmid) else {
            return;
        };
        let (volumes, host) = (PveWorld::volumes_of(vm), vm.host.clone());
        for volume in volumes {
            let own = self
                .volume(&volume, &host)
                .is_some_and(|volume| volume.vmid == vmid);
            if own {
                self.free(&volume, &host);
            }
        }
    }

    /// Removes a machine with all that is its own.
    pub(super) fn destroy(&mut self, vmid: u32, purge: bool, unreferenced: bool) {
        self.free_volumes(vmid);
        let Some(vm) = self.vms.remove(&vmid) else {
            return;
        };
        if unreferenced {
            let host = vm.host.clone();
            self.volumes.retain(|(place, _), volume| {
                volume.vmid != vmid || !(place.is_empty() || *place == host)
            });
        }
        self.remove_access(vmid);
        self.firewalls.remove(&vmid);
        self.firewalls_on.remove(&vmid);
        if purge {
            self.ha.remove(&vmid);
        }
    }

    /// Takes a VM out of its resource pool and drops all rights on it, so that a later VM of its VMID has none of them
    /// (`PVE::AccessControl::remove_vm_access`).
    fn remove_access(&mut self, vmid: u32) {
        for members in self.pools.values_mut() {
            members.remove(&vmid);
        }
        let own = format!("/vms/{vmid}");
        let users = self.spec.users.iter_mut().map(|user| &mut user.acl);
        let tokens = self.spec.tokens.iter_mut().map(|token| &mut token.acl);
        for acl in users.chain(tokens) {
            acl.retain(|entry| entry.path != own);
        }
    }

    /// Turns a VM into a template: its disks become base images.
    pub(super) fn make_template(&mut self, node: &str, vmid: u32, now: Time) -> WorkerEnd {
        let vm = self.vm(node, vmid)?.clone();
        for (key, mut drive) in vm.drives() {
            if drive.is_cloudinit() {
                continue;
            }
            let base = drive
                .file
                .replace(&format!("vm-{vmid}-disk-"), &format!("base-{vmid}-disk-"));
            let place = self.place(drive.storage(), node).to_owned();
            let (_, available) = self.space(drive.storage(), node);
            let volume = self.volume(&drive.file, node);
            // The snapshot takes what is written once more. PVE has renamed the volume by then.
            if volume.is_some_and(|of| of.reserved > 0 && of.used > available) {
                let dataset = base.replace(':', "/");
                return Err(format!(
                    "zfs error: cannot create snapshot '{dataset}@__base__': out of space"
                ));
            }
            if let Some(mut volume) = self.volumes.remove(&(place.clone(), drive.file.clone())) {
                volume.id.clone_from(&base);
                self.volumes.insert((place, base.clone()), volume);
            }
            drive.file = base;
            self.vm_mut(node, vmid)?
                .config
                .insert(key, drive.to_string());
        }
        self.vm_mut(node, vmid)?
            .config
            .insert("template".to_owned(), "1".to_owned());
        self.touch(vmid, now);
        Ok(())
    }

    fn check_local_disks(&self, node: &str, vmid: u32, allowed: bool) -> WorkerEnd {
        let vm = self.vm(node, vmid)?;
        let local = vm
            .drives()
            .iter()
            .any(|(_, drive)| super::power::is_local(self, drive));
        if local && !allowed {
            return Err("migration aborted (duration 00:00:00): Problem found while scanning volumes - can't migrate local disk".to_owned());
        }
        Ok(())
    }

    /// Moves a machine's configuration, and its local volumes, to another host.
    pub(super) fn relocate(&mut self, vmid: u32, target: &str, now: Time) -> WorkerEnd {
        let vm = self
            .vms
            .get(&vmid)
            .ok_or_else(|| format!("VM {vmid} does not exist"))?;
        let (host, volumes) = (vm.host.clone(), PveWorld::volumes_of(vm));
        for id in volumes {
            let storage = Drive::parse(&id).storage().to_owned();
            let place = self.place(&storage, &host).to_owned();
            if !place.is_empty()
                && let Some(mut volume) = self.volumes.remove(&(place, id.clone()))
            {
                target.clone_into(&mut volume.host);
                self.volumes.insert((target.to_owned(), id), volume);
            }
        }
        if let Some(vm) = self.vms.get_mut(&vmid) {
            target.clone_into(&mut vm.host);
        }
        self.touch(vmid, now);
        Ok(())
    }
}
