//! The daemon, and the broker beside it, as processes with all they need: the simulated API servers of this process on real
//! sockets with TLS, credentials, configuration.

use std::path::Path;
use std::time::Duration;

use pve_autoscaler::sim::listen::{Listener, Tls};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::populated::Populated;
use super::services::{Service, USER};

/// How the daemon reaches PVE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    /// Through the broker; as root, in the arena.
    Broker,
    /// With an API token.
    Token,
}

/// To be ready.
const READY: Duration = Duration::from_mins(1);
/// Requests that pveproxy answers on a connection.
const REQUESTS_A_CONNECTION: u64 = 100;
/// The simulated host that the arena is, its address and root's password there.
pub(crate) const HOST: (&str, &str, &str) = ("pve1", "127.0.0.1:8006", "simulated");
/// A token of the simulated cluster.
const TOKEN: (&str, &str) = ("root@pam!sim", "00000000-0000-4000-8000-000000000002");

/// Where things lie for the daemon.
pub(crate) struct Place {
    config: String,
    state: String,
    control: String,
    /// Host and port of its web server.
    web: String,
}

impl Place {
    /// Writes more into the configuration.
    pub(crate) fn configure(&self, more: &str) {
        let text = std::fs::read_to_string(&self.config).expect("it was written");
        std::fs::write(&self.config, text + more).expect("written");
    }
}

/// Serves both APIs and writes the configuration. What is returned beside serves until dropped.
pub(crate) async fn serve(
    directory: &Path,
    cluster: &Populated,
    channel: Channel,
) -> (Place, tokio::task::JoinSet<()>) {
    let broker = channel == Channel::Broker;
    let mut servers = tokio::task::JoinSet::new();
    let (certificate, key) = cluster
        .kube
        .server_certificate(&["localhost", "127.0.0.1"])
        .expect("a certificate");
    let tls = Tls::from_pem(&certificate, &key).expect("a certificate");
    let listener = Listener::bind("127.0.0.1:0", Some(tls))
        .await
        .expect("a port");
    let url = listener.url().expect("an address");
    let kubeconfig = cluster
        .kube
        .admin_kubeconfig(&url, Some(&cluster.kube.authority()));
    servers.spawn(listener.serve(cluster.kube.public_router()));
    let (address, tls) = if broker {
        let local = Path::new("/etc/pve/local");
        let tls = Tls::from_files(&local.join("pve-ssl.pem"), &local.join("pve-ssl.key"));
        (HOST.1, tls.expect("the host's certificate"))
    } else {
        (
            "127.0.0.1:0",
            Tls::self_signed(&["127.0.0.1"]).expect("a certificate"),
        )
    };
    let fingerprint = tls.fingerprint();
    let listener = Listener::bind(address, Some(tls)).await.expect("a port");
    let url = listener.url().expect("an address");
    let listener = listener.closing_after(REQUESTS_A_CONNECTION);
    servers.spawn(listener.serve(cluster.pve.router()));
    let place = if broker {
        configure_host(&kubeconfig)
    } else {
        configure_directory(directory, &kubeconfig, &url, &fingerprint)
    };
    (place, servers)
}

fn configuration(kubeconfig: &str, channel: &str, web: &str) -> String {
    format!(
        "version = 1
[kubernetes]
kubeconfig = \"{kubeconfig}\"
name = \"bench\"
[web]
listen = \"{web}\"
[proxmox]
vmids = \"9100-10999\"
{channel}
[template.debian]
vmid = 9000
[instance_type.node]
cores = 4
memory = \"8GiB\"
disk = \"40GiB\"
[pool.general]
template = \"debian\"
instance_types = [\"node\"]
min = 0
max = 1200
"
    )
}

/// As the package installs it.
fn configure_host(kubeconfig: &str) -> Place {
    let credentials = "/etc/pve-autoscaler/kubeconfig";
    std::fs::write(credentials, kubeconfig).expect("written");
    let group = nix::unistd::Group::from_name(USER)
        .expect("readable")
        .expect("made above");
    nix::unistd::chown(credentials, None, Some(group.gid)).expect("its group is set");
    let web = "127.0.0.1:9808";
    let config = "/etc/pve-autoscaler.toml";
    std::fs::write(
        config,
        configuration(credentials, "channel = \"local\"", web),
    )
    .expect("written");
    Place {
        config: config.to_owned(),
        state: "/var/lib/pve-autoscaler".to_owned(),
        control: "/run/pve-autoscaler/control.sock".to_owned(),
        web: web.to_owned(),
    }
}

/// For anybody, in a directory.
fn configure_directory(directory: &Path, kubeconfig: &str, pve: &str, fingerprint: &str) -> Place {
    let path = |name: &str| directory.join(name).display().to_string();
    std::fs::write(path("kubeconfig"), kubeconfig).expect("written");
    std::fs::write(path("secret"), TOKEN.1).expect("written");
    let channel = format!(
        "channel = \"token\"\nendpoints = [\"{pve}\"]\ntoken_id = \"{}\"\n\
         token_secret_file = \"{}\"\nfingerprint = \"{fingerprint}\"",
        TOKEN.0,
        path("secret")
    );
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let web = free.local_addr().expect("an address").to_string();
    let text = configuration(&path("kubeconfig"), &channel, &web);
    std::fs::write(path("config.toml"), text).expect("written");
    Place {
        config: path("config.toml"),
        state: path("state"),
        control: path("control.sock"),
        web,
    }
}

/// Starts the services and waits until the daemon can work.
pub(crate) async fn start(directory: &Path, place: &Place, channel: Channel) -> Vec<Service> {
    let broker = channel == Channel::Broker;
    let mut running = Vec::new();
    if broker {
        let arguments = ["--config", &place.config];
        let unit = "pve-autoscaler-broker";
        let mut service = Service::start(directory, unit, &arguments, Some("root"));
        let socket = Path::new("/run/pve-autoscaler/pve.sock");
        service
            .until("the broker listens", READY, async || {
                socket
                    .exists()
                    .then_some(())
                    .ok_or_else(|| "no socket".to_owned())
            })
            .await;
        running.push(service);
    } else {
        // Each setting begins without what one before it remembered.
        let _ = std::fs::remove_dir_all(&place.state);
        std::fs::create_dir(&place.state).expect("made");
    }
    let arguments = [
        "--config",
        &place.config,
        "--state-directory",
        &place.state,
        "--control-socket",
        &place.control,
    ];
    let user = broker.then_some(USER);
    let mut service = Service::start(directory, "pve-autoscaler", &arguments, user);
    service
        .until("the daemon is ready", READY, async || {
            let answer = get(&place.web, "/readyz")
                .await
                .map_err(|error| error.to_string())?;
            if answer.contains(" 200 ") {
                Ok(())
            } else {
                Err(answer)
            }
        })
        .await;
    running.insert(0, service);
    running
}

/// A GET over plain HTTP; gives the whole answer.
async fn get(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
