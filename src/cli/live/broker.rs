//! The broker of this host: which one it is, what it lets pass, whom it serves.

use super::{ClusterId, Findings};
use crate::cli::agreement;
use crate::config::Settings;
use crate::pve::Client;

/// Looks.
pub(super) async fn look(
    client: &Client,
    name: &str,
    settings: &Settings,
    cluster: Option<&ClusterId>,
    findings: &mut Findings,
) {
    let info = match client.broker_info().await {
        Ok(info) => info,
        Err(error) => {
            findings.wrong(format!("region {name}: the broker: {error}"));
            return;
        }
    };
    let before = findings.0.len();
    if info.policy_hash != settings.policy_hash() {
        findings.warning(format!(
            "region {name}: the broker runs with another policy than this file; systemctl reload pve-autoscaler-broker"
        ));
    }
    if info.version != env!("CARGO_PKG_VERSION") {
        findings.warning(format!(
            "region {name}: the broker is version {}, this program {}; systemctl restart pve-autoscaler-broker",
            info.version,
            env!("CARGO_PKG_VERSION")
        ));
    }
    if let Some(problem) = agreement::binding(&info, cluster.map(|id| &**id)) {
        findings.wrong(format!("region {name}: {problem}"));
    }
    if info.channel == "perl" {
        findings.warning(format!(
            "region {name}: the broker goes through PVE's Perl, because the HTTP API cannot be used: {}",
            info.last_error.as_deref().unwrap_or("no reason known")
        ));
    }
    if findings.0.len() == before {
        findings.fine(format!(
            "region {name}: the broker answers and has our policy"
        ));
    }
}
