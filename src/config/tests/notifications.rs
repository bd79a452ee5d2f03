//! `[notification.NAME]`.

use super::{SMALL, messages};
use crate::config::notification::{Body, NotificationChannel, Url};
use crate::config::parse;

fn with(text: &str) -> String {
    format!("{SMALL}\n{text}")
}

/// What is wrong with it; empty where nothing is.
fn wrong(text: &str) -> String {
    let text = with(text);
    match parse(&text, "test.toml") {
        Ok(_) => String::new(),
        Err(_) => messages(&text),
    }
}

const HOOK: &str = "[notification.ops]\nkind = \"webhook\"\nurl = \"https://a.example/x\"\n";
const MAIL: &str = "[notification.ops]\nkind = \"mail\"\nto = [\"root\"]\n";

#[test]
fn a_webhook_and_a_mail_are_read() {
    let settings = parse(&with(HOOK), "test.toml").expect("it is right");
    let ops = &settings.notifications["ops"];
    let NotificationChannel::Webhook(webhook) = &ops.way else {
        panic!("{ops:?}");
    };
    assert_eq!(webhook.url, Url::Plain("https://a.example/x".to_owned()));
    assert!(matches!(webhook.body, Body::Known(_)));
    assert!(ops.quiet.is_none() && ops.ended && ops.severities.len() == 2);
    let settings = parse(&with(MAIL), "test.toml").expect("it is right");
    let NotificationChannel::Mail(mail) = &settings.notifications["ops"].way else {
        panic!("a mail");
    };
    assert_eq!(mail.from, "pve-autoscaler");
}

#[test]
fn what_is_wrong_is_said_with_the_key() {
    for (text, said) in [
        (
            "[notification.ops]\nto = [\"root\"]\n".to_owned(),
            "notification.ops.kind: is missing",
        ),
        (
            "[notification.ops]\nkind = \"pigeon\"\n".to_owned(),
            "pigeon",
        ),
        (
            "[notification.ops]\nkind = \"webhook\"\n".to_owned(),
            "wants url or url_file",
        ),
        (
            "[notification.Ops]\nkind = \"mail\"\nto = [\"root\"]\n".to_owned(),
            "lower-case letters",
        ),
        (format!("{HOOK}to = [\"root\"]\n"), "is for kind = \"mail\""),
        (
            format!("{HOOK}url_file = \"/x\"\n"),
            "is of no use beside url",
        ),
        (
            format!("{HOOK}headers_file = \"x\"\n"),
            "expected an absolute path",
        ),
        (format!("{HOOK}timeout = \"1m\"\n"), "expected 1s to 20s"),
        (format!("{HOOK}repeat = \"1m\"\n"), "expected at least 5m"),
        (
            format!("{HOOK}severities = []\n"),
            "critical, warning and info",
        ),
        (format!("{HOOK}severities = [\"loud\"]\n"), "loud"),
        (
            format!("{HOOK}content_type = \"text/plain\"\n"),
            "is for a body",
        ),
        (
            format!("{HOOK}format = \"ntfy\"\nbody = \"x\"\n"),
            "is of no use beside body",
        ),
        (
            format!("{HOOK}body = \"{{{{ titel }}}}\"\n"),
            "it names \"titel\"",
        ),
        (
            format!("{HOOK}body = '{{\"a\": \"{{{{ title }}}}\"}}'\n"),
            "no JSON",
        ),
        (
            format!(
                "{HOOK}[notification.ops.quiet]\nfrom = \"22\"\nto = \"07:00\"\ntime_zone = \"UTC\"\n"
            ),
            "a time of the day",
        ),
        (
            format!(
                "{HOOK}[notification.ops.quiet]\nfrom = \"22:00\"\nto = \"07:00\"\ntime_zone = \"Middle/Earth\"\n"
            ),
            "a time zone that this host knows",
        ),
        (
            format!(
                "{HOOK}[notification.ops.quiet]\nfrom = \"22:00\"\nto = \"22:00\"\ntime_zone = \"UTC\"\n"
            ),
            "expected another time than from",
        ),
        (
            format!("{MAIL}url = \"https://a/\"\n"),
            "is for kind = \"webhook\"",
        ),
        (
            "[notification.ops]\nkind = \"mail\"\n".to_owned(),
            "expected a list of addresses",
        ),
        (
            "[notification.ops]\nkind = \"mail\"\nto = [\"-oQ/tmp\"]\n".to_owned(),
            "is no mail address",
        ),
        (
            "[notification.ops]\nkind = \"mail\"\nto = [\"a\\nBcc: b\"]\n".to_owned(),
            "is no mail address",
        ),
        (
            HOOK.replace("https://", "https://me:secret@"),
            "headers_file",
        ),
    ] {
        let messages = wrong(&text);
        assert!(messages.contains(said), "{text}: {messages}");
    }
}

#[test]
fn a_body_with_quotes_in_its_values_is_right() {
    assert_eq!(
        wrong(&format!(
            "{HOOK}body = '{{\"a\": {{{{ title | tojson }}}}}}'\n"
        )),
        ""
    );
    assert_eq!(
        wrong(&format!(
            "{HOOK}body = '{{{{ text }}}}'\ncontent_type = \"text/plain\"\n"
        )),
        ""
    );
}

#[test]
fn a_url_that_is_a_secret_is_warned_of() {
    let slack = HOOK.replace(
        "https://a.example/x",
        "https://hooks.slack.com/services/T/B/x",
    );
    let settings = parse(&with(&slack), "test.toml").expect("it is allowed");
    let said = settings.warnings.join("\n");
    assert!(
        said.contains("url_file") && !said.contains("services/T"),
        "{said}"
    );
}
