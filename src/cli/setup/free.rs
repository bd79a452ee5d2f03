//! What nobody has yet: VMIDs and addresses.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::Ipv4Net;

/// First VMIDs of the ranges of a thousand that are proposed for machines, in this order; then the next above.
const FIRST: [u32; 8] = [9_000, 8_000, 7_000, 6_000, 5_000, 4_000, 3_000, 2_000];
/// PVE's smallest and largest VMID (`pve-vmid`).
const LEAST: u32 = 100;
const LAST: u32 = 999_999_999;
/// VMIDs of a range for machines.
const FOR_MACHINES: u32 = 1_000;
/// VMIDs for further machines that a range has at least.
const FURTHER: usize = 20;
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

/// The range that machines of ours are in: the whole thousands around them, as far as no other guest is there. Where others lie between them,
/// those of the thousand that has most of ours. `None` where there is no machine of ours.
pub(super) fn around_machines(ours: &BTreeSet<u32>, others: &BTreeSet<u32>) -> Option<Vmids> {
    let (first, last) = (*ours.first()?, *ours.last()?);
    let (first, last) = if free(others, (first, last)) {
        (first, last)
    } else {
        most_in_a_thousand(ours)?
    };
    let whole = (
        (first - first % FOR_MACHINES).max(LEAST).min(first),
        (last - last % FOR_MACHINES)
            .saturating_add(FOR_MACHINES - 1)
            .min(LAST),
    );
    let below = others.range(whole.0..first).next_back();
    let above = others.range(last..=whole.1).find(|other| **other > last);
    let range = (
        below.map_or(whole.0, |other| other + 1),
        above.map_or(whole.1, |other| other - 1),
    );
    let taken = ours.range(range.0..=range.1).count() + others.range(range.0..=range.1).count();
    // Between two other guests there may be no room for a further machine: then theirs lie in the range, and stay as they are.
    let has_room = (range.1 - range.0) as usize + 1 >= taken + FURTHER;
    Some(if has_room { range } else { whole })
}

