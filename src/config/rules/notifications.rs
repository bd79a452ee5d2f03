//! `[notification.NAME]`: what a webhook or a mail needs, and nothing of the other.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::tz::TimeZone;

use super::{Problems, name};
use crate::config::file::{self, NotificationFormat, NotificationKind};
use crate::config::notification::{
    Body, MAIL_SOCKET, Mail, NotificationChannel, NotificationSettings, Quiet, Url, Webhook,
    is_secret,
};
use crate::config::place::KeyPath;
use crate::config::syntax;
use crate::model::notice::Notice;
use crate::model::time::Span;

/// What a body is, unless the file says otherwise.
const JSON: &str = "application/json";
/// Nobody reads what comes more often.
const SHORTEST_REPEAT: Span = Span::minutes(5);
/// A request may take as long; a test of all of them must end while a person waits.
const LONGEST_REQUEST: Span = Span::seconds(20);
/// Those who are told, by name.
pub(super) fn notifications(
    file: &BTreeMap<String, file::Notification>,
    problems: &mut Problems,
) -> BTreeMap<Arc<str>, NotificationSettings> {
    let root = KeyPath::default().at("notification");
    let mut resolved = BTreeMap::new();
    for (key, notification) in file {
        let path = root.at(key);
        name(&path, key, 63, problems);
        if let Some(found) = resolve(notification, &path, problems) {
            resolved.insert(Arc::from(key.as_str()), found);
        }
    }
    resolved
}

/// What is allowed but looks like a mistake.
pub(super) fn warn(
    notifications: &BTreeMap<Arc<str>, NotificationSettings>,
    warnings: &mut Vec<String>,
) {
    for (name, notification) in notifications {
        let NotificationChannel::Webhook(webhook) = &notification.way else {
            continue;
        };
        let Url::Plain(url) = &webhook.url else {
            continue;
        };
        if is_secret(url) {
            warnings.push(format!(
                "notification.{name}: its url is a secret, and everybody on this host can read this file; move it to a file of root's that url_file names"
            ));
        }
        if url.starts_with("http://") && webhook.headers_file.is_some() {
            warnings.push(format!(
                "notification.{name}: its headers go over the network as they are, since the url is http://"
            ));
        }
    }
}

fn resolve(
    notification: &file::Notification,
    path: &KeyPath,
    problems: &mut Problems,
) -> Option<NotificationSettings> {
    let kind = problems.require(
        notification.kind,
        &path.at("kind"),
        "\"webhook\" or \"mail\"",
    )?;
    foreign_keys(notification, kind, path, problems);
    let way = match kind {
        NotificationKind::Webhook => {
            webhook(notification, path, problems).map(NotificationChannel::Webhook)
        }
        NotificationKind::Mail => Some(NotificationChannel::Mail(mail(
            notification,
            path,
            problems,
        ))),
    };
    let repeat = notification.repeat.0;
    problems.unless(
        repeat == Span::ZERO || repeat >= SHORTEST_REPEAT,
        &path.at("repeat"),
        || format!("expected at least {SHORTEST_REPEAT}, or \"0s\" for never"),
    );
    problems.unless(
        !notification.severities.is_empty(),
        &path.at("severities"),
        || "expected one of critical, warning and info at least".to_owned(),
    );
    let quiet = notification.quiet.as_ref();
    let quiet = quiet.and_then(|quiet| quiet_hours(quiet, &path.at("quiet"), problems));
    Some(NotificationSettings {
        way: way?,
        severities: notification.severities.iter().copied().collect(),
        pending_after: notification.pending_after.0,
        repeat: (repeat > Span::ZERO).then_some(repeat),
        ended: notification.ended,
        quiet,
    })
}

/// Keys that mean nothing for this kind.
fn foreign_keys(
    notification: &file::Notification,
    kind: NotificationKind,
    path: &KeyPath,
    problems: &mut Problems,
) {
    let webhook = [
        ("url", notification.url.is_some()),
        ("url_file", notification.url_file.is_some()),
        ("headers_file", notification.headers_file.is_some()),
        ("ca_file", notification.ca_file.is_some()),
        ("format", notification.format.is_some()),
        ("body", notification.body.is_some()),
        ("content_type", notification.content_type.is_some()),
    ];
    let mail = [
        ("to", !notification.to.is_empty()),
        ("from", notification.from.is_some()),
        ("socket", notification.socket.is_some()),
    ];
    let (others, of) = match kind {
        NotificationKind::Webhook => (&mail[..], "mail"),
        NotificationKind::Mail => (&webhook[..], "webhook"),
    };
    for (key, set) in others {
        problems.unless(!set, &path.at(*key), || format!("is for kind = \"{of}\""));
    }
}

