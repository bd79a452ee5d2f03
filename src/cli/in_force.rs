//! Which configuration is in force, and whether the file is still the one that was read.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::config::{self, ConfigErrors, Settings};
use crate::controller::status::DaemonStatus;
use crate::model::time::Time;

/// The configuration that the daemon runs with.
#[derive(Clone, Debug)]
pub(super) struct InForce {
    path: PathBuf,
    text: String,
    read: Time,
}

/// What the file is by now.
#[derive(Debug)]
pub(super) enum FileState {
    /// What is in force.
    AsRead,
    /// Another one, which a reload would take up.
    Changed,
    /// One that no reload takes up, and no start.
    Wrong(ConfigErrors),
}

impl InForce {
    /// Reads the file, which is in force from then on.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(super) fn load(path: &Path, now: Time) -> Result<(InForce, Settings), ConfigErrors> {
        let text = config::read(path)?;
        let settings = config::parse(&text, &path.display().to_string())?;
        let in_force = InForce {
            path: path.to_owned(),
            text,
            read: now,
        };
        Ok((in_force, settings))
    }

    /// Looks at the file. `systemctl reload` checks it before it tells the daemon, so that of a file with errors
    /// the daemon hears nothing: it looks by itself.
    pub(super) fn file(&self) -> FileState {
        match config::read(&self.path) {
            Ok(text) if text == self.text => FileState::AsRead,
            Ok(text) => match config::parse(&text, &self.path.display().to_string()) {
                Ok(_) => FileState::Changed,
                Err(errors) => FileState::Wrong(errors),
            },
            Err(errors) => FileState::Wrong(errors),
        }
    }

    /// What tells the file that is in force from others.
    pub(super) fn digest(&self) -> String {
        digest(&self.text)
    }

    /// Names the file that is in force in the daemon's status.
    pub(super) fn name_in(&self, status: &mut DaemonStatus) {
        status.configuration = self.digest();
        status.configuration_file = self.file_name();
    }

    /// The file's whole path.
    pub(super) fn file_name(&self) -> String {
        whole_path(&self.path)
    }

    /// Which file is in force, for the unit's status.
    pub(super) fn words(&self, file: &FileState) -> String {
        let whole_seconds = Time(self.read.0 / 1000 * 1000);
        let path = self.path.display();
        let since = match file {
            FileState::AsRead => "",
            FileState::Changed => "; it was changed since, and a reload takes it up",
            FileState::Wrong(_) => "; it has errors since then, which `pve-autoscaler check` names",
        };
        format!("in force: {path} as read at {whole_seconds}{since}")
    }
}

impl FileState {
    /// What is wrong with it, for the status.
    pub(super) fn problem(&self) -> Option<String> {
        match self {
            FileState::AsRead | FileState::Changed => None,
            FileState::Wrong(errors) => Some(format!(
                "the file has errors; the previous configuration is in force: {}",
                errors.clone().without_secrets().line()
            )),
        }
    }
}

/// What tells one file from another: the SHA-256 of its text. Whoever asks for the daemon's status compares it with the
/// file that he sees.
pub(super) fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes())
        .iter()
        .fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

/// The path of a file, the same from every directory and by every link to it.
pub(super) fn whole_path(path: &Path) -> String {
    let whole = path
        .canonicalize()
        .or_else(|_| std::path::absolute(path))
        .unwrap_or_else(|_| path.to_owned());
    whole.display().to_string()
}

/// The digest of a file; empty where it cannot be read.
pub(super) fn digest_of(path: &Path) -> String {
    config::read(path).map_or_else(|_| String::new(), |text| digest(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_as_read_changed_or_wrong_by_what_stands_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.toml");
        std::fs::write(&path, "version = 1\n").expect("written");
        let (in_force, _) = InForce::load(&path, Time(90_500)).expect("it is right");
        let words = || in_force.words(&in_force.file());
        let always = format!(
            "in force: {} as read at 1970-01-01T00:01:30Z",
            path.display()
        );
        assert_eq!(words(), always);
        assert!(in_force.file().problem().is_none());

        std::fs::write(&path, "version = 1\n# edited\n").expect("written");
        let edited = "; it was changed since, and a reload takes it up";
        assert_eq!(words(), format!("{always}{edited}"));
        assert!(in_force.file().problem().is_none());

        for spoil in [
            Some("version = 1\nnonsense = [\n"),
            Some("version = 7\n"),
            None,
        ] {
            match spoil {
                Some(text) => std::fs::write(&path, text).expect("written"),
                None => std::fs::remove_file(&path).expect("removed"),
            }
            assert!(words().contains("it has errors since then"), "{}", words());
            let problem = in_force.file().problem().expect("it is wrong");
            assert!(
                problem.contains("the previous configuration is in force"),
                "{problem}"
            );
        }

        std::fs::write(&path, "version = 1\n").expect("written");
        assert_eq!(words(), always);
    }
}
