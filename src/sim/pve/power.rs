//! Power: start, stop, shutdown and their kin.

use std::fmt::Write as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tokio::time::timeout;

use super::bridges::UNPLUGGED;
use super::config::only_root;
use super::cpu;
use super::disks::Drive;
use super::locks::VM_LOCK;
use super::numa;
use super::start_options::{self, NO_PCI_WATCHDOG};
use super::tasks::{Worker, WorkerEnd};
use super::wire::ErrorAnswer;
use super::world::{PveWorld, Run, SimVm};
use super::{CheckedCall, Pve, properties};
use crate::model::time::Time;
use crate::sim::guests::GuestVm;

/// How long a shutdown waits unless told.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_mins(1);
/// How long QEMU gets to end after SIGTERM.
const TERM_TIMEOUT: Duration = Duration::from_secs(10);

/// PVE's word on a QEMU that did not start.
pub(super) const EXITED: &str = "start failed: QEMU exited with code 1";

impl Pve {
    /// The early checks that all share, then a task.
    fn power(
        &self,
        asked: &CheckedCall,
        kind: &'static str,
        work: impl FnOnce(Worker, CheckedCall) -> futures::future::BoxFuture<'static, WorkerEnd>,
    ) -> Result<Value, ErrorAnswer> {
        only_root(asked, "skiplock")?;
        only_root(asked, "keepActive")?;
        // Whether the VM exists is seen by the worker alone.
        let asked = asked.clone();
        let (node, id, user) = (
            asked.node.clone(),
            asked.vmid.to_string(),
            asked.caller.name.clone(),
        );
        Ok(self.fork(&node, kind, &id, &user, false, |worker| work(worker, asked)))
    }

    /// For a machine that the HA manager keeps, only the wanted state changes.
    fn by_manager(
        &self,
        asked: &CheckedCall,
        kind: &'static str,
        state: &'static str,
    ) -> Option<Value> {
        let managed = self.world(|world, _| world.ha.contains_key(&asked.vmid));
        if !managed {
            return None;
        }
        let vmid = asked.vmid;
        let (node, id, user) = (
            asked.node.clone(),
            vmid.to_string(),
            asked.caller.name.clone(),
        );
        let asked = asked.clone();
        Some(self.fork(&node, kind, &id, &user, false, |worker| {
            Box::pin(async move {
                worker
                    .pve
                    .world(|world, _| world.ha.insert(vmid, state.to_owned()));
                let pve = worker.pve.clone();
                tokio::spawn(async move {
                    pve.take(pve.timings().ha).await;
                    if state == "started" {
                        let _ = pve.start(&CheckedCall {
                            caller: manager(),
                            ..asked
                        });
                    } else {
                        let _ = pve.shutdown(&CheckedCall {
                            caller: manager(),
                            ..asked
                        });
                    }
                });
                Ok(())
            })
        }))
    }

    pub(super) fn start(&self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        self.world(|world, _| world.check_quorum())
            .map_err(ErrorAnswer::die)?;
        if !asked.caller.name.is_empty()
            && let Some(upid) = self.by_manager(asked, "hastart", "started")
        {
            return Ok(upid);
        }
        self.power(asked, "qmstart", |worker, asked| {
            Box::pin(async move {
                let pve = worker.pve.clone();
                let _lock = pve.lock_vm(asked.vmid, VM_LOCK).await?;
                let outcome = pve.switch_on(&asked, &worker.user).await;
                if outcome.is_ok() {
                    for warning in pve.world(|world, _| world.card_warnings(asked.vmid)) {
                        worker.warn(&warning);
                    }
                }
                if let Err(why) = &outcome
                    && let Some(why) = why.strip_prefix(UNPLUGGED)
                {
                    worker.log(why);
                    worker.log("kvm: -netdev type=tap: network script /usr/libexec/qemu-server/pve-bridge failed with status 6400");
                    return Err(EXITED.to_owned());
                }
                if let Err(why) = &outcome
                    && let Some(features) = why.strip_prefix(cpu::LACKING)
                {
                    for feature in features.lines() {
                        worker.log(format!(
                            "kvm: warning: host doesn't support requested feature: {feature}"
                        ));
                    }
                    worker.log(cpu::UNSUPPORTED);
                    return Err(EXITED.to_owned());
                }
                if outcome.as_ref().is_err_and(|words| words == NO_PCI_WATCHDOG) {
                    worker.log(NO_PCI_WATCHDOG);
                    return Err(EXITED.to_owned());
                }
                if outcome.as_ref().is_err_and(|words| words == EXITED) {
                    // What QEMU says to its standard error.
                    worker.log("kvm: cannot set up guest memory 'pc.ram': Cannot allocate memory");
                }
                outcome
            })
        })
    }

