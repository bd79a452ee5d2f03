//! Running PVE's own Perl: with a clean environment, and outside of the broker's sandbox where a worker of
//! PVE's must not inherit it.

use std::path::Path;

use tokio::process::Command;

/// A transient service of systemd, whose output and end are this command's. What `properties` say and then
/// the program and its arguments are still to be added.
pub(super) fn outside(systemd_run: &Path, description: &str, properties: &[&str]) -> Command {
    let mut command = Command::new(systemd_run);
    command
        .args([
            "--quiet",
            "--pipe",
            "--wait",
            "--collect",
            "--service-type=exec",
        ])
        .arg(format!("--description=pve-autoscaler: {description}"));
    for property in properties {
        command.arg(format!("--property={property}"));
    }
    command.arg("--");
    command
}

/// Nothing of the broker's surroundings reaches it; it ends with whoever waits for it.
pub(super) fn secluded(command: &mut Command) {
    command
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LC_ALL", "C")
        .current_dir("/")
        .kill_on_drop(true);
}
