//! A cluster that was built anew: what says so, and the command that adopts it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use pve_autoscaler::model::mark::Mark;
use pve_autoscaler::model::time::Time;
use pve_autoscaler::sim::pve::PveSpec;
use serde_json::json;

use super::service::{get, replace, run, until};
use super::simulators::{Process, Simulators};
use super::terminal::whatever_on_terminal;
use super::{program, text};

const TEMPLATE: &str = "debian-13-k8s";
const FORMER: &str = "11111111-former/default";

fn mark(vmid: u32) -> Mark {
    Mark {
        cluster: FORMER.into(),
        machine: format!("general-{vmid}"),
        vmid,
        pool: "general".into(),
        instance_type: "small".into(),
        template: "debian".into(),
        token: "abcdef".into(),
        created: Time(1_795_000_000_000),
        addresses: std::collections::BTreeMap::new(),
        cpus: pve_autoscaler::model::cpus::CpuSet::new(),
        unknown: [].into(),
    }
}

/// A world in which a VM with the mark of a former cluster still is.
fn world() -> PveSpec {
    let mut spec = PveSpec::default();
    let mut machine = spec
        .machines
        .iter()
        .find(|vm| vm.vmid == 100)
        .expect("a VM")
        .clone();
    machine.vmid = 9101;
    machine.config.insert("name".into(), "general-9101".into());
    machine
        .config
        .insert("description".into(), mark(9101).line());
    spec.machines.push(machine);
    spec
}

/// Leaves the state of a daemon and a broker that served the former cluster.
fn leave_behind(simulators: &Simulators) -> (PathBuf, PathBuf) {
    let (state, broker) = (simulators.path("state"), simulators.path("broker"));
    fs::create_dir_all(state.join("journal")).expect("made");
    for vmid in 9101..9111 {
        let mark = mark(vmid);
        let entry = json!({
            "version": 1,
            "target": {"region": "default", "host": "pve1", "vmid": vmid, "machine": mark.machine},
            "birth": {"mark": mark, "template_vmid": 9000, "template_host": "pve1"},
            "step": "done", "since": "2026-01-01T00:00:00Z",
        });
        let path = state.join(format!("journal/general-{vmid}.json"));
        fs::write(path, entry.to_string()).expect("written");
    }
    fs::create_dir_all(broker.join("intents")).expect("made");
    fs::write(broker.join("cluster"), format!("{FORMER}\n")).expect("written");
    let intent = json!({
        "vmid": 9104, "machine": "general-9104", "cluster": FORMER, "host": "pve1",
        "template": 9000, "asked": "2026-01-01T00:00:00Z",
    });
    fs::write(broker.join("intents/9104.json"), intent.to_string()).expect("written");
    (state, broker)
}

fn adopt(config: &Path, state: &Path, broker: &Path, more: &[&str]) -> (Option<i32>, String) {
    let output = program()
        .args(["adopt", "--config"])
        .arg(config)
        .arg("--state-directory")
        .arg(state)
        .arg("--broker-directory")
        .arg(broker)
        .args(more)
        .output()
        .expect("it runs");
    let said = text(&output.stdout) + &text(&output.stderr);
    (output.status.code(), said)
}

