//! A template's `ipconfig`: what cloud-init sets on the first network card, as PVE reads it, and an address that more
//! than one machine would have.
//!
//! PVE looks at the form alone (qemu-server `pve-qm-ipconfig`, prefixes of 8 bits or more) and warns of the rest in
//! the log of a task; the guest is then not reachable, and nobody says why.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::Problems;
use super::pools::ResolvedPool;
use crate::config::file::ConfigFile;
use crate::config::place::KeyPath;
use crate::model::network::Family;
use crate::model::words::names;

/// Shortest prefix that PVE takes, in bits.
pub(super) const SHORTEST: u8 = 8;

/// The keys of a family: of the address and of the gateway.
fn keys(family: Family) -> (&'static str, &'static str) {
    match family {
        Family::V4 => ("ip", "gw"),
        Family::V6 => ("ip6", "gw6"),
    }
}

/// The families of which a text sets a gateway.
pub(super) fn gateway_families(text: &str) -> impl Iterator<Item = Family> {
    let parts = parts(text).unwrap_or_default();
    let has = |family: &Family| parts.contains_key(keys(*family).1);
    let families: Vec<Family> = Family::ALL.into_iter().filter(has).collect();
    families.into_iter()
}

/// What may stand for an address.
fn words(family: Family) -> &'static [&'static str] {
    match family {
        Family::V4 => &["dhcp"],
        Family::V6 => &["dhcp", "auto"],
    }
}

fn bits(family: Family) -> u8 {
    match family {
        Family::V4 => 32,
        Family::V6 => 128,
    }
}

fn family_name(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}

/// What is wrong with the text by itself; nothing when it is right.
pub(super) fn fault(text: &str) -> Option<String> {
    match parts(text) {
        Err(why) => Some(why),
        Ok(parts) => [Family::V4, Family::V6]
            .into_iter()
            .find_map(|family| family_fault(family, &parts).err()),
    }
}

/// The keys of an `ipconfig` with their values, each once; or what is wrong with it.
fn parts(text: &str) -> Result<BTreeMap<&str, &str>, String> {
    let mut parts = BTreeMap::new();
    for part in text.split(',') {
        let known = |key: &str| ["ip", "gw", "ip6", "gw6"].contains(&key);
        let Some((key, value)) = part.split_once('=').filter(|(key, _)| known(key)) else {
            return Err(format!(
                "{part:?}: expected ip=, gw=, ip6= or gw6=, with commas between, such as ip=dhcp"
            ));
        };
        if parts.insert(key, value).is_some() {
            return Err(format!("{key} is given twice"));
        }
    }
    Ok(parts)
}

fn family_fault(family: Family, parts: &BTreeMap<&str, &str>) -> Result<(), String> {
    let (ip, gw) = keys(family);
    let fixed = match parts.get(ip) {
        Some(value) if words(family).contains(value) => None,
        Some(value) => Some(fixed_address(family, value)?),
        None => None,
    };
    let Some(value) = parts.get(gw) else {
        return Ok(());
    };
    let said = |why: String| format!("{gw}={value}: {why}");
    let gateway = gateway(family, value, fixed).map_err(said)?;
    let Some(net) = fixed else {
        return Err(said(format!(
            "a gateway is of use only with a fixed address in {ip}"
        )));
    };
    if gateway == net.addr() {
        return Err(said(
            "expected another than the machine's own address".to_owned(),
        ));
    }
    Ok(())
}

/// The gateway of a net, where that is known.
pub(super) fn gateway(family: Family, text: &str, net: Option<IpNet>) -> Result<IpAddr, String> {
    let gateway: IpAddr = text
        .parse()
        .ok()
        .filter(|address| Family::of(*address) == family)
        .ok_or_else(|| format!("expected an {} address", family_name(family)))?;
    // A router is mostly known by its link's own address.
    let on_link = matches!(gateway, IpAddr::V6(address) if address.is_unicast_link_local());
    match net {
        Some(net) if !on_link && !net.contains(&gateway) => {
            Err(format!("expected an address within {}", net.trunc()))
        }
        _ => Ok(gateway),
    }
}

/// `10.0.0.5/24`: an address that a machine can have, with the prefix of its net.
fn fixed_address(family: Family, value: &str) -> Result<IpNet, String> {
    let (ip, _) = keys(family);
    let expected = |what: &str| format!("{ip}={value}: expected {what}");
    let forms = words(family).join(", ");
    let shape = format!(
        "{forms}, or an {} address with its prefix such as {}",
        family_name(family),
        match family {
            Family::V4 => "192.0.2.10/24",
            Family::V6 => "2001:db8::10/64",
        }
    );
    let (address, prefix) = value.split_once('/').ok_or_else(|| expected(&shape))?;
    let address: IpAddr = address
        .parse()
        .ok()
        .filter(|address| Family::of(*address) == family)
        .ok_or_else(|| expected(&shape))?;
    let bits = bits(family);
    let net = prefix
        .parse()
        .ok()
        .filter(|length| (SHORTEST..=bits).contains(length) && !prefix.starts_with('+'))
        .and_then(|length| IpNet::new(address, length).ok())
        .ok_or_else(|| expected(&format!("a prefix of {SHORTEST} to {bits} bits")))?;
    let spare = family == Family::V4 && net.prefix_len() < 31;
    let of_net = match net {
        IpNet::V4(net) => spare && (net.addr() == net.network() || net.addr() == net.broadcast()),
        IpNet::V6(net) => net.prefix_len() < 127 && net.addr() == net.network(),
    };
    if of_net || address.is_unspecified() || address.is_loopback() || address.is_multicast() {
        return Err(expected("an address that a machine can have"));
    }
    Ok(net)
}

