//! Where hostile days happen: a scene, the lives of its daemon, and what persons remember of what they did.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pve_autoscaler::sim::pve::VmFacts;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{CALM, STORM, VMIDS};
use crate::common::Scene;

/// What every mark begins with.
const MARK: &str = "pve-autoscaler:v1 ";
/// PVE shows at least so long what a host said last that is away.
const SHOWN: Duration = Duration::from_mins(4);
/// The label that names a node's pool.
const POOL_LABEL: &str = "pve-autoscaler.io/pool";

/// A scene with all that hostile days need beside it.
pub(super) struct Stage<'a> {
    pub(super) scene: &'a Scene,
    pub(super) began: Instant,
    /// Where the second installation keeps its state.
    pub(super) elsewhere: tempfile::TempDir,
    /// Somebody has stopped the daemon.
    stopped: watch::Sender<u32>,
    /// VMIDs that a journal named when it was lost or could not be asked, so that nobody knows any more what stands
    /// there without a mark.
    forgotten: Mutex<BTreeSet<u32>>,
    diary: Mutex<Vec<String>>,
}

impl<'a> Stage<'a> {
    pub(super) fn new(scene: &'a Scene) -> Stage<'a> {
        Stage {
            scene,
            began: Instant::now(),
            elsewhere: tempfile::tempdir().expect("a directory"),
            stopped: watch::Sender::new(0),
            forgotten: Mutex::default(),
            diary: Mutex::default(),
        }
    }

    /// Remembers for whoever reads the findings.
    pub(super) fn note(&self, what: impl std::fmt::Display) {
        let line = format!("{}: {what}", self.scene.world.clock.now());
        lock(&self.diary).push(line);
    }

    /// What persons did, and the VMs that came and went.
    pub(super) fn diary(&self) -> Vec<String> {
        let mut lines = lock(&self.diary).clone();
        let changes = self.scene.world.pve.changes().into_iter();
        let kept = changes.filter(|change| change.what != "config");
        lines.extend(kept.map(|change| {
            let (at, by, vmid) = (change.at, change.by, change.vmid);
            format!(
                "{at}: {} of VM {vmid}, {}, by {by}",
                change.what, change.name
            )
        }));
        let refusals = self.scene.world.broker.refusals().into_iter();
        lines.extend(refusals.map(|refused| format!("{}: {refused:?}", refused.at)));
        lines.sort();
        lines
    }

    /// Lives of the daemon, each ended by a crash while the storm lasts.
    pub(super) async fn lives(&self, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed ^ 0x33);
        for start in 0.. {
            let mut stopped = self.stopped.subscribe();
            // The watch is never closed: the stage lives on.
            let _ = stopped.wait_for(|by| *by == 0).await;
            let left = STORM.saturating_sub(self.began.elapsed());
            let life = Duration::from_secs(rng.random_range(20..900));
            let life = if left.is_zero() { STORM + CALM } else { life };
            let daemon = self.scene.world.daemon(self.scene.state(), None, start);
            tokio::select! {
                biased;
                _ = stopped.wait_for(|by| *by > 0) => self.note("the daemon is stopped"),
                Err(error) = daemon => self.note(format!("the daemon ended: {error}")),
                () = tokio::time::sleep(life) => self.note("the daemon crashes"),
            }
            // systemd starts it again.
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    }

    /// Does something while the daemon does not run.
    pub(super) async fn while_stopped<T>(&self, act: impl FnOnce() -> T) -> T {
        self.stopped.send_modify(|by| *by += 1);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let done = act();
        self.stopped.send_modify(|by| *by -= 1);
        done
    }

    /// Nobody knows any more what this journal says of VMs that carry no mark yet.
    pub(super) fn forget(&self, state: &Path) {
        let now = self.scene.world.clock.now();
        let vmids: BTreeSet<u32> = entries(state).into_values().collect();
        // The mark of a VM on a host that is away cannot be read either.
        let hosts = self.scene.world.pve.dump(0).hosts;
        let shows = |vm: VmFacts| marked(&vm) && hosts.contains(&(vm.host, true));
        for &vmid in &vmids {
            let vm = self.scene.world.pve.vm(vmid);
            if !vm.is_some_and(shows) {
                self.scene.judge().disown(vmid, now);
            }
        }
        lock(&self.forgotten).extend(vmids);
    }

    /// VMIDs whose journal was lost at some time.
    pub(super) fn forgotten(&self) -> BTreeSet<u32> {
        lock(&self.forgotten).clone()
    }

    /// When another daemon takes the lease, it knows nothing of what the one before it had in hand.
    pub(super) async fn watch_leaders(&self) {
        let mut leader = String::new();
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if entries(self.elsewhere.path()).is_empty() {
                continue;
            }
            let leases = self.objects("coordination.k8s.io/v1", "Lease");
            let lease = leases.iter().find(|lease| name(lease) == "pve-autoscaler");
            let holder = lease.map_or("", |lease| text(&lease["spec"]["holderIdentity"]));
            if holder != leader {
                holder.clone_into(&mut leader);
                self.forget(self.scene.state());
                self.forget(self.elsewhere.path());
            }
        }
    }

