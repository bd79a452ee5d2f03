//! A notice as a POST to a web server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::timeout;

use crate::agent::secret_file;
use crate::config::file::NotificationFormat;
use crate::config::notification::{Body, Url, Webhook};
use crate::model::condition::Severity;
use crate::model::foreign;
use crate::model::notice::{Notice, State};
use crate::pve::transport::tls::{self, Trust};
use crate::pve::transport::wire::client_builder;

/// The authorities of a Debian host.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Longest file with headers or a URL.
const LONGEST_FILE: u64 = 16 * 1024;
/// So much of an answer is read: it is shown when it is no success.
const LONGEST_ANSWER: usize = 4 * 1024;
/// So much of it is shown, in characters.
const SHOWN: usize = 200;
/// A shorter text is no secret that could be blotted out of an answer.
const SHORTEST_SECRET: usize = 6;
/// ntfy takes so many bytes as a message; what is longer it makes an attachment of.
const NTFY_TEXT: usize = 3_900;

/// A request that is ready to be sent.
struct Ready {
    url: SecretString,
    headers: HeaderMap,
    body: String,
    /// Texts that must not be shown.
    secrets: Vec<SecretString>,
}

/// Sends a notice. What came back, in words.
///
/// # Errors
/// Why it was not taken, without a secret.
pub(super) async fn send(webhook: &Webhook, notice: &Notice) -> Result<String, String> {
    let ready = prepare(webhook, notice)?;
    let limit = webhook.timeout.to_std();
    let client = client(webhook, ready.url.expose_secret())?;
    let sent = timeout(limit, exchange(&client, &ready)).await;
    let answer = sent.unwrap_or_else(|_| Err(format!("no answer within {}", words(limit))));
    answer.map_err(|error| ready.blotted(&error))
}

fn words(limit: Duration) -> String {
    format!("{} s", limit.as_secs_f64())
}

fn client(webhook: &Webhook, url: &str) -> Result<reqwest::Client, String> {
    let builder = client_builder();
    let builder = if url.starts_with("https:") {
        let path = webhook.ca_file.clone();
        let path = path.unwrap_or_else(|| PathBuf::from(AUTHORITIES));
        let trust = crate::pve::certificates(&path).map_err(|why| {
            format!("{why}; Debian's package ca-certificates has authorities, ca_file names others")
        })?;
        builder.tls_backend_preconfigured(tls::client(Trust::Issuers(trust))?)
    } else {
        builder
    };
    let client = builder.build();
    client.map_err(|error| {
        format!(
            "the request cannot be made: {}",
            chain(&error.without_url())
        )
    })
}

/// An error with its causes; the URL is not among them.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

async fn exchange(client: &reqwest::Client, ready: &Ready) -> Result<String, String> {
    let request = client
        .post(ready.url.expose_secret())
        .headers(ready.headers.clone())
        .body(ready.body.clone());
    let mut response = request
        .send()
        .await
        .map_err(|error| chain(&error.without_url()))?;
    let status = response.status();
    let mut answer = Vec::new();
    // What breaks off after the status is an answer all the same.
    while let Ok(Some(chunk)) = response.chunk().await {
        answer.extend_from_slice(&chunk);
        if answer.len() >= LONGEST_ANSWER {
            break;
        }
    }
    answer.truncate(LONGEST_ANSWER);
    let said = foreign::line(&String::from_utf8_lossy(&answer), SHOWN);
    let colon = if said.is_empty() { "" } else { ": " };
    let answer = format!("it answered {status}{colon}{said}");
    if status.is_success() {
        Ok(ready.blotted(&answer))
    } else {
        Err(answer)
    }
}

impl Ready {
    /// A text without the secrets that went into the request, for servers that repeat what they were sent.
    fn blotted(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            text = text.replace(secret.expose_secret(), "<redacted>");
        }
        text
    }
}

