//! What `demo` and `sim` are asked for on the command line. The comments are the help texts and the man pages.
//!
//! The daemon's program reads these command lines and has no simulator in it; the simulator's program carries them
//! out. So the arguments stand apart from both.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::typed_number::whole;

/// What the demo is asked for.
#[derive(Clone, Debug, Args)]
pub struct DemoOptions {
    /// End when the workload and its nodes are gone again: 0 when all went well.
    #[arg(long)]
    pub once: bool,
    /// Everything that is left to chance comes from this number.
    #[arg(
        long,
        default_value_t = 1,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = whole::<u64>(0..=u64::MAX)
    )]
    pub seed: u64,
    /// Simulated seconds in a second.
    #[arg(long, default_value_t = 20, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u32>(1..=10_000))]
    pub speed: u32,
    /// PVE clusters: with 2 a pool is over both, and one of them is away for a while.
    #[arg(long, default_value_t = 1, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u8>(1..=2))]
    pub regions: u8,
    /// Where the page is served; without it 127.0.0.1:9818, or another port if that is taken, and nowhere with --once.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub page: Option<std::net::SocketAddr>,
    /// Who may log in on the page, as `web-password NAME --file FILE` writes it: they pause, retry and evacuate there,
    /// and nobody else may look. Sessions end by the clusters' time. Without it there is no login.
    #[arg(long, value_name = "FILE")]
    pub users: Option<PathBuf>,
    /// Where `status`, `plan`, `explain` and others reach the demo's daemon, by their own `--socket`; without it in a
    /// directory of the demo's own, and nowhere with --once.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// Where to listen.
fn address(text: &str) -> Result<std::net::SocketAddr, String> {
    text.parse()
        .map_err(|_| "expected an address and a port, such as 127.0.0.1:9818 or [::1]:0".to_owned())
}

/// Lines to copy at the end of a command's help.
const SIM_PVE: &str = "\
Examples:
  pve-autoscaler sim pve --listen 127.0.0.1:8006
  curl -k https://127.0.0.1:8006/api2/json/version  # in a second terminal
  pve-autoscaler sim pve --listen 127.0.0.1:8006 --spec world.json";
const SIM_KUBE: &str = "\
Examples:
  pve-autoscaler sim kube --listen 127.0.0.1:6443 --kubeconfig admin.conf
  kubectl --kubeconfig admin.conf get nodes  # in a second terminal";

/// What to simulate.
#[derive(Clone, Debug, Subcommand)]
pub enum SimCommand {
    /// A Proxmox VE cluster; its API on the wire as the original's.
    #[command(after_help = SIM_PVE)]
    Pve(PveOptions),
    /// A Kubernetes cluster; its API on the wire as the original's, for what the daemon asks of it.
    ///
    /// It serves no OpenAPI: `kubectl apply` needs --validate=false. It takes bodies in JSON, and in protobuf those of deletions,
    /// evictions, Namespaces and Deployments: `kubectl create` of other kinds is refused. `kubectl create … --dry-run=client -o json |
    /// kubectl apply --validate=false -f -` makes those.
    #[command(after_help = SIM_KUBE)]
    Kube(KubeOptions),
}

/// How to serve the simulated Proxmox VE.
#[derive(Clone, Debug, Args)]
pub struct PveOptions {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8006")]
    pub listen: String,
    /// World to begin with (JSON); what it does not name is the default
    #[arg(long, value_name = "FILE")]
    pub spec: Option<PathBuf>,
    /// Certificate chain (PEM); without one, one is made
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Program that runs the guests; without one they are empty
    #[arg(long, value_name = "PROGRAM")]
    pub guest_program: Option<PathBuf>,
    /// Directory for the guests' own directories
    #[arg(long, value_name = "DIRECTORY", requires = "guest_program")]
    pub guest_dir: Option<PathBuf>,
    /// Seed of all that is drawn by chance
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = whole::<u64>(0..=u64::MAX))]
    pub seed: u64,
}

/// How to serve the simulated Kubernetes.
#[derive(Clone, Debug, Args)]
pub struct KubeOptions {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6443")]
    pub listen: String,
    /// World to begin with (JSON); what it does not name is the default
    #[arg(long, value_name = "FILE")]
    pub spec: Option<PathBuf>,
    /// Where to write an administrator's kubeconfig once it listens
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Certificate chain (PEM); without one, the cluster's own authority makes one
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Speak plain HTTP
    #[arg(long, conflicts_with = "tls_cert")]
    pub plain: bool,
    /// Seed of all that is drawn by chance
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = whole::<u64>(0..=u64::MAX))]
    pub seed: u64,
}
