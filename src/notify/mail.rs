//! A mail as text: headers that no name can break out of, and a body that no relay changes.
//!
//! The mail goes to a service of its own (`pve-autoscaler mail-relay`, started by systemd for each mail), which hands
//! it to the host's sendmail: that wants the set-group-id bit of `postdrop`, which the daemon's unit forbids.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::config::notification::Mail;
use crate::model::foreign;
use crate::model::notice::Notice;
use crate::model::time::Time;

/// Longest order and answer, in bytes: a notice's text has 40 kB at the most.
pub const LONGEST: u64 = 256 * 1024;
/// Longest line of a header, without its end (RFC 5322 wants at most 78).
const HEADER_LINE: usize = 76;
/// Bytes of one encoded word's text: in base64 with its frame less than 75 characters (RFC 2047).
const WORD: usize = 42;
/// Length of a line of the body in base64 (RFC 2045).
const BODY_LINE: usize = 76;
/// The relay gives sendmail twenty seconds.
const PATIENCE: Duration = Duration::from_secs(22);

/// What the mail service is asked for. The recipients are those of the configuration, which it reads itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MailOrder {
    /// The notification's name in the configuration.
    pub notification: String,
    /// The subject.
    pub subject: String,
    /// The body.
    pub text: String,
}

/// What the mail service answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MailAnswer {
    /// sendmail took it.
    Taken(String),
    /// It did not, and why.
    Refused(String),
}

/// Has a notice sent as a mail. What came back, in words.
///
/// # Errors
/// Why it was not sent.
pub async fn send(name: &str, mail: &Mail, notice: &Notice) -> Result<String, String> {
    let order = MailOrder {
        notification: name.to_owned(),
        subject: notice.title.clone(),
        text: notice.text.clone(),
    };
    timeout(PATIENCE, ask(&mail.socket, &order))
        .await
        .map_err(|_| {
            format!(
                "the mail service at {} did not answer within {} s; `journalctl -u 'pve-autoscaler-mail@*'` may say why",
                mail.socket.display(),
                PATIENCE.as_secs()
            )
        })?
}

async fn ask(socket: &Path, order: &MailOrder) -> Result<String, String> {
    let at = |what: &str, error: &dyn std::fmt::Display| {
        format!(
            "the mail service at {} {what}: {error}; `systemctl status pve-autoscaler-mail.socket` says whether it listens",
            socket.display()
        )
    };
    let mut stream = UnixStream::connect(socket)
        .await
        .map_err(|error| at("cannot be reached", &error))?;
    let text = serde_json::to_vec(order).map_err(|error| at("cannot be asked", &error))?;
    // It may have answered already that it does not want to read on.
    let sent = stream.write_all(&text).await;
    let sent = sent.and(stream.shutdown().await);
    let mut answer = Vec::new();
    let read = (&mut stream).take(LONGEST).read_to_end(&mut answer).await;
    match serde_json::from_slice(&answer) {
        Ok(MailAnswer::Taken(said)) => Ok(said),
        Ok(MailAnswer::Refused(why)) => Err(foreign::line(&why, 500)),
        Err(error) => {
            sent.map_err(|error| at("broke off", &error))?;
            read.map_err(|error| at("broke off", &error))?;
            Err(at("gave no answer that can be read", &error))
        }
    }
}

/// The whole mail, with line ends as sendmail wants them. `id` tells it from all others.
pub fn compose(mail: &Mail, order: &MailOrder, host: &str, id: &str, now: Time) -> String {
    let address = |text: &str| text.replace(char::is_whitespace, "");
    let to: Vec<String> = mail.to.iter().map(|to| address(to)).collect();
    let host: String = host
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
        .collect();
    let mut text = String::new();
    for (name, value) in [
        ("From", address(&mail.from)),
        ("To", to.join(",\n ")),
        ("Subject", subject(&order.subject)),
        ("Date", date(now)),
        ("Message-ID", format!("<{id}@{host}>")),
        ("Auto-Submitted", "auto-generated".to_owned()),
        ("MIME-Version", "1.0".to_owned()),
        ("Content-Type", "text/plain; charset=utf-8".to_owned()),
        ("Content-Transfer-Encoding", "base64".to_owned()),
    ] {
        let _ = writeln!(text, "{name}: {value}");
    }
    text.push('\n');
    // A mail's own lines end so, whatever the transport's do.
    let body = STANDARD.encode(order.text.replace('\n', "\r\n"));
    let mut rest = body.as_str();
    while !rest.is_empty() {
        let (line, tail) = rest.split_at(rest.len().min(BODY_LINE));
        text.push_str(line);
        text.push('\n');
        rest = tail;
    }
    text
}

