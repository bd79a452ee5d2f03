//! Addresses in the file: `"192.0.2.50-192.0.2.99"`, `"192.0.2.64/28"`, `"192.0.2.50"`.

use std::borrow::Cow;
use std::fmt;

use ipnet::IpNet;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Scalar, ScalarVisitor, write_out};
use crate::model::network::{AddressRange, Family};

/// Addresses of one family from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressList(pub AddressRange);

impl Scalar for AddressList {
    const EXPECTED: &'static str = "addresses such as \"192.0.2.50-192.0.2.99\", \"192.0.2.64/28\" or \"192.0.2.50\", \
         first not above last";
    const NAME: &'static str = "addresses";

    fn read(text: &str) -> Option<AddressList> {
        let (first, last) = match (text.split_once('-'), read_net(text)) {
            (Some((first, last)), _) => (first.trim().parse().ok()?, last.trim().parse().ok()?),
            (None, Some(net)) if net.trunc() == net => (net.network(), net.broadcast()),
            (None, _) => {
                let only = text.trim().parse().ok()?;
                (only, only)
            }
        };
        (Family::of(first) == Family::of(last) && first <= last)
            .then_some(AddressList(AddressRange { first, last }))
    }
}

/// An address with a prefix, as the standard library reads both: with leading zeros (`010.0.0.0/24`) it is none, for some programs take
/// them for octal numbers.
pub fn read_net(text: &str) -> Option<IpNet> {
    let (address, prefix) = text.split_once('/')?;
    let is_number = prefix.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = is_number && (prefix == "0" || !prefix.starts_with('0'));
    let length = is_plain.then(|| prefix.parse().ok())??;
    IpNet::new(address.parse().ok()?, length).ok()
}

impl AddressList {
    /// Reads one; `None` where it is none.
    pub fn parse(text: &str) -> Option<AddressList> {
        Scalar::read(text)
    }
}

impl fmt::Display for AddressList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

in_the_file!(AddressList);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_ranges_blocks_or_single_ones() {
        let read = |text| AddressList::read(text).map(|list| list.to_string());
        for (text, means) in [
            ("192.0.2.50-192.0.2.99", "192.0.2.50-192.0.2.99"),
            ("192.0.2.50 - 192.0.2.99", "192.0.2.50-192.0.2.99"),
            ("192.0.2.64/28", "192.0.2.64-192.0.2.79"),
            ("192.0.2.50", "192.0.2.50"),
            ("2001:db8::/126", "2001:db8::-2001:db8::3"),
        ] {
            assert_eq!(read(text).as_deref(), Some(means), "{text}");
        }
        for text in [
            "",
            "-",
            "192.0.2.99-192.0.2.50",
            "192.0.2.50-99",
            "192.0.2.50-2001:db8::1",
            "192.0.2.65/28",
            "192.0.2.0/33",
            "host",
            // Octal to some.
            "192.0.2.064/28",
            "010.0.0.0/24",
            "010.0.0.1-010.0.0.9",
            "010.0.0.1",
            "10.0.0.0/024",
            "10.0.0.0/+24",
            "10.0.0.0/",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[0-9a-f.:/ -]{0,40}") {
            if let Some(list) = AddressList::read(&text) {
                proptest::prop_assert_eq!(AddressList::read(&list.to_string()), Some(list));
            }
        }
    }
}
