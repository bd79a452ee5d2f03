//! Networks as text for people. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::render::{one_line, section};
use crate::model::network::Family;
use crate::model::report::NetworkState;
use crate::model::words;

/// Addresses that are named in one row.
const MAX_NAMED: usize = 5;

/// Networks and what they still have to give.
pub(super) fn table(
    text: &mut String,
    networks: &BTreeMap<Arc<str>, BTreeMap<Family, NetworkState>>,
) {
    let states = networks.iter().flat_map(|(name, families)| {
        let states = families.values();
        states.map(move |state| (name, state))
    });
    let rows = states.map(|(name, state)| {
        vec![
            name.to_string(),
            one_line(&state.ranges),
            format!("{} of {}", state.free, state.size),
            one_line(&note(state)),
        ]
    });
    let heading = ["NETWORK", "ADDRESSES", "FREE", "NOTE"];
    section(text, "Networks", &heading, rows.collect());
}

/// Why no address is given now, and which ones somebody has on the wire.
fn note(state: &NetworkState) -> String {
    let found = state.on_wire.iter().take(MAX_NAMED);
    let mut found: Vec<String> = found
        .map(|(address, holder)| format!("{address} {holder}"))
        .collect();
    let more = state.on_wire.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        found.push(format!("{} more", words::count(more, "address")));
    }
    let note = state.note.iter().cloned();
    note.chain(found).collect::<Vec<String>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::on_wire::{AddressHolder, HolderSign};
    use crate::model::time::Time;

    #[test]
    fn a_network_is_a_row_for_each_family() {
        let lan = |ranges: &str, note: Option<&str>| NetworkState {
            ranges: ranges.to_owned(),
            size: 50,
            free: 3,
            note: note.map(str::to_owned),
            note_details: None,
            on_wire: BTreeMap::new(),
        };
        let four = lan(
            "192.0.2.50-192.0.2.99",
            Some("the addresses of 1 guest are not known yet"),
        );
        let six = lan("2001:db8::50-2001:db8::81", None);
        let families = BTreeMap::from([(Family::V4, four), (Family::V6, six)]);
        let mut text = String::new();
        table(&mut text, &BTreeMap::from([("lan".into(), families)]));
        assert!(text.contains("192.0.2.50-192.0.2.99"), "{text}");
        assert!(text.contains("3 of 50"), "{text}");
        assert!(text.contains("not known yet"), "{text}");
        assert_eq!(text.matches("lan ").count(), 2, "{text}");
    }

    #[test]
    fn addresses_that_somebody_has_on_the_wire_are_named_up_to_a_few() {
        let holder = |last: u8| {
            let holder = AddressHolder {
                sign: HolderSign::Neighbour,
                mac: Some(format!("bc:24:11:00:00:{last:02x}").into()),
                seen: Time(0),
                until: Time(600_000),
            };
            (std::net::IpAddr::from([192, 0, 2, last]), holder)
        };
        let state = |many: u8| NetworkState {
            note: Some("closed".to_owned()),
            on_wire: (1..=many).map(holder).collect(),
            ..NetworkState::default()
        };
        assert_eq!(
            note(&state(1)),
            "closed; 192.0.2.1 answers on the wire (MAC bc:24:11:00:00:01)"
        );
        let seven = note(&state(7));
        assert!(
            seven.contains("192.0.2.5 ") && !seven.contains("192.0.2.6 "),
            "{seven}"
        );
        assert!(seven.ends_with("; 2 addresses more"), "{seven}");
    }
}
