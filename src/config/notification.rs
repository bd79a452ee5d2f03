//! `[notification.NAME]`, resolved.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::tz::TimeZone;

use super::file::NotificationFormat;
use crate::model::condition::Severity;
use crate::model::time::{Span, Time};

/// Where the mail service listens, unless the file says otherwise.
pub const MAIL_SOCKET: &str = "/run/pve-autoscaler/mail.sock";

/// Whose URLs are secrets.
const SECRET_URLS: [&str; 5] = [
    "hooks.slack.com/",
    "discord.com/api/webhooks/",
    "discordapp.com/api/webhooks/",
    "webhook.office.com/",
    "chat.googleapis.com/",
];
/// What a URL asks with where that is a login: Gotify's `?token=…`, ntfy's `?auth=…`.
const LOGINS: [&str; 7] = [
    "token",
    "access_token",
    "auth",
    "key",
    "apikey",
    "api_key",
    "sig",
];

/// Somebody who is told when a person must do something.
#[derive(Clone, Debug, PartialEq)]
pub struct NotificationSettings {
    /// How.
    pub way: NotificationChannel,
    /// Which severities.
    pub severities: BTreeSet<Severity>,
    /// Pods wait this long before it is told.
    pub pending_after: Span,
    /// What lasts is told again after this long; `None`: never.
    pub repeat: Option<Span>,
    /// Whether the end is told.
    pub ended: bool,
    /// When nothing is told.
    pub quiet: Option<Quiet>,
}

/// How somebody is told.
#[derive(Clone, Debug, PartialEq)]
pub enum NotificationChannel {
    /// By a POST.
    Webhook(Webhook),
    /// By a mail.
    Mail(Mail),
}

/// A web server that is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Webhook {
    /// Where to.
    pub url: Url,
    /// A file with headers.
    pub headers_file: Option<PathBuf>,
    /// Whom the server's certificate is checked by; `None`: by the host's authorities.
    pub ca_file: Option<PathBuf>,
    /// What it gets.
    pub body: Body,
    /// How long a request may take.
    pub timeout: Span,
}

/// Where a webhook is.
#[derive(Clone, Debug, PartialEq)]
pub enum Url {
    /// Here.
    Plain(String),
    /// It is a secret, and in this file.
    File(PathBuf),
}

/// What a webhook gets.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// What others know.
    Known(NotificationFormat),
    /// A text with gaps, and what it is.
    Filled {
        /// The text.
        text: Arc<str>,
        /// The `Content-Type` that the webhook is sent with the text.
        content_type: String,
    },
}

/// A mail that is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Mail {
    /// To whom.
    pub to: Vec<String>,
    /// From whom.
    pub from: String,
    /// The mail service's socket.
    pub socket: PathBuf,
}

/// Hours in which nothing is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Quiet {
    /// The minute of the day in which they begin.
    pub from: i32,
    /// The minute of the day in which they end.
    pub to: i32,
    /// By whose clock.
    pub zone: TimeZone,
    /// What is told all the same.
    pub except: BTreeSet<Severity>,
}

impl Quiet {
    /// Whether nothing of this severity is told now.
    pub fn silences(&self, severity: Severity, now: Time) -> bool {
        if self.except.contains(&severity) {
            return false;
        }
        let Ok(now) = jiff::Timestamp::from_millisecond(now.0) else {
            return false;
        };
        let local = self.zone.to_datetime(now);
        let minute = i32::from(local.hour()) * 60 + i32::from(local.minute());
        if self.from <= self.to {
            (self.from..self.to).contains(&minute)
        } else {
            minute >= self.from || minute < self.to
        }
    }
}

/// A URL without what may be a login: it goes to the page and to others who are told.
fn shown(url: &str) -> String {
    let end = |from: &str, until: &[char]| from.find(until).unwrap_or(from.len());
    let host = url.find("://").map_or(0, |at| at + 3);
    let kept = if is_secret(url) {
        host + end(&url[host..], &['/', '?', '#'])
    } else {
        end(url, &['?', '#'])
    };
    let more = if kept < url.len() { "…" } else { "" };
    format!("{}{more}", &url[..kept])
}

/// Whether whoever has this URL may send to whom it leads to.
pub fn is_secret(url: &str) -> bool {
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let mut names = query.split('&').filter_map(|pair| pair.split('=').next());
    SECRET_URLS.iter().any(|secret| path.contains(secret))
        || names.any(|name| LOGINS.contains(&&*name.to_ascii_lowercase()))
}

impl NotificationSettings {
    /// What it is and where it leads, without a secret.
    pub fn told_to(&self) -> String {
        match &self.way {
            NotificationChannel::Webhook(webhook) => match &webhook.url {
                Url::Plain(url) => format!("webhook {}", shown(url)),
                Url::File(path) => format!("webhook, its URL in {}", path.display()),
            },
            NotificationChannel::Mail(mail) => format!("mail to {}", mail.to.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_what_may_be_a_login() {
        for (url, told) in [
            ("https://ntfy.sh/ops", "https://ntfy.sh/ops"),
            ("https://ntfy.sh/ops?title=a", "https://ntfy.sh/ops…"),
            ("https://ntfy.sh/ops?auth=QmVhcmVy", "https://ntfy.sh…"),
            (
                "https://gotify.example:8443/message?Token=AbC",
                "https://gotify.example:8443…",
            ),
            (
                "https://hooks.slack.com/services/T0/B0/x",
                "https://hooks.slack.com…",
            ),
            ("https://h/x#y", "https://h/x…"),
        ] {
            assert_eq!(shown(url), told);
        }
    }

    fn quiet(from: i32, to: i32, zone: &str) -> Quiet {
        Quiet {
            from,
            to,
            zone: TimeZone::get(zone).expect("a zone"),
            except: BTreeSet::from([Severity::Critical]),
        }
    }

    fn at(text: &str) -> Time {
        let at: jiff::Timestamp = text.parse().expect("a time");
        Time(at.as_millisecond())
    }

    #[test]
    fn hours_are_quiet_by_the_clock_of_their_place() {
        let night = quiet(22 * 60, 7 * 60, "UTC");
        for (time, silent) in [
            ("2026-11-25T21:59:59Z", false),
            ("2026-11-25T22:00:00Z", true),
            ("2026-11-26T00:00:00Z", true),
            ("2026-11-26T06:59:59Z", true),
            ("2026-11-26T07:00:00Z", false),
        ] {
            assert_eq!(
                night.silences(Severity::Warning, at(time)),
                silent,
                "{time}"
            );
            assert!(!night.silences(Severity::Critical, at(time)));
        }
        let noon = quiet(12 * 60, 13 * 60, "UTC");
        assert!(noon.silences(Severity::Info, at("2026-11-25T12:30:00Z")));
        assert!(!noon.silences(Severity::Info, at("2026-11-25T13:00:00Z")));
    }

    /// One hour by UTC is another one by a place's clock in winter than in summer, and quiet hours go by the place's clock.
    #[test]
    fn a_place_with_summer_time_keeps_its_hours() {
        let Ok(zone) = TimeZone::get("Europe/Vienna") else {
            return; // A host without tzdata.
        };
        let night = Quiet {
            zone,
            ..quiet(22 * 60, 7 * 60, "UTC")
        };
        assert!(night.silences(Severity::Warning, at("2026-11-25T05:30:00Z")));
        assert!(!night.silences(Severity::Warning, at("2026-07-25T05:30:00Z")));
    }
}
