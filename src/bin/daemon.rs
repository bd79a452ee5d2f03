//! The daemon as a program of its own, which the package's service runs.
//!
//! It does what `pve-autoscaler run` does. Apart it has none of the commands in it: less of the host's memory.

fn main() -> std::process::ExitCode {
    pve_autoscaler::cli::daemon()
}
