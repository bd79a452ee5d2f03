//! The simulator as a program of its own: `pve-autoscaler demo`, `sim` and `conformance` run it.
//!
//! The daemon's program, which runs on hypervisors, has none of it.

fn main() -> std::process::ExitCode {
    pve_autoscaler::simulator::main()
}
