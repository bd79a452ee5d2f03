//! The program against the simulators on the wire: `check --live`, `kubeconfig`, `run`.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use pve_autoscaler::sim::pve::PveSpec;
use serde_json::Value;

use super::simulators::{Process, Simulators};
use super::{program, text};

const TEMPLATE: &str = "debian-13-k8s";
/// How often something is looked for that comes with time, and the pause in between.
const TRIES: u32 = 600;
const PAUSE: Duration = Duration::from_millis(100);

/// What `check --live` says of a world, and how it ends.
fn check(spec: &PveSpec, template: &str, vmids: &str) -> (Option<i32>, String) {
    let simulators = Simulators::start(spec);
    let config = simulators.config(&simulators.path("admin.conf"), template, vmids);
    let output = program()
        .args(["check", "--live", "--config"])
        .arg(config)
        .output();
    let output = output.expect("it runs");
    let said = text(&output.stdout) + &text(&output.stderr);
    (output.status.code(), said)
}

#[test]
fn check_live_says_that_all_is_well() {
    let (code, said) = check(&PveSpec::default(), TEMPLATE, "9100-9120");
    assert_eq!(code, Some(0), "{said}");
    for words in [
        "ok: kubernetes: v1.34.1 at https://127.0.0.1:",
        "ok: kubernetes: all rights that the daemon needs are granted",
        "ok: region default: PVE 9.2.11 with 3 hosts",
        "ok: template debian: VM 9000 on host pve1",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert!(
        !said.contains("warning:") && !said.contains("WRONG:"),
        "{said}"
    );
}

#[test]
fn check_live_says_what_is_wrong_with_templates() {
    let (code, said) = check(&PveSpec::default(), "debian-14-k8s", "9100-9120");
    assert_eq!(code, Some(1), "{said}");
    let missing =
        "WRONG: template debian: there is no template of the name debian-14-k8s in region default";
    assert!(said.contains(missing), "{said}");

    let mut spec = PveSpec::default();
    let machine = spec.machines.iter_mut().find(|vm| vm.vmid == 9000);
    let config = &mut machine.expect("the template").config;
    assert_eq!(
        config.insert("agent".into(), "0".into()).as_deref(),
        Some("1")
    );
    let (code, said) = check(&spec, TEMPLATE, "9100-9120");
    assert_eq!(code, Some(1), "{said}");
    let mute =
        "WRONG: template debian: VM 9000 has no guest agent enabled; qm set 9000 --agent enabled=1";
    assert!(said.contains(mute), "{said}");
}

#[test]
fn check_live_warns_of_foreign_vms_and_of_clocks() {
    let mut spec = PveSpec::default();
    spec.hosts[1].clock_ahead = 90;
    let (code, said) = check(&spec, TEMPLATE, "100-140");
    assert_eq!(code, Some(0), "{said}");
    let foreign =
        "warning: region default: VMs in our range that are not ours, and are left alone: 100, 101";
    assert!(said.contains(foreign), "{said}");
    // Clocks are told to the second, and the hosts are asked one after the other.
    let apart = said.lines().find(|line| line.contains("the clocks of"));
    let apart = apart.unwrap_or_else(|| panic!("{said}"));
    assert!(apart.contains("and pve2 are 1m"), "{apart}");
    assert!(
        said.contains("the clock of pve2 and this host's differ by 1m"),
        "{said}"
    );
}

/// Asks the daemon, until it answers what is wanted.
fn asked(socket: &Path, command: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let mut last = String::new();
    for _ in 0..TRIES {
        let output = program()
            .args([command, "-o", "json", "--socket"])
            .arg(socket)
            .output()
            .expect("it runs");
        match serde_json::from_slice::<Value>(&output.stdout) {
            Ok(answer) if wanted(&answer) => return answer,
            _ => last = text(&output.stdout) + &text(&output.stderr),
        }
        std::thread::sleep(PAUSE);
    }
    panic!("{command} never said it: {last}");
}

fn kubeconfig(simulators: &Simulators) -> Output {
    program()
        .arg("kubeconfig")
        .arg("--kubeconfig")
        .arg(simulators.path("admin.conf"))
        // The administrator's leads to this host alone, which the command would not take.
        .arg("--server")
        .arg(&simulators.kube)
        .arg("--output")
        .arg(simulators.path("kubeconfig"))
        .output()
        .expect("it runs")
}

/// The command makes a key, an administrator's approval has the cluster sign its certificate, and the daemon runs
/// with that certificate in its TLS handshakes and no right beyond the manifest's.
#[test]
fn the_daemon_runs_with_the_kubeconfig_that_the_command_makes() {
    let simulators = Simulators::start(&PveSpec::default());
    let made = kubeconfig(&simulators);
    let said = text(&made.stdout) + &text(&made.stderr);
    assert_eq!(made.status.code(), Some(0), "{said}");
    assert!(
        said.contains("user pve-autoscaler at https://127.0.0.1:"),
        "{said}"
    );
    let path = simulators.path("kubeconfig");
    let file = std::fs::read_to_string(&path).expect("it is there");
    assert!(file.contains("client-certificate-data"), "{file}");
    assert!(!file.contains("token:"), "{file}");

    let config = simulators.config(&path, TEMPLATE, "9100-9120");
    let check = program()
        .args(["check", "--live", "--config"])
        .arg(&config)
        .output();
    let check = check.expect("it runs");
    let said = text(&check.stdout);
    assert_eq!(check.status.code(), Some(0), "{said}");
    assert!(
        said.contains("all rights that the daemon needs are granted"),
        "{said}"
    );

    let socket = simulators.path("control.sock");
    let daemon = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"))
        .arg("--config")
        .arg(&config)
        .arg("run")
        .arg("--state-directory")
        .arg(simulators.path("state"))
        .arg("--control-socket")
        .arg(&socket)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut daemon = Process(daemon.expect("it starts"));
    let plan = asked(&socket, "plan", |plan| {
        plan["report"]["holds"]
            .as_array()
            .is_some_and(Vec::is_empty)
    });
    assert_eq!(plan["plan"], Value::Array(Vec::new()), "{plan}");

    let id = nix::unistd::Pid::from_raw(i32::try_from(daemon.0.id()).expect("an id"));
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).expect("it runs");
    assert_eq!(daemon.0.wait().expect("it ends").code(), Some(0));
}
