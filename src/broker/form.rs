//! Reading queries and forms more strictly than PVE does, so that nothing can mean one thing here
//! and another there.
//!
//! PVE splits on `&` *and* `;`, cuts a value at a second `=`, and takes whatever bytes come. Here a
//! raw `;`, a second `=`, a broken escape, bytes that are no UTF-8 and control characters are
//! refused; what passes is written anew by [`crate::pve::form`], never passed through.

/// Parameters at most: a configuration write has some twenty, and all that one may have are below this.
const MAX_PARAMS: usize = 192;
/// Longest name in bytes.
const MAX_NAME: usize = 64;

/// Decodes `text` into names and values, in order.
pub(super) fn parse(text: &str) -> Result<Vec<(String, String)>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut params = Vec::new();
    for part in text.split('&') {
        if params.len() == MAX_PARAMS {
            return Err(format!("more than {MAX_PARAMS} parameters"));
        }
        let Some((name, value)) = part.split_once('=') else {
            return Err("a parameter without a value".to_owned());
        };
        if value.contains('=') {
            return Err("an unescaped = in a value".to_owned());
        }
        let name = decode(name)?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(plain) {
            return Err("a parameter's name that PVE does not have".to_owned());
        }
        let value = decode(value)?;
        if value
            .chars()
            .any(|c| c.is_control() && c != '\n' && c != '\t')
        {
            return Err(format!("a control character in parameter {name}"));
        }
        params.push((name, value));
    }
    Ok(params)
}

/// Decodes one path segment; what decodes to a slash, a dot segment or a control character is none.
pub(super) fn segment(text: &str) -> Result<String, String> {
    if text.contains('+') {
        return Err("a + in the path".to_owned());
    }
    let decoded = decode(text)?;
    let odd = |c: char| c.is_control() || c == '/' || c == '\\';
    if decoded.is_empty() || decoded == "." || decoded == ".." || decoded.chars().any(odd) {
        return Err("an empty, dotted or slashed path segment".to_owned());
    }
    Ok(decoded)
}

/// A path of ours with its escapes resolved, as PVE's code takes it. Segments never hold a slash.
pub(super) fn plain_path(path: &str) -> String {
    decode(path).unwrap_or_default()
}

fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digit = |half: Option<u8>| half.and_then(|half| char::from(half).to_digit(16));
                let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
                    return Err("a broken % escape".to_owned());
                };
                bytes.push(u8::try_from(high * 16 + low).unwrap_or(0));
            }
            b'+' => bytes.push(b' '),
            b';' => return Err("an unescaped ; (PVE would split there)".to_owned()),
            byte if byte.is_ascii_graphic() => bytes.push(byte),
            _ => return Err("an unescaped byte".to_owned()),
        }
    }
    String::from_utf8(bytes).map_err(|_| "bytes that are no UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_pve_would_read_otherwise_is_refused() {
        for text in [
            "a", "a=b;c=d", "a=b=c", "=b", "a=%", "a=%4", "a=%zz", "a=%ff", "a=%00", "a=%0d",
            "a=b&", "&a=b", "a b=c", "a%2e=b", "a[]=b", "a=\u{e9}", "a=b c",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse(&vec!["a=b"; MAX_PARAMS + 1].join("&")).is_err());
        let named = |length: usize| parse(&format!("{}=b", "a".repeat(length)));
        assert!(named(MAX_NAME).is_ok() && named(MAX_NAME + 1).is_err());
    }

    #[test]
    fn segments_stay_segments() {
        for text in [
            "", ".", "..", "%2e%2e", "a%2fb", "a%5cb", "a%00", "a+b", "%",
        ] {
            assert!(segment(text).is_err(), "{text}");
        }
        assert_eq!(segment("UPID%3Ap1%3A").as_deref(), Ok("UPID:p1:"));
    }

    proptest! {
        #[test]
        fn what_the_client_writes_is_read_back(
            params in prop::collection::vec(("[a-zA-Z][a-zA-Z0-9_-]{0,20}", "[^\\p{Cc}]{0,40}"), 0..8),
        ) {
            let text = crate::pve::form(&params);
            prop_assert_eq!(parse(&text), Ok(params));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,100}") {
            let _ = parse(&text);
            let _ = segment(&text);
        }
    }
}
