//! Every network in numbers: what it has to give, and what is free of it.

use model::policy::PoolPolicy;
use model::report::NetworkState;

use crate::decision::addresses::AddressBook;
use crate::decision::turn::DecisionBuilder;

/// Writes the networks into the report.
pub(crate) fn report(turn: &mut DecisionBuilder<'_>) {
    if turn.view.policy.networks.is_empty() {
        return;
    }
    let book = AddressBook::of(turn);
    let holders = &turn.view.snapshot.on_wire;
    // From then on an address is given again, and asked for again before that.
    if let Some(until) = holders.values().map(|holder| holder.until).min() {
        turn.wake_at(until);
    }
    for (name, network) in &turn.view.policy.networks {
        let users = turn.view.policy.pools.values();
        let users = users.flat_map(PoolPolicy::everywhere);
        let mut users = users.filter(|pool| pool.networks.values().any(|of| of == name));
        let unread = users.any(|pool| turn.holds.unread_in(&pool.region).is_some());
        if unread {
            continue;
        }
        let number = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        let states = network.families().map(|family| {
            let on_wire = book.on_wire(network, family);
            let on_wire =
                on_wire.filter_map(|address| Some((*address, holders.get(address)?.clone())));
            let state = NetworkState {
                ranges: network.words(family),
                size: number(network.size(family)),
                free: number(book.free(network, family)),
                note: book.closed(name).map(ToString::to_string),
                note_details: book.closed(name).cloned(),
                on_wire: on_wire.collect(),
            };
            (family, state)
        });
        let states = states.collect();
        turn.report.networks.insert(name.clone(), states);
    }
}
