//! A bug report in one command, and nothing secret in it.

use std::process::Command;
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
    let open = scene.state().join("open");
    std::fs::create_dir(&open).expect("made");
    let tar = Command::new("tar")
        .arg("-xzf")
        .arg(&archive)
        .arg("-C")
        .arg(&open)
        .status();
    assert!(tar.expect("tar runs").success());
    let folder = std::fs::read_dir(&open)
        .expect("read")
        .next()
        .expect("one")
        .expect("read")
        .path();
    let configuration =
        std::fs::read_to_string(folder.join("configuration.toml")).expect("it is in it");
    assert!(
        configuration.contains("max = 3") && configuration.contains("# the end"),
        "{configuration}"
    );
    assert!(configuration.contains("<redacted>"), "{configuration}");
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
        "missing.txt",
        "versions/kernel.txt",
    ] {
        text.push_str(&std::fs::read_to_string(folder.join(name)).expect(name));
    }
    for secret in PLANTED {
        assert!(!text.contains(secret), "{secret} is in it");
    }
}
