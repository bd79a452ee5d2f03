//! `[telemetry]`: an address, and nothing that is of no use without one.

use super::Problems;
use crate::config::file;
use crate::config::place::KeyPath;
use crate::config::scalar::Duration;
use crate::config::settings::TelemetrySettings;
use crate::config::syntax;
use crate::model::time::Span;

/// What OTLP over HTTP appends to the address of a collector, for traces.
const TRACES: &str = "/v1/traces";
/// A request that takes longer is of no more use.
const LONGEST_REQUEST: Span = Span::seconds(60);

/// Where traces go; `None`: nowhere.
pub(super) fn telemetry(
    file: &file::Telemetry,
    problems: &mut Problems,
    warnings: &mut Vec<String>,
) -> Option<TelemetrySettings> {
    let path = KeyPath::default().at("telemetry");
    for (key, named) in [
        ("headers_file", &file.headers_file),
        ("ca_file", &file.ca_file),
    ] {
        let absolute = named.as_ref().is_none_or(|file| file.is_absolute());
        problems.unless(absolute, &path.at(key), || {
            "expected an absolute path".to_owned()
        });
        let idle = named.is_some() && file.otlp_endpoint.is_none();
        problems.unless(!idle, &path.at(key), || {
            "is of no use without otlp_endpoint".to_owned()
        });
    }
    let Duration(timeout) = file.timeout;
    problems.unless(
        timeout >= Span::seconds(1) && timeout <= LONGEST_REQUEST,
        &path.at("timeout"),
        || format!("expected 1s to {LONGEST_REQUEST}"),
    );
    let endpoint = file.otlp_endpoint.as_deref()?;
    let fault = match syntax::web_address(endpoint, "http://tempo.example:4318") {
        Err(why) => Some(why),
        Ok(()) if endpoint.contains(['?', '#']) => {
            Some("expected no ? and no #: `/v1/traces` is added at the end".to_owned())
        }
        Ok(()) => None,
    };
    if let Some(why) = fault {
        problems.add(&path.at("otlp_endpoint"), why);
    }
    if file.headers_file.is_some() && endpoint.starts_with("http:") {
        warnings.push(
            "telemetry: its headers go over the network as they are, since otlp_endpoint is http://"
                .to_owned(),
        );
    }
    let base = endpoint.trim_end_matches('/');
    let base = base.strip_suffix(TRACES).unwrap_or(base);
    Some(TelemetrySettings {
        url: format!("{base}{TRACES}"),
        headers_file: file.headers_file.clone(),
        ca_file: file.ca_file.clone(),
        timeout,
    })
}
