//! Whether the daemon's group may read a file. A file that was written before the package made the group is root's alone.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use nix::unistd::{Gid, Group, geteuid};

/// Readable by the group.
const GROUP_READS: u32 = 0o040;
/// Readable by everybody.
const ALL_READ: u32 = 0o004;
/// Root's to write and the group's to read, and nobody else's.
const MODE: u32 = 0o640;

/// Files that could not be given to the daemon's group, by the reason, which ends in the command that does it.
#[derive(Debug, Default)]
pub(super) struct OwnerHints(BTreeMap<String, Vec<PathBuf>>);

impl OwnerHints {
    /// What came of writing a file.
    pub(super) fn add(&mut self, hint: Option<String>, file: &Path) {
        if let Some(hint) = hint {
            self.0.entry(hint).or_default().push(file.to_owned());
        }
    }

    /// A line for each reason, with all its files; nothing where there is none.
    pub(super) fn show(&self) -> String {
        self.0
            .iter()
            .fold(String::new(), |mut text, (hint, files)| {
                let _ = write!(text, "note: {hint}");
                for file in files {
                    let _ = write!(text, " {}", file.display());
                }
                text + "\n"
            })
    }
}

/// Whether a file is there, the group is too, and may not read it; only root can tell and mend.
pub(super) fn is_shut(path: &Path, group: &str) -> bool {
    let Some(gid) = gid_of(group).filter(|_| geteuid().is_root()) else {
        return false;
    };
    std::fs::metadata(path).is_ok_and(|file| is_shut_to(file.mode(), file.gid(), gid))
}

fn is_shut_to(mode: u32, of: u32, gid: Gid) -> bool {
    let group_reads = mode & GROUP_READS != 0 && of == gid.as_raw();
    mode & ALL_READ == 0 && !group_reads
}

/// Lets the group read a file, and nobody else.
pub(super) fn open(path: &Path, group: &str) -> anyhow::Result<()> {
    let gid = gid_of(group).ok_or_else(|| anyhow!("there is no group {group}"))?;
    let named = || format!("cannot let the group {group} read {}", path.display());
    std::os::unix::fs::chown(path, None, Some(gid.as_raw())).with_context(named)?;
    let mode = std::fs::Permissions::from_mode(MODE);
    std::fs::set_permissions(path, mode).with_context(named)
}

fn gid_of(group: &str) -> Option<Gid> {
    Some(Group::from_name(group).ok()??.gid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_shut_unless_its_group_or_everybody_reads_it() {
        let ours = Gid::from_raw(7);
        for (mode, of, shut) in [
            (0o100_640, 7, false),
            (0o100_640, 0, true),
            (0o100_600, 7, true),
            (0o100_644, 0, false),
        ] {
            assert_eq!(is_shut_to(mode, of, ours), shut, "{mode:o} {of}");
        }
    }

    #[test]
    fn a_reason_is_told_once_with_all_its_files() {
        let mut hints = OwnerHints::default();
        assert_eq!(hints.show(), "");
        for file in ["/a", "/b"] {
            hints.add(
                Some("no group; on the host: chown root:g".to_owned()),
                Path::new(file),
            );
        }
        hints.add(None, Path::new("/c"));
        assert_eq!(
            hints.show(),
            "note: no group; on the host: chown root:g /a /b\n"
        );
    }

    #[test]
    fn what_is_not_there_is_not_shut() {
        assert!(!is_shut(Path::new("/nowhere/at/all"), "root"));
        assert!(!is_shut(Path::new("/etc/passwd"), "root"));
        assert!(!is_shut(Path::new("/etc/shadow"), "no-such-group"));
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("f");
        std::fs::write(&file, "x").expect("written");
        assert!(open(&file, "no-such-group").is_err());
    }
}
