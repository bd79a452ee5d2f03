//! `[web]`: beyond the host there is TLS and a login, or nothing.

use std::path::PathBuf;

use super::Problems;
use crate::config::file;
use crate::config::place::KeyPath;
use crate::config::settings::{WebSettings, WebTls};

/// What the web server is told of the file.
pub(super) fn web(web: &file::Web, problems: &mut Problems) -> WebSettings {
    let path = KeyPath::default().at("web");
    let keys = [
        ("tls_certificate", &web.tls_certificate),
        ("tls_key", &web.tls_key),
        ("users_file", &web.users_file),
    ];
    for (key, file) in keys {
        let absolute = file.as_ref().is_none_or(|file| file.is_absolute());
        problems.unless(absolute, &path.at(key), || {
            "expected an absolute path".to_owned()
        });
    }
    for (key, file, other, its) in [
        (
            "tls_certificate",
            &web.tls_certificate,
            "tls_key",
            &web.tls_key,
        ),
        (
            "tls_key",
            &web.tls_key,
            "tls_certificate",
            &web.tls_certificate,
        ),
    ] {
        if file.is_some() && its.is_none() {
            problems.add(&path.at(key), format!("is of no use without {other}"));
        }
    }
    let missing: Vec<&str> = keys
        .iter()
        .filter(|(_, file)| file.is_none())
        .map(|(key, _)| *key)
        .collect();
    let safe = web.listen.ip().is_loopback() || missing.is_empty();
    problems.unless(safe, &path.at("listen"), || {
        format!(
            "other machines can reach this address, which wants TLS and a login: {} {} missing; set {}, or listen on 127.0.0.1",
            missing.join(", "),
            if missing.len() == 1 { "is" } else { "are" },
            if missing.len() == 1 { "it" } else { "them" },
        )
    });
    WebSettings {
        listen: web.listen,
        tls: tls(web.tls_certificate.clone(), web.tls_key.clone()),
        users_file: web.users_file.clone(),
    }
}

fn tls(certificate: Option<PathBuf>, key: Option<PathBuf>) -> Option<WebTls> {
    Some(WebTls {
        certificate: certificate?,
        key: key?,
    })
}
