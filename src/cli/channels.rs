//! The ways to PVE that the configuration names.

use std::path::Path;
use std::sync::Arc;

use crate::config::settings::{Channel, RegionSettings};
use crate::pve::transport::Transport;
use crate::pve::transport::https::TokenOptions;
use crate::pve::transport::token_file::TokenFile;
use crate::pve::transport::unix::UnixSocket;

/// A way to a region.
#[derive(Clone, Debug)]
pub(super) enum RegionChannel {
    /// Through the broker.
    Broker(Arc<UnixSocket>),
    /// With a token.
    Token(Arc<TokenFile>),
}

impl RegionChannel {
    /// The way to one region. Nothing is sent yet.
    pub(super) fn open(region: &RegionSettings, broker: &Path) -> anyhow::Result<RegionChannel> {
        match &region.channel {
            Channel::Local => Ok(RegionChannel::Broker(Arc::new(UnixSocket::new(broker)?))),
            Channel::Token {
                endpoints,
                token_id,
                secret_file,
                ca_file,
                fingerprint,
            } => {
                let options = TokenOptions {
                    endpoints: endpoints.clone(),
                    token_id: token_id.clone(),
                    // It is read from the file.
                    secret: String::new().into(),
                    ca_file: ca_file.clone(),
                    fingerprint: fingerprint.clone(),
                };
                let token = TokenFile::open(options, secret_file)?;
                Ok(RegionChannel::Token(Arc::new(token)))
            }
        }
    }

    /// The way itself.
    pub(super) fn transport(self) -> Arc<dyn Transport> {
        match self {
            RegionChannel::Broker(socket) => socket,
            RegionChannel::Token(token) => token,
        }
    }
}

/// The way to one region. Nothing is sent yet.
pub(super) fn open(region: &RegionSettings, broker: &Path) -> anyhow::Result<Arc<dyn Transport>> {
    Ok(RegionChannel::open(region, broker)?.transport())
}
