//! Networks: the addresses that machines get out of ranges of the configuration.
//!
//! A machine's addresses are chosen with it, carried in its mark, and free again when nothing of it is left.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A machine's addresses by the number of the network card that has them: one of each family at most.
pub type NicAddresses = BTreeMap<u8, Vec<IpAddr>>;

/// One of the two address families.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both.
    pub const ALL: [Family; 2] = [Family::V4, Family::V6];

    /// The family of an address.
    pub fn of(address: IpAddr) -> Family {
        match address {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }

    /// The address with this number.
    pub fn address(self, number: u128) -> IpAddr {
        match self {
            // A number that was one of this family's is one again.
            Family::V4 => Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)).into(),
            Family::V6 => Ipv6Addr::from(number).into(),
        }
    }
}

/// An address as a number.
pub fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// Addresses from the first to the last, both included, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddressRange {
    /// The first.
    pub first: IpAddr,
    /// The last.
    pub last: IpAddr,
}

impl AddressRange {
    /// Whether an address lies in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        Family::of(self.first) == Family::of(address) && (self.first..=self.last).contains(&address)
    }

    /// Whether an address lies in both.
    pub fn overlaps(&self, other: &AddressRange) -> bool {
        Family::of(self.first) == Family::of(other.first)
            && self.first <= other.last
            && other.first <= self.last
    }

    /// How many addresses it has. In a record whose names are hashed the last may be below the first.
    pub fn size(&self) -> u128 {
        number(self.last)
            .saturating_sub(number(self.first))
            .saturating_add(1)
    }

    /// What is left of it without another: none, one or two ranges.
    pub fn without(&self, other: &AddressRange) -> Vec<AddressRange> {
        if !self.overlaps(other) {
            return vec![*self];
        }
        let family = Family::of(self.first);
        let mut left = Vec::new();
        if self.first < other.first {
            let last = family.address(number(other.first) - 1);
            left.push(AddressRange {
                first: self.first,
                last,
            });
        }
        if other.last < self.last {
            let first = family.address(number(other.last) + 1);
            left.push(AddressRange {
                first,
                last: self.last,
            });
        }
        left
    }
}

impl std::fmt::Display for AddressRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.first == self.last {
            return write!(f, "{}", self.first);
        }
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// The addresses of a network that machines may get: one of each family that has a range.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkPolicy {
    /// In ascending order, without what is excluded, no two of which overlap.
    pub ranges: Vec<AddressRange>,
}

impl NetworkPolicy {
    /// The families that a machine gets an address of.
    pub fn families(&self) -> impl Iterator<Item = Family> + '_ {
        Family::ALL
            .into_iter()
            .filter(|family| self.of(*family).next().is_some())
    }

    /// The ranges of a family.
    pub fn of(&self, family: Family) -> impl Iterator<Item = &AddressRange> {
        let ranges = self.ranges.iter();
        ranges.filter(move |range| Family::of(range.first) == family)
    }

    /// Whether machines may get an address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.contains(address))
    }

    /// How many addresses of a family machines may get.
    pub fn size(&self, family: Family) -> u128 {
        self.of(family)
            .fold(0, |sum: u128, range| sum.saturating_add(range.size()))
    }

    /// The first address of a family after another one that is not taken, and behind the last one from the first again.
    pub fn next(
        &self,
        family: Family,
        after: Option<IpAddr>,
        taken: &BTreeSet<IpAddr>,
    ) -> Option<IpAddr> {
        let after = after.filter(|after| Family::of(*after) == family);
        let from = |range: &AddressRange| match after {
            Some(after) if range.last <= after => None,
            Some(after) if range.first <= after => Some(number(after) + 1),
            _ => Some(number(range.first)),
        };
        let behind = self
            .of(family)
            .find_map(|range| first_free(family, from(range)?, range, taken));
        behind.or_else(|| {
            self.of(family)
                .find_map(|range| first_free(family, number(range.first), range, taken))
        })
    }

    /// The ranges as a person writes them.
    pub fn words(&self, family: Family) -> String {
        let ranges: Vec<String> = self.of(family).map(ToString::to_string).collect();
        ranges.join(", ")
    }
}

