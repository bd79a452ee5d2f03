//! What disks a machine has, or will have, on which storages.

use model::region::TemplateCopy;

use crate::observed::view::{MachinePhase, MachineView};
use crate::simulation::disks::{Disks, StorageIndexes};

/// Tells of the disks of a machine, by storage: what it will have while it is made, then what its VM has; and whether it is being made, so
/// that what they take is not in use yet.
pub(crate) fn each_of(
    storages: &StorageIndexes,
    machine: &MachineView<'_>,
    mut tell: impl FnMut(Disks, bool),
) {
    let seen = machine.seen;
    let going_up = !matches!(machine.phase, MachinePhase::Leaving | MachinePhase::NoVm);
    let being_made = going_up && machine.is_being_made();
    let there = going_up || seen.vm.is_some();
    let Some(region) = machine.region.filter(|_| there) else {
        return;
    };
    let at = (&*seen.region, &*seen.host);
    let vm = region.vms.get(&seen.mark.vmid);
    let vm = vm.filter(|vm| !vm.disks.is_empty() && *vm.host == *seen.host);
    let copies = region.templates.get(&*seen.mark.template);
    let reach = |copy: &&TemplateCopy| copy.shared || *copy.host == *seen.host;
    let reached = copies.and_then(|copies| copies.iter().find(reach));
    let clone = reached
        .zip(machine.instance_type)
        .filter(|_| being_made || vm.is_none());
    match (clone, vm) {
        (Some((copy, instance_type)), _) => {
            for disks in storages.of_clone(at, (copy, instance_type, &seen.storages), None) {
                tell(disks, being_made);
            }
        }
        (None, Some(vm)) => {
            for disks in storages.of_vm(at, &vm.disks) {
                tell(disks, being_made);
            }
        }
        (None, None) => {}
    }
}
