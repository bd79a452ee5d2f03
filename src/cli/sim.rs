//! `sim`: the simulators on the network.

use super::args::SimCommand;
use super::{Failure, log, runtime};
use crate::sim;

/// Serves until SIGINT or SIGTERM.
pub(super) fn run(command: SimCommand) -> Result<(), Failure> {
    log::start();
    match command {
        SimCommand::Pve(options) => Ok(runtime()?.block_on(sim::pve::serve(options))?),
        SimCommand::Kube(options) => Ok(runtime()?.block_on(sim::kube::serve(options))?),
    }
}
