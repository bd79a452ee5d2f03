//! Whose rights are judged: the daemon's. Root reads every file and connects to every socket, so a check by root
//! would pass what the daemon then cannot read.

use std::ffi::CString;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::unistd::{self, Uid, User};

use super::finding::Findings;
use super::{Here, posts};
use crate::config::settings::Channel;

/// The user that the package's unit names.
pub(in crate::cli) const DAEMON: &str = "pve-autoscaler";
/// What the unit hides from the daemon (`ProtectHome=`, `PrivateTmp=`).
const HIDDEN: [&str; 5] = ["/home", "/root", "/run/user", "/tmp", "/var/tmp"];

/// Goes on as this user, if this is root; never to be undone. The kernel then judges every file, directory and
/// socket as it will for the daemon. Says as whom is looked.
pub(in crate::cli) fn go_on_as(name: &str, findings: &mut Findings) {
    let own = unistd::geteuid();
    let user = match User::from_name(name) {
        Ok(Some(user)) => user,
        Ok(None) => {
            findings
                .warning(format!(
                    "user: there is no user {name} on this host, as whom the daemon would run; whether it may read its files is not judged"
                ))
                .mend("the package makes it (systemd-sysusers); --user names another");
            return;
        }
        Err(error) => {
            findings
                .wrong(format!("user: {name} cannot be looked up: {error}"))
                .mend(format!("getent passwd {name}"));
            return;
        }
    };
    if user.uid != own && !own.is_root() {
        findings
            .warning(format!(
                "user: looked with the rights of uid {own}, not of {name}"
            ))
            .mend("run this as root to judge what the daemon may read");
        return;
    }
    if user.uid != own
        && let Err(error) = become_user(&user)
    {
        findings
            .wrong(format!("user: cannot go on as {name}: {error}"))
            .mend("run this as root, outside of a container that forbids it; --user names another user");
        return;
    }
    findings.fine(format!("user: looked with the rights of {name}"));
}

fn become_user(user: &User) -> nix::Result<()> {
    let name = CString::new(user.name.as_str()).map_err(|_| nix::errno::Errno::EINVAL)?;
    unistd::initgroups(&name, user.gid)?;
    unistd::setgid(user.gid)?;
    unistd::setuid(user.uid)
}

/// Looks whether the files that the configuration names can be read, and whether the service can see them at all.
pub(super) fn files(here: &Here, findings: &mut Findings) {
    let settings = &here.settings;
    let mut files = vec![("kubeconfig", settings.kubernetes.kubeconfig.clone())];
    for region in settings.regions.values() {
        if let Channel::Token {
            secret_file,
            ca_file,
            ..
        } = &region.channel
        {
            files.push(("token_secret_file", secret_file.clone()));
            files.extend(ca_file.clone().map(|file| ("ca_file", file)));
        }
    }
    let daemon = User::from_name(DAEMON).ok().flatten().map(|user| user.uid);
    for (key, path) in files {
        file(key, &path, daemon, findings);
    }
    posts::look(settings, findings);
}

/// A secret that everybody on the host can read is none.
fn judge_mode(key: &str, shown: &str, mode: u32, findings: &mut Findings) {
    if mode & 0o007 != 0 {
        findings
            .warning(format!(
                "file: {key} {shown} is open to everybody on this host (mode {:04o})",
                mode & 0o7777
            ))
            .mend(format!(
                "chown root:pve-autoscaler {shown} && chmod 0640 {shown}"
            ));
    }
}

fn file(key: &str, path: &Path, daemon: Option<Uid>, findings: &mut Findings) {
    let shown = path.display();
    if let Err(error) = std::fs::File::open(path) {
        let hint = match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                "it and the directories above it must let the daemon in: root:pve-autoscaler 0640 below /etc/pve-autoscaler is right"
            }
            _ if key == "kubeconfig" => {
                "pve-autoscaler kubeconfig --kubeconfig ADMIN_KUBECONFIG makes it; or name another in the file"
            }
            _ => {
                "put it there, or name another in the file; docs/configuration.md says what it has to be"
            }
        };
        findings
            .wrong(format!("file: {key} {shown} cannot be read: {error}"))
            .mend(hint);
        return;
    }
    if let Ok(metadata) = std::fs::metadata(path)
        && key != "ca_file"
    {
        judge_mode(key, &shown.to_string(), metadata.mode(), findings);
    }
    let hidden = HIDDEN.iter().find(|hidden| path.starts_with(hidden));
    match hidden.filter(|_| daemon == Some(unistd::geteuid())) {
        Some(hidden) => findings
            .wrong(format!(
                "file: {key} {shown} is hidden from the service, as all of {hidden}"
            ))
            .mend("move it below /etc/pve-autoscaler"),
        None => findings.fine(format!("file: {key} {shown} can be read")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_everybody_can_read_is_told() {
        let said = |mode: u32| {
            let mut findings = Findings::default();
            judge_mode("kubeconfig", "/etc/x", mode, &mut findings);
            let said = findings.0.first();
            said.map(ToString::to_string).unwrap_or_default()
        };
        assert_eq!(said(0o100_640), "");
        assert_eq!(said(0o100_600), "");
        let open = said(0o100_644);
        assert!(
            open.contains(
                "open to everybody on this host (mode 0644); chown root:pve-autoscaler /etc/x"
            ),
            "{open}"
        );
        assert!(said(0o100_602).contains("open to everybody"));
    }
}
