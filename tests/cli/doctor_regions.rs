//! `doctor` of what is seen in part: a broker that has not read the file, nodes of another system, hosts that do not tell their load.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pve_autoscaler::config;
use pve_autoscaler::sim::pve::{AclSpec, PveSpec};
use serde_json::{Value, json};

use super::doctor::{doctor, examine};
use super::live::TEMPLATE;
use super::service::{replace, until};
use super::simulators::Simulators;
use super::traces::Stage;
use super::{program, text};

/// A broker that has this policy, and lets nothing pass.
fn broker(socket: &Path, policy: String) {
    let listener = UnixListener::bind(socket).expect("a socket");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let policy = policy.clone();
            std::thread::spawn(move || answer(stream, &policy));
        }
    });
}

/// Answers one request after the other.
fn answer(mut stream: UnixStream, policy: &str) {
    let (mut seen, mut part) = (Vec::new(), [0; 4_096]);
    while let Ok(read @ 1..) = stream.read(&mut part) {
        seen.extend_from_slice(&part[..read]);
        let Some(end) = seen.windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&seen[..end]).into_owned();
        seen.drain(..end + 4);
        let (status, outcome, body) = if head.contains("/broker/info") {
            let data = json!({
                "version": env!("CARGO_PKG_VERSION"), "policy_hash": policy, "channel": "http",
                "pve_version": "9.2.11", "last_error": null, "cluster": null,
            });
            ("200 OK", "done", json!({ "data": data }))
        } else {
            let message = "broker: no region of this file is here";
            let body = json!({ "data": null, "message": message });
            ("403 Forbidden", "refused-by-broker", body)
        };
        let body = body.to_string();
        let written = write!(
            stream,
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nx-pve-autoscaler-outcome: {outcome}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        if written.is_err() {
            return;
        }
    }
}

/// A file whose region is reached through a broker at `socket`.
fn through_a_broker(simulators: &Simulators, socket: &Path) -> PathBuf {
    let config = simulators.config(&simulators.path("admin.conf"), TEMPLATE, "9100-9120");
    let file = fs::read_to_string(&config).expect("it is there");
    let token = [
        "channel",
        "endpoints",
        "token_id",
        "token_secret_file",
        "fingerprint",
    ];
    let lines = file
        .lines()
        .filter(|line| !token.iter().any(|key| line.starts_with(key)));
    let file = lines.collect::<Vec<_>>().join("\n");
    let file = format!("{file}\n[broker]\nsocket = \"{}\"\n", socket.display());
    fs::write(&config, file).expect("written");
    config
}

/// The findings of one probe, as words.
pub(crate) fn of_probe(config: &Path, probe: &str) -> Vec<String> {
    let output = examine(config, &["-o", "json"]);
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = told["findings"].as_array().expect("a list").clone();
    let of = findings.into_iter().filter(|one| one["probe"] == probe);
    of.map(|one| format!("{} {} | {}", one["grade"], one["text"], one["mend"]))
        .collect()
}

/// A new region: the broker knows nothing of it before it has read the file, which is no fault of the file. One that has read it and
/// refuses all the same is one. It finds a doctor that takes every refusal for wrong, and one that takes none for it.
#[test]
fn a_region_that_the_broker_does_not_know_yet_is_no_fault_of_the_file() {
    let simulators = Simulators::start(&PveSpec::default());
    let (old, new) = (simulators.path("old.sock"), simulators.path("new.sock"));
    let config = through_a_broker(&simulators, &old);
    broker(&old, "of-another-file".to_owned());
    let found = of_probe(&config, "region");
    assert_eq!(found.len(), 1, "{found:#?}");
    for words in [
        "\"warning\" \"region default: nothing of it is seen until the broker has read this file: ",
        "no region of this file is here",
        "systemctl reload pve-autoscaler; pve-autoscaler doctor",
    ] {
        assert!(found[0].contains(words), "{words:?} is not in {found:#?}");
    }
    let behind = of_probe(&config, "broker");
    assert!(
        behind[0].contains("\"warning\" \"region default: the broker runs with another policy"),
        "{behind:#?}"
    );
    let (code, said) = doctor(&config, &[]);
    assert_eq!(code, Some(0), "{said}");

    let config = through_a_broker(&simulators, &new);
    let settings = config::load(&config).unwrap_or_else(|errors| panic!("{errors}"));
    broker(&new, settings.policy_hash());
    let found = of_probe(&config, "region");
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(
        found[0].starts_with("\"wrong\" \"region default: "),
        "{found:#?}"
    );
    let (code, said) = doctor(&config, &[]);
    assert_eq!(code, Some(1), "{said}");
}

