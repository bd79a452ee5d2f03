//! The configuration's file, which everybody may read: it holds no secrets, and besides the daemon the mail relay
//! reads it, which is a user of its own.

use std::fs::{Metadata, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::Context as _;
use nix::unistd::geteuid;

use super::rights;
use crate::cli::doctor::user::DAEMON;
use crate::kubernetes::bootstrap::StagedCredentials;

/// Root's to write, and everybody's to read, as the package ships the file.
const MODE: u32 = 0o644;
/// The permission bits of a mode.
const PERMISSIONS: u32 = 0o777;

/// Writes the text whole or not at all. It gets the owner and the mode of the file `like`, where that is there and the daemon
/// may read it.
///
/// # Errors
/// What could not be done.
pub(super) fn write(path: &Path, text: &str, like: &Path) -> Result<(), String> {
    let model = std::fs::metadata(like)
        .ok()
        .filter(|_| !rights::is_shut(like, DAEMON));
    let staged = StagedCredentials::write(path, text, "root")?;
    give(&staged.temporary, model.as_ref())
        .map_err(|error| format!("cannot set its owner and mode: {error}"))?;
    // Its hint is about credentials that their group cannot read.
    staged.put_in_place().map(drop)
}

fn give(file: &Path, model: Option<&Metadata>) -> std::io::Result<()> {
    if let Some(model) = model.filter(|_| geteuid().is_root()) {
        std::os::unix::fs::chown(file, Some(model.uid()), Some(model.gid()))?;
    }
    let mode = model.map_or(MODE, |model| model.mode() & PERMISSIONS);
    std::fs::set_permissions(file, Permissions::from_mode(mode))
}

/// Lets everybody read the file.
///
/// # Errors
/// It cannot be changed.
pub(super) fn open(path: &Path) -> anyhow::Result<()> {
    std::fs::set_permissions(path, Permissions::from_mode(MODE))
        .with_context(|| format!("cannot let everybody read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        let file = std::fs::metadata(path).expect("the file is there");
        file.mode() & PERMISSIONS
    }

    #[test]
    fn a_new_file_is_everybodys_to_read_and_one_that_was_there_keeps_its_mode() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c.toml");
        write(&path, "a", &path).expect("written");
        assert_eq!(mode(&path), 0o644);
        // A mode that lets the daemon read, whichever groups this machine has.
        std::fs::set_permissions(&path, Permissions::from_mode(0o664)).expect("set");
        let beside = folder.path().join("c.toml.before-setup");
        write(&beside, "a", &path).expect("written");
        write(&path, "b", &path).expect("written");
        assert_eq!((mode(&path), mode(&beside)), (0o664, 0o664));
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "b");
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("set");
        open(&path).expect("opened");
        assert_eq!(mode(&path), 0o644);
    }
}
