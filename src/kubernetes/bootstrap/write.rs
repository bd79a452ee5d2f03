//! Writing credentials: whole or not at all, and never readable by others in between.

use std::fs::{File, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// Writes `text` as root:`group` 0640. The answer says why the owner is another, when it is, and ends in the command that mends it,
/// to which the file's name is added: somebody who is not root can make the file but not give it away.
pub fn write_credentials(path: &Path, text: &str, group: &str) -> Result<Option<String>, String> {
    StagedCredentials::write(path, text, group)?.put_in_place()
}

/// Credentials in a file beside the one whose place they are to take. Dropped, they are gone.
#[derive(Debug)]
pub struct StagedCredentials {
    /// Where they are.
    pub temporary: PathBuf,
    path: PathBuf,
    hint: Option<String>,
}

impl StagedCredentials {
    /// Writes `text` beside `path`, as [`write_credentials`] does.
    pub fn write(path: &Path, text: &str, group: &str) -> Result<StagedCredentials, String> {
        let name = path.file_name().ok_or("it names no file")?;
        let name = format!(".{}.", name.to_string_lossy());
        remove_left_behind(directory(path), &name);
        let name = format!("{name}{}", std::process::id());
        let mut staged = StagedCredentials {
            temporary: directory(path).join(name),
            path: path.to_owned(),
            hint: None,
        };
        staged.hint = whole(&staged.temporary, text, group)?;
        Ok(staged)
    }

    /// Puts them in place of what is there; says why the owner is another than root, if it is.
    pub fn put_in_place(mut self) -> Result<Option<String>, String> {
        std::fs::rename(&self.temporary, &self.path).map_err(said("cannot put it in place"))?;
        File::open(directory(&self.path))
            .and_then(|directory| directory.sync_all())
            .map_err(said("cannot sync its directory"))?;
        Ok(self.hint.take())
    }
}

impl Drop for StagedCredentials {
    fn drop(&mut self) {
        // It may not exist, or be in place; what matters is that nothing of it stays beside.
        let _ = std::fs::remove_file(&self.temporary);
    }
}

/// Removes what earlier processes left beside the file that credentials are for: those that were killed.
fn remove_left_behind(directory: &Path, prefix: &str) {
    let entries = std::fs::read_dir(directory);
    for entry in entries.into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(prefix));
        let Some(pid) = pid.and_then(|pid| pid.parse::<u32>().ok()) else {
            continue;
        };
        if !Path::new("/proc").join(pid.to_string()).exists() {
            // Another process may have been faster.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// The directory that a file is in.
fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn said(what: &'static str) -> impl Fn(std::io::Error) -> String {
    move |error| format!("{what}: {error}")
}

fn whole(temporary: &Path, text: &str, group: &str) -> Result<Option<String>, String> {
    // An old one is of a run that died: `create_new` must not be fooled by a link either.
    let _ = std::fs::remove_file(temporary);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(temporary)
        .map_err(said("cannot make a temporary file beside it"))?;
    file.write_all(text.as_bytes())
        .map_err(said("cannot write"))?;
    let hint = give(&file, group);
    file.set_permissions(Permissions::from_mode(0o640))
        .map_err(said("cannot set its mode"))?;
    file.sync_all().map_err(said("cannot sync"))?;
    Ok(hint)
}

fn give(file: &File, group: &str) -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some(format!("this is not root; as root: chown root:{group}"));
    }
    match nix::unistd::Group::from_name(group) {
        Ok(Some(found)) => fchown(file, Some(0), Some(found.gid.as_raw()))
            .err()
            .map(|error| format!("{error}; on the host: chown root:{group}")),
        Ok(None) => Some(format!(
            "there is no group {group} here (the package makes it); on the host: chown root:{group}"
        )),
        Err(error) => Some(format!(
            "the group {group} cannot be looked up: {error}; on the host: chown root:{group}"
        )),
    }
}
