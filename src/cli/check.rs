//! `check`: is the file right, and does what it names exist?

use std::fmt::Write as _;
use std::path::Path;

use super::args::CheckOptions;
use super::{Failure, live, load, print, runtime};
use crate::config::Settings;

/// Checks the file, and with `--live` what it names.
pub(super) fn run(path: &Path, options: &CheckOptions) -> Result<(), Failure> {
    let mut findings = live::Findings::default();
    if options.live {
        // Before anything is read: the file itself may be one that the daemon cannot read.
        live::user::go_on_as(&options.user, &mut findings);
        print(&findings.text())?;
        if findings.any_wrong() {
            return Err(Failure::Said);
        }
    }
    let settings = load(path)?;
    print(&summary(&path.display().to_string(), &settings))?;
    if !options.live || !settings.configured {
        return Ok(());
    }
    let findings = runtime()?.block_on(live::look(
        &settings,
        &options.state_directory,
        live::Findings::default(),
    ));
    print(&findings.text())?;
    if findings.any_wrong() {
        return Err(Failure::Said);
    }
    Ok(())
}

/// What a valid file means, in a few lines.
fn summary(name: &str, settings: &Settings) -> String {
    let mut text = format!("{name}: valid\n");
    if !settings.configured {
        let _ = writeln!(
            text,
            "not configured: the file has no {}; the service runs and does nothing",
            if settings.regions.is_empty() {
                "[proxmox]"
            } else {
                "[pool.NAME]"
            }
        );
    }
    for (name, region) in &settings.policy.regions {
        let _ = writeln!(
            text,
            "region {name}: VMIDs {} to {}",
            region.vmid_first, region.vmid_last
        );
    }
    for (name, pool) in &settings.policy.pools {
        let _ = writeln!(
            text,
            "pool {name}: {} to {} nodes of {}, template {}, region {}",
            pool.min,
            pool.max,
            pool.instance_types.join(", "),
            pool.template,
            pool.region
        );
    }
    for warning in &settings.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    text
}
