//! Whether a request asks for what a machine is. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::kubernetes::serving::{SIGNER, ServingRequest};

/// The group of kubelets.
const NODES: &str = "system:nodes";
/// What a serving certificate may be good for; the second and the third are always asked for.
const USAGES: [&str; 3] = ["key encipherment", "digital signature", "server auth"];
/// Names that a request may have; a kubelet asks for a handful.
const MOST_NAMES: usize = 32;

/// What is known of a machine whose kubelet asks.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownKubelet<'a> {
    /// The machine's node, which has the machine's name.
    pub(super) node: &'a str,
    /// The DNS domain that the machine was given; empty for none.
    pub(super) domain: &'a str,
    /// The addresses of the machine's VM.
    pub(super) addresses: BTreeSet<IpAddr>,
    /// A card of the VM finds an address by itself: by DHCP, or by router advertisements.
    pub(super) finds_addresses: bool,
    /// Addresses that are somebody else's, and why.
    pub(super) others: BTreeMap<IpAddr, String>,
}

/// Judges what a request says by itself: who asks, for what use, with which subject.
///
/// # Errors
/// What is not right about it.
pub(super) fn judge_form(request: &ServingRequest, node: &str) -> Result<(), String> {
    let own = format!("system:node:{node}");
    if request.signer != SIGNER {
        return Err(format!("its signer is {}", request.signer));
    }
    if request.username != own {
        return Err(format!("{} asks for it", request.username));
    }
    if !request.groups.iter().any(|group| group == NODES) {
        return Err(format!("its asker is not in the group {NODES}"));
    }
    let usages: BTreeSet<&str> = request.usages.iter().map(String::as_str).collect();
    let right = USAGES[1..].iter().all(|usage| usages.contains(usage))
        && usages.iter().all(|usage| USAGES.contains(usage));
    if !right {
        return Err(format!("it is for {}", request.usages.join(", ")));
    }
    let wanted = request.wanted.as_ref().map_err(String::clone)?;
    if wanted.common_names != [own.as_str()] {
        return Err(format!(
            "its subject is {}, and not {own}",
            wanted.common_names.join(", ")
        ));
    }
    if wanted.organisations != [NODES] {
        return Err(format!(
            "its organisation is {}, and not {NODES}",
            wanted.organisations.join(", ")
        ));
    }
    if let Some(other) = wanted.others.first() {
        return Err(format!("it names {other}"));
    }
    let names = wanted.dns.len() + wanted.addresses.len();
    if names == 0 || names > MOST_NAMES {
        return Err(format!("it has {names} names and addresses"));
    }
    Ok(())
}

/// Judges a request.
///
/// # Errors
/// What is not right about it.
pub(super) fn judge(request: &ServingRequest, known: &KnownKubelet<'_>) -> Result<(), String> {
    judge_form(request, known.node)?;
    let wanted = request.wanted.as_ref().map_err(String::clone)?;
    let full = format!("{}.{}", known.node, known.domain);
    let is_own = |name: &String| {
        *name == known.node || (!known.domain.is_empty() && name.eq_ignore_ascii_case(&full))
    };
    if let Some(name) = wanted.dns.iter().find(|name| !is_own(name)) {
        return Err(format!("it names {name:?}, and its node is {}", known.node));
    }
    for address in &wanted.addresses {
        of_the_vm(*address, known)?;
    }
    Ok(())
}

fn of_the_vm(address: IpAddr, known: &KnownKubelet<'_>) -> Result<(), String> {
    if address.is_loopback() || address.is_unspecified() || address.is_multicast() {
        return Err(format!("it names {address}"));
    }
    if let Some(why) = known.others.get(&address) {
        return Err(format!("it names {address}, and {why}"));
    }
    if known.addresses.contains(&address) {
        return Ok(());
    }
    if known.addresses.is_empty() {
        return Err(format!(
            "it names {address}, and no address of its VM is known, as with DHCP: give the pool a network of ranges"
        ));
    }
    let all: Vec<String> = known.addresses.iter().map(ToString::to_string).collect();
    let all = all.join(", ");
    let found = if known.finds_addresses {
        "; one that a card has by DHCP or router advertisements is the guest's word alone"
    } else {
        ""
    };
    Err(format!("it names {address}, and its VM has {all}{found}"))
}