fn webhook(
    notification: &file::Notification,
    path: &KeyPath,
    problems: &mut Problems,
) -> Option<Webhook> {
    let timeout = notification.timeout.0;
    problems.unless(
        timeout >= Span::seconds(1) && timeout <= LONGEST_REQUEST,
        &path.at("timeout"),
        || format!("expected 1s to {LONGEST_REQUEST}"),
    );
    for (key, file) in [
        ("url_file", &notification.url_file),
        ("headers_file", &notification.headers_file),
        ("ca_file", &notification.ca_file),
    ] {
        absolute(file.as_deref(), &path.at(key), problems);
    }
    let url = match (&notification.url, &notification.url_file) {
        (Some(url), None) => {
            if let Err(why) = syntax::web_address(url, "https://ntfy.example.org/topic") {
                problems.add(&path.at("url"), why);
            }
            Some(Url::Plain(url.clone()))
        }
        (None, Some(file)) => Some(Url::File(file.clone())),
        (Some(_), Some(_)) => {
            problems.add(&path.at("url_file"), "is of no use beside url");
            None
        }
        (None, None) => {
            problems.add(path, "wants url or url_file: where the webhook is");
            None
        }
    };
    Some(Webhook {
        url: url?,
        headers_file: notification.headers_file.clone(),
        ca_file: notification.ca_file.clone(),
        body: body(notification, path, problems)?,
        timeout,
    })
}

fn body(
    notification: &file::Notification,
    path: &KeyPath,
    problems: &mut Problems,
) -> Option<Body> {
    let Some(text) = &notification.body else {
        problems.unless(
            notification.content_type.is_none(),
            &path.at("content_type"),
            || "is for a body".to_owned(),
        );
        let format = notification.format.unwrap_or(NotificationFormat::Json);
        return Some(Body::Known(format));
    };
    if notification.format.is_some() {
        problems.add(&path.at("format"), "is of no use beside body");
        return None;
    }
    let content_type = notification.content_type.as_deref().unwrap_or(JSON);
    let fit = |b: u8| (0x20..0x7f).contains(&b);
    problems.unless(
        content_type.contains('/') && content_type.bytes().all(fit),
        &path.at("content_type"),
        || "expected a media type such as text/plain".to_owned(),
    );
    let tried = problems.trials.into_iter();
    let tried = tried.flat_map(|trials| {
        Notice::samples()
            .into_iter()
            .map(move |sample| (trials, sample))
    });
    for (trials, sample) in tried {
        let filled = (trials.notice)(&sample, text);
        let json = content_type.starts_with(JSON);
        let problem = match &filled {
            Err(why) => Some(why.clone()),
            Ok(text) if json => serde_json::from_str::<serde_json::Value>(text).err().map(|error| {
                format!("comes to text that is no JSON ({error}): write {{{{ title | tojson }}}}, without quotes around it, or set content_type")
            }),
            Ok(_) => None,
        };
        if let Some(problem) = problem {
            problems.add(&path.at("body"), problem);
            return None;
        }
    }
    Some(Body::Filled {
        text: text.as_str().into(),
        content_type: content_type.to_owned(),
    })
}

fn mail(notification: &file::Notification, path: &KeyPath, problems: &mut Problems) -> Mail {
    problems.unless(!notification.to.is_empty(), &path.at("to"), || {
        "is missing; expected a list of addresses, such as [\"root\"]".to_owned()
    });
    let addresses = notification.to.iter().map(|to| ("to", to));
    let addresses = addresses.chain(notification.from.iter().map(|from| ("from", from)));
    for (key, address) in addresses {
        problems.unless(syntax::mail_address(address), &path.at(key), || {
            format!("{address:?} is no mail address such as ops@example.org or root")
        });
    }
    let socket = notification.socket.clone();
    let socket = socket.unwrap_or_else(|| PathBuf::from(MAIL_SOCKET));
    absolute(Some(&socket), &path.at("socket"), problems);
    Mail {
        to: notification.to.clone(),
        from: notification
            .from
            .clone()
            .unwrap_or_else(|| "pve-autoscaler".to_owned()),
        socket,
    }
}

fn absolute(file: Option<&Path>, path: &KeyPath, problems: &mut Problems) {
    problems.unless(file.is_none_or(Path::is_absolute), path, || {
        "expected an absolute path".to_owned()
    });
}

fn quiet_hours(quiet: &file::QuietHours, path: &KeyPath, problems: &mut Problems) -> Option<Quiet> {
    let mut minute = |key: &str, text: &str| {
        let minute = minute(text);
        problems.unless(minute.is_some(), &path.at(key), || {
            "expected a time of the day such as \"22:00\"".to_owned()
        });
        minute
    };
    let (from, to) = (minute("from", &quiet.from), minute("to", &quiet.to));
    if from.is_some() && from == to {
        problems.add(&path.at("to"), "expected another time than from");
    }
    let zone = match TimeZone::get(&quiet.time_zone) {
        Ok(zone) => Some(zone),
        Err(error) => {
            problems.add(
                &path.at("time_zone"),
                format!("expected a time zone that this host knows, such as \"Europe/Vienna\" or \"UTC\" ({error})"),
            );
            None
        }
    };
    Some(Quiet {
        from: from?,
        to: to?,
        zone: zone?,
        except: quiet.except.iter().copied().collect(),
    })
}

/// The minute of the day: `22:00` is 1320.
fn minute(text: &str) -> Option<i32> {
    let (hour, minute) = text.split_once(':')?;
    let digits = |text: &str| text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(hour) || !digits(minute) {
        return None;
    }
    let (hour, minute): (i32, i32) = (hour.parse().ok()?, minute.parse().ok()?);
    (hour < 24 && minute < 60).then_some(hour * 60 + minute)
}
