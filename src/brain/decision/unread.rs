//! VMs that nobody could read since the daemon began: their host is away. By their name they are machines of a pool, and
//! count for its limits until their mark can be read: one machine less is mended later, one too many is paid for.

use std::sync::Arc;

use crate::decision::names;
use crate::decision::turn::DecisionBuilder;
use crate::index::{NodeIndex, PoolIndex};
use model::cluster::Node;
use model::policy::{POOL_LABEL, Policy, REGION_LABEL};
use model::region::{GuestKind, Region, Vm};
use model::snapshot::Snapshot;

/// A VM in the range of its region that has the name of a machine, and that no machine is known to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unread<'a> {
    pub(crate) region: &'a Arc<str>,
    pub(crate) vmid: u32,
    pub(crate) vm: &'a Vm,
    /// The pool by its name, and its index.
    pub(crate) pool: (&'a Arc<str>, PoolIndex),
}

/// All of them, in the order of regions and VMIDs.
pub(crate) fn find<'a>(
    snapshot: &'a Snapshot,
    policy: &'a Policy,
) -> impl Iterator<Item = Unread<'a>> {
    let strange = |name: &str| !snapshot.machines.contains_key(name);
    let vms = unread(snapshot, policy).filter(move |(_, _, vm)| strange(&vm.name));
    vms.filter_map(move |(region, vmid, vm)| {
        let mut pools = policy.pools.iter().enumerate();
        let (index, (pool, _)) = pools
            .find(|(_, (pool, of))| of.at(region).is_some() && names::is_of_pool(&vm.name, pool))?;
        Some(Unread {
            region,
            vmid,
            vm,
            pool: (pool, PoolIndex(index)),
        })
    })
}

/// Nodes of machines in regions of which nothing was read since the start: the pool, and the node. No machine is known
/// behind them where the journal is another's; they count for the limits of a pool that has other regions too.
pub(crate) fn nodes<'t, 'a>(
    turn: &'t DecisionBuilder<'a>,
) -> impl Iterator<Item = (&'a Arc<str>, &'a Node)> + use<'t, 'a> {
    let (view, dark) = (&turn.view, &turn.holds.unread_regions);
    let all = view.snapshot.cluster.nodes.values();
    let all = (0..).map(NodeIndex).zip(all);
    // Mostly there is none.
    let all = all.take(if dark.is_empty() { 0 } else { usize::MAX });
    all.filter_map(move |(index, node)| {
        let unread = node.labels.get(REGION_LABEL);
        let unread = unread.is_some_and(|region| dark.contains_key(region));
        if !unread || view.machine_at(index).is_some() {
            return None;
        }
        let (pool, _) = view
            .policy
            .pools
            .get_key_value(node.labels.get(POOL_LABEL)?)?;
        Some((pool, node))
    })
}

/// VMs in the ranges of their regions that show not even a name, because their host has been away for minutes, and that no
/// machine is known to be: region, VMID, VM. Which pool they are of nobody can tell, so they count for none.
pub(crate) fn nameless<'a>(
    snapshot: &'a Snapshot,
    policy: &'a Policy,
) -> impl Iterator<Item = (&'a Arc<str>, u32, &'a Vm)> {
    let known = |region: &Arc<str>, vmid: u32| {
        let mut machines = snapshot.machines.values();
        machines.any(|machine| machine.region == *region && machine.mark.vmid == vmid)
    };
    let away = |seen: &Region, vm: &Vm| seen.hosts.get(&vm.host).is_some_and(|host| !host.online);
    unread(snapshot, policy).filter(move |(region, vmid, vm)| {
        vm.name.is_empty()
            && !known(region, *vmid)
            && snapshot
                .regions
                .get(*region)
                .is_some_and(|seen| away(seen, vm))
    })
}

/// VMs whose configuration nobody has read, in the ranges of their regions.
fn unread<'a>(
    snapshot: &'a Snapshot,
    policy: &'a Policy,
) -> impl Iterator<Item = (&'a Arc<str>, u32, &'a Vm)> {
    let regions = snapshot.regions.iter();
    regions.flat_map(move |(region, seen)| {
        let ours = policy.regions.get(region);
        let vms = seen.vms.iter().filter(move |(vmid, vm)| {
            vm.ownership.is_none()
                && vm.kind == GuestKind::Qemu
                && !vm.template
                && ours.is_some_and(|ours| (ours.vmid_first..=ours.vmid_last).contains(*vmid))
        });
        vms.map(move |(vmid, vm)| (region, *vmid, vm))
    })
}
