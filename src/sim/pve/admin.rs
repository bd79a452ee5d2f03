//! What an administrator, a backup or bad luck does to the cluster: for tests and drivers outside.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::facts::{MachineChange, Seen, VmFacts};
use super::locks::VM_LOCK;
use super::spec::MachineSpec;
use super::world::{PveWorld, Run, SimHost};
use super::{FirewallRule, Pve};
use crate::model::time::Time;

/// Who is noted as the author of an act.
const ADMINISTRATOR: &str = "administrator";

/// An act on the cluster that comes through no API call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdminAct {
    /// A machine appears.
    AddMachine(MachineSpec),
    /// Somebody edits a configuration; `None` removes the key.
    Configure {
        /// The machine.
        vmid: u32,
        /// The configuration's key, such as `description`.
        key: String,
        /// The key's new value.
        value: Option<String>,
    },
    /// A lock such as `backup` comes, or goes.
    Lock {
        /// The machine.
        vmid: u32,
        /// The lock.
        lock: Option<String>,
    },
    /// Some process holds the VM's lock file.
    HoldLockFile {
        /// The VM.
        vmid: u32,
        /// For how long, in seconds.
        seconds: u64,
    },
    /// A worker is killed and what it began stays as it is, a clone's placeholder for one.
    KillTask {
        /// The task.
        upid: String,
    },
    /// The machine is on another host from now on, with its local disks.
    Migrate {
        /// The machine.
        vmid: u32,
        /// The host.
        host: String,
    },
    /// Powered on at once.
    Start {
        /// The machine.
        vmid: u32,
    },
    /// A machine's CPUs stand still, as after `qm suspend`.
    Pause {
        /// The machine.
        vmid: u32,
    },
    /// Powered off at once: by hand, from inside, or a crash of QEMU.
    PowerOff {
        /// The machine.
        vmid: u32,
    },
    /// Destroyed, disks included.
    Destroy {
        /// The machine.
        vmid: u32,
    },
    /// Put into a pool, and out of the one it was in; or out of any.
    Pool {
        /// The machine.
        vmid: u32,
        /// The pool.
        pool: Option<String>,
    },
    /// Somebody writes the rules of a VM's firewall, all of them.
    Firewall {
        /// The machine.
        vmid: u32,
        /// The rules in their order.
        rules: Vec<FirewallRule>,
    },
    /// Somebody switches a VM's firewall.
    FirewallSwitch {
        /// The machine.
        vmid: u32,
        /// On or off.
        on: bool,
    },
    /// Somebody switches the firewall of the datacenter.
    DatacenterFirewall {
        /// What `enable` is from now on: 0 is off, 1 is on, a point in time in Unix seconds is on for a minute.
        enable: i64,
    },
    /// Given to the HA manager with a wanted state, or taken from it.
    Ha {
        /// The machine.
        vmid: u32,
        /// `started`, `stopped`, …
        state: Option<String>,
    },
    /// A host loses its power, or comes back. Without a majority the quorum is lost.
    HostOnline {
        /// The host.
        host: String,
        /// Whether it answers.
        online: bool,
    },
    /// `pvecm delnode` of a host that is off: no list has a row of it any more, and the configurations of its guests stay.
    RemoveHost {
        /// The host.
        host: String,
    },
    /// A host goes into maintenance, or out of it.
    Maintenance {
        /// The host.
        host: String,
        /// Whether it is in maintenance.
        on: bool,
    },
    /// Something on a host itself uses CPU and memory from now on.
    Load {
        /// The host.
        host: String,
        /// Thousandths of its CPUs.
        cpu_permille: u32,
        /// Bytes.
        memory: u64,
    },
    /// Something on a host waits for CPU, memory and disk from now on.
    Pressure {
        /// The host.
        host: String,
        /// Thousandths of the time for each.
        permille: [u32; 3],
    },
    /// The cluster loses or regains its quorum.
    Quorum(
        /// Whether it is quorate.
        bool,
    ),
    /// Something fills a storage until so many bytes are left.
    Fill {
        /// The storage.
        storage: String,
        /// The host whose storage it is; any for a shared one.
        host: String,
        /// Bytes left.
        left: u64,
    },
    /// A storage goes away, or comes back.
    StorageActive {
        /// The storage.
        storage: String,
        /// Whether it is there.
        active: bool,
    },
}

