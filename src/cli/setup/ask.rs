//! Questions at the terminal: one line each, with what an empty answer means.

use std::io::{IsTerminal as _, Write as _};

use anyhow::anyhow;

use super::choose::SetupChoice;
use crate::cli::{CliFailure, print};

/// Whether somebody is there to be asked.
pub(super) fn somebody() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// Asks for one thing. Empty: what is proposed.
pub(super) fn about(choice: &SetupChoice) -> Result<String, CliFailure> {
    print(&format!("\n{}: {}\n", choice.key, choice.why))?;
    if choice.value.is_empty() {
        print("  > ")?;
    } else {
        print(&format!("  [{}] > ", choice.value))?;
    }
    line()
}

/// Asks whether to go on. Only `y` and `yes` do.
pub(super) fn whether(question: &str) -> Result<bool, CliFailure> {
    print(&format!("{question} [y/N] "))?;
    Ok(matches!(&*line()?.to_ascii_lowercase(), "y" | "yes"))
}

fn line() -> Result<String, CliFailure> {
    std::io::stdout().flush()?;
    let mut answer = String::new();
    if std::io::stdin().read_line(&mut answer)? == 0 {
        return Err(anyhow!("the input ended; nothing was changed").into());
    }
    Ok(answer.trim().to_owned())
}
