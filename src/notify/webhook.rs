//! A notice as a POST to a web server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, header};

use crate::config::file::NotificationFormat;
use crate::config::notification::{Body, Url, Webhook};
use crate::model::condition::Severity;
use crate::model::notice::{ConditionState, Notice};
use crate::post::{self, Post, PostObstacle};

/// ntfy takes so many bytes as a message; what is longer it makes an attachment of.
const NTFY_TEXT: usize = 3_900;

/// A request that is ready to be sent.
struct Ready {
    post: Post,
    body: String,
}

/// Sends a notice. What came back, in words.
///
/// # Errors
/// Why it was not taken, without a secret.
pub(super) async fn send(webhook: &Webhook, notice: &Notice) -> Result<String, String> {
    let Ready { post, body } = prepare(webhook, notice)?;
    let client = post.client(webhook.ca_file.as_deref())?;
    let answer = post.send(&client, body, webhook.timeout.to_std()).await?;
    if answer.status.is_success() {
        Ok(answer.words())
    } else {
        Err(answer.words())
    }
}

/// All that would keep a notice from being sent, as far as it is known without sending.
pub(super) fn obstacles(webhook: &Webhook) -> Vec<PostObstacle> {
    let url_file = match &webhook.url {
        Url::Plain(_) => None,
        Url::File(path) => Some(path.as_path()),
    };
    let headers_file = webhook.headers_file.as_deref();
    let ca_file = webhook.ca_file.as_deref();
    post::obstacles(begin(webhook), url_file, headers_file, ca_file)
}

/// The request as far as its address.
fn begin(webhook: &Webhook) -> Result<Post, String> {
    match &webhook.url {
        Url::Plain(url) => Post::to(url),
        Url::File(path) => Post::to_url_in(path),
    }
}

fn prepare(webhook: &Webhook, notice: &Notice) -> Result<Ready, String> {
    let mut post = begin(webhook)?;
    let body = match &webhook.body {
        Body::Known(format) => known(*format, notice, &mut post)?,
        Body::Filled { text, content_type } => {
            post.set(header::CONTENT_TYPE, content_type)?;
            notice.fill(text).map_err(|why| format!("body: {why}"))?
        }
    };
    if let Some(path) = &webhook.headers_file {
        post.set_from(path)?;
    }
    Ok(Ready { post, body })
}

/// The body that others know, and the headers that belong to it.
fn known(format: NotificationFormat, notice: &Notice, post: &mut Post) -> Result<String, String> {
    let json = |value: &serde_json::Value| value.to_string();
    match format {
        NotificationFormat::Json => {
            post.set(header::CONTENT_TYPE, "application/json")?;
            serde_json::to_string(notice).map_err(|error| error.to_string())
        }
        NotificationFormat::Slack => {
            post.set(header::CONTENT_TYPE, "application/json")?;
            let escaped = |text: &str| {
                let text = text.replace('&', "&amp;");
                text.replace('<', "&lt;").replace('>', "&gt;")
            };
            let text = format!("*{}*\n{}", escaped(&notice.title), escaped(&notice.text));
            Ok(json(&serde_json::json!({ "text": text })))
        }
        NotificationFormat::Ntfy => {
            post.set(header::CONTENT_TYPE, "text/plain; charset=utf-8")?;
            let (priority, tag) = match (first_state(notice), notice.severity) {
                (ConditionState::Ended | ConditionState::Test, _) => ("3", "white_check_mark"),
                (_, Severity::Critical) => ("5", "rotating_light"),
                (_, Severity::Warning) => ("4", "warning"),
                (_, Severity::Info) => ("3", "information_source"),
            };
            post.set(HeaderName::from_static("title"), &encoded(&notice.title))?;
            post.set(HeaderName::from_static("priority"), priority)?;
            post.set(HeaderName::from_static("tags"), tag)?;
            Ok(cut(&notice.text, NTFY_TEXT))
        }
    }
}

/// What happened to the gravest condition.
fn first_state(notice: &Notice) -> ConditionState {
    let first = notice.conditions.first();
    first.map_or(ConditionState::Test, |told| told.state)
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
    use crate::model::notice::NoticeSource;
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
        assert_eq!(body["schema_version"], 1);
        // Receivers of the first versions know it by this name.
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
            ntfy.post.header("priority"),
            "4",
            "what is over counts for less"
        );
        assert_eq!(ntfy.body, notice.text);
    }

    #[test]
    fn a_title_that_is_not_ascii_is_one_encoded_word() {
        let teller = NoticeSource {
            host: "größe".to_owned(),
            cluster: "c".to_owned(),
        };
        let notice = Notice::test(&teller, Time(0));
        let ntfy = prepare(&webhook(NotificationFormat::Ntfy), &notice).expect("it is ready");
        let title = ntfy.post.header("title");
        assert!(title.starts_with("=?utf-8?B?"), "{title}");
    }
}