/// The address in a URL, if there is one and no name.
pub(super) fn address_of(url: &str) -> Option<IpAddr> {
    let uri: http::Uri = url.parse().ok()?;
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    host.parse().ok()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

    use super::*;
    use crate::kubernetes::serving::RequestedCertificate;

    const NODE: &str = "edge-k3x9p";

    fn names(change: impl FnOnce(&mut CertificateParams)) -> Result<RequestedCertificate, String> {
        let mut params = CertificateParams::new(vec![NODE.to_owned()]).expect("names");
        let address = SanType::IpAddress([192, 0, 2, 10].into());
        params.subject_alt_names.push(address);
        let mut subject = DistinguishedName::new();
        subject.push(DnType::OrganizationName, "system:nodes");
        subject.push(DnType::CommonName, format!("system:node:{NODE}"));
        params.distinguished_name = subject;
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let pem = params.serialize_request(&key).expect("a request");
        let pem = pem.pem().expect("PEM");
        RequestedCertificate::read(&base64::Engine::encode(
            &base64::engine::general_purpose::STANDARD,
            pem,
        ))
    }

    fn request(wanted: Result<RequestedCertificate, String>) -> ServingRequest {
        let text = |text: &str| text.to_owned();
        let mut request = ServingRequest::of(wanted);
        request.username = format!("system:node:{NODE}");
        request.groups = vec![text("system:nodes"), text("system:authenticated")];
        request.usages = vec![text("digital signature"), text("server auth")];
        request
    }

    fn known() -> KnownKubelet<'static> {
        KnownKubelet {
            node: NODE,
            domain: "example.org",
            // Two of them it may not have a certificate for all the same.
            addresses: [[192, 0, 2, 10], [192, 0, 2, 11], [127, 0, 0, 1]]
                .map(IpAddr::from)
                .into(),
            finds_addresses: false,
            others: [([192, 0, 2, 11].into(), "node b has it".to_owned())].into(),
        }
    }

    #[test]
    fn its_own_name_and_addresses_are_right() {
        let same = |_: &mut CertificateParams| {};
        assert_eq!(judge(&request(names(same)), &known()), Ok(()));
        let full = names(|params| {
            let name = format!("{NODE}.example.org").try_into().expect("a name");
            params.subject_alt_names.push(SanType::DnsName(name));
        });
        assert_eq!(judge(&request(full), &known()), Ok(()));
        let mut older = request(names(same));
        older.usages.push("key encipherment".to_owned());
        assert_eq!(judge(&older, &known()), Ok(()));
    }

    /// Each is refused for its own reason: a judge that forgets one of them approves it.
    #[test]
    fn what_is_forged_is_left_alone() {
        let san = |san: SanType| names(|params| params.subject_alt_names.push(san));
        let dns = |name: &str| san(SanType::DnsName(name.try_into().expect("a name")));
        let ip = |ip: [u8; 4]| san(SanType::IpAddress(ip.into()));
        let subject = |kind: DnType, value: &str| {
            names(|params| params.distinguished_name.push(kind, value.to_owned()))
        };
        let mail = "a@example.org".try_into().expect("mail");
        let uri = "spiffe://a".try_into().expect("a URI");
        for (why, wanted) in [
            ("kubernetes.default", dns("kubernetes.default")),
            ("edge-k3x9p.example.com", dns("edge-k3x9p.example.com")),
            ("\"*\"", dns("*")),
            ("its VM has", ip([192, 0, 2, 12])),
            ("node b has it", ip([192, 0, 2, 11])),
            ("127.0.0.1", ip([127, 0, 0, 1])),
            (
                "IPv4 address as IPv6",
                san(SanType::IpAddress(
                    std::net::Ipv4Addr::new(192, 0, 2, 10)
                        .to_ipv6_mapped()
                        .into(),
                )),
            ),
            ("an e-mail address", san(SanType::Rfc822Name(mail))),
            ("a URI", san(SanType::URI(uri))),
            ("its subject", subject(DnType::CommonName, "system:node:b")),
            (
                "its organisation",
                subject(DnType::OrganizationName, "system:masters"),
            ),
            (
                "in its subject",
                subject(DnType::OrganizationalUnitName, "a"),
            ),
            ("0 names", names(|params| params.subject_alt_names.clear())),
            ("no base64", RequestedCertificate::read("%")),
            ("one block", RequestedCertificate::read("AAAA")),
        ] {
            let said = judge(&request(wanted), &known()).expect_err(why);
            assert!(said.contains(why), "{why}: {said}");
        }
        let right = || request(names(|_| {}));
        let text = |text: &str| text.to_owned();
        let mut other = right();
        other.username = text("system:node:b");
        let mut grouped = right();
        grouped.groups = vec![text("system:authenticated")];
        let mut client = right();
        client.usages.push(text("client auth"));
        let mut less = right();
        less.usages = vec![text("digital signature")];
        let mut signer = right();
        signer.signer = text("kubernetes.io/kube-apiserver-client");
        for request in [other, grouped, client, less, signer] {
            judge(&request, &known()).expect_err("refused");
        }
        let unknown = KnownKubelet {
            addresses: BTreeSet::new(),
            ..known()
        };
        let said = judge(&right(), &unknown).expect_err("refused");
        assert!(said.contains("no address of its VM is known"), "{said}");
    }

    /// Addresses of both families and of a second card are right while each is the VM's. One more that only the guest tells of is not,
    /// and takes the others with it: a certificate is signed as a whole.
    #[test]
    fn each_of_several_addresses_must_be_known() {
        let text = |text: &str| -> IpAddr { text.parse().expect("an address") };
        let also = |addresses: &[&str]| {
            let wanted = names(|params| {
                let all = addresses.iter().map(|ip| SanType::IpAddress(text(ip)));
                params.subject_alt_names.extend(all);
            });
            request(wanted)
        };
        let several = KnownKubelet {
            addresses: ["192.0.2.10", "2001:db8::10", "203.0.113.10"]
                .map(text)
                .into(),
            finds_addresses: true,
            ..known()
        };
        let own = also(&["2001:db8::10", "203.0.113.10"]);
        assert_eq!(judge(&own, &several), Ok(()));
        for strange in ["2001:db8::be24:11ff:fe00:1", "10.0.0.7"] {
            let said = judge(&also(&["2001:db8::10", strange]), &several).expect_err(strange);
            assert!(
                said.starts_with(&format!("it names {strange}, and its VM has")),
                "{said}"
            );
            assert!(said.ends_with("the guest's word alone"), "{said}");
        }
    }

    /// With DHCP a request for the name alone is right: PVE knows the name.
    #[test]
    fn a_name_alone_needs_no_address() {
        let unknown = KnownKubelet {
            addresses: BTreeSet::new(),
            finds_addresses: true,
            ..known()
        };
        let name_alone = names(|params| {
            params
                .subject_alt_names
                .retain(|name| matches!(name, SanType::DnsName(_)));
        });
        assert_eq!(judge(&request(name_alone), &unknown), Ok(()));
    }
}
