//! The endpoints of a region that is reached with a token: each is tried by itself, since the daemon looks at the next one only when
//! the one before fails, and learns then that it never worked.

use std::sync::Arc;

use futures::future::join_all;
use tokio::time::timeout;

use super::Here;
use super::finding::Findings;
use super::mends;
use crate::cli::channels;
use crate::config::settings::{Channel, RegionSettings};
use crate::pve::transport::CallEffect;
use crate::pve::{CallError, Client};

/// Tries each, where there are several.
pub(super) async fn look(here: &Here, name: &Arc<str>, region: &RegionSettings) -> Findings {
    let mut findings = Findings::default();
    let Channel::Token { endpoints, .. } = &region.channel else {
        return findings;
    };
    if endpoints.len() < 2 {
        return findings;
    }
    let tried = endpoints.iter().map(|endpoint| one(here, region, endpoint));
    for (endpoint, tried) in endpoints.iter().zip(join_all(tried).await) {
        match tried {
            EndpointTrial::Works => findings.fine(format!(
                "region {name}: {endpoint} answers and takes the token"
            )),
            // What is wrong with all of them is said of the region.
            EndpointTrial::Unusable => {}
            EndpointTrial::Fails(failed) => {
                let (channel, error) = *failed;
                let (what, mend) = match mends::fingerprint(&error.message) {
                    Some(print) => (
                        format!(
                            "{endpoint} shows another certificate than the file trusts, with the SHA-256 fingerprint {print}, and is never used"
                        ),
                        format!(
                            "a fingerprint is that of one host; ca_file in {}, a copy of /etc/pve/pve-root-ca.pem, in the place of fingerprint fits all hosts of a cluster",
                            mends::table(name)
                        ),
                    ),
                    None => mends::of_region(name, &channel, &error),
                };
                findings
                    .warning(format!("region {name}: {what}"))
                    .mend(mend);
            }
        }
    }
    findings
}

/// What became of one endpoint.
enum EndpointTrial {
    Works,
    Unusable,
    Fails(Box<(Channel, CallError)>),
}

async fn one(here: &Here, region: &RegionSettings, endpoint: &str) -> EndpointTrial {
    let mut alone = region.clone();
    if let Channel::Token { endpoints, .. } = &mut alone.channel {
        *endpoints = vec![endpoint.to_owned()];
    }
    let Ok(transport) = channels::open(&alone, &here.settings.broker.socket) else {
        return EndpointTrial::Unusable;
    };
    let client = Client::new(transport);
    let seconds = here.patience.as_secs_f64();
    let silent = |_| {
        let why = format!("no answer within {seconds} s");
        Err(CallError::new(CallEffect::Unknown, why))
    };
    let asked = timeout(here.patience, client.version()).await;
    match asked.unwrap_or_else(silent) {
        Ok(_) => EndpointTrial::Works,
        Err(error) => EndpointTrial::Fails(Box::new((alone.channel, error))),
    }
}
