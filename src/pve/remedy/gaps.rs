//! Words with gaps in them, such as `bridge '{bridge}' does not exist`: finding them in a text, and filling them.

use std::collections::BTreeMap;

/// No name that PVE writes into a gap is longer, in bytes.
const LONGEST: usize = 300;

/// What stands in a text at the gaps of a pattern.
pub(super) type Captured<'t> = BTreeMap<&'static str, &'t str>;

/// PVE's words with gaps. `{*}` is a gap for what is not repeated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern(pub(super) &'static str);

/// A piece of words with gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    Words(&'static str),
    Gap(&'static str),
}

/// The pieces of words with gaps, in their order.
fn pieces(words: &'static str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = words;
    while let Some((before, behind)) = rest.split_once('{') {
        let Some((gap, after)) = behind.split_once('}') else {
            break;
        };
        pieces.extend((!before.is_empty()).then_some(Piece::Words(before)));
        pieces.push(Piece::Gap(gap));
        rest = after;
    }
    pieces.extend((!rest.is_empty()).then_some(Piece::Words(rest)));
    pieces
}

impl Pattern {
    /// Finds the words in a text, wherever they stand.
    pub(super) fn find<'t>(&self, text: &'t str) -> Option<Captured<'t>> {
        let pieces = pieces(self.0);
        let Some((Piece::Words(first), rest)) = pieces.split_first() else {
            return None;
        };
        text.match_indices(first)
            .find_map(|(at, _)| fit(rest, text.get(at + first.len()..)?))
    }
}

/// What the gaps are if the text begins with the pieces.
fn fit<'t>(pieces: &[Piece], mut text: &'t str) -> Option<Captured<'t>> {
    let mut captured = Captured::new();
    let mut pieces = pieces.iter().peekable();
    while let Some(piece) = pieces.next() {
        let gap = match piece {
            Piece::Words(words) => {
                text = text.strip_prefix(words)?;
                continue;
            }
            Piece::Gap(gap) => gap,
        };
        let end = match pieces.peek() {
            Some(Piece::Words(words)) => text.find(words)?,
            _ => text
                .find(|c: char| c.is_whitespace() || "'\",;()".contains(c))
                .unwrap_or(text.len()),
        };
        if end > LONGEST && *gap != "*" {
            return None;
        }
        let (value, rest) = text.split_at(end);
        // Where a number must stand, words make it another sentence, and a quote ends a name.
        if matches!(*gap, "number" | "vmid") && !is_name(gap, value) {
            return None;
        }
        if *gap != "*" && value.contains('\'') {
            return None;
        }
        captured.insert(gap, value);
        text = rest;
    }
    Some(captured)
}

/// The words with their gaps filled: by what was captured, else by what `known` tells. What is not written as such a name is
/// written is not repeated.
pub(super) fn fill(
    words: &'static str,
    captured: &Captured<'_>,
    known: &dyn Fn(&str) -> Option<String>,
) -> String {
    let mut filled = String::new();
    for piece in pieces(words) {
        match piece {
            Piece::Words(plain) => filled.push_str(plain),
            Piece::Gap(gap) => {
                let said = captured.get(gap).map(|value| (*value).to_owned());
                let value = said.filter(|value| is_name(gap, value));
                let value = value.or_else(|| known(gap).filter(|told| is_name(gap, told)));
                match value {
                    Some(value) => filled.push_str(&value),
                    None if in_command(&filled) => filled.push_str(&gap.to_ascii_uppercase()),
                    None => filled.push_str(general(gap)),
                }
            }
        }
    }
    filled
}

/// The words with something of the same kind in each gap, for the document.
#[cfg(test)]
pub(super) fn show(words: &'static str, placeholder: &dyn Fn(&str) -> String) -> String {
    let shown = pieces(words).into_iter().map(|piece| match piece {
        Piece::Words(words) => words.to_owned(),
        Piece::Gap(gap) => placeholder(gap),
    });
    shown.collect()
}

/// Whether what comes next stands in a command, between two backticks.
fn in_command(text: &str) -> bool {
    text.matches('`').count() % 2 == 1
}

/// Whether a value is written as PVE and the file write what is in this gap.
pub(super) fn is_name(gap: &str, value: &str) -> bool {
    let fine = |limit: usize, marks: &str| {
        let sound = |c: char| c.is_ascii_alphanumeric() || marks.contains(c);
        !value.is_empty() && value.len() <= limit && value.chars().all(sound)
    };
    match gap {
        "bridge" => fine(15, "_-."),
        "host" => fine(63, "-"),
        "number" | "vmid" => fine(9, "") && value.bytes().all(|byte| byte.is_ascii_digit()),
        "storage" | "group" | "mapping" | "cputype" | "option" | "disk" | "content" => {
            fine(64, "_-.")
        }
        "tag" => fine(64, "_-+."),
        "resource_pool" => fine(128, "_-./"),
        "device" => fine(16, ":."),
        "path" => value.starts_with('/') && fine(128, "_-./"),
        "privileges" => fine(200, ".,| ") && value.split([',', '|', ' ']).all(is_privilege),
        "template_table" | "pool_table" => fine(80, "[]_-."),
        _ => false,
    }
}

/// Whether a word is a privilege (`VM.Config.CPU`), or nothing between two of them.
fn is_privilege(word: &str) -> bool {
    let capital = |part: &str| part.starts_with(|c: char| c.is_ascii_uppercase());
    word.is_empty() || (word.contains('.') && word.split('.').all(capital))
}

/// What a gap is called where nothing is known that could stand there.
fn general(gap: &str) -> &'static str {
    match gap {
        "bridge" => "the bridge",
        "host" => "the host",
        "vmid" => "VMID",
        "number" => "its number",
        "storage" => "the storage",
        "group" => "the group",
        "mapping" => "the mapping",
        "tag" => "of that name",
        "cputype" => "the CPU type",
        "option" => "the setting",
        "disk" => "the disk",
        "content" => "what it lacks",
        "resource_pool" => "the resource pool",
        "device" => "the device",
        "path" => "the path",
        "privileges" => "the privilege",
        "template_table" => "the template's table",
        "pool_table" => "the pool's table",
        _ => "it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_wherever_they_stand() {
        let pattern = Pattern("bridge '{bridge}' does not exist");
        let text = "start failed: bridge 'vmbr9' does not exist";
        assert_eq!(pattern.find(text).expect("found")["bridge"], "vmbr9");
        assert!(pattern.find("bridge 'vmbr9' is odd").is_none());
        let twice = "a bridge 'x, bridge 'vmbr1' does not exist";
        assert_eq!(pattern.find(twice).expect("found")["bridge"], "vmbr1");
        let two = "bridge 'vmbr1' lacks port 'eno1' does not exist";
        assert!(pattern.find(two).is_none());
        let last = Pattern("storage '{storage}:{*}' is {option}");
        let found = last.find("storage 'a:b/c' is gone, now").expect("found");
        assert_eq!((found["storage"], found["option"]), ("a", "gone"));
    }

    #[test]
    fn what_is_no_name_is_not_repeated() {
        let filled = |bridge: &'static str| {
            let captured = Captured::from([("bridge", bridge)]);
            fill("make {bridge}", &captured, &|_| None)
        };
        assert_eq!(filled("vmbr9"), "make vmbr9");
        for odd in ["a b", "", "vmbr`reboot`", "vmbr0123456789012345", "ü"] {
            assert_eq!(filled(odd), "make the bridge", "{odd}");
        }
        assert!(is_name("privileges", "VM.Config.CPU, SDN.Use"));
        assert!(!is_name("privileges", "run this"));
    }
}
