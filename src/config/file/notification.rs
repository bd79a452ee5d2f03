//! `[notification.NAME]`: who is told when a person must do something.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::scalar::Duration;
use crate::model::condition::Severity;
use crate::model::time::Span;

/// How somebody is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NotificationKind {
    /// By a POST to a web server.
    Webhook,
    /// By a mail through the host's sendmail.
    Mail,
}

/// What a webhook gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NotificationFormat {
    /// The JSON that docs/notifications.md describes.
    Json,
    /// Text, with title, priority and tags in the headers that ntfy knows.
    Ntfy,
    /// `{"text": …}`, as Slack, Mattermost, Rocket.Chat and others take it.
    Slack,
}

/// Who is told when a person must do something ([notifications](notifications.md)): a web server, or a mail address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Notification {
    /// How: `webhook` or `mail`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<NotificationKind>,
    /// Webhook: where to, `https://…` or `http://…`. This file is no place for secrets: what is secret as a whole, as
    /// with Slack, goes to `url_file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Webhook: instead of `url`, a file that has it, of root with group pve-autoscaler and mode 0640.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_file: Option<PathBuf>,
    /// Webhook: a file with lines `NAME: VALUE`, headers of every request, such as `Authorization: Bearer …`; of root
    /// with group pve-autoscaler and mode 0640. It is read for every request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers_file: Option<PathBuf>,
    /// Webhook: the certificates of the authorities that the server's is checked by, in PEM. Default: those of the
    /// host's Debian, `/etc/ssl/certs/ca-certificates.crt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// Webhook: what it gets, `json`, `ntfy` or `slack`. Default: `json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<NotificationFormat>,
    /// Webhook: instead of `format`, a text with gaps, such as `{"msg": {{ title | tojson }}}`. It knows the fields of the JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Webhook: what the `body` is. Default: `application/json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Webhook: how long a request may take, its answer included; 1s to 20s.
    pub timeout: Duration,
    /// Mail: to whom. `root` on a PVE host reaches PVE's own notification targets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// Mail: from whom. Default: `pve-autoscaler`, to which the mail system appends the host's domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Mail: the socket of the service that hands mails to `/usr/sbin/sendmail`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// Which severities are told: `critical`, `warning`, `info`.
    pub severities: Vec<Severity>,
    /// Of pods that wait in vain it is told when the oldest has waited this long.
    pub pending_after: Duration,
    /// What lasts is told again after this long, `5m` or more; `0s`: never.
    pub repeat: Duration,
    /// Whether it is told that something is over.
    pub ended: bool,
    /// Hours in which nothing is told; what lasts is told when they are over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quiet: Option<QuietHours>,
}

/// Hours in which nothing is told, by a clock of a place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuietHours {
    /// When they begin, such as `22:00`.
    pub from: String,
    /// When they end, such as `07:00`; before `from`: on the next day.
    pub to: String,
    /// By whose clock, such as `Europe/Vienna` or `UTC`.
    pub time_zone: String,
    /// Severities that are told all the same.
    #[serde(default = "critical")]
    pub except: Vec<Severity>,
}

fn critical() -> Vec<Severity> {
    vec![Severity::Critical]
}

impl Default for Notification {
    fn default() -> Notification {
        Notification {
            kind: None,
            url: None,
            url_file: None,
            headers_file: None,
            ca_file: None,
            format: None,
            body: None,
            content_type: None,
            timeout: Duration(Span::seconds(10)),
            to: Vec::new(),
            from: None,
            socket: None,
            severities: vec![Severity::Critical, Severity::Warning],
            pending_after: Duration(Span::minutes(15)),
            repeat: Duration(Span::minutes(24 * 60)),
            ended: true,
            quiet: None,
        }
    }
}