    /// Powers a VM on; its lock is held.
    async fn switch_on(&self, asked: &CheckedCall, by: &str) -> WorkerEnd {
        let (node, vmid) = (&asked.node, asked.vmid);
        let usual = self.world(|world, now| {
            world.check_start(node, vmid, asked.flag("skiplock"), now)?;
            Ok::<Duration, String>(start_patience(world.vm(node, vmid)?))
        })?;
        let timings = self.timings();
        let takes = Duration::from_millis(self.draw(timings.start));
        let patience = timings.start_patience.map_or(usual, Duration::from_millis);
        tokio::time::sleep(takes.min(patience)).await;
        let guest = self.world(|world, now| {
            world.vm(node, vmid)?;
            world.settle(vmid);
            world.hold_devices(vmid);
            let pid = world.pid();
            world.note(now, by, vmid, "start");
            let vm = world.vm_mut(node, vmid)?;
            vm.run = Run::Running { since: now, pid };
            vm.commands.clear();
            let guest = vm.guest();
            world.touch(vmid, now);
            Ok::<GuestVm, String>(world.with_seed(guest))
        })?;
        let name = guest.name.clone();
        self.guests().power_on(guest);
        // PVE waits no longer for QEMU, which goes on.
        if takes > patience {
            if let Some(lives) = timings.overdue_lives {
                self.end_after(vmid, Duration::from_millis(lives));
            }
            return Err(start_overdue(vmid, &name));
        }
        Ok(())
    }

