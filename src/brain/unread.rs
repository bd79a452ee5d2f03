//! VMs that nobody could read since the daemon began: their host is away. By their name they are machines of a pool, and
//! count for its limits until their mark can be read: one machine less is mended later, one too many is paid for.

use std::sync::Arc;

use super::names;
use crate::model::policy::Policy;
use crate::model::region::{GuestKind, Vm};
use crate::model::snapshot::Snapshot;

/// A VM in the range of its region that has the name of a machine, and that no machine is known to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unread<'a> {
    pub(super) region: &'a Arc<str>,
    pub(super) vmid: u32,
    pub(super) vm: &'a Vm,
    /// The pool by its name, and its position in [`Policy::pools`].
    pub(super) pool: (&'a Arc<str>, usize),
}

/// All of them, in the order of regions and VMIDs.
pub(super) fn find<'a>(
    snapshot: &'a Snapshot,
    policy: &'a Policy,
) -> impl Iterator<Item = Unread<'a>> {
    let regions = snapshot.regions.iter();
    regions.flat_map(move |(region, seen)| {
        let ours = policy.regions.get(region);
        let vms = seen.vms.iter().filter(move |(vmid, vm)| {
            vm.ownership.is_none()
                && vm.kind == GuestKind::Qemu
                && !vm.template
                && ours.is_some_and(|ours| (ours.vmid_first..=ours.vmid_last).contains(*vmid))
                && !snapshot.machines.contains_key(&vm.name)
        });
        vms.filter_map(move |(vmid, vm)| {
            let mut pools = policy.pools.iter().enumerate();
            let (slot, (pool, _)) = pools.find(|(_, (pool, of))| {
                of.region == *region && names::is_of_pool(&vm.name, pool)
            })?;
            Some(Unread {
                region,
                vmid: *vmid,
                vm,
                pool: (pool, slot),
            })
        })
    })
}
