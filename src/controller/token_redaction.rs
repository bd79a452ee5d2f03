//! Bootstrap tokens blotted out of text that goes into logs, Events and files. Pure.
//!
//! A guest may print the token it was given, whole or in pieces: in quotes, at the end of a sentence, in a URL, in
//! JSON, wrapped. What looks like a token is blotted out, and what follows the id of our own token always is.

use std::borrow::Cow;

/// Length of a token's public part …
const ID: usize = 6;
/// … and of its secret.
const SECRET: usize = 16;
/// What stands for a secret.
const BLOT: &str = "<redacted>";
/// The dot between both, as it may be written.
const DOTS: [&str; 5] = [".", "%2e", "%2E", "\\u002e", "\\u002E"];

/// The text without any secret of a bootstrap token. `id`: our own token's public part.
pub(super) fn without_tokens<'a>(text: &'a str, id: &str) -> Cow<'a, str> {
    let mut out = String::new();
    let mut kept = 0;
    let mut at = 0;
    while at < text.len() {
        let found = ours(text, at, id).or_else(|| any(text, at));
        if let Some((secret, end)) = found {
            out.push_str(&text[kept..secret]);
            out.push_str(BLOT);
            (kept, at) = (end, end);
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    if kept == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[kept..]);
    Cow::Owned(out)
}

/// Our own token at `at`: where its secret begins and where that ends, however much of it is there and whatever
/// stands before and after.
fn ours(text: &str, at: usize, id: &str) -> Option<(usize, usize)> {
    if id.is_empty() || !text[at..].starts_with(id.chars().next()?) {
        return None;
    }
    let (read_id, id_end) = run(text, at, id.len());
    if read_id != id {
        return None;
    }
    let secret = dot(text, id_end)?;
    let (read, end) = run(text, secret, SECRET);
    (!read.is_empty()).then_some((secret, end))
}

/// Something at `at` that looks like a token, and is not a part of a longer word.
fn any(text: &str, at: usize) -> Option<(usize, usize)> {
    if !begins(&text[..at]) {
        return None;
    }
    let (read_id, id_end) = run(text, at, ID);
    let secret = dot(text, id_end).filter(|_| read_id.len() == ID)?;
    let (read, end) = run(text, secret, SECRET);
    let ends = !text[end..].starts_with(is_part);
    (read.len() == SECRET && ends).then_some((secret, end))
}

/// Whether a word may begin after this: not within another, unless that is a percent escape.
fn begins(before: &str) -> bool {
    if !before.ends_with(is_part) {
        return true;
    }
    let bytes = before.as_bytes();
    let escape = bytes.len().checked_sub(3).map(|from| &bytes[from..]);
    escape.is_some_and(|escape| escape[0] == b'%' && escape[1..].iter().all(u8::is_ascii_hexdigit))
}

/// Where it goes on behind the dot at `at`.
fn dot(text: &str, at: usize) -> Option<usize> {
    let at = over_breaks(text, at);
    let dot = DOTS.iter().find(|dot| text[at..].starts_with(**dot))?;
    Some(at + dot.len())
}

/// Up to `most` characters of a token from `at` on, and where they end. Breaks between them are passed over.
fn run(text: &str, at: usize, most: usize) -> (String, usize) {
    let (mut read, mut end) = (String::new(), at);
    while read.len() < most {
        let next = over_breaks(text, end);
        match text[next..].chars().next().filter(|c| is_part(*c)) {
            Some(c) => {
                read.push(c);
                end = next + 1;
            }
            None => break,
        }
    }
    (read, end)
}

