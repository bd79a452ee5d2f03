//! What nobody has yet: VMIDs and addresses.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::Ipv4Net;

/// First VMIDs of the ranges of a thousand that are proposed for machines, in this order; then the next above.
const FIRST: [u32; 8] = [9_000, 8_000, 7_000, 6_000, 5_000, 4_000, 3_000, 2_000];
/// PVE's largest VMID (`pve-vmid`).
const LAST: u32 = 999_999_999;
/// VMIDs of a range for machines.
const FOR_MACHINES: u32 = 1_000;
/// VMIDs of a range for templates that are built.
const FOR_TEMPLATES: u32 = 20;
/// Addresses of a range that is proposed.
const ADDRESSES: u32 = 32;

/// A range of VMIDs, both ends in it.
pub(super) type Vmids = (u32, u32);

/// A range for machines in which no guest is.
pub(super) fn for_machines(taken: &BTreeSet<u32>) -> Option<Vmids> {
    let above = (10..100).map(|thousand| thousand * 1_000);
    let starts = FIRST.into_iter().chain(above);
    let range = |first: u32| (first, first + FOR_MACHINES - 1);
    starts.map(range).find(|range| free(taken, *range))
}

/// A range for templates that are built, in which no guest is and which is apart from that of the machines: below it where
/// there is room.
pub(super) fn for_templates(taken: &BTreeSet<u32>, machines: Vmids) -> Option<Vmids> {
    let below = (1..=40).filter_map(|step| machines.0.checked_sub(step * 100));
    let above = (0..40).filter_map(|step| machines.1.checked_add(1 + step * 100));
    let starts = below.chain(above).filter(|first| *first >= 100);
    let mut ranges = starts.map(|first| (first, first.saturating_add(FOR_TEMPLATES - 1)));
    ranges.find(|range| range.1 <= LAST && free(taken, *range))
}

/// A range for templates that are built, around those that were: apart from that of the machines, and with no other guest in it.
pub(super) fn around(
    built: &BTreeSet<u32>,
    taken: &BTreeSet<u32>,
    machines: Vmids,
) -> Option<Vmids> {
    let (first, last) = (*built.first()?, *built.last()?);
    let range = (first, last.max(first.saturating_add(FOR_TEMPLATES - 1)));
    let apart = range.1 < machines.0 || machines.1 < range.0;
    let others: BTreeSet<u32> = taken.difference(built).copied().collect();
    (apart && range.1 <= LAST && free(&others, range)).then_some(range)
}

fn free(taken: &BTreeSet<u32>, (first, last): Vmids) -> bool {
    taken.range(first..=last).next().is_none()
}

/// The highest run of 32 addresses of a network that nobody is known to have, without its first and last address.
pub(super) fn addresses(net: Ipv4Net, taken: &BTreeSet<IpAddr>) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let (low, high) = (u32::from(net.network()), u32::from(net.broadcast()));
    let (low, high) = (low.checked_add(1)?, high.checked_sub(1)?);
    let used = taken.iter().filter_map(|address| match address {
        IpAddr::V4(address) => Some(u32::from(*address)),
        IpAddr::V6(_) => None,
    });
    let used: BTreeSet<u32> = used.collect();
    let mut last = high;
    loop {
        let first = last
            .checked_sub(ADDRESSES - 1)
            .filter(|first| *first >= low)?;
        match used.range(first..=last).next() {
            None => return Some((first.into(), last.into())),
            Some(address) => last = address.checked_sub(1)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_that_were_built_stay_in_their_range() {
        let taken: BTreeSet<u32> = [8900, 8901, 8925, 9000].into();
        let built = |vmids: &[u32]| vmids.iter().copied().collect::<BTreeSet<u32>>();
        let machines = (9_000, 9_999);
        assert_eq!(
            around(&built(&[8900, 8901]), &taken, machines),
            Some((8900, 8919))
        );
        assert_eq!(around(&built(&[]), &taken, machines), None);
        // Somebody else's guest lies between.
        assert_eq!(around(&built(&[8901, 9000]), &taken, (9_100, 9_199)), None);
        assert_eq!(
            around(&built(&[9000]), &taken, machines),
            None,
            "machines' own"
        );
    }

    #[test]
    fn ranges_are_where_nobody_is() {
        assert_eq!(for_machines(&BTreeSet::new()), Some((9_000, 9_999)));
        let taken = BTreeSet::from([9_000, 8_500]);
        assert_eq!(for_machines(&taken), Some((7_000, 7_999)));
        let all: BTreeSet<u32> = (2..100).map(|thousand| thousand * 1_000).collect();
        assert_eq!(for_machines(&all), None);
        let none = BTreeSet::new();
        assert_eq!(for_templates(&none, (9_000, 9_999)), Some((8_900, 8_919)));
        let taken = BTreeSet::from([8_910]);
        assert_eq!(for_templates(&taken, (9_000, 9_999)), Some((8_800, 8_819)));
        // No room below: above.
        assert_eq!(for_templates(&none, (100, 199)), Some((200, 219)));
    }

    #[test]
    fn addresses_are_the_highest_that_nobody_has() {
        let net: Ipv4Net = "192.0.2.0/24".parse().expect("a network");
        let range = |taken: &[&str]| {
            let taken = taken.iter().map(|one| one.parse().expect("an address"));
            let found = addresses(net, &taken.collect());
            found.map(|(first, last)| format!("{first}-{last}"))
        };
        assert_eq!(range(&[]).as_deref(), Some("192.0.2.223-192.0.2.254"));
        assert_eq!(
            range(&["192.0.2.254", "192.0.2.230"]).as_deref(),
            Some("192.0.2.198-192.0.2.229")
        );
        let small: Ipv4Net = "192.0.2.0/29".parse().expect("a network");
        assert_eq!(addresses(small, &BTreeSet::new()), None);
    }
}
