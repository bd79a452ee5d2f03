//! What the package ships besides the program: man pages, completions, schema, reference manual.

use std::path::Path;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;

use super::args::Cli;
use crate::config;

const NAME: &str = "pve-autoscaler";

/// Writes everything into `directory`.
pub(super) fn run(directory: &Path) -> anyhow::Result<()> {
    let man = directory.join("man");
    let completions = directory.join("completions");
    for directory in [&man, &completions] {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
    }
    clap_mangen::generate_to(Cli::command(), &man)
        .with_context(|| format!("cannot write man pages into {}", man.display()))?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut Cli::command(), NAME, &completions)
            .with_context(|| format!("cannot write completions into {}", completions.display()))?;
    }
    for (name, text) in [
        ("pve-autoscaler.schema.json", config::schema::schema_text()),
        ("configuration.md", config::reference::reference()),
    ] {
        let path = directory.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
