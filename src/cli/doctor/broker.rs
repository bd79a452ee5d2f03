//! The broker of this host: which one it is, what it lets pass, whom it serves.

use super::finding::Findings;
use super::region::ReachedRegion;
use crate::cli::agreement;
use crate::config::Settings;
use crate::config::settings::Channel;
use crate::pve::Client;

/// Whether a region is reached through a broker that runs with another policy than this file.
pub(super) async fn is_behind(client: &Client, name: &str, settings: &Settings) -> bool {
    let here = settings.regions.get(name);
    if here.is_none_or(|here| here.channel != Channel::Local) {
        return false;
    }
    let info = client.broker_info().await;
    info.is_ok_and(|info| info.policy_hash != settings.policy_hash())
}

/// Asks the broker what it is, where a region is reached through one.
pub(super) async fn look(region: &ReachedRegion, findings: &mut Findings) {
    let (name, settings) = (&region.name, &region.here.settings);
    let here = settings.regions.get(&**name);
    if here.is_none_or(|region| region.channel != Channel::Local) {
        return;
    }
    let info = match region.client.broker_info().await {
        Ok(info) => info,
        Err(error) => {
            findings
                .wrong(format!("region {name}: the broker: {error}"))
                .mend(
                    "systemctl status pve-autoscaler-broker.socket pve-autoscaler-broker.service",
                );
            return;
        }
    };
    let before = findings.0.len();
    if info.policy_hash != settings.policy_hash() {
        findings
            .warning(format!(
                "region {name}: the broker runs with another policy than this file"
            ))
            .mend("systemctl reload pve-autoscaler");
    }
    if info.version != env!("CARGO_PKG_VERSION") {
        findings
            .warning(format!(
                "region {name}: the broker is version {}, this program {}",
                info.version,
                env!("CARGO_PKG_VERSION")
            ))
            .mend("systemctl restart pve-autoscaler-broker");
    }
    if let Some(problem) = agreement::binding(&info, region.cluster.as_deref()) {
        // What to do stands behind it.
        let (what, mend) = problem.split_once(": `").unwrap_or((&problem, ""));
        let mend = if mend.is_empty() {
            String::new()
        } else {
            format!("`{mend}")
        };
        findings.wrong(format!("region {name}: {what}")).mend(mend);
    }
    if info.channel == "perl" {
        findings
            .warning(format!(
                "region {name}: the broker goes through PVE's Perl, because the HTTP API cannot be used: {}",
                info.last_error.as_deref().unwrap_or("no reason known")
            ))
            .mend("systemctl status pveproxy pvedaemon");
    }
    if findings.0.len() == before {
        findings.fine(format!(
            "region {name}: the broker answers and has our policy"
        ));
    }
}
