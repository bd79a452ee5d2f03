//! The policy's hash, by which daemon and broker find out that they run with different policies.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::settings::{BrokerAllow, Settings};

impl Settings {
    /// SHA-256 (hex) of what the broker may do, in a form that depends on nothing else: two files
    /// that mean the same have the same hash.
    pub fn policy_hash(&self) -> String {
        self.broker.allow.hash()
    }
}

impl BrokerAllow {
    /// SHA-256 (hex) of this policy's canonical form.
    pub fn hash(&self) -> String {
        let mut sorted = self.clone();
        sorted.vmids.sort_unstable();
        sorted.template_vmids.sort_unstable();
        sorted.template_tags.sort_unstable();
        for list in [
            &mut sorted.template_names,
            &mut sorted.storages,
            &mut sorted.iso_storages,
            &mut sorted.bridges,
            &mut sorted.resource_pools,
        ] {
            list.sort_unstable();
        }
        // Plain data: numbers, strings and lists always serialise.
        let canonical = serde_json::to_vec(&sorted).unwrap_or_default();
        Sha256::digest(canonical)
            .iter()
            .fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
    }
}
