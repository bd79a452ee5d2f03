//! The broker's socket: handed over by systemd, or made here.

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;

use nix::unistd::{Gid, Group, chown};
use tokio::net::UnixListener;

/// Only root and the group may connect.
const MODE: u32 = 0o660;

/// The socket that systemd passed, or one bound at `path` for `group`.
pub(super) fn listen(path: &Path, group: &str) -> Result<UnixListener, String> {
    let passed = listenfd::ListenFd::from_env()
        .take_unix_listener(0)
        .map_err(|error| format!("cannot use the socket that systemd passed: {error}"))?;
    let listener = match passed {
        Some(listener) => listener,
        None => bind(path, group)?,
    };
    listener
        .set_nonblocking(true)
        .and_then(|()| UnixListener::from_std(listener))
        .map_err(|error| format!("cannot listen at {}: {error}", path.display()))
}

fn bind(path: &Path, group: &str) -> Result<std::os::unix::net::UnixListener, String> {
    let fail = |what: &str, why: String| format!("cannot {what} {}: {why}", path.display());
    // What a broker that ended left behind; anything but a socket stays.
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        std::fs::remove_file(path).map_err(|error| fail("replace", error.to_string()))?;
    }
    // The owner's group for a group that does not exist: then only root can talk to it.
    let gid: Option<Gid> = Group::from_name(group)
        .map_err(|error| fail("set the group of", error.to_string()))?
        .map(|group| group.gid);
    let listener = std::os::unix::net::UnixListener::bind(path)
        .map_err(|error| fail("bind", error.to_string()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .map_err(|error| fail("set the mode of", error.to_string()))?;
    if let Some(gid) = gid {
        chown(path, None, Some(gid)).map_err(|error| fail("chown", error.to_string()))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(MODE))
            .map_err(|error| fail("set the mode of", error.to_string()))?;
    } else {
        tracing::warn!(
            group,
            "there is no such group: only root can use the broker"
        );
    }
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_socket_of_our_own_is_for_the_group_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("pve.sock");
        for _ in 0..2 {
            // The second finds the first one's socket left behind.
            bind(&path, "daemon").expect("bound");
            let found = std::fs::metadata(&path).expect("there");
            assert_eq!(found.mode() & 0o777, MODE);
        }
        bind(&path, "no-such-group").expect("bound");
        let found = std::fs::metadata(&path).expect("there");
        assert_eq!(found.mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_in_the_sockets_place_is_not_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("pve.sock");
        std::fs::write(&path, "precious").expect("written");
        assert!(bind(&path, "daemon").is_err());
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "precious");
    }
}
