fn main() -> std::process::ExitCode {
    pve_autoscaler::cli::main()
}
