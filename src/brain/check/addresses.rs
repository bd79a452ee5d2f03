//! The addresses of a new machine: those that its pool's networks give, and nothing else has them.

use core::net::IpAddr;
use std::collections::BTreeSet;

use super::{Case, CheckResult, CheckRule, ensure, refuse};
use model::action::CreateSpec;
use model::policy::PoolPolicy;

pub(super) fn check(case: Case<'_>, spec: &CreateSpec, pool: &PoolPolicy) -> CheckResult {
    let addresses = &spec.mark.addresses;
    ensure(
        addresses.keys().eq(pool.networks.keys()),
        CheckRule::Address,
        || {
            format!(
                "it has addresses for {} network cards, its pool's machines have them for {}",
                addresses.len(),
                pool.networks.len()
            )
        },
    )?;
    let mut own = BTreeSet::new();
    for (card, name) in &pool.networks {
        let Some(network) = case.policy.networks.get(name) else {
            return refuse(
                CheckRule::Address,
                format!("no network {name} is configured"),
            );
        };
        let of_card = &addresses[card];
        for address in of_card {
            ensure(network.contains(*address), CheckRule::Address, || {
                format!("{address} is not in the ranges of the network {name}")
            })?;
            ensure(own.insert(*address), CheckRule::Address, || {
                format!("{address} would be on two of its network cards")
            })?;
        }
        let is_ipv6 = |address: &&IpAddr| address.is_ipv6();
        let sixes = of_card.iter().filter(is_ipv6).count();
        let given = |six: bool| {
            let mut ranges = network.ranges.iter();
            usize::from(ranges.any(|range| range.first.is_ipv6() == six))
        };
        ensure(
            sixes == given(true) && of_card.len() - sixes == given(false),
            CheckRule::Address,
            || format!("it has not one address of each family that the network {name} gives"),
        )?;
    }
    own.iter().try_for_each(|address| free(case, *address))
}

/// Nothing else has the address, as far as anybody can see.
fn free(case: Case<'_>, address: IpAddr) -> CheckResult {
    let snapshot = case.snapshot;
    let taken = |by: String| refuse(CheckRule::Address, format!("{address} is taken by {by}"));
    for (region, seen) in &snapshot.regions {
        for (vmid, vm) in seen.vms.iter().filter(|(_, vm)| !vm.template) {
            if vm.addresses.iter().flatten().any(|of| *of == address) {
                return taken(format!("the guest {vmid} of the region {region}"));
            }
        }
    }
    for (name, node) in &snapshot.cluster.nodes {
        if node.addresses.contains(&address) {
            return taken(format!("the node {name}"));
        }
    }
    for (name, machine) in &snapshot.machines {
        if machine
            .mark
            .addresses
            .values()
            .flatten()
            .any(|of| *of == address)
        {
            return taken(format!("the machine {name}"));
        }
    }
    if snapshot.on_wire.contains_key(&address) {
        return taken("somebody who has it on the wire".to_owned());
    }
    Ok(())
}
