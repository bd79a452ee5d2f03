//! A bug report in one command, and nothing secret in it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use pve_autoscaler::record::{Filter, History};
use pve_autoscaler::sim::guests::GuestSpec;

use crate::common::{Scene, simulate};
use crate::{HASTY, visit};

/// Secrets as somebody may have written them where they do not belong.
const PLANTED: [&str; 4] = [
    "hunter22hunter22",
    "0123456789abcdef",
    "01234567-89ab-cdef-0123-456789abcdef",
    "MIIEvQIBADANBgkq",
];

#[test]
fn a_bug_report_is_one_command_and_has_no_secrets() {
    let config = format!("{HASTY}\n[recorder]\nenabled = true\n");
    let scene = simulate(async {
        let scene = Scene::new(3, &config, GuestSpec::default());
        // A reason that a person typed, which is in every view from then on.
        std::fs::create_dir_all(scene.state()).expect("made");
        let reason = format!("password={} token abcdef.{}", PLANTED[0], PLANTED[1]);
        std::fs::write(scene.state().join("paused"), reason).expect("written");
        scene.live(None, 0, visit(), Duration::from_mins(2)).await;
        scene
    });
    let file = scene.state().join("config.toml");
    let written = format!(
        "{config}\n# password = \"{}\"\n# auto@pve!scaler={}\n# -----BEGIN PRIVATE KEY-----\n# {}\n# -----END PRIVATE KEY-----\n# the end\n",
        PLANTED[0], PLANTED[2], PLANTED[3]
    );
    std::fs::write(&file, written).expect("written");
    let archive = scene.state().join("bundle.tar.gz");
    let run = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"))
        .args([
            "support-bundle",
            "--since",
            "2025-12-31",
            "--socket",
            "/nowhere/at/all",
        ])
        .arg("--config")
        .arg(&file)
        .arg("--state-directory")
        .arg(scene.state())
        .arg("--file")
        .arg(&archive)
        // The folder is this user's alone.
        .args(["--user", "root"])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(
        run.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&run.stderr)
    );
    assert!(
        said.contains("not in it: status.json: cannot reach the daemon"),
        "{said}"
    );
    let folder = unpacked(&archive, &scene.state().join("open"));
    let configuration =
        std::fs::read_to_string(folder.join("configuration.toml")).expect("it is in it");
    assert!(
        configuration.contains("max = 3") && configuration.contains("# the end"),
        "{configuration}"
    );
    assert!(configuration.contains("<redacted>"), "{configuration}");
    let doctor = std::fs::read(folder.join("doctor.json")).expect("it is in it");
    let doctor: serde_json::Value = serde_json::from_slice(&doctor).expect("JSON");
    let findings = doctor["findings"].as_array().map_or(0, Vec::len);
    assert!(findings > 3, "{doctor}");
    let (mut decisions, mut text) = (0, configuration);
    let history = History::open(&folder.join("record")).expect("the record is in it");
    history
        .decisions(&Filter::default(), |decision| {
            decisions += 1;
            text.push_str(&decision.state.to_string());
        })
        .expect("read");
    assert!(decisions > 3, "{decisions} decisions");
    assert!(
        text.contains("\"paused\":\"password=<redacted>"),
        "the reason of the pause is in it"
    );
    for name in [
        "about.txt",
        "check.txt",
        "doctor.json",
        "missing.txt",
        "versions/kernel.txt",
    ] {
        text.push_str(&std::fs::read_to_string(folder.join(name)).expect(name));
    }
    for secret in PLANTED {
        assert!(!text.contains(secret), "{secret} is in it");
    }
}

/// Unpacks an archive; its folder.
fn unpacked(archive: &Path, to: &Path) -> PathBuf {
    std::fs::create_dir(to).expect("made");
    let tar = Command::new("tar")
        .arg("-xzf")
        .arg(archive)
        .arg("-C")
        .arg(to)
        .status();
    assert!(tar.expect("tar runs").success());
    let mut parts = std::fs::read_dir(to).expect("read");
    parts.next().expect("one").expect("read").path()
}

fn bundle(folder: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"))
        .args([
            "support-bundle",
            "--socket",
            "/nowhere/at/all",
            "--user",
            "root",
        ])
        .arg("--config")
        .arg(folder.join("config.toml"))
        .arg("--state-directory")
        .arg(folder.join("state"))
        .args(more)
        .current_dir(folder)
        .output()
        .expect("it runs")
}

/// What is a secret by the key that it stands at, in a file that is right and in one that has an error.
#[test]
fn what_is_a_secret_by_its_key_is_not_in_a_bug_report() {
    let config = r##"version = 1
[proxmox]
vmids = "9000-9099"
[template.debian]
vmid = 8000
[template.debian.cloud_init]
storage = "local"
user_data = """
#cloud-config
chpasswd: { list: "root:PLANTED1" }
"""
vendor_data = "#!/bin/sh\necho PLANTED2\n"
[notification.chat]
kind = "webhook"
url = "https://hooks.slack.com/services/T000/B000/PLANTED3" # the team's
[notification.push]
kind = "webhook"
url = "https://ntfy.example.org/PLANTED4?auth=PLANTED5"
body = '{"key": "PLANTED6"}'
"##;
    for (more, kept) in [
        ("", "valid"),
        ("maxx = 3\n", "unknown key `maxx`"),
        ("oops\n", "check"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("config.toml");
        std::fs::write(file, format!("{config}{more}")).expect("written");
        let run = bundle(folder.path(), &["--file", "b.tar.gz"]);
        let said = String::from_utf8_lossy(&run.stdout).into_owned();
        assert!(run.status.success(), "{said}");
        let open = unpacked(&folder.path().join("b.tar.gz"), &folder.path().join("open"));
        let mut text = said;
        for name in [
            "configuration.toml",
            "check.txt",
            "doctor.json",
            "missing.txt",
        ] {
            text += &std::fs::read_to_string(open.join(name)).unwrap_or_default();
        }
        assert!(text.contains(kept), "{kept} is not in {text}");
        assert!(!text.contains("PLANTED"), "{text}");
        if more.is_empty() {
            for words in [
                "url = \"https://hooks.slack.com/<redacted>\" # the team's",
                "url = \"https://ntfy.example.org/<redacted>\"",
                "body = \"<redacted: 1 line>\"",
                "<redacted: 2 lines>",
            ] {
                assert!(text.contains(words), "{words} is not in {text}");
            }
        }
    }
}

#[test]
fn a_wrong_command_line_writes_no_bug_report() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("config.toml"), "version = 1\n").expect("written");
    for (more, code, words) in [
        (
            ["--since", "bar"],
            2,
            "--since: \"bar\" is no point in time",
        ),
        (
            ["--file", "typo/x.tgz"],
            1,
            "--file typo/x.tgz: there is no directory typo",
        ),
    ] {
        let run = bundle(folder.path(), &more);
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(code), "{said}");
        assert!(said.contains(words), "{words} is not in {said}");
        let left = std::fs::read_dir(folder.path()).expect("read").count();
        assert_eq!(left, 1, "only the configuration is there");
    }
}