/// A subject as a header's value: plain where it is plain and short, else as encoded words, one a line.
fn subject(text: &str) -> String {
    // A line break becomes a space, and nothing else that steers a reader gets through either.
    let text = foreign::line(&text.replace(['\r', '\n'], " "), 250);
    let plain = text.bytes().all(|b| (0x20..0x7f).contains(&b));
    if plain && !text.contains("=?") && text.len() + "Subject: ".len() <= HEADER_LINE {
        return text;
    }
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    for c in text.chars() {
        if word.len() + c.len_utf8() > WORD {
            words.push(std::mem::take(&mut word));
        }
        word.push(c);
    }
    words.push(word);
    let words = words.iter();
    let words = words.map(|word| format!("=?utf-8?B?{}?=", STANDARD.encode(word)));
    words.collect::<Vec<_>>().join("\n ")
}

/// A time as mails write it.
fn date(now: Time) -> String {
    let now = jiff::Timestamp::from_millisecond(now.0).unwrap_or_default();
    now.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn composed(subject: &str, text: &str) -> String {
        let mail = Mail {
            to: vec!["root".to_owned(), "ops@example.org".to_owned()],
            from: "pve-autoscaler".to_owned(),
            socket: "/none".into(),
        };
        let order = MailOrder {
            notification: "ops".to_owned(),
            subject: subject.to_owned(),
            text: text.to_owned(),
        };
        compose(&mail, &order, "pve1", "1", Time(0))
    }

    /// The headers, unfolded.
    fn headers(mail: &str) -> Vec<String> {
        let head = mail.split("\n\n").next().unwrap_or_default();
        let head = head.replace("\n ", " ");
        head.lines().map(str::to_owned).collect()
    }

    fn decoded_subject(mail: &str) -> String {
        let headers = headers(mail);
        let subject = headers
            .iter()
            .find_map(|line| line.strip_prefix("Subject: "));
        let words = subject.expect("it has one").split(' ');
        words.fold(String::new(), |text, word| {
            let inner = word
                .strip_prefix("=?utf-8?B?")
                .and_then(|word| word.strip_suffix("?="));
            let inner = inner.unwrap_or_else(|| panic!("{word}"));
            text + &String::from_utf8(STANDARD.decode(inner).expect("base64")).expect("utf-8")
        })
    }

    #[test]
    fn a_plain_mail() {
        let mail = composed("[pve-autoscaler pve1] test", "one\ntwo\n");
        assert_eq!(
            mail,
            "From: pve-autoscaler\nTo: root,\n ops@example.org\nSubject: [pve-autoscaler pve1] test\n\
             Date: Thu, 01 Jan 1970 00:00:00 +0000\nMessage-ID: <1@pve1>\nAuto-Submitted: auto-generated\n\
             MIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: base64\n\n\
             b25lDQp0d28NCg==\n"
        );
    }

    #[test]
    fn no_name_becomes_a_header() {
        for evil in [
            "pod a\nBcc: thief@example.org",
            "pod a\r\nBcc: thief@example.org\r\n\r\nbody",
            "pod a\0b",
            "pod \u{2028}Bcc: x",
            "=?utf-8?Q?x?=",
            "ü\nBcc: x",
            "a\n",
        ] {
            let mail = composed(evil, "");
            let headers = headers(&mail);
            assert_eq!(headers.len(), 9, "{mail}");
            assert!(
                !headers.iter().any(|line| line.starts_with("Bcc")),
                "{mail}"
            );
            assert!(!mail.contains('\0') && mail.is_ascii(), "{mail}");
        }
        assert_eq!(
            decoded_subject(&composed("=?utf-8?Q?x?=", "")),
            "=?utf-8?Q?x?="
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_nine_headers_of_short_lines_and_comes_back(subject in ".{0,300}", text in "(.|\n){0,300}") {
            let mail = composed(&subject, &text);
            assert!(mail.is_ascii() && !mail.contains('\r') && !mail.contains('\0'));
            assert!(mail.lines().all(|line| line.len() <= 78), "{mail}");
            assert_eq!(headers(&mail).len(), 9, "{mail}");
            let (_, body) = mail.split_once("\n\n").expect("a body");
            let body = STANDARD.decode(body.replace('\n', "")).expect("base64");
            let body = String::from_utf8(body).expect("utf-8");
            assert_eq!(body, text.replace('\n', "\r\n"));
        }
    }

    #[test]
    fn a_long_subject_comes_back_whole() {
        let long = "Maschinen des Pools „Größe“ schlagen fehl ".repeat(5);
        assert_eq!(decoded_subject(&composed(&long, "")), long.trim_end());
    }
}
