//! What was left behind: VMs of ours without node, nodes of ours without VM, VMs that nobody may
//! touch. Everything waits out a quarantine first.

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use model::action::{Kind, NodeRef, Precondition, Reason, Target, is_being_made};
use model::cluster::{Node, ReadyStatus};
use model::identity;
use model::mark::Ownership;
use model::policy::{MACHINE_ANNOTATION, POOL_LABEL, Policy, REGION_LABEL};
use model::reasons::{Lost, Orphan, VmAt, Warning};
use model::region::{Host, Region, Vm};
use model::snapshot::Snapshot;

use crate::decision::turn::{self, DecisionBuilder};
use crate::index::NodeIndex;
use crate::observed::view::{MachinePhase, MachineView, SnapshotView};

/// Sweeps both ways, and names what a person should look at.
pub(crate) fn plan(turn: &mut DecisionBuilder<'_>) {
    let half = |machine: &MachineView<'_>| {
        matches!(machine.phase, MachinePhase::NoNode | MachinePhase::NoVm)
    };
    let lost = too_many_lost(turn);
    let machines = std::mem::take(&mut turn.view.machines);
    for machine in machines.values().filter(|machine| half(machine)) {
        if machine.pool.is_some() && !machine.busy() {
            halves(turn, machine, lost);
        }
    }
    turn.view.machines = machines;
    let nodes = &turn.view.snapshot.cluster.nodes;
    for (index, (name, node)) in (0..).map(NodeIndex).zip(nodes) {
        if turn.view.machine_at(index).is_none() {
            orphan_node(turn, name, node);
        }
    }
    foreign(turn);
    former(turn);
    refused_nominations(turn);
}

/// Says that pods are not nominated for their nodes, though the configuration wants it.
fn refused_nominations(turn: &mut DecisionBuilder<'_>) {
    if turn.view.policy.scale_up.nominate_pods && turn.view.snapshot.nominations_refused {
        turn.warn(Warning::NominationsRefused);
    }
}

/// Says that the journal has machines of another cluster.
fn former(turn: &mut DecisionBuilder<'_>) {
    for (cluster, machines) in &turn.view.snapshot.former {
        turn.warn(Warning::FormerCluster {
            cluster: cluster.as_ref().into(),
            machines: machines.len(),
        });
    }
}

/// Whether so many running machines have lost their Node at once that this is a fault of the API server,
/// one that was set back to an older state for instance, and their pods run on (the limits of cluster health:
/// `ok-total-unready-count`, `max-total-unready-percentage`). A Node comes back with its kubelet's next start.
fn too_many_lost(turn: &mut DecisionBuilder<'_>) -> bool {
    let runs = |machine: &&MachineView<'_>| {
        let vm = machine.seen.vm.as_ref();
        vm.is_some_and(|vm| vm.marked && vm.running)
    };
    let running = turn.view.machines.values().filter(runs).count();
    let running_machines = turn.view.machines.values().filter(runs);
    let lost = running_machines
        .filter(|machine| machine.phase == MachinePhase::NoNode)
        .count();
    let settings = &turn.view.policy.scale_down;
    let many = !planted!(ManyLostIgnored)
        && lost > settings.ok_total_unready as usize
        && lost * 100 > settings.max_total_unready_percent as usize * running;
    if many && turn.holds.unread().is_none() {
        turn.warn(Warning::NodesLost { lost, running });
    }
    many
}

/// A machine that has lost its node or its VM. `lost`: too many have lost their node.
fn halves(turn: &mut DecisionBuilder<'_>, machine: &MachineView<'_>, lost: bool) {
    let region = &machine.seen.region;
    let good = turn.holds.may_observe_in(region);
    let max_view_age = turn.view.policy.scale_down.max_view_age;
    let (kind, reason) = match machine.phase {
        MachinePhase::NoNode if machine.seen.vm.as_ref().is_some_and(|vm| vm.marked) => {
            (Kind::Remove { drain: false }, Reason::NoNode)
        }
        MachinePhase::NoVm if machine.node.is_none() => (Kind::DropIntent, Reason::NoVm),
        MachinePhase::NoVm if !machine.ready() || planted!(ReadyNodeDeleted) => {
            (Kind::DeleteNode, Reason::NoVm)
        }
        _ => return,
    };
    if !turn.quarantine_over(&format!("machine/{}", machine.name), good) {
        let what = match reason {
            Reason::NoNode => Lost::Node,
            _ if unmarked(machine) => Lost::Mark,
            _ => Lost::Vm,
        };
        if turn.holds.unread_in(region).is_none() {
            turn.warn(Warning::Quarantined {
                machine: machine.name.clone(),
                lost: what,
            });
        }
        return;
    }
    let stays = lost && reason == Reason::NoNode;
    let may = match kind {
        // Nothing is lost with it, and its node counts as dead only after that: an unhealthy cluster would hold both for ever.
        Kind::DropIntent => turn.holds.may_clear(region),
        _ => turn.holds.may_shrink(region),
    };
    if !stays && may.is_ok() {
        turn.act(
            kind,
            turn::target(machine),
            turn::precondition(machine, max_view_age),
            reason,
        );
    }
}