fn is_part(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

/// Behind a line break at `at`, real or as JSON writes it, with the indentation of the next line; else `at`.
fn over_breaks(text: &str, at: usize) -> usize {
    let mut end = at;
    loop {
        let rest = &text[end..];
        let broken = ["\\\r\n", "\\\n", "\\r", "\\n", "\r\n"]
            .iter()
            .find(|mark| rest.starts_with(**mark))
            .map(|mark| mark.len())
            .or_else(|| {
                rest.chars()
                    .next()
                    .filter(|c| c.is_control() && *c != '\t')
                    .map(char::len_utf8)
            });
        let Some(length) = broken else {
            return end;
        };
        let rest = &rest[length..];
        end += length + (rest.len() - rest.trim_start_matches([' ', '\t']).len());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOKEN: &str = "abcdef.0123456789abcdef";
    const SECRET_TEXT: &str = "0123456789abcdef";

    /// Whether any eight characters of the secret in a row are left, breaks apart.
    fn leaks(text: &str) -> bool {
        let plain: String = text
            .replace("\\n", "")
            .chars()
            .filter(|c| is_part(*c) || *c == '.')
            .collect();
        SECRET_TEXT.as_bytes().windows(8).any(|part| {
            let part = std::str::from_utf8(part).expect("ASCII");
            plain.contains(part)
        })
    }

    #[test]
    fn a_token_goes_wherever_it_stands() {
        for text in [
            "abcdef.0123456789abcdef",
            "invalid token abcdef.0123456789abcdef.",
            "token abcdef.0123456789abcdef... and so on",
            "\"abcdef.0123456789abcdef\"",
            "'abcdef.0123456789abcdef', `abcdef.0123456789abcdef`",
            "{\"token\":\"abcdef.0123456789abcdef\"}",
            "{\\\"token\\\":\\\"abcdef.0123456789abcdef\\\"}",
            "https://host/?token=abcdef.0123456789abcdef&x=1",
            "https://host/?token%3Dabcdef%2E0123456789abcdef%26x",
            "https://host/?token%3dabcdef%2e0123456789abcdef",
            "abcdef\\u002e0123456789abcdef",
            "abcdef.01234567\n89abcdef",
            "abcdef.01234567\\\n    89abcdef",
            "abcdef.01234567\\n89abcdef",
            "abc\ndef.\n0123456789abcdef",
            "--token=abcdef.0123456789abcdef:",
            "tokenabcdef.0123456789abcdefmore",
            "abcdef.0123456789",
            "über abcdef.0123456789abcdef für",
        ] {
            let shown = without_tokens(text, "abcdef");
            assert!(!leaks(&shown), "{text:?}: {shown:?}");
            assert!(shown.contains(BLOT), "{shown:?}");
        }
    }

    #[test]
    fn a_token_of_others_goes_too_and_what_is_none_stays() {
        let shown = without_tokens("error: abcdef.0123456789abcdef.", "zzzzzz");
        assert_eq!(shown, "error: abcdef.<redacted>.");
        for text in [
            "failed to dial api-server.example.internal.net: refused",
            "kubelet.service is not active",
            "the node joined. nothing more",
            "sha256.0123456789abcdef0123456789abcdef",
            "",
        ] {
            assert_eq!(without_tokens(text, "abcdef"), text);
        }
    }

    proptest! {
        #[test]
        fn no_secret_is_left_in_any_surroundings(
            before in "\\PC{0,20}",
            after in "\\PC{0,20}",
            breaks in proptest::collection::vec((0usize..23, proptest::sample::select(vec!["\n", "\r\n", "\n  ", "\\\n", "\\n", "\0"])), 0..4),
            dot in proptest::sample::select(DOTS.to_vec()),
        ) {
            // The secret ends with the letters of the public half: with the text before, that may look like it.
            prop_assume!(!leaks(&format!("{before}abcdef")));
            let mut token = TOKEN.to_owned();
            let mut breaks = breaks;
            breaks.sort_unstable();
            for (at, mark) in breaks.into_iter().rev() {
                token.insert_str(at, mark);
            }
            let text = format!("{before}{}{after}", token.replacen('.', dot, 1));
            let shown = without_tokens(&text, "abcdef");
            prop_assert!(!leaks(&shown), "{text:?}: {shown:?}");
        }

        #[test]
        fn any_text_is_taken(text in "(?s).{0,200}", id in "[a-z0-9]{0,6}") {
            let _ = without_tokens(&text, &id);
        }
    }
}
