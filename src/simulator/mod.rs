//! The simulator's program: `demo`, `sim` and `conformance`. It stands apart from the daemon's, which becomes this
//! one when such a command is given, and which has neither the simulator nor the runner of cases in it.

mod conformance;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{self, CliFailure, SimulatorCommand};
use crate::sim;
use crate::simulator_args::SimCommand;

/// The simulator of pve-autoscaler: the demo, simulated clusters on the network, conformance cases.
///
/// `pve-autoscaler demo`, `sim` and `conformance` run it.
#[derive(Debug, Parser)]
#[command(name = "pve-autoscaler-simulator", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: SimulatorCommand,
}

/// The program.
pub fn main() -> ExitCode {
    cli::name_provider();
    cli::ended(dispatch(Arguments::parse().command))
}

fn dispatch(command: SimulatorCommand) -> Result<(), CliFailure> {
    match command {
        SimulatorCommand::Demo(options) => Ok(sim::demo::run(&options)?),
        SimulatorCommand::Conformance(options) => conformance::run(&options),
        SimulatorCommand::Sim(command) => serve(command),
    }
}

/// The simulators on the network: serves until SIGINT or SIGTERM.
fn serve(command: SimCommand) -> Result<(), CliFailure> {
    cli::log::start();
    let runtime = cli::runtime()?;
    match command {
        SimCommand::Pve(options) => Ok(runtime.block_on(sim::pve::serve(options))?),
        SimCommand::Kube(options) => Ok(runtime.block_on(sim::kube::serve(options))?),
    }
}
