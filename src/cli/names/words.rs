//! Words that are nobody's names: those of our own documents, of Kubernetes and of PVE, and numbers in all forms. Pure.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::LazyLock;

/// Fields and words of our JSON, keys of the configuration, and what Kubernetes, PVE and systemd call theirs. They stay wherever they
/// stand: without them nobody could read a document, neither could the program.
static KEPT: LazyLock<BTreeSet<&'static str>> =
    LazyLock::new(|| include_str!("kept.txt").lines().collect());

/// Words of the sentences that the program says, in small letters. They stay in a sentence.
static SENTENCES: LazyLock<BTreeSet<&'static str>> =
    LazyLock::new(|| include_str!("sentences.txt").lines().collect());

/// Units that may follow a number without a blank: of times, of sizes, of quantities, and what a point in time has.
const UNITS: [&str; 40] = [
    "T", "Z", "K", "M", "G", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "B", "KB", "MB", "GB",
    "TB", "KiB", "MiB", "GiB", "TiB", "PiB", "k", "m", "u", "n", "s", "ms", "us", "ns", "h", "d",
    "w", "y", "min", "MHz", "GHz", "Hz", "x",
];

/// What may follow the number of a version, each perhaps with a number of its own: `-4-pve`, `+k3s1`, `~deb12u1`.
const VERSION_WORDS: [&str; 18] = [
    "pve", "deb", "u", "k", "s", "rke", "r", "rc", "alpha", "beta", "bpo", "dfsg", "p", "gke",
    "eks", "generic", "amd", "arm",
];

/// What PVE numbers: bridges, cards, disks and other devices of a VM.
const NUMBERED: [&str; 16] = [
    "vmbr", "net", "ipconfig", "scsi", "virtio", "sata", "ide", "efidisk", "tpmstate", "unused",
    "hostpci", "usb", "serial", "numa", "smbios", "mp",
];

/// Parts of names that are no names: of disks as PVE calls them, such as `vm-9000-disk-0`, and of days, such as `mon-fri`.
const NAMELESS_PARTS: [&str; 25] = [
    "vm",
    "base",
    "disk",
    "subvol",
    "cloudinit",
    "state",
    "mon",
    "tue",
    "wed",
    "thu",
    "fri",
    "sat",
    "sun",
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
];

/// Whether a word is one of ours, of Kubernetes' or of PVE's, or a number.
pub(super) fn is_kept(word: &str) -> bool {
    is_number(word)
        || KEPT.contains(word)
        || (word.contains(|c: char| c.is_ascii_uppercase())
            && KEPT.contains(word.to_ascii_lowercase().as_str()))
}

/// Whether the program says this word, in small letters, in a sentence.
pub(super) fn is_in_sentences(word: &str) -> bool {
    SENTENCES.contains(word)
}

/// The digits or letters, in ASCII, that a text begins with, and the rest.
fn run(text: &str, of: fn(&u8) -> bool) -> (&str, &str) {
    text.split_at(text.bytes().take_while(of).count())
}

/// Whether a word is made of numbers and of words that may stand between them.
fn alternates(mut word: &str, words: &[&str]) -> bool {
    while !word.is_empty() {
        let (letters, rest) = run(word, u8::is_ascii_alphabetic);
        let (digits, rest) = run(rest, u8::is_ascii_digit);
        if letters.len() + digits.len() == 0 || !(letters.is_empty() || words.contains(&letters)) {
            return false;
        }
        word = rest;
    }
    true
}

/// Whether a word is a number, alone or with its unit, such as `9000`, `4GiB`, `1h30m`, `24T14`; a version of an API, such as
/// `v1beta1`; or a device that PVE numbers, such as `net0`.
pub(super) fn is_number(word: &str) -> bool {
    if word.starts_with(|c: char| c.is_ascii_digit()) {
        return alternates(word, &UNITS);
    }
    let numbered = |prefix: &str| {
        let rest = word.strip_prefix(prefix)?;
        let (digits, rest) = run(rest, u8::is_ascii_digit);
        (1..=4).contains(&digits.len()).then_some(rest)
    };
    numbered("v").is_some_and(|rest| rest.is_empty() || alternates(rest, &["alpha", "beta", "rc"]))
        || NUMBERED
            .iter()
            .any(|prefix| numbered(prefix).is_some_and(str::is_empty))
}

/// Whether a text begins as addresses of a private network do (10.x.x, 172.16.x to 172.31.x, 192.168.x), or has more numbers than versions have.
fn is_of_network(text: &str) -> bool {
    // A whole address that is still here is one that every host has.
    if text.parse::<Ipv4Addr>().is_ok() {
        return false;
    }
    let numbers: Vec<u16> = text
        .split('.')
        .map_while(|part| part.parse().ok())
        .collect();
    matches!(
        numbers[..],
        [10, _, _, ..] | [172, 16..=31, _, ..] | [192, 168, _, ..] | [_, _, _, _, ..]
    )
}

/// Whether parts of a name that stand beside each other are the numbers of an address: three of IPv4 at least, or six pairs of a MAC.
pub(super) fn are_of_address(parts: &[&str]) -> bool {
    let octet = |part: &&str| part.len() <= 3 && part.parse::<u8>().is_ok();
    let pair = |part: &&str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    (parts.len() >= 3 && parts.iter().all(octet)) || (parts.len() >= 6 && parts.iter().all(pair))
}

/// Whether a text is a version: two numbers at least, and what versions have after them.
pub(super) fn is_version(text: &str) -> bool {
    if is_of_network(text) {
        return false;
    }
    let (major, rest) = run(text.strip_prefix('v').unwrap_or(text), u8::is_ascii_digit);
    let minor = rest.strip_prefix('.').unwrap_or_default();
    !major.is_empty()
        && minor.starts_with(|c: char| c.is_ascii_digit())
        && minor
            .split(['.', '-', '+', '~', '_'])
            .all(|part| is_number(part) || alternates(part, &VERSION_WORDS))
}

/// Whether the parts of a name are numbers alone, as in `2026-11-24` and `9000-9999`, or with words that are no names.
pub(super) fn are_numbers(parts: &[&str]) -> bool {
    let number = |part: &&str| part.is_empty() || is_number(part);
    let digits = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
    parts.iter().all(number)
        || parts
            .iter()
            .all(|part| digits(part) || NAMELESS_PARTS.contains(part))
}
