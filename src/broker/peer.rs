//! Who is on the other end of a connection, by the kernel's word (SO_PEERCRED).

use std::ffi::CString;
use std::os::fd::AsFd;

use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};

/// The process that connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PeerProcess {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) pid: i32,
}

impl PeerProcess {
    /// The peer of `socket`, as it was when it connected.
    pub(super) fn of(socket: &impl AsFd) -> Result<PeerProcess, String> {
        let credentials = getsockopt(socket, sockopt::PeerCredentials)
            .map_err(|error| format!("cannot tell who connected (SO_PEERCRED): {error}"))?;
        Ok(PeerProcess {
            uid: credentials.uid(),
            gid: credentials.gid(),
            pid: credentials.pid(),
        })
    }

    /// Root, or a member of `group`: by its own group, or by the group database. The socket's mode
    /// says the same; this holds when somebody changed the mode.
    pub(super) fn may_talk(self, group: &str) -> Result<(), String> {
        if self.uid == 0 {
            return Ok(());
        }
        let found = Group::from_name(group)
            .map_err(|error| format!("cannot look up group {group}: {error}"))?;
        let Some(found) = found else {
            return Err(format!("there is no group {group}"));
        };
        if self.gid == found.gid.as_raw() || self.is_member(found.gid)? {
            return Ok(());
        }
        Err(format!("uid {} is not in group {group}", self.uid))
    }

    fn is_member(self, group: Gid) -> Result<bool, String> {
        let user = User::from_uid(Uid::from_raw(self.uid))
            .map_err(|error| format!("cannot look up uid {}: {error}", self.uid))?;
        let Some(user) = user else { return Ok(false) };
        let Ok(name) = CString::new(user.name) else {
            return Ok(false);
        };
        let groups = getgrouplist(&name, user.gid)
            .map_err(|error| format!("cannot look up the groups of uid {}: {error}", self.uid))?;
        Ok(groups.contains(&group))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_who_connected() {
        let (one, _two) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let peer = PeerProcess::of(&one).expect("credentials");
        assert_eq!(peer.uid, nix::unistd::getuid().as_raw());
        assert_eq!(peer.pid, i32::try_from(std::process::id()).expect("a pid"));
    }

    #[test]
    fn root_and_the_group_may_others_may_not() {
        let peer = |uid, gid| PeerProcess { uid, gid, pid: 1 };
        let daemon = Group::from_name("daemon")
            .expect("looked up")
            .expect("there");
        assert!(peer(0, 0).may_talk("daemon").is_ok());
        assert!(peer(12_345, daemon.gid.as_raw()).may_talk("daemon").is_ok());
        assert!(peer(12_345, 12_345).may_talk("daemon").is_err());
        assert!(peer(65_534, 65_534).may_talk("daemon").is_err());
        assert!(peer(65_534, 65_534).may_talk("no-such-group").is_err());
    }
}
