//! `doctor` against the simulators on the wire.

use std::net::TcpListener;
use std::path::Path;
use std::process::Output;

use pve_autoscaler::sim::pve::PveSpec;
use serde_json::Value;

use super::live::{TEMPLATE, own_name};
use super::simulators::Simulators;
use super::{program, text};

/// What `doctor` says of this file, and how it ends.
pub(crate) fn doctor(config: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = examine(config, arguments);
    let said = text(&output.stdout) + &text(&output.stderr);
    (output.status.code(), said)
}

pub(crate) fn examine(config: &Path, arguments: &[&str]) -> Output {
    program()
        .args(["doctor", "--user", &own_name(), "--config"])
        .arg(config)
        .arg("--state-directory")
        .arg(config.with_file_name("state"))
        .arg("--socket")
        .arg(config.with_file_name("control.sock"))
        .args(arguments)
        .output()
        .expect("it runs")
}

#[test]
fn doctor_says_what_is_right_what_is_wrong_and_what_to_type() {
    let mut spec = PveSpec::default();
    let template = spec.machines.iter_mut().find(|vm| vm.vmid == 9000);
    let template = template.expect("the template");
    template.config.insert("agent".into(), "0".into());
    let simulators = Simulators::start(&spec);
    let config = simulators.config(&simulators.path("admin.conf"), TEMPLATE, "9100-9120");
    let (code, said) = doctor(&config, &[]);
    assert_eq!(code, Some(1), "{said}");
    for words in [
        "ok: region default: the cluster has quorum\n",
        "WRONG: template debian: VM 9000 has no guest agent enabled, and its machines are joined through it\n    to mend it: qm set 9000 --agent enabled=1",
        " 2 wrong, 0 unseen\n",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    let (code, quiet) = doctor(&config, &["--quiet"]);
    assert_eq!(code, Some(1), "{quiet}");
    assert!(!quiet.contains("ok: "), "{quiet}");
    assert!(quiet.contains("WRONG: template debian: VM 9000"), "{quiet}");

    let output = examine(&config, &["-o", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&told["schema_version"], &told["version"], &told["verdict"]),
        (&1.into(), &1.into(), &"wrong".into())
    );
    let findings = told["findings"].as_array().expect("a list");
    let wrong: Vec<&Value> = findings
        .iter()
        .filter(|one| one["grade"] == "wrong")
        .collect();
    // The template, and the pool that can make no machine of it.
    assert_eq!(wrong.len(), 2, "{told}");
    assert_eq!(wrong[0]["probe"], "templates");
    let mend = wrong[0]["mend"].as_str().unwrap_or_default();
    assert!(mend.starts_with("qm set 9000 --agent enabled=1"), "{mend}");
}

/// It finds a doctor and a check that name neither `setup` nor the file that was given, and a kubeconfig that is missing and counted twice.
#[test]
fn a_new_installation_is_led_to_setup() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().canonicalize().expect("it is there");
    let (config, kubeconfig) = (folder.join("new.toml"), folder.join("kubeconfig"));
    let file = format!(
        "version = 1\n[kubernetes]\nkubeconfig = \"{}\"\n[web]\nlisten = \"127.0.0.1:0\"\n",
        kubeconfig.display()
    );
    std::fs::write(&config, file).expect("written");
    let shown = config.display();
    let setup = format!("pve-autoscaler setup --config {shown}");
    let (code, said) = doctor(&config, &[]);
    assert_eq!(code, Some(1), "{said}");
    for words in [
        &*format!(
            "warning: file: {shown} has no [proxmox]: the service runs and does nothing\n    to mend it: {setup} proposes it; "
        ),
        &format!(
            "WRONG: file: kubeconfig {} cannot be read: ",
            kubeconfig.display()
        ),
        &format!("    to mend it: {setup} --kubeconfig ADMIN_KUBECONFIG makes it, and the rest; "),
        "unseen: kubernetes: nothing of the cluster was looked at: ",
        " 1 warning, 1 wrong, 1 unseen\n",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    let check = program().args(["check", "--config"]).arg(&config).output();
    let check = check.expect("it runs");
    assert_eq!(check.status.code(), Some(0), "{}", text(&check.stderr));
    let said = text(&check.stdout);
    let words = format!(
        "not configured: the file has no [proxmox]; the service runs and does nothing. `{setup}` proposes it\n"
    );
    assert!(said.contains(&words), "{said}");
    let missing = folder.join("none.toml");
    let (code, said) = doctor(&missing, &[]);
    assert_eq!(code, Some(2), "{said}");
    let words = format!(
        "`pve-autoscaler setup --config {}` makes one",
        missing.display()
    );
    assert!(said.contains(&words), "{said}");
}

/// A PVE that takes connections and never answers: all else is told, and that nothing is known of it.
#[test]
fn one_thing_that_hangs_does_not_hold_the_others_up() {
    let simulators = Simulators::start(&PveSpec::default());
    let config = simulators.config(&simulators.path("admin.conf"), TEMPLATE, "9100-9120");
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("https://{}", silent.local_addr().expect("an address"));
    let file = std::fs::read_to_string(&config).expect("it is there");
    assert!(file.contains(&simulators.pve));
    std::fs::write(&config, file.replace(&simulators.pve, &address)).expect("written");
    let (code, said) = doctor(&config, &["--timeout", "4"]);
    assert_eq!(code, Some(2), "{said}");
    for words in [
        "ok: kubernetes: all rights that the daemon needs are granted",
        "ok: kubernetes: cluster-info is there",
        "unseen: region default: PVE: not all was seen within 4 s",
        " 0 wrong, 1 unseen",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
}

/// An administrator's kubeconfig works, may do everything, and no admission policy holds it.
#[test]
fn an_administrators_kubeconfig_is_warned_of() {
    let simulators = Simulators::start(&PveSpec::default());
    let config = simulators.config(&simulators.path("admin.conf"), TEMPLATE, "9100-9120");
    let (code, said) = doctor(&config, &[]);
    assert_eq!(code, Some(0), "{said}");
    let words = "warning: kubernetes: the kubeconfig is that of \"kubernetes-admin\", not of pve-autoscaler";
    assert!(said.contains(words), "{said}");
}

/// Somebody answers at the address, and what is wrong is the kubeconfig: `curl -k` would say that all is well.
#[test]
fn a_kubeconfig_that_the_api_server_does_not_take_is_told_as_that() {
    let simulators = Simulators::start(&PveSpec::default());
    let admin = std::fs::read_to_string(simulators.path("admin.conf")).expect("it is there");
    let kubeconfig = simulators.path("daemon.conf");
    let config = simulators.config(&kubeconfig, TEMPLATE, "9100-9120");
    let said_of = |text: &str| {
        std::fs::write(&kubeconfig, text).expect("written");
        doctor(&config, &["--quiet"]).1
    };
    let said = said_of(&admin.replace("sim-admin-token", "of-before"));
    for words in [
        "WRONG: kubernetes: get version was refused with 401 Unauthorized",
        "to mend it: the API server does not take the credentials in the kubeconfig",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }

    let key = rcgen::KeyPair::generate().expect("a key");
    let other = rcgen::CertificateParams::new(vec![]).expect("params");
    let other = other.self_signed(&key).expect("a certificate").pem();
    std::fs::write(simulators.path("other.pem"), other).expect("written");
    let of_another: Vec<&str> = admin
        .lines()
        .map(|line| {
            if line.contains("certificate-authority-data:") {
                "    certificate-authority: other.pem"
            } else {
                line
            }
        })
        .collect();
    let said = said_of(&of_another.join("\n"));
    assert!(said.contains("is of no CA in the kubeconfig"), "{said}");

    // As `echo TOKEN >token` writes it.
    std::fs::write(simulators.path("token"), "sim-admin-token\n").expect("written");
    let said = said_of(&admin.replace("token: sim-admin-token", "tokenFile: token"));
    assert!(said.contains(" 0 wrong, 0 unseen"), "{said}");
}

/// What `pveum user token add` prints has the secret in it, and is none.
#[test]
fn a_file_with_more_than_a_secret_is_told_as_that() {
    let simulators = Simulators::start(&PveSpec::default());
    let config = simulators.config(&simulators.path("admin.conf"), TEMPLATE, "9100-9120");
    let secret = std::fs::read_to_string(simulators.path("secret")).expect("it is there");
    let printed = format!("full-tokenid: scaler@pve!sim\nvalue: {secret}\n");
    std::fs::write(simulators.path("secret"), printed).expect("written");
    let (code, said) = doctor(&config, &["--quiet"]);
    assert_eq!(code, Some(1), "{said}");
    let file = simulators.path("secret").display().to_string();
    let words = format!(
        "cannot read token_secret_file {file}: it has more in it than the secret; expected that alone"
    );
    assert!(said.contains(&words), "{said}");
    assert!(!said.contains(&secret), "{said}");
}

/// What the daemon would open first is opened by somebody else, or is no directory.
#[test]
fn what_the_daemon_cannot_open_at_its_start_is_wrong() {
    let simulators = Simulators::start(&PveSpec::default());
    let config = simulators.config(&simulators.path("admin.conf"), TEMPLATE, "9100-9120");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let file = std::fs::read_to_string(&config).expect("it is there");
    let file = file.replace(
        "listen = \"127.0.0.1:0\"",
        &format!("listen = \"{address}\""),
    );
    std::fs::write(&config, file).expect("written");
    std::fs::write(simulators.path("state"), "text").expect("written");
    let (code, said) = doctor(&config, &["--quiet"]);
    assert_eq!(code, Some(1), "{said}");
    for words in [
        format!("WRONG: daemon: it cannot listen on {address} ([web] listen): "),
        format!(
            "WRONG: daemon: its own directory {} is no directory",
            simulators.path("state").display()
        ),
    ] {
        assert!(said.contains(&words), "{words:?} is not in {said}");
    }
}

/// A range that others fill, and one that is smaller than the pools may grow.
#[test]
fn a_range_without_room_is_told() {
    let simulators = Simulators::start(&PveSpec::default());
    let admin = simulators.path("admin.conf");
    let (code, said) = doctor(&simulators.config(&admin, TEMPLATE, "100-101"), &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("WRONG: region default: no VMID from 100 to 101 is free"),
        "{said}"
    );
    let (code, said) = doctor(&simulators.config(&admin, TEMPLATE, "101-102"), &[]);
    assert_eq!(code, Some(0), "{said}");
    let few =
        "warning: region default: 1 VMID is free from 101 to 102, and the pools may make 2 more";
    assert!(said.contains(few), "{said}");
}
