//! What hands the mails of `[notification.NAME]` on: the mail service's socket, as the daemon's user finds it, and the host's sendmail.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;

use nix::unistd::{AccessFlags, access};

use super::Here;
use super::finding::Findings;
use crate::config::notification::NotificationChannel;

/// The kernel's list of sockets with names.
const SOCKETS: &str = "/proc/net/unix";
/// The flag, as that list shows it, of a socket at which somebody listens (`__SO_ACCEPTCON`).
const LISTENS: &str = "00010000";
/// What mails are handed to; systemd starts the mail service with it.
const SENDMAIL: &str = "/usr/sbin/sendmail";
/// Anybody may run it.
const ALL_RUN: u32 = 0o001;
/// Anybody may read it.
const ALL_READ: u32 = 0o004;

/// Looks at the way of mails. Nothing is connected: systemd would start the mail service for it.
pub(super) fn look(here: &Here, findings: &mut Findings) {
    let notifications = here.settings.notifications.values();
    let sockets = notifications.filter_map(|notification| match &notification.way {
        NotificationChannel::Mail(mail) => Some(&*mail.socket),
        NotificationChannel::Webhook(_) => None,
    });
    let sockets: BTreeSet<&Path> = sockets.collect();
    if sockets.is_empty() {
        return;
    }
    for socket in sockets {
        let shown = socket.display();
        match reach(socket) {
            Ok(()) => findings.fine(format!("mail: the mail service listens at {shown}")),
            Err(why) => findings
                .wrong(format!("mail: no mail is sent: {shown} {why}"))
                .mend("systemctl enable --now pve-autoscaler-mail.socket; systemctl status pve-autoscaler-mail.socket shows where it listens"),
        }
    }
    look_at_recipients(here, findings);
    let program = fs::metadata(SENDMAIL);
    let runs = program.is_ok_and(|file| file.is_file() && file.permissions().mode() & ALL_RUN != 0);
    if runs {
        findings.fine(format!("mail: {SENDMAIL} is there"));
    } else {
        findings
            .wrong(format!(
                "mail: no mail is sent: there is no {SENDMAIL} that can be run"
            ))
            .mend("apt install postfix, or another program that brings sendmail along");
    }
}

/// Looks whether the mail service, whose user is another than the daemon's, may read the recipients, which are in the configuration.
fn look_at_recipients(here: &Here, findings: &mut Findings) {
    let Ok(file) = fs::metadata(&here.file) else {
        return;
    };
    if file.permissions().mode() & ALL_READ == 0 {
        findings
            .wrong(format!(
                "mail: no mail is sent: the mail service reads whom it goes to in {0}, and its user pve-autoscaler-mail may not read that file",
                here.file
            ))
            .mend(format!("chmod 644 {}", here.file));
    }
}

/// Whether the daemon can hand a mail over there.
fn reach(socket: &Path) -> Result<(), String> {
    let file = fs::metadata(socket).map_err(|error| format!("cannot be reached: {error}"))?;
    if !file.file_type().is_socket() {
        return Err("is no socket".to_owned());
    }
    access(socket, AccessFlags::R_OK | AccessFlags::W_OK)
        .map_err(|error| format!("may not be written to: {error}"))?;
    // Where the list cannot be read, what is there counts as good.
    let listed = fs::read_to_string(SOCKETS).unwrap_or_default();
    let name = socket.display().to_string();
    let own = listed
        .lines()
        .filter(|line| line.ends_with(&format!(" {name}")));
    let flags: Vec<&str> = own
        .filter_map(|line| line.split_whitespace().nth(3))
        .collect();
    if !listed.is_empty() && !flags.contains(&LISTENS) {
        return Err("is a socket at which nobody listens".to_owned());
    }
    Ok(())
}