/// A pool is told to join, and a node runs Talos. It finds a probe that takes any system for Talos, one that misses it, and one that
/// warns of machines that join by themselves.
#[test]
fn a_pool_that_is_told_to_join_is_warned_of_where_nodes_run_talos() {
    let stage = Stage::begin(9);
    let node = |name: &str, system: &str| {
        stage.make(
            "/api/v1/nodes",
            &json!({
                "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
                "status": { "nodeInfo": { "osImage": system, "kubeletVersion": "v1.34.1" } },
            }),
        );
    };
    node("cp-1", "Debian GNU/Linux 13 (trixie)");
    let fine = of_probe(&stage.config, "talos");
    let wanted = "\"ok\" \"kubernetes: no node runs Talos";
    assert!(fine.len() == 1 && fine[0].starts_with(wanted), "{fine:#?}");
    node("cp-2", "Talos (v1.11.2)");
    let found = of_probe(&stage.config, "talos");
    assert_eq!(found.len(), 1, "{found:#?}");
    for words in [
        "\"warning\" \"pool general: its machines are told to join, and nodes of this cluster run Talos (as cp-2 does)",
        "method = \\\"self\\\" in [pool.general.join]",
    ] {
        assert!(found[0].contains(words), "{words:?} is not in {found:#?}");
    }
    let file = fs::read_to_string(&stage.config).expect("it is there");
    let own = format!("{file}\n[pool.general.join]\nmethod = \"self\"\n");
    fs::write(&stage.config, own).expect("written");
    assert_eq!(of_probe(&stage.config, "talos"), Vec::<String>::new());
}

/// A bound on pressure, on PVE 8: no machine would ever be made, and nobody would know why. It finds a probe that is silent, one that
/// warns of hosts no such pool may use, and one that warns where PVE tells.
#[test]
fn a_bound_on_what_pve_does_not_tell_is_warned_of() {
    let bounded = "max = 2\nmax_pressure = 0.3\nhosts = [\"pve1\", \"pve2\"]\n";
    let load = |version: &str, rules: &str| {
        let spec = PveSpec {
            version: version.to_owned(),
            ..PveSpec::default()
        };
        let simulators = Simulators::start(&spec);
        let config = simulators.config(&simulators.path("admin.conf"), TEMPLATE, "9100-9120");
        replace(&config, "max = 2\n", rules);
        of_probe(&config, "load")
    };
    let old = load("8.4.14", bounded);
    assert_eq!(old.len(), 2, "{old:#?}");
    for (found, host) in old.iter().zip(["pve1", "pve2"]) {
        let words = format!(
            "\"warning\" \"host {host}: PVE does not tell what max_pressure bounds, so that pool general may make no machine there\" | \"PVE tells pressure from version 9 on"
        );
        assert!(found.starts_with(&words), "{found}");
    }
    let new = load("9.2.11", bounded);
    assert_eq!(new.len(), 1, "{new:#?}");
    assert!(
        new[0].starts_with("\"ok\" \"region default: PVE tells how loaded pve1, pve2 are\""),
        "{new:#?}"
    );
    assert_eq!(load("8.4.14", "max = 2\n"), Vec::<String>::new());
}

/// Right behind a reload, where the docs have it: the daemon was told of the file and is about to take it. It finds a doctor that asks
/// once, and one that waits for a daemon that nobody told anything and then says that all is well.
#[test]
fn doctor_right_behind_a_reload_sees_the_new_file() {
    let stage = Stage::begin(9);
    let daemon = stage.daemon("log");
    let status = || {
        let output = program()
            .args(["status", "--socket"])
            .arg(stage.path("control.sock"))
            .output()
            .expect("it runs");
        text(&output.stdout) + &text(&output.stderr)
    };
    until("status", status, &["general"], &[]);
    replace(&stage.config, "max = 2\n", "max = 3\n");
    let behind = "daemon: it runs with another configuration than this file";
    let (_, said) = doctor(&stage.config, &[]);
    assert!(said.contains(behind), "{said}");
    let pid = Pid::from_raw(i32::try_from(daemon.0.id()).expect("a small number"));
    // It takes the file a moment later than doctor looks first.
    let said = std::thread::scope(|scope| {
        let asked = scope.spawn(|| doctor(&stage.config, &[]).1);
        std::thread::sleep(Duration::from_millis(800));
        kill(pid, Signal::SIGHUP).expect("it runs");
        asked.join().expect("it ends")
    });
    assert!(!said.contains(behind), "{said}");
    // No reload makes the daemon read a file that it was not started with.
    let other = stage.path("other.toml");
    let text = std::fs::read_to_string(&stage.config).expect("it is there");
    std::fs::write(&other, text + "# other\n").expect("written");
    let (_, said) = doctor(&other, &[]);
    let path = stage.config.canonicalize().expect("it is there");
    let there = format!("daemon: it runs with another file, {}\n", path.display());
    assert!(
        said.contains(&there) && !said.contains("systemctl reload"),
        "{said}"
    );
}

