//! A secret in a file of this host, read anew each time that it is needed.

use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::unistd::Uid;
use secrecy::SecretString;

/// Longest secret, in bytes.
const LONGEST: u64 = 16 * 1024;

/// The secret, without white space around it.
///
/// # Errors
/// What is wrong with the file, and what to do; never what stands in it.
pub fn read(path: &Path) -> Result<SecretString, String> {
    read_as("secret_file", path, LONGEST)
}

/// The secret in the file that this key of the configuration names, of so many bytes at most.
///
/// # Errors
/// What is wrong with the file, and what to do; never what stands in it.
pub fn read_as(key: &str, path: &Path, longest: u64) -> Result<SecretString, String> {
    let at = |message: String| format!("{key} {}: {message}", path.display());
    let mut options = std::fs::OpenOptions::new();
    // A pipe would hold us up for ever.
    let options = options
        .read(true)
        .custom_flags((OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).bits());
    let mut file = options
        .open(path)
        .map_err(|error| at(format!("cannot be read: {error}")))?;
    let about = file
        .metadata()
        .map_err(|error| at(format!("cannot be read: {error}")))?;
    if !about.is_file() {
        return Err(at("is no file".to_owned()));
    }
    judge(about.mode(), about.uid()).map_err(at)?;
    if about.len() > longest {
        return Err(at(format!("is longer than {longest} bytes")));
    }
    let mut text = String::new();
    file.by_ref()
        .take(longest)
        .read_to_string(&mut text)
        .map_err(|_| at("is no text".to_owned()))?;
    let secret = text.trim();
    if secret.is_empty() {
        return Err(at("is empty".to_owned()));
    }
    Ok(SecretString::from(secret.to_owned()))
}

/// A secret's file is root's (or the daemon's own), nobody else may write it, and it is not for all to read.
fn judge(mode: u32, owner: u32) -> Result<(), String> {
    let wanted = "; wanted are owner root, group pve-autoscaler and mode 0640";
    if owner != 0 && owner != Uid::effective().as_raw() {
        return Err(format!("belongs to user {owner}{wanted}"));
    }
    if mode & 0o027 != 0 {
        return Err(format!("has mode {:04o}{wanted}", mode & 0o7777));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_secret_is_read_from_a_file_that_is_kept_as_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret");
        let write = |text: &str, mode: u32| {
            std::fs::write(&path, text).expect("written");
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).expect("changed");
            read(&path).map(|secret| secret.expose_secret().to_owned())
        };
        assert_eq!(write("word\n", 0o640).as_deref(), Ok("word"));
        assert_eq!(write("other\n", 0o400).as_deref(), Ok("other"));
        for (text, mode, said) in [
            ("word", 0o644, "has mode 0644; wanted are owner root"),
            ("word", 0o660, "has mode 0660"),
            (" \n", 0o600, "is empty"),
        ] {
            let error = write(text, mode).expect_err("refused");
            assert!(error.contains(said) && !error.contains("word"), "{error}");
        }
        assert!(read(folder.path()).is_err_and(|error| error.contains("is no file")));
        assert!(
            read(&folder.path().join("none")).is_err_and(|error| error.contains("cannot be read"))
        );
        assert!(judge(0o100_600, u32::MAX).is_err());
    }
}
