//! The broker as a program of its own, which the package's service runs.
//!
//! It does what `pve-autoscaler broker` does. Apart it is a fifth of the code: less that root runs,
//! and less of the host's memory.

fn main() -> std::process::ExitCode {
    pve_autoscaler::cli::broker()
}
