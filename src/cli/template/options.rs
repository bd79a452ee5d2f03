//! The command line of `template`. The comments are the help texts and the man pages.

use clap::{Args, Subcommand};

use crate::cli::complete;
use crate::cli::examples;
use crate::cli::output::OutputFormat;

/// What to do with templates. Run it as root on a PVE host with channel = "local"; a build with a token reaches the hosts by ssh, at the addresses that their PVE names.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum TemplateCommand {
    /// Build every template that is missing or was built from another definition, on each host that needs it.
    #[command(after_help = examples::TEMPLATE_BUILD)]
    Build(BuildOptions),
    /// Show the templates, those that were built and those made by hand, and the linked clones of each.
    #[command(after_help = examples::TEMPLATE_LIST)]
    List(ListOptions),
    /// Boot a machine of a template, look at what its join would find, and remove it.
    ///
    /// It is cloned, configured and started as a pool's machine would be, without Kubernetes knowing. It says how long each
    /// step took, and what is wrong in the guest; the versions there are compared with the API server's. Exit codes: 0 a machine of
    /// it would join, 1 it would not.
    #[command(after_help = examples::TEMPLATE_TRY)]
    Try(TryOptions),
    /// Remove templates that nothing needs: older than the one in use, without linked clones; and what failed and interrupted
    /// builds left, VMs and files.
    #[command(after_help = examples::TEMPLATE_PRUNE)]
    Prune(PruneOptions),
}

#[derive(Debug, Args)]
pub(in crate::cli) struct BuildOptions {
    /// The templates. Default: all that have a build.
    #[arg(value_parser = crate::cli::explain::name, add = complete::templates())]
    pub(in crate::cli) names: Vec<String>,
    /// Only on this host; may be repeated. Default: as the build says.
    #[arg(long = "host", value_name = "HOST", value_parser = crate::cli::explain::name, add = complete::hosts())]
    pub(in crate::cli) hosts: Vec<String>,
    /// Build also what is up to date: newer packages, for instance.
    #[arg(long)]
    pub(in crate::cli) again: bool,
    /// Keep the VM of a build that fails, to look at it.
    #[arg(long)]
    pub(in crate::cli) keep_failed: bool,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct ListOptions {
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    pub(in crate::cli) output: OutputFormat,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct TryOptions {
    /// The templates. Default: all that a pool uses.
    #[arg(value_parser = crate::cli::explain::name, add = complete::templates())]
    pub(in crate::cli) names: Vec<String>,
    /// The copy of the template on this host; may be repeated. Default: one copy, of the definition as it is where
    /// there is one.
    #[arg(long = "host", value_name = "HOST", value_parser = crate::cli::explain::name, add = complete::hosts())]
    pub(in crate::cli) hosts: Vec<String>,
    /// A machine of this pool. Default: of the first that uses the template.
    #[arg(long, value_name = "NAME", add = complete::pools())]
    pub(in crate::cli) pool: Option<String>,
    /// An address for its first network card, as PVE writes it (ip=192.0.2.250/24,gw=192.0.2.1): needed where a pool's
    /// addresses come from a [network.NAME].
    #[arg(long, value_name = "IPCONFIG")]
    pub(in crate::cli) ipconfig: Option<String>,
    /// Keep the VM, to look at it.
    #[arg(long)]
    pub(in crate::cli) keep: bool,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct PruneOptions {
    /// Say what would be removed, and remove nothing.
    #[arg(long)]
    pub(in crate::cli) dry_run: bool,
}