/// Everything there is to see, for drivers outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Dump {
    /// What time it is there.
    pub now: Time,
    /// Whether the cluster is quorate.
    pub quorate: bool,
    /// Hosts and whether they answer.
    pub hosts: Vec<(String, bool)>,
    /// Machines.
    pub machines: Vec<VmFacts>,
    /// Changes that were made to machines.
    pub changes: Vec<MachineChange>,
    /// Running tasks.
    pub tasks: Vec<String>,
    /// Volumes without a machine.
    pub orphaned_volumes: Vec<String>,
    /// Requests ever.
    pub requests: u64,
    /// The last requests.
    pub last_requests: Vec<Seen>,
}

impl Pve {
    /// Does it at once. The error says what is not there.
    pub fn administer(&self, act: &AdminAct) -> Result<(), String> {
        match act {
            AdminAct::HoldLockFile { vmid, seconds } => {
                let (pve, vmid, hold) = (self.clone(), *vmid, Duration::from_secs(*seconds));
                tokio::spawn(async move {
                    let Ok(_lock) = pve.lock_vm(vmid, VM_LOCK).await else {
                        return;
                    };
                    tokio::time::sleep(hold).await;
                });
                Ok(())
            }
            AdminAct::Start { vmid } => {
                let guest = self.world(|world, now| world.power_on(*vmid, now))?;
                self.guests().power_on(guest);
                Ok(())
            }
            AdminAct::PowerOff { vmid } | AdminAct::Destroy { vmid } => {
                let destroy = matches!(act, AdminAct::Destroy { .. });
                self.world(|world, now| {
                    if !world.vms.contains_key(vmid) {
                        return Err(format!("VM {vmid} does not exist"));
                    }
                    world.note(
                        now,
                        ADMINISTRATOR,
                        *vmid,
                        if destroy { "destroy" } else { "stop" },
                    );
                    world.powered_off(*vmid, now);
                    if destroy {
                        world.destroy(*vmid, true, false);
                    }
                    Ok(())
                })?;
                self.lose_power(vec![*vmid]);
                Ok(())
            }
            AdminAct::HostOnline { host, online } => {
                let dark = self.world(|world, now| world.set_online(host, *online, now))?;
                self.lose_power(dark);
                Ok(())
            }
            _ => self.world(|world, now| world.administer(act, now)),
        }
    }

    fn lose_power(&self, vmids: Vec<u32>) {
        let pve = self.clone();
        tokio::spawn(async move {
            for vmid in vmids {
                pve.guests().power_off(vmid, false).await;
            }
        });
    }

    /// Everything there is to see, with the last `requests` requests.
    pub fn dump(&self, requests: usize) -> Dump {
        let (now, quorate, hosts, count, last) = self.world(|world, now| {
            let hosts = world
                .hosts
                .iter()
                .map(|(name, host)| (name.clone(), host.offline_since.is_none()));
            let skip = world.seen.len().saturating_sub(requests);
            let last = world.seen.iter().skip(skip).cloned().collect();
            (now, world.quorate, hosts.collect(), world.requests, last)
        });
        Dump {
            now,
            quorate,
            hosts,
            machines: self.vms(),
            changes: self.changes(),
            tasks: self.running_tasks(),
            orphaned_volumes: self.orphaned_volumes(),
            requests: count,
            last_requests: last,
        }
    }
}

impl PveWorld {
    fn host_mut(&mut self, name: &str) -> Result<&mut SimHost, String> {
        let host = self.hosts.get_mut(name);
        host.ok_or_else(|| format!("no such cluster node '{name}'"))
    }

