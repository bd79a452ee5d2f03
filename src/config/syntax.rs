//! How names must be written, by Kubernetes' and PVE's own rules.

use std::net::IpAddr;

use crate::model::facts;

/// A DNS label (RFC 1123): lower-case letters, digits and `-`, at most 63.
pub(crate) fn dns_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    framed(text, 63, inner, |b| inner(b) || b == b'-')
}

/// A DNS subdomain (RFC 1123): labels joined by dots, at most 253.
pub(super) fn dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(dns_label)
}

/// What PVE takes for name servers or search domains: some with spaces, commas or semicolons between (`PVE::Tools::split_list`).
fn listed(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split([' ', ',', ';']);
    parts.filter(|part| !part.is_empty())
}

/// Addresses of name servers. PVE takes names as well, which no guest could look up.
pub(super) fn name_servers(text: &str) -> bool {
    listed(text).next().is_some() && listed(text).all(|one| one.parse::<IpAddr>().is_ok())
}

/// Search domains, in capitals too, and with the dot that ends a full name.
pub(super) fn search_domains(text: &str) -> bool {
    let domain = |one: &str| {
        let one = one.strip_suffix('.').unwrap_or(one);
        dns_subdomain(&one.to_ascii_lowercase())
    };
    listed(text).next().is_some() && listed(text).all(domain)
}

/// A label's or annotation's key: `[prefix/]name`.
pub(super) fn label_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    prefix.is_none_or(dns_subdomain) && qualified(name)
}

/// A label's value; may be empty.
pub(super) fn label_value(value: &str) -> bool {
    facts::is_label_value(value)
}

