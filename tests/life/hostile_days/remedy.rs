//! What persons undo, and what only persons can put right in the end.
//!
//! The daemon leaves alone what contradicts itself and what nobody can tell to be ours. Each case here is one that it
//! names in its warnings, together with what a person has to do; nothing else is helped along.

use std::collections::BTreeMap;
use std::time::Duration;

use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::pve::{AdminAct, VmFacts};
use serde_json::{Value, json};

use super::kubernetes::MACHINE;
use super::stage::{Stage, entries, marked, name, remembered_uuid, text};
use super::{STORM, VMIDS, state};

/// More running machines than these without a Node are left alone: a Node comes back with its kubelet's next start
/// (`ok_total_unready_count`).
const FEW_LOST: usize = 3;
/// Between two looks for what nobody knows any more.
const LOOK: Duration = Duration::from_secs(30);

/// What undoes an act.
#[derive(Clone, Debug)]
pub(super) enum Remedy {
    /// There is nothing to undo.
    Nothing,
    /// Acts of a PVE administrator; what is not there any more needs none.
    Pve(Vec<AdminAct>),
    /// A line of a VM's configuration is what it was, if it is still the same VM.
    Config {
        vmid: u32,
        generation: usize,
        key: &'static str,
        value: Option<String>,
    },
    /// A VM's lock goes, if it is still this one.
    Unlock {
        vmid: u32,
        generation: usize,
        lock: &'static str,
    },
    /// A VM goes, if it is still the same one.
    Destroy { vmid: u32, generation: usize },
    /// A merge patch of a node, if it is still the same.
    Node {
        name: String,
        uid: String,
        change: Value,
    },
    /// A taint of a node goes.
    Untaint {
        name: String,
        uid: String,
        key: &'static str,
    },
    /// The host's clock is set by so much.
    Clock(Span),
    /// An old copy of the state directory is put back.
    State(BTreeMap<String, Vec<u8>>),
}

impl Remedy {
    /// Undoes it.
    pub(super) async fn apply(self, stage: &Stage<'_>) {
        let pve = &stage.scene.world.pve;
        match self {
            Remedy::Nothing => {}
            Remedy::Pve(acts) => {
                for act in acts {
                    // Its VM may be gone.
                    let _ = pve.administer(&act);
                }
            }
            Remedy::Config {
                vmid,
                generation,
                key,
                value,
            } => {
                if stage.generation(vmid) == generation {
                    let key = key.to_owned();
                    let _ = pve.administer(&AdminAct::Configure { vmid, key, value });
                }
            }
            Remedy::Unlock {
                vmid,
                generation,
                lock,
            } => {
                let locked = pve.vm(vmid).and_then(|vm| vm.lock);
                if stage.generation(vmid) == generation && locked.as_deref() == Some(lock) {
                    let _ = pve.administer(&AdminAct::Lock { vmid, lock: None });
                }
            }
            Remedy::Destroy { vmid, generation } => {
                if stage.generation(vmid) == generation {
                    let _ = pve.administer(&AdminAct::Destroy { vmid });
                }
            }
            Remedy::Node { name, uid, change } => {
                if node(stage, &name, &uid).is_some() {
                    patch(stage, &name, &change).await;
                }
            }
            Remedy::Untaint { name, uid, key } => {
                if let Some(node) = node(stage, &name, &uid) {
                    let taints = without(&node, key);
                    patch(stage, &name, &json!({"spec": {"taints": taints}})).await;
                }
            }
            Remedy::Clock(by) => stage.scene.world.host_clock.set_ahead(by),
            Remedy::State(files) => state::put_back(stage, files).await,
        }
    }
}

/// A node, if it is still the same.
fn node(stage: &Stage<'_>, wanted: &str, uid: &str) -> Option<Value> {
    let nodes = stage.objects("v1", "Node").into_iter();
    let mut same =
        nodes.filter(|node| name(node) == wanted && text(&node["metadata"]["uid"]) == uid);
    same.next()
}

/// A node's taints without those of a key.
pub(super) fn without(node: &Value, key: &str) -> Vec<Value> {
    let taints = node["spec"]["taints"].as_array().cloned();
    let mut taints = taints.unwrap_or_default();
    taints.retain(|taint| taint["key"] != key);
    taints
}

/// Changes a node as cluster-admin.
pub(super) async fn patch(stage: &Stage<'_>, node: &str, change: &Value) {
    let request = http::Request::patch(format!("/api/v1/nodes/{node}"))
        .header("content-type", "application/merge-patch+json");
    crate::patch(stage.scene, request, change.to_string()).await;
}

