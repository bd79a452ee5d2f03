//! Secrets blotted out of text that leaves the host: configuration, log lines, answers of the daemon, the record. Pure.
//!
//! None of these has a secret by its nature: the configuration names files, the daemon blots out what guests print. This is the
//! second look, for what somebody wrote where it does not belong.

use std::borrow::Cow;

/// What stands for a secret.
pub(super) const BLOT: &str = "<redacted>";

/// Ends of keys whose value is a secret.
const KEYS: [&str; 12] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "api_key",
    "api-key",
    "client-key-data",
    "private_key",
    "authorization",
    "cookie",
];

/// Last parts of such keys, alone or after a sign: `PW`, `join_pw`. Many other words end like these.
const SHORT_KEYS: [&str; 3] = ["pass", "pw", "pwd"];

/// Whether a character may be in a word that is a secret.
fn in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._!=@:+/-%~".contains(c)
}

/// The text without what is, or looks like, a secret. A text in JSON stays JSON.
pub(super) fn without_secrets(text: &str) -> Cow<'_, str> {
    let text = without_keys(text);
    let text = without_queries(&text);
    let mut out = String::with_capacity(text.len());
    let mut rest: &str = &text;
    let mut named = false;
    while let Some(start) = rest.find(in_word) {
        let (before, tail) = rest.split_at(start);
        out.push_str(before);
        let end = tail.find(|c| !in_word(c)).unwrap_or(tail.len());
        let (word, tail) = tail.split_at(end);
        // The rest of an escape in JSON belongs to no word.
        let (escape, word) = word.split_at(escape(before, word));
        out.push_str(escape);
        rest = tail;
        // What a key that names a secret is followed by, unless the line ends first.
        let value = named && !before.contains('\n');
        out.push_str(&if value && is_value(word) {
            Cow::Borrowed(BLOT)
        } else {
            word_without(word)
        });
        // A list of users with their passwords is named by a key that is followed by another.
        let between = matches!(word, "=" | ":" | "Bearer" | "bearer" | "Basic" | "basic")
            || (word.len() > 1 && ends_as_key(word));
        named = (value && between)
            || (names_secret(word) && (ends_as_key(word) || follows_as_key(tail)));
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// How many characters of a word belong to the backslash before it.
fn escape(before: &str, word: &str) -> usize {
    let backslashes = before.len() - before.trim_end_matches('\\').len();
    match (backslashes % 2, word.starts_with('u')) {
        (0, _) => 0,
        (_, false) => 1,
        (_, true) => word.len().min(5),
    }
}

/// A value, and no word that only separates it from its key.
fn is_value(word: &str) -> bool {
    // The public part of a bootstrap token, as a mark has it, is none.
    let public = word.len() == 6
        && word
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    !public
        && word.len() > 3
        // A number in JSON stands without quotes.
        && word.parse::<f64>().is_err()
        && !matches!(
            word,
            "null" | "true" | "false" | "none" | "Bearer" | "bearer" | "Basic" | "basic" | "redacted"
        )
}

/// Whether a word, up to a sign that ends it, names a secret.
fn names_secret(word: &str) -> bool {
    let key = word.trim_end_matches(['=', ':']).to_ascii_lowercase();
    let part = key.rsplit(['_', '-', '.']).next().unwrap_or_default();
    KEYS.iter().any(|end| key.ends_with(end)) || SHORT_KEYS.contains(&part)
}

fn ends_as_key(word: &str) -> bool {
    word.ends_with(['=', ':'])
}

/// Whether what follows makes the word before a key: `" :`, ` =` and so on.
fn follows_as_key(tail: &str) -> bool {
    let tail = tail.trim_start_matches(['"', '\'', '\\', ' ', '\t']);
    tail.starts_with(['=', ':'])
}

/// A word without the secret in it.
fn word_without(word: &str) -> Cow<'_, str> {
    // user:password@ in a URL
    if let Some((scheme, rest)) = word.split_once("://")
        && let Some((user, host)) = rest.split_once('@')
        && let Some((name, _)) = user.split_once(':')
        && !user.contains('/')
    {
        return Cow::Owned(format!("{scheme}://{name}:{BLOT}@{host}"));
    }
    // KEY=VALUE and KEY:VALUE without a blank
    if let Some(at) = word.find(['=', ':'])
        && names_secret(&word[..at])
        && is_value(&word[at + 1..])
    {
        return Cow::Owned(format!("{}{BLOT}", &word[..=at]));
    }
    // An API token of PVE: USER@REALM!NAME=UUID
    if word.contains('@')
        && word.contains('!')
        && let Some((name, secret)) = word.rsplit_once('=')
        && !secret.is_empty()
    {
        return Cow::Owned(format!("{name}={BLOT}"));
    }
    // A ticket of PVE, a JSON web token
    let jwt = word.starts_with("eyJ") && word.matches('.').count() == 2;
    if (word.starts_with("PVE:") || word.starts_with("PVE%3A") || jwt) && word.len() > 40 {
        return Cow::Borrowed(BLOT);
    }
    bootstrap(word)
}

