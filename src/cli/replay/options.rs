//! The command line of `replay`. The comments are the help texts and the man page.

use std::path::PathBuf;

use clap::Args;

use crate::cli::args::{Format, PartOptions};
use crate::typed_number::whole;

/// What is replayed, and how it is shown.
#[derive(Debug, Args)]
pub(in crate::cli) struct ReplayOptions {
    /// The record: its directory, or one segment of it. Default: that of the daemon that runs here, else /var/lib/pve-autoscaler/record.
    #[arg(value_name = "PATH", conflicts_with_all = ["named", "socket"])]
    pub(super) record: Option<PathBuf>,
    /// The same, as `history` has it.
    #[arg(long = "record", value_name = "PATH")]
    pub(super) named: Option<PathBuf>,
    /// The record of the daemon that answers there, such as a demo's, in place of --record.
    #[arg(long, value_name = "PATH", conflicts_with = "named")]
    pub(super) socket: Option<PathBuf>,
    #[command(flatten)]
    pub(super) part: PartOptions,
    /// Show of a decision at most so many entries in the table; JSON has all.
    #[arg(long, value_name = "NUMBER", default_value_t = 12, allow_negative_numbers = true,
          value_parser = whole::<u32>(1..=u32::MAX.into()))]
    pub(super) limit: u32,
    /// Show every value that differs, by its path in JSON, without a limit.
    #[arg(long)]
    pub(super) detail: bool,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub(super) output: Format,
}
