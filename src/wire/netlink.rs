//! Two questions to the kernel as netlink messages, and what it answers: the route to an address, and the neighbour table's entry
//! of one. Pure. The numbers are those of Linux's `netlink.h`, `rtnetlink.h` and `neighbour.h`.

use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Before every message: length, type, flags, sequence number, sender.
const HEADER: usize = 16;
/// Of `rtmsg`, and of `ndmsg`.
const BODY: usize = 12;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWNEIGH: u16 = 28;
const RTM_GETNEIGH: u16 = 30;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// Attributes of a route. The first is a neighbour's as well (`NDA_DST`).
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_VIA: u16 = 18;
/// Kinds of routes.
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;
/// Attributes of a neighbour.
const NDA_LLADDR: u16 = 2;
const NDA_CACHEINFO: u16 = 3;
/// States of a neighbour, as bits.
const NUD_REACHABLE: u16 = 0x02;
const NUD_STALE: u16 = 0x04;
const NUD_DELAY: u16 = 0x08;
const NUD_PROBE: u16 = 0x10;
const NUD_FAILED: u16 = 0x20;
const NUD_PERMANENT: u16 = 0x80;
/// The two high bits of an attribute's type are flags.
const TYPE_BITS: u16 = 0x3fff;
const ENOENT: i32 = 2;
/// Of the kernel's clock as it tells times, whatever its own is.
const TICK: Duration = Duration::from_millis(10);

/// Which way the kernel sends what is for an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KernelRoute {
    /// It is this host's own.
    Own,
    /// It is in the network of a network card.
    OnLink {
        /// The card's number.
        interface: u32,
    },
    /// To a gateway.
    Gateway,
    /// Nowhere, and what the kernel says of it.
    Nowhere(String),
}

/// An entry of the neighbour table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Neighbour {
    /// The entry's state, as the kernel's bits `NUD_…`.
    pub(super) state: u16,
    /// Who has the address, where it is an Ethernet card.
    pub(super) mac: Option<Arc<str>>,
    /// How long ago it was last confirmed that somebody has it; `None` where the kernel does not tell.
    pub(super) confirmed: Option<Duration>,
}

impl Neighbour {
    /// Whether somebody confirmed it lately.
    pub(super) fn is_reachable(&self) -> bool {
        self.state & NUD_REACHABLE != 0
    }

    /// Whether the kernel asked as often as it does, and nobody answered.
    pub(super) fn has_failed(&self) -> bool {
        self.state & NUD_FAILED != 0
    }

    /// Whether the kernel knows who had it and finds out whether that still holds: something was sent there, and 5 s later it asks,
    /// three times, a second apart.
    pub(super) fn is_verified(&self) -> bool {
        self.state & (NUD_STALE | NUD_DELAY | NUD_PROBE) != 0
    }

    /// Whether somebody has it or had it, and the kernel does not ask.
    pub(super) fn has_holder(&self) -> bool {
        self.state & (NUD_REACHABLE | NUD_PERMANENT) != 0
    }
}

fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => AF_INET,
        IpAddr::V6(_) => AF_INET6,
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// A message with a body and the address as its one attribute, which both questions give the same number.
fn message(kind: u16, body: [u8; BODY], address: IpAddr) -> Vec<u8> {
    let octets = octets(address);
    // 4 or 16 bytes, which need no padding.
    let attribute = u16::try_from(4 + octets.len()).unwrap_or(u16::MAX);
    let length = HEADER + BODY + usize::from(attribute);
    let mut message = Vec::with_capacity(length);
    message.extend(u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend(1_u32.to_ne_bytes());
    message.extend(0_u32.to_ne_bytes());
    message.extend(body);
    message.extend(attribute.to_ne_bytes());
    message.extend(RTA_DST.to_ne_bytes());
    message.extend(octets);
    message
}

/// The question which way an address is.
pub(super) fn ask_route(address: IpAddr) -> Vec<u8> {
    let mut body = [0; BODY];
    body[0] = family(address);
    body[1] = if address.is_ipv4() { 32 } else { 128 };
    message(RTM_GETROUTE, body, address)
}

/// The question what the table of a network card has of an address. Linux answers it since 5.0.
pub(super) fn ask_neighbour(address: IpAddr, interface: u32) -> Vec<u8> {
    let mut body = [0; BODY];
    body[0] = family(address);
    body[4..8].copy_from_slice(&interface.to_ne_bytes());
    message(RTM_GETNEIGH, body, address)
}

fn short() -> io::Error {
    io::Error::other("the kernel's answer over netlink is cut short")
}

fn two(bytes: &[u8], at: usize) -> io::Result<u16> {
    let two = bytes.get(at..at + 2).and_then(|part| part.try_into().ok());
    two.map(u16::from_ne_bytes).ok_or_else(short)
}

fn four(bytes: &[u8], at: usize) -> io::Result<u32> {
    let four = bytes.get(at..at + 4).and_then(|part| part.try_into().ok());
    four.map(u32::from_ne_bytes).ok_or_else(short)
}

/// What came back: the body and attributes of a message of the wanted kind, or the number of an error.
enum KernelAnswer<'a> {
    Message {
        body: &'a [u8],
        attributes: Vec<(u16, &'a [u8])>,
    },
    /// As in errno.
    Refused(i32),
}

fn read(answer: &[u8], wanted: u16) -> io::Result<KernelAnswer<'_>> {
    let length = usize::try_from(four(answer, 0)?).unwrap_or(usize::MAX);
    let kind = two(answer, 4)?;
    let rest = answer.get(HEADER..length).ok_or_else(short)?;
    if kind == NLMSG_ERROR {
        let code = four(rest, 0)?.cast_signed();
        return Ok(KernelAnswer::Refused(code.saturating_neg()));
    }
    if kind != wanted {
        return Err(io::Error::other(format!(
            "the kernel's answer over netlink is of type {kind}, expected {wanted}"
        )));
    }
    let body = rest.get(..BODY).ok_or_else(short)?;
    Ok(KernelAnswer::Message {
        body,
        attributes: attributes(&rest[BODY..])?,
    })
}

