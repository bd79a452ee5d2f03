//! What persons with PVE's own tools do to our machines and to their hosts.

use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::pve::{AdminAct, GIB, MachineSpec, VmFacts};
use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use super::VMIDS;
use super::remedy::Remedy;
use super::stage::Stage;

/// Storage of machines that somebody else makes.
const STORAGE: &str = "shared";
/// A call that was carried out late, or a task that waited for a lock, has ended by then.
const STILL: Span = Span::minutes(6);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Act {
    /// `qm set --name`.
    Rename,
    /// `qm set --description`: around the mark, or over it.
    EditNotes,
    /// `qm set --protection`.
    Protect,
    /// `qm set --smbios1`.
    EditUuid,
    /// `ha-manager add`.
    Ha,
    /// `qm migrate`.
    Migrate,
    /// `qm snapshot` holds the VM.
    Snapshot,
    /// `vzdump` holds the VM.
    Backup,
    /// `qm stop`.
    Stop,
    /// `qm destroy`.
    Destroy,
    /// A worker is killed.
    KillTask,
    /// A host loses its power.
    HostOff,
    /// The cluster loses its quorum.
    Quorum,
    /// `qm clone` of one of our machines, with its notes.
    Copy,
}

pub(super) const ALL: [Act; 14] = [
    Act::Rename,
    Act::EditNotes,
    Act::Protect,
    Act::EditUuid,
    Act::Ha,
    Act::Migrate,
    Act::Snapshot,
    Act::Backup,
    Act::Stop,
    Act::Destroy,
    Act::KillTask,
    Act::HostOff,
    Act::Quorum,
    Act::Copy,
];

/// Does it, and says what undoes it; `None` when there is nobody whom it can happen to.
pub(super) fn perform(act: Act, stage: &Stage<'_>, rng: &mut StdRng) -> Option<Remedy> {
    let host = ["pve2", "pve3"].choose(rng).copied()?.to_owned();
    let (act, remedy) = match act {
        Act::KillTask => {
            let tasks = stage.scene.world.pve.running_tasks();
            let upid = tasks.choose(rng)?.clone();
            (AdminAct::KillTask { upid }, Remedy::Nothing)
        }
        Act::HostOff => {
            let power = |online| AdminAct::HostOnline {
                host: host.clone(),
                online,
            };
            (power(false), Remedy::Pve(vec![power(true)]))
        }
        Act::Quorum => {
            let back = Remedy::Pve(vec![AdminAct::Quorum(true)]);
            (AdminAct::Quorum(false), back)
        }
        _ => {
            let machines = stage.machines();
            let machine = machines.choose(rng)?;
            to_machine(act, stage, rng, machine, host)?
        }
    };
    stage.scene.world.pve.administer(&act).ok()?;
    stage.note(format!("{act:?}"));
    Some(remedy)
}

fn to_machine(
    act: Act,
    stage: &Stage<'_>,
    rng: &mut StdRng,
    vm: &VmFacts,
    host: String,
) -> Option<(AdminAct, Remedy)> {
    let vmid = vm.vmid;
    let edited = |key: &'static str, value: Option<String>| {
        let back = Remedy::Config {
            vmid,
            generation: stage.generation(vmid),
            key,
            value: vm.config.get(key).cloned(),
        };
        let key = key.to_owned();
        Some((AdminAct::Configure { vmid, key, value }, back))
    };
    match act {
        Act::Rename => edited("name", Some(format!("my-{vmid}"))),
        Act::EditNotes => {
            let notes = vm.config.get("description")?;
            let notes = match rng.random_range(0..4) {
                0 => format!("ask Ann before you touch it\n\n{notes}"),
                1 => format!("{notes}\n\nask Ann before you touch it"),
                2 => notes.trim_end().trim_end_matches('}').to_owned(),
                _ => "mine".to_owned(),
            };
            edited("description", Some(notes))
        }
        Act::Protect => {
            // Before its first configuration it has the protection of its template.
            let (act, back) = edited("protection", Some("1".to_owned()))?;
            (vm.config.get("protection").map(String::as_str) != Some("1")).then_some((act, back))
        }
        Act::EditUuid => {
            let other = format!("uuid=0badcafe-0000-4000-8000-00000000{vmid:04}");
            let values = [Some(other), Some("manufacturer=acme".to_owned()), None];
            edited("smbios1", values.choose(rng)?.clone())
        }
        Act::Ha => {
            let states = ["started", "stopped", "ignored"];
            let state = Some((*states.choose(rng)?).to_owned());
            let taken = AdminAct::Ha { vmid, state: None };
            Some((AdminAct::Ha { vmid, state }, Remedy::Pve(vec![taken])))
        }
        Act::Migrate => Some((AdminAct::Migrate { vmid, host }, Remedy::Nothing)),
        Act::Snapshot => locked(stage, vm, "snapshot"),
        Act::Backup => locked(stage, vm, "backup"),
        Act::Stop if vm.running => Some((AdminAct::PowerOff { vmid }, Remedy::Nothing)),
        Act::Destroy => Some((AdminAct::Destroy { vmid }, Remedy::Nothing)),
        Act::Copy => copy(stage, rng, vm),
        _ => None,
    }
}

fn locked(stage: &Stage<'_>, vm: &VmFacts, lock: &'static str) -> Option<(AdminAct, Remedy)> {
    let vmid = vm.vmid;
    let act = AdminAct::Lock {
        vmid,
        lock: Some(lock.to_owned()),
    };
    let back = Remedy::Unlock {
        vmid,
        generation: stage.generation(vmid),
        lock,
    };
    vm.lock.is_none().then_some((act, back))
}

/// A copy of a machine, mark and all, in our range or beside it, but not where a call may still be on its way that was
/// meant for another VM.
fn copy(stage: &Stage<'_>, rng: &mut StdRng, vm: &VmFacts) -> Option<(AdminAct, Remedy)> {
    let pve = &stage.scene.world.pve;
    let vmid = if rng.random_bool(0.5) {
        9200
    } else {
        rng.random_range(VMIDS)
    };
    let now = stage.scene.world.clock.now();
    let changes = pve.changes();
    let mut late = changes.iter().filter(|change| now.since(change.at) < STILL);
    if late.any(|change| change.vmid == vmid) || pve.vm(vmid).is_some() {
        return None;
    }
    let uuid = format!("uuid=c0b1e500-0000-4000-8000-00000000{vmid:04}");
    let config = [
        ("name", format!("copy-of-{}", vm.name)),
        ("description", vm.description.clone()),
        ("smbios1", uuid),
    ];
    let spec = MachineSpec {
        vmid,
        host: "pve1".to_owned(),
        container: false,
        template: false,
        running: true,
        storage: STORAGE.to_owned(),
        disk: 4 * GIB,
        disk_used: GIB,
        cloudinit: false,
        pool: None,
        config: config.map(|(key, value)| (key.to_owned(), value)).into(),
    };
    // As long as there is a copy nobody is sure of its original: it is named, and goes by hand.
    let back = Remedy::Destroy {
        vmid,
        generation: stage.generation(vmid) + 1,
    };
    Some((AdminAct::AddMachine(spec), back))
}
