//! Hosts with the daemon on them beside a simulated PVE and Kubernetes, and a person who types the commands of `docs/tasks.md` there.
//!
//! Everything runs in real time: the daemon and the commands are the real program, PVE and Kubernetes are on sockets of this process, and the
//! guests join and run pods. What stands for a command that needs more than that:
//!
//! | on the page | here |
//! |---|---|
//! | a path on a host | the same path below a folder of the host's own |
//! | `pve-autoscaler …` | the program, told where that host's file, state and control socket lie |
//! | `systemctl restart pve-autoscaler` | the daemon ends with SIGTERM, and begins; it is over when the daemon listens, as with `Type=notify` |
//! | `systemctl stop`, `systemctl disable --now` | the daemon ends with SIGTERM |
//! | `systemctl reload pve-autoscaler` | the unit's `ExecReload`: `pve-autoscaler check`, then SIGHUP; and until the daemon has read the file |
//! | the unit `pve-autoscaler-broker` | nothing: the file's channel is an API token, which needs no broker |
//! | `apt install ./pve-autoscaler_*_amd64.deb` | the file as shipped, where there is none, and the daemon begins |
//! | `apt purge pve-autoscaler` | the package's scripts: it names the machines that stay, the daemon ends if it runs, its files go |
//! | `tar -C / …` | `tar` with the host's folder for `/`; both hosts see the folder with the archive, so nobody copies it |
//! | `kubectl …` | the calls that kubectl makes, as an administrator |
//!
//! Any other command fails the test.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pve_autoscaler::clock::Clock;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::{GuestSpec, KubeGuests, Range, StandingNode, stand};
use pve_autoscaler::sim::kube::{Kube, KubeSpec};
use pve_autoscaler::sim::listen::{Listener, Tls};
use pve_autoscaler::sim::pve::{AdminAct, Pve, PveSpec, VmFacts};
use pve_autoscaler::sim::workload::{Act, Workload, WorkloadStep};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::live::own_name;
use super::service::{daemon_command, replace};
use super::simulators::Process;
use super::{program, text};

/// How often something is looked for that comes with time, and the pause in between.
const TRIES: u32 = 1_500;
const PAUSE: Duration = Duration::from_millis(100);
/// The pause between two times that a command is typed, which costs more than a look.
const AGAIN: Duration = Duration::from_secs(1);
/// The secret of `scaler@pve!sim` in the simulator's default world.
const SECRET: &str = "00000000-0000-4000-8000-000000000001";
/// The file that the package brings.
const SHIPPED: &str = include_str!("../../packaging/pve-autoscaler.toml");
/// What the package runs when it is purged.
const POSTRM: &str = include_str!("../../packaging/debian/pve-autoscaler.postrm");
/// The page of the daemon is of no matter here, and a fixed port may be taken.
const ANY_PORT: &str = "[web]\nlisten = \"127.0.0.1:0\"\n";
/// The host that every test begins with, and the second one of those that have it.
pub(crate) const FIRST: usize = 0;
pub(crate) const SECOND: usize = 1;

/// A host of the PVE cluster on which the daemon is or comes to be.
struct DaemonHost {
    /// What stands for its `/`.
    root: PathBuf,
    log: PathBuf,
    daemon: Option<Process>,
}

impl DaemonHost {
    fn config(&self) -> PathBuf {
        self.root.join("etc/pve-autoscaler.toml")
    }

    fn state(&self) -> PathBuf {
        self.root.join("var/lib/pve-autoscaler")
    }

    fn socket(&self) -> PathBuf {
        self.root.join("run/pve-autoscaler/control.sock")
    }