/// What only persons put right, when nothing goes wrong any more.
pub(super) async fn put_right(stage: &Stage<'_>) {
    // A journal file that cannot be read is named and stays where it is.
    for path in state::unreadable(stage.scene.state()) {
        stage.note(format!("a person removes {}", path.display()));
        std::fs::remove_file(path).expect("it is removed");
    }
    put_back_uuids(stage);
    let nodes = stage.objects("v1", "Node");
    let machines = stage.machines().into_iter();
    let on: Vec<VmFacts> = machines.filter(|vm| vm.running).collect();
    let own = |vm: &VmFacts| {
        let kubelet = stage.scene.world.guests.node_on(vm.vmid)?;
        let mut nodes = nodes.iter();
        Some(nodes.find(|node| name(node) == kubelet).cloned())
    };
    // It was started with a UUID that was edited, and knows no other until its next start.
    let differs = on.iter().filter(|vm| {
        let node = own(vm).flatten();
        node.is_some_and(|node| {
            !text(&node["status"]["nodeInfo"]["systemUUID"]).eq_ignore_ascii_case(&vm.uuid)
        })
    });
    let mut again: Vec<u32> = differs.map(|vm| vm.vmid).collect();
    let lost = on.iter().filter(|vm| own(vm) == Some(None));
    let lost: Vec<u32> = lost.map(|vm| vm.vmid).collect();
    if lost.len() > FEW_LOST {
        again.extend(lost);
    }
    for vmid in again {
        stage.note(format!("a person starts VM {vmid} anew"));
        let pve = &stage.scene.world.pve;
        pve.administer(&AdminAct::PowerOff { vmid })
            .expect("it is there");
        tokio::time::sleep(Duration::from_secs(5)).await;
        let _ = pve.administer(&AdminAct::Start { vmid });
    }
    end_contradictions(stage, &nodes).await;
}

/// A VM's UUID is what the daemon says that it was: it came to know the machine while the UUID was edited. A VM that a
/// call made which was carried out late, when somebody had destroyed the machine's own, never ran: it goes.
fn put_back_uuids(stage: &Stage<'_>) {
    for vm in stage.machines() {
        let vmid = vm.vmid;
        let known = remembered_uuid(stage.scene.state(), &vm).filter(|uuid| *uuid != vm.uuid);
        if let Some(uuid) = known {
            if stage.never_ran(vmid) {
                stage.note(format!("a person destroys VM {vmid}, which never ran"));
                let _ = stage
                    .scene
                    .world
                    .pve
                    .administer(&AdminAct::Destroy { vmid });
                continue;
            }
            stage.note(format!("a person puts back the UUID of VM {vmid}"));
            let (key, value) = ("smbios1".to_owned(), Some(format!("uuid={uuid}")));
            let act = AdminAct::Configure { vmid, key, value };
            let _ = stage.scene.world.pve.administer(&act);
        }
    }
}

/// Puts right what the daemon names as a contradiction: a node's annotation of the time before, and a VM that is off
/// while its node shows the UUID that it had.
async fn end_contradictions(stage: &Stage<'_>, nodes: &[Value]) {
    let pve = &stage.scene.world.pve;
    for vm in stage.machines() {
        let vmid = vm.vmid;
        let Some(node) = nodes.iter().find(|node| is_machine(node, &vm)) else {
            continue;
        };
        let annotation = text(&node["metadata"]["annotations"][MACHINE]);
        if !annotation.is_empty() && !annotation.ends_with(&format!("/{}", vm.uuid)) {
            stage.note(format!("a person takes {annotation} off {}", name(node)));
            let off = json!({"metadata": {"annotations": {MACHINE: null}}});
            patch(stage, name(node), &off).await;
        }
        let shows = text(&node["status"]["nodeInfo"]["systemUUID"]);
        if !vm.running && !shows.eq_ignore_ascii_case(&vm.uuid) {
            stage.note(format!("a person starts VM {vmid}, which is off"));
            let _ = pve.administer(&AdminAct::Start { vmid });
        }
    }
}

/// Whether a node has the name of a VM's machine.
fn is_machine(node: &Value, vm: &VmFacts) -> bool {
    let machine = format!("\"machine\":\"{}\"", name(node));
    vm.description.contains(&machine)
}

/// Destroys what nobody can know to be ours any more: the journal that named it was lost, and it carries no mark. The
/// daemon names each such VM in its warnings.
pub(super) async fn bury(stage: &Stage<'_>) {
    tokio::time::sleep_until(stage.began + STORM).await;
    loop {
        tokio::time::sleep(LOOK).await;
        let forgotten = stage.forgotten();
        let known: Vec<u32> = entries(stage.scene.state()).into_values().collect();
        for vm in stage.scene.world.pve.vms() {
            let vmid = vm.vmid;
            let nobodys = VMIDS.contains(&vmid)
                && !marked(&vm)
                && forgotten.contains(&vmid)
                && !known.contains(&vmid)
                && vm.lock.is_some()
                && stage.scene.world.pve.being_cloned_since(vmid).is_none();
            if nobodys {
                stage.note(format!("a person destroys {vm:?}"));
                let _ = stage
                    .scene
                    .world
                    .pve
                    .administer(&AdminAct::Destroy { vmid });
            }
        }
    }
}