/// Several endpoints, and one fingerprint. It finds a doctor that looks at the first endpoint alone.
#[test]
fn every_endpoint_of_a_region_is_tried() {
    let (one, two) = (
        Simulators::start(&PveSpec::default()),
        Simulators::start(&PveSpec::default()),
    );
    let config = one.config(&one.path("admin.conf"), TEMPLATE, "9100-9120");
    let alone = of_probe(&config, "region").join("\n");
    assert!(!alone.contains("takes the token"), "{alone}");
    let first = format!("\"{}\"", one.pve);
    let all = format!("{first}, \"{}\", \"https://127.0.0.1:1\"", two.pve);
    replace(&config, &first, &all);
    let found = of_probe(&config, "region").join("\n");
    for words in [
        format!(
            "\"ok\" \"region default: {} answers and takes the token",
            one.pve
        ),
        format!(
            "\"warning\" \"region default: {} shows another certificate than the file trusts, with the SHA-256 fingerprint {}, and is never used\"",
            two.pve, two.fingerprint
        ),
        "ca_file in [proxmox], a copy of /etc/pve/pve-root-ca.pem".to_owned(),
        "\"warning\" \"region default: https://127.0.0.1:1 does not answer".to_owned(),
    ] {
        assert!(found.contains(&words), "{words:?} is not in {found}");
    }
    let (code, said) = doctor(&config, &[]);
    assert_eq!(code, Some(0), "{said}");
    let output = program()
        .arg("check")
        .arg("--config")
        .arg(&config)
        .output()
        .expect("it runs");
    let said = text(&output.stdout);
    let words =
        "warning: proxmox.fingerprint: it is the certificate of one host, and endpoints names 3";
    assert!(said.contains(words), "{said}");
}

/// What came with PVE 9, on PVE 8: the machine would be cloned, and then refused what it is to have. It finds a probe that looks at some of
/// the keys, one that goes by the file alone, and one that is silent of what PVE 9 knows.
#[test]
fn settings_that_the_hosts_release_does_not_know_are_told() {
    let options = "[template.debian.options]\nallow-ksm = false\nmachine = \"q35,viommu=intel,aw-bits=39\"\nshares = 500\n";
    let of = |version: &str, more: &str, cpu: &str| {
        let spec = PveSpec {
            version: version.to_owned(),
            ..PveSpec::default()
        };
        let simulators = Simulators::start(&spec);
        let config = simulators.config(&simulators.path("admin.conf"), TEMPLATE, "9100-9120");
        let name = format!("vm_name = \"{TEMPLATE}\"\n");
        replace(&config, &name, &format!("{name}{cpu}{more}"));
        let found = of_probe(&config, "releases");
        (found, doctor(&config, &["--quiet"]))
    };
    let (found, (code, said)) = of("8.4.21", options, "cpu_type = \"EPYC-Turin\"\n");
    assert_eq!(code, Some(1), "{said}");
    let wanted = [
        ("allow-ksm", "[template.debian.options]"),
        ("aw-bits of machine", "[template.debian.options]"),
        ("EPYC-Turin of cpu_type", "[template.debian]"),
    ];
    assert_eq!(found.len(), wanted.len(), "{found:#?}");
    for (found, (called, table)) in found.iter().zip(wanted) {
        let words = format!(
            "\"wrong\" \"pool general: {called} in {table} is known to PVE from 9 on, and pve1 (8.4.21), pve2 (8.4.21), pve3 (8.4.21) have an older one: PVE refuses it, and no machine comes up there\" | \"take it out, or upgrade pve1, pve2, pve3 to PVE 9\""
        );
        assert_eq!(*found, words);
        assert!(
            said.contains(&format!("WRONG: pool general: {called} in")),
            "{said}"
        );
    }
    let (found, _) = of("9.2.11", options, "");
    assert_eq!(found.len(), 2, "{found:#?}");
    for found in found {
        let known = found.starts_with("\"ok\" \"pool general: pve1, pve2, pve3 know ");
        assert!(known, "{found}");
    }
    let (found, _) = of("8.4.21", "", "");
    assert_eq!(found, Vec::<String>::new(), "nothing newer is asked for");
}

