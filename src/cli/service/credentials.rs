//! What the daemon logs in with: the kubeconfig, and the files of PVE's tokens. What is wrong with them is in the daemon's status.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use super::ServiceShared;
use crate::cli::channels::RegionChannel;
use crate::kubernetes::KubeClient;
use crate::pve::transport::token_file::TokenFile;

/// What the present work logs in with.
#[derive(Debug, Default)]
pub(super) struct Logins {
    kube: Option<KubeClient>,
    /// By region.
    tokens: BTreeMap<Arc<str>, Arc<TokenFile>>,
}

impl Logins {
    /// Those of work that begins.
    pub(super) fn of(kube: &KubeClient) -> Logins {
        Logins {
            kube: Some(kube.clone()),
            tokens: BTreeMap::new(),
        }
    }
}

impl ServiceShared {
    fn logins(&self) -> MutexGuard<'_, Logins> {
        self.logins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Work begins that logs in with these.
    pub(super) fn log_in(&self, logins: Logins) {
        *self.logins() = logins;
    }

    /// It has this way to a region.
    pub(super) fn log_in_to(&self, region: &Arc<str>, channel: &RegionChannel) {
        if let RegionChannel::Token(token) = channel {
            self.logins().tokens.insert(region.clone(), token.clone());
        }
    }

    /// Tells of the kubeconfig (when its certificate ends, and whether it can be used) and of tokens whose file has a secret that is
    /// not in use.
    pub(super) fn credentials(&self) {
        let (client, tokens) = {
            let logins = self.logins();
            (logins.kube.clone(), logins.tokens.clone())
        };
        if let Some(client) = client {
            let credentials = client.credentials();
            self.metrics.kubeconfig_expires(credentials.expires);
            if let Some(warning) = &credentials.warning
                && !self.standing().problems.contains_key("kubeconfig")
            {
                tracing::warn!("{warning}");
            }
            self.problem("kubeconfig", credentials.error.or(credentials.warning));
        }
        let problems = tokens.iter().filter_map(|(region, token)| {
            let problem = token.problem()?;
            Some(format!("region {region}: {problem}"))
        });
        let problems: Vec<String> = problems.collect();
        self.problem("token", (!problems.is_empty()).then(|| problems.join("; ")));
    }
}
