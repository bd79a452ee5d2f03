//! What the daemon opens when it starts: its own directory, the folder of its control socket, the address of its page.

use std::net::TcpListener;
use std::path::Path;

use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access};

use super::Here;
use super::finding::Findings;
use crate::clock::Clock;
use crate::web::access::Access;

/// With less room than this for the daemon's files, in bytes, the next one may not be written.
const NO_ROOM: u64 = 1 << 20;
/// With less room than this, in bytes, somebody should look before it is gone.
const LITTLE_ROOM: u64 = 64 << 20;

/// Tries what the daemon will do before anything else.
pub(super) fn look(here: &Here, findings: &mut Findings) {
    directory("its own directory", &here.state, findings);
    // Where the file system does not tell, nothing is known against it.
    let there = nearest_that_is_there(&here.state);
    if let Ok(told) = statvfs(there) {
        let bytes = told.blocks_available().saturating_mul(told.fragment_size());
        // Some file systems have no number of files; they tell 0 of 0.
        let files = (told.files() > 0).then(|| told.files_available());
        judge_room(there, bytes, files, findings);
    }
    // A name without a folder is in the one that this is typed in, and its parent is empty.
    let parent = here.control.parent();
    if let Some(folder) = parent.filter(|folder| !folder.as_os_str().is_empty()) {
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

/// The directory itself, or where it will be made: the nearest one above it that is there.
fn nearest_that_is_there(directory: &Path) -> &Path {
    let mut above = directory.ancestors();
    let found = above.find(|path| path.exists());
    // A name without a folder is made in the folder that this is typed in.
    found.unwrap_or(Path::new("."))
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

/// Whether the daemon's files find room, with so many bytes and files that may come. Without room no intent is written, and so nothing is
/// made or removed.
fn judge_room(path: &Path, bytes: u64, files: Option<u64>, findings: &mut Findings) {
    let no_file = files == Some(0);
    if bytes >= LITTLE_ROOM && !no_file {
        return;
    }
    let shown = path.display();
    let left = if no_file {
        "no file (its inodes are used up)".to_owned()
    } else if bytes < NO_ROOM {
        format!("{} KiB", bytes >> 10)
    } else {
        format!("{} MiB", bytes >> 20)
    };
    let text =
        format!("daemon: the file system of its own directory ({shown}) has room left for {left}");
    let found = if no_file || bytes < NO_ROOM {
        findings.wrong(text)
    } else {
        findings.warning(text)
    };
    found.mend(format!(
        "make room there: df -h {shown} and df -i {shown} show how full it is; the daemon goes on by itself within seconds"
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_there_yet_is_judged_by_where_it_will_be() {
        let folder = tempfile::tempdir().expect("a folder");
        let of = |path: &Path| nearest_that_is_there(path).to_owned();
        assert_eq!(of(folder.path()), folder.path());
        assert_eq!(of(&folder.path().join("a/b")), folder.path());
        assert_eq!(of(Path::new("no-such-folder-of-ours")), Path::new("."));
    }

    #[test]
    fn a_full_file_system_is_wrong_and_one_that_is_nearly_full_is_warned_of() {
        for (bytes, files, said) in [
            (LITTLE_ROOM, Some(1), None),
            (LITTLE_ROOM, None, None),
            (
                LITTLE_ROOM - 1,
                None,
                Some(
                    "warning: daemon: the file system of its own directory (/s) has room left for 63 MiB",
                ),
            ),
            (
                NO_ROOM - 1,
                Some(9),
                Some(
                    "WRONG: daemon: the file system of its own directory (/s) has room left for 1023 KiB",
                ),
            ),
            (
                LITTLE_ROOM,
                Some(0),
                Some(
                    "WRONG: daemon: the file system of its own directory (/s) has room left for no file (its inodes are used up)",
                ),
            ),
        ] {
            let mut findings = Findings::default();
            judge_room(Path::new("/s"), bytes, files, &mut findings);
            let found = findings.0.first().map(ToString::to_string);
            let told = found.as_deref();
            let told = told.and_then(|told| told.split("; make room").next());
            assert_eq!(told, said, "{bytes} {files:?}");
        }
    }
}
