//! Networks whose addresses are asked for on the wire: whether this host can see who has one.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::finding::Findings;
use super::region::SeenRegion;
use crate::model::network::{Family, NetworkPolicy};
use crate::wire::{self, AddressWay};

/// Looks at the networks of the region's pools.
pub(super) async fn look(region: &SeenRegion, findings: &mut Findings) {
    let of = &region.region;
    let settings = &of.here.settings;
    let pools = settings.policy.pools_in(&of.name).map(|(_, pool)| pool);
    let used: BTreeSet<&Arc<str>> = pools.flat_map(|pool| pool.networks.values()).collect();
    for name in used {
        let asks = settings.networks.get(name).is_some_and(|of| of.ask_on_wire);
        let network = settings.policy.networks.get(name).filter(|_| asks);
        let Some(network) = network else { continue };
        for family in network.families() {
            judge(name, network, family, findings).await;
        }
    }
}

/// Looks which way the first address of a family is: the others are in the same subnet.
async fn judge(name: &str, network: &NetworkPolicy, family: Family, findings: &mut Findings) {
    let Some(first) = network.of(family).map(|range| range.first).next() else {
        return;
    };
    match wire::way_to(first).await {
        Ok(way) => tell(name, first, &network.words(family), way, findings),
        Err(error) => {
            findings.unseen(format!(
                "network {name}: ask_on_wire is set, and the way to {first} is not known: {error}"
            ));
        }
    }
}

fn tell(name: &str, first: IpAddr, ranges: &str, way: AddressWay, findings: &mut Findings) {
    let blind = match way {
        AddressWay::OnLink { interface } => {
            findings.fine(format!(
                "network {name}: this host sees on {interface} who has an address of {ranges}"
            ));
            return;
        }
        AddressWay::Own => {
            findings.fine(format!(
                "network {name}: this host is in it, with {first} itself, and sees who has an address of {ranges}"
            ));
            return;
        }
        AddressWay::Routed => "a router is between: of the devices there it sees those alone that take or refuse a TCP connection to port 22".to_owned(),
        AddressWay::Nowhere(why) => format!("it sees nobody there: {why}"),
    };
    findings
        .warning(format!(
            "network {name}: ask_on_wire is set, and this host has no address in the network of {ranges}; {blind}"
        ))
        .mend(format!(
            "an address in that subnet for this host, on the machines' bridge and VLAN, or [network.{name}] without ask_on_wire"
        ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_sees_little_is_told() {
        let first = IpAddr::from([192, 0, 2, 50]);
        let said = |way: AddressWay| {
            let mut findings = Findings::default();
            tell("lan", first, "192.0.2.50-192.0.2.59", way, &mut findings);
            format!("{findings:?}")
        };
        let interface = "vmbr0.20".to_owned();
        let on_link = said(AddressWay::OnLink { interface });
        assert!(
            on_link.contains("Fine") && on_link.contains("sees on vmbr0.20"),
            "{on_link}"
        );
        let routed = said(AddressWay::Routed);
        assert!(
            routed.contains("Warning") && routed.contains("port 22"),
            "{routed}"
        );
        let nowhere = said(AddressWay::Nowhere("no route".to_owned()));
        assert!(
            nowhere.contains("Warning") && nowhere.contains("no route"),
            "{nowhere}"
        );
    }
}