/// One host has an older CPU than the type of the machines asks for. It finds a doctor that looks at one host, or at the file's type alone:
/// without one machines have the template's.
#[test]
fn a_cpu_type_that_a_host_cannot_run_is_told() {
    let mut spec = PveSpec::default();
    spec.hosts[1].cpu_flags = "sse2 ssse3 sse4_1 sse4_2 popcnt aes".to_owned();
    let of = |spec: &PveSpec, more: &str| {
        let simulators = Simulators::start(spec);
        let config = simulators.config(&simulators.path("admin.conf"), TEMPLATE, "9100-9120");
        let name = format!("vm_name = \"{TEMPLATE}\"\n");
        replace(&config, &name, &format!("{name}{more}"));
        of_probe(&config, "cpus")
    };
    let lacks = "pool general: CPU type x86-64-v3 of template debian asks for what the CPU of pve2 does not have (abm, avx, avx2, bmi1, bmi2, f16c, 3 more): PVE starts no machine there";
    let found = of(&spec, "cpu_type = \"x86-64-v3\"\n");
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(
        found[0].starts_with(&format!("\"warning\" \"{lacks}\" | \"cpu_type = ")),
        "{found:#?}"
    );
    // Nothing is said of a type that asks for nothing, and the template of the simulator has none.
    assert_eq!(of(&spec, ""), Vec::<String>::new());
    assert_eq!(of(&spec, "cpu_type = \"host\"\n"), Vec::<String>::new());
    let template = spec.machines.iter_mut();
    for machine in template.filter(|machine| machine.template) {
        let cpu = "x86-64-v3,flags=+aes".to_owned();
        machine.config.insert("cpu".to_owned(), cpu);
    }
    let found = of(&spec, "");
    assert!(found.len() == 1 && found[0].contains(lacks), "{found:#?}");
    assert_eq!(
        of(&spec, "cpu_type = \"x86-64-v2-AES\"\n"),
        [
            "\"ok\" \"pool general: pve1, pve2, pve3 have what CPU type x86-64-v2-AES asks for\" | null"
        ]
    );
}

/// A template that is built anew has another VMID, and a right on one VM says nothing of the next. It finds a doctor that looks at what is
/// there alone.
#[test]
fn a_token_that_could_not_clone_the_next_template_is_told() {
    let of = |on: &[&str], more: &str| {
        let mut spec = PveSpec::default();
        let acl = &mut spec.tokens[0].acl;
        let all = acl[0].privileges.clone();
        acl[0].privileges.retain(|one| one != "VM.Clone");
        acl.extend(on.iter().map(|path| AclSpec {
            path: (*path).to_owned(),
            privileges: all.clone(),
        }));
        let simulators = Simulators::start(&spec);
        let config = simulators.config(&simulators.path("admin.conf"), TEMPLATE, "9100-9120");
        let build = format!(
            "[template.debian.build]\nvmids = \"8000-8019\"\nvolume = \"local:import/debian.qcow2\"\nstorage = \"shared\"\nkubernetes = \"1.34\"\n{more}\n[web]\n"
        );
        replace(&config, "[web]\n", &build);
        of_probe(&config, "token")
    };
    let found = of(&["/vms/9000"], "");
    assert_eq!(found.len(), 2, "{found:#?}");
    let warning = "\"warning\" \"template debian: the next one that is built will be VM 8000, of which the token scaler@pve!sim could not make machines: it lacks VM.Clone on /vms/8000\" | \"resource_pool in [template.debian.build], and a role with VM.Audit, VM.Clone on that pool";
    assert!(found[0].starts_with(warning), "{found:#?}");
    assert!(found[1].starts_with("\"ok\" "), "{found:#?}");
    let found = of(&["/vms/9000", "/vms/8000"], "");
    assert!(
        found.len() == 1 && found[0].starts_with("\"ok\" "),
        "{found:#?}"
    );
    // The pool's right is asked for where the build names one.
    let pool = "resource_pool = \"k8s\"";
    let found = of(&["/vms/9000"], pool);
    let lacks = "lacks VM.Clone on /pool/k8s\"";
    assert!(found.len() == 1 && found[0].contains(lacks), "{found:#?}");
    let found = of(&["/vms/9000", "/pool/k8s"], pool);
    assert!(
        found.len() == 1 && found[0].contains("/pool/k8s"),
        "{found:#?}"
    );
    assert!(found[0].starts_with("\"ok\" "), "{found:#?}");
}