/// A bootstrap token, wherever it stands in a word: ID.SECRET.
fn bootstrap(word: &str) -> Cow<'_, str> {
    let plain = |text: &str| {
        text.chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    let parts: Vec<&str> = word.split(['=', ':', '/', '@']).collect();
    for part in parts {
        if let Some((id, secret)) = part.trim_end_matches('.').split_once('.')
            && id.len() == 6
            && secret.len() == 16
            && plain(id)
            && plain(secret)
        {
            return Cow::Owned(word.replace(secret, BLOT));
        }
    }
    Cow::Borrowed(word)
}

/// Addresses whose path is a secret, and what follows them.
const SECRET_PATHS: [&str; 4] = [
    "://hooks.slack.com/",
    "://discord.com/api/webhooks/",
    "://discordapp.com/api/webhooks/",
    ".webhook.office.com/",
];

/// The text without what follows the `?` of an address, where keys and passwords are, and without the paths of those that are secrets.
fn without_queries(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let inside = |c: char| !c.is_whitespace() && !"\"'\\<>`".contains(c);
        let end = rest[at..]
            .find(|c| !inside(c))
            .map_or(rest.len(), |end| at + end);
        let address = &rest[..end];
        let secret = SECRET_PATHS.iter().filter_map(|path| {
            let found = address.find(path)?;
            Some(found + path.len())
        });
        let query = address[at..].find('?').map(|query| at + query + 1);
        match secret.chain(query).min() {
            Some(cut) if cut < end => {
                out.push_str(&address[..cut]);
                out.push_str(BLOT);
            }
            _ => out.push_str(address),
        }
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

/// The text without private keys in PEM, whose line breaks may be escaped.
fn without_keys(text: &str) -> Cow<'_, str> {
    const BEGIN: &str = "-----BEGIN ";
    const END: &str = "-----END ";
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(BEGIN) {
        let (before, block) = rest.split_at(start);
        let head = &block[BEGIN.len()..];
        let label = head.split("-----").next().unwrap_or_default();
        if !label.contains("PRIVATE KEY") {
            let kept = start + BEGIN.len();
            out.push_str(&rest[..kept]);
            rest = &rest[kept..];
            continue;
        }
        out.push_str(before);
        out.push_str(BLOT);
        // A block that is cut short hides all to the end of its string, or of the text.
        let inside = &block[..block.find('"').unwrap_or(block.len())];
        let inside = inside.trim_end_matches('\\');
        let end = inside.find(END).and_then(|end| {
            let end = end + END.len();
            Some(end + inside[end..].find("-----")? + 5)
        });
        rest = &block[end.unwrap_or(inside.len())..];
    }
    if out.is_empty() {
        return Cow::Borrowed(text);
    }
    out.push_str(rest);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn secrets_go_and_what_they_belong_to_stays() {
        for (text, clean) in [
            (
                "join with abcdef.0123456789abcdef now",
                "join with abcdef.<redacted> now",
            ),
            ("--token=abcdef.0123456789abcdef", "--token=<redacted>"),
            (
                "endpoints = [\"https://root:hunter22@pve1:8006\"]",
                "endpoints = [\"https://root:<redacted>@pve1:8006\"]",
            ),
            (
                "PVEAPIToken=auto@pve!scaler=01234567-89ab-cdef-0123-456789abcdef",
                "PVEAPIToken=<redacted>",
            ),
            (
                "as auto@pve!scaler=01234567-89ab-cdef-0123-456789abcdef:",
                "as auto@pve!scaler=<redacted>",
            ),
            (
                "Authorization: Bearer eyJhbGciOi.eyJzdWIiOi.c2lnbmF0dXJl",
                "Authorization: Bearer <redacted>",
            ),
            (
                "{\"password\":\"hunter22\",\"user\":\"root\"}",
                "{\"password\":\"<redacted>\",\"user\":\"root\"}",
            ),
            ("ci_password = \"hunter22\"", "ci_password = \"<redacted>\""),
            (
                "chpasswd: { list: \"root:hunter22\" }",
                "chpasswd: { <redacted> \"<redacted>\" }",
            ),
            (
                "POST https://ntfy.example.org/ops?auth=hunter22&x=y: 404",
                "POST https://ntfy.example.org/ops?<redacted> 404",
            ),
            (
                "{\"to\":\"webhook https://hooks.slack.com/services/T0/B0/hunter22\"}",
                "{\"to\":\"webhook https://hooks.slack.com/<redacted>\"}",
            ),
            (
                "export PW='hunter2222' && JOIN_PASS=hunter2222 ./join",
                "export PW='<redacted>' && JOIN_PASS=<redacted> ./join",
            ),
            (
                "bypass=hunter2222 compass: hunter2222",
                "bypass=hunter2222 compass: hunter2222",
            ),
            ("password hunter2", "password hunter2"),
            ("\"token\":\"abc123\"", "\"token\":\"abc123\""),
            (
                "token_secret_file = \"/etc/secret\"",
                "token_secret_file = \"/etc/secret\"",
            ),
            (
                "default/web-7d4b9c6f5-x2x9k fits nowhere",
                "default/web-7d4b9c6f5-x2x9k fits nowhere",
            ),
            (
                "2026-11-24T14:00:00Z 10.0.0.1:6443",
                "2026-11-24T14:00:00Z 10.0.0.1:6443",
            ),
            (
                "a -----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY----- b",
                "a <redacted> b",
            ),
            ("\"-----BEGIN PRIVATE KEY-----\\nabc\"", "\"<redacted>\""),
            (
                r#""a\npassword=hunter22 \u0001hunter""#,
                r#""a\npassword=<redacted> \u0001hunter""#,
            ),
            (
                "-----BEGIN CERTIFICATE-----\nabc",
                "-----BEGIN CERTIFICATE-----\nabc",
            ),
        ] {
            assert_eq!(without_secrets(text), clean);
        }
    }

    proptest! {
        /// A document in JSON is one after it, and done twice it is as done once.
        #[test]
        fn json_stays_json(texts in proptest::collection::vec("(?s).{0,80}", 1..6)) {
            let value = serde_json::json!({"password": texts[0], "list": texts});
            let document = value.to_string();
            let clean = without_secrets(&document).into_owned();
            prop_assert!(serde_json::from_str::<serde_json::Value>(&clean).is_ok(), "{}", clean);
            prop_assert_eq!(without_secrets(&clean), clean.as_str());
        }

        /// A planted secret never survives, wherever it stands.
        #[test]
        fn a_bootstrap_token_is_never_left(
            before in "[ \",:{}\\[\\]=]{0,3}",
            id in "[a-z0-9]{6}",
            secret in "[a-z0-9]{16}",
            after in "[ \",}\\]]{0,3}",
        ) {
            let text = format!("{before}{id}.{secret}{after}");
            prop_assert!(!without_secrets(&text).contains(&secret), "{}", text);
        }
    }
}
