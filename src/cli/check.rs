//! `check`: is the file right, and does what it names exist?

use std::fmt::Write as _;
use std::path::Path;

use super::args::CheckOptions;
use super::{Failure, load, print};
use crate::config::Settings;

/// Checks the file.
pub(super) fn run(path: &Path, _options: &CheckOptions) -> Result<(), Failure> {
    let settings = load(path)?;
    print(&summary(&path.display().to_string(), &settings))
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
