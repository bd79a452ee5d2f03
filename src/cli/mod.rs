//! The commands: from arguments to the entry points of the other modules, and the one place that
//! prints errors and picks the exit code.

mod adopt;
mod agreement;
mod args;
mod bundle;
mod causes;
mod channels;
mod check;
mod columns;
mod complete;
mod config_option;
mod control;
mod crash;
mod doctor;
mod evacuations;
mod examples;
mod explain;
mod fold;
mod generate;
mod history;
mod host_name;
mod host_pinning;
mod host_topology;
mod in_force;
mod journald;
mod known_secrets;
mod kubeconfig;
pub(crate) mod log;
mod mail_relay;
mod manual;
mod metrics_page;
mod migrate;
mod names;
mod narrow;
mod networks;
mod output;
mod page;
mod place;
mod plan;
mod redact;
mod render;
mod replay;
mod schemas;
mod service;
mod service_programs;
mod setup;
mod simulator;
mod status;
mod staying;
mod stores;
mod story;
mod systemd;
mod table;
mod template;
mod times;
mod verdicts;
mod watch;
mod web_password;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use clap::parser::ValueSource;
use clap::{FromArgMatches as _, Parser as _};

use args::CliCommand;
pub use args::{Cli, ConformanceOptions, Format, SimulatorCommand};
use service_programs::{BrokerCli, DaemonCli};

use crate::broker;
use crate::config::{self, ConfigErrors, Settings};
use crate::controller::state::StateFiles;
use crate::model::foreign;

/// Why a command did not succeed.
#[derive(Debug)]
pub(crate) enum CliFailure {
    /// The configuration file is wrong.
    Config(ConfigErrors),
    /// The command line is wrong, in what clap does not look at.
    Usage(anyhow::Error),
    /// Something else, with its causes.
    Other(anyhow::Error),
    /// Everything was said already.
    Said,
    /// Everything was said already, and the program ends with a code of its own.
    Code(ExitCode),
}

impl<E: Into<anyhow::Error>> From<E> for CliFailure {
    fn from(error: E) -> CliFailure {
        CliFailure::Other(error.into())
    }
}

/// Done, but not as hoped.
const EXIT_FAILED: u8 = 1;
/// The command line or the configuration is wrong. clap uses the same code.
const EXIT_USAGE: u8 = 2;

/// The program.
pub fn main() -> ExitCode {
    complete::answer_shell();
    name_provider();
    let matches = config_option::command().get_matches();
    // A replay without it goes by the configurations in the record.
    let given = matches
        .subcommand()
        .filter(|(_, matches)| matches.value_source("config") == Some(ValueSource::CommandLine));
    match Cli::from_arg_matches(&matches) {
        Ok(cli) => {
            let read = given.map_or(Ok(()), |(name, _)| {
                config_option::refuse_unread(name, &cli.command)
            });
            ended(read.and_then(|()| dispatch(cli, given.is_some())))
        }
        Err(error) => error.exit(),
    }
}

/// The daemon's own program: none of the commands is in it.
pub fn daemon() -> ExitCode {
    name_provider();
    let DaemonCli { config, options } = DaemonCli::parse();
    ended(run(config, options))
}

/// The broker's own program: nothing of the daemon, the simulator or the commands is in it.
pub fn broker() -> ExitCode {
    name_provider();
    ended(run_broker(BrokerCli::parse().config))
}

/// Two rustls providers in one tree would make every TLS connection panic; naming one does not.
pub(crate) fn name_provider() {
    // It fails only when one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

pub(crate) fn ended(outcome: Result<(), CliFailure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(CliFailure::Said) => ExitCode::from(EXIT_FAILED),
        Err(CliFailure::Code(code)) => code,
        Err(CliFailure::Config(errors)) => {
            let text = foreign::lines(&errors.to_string()).into_owned();
            // The lines of the file stay as they are, with their carets below them.
            say(&output::errors(&text, |line| {
                line.starts_with(&errors.file)
            }));
            ExitCode::from(EXIT_USAGE)
        }
        Err(CliFailure::Usage(error)) => {
            say_error(&error);
            ExitCode::from(EXIT_USAGE)
        }
        Err(CliFailure::Other(error)) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(CliFailure::Other(error)) => {
            say_error(&error);
            ExitCode::from(EXIT_FAILED)
        }
    }
}

/// Writes an error with its causes to standard error, folded to the terminal that it may be.
fn say_error(error: &anyhow::Error) {
    let text = format!("pve-autoscaler: {}", foreign::lines(&said(error)));
    say(&output::errors(&text, |_| true));
}

