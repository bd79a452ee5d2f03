//! What the daemon opens when it starts: its own directory, the folder of its control socket, the address of its page.

use std::net::TcpListener;
use std::path::Path;

use nix::unistd::{AccessFlags, access};

use super::Here;
use super::finding::Findings;
use crate::clock::Clock;
use crate::web::access::Access;

/// Tries what the daemon will do before anything else.
pub(super) fn look(here: &Here, findings: &mut Findings) {
    directory("its own directory", &here.state, findings);
    if let Some(folder) = here.control.parent() {
        directory("the folder of the control socket", folder, findings);
    }
    web_files(here, findings);
    if here.runs {
        return;
    }
    let address = here.settings.web.listen;
    match TcpListener::bind(address) {
        Ok(_) => findings.fine(format!("daemon: it can listen on {address} ([web] listen)")),
        Err(error) => findings
            .wrong(format!(
                "daemon: it cannot listen on {address} ([web] listen): {error}"
            ))
            .mend(format!(
                "ss -ltnp 'sport = :{}' shows who does; or another address in [web] listen",
                address.port()
            )),
    }
}

/// Whether the daemon can use the files that `[web]` names.
fn web_files(here: &Here, findings: &mut Findings) {
    let web = &here.settings.web;
    if web.tls.is_none() && web.users_file.is_none() {
        return;
    }
    let found = Access::open(web).map(|access| access.problem(Clock::System.now()));
    let mend =
        "docs/operations.md#from-other-machines says what each file has to be, and what to type";
    match found {
        Ok(None) => findings.fine("daemon: the files that [web] names can be used".to_owned()),
        // The page is there until then.
        Ok(Some(why)) if why.contains(": ends at ") => {
            findings.warning(format!("daemon: {why}")).mend(mend);
        }
        Ok(Some(why)) | Err(why) => findings.wrong(format!("daemon: {why}")).mend(mend),
    }
}

/// Whether the daemon can make files there. One that is missing it makes by itself, where it may.
fn directory(what: &str, path: &Path, findings: &mut Findings) {
    let shown = path.display();
    let makes = "systemd-tmpfiles --create pve-autoscaler.conf; systemctl restart pve-autoscaler makes both with the right owner";
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            findings.fine(format!(
                "daemon: {what} {shown} is not there yet; it is made when the daemon starts"
            ));
            return;
        }
        Err(error) => {
            findings
                .wrong(format!(
                    "daemon: {what} {shown} cannot be looked at: {error}"
                ))
                .mend(makes);
            return;
        }
    };
    if !metadata.is_dir() {
        findings
            .wrong(format!("daemon: {what} {shown} is no directory"))
            .mend(format!("mv {shown} {shown}.old"));
        return;
    }
    let needed = AccessFlags::R_OK | AccessFlags::W_OK | AccessFlags::X_OK;
    match access(path, needed) {
        Ok(()) => findings.fine(format!("daemon: it may write in {what} {shown}")),
        Err(error) => findings
            .wrong(format!(
                "daemon: it may not write in {what} {shown}: {error}"
            ))
            .mend(makes),
    }
}
