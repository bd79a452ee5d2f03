//! `web-password`: who may log in to the page.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use nix::sys::termios::{LocalFlags, SetArg, SpecialCharacterIndices, tcgetattr, tcsetattr};
use secrecy::{ExposeSecret as _, SecretString};

use super::args::WebPasswordOptions;
use super::{CliFailure, load, output, write};
use crate::bounded_file;
use crate::kubernetes::bootstrap;
use crate::web::access::{self, SHORTEST};

/// Where the file goes when the configuration names none.
const DEFAULT_FILE: &str = "/etc/pve-autoscaler/web-users";
/// The group that may read it.
const GROUP: &str = "pve-autoscaler";
/// More than a password and its line break.
const LONGEST_LINE: usize = 4096;

/// Sets or takes away a person's password.
pub(super) fn run(config: &Path, options: &WebPasswordOptions) -> Result<(), CliFailure> {
    let (file, named) = match &options.file {
        Some(file) => (file.clone(), true),
        None => match load(config)?.web.users_file {
            Some(file) => (file, true),
            None => (PathBuf::from(DEFAULT_FILE), false),
        },
    };
    let shown = file.display();
    let old = match bounded_file::read_text(&file, bounded_file::TEXT) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(anyhow!("cannot read {shown}: {error}; are you root?").into()),
    };
    let name = &options.name;
    let password = if options.remove {
        None
    } else {
        Some(asked(name)?)
    };
    let text = access::written(&old, name, password.as_ref())
        .map_err(|why| anyhow!("{shown} stays as it is: {why}"))?;
    let hint = bootstrap::write_credentials(&file, &text, GROUP)
        .map_err(|why| anyhow!("cannot write {shown}: {why}"))?;
    let done = if options.remove {
        "may not log in any more"
    } else {
        "has a new password"
    };
    let mut said = format!("{name} {done}: wrote {shown}\n");
    if let Some(hint) = hint {
        let _ = writeln!(said, "note: {hint} {shown}");
    }
    if !named {
        let _ = writeln!(
            said,
            "the page asks for it once [web] in {} has: users_file = \"{shown}\"",
            config.display()
        );
    }
    write(&output::sentences(&said))
}

/// The new password: asked for twice at a terminal, else the first line of standard input.
fn asked(name: &str) -> Result<SecretString, CliFailure> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Ok(line(&mut input.lock())?);
    }
    // What is asked does not go where output may be kept.
    let mut terminal = File::options()
        .read(true)
        .write(true)
        .open("/dev/tty")
        .context("opening the terminal")?;
    let first = hidden(
        &mut terminal,
        &format!("New password of {name}, {SHORTEST} characters or more: "),
    )?;
    if first.expose_secret().chars().count() < SHORTEST {
        return Err(anyhow!(
            "the password is shorter than {SHORTEST} characters; nothing was written"
        )
        .into());
    }
    let second = hidden(&mut terminal, "Once more: ")?;
    if first.expose_secret() != second.expose_secret() {
        return Err(anyhow!("the two are not the same; nothing was written").into());
    }
    Ok(first)
}

/// A line from the terminal, which does not show it.
fn hidden(terminal: &mut File, question: &str) -> Result<SecretString, CliFailure> {
    let before = tcgetattr(terminal.as_fd()).context("asking for the terminal's settings")?;
    let mut silent = before.clone();
    silent.local_flags.remove(LocalFlags::ECHO);
    silent.local_flags.insert(LocalFlags::ECHONL);
    // Ctrl-C ends the line instead of the process, which would leave the terminal silent.
    silent.local_flags.remove(LocalFlags::ISIG);
    silent.control_chars[SpecialCharacterIndices::VEOL as usize] = INTERRUPT;
    write!(terminal, "{question}")?;
    terminal.flush()?;
    tcsetattr(terminal.as_fd(), SetArg::TCSAFLUSH, &silent).context("silencing the terminal")?;
    let answer = typed(terminal);
    tcsetattr(terminal.as_fd(), SetArg::TCSAFLUSH, &before).context("restoring the terminal")?;
    Ok(answer?)
}

/// What Ctrl-C sends.
const INTERRUPT: u8 = 3;

/// The line that was typed. A terminal gives no more than one at a time.
fn typed(terminal: &mut File) -> anyhow::Result<SecretString> {
    let mut buffer = [0; LONGEST_LINE];
    let length = terminal.read(&mut buffer).context("reading the password")?;
    if buffer[..length].contains(&INTERRUPT) {
        return Err(anyhow!("interrupted; nothing was written"));
    }
    line(&mut &buffer[..length])
}

fn line(input: &mut impl std::io::BufRead) -> anyhow::Result<SecretString> {
    let mut text = String::new();
    input
        .by_ref()
        .take(LONGEST_LINE as u64)
        .read_line(&mut text)
        .context("reading the password")?;
    let password = text.trim_end_matches(['\r', '\n']).to_owned();
    if password.is_empty() {
        return Err(anyhow!("no password was given; nothing was written"));
    }
    Ok(SecretString::from(password))
}