/// Whether a VM has the machine's VMID that is not its own any more: somebody took the mark out of its notes.
fn unmarked(machine: &MachineView<'_>) -> bool {
    let vmid = &machine.seen.mark.vmid;
    machine
        .region
        .is_some_and(|region| region.vms.contains_key(vmid))
}

/// A node that says it is ours, and whose machine is not known.
fn orphan_node(turn: &mut DecisionBuilder<'_>, name: &Arc<str>, node: &Node) {
    let pool = node.labels.get(POOL_LABEL);
    if !says_ours(node) {
        return;
    }
    // Its machine is told of by name, with all that contradicts.
    if contradicted(&turn.view, name) {
        return;
    }
    // Its machine may be in what was not read yet.
    let unread = turn.holds.unread().is_some();
    let warn = |decision: &mut DecisionBuilder<'_>, orphan: Orphan| {
        if !unread {
            decision.warn(Warning::OrphanNode {
                node: name.clone(),
                orphan,
            });
        }
    };
    if node.deletion.is_some() {
        return warn(turn, Orphan::Deleted);
    }
    let Some(target) = claimed(&turn.view, name, node) else {
        return warn(turn, Orphan::Unchecked);
    };
    let gone = gone(&turn.view, &target, node);
    let known_pool = pool.is_some_and(|pool| turn.view.policy.pools.contains_key(pool));
    let ready = node.ready.status == ReadyStatus::True && !planted!(ReadyNodeDeleted);
    if !gone || !known_pool || ready {
        return warn(turn, Orphan::LeftAlone);
    }
    let good = turn.holds.may_observe_in(&target.region);
    if !turn.quarantine_over(&format!("node/{name}/{}", node.uid), good) {
        return warn(turn, Orphan::Quarantined);
    }
    if turn.holds.may_shrink(&target.region).is_ok() {
        let max_view_age = turn.view.policy.scale_down.max_view_age;
        let precondition = Precondition {
            max_view_age,
            ..Precondition::default()
        };
        turn.act(Kind::DeleteNode, target, precondition, Reason::NoVm);
    }
}

/// Whether a node shows a sign of a machine whose node is contradicted.
fn contradicted(view: &SnapshotView<'_>, name: &Arc<str>) -> bool {
    let machines = view.machines.values();
    let mut found = machines.filter_map(|machine| machine.seen.contradiction.as_ref());
    found.any(|found| found.nodes.contains(name))
}

/// Whether a node says that it is ours.
fn says_ours(node: &Node) -> bool {
    node.annotations.contains_key(MACHINE_ANNOTATION) || node.labels.contains_key(POOL_LABEL)
}

/// Which VM a node says is behind it. The annotation must agree with what the kubelet read from the
/// VM's firmware; without an annotation the labels tell the region, and the name must do.
fn claimed(view: &SnapshotView<'_>, name: &Arc<str>, node: &Node) -> Option<Target> {
    let (region, vmid): (Arc<str>, u32) = match node.annotations.get(MACHINE_ANNOTATION) {
        Some(text) => {
            let named = identity::named(text)?;
            if !named.uuid.eq_ignore_ascii_case(&node.system_uuid) {
                return None;
            }
            (named.region.into(), named.vmid)
        }
        None => (node.labels.get(REGION_LABEL)?.clone(), 0),
    };
    view.policy.regions.get(&region)?;
    Some(Target {
        region,
        host: Arc::from(""),
        vmid,
        machine: name.clone(),
        node: Some(NodeRef {
            name: name.clone(),
            uid: node.uid.clone(),
        }),
    })
}

/// Whether nothing in the region can be the VM of this node: neither a VM with its UUID, nor one with its VMID
/// or its name that does not show another UUID (VMIDs are used again), nor a machine of its name or with a
/// UUID that was or is its own.
fn gone(view: &SnapshotView<'_>, target: &Target, node: &Node) -> bool {
    let Some(region) = view.snapshot.regions.get(&target.region) else {
        return false;
    };
    let same = |uuid: &Arc<str>| uuid.eq_ignore_ascii_case(&node.system_uuid);
    let may_be = |(vmid, vm): (&u32, &Vm)| {
        let called = *vmid == target.vmid || vm.name == target.machine;
        vm.uuid.as_ref().map_or(called, same)
    };
    let same_uuid = |machine: &MachineView<'_>| {
        let uuid = machine.seen.vm.as_ref().and_then(|vm| vm.uuid.as_ref());
        let uuids = [uuid, machine.seen.remembered.as_ref()];
        uuids.into_iter().flatten().any(same)
    };
    !region.vms.iter().any(may_be)
        && view.machines.get(&target.machine).is_none()
        && !view.machines.values().any(same_uuid)
}