fn prepare(webhook: &Webhook, notice: &Notice) -> Result<Ready, String> {
    let mut secrets = Vec::new();
    let url = match &webhook.url {
        Url::Plain(url) => SecretString::from(url.clone()),
        Url::File(path) => {
            let url = url_of(path)?;
            // A server or an error may name the path without the rest.
            let parts = url.expose_secret().split(['?', '#']).next();
            let path = parts.and_then(|url| url.splitn(4, '/').nth(3));
            note(&mut secrets, url.expose_secret());
            note(&mut secrets, path.unwrap_or_default());
            url
        }
    };
    let mut headers = HeaderMap::new();
    let body = match &webhook.body {
        Body::Known(format) => known(*format, notice, &mut headers)?,
        Body::Filled { text, content_type } => {
            set(&mut headers, header::CONTENT_TYPE, content_type)?;
            notice.fill(text).map_err(|why| format!("body: {why}"))?
        }
    };
    let agent = concat!("pve-autoscaler/", env!("CARGO_PKG_VERSION"));
    set(&mut headers, header::USER_AGENT, agent)?;
    if let Some(path) = &webhook.headers_file {
        let text = secret_file::read_as("headers_file", path, LONGEST_FILE)?;
        for (name, mut value) in headers_of(path, &text)? {
            let shown = value.to_str().unwrap_or_default();
            note(&mut secrets, shown);
            note(
                &mut secrets,
                shown.split(' ').next_back().unwrap_or_default(),
            );
            value.set_sensitive(true);
            headers.insert(name, value);
        }
    }
    Ok(Ready {
        url,
        headers,
        body,
        secrets,
    })
}

fn note(secrets: &mut Vec<SecretString>, text: &str) {
    if text.len() >= SHORTEST_SECRET {
        secrets.push(SecretString::from(text.to_owned()));
    }
}

fn url_of(path: &Path) -> Result<SecretString, String> {
    let url = secret_file::read_as("url_file", path, LONGEST_FILE)?;
    let text = url.expose_secret();
    let parsed = text.parse::<http::Uri>().ok();
    let fit = parsed.is_some_and(|url| {
        matches!(url.scheme_str(), Some("http" | "https")) && url.authority().is_some()
    });
    if fit {
        Ok(url)
    } else {
        Err(format!(
            "url_file {}: expected one line with a URL that begins with https:// or http://",
            path.display()
        ))
    }
}

/// The headers in a file's text. An error names the line and not what stands in it.
fn headers_of(path: &Path, text: &SecretString) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let mut headers = Vec::new();
    for (number, line) in text.expose_secret().lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let header = line.split_once(':').and_then(|(name, value)| {
            let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
            Some((name, HeaderValue::from_str(value.trim()).ok()?))
        });
        headers.push(header.ok_or_else(|| {
            format!(
                "headers_file {}: line {}: expected NAME: VALUE",
                path.display(),
                number + 1
            )
        })?);
    }
    Ok(headers)
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) -> Result<(), String> {
    let value = HeaderValue::from_str(value)
        .map_err(|_| format!("the header {name} cannot have the value {value:?}"))?;
    headers.insert(name, value);
    Ok(())
}

/// The body that others know, and the headers that belong to it.
fn known(
    format: NotificationFormat,
    notice: &Notice,
    headers: &mut HeaderMap,
) -> Result<String, String> {
    let json = |value: &serde_json::Value| value.to_string();
    match format {
        NotificationFormat::Json => {
            set(headers, header::CONTENT_TYPE, "application/json")?;
            serde_json::to_string(notice).map_err(|error| error.to_string())
        }
        NotificationFormat::Slack => {
            set(headers, header::CONTENT_TYPE, "application/json")?;
            let escaped = |text: &str| {
                let text = text.replace('&', "&amp;");
                text.replace('<', "&lt;").replace('>', "&gt;")
            };
            let text = format!("*{}*\n{}", escaped(&notice.title), escaped(&notice.text));
            Ok(json(&serde_json::json!({ "text": text })))
        }
        NotificationFormat::Ntfy => {
            set(headers, header::CONTENT_TYPE, "text/plain; charset=utf-8")?;
            let (priority, tag) = match (first_state(notice), notice.severity) {
                (State::Ended | State::Test, _) => ("3", "white_check_mark"),
                (_, Severity::Critical) => ("5", "rotating_light"),
                (_, Severity::Warning) => ("4", "warning"),
                (_, Severity::Info) => ("3", "information_source"),
            };
            set(
                headers,
                HeaderName::from_static("title"),
                &encoded(&notice.title),
            )?;
            set(headers, HeaderName::from_static("priority"), priority)?;
            set(headers, HeaderName::from_static("tags"), tag)?;
            Ok(cut(&notice.text, NTFY_TEXT))
        }
    }
}