fn attributes(mut rest: &[u8]) -> io::Result<Vec<(u16, &[u8])>> {
    let mut found = Vec::new();
    while rest.len() >= 4 {
        let length = usize::from(two(rest, 0)?);
        let kind = two(rest, 2)? & TYPE_BITS;
        found.push((kind, rest.get(4..length).ok_or_else(short)?));
        // The next one begins at a multiple of four; the last one may end before.
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(found)
}

fn find<'a>(attributes: &[(u16, &'a [u8])], kind: u16) -> Option<&'a [u8]> {
    let found = attributes.iter().find(|(of, _)| *of == kind);
    found.map(|(_, value)| *value)
}

/// Reads the answer to [`ask_route`].
pub(super) fn read_route(answer: &[u8]) -> io::Result<KernelRoute> {
    let (body, attributes) = match read(answer, RTM_NEWROUTE)? {
        KernelAnswer::Message { body, attributes } => (body, attributes),
        KernelAnswer::Refused(code) => {
            let error = io::Error::from_raw_os_error(code);
            return Ok(KernelRoute::Nowhere(format!(
                "this host has no route to it: {error}"
            )));
        }
    };
    let interface = find(&attributes, RTA_OIF).map(|value| four(value, 0));
    let gateway = [RTA_GATEWAY, RTA_VIA];
    let gateway = gateway
        .iter()
        .any(|kind| find(&attributes, *kind).is_some());
    Ok(match (body[7], interface.transpose()?) {
        (RTN_LOCAL, _) => KernelRoute::Own,
        (RTN_UNICAST, Some(_)) if gateway => KernelRoute::Gateway,
        (RTN_UNICAST, Some(interface)) => KernelRoute::OnLink { interface },
        _ => KernelRoute::Nowhere("this host's routes lead nowhere for it".to_owned()),
    })
}

/// Reads the answer to [`ask_neighbour`]; `None` where the table has no entry.
pub(super) fn read_neighbour(answer: &[u8]) -> io::Result<Option<Neighbour>> {
    let (body, attributes) = match read(answer, RTM_NEWNEIGH)? {
        KernelAnswer::Message { body, attributes } => (body, attributes),
        KernelAnswer::Refused(ENOENT) => return Ok(None),
        KernelAnswer::Refused(code) => return Err(io::Error::from_raw_os_error(code)),
    };
    let mac = find(&attributes, NDA_LLADDR).filter(|value| value.len() == 6);
    let confirmed = find(&attributes, NDA_CACHEINFO).map(|value| four(value, 0));
    Ok(Some(Neighbour {
        state: two(body, 8)?,
        mac: mac.map(words_of_mac),
        confirmed: confirmed
            .transpose()?
            .map(|ticks| TICK.saturating_mul(ticks)),
    }))
}

fn words_of_mac(octets: &[u8]) -> Arc<str> {
    let mut text = String::new();
    for octet in octets {
        let colon = if text.is_empty() { "" } else { ":" };
        let _ = write!(text, "{colon}{octet:02x}");
    }
    text.into()
}
