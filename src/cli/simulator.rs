//! `demo`, `sim` and `conformance`: a program of their own carries them out, so that no simulator is in the program
//! that runs on hypervisors.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

/// In this program's own folder: as cargo builds the two.
const BESIDE: &str = "pve-autoscaler-simulator";
/// In the folder above it: as the package lays them out, this one in `/usr/bin`.
const PACKAGED: &str = "libexec/pve-autoscaler/simulator";
/// What to do when the program is missing or cannot be run.
const REMEDY: &str = "install the package pve-autoscaler again, or run `cargo build` in a clone";

/// Becomes the simulator's program, with the command line that this one was given.
///
/// # Errors
/// It returns only when the program cannot be run.
pub(super) fn run() -> anyhow::Error {
    let this = std::env::current_exe().context(
        "cannot find the program of demo, sim and conformance: where this one lies is not known",
    );
    let program = match this.and_then(|this| find(&this)) {
        Ok(program) => program,
        Err(error) => return error,
    };
    let error = Command::new(&program)
        .args(std::env::args_os().skip(1))
        .exec();
    anyhow::anyhow!(
        "cannot run {}, the program of demo, sim and conformance: {error}; {REMEDY}",
        program.display()
    )
}

/// The simulator's program that belongs to `this` one.
fn find(this: &Path) -> anyhow::Result<PathBuf> {
    let folder = this.parent().unwrap_or(this);
    let beside = folder.join(BESIDE);
    let packaged = folder.parent().unwrap_or(folder).join(PACKAGED);
    let places = format!(
        "the program of demo, sim and conformance is missing: it is neither {} nor {}; {REMEDY}",
        beside.display(),
        packaged.display()
    );
    [beside, packaged]
        .into_iter()
        .find(|program| program.is_file())
        .with_context(|| places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_as_cargo_and_as_the_package_lay_it_out() {
        let root = tempfile::tempdir().expect("a folder");
        let at = |path: &str| root.path().join(path);
        let this = at("bin/pve-autoscaler");
        let said = find(&this).expect_err("there is none").to_string();
        for part in [
            "bin/pve-autoscaler-simulator",
            "libexec/pve-autoscaler/simulator",
            "cargo build",
        ] {
            assert!(said.contains(part), "no {part:?} in {said}");
        }
        for path in [
            "libexec/pve-autoscaler/simulator",
            "bin/pve-autoscaler-simulator",
        ] {
            let program = at(path);
            std::fs::create_dir_all(program.parent().expect("a folder")).expect("made");
            std::fs::write(&program, "").expect("written");
            assert_eq!(find(&this).expect("found"), program);
        }
    }
}
