//! Addresses and ids that are told by their form: IPv4, IPv6, MAC and fingerprints, UUIDs; and what stands for each. Pure.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

/// What a name is by its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TokenKind {
    /// A word.
    Word,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// Pairs of hexadecimal digits: a MAC address, the beginning of one, a fingerprint.
    Pairs,
    /// A UUID.
    Uuid,
}

/// Letters of tokens: those at the end of a machine's name. They make no words.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Letters of a token after the `x` that it begins with. With it a token is as long as the end of a machine's name, so that what
/// stands for the name of a machine has the form of one.
const TOKEN: usize = 4;
/// Length of a UUID.
const UUID: usize = 36;

impl TokenKind {
    /// What stands for a name, made of a hash. What is an address stays one, so that those who read the document can read it on.
    pub(super) fn stand_in(self, name: &str, sum: &[u8; 32], attempt: u32) -> String {
        let mut text = String::new();
        match self {
            TokenKind::Word => {
                // After some tries that gave a token which is taken, tokens are longer.
                let more = usize::try_from(attempt / 8).unwrap_or(0);
                text.push('x');
                for pair in sum.chunks(2).take(TOKEN + more) {
                    let value = pair
                        .iter()
                        .fold(0, |sum, byte| sum * 256 + usize::from(*byte));
                    text.push(char::from(LETTERS[value % LETTERS.len()]));
                }
            }
            // A network, without the last number, of a range that nobody has: 240.0.0.0/5.
            TokenKind::Ipv4 => {
                let [a, b, c, ..] = *sum;
                let _ = write!(text, "{}.{b}.{c}", 240 + a % 8);
            }
            // The range for documentation.
            TokenKind::Ipv6 => {
                let mut bytes = [0; 16];
                bytes.copy_from_slice(&sum[..16]);
                bytes[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
                text = Ipv6Addr::from(bytes).to_string();
            }
            TokenKind::Pairs => {
                let sign = name.chars().nth(2).unwrap_or(':');
                text.push_str("02");
                for (byte, _) in sum.iter().cycle().zip(name.split(sign).skip(1)) {
                    let _ = write!(text, "{sign}{byte:02X}");
                }
            }
            TokenKind::Uuid => {
                let mut bytes = [0; 16];
                bytes.copy_from_slice(&sum[..16]);
                bytes[6] = (bytes[6] & 0x0f) | 0x40;
                bytes[8] = (bytes[8] & 0x3f) | 0x80;
                for (place, byte) in bytes.iter().enumerate() {
                    let sign = if matches!(place, 4 | 6 | 8 | 10) {
                        "-"
                    } else {
                        ""
                    };
                    let _ = write!(text, "{sign}{byte:02x}");
                }
            }
        }
        text
    }
}

/// An IPv6 address cut into what stands for itself in a hash and the last number, which stays where somebody chose the address: of one
/// that is made of a MAC address, or by chance, nothing does.
pub(super) fn ipv6_parts(address: Ipv6Addr) -> (Ipv6Addr, Option<u16>) {
    let mut segments = address.segments();
    if segments[4..7] != [0; 3] {
        return (address, None);
    }
    let last = std::mem::take(&mut segments[7]);
    (segments.into(), Some(last))
}

/// The address with this last number in a network.
pub(super) fn with_last(network: Ipv6Addr, last: u16) -> Ipv6Addr {
    let [a, b, c, d, ..] = network.segments();
    Ipv6Addr::new(a, b, c, d, 0, 0, 0, last)
}

/// Whether what follows belongs to no word.
fn ends(rest: &str) -> bool {
    !rest.starts_with(char::is_alphanumeric)
}

/// The address or id that a text begins with: its kind and length. Those that every host has, such as `127.0.0.1`, are nobody's.
pub(super) fn at(text: &str) -> Option<(TokenKind, usize)> {
    uuid(text)
        .map(|length| (TokenKind::Uuid, length))
        .or_else(|| pairs(text).map(|length| (TokenKind::Pairs, length)))
        .or_else(|| ipv6(text).map(|length| (TokenKind::Ipv6, length)))
        .or_else(|| ipv4(text).map(|length| (TokenKind::Ipv4, length)))
}

fn uuid(text: &str) -> Option<usize> {
    let word = text.get(..UUID).filter(|_| ends(&text[UUID..]))?;
    let right = word.bytes().enumerate().all(|(place, byte)| match place {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    right.then_some(UUID)
}

/// Three pairs with a letter among them (a time such as 14:00:00 has none), or six.
fn pairs(text: &str) -> Option<usize> {
    let sign = *text.as_bytes().get(2).filter(|sign| b":-".contains(sign))?;
    let pair = |pair: &[u8]| pair.len() >= 2 && pair[..2].iter().all(u8::is_ascii_hexdigit);
    let bytes = text.as_bytes();
    let (mut length, mut many) = (0, 0);
    while bytes.get(length..).is_some_and(pair) {
        length += 2;
        many += 1;
        match bytes.get(length) {
            Some(next) if *next == sign && bytes.get(length + 1..).is_some_and(pair) => length += 1,
            _ => break,
        }
    }
    let named = bytes[..length].iter().any(u8::is_ascii_alphabetic);
    let whole = text.get(length..).is_some_and(ends);
    (whole && (many >= 6 || (many >= 3 && named))).then_some(length)
}

fn ipv6(text: &str) -> Option<usize> {
    let inside = |byte: &u8| byte.is_ascii_hexdigit() || b":.".contains(byte);
    let length = text.bytes().take_while(inside).count();
    let run = text
        .get(..length)
        .filter(|run| run.matches(':').count() > 1)?;
    // What ends a sentence or a line of a list belongs to no address.
    let shorter = [
        run,
        run.strip_suffix('.').unwrap_or(run),
        run.strip_suffix(':').unwrap_or(run),
    ];
    shorter.into_iter().find_map(|run| {
        let address: Ipv6Addr = run.parse().ok()?;
        let somebodys = !address.is_loopback() && !address.is_unspecified();
        (somebodys && ends(&text[run.len()..])).then_some(run.len())
    })
}

fn ipv4(text: &str) -> Option<usize> {
    let inside = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let length = text.bytes().take_while(inside).count();
    let run = text[..length].trim_end_matches('.');
    let address: Ipv4Addr = run.parse().ok()?;
    // Masks begin with 255.
    let somebodys =
        !address.is_loopback() && !address.is_unspecified() && address.octets()[0] != 255;
    somebodys.then_some(run.len())
}
