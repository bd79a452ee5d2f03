//! The collector that traces go to: whether it takes them.

use super::Here;
use super::finding::Findings;
use crate::trace;

/// Sends it a request without a trace, where one is configured.
pub(super) async fn look(here: &Here, findings: &mut Findings) {
    let Some(telemetry) = &here.settings.telemetry else {
        return;
    };
    let url = &telemetry.url;
    match trace::try_collector(telemetry).await {
        Ok(said) => findings.fine(format!("telemetry: {url} takes traces: {said}")),
        Err(why) => findings
            .warning(format!(
                "telemetry: {url} does not take traces: {why}; machines are made all the same"
            ))
            .mend("see that otlp_endpoint in [telemetry] is a collector's port for OTLP over HTTP, mostly 4318, and that headers_file has its login"),
    }
}
