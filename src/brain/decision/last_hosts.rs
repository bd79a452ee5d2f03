//! The host that the last machine of a pool was planned on: where the next round of `round-robin` begins.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::action::{Action, Kind};
use model::hosts::HostStrategy;
use model::memory::Memory;
use model::policy::Policy;
use model::snapshot::Snapshot;

/// Remembers the hosts of machines that are planned now.
pub(super) fn remember(memory: &mut Memory, plan: &[Action], policy: &Policy, snapshot: &Snapshot) {
    let in_turn = |name: &Arc<str>| {
        let pool = policy.pools.get(name);
        pool.filter(|pool| pool.host_rules.strategy == HostStrategy::RoundRobin)
    };
    memory.last_hosts.retain(|name, _| in_turn(name).is_some());
    let mut made: BTreeMap<&Arc<str>, BTreeMap<&Arc<str>, usize>> = BTreeMap::new();
    for action in plan {
        let Kind::Create(spec) = &action.kind else {
            continue;
        };
        if let Some((name, _)) = policy.pools.get_key_value(spec.mark.pool.as_str()) {
            let of_pool = made.entry(name).or_default();
            *of_pool.entry(&action.target.host).or_default() += 1;
        }
    }
    for (name, by_host) in made {
        let Some(region) = in_turn(name).and_then(|pool| snapshot.regions.get(&pool.region)) else {
            continue;
        };
        let hosts: Vec<&Arc<str>> = region.hosts.keys().collect();
        let place = |host: &Arc<str>| hosts.iter().position(|other| *other == host);
        let next = memory.last_hosts.get(name).and_then(place);
        let next = next.map_or(0, |last| last + 1);
        // Hosts that got one more than others came later; of those, the one that comes last in the round.
        let turn = |host: &Arc<str>| place(host).map(|at| (at + hosts.len() - next) % hosts.len());
        let last = by_host
            .into_iter()
            .max_by_key(|(host, count)| (*count, turn(host)));
        if let Some((host, _)) = last {
            memory.last_hosts.insert(name.clone(), host.clone());
        }
    }
}
