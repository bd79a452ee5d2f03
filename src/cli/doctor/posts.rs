//! Requests to others that the configuration names: webhooks and the collector of traces. Each is made as the daemon makes it, and not sent,
//! so that what the daemon would refuse is told here.

use super::finding::Findings;
use crate::config::Settings;
use crate::config::notification::{NotificationChannel, Url, Webhook};
use crate::config::settings::TelemetrySettings;
use crate::notify::{self, PostObstacle};
use crate::trace;

/// Makes every request. The way of mails is another probe's.
pub(super) fn look(settings: &Settings, findings: &mut Findings) {
    if let Some(telemetry) = &settings.telemetry {
        let TelemetrySettings {
            headers_file,
            ca_file,
            ..
        } = telemetry;
        let files = [("headers_file", headers_file), ("ca_file", ca_file)];
        let named = files.map(|(key, file)| file.is_some().then_some(key));
        let named: Vec<&str> = named.into_iter().flatten().collect();
        judge("telemetry", &named, trace::obstacles(telemetry), findings);
    }
    for (name, notification) in settings.notifications.iter() {
        if let NotificationChannel::Webhook(webhook) = &notification.way {
            let obstacles = notify::obstacles(webhook);
            let table = format!("notification.{name}");
            judge(&table, &named(webhook), obstacles, findings);
        }
    }
}

/// The keys of a webhook's table that name a file, or its address.
fn named(webhook: &Webhook) -> Vec<&'static str> {
    let url = match &webhook.url {
        Url::Plain(_) => "url",
        Url::File(_) => "url_file",
    };
    let headers = webhook.headers_file.as_ref().map(|_| "headers_file");
    let authorities = webhook.ca_file.as_ref().map(|_| "ca_file");
    let files = headers.into_iter().chain(authorities);
    std::iter::once(url).chain(files).collect()
}

/// Says what keeps the request of a table from being made, or which of its keys can be used.
fn judge(table: &str, named: &[&str], obstacles: Vec<PostObstacle>, findings: &mut Findings) {
    if obstacles.is_empty() && !named.is_empty() {
        findings.fine(format!(
            "file: [{table}]: its requests can be made ({})",
            named.join(", ")
        ));
    }
    for obstacle in obstacles {
        findings
            .wrong(format!("file: [{table}]: {}", obstacle.why))
            .mend(mend(table, &obstacle));
    }
}

/// What to type, or to do, to mend it.
fn mend(table: &str, obstacle: &PostObstacle) -> String {
    let PostObstacle { key, path, why } = obstacle;
    let Some(path) = path else {
        return format!("another {key} in [{table}]");
    };
    let shown = path.display();
    if why.contains("wanted are owner root") {
        return format!("chown root:pve-autoscaler {shown} && chmod 0640 {shown}");
    }
    if why.contains("Permission denied") {
        return format!(
            "chown root:pve-autoscaler {shown} && chmod 0640 {shown}, and the directories above it must let the daemon in"
        );
    }
    match *key {
        "url_file" => {
            format!(
                "write the URL into {shown}, one line and nothing else; or another url_file in [{table}]"
            )
        }
        "headers_file" => {
            format!(
                "write lines NAME: VALUE into {shown}, such as Authorization: Bearer …; or another headers_file in [{table}]"
            )
        }
        // Without the key it is the host's own file.
        _ if why.contains("ca-certificates has") && path.starts_with("/etc/ssl/certs") => {
            "apt install ca-certificates".to_owned()
        }
        _ => format!(
            "put the authority's certificate there, in PEM (openssl x509 -in {shown} -noout -subject shows it); or another ca_file in [{table}]"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;
    use crate::config::parse;

    /// What is said of a webhook whose files have these texts and modes.
    fn said(folder: &Path, files: [(&str, &str, u32); 3]) -> Vec<String> {
        // What the program does when it begins.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut text = "version = 1\n[notification.chat]\nkind = \"webhook\"\n".to_owned();
        for (key, content, mode) in files {
            let path = folder.join(key);
            std::fs::write(&path, content).expect("written");
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).expect("changed");
            let _ = writeln!(text, "{key} = \"{}\"", path.display());
        }
        let settings = parse(&text, "test").unwrap_or_else(|errors| panic!("{errors}"));
        let mut findings = Findings::default();
        look(&settings, &mut findings);
        findings.0.iter().map(ToString::to_string).collect()
    }

    /// Each of these files can be opened, and the daemon refuses each. It finds a doctor that only opens them.
    #[test]
    fn a_file_that_sending_refuses_is_wrong() {
        let folder = tempfile::tempdir().expect("a folder");
        let key = rcgen::KeyPair::generate().expect("a key");
        let authority = rcgen::CertificateParams::new(vec![]).expect("parameters");
        let authority = authority.self_signed(&key).expect("a certificate").pem();
        let url = ("url_file", "https://hooks.example/topsecret\n", 0o640);
        let headers = ("headers_file", "Authorization: Bearer hush-hush\n", 0o600);
        let authorities = ("ca_file", &*authority, 0o644);
        assert_eq!(
            said(folder.path(), [url, headers, authorities]),
            [
                "ok: file: [notification.chat]: its requests can be made (url_file, headers_file, ca_file)"
            ]
        );
        for (files, why, mend) in [
            (
                [("url_file", "", 0o640), headers, authorities],
                "is empty",
                "write the URL into ",
            ),
            (
                [(url.0, url.1, 0o660), headers, authorities],
                "has mode 0660",
                "chown root:pve-autoscaler ",
            ),
            (
                [
                    ("url_file", "not a url at all", 0o640),
                    headers,
                    authorities,
                ],
                "expected one line with a URL",
                "write the URL into ",
            ),
            (
                [
                    ("url_file", "http://hooks.example:99999/topsecret", 0o640),
                    headers,
                    authorities,
                ],
                "the request cannot be made",
                "write the URL into ",
            ),
            (
                [url, (headers.0, headers.1, 0o644), authorities],
                "has mode 0644",
                "chown root:pve-autoscaler ",
            ),
            (
                [url, ("headers_file", "hush-hush", 0o640), authorities],
                "line 1: expected NAME: VALUE",
                "write lines NAME: VALUE into ",
            ),
            (
                [url, headers, ("ca_file", "junk", 0o644)],
                "holds no certificate",
                "put the authority's certificate there",
            ),
        ] {
            let found = said(folder.path(), files);
            let [line] = &found[..] else {
                panic!("{why}: {found:?}")
            };
            assert!(
                line.starts_with("WRONG: file: [notification.chat]: "),
                "{line}"
            );
            assert!(line.contains(why) && line.contains(mend), "{line}");
            assert!(
                !line.contains("hush") && !line.contains("topsecret"),
                "{line}"
            );
        }
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = [
            ("url_file", "", 0o600),
            ("headers_file", "nonsense", 0o644),
            ("ca_file", "junk", 0o644),
        ];
        let found = said(folder.path(), files);
        assert_eq!(found.len(), 3, "{found:?}");
    }
}
