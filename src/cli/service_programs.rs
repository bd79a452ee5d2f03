//! The command lines of the programs that the package's services run: the daemon's, and the broker's.

use std::path::PathBuf;

use clap::Parser;

use super::args::RunOptions;
use crate::config::DEFAULT_PATH;

/// The daemon of pve-autoscaler, as the service pve-autoscaler.service runs it.
#[derive(Debug, Parser)]
#[command(name = "pve-autoscaler-daemon", version, max_term_width = 100)]
pub(super) struct DaemonCli {
    /// The configuration file.
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
    pub(super) config: PathBuf,
    #[command(flatten)]
    pub(super) options: RunOptions,
}

/// The broker of pve-autoscaler: the small root process through which the daemon reaches PVE on this host.
#[derive(Debug, Parser)]
#[command(name = "pve-autoscaler-broker", version, max_term_width = 100)]
pub(super) struct BrokerCli {
    /// The configuration file.
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
    pub(super) config: PathBuf,
}
