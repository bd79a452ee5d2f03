//! The simulators as processes of their own, and what the program is told about them.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pve_autoscaler::sim::pve::PveSpec;

/// The secret of `scaler@pve!sim` in the simulator's default world.
const SECRET: &str = "00000000-0000-4000-8000-000000000001";

/// A process that ends with the test.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Both simulators, and a folder with the files that lead to them.
pub(crate) struct Simulators {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) pve: String,
    pub(crate) fingerprint: String,
    pub(crate) kube: String,
    processes: [Process; 2],
}

/// Starts a simulator and reads what it says once it listens: so many lines, the word before each cut off.
fn start(arguments: &[&str], lines: usize) -> (Process, Vec<String>) {
    let child = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"))
        .arg("sim")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    let mut process = Process(child.expect("it starts"));
    let output = process.0.stdout.take().expect("it is piped");
    let said = BufReader::new(output).lines().take(lines);
    let said: Vec<String> = said
        .map(|line| {
            let line = line.expect("text");
            line.rsplit(' ').next().unwrap_or_default().to_owned()
        })
        .collect();
    assert_eq!(said.len(), lines, "sim {arguments:?} ended early");
    (process, said)
}

impl Simulators {
    /// A PVE cluster like this, and an empty Kubernetes cluster.
    pub(crate) fn start(spec: &PveSpec) -> Simulators {
        Simulators::in_folder(tempfile::tempdir().expect("a folder"), spec, &[])
    }

    /// A PVE cluster like this in a folder that has the program `guest`, which runs the guests, and the directory `guests` for them.
    pub(crate) fn with_guests(folder: tempfile::TempDir, spec: &PveSpec) -> Simulators {
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (program, directory) = (path("guest"), path("guests"));
        let more = ["--guest-program", &program, "--guest-dir", &directory];
        Simulators::in_folder(folder, spec, &more)
    }

    fn in_folder(folder: tempfile::TempDir, spec: &PveSpec, more: &[&str]) -> Simulators {
        let at = |name: &str| folder.path().join(name);
        let world = serde_json::to_string(spec).expect("a world is JSON");
        std::fs::write(at("world"), world).expect("written");
        std::fs::write(at("secret"), SECRET).expect("written");
        let own = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(at("secret"), own).expect("it is ours");
        let path = |name: &str| at(name).display().to_string();
        let listen = ["--listen", "127.0.0.1:0"];
        let world = path("world");
        let mut arguments = vec!["pve", listen[0], listen[1], "--spec", &world];
        arguments.extend_from_slice(more);
        let (pve, said) = start(&arguments, 2);
        let admin = path("admin.conf");
        let (kube, at_kube) = start(&["kube", listen[0], listen[1], "--kubeconfig", &admin], 1);
        Simulators {
            pve: said[0].clone(),
            fingerprint: said[1].clone(),
            kube: at_kube[0].clone(),
            processes: [pve, kube],
            folder,
        }
    }

    /// A process of this program that runs.
    pub(crate) fn process(&self) -> u32 {
        let [pve, _] = &self.processes;
        pve.0.id()
    }

    /// Where a file lies.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A configuration with this kubeconfig and template, and what is added.
    pub(crate) fn config(&self, kubeconfig: &Path, template: &str, vmids: &str) -> PathBuf {
        let text = format!(
            "version = 1
[kubernetes]
kubeconfig = \"{}\"
[proxmox]
channel = \"token\"
endpoints = [\"{}\"]
token_id = \"scaler@pve!sim\"
token_secret_file = \"{}\"
fingerprint = \"{}\"
vmids = \"{vmids}\"
[template.debian]
vm_name = \"{template}\"
[instance_type.small]
cores = 2
memory = \"4GiB\"
disk = \"20GiB\"
[pool.general]
template = \"debian\"
instance_types = [\"small\"]
max = 2
[web]
listen = \"127.0.0.1:0\"
",
            kubeconfig.display(),
            self.pve,
            self.path("secret").display(),
            self.fingerprint
        );
        let path = self.path("config.toml");
        std::fs::write(&path, text).expect("written");
        path
    }
}
