//! The host that the last machine of a pool was planned on: where the next round of `round-robin` begins.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::action::{Action, Kind};
use model::hosts::HostStrategy;
use model::memory::Memory;
use model::policy::Policy;
use model::snapshot::Snapshot;

/// A region with one of its hosts.
type HostInRegion<'a> = (&'a Arc<str>, &'a Arc<str>);

/// Remembers the hosts of machines that are planned now.
pub(super) fn remember(memory: &mut Memory, plan: &[Action], policy: &Policy, snapshot: &Snapshot) {
    let in_turn = |name: &Arc<str>| {
        let pool = policy.pools.get(name);
        pool.filter(|pool| pool.host_rules.strategy == HostStrategy::RoundRobin)
    };
    memory.last_hosts.retain(|name, _| in_turn(name).is_some());
    let mut made: BTreeMap<&Arc<str>, BTreeMap<HostInRegion<'_>, usize>> = BTreeMap::new();
    for action in plan {
        let Kind::Create(spec) = &action.kind else {
            continue;
        };
        if let Some((name, _)) = policy.pools.get_key_value(spec.mark.pool.as_str()) {
            let of_pool = made.entry(name).or_default();
            let at = (&action.target.region, &action.target.host);
            *of_pool.entry(at).or_default() += 1;
        }
    }
    for (name, by_host) in made {
        let Some(pool) = in_turn(name) else {
            continue;
        };
        let regions = snapshot.regions.iter();
        let regions = regions.filter(|(region, _)| pool.at(region).is_some());
        let hosts: Vec<HostInRegion<'_>> = regions
            .flat_map(|(region, seen)| seen.hosts.keys().map(move |host| (region, host)))
            .collect();
        let place = |at: HostInRegion<'_>| hosts.iter().position(|other| *other == at);
        let last = memory.last_hosts.get(name);
        let next = last.and_then(|last| {
            hosts
                .iter()
                .position(|at| pool.host_key(at.0, at.1) == *last)
        });
        let next = next.map_or(0, |position| position + 1);
        // Hosts that got one more than others came later; of those, the one that comes last in the round.
        let turn =
            |at: HostInRegion<'_>| place(at).map(|at| (at + hosts.len() - next) % hosts.len());
        let latest = by_host
            .into_iter()
            .max_by_key(|(at, count)| (*count, turn(*at)));
        if let Some(((region, host), _)) = latest {
            let key = pool.host_key(region, host);
            memory.last_hosts.insert(name.clone(), key);
        }
    }
}
