//! Percent-encoding of path segments and forms, the way PVE reads them.
//!
//! PVE splits forms and queries on `&` and on `;` and reads `+` as a blank, so everything but
//! unreserved characters is written as `%XX`.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// `text` with every byte but `A-Z a-z 0-9 - . _ ~` as `%XX`: safe as one path segment, as a form's
/// key or value, and as the encoded text that PVE wants in `sshkeys`.
pub fn percent(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() + text.len() / 4);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// `encodeURIComponent`: what PVE's own web page makes of `sshkeys`, on top of the form's encoding.
/// PVE keeps the spelling, so daemon and broker must write the same.
pub fn component(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

/// Undoes [`component`]; what is no escape stays, and bytes that are no text become one.
pub fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let code = hex.and_then(|two| u8::from_str_radix(two, 16).ok());
        if let (b'%', Some(code)) = (byte, code) {
            bytes.push(code);
            rest = &tail[2..];
        } else {
            bytes.push(byte);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Bytes in hexadecimal, in lower case.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A form with a file in it, as a browser sends it, and its content type: the parameter `file` is the file in base64, and
/// `filename` its name. pveproxy wants the file last, and `content` before it (pve-http-server `AnyEvent.pm`).
pub(crate) fn multipart(params: &[(String, String)]) -> Option<(String, Vec<u8>)> {
    let find = |key: &str| params.iter().find(|(name, _)| name == key);
    let (_, file) = find("file")?;
    let (_, name) = find("filename")?;
    let file = STANDARD.decode(file).ok()?;
    let boundary = format!("pve-autoscaler-{}", hex(&Sha256::digest(&file)));
    let mut body = String::new();
    for (key, value) in params {
        if key != "file" && key != "filename" {
            let _ = write!(
                body,
                "--{boundary}\r\nContent-Disposition: form-data; name=\"{key}\"\r\n\r\n{value}\r\n"
            );
        }
    }
    let _ = write!(
        body,
        "--{boundary}\r\nContent-Disposition: form-data; name=\"filename\"; filename=\"{name}\"\r\nContent-Type: application/octet-stream\r\n\r\n"
    );
    let mut body = body.into_bytes();
    body.extend(file);
    body.extend(format!("\r\n--{boundary}--\r\n").into_bytes());
    Some((format!("multipart/form-data; boundary={boundary}"), body))
}

/// A form body or query string; a repeated key is an array for PVE.
pub fn form(params: &[(String, String)]) -> String {
    let mut text = String::new();
    for (key, value) in params {
        if !text.is_empty() {
            text.push('&');
        }
        text.push_str(&percent(key));
        text.push('=');
        text.push_str(&percent(value));
    }
    text
}

/// A path of encoded segments, each after a slash.
pub(crate) fn path(segments: &[&str]) -> String {
    segments.iter().fold(String::new(), |mut path, segment| {
        path.push('/');
        path.push_str(&percent(segment));
        path
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pve_splits_on_is_escaped() {
        let params = [
            ("tags".to_owned(), "a;b".to_owned()),
            ("command".to_owned(), "x y+z&ü".to_owned()),
        ];
        assert_eq!(form(&params), "tags=a%3Bb&command=x%20y%2Bz%26%C3%BC");
    }

    #[test]
    fn a_segment_cannot_leave_its_place() {
        assert_eq!(
            path(&["nodes", "p1", "tasks", "UPID:p1:0:root@pam!t:/"]),
            "/nodes/p1/tasks/UPID%3Ap1%3A0%3Aroot%40pam%21t%3A%2F"
        );
    }
}