    fn read_log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        let daemon = self.daemon.as_ref().expect("the daemon runs");
        let id = i32::try_from(daemon.0.id()).expect("an id");
        kill(Pid::from_raw(id), signal).expect("it runs");
    }

    /// Until the daemon listens.
    fn start_daemon(&mut self) {
        assert!(self.daemon.is_none(), "one runs");
        let log = File::options().create(true).append(true).open(&self.log);
        let mut command = daemon_command(
            &self.config(),
            &self.state(),
            &self.socket(),
            log.expect("made"),
        );
        let mut process = Process(command.spawn().expect("it starts"));
        let mut tries = 0;
        while UnixStream::connect(self.socket()).is_err() {
            let ended = process.0.try_wait().expect("it can be asked");
            assert!(ended.is_none() && tries < TRIES, "{}", self.read_log());
            tries += 1;
            std::thread::sleep(PAUSE);
        }
        self.daemon = Some(process);
    }

    /// The daemon ends well.
    fn stop_daemon(&mut self) {
        self.signal(Signal::SIGTERM);
        let mut daemon = self.daemon.take().expect("the daemon runs");
        let ended = daemon.0.wait().expect("it ends");
        assert_eq!(ended.code(), Some(0), "{}", self.read_log());
    }
}

/// The hosts, and what is around them.
pub(crate) struct Site {
    // First, so that no daemon outlives what it talks to.
    hosts: Vec<DaemonHost>,
    pub(crate) kube: Kube,
    pub(crate) pve: Pve,
    runtime: tokio::runtime::Runtime,
    addresses: Addresses,
    /// Where the person's own files lie.
    folder: tempfile::TempDir,
}

/// Where both APIs are.
struct Addresses {
    kube: String,
    pve: String,
    /// Of PVE's certificate.
    fingerprint: String,
}

/// Both APIs on sockets; Kubernetes asks for client certificates.
async fn serve(kube: &Kube, pve: &Pve, bound: TcpListener) -> Addresses {
    let made = kube.server_certificate(&["localhost", "127.0.0.1"]);
    let (certificate, key) = made.expect("a certificate");
    let tls = Tls::from_pem(&certificate, &key).expect("a certificate");
    let tls = tls.asking_clients(&kube.authority()).expect("an authority");
    let at_kube = Listener::on(bound, Some(tls)).expect("a socket");
    let tls = Tls::self_signed(&["127.0.0.1"]).expect("a certificate");
    let fingerprint = tls.fingerprint();
    let at_pve = Listener::bind("127.0.0.1:0", Some(tls)).await;
    let at_pve = at_pve.expect("a port");
    let addresses = Addresses {
        kube: at_kube.url().expect("an address"),
        pve: at_pve.url().expect("an address"),
        fingerprint,
    };
    tokio::spawn(at_kube.serve(kube.public_router()));
    tokio::spawn(at_pve.serve(pve.router()));
    addresses
}

/// Guests that lose no time.
fn quick_guests() -> GuestSpec {
    let takes = |seconds: i64| Range {
        min: Span::seconds(seconds),
        max: Span::seconds(seconds),
    };
    GuestSpec {
        boot: takes(1),
        cloud_init: takes(0),
        preflight: takes(0),
        ready: takes(1),
        pod_start: takes(0),
        pod_stop: takes(0),
        shutdown: takes(0),
        ..GuestSpec::default()
    }
}