/// Whether machines get an address that is written there.
fn is_fixed(text: &str) -> bool {
    parts(text).is_ok_and(|parts| {
        [Family::V4, Family::V6].into_iter().any(|family| {
            let value = parts.get(keys(family).0);
            value.is_some_and(|value| !words(family).contains(value))
        })
    })
}

/// A fixed address is one machine's: templates whose pools may have more.
pub(super) fn check_shared(
    file: &ConfigFile,
    pools: &BTreeMap<Arc<str>, ResolvedPool>,
    problems: &mut Problems,
) {
    for (name, template) in &file.template {
        let Some(text) = template.ipconfig.as_deref().filter(|text| is_fixed(text)) else {
            continue;
        };
        let used: Vec<_> = pools
            .iter()
            .filter_map(|(of, pool)| Some((of, pool.policy.of_template(name)?)))
            // The network's addresses are on that card.
            .filter(|(_, pool)| !pool.networks.contains_key(&0))
            .collect();
        let machines = used
            .iter()
            .map(|(_, pool)| u64::from(pool.max))
            .sum::<u64>();
        if machines > 1 {
            let names = names(used.iter().map(|(name, _)| name));
            problems.add(
                &KeyPath::default().at("template").at(name).at("ipconfig"),
                format!(
                    "every machine would have the address in {text}, and {names} may have {machines}: expected ip=dhcp or ip6=auto, one pool with max = 1, or a network with an address for each (the pool's network and [network.NAME])"
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_can_be_given_passes() {
        for text in [
            "ip=dhcp",
            "ip6=auto",
            "ip=dhcp,ip6=dhcp",
            "ip=192.0.2.10/24",
            "ip=192.0.2.10/24,gw=192.0.2.1",
            "ip=10.0.0.0/31,gw=10.0.0.1",
            "ip=10.255.3.4/8,gw=10.0.0.1",
            "ip6=2001:db8::10/64,gw6=2001:db8::1",
            "ip6=2001:db8::10/64,gw6=fe80::1",
            "gw=192.0.2.1,ip=192.0.2.10/24,ip6=auto",
            "ip=192.0.2.10/32",
        ] {
            assert_eq!(fault(text), None, "{text}");
        }
    }

    #[test]
    fn what_no_machine_could_use_is_said_with_key_and_value() {
        for (text, said) in [
            (
                "ip=192.0.2.10/99",
                "ip=192.0.2.10/99: expected a prefix of 8 to 32 bits",
            ),
            ("ip=192.0.2.10/7", "8 to 32"),
            ("ip=192.0.2.10/+24", "8 to 32"),
            ("ip6=2001:db8::1/129", "8 to 128"),
            ("ip=192.0.2.10", "with its prefix such as 192.0.2.10/24"),
            ("ip=192.0.2.300/24", "expected dhcp, or an IPv4 address"),
            ("ip=2001:db8::1/64", "expected dhcp, or an IPv4 address"),
            (
                "ip6=192.0.2.1/24",
                "expected dhcp, auto, or an IPv6 address",
            ),
            ("ip=auto", "expected dhcp"),
            ("ip=192.0.2.0/24", "an address that a machine can have"),
            ("ip=192.0.2.255/24", "an address that a machine can have"),
            ("ip=127.0.0.1/8", "an address that a machine can have"),
            ("ip6=ff02::1/64", "an address that a machine can have"),
            ("ip6=2001:db8::/64", "an address that a machine can have"),
            (
                "ip=192.0.2.10/24,gw=192.0.3.1",
                "gw=192.0.3.1: expected an address within 192.0.2.0/24",
            ),
            ("ip=192.0.2.10/24,gw=192.0.2.10", "own address"),
            (
                "ip6=2001:db8::10/64,gw6=2001:db9::1",
                "expected an address within 2001:db8::/64",
            ),
            (
                "ip=192.0.2.10/24,gw=2001:db8::1",
                "expected an IPv4 address",
            ),
            ("ip=dhcp,gw=192.0.2.1", "only with a fixed address in ip"),
            ("gw6=fe80::1", "only with a fixed address in ip6"),
            ("ip=dhcp,ip=dhcp", "ip is given twice"),
            (
                "ip=dhcp,mtu=9000",
                "\"mtu=9000\": expected ip=, gw=, ip6= or gw6=",
            ),
            ("dhcp", "\"dhcp\": expected ip="),
            ("ip=dhcp,", "\"\": expected ip="),
        ] {
            let found = fault(text);
            assert!(
                found.as_ref().is_some_and(|found| found.contains(said)),
                "{text}: {found:?}"
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_judged(text in "(ip|gw|ip6|gw6|x)?=?[0-9a-f:./]{0,20},?(gw6?=)?\\PC{0,10}") {
            let _ = (fault(&text), is_fixed(&text));
        }
    }
}