    fn administer_firewall(&mut self, act: &AdminAct) {
        match act {
            AdminAct::Firewall { vmid, rules } => drop(self.firewalls.insert(*vmid, rules.clone())),
            AdminAct::FirewallSwitch { vmid, on: true } => drop(self.firewalls_on.insert(*vmid)),
            AdminAct::FirewallSwitch { vmid, on: false } => drop(self.firewalls_on.remove(vmid)),
            AdminAct::DatacenterFirewall { enable } => self.datacenter_firewall = Some(*enable),
            _ => {}
        }
    }

    fn administer(&mut self, act: &AdminAct, now: Time) -> Result<(), String> {
        match act {
            AdminAct::AddMachine(spec) => {
                self.install(spec, now)?;
                self.note(now, ADMINISTRATOR, spec.vmid, "create");
            }
            AdminAct::Configure { vmid, key, value } => {
                self.configure(*vmid, key, value.as_deref(), now)?;
            }
            AdminAct::Lock { vmid, lock } => {
                // Who takes a lock finds it free; `qm unlock` asks nothing.
                if lock.is_some() {
                    self.unlocked(*vmid)?;
                }
                self.configure(*vmid, "lock", lock.as_deref(), now)?;
            }
            AdminAct::Migrate { vmid, host } => {
                if !self.hosts.contains_key(host) {
                    return Err(format!("no such cluster node '{host}'"));
                }
                self.unlocked(*vmid)?;
                self.note(now, ADMINISTRATOR, *vmid, "migrate");
                self.relocate(*vmid, host, now)?;
            }
            AdminAct::Pause { vmid } => {
                let vm = self.vms.get_mut(vmid);
                let vm = vm.ok_or_else(|| format!("VM {vmid} does not exist"))?;
                if let Some((since, pid)) = vm.run.process() {
                    vm.run = Run::Paused { since, pid };
                }
            }
            AdminAct::KillTask { upid } => {
                if !self.kill_task(upid, now) {
                    return Err(format!("no running task '{upid}'"));
                }
            }
            AdminAct::Firewall { .. }
            | AdminAct::FirewallSwitch { .. }
            | AdminAct::DatacenterFirewall { .. } => {
                self.administer_firewall(act);
            }
            AdminAct::Pool { vmid, pool } => self.put_into(*vmid, pool.as_deref()),
            AdminAct::Ha { vmid, state } => match state {
                Some(state) => drop(self.ha.insert(*vmid, state.clone())),
                None => drop(self.ha.remove(vmid)),
            },
            AdminAct::RemoveHost { .. }
            | AdminAct::Maintenance { .. }
            | AdminAct::Load { .. }
            | AdminAct::Pressure { .. } => self.administer_host(act, now)?,
            AdminAct::Quorum(quorate) => self.quorate = *quorate,
            AdminAct::Fill { .. } | AdminAct::StorageActive { .. } => {
                self.administer_storage(act)?;
            }
            // These reach the guests and are done where the guests are.
            AdminAct::HoldLockFile { .. }
            | AdminAct::Start { .. }
            | AdminAct::PowerOff { .. }
            | AdminAct::Destroy { .. }
            | AdminAct::HostOnline { .. } => {}
        }
        Ok(())
    }

    /// Does what is done to a storage.
    fn administer_storage(&mut self, act: &AdminAct) -> Result<(), String> {
        match act {
            AdminAct::Fill {
                storage,
                host,
                left,
            } => self.fill(storage, host, *left),
            AdminAct::StorageActive { storage, active } => {
                let storage = self
                    .storages
                    .get_mut(storage)
                    .ok_or_else(|| format!("storage '{storage}' does not exist"))?;
                storage.active = *active;
            }
            _ => {}
        }
        Ok(())
    }

