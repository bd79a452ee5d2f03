//! The fake API server on the network: `pve-autoscaler sim kube`.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use super::{Kube, KubeSpec};
use crate::bounded_file;
use crate::clock::Clock;
use crate::sim::guests::{StandingNode, stand};
use crate::sim::listen::{Listener, Tls};
use crate::simulator_args::KubeOptions;

/// What `--spec` names: the cluster, and nodes that stand from the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServedCluster {
    /// The cluster.
    pub cluster: KubeSpec,
    /// Nodes with a kubelet and no VM.
    pub nodes: Vec<StandingNode>,
}

/// Serves until SIGINT or SIGTERM. Prints where once it listens.
pub async fn serve(options: KubeOptions) -> anyhow::Result<()> {
    let mut world = match &options.spec {
        None => ServedCluster::default(),
        Some(path) => read(path)?,
    };
    let scheme = if options.plain { "http" } else { "https" };
    // Nodes find the server where it listens, unless the spec says where else.
    let listen = with_port(&options.listen)?;
    if world.cluster.endpoint == KubeSpec::default().endpoint {
        world.cluster.endpoint = format!("{scheme}://{listen}");
    }
    let kube = Kube::new(world.cluster, Clock::System, options.seed);
    let (tls, authority) = match (&options.tls_cert, &options.tls_key) {
        _ if options.plain => (None, None),
        (Some(certificate), Some(key)) => {
            let tls = Tls::from_files(certificate, key)?;
            let pem = tls.pem().to_owned();
            (Some(tls), Some(pem))
        }
        _ => {
            let names = ["localhost", "127.0.0.1", "::1", host_of(&listen)];
            let (certificate, key) = kube
                .server_certificate(&names)
                .context("making the server's certificate")?;
            let tls = Tls::from_pem(&certificate, &key)?;
            (Some(tls), Some(kube.authority()))
        }
    };
    // Certificates of the cluster's authority are taken from clients, whoever signed the server's.
    let tls = tls
        .map(|tls| tls.asking_clients(&kube.authority()))
        .transpose()?;
    let listener = Listener::bind(&listen, tls)
        .await
        .with_context(|| format!("listening on {listen}"))?;
    let url = listener.url()?;
    let mut terminate = signal(SignalKind::terminate())?;
    if let Some(path) = &options.kubeconfig {
        write(path, &kube.admin_kubeconfig(&url, authority.as_deref()))?;
    }
    writeln!(std::io::stdout(), "listening on {url}")?;
    let mut standing = tokio::task::JoinSet::new();
    for (number, node) in (1..).zip(&world.nodes) {
        let kubelet = stand(&kube, node, number, Clock::System);
        standing.spawn(kubelet);
    }
    tokio::select! {
        biased;
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
        () = listener.serve(kube.public_router()) => {}
    }
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<ServedCluster> {
    let text = bounded_file::read_text(path, bounded_file::WORLD)
        .with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("reading the world in {}", path.display()))
}

/// What a kubeconfig of a simulator has, and no other.
const OWN: &str = "\nclusters:\n- name: sim\n";

/// Writes the kubeconfig at once and whole: a reader that waits for the file finds all of it.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let there = bounded_file::read_text(path, bounded_file::TEXT);
    let other = match &there {
        Ok(text) => !text.is_empty() && !text.contains(OWN),
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    };
    if other {
        anyhow::bail!(
            "{} is there already and is no simulator's kubeconfig: name another file for --kubeconfig",
            path.display()
        );
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)
        .with_context(|| format!("writing {}", new.display()))?;
    file.write_all(text.as_bytes())
        .with_context(|| format!("writing {}", new.display()))?;
    std::fs::rename(&new, path).with_context(|| format!("writing {}", path.display()))
}

/// The address with a port that is free now, where it leaves the choice to us (`HOST:0`): cluster-info names it before
/// anybody listens.
fn with_port(listen: &str) -> anyhow::Result<String> {
    let Some(host) = listen.strip_suffix(":0") else {
        return Ok(listen.to_owned());
    };
    let free =
        std::net::TcpListener::bind(listen).with_context(|| format!("listening on {listen}"))?;
    Ok(format!("{host}:{}", free.local_addr()?.port()))
}

/// The host of `HOST:PORT`.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_matches(['[', ']'])
}
