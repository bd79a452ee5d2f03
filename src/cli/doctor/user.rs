//! Whose rights are judged: the daemon's. Root reads every file and connects to every socket, so a check by root
//! would pass what the daemon then cannot read.

use std::ffi::CString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::{self, User};

use super::finding::Findings;
use super::{Here, posts};
use crate::config::settings::Channel;
use crate::config::{self, paths};
use crate::kubernetes::connect;

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

/// Looks whether the files that the configuration names can be read, and whether the service can see every path that it names.
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
    let makes_it = if settings.configured {
        format!(
            "pve-autoscaler kubeconfig --kubeconfig ADMIN_KUBECONFIG --output {} makes it; or name another in the file",
            settings.kubernetes.kubeconfig.display()
        )
    } else {
        let setup = config::command_for("pve-autoscaler setup", &here.file);
        format!(
            "{setup} --kubeconfig ADMIN_KUBECONFIG makes it, and the rest; or name another in the file"
        )
    };
    for (key, path) in files {
        file(key, &path, &makes_it, findings);
    }
    posts::look(settings, findings);
    let daemon = User::from_name(DAEMON).ok().flatten().map(|user| user.uid);
    // Another user's service may have another unit.
    if daemon == Some(unistd::geteuid()) {
        judge_hidden(&named(here), findings);
    }
}

/// Every path that the file and its kubeconfig name, by its key.
fn named(here: &Here) -> Vec<(String, PathBuf)> {
    let kubernetes = &here.settings.kubernetes;
    let mut named = paths::named(&here.settings.text);
    let of_kubeconfig = connect::named_files(&kubernetes.kubeconfig, kubernetes.context.as_deref());
    let of_kubeconfig = of_kubeconfig.into_iter();
    named.extend(of_kubeconfig.map(|(key, path)| (format!("{key} of the kubeconfig"), path)));
    named
}

/// The directory in which the unit hides a path from the daemon, if it does: the path itself, or what a link leads to.
fn hidden_in(path: &Path) -> Option<&'static str> {
    let real = std::fs::canonicalize(path).ok();
    let inside = |hidden: &&str| {
        path.starts_with(hidden) || real.as_ref().is_some_and(|real| real.starts_with(hidden))
    };
    HIDDEN.into_iter().find(inside)
}

/// Says which paths the daemon does not see, whoever may read them.
fn judge_hidden(named: &[(String, PathBuf)], findings: &mut Findings) {
    let before = findings.0.len();
    for (key, path) in named {
        let Some(hidden) = hidden_in(path) else {
            continue;
        };
        let place = if key.ends_with("socket") {
            "/run/pve-autoscaler"
        } else {
            "/etc/pve-autoscaler"
        };
        findings
            .wrong(format!(
                "file: {key} {} is hidden from the service, as all of {hidden}",
                path.display()
            ))
            .mend(format!("move it below {place}, and name that in the file"));
    }
    if findings.0.len() == before {
        findings.fine("file: no path that it names is hidden from the service");
    }
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

/// Whether a file can be read. `makes_it` is what to type where the kubeconfig is missing.
fn file(key: &str, path: &Path, makes_it: &str, findings: &mut Findings) {
    let shown = path.display();
    if let Err(error) = std::fs::File::open(path) {
        let hint = match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                "it and the directories above it must let the daemon in: root:pve-autoscaler 0640 below /etc/pve-autoscaler is right"
            }
            _ if key == "kubeconfig" => makes_it,
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
    findings.fine(format!("file: {key} {shown} can be read"));
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

    /// What is said of a path.
    fn said_hidden(key: &str, path: &Path) -> String {
        let mut findings = Findings::default();
        judge_hidden(&[(key.to_owned(), path.to_owned())], &mut findings);
        let said = findings.0.first();
        said.map(ToString::to_string).unwrap_or_default()
    }

    #[test]
    fn what_the_unit_hides_is_wrong_wherever_it_is_named() {
        for (key, path, place) in [
            ("web.tls_key", "/root/key.pem", "/etc/pve-autoscaler"),
            (
                "pool.a.join.secret_file",
                "/root/secret",
                "/etc/pve-autoscaler",
            ),
            (
                "template.a.cloud_init.user_data_file",
                "/tmp/user",
                "/etc/pve-autoscaler",
            ),
            (
                "broker.socket",
                "/run/user/0/broker.sock",
                "/run/pve-autoscaler",
            ),
        ] {
            let said = said_hidden(key, Path::new(path));
            let begin = format!("WRONG: file: {key} {path} is hidden from the service");
            assert!(said.starts_with(&begin), "{said}");
            assert!(said.contains(&format!("move it below {place}")), "{said}");
        }
        for path in [
            "/etc/pve-autoscaler/key.pem",
            "/homework/key.pem",
            "/run/x.sock",
        ] {
            let said = said_hidden("web.tls_key", Path::new(path));
            assert!(said.starts_with("ok: "), "{said}");
        }
    }

    /// The path itself is none of those that are hidden.
    #[test]
    fn a_link_into_what_is_hidden_is_followed() {
        let hidden = tempfile::tempdir_in("/tmp").expect("a folder");
        let path = hidden.path().strip_prefix("/").expect("a whole path");
        let link = Path::new("/proc/self/root").join(path);
        assert_eq!(hidden_in(&link), Some("/tmp"));
    }

    /// What is said of hidden directories is what the unit says.
    #[test]
    fn the_unit_hides_these_directories_and_no_others() {
        let unit = include_str!("../../../systemd/pve-autoscaler.service");
        for line in ["ProtectHome=yes", "PrivateTmp=yes"] {
            assert!(unit.lines().any(|found| found == line), "{line}");
        }
        for word in [
            "InaccessiblePaths",
            "TemporaryFileSystem",
            "RootDirectory",
            "RootImage",
        ] {
            assert!(!unit.contains(word), "{word}");
        }
    }

    /// Paths of the file and of its kubeconfig are looked at, those for cloud-init and of pools too.
    #[test]
    fn all_paths_of_the_file_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let kubeconfig = folder.path().join("kubeconfig");
        let text = "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
            contexts: [{name: c, context: {cluster: k, user: u}}]\n\
            clusters: [{name: k, cluster: {server: 'https://10.0.0.1:6443', certificate-authority: /root/ca.crt}}]\n\
            users: [{name: u, user: {tokenFile: /root/token}}]\n";
        std::fs::write(&kubeconfig, text).expect("written");
        let mut here = Here::of_test(folder.path());
        let file = format!(
            "version = 1\n[kubernetes]\nkubeconfig = \"{}\"\n[web]\nusers_file = \"/root/users\"\n",
            kubeconfig.display()
        );
        let settings = crate::config::parse(&file, "test");
        here.settings = std::sync::Arc::new(settings.unwrap_or_else(|errors| panic!("{errors}")));
        let keys: Vec<String> = named(&here).into_iter().map(|(key, _)| key).collect();
        assert_eq!(
            keys,
            [
                "kubernetes.kubeconfig",
                "web.users_file",
                "certificate-authority of the kubeconfig",
                "tokenFile of the kubeconfig"
            ]
        );
    }
}
