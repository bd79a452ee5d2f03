//! The command line of `replay`. The comments are the help texts and the man page.

use std::path::PathBuf;

use clap::Args;

use crate::cli::args::{Format, PartOptions, RECORD_DIRECTORY};
use crate::typed_number::whole;

/// What is replayed, and how it is shown.
#[derive(Debug, Args)]
pub(in crate::cli) struct ReplayOptions {
    /// The record: its directory, or one segment of it.
    #[arg(value_name = "PATH", default_value = RECORD_DIRECTORY)]
    pub(super) record: PathBuf,
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
