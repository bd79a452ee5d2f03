//! `/etc/pve-autoscaler.toml`: from text to validated settings, with errors that name line, column,
//! key, value and what was expected.

mod allow;
pub mod changed;
pub mod cloud_init;
mod error;
pub mod file;
pub mod hardware;
mod hash;
pub(crate) mod near;
mod net_card;
pub mod new_vm;
pub mod notification;
pub mod paths;
mod place;
mod read;
pub mod reference;
mod rules;
pub mod scalar;
pub mod schema;
pub mod settings;
pub mod storage_names;
pub(crate) mod syntax;
#[cfg(test)]
mod tests;
pub mod vm_options;
pub mod yaml;

use std::path::Path;

use serde::de::DeserializeOwned;

pub use error::{ConfigErrors, ConfigProblem};
pub use rules::ipconfig_fault;
pub use settings::Settings;

use error::Collector;
use file::ConfigFile;

/// Where the file lies unless `--config` says otherwise.
pub const DEFAULT_PATH: &str = "/etc/pve-autoscaler.toml";

/// A command as a person types it for this file: with `--config`, unless it is the file that counts without.
pub fn command_for(command: &str, file: &str) -> String {
    if file == DEFAULT_PATH {
        command.to_owned()
    } else {
        format!("{command} --config {file}")
    }
}

/// What is said of a daemon whose file names no region or no pool.
pub fn not_configured(file: &str) -> String {
    format!(
        "not configured: run `{}`, or edit {file}, then systemctl reload pve-autoscaler",
        command_for("pve-autoscaler setup", file)
    )
}

/// Largest file that is read: a file with a hundred pools has some 50 kB.
const MAX_BYTES: u64 = 1 << 20;

/// Reads and checks the file.
///
/// # Errors
/// Everything that is wrong with it, at once.
pub fn load(path: &Path) -> Result<Settings, ConfigErrors> {
    parse(&read(path)?, &path.display().to_string())
}

/// Reads the file without looking at what stands in it.
///
/// # Errors
/// It cannot be read, is too large or is no text.
pub fn read(path: &Path) -> Result<String, ConfigErrors> {
    read_bounded(path).map_err(|message| ConfigErrors::whole(&path.display().to_string(), message))
}

fn read_bounded(path: &Path) -> Result<String, String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => format!(
                "cannot be read: {error}; `{}` makes one, and --config names another",
                command_for("pve-autoscaler setup", &path.display().to_string())
            ),
            std::io::ErrorKind::PermissionDenied => format!(
                "cannot be read: {error}; it holds no secrets, so let everybody read it: chmod 644 {0}",
                path.display()
            ),
            _ => format!("cannot be read: {error}"),
        })?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!(
            "is larger than {MAX_BYTES} bytes; is it the right file?"
        ));
    }
    as_text(bytes)
}

/// The text that bytes are, or in one sentence why they are none: a parser would say it of every character.
pub(crate) fn as_text(bytes: Vec<u8>) -> Result<String, String> {
    let lines = |before: &[u8]| before.split(|byte| *byte == b'\n').count();
    let nul = bytes.iter().position(|byte| *byte == 0);
    // Of two bytes of UTF-16 one is nothing in most languages' letters.
    let nuls = bytes.split(|byte| *byte == 0).count() - 1;
    let mark = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    // Of its letters of a Latin alphabet one byte is nothing, always the same of the two.
    let side = |odd: usize| {
        bytes
            .iter()
            .skip(odd)
            .step_by(2)
            .filter(|byte| **byte == 0)
            .count()
    };
    let one_side = side(0).min(side(1)) * 8 <= nuls;
    if mark || nuls > bytes.len() / 4 && bytes.len() > 1 && one_side {
        return Err("looks like UTF-16 text: save it as UTF-8".to_owned());
    }
    if let Some(at) = nul {
        let line = lines(&bytes[..at]);
        return Err(format!("line {line} has a NUL byte: it is no text"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = lines(&error.as_bytes()[..at]);
        format!(
            "is not UTF-8 text: line {line} has a byte that is none of it (byte {at} of the file)"
        )
    })
}

/// Reads and checks the file for the broker, which uses no text for machines and notices: what is wrong with such a text is not said.
///
/// # Errors
/// Everything else that is wrong with the file, at once.
pub fn load_for_broker(path: &Path) -> Result<Settings, ConfigErrors> {
    check(&read(path)?, &path.display().to_string(), None)
}

/// Checks a text; `name` is the file's name in errors.
///
/// # Errors
/// Everything that is wrong with it, at once.
pub fn parse(text: &str, name: &str) -> Result<Settings, ConfigErrors> {
    check(text, name, Some(&rules::trials::ALL))
}

/// Reads a text of another form than the configuration's, such as answers to `setup`, with errors in the same words.
///
/// # Errors
/// All that is wrong with its syntax, its keys and the types of their values, at once.
pub fn parse_as<T: DeserializeOwned>(text: &str, name: &str) -> Result<T, ConfigErrors> {
    if let Some(message) = read::judge_line_ends(text) {
        return Err(ConfigErrors::whole(name, message));
    }
    let mut problems = Collector::new(text);
    match read::read::<T>(text, &mut problems) {
        Some(read) if problems.is_empty() => Ok(read.file),
        _ => Err(problems.finish(name)),
    }
}

fn check(
    text: &str,
    name: &str,
    trials: Option<&'static rules::trials::TextTrials>,
) -> Result<Settings, ConfigErrors> {
    if let Some(message) = read::judge_line_ends(text) {
        return Err(ConfigErrors::whole(name, message));
    }
    let mut problems = Collector::new(text);
    let Some(read) = read::read::<ConfigFile>(text, &mut problems) else {
        return Err(problems.finish(name));
    };
    let mut found = rules::Problems::none(trials);
    let mut settings = rules::resolve(&read.file, &mut found);
    settings.text = text.into();
    for found in found.found {
        // What could not be read has been reported; that its default is wrong too is no news.
        if !read
            .unread
            .iter()
            .any(|unread| unread.explains(&found.path))
        {
            problems.of_rule(&read.root, found);
        }
    }
    if problems.is_empty() {
        Ok(settings)
    } else {
        Err(problems.finish(name))
    }
}
