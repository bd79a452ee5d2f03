//! What to do where a call to PVE failed: in short what is wrong, and what to type. Pure.

use crate::config::Settings;
use crate::config::settings::Channel;
use crate::pve::CallError;
use crate::pve::transport::CallEffect;

/// What stands in the words of whoever checks a server's certificate, before the fingerprint that it has.
const PRINTS: [&str; 2] = ["SHA-256 fingerprint is ", "set its fingerprint "];
/// How long a fingerprint is with its colons.
const PRINT: usize = 95;
/// What an HTTP library says of every call that failed, and what says nothing.
const IDLE: [&str; 4] = [
    "error sending request",
    "client error (",
    "invalid peer certificate",
    "unexpected error",
];

/// How a template is built anew, by whoever may: the daemon's token may not.
pub(super) fn of_build(name: &str, settings: &Settings) -> String {
    let command = format!("`pve-autoscaler template build {name}`");
    if is_reached_by_token(name, settings) {
        format!("{command} {BUILDERS}; or make it by hand as docs/template.md says")
    } else {
        command
    }
}

/// Who may build a template where the daemon has a token.
pub(super) const BUILDERS: &str = "as root on a PVE host, with a token that may (docs/template.md, What it needs; the daemon's may not)";

/// Whether the daemon reaches the template's region by a token.
pub(super) fn is_reached_by_token(template: &str, settings: &Settings) -> bool {
    let template = settings.templates.get(template);
    let region = template.and_then(|of| settings.regions.get(&*of.region));
    region.is_some_and(|region| matches!(region.channel, Channel::Token { .. }))
}

/// What is wrong with the way to a region, and what to do.
pub(super) fn of_region(name: &str, channel: &Channel, error: &CallError) -> (String, String) {
    let Channel::Token {
        endpoints,
        token_id,
        ..
    } = channel
    else {
        let silent = error.status.is_none()
            && matches!(error.outcome, CallEffect::NotSent | CallEffect::Unknown);
        return if silent {
            (
                format!("the broker does not answer: {}", brief(&error.message, &[])),
                "systemctl status pve-autoscaler-broker.socket pve-autoscaler-broker.service"
                    .to_owned(),
            )
        } else {
            (error.words(), of_call(error, None))
        };
    };
    let table = table(name);
    let place = endpoints.join(", ");
    if let Some(print) = fingerprint(&error.message) {
        return (
            format!(
                "{place} shows another certificate than the file trusts, with the SHA-256 fingerprint {print}"
            ),
            format!(
                "if `pvenode cert info` on that host shows the same fingerprint: fingerprint = \"{print}\" in {table}, in the place of what is there or of ca_file; then systemctl reload pve-autoscaler"
            ),
        );
    }
    if error.status == Some(401) {
        return (
            format!(
                "{place} does not take the token {token_id}: {}",
                error.message
            ),
            format!(
                "pveum user token list USER, on a host of the region, shows whether it is there and has not ended; its secret stands in the token_secret_file of {table}"
            ),
        );
    }
    match error.outcome {
        CallEffect::NotSent | CallEffect::Unknown if error.status.is_none() => (
            format!(
                "{place} does not answer: {}",
                brief(&error.message, endpoints)
            ),
            format!(
                "{}systemctl status pveproxy, on that host; `curl -k {}` from here shows whether the way is open; endpoints in {table} may name further hosts",
                without_port(endpoints),
                endpoints
                    .first()
                    .map_or("https://HOST:8006", String::as_str)
            ),
        ),
        _ => (error.words(), of_call(error, None)),
    }
}

/// What to do about an endpoint that names no port and is asked at that of HTTPS, where PVE listens at another; empty if there is none.
fn without_port(endpoints: &[String]) -> String {
    let of_https = |endpoint: &&String| {
        let uri = endpoint.parse::<http::Uri>();
        uri.is_ok_and(|uri| uri.port().is_none())
    };
    endpoints
        .iter()
        .find(of_https)
        .map_or_else(String::new, |found| {
            let host = found.trim_end_matches('/');
            format!("{found} is asked at port 443, and PVE listens at 8006: \"{host}:8006\" in endpoints, where nothing else is in between; then ")
        })
}

/// The table of a region in the file.
pub(super) fn table(region: &str) -> String {
    match region {
        "default" => "[proxmox]".to_owned(),
        name => format!("[region.{name}]"),
    }
}

/// What to do where one call failed: by PVE's words where they are known, else where to look. `host` is the one that it was about.
pub(super) fn of_call(error: &CallError, host: Option<&str>) -> String {
    if let Some(advice) = &error.advice {
        return advice.clone();
    }
    let on = host.map_or_else(String::new, |host| format!(", on {host}"));
    match (error.outcome, error.status) {
        (CallEffect::RefusedByBroker, _) => {
            "systemctl reload pve-autoscaler, where the broker has not read this file; else `journalctl -u pve-autoscaler-broker` says why it refuses".to_owned()
        }
        (CallEffect::Refused, Some(401 | 403)) => {
            "give the token the privilege; docs/operations.md#without-the-broker-rights-of-an-api-token lists all".to_owned()
        }
        (CallEffect::Refused, _) => format!("journalctl -u pvedaemon -u pveproxy{on}"),
        (CallEffect::NotSent | CallEffect::Unknown, _) => {
            format!("systemctl status pveproxy pvedaemon{on}")
        }
    }
}