    /// Does what is done to a host.
    fn administer_host(&mut self, act: &AdminAct, now: Time) -> Result<(), String> {
        match act {
            AdminAct::RemoveHost { host } => {
                let host = self.host_mut(host)?;
                if host.offline_since.is_none() {
                    return Err("the host is online".to_owned());
                }
                host.removed = true;
            }
            AdminAct::Maintenance { host, on } => self.host_mut(host)?.maintenance = *on,
            AdminAct::Load {
                host,
                cpu_permille,
                memory,
            } => {
                let host = self.host_mut(host)?;
                (host.cpu_permille, host.own_memory) = (*cpu_permille, *memory);
                let pressure = host.loads.last().map_or([0; 3], |load| load.pressure);
                host.loaded(now, pressure);
            }
            AdminAct::Pressure { host, permille } => self.host_mut(host)?.loaded(now, *permille),
            _ => {}
        }
        Ok(())
    }

    fn fill(&mut self, storage: &str, host: &str, left: u64) {
        let place = self.place(storage, host).to_owned();
        let key = (place, storage.to_owned());
        self.filled.remove(&key);
        let (_, available) = self.space(storage, host);
        self.filled.insert(key, available.saturating_sub(left));
    }

    fn put_into(&mut self, vmid: u32, pool: Option<&str>) {
        for members in self.pools.values_mut() {
            members.remove(&vmid);
        }
        if let Some(pool) = pool {
            self.pools.entry(pool.to_owned()).or_default().insert(vmid);
        }
    }

    fn configure(
        &mut self,
        vmid: u32,
        key: &str,
        value: Option<&str>,
        now: Time,
    ) -> Result<(), String> {
        self.note(now, ADMINISTRATOR, vmid, "config");
        let vm = self
            .vms
            .get_mut(&vmid)
            .ok_or_else(|| format!("VM {vmid} does not exist"))?;
        match value {
            Some(value) => drop(vm.config.insert(key.to_owned(), value.to_owned())),
            None => drop(vm.config.remove(key)),
        }
        self.touch(vmid, now);
        Ok(())
    }

    /// No lock is in the configuration: else `qm` refuses.
    fn unlocked(&self, vmid: u32) -> Result<(), String> {
        let vm = self.vms.get(&vmid);
        let vm = vm.ok_or_else(|| format!("VM {vmid} does not exist"))?;
        match vm.config.get("lock") {
            Some(lock) => Err(format!("VM is locked ({lock})")),
            None => Ok(()),
        }
    }

    fn power_on(&mut self, vmid: u32, now: Time) -> Result<crate::sim::guests::GuestVm, String> {
        self.unlocked(vmid)?;
        let pid = self.pid();
        self.note(now, ADMINISTRATOR, vmid, "start");
        self.hold_devices(vmid);
        let vm = self
            .vms
            .get_mut(&vmid)
            .ok_or_else(|| format!("VM {vmid} does not exist"))?;
        vm.run = Run::Running { since: now, pid };
        vm.commands.clear();
        let guest = vm.guest();
        self.touch(vmid, now);
        Ok(self.with_seed(guest))
    }

    /// A host's power; the answer is the machines that went dark with it.
    fn set_online(&mut self, host: &str, online: bool, now: Time) -> Result<Vec<u32>, String> {
        let entry = self
            .hosts
            .get_mut(host)
            .ok_or_else(|| format!("no such cluster node '{host}'"))?;
        if online == entry.offline_since.is_none() {
            return Ok(Vec::new());
        }
        entry.offline_since = if online { None } else { Some(now) };
        if online {
            entry.booted = now;
        }
        let alive = self
            .hosts
            .values()
            .filter(|host| host.offline_since.is_none())
            .count();
        self.quorate = alive * 2 > self.hosts.len();
        if online {
            return Ok(Vec::new());
        }
        self.kill_tasks(host, now);
        let dark: Vec<u32> = self
            .vms
            .values()
            .filter(|vm| vm.host == host && vm.run.is_on())
            .map(|vm| vm.vmid)
            .collect();
        for vmid in &dark {
            self.powered_off(*vmid, now);
        }
        Ok(dark)
    }
}
