//! One daemon alone uses a state directory: a second one would write the same journal and memory.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

/// The directory is ours for as long as this lives; it is anybody's again when the process ends, however it ends.
#[derive(Debug)]
pub struct StateLock {
    _directory: File,
}

/// Another daemon has the directory.
#[derive(Debug, thiserror::Error)]
#[error(
    "another daemon uses the state directory {shown}: end that one (systemctl status pve-autoscaler; fuser -v {shown}), or give this one \
     another by --state-directory",
    shown = .0.display()
)]
pub struct StateInUse(PathBuf);

impl StateLock {
    /// Takes the directory. Where its file system has no locks it is used without.
    ///
    /// # Errors
    /// Another process has it.
    pub fn take(directory: &Path) -> Result<Option<StateLock>, StateInUse> {
        let opened = match File::open(directory) {
            Ok(opened) => opened,
            Err(error) => {
                tracing::warn!(directory = %directory.display(), %error, "the state directory cannot be locked");
                return Ok(None);
            }
        };
        match opened.try_lock() {
            Ok(()) => Ok(Some(StateLock { _directory: opened })),
            Err(TryLockError::WouldBlock) => Err(StateInUse(directory.to_owned())),
            Err(TryLockError::Error(error)) => {
                tracing::warn!(directory = %directory.display(), %error, "the state directory cannot be locked");
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_one_daemons_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = StateLock::take(folder.path()).expect("it is free");
        assert!(first.is_some());
        let second = StateLock::take(folder.path()).expect_err("it is taken");
        let said = second.to_string();
        assert!(
            said.contains(&folder.path().display().to_string()),
            "{said}"
        );
        drop(first);
        assert!(
            StateLock::take(folder.path())
                .expect("it is free again")
                .is_some()
        );
        let nowhere = folder.path().join("nowhere");
        assert!(StateLock::take(&nowhere).expect("without").is_none());
    }
}