/// The first address of a range from a number on that is not taken.
fn first_free(
    family: Family,
    from: u128,
    range: &AddressRange,
    taken: &BTreeSet<IpAddr>,
) -> Option<IpAddr> {
    let mut next = from;
    let first = family.address(from);
    if first > range.last {
        return None;
    }
    // What is taken comes in order: the first gap is the answer.
    for address in taken.range(first..=range.last) {
        if number(*address) != next {
            break;
        }
        next = next.checked_add(1)?;
    }
    let found = family.address(next);
    (next <= number(range.last)).then_some(found)
}

/// The fixed addresses in a configuration value of PVE, an `ipconfigN` of a VM or a `netN` of a container: what stands after
/// `ip=` and `ip6=`, without its prefix. `dhcp`, `auto` and `manual` are none.
pub fn fixed_addresses(value: &str) -> impl Iterator<Item = IpAddr> + '_ {
    let parts = value.split(',').filter_map(|part| part.split_once('='));
    let parts = parts.filter(|(key, _)| matches!(key.trim(), "ip" | "ip6"));
    parts.filter_map(|(_, text)| {
        let address = text.split('/').next().unwrap_or(text);
        address.trim().parse().ok()
    })
}

/// The same value with none of its fixed addresses: in the place of each stands what DHCP, or IPv6's own way, gives, and their gateways go.
pub fn without_fixed_addresses(value: &str) -> String {
    let fixed = |key: &str| {
        let mut parts = value.split(',').filter(|part| part.trim().starts_with(key));
        parts.any(|part| fixed_addresses(part).next().is_some())
    };
    let (fixed4, fixed6) = (fixed("ip="), fixed("ip6="));
    let parts = value.split(',').filter_map(|part| {
        let key = part.split_once('=').map_or("", |(key, _)| key.trim());
        match key {
            "ip" if fixed4 => Some("ip=dhcp"),
            "ip6" if fixed6 => Some("ip6=auto"),
            "gw" if fixed4 => None,
            "gw6" if fixed6 => None,
            _ => Some(part),
        }
    });
    parts.collect::<Vec<&str>>().join(",")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(first: &str, last: &str) -> AddressRange {
        AddressRange {
            first: first.parse().expect("an address"),
            last: last.parse().expect("an address"),
        }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn addresses_go_in_turn_and_begin_again() {
        let network = NetworkPolicy {
            ranges: vec![
                range("192.0.2.10", "192.0.2.12"),
                range("192.0.2.20", "192.0.2.21"),
                range("2001:db8::ffff", "2001:db8::1:1"),
            ],
        };
        let mut taken = BTreeSet::from([ip("192.0.2.11")]);
        let mut last = None;
        let mut given = Vec::new();
        while let Some(next) = network.next(Family::V4, last, &taken) {
            given.push(next.to_string());
            taken.insert(next);
            last = Some(next);
        }
        assert_eq!(
            given,
            ["192.0.2.10", "192.0.2.12", "192.0.2.20", "192.0.2.21"]
        );
        taken.remove(&ip("192.0.2.10"));
        taken.remove(&ip("192.0.2.21"));
        let next = |after: &str| network.next(Family::V4, Some(ip(after)), &taken);
        assert_eq!(next("192.0.2.12"), Some(ip("192.0.2.21")));
        assert_eq!(
            next("192.0.2.21"),
            Some(ip("192.0.2.10")),
            "from the first again"
        );
        let six = network.next(Family::V6, Some(ip("2001:db8::ffff")), &taken);
        assert_eq!(six, Some(ip("2001:db8::1:0")));
        assert_eq!(network.size(Family::V6), 3);
    }

    #[test]
    fn in_the_place_of_a_fixed_address_stands_what_gives_one() {
        for (value, without) in [
            ("ip=192.0.2.9/24,gw=192.0.2.1", "ip=dhcp"),
            ("gw=192.0.2.1,ip=192.0.2.9/24,ip6=auto", "ip=dhcp,ip6=auto"),
            ("ip6=2001:db8::9/64,gw6=fe80::1", "ip6=auto"),
            (
                "ip=192.0.2.9/24,gw=192.0.2.1,ip6=2001:db8::9/64,gw6=2001:db8::1",
                "ip=dhcp,ip6=auto",
            ),
            ("ip=dhcp,ip6=2001:db8::9/64", "ip=dhcp,ip6=auto"),
            ("ip=dhcp", "ip=dhcp"),
            ("ip6=dhcp", "ip6=dhcp"),
        ] {
            assert_eq!(without_fixed_addresses(value), without, "{value}");
            assert_eq!(
                fixed_addresses(&without_fixed_addresses(value)).next(),
                None
            );
        }
    }

    #[test]
    fn fixed_addresses_of_vms_and_containers_are_read() {
        let all = |text: &str| {
            fixed_addresses(text)
                .map(|ip| ip.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(all("ip=192.0.2.5/24,gw=192.0.2.1"), ["192.0.2.5"]);
        assert_eq!(all("ip=dhcp,ip6=2001:db8::5/64"), ["2001:db8::5"]);
        assert_eq!(
            all(
                "name=eth0,bridge=vmbr0,gw=192.0.2.1,hwaddr=BC:24:11:00:00:01,ip=192.0.2.9/24,type=veth"
            ),
            ["192.0.2.9"]
        );
        for none in ["ip=manual", "ip=dhcp,ip6=auto", "", "ip=", "ip=/24"] {
            assert_eq!(all(none), Vec::<String>::new(), "{none}");
        }
    }

    fn addresses() -> impl Strategy<Value = u8> {
        any::<u8>()
    }

    proptest! {
        /// Against the plainest way to say the same: every address of the net looked at one by one.
        #[test]
        fn next_is_the_next_free_one(
            ends in prop::collection::vec((addresses(), addresses()), 0..4),
            cut in prop::collection::vec((addresses(), addresses()), 0..3),
            taken in prop::collection::btree_set(addresses(), 0..200),
            after in prop::option::of(addresses()),
        ) {
            let at = |last: u8| IpAddr::from([192, 0, 2, last]);
            let of = |(a, b): (u8, u8)| AddressRange { first: at(a.min(b)), last: at(a.max(b)) };
            let mut ranges: Vec<AddressRange> = Vec::new();
            for whole in ends.into_iter().map(of) {
                let mut left = vec![whole];
                for other in ranges.iter().copied().chain(cut.iter().copied().map(of)) {
                    left = left.iter().flat_map(|range| range.without(&other)).collect();
                }
                ranges.extend(left);
                ranges.sort();
            }
            let network = NetworkPolicy { ranges };
            let taken: BTreeSet<IpAddr> = taken.into_iter().map(at).collect();
            let free = |last: &u8| {
                network.contains(at(*last)) && !taken.contains(&at(*last))
            };
            let begin = after.map_or(0, |after| u16::from(after) + 1);
            let turn = (begin..=255).chain(0..begin.min(256));
            let plain = turn.map(|last| u8::try_from(last).expect("a byte")).find(free);
            prop_assert_eq!(network.next(Family::V4, after.map(at), &taken), plain.map(at));
            let size = (0..=255u8).filter(|last| network.contains(at(*last))).count();
            prop_assert_eq!(network.size(Family::V4), size as u128);
        }

        #[test]
        fn any_value_is_read_without_panic(text in "(ip6?=)?[0-9a-f.:/,=]{0,40}\\PC{0,10}") {
            let _ = fixed_addresses(&text).count();
        }
    }
}
