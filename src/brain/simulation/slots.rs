//! Attach limits of places: what a node says, what nodes of a pool have said, what the configuration gives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::policy::InstanceType;

use crate::constraints::fit::attach::AttachSlots;
use crate::decision::turn::DecisionBuilder;
use crate::observed::view::MachineView;

/// Limits by CSI driver.
type DriverLimits = BTreeMap<Arc<str>, i32>;

/// The limits of a node there is, and what counts against them. While its drivers have not
/// registered, one that is `coming` has what others of its pool have.
pub(crate) fn of_node(
    turn: &DecisionBuilder<'_>,
    name: &str,
    coming: Option<&MachineView<'_>>,
) -> Option<Arc<AttachSlots>> {
    let (view, cluster) = (&turn.view, &turn.view.snapshot.cluster);
    let mut limits = coming.map_or_else(DriverLimits::new, |machine| {
        expected(turn, machine.pool_name(), machine.instance_type)
    });
    for (driver, limit) in cluster.csi_nodes.get(name).into_iter().flatten() {
        match limit {
            Some(limit) => limits.insert(driver.clone(), *limit),
            None => limits.remove(driver),
        };
    }
    if limits.is_empty() {
        return None;
    }
    let pods = view.pods(name).iter().copied();
    let used = view.claims.used(cluster, pods);
    AttachSlots::new(limits, used, view.claims.attached(name).collect())
}

/// The limits of a node that is to be.
pub(crate) fn promised(
    turn: &DecisionBuilder<'_>,
    pool: &str,
    instance_type: Option<&InstanceType>,
) -> Option<Arc<AttachSlots>> {
    AttachSlots::new(
        expected(turn, pool, instance_type),
        BTreeSet::new(),
        BTreeSet::new(),
    )
}

/// The least that a node of the pool has said, and for drivers that none has named what the pool
/// gives, else the instance type.
fn expected(
    turn: &DecisionBuilder<'_>,
    pool: &str,
    instance_type: Option<&InstanceType>,
) -> DriverLimits {
    let csi_nodes = &turn.view.snapshot.cluster.csi_nodes;
    let mut seen = DriverLimits::new();
    if !csi_nodes.is_empty() {
        let of_pool = turn
            .view
            .machines
            .values()
            .filter(|machine| machine.pool_name() == pool);
        let drivers = of_pool
            .filter_map(|machine| csi_nodes.get(machine.node?.0))
            .flatten();
        for (driver, limit) in drivers {
            if let Some(limit) = *limit {
                let least = seen.entry(driver.clone()).or_insert(limit);
                *least = (*least).min(limit);
            }
        }
    }
    let of_pool = turn.view.policy.pools.get(pool);
    let of_pool = of_pool.into_iter().flat_map(|policy| &policy.attach_limits);
    let of_type = instance_type.into_iter().flat_map(|of| &of.attach_limits);
    for (driver, limit) in of_pool.chain(of_type) {
        seen.entry(driver.clone()).or_insert(*limit);
    }
    seen
}
