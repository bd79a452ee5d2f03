//! Networks as text for people. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::render::{one_line, section};
use crate::model::network::Family;
use crate::model::report::NetworkState;

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
            one_line(state.note.as_deref().unwrap_or_default()),
        ]
    });
    let heading = ["NETWORK", "ADDRESSES", "FREE", "NOTE"];
    section(text, "Networks", &heading, rows.collect());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_a_row_for_each_family() {
        let lan = |ranges: &str, note: Option<&str>| NetworkState {
            ranges: ranges.to_owned(),
            size: 50,
            free: 3,
            note: note.map(str::to_owned),
            note_details: None,
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
}