    /// QEMU ends by itself after so long, if it still runs.
    fn end_after(&self, vmid: u32, lives: Duration) {
        let pve = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(lives).await;
            pve.switch_off(vmid, false, "root@pam", "crash").await;
        });
    }

    pub(super) fn stop(&self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        if asked.flag("overrule-shutdown")
            && self.world(|world, _| world.ha.contains_key(&asked.vmid))
        {
            return Err(ErrorAnswer::parameter(
                "overrule-shutdown",
                "Not applicable for HA resources.",
            ));
        }
        if let Some(upid) = self.by_manager(asked, "hastop", "stopped") {
            return Ok(upid);
        }
        self.power(asked, "qmstop", |worker, asked| {
            Box::pin(async move {
                let pve = worker.pve.clone();
                if asked.flag("overrule-shutdown") {
                    pve.world(|world, _| world.abort_shutdown(asked.vmid));
                }
                let _lock = pve.lock_vm(asked.vmid, VM_LOCK).await?;
                let on = pve.world(|world, _| {
                    world.on_node(&asked.node, asked.vmid)?;
                    let vm = world.vm(&asked.node, asked.vmid)?;
                    if vm.run.is_on() && !asked.flag("skiplock") {
                        vm.check_lock()?;
                    }
                    Ok::<bool, String>(vm.run.is_on())
                })?;
                if on {
                    pve.take(pve.timings().stop).await;
                    pve.switch_off(asked.vmid, false, &worker.user, "stop")
                        .await;
                }
                Ok(())
            })
        })
    }

    /// Takes the power away, or waits until the guest gives it up.
    async fn switch_off(&self, vmid: u32, graceful: bool, by: &str, what: &str) {
        self.guests().power_off(vmid, graceful).await;
        self.world(|world, now| {
            // Somebody else may have taken its power meanwhile: then it was not this call that did.
            if world.vms.get(&vmid).is_some_and(|vm| vm.run.is_on()) {
                world.note(now, by, vmid, what);
            }
            world.powered_off(vmid, now);
        });
    }

    pub(super) fn shutdown(&self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        let paused = self.is_paused(asked);
        if paused && !asked.flag("forceStop") {
            return Err(ErrorAnswer::die("VM is paused - cannot shutdown"));
        }
        if !asked.caller.name.is_empty()
            && let Some(upid) = self.by_manager(asked, "hastop", "stopped")
        {
            return Ok(upid);
        }
        self.power(asked, "qmshutdown", move |worker, asked| {
            Box::pin(async move {
                let pve = worker.pve.clone();
                let _lock = pve.lock_vm(asked.vmid, VM_LOCK).await?;
                if paused {
                    worker.log("VM is paused - stop instead of shutdown");
                    pve.switch_off(asked.vmid, false, &worker.user, "stop")
                        .await;
                    return Ok(());
                }
                pve.shut_down(&asked, &worker.user).await
            })
        })
    }

    /// Asks the guest to shut down and waits; the VM's lock is held all the while.
    async fn shut_down(&self, asked: &CheckedCall, by: &str) -> WorkerEnd {
        let wait = self.world(|world, _| {
            world.on_node(&asked.node, asked.vmid)?;
            let vm = world.vm(&asked.node, asked.vmid)?;
            if !asked.flag("skiplock") && vm.run.is_on() {
                vm.check_lock()?;
            }
            let down = properties(vm.text("startup"), "order")
                .get("down")
                .and_then(|text| text.parse().ok());
            let configured = down.map_or(SHUTDOWN_TIMEOUT, Duration::from_secs);
            Ok::<Option<Duration>, String>(vm.run.is_on().then_some(configured))
        })?;
        let Some(configured) = wait else {
            return Ok(());
        };
        let wait = asked.seconds("timeout").unwrap_or(configured);
        if timeout(wait, self.switch_off(asked.vmid, true, by, "shutdown"))
            .await
            .is_ok()
        {
            return Ok(());
        }
        if !asked.flag("forceStop") {
            return Err("VM quit/powerdown failed - got timeout".to_owned());
        }
        // A guest that hangs does not hold QEMU up: SIGTERM, then SIGKILL.
        let _ = timeout(TERM_TIMEOUT, self.switch_off(asked.vmid, false, by, "stop")).await;
        self.world(|world, now| world.powered_off(asked.vmid, now));
        Ok(())
    }

    pub(super) fn is_paused(&self, asked: &CheckedCall) -> bool {
        self.world(|world, _| {
            let vm = world.vm(&asked.node, asked.vmid);
            vm.is_ok_and(|vm| matches!(vm.run, Run::Paused { .. }))
        })
    }

    pub(super) fn reboot(&self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        if self.is_paused(asked) {
            return Err(ErrorAnswer::die("VM is paused - cannot shutdown"));
        }
        self.world(|world, _| {
            world.on_node(&asked.node, asked.vmid)?;
            if world.vm(&asked.node, asked.vmid)?.run.is_on() {
                Ok(())
            } else {
                Err(format!("VM {} not running", asked.vmid))
            }
        })
        .map_err(ErrorAnswer::die)?;
        self.power(asked, "qmreboot", |worker, asked| {
            Box::pin(async move {
                let pve = worker.pve.clone();
                let _lock = pve.lock_vm(asked.vmid, VM_LOCK).await?;
                pve.shut_down(&asked, &worker.user).await?;
                pve.switch_on(&asked, &worker.user).await
            })
        })
    }

    pub(super) fn reset(&self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        self.power(asked, "qmreset", |worker, asked| {
            Box::pin(async move {
                let pve = worker.pve.clone();
                let _lock = pve.lock_vm(asked.vmid, VM_LOCK).await?;
                let guest = pve.world(|world, now| {
                    let vm = world.vm_mut(&asked.node, asked.vmid)?;
                    if !asked.flag("skiplock") {
                        vm.check_lock()?;
                    }
                    if !vm.run.is_on() {
                        return Err(format!("VM {} not running", asked.vmid));
                    }
                    vm.commands.clear();
                    let guest = vm.guest();
                    world.note(now, &worker.user, asked.vmid, "reset");
                    Ok(world.with_seed(guest))
                })?;
                pve.guests().power_off(asked.vmid, false).await;
                pve.guests().power_on(guest);
                Ok(())
            })
        })
    }

    pub(super) fn pause(&self, asked: &CheckedCall, pause: bool) -> Result<Value, ErrorAnswer> {
        let kind = if pause { "qmpause" } else { "qmresume" };
        self.power(asked, kind, move |worker, asked| {
            Box::pin(async move {
                let pve = worker.pve.clone();
                let _lock = pve.lock_vm(asked.vmid, VM_LOCK).await?;
                pve.world(|world, now| {
                    let vm = world.vm_mut(&asked.node, asked.vmid)?;
                    if !asked.flag("skiplock") {
                        vm.check_lock()?;
                    }
                    let (since, pid) = vm
                        .run
                        .process()
                        .ok_or_else(|| format!("VM {} not running", asked.vmid))?;
                    vm.run = if pause {
                        Run::Paused { since, pid }
                    } else {
                        Run::Running { since, pid }
                    };
                    world.note(
                        now,
                        &worker.user,
                        asked.vmid,
                        if pause { "suspend" } else { "resume" },
                    );
                    world.touch(asked.vmid, now);
                    Ok(())
                })
            })
        })
    }
}