/// What happened to the gravest condition.
fn first_state(notice: &Notice) -> State {
    let first = notice.conditions.first();
    first.map_or(State::Test, |told| told.state)
}

/// A header's value as one encoded word (RFC 2047), which ntfy reads, where it is not plain.
fn encoded(text: &str) -> String {
    if text.bytes().all(|b| (0x20..0x7f).contains(&b)) {
        text.to_owned()
    } else {
        format!("=?utf-8?B?{}?=", STANDARD.encode(text))
    }
}

/// At most so many bytes of a text, cut between characters.
fn cut(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let mut end = bytes;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::notice::Teller;
    use crate::model::time::{Span, Time};

    fn webhook(format: NotificationFormat) -> Webhook {
        Webhook {
            url: Url::Plain("http://127.0.0.1:9/x".to_owned()),
            headers_file: None,
            ca_file: None,
            body: Body::Known(format),
            timeout: Span::seconds(1),
        }
    }

    #[test]
    fn each_format_is_what_its_readers_know() {
        let notice = &Notice::samples()[0];
        let json = prepare(&webhook(NotificationFormat::Json), notice).expect("it is ready");
        let body: serde_json::Value = serde_json::from_str(&json.body).expect("JSON");
        assert_eq!(body["version"], 1);
        assert_eq!(body["conditions"][0]["state"], "began");
        let slack = prepare(&webhook(NotificationFormat::Slack), notice).expect("it is ready");
        let body: serde_json::Value = serde_json::from_str(&slack.body).expect("JSON");
        assert!(
            body["text"]
                .as_str()
                .is_some_and(|text| text.starts_with("*[pve-autoscaler"))
        );
        let ntfy = prepare(&webhook(NotificationFormat::Ntfy), notice).expect("it is ready");
        assert_eq!(
            ntfy.headers["priority"], "4",
            "what is over counts for less"
        );
        assert_eq!(ntfy.body, notice.text);
    }

    #[test]
    fn a_title_that_is_not_ascii_is_one_encoded_word() {
        let teller = Teller {
            host: "größe".to_owned(),
            cluster: "c".to_owned(),
        };
        let notice = Notice::test(&teller, Time(0));
        let ntfy = prepare(&webhook(NotificationFormat::Ntfy), &notice).expect("it is ready");
        let title = ntfy.headers["title"].to_str().expect("ascii");
        assert!(title.starts_with("=?utf-8?B?"), "{title}");
    }

    #[test]
    fn secrets_are_blotted_out_of_what_comes_back() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("written");
            let mode = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(&path, mode).expect("changed");
            path
        };
        let mut hook = webhook(NotificationFormat::Json);
        hook.url = Url::File(write(
            "url",
            "https://hooks.example/services/T0/topsecret\n",
        ));
        hook.headers_file = Some(write(
            "headers",
            "# who we are\nAuthorization: Bearer hush-hush\nX-A: b\n",
        ));
        let ready = prepare(&hook, &Notice::samples()[0]).expect("it is ready");
        assert_eq!(ready.headers["x-a"], "b");
        assert!(ready.headers["authorization"].is_sensitive());
        let said = ready.blotted("no services/T0/topsecret with hush-hush here");
        assert_eq!(said, "no <redacted> with <redacted> here");
        hook.headers_file = Some(write("headers", "Authorization Bearer hush-hush\n"));
        let error = prepare(&hook, &Notice::samples()[0])
            .err()
            .expect("an error");
        assert!(
            error.contains("line 1") && !error.contains("hush"),
            "{error}"
        );
    }
}