/// PVE's names of storages, pools, mappings and bridges (`pve-storage-id`, `pve-configid`, …).
pub(super) fn pve_id(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.len() <= 64
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// The name of a mapping (`pve-configid`).
pub(crate) fn pve_config_id(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (2..=64).contains(&text.len())
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(inner)
}

/// A resource pool; PVE 8 and later nest them with `/` (`pve-poolid`).
pub(super) fn pve_pool(text: &str) -> bool {
    text.split('/').count() <= 3 && text.split('/').all(pve_id)
}

/// A security group of PVE's firewall (`pve-security-group-name`).
pub(super) fn security_group(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && (2..=18).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

/// A bridge: PVE's name, of no more than Linux's fifteen characters.
pub(super) fn bridge(text: &str) -> bool {
    pve_id(text) && text.len() <= 15
}

/// A user's name, as `useradd` takes it.
pub(super) fn user(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.len() <= 32
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// A disk of a VM, such as `scsi0`, up to the last of its bus.
pub(super) fn disk(text: &str) -> bool {
    [("ide", 3), ("sata", 5), ("scsi", 30), ("virtio", 15)]
        .iter()
        .any(|(bus, last)| {
            let number = text.strip_prefix(bus);
            let plain = number.filter(|number| *number == "0" || !number.starts_with(['0', '+']));
            plain.is_some_and(|number| number.parse::<u8>().is_ok_and(|number| number <= *last))
        })
}

/// A VM's tag (`pve-tag`), as PVE keeps it: lower case.
pub(super) fn tag(text: &str) -> bool {
    let first = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    text.bytes().next().is_some_and(first)
        && text
            .bytes()
            .all(|b| first(b) || matches!(b, b'-' | b'+' | b'.'))
}

/// An API token's id: `user@realm!name`.
pub(super) fn token_id(text: &str) -> bool {
    let part = |text: &str| !text.is_empty() && !text.contains([' ', '=', ':', '/', '!', '@']);
    text.split_once('!').is_some_and(|(user, name)| {
        part(name)
            && user
                .rsplit_once('@')
                .is_some_and(|(user, realm)| part(user) && part(realm))
    })
}

/// A SHA-256 fingerprint as PVE shows it: 32 pairs of hex digits joined by colons.
pub(super) fn fingerprint(text: &str) -> bool {
    text.split(':').count() == 32
        && text
            .split(':')
            .all(|pair| pair.len() == 2 && pair.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// `https://host` or `https://host:port`, nothing behind.
pub(super) fn endpoint(text: &str) -> bool {
    text.strip_prefix("https://").is_some_and(host_maybe_port)
}

/// `host:port`.
pub(super) fn host_port(text: &str) -> bool {
    text.rsplit_once(':')
        .is_some_and(|(host, port)| is_host(host) && is_port(port))
}

fn host_maybe_port(text: &str) -> bool {
    is_host(text) || host_port(text)
}

fn is_host(text: &str) -> bool {
    let name = text.to_ascii_lowercase();
    dns_subdomain(&name)
        || text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok())
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok_and(|port| port != 0)
}

fn qualified(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric();
    framed(text, 63, inner, |b| {
        inner(b) || matches!(b, b'-' | b'_' | b'.')
    })
}

/// 1 to `longest` bytes, all `middle`, the first and last `edge`.
fn framed(
    text: &str,
    longest: usize,
    edge: impl Fn(u8) -> bool,
    middle: impl Fn(u8) -> bool,
) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= longest
        && bytes.first().is_some_and(|b| edge(*b))
        && bytes.last().is_some_and(|b| edge(*b))
        && bytes.iter().all(|b| middle(*b))
}

/// A web address, and what is wrong with it otherwise.
pub(super) fn web_address(text: &str, example: &str) -> Result<(), String> {
    let expected = format!("expected a URL such as {example}");
    let url = text
        .parse::<http::Uri>()
        .map_err(|error| format!("{expected} ({error})"))?;
    let scheme = url.scheme_str().unwrap_or_default();
    let authority = url.authority().map(http::uri::Authority::as_str);
    match authority {
        _ if !matches!(scheme, "http" | "https") => Err(expected),
        None | Some("") => Err(expected),
        Some(authority) if authority.contains('@') => Err(
            "has a name or password in it, which everybody on this host could read: a file that headers_file names is the place for it".to_owned(),
        ),
        Some(_) => Ok(()),
    }
}

/// An address that mails go to: `name@domain`, or the name of a user of this host. It can neither be taken for an
/// option nor for more than one address.
pub(super) fn mail_address(text: &str) -> bool {
    let fit = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+/=?^_`{|}~.-".contains(&b);
    let (local, domain) = match text.split_once('@') {
        Some((local, domain)) => (local, Some(domain)),
        None => (text, None),
    };
    let begins = local.bytes().next();
    text.len() <= 254
        && begins.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_')
        && local.bytes().all(fit)
        && domain.is_none_or(|domain| dns_subdomain(&domain.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_their_owners_read_them() {
        let long = "a".repeat(64);
        for (holds, wrong) in [
            (
                dns_label as fn(&str) -> bool,
                &["", "A", "-a", "a-", "a.b", &long][..],
            ),
            (label_key, &["", "a/", "/a", "a/b/c", "A.b/c", "-a", "a b"]),
            (label_value, &["-", "a b", "a/b", &long]),
            (pve_id, &["", "-a", "a b", "a/b", "a:b"]),
            (
                disk,
                &[
                    "scsi", "scsi100", "efidisk0", "virtio1a", "scsi31", "ide4", "sata6",
                    "virtio16", "scsi01", "scsi+1",
                ],
            ),
            (bridge, &["", "vmbr0123456789ab", "-a", "vm br"]),
            (user, &["", "a b", "0day", "-x", "a;b", "$(x)", "ä"]),
            (tag, &["", "A", "-a", "a b", "a;b"]),
            (token_id, &["root@pam", "root!x", "a@b!c=d", "@b!c", "a@b!"]),
            (
                endpoint,
                &[
                    "http://a:1",
                    "https://",
                    "https://a/b",
                    "https://a:0",
                    "a:8006",
                ],
            ),
            (host_port, &["a", ":1", "a:", "a:70000", "a b:1"]),
            (fingerprint, &["", "AA:BB", "zz"]),
        ] {
            for text in wrong {
                assert!(!holds(text), "{text:?} was accepted");
            }
        }
        let print = ["AB"; 32].join(":");
        for (holds, right) in [
            (dns_label as fn(&str) -> bool, &["a", "0a", "a-1"][..]),
            (label_key, &["a", "example.com/A_b.c", "A"]),
            (label_value, &["", "A_b.c"]),
            (pve_id, &["local-lvm", "vmbr0", "a.b_c"]),
            (pve_pool, &["k8s", "a/b/c"]),
            (security_group, &["web", "a-b_C1", "ab"]),
            (disk, &["scsi0", "virtio15", "scsi30", "ide3", "sata5"]),
            (bridge, &["vmbr0", "vmbr0123456789a"]),
            (user, &["debian", "_apt", "Admin.x-1"]),
            (token_id, &["root@pam!auto", "a.b@pve!x-1"]),
            (
                endpoint,
                &[
                    "https://pve1",
                    "https://10.0.0.1:8006",
                    "https://[fd00::1]:8006",
                ],
            ),
            (host_port, &["api.example:6443", "[::1]:6443"]),
            (fingerprint, &[&print]),
        ] {
            for text in right {
                assert!(holds(text), "{text:?} was refused");
            }
        }
    }

    #[test]
    fn a_mail_address_is_one_and_no_option() {
        for right in [
            "root",
            "ops@example.org",
            "a.b+c@x-y.example",
            "o'hara@example.org",
        ] {
            assert!(mail_address(right), "{right}");
        }
        for wrong in [
            "",
            "-oQ/tmp",
            "a b",
            "a,b",
            "a@",
            "@b",
            "a\nBcc: b",
            "a@b@c",
            "|sh",
            "/tmp/x",
            "a@-b",
            "ü@b",
        ] {
            assert!(!mail_address(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn a_web_address_is_http_and_has_no_password() {
        let check = |text: &str| web_address(text, "https://ntfy.example.org");
        assert_eq!(check("https://ntfy.example.org:8443/topic?x=1"), Ok(()));
        assert_eq!(check("http://[::1]:80/"), Ok(()));
        for wrong in [
            "",
            "ntfy.example.org",
            "ftp://x/",
            "https://",
            "/x",
            "https://a b/",
        ] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
        assert!(check("https://a:b@c/").is_err_and(|why| why.contains("headers_file")));
    }
}