/// The HA manager acts in nobody's name.
fn manager() -> super::access::Caller {
    super::access::Caller {
        name: String::new(),
    }
}

impl SimVm {
    /// The SMBIOS serial number, which `base64=1` says to be in base64.
    fn serial(&self) -> String {
        let all = properties(self.text("smbios1"), "");
        let serial = all.get("serial").copied().unwrap_or_default();
        if all.get("base64").copied() != Some("1") {
            return serial.to_owned();
        }
        let bytes = STANDARD.decode(serial).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Whether it has network cards, and none of them a link.
    fn is_unlinked(&self) -> bool {
        let cards = (0..32).map(|card| self.text(&format!("net{card}")));
        let mut cards = cards.filter(|card| !card.is_empty()).peekable();
        let any = cards.peek().is_some();
        any && cards.all(|card| properties(card, "model").get("link_down") == Some(&"1"))
    }

    /// The VM as its guest sees it.
    pub(super) fn guest(&self) -> GuestVm {
        let address = properties(self.text("ipconfig0"), "").get("ip").copied();
        let cards = self.config.iter();
        let cards = cards.filter(|(key, _)| key.starts_with("ipconfig"));
        let addresses = cards.flat_map(|(_, text)| {
            let parts = properties(text, "");
            let fixed = ["ip", "ip6"].map(|key| parts.get(key).and_then(|at| at.split_once('/')));
            fixed.into_iter().flatten().map(|(ip, _)| ip.to_owned())
        });
        GuestVm {
            vmid: self.vmid,
            incarnation: self.incarnation,
            uuid: self.uuid(),
            name: self.text("name").to_owned(),
            serial: self.serial(),
            cores: self.cpus(),
            memory_mib: self.memory_mib(),
            disk: self.boot_disk(),
            address: address.filter(|ip| *ip != "dhcp").map(str::to_owned),
            fixed_addresses: addresses.collect(),
            devices: u32::try_from(self.devices.len()).unwrap_or(u32::MAX),
            seed: None,
            frozen: self.flag("freeze"),
            unlinked: self.is_unlinked(),
        }
    }
}

impl PveWorld {
    /// What QEMU and PVE look at before a VM runs.
    fn check_start(&mut self, node: &str, vmid: u32, skiplock: bool, _now: Time) -> WorkerEnd {
        let vm = self.vm(node, vmid)?;
        if !skiplock {
            vm.check_lock()?;
        }
        if vm.flag("template") {
            return Err("you can't start a vm if it's a template".to_owned());
        }
        if vm.run.is_on() {
            return Err(format!("VM {vmid} already running"));
        }
        let mut vm = vm.clone();
        for (key, value) in std::mem::take(&mut vm.pending) {
            match value {
                Some(value) => vm.config.insert(key, value),
                None => vm.config.remove(&key),
            };
        }
        let Some(host) = self.hosts.get(node) else {
            return Err(format!("no such cluster node '{node}'"));
        };
        if vm.cpus() > host.spec.cpus {
            return Err(format!(
                "MAX {} vcpus allowed per VM on this node",
                host.spec.cpus
            ));
        }
        for (_, drive) in vm.drives() {
            self.holds_content(drive.storage(), "images")?;
            self.usable(drive.storage(), node)?;
            if self.volume(&drive.file, node).is_none() {
                return Err(format!("volume '{}' does not exist", drive.file));
            }
        }
        for iso in vm.isos() {
            self.holds_content(iso.storage(), "iso")?;
            self.usable(iso.storage(), node)?;
            if self.iso(&iso.file, node).is_none() {
                return Err(format!("volume '{}' does not exist", iso.file));
            }
        }
        self.check_cards(host, &vm)?;
        self.choose_devices(node, &vm)?;
        self.check_host_mappings(node, &vm)?;
        start_options::check(&vm)?;
        numa::check(&vm, &host.spec)?;
        self.check_snippets(&vm)?;
        let others = self.vms.values();
        let running = others.filter(|other| other.host == node && other.run.is_on());
        numa::check_free(&vm, &host.spec, running.clone())?;
        cpu::check(&vm, &host.spec)?;
        let taken: u64 = running.map(SimVm::memory_mib).sum();
        // PVE does not look at overcommitment: QEMU gets no memory and exits.
        if (taken + vm.memory_mib()) << 20 > host.spec.memory {
            return Err(EXITED.to_owned());
        }
        Ok(())
    }