/// Writes a line to standard error, where that takes it: a full or closed one is no reason to end otherwise.
pub(crate) fn say(line: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Says beside an answer what is to be known of it, folded to the terminal that standard error may be.
fn say_beside(text: &str) {
    say(&output::errors(&format!("pve-autoscaler: {text}"), |_| {
        true
    }));
}

fn dispatch(cli: Cli, config_given: bool) -> Result<(), CliFailure> {
    match cli.command {
        CliCommand::Run(options) => run(cli.config, options),
        CliCommand::Broker => run_broker(cli.config),
        CliCommand::Plan(options) => plan::run(&cli.config, &options),
        CliCommand::Explain(command) => explain::run(&cli.config, &command),
        CliCommand::History(options) => history::run(&options),
        CliCommand::Replay(options) => {
            let config = config_given.then_some(&*cli.config);
            replay::run(config, &options)
        }
        CliCommand::SupportBundle(options) => bundle::run(&cli.config, &options),
        CliCommand::Snapshot(options) => control::snapshot(&options),
        CliCommand::Status(options) => status::run(&options),
        CliCommand::Staying(options) => staying::run(&cli.config, &options),
        CliCommand::Check(options) => {
            if options.file.is_some() && config_given {
                let said = anyhow::anyhow!("the file is named twice: by --config and by itself");
                return Err(CliFailure::Usage(said));
            }
            check::run(options.file.as_deref().unwrap_or(&cli.config), &options)
        }
        CliCommand::Doctor(options) => doctor::run(&cli.config, &options),
        CliCommand::Pause(options) => control::pause(&options),
        CliCommand::Resume(options) => control::resume(&options),
        CliCommand::Retry(options) => control::retry(&options),
        CliCommand::Evacuate(options) => control::evacuate(&options),
        CliCommand::NotifyTest(options) => control::notify_test(&options),
        CliCommand::MailRelay(options) => mail_relay::run(&cli.config, &options),
        CliCommand::Kubeconfig(options) => kubeconfig::run(options),
        CliCommand::WebPassword(options) => web_password::run(&cli.config, &options),
        CliCommand::HostTopology(options) => host_topology::run(&options),
        CliCommand::HostPinning(options) => host_pinning::run(options),
        CliCommand::Adopt(options) => adopt::run(&cli.config, &options),
        CliCommand::Setup(options) => setup::run(&cli.config, &options),
        CliCommand::Template(command) => template::run(&cli.config, &command),
        CliCommand::Migrate(command) => migrate::run(&command),
        CliCommand::Schema => print(&config::schema::schema_text()),
        CliCommand::Simulator(_) => Err(simulator::run().into()),
        CliCommand::Generate(options) => Ok(generate::run(&options.directory)?),
    }
}

fn run_broker(config: std::path::PathBuf) -> Result<(), CliFailure> {
    log::start();
    crash::end_on_panic(None);
    Ok(runtime()?.block_on(broker::run(broker::BrokerOptions::new(config)))?)
}

/// The daemon. On one thread, like the simulation: a second one would cost memory and gain nothing,
/// since all waiting is on others.
fn run(config: std::path::PathBuf, options: args::RunOptions) -> Result<(), CliFailure> {
    log::start();
    crash::end_on_panic(StateFiles::open(&options.state_directory).ok());
    let options = service::ServiceOptions {
        config,
        state: options.state_directory,
        control: options.control_socket,
    };
    runtime()?
        .block_on(service::run(options))
        .map_err(|error| match error {
            service::ServiceError::Config(errors) => CliFailure::Config(errors),
            other => other.into(),
        })
}

fn load(path: &std::path::Path) -> Result<Settings, CliFailure> {
    config::load(path).map_err(CliFailure::Config)
}

/// Writes text to standard output, and nothing that steers a terminal.
pub(crate) fn print(text: &str) -> Result<(), CliFailure> {
    write(&foreign::lines(text))
}

/// Whoever read standard output went away (`| head`).
static READER_GONE: AtomicBool = AtomicBool::new(false);

/// Whether nobody reads standard output any more: what only shows something may end.
fn is_reader_gone() -> bool {
    READER_GONE.load(Ordering::Relaxed)
}

/// Writes to standard output. A reader that went away is no error, and no reason to leave undone what was begun: nothing is
/// written from there on.
fn write(text: &str) -> Result<(), CliFailure> {
    use std::io::Write as _;
    if is_reader_gone() {
        return Ok(());
    }
    let mut output = std::io::stdout().lock();
    let written = output.write_all(text.as_bytes());
    match written.and_then(|()| output.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            READER_GONE.store(true, Ordering::Relaxed);
            Ok(())
        }
        written => Ok(written.context("cannot write to standard output")?),
    }
}

/// The error and its causes; a cause that the text above it tells already is left out.
fn said(error: &anyhow::Error) -> String {
    error
        .chain()
        .skip(1)
        .fold(error.to_string(), |text, cause| {
            let cause = cause.to_string();
            if text.contains(&cause) {
                text
            } else {
                format!("{text}: {cause}")
            }
        })
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// A runtime on this thread alone: what the commands and the broker need, what the simulation runs
/// on, and the smallest in memory.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, CliFailure> {
    Ok(tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?)
}