/// The fingerprint of a certificate that was not trusted, if that is what an error tells.
pub(super) fn fingerprint(message: &str) -> Option<&str> {
    let rest = PRINTS
        .iter()
        .find_map(|words| Some(message.split_once(words)?.1))?;
    let print = rest.get(..PRINT)?;
    let digits = print.chars().all(|c| c.is_ascii_hexdigit() || c == ':');
    digits.then_some(print)
}

/// The words of an error without what the HTTP library says of every one, and without the endpoints, which are named before it.
fn brief(message: &str, endpoints: &[String]) -> String {
    let parts = message.split(": ");
    let parts: Vec<&str> = parts
        .filter(|part| !IDLE.iter().any(|idle| part.starts_with(idle)))
        .filter(|part| !endpoints.iter().any(|endpoint| endpoint == part))
        .collect();
    if parts.is_empty() {
        return message.to_owned();
    }
    parts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Channel {
        Channel::Token {
            endpoints: vec!["https://pve1:8006".into()],
            token_id: "a@pve!b".into(),
            secret_file: "/etc/s".into(),
            ca_file: None,
            fingerprint: None,
        }
    }

    /// Found by it: whoever had set up with a token was sent to a build that the token may not do.
    #[test]
    fn a_build_is_advised_to_whoever_may() {
        let told = |channel: &str| {
            let text = format!(
                "version = 1\n[proxmox]\n{channel}\nvmids = \"9000-9019\"\n[template.debian]\nvmid = 8000\n\
                 [instance_type.s]\ncores = 2\nmemory = \"4GiB\"\n[pool.small]\ntemplate = \"debian\"\ninstance_types = [\"s\"]\nmax = 3\n"
            );
            let settings = crate::config::parse(&text, "test").expect("it is valid");
            of_build("debian", &settings)
        };
        let command = "`pve-autoscaler template build debian`";
        assert_eq!(told("channel = \"local\""), command);
        let by_token = told(
            "channel = \"token\"\nendpoints = [\"https://pve.example:8006\"]\ntoken_id = \"a@pve!b\"\n\
             token_secret_file = \"/etc/pve-autoscaler/token\"\nca_file = \"/etc/pve-autoscaler/ca.pem\"",
        );
        let may = format!("{command} as root on a PVE host, with a token that may (");
        assert!(by_token.starts_with(&may), "{by_token}");
        assert!(
            by_token.ends_with("; or make it by hand as docs/template.md says"),
            "{by_token}"
        );
    }

    #[test]
    fn another_certificate_is_told_with_what_to_put_where() {
        let print = ["AB"; 32].join(":");
        for words in [
            format!(
                "error sending request for url (https://pve1:8006/x): client error (Connect): unexpected error: the server's certificate is not the trusted one; its SHA-256 fingerprint is {print}"
            ),
            format!(
                "invalid peer certificate: UnknownIssuer; if the server is the right one, set its fingerprint {print} instead of the CA"
            ),
        ] {
            let error = CallError::new(CallEffect::NotSent, words);
            let (what, mend) = of_region("default", &token(), &error);
            assert!(!what.contains("error sending"), "{what}");
            assert!(
                what.starts_with("https://pve1:8006 shows another certificate"),
                "{what}"
            );
            let put = format!("fingerprint = \"{print}\" in [proxmox]");
            assert!(mend.contains(&put), "{mend}");
            let (_, mend) = of_region("east", &token(), &error);
            assert!(mend.contains("in [region.east]"), "{mend}");
        }
    }

    #[test]
    fn a_host_that_is_silent_is_told_in_short_with_what_to_look_at() {
        let words = "https://pve1:8006: error sending request for url (https://pve1:8006/x): client error (Connect): tcp connect error: Connection refused (os error 111)";
        let error = CallError::new(CallEffect::NotSent, words);
        let (what, mend) = of_region("default", &token(), &error);
        assert_eq!(
            what,
            "https://pve1:8006 does not answer: tcp connect error: Connection refused (os error 111)"
        );
        assert!(mend.starts_with("systemctl status pveproxy"), "{mend}");
        let mut portless = token();
        if let Channel::Token { endpoints, .. } = &mut portless {
            endpoints.push("https://[fd00::2]".into());
        }
        let (_, mend) = of_region("default", &portless, &error);
        assert!(
            mend.starts_with("https://[fd00::2] is asked at port 443, and PVE listens at 8006: \"https://[fd00::2]:8006\" in endpoints"),
            "{mend}"
        );
        let words = "broker at /run/b.sock: error sending request for url (http://broker/api2/json/version): client error (Connect): No such file or directory (os error 2)";
        let error = CallError::new(CallEffect::NotSent, words);
        let (what, mend) = of_region("default", &Channel::Local, &error);
        assert_eq!(
            what,
            "the broker does not answer: broker at /run/b.sock: No such file or directory (os error 2)"
        );
        assert!(mend.contains("pve-autoscaler-broker.socket"), "{mend}");
    }
}