/// Whether PVE shows that nothing runs behind a node of ours: its VM is gone, or switched off on a
/// host that answers. Such a node is no sign of a fault between us and the nodes.
pub(crate) fn dead(view: &SnapshotView<'_>, name: &Arc<str>, node: &Node) -> bool {
    let Some(machine) = view.machine_of_node(name) else {
        let claimed = claimed(view, name, node).filter(|_| says_ours(node));
        return claimed.is_some_and(|target| gone(view, &target, node));
    };
    let answers = |host: &Arc<str>| {
        machine.region.is_some_and(|region| {
            region.quorate && region.hosts.get(host).is_some_and(Host::answers)
        })
    };
    match &machine.seen.vm {
        None => machine.phase == MachinePhase::NoVm,
        Some(vm) => !vm.running && answers(&machine.seen.host),
    }
}

/// VMs in our range, or with our mark, that are not what they should be.
fn foreign(turn: &mut DecisionBuilder<'_>) {
    let snapshot = turn.view.snapshot;
    // Without the cluster's id nobody can tell our marks from others'.
    if snapshot.cluster_id.is_none() {
        return;
    }
    let mut warnings = Vec::new();
    // Mostly every VM has its mark, and nobody asks.
    let intents: LazyCell<BTreeSet<(&str, u32)>, _> = LazyCell::new(|| {
        let machines = snapshot.machines.values();
        let intended = machines.filter(|machine| machine.intended);
        intended
            .map(|machine| (&*machine.region, machine.mark.vmid))
            .collect()
    });
    for (region_name, policy) in &turn.view.policy.regions {
        let Some(region) = snapshot.regions.get(region_name) else {
            continue;
        };
        for (vmid, vm) in &region.vms {
            let in_range = (policy.vmid_first..=policy.vmid_last).contains(vmid);
            let intended = || intents.contains(&(&**region_name, *vmid));
            let id = snapshot.cluster_id.as_deref();
            let at = || VmAt {
                region: region_name.clone(),
                vmid: *vmid,
                name: vm.name.clone(),
            };
            warnings.extend(strange(vm, at, (id, in_range), intended));
            warnings.extend(vm.unread.as_ref().map(|why| Warning::UnreadRow {
                vm: at(),
                host: vm.host.clone(),
                why: why.clone(),
            }));
        }
        warnings.extend(unread_hosts(region_name, region));
    }
    warnings.extend(unread(snapshot, turn.view.policy));
    for warning in warnings {
        turn.warn(warning);
    }
}

/// What is to be said of hosts that are there and whose free capacity nobody knows.
fn unread_hosts(name: &Arc<str>, region: &Region) -> Vec<Warning> {
    let unread = region.hosts.iter().filter(|(_, seen)| seen.online);
    let unread = unread.filter_map(|(host, seen)| {
        Some(Warning::UnreadHost {
            region: name.clone(),
            host: host.clone(),
            why: seen.unread.clone()?,
        })
    });
    unread.collect()
}

/// What is to be said of one VM, which is where `at` says. `id`: our cluster's; `intended`: whether a machine is to have its VMID.
fn strange(
    vm: &Vm,
    at: impl Fn() -> VmAt,
    (id, in_range): (Option<&str>, bool),
    intended: impl Fn() -> bool,
) -> Option<Warning> {
    match &vm.ownership {
        Some(Ownership::Damaged(damage)) => Some(Warning::DamagedMark {
            vm: at(),
            damage: damage.clone(),
        }),
        Some(Ownership::UnknownVersion(version)) => Some(Warning::UnknownMark {
            vm: at(),
            version: version.clone(),
        }),
        Some(Ownership::Marked(mark)) if Some(&*mark.cluster) != id => {
            in_range.then(|| Warning::OtherCluster {
                vm: at(),
                cluster: mark.cluster.as_str().into(),
            })
        }
        Some(Ownership::Marked(mark)) => (mark.vmid != at().vmid).then(|| Warning::CopiedMark {
            vm: at(),
            original: mark.vmid,
            machine: mark.machine.as_str().into(),
        }),
        Some(Ownership::Unmarked) if !in_range || intended() => None,
        Some(Ownership::Unmarked) if vm.lock.as_deref() == Some("destroyed") => {
            Some(Warning::HalfDestroyed {
                vm: at(),
                host: vm.host.clone(),
            })
        }
        Some(Ownership::Unmarked) if vm.template => None,
        Some(Ownership::Unmarked) => Some(match &vm.trial_of {
            Some(template) => Warning::TrialVm {
                vm: at(),
                template: template.clone(),
            },
            None => Warning::ForeignVm {
                vm: at(),
                being_made: is_being_made(vm.lock.as_deref()),
            },
        }),
        None => None,
    }
}

/// What is to be said of VMs that nobody could read since the daemon began.
fn unread(snapshot: &Snapshot, policy: &Policy) -> Vec<Warning> {
    let named = crate::decision::unread::find(snapshot, policy).map(|unread| {
        let (vm, (pool, _)) = (unread.vm, unread.pool);
        Warning::UnreadMachine {
            vm: VmAt {
                region: unread.region.clone(),
                vmid: unread.vmid,
                name: vm.name.clone(),
            },
            host: vm.host.clone(),
            pool: pool.clone(),
        }
    });
    let nameless = crate::decision::unread::nameless(snapshot, policy).map(|(region, vmid, vm)| {
        Warning::UnreadVm {
            region: region.clone(),
            vmid,
            host: vm.host.clone(),
        }
    });
    named.chain(nameless).collect()
}