#[test]
fn a_cluster_built_anew_is_adopted_by_a_command() {
    let simulators = Simulators::start(&world());
    let config = simulators.config(&simulators.path("admin.conf"), TEMPLATE, "9100-9120");
    let (state, broker) = leave_behind(&simulators);

    // Without a person nothing happens, and everything is shown.
    let (code, said) = adopt(&config, &state, &broker, &[]);
    assert_eq!(code, Some(1), "{said}");
    for words in [
        "the broker of this host is bound to 11111111-former/default",
        "the journal has 10 machines of 11111111-former/default: general-9101, ",
        "a clone of VM 9104 (general-9104) of 11111111-former/default on record",
        "1 VM of 11111111-former/default; none is adopted, changed or removed:",
        "9101 general-9101 on pve1 (region default), ",
        "qm stop 9101 && qm destroy 9101",
        "say --yes; nothing was changed",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    // On a terminal nothing is torn.
    let paths = [&config, &state, &broker].map(|path| path.display().to_string());
    let [at_config, at_state, at_broker] = &paths;
    let arguments = [
        "adopt",
        "--config",
        at_config,
        "--state-directory",
        at_state,
        "--broker-directory",
        at_broker,
    ];
    let shown = whatever_on_terminal(80, &arguments);
    for line in shown.lines() {
        assert!(line.chars().count() <= 80, "{line:?} in {shown}");
    }
    assert!(shown.contains("the journal has 10 machines of"), "{shown}");
    let bound = || fs::read_to_string(broker.join("cluster")).expect("readable");
    assert_eq!(bound().trim(), FORMER);
    let count = |path: PathBuf| fs::read_dir(path).map_or(0, Iterator::count);
    assert_eq!(count(state.join("journal")), 10);

    let (code, said) = adopt(&config, &state, &broker, &["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("systemctl reload-or-restart pve-autoscaler"));
    assert!(bound().trim().ends_with("/default") && bound().trim() != FORMER);
    assert_eq!(count(state.join("journal")), 0);
    assert_eq!(count(state.join("former")), 10, "nothing is thrown away");
    assert_eq!(count(broker.join("intents")), 0);
    assert_eq!(count(broker.join("former")), 1);

    // And then there is nothing to do; the VM is still told of.
    let (code, said) = adopt(&config, &state, &broker, &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("nothing is to be adopted"), "{said}");
    assert!(said.contains("9101 general-9101"), "{said}");
}

#[test]
fn check_live_tells_of_a_former_clusters_journal() {
    let simulators = Simulators::start(&PveSpec::default());
    let config = simulators.config(&simulators.path("admin.conf"), TEMPLATE, "9100-9120");
    let (state, _) = leave_behind(&simulators);
    let output = program()
        .args(["check", "--live", "--config"])
        .arg(&config)
        .arg("--state-directory")
        .arg(&state)
        .output()
        .expect("it runs");
    let said = text(&output.stdout) + &text(&output.stderr);
    let words = "warning: journal: 10 machines are of the cluster 11111111-former/default, which is not this one: they are not counted; `pve-autoscaler adopt` sets them aside";
    assert!(said.contains(words), "{said}");
}

/// A broker that answers what it is asked about itself, and knows no PVE.
fn broker_at(socket: &Path, cluster: &str) {
    let listener = UnixListener::bind(socket).expect("bound");
    let info = json!({"data": {
        "version": env!("CARGO_PKG_VERSION"), "policy_hash": "other", "channel": "https", "cluster": cluster,
    }})
    .to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let info = info.clone();
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                // One request at a time: the caller waits for the answer.
                while let Ok(length) = stream.read(&mut buffer) {
                    if length == 0 {
                        return;
                    }
                    let asked = String::from_utf8_lossy(&buffer[..length]).into_owned();
                    let (status, outcome, body) = if asked.starts_with("GET /broker/info ") {
                        ("200 OK", "done", info.clone())
                    } else {
                        let body = json!({"data": null, "message": "broker: no PVE"});
                        ("503 Unavailable", "not-sent", body.to_string())
                    };
                    let answer = format!(
                        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nx-pve-autoscaler-outcome: {outcome}\r\ncontent-length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

/// A configuration that goes through the broker at `socket`.
fn through_broker(simulators: &Simulators, socket: &Path) -> PathBuf {
    let config = simulators.config(&simulators.path("admin.conf"), TEMPLATE, "9100-9120");
    let file = fs::read_to_string(&config).expect("readable");
    let unwanted = ["channel", "endpoints", "token_", "fingerprint"];
    let kept = file
        .lines()
        .filter(|line| !unwanted.iter().any(|word| line.starts_with(word)));
    let mut kept: Vec<&str> = kept.collect();
    let broker = format!("[broker]\nsocket = \"{}\"", socket.display());
    kept.push(&broker);
    fs::write(&config, kept.join("\n")).expect("written");
    config
}

#[test]
fn check_live_fails_on_a_broker_that_is_bound_to_another_cluster() {
    let simulators = Simulators::start(&PveSpec::default());
    let socket = simulators.path("pve.sock");
    broker_at(&socket, FORMER);
    let config = through_broker(&simulators, &socket);
    let output = program()
        .args(["check", "--live", "--config"])
        .arg(&config)
        .output()
        .expect("it runs");
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let words = "WRONG: region default: the broker is bound to the cluster 11111111-former/default and refuses every change for this one, ";
    assert!(said.contains(words), "{said}");
    assert!(
        said.contains("`pve-autoscaler adopt` on its host"),
        "{said}"
    );
}

#[test]
fn the_daemon_says_that_the_broker_serves_another_cluster() {
    let simulators = Simulators::start(&PveSpec::default());
    let socket = simulators.path("pve.sock");
    broker_at(&socket, FORMER);
    leave_behind(&simulators);
    let config = through_broker(&simulators, &socket);
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("it is bound").port();
    drop(free);
    replace(&config, "127.0.0.1:0", &format!("127.0.0.1:{port}"));
    let log = fs::File::create(simulators.path("log")).expect("made");
    let daemon = run(&simulators, &config, log).spawn().expect("it starts");
    let _daemon = Process(daemon);
    let words = [
        "the broker is bound to the cluster 11111111-former/default",
        "pve-autoscaler adopt",
    ];
    let control = simulators.path("control.sock");
    let status = || {
        let output = program()
            .args(["status", "--socket"])
            .arg(&control)
            .output()
            .expect("it runs");
        text(&output.stdout) + &text(&output.stderr)
    };
    until("status", status, &words, &[]);
    let journal = "the journal has 10 machines of the cluster 11111111-former/default";
    until("status", status, &[journal], &[]);
    let log = || fs::read_to_string(simulators.path("log")).expect("readable");
    until(
        "the log",
        log,
        &["the journal has machines of another cluster"],
        &[],
    );
    until(
        "readyz",
        || get(port, "/readyz"),
        &["HTTP/1.1 503", words[0]],
        &[],
    );
}