    /// The VM's power is off: nothing in it runs any more.
    pub(super) fn powered_off(&mut self, vmid: u32, now: Time) {
        self.settle(vmid);
        if let Some(vm) = self.vms.get_mut(&vmid) {
            vm.run = Run::Stopped;
            vm.devices.clear();
            vm.commands.clear();
        }
        self.touch(vmid, now);
    }

    fn abort_shutdown(&mut self, vmid: u32) {
        let id = vmid.to_string();
        for task in self
            .tasks
            .values()
            .filter(|task| task.kind == "qmshutdown" && task.id == id)
        {
            if task.end.is_none() {
                task.cancel.cancel();
            }
        }
    }
}

/// How long PVE waits for QEMU's start (`config_aware_timeout`).
fn start_patience(vm: &SimVm) -> Duration {
    let with = |start: &str| {
        vm.config
            .keys()
            .filter(|key| key.starts_with(start))
            .count()
    };
    let mut seconds = 30;
    if vm.memory_mib() > 30_720 {
        seconds = vm.memory_mib() / 1_024;
    }
    if with("hostpci") > 0 {
        seconds *= 4;
    }
    if vm.config.contains_key("hugepages") {
        seconds = seconds.max(150);
    }
    Duration::from_secs(seconds + 5 * with("net") as u64)
}

/// PVE's word on a start that it did not wait for any longer: all of QEMU's command line, and then why.
fn start_overdue(vmid: u32, name: &str) -> String {
    let mut command =
        format!("/usr/bin/kvm -id {vmid} -name '{name},debug-threads=on' -no-shutdown -daemonize");
    for number in 0..32 {
        let _ = write!(
            command,
            " -blockdev '{{\"driver\":\"throttle\",\"node-name\":\"drive-scsi{number}\",\"read-only\":false}}'"
        );
    }
    format!("start failed: command '{command}' failed: got timeout")
}

/// Whether a configuration's value is a drive on a storage that only one host sees.
pub(super) fn is_local(world: &PveWorld, drive: &Drive) -> bool {
    world
        .storages
        .get(drive.storage())
        .is_none_or(|storage| !storage.shared)
}