/// The file of the first host, with timers of seconds.
fn config(root: &Path, addresses: &Addresses) -> String {
    format!(
        "version = 1
[kubernetes]
kubeconfig = \"{root}/etc/pve-autoscaler/kubeconfig\"
name = \"home\"
[proxmox]
channel = \"token\"
endpoints = [\"{}\"]
token_id = \"scaler@pve!sim\"
token_secret_file = \"{root}/etc/pve-autoscaler/secret\"
fingerprint = \"{}\"
vmids = \"9100-9120\"
poll = \"5s\"
[template.debian]
vm_name = \"debian-13-k8s\"
[instance_type.small]
cores = 2
memory = \"4GiB\"
disk = \"20GiB\"
[pool.general]
template = \"debian\"
instance_types = [\"small\"]
min = 0
max = 4
[scale_up]
batch_idle = \"1s\"
[scale_down]
unneeded_time = \"2s\"
delay_after_add = \"1s\"
delay_after_failure = \"1s\"
min_node_age = \"0s\"
{ANY_PORT}",
        addresses.pve,
        addresses.fingerprint,
        root = root.display(),
    )
}

impl Site {
    /// With one host, on which the daemon is set up and runs.
    pub(crate) fn begin() -> Site {
        let mut site = Site::without_package();
        site.set_up();
        site.hosts[FIRST].start_daemon();
        site
    }

    /// With one host, on which nothing is installed.
    pub(crate) fn without_package() -> Site {
        // Machines are told where to join before anybody listens there.
        let bound = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = bound.local_addr().expect("it is bound");
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let inside = runtime.enter();
        let spec = KubeSpec {
            endpoint: format!("https://{address}"),
            ..KubeSpec::default()
        };
        let kube = Kube::new(spec, Clock::System, 1);
        let guests = KubeGuests::new(kube.public_router(), quick_guests(), Clock::System, 1);
        let pve = Pve::new(PveSpec::default(), Arc::new(guests), Clock::System, 1);
        let addresses = runtime.block_on(serve(&kube, &pve, bound));
        drop(inside);
        let mut site = Site {
            hosts: Vec::new(),
            kube,
            pve,
            runtime,
            addresses,
            folder: tempfile::tempdir().expect("a folder"),
        };
        let authority = site.kube.authority();
        let admin = site
            .kube
            .admin_kubeconfig(&site.addresses.kube, Some(&authority));
        fs::write(site.path("admin.conf"), admin).expect("written");
        assert_eq!(site.add_host("first"), FIRST);
        site
    }

    /// A host on which nothing is installed.
    pub(crate) fn add_host(&mut self, name: &str) -> usize {
        let host = DaemonHost {
            root: self.path(name),
            log: self.path(&format!("{name}.log")),
            daemon: None,
        };
        fs::create_dir(&host.root).expect("made");
        self.hosts.push(host);
        self.hosts.len() - 1
    }

    /// A file of the person's own.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What `setup` leaves on the first host: the file, the secret, and a kubeconfig with the rights of the manifest.
    fn set_up(&self) {
        let host = &self.hosts[FIRST];
        fs::create_dir_all(host.root.join("etc/pve-autoscaler")).expect("made");
        self.write_secret();
        self.ask_program(FIRST, &["kubeconfig", "--kubeconfig", "admin.conf"]);
        fs::write(host.config(), config(&host.root, &self.addresses)).expect("written");
    }

    /// The secret of the token by which the first host's daemon reaches PVE.
    fn write_secret(&self) {
        let secret = self.hosts[FIRST].root.join("etc/pve-autoscaler/secret");
        fs::write(&secret, SECRET).expect("written");
        let own = fs::Permissions::from_mode(0o600);
        fs::set_permissions(&secret, own).expect("it is ours");
    }

    /// A person makes a file fit this site: how PVE and Kubernetes are reached, another range in the place of `vmids`, timers of seconds,
    /// and these further changes. The file has `[proxmox]`.
    pub(crate) fn fit_file(&self, name: &str, vmids: &str, changes: &[(&str, &str)]) {
        self.write_secret();
        let file = self.path(name);
        let root = self.hosts[FIRST].root.display();
        let Addresses {
            pve, fingerprint, ..
        } = &self.addresses;
        let reached = format!(
            "[proxmox]\nchannel = \"token\"\nendpoints = [\"{pve}\"]\ntoken_id = \"scaler@pve!sim\"\n\
             token_secret_file = \"{root}/etc/pve-autoscaler/secret\"\nfingerprint = \"{fingerprint}\"\npoll = \"5s\"\n"
        );
        replace(&file, "[proxmox]\n", &reached);
        replace(&file, vmids, "\"9100-9120\"");
        for (table, key) in [
            ("[scale_up]\n", "batch_idle = \"1s\"\n"),
            ("[scale_down]\n", "min_node_age = \"0s\"\n"),
        ] {
            let text = fs::read_to_string(&file).expect("it is there");
            if !text.contains(table) {
                fs::write(&file, format!("{text}\n{table}")).expect("written");
            }
            replace(&file, table, &format!("{table}{key}"));
        }
        for (from, to) in changes {
            replace(&file, from, to);
        }
        let text = fs::read_to_string(&file).expect("it is there");
        let kubeconfig =
            format!("[kubernetes]\nkubeconfig = \"{root}/etc/pve-autoscaler/kubeconfig\"\n");
        fs::write(&file, format!("{text}\n{kubeconfig}{ANY_PORT}")).expect("written");
    }

    /// A file of the person's own becomes the first host's configuration.
    pub(crate) fn install_file(&self, name: &str) {
        fs::copy(self.path(name), self.hosts[FIRST].config()).expect("copied");
    }

    /// The host is as new: nothing is installed, and the daemon had no time to end.
    pub(crate) fn reinstall_host(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        drop(host.daemon.take());
        fs::remove_dir_all(&host.root).expect("removed");
        fs::create_dir(&host.root).expect("made");
    }

    /// Somebody starts the daemon, whatever the page says.
    pub(crate) fn start_daemon(&mut self, at: usize) {
        self.hosts[at].start_daemon();
    }

    /// A person edits the file.
    pub(crate) fn edit_file(&self, at: usize, from: &str, to: &str) {
        replace(&self.hosts[at].config(), from, to);
    }

    /// What PVE keeps of the machines in its files, on a host: the description in comments, as PVE writes it.
    pub(crate) fn write_pve_files(&self, at: usize) {
        for vm in self.machines().values() {
            let folder = self.hosts[at].root.join("etc/pve/nodes").join(&vm.host);
            let folder = folder.join("qemu-server");
            fs::create_dir_all(&folder).expect("made");
            let lines = vm.description.lines().map(|line| {
                let escaped = line.replace('%', "%25").replace(':', "%3A");
                format!("#{escaped}\n")
            });
            let file = lines.collect::<String>() + "cores: 2\n";
            fs::write(folder.join(format!("{}.conf", vm.vmid)), file).expect("written");
        }
    }

    /// An instance of this name takes the Lease.
    pub(crate) fn give_lease(&self, holder: &str) {
        let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/pve-autoscaler";
        let held = json!({"spec": {"holderIdentity": holder}});
        let media = "application/merge-patch+json";
        assert_eq!(self.call_kubernetes("PATCH", path, media, &held), 200);
    }

    /// A node that this program did not make, with a kubelet that runs until the handle is aborted.
    pub(crate) fn stand_node(&self, node: &StandingNode, number: u32) -> JoinHandle<()> {
        let _inside = self.runtime.enter();
        stand(&self.kube, node, number, Clock::System)
    }

    /// All files of a host.
    pub(crate) fn list_files(&self, at: usize) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.hosts[at].root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("readable").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    found.push(path);
                }
            }
        }
        found
    }

    /// What the record of a host's daemon tells.
    pub(crate) fn read_history(&self, at: usize) -> String {
        let mut command = program();
        command.args(["history", "--record"]);
        let output = command.arg(self.hosts[at].state().join("record")).output();
        text(&output.expect("it runs").stdout)
    }

    /// Types a line of the page with names in the place of capitals, and gives back what is said.
    pub(crate) fn type_line(&mut self, at: usize, line: &str, names: &[(&str, &str)]) -> String {
        let typed = fill(line, names);
        let commands = typed.split(" && ");
        commands
            .map(|command| self.run_command(at, command))
            .collect()
    }

    /// Types a command of ours that must end with an error, and gives back what is said.
    pub(crate) fn type_in_vain(&self, at: usize, line: &str) -> String {
        let arguments: Vec<&str> = line.split_whitespace().skip(1).collect();
        assert!(line.starts_with("pve-autoscaler "), "not ours: {line}");
        let output = self.prepare_program(at, &arguments).output();
        let output = output.expect("it runs");
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(!output.status.success(), "{line}: {said}");
        said
    }

    /// Types it again and again, until what is said is as it should be.
    pub(crate) fn type_until(
        &mut self,
        at: usize,
        (line, names): (&str, &[(&str, &str)]),
        holds: impl Fn(&str) -> bool,
    ) -> String {
        let mut said = String::new();
        for _ in 0..TRIES / 10 {
            said = self.type_line(at, line, names);
            if holds(&said) {
                return said;
            }
            std::thread::sleep(AGAIN);
        }
        panic!(
            "{line}: it never said it: {said}\n{}",
            self.hosts[at].read_log()
        );
    }

    /// Types a line that shows something again and again, and looks on until it has these words.
    pub(crate) fn watch_line(&self, at: usize, line: &str, words: &str) {
        let arguments = line
            .strip_prefix("pve-autoscaler ")
            .expect("a command of ours");
        assert!(arguments.ends_with(" --watch"), "{line}");
        let child = program()
            .args(arguments.split_whitespace())
            .arg("--socket")
            .arg(self.hosts[at].socket())
            .stdout(Stdio::piped())
            .spawn();
        let mut watch = Process(child.expect("it starts"));
        let output = watch.0.stdout.take().expect("it is piped");
        let lines = BufReader::new(output).lines();
        let mut seen = Vec::new();
        // A picture every two seconds, of some twenty lines.
        for line in lines.take(1_500).map(|line| line.expect("text")) {
            if line.contains(words) {
                return;
            }
            seen.push(line);
        }
        panic!("{words:?} is not in {seen:#?}");
    }

    fn run_command(&mut self, at: usize, command: &str) -> String {
        let words = split_words(command);
        match words.as_slice() {
            ["pve-autoscaler", arguments @ ..] => self.ask_program(at, arguments),
            ["systemctl", "reload", "pve-autoscaler"] => self.reload_daemon(at),
            [
                "systemctl",
                "restart",
                "pve-autoscaler-broker",
                "pve-autoscaler",
            ] => {
                let host = &mut self.hosts[at];
                if host.daemon.is_some() {
                    host.stop_daemon();
                }
                host.start_daemon();
                String::new()
            }
            ["systemctl", "stop", "pve-autoscaler"]
            | ["systemctl", "disable", "--now", "pve-autoscaler"] => {
                self.hosts[at].stop_daemon();
                String::new()
            }
            ["apt", "install", "./pve-autoscaler_*_amd64.deb"] => self.install_package(at),
            ["apt", "purge", "pve-autoscaler"] => self.purge_package(at),
            ["tar", "-C", "/", arguments @ ..] => self.run_tar(at, arguments),
            ["kubectl", arguments @ ..] => self.run_kubectl(arguments),
            _ => panic!("nothing here stands for this command of the page: {command}"),
        }
    }

    /// The program with these arguments, told where the host's file, state and control socket lie.
    fn prepare_program(&self, at: usize, arguments: &[&str]) -> Command {
        let host = &self.hosts[at];
        let mut command = program();
        // The person's own files lie where the person types.
        command.args(arguments).current_dir(self.folder.path());
        match arguments {
            ["check"] => {
                command.arg("--config").arg(host.config());
            }
            ["check", _] | ["migrate", ..] | ["kubeconfig", "--print-manifest", ..] => {}
            ["kubeconfig", "--kubeconfig", _] => {
                // The administrator's leads to this machine alone, which the command would not take.
                command.args(["--server", &self.addresses.kube, "--output"]);
                command.arg(host.root.join("etc/pve-autoscaler/kubeconfig"));
            }
            ["doctor"] => {
                command.arg("--config").arg(host.config());
                command.arg("--state-directory").arg(host.state());
                command.arg("--socket").arg(host.socket());
                command.args(["--user", &own_name()]);
            }
            ["history", ..] => {
                command.arg("--record").arg(host.state().join("record"));
            }
            [
                "status" | "plan" | "explain" | "evacuate" | "pause" | "resume" | "retry",
                ..,
            ] => {
                command.arg("--socket").arg(host.socket());
            }
            _ => panic!("nothing here stands for this command of the page: {arguments:?}"),
        }
        command
    }

    fn ask_program(&self, at: usize, arguments: &[&str]) -> String {
        let (arguments, into) = match arguments {
            [arguments @ .., last] if last.starts_with('>') => (arguments, last.strip_prefix('>')),
            _ => (arguments, None),
        };
        assert!(!arguments.contains(&"--watch"), "it never ends");
        let output = self.prepare_program(at, arguments).output();
        let output = output.expect("it runs");
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        if let Some(into) = into {
            fs::write(self.path(into), output.stdout).expect("written");
        }
        said
    }

    fn reload_daemon(&self, at: usize) -> String {
        const READ: &str = "the configuration was read";
        let host = &self.hosts[at];
        let said = self.ask_program(at, &["check"]);
        let times = || host.read_log().matches(READ).count();
        let before = times();
        host.signal(Signal::SIGHUP);
        self.until("the file is read", |_| times() > before);
        said
    }

    fn install_package(&mut self, at: usize) -> String {
        let host = &mut self.hosts[at];
        fs::create_dir_all(host.root.join("etc/pve-autoscaler")).expect("made");
        if !host.config().exists() {
            fs::write(host.config(), format!("{SHIPPED}{ANY_PORT}")).expect("written");
        }
        host.start_daemon();
        String::new()
    }

    fn purge_package(&mut self, at: usize) -> String {
        let host = &mut self.hosts[at];
        // As the script does that runs before the removal.
        let staying = program()
            .arg("--config")
            .arg(host.config())
            .arg("staying")
            .arg("--socket")
            .arg(host.socket())
            .arg("--pve-directory")
            .arg(host.root.join("etc/pve"))
            .output()
            .expect("it runs");
        if host.daemon.is_some() {
            host.stop_daemon();
        }
        // A configuration file is dpkg's own matter; all else is named by the script that runs after the removal.
        let named = POSTRM
            .split_whitespace()
            .filter(|word| word.starts_with('/'));
        for path in named.chain(["/etc/pve-autoscaler.toml"]) {
            let path = host.root.join(path.trim_start_matches('/'));
            if path.is_dir() {
                fs::remove_dir_all(path).expect("removed");
            } else if path.exists() {
                fs::remove_file(path).expect("removed");
            }
        }
        text(&staying.stdout)
    }

    fn run_tar(&self, at: usize, arguments: &[&str]) -> String {
        let root = &self.hosts[at].root;
        let ended = Command::new("tar")
            .arg("-C")
            .arg(root)
            .args(arguments)
            .current_dir(self.folder.path())
            .status();
        assert!(ended.expect("tar runs").success(), "tar {arguments:?}");
        if arguments[0].starts_with("-x") {
            // The file names paths from `/` on, which is another folder on each host.
            let config = self.hosts[at].config();
            let file = fs::read_to_string(&config).expect("it was unpacked");
            let shown = |host: &DaemonHost| format!("\"{}/", host.root.display());
            let here = shown(&self.hosts[at]);
            let roots = self.hosts.iter().map(shown);
            let file = roots.fold(file, |file, other| file.replace(&other, &here));
            fs::write(config, file).expect("written");
        }
        String::new()
    }

    fn run_kubectl(&self, arguments: &[&str]) -> String {
        match arguments {
            ["get", "nodes", "-l", label] => self.list_nodes(label).join("\n"),
            ["get", "nodes", "-o", columns] if columns.starts_with("custom-columns=") => {
                let nodes = self.kube.objects("v1", "Node");
                let lines = nodes
                    .iter()
                    .map(|node| format!("{} {}\n", name(node), node["spec"]["taints"]));
                lines.collect()
            }
            ["taint", "node", node, key] => {
                let key = key.strip_suffix('-').expect("it takes the taint away");
                self.remove_taint(node, key);
                String::new()
            }
            ["delete", "node", node] => {
                self.delete_object("v1", "Node", None, node);
                String::new()
            }
            [
                "drain",
                "--ignore-daemonsets",
                "--delete-emptydir-data",
                node,
            ] => {
                self.drain_node(node);
                String::new()
            }
            ["delete", "-f", file] => {
                let manifest = fs::read_to_string(self.path(file)).expect("it was written");
                let objects = serde_saphyr::from_multiple::<Value>(&manifest).expect("YAML");
                for object in objects.iter().filter(|object| object.is_object()) {
                    let part = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
                    let (version, kind) = (part("/apiVersion"), part("/kind"));
                    let version = version.expect("a version");
                    let space = part("/metadata/namespace");
                    let name = part("/metadata/name").expect("a name");
                    self.delete_object(version, kind.expect("a kind"), space, name);
                }
                String::new()
            }
            ["delete", "-n", namespace, objects @ ..] => {
                for object in objects {
                    let (version, kind, name) = match object.split_once('/') {
                        Some(("lease", name)) => ("coordination.k8s.io/v1", "Lease", name),
                        Some(("configmap", name)) => ("v1", "ConfigMap", name),
                        _ => panic!("nothing here stands for this object: {object}"),
                    };
                    self.delete_object(version, kind, Some(namespace), name);
                }
                String::new()
            }
            _ => panic!("nothing here stands for this command of the page: kubectl {arguments:?}"),
        }
    }

    /// Names of the nodes with `KEY=VALUE` among their labels.
    fn list_nodes(&self, label: &str) -> Vec<String> {
        let (key, value) = label.split_once('=').expect("a label");
        let nodes = self.kube.objects("v1", "Node");
        let nodes = nodes
            .iter()
            .filter(|node| node["metadata"]["labels"][key] == value);
        nodes.map(|node| name(node)).collect()
    }

    fn remove_taint(&self, node: &str, key: &str) {
        let nodes = self.kube.objects("v1", "Node");
        let found = nodes.iter().find(|one| name(one) == node);
        let taints = found.expect("the node is there")["spec"]["taints"].as_array();
        let mut taints = taints.cloned().unwrap_or_default();
        let before = taints.len();
        taints.retain(|taint| taint["key"] != key);
        assert_ne!(taints.len(), before, "{node} has no taint {key}");
        let body = json!({"spec": {"taints": taints}});
        let path = format!("/api/v1/nodes/{node}");
        let media = "application/merge-patch+json";
        assert_eq!(self.call_kubernetes("PATCH", &path, media, &body), 200);
    }

    /// Cordons it, and evicts each pod, again and again while a budget forbids that.
    fn drain_node(&self, node: &str) {
        let cordon = json!({"spec": {"unschedulable": true}});
        let path = format!("/api/v1/nodes/{node}");
        let media = "application/merge-patch+json";
        assert_eq!(self.call_kubernetes("PATCH", &path, media, &cordon), 200);
        self.until("the node is drained", |site| {
            let mut pods = site.pods();
            pods.retain(|pod| pod["spec"]["nodeName"] == node);
            for pod in &pods {
                let name = name(pod);
                let path = format!("/api/v1/namespaces/default/pods/{name}/eviction");
                let eviction = json!({
                    "apiVersion": "policy/v1", "kind": "Eviction",
                    "metadata": {"name": name, "namespace": "default"},
                });
                site.call_kubernetes("POST", &path, "application/json", &eviction);
            }
            pods.is_empty()
        });
    }

    fn delete_object(&self, version: &str, kind: &str, namespace: Option<&str>, name: &str) {
        let base = match version {
            "v1" => "/api/v1".to_owned(),
            group => format!("/apis/{group}"),
        };
        let space = namespace.map_or_else(String::new, |space| format!("/namespaces/{space}"));
        let kind = kind.to_lowercase();
        let plural = match kind.strip_suffix('y') {
            Some(stem) => format!("{stem}ies"),
            None => format!("{kind}s"),
        };
        let path = format!("{base}{space}/{plural}/{name}");
        // One that is not there ends kubectl with an error.
        let code = self.call_kubernetes("DELETE", &path, "application/json", &json!({}));
        assert_eq!(code, 200, "DELETE {path}");
    }

    /// Calls it as an administrator; gives the status of the answer.
    fn call_kubernetes(&self, method: &str, path: &str, media: &str, body: &Value) -> u16 {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", media)
            .body(axum::body::Body::from(body.to_string()))
            .expect("a request");
        let answer = tower::ServiceExt::oneshot(self.kube.router(), request);
        let answer = self.runtime.block_on(answer).expect("an answer");
        answer.status().as_u16()
    }

    /// Something happens in Kubernetes.
    pub(crate) fn play(&self, act: Act) {
        let steps = vec![WorkloadStep {
            at: Span::ZERO,
            act,
        }];
        let played = Workload { steps }.play(self.kube.router());
        self.runtime.block_on(played).expect("it is played");
    }

    /// Somebody does something to PVE.
    pub(crate) fn act(&self, act: &AdminAct) {
        let _inside = self.runtime.enter();
        self.pve.administer(act).expect("it is possible");
    }

    /// The VMs of machines, by name.
    pub(crate) fn machines(&self) -> BTreeMap<String, VmFacts> {
        let vms = self.pve.vms().into_iter();
        vms.filter(|vm| (9100..=9120).contains(&vm.vmid))
            .map(|vm| (vm.name.clone(), vm))
            .collect()
    }

    /// How many machines were ever cloned from a template of this VMID.
    pub(crate) fn count_clones_of(&self, template: u32) -> usize {
        let call = format!("/qemu/{template}/clone");
        let requests = self.pve.requests();
        let cloned = requests
            .iter()
            .filter(|seen| seen.path.ends_with(&call) && seen.status == Some(200));
        cloned.count()
    }

    /// Pods that belong to somebody.
    fn pods(&self) -> Vec<Arc<Value>> {
        let mut pods = self.kube.objects("v1", "Pod");
        pods.retain(|pod| pod["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet");
        pods
    }

    /// The nodes on which pods run, one for each pod; `None` while one of them does not run, or goes.
    pub(crate) fn nodes_of_pods(&self) -> Option<Vec<String>> {
        let pods = self.pods();
        let runs = |pod: &Arc<Value>| {
            let stays = pod["metadata"]["deletionTimestamp"].is_null();
            let node = pod["spec"]["nodeName"].as_str();
            node.filter(|_| stays && pod["status"]["phase"] == "Running")
                .map(str::to_owned)
        };
        pods.iter().map(runs).collect()
    }

    /// As many pods as there are to be run.
    pub(crate) fn runs(&self, pods: usize) -> bool {
        let nodes = self.nodes_of_pods();
        nodes.is_some_and(|nodes| nodes.len() == pods)
    }

    /// How many nodes take pods.
    pub(crate) fn count_working_nodes(&self) -> usize {
        let nodes = self.kube.objects("v1", "Node");
        let works = |node: &&Arc<Value>| {
            let conditions = node["status"]["conditions"].as_array();
            let ready = conditions.is_some_and(|all| {
                all.iter()
                    .any(|one| one["type"] == "Ready" && one["status"] == "True")
            });
            let taints = node["spec"]["taints"].as_array();
            let open = taints.is_none_or(|all| {
                all.iter()
                    .all(|taint| taint["effect"] == "PreferNoSchedule")
            });
            ready && open && node["spec"]["unschedulable"] != true
        };
        nodes.iter().filter(works).count()
    }

    /// Until something holds; else it panics with how things stand.
    pub(crate) fn until(&self, what: &str, mut holds: impl FnMut(&Site) -> bool) {
        for _ in 0..TRIES {
            if holds(self) {
                return;
            }
            std::thread::sleep(PAUSE);
        }
        let machines = self.machines();
        let pods: Vec<String> = self
            .pods()
            .iter()
            .map(|pod| pod["status"].to_string())
            .collect();
        let logs: Vec<String> = self.hosts.iter().map(DaemonHost::read_log).collect();
        panic!(
            "{what}: never: {:?} {pods:#?}\n{}",
            machines.keys(),
            logs.join("\n\n")
        );
    }
}

/// The words of a command; double quotes around one hold blanks together.
fn split_words(command: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for (at, part) in command.split('"').enumerate() {
        if at % 2 == 1 {
            words.push(part);
        } else {
            words.extend(part.split_whitespace());
        }
    }
    words
}

fn name(object: &Value) -> String {
    let name = object["metadata"]["name"].as_str();
    name.unwrap_or_default().to_owned()
}

/// A line of the page with names in the place of capitals, all of them.
fn fill(line: &str, names: &[(&str, &str)]) -> String {
    let mut typed = line.to_owned();
    for (capitals, name) in names {
        assert!(typed.contains(capitals), "{capitals} is not in {line}");
        typed = typed.replace(capitals, name);
    }
    let mut words = typed.split(|c: char| !c.is_ascii_uppercase());
    let left = words.find(|word| word.len() > 2);
    assert_eq!(left, None, "what stands for it in {line}?");
    typed
}