    /// Whoever can read neither a machine's journal file nor its mark, because its host is away, knows it by the name that
    /// PVE shows of it: for some minutes, and while no person has changed it.
    pub(super) async fn watch_unread(&self) {
        let mut away: BTreeMap<String, Instant> = BTreeMap::new();
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let hosts = self.scene.world.pve.dump(0).hosts;
            away.retain(|host, _| hosts.contains(&(host.clone(), false)));
            for (host, _) in hosts.into_iter().filter(|(_, online)| !online) {
                away.entry(host).or_insert_with(Instant::now);
            }
            if away.is_empty() {
                continue;
            }
            // A second installation has a journal of its own from its start on.
            let states = [self.scene.state(), self.elsewhere.path()];
            let begun = |state: &&&Path| state.join("journal").exists();
            let journals: Vec<_> = states
                .iter()
                .filter(begun)
                .map(|state| entries(state))
                .collect();
            let now = self.scene.world.clock.now();
            for vm in self.scene.world.pve.vms().iter().filter(|vm| marked(vm)) {
                let Some(since) = away.get(&vm.host) else {
                    continue;
                };
                let named = vm
                    .description
                    .contains(&format!("\"machine\":\"{}\"", vm.name));
                let shown = named && since.elapsed() < SHOWN;
                let has =
                    |journal: &BTreeMap<String, u32>| journal.values().any(|id| *id == vm.vmid);
                let written = !journals.is_empty() && journals.iter().all(has);
                if !shown && !written {
                    self.scene.judge().disown(vm.vmid, now);
                }
            }
        }
    }

    pub(super) fn objects(&self, version: &str, kind: &str) -> Vec<Value> {
        let objects = self.scene.world.kube.objects(version, kind);
        objects.iter().map(|one| Value::clone(one)).collect()
    }

    /// Nodes that say they are ours.
    pub(super) fn nodes(&self) -> Vec<Value> {
        let mut nodes = self.objects("v1", "Node");
        nodes.retain(|node| node["metadata"]["labels"][POOL_LABEL].is_string());
        nodes
    }

    /// VMs with our mark, as far as persons can tell.
    pub(super) fn machines(&self) -> Vec<VmFacts> {
        let mut vms = self.scene.world.pve.vms();
        vms.retain(|vm| {
            let whole = vm.lock.as_deref() != Some("clone");
            // A copy names its original.
            let own = vm.description.contains(&format!("\"vmid\":{},", vm.vmid));
            VMIDS.contains(&vm.vmid) && !vm.template && marked(vm) && own && whole
        });
        vms
    }

    /// Whether the VM of this VMID was cloned and not started since.
    pub(super) fn never_ran(&self, vmid: u32) -> bool {
        let changes = self.scene.world.pve.changes().into_iter();
        let mut own = changes.rev().filter(|change| change.vmid == vmid);
        let last = own.find(|change| matches!(change.what.as_str(), "clone" | "start"));
        last.is_some_and(|change| change.what == "clone")
    }

    /// Which VM of this VMID it is: they are used again.
    pub(super) fn generation(&self, vmid: u32) -> usize {
        let changes = self.scene.world.pve.changes();
        let made = changes.iter().filter(|change| {
            change.vmid == vmid && matches!(change.what.as_str(), "clone" | "create" | "destroy")
        });
        made.count()
    }
}

/// The VMIDs of the machines in a journal, as far as its files can be read.
pub(super) fn entries(state: &Path) -> BTreeMap<String, u32> {
    let entries = journal(state).into_iter();
    let entries = entries.filter_map(|(name, entry)| Some((name, vmid_of(&entry)?)));
    entries.collect()
}

/// The UUID that the journal remembers of the machine that a VM is: one before it at its VMID had another.
pub(super) fn remembered_uuid(state: &Path, vm: &VmFacts) -> Option<String> {
    let mut entries = journal(state).into_values();
    let entry = entries.find(|entry| {
        let machine = text(&entry["target"]["machine"]);
        let mark = format!("\"machine\":\"{machine}\"");
        vmid_of(entry) == Some(vm.vmid) && vm.description.contains(&mark)
    })?;
    let uuid = text(&entry["uuid"]);
    (!uuid.is_empty()).then(|| uuid.to_owned())
}

/// The files of the journal that can be read, by name.
fn journal(state: &Path) -> BTreeMap<String, Value> {
    let files = std::fs::read_dir(state.join("journal"));
    let entries = files.into_iter().flatten().flatten().filter_map(|file| {
        let text = std::fs::read(file.path()).ok()?;
        let name = file.file_name().to_string_lossy().into_owned();
        Some((name, serde_json::from_slice(&text).ok()?))
    });
    entries.collect()
}

fn vmid_of(entry: &Value) -> Option<u32> {
    u32::try_from(entry["target"]["vmid"].as_u64()?).ok()
}

pub(super) fn marked(vm: &VmFacts) -> bool {
    vm.description.contains(MARK)
}

pub(super) fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
