//! What the two services take while nothing happens: memory and processor time, with 100 nodes that
//! are machines of ours and 3,000 pods.
//!
//! The release program runs as processes, started as the units start them; the API servers are the
//! simulators, in this process, on real sockets with TLS. As root the daemon goes through the broker,
//! in the arena of the end-to-end test; otherwise it uses an API token, and the line of the broker is
//! missing.

mod common;

use std::path::Path;
use std::time::Duration;

use common::populated::{PODS_PER_NODE, Populated};
use common::process::{self, Memory};
use common::services::{self, Service, USER};
use common::{Report, Row, note};
use pve_autoscaler::sim::listen::{Listener, Tls};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const NODES: usize = 100;
/// How long is measured, unless `--seconds N` says otherwise.
const WINDOW: Duration = Duration::from_mins(2);
/// From ready to the beginning of the measurement.
const SETTLING: Duration = Duration::from_secs(45);
/// To be ready.
const READY: Duration = Duration::from_mins(1);
/// The targets.
const DAEMON_BYTES: u64 = 20 << 20;
const BROKER_BYTES: u64 = 8 << 20;
const CORE_PERCENT: f64 = 0.1;
/// Requests that pveproxy answers on a connection.
const REQUESTS_A_CONNECTION: u64 = 100;
/// The simulated host that the arena is, its address and root's password there.
const HOST: (&str, &str, &str) = ("pve1", "127.0.0.1:8006", "simulated");
/// A token of the simulated cluster.
const TOKEN: (&str, &str) = ("root@pam!sim", "00000000-0000-4000-8000-000000000002");

fn main() {
    let broker = services::inside();
    if !broker {
        match services::enter_arena() {
            Ok(never) => match never {},
            Err(why) => note(format!("no broker, the daemon uses an API token: {why}")),
        }
    }
    // Which of the two providers of the tree rustls shall use.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut report =
        Report::new("An idle service with 100 nodes and 3,000 pods (real time, real processes)");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for row in runtime.block_on(idle(broker)) {
        report.add(row);
    }
    report.finish();
}

async fn idle(broker: bool) -> Vec<Row> {
    let directory = tempfile::tempdir().expect("a directory");
    if broker {
        services::furnish(directory.path(), HOST.0, HOST.1, HOST.2);
    }
    let cluster = Populated::begin(NODES).await;
    note(format!("{NODES} nodes, {} pods", NODES * PODS_PER_NODE));
    let (place, _servers) = serve(directory.path(), &cluster, broker).await;
    let mut running = start(directory.path(), &place, broker).await;
    tokio::time::sleep(SETTLING).await;
    let window = window();
    let before: Vec<Usage> = running.iter().map(Usage::of).collect();
    let calls = cluster.pve.request_count();
    tokio::time::sleep(window).await;
    let rows = running
        .iter_mut()
        .zip(before)
        .map(|(service, before)| row(service, &before, window))
        .collect();
    note(format!(
        "{} calls to PVE in {} s",
        cluster.pve.request_count() - calls,
        window.as_secs()
    ));
    for service in &running {
        for line in service.said().lines().rev().take(3) {
            note(format!("{}: {line}", service.name()));
        }
    }
    rows
}

fn window() -> Duration {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--seconds");
    let given = arguments.nth(1).and_then(|seconds| seconds.parse().ok());
    given.map_or(WINDOW, Duration::from_secs)
}

/// What a process has used.
struct Usage {
    processor: Duration,
    memory: Memory,
}

impl Usage {
    fn of(service: &Service) -> Usage {
        let pid = service.pid();
        let found = process::processor_time(pid).zip(process::memory(pid));
        let (processor, memory) =
            found.unwrap_or_else(|| panic!("the process ended:\n{}", service.said()));
        Usage { processor, memory }
    }
}

fn row(service: &Service, before: &Usage, window: Duration) -> Row {
    let after = Usage::of(service);
    let used = after.processor.saturating_sub(before.processor);
    let (workload, most) = if service.name() == "pve-autoscaler" {
        ("idle", DAEMON_BYTES)
    } else {
        ("idle-broker", BROKER_BYTES)
    };
    Row::new(workload, NODES)
        .field("seconds", window.as_secs())
        .field("pods", NODES * PODS_PER_NODE)
        .field("rss_bytes", after.memory.resident)
        .field("rss_anon_bytes", after.memory.anonymous)
        .field("peak_bytes", after.memory.peak)
        .field("cpu_seconds", used.as_secs_f64())
        .field(
            "core_percent",
            100.0 * used.as_secs_f64() / window.as_secs_f64(),
        )
        .at_most("rss_bytes", most)
        .at_most("core_percent", CORE_PERCENT)
}

/// Where things lie for the daemon.
struct Place {
    config: String,
    state: String,
    control: String,
    /// Host and port of its web server.
    web: String,
}

/// Serves both APIs and writes the configuration. What is returned beside serves until dropped.
async fn serve(
    directory: &Path,
    cluster: &Populated,
    broker: bool,
) -> (Place, tokio::task::JoinSet<()>) {
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
vmids = \"9100-9299\"
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
max = 120
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
async fn start(directory: &Path, place: &Place, broker: bool) -> Vec<Service> {
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
        std::fs::create_dir(&place.state).expect("made");
    }
    let arguments = [
        "--config",
        &place.config,
        "run",
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
