//! The ways to PVE that the configuration names.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;

use crate::config::settings::{Channel, RegionSettings};
use crate::pve::transport::Transport;
use crate::pve::transport::https::{self, Https};
use crate::pve::transport::unix::UnixSocket;

/// The way to one region. Nothing is sent yet.
pub(super) fn open(region: &RegionSettings, broker: &Path) -> anyhow::Result<Arc<dyn Transport>> {
    match &region.channel {
        Channel::Local => Ok(Arc::new(UnixSocket::new(broker)?)),
        Channel::Token {
            endpoints,
            token_id,
            secret_file,
            ca_file,
            fingerprint,
        } => {
            let secret = std::fs::read_to_string(secret_file).with_context(|| {
                format!("cannot read token_secret_file {}", secret_file.display())
            })?;
            let options = https::TokenOptions {
                endpoints: endpoints.clone(),
                token_id: token_id.clone(),
                secret: secret.trim().to_owned().into(),
                ca_file: ca_file.clone(),
                fingerprint: fingerprint.clone(),
            };
            Ok(Arc::new(Https::new(&options)?))
        }
    }
}