/// The lowest and the highest of ours in the thousand that has most of them, the lowest such one.
fn most_in_a_thousand(ours: &BTreeSet<u32>) -> Option<Vmids> {
    let mut best: Option<(usize, Vmids)> = None;
    for vmid in ours {
        let low = vmid - vmid % FOR_MACHINES;
        let mut of = ours.range(low..=low.saturating_add(FOR_MACHINES - 1));
        let (first, count) = (*of.next()?, 1 + of.clone().count());
        let last = of.next_back().copied().unwrap_or(first);
        if best.is_none_or(|(most, _)| count > most) {
            best = Some((count, (first, last)));
        }
    }
    best.map(|(_, range)| range)
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

/// The ranges of a network that addresses of ours are in: the proposal for a new network where all of them are in it, else what is free
/// around them, above them first. Nothing where none of ours is in the network.
pub(super) fn around_addresses(
    net: Ipv4Net,
    ours: &BTreeSet<Ipv4Addr>,
    taken: &BTreeSet<IpAddr>,
) -> Vec<(Ipv4Addr, Ipv4Addr)> {
    let (low, high) = (u32::from(net.network()), u32::from(net.broadcast()));
    let in_net = ours.iter().map(|address| u32::from(*address));
    let in_net: BTreeSet<u32> = in_net.filter(|one| low < *one && *one < high).collect();
    let (Some(first), Some(last)) = (in_net.first().copied(), in_net.last().copied()) else {
        return Vec::new();
    };
    let new = addresses(net, taken);
    let holds_all =
        |range: &(Ipv4Addr, Ipv4Addr)| u32::from(range.0) <= first && last <= u32::from(range.1);
    if let Some(new) = new.filter(holds_all) {
        return vec![new];
    }
    let is_taken = |address: u32| taken.contains(&IpAddr::V4(address.into()));
    let (mut from, mut to) = (first, last);
    let lacks = |from: u32, to: u32| to - from < ADDRESSES - 1;
    while lacks(from, to) && to + 1 < high && !is_taken(to + 1) {
        to += 1;
    }
    while lacks(from, to) && from > low + 1 && !is_taken(from - 1) {
        from -= 1;
    }
    // What others have between them is cut out.
    let used = taken.iter().filter_map(|address| match address {
        IpAddr::V4(address) => Some(u32::from(*address)),
        IpAddr::V6(_) => None,
    });
    let used: BTreeSet<u32> = used.filter(|one| (from..=to).contains(one)).collect();
    let (mut runs, mut begin) = (Vec::new(), from);
    for end in used.into_iter().chain([to + 1]) {
        if begin < end {
            runs.push((begin, end - 1));
        }
        begin = end + 1;
    }
    runs.retain(|run: &(u32, u32)| in_net.range(run.0..=run.1).next().is_some());
    let shown = runs
        .into_iter()
        .map(|(one, other)| (one.into(), other.into()));
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_that_are_there_stay_in_their_range() {
        let range = |ours: &[u32], others: &[u32]| {
            let set = |vmids: &[u32]| vmids.iter().copied().collect::<BTreeSet<u32>>();
            around_machines(&set(ours), &set(others))
        };
        assert_eq!(range(&[], &[9_500]), None);
        assert_eq!(range(&[9_003, 9_004], &[8_900, 100]), Some((9_000, 9_999)));
        // Another range than the first that is proposed to who begins.
        assert_eq!(range(&[7_100], &[]), Some((7_000, 7_999)));
        assert_eq!(range(&[8_990, 9_001], &[]), Some((8_000, 9_999)));
        // A built template lies above them, a guest below.
        assert_eq!(range(&[8_003], &[8_001, 8_900]), Some((8_002, 8_899)));
        assert_eq!(range(&[105], &[]), Some((100, 999)), "PVE has none below");
        // Somebody else's guests lie between: those of the other thousand are told by who asks.
        let ours = [7_001, 9_003, 9_004];
        assert_eq!(range(&ours, &[8_900]), Some((9_000, 9_999)));
        assert_eq!(range(&[9_003, 9_005], &[9_004]), Some((9_000, 9_999)));
        // No room for one more machine between two others.
        assert_eq!(range(&[9_003], &[9_002, 9_004]), Some((9_000, 9_999)));
        assert_eq!(range(&[9_003], &[9_002, 9_023]), Some((9_000, 9_999)));
        assert_eq!(range(&[9_003], &[9_002, 9_024]), Some((9_003, 9_023)));
    }

    #[test]
    fn addresses_of_machines_that_are_there_stay_in_their_ranges() {
        let net: Ipv4Net = "192.0.2.0/24".parse().expect("a network");
        let ranges = |ours: &[&str], taken: &[&str]| {
            let ours = ours.iter().map(|one| one.parse().expect("an address"));
            let taken = taken.iter().map(|one| one.parse().expect("an address"));
            let found = around_addresses(net, &ours.collect(), &taken.collect());
            let shown = found.iter().map(|(first, last)| format!("{first}-{last}"));
            shown.collect::<Vec<_>>()
        };
        // The range that setup proposed before.
        assert_eq!(ranges(&["192.0.2.223"], &[]), ["192.0.2.223-192.0.2.254"]);
        // One that somebody answered: from its first address on, which machines get first.
        assert_eq!(
            ranges(&["192.0.2.51", "192.0.2.50"], &["192.0.2.49"]),
            ["192.0.2.50-192.0.2.81"]
        );
        assert_eq!(
            ranges(&["192.0.2.50"], &["192.0.2.53"]),
            ["192.0.2.21-192.0.2.52"]
        );
        // Somebody else's address lies between two of ours.
        assert_eq!(
            ranges(&["192.0.2.50", "192.0.2.60"], &["192.0.2.55", "192.0.2.62"]),
            ["192.0.2.30-192.0.2.54", "192.0.2.56-192.0.2.61"]
        );
        assert_eq!(ranges(&["198.51.100.7"], &[]), [""; 0]);
        assert_eq!(ranges(&[], &[]), [""; 0]);
    }

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
