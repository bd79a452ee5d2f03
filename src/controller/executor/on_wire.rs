//! Before anything is asked of PVE for a new machine, its addresses are asked for on the wire, where their network wants that.
//!
//! The machine has its intent by then, so that the brain gives nobody else its addresses in the meantime. If somebody has one the
//! intent goes, for nothing else is there of the machine, and the next turn makes another one; where many addresses in a row were
//! somebody's, only after a pause.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use futures::future::join_all;
use tokio::time::sleep;

use crate::controller::journal::JournalEntry;

use super::work::{Stop, Work};

/// Whether addresses of the machine are to be asked for before its clone is.
pub(super) fn is_due(work: &Work, entry: &JournalEntry) -> bool {
    !due(work, entry).is_empty()
}

/// The machine's addresses that are to be asked for now, with their networks. A machine whose clone was asked for may be there, and has
/// its addresses itself.
fn due(work: &Work, entry: &JournalEntry) -> Vec<(Arc<str>, IpAddr)> {
    let untouched = entry.upid.is_none() && entry.unanswered_clone.is_none() && !entry.was_ours();
    if !untouched || planted!(WireNotAsked) {
        return Vec::new();
    }
    wanted(work, &entry.target.region)
}

/// Stops, and gives the machine up, when somebody has one of its addresses on the wire.
pub(super) async fn nobody_answers(work: &Work) -> Result<(), Stop> {
    let asked = due(work, &work.entry()?);
    if asked.is_empty() {
        return Ok(());
    }
    work.progress("whether somebody has its address on the wire");
    let tools = &work.tools;
    let answers = asked.iter().map(|(network, address)| async move {
        let holder = tools.wire.ask(*address, tools.clock).await;
        (network, address, holder)
    });
    let mut held: BTreeMap<&Arc<str>, bool> = BTreeMap::new();
    let mut found = Vec::new();
    for (network, address, holder) in join_all(answers).await {
        *held.entry(network).or_default() |= holder.is_some();
        found.extend(holder.map(|holder| format!(
            "{address} of the network {network} {holder}: no machine gets it until {}; if it stays in use, `exclude` it in [network.{network}]",
            holder.until
        )));
    }
    let pauses = held
        .into_iter()
        .map(|(network, held)| tools.wire.pause(network, held));
    let pause = pauses.max().unwrap_or_default();
    if found.is_empty() {
        return Ok(());
    }
    if !pause.is_zero() {
        work.progress(
            "whether another address is free: somebody had each of the last ones on the wire",
        );
        sleep(pause).await;
    }
    tools.journal.remove(&work.machine)?;
    Err(Stop::Transient(format!(
        "{}; it is made anew with another address",
        found.join("; ")
    )))
}

/// The machine's addresses that are to be asked for, with their networks.
fn wanted(work: &Work, region: &str) -> Vec<(Arc<str>, IpAddr)> {
    let settings = &work.tools.settings;
    let pool = settings.policy.pools.get(work.mark.pool.as_str());
    let Some(pool) = pool.and_then(|pool| pool.at(region)) else {
        return Vec::new();
    };
    let cards = work.mark.addresses.iter();
    let cards = cards.filter_map(|(card, addresses)| {
        let name = pool.networks.get(card)?;
        let asks = settings.networks.get(name)?.ask_on_wire;
        asks.then_some((name, addresses))
    });
    let all = cards.flat_map(|(name, addresses)| {
        let addresses = addresses.iter();
        addresses.map(move |address| (name.clone(), *address))
    });
    all.collect()
}
