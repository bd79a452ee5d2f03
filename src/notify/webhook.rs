//! A notice as a POST to a web server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, header};

use crate::config::file::NotificationFormat;
use crate::config::notification::{Body, Url, Webhook, is_secret};
use crate::model::condition::Severity;
use crate::model::notice::{ConditionState, Notice};
use crate::post::{self, Post, PostObstacle};

/// ntfy takes so many bytes as a message; what is longer it makes an attachment of.
const NTFY_TEXT: usize = 3_900;
/// So many characters a chat takes: Rocket.Chat refuses more than 5,000, Slack advises 4,000 at most.
const CHAT_TEXT: usize = 4_000;
/// Discord refuses more than 2,000.
const DISCORD_TEXT: usize = 2_000;
/// What the path of Discord's door for Slack's form ends with.
const DISCORD: &str = "/slack";

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
        Url::Plain(url) if is_secret(url) => Post::to_secret(&url.clone().into()),
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
            let most = if post.ends_with(DISCORD) {
                DISCORD_TEXT
            } else {
                CHAT_TEXT
            };
            let title = format!("*{}*\n", escaped(&notice.title, most));
            let left = most.saturating_sub(title.chars().count());
            let text = title + &escaped(&notice.text, left);
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

/// A text as Slack wants it, at most so many characters of that.
fn escaped(text: &str, most: usize) -> String {
    let piece = |c: char| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        other => other.to_string(),
    };
    let length = |c: char| piece(c).chars().count();
    if text.chars().map(length).sum::<usize>() <= most {
        return text.chars().map(piece).collect();
    }
    let mut left = most.saturating_sub(1);
    let fit = text.chars().take_while(|c| {
        let fits = length(*c) <= left;
        left = left.saturating_sub(length(*c));
        fits
    });
    let cut: String = fit.map(piece).collect();
    cut + "…"
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

    /// A flood of conditions, of which texts come that are longer than a chat takes: what is refused is told to nobody.
    #[test]
    fn a_long_text_is_cut_to_what_a_chat_takes() {
        let mut notice = Notice::samples().remove(0);
        notice.text = "a <b> & c ".repeat(1_000);
        for (url, most) in [
            ("https://chat.example/hooks/1", CHAT_TEXT),
            ("https://discord.com/api/webhooks/1/2/slack", DISCORD_TEXT),
            (
                "https://discord.com/api/webhooks/1/2/slack?wait=true",
                DISCORD_TEXT,
            ),
        ] {
            let webhook = Webhook {
                url: Url::Plain(url.to_owned()),
                ..webhook(NotificationFormat::Slack)
            };
            let ready = prepare(&webhook, &notice).expect("it is ready");
            let body: serde_json::Value = serde_json::from_str(&ready.body).expect("JSON");
            let text = body["text"].as_str().expect("a text");
            let length = text.chars().count();
            assert!((most - 6..=most).contains(&length), "{url}: {length}");
            let end = text.strip_suffix('…').expect("it is cut");
            // No sign of Slack's is cut in half.
            let last = end.rfind('&').unwrap_or_default();
            assert!(end[last..].contains(';'), "{end}");
            assert!(
                text.starts_with("*[pve-autoscaler pve1] warning: "),
                "{text}"
            );
        }
        let short = escaped("1 < 2 & 3", 17);
        assert_eq!(short, "1 &lt; 2 &amp; 3");
        assert_eq!(escaped("1 < 2 & 3", 15), "1 &lt; 2 &amp;…");
        assert_eq!(escaped("1 < 2 & 3", 14), "1 &lt; 2 …");
    }

    /// A server that says which address it was asked for says no secret of it, whether the URL stands in the file or in one of its own.
    #[test]
    fn a_login_in_a_url_is_blotted_out_of_what_comes_back() {
        let webhook = Webhook {
            url: Url::Plain("https://push.example.org/message?token=AbCdEf7&x=1".to_owned()),
            ..webhook(NotificationFormat::Ntfy)
        };
        let ready = prepare(&webhook, &Notice::samples()[0]).expect("it is ready");
        let said = ready.post.blotted("no such page: /x?x=1&token=AbCdEf7");
        assert_eq!(said, "no such page: /x?x=1&token=<redacted>");
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
